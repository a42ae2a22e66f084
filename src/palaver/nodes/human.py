"""The human node: puts a question, and keeps the answer where it belongs.

How the question reaches a person is the engine's affair: `ask` may wait for the answer, or raise
whatever the engine suspends a node with. Nothing has changed before the answer is there, so a node
that is run again from its start asks the same question; and under a `key` an answer is kept once.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from anyio import to_thread
from msgspec.structs import replace

from palaver.errors import ValidationError
from palaver.history import Replace
from palaver.messages import Message, ToolCallPart, assistant, new_id, user
from palaver.nodes.approvals import decisions, keep_decisions, read_answer, shown_before, valid
from palaver.nodes.configs import Approve, Choose, Edit, HumanConfig, Reply
from palaver.nodes.reading import read_config
from palaver.nodes.results import CallAsked, Done, Outcome, Question, Standing, look, tell

if TYPE_CHECKING:
    from palaver.conversation import Conversation
    from palaver.nodes.reading import Given

__all__ = ["Ask", "ask_human"]

Ask: TypeAlias = Callable[[Question], Awaitable[Any] | Any]
"""Puts a question to a person and answers what they say; plain or async."""

_TRIES: Final = 10
"""How often an answer that can't be taken is asked for again."""


async def ask_human(
    conversation: Conversation,
    config: Given[HumanConfig] = Approve(),  # noqa: B008 - it is frozen
    *,
    ask: Ask | None = None,
    key: str | None = None,
) -> Done:
    """Ask a person: to approve calls, for words, for a choice, for a better text.

    Without `ask` the question is handed back with the outcome `asked`; run the node again with an
    `ask` that gives the answer. An answer that can't be taken is asked for again, with the reason.
    An approval holds for the calls as they were shown: one that is changed before it is approved,
    or before it runs, is asked about again by the next question.
    """
    settings = read_config("human", config)
    scene = await to_thread.run_sync(_Scene, conversation, settings, key, ask is None)
    question = scene.question
    if question is None:
        return scene.done("nothing", await to_thread.run_sync(look, conversation))
    if ask is None:
        standing = await to_thread.run_sync(look, conversation)
        return replace(scene.done("asked", standing), next="human", question=question)
    left = _TRIES
    while True:
        answer = ask(question)
        if inspect.isawaitable(answer):
            answer = await answer
        left -= 1
        try:
            taken = scene.read(answer)
        except ValidationError as error:
            if not left:
                raise
            question = replace(question, problem=str(error))
        else:
            return await scene.keep(taken)


class _Scene:
    """A question about a conversation as it is now, and what becomes of its answer."""

    def __init__(
        self,
        conversation: Conversation,
        settings: HumanConfig,
        key: str | None,
        anew: bool,  # noqa: FBT001 - it goes through a thread
    ) -> None:
        self.conversation = conversation
        self.settings = settings
        self.key = key
        self.anew = anew
        self.calls: list[ToolCallPart] = []
        self.digests: dict[str, str] = {}
        self.edited: Message | None = None
        conversation.history.refresh()
        self.question = self._question()

    def _question(self) -> Question | None:
        settings = self.settings
        if isinstance(settings, Approve):
            self.calls = self._undecided(settings)
            asked = tuple(
                CallAsked(c.id, c.call_id, c.tool, c.input, self.digests[c.id]) for c in self.calls
            )
            prompt = settings.prompt or "May these tool calls run?"
            return Question("approve", prompt, calls=asked) if asked else None
        if isinstance(settings, Edit):
            self.edited = self._last(settings)
            if self.edited is None:
                return None
            prompt = settings.prompt or "Is there a better text?"
            return Question("edit", prompt, text=self.edited.text)
        if isinstance(settings, Choose):
            prompt = settings.prompt or "Which one?"
            return Question("choose", prompt, options=settings.options)
        return Question("text", settings.prompt or "What do you say?")

    def _undecided(self, settings: Approve) -> list[ToolCallPart]:
        found, conversation = look(self.conversation).waiting, self.conversation
        self.digests = conversation.digests(found)
        made = valid(decisions(conversation), self.digests)
        waiting = [
            call
            for call in found
            if call.id not in made
            and call.id in self.digests  # it has not left the conversation this very moment
            and (settings.tools is None or call.tool in settings.tools)
        ]
        if not waiting:
            return []
        return shown_before(conversation, waiting, self.digests, self.key, anew=self.anew)

    def _last(self, settings: Edit) -> Message | None:
        """The message whose text is to be bettered; a call that was made is no text."""
        found = self.conversation.history.recent(1, role=settings.role)
        calls = any(isinstance(part, ToolCallPart) for message in found for part in message.parts)
        return found[0] if found and not calls else None

    def read(self, answer: object) -> Any:  # noqa: ANN401 - decisions, or a text
        """What an answer says; an error where it can't be taken."""
        settings = self.settings
        if isinstance(settings, Approve):
            return read_answer(answer, self.calls, self.digests)
        text = answer.get("text") if isinstance(answer, Mapping) else answer
        if not isinstance(text, str) or not text.strip():
            raise ValidationError("must be text, and not empty", path="$.text", rule="ND-01")
        if isinstance(settings, Choose) and text not in settings.options:
            detail = f"must be one of {', '.join(settings.options)}"
            raise ValidationError(detail, path="$.text", rule="ND-01")
        user(text)  # what no message can hold is said now, while somebody can answer again
        return text

    async def keep(self, taken: Any) -> Done:  # noqa: ANN401 - what `read` gave
        """Keep an answer; under the same key, once."""
        settings = self.settings
        if isinstance(settings, Approve):
            standing = await to_thread.run_sync(self._decide, taken)
            return self.done("decided", standing)
        if isinstance(settings, Edit):
            return await self._replace(taken)
        return await self._say(settings, taken)

    def _decide(self, taken: Any) -> Standing:  # noqa: ANN401 - decisions
        keep_decisions(self.conversation, taken, key=self.key)
        return look(self.conversation)

    async def _say(self, settings: Reply | Choose, text: str) -> Done:
        asked = [assistant(settings.prompt)] if settings.keep_prompt and settings.prompt else []
        said = [*asked, user(text)]
        added, standing = await to_thread.run_sync(self._append, said)
        for message in added:
            data = {"id": message.id, "role": message.role}
            await tell(self.conversation, "message.added", data)
        done = self.done("replied", standing)
        return replace(done, added=tuple(message.id for message in added), again=not added)

    def _append(self, said: list[Message]) -> tuple[list[Message], Standing]:
        history = self.conversation.history
        before = history.version
        history.extend(said, key=self.key)
        kept = said if history.version != before and said[-1].id == history[-1].id else []
        return kept, look(self.conversation)

    async def _replace(self, text: str) -> Done:
        old = self.edited
        assert old is not None  # noqa: S101 - there was a question about it
        if text == old.text:
            return self.done("nothing", await to_thread.run_sync(look, self.conversation))
        metadata = {**old.metadata, "editedFrom": old.id}
        better = replace(old, content=text, id=new_id(), metadata=metadata)
        edit = partial(self._put, old, better)
        did, standing = await to_thread.run_sync(edit)
        if did:
            await tell(self.conversation, "history.edited", {"operation": "REPLACE"})
        done = self.done("edited", standing)
        return replace(done, added=(better.id,) if did else (), again=not did)

    def _put(self, old: Message, better: Message) -> tuple[bool, Standing]:
        history = self.conversation.history
        before, view = history.version, history.view
        index = view.index_of(view.find(old))
        assert index is not None  # noqa: S101 - it was found in the view
        history.execute(Replace(index, better), key=self.key)
        return history.version != before, look(self.conversation)

    def done(self, outcome: Outcome, standing: Standing) -> Done:
        """What the node answers with."""
        return Done(
            node="human",
            outcome=outcome,
            next=standing.next,
            conversation=self.conversation.id,
            version=standing.version,
            calls=tuple(call.id for call in standing.waiting),
        )
