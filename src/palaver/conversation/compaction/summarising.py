"""A model sums up what was said; its words take the place of the messages they sum up.

The summary is checked before anything changes: an empty one, one that is no shorter, or one that
the caller's check does not like is refused. It names the messages it was made from, so that erasing
one of them reaches the summary too.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from palaver import wire
from palaver.conversation.compaction.compacting import Plan
from palaver.conversation.compaction.scene import stretches
from palaver.conversation.models.base import Ask, Model
from palaver.errors import CompactionRefused
from palaver.history import SUMMARY_OF
from palaver.messages import (
    MAX_ANSWER,
    AssistantInfo,
    Message,
    Role,
    compaction_part,
    new_id,
    text_part,
    user,
)
from palaver.messages.turns import session_of

if TYPE_CHECKING:
    from palaver.conversation.compaction.scene import Scene

__all__ = ["INSTRUCTIONS", "Summarise"]

_SYSTEM: Final[frozenset[Role]] = frozenset(("system",))
INSTRUCTIONS: Final = (
    "Sum up the conversation so far for whoever goes on with it. Keep: what the user wants and has "
    "decided, what was done and with what result, names, numbers, paths and open questions. Leave "
    "out greetings and what no longer matters. Write only the summary."
)


class Summarise(Struct, frozen=True, kw_only=True):
    """Have a model sum up everything but the newest `keep_tokens`.

    `check` is shown the summary and the messages it stands for; what it answers False to is
    refused.
    """

    model: Model
    keep_tokens: int = 4_000
    instructions: str = INSTRUCTIONS
    check: Callable[[str, list[Message]], bool | Awaitable[bool]] | None = None
    max_tokens: int = 1_024
    keep_roles: frozenset[Role] = _SYSTEM
    name: str = "summarise"

    async def plan(self, scene: Scene) -> Plan | None:
        """Ask for a summary, check it, and put it in the place of what it sums up."""
        gone = _old(scene, self.keep_tokens)
        if not gone:
            return None
        old = [scene.messages[index] for index in gone]
        summary = await self._ask(old)
        told = sum(scene.tokens[index] for index in gone)
        if not summary:
            raise CompactionRefused("the summary is empty")
        if len(summary) > MAX_ANSWER:
            raise CompactionRefused(f"the summary is longer than {MAX_ANSWER:,} characters")
        asked, answer = _messages(summary, old, self.model)
        weights = [await to_thread.run_sync(scene.weigh, each) for each in (asked, answer)]
        if sum(weights) >= told:
            raise CompactionRefused("the summary is no shorter than what it sums up")
        if self.check is not None:
            fine = self.check(summary, old)
            if not (await fine if inspect.isawaitable(fine) else fine):
                raise CompactionRefused("the summary did not pass the check")
        dropped = set(gone)
        before = [index for index in range(gone[0]) if index not in dropped]
        after = [i for i in range(gone[0], len(scene.messages)) if i not in dropped]
        pieces = (*stretches(before), asked, answer, *stretches(after))
        return Plan(pieces, f"summed up {len(gone):,} messages")

    async def _ask(self, old: list[Message]) -> str:
        model = self.model
        target = replace(model.target, model=model.ref)
        request = wire.to(model.format, [*old, user(self.instructions)], target)
        options = {"max_tokens": self.max_tokens}
        body = await model.whole(Ask(request.body, names=request.names, options=options))
        return wire.reply(model.format, body, model=model.ref).text.strip()


def _old(scene: Scene, keep_tokens: int) -> list[int]:
    """The indexes of what is to be summed up: whole groups, oldest first, up to a user's turn."""
    left, cut = keep_tokens, len(scene.messages)
    for group in reversed(scene.groups):
        left -= group.tokens
        if left < 0:
            break
        cut = group.start
    old = [group for group in scene.groups if group.stop <= cut and not group.stays]
    return [index for group in old for index in range(group.start, group.stop)]


def _messages(summary: str, old: list[Message], model: Model) -> tuple[Message, Message]:
    """The question and the answer that stand for what was summed up."""
    session = session_of(part for message in old for part in message.parts)
    asked, answer = new_id(), new_id()
    sources = {SUMMARY_OF: [message.id for message in old]}
    part = compaction_part(session, asked, auto=True)
    text = text_part(session, answer, summary or " ", synthetic=True)
    info = AssistantInfo(model=model.ref, summary=True, finish="stop")
    return (
        Message("user", (part,), id=asked),
        Message("assistant", (text,), id=answer, info=info, metadata=sources),
    )
