"""A model as a member: asked once, with its prompt as the whole question."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from msgspec.structs import replace

from palaver import wire
from palaver.conversation.models.base import Ask
from palaver.errors import MemberFailed
from palaver.messages import system, user
from palaver.messages.ids import uuid_for
from palaver.wire.deltas import TextDelta

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.context import AssemblerOutput
    from palaver.conversation.models.base import Model
    from palaver.messages import Message
    from palaver.team.roster import ModelMember

__all__ = ["answer_of_model"]


async def answer_of_model(
    member: ModelMember,
    model: Model,
    prompt: AssemblerOutput,
    session: str,
    told: Callable[[str], object],
) -> Message:
    """Ask the model and give its answer; `told` hears the words as they come."""
    question = [user(prompt.prompt)]
    if prompt.system_flag:
        question.insert(0, system(prompt.system_flag))
    target = replace(model.target, model=model.ref)
    request = wire.to(model.format, question, target)
    fold = wire.fold(model.format, model=model.ref, session=uuid_for(session))
    ask = Ask(body=request.body, options=member.options)
    async with aclosing(model.stream(ask)) as events:
        async for event in events:
            for delta in fold.feed(event):
                if isinstance(delta, TextDelta):
                    told(delta.text)
    message = fold.message()
    if not message.text.strip():
        msg = "it said nothing"
        raise MemberFailed(msg)
    return message
