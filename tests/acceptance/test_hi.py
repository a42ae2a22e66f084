"""HI: what a history must do, from outside, one requirement after the other."""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from palaver.errors import Conflict, NothingToUndo, UnsupportedOperation, ValidationError
from palaver.history import (
    SUMMARY_OF,
    Append,
    BaseHistory,
    Clear,
    Filter,
    History,
    Insert,
    Replace,
    Rollback,
    Truncate,
)
from palaver.messages import (
    assistant,
    parse_message,
    system,
    to_dict,
    tool_call_part,
    user,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def said(history: Any) -> list[str]:  # noqa: ANN401 - anything with messages
    return [message.text for message in history]


def history_of(*texts: str) -> BaseHistory:
    """User and assistant in turn; a text that begins with "!" is a system message."""
    return History(
        [
            system(text[1:]) if text[0] == "!" else (assistant if number % 2 else user)(text)
            for number, text in enumerate(texts)
        ]
    )


# HI-01


def test_hi_01_operations_are_typed_values_or_json() -> None:
    typed, spelled, text = history_of("a"), history_of("a"), history_of("a")
    new = user("new", id="n", timestamp=0)
    spelled_new = {"role": "user", "content": "new", "id": "n", "timestamp": 0}
    operations: list[tuple[Any, dict[str, Any]]] = [
        (Append((new,)), {"operation": "APPEND", "messages": [spelled_new]}),
        (Insert(0, (new,)), {"operation": "INSERT", "position": 0, "messages": [spelled_new]}),
        (Replace(1, new), {"operation": "REPLACE", "index": 1, "message": spelled_new}),
        (Truncate(keep_last=2), {"operation": "TRUNCATE", "keepLast": 2}),
        (Filter(content_contains=("new",)), {"operation": "FILTER", "contentContains": ["new"]}),
        (Clear(), {"operation": "CLEAR"}),
        (Rollback(1), {"operation": "ROLLBACK", "targetBatchIndex": 1}),
    ]
    for value, json in operations:
        typed.execute(value)
        spelled.execute(json)
        text.execute(str(json).replace("'", '"'))
        assert said(typed) == said(spelled) == said(text)
        assert typed.stats == spelled.stats == text.stats
    assert ["new", "a", "new"] == said(typed)


@pytest.mark.parametrize(
    ("operation", "error", "text"),
    [
        ({"operation": "EXPLODE"}, UnsupportedOperation, "Unsupported operation type: EXPLODE"),
        ({"operation": "CLEAR", "createNewBatch": True}, ValidationError, "createNewBatch"),
        ({"operation": "ROLLBACK", "targetBatchIndex": "0"}, ValidationError, "targetBatchIndex"),
        (7, UnsupportedOperation, "Unsupported operation type: int"),
    ],
)
def test_hi_01_what_is_unknown_changes_nothing(
    operation: Any,  # noqa: ANN401 - anything
    error: type[Exception],
    text: str,
) -> None:
    history = history_of("a", "b")
    with pytest.raises(error, match=text):
        history.execute(operation)
    assert (["a", "b"], 0, 0) == (said(history), history.version, history.batch_index)


def test_hi_01_each_operation_is_atomic_across_threads() -> None:
    history = History()

    def work() -> None:
        for _ in range(50):
            history.extend([user("first"), assistant("second")])
            history.insert(0, [user("first"), assistant("second")])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ["first", "second"] * 800 == said(history)
    assert 800 == history.version


# HI-02


def test_hi_02_append_and_rollback_open_no_batch_and_the_others_always_do() -> None:
    history = history_of("a", "b")
    history.append(user("c"))
    assert 0 == history.batch_index
    same: list[Callable[[], object]] = [
        lambda: history.insert(0, []),
        lambda: history.replace(0, history[0]),
        lambda: history.truncate(remove_last=0),
        lambda: history.filter(roles=["user", "assistant"]),
    ]
    for number, change in enumerate(same, 1):
        change()
        assert (["a", "b", "c"], number) == (said(history), history.batch_index)
    history.clear()
    history.clear()
    assert 6 == history.batch_index
    assert 2 == history.rollback(2).affected_batch_index == history.batch_index


# HI-03


def test_hi_03_an_insert_takes_any_place_from_0_to_the_length() -> None:
    for position, expected in enumerate(["xab", "axb", "abx"]):
        history = history_of("a", "b")
        history.insert(position, [user("x")])
        assert list(expected) == said(history)


@pytest.mark.parametrize("position", [-1, 3, 1.0, 1.5, True, False, "1", None])
def test_hi_03_an_insert_takes_no_other(position: Any) -> None:  # noqa: ANN401 - anything
    history = history_of("a", "b")
    with pytest.raises(ValidationError, match=r"\$\.position"):
        history.insert(position, [user("x")])
    assert (["a", "b"], 0) == (said(history), history.version)


# HI-04


def test_hi_04_a_replace_may_change_the_role_and_the_indexes_follow() -> None:
    history = history_of("a", "b", "c")
    history.replace(1, system("B"))
    assert ["a", "B", "c"] == said(history)
    assert (["B"], [], 2) == (
        said(history.by_role("system")),
        history.by_role("assistant"),
        history.count(role="user"),
    )
    assert {"system": [3], "user": [0, 2], "assistant": [], "tool": []} == (
        history.mark_map().type_indices
    )


@pytest.mark.parametrize("index", [-1, 2, 0.0, True, None])
def test_hi_04_a_replace_takes_no_index_that_is_not_there(index: Any) -> None:  # noqa: ANN401
    history = history_of("a", "b")
    with pytest.raises(ValidationError, match=r"\$\.index"):
        history.replace(index, user("x"))
    assert (["a", "b"], 0) == (said(history), history.version)


# HI-05


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"keep_first": 2}, "ab"),
        ({"keep_last": 2}, "de"),
        ({"keep_last": 0}, ""),
        ({"keep_last": 99}, "abcde"),
        ({"remove_first": 2}, "cde"),
        ({"remove_last": 2}, "abc"),
        ({"remove_last": 0}, "abcde"),
        ({"range": (1, 3)}, "bc"),
        ({"range": (3, 99)}, "de"),
        ({"keep_first": 4, "keep_last": 3}, "bcd"),
        ({"keep_first": 4, "keep_last": 3, "remove_first": 1, "remove_last": 1}, "c"),
        ({"remove_first": 1, "range": (1, 3)}, "cd"),
        ({"role": "user", "keep_last": 2}, "ce"),
        ({"role": "assistant", "keep_first": 1}, "b"),
        ({"role": "user", "keep_last": 1, "others": "keep"}, "bde"),
        ({"role": "tool", "keep_last": 1}, ""),
        ({"role": "tool", "keep_last": 1, "others": "keep"}, "abcde"),
    ],
)
def test_hi_05_a_truncate_combines_its_options_in_order(options: Any, left: str) -> None:  # noqa: ANN401
    history = history_of(*"abcde")
    history.truncate(**options)
    assert list(left) == said(history)


@pytest.mark.parametrize(
    "options",
    [{}, {"role": "user"}, {"keep_first": -1}, {"remove_last": -1}, {"range": (2, 1)}],
)
def test_hi_05_a_truncate_must_say_something_that_makes_sense(options: Any) -> None:  # noqa: ANN401
    history = history_of("a", "b")
    with pytest.raises(ValidationError):
        history.truncate(**options)
    assert (["a", "b"], 0) == (said(history), history.version)


# HI-06


def test_hi_06_clear_keeps_system_messages_unless_told_otherwise() -> None:
    history = history_of("!s", "a", "b")
    history.clear()
    assert ["s"] == said(history)
    history.execute({"operation": "CLEAR", "keepSystemMessage": False})
    assert [] == said(history)


# HI-07


def test_hi_07_a_filter_joins_fields_with_and_and_entries_with_or() -> None:
    texts = ("tea", "milk tea", "milk", "sugar", "Tea")

    def left(**fields: Any) -> list[str]:  # noqa: ANN401 - a filter's own
        history = history_of(*texts)
        history.filter(**fields)
        return said(history)

    assert ["tea", "milk", "Tea"] == left(roles=["user"])
    assert ["tea", "milk tea", "milk"] == left(content_contains=["tea", "milk"])
    assert ["milk tea"] == left(roles=["assistant"], content_contains=["tea"])
    assert ["sugar", "Tea"] == left(content_excludes=["tea", "milk"])
    assert ["tea"] == left(content_contains=["tea"], content_excludes=["milk"])


@pytest.mark.parametrize("field", ["contentContains", "contentExcludes"])
def test_hi_07_an_empty_string_is_an_error(field: str) -> None:
    history = history_of("a")
    with pytest.raises(ValidationError, match="must not be empty"):
        history.execute({"operation": "FILTER", field: ["a", ""]})
    assert 0 == history.version


# HI-08


def test_hi_08_the_numbers_of_a_result_agree() -> None:
    history = history_of(*"abc")
    history.truncate(keep_last=2)
    result = history.extend([user("d")])
    assert 3 == result.stats.total_messages == result.stats.current_batch_messages
    assert 3 == result.state.total_message_count == len(result.state.messages)
    assert (2, 1) == (result.stats.total_batches, result.stats.current_batch_index)
    assert 1 == result.affected_batch_index == result.state.current_batch_index
    assert 0 == history.rollback(0).affected_batch_index


def test_hi_08_a_result_is_lazy_and_its_json_is_not() -> None:
    history = History([user("x")] * 50_000)

    def cost(work: Callable[[], object]) -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    lazy = min(cost(lambda: history.truncate(remove_last=0)) for _ in range(5))
    result = history.truncate(keep_last=1)
    assert cost(result.to_dict) > 20 * lazy
    spelled = result.to_dict()
    assert {"state", "stats", "affectedBatchIndex"} == spelled.keys()
    assert {"messages", "batchSnapshots", "currentBatchIndex", "totalMessageCount"} == (
        spelled["state"].keys()
    )


# HI-09


def test_hi_09_a_snapshot_is_a_batch_as_it_ended() -> None:
    now = iter(range(1_000, 2_000))
    history = History([user("a")], clock=lambda: next(now))
    history.append(user("b"))
    history.insert(1, [user("x")])
    history.append(user("c"))
    history.replace(2, user("B"))
    history.truncate(keep_last=9)
    history.filter(content_excludes=["x"])
    history.clear()
    found = [history.batch_snapshot(index) for index in range(5)]
    assert [
        (0, 1_000, ["a", "b"], 2, "Before INSERT at position 1"),
        (1, 1_001, ["a", "x", "b", "c"], 4, "Before REPLACE at index 2"),
        (2, 1_002, ["a", "x", "B", "c"], 4, "Before TRUNCATE"),
        (3, 1_003, ["a", "x", "B", "c"], 4, "Before FILTER"),
        (4, 1_004, ["a", "B", "c"], 3, "Before CLEAR"),
    ] == [
        (
            each.batch_index,
            each.timestamp,
            said(each.messages),
            each.message_count,
            each.description,
        )
        for each in found
        if each is not None
    ]
    assert [None, None, None] == [history.batch_snapshot(index) for index in (5, 6, -1)]


# HI-10


def test_hi_10_a_rollback_brings_back_a_batch_and_redo_the_way_out() -> None:
    history = history_of("a", "b")
    history.truncate(keep_first=1)
    history.append(user("c"))
    history.clear()
    result = history.rollback(1)
    assert (["a", "c"], 1) == (said(history), result.affected_batch_index)
    assert history.batch_snapshot(2) is None
    history.redo()
    assert ([], 2) == (said(history), history.batch_index)


@pytest.mark.parametrize("target", [-1, 2, 99, True, 0.0])
def test_hi_10_a_rollback_out_of_range_is_an_error(target: Any) -> None:  # noqa: ANN401 - anything
    history = history_of("a")
    history.clear()
    with pytest.raises(ValidationError, match=r"\$\.targetBatchIndex"):
        history.rollback(target)
    assert ([], 1, 1) == (said(history), history.batch_index, history.version)


# HI-11


def grown(length: int) -> BaseHistory:
    return History([user("x")] * length)


def fastest(work: Callable[[], object], times: int = 30) -> float:
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h.append(user("y")),
        lambda h: h.insert(len(h) // 2, [user("y")]),
        lambda h: h.replace(len(h) // 2, user("y")),
        lambda h: h.truncate(keep_last=len(h) - 1),
        lambda h: h.rollback(h.batch_index),
        lambda h: h.fork(),
    ],
    ids=["append", "insert", "replace", "truncate", "rollback", "fork"],
)
def test_hi_11_an_edit_costs_the_same_in_a_long_history(change: Callable[[Any], object]) -> None:
    """A rough guard: copying 100,000 messages would take hundreds of times as long."""
    short, long = grown(1_000), grown(100_000)
    assert fastest(lambda: change(long)) < 20 * fastest(lambda: change(short))


def test_hi_11_every_snapshot_of_many_edits_fits_in_tens_of_megabytes() -> None:
    """A fifth of the promised 10,000 edits; the benchmark does them all."""
    history, new = grown(100_000), user("y")
    gc.collect()
    tracemalloc.start()
    for number in range(1_000):
        history.insert(number * 7_919 % len(history), [new])
        history.replace(number * 104_729 % len(history), new)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 8_000_000
    assert 100_000 == len(history.rollback(0).state.messages)


# HI-12


def test_hi_12_neither_what_goes_in_nor_what_comes_out_is_a_way_in() -> None:
    spelled: dict[str, Any] = {"role": "user", "content": "a", "metadata": {"tags": [1]}}
    messages: list[Any] = [spelled]
    history = History(messages)
    before = history.state.to_dict()
    spelled["content"] = "changed"
    spelled["metadata"]["tags"].append(2)
    messages.clear()
    history.messages.clear()
    history.query(role="user").clear()
    history.state.to_dict()["messages"][0]["content"] = "changed"
    with pytest.raises(TypeError):
        history[0].metadata["tags"].append(3)
    with pytest.raises(AttributeError):
        history[0].content = "changed"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue] - that is the point
    assert before == history.state.to_dict()


# HI-13


def test_hi_13_any_version_is_read_and_restored_and_each_way_back_is_a_version() -> None:
    history = history_of("a")
    history.append(user("b"))
    history.clear()
    assert [["a"], ["a", "b"], []] == [said(history.at(version)) for version in range(3)]
    history.undo()
    history.redo()
    history.restore(0)
    assert (["a"], 5) == (said(history), history.version)
    history.append(user("c"))
    with pytest.raises(NothingToUndo):
        history.redo()


def test_hi_13_marks_and_the_team_task_are_versioned() -> None:
    history = history_of("a")
    history.mark(0, "pin")
    history.set_team_task("tea")
    history.undo()
    history.undo()
    assert ({}, None) == (history.marks, history.team_task)
    history.redo()
    history.redo()
    assert ({"pin": [history[0].id]}, "tea") == (history.marks, history.team_task)


def test_hi_13_a_fork_is_merged_three_ways() -> None:
    history = history_of(*"abcd")
    fork = history.fork()
    history.truncate(remove_first=1)
    history.insert(1, [user("ours")])
    history.append(user("our end"))
    fork.filter(content_excludes=["c"])
    fork.insert(2, [user("theirs")])
    fork.append(user("their end"))
    history.merge(fork)
    assert ["b", "ours", "theirs", "d", "our end", "their end"] == said(history)


def test_hi_13_a_conflict_names_both_sides() -> None:
    history = history_of("a", "b")
    fork = history.fork()
    history.replace(0, user("x", id="x"))
    fork.replace(0, user("y", id="y"))
    with pytest.raises(Conflict) as caught:
        history.merge(fork)
    (clash,) = caught.value.clashes
    assert (f"message {history.at(0)[0].id}", "replaced by x", "replaced by y") == clash
    assert (["x", "b"], ["y", "b"]) == (said(history), said(fork))


def test_hi_13_a_difference_says_what_went_and_what_came() -> None:
    history = history_of("a", "b")
    history.replace(0, user("x"))
    diff = history.diff(0, 1)
    assert [(0, "a")] == [(entry.index, entry.message.text) for entry in diff.removed]
    assert [(0, "x")] == [(entry.index, entry.message.text) for entry in diff.added]


# HI-14


def test_hi_14_an_edit_is_priced_before_it_runs() -> None:
    session, message = (f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2))
    call = tool_call_part(session, message, call_id="c1", tool="look", input={})
    result = {"type": "tool_result", "tool_result": {"tool_use_id": "c1", "content": "found"}}
    history = History(
        [
            user("q"),
            assistant([call]),
            parse_message({"role": "tool", "content": [result]}),
            user("r"),
        ]
    )
    price = history.price({"operation": "TRUNCATE", "removeFirst": 2}, tokens=lambda _: 7)
    assert history[:2] == list(price.removed)
    assert (14, ("c1",), (), 28) == (
        price.tokens_freed,
        price.results_without_calls,
        price.calls_without_results,
        price.cache_tokens,
    )
    left = history.price({"operation": "TRUNCATE", "keepFirst": 2}, tokens=lambda _: 7)
    assert (("c1",), 14) == (left.calls_without_results, left.cache_tokens)
    assert (4, 0) == (len(history), history.version)


# HI-15


def test_hi_15_an_erased_message_is_gone_everywhere_and_a_tombstone_stays() -> None:
    secret = user("my PIN is 1234")
    history = History([secret, assistant("noted")])
    summary = user("their PIN is 1234", metadata={SUMMARY_OF: [secret.id]})
    history.append(summary)
    fork = history.fork()
    history.clear()
    receipt = fork.erase(secret)
    for each in (history, fork):
        for version in range(each.version + 1):
            assert "1234" not in str(each.at(version).state.to_dict())
    stone = fork[0]
    assert (secret.id, "user", "") == (stone.id, stone.role, stone.text)
    assert (secret.id, (summary.id,)) == (receipt.message_id, receipt.summaries)
    assert ("exports already written", "database backups and WAL archives") == receipt.out_of_reach


# What the original systems get wrong


def test_rollback_to_the_current_batch_changes_nothing() -> None:
    history = history_of("a")
    history.truncate(keep_last=1)
    history.append(user("b"))
    before = to_dict(history.messages), history.version
    result = history.rollback(1)
    assert 1 == result.affected_batch_index
    assert before == (to_dict(history.messages), history.version)


def test_rollback_after_clear_brings_the_messages_back() -> None:
    history = history_of("!s", "a", "b")
    history.clear()
    history.append(user("c"))
    history.rollback(0)
    assert (["s", "a", "b"], 0) == (said(history), history.batch_index)


def test_rollback_then_edit_then_rollback() -> None:
    history = history_of(*"abc")
    history.truncate(keep_first=2)
    history.truncate(keep_first=1)
    history.rollback(1)
    history.replace(0, user("A"))
    assert (["A", "b"], 2) == (said(history), history.batch_index)
    history.rollback(1)
    assert (["a", "b"], 1) == (said(history), history.batch_index)
    history.rollback(0)
    assert ["a", "b", "c"] == said(history)
    history.redo()
    assert ["a", "b"] == said(history)


def test_keep_last_0_keeps_nothing() -> None:
    history = history_of(*"abc")
    history.execute({"operation": "TRUNCATE", "keepLast": 0})
    assert [] == said(history)
    history.rollback(0)
    history.execute({"operation": "TRUNCATE", "role": "user", "keepLast": 0, "others": "keep"})
    assert ["b"] == said(history)


def test_remove_last_0_removes_nothing() -> None:
    history = history_of(*"abc")
    history.execute({"operation": "TRUNCATE", "removeLast": 0})
    assert (["a", "b", "c"], 1) == (said(history), history.batch_index)


def test_insert_at_0_and_at_the_end() -> None:
    history = history_of("b")
    history.insert(0, [user("a")])
    history.insert(2, [user("c")])
    history.append(user("d"))
    assert (["a", "b", "c", "d"], 2) == (said(history), history.batch_index)
    empty = History()
    empty.insert(0, [user("a")])
    assert (["a"], 1) == (said(empty), empty.batch_index)


def test_replace_that_changes_the_role() -> None:
    history = history_of("a", "b")
    history.replace(0, assistant("A"))
    assert (["A", "b"], []) == (said(history.by_role("assistant")), history.by_role("user"))
    history.rollback(0)
    assert (["a"], ["b"]) == (said(history.by_role("user")), said(history.by_role("assistant")))


def test_a_role_truncate_after_earlier_truncates_starts_from_the_current_view() -> None:
    history = history_of(*"abcdef")
    history.truncate(keep_first=3)
    history.truncate(role="user", keep_last=2)
    assert ["a", "c"] == said(history)
    history.truncate(role="user", keep_first=1)
    assert ["a"] == said(history)


def test_a_truncate_that_leaves_nothing_and_then_appends() -> None:
    history = history_of("a", "b")
    result = history.truncate(role="tool", keep_last=1)
    assert ([], 1) == (said(history), result.affected_batch_index)
    history.append(user("c"))
    assert (["c"], 1, 1) == (said(history), history.batch_index, history.count(role="user"))
    assert [0, 2] == history.mark_map().batch_boundaries
    history.rollback(0)
    assert ["a", "b"] == said(history)
