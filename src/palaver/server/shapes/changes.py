"""Changes of a conversation: operations and what they come to, versions, the difference of two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, UnsetType, field

from palaver.history import Stats
from palaver.messages import Message, Role
from palaver.server.bodies import Shape

if TYPE_CHECKING:
    from palaver.history import Result

__all__ = [
    "Batch",
    "BatchNumber",
    "Branch",
    "Brief",
    "Broken",
    "Changed",
    "Difference",
    "Entry",
    "Erasure",
    "Merging",
    "Operations",
    "Outcome",
    "Parent",
    "PriceAsked",
    "PriceTag",
    "Pruning",
    "Receipt",
    "Size",
    "Version",
    "VersionNumber",
    "Versions",
    "outcome_of",
]

Number = Annotated[int, Meta(ge=0)]
NAMES: Final = (
    "APPEND", "INSERT", "REPLACE", "TRUNCATE", "CLEAR", "FILTER", "ROLLBACK", "DELETE",
)  # fmt: skip
OPERATION = Annotated[
    dict[str, Any],
    Meta(
        description="One of the seven in the design's own JSON, or a DELETE of a range.",
        extra_json_schema={
            "required": ["operation"],
            "properties": {"operation": {"enum": list(NAMES)}},
        },
    ),
]


class Operations(Shape, frozen=True):
    """An operation to carry out."""

    operation: OPERATION


class Outcome(Shape, frozen=True):
    """What an operation came to."""

    affected_batch_index: int
    stats: Stats


class Changed(Shape, frozen=True):
    """Where a conversation stands after a change."""

    version: int
    result: Outcome


class PriceAsked(Shape, frozen=True):
    """One operation to price, or several, one after the other."""

    operation: OPERATION | None = None
    operations: list[OPERATION] | None = None


class Size(Shape, frozen=True):
    """How much there is."""

    messages: int
    tokens: int


class Broken(Shape, frozen=True):
    """A call that would lose its result, or a result that would lose its call."""

    call_id: str = field(name="callID")
    tool: str
    missing: Literal["result", "call"]


class Brief(Shape, frozen=True):
    """A message in a few words."""

    index: int
    id: str
    role: Role
    text: str


class PriceTag(Shape, frozen=True):
    """What an edit would take away, break and cost; nothing is changed by asking.

    `cache_lost` is how many tokens of what a provider has cached would no longer begin the prompt;
    `removed` are the first few of the messages that would go.
    """

    version: int
    before: Size
    after: Size
    tokens_freed: int
    tokens_added: int
    cache_lost: int
    source: Literal["tokenizer", "estimate"]
    removed_count: int
    added_count: int
    removed: list[Brief]
    pairs_broken: list[Broken]


class Version(Shape, frozen=True):
    """One change: when, of which kind, what it added, and how long the view was then.

    `returns` is the version whose messages an undo, redo, rollback or restore brought back.
    """

    version: int
    kind: str
    at: int
    added: int
    length: int
    batch: int
    description: str
    returns: int | UnsetType = UNSET


class Batch(Shape, frozen=True):
    """A batch of the line; the open one has neither an end nor a reason yet."""

    batch: int
    boundary: int
    length: int
    at: int | None
    description: str | None
    versions: tuple[int, int] | None


class Branch(Shape, frozen=True):
    """A fork: at which version it left, and where it stands."""

    id: str
    title: str | None
    at: int
    version: int
    length: int


class Parent(Shape, frozen=True):
    """What a conversation was forked from, and at which version of it."""

    id: str
    at: int


class Versions(Shape, frozen=True):
    """The versions of a conversation, its batches and its forks."""

    version: int
    first: int
    items: list[Version]
    next: int | None
    batches: list[Batch]
    forks: list[Branch]
    undo: bool
    redo: bool
    parent: Parent | UnsetType = UNSET


class Entry(Shape, frozen=True):
    """A message and its index in the view that has it."""

    index: int
    message: Message


class Difference(Shape, frozen=True):
    """What differs: removed by its index before, added by its index after.

    There may be more than are listed: the counts say how many there are.
    """

    before: int
    after: int
    before_length: int
    after_length: int
    removed_count: int
    added_count: int
    removed: list[Entry]
    added: list[Entry]


class BatchNumber(Shape, frozen=True):
    """The batch to go back to."""

    batch: Number


class VersionNumber(Shape, frozen=True):
    """The version to return to."""

    version: Number


class Merging(Shape, frozen=True):
    """The fork to bring in, or the conversation this one was forked from."""

    other: str


class Erasure(Shape, frozen=True):
    """The message whose content shall be destroyed: its id or handle, or its index."""

    message: str | Number


class Receipt(Shape, frozen=True):
    """What an erasure touched, and what it could not reach."""

    message_id: str = field(name="messageID")
    erased_at: int
    messages: int
    summaries: int
    places: int
    versions: int
    records: int
    out_of_reach: list[str]


class Pruning(Shape, frozen=True):
    """How many steps of undo shall stay whole; a dry run only says what would go."""

    undo: Number = 0
    dry_run: bool = False


def outcome_of(result: Result) -> Outcome:
    """What an operation came to, in short."""
    return Outcome(affected_batch_index=result.affected_batch_index, stats=result.stats)
