from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from palaver.errors import ValidationError
from palaver.messages import parse_message, parse_messages, parse_part, replace_refused, to_dict
from palaver.messages.gate import freeze
from tests.messages.outcome import outcome
from tests.messages.strategies import anything, json_values
from tests.profiles import at_least


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
