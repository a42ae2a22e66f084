"""The keyboard: what the help says is what the keys do, and typing is never mistaken for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.conversation.scripted import calling, saying
from tests.page.histories import story, team_history
from tests.page.test_team import ROSTER

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer


@pytest.fixture
def five(open_page: OpenPage, server: PageServer, request: pytest.FixtureRequest) -> Page:
    """Five messages."""
    name = f"keys-{request.node.name}"
    said = [{"role": "user", "content": f"message {n}"} for n in range(5)]
    server.store.create(said, id=name, title="Five")
    return open_page(f"#/c/{name}")


def test_the_help_lists_the_keys(five: Page) -> None:
    five.keyboard.press("?")
    help_ = five.get_by_role("dialog", name="Keyboard")
    for text in ("Next message", "Select a range", "Undo", "Search", "New", "Copy"):
        expect(help_.get_by_text(text, exact=True)).to_be_visible()
    five.keyboard.press("Escape")
    expect(help_).to_be_hidden()


def test_a_range_is_chosen_with_keys_and_let_go(five: Page) -> None:
    five.keyboard.press("j")
    five.keyboard.press("x")
    five.keyboard.press("j")
    five.keyboard.press("j")
    bar = five.get_by_role("toolbar", name="Selected messages")
    expect(bar).to_contain_text("3 messages selected")
    expect(five.locator("pv-message.chosen")).to_have_count(3)
    five.keyboard.press("Escape")
    expect(bar).to_be_hidden()
    expect(five.locator("pv-message.chosen")).to_have_count(0)


def test_a_range_is_chosen_with_the_mouse(five: Page) -> None:
    five.locator("pv-message[data-index='1'] .text").click(modifiers=["Shift"])
    five.locator("pv-message[data-index='3'] .text").click(modifiers=["Shift"])
    expect(five.locator("pv-message.chosen")).to_have_count(3)


def test_typing_is_typing(five: Page) -> None:
    field = five.get_by_role("textbox", name="Say something")
    field.focus()
    five.keyboard.type("jxnu/?g")
    expect(field).to_have_value("jxnu/?g")
    expect(five.locator("pv-message")).to_have_count(5)
    expect(five.get_by_role("dialog")).to_have_count(0)
    five.keyboard.press("Escape")
    five.keyboard.press("j")
    expect(field).to_have_value("jxnu/?g")


def test_y_copies_the_message(five: Page) -> None:
    five.keyboard.press("j")
    five.keyboard.press("j")
    five.keyboard.press("y")
    expect(five.locator(".toast")).to_contain_text("Copied")
    assert "message 1" == five.evaluate("navigator.clipboard.readText()")


def test_a_menu_is_walked_with_arrows_and_gives_the_focus_back(five: Page) -> None:
    row = five.locator("pv-message[data-index='2']")
    row.hover()
    more = row.get_by_role("button", name="More for this message")
    more.click()
    entries = five.locator("pv-menu [role=menuitem]")
    expect(entries.first).to_be_focused()
    five.keyboard.press("ArrowUp")
    expect(entries.last).to_be_focused()
    five.keyboard.press("ArrowDown")
    expect(entries.first).to_be_focused()
    five.keyboard.press("Escape")
    expect(more).to_be_focused()
    expect(five.locator("pv-menu")).to_have_count(0)


def test_the_panel_is_opened_and_closed_by_keys(five: Page) -> None:
    five.keyboard.press("g")
    five.keyboard.press("h")
    expect(five.get_by_role("tab", name="History")).to_have_attribute("aria-selected", "true")
    assert five.url.endswith("/history")
    five.keyboard.press("g")
    five.keyboard.press("t")
    expect(five.get_by_role("tab", name="Tokens")).to_have_attribute("aria-selected", "true")
    five.keyboard.press("Escape")
    expect(five.get_by_role("tablist")).to_be_hidden()


def test_what_has_the_focus_keeps_it_while_the_page_changes_around_it(
    five: Page, server: PageServer
) -> None:
    name = five.evaluate("decodeURIComponent(location.hash.split('/')[2])")
    button = five.locator("pv-head").get_by_role("button", name="Show or hide the panel")
    button.focus()
    said = {"messages": [{"role": "user", "content": "one more"}]}
    server.ask("POST", f"conversations/{name}/messages", said)
    expect(five.locator("pv-head")).to_contain_text("6 messages")
    expect(button).to_be_focused()
    link = five.locator(f".conversation[data-id='{name}'] a")
    link.focus()
    server.ask("POST", f"conversations/{name}/messages", said)
    expect(five.locator("pv-head")).to_contain_text("7 messages")
    five.wait_for_timeout(400)
    expect(link).to_be_focused()


def tab_to(page: Page, wanted: Locator, key: str = "Tab") -> None:
    """Go to a control as who has no mouse does."""
    expect(wanted).to_be_enabled()
    for _ in range(400):  # the list of conversations is on the way
        page.keyboard.press(key)
        if wanted.evaluate("(one) => one === document.activeElement"):
            return
    pytest.fail(f"no Tab leads to {wanted}")


def skip(page: Page) -> None:
    """Pass the list of conversations by."""
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("textbox", name="Say something")).to_be_focused()


def test_a_fork_is_merged_without_a_mouse(open_page: OpenPage, server: PageServer) -> None:
    story(server.store, "walk-merge")
    page = open_page("#/c/walk-merge-fork/history")
    skip(page)
    tab_to(page, page.get_by_role("button", name="Merge back"))
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("In the fork: hot chocolate.")
    merge = dialog.get_by_role("button", name="Merge")
    if not merge.evaluate("(one) => one === document.activeElement"):
        tab_to(page, merge)
    page.keyboard.press("Enter")
    page.wait_for_url("**/#/c/walk-merge/history")
    expect(page.locator("pv-thread")).to_contain_text("In the fork: hot chocolate.")
    page.keyboard.press("u")
    expect(page.locator("pv-thread")).not_to_contain_text("In the fork: hot chocolate.")


def test_a_call_is_approved_without_a_mouse(open_page: OpenPage, server: PageServer) -> None:
    server.say(calling(("search_conversations", {"words": "zeppelin"})), saying("Well then."))
    server.store.create(id="walk-call", title="A call")
    page = open_page("#/c/walk-call")
    page.keyboard.press("c")
    page.keyboard.type("Did we speak of airships?")
    page.keyboard.press("Enter")
    card = page.locator("pv-message[data-index='1'] .tool-card")
    approve = card.get_by_role("button", name="Approve", exact=True)
    tab_to(page, approve, "Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.locator("pv-message[data-index='2']")).to_contain_text("Approved by ")
    expect(page.locator("pv-message[data-index='3']")).to_contain_text("Well then.")


def test_a_team_is_spoken_to_without_a_mouse(open_page: OpenPage, server: PageServer) -> None:
    team_history(server.store, "walk-team")
    server.ask("PUT", "conversations/walk-team/team", {"document": ROSTER})
    server.say(saying("It may rain."))
    page = open_page("#/c/walk-team")
    to = page.get_by_label("To", exact=True)
    skip(page)
    tab_to(page, to, "Shift+Tab")
    page.keyboard.type("Critic")
    expect(to.locator("option:checked")).to_have_text("Critic")
    tab_to(page, page.get_by_role("textbox", name="Say something"))
    page.keyboard.type("What can go wrong?")
    page.keyboard.press("Enter")
    expect(page.locator("pv-message[data-index='6'] .to")).to_contain_text("critic")
    expect(page.locator("pv-message[data-index='7']")).to_contain_text("It may rain.")
