"""What a conversation wants next is read off itself, whoever has worked on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from palaver.conversation import Conversation
from palaver.messages import AssistantInfo, Message, assistant, system, user
from palaver.nodes import NodeResult, Question, read_status
from tests.conversation.scripted import Scripted, calling

if TYPE_CHECKING:
    from palaver import Store
    from palaver.nodes.results import NextNode

pytestmark = pytest.mark.anyio
CUT = assistant("So f", info=AssistantInfo(finish="interrupted"))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([], "human"),
        ([system("Be brief.")], "human"),
        ([user("Tea?")], "llm"),
        ([user("Tea?"), assistant("Yes.")], "end"),
        ([user("Tea?"), CUT], "llm"),
    ],
)
def test_the_last_message_says_what_is_wanted(
    store: Store, said: list[Message], expected: NextNode
) -> None:
    assert expected == read_status(Conversation(store, store.create(said))).next


async def test_calls_that_wait_come_first_and_what_others_did_is_seen(store: Store) -> None:
    conversation = Conversation(store, store.create([user("Go.")]))
    other = Conversation(store, conversation.id)
    await other.step(Scripted(calling(("a", {}), ("b", {}))))
    seen = read_status(conversation)
    assert ("tool", ["a", "b"], 1) == (seen.next, [c.tool for c in seen.waiting], seen.version)
    await other.run_tools([other.waiting()[1]])
    assert ["a"] == [call.tool for call in read_status(conversation).waiting]
    await other.run_tools(other.waiting())
    assert ("llm", ()) == (read_status(conversation).next, read_status(conversation).waiting)


def test_a_result_is_plain_data_for_an_engine() -> None:
    done = NodeResult(
        node="human", outcome="asked", next="human", conversation="c", version=3,
        question=Question("choose", "Tea?", options=("yes", "no")),
    )  # fmt: skip
    expected = {
        "node": "human", "outcome": "asked", "next": "human", "conversation": "c", "version": 3,
        "question": {"kind": "choose", "prompt": "Tea?", "options": ["yes", "no"]},
    }  # fmt: skip
    assert expected == done.to_dict()
