"""MCP servers as sources of tools, through the official SDK (`palaver[mcp]`).

A server is open as long as its `async with` block. A server that refuses, hangs or crashes fails
only the calls of its tools. Links in results are shown to the model and never followed. A program
that is started gets a few variables of the environment, and no key that is not given to it.

A server writes the names, descriptions and schemas of its tools, and all of it goes into prompts
and on screens. So names are reduced to letters that providers accept, texts lose invisible and
direction-changing characters, and everything has a limit. A tool that can't be made safe is left
out, with a warning in the log.
"""

from __future__ import annotations

import hashlib
import logging
import re
import sys
import unicodedata
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TextIO

import anyio
import msgspec
from anyio import to_thread

from palaver.errors import ToolFailed, ToolUnreachable, ValidationError
from palaver.messages.limits import is_list, is_object
from palaver.messages.redaction import redact
from palaver.tools.function import ArgumentChecker, is_deeper
from palaver.tools.runner import (
    ToolContext,
    ToolOutput,
    attach_file,
    storable_metadata,
    storable_text,
)
from palaver.wire import ToolSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    import mcp
    from anyio.abc import TaskGroup, TaskStatus
    from mcp.shared.dispatcher import ProgressFnT
    from mcp_types import CallToolResult, ContentBlock
    from mcp_types import Tool as Listed

    from palaver.messages import FilePart

__all__ = ["MAX_TOOLS", "McpServer", "McpTool", "accept_tools", "clean_name", "clean_text"]


MAX_TOOLS: Final = 500
"""The most tools that are taken from one server."""
MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 4_000
MAX_SCHEMA: Final = 100_000
"""The longest schema of a tool's arguments, in bytes of JSON."""
MAX_DEPTH: Final = 50
"""How deep a schema may be nested."""
MAX_TOTAL: Final = 2_000_000
"""The most that all tools of a server may take, in bytes of JSON."""

_VALID_NAME: Final = re.compile(r"[A-Za-z0-9_./-]{1,64}")
_HASH_LENGTH: Final = 8
_TEXTS: Final = frozenset(("description", "title", "$comment"))
_INVISIBLE: Final = frozenset(("Cc", "Cf", "Cn", "Co", "Cs"))
"""Categories of controls, direction marks, other invisible signs, and unassigned characters."""
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0000-\U000e0fff]"
)
"""Invisible letters: fillers, and variation selectors, which can carry hidden text."""
_ALLOWED: Final = frozenset("\n\r\t\u200c\u200d\ufe0f")
"""Invisible characters that values may have: line breaks, and joiners of words and emoji."""
_log: Final = logging.getLogger("palaver.conversation")
_LONGEST_NAME: Final = 200
_MAX_PAGES: Final = 100
"""The most pages of tools that are requested, in case a list has no end."""


class McpServer:
    """The tools of an MCP server.

    `source` is whatever the SDK's `Client` takes: a URL, its `StdioServerParameters`, a transport,
    or a server object in this process; `stdio` and `http` make the usual ones. `prefix` is put
    before each tool's name, `timeout` limits each call in seconds. With `trust_hints`, a tool that
    the server calls idempotent or read-only may run again when it is unknown whether it ran.

        async with McpServer.stdio("uvx", "mcp-server-git", prefix="git_") as git:
            conversation = Conversation(store, tools=git.tools)

    >>> McpServer.http("http://127.0.0.1:9/mcp").name
    'http://127.0.0.1:9/mcp'
    """

    def __init__(
        self,
        source: Any,  # noqa: ANN401 - what the SDK takes
        *,
        name: str | None = None,
        prefix: str = "",
        timeout: float | None = None,
        connect_timeout: float = 30.0,
        trust_hints: bool = True,
    ) -> None:
        """Take the settings; nothing is connected before the `async with` block."""
        named = name or (source if isinstance(source, str) else "the MCP server")
        self.name = clean_text(redact(named), _LONGEST_NAME, lines=False)
        self.prefix = prefix
        self.timeout = timeout
        self.trust_hints = trust_hints
        self.tools: tuple[McpTool, ...] = ()
        self._source = source
        self._connect_timeout = connect_timeout
        self._client: mcp.Client | None = None
        self._reason = "it is not open"
        self._group: TaskGroup | None = None
        self._closing = anyio.Event()

    @classmethod
    def stdio(
        cls,
        command: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        log: TextIO | None = None,
        **options: Any,  # noqa: ANN401 - those of the class
    ) -> Self:
        """Make a server of a program, which is started and stopped with the block.

        The program gets `PATH`, `HOME` and a few more variables that are no secrets, and `env`,
        where a key that it needs has to be given. Its standard error goes to `log`, a real file, or
        to this process's standard error.
        """
        options.setdefault("name", command)
        extra = None if env is None else dict(env)
        return cls(_StdioSource(command, list(arguments), extra, cwd, log), **options)

    @classmethod
    def http(cls, url: str, *, headers: Mapping[str, str] | None = None, **options: Any) -> Self:  # noqa: ANN401 - as above
        """Make a server of a URL, over streamable HTTP; `headers` are sent with every request."""
        options.setdefault("name", url)
        return cls(_HttpSource(url, dict(headers or {})), **options)

    async def __aenter__(self) -> Self:
        """Connect and list the tools; raise `ToolUnreachable` if that fails."""
        self._closing, group = anyio.Event(), anyio.create_task_group()
        await group.__aenter__()
        try:
            with anyio.fail_after(self._connect_timeout):
                await group.start(self._run)
        except BaseException as error:
            await group.__aexit__(None, None, None)
            if isinstance(error, TimeoutError):
                why = f"no answer in {self._connect_timeout:g} seconds"
                raise ToolUnreachable(f"{self.name}: {why}") from None
            raise
        self._group = group
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect; a program that was started is stopped."""
        group, self._group = self._group, None
        self._client, self._reason = None, "it is closed"
        self._closing.set()
        if group is not None:
            # the error that ended the block does not concern the connection
            await group.__aexit__(None, None, None)

    async def _run(self, task_status: TaskStatus[None]) -> None:
        """Hold the connection in a task of its own, so that its failure stops nobody else."""
        started = False
        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(await self._connect(stack))
                listed = accept_tools(self.name, await _list_tools(client), self.prefix)
                # compiling schemas takes a while if they are hostile: one at a time, and not here
                made = [await to_thread.run_sync(McpTool, self, *found) for found in listed]
                self.tools = tuple(made)
                self._client = client
                task_status.started()
                started = True
                await self._closing.wait()
        except Exception as error:
            self._reason = _reason(error)
            if not started:
                raise ToolUnreachable(f"{self.name}: {self._reason}") from error
        finally:
            self._client = None

    async def _connect(self, stack: AsyncExitStack) -> mcp.Client:
        try:
            import mcp  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            detail = "it needs more packages: pip install 'palaver[mcp]'"
            raise ToolUnreachable(detail) from error
        return mcp.Client(await _transport(self._source, stack))

    async def call_tool(
        self,
        tool: str,
        arguments: dict[str, Any],
        progress: ProgressFnT,
    ) -> CallToolResult:
        """Call a tool by the server's own name for it, and return the SDK's result."""
        client = self._client
        if client is None:
            raise ToolUnreachable(f"{self.name}: {self._reason}")
        from mcp import MCPError  # noqa: PLC0415 - an extra, and it is there
        from mcp_types import CONNECTION_CLOSED  # noqa: PLC0415 - the same

        try:
            return await client.call_tool(tool, arguments, progress_callback=progress)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED and error.message == "Connection closed":
                raise ToolUnreachable(f"{self.name}: the connection was lost") from error
            raise ToolFailed(f"{self.name}: {error.message} (code {error.code})") from error
        except (OSError, RuntimeError, ValueError, anyio.ClosedResourceError) as error:
            raise ToolFailed(f"{self.name}: {_reason(error)}") from error


class McpTool:
    """One tool of an MCP server.

    Its arguments are checked here and by the server; by the server alone if its schema can't be
    used here, and a warning in the log says why.
    """

    def __init__(self, server: McpServer, listed: Listed, spec: ToolSpec) -> None:
        """Take the server's description, and the cleaned one that a model gets."""
        self._server = server
        self._name = listed.name
        hints = listed.annotations if server.trust_hints else None
        self.idempotent = bool(hints and (hints.idempotent_hint or hints.read_only_hint))
        self.spec = spec
        self._checker: ArgumentChecker | None = None
        try:
            self._checker = ArgumentChecker(spec.parameters)
        except ValidationError as error:
            note = "%s: only the server checks the arguments of the tool %s: %s"
            _log.warning(note, server.name, spec.name, redact(error.detail))

    @property
    def timeout(self) -> float | None:
        """The limit of the server's tools, in seconds."""
        return self._server.timeout

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of the arguments; `ValidationError` if they don't fit the schema."""
        checker = self._checker
        given: dict[str, Any] = (
            msgspec.to_builtins(arguments) if checker is None else checker.check(arguments)
        )
        return given

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Check the arguments against the server's schema, and call the tool."""
        given = self.check(arguments)

        async def report(progress: float, total: float | None, message: str | None) -> None:
            done = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
            title = clean_text(message or "", _LONGEST_NAME, lines=False) or done
            context.progress(title, {"progress": progress, "total": total})

        result = await self._server.call_tool(self._name, given, report)
        output = _output(result, context)
        if result.is_error:
            raise ToolFailed(output.text.strip() or "the tool failed without a message")
        return output


class _StdioSource(NamedTuple):
    """A program to start."""

    command: str
    arguments: list[str]
    env: dict[str, str] | None
    cwd: str | Path | None
    log: TextIO | None


class _HttpSource(NamedTuple):
    """A URL to connect to."""

    url: str
    headers: dict[str, str]


async def _transport(source: Any, stack: AsyncExitStack) -> Any:  # noqa: ANN401 - the SDK's
    """Return the transport for the SDK's client."""
    if isinstance(source, _StdioSource):
        from mcp.client import stdio  # noqa: PLC0415 - an extra

        given = stdio.StdioServerParameters(
            command=source.command, args=source.arguments, env=source.env, cwd=source.cwd
        )
        return stdio.stdio_client(given, source.log or sys.stderr)
    if isinstance(source, _HttpSource):
        import httpx2  # noqa: PLC0415 - an extra
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - the same

        no_read_limit = httpx2.Timeout(30.0, read=None)  # the time of a call is limited elsewhere
        client = httpx2.AsyncClient(headers=source.headers, timeout=no_read_limit)
        await stack.enter_async_context(client)
        return streamable_http_client(source.url, http_client=client)
    return source


async def _list_tools(client: mcp.Client) -> list[Listed]:
    found: list[Listed] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None or len(found) > MAX_TOOLS:
            break
    return found


def _output(result: CallToolResult, context: ToolContext) -> ToolOutput:
    """Convert a result: text for the model, files, and structured content in the metadata."""
    texts: list[str] = []
    files: list[FilePart] = []
    for block in result.content:
        text, file = _block(block, context)
        texts += [text] if text else []
        files += [file] if file else []
    structured = result.structured_content
    if not texts and structured is not None:
        texts.append(msgspec.json.encode(structured).decode())
    metadata = {} if structured is None else {"structuredContent": structured}
    return ToolOutput(
        storable_text("\n".join(texts)),
        metadata=storable_metadata(metadata),
        attachments=tuple(files),
    )


def _block(block: ContentBlock, context: ToolContext) -> tuple[str, FilePart | None]:
    match block.type:
        case "text":
            return block.text, None
        case "image" | "audio":
            return _file(block.data, block.mime_type, context)
        case "resource_link":
            about = f": {block.description}" if block.description else ""
            return f"[{block.title or block.name}]({block.uri}){about}", None
        case "resource":
            resource: Any = block.resource
            mime = resource.mime_type or "application/octet-stream"
            if hasattr(resource, "text"):
                return str(resource.text), None
            return _file(resource.blob, mime, context, filename=storable_text(resource.uri))


def _file(
    encoded: str,
    mime: str,
    context: ToolContext,
    **fields: Any,  # noqa: ANN401 - of a file part
) -> tuple[str, FilePart | None]:
    part = attach_file(encoded, mime, context, **fields)
    return ("" if part else f"[a file of type {mime} that is too large to store]"), part


def _reason(error: BaseException) -> str:
    """Return the text of the first error inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if type(error).__module__.startswith("pydantic"):  # the SDK checks what a server sends
        problems: Any = getattr(error, "errors", list)()
        if problems:
            field = ".".join(map(str, problems[0]["loc"]))
            return redact(f"its answer is invalid: {field}: {problems[0]['msg']}")
    return redact(str(error)) or type(error).__name__


# ── what a server lists ─────────────────────────────────────────────────────────────────────────


def clean_text(text: str, longest: int, *, lines: bool = True) -> str:
    r"""Return the visible text, cut to a length; without `lines`, as one line.

    >>> clean_text("Read\u202e a\u200b file.\x1b[31m", 100)
    'Read a file.[31m'
    >>> clean_text("one\ntwo  three", 9, lines=False)
    'one two …'
    """
    cut = text[: 2 * longest].replace("\r\n", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    invisible = _invisible(cut) - {"\n", "\t"}
    seen = "".join(letter for letter in cut if letter not in invisible) if invisible else cut
    seen = seen.strip() if lines else " ".join(seen.split())
    over = len(seen) > longest or len(text) > 2 * longest
    return f"{seen[: longest - 1]}…" if over else seen


def _invisible(text: str) -> set[str]:
    """Return the invisible characters of a text."""
    invisible = set(_BLANK.findall(text))
    if not text.isprintable():
        invisible |= {letter for letter in set(text) if unicodedata.category(letter) in _INVISIBLE}
    return invisible


def clean_name(name: str) -> str:
    """Return a tool's name in letters that every provider accepts.

    A name that has other letters, or is too long, gets a hash, so that no two names become one.

    >>> clean_name("files.read")
    'files.read'
    >>> clean_name("read a file")
    'read_a_file_...'
    """
    if _VALID_NAME.fullmatch(name):
        return name
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
    plain = re.sub(r"[^A-Za-z0-9_./-]+", "_", name[: 2 * MAX_NAME]).strip("_")
    return f"{plain[: MAX_NAME - _HASH_LENGTH - 1]}_{mark}"


def accept_tools(
    server: str, listed: Iterable[Listed], prefix: str = ""
) -> Iterator[tuple[Listed, ToolSpec]]:
    """Yield the tools of a server that can be offered, each with its cleaned description."""
    names, total = set[str](), 0
    for count, tool in enumerate(listed):
        name = clean_name(prefix + tool.name)
        if count >= MAX_TOOLS:
            _log.warning("%s: it lists more than %d tools; the rest is left out", server, MAX_TOOLS)
            return
        schema, size, wrong = _check_schema(tool.input_schema)
        if name in names:
            wrong = "another one has its name"
        elif total + size > MAX_TOTAL:
            wrong = f"all tools of a server together have {MAX_TOTAL:,} bytes at most"
        if wrong:
            _log.warning("%s: the tool %s is left out: %s", server, name, wrong)
            continue
        names.add(name)
        total += size
        description = clean_text(tool.description or tool.title or "", MAX_DESCRIPTION)
        yield tool, ToolSpec(name, description, schema)


def _check_schema(given: Mapping[str, Any]) -> tuple[dict[str, Any], int, str]:
    """Return a schema with clean texts, its size, and what is wrong with it."""
    if is_deeper(given, MAX_DEPTH):
        return {}, 0, f"its schema is nested more than {MAX_DEPTH} deep"
    cleaned: dict[str, Any] = _clean(given)
    try:
        encoded = msgspec.json.encode(cleaned)
    except (TypeError, ValueError) as error:
        return {}, 0, f"its schema is no JSON: {error}"
    if len(encoded) > MAX_SCHEMA:
        return {}, 0, f"its schema has {len(encoded):,} bytes, and {MAX_SCHEMA:,} is the most"
    if any(_invisible(text) - _ALLOWED for text in _strings(cleaned)):
        return {}, 0, "names or values in its schema have characters that can't be seen"
    return cleaned, len(encoded), ""


def _strings(value: object) -> Iterator[str]:
    """Yield every name and every text in a schema."""
    if isinstance(value, str):
        yield value
    elif is_list(value):
        for one in value:
            yield from _strings(one)
    elif is_object(value):
        for name, one in value.items():
            yield str(name)
            yield from _strings(one)


def _clean(value: Any) -> Any:  # noqa: ANN401 - JSON; it is not deep
    if is_list(value):
        return [_clean(one) for one in value]
    if not is_object(value):
        return value
    return {
        name: clean_text(one, MAX_DESCRIPTION)
        if name in _TEXTS and isinstance(one, str)
        else _clean(one)
        for name, one in value.items()
    }
