"""Editing in place: the price before it happens, the edit, and what others did meanwhile."""

from __future__ import annotations

import itertools
import json
import re
from typing import TYPE_CHECKING, Any, Literal

import pytest
from playwright.sync_api import expect

from palaver.messages import ToolCallPart, new_id, to_dict
from tests.page.accessibility import violations
from tests.page.conftest import NARROW, WIDE
from tests.page.histories import called

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer

_numbers = itertools.count()
_LISBON = "What time is it in Lisbon?"


@pytest.fixture
def name(server: PageServer) -> str:
    """A conversation with a tool call, which no other test knows."""
    conversation = f"edit-{next(_numbers)}"
    called(server.store, conversation)
    return conversation


@pytest.fixture
def page(open_page: OpenPage, name: str) -> Page:
    """The page with it open."""
    return open_page(f"#/c/{name}")


def texts(server: PageServer, name: str) -> list[str]:
    """What the messages say now."""
    return [message.text for message in server.store.get(name)]


def reach(page: Page, index: int) -> Locator:
    """Put the keyboard on a message."""
    message = page.locator(f"pv-message[data-index='{index}']")
    message.scroll_into_view_if_needed()
    message.locator(".message-body").click(position={"x": 4, "y": 4})
    return message


def price(page: Page) -> Locator:
    """The price that stands in the dialog."""
    return page.locator("pv-price")


def whole(page: Page, kind: str) -> None:
    """Open the editor for the whole conversation."""
    page.keyboard.press("g")
    page.keyboard.press("h")
    page.get_by_role("button", name="Edit history…").click()
    page.get_by_role("dialog").get_by_role("radio", name=kind, exact=True).check()


def do(page: Page, label: str) -> None:
    """Press the button that does it, once it can be pressed."""
    page.get_by_role("dialog").get_by_role("button", name=label, exact=True).click()


def test_a_message_is_replaced_after_its_price_was_seen(
    page: Page, server: PageServer, name: str
) -> None:
    reach(page, 1)
    page.keyboard.press("e")
    dialog = page.get_by_role("dialog", name="Edit message 1")
    text = dialog.get_by_label("Text")
    expect(text).to_have_value(_LISBON)
    expect(dialog.get_by_role("button", name="Replace")).to_be_disabled()
    text.fill("What time is it in Porto, and what is the weather like there today?")
    expect(price(page)).to_contain_text("Messages 7 → 7")
    expect(price(page)).to_contain_text("Takes 1 message out, puts 1 message in")
    expect(price(page)).to_contain_text("has nothing of it in its cache: there is nothing to break")
    expect(price(page)).not_to_contain_text("will be paid again")
    expect(price(page)).to_contain_text("Every tool call keeps its result.")
    assert texts(server, name)[1] == _LISBON
    do(page, "Replace")
    expect(page.locator("pv-message[data-index='1']")).to_contain_text("in Porto")
    assert "in Porto" in texts(server, name)[1]
    page.locator("pv-toast").get_by_role("button", name="Undo").click()
    expect(page.locator("pv-message[data-index='1']")).to_contain_text("in Lisbon")


def test_the_other_parts_of_a_message_stay(page: Page, server: PageServer, name: str) -> None:
    reach(page, 2)
    page.keyboard.press("e")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Text").fill("I shall look at the clock.")
    expect(price(page)).to_contain_text("Every tool call keeps its result.")
    page.keyboard.press("Control+Enter")
    expect(page.locator("pv-message[data-index='2']")).to_contain_text("I shall look")
    message = to_dict(server.store.get(name)[2])
    assert [part["type"] for part in message["content"]] == ["text", "tool-call"]
    assert {part["messageID"] for part in message["content"]} == {message["id"]}


def test_the_arguments_of_a_call_are_edited(page: Page, server: PageServer, name: str) -> None:
    reach(page, 2)
    page.keyboard.press("e")
    dialog = page.get_by_role("dialog")
    arguments = dialog.get_by_label("Arguments of clock")
    expect(arguments).to_have_value('{\n  "city": "Lisbon"\n}')
    arguments.fill('{"city": "Porto"')
    expect(dialog.get_by_role("alert")).to_contain_text("Arguments of clock: not a JSON object")
    expect(dialog.get_by_role("button", name="Replace")).to_be_disabled()
    arguments.fill('{"city": "Porto"}')
    expect(price(page)).to_contain_text("Every tool call keeps its result.")
    do(page, "Replace")
    expect(page.locator("pv-message[data-index='2'] .tool-card")).to_contain_text("Porto")
    (call,) = [part for part in server.store.get(name)[2].parts if isinstance(part, ToolCallPart)]
    assert ({"city": "Porto"}, {"city": "Porto"}) == (dict(call.input), json.loads(call.raw))


@pytest.mark.parametrize("status", ["completed", "error"])
def test_the_result_of_a_call_is_edited(
    page: Page, server: PageServer, name: str, status: str
) -> None:
    if status == "error":
        history = server.store.get(name)
        failed = to_dict(history[3])
        before = failed["content"][0]["state"]
        failed["content"][0]["state"] = {
            "status": "error",
            "input": before["input"],
            "error": "no such city",
            "time": before["time"],
        }
        history.execute({"operation": "REPLACE", "index": 3, "message": {**failed, "id": new_id()}})
        expect(page.locator("pv-message[data-index='3']")).to_contain_text("no such city")
    reach(page, 3)
    page.keyboard.press("e")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Text")).to_have_count(0)
    label = "Result of clock" if status == "completed" else "Error of clock"
    result = dialog.get_by_label(label)
    expect(result).not_to_have_value("")
    result.fill("Half past nine")
    do(page, "Replace")
    card = page.locator("pv-message[data-index='3']")
    expect(card.locator(".code").last).to_have_text("Half past nine")
    expect(card.locator(".chip").last).to_contain_text(status)


def test_messages_are_put_in_before_and_after(page: Page, server: PageServer, name: str) -> None:
    reach(page, 1)
    page.keyboard.press("i")
    dialog = page.get_by_role("dialog", name="Insert after message 1")
    dialog.get_by_label("Role").select_option("assistant")
    dialog.get_by_label("Text").fill("In Lisbon, you say?")
    expect(price(page)).to_contain_text("Messages 7 → 8")
    do(page, "Insert")
    expect(page.locator("pv-message[data-index='2']")).to_contain_text("you say?")
    message = reach(page, 1)
    message.hover()
    message.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Insert before").click()
    page.get_by_role("dialog").get_by_label("Text").fill("Good day.")
    do(page, "Insert")
    expect(page.locator("pv-message[data-index='1']")).to_contain_text("Good day.")
    assert texts(server, name)[1:4] == ["Good day.", _LISBON, "In Lisbon, you say?"]


def test_a_range_is_deleted_and_the_broken_pair_is_named_before(
    page: Page, server: PageServer, name: str
) -> None:
    reach(page, 3)
    page.keyboard.press("d")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("From message")).to_have_value("3")
    expect(price(page)).to_contain_text("1 tool call loses its other half")
    expect(price(page)).to_contain_text("clock loses its result")
    expect(price(page)).to_contain_text("call-1")
    dialog.get_by_label("From message").fill("2")
    expect(price(page)).to_contain_text("Messages 7 → 5")
    expect(price(page)).to_contain_text("Every tool call keeps its result.")
    expect(price(page)).to_contain_text("2 messages go")
    do(page, "Delete")
    expect(page.locator("pv-message")).to_have_count(5)
    assert texts(server, name)[1:3] == [_LISBON, "It is five past two."]


def test_the_selected_messages_are_deleted(page: Page, server: PageServer, name: str) -> None:
    reach(page, 4)
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("d")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("From message")).to_have_value("4")
    expect(dialog.get_by_label("to message", exact=True)).to_have_value("6")
    expect(price(page)).to_contain_text("Takes 3 messages out")
    do(page, "Delete")
    expect(page.locator("pv-message")).to_have_count(4)
    assert len(texts(server, name)) == 4


def test_the_price_follows_the_form(page: Page) -> None:
    whole(page, "Keep or cut")
    dialog = page.get_by_role("dialog")
    expect(price(page)).to_contain_text("Fill in the form")
    expect(dialog.get_by_role("button", name="Truncate", exact=True)).to_be_disabled()
    dialog.get_by_label("How many").fill("2")
    expect(price(page)).to_contain_text("Messages 7 → 2")
    dialog.get_by_label("How many").fill("5")
    expect(price(page)).to_contain_text("Messages 7 → 5")
    dialog.locator(".e-pair select").select_option("removeLast")
    expect(price(page)).to_contain_text("Messages 7 → 2")
    dialog.get_by_label("Of which role").select_option("user")
    dialog.get_by_label("How many").fill("1")
    expect(price(page)).to_contain_text("Messages 7 → 1")
    dialog.get_by_label("Leave messages of other roles in place").check()
    expect(price(page)).to_contain_text("Messages 7 → 6")
    dialog.get_by_label("How many").fill("")
    expect(price(page)).to_contain_text("Fill in the form")


def test_a_conversation_is_truncated_by_role(page: Page, server: PageServer, name: str) -> None:
    whole(page, "Keep or cut")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("How many").fill("1")
    dialog.get_by_label("Of which role").select_option("user")
    do(page, "Truncate")
    expect(page.locator("pv-message")).to_have_count(1)
    assert texts(server, name) == ["Thank you."]


def test_a_conversation_is_filtered_by_role_and_text(
    page: Page, server: PageServer, name: str
) -> None:
    whole(page, "Filter")
    dialog = page.get_by_role("dialog")
    expect(price(page)).to_contain_text("Fill in the form")
    dialog.get_by_label("tool", exact=True).uncheck()
    expect(price(page)).to_contain_text("Messages 7 → 6")
    expect(price(page)).to_contain_text("clock loses its result")
    dialog.get_by_label("Drop messages that contain").fill("Let me look\nwelcome")
    expect(price(page)).to_contain_text("Messages 7 → 4")
    do(page, "Filter")
    expect(page.locator("pv-message")).to_have_count(4)
    assert texts(server, name)[-1] == "Thank you."


def test_a_conversation_is_cleared_and_comes_back(
    page: Page, server: PageServer, name: str
) -> None:
    whole(page, "Clear")
    expect(price(page)).to_contain_text("Messages 7 → 1")
    page.get_by_role("dialog").get_by_label("Keep system messages").uncheck()
    expect(price(page)).to_contain_text("Messages 7 → 0")
    do(page, "Clear")
    expect(page.locator("pv-message")).to_have_count(0)
    page.locator("pv-toast").get_by_role("button", name="Undo").click()
    expect(page.locator("pv-message").first).to_be_visible()
    assert len(texts(server, name)) == 7


def test_what_the_server_refuses_is_said_in_its_place(page: Page, expected: list[str]) -> None:
    expected.append("status of 4")
    whole(page, "Delete a range")
    dialog = page.get_by_role("dialog")
    last = dialog.get_by_label("to message", exact=True)
    last.evaluate("(field) => field.removeAttribute('max')")
    last.fill("70")
    expect(price(page)).to_contain_text("must be within the 7 messages there are")
    expect(dialog.get_by_role("button", name="Delete", exact=True)).to_be_disabled()


def test_escape_changes_nothing(page: Page, server: PageServer, name: str) -> None:
    message = reach(page, 1)
    page.keyboard.press("e")
    page.get_by_role("dialog").get_by_label("Text").fill("Never said.")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(message).to_contain_text("Lisbon")
    assert server.store.get(name).version == 7


def _meanwhile(server: PageServer, name: str, operation: dict[str, Any]) -> None:
    """Somebody else edits, by the API."""
    server.ask("POST", f"conversations/{name}/operations", {"operation": operation})


def _wish(page: Page, text: str) -> None:
    reach(page, 1)
    page.keyboard.press("e")
    page.get_by_role("dialog").get_by_label("Text").fill(text)
    expect(price(page)).to_contain_text("Messages 7 → 7")


def test_both_sides_are_shown_when_others_were_quicker_and_mine_moves_along(
    page: Page, server: PageServer, name: str, expected: list[str]
) -> None:
    expected.append("status of 412")
    _wish(page, "What time is it in Faro?")
    theirs = [{"role": "user", "content": "Theirs."}]
    _meanwhile(server, name, {"operation": "INSERT", "position": 1, "messages": theirs})
    do(page, "Replace")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Somebody else changed this conversation meanwhile")
    expect(dialog).to_contain_text("What they did")
    expect(dialog).to_contain_text("Theirs.")
    expect(dialog).to_contain_text("What time is it in Faro?")
    expect(dialog).to_contain_text("have moved")
    assert texts(server, name)[:3] == ["You know the time.", "Theirs.", _LISBON]
    expect(price(page)).to_contain_text("Messages 8 → 8")
    do(page, "Do mine on the newest")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert texts(server, name)[1:3] == ["Theirs.", "What time is it in Faro?"]


def test_a_message_that_others_changed_too_is_named_and_left_when_i_say_so(
    page: Page, server: PageServer, name: str, expected: list[str]
) -> None:
    expected.append("status of 412")
    _wish(page, "Mine.")
    other = {"operation": "REPLACE", "index": 1, "message": {"role": "user", "content": "Theirs."}}
    _meanwhile(server, name, other)
    do(page, "Replace")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("yours would take the place of theirs")
    do(page, "Leave it")
    expect(dialog).to_have_count(0)
    assert texts(server, name)[1] == "Theirs."


def test_what_is_gone_can_not_be_edited(
    page: Page, server: PageServer, name: str, expected: list[str]
) -> None:
    expected.append("status of 412")
    _wish(page, "Mine.")
    _meanwhile(server, name, {"operation": "TRUNCATE", "keepLast": 2})
    do(page, "Replace")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("no longer there")
    expect(dialog.get_by_role("button", name="Do mine on the newest")).to_have_count(0)
    do(page, "Leave it")


def test_what_is_edited_is_what_is_shown_though_the_page_knows_of_more(
    page: Page, server: PageServer, name: str, expected: list[str]
) -> None:
    """The head of a change has arrived, its messages have not: the old ones are on the screen."""
    expected.append("status of 412")
    expect(page.locator("pv-message")).to_have_count(7)
    held: list[Route] = []
    page.route("**/messages?*", lambda route: held.append(route))  # noqa: PLW0108 - no builtin
    theirs = [{"role": "user", "content": "Theirs."}]
    _meanwhile(server, name, {"operation": "INSERT", "position": 1, "messages": theirs})
    expect(page.locator("pv-head")).to_contain_text("8 messages")
    reach(page, 1)
    page.keyboard.press("e")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Text")).to_have_value(_LISBON)
    dialog.get_by_label("Text").fill("What time is it in Faro?")
    do(page, "Replace")
    expect(dialog).to_contain_text("Somebody else changed this conversation meanwhile")
    do(page, "Do mine on the newest")
    expect(dialog).to_have_count(0)
    assert texts(server, name)[1:3] == ["Theirs.", "What time is it in Faro?"]
    page.unroute("**/messages?*")  # and what was held goes on


def test_undo_of_an_edit_takes_nothing_back_that_others_did_after_it(
    page: Page, server: PageServer, name: str, expected: list[str]
) -> None:
    expected.append("status of 412")
    _wish(page, "Mine.")
    do(page, "Replace")
    expect(page.locator("pv-message[data-index='1']")).to_contain_text("Mine.")
    undo = page.locator("pv-toast").get_by_role("button", name="Undo")
    undo.focus()  # it stays while it has the focus
    said = {"messages": [{"role": "user", "content": "Theirs."}]}
    server.ask("POST", f"conversations/{name}/messages", said)
    expect(page.locator("pv-message")).to_have_count(8)
    undo.click()
    expect(page.locator(".toast.error")).to_contain_text("is at version 9, not 8")
    assert (texts(server, name)[1], texts(server, name)[-1]) == ("Mine.", "Theirs.")


def test_the_past_is_for_looking(page: Page, name: str) -> None:
    page.goto(page.url.split("#", maxsplit=1)[0] + f"#/c/{name}/history?at=3")
    expect(page.get_by_text("You are looking at version 3")).to_be_visible()
    page.get_by_role("button", name="Edit history…").click()
    expect(page.locator("pv-toast")).to_contain_text("You are looking at an older version")
    page.locator("pv-toast").get_by_role("button", name="Go to now").click()
    expect(page.get_by_text("You are looking at version 3")).to_have_count(0)


def test_marks_are_put_on_and_taken_off(page: Page, server: PageServer, name: str) -> None:
    message = reach(page, 4)
    page.keyboard.press("m")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("No marks yet.")
    dialog.get_by_label("Name of the mark").fill("answer")
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("button", name="Remove the mark answer")).to_be_visible()
    page.keyboard.press("Escape")
    expect(message).to_contain_text("answer")
    assert [*server.store.get(name).marks] == ["answer"]
    page.keyboard.press("m")
    dialog.get_by_role("button", name="Remove the mark answer").click()
    expect(dialog).to_contain_text("No marks yet.")
    assert [*server.store.get(name).marks] == []


def test_erasing_asks_for_a_word_and_tells_what_it_did(
    page: Page, server: PageServer, name: str
) -> None:
    message = reach(page, 1)
    message.hover()
    message.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Erase forever").click()
    dialog = page.get_by_role("dialog", name="Erase a message forever")
    expect(dialog).to_contain_text("be undone.")
    expect(dialog).to_contain_text(_LISBON)
    button = dialog.get_by_role("button", name="Erase forever")
    expect(button).to_be_disabled()
    dialog.get_by_label("Type “erase” to confirm").fill("eras")
    expect(button).to_be_disabled()
    dialog.get_by_label("Type “erase” to confirm").fill("erase")
    button.click()
    expect(dialog).to_contain_text("1 message was erased")
    expect(dialog).to_contain_text("Out of reach")
    assert _LISBON not in texts(server, name)
    dialog.get_by_role("button", name="Close").last.click()
    expect(page.locator("pv-message[data-index='1']")).not_to_contain_text("Lisbon")


def test_a_fork_begins_at_a_message(page: Page, server: PageServer, name: str) -> None:
    reach(page, 1)
    page.keyboard.press("f")
    expect(page.locator("pv-message")).to_have_count(2)
    assert len(texts(server, name)) == 7


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "dark"), (NARROW, "light")])
def test_everyone_can_use_it(
    open_page: OpenPage, name: str, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    page = open_page(f"#/c/{name}/history", size=size, scheme=scheme)
    page.get_by_role("button", name="Edit history…").click()
    page.get_by_role("dialog").get_by_role("radio", name="Filter", exact=True).check()
    page.get_by_role("dialog").get_by_label("tool", exact=True).uncheck()
    expect(price(page)).to_contain_text("clock loses its result")
    assert violations(page, "dialog[open]") == []
    do(page, "Filter")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_an_edit_may_wait_for_the_cache_and_be_cancelled(
    page: Page, server: PageServer, name: str
) -> None:
    """The price says what it costs, or why that is unknown; what waits is listed by the tokens."""
    whole(page, "Keep or cut")
    dialog = page.get_by_role("dialog")
    later = dialog.get_by_role("button", name="Later", exact=True)
    expect(later).to_be_disabled()
    dialog.get_by_label("How many").fill("2")
    expect(price(page)).to_contain_text(
        re.compile("nothing of it in its cache|What that costs is unknown")
    )
    assert [] == violations(page)
    later.click()
    expect(page.locator("pv-toast")).to_contain_text("The edit waits until")
    assert len(texts(server, name)) == 7
    page.goto(f"{page.url.split('#')[0]}#/c/{name}/tokens")
    waiting = page.locator("pv-waiting")
    expect(waiting).to_contain_text("TRUNCATE: 5 messages")
    assert [] == violations(page)
    waiting.get_by_role("button", name="Cancel the edit that waits: TRUNCATE").click()
    expect(waiting).to_be_empty()
    assert {} == server.store.records(name, "deferred")


def test_a_price_in_money_says_when_it_pays(page: Page) -> None:
    """Of a cache that is warm, that has expired, and of an edit that never pays."""
    answers: list[dict[str, Any]] = [
        {"cache": "warm", "now": 1.25, "later": -0.03, "paysAfter": 42, "reason": None},
        {"cache": "expired", "now": -0.5, "later": -0.03, "paysAfter": 0, "reason": None},
        {"cache": "warm", "now": 0.5, "later": 0.01, "paysAfter": None, "reason": "never-pays"},
        {"cache": "cold", "now": None, "later": None, "paysAfter": None, "reason": "no-price"},
    ]

    def answer(route: Route) -> None:
        response = route.fetch()
        cost = {"model": "openai:gpt-6", **answers[0]}
        route.fulfill(response=response, json={**response.json(), "cost": cost})

    page.route("**/price", answer)
    whole(page, "Keep or cut")
    count = page.get_by_role("dialog").get_by_label("How many")
    for number, text in enumerate(
        (
            "+$1.25 with the next request, \N{MINUS SIGN}$0.0300 with each one after it",
            "The cache of openai:gpt-6 has expired: breaking it costs nothing.",
            "It never pays: later requests become no cheaper.",
            "there is no price for openai:gpt-6",
        ),
        1,
    ):
        count.fill(str(number))
        expect(price(page)).to_contain_text(text)
        if number == 1:
            expect(price(page)).to_contain_text("will be paid again")
            expect(price(page)).to_contain_text("It has paid after 42 more requests.")
        if number == 2:
            expect(price(page)).not_to_contain_text("will be paid again")
        if len(answers) > 1:
            del answers[0]
