"""The keyboard: what the help says is what the keys do, and typing is never mistaken for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

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
