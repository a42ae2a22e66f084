"""Fair turns for processes that write to one file.

SQLite has no queue: a writer that finds the file locked looks again a little later, and whoever has
just committed is back before anybody else has looked. So one process could write nearly alone. A
writer that goes on without a break therefore stops now and then, for a moment in which others do
get in: often where it has met others of late, seldom where it seems to be alone (that costs it less
than one part in a hundred). This needs no lock of its own and nothing that a crash could leave
behind, and it works beside programs that know nothing of it.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Final

__all__ = ["Turns"]

_PATIENCE: Final = 60.0
_LOOK: Final = 0.004
"""How long a writer that waits sleeps between two tries, on average, in seconds."""
_BREAK: Final = 0.004
"""How long a writer stops: somebody who waits will look."""
_TURN: Final = 0.01
"""How long it goes on before it stops, where it has just met others."""
_ALONE: Final = 0.64
"""And where it has not for long."""


class Turns:
    """When one connection writes, and when it lets others write."""

    def __init__(self) -> None:
        """Begin alone."""
        self._gate = threading.Lock()
        self._asked = 0.0
        self._since = 0.0
        self._left = 0.0
        self._length = _ALONE

    def wait(self, times: int) -> bool:
        """The busy handler: wait a moment for another writer, and a minute in all."""
        now = time.monotonic()
        if not times:
            self._asked = now
        if now - self._asked > _PATIENCE:
            return False
        time.sleep(_LOOK * (0.5 + random.random()))  # noqa: S311 - no secret
        self._length = _TURN
        self._since = time.monotonic()  # the turn begins when the waiting ends
        return True

    def begin(self) -> None:
        """Before a write: where the turn has lasted long enough, stop for a moment."""
        now = time.monotonic()
        if now - self._since < self._length:
            return
        with self._gate:
            if now - self._left < _BREAK and self._since < now:  # no break yet
                self._length = min(2 * self._length, _ALONE)  # until others are met again
                time.sleep(_BREAK)
            self._since = time.monotonic()

    def end(self) -> None:
        """After a write."""
        self._left = time.monotonic()
