"""The nodes that change the context: `edit_context` edits it, `compress_context` shortens it.

An edit is one batch and one version, and undo reverses it; so is each strategy of compression. A
conversation only reports that it is over its token limit (`tokens.exceeded`); whether and how it is
shortened is up to the engine, which can run `compress_context` as a node or subscribe
`compress_handler` to the event.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from palaver.conversation import ClearOutputs, DropOldest, Summarise, compact
from palaver.conversation.compaction import INSTRUCTIONS
from palaver.errors import CompactionRefused, ValidationError
from palaver.history import Append, Operation
from palaver.nodes.agent import open_model
from palaver.nodes.config import (
    ClearOutputsConfig,
    CompressConfig,
    CompressStrategy,
    DropOldestConfig,
    read_config,
)
from palaver.nodes.results import NodeResult, read_status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from palaver.conversation import Conversation
    from palaver.conversation.compaction import Strategy
    from palaver.events import Event
    from palaver.models.base import Model
    from palaver.nodes.config import ConfigInput, ContextConfig
    from palaver.nodes.results import ConversationStatus, NodeOutcome

__all__ = ["compress_context", "compress_handler", "edit_context"]


# ── editing ─────────────────────────────────────────────────────────────────────────────────────


async def edit_context(
    conversation: Conversation,
    config: Any,  # noqa: ANN401 - see below
    *,
    key: str | None = None,
) -> NodeResult:
    """Edit a conversation by settings: a dict, JSON, YAML, or operations as values.

    Several operations are executed all or nothing, as one version. What was done under `key` before
    is not done again.
    """
    operations = read_config("context", config)
    single = len(operations) == 1 and not isinstance(config, list | tuple)
    before, status, done = await to_thread.run_sync(
        partial(_execute, conversation, operations[0] if single else operations, key)
    )
    names = ", ".join(operation.operation for operation in operations)
    return NodeResult(
        node="context",
        outcome="edited" if done else "nothing",
        next=status.next,
        conversation=conversation.id,
        version=status.version,
        added=tuple(m.id for o in done if isinstance(o, Append) for m in o.messages),
        calls=tuple(call.id for call in status.waiting),
        again=not done and status.version >= before,
        detail=names,
    )


def _execute(
    conversation: Conversation, operations: Operation | ContextConfig, key: str | None
) -> tuple[int, ConversationStatus, ContextConfig]:
    history = conversation.history.refresh()
    before = history.version
    history.execute(operations, key=key)
    listed = operations if isinstance(operations, tuple) else (operations,)
    return before, read_status(conversation), listed if history.version > before else ()


# ── compression ─────────────────────────────────────────────────────────────────────────────────


async def compress_context(
    conversation: Conversation,
    config: ConfigInput[CompressConfig] = CompressConfig(),  # noqa: B008 - it is frozen
    *,
    model: Model | None = None,
) -> NodeResult:
    """Try one strategy after the other, until the conversation is within its token limit.

    `model` summarises where the settings name no other; without either, the conversation's own
    does. A conversation within its limit is left alone. Each strategy is one edit, which undo
    reverses.
    """
    settings = read_config("compress", config)
    before = await to_thread.run_sync(read_status, conversation)
    limit = conversation.token_limit if settings.limit is None else settings.limit
    outcome: NodeOutcome = "nothing"
    details: list[str] = []
    async with AsyncExitStack() as open_models:
        for index, strategy in enumerate(settings.strategies):
            tokens = await to_thread.run_sync(conversation.tokens)
            if limit is not None and tokens <= limit:
                break
            summariser: Model | None = None
            if not isinstance(strategy, ClearOutputsConfig | DropOldestConfig):
                summariser = await open_models.enter_async_context(
                    open_model(strategy.model, model or conversation.model)
                )
            try:
                done = await compact(conversation, _make_strategy(strategy, summariser, index))
            except CompactionRefused as refusal:
                details.append(str(refusal))
                outcome = "refused" if outcome == "nothing" else outcome
                continue
            if done is not None:
                details.append(done.detail)
                outcome = "compacted"
    return NodeResult(
        node="compress",
        outcome=outcome,
        next=before.wants,
        conversation=conversation.id,
        version=conversation.history.version,
        calls=tuple(call.id for call in before.waiting),
        detail="; ".join(details),
    )


def compress_handler(
    conversation: Conversation,
    config: ConfigInput[CompressConfig] = CompressConfig(),  # noqa: B008 - it is frozen
    *,
    model: Model | None = None,
) -> Callable[[Event], Awaitable[None]]:
    """Return an event handler that compresses the conversation at once.

    conversation.events.on("tokens.exceeded", compress_handler(conversation, config))
    """
    settings = read_config("compress", config)

    async def handle(_: Event) -> None:
        await compress_context(conversation, settings, model=model)

    return handle


def _make_strategy(config: CompressStrategy, model: Model | None, index: int) -> Strategy:
    fields: dict[str, Any] = {}
    if config.keep_roles is not None:
        fields["keep_roles"] = frozenset(config.keep_roles)
    if isinstance(config, ClearOutputsConfig):
        return ClearOutputs(
            protect_tokens=config.protect_tokens,
            protect_turns=config.protect_turns,
            least_gain=config.least_gain,
            **fields,
        )
    if isinstance(config, DropOldestConfig):
        return DropOldest(keep_tokens=config.keep_tokens, **fields)
    if model is None:
        detail = "no model: name one, or give one to the node or to the conversation"
        raise ValidationError(detail, path=f"$.strategies[{index}].model", rule="node")
    return Summarise(
        model=model,
        keep_tokens=config.keep_tokens,
        max_tokens=config.max_tokens,
        instructions=config.instructions or INSTRUCTIONS,
        **fields,
    )
