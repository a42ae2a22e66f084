"""Not too much at once: bytes, requests a second, requests at work, guesses at the token."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

import pytest

import palaver
from palaver.errors import ValidationError
from palaver.server import Settings, make_app
from palaver.server.run import LogLimit
from palaver.server.security import RateLimit
from palaver.server.settings import read_limit
from tests.server.client import ADDRESS, TOKEN, APIClient

if TYPE_CHECKING:
    from collections.abc import Iterator

BEARER = {"authorization": f"Bearer {TOKEN}"}


def asker(settings: Settings) -> APIClient:
    return APIClient(make_app(palaver.open(":memory:"), settings), base_url=ADDRESS)


def test_a_body_that_is_too_large_is_refused() -> None:
    with asker(Settings(token=TOKEN, body=1_000)) as ask:
        ask.headers.update(BEARER)
        said = {"messages": [{"role": "user", "content": "x" * 2_000}]}
        assert 413 == ask.refused("POST", "conversations", said)["status"]

        def endless() -> Iterator[bytes]:
            yield from [b" " * 600] * 5

        answer = ask.post("/api/conversations", content=endless())
        assert (413, "application/problem+json") == (
            answer.status_code,
            answer.headers["content-type"],
        )


def test_who_hurries_too_much_is_slowed_down() -> None:
    with asker(Settings(token=TOKEN, rate=2)) as ask:
        found = [ask.get("/api/info", headers=BEARER) for _ in range(12)]
        assert [200] * 8 == [answer.status_code for answer in found[:8]]
        assert 429 == found[-1].status_code
        assert "1" == found[-1].headers["retry-after"]
        assert [200] * 12 == [ask.get("/api/health").status_code for _ in range(12)]


def test_who_has_no_token_slows_nobody_else_down() -> None:
    with asker(Settings(token=TOKEN, rate=2, guesses=1)) as ask:
        for _ in range(50):
            assert ask.get("/api/info").status_code in {401, 429}
            assert 200 == ask.get("/").status_code
        assert 429 == ask.post("/api/session", json={"token": "x"}).status_code
        assert 204 == ask.post("/api/session", json={"token": TOKEN}).status_code
        ask.cookies.clear()
        assert 200 == ask.get("/api/info", headers=BEARER).status_code


def test_guesses_at_the_token_are_slowed_down_and_the_token_is_not() -> None:
    with asker(Settings(token=TOKEN, rate=0, guesses=1)) as ask:
        tried = [ask.get("/api/info").status_code for _ in range(6)]
        assert [401, 401, 401, 401, 429, 429] == tried
        assert 429 == ask.refused("POST", "session", {"token": "x"})["status"]
        assert 200 == ask.get("/api/info", headers=BEARER).status_code


def test_only_so_many_requests_are_at_work() -> None:
    with asker(Settings(token=TOKEN, requests=0)) as ask:
        assert 429 == ask.get("/api/info", headers=BEARER).status_code
        assert 200 == ask.get("/api/health").status_code


def test_without_the_token_a_body_is_small() -> None:
    with asker(Settings(token=TOKEN)) as ask:
        assert 413 == ask.refused("POST", "session", {"token": "x" * 20_000})["status"]
        said = {"messages": [{"role": "user", "content": "x" * 20_000}]}
        assert 201 == ask.post("/api/conversations", json=said, headers=BEARER).status_code


@pytest.mark.parametrize(
    ("name", "value"),
    [("requests", -1), ("requests", 1.5), ("requests", True), ("body", 0), ("rate", -0.1),
     ("connections", 0), ("peer_connections", 0), ("peer_unfinished", 0), ("body_rate", 0),
     ("idle_seconds", 0), ("head_seconds", math.inf), ("body_seconds", math.nan),
     ("write_seconds", "30"), ("heartbeat", -1)],
)  # fmt: skip
def test_a_limit_that_makes_no_sense_is_refused(name: str, value: Any) -> None:  # noqa: ANN401 - wrong on purpose
    with pytest.raises(ValidationError, match=rf"\$\.{name}: must be (an integer|a number)"):
        Settings(token=TOKEN, **{name: value})


@pytest.mark.parametrize("text", ["idle_seconds", "idle_seconds=", "requests=1.5", "none=1", ""])
def test_a_limit_is_read_from_its_name_and_a_number(text: str) -> None:
    assert ("head_seconds", 1.5) == read_limit("head_seconds=1.5")
    with pytest.raises(ValidationError, match=r"such as|the limits are body, rate"):
        read_limit(text)


def test_a_line_of_code_logs_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    limit, logger = LogLimit(clock=lambda: now[0]), logging.getLogger("tests.limits")
    logger.addFilter(limit)
    try:
        for number in range(1_000):
            now[0] = number / 400
            logger.error("it failed: %d", number)
            logger.error("something else")
            logger.error("it raised", exc_info=ValueError() if number % 2 else KeyError())
    finally:
        logger.removeFilter(limit)
    said = [record.getMessage() for record in caplog.records]
    assert [
        "it failed: 0",
        "it failed: 400 (and 399 more like this)",
        "it failed: 800 (and 399 more like this)",
    ] == [line for line in said if line.startswith("it failed")]
    assert 3 == sum(line.startswith("something else") for line in said)
    assert 6 == sum(line.startswith("it raised") for line in said)


def test_a_bucket_fills_again() -> None:
    now = [0.0]
    rate = RateLimit(2, clock=lambda: now[0])
    assert [True] * 8 + [False] == [rate.allows("me") for _ in range(9)]
    assert rate.allows("you")
    now[0] = 0.5
    assert [True, False] == [rate.allows("me") for _ in range(2)]
    now[0] = 1_000.0
    assert [True] * 8 + [False] == [rate.allows("me") for _ in range(9)]


def test_the_oldest_clients_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.server.security._CLIENTS", 2)
    rate = RateLimit(0.25, clock=lambda: 0.0)
    assert [True, False] == [rate.allows("a"), rate.allows("a")]
    rate.allows("b")
    rate.allows("c")
    assert rate.allows("a")
