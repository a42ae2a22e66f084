from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools import check_docs

if TYPE_CHECKING:
    from pathlib import Path

TESTS = """
def test_one(): ...
async def test_later(): ...
class TestGroup:
    def test_two(self): ...
"""


@pytest.fixture(name="project")
def make_project(tmp_path: Path) -> Path:
    """A project whose docs are right."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(TESTS)
    (tmp_path / "README.md").write_text("# One\n\n[map](docs/design-map.md#the-map)\n")
    (tmp_path / "README.zh-CN.md").write_text("# 一\n\n[图](docs/design-map.md#the-map)\n")
    (tmp_path / "docs" / "design-map.md").write_text("# The map\n")
    return tmp_path


def test_right_docs_pass(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_docs.main([str(project)]) == 0
    assert "agree" in capsys.readouterr().out


@pytest.mark.parametrize(
    "row",
    [
        "`tests/test_it.py`",
        "`tests/test_it.py::test_one`",
        "`tests/test_it.py::test_later`",
        "`tests/test_it.py::TestGroup::test_two[a-b]`",
        "`palaver`",
        "`palaver.errors`",
        "palaver.somewhere, in plain type",
        "[elsewhere](../README.md)",
    ],
)
def test_a_row_that_names_something_real_passes(project: Path, row: str) -> None:
    table = f"# The map\n\n| id | where | note |\n|---|---|---|\n| PT-01 | {row} | a \\| b |\n"
    (project / "docs" / "design-map.md").write_text(table)
    assert [] == list(check_docs.wrong_map(project))


@pytest.mark.parametrize(
    "row",
    [
        "`tests/test_gone.py`",
        "`tests/test_it.py::test_gone`",
        "`tests/test_it.py::TestGroup::test_one`",
        "`tests/test_it.py::test_one::test_two`",
        "`palaver.no_such_thing`",
        "somewhere",
    ],
)
def test_a_row_that_names_nothing_real_is_a_problem(project: Path, row: str) -> None:
    table = f"# The map\n\n| id | where | note |\n|---|---|---|\n| PT-01 | {row} | a \\| b |\n"
    (project / "docs" / "design-map.md").write_text(table)
    (problem,) = check_docs.wrong_map(project)
    assert problem.startswith("docs/design-map.md:5: ")


def test_a_promise_of_safety_names_a_test_that_is_there(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "| a | `tests/test_it.py::test_one` |\n| b | `tests/test_it.py::test_gone` |\n"
    (project / "SECURITY.md").write_text(f"| promise | shown by |\n|---|---|\n{rows}")
    assert check_docs.main([str(project)]) == 1
    assert "SECURITY.md:4: no such test: tests/test_it.py::test_gone" in capsys.readouterr().out


def test_a_requirement_is_shown_by_a_test(project: Path) -> None:
    rows = "| PT-01 | not yet |\n| PT-02 | `tests/test_it.py` |\n| PT-03 | `palaver` |\n"
    (project / "docs" / "design-map.md").write_text(f"| id | shown by |\n|---|---|\n{rows}")
    assert [
        'docs/design-map.md:3: "shown by" is left open',
        'docs/design-map.md:5: "shown by" is left open',
    ] == list(check_docs.wrong_map(project))


def test_no_row_of_the_map_says_not_yet(project: Path) -> None:
    row = "| a | `tests/test_it.py` | by sender not yet |\n"
    (project / "docs" / "design-map.md").write_text(f"| id | where | note |\n|---|---|---|\n{row}")
    assert ['docs/design-map.md:3: "note" is left open'] == list(check_docs.wrong_map(project))


def test_names_in_a_room_still_to_be_built_may_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_docs, "ORDER", ("errors", "attic"))
    assert check_docs.is_coming("palaver.attic.Trunk")
    assert not check_docs.is_coming("palaver.attics.Trunk")
    assert not check_docs.is_coming("palaver.errors.NoSuchError")


@pytest.mark.parametrize("link", ["gone.md", "docs/design-map.md#gone", "#gone"])
def test_a_link_to_nowhere_is_a_problem(project: Path, link: str) -> None:
    (project / "README.md").write_text(f"# One\n\n[a link]({link})\n")
    (problem,) = check_docs.broken_links(project)
    assert problem.endswith(link)


def test_links_in_code_and_to_other_sites_are_left_alone(project: Path) -> None:
    text = "# One\n\n[site](https://example.org)\n\n```python\na[0](gone)\n```\n"
    (project / "README.md").write_text(text)
    assert [] == list(check_docs.broken_links(project))


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ("# 一\n\n## 二\n\n[图](docs/design-map.md#the-map)\n", "headings"),
        ("# 一\n\n[图](docs/design-map.md#the-map)\n\n```python\nimport os\n```\n", "code blocks"),
        ("# 一\n\n[图](docs/design-map.md)\n", "links"),
    ],
)
def test_readmes_that_part_are_a_problem(project: Path, other: str, what: str) -> None:
    (project / "README.zh-CN.md").write_text(other)
    (problem,) = check_docs.unequal_readmes(project)
    assert what in problem


def test_a_missing_readme_or_map_is_a_problem(project: Path) -> None:
    (project / "README.zh-CN.md").unlink()
    (project / "docs" / "design-map.md").unlink()
    assert check_docs.main([str(project)]) == 1


@pytest.fixture(name="translated")
def make_translated(project: Path) -> Path:
    """A project with a page in both languages, with code and a drawing."""
    code = "<!-- not run: needs a key -->\n```python\nimport os\n```\n"
    (project / "docs" / "howto").mkdir()
    (project / "docs" / "zh").mkdir()
    (project / "docs" / "howto" / "tea.md").write_text(f"# Tea\n\n{code}\n```text\nhot\n```\n")
    (project / "docs" / "zh" / "tea.md").write_text(f"# 茶\n\n{code}\n```text\n热\n```\n")
    return project


def test_a_translation_has_the_same_code_and_drawings_in_its_own_words(translated: Path) -> None:
    assert [] == list(check_docs.unequal_translations(translated))


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("import os", "import sys", "code blocks"),
        ("<!-- not run: needs a key -->\n", "", "code blocks"),
        ("# 茶", "# 茶\n\n## 水", "headings"),
    ],
)
def test_a_translation_that_parts_is_a_problem(
    translated: Path, old: str, new: str, what: str
) -> None:
    page = translated / "docs" / "zh" / "tea.md"
    page.write_text(page.read_text().replace(old, new))
    (problem,) = check_docs.unequal_translations(translated)
    assert what in problem


def test_a_translation_of_nothing_is_a_problem(translated: Path) -> None:
    (translated / "docs" / "howto" / "tea.md").unlink()
    (problem,) = check_docs.unequal_translations(translated)
    assert "no English page" in problem
