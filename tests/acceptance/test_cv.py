"""CV-01 … CV-09 by name, through the front door: a store, a provider's own SDK, tools.

The providers are servers on this machine that refuse what the real ones would refuse.
"""

from __future__ import annotations

import logging
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

import palaver
from palaver.conversation import (
    ClearOutputs,
    Conversation,
    DropOldest,
    Summarise,
    ToolContext,
    ToolLimits,
    ToolOutput,
    auto_compact,
    compact,
    model,
    run_until_answer,
    tool,
)
from palaver.errors import CompactionRefused, LeaseLost, ModelError, ValidationError
from palaver.messages import AssistantInfo, ToolCallPart, ToolCompleted, ToolPart, system, user
from palaver.stores import holders
from palaver.testing.servers import Answer, Call, ProviderServer, Refusal, ReportedUsage
from palaver.tokens import estimate
from palaver.wire.reply import TextDelta

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from pathlib import Path

    from palaver import Store
    from palaver.events import Event
    from palaver.models import Model
    from palaver.testing.providers import FormatName
    from palaver.testing.servers import Scripted

pytestmark = pytest.mark.anyio

PROVIDERS: list[tuple[FormatName, str]] = [
    ("openai-chat", "openai:gpt-5"),
    ("openai-responses", "responses:gpt-5"),
    ("anthropic", "anthropic:claude"),
    ("gemini", "gemini:gemini-3-pro"),
]
each = pytest.mark.parametrize(("form", "name"), PROVIDERS, ids=[form for form, _ in PROVIDERS])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with palaver.open(tmp_path / "chat.db") as opened:
        yield opened


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "ANTHROPIC_", "GOOGLE_", "GEMINI_")):
            monkeypatch.delenv(name)


@asynccontextmanager
async def provider(
    *script: Scripted, form: FormatName = "openai-chat", name: str = "openai:gpt-5"
) -> AsyncGenerator[Model]:
    """A model behind a server that answers by a script, and finds nothing wrong."""
    with ProviderServer(form, script) as server:
        asked = model(name, base_url=server.url, api_key="any")
        yield asked
        await asked.close()
        assert [] == server.failures


def results(conversation: Conversation) -> list[tuple[str, str]]:
    parts = [part for message in conversation.messages for part in message.parts]
    return [(part.call_id, part.state.status) for part in parts if isinstance(part, ToolPart)]


async def test_cv_01_one_step_and_no_more(store: Store) -> None:
    """S4's abilities; no loop and no end inside: calls wait until the engine runs them."""
    conversation = Conversation(store)
    conversation.add({"role": "system", "content": "Be brief."})
    conversation.add({"role": "user", "content": "Look."})
    async with provider(Answer(calls=(Call("look", id="a"),)), "Done.") as asked:
        step = await conversation.step(asked, tools=[tool(name="look")(lambda: "fine")])
        assert [("system", ""), ("user", "")] == [(m.role, "") for m in conversation.messages[:2]]
        assert 3 == len(conversation)
        assert [] == results(conversation)
        assert list(step.calls) == conversation.waiting()
        outcome = await conversation.run_tools(
            step.calls, tools=[tool(name="look")(lambda: "fine")]
        )
        assert [("a", "completed")] == results(conversation)
        assert ["fine"] == [found.text for found in outcome]
        assert "Done." == (await conversation.step(asked)).text
    assert ["Done."] == [message.text for message in conversation.recent(1)]
    assert 2 == len(conversation.by_role("assistant"))
    assert conversation.usage.calls == 2
    conversation.clear()
    assert ["system"] == [message.role for message in conversation.messages]


async def test_cv_01_errors_and_extension_points(store: Store) -> None:
    """S1's text; a counter and an executor of one's own."""

    async def execute(call: ToolCallPart, context: ToolContext) -> ToolOutput:
        del context
        return ToolOutput(f"{call.tool} was executed")

    conversation = Conversation(store, count=len, executor=execute)
    with pytest.raises(ValidationError, match="Invalid message format: role and content are req"):
        conversation.add({"role": "user", "content": ""})
    conversation.add(user("four"))
    assert 8 == conversation.tokens()
    async with provider(Answer(calls=(Call("anything", id="a"),))) as asked:
        step = await conversation.step(asked)
    (outcome,) = await conversation.run_tools(step.calls)
    assert "anything was executed" == outcome.text


async def test_cv_01_s4s_errors(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """A call that fails is logged and raised; where counting fails, an estimate takes over."""

    def refuse(text: str) -> int:
        raise OSError(text)

    conversation = Conversation(store, count=refuse)
    conversation.add(user("x" * 1_000))
    with caplog.at_level(logging.WARNING):
        assert 404 == conversation.tokens()
        async with provider(Refusal(400, "no such field")) as asked:
            with pytest.raises(ModelError, match="no such field"):
                await conversation.step(asked)
    assert "counting tokens failed" in caplog.text
    assert "asking gpt-5 failed: openai: no such field" in caplog.text


@each
async def test_cv_02_each_provider_through_its_own_sdk(
    store: Store, form: FormatName, name: str
) -> None:
    """Streaming, with tools; the same lines of code for all."""

    def look(place: str) -> str:
        """Look at a place."""
        return f"{place} is fine"

    conversation, heard = Conversation(store, tools=[look]), list[str]()
    conversation.add(user("Look here."))
    calls = Answer("I look.", calls=(Call("look", {"place": "here"}),))
    async with provider(calls, "All is well.", form=form, name=name) as asked:
        step = await run_until_answer(
            conversation,
            asked,
            on_delta=lambda delta: (
                heard.append(delta.text) if isinstance(delta, TextDelta) else None
            ),
        )
    assert "All is well." == step.text
    assert "I look.All is well." == "".join(heard)
    assert ["user", "assistant", "tool", "assistant"] == [m.role for m in conversation.messages]


@each
async def test_cv_03_whatever_was_edited_the_request_is_valid(
    store: Store, form: FormatName, name: str
) -> None:
    """Calls without results, results without calls: repaired, and said."""
    conversation = Conversation(store, tools=[tool(name="look")(lambda: "fine")])
    conversation.add(user("Look."))
    async with provider(
        Answer(calls=(Call("look"), Call("look"))), "Done.", "On.", "On.", form=form, name=name
    ) as asked:
        await run_until_answer(conversation, asked)
        conversation.history.truncate(role="tool", remove_last=1, others="keep")
        conversation.add(user("And?"))
        assert (await conversation.step(asked)).notes
        conversation.history.truncate(role="assistant", remove_first=1, others="keep")
        conversation.add(user("And?"))
        assert (await conversation.step(asked)).notes


async def test_cv_04_intent_before_and_everything_at_once(store: Store) -> None:
    """The intent is there while the model thinks; reply, usage and calls are one version."""
    conversation, seen = Conversation(store), list[int]()
    conversation.add(user("Look."))
    async with provider(
        Answer("I look.", calls=(Call("look"),), usage=ReportedUsage(9, 4))
    ) as asked:
        step = await conversation.step(
            asked,
            on_delta=lambda _: seen.append(len(store.backend.records(conversation.id, "step"))),
        )
    assert {1} == set(seen)
    stored = Conversation(store, conversation.id)
    assert conversation.history.version == 2 == stored.usage.version
    assert 13 == stored.usage.total_tokens
    assert [call.id for call in step.calls] == list(stored.ledger())
    assert {} == store.backend.records(conversation.id, "step")


@each
async def test_cv_04_what_had_arrived_is_kept(store: Store, form: FormatName, name: str) -> None:
    """Marked as interrupted."""
    conversation = Conversation(store)
    conversation.add(user("Tell me."))
    async with provider(Answer("word " * 50, cut_after=9), form=form, name=name) as asked:
        with pytest.raises(ModelError):
            await conversation.step(asked)
    last = conversation.messages[-1]
    assert last.text.startswith("word ")
    assert isinstance(last.info, AssistantInfo)
    assert "interrupted" == last.info.finish


async def test_cv_05_tools(store: Store) -> None:
    """Checked arguments, time limit, errors as results, the order of the calls, BR-09."""

    async def slow(seconds: float) -> str:
        await anyio.sleep(seconds)
        return "slept"

    def broken() -> None:
        raise OSError

    def empty() -> str:
        return ""

    calls = (
        Call("slow", {"seconds": 0.05}, id="a"),
        Call("slow", {"seconds": 60}, id="b"),
        Call("slow", {"seconds": "long"}, id="c"),
        Call("broken", id="d"),
        Call("empty", id="e"),
        Call("nowhere", id="f"),
    )
    conversation = Conversation(store, tools=[slow, broken, empty], limits=ToolLimits(seconds=0.5))
    conversation.add(user("Go."))
    async with provider(Answer(calls=calls)) as asked:
        step = await conversation.step(asked)
    outcomes = await conversation.run_tools(step.calls)
    expected = ["completed", "error", "error", "error", "completed", "error"]
    assert list(zip("abcdef", expected, strict=True)) == results(conversation)
    assert "timed out after 500 ms" == outcomes[1].text
    assert "(no output)" == outcomes[4].text
    state = outcomes[4].state
    assert isinstance(state, ToolCompleted)
    assert "" in state.metadata.values()


async def test_cv_06_after_a_crash_nothing_runs_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was running is an error that says so; a tool that may runs again; each is reported."""
    ran: list[str] = []
    begun = anyio.Event()

    async def hang() -> None:
        ran.append("hang")
        begun.set()
        await anyio.sleep_forever()

    @tool(idempotent=True)
    async def look() -> str:
        ran.append("look")
        await anyio.sleep(0 if begun.is_set() and len(ran) > 2 else 60)
        return "fine"

    conversation = Conversation(store, tools=[hang, look])
    conversation.add(user("Go."))
    async with provider(
        Answer(calls=(Call("hang", id="a"), Call("look", id="b"))), "Well."
    ) as asked:
        step = await conversation.step(asked)

        async def work() -> None:
            with pytest.raises(LeaseLost):  # it comes back late, and what it would write is refused
                await conversation.run_tools(step.calls)

        async with anyio.create_task_group() as group:
            group.start_soon(work)
            await begun.wait()
            late = holders.monotonic_ms() + 61_000  # after this one's lease
            monkeypatch.setattr("palaver.stores.sqlite.backend.monotonic_ms", lambda: late)
            with palaver.open(tmp_path / "chat.db") as later:  # another process
                other = Conversation(later, conversation.id, tools=[hang, look])
                found = {item.tool: item.outcome for item in await other.recover()}
                assert {"hang": "interrupted", "look": "repeat"} == found
                assert "Well." == (await run_until_answer(other, asked)).text
                assert {("a", "error"), ("b", "completed")} == set(results(other))
            group.cancel_scope.cancel()
    assert 1 == ran.count("hang")


async def test_cv_06_a_result_whose_call_is_gone_is_kept_beside(store: Store) -> None:
    """In the ledger of the line that began it; reported, not appended."""

    def undo() -> str:
        conversation.history.truncate(remove_last=1)
        return "too late"

    conversation = Conversation(store, tools=[undo])
    conversation.add(user("Go."))
    async with provider(Answer(calls=(Call("undo"),))) as asked:
        step = await conversation.step(asked)
    (outcome,) = await conversation.run_tools(step.calls)
    assert outcome.message is None
    assert [] == results(conversation)
    assert ["too late"] == [
        entry.state.output
        for entry in conversation.ledger().values()
        if isinstance(entry.state, ToolCompleted)
    ]


async def test_cv_07_the_providers_count_is_carried_forward(store: Store) -> None:
    """Usage first, then what came since; five counts that do not overlap; last and total."""
    conversation = Conversation(store, count=estimate)
    conversation.add(user("x" * 1_000))
    assert 404 == conversation.tokens()
    used = ReportedUsage(700, 50, cached=300, reasoning=20)
    async with provider(Answer("y", usage=used), Answer("z", usage=ReportedUsage(800, 5))) as asked:
        step = await conversation.step(asked)
        assert step.usage.last is not None
        counts = step.usage.last
        assert (400, 30, 20, 300, 0) == (
            counts.input, counts.output, counts.reasoning, counts.cache.read, counts.cache.write,
        )  # fmt: skip
        assert (700, 50) == (step.usage.prompt_tokens, step.usage.completion_tokens)
        conversation.add(user("字" * 100))
        assert 750 + 104 == conversation.tokens()
        usage = (await conversation.step(asked)).usage
    assert (805, 1_555) == (usage.total_tokens, usage.total.prompt + usage.total.completion)
    assert "prompt_tokens" in str(conversation.messages[1].metadata["usage"])


async def test_cv_08_events(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """After the change is stored, sync and async; a failing handler is logged; once a crossing."""
    conversation = Conversation(store, token_limit=200, tools=[tool(name="look")(lambda: "fine")])
    heard: list[str] = []

    async def later(event: Event) -> None:
        heard.append(event.name)
        assert store.get(conversation.id).version >= event.version

    def fail(_: Event) -> None:
        raise OSError

    conversation.events.on("*", fail)
    conversation.events.on("*", later)
    script = [
        Answer(calls=(Call("look"),), usage=ReportedUsage(300, 4)),
        Answer("On.", usage=ReportedUsage(350, 4)),
    ]
    with caplog.at_level(logging.ERROR):
        async with provider(*script) as asked:
            conversation.add(user("Look."))
            await run_until_answer(conversation, asked)
    await anyio.lowlevel.checkpoint()
    assert heard == [
        "message.added", "message.added", "tool.pending", "usage.updated", "cache.updated",
        "tokens.exceeded", "tool.running", "tool.completed", "message.added", "message.added",
        "usage.updated", "cache.updated",
    ]  # fmt: skip
    assert "a handler of message.added failed" in caplog.text


async def test_cv_09_handlers_make_room(store: Store) -> None:
    """Plugged in by the engine; one batch, reversible; marked messages stay; never twice."""
    conversation = Conversation(store, token_limit=400, count=estimate)
    conversation.events.on(
        "tokens.exceeded", auto_compact(conversation, DropOldest(keep_tokens=100))
    )
    conversation.add(system("Be brief."))
    first = conversation.add(user("Keep this. " * 10))
    conversation.history.mark(first, "pin")
    for number in range(20):
        conversation.add(user(f"{number} " * 20))
    await conversation.check_tokens()
    assert ["Be brief.", first.text] == [message.text for message in conversation.messages[:2]]
    assert len(conversation) < 10
    assert await compact(conversation, DropOldest(keep_tokens=100)) is None
    conversation.history.undo()
    assert 22 == len(conversation)
    assert await compact(conversation, ClearOutputs()) is None


async def test_cv_09_a_poor_summary_is_refused(store: Store) -> None:
    """Empty, no shorter, or not to the caller's liking: nothing changes."""
    conversation = Conversation(store, count=estimate)
    for number in range(6):
        conversation.add(user(f"Question {number}: " + "and so on " * 8))
    version = conversation.history.version

    def refuse(summary: str, old: Any) -> bool:  # noqa: ANN401 - messages
        return not summary and bool(old)

    async with provider("", "too long " * 900, "Fine.", "In short.") as asked:
        for check in (None, None, refuse):
            with pytest.raises(CompactionRefused):
                await compact(conversation, Summarise(model=asked, keep_tokens=60, check=check))
            assert version == conversation.history.version
        done = await compact(conversation, Summarise(model=asked, keep_tokens=60))
    assert done is not None
    assert done.saved > 0
    assert "In short." in [message.text for message in conversation.messages]
    conversation.history.undo()
    assert 6 == len(conversation)
