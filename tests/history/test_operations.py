"""Operations check themselves, and their JSON is the documents' own."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import (
    Clash,
    Conflict,
    NothingToUndo,
    PalaverError,
    UnknownMessage,
    UnsupportedOperation,
    ValidationError,
)
from palaver.history import (
    Append,
    Clear,
    Filter,
    Insert,
    Operation,
    Range,
    Replace,
    Rollback,
    Truncate,
    parse_operation,
    parse_operations,
)
from palaver.history.operations import as_operation
from palaver.messages import dump
from tests.history.samples import one, talk

HI = {"role": "user", "content": "hi", "id": "u1", "timestamp": 0}
U1 = one("u1", "hi")

SPELLED: list[tuple[Operation, dict[str, Any]]] = [
    (Append((U1,)), {"operation": "APPEND", "messages": [HI]}),
    (Insert(3, (U1,)), {"operation": "INSERT", "position": 3, "messages": [HI]}),
    (Replace(2, U1), {"operation": "REPLACE", "index": 2, "message": HI}),
    (Truncate(keep_first=1), {"operation": "TRUNCATE", "keepFirst": 1}),
    (
        Truncate(keep_last=0, remove_first=1, remove_last=2, range=Range(1, 4), role="user"),
        {
            "operation": "TRUNCATE",
            "keepLast": 0,
            "removeFirst": 1,
            "removeLast": 2,
            "range": {"start": 1, "end": 4},
            "role": "user",
        },
    ),
    (
        Truncate(keep_last=5, role="tool", others="keep"),
        {"operation": "TRUNCATE", "keepLast": 5, "role": "tool", "others": "keep"},
    ),
    (Clear(), {"operation": "CLEAR"}),
    (Clear(keep_system_message=False), {"operation": "CLEAR", "keepSystemMessage": False}),
    (
        Filter(roles=("user",), content_contains=("tea",), content_excludes=("milk", "ice")),
        {
            "operation": "FILTER",
            "roles": ["user"],
            "contentContains": ["tea"],
            "contentExcludes": ["milk", "ice"],
        },
    ),
    (Rollback(1), {"operation": "ROLLBACK", "targetBatchIndex": 1}),
]


@pytest.mark.parametrize(("operation", "spelled"), SPELLED)
def test_an_operation_and_its_json_are_the_same(
    operation: Operation, spelled: dict[str, Any]
) -> None:
    assert operation == parse_operation(spelled)
    assert operation == parse_operation(dump(spelled))
    assert operation == parse_operation(dump(spelled).decode())
    assert spelled == operation.to_dict()
    assert spelled["operation"] == operation.operation


def test_a_list_of_operations_is_read() -> None:
    spelled = [each for _, each in SPELLED]
    assert [operation for operation, _ in SPELLED] == parse_operations(dump(spelled))
    assert [operation for operation, _ in SPELLED] == parse_operations(iter(spelled))


@pytest.mark.parametrize(
    ("spelled", "path"),
    [
        ({"operation": "INSERT", "position": -1, "messages": []}, "$.position"),
        ({"operation": "INSERT", "position": True, "messages": []}, "$.position"),
        ({"operation": "INSERT", "position": 1.5, "messages": []}, "$.position"),
        ({"operation": "INSERT", "position": "1", "messages": []}, "$.position"),
        ({"operation": "INSERT", "position": None, "messages": []}, "$.position"),
        ({"operation": "INSERT", "messages": []}, "$.position"),
        ({"operation": "INSERT", "position": 0}, "$.messages"),
        ({"operation": "INSERT", "position": 0, "messages": {}}, "$.messages"),
        ({"operation": "INSERT", "position": 0, "messages": "hi"}, "$.messages"),
        ({"operation": "APPEND", "messages": None}, "$.messages"),
        ({"operation": "APPEND", "messages": [5]}, "$.messages[0]"),
        ({"operation": "APPEND", "messages": [HI, {"role": "user"}]}, "$.messages[1].content"),
        ({"operation": "APPEND", "messages": [], "createNewBatch": True}, "$.createNewBatch"),
        ({"operation": "REPLACE", "index": -1, "message": HI}, "$.index"),
        ({"operation": "REPLACE", "index": False, "message": HI}, "$.index"),
        ({"operation": "REPLACE", "index": 0}, "$.message"),
        ({"operation": "REPLACE", "index": 0, "message": "hi"}, "$.message"),
        ({"operation": "REPLACE", "index": 0, "message": {**HI, "role": "x"}}, "$.message.role"),
        ({"operation": "TRUNCATE"}, "$"),
        ({"operation": "TRUNCATE", "role": "user"}, "$"),
        ({"operation": "TRUNCATE", "keepFirst": None}, "$"),
        ({"operation": "TRUNCATE", "keepFirst": -1}, "$.keepFirst"),
        ({"operation": "TRUNCATE", "keepLast": 1.0}, "$.keepLast"),
        ({"operation": "TRUNCATE", "removeFirst": True}, "$.removeFirst"),
        ({"operation": "TRUNCATE", "removeLast": -5}, "$.removeLast"),
        ({"operation": "TRUNCATE", "keepMiddle": 2}, "$.keepMiddle"),
        ({"operation": "TRUNCATE", "range": {"start": 2, "end": 1}}, "$.range.start"),
        ({"operation": "TRUNCATE", "range": {"start": -1, "end": 1}}, "$.range.start"),
        ({"operation": "TRUNCATE", "range": {"start": 0, "end": True}}, "$.range.end"),
        ({"operation": "TRUNCATE", "range": {"start": 0}}, "$.range.end"),
        ({"operation": "TRUNCATE", "range": {"start": 0, "end": 1, "by": 2}}, "$.range.by"),
        ({"operation": "TRUNCATE", "range": [0, 1]}, "$.range"),
        ({"operation": "TRUNCATE", "keepLast": 1, "role": "robot"}, "$.role"),
        ({"operation": "TRUNCATE", "keepLast": 1, "others": "keep"}, "$.others"),
        ({"operation": "TRUNCATE", "keepLast": 1, "role": "user", "others": "x"}, "$.others"),
        ({"operation": "CLEAR", "keepSystemMessage": 0}, "$.keepSystemMessage"),
        ({"operation": "FILTER", "roles": []}, "$.roles"),
        ({"operation": "FILTER", "roles": ["user", "robot"]}, "$.roles[1]"),
        ({"operation": "FILTER", "contentContains": [""]}, "$.contentContains[0]"),
        ({"operation": "FILTER", "contentContains": []}, "$.contentContains"),
        ({"operation": "FILTER", "contentContains": "tea"}, "$.contentContains"),
        ({"operation": "FILTER", "contentExcludes": ["a", ""]}, "$.contentExcludes[1]"),
        ({"operation": "FILTER", "contentExcludes": [5]}, "$.contentExcludes[0]"),
        ({"operation": "ROLLBACK"}, "$.targetBatchIndex"),
        ({"operation": "ROLLBACK", "targetBatchIndex": -1}, "$.targetBatchIndex"),
        ({"operation": "ROLLBACK", "targetBatchIndex": 0.0}, "$.targetBatchIndex"),
        ({"messages": []}, "$.operation"),
        ([], "$"),
        ("[", "$"),
    ],
)
def test_a_bad_operation_names_the_field(spelled: Any, path: str) -> None:  # noqa: ANN401 - anything
    with pytest.raises(ValidationError) as caught:
        parse_operation(spelled)
    assert path == caught.value.path
    if not isinstance(spelled, str):
        with pytest.raises(ValidationError) as caught:
            parse_operations([spelled])
        assert path.replace("$", "$[0]", 1) == caught.value.path


@pytest.mark.parametrize("name", ["EXPLODE", "append", "", None, 5, ["CLEAR"]])
def test_an_unknown_operation_is_named(name: object) -> None:
    with pytest.raises(UnsupportedOperation) as caught:
        parse_operations([{"operation": "CLEAR"}, {"operation": name}])
    assert f"Unsupported operation type: {name}" == str(caught.value)
    assert "$[1].operation" == caught.value.path


@pytest.mark.parametrize(
    "error",
    [
        UnsupportedOperation("EXPLODE", path="$[3].operation"),
        UnknownMessage("no message has the id 'm1'"),
        NothingToUndo("there is nothing to undo"),
        Conflict((Clash("message m1", "replaced by m2", "removed"),)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_errors_of_a_history_travel_and_are_data(error: PalaverError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (str(error), error.to_dict()) == (str(again), again.to_dict())
    assert type(error).__name__ == error.to_dict()["name"]


@pytest.mark.parametrize("value", [None, 5, [], Range(0, 1), U1])
def test_what_is_no_operation_is_refused(value: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(UnsupportedOperation, match=f"type: {type(value).__name__}"):
        as_operation(value)


@pytest.mark.parametrize("value", [5, None, {"operation": "CLEAR"}])
def test_a_list_of_operations_is_a_list(value: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(ValidationError, match="must be a list of operations"):
        parse_operations(value)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Truncate, {"keep_last": 1, "role": "robot"}),
        (Truncate, {"keep_last": 1, "role": "user", "others": "x"}),
        (Truncate, {"range": {"start": 2}}),
        (Clear, {"keep_system_message": 1}),
        (Filter, {"roles": b"user"}),
        (Filter, {"roles": [None]}),
        (Filter, {"content_contains": 7}),
        (Append, {"messages": "hi"}),
        (Insert, {"position": 0, "messages": 5}),
        (Replace, {"index": 0, "message": None}),
    ],
)
def test_a_typed_operation_checks_itself(kind: type[Operation], fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        kind(**fields)


def test_typed_operations_read_json_inside() -> None:
    assert Append((U1,)) == Append([HI])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - read
    assert Replace(0, U1) == Replace(0, HI)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - read
    window = {"start": 0, "end": 2}
    assert Truncate(range=Range(0, 2)) == Truncate(range=window)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - read


counts = st.integers(0, 9)
windows = st.tuples(counts, counts).map(lambda pair: Range(*sorted(pair)))
names = ("keep_first", "keep_last", "remove_first", "remove_last")
options = st.fixed_dictionaries({}, optional={**dict.fromkeys(names, counts), "range": windows})


@given(st.integers(0, 12), options.filter(bool))
def test_the_options_of_a_truncate_combine_in_their_order(
    length: int, chosen: dict[str, Any]
) -> None:
    left = list(range(length))
    if "keep_first" in chosen:
        left = left[: chosen["keep_first"]]
    if "keep_last" in chosen:
        left = left[-chosen["keep_last"] :] if chosen["keep_last"] else []
    if "remove_first" in chosen:
        left = left[chosen["remove_first"] :]
    if "remove_last" in chosen:
        left = left[: -chosen["remove_last"]] if chosen["remove_last"] else left
    if "range" in chosen:
        left = left[chosen["range"].start : chosen["range"].end]
    start, stop = Truncate(**chosen).window(length)
    assert left == list(range(start, stop))


def test_a_filter_joins_fields_with_and_and_entries_with_or() -> None:
    tea, milk, both = one("u1", "tea"), one("a2", "milk"), one("u3", "tea with milk")
    messages = [tea, milk, both]

    def kept(**fields: Any) -> list[str]:  # noqa: ANN401 - Filter's own
        return [message.id for message in messages if Filter(**fields).keeps(message)]

    assert ["u1", "a2", "u3"] == kept()
    assert ["u1", "u3"] == kept(roles=["user"])
    assert ["u1", "a2", "u3"] == kept(content_contains=["tea", "milk"])
    assert ["a2"] == kept(roles=["assistant"], content_contains=["milk"])
    assert ["u1"] == kept(content_contains=["tea"], content_excludes=["milk"])
    assert [] == kept(content_contains=["Tea"])
    assert ["u1", "a2", "u3"] == kept(content_excludes=[])


def test_an_operation_does_not_change_with_what_it_was_made_of() -> None:
    messages, roles = talk("u1"), ["user"]
    operation = Append(messages)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - read
    chosen = Filter(roles=roles)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - read
    messages.clear()
    roles.clear()
    assert 1 == len(operation.messages)
    assert ("user",) == chosen.roles
