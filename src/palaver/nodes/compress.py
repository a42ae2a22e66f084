"""The compression node: makes room when a conversation is over its token limit.

A conversation only tells that it is (`tokens.exceeded`); whether and how room is made is the
engine's affair. It can run this node where its edges lead to it, or have the event answered at
once. What is below the limit is left alone, so doing it again does nothing.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from palaver.conversation import ClearOutputs, DropOldest, Summarise, compact
from palaver.conversation.compaction.summarising import INSTRUCTIONS
from palaver.errors import CompactionRefused, ValidationError
from palaver.nodes.configs import ClearingRoom, CompressConfig, DroppingRoom, Room
from palaver.nodes.llm import made
from palaver.nodes.reading import read_config
from palaver.nodes.results import Done, look

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from palaver.conversation import Conversation
    from palaver.conversation.compaction import Strategy
    from palaver.conversation.models.base import Model
    from palaver.events import Event
    from palaver.nodes.reading import Given
    from palaver.nodes.results import Outcome

__all__ = ["answering", "make_room"]


async def make_room(
    conversation: Conversation,
    config: Given[CompressConfig] = CompressConfig(),  # noqa: B008 - it is frozen
    *,
    model: Model | None = None,
) -> Done:
    """Make room by one way after the other, until the conversation is within its limit.

    `model` sums up where the settings name no other; without either the conversation's own does.
    Each way is one edit, and undo leads back.
    """
    settings = read_config("compress", config)
    before = await to_thread.run_sync(look, conversation)
    limit = conversation.token_limit if settings.limit is None else settings.limit
    outcome: Outcome = "nothing"
    told: list[str] = []
    async with AsyncExitStack() as open_models:
        for place, room in enumerate(settings.strategies):
            tokens = await to_thread.run_sync(conversation.tokens)
            if limit is not None and tokens <= limit:
                break
            summer: Model | None = None
            if not isinstance(room, ClearingRoom | DroppingRoom):
                summer = await open_models.enter_async_context(
                    made(room.model, model or conversation.model)
                )
            try:
                done = await compact(conversation, _strategy(room, summer, place))
            except CompactionRefused as refusal:
                told.append(str(refusal))
                outcome = "refused" if outcome == "nothing" else outcome
                continue
            if done is not None:
                told.append(done.detail)
                outcome = "compacted"
    return Done(
        node="compress",
        outcome=outcome,
        next=before.wants,
        conversation=conversation.id,
        version=conversation.history.version,
        calls=tuple(call.id for call in before.waiting),
        detail="; ".join(told),
    )


def answering(
    conversation: Conversation,
    config: Given[CompressConfig] = CompressConfig(),  # noqa: B008 - it is frozen
    *,
    model: Model | None = None,
) -> Callable[[Event], Awaitable[None]]:
    """A handler that answers the token event by making room at once.

    conversation.events.on("tokens.exceeded", answering(conversation, config))
    """
    settings = read_config("compress", config)

    async def answer(_: Event) -> None:
        await make_room(conversation, settings, model=model)

    return answer


def _strategy(room: Room, model: Model | None, place: int) -> Strategy:
    fields: dict[str, Any] = {}
    if room.keep_roles is not None:
        fields["keep_roles"] = frozenset(room.keep_roles)
    if isinstance(room, ClearingRoom):
        return ClearOutputs(
            protect_tokens=room.protect_tokens,
            protect_turns=room.protect_turns,
            least_gain=room.least_gain,
            **fields,
        )
    if isinstance(room, DroppingRoom):
        return DropOldest(keep_tokens=room.keep_tokens, **fields)
    if model is None:
        detail = "no model: name one, or give one to the node or to the conversation"
        raise ValidationError(detail, path=f"$.strategies[{place}].model", rule="ND-01")
    return Summarise(
        model=model,
        keep_tokens=room.keep_tokens,
        max_tokens=room.max_tokens,
        instructions=room.instructions or INSTRUCTIONS,
        **fields,
    )
