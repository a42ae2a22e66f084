"""`palaver mcp`: the conversations of a store for an agent, over the Model Context Protocol."""

from __future__ import annotations

import click

from palaver.cli.manners import Refused
from palaver.cli.stored import opened, store_option

__all__ = ["mcp"]


@click.command(short_help="Serve conversations to agents over MCP.")
@click.option("--write", is_flag=True, help="Also offer tools that mark, fork, undo and roll back.")
@store_option
def mcp(address: str | None, *, write: bool) -> None:
    """Serve the conversations of a store to an agent, on standard input and output.

    It is for an MCP client to start: Claude Code, Codex, opencode and others. The agent can search,
    list, read and compare; only with --write can it change anything.
    """
    try:
        import anyio  # noqa: PLC0415 - only this command needs them

        from palaver.mcp.server import build, serve  # noqa: PLC0415 - the same
    except ImportError as error:
        msg = "this needs the MCP SDK: pip install 'palaver[mcp]'"
        raise Refused(msg) from error
    with opened(address) as store:
        anyio.run(serve, build(store, write=write))
