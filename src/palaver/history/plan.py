"""What an operation would do to a view, worked out before anything is done.

A plan says which stretches stay and what is put in where. Carrying it out gives a new rope; pricing
it gives a bill. Nothing here changes anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from palaver.errors import ValidationError
from palaver.history.frame import Frame
from palaver.history.operations import Clear, Filter, Insert, Replace, Truncate
from palaver.history.rewriting import Rewrite, pieces_of
from palaver.history.rope import build, runs, splice, split
from palaver.history.view import whole_log
from palaver.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from palaver.history.log import Log
    from palaver.history.rope import Rope
    from palaver.history.view import View

__all__ = ["Edit", "Plan", "carried_out", "planned"]

Edit = Insert | Replace | Truncate | Clear | Filter | Rewrite


class Plan(Struct, frozen=True):
    """One of three ways: put messages in, keep a window of indexes, keep stretches of the log.

    Among stretches, those below zero are new messages: -1 is the first. `origins` says which new
    message stands for which position.
    """

    reason: str
    place: int | None = None
    removed: int = 0
    messages: tuple[Message, ...] = ()
    window: tuple[int, int] | None = None
    pieces: tuple[tuple[int, int], ...] | None = None
    origins: tuple[tuple[int, int], ...] = ()


def planned(view: View, operation: Edit) -> Plan:
    """Plan an operation, or say why it does not fit."""
    length = len(view)
    if isinstance(operation, Insert):
        if operation.position > length:
            _beyond("position", operation.position, length, "HI-03")
        return Plan("INSERT", operation.position, messages=operation.messages)
    if isinstance(operation, Replace):
        if operation.index >= length:
            _beyond("index", operation.index, length - 1, "HI-04")
        origin = ((0, view.position(operation.index)),)
        return Plan(
            "REPLACE", operation.index, removed=1, messages=(operation.message,), origins=origin
        )
    if isinstance(operation, Rewrite):
        among = whole_log(Frame(), view.log, view.version) if operation.of_log else view
        return Plan(
            operation.reason,
            messages=operation.messages,
            pieces=tuple(pieces_of(operation, among)),
            origins=tuple((new, among.position(index)) for new, index in operation.origins()),
        )
    if isinstance(operation, Truncate) and operation.role is None:
        return Plan("TRUNCATE", window=operation.window(length))
    return Plan(operation.operation, pieces=tuple(_kept(view, operation)))


def _kept(view: View, operation: Truncate | Clear | Filter) -> Iterable[tuple[int, int]]:
    if isinstance(operation, Truncate):
        return _role_truncated(view, operation)
    if isinstance(operation, Clear):
        return runs(view.role_positions("system")) if operation.keep_system_message else ()
    return _filtered(view, operation)


def _beyond(name: str, value: int, last: int, rule: str) -> None:
    detail = f"must be 0 to {last} here, not {value}" if last >= 0 else "there are no messages"
    raise ValidationError(detail, path=f"$.{name}", rule=rule)


def _role_truncated(view: View, operation: Truncate) -> Iterator[tuple[int, int]]:
    assert operation.role is not None  # noqa: S101 - the caller looked
    positions = view.role_positions(operation.role)
    start, stop = operation.window(len(positions))
    if operation.others == "drop":
        return runs(positions[start:stop])
    gone = frozenset(positions[:start] + positions[stop:])
    return runs(p for begin, end in view.ranges() for p in range(begin, end) if p not in gone)


def _filtered(view: View, operation: Filter) -> Iterator[tuple[int, int]]:
    if operation.content_contains is None and not operation.content_excludes:
        if operation.roles is None:
            return view.ranges()
        if len(operation.roles) == 1:
            return runs(view.role_positions(operation.roles[0]))
    stretches = list(view.ranges())
    return runs(
        position
        for (begin, _), messages in zip(stretches, view.log.read(stretches), strict=True)
        for position, message in enumerate(messages, begin)
        if operation.keeps(message)
    )


def _joined(pieces: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The same stretches, neighbours made one."""
    last: tuple[int, int] | None = None
    for begin, end in pieces:
        if last is not None and last[1] == begin:
            last = (last[0], end)
            continue
        if last is not None:
            yield last
        last = (begin, end)
    if last is not None:
        yield last


def carried_out(plan: Plan, rope: Rope, first: int, log: Log) -> Rope:
    """The rope after a plan; its messages stand in the log from `first` on."""
    if plan.window is not None:
        kept = split(rope, plan.window[1], log)[0]
        return split(kept, plan.window[0], log)[1]
    if plan.pieces is not None:
        placed = (
            (begin, end) if begin >= 0 else (first - begin - 1, first - begin)
            for begin, end in plan.pieces
            if begin >= 0 or plan.messages
        )
        return build(_joined(placed), log)
    assert plan.place is not None  # noqa: S101 - the third way
    new = build([(first, first + len(plan.messages))], log)
    return splice(rope, plan.place, plan.removed, new, log)
