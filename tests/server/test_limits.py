"""Not too much at once: bytes, requests a second, requests at work, guesses at the token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import palaver
from palaver.server import Settings, make_app
from palaver.server.limits import Rate
from tests.server.asking import ADDRESS, TOKEN, Asker

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

BEARER = {"authorization": f"Bearer {TOKEN}"}


def asker(settings: Settings) -> Asker:
    return Asker(make_app(palaver.open(":memory:"), settings), base_url=ADDRESS)


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
        found = [ask.get("/api/health") for _ in range(12)]
        assert [200] * 8 == [answer.status_code for answer in found[:8]]
        assert 429 == found[-1].status_code
        assert "1" == found[-1].headers["retry-after"]


def test_guesses_at_the_token_are_slowed_down_and_the_token_is_not() -> None:
    with asker(Settings(token=TOKEN, rate=0, guesses=1)) as ask:
        tried = [ask.get("/api/info").status_code for _ in range(6)]
        assert [401, 401, 401, 401, 429, 429] == tried
        assert 429 == ask.refused("POST", "session", {"token": "x"})["status"]
        assert 200 == ask.get("/api/info", headers=BEARER).status_code


def test_only_so_many_requests_are_at_work() -> None:
    with asker(Settings(token=TOKEN, requests=0)) as ask:
        assert 429 == ask.get("/api/health").status_code


def test_a_bucket_fills_again() -> None:
    now = [0.0]
    rate = Rate(2, clock=lambda: now[0])
    assert [True] * 8 + [False] == [rate.allows("me") for _ in range(9)]
    assert rate.allows("you")
    now[0] = 0.5
    assert [True, False] == [rate.allows("me") for _ in range(2)]
    now[0] = 1_000.0
    assert [True] * 8 + [False] == [rate.allows("me") for _ in range(9)]


def test_the_oldest_clients_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.server.limits._CLIENTS", 2)
    rate = Rate(0.25, clock=lambda: 0.0)
    assert [True, False] == [rate.allows("a"), rate.allows("a")]
    rate.allows("b")
    rate.allows("c")
    assert rate.allows("a")
