"""Compaction: making a conversation shorter, by hand or when it exceeds its token limit.

A strategy plans which messages go and what replaces them; a plan that does not make the
conversation shorter is refused. The result is an ordinary edit: one batch, with its impact known
before, undone like any other. Marked messages, open calls and the roles asked for stay unchanged.
No strategy runs twice on the same version. A group of messages is an answer with its calls and
their results; strategies remove whole groups, so that no call loses its result.

A provider's prompt cache holds the beginning of a request, byte for byte. So the model that the
conversation talks to is asked for a summary with the conversation's own request and one instruction
more, and outputs are cleared from where the gain is worth what has to be written again.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from palaver import wire
from palaver.conversation.conversation import Conversation
from palaver.errors import CompactionRefused, ValidationError
from palaver.events import Event
from palaver.history import SUMMARY_OF, Impact, Piece, Rewrite, View, check_expected
from palaver.messages import (
    AssistantInfo,
    Message,
    ModelRef,
    Role,
    ToolCallPart,
    ToolCompleted,
    ToolPart,
    UnknownPart,
    UserInfo,
    new_id,
    text_part,
    user,
)
from palaver.messages.ids import now_ms
from palaver.messages.limits import (
    MAX_ANSWER,
    check_argument,
    check_callable,
    check_number,
    describe_argument,
)
from palaver.messages.message import Summary
from palaver.messages.parts import compaction_part
from palaver.messages.turns import session_of
from palaver.models import AnyModel, GeneratingModel, as_model
from palaver.models.base import Model, ModelRequest
from palaver.wire import ToolSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.conversation.deferred import DeferredEdit
    from palaver.history import Expected

__all__ = [
    "INSTRUCTIONS",
    "ClearOutputs",
    "Compaction",
    "CompactionInput",
    "CompactionPlan",
    "CompactionPreview",
    "DropOldest",
    "MessageGroup",
    "Strategy",
    "Summarise",
    "auto_compact",
    "compact",
    "defer_compaction",
    "preview",
]

INSTRUCTIONS: Final = (
    "Sum up the conversation so far for whoever goes on with it. Keep: what the user wants and has "
    "decided, what was done and with what result, names, numbers, paths and open questions. Leave "
    "out greetings and what no longer matters. Write only the summary."
)
"""What `Summarise` tells its model."""
_NO_CALL: Final = "Call no tool."
_QUOTED: Final = 80
_CHARACTERS: Final = 4
"""So many characters of a tool's schema are about a token."""
_NO_ROLES: Final[frozenset[Role]] = frozenset()
_SYSTEM: Final[frozenset[Role]] = frozenset(("system",))


class MessageGroup(Struct, frozen=True):
    """Messages that stay or go together, from one index to before another."""

    start: int
    stop: int
    tokens: int
    stays: bool
    begins_turn: bool


class CompactionInput(Struct, frozen=True):
    """What a strategy gets: the messages, their tokens, and the groups that may go.

    `model`, `tools` and `cache_key` are those of the conversation's requests, and `answered_by` is
    the model of the newest answer: its provider's prompt cache holds the conversation.
    """

    view: View
    messages: list[Message]
    tokens: list[int]
    groups: tuple[MessageGroup, ...]
    weigh: Callable[[Message], int]
    open_calls: frozenset[str] = frozenset()
    model: Model | None = None
    tools: tuple[ToolSpec, ...] = ()
    cache_key: str = ""

    @property
    def total(self) -> int:
        """How many tokens there are in all, by palaver's own count."""
        return sum(self.tokens)

    @property
    def answered_by(self) -> ModelRef | None:
        """The model that gave the newest answer, if there is one."""
        infos = (message.info for message in reversed(self.messages))
        answers = (info for info in infos if isinstance(info, AssistantInfo) and not info.summary)
        return next((info.model for info in answers if info.model is not None), None)


class CompactionPlan(Struct, frozen=True):
    """The pieces that replace the conversation, and a description of what was done."""

    pieces: tuple[Piece, ...]
    detail: str


class Strategy(Protocol):
    """A way to make a conversation shorter."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def keep_roles(self) -> frozenset[Role]:
        """The roles whose messages stay unchanged."""
        ...

    async def plan(self, given: CompactionInput, /) -> CompactionPlan | None:
        """Return a plan; None if there is nothing to gain."""
        ...


class Compaction(Struct, frozen=True):
    """What a compaction did: its impact, and how many tokens it saved."""

    strategy: str
    detail: str
    version: int
    before: int
    after: int
    price: Impact

    @property
    def saved(self) -> int:
        """How many tokens it saved."""
        return self.before - self.after

    def to_dict(self) -> dict[str, Any]:
        """Return the compaction as JSON-ready data."""
        return {
            "strategy": self.strategy,
            "detail": self.detail,
            "version": self.version,
            "tokensBefore": self.before,
            "tokensAfter": self.after,
            "saved": self.saved,
            "price": self.price.to_dict(),
        }


class CompactionPreview(Struct, frozen=True):
    """What a compaction would do: its plan, its impact, and the tokens before and after."""

    strategy: str
    plan: CompactionPlan
    version: int
    before: int
    after: int
    price: Impact


async def preview(conversation: Conversation, strategy: Strategy) -> CompactionPreview | None:
    """Return what `compact` would do now, or raise what it would raise; nothing changes."""
    _check_arguments(conversation, strategy)
    given = await to_thread.run_sync(_prepare, conversation, strategy)
    plan = None if given is None else await strategy.plan(given)
    if given is None or plan is None:
        return None
    return await to_thread.run_sync(_preview, conversation, strategy, given, plan)


async def compact(
    conversation: Conversation, strategy: Strategy, *, expect: Expected | None = None
) -> Compaction | None:
    """Compact a conversation; None if there is nothing to gain, or nothing new since the last time.

    Raises `CompactionRefused` if the conversation would not become shorter; then nothing changes.
    `expect` is the version that it must follow; raises `VersionMismatch` if that is not the newest.
    """
    _check_arguments(conversation, strategy)
    given = await to_thread.run_sync(_prepare, conversation, strategy)
    check_expected(expect, conversation.history.version)
    if given is None:
        return None
    plan = await strategy.plan(given)
    if plan is None:
        return None
    done = await to_thread.run_sync(_apply, conversation, strategy, given, plan, expect)
    history = conversation.history
    event = Event("compaction.done", history.id, history.version, done.to_dict())
    await conversation.events.publish(event)
    return done


async def defer_compaction(conversation: Conversation, strategy: Strategy) -> DeferredEdit | None:
    """Plan a compaction now, and apply it when the provider's cache breaks anyway.

    It is an edit that waits (see `Conversation.defer`); None if there is nothing to gain, and
    `CompactionRefused` as with `compact`. What is added meanwhile stays.
    """
    found = await preview(conversation, strategy)
    if found is None:
        return None
    rewrite, detail = Rewrite(found.plan.pieces), f"{strategy.name}: {found.plan.detail}"
    try:
        return await to_thread.run_sync(lambda: conversation.defer(rewrite, detail=detail))
    except ValidationError as error:
        if error.rule != "deferred-twice":
            raise
        raise CompactionRefused(str(error)) from None


def auto_compact(
    conversation: Conversation, strategy: Strategy
) -> Callable[[Event], Awaitable[None]]:
    """Return a handler for `tokens.exceeded` that compacts; a refusal is logged by the bus.

    conversation.events.on("tokens.exceeded", auto_compact(conversation, ClearOutputs()))
    """
    _check_arguments(conversation, strategy)

    async def handle(_: Event) -> None:
        await compact(conversation, strategy)

    return handle


def _check_arguments(conversation: object, strategy: object) -> None:
    check_argument(conversation, Conversation, "$.conversation", "a Conversation")
    if isinstance(strategy, type) or not callable(getattr(strategy, "plan", None)):
        detail = "must be a strategy, such as ClearOutputs() or DropOldest(keep_tokens=…), not "
        raise ValidationError(
            detail + describe_argument(strategy), path="$.strategy", rule="argument"
        )


def _prepare(conversation: Conversation, strategy: Strategy) -> CompactionInput | None:
    history = conversation.history
    history.refresh()
    view, tally = history.view, conversation.tally
    if conversation.compacted.get(strategy.name) == view.version:
        return None
    ledger = conversation.ledger().values()
    given = _read_input(
        view,
        tally.each(view),
        tally.weigh,
        open_calls=frozenset(entry.call_id for entry in ledger),
        keep_roles=strategy.keep_roles,
    )
    return replace(
        given,
        open_calls=frozenset(entry.call_id for entry in ledger if not entry.done),
        model=conversation.model,
        tools=conversation.tools.specs,
        cache_key=conversation.cache_key(),
    )


def _preview(
    conversation: Conversation, strategy: Strategy, given: CompactionInput, plan: CompactionPlan
) -> CompactionPreview:
    """Return what a plan would do; refuse one that does not make the conversation shorter."""
    tally = conversation.tally
    rewrite = Rewrite(plan.pieces)
    added = sum(map(tally.weigh, rewrite.messages))
    remaining = sum(
        sum(given.tokens[piece.start : piece.stop])
        for piece in plan.pieces
        if isinstance(piece, range)
    )
    if added + remaining >= given.total:
        detail = f"{strategy.name} would leave {added + remaining:,} of {given.total:,} tokens"
        raise CompactionRefused(detail)
    price = conversation.history.price(rewrite, tokens=tally.weigh)
    version = given.view.version
    return CompactionPreview(strategy.name, plan, version, given.total, added + remaining, price)


def _apply(
    conversation: Conversation,
    strategy: Strategy,
    given: CompactionInput,
    plan: CompactionPlan,
    expect: Expected | None,
) -> Compaction:
    """Apply a plan if it makes the conversation shorter."""
    history, price = conversation.history, _preview(conversation, strategy, given, plan).price
    with conversation.publishing_itself():  # with more data than the change has
        history.rewrite(plan.pieces, expect=None if expect is None else given.view.version)
    version = history.version
    conversation.compacted[strategy.name] = version
    after = conversation.tally.total(history.view)
    return Compaction(strategy.name, plan.detail, version, given.total, after, price)


def _check_limits(strategy: Struct, *names: str) -> None:
    for name in names:
        check_number(getattr(strategy, name), f"$.{name}", whole=True)


# ── strategies ──────────────────────────────────────────────────────────────────────────────────


class ClearOutputs(Struct, frozen=True, kw_only=True):
    """Clear old tool outputs; the calls stay.

    A cleared result keeps its position and its state; only its output is no longer sent. The newest
    `protect_tokens` of output and the last `protect_turns` of the user are left unchanged, and
    nothing happens for a gain of less than `least_gain` tokens. Everything after the first cleared
    output has to be written to the provider's prompt cache again, so small outputs far before the
    others stay.
    """

    protect_tokens: int = 40_000
    protect_turns: int = 2
    least_gain: int = 20_000
    keep_roles: frozenset[Role] = _NO_ROLES
    name: str = "clear-outputs"

    def __post_init__(self) -> None:
        """Refuse a number that is no limit."""
        _check_limits(self, "protect_tokens", "protect_turns", "least_gain")

    async def plan(self, given: CompactionInput) -> CompactionPlan | None:
        """Replace old results by ones without output."""
        cleared: dict[int, Message] = {}
        gains: dict[int, int] = {}
        protected = 0
        end = _before_turns(given, self.protect_turns)
        for group in reversed(given.groups):
            for index in reversed(range(group.start, group.stop)):
                message = given.messages[index]
                if message.role != "tool" or not _has_output(message):
                    continue
                if index >= end or protected < self.protect_tokens:
                    protected += given.tokens[index]
                elif not group.stays:
                    emptied = _without_output(message)
                    gains[index] = given.tokens[index] - given.weigh(emptied)
                    cleared[index] = emptied
        first = _cheapest_start(given.tokens, gains, self.least_gain)
        if first is None:
            return None
        cleared = {index: message for index, message in cleared.items() if index >= first}
        pieces: list[Piece] = []
        start = 0
        for index in sorted(cleared):
            pieces += [range(start, index), (index, cleared[index])]
            start = index + 1
        pieces.append(range(start, len(given.messages)))
        return CompactionPlan(tuple(pieces), f"cleared the outputs of {len(cleared):,} tool calls")


_LATER: Final = 20
"""For so many requests a token less is counted as saved."""
_READ: Final = 0.1
_WRITE: Final = 1.25
"""What a token costs that is read from the cache or written to it, beside one that is neither."""


def _cheapest_start(tokens: Sequence[int], gains: dict[int, int], least: int) -> int | None:
    """Return the first message to clear, so that clearing saves most; None if it gains too little.

    A token less is saved in each later request; what remains from the first on is written again.
    """
    worth, net, gain, after = _LATER * _READ / (_WRITE - _READ), 0.0, 0, len(tokens)
    best: tuple[float, int] | None = None
    for index in sorted(gains, reverse=True):
        gain += gains[index]
        net += worth * gains[index] - (sum(tokens[index:after]) - gains[index])
        after = index
        if gain >= least and (best is None or net > best[0]):
            best = net, index
    return None if best is None else best[1]


def _before_turns(given: CompactionInput, turns: int) -> int:
    """Return the index at which the last so many turns of the user begin."""
    begins = [group.start for group in given.groups if group.begins_turn]
    if turns <= 0 or not begins:
        return len(given.messages)
    return begins[max(0, len(begins) - turns)]


def _has_output(message: Message) -> bool:
    return any(
        isinstance(part, ToolPart)
        and isinstance(part.state, ToolCompleted)
        and part.state.time.compacted is None
        for part in message.parts
    )


def _without_output(message: Message) -> Message:
    now = now_ms()
    parts = [
        replace(part, state=replace(part.state, time=replace(part.state.time, compacted=now)))
        if isinstance(part, ToolPart) and isinstance(part.state, ToolCompleted)
        else part
        for part in message.parts
    ]
    metadata = {**message.metadata, "clearedFrom": message.id}
    name = new_id()
    content = tuple(
        part if isinstance(part, UnknownPart) else replace(part, message_id=name) for part in parts
    )
    return replace(message, content=content, id=name, metadata=metadata)


class DropOldest(Struct, frozen=True, kw_only=True):
    """Drop the oldest groups until no more than `keep_tokens` are left.

    The user's last turn always stays. What is dropped is still in the version before.
    """

    keep_tokens: int
    keep_roles: frozenset[Role] = _SYSTEM
    name: str = "drop-oldest"

    def __post_init__(self) -> None:
        """Refuse a number that is no limit."""
        _check_limits(self, "keep_tokens")

    async def plan(self, given: CompactionInput) -> CompactionPlan | None:
        """Leave out the oldest groups that may go."""
        begins = [group.start for group in given.groups if group.begins_turn]
        last = begins[-1] if begins else len(given.messages)
        left, dropped = given.total, set[int]()
        for group in given.groups:
            if left <= self.keep_tokens or group.start >= last:
                break
            if not group.stays:
                left -= group.tokens
                dropped.update(range(group.start, group.stop))
        if not dropped:
            return None
        remaining = [index for index in range(len(given.messages)) if index not in dropped]
        return CompactionPlan(tuple(_to_ranges(remaining)), f"dropped {len(dropped):,} messages")


class Summarise(Struct, frozen=True, kw_only=True):
    """Replace everything but the newest `keep_tokens` by a summary that a model writes.

    Without a `model` it is the conversation's own. The model that gave the newest answer is asked
    with the conversation's own request (system text, tools and messages) and one instruction more,
    so that the provider reads all of it from its prompt cache. Another model has nothing cached: it
    gets the messages to sum up, alone.

    A summary that is empty, no shorter, or for which `check` returns False is refused with
    `CompactionRefused`; `check` gets the summary and the messages it stands for. The summary names
    those messages, so that erasing one of them reaches the summary too.
    """

    model: AnyModel | None = None
    keep_tokens: int = 4_000
    instructions: str = INSTRUCTIONS
    check: Callable[[str, list[Message]], bool | Awaitable[bool]] | None = None
    max_tokens: int = 1_024
    keep_roles: frozenset[Role] = _SYSTEM
    name: str = "summarise"

    def __post_init__(self) -> None:
        """Make a model of what is given as one; refuse what can't be used."""
        force_setattr(self, "model", None if self.model is None else as_model(self.model))
        check_callable(self.check, "$.check", "a function of the summary and the messages")
        _check_limits(self, "keep_tokens", "max_tokens")

    async def plan(self, given: CompactionInput) -> CompactionPlan | None:
        """Ask for a summary, check it, and put it in place of the messages."""
        gone = _old_indexes(given, self.keep_tokens)
        if not gone:
            return None
        model = given.model if self.model is None else as_model(self.model)
        if model is None:
            detail = "no model: give one to Summarise or to the conversation"
            raise ValidationError(detail, path="$.model", rule="no-model")
        old = [given.messages[index] for index in gone]
        summary = await self._ask_on_prefix(model, given, gone[-1] + 1)
        summary = summary or await self._ask_apart(model, old)
        replaced_tokens = sum(given.tokens[index] for index in gone)
        if not summary:
            raise CompactionRefused("the summary is empty")
        if len(summary) > MAX_ANSWER:
            raise CompactionRefused(f"the summary is longer than {MAX_ANSWER:,} characters")
        asked, answer = _summary_messages(summary, old, model.ref)
        weights = [await to_thread.run_sync(given.weigh, each) for each in (asked, answer)]
        if sum(weights) >= replaced_tokens:
            raise CompactionRefused("the summary is no shorter than what it sums up")
        if self.check is not None:
            fine = self.check(summary, old)
            if not (await fine if inspect.isawaitable(fine) else fine):
                raise CompactionRefused("the summary did not pass the check")
        dropped = set(gone)
        before = [index for index in range(gone[0]) if index not in dropped]
        after = [i for i in range(gone[0], len(given.messages)) if i not in dropped]
        pieces = (*_to_ranges(before), asked, answer, *_to_ranges(after))
        return CompactionPlan(pieces, f"summed up {len(gone):,} messages")

    async def _ask_on_prefix(self, model: Model, given: CompactionInput, cut: int) -> str:
        """Ask with the conversation's own request; return nothing where that is of no use."""
        tools = sum(len(str(spec)) for spec in given.tools) // _CHARACTERS
        size = given.total + tools + self.max_tokens
        if model.ref != given.answered_by or size > (model.window or size):
            return ""
        words = [self.instructions]
        kept = " ".join(" ".join(each.text for each in given.messages[cut : cut + 1]).split())
        if kept:
            words.append(f"What begins with {kept[:_QUOTED]!r} stays, and needs no summary.")
        if given.tools:
            words.append(_NO_CALL)
        messages = [*given.messages, user(" ".join(words))]
        return await self._ask(model, messages, given)

    async def _ask_apart(self, model: Model, old: list[Message]) -> str:
        """Ask with the messages to sum up alone, without system text and tools."""
        return await self._ask(model, [*old, user(self.instructions)], None)

    async def _ask(
        self, model: Model, messages: list[Message], given: CompactionInput | None
    ) -> str:
        target = replace(model.target, model=model.ref)
        open_calls = frozenset[str]() if given is None else given.open_calls
        request = wire.to(model.format, messages, target, open_calls=open_calls)
        bare = isinstance(model, GeneratingModel) and not model.takes_options
        tools = () if given is None else given.tools
        asked = ModelRequest(
            request.body,
            tools,
            {**wire.tool_names(model.format, tools), **request.names},
            {} if bare else {"max_tokens": self.max_tokens},
            "" if given is None else given.cache_key,
            request.compacted,
        )
        body = await model.complete(asked)
        return wire.reply(model.format, body, model=model.ref).text.strip()


def _old_indexes(given: CompactionInput, keep_tokens: int) -> list[int]:
    """Return the indexes of the messages to sum up: whole groups, oldest first."""
    left, cut = keep_tokens, len(given.messages)
    for group in reversed(given.groups):
        left -= group.tokens
        if left < 0:
            break
        cut = group.start
    old = [group for group in given.groups if group.stop <= cut and not group.stays]
    return [index for group in old for index in range(group.start, group.stop)]


def _summary_messages(summary: str, old: list[Message], model: ModelRef) -> tuple[Message, Message]:
    """Return the question and the answer that stand for the messages."""
    session = session_of(part for message in old for part in message.parts)
    asked, answer = new_id(), new_id()
    sources = {SUMMARY_OF: [message.id for message in old]}
    part = compaction_part(session, asked, auto=True)
    text = text_part(session, answer, summary or " ", synthetic=True)
    info = AssistantInfo(model=model, summary=True, finish="stop")
    count = f"{len(old):,} message{'' if len(old) == 1 else 's'}"
    asked_info = UserInfo(summary=Summary(title=f"Summary of {count}", body=summary))
    return (
        Message("user", (part,), id=asked, info=asked_info, metadata=sources),
        Message("assistant", (text,), id=answer, info=info, metadata=sources),
    )


# ── the input of a strategy ─────────────────────────────────────────────────────────────────────


def _read_input(
    view: View,
    tokens: Sequence[int],
    weigh: Callable[[Message], int],
    *,
    open_calls: frozenset[str],
    keep_roles: frozenset[Role],
) -> CompactionInput:
    """Group the messages of a view, and find those that must stay."""
    messages = list(view)
    marked = {message_id for ids in view.marks.values() for message_id in ids}
    protected = {
        index
        for index, message in enumerate(messages)
        if message.role in keep_roles or message.id in marked
    }
    groups = tuple(_groups(messages, tokens, protected, open_calls))
    return CompactionInput(view, messages, list(tokens), groups, weigh)


def _groups(
    messages: Sequence[Message],
    tokens: Sequence[int],
    protected: set[int],
    open_calls: frozenset[str],
) -> Iterator[MessageGroup]:
    start = 0
    while start < len(messages):
        stop, waiting = start + 1, _calls(messages[start])
        is_open = not waiting.isdisjoint(open_calls)
        if waiting:
            while stop < len(messages) and not waiting.isdisjoint(_results(messages[stop])):
                stop += 1
        inside = range(start, stop)
        stays = is_open or not protected.isdisjoint(inside)
        begins = messages[start].role == "user"
        yield MessageGroup(start, stop, sum(tokens[start:stop]), stays, begins)
        start = stop


def _calls(message: Message) -> set[str]:
    return {part.call_id for part in message.parts if isinstance(part, ToolCallPart)}


def _results(message: Message) -> set[str]:
    return {part.call_id for part in message.parts if isinstance(part, ToolPart)}


def _to_ranges(indexes: Sequence[int]) -> Iterator[Piece]:
    """Yield rising indexes as ranges."""
    start = stop = -1
    for index in indexes:
        if index != stop:
            if start < stop:
                yield range(start, stop)
            start = index
        stop = index + 1
    if start < stop:
        yield range(start, stop)
