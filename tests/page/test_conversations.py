"""The list of conversations: find one, begin one, name it, tag it, delete it, see what goes on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.conversation.scripted import saying

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.page.conftest import Look
    from tests.page.stand import Stand


def menu(page: Page, name: str, entry: str) -> None:
    """Choose something from a conversation's menu."""
    place = page.locator(f".conversation[data-id='{name}']")
    place.hover()
    place.locator(".row-menu").click()
    page.get_by_role("menuitem", name=entry).click()


def test_search_finds_titles_and_what_was_said(look: Look, stand: Stand) -> None:
    store = stand.store
    store.create(id="alps", title="Walks in the Alps")
    said = [{"role": "user", "content": f"line {n}"} for n in range(120)]
    said[60] = {"role": "user", "content": "Bring the purple umbrella, please."}
    store.create(said, id="rain", title="Weather")
    page = look()
    field = page.get_by_role("searchbox", name="Search titles and texts")
    page.keyboard.press("/")
    expect(field).to_be_focused()
    page.keyboard.type("in the alps")
    expect(page.locator(".conversation .name")).to_have_text(["Walks in the Alps"])
    field.fill("purple umbrella")
    hit = page.locator(".hit")
    expect(hit).to_contain_text("Weather")
    expect(hit.locator("mark")).to_have_text(["purple", "umbrella"])
    hit.get_by_role("button").click()
    found = page.locator("pv-message[data-index='60']")
    expect(found).to_be_in_viewport()
    expect(found).to_be_focused()
    field.fill("no such words anywhere")
    expect(page.get_by_text("Nothing found")).to_be_visible()


def test_a_new_conversation_is_ready_to_be_written_to(page: Page) -> None:
    page.keyboard.press("n")
    expect(page.get_by_text("Nothing was said yet")).to_be_visible()
    expect(page.get_by_role("textbox", name="Say something")).to_be_focused()
    expect(page.locator(".conversation a[aria-current]")).to_have_count(1)


def test_a_conversation_is_renamed_everywhere(look: Look, stand: Stand) -> None:
    stand.store.create(id="renamed", title="Before")
    page = look("#/c/renamed")
    menu(page, "renamed", "Rename…")
    dialog = page.get_by_role("dialog", name="Rename…")
    expect(dialog.get_by_role("textbox")).to_have_value("Before")
    dialog.get_by_role("textbox").fill("After")
    page.keyboard.press("Enter")
    expect(page.locator("pv-head h1")).to_have_text("After")
    expect(page.locator(".conversation[data-id='renamed'] .name")).to_have_text("After")
    assert "After" == stand.ask("GET", "conversations/renamed")["title"]


def test_tags_are_given_and_narrow_the_list(look: Look, stand: Stand) -> None:
    stand.store.create(id="tagged", title="Tagged")
    page = look("#/c/tagged")
    menu(page, "tagged", "Tags…")
    page.get_by_role("dialog").get_by_role("textbox").fill("urgent, home,urgent")
    page.keyboard.press("Enter")
    place = page.locator(".conversation[data-id='tagged']")
    expect(place.locator(".chip.tag")).to_have_text(["urgent", "home"])
    place.get_by_role("button", name="Only those tagged urgent").click()
    expect(page.locator(".conversation")).to_have_count(1)
    page.locator(".conversations > .chip").click()
    expect(page.locator(".conversation").nth(1)).to_be_visible()


def test_deleting_asks_first(look: Look, stand: Stand) -> None:
    stand.store.create([{"role": "user", "content": "keep me"}], id="doomed", title="Doomed")
    page = look("#/c/doomed")
    menu(page, "doomed", "Delete…")
    dialog = page.get_by_role("dialog", name="Delete…")
    expect(dialog).to_contain_text("“Doomed” with 1 message and all its versions will be gone.")
    dialog.get_by_role("button", name="Cancel").click()
    assert "doomed" in stand.store
    menu(page, "doomed", "Delete…")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.locator(".toast")).to_contain_text("Deleted “Doomed”")
    expect(page.locator(".conversation[data-id='doomed']")).to_have_count(0)
    expect(page.get_by_role("heading", name="Pick a conversation")).to_be_visible()
    assert "doomed" not in stand.store


def test_one_that_others_hang_on_is_kept_and_the_page_says_why(
    look: Look, stand: Stand, forgiven: list[str]
) -> None:
    forgiven.append("409")
    history = stand.store.create([{"role": "user", "content": "a"}], id="parent", title="Parent")
    history.fork(id="child")
    page = look("#/c/parent")
    menu(page, "parent", "Delete…")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator(".toast.error")).to_contain_text("child")
    expect(page.locator(".conversation[data-id='parent']")).to_be_visible()


def test_what_others_do_appears_by_itself(look: Look, stand: Stand) -> None:
    stand.store.create(id="live", title="Live")
    page = look("#/c/live")
    said = {"messages": [{"role": "user", "content": "from somewhere else"}]}
    stand.ask("POST", "conversations/live/messages", said)
    expect(page.locator("pv-message[data-index='0']")).to_contain_text("from somewhere else")
    expect(page.locator(".conversation[data-id='live']")).to_contain_text("from somewhere else")
    stand.ask("POST", "conversations", {"id": "another", "title": "Another one"})
    expect(page.locator(".conversation[data-id='another'] .name")).to_have_text("Another one")
    stand.ask("DELETE", "conversations/another")
    expect(page.locator(".conversation[data-id='another']")).to_have_count(0)


def test_a_running_answer_shows_in_the_list(look: Look, stand: Stand) -> None:
    gate = threading.Event()
    stand.actor.lines.clear()
    stand.say([gate, *saying("Done.")])
    stand.store.create(id="busy", title="Busy")
    page = look()
    stand.ask("POST", "conversations/busy/step", {"text": "go"})
    dot = page.locator(".conversation[data-id='busy'] .dot.busy")
    expect(dot).to_be_visible()
    gate.set()
    expect(dot).to_be_hidden()


def test_a_step_that_runs_already_is_joined(look: Look, stand: Stand) -> None:
    gate = threading.Event()
    stand.actor.lines.clear()
    told = saying("Half of it, ", "and the rest.")
    stand.say([told[0], gate, *told[1:]])
    stand.store.create(id="joined", title="Joined")
    stand.ask("POST", "conversations/joined/step", {"text": "go"})
    page = look("#/c/joined")
    expect(page.locator("pv-draft")).to_contain_text("Half of it,")
    gate.set()
    expect(page.locator("pv-message[data-index='1']")).to_contain_text("Half of it, and the rest.")


def test_more_conversations_come_as_the_list_is_scrolled(look: Look, stand: Stand) -> None:
    for n in range(70):
        stand.store.create(id=f"many-{n}", title=f"Many {n}")
    page = look()
    expect(page.locator(".conversation[data-id='many-69']")).to_be_visible()
    page.locator(".conversation[data-id='many-69']").hover()
    oldest = page.locator(".conversation[data-id='many-0']")
    for _ in range(40):
        page.mouse.wheel(0, 2_000)
        if oldest.count():
            break
        page.wait_for_timeout(50)
    expect(oldest).to_be_attached()


def test_a_conversation_that_others_delete_is_left(
    look: Look, stand: Stand, forgiven: list[str]
) -> None:
    forgiven.append("404")  # what was asked for just before
    stand.store.create(id="leaving", title="Leaving")
    page = look("#/c/leaving")
    stand.ask("DELETE", "conversations/leaving")
    expect(page.get_by_role("heading", name="Pick a conversation")).to_be_visible()
    expect(page.locator(".toast")).to_contain_text("is not there, or no longer")


def test_one_that_never_was_leads_to_the_list(look: Look, forgiven: list[str]) -> None:
    forgiven.append("404")
    page = look("#/c/nowhere/history")
    expect(page.get_by_role("heading", name="Pick a conversation")).to_be_visible()
    assert page.url.endswith("#/")
