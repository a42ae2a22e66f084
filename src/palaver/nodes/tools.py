"""The tool node: runs the calls that wait, side by side, each at most once.

Where a call has to be approved and nobody has decided yet, nothing of the answer runs: the order of
the results stays that of the calls. What was decided is followed to the letter, for the call that
it was decided about: one that was changed since waits for another decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from anyio import to_thread

from palaver.errors import CallChanged
from palaver.nodes.approvals import Decision, decided, decisions, forget_decisions, valid
from palaver.nodes.configs import ToolConfig
from palaver.nodes.reading import read_config
from palaver.nodes.results import Done, Standing, look

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from palaver.conversation import Conversation, Outcome
    from palaver.nodes.reading import Given

__all__ = ["run_calls"]

_TRIES: Final = 10
"""How often calls are looked at that somebody changes at the same time."""


async def run_calls(
    conversation: Conversation,
    config: Given[ToolConfig] = ToolConfig(),  # noqa: B008 - it is frozen
) -> Done:
    """Run the calls that wait with the conversation's tools; their results are in it then.

    Doing it again is harmless: what has run does not wait any more. Without calls that wait nothing
    happens.
    """
    settings = read_config("tool", config)
    for left in reversed(range(_TRIES)):
        seen = await to_thread.run_sync(_see, conversation)
        standing, held = seen.standing, seen.held
        missing = [
            call.id
            for call in standing.waiting
            if call.id not in held and (settings.gates(call.tool) or call.id in seen.made)
        ]
        if missing:
            return _done(conversation, standing, "approval", waits=missing)
        if not standing.waiting and not standing.running:
            return _done(conversation, standing, "nothing")
        try:
            # what is under way is refused there, in words that say what to do
            outcomes = await conversation.run_tools(
                (*standing.waiting, *standing.running),
                around=decided(held) if held else None,
                approved={name: one.digest or "" for name, one in held.items()},
            )
        except CallChanged:  # a moment ago, so nothing has run: look again
            if not left:
                raise
            continue
        standing = await to_thread.run_sync(_settle, conversation, list(seen.made))
        return _done(conversation, standing, "ran", outcomes)
    raise AssertionError  # pragma: no cover - the last try raises


class _Seen(NamedTuple):
    """Where a conversation stands, all decisions, and those that hold."""

    standing: Standing
    made: dict[str, Decision]
    held: dict[str, Decision]


def _see(conversation: Conversation) -> _Seen:
    standing, made = look(conversation), decisions(conversation)
    digests = conversation.digests(standing.waiting) if made else {}
    return _Seen(standing, made, valid(made, digests))


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
