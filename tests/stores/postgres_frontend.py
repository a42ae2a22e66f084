"""What a client says to PostgreSQL: its bytes cut into messages, and the statements they run.

Statements that were prepared are run by name, so their texts are remembered.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["Ear"]

_LENGTH: Final = 4
_WRITES: Final = re.compile(
    rb"\b(INSERT|UPDATE|DELETE)\b(?<!FOR UPDATE)|palaver\.(append|commit|create|keep|take)_"
)


class Ear:
    """Listens to one connection, and tells when a statement keeps something for good.

    >>> ear = Ear()
    >>> ear.commits((8).to_bytes(4, "big") + b"....")  # how a connection begins
    False
    >>> query = b"DELETE FROM palaver.words" + bytes(1)
    >>> ear.commits(b"Q" + (len(query) + 4).to_bytes(4, "big") + query)
    True
    """

    def __init__(self) -> None:
        """Begin with a new connection."""
        self._heard = b""
        self._begun = False
        self._prepared: dict[bytes, bytes] = {}
        self._inside = False
        self.waits = 0  # how often the client said that it waits for the answers

    def commits(self, data: bytes) -> bool:
        """Tell whether these bytes complete a statement after which something is kept."""
        self._heard += data
        found = False
        while (message := self._next()) is not None:
            kind, content = message
            self.waits += kind in (b"Q", b"S")
            if kind == b"P":
                name, text = content.split(b"\0", 2)[:2]
                self._prepared[name] = text
            elif kind == b"B":
                found |= self._keeps(self._prepared.get(content.split(b"\0", 2)[1], b""))
            elif kind == b"Q":
                found |= self._keeps(content)
        return found

    def _next(self) -> tuple[bytes, bytes] | None:
        kind = int(self._begun)  # the first message has no kind
        length = int.from_bytes(self._heard[kind : kind + _LENGTH], "big")
        if len(self._heard) < max(kind + length, kind + _LENGTH):
            return None
        self._begun = True
        head, content = self._heard[:kind], self._heard[kind + _LENGTH : kind + length]
        self._heard = self._heard[kind + length :]
        return head, content

    def _keeps(self, text: bytes) -> bool:
        word = text.lstrip()[:6].upper()
        if word.startswith(b"BEGIN"):
            self._inside = True
        elif word in (b"COMMIT", b"ROLLBA"):
            self._inside = False
            return word == b"COMMIT"
        return not self._inside and _WRITES.search(text) is not None
