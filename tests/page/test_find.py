"""Find in the conversation: all of it is looked through, and the keys walk what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from palaver.messages import new_id
from tests.page import samples

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer

_MARKED = """(name) => [...(CSS.highlights.get(name) ?? [])].map((range) => range.toString())"""


def marked(page: Page, name: str) -> list[str]:
    """What is highlighted."""
    found: list[str] = page.evaluate(_MARKED, name)
    return found


def await_marked(page: Page, count: int) -> None:
    """Wait until so many texts are marked in the message that is shown."""
    page.wait_for_function(f"() => CSS.highlights.get('found-here')?.size === {count}")


def test_find_walks_through_all_of_a_conversation(open_page: OpenPage, server: PageServer) -> None:
    said: list[dict[str, Any]] = [{"role": "user", "content": f"line {n}"} for n in range(400)]
    said[3] = {"role": "assistant", "content": "The **Blue** heron, and a blue heron again."}
    said[200]["content"] = "blue heron"
    said[301] = {
        "role": "assistant",
        "content": [
            {"type": "reasoning", "id": new_id(), "text": "A BLUE HERON comes to mind.",
             "sessionID": new_id(), "messageID": new_id(), "time": {"start": 1}},
            {"type": "text", "id": new_id(), "text": "Which bird?",
             "sessionID": new_id(), "messageID": new_id()},
        ],
    }  # fmt: skip
    history = server.store.create(said, id="find-birds", title="Birds")
    page = open_page("#/c/find-birds")
    page.locator("#say").focus()
    page.keyboard.press("Control+f")
    field = page.get_by_role("searchbox", name="Find in this conversation")
    expect(field).to_be_focused()
    page.keyboard.type("blue heron")
    count = page.locator(".find-count")
    # it began at the end, so it goes on from the beginning
    expect(count).to_have_text("1 of 3 messages")
    expect(page.locator("pv-message[data-index='3']")).to_be_in_viewport()
    await_marked(page, 2)
    assert ["Blue heron", "blue heron"] == marked(page, "found-here")
    page.keyboard.press("Enter")
    expect(page.locator("pv-message[data-index='200']")).to_have_class("message found")
    page.keyboard.press("Enter")
    expect(page.locator("pv-message[data-index='301'] details")).to_have_attribute("open", "")
    assert ["BLUE HERON"] == marked(page, "found-here")
    expect(field).to_be_focused()
    page.keyboard.press("Shift+Enter")
    expect(count).to_have_text("2 of 3 messages")
    # what is appended is found too, and the reader stays
    history.append({"role": "user", "content": "One more blue heron."})
    expect(count).to_have_text("2 of 4 messages")
    field.fill("no such bird")
    expect(count).to_have_text("Not found")
    field.fill("HERON AGAIN")
    expect(count).to_have_text("1 of 1 message")
    page.keyboard.press("Escape")
    expect(page.locator("pv-find")).to_be_hidden()
    expect(page.locator("pv-message[data-index='3']")).to_be_focused()
    assert [] == marked(page, "found-here") + marked(page, "found")


def test_find_works_at_a_hundred_thousand_messages(open_page: OpenPage, server: PageServer) -> None:
    if "long" not in server.store:
        samples.long_talk(server.store, length=100_000)
    page = open_page("#/c/long")
    page.keyboard.press("Control+f")
    page.keyboard.type("message 54321.")
    expect(page.locator("pv-message[data-index='54321']")).to_be_in_viewport()
    expect(page.locator(".find-count")).to_have_text("1 of 1 message")
    await_marked(page, 1)
    # the browser's own search is a second press away
    prevented = page.evaluate(
        """() => { const event = new KeyboardEvent("keydown", { key: "f", ctrlKey: true,
            bubbles: true, cancelable: true });
          return !document.activeElement.dispatchEvent(event); }"""
    )
    assert not prevented
