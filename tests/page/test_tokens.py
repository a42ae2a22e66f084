"""Where the tokens are, what the next request would hold, and making room by hand."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal

import pytest
from playwright.sync_api import expect

from palaver.messages import ModelRef
from tests.conversation.scripted import saying
from tests.page import samples
from tests.page.accessibility import violations
from tests.page.conftest import NARROW, WIDE
from tests.page.histories import called, said

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer

_numbers = itertools.count()


@pytest.fixture
def name(server: PageServer) -> str:
    """A conversation with one large message, which no other test knows."""
    conversation = f"tokens-{next(_numbers)}"
    called(server.store, conversation)
    return conversation


@pytest.fixture
def page(open_page: OpenPage, name: str) -> Page:
    """The page with its tokens open."""
    return open_page(f"#/c/{name}/tokens")


def test_the_window_is_shown_by_role_and_by_message(
    page: Page, server: PageServer, name: str
) -> None:
    counted = server.ask("GET", f"conversations/{name}/tokens")
    view = page.locator("pv-tokens")
    expect(view.locator(".t-total")).to_have_text(f"{counted['total']} of 8,000 tokens")
    expect(view).to_contain_text("% full")
    expect(view).to_contain_text("The dashed line is where one should make room: 6,400 tokens.")
    for role, tokens in counted["byRole"].items():
        expect(view.locator(".t-roles li").filter(has_text=role)).to_contain_text(str(tokens))
    left = 8_000 - counted["total"]
    expect(view).to_contain_text(f"{counted['total']} tokens and leave {left:,} for the answer")
    by_role, by_message = view.locator("svg.t-window").all()
    expect(by_role.locator("rect.t-bar")).to_have_count(4)
    expect(by_role.locator("line.t-limit")).to_have_count(1)
    expect(by_message.locator("rect.t-bar")).to_have_count(7)


def test_pointing_says_which_message_and_a_click_leads_there(page: Page) -> None:
    bars = page.locator("svg.t-window").nth(1).locator("rect.t-bar")
    bars.nth(3).hover()
    expect(page.locator(".t-pointed")).to_contain_text("message 3 · tool ·")
    bars.nth(0).click()
    expect(page.locator("pv-message[data-index='0']")).to_be_in_viewport()


def test_the_keyboard_reaches_the_largest_messages(page: Page) -> None:
    largest = page.get_by_role("button", name="message 3 · tool")
    largest.focus()
    page.keyboard.press("Enter")
    expect(page.locator("pv-message[data-index='3']")).to_be_in_viewport()


def test_on_a_phone_the_panel_makes_way_for_the_message(open_page: OpenPage, name: str) -> None:
    page = open_page(f"#/c/{name}/tokens", size=NARROW)
    page.get_by_role("button", name="message 3 · tool").click()
    expect(page.locator("pv-panel")).to_be_hidden()
    expect(page.locator("pv-message[data-index='3']")).to_be_in_viewport()


def test_it_follows_what_is_said(page: Page, server: PageServer, name: str) -> None:
    expect(page.locator("svg.t-window").nth(1).locator("rect.t-bar")).to_have_count(7)
    server.store.get(name).append(said("user", "One more."))
    expect(page.locator("svg.t-window").nth(1).locator("rect.t-bar")).to_have_count(8)


def test_making_room_is_looked_at_and_then_done_and_undone(
    page: Page, server: PageServer, name: str
) -> None:
    page.get_by_role("radio", name="Drop the oldest turns").check()
    page.get_by_label("Leave about so many tokens as they are").fill("60")
    page.get_by_role("button", name="Look first").click()
    preview = page.locator(".t-preview")
    expect(preview).to_contain_text("Messages 7 → 4")
    expect(preview).to_contain_text("3 messages go")
    expect(preview).to_contain_text("What time is it in Lisbon?")
    expect(preview).to_contain_text("4 messages stay as they are.")
    assert len(server.store.get(name)) == 7
    preview.get_by_role("button", name="Do it").click()
    expect(page.locator("pv-message")).to_have_count(4)
    assert len(server.store.get(name)) == 4
    page.locator("pv-toast").get_by_role("button", name="Undo").click()
    expect(page.locator("svg.t-window").nth(1).locator("rect.t-bar")).to_have_count(7)


def test_what_was_looked_at_is_done_or_nothing(
    page: Page, server: PageServer, name: str, expected: list[str]
) -> None:
    expected.append("status of 412")
    page.get_by_role("radio", name="Drop the oldest turns").check()
    page.get_by_label("Leave about so many tokens as they are").fill("60")
    page.get_by_role("button", name="Look first").click()
    preview = page.locator(".t-preview")
    expect(preview).to_contain_text("Messages 7 → 4")
    server.store.get(name).append(said("user", "One more."))
    expect(page.locator("pv-message")).to_have_count(8)
    preview.get_by_role("button", name="Do it").click()
    expect(preview.get_by_role("alert")).to_contain_text("is at version 8, not 7")
    assert len(server.store.get(name)) == 8


def test_old_outputs_are_cleared_and_their_calls_stay(
    page: Page, server: PageServer, name: str
) -> None:
    page.get_by_label("Leave about so many tokens as they are").fill("0")
    page.get_by_role("button", name="Look first").click()
    preview = page.locator(".t-preview")
    expect(preview).to_contain_text("Messages 7 → 7")
    preview.get_by_role("button", name="Do it").click()
    expect(page.locator("pv-toast")).to_contain_text("Room was made.")
    sent = server.ask("GET", f"conversations/{name}/request?format=openai-chat")["request"]
    assert "The sun is out." not in str(sent)
    assert "call-1" in str(sent)


def test_where_there_is_nothing_to_gain_it_says_so(open_page: OpenPage, server: PageServer) -> None:
    server.store.create(id="little", title="Little").append(said("user", "Tea?"))
    page = open_page("#/c/little/tokens")
    page.get_by_role("button", name="Look first").click()
    expect(page.locator(".t-preview")).to_contain_text("There is nothing to gain this way.")
    expect(page.locator("pv-tokens")).to_contain_text("No model has been called")


def test_a_conversation_without_a_word_says_what_to_do(
    open_page: OpenPage, server: PageServer
) -> None:
    server.store.create(id="wordless", title="Wordless")
    page = open_page("#/c/wordless/tokens")
    expect(page.locator("pv-tokens")).to_contain_text("Nothing to count yet")


def test_thousands_of_messages_are_a_few_spans(open_page: OpenPage, server: PageServer) -> None:
    history = server.store.create(id="wide", title="Wide")
    history.extend(said(("user", "assistant")[number % 2], "tea " * 9) for number in range(3_000))
    page = open_page("#/c/wide/tokens")
    bars = page.locator("svg.t-window").nth(1).locator("rect.t-bar")
    expect(bars.first).to_be_attached()
    assert bars.count() <= 500
    expect(page.locator("pv-tokens")).to_contain_text("too many. Make room below.")

    over = page.locator(".t-head .chip")
    expect(over).to_contain_text("too many")
    expect(over).not_to_contain_text("%")
    outside = page.evaluate(
        """() => [...document.querySelectorAll("pv-tokens *")].filter((one) =>
          one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.className)"""
    )
    assert [] == outside


def test_what_imported_answers_cost_is_said(open_page: OpenPage, server: PageServer) -> None:
    samples.rich(server.store, "tokens-rich")
    page = open_page("#/c/tokens-rich/tokens")
    view = page.locator("pv-tokens")
    expect(view).to_contain_text("$0.0042")
    expect(view.locator(".v-table")).to_contain_text("1,204")


def test_the_parts_are_the_whole_and_the_box_says_the_same(
    open_page: OpenPage, server: PageServer
) -> None:
    server.store.create(id="tokens-asked", title="Asked")
    server.say(saying("Yes.", used=(140, 3)))
    server.ask("POST", "conversations/tokens-asked/step", {"text": "Tea?"})
    page = open_page("#/c/tokens-asked/tokens")
    view = page.locator("pv-tokens")
    expect(view.locator(".t-total")).to_have_text("143 of 8,000 tokens")
    expect(page.locator("pv-composer .next .long")).to_have_text("next request 143 of 8,000 tokens")
    parts = view.locator(".t-roles li b").all_inner_texts()
    assert 143 == sum(int(text) for text in parts)
    expect(view.locator(".t-roles")).to_contain_text("tools and framing")
    expect(view).to_contain_text("the provider")


def test_a_local_model_is_no_provider(open_page: OpenPage, server: PageServer) -> None:
    server.store.create(id="tokens-local", title="Local")
    server.say(saying("Yes.", used=(140, 3)))
    ref, server.model.ref = server.model.ref, ModelRef("local", "tiny")
    try:
        server.ask("POST", "conversations/tokens-local/step", {"text": "Tea?"})
        page = open_page("#/c/tokens-local/tokens")
        expect(page.locator(".t-source")).to_contain_text("the model on this machine")
    finally:
        server.model.ref = ref


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "dark"), (NARROW, "light")])
def test_everyone_can_use_it(
    open_page: OpenPage, name: str, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    page = open_page(f"#/c/{name}/tokens", size=size, scheme=scheme)
    page.get_by_role("radio", name="Drop the oldest turns").check()
    page.get_by_label("Leave about so many tokens as they are").fill("60")
    page.get_by_role("button", name="Look first").click()
    expect(page.locator(".t-preview")).to_contain_text("3 messages go")
    assert violations(page, "pv-tokens") == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
