"""What runs is the call that was given and approved, and what is recorded is what ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from msgspec.structs import replace

from palaver.conversation import Conversation, Tool, ToolContext, ToolOutput, tool
from palaver.errors import CallChanged, ValidationError
from palaver.messages import ToolCallPart, ToolPart
from tests.conversation.test_tool_calls import asked, open_calls, results

if TYPE_CHECKING:
    from palaver import Store

pytestmark = pytest.mark.anyio


def saying(said: list[str]) -> Tool:
    """A tool that remembers what it was given."""

    def say(word: str) -> str:
        said.append(word)
        return word

    return tool(say)


def replaced_call(conversation: Conversation, **other: Any) -> None:  # noqa: ANN401 - fields of a call
    """REPLACE the message of the only call, as another process may."""
    history = conversation.store.get(conversation.id)
    index = next(i for i, one in enumerate(history.view) if one.role == "assistant")
    (call,) = (part for part in history.view[index].parts if isinstance(part, ToolCallPart))
    message = replace(history.view[index], content=(replace(call, **other),))
    history.replace(index, message)


async def test_a_call_that_reads_otherwise_than_it_is_given_does_not_run(store: Store) -> None:
    ran: list[str] = []
    conversation = await asked(store, ("say", {"word": "a"}), tools=[saying(ran)])
    (call,) = open_calls(conversation)
    for other in ({"input": {"word": "b"}}, {"raw": "b"}, {"tool": "shout"}, {"call_id": "x"}):
        with pytest.raises(CallChanged, match="was changed after it was shown"):
            await conversation.run_tool(replace(call, **other))
    replaced_call(conversation, input={"word": "b"}, raw='{"word":"b"}')
    with pytest.raises(CallChanged) as refused:
        await conversation.run_tool(call)
    (now,) = conversation.waiting()
    assert conversation.digests([now]) == {call.id: refused.value.digest}
    assert ([], "pending") == (ran, conversation.ledger()[call.id].state.status)


async def test_what_ran_is_recorded_where_the_call_was_replaced_before(store: Store) -> None:
    def say(word: str) -> str:
        return word

    conversation = await asked(store, ("say", {"word": "a"}), tools=[say])
    replaced_call(conversation, input={"word": "b"}, raw='{"word":"b"}')
    (now,) = conversation.waiting()
    outcome = await conversation.run_tool(now)
    assert ("b", {"word": "b"}) == (outcome.text, outcome.state.input)


async def test_an_approval_of_another_digest_runs_nothing_and_lets_go(store: Store) -> None:
    ran: list[str] = []
    conversation = await asked(store, ("say", {"word": "a"}), tools=[saying(ran)])
    (call,) = open_calls(conversation)
    digests = conversation.digests([call])
    conversation.history.replace(1, replace(conversation.messages[1], timestamp=1))
    with pytest.raises(CallChanged):  # the same call, in another version of its message
        await conversation.run_tools([call], approved=digests)
    assert [] == ran
    await conversation.run_tools([call], approved=conversation.digests([call]))
    assert ["a"] == ran


async def test_a_call_whose_message_was_removed_does_not_run(store: Store) -> None:
    ran: list[str] = []
    conversation = await asked(store, ("say", {"word": "a"}), tools=[saying(ran)])
    (call,) = open_calls(conversation)
    store.get(conversation.id).truncate(remove_last=1)
    with pytest.raises(CallChanged, match="has left the conversation"):
        await conversation.run_tool(call)
    assert ([], {}) == (ran, conversation.digests([call]))


async def test_the_result_of_a_call_that_was_edited_while_it_ran_says_what_ran(
    store: Store,
) -> None:
    def say(word: str) -> str:
        replaced_call(conversation, input={"word": "b"}, raw='{"word":"b"}')
        return word

    conversation = await asked(store, ("say", {"word": "a"}), tools=[say])
    await conversation.run_tools(open_calls(conversation))
    ((_, status, text),) = results(conversation)
    note = '[the call was edited while it ran; this is the result of say {"word":"a"}]'
    assert ("completed", f"{note}\na") == (status, text)
    (part,) = conversation.messages[-1].parts
    assert isinstance(part, ToolPart)
    assert {"word": "a"} == part.state.input


async def test_other_arguments_are_on_disk_before_the_tool_gets_them(store: Store) -> None:
    seen: list[object] = []

    def say(word: str) -> str:
        (entry,) = Conversation(store, conversation.id).ledger().values()
        seen.append((word, entry.state.status, dict(entry.state.input)))
        raise LookupError(word)

    async def around(call: ToolCallPart, _: ToolContext, run: Any) -> ToolOutput:  # noqa: ANN401 - the way to run it
        return cast("ToolOutput", await run(replace(call, input={"word": "b"}, raw="")))

    conversation = await asked(store, ("say", {"word": "a"}), tools=[say])
    (outcome,) = await conversation.run_tools(open_calls(conversation), around=around)
    assert [("b", "running", {"word": "b"})] == seen
    assert {"word": "b"} == outcome.state.input


async def test_nobody_runs_another_tool_in_the_place_of_a_call(store: Store) -> None:
    async def around(call: ToolCallPart, _: ToolContext, run: Any) -> ToolOutput:  # noqa: ANN401 - the way to run it
        return cast("ToolOutput", await run(replace(call, tool="two")))

    conversation = await asked(
        store, ("one", {}), tools=[tool(name=name)(lambda: "x") for name in ("one", "two")]
    )
    with pytest.raises(ValidationError, match="only other arguments"):
        await conversation.run_tools(open_calls(conversation), around=around)
    assert ["one"] == [call.tool for call in conversation.waiting()]


async def test_an_error_of_a_call_that_was_edited_while_it_ran_says_what_ran(store: Store) -> None:
    def say(word: str) -> str:
        replaced_call(conversation, input={"word": "b"}, raw='{"word":"b"}')
        raise LookupError(word)

    conversation = await asked(store, ("say", {"word": "a"}), tools=[say])
    await conversation.run_tools(open_calls(conversation))
    ((_, status, text),) = results(conversation)
    assert ("error", True) == (status, text.startswith("[the call was edited while it ran;"))
    assert text.endswith("LookupError: a")
