"""How much at once, and how fast: a rate for each client, and a limit on what is logged.

The rate is a bucket that fills steadily: whoever was quiet may hurry for a while.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from palaver.server.problems import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["LogLimit", "Rate", "limited_logs"]

_CLIENTS: Final = 10_000
_BURST: Final = 4
_LOGGERS: Final = ("asyncio", "uvicorn.error", "palaver.server")


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


class LogLimit(logging.Filter):
    """Lets each line of code log once a second for each kind of exception, and counts the rest.

    The next record that passes says how many were left out before it.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing logged."""
        super().__init__()
        self._clock = clock
        self._last: dict[tuple[str, int, type[BaseException] | None], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is logged."""
        kind = record.exc_info[0] if record.exc_info else None
        key, now = (record.pathname, record.lineno, kind), self._clock()
        then, left_out = self._last.get(key, (-1.0, 0))
        if key in self._last and now - then < 1:
            self._last[key] = (then, left_out + 1)
            return False
        self._last[key] = (now, 0)
        if left_out:
            record.msg = f"{record.getMessage()} (and {left_out} more like this)"
            record.args = None
        return True


@contextmanager
def limited_logs() -> Generator[None]:
    """Limit what the server's loggers log for as long as the block lasts."""
    limit = LogLimit()
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(limit)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(limit)
