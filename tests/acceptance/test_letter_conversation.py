"""What a conversation promises, to the letter: answers, budgets, counts, models, events, arguments.

An answer that has arrived is stored, whatever the program around it does.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
from anyio import to_thread

import palaver
from palaver.context import ContextManager
from palaver.conversation import (
    ClearOutputs,
    Conversation,
    DropOldest,
    Limits,
    ModelPrice,
    Prices,
    Summarise,
    Toolbox,
    ToolLimits,
    auto_compact,
    compact,
    follow_events,
    model,
    run_until_answer,
    tool,
)
from palaver.conversation.telemetry import Telemetry
from palaver.errors import BadAnswer, BudgetExceeded, NetworkError, StoreError, ValidationError
from palaver.events import EventBus
from palaver.messages import (
    AssistantInfo,
    CacheCounts,
    TokenCounts,
    assistant,
    new_id,
    reasoning_part,
    start,
    tool_call_part,
    user,
)
from palaver.models import RetryPolicy, as_model, register
from palaver.nodes import ConversationRegistry
from palaver.stores import StoredHistory
from palaver.team import CommandMember, Coordinator, Human, Team
from palaver.tokens import estimate
from palaver.tools import SchemaTool
from tests.conversation.scripted import Scripted, calling, saying

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from palaver import Store
    from palaver.events import Event
    from palaver.messages import ModelRef

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run in asyncio."""
    return "asyncio"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store in a file."""
    with palaver.open(tmp_path / "chat.db") as opened:
        yield opened


# ── an answer that arrived is stored ────────────────────────────────────────────────────────────


def misbehave(how: object) -> Any:  # noqa: ANN401 - any function
    """Return a function that raises, or returns nonsense."""

    def function(*_: object, **__: object) -> object:
        if isinstance(how, type) and issubclass(how, Exception):
            raise how("on purpose")
        return how

    return function


class BadPrices(Prices, frozen=True):
    """A price table that misbehaves."""

    how: Any = None

    def cost(self, model: ModelRef, tokens: TokenCounts) -> float | None:
        found: float | None = misbehave(self.how)(model, tokens)
        return found


class BadPricesWhole(BadPrices, frozen=True):
    """A price table whose messages are nonsense."""

    def add_cost(self, message: Any) -> Any:  # noqa: ANN401 - as above
        return misbehave(self.how)(message)


class BadTelemetry:
    """An instrumentation that misbehaves at one moment: enter, answer or exit."""

    def __init__(self, when: str, how: object) -> None:
        self.when, self.how = when, how

    @contextmanager
    def step(self, *_: object) -> Generator[Any]:
        act = misbehave(self.how)
        if self.when == "enter":
            act()
        if self.when == "yield":
            yield self.how
        else:
            yield act if self.when == "answer" else lambda _: None
        if self.when == "exit":
            act()

    call = step


def install(hook: str, how: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a conversation and of its step that install a hook."""
    if hook == "count":
        return {"count": misbehave(how)}, {}
    if hook == "prices.cost":
        return {"prices": BadPrices(how=how)}, {}
    if hook == "prices.add_cost":
        return {"prices": BadPricesWhole(how=how)}, {}
    if hook == "on_delta":
        return {}, {"on_delta": misbehave(how)}
    if hook.startswith("telemetry."):
        return {"instrumentation": BadTelemetry(hook.partition(".")[2], how)}, {}
    return {}, {}


HOOKS = [
    "count", "prices.cost", "prices.add_cost", "on_delta", "handler", "telemetry.enter",
    "telemetry.yield", "telemetry.answer", "telemetry.exit",
]  # fmt: skip
BEHAVIOURS = [RuntimeError, 2.5, None, "many", -1, math.nan, 10**30, True]


@pytest.mark.parametrize("how", BEHAVIOURS, ids=str)
@pytest.mark.parametrize("hook", HOOKS)
async def test_nothing_after_an_answers_arrival_prevents_its_being_stored(
    store: Store, hook: str, how: object
) -> None:
    given, of_step = install(hook, how)
    conversation = Conversation(store, token_limit=10_000, **given)
    if hook == "handler":
        conversation.events.on("*", misbehave(how))
    conversation.add(user("Tea?"))
    step = await conversation.step(Scripted(saying("Yes, ", "please.")), **of_step, key="once")
    assert "Yes, please." == step.text
    stored = store.get(conversation.id)
    assert ["Tea?", "Yes, please."] == [message.text for message in stored]
    assert "stop" == getattr(stored[-1].info, "finish", None)
    assert [] == await Conversation(store, conversation.id).recover()
    assert (10, 3) == (step.usage.prompt_tokens, step.usage.completion_tokens)
    assert conversation.tokens() >= 0
    again = await conversation.step(Scripted(), key="once")
    assert (True, step.message) == (again.again, again.message)


@pytest.mark.parametrize("hook", ["telemetry.enter", "telemetry.answer", "telemetry.exit"])
async def test_nothing_around_a_tool_call_loses_its_result(store: Store, hook: str) -> None:
    given, _ = install(hook, RuntimeError)
    conversation = Conversation(store, tools=[tool(name="look")(lambda: "fine")], **given)
    conversation.add(user("Look."))
    step = await conversation.step(Scripted(calling(("look", {}))))
    (outcome,) = await conversation.run_tools(step.calls)
    assert "fine" == outcome.text
    assert [] == await conversation.recover()


async def test_a_failed_count_is_the_estimate_and_is_logged(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    conversation = Conversation(store, count=misbehave(2.5))
    conversation.add(user("x" * 1_000))
    with caplog.at_level(logging.WARNING):
        assert 4 + estimate("x" * 1_000) == conversation.tokens()
    assert "2.5" in caplog.text


async def test_a_watcher_that_fails_is_logged_once_and_the_answer_goes_on(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    conversation = Conversation(store)
    conversation.add(user("Tea?"))

    async def broken(_: object) -> None:
        await anyio.lowlevel.checkpoint()
        raise OSError

    seen: list[str] = []

    def on_step(step: Any) -> None:  # noqa: ANN401 - a step
        seen.append(step.text)
        raise OSError

    step = await run_until_answer(
        conversation, Scripted(saying("a", "b", "c")), on_delta=broken, on_step=on_step
    )
    assert ("abc", ["abc"]) == (step.text, seen)
    assert 1 == caplog.text.count("on_delta failed")
    assert 1 == caplog.text.count("who watches a run failed")


@pytest.mark.parametrize("kind", ["usage", "answer"])
async def test_a_damaged_record_is_reported_before_the_model_is_asked(
    store: Store, kind: str
) -> None:
    """Afterwards it would be too late: the answer is paid for."""
    conversation = Conversation(store)
    conversation.add(user("Tea?"))
    store.put_records(conversation.id, [(kind, kind, b"{")])
    model = Scripted(saying("Yes."))
    with pytest.raises(palaver.errors.StoreDamaged, match="can't be read"):
        await conversation.step(model, key="once")
    assert [] == model.asked
    assert [] == await conversation.recover()


async def test_a_draft_that_cannot_be_stored_does_not_stop_the_answer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = Conversation(store)
    conversation.add(user("Tea?"))
    put = store.put_records

    def fail(name: str, records: Any, **options: Any) -> None:  # noqa: ANN401 - as they are
        if records[0][0] == "draft":
            raise palaver.errors.StoreError("the disk is busy")
        put(name, records, **options)

    monkeypatch.setattr("palaver.conversation.step.DRAFT_SECONDS", -1.0)
    monkeypatch.setattr(store, "put_records", fail)
    assert "abc" == (await conversation.step(Scripted(saying("a", "b", "c")))).text
    assert "stop" == getattr(conversation.messages[-1].info, "finish", None)


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 10**30, "completion_tokens": 3},
        {"prompt_tokens": 9, "completion_tokens": 3, "cost": 1e300},
        {"prompt_tokens": 9, "completion_tokens": 3, "cost": math.inf},
        {"prompt_tokens": 9, "completion_tokens": 3, "cost": math.nan},
        {"prompt_tokens": "nine", "completion_tokens": [3], "cost": "dear"},
    ],
    ids=str,
)
async def test_a_usage_that_cannot_be_true_does_not_lose_the_answer(
    store: Store, usage: dict[str, Any]
) -> None:
    conversation = Conversation(store)
    conversation.add(user("Tea?"))
    events = [*saying("Yes.", used=None), {"choices": [], "usage": usage}]
    assert "Yes." == (await conversation.step(Scripted(events))).text
    assert [] == await conversation.recover()


# ── limits that can be kept ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("prices", [None, Prices({"other": ModelPrice(1.0, 1.0)})])
async def test_a_budget_without_a_price_is_refused_before_the_first_request(
    store: Store, prices: Prices | None
) -> None:
    conversation = Conversation(store, budget=1.0, prices=prices)
    conversation.add(user("Tea?"))
    model = Scripted(saying("Yes."), name="nobody-knows-it")
    with pytest.raises(ValidationError, match=r"no price is known.*prices=Prices\("):
        await conversation.step(model)
    assert [] == model.asked
    assert [] == await conversation.recover()


async def test_a_budget_with_a_known_price_is_kept_even_without_usage(store: Store) -> None:
    """What the provider does not count is counted here."""
    prices = Prices({"scripted": ModelPrice(1_000_000.0, 1_000_000.0)})
    conversation = Conversation(store, budget=15.0, prices=prices, count=len)
    conversation.add(user("x" * 10))
    step = await conversation.step(Scripted(saying("y" * 5, used=None)))
    assert isinstance(step.message.info, AssistantInfo)
    assert (23.0, True) == (step.message.info.cost, step.message.info.cost_computed)
    late = Scripted(saying("never"))
    with pytest.raises(BudgetExceeded, match=r"23\.0000 of 15\.0000"):
        await conversation.step(late)
    assert [] == late.asked


async def test_a_price_table_that_fails_knows_no_price(store: Store) -> None:
    conversation = Conversation(store, budget=1.0, prices=BadPrices(how=RuntimeError))
    conversation.add(user("Tea?"))
    wrapper = Wrapper("never")
    with pytest.raises(ValidationError, match="no price is known for custom:Wrapper"):
        await conversation.step(wrapper)
    assert ([], "<GeneratingModel Wrapper>") == (wrapper.asked, repr(as_model(wrapper)))


async def test_the_usual_prices_are_enough_for_a_budget(store: Store) -> None:
    """Also for one that is set later."""
    conversation = Conversation(store)
    conversation.budget = 0.000_01
    conversation.add(user("Tea?"))
    await conversation.step(Scripted(saying("Yes."), name="gpt-5"))
    assert (conversation.usage.cost or 0) > 0.000_01
    with pytest.raises(BudgetExceeded):
        await conversation.step(Scripted(saying("never"), name="gpt-5"))


async def test_a_budget_of_nothing_allows_nothing(store: Store) -> None:
    conversation = Conversation(store, budget=0, prices=Prices({"scripted": ModelPrice(1.0, 1.0)}))
    conversation.add(user("Tea?"))
    with pytest.raises(BudgetExceeded):
        await conversation.step(Scripted(saying("never")))


NO_AMOUNTS = [-1, -0.5, math.nan, math.inf, "5", True, [], 10**30]


@pytest.mark.parametrize("value", NO_AMOUNTS, ids=str)
@pytest.mark.parametrize("name", ["budget", "token_limit"])
def test_a_limit_that_is_no_amount_is_refused_at_once(
    store: Store, name: str, value: object
) -> None:
    before = len(list(store))
    given: dict[str, Any] = {name: value}
    with pytest.raises(ValidationError, match=rf"\$\.{name}: must be a .*number") as caught:
        Conversation(store, **given)
    assert "not" in caught.value.detail
    assert before == len(list(store)), "nothing was created"


@pytest.mark.parametrize("value", [*NO_AMOUNTS, None], ids=str)
@pytest.mark.parametrize("name", ["seconds", "at_once", "output"])
def test_limits_of_tools_are_amounts(name: str, value: object) -> None:
    given: dict[str, Any] = {name: value}
    with pytest.raises(ValidationError, match=rf"\$\.{name}: must be"):
        ToolLimits(**given)


@pytest.mark.parametrize("value", [0, -1, 2.0, "5", True, math.nan], ids=str)
def test_the_number_of_steps_is_a_whole_number_from_one(value: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValidationError, match=r"\$\.limits\.steps: must be a whole number"):
        Limits(steps=value)


@pytest.mark.parametrize("value", [-1, math.nan, "5", True], ids=str)
async def test_a_wait_is_a_number_of_seconds(
    store: Store,
    value: Any,  # noqa: ANN401 - what is wrong
) -> None:
    with pytest.raises(ValidationError, match=r"\$\.wait: must be"):
        await Conversation(store).recover(wait=value)


# ── a usage of nothing is no usage ──────────────────────────────────────────────────────────────

NO_USAGE: list[dict[str, Any]] = [
    {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    {"prompt_tokens": None, "completion_tokens": None},
    {"prompt_tokens": 0, "completion_tokens": 0, "cost": 0},
]


@pytest.mark.parametrize("usage", NO_USAGE, ids=str)
async def test_a_usage_of_zeros_or_nulls_is_no_usage(store: Store, usage: dict[str, Any]) -> None:
    conversation = Conversation(store, token_limit=15_000)
    crossings: list[Event] = []
    conversation.events.on("tokens.exceeded", crossings.append)
    conversation.add(user("Tea?"))
    long = "word " * 10_000 + "."
    events = [*saying(long, used=None), {"choices": [], "usage": usage}]
    step = await conversation.step(Scripted(events))
    assert conversation.tokens() >= 10_000
    assert (step.usage.last, step.usage.cost) == (None, None)
    assert isinstance(step.message.info, AssistantInfo)
    assert (step.message.info.tokens, step.message.info.cost) == (None, None)
    conversation.token_limit = 9_000
    await conversation.check_tokens()
    assert [("count", 9_000)] == [(e.data["source"], e.data["limit"]) for e in crossings]
    assert usage == step.usage.raw


async def test_a_usage_with_one_half_counts_no_less_than_the_text(store: Store) -> None:
    conversation = Conversation(store, count=len)
    conversation.add(user("x" * 1_000))
    events = [*saying("y" * 100, used=None), {"choices": [], "usage": {"completion_tokens": 50}}]
    await conversation.step(Scripted(events))
    assert 1_108 == conversation.tokens()
    conversation.add(user("z" * 10))
    assert 1_122 == conversation.tokens()


async def test_usage_has_the_providers_raw_figures(store: Store) -> None:
    conversation = Conversation(store)
    conversation.add(user("Tea?"))
    raw = {"prompt_tokens": 9, "completion_tokens": 3, "queue_time": 0.25}
    step = await conversation.step(
        Scripted([*saying("Yes.", used=None), {"choices": [], "usage": raw}])
    )
    assert raw == step.usage.raw == conversation.usage.raw
    assert raw == Conversation(store, conversation.id).usage.to_dict()["raw"]


# ── any object with generate(messages, tools) is a model ────────────────────────────────────────


class Wrapper:
    """An LLM wrapper as the design has it."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Any, Any]] = []

    def generate(self, messages: Any, tools: Any) -> Any:  # noqa: ANN401 - as it is given
        self.asked.append((messages, tools))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class AsyncWrapper(Wrapper):
    async def generate(self, messages: Any, tools: Any) -> Any:  # noqa: ANN401 - as it is given
        await anyio.lowlevel.checkpoint()
        return super().generate(messages, tools)


USED = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
COMPLETION = {
    "choices": [{"message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
    "usage": USED,
}
ANSWERS: dict[str, Any] = {
    "text": "Yes.",
    "a message": assistant("Yes."),
    "a message as JSON": {"role": "assistant", "content": "Yes.", "usage": USED},
    "content alone": {"content": "Yes."},
    "a completion": COMPLETION,
    "an object": SimpleNamespace(content="Yes.", usage=SimpleNamespace(**USED)),
    "an SDK's object": SimpleNamespace(model_dump=lambda: COMPLETION),
}


@pytest.mark.parametrize("kind", [Wrapper, AsyncWrapper])
@pytest.mark.parametrize("answer", ANSWERS)
async def test_any_object_with_generate_can_be_the_model(
    store: Store, kind: type[Wrapper], answer: str
) -> None:
    model = kind(ANSWERS[answer])

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    conversation = Conversation(store, model=model, tools=[add])
    conversation.add(user("Tea?"))
    step = await conversation.step()
    assert ("Yes.", "stop") == (step.text, getattr(step.message.info, "finish", None))
    ((messages, tools),) = model.asked
    assert [{"role": "user", "content": "Tea?"}] == messages
    assert ["add"] == [one["function"]["name"] for one in tools]
    if answer not in ("text", "a message", "content alone"):
        assert 12 == step.usage.total_tokens
        assert USED == step.usage.raw
    assert [] == await conversation.recover()


async def test_a_wrappers_calls_are_run_and_their_results_are_sent(store: Store) -> None:
    called = {"id": "call_1", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}
    model = Wrapper({"content": None, "tool_calls": [called]}, "3.")

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    conversation = Conversation(store, model=model, tools=[add])
    conversation.add(user("1 + 2?"))
    assert "3." == (await run_until_answer(conversation)).text
    messages, _ = model.asked[1]
    assert ["user", "assistant", "tool"] == [message["role"] for message in messages]
    assert "3" == messages[-1]["content"]


async def test_a_wrapper_may_stream(store: Store) -> None:
    async def pieces() -> Any:  # noqa: ANN401 - a generator
        for piece in ("Yes, ", "please."):
            await anyio.lowlevel.checkpoint()
            yield piece

    heard: list[str] = []
    for answer in (pieces(), iter(["Yes, ", "please."])):
        conversation = Conversation(store, model=Wrapper(answer))
        conversation.add(user("Tea?"))
        step = await conversation.step(on_delta=lambda d: heard.append(getattr(d, "text", "")))
        assert "Yes, please." == step.text
    assert ["Yes, ", "please."] * 2 == [piece for piece in heard if piece]


async def test_a_wrapper_may_stream_an_sdks_chunks(store: Store) -> None:
    def chunk(text: str, **more: object) -> SimpleNamespace:
        delta = SimpleNamespace(content=text, _hidden=1)
        return SimpleNamespace(choices=[SimpleNamespace(delta=delta)], **more)

    chunks = [chunk("Yes, "), SimpleNamespace(model_dump=lambda: {"choices": []})]
    conversation = Conversation(store, model=Wrapper(iter([*chunks, chunk("please.", usage=USED)])))
    conversation.add(user("Tea?"))
    step = await conversation.step()
    assert ("Yes, please.", 12) == (step.text, step.usage.total_tokens)


async def test_a_wrapper_cannot_change_what_is_sent_next(store: Store) -> None:
    class Greedy(Wrapper):
        def generate(self, messages: Any, tools: Any) -> Any:  # noqa: ANN401 - as it is given
            answer = super().generate([dict(message) for message in messages], tools)
            for message in messages:
                message["content"] = "changed"
            messages.clear()
            return answer

    greedy = Greedy("Yes.", "No.")
    conversation = Conversation(store, model=greedy)
    conversation.add(user("Tea?"))
    await conversation.step()
    conversation.add(user("More?"))
    await conversation.step()
    assert ["Tea?", "Yes.", "More?"] == [message["content"] for message in greedy.asked[1][0]]


async def test_calls_may_be_flat_and_come_with_reasoning(store: Store) -> None:
    where = (new_id(), new_id())
    parts: list[Any] = [
        reasoning_part(*where, "Hm."),
        tool_call_part(*where, "look", {"at": "tea"}),
    ]
    tokens = TokenCounts(9, 3, 0, CacheCounts())
    flat = {"toolCalls": [{"id": "c1", "name": "look", "arguments": {"at": "tea"}}, "odd"]}
    made = assistant(parts, info=AssistantInfo(tokens=tokens))
    conversation = Conversation(store, model=Wrapper(flat, made))
    conversation.add(user("Look."))
    for step in (await conversation.step(), await conversation.step()):
        assert [("look", {"at": "tea"})] == [(call.tool, call.input) for call in step.calls]
        assert "tool-calls" == getattr(step.message.info, "finish", None)
    thought = next(part for part in conversation.messages[-1].parts if part.type == "reasoning")
    assert (12, "Hm.") == (conversation.usage.total_tokens, getattr(thought, "text", ""))


async def test_a_wrapper_may_give_back_one_message_twice(store: Store) -> None:
    """Two answers are two messages, whatever id the wrapper gave them."""
    same = assistant("Yes.")
    conversation = Conversation(store, model=Wrapper(same, same))
    conversation.add(user("Tea?"))
    one = await conversation.step()
    conversation.add(user("More?"))
    two = await conversation.step()
    assert (3, True) == (len({one.message.id, two.message.id, same.id}), two.text == "Yes.")


@pytest.mark.parametrize(
    "answer", [None, 5, [], {}, user("Yes."), object()], ids=lambda value: type(value).__name__
)
async def test_what_is_no_answer_is_refused_with_a_sentence(store: Store, answer: object) -> None:
    conversation = Conversation(store, model=Wrapper(answer))
    conversation.add(user("Tea?"))
    with pytest.raises(BadAnswer, match=r"generate\(\) of Wrapper returned .*; expected text"):
        await conversation.step()
    assert 1 == len(conversation)


async def test_what_a_wrapper_raises_comes_out(store: Store) -> None:
    conversation = Conversation(store, model=Wrapper(NetworkError("gone", provider="mine")))
    conversation.add(user("Tea?"))
    with pytest.raises(NetworkError, match="gone"):
        await conversation.step()
    assert [] == await conversation.recover()


async def test_a_wrapper_can_summarise(store: Store) -> None:
    conversation = Conversation(store, count=len)
    for number in range(6):
        conversation.add(user(f"Question {number}: " + "and so on " * 20))
    done = await compact(conversation, Summarise(model=Wrapper("In short."), keep_tokens=60))
    assert done is not None


async def test_options_go_to_a_wrapper_that_takes_them(store: Store) -> None:
    class Tunable(Wrapper):
        name = "tunable"
        heard: Any = None

        def generate(self, messages: Any, tools: Any, *, options: Any = None) -> Any:  # noqa: ANN401 - as it is given
            self.heard = options
            return super().generate(messages, tools)

    tunable = Tunable("Yes.")
    conversation = Conversation(store)
    conversation.add(user("Tea?"))
    step = await conversation.step(tunable, options={"temperature": 0})
    assert {"temperature": 0} == tunable.heard
    assert isinstance(step.message.info, AssistantInfo)
    assert step.message.info.model is not None
    assert "tunable" == step.message.info.model.model_id
    bare = Wrapper("never")
    with pytest.raises(ValidationError, match="takes no options, and temperature is set"):
        await conversation.step(bare, options={"temperature": 0})
    assert [] == bare.asked


# ── every change is heard ───────────────────────────────────────────────────────────────────────

CHANGES: dict[str, tuple[str, Callable[[StoredHistory], object]]] = {
    "append": ("message.added", lambda h: h.append(user("new"))),
    "extend": ("message.added", lambda h: h.extend([user("new")])),
    "execute": ("history.edited", lambda h: h.execute({"operation": "CLEAR"})),
    "insert": ("history.edited", lambda h: h.insert(0, [user("new")])),
    "replace": ("history.edited", lambda h: h.replace(0, user("new"))),
    "truncate": ("history.edited", lambda h: h.truncate(keep_last=1)),
    "clear": ("history.edited", lambda h: h.clear()),
    "filter": ("history.edited", lambda h: h.filter(roles=["user"])),
    "rewrite": ("compaction.done", lambda h: h.rewrite([range(1)])),
    "replace_all": ("history.edited", lambda h: h.replace_all([user("new")], team_task=None)),
    "rollback": ("history.rolled_back", lambda h: h.rollback(0)),
    "undo": ("history.rolled_back", lambda h: h.undo()),
    "redo": ("history.rolled_back", lambda h: h.redo()),
    "restore": ("history.rolled_back", lambda h: h.restore(1)),
    "merge": ("history.edited", lambda h: h.merge(_forked(h))),
    "mark": ("history.edited", lambda h: h.mark(0, "pin")),
    "unmark": ("history.edited", lambda h: h.unmark(1, "old")),
    "set_team_task": ("team_task.changed", lambda h: h.set_team_task("Tea")),
    "erase": ("message.erased", lambda h: h.erase(0)),
}


def _forked(history: StoredHistory) -> StoredHistory:
    fork = history.fork()
    fork.append(user("from the fork"))
    return fork


def _prepared(store: Store, change: str) -> Conversation:
    history = store.create([user("one"), assistant("two")])
    history.mark(1, "old")
    history.truncate(keep_first=2, range=None) if change == "rollback" else None
    history.append(user("three"))
    if change == "rollback":
        history.clear()
    if change == "redo":
        history.undo()
    return Conversation(store, history)


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_the_history_is_heard_once_as_followers_hear_it(
    store: Store, change: str
) -> None:
    conversation = _prepared(store, change)
    heard: list[Event] = []
    conversation.events.on("*", heard.append)
    before = conversation.history.version
    name, make = CHANGES[change]
    make(conversation.history)
    followed = list(follow_events(store, conversation.id, after=before, seconds=0))
    assert [name] == [event.name for event in heard]
    assert [(e.name, e.version, e.data, e.at) for e in followed] == [
        (e.name, e.version, e.data, e.at) for e in heard
    ]


def test_every_method_that_changes_a_history_is_tried() -> None:
    reading = {
        "append", "at", "batch_snapshot", "by_role", "count", "diff", "ends", "fork", "index",
        "listen",
        "mark_map", "marks_of", "price", "query", "range", "recent", "refresh", "under",
        "after_fork_in_child",
    }  # fmt: skip
    methods = {
        name
        for name, method in inspect.getmembers(StoredHistory, inspect.isfunction)
        if not name.startswith("_") and not inspect.iscoroutinefunction(method)  # twins
    }
    assert set() == methods - reading - set(CHANGES)


def test_what_changes_nothing_is_not_heard(store: Store) -> None:
    conversation = Conversation(store)
    conversation.add(user("one"), key="k")
    heard: list[Event] = []
    conversation.events.on("*", heard.append)
    conversation.add(user("one"), key="k")
    conversation.history.refresh()
    conversation.history.append(user("one"), key="k")
    with pytest.raises(ValidationError):
        conversation.history.truncate()
    assert [] == heard


async def test_a_change_in_a_worker_thread_is_heard_in_the_loop(store: Store) -> None:
    """So an async handler can use what belongs to the loop, and read the history."""
    conversation = Conversation(store)
    loops: list[object] = []

    async def handler(_: Event) -> None:
        loops.append(asyncio.get_running_loop())
        loops.append(await to_thread.run_sync(lambda: len(conversation.history)))

    conversation.events.on("*", handler)
    with anyio.fail_after(60):
        await to_thread.run_sync(conversation.history.append, user("one"))
    assert [asyncio.get_running_loop(), 1] == loops


def test_a_handler_may_use_the_history_from_another_thread(store: Store) -> None:
    """Nothing is locked while handlers run."""
    conversation = Conversation(store)
    seen: list[int] = []

    async def handler(_: Event) -> None:
        seen.append(await to_thread.run_sync(lambda: len(conversation.history)))

    conversation.events.on("*", handler)
    conversation.history.extend([user("one"), user("two")])
    conversation.history.merge(_forked(conversation.history))
    assert 3 == seen[-1]


async def test_an_answer_that_was_cut_off_is_heard(store: Store) -> None:
    conversation = Conversation(store)
    conversation.add(user("Tea?"))
    heard: list[str] = []
    conversation.events.on("*", lambda event: heard.append(event.name))
    broken = [*saying("half an ")[:1], NetworkError("gone", provider="openai")]
    with pytest.raises(NetworkError):
        await conversation.step(Scripted(broken))
    assert ["message.added"] == heard


async def test_what_recovery_adds_is_heard(store: Store) -> None:
    conversation = Conversation(store)
    conversation.add(user("Look."))
    await conversation.step(Scripted(calling(("look", {}))))
    (entry,) = conversation.ledger().values()
    store.put_records(conversation.id, [entry.with_state(start(entry.state)).record()])
    heard: list[str] = []
    conversation.events.on("*", lambda event: heard.append(event.name))
    await conversation.recover()
    assert ["tool.running", "tool.error", "message.added"] == heard


async def test_a_step_and_a_compaction_are_heard_once(store: Store) -> None:
    conversation = Conversation(store, count=len)
    heard: list[str] = []
    conversation.events.on("*", lambda event: heard.append(event.name))
    for number in range(5):
        conversation.add(user(f"{number} " * 20))
    await conversation.step(Scripted(saying("Yes.", used=None)))
    await compact(conversation, DropOldest(keep_tokens=60))
    assert [*["message.added"] * 6, "usage.updated", "compaction.done"] == heard


def test_a_context_on_the_same_bus_is_heard_once(store: Store) -> None:
    conversation = Conversation(store)
    context = ContextManager(conversation.history, events=conversation.events)
    heard: list[str] = []
    conversation.events.on("*", lambda event: heard.append(event.name))
    speaker = {"roleId": "u1", "roleName": "User", "type": "human"}
    context.add_message({"content": "one", "speaker": speaker})
    context.set_team_task("Tea")
    context.clear()
    assert ["message.added", "team_task.changed", "history.edited"] == heard


def test_a_listener_that_fails_does_not_fail_the_change(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    conversation = Conversation(store)
    conversation.events.on("*", lambda _: None)
    monkeypatch.setattr("palaver.conversation.feed.EventFeed.change_events", misbehave(OSError))
    assert "one" == conversation.history.append(user("one")).text
    assert "listener" in caplog.text


# ── wrong arguments are refused where they are given ────────────────────────────────────────────


def _team() -> Team:
    return Team(members=[Human(id="user"), CommandMember(id="max", argv=["echo", "hi"])])


def _take(function: Any, *args: Any, **options: Any) -> Callable[[Any], object]:  # noqa: ANN401 - what is wrong
    """Return a call of a function with these arguments after the store."""
    return lambda store: function(store, *args, **options)


def _alone(function: Any, *args: Any, **options: Any) -> Callable[[Any], object]:  # noqa: ANN401 - what is wrong
    """Return a call of a function with these arguments."""
    return lambda _: function(*args, **options)


class Silent:
    """A model that would answer."""

    def generate(self, _messages: object, _tools: object) -> str:
        return "hi"


FIVE: Any = 5
HI: Any = "hi"
TEXT: Any = "x"
NOTHING: Any = None


def _coordinate(store: Store, team: Any) -> Coordinator:  # noqa: ANN401 - what is wrong
    return Coordinator(team, store)


WRONG: dict[str, tuple[str, Callable[[Any], object]]] = {
    "None for a store": (r"\$.store: must be a Store, not None", _alone(Conversation, None)),
    "the class of stores": (r"not the class Store", _alone(Conversation, palaver.Store)),
    "a number for an id": (r"\$.conversation: must be the id", _take(Conversation, FIVE)),
    "messages for an id": (r"\$.conversation: .*not a list", _take(Conversation, [user("hi")])),
    "a history in memory": (r"not a History", _take(Conversation, palaver.History())),
    "a model's bare name": (r"\$.model: 'gpt-5' names no", _take(Conversation, model="gpt-5")),
    "a number for a model": (r"\$.model: must be a model.*not 5", _take(Conversation, model=FIVE)),
    "a model's class": (r"\$.model: .*not the class Silent", _take(Conversation, model=Silent)),
    "a number for tools": (r"\$.tools: must be a list.*not 5", _take(Conversation, tools=FIVE)),
    "a text for tools": (r"\$.tools: must be a list", _take(Conversation, tools="look")),
    "a number as a tool": (r"\$.tools\[0\]: must be a tool", _take(Conversation, tools=[FIVE])),
    "a mapping of tools": (r"\$.tools: must be a list", _take(Conversation, tools={"a": len})),
    "a number as executor": (r"\$.executor: must be an async", _take(Conversation, executor=5)),
    "a text as limit": (r"\$.token_limit: must be a whole", _take(Conversation, token_limit=HI)),
    "a name as counter": (r"\$.count: must be a function", _take(Conversation, count="o200k")),
    "a dict of prices": (r"\$.prices: must be Prices", _take(Conversation, prices={"a": 1})),
    "a text as budget": (r"\$.budget: must be a number", _take(Conversation, budget="5")),
    "a dict of limits": (r"\$.limits: must be ToolLimits", _take(Conversation, limits={"a": 1})),
    "a number as bus": (r"\$.events: must be an EventBus", _take(Conversation, events=FIVE)),
    "telemetry's class": (
        r"\$.instrumentation: .*not the class Telemetry",
        _take(Conversation, instrumentation=Telemetry),
    ),
    "telemetry's provider": (r"\$.provider: must be a Tracer", _alone(Telemetry, FIVE)),
    "adding nothing": (r"Invalid message format.*None", lambda s: Conversation(s).add(NOTHING)),
    "adding a number": (r"Invalid message format.*5", lambda s: Conversation(s).add(FIVE)),
    "adding a text": (r"Invalid message.*'hi'.*user\(", lambda s: Conversation(s).add(HI)),
    "counting for a number": (r"\$.tools: must be a list", lambda s: Conversation(s).tokens(FIVE)),
    "digests of a number": (r"\$.calls: must be a list", lambda s: Conversation(s).digests(FIVE)),
    "compacting with a word": (
        r"\$.strategy: must be a strategy",
        lambda s: auto_compact(Conversation(s), HI),
    ),
    "compacting a store": (
        r"\$.conversation: must be a Conversation, not a Store",
        _take(auto_compact, DropOldest(keep_tokens=5)),
    ),
    "dropping to less than none": (r"\$.keep_tokens: must be", _alone(DropOldest, keep_tokens=-1)),
    "protecting many": (r"\$.protect_turns: must", _alone(ClearOutputs, protect_turns="many")),
    "summing up with no model": (r"\$.model: 'x' names no model", _alone(Summarise, model="x")),
    "following a path": (r"write palaver.open", _alone(follow_events, "chat.db")),
    "following for a word": (r"\$.seconds: must be", _take(follow_events, seconds="5")),
    "a price in words": (r"\$.input: must be a number", _alone(ModelPrice, "1", 2)),
    "a price below nothing": (r"\$.output: must be a number", _alone(ModelPrice, 1, -2)),
    "a number as price": (r"\$.table.a: must be ModelPrice", _alone(Prices, {"a": 5})),
    "a number as table": (r"\$.table: must be prices", _alone(Prices, 5)),
    "a number as name": (r"must be a name such as openai", _alone(model, 5)),
    "retries in words": (
        r"\$.retries: must be a whole number from 0 on, or RetryPolicy\(limit=…\), not '3'",
        _alone(model, "openai:gpt-5", retries="3"),
    ),
    "a timeout in words": (r"\$.timeout: must be", _alone(model, "openai:gpt-5", timeout="5")),
    "no time at all": (r"\$.timeout: must be", _alone(model, "anthropic:claude", timeout=0)),
    "no timeout": (r"\$.timeout: must be", _alone(model, "gemini:g", timeout=None)),
    "a window in words": (r"\$.window: must be", _alone(model, "responses:gpt-5", window="8k")),
    "a number as address": (r"\$.base_url: must be", _alone(model, "openai:gpt-5", base_url=5)),
    "a number as key": (r"\$.api_key: must be text", _alone(model, "openai:gpt-5", api_key=5)),
    "a word as target": (r"\$.target: must be", _alone(model, "openai:gpt-5", target="images")),
    "less than no repeats": (r"\$.limit: must be a whole number", _alone(RetryPolicy, limit=-1)),
    "no number of seconds": (r"\$.longest: must", _alone(RetryPolicy, longest=math.nan)),
    "a number as factory": (r"\$.factory: must be a function", _alone(register, "mine", 5)),
    "a number for a team": (r"\$.team: must be a Team, not 5", _take(_coordinate, FIVE)),
    "a path for a team's store": (r"write palaver.open", lambda _: Coordinator(_team(), HI)),
    "a team's models by name": (
        r"\$.models: must be a function",
        lambda s: Coordinator(_team(), s, models=HI),
    ),
    "a number for on_turn": (r"\$.on_turn", lambda s: Coordinator(_team(), s, on_turn=FIVE)),
    "a number for a folder": (r"\$.folder", lambda s: Coordinator(_team(), s, folder=FIVE)),
    "a lease in words": (
        r"\$.lease_seconds: must be",
        lambda s: Coordinator(_team(), s, lease_seconds=HI),
    ),
    "a number of members": (r"\$.members: must be a list", _alone(Team, members=FIVE)),
    "a number as member": (r"\$.members\[0\]: must be Human", _alone(Team, members=[FIVE])),
    "a number as a member's id": (
        r"\$.members\[0\].id",
        lambda _: Team(members=[Human(id=FIVE), Human(id="b")]),
    ),
    "a text as a command": (
        r"\$.members\[1\].argv",
        lambda _: Team(members=[Human(id="a"), CommandMember(id="b", argv=TEXT)]),
    ),
    "a path for a context": (r"\$.history: must be a history", _alone(ContextManager, "chat.db")),
    "a store for a context": (r"\$.history: .*not a Store", _take(ContextManager)),
    "a number of windows": (r"\$.windows: must be", _alone(ContextManager, windows=5)),
    "a context's counter": (r"\$.count: must be", _alone(ContextManager, count=5)),
    "a number as assembler": (
        r"\$.assembler: must be an assembler",
        _alone(ContextManager, assemblers={"a": 5}),
    ),
    "a context's callback": (
        r"\$.on_message_added: must be",
        _alone(ContextManager, on_message_added=5),
    ),
    "a number for a toolbox": (r"\$.tools: must be a list", _alone(Toolbox, 5)),
    "a number as function": (r"\$.function: must be a function", _alone(tool, 5)),
    "a tool's timeout": (
        r"\$.timeout: must be a number",
        lambda _: tool(name="a", timeout=-1)(lambda: 1),
    ),
    "a number as schema": (r"\$.parameters: must be", _alone(SchemaTool, "a", "b", 5, print)),
    "a path for a backend": (r"\$.backend: must be a Backend", _alone(palaver.Store, "chat.db")),
    "a number as clock": (r"\$.clock: must", lambda _: palaver.open(":memory:", clock=FIVE)),
    "a word as tags": (r"\$.tags: must be a list of tags", lambda s: s.create(tags="tea")),
    "a page of words": (r"\$.limit: must be a whole number", lambda s: s.list(limit="5")),
    "a history's clock": (r"\$.clock: must be", _alone(palaver.History, clock=5)),
    "a text as messages": (r"\$.messages: must be a list", _alone(palaver.History, "hi")),
    "merging a number": (r"\$.other: must be a history", lambda s: s.create().merge(FIVE)),
    "a number as handler": (r"\$.handler: must be", lambda _: EventBus().on("*", FIVE)),
    "an unknown event": (r"no such event: 'x'", lambda _: EventBus().on(TEXT, print)),
    "a registry of a path": (r"write palaver.open", _alone(ConversationRegistry, "chat.db")),
    "a registry's limit": (
        r"\$.token_limit: must be",
        _take(ConversationRegistry, token_limit=HI),
    ),
}


@pytest.mark.parametrize("use", WRONG)
def test_a_wrong_argument_is_refused_at_once_with_a_sentence(store: Store, use: str) -> None:
    words, call = WRONG[use]
    before = len(list(store))
    with pytest.raises(ValidationError, match=words):
        call(store)
    if not use.startswith(("adding", "counting", "digests", "compacting", "merging")):
        assert before == len(list(store)), "nothing was created"


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (r"\$.model: 'gpt-5' names no model", {"model": "gpt-5"}),
        (r"\$.options: must be an object", {"options": 5}),
        (r"\$.on_delta: must be a function", {"on_delta": 5}),
        (r"\$.tools: must be a list", {"tools": 5}),
        (r"\$.key: must be text", {"key": 5}),
    ],
)
async def test_a_wrong_argument_of_a_step_is_refused_before_the_model_is_asked(
    store: Store, words: str, given: dict[str, Any]
) -> None:
    wrapper = Wrapper("never")
    arguments: dict[str, Any] = {"model": wrapper, **given}
    with pytest.raises(ValidationError, match=words):
        await Conversation(store).step(**arguments)
    assert [] == wrapper.asked


@pytest.mark.parametrize(
    ("words", "calls", "given"),
    [
        (r"\$.calls: must be a list", 5, {}),
        (r"\$.calls\[0\]: must be a ToolCallPart", ["look"], {}),
        (r"\$.around: must be", [], {"around": 5}),
        (r"\$.approved: must be", [], {"approved": 5}),
    ],
)
async def test_wrong_calls_are_refused(
    store: Store,
    words: str,
    calls: Any,  # noqa: ANN401 - what is wrong
    given: dict[str, Any],
) -> None:
    with pytest.raises(ValidationError, match=words):
        await Conversation(store).run_tools(calls, **given)


async def test_a_store_is_no_conversation(store: Store) -> None:
    wrong: Any = store
    with pytest.raises(ValidationError, match="must be a Conversation, not a Store"):
        await run_until_answer(wrong, Scripted())
    with pytest.raises(ValidationError, match="must be a Conversation, not a Store"):
        await compact(wrong, DropOldest(keep_tokens=1))


def test_a_wrong_address_shows_no_password() -> None:
    wrong: Any = "postgresql://me:secret@localhost:1/talks"
    with pytest.raises(StoreError) as caught:
        Conversation(wrong)
    assert "secret" not in str(caught.value)


def test_a_models_name_is_enough(store: Store) -> None:
    conversation = Conversation(store, model="openai:gpt-5")
    assert conversation.model is not None
    assert "gpt-5" == conversation.model.ref.model_id
