from __future__ import annotations

import json

import pytest
from hypothesis import given

from palaver.messages.scan import line_of, offset_of, offsets_of, path_at, too_deep
from tests.messages.strategies import json_values
from tests.profiles import at_least

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
    assert too_deep(data, 5).startswith("$")


@pytest.mark.parametrize(
    ("levels", "path"), [(1, "$[0]"), (2, "$[0][0]"), (3, "$[0][0].a"), (9, "$")]
)
def test_the_first_value_that_is_too_deep(levels: int, path: str) -> None:
    assert path == too_deep(b'[[{"a": [0]}]]', levels)


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
