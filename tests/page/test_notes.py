"""Notes and scores: put on a message, shown with it, found, kept through an edit, taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from palaver.stores.annotations import read_annotations
from tests.page.accessibility import violations

if TYPE_CHECKING:
    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer


def test_a_message_gets_a_note_and_a_score(open_page: OpenPage, server: PageServer) -> None:
    said = [{"role": "user", "content": f"line {n}"} for n in range(30)]
    said[4] = {"role": "assistant", "content": "Paris."}
    history = server.store.create(said, id="notes", title="Notes")
    page = open_page("#/c/notes")
    page.keyboard.press("g")
    page.keyboard.press("g")
    row = page.locator("pv-message[data-index='4']")
    row.click()
    page.keyboard.press("a")
    dialog = page.get_by_role("dialog", name="Note and score of message 5")
    page.keyboard.type("Right, but <b>curt</b>")
    dialog.get_by_label("4 ★").check()
    page.keyboard.press("Control+Enter")
    note = row.locator(".message-note")
    expect(note).to_contain_text("Right, but <b>curt</b>")
    expect(note.get_by_label("Score 4 of 5")).to_be_visible()
    # it is the message's: an edit of its text does not lose it, and what others note appears
    message = history[4].id
    history.execute(
        {
            "operation": "REPLACE",
            "index": 4,
            "message": {"role": "assistant", "content": "It is Paris.", "id": message},
        }
    )
    expect(row).to_contain_text("It is Paris.")
    expect(note).to_contain_text("Right, but <b>curt</b>")
    server.ask("PUT", "conversations/notes/annotations", {"message": message, "note": "Good now"})
    expect(note).to_have_text("Good now")
    assert [] == violations(page)
    # found, and listed
    page.keyboard.press("Control+f")
    page.keyboard.type("good now")
    expect(page.locator(".find-count")).to_have_text("1 of 1 message")
    page.wait_for_function("() => CSS.highlights.get('found-here')?.size === 1")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.keyboard.type("notes and")
    page.keyboard.press("Enter")
    listed = page.get_by_role("dialog", name="Notes and scores")
    expect(listed.get_by_role("listitem")).to_have_text("#4Good now")
    page.keyboard.press("Escape")
    # the earlier version is there; an empty note takes it away
    row.click()
    page.keyboard.press("a")
    dialog.get_by_text("1 earlier version").click()
    expect(dialog.get_by_text("Right, but <b>curt</b>")).to_be_visible()
    dialog.get_by_role("textbox").fill("")
    dialog.get_by_role("button", name="Save").click()
    expect(note).to_have_count(0)
    assert {} == read_annotations(server.store, "notes")
