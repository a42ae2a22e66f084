"""Asking again: another answer, another question, two answers side by side, a call once more."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import palaver
from palaver.errors import ModelError
from palaver.messages import assistant, user
from tests.conversation.scripted import calling, saying
from tests.page.accessibility import violations
from tests.page.test_team import ROSTER

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Page

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer

SUM = ("calculate", {"expression": "6 * 7"})
SEARCH = ("search_conversations", {"words": "dirigible"})


@pytest.fixture
def opened(open_page: OpenPage, server: PageServer) -> Callable[[str], Page]:
    """Open the page at a conversation with one question and its answer."""
    server.model.lines.clear()

    def opened(name: str) -> Page:
        server.store.create([user("Tea?"), assistant("One.")], id=name, title=name)
        page = open_page(f"#/c/{name}")
        expect(row(page, 1)).to_contain_text("One.")
        return page

    return opened


def row(page: Page, index: int) -> Locator:
    return page.locator(f"pv-message[data-index='{index}']")


def place(page: Page, index: int) -> Locator:
    """Which of how many alternatives a message is."""
    return row(page, index).locator(".alternatives .mono")


def act(page: Page, index: int, label: str) -> None:
    """Choose something from the menu of a message."""
    row(page, index).hover()
    row(page, index).get_by_role("button", name="More for this message").click()
    page.get_by_role("menuitem", name=label).click()


def say(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Say something").fill(text)
    page.keyboard.press("Enter")


def test_another_answer_and_another_question_by_mouse(
    opened: Callable[[str], Page], server: PageServer
) -> None:
    page = opened("again-mouse")
    server.say(saying("Two."), saying("Rum it is."))
    row(page, 1).hover()
    expect(row(page, 1).locator(".alternatives")).to_have_count(0)
    row(page, 1).get_by_role("button", name="Regenerate").click()
    expect(row(page, 1)).to_contain_text("Two.")
    expect(place(page, 1)).to_have_text("2/2")
    expect(row(page, 1).get_by_role("button", name="Next alternative")).to_be_disabled()
    assert [] == violations(page)
    row(page, 1).get_by_role("button", name="Previous alternative").click()
    expect(row(page, 1)).to_contain_text("One.")
    expect(place(page, 1)).to_have_text("1/2")

    act(page, 0, "Edit and resend")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 → 1")  # what it costs is said before
    dialog.get_by_role("textbox").fill("Rum?")
    expect(dialog.locator("pv-price.asking")).to_have_count(0)
    expect(dialog.get_by_role("button", name="Send again")).to_be_enabled()
    assert [] == violations(page)
    dialog.get_by_role("button", name="Send again").click()
    expect(row(page, 1)).to_contain_text("Rum it is.")
    expect(row(page, 0)).to_contain_text("Rum?")
    expect(place(page, 0)).to_have_text("2/2")
    row(page, 0).get_by_role("button", name="Previous alternative").click()
    expect(row(page, 0)).to_contain_text("Tea?")
    expect(row(page, 1)).to_contain_text("One.")
    expect(place(page, 1)).to_have_text("1/2")


def test_another_answer_and_another_question_by_keyboard(
    opened: Callable[[str], Page], server: PageServer
) -> None:
    page = opened("again-keys")
    server.say(saying("Two."), saying("Rum it is."))
    page.locator(".scroller").focus()
    for key in "jj":
        page.keyboard.press(key)
    page.keyboard.press("Shift+R")
    expect(place(page, 1)).to_have_text("2/2")
    expect(row(page, 1)).to_contain_text("Two.")
    page.keyboard.press("h")
    expect(place(page, 1)).to_have_text("1/2")
    expect(page.locator("#spoken")).to_have_text("Alternative 1 of 2")
    page.keyboard.press("l")
    expect(place(page, 1)).to_have_text("2/2")
    expect(row(page, 1)).to_contain_text("Two.")
    page.keyboard.press("k")
    page.keyboard.press("Shift+E")
    expect(page.get_by_role("dialog").get_by_role("textbox")).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.type("Rum?")
    expect(page.get_by_role("button", name="Send again")).to_be_enabled()
    page.keyboard.press("Control+Enter")
    expect(row(page, 1)).to_contain_text("Rum it is.")
    expect(place(page, 0)).to_have_text("2/2")
    page.keyboard.press("h")
    expect(row(page, 1)).to_contain_text("Two.")


def test_nobody_answers_in_the_place_of_a_team(
    opened: Callable[[str], Page], server: PageServer
) -> None:
    page = opened("again-team")
    row(page, 1).hover()
    expect(row(page, 1).get_by_role("button", name="Regenerate")).to_be_visible()
    server.ask("PUT", "conversations/again-team/team", {"document": ROSTER})
    page.reload()
    expect(page.locator("pv-team-box")).to_be_visible()
    row(page, 1).hover()
    expect(row(page, 1).get_by_role("button", name="Edit")).to_be_visible()
    expect(row(page, 1).get_by_role("button", name="Regenerate")).to_have_count(0)


def test_what_is_sent_again_moves_along_when_others_were_quicker(
    opened: Callable[[str], Page], server: PageServer, expected: list[str]
) -> None:
    page = opened("again-late")
    server.say(saying("Rum it is."))
    act(page, 0, "Edit and resend")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill("Rum?")
    expect(dialog.get_by_role("button", name="Send again")).to_be_enabled()
    server.store.get("again-late").insert(0, [palaver.system("Be brief.")])
    expected.append("412")
    dialog.get_by_role("button", name="Send again").click()
    expect(dialog).to_contain_text("Be brief.")
    dialog.get_by_role("button", name="Do mine on the newest").click()
    expect(row(page, 2)).to_contain_text("Rum it is.")
    expect(row(page, 0)).to_contain_text("Be brief.")
    expect(row(page, 1)).to_contain_text("Rum?")


def test_two_answers_are_compared_side_by_side_and_one_is_opened(
    opened: Callable[[str], Page], server: PageServer
) -> None:
    page = opened("again-compare")
    server.say(saying("Two **bold** words."), saying("Three."))
    act(page, 1, "Compare answers")
    dialog = page.get_by_role("dialog")
    sides = dialog.locator(".compare-side")
    expect(sides.nth(0)).to_contain_text("One.")  # the answer that is here
    sides.nth(1).get_by_label("Temperature").fill("0.7")
    dialog.get_by_role("button", name="Ask", exact=True).click()
    expect(sides.nth(1).locator("strong")).to_have_text("bold")
    assert 0.7 == server.model.asked[-1].options["temperature"]
    assert [] == violations(page)
    sides.nth(0).get_by_label("Model").select_option(index=1)
    dialog.get_by_role("button", name="Ask", exact=True).focus()
    server.say(saying("Three."))
    page.keyboard.press("Enter")
    for side in (0, 1):
        expect(sides.nth(side)).to_contain_text("Three.")
    sides.nth(0).get_by_role("button", name="Discard").click()
    expect(sides.nth(0)).to_contain_text("The fork was deleted.")
    page.keyboard.press("Escape")
    expect(place(page, 1)).to_have_text("1/3")  # here, and in the two forks that are left
    row(page, 1).get_by_role("button", name="Next alternative").click()
    expect(row(page, 1)).to_contain_text("Two bold words.")
    assert "again-compare" not in page.url
    expect(place(page, 1)).to_have_text("2/3")
    act(page, 1, "Compare answers")
    server.say([ModelError("no room today")], saying("Four."))
    ask = dialog.get_by_role("button", name="Ask", exact=True)
    ask.click()
    expect(dialog.get_by_role("alert")).to_contain_text("no room today")
    expect(ask).to_be_enabled()
    half = saying("Half of ", "it.")
    server.say([half[0], threading.Event()])
    ask.click()
    expect(dialog).to_contain_text("Four.")
    ask.click()
    expect(dialog).to_contain_text("Half of")
    (running,) = [
        one for one in server.ask("GET", "conversations")["items"] if one["state"]["stepping"]
    ]
    server.ask("DELETE", f"conversations/{running['id']}/step")
    expect(dialog).to_contain_text("Interrupted: this is what had arrived")
    dialog.get_by_role("button", name="Open").click()
    expect(row(page, 1)).to_contain_text("Half of")


def test_a_call_has_one_card_and_runs_again_from_there(
    opened: Callable[[str], Page], server: PageServer
) -> None:
    server.say(
        calling(SUM), saying("It is 42."), saying("Once more 42."), saying("So 0."), saying("Oh.")
    )
    page = opened("again-call")
    say(page, "Work it out.")
    expect(row(page, 5)).to_contain_text("It is 42.")
    expect(row(page, 3).locator(".tool-card.called")).to_contain_text("6 * 7")
    card = row(page, 4).locator(".tool-card")
    expect(card.locator(".chip")).to_contain_text("completed")
    card.get_by_role("button", name="Run again from here").click()
    expect(row(page, 5)).to_contain_text("Once more 42.")
    expect(card).to_contain_text("Approved by ")
    expect(place(page, 3)).to_have_text("2/2")

    button = card.get_by_role("button", name="Change the arguments and run again")
    button.focus()
    page.keyboard.press("Enter")
    field = page.get_by_role("dialog").get_by_label("Arguments, as JSON")
    expect(field).to_be_focused()
    field.fill('{"expression": "1 / 0"}')
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(row(page, 5)).to_contain_text("So 0.")
    expect(card.locator(".chip")).to_contain_text("error")
    expect(card).to_contain_text("Changed and approved by ")
    card.get_by_text("Traceback").click()
    expect(card).to_contain_text("divides by zero")
    expect(card).to_contain_text("in calculate")
    assert [] == violations(page)
    expect(place(page, 3)).to_have_text("3/3")


def test_a_tool_is_approved_for_the_conversation_until_that_is_withdrawn(
    opened: Callable[[str], Page], server: PageServer
) -> None:
    server.say(
        calling(SEARCH), saying("Nothing."), calling(SEARCH), saying("Still nothing."),
        calling(SEARCH),
    )  # fmt: skip
    page = opened("again-always")
    say(page, "Look it up.")
    card = row(page, 3).locator(".tool-card")
    expect(card).to_contain_text("This call waits for you.")
    assert [] == violations(page)
    card.get_by_role("button", name="Approve always here").focus()
    page.keyboard.press("Enter")
    expect(row(page, 5)).to_contain_text("Nothing.")
    expect(row(page, 4)).to_contain_text("with all further calls of this tool")
    say(page, "Again.")
    expect(row(page, 9)).to_contain_text("Still nothing.")
    expect(row(page, 8)).to_contain_text("for the whole conversation")
    row(page, 8).get_by_role("button", name="Ask again from now on").click()
    expect(page.get_by_role("button", name="Ask again from now on")).to_have_count(0)
    say(page, "And again.")
    expect(row(page, 11)).to_contain_text("This call waits for you.")
    # the calls have one callID, as some models' have: only the last one waits
    expect(page.get_by_text("This call waits for you.")).to_have_count(1)
