"""What was used: the provider's figures first, stamped with what they counted, then our own.

A provider says how many tokens a request and its answer had. From there on palaver adds or takes
away what came in or left since, by its own count, until the provider speaks again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from palaver.errors import StoreDamaged
from palaver.messages import CacheCounts, TokenCounts
from palaver.messages.decoding import decode

if TYPE_CHECKING:
    from palaver.messages import Message
    from palaver.stores.records import Record

__all__ = ["NOTHING", "Usage", "read_usage"]

KIND: Final = "usage"
_NO_TOKENS: Final = TokenCounts(0, 0, 0, CacheCounts())


class Usage(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What the last call used, and all of them together.

    `version` is the history's after the last answer, `counted` our own count of it then: what comes
    in later is counted from there. A cost of None means that nobody knows it.
    """

    last: TokenCounts | None = None
    total: TokenCounts = _NO_TOKENS
    cost: float | None = None
    calls: int = 0
    unknown_costs: int = 0
    version: int = 0
    counted: int = 0

    @property
    def prompt_tokens(self) -> int:
        """What went into the last call."""
        return self.last.prompt if self.last else 0

    @property
    def completion_tokens(self) -> int:
        """What came out of the last call."""
        return self.last.completion if self.last else 0

    @property
    def total_tokens(self) -> int:
        """What the last call used in all."""
        return self.prompt_tokens + self.completion_tokens

    def after(self, message: Message, version: int, counted: int) -> Usage:
        """The usage after one more answer."""
        info = message.info
        tokens, cost = getattr(info, "tokens", None), getattr(info, "cost", None)
        return Usage(
            last=tokens,
            total=self.total if tokens is None else _sum(self.total, tokens),
            cost=self.cost if cost is None else (self.cost or 0.0) + cost,
            calls=self.calls + 1,
            unknown_costs=self.unknown_costs + (cost is None),
            version=version,
            counted=counted,
        )

    def kept(self) -> Record:
        """The record that keeps it."""
        return (KIND, KIND, msgspec.json.encode(self))

    def to_dict(self) -> dict[str, Any]:
        """The usage as JSON-ready data, with the sums that people ask for."""
        return {
            **msgspec.to_builtins(self),
            "promptTokens": self.prompt_tokens,
            "completionTokens": self.completion_tokens,
            "totalTokens": self.total_tokens,
        }


NOTHING: Final = Usage()
"""Before the first call."""


def read_usage(records: dict[str, bytes]) -> Usage:
    """The usage as a store kept it."""
    value = records.get(KIND)
    if value is None:
        return NOTHING
    try:
        return decode(value, Usage)
    except msgspec.DecodeError as error:
        msg = f"the record of what was used can't be read: {error}"
        raise StoreDamaged(msg) from None


def _sum(one: TokenCounts, other: TokenCounts) -> TokenCounts:
    return TokenCounts(
        one.input + other.input,
        one.output + other.output,
        one.reasoning + other.reasoning,
        CacheCounts(one.cache.read + other.cache.read, one.cache.write + other.cache.write),
    )
