"""A frame is what a conversation is at one version: the selection, the line of batches, the marks.

An append keeps the frame and only moves the end of its tail, a plain number stored beside it. Every
other change makes a new frame, which shares its ropes with the one before. `Versions` holds all
frames, so any version can be read again.

A rope of ranges is an ordered selection of log positions, as a balanced tree that never changes:

    positions 0…99, then 7 and 8 cut out, then 100 put in at the front:

            ·───────┐                every branch stores how many positions are below it,
        ┌───┴──┐    │                in all and by role, so any index is found on one path down
     [100,101) │    │
            [0,7)  [9,100)

An edit makes new branches along one path from the root to a leaf and shares all other nodes with
the rope before it. That is why every snapshot is free: it is the old root.

`None` is the empty rope. Trees are AVL trees: the heights of two siblings differ by one at most.
Counts are five numbers packed into one integer (all, then one for each role, 32 bits each), so that
counting a subtree is a single addition.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from palaver.errors import ValidationError, VersionMismatch
from palaver.messages.limits import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from palaver.messages import Role

__all__ = [
    "IMPORT",
    "MASK",
    "SESSION",
    "SHIFTS",
    "Batch",
    "Branch",
    "Counter",
    "Expected",
    "Frame",
    "Leaf",
    "Redo",
    "Rope",
    "Session",
    "Stops",
    "Versions",
    "build",
    "check_expected",
    "concat",
    "expected_versions",
    "find",
    "handle_number",
    "handle_of",
    "jump_of",
    "numbering_after",
    "position_of_handle",
    "ranges",
    "ranges_between",
    "runs",
    "session_after",
    "session_of",
    "size",
    "splice",
    "split",
    "split_last",
]


MASK: Final = 0xFFFFFFFF
SHIFTS: Final[dict[Role, int]] = {"system": 32, "user": 64, "assistant": 96, "tool": 128}


class Leaf(Struct, frozen=True, gc=False):
    """The positions from start to before stop."""

    start: int
    stop: int
    counts: int
    height: ClassVar[int] = 0


class Branch(Struct, frozen=True, gc=False):
    """Two ropes, one after the other."""

    left: Leaf | Branch
    right: Leaf | Branch
    counts: int
    height: int


Node: TypeAlias = Leaf | Branch
Rope: TypeAlias = Leaf | Branch | None


def size(rope: Rope) -> int:
    """Return how many positions a rope has."""
    return 0 if rope is None else rope.counts & MASK


def _branch(left: Node, right: Node) -> Branch:
    one, other = left.height, right.height
    height = (one if one > other else other) + 1  # noqa: FURB136 - max() takes three times as long
    return Branch(left, right, left.counts + right.counts, height)


def concat(left: Rope, right: Rope) -> Rope:
    """Concatenate two ropes. Neighbours that continue each other become one leaf."""
    if left is None:
        return right
    if right is None:
        return left
    return _join(left, right)


def _join(left: Node, right: Node) -> Node:
    slope = left.height - right.height
    if slope > 1:
        assert type(left) is Branch  # noqa: S101 - taller than another, so no leaf
        return _balance(left.left, _join(left.right, right))
    if slope < -1:
        assert type(right) is Branch  # noqa: S101 - likewise
        return _balance(_join(left, right.left), right.right)
    if type(left) is Leaf and type(right) is Leaf and left.stop == right.start:
        return Leaf(left.start, right.stop, left.counts + right.counts)
    return _branch(left, right)


def _balance(left: Node, right: Node) -> Node:
    """Return a branch of two ropes whose heights differ by at most two, rotated into balance."""
    slope = left.height - right.height
    if slope > 1:
        assert type(left) is Branch  # noqa: S101 - taller than another
        if left.left.height >= left.right.height:
            return _branch(left.left, _branch(left.right, right))
        inner = left.right
        assert type(inner) is Branch  # noqa: S101 - taller than its sibling
        return _branch(_branch(left.left, inner.left), _branch(inner.right, right))
    if slope < -1:
        assert type(right) is Branch  # noqa: S101 - taller than another
        if right.right.height >= right.left.height:
            return _branch(_branch(left, right.left), right.right)
        inner = right.left
        assert type(inner) is Branch  # noqa: S101 - taller than its sibling
        return _branch(_branch(left, inner.left), _branch(inner.right, right.right))
    return _branch(left, right)


class Counter(Protocol):
    """Something that counts positions by role: a log."""

    def before(self, position: int, /) -> int:
        """Return how many positions there are before this one, in all and by role, packed."""
        ...


def _cut(leaf: Leaf, at: int, log: Counter) -> tuple[Rope, Rope]:
    """Cut a leaf in two before its at-th position."""
    middle = leaf.start + at
    if middle <= leaf.start:
        return None, leaf
    if middle >= leaf.stop:
        return leaf, None
    counts = log.before(middle) - log.before(leaf.start)
    return Leaf(leaf.start, middle, counts), Leaf(middle, leaf.stop, leaf.counts - counts)


def split(rope: Rope, at: int, log: Counter) -> tuple[Rope, Rope]:
    """Split a rope in two before its at-th position."""
    if rope is None:
        return None, None
    if type(rope) is Leaf:
        return _cut(rope, at, log)
    assert type(rope) is Branch  # noqa: S101 - there are only two kinds
    before = rope.left.counts & MASK
    if at < before:
        left, right = split(rope.left, at, log)
        return left, concat(right, rope.right)
    if at > before:
        left, right = split(rope.right, at - before, log)
        return concat(rope.left, left), right
    return rope.left, rope.right


def splice(rope: Rope, at: int, removed: int, new: Rope, log: Counter) -> Rope:
    """Insert a rope before the at-th position, replacing `removed` positions (0 or 1).

    This is INSERT and REPLACE: one path down, and a new branch for each step back up.
    """
    if rope is None:
        return new
    if type(rope) is Leaf:
        left, rest = _cut(rope, at, log)
        if removed and rest is not None:
            assert type(rest) is Leaf  # noqa: S101 - a piece of a leaf
            rest = _cut(rest, removed, log)[1]
        return concat(concat(left, new), rest)
    assert type(rope) is Branch  # noqa: S101 - there are only two kinds
    before = rope.left.counts & MASK
    if at < before:
        return concat(splice(rope.left, at, removed, new, log), rope.right)
    return concat(rope.left, splice(rope.right, at - before, removed, new, log))


def split_last(rope: Rope) -> tuple[Rope, Leaf | None]:
    """Return a rope without its last leaf, and that leaf."""
    if rope is None:
        return None, None
    if type(rope) is Leaf:
        return None, rope
    assert type(rope) is Branch  # noqa: S101 - there are only two kinds
    rest, last = split_last(rope.right)
    return concat(rope.left, rest), last


def runs(positions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Group positions into ranges, in their order."""
    start = stop = -1
    for position in positions:
        if position != stop:
            if start != stop:
                yield start, stop
            start = position
        stop = position + 1
    if start != stop:
        yield start, stop


def build(pieces: Iterable[tuple[int, int]], log: Counter) -> Rope:
    """Build a rope of ranges, in their order; adjacent ranges become one leaf."""
    leaves: list[Node] = []
    start = stop = 0
    for begin, end in pieces:
        if begin == stop and start < stop:
            stop = end
            continue
        if start < stop:
            leaves.append(Leaf(start, stop, log.before(stop) - log.before(start)))
        start, stop = begin, end
    if start < stop:
        leaves.append(Leaf(start, stop, log.before(stop) - log.before(start)))
    return _balanced(leaves, 0, len(leaves)) if leaves else None


def _balanced(leaves: list[Node], start: int, stop: int) -> Node:
    if stop - start == 1:
        return leaves[start]
    middle = (start + stop) // 2
    return _branch(_balanced(leaves, start, middle), _balanced(leaves, middle, stop))


def find(rope: Rope, index: int) -> int:
    """Return the position at an index."""
    while type(rope) is Branch:
        before = rope.left.counts & MASK
        if index < before:
            rope = rope.left
        else:
            index -= before
            rope = rope.right
    assert type(rope) is Leaf  # noqa: S101 - the caller knows the size
    return rope.start + index


def ranges(rope: Rope) -> Iterator[tuple[int, int]]:
    """Yield all ranges in order."""
    waiting: list[Node] = [] if rope is None else [rope]
    while waiting:
        node = waiting.pop()
        if type(node) is Leaf:
            yield node.start, node.stop
        else:
            assert type(node) is Branch  # noqa: S101 - there are only two kinds
            waiting.append(node.right)
            waiting.append(node.left)


def ranges_between(rope: Rope, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the positions from the start-th to before the stop-th."""
    waiting: list[tuple[Node, int]] = [] if rope is None or start >= stop else [(rope, 0)]
    while waiting:
        node, offset = waiting.pop()
        if type(node) is Leaf:
            begin, end = max(start - offset, 0), min(stop - offset, node.stop - node.start)
            if begin < end:
                yield node.start + begin, node.start + end
            continue
        assert type(node) is Branch  # noqa: S101 - there are only two kinds
        middle = offset + (node.left.counts & MASK)
        if stop > middle:
            waiting.append((node.right, middle))
        if start < middle:
            waiting.append((node.left, offset))


SESSION: Final = "SESSION"
"""The reason of a batch that ended because a new session began."""
IMPORT: Final = "IMPORT"
"""The reason of a batch that ended because a snapshot replaced everything."""


class Session(NamedTuple):
    """A session: the log's length when it began, and how its messages are numbered.

    The message at `start` is `msg-{number + 1}`, and the others follow; those between `opened` and
    `start` were imported with numbers of their own.
    """

    opened: int = 0
    start: int = 0
    number: int = 0


class Batch(Struct, frozen=True, gc=False):
    """A batch that has ended: its selection at the end, and the reason why it ended.

    Batches are linked from the newest to the oldest. `jump` leads further back, so that any batch
    is found in O(log n) steps.
    """

    index: int
    before: Batch | None
    jump: Batch | None
    root: Rope
    start: int
    stop: int
    opened: int
    ended: int
    reason: str
    place: int | None = None
    merged: Mapping[str, int] = EMPTY
    session: Session = Session()
    """The session of this batch; see `session_after`."""
    numbering: tuple[int, int] | None = None
    """Where numbering goes on after an import, and after which number; None: at 1 with it."""

    @property
    def description(self) -> str:
        """The operation that ended the batch, as text."""
        where = {"INSERT": " at position", "REPLACE": " at index"}.get(self.reason, "")
        return f"Before {self.reason}{where}" + (f" {self.place}" if where else "")


class Redo(Struct, frozen=True):
    """A version that `redo` would bring back, and the ones after it.

    The garbage collector tracks these, so a long chain is freed without deep recursion.
    """

    version: int
    after: Redo | None = None


class Frame(Struct, frozen=True, gc=False, kw_only=True):
    """The selection `root`, then the log from `start` up to a stop that moves with appends.

    `logged` is the log's length when the frame was made, `back` the version that undo returns to,
    `redo` what redo would bring back. `merged` gives, for each fork or parent, the version up to
    which its changes have been merged.
    """

    root: Rope = None
    start: int = 0
    line: Batch | None = None
    opened: int = 0
    marks: Mapping[str, Rope] = EMPTY
    team_task: str | None = None
    merged: Mapping[str, int] = EMPTY
    logged: int = 0
    back: int | None = None
    redo: Redo | None = None

    @property
    def batch_index(self) -> int:
        """The number of the open batch."""
        return 0 if self.line is None else self.line.index + 1

    def batch(self, index: int) -> Batch | None:
        """Return the ended batch with a number, or None if it is not on the line."""
        batch = self.line
        while batch is not None and batch.index > index:
            far = batch.jump
            batch = far if far is not None and far.index >= index else batch.before
        return batch if batch is not None and batch.index == index else None

    def ended(self, index: int) -> Batch:
        """Return the ended batch with a number; `ValidationError` if there is none."""
        batch = self.batch(index)
        if batch is None:
            detail = f"must be a batch from 0 to {self.batch_index}, not {index}"
            raise ValidationError(detail, path="$.targetBatchIndex", rule="unknown-batch")
        return batch

    def at_end_of(self, batch: Batch) -> Frame:
        """Return the moment at which a batch ended, with this frame's marks and team task."""
        return Frame(
            root=batch.root,
            start=batch.start,
            line=batch.before,
            opened=batch.opened,
            marks=self.marks,
            team_task=self.team_task,
            merged=batch.merged,
        )


def session_after(batch: Batch | None, opened: int) -> Session:
    """Return the session that goes on, or begins, after a batch.

    It begins with the conversation, with a batch of reason `SESSION`, and with an import that
    replaced everything. `opened` is the log's length when the batch after it opened.
    """
    if batch is None:
        return Session()
    if batch.reason not in {SESSION, IMPORT}:
        return batch.session
    return Session(opened, *(batch.numbering or (opened, 0)))


def jump_of(before: Batch | None) -> Batch | None:
    """Return the `jump` of the batch that follows this one (skew-binary numbers)."""
    if before is None or before.jump is None or before.jump.jump is None:
        return before
    if before.index - before.jump.index == before.jump.index - before.jump.jump.index:
        return before.jump.jump
    return before


# ── handles: `msg-1`, `msg-2`, … number the messages of a session ────────────────────────────────

_HANDLE: Final = re.compile(r"msg-([1-9][0-9]{0,15})")
_NUMBERED: Final = re.compile(r"msg-([0-9]{1,16})")


def handle_number(name: str) -> int:
    """Return the number of a handle; 0 for any other text.

    >>> handle_number("msg-7"), handle_number("msg-07")
    (7, 0)
    """
    found = _HANDLE.fullmatch(name)
    return 0 if found is None else int(found[1])


def numbering_after(first: int, ids: Sequence[str]) -> tuple[int, int] | None:
    """Return where and after which number handles go on after an import at `first`.

    Ids of the form `msg-N` are the handles of their messages, and new messages are numbered after
    the greatest, however it is spelled. None if there are no such ids: then handles count the
    imported messages too.

    >>> numbering_after(10, ["msg-04", "msg-2"]), numbering_after(10, ["a"])
    ((12, 4), None)
    """
    numbers = [int(found[1]) for found in map(_NUMBERED.fullmatch, ids) if found]
    return (first + len(ids), max(numbers)) if numbers else None


def session_of(frame: Frame) -> Session:
    """Return the session that a frame belongs to."""
    return session_after(frame.line, frame.opened)


def position_of_handle(handle: str, frame: Frame, length: int) -> int | None:
    """Return the log position that a handle counts to, or None if there is none.

    >>> [position_of_handle(handle, Frame(), 5) for handle in ("msg-2", "msg-9", "x")]
    [1, None, None]
    """
    _, start, number = session_of(frame)
    ahead = handle_number(handle) - number
    return start + ahead - 1 if 0 < ahead <= length - start else None


def handle_of(position: int, message_id: str, frame: Frame) -> str | None:
    """Return the handle of a message, or None if it has none, as one of an earlier session.

    An id that has the form of a handle is the message's handle.
    """
    opened, start, number = session_of(frame)
    if position < opened:
        return None
    if handle_number(message_id) or (position < start and _NUMBERED.fullmatch(message_id)):
        return message_id
    return f"msg-{number + position - start + 1}" if position >= start else None


# ── versions ────────────────────────────────────────────────────────────────────────────────────


class Stops(Protocol):
    """Where the tail ended, by version."""

    def __len__(self) -> int:
        """Return the number of versions."""
        ...

    def __getitem__(self, version: int, /) -> int:
        """Return where the tail ended at a version."""
        ...

    def append(self, stop: int, /) -> None:
        """Add the next version."""
        ...


class Versions:
    """The frame and the stop of every version. `stops` has one entry for each version."""

    __slots__ = ("_firsts", "_frames", "stops")

    def __init__(self, frame: Frame, stop: int) -> None:
        """Begin with version 0."""
        self.stops: Stops = array("Q", [stop])
        self._frames = [frame]
        self._firsts = array("Q", [0])  # the first version of each frame

    @classmethod
    def of(cls, frames: Sequence[tuple[int, Frame]], stops: Stops) -> Versions:
        """Return the versions with these frames (each with its first version) and stops."""
        versions = cls(frames[0][1], 0)
        versions.stops = stops
        for version, frame in frames[1:]:
            versions.learn(frame, version)
        return versions

    def learn(self, frame: Frame, version: int) -> None:
        """Record a frame that was in force from a version on."""
        self._frames.append(frame)
        self._firsts.append(version)

    def add(self, frame: Frame, stop: int) -> None:
        """Add the next version, with a new frame."""
        self.learn(frame, len(self.stops))
        self.stops.append(stop)

    def frame(self, version: int) -> Frame:
        """Return the frame of a version; `ValidationError` if there is no such version."""
        if type(version) is not int or not 0 <= version < len(self.stops):
            detail = f"must be a version from 0 to {len(self.stops) - 1}, not {version!r}"
            raise ValidationError(detail, path="$.version", rule="unknown-version")
        return self._frames[self._index(version)]

    def ends(self) -> list[int]:
        """Return the versions that an edit followed, oldest first: the ends of lines of appends."""
        return [first - 1 for first in self._firsts[1:]]

    def back(self, version: int) -> int | None:
        """Return the version that undo goes back to from this one."""
        index = self._index(version)
        return version - 1 if version > self._firsts[index] else self._frames[index].back

    def redo(self, version: int) -> Redo | None:
        """Return what redo would bring back at this version; an append ends that."""
        index = self._index(version)
        return None if version > self._firsts[index] else self._frames[index].redo

    def _index(self, version: int) -> int:
        return bisect_right(self._firsts, version) - 1


Expected: TypeAlias = int | Collection[int]
"""The version that must be the newest, or several versions of which one must be."""


def expected_versions(expect: Expected) -> tuple[int, ...]:
    """Return the versions that a change may follow, in order.

    >>> expected_versions(17), expected_versions({18, 17})
    ((17,), (17, 18))
    """
    given: Any = (expect,) if isinstance(expect, int) else expect
    is_collection = isinstance(given, Collection) and not isinstance(given, str | bytes)
    if not is_collection or any(type(version) is not int for version in given):
        detail = f"must be a version (an integer) or a collection of them, not {expect!r:.100}"
        raise ValidationError(detail, path="$.expect", rule="version")
    return tuple(sorted(given))


def check_expected(expect: Expected | None, version: int) -> None:
    """Raise `VersionMismatch` unless a version is among those expected; None expects nothing.

    >>> check_expected({17, 18}, 18)
    >>> check_expected(17, 18)
    Traceback (most recent call last):
    palaver.errors.VersionMismatch: the conversation is at version 18, not 17
    """
    if expect is None:
        return
    versions = expected_versions(expect)
    if version not in versions:
        raise VersionMismatch(versions, version)
