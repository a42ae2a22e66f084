"""The log: every message ever added to a conversation, in the order it was added.

Positions never change and nothing is removed. A fork reads the segments that were there when it
began and writes to a segment of its own, so forking costs nothing, whatever the length. Erasing is
the one exception to immutability: it replaces a message with a tombstone. `StagedLog` is a log with
messages that have not been added yet, so that a change can be planned without making it.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakSet

from palaver.errors import ValidationError
from palaver.history.frame import MASK, SHIFTS, runs
from palaver.messages import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from palaver.messages import Message, Role

__all__ = [
    "ROLE_COUNTS",
    "Family",
    "Log",
    "LogReader",
    "RoleIndex",
    "Segment",
    "StagedLog",
    "check_count",
    "packed_count",
]

ROLE_COUNTS: Final[dict[Role, int]] = {role: 1 | 1 << shift for role, shift in SHIFTS.items()}
"""One message of each role as a packed count."""


def packed_count(message: Message) -> int:
    """Return one message as a packed count: 1 in all, and 1 of its role."""
    return ROLE_COUNTS[message.role]


class LogReader(Protocol):
    """What a view needs of a log. `Log`, `StagedLog` and a store's log have it."""

    def __len__(self) -> int:
        """Return how many messages were ever added."""
        ...

    def __getitem__(self, position: int, /) -> Message:
        """Return the message at a position."""
        ...

    def between(self, start: int, stop: int, /) -> list[Message]:
        """Return the messages from one position to before another."""
        ...

    def read(self, ranges: Iterable[tuple[int, int]], /) -> Iterator[list[Message]]:
        """Yield the messages of several ranges of positions, one list for each range."""
        ...

    def before(self, position: int, /) -> int:
        """Return how many messages there are before a position, in all and by role, packed."""
        ...

    def rank(self, role: Role, position: int, /) -> int:
        """Return how many messages of a role there are before a position."""
        ...

    def select(self, role: Role, start: int, stop: int, /) -> list[int]:
        """Return the positions of a role's messages, from its start-th to before its stop-th."""
        ...

    def of_times(self, since: int | None, until: int | None, /) -> list[tuple[int, int]]:
        """Return the ranges of positions whose messages are of a time, in the log's order."""
        ...

    def positions_of(self, message_id: str, /) -> list[int]:
        """Return the positions of the messages with an id."""
        ...

    def replaced(self, position: int, /) -> int | None:
        """Return the position whose message was replaced by the one here, if any."""
        ...


def check_count(value: object, path: str) -> None:
    """Raise `ValidationError` unless a value of a query is a whole number from 0 on."""
    if type(value) is not int or value < 0:
        detail = f"must be a whole number from 0 on, not {value!r}"
        raise ValidationError(detail, path=path, rule="query")


class RoleIndex:
    """The sorted positions of each role's messages, one array for each role.

    Positions only grow, so the arrays stay sorted, and "how many user messages are there before
    position p" is one binary search.

    >>> index = RoleIndex()
    >>> for position, role in enumerate(["user", "assistant", "user"]):
    ...     index.add(role, position)
    >>> index.by_role("user"), index.recent("user", 1), index.range("user", 0, 1)
    ([0, 2], [2], [0])
    """

    __slots__ = ("positions",)

    def __init__(self) -> None:
        """Create an empty index."""
        self.positions: dict[Role, array[int]] = {role: array("Q") for role in ROLES}

    def add(self, role: Role, position: int) -> None:
        """Add the position of a message; positions must come in order."""
        known = self._of(role)
        check_count(position, "$.position")
        if known and known[-1] >= position:
            detail = f"positions come in order: {position} after {known[-1]}"
            raise ValidationError(detail, path="$.position", rule="position-order")
        known.append(position)

    def by_role(self, role: Role) -> list[int]:
        """Return all positions of a role."""
        return self._of(role).tolist()

    def recent(self, role: Role, n: int) -> list[int]:
        """Return the last n positions of a role."""
        check_count(n, "$.n")
        known = self._of(role)
        return known[max(len(known) - n, 0) :].tolist()

    def range(self, role: Role, start: int, end: int) -> list[int]:
        """Return the positions of a role from its start-th to before its end-th."""
        check_count(start, "$.range")
        check_count(end, "$.range")
        if end < start:
            detail = f"must be 0 ≤ start ≤ end, not {start} and {end}"
            raise ValidationError(detail, path="$.range", rule="query")
        return self._of(role)[start:end].tolist()

    def all(self) -> dict[Role, list[int]]:
        """Return the positions of every role."""
        return {role: known.tolist() for role, known in self.positions.items()}

    def clone(self) -> RoleIndex:
        """Return an independent copy."""
        copy = RoleIndex()
        copy.positions = {role: known[:] for role, known in self.positions.items()}
        return copy

    def reset(self) -> None:
        """Remove all positions."""
        for known in self.positions.values():
            del known[:]

    def remove(self, positions: Iterable[int]) -> None:
        """Remove some positions."""
        gone = frozenset(positions)
        for role, known in self.positions.items():
            self.positions[role] = array("Q", (p for p in known if p not in gone))

    def rank(self, role: Role, position: int) -> int:
        """Return how many messages of a role there are before a position."""
        return bisect_left(self.positions[role], position)

    def _of(self, role: Role) -> array[int]:
        try:
            return self.positions[role]
        except (KeyError, TypeError):
            detail = f"must be system, user, assistant or tool, not {role!r}"
            raise ValidationError(detail, path="$.role", rule="role") from None


class Segment:
    """The messages that one history added, with positions from `start` on."""

    __slots__ = (
        "__weakref__", "_ids", "_indexed", "_indexing", "index", "messages", "replaced", "start",
    )  # fmt: skip

    def __init__(self, start: int) -> None:
        """Create an empty segment that begins at a position."""
        self.start = start
        self.messages: list[Message] = []
        self.index = RoleIndex()
        self.replaced: dict[int, int] = {}
        self._ids: dict[str, list[int]] = {}
        self._indexed = 0
        self._indexing = threading.Lock()  # readers ask for ids too, from any thread

    def positions_of(self, message_id: str) -> list[int]:
        """Return the positions of the messages with an id. The index is built on first use."""
        with self._indexing:
            for place in range(self._indexed, len(self.messages)):
                self._ids.setdefault(self.messages[place].id, []).append(self.start + place)
                self._indexed = place + 1
            return self._ids.get(message_id, [])[:]


class Family:
    """All segments of a conversation and its forks.

    Take the lock before any other lock, to add a segment or to look at all of them.
    """

    __slots__ = ("lock", "segments")

    def __init__(self) -> None:
        """Create a family without segments."""
        self.lock = threading.RLock()
        self.segments: WeakSet[Segment] = WeakSet()


class Log:
    """The segments that a conversation reads; it writes to the last one."""

    __slots__ = ("_bases", "_segments", "_starts", "family", "own")

    def __init__(
        self,
        inherited: Sequence[Segment] = (),
        start: int = 0,
        family: Family | None = None,
        bases: Sequence[dict[Role, int]] = (),
        ranks: dict[Role, int] | None = None,
    ) -> None:
        """Create a log that goes on at `start` after inherited segments.

        `bases` gives, for each inherited segment, how many messages of each role come before it;
        `ranks` gives how many come before `start`.
        """
        self.own = Segment(start)
        self.family = Family() if family is None else family
        self.family.segments.add(self.own)
        self._segments = (*inherited, self.own)
        self._starts = [segment.start for segment in self._segments]
        self._bases = [*bases, dict.fromkeys(ROLES, 0) if ranks is None else ranks]

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first."""
        return self._segments

    def __len__(self) -> int:
        """Return how many messages were ever added."""
        return self.own.start + len(self.own.messages)

    def fork(self, length: int) -> Log:
        """Return a log that goes on from the first `length` messages of this one."""
        count = bisect_left(self._starts, length)
        ranks: dict[Role, int] = {role: self.rank(role, length) for role in ROLES}
        bases = self._bases[:count]
        return Log(self._segments[:count], length, self.family, bases, ranks)

    @property
    def start(self) -> int:
        """The first position of its own segment; those before it are shared with its parent."""
        return self.own.start

    def note_origins(self, origins: Mapping[int, int]) -> None:
        """Record which positions replace which: new position → old position."""
        self.own.replaced.update(origins)

    def extend(self, messages: Sequence[Message]) -> int:
        """Add messages and return the position of the first."""
        own = self.own
        first = own.start + len(own.messages)
        positions = own.index.positions
        for position, message in enumerate(messages, first):
            positions[message.role].append(position)
        own.messages.extend(messages)
        return first

    def __getitem__(self, position: int) -> Message:
        """Return the message at a position."""
        own = self.own
        if position >= own.start:
            return own.messages[position - own.start]
        segment = self.segment_at(position)
        return segment.messages[position - segment.start]

    def segment_at(self, position: int) -> Segment:
        """Return the segment that has a position."""
        return self._segments[bisect_right(self._starts, position) - 1]

    def between(self, start: int, stop: int) -> list[Message]:
        """Return the messages from one position to before another."""
        own = self.own
        if start >= own.start:
            return own.messages[start - own.start : stop - own.start]
        found: list[Message] = []
        for segment, upto in self._pieces(start, stop):
            begin = max(start, segment.start)
            found += segment.messages[begin - segment.start : upto - segment.start]
        return found

    def read(self, ranges: Iterable[tuple[int, int]]) -> Iterator[list[Message]]:
        """Yield the messages of several ranges of positions, one list for each range."""
        return (self.between(start, stop) for start, stop in ranges)

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[Segment, int]]:
        first = bisect_right(self._starts, start) - 1
        ends = (*self._starts[1:], len(self))
        for place in range(first, len(self._segments)):
            if self._starts[place] >= stop:
                return
            yield self._segments[place], min(ends[place], stop)

    def rank(self, role: Role, position: int) -> int:
        """Return how many messages of a role there are before a position."""
        place = len(self._starts) - 1
        if position < self.own.start:
            place = bisect_right(self._starts, position) - 1
        return self._bases[place][role] + self._segments[place].index.rank(role, position)

    def select(self, role: Role, start: int, stop: int) -> list[int]:
        """Return the positions of a role's messages, from its start-th to before its stop-th."""
        found: list[int] = []
        for place, segment in enumerate(self._segments):
            base = self._bases[place][role]
            upto = stop
            if place + 1 < len(self._segments):
                upto = min(stop, self._bases[place + 1][role])
            if start < upto and upto > base:
                found += segment.index.positions[role][max(start - base, 0) : upto - base]
        return found

    def before(self, position: int) -> int:
        """Return how many messages there are before a position, in all and by role, packed."""
        counts = position & MASK
        for role, shift in SHIFTS.items():
            counts |= self.rank(role, position) << shift
        return counts

    def of_times(self, since: int | None, until: int | None) -> list[tuple[int, int]]:
        """Return the ranges of positions whose messages are of a time, in the log's order."""
        messages = self.between(0, len(self))
        return list(runs(_of_times(messages, 0, since, until)))

    def positions_of(self, message_id: str) -> list[int]:
        """Return the positions of the messages with an id; almost always one."""
        ends = (*self._starts[1:], len(self))
        return [
            position
            for segment, end in zip(self._segments, ends, strict=True)
            for position in segment.positions_of(message_id)
            if position < end
        ]

    def replaced(self, position: int) -> int | None:
        """Return the position whose message was replaced by the one here, if any."""
        return self.segment_at(position).replaced.get(position)


class StagedLog:
    """A log as it would be with some more messages; the log itself does not change.

    It stays valid when others add to the log meanwhile: of the log it reads the positions before
    `start`, where the log ended when this was made.
    """

    __slots__ = ("_counts", "_log", "_messages", "_origins", "start")

    def __init__(
        self, log: LogReader, messages: Sequence[Message], origins: Mapping[int, int]
    ) -> None:
        """Stage messages; `origins` gives, by index, the positions that some of them replace."""
        self.start = len(log)
        self._log = log
        self._messages = messages
        self._origins = origins
        counts = log.before(self.start)
        self._counts = [counts]
        for message in messages:
            counts += ROLE_COUNTS[message.role]
            self._counts.append(counts)

    def __len__(self) -> int:
        """Return the log's length, with the staged messages."""
        return self.start + len(self._messages)

    def __getitem__(self, position: int) -> Message:
        """Return the message at a position."""
        if position < self.start:
            return self._log[position]
        return self._messages[position - self.start]

    def between(self, start: int, stop: int) -> list[Message]:
        """Return the messages from one position to before another."""
        known = min(stop, self.start)
        found = self._log.between(start, known) if start < known else []
        return [*found, *self._messages[max(start - self.start, 0) : max(stop - self.start, 0)]]

    def read(self, ranges: Iterable[tuple[int, int]]) -> Iterator[list[Message]]:
        """Yield the messages of several ranges of positions, one list for each range."""
        return (self.between(start, stop) for start, stop in ranges)

    def before(self, position: int) -> int:
        """Return how many messages there are before a position, in all and by role, packed."""
        if position < self.start:
            return self._log.before(position)
        return self._counts[position - self.start]

    def rank(self, role: Role, position: int) -> int:
        """Return how many messages of a role there are before a position."""
        return self.before(position) >> SHIFTS[role] & MASK

    def select(self, role: Role, start: int, stop: int) -> list[int]:
        """Return the positions of a role's messages, from its start-th to before its stop-th."""
        known = self.rank(role, self.start)
        found = self._log.select(role, start, min(stop, known)) if start < known else []
        new = [p for p, message in enumerate(self._messages, self.start) if message.role == role]
        return found + new[max(start - known, 0) : max(stop - known, 0)]

    def of_times(self, since: int | None, until: int | None) -> list[tuple[int, int]]:
        """Return the ranges of positions whose messages are of a time, in the log's order."""
        known = (
            (start, min(stop, self.start))
            for start, stop in self._log.of_times(since, until)
            if start < self.start
        )
        return [*known, *runs(_of_times(self._messages, self.start, since, until))]

    def positions_of(self, message_id: str) -> list[int]:
        """Return the positions of the messages with an id."""
        known = (p for p in self._log.positions_of(message_id) if p < self.start)
        new = (p for p, m in enumerate(self._messages, self.start) if m.id == message_id)
        return [*known, *new]

    def replaced(self, position: int) -> int | None:
        """Return the position whose message was replaced by the one here, if any."""
        if position < self.start:
            return self._log.replaced(position)
        return self._origins.get(position - self.start)


def _of_times(
    messages: Iterable[Message], first: int, since: int | None, until: int | None
) -> Iterator[int]:
    for position, message in enumerate(messages, first):
        if (since is None or message.timestamp >= since) and (
            until is None or message.timestamp < until
        ):
            yield position
