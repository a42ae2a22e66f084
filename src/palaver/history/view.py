"""A view: an ordered selection of the log; what a conversation is now, or was at some version.

A view is a sequence of messages that never changes. It reads straight from the log, so holding one
costs nothing, and a query goes straight to the positions that it asks for. `State`, `Stats`,
`BatchSnapshot`, `MarkMap` and `Result` are what a history returns; they hold a view and compute the
rest when asked.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast, overload

from msgspec import Struct

from palaver.errors import AmbiguousMessage, UnknownMessage, ValidationError
from palaver.history import marks as marking
from palaver.history.erase import origins_of
from palaver.history.frame import (
    MASK,
    SHIFTS,
    Branch,
    Frame,
    Leaf,
    concat,
    find,
    handle_number,
    handle_of,
    position_of_handle,
    ranges,
    ranges_between,
    runs,
    session_of,
    size,
)
from palaver.history.log import check_count
from palaver.history.marks import overlaps
from palaver.messages import ROLES, Message, Role
from palaver.messages.codec import to_dict
from palaver.messages.limits import (
    not_pickled,
    short_repr,
)
from palaver.messages.message import (
    fold_name,
    message_rows,
    show_html,
    show_rich,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.history.frame import Batch, Rope
    from palaver.history.log import LogReader

__all__ = [
    "BatchSnapshot",
    "MarkMap",
    "Result",
    "State",
    "Stats",
    "View",
    "count_roles",
    "intersect",
    "match",
    "same_messages",
    "select_positions",
    "view_of_log",
    "wanted_roles",
    "window",
]


class View(Sequence[Message]):
    """An ordered selection of a log.

    >>> from palaver.history import History
    >>> from palaver.messages import user, assistant
    >>> view = History([user("a"), assistant("b"), user("c")]).view
    >>> [message.text for message in view.recent(1, role="user")], view.count(role="user")
    (['c'], 2)
    """

    __slots__ = ("_places", "frame", "log", "stop", "version")

    def __init__(self, log: LogReader, frame: Frame, stop: int, version: int) -> None:
        """Select from a log by a frame whose tail ends at `stop`."""
        self.log = log
        self.frame = frame
        self.stop = stop
        self.version = version
        self._places: list[tuple[int, int, int]] | None = None

    # ── a sequence ──────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        """Return how many messages are selected."""
        frame = self.frame
        return size(frame.root) + self.stop - frame.start

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        """Return the message at an index, or a list for a slice."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return self._messages(start, stop)
            return [self[place] for place in range(start, stop, step)]
        return self.log[self.position(index)]

    def __iter__(self) -> Iterator[Message]:
        """Iterate over all messages in order."""
        for messages in self.log.read(self.ranges()):
            yield from messages

    def __contains__(self, value: object) -> bool:
        """Tell whether a message is selected."""
        if not isinstance(value, Message):
            return False
        places = self.log.positions_of(value.id)
        return any(self.log[place] == value and self.index_of(place) is not None
                   for place in places)  # fmt: skip

    def __eq__(self, other: object) -> bool:
        """Tell whether another sequence has equal messages."""
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    # equal to lists, so not hashable, as they are not
    __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        """Return the number of messages and the version, as text."""
        return f"<View of {len(self):,} messages at version {self.version}>"

    def _repr_html_(self) -> str:
        """Return the view as a notebook shows it."""
        return show_html(repr(self), message_rows(self))

    def __rich__(self) -> Any:  # noqa: ANN401 - a table of rich
        """Return the view as `rich` shows it."""
        return show_rich(repr(self), message_rows(self))

    __reduce_ex__ = not_pickled("pickle its messages: list(view)")

    # ── positions ───────────────────────────────────────────────────────────────────────────────

    def position(self, index: int) -> int:
        """Return the log position of the message at an index."""
        length = len(self)
        place = index + length if index < 0 else index
        if not 0 <= place < length:
            msg = f"there are {length} messages, none at {index}"
            raise IndexError(msg)
        before = length - (self.stop - self.frame.start)
        if place >= before:
            return self.frame.start + place - before
        return find(self.frame.root, place)

    @property
    def rope(self) -> Rope:
        """The selection as one rope, tail included."""
        frame, stop, log = self.frame, self.stop, self.log
        if frame.start >= stop:
            return frame.root
        counts = log.before(stop) - log.before(frame.start)
        return concat(frame.root, Leaf(frame.start, stop, counts))

    def index_of(self, position: int) -> int | None:
        """Return the index of a log position, or None if it is not selected."""
        frame = self.frame
        if frame.start <= position < self.stop:
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
        """Yield the ranges of the log that are selected, in order."""
        yield from ranges(self.frame.root)
        if self.frame.start < self.stop:
            yield self.frame.start, self.stop

    def ranges_between(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of the log behind the indexes from start to before stop."""
        before = size(self.frame.root)
        yield from ranges_between(self.frame.root, start, min(stop, before))
        begin, end = max(start - before, 0), stop - before
        if begin < end:
            yield self.frame.start + begin, self.frame.start + end

    def role_positions(self, role: Role) -> list[int]:
        """Return the log positions of a role's messages, in the view's order."""
        return select_positions(self, (role,), 0, len(self))

    def _messages(self, start: int, stop: int) -> list[Message]:
        return list(chain.from_iterable(self.log.read(self.ranges_between(start, stop))))

    def find(self, which: int | str | Message, *, strict: bool = False) -> int:
        """Return the log position of a message: by its index, its id, its handle, or itself.

        Ids of earlier sessions count if no message of this one answers to the name; with `strict`
        they count at any rate. Raises `UnknownMessage`, and `AmbiguousMessage` if the name could
        mean two messages.
        """
        if isinstance(which, int) and not isinstance(which, bool):
            try:
                return self.position(which)
            except IndexError as error:
                raise UnknownMessage(str(error)) from None
        given = which if isinstance(which, Message) else None
        name = which.id if isinstance(which, Message) else which
        places = self.log.positions_of(name) if isinstance(name, str) else []
        if given is not None and len(places) > 1:
            places = [place for place in places if self.log[place] == given] or places
        elif isinstance(which, str):
            places = self._named(which, places, strict=strict)
        if not places:
            msg = f"no message has the id {name!r}"
            raise UnknownMessage(msg)
        if len(places) > 1:
            groups = same_messages(self.log, places)
            if len(groups) > 1:
                raise AmbiguousMessage(str(name), [self._describe(group[-1]) for group in groups])
            places = [p for p in places if self.index_of(p) is not None] or places
        return places[-1]

    def _named(self, name: str, places: list[int], *, strict: bool) -> list[int]:
        """Return the positions that a name can mean: those with the id, and that of the handle."""
        counted = position_of_handle(name, self.frame, len(self.log))
        if counted is not None and handle_number(self.log[counted].id):
            counted = None  # its own id is its handle
        if not strict and (counted is not None or len(places) > 1):
            opened = session_of(self.frame).opened
            if counted is not None or places[-1] >= opened:
                places = [p for p in places if p >= opened or self.index_of(p) is not None]
        return places if counted is None else sorted({*places, counted})

    def _describe(self, position: int) -> str:
        message, index = self.log[position], self.index_of(position)
        where = f"position {position} of the log" if index is None else f"index {index}"
        return f"{where} ({message.role}, id {message.id!r})"

    def handle(self, which: int | str | Message) -> str | None:
        """Return the handle of a message, such as `msg-3`; None if it is of an earlier session."""
        position = self.find(which)
        return handle_of(position, self.log[position].id, self.frame)

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
        speaker: str | None = None,
        range: tuple[int, int] | None = None,  # noqa: A002 - the word for it
        recent: int | None = None,
    ) -> list[Message]:
        """Return the messages that match everything given; then a range of those, then the last n.

        Times are milliseconds, `since` included and `until` not. A `speaker` is given by its id or
        its name, in any spelling that `fold_name` makes equal. `text` is searched for in all
        content: text, reasoning, the arguments and results of tools, the names of files.

        >>> from palaver.history import History
        >>> from palaver.messages import user
        >>> [m.text for m in History([user("tea"), user("milk")]).query(text="te")]
        ['tea']
        """
        wanted = wanted_roles(role, roles)
        terms = Terms(mark, since, until, text, speaker)
        if terms == NO_TERMS:
            total = len(self) if wanted is None else count_roles(self, wanted)
            start, stop = window(total, range, recent)
            if wanted is None:
                return self._messages(start, stop)
            positions = select_positions(self, wanted, start, stop)
            return list(chain.from_iterable(self.log.read(runs(positions))))
        found = list(match(self, wanted, terms))
        start, stop = window(len(found), range, recent)
        return found[start:stop]

    def by_role(self, role: Role) -> list[Message]:
        """Return all messages of a role."""
        return self.query(roles=(role,))

    def recent(self, n: int, *, role: Role | None = None) -> list[Message]:
        """Return the last n messages, or the last n of a role."""
        check_count(n, "$.recent")
        return self.query(role=role, recent=n)

    def range(self, start: int, end: int, *, role: Role | None = None) -> list[Message]:
        """Return the messages from start to before end, counted within a role if one is given."""
        return self.query(role=role, range=(start, end))

    def count(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - counts matches
        self,
        *,
        role: Role | None = None,
        roles: Iterable[Role] | None = None,
        mark: str | None = None,
        since: int | None = None,
        until: int | None = None,
        text: str | None = None,
        speaker: str | None = None,
    ) -> int:
        """Return how many messages match everything given; see `query`."""
        wanted = wanted_roles(role, roles)
        terms = Terms(mark, since, until, text, speaker)
        if terms == NO_TERMS:
            return len(self) if wanted is None else count_roles(self, wanted)
        return sum(1 for _ in match(self, wanted, terms))

    # ── marks, batches, state ───────────────────────────────────────────────────────────────────

    @property
    def team_task(self) -> str | None:
        """The task that the team is working on, if any."""
        return self.frame.team_task

    @property
    def marks(self) -> Mapping[str, list[str]]:
        """The ids of the marked messages of the log, by mark."""
        return {
            name: [message.id for message in chain.from_iterable(self.log.read(ranges(rope)))]
            for name, rope in sorted(self.frame.marks.items())
        }

    @property
    def mark_ropes(self) -> Mapping[str, Rope]:
        """The sorted positions that each mark is on."""
        return self.frame.marks

    def marks_of(self, which: int | str | Message) -> list[str]:
        """Return the marks of one message."""
        position = self.find(which)
        known = sorted(self.frame.marks.items())
        return [name for name, rope in known if marking.has(rope, position)]

    @property
    def batch_index(self) -> int:
        """The number of the open batch."""
        return self.frame.batch_index

    @property
    def boundary(self) -> int:
        """The log's length when the open batch began."""
        return self.frame.opened

    def batch_snapshot(self, index: int) -> BatchSnapshot | None:
        """Return a batch as it ended; None for the open one and for one that does not exist."""
        if type(index) is not int:
            detail = f"must be a whole number, not {index!r}"
            raise ValidationError(detail, path="$.index", rule="batch")
        batch = self.frame.batch(index)
        return None if batch is None else self._snapshot(batch)

    def batch_snapshots(self) -> list[BatchSnapshot]:
        """Return all batches of the line that have ended, oldest first."""
        return [self._snapshot(batch) for batch in self._batches()]

    def _batches(self) -> list[Batch]:
        found: list[Batch] = []
        batch = self.frame.line
        while batch is not None:
            found.append(batch)
            batch = batch.before
        return found[::-1]

    def _snapshot(self, batch: Batch) -> BatchSnapshot:
        view = View(self.log, self.frame.at_end_of(batch), batch.stop, self.version)
        return BatchSnapshot(batch.index, batch.ended, view, batch.description, batch.opened)

    @property
    def state(self) -> State:
        """The messages and the snapshots, computed when accessed."""
        return State(self)

    @property
    def stats(self) -> Stats:
        """The numbers of messages and batches."""
        length, index = len(self), self.batch_index
        return Stats(length, length, index + 1, index)

    def mark_map(self) -> MarkMap:
        """Return the view as log positions, by role, and where the batches of the line opened."""
        opened = [*(batch.opened for batch in self._batches()), self.frame.opened]
        return MarkMap(
            original_indices=[p for start, stop in self.ranges() for p in range(start, stop)],
            type_indices={role: self.role_positions(role) for role in ROLES},
            batch_boundaries=opened,
            boundary_to_batch=list(range(len(opened))),
            current_batch=self.batch_index,
        )


def view_of_log(log: LogReader, frame: Frame, version: int) -> View:
    """Return a view of everything that was ever added, with a frame's marks and team task."""
    bare = Frame(marks=frame.marks, team_task=frame.team_task)
    return View(log, bare, len(log), version)


def same_messages(log: LogReader, positions: Iterable[int]) -> list[list[int]]:
    """Return positions in groups: in each, copies and revisions of one message, oldest first.

    Two messages are the same if they are equal, or if one replaced the other.
    """
    groups: list[list[int]] = []
    for position in sorted(positions):
        origins = origins_of(position, log.replaced)
        joined = [
            group
            for group in groups
            if not origins.isdisjoint(group) or log[position] == log[group[-1]]
        ]
        groups = [group for group in groups if group not in joined]
        groups.append(sorted([*chain.from_iterable(joined), position]))
    return groups


class Stats(Struct, frozen=True, rename="camel"):
    """The numbers of messages of the view, and of batches up to the open one."""

    total_messages: int
    current_batch_messages: int
    total_batches: int
    current_batch_index: int


class MarkMap(Struct, frozen=True, rename="camel"):
    """The view as log positions: in order, by role, and where each batch of the line opened."""

    original_indices: list[int]
    type_indices: dict[Role, list[int]]
    batch_boundaries: list[int]
    boundary_to_batch: list[int]
    current_batch: int


class BatchSnapshot(Struct, frozen=True):
    """A batch as it ended; `boundary` is the log's length when it opened."""

    batch_index: int
    timestamp: int
    messages: View
    description: str
    boundary: int = 0

    __repr__ = short_repr

    @property
    def message_count(self) -> int:
        """The number of messages it had."""
        return len(self.messages)

    def to_dict(self, *, messages: bool = True) -> dict[str, Any]:
        """Return the snapshot as JSON-ready data, with or without its messages."""
        return {
            "batchIndex": self.batch_index,
            "timestamp": self.timestamp,
            **({"messages": [to_dict(message) for message in self.messages]} if messages else {}),
            "messageCount": self.message_count,
            "description": self.description,
        }


class State(Struct, frozen=True):
    """A moment of a history: its messages and the snapshots of the batches before it."""

    messages: View

    __repr__ = short_repr

    @property
    def batch_snapshots(self) -> list[BatchSnapshot]:
        """The batches of the line that have ended, oldest first."""
        return self.messages.batch_snapshots()

    @property
    def current_batch_index(self) -> int:
        """The number of the open batch."""
        return self.messages.batch_index

    @property
    def total_message_count(self) -> int:
        """The number of messages in the view."""
        return len(self.messages)

    def to_dict(self, *, snapshots: bool = True) -> dict[str, Any]:
        """Return the state as JSON-ready data; `snapshots=False` omits the snapshots' messages."""
        return {
            "messages": [to_dict(message) for message in self.messages],
            "batchSnapshots": [
                snapshot.to_dict(messages=snapshots) for snapshot in self.batch_snapshots
            ],
            "currentBatchIndex": self.current_batch_index,
            "totalMessageCount": self.total_message_count,
        }


class Result(Struct, frozen=True):
    """The state after an operation, and the number of the batch that is open then."""

    state: State
    affected_batch_index: int

    def __repr__(self) -> str:
        """Return the numbers as text, without the messages."""
        count = self.state.total_message_count
        return f"<Result: {count} messages, batch {self.affected_batch_index}>"

    @property
    def stats(self) -> Stats:
        """The numbers after the operation."""
        return self.state.messages.stats

    def to_dict(self, *, snapshots: bool = True) -> dict[str, Any]:
        """Return the result as JSON-ready data."""
        return {
            "state": self.state.to_dict(snapshots=snapshots),
            "stats": to_dict(self.stats),
            "affectedBatchIndex": self.affected_batch_index,
        }


# ── the terms of a query ────────────────────────────────────────────────────────────────────────


def wanted_roles(role: Role | None, roles: Iterable[Role] | None) -> tuple[Role, ...] | None:
    """Return the roles that are asked for, each once; None for all of them."""
    if role is None and roles is None:
        return None
    wanted: list[Role] = [] if role is None else [role]
    if roles is not None:
        wanted += _listed(roles)
    for name in wanted:
        if name not in ROLES:
            detail = f"must be system, user, assistant or tool, not {name!r}"
            raise ValidationError(detail, path="$.role", rule="role")
    return tuple(dict.fromkeys(wanted))


def _listed(roles: Any) -> Iterable[Role]:  # noqa: ANN401 - it is for this to find out
    if isinstance(roles, str) or not isinstance(roles, Iterable):
        raise ValidationError("must be a list of roles", path="$.roles", rule="query")
    return roles


def check_range(bounds: object) -> None:
    """Raise `ValidationError` unless a range has a start and an end."""
    if not isinstance(bounds, list | tuple) or len(cast("tuple[object, ...]", bounds)) != 2:  # noqa: PLR2004 - both ends
        detail = f"must be a start and an end, as in (0, 10), not {bounds!r}"
        raise ValidationError(detail, path="$.range", rule="query")


def window(total: int, bounds: tuple[int, int] | None, recent: int | None) -> tuple[int, int]:
    """Return which of `total` matches are asked for: those of a range, then the last few."""
    start, stop = 0, total
    if bounds is not None:
        check_range(bounds)
        start, stop = bounds
        for name, value in (("start", start), ("end", stop)):
            check_count(value, f"$.range.{name}")
        if start > stop:
            detail = f"must not be beyond the end: {start} > {stop}"
            raise ValidationError(detail, path="$.range.start", rule="query")
        start, stop = min(start, total), min(stop, total)
    if recent is not None:
        check_count(recent, "$.recent")
        start = max(start, stop - recent)
    return start, stop


def _check_terms(texts: Mapping[str, object], times: Mapping[str, object]) -> None:
    for name, value in texts.items():
        if value is not None and not isinstance(value, str):
            raise ValidationError("must be text", path=f"$.{name}", rule="query")
    for name, value in times.items():
        if value is not None and type(value) is not int:
            detail = f"must be a whole number of milliseconds, not {value!r}"
            raise ValidationError(detail, path=f"$.{name}", rule="query")


# ── by role ─────────────────────────────────────────────────────────────────────────────────────


def count_roles(view: View, roles: Iterable[Role]) -> int:
    """Return how many messages of a view are of some roles."""
    frame, log, stop = view.frame, view.log, view.stop
    counts = 0 if frame.root is None else frame.root.counts
    return sum(
        (counts >> SHIFTS[role] & MASK) + log.rank(role, stop) - log.rank(role, frame.start)
        for role in roles
    )


def select_positions(view: View, roles: tuple[Role, ...], start: int, stop: int) -> list[int]:
    """Return the positions of the start-th to before the stop-th message of some roles."""
    found: list[int] = []
    before = 0
    for node, count in _nodes(view, roles, start, stop):
        begin, end = max(start - before, 0), min(stop - before, count)
        before += count
        if begin < end and node is not None:
            first, last = node
            if count == last - first:  # all of it is of these roles
                found += range(first + begin, first + end)
            else:
                found += _select_in_range(view, roles, node, begin, end)
    return found


def _nodes(
    view: View, roles: tuple[Role, ...], start: int, stop: int
) -> Iterator[tuple[tuple[int, int] | None, int]]:
    """Yield ranges of the log and how many messages of the roles each has, in order.

    A subtree that lies outside is passed over as one range of None.
    """
    shifts = [SHIFTS[role] for role in roles]
    frame, log = view.frame, view.log
    waiting: list[Leaf | Branch] = []
    if frame.start < view.stop:
        tail = log.before(view.stop) - log.before(frame.start)
        waiting.append(Leaf(frame.start, view.stop, tail))
    if frame.root is not None:
        waiting.append(frame.root)
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


def _select_in_range(
    view: View, roles: tuple[Role, ...], within: tuple[int, int], begin: int, end: int
) -> list[int]:
    """Return, within a range of the log, the begin-th to before the end-th of some roles."""
    log, (start, stop) = view.log, within
    if len(roles) == 1:
        base = log.rank(roles[0], start)
        return log.select(roles[0], base + begin, base + end)
    bases = [log.rank(role, start) for role in roles]

    def rank(position: int) -> int:
        return sum(log.rank(role, position) - base
                   for role, base in zip(roles, bases, strict=True))  # fmt: skip

    # the positions of the begin-th and the end-th message of the roles together
    first = start + bisect_left(range(start, stop), begin + 1, key=lambda p: rank(p + 1))
    last = start + bisect_left(range(start, stop), end, key=lambda p: rank(p + 1)) + 1
    return list(heapq.merge(*(
        log.select(role, log.rank(role, first), log.rank(role, last)) for role in roles
    )))  # fmt: skip


# ── by mark, time and text ──────────────────────────────────────────────────────────────────────


class Terms(NamedTuple):
    """What a message must match, beside its role; None for what does not matter."""

    mark: str | None = None
    since: int | None = None
    until: int | None = None
    text: str | None = None
    speaker: str | None = None


NO_TERMS: Final = Terms()


def match(view: View, roles: tuple[Role, ...] | None, terms: Terms) -> Iterator[Message]:
    """Yield the messages of a view that match everything given, in order."""
    mark, since, until, text, speaker = terms
    texts = {"mark": mark, "text": text, "speaker": speaker}
    _check_terms(texts, {"since": since, "until": until})
    name = None if speaker is None else fold_name(speaker)
    ranges = view.ranges()
    if mark is not None:
        rope = view.frame.marks.get(mark)
        ranges = (piece for start, stop in ranges for piece in overlaps(rope, start, stop))
    if since is not None or until is not None:
        ranges = intersect(ranges, view.log.of_times(since, until))
    for message in chain.from_iterable(view.log.read(ranges)):
        if (
            (roles is None or message.role in roles)
            and (name is None or (message.speaker is not None and name in message.speaker.names))
            and (since is None or message.timestamp >= since)
            and (until is None or message.timestamp < until)
            and (text is None or any(text in found for found in message.texts))
        ):
            yield message


def intersect(
    ranges: Iterable[tuple[int, int]], runs: list[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield what ranges have in common with sorted runs of positions, in the ranges' order."""
    ends = [end for _, end in runs]
    for start, stop in ranges:
        for place in range(bisect_right(ends, start), len(runs)):
            begin, end = runs[place]
            if begin >= stop:
                break
            yield max(begin, start), min(end, stop)
