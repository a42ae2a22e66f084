"""The retry policy: when a request to a model is repeated, and after how long.

A request is repeated only while nothing of the answer has arrived. A wait that the provider asks
for is respected, unless it is longer than the policy allows: then the error is raised, with the
wait in it.
"""

from __future__ import annotations

import logging
import random
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from palaver.messages.limits import check_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.errors import ModelError

__all__ = ["ON_RETRY", "RetryPolicy", "report_retry"]

_log: Final = logging.getLogger("palaver.models")
ON_RETRY: Final[ContextVar[Callable[[ModelError], object] | None]] = ContextVar(
    "on_retry", default=None
)
"""A function that is called with the error of each request that is repeated, in this task."""


class RetryPolicy(Struct, frozen=True):
    """How many times a request is repeated, and the shortest and the longest wait in seconds.

    >>> RetryPolicy(limit=0).wait(0, None) is None
    True
    >>> RetryPolicy().wait(0, 3.0) >= 3.0
    True
    >>> RetryPolicy(longest=20.0).wait(0, 600.0) is None
    True
    """

    limit: int = 2
    shortest: float = 0.5
    longest: float = 30.0

    def __post_init__(self) -> None:
        """Refuse what is no number of repeats or seconds."""
        check_number(self.limit, "$.limit", whole=True)
        check_number(self.shortest, "$.shortest")
        check_number(self.longest, "$.longest")

    def wait(self, attempts: int, requested: float | None) -> float | None:
        """Return the seconds to wait after so many repeats; None means that no repeat is made.

        `requested` is the wait that the provider asked for, if it did.
        """
        if attempts >= self.limit or (requested is not None and requested > self.longest):
            return None
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - so that clients do not return together
        if requested is not None:
            return requested + self.shortest * jitter
        return float(min(self.longest, self.shortest * 2**attempts) * jitter)


def report_retry(error: ModelError, wait: float) -> None:
    """Log that a request is repeated after a wait in seconds, and tell who listens.

    >>> from palaver.errors import Unavailable
    >>> token = ON_RETRY.set(lambda error: print(error.detail))
    >>> report_retry(Unavailable("busy"), 0.5)
    busy
    >>> ON_RETRY.reset(token)
    """
    _log.info("%s; asking again in %.1f s", error, wait)
    listener = ON_RETRY.get()
    if listener is not None:
        listener(error)
