"""Limits on text, numbers, depth and size; frozen values; replacements."""

from __future__ import annotations

import copy
import json
import pickle
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given

from palaver.errors import ValidationError
from palaver.messages import parse_message, parse_messages, parse_part, to_dict
from palaver.messages.limits import (
    EMPTY,
    MAX_DEPTH,
    MAX_INT,
    MAX_TEXT,
    FrozenDict,
    FrozenList,
    check_name,
    check_text,
    check_time,
    describe_number,
    freeze,
    freeze_mapping,
    is_plain,
    kind_of,
    path_step,
    quote_value,
    replace_refused,
)
from tests.messages.outcome import outcome
from tests.messages.strategies import anything, json_values
from tests.profiles import at_least

if TYPE_CHECKING:
    from collections.abc import Callable


def nested(levels: int) -> Any:  # noqa: ANN401 - JSON
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("text", ["", "plain", "naïve", "文字", "🙂", "\ud7ff\ue000", "a\tb\x1f"])
def test_ordinary_text_passes(text: str) -> None:
    check_text(text)
    assert text == freeze(text)


@pytest.mark.parametrize(
    ("text", "rule", "detail"),
    [
        ("ab\0c", "text.nul", "holds a NUL character at 2"),
        ("ab\ud800", "text.surrogate", "holds half a character (a lone surrogate) at 2"),
        ("\udfffx", "text.surrogate", "holds half a character (a lone surrogate) at 0"),
        (b"bytes", "schema", "must be text, not a bytes"),
        (5, "schema", "must be text, not a whole number"),
        (None, "schema", "must be text, not null"),
        ([], "schema", "must be text, not a list"),
    ],
)
def test_text_that_no_store_could_keep_is_refused(text: object, rule: str, detail: str) -> None:
    with pytest.raises(ValidationError) as caught:
        check_text(text, "$.text")
    assert ("$.text", rule, detail) == (caught.value.path, caught.value.rule, caught.value.detail)
    assert not is_plain(text)


def test_text_has_a_cap() -> None:
    check_text("x" * MAX_TEXT)
    with pytest.raises(ValidationError) as caught:
        check_text("x" * (MAX_TEXT + 1))
    assert "size" == caught.value.rule
    assert not is_plain("x" * (MAX_TEXT + 1))


@pytest.mark.parametrize(
    ("name", "rule"),
    [("", "part-id"), ("a\nb", "part-id"), ("\0", "part-id"), (5, "part-id"), ("x" * 1025, "size")],
)
def test_a_name_is_short_and_printable(name: object, rule: str) -> None:
    check_name("naïve 文 🙂")
    with pytest.raises(ValidationError) as caught:
        check_name(name, "$.id", "part-id")
    assert ("$.id", rule) == (caught.value.path, caught.value.rule)


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (-1, "number.range"),
        (MAX_INT + 1, "number.range"),
        (10**5000, "number.range"),
        (1.0, "tool-start-time"),
        (True, "tool-start-time"),
        ("now", "tool-start-time"),
        (None, "tool-start-time"),
    ],
    ids=range(7),
)
def test_a_time_is_in_milliseconds(value: object, rule: str) -> None:
    check_time(0)
    check_time(MAX_INT)
    with pytest.raises(ValidationError) as caught:
        check_time(value, "$.time", "tool-start-time")
    assert rule == caught.value.rule


@at_least(200)
@given(json_values)
def test_json_passes_unchanged(value: Any) -> None:  # noqa: ANN401 - JSON
    frozen = freeze(value)
    assert value == frozen
    assert json.dumps(value) == json.dumps(frozen)
    assert frozen == pickle.loads(pickle.dumps(frozen))  # noqa: S301 - our own


@at_least(300)
@given(anything)
def test_anything_else_is_a_typed_error_and_never_another(value: Any) -> None:  # noqa: ANN401
    frozen = outcome(freeze, value, "$.metadata")
    if isinstance(frozen, ValidationError):
        assert frozen.path.startswith("$.metadata")
        assert frozen.rule in {"text.nul", "text.surrogate", "number.nan", "number.range", "schema"}
    else:
        assert value == json.loads(json.dumps(frozen))


@pytest.mark.parametrize(
    ("value", "path", "rule"),
    [
        ({"a": [0, float("nan")]}, "$.a[1]", "number.nan"),
        ({"a": float("-inf")}, "$.a", "number.nan"),
        ({"a b": {"c.d": "\0"}}, "$['a b']['c.d']", "text.nul"),
        ({"\0": 1}, "$['\\x00']", "text.nul"),
        ({1: 2}, "$", "schema"),
        ({"a": {1: 2}}, "$.a", "schema"),
        ({"a": (1, {"b": b"x"})}, "$.a[1].b", "schema"),
        ([MAX_INT + 1], "$[0]", "number.range"),
        ([-MAX_INT - 1], "$[0]", "number.range"),
        ({"a": object()}, "$.a", "schema"),
        ({"x" * 200: "\0"}, "$['" + "x" * 64 + "']", "text.nul"),
    ],
)
def test_a_refusal_says_where_and_which_rule(value: Any, path: str, rule: str) -> None:  # noqa: ANN401
    with pytest.raises(ValidationError) as caught:
        freeze(value)
    assert (path, rule) == (caught.value.path, caught.value.rule)


def test_nesting_has_a_cap() -> None:
    assert nested(MAX_DEPTH) == freeze(nested(MAX_DEPTH))
    with pytest.raises(ValidationError) as caught:
        freeze(nested(MAX_DEPTH + 1))
    assert ("$" + "[0]" * MAX_DEPTH, "depth") == (caught.value.path, caught.value.rule)


def test_a_value_that_holds_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["again"] = value
    with pytest.raises(ValidationError) as caught:
        freeze(value)
    assert "depth" == caught.value.rule


def test_depth_does_not_grow_by_putting_frozen_values_into_others() -> None:
    inner = freeze_mapping({"a": nested(MAX_DEPTH - 1)})
    with pytest.raises(ValidationError):
        freeze_mapping({"outer": inner})


@pytest.mark.parametrize("empty", [{}, MappingProxyType({}), FrozenDict()])
def test_no_metadata_is_always_the_same(empty: Any) -> None:  # noqa: ANN401 - any mapping
    assert {} == freeze_mapping(empty) == EMPTY


@pytest.mark.parametrize(
    "value", [{"a": 1.5}, {"a": "é"}, {"é": 1}, {"a": [1]}, MappingProxyType({"a": 1}), {"a": None}]
)
def test_the_fast_and_the_careful_way_agree_on_objects(value: Any) -> None:  # noqa: ANN401
    assert dict(value) == freeze_mapping(value)
    assert isinstance(freeze_mapping(value), FrozenDict)


@pytest.mark.parametrize("value", [{"a": "\0"}, {"a": 2**60}, {"\0": 1}, {1: 1}, {"a": b""}])
def test_objects_are_refused_by_both_ways(value: Any) -> None:  # noqa: ANN401 - no JSON
    with pytest.raises(ValidationError):
        freeze_mapping(value)
    with pytest.raises(ValidationError):
        freeze_mapping(MappingProxyType(value))


@pytest.mark.parametrize("value", [[], "text", 5, None])
def test_what_is_no_object_is_refused(value: object) -> None:
    with pytest.raises(ValidationError, match=r"must be an object") as caught:
        freeze_mapping(value, "$.metadata")
    assert "$.metadata" == caught.value.path


CHANGES: list[Callable[[Any], object]] = [
    lambda d: d.__setitem__("a", 2),
    lambda d: d.__delitem__("a"),
    lambda d: d.__ior__({"b": 1}),
    lambda d: d.clear(),
    lambda d: d.pop("a"),
    lambda d: d.popitem(),
    lambda d: d.setdefault("b", 1),
    lambda d: d.update(b=1),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_frozen_dict_cannot_be_changed(change: Callable[[Any], object]) -> None:
    value: FrozenDict[str, int] = FrozenDict(a=1)
    with pytest.raises(TypeError, match="can't be changed"):
        change(value)
    assert {"a": 1} == value


LIST_CHANGES: list[Callable[[Any], object]] = [
    lambda v: v.__setitem__(0, 2),
    lambda v: v.__delitem__(0),
    lambda v: v.__iadd__([1]),
    lambda v: v.__imul__(2),
    lambda v: v.append(1),
    lambda v: v.clear(),
    lambda v: v.extend([1]),
    lambda v: v.insert(0, 1),
    lambda v: v.pop(),
    lambda v: v.remove(1),
    lambda v: v.reverse(),
    lambda v: v.sort(),
]


@pytest.mark.parametrize("change", LIST_CHANGES)
def test_a_frozen_list_cannot_be_changed(change: Callable[[Any], object]) -> None:
    value = FrozenList([1, 2])
    with pytest.raises(TypeError, match="can't be changed"):
        change(value)
    assert [1, 2] == value


def test_making_it_again_changes_nothing() -> None:
    frozen: FrozenDict[str, int] = FrozenDict(a=1)
    items = FrozenList([1])
    frozen.__init__({"b": 2})  # the sneaky way
    items.__init__([2])
    assert ({"a": 1}, [1]) == (frozen, items)


def test_frozen_values_are_frozen_all_the_way_down() -> None:
    """A FrozenDict is trusted wherever it turns up, so nothing gets into one unchecked."""
    inner: list[Any] = [{"b": 1}]
    value: FrozenDict[str, Any] = FrozenDict({"a": inner})
    inner.append("more")
    assert {"a": [{"b": 1}]} == value
    assert isinstance(value["a"], FrozenList)
    assert isinstance(value["a"][0], FrozenDict)
    with pytest.raises(ValidationError):
        FrozenDict(a=float("nan"))
    with pytest.raises(ValidationError):
        FrozenList(["\0"])


def test_frozen_values_are_equal_hash_copy_and_pickle() -> None:
    value = freeze({"a": [1, {"b": None}], "c": "x"})
    assert {"a": [1, {"b": None}], "c": "x"} == value
    assert hash(value) == hash(freeze({"c": "x", "a": [1, {"b": None}]}))
    assert value is copy.copy(value) is copy.deepcopy(value)
    assert value["a"] is copy.copy(value["a"]) is copy.deepcopy(value["a"])
    again = pickle.loads(pickle.dumps(value))  # noqa: S301 - our own
    assert value == again
    assert isinstance(again["a"], FrozenList)
    plain = dict(value)
    plain["d"] = 1
    assert "d" not in value


@pytest.mark.parametrize(
    ("key", "step"),
    [("a", ".a"), (3, "[3]"), ("odd name", "['odd name']"), ("文", ".文"), ("it's", '["it\'s"]')],
)
def test_a_path_is_written_as_people_write_it(key: str | int, step: str) -> None:
    assert step == path_step(key)


def test_errors_show_values_shortly() -> None:
    assert "'" + "x" * 64 + "'" == quote_value("x" * 1000)
    assert "a list" == quote_value([1]) == kind_of([1])
    assert "a number of 16610 bits" == describe_number(10**5000)
    assert ["-5", "1.5", "a boolean"] == [describe_number(value) for value in (-5, 1.5, True)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\0b", "a\ufffdb"),
        ("a\ud800b", "a\ufffdb"),
        ("\udc00", "\ufffd"),
        ("\ud83d\ude42", "🙂"),
        ("\ufeffx", "\ufeffx"),
        (float("nan"), None),
        (float("-inf"), None),
        (1.5, 1.5),
        (2**60, "1152921504606846976"),
        (-(2**60), "-1152921504606846976"),
        (10**5000, hex(10**5000)),
        (True, True),
        (None, None),
        ({"a\0": ["\0", (1, 2)]}, {"a\ufffd": ["\ufffd", [1, 2]]}),
        ({5: "\0"}, {5: "\ufffd"}),
    ],
    ids=range(15),
)
def test_something_harmless_takes_the_place_of_what_is_refused(
    value: object, expected: object
) -> None:
    assert expected == replace_refused(value)


@at_least(200)
@given(json_values)
def test_what_is_right_stays_as_it_is(value: Any) -> None:  # noqa: ANN401 - JSON
    assert value == replace_refused(value)


@at_least(200)
@given(anything)
def test_after_replacing_only_what_is_no_json_is_refused(value: Any) -> None:  # noqa: ANN401
    left = outcome(freeze, replace_refused(value))
    if isinstance(left, ValidationError):
        assert "schema" == left.rule
        assert "must be JSON" in left.detail


def test_readers_replace_where_the_caller_asks() -> None:
    numbers = '{"n": NaN, "i": 1152921504606846976}'
    value = '{"role": "user", "content": "a\\u0000\\ud800", "metadata": ' + numbers + "}"
    message = parse_message(value, replace=True)
    assert "a\ufffd\ufffd" == message.text
    assert {"n": None, "i": "1152921504606846976"} == message.metadata
    assert "a\ufffd" == parse_message({"role": "user", "content": "a\0"}, replace=True).text
    assert "\ufffd" == parse_message('{"role": "user", "content": "\ud800"}', replace=True).text
    assert ["\ufffd"] == [
        m.text for m in parse_messages(b'[{"role": "user", "content": "\\u0000"}]', replace=True)
    ]
    part = parse_part({"type": "x", "text": "\0"}, replace=True)
    assert {"type": "x", "text": "\ufffd"} == to_dict(part)


def test_replacing_makes_no_json_of_what_is_none() -> None:
    with pytest.raises(ValidationError) as caught:
        parse_message('{"role": "user", "content": ', replace=True)
    assert "json" == caught.value.rule
    with pytest.raises(ValidationError) as caught:
        parse_message(b'{"role": "user", "content": "\xff"}', replace=True)
    assert ("$.content", "text.utf8") == (caught.value.path, caught.value.rule)
