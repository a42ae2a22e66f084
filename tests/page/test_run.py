"""What ran and what it took: the waterfall, the totals, and what was spent over time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import pytest
from playwright.sync_api import expect

from palaver.errors import BadAnswer
from palaver.messages import Message, assistant, parse_message
from palaver.messages.ids import now_ms
from palaver.server.demo import DemoClock, DemoUsage, MessageWriter
from tests.conversation.scripted import saying
from tests.page.accessibility import unreadable, violations
from tests.page.conftest import NARROW, WIDE

if TYPE_CHECKING:
    from palaver.stores import Store
    from tests.page.conftest import OpenPage
    from tests.page.server import PageServer


class _Now(DemoClock):
    """A clock that began a little while ago."""

    def __init__(self) -> None:
        super().__init__()
        self.now = now_ms() - 600_000


def ran(store: Store, name: str, turns: int = 1) -> str:
    """Turns with two calls each, one of which fails, and a last answer that was repeated."""
    scribe, given = MessageWriter(name, _Now()), {"q": "tea"}
    used = DemoUsage("anthropic", "claude-sonnet-5-5", (1_200, 30, 0), 0.0125)
    messages: list[Message] = [scribe.say("system", "Be brief.")]
    for turn in range(turns):
        one, two = f"one-{turn}", f"two-{turn}"
        messages += [
            scribe.say("user", f"Question {turn}: which tea?"),
            scribe.answer("", used, calls=[(one, "search", given), (two, "prices", given)]),
            scribe.result(one, "search", given, "a smoky one"),
            scribe.result(two, "prices", given, "no prices today", failed=True),
            scribe.answer("A smoky one.", used),
        ]
    messages.append(_troubled())
    return store.create(messages, id=name, title=f"Tea of {name}").id


def _troubled() -> Message:
    """An answer after a retry, of which the cache had less than was expected."""
    ids = {"sessionID": "3f0d7f0e-5d53-4c1c-9a51-4b3d1c2b7a10", "messageID": assistant("x").id}
    tokens = {"input": 100, "output": 5, "reasoning": 0, "cache": {"read": 900, "write": 40}}
    at, error = now_ms(), {"name": "RateLimited", "message": "slow down"}
    parts: list[dict[str, Any]] = [
        {"type": "retry", "id": "one", "attempt": 1, "error": error, "time": {"created": at}},
        {"type": "text", "id": "two", "text": "Half an"},
        {"type": "step-finish", "id": "three", "reason": "interrupted", "tokens": tokens},
    ]
    noted = {"expected": 5_000, "read": 900, "lost": 4_100, "cause": "tools-changed"}
    return parse_message({
        "role": "assistant",
        "timestamp": at,
        "content": [{**part, **ids} for part in parts],
        "info": {"role": "assistant", "finish": "interrupted"},
        "metadata": {"promptCache": noted},
    })  # fmt: skip


def test_requests_and_calls_are_a_waterfall_and_agree_with_the_rest(
    open_page: OpenPage, server: PageServer
) -> None:
    ran(server.store, "run-one")
    page = open_page("#/c/run-one/run")
    view = page.locator("pv-run")
    turn = view.locator(".run-turn")
    expect(turn).to_have_count(1)
    expect(turn.locator(".run-row")).to_have_count(5)
    expect(turn).to_contain_text("Question 0: which tea?")
    expect(turn).to_contain_text("3 requests · 2 tool calls")
    asked, searched, priced, _, cut = turn.locator(".run-row").all()
    expect(asked).to_contain_text("claude-sonnet-5-5")
    footer = page.locator("pv-message[data-index='2'] .step-cost")
    expect(footer).to_have_text("1,200 tokens in, 30 out · $0.0125 · tool-calls")
    expect(asked.locator(".run-facts").first).to_have_text(footer.inner_text())
    expect(searched.locator(".run-took")).to_have_text("2 s")
    expect(priced).to_contain_text("failed")
    expect(priced).to_contain_text("no prices today")
    expect(cut).to_contain_text("interrupted")
    expect(cut).to_contain_text("1 retry")
    expect(cut).to_contain_text("Attempt 1 failed: slow down")
    expect(cut).to_contain_text(
        "900 of 5,000 expected tokens were read, 4,100 lost: the tools changed."
    )
    expect(cut.locator("rect.run-span.open")).to_have_count(1)
    # bars of a turn share one scale, and are in order
    lefts = [bar.bounding_box() for bar in turn.locator("rect.run-span").all()]
    edges = [box["x"] for box in lefts if box is not None]
    assert sorted(edges) == edges
    # the totals are those of the tokens
    totals = view.locator(".run-totals")
    for text in ("$0.0250", "Requests3", "3,440", "Read from cache900"):
        expect(totals).to_contain_text(text)
    expect(view).to_contain_text("Without 1 request whose cost is not known.")
    page.get_by_role("tab", name="Tokens").click()
    expect(page.locator("pv-tokens")).to_contain_text("Cost so far: $0.0250.")
    page.keyboard.press("g")
    page.keyboard.press("u")
    row = view.get_by_role("button", name="prices")
    row.focus()
    page.keyboard.press("Enter")
    expect(page.locator("pv-message[data-index='4']")).to_be_in_viewport()


def test_the_store_is_charted_beside_the_conversation_and_it_follows(
    open_page: OpenPage, server: PageServer
) -> None:
    ran(server.store, "run-two")
    server.say(saying("Yes.", used=(140, 3)), [*saying("Half")[:1], BadAnswer("it broke off")])
    page = open_page("#/c/run-two/run")
    view = page.locator("pv-run")
    chart = view.get_by_role("img")
    expect(chart).to_have_attribute(
        "aria-label", re.compile(r"^This conversation, Cost: \$0\.0250, from ")
    )
    expect(view.locator(".run-line")).to_have_count(1)
    view.get_by_label("What is shown").select_option("calls")
    expect(chart).to_have_attribute("aria-label", re.compile("^This conversation, Requests: 3, "))
    view.get_by_label("Of what").select_option("7")
    expect(chart).to_have_attribute("aria-label", re.compile("^All conversations, Requests: "))
    assert view.locator("rect.run-column").count() >= 1
    view.get_by_text("As a table").click()
    spent = server.ask("GET", "costs?days=7")
    requests = f"{spent['total']['calls']:,}"
    expect(view.locator(".run-wide tbody")).to_contain_text(requests)
    expect(view).to_contain_text(f"Every answer of {spent['conversations']:,} conversation")
    expect(view.locator(".run-costliest")).to_contain_text("Tea of run-two")
    # a step that is taken meanwhile is shown, and so is one that fails
    server.ask("POST", "conversations/run-two/step", {"text": "More tea?"})
    expect(view.locator(".run-turn").first).to_contain_text("140 tokens in, 3 out")
    server.ask("POST", "conversations/run-two/step", {"text": "And more?"})
    expect(view.locator(".run-turn").first).to_contain_text("interrupted")
    expect(view.locator(".run-turn")).to_have_count(3)
    expect(view.locator(".run-wide")).to_be_visible()  # what was unfolded stays so


def test_a_long_conversation_is_shown_a_page_at_a_time(
    open_page: OpenPage, server: PageServer
) -> None:
    ran(server.store, "run-long", turns=300)
    page = open_page("#/c/run-long/run")
    view = page.locator("pv-run")
    expect(view.locator(".run-turn").first).to_contain_text("Question 299")
    assert view.locator(".run-row").count() <= 200
    expect(view.get_by_role("button", name="Newer")).to_be_disabled()
    seen = view.locator(".run-turn").count()
    while view.get_by_role("button", name="Older").is_enabled():
        first = view.locator(".run-turn").first.inner_text()
        view.get_by_role("button", name="Older").click()
        expect(view.locator(".run-turn").first).not_to_have_text(first, use_inner_text=True)
        seen += view.locator(".run-turn").count()
    assert 300 == seen
    expect(view.locator(".run-turn").last).to_contain_text("Question 0")
    view.get_by_role("button", name="Newer").click()
    expect(view.locator(".run-turn").last).not_to_contain_text("Question 0:")


@pytest.mark.parametrize(
    ("size", "scheme", "language"), [(WIDE, "dark", "en-US"), (NARROW, "light", "zh-CN")]
)
def test_everyone_can_use_it(
    open_page: OpenPage,
    server: PageServer,
    size: tuple[int, int],
    scheme: Literal["light", "dark"],
    language: str,
) -> None:
    name = f"run-{scheme}"
    ran(server.store, name)
    server.store.create(id=f"{name}-empty", title="Empty")
    page = open_page(f"#/c/{name}/run", size=size, scheme=scheme, language=language)
    view = page.locator("pv-run")
    expect(view.locator(".run-row")).to_have_count(5)
    view.locator("summary").click()
    assert violations(page, "pv-run") == []
    assert unreadable(page, "pv-run") == {}
    assert "run." not in view.inner_text()  # every text has its translation
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate(f"location.hash = '#/c/{name}-empty/run'")
    expect(view.locator(".v-empty")).to_be_visible()
