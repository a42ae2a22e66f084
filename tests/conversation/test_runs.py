"""Runs are read from what is stored: turns, requests, calls, and what became of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import palaver
from palaver.conversation import Conversation
from palaver.conversation.runs import read_runs
from palaver.errors import BadAnswer
from palaver.history import History
from palaver.messages import (
    AssistantInfo,
    CacheCounts,
    Message,
    ModelRef,
    Speaker,
    TokenCounts,
    assistant,
    new_id,
    system,
    tool_call_part,
    user,
)
from palaver.messages.parts import retry_part, step_finish_part, step_start_part, text_part
from palaver.server.demo import DemoClock, DemoUsage, MessageWriter
from tests.conversation.scripted import Scripted, calling, saying

if TYPE_CHECKING:
    from palaver.conversation.runs import RunPage

pytestmark = pytest.mark.anyio

USED = DemoUsage("openai", "gpt-6", (10, 5, 2), 0.01)
SESSION = new_id()


def turns(count: int, calls: int = 1) -> list[Message]:
    """A system message and some turns, each with calls, their results and an answer."""
    scribe, given = MessageWriter("talk", DemoClock()), {"q": "tea"}
    messages = [scribe.say("system", "Be brief.")]
    for turn in range(count):
        made = [(f"call_{turn}_{n}", "look", given) for n in range(calls)]
        messages += [
            scribe.say("user", f"question {turn}"),
            scribe.answer("Let me see.", USED, calls=made),
            *(scribe.result(name, "look", given, "tea") for name, _, _ in made),
            scribe.answer(f"answer {turn}", USED),
        ]
    return messages


def read(messages: list[Message], **options: Any) -> RunPage:  # noqa: ANN401
    return read_runs(History(messages).view, **options)


def answer(*parts: Any, **info: Any) -> Message:  # noqa: ANN401
    return assistant(list(parts), timestamp=5_000, info=AssistantInfo(**info))


# ── turns ───────────────────────────────────────────────────────────────────────────────────────


def test_turns_have_requests_with_times_tokens_cost_and_calls() -> None:
    page = read(turns(2))
    assert (0, 9, 9) == (page.start, page.stop, page.length)
    assert [(1, 5, "question 0"), (5, 9, "question 1")] == [
        (turn.start, turn.stop, turn.text) for turn in page.turns
    ]
    first, last = page.turns[0].steps
    assert ("finished", "tool-calls", "openai:gpt-6") == (first.outcome, first.finish, first.model)
    assert first.end is not None
    assert first.end > first.start
    assert (USED.tokens, USED.cost, False) == (first.tokens, first.cost, first.cost_computed)
    (call,) = first.calls
    assert ("look", "completed", 3, 2_000) == (
        call.tool,
        call.status,
        call.index,
        (call.end or 0) - (call.start or 0),
    )
    assert (4, (), ()) == (last.index, last.calls, page.turns[0].results)


@pytest.mark.parametrize("limit", [10, 13, 37, 1_000])
def test_pages_have_every_request_once_and_keep_turns_whole(limit: int) -> None:
    messages = turns(20, calls=2)
    every = [step.index for turn in read(messages, limit=1_000).turns for step in turn.steps]
    stop, found = len(messages), list[int]()
    while stop:
        page = read(messages, stop=stop, limit=limit)
        assert stop == page.stop
        assert page.stop - page.start <= limit
        assert not any(turn.partial for turn in page.turns)
        assert {"completed"} >= {
            call.status for turn in page.turns for step in turn.steps for call in step.calls
        }
        found[:0] = [step.index for turn in page.turns for step in turn.steps]
        stop = page.start
    assert every == found


def test_a_turn_that_is_longer_than_a_page_is_cut_before_an_answer() -> None:
    (_, question, *rest) = turns(1, calls=2)
    scribe, given = MessageWriter("more", DemoClock()), {"q": "tea"}
    for n in range(10):
        made = [(f"again_{n}_{m}", "look", given) for m in range(2)]
        rest += [
            scribe.answer("", USED, calls=made),
            *(scribe.result(name, "look", given, "tea") for name, _, _ in made),
        ]
    page = read([question, *rest], limit=10)
    (turn,) = page.turns
    assert turn.partial
    assert "assistant" == turn.role
    assert [("completed", "completed")] * 3 == [
        tuple(call.status for call in step.calls) for step in turn.steps
    ]
    assert () == turn.results


def test_nothing_and_a_system_message_alone_are_no_turn() -> None:
    assert () == read([]).turns
    assert () == read([system("Be brief.")]).turns
    assert [False] == [turn.partial for turn in read([assistant("Hello!")]).turns]


def test_who_answered_in_a_team() -> None:
    spoken = assistant("Done.", speaker=Speaker("a1", "Planner", "ai"), timestamp=1)
    assert ["Planner"] == [step.agent for step in read([spoken]).turns[0].steps]


# ── what was not as it should be ────────────────────────────────────────────────────────────────


async def test_an_interrupted_answer_shows_its_half_calls() -> None:
    with palaver.open(":memory:") as store:
        chat = Conversation(store)
        chat.add(user("Tea?"))
        half = [*calling(("look", '{"q": "te'), text="I look")[:2], BadAnswer("it broke off")]
        with pytest.raises(BadAnswer):
            await chat.step(Scripted(half))
        (step,) = read_runs(chat.messages, chat.ledger()).turns[0].steps
        assert ("interrupted", None, None) == (step.outcome, step.end, step.tokens)
        assert [("look", "incomplete")] == [(call.tool, call.status) for call in step.calls]


async def test_a_call_without_a_result_is_as_the_ledger_has_it() -> None:
    with palaver.open(":memory:") as store:
        chat = Conversation(store)
        chat.add(user("Tea?"))
        await chat.step(Scripted(calling(("look", {"q": "tea"}), used=(100, 5))))
        page = read_runs(chat.messages, chat.ledger())
        assert ["pending"] == [call.status for call in page.turns[0].steps[0].calls]
        page = read_runs(chat.messages)
        assert ["missing"] == [call.status for call in page.turns[0].steps[0].calls]


def test_a_failed_answer_and_a_failed_call_say_why() -> None:
    scribe, given = MessageWriter("talk", DemoClock()), {"q": "tea"}
    page = read([
        user("Tea?"),
        scribe.answer("", USED, calls=[("c", "look", given)]),
        scribe.result("c", "look", given, "no tea", failed=True),
        scribe.result("lost", "look", given, "tea"),
        answer(finish="error", error={"name": "Unavailable", "message": "oops"}),
        answer(finish="error", error={"data": {"message": "deep"}}),
        answer(finish="stop", error={"name": "Odd"}),
        answer(finish="error"),
    ])  # fmt: skip
    (turn,) = page.turns
    assert [("error", "no tea")] == [(call.status, call.error) for call in turn.steps[0].calls]
    assert [("failed", "oops"), ("failed", "deep"), ("failed", "Odd"), ("failed", None)] == [
        (step.outcome, step.error) for step in turn.steps[1:]
    ]
    assert [("lost", "orphan", 3)] == [(c.call_id, c.status, c.index) for c in turn.results]


# ── answers of several requests, and of none ────────────────────────────────────────────────────


def test_an_imported_answer_of_several_requests_is_several_steps() -> None:
    owner = new_id()
    made = tool_call_part(SESSION, owner, "look", {"q": "tea"}, call_id="c")
    some, more = (TokenCounts(n, 1, 0, CacheCounts(n, 0)) for n in (10, 20))
    page = read([
        user("Tea?"),
        answer(
            step_start_part(SESSION, owner),
            retry_part(SESSION, owner, 1, {"name": "APIError"}, at=4_000),
            made,
            step_finish_part(SESSION, owner, "tool-calls", 0.5, some),
            step_start_part(SESSION, owner),
            text_part(SESSION, owner, "Yes."),
            step_finish_part(SESSION, owner, "stop", None, more),
            step_start_part(SESSION, owner),
            model=ModelRef("anthropic", "claude"),
            completed=9_000,
            finish="stop",
        ),
        MessageWriter("x", DemoClock()).result("c", "look", {"q": "tea"}, "tea"),
    ])  # fmt: skip
    first, last = page.turns[0].steps
    assert [("tool-calls", some, 0.5), ("stop", more, None)] == [
        (step.finish, step.tokens, step.cost) for step in (first, last)
    ]
    assert [(1, 4_000, "APIError")] == [(r.attempt, r.at, r.error) for r in first.retries]
    assert ("completed", None) == (first.calls[0].status, first.end)
    assert first.calls[0].end == last.start  # the second request came after the result
    assert (None, ()) == (last.end, last.calls)  # of which the import knows another time


def test_what_an_answer_without_steps_says_of_itself_counts() -> None:
    tokens = TokenCounts(1, 2, 0, CacheCounts())
    (step,) = read([answer(tokens=tokens, cost=0.5, completed=6_000)]).turns[0].steps
    assert (tokens, 0.5, 6_000) == (step.tokens, step.cost, step.end)
    (step,) = read([answer(completed=4_000)]).turns[0].steps
    assert (None, None, None) == (step.tokens, step.cost, step.end)  # over before it began


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        ({"expected": 900, "lost": 500, "cause": "edit"}, (900, 500, "edit")),
        ({"expected": "900", "lost": None, "cause": 3}, (None, 0, None)),
        ({"expected": True, "lost": False}, (None, 0, None)),
        ("nonsense", (None, 0, None)),
    ],
)
def test_what_was_expected_of_the_cache_is_shown_where_it_was_stored(
    noted: object, expected: tuple[Any, ...]
) -> None:
    info = AssistantInfo(tokens=TokenCounts(100, 2, 0, CacheCounts(400, 30)))
    message = assistant("Yes.", info=info, metadata={"promptCache": noted})
    cache = read([message]).turns[0].steps[0].cache
    assert cache is not None
    assert (400, 30) == (cache.read, cache.written)
    assert expected == (cache.expected, cache.lost, cache.cause)
    assert type(cache.lost) is int


@pytest.mark.parametrize("noted", [None, True, 5, 1.5, "call", {}, [5, "call"]])
def test_calls_that_are_noted_in_no_list_are_none(noted: object) -> None:
    message = assistant("Yes.", metadata={"incompleteCalls": noted})
    assert () == read([message]).turns[0].steps[0].calls


async def test_a_step_of_palavers_own_says_how_long_it_took() -> None:
    with palaver.open(":memory:") as store:
        chat = Conversation(store)
        chat.add(user("Tea?"))
        await chat.step(Scripted(saying("Yes.", used=(100, 5))))
        (step,) = read_runs(chat.messages).turns[0].steps
        assert step.end is not None
        assert step.end >= step.start
        assert ("assistant", "openai:scripted", 100) == (
            step.agent,
            step.model,
            step.tokens and step.tokens.prompt,
        )
