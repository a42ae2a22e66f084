"""How much at once, and how fast: a rate for each client, and a count of what is at work.

The rate is a bucket that fills steadily: whoever was quiet may hurry for a while.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from palaver.server.problems import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Rate"]

_CLIENTS: Final = 10_000
_BURST: Final = 4


class Rate:
    """So many a second for each client, and a few seconds' worth at once.

    >>> rate = Rate(1, clock=lambda: 0.0)
    >>> [rate.allows("me") for _ in range(6)]
    [True, True, True, True, False, False]
    """

    def __init__(self, a_second: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the rate; 0 sets no limit."""
        self._rate = a_second
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, client: str) -> bool:
        """Take one from a client's bucket, if there is one."""
        if not self._rate:
            return True
        now, most = self._clock(), self._rate * _BURST
        left, then = self._left.pop(client, (most, now))
        left = min(most, left + (now - then) * self._rate)
        allowed = left >= 1
        self._left[client] = (left - 1 if allowed else left, now)
        if len(self._left) > _CLIENTS:
            self._left.popitem(last=False)
        return allowed

    def check(self, client: str) -> None:
        """Refuse what comes too fast."""
        if not self.allows(client):
            raise Refusal(429, "too many requests at once", headers={"Retry-After": "1"})
