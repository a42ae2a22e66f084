"""The small checks that the judges are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from palaver.testing import check_request
from palaver.testing.providers import FORMAT_NAMES
from palaver.testing.providers.checks import (
    Findings,
    Form,
    Kinds,
    anything,
    boolean,
    check_json,
    filled,
    listing,
    mapping,
    number,
    one_of,
    optional,
    string,
)

if TYPE_CHECKING:
    from palaver.testing.providers import FormatName
    from palaver.testing.providers.checks import Check

FORM = Form({"a": string}, {"b": boolean})
KINDS = Kinds({"x": Form({"type": anything})}, elsewhere=frozenset({"y"}))


def seen(check: Check, value: object) -> list[tuple[str, str]]:
    found = Findings()
    check(found, "$", value)
    return [(problem.path, problem.rule) for problem in found]


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (anything, None),
        (string, ""),
        (filled, "a"),
        (boolean, False),
        (number, 0.5),
        (mapping, {}),
        (listing(string), []),
        (listing(string, at_least=1), ["a"]),
        (one_of("a", "b"), "b"),
        (optional(string), None),
        (FORM, {"a": "", "b": True}),
        (KINDS, {"type": "x"}),
    ],
)
def test_what_fits_is_taken(check: Check, value: object) -> None:
    assert [] == seen(check, value)


@pytest.mark.parametrize(
    ("check", "value", "problems"),
    [
        (string, None, [("$", "shape")]),
        (filled, "", [("$", "shape")]),
        (boolean, 0, [("$", "shape")]),
        (number, True, [("$", "shape")]),
        (number, "1", [("$", "shape")]),
        (mapping, [], [("$", "shape")]),
        (listing(string), {}, [("$", "shape")]),
        (listing(string), ["a", 1], [("$[1]", "shape")]),
        (listing(string, at_least=1), [], [("$", "empty-content")]),
        (one_of("a", "b"), "c", [("$", "shape")]),
        (one_of("a", "b"), ["a"], [("$", "shape")]),
        (optional(string), 1, [("$", "shape")]),
        (FORM, [], [("$", "shape")]),
        (FORM, {"b": True}, [("a", "shape")]),
        (FORM, {"a": "", "c": 1}, [("c", "unknown-field")]),
        (KINDS, "x", [("$", "shape")]),
        (KINDS, {}, [("type", "shape")]),
        (KINDS, {"type": ["x"]}, [("type", "shape")]),
        (KINDS, {"type": "y"}, [("$", "part-placement")]),
        (KINDS, {"type": "z"}, [("$", "unknown-part")]),
    ],
)
def test_what_does_not_fit_is_noted(
    check: Check, value: object, problems: list[tuple[str, str]]
) -> None:
    assert problems == seen(check, value)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), "$"),
        ({"a": [float("inf")]}, "a[0]"),
        ({"a": (1,)}, "a"),
        (b"", "$"),
        ({1: 2}, "$"),
    ],
)
def test_what_is_no_json_is_noted(value: object, path: str) -> None:
    found = Findings()
    check_json(found, value, limit=1_000)
    assert [(path, "shape")] == [(problem.path, problem.rule) for problem in found]


@pytest.mark.parametrize("value", [None, True, 1, 0.5, "a", {"a": [{"b": None}]}])
def test_json_is_json(value: object) -> None:
    found = Findings()
    check_json(found, value, limit=1_000)
    assert [] == list(found)


@pytest.mark.parametrize("name", FORMAT_NAMES)
@pytest.mark.parametrize("field", ["messages", "input", "contents"])
@pytest.mark.parametrize("value", [7, None, ["Hello"], ["Hello", 7]])
def test_a_message_that_is_none_is_noted(name: FormatName, field: str, value: object) -> None:
    """The field is the format's own, or it is not known at all."""
    own = {"openai-responses": "input", "gemini": "contents"}.get(name, "messages")
    found = {
        (problem.path.partition("[")[0], problem.rule)
        for problem in check_request(name, {field: value})
    }
    if field == own:
        assert {(field, "shape")} == found
    else:
        assert {(field, "unknown-field"), (own, "shape")} == found


def test_content_that_is_neither_text_nor_parts_is_noted() -> None:
    body = {"messages": [{"role": "user", "content": 7}]}
    for name in ("openai-chat", "anthropic"):
        (problem,) = check_request(name, body)
        assert ("messages[0].content", "shape") == (problem.path, problem.rule)
