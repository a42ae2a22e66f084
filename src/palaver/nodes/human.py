"""The human node: asks a person, and stores the answer where it belongs.

How the question reaches the person is up to the engine: `ask` may wait for the answer, or raise
whatever the engine suspends a node with. Nothing changes before the answer is there, so a node that
is run again from its start asks the same question; under a `key` an answer is stored once.

Decisions about tool calls are stored beside the log, by the id of the call, until the call has run:
a decision is on disk before a call runs by it, so that a crash neither loses it nor lets a call run
that nobody allowed. It names the digest of the call that was shown; if the call has changed since,
the decision is void and the person is asked again. The result of the call tells the model about a
refusal or other arguments, and its metadata say who decided.
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
from palaver.nodes.config import (
    AskApproval,
    AskChoice,
    AskEdit,
    AskText,
    HumanConfig,
    read_config,
)
from palaver.nodes.results import (
    ConversationStatus,
    NodeOutcome,
    NodeResult,
    PendingCall,
    Question,
    read_status,
)
from palaver.tools.approval import (
    calls_to_ask,
    find_decisions,
    parse_answer,
    save_decisions,
)

if TYPE_CHECKING:
    from palaver.conversation import Conversation
    from palaver.nodes.config import ConfigInput

__all__ = ["QuestionHandler", "ask_human"]

QuestionHandler: TypeAlias = Callable[[Question], Awaitable[Any] | Any]
"""Asks a person a question and returns the answer; plain or async."""

_TRIES: Final = 10
"""How often a person is asked again after an answer that can't be accepted."""

# kinds of records, stored format


# ── the question ────────────────────────────────────────────────────────────────────────────────


async def ask_human(
    conversation: Conversation,
    config: ConfigInput[HumanConfig] = AskApproval(),  # noqa: B008 - it is frozen
    *,
    ask: QuestionHandler | None = None,
    key: str | None = None,
) -> NodeResult:
    """Ask a person to approve calls, for a text, for a choice, or for a better text.

    Without `ask` the question is returned with the outcome `asked`; run the node again with an
    `ask` that gives the answer. After an answer that can't be accepted the person is asked again,
    with the reason. An approval is valid for the calls as they were shown: a call that changes
    before it is approved, or before it runs, is part of the next question again.
    """
    settings = read_config("human", config)
    inquiry = await to_thread.run_sync(_Inquiry, conversation, settings, key, ask is None)
    question = inquiry.question
    if question is None:
        return inquiry.result("nothing", await to_thread.run_sync(read_status, conversation))
    if ask is None:
        status = await to_thread.run_sync(read_status, conversation)
        return replace(inquiry.result("asked", status), next="human", question=question)
    left = _TRIES
    while True:
        answer = ask(question)
        if inspect.isawaitable(answer):
            answer = await answer
        left -= 1
        try:
            parsed = inquiry.parse(answer)
        except ValidationError as error:
            if not left:
                raise
            question = replace(question, problem=str(error))
        else:
            return await inquiry.store(parsed)


class _Inquiry:
    """A question about a conversation as it is now, and the storing of its answer."""

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
        if isinstance(settings, AskApproval):
            self.calls = self._undecided(settings)
            pending = tuple(
                PendingCall(c.id, c.call_id, c.tool, c.input, self.digests[c.id])
                for c in self.calls
            )
            prompt = settings.prompt or "May these tool calls run?"
            return Question("approve", prompt, calls=pending) if pending else None
        if isinstance(settings, AskEdit):
            self.edited = self._last(settings)
            if self.edited is None:
                return None
            prompt = settings.prompt or "Is there a better text?"
            return Question("edit", prompt, text=self.edited.sendable_text)
        if isinstance(settings, AskChoice):
            prompt = settings.prompt or "Which one?"
            return Question("choose", prompt, options=settings.options)
        return Question("text", settings.prompt or "What do you say?")

    def _undecided(self, settings: AskApproval) -> list[ToolCallPart]:
        found, conversation = read_status(self.conversation).waiting, self.conversation
        self.digests = conversation.digests(found)
        decisions = find_decisions(conversation, found, found)
        waiting = [
            call
            for call in found
            if call.id not in decisions
            and call.id in self.digests  # it has not left the conversation this very moment
            and (settings.tools is None or call.tool in settings.tools)
        ]
        if not waiting:
            return []
        return calls_to_ask(conversation, waiting, self.digests, self.key, anew=self.anew)

    def _last(self, settings: AskEdit) -> Message | None:
        """The message whose text is edited; a message with tool calls is not."""
        found = self.conversation.history.recent(1, role=settings.role)
        calls = any(isinstance(part, ToolCallPart) for message in found for part in message.parts)
        return found[0] if found and not calls else None

    def parse(self, answer: object) -> Any:  # noqa: ANN401 - decisions, or a text
        """Parse an answer: decisions or a text; `ValidationError` if it can't be accepted."""
        settings = self.settings
        if isinstance(settings, AskApproval):
            return parse_answer(answer, self.calls, self.digests, self.conversation.tools)
        text = answer.get("text") if isinstance(answer, Mapping) else answer
        if not isinstance(text, str) or not text.strip():
            raise ValidationError("must be text, and not empty", path="$.text", rule="node-answer")
        if isinstance(settings, AskChoice) and text not in settings.options:
            detail = f"must be one of {', '.join(settings.options)}"
            raise ValidationError(detail, path="$.text", rule="node-answer")
        user(text)  # refuse a text that no message can hold while the person can still answer
        return text

    async def store(self, parsed: Any) -> NodeResult:  # noqa: ANN401 - what `parse` returned
        """Store a parsed answer; under the same key, once."""
        settings = self.settings
        if isinstance(settings, AskApproval):
            status = await to_thread.run_sync(self._decide, parsed)
            return self.result("decided", status)
        if isinstance(settings, AskEdit):
            return await self._replace(parsed)
        return await self._reply(settings, parsed)

    def _decide(self, decisions: Any) -> ConversationStatus:  # noqa: ANN401 - decisions
        save_decisions(self.conversation, decisions, key=self.key)
        return read_status(self.conversation)

    async def _reply(self, settings: AskText | AskChoice, text: str) -> NodeResult:
        asked = [assistant(settings.prompt)] if settings.keep_prompt and settings.prompt else []
        added, status = await to_thread.run_sync(self._append, [*asked, user(text)])
        result = self.result("replied", status)
        return replace(result, added=tuple(message.id for message in added), again=not added)

    def _append(self, messages: list[Message]) -> tuple[list[Message], ConversationStatus]:
        history = self.conversation.history
        before = history.version
        history.extend(messages, key=self.key)
        is_new = history.version != before and messages[-1].id == history[-1].id
        return messages if is_new else [], read_status(self.conversation)

    async def _replace(self, text: str) -> NodeResult:
        old = self.edited
        assert old is not None  # noqa: S101 - there was a question about it
        if text == old.sendable_text:
            return self.result("nothing", await to_thread.run_sync(read_status, self.conversation))
        metadata = {**old.metadata, "editedFrom": old.id}
        new = replace(old, content=text, id=new_id(), metadata=metadata)
        is_new, status = await to_thread.run_sync(partial(self._put, old, new))
        result = self.result("edited", status)
        return replace(result, added=(new.id,) if is_new else (), again=not is_new)

    def _put(self, old: Message, new: Message) -> tuple[bool, ConversationStatus]:
        history = self.conversation.history
        before, view = history.version, history.view
        index = view.index_of(view.find(old))
        assert index is not None  # noqa: S101 - it was found in the view
        history.execute(Replace(index, new), key=self.key)
        return history.version != before, read_status(self.conversation)

    def result(self, outcome: NodeOutcome, status: ConversationStatus) -> NodeResult:
        """The result of the node."""
        return NodeResult(
            node="human",
            outcome=outcome,
            next=status.next,
            conversation=self.conversation.id,
            version=status.version,
            calls=tuple(call.id for call in status.waiting),
        )
