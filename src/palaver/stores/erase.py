"""Traces of erased messages in the records beside the log, which an erasure removes too.

Records belong to the component that wrote them: drafts, tool calls, stored prompts. An erasure
removes every record that names the message or one of its tool calls, or that repeats its text. Of
each text the longest line is searched for, since prompts indent and wrap; a line shorter than eight
characters proves nothing. Records that are compressed or encrypted can't be searched.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from palaver.history.erase import ERASED, Row, origins_of, rows_of_others
from palaver.messages import to_dict
from palaver.stores.records import MERGED_POSITIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from palaver.messages import Message
    from palaver.stores.backend import Backend

__all__ = ["Traces", "family_messages", "positions_of_others"]

_MIN_LINE: Final = 8
_PAGE: Final = 1_000
_CALL: Final = "callID"
_TEXT_FIELDS: Final = frozenset(
    {"content", "text", "raw", "output", "error", "prompt", "description", "url", "value"}
)
"""The fields with a message's text. Names of tools, models and files are in many messages."""


class Traces:
    """What to search for in records."""

    def __init__(self, messages: Iterable[Message]) -> None:
        """Take the erased messages as they were before."""
        names: set[str] = set()
        lines: set[str] = set()
        for message in messages:
            names.update((message.id, *(part.id for part in message.parts)))
            if ERASED in message.metadata:
                continue
            for key, text in _strings(to_dict(message.content), "content"):
                if key == _CALL:
                    names.add(text)
                elif key in _TEXT_FIELDS:
                    lines.add(max(map(_collapse, text.split("\n")), key=len))
        self._names = names
        self._lines = [line for line in lines if len(line) >= _MIN_LINE]
        either = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        self._named = re.compile(rf"(?<![\w-])(?:{either})(?![\w-])")

    def found_in(self, kind: str, name: str, value: bytes) -> bool:
        """Tell whether a record names one of the messages or repeats its text.

        >>> from palaver.messages import user
        >>> traces = Traces([user("the door code is 4711", id="m1")])
        >>> traces.found_in("draft", "d", b'{"prompt": "... the door code is 4711"}')
        True
        >>> traces.found_in("draft", "d", b'{"answers": ["m1"]}')
        True
        >>> traces.found_in("draft", "d", b"m12")
        False
        """
        if kind == MERGED_POSITIONS:  # it holds positions and no text
            return False
        if name in self._names:
            return True
        text = value.decode("utf-8", "ignore")
        try:
            found = [inner for _, inner in _strings(msgspec.json.decode(value))]
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            found = []
        if any(inner in self._names for inner in found) or self._named.search(text):
            return True
        everything = _collapse("\n".join([text, *found]))
        return any(line in everything for line in self._lines)


def family_messages(backend: Backend, conversation: str) -> Iterator[Message]:
    """Yield the messages of a conversation and of all its relatives, each once."""
    for name in backend.family(conversation):
        head = backend.head(name)
        for start in range(head.base, head.length, _PAGE):
            yield from backend.messages(name, start, min(start + _PAGE, head.length))


def positions_of_others(
    backend: Backend, conversation: str, message_id: str, position: int
) -> frozenset[tuple[str, int]]:
    """Return where a family has other messages with the id of the one at a position."""
    heads = {name: backend.head(name) for name in backend.family(conversation)}
    found = [
        (name, place)
        for name, head in heads.items()
        for place in backend.positions_of(name, message_id)
        if place >= head.base
    ]
    if len(found) < 2:  # noqa: PLR2004 - there are no others
        return frozenset()
    owner = conversation
    while position < heads[owner].base and (parent := heads[owner].parent) is not None:
        owner = parent
    rows = [
        Row(name, heads[name].base, place, backend.messages(name, place, place + 1)[0],
            origins_of(place, partial(backend.replaced, name)))
        for name, place in found
    ]  # fmt: skip
    others = rows_of_others(rows, owner, position)
    return frozenset((str(row.owner), row.position) for row in others)


def _collapse(text: str) -> str:
    """Replace every run of white space by one space."""
    return " ".join(text.split())


def _strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401 - JSON
    """Yield every text in JSON, with the key that it stands under."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _strings(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner, key)
