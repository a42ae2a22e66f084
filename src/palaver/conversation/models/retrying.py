"""When to ask again, and after how long: only where a repeat is safe, and never for ever.

A repeat is safe while nothing of the answer has arrived. A provider that names a time to wait gets
it, unless it is longer than anybody should wait unasked: then the error goes to the caller, with
the time in it.
"""

from __future__ import annotations

import random

from msgspec import Struct

__all__ = ["Retries"]


class Retries(Struct, frozen=True):
    """How often to ask again, and the shortest and the longest wait in seconds.

    >>> Retries(limit=0).wait(0, None) is None
    True
    >>> Retries().wait(0, 3.0) >= 3.0
    True
    >>> Retries(longest=20.0).wait(0, 600.0) is None
    True
    """

    limit: int = 2
    shortest: float = 0.5
    longest: float = 30.0

    def wait(self, made: int, wanted: float | None) -> float | None:
        """How long to wait after so many repeats; None where it is time to give up."""
        if made >= self.limit or (wanted is not None and wanted > self.longest):
            return None
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - so that not all come back at once
        if wanted is not None:
            return wanted + self.shortest * jitter
        return float(min(self.longest, self.shortest * 2**made) * jitter)
