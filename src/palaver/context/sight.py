"""Who can see what: the messages of a view that a member is shown, the newest first.

Users' and assistants' messages are context; system and tool messages are not, nor is one that was
erased or has no text in its parts. With `addressed`, a member sees what it sent, what was addressed
to it, and what was addressed to nobody. For that there is an index over the log: positions by name,
which only ever grow, so it is never wrong whatever is edited. It covers one stretch of the log and
is extended at both ends as far as somebody looks, so neither a long history nor a member who is
rarely spoken to makes the next look slow.
"""

from __future__ import annotations

import heapq
import threading
from array import array
from bisect import bisect_left
from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from palaver.context.names import fold_name
from palaver.history.erasing import ERASED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from palaver.history import View
    from palaver.messages import Message, Role

__all__ = ["CONTEXT_ROLES", "Sight", "Visibility", "is_context", "is_visible", "spoken"]

Visibility: TypeAlias = Literal["all", "addressed"]
CONTEXT_ROLES: Final[tuple[Role, ...]] = ("user", "assistant")
_TAIL: Final = 64
_READ: Final = 4_096
_NOBODY: Final = ""


def is_context(message: Message) -> bool:
    """Tell whether a message can be a line of context at all."""
    if message.role not in CONTEXT_ROLES or ERASED in message.metadata:
        return False
    return isinstance(message.content, str) or bool(message.text)


def is_visible(message: Message, names: Iterable[str]) -> bool:
    """Tell whether a member of these names is shown a message that not everybody is.

    >>> from palaver.messages import Routing, user
    >>> secret = user("psst", routing=Routing(["Max"]))
    >>> is_visible(secret, ["max"]), is_visible(secret, ["sarah"])
    (True, False)
    """
    return not _keys(message).isdisjoint((_NOBODY, *map(fold_name, names)))


def _keys(message: Message) -> set[str]:
    """The names under which a message is found: its speaker's and its addressees', or nobody's."""
    keys = set(map(fold_name, message.addressees)) or {_NOBODY}
    if message.speaker is not None:
        keys |= {fold_name(message.speaker.role_id), fold_name(message.speaker.role_name)}
    return keys


def spoken(view: View) -> Iterator[Message]:
    """What was said, to whomever, the newest first. Looks no further than it is asked to."""
    tail = [message for message in view[-_TAIL:] if message.role in CONTEXT_ROLES]
    yield from filter(is_context, reversed(tail))
    if len(view) <= _TAIL:
        return
    stop, size = view.count(roles=CONTEXT_ROLES) - len(tail), _TAIL
    while stop > 0:
        start = max(stop - size, 0)
        found = view.query(roles=CONTEXT_ROLES, range=(start, stop))
        yield from filter(is_context, reversed(found))
        stop, size = start, size * 2


class Sight:
    """The index of one log: where each member spoke, and where it was spoken to.

    >>> from palaver.history import History
    >>> from palaver.messages import Routing, user
    >>> history = History([user("to max", routing=Routing(["max"])), user("to all")])
    >>> [message.text for message in Sight().seen_by(["sarah"], history.view)]
    ['to all']
    """

    def __init__(self) -> None:
        """Begin with nothing indexed."""
        self._lock = threading.Lock()
        self._places: dict[str, array[int]] = {}
        self._low = self._high = 0

    def seen_by(self, names: Iterable[str], view: View) -> Iterator[Message]:
        """What a member of these names is shown of a view, the newest first."""
        keys = dict.fromkeys((_NOBODY, *map(fold_name, names)))
        stop, size = len(view), _TAIL
        while stop > 0:
            start = max(stop - size, 0)
            for begin, end in reversed(list(view.ranges_between(start, stop))):
                for place in self._between(keys, view, begin, end):
                    message = view.log[place]
                    if is_context(message):  # it may have been erased since
                        yield message
            stop, size = start, size * 2

    def _between(self, keys: Iterable[str], view: View, start: int, stop: int) -> Iterator[int]:
        """The positions in a stretch of the log under any of these names, the last one first."""
        with self._lock:
            self._cover(view, start, stop)
            found = [
                places[bisect_left(places, start) : bisect_left(places, stop)]
                for key in keys
                if (places := self._places.get(key)) is not None
            ]
        for place, _ in groupby(heapq.merge(*map(reversed, found), reverse=True)):
            yield place

    def _cover(self, view: View, start: int, stop: int) -> None:
        """Make the index reach over a stretch of the log."""
        if self._low == self._high:
            self._low = self._high = stop
        while self._high < stop:
            end = min(self._high + _READ, stop)
            for key, places in _indexed(view, self._high, end).items():
                self._places.setdefault(key, array("Q")).extend(places)
            self._high = end
        while self._low > start:
            begin = max(self._low - _READ, start)
            for key, places in _indexed(view, begin, self._low).items():
                self._places[key] = places + self._places.get(key, array("Q"))
            self._low = begin


def _indexed(view: View, start: int, stop: int) -> dict[str, array[int]]:
    found: dict[str, array[int]] = {}
    for place, message in enumerate(view.log.between(start, stop), start):
        if message.role in CONTEXT_ROLES:
            for key in _keys(message):
                found.setdefault(key, array("Q")).append(place)
    return found
