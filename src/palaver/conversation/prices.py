"""What an answer cost: the provider's figure first, else by a table of prices, marked as computed.

`genai-prices` knows most models' prices, where it is installed; a table of one's own comes before
it. What nobody knows stays unknown: None, and never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from palaver.messages import AssistantInfo, Message, TokenCounts
from palaver.messages.gate import EMPTY

if TYPE_CHECKING:
    from palaver.messages import ModelRef

__all__ = ["Price", "Prices"]

_MILLION = 1_000_000


class Price(Struct, frozen=True):
    """Dollars for a million tokens; reasoning costs what output does unless it is said."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    reasoning: float | None = None

    def of(self, tokens: TokenCounts) -> float:
        """What so many tokens cost.

        >>> from palaver.messages import CacheCounts, TokenCounts
        >>> Price(1.0, 2.0).of(TokenCounts(1_000_000, 500_000, 0, CacheCounts()))
        2.0
        """
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        thought = self.output if self.reasoning is None else self.reasoning
        return (
            tokens.input * self.input
            + tokens.output * self.output
            + tokens.reasoning * thought
            + tokens.cache.read * read
            + tokens.cache.write * write
        ) / _MILLION


class Prices(Struct, frozen=True):
    """Prices by model: `provider:model`, or the model's name alone."""

    table: Mapping[str, Price] = EMPTY

    def priced(self, message: Message) -> Message:
        """The answer with its cost, where that can be worked out."""
        info = message.info
        if not isinstance(info, AssistantInfo) or info.cost is not None:
            return message
        if info.tokens is None or info.model is None:
            return message
        cost = self.cost(info.model, info.tokens)
        if cost is None:
            return message
        return replace(message, info=replace(info, cost=cost, cost_computed=True))

    def cost(self, model: ModelRef, tokens: TokenCounts) -> float | None:
        """What so many tokens of a model cost; None where nobody knows."""
        known = self.table.get(f"{model.provider_id}:{model.model_id}")
        known = known or self.table.get(model.model_id)
        return _looked_up(model, tokens) if known is None else known.of(tokens)


def _looked_up(model: ModelRef, tokens: TokenCounts) -> float | None:
    try:
        import genai_prices  # noqa: PLC0415 - optional, and slow to load
    except ImportError:
        return None
    usage: Any = genai_prices.Usage(
        input_tokens=tokens.prompt,
        cache_read_tokens=tokens.cache.read,
        cache_write_tokens=tokens.cache.write,
        output_tokens=tokens.completion,
    )
    try:
        found: Any = genai_prices.calc_price(
            usage, model_ref=model.model_id, provider_id=model.provider_id
        )
    except LookupError:
        return None
    return float(found.total_price)
