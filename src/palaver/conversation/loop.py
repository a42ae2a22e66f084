"""An engine, as small as one can be: ask, run the tools, ask again, until there is an answer.

It is here for people without an engine of their own, and to show what an engine does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import to_thread

from palaver.errors import TooManySteps

if TYPE_CHECKING:
    from palaver.conversation.conversation import Conversation
    from palaver.conversation.models.base import Model
    from palaver.conversation.steps import OnDelta, Step

__all__ = ["run_until_answer"]


async def run_until_answer(
    conversation: Conversation,
    model: Model | None = None,
    *,
    max_steps: int = 20,
    on_delta: OnDelta | None = None,
) -> Step:
    """Run what waits, then take steps until an answer makes no calls; at most `max_steps`."""
    if waiting := await to_thread.run_sync(conversation.waiting):
        await conversation.run_tools(waiting)
    for _ in range(max_steps):
        step = await conversation.step(model, on_delta=on_delta)
        if not step.calls:
            return step
        await conversation.run_tools(step.calls)
    msg = f"{max_steps} steps and no answer without tool calls"
    raise TooManySteps(msg)
