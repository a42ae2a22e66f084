"""Which messages an agent may see, and which of them it is shown.

Messages of users and assistants are context; system and tool messages are not, nor is a message
that was erased or has no text that a model may see. With the visibility `addressed`, an agent sees
the messages that it sent, that are addressed to it, and that are addressed to nobody.
`VisibilityIndex` finds those by an index over the append-only log, which stays correct whatever is
edited, because positions in the log never change their message. `select` takes the newest visible
message and the window before it.
"""

from __future__ import annotations

import heapq
import logging
import threading
from array import array
from bisect import bisect_left
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from palaver.context.assemblers import ContextMessage
from palaver.context.markers import strip_markers
from palaver.history.erase import ERASED
from palaver.messages import Message
from palaver.messages.message import fold_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from palaver.history import View
    from palaver.messages import Role

__all__ = [
    "CONTEXT_ROLES",
    "Selection",
    "ShownMessage",
    "Visibility",
    "VisibilityIndex",
    "context_messages",
    "format_addressees",
    "is_context",
    "is_visible",
    "iter_context",
    "select",
    "show",
    "speaker_name",
]

Visibility: TypeAlias = Literal["all", "addressed"]
CONTEXT_ROLES: Final[tuple[Role, ...]] = ("user", "assistant")
_EVERYBODY: Final = "all"
_NOBODY: Final = ""
"""The index key of messages without addressees."""
_FIRST_READ: Final = 64
"""How many messages the first read of a view covers; each further read covers twice as many."""
_INDEX_STEP: Final = 4_096
_log: Final = logging.getLogger("palaver.context")


# ── which messages are visible ──────────────────────────────────────────────────────────────────


def is_context(message: Message) -> bool:
    """Tell whether a message can be a line of context at all."""
    if message.role not in CONTEXT_ROLES or ERASED in message.metadata:
        return False
    return isinstance(message.content, str) or bool(message.sendable_text)


def is_visible(message: Message, names: Iterable[str]) -> bool:
    """Tell whether an agent of these names sees a message under the visibility `addressed`.

    >>> from palaver.messages import Routing, user
    >>> secret = user("psst", routing=Routing(["Max"]))
    >>> is_visible(secret, ["max"]), is_visible(secret, ["sarah"])
    (True, False)
    """
    return not _keys(message).isdisjoint((_NOBODY, *map(fold_name, names)))


def context_messages(view: View) -> Iterator[Message]:
    """Iterate over the messages of a view that are context, the newest first, reading lazily."""
    tail = [message for message in view[-_FIRST_READ:] if message.role in CONTEXT_ROLES]
    yield from filter(is_context, reversed(tail))
    if len(view) <= _FIRST_READ:
        return
    stop, size = view.count(roles=CONTEXT_ROLES) - len(tail), _FIRST_READ
    while stop > 0:
        start = max(stop - size, 0)
        found = view.query(roles=CONTEXT_ROLES, range=(start, stop))
        yield from filter(is_context, reversed(found))
        stop, size = start, size * 2


class VisibilityIndex:
    """An index of one log: the positions at which each member spoke or was addressed.

    It covers one range of the log and is extended at both ends as far as a reader looks, so that
    neither a long history nor a member who is rarely addressed makes the next read slow.

    >>> from palaver.history import History
    >>> from palaver.messages import Routing, user
    >>> history = History([user("to max", routing=Routing(["max"])), user("to all")])
    >>> [message.text for message in VisibilityIndex().visible_to(["sarah"], history.view)]
    ['to all']
    """

    def __init__(self) -> None:
        """Begin with nothing indexed."""
        self._lock = threading.Lock()
        self._positions: dict[str, array[int]] = {}
        self._low = self._high = 0

    def visible_to(self, names: Iterable[str], view: View) -> Iterator[Message]:
        """Iterate over the messages of a view that an agent of these names sees, newest first."""
        keys = dict.fromkeys((_NOBODY, *map(fold_name, names)))
        stop, size = len(view), _FIRST_READ
        while stop > 0:
            start = max(stop - size, 0)
            for begin, end in reversed(list(view.ranges_between(start, stop))):
                for position in self._between(keys, view, begin, end):
                    message = view.log[position]
                    if is_context(message):  # it may have been erased since it was indexed
                        yield message
            stop, size = start, size * 2

    def _between(self, keys: Iterable[str], view: View, start: int, stop: int) -> Iterator[int]:
        """Iterate over the positions in a range of the log under any of the keys, last first."""
        with self._lock:
            self._cover(view, start, stop)
            found = [
                positions[bisect_left(positions, start) : bisect_left(positions, stop)]
                for key in keys
                if (positions := self._positions.get(key)) is not None
            ]
        for position, _ in groupby(heapq.merge(*map(reversed, found), reverse=True)):
            yield position

    def _cover(self, view: View, start: int, stop: int) -> None:
        """Extend the index over a range of the log."""
        if self._low == self._high:
            self._low = self._high = stop
        while self._high < stop:
            end = min(self._high + _INDEX_STEP, stop)
            for key, positions in _index(view, self._high, end).items():
                self._positions.setdefault(key, array("Q")).extend(positions)
            self._high = end
        while self._low > start:
            begin = max(self._low - _INDEX_STEP, start)
            for key, positions in _index(view, begin, self._low).items():
                self._positions[key] = positions + self._positions.get(key, array("Q"))
            self._low = begin


def _index(view: View, start: int, stop: int) -> dict[str, array[int]]:
    found: dict[str, array[int]] = {}
    for position, message in enumerate(view.log.between(start, stop), start):
        if message.role in CONTEXT_ROLES:
            for key in _keys(message):
                found.setdefault(key, array("Q")).append(position)
    return found


def _keys(message: Message) -> set[str]:
    """The keys of a message: its speaker's names, and its addressees or `_NOBODY`."""
    keys = set(map(fold_name, message.addressees)) or {_NOBODY}
    if message.speaker is not None:
        keys |= message.speaker.names
    return keys


# ── what of it is shown ─────────────────────────────────────────────────────────────────────────


class ShownMessage(Struct, frozen=True):
    """A message and the line that is shown of it, without markers."""

    message: Message
    line: ContextMessage


class Selection(Struct, frozen=True):
    """The current message and the context before it, the oldest first.

    `duplicate` is the message before the current one where that only repeats it, from one AI to
    another; it is left out of the context.
    """

    current: ShownMessage | None
    context: tuple[ShownMessage, ...] = ()
    duplicate: ShownMessage | None = None


def select(visible: Iterator[Message], window: int) -> Selection:
    """Select the current message and at most `window` messages before it.

    `visible` are the messages that the agent may see, the newest first.

    >>> from palaver.messages import assistant, user
    >>> selection = select(iter([assistant("three"), user("two"), user("one")]), window=1)
    >>> selection.current.line.content, [shown.line.content for shown in selection.context]
    ('three', ['two'])
    """
    newest = next(visible, None)
    if newest is None:
        return Selection(None)
    current = show(newest)
    context = tuple(show(message) for message in islice(visible, window))[::-1]
    if context and _repeats(context[-1], current):
        return Selection(current, context[:-1], context[-1])
    return Selection(current, context)


def iter_context(
    selection: Selection, visible: Iterator[Message], window: int
) -> Iterator[ShownMessage]:
    """Iterate over what `select` would put before the current message, the newest first."""
    shown = map(show, islice(visible, window))
    newest = next(shown, None)
    if newest is not None:
        assert selection.current is not None  # noqa: S101 - there is a message before it
        if not _repeats(newest, selection.current):
            yield newest
    yield from shown


def show(message: Message) -> ShownMessage:
    """Return a message with the line that is shown of it."""
    to = format_addressees(message.addressees)
    line = ContextMessage(speaker_name(message), to, strip_markers(message.sendable_text))
    return ShownMessage(message, line)


def _is_ai(message: Message) -> bool:
    if message.speaker is None:
        return message.role == "assistant"
    return message.speaker.type == "ai"


def _repeats(last: ShownMessage, current: ShownMessage) -> bool:
    """Tell whether the current message is an AI's and only repeats the one before it."""
    said, now = last.line, current.line
    same = (said.from_, said.content) == (now.from_, now.content)
    if not _is_ai(current.message) or not (same or last.message.id == current.message.id):
        return False
    _log.debug("[ContextManager] Deduplicated context for AI→AI")
    return True


# ── names ───────────────────────────────────────────────────────────────────────────────────────


def format_addressees(names: Sequence[str] | None) -> str:
    """Write down whom a message is for; without names that is `all`.

    >>> format_addressees(None), format_addressees(["max"]), format_addressees(["max", "sarah"])
    ('all', 'max', 'max, sarah')
    """
    return ", ".join(names) if names else _EVERYBODY


def speaker_name(message: Message) -> str:
    """The name of a message's speaker, or its role where it has no speaker."""
    return message.role if message.speaker is None else message.speaker.role_name
