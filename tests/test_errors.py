from __future__ import annotations

import copy
import pickle

import pytest

from palaver.errors import (
    AuthError,
    InvalidStateTransition,
    PalaverError,
    PartValidationError,
    RateLimited,
    ValidationError,
    VersionMismatch,
)

ERRORS = [
    PalaverError("no such thing"),
    ValidationError("is odd", path="$.a[0]", rule="schema"),
    PartValidationError("is odd", path="$.a[0].b", rule="empty-output", part="tool"),
    InvalidStateTransition("pending", "completed", ("running",)),
    RateLimited("slow down", provider="openai", status=429, retry_after=1.5),
    VersionMismatch((17, 18), 20),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_travel_between_processes(error: PalaverError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):  # noqa: S301
        assert type(error) is type(again)
        assert str(error) == str(again)
        assert error.to_dict() == again.to_dict()


def test_every_error_is_a_palaver_error_and_a_refusal_a_value_error() -> None:
    assert all(isinstance(error, PalaverError) for error in ERRORS)
    assert [False, True, True, False, False, False] == [
        isinstance(error, ValueError) for error in ERRORS
    ]


def test_an_error_says_where_what_and_which_rule() -> None:
    assert [
        "no such thing",
        "$.a[0]: is odd [schema]",
        "$.a[0].b: is odd (tool part) [empty-output]",
        "a tool call that is pending cannot become completed; it can only become running",
        "openai: slow down (status 429, wait 1.5 s)",
        "the conversation is at version 20, not 17 or 18",
    ] == [str(error) for error in ERRORS]


def test_errors_are_data_too() -> None:
    assert {
        "name": "PartValidationError",
        "message": "$.a[0].b: is odd (tool part) [empty-output]",
        "detail": "is odd",
        "path": "$.a[0].b",
        "rule": "empty-output",
        "part": "tool",
        "field": "b",
    } == ERRORS[2].to_dict()


def test_an_error_of_a_model_says_no_more_than_it_knows() -> None:
    assert "no key" == str(AuthError("no key"))
    assert {
        "name": "AuthError",
        "message": "no key",
        "provider": "",
        "status": None,
        "retryAfter": None,
    } == AuthError("no key").to_dict()


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("$", ""),
        ("$[0]", ""),
        ("$.text", "text"),
        ("$.state.time.start", "start"),
        ("$.files[3]", "files"),
        ("$.metadata['a.b']", "metadata"),
        ("$.metadata['a.b'].c", "c"),
        ('$.metadata["it\'s.b"]', "metadata"),
        ("$.metadata['a\\'.b']", "metadata"),
    ],
)
def test_the_field_is_the_last_name_in_the_path(path: str, field: str) -> None:
    assert field == PartValidationError("is odd", path=path).field


def test_an_error_can_be_seen_from_further_out() -> None:
    error = PartValidationError("is odd", path="$.text", rule="r", part="text")
    outer = error.under("$[3].content[0]")
    assert ("$[3].content[0].text", "r", "text") == (outer.path, outer.rule, outer.part)
    moved = outer.moved("$[3].content[0]", "$.parts[7]")
    assert ("$.parts[7].text", PartValidationError) == (moved.path, type(moved))
    plain = ValidationError("is odd", path="$").under("$.a")
    assert ("$.a", ValidationError) == (plain.path, type(plain))


def test_a_long_path_is_shortened_in_the_text_only() -> None:
    error = ValidationError("is deep", path="$" + ".a" * 10_000)
    assert len(str(error)) < 200
    assert 20_001 == len(error.path)


def test_repeating_with_another_payload_says_so() -> None:
    error = InvalidStateTransition("running", "running", ("completed", "error"))
    assert (
        "a tool call is running already, with another payload; "
        "it can only become completed or error" == str(error)
    )
