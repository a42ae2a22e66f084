"""The log: every message ever added to a conversation, in the order it came.

Nothing in it changes place and nothing leaves it. A fork goes on from what was there: it reads the
same segments up to where it began and writes to one of its own, so a fork costs nothing, whatever
the length. `erase` is the one exception to immutability: it puts a tombstone in a message's place.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING
from weakref import WeakSet

from palaver.history.roles import RoleIndex
from palaver.history.rope import MASK, SHIFTS, Counter, runs
from palaver.messages import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from palaver.messages import Message, Role

__all__ = ["Family", "Log", "Segment"]


class Segment:
    """A stretch of messages with positions of their own, beginning at `start`."""

    __slots__ = (
        "__weakref__", "_ids", "_indexed", "_indexing", "index", "messages", "replaced", "start",
    )  # fmt: skip

    def __init__(self, start: int) -> None:
        """Begin empty, at a position."""
        self.start = start
        self.messages: list[Message] = []
        self.index = RoleIndex()
        self.replaced: dict[int, int] = {}
        self._ids: dict[str, list[int]] = {}
        self._indexed = 0
        self._indexing = threading.Lock()  # readers ask for ids too, from any thread

    def add(self, message: Message) -> int:
        """Add one message and return its position."""
        messages = self.messages
        position = self.start + len(messages)
        self.index.positions[message.role].append(position)
        messages.append(message)
        return position

    def positions_of(self, message_id: str) -> list[int]:
        """The positions of the messages with an id. The index is made when first asked for."""
        with self._indexing:
            for place in range(self._indexed, len(self.messages)):
                self._ids.setdefault(self.messages[place].id, []).append(self.start + place)
                self._indexed = place + 1
            return self._ids.get(message_id, [])[:]


class Family:
    """Every segment of a conversation and its forks, whoever reads it.

    Whoever adds a segment, or looks at all of them, holds the lock, and takes it before any other.
    """

    __slots__ = ("lock", "segments")

    def __init__(self) -> None:
        """Begin with none."""
        self.lock = threading.RLock()
        self.segments: WeakSet[Segment] = WeakSet()


class Log(Counter):
    """The segments a conversation reads, the last of which it writes."""

    __slots__ = ("_bases", "_segments", "_starts", "family", "own")

    def __init__(
        self,
        inherited: Sequence[Segment] = (),
        start: int = 0,
        family: Family | None = None,
        bases: Sequence[dict[Role, int]] = (),
        ranks: dict[Role, int] | None = None,
    ) -> None:
        """Go on at `start` from segments that others began; by itself, begin at 0.

        `bases` are how many messages of each role there are before each of those segments, `ranks`
        how many before `start`.
        """
        self.own = Segment(start)
        self.family = Family() if family is None else family
        self.family.segments.add(self.own)
        self._segments = (*inherited, self.own)
        self._starts = [segment.start for segment in self._segments]
        self._bases = [*bases, dict.fromkeys(ROLES, 0) if ranks is None else ranks]

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The stretches it is made of."""
        return self._segments

    def __len__(self) -> int:
        """How many messages were ever added."""
        return self.own.start + len(self.own.messages)

    def fork(self, length: int) -> Log:
        """A log that goes on from the first `length` messages of this one."""
        count = bisect_left(self._starts, length)
        ranks: dict[Role, int] = {role: self.rank(role, length) for role in ROLES}
        bases = self._bases[:count]
        return Log(self._segments[:count], length, self.family, bases, ranks)

    @property
    def start(self) -> int:
        """Where its own segment begins: before that it is another's."""
        return self.own.start

    def note_origins(self, origins: Mapping[int, int]) -> None:
        """Note which positions were put in the place of which."""
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
        """The message at a position."""
        own = self.own
        if position >= own.start:
            return own.messages[position - own.start]
        segment = self._segments[bisect_right(self._starts, position) - 1]
        return segment.messages[position - segment.start]

    def between(self, start: int, stop: int) -> list[Message]:
        """The messages from one position to before another."""
        own = self.own
        if start >= own.start:
            return own.messages[start - own.start : stop - own.start]
        found: list[Message] = []
        for segment, upto in self._pieces(start, stop):
            begin = max(start, segment.start)
            found += segment.messages[begin - segment.start : upto - segment.start]
        return found

    def read(self, stretches: Iterable[tuple[int, int]]) -> Iterator[list[Message]]:
        """The messages of several ranges of positions, one list for each range."""
        return (self.between(start, stop) for start, stop in stretches)

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[Segment, int]]:
        first = bisect_right(self._starts, start) - 1
        ends = (*self._starts[1:], len(self))
        for place in range(first, len(self._segments)):
            if self._starts[place] >= stop:
                return
            yield self._segments[place], min(ends[place], stop)

    def rank(self, role: Role, position: int) -> int:
        """How many messages of a role there are before a position."""
        place = len(self._starts) - 1
        if position < self.own.start:
            place = bisect_right(self._starts, position) - 1
        return self._bases[place][role] + self._segments[place].index.rank(role, position)

    def select(self, role: Role, start: int, stop: int) -> list[int]:
        """The positions of a role's messages, from its start-th to before its stop-th."""
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
        """How many messages there are before a position, in all and by role, packed."""
        counts = position & MASK
        for role, shift in SHIFTS.items():
            counts |= self.rank(role, position) << shift
        return counts

    def of_times(self, since: int | None, until: int | None) -> list[tuple[int, int]]:
        """The stretches of positions whose messages are of a time, in the log's order."""
        return list(
            runs(
                position
                for position, message in enumerate(self.between(0, len(self)))
                if (since is None or message.timestamp >= since)
                and (until is None or message.timestamp < until)
            )
        )

    def positions_of(self, message_id: str) -> list[int]:
        """The positions of the messages with an id; almost always one."""
        ends = (*self._starts[1:], len(self))
        return [
            position
            for segment, end in zip(self._segments, ends, strict=True)
            for position in segment.positions_of(message_id)
            if position < end
        ]

    def replaced(self, position: int) -> int | None:
        """The position that a message was put in the place of, where it was."""
        segment = self._segments[bisect_right(self._starts, position) - 1]
        return segment.replaced.get(position)
