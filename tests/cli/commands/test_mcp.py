"""`palaver mcp` as a command; what it serves is tested in `tests/mcp`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from click.testing import CliRunner

import palaver as library
from palaver.cli.app import app

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from mcp.server.mcpserver import MCPServer


def test_a_store_that_is_not_there_is_refused_and_not_made(tmp_path: Path) -> None:
    file = tmp_path / "none.db"
    result = CliRunner().invoke(app, ["mcp", "--store", str(file)])
    assert (1, "") == (result.exit_code, result.stdout)
    assert "there is no store at" in result.stderr
    assert not file.exists()


def test_without_the_sdk_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "palaver.mcp.server", None)
    result = CliRunner().invoke(app, ["mcp", "--store", str(tmp_path / "chat.db")])
    assert 1 == result.exit_code
    assert "pip install 'palaver[mcp]'" in result.stderr


def test_without_a_client_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command in this process: it serves until the client goes, which is at once."""
    from palaver.mcp import server  # noqa: PLC0415 - loads the SDK

    served: list[str] = []

    async def serve(built: MCPServer[object]) -> None:
        served.append(built.name)

    library.open(tmp_path / "chat.db").close()
    monkeypatch.setattr(server, "serve", serve)
    result = CliRunner().invoke(app, ["mcp", "--write", "--store", str(tmp_path / "chat.db")])
    assert (0, ["palaver"]) == (result.exit_code, served)
