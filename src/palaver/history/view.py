"""A view: an ordered selection of the log. What a conversation is now, or was at some version.

A view is a sequence of messages that never changes. It reads straight from the log, so it costs
nothing to hold, and it knows where each role speaks without looking at any message.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, overload

from palaver.errors import UnknownMessage, ValidationError
from palaver.history import marks as marking
from palaver.history.handles import handle_of, position_of
from palaver.history.results import BatchSnapshot, MarkMap, State, Stats
from palaver.history.rope import (
    MASK,
    SHIFTS,
    Branch,
    Leaf,
    concat,
    find,
    ranges,
    ranges_between,
    runs,
    size,
)
from palaver.history.terms import check_terms, wanted_roles, window, within
from palaver.messages import ROLES, Message

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.history.frame import Batch, Frame
    from palaver.history.log import Log
    from palaver.history.rope import Rope
    from palaver.messages import Role

__all__ = ["View"]


class View(Sequence[Message]):
    """An ordered selection of a log.

    >>> from palaver.history import History
    >>> from palaver.messages import user, assistant
    >>> view = History([user("a"), assistant("b"), user("c")]).view
    >>> [message.text for message in view.recent(1, role="user")], view.count(role="user")
    (['c'], 2)
    """

    __slots__ = ("_frame", "_log", "_places", "_stop", "version")

    def __init__(self, log: Log, frame: Frame, stop: int, version: int) -> None:
        """Look at a log through a frame whose tail ends at `stop`."""
        self._log = log
        self._frame = frame
        self._stop = stop
        self.version = version
        self._places: list[tuple[int, int, int]] | None = None

    # ── a sequence ──────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        """How many messages are selected."""
        return size(self._frame.root) + self._stop - self._frame.start

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        """The message at an index, or a list for a slice."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return self._messages(start, stop)
            return [self[place] for place in range(start, stop, step)]
        return self._log[self.position(index)]

    def __iter__(self) -> Iterator[Message]:
        """All messages in order."""
        for messages in self._log.read(self.ranges()):
            yield from messages

    def __contains__(self, value: object) -> bool:
        """Tell whether a message is selected."""
        if not isinstance(value, Message):
            return False
        places = self._log.positions_of(value.id)
        return any(self._log[place] == value and self.index_of(place) is not None
                   for place in places)  # fmt: skip

    def __eq__(self, other: object) -> bool:
        """Equal to any sequence of equal messages."""
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    # equal to lists, so not hashable, as they are not
    __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        """Say how many and which version."""
        return f"<View of {len(self)} messages at version {self.version}>"

    # ── places ──────────────────────────────────────────────────────────────────────────────────

    @property
    def log(self) -> Log:
        """The log it selects from."""
        return self._log

    def position(self, index: int) -> int:
        """The log position of the message at an index."""
        length = len(self)
        place = index + length if index < 0 else index
        if not 0 <= place < length:
            msg = f"there are {length} messages, none at {index}"
            raise IndexError(msg)
        before = length - (self._stop - self._frame.start)
        if place >= before:
            return self._frame.start + place - before
        return find(self._frame.root, place)

    @property
    def rope(self) -> Rope:
        """The selection as one rope, tail included."""
        return whole(self._frame, self._stop, self._log)

    def index_of(self, position: int) -> int | None:
        """The index of a log position, where it is selected."""
        frame = self._frame
        if frame.start <= position < self._stop:
            return size(frame.root) + position - frame.start
        if self._places is None:  # sorted once, for this question and those that follow
            places: list[tuple[int, int, int]] = []
            index = 0
            for start, stop in ranges(frame.root):
                places.append((start, stop, index))
                index += stop - start
            self._places = sorted(places)
        found = bisect_right(self._places, position, key=itemgetter(0)) - 1
        if found < 0 or position >= self._places[found][1]:
            return None
        start, _, index = self._places[found]
        return index + position - start

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The stretches of the log it is made of, in order."""
        yield from ranges(self._frame.root)
        if self._frame.start < self._stop:
            yield self._frame.start, self._stop

    def ranges_between(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The stretches of the log behind the indexes from start to before stop."""
        before = size(self._frame.root)
        yield from ranges_between(self._frame.root, start, min(stop, before))
        begin, end = max(start - before, 0), stop - before
        if begin < end:
            yield self._frame.start + begin, self._frame.start + end

    def role_positions(self, role: Role) -> list[int]:
        """The log positions of a role's messages, in the view's order."""
        return self._positions((role,), 0, len(self))

    def _messages(self, start: int, stop: int) -> list[Message]:
        return list(chain.from_iterable(self._log.read(self.ranges_between(start, stop))))

    def find(self, which: int | str | Message) -> int:
        """The log position of a message: by its index, its id, its handle, or itself."""
        if isinstance(which, int) and not isinstance(which, bool):
            try:
                return self.position(which)
            except IndexError as error:
                raise UnknownMessage(str(error)) from None
        name = which.id if isinstance(which, Message) else which
        places = self._log.positions_of(name) if isinstance(name, str) else []
        if places:
            return places[-1]
        place = None
        if isinstance(which, str):
            place = position_of(which, self._frame, len(self._log))
        if place is None:
            msg = f"no message has the id {name!r}"
            raise UnknownMessage(msg)
        return place

    def handle(self, which: int | str | Message) -> str | None:
        """The handle of a message, such as `msg-3`; None where an earlier session said it."""
        return handle_of(self.find(which), self._frame)

    # ── queries ─────────────────────────────────────────────────────────────────────────────────

    def query(
        self,
        *,
        role: Role | None = None,
        roles: Iterable[Role] | None = None,
        mark: str | None = None,
        since: int | None = None,
        until: int | None = None,
        text: str | None = None,
        range: tuple[int, int] | None = None,  # noqa: A002 - the word for it
        recent: int | None = None,
    ) -> list[Message]:
        """The messages that match everything given; then a range of those, then the last n.

        Times are milliseconds, `since` included and `until` not.

        >>> from palaver.history import History
        >>> from palaver.messages import user
        >>> [m.text for m in History([user("tea"), user("milk")]).query(text="te")]
        ['tea']
        """
        wanted = wanted_roles(role, roles)
        if mark is None and since is None and until is None and text is None:
            total = self._count(wanted)
            start, stop = window(total, range, recent)
            return self._of_roles(wanted, start, stop)
        found = list(self._matching(wanted, mark, since, until, text))
        start, stop = window(len(found), range, recent)
        return found[start:stop]

    def by_role(self, role: Role) -> list[Message]:
        """All messages of a role."""
        return self.query(role=role)

    def recent(self, n: int, *, role: Role | None = None) -> list[Message]:
        """The last n messages, or the last n of a role."""
        return self.query(role=role, recent=n)

    def range(self, start: int, end: int, *, role: Role | None = None) -> list[Message]:
        """The messages from start to before end, counted within a role where one is given."""
        return self.query(role=role, range=(start, end))

    def count(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - S1's word
        self,
        *,
        role: Role | None = None,
        roles: Iterable[Role] | None = None,
        mark: str | None = None,
        since: int | None = None,
        until: int | None = None,
        text: str | None = None,
    ) -> int:
        """How many messages match."""
        wanted = wanted_roles(role, roles)
        if mark is None and since is None and until is None and text is None:
            return self._count(wanted)
        return sum(1 for _ in self._matching(wanted, mark, since, until, text))

    def _count(self, roles: tuple[Role, ...] | None) -> int:
        if roles is None:
            return len(self)
        counts = 0 if self._frame.root is None else self._frame.root.counts
        log, start, stop = self._log, self._frame.start, self._stop
        return sum(
            (counts >> SHIFTS[role] & MASK) + log.rank(role, stop) - log.rank(role, start)
            for role in roles
        )

    def _of_roles(self, roles: tuple[Role, ...] | None, start: int, stop: int) -> list[Message]:
        if roles is None:
            return self._messages(start, stop)
        positions = self._positions(roles, start, stop)
        return list(chain.from_iterable(self._log.read(runs(positions))))

    def _positions(self, roles: tuple[Role, ...], start: int, stop: int) -> list[int]:
        """The positions of the start-th to before the stop-th message of some roles."""
        found: list[int] = []
        before = 0
        for node, count in self._nodes(roles, start, stop):
            begin, end = max(start - before, 0), min(stop - before, count)
            before += count
            if begin < end and node is not None:
                first, last = node
                if count == last - first:  # all of it is of these roles
                    found += range(first + begin, first + end)
                else:
                    found += self._in_stretch(roles, first, last, begin, end)
        return found

    def _nodes(
        self, roles: tuple[Role, ...], start: int, stop: int
    ) -> Iterator[tuple[tuple[int, int] | None, int]]:
        """Stretches of the log and how many messages of the roles each has, in order.

        A subtree that lies outside is passed over whole, as a stretch of None.
        """
        shifts = [SHIFTS[role] for role in roles]
        waiting: list[Leaf | Branch] = []
        if self._frame.start < self._stop:
            tail = self._log.before(self._stop) - self._log.before(self._frame.start)
            waiting.append(Leaf(self._frame.start, self._stop, tail))
        if self._frame.root is not None:
            waiting.append(self._frame.root)
        before = 0
        while waiting and before < stop:
            node = waiting.pop()
            count = sum(node.counts >> shift & MASK for shift in shifts)
            if before + count <= start or not count:
                yield None, count
                before += count
            elif type(node) is Leaf:
                yield (node.start, node.stop), count
                before += count
            else:
                assert type(node) is Branch  # noqa: S101 - there are only two kinds
                waiting.append(node.right)
                waiting.append(node.left)

    def _in_stretch(
        self, roles: tuple[Role, ...], start: int, stop: int, begin: int, end: int
    ) -> list[int]:
        """Within a stretch of the log: the begin-th to before the end-th of some roles."""
        log = self._log
        if len(roles) == 1:
            base = log.rank(roles[0], start)
            return log.select(roles[0], base + begin, base + end)
        bases = [log.rank(role, start) for role in roles]

        def rank(position: int) -> int:
            return sum(log.rank(role, position) - base
                       for role, base in zip(roles, bases, strict=True))  # fmt: skip

        # positions where the begin-th and the end-th of the roles together stand
        first = start + bisect_left(range(start, stop), begin + 1, key=lambda p: rank(p + 1))
        last = start + bisect_left(range(start, stop), end, key=lambda p: rank(p + 1)) + 1
        return list(heapq.merge(*(
            log.select(role, log.rank(role, first), log.rank(role, last)) for role in roles
        )))  # fmt: skip

    def _matching(
        self,
        roles: tuple[Role, ...] | None,
        mark: str | None,
        since: int | None,
        until: int | None,
        text: str | None,
    ) -> Iterator[Message]:
        check_terms({"mark": mark, "text": text}, {"since": since, "until": until})
        stretches = self.ranges()
        if mark is not None:
            rope = self._frame.marks.get(mark)
            stretches = (
                piece for start, stop in stretches for piece in marking.overlaps(rope, start, stop)
            )
        if since is not None or until is not None:
            stretches = within(stretches, self._log.of_times(since, until))
        for message in chain.from_iterable(self._log.read(stretches)):
            if (
                (roles is None or message.role in roles)
                and (since is None or message.timestamp >= since)
                and (until is None or message.timestamp < until)
                and (text is None or text in message.text)
            ):
                yield message

    # ── marks, batches, state ───────────────────────────────────────────────────────────────────

    @property
    def team_task(self) -> str | None:
        """What the team is at work on."""
        return self._frame.team_task

    @property
    def marks(self) -> Mapping[str, list[str]]:
        """The ids of the marked messages of the log, by mark."""
        return {
            name: [message.id for message in chain.from_iterable(self._log.read(ranges(rope)))]
            for name, rope in sorted(self._frame.marks.items())
        }

    @property
    def mark_ropes(self) -> Mapping[str, Rope]:
        """The marks as they are kept: sorted positions."""
        return self._frame.marks

    def marks_of(self, which: int | str | Message) -> list[str]:
        """The marks of one message."""
        position = self.find(which)
        known = sorted(self._frame.marks.items())
        return [name for name, rope in known if marking.has(rope, position)]

    @property
    def batch_index(self) -> int:
        """The number of the batch that is open."""
        return self._frame.batch_index

    @property
    def boundary(self) -> int:
        """The log's length when the open batch began."""
        return self._frame.opened

    def batch_snapshot(self, index: int) -> BatchSnapshot | None:
        """A batch as it ended; None for the open one and for one that is not there."""
        if type(index) is not int:
            detail = f"must be a whole number, not {index!r}"
            raise ValidationError(detail, path="$.index", rule="HI-09")
        batch = self._frame.batch(index)
        return None if batch is None else self._snapshot(batch)

    def batch_snapshots(self) -> list[BatchSnapshot]:
        """All batches of the line that have ended, oldest first."""
        return [self._snapshot(batch) for batch in self._batches()]

    def _batches(self) -> list[Batch]:
        found: list[Batch] = []
        batch = self._frame.line
        while batch is not None:
            found.append(batch)
            batch = batch.before
        return found[::-1]

    def _snapshot(self, batch: Batch) -> BatchSnapshot:
        view = View(self._log, batch_frame(self._frame, batch), batch.stop, self.version)
        return BatchSnapshot(batch.index, batch.ended, view, batch.description, batch.opened)

    @property
    def state(self) -> State:
        """The messages and the snapshots, worked out when looked at."""
        return State(self)

    @property
    def stats(self) -> Stats:
        """The numbers."""
        length, index = len(self), self.batch_index
        return Stats(length, length, index + 1, index)

    def mark_map(self) -> MarkMap:
        """The view as log positions, by role, and where the batches of the line opened."""
        opened = [*(batch.opened for batch in self._batches()), self._frame.opened]
        return MarkMap(
            original_indices=[p for start, stop in self.ranges() for p in range(start, stop)],
            type_indices={role: self.role_positions(role) for role in ROLES},
            batch_boundaries=opened,
            boundary_to_batch=list(range(len(opened))),
            current_batch=self.batch_index,
        )


def whole(frame: Frame, stop: int, log: Log) -> Rope:
    """A frame's selection as one rope, tail included."""
    if frame.start >= stop:
        return frame.root
    counts = log.before(stop) - log.before(frame.start)
    return concat(frame.root, Leaf(frame.start, stop, counts))


def batch_frame(frame: Frame, batch: Batch) -> Frame:
    """The moment at which a batch ended, with the marks and the task of the frame given."""
    return type(frame)(
        root=batch.root,
        start=batch.start,
        line=batch.before,
        opened=batch.opened,
        marks=frame.marks,
        team_task=frame.team_task,
        merged=batch.merged,
    )


def whole_log(frame: Frame, log: Log, version: int) -> View:
    """A view of everything that was ever added."""
    bare = type(frame)(marks=frame.marks, team_task=frame.team_task)
    return View(log, bare, len(log), version)
