"""Whatever a provider does wrong is one of palaver's errors, soon, and never a repeat too many."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import msgspec
import pytest

from palaver.errors import (
    AuthError,
    BadAnswer,
    BadRequest,
    ContentFiltered,
    ContextOverflow,
    ModelError,
    NetworkError,
    RateLimited,
    Unavailable,
)
from palaver.models import RetryPolicy, model
from palaver.testing.servers import Answer, Garbage, HangUp, ProviderServer, Refusal, Silence
from tests.models.providers import KEYS, PROVIDERS, Provider, asking, gathered, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from palaver.models import Model
    from palaver.testing.servers import Scripted

pytestmark = pytest.mark.anyio


async def whole(asked: Model, provider: Provider) -> object:
    return await asked.complete(provider.ask())


async def stream(asked: Model, provider: Provider) -> object:
    return await gathered(asked, provider.ask())


@pytest.fixture(params=[whole, stream], ids=["whole", "stream"])
def how(request: pytest.FixtureRequest) -> Callable[[Model, Provider], Awaitable[object]]:
    found: Callable[[Model, Provider], Awaitable[object]] = request.param
    return found


FAULTS: list[tuple[Scripted, type[ModelError], int]] = [
    (Refusal(400, "no such field"), BadRequest, 1),
    (Refusal(401, "who are you"), AuthError, 1),
    (Refusal(403, "not you"), AuthError, 1),
    (Refusal(404, "no such model"), BadRequest, 1),
    (Refusal(400, "prompt is too long: 9 tokens > 8 maximum"), ContextOverflow, 1),
    (Refusal(413, "too large"), ContextOverflow, 1),
    (Refusal(429, "slow down"), RateLimited, 3),
    (Refusal(500, "oops"), Unavailable, 3),
    (Refusal(529, "overloaded"), Unavailable, 3),
    (HangUp(), NetworkError, 3),
    (Garbage(), BadAnswer, 1),
    (Garbage(b"<html>\n\n"), BadAnswer, 1),
]
"""What a provider does, the error it becomes, and how often it was asked."""


async def test_each_fault_is_a_typed_error(
    provider: Provider, how: Callable[[Model, Provider], Awaitable[object]]
) -> None:
    async with asking(provider) as (asked, server):
        for fault, kind, times in FAULTS:
            server.requests.clear()
            server.then(*[fault] * times)
            with pytest.raises(ModelError) as caught:
                await how(asked, provider)
            assert (kind, times) == (type(caught.value), len(server.requests)), fault
            assert provider.id == caught.value.provider
            if isinstance(fault, Refusal):
                assert (fault.status, fault.message) == (caught.value.status, caught.value.detail)
        server.then("Yes.")
        assert await how(asked, provider)


async def test_a_repeat_that_works_is_an_answer(
    provider: Provider, how: Callable[[Model, Provider], Awaitable[object]]
) -> None:
    async with asking(provider, Refusal(500), HangUp(), "Yes.") as (asked, server):
        assert await how(asked, provider)
        assert 3 == len(server.requests)


async def test_a_wait_that_is_asked_for_is_kept(provider: Provider) -> None:
    async with asking(provider, Refusal(429, retry_after=0.3), "Yes.") as (asked, _):
        began = anyio.current_time()
        await asked.complete(provider.ask())
        assert anyio.current_time() - began >= 0.3


async def test_a_wait_that_is_too_long_is_the_callers_to_decide(provider: Provider) -> None:
    async with asking(provider, Refusal(429, "later", retry_after=3600.0)) as (asked, server):
        with pytest.raises(RateLimited) as caught:
            await asked.complete(provider.ask())
        assert 1 == len(server.requests)
    assert 3600.0 == caught.value.retry_after


async def test_no_repeats_where_none_are_wanted(provider: Provider) -> None:
    none = RetryPolicy(limit=0)
    async with asking(provider, Refusal(500), "Yes.", retries=none) as (asked, server):
        with pytest.raises(Unavailable):
            await asked.complete(provider.ask())
        assert 1 == len(server.requests)


@pytest.mark.parametrize("cleanly", [False, True], ids=["broken", "closed"])
async def test_half_a_stream_is_no_answer_and_is_not_asked_for_again(
    provider: Provider, *, cleanly: bool
) -> None:
    half = Answer("x" * 200, cut_after=3, cleanly=cleanly)
    heard: list[Mapping[str, Any]] = []

    async def hear(asked: Model) -> None:
        async for event in asked.stream(provider.ask()):
            heard.append(event)  # noqa: PERF401 - what arrives before the end is kept

    async with asking(provider, half, "Yes.") as (asked, server):
        with pytest.raises(BadAnswer, match="broke off"):
            await hear(asked)
        assert 1 == len(server.requests)
    assert heard


async def test_half_of_a_whole_answer_is_asked_for_again(provider: Provider) -> None:
    async with asking(provider, Answer("x" * 200, cut_after=1), "Yes.") as (asked, server):
        assert await asked.complete(provider.ask())
        assert 2 == len(server.requests)


async def test_silence_ends_after_the_time_that_was_set(
    provider: Provider, how: Callable[[Model, Provider], Awaitable[object]]
) -> None:
    async with asking(provider, Silence(), timeout=0.3) as (asked, server):
        with pytest.raises(NetworkError, match=r"nothing came within 0\.3 s"):
            await how(asked, provider)
        assert 1 == len(server.requests)


async def test_a_slow_start_is_no_fault(provider: Provider) -> None:
    async with asking(provider, Answer("Yes.", start_after=0.2)) as (asked, _):
        assert await gathered(asked, provider.ask())


async def test_nobody_there_is_a_network_error(provider: Provider) -> None:
    with ProviderServer(provider.format) as server:
        gone = server.url
    asked = model(provider.name, base_url=gone, retries=RetryPolicy(limit=1, shortest=0.01))
    with pytest.raises(NetworkError, match="the connection failed") as caught:
        await asked.complete(provider.ask())
    assert urlsplit(gone).netloc in str(caught.value)
    await asked.close()


async def test_a_cancelled_question_closes_its_connection(
    provider: Provider, how: Callable[[Model, Provider], Awaitable[object]]
) -> None:
    async def ask() -> None:
        await how(asked, provider)

    script: Scripted = Silence() if how is whole else Answer("x" * 4_000, delay=0.05)
    async with asking(provider, script) as (asked, server):
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await until(lambda: bool(server.requests))
            await anyio.sleep(0.1)
            assert not server.requests[0].aborted
            group.cancel_scope.cancel()
        await until(lambda: server.requests[0].aborted)


async def test_a_key_is_in_no_error_and_in_no_log(
    provider: Provider,
    how: Callable[[Model, Provider], Awaitable[object]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    key = KEYS[provider.key]
    faults = [Refusal(401, f"wrong key: {key}"), Refusal(500, f"with {key}")] * 2
    caplog.set_level(logging.DEBUG)
    async with asking(provider, *faults, retries=RetryPolicy(limit=1, shortest=0.01)) as (asked, _):
        for _ in range(2):
            with pytest.raises(ModelError) as caught:
                await how(asked, provider)
            shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
            assert key not in shown + str(caught.value.to_dict())
        assert key not in repr(asked) + repr(vars(asked).keys())
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("palaver")]
    assert ours
    assert key not in "".join(ours)


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.format)
async def test_without_a_key_the_error_says_which_to_set(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(provider.key)
    monkeypatch.setenv("HOME", str(tmp_path))  # where a profile could be
    with pytest.raises(AuthError, match=provider.key):
        await model(provider.name).complete(provider.ask())


async def test_credentials_that_can_not_be_read_are_an_auth_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("ANTHROPIC_PROFILE", "nobody")
    with pytest.raises(AuthError):
        await model("anthropic:claude").complete(PROVIDERS[2].ask())


async def test_a_server_of_ones_own_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    async with asking(PROVIDERS[0], "Yes.") as (asked, _):
        assert await asked.complete(PROVIDERS[0].ask())


@pytest.mark.parametrize(
    ("provider", "event", "kind"),
    [
        (PROVIDERS[0], {"error": {"message": "oops", "code": "server_error"}}, Unavailable),
        (PROVIDERS[0], {"error": {"message": "oops"}}, ModelError),
        (
            PROVIDERS[1],
            {"type": "error", "code": "rate_limit_exceeded", "message": "x"},
            RateLimited,
        ),
        (
            PROVIDERS[1],
            {
                "type": "response.failed",
                "response": {"error": {"code": "server_error", "message": "x"}},
            },
            Unavailable,
        ),
        (
            PROVIDERS[2],
            {"type": "error", "error": {"type": "overloaded_error", "message": "x"}},
            Unavailable,
        ),
        (PROVIDERS[3], {"promptFeedback": {"blockReason": "SAFETY"}}, ContentFiltered),
        (
            PROVIDERS[3],
            {"error": {"code": 503, "message": "x", "status": "UNAVAILABLE"}},
            Unavailable,
        ),
    ],
)
async def test_an_error_inside_a_stream_is_typed_too(
    provider: Provider, event: dict[str, Any], kind: type[ModelError]
) -> None:
    name = f"event: {event['type']}\n".encode() if "type" in event else b""
    line = name + b"data: " + msgspec.json.encode(event) + b"\n\n"
    async with asking(provider, Garbage(line), Garbage(line), Garbage(line)) as (asked, _):
        with pytest.raises(ModelError) as caught:
            await gathered(asked, provider.ask())
    assert kind is type(caught.value)


async def test_a_refusal_with_status_200_is_an_error_too() -> None:
    body = b'{"status": "failed", "error": {"code": "server_error", "message": "x"}}'
    async with asking(PROVIDERS[1], Garbage(body), "Yes.") as (asked, server):
        assert await asked.complete(PROVIDERS[1].ask())
        assert 2 == len(server.requests)
    body = b'{"type": "error", "error": {"type": "invalid_request_error", "message": "x"}}'
    async with asking(PROVIDERS[2], Garbage(body)) as (asked, server):
        with pytest.raises(BadRequest):
            await asked.complete(PROVIDERS[2].ask())


async def test_a_list_is_no_answer() -> None:
    async with asking(PROVIDERS[0], Garbage(b"[]")) as (asked, _):
        with pytest.raises(BadAnswer, match="not a JSON object"):
            await asked.complete(PROVIDERS[0].ask())


async def test_a_mistake_of_ours_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asking(PROVIDERS[0], "Yes.") as (asked, _):
        monkeypatch.setattr(asked, "send", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await asked.complete(PROVIDERS[0].ask())
