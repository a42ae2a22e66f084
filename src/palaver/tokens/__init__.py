"""How many tokens: counters, what a message weighs, and sums that follow a history.

>>> from palaver.tokens import estimate
>>> estimate("ten letters"), estimate("十个汉字")
(5, 4)
"""

from __future__ import annotations

from palaver.tokens.counters import Counter, counter, estimate
from palaver.tokens.tally import Tally
from palaver.tokens.weighing import Weights, weigh

__all__ = ["Counter", "Tally", "Weights", "counter", "estimate", "weigh"]
