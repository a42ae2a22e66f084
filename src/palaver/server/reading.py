"""Messages out of a body, and messages in their places: what several routes do alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from palaver.errors import ValidationError
from palaver.history.marks import overlaps
from palaver.messages import parse_messages
from palaver.server.shapes.messages import Item

if TYPE_CHECKING:
    from msgspec import Raw

    from palaver.history import View
    from palaver.messages import Message
    from palaver.stores.history import StoredHistory
    from palaver.stores.protocol import Keeper
    from palaver.tokens import Tally

__all__ = ["index_of", "items_of", "kept_before", "read_messages"]

_LOOKED_AT: Final = 1_000


def read_messages(given: Raw) -> list[Message]:
    """The messages in a body; what is wrong with one is told with its place in the body."""
    try:
        return parse_messages(bytes(given))
    except ValidationError as error:
        raise error.under("$.messages") from None


def items_of(view: View, start: int, stop: int, tally: Tally | None = None) -> list[Item]:
    """The messages of a stretch, each in its place, with its handle and marks."""
    positions = [p for a, b in view.ranges_between(start, stop) for p in range(a, b)]
    if not positions:
        return []
    messages = view[start:stop]
    marks = _marks(view, start, stop)
    offset = _offset(view, start, positions)
    return [
        Item(
            index=index,
            handle=f"msg-{position + offset}" if position + offset > 0 else None,
            message=message,
            marks=marks.get(position, []),
            tokens=UNSET if tally is None else tally.weigh(message),
        )
        for index, (position, message) in enumerate(zip(positions, messages, strict=True), start)
    ]


def _offset(view: View, start: int, positions: list[int]) -> int:
    """What is to be added to a position to have the number of its handle."""
    latest = max(positions)
    handle = view.handle(start + positions.index(latest))
    return -latest if handle is None else int(handle.removeprefix("msg-")) - latest


def _marks(view: View, start: int, stop: int) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for name, rope in sorted(view.mark_ropes.items()):
        for first, last in view.ranges_between(start, stop):
            for begin, end in overlaps(rope, first, last):
                for position in range(begin, end):
                    found.setdefault(position, []).append(name)
    return found


def kept_before(keeper: Keeper, history: StoredHistory, key: str) -> list[Item]:
    """What was added under a key when it was first used, as far as it is still in view."""
    version, view = history.version, history.view
    keys = keeper.keys(history.id, max(version - _LOOKED_AT, -1), version)
    known = next((number for number, name in keys.items() if name == key), None)
    if known is None:
        return []
    (change,) = keeper.journal(history.id, known - 1, 1)
    places = (view.index_of(change.first + number) for number in range(change.count))
    return [
        item for place in places if place is not None for item in items_of(view, place, place + 1)
    ]


def index_of(view: View, message: Message) -> int | None:
    """The index of a message in a view; None where it is not there."""
    for position in reversed(view.log.positions_of(message.id)):
        index = view.index_of(position)
        if index is not None:
            return index
    return None
