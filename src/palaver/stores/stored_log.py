"""The log of a stored conversation, and where its versions end, read when they are needed.

Messages that were read or added are cached, since they do not change; an erasure empties the cache.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from palaver.history.frame import MASK, SHIFTS, runs
from palaver.history.log import ROLE_COUNTS
from palaver.messages.limits import MAX_INT, is_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from palaver.messages import Message, Role
    from palaver.stores.backend import Backend
    from palaver.stores.records import Head

__all__ = ["StoredLog", "StoredStops"]

_CACHED: Final = 20_000
_NEAR: Final = 8
"""Ranges this close are read together: the messages between them cost less than another query."""
_PAGE: Final = 500
_AHEAD: Final = 64
_IN_A_ROW: Final = 4
"""Counts are read ahead after so many requests in a row, each at most `_AHEAD` from the last."""


class StoredLog:
    """The messages of a stored conversation by position."""

    def __init__(self, backend: Backend, head: Head) -> None:
        """Open the log as it is at the version of a head."""
        self._backend = backend
        self._name = head.id
        self.start = head.base
        self.length = head.length
        """How many messages were ever added."""
        self._counts: dict[int, int] = {head.length: head.counts}
        self._asked = -_AHEAD - 1  # the last position whose counts were not known
        self._in_a_row = 0  # how many such positions came closely one after the other
        self._cache: dict[int, Message] = {}
        self._erasures = backend.erasures
        self._lock = threading.Lock()

    def after_fork_in_child(self) -> None:
        """Take a new lock: the thread that may hold the old one is not in this process."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many messages were ever added."""
        return self.length

    # ── following the backend ───────────────────────────────────────────────────────────────────

    def extend(self, messages: Sequence[Message]) -> None:
        """Note messages that were committed at the end."""
        position, cache, known = self.length, self._cache, self._counts
        counts = self.before(position)
        if len(known) > _CACHED:
            known.clear()
        if len(cache) + len(messages) > _CACHED:
            self.learn(position, messages)
            cache = {}
        for message in messages:
            cache[position] = message
            counts += ROLE_COUNTS[message.role]
            position += 1
            known[position] = counts
        self.length = position

    def catch_up(self, head: Head) -> None:
        """Go on from a newer head, after others have added messages."""
        self.length = head.length
        self._counts = {head.length: head.counts}

    def clear_cache(self) -> None:
        """Forget the messages that were read: some may have been erased."""
        with self._lock:
            self._cache.clear()
            self._erasures = self._backend.erasures

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def learn(self, first: int, messages: Sequence[Message]) -> None:
        """Note messages that were read, or committed at a position behind those of others."""
        if len(self._cache) + len(messages) > _CACHED:
            for oldest in list(self._cache)[: _CACHED // 2]:
                del self._cache[oldest]
        last = messages[-(_CACHED // 2) :]
        self._cache.update(enumerate(last, first + len(messages) - len(last)))

    def __getitem__(self, position: int) -> Message:
        """Return the message at a position."""
        if self._erasures != self._backend.erasures:
            self.clear_cache()
        found = self._cache.get(position)
        return self.between(position, position + 1)[0] if found is None else found

    def between(self, start: int, stop: int) -> list[Message]:
        """Return the messages from one position to before another."""
        if self._erasures != self._backend.erasures:
            self.clear_cache()
        stop = min(stop, self.length)
        if start >= stop:
            return []
        cache = self._cache
        found = [
            message
            for position in range(start, stop)
            if (message := cache.get(position)) is not None
        ]
        if len(found) < stop - start:
            with self._lock:
                found = self._backend.messages(self._name, start, stop)
                if stop - start <= _CACHED // 2:
                    self.learn(start, found)
        return found

    def read(self, ranges: Iterable[tuple[int, int]]) -> Iterator[list[Message]]:
        """Yield the messages of several ranges of positions, one list for each range.

        Ranges that lie close together are read with one query.
        """
        group: list[tuple[int, int]] = []
        for start, stop in ranges:
            if group and not (0 <= start - group[-1][1] <= _NEAR and stop - group[0][0] <= _PAGE):
                yield from self._read_group(group)
                group = []
            group.append((start, stop))
        yield from self._read_group(group)

    def _read_group(self, group: list[tuple[int, int]]) -> Iterator[list[Message]]:
        if len(group) > 1 and any(
            position not in self._cache for start, stop in group for position in range(start, stop)
        ):
            first = group[0][0]
            messages = self.between(first, group[-1][1])
            for start, stop in group:
                yield messages[start - first : stop - first]
        else:
            for start, stop in group:
                yield self.between(start, stop)

    def encoded(self, ranges: Iterable[tuple[int, int]]) -> str | None:
        """Return the messages of several ranges as a JSON list, unchecked: as they are stored.

        None if the backend has no such text, as in memory.
        """
        read = getattr(self._backend, "bodies", None)
        if read is None:
            return None
        return f"[{','.join([read(self._name, *each) for each in ranges])}]"

    def before(self, position: int) -> int:
        """Return how many messages there are before a position, in all and by role, packed."""
        if not position:
            return 0
        counts = self._counts.get(position)
        return self._read_counts(position) if counts is None else counts

    def _read_counts(self, position: int) -> int:
        """Read counts from the backend; many at once if position after position is asked for."""
        known = self._counts
        if len(known) > _CACHED:  # in place: other threads may hold on to it
            for place in [place for place in list(known) if place < self.length]:
                known.pop(place, None)
        near = abs(position - self._asked) <= _AHEAD
        self._asked, self._in_a_row = position, self._in_a_row + 1 if near else 0
        stop = min(position + _PAGE, self.length)
        found: dict[int, int] = {}
        if self._in_a_row >= _IN_A_ROW and position < stop:
            read = self._backend.befores(self._name, position, stop)
            found = {counts & MASK: counts for counts in read}
            self._asked = stop - 1
        if position not in found:
            found[position] = self._backend.before(self._name, position)
        known.update(found)
        return found[position]

    def rank(self, role: Role, position: int) -> int:
        """Return how many messages of a role there are before a position."""
        return self.before(position) >> SHIFTS[role] & MASK

    def select(self, role: Role, start: int, stop: int) -> list[int]:
        """Return the positions of a role's messages, from its start-th to before its stop-th."""
        stop = min(stop, self.rank(role, self.length))
        return self._backend.select(self._name, role, start, stop) if start < stop else []

    def of_times(self, since: int | None, until: int | None) -> list[tuple[int, int]]:
        """Return the ranges of positions whose messages are of a time, in the log's order."""
        since, until = (t if t is None else min(max(t, 0), MAX_INT) for t in (since, until))
        return list(runs(self._backend.between_times(self._name, since, until)))

    def positions_of(self, message_id: str) -> list[int]:
        """Return the positions of the messages with an id."""
        return self._backend.positions_of(self._name, message_id) if is_text(message_id) else []

    def replaced(self, position: int) -> int | None:
        """Return the position whose message was replaced by the one here, if any."""
        return self._backend.replaced(self._name, position)


class StoredStops:
    """Where the view's tail ended at each version: the newest are known, older ones are read."""

    __slots__ = ("_backend", "_first", "_known", "_name")

    def __init__(self, backend: Backend, name: str, version: int, stop: int) -> None:
        """Begin with one version, the newest."""
        self._backend = backend
        self._name = name
        self._first = version
        self._known = [stop]

    def __len__(self) -> int:
        """Return the number of versions."""
        return self._first + len(self._known)

    def __getitem__(self, version: int) -> int:
        """Return where the tail ended at a version."""
        if version >= self._first:
            return self._known[version - self._first]
        return self._backend.stop(self._name, version)

    def append(self, stop: int) -> None:
        """Add the next version."""
        self._known.append(stop)

    def catch_up(self, version: int, stop: int) -> None:
        """Go on from a newer version, after others have made some."""
        self._first, self._known = version, [stop]
