"""Token counts: counters for texts, counts of messages, and running totals of a history.

>>> from palaver.tokens import estimate
>>> estimate("ten letters"), estimate("十个汉字")
(5, 4)
"""

from __future__ import annotations

from palaver.tokens.counters import RunningTotal, TokenCounter, Weights, counter, estimate, weigh

__all__ = ["RunningTotal", "TokenCounter", "Weights", "counter", "estimate", "weigh"]
