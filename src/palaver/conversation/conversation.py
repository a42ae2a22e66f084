"""A conversation: a history in a store, with models, tools and events.

It takes one step at a time and never decides to take another: the engine that uses it does. The
module `run` has a loop for everyone without an engine.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from os import PathLike
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack, cast, overload

import anyio
from anyio import to_thread
from anyio.lowlevel import current_token
from msgspec.structs import replace

from palaver.conversation.deferred import (
    DEFERRED,
    DeferredEdit,
    apply_edits,
    plan_deferred,
    read_deferred,
)
from palaver.conversation.prompt_cache import CACHE, cache_data, last_request, read_prefixes
from palaver.conversation.recovery import recover, recover_if_needed
from palaver.conversation.run import (
    AROUND,
    SYSTEM_TEXT,
    OutputType,
    RunResult,
    RunSettings,
    RunStream,
    ask,
    check_settings,
)
from palaver.conversation.step import ToolCallBatch, take_step
from palaver.conversation.store_access import ChangeAnnouncer, StoreAccess
from palaver.conversation.telemetry import observe
from palaver.conversation.usage import EditCost, PricedEdit, Prices, cost_of_edit
from palaver.errors import (
    BudgetExceeded,
    PalaverError,
    UnknownConversation,
    ValidationError,
)
from palaver.events import Event, EventBus
from palaver.messages import (
    AssistantInfo,
    CacheCounts,
    Message,
    ModelRef,
    TokenCounts,
    ToolCallPart,
    parse_message,
    user,
)
from palaver.messages.ids import now_ms
from palaver.messages.limits import (
    EMPTY,
    check_argument,
    check_callable,
    check_number,
    describe_argument,
    is_object,
    names_keywords,
    not_pickled,
    shorten,
)
from palaver.models import as_model
from palaver.models.base import LOCAL_PROVIDER, OPTIONS, SdkModel
from palaver.stores import StoredHistory, open_store
from palaver.stores.lease import SharedLease, check_lease, run_shielded
from palaver.stores.store import check_store
from palaver.stores.twins import in_thread
from palaver.tokens import RunningTotal, counter, weigh_schema, with_fallback
from palaver.tools.approval import Decision, allowances, apply_decisions
from palaver.tools.runner import ToolLimits, ToolRunner, as_toolbox

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from palaver.conversation.ledger import LedgerEntry
    from palaver.conversation.recovery import Recovered
    from palaver.conversation.run import RunEvent
    from palaver.conversation.step import OnDelta, Step, ToolOutcome
    from palaver.conversation.telemetry import Instrumentation
    from palaver.conversation.usage import Usage
    from palaver.history import Expected, Impact, Operation, View
    from palaver.history.operations import OperationInput
    from palaver.history.view import Result
    from palaver.messages import Role
    from palaver.models import AnyModel
    from palaver.models.base import Model
    from palaver.stores import Store
    from palaver.tokens import TokenCounter
    from palaver.tools import Tool, Toolbox
    from palaver.tools.runner import DescribeError, Executor, ToolMiddleware
    from palaver.wire import Request

__all__ = ["Conversation"]

_T = TypeVar("_T")

_log: Final = logging.getLogger("palaver.conversation")
_LOOKBACK: Final = 20
_NOT_A_MESSAGE: Final = "Invalid message format: role and content are required"
_ELSEWHERE: Final[Mapping[str, str]] = {
    **SYSTEM_TEXT,
    **dict.fromkeys(OPTIONS, "options go to the model, palaver.model(NAME, …), or to ask"),
    **dict.fromkeys(("approve", "around", "key", "options"), "it goes to ask or stream"),
}
"""What to write in place of keywords that `Conversation` does not take."""


def _check_calls(calls: Iterable[ToolCallPart]) -> list[ToolCallPart]:
    given: object = calls
    wanted = "a list of tool calls, such as step.calls"
    check_argument(given, Iterable, "$.calls", wanted)
    checked = [given] if isinstance(given, str | ToolCallPart) else list(calls)
    for index, call in enumerate(checked):
        check_argument(call, ToolCallPart, f"$.calls[{index}]", "a ToolCallPart of step.calls")
    return cast("list[ToolCallPart]", checked)


def _read_message(given: object) -> Message:
    """Return a message as it is added; raise `ValidationError` if it is none."""
    message = given
    if not isinstance(message, Message):
        if not is_object(given):
            detail = f"{_NOT_A_MESSAGE}, and this is {describe_argument(given)}; write user('…')"
            raise ValidationError(detail, path="$", rule="empty-message")
        if not given.get("role") or given.get("content") is None:
            raise ValidationError(_NOT_A_MESSAGE, path="$", rule="empty-message")
        message = parse_message(given)
    if message.role in ("user", "system") and not message.content:
        raise ValidationError(_NOT_A_MESSAGE, path="$.content", rule="empty-message")
    return message


def _read_question(given: object) -> Message:
    """Return what the user says; raise `ValidationError` if nothing is said."""
    wanted = "what the user says, as text or as a message"
    check_argument(given, (str, Message, Mapping), "$.message", wanted)
    if not isinstance(given, str):
        return _read_message(given)
    if not given.strip():
        detail = f"is empty; give {wanted}, or leave it out to go on without a question"
        raise ValidationError(detail, path="$.message", rule="empty-message")
    return user(given)


def _check_functions(executor: object, count: object, on_tool_error: object) -> None:
    """Check that each is a function of as many values as it will be given, or None."""
    wanted = "an async function of a call and its context"
    check_callable(executor, "$.executor", wanted, takes=2)
    wanted = "a function that returns the number of tokens in a text"
    check_callable(count, "$.count", wanted, takes=1, plain=True)
    wanted = "a plain function of a call and an error"
    check_callable(on_tool_error, "$.on_tool_error", wanted, takes=2, plain=True)


def _last_model(view: View) -> ModelRef | None:
    """Return the model of the newest answer that names one; None if none of the last does."""
    answers = (getattr(message.info, "model", None) for message in reversed(view[-_LOOKBACK:]))
    return next((model for model in answers if model is not None), None)


def _check_instrumentation(value: object) -> None:
    functions = (getattr(value, "step", None), getattr(value, "call", None))
    if isinstance(value, type) or not all(map(callable, functions)):
        detail = "must be an object with `step` and `call`, such as Telemetry(), not "
        raise ValidationError(
            detail + describe_argument(value), path="$.instrumentation", rule="argument"
        )


class Conversation:
    """A conversation of a store, ready for steps.

    >>> import palaver
    >>> from palaver.conversation import Conversation
    >>> conversation = Conversation(palaver.open(":memory:"))
    >>> conversation.add({"role": "user", "content": "Tea?"}).text
    'Tea?'
    >>> len(conversation), conversation.recent(1)[0].role
    (1, 'user')
    """

    @names_keywords("Conversation", _ELSEWHERE)
    def __init__(
        self,
        store: Store | str | PathLike[str],
        conversation: StoredHistory | str | None = None,
        *,
        model: AnyModel | None = None,
        tools: Toolbox | Iterable[Tool | Callable[..., Any]] = (),
        executor: Executor | None = None,
        token_limit: int | None = None,
        count: TokenCounter | None = None,
        prices: Prices | None = None,
        budget: float | None = None,
        limits: ToolLimits | None = None,
        on_tool_error: DescribeError | None = None,
        events: EventBus | None = None,
        instrumentation: Instrumentation | None = None,
        lease: float | None = None,
        wait: float = 0.0,
    ) -> None:
        """Open a conversation of a store by its id, or create a new one.

        `store` may be the path or URL of one, which is opened, and closed with the conversation.
        `model` is a model, its name (`openai:gpt-5`), or any object with `generate(messages,
        tools)`. When there are more than `token_limit` tokens, the event `tokens.exceeded` is
        published. `budget` is a cost: once it is spent, no further step is begun; a model of which
        no price is known is not asked. `executor` runs calls in place of the tools, `count` counts
        tokens in place of the best counter available, `limits` are those of tool calls,
        `on_tool_error` is given a call and what its tool raised, and returns what the model is told
        (None for the usual text: that of `ToolFailed`, `ValueError`, `LookupError` and
        `ArithmeticError`, and the type alone of any other error), `instrumentation` wraps every
        request and call (`telemetry.Telemetry`).

        While a run, a step or calls are under way, nobody else may work on the conversation, here
        or in another process: `LeaseTaken` says who does. `wait` is how many seconds to wait for
        them. `lease` is how many seconds a lease lasts that is not renewed (4, if it is not given),
        and so how soon the work of a killed process can go on elsewhere. Raises `ValidationError`
        for an argument that can't be used, and creates nothing.
        """
        self._owned: Store | None = None  # the store, if it was opened here
        if not isinstance(store, str | PathLike):
            check_store(store)
        wanted = "the id of a conversation of this store, or what Store.get returns"
        check_argument(conversation, (str, StoredHistory, NoneType), "$.conversation", wanted)
        _check_functions(executor, count, on_tool_error)
        check_argument(prices, (Prices, NoneType), "$.prices", "Prices({NAME: ModelPrice(…)})")
        wanted, instead = "ToolLimits(…)", "Limits(…) of a run go to ask"
        check_argument(limits, (ToolLimits, NoneType), "$.limits", wanted, instead)
        check_argument(events, (EventBus, NoneType), "$.events", "an EventBus")
        if instrumentation is not None:
            _check_instrumentation(instrumentation)
        if token_limit is not None:
            check_number(token_limit, "$.token_limit", whole=True)
        if budget is not None:
            check_number(budget, "$.budget")
        check_lease(lease, wait)
        self._models: dict[str, Model] = {}  # by name
        self.model = self.find_model(model)
        self.tools = as_toolbox(tools)
        if isinstance(store, str | PathLike):
            self._owned = store = open_store(store)
        if conversation is None:
            conversation = store.create()
        try:
            history = store.get(conversation) if isinstance(conversation, str) else conversation
        except UnknownConversation as error:
            msg = f"{error}; leave it out for a new one, or make it: store.create(id=…)"
            raise UnknownConversation(msg) from None
        self.store = store
        self.history = history
        self.token_limit = token_limit
        self.budget = budget
        self.events = EventBus() if events is None else events
        self._count = with_fallback(counter() if count is None else count)
        self.tally = RunningTotal(self._count)
        announcer = ChangeAnnouncer.of(store, history, self.events)
        shared = SharedLease(store, history.id, seconds=lease, wait=wait)
        self._access = StoreAccess(store, history, self.tally, announcer, shared)
        self._executor = executor
        self._limits = ToolLimits() if limits is None else limits
        self._on_tool_error = on_tool_error
        self._prices = prices
        self._cost_is_limited = budget is not None
        self._instrumentation = instrumentation
        self._over_limit = False
        self.compacted: dict[str, int] = {}

    __reduce_ex__ = not_pickled("open it again: Conversation(store, talk.id, …) in each process")

    def __repr__(self) -> str:
        """Return the id, the number of messages and the model, as text."""
        ref = None if self.model is None else self.model.ref
        by = "" if ref is None else f", {ref.provider_id}:{ref.model_id}"
        return shorten(f"<Conversation {self.id}: {len(self):,} messages{by}>")

    def _repr_html_(self) -> str:
        """Return the conversation as a notebook shows it."""
        return self.history._repr_html_()

    def __rich__(self) -> Any:  # noqa: ANN401 - a table of rich
        """Return the conversation as `rich` shows it."""
        return self.history.__rich__()

    # ── messages ────────────────────────────────────────────────────────────────────────────────

    @property
    def id(self) -> str:
        """The conversation's id."""
        return self.history.id

    @property
    def messages(self) -> View:
        """The messages of the conversation now, as a read-only view."""
        return self.history.view

    def __len__(self) -> int:
        """Return how many messages it has."""
        return len(self.history.view)

    def add(
        self,
        message: Message | Mapping[str, Any],
        *,
        key: str | None = None,
        expect: Expected | None = None,
    ) -> Message:
        """Append a message and return it; with the same `key` it is appended only once.

        `expect` is the version that it must follow; raises `VersionMismatch` if that is not the
        newest, and `ValidationError` if the message has no role or no content.
        """
        return self.history.append(_read_message(message), key=key, expect=expect)

    def recent(self, count: int) -> list[Message]:
        """Return the last so many messages."""
        return self.history.recent(count)

    def by_role(self, role: Role) -> list[Message]:
        """Return the messages of a role."""
        return self.history.by_role(role)

    def clear(self) -> Result:
        """Remove all messages but the system messages; `undo` restores them."""
        return self.history.clear()

    # ── questions ───────────────────────────────────────────────────────────────────────────────

    @overload
    async def ask(
        self, message: Message | Mapping[str, Any] | str | None = None,
        *, output: None = None, **settings: Unpack[RunSettings],
    ) -> RunResult: ...  # fmt: skip
    @overload
    async def ask(
        self, message: Message | Mapping[str, Any] | str | None = None,
        *, output: type[_T], **settings: Unpack[RunSettings],
    ) -> _T: ...  # fmt: skip
    async def ask(
        self,
        message: Message | Mapping[str, Any] | str | None = None,
        *,
        output: type[_T] | None = None,
        **settings: Unpack[RunSettings],
    ) -> RunResult | _T:
        """Add a message, and ask the model and run its tools until there is an answer.

        A text is what the user says; without a message, the conversation goes on as it is. With
        `output`, the answer is a value of that type: the model gets its schema, is asked again if
        its answer does not fit, and `BadAnswer` is raised if none does.

        The settings: `model`, `tools` and `options` as in `step`; `limits` of this run; `approve`
        decides about each call that needs an approval: it returns True, False, a reason to deny it
        or a `Decision`; `around` wraps every call; with the same `key` a question is asked only
        once, and goes on where a crash cut it off.
        """
        question = None if message is None else _read_question(message)
        check_settings(self, settings, "ask")
        kind = None if output is None else OutputType(output)
        answer, value = await ask(self, question, settings=settings, output=kind)
        if output is None:
            return answer
        if answer.waiting:
            names = ", ".join(call.tool for call in answer.waiting)
            msg = f"no answer yet: calls wait for an approval ({names}); give approve="
            raise ValidationError(msg, path="$.approve", rule="approval")
        return cast("_T", value)

    def ask_sync(
        self,
        message: Message | Mapping[str, Any] | str | None = None,
        **settings: Any,  # noqa: ANN401 - those of `ask`
    ) -> Any:  # noqa: ANN401 - an RunResult, or a value of the wanted type
        """Do what `ask` does, for programs without an event loop."""
        try:
            current_token()
        except RuntimeError:  # no event loop
            pass
        else:
            msg = "ask_sync() would block the event loop that runs here; write `await talk.ask(…)`"
            raise RuntimeError(msg)
        return anyio.run(self._ask_and_disconnect, message, settings)

    async def _ask_and_disconnect(
        self, message: Message | Mapping[str, Any] | str | None, settings: dict[str, Any]
    ) -> Any:  # noqa: ANN401 - as above
        """Ask, and close the connections: no other event loop can use them."""
        try:
            return await self.ask(message, **settings)
        finally:
            for used in (self.model, settings.get("model"), *self._models.values()):
                if isinstance(used, SdkModel):
                    await used.close()

    def stream(
        self,
        message: Message | Mapping[str, Any] | str | None = None,
        **settings: Unpack[RunSettings],
    ) -> RunStream:
        """Do what `ask` does, and yield what happens: pieces, steps, outcomes, then the result.

        A piece is a `TextDelta`, `ReasoningDelta` or another of `palaver.wire.reply`.
        """
        question = None if message is None else _read_question(message)
        check_settings(self, settings, "stream")

        async def run(send: Callable[[RunEvent], None], cancelled: Callable[[], bool]) -> RunResult:
            asked = ask(self, question, settings=settings, on_event=send, cancelled=cancelled)
            return (await asked)[0]

        return RunStream(run)

    def find_model(self, model: AnyModel | None) -> Model | None:
        """Return what was given as a model; the model of a name is made once."""
        if not isinstance(model, str):
            return None if model is None else as_model(model)
        if model not in self._models:
            self._models[model] = as_model(model)
        return self._models[model]

    def check_price(self, model: ModelRef, limit: str, path: str) -> None:
        """Raise `ValidationError` if no price of a model is known: a cost can't be limited then."""
        if model.provider_id == LOCAL_PROVIDER:
            return
        self._cost_is_limited = True
        self._prices = self._prices or Prices()
        try:
            known = self._prices.knows(model)
        except Exception:  # noqa: BLE001 - a table that fails knows nothing
            _log.warning("looking up the price of a model failed", exc_info=True)
            known = False
        if not known:
            name = f"{model.provider_id}:{model.model_id}"
            detail = (
                f"{limit} can't be kept, because no price is known for {name}; pass "
                f"prices=Prices({{{name!r}: ModelPrice(input=…, output=…)}}) with dollars per "
                "million tokens, or install the usual prices: pip install 'palaver[prices]'"
            )
            raise ValidationError(detail, path=path, rule="no-price")

    async def hold(
        self, work: Callable[[], Awaitable[_T]], *, cancelled: Callable[[], bool] | None = None
    ) -> _T:
        """Do something while no other worker may take a step here, nor this one in another task.

        Raises `LeaseTaken` if somebody is at work already. Work that was told to end, as
        `cancelled` tells, is waited for: it only has to store what had arrived.
        """
        return await self._access.lease.hold(work, cancelled=cancelled)

    def share_lease(self, lease: SharedLease) -> None:
        """Work under a lease that the caller takes and renews, as a team does."""
        self._access.lease = lease

    async def close(self) -> None:
        """Close the models and the store that this conversation opened itself."""
        for made in self._models.values():
            await made.close()
        if self._owned is not None:
            await to_thread.run_sync(self._owned.close)

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close what it opened."""
        await self.close()

    # ── steps ───────────────────────────────────────────────────────────────────────────────────

    async def step(
        self,
        model: AnyModel | None = None,
        *,
        tools: Toolbox | Iterable[Tool | Callable[..., Any]] | None = None,
        options: Mapping[str, Any] = EMPTY,
        on_delta: OnDelta | None = None,
        key: str | None = None,
        on_begin: Callable[[str], object] | None = None,
    ) -> Step:
        """Ask a model once, and store its answer with its usage and its calls.

        `on_begin` gets the id that the answer will have, before the model is asked, and `on_delta`
        each piece as it arrives. If it fails, that is logged, and so it is with a
        counter, prices, an instrumentation or a handler that fails: an answer that has arrived is
        stored. An answer that is cut off by an error, a cancellation or a crash is stored as far as
        it had come, marked as interrupted; so is an answer longer than
        `palaver.messages.limits.MAX_ANSWER` bytes, with `OutputTooLong`. If a step with the same
        `key` has its answer already, that answer is returned and no model is asked.
        """
        chosen = self.model if model is None else self.find_model(model)
        if chosen is None:
            detail = "no model: give one to the step or to the conversation"
            raise ValidationError(detail, path="$.model", rule="no-model")
        check_argument(options, Mapping, "$.options", "an object, such as {'temperature': 0}")
        check_callable(on_delta, "$.on_delta", "a function that takes a piece of the answer")
        box = self.toolbox(tools)
        if self.token_limit is not None:
            await self.check_tokens(box)
        if self.budget is not None:
            await to_thread.run_sync(self._check_budget, self.budget, chosen.ref)
        observed: AbstractContextManager[Callable[[Message], None] | None] = nullcontext()
        if self._instrumentation is not None:
            enter = partial(self._instrumentation.step, self, chosen, box.specs, options)
            observed = observe(enter)
        with observed as on_answer:
            step = await take_step(
                self._access,
                chosen,
                box.specs,
                options=options,
                on_delta=on_delta,
                add_cost=self._add_cost,
                key=key,
                on_begin=on_begin,
            )
            if step.again:
                return step
            if on_answer is not None:
                on_answer(step.message)
        await self._publish("message.added", {"id": step.message.id, "role": "assistant"})
        for entry in step.entries:
            data = {"id": entry.id, "callID": entry.call_id, "tool": entry.tool}
            await self._publish("tool.pending", data)
        await self._publish("usage.updated", step.usage.to_dict())
        if step.cache is not None:
            await self._publish("cache.updated", cache_data(step.message, step.cache))
        if self.token_limit is not None:
            await self.check_tokens(box)
        return step

    async def run_tool(self, call: ToolCallPart) -> ToolOutcome:
        """Run one tool call and append its result."""
        return (await self.run_tools([call]))[0]

    async def run_tools(
        self,
        calls: Iterable[ToolCallPart],
        *,
        tools: Toolbox | Iterable[Tool | Callable[..., Any]] | None = None,
        around: ToolMiddleware | None = None,
        approved: Mapping[str, str | Decision] = EMPTY,
    ) -> list[ToolOutcome]:
        """Run tool calls side by side; their results are appended in the order of the calls.

        `around` gets each call and a function that runs it: it may refuse the call with
        `ToolFailed`, or run it with other arguments; another error of its own is raised here when
        the other calls are done. `approved` are the digests of calls that somebody approved, by the
        ids of their parts (see `digests`), or what was decided about them: a `Decision` with a
        digest is followed and recorded, and one that denies its call lets nothing run. Raises
        `CallChanged` if a call in the conversation differs from the one that is given or approved;
        then none of the calls has run.
        """
        given = _check_calls(calls)
        check_callable(around, "$.around", AROUND, takes=3)
        check_argument(approved, Mapping, "$.approved", "digests by the ids of calls")
        decided = {name: one for name, one in approved.items() if isinstance(one, Decision)}
        runner = ToolRunner(
            self.toolbox(tools),
            limits=self._limits,
            executor=self._executor,
            middleware=apply_decisions(decided, around) if decided else around,
            describe_error=self._on_tool_error,
        )
        batch = ToolCallBatch(self._access, self.events, runner, self._instrumentation)
        if not decided:
            return await batch.run(given, cast("Mapping[str, str]", approved))
        digests = {
            name: (one.digest or "") if isinstance(one, Decision) else one
            for name, one in approved.items()
        }
        metadata = {name: {"approval": one.record()} for name, one in decided.items()}
        return await batch.run(given, digests, metadata, allowances(given, decided))

    def toolbox(self, tools: Toolbox | Iterable[Tool | Callable[..., Any]] | None) -> Toolbox:
        """Return the given tools as a toolbox; without any, the conversation's own."""
        return self.tools if tools is None else as_toolbox(tools)

    async def recover(self, *, wait: float | None = None) -> list[Recovered]:
        """Settle what a crash left unfinished, and return what was found.

        Raises `LeaseTaken` while another worker has the lease. The lease of a worker that was
        killed lasts for a few seconds; `wait` is how many seconds to wait for it, in place of the
        conversation's own `wait`.
        """
        if wait is not None:
            check_number(wait, "$.wait")
        settle = partial(recover, self._access)
        return await self._access.lease.patiently(lambda: run_shielded(settle), wait)

    def recover_if_needed(self) -> None:
        """Settle what a crash left unfinished, if anything; for work that `hold` was given."""
        recover_if_needed(self._access)

    def waiting(self) -> list[ToolCallPart]:
        """Return the calls that were not started yet, in order: what `run_tools` takes."""
        return self._access.waiting()

    def digests(self, calls: Iterable[ToolCallPart]) -> dict[str, str]:
        """Return the digests that approvals of these calls name, by the ids of their parts.

        A digest covers the tool, the arguments and the version of the call's message, so that an
        approval says which call was shown. A call that is not in the conversation has none.

        >>> import palaver
        >>> from palaver.messages import assistant, new_id, tool_call_part
        >>> conversation = Conversation(palaver.open(":memory:"))
        >>> call = tool_call_part(new_id(), new_id(), "pay", {"amount": 5})
        >>> _ = conversation.add(assistant([call]))
        >>> len(conversation.digests([call])[call.id])
        64
        """
        return self._access.digests(_check_calls(calls))

    def ledger(self) -> dict[str, LedgerEntry]:
        """Return the calls that have no result in the log yet, by the id of their part."""
        return self._access.ledger()

    def request(self, model: AnyModel) -> Request:
        """Return the request that a model would get now, with notes on what was repaired."""
        chosen = as_model(model)
        self.history.refresh()
        return self._access.request(chosen.format, replace(chosen.target, model=chosen.ref))

    def cache_key(self) -> str:
        """Return what this conversation and its forks share for a provider's prompt cache."""
        return self._access.cache_key()

    # ── the cost of edits ───────────────────────────────────────────────────────────────────────

    def price(
        self, operation: Operation | Mapping[str, Any] | bytes | str, *, model: str | None = None
    ) -> PricedEdit:
        """Return what an operation would remove and break, and what it would cost; nothing changes.

        The cost is that of the next requests to a model, `provider:name`; without one, to the
        conversation's own, or to the one that was asked last. An unknown price is None.

        >>> import palaver
        >>> conversation = Conversation(palaver.open(":memory:"))
        >>> _ = [conversation.add(palaver.user(text)) for text in ("one", "two", "three")]
        >>> priced = conversation.price({"operation": "TRUNCATE", "keepLast": 1})
        >>> len(priced.impact.removed), priced.cost.now, priced.cost.explanation
        (2, None, 'no model was asked yet, and none is named')
        """
        self.history.refresh()
        impact = self.history.price(operation, tokens=self.tally.weigh)
        return PricedEdit(impact, self.cost_of(impact, model=model))

    def cost_of(self, impact: Impact, *, model: str | None = None) -> EditCost:
        """Return what an edit with this impact would cost; see `price`."""
        prefixes = read_prefixes(self.store.records(self.id, CACHE))
        if model is not None:
            provider, colon, name = model.partition(":")
            if not (provider and colon and name):
                detail = f"must be provider:name, such as openai:gpt-5, not {model!r}"
                raise ValidationError(detail, path="$.model", rule="model")
            ref: ModelRef | None = ModelRef(provider, name)
        elif self.model is not None:
            ref = self.model.ref
        else:
            newest = last_request(prefixes, None)
            ref = _last_model(self.history.view) if newest is None else newest.model
        return cost_of_edit(
            impact, self.tally.total(self.history.view), model=ref, at=now_ms(), usage=self.usage,
            prices=self._prices or Prices(),
            last=None if ref is None else last_request(prefixes, ref),
        )  # fmt: skip

    # ── edits that wait ─────────────────────────────────────────────────────────────────────────

    def defer(self, operation: OperationInput, *, detail: str = "") -> DeferredEdit:
        """Store an edit that is applied when the provider's cache breaks anyway.

        That is before a request to another model, with other tools, after the cache has expired, or
        after a compaction or another edit before it. Until then nothing changes. Raises
        `ValidationError` for an operation that can't wait, and for one that removes messages that
        another one removes already.

        >>> import palaver
        >>> conversation = Conversation(palaver.open(":memory:"))
        >>> _ = [conversation.add(palaver.user(text)) for text in ("one", "two", "three")]
        >>> edit = conversation.defer({"operation": "TRUNCATE", "keepLast": 1}, detail="tidy up")
        >>> len(conversation), [waiting.detail for waiting in conversation.deferred()]
        (3, ['tidy up'])
        >>> conversation.cancel_deferred(edit.id).detail, conversation.deferred()
        ('tidy up', [])
        """
        view, weigh = self.history.refresh().view, self.tally.weigh
        edit = plan_deferred(view, operation, detail)
        twice = next((other for other in self.deferred() if other.overlaps(edit)), None)
        if twice is not None:
            problem = f"removes what {twice.id} removes already, which waits: {twice.detail}"
            raise ValidationError(problem, path="$", rule="deferred-twice")
        log = view.log
        freed = sum(weigh(m) for start, stop in edit.removed for m in log.between(start, stop))
        edit = replace(edit, tokens=freed - sum(weigh(one.message) for one in edit.added))
        self.store.put_records(self.id, [edit.record()])
        return edit

    def deferred(self) -> list[DeferredEdit]:
        """Return the edits that wait, the oldest first; `problem` says why one can't be applied."""
        return read_deferred(self.store.records(self.id, DEFERRED))

    def cancel_deferred(self, name: str) -> DeferredEdit:
        """Remove an edit that waits, and return it; `ValidationError` if no such edit waits."""
        found = next((edit for edit in self.deferred() if edit.id == name), None)
        if found is None:
            detail = f"no edit {name!r} waits; it was applied or cancelled, or never made"
            raise ValidationError(detail, path="$.name", rule="deferred")
        self.store.put_records(self.id, [(DEFERRED, name, None)])
        return found

    def apply_deferred(self) -> list[DeferredEdit]:
        """Apply the edits that wait now, in one batch, and return those that were applied.

        Those that no longer fit wait on, with their `problem`.
        """
        return apply_edits(self.store, self.history, self.deferred())[0]

    # ── tokens ──────────────────────────────────────────────────────────────────────────────────

    @property
    def usage(self) -> Usage:
        """The token usage of the last request, and of all requests together."""
        return self._access.usage()

    def tokens(self, tools: Toolbox | Iterable[Tool | Callable[..., Any]] | None = None) -> int:
        """Return how many tokens the conversation has now.

        It is the provider's figure for the last request, plus palaver's own count of what was added
        or removed since.
        """
        usage, now = self.usage, self.tally.total(self.history.view)
        reported = usage.reported
        if reported is not None:
            return max(0, reported + now - self._counted_at(usage))
        box = self.toolbox(tools)
        return now + sum(weigh_schema(spec, self._count) for spec in box.specs)

    def _counted_at(self, usage: Usage) -> int:
        """Return palaver's count at the last answer, by the counter that counts now."""
        try:
            return self.tally.total(self.history.at(usage.version))
        except PalaverError:  # that version can't be read any more
            return usage.counted

    def count_messages(self) -> int:
        """Return how many tokens the messages have by palaver's own count."""
        return self.tally.total(self.history.view)

    async def check_tokens(self, tools: Toolbox | None = None) -> int:
        """Count the tokens; publish `tokens.exceeded` once for each crossing of the limit."""
        count = await to_thread.run_sync(self.tokens, tools)
        over = self.token_limit is not None and count > self.token_limit
        if over and not self._over_limit:
            self._over_limit = True
            usage = await self.ausage()
            known = "count" if usage.reported is None else "api"
            data = {"tokens": count, "limit": self.token_limit, "source": known}
            await self._publish("tokens.exceeded", data)
            count = await to_thread.run_sync(self.tokens, tools)
            over = self.token_limit is not None and count > self.token_limit
        self._over_limit = over
        return count

    def _check_budget(self, budget: float, model: ModelRef) -> None:
        spent = self.usage.cost or 0.0
        if spent >= budget:
            detail = f"{spent:.4f} of {budget:.4f} are spent: no further step is begun"
            raise BudgetExceeded(detail)
        self.check_price(model, f"a budget of {budget}", "$.budget")

    def _add_cost(self, message: Message) -> Message:
        """Return an answer with its cost; a price table that fails or answers nonsense has none.

        Where the cost is limited, what the provider did not count is taken from palaver's count.
        """
        prices = self._prices
        if prices is None and self.budget is None:
            return message
        try:
            prices = prices or Prices()
            info = prices.add_cost(message).info
            if (
                (self._cost_is_limited or self.budget is not None)
                and isinstance(info, AssistantInfo)
                and info.model is not None
                and info.cost is None
                and info.tokens is None
            ):
                prompt, added = self.tally.total(self.history.view), self.tally.weigh(message)
                counted = TokenCounts(prompt, added, 0, CacheCounts())
                cost = prices.cost(info.model, counted)
                info = replace(info, cost=cost, cost_computed=cost is not None)
            return replace(message, info=info)
        except Exception:  # noqa: BLE001 - the answer is there, and must be stored
            _log.warning("the cost of an answer is unknown: its price failed", exc_info=True)
            return message

    # ── events ──────────────────────────────────────────────────────────────────────────────────

    def publishing_itself(self) -> AbstractContextManager[None]:
        """Announce nothing that this thread changes in the block: the caller publishes it."""
        return self._access.announcer.silently()

    async def _publish(self, name: Any, data: Mapping[str, Any]) -> None:  # noqa: ANN401 - a Name
        if self.events.wanted(name):
            await self.events.publish(Event(name, self.id, self.history.version, data))

    # ── async twins ─────────────────────────────────────────────────────────────────────────────

    def _messages(self) -> list[Message]:
        """Return the messages of the conversation now, read in a worker thread."""
        return self.history.messages

    def _usage(self) -> Usage:
        """Return the token usage of the last request and of all together (see `usage`)."""
        return self.usage

    aadd = in_thread(add)
    amessages = in_thread(_messages)
    arecent = in_thread(recent)
    aby_role = in_thread(by_role)
    aclear = in_thread(clear)
    awaiting = in_thread(waiting)
    adigests = in_thread(digests)
    aledger = in_thread(ledger)
    aprice = in_thread(price)
    acost_of = in_thread(cost_of)
    adefer = in_thread(defer)
    adeferred = in_thread(deferred)
    acancel_deferred = in_thread(cancel_deferred)
    aapply_deferred = in_thread(apply_deferred)
    arequest = in_thread(request)
    acache_key = in_thread(cache_key)
    ausage = in_thread(_usage)
    atokens = in_thread(tokens)
    acount_messages = in_thread(count_messages)
