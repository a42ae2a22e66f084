"""The human node: four questions, answers that are kept once, and nothing changed before them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from palaver.conversation import Conversation
from palaver.errors import ValidationError
from palaver.messages import assistant, user
from palaver.nodes import (
    AskApproval,
    AskChoice,
    AskEdit,
    AskText,
    Decision,
    Question,
    ask_human,
    run_calls,
)
from palaver.tools.approval import load_decisions
from tests.conversation.scripted import Scripted, calling

if TYPE_CHECKING:
    from palaver import Store
    from palaver.events import Event

pytestmark = pytest.mark.anyio


class Person:
    """Gives these answers, one after the other, and remembers the questions."""

    def __init__(self, *answers: object) -> None:
        self.asked: list[Question] = []
        self._answers = list(answers)

    async def __call__(self, question: Question) -> Any:  # noqa: ANN401 - an answer
        self.asked.append(question)
        return self._answers.pop(0)


class SuspendedError(Exception):
    """What an engine suspends a node with."""


def suspend(_: Question) -> None:
    raise SuspendedError


async def waiting(store: Store) -> Conversation:
    conversation = Conversation(store)
    conversation.add(user("Go."))
    await conversation.step(Scripted(calling(("pay", {"amount": 5}), ("look", {}))))
    return conversation


async def test_words_become_a_users_message(store: Store) -> None:
    conversation = Conversation(store)
    seen: list[Event] = []
    conversation.events.on("message.added", seen.append)
    person = Person("Oslo")
    done = await ask_human(conversation, {"kind": "text", "prompt": "Where?"}, ask=person)
    assert [Question("text", "Where?")] == person.asked
    assert [("user", "Oslo")] == [(m.role, m.text) for m in conversation.messages]
    assert ("human", "replied", "llm") == (done.node, done.outcome, done.next)
    assert done.added == (conversation.messages[0].id,)
    assert [{"id": done.added[0], "role": "user"}] == [event.data for event in seen]


async def test_the_question_can_be_kept_too(store: Store) -> None:
    conversation = Conversation(store)
    config = AskChoice(prompt="Tea?", options=("yes", "no"), keep_prompt=True)
    await ask_human(conversation, config, ask=lambda _: {"text": "yes"})
    said = [(message.role, message.text) for message in conversation.messages]
    assert [("assistant", "Tea?"), ("user", "yes")] == said


async def test_an_answer_that_cannot_be_taken_is_asked_for_again(store: Store) -> None:
    conversation = Conversation(store)
    person = Person("perhaps", "", 5, "no")
    await ask_human(conversation, AskChoice(options=("yes", "no")), ask=person)
    problems = [
        "",
        "$.text: must be one of yes, no [node-answer]",
        "$.text: must be text, and not empty [node-answer]",
        "$.text: must be text, and not empty [node-answer]",
    ]
    assert problems == [question.problem for question in person.asked]
    assert ["no"] == [message.text for message in conversation.messages]


async def test_it_is_not_asked_for_ever(store: Store) -> None:
    person = Person(*[""] * 50)
    with pytest.raises(ValidationError, match="must be text, and not empty"):
        await ask_human(Conversation(store), AskText(), ask=person)
    assert 10 == len(person.asked)


async def test_without_anybody_to_ask_the_question_is_handed_back(store: Store) -> None:
    conversation = await waiting(store)
    version = conversation.history.version
    done = await ask_human(conversation)
    assert ("asked", "human") == (done.outcome, done.next)
    assert done.question is not None
    assert ["pay", "look"] == [call.tool for call in done.question.calls]
    assert {"amount": 5} == done.question.to_dict()["calls"][0]["input"]
    assert version == conversation.history.version


async def test_a_suspended_node_leaves_no_message_and_takes_the_answer_once(store: Store) -> None:
    conversation = Conversation(store)
    config = AskText(prompt="Where?")
    with pytest.raises(SuspendedError):
        await ask_human(conversation, config, ask=suspend, key="k")
    assert 0 == len(conversation)
    first = await ask_human(conversation, config, ask=lambda _: "Oslo", key="k")
    again = await ask_human(
        Conversation(store, conversation.id), config, ask=lambda _: "Oslo", key="k"
    )
    assert (1, False, True) == (len(conversation), first.again, again.again)
    assert again.added == ()
    assert "llm" == again.next


async def test_approval_is_for_each_call_or_for_all(store: Store) -> None:
    conversation = await waiting(store)
    pay, look = conversation.waiting()
    answer = {"call_0": {"verdict": "deny", "reason": "too dear"}, look.id: "yes"}
    person = Person(answer)
    done = await ask_human(conversation, ask=person)
    assert ("decided", "tool") == (done.outcome, done.next)
    digests = conversation.digests([pay, look])
    expected = {
        pay.id: Decision("deny", "too dear", digest=digests[pay.id]),
        look.id: Decision("approve", digest=digests[look.id]),
    }
    found = load_decisions(conversation)
    assert all(decision.at for decision in found.values())
    assert expected == {name: replace(one, at=None) for name, one in found.items()}
    nothing = await ask_human(conversation, ask=suspend)
    assert ("nothing", "tool") == (nothing.outcome, nothing.next)


async def test_only_some_tools_are_asked_about(store: Store) -> None:
    conversation = await waiting(store)
    person = Person(True)  # noqa: FBT003 - an answer
    await ask_human(conversation, AskApproval(tools=("look",)), ask=person)
    assert ["look"] == [call.tool for call in person.asked[0].calls]
    assert 1 == len(load_decisions(conversation))
    nothing = await ask_human(conversation, AskApproval(tools=("fly",)), ask=suspend)
    assert "nothing" == nothing.outcome


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("maybe", r"\$: must be true, false, approve, always, deny or a decision"),
        ({"verdict": "edit"}, r'\$\.arguments: is needed with "edit"'),
        ({"verdict": "deny", "arguments": {}}, r'\$\.arguments: goes with "edit" only'),
        ({"call_0": True}, r"\$\.call_1: is not decided"),
        ({"call_0": True, "call_1": True, "call_2": True}, r"\$\.call_2: no such call waits"),
        ({"call_0": {"verdict": "edit"}, "call_1": True}, r"\$\.call_0\.arguments: is needed"),
        ({"call_0": 5, "call_1": True}, r"\$\.call_0: must be true"),
    ],
)
async def test_a_decision_that_says_nothing_is_asked_for_again(
    store: Store, answer: object, words: str
) -> None:
    conversation = await waiting(store)
    person = Person(answer, False)  # noqa: FBT003 - an answer
    await ask_human(conversation, ask=person)
    assert re.match(words, person.asked[1].problem)
    assert ["deny", "deny"] == [one.verdict for one in load_decisions(conversation).values()]


async def test_nobody_approves_what_came_after_the_question(store: Store) -> None:
    """What was shown is what is decided about."""
    conversation = await waiting(store)
    with pytest.raises(SuspendedError):
        await ask_human(conversation, ask=suspend, key="k")
    shown = [call.id for call in conversation.waiting()]
    await conversation.step(Scripted(calling(("wipe", {}))))
    person = Person("approve")
    await ask_human(conversation, ask=person, key="k")
    assert ["pay", "look"] == [call.tool for call in person.asked[0].calls]
    assert set(shown) == set(load_decisions(conversation))
    done = await run_calls(conversation, {"approval": "all"})
    assert "approval" == done.outcome, "the new one still waits"
    assert {} == store.records(conversation.id, "asked")


async def test_a_better_text_replaces_the_last_of_a_role_and_undo_returns_it(store: Store) -> None:
    conversation = Conversation(store, store.create([user("Tea?"), assistant("Yess.")]))
    seen: list[Event] = []
    conversation.events.on("history.edited", seen.append)
    old = conversation.messages[-1]
    person = Person("Yes.")
    done = await ask_human(conversation, {"kind": "edit"}, ask=person, key="k")
    assert "Yess." == person.asked[0].text
    assert ["Tea?", "Yes."] == [message.text for message in conversation.messages]
    assert old.id == conversation.messages[-1].metadata["editedFrom"]
    assert ("edited", "end", 1) == (done.outcome, done.next, len(seen))
    again = await ask_human(conversation, {"kind": "edit"}, ask=lambda _: "No.", key="k")
    assert (True, "Yes.") == (again.again, conversation.messages[-1].text)
    conversation.history.undo()
    assert "Yess." == conversation.messages[-1].text


async def test_there_may_be_nothing_to_better(store: Store) -> None:
    empty = await ask_human(Conversation(store), AskEdit(), ask=suspend)
    assert ("nothing", "human") == (empty.outcome, empty.next)
    calls = await ask_human(await waiting(store), AskEdit(), ask=suspend)
    assert ("nothing", "tool") == (calls.outcome, calls.next)
    conversation = Conversation(store, store.create([user("Tea?")]))
    same = await ask_human(conversation, AskEdit(role="user"), ask=lambda q: q.text)
    assert ("nothing", 0) == (same.outcome, conversation.history.version)
