"""What providers say when they refuse, and what it means."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from palaver.errors import (
    AuthError,
    BadRequest,
    ContentFiltered,
    ContextOverflow,
    ModelError,
    NetworkError,
    RateLimited,
    Unavailable,
)
from palaver.models.errors import (
    ErrorReply,
    classify,
    read_error_body,
    retry_after,
    scrub,
    transport_failure,
)
from palaver.models.retry import RetryPolicy


@pytest.mark.parametrize(
    ("report", "kind", "again"),
    [
        (ErrorReply("p", 400, "This model's maximum context length is 8"), ContextOverflow, False),
        (ErrorReply("p", 400, "The input token count (9) exceeds"), ContextOverflow, False),
        (ErrorReply("p", 400, "x", "context_length_exceeded"), ContextOverflow, False),
        (ErrorReply("p", 400, "x", "content_filter"), ContentFiltered, False),
        (ErrorReply("p", 400, "API key not valid.", "INVALID_ARGUMENT"), AuthError, False),
        (ErrorReply("p", 400, "the tool is odd", "INVALID_ARGUMENT"), BadRequest, False),
        (ErrorReply("p", 408, "x"), NetworkError, True),
        (ErrorReply("p", 409, "x"), Unavailable, True),
        (ErrorReply("p", 429, "x"), RateLimited, True),
        (ErrorReply("p", 429, "x", "insufficient_quota"), RateLimited, False),
        (ErrorReply("p", 500, "x", retryable=False), Unavailable, False),
        (ErrorReply("p", 400, "x", retryable=True), BadRequest, True),
        (ErrorReply("p", None, "x", "overloaded_error"), Unavailable, True),
        (ErrorReply("p", None, "x"), ModelError, False),
    ],
)
def test_a_refusal_is_the_error_it_should_be(
    report: ErrorReply, kind: type[ModelError], *, again: bool
) -> None:
    found = classify(report)
    assert (kind, again) == (type(found.error), found.retryable)


def test_a_refusal_without_words_says_so() -> None:
    assert "p: no reason given (status 418)" == str(classify(ErrorReply("p", 418, "")).error)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"message": "m", "type": "t", "code": None}}, ("m", "t")),
        ({"message": "m", "code": 7, "status": "S"}, ("m", "S")),
        ([{"error": {"message": "m", "status": "S"}}], ("m", "S")),
        ({"error": {"message": 7}}, ("", "")),
        ("  <html> ", ("<html>", "")),
        (None, ("", "")),
        ([], ("", "")),
    ],
)
def test_a_providers_words_are_found_wherever_they_are(
    body: object, expected: tuple[str, str]
) -> None:
    assert expected == read_error_body(body)


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"retry-after": "7"}, None, 7.0),
        ({"retry-after": "0.5"}, None, 0.5),
        ({"retry-after": "-3"}, None, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, None, 1.5),
        ({"retry-after": "soon"}, None, None),
        ({}, {"error": {"details": [{"@type": "x"}, {"retryDelay": "34s"}]}}, 34.0),
        ({}, {"error": {"details": ["x"]}}, None),
        ({}, {"error": "x"}, None),
        ({}, "x", None),
    ],
)
def test_the_wait_is_found_wherever_it_is(
    headers: dict[str, str], body: object, expected: float | None
) -> None:
    assert expected == retry_after(headers, body)


def test_the_wait_may_be_a_date() -> None:
    wait = retry_after({"retry-after": formatdate(time.time() + 60, usegmt=True)})
    assert wait is not None
    assert 55 < wait <= 60


def test_no_key_and_no_flood_is_in_a_text() -> None:
    assert "a … b …" == scrub("a secret-1 b secret-2", ["secret-1", None, "secret-2", ""])
    assert 2_001 == len(scrub("x" * 9_999, []))
    assert "none" == scrub("none", ["no"])  # too short to be a key


def test_only_errors_of_the_line_are_taken_for_that() -> None:
    assert transport_failure(ValueError("x"), "p", 1.0) is None


def test_waits_grow_and_stay_within_bounds() -> None:
    retries = RetryPolicy(limit=9, shortest=1.0, longest=5.0)
    for made in range(9):
        wait = retries.wait(made, None)
        assert wait is not None
        assert min(5.0, 2**made) * 0.5 <= wait <= min(5.0, 2**made)
    assert retries.wait(9, None) is None
    assert retries.wait(0, 5.1) is None
    kept = retries.wait(0, 4.0)
    assert kept is not None
    assert 4.5 <= kept <= 5.0
