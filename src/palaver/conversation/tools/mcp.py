"""MCP servers as sources of tools, through the official SDK (`palaver[mcp]`).

A server is open as long as its `async with` block; its tools are tools like any other. Whatever
happens to the server (it says no, is silent, crashes) happens to the calls: each gets an error, and
nobody else does. Links that a server gives are shown to the model and never followed. Names and
descriptions are cleaned and bounded before anybody sees them; a program that is started gets a few
variables of the environment and no key that is not given to it.
"""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TextIO

import anyio
import msgspec

from palaver.conversation.tools.base import ToolContext, ToolOutput
from palaver.conversation.tools.checking import check_arguments
from palaver.conversation.tools.listing import MAX_TOOLS, accept_tools, clean_text
from palaver.conversation.tools.outputs import attached, fit_metadata, fit_text
from palaver.errors import ToolFailed, ToolUnreachable
from palaver.messages.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import mcp
    from anyio.abc import TaskGroup, TaskStatus
    from mcp.shared.dispatcher import ProgressFnT
    from mcp_types import CallToolResult, ContentBlock
    from mcp_types import Tool as Listed

    from palaver.messages import FilePart
    from palaver.wire.tools import ToolSpec

__all__ = ["McpServer", "McpTool"]

_LONGEST_NAME: Final = 200
_PAGES: Final = 100
"""So many pages of tools are asked for at most: a list without end ends somewhere."""


class McpServer:
    """The tools of an MCP server.

    `source` is whatever the SDK's `Client` takes: a URL, its `StdioServerParameters`, a transport,
    or a server object in this process; `stdio` and `http` need nothing of the SDK. `prefix` stands
    before each tool's name, `timeout` limits each call. With `trust_hints`, a tool that the server
    calls idempotent or read-only may run again when nobody knows whether it ran.

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
        """Say which server; nothing happens before it is opened."""
        named = name or (source if isinstance(source, str) else "the MCP server")
        self.name = clean_text(redact(named), _LONGEST_NAME, lines=False)
        self.prefix = prefix
        self.timeout = timeout
        self.trust_hints = trust_hints
        self.tools: tuple[McpTool, ...] = ()
        self._source = source
        self._connect_timeout = connect_timeout
        self._client: mcp.Client | None = None
        self._why = "it is not open"
        self._group: TaskGroup | None = None
        self._over = anyio.Event()

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
        """A server that is a program: it is started here and ends with the block.

        It gets `PATH`, `HOME` and a few more variables of the environment that are no secrets, and
        `env`: a key that it needs is given there. What it writes on standard
        error goes to `log`, a real file, or to our own standard error.
        """
        options.setdefault("name", command)
        extra = None if env is None else dict(env)
        return cls(_Program(command, list(arguments), extra, cwd, log), **options)

    @classmethod
    def http(cls, url: str, *, headers: Mapping[str, str] | None = None, **options: Any) -> Self:  # noqa: ANN401 - as above
        """A server at an address, over streamable HTTP; `headers` go with every request."""
        options.setdefault("name", url)
        return cls(_Address(url, dict(headers or {})), **options)

    async def __aenter__(self) -> Self:
        """Connect, and ask which tools there are."""
        self._over, group = anyio.Event(), anyio.create_task_group()
        await group.__aenter__()
        try:
            with anyio.fail_after(self._connect_timeout):
                await group.start(self._serve)
        except BaseException as error:
            await group.__aexit__(None, None, None)
            if isinstance(error, TimeoutError):
                why = f"no answer in {self._connect_timeout:g} seconds"
                raise ToolUnreachable(f"{self.name}: {why}") from None
            raise
        self._group = group
        return self

    async def __aexit__(self, *_: object) -> None:
        """Say goodbye; a program that was started is stopped."""
        group, self._group = self._group, None
        self._client, self._why = None, "it is closed"
        self._over.set()
        if group is not None:
            # whatever ended the block is none of the connection's business
            await group.__aexit__(None, None, None)

    async def _serve(self, task_status: TaskStatus[None]) -> None:
        """Hold the connection, in a task of its own: where it breaks, nobody else is stopped."""
        started = False
        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(await self._connect(stack))
                listed = accept_tools(self.name, await _listed(client), self.prefix)
                self.tools = tuple(McpTool(self, tool, spec) for tool, spec in listed)
                self._client = client
                task_status.started()
                started = True
                await self._over.wait()
        except Exception as error:
            self._why = _why(error)
            if not started:
                raise ToolUnreachable(f"{self.name}: {self._why}") from error
        finally:
            self._client = None

    async def _connect(self, stack: AsyncExitStack) -> mcp.Client:
        try:
            import mcp  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            detail = "it needs more packages: pip install 'palaver[mcp]'"
            raise ToolUnreachable(detail) from error
        return mcp.Client(await _transport(self._source, stack))

    async def ask(
        self,
        tool: str,
        arguments: dict[str, Any],
        progress: ProgressFnT,
    ) -> CallToolResult:
        """Call a tool by the server's own name for it, and give the SDK's result."""
        client = self._client
        if client is None:
            raise ToolUnreachable(f"{self.name}: {self._why}")
        from mcp import MCPError  # noqa: PLC0415 - an extra, and it is there
        from mcp_types import CONNECTION_CLOSED  # noqa: PLC0415 - the same

        try:
            return await client.call_tool(tool, arguments, progress_callback=progress)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED and error.message == "Connection closed":
                raise ToolUnreachable(f"{self.name}: the connection was lost") from error
            raise ToolFailed(f"{self.name}: {error.message} (code {error.code})") from error
        except (OSError, RuntimeError, ValueError, anyio.ClosedResourceError) as error:
            raise ToolFailed(f"{self.name}: {_why(error)}") from error


class McpTool:
    """One tool of an MCP server."""

    def __init__(self, server: McpServer, listed: Listed, spec: ToolSpec) -> None:
        """Take what the server tells of it, and what of that a model is told."""
        self._server = server
        self._name = listed.name
        hints = listed.annotations if server.trust_hints else None
        self.idempotent = bool(hints and (hints.idempotent_hint or hints.read_only_hint))
        self.spec = spec

    @property
    def timeout(self) -> float | None:
        """What the server's tools are given."""
        return self._server.timeout

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Check the arguments against the server's schema, and have it called."""
        check_arguments(self.spec.parameters, arguments)

        async def tell(progress: float, total: float | None, message: str | None) -> None:
            done = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
            title = clean_text(message or "", _LONGEST_NAME, lines=False) or done
            context.progress(title, {"progress": progress, "total": total})

        given: dict[str, Any] = msgspec.to_builtins(arguments)
        result = await self._server.ask(self._name, given, tell)
        output = _output(result, context)
        if result.is_error:
            raise ToolFailed(output.text.strip() or "the tool failed and does not say why")
        return output


class _Program(NamedTuple):
    """A server to be started."""

    command: str
    arguments: list[str]
    env: dict[str, str] | None
    cwd: str | Path | None
    log: TextIO | None


class _Address(NamedTuple):
    """A server to be called."""

    url: str
    headers: dict[str, str]


async def _transport(source: Any, stack: AsyncExitStack) -> Any:  # noqa: ANN401 - the SDK's
    """What the SDK's client is made with."""
    if isinstance(source, _Program):
        from mcp.client import stdio  # noqa: PLC0415 - an extra

        given = stdio.StdioServerParameters(
            command=source.command, args=source.arguments, env=source.env, cwd=source.cwd
        )
        return stdio.stdio_client(given, source.log or sys.stderr)
    if isinstance(source, _Address):
        import httpx2  # noqa: PLC0415 - an extra
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - the same

        patient = httpx2.Timeout(30.0, read=None)  # how long a call may take, others say
        client = httpx2.AsyncClient(headers=source.headers, timeout=patient)
        await stack.enter_async_context(client)
        return streamable_http_client(source.url, http_client=client)
    return source


async def _listed(client: mcp.Client) -> list[Listed]:
    found: list[Listed] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None or len(found) > MAX_TOOLS:
            break
    return found


def _output(result: CallToolResult, context: ToolContext) -> ToolOutput:
    """Text for the model, files beside it, structured content in the metadata."""
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
        fit_text("\n".join(texts)), metadata=fit_metadata(metadata), attachments=tuple(files)
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
            held: Any = block.resource
            mime = held.mime_type or "application/octet-stream"
            if hasattr(held, "text"):
                return str(held.text), None
            return _file(held.blob, mime, context, filename=fit_text(held.uri))


def _file(
    encoded: str,
    mime: str,
    context: ToolContext,
    **fields: Any,  # noqa: ANN401 - of a file part
) -> tuple[str, FilePart | None]:
    part = attached(encoded, mime, context, **fields)
    return ("" if part else f"[a file of type {mime} that is too large to keep]"), part


def _why(error: BaseException) -> str:
    """The first thing that went wrong, out of however many groups it came in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return redact(str(error)) or type(error).__name__
