"""The nodes of an agent: `ask_model` asks a model once, `run_calls` runs the calls that wait.

The answer, its usage and its calls are in the conversation afterwards. Calls run side by side, each
at most once. If a call has to be approved and nobody has decided yet, no call of that answer runs,
so that the results keep the order of the calls. A decision is valid for the call that it was made
about: a call that has changed since waits for another decision.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from anyio import to_thread

from palaver.conversation import Toolbox, model
from palaver.errors import CallChanged, ValidationError
from palaver.nodes.config import LLMConfig, ToolConfig, read_config
from palaver.nodes.results import ConversationStatus, NodeResult, read_status
from palaver.tools.approval import (
    Decision,
    find_decisions,
    forget_decisions,
    gate_calls,
    load_decisions,
    needs_approval,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

    from palaver.conversation import Conversation, ToolOutcome
    from palaver.conversation.step import OnDelta
    from palaver.models.base import Model
    from palaver.nodes.config import ConfigInput

__all__ = ["ask_model", "open_model", "run_calls"]

_TRIES: Final = 10
"""How often the calls are read again if somebody changes them at the same time."""


# ── the model ───────────────────────────────────────────────────────────────────────────────────


async def ask_model(
    conversation: Conversation,
    config: ConfigInput[LLMConfig] = LLMConfig(),  # noqa: B008 - it is frozen
    *,
    model: Model | None = None,
    key: str | None = None,
    on_delta: OnDelta | None = None,
) -> NodeResult:
    """Ask a model once: the given one, the one that the settings name, or the conversation's.

    A model that the settings name is made for this question and closed after it. An answer that is
    already stored under `key` is not asked and paid for again. `on_delta` gets each piece of the
    answer as it arrives.
    """
    settings = read_config("llm", config)
    tools = _select_tools(conversation.tools, settings.tools)
    async with open_model(None if model else settings.model, model) as chosen:
        step = await conversation.step(
            chosen, tools=tools, options=settings.options, on_delta=on_delta, key=key
        )
    status = await to_thread.run_sync(read_status, conversation)
    return NodeResult(
        node="llm",
        outcome="calls" if step.calls else "answered",
        next=status.next,
        conversation=conversation.id,
        version=status.version,
        added=(step.message.id,),
        calls=tuple(call.id for call in status.waiting),
        again=step.again,
    )


def _select_tools(tools: Toolbox, names: Sequence[str] | None) -> Toolbox:
    if names is None:
        return tools
    for index, name in enumerate(names):
        if name not in tools:
            known = ", ".join(sorted(tools)) or "none"
            detail = f"there is no tool {name!r}; there are: {known}"
            raise ValidationError(detail, path=f"$.tools[{index}]", rule="unknown-tool")
    return Toolbox(tools[name] for name in names)


@asynccontextmanager
async def open_model(name: str | None, given: Model | None) -> AsyncGenerator[Model | None]:
    """Make a model by its name and close it in the end; without a name, use the given one."""
    if name is None:
        yield given
        return
    try:
        found = model(name)
    except ValidationError as error:
        raise ValidationError(error.detail, path="$.model", rule="unknown-model") from None
    try:
        yield found
    finally:
        await found.close()


# ── the tools ───────────────────────────────────────────────────────────────────────────────────


async def run_calls(
    conversation: Conversation,
    config: ConfigInput[ToolConfig] = ToolConfig(),  # noqa: B008 - it is frozen
) -> NodeResult:
    """Run the calls that wait with the conversation's tools, and add their results.

    A call that has run does not wait any more, so running the node again does nothing. Without
    calls that wait, nothing happens.
    """
    settings = read_config("tool", config)
    for left in reversed(range(_TRIES)):
        calls = await to_thread.run_sync(_read_calls, conversation)
        status, valid = calls.status, calls.valid
        missing = [
            call.id
            for call in status.waiting
            if call.id not in valid
            and (
                settings.gates(call.tool)
                or call.id in calls.decisions
                or needs_approval(conversation.tools, call)
            )
        ]
        if missing:
            await to_thread.run_sync(gate_calls, conversation, missing)
            return _result(conversation, status, "approval", missing=missing)
        if not status.waiting and not status.running:
            return _result(conversation, status, "nothing")
        try:
            # run_tools refuses calls that are running, with an error that says what to do
            outcomes = await conversation.run_tools(
                (*status.waiting, *status.running),
                approved=valid,
            )
        except CallChanged:  # a moment ago, so nothing has run: read the calls again
            if not left:
                raise
            continue
        status = await to_thread.run_sync(_forget, conversation, list(calls.decisions))
        return _result(conversation, status, "ran", outcomes)
    raise AssertionError  # pragma: no cover - the last try raises


class _WaitingCalls(NamedTuple):
    """The status of a conversation, all decisions about calls, and the valid ones."""

    status: ConversationStatus
    decisions: dict[str, Decision]
    valid: dict[str, Decision]


def _read_calls(conversation: Conversation) -> _WaitingCalls:
    status, decisions = read_status(conversation), load_decisions(conversation)
    valid = find_decisions(conversation, status.waiting, status.waiting)
    return _WaitingCalls(status, decisions, valid)


def _forget(conversation: Conversation, names: Iterable[str]) -> ConversationStatus:
    """Forget the decisions about calls that have run, also before a crash."""
    status = read_status(conversation)
    waiting = {call.id for call in status.waiting}
    forget_decisions(conversation, [name for name in names if name not in waiting])
    return status


def _result(
    conversation: Conversation,
    status: ConversationStatus,
    outcome: str,
    outcomes: Sequence[ToolOutcome] = (),
    missing: Sequence[str] = (),
) -> NodeResult:
    failed = tuple(one.call.id for one in outcomes if one.failed)
    return NodeResult(
        node="tool",
        outcome=outcome,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - one of three
        next="human" if missing else status.next,
        conversation=conversation.id,
        version=status.version,
        added=tuple(one.message.id for one in outcomes if one.message is not None),
        calls=tuple(missing) or tuple(call.id for call in status.waiting),
        failed=failed,
        detail=f"{len(outcomes)} ran, {len(failed)} failed" if outcomes else "",
    )
