"""What was left of the documents' own examples: each here was seen to fail before it held."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import palaver
from palaver.conversation import Conversation, ToolContext, ToolLimits, tool
from palaver.messages import ToolError, ToolPart, ToolRunning, fold, user
from tests.conversation.scripted import Scripted, calling

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from palaver.conversation import ToolOutcome
    from palaver.conversation.ledger import LedgerEntry
    from palaver.events import Event

pytestmark = pytest.mark.anyio


# ── tool calls ──────────────────────────────────────────────────────────────────────────────────


class Slow:
    """A tool that no time limit can stop: it ends when it is told to."""

    def __init__(self, answer: str | Exception) -> None:
        self.answer, self.may_end = answer, threading.Event()

    def __call__(self) -> str:
        """Wait."""
        assert self.may_end.wait(20)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def timed_out(
    slow: Slow, store: str = ":memory:"
) -> tuple[Conversation, ToolOutcome, list[Event]]:
    """Return a conversation in which a call has timed out and is still running."""
    conversation = Conversation(
        palaver.open(store),
        model=Scripted(calling(("slow", {}))),
        tools=[tool(slow.__call__, name="slow")],
        limits=ToolLimits(seconds=0.01),
    )
    heard: list[Event] = []
    conversation.add(user("Wait."))
    step = await conversation.step()
    outcome = await conversation.run_tool(step.calls[0])
    conversation.events.on("tool.error", heard.append)
    return conversation, outcome, heard


async def until(happened: Callable[[], object]) -> None:
    """Wait for what another thread does."""
    with anyio.fail_after(5):
        while not happened():  # noqa: ASYNC110 - it sets no event of anyio's
            await anyio.sleep(0.005)


@pytest.mark.parametrize("answer", ["tea", RuntimeError("no tea")])
async def test_a_result_after_a_timeout_is_stored(answer: str | Exception) -> None:
    slow = Slow(answer)  # PT-04
    conversation, outcome, heard = await timed_out(slow)
    assert isinstance(outcome.state, ToolError)
    assert "lateResult" not in outcome.state.metadata
    before = list(conversation.messages)
    slow.may_end.set()
    await until(lambda: heard)
    entry: LedgerEntry
    (entry,) = conversation.ledger().values()
    assert isinstance(entry.state, ToolError)
    assert (outcome.state.error, True) == (entry.state.error, entry.stray)
    found = entry.state.metadata["lateResult"]
    assert ("RuntimeError: no tea" if isinstance(answer, Exception) else "tea") in found.values()
    assert heard[0].data["state"]["metadata"]["lateResult"] == found
    assert before == list(conversation.messages)
    assert [] == await conversation.recover()


async def test_a_late_result_is_stored_with_its_error_while_others_run() -> None:
    slow = Slow("tea")

    @tool(timeout=20)
    async def other() -> None:
        await anyio.sleep(0.05)
        slow.may_end.set()
        await anyio.sleep(0.1)

    tools = [tool(slow.__call__, name="slow", timeout=0.01), other]
    conversation = Conversation(
        palaver.open(":memory:"), model=Scripted(calling(("slow", {}), ("other", {}))), tools=tools
    )
    conversation.add(user("Wait."))
    step = await conversation.step()
    outcome = (await conversation.run_tools(step.calls))[0]
    assert isinstance(outcome.state, ToolError)
    assert "tea" == outcome.state.metadata["lateResult"]["output"]
    assert outcome.message is not None
    assert outcome.message in conversation.messages
    assert {} == conversation.ledger()


async def test_an_erased_call_leaves_no_late_result() -> None:
    slow = Slow("tea")
    conversation, outcome, _ = await timed_out(slow)
    assert outcome.message is not None
    conversation.history.erase(outcome.message.id)
    slow.may_end.set()
    await anyio.sleep(0.1)
    assert {} == conversation.ledger()


async def test_a_late_result_after_the_store_is_closed_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slow = Slow("tea")
    conversation, _, _ = await timed_out(slow, str(tmp_path / "talk.db"))
    conversation.store.close()
    slow.may_end.set()
    await until(lambda: "came too late" in caplog.text)


async def test_what_a_running_tool_reports_is_its_state() -> None:
    shown: list[Any] = []  # S3 §7.1, PT-08

    @tool
    async def brew(context: ToolContext) -> str:
        context.progress("Boiling", {"degrees": 60})
        context.progress("Almost", {"minutes": 1})
        with anyio.fail_after(3):
            while not shown or shown[-1].title != "Almost":
                await anyio.sleep(0.01)
                turn = fold(conversation.messages, conversation.ledger())[-1]
                shown.extend(part.state for part in turn.parts if isinstance(part, ToolPart))
        return "tea"

    conversation = Conversation(
        palaver.open(":memory:"), model=Scripted(calling(("brew", {}))), tools=[brew]
    )
    conversation.add(user("Tea."))
    step = await conversation.step()
    outcome = await conversation.run_tool(step.calls[0])
    reported = {"degrees": 60, "minutes": 1}
    assert isinstance(shown[-1], ToolRunning)
    assert reported == shown[-1].metadata
    assert outcome.state.status == "completed"
    assert ("Almost", reported) == (outcome.state.title, outcome.state.metadata)
    assert {} == conversation.ledger()
