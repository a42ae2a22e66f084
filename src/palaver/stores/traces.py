"""What would give an erased message away: its id, its tool calls, its words.

Records lie beside the log and belong to whoever wrote them: drafts, tool calls, stored prompts. An
erasure takes away every record that names the message or one of its calls, or that repeats what it
says. Of each text the longest line is looked for, since prompts indent and wrap; a line shorter
than eight characters proves nothing. What is compressed or encrypted can't be looked into.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from palaver.history.erasing import ERASED
from palaver.messages import to_dict
from palaver.stores.names import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from palaver.messages import Message
    from palaver.stores.protocol import Keeper

__all__ = ["Traces", "family_messages"]

_SHORT: Final = 8
_PAGE: Final = 1_000
_CALL: Final = "callID"
_WORDS: Final = frozenset(
    {"content", "text", "raw", "output", "error", "prompt", "description", "url", "value"}
)
"""Where a message says something. Names of tools, models and files stand in many messages."""


class Traces:
    """What to look for in records."""

    def __init__(self, messages: Iterable[Message]) -> None:
        """Take the messages that are erased, as they were."""
        names: set[str] = set()
        lines: set[str] = set()
        for message in messages:
            names.add(message.id)
            if ERASED in message.metadata:
                continue
            for key, text in _strings(to_dict(message.content), "content"):
                if key == _CALL:
                    names.add(text)
                elif key in _WORDS:
                    lines.add(max(map(_even, text.split("\n")), key=len))
        self._names = names
        self._lines = [line for line in lines if len(line) >= _SHORT]
        either = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        self._named = re.compile(rf"(?<![\w-])(?:{either})(?![\w-])")

    def are_in(self, kind: str, name: str, value: bytes) -> bool:
        """Tell whether a record gives one of the messages away.

        >>> from palaver.messages import user
        >>> traces = Traces([user("the door code is 4711", id="m1")])
        >>> traces.are_in("draft", "d", b'{"prompt": "... the door code is 4711"}')
        True
        >>> traces.are_in("draft", "d", b'{"answers": ["m1"]}'), traces.are_in("draft", "d", b"m12")
        (True, False)
        """
        if kind == NAMES:  # positions, and nothing that was said
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
        whole = _even("\n".join([text, *found]))
        return any(line in whole for line in self._lines)


def family_messages(keeper: Keeper, conversation: str) -> Iterator[Message]:
    """The messages of a conversation and of all its relatives, each once."""
    for name in keeper.family(conversation):
        head = keeper.head(name)
        for start in range(head.base, head.length, _PAGE):
            yield from keeper.messages(name, start, min(start + _PAGE, head.length))


def _even(text: str) -> str:
    """The same text with single spaces."""
    return " ".join(text.split())


def _strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401 - JSON
    """Every text in JSON, with the key that it stands under."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _strings(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner, key)
