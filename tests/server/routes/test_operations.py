"""Changes over HTTP: operations and their price, the way back, forks, marks, erasure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import palaver

if TYPE_CHECKING:
    from palaver.stores import Store
    from tests.server.client import APIClient

CALL = {"type": "tool_use", "tool_use": {"id": "c1", "name": "clock", "input": {}}}
RESULT = {"type": "tool_result", "tool_result": {"tool_use_id": "c1", "content": "noon"}}
PAIR = [
    {"role": "user", "content": "What time is it?"},
    {"role": "assistant", "content": [CALL]},
    {"role": "tool", "content": [RESULT]},
    {"role": "assistant", "content": "Noon."},
]


def operate(ask: APIClient, name: str, operation: dict[str, Any], **more: Any) -> Any:  # noqa: ANN401 - JSON, or whatever is asked for
    return ask.good("POST", f"conversations/{name}/operations", {"operation": operation}, **more)


# ── operations ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"operation": "APPEND", "messages": [{"role": "user", "content": "d"}]}, "abcd"),
        ({"operation": "INSERT", "position": 1, "messages": [{"role": "user", "content": "x"}]},
         "axbc"),
        ({"operation": "REPLACE", "index": 0, "message": {"role": "user", "content": "x"}}, "xbc"),
        ({"operation": "TRUNCATE", "keepLast": 2}, "bc"),
        ({"operation": "CLEAR"}, ""),
        ({"operation": "FILTER", "contentContains": ["b"]}, "b"),
        ({"operation": "ROLLBACK", "targetBatchIndex": 0}, "abc"),
        ({"operation": "DELETE", "range": {"start": 1, "end": 2}}, "ac"),
    ],
)  # fmt: skip
def test_an_operation_is_carried_out(
    ask: APIClient, operation: dict[str, Any], expected: str
) -> None:
    name = ask.begun(*"abc")
    done = operate(ask, name, operation)
    assert list(expected) == ask.texts(name)
    assert len(expected) == done["result"]["stats"]["totalMessages"]
    assert (operation["operation"] != "ROLLBACK") == (done["version"] == 1)


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        ({}, "$.operation.operation"),
        ({"operation": "EXPLODE"}, "$.operation.operation"),
        ({"operation": "INSERT", "position": -1, "messages": []}, "$.operation.position"),
        ({"operation": "REPLACE", "index": 9, "message": {"role": "user", "content": ""}},
         "$.index"),
        ({"operation": "DELETE"}, "$.operation.range"),
        ({"operation": "DELETE", "range": {"start": 2, "end": 9}}, "$.operation.range"),
        ({"operation": "DELETE", "range": {"start": 2, "end": 1}}, "$.operation.range"),
        ({"operation": "DELETE", "range": {"start": "2", "end": 1}}, "$.operation.range.start"),
        ({"operation": "DELETE", "range": {"start": 0, "end": 1}, "x": 1}, "$.operation.x"),
    ],
)  # fmt: skip
def test_a_wrong_operation_changes_nothing(
    ask: APIClient, operation: dict[str, Any], path: str
) -> None:
    name = ask.begun(*"abc")
    problem = ask.refused("POST", f"conversations/{name}/operations", {"operation": operation})
    assert (422, path) == (problem["status"], problem["path"])
    assert list("abc") == ask.texts(name)


def test_an_edit_of_an_old_version_is_refused_with_both_sides(ask: APIClient) -> None:
    name = ask.begun(*"abc")
    operate(ask, name, {"operation": "TRUNCATE", "keepLast": 2}, headers={"if-match": '"0"'})
    problem = ask.refused(
        "POST",
        f"conversations/{name}/operations",
        {"operation": {"operation": "CLEAR"}},
        headers={"if-match": '"0"'},
    )
    assert (412, 1) == (problem["status"], problem["version"])
    assert "version 0 to 1" in problem["clashes"][0]["theirs"]


# ── price ───────────────────────────────────────────────────────────────────────────────────────


def test_a_price_is_told_and_nothing_changes(ask: APIClient) -> None:
    name = ask.begun(*"abcd")
    asked = {"operation": {"operation": "DELETE", "range": {"start": 1, "end": 3}}}
    price = ask.good("POST", f"conversations/{name}/price", asked)
    assert (4, 2) == (price["before"]["messages"], price["after"]["messages"])
    assert price["before"]["tokens"] - price["tokensFreed"] == price["after"]["tokens"]
    assert [(1, "user", "b"), (2, "user", "c")] == [
        (one["index"], one["role"], one["text"]) for one in price["removed"]
    ]
    assert price["cacheLost"] > 0
    assert list("abcd") == ask.texts(name)


def test_several_are_priced_as_one(ask: APIClient) -> None:
    name = ask.begun(*"abcd")
    operations = [
        {"operation": "TRUNCATE", "keepLast": 2},
        {"operation": "DELETE", "range": {"start": 0, "end": 1}},
        {"operation": "APPEND", "messages": [{"role": "user", "content": "e"}]},
    ]
    price = ask.good("POST", f"conversations/{name}/price", {"operations": operations})
    assert (3, 1, 2) == (price["removedCount"], price["addedCount"], price["after"]["messages"])
    assert price["tokensAdded"] > 0
    wrong = ask.refused("POST", f"conversations/{name}/price", {"operations": [*operations, {}]})
    assert "$.operations[3].operation" == wrong["path"]


def test_pairs_that_would_break_are_named(ask: APIClient) -> None:
    name = ask.good("POST", "conversations", {"messages": PAIR})["id"]

    def broken(start: int, end: int) -> list[dict[str, str]]:
        asked = {"operation": {"operation": "DELETE", "range": {"start": start, "end": end}}}
        found: list[dict[str, str]] = ask.good("POST", f"conversations/{name}/price", asked)[
            "pairsBroken"
        ]
        return found

    assert [{"callID": "c1", "tool": "clock", "missing": "result"}] == broken(2, 3)
    assert [{"callID": "c1", "tool": "clock", "missing": "call"}] == broken(1, 2)
    assert [] == broken(1, 3)


def test_one_thing_is_priced(ask: APIClient) -> None:
    name = ask.begun("a")
    assert 422 == ask.refused("POST", f"conversations/{name}/price", {})["status"]


# ── versions ────────────────────────────────────────────────────────────────────────────────────


def test_the_line_of_versions_is_told(ask: APIClient, store: Store) -> None:
    history = store.create([palaver.user(text) for text in "abc"])
    history.truncate(keep_last=1)
    history.append(palaver.user("d"))
    history.undo()
    history.rollback(0)
    history.redo()
    fork = history.fork(at=1)
    told = ask.good("GET", f"conversations/{history.id}/versions")
    assert [
        (0, "create", 3, 0, None),
        (1, "truncate", 1, 1, None),
        (2, "append", 2, 1, None),
        (3, "undo", 1, 1, 1),
        (4, "rollback", 3, 0, 0),
        (5, "redo", 1, 1, 3),
    ] == [
        (one["version"], one["kind"], one["length"], one["batch"], one.get("returns"))
        for one in told["items"]
    ]
    assert "append 1 message" == told["items"][2]["description"]
    assert [(0, 0, 3, "Before TRUNCATE"), (1, 3, 1, None)] == [
        (one["batch"], one["boundary"], one["length"], one["description"])
        for one in told["batches"]
    ]
    assert [fork.id] == [one["id"] for one in told["forks"]]
    assert (1, 1) == (told["forks"][0]["at"], told["forks"][0]["length"])
    assert (True, True) == (told["undo"], told["redo"])
    assert "parent" not in told
    there = ask.good("GET", f"conversations/{fork.id}/versions")
    assert {"id": history.id, "at": 1} == there["parent"]


def test_versions_come_page_by_page(ask: APIClient, store: Store) -> None:
    history = store.create()
    for number in range(9):
        history.append(palaver.user(str(number)))
    path = f"conversations/{history.id}/versions"
    newest = ask.good("GET", path, params={"limit": 3})
    assert (7, [7, 8, 9], None) == (
        newest["first"],
        [one["version"] for one in newest["items"]],
        newest["next"],
    )
    first = ask.good("GET", path, params={"limit": 4, "after": -1})
    assert ([0, 1, 2, 3], 3) == ([one["version"] for one in first["items"]], first["next"])
    beyond = ask.good("GET", path, params={"after": 99})
    assert ([], 9) == (beyond["items"], beyond["first"])


def test_what_differs_is_told(ask: APIClient) -> None:
    name = ask.begun(*"abc")
    operate(ask, name, {"operation": "TRUNCATE", "keepLast": 2})
    operate(ask, name, {"operation": "APPEND", "messages": [{"role": "user", "content": "d"}]})

    def differs(**query: Any) -> tuple[list[Any], list[Any]]:  # noqa: ANN401 - JSON, or whatever is asked for
        found = ask.good("GET", f"conversations/{name}/diff", params=query)
        removed, added = (
            [(one["index"], one["message"]["content"]) for one in found[side]]
            for side in ("removed", "added")
        )
        return removed, added

    assert ([], [(2, "d")]) == differs()
    assert ([(0, "a")], [(2, "d")]) == differs(before=0)
    assert ([(0, "a")], []) == differs(before=0, after=1)
    fork = ask.good("POST", f"conversations/{name}/fork", {"at": 1})["id"]
    assert ([(2, "d")], []) == differs(other=fork)
    assert 422 == ask.refused("GET", f"conversations/{name}/diff?before=77")["status"]
    few = ask.good("GET", f"conversations/{name}/diff", params={"before": 0, "limit": 0})
    assert (1, 1, [], []) == tuple(
        few[field] for field in ("removedCount", "addedCount", "removed", "added")
    )
    few = ask.good("GET", f"conversations/{name}/diff", params={"before": 0, "limit": 0})
    assert (1, 1, [], []) == tuple(
        few[field] for field in ("removedCount", "addedCount", "removed", "added")
    )


def test_the_way_back(ask: APIClient) -> None:
    name = ask.begun(*"abc")
    operate(ask, name, {"operation": "CLEAR"})
    path = f"conversations/{name}"
    assert 2 == ask.good("POST", f"{path}/undo", {})["version"]
    assert list("abc") == ask.texts(name)
    ask.good("POST", f"{path}/redo")
    assert [] == ask.texts(name)
    assert 409 == ask.refused("POST", f"{path}/redo", {})["status"]
    ask.good("POST", f"{path}/rollback", {"batch": 0})
    assert list("abc") == ask.texts(name)
    ask.good("POST", f"{path}/restore", {"version": 1})
    assert [] == ask.texts(name)
    assert 422 == ask.refused("POST", f"{path}/rollback", {"batch": 9})["status"]
    assert 422 == ask.refused("POST", f"{path}/restore", {"version": 99})["status"]
    stale = {"if-match": '"0"'}
    for way, body in (("undo", {}), ("redo", {}), ("rollback", {"batch": 0})):
        assert 412 == ask.refused("POST", f"{path}/{way}", body, headers=stale)["status"]


# ── forks and marks ─────────────────────────────────────────────────────────────────────────────


def test_a_fork_goes_its_own_way_and_comes_back(ask: APIClient) -> None:
    name = ask.begun("a", title="Tea")
    made = ask.good("POST", f"conversations/{name}/fork", {"title": "Rum"})
    assert (name, 0, "Rum") == (made["parent"], made["origin"], made["title"])
    plain = ask.good("POST", f"conversations/{name}/fork", {"at": 0, "id": f"{name}-2"})
    assert (f"{name}-2", "Tea (fork)") == (plain["id"], plain["title"])
    said = {"messages": [{"role": "user", "content": "b"}]}
    ask.good("POST", f"conversations/{made['id']}/messages", said)
    assert 1 == ask.good("POST", f"conversations/{name}/merge", {"other": made["id"]})["version"]
    assert ["a", "b"] == ask.texts(name)


def test_sides_that_clash_are_named(ask: APIClient) -> None:
    name = ask.begun("a")
    fork = ask.good("POST", f"conversations/{name}/fork", {})["id"]
    for where, text in ((name, "ours"), (fork, "theirs")):
        message = {"role": "user", "content": text}
        operate(ask, where, {"operation": "REPLACE", "index": 0, "message": message})
    problem = ask.refused("POST", f"conversations/{name}/merge", {"other": fork})
    assert 409 == problem["status"]
    assert {"what", "ours", "theirs"} == problem["clashes"][0].keys()
    assert 404 == ask.refused("POST", f"conversations/{name}/merge", {"other": "none"})["status"]
    other = ask.begun("b")
    assert 422 == ask.refused("POST", f"conversations/{name}/merge", {"other": other})["status"]


def test_marks_are_put_listed_and_taken(ask: APIClient) -> None:
    name = ask.begun(*"abc")
    path = f"conversations/{name}/marks"
    assert 1 == ask.good("PUT", f"{path}/keep", {"message": 1})["version"]
    ask.good("PUT", f"{path}/also", {"message": "msg-2"})
    operate(ask, name, {"operation": "TRUNCATE", "keepFirst": 1})
    found = ask.good("GET", path)
    assert [("also", None, "msg-2"), ("keep", None, "msg-2")] == [
        (one["name"], one["index"], one["handle"]) for one in found
    ]
    ask.good("DELETE", f"{path}/keep", params={"message": found[1]["message"]})
    ask.good("PUT", f"{path}/first", {"message": 0})
    ask.good("DELETE", f"{path}/first", params={"message": "0"})
    assert ["also"] == [one["name"] for one in ask.good("GET", path)]
    assert 404 == ask.refused("PUT", f"{path}/keep", {"message": 99})["status"]
    assert 404 == ask.refused("PUT", f"{path}/keep", {"message": "nobody"})["status"]


# ── for good ────────────────────────────────────────────────────────────────────────────────────


def test_what_is_erased_is_nowhere(ask: APIClient, store: Store) -> None:
    name = ask.begun("a", "secret")
    done = ask.good("POST", f"conversations/{name}/erase", {"message": 1})
    assert (1, 0, 1) == (done["messages"], done["summaries"], done["places"])
    assert done["messageID"] == store.get(name)[1].id
    assert done["outOfReach"]
    assert ["a", ""] == ask.texts(name, version=0)


def test_what_nothing_leads_to_is_pruned(ask: APIClient) -> None:
    name = ask.begun("a")
    said = {"messages": [{"role": "user", "content": "gone"}]}
    ask.good("POST", f"conversations/{name}/messages", said)
    ask.good("POST", f"conversations/{name}/undo")
    path = f"conversations/{name}/prune"
    would = ask.good("POST", path, {"dryRun": True})
    assert (1, False) == (len(would["messages"]), would["done"])
    assert [] == ask.good("POST", path, {"dryRun": True, "undo": 10**12})["messages"]
    assert ask.good("POST", path, {})["done"] is True


def test_several_operations_are_applied_all_or_nothing(ask: APIClient) -> None:
    name = ask.begun("a", "b", "c")
    path = f"conversations/{name}/operations"
    cut = {"operation": "DELETE", "range": {"start": 1, "end": 2}}
    new = {"operation": "APPEND", "messages": [{"role": "user", "content": "d"}]}
    done = ask.good("POST", path, {"operations": [new, cut, cut]})
    assert (1, 2) == (done["version"], done["result"]["affectedBatchIndex"])
    assert ["a", "d"] == ask.texts(name)
    for bad, where in (
        ([new, {"operation": "INSERT", "position": 9, "messages": []}], "$.operations[1].position"),
        ([new, {"operation": "INSERT", "position": 9, "messages": []}, cut],
         "$.operations[1].position"),
        ([new, {"operation": "SHUFFLE"}], "$.operations[1].operation"),
        ([], "$.operations"),
    ):  # fmt: skip
        assert where == ask.refused("POST", path, {"operations": bad})["path"]
    assert "$" == ask.refused("POST", path, {})["path"]
    assert ["a", "d"] == ask.texts(name)
    ask.good("POST", f"conversations/{name}/undo", {})
    assert ["a", "b", "c"] == ask.texts(name)


def test_an_ambiguous_handle_is_not_erased(ask: APIClient, store: Store) -> None:
    history = store.create([palaver.user("one"), palaver.user("two", id="msg-1")])
    said = ask.refused("POST", f"conversations/{history.id}/erase", {"message": "msg-1"})
    assert (409, True) == (said["status"], "could mean 2 messages" in said["detail"])


# ── edits that wait, and what the cache held ────────────────────────────────────────────────────


def test_an_edit_waits_is_listed_and_cancelled(ask: APIClient) -> None:
    """Nothing changes meanwhile; the same edit does not wait twice."""
    name = ask.begun("one", "two", "three")
    path = f"conversations/{name}/deferred"
    drop = {"operation": {"operation": "DELETE", "range": {"start": 0, "end": 2}}}
    made = ask.good("POST", path, drop)
    assert (2, 0, None) == (made["removedCount"], made["addedCount"], made["problem"])
    assert made["tokens"] > 0
    listed = ask.good("GET", path)
    assert ([made], 3) == (listed["items"], ask.good("GET", f"conversations/{name}")["length"])
    assert 409 == ask.refused("POST", path, drop)["status"]
    several = {"operations": [{"operation": "CLEAR"}, {"operation": "ROLLBACK"}]}
    assert 422 == ask.refused("POST", path, several)["status"]
    assert made == ask.good("DELETE", f"{path}/{made['id']}")
    assert 404 == ask.refused("DELETE", f"{path}/{made['id']}")["status"]
    assert [] == ask.good("GET", path)["items"]


def test_a_price_says_why_its_cost_is_unknown(ask: APIClient) -> None:
    """Never 0, where nobody was asked yet."""
    name = ask.begun("one", "two")
    asked = {"operation": {"operation": "TRUNCATE", "keepLast": 1}}
    cost = ask.good("POST", f"conversations/{name}/price", asked)["cost"]
    assert ("no-model", None, None) == (cost["reason"], cost["now"], cost["paysAfter"])


def test_the_ledger_of_the_cache_is_told_by_answer(ask: APIClient) -> None:
    """Those whose provider said nothing are left out."""
    use = {"expected": 9_000, "shared": 4_000, "read": 0, "written": 9_100, "lost": 9_000,
           "cause": "edit", "idle": 5}  # fmt: skip
    kept = {"expected": 0, "shared": 0, "read": 0, "written": 9_000}
    messages = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "1", "id": "a1", "metadata": {"promptCache": kept}},
        {"role": "assistant", "content": "2", "id": "a2"},
        {"role": "assistant", "content": "3", "id": "a3", "metadata": {"promptCache": use}},
    ]
    name = ask.good("POST", "conversations", {"messages": messages})["id"]
    ledger = ask.good("GET", f"conversations/{name}/cache")
    assert ["a1", "a3"] == [item["message"] for item in ledger["items"]]
    assert use.items() <= ledger["items"][1].items()
    assert ({"edit": 1}, None) == (ledger["breaks"], ledger["items"][0]["cause"])
    short = ask.good("GET", f"conversations/{name}/cache?limit=1")
    assert ["a3"] == [item["message"] for item in short["items"]]
