"""The agent loop: how it ends, what it runs, and what it leaves to a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from palaver.conversation import Conversation, Limits, Step, run_until_answer
from palaver.errors import TooManySteps
from palaver.messages import user
from tests.conversation.scripted import Scripted, calling, saying

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver import Store
    from palaver.messages import ToolCallPart

pytestmark = pytest.mark.anyio


def look() -> str:
    """Look."""
    return "seen"


def pay() -> str:
    """Pay."""
    return "paid"


def begun(store: Store) -> Conversation:
    """A conversation with a question."""
    conversation = Conversation(store, tools=[look, pay])
    conversation.add(user("go"))
    return conversation


def texts(conversation: Conversation) -> list[str]:
    """The results in the log."""
    parts: list[Any] = [part for message in conversation.messages for part in message.parts]
    return [part.state.output for part in parts if hasattr(part, "state")]


async def test_it_runs_tools_until_there_is_an_answer(store: Store) -> None:
    conversation, seen = begun(store), list[Step]()
    model = Scripted(calling(("look", {})), calling(("pay", {})), saying("Done."))
    last = await run_until_answer(conversation, model, on_step=seen.append)
    assert ("Done.", ["seen", "paid"]) == (last.text, texts(conversation))
    assert [1, 1, 0] == [len(step.calls) for step in seen]


async def test_it_stops_at_a_call_that_needs_approval_and_runs_the_others(store: Store) -> None:
    conversation = begun(store)
    model = Scripted(calling(("look", {}), ("pay", {})), saying("Done."))
    last = await run_until_answer(
        conversation, model, needs_approval=lambda call: call.tool == "pay"
    )
    assert 2 == len(last.calls)
    assert ["seen"] == texts(conversation)
    assert ["pay"] == [call.tool for call in conversation.waiting()]
    await conversation.run_tools(conversation.waiting())
    assert "Done." == (await run_until_answer(conversation, model)).text


async def test_waiting_calls_run_first_but_only_those_of_the_given_tools(store: Store) -> None:
    conversation = begun(store)
    await conversation.step(Scripted(calling(("look", {}), ("pay", {}))))
    await run_until_answer(conversation, Scripted(saying("Fine.")), tools=[look])
    assert ["seen"] == texts(conversation)
    await run_until_answer(conversation, Scripted(saying("Fine.")))
    assert {"seen", "paid"} == set(texts(conversation))


async def test_options_may_depend_on_the_calls(store: Store) -> None:
    conversation, given = begun(store), list[tuple[int, int]]()

    def choose(calls: Sequence[ToolCallPart], before: Sequence[ToolCallPart]) -> Mapping[str, Any]:
        given.append((len(calls), len(before)))
        return {"max_tokens": 100 + len(given)}

    model = Scripted(calling(("look", {})), calling(("look", {}), ("pay", {})), saying("Done."))
    await run_until_answer(conversation, model, options=choose)
    assert [(0, 0), (1, 0), (2, 1)] == given
    assert [101, 102, 103] == [request.options["max_tokens"] for request in model.asked]


async def test_it_gives_up_after_so_many_steps_with_every_call_run(store: Store) -> None:
    conversation = begun(store)
    model = Scripted(calling(("look", {})), calling(("look", {})))
    with pytest.raises(TooManySteps, match="2 steps and no answer"):
        await run_until_answer(conversation, model, limits=Limits(steps=2))
    assert ["seen", "seen"] == texts(conversation)
    assert [] == conversation.waiting()
