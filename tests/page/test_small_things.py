"""What a reader stumbles over: keys, buttons, the head, what can't be seen, and small screens."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import palaver
from palaver.server import demo
from tests.conversation.scripted import saying
from tests.page.histories import broken, called, said
from tests.page.server import running_server

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page, Route

    from palaver.stores import Store
    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer

_numbers = itertools.count()


@pytest.fixture
def name(server: PageServer) -> str:
    """A conversation with a tool call, which no other test knows."""
    server.model.lines.clear()
    return called(server.store, f"small-{next(_numbers)}").id


def test_the_keyboard_alone_cuts_from_a_fresh_page(
    open_page: OpenPage, server: PageServer, name: str
) -> None:
    page = open_page(f"#/c/{name}")
    expect(page.locator("pv-message[data-index='6']")).to_be_visible()
    page.keyboard.press("x")
    expect(page.get_by_text("1 message selected")).to_be_visible()
    page.keyboard.press("k")
    page.keyboard.press("d")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("pv-message")).to_have_count(5)
    assert 5 == len(server.store.get(name))


def test_undo_and_redo_are_there_when_there_is_something_to_do(
    open_page: OpenPage, server: PageServer, name: str
) -> None:
    server.store.create(id=f"{name}-empty", title="Empty")
    page = open_page(f"#/c/{name}-empty")
    head = page.locator("pv-head")
    undo, redo = (head.get_by_role("button", name=label) for label in ("Undo", "Redo"))
    expect(undo).to_be_disabled()
    expect(redo).to_be_disabled()
    page.evaluate("(name) => (location.hash = `#/c/${name}`)", name)
    expect(head).to_contain_text("7 messages")
    expect(redo).to_be_disabled()
    server.store.get(name).execute({"operation": "TRUNCATE", "keepLast": 2})
    expect(undo).to_be_enabled()
    undo.click()
    expect(redo).to_be_enabled()


def test_the_panel_stays_and_the_head_says_the_version_that_is_shown(
    open_page: OpenPage, server: PageServer, name: str
) -> None:
    other = called(server.store, f"small-{next(_numbers)}").id
    page = open_page(f"#/c/{name}/history")
    page.locator(f".conversation[data-id='{other}'] > a").click()
    expect(page.locator("pv-history")).to_be_visible()
    page.evaluate("location.hash = `${location.hash.split('?')[0]}?at=3`")
    expect(page.locator("pv-head .title")).to_contain_text("version 3 of 7")


def test_a_result_without_its_call_is_not_completed(
    open_page: OpenPage, server: PageServer
) -> None:
    name = broken(server.store, f"small-{next(_numbers)}").id
    page = open_page(f"#/c/{name}")
    card = page.locator(".tool-card.result")
    expect(card).to_contain_text("its call is gone")
    expect(card.locator(".chip.good")).to_have_count(0)


def test_an_edit_amid_an_answer_says_so(open_page: OpenPage, server: PageServer, name: str) -> None:
    gate = threading.Event()
    answer = saying("One, ", "two.")
    server.say([answer[0], gate, *answer[1:]])
    page = open_page(f"#/c/{name}")
    page.get_by_role("textbox", name="Say something").fill("Count")
    page.keyboard.press("Enter")
    expect(page.locator("pv-draft")).to_contain_text("One,")
    page.keyboard.press("Escape")
    page.keyboard.press("k")
    page.keyboard.press("e")
    expect(page.get_by_role("dialog")).to_contain_text("An answer is on its way.")
    gate.set()
    page.keyboard.press("Escape")


def test_characters_that_can_not_be_seen_are_shown(open_page: OpenPage, server: PageServer) -> None:
    history = server.store.create(id="unseen", title="Unseen")
    odd = "a\u202egnp.exe\u2066 b\u200bc \U000e0041 \U0001f469\u200d\U0001f680 ok"
    history.append(said("user", f"{odd}\n```\nx\u200fy\n```"))
    page = open_page("#/c/unseen")
    expect(page.locator(".conversation[data-id='unseen'] .unseen")).to_have_count(5)
    shown = page.locator("pv-message .unseen")
    expect(shown).to_have_text(["U+202E", "U+2066", "U+200B", "U+E0041", "U+200F"])
    expect(page.locator("pv-message .text").first).to_contain_text("\U0001f469\u200d\U0001f680 ok")


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f469\U0001f3fd\u200d\U0001f4bb",  # a woman with a laptop, of a darker skin
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian: I want
        "\u0dc1\u0dca\u200d\u0dbb\u0dd3",  # Sinhala: Sri
        "\u0915\u094d\u200d\u0937",  # Hindi, with a half letter
    ],
)
def test_joiners_that_belong_to_a_word_or_a_picture_are_left_alone(
    open_page: OpenPage, server: PageServer, text: str
) -> None:
    name = f"joined-{next(_numbers)}"
    server.store.create([said("user", text)], id=name)
    page = open_page(f"#/c/{name}")
    expect(page.locator("pv-message .text")).to_have_text(text)
    expect(page.locator("pv-message .unseen")).to_have_count(0)


@pytest.mark.parametrize(
    "text", ["a\u200db", "a\u200cb", "\u0645\u200c\u200c\u062e", "\u0645\u200c b", "\u200d"]
)
def test_other_joiners_are_shown(open_page: OpenPage, server: PageServer, text: str) -> None:
    """They could carry words that nobody sees."""
    name = f"joined-{next(_numbers)}"
    server.store.create([said("user", text)], id=name)
    page = open_page(f"#/c/{name}")
    count = sum(text.count(each) for each in "\u200c\u200d")
    expect(page.locator("pv-message .unseen")).to_have_count(count)


def test_a_text_from_right_to_left_begins_at_the_right(
    open_page: OpenPage, server: PageServer
) -> None:
    name = f"hebrew-{next(_numbers)}"
    texts = ["\u05e9\u05dc\u05d5\u05dd!", "Hello!"]
    server.store.create(
        [said(role, text) for text in texts for role in ("user", "assistant")], id=name
    )
    page = open_page(f"#/c/{name}")
    expect(page.locator("pv-message")).to_have_count(4)
    begins = page.evaluate(FIRST_LETTERS)
    assert ["right", "right", "left", "left"] == begins


FIRST_LETTERS = """() => [...document.querySelectorAll("pv-message")].map((message) => {
  const text = message.querySelector(".text, .markdown p");
  const range = document.createRange();
  range.setStart(text.firstChild, 0);
  range.setEnd(text.firstChild, 1);
  const [letter, box] = [range.getBoundingClientRect(), text.getBoundingClientRect()];
  return letter.left - box.left > box.right - letter.right ? "right" : "left";
})"""
"""At which side of its paragraph the first letter of each message is."""


def test_the_size_of_a_request_takes_two_lines_on_a_phone(
    open_page: OpenPage, server: PageServer
) -> None:
    name = f"large-{next(_numbers)}"
    server.store.create([said("user", "word " * 1_500)], id=name)
    page = open_page(f"#/c/{name}", size=(375, 667))
    shown = page.locator("pv-composer .next .short")
    expect(shown).to_contain_text("/")
    assert 2 >= shown.evaluate("(element) => element.getClientRects().length")


TURNING = r"""() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode())
    if (/[\u202a-\u202e\u2066-\u2069]/u.test(walker.currentNode.data))
      found.push(walker.currentNode.parentElement.outerHTML);
  return found.filter((one) => !one.startsWith("<textarea") && !one.startsWith("<option"));
}"""


def turned(store: Store, name: str) -> None:
    """A conversation whose title and texts turn what follows them around."""
    odd = "pay\u202e tsol \u2066"
    history = store.create([palaver.user(odd), palaver.assistant(odd)], id=name, title=odd)
    history.append(palaver.user(odd))
    history.append(palaver.assistant(odd))
    history.replace(3, palaver.assistant(f"{odd} again"))


@pytest.mark.parametrize(
    ("place", "keys", "seen"),
    [
        ("/history", "", ".h-what .unseen"),
        ("/history", "", ".v-words .unseen"),
        ("/diff/2..3", "", ".d-text .unseen"),
        ("/diff/0..2", "", ".d-text .unseen"),
        ("/run", "", ".run-name .unseen"),
        ("", "kd", "dialog .v-words .unseen"),
        ("", "km", "dialog .e-quote .unseen"),
    ],
)
def test_no_text_turns_what_stands_around_it(
    open_page: OpenPage, server: PageServer, place: str, keys: str, seen: str
) -> None:
    name = f"turned-{next(_numbers)}"
    turned(server.store, name)
    page = open_page(f"#/c/{name}{place}")
    for key in keys:
        page.keyboard.press(key)
    expect(page.locator(seen).first).to_be_visible()
    assert [] == page.evaluate(TURNING)


def without_key(route: Route) -> None:
    """A server whose only model has no key."""
    answer = route.fetch().json()
    lacking = {"ready": False, "why": "set OPENAI_API_KEY"}
    models = [{**one, **lacking} for one in answer["models"] if one["isDefault"]]
    route.fulfill(json={**answer, "models": models})


def test_a_model_without_a_key_does_not_look_ready(open_page: OpenPage, name: str) -> None:
    page = open_page()
    page.route("**/api/info", without_key)
    page.goto(page.url.split("#")[0] + f"#/c/{name}")
    page.reload()
    expect(page.locator("pv-composer .model")).to_contain_text("set OPENAI_API_KEY")


def test_one_tab_stop_skips_to_the_conversation_and_answers_are_announced(
    open_page: OpenPage, server: PageServer, name: str
) -> None:
    server.say(saying("Nearly noon."))
    page: Page = open_page(f"#/c/{name}")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Skip to the conversation")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("textbox", name="Say something")).to_be_focused()
    page.keyboard.type("And now?")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="The answer is there.")).to_contain_text(
        "Nearly noon."
    )


@pytest.mark.parametrize("place", ["called", "called/history", demo.START])
def test_at_twice_the_size_the_thread_is_there(
    open_page: OpenPage, tmp_path: Path, place: str
) -> None:
    """A window of 1440 by 900 at 200 % has 720 by 450 left; the guide leaves room."""
    with palaver.open(tmp_path / "sown.db") as store:
        demo.seed(store)
        called(store)
        with running_server(store) as sown:
            page = open_page(f"#/c/{place}", at=sown, size=(720, 450))
            parts = page.locator(".panel-body, pv-thread .scroller, pv-welcome").filter(
                visible=True
            )
            expect(parts.first).to_be_visible()
            box = parts.first.bounding_box()
            assert box is not None
            assert box["height"] >= 160, box
            page.close()
