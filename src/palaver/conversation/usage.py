"""Token usage and its cost: the provider's figures, and palaver's own count of what came since.

A provider reports how many tokens a request and its answer had. From there on palaver adds or
subtracts what was added or removed since, by its own count, until the provider's next report. A
cost is the provider's figure or, marked as computed, the product of tokens and prices: first those
of a given table, then those of `genai-prices`, if it is installed. An unknown cost is None and
never 0. What an edit costs is the difference between the next requests with it and without it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palaver.errors import StoreDamaged
from palaver.history import Impact
from palaver.messages import AssistantInfo, CacheCounts, Message, TokenCounts
from palaver.messages.decode import decode
from palaver.messages.limits import EMPTY, NamedFields, check_argument, check_number, path_step
from palaver.messages.parts import StepFinishPart, check_figures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.conversation.prompt_cache import PromptPrefix
    from palaver.messages import Message, ModelRef
    from palaver.stores.records import Record

__all__ = [
    "NOTHING",
    "EditCost",
    "ModelPrice",
    "PricedEdit",
    "Prices",
    "RequestUsage",
    "Usage",
    "cost_of_edit",
    "drop_empty_usage",
    "read_usage",
    "requests_of",
]


KIND: Final = "usage"
_MILLION: Final = 1_000_000
_BILLS_WRITES: Final = "anthropic"
"""The provider that bills what is written to its cache, whatever its last answer said."""
_ROUNDING: Final = 1e-6
_log: Final = logging.getLogger("palaver.conversation")
_NO_TOKENS: Final = TokenCounts(0, 0, 0, CacheCounts())


class Usage(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The token usage of the last request, and of all requests together.

    `version` is the history's version after the last answer, `counted` palaver's own count of it
    then: what is added later is counted from there. A cost of None is unknown. `raw` has the
    provider's own figures for the last answer, as they came.
    """

    last: TokenCounts | None = None
    total: TokenCounts = _NO_TOKENS
    cost: float | None = None
    calls: int = 0
    unknown_costs: int = 0
    version: int = 0
    counted: int = 0
    raw: Mapping[str, Any] = EMPTY

    @property
    def prompt_tokens(self) -> int:
        """The tokens of the last request."""
        return self.last.prompt if self.last else 0

    @property
    def completion_tokens(self) -> int:
        """The tokens of the last answer."""
        return self.last.completion if self.last else 0

    @property
    def total_tokens(self) -> int:
        """The tokens of the last request and its answer."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def reported(self) -> int | None:
        """The tokens after the last answer by the provider's count; None if it gave none.

        Where it gave only half of it, it is palaver's own count, if that is more.
        """
        if self.last is None or not self.total_tokens:
            return None
        if self.prompt_tokens and self.completion_tokens:
            return self.total_tokens
        return max(self.total_tokens, self.counted)

    def after(self, message: Message, version: int, counted: int) -> Usage:
        """Return the usage after one more answer."""
        info = message.info
        tokens, cost = getattr(info, "tokens", None), getattr(info, "cost", None)
        raw = message.metadata.get("usage") or EMPTY
        return replace(self.plus(tokens, cost), version=version, counted=counted, raw=raw)

    def plus(self, tokens: TokenCounts | None, cost: float | None) -> Usage:
        """Return the usage with that of one more request; None is unknown.

        >>> NOTHING.plus(TokenCounts(10, 5, 0, CacheCounts()), 0.5).plus(None, None).cost
        0.5
        """
        return Usage(
            last=tokens,
            total=self.total if tokens is None else _sum(self.total, tokens),
            cost=self.cost if cost is None else (self.cost or 0.0) + cost,
            calls=self.calls + 1,
            unknown_costs=self.unknown_costs + (cost is None),
        )

    def record(self) -> Record:
        """Return the record that stores it."""
        return (KIND, KIND, msgspec.json.encode(self))

    def to_dict(self) -> dict[str, Any]:
        """Return the usage as JSON-ready data, with the usual sums."""
        return {
            **msgspec.to_builtins(self),
            "promptTokens": self.prompt_tokens,
            "completionTokens": self.completion_tokens,
            "totalTokens": self.total_tokens,
        }


NOTHING: Final = Usage()
"""The usage before the first request."""


def read_usage(records: dict[str, bytes]) -> Usage:
    """Read the usage from its records."""
    value = records.get(KIND)
    if value is None:
        return NOTHING
    try:
        return decode(value, Usage)
    except msgspec.DecodeError as error:
        msg = f"the record of what was used can't be read: {error}"
        raise StoreDamaged(msg) from None


class RequestUsage(NamedTuple):
    """The tokens and the cost of one request, under the id of what reports them."""

    id: str
    tokens: TokenCounts
    cost: float | None
    computed: bool


def requests_of(message: Message) -> Iterator[RequestUsage]:
    """Yield the usage of each request that an answer reports: its `step-finish`, or its info.

    Every figure of what was used is read from stored answers here, so that all figures agree.

    >>> from palaver.messages import assistant
    >>> info = AssistantInfo(tokens=TokenCounts(10, 5, 0, CacheCounts()), cost=0.5)
    >>> [request.cost for request in requests_of(assistant("Tea.", info=info))]
    [0.5]
    """
    steps = [part for part in message.parts if isinstance(part, StepFinishPart)]
    for part in steps:
        yield RequestUsage(part.id, part.tokens, part.cost, part.cost_computed)
    info = message.info
    if not steps and isinstance(info, AssistantInfo) and info.tokens is not None:
        yield RequestUsage(message.id, info.tokens, info.cost, info.cost_computed)


def drop_empty_usage(message: Message) -> Message:
    """Return an answer without a usage of zeros, which tells nothing; the raw figures stay."""
    info = message.info
    if not isinstance(info, AssistantInfo):
        return message
    tokens = info.tokens
    if info.cost != 0 if tokens is None else tokens.prompt or tokens.completion:
        return message
    return replace(message, info=replace(info, tokens=None, cost=info.cost or None))


def _sum(one: TokenCounts, other: TokenCounts) -> TokenCounts:
    return TokenCounts(
        one.input + other.input,
        one.output + other.output,
        one.reasoning + other.reasoning,
        CacheCounts(one.cache.read + other.cache.read, one.cache.write + other.cache.write),
    )


class ModelPrice(Struct, frozen=True, metaclass=NamedFields):
    """The price of a million tokens in dollars; what is None costs what input or output does."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    reasoning: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is no price."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None or name in ("input", "output"):
                check_number(value, f"$.{name}")

    def of(self, tokens: TokenCounts) -> float:
        """Return the cost of so many tokens.

        >>> from palaver.messages import CacheCounts, TokenCounts
        >>> ModelPrice(1.0, 2.0).of(TokenCounts(1_000_000, 500_000, 0, CacheCounts()))
        2.0
        """
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        reasoning = self.output if self.reasoning is None else self.reasoning
        return (
            tokens.input * self.input
            + tokens.output * self.output
            + tokens.reasoning * reasoning
            + tokens.cache.read * read
            + tokens.cache.write * write
        ) / _MILLION


class Prices(Struct, frozen=True):
    """A table of prices by model: `provider:model`, or the model's name alone."""

    table: Mapping[str, ModelPrice] = EMPTY

    def __post_init__(self) -> None:
        """Refuse what is no table of prices."""
        check_argument(self.table, Mapping, "$.table", "prices by the names of models")
        for name, price in self.table.items():
            path = f"$.table{path_step(str(name))}"
            check_argument(price, ModelPrice, path, "ModelPrice(input=…, output=…)")

    def add_cost(self, message: Message) -> Message:
        """Return an answer with its cost, if the cost can be computed."""
        info = message.info
        if not isinstance(info, AssistantInfo) or info.cost is not None:
            return message
        if info.tokens is None or info.model is None:
            return message
        cost = self.cost(info.model, info.tokens)
        if cost is None:
            return message
        return replace(message, info=replace(info, cost=cost, cost_computed=True))

    def knows(self, model: ModelRef) -> bool:
        """Return whether the price of a model is known.

        >>> from palaver.messages import ModelRef
        >>> Prices({"mine": ModelPrice(1.0, 2.0)}).knows(ModelRef("local", "mine"))
        True
        """
        cost = self.cost(model, TokenCounts(1, 1, 0, CacheCounts()))
        return cost is not None and check_figures(cost, None) is None

    def cost(self, model: ModelRef, tokens: TokenCounts) -> float | None:
        """Return the cost of so many tokens of a model; None if it is unknown."""
        known = self.table.get(f"{model.provider_id}:{model.model_id}")
        known = known or self.table.get(model.model_id)
        return _look_up(model, tokens) if known is None else known.of(tokens)


def _look_up(model: ModelRef, tokens: TokenCounts) -> float | None:
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


# ── the cost of an edit ─────────────────────────────────────────────────────────────────────────

Reason: TypeAlias = Literal["no-model", "no-price", "never-pays"]
_REASONS: Final[Mapping[Reason, str]] = {
    "no-model": "no model was asked yet, and none is named",
    "no-price": "no price is known for the model: give prices=Prices(…), or install the usual ones "
    "with pip install 'palaver[prices]'",
    "never-pays": "later requests become no cheaper",
}


class EditCost(Struct, frozen=True, rename="camel"):
    """What an edit costs in dollars, by the prices of one model.

    `now` is what the next request costs more than without the edit, `later` what each one after it
    does; what is negative is saved. `pays_after` is how many later requests it takes until the edit
    has paid: 0 if it does at once, None if it never does or a price is unknown, and `reason` says
    which. `cache` says whether the provider has the conversation in its cache: it is `warm`, or has
    `expired`, or is `cold`, because the model was not asked before. A cache that is not warm costs
    nothing to break.
    """

    model: str | None
    cache: Literal["warm", "expired", "cold"]
    now: float | None = None
    later: float | None = None
    pays_after: int | None = None
    reason: Reason | None = None

    @property
    def explanation(self) -> str:
        """The reason in words; empty without one."""
        return "" if self.reason is None else _REASONS[self.reason]

    def to_dict(self) -> dict[str, Any]:
        """Return the cost as JSON-ready data."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data


class PricedEdit(Struct, frozen=True):
    """What an edit would remove, add and break, and what that would cost."""

    impact: Impact
    cost: EditCost

    def to_dict(self) -> dict[str, Any]:
        """Return both as JSON-ready data."""
        return {**self.impact.to_dict(), "cost": self.cost.to_dict()}


def cost_of_edit(
    impact: Impact,
    total: int,
    *,
    model: ModelRef | None,
    prices: Prices,
    usage: Usage,
    last: PromptPrefix | None,
    at: int,
) -> EditCost:
    """Return what an edit of a conversation of `total` tokens would cost.

    `last` is the last request to the model, `at` is now, in milliseconds.
    """
    if model is None:
        return EditCost(None, "cold", reason="no-model")
    cache: Literal["warm", "expired", "cold"] = "cold"
    if last is not None:
        cache = "expired" if at - last.at >= last.life.gone * 1_000 else "warm"
    around = max(0, usage.total_tokens - usage.counted) if usage.last else 0  # tools, above all
    cached = max(0, last.kept - around) if last is not None and cache == "warm" else 0
    after = total - impact.tokens_freed + impact.tokens_added
    same = total - impact.cache_tokens
    writes = model.provider_id == _BILLS_WRITES or bool(usage.last and usage.last.cache.write)

    def cost(tokens: int, read: int) -> float | None:
        read = min(tokens, read)
        new = tokens - read
        counts = CacheCounts(read, new if writes else 0)
        return prices.cost(model, TokenCounts(0 if writes else new, 0, 0, counts))

    name = f"{model.provider_id}:{model.model_id}"
    try:
        costs = [cost(after, min(same, cached)), cost(total, cached)]
        costs += [cost(after, after), cost(total, total)]
    except Exception:  # noqa: BLE001 - a table of prices that fails knows none
        _log.warning("looking up the price of a model failed", exc_info=True)
        costs = [None]
    known = [one for one in costs if one is not None and math.isfinite(one)]
    if len(known) < len(costs):
        return EditCost(name, cache, reason="no-price")
    now, later = known[0] - known[1], known[2] - known[3]
    if now <= 0 and later <= 0:
        return EditCost(name, cache, now, later, 0)
    if later >= 0:
        return EditCost(name, cache, now, later, None, "never-pays")
    return EditCost(name, cache, now, later, math.ceil(now / -later - _ROUNDING))
