"""What an edit would cost, before it runs."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.errors import UnsupportedOperation, ValidationError
from palaver.history import BaseHistory, History, Impact, Rollback, Truncate
from palaver.messages import Message, parse_message
from tests.history.samples import begin, everything, line, one


def ten(_: Message) -> int:
    return 10


def with_calls() -> BaseHistory:
    """A question, a call, its result, an answer."""
    use = {"type": "tool_use", "tool_use": {"id": "c1", "name": "look", "input": {}}}
    made = {"type": "tool_result", "tool_result": {"tool_use_id": "c1", "content": "found"}}
    return History(
        [
            one("u1"),
            parse_message({"role": "assistant", "content": [use], "id": "a2", "timestamp": 0}),
            parse_message({"role": "tool", "content": [made], "id": "t3", "timestamp": 0}),
            one("a4"),
        ]
    )


def price(history: BaseHistory, **operation: Any) -> Impact:  # noqa: ANN401 - an operation's fields
    before = everything(history)
    found = history.price(operation, tokens=ten)
    assert before == everything(history)
    return found


def test_what_goes_and_what_it_frees() -> None:
    found = price(begin("u1 a2 u3 a4"), operation="TRUNCATE", keepLast=1)
    assert "u1 a2 u3" == line(found.removed)
    assert (30, 0, 40) == (found.tokens_freed, found.tokens_added, found.cache_tokens)


def test_what_comes_and_what_it_costs() -> None:
    history = begin("u1 a2 u3")
    new = {"role": "user", "content": "hi", "id": "u9", "timestamp": 0}
    found = price(history, operation="INSERT", position=1, messages=[new])
    assert ("", "u9") == (line(found.removed), line(found.added))
    assert (0, 10, 20) == (found.tokens_freed, found.tokens_added, found.cache_tokens)
    found = price(history, operation="REPLACE", index=2, message=new)
    assert ("u3", "u9") == (line(found.removed), line(found.added))
    assert (10, 10, 10) == (found.tokens_freed, found.tokens_added, found.cache_tokens)


def test_what_only_adds_at_the_end_keeps_the_cache() -> None:
    history = begin("u1 a2")
    new = [{"role": "user", "content": "hi"}]
    assert 0 == price(history, operation="APPEND", messages=new).cache_tokens
    assert 0 == price(history, operation="INSERT", position=2, messages=new).cache_tokens
    assert 0 == price(history, operation="INSERT", position=0, messages=[]).cache_tokens
    assert 0 == price(history, operation="TRUNCATE", removeLast=0).cache_tokens


def test_a_cut_at_the_end_only_costs_what_is_cut() -> None:
    found = price(begin("u1 a2 u3"), operation="TRUNCATE", removeLast=1)
    assert (10, 10) == (found.tokens_freed, found.cache_tokens)


def test_pairs_that_would_be_torn() -> None:
    history = with_calls()
    assert ("c1",) == price(
        history, operation="FILTER", roles=["user", "assistant"]
    ).calls_without_results
    assert ("c1",) == price(history, operation="TRUNCATE", keepLast=2).results_without_calls
    both = price(history, operation="TRUNCATE", keepLast=1)
    assert ((), ()) == (both.calls_without_results, both.results_without_calls)


def test_a_pair_that_was_torn_before_is_not_the_edits_doing() -> None:
    history = with_calls()
    history.truncate(keep_first=2)
    assert () == price(history, operation="TRUNCATE", keepFirst=2).calls_without_results


def test_a_rollback_is_priced_by_what_it_leaves() -> None:
    history = begin("u1 a2")
    history.truncate(keep_last=1)
    history.append(one("u3"))
    found = history.price(Rollback(0), tokens=ten)
    assert ("u3", 20) == (line(found.removed), found.cache_tokens)
    nothing = history.price(Rollback(1), tokens=ten)
    assert ((), 0) == (nothing.removed, nothing.cache_tokens)
    with pytest.raises(ValidationError, match=r"targetBatchIndex: must be a batch from 0 to 1"):
        history.price(Rollback(2), tokens=ten)


def test_what_does_not_fit_has_no_price() -> None:
    with pytest.raises(ValidationError, match=r"\$\.position"):
        begin("u1").price({"operation": "INSERT", "position": 2, "messages": []}, tokens=ten)
    with pytest.raises(UnsupportedOperation):
        begin().price({"operation": "EXPLODE"}, tokens=ten)


def test_a_price_can_be_asked_for_while_others_work() -> None:
    """The token counter is the caller's and may be slow; it runs without the history's lock."""
    history = begin("u1 a2")

    def appends(_: Message) -> int:
        history.append(one("u9"))
        return 1

    assert 1 == history.price(Truncate(keep_last=1), tokens=appends).tokens_freed
    assert 3 <= len(history)


def test_a_price_as_json() -> None:
    spelled = price(with_calls(), operation="TRUNCATE", keepLast=2).to_dict()
    assert {
        "removed": ["u1", "a2"],
        "added": [],
        "tokensFreed": 20,
        "tokensAdded": 0,
        "callsWithoutResults": [],
        "resultsWithoutCalls": ["c1"],
        "cacheTokens": 40,
    } == spelled
