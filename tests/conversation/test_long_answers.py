"""An answer that does not end, or is very long: cut off at the limit, kept, and no burden."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from palaver.conversation import Conversation, compaction
from palaver.conversation import step as step_module
from palaver.conversation.compaction import Summarise, compact
from palaver.conversation.store_access import StoreAccess
from palaver.errors import CompactionRefused, OutputTooLong
from palaver.messages import AssistantInfo, ReasoningPart, assistant, user
from palaver.wire.reply import ReplyBuilder
from tests.conversation.scripted import Scripted, saying

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from palaver.messages import Message
    from palaver.models.base import ModelRequest
    from palaver.stores import Store

pytestmark = pytest.mark.anyio

LIMIT = 1_000


class Endless(Scripted):
    """Says the same again and again, and remembers how often and whether it was let go."""

    def __init__(self, delta: dict[str, Any]) -> None:
        super().__init__()
        self._delta = delta
        self.said = 0
        self.closed = False

    async def stream(self, ask: ModelRequest) -> AsyncGenerator[Mapping[str, Any]]:
        self.asked.append(ask)
        try:
            while self.said < LIMIT:
                self.said += 1
                yield {"choices": [{"delta": self._delta}]}
        finally:
            self.closed = True


def kept_of(message: Message) -> str:
    """What is kept of an answer, wherever it is."""
    thoughts = [part.text for part in message.parts if isinstance(part, ReasoningPart)]
    calls = [call["raw"] for call in message.metadata.get("incompleteCalls", ())]
    return "".join([message.text, *thoughts, *calls])


def call(text: str) -> list[dict[str, Any]]:
    return [{"index": 0, "id": "c", "function": {"name": "pay", "arguments": text}}]


@pytest.mark.parametrize(
    ("delta", "said", "kept"),
    [
        ({"content": "y" * 30}, 34, "y" * LIMIT),
        ({"content": "茶" * 10}, 34, "茶" * (LIMIT // 3)),
        ({"content": "y" * 5_000}, 1, "y" * LIMIT),
        ({"reasoning": "y" * 30}, 34, "y" * LIMIT),
        ({"tool_calls": call("y" * 30)}, 34, "y" * LIMIT),
        ({"content": "a" * 15, "reasoning": "b" * 15}, 34, "a" * 495 + "b" * 505),
    ],
)
async def test_an_answer_is_cut_off_at_the_limit_and_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch, delta: dict[str, Any], said: int, kept: str
) -> None:
    monkeypatch.setattr(step_module, "MAX_ANSWER", LIMIT)
    conversation, model = Conversation(store), Endless(delta)
    conversation.add(user("go on"))
    with pytest.raises(OutputTooLong, match=r"openai: the answer is longer than 1,000 bytes"):
        await conversation.step(model)
    assert (said, True) == (model.said, model.closed)
    last = conversation.messages[-1]
    assert kept == kept_of(last)
    assert isinstance(last.info, AssistantInfo)
    assert "interrupted" == last.info.finish
    assert "OutputTooLong" == (last.info.error or {})["name"]
    assert [] == conversation.waiting()
    step = await conversation.step(Scripted(saying("short")))
    assert "short" == step.text


async def test_thoughts_in_detail_are_joined_once_and_count(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A router's pieces of one thought; each piece costs the same, however long the thought is."""
    monkeypatch.setattr(step_module, "MAX_ANSWER", LIMIT)
    piece = {"type": "reasoning.text", "index": 0, "text": "y" * 30}
    conversation, model = Conversation(store), Endless({"reasoning_details": [piece]})
    conversation.add(user("go on"))
    with pytest.raises(OutputTooLong):
        await conversation.step(model)
    assert 34 == model.said
    _, part, _ = conversation.messages[-1].parts  # between the start and the finish of the step
    assert isinstance(part, ReasoningPart)
    assert [{**piece, "text": "y" * LIMIT}] == part.metadata["openai"]["details"]


async def test_an_answer_of_just_the_limit_is_whole(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_module, "MAX_ANSWER", LIMIT)
    conversation = Conversation(store)
    conversation.add(user("go on"))
    step = await conversation.step(Scripted(saying(*["y" * 100] * 10)))
    assert isinstance(step.message.info, AssistantInfo)
    assert (LIMIT, "stop") == (len(step.text), step.message.info.finish)


async def test_a_call_that_the_limit_cut_is_no_call(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where the provider says in the same event that it is complete."""
    monkeypatch.setattr(step_module, "MAX_ANSWER", LIMIT)
    conversation = Conversation(store)
    conversation.add(user("go on"))
    made = call('{"amount": "' + "9" * LIMIT + '"}')
    event = {"choices": [{"delta": {"tool_calls": made}, "finish_reason": "tool_calls"}]}
    with pytest.raises(OutputTooLong):
        await conversation.step(Scripted([event]))
    assert [] == conversation.waiting()
    assert LIMIT == len(kept_of(conversation.messages[-1]))


async def test_drafts_together_are_a_few_times_the_answer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though one is due at each piece."""
    monkeypatch.setattr(step_module, "DRAFT_SECONDS", -1.0)
    monkeypatch.setattr(step_module, "DRAFT_BYTES", 100)
    written: list[int] = []
    draft = StoreAccess.save_draft

    def noted(self: StoreAccess, begun: Any, message: Message) -> None:  # noqa: ANN401 - handed on
        written.append(len(message.text))
        draft(self, begun, message)

    monkeypatch.setattr(StoreAccess, "save_draft", noted)
    conversation = Conversation(store)
    conversation.add(user("go on"))
    step = await conversation.step(Scripted(saying(*["y" * 10] * 300)))
    assert list(range(10, 110, 10)) == written[:10]  # a short answer: each time
    assert len(step.text) * 0.8 < written[-1]
    assert sum(written) < 10 * len(step.text) < sum(range(10, 3_010, 10))


async def test_no_message_is_made_on_the_event_loop(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Joining and checking a long answer takes a while."""
    monkeypatch.setattr(step_module, "DRAFT_SECONDS", -1.0)
    threads: set[int] = set()
    message = ReplyBuilder.message

    def noted(self: ReplyBuilder, **options: Any) -> Message:  # noqa: ANN401 - handed on
        threads.add(threading.get_ident())
        return message(self, **options)

    monkeypatch.setattr(ReplyBuilder, "message", noted)
    conversation = Conversation(store)
    conversation.add(user("go on"))
    await conversation.step(Scripted(saying("a", "b")))
    assert threads
    assert threading.get_ident() not in threads


async def test_a_summary_beyond_the_limit_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anybody counts its tokens."""
    monkeypatch.setattr(compaction, "MAX_ANSWER", LIMIT)
    conversation = Conversation(store)
    for number in range(10):
        conversation.add(user(f"question {number} " * 100))
        conversation.add(assistant("answer " * 100))
    handler = Summarise(model=Scripted(saying("y" * (LIMIT + 1))), keep_tokens=10)
    with pytest.raises(CompactionRefused, match=r"longer than 1,000 characters"):
        await compact(conversation, handler)
