"""A model on this machine: a GGUF file, run by `xllamacpp`, without network and key.

The model speaks OpenAI Chat. It runs in a child process (`llama_child`), so that a crash in native
code is an error here and the next request starts a new process; lines of JSON go through pipes, so
neither a port nor an HTTP client is needed. Tool calls are forced by a grammar: the model may write
`{"answer": "…"}` or `{"tool": "…", "arguments": {…}}`, one call in an answer, and its output is
parsed as it streams.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import queue
import re
import secrets
import subprocess
import sys
import threading
import weakref
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from anyio import to_thread

from palaver.errors import BadRequest, ModelError, NetworkError, Unavailable, ValidationError
from palaver.messages.ids import new_id
from palaver.messages.limits import (
    EMPTY,
    check_number,
    is_list,
    is_object,
    not_pickled,
)
from palaver.messages.parts import ModelRef
from palaver.models import catalog
from palaver.models.base import check_defaults, merge_fields
from palaver.models.errors import ErrorReply, classify, read_error_body
from palaver.wire import spell_tool
from palaver.wire.request import Target

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping

    from palaver.models.base import ModelRequest
    from palaver.wire import ToolSpec

__all__ = [
    "WINDOW",
    "Engine",
    "LocalModel",
    "OutputParser",
    "ReplyQueue",
    "grammar",
    "output_schema",
    "plain_messages",
    "tool_instructions",
]


WINDOW: Final = 4_096
"""The default window, in tokens."""
_CHILD: Final = Path(__file__).with_name("llama_child.py")
_STOP_SECONDS: Final = 5.0
_PROVIDER: Final = "local"

ReplyQueue = queue.SimpleQueue[dict[str, Any] | None]
"""The lines that answer a request; None when no more can come."""

_ANSWER: Final = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
_OBJECT: Final = re.compile(r'\s*\{\s*"answer"\s*:\s*(?=\{)')
_TOOL: Final = re.compile(
    r'\s*\{\s*"tool"\s*:\s*"(?P<name>[^"\\]*)"\s*,\s*"arguments"\s*:\s*', re.DOTALL
)
_LETTERS: Final = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt]'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4})+"
)
_CLOSED: Final = {"additionalProperties": False}
_DEFINITIONS: Final = ("$defs", "definitions")
_INSTRUCTIONS: Final = """\
You can use these tools:
{tools}

Reply with one JSON object: {ways}."""
_ONLY_ANSWER: Final = 'Reply with one JSON object, with "answer" to say something.'
_HOW_TO_ANSWER: Final = 'with "answer" to say something'
_SMALL: Final[Mapping[str, Any]] = {
    "temperature": 0,
    "max_tokens": 120,
    "extra": {"dry_multiplier": 0.8, "dry_allowed_length": 3},  # say nothing over and over
}
"""The options of an installed model, unless a request has others."""
_NO_EFFORT: Final = "a model on this machine has no reasoning effort; leave it out"
_HOW_TO_CALL: Final = 'with "tool" and "arguments" to use a tool'


class LocalModel:
    """A model in a GGUF file: the name of an installed one, or the path of any other.

    `window` is the context window in tokens, at most what the model was trained for. `threads` is
    how many cores it may use; the default is half of them, because with all of them it nearly stops
    as soon as another process is busy. All further arguments are default options. An installed
    model is small: unless an option says otherwise, its answers are short and it does not repeat
    itself.
    """

    format: str = "openai-chat"

    def __init__(
        self,
        name: str,
        *,
        window: int | None = None,
        threads: int | None = None,
        timeout: float = 600.0,
        **options: Any,  # noqa: ANN401 - those of OPTIONS
    ) -> None:
        """Find the file; it is loaded at the first request."""
        defaults = check_defaults(options, LocalModel.__init__)
        if "effort" in defaults:
            raise ValidationError(_NO_EFFORT, path="$.effort", rule="option")
        check_number(timeout, "$.timeout", least=0.001)
        for value, where in ((window, "$.window"), (threads, "$.threads")):
            if value is not None:
                check_number(value, where, least=1, whole=True)
        if importlib.util.find_spec("xllamacpp") is None:
            detail = "this model needs more packages: pip install 'palaver[local]'"
            raise ModelError(detail, provider=_PROVIDER)
        path = catalog.find(name)
        self.ref = ModelRef(provider_id=_PROVIDER, model_id=path.stem if "/" in name else name)
        self.target = Target(model=self.ref, images=False, files=False)
        self.timeout = timeout
        known = catalog.KNOWN.get(name)
        self.defaults: Mapping[str, Any] = {**(_SMALL if known else EMPTY), **defaults}
        wanted = window or (known.window if known else WINDOW)
        half = max(1, (os.cpu_count() or 2) // 2)
        self._engine = Engine(Path(path), window=wanted, threads=threads or half)

    def __repr__(self) -> str:
        return f"<LocalModel {self.ref.model_id}>"

    __reduce_ex__ = not_pickled("make it again by its name: palaver.model('local:smollm2')")

    @property
    def window(self) -> int | None:
        """The context window: the requested one, and once the model is loaded the actual one."""
        return self._engine.window

    def request(self, request: ModelRequest) -> dict[str, Any]:
        """Return the body of a request, as the child process gets it."""
        self.check_options(request)
        return _request_body(request.with_defaults(self.defaults))

    def check_options(self, request: ModelRequest) -> None:
        """Raise `ValidationError` for options that this model does not have."""
        if request.check().options.get("effort") is not None:
            raise ValidationError(_NO_EFFORT, path="$.options.effort", rule="option")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Mapping[str, Any]]:
        """Send a request and yield the chunks as they arrive."""
        forced = _forces_calls(request.with_defaults(self.defaults).settings, request.tools)
        parser = OutputParser() if forced else None
        async with aclosing(self._events(self.request(request))) as events:
            async for event in events:
                chunk: dict[str, Any] = {**event, "model": self.ref.model_id}
                if parser is None:
                    yield chunk
                    continue
                for choices in _parse_choices(chunk.get("choices") or [], parser):
                    yield {**chunk, "choices": choices}

    async def complete(self, request: ModelRequest) -> Mapping[str, Any]:
        """Send a request and return the complete answer."""
        answer: dict[str, Any] = {}
        message: dict[str, Any] = {"role": "assistant", "content": None}
        finish: str | None = None
        async with aclosing(self.stream(request)) as chunks:
            async for chunk in chunks:
                answer |= {name: value for name, value in chunk.items() if name != "choices"}
                for choice in chunk["choices"]:
                    delta = choice["delta"]
                    finish = choice["finish_reason"] or finish
                    if delta.get("content"):
                        message["content"] = (message["content"] or "") + delta["content"]
                    if delta.get("tool_calls"):
                        calls = delta["tool_calls"]
                        message["tool_calls"] = [_without_index(call) for call in calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return {**answer, "object": "chat.completion", "choices": [choice]}

    async def close(self) -> None:
        """End the child process."""
        await to_thread.run_sync(self._engine.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _events(self, request: Mapping[str, Any]) -> AsyncGenerator[Mapping[str, Any]]:
        # loading a large file takes long, and the wait can be cancelled
        await to_thread.run_sync(self._engine.start, abandon_on_cancel=True)
        number, replies = await to_thread.run_sync(self._engine.ask, request)
        try:
            while "done" not in (line := await self._next(replies)):
                yield line["event"]
        finally:
            self._engine.cancel(number, replies)

    async def _next(self, replies: ReplyQueue) -> dict[str, Any]:
        try:
            wait = partial(replies.get, timeout=self.timeout)
            line = await to_thread.run_sync(wait, abandon_on_cancel=True)
        except queue.Empty:
            detail = f"nothing came within {self.timeout:g} s"
            raise NetworkError(detail, provider=_PROVIDER) from None
        if line is None:
            raise Unavailable("the model's process ended", provider=_PROVIDER)
        if "error" in line:
            raise BadRequest(str(line["error"]), provider=_PROVIDER)
        error = line.get("event", {}).get("error")
        if is_object(error):
            text, code = read_error_body(error)
            status = error.get("code")
            known = status if isinstance(status, int) else None
            raise classify(ErrorReply(_PROVIDER, known, text, code)).error
        return line


def _tools_by_name(request: ModelRequest) -> dict[str, ToolSpec]:
    return {spell_tool("openai-chat", tool.name): tool for tool in request.tools}


def _forces_calls(settings: Mapping[str, Any], tools: tuple[ToolSpec, ...]) -> bool:
    """Tell whether a grammar is used: small models repeat earlier calls unless it prevents them."""
    return bool(tools) and not ("schema" in settings and settings.get("tool_choice") == "none")


def _request_body(request: ModelRequest) -> dict[str, Any]:
    settings = request.settings
    instructions = ""
    fields: dict[str, Any] = {
        name: settings[name]
        for name in ("temperature", "top_p", "max_tokens", "stop")
        if name in settings
    }
    schema = _closed(settings.get("schema"))
    if _forces_calls(settings, request.tools):
        choice = settings.get("tool_choice", "auto")
        if choice not in ("auto", "required", "none"):
            choice = spell_tool("openai-chat", choice)
        tools = _tools_by_name(request)
        instructions = tool_instructions(tools, choice)
        fields["grammar"] = grammar(output_schema(tools, choice, schema))
    elif schema is not None:
        form = {"name": "reply", "schema": schema}
        fields["response_format"] = {"type": "json_schema", "json_schema": form}
    messages = plain_messages(request.body["messages"], instructions)
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    return merge_fields({**fields, "messages": messages, **streamed}, request.extra)


def _parse_choices(
    choices: list[dict[str, Any]], parser: OutputParser
) -> list[list[dict[str, Any]]]:
    """Convert a choice with constrained output to choices with text or with a tool call."""
    if not choices:
        return [[]]
    choice = choices[0]
    delta, finish = dict(choice["delta"]), choice["finish_reason"]
    piece = delta.pop("content", None)
    text = parser.feed(piece) if piece else ""
    call = parser.call() if finish else None
    if finish and call is None:
        text += parser.object()
    deltas = [{**delta, "content": text or None}] if text or delta else []
    if call is not None:
        function = {"name": call[0], "arguments": call[1]}
        made = {"index": 0, "id": f"call_{new_id()}", "type": "function", "function": function}
        deltas.append({"tool_calls": [made]})
    out = [[{**choice, "delta": each, "finish_reason": None}] for each in deltas]
    if finish:
        reason = "tool_calls" if call is not None and finish == "stop" else finish
        out.append([{**choice, "delta": {}, "finish_reason": reason}])
    return out


def _without_index(call: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in call.items() if name != "index"}


# ── the process ─────────────────────────────────────────────────────────────────────────────────


class Engine:
    """A child process that runs a model, started at the first request. Safe for threads."""

    def __init__(self, path: Path, *, window: int, threads: int) -> None:
        """Take the settings; nothing is started yet."""
        self.path = path
        self.window = window
        self._threads = threads
        self._lock = threading.Lock()
        self._running: _Process | None = None
        self._loading: _Process | None = None

    def start(self) -> None:
        """Load the model if it is not loaded, and wait for it."""
        self._ensure_started()

    def ask(self, request: Mapping[str, Any]) -> tuple[int, ReplyQueue]:
        """Send a request; the answer arrives in the queue."""
        return self._ensure_started().ask(request)

    def cancel(self, number: int, replies: ReplyQueue) -> None:
        """Stop an answer, and wake whoever waits for its queue."""
        replies.put(None)
        running = self._running
        if running is not None:
            running.cancel(number)

    def close(self) -> None:
        """End the process, also while it loads; a later request starts a new one."""
        loading = self._loading
        if loading is not None:
            loading.kill()
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            running.stop()

    def _ensure_started(self) -> _Process:
        with self._lock:
            running = self._running
            if running is None or not running.alive:
                if running is not None:
                    running.stop()
                self._loading = running = _Process()
                try:
                    self.window = running.load(self.path, self.window, self._threads)
                finally:
                    self._loading = None
                self._running = running
            return running


class _Replies:
    """The queues of the open requests; when the process ends, all of them are closed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: dict[int, ReplyQueue] = {}
        self.ended = False

    def read(self, lines: Iterable[bytes]) -> None:
        """Put each line into the queue of its request; at the end, close all queues."""
        try:
            for line in lines:
                reply = json.loads(line)
                number, last = reply["number"], "event" not in reply
                with self.lock:
                    queued = self.waiting.pop(number, None) if last else self.waiting.get(number)
                if queued is not None:
                    queued.put(reply)
        except (OSError, ValueError):
            pass  # the process ended in the middle of a line
        with self.lock:
            self.ended = True
            for queued in self.waiting.values():
                queued.put(None)
            self.waiting.clear()


class _Process:
    """The running child, and its pipes."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._numbers = itertools.count(1)
        self._replies = _Replies()
        self._process = subprocess.Popen(  # noqa: S603 - this Python, and a file of ours
            [sys.executable, "-P", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for this process, which cancels its requests
        )
        # at the latest when this process ends
        self.stop = weakref.finalize(self, _stop, self._process)

    def load(self, path: Path, window: int, threads: int) -> int:
        """Load a file, wait for it, and return the actual window in tokens."""
        found = self._load({"path": str(path), "window": window, "threads": threads})
        threading.Thread(
            target=self._replies.read, args=(self._process.stdout,), name="local model", daemon=True
        ).start()
        return found

    def kill(self) -> None:
        """End it at once: while it loads it reads no input."""
        self._process.kill()

    @property
    def alive(self) -> bool:
        # after a fork the process and its pipes belong to the parent
        return not self._replies.ended and self._owner == os.getpid()

    def ask(self, request: Mapping[str, Any]) -> tuple[int, ReplyQueue]:
        number, replies = next(self._numbers), ReplyQueue()
        with self._replies.lock:
            if self._replies.ended or not self._put({"number": number, "request": request}):
                replies.put(None)
            else:
                self._replies.waiting[number] = replies
        return number, replies

    def cancel(self, number: int) -> None:
        with self._replies.lock:
            if self._replies.waiting.pop(number, None) is not None:
                self._put({"number": number})

    def _load(self, settings: Mapping[str, Any]) -> int:
        self._put({**settings, "key": secrets.token_hex(16)})
        line = self._process.stdout.readline() if self._process.stdout else b""
        if not line:
            self.stop()
            raise Unavailable("the model's process ended while it loaded", provider=_PROVIDER)
        reply = json.loads(line)
        if "failed" in reply:
            self.stop()
            detail = f"{settings['path']} can't be loaded: {reply['failed']}"
            raise ModelError(detail, provider=_PROVIDER)
        return int(reply["ready"]["window"])

    def _put(self, line: Mapping[str, Any]) -> bool:
        """Write a line; tell whether the process still reads."""
        stdin = self._process.stdin
        try:
            if stdin is None or stdin.closed:
                return False
            stdin.write(json.dumps(line).encode() + b"\n")
            stdin.flush()
        except OSError:
            return False
        return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):  # it has ended already, with unread input
            process.stdin.close()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


# ── the grammar ─────────────────────────────────────────────────────────────────────────────────


def output_schema(
    tools: Mapping[str, ToolSpec], choice: str, answer: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the JSON schema of the model's output, for tools by their names in the request.

    `choice` is `auto`, `required`, `none` or one of those names. `answer` is the schema of an
    answer, if it is not text.
    """
    definitions: dict[str, Any] = {}
    may_answer = choice in ("auto", "none")
    said = {"type": "string"} if answer is None else _hoist(answer, "answer_", definitions)
    ways = [_object("answer", answer=said)] if may_answer else []
    for place, (name, tool) in enumerate(tools.items()):
        if choice in ("auto", "required", name):
            # only declared arguments, unless the tool says otherwise: else the output may never end
            closed = (
                {} if "type" in tool.parameters and "properties" not in tool.parameters else _CLOSED
            )
            arguments = _hoist({**closed, **tool.schema}, f"{place}_", definitions)
            ways.append(_object("tool", tool={"const": name}, arguments=arguments))
    schema = ways[0] if len(ways) == 1 else {"anyOf": ways}
    return {**schema, **({"$defs": definitions} if definitions else {})}


def grammar(schema: Mapping[str, Any]) -> str:
    """Return a schema as a grammar without white space between tokens, in which small models loop.

    >>> grammar({"type": "null"}).splitlines()[0]
    '%llguidance {}'
    """
    compact = {**schema, "x-guidance": {"whitespace_flexible": False}}
    return f"%llguidance {{}}\nstart: %json {json.dumps(compact)}"


def _closed(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a schema whose objects have only their named fields: else an answer may never end."""
    if is_list(schema):
        return [_closed(one) for one in schema]
    if not is_object(schema):
        return schema
    closed = _CLOSED if is_object(schema.get("properties")) and "type" in schema else EMPTY
    return {**closed, **{name: _closed(value) for name, value in schema.items()}}


def _object(title: str, **properties: object) -> dict[str, Any]:
    return {
        "title": title,
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _hoist(schema: Mapping[str, Any], prefix: str, definitions: dict[str, Any]) -> Any:  # noqa: ANN401
    """Prepare a tool's schema for use inside another: its definitions move to the top."""

    def rewrite(value: object) -> Any:  # noqa: ANN401 - JSON
        if is_list(value):
            return [rewrite(entry) for entry in value]
        if not is_object(value):
            return value
        out = {name: rewrite(field) for name, field in value.items()}
        where = out.get("$ref")
        if isinstance(where, str) and where.count("/") == 2:  # noqa: PLR2004 - #/$defs/Name
            out["$ref"] = f"#/$defs/{prefix}{where.rpartition('/')[2]}"
        return out

    inner = dict(schema)
    for field in _DEFINITIONS:
        for name, definition in (inner.pop(field, None) or {}).items():
            definitions[f"{prefix}{name}"] = rewrite(definition)
    return rewrite(inner)


def tool_instructions(tools: Mapping[str, ToolSpec], choice: str) -> str:
    """Return the system text that describes the tools: the chat template does not."""
    if choice == "none":
        return _ONLY_ANSWER
    lines = [
        f"- {name}: {tool.description or 'no description'} "
        f"Arguments: {json.dumps(tool.schema, ensure_ascii=False)}"
        for name, tool in tools.items()
        if choice in ("auto", "required", name)
    ]
    ways = f"{_HOW_TO_ANSWER}, or {_HOW_TO_CALL}" if choice == "auto" else _HOW_TO_CALL
    return _INSTRUCTIONS.format(tools="\n".join(lines), ways=ways)


# ── the messages ────────────────────────────────────────────────────────────────────────────────


def plain_messages(
    messages: Iterable[Mapping[str, Any]], instructions: str
) -> list[dict[str, Any]]:
    """Return the messages with calls and results as text, because many templates can't show them.

    Neighbours of one role become one message, because many templates require alternating roles.

    >>> plain_messages([{"role": "user", "content": "Hi"}], "Be brief.")
    [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Hi'}]
    """
    plain: list[dict[str, Any]] = []
    if instructions:
        plain.append({"role": "system", "content": instructions})
    names: dict[str, str] = {}
    for message in messages:
        role, content = message["role"], message.get("content")
        if role == "developer":
            role = "system"
        if role == "tool":
            name = names.get(message.get("tool_call_id", ""), "tool")
            role, content = "user", f"Result of {name}: {_text(content)}"
        for call in message.get("tool_calls") or ():
            function = call.get("function") or {"name": "tool", "arguments": "{}"}
            names[call["id"]] = function["name"]
            written = (
                f'{{"tool":{json.dumps(function["name"])},"arguments":{function["arguments"]}}}'
            )
            content = f"{_text(content)}\n{written}" if content else written
        last: dict[str, Any] = plain[-1] if plain else {"role": None, "content": None}
        if last["role"] == role and isinstance(last["content"], str) and isinstance(content, str):
            last["content"] += f"\n\n{content}"
        else:
            plain.append({"role": role, "content": content})
    return plain


def _text(content: object) -> str:
    if is_list(content):
        return "".join(str(part.get("text", "")) for part in content if is_object(part))
    return content if isinstance(content, str) else ""


# ── the output ──────────────────────────────────────────────────────────────────────────────────


class OutputParser:
    r"""Parses the output of a model under the grammar, as it arrives.

    >>> parser = OutputParser()
    >>> [parser.feed(piece) for piece in ('{"ans', 'wer":"Te', 'a\\', 'n!"}')]
    ['', 'Te', 'a', '\n!']
    """

    def __init__(self) -> None:
        """Start with empty output."""
        self._raw = ""
        self._read = 0

    def feed(self, piece: str) -> str:
        """Add a piece; return the new text of an answer."""
        self._raw += piece
        if not self._read:
            begun = _ANSWER.match(self._raw)
            if begun is None:
                return ""
            self._read = begun.end()
        found = _LETTERS.match(self._raw, self._read)
        if found is None:
            return ""
        self._read = found.end()
        text: str = json.loads(f'"{found[0]}"', strict=False)
        # half of a surrogate pair is no character and can't be stored
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def object(self) -> str:
        """Return the JSON of an answer that is an object, at its end."""
        found = _OBJECT.match(self._raw)
        return "" if found is None else _value(self._raw[found.end() :])

    def call(self) -> tuple[str, str] | None:
        """Return the name and the raw arguments of the tool that is called, if one is."""
        found = _TOOL.match(self._raw)
        return None if found is None else (found["name"], _value(self._raw[found.end() :]))


def _value(text: str) -> str:
    """Return the JSON value that a text begins with, or all of it if that was cut off."""
    try:
        return text[: json.JSONDecoder().raw_decode(text)[1]]
    except ValueError:
        return text
