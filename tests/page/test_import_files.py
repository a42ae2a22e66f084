"""Files that come in: chosen, dropped on the page, sent twice, damaged, and of no known form."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer

_numbers = itertools.count()


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    """What Claude Code leaves behind, of a session that no other test knows."""
    session = f"session-{next(_numbers)}"
    said = [("user", "Which tea goes with fog?"), ("assistant", f"Assam, says {session}.")]
    lines = [
        {
            "type": role,
            "uuid": f"{session}-{number}",
            "parentUuid": f"{session}-{number - 1}" if number else None,
            "sessionId": session,
            "timestamp": f"2026-11-15T10:00:0{number}.000Z",
            "message": {"role": role, "content": [{"type": "text", "text": text}]},
        }
        for number, (role, text) in enumerate(said)
    ]
    path = tmp_path / f"{session}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def choose(page: Page, path: Path) -> None:
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Import a file…").click()
    chooser.value.set_files(path)


def test_a_transcript_is_chosen_and_shown(
    open_page: OpenPage, server: PageServer, transcript: Path
) -> None:
    page = open_page()
    choose(page, transcript)
    expect(page.locator("pv-thread")).to_contain_text(f"Assam, says {transcript.stem}.")
    expect(page.locator(".toast")).to_contain_text("Imported “Which tea goes with fog?”")
    expect(page.get_by_role("heading", level=1)).to_have_text("Which tea goes with fog?")
    name = page.evaluate("location.hash.split('/')[2]")
    assert 2 == len(server.store.get(name))
    page.goto(server.address)
    choose(page, transcript)
    expect(page.locator(".toast")).to_contain_text("All of it is here already")
    page.locator(".toast").get_by_role("button", name="Open").click()
    expect(page.locator("pv-thread")).to_contain_text(f"Assam, says {transcript.stem}.")


def test_where_no_user_wrote_it_is_called_after_its_file(
    open_page: OpenPage, tmp_path: Path
) -> None:
    path = tmp_path / "night-watch.json"
    path.write_text(json.dumps([{"role": "assistant", "content": "All is quiet."}]), "utf-8")
    page = open_page()
    choose(page, path)
    expect(page.get_by_role("heading", level=1)).to_have_text("night-watch")


def test_a_damaged_line_is_told_and_the_rest_is_there(
    open_page: OpenPage, transcript: Path
) -> None:
    with transcript.open("a", encoding="utf-8") as file:
        file.write('{"type": "user", "mess\n')
    page = open_page()
    choose(page, transcript)
    expect(page.locator(".toast")).to_contain_text("Not all of it could be imported:")
    expect(page.locator("pv-thread")).to_contain_text(f"Assam, says {transcript.stem}.")


def test_a_file_is_dropped_on_the_page(open_page: OpenPage, transcript: Path) -> None:
    """However long the browser was silent about it: else it would open the file instead."""
    page = open_page()
    page.evaluate(
        """async (text) => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File([text], "talk.jsonl"));
          const tell = (kind) => document.body.dispatchEvent(
            new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true }));
          tell("dragover");
          window.asked = getComputedStyle(document.body, "::after").content;
          await new Promise((resolve) => setTimeout(resolve, 1200));
          window.opened = tell("drop");
        }""",
        transcript.read_text("utf-8"),
    )
    assert "Drop an export or another" in page.evaluate("window.asked")
    assert page.evaluate("window.opened") is False
    expect(page.locator("pv-thread")).to_contain_text(f"Assam, says {transcript.stem}.")
    expect(page.locator("body[data-dropping]")).to_have_count(0)


def test_what_is_in_no_known_form_is_refused_with_its_name(
    open_page: OpenPage, tmp_path: Path, expected: list[str]
) -> None:
    expected.append("422")
    path = tmp_path / "shopping.txt"
    path.write_text("milk\ntea\n", "utf-8")
    page = open_page()
    choose(page, path)
    expect(page.locator(".toast.error")).to_contain_text("“shopping.txt” could not be imported")
    expect(page.locator(".toast.error")).to_contain_text("in no format that palaver knows")
