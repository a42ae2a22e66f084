from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools import check_programs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MISTAKES = [
    number
    for number, line in enumerate(check_programs.PLANTED.splitlines(), 1)
    if "# wrong: " in line
]


def test_a_program_stands_at_the_lines_of_its_page(tmp_path: Path) -> None:
    assert 10 < check_programs.write_programs(tmp_path)
    page = (check_programs.ROOT / "README.md").read_text("utf-8").splitlines()
    program = (tmp_path / "readme.py").read_text("utf-8").splitlines()
    assert all(line in ("", page[number]) for number, line in enumerate(program))
    assert "import palaver" in program


@pytest.mark.parametrize(
    ("more", "fewer", "told"),
    [
        ((), (), "planted mistakes\n"),
        ([("readme.py", 3, "no such name")], (), "mypy: readme.py:3: no such name"),
        ([("planted.py", 1, "odd")], (), "mypy: planted.py:1: odd"),
        ((), MISTAKES[:1], "mypy does not find: @tool(need_approval=True)"),
    ],
)
def test_an_error_in_a_page_and_a_planted_mistake_that_is_not_found_are_told(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: list[tuple[str, int, str]],
    fewer: list[int],
    told: str,
) -> None:
    def found(_: Path) -> Iterator[tuple[str, int, str]]:
        yield from (("planted.py", line, "wrong") for line in MISTAKES if line not in fewer)

    monkeypatch.setattr(check_programs, "basedpyright", found)
    monkeypatch.setattr(check_programs, "mypy", lambda path: [*found(path), *more])
    if fewer:
        monkeypatch.setattr(
            check_programs, "basedpyright", lambda _: [("planted.py", n, "") for n in MISTAKES]
        )

    assert check_programs.main() == int(bool(more or fewer))
    assert told in capsys.readouterr().out
