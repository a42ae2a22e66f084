"""What an edit costs in money: now, later, and until it has paid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.conversation import Conversation, ModelPrice, Prices, Usage
from palaver.conversation.prompt_cache import Life, PromptPrefix
from palaver.conversation.usage import NOTHING, EditCost, cost_of_edit
from palaver.errors import ValidationError
from palaver.history import Impact
from palaver.messages import CacheCounts, ModelRef, TokenCounts, assistant, user
from palaver.messages.message import AssistantInfo
from palaver.stores import open_store
from tests.conversation.scripted import Scripted
from tests.conversation.test_cache_ledger import LONG, cached

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.stores import Store

CLAUDE = ModelRef("anthropic", "claude")
GPT = ModelRef("openai", "gpt")
PRICES = Prices(
    {
        "claude": ModelPrice(3.0, 15.0, cache_read=0.3, cache_write=3.75),
        "gpt": ModelPrice(1.0, 8.0, cache_read=0.1),
        "openai:scripted": ModelPrice(1.0, 8.0, cache_read=0.1),
    }
)
MILLION = 1_000_000


@pytest.fixture
def store() -> Iterator[Store]:
    """A store in memory."""
    with open_store(":memory:") as opened:
        yield opened


def impact(freed: int, added: int, lost: int) -> Impact:
    """An impact of so many tokens."""
    return Impact((), (), freed, added, (), (), lost)


def sent(kept: int, seconds: int = 0, model: ModelRef = CLAUDE) -> PromptPrefix:
    """A request of some seconds ago, of which so many tokens are cached for five minutes."""
    return PromptPrefix(model, -seconds * 1_000, 0, "", "", (), kept, Life(300, 300))


def cost(
    change: Impact, total: int, last: PromptPrefix | None, model: ModelRef | None = CLAUDE, *,
    usage: Usage = NOTHING, prices: Prices = PRICES,
) -> EditCost:  # fmt: skip
    """The cost of an edit now."""
    return cost_of_edit(change, total, model=model, prices=prices, usage=usage, last=last, at=0)


def test_a_warm_cache_is_paid_for_and_paid_back() -> None:
    """Of a million tokens 100,000 go, the 400,000 behind them are written anew."""
    found = cost(impact(100_000, 0, 500_000), MILLION, sent(MILLION))
    assert ("anthropic:claude", "warm", None) == (found.model, found.cache, found.reason)
    assert pytest.approx(0.4 * 3.75 - 0.5 * 0.3) == found.now
    assert pytest.approx(-0.1 * 0.3) == found.later
    assert 45 == found.pays_after  # 1.35 / 0.03


def test_a_provider_that_bills_no_writes() -> None:
    """What is not read from the cache costs what input does."""
    found = cost(impact(100_000, 0, 500_000), MILLION, sent(MILLION, model=GPT), GPT)
    assert pytest.approx(0.4 * 1.0 - 0.5 * 0.1) == found.now
    usage = Usage(last=TokenCounts(1, 1, 0, CacheCounts(0, 10)), counted=12)
    dearer = Prices({"gpt": ModelPrice(1.0, 8.0, cache_read=0.1, cache_write=1.25)})
    found = cost(
        impact(100_000, 0, 500_000), MILLION, sent(MILLION), GPT, usage=usage, prices=dearer
    )
    assert pytest.approx(0.4 * 1.25 - 0.5 * 0.1) == found.now


@pytest.mark.parametrize(("last", "cache"), [(sent(MILLION, 300), "expired"), (None, "cold")])
def test_a_cache_that_is_not_there_costs_nothing_to_break(
    last: PromptPrefix | None, cache: str
) -> None:
    """Everything is written anyway, and now there is less of it."""
    found = cost(impact(100_000, 0, 500_000), MILLION, last)
    assert (cache, 0) == (found.cache, found.pays_after)
    assert pytest.approx(-0.1 * 3.75) == found.now


def test_what_was_not_cached_yet_is_not_lost() -> None:
    """Behind the last request, an edit only makes the next one shorter."""
    found = cost(impact(50_000, 0, 100_000), MILLION, sent(900_000))
    assert pytest.approx(-0.05 * 3.75) == found.now
    tools = Usage(last=TokenCounts(120_000, 0, 0, CacheCounts()), counted=20_000)
    found = cost(impact(50_000, 0, 100_000), MILLION, sent(MILLION), usage=tools)
    assert pytest.approx(-0.05 * 3.75) == found.now  # 100,000 of what is cached are tools


def test_an_edit_that_makes_it_longer_never_pays() -> None:
    """It costs now, and later too."""
    found = cost(impact(0, 1_000, 500_000), MILLION, sent(MILLION))
    assert ("never-pays", None) == (found.reason, found.pays_after)
    assert found.later is not None
    assert found.later > 0
    assert "no cheaper" in found.explanation


def test_unknown_is_none_and_never_nothing() -> None:
    """No model, no price, a price that fails: each says which."""

    class Broken(Prices, frozen=True):
        def cost(self, model: ModelRef, tokens: TokenCounts) -> float | None:
            raise ZeroDivisionError(model, tokens)

    for found, reason in (
        (cost(impact(1, 0, 1), 10, None, None), "no-model"),
        (cost(impact(1, 0, 1), 10, None, ModelRef("nobody", "nothing")), "no-price"),
        (cost(impact(1, 0, 1), 10, None, prices=Broken()), "no-price"),
    ):
        assert (None, None, None, reason) == (
            found.now, found.later, found.pays_after, found.reason,
        )  # fmt: skip
        assert found.explanation
    assert {"model": None, "cache": "cold", "now": None, "later": None, "paysAfter": None,
            "reason": "no-model"} == cost(impact(1, 0, 1), 10, None, None).to_dict()  # fmt: skip


TOKENS = st.integers(0, 200_000)


@given(total=TOKENS, freed=TOKENS, added=TOKENS, behind=TOKENS, kept=TOKENS)
def test_it_has_paid_after_as_many_calls_as_it_says(
    total: int, freed: int, added: int, behind: int, kept: int
) -> None:
    """By adding up calls one by one, with the edit and without."""
    behind = min(behind, total)
    freed = min(freed, behind)
    found = cost(impact(freed, added, behind), total, sent(kept))
    after = total - freed + added

    def spent(calls: int, tokens: int, cached: int) -> float:
        read = min(tokens, cached)
        return (read * 0.3 + (tokens - read) * 3.75 + calls * tokens * 0.3) / MILLION

    def has_paid(calls: int) -> bool:
        edited = spent(calls, after, min(total - behind, kept))
        return edited <= spent(calls, total, kept) + 1e-9

    if found.pays_after is None:
        assert not has_paid(10**6) or after >= total
    else:
        assert has_paid(found.pays_after)
        assert found.pays_after == 0 or not has_paid(found.pays_after - 1)


@pytest.mark.anyio
async def test_a_conversation_knows_its_model_and_its_last_request(store: Store) -> None:
    """The model asked last, unless one is named or the conversation has one."""
    talk = Conversation(store, prices=PRICES)
    for text in (LONG, "more"):
        talk.add(user(text))
        await talk.step(Scripted(cached("answer", 8_000, 0)))
    drop: dict[str, Any] = {"operation": "TRUNCATE", "removeFirst": 1}
    priced = talk.price(drop)
    assert ("openai:scripted", "warm") == (priced.cost.model, priced.cost.cache)
    assert priced.to_dict()["cost"]["paysAfter"] == priced.cost.pays_after
    assert priced.to_dict()["tokensFreed"] == priced.impact.tokens_freed > 1_000
    other = talk.price(drop, model="anthropic:claude").cost
    assert ("cold", 0) == (other.cache, other.pays_after)
    own = Conversation(store, talk.id, model=Scripted(name="own"), prices=PRICES)
    assert "openai:own" == (await own.aprice(drop)).cost.model
    with pytest.raises(ValidationError, match="must be provider:name"):
        talk.price(drop, model="claude")


def test_without_a_request_the_answers_name_the_model(store: Store) -> None:
    """As in a conversation that was imported."""
    talk = Conversation(store, prices=PRICES)
    talk.add(user("Tea?"))
    talk.add(assistant("Yes.", info=AssistantInfo(model=CLAUDE)))
    found = talk.price({"operation": "CLEAR"}).cost
    assert ("anthropic:claude", "cold", 0) == (found.model, found.cache, found.pays_after)
