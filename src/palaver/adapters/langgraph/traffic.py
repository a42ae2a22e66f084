"""Who is on the way to the store, of those that LangGraph sends side by side.

A checkpoint, and what the tasks wrote that lead to it, are given by calls of their own, on threads
of their own, and mostly within a moment of each other. Then the checkpoint takes the writes along,
and both are one trip to the disk. Nobody returns before what was given is there.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["Traffic"]

_MOMENT: Final = 0.002
"""Seconds in which the next checkpoint comes, if it was only waiting for the one before."""
_LONGEST: Final = 0.05
"""Seconds that writes wait at most, however many checkpoints pass by that are not theirs."""


class Traffic:
    """The calls of one thread of a store's."""

    def __init__(self) -> None:
        """Nobody is under way."""
        self.lock = threading.Condition(threading.RLock())
        self.aloft: dict[str, bytes] = {}
        """What tasks wrote, by name, that a checkpoint may take along. Under the lock."""
        self._flying: set[str] = set()  # announced, or being written: not to be decided yet
        self._putting: set[int] = set()  # whoever has a checkpoint to keep

    @contextmanager
    def putting(self) -> Generator[None]:
        """Note that a checkpoint is about to be kept; before the lock is taken."""
        who = threading.get_ident()
        self._putting.add(who)
        try:
            yield
        finally:
            self._putting.discard(who)

    def announce(self, name: str) -> bool:
        """Note that writes are coming, before the lock is taken; tell whether to wait for a put.

        Where one checkpoint is being kept, the next one is likely to follow at once.
        """
        self._flying.add(name)
        return bool(self._putting)

    def offer(self, name: str, record: bytes) -> None:
        """Let a checkpoint take writes along. Under the lock."""
        self.aloft[name] = record
        self._flying.discard(name)
        self.lock.notify_all()

    def taken(self, name: str, *, soon: bool) -> bool:
        """Wait for a checkpoint that takes writes along; False where the caller writes them."""
        end = time.monotonic() + _LONGEST
        with self.lock:
            while soon and name in self.aloft and time.monotonic() < end:
                soon = self.lock.wait(_MOMENT) or bool(self._putting)
            if name not in self.aloft:
                return True
            del self.aloft[name]
            self._flying.add(name)
            return False

    def land(self, name: str) -> None:
        """Note that writes are in the store, or never will be."""
        with self.lock:
            self._flying.discard(name)
            self.aloft.pop(name, None)
            self.lock.notify_all()

    def await_writes(self, beginning: str) -> None:
        """Wait until no writes of a checkpoint are on their way: what comes next replaces them."""
        self.lock.wait_for(
            lambda: not any(name.startswith(beginning) for name in tuple(self._flying))
        )
