"""A conversation: a history in a store, with models, tools and events around it.

It takes one step at a time and never decides to take another: no loop and no termination is in
here. The engine that uses it decides; `loop` shows how little that needs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import to_thread
from msgspec.structs import replace

from palaver.conversation.cancellation import shielded
from palaver.conversation.desk import Desk
from palaver.conversation.recovery import recover
from palaver.conversation.running import Limits, Runner
from palaver.conversation.steps import ask
from palaver.conversation.tools import Toolbox
from palaver.conversation.watching import UNWATCHED
from palaver.errors import BudgetExceeded, LeaseTaken, ValidationError
from palaver.events import Event, Events
from palaver.messages import Message, parse_message
from palaver.messages.gate import EMPTY
from palaver.tokens import Tally, counter
from palaver.tokens.counters import sure
from palaver.tokens.weighing import weigh_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from palaver.conversation.ledger import Entry
    from palaver.conversation.models.base import Model
    from palaver.conversation.prices import Prices
    from palaver.conversation.recovery import Recovered
    from palaver.conversation.running import Outcome
    from palaver.conversation.steps import OnDelta, Step
    from palaver.conversation.tools import Tool
    from palaver.conversation.tools.base import Around, Executor
    from palaver.conversation.usage import Usage
    from palaver.conversation.watching import Watch
    from palaver.history import View
    from palaver.history.results import Result
    from palaver.messages import Role, ToolCallPart
    from palaver.stores.history import StoredHistory
    from palaver.stores.preconditions import Expected
    from palaver.stores.store import Store
    from palaver.tokens import Counter
    from palaver.wire import Request

__all__ = ["Conversation"]

_NAP: Final = 0.25
_NOT_A_MESSAGE: Final = "Invalid message format: role and content are required"


class Conversation:
    """One conversation at work.

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
        store: Store,
        conversation: StoredHistory | str | None = None,
        *,
        model: Model | None = None,
        tools: Toolbox | Iterable[Tool | Callable[..., Any]] = (),
        executor: Executor | None = None,
        token_limit: int | None = None,
        count: Counter | None = None,
        prices: Prices | None = None,
        budget: float | None = None,
        limits: Limits | None = None,
        events: Events | None = None,
        watch: Watch = UNWATCHED,
    ) -> None:
        """Open a conversation of a store by its id, or begin a new one.

        `token_limit` is what `tokens.exceeded` is told about; `budget` is a sum of money that no
        step is begun beyond. `executor` runs calls in place of the tools, `count` counts tokens in
        place of the best counter there is, `watch` is told of every question and call as it
        happens (`telemetry.Telemetry`).
        """
        if conversation is None:
            conversation = store.create()
        history = store.get(conversation) if isinstance(conversation, str) else conversation
        self.store = store
        self.history = history
        self.model = model
        self.tools = tools if isinstance(tools, Toolbox) else Toolbox(tools)
        self.token_limit = token_limit
        self.budget = budget
        self.events = Events() if events is None else events
        self._count = sure(counter() if count is None else count)
        self.tally = Tally(self._count)
        self._desk = Desk(store, history, self.tally)
        self._executor = executor
        self._limits = Limits() if limits is None else limits
        self._prices = prices
        self._watch = watch
        self._over = False
        self.compacted: dict[str, int] = {}

    # ── messages ────────────────────────────────────────────────────────────────────────────────

    @property
    def id(self) -> str:
        """The conversation's id."""
        return self.history.id

    @property
    def messages(self) -> View:
        """What the conversation is now; it can't be changed from outside."""
        return self.history.view

    def __len__(self) -> int:
        """How many messages it has."""
        return len(self.history.view)

    def add(
        self,
        message: Message | Mapping[str, Any],
        *,
        key: str | None = None,
        expect: Expected | None = None,
    ) -> Message:
        """Add a message at the end and return it; `key` makes doing it again harmless.

        `expect` is the version that it must follow; `VersionMismatch` where that is not the newest.
        """
        if not isinstance(message, Message):
            if not (message.get("role") and "content" in message):
                raise ValidationError(_NOT_A_MESSAGE, path="$", rule="CV-01")
            message = parse_message(message)
        if message.role in ("user", "system") and not message.content:
            raise ValidationError(_NOT_A_MESSAGE, path="$.content", rule="CV-01")
        kept = self.history.append(message, key=key, expect=expect)
        self._emit("message.added", {"id": kept.id, "role": kept.role})
        return kept

    def recent(self, count: int) -> list[Message]:
        """The last so many messages."""
        return self.history.recent(count)

    def by_role(self, role: Role) -> list[Message]:
        """The messages of a role."""
        return self.history.query(role=role)

    def clear(self) -> Result:
        """Empty the conversation but for its system messages; undo brings everything back."""
        result = self.history.clear()
        self._emit("history.edited", {"operation": "CLEAR"})
        return result

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
        """Ask a model once, and store what it answers with its usage and its calls.

        `on_delta` is told each piece as it arrives. What is cut off by an error, a cancellation or
        a crash is kept as far as it had come, marked as interrupted; so is an answer that is longer
        than `palaver.messages.MAX_ANSWER` bytes, with `OutputTooLong`. `key` makes doing it again
        harmless: where the step has its answer already, that is returned and nobody is asked.
        """
        chosen = self.model if model is None else model
        if chosen is None:
            detail = "no model: give one to the step or to the conversation"
            raise ValidationError(detail, path="$.model", rule="CV-01")
        box = self._toolbox(tools)
        if self.token_limit is not None:
            await self.check_tokens(box)
        if self.budget is not None:
            await to_thread.run_sync(self._check_budget, self.budget)
        with self._watch.step(self, chosen, box.specs, options) as answered:
            step = await ask(
                self._desk,
                chosen,
                box.specs,
                options=options,
                on_delta=on_delta,
                finished=self._priced,
                key=key,
            )
            if step.again:
                return step
            answered(step.message)
        await self._publish("message.added", {"id": step.message.id, "role": "assistant"})
        for entry in step.entries:
            data = {"id": entry.id, "callID": entry.call_id, "tool": entry.tool}
            await self._publish("tool.pending", data)
        await self._publish("usage.updated", step.usage.to_dict())
        if self.token_limit is not None:
            await self.check_tokens(box)
        return step

    async def run_tool(self, call: ToolCallPart) -> Outcome:
        """Run one tool call and append its result."""
        return (await self.run_tools([call]))[0]

    async def run_tools(
        self,
        calls: Iterable[ToolCallPart],
        *,
        tools: Toolbox | Iterable[Tool | Callable[..., Any]] | None = None,
        around: Around | None = None,
        approved: Mapping[str, str] = EMPTY,
    ) -> list[Outcome]:
        """Run tool calls side by side; their results are appended in the order of the calls.

        `around` is given each call and the way to run it: it may refuse, or run it with other
        arguments. `approved` has the digests of calls that somebody approved, by the ids of their
        parts (see `digests`). A call that reads otherwise in the conversation than it is given, or
        than it was approved, raises `CallChanged`; then none of the calls has run.
        """
        box = self._toolbox(tools)
        runner = Runner(
            self._desk,
            self.events,
            box,
            limits=self._limits,
            executor=self._executor,
            watch=self._watch,
            around=around,
        )
        return await runner.run(list(calls), approved)

    async def recover(self, *, wait: float = 0.0) -> list[Recovered]:
        """Settle what a crash has left behind, and say what was found.

        `LeaseTaken` while another worker is at it. One that was killed seems to be for up to a
        minute: so long its lease lasts, and so many seconds this may `wait`.
        """
        until = anyio.current_time() + wait
        while True:
            try:
                return await shielded(partial(recover, self._desk))
            except LeaseTaken:
                if anyio.current_time() >= until:
                    raise
            await anyio.sleep(_NAP)

    def waiting(self) -> list[ToolCallPart]:
        """The calls that nobody has begun to run yet, in order: what `run_tools` takes."""
        return self._desk.waiting()

    def digests(self, calls: Iterable[ToolCallPart]) -> dict[str, str]:
        """The digests that approvals of these calls name, by the ids of their parts.

        A digest covers the tool, the arguments and the version of the call's message: whoever
        approves a call says which one was shown. A call that is not in the conversation has none.

        >>> import palaver
        >>> from palaver.messages import assistant, new_id, tool_call_part
        >>> conversation = Conversation(palaver.open(":memory:"))
        >>> call = tool_call_part(new_id(), new_id(), "pay", {"amount": 5})
        >>> _ = conversation.add(assistant([call]))
        >>> len(conversation.digests([call])[call.id])
        64
        """
        return self._desk.digests(calls)

    def ledger(self) -> dict[str, Entry]:
        """The calls that have no result in the log yet, by the id of their part."""
        return self._desk.ledger()

    def request(self, model: Model) -> Request:
        """What a model would be sent now, with what had to be repaired."""
        self.history.refresh()
        return self._desk.request(model.format, replace(model.target, model=model.ref))

    # ── tokens ──────────────────────────────────────────────────────────────────────────────────

    @property
    def usage(self) -> Usage:
        """What the last call used, and all of them together."""
        return self._desk.usage()

    def tokens(self, tools: Toolbox | None = None) -> int:
        """How many tokens the conversation has now.

        The provider's figure for what it counted, and our own count of what came in or left since.
        """
        usage, now = self.usage, self.tally.total(self.history.view)
        if usage.last is not None:
            return max(0, usage.last.prompt + usage.last.completion + now - usage.counted)
        box = self.tools if tools is None else tools
        return now + sum(weigh_schema(spec, self._count) for spec in box.specs)

    async def check_tokens(self, tools: Toolbox | None = None) -> int:
        """Count, and tell `tokens.exceeded` when the limit is crossed: once for each crossing."""
        count = await to_thread.run_sync(self.tokens, tools)
        over = self.token_limit is not None and count > self.token_limit
        if over and not self._over:
            self._over = True
            usage = self.usage
            known = "api" if usage.last is not None else "count"
            data = {"tokens": count, "limit": self.token_limit, "source": known}
            await self._publish("tokens.exceeded", data)
            count = await to_thread.run_sync(self.tokens, tools)
            over = self.token_limit is not None and count > self.token_limit
        self._over = over
        return count

    def _check_budget(self, budget: float) -> None:
        spent = self.usage.cost
        if spent is not None and spent >= budget:
            detail = f"{spent:.4f} of {budget:.4f} are spent: no further step is begun"
            raise BudgetExceeded(detail)

    def _priced(self, message: Message) -> Message:
        return message if self._prices is None else self._prices.priced(message)

    # ── events ──────────────────────────────────────────────────────────────────────────────────

    def _toolbox(self, tools: Toolbox | Iterable[Tool | Callable[..., Any]] | None) -> Toolbox:
        if tools is None:
            return self.tools
        return tools if isinstance(tools, Toolbox) else Toolbox(tools)

    def _emit(self, name: Any, data: Mapping[str, Any]) -> None:  # noqa: ANN401 - a Name
        if self.events.wanted(name):
            self.events.emit(Event(name, self.id, self.history.version, data))

    async def _publish(self, name: Any, data: Mapping[str, Any]) -> None:  # noqa: ANN401 - a Name
        if self.events.wanted(name):
            await self.events.publish(Event(name, self.id, self.history.version, data))
