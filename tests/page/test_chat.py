"""The chat box: an answer that grows, tools that move through their states, a stop, a refusal."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Literal

import anyio
import pytest
from playwright.sync_api import expect

import palaver
from palaver.errors import ModelError
from palaver.messages import Message
from palaver.server.services import tools as server_tools
from tests.conversation.scripted import calling, saying
from tests.page.accessibility import violations
from tests.page.server import running_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Locator, Page, Route

    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer


@pytest.fixture
def opened(open_page: OpenPage, server: PageServer) -> Callable[[str], Page]:
    """Open the page at a conversation that has just begun."""
    server.model.lines.clear()

    def opened(name: str) -> Page:
        server.store.create(id=name, title=name)
        page = open_page(f"#/c/{name}")
        expect(page.get_by_text("Nothing was said yet")).to_be_visible()
        return page

    return opened


def test_an_answer_is_seen_as_it_arrives_and_then_stays(
    opened: Callable[[str], Page], server: PageServer
) -> None:
    first, second = threading.Event(), threading.Event()
    words = saying("One, ", "two, ", "three.")
    thought = {"choices": [{"delta": {"reasoning_content": "Count, then."}}]}
    server.say([thought, words[0], first, words[1], second, *words[2:]])
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


SLOW = """(slow) => {
  const fetch = window.fetch;
  window.fetch = async (where, how) => {
    const answer = await fetch(where, how);
    const path = new URL(where, location.href).pathname;
    if (slow && how.method === "GET" && new RegExp(slow).test(path)) {
      await new Promise((go) => setTimeout(go, 900));
    }
    return answer;
  };
}"""
"""Have what the page reads at some paths arrive late."""
WATCH = """() => {
  const { scroller } = document.querySelector("pv-thread");
  window.seen = [];
  const found = (text) => {
    const range = document.createRange();
    const walker = document.createTreeWalker(scroller, NodeFilter.SHOW_TEXT);
    const tops = [];
    while (walker.nextNode()) {
      const start = walker.currentNode.data.indexOf(text);
      if (start < 0) continue;
      range.setStart(walker.currentNode, start);
      range.setEnd(walker.currentNode, start + text.length);
      const [box] = range.getClientRects();
      if (box) tops.push(box.top);
    }
    return tops;
  };
  const look = () => {
    const offered = document.querySelectorAll(".suggested button, pv-welcome h2").length;
    const lines = [found("Forty lines").length, found("Line 0,").length, found("Line 39,")];
    window.seen.push([...lines, offered]);
    requestAnimationFrame(look);
  };
  look();
}"""
"""Write down what every frame shows: the question, the answer's first line, where its last is."""


@pytest.mark.parametrize(
    "slow",
    ["", r"/conversations/[^/]+$", "/messages$"],
    ids=["quick", "slow-head", "slow-messages"],
)
def test_the_stored_answer_takes_the_drafts_place_without_a_jump(
    opened: Callable[[str], Page], server: PageServer, slow: str
) -> None:
    """Whoever reads along sees no frame in which the answer is there twice, or not at all.

    It does not begin before its question is there, and its last line stays where it is, however
    long the page waits for what was stored.
    """
    first, gate = threading.Event(), threading.Event()
    pieces = [f"Line {n}, which is long enough to be seen.\n\n" for n in range(40)]
    events = saying(*pieces)
    server.say([first, *events[:40], gate, *events[40:]])
    page = opened(f"lines-{len(slow)}")
    page.get_by_role("textbox", name="Say something").fill("Forty lines")
    page.evaluate(SLOW, slow)
    page.keyboard.press("Enter")
    expect(page.locator(".suggested button")).to_have_count(0)
    page.evaluate(WATCH)
    first.set()
    expect(page.locator("pv-draft")).to_contain_text("Line 39")
    gate.set()
    expect(page.locator("pv-message[data-index='1']")).to_contain_text("Line 39")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    page.wait_for_timeout(800)  # a draft that is no longer needed would have gone by now
    expect(page.locator("pv-draft")).to_be_hidden()
    seen: list[tuple[int, int, list[float], int]] = page.evaluate("window.seen")
    assert next(asked for asked, begun, *_ in seen if begun)
    counts = [len(tops) for _, _, tops, _ in seen]
    assert [0, 1] == sorted(set(counts))
    assert sorted(counts) == counts
    places = [tops[0] for _, _, tops, _ in seen if tops]
    assert max(places) - min(places) < 5  # the box below may take a pixel or two
    assert not any(offered for *_, offered in seen)


def test_shift_enter_is_a_new_line(opened: Callable[[str], Page], server: PageServer) -> None:
    page = opened("two-lines")
    server.say(saying("Yes."))
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


def test_stop_keeps_what_had_arrived(opened: Callable[[str], Page], server: PageServer) -> None:
    never = threading.Event()
    server.say([*saying("It was a dark and")[:1], never])
    page = opened("stopped")
    page.get_by_role("textbox", name="Say something").fill("Tell me a story")
    page.keyboard.press("Enter")
    expect(page.locator("pv-draft")).to_contain_text("It was a dark and")
    page.get_by_role("button", name="Stop", exact=True).click()
    answer = page.locator("pv-message[data-index='1']")
    expect(answer).to_contain_text("It was a dark and")
    expect(answer).to_contain_text("Interrupted: this is what had arrived")
    expect(page.get_by_role("button", name="Send")).to_be_visible()


def test_a_tool_is_seen_at_work_and_done(opened: Callable[[str], Page], server: PageServer) -> None:
    server.say(calling(("calculate", {"expression": "6 * 7"})), saying("It is 42."))
    page = opened("sum")
    page.get_by_role("textbox", name="Say something").fill("What is six times seven?")
    page.keyboard.press("Enter")
    expect(page.locator("pv-message[data-index='1'] .tool-name")).to_have_text("calculate")
    result = page.locator("pv-message[data-index='2']")
    expect(result.locator(".chip")).to_contain_text("completed")
    expect(result).to_contain_text("6 * 7 = 42")
    expect(page.locator("pv-message[data-index='3']")).to_contain_text("It is 42.")


# ── what one might ask ──────────────────────────────────────────────────────────────────────────

SUM = "What is 347 × 29? Use the calculator."  # noqa: RUF001 - as people write it


def test_where_nothing_was_said_something_can_be_asked_by_a_click(
    opened: Callable[[str], Page], server: PageServer
) -> None:
    """A question that wants a tool has the model call it, and then answer."""
    gate = threading.Event()
    server.model.asked.clear()
    server.say(calling(("calculate", {"expression": "347 * 29"})), [gate, *saying("It is 10063.")])
    page = opened("suggested")
    offered = page.get_by_role("group", name="Suggestions")
    expect(offered.get_by_role("button")).to_have_count(3)
    offered.get_by_role("button", name=SUM).click()
    expect(page.locator("pv-message[data-index='0']")).to_contain_text(SUM)
    expect(page.locator("pv-message[data-index='1'] .tool-name")).to_have_text("calculate")
    expect(page.locator("pv-message[data-index='2'] .chip")).to_contain_text("completed")
    expect(offered).to_be_hidden()
    gate.set()
    expect(page.locator("pv-message[data-index='3']")).to_contain_text("It is 10063.")
    choices = [
        (ask.options.get("tool_choice"), [tool.name for tool in ask.tools])
        for ask in server.model.asked
    ]
    assert [("calculate", ["calculate"]), (None, ["calculate"])] == choices


def test_a_call_is_seen_running_and_then_completed(
    opened: Callable[[str], Page], server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()

    async def come_to_rest() -> None:
        while not gate.is_set():  # noqa: ASYNC110 - the test sets it, from its own thread
            await anyio.sleep(0.005)

    monkeypatch.setattr(server_tools, "_wait_for_die", come_to_rest)
    server.say(calling(("roll_dice", {})), saying("Lucky."))
    page = opened("dice")
    page.get_by_role("button", name="Roll two dice.").click()
    card = page.locator("pv-message[data-index='1'] .tool-card")
    expect(card.locator(".chip")).to_have_text("running")
    gate.set()
    result = page.locator("pv-message[data-index='2']")
    expect(result.locator(".chip")).to_contain_text("completed")
    expect(result).to_contain_text(re.compile(r"[1-6] \+ [1-6] = \d+"))
    expect(page.locator("pv-message[data-index='3']")).to_contain_text("Lucky.")


def test_a_plain_question_is_asked_by_the_keyboard_without_tools(
    opened: Callable[[str], Page], server: PageServer
) -> None:
    server.model.asked.clear()
    server.say(saying("Water from the sky."))
    page = opened("plainly")
    page.get_by_role("button", name="What is rain, in one sentence?").focus()
    page.keyboard.press("Enter")
    expect(page.locator("pv-message[data-index='1']")).to_contain_text("Water from the sky.")
    expect(page.get_by_role("textbox", name="Say something")).to_be_focused()
    assert [()] == [tuple(ask.tools) for ask in server.model.asked]


@pytest.mark.parametrize(("role", "count"), [("system", 3), ("user", 0)])
def test_what_a_system_was_told_is_nothing_said_yet(
    open_page: OpenPage, server: PageServer, role: Literal["system", "user"], count: int
) -> None:
    server.store.create([Message(role, "Be brief.")], id=f"begun-by-{role}")
    page = open_page(f"#/c/begun-by-{role}")
    expect(page.locator("pv-message")).to_contain_text("Be brief.")
    expect(page.locator("pv-composer .next")).to_contain_text("tokens")  # all of it is drawn
    expect(page.locator(".suggested button")).to_have_count(count)


def test_nothing_is_offered_that_can_not_work(open_page: OpenPage, tmp_path: Path) -> None:
    """Where nothing may be written, and where no model is ready."""
    with palaver.open(tmp_path / "s.db") as store:
        store.create(id="silent", title="silent")
        with running_server(store, read_only=True) as reading:
            page = open_page("#/c/silent", at=reading)
            expect(page.get_by_text("This server only shows")).to_be_visible()
            expect(page.locator(".suggested button")).to_have_count(0)
            page.close()
        with running_server(store) as writing:
            page = open_page("#/c/silent", at=writing)
            expect(page.locator(".suggested button")).to_have_count(3)
            page.route("**/api/info", without_models)
            page.reload()
            expect(page.get_by_text("Write something below to begin.")).to_be_visible()
            expect(page.locator(".suggested button")).to_have_count(0)
            page.close()


def without_models(route: Route) -> None:
    """Answer as a server does whose models all lack something."""
    answer = route.fetch()
    info = answer.json()
    for model in info["models"]:
        model["ready"] = False
    route.fulfill(response=answer, json=info)


def wait_for_call(page: Page, name: str) -> Locator:
    """Ask for something that a person has to allow, and return the card of the call."""
    page.get_by_role("textbox", name="Say something").fill("Did we speak of airships?")
    page.keyboard.press("Enter")
    card = page.locator("pv-message[data-index='1'] .tool-card")
    expect(card.locator(".chip")).to_have_text("pending")
    expect(card).to_contain_text("zeppelin")
    expect(page.locator(".conversation", has_text=name)).to_contain_text("1 call waits")
    return card


def test_a_call_that_asks_first_waits_for_a_person(
    opened: Callable[[str], Page], server: PageServer
) -> None:
    server.say(calling(("search_conversations", {"words": "zeppelin"})), saying("Well then."))
    page = opened("ask-approve")
    wait_for_call(page, "ask-approve").get_by_role("button", name="Approve", exact=True).click()
    result = page.locator("pv-message[data-index='2']")
    expect(result.locator(".chip")).to_contain_text("completed")
    expect(result).to_contain_text("nothing was found")
    expect(result).to_contain_text("Approved by ")
    expect(page.locator("pv-message[data-index='3']")).to_contain_text("Well then.")


def test_a_call_is_denied_with_a_reason_on_the_page(
    opened: Callable[[str], Page], server: PageServer
) -> None:
    server.say(calling(("search_conversations", {"words": "zeppelin"})), saying("Well then."))
    page = opened("ask-deny")
    card = wait_for_call(page, "ask-deny")
    card.get_by_role("button", name="Deny").click()
    page.keyboard.press("Escape")  # nothing is decided by closing the question
    expect(card.locator(".chip")).to_have_text("pending")
    card.get_by_role("button", name="Deny").click()
    dialog = page.get_by_role("dialog")
    assert [] == violations(page)
    dialog.get_by_label("Reason, which the model is told").fill("it is private")
    dialog.get_by_role("button", name="Deny").click()
    result = page.locator("pv-message[data-index='2']")
    expect(result.locator(".chip")).to_contain_text("error")
    expect(result).to_contain_text("not run: the call was denied: it is private")
    expect(result).to_contain_text("Denied by ")
    expect(page.locator("pv-message[data-index='3']")).to_contain_text("Well then.")


@pytest.mark.parametrize(
    ("language", "change", "field", "wrong", "approve", "decided"),
    [
        (
            "en-US",
            "Change and approve",
            "Arguments, as JSON",
            "no JSON object",
            "Approve",
            "Changed",
        ),
        ("zh-CN", "修改并批准", "参数", "不是 JSON 对象", "批准", "修改并批准"),
    ],
)
def test_a_call_is_approved_with_other_arguments_on_the_page(  # noqa: PLR0917 - texts
    open_page: OpenPage, server: PageServer,
    language: str, change: str, field: str, wrong: str, approve: str, decided: str,
) -> None:  # fmt: skip
    """What runs is what was approved."""
    server.model.lines.clear()
    server.say(calling(("search_conversations", {"words": "zeppelin"})), saying("Well then."))
    name = f"ask-change-{language}"
    server.store.create(id=name, title=name)
    server.store.create([palaver.user("a marmalade jar")], id=f"jar-{language}", title="Breakfast")
    page = open_page(f"#/c/{name}", language=language)
    page.locator("pv-composer textarea").fill("Did we speak of airships?")
    page.keyboard.press("Enter")
    card = page.locator("pv-message[data-index='1'] .tool-card")
    expect(card).to_contain_text("zeppelin")
    card.get_by_role("button", name=change).click()
    dialog = page.get_by_role("dialog")
    arguments = dialog.get_by_label(field)
    expect(arguments).to_have_value('{\n  "words": "zeppelin"\n}')
    arguments.fill("marmalade")
    dialog.get_by_role("button", name=approve).click()
    expect(dialog.get_by_role("alert")).to_contain_text(wrong)
    assert [] == violations(page)
    arguments.fill('{"words": "marmalade"}')
    dialog.get_by_role("button", name=approve).click()
    result = page.locator("pv-message[data-index='2']")
    expect(result).to_contain_text("marmalade jar")
    expect(result).to_contain_text(decided)
    expect(page.locator("pv-message[data-index='3']")).to_contain_text("Well then.")


def test_without_tools_none_are_offered(opened: Callable[[str], Page], server: PageServer) -> None:
    page = opened("no-tools")
    tools = page.get_by_role("button", name="Tools", exact=True)
    expect(tools).to_have_attribute("aria-pressed", "true")
    tools.click()
    expect(tools).to_have_attribute("aria-pressed", "false")
    server.say(saying("No."))
    server.model.asked.clear()
    page.get_by_role("textbox", name="Say something").fill("Any tools?")
    page.keyboard.press("Enter")
    expect(page.locator("pv-message[data-index='1']")).to_contain_text("No.")
    assert () == tuple(server.model.asked[0].tools)
    page.reload()
    expect(tools).to_have_attribute("aria-pressed", "false")


def test_a_step_that_failed_stays_with_its_reason_until_it_is_tried_again(
    opened: Callable[[str], Page], server: PageServer
) -> None:
    server.say([ModelError("the model has left the building")], saying("I am back."))
    page = opened("failing")
    page.get_by_role("textbox", name="Say something").fill("Hello?")
    page.keyboard.press("Enter")
    failed = page.locator("pv-failed-step")
    expect(failed).to_contain_text("The step failed")
    expect(failed).to_contain_text("the model has left the building")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert [] == violations(page, "pv-failed-step")
    page.reload()
    expect(failed).to_contain_text("the model has left the building")
    failed.get_by_role("button", name="Retry").click()
    expect(page.locator("pv-message[data-index='1']")).to_contain_text("I am back.")
    expect(failed).to_be_hidden()
    assert ["Hello?", "I am back."] == [message.text for message in server.store.get("failing")]


def test_what_could_not_be_sent_stays_in_the_box_and_is_sent_on_request(
    opened: Callable[[str], Page], server: PageServer, expected: list[str]
) -> None:
    expected += ["ERR_FAILED", "Failed to load"]
    server.say(saying("Here I am."))
    page = opened("unreached")
    page.route("**/step", lambda route: route.abort(), times=1)
    box = page.get_by_role("textbox", name="Say something")
    box.fill("Is anybody there?")
    page.keyboard.press("Enter")
    failed = page.locator("pv-failed-step")
    expect(failed).to_contain_text("It was not sent")
    expect(box).to_have_value("Is anybody there?")
    failed.get_by_role("button", name="Retry").click()
    expect(page.locator("pv-message[data-index='1']")).to_contain_text("Here I am.")
    expect(box).to_have_value("")
    expect(failed).to_be_hidden()


def test_what_is_said_amid_an_answer_is_sent_after_it(
    opened: Callable[[str], Page], server: PageServer
) -> None:
    gate = threading.Event()
    first = saying("One, ", "two.")
    server.say([first[0], gate, *first[1:]], saying("Three."))
    page = opened("queued")
    box = page.get_by_role("textbox", name="Say something")
    box.fill("Count")
    box.press("Enter")
    expect(page.locator("pv-draft")).to_contain_text("One,")
    box.fill("Go on")
    box.press("Enter")
    expect(page.locator("pv-composer")).to_contain_text("This is sent when it is there.")
    expect(box).to_have_value("Go on")
    gate.set()
    expect(page.locator("pv-message[data-index='3']")).to_contain_text("Three.")
    texts = [message.text for message in server.store.get("queued")]
    assert ["Count", "One, two.", "Go on", "Three."] == texts
    expect(box).to_have_value("")


def test_what_was_typed_outlives_a_reload(opened: Callable[[str], Page]) -> None:
    page = opened("typed-on")
    page.get_by_role("textbox", name="Say something").fill("half a thou")
    page.reload()
    expect(page.get_by_role("textbox", name="Say something")).to_have_value("half a thou")


def test_notices_cover_nothing_name_their_conversation_and_leave_with_it(
    opened: Callable[[str], Page], server: PageServer
) -> None:
    server.store.create(id="toasts-away", title="toasts-away")
    page = opened("toasts")
    server.store.get("toasts").append({"role": "user", "content": "Tea?"})
    expect(page.locator("pv-message")).to_have_count(1)
    page.keyboard.press("x")
    page.keyboard.press("d")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Enter")
    toast = page.locator(".toast").first
    expect(toast).to_contain_text("toasts")
    covered = page.evaluate(
        """() => {
          const { top } = document.querySelector(".toast").getBoundingClientRect();
          return document.querySelector("pv-app").getBoundingClientRect().bottom > top;
        }"""
    )
    assert not covered
    page.get_by_role("link", name="toasts-away").click()
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
    opened: Callable[[str], Page], server: PageServer
) -> None:
    page = opened("counted")
    said = {"messages": [{"role": "user", "content": "word " * 500}]}
    server.ask("POST", "conversations/counted/messages", said)
    expect(page.locator("pv-composer .next .long")).to_have_text(
        re.compile(r"^next request \d{3} of 8,000 tokens$")
    )


def test_what_was_typed_waits_for_the_reader_to_return(
    opened: Callable[[str], Page], server: PageServer
) -> None:
    server.store.create(id="elsewhere", title="elsewhere")
    page = opened("typed")
    page.get_by_role("textbox", name="Say something").fill("half a thou")
    page.get_by_role("link", name="elsewhere").click()
    expect(page.get_by_role("textbox", name="Say something")).to_have_value("")
    page.get_by_role("link", name="typed").first.click()
    expect(page.get_by_role("textbox", name="Say something")).to_have_value("half a thou")
