"""The log of a conversation that is kept in a store: read when needed, never all at once.

What was read is held for a while, since it can't change (an erasure empties what is held). What was
added but is not yet kept is `pending`; `settle` and `forget` say how that ended.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from palaver.history.log import Family
from palaver.history.rope import MASK, SHIFTS, Counter, runs
from palaver.messages.gate import MAX_INT, is_text
from palaver.stores.rows import one

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from palaver.messages import Message, Role
    from palaver.stores.protocol import Keeper
    from palaver.stores.records import Head

__all__ = ["StoredLog"]

_HELD: Final = 20_000
_NEAR: Final = 8
"""Positions this close are read together: what lies between costs less than another query."""
_AT_ONCE: Final = 500
_AHEAD: Final = 64
_IN_A_ROW: Final = 4
"""Counts are read ahead once so many were asked for, each no further on than `_AHEAD`."""


class StoredLog(Counter):
    """Messages by position, from a store and from what is about to be kept there."""

    def __init__(self, keeper: Keeper, head: Head) -> None:
        """Look at the log as the head has it."""
        self._keeper = keeper
        self._name = head.id
        self.start = head.base
        self._length = head.length
        self._counts: dict[int, int] = {head.length: head.counts}
        self._asked = -_AHEAD - 1  # the last position whose counts were not known
        self._in_a_row = 0  # how many such positions came closely one after the other
        self._held: dict[int, Message] = {}
        self._erasures = keeper.erasures
        self._lock = threading.Lock()
        self.pending: list[Message] = []
        self.replaces: dict[int, int] = {}
        self.family = Family()  # its lock orders merges; the store knows the relatives

    def after_fork_in_child(self) -> None:
        """Begin with locks that nobody holds: who held them is not in this process."""
        self._lock = threading.Lock()
        self.family = Family()

    def __len__(self) -> int:
        """How many messages were ever added, pending ones included."""
        return self._length + len(self.pending)

    @property
    def kept(self) -> int:
        """How many messages the store has."""
        return self._length

    # ── adding ──────────────────────────────────────────────────────────────────────────────────

    def extend(self, messages: Sequence[Message]) -> int:
        """Add messages, to be kept with the next change; answer the position of the first."""
        first = len(self)
        counts = self.before(first)
        for position, message in enumerate(messages, first):
            self._counts[position] = counts
            counts += one(message)
        self._counts[first + len(messages)] = counts
        self.pending += messages
        return first

    def note_origins(self, origins: Mapping[int, int]) -> None:
        """Note which positions were put in the place of which."""
        self.replaces.update((new - self._length, old) for new, old in origins.items())

    def added(self, messages: Sequence[Message]) -> None:
        """Messages were added and are kept, all at once."""
        position, held, known = self._length, self._held, self._counts
        counts = known[position]
        if len(held) + len(messages) > _HELD:
            self._hold(position, messages)
            held = {}
        if len(known) > _HELD:
            known.clear()
        for message in messages:
            held[position] = message
            counts += one(message)
            position += 1
            known[position] = counts
        self._length = position

    def settle(self) -> None:
        """What was pending is kept."""
        self._hold(self._length, self.pending)
        self._length += len(self.pending)
        self.pending, self.replaces = [], {}

    def forget(self) -> None:
        """What was pending is not kept, and never was there."""
        self.pending, self.replaces = [], {}
        self._counts = {self._length: self.before(self._length)}

    def catch_up(self, head: Head) -> None:
        """Others have added: go on from where they are."""
        self._length = head.length
        self._counts = {head.length: head.counts}

    def drop_held(self) -> None:
        """Forget what was read: it may have been erased."""
        with self._lock:
            self._held.clear()
            self._erasures = self._keeper.erasures

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def _hold(self, first: int, messages: Sequence[Message]) -> None:
        if len(self._held) + len(messages) > _HELD:
            self._make_room()
        last = messages[-(_HELD // 2) :]
        self._held.update(enumerate(last, first + len(messages) - len(last)))

    def _make_room(self) -> None:
        for oldest in list(self._held)[: _HELD // 2]:
            del self._held[oldest]

    def __getitem__(self, position: int) -> Message:
        """The message at a position."""
        if position >= self._length:
            return self.pending[position - self._length]
        if self._erasures != self._keeper.erasures:
            self.drop_held()
        found = self._held.get(position)
        return self.between(position, position + 1)[0] if found is None else found

    def between(self, start: int, stop: int) -> list[Message]:
        """The messages from one position to before another."""
        kept = min(stop, self._length)
        found: list[Message] = []
        if self._erasures != self._keeper.erasures:
            self.drop_held()
        if start < kept:
            held = [
                message
                for position in range(start, kept)
                if (message := self._held.get(position)) is not None
            ]
            if len(held) < kept - start:
                with self._lock:
                    found = self._keeper.messages(self._name, start, kept)
                    if kept - start <= _HELD // 2:
                        self._hold(start, found)
            else:
                found = held
        return found + self.pending[max(start - self._length, 0) : max(stop - self._length, 0)]

    def read(self, stretches: Iterable[tuple[int, int]]) -> Iterator[list[Message]]:
        """The messages of several ranges of positions, one list for each range.

        Ranges that lie close together are read with one query.
        """
        group: list[tuple[int, int]] = []
        for start, stop in stretches:
            if group and not (
                0 <= start - group[-1][1] <= _NEAR and stop - group[0][0] <= _AT_ONCE
            ):
                yield from self._read_group(group)
                group = []
            group.append((start, stop))
        yield from self._read_group(group)

    def _read_group(self, group: list[tuple[int, int]]) -> Iterator[list[Message]]:
        if len(group) > 1 and any(
            position < self._length and position not in self._held
            for start, stop in group
            for position in range(start, stop)
        ):
            first = group[0][0]
            messages = self.between(first, group[-1][1])
            for start, stop in group:
                yield messages[start - first : stop - first]
        else:
            for start, stop in group:
                yield self.between(start, stop)

    def before(self, position: int) -> int:
        """How many messages there are before a position, in all and by role, packed."""
        if not position:
            return 0
        counts = self._counts.get(position)
        return self._ask_before(position) if counts is None else counts

    def _ask_before(self, position: int) -> int:
        """Ask the store; who asks for one position after the other gets many at once."""
        known = self._counts
        if len(known) > _HELD:  # in place: other threads may hold on to it
            for place in [place for place in list(known) if place < self._length]:
                known.pop(place, None)
        near = abs(position - self._asked) <= _AHEAD
        self._asked, self._in_a_row = position, self._in_a_row + 1 if near else 0
        stop = min(position + _AT_ONCE, self._length)
        found: dict[int, int] = {}
        if self._in_a_row >= _IN_A_ROW and position < stop:
            read = self._keeper.befores(self._name, position, stop)
            found = {counts & MASK: counts for counts in read}
            self._asked = stop - 1
        if position not in found:
            found[position] = self._keeper.before(self._name, position)
        known.update(found)
        return found[position]

    def rank(self, role: Role, position: int) -> int:
        """How many messages of a role there are before a position."""
        return self.before(position) >> SHIFTS[role] & MASK

    def select(self, role: Role, start: int, stop: int) -> list[int]:
        """The positions of a role's messages, from its start-th to before its stop-th."""
        kept = self.rank(role, self._length)
        found: list[int] = []
        if start < kept:
            found = self._keeper.select(self._name, role, start, min(stop, kept))
        new = [p for p, message in enumerate(self.pending, self._length) if message.role == role]
        return found + new[max(start - kept, 0) : max(stop - kept, 0)]

    def of_times(self, since: int | None, until: int | None) -> list[tuple[int, int]]:
        """The stretches of positions whose messages are of a time, in the log's order."""
        since, until = (t if t is None else min(max(t, 0), MAX_INT) for t in (since, until))
        return list(runs(self._keeper.between_times(self._name, since, until)))

    def positions_of(self, message_id: str) -> list[int]:
        """The positions of the messages with an id."""
        if not is_text(message_id):
            return []
        return [
            *self._keeper.positions_of(self._name, message_id),
            *(
                p
                for p, message in enumerate(self.pending, self._length)
                if message.id == message_id
            ),
        ]

    def replaced(self, position: int) -> int | None:
        """The position that a message was put in the place of, where it was."""
        if position >= self._length:
            return self.replaces.get(position - self._length)
        return self._keeper.replaced(self._name, position)
