"""Why a prompt is what it is: each message in reach, kept or dropped, with the reason and the size.

The figures add up: the parts and the entries that were kept come to the size of the prompt and its
system flag. Messages in reach are those from the oldest that the window lets in to the newest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import Struct, field

from palaver.context.budget import NOTHING
from palaver.context.names import addressees_text, speaker_name
from palaver.context.sight import CONTEXT_ROLES, is_context
from palaver.history.erasing import ERASED
from palaver.messages import to_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.context.budget import Bill, Cost, Limits
    from palaver.context.choosing import Choice
    from palaver.history import View
    from palaver.messages import Message

__all__ = [
    "Comparison",
    "Entry",
    "Explanation",
    "Given",
    "Part",
    "Reason",
    "entries_of",
    "parts_of",
]

Reason: TypeAlias = Literal[
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
"""Why a message is kept (current, fits) or not: it repeats the current one, there is no room left
in bytes or in tokens, it is of a role that is no context, it was erased, it has no text, or it was
addressed to others."""

_FAR: Final = 1_000


class Part(Struct, frozen=True):
    """A part of the prompt that is no message, and what it takes."""

    name: str
    bytes: int
    tokens: int


class Entry(Struct, frozen=True):
    """What became of one message."""

    id: str
    handle: str | None
    from_: str = field(name="from")
    to: str
    kept: bool
    reason: Reason
    bytes: int = 0
    tokens: int = 0


class Given(Struct, frozen=True):
    """What is remembered of a prompt, to compare the next one with; none of its text."""

    version: int
    messages: tuple[str, ...]
    bytes: int
    system: int
    team_task: int


class Comparison(Struct, frozen=True, rename="camel"):
    """How a prompt differs from the one that the agent had before."""

    version: int
    added: tuple[str, ...]
    gone: tuple[str, ...]
    stayed: tuple[str, ...]
    bytes: int
    system_changed: bool
    team_task_changed: bool

    @classmethod
    def of(cls, before: Given, now: Given) -> Comparison:
        """Compare two; `bytes` is how much longer it is now."""
        return cls(
            version=before.version,
            added=tuple(name for name in now.messages if name not in before.messages),
            gone=tuple(name for name in before.messages if name not in now.messages),
            stayed=tuple(name for name in now.messages if name in before.messages),
            bytes=now.bytes - before.bytes,
            system_changed=before.system != now.system,
            team_task_changed=before.team_task != now.team_task,
        )


class Explanation(Struct, frozen=True, rename="camel"):
    """Everything there is to know about a prompt.

    `older` is how many messages there are before those in reach; `since` is how it differs from the
    agent's previous prompt, where there was one.
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
    parts: tuple[Part, ...]
    entries: tuple[Entry, ...]
    older: int
    since: Comparison | None = None

    def to_dict(self) -> dict[str, Any]:
        """The explanation as JSON-ready data."""
        found: dict[str, Any] = to_dict(self)
        return found


def parts_of(bill: Bill, kept: int) -> tuple[Part, ...]:
    """The parts that are no message."""
    layout = bill.layout.plus(bill.context) if kept else bill.layout
    named = {"system": bill.system, "teamTask": bill.team_task, "layout": layout}
    return tuple(Part(name, *cost) for name, cost in named.items())


def entries_of(
    view: View, choice: Choice, bill: Bill, kept: int, limits: Limits
) -> tuple[tuple[Entry, ...], int]:
    """What became of each message in reach, the oldest first, and how many are older."""
    waiting = list(_verdicts(choice, bill, kept, limits))
    found: list[Entry] = []
    index = len(view)
    while waiting and index and len(view) - index < _FAR:
        index -= 1
        message = view[index]
        if message.id == waiting[-1][0].id:
            found.append(_entry(message, view.handle(index), *waiting.pop()[1:]))
        else:
            found.append(_entry(message, view.handle(index), _why_not(message)))
    # what lies further back than anybody would read is named without what is in between
    far = [_entry(message, view.handle(message), reason, cost) for message, reason, cost in waiting]
    return (*far, *reversed(found)), index - len(far)


def _verdicts(
    choice: Choice, bill: Bill, kept: int, limits: Limits
) -> Iterator[tuple[Message, Reason, Cost]]:
    """Each message that was chosen, why it is there or not, and what it takes."""
    dropped = len(choice.context) - kept
    over: Reason = "fits"
    if dropped:
        over = "bytes" if limits.refuses(bill.total(kept + 1)) == "bytes" else "tokens"
    for place, (shown, cost) in enumerate(zip(choice.context, bill.lines, strict=True)):
        yield shown.message, "fits" if place >= dropped else over, cost
    if choice.duplicate is not None:
        yield choice.duplicate.message, "duplicate", NOTHING
    if choice.current is not None:
        yield choice.current.message, "current", bill.message


def _why_not(message: Message) -> Reason:
    if message.role not in CONTEXT_ROLES:
        return "role"
    if ERASED in message.metadata:
        return "erased"
    return "not addressed" if is_context(message) else "no text"


def _entry(message: Message, handle: str | None, reason: Reason, cost: Cost = NOTHING) -> Entry:
    to = addressees_text(message.addressees)
    kept = reason in ("current", "fits")
    return Entry(message.id, handle, speaker_name(message), to, kept, reason, *cost)
