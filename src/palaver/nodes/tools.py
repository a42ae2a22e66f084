"""The tool node: runs the calls that wait, side by side, each at most once.

Where a call has to be approved and nobody has decided yet, nothing of the answer runs: the order of
the results stays that of the calls. What was decided is followed to the letter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import to_thread

from palaver.nodes.approvals import Decision, decided, decisions, forget_decisions
from palaver.nodes.configs import ToolConfig
from palaver.nodes.reading import read_config
from palaver.nodes.results import Done, Standing, look

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from palaver.conversation import Conversation, Outcome
    from palaver.nodes.reading import Given

__all__ = ["run_calls"]


async def run_calls(
    conversation: Conversation,
    config: Given[ToolConfig] = ToolConfig(),  # noqa: B008 - it is frozen
) -> Done:
    """Run the calls that wait with the conversation's tools; their results are in it then.

    Doing it again is harmless: what has run does not wait any more. Without calls that wait nothing
    happens.
    """
    settings = read_config("tool", config)
    standing, made = await to_thread.run_sync(_see, conversation)
    waiting = standing.waiting
    missing = [call for call in waiting if settings.gates(call.tool) and call.id not in made]
    if missing:
        return _done(conversation, standing, "approval", waits=[call.id for call in missing])
    if not waiting and not standing.running:
        return _done(conversation, standing, "nothing")
    around = decided(made) if made else None
    # what is under way is refused there, in words that say what to do
    outcomes = await conversation.run_tools((*waiting, *standing.running), around=around)
    standing = await to_thread.run_sync(_settle, conversation, list(made))
    return _done(conversation, standing, "ran", outcomes)


def _see(conversation: Conversation) -> tuple[Standing, dict[str, Decision]]:
    return look(conversation), decisions(conversation)


def _settle(conversation: Conversation, names: Iterable[str]) -> Standing:
    """Forget what was decided about calls that have run, also before a crash."""
    standing = look(conversation)
    waiting = {call.id for call in standing.waiting}
    forget_decisions(conversation, [name for name in names if name not in waiting])
    return standing


def _done(
    conversation: Conversation,
    standing: Standing,
    outcome: str,
    outcomes: Sequence[Outcome] = (),
    waits: Sequence[str] = (),
) -> Done:
    failed = tuple(one.call.id for one in outcomes if one.failed)
    return Done(
        node="tool",
        outcome=outcome,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - one of three
        next="human" if waits else standing.next,
        conversation=conversation.id,
        version=standing.version,
        added=tuple(one.message.id for one in outcomes if one.message is not None),
        calls=tuple(waits) or tuple(call.id for call in standing.waiting),
        failed=failed,
        detail=f"{len(outcomes)} ran, {len(failed)} failed" if outcomes else "",
    )
