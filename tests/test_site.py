"""The site's pages: all of the docs are there, and links lead to pages of the site."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tools import site

LINK = re.compile(r"\]\(([^)\s#]+)")


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(site, "BUILD", tmp_path)
    site.stage(tmp_path / "pages")
    return tmp_path / "pages"


def test_every_page_of_the_docs_is_on_the_site(pages: Path) -> None:
    docs = site.ROOT / "docs"
    found = {path.relative_to(docs) for path in docs.rglob("*.md")}
    wanted = {path for path in found if path.parts[0] != "zh"}
    staged = {path.relative_to(pages / "en") for path in pages.rglob("en/**/*.md")}
    assert {Path("pages.md")} | wanted - {Path("index.md")} <= staged
    assert {path.name for path in found - wanted} < {path.name for path in pages.glob("zh/*.md")}
    assert (pages / "zh" / "index.md").exists()


def test_links_lead_to_files_of_the_site(pages: Path) -> None:
    broken = [
        f"{page.relative_to(pages)}: {target}"
        for page in pages.rglob("*.md")
        for target in LINK.findall(page.read_text("utf-8"))
        if not target.startswith(("http:", "https:", "mailto:"))
        and not target.endswith(".html")
        and not (page.parent / target).exists()
        and not (page.parent / target.replace("../", "../en/", 1)).exists()  # a picture, from zh/
    ]
    assert [] == broken


def test_links_to_the_other_language_lead_to_pages_of_the_site(pages: Path) -> None:
    """They are addresses on the site, where Chinese is in `zh/` and a README is an index."""
    staged = [page.relative_to(pages).with_suffix(".html") for page in pages.rglob("*.md")]
    site_pages = {
        Path(*(place.parts[1:] if place.parts[0] == "en" else place.parts)).as_posix()
        for place in staged
    }
    site_pages = {name.replace("README.html", "index.html") for name in site_pages}
    for page in pages.rglob("*.md"):
        here = page.relative_to(pages).parent
        folder = "." if here == Path("en") else here.as_posix().removeprefix("en/")
        for target in LINK.findall(page.read_text("utf-8")):
            if target.endswith(".html") and not target.startswith(("http:", "https:")):
                assert os.path.normpath(f"{folder}/{target}") in site_pages, f"{page}: {target}"


def test_the_languages_lead_to_each_other(pages: Path) -> None:
    assert "(zh/index.html)" in (pages / "en" / "index.md").read_text("utf-8")
    assert "(../index.html)" in (pages / "zh" / "index.md").read_text("utf-8")


def test_a_line_of_chinese_that_goes_on_has_no_space_where_the_source_breaks() -> None:
    """A browser shows a line break as a space, which Chinese does not have between sentences."""
    code = "```text\n丁。\n戊\n```\n"
    text = f"机制。\n这里。\n`ask`\n\n- 甲。\n  乙。\n- 丙。\n\n{code}| 己。 |\n| 庚 |\n"
    joined = f"机制。这里。`ask`\n\n- 甲。乙。\n- 丙。\n\n{code}| 己。 |\n| 庚 |\n"
    assert joined == site.unwrap(text)


def test_programs_find_every_page(pages: Path) -> None:
    listed = (pages / "en" / "llms.txt").read_text("utf-8")
    assert "# palaver\n" in listed
    assert len(list((pages / "en").rglob("*.md"))) == listed.count("\n- [")
    assert "](howto/run-an-agent.html): " in listed


def test_programs_read_the_first_sentence_of_a_page_and_no_code(pages: Path) -> None:
    listed = (pages / "en" / "llms.txt").read_text("utf-8")
    assert "](howto/stream-an-answer.html): `talk.stream(…)` does what `ask` does" in listed
    assert [] == [line for line in listed.splitlines() if "import " in line or ".md)" in line]
