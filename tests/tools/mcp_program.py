"""A server of the official SDK, as a program: over its pipes, or on a free port that it prints."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel

server: MCPServer[Any] = MCPServer("for tests", log_level="ERROR")


class Weather(BaseModel):
    city: str
    degrees: float


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def weather(city: str, days: int = 1) -> Weather:
    """The weather in a city."""
    return Weather(city=city, degrees=20.5 + days)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def says(words: str) -> str:
    """Say it again."""
    return words


@server.tool(title="Everything", structured_output=False)
def shows() -> list[Any]:
    return [
        "text",
        Image(data=b"\x89PNG", format="png"),
        AudioContent(data="UklGRg==", mime_type="audio/wav"),
        ResourceLink(uri="file:///etc/passwd", name="passwords", description="do not follow"),
        EmbeddedResource(resource=TextResourceContents(uri="memo://1", text="a memo")),
        EmbeddedResource(
            resource=BlobResourceContents(uri="memo://2", blob="AAE=", mime_type="application/x-b")
        ),
    ]


@server.tool(structured_output=False)
def large() -> list[Any]:
    """Give a file that no conversation keeps."""
    return [Image(data=b"\0" * 2_000, format="png")]


@server.tool()
def structured() -> CallToolResult:
    """Give data and no text."""
    return CallToolResult(content=[], structured_content={"a": [1, 2]})


@server.tool()
def fails(silently: bool = False) -> CallToolResult:  # noqa: FBT001, FBT002 - a tool's argument
    """Say no."""
    content = [] if silently else [TextContent(text="the printer is on fire")]
    return CallToolResult(content=list(content), is_error=True)


@server.tool()
def refuses() -> str:
    """Break the protocol's own way."""
    raise MCPError(-32000, "not today")


@server.tool()
def crashes() -> str:
    """End the whole server."""
    os._exit(3)


@server.tool()
async def waits(file: str, context: Context[Any]) -> str:
    """Wait until it is called off, and write that down."""
    await context.report_progress(1, 3, "begun")
    await context.report_progress(2, 3)
    await context.report_progress(2.5)
    try:
        await anyio.sleep(60)
    except anyio.get_cancelled_exc_class():
        Path(file).write_text("called off", encoding="utf-8")  # noqa: ASYNC240 - it is over
        raise
    return "never"


@server.tool()
def greets(context: Context[Any]) -> str:
    """Tell a header of the request, or a variable of the environment."""
    headers = context.headers
    return headers.get("x-from", "?") if headers else os.environ.get("FROM", "?")


def main() -> None:
    """Serve."""
    if sys.argv[1:] != ["http"]:
        server.run("stdio")
        return
    import uvicorn  # noqa: PLC0415 - only here

    with socket.create_server(("127.0.0.1", 0)) as taken:
        sys.stdout.write(f"{taken.getsockname()[1]}\n")
        sys.stdout.flush()
        config = uvicorn.Config(server.streamable_http_app(), log_level="error")
        uvicorn.Server(config).run(sockets=[taken])


if __name__ == "__main__":
    main()
