"""A model on this machine: a GGUF file, run by `xllamacpp`, with no network and no key.

It speaks OpenAI Chat. The file runs in a process of its own, so native code can crash without
taking anything along. Tools are forced by a schema (see `forcing`): one call an answer.
"""

from __future__ import annotations

import importlib.util
import os
import queue
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from anyio import to_thread

from palaver.conversation.models import catalog
from palaver.conversation.models.base import merged
from palaver.conversation.models.engine import Engine
from palaver.conversation.models.failures import Report, failure, words_of
from palaver.conversation.models.forcing import (
    Reader,
    grammar_for,
    plain_messages,
    schema_for,
    words_about,
)
from palaver.errors import BadRequest, ModelError, NetworkError, Unavailable
from palaver.messages.gate import is_object
from palaver.messages.ids import new_id
from palaver.messages.parts import ModelRef
from palaver.wire.target import Target
from palaver.wire.tools import spell_tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from palaver.conversation.models.base import Ask
    from palaver.conversation.models.engine import Pieces
    from palaver.wire.tools import ToolSpec

__all__ = ["WINDOW", "Local"]

_PROVIDER: Final = "local"
WINDOW: Final = 4_096
"""The window of a file that says no more about itself."""


class Local:
    """A GGUF file: the name of an installed one, or the path of any other.

    `window` is how many tokens it is to hold, at most what it was trained for; `threads` how many
    cores it may use, by default half of them: with all of them it comes nearly to a stop as soon as
    anything else runs.
    """

    format: str = "openai-chat"

    def __init__(
        self,
        name: str,
        *,
        window: int | None = None,
        threads: int | None = None,
        timeout: float = 600.0,
    ) -> None:
        """Find the file; it is loaded when it is first asked."""
        if importlib.util.find_spec("xllamacpp") is None:
            detail = "this model needs more packages: pip install 'palaver[local]'"
            raise ModelError(detail, provider=_PROVIDER)
        path = catalog.find(name)
        self.ref = ModelRef(provider_id=_PROVIDER, model_id=path.stem if "/" in name else name)
        self.target = Target(model=self.ref, images=False, files=False)
        self.timeout = timeout
        known = catalog.KNOWN.get(name)
        wanted = window or (known.window if known else WINDOW)
        half = max(1, (os.cpu_count() or 2) // 2)
        self._engine = Engine(Path(path), window=wanted, threads=threads or half)

    def __repr__(self) -> str:
        return f"<Local {self.ref.model_id}>"

    @property
    def window(self) -> int | None:
        """How many tokens it holds: what was asked for, and once it is loaded what it really is."""
        return self._engine.window

    def request(self, ask: Ask) -> dict[str, Any]:
        """The body of a request, as the model's process gets it."""
        return _request(ask)

    async def stream(self, ask: Ask) -> AsyncGenerator[Mapping[str, Any]]:
        """Ask, and give the chunks as they arrive."""
        request = self.request(ask)
        reader = Reader() if _forced(ask) else None
        async with aclosing(self._events(request)) as events:
            async for event in events:
                chunk: dict[str, Any] = {**event, "model": self.ref.model_id}
                if reader is None:
                    yield chunk
                    continue
                for choices in _unforced(chunk.get("choices") or [], reader):
                    yield {**chunk, "choices": choices}

    async def whole(self, ask: Ask) -> Mapping[str, Any]:
        """Ask, and give the completion once it is whole."""
        answer: dict[str, Any] = {}
        message: dict[str, Any] = {"role": "assistant", "content": None}
        finish: str | None = None
        async with aclosing(self.stream(ask)) as chunks:
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
        """End the process."""
        await to_thread.run_sync(self._engine.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _events(self, request: Mapping[str, Any]) -> AsyncGenerator[Mapping[str, Any]]:
        # a large file takes its time, and who does not want to wait need not
        await to_thread.run_sync(self._engine.start, abandon_on_cancel=True)
        number, pieces = await to_thread.run_sync(self._engine.ask, request)
        try:
            while "done" not in (told := await self._next(pieces)):
                yield told["event"]
        finally:
            self._engine.call_off(number, pieces)

    async def _next(self, pieces: Pieces) -> dict[str, Any]:
        try:
            wait = partial(pieces.get, timeout=self.timeout)
            told = await to_thread.run_sync(wait, abandon_on_cancel=True)
        except queue.Empty:
            detail = f"nothing came within {self.timeout:g} s"
            raise NetworkError(detail, provider=_PROVIDER) from None
        if told is None:
            raise Unavailable("the model's process ended", provider=_PROVIDER)
        if "error" in told:
            raise BadRequest(str(told["error"]), provider=_PROVIDER)
        error = told.get("event", {}).get("error")
        if is_object(error):
            words, code = words_of(error)
            status = error.get("code")
            known = status if isinstance(status, int) else None
            raise failure(Report(_PROVIDER, known, words, code)).error
        return told


def _offered(ask: Ask) -> dict[str, ToolSpec]:
    return {spell_tool("openai-chat", tool.name): tool for tool in ask.tools}


def _forced(ask: Ask) -> bool:
    """Where calls stand in what was said, a small model goes on with them unless it can't."""
    return bool(ask.tools)


def _request(ask: Ask) -> dict[str, Any]:
    wants = ask.checked().wants
    about = ""
    fields: dict[str, Any] = {
        name: wants[name]
        for name in ("temperature", "top_p", "max_tokens", "stop")
        if name in wants
    }
    if _forced(ask):
        choice = wants.get("tool_choice", "auto")
        if choice not in ("auto", "required", "none"):
            choice = spell_tool("openai-chat", choice)
        tools = _offered(ask)
        about = words_about(tools, choice)
        fields["grammar"] = grammar_for(schema_for(tools, choice))
    elif "schema" in wants:
        form = {"name": "reply", "schema": wants["schema"]}
        fields["response_format"] = {"type": "json_schema", "json_schema": form}
    messages = plain_messages(ask.body["messages"], about)
    counted = {"stream": True, "stream_options": {"include_usage": True}}
    return merged({**fields, "messages": messages, **counted}, ask.extra)


def _unforced(choices: list[dict[str, Any]], reader: Reader) -> list[list[dict[str, Any]]]:
    """What was said under the schema, as an answer's words or as a call."""
    if not choices:
        return [[]]
    choice = choices[0]
    delta, finish = dict(choice["delta"]), choice["finish_reason"]
    piece = delta.pop("content", None)
    words = reader.feed(piece) if piece else ""
    deltas = [{**delta, "content": words or None}] if words or delta else []
    call = reader.call() if finish else None
    if call is not None:
        function = {"name": call[0], "arguments": call[1]}
        made = {"index": 0, "id": f"call_{new_id()}", "type": "function", "function": function}
        deltas.append({"tool_calls": [made]})
    out = [[{**choice, "delta": each, "finish_reason": None}] for each in deltas]
    if finish:
        why = "tool_calls" if call is not None and finish == "stop" else finish
        out.append([{**choice, "delta": {}, "finish_reason": why}])
    return out


def _without_index(call: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in call.items() if name != "index"}
