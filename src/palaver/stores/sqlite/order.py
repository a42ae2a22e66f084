"""The orders of messages, and finding messages by role, id and time without an index.

An append writes no index by role, id or time, as long as messages come in order. Each row has how
many messages of each role come before it, so that the n-th of a role is found by bisection. A
message is *in order of time* if it is no older than those in that order before it, and *in order of
ids* if palaver made its id, too, and that comes after those in this order. Bisection finds a time
among the former and an id among the latter; only the others stand in the index by time, and in that
by id. `to_latest` leads from a message to the latest one in order before it, which bisection takes
in its place (see `follow`).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from palaver.errors import StoreDamaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from palaver.stores.forks import Lineage, RowRange
    from palaver.stores.records import Head

__all__ = [
    "NONE_IN_ORDER",
    "Latest",
    "OrderAt",
    "Read",
    "check_order",
    "first_after_version",
    "follow",
    "is_made_here",
    "latest_in_order",
    "latest_in_time",
    "positions_by_id",
    "positions_by_role",
    "positions_by_time",
]

Read: TypeAlias = "Callable[..., list[Any]]"
"""Runs a named statement and returns its rows."""
_MAX_KNOWN: Final = 20_000  # positions of messages that were looked for
_SPREAD: Final = 32  # rows that are looked at for one of a role, rather than bisecting once more


# ── the orders ──────────────────────────────────────────────────────────────────────────────────


class Latest(NamedTuple):
    """The latest messages in order, up to some position of a log."""

    position: int
    """Of the latest in order of time, whoever made its id; -1 where there is none."""
    sent: int
    """Its time."""
    named: int
    """The position of the latest in order of time and of ids; -1 where there is none."""
    name: str
    """Its id."""


NONE_IN_ORDER: Final = Latest(-1, 0, -1, "")


def is_made_here(name: str) -> bool:
    """Return whether an id looks like one of palaver's own: only these are expected to ascend."""
    return len(name) == 36 and name[14] == "7"  # noqa: PLR2004 - a UUID of version 7


def follow(latest: Latest, position: int, sent: int, name: str) -> tuple[int | None, Latest]:
    """Return how far a message is from the latest in order, and which are the latest from there on.

    A message is in order of time if it is no older than the latest that is, and in order of ids if
    palaver made its id, too, and that comes after the latest. The distance is 0 then. For a message
    in order of time alone it is below 0, and leads to the latest in order of both; otherwise it is
    above 0, and leads to the latest in order of time, or None if there is none.

    >>> first, second = (f"0190163{n}-8694-739b-aea5-966c26f8ad91" for n in "de")
    >>> distance, latest = follow(NONE_IN_ORDER, 0, 5, first)
    >>> distance, follow(latest, 1, 4, second)[0], follow(latest, 1, 5, "another's")[0]
    (0, 1, -1)
    """
    last, at, named, newest = latest
    if sent < at:
        return None if last < 0 else position - last, latest
    if name > newest and is_made_here(name):
        return 0, Latest(position, sent, position, name)
    return named - position, Latest(position, sent, named, newest)


OrderAt: TypeAlias = "Callable[[int], tuple[int | None, int, str] | None]"
"""Reads what `follow` returned for the message at a position, its time and its id."""


def latest_in_time(order_at: OrderAt, position: int) -> tuple[int, int, int, str] | None:
    """Return the latest message in order of time up to a position, if there is one.

    That is its position, its time, its distance to the latest in order of both, and its id.
    """
    row = order_at(position) if position >= 0 else None
    if row is not None and row[0] is not None and row[0] > 0:
        position -= row[0]
        row = order_at(position)
    if row is None or row[0] is None or row[0] > 0:
        return None
    return position, row[1], row[0], row[2]


def latest_in_order(order_at: OrderAt, position: int) -> Latest:
    """Return the latest messages in order up to a position."""
    found = latest_in_time(order_at, position)
    if found is None:
        return NONE_IN_ORDER
    position, sent, distance, name = found
    named = position + distance
    row = (distance, sent, name) if not distance else order_at(named) if named >= 0 else None
    return Latest(position, sent, -1, "") if row is None else Latest(position, sent, named, row[2])


def check_order(latest: Latest, rows: Iterable[tuple[int, int | None, int, str]]) -> Iterator[str]:
    """Yield which messages have a wrong distance to the latest in order.

    `latest` are the latest in order before them; a row is its position, its distance, its time and
    its id. Two kinds of messages that an earlier palaver marked as late stay so, in both indexes:
    those that were there before any order, and those out of order of ids alone.
    """
    for position, distance, sent, name in rows:
        expected, following = follow(latest, position, sent, name)
        late = None if latest.position < 0 else position - latest.position
        if distance == late and (late is None or expected != 0):
            continue
        if distance != expected:
            yield f"message {position}: its place in the order of ids and times is wrong"
        latest = following


# ── finding ─────────────────────────────────────────────────────────────────────────────────────


def positions_by_id(read: Read, line: Lineage[int], name: str, known: dict[str, int]) -> list[int]:
    """Return the positions of the messages of a log that have an id.

    `known` are positions of messages in order, in whatever conversation: whoever is found there is
    not looked for, and whoever had to be is added.
    """
    place = known.get(name, -1)
    found = read("of_id", name, _owner(line, place), place)
    if is_made_here(name) and not any(in_order for *_, in_order in found):
        order_at = _order_of(read, line)
        place = _first(read, line, lambda place: latest_in_order(order_at, place).name >= name)
        found = read("of_id", name, _owner(line, place), place)
        if len(known) >= _MAX_KNOWN:
            known.clear()
        known[name] = place
    return sorted(place for key, place, _ in found if key == _owner(line, place))


def positions_by_time(read: Read, line: Lineage[int], since: int, until: int) -> list[int]:
    """Return the positions of the messages from one time to before another, in log order."""
    order_at = _order_of(read, line)

    def latest(position: int) -> tuple[int, int]:
        """Return position and time of the latest message in order of time up to a position."""
        found = latest_in_time(order_at, position)
        return (-1, 0) if found is None else found[:2]

    begin = _first(read, line, lambda place: latest(place)[1] >= since)
    end = _first(read, line, lambda place: latest(place)[1] >= until)
    last, _ = latest(end - 1)
    ranges = line.row_ranges(begin, last + 1)
    found = read("in_order", json.dumps(ranges)) if ranges else []
    found += read("out_of_order", json.dumps(line.row_ranges()), since, until)
    return sorted(row[0] for row in found)


def first_after_version(read: Read, cid: int, head: Head, version: int) -> int:
    """Return the position of a conversation's first message after a version, by binary search."""
    low, high = head.base, head.length
    while low < high:
        middle = (low + high) // 2
        rows = read("version_at", cid, middle)
        if not rows or rows[0][0] is None:
            msg = f"{head.id} has no message at {middle}"
            raise StoreDamaged(msg)
        if rows[0][0] > version:
            high = middle
        else:
            low = middle + 1
    return low


def positions_by_role(
    read: Read, line: Lineage[int], role: int, start: int, stop: int
) -> list[int]:
    """Return the positions of a role's messages from its start-th to before its stop-th.

    Where they lie close together, all rows between them are looked at; otherwise the one in the
    middle is found first.
    """

    def place(rank: int, low: int = 0, high: int | None = None) -> int:
        """Return where the rank-th is, or where the log ends."""
        return _first(read, line, lambda position: up_to(position) > rank, low, high)

    def up_to(position: int) -> int:
        rows = read("up_to", _owner(line, position), position, role)
        return rows[0][0] if rows else 0

    ranges: list[RowRange[int]] = []
    end = place(stop)
    waiting = [(start, place(start, start, end), stop, end)]
    while waiting:
        start, first, stop, end = waiting.pop()
        if stop - start == 1:
            ranges += line.row_ranges(first, min(first + 1, end))
        elif end - first <= _SPREAD * (stop - start):
            ranges += line.row_ranges(first, end)
        else:
            middle = (start + stop) // 2
            between = place(middle, first, end)
            waiting += (start, first, middle, between), (middle, between, stop, end)
    return [row[0] for row in read("of_role", json.dumps(ranges), role)]


def _order_of(read: Read, line: Lineage[int]) -> OrderAt:
    """Return what reads the place of a message in the orders, by its position."""

    def order_at(position: int) -> Any:  # noqa: ANN401 - a row, if there is one
        rows = read("order_at", _owner(line, position), position)
        return rows[0] if rows else None

    return order_at


def _first(
    read: Read,
    line: Lineage[int],
    reached: Callable[[int], bool],
    low: int = 0,
    high: int | None = None,
) -> int:
    """Return the first position of a log where something is reached, and stays so; or its end.

    Steps from the end that grow find a part of the log, since what is new is asked for most;
    bisection does the rest.
    """
    end: int | None = read("end", line.key)[0][0] if high is None else high
    top, step = line.base if end is None else end, 1
    while low < top and reached(probe := max(low, top - step)):
        top, step = probe, step * 4
    low = max(low, top - step + 1)
    return bisect_left(range(top), True, low, key=reached)  # noqa: FBT003 - what is looked for


def _owner(line: Lineage[int], position: int) -> int:
    """Return whose row a position is; no conversation has the number -1."""
    owner = line.owner(position)
    return -1 if owner is None else owner.key
