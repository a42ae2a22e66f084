"""The cache's ledger and edits that wait, by the judge: right causes, valid requests, all texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from palaver import wire
from palaver.conversation import Conversation, DropOldest, compact
from palaver.errors import CompactionRefused, ValidationError
from palaver.messages import user
from palaver.stores import open_store
from palaver.testing import PromptCache
from palaver.testing.providers import check_request
from palaver.tools import tool
from tests.conversation.scripted import Scripted
from tests.conversation.test_cache_ledger import cached

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from palaver.conversation import CacheUse
    from palaver.models.base import ModelRequest

PARAGRAPH = "a stone, a leaf, an unfound door; remembering speechlessly we seek "


@tool
def clock() -> str:
    """The time of day."""
    return "noon"


class Clock:
    """The time that the conversation and the judge go by, in milliseconds."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000


class Judged(Scripted):
    """Answers with the figures of the judge, and refuses what the provider would refuse."""

    def __init__(self, clock: Clock, judge: PromptCache, name: str) -> None:
        super().__init__(name=name)
        self._clock = clock
        self._judge = judge
        self._count = 0

    async def stream(self, ask: ModelRequest) -> AsyncGenerator[Mapping[str, Any]]:
        """Judge the request, and answer."""
        body = {"model": self.ref.model_id, **ask.body}
        if ask.tools:
            body["tools"] = wire.write_tools("openai-chat", ask.tools)
        assert () == check_request("openai-chat", body)
        used = self._judge.request(body, at=self._clock.now / 1_000)
        self._count += 1
        text = f"{self.ref.model_id} answers {self._count}: {PARAGRAPH * 20}"
        for event in cached(text, used.total, used.read):
            yield event


ACTIONS = ("nothing", "edit", "compaction", "tools", "model", "expiry", "defer", "undo")
CAUSES: dict[str, set[str | None]] = {
    "nothing": {None}, "defer": {None}, "edit": {"edit", None}, "undo": {"edit", None},
    "compaction": {"compaction", None}, "tools": {"tools-changed"}, "model": {"model-changed"},
    "expiry": {"expiry"},
}  # fmt: skip
"""What the ledger may say after each; an edit behind what was cached loses nothing."""


class Talk:
    """A conversation to which things happen, and every text that was ever in it."""

    def __init__(self, store: Any) -> None:  # noqa: ANN401 - a Store
        self.clock, judge = Clock(), PromptCache("openai-chat")
        self.models = [Judged(self.clock, judge, f"gpt-5.{n}") for n in range(1, 5)]
        self.model, self.tools = 0, 0
        self.talk = Conversation(store, lease=60)
        self.texts: list[str] = []

    async def step(self, number: int) -> CacheUse:
        """Say something, and take a step with the judge's clock."""
        self.clock.now += 1_000
        self.say(f"question {number}: {PARAGRAPH * 20}")
        with mock.patch("palaver.conversation.store_access.now_ms", return_value=self.clock.now):
            step = await self.talk.step(
                self.models[self.model % 4], tools=[clock] if self.tools % 2 else []
            )
        self.texts.append(step.text)
        assert step.cache is not None
        return step.cache

    def say(self, text: str) -> None:
        self.texts.append(text)
        self.talk.add(user(text))

    async def do(self, action: str, where: int) -> bool:
        """Do something to the conversation; return whether it was possible."""
        talk, index = self.talk, where % len(self.talk)
        if action == "edit":
            self.texts.append(f"edited {len(self.texts)}")
            talk.history.replace(index, user(self.texts[-1]))
        elif action == "compaction":
            try:
                return await compact(talk, DropOldest(keep_tokens=2_000)) is not None
            except CompactionRefused:
                return False
        elif action == "defer":
            self.texts.append(f"deferred {len(self.texts)}")
            message = {"role": "user", "content": self.texts[-1]}
            operation = {"operation": "REPLACE", "index": index, "message": message}
            try:
                talk.defer(operation)
            except ValidationError:
                self.texts.pop()
        elif action == "undo":
            talk.history.undo()
        else:
            self.model += action == "model"
            self.tools += action == "tools"
            self.clock.now += 4_000_000 if action == "expiry" else 0
        return True


async def _live(plan: list[tuple[str, int]]) -> None:
    with open_store(":memory:") as store:
        told = Talk(store)
        for number in range(3):
            await told.step(number)
        models = {0}
        for number, (action, where) in enumerate(plan, 3):
            if action == "model" and (told.model + 1) % 4 in models:
                action = "nothing"  # noqa: PLW2901 - it was asked before, and may have it cached
            waiting = [edit for edit in told.talk.deferred() if edit.problem is None]
            possible = await told.do(action, where)
            models.add(told.model % 4)
            use = await told.step(number)
            if possible and not (waiting and action in ("edit", "undo")):
                assert use.cause in CAUSES[action], (action, use)
            if waiting and action in ("model", "tools", "expiry"):
                left = {edit.id for edit in told.talk.deferred() if edit.problem is None}
                assert left.isdisjoint({edit.id for edit in waiting}), "it was due"
            for form in wire.FORMATS:
                assert () == check_request(form, wire.to(form, told.talk.messages).body)
        stored = {message.text for message in told.talk.history.log}
        waits = {one.message.text for edit in told.talk.deferred() for one in edit.added}
        assert set(told.texts) <= stored | waits


@given(
    plan=st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 99)), min_size=1, max_size=8)
)
@settings(deadline=None, max_examples=40)
def test_by_the_judge_causes_are_right_requests_valid_and_no_text_is_lost(
    plan: list[tuple[str, int]],
) -> None:
    """Whatever is done to a conversation between its steps, in whatever order."""
    anyio.run(_live, plan)
