"""Questions: an answer in one call, as a stream, as a value; within limits, and with approvals."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import palaver
from palaver import Conversation, tool
from palaver.conversation import (
    Limits,
    ModelPrice,
    Prices,
    RunResult,
    Step,
    ToolOutcome,
    run_until_answer,
)
from palaver.errors import (
    BadAnswer,
    BudgetExceeded,
    ContentFiltered,
    LeaseTaken,
    LimitExceeded,
    TooManySteps,
    ValidationError,
)
from palaver.tools.approval import Decision
from palaver.wire.reply import TextDelta
from tests.conversation.scripted import Scripted, calling, saying

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from palaver import Store
    from palaver.messages import ToolCallPart

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"Snow in {city}."


@dataclass
class Forecast:
    """What is to be worn."""

    coat: bool
    degrees: int


def paying(log: list[int], **options: Any) -> Any:  # noqa: ANN401 - a tool
    @tool(**options)
    def pay(amount: int) -> str:
        """Pay."""
        log.append(amount)
        return f"{amount} paid"

    return pay


async def test_one_call_asks_runs_tools_and_answers(store: Store) -> None:
    model = Scripted(calling(("weather", {"city": "Oslo"}), used=(20, 5)), saying("Yes: snow."))
    talk = Conversation(store, model=model, tools=[weather])
    answer = await talk.ask("Do I need a coat in Oslo?")
    assert "Yes: snow." == str(answer) == answer.text
    assert (2, 38, ()) == (answer.steps, answer.tokens, answer.waiting)
    assert ["user", "assistant", "tool", "assistant"] == [one.role for one in talk.messages]


async def test_without_a_message_it_goes_on(store: Store) -> None:
    talk = Conversation(store, model=Scripted(saying("Four.")))
    talk.add({"role": "user", "content": "Two and two?"})
    assert "Four." == (await talk.ask()).text


async def test_where_nothing_was_said_a_message_is_needed(store: Store) -> None:
    model = Scripted(saying("Four."))
    talk = Conversation(store, model=model)
    with pytest.raises(ValidationError, match=r"^\$\.message: is missing, and .* no messages"):
        await talk.ask()
    with pytest.raises(ValidationError, match=r"^\$\.message: is missing"):
        [event async for event in talk.stream()]
    assert ([], 0) == (model.asked, talk.history.version)


def test_a_script_needs_no_event_loop(tmp_path: Path) -> None:
    talk = Conversation(tmp_path / "chat.db", model=Scripted(saying("Hi.")))
    answer: RunResult = talk.ask_sync("Hello")
    assert "Hi." == answer.text
    talk.store.close()


async def test_a_path_is_opened_and_closed_with_the_conversation(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with Conversation(str(path), model=Scripted(saying("Hi."))) as talk:
        await talk.ask("Hello")
    with palaver.open(path) as store:
        assert ["Hello", "Hi."] == [one.text for one in store.get(talk.id)]
    with pytest.raises(Exception, match="closed"):
        talk.history.refresh()


async def test_a_model_is_named_and_made_once(store: Store) -> None:
    talk = Conversation(store, model="openai:gpt-5")
    assert talk.model is not None
    assert "gpt-5" == talk.model.ref.model_id
    assert talk.model is talk.find_model("openai:gpt-5")
    with pytest.raises(ValidationError, match="names no model"):
        Conversation(store, model="gpt-5")
    await talk.close()


# ── streams ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_stream_tells_everything_as_it_happens(store: Store) -> None:
    model = Scripted(calling(("weather", {"city": "Rome"})), saying("Sun", "ny."))
    talk = Conversation(store, model=model, tools=[weather])
    events = [event async for event in talk.stream("And in Rome?")]
    assert ["Sun", "ny."] == [event.text for event in events if isinstance(event, TextDelta)]
    (outcome,) = [event for event in events if isinstance(event, ToolOutcome)]
    assert "Snow in Rome." == outcome.text
    assert 2 == len([event for event in events if isinstance(event, Step)])
    assert isinstance(events[-1], RunResult)
    assert "Sunny." == events[-1].text


async def test_an_error_is_raised_where_the_events_are_read(store: Store) -> None:
    talk = Conversation(store, model=Scripted([OverflowError("odd")]))
    with pytest.raises(OverflowError, match="odd"):
        async for _ in talk.stream("Hello"):
            pass


async def test_who_leaves_a_stream_cancels_the_run_and_what_had_arrived_is_stored(
    store: Store,
) -> None:
    talk = Conversation(store, model=Scripted([*saying("Half")[:1], None]))
    async with talk.stream("Hello") as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break
    last = talk.history.refresh()[-1]
    assert "Half" == last.text
    assert "Fine." == (await talk.ask("Again?", model=Scripted(saying("Fine.")))).text


async def test_a_stream_that_is_forgotten_is_cancelled(store: Store) -> None:
    talk = Conversation(store, model=Scripted([*saying("Half")[:1], None]))
    async for _ in talk.stream("Hello"):
        break
    gc.collect()
    with anyio.fail_after(60):
        while "Half" != talk.history.refresh()[-1].text:  # noqa: ASYNC110 - the task is nobody's
            await anyio.sleep(0.01)


async def test_a_stream_that_is_never_read_asks_nobody(store: Store) -> None:
    model = Scripted(saying("Never."))
    stream = Conversation(store, model=model).stream("Hello")
    await stream.aclose()
    assert [] == model.asked


# ── limits ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0}, {"steps": 1.5}, {"steps": True}, {"steps": "3"}, {"tool_calls": -1},
        {"total_tokens": 0}, {"cost": -1}, {"cost": float("nan")}, {"cost": float("inf")},
        {"cost": "5"}, {"seconds": 0}, {"seconds": False},
    ],
)  # fmt: skip
def test_nonsense_is_no_limit(wrong: Mapping[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValidationError, match=rf"^\$\.limits\.{name}: must be a .*number above 0"):
        Limits(**wrong)


async def test_steps_and_calls_are_limited(store: Store) -> None:
    model = Scripted(*[calling(("weather", {"city": "Oslo"}))] * 3)
    talk = Conversation(store, model=model, tools=[weather])
    with pytest.raises(TooManySteps):
        await talk.ask("Go", limits=Limits(steps=1))
    with pytest.raises(LimitExceeded, match="2 tool calls, and 1 are allowed") as caught:
        await talk.ask("Go", limits=Limits(tool_calls=1))
    assert "tool_calls" == caught.value.limit == caught.value.to_dict()["limit"]


async def test_tokens_and_cost_are_limited_by_what_the_run_itself_used(store: Store) -> None:
    prices = Prices({"scripted": ModelPrice(1_000.0, 1_000.0)})
    answers = [saying("x", used=(500, 500)), calling(("weather", {"city": "O"}), used=(50, 50))]
    talk = Conversation(store, model=Scripted(*answers), tools=[weather], prices=prices)
    await talk.ask("One", limits=Limits(total_tokens=100, cost=0.1))  # a single step is not cut
    with pytest.raises(LimitExceeded, match="100 of 90 tokens") as caught:
        await talk.ask("Two", limits=Limits(total_tokens=90))
    assert "total_tokens" == caught.value.limit
    talk.model = Scripted(calling(("weather", {"city": "O"}), used=(50, 50)))
    with pytest.raises(BudgetExceeded, match=r"0\.1000 of 0\.0500"):
        await talk.ask("Three", limits=Limits(cost=0.05))


async def test_a_cost_that_nobody_knows_is_refused_before_the_first_request(store: Store) -> None:
    model = Scripted(saying("Never."))
    talk = Conversation(store, model=model)
    with pytest.raises(
        ValidationError, match=r"no price is known for openai:scripted; pass prices="
    ):
        await talk.ask("Go", limits=Limits(cost=1.0))
    assert [] == model.asked


async def test_a_run_that_takes_too_long_is_ended_with_what_had_arrived(store: Store) -> None:
    talk = Conversation(store, model=Scripted([*saying("Half")[:1], None]))
    with pytest.raises(LimitExceeded, match=r"no answer after 0\.5 seconds") as caught:
        await talk.ask("Go", limits=Limits(seconds=0.5))
    assert "seconds" == caught.value.limit
    assert "Half" == talk.history.refresh()[-1].text


# ── approvals ───────────────────────────────────────────────────────────────────────────────────


async def test_a_call_that_nobody_approves_waits_and_runs_once_approved(store: Store) -> None:
    paid: list[int] = []
    model = Scripted(calling(("pay", {"amount": 5})), saying("Paid."))
    talk = Conversation(store, model=model, tools=[paying(paid, needs_approval=True)])
    answer = await talk.ask("Pay 5")
    assert (["pay"], []) == ([call.tool for call in answer.waiting], paid)
    again = Conversation(store, talk.id, model=model, tools=[paying(paid, needs_approval=True)])
    assert "Paid." == (await again.ask(approve=lambda _: True)).text
    assert [5] == paid


@pytest.mark.parametrize(
    ("verdict", "paid", "told"),
    [
        (True, [5], "5 paid"),
        (False, [], "not run: the call was denied"),
        ("too dear", [], "not run: the call was denied: too dear"),
        (Decision("edit", arguments={"amount": 3}, by="Ann"), [3], "other arguments"),
    ],
)
async def test_who_is_asked_decides(
    store: Store, verdict: object, paid: list[int], told: str
) -> None:
    log: list[int] = []
    model = Scripted(calling(("pay", {"amount": 5})), saying("So be it."))
    talk = Conversation(store, model=model, tools=[paying(log, needs_approval=True)])
    asked: list[ToolCallPart] = []

    async def approve(call: ToolCallPart) -> object:
        asked.append(call)
        await asyncio.sleep(0)
        return verdict

    assert "So be it." == (await talk.ask("Pay", approve=approve)).text
    assert (1, paid) == (len(asked), log)
    (part,) = talk.messages[2].parts
    assert told in getattr(part, "state", None).__repr__()
    assert {} == store.records(talk.id, "approval")


async def test_only_calls_that_need_it_are_asked_about(store: Store) -> None:
    log, asked = list[int](), list[Any]()
    dear = paying(log, needs_approval=lambda arguments: arguments["amount"] > 10)
    both = calling(("pay", {"amount": 5}), ("pay", {"amount": 50}), ("pay", {"amount": "?"}))
    talk = Conversation(store, model=Scripted(both, saying("Done.")), tools=[dear])

    def approve(call: ToolCallPart) -> bool:
        asked.append(call.input["amount"])
        return False

    await talk.ask("Pay", approve=approve)
    assert ([50, "?"], [5]) == (asked, log)  # where it can't be told, it is asked


async def test_a_decision_outlives_the_next_question_that_fails(store: Store) -> None:
    log, asked = list[int](), list[Any]()
    both = calling(("pay", {"amount": 5}), ("pay", {"amount": 6}))
    talk = Conversation(
        store, model=Scripted(both, saying("Done.")), tools=[paying(log, needs_approval=True)]
    )

    def approve(call: ToolCallPart) -> bool:
        asked.append(call.input["amount"])
        if asked == [5, 6]:
            raise EOFError
        return True

    with pytest.raises(EOFError):
        await talk.ask("Pay", approve=approve)
    assert [] == log
    await talk.ask(approve=approve)
    assert ([5, 6, 6], [5, 6]) == (asked, sorted(log))


async def test_around_sees_what_was_decided(store: Store) -> None:
    log, seen = list[int](), list[Any]()

    async def around(call: ToolCallPart, _: object, run: Any) -> Any:  # noqa: ANN401
        seen.append(call.input["amount"])
        return await run(call)

    model = Scripted(calling(("pay", {"amount": 5})), saying("Done."))
    talk = Conversation(store, model=model, tools=[paying(log, needs_approval=True)])
    await talk.ask(
        "Pay", around=around, approve=lambda _: Decision("edit", arguments={"amount": 4})
    )
    assert ([4], [4]) == (seen, log)


# ── keys ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_question_is_asked_once_for_a_key(store: Store) -> None:
    paid: list[int] = []
    model = Scripted(calling(("pay", {"amount": 5})), saying("Paid."))
    talk = Conversation(store, model=model, tools=[paying(paid)])
    first = await talk.ask("Pay 5", key="q1")
    second = await Conversation(store, talk.id, model=model, tools=[paying(paid)]).ask(
        "Pay 5", key="q1"
    )
    assert (first.message, [5], 2) == (second.message, paid, len(model.asked))


async def test_a_run_that_was_cut_off_goes_on_where_it_was(store: Store) -> None:
    paid: list[int] = []
    model = Scripted(calling(("pay", {"amount": 5})), [OverflowError()], saying("Paid."))
    talk = Conversation(store, model=model, tools=[paying(paid)])
    with pytest.raises(OverflowError):
        await talk.ask("Pay 5", key="q1")
    assert "Paid." == (await talk.ask("Pay 5", key="q1")).text
    assert [5] == paid
    assert 1 == [one.role for one in talk.messages].count("user")


# ── values ──────────────────────────────────────────────────────────────────────────────────────


async def test_an_answer_is_a_value_of_the_wanted_type(store: Store) -> None:
    model = Scripted(saying('{"coat": true, "degrees": -3}'), saying("```json\n[1, 2]\n```"))
    talk = Conversation(store, model=model)
    assert Forecast(coat=True, degrees=-3) == await talk.ask("Oslo?", output=Forecast)
    schema = model.asked[0].options["schema"]
    assert ("object", {"coat", "degrees"}) == (schema["type"], set(schema["properties"]))
    assert [1, 2] == await talk.ask("Two numbers", output=list[int])


async def test_an_answer_that_does_not_fit_is_asked_for_again(store: Store) -> None:
    model = Scripted(saying("It is cold."), saying('{"coat": true, "degrees": -3}'))
    talk = Conversation(store, model=model)
    assert -3 == (await talk.ask("Oslo?", output=Forecast)).degrees
    assert "That answer does not fit" in talk.messages[2].text
    never = Conversation(store, model=Scripted(*[saying("No.")] * 3))
    with pytest.raises(BadAnswer, match=r"no answer fits the wanted type.*the last was: No\."):
        await never.ask("Oslo?", output=Forecast)


async def test_a_refusal_is_no_value(store: Store) -> None:
    talk = Conversation(store, model=Scripted(saying("I can't.", finish="content_filter")))
    with pytest.raises(ContentFiltered, match="refused to answer: I can't"):
        await talk.ask("Oslo?", output=Forecast)


async def test_a_type_that_json_can_not_have_is_refused(store: Store) -> None:
    with pytest.raises(ValidationError, match="can't be the type of an answer"):
        await Conversation(store, model=Scripted()).ask("?", output=object)


# ── one at a time ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["the same object", "another object"])
async def test_two_questions_at_once_are_refused(store: Store, how: str) -> None:
    talk = Conversation(store, model=Scripted([*saying("Slow")[:1], None], saying("Later.")))
    other = talk if how == "the same object" else Conversation(store, talk.id, model=talk.model)
    async with talk.stream("One") as events:
        await anext(events)
        with pytest.raises(LeaseTaken):
            await other.ask("Two")
    assert "Later." == (await other.ask("Three")).text


async def test_a_run_holds_the_conversation_between_its_steps(store: Store) -> None:
    talk = Conversation(store, tools=[weather])
    taken: list[bool] = []

    def look(_: Step) -> None:
        with pytest.raises(LeaseTaken):
            store.lease(talk.id, "another worker", seconds=1)
        taken.append(True)

    model = Scripted(calling(("weather", {"city": "Oslo"})), saying("Cold."))
    await run_until_answer(talk, model, on_step=look)
    assert [True, True] == taken
    store.release(store.lease(talk.id, "another worker", seconds=1))
