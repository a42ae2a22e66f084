"""After a crash: what was begun and not finished is settled, and every item is accounted for.

An answer that had begun to arrive is kept as far as it came. A call that had not started waits as
before. A call that was running may have happened: it becomes an error that says so, unless its tool
may run again. A call that was done gets its place in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from palaver.conversation.ledger import Entry
from palaver.messages import AssistantInfo, Message, fail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.conversation.desk import Desk, Intent
    from palaver.stores.records import Lease

__all__ = ["INTERRUPTED", "Recovered", "recover"]

INTERRUPTED = "interrupted: the process ended while this call was running; it may have had effects"


class Recovered(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One thing that was found and what was done about it."""

    kind: Literal["step", "call"]
    id: str
    outcome: Literal["kept", "nothing", "waiting", "interrupted", "repeat", "appended", "stray"]
    detail: str
    tool: str | None = None


def recover(desk: Desk) -> list[Recovered]:
    """Settle what a crash has left behind; `LeaseTaken` while another worker is at it."""
    lease = desk.hold()
    try:
        desk.history.refresh()
        return [*_steps(desk, lease), *_calls(desk, lease)]
    finally:
        desk.let_go(lease)


def _steps(desk: Desk, lease: Lease) -> list[Recovered]:
    drafts, found = desk.drafts(), list[Recovered]()
    for intent in desk.intents().values():
        draft = drafts.get(intent.id)
        if draft is None:
            desk.forget_step(intent, lease)
            detail = "a model was asked and no answer had arrived; it may have been billed"
            found.append(Recovered("step", intent.id, "nothing", detail))
            continue
        desk.keep_draft(intent, _interrupted(draft, intent), lease)
        detail = f"{len(draft.text):,} characters of an answer had arrived and are kept"
        found.append(Recovered("step", intent.id, "kept", detail))
    return found


def _interrupted(draft: Message, intent: Intent) -> Message:
    info = draft.info if isinstance(draft.info, AssistantInfo) else AssistantInfo()
    return replace(
        draft, info=replace(info, finish="interrupted", model=info.model or intent.model)
    )


def _calls(desk: Desk, lease: Lease) -> list[Recovered]:
    found, settled = list[Recovered](), list[Entry]()
    for entry in desk.ledger().values():
        status = entry.state.status
        if entry.stray:
            continue
        if status == "pending":
            detail = "had not started: it can be run"
            found.append(Recovered("call", entry.id, "waiting", detail, entry.tool))
        elif status == "running" and entry.idempotent:
            desk.note([entry.again()], lease)
            detail = "was running and says that it may run again"
            found.append(Recovered("call", entry.id, "repeat", detail, entry.tool))
        elif status == "running":
            settled.append(entry.moved(fail(entry.state, INTERRUPTED)))
            found.append(Recovered("call", entry.id, "interrupted", INTERRUPTED, entry.tool))
        else:
            settled.append(entry)
            detail = "was done; its result has its place now"
            found.append(Recovered("call", entry.id, "appended", detail, entry.tool))
    return _placed(desk, settled, found, lease)


def _placed(
    desk: Desk, settled: Sequence[Entry], found: list[Recovered], lease: Lease
) -> list[Recovered]:
    """Append the results, answer by answer; say which of them have no place any more."""
    gone: set[str] = set()
    for answer in dict.fromkeys(entry.message_id for entry in settled):
        batch = [entry for entry in settled if entry.message_id == answer]
        _, strays = desk.conclude(batch, lease)
        gone.update(entry.id for entry in strays)
    detail = "its call has left the conversation; the result is kept in the ledger"
    return [
        replace(item, outcome="stray", detail=detail) if item.id in gone else item for item in found
    ]
