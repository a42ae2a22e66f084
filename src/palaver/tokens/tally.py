"""Sums of tokens that follow a history: each message is counted once, whatever is edited.

The log never changes its order, so a count belongs to a log position for good, and a view is a few
ranges of positions. With running sums over the log the total of a view is one subtraction a range,
and one more append costs one more count.
"""

from __future__ import annotations

import threading
from array import array
from itertools import accumulate
from typing import TYPE_CHECKING

from palaver.tokens.weighing import USUAL, Weights, weigh

if TYPE_CHECKING:
    from palaver.history import View
    from palaver.messages import Message
    from palaver.tokens.counters import Counter

__all__ = ["Tally"]

_UNKNOWN = -1


class Tally:
    """The counts of one history's log.

    >>> from palaver.history import History
    >>> from palaver.messages import user
    >>> from palaver.tokens import Tally, estimate
    >>> history, tally = History([user("one"), user("two")]), Tally(estimate)
    >>> tally.total(history.view), tally.fitting(history.view, 6)
    (12, 1)
    """

    def __init__(self, count: Counter, weights: Weights = USUAL) -> None:
        """Count with this counter and these weights."""
        self._count = count
        self._weights = weights
        self._lock = threading.Lock()
        self._counts = array("q")
        self._sums = array("q", (0,))

    def total(self, view: View) -> int:
        """How many tokens a view has."""
        with self._lock:
            total = 0
            for start, stop in view.ranges():
                self._sum_to(view, stop)
                total += self._sums[stop] - self._sums[start]
            return total

    def each(self, view: View) -> list[int]:
        """How many tokens each message of a view has."""
        with self._lock:
            found: list[int] = []
            for start, stop in view.ranges():
                self._fill(view, start, stop)
                found.extend(self._counts[start:stop])
            return found

    def fitting(self, view: View, budget: int) -> int:
        """The index of the first message, so that it and all after it fit in a budget.

        Only the messages that fit, and one more, are looked at.
        """
        with self._lock:
            index = len(view)
            for start, stop in reversed(list(view.ranges())):
                position = stop
                while position > start:
                    position -= 1
                    if position >= len(self._counts) or self._counts[position] == _UNKNOWN:
                        self._fill(view, position, position + 1)
                    budget -= self._counts[position]
                    if budget < 0:
                        return index
                    index -= 1
            return index

    def weigh(self, message: Message) -> int:
        """How many tokens a message has that is not in the log yet."""
        return weigh(message, self._count, self._weights)

    def forget(self) -> None:
        """Count anew: a message was erased."""
        with self._lock:
            self._counts = array("q")
            self._sums = array("q", (0,))

    def _fill(self, view: View, start: int, stop: int) -> None:
        counts = self._counts
        if len(counts) < stop:
            counts.extend([_UNKNOWN] * (stop - len(counts)))
        while start < stop and counts[start] != _UNKNOWN:
            start += 1
        for position, message in enumerate(view.log.between(start, stop), start):
            if counts[position] == _UNKNOWN:
                counts[position] = weigh(message, self._count, self._weights)

    def _sum_to(self, view: View, stop: int) -> None:
        """Make the running sums reach a position."""
        known = len(self._sums) - 1
        if known < stop:
            self._fill(view, known, stop)
            more = accumulate(self._counts[known:stop], initial=self._sums[known])
            self._sums.extend(list(more)[1:])
