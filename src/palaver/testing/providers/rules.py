"""The names of the rules that providers hold requests to; docs/wire.md has one row for each.

A name says what is wrong, never who said so: the same name means the same thing for every
provider, and the notes of `palaver.wire` use these names too.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

__all__ = ["RULES", "Rule"]

Rule = Literal[
    "alternation",
    "call-arguments",
    "call-id",
    "call-without-result",
    "duplicate-call-id",
    "duplicate-result",
    "duplicate-tool",
    "empty-content",
    "empty-text",
    "first-role",
    "foreign-reasoning",
    "item-id",
    "last-role",
    "media",
    "missing-signature",
    "part-placement",
    "reasoning-placement",
    "result-not-alone",
    "result-out-of-order",
    "result-without-call",
    "role",
    "shape",
    "size",
    "speaker-name",
    "system-placement",
    "text-encoding",
    "tool-name",
    "trailing-space",
    "unknown-field",
    "unknown-part",
]

RULES: Final[tuple[Rule, ...]] = get_args(Rule)
"""Every rule, by name."""
