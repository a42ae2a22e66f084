"""Wrong uses of `ask` and `stream`, and runs that are left, limited or repeated at a bad moment."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Any, Optional

import anyio
import pytest

from palaver import Conversation, tool
from palaver.conversation import Limits, ModelPrice, Prices, Step
from palaver.errors import BadAnswer, BudgetExceeded, LimitExceeded, TooManySteps, ValidationError
from palaver.messages import running
from palaver.wire.reply import TextDelta
from tests.conversation.scripted import Scripted, calling, saying

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from palaver import Store

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@tool
def look(n: int = 0) -> str:
    """Look around."""
    return f"seen {n}"


@tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"{amount} paid"


class Echo:
    """A model without options."""

    def generate(self, messages: list[Any], tools: list[Any]) -> str:
        del tools
        return str(messages[-1]["content"])


# ── wrong arguments ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"limit": 1},
            r"got an unexpected keyword argument 'limit'; did you mean 'limits'\? It takes approve",
        ),
        ({"on_delta": print}, r"got an unexpected keyword argument 'on_delta'; "),
        ({"around": 5}, r"^\$\.around: must be an async function of a call, its context, .* not 5"),
        ({"key": "k" * 1_024}, r"^\$\.key: is longer than 1000 characters"),
        ({"key": 5}, r"^\$\.key: must be text, not a whole number"),
        ({"options": None}, r"^\$\.options: must be an object, such as \{'temperature': 0\}"),
        ({"options": {"temprature": 1}}, r"^\$\.options\.temprature: unknown option; known are"),
        ({"options": {"top_p": 1}}, r"takes no options, and top_p is set; give it a parameter"),
        ({"limits": Limits(cost=1)}, r"^\$\.limits\.cost: .* no price is known"),
    ],
)
@pytest.mark.parametrize("message", ["Tea?", None])
async def test_a_wrong_setting_is_refused_before_anything_is_stored(
    store: Store, settings: Mapping[str, Any], told: str, message: str | None
) -> None:
    talk = Conversation(store, model=Echo())
    with pytest.raises((ValidationError, TypeError), match=told):
        await talk.ask(message, **settings)
    with pytest.raises((ValidationError, TypeError), match=told):
        talk.stream(message, **settings)
    assert 0 == len(talk)


async def test_a_question_to_no_model_is_not_stored(store: Store) -> None:
    talk = Conversation(store)
    with pytest.raises(ValidationError, match=r"^\$\.model: no model: give one"):
        await talk.ask("Tea?")
    assert 0 == len(talk)


async def test_a_stream_has_no_value(store: Store) -> None:
    settings: Any = {"output": int}
    with pytest.raises(TypeError, match=r"^stream\(\) got an unexpected .* 'output'"):
        Conversation(store, model=Echo()).stream("Tea?", **settings)


async def test_ask_sync_in_an_event_loop_names_its_cure(store: Store) -> None:
    with pytest.raises(RuntimeError, match=r"write `await talk\.ask"):
        Conversation(store, model=Echo()).ask_sync("Tea?")


async def test_a_key_belongs_to_one_message(store: Store) -> None:
    model = Scripted(saying("Yes."), saying("Never."))
    talk = Conversation(store, model=model)
    await talk.ask("Tea?", key="k")
    with pytest.raises(ValidationError, match=r"^\$\.key: is the key of another message, 'Tea\?'"):
        await talk.ask("Coffee?", key="k")
    assert "Yes." == (await talk.ask("Tea?", key="k")).text
    assert (2, 1) == (len(talk), len(model.asked))


async def _later(_: object) -> bool:
    return False


@pytest.mark.parametrize("wrong", ["yes", 1, None, _later])
def test_whether_a_tool_needs_an_approval_is_told_at_once(wrong: Any) -> None:  # noqa: ANN401 - any wrong value
    with pytest.raises(ValidationError, match=r"^\$\.needs_approval: must be True, False or a"):
        tool(needs_approval=wrong)(weather)


def weather(city: str) -> str:
    """Tell the weather of a city."""
    return city


# ── approvals ───────────────────────────────────────────────────────────────────────────────────


async def test_while_a_call_waits_the_model_is_not_asked_to_go_on_without_it(store: Store) -> None:
    model = Scripted(calling(("pay", {"amount": 5})), saying("Paid."))
    talk = Conversation(store, model=model, tools=[pay])
    first = await talk.ask("Pay 5")
    again = await talk.ask()
    assert (first.message, first.waiting) == (again.message, again.waiting)
    steps = [event async for event in talk.stream() if isinstance(event, Step)]
    assert ([True], 1) == ([step.again for step in steps], len(model.asked))
    assert "Paid." == (await talk.ask(approve=lambda _: True)).text


async def test_yes_is_a_yes(store: Store) -> None:
    model = Scripted(calling(("pay", {"amount": 5})), saying("Done."))
    talk = Conversation(store, model=model, tools=[pay])
    await talk.ask("Pay 5", approve=lambda _: "yes")
    assert "5 paid" in repr(talk.by_role("tool"))


@pytest.mark.parametrize("later", [False, True])
async def test_a_plain_function_may_wait_for_a_person(store: Store, *, later: bool) -> None:
    talk = Conversation(store, model=Scripted(calling(("pay", {"amount": 5})), saying("Done.")))
    threads: list[int] = []

    async def yes() -> bool:
        return True

    def approve(_: object) -> object:
        threads.append(threading.get_ident())
        return yes() if later else True

    assert "Done." == (await talk.ask("Pay 5", tools=[pay], approve=approve)).text
    assert threads != [threading.get_ident()]  # the loop goes on, and renews the lease


async def test_what_approve_returns_is_named_if_it_decides_nothing(store: Store) -> None:
    model = Scripted(calling(("pay", {"amount": 5})), saying("Done."))
    talk = Conversation(store, model=model, tools=[pay])
    with pytest.raises(ValidationError, match=r"^\$\.approve: returned None for a call of pay"):
        await talk.ask("Pay 5", approve=lambda _: None)
    assert "Done." == (await talk.ask(approve=lambda _: True)).text


# ── crashes ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_call_that_a_crash_cut_off_is_settled_before_the_next_question(
    store: Store,
) -> None:
    model = Scripted(calling(("look", {"n": 1})), saying("It may have happened."))
    talk = Conversation(store, model=model, tools=[look])
    talk.add({"role": "user", "content": "Look"})
    await talk.step()
    (entry,) = talk.ledger().values()
    left = entry.with_state(running({"n": 1}))  # as a killed process leaves it
    store.put_records(talk.id, [left.record()])
    assert "It may have happened." == (await talk.ask("Well?")).text
    assert ["user", "assistant", "tool", "user", "assistant"] == [m.role for m in talk.messages]
    assert {} == talk.ledger()


# ── limits ──────────────────────────────────────────────────────────────────────────────────────


async def test_calls_over_the_limit_are_left_to_the_next_run(store: Store) -> None:
    model = Scripted(calling(*[("look", {"n": n}) for n in range(3)]), saying("All seen."))
    talk = Conversation(store, model=model, tools=[look])
    with pytest.raises(LimitExceeded, match="3 tool calls, and 2 are allowed"):
        await talk.ask("Look", limits=Limits(tool_calls=2))
    assert (2, 1) == (len(talk.by_role("tool")), len(talk.waiting()))
    assert "All seen." == (await talk.ask(limits=Limits(tool_calls=2))).text
    assert 3 == len(talk.by_role("tool"))


async def test_repairs_of_an_answer_are_within_the_limits(store: Store) -> None:
    model = Scripted(saying("no"), saying("no"), saying("[1]"))
    talk = Conversation(store, model=model)
    with pytest.raises(TooManySteps):
        await talk.ask("Count", output=list[int], limits=Limits(steps=2))
    assert 2 == len(model.asked)
    assert "assistant" == talk.messages[-1].role  # no question is left that nobody answers


async def test_tokens_that_nobody_reports_are_counted(store: Store) -> None:
    model = Scripted(*[calling(("look", {"n": n})) for n in range(5)], saying("Done."))
    talk = Conversation(store, model=model, tools=[look])
    with pytest.raises(LimitExceeded, match=r"of 10 tokens are used"):
        await talk.ask("Look around as long as you like", limits=Limits(total_tokens=10))
    assert 1 == len(model.asked)


async def test_a_cost_that_nobody_reports_is_computed(store: Store) -> None:
    prices = Prices({"scripted": ModelPrice(1_000_000.0, 1_000_000.0)})
    model = Scripted(*[calling(("look", {"n": n})) for n in range(5)], saying("Done."))
    talk = Conversation(store, model=model, tools=[look], prices=prices)
    with pytest.raises(BudgetExceeded):
        await talk.ask("Look around", limits=Limits(cost=1))
    assert 1 == len(model.asked)


# ── streams ─────────────────────────────────────────────────────────────────────────────────────


async def test_who_breaks_out_of_a_stream_may_ask_at_once(store: Store) -> None:
    talk = Conversation(store, model=Scripted([*saying("Half")[:1], None], saying("Yes.")))
    async for event in talk.stream("Tea?"):
        if isinstance(event, TextDelta):
            break
    assert "Yes." == (await talk.ask("Coffee?")).text
    assert ["Tea?", "Half", "Coffee?", "Yes."] == [message.text for message in talk.messages]


@pytest.mark.filterwarnings("error")
def test_a_stream_may_outlive_its_loop(store: Store) -> None:
    talk = Conversation(store, model=Scripted([*saying("Half")[:1], None], saying("Yes.")))
    streams: list[object] = []

    async def begin() -> None:
        streams.append(stream := talk.stream("Tea?"))
        await anext(stream)

    anyio.run(begin)
    streams.clear()
    gc.collect()
    assert "Yes." == talk.ask_sync("Coffee?").text


async def test_a_closed_stream_is_at_its_end(store: Store) -> None:
    stream = Conversation(store, model=Echo()).stream("Tea?")
    await anext(stream)
    await stream.aclose()
    assert [] == [event async for event in stream]


# ── values ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int, '{"value": 3}', 3),
        (int, "3", 3),
        (list[int], '{"value": [1]}', [1]),
        (Optional[int], '{"value": null}', None),  # noqa: UP045 - as it is often written
        (str, "hello", "hello"),
        (str, '{"value": "hello"}', "hello"),
        (dict[str, int], '{"value": 1}', {"value": 1}),
        (list[int], "```JSON\n[1]\n```", [1]),
        (list[int], "Here you are:\n```json\n[1]\n```\nBye.", [1]),
    ],
)
async def test_a_schema_is_that_of_an_object(
    store: Store,
    kind: Any,  # noqa: ANN401 - any type
    text: str,
    value: object,
) -> None:
    model = Scripted(saying(text))
    assert value == await Conversation(store, model=model).ask("Well?", output=kind)
    assert "object" == model.asked[0].options["schema"]["type"]


@pytest.mark.parametrize("wrap", [lambda kind: kind, list.__class_getitem__])
async def test_pydantic_models_may_be_inside_of_a_type(
    store: Store, wrap: Callable[[Any], Any]
) -> None:
    pydantic = pytest.importorskip("pydantic")
    node: Any = pydantic.create_model("Node", v=(int, ...))
    one = wrap(node)
    text = '{"v": 1}' if one is node else '{"value": [{"v": 1}]}'
    model = Scripted(saying(text))
    found: Any = await Conversation(store, model=model).ask("Well?", output=one)
    assert 1 == (found if one is node else found[0]).v
    assert "object" == model.asked[0].options["schema"]["type"]


async def test_json_without_end_is_a_bad_answer(store: Store) -> None:
    talk = Conversation(store, model=Scripted(*[saying("[" * 100_000)] * 3))
    with pytest.raises(BadAnswer, match="recursion"):
        await talk.ask("Well?", output=list[int])
