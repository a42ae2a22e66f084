"""Whatever a provider does, seen through a conversation: a typed error, and a history that is fine.

The providers' own clients talk to servers on this machine that judge every request. After each
fault the history holds what had arrived and nothing else, nothing was asked more often than is
safe, and the next step gets its answer.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import palaver
from palaver.conversation import Conversation, run_until_answer
from palaver.errors import (
    AuthError,
    BadAnswer,
    BadRequest,
    ContextOverflow,
    ModelError,
    NetworkError,
    RateLimited,
    Unavailable,
)
from palaver.messages import AssistantInfo, ToolPart, user
from palaver.messages.parts import RetryPart
from palaver.testing import check_request
from palaver.testing.servers import Answer, Call, Garbage, HangUp, Refusal, Silence
from palaver.testing.servers import ReportedUsage as Used
from tests.models.providers import KEYS, PROVIDERS, Provider, asking

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from palaver import Store
    from palaver.models import Model
    from palaver.testing.servers import ProviderServer, Scripted

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys for every provider, and none of the machine's own settings."""
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "ANTHROPIC_", "GOOGLE_", "GEMINI_")):
            monkeypatch.delenv(name)
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """One kind is enough here: what differs is the provider."""
    with palaver.open(tmp_path / "chat.db") as opened:
        yield opened


@pytest.fixture(params=PROVIDERS, ids=lambda provider: provider.format)
def provider(request: pytest.FixtureRequest) -> Provider:
    """Each provider."""
    found = request.param
    assert isinstance(found, Provider)
    return found


def begun(store: Store, **fields: Any) -> Conversation:  # noqa: ANN401
    """A conversation with a question."""
    conversation = Conversation(store, **fields)
    conversation.add(user("Tea?"))
    return conversation


async def is_fine(conversation: Conversation, model: Model, server: ProviderServer) -> None:
    """Nothing is left open, and the next step gets its answer."""
    store, form = conversation.store, model.format
    assert {} == store.records(conversation.id, "step")
    assert {} == store.records(conversation.id, "draft")
    assert () == check_request(form, conversation.request(model).body)
    before = len(conversation)
    server.then("And on.")
    assert "And on." == (await conversation.step(model)).text
    assert before + 1 == len(store.get(conversation.id))
    assert [] == server.failures


FAULTS: list[tuple[Scripted, type[ModelError], int]] = [
    (Refusal(400, "no such field"), BadRequest, 1),
    (Refusal(400, "prompt is too long: 9 tokens > 8 maximum"), ContextOverflow, 1),
    (Refusal(401, "who are you"), AuthError, 1),
    (Refusal(429, "slow down", retry_after=0.01), RateLimited, 3),
    (Refusal(500, "oops"), Unavailable, 3),
    (HangUp(), NetworkError, 3),
    (Garbage(), BadAnswer, 1),
]
"""What a provider does, the error it becomes, and how often it may be asked."""


async def test_a_fault_before_the_answer_leaves_the_history_as_it_was(
    store: Store, provider: Provider
) -> None:
    """CV-04: a typed error, no message, nothing asked more often than is safe."""
    conversation = begun(store)
    async with asking(provider) as (model, server):
        for fault, kind, times in FAULTS:
            server.requests.clear()
            server.then(*[fault] * times)
            with pytest.raises(ModelError) as caught:
                await conversation.step(model)
            assert (kind, times) == (type(caught.value), len(server.requests)), fault
            assert ["Tea?"] == [message.text for message in conversation.messages]
        await is_fine(conversation, model, server)


async def test_a_request_that_was_repeated_is_told_in_the_answer(
    store: Store, provider: Provider
) -> None:
    """Each failure with its reason, between the beginning of the step and what was said."""
    conversation = begun(store)
    key = "sk-proj-abcdefghijklmnop0123"
    faults = (Refusal(429, f"slow down, {key}", retry_after=0.01), Refusal(500, "oops"))
    async with asking(provider, *faults, Answer("Yes.")) as (model, server):
        answer = (await conversation.step(model)).message
        assert ["step-start", "retry", "retry", "text", "step-finish"] == [
            part.type for part in answer.parts
        ]
        retries = [part for part in answer.parts if isinstance(part, RetryPart)]
        assert [(1, "RateLimited"), (2, "Unavailable")] == [
            (part.attempt, part.error["name"]) for part in retries
        ]
        assert "slow down, [redacted]" in retries[0].error["message"]
        assert retries == [p for p in store.get(conversation.id)[-1].parts if p in retries]
        await is_fine(conversation, model, server)


async def test_a_wait_that_is_too_long_is_told(store: Store, provider: Provider) -> None:
    """429 with a time to wait: the caller decides, and the time is in the error."""
    conversation = begun(store)
    async with asking(provider, Refusal(429, "later", retry_after=3_600.0)) as (model, server):
        with pytest.raises(RateLimited) as caught:
            await conversation.step(model)
        assert 3_600.0 == caught.value.retry_after
        assert 1 == len(server.requests)
        await is_fine(conversation, model, server)


@pytest.mark.parametrize("cleanly", [False, True], ids=["broken", "closed"])
async def test_half_a_stream_is_kept_and_not_asked_for_again(
    store: Store, provider: Provider, *, cleanly: bool
) -> None:
    """CV-04: what had arrived is a message that says it was interrupted."""
    conversation, heard = begun(store), list[str]()
    half = Answer("leaf " * 40, piece=5, cut_after=12, cleanly=cleanly)
    async with asking(provider, half) as (model, server):
        with pytest.raises(BadAnswer):
            await conversation.step(
                model, on_delta=lambda delta: heard.append(getattr(delta, "text", ""))
            )
        assert 1 == len(server.requests)
        last = conversation.messages[-1]
        assert last.text == "".join(heard)
        assert "leaf" in last.text
        assert isinstance(last.info, AssistantInfo)
        assert "interrupted" == last.info.finish
        await is_fine(conversation, model, server)


async def test_half_a_call_is_no_call(store: Store, provider: Provider) -> None:
    """CV-04: arguments that broke off are kept and never run."""
    ran: list[str] = []

    def look(place: str) -> None:
        ran.append(place)

    conversation = begun(store, tools=[look])
    call = Call("look", {"place": "a long way from here, over the hills"})
    whole = Answer("I look.", calls=(call,), piece=4)
    for cut in range(2, 60, 3):
        async with asking(provider, Answer("I look.", calls=(call,), piece=4, cut_after=cut)) as (
            model,
            server,
        ):
            try:
                step = await conversation.step(model)
            except ModelError:
                assert [] == server.failures
            else:
                assert whole.calls[0].name == step.calls[0].tool
                await conversation.run_tools(step.calls)
                break
            waiting = list(conversation.ledger().values())
            assert all(entry.state.input == call.arguments for entry in waiting)
            await is_fine(conversation, model, server)
            conversation.clear()
            conversation.add(user("Again?"))
    assert ["a long way from here, over the hills"] == ran


async def test_a_provider_that_says_nothing_ends_in_time(store: Store, provider: Provider) -> None:
    """The time that was set; asked once."""
    conversation = begun(store)
    async with asking(provider, Silence(), timeout=1.0) as (model, server):
        with anyio.fail_after(60), pytest.raises(NetworkError):
            await conversation.step(model)
        assert 1 == len(server.requests)
        assert 1 == len(conversation)
        await is_fine(conversation, model, server)


async def test_a_cancelled_step_lets_the_provider_go(store: Store, provider: Provider) -> None:
    """What had arrived is kept; the connection is closed."""
    conversation, heard = begun(store), anyio.Event()
    endless = Answer("leaf " * 2_000, delay=0.01)
    async with asking(provider, endless) as (model, server):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def stop() -> None:
                    await heard.wait()
                    scope.cancel()

                group.start_soon(stop)
                await conversation.step(
                    model, on_delta=lambda delta: heard.set() if hasattr(delta, "text") else None
                )
        assert "assistant" == conversation.messages[-1].role
        with anyio.fail_after(60):
            while not server.requests[0].aborted:  # noqa: ASYNC110 - another thread's
                await anyio.sleep(0.01)
        await is_fine(conversation, model, server)


async def test_a_fault_between_tools_and_answer_loses_no_result(
    store: Store, provider: Provider
) -> None:
    """The results stay, no tool runs again, and the next try gets the answer."""
    ran: list[str] = []

    def look(place: str) -> str:
        ran.append(place)
        return f"{place} is fine"

    conversation = begun(store, tools=[look])
    calls = (Call("look", {"place": "here"}), Call("look", {"place": "there"}))
    script: list[Scripted] = [Answer(calls=calls), Refusal(400, "no"), "All is well."]
    async with asking(provider, *script) as (model, server):
        with pytest.raises(BadRequest):
            await run_until_answer(conversation, model)
        assert 2 == len([p for m in conversation.messages for p in m.parts if _is_result(p)])
        assert "All is well." == (await run_until_answer(conversation, model)).text
        assert 3 == len(server.requests)
        await is_fine(conversation, model, server)
    assert ["here", "there"] == sorted(ran)


def _is_result(part: object) -> bool:
    return isinstance(part, ToolPart)


async def test_usage_is_the_providers(store: Store, provider: Provider) -> None:
    """CV-07: disjoint counts from what each provider says, summed over the calls."""
    conversation = begun(store)
    script = [Answer("One.", usage=Used(100, 20, cached=60)), Answer("Two.", usage=Used(150, 10))]
    async with asking(provider, *script) as (model, _):
        await conversation.step(model)
        await conversation.step(model)
    usage = conversation.usage
    assert (150, 10) == (usage.prompt_tokens, usage.completion_tokens)
    assert (250, 30) == (usage.total.prompt, usage.total.completion)
    assert 60 == usage.total.cache.read
    assert 160 == conversation.tokens()


async def test_a_conversation_moves_from_provider_to_provider(store: Store) -> None:
    """CV-03: what one has said and called is valid for the next."""
    conversation = begun(store, tools=[clock])
    for provider in PROVIDERS:
        thought = "" if provider.format == "openai-chat" else "Hm."  # OpenAI's own has none there
        thinking = Answer("Let me see.", reasoning=thought, calls=(Call("clock", {}),))
        async with asking(provider, thinking, "It is noon.") as (model, server):
            assert "It is noon." == (await run_until_answer(conversation, model)).text
            assert [] == server.failures
        conversation.add(user("And now?"))
    assert 4 * 4 + 1 == len(conversation)


def clock() -> str:
    """The time."""
    return "12:00"
