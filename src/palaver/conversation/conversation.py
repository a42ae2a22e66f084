"""A conversation: a history in a store, with models, tools and events.

It takes one step at a time and never decides to take another: the engine that uses it does. The
module `run` has a loop for everyone without an engine.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack, cast, overload

import anyio
from anyio import to_thread
from msgspec.structs import replace

from palaver.conversation.lease import run_shielded
from palaver.conversation.recovery import recover
from palaver.conversation.run import OutputType, RunResult, RunSettings, RunStream, ask
from palaver.conversation.step import ToolCallBatch, take_step
from palaver.conversation.store_access import StoreAccess
from palaver.errors import BudgetExceeded, LeaseTaken, ValidationError
from palaver.events import Event, EventBus
from palaver.messages import CacheCounts, Message, TokenCounts, parse_message
from palaver.messages.limits import EMPTY
from palaver.models import model as make_model
from palaver.models.base import LOCAL_PROVIDER
from palaver.stores import Store, open_store
from palaver.tokens import RunningTotal, counter, weigh_schema, with_fallback
from palaver.tools import Toolbox
from palaver.tools.runner import ToolLimits, ToolRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from os import PathLike

    from palaver.conversation.ledger import LedgerEntry
    from palaver.conversation.recovery import Recovered
    from palaver.conversation.run import RunEvent
    from palaver.conversation.step import OnDelta, Step, ToolOutcome
    from palaver.conversation.telemetry import Instrumentation
    from palaver.conversation.usage import Prices, Usage
    from palaver.history import Expected, View
    from palaver.history.view import Result
    from palaver.messages import Role, ToolCallPart
    from palaver.models.base import Model
    from palaver.stores import StoredHistory
    from palaver.tokens import TokenCounter
    from palaver.tools import Tool
    from palaver.tools.runner import Executor, ToolMiddleware
    from palaver.wire import Request

__all__ = ["Conversation"]

_T = TypeVar("_T")
_POLL_SECONDS: Final = 0.25
_NOT_A_MESSAGE: Final = "Invalid message format: role and content are required"


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

    def __init__(
        self,
        store: Store | str | PathLike[str],
        conversation: StoredHistory | str | None = None,
        *,
        model: Model | str | None = None,
        tools: Toolbox | Iterable[Tool | Callable[..., Any]] = (),
        executor: Executor | None = None,
        token_limit: int | None = None,
        count: TokenCounter | None = None,
        prices: Prices | None = None,
        budget: float | None = None,
        limits: ToolLimits | None = None,
        events: EventBus | None = None,
        instrumentation: Instrumentation | None = None,
    ) -> None:
        """Open a conversation of a store by its id, or create a new one.

        `store` may be the path or URL of one, which is opened and closed with the conversation;
        `model` may be a name, as in `openai:gpt-5`.

        When there are more than `token_limit` tokens, the event `tokens.exceeded` is published.
        `budget` is a cost: once it is spent, no further step is begun. `executor` runs calls in
        place of the tools, `count` counts tokens in place of the best counter available, `limits`
        are those of tool calls, `instrumentation` wraps every request and call
        (`telemetry.Telemetry`).
        """
        self._owns_store = not isinstance(store, Store)
        store = store if isinstance(store, Store) else open_store(store)
        self._models: dict[str, Model] = {}
        if conversation is None:
            conversation = store.create()
        history = store.get(conversation) if isinstance(conversation, str) else conversation
        self.store = store
        self.history = history
        self.model = self.find_model(model)
        self.tools = tools if isinstance(tools, Toolbox) else Toolbox(tools)
        self.token_limit = token_limit
        self.budget = budget
        self.events = EventBus() if events is None else events
        self._count = with_fallback(counter() if count is None else count)
        self.tally = RunningTotal(self._count)
        self._access = StoreAccess(store, history, self.tally)
        self._executor = executor
        self._limits = ToolLimits() if limits is None else limits
        self._prices = prices
        self._instrumentation = instrumentation
        self._over_limit = False
        self.compacted: dict[str, int] = {}

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
        if not isinstance(message, Message):
            if not (message.get("role") and "content" in message):
                raise ValidationError(_NOT_A_MESSAGE, path="$", rule="empty-message")
            message = parse_message(message)
        if message.role in ("user", "system") and not message.content:
            raise ValidationError(_NOT_A_MESSAGE, path="$.content", rule="empty-message")
        stored = self.history.append(message, key=key, expect=expect)
        self._emit("message.added", {"id": stored.id, "role": stored.role})
        return stored

    def recent(self, count: int) -> list[Message]:
        """Return the last so many messages."""
        return self.history.recent(count)

    def by_role(self, role: Role) -> list[Message]:
        """Return the messages of a role."""
        return self.history.query(role=role)

    def clear(self) -> Result:
        """Remove all messages but the system messages; `undo` restores them."""
        result = self.history.clear()
        self._emit("history.edited", {"operation": "CLEAR"})
        return result

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
        kind = None if output is None else OutputType(output)
        answer, value = await ask(self, message, settings=settings, output=kind)
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
        return anyio.run(partial(self.ask, message, **settings))

    def stream(
        self,
        message: Message | Mapping[str, Any] | str | None = None,
        **settings: Unpack[RunSettings],
    ) -> RunStream:
        """Do what `ask` does, and yield what happens: pieces, steps, outcomes, then the result.

        A piece is a `TextDelta`, `ReasoningDelta` or another of `palaver.wire.reply`.
        """

        async def run(send: Callable[[RunEvent], None]) -> RunResult:
            return (await ask(self, message, settings=settings, on_event=send))[0]

        return RunStream(run)

    def find_model(self, model: Model | str | None) -> Model | None:
        """Return a model by its name, which is made once; anything else as it is."""
        if not isinstance(model, str):
            return model
        if model not in self._models:
            self._models[model] = make_model(model)
        return self._models[model]

    def check_price(self, model: Model, path: str) -> None:
        """Raise `ValidationError` if what a model costs is not known: a cost can't be limited."""
        if model.ref.provider_id == LOCAL_PROVIDER:
            return
        tokens = TokenCounts(1_000, 1_000, 0, CacheCounts())
        if self._prices is None or self._prices.cost(model.ref, tokens) is None:
            name = f"{model.ref.provider_id}:{model.ref.model_id}"
            detail = f"the price of {name} is not known, so its cost can't be limited: give the "
            detail += f'conversation prices=Prices({{"{name}": ModelPrice(input, output)}}), in '
            detail += "dollars for a million tokens, or limit total_tokens"
            raise ValidationError(detail, path=path, rule="unknown-price")

    async def close(self) -> None:
        """Close the models and the store that this conversation opened itself."""
        for made in self._models.values():
            await made.close()
        if self._owns_store:
            await to_thread.run_sync(self.store.close)

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close what it opened."""
        await self.close()

    # ── steps ───────────────────────────────────────────────────────────────────────────────────

    async def step(
        self,
        model: Model | None = None,
        *,
        tools: Toolbox | Iterable[Tool | Callable[..., Any]] | None = None,
        options: Mapping[str, Any] = EMPTY,
        on_delta: OnDelta | None = None,
        key: str | None = None,
    ) -> Step:
        """Ask a model once, and store its answer with its usage and its calls.

        `on_delta` gets each piece as it arrives. An answer that is cut off by an error, a
        cancellation or a crash is stored as far as it had come, marked as interrupted; so is an
        answer longer than `palaver.messages.limits.MAX_ANSWER` bytes, with `OutputTooLong`. If a
        step with the same `key` has its answer already, that answer is returned and no model is
        asked.
        """
        chosen = self.model if model is None else model
        if chosen is None:
            detail = "no model: give one to the step or to the conversation"
            raise ValidationError(detail, path="$.model", rule="no-model")
        box = self.toolbox(tools)
        if self.token_limit is not None:
            await self.check_tokens(box)
        if self.budget is not None:
            await to_thread.run_sync(self._check_budget, self.budget)
        instrumentation = self._instrumentation
        observed: AbstractContextManager[Callable[[Message], None] | None] = nullcontext()
        if instrumentation is not None:
            observed = instrumentation.step(self, chosen, box.specs, options)
        with observed as on_answer:
            step = await take_step(
                self._access,
                chosen,
                box.specs,
                options=options,
                on_delta=on_delta,
                add_cost=self._add_cost,
                key=key,
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
        approved: Mapping[str, str] = EMPTY,
    ) -> list[ToolOutcome]:
        """Run tool calls side by side; their results are appended in the order of the calls.

        `around` gets each call and a function that runs it: it may refuse the call, or run it
        with other arguments. `approved` are the digests of calls that somebody approved, by the ids
        of their parts (see `digests`). Raises `CallChanged` if a call in the conversation differs
        from the one that is given or approved; then none of the calls has run.
        """
        runner = ToolRunner(
            self.toolbox(tools),
            limits=self._limits,
            executor=self._executor,
            middleware=around,
        )
        batch = ToolCallBatch(self._access, self.events, runner, self._instrumentation)
        return await batch.run(list(calls), approved)

    def toolbox(self, tools: Toolbox | Iterable[Tool | Callable[..., Any]] | None) -> Toolbox:
        """Return the given tools as a toolbox; without any, the conversation's own."""
        if tools is None:
            return self.tools
        return tools if isinstance(tools, Toolbox) else Toolbox(tools)

    async def recover(self, *, wait: float = 0.0) -> list[Recovered]:
        """Settle what a crash left unfinished, and return what was found.

        Raises `LeaseTaken` while another worker has the lease. The lease of a worker that was
        killed lasts for a few seconds; `wait` is how many seconds to wait for it.
        """
        until = anyio.current_time() + wait
        while True:
            try:
                return await run_shielded(partial(recover, self._access))
            except LeaseTaken:
                if anyio.current_time() >= until:
                    raise
            await anyio.sleep(_POLL_SECONDS)

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
        return self._access.digests(calls)

    def ledger(self) -> dict[str, LedgerEntry]:
        """Return the calls that have no result in the log yet, by the id of their part."""
        return self._access.ledger()

    def request(self, model: Model) -> Request:
        """Return the request that a model would get now, with notes on what was repaired."""
        self.history.refresh()
        return self._access.request(model.format, replace(model.target, model=model.ref))

    # ── tokens ──────────────────────────────────────────────────────────────────────────────────

    @property
    def usage(self) -> Usage:
        """The token usage of the last request, and of all requests together."""
        return self._access.usage()

    def tokens(self, tools: Toolbox | None = None) -> int:
        """Return how many tokens the conversation has now.

        It is the provider's figure for the last request, plus palaver's own count of what was added
        or removed since.
        """
        usage, now = self.usage, self.tally.total(self.history.view)
        if usage.last is not None:
            return max(0, usage.last.prompt + usage.last.completion + now - usage.counted)
        box = self.tools if tools is None else tools
        return now + sum(weigh_schema(spec, self._count) for spec in box.specs)

    async def check_tokens(self, tools: Toolbox | None = None) -> int:
        """Count the tokens; publish `tokens.exceeded` once for each crossing of the limit."""
        count = await to_thread.run_sync(self.tokens, tools)
        over = self.token_limit is not None and count > self.token_limit
        if over and not self._over_limit:
            self._over_limit = True
            usage = self.usage
            known = "api" if usage.last is not None else "count"
            data = {"tokens": count, "limit": self.token_limit, "source": known}
            await self._publish("tokens.exceeded", data)
            count = await to_thread.run_sync(self.tokens, tools)
            over = self.token_limit is not None and count > self.token_limit
        self._over_limit = over
        return count

    def _check_budget(self, budget: float) -> None:
        spent = self.usage.cost
        if spent is not None and spent >= budget:
            detail = f"{spent:.4f} of {budget:.4f} are spent: no further step is begun"
            raise BudgetExceeded(detail)

    def _add_cost(self, message: Message) -> Message:
        return message if self._prices is None else self._prices.add_cost(message)

    # ── events ──────────────────────────────────────────────────────────────────────────────────

    def _emit(self, name: Any, data: Mapping[str, Any]) -> None:  # noqa: ANN401 - a Name
        if self.events.wanted(name):
            self.events.emit(Event(name, self.id, self.history.version, data))

    async def _publish(self, name: Any, data: Mapping[str, Any]) -> None:  # noqa: ANN401 - a Name
        if self.events.wanted(name):
            await self.events.publish(Event(name, self.id, self.history.version, data))
