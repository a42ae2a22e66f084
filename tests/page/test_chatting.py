"""The chat box: an answer that grows, tools that move through their states, a stop, a refusal."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from palaver.errors import ModelError
from tests.conversation.scripted import calling, saying

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from tests.page.conftest import Look
    from tests.page.stand import Stand


@pytest.fixture
def opened(look: Look, stand: Stand) -> Callable[[str], Page]:
    """Open the page at a conversation that has just begun."""
    stand.actor.lines.clear()

    def opened(name: str) -> Page:
        stand.store.create(id=name, title=name)
        page = look(f"#/c/{name}")
        expect(page.get_by_text("Nothing was said yet")).to_be_visible()
        return page

    return opened


def test_an_answer_is_seen_as_it_arrives_and_then_stays(
    opened: Callable[[str], Page], stand: Stand
) -> None:
    first, second = threading.Event(), threading.Event()
    words = saying("One, ", "two, ", "three.")
    thought = {"choices": [{"delta": {"reasoning_content": "Count, then."}}]}
    stand.say([thought, words[0], first, words[1], second, *words[2:]])
    page = opened("count")
    page.get_by_role("textbox", name="Say something").fill("Count to three")
    page.keyboard.press("Enter")

    expect(page.locator("pv-message[data-index='0']")).to_contain_text("Count to three")
    draft = page.locator("pv-draft")
    expect(draft).to_contain_text("One,")
    expect(draft).to_contain_text("Count, then.")
    expect(draft).not_to_contain_text("two")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    first.set()
    expect(draft).to_contain_text("One, two,")
    second.set()
    expect(page.locator("pv-message[data-index='1']")).to_contain_text("One, two, three.")
    expect(draft).to_be_hidden()
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(page.get_by_role("textbox", name="Say something")).to_have_value("")
    expect(page.locator("pv-head")).to_contain_text("2 messages")


def test_the_stored_answer_takes_the_drafts_place_without_a_jump(
    opened: Callable[[str], Page], stand: Stand
) -> None:
    """Whoever reads along sees no frame in which the answer is there twice, or not at all."""
    gate = threading.Event()
    pieces = [f"Line {n}, which is long enough to be seen.\n\n" for n in range(40)]
    told = saying(*pieces)
    stand.say([*told[:40], gate, *told[40:]])
    page = opened("lines")
    page.get_by_role("textbox", name="Say something").fill("Forty lines")
    page.keyboard.press("Enter")
    expect(page.locator("pv-draft")).to_contain_text("Line 39")
    page.evaluate(
        """() => {
          const thread = document.querySelector("pv-thread");
          window.seen = [];
          const look = () => {
            const text = thread.querySelector(".scroller").innerText;
            window.seen.push([text.split("Line 39").length - 1, thread.scroller.scrollTop]);
            requestAnimationFrame(look);
          };
          look();
        }"""
    )
    gate.set()
    expect(page.locator("pv-message[data-index='1']")).to_contain_text("Line 39")
    expect(page.locator("pv-draft")).to_be_hidden()
    page.wait_for_timeout(100)
    seen: list[tuple[int, float]] = page.evaluate("window.seen")
    assert {1} == {times for times, _ in seen}
    places = [place for _, place in seen]
    assert max(places) - min(places) < 80  # the line about cost may come, nothing else moves


def test_shift_enter_is_a_new_line(opened: Callable[[str], Page], stand: Stand) -> None:
    page = opened("two-lines")
    stand.say(saying("Yes."))
    field = page.get_by_role("textbox", name="Say something")
    field.fill("first")
    field.press("Shift+Enter")
    field.press_sequentially("second")
    expect(field).to_have_value("first\nsecond")
    field.press("Enter")
    expect(page.locator("pv-message[data-index='0'] .text")).to_have_text(
        "first\nsecond", use_inner_text=True
    )
    expect(page.locator("pv-message[data-index='1']")).to_contain_text("Yes.")


def test_stop_keeps_what_had_arrived(opened: Callable[[str], Page], stand: Stand) -> None:
    never = threading.Event()
    stand.say([*saying("It was a dark and")[:1], never])
    page = opened("stopped")
    page.get_by_role("textbox", name="Say something").fill("Tell me a story")
    page.keyboard.press("Enter")
    expect(page.locator("pv-draft")).to_contain_text("It was a dark and")
    page.get_by_role("button", name="Stop", exact=True).click()
    answer = page.locator("pv-message[data-index='1']")
    expect(answer).to_contain_text("It was a dark and")
    expect(answer).to_contain_text("Interrupted: this is what had arrived")
    expect(page.get_by_role("button", name="Send")).to_be_visible()


def test_a_tool_is_seen_at_work_and_done(opened: Callable[[str], Page], stand: Stand) -> None:
    stand.say(calling(("calculate", {"expression": "6 * 7"})), saying("It is 42."))
    page = opened("sum")
    page.get_by_role("textbox", name="Say something").fill("What is six times seven?")
    page.keyboard.press("Enter")
    expect(page.locator("pv-message[data-index='1'] .tool-name")).to_have_text("calculate")
    result = page.locator("pv-message[data-index='2']")
    expect(result.locator(".chip")).to_contain_text("completed")
    expect(result).to_contain_text("6 * 7 = 42")
    expect(page.locator("pv-message[data-index='3']")).to_contain_text("It is 42.")


@pytest.mark.parametrize(
    ("button", "state", "said"),
    [("Run", "completed", "nothing"), ("Deny", "error", "did not allow")],
)
def test_a_call_that_asks_first_waits_for_a_person(
    opened: Callable[[str], Page], stand: Stand, button: str, state: str, said: str
) -> None:
    stand.say(calling(("search_conversations", {"words": "zeppelin"})), saying("Well then."))
    page = opened(f"ask-{button}")
    page.get_by_role("textbox", name="Say something").fill("Did we speak of airships?")
    page.keyboard.press("Enter")
    card = page.locator("pv-message[data-index='1'] .tool-card")
    expect(card.locator(".chip")).to_have_text("pending")
    expect(card).to_contain_text("zeppelin")
    expect(page.locator(".conversation", has_text=f"ask-{button}")).to_contain_text("1 call waits")
    card.get_by_role("button", name=button).click()
    result = page.locator("pv-message[data-index='2']")
    expect(result.locator(".chip")).to_contain_text(state)
    expect(result).to_contain_text(said)
    expect(page.locator("pv-message[data-index='3']")).to_contain_text("Well then.")


def test_without_tools_none_are_offered(opened: Callable[[str], Page], stand: Stand) -> None:
    page = opened("no-tools")
    tools = page.get_by_role("button", name="Tools", exact=True)
    expect(tools).to_have_attribute("aria-pressed", "true")
    tools.click()
    expect(tools).to_have_attribute("aria-pressed", "false")
    stand.say(saying("No."))
    stand.actor.asked.clear()
    page.get_by_role("textbox", name="Say something").fill("Any tools?")
    page.keyboard.press("Enter")
    expect(page.locator("pv-message[data-index='1']")).to_contain_text("No.")
    assert () == tuple(stand.actor.asked[0].tools)
    page.reload()
    expect(tools).to_have_attribute("aria-pressed", "false")


def test_a_failure_says_what_the_server_said(opened: Callable[[str], Page], stand: Stand) -> None:
    stand.say([ModelError("the model has left the building")])
    page = opened("failing")
    page.get_by_role("textbox", name="Say something").fill("Hello?")
    page.keyboard.press("Enter")
    toast = page.locator(".toast.error")
    expect(toast).to_contain_text("The step failed")
    expect(toast).to_contain_text("the model has left the building")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    toast.get_by_role("button", name="Close").click()
    expect(toast).to_be_hidden()


def test_models_without_a_key_are_listed_with_what_they_lack(opened: Callable[[str], Page]) -> None:
    page = opened("models")
    page.get_by_role("button", name="Model: actor").click()
    entries = page.get_by_role("menuitemradio")
    expect(entries.filter(has_text="actor")).to_have_attribute("aria-checked", "true")
    lacking = entries.filter(has_text=re.compile("ANTHROPIC_API_KEY")).first
    expect(lacking).to_have_attribute("aria-disabled", "true")
    lacking.click(force=True)
    expect(page.get_by_role("menu")).to_be_visible()  # it can't be chosen
    page.keyboard.press("Escape")
    expect(page.get_by_role("menu")).to_be_hidden()


def test_the_box_says_what_the_next_request_holds(
    opened: Callable[[str], Page], stand: Stand
) -> None:
    page = opened("counted")
    said = {"messages": [{"role": "user", "content": "word " * 500}]}
    stand.ask("POST", "conversations/counted/messages", said)
    expect(page.locator("pv-composer .next .long")).to_have_text(
        re.compile(r"^next request \d{3} of 6,400 tokens$")
    )


def test_what_was_typed_waits_for_the_reader_to_return(
    opened: Callable[[str], Page], stand: Stand
) -> None:
    stand.store.create(id="elsewhere", title="elsewhere")
    page = opened("typed")
    page.get_by_role("textbox", name="Say something").fill("half a thou")
    page.get_by_role("link", name="elsewhere").click()
    expect(page.get_by_role("textbox", name="Say something")).to_have_value("")
    page.get_by_role("link", name="typed").first.click()
    expect(page.get_by_role("textbox", name="Say something")).to_have_value("half a thou")
