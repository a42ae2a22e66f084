"""A name that an object has twice is refused wherever JSON comes from outside."""

from __future__ import annotations

import json
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

import palaver
from palaver.errors import ValidationError
from palaver.history import History
from palaver.history.operations import parse_operation, parse_operations
from palaver.messages import decode, parse_message, parse_messages, parse_part
from palaver.messages.codec import dump, load_json
from palaver.messages.decode import (
    DUPLICATE_NAME,
    check_unique_names,
    line_of,
    offset_of,
    offsets_of,
    path_at,
    path_too_deep,
)
from palaver.messages.foreign import parse_turn
from palaver.stores.transfer import export_conversation, import_conversation
from tests.messages.strategies import json_values
from tests.profiles import at_least

if TYPE_CHECKING:
    from collections.abc import Callable


TWICE = '{"role": "user", "content": "hi", "role": "system"}'


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"a": 1, "a": 1}', "$.a"),
        ('{"a": {"b": [1, {"c": 1, "d": 2, "c": 3}]}}', "$.a.b[1].c"),
        ('[[], {}, {"a": {"a": 1}, "b": {"a": 2}, "\\u0061": 3}]', "$[2].a"),
        ('{"": 1, "x y": 2, "": 3}', "$['']"),
        ('{"a": "\\", {\\"b\\": 1", "b": 1, "c": "b", "b": 2}', "$.b"),
        ('{"a": %s, "b": 1, "b": 2}' % ("9" * 300), "$.b"),
        ('{"a": "\\u003a", "b": 1, "b": 2}', "$.b"),  # one colon more, one member less
        ('{"a": "\\u003A", "a": ":"}', "$.a"),
        ('{"a:": 1, "a\\u003a": 1}', "$['a:']"),
    ],
)
def test_the_path_of_the_first_duplicate_name_is_found(text: str, path: str) -> None:
    with pytest.raises(ValidationError) as caught:
        check_unique_names(text.encode())
    assert (path, DUPLICATE_NAME) == (caught.value.path, caught.value.rule)
    assert "twice" in caught.value.detail


@given(json_values)
@at_least(100)
def test_what_has_every_name_once_is_taken(value: Any) -> None:  # noqa: ANN401 - JSON
    check_unique_names(json.dumps(value).encode())
    check_unique_names(json.dumps([value, ":"], indent=1).encode())


members = some.lists(
    some.tuples(
        some.sampled_from(["a", ":", "\\u003a", "b\\u003A", "\\u0061"]), some.integers(0, 3)
    )
)


@given(some.lists(some.tuples(members, some.sampled_from(['":"', '"\\u003a"', "1.5e300", "null"]))))
@at_least(300)
def test_it_finds_what_a_decoder_finds_that_sees_every_member(
    objects: list[tuple[list[tuple[str, int]], str]],
) -> None:
    """Colons in names and in strings, escaped or not, are no members."""
    values = []
    for one, more in objects:
        inside = ", ".join(f'"{name}" : {value}' for name, value in one)
        values += ["{" + inside + "}", more]
    data = f"[{', '.join(values)}]"
    twice = [False]

    def look(pairs: list[tuple[str, Any]]) -> None:
        twice[0] |= len(dict(pairs)) < len(pairs)

    json.loads(data, object_pairs_hook=look)
    assert (DUPLICATE_NAME if twice[0] else None) == _rule(data.encode())


def _rule(data: bytes) -> str | None:
    try:
        check_unique_names(data)
    except ValidationError as error:
        return error.rule
    return None


def test_a_text_that_is_too_deep_is_refused_as_such() -> None:
    with pytest.raises(ValidationError) as caught:
        check_unique_names(b"[" * 200_000 + b"]" * 200_000)
    assert "depth" == caught.value.rule


@pytest.mark.parametrize(
    ("read", "text", "path"),
    [
        (parse_message, TWICE, "$.role"),
        (parse_message, TWICE.encode(), "$.role"),
        (lambda text: parse_messages(text, unique=True), f"[{TWICE}]", "$[0].role"),
        (parse_part, '{"type": "hologram", "type": "text"}', "$.type"),
        (parse_turn, '{"info": {"id": "a", "id": "b"}, "parts": []}', "$.info.id"),
        (parse_operation, '{"operation": "CLEAR", "operation": "TRUNCATE"}', "$.operation"),
        (parse_operations, '[{"operation": "CLEAR", "operation": "CLEAR"}]', "$[0].operation"),
        (History().execute, '{"operation": "CLEAR", "operation": "CLEAR"}', "$.operation"),
        (load_json, '{"a": 1, "a": 2}', "$.a"),
    ],
)
def test_it_is_refused_by_every_reader(
    read: Callable[[Any], object], text: str | bytes, path: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        read(text)
    assert (path, DUPLICATE_NAME) == (caught.value.path, caught.value.rule)


def test_bulk_data_is_not_read_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many messages, files that are imported, rows of a store: the check would take too long."""
    store = palaver.open(":memory:")
    stored = store.create([palaver.user("one"), palaver.user("two")])
    file, checked = BytesIO(), list[bytes]()
    monkeypatch.setattr(decode, "_has_all_colons", lambda data, _: checked.append(data))
    export_conversation(store, stored.id, file)
    file.seek(0)
    other = palaver.open(":memory:")
    assert ["one", "two"] == [message.text for message in import_conversation(other, file)]
    assert 2 == len(parse_messages(dump(list(stored))))
    assert [] == checked


DATA = b'{"a": [1, {"b": "x, [y"}], "c d": {"e": NaN}}'


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (b"{", "$"),
        (b"[1", "$.a"),
        (b"1,", "$.a[0]"),
        (b'"x, [y"', "$.a[1].b"),
        (b"[y", "$.a[1].b"),
        (b"NaN", "$['c d'].e"),
    ],
)
def test_the_path_of_a_place_in_a_text(text: bytes, path: str) -> None:
    assert path == path_at(DATA, DATA.index(text))


@pytest.mark.parametrize(
    "data", [b"", b"]", b"}}", b"[1]]]", b'{"a', b'{"a":', b"[1 2", b'"\\', b",,", b"{,}"]
)
def test_broken_text_is_no_trouble(data: bytes) -> None:
    assert path_at(data, len(data)).startswith("$")
    assert 0 <= offset_of(data, "$.a[0]") <= len(data)
    assert path_too_deep(data, 5).startswith("$")


@pytest.mark.parametrize(
    ("levels", "path"), [(1, "$[0]"), (2, "$[0][0]"), (3, "$[0][0].a"), (9, "$")]
)
def test_the_first_value_that_is_too_deep(levels: int, path: str) -> None:
    assert path == path_too_deep(b'[[{"a": [0]}]]', levels)


def test_the_offset_of_a_path_or_of_what_is_around_it() -> None:
    assert DATA.index(b"NaN") == offset_of(DATA, "$['c d'].e")
    assert DATA.index(b"[1") == offset_of(DATA, "$.a[7].nothing")
    assert 0 == offset_of(DATA, "$.nothing")
    assert {} == offsets_of(DATA, [])


@at_least(200)
@given(json_values)
def test_path_and_offset_undo_each_other(value: object) -> None:
    data = json.dumps({"x": [value]}).encode()
    for start in range(len(data)):
        path = path_at(data, start)
        assert path_at(data, offset_of(data, path)) == path


def test_lines_count_from_one() -> None:
    assert [1, 1, 2, 3] == [line_of(b"a\nb\nc", offset) for offset in (0, 1, 2, 4)]
