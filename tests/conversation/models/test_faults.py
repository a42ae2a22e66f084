"""Whatever a provider does wrong is one of palaver's errors, soon, and never a repeat too many."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
import pytest

from palaver.conversation.models import Retries, model
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
from palaver.testing.servers import Answer, Garbage, HangUp, ProviderServer, Refusal, Silence
from tests.conversation.models.worlds import KEYS, WORLDS, World, asking, gathered, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from palaver.conversation.models import Model
    from palaver.testing.servers import Scripted

pytestmark = pytest.mark.anyio


async def whole(asked: Model, world: World) -> object:
    return await asked.whole(world.ask())


async def stream(asked: Model, world: World) -> object:
    return await gathered(asked, world.ask())


@pytest.fixture(params=[whole, stream], ids=["whole", "stream"])
def how(request: pytest.FixtureRequest) -> Callable[[Model, World], Awaitable[object]]:
    found: Callable[[Model, World], Awaitable[object]] = request.param
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
    world: World, how: Callable[[Model, World], Awaitable[object]]
) -> None:
    async with asking(world) as (asked, server):
        for fault, kind, times in FAULTS:
            server.requests.clear()
            server.then(*[fault] * times)
            with pytest.raises(ModelError) as caught:
                await how(asked, world)
            assert (kind, times) == (type(caught.value), len(server.requests)), fault
            assert world.provider == caught.value.provider
            if isinstance(fault, Refusal):
                assert (fault.status, fault.message) == (caught.value.status, caught.value.detail)
        server.then("Yes.")
        assert await how(asked, world)


async def test_a_repeat_that_works_is_an_answer(
    world: World, how: Callable[[Model, World], Awaitable[object]]
) -> None:
    async with asking(world, Refusal(500), HangUp(), "Yes.") as (asked, server):
        assert await how(asked, world)
        assert 3 == len(server.requests)


async def test_a_wait_that_is_asked_for_is_kept(world: World) -> None:
    async with asking(world, Refusal(429, retry_after=0.3), "Yes.") as (asked, _):
        began = anyio.current_time()
        await asked.whole(world.ask())
        assert anyio.current_time() - began >= 0.3


async def test_a_wait_that_is_too_long_is_the_callers_to_decide(world: World) -> None:
    async with asking(world, Refusal(429, "later", retry_after=3600.0)) as (asked, server):
        with pytest.raises(RateLimited) as caught:
            await asked.whole(world.ask())
        assert 1 == len(server.requests)
    assert 3600.0 == caught.value.retry_after


async def test_no_repeats_where_none_are_wanted(world: World) -> None:
    none = Retries(limit=0)
    async with asking(world, Refusal(500), "Yes.", retries=none) as (asked, server):
        with pytest.raises(Unavailable):
            await asked.whole(world.ask())
        assert 1 == len(server.requests)


@pytest.mark.parametrize("cleanly", [False, True], ids=["broken", "closed"])
async def test_half_a_stream_is_no_answer_and_is_not_asked_for_again(
    world: World, *, cleanly: bool
) -> None:
    half = Answer("x" * 200, cut_after=3, cleanly=cleanly)
    heard: list[Mapping[str, Any]] = []

    async def hear(asked: Model) -> None:
        async for event in asked.stream(world.ask()):
            heard.append(event)  # noqa: PERF401 - what arrives before the end is kept

    async with asking(world, half, "Yes.") as (asked, server):
        with pytest.raises(BadAnswer, match="broke off"):
            await hear(asked)
        assert 1 == len(server.requests)
    assert heard


async def test_half_of_a_whole_answer_is_asked_for_again(world: World) -> None:
    async with asking(world, Answer("x" * 200, cut_after=1), "Yes.") as (asked, server):
        assert await asked.whole(world.ask())
        assert 2 == len(server.requests)


async def test_silence_ends_after_the_time_that_was_set(
    world: World, how: Callable[[Model, World], Awaitable[object]]
) -> None:
    async with asking(world, Silence(), timeout=0.3) as (asked, server):
        with pytest.raises(NetworkError, match=r"nothing came within 0\.3 s"):
            await how(asked, world)
        assert 1 == len(server.requests)


async def test_a_slow_start_is_no_fault(world: World) -> None:
    async with asking(world, Answer("Yes.", start_after=0.2)) as (asked, _):
        assert await gathered(asked, world.ask())


async def test_nobody_there_is_a_network_error(world: World) -> None:
    with ProviderServer(world.format) as server:
        gone = server.url
    asked = model(world.name, base_url=gone, retries=Retries(limit=1, shortest=0.01))
    with pytest.raises(NetworkError, match="the connection failed"):
        await asked.whole(world.ask())
    await asked.close()


async def test_a_cancelled_question_closes_its_connection(
    world: World, how: Callable[[Model, World], Awaitable[object]]
) -> None:
    async def ask() -> None:
        await how(asked, world)

    script: Scripted = Silence() if how is whole else Answer("x" * 4_000, delay=0.05)
    async with asking(world, script) as (asked, server):
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await until(lambda: bool(server.requests))
            await anyio.sleep(0.1)
            assert not server.requests[0].aborted
            group.cancel_scope.cancel()
        await until(lambda: server.requests[0].aborted)


async def test_a_key_is_in_no_error_and_in_no_log(
    world: World,
    how: Callable[[Model, World], Awaitable[object]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    key = KEYS[world.key]
    faults = [Refusal(401, f"wrong key: {key}"), Refusal(500, f"with {key}")] * 2
    caplog.set_level(logging.DEBUG)
    async with asking(world, *faults, retries=Retries(limit=1, shortest=0.01)) as (asked, _):
        for _ in range(2):
            with pytest.raises(ModelError) as caught:
                await how(asked, world)
            shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
            assert key not in shown + str(caught.value.to_dict())
        assert key not in repr(asked) + repr(vars(asked).keys())
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("palaver")]
    assert ours
    assert key not in "".join(ours)


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.format)
async def test_without_a_key_the_error_says_which_to_set(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(world.key)
    monkeypatch.setenv("HOME", str(tmp_path))  # where a profile could be
    with pytest.raises(AuthError, match=world.key):
        await model(world.name).whole(world.ask())


async def test_credentials_that_can_not_be_read_are_an_auth_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("ANTHROPIC_PROFILE", "nobody")
    with pytest.raises(AuthError):
        await model("anthropic:claude").whole(WORLDS[2].ask())


async def test_a_server_of_ones_own_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    async with asking(WORLDS[0], "Yes.") as (asked, _):
        assert await asked.whole(WORLDS[0].ask())


@pytest.mark.parametrize(
    ("world", "event", "kind"),
    [
        (WORLDS[0], {"error": {"message": "oops", "code": "server_error"}}, Unavailable),
        (WORLDS[0], {"error": {"message": "oops"}}, ModelError),
        (WORLDS[1], {"type": "error", "code": "rate_limit_exceeded", "message": "x"}, RateLimited),
        (
            WORLDS[1],
            {
                "type": "response.failed",
                "response": {"error": {"code": "server_error", "message": "x"}},
            },
            Unavailable,
        ),
        (
            WORLDS[2],
            {"type": "error", "error": {"type": "overloaded_error", "message": "x"}},
            Unavailable,
        ),
        (WORLDS[3], {"promptFeedback": {"blockReason": "SAFETY"}}, ContentFiltered),
        (WORLDS[3], {"error": {"code": 503, "message": "x", "status": "UNAVAILABLE"}}, Unavailable),
    ],
)
async def test_an_error_inside_a_stream_is_typed_too(
    world: World, event: dict[str, Any], kind: type[ModelError]
) -> None:
    name = f"event: {event['type']}\n".encode() if "type" in event else b""
    line = name + b"data: " + msgspec.json.encode(event) + b"\n\n"
    async with asking(world, Garbage(line), Garbage(line), Garbage(line)) as (asked, _):
        with pytest.raises(ModelError) as caught:
            await gathered(asked, world.ask())
    assert kind is type(caught.value)


async def test_a_refusal_with_status_200_is_an_error_too() -> None:
    body = b'{"status": "failed", "error": {"code": "server_error", "message": "x"}}'
    async with asking(WORLDS[1], Garbage(body), "Yes.") as (asked, server):
        assert await asked.whole(WORLDS[1].ask())
        assert 2 == len(server.requests)
    body = b'{"type": "error", "error": {"type": "invalid_request_error", "message": "x"}}'
    async with asking(WORLDS[2], Garbage(body)) as (asked, server):
        with pytest.raises(BadRequest):
            await asked.whole(WORLDS[2].ask())


async def test_a_list_is_no_answer() -> None:
    async with asking(WORLDS[0], Garbage(b"[]")) as (asked, _):
        with pytest.raises(BadAnswer, match="not a JSON object"):
            await asked.whole(WORLDS[0].ask())


async def test_a_mistake_of_ours_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asking(WORLDS[0], "Yes.") as (asked, _):
        monkeypatch.setattr(asked, "call", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await asked.whole(WORLDS[0].ask())
