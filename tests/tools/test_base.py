"""Tools from outside: named by a place, given as one, as many, or as a server of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self

import pytest

from palaver.errors import ValidationError
from palaver.tools import Toolbox, tool
from palaver.tools.runner import import_object, open_tools

if TYPE_CHECKING:
    from pathlib import Path


def one() -> str:
    """One."""
    return "1"


class Server:
    """Something that has to be opened before it has tools."""

    tools = (one,)
    open = False

    async def __aenter__(self) -> Self:
        self.open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.open = False


def test_a_module_of_the_current_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tools_of_this_folder.py").write_text("class A:\n    b = 7\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert 7 == import_object("tools_of_this_folder:A.b")


@pytest.mark.parametrize("place", ["math", "math:", ":sqrt", ""])
def test_a_place_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(ValidationError, match="must be MODULE:ATTR"):
        import_object(place)


@pytest.mark.anyio
async def test_all_that_was_given_becomes_tools() -> None:
    server = Server()
    made = tool(one, name="two")
    async with open_tools([one, made, [one], Toolbox([made]), server]) as tools:
        assert server.open
        assert [one, made, one, made, one] == tools
    assert not server.open
