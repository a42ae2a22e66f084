"""The model node: one question to a model; its answer, usage and calls are in the conversation."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from anyio import to_thread

from palaver.conversation import Toolbox, model
from palaver.errors import ValidationError
from palaver.nodes.configs import LLMConfig
from palaver.nodes.reading import read_config
from palaver.nodes.results import Done, look

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from palaver.conversation import Conversation
    from palaver.conversation.models.base import Model
    from palaver.conversation.steps import OnDelta
    from palaver.nodes.reading import Given

__all__ = ["ask_model", "made"]


async def ask_model(
    conversation: Conversation,
    config: Given[LLMConfig] = LLMConfig(),  # noqa: B008 - it is frozen
    *,
    model: Model | None = None,
    key: str | None = None,
    on_delta: OnDelta | None = None,
) -> Done:
    """Ask a model once: the one given, or the one that the settings name, or the conversation's.

    One that the settings name is made for this question and closed after it. `key` makes doing it
    again harmless: an answer that is there already is not paid for twice. `on_delta` is told each
    piece as it arrives.
    """
    settings = read_config("llm", config)
    tools = _chosen(conversation.tools, settings.tools)
    async with made(None if model else settings.model, model) as chosen:
        step = await conversation.step(
            chosen, tools=tools, options=settings.options, on_delta=on_delta, key=key
        )
    standing = await to_thread.run_sync(look, conversation)
    return Done(
        node="llm",
        outcome="calls" if step.calls else "answered",
        next=standing.next,
        conversation=conversation.id,
        version=standing.version,
        added=(step.message.id,),
        calls=tuple(call.id for call in standing.waiting),
        again=step.again,
    )


def _chosen(tools: Toolbox, names: Sequence[str] | None) -> Toolbox:
    """The tools of some names."""
    if names is None:
        return tools
    for place, name in enumerate(names):
        if name not in tools:
            known = ", ".join(sorted(tools)) or "none"
            detail = f"there is no tool {name!r}; there are: {known}"
            raise ValidationError(detail, path=f"$.tools[{place}]", rule="ND-01")
    return Toolbox(tools[name] for name in names)


@asynccontextmanager
async def made(name: str | None, given: Model | None) -> AsyncGenerator[Model | None]:
    """A model by its name, closed in the end; or the one that is given, which is its owner's."""
    if name is None:
        yield given
        return
    try:
        found = model(name)
    except ValidationError as error:
        raise ValidationError(error.detail, path="$.model", rule="ND-01") from None
    try:
        yield found
    finally:
        await found.close()
