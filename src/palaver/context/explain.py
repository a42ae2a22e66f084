"""Why a prompt is what it is: each message in reach, kept or dropped, with the reason and size.

The figures add up: the parts and the entries that are kept come to the size of the prompt and its
system flag. Messages in reach are those from the oldest that the window admits to the newest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import Struct, field

from palaver.context.assemblers import ZERO_COST
from palaver.context.visibility import (
    CONTEXT_ROLES,
    format_addressees,
    is_context,
    speaker_name,
)
from palaver.history.erase import ERASED
from palaver.messages import to_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.context.assemblers import Cost, CostBreakdown, PromptLimits
    from palaver.context.visibility import Selection
    from palaver.history import View
    from palaver.messages import Message

__all__ = [
    "EntryReason",
    "ExplanationEntry",
    "PromptComparison",
    "PromptExplanation",
    "PromptFingerprint",
    "PromptPart",
    "explain_messages",
    "explain_parts",
]

EntryReason: TypeAlias = Literal[
    "current",
    "fits",
    "duplicate",
    "bytes",
    "tokens",
    "role",
    "erased",
    "no text",
    "not addressed",
]
"""Why a message is kept (current, fits) or dropped: it repeats the current one, it exceeds the
limit of bytes or tokens, its role is not context, it was erased, it has no text that a model may
see, or it is addressed to others."""

_MAX_DISTANCE: Final = 1_000
"""How far back every message is listed; of those further back only the selected ones are."""


class PromptPart(Struct, frozen=True):
    """A part of the prompt that is not a message, and its size."""

    name: str
    bytes: int
    tokens: int


class ExplanationEntry(Struct, frozen=True):
    """One message in reach: whether it is kept, why, and its size."""

    id: str
    handle: str | None
    from_: str = field(name="from")
    to: str
    kept: bool
    reason: EntryReason
    bytes: int = 0
    tokens: int = 0


class PromptFingerprint(Struct, frozen=True):
    """What is remembered of a prompt, to compare the next one with it; none of its text."""

    version: int
    messages: tuple[str, ...]
    bytes: int
    system: int
    team_task: int


class PromptComparison(Struct, frozen=True, rename="camel"):
    """How a prompt differs from the one that the agent had before."""

    version: int
    added: tuple[str, ...]
    gone: tuple[str, ...]
    stayed: tuple[str, ...]
    bytes: int
    system_changed: bool
    team_task_changed: bool

    @classmethod
    def of(cls, before: PromptFingerprint, now: PromptFingerprint) -> PromptComparison:
        """Compare two prompts; `bytes` is how much longer the second is."""
        return cls(
            version=before.version,
            added=tuple(name for name in now.messages if name not in before.messages),
            gone=tuple(name for name in before.messages if name not in now.messages),
            stayed=tuple(name for name in now.messages if name in before.messages),
            bytes=now.bytes - before.bytes,
            system_changed=before.system != now.system,
            team_task_changed=before.team_task != now.team_task,
        )


class PromptExplanation(Struct, frozen=True, rename="camel"):
    """Where a prompt comes from: its limits, its parts, and each message in reach.

    `older` is the number of messages before those in reach. `since` says how the prompt differs
    from the agent's previous one, if there was one.
    """

    agent: str
    agent_type: str
    version: int
    window: int
    visibility: str
    max_bytes: int
    max_tokens: int | None
    bytes: int
    tokens: int
    parts: tuple[PromptPart, ...]
    entries: tuple[ExplanationEntry, ...]
    older: int
    since: PromptComparison | None = None

    def to_dict(self) -> dict[str, Any]:
        """The explanation as JSON-ready data."""
        found: dict[str, Any] = to_dict(self)
        return found


def explain_parts(costs: CostBreakdown, count: int) -> tuple[PromptPart, ...]:
    """List the parts of a prompt with `count` lines of context that are not messages."""
    layout = costs.layout.plus(costs.context) if count else costs.layout
    named = {"system": costs.system, "teamTask": costs.team_task, "layout": layout}
    return tuple(PromptPart(name, *cost) for name, cost in named.items())


def explain_messages(
    view: View, selection: Selection, costs: CostBreakdown, count: int, limits: PromptLimits
) -> tuple[tuple[ExplanationEntry, ...], int]:
    """List the messages in reach, the oldest first, and say how many messages are older.

    `count` is how many lines of the selected context were kept.
    """
    selected = list(_explain_selection(selection, costs, count, limits))
    found: list[ExplanationEntry] = []
    index = len(view)
    while selected and index and len(view) - index < _MAX_DISTANCE:
        index -= 1
        message = view[index]
        if message.id == selected[-1][0].id:
            found.append(_entry(message, view.handle(index), *selected.pop()[1:]))
        else:
            found.append(_entry(message, view.handle(index), _drop_reason(message)))
    far = [_entry(message, view.handle(message), why, cost) for message, why, cost in selected]
    return (*far, *reversed(found)), index - len(far)


def _explain_selection(
    selection: Selection, costs: CostBreakdown, count: int, limits: PromptLimits
) -> Iterator[tuple[Message, EntryReason, Cost]]:
    dropped = len(selection.context) - count
    over: EntryReason = "fits"
    if dropped:
        over = "bytes" if limits.exceeded_by(costs.total(count + 1)) == "bytes" else "tokens"
    for index, (shown, cost) in enumerate(zip(selection.context, costs.lines, strict=True)):
        yield shown.message, "fits" if index >= dropped else over, cost
    if selection.duplicate is not None:
        yield selection.duplicate.message, "duplicate", ZERO_COST
    if selection.current is not None:
        yield selection.current.message, "current", costs.message


def _drop_reason(message: Message) -> EntryReason:
    if message.role not in CONTEXT_ROLES:
        return "role"
    if ERASED in message.metadata:
        return "erased"
    return "not addressed" if is_context(message) else "no text"


def _entry(
    message: Message, handle: str | None, reason: EntryReason, cost: Cost = ZERO_COST
) -> ExplanationEntry:
    to = format_addressees(message.addressees)
    kept = reason in ("current", "fits")
    return ExplanationEntry(message.id, handle, speaker_name(message), to, kept, reason, *cost)
