"""Recovery after a crash: every step and call that was begun and not finished is settled.

An answer that had begun to arrive is stored as far as it came. A call that had not started stays
pending. A call that was running may have had effects: it becomes an error that says so, unless its
tool may run again. The result of a call that was done is appended to the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from palaver.conversation.ledger import LedgerEntry
from palaver.messages import AssistantInfo, Message, fail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.conversation.store_access import StepIntent, StoreAccess
    from palaver.stores.records import Lease

__all__ = ["INTERRUPTED", "Recovered", "recover"]

INTERRUPTED = "interrupted: the process ended while this call was running; it may have had effects"


class Recovered(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One step or call that a crash left unfinished, and what was done about it."""

    kind: Literal["step", "call"]
    id: str
    outcome: Literal["kept", "nothing", "waiting", "interrupted", "repeat", "appended", "stray"]
    detail: str
    tool: str | None = None


def recover(access: StoreAccess, work: Literal["step", "calls"] = "step") -> list[Recovered]:
    """Settle what a crash left unfinished; raise `LeaseTaken` while another worker is active."""
    lease = access.lease.acquire(work)
    try:
        access.history.refresh()
        return [*_recover_steps(access, lease), *_recover_calls(access, lease)]
    finally:
        access.lease.release(lease)


def recover_if_needed(access: StoreAccess) -> None:
    """Settle what a crash left unfinished, if it left anything.

    The caller holds the lease, for a run or for a team, and runs no calls meanwhile.
    """
    open_calls = [entry for entry in access.ledger().values() if not entry.stray]
    if access.intents() or any(entry.state.status != "pending" for entry in open_calls):
        recover(access, "calls")


def _recover_steps(access: StoreAccess, lease: Lease) -> list[Recovered]:
    drafts, found = access.drafts(), list[Recovered]()
    for intent in access.intents().values():
        draft = drafts.get(intent.id)
        if draft is None:
            access.abandon_intent(intent, lease)
            detail = "a model was asked and no answer had arrived; it may have been billed"
            found.append(Recovered("step", intent.id, "nothing", detail))
            continue
        access.append_draft(intent, _as_interrupted(draft, intent), lease)
        detail = f"{len(draft.text):,} characters of an answer had arrived and are stored"
        found.append(Recovered("step", intent.id, "kept", detail))
    return found


def _as_interrupted(draft: Message, intent: StepIntent) -> Message:
    info = draft.info if isinstance(draft.info, AssistantInfo) else AssistantInfo()
    return replace(
        draft, info=replace(info, finish="interrupted", model=info.model or intent.model)
    )


def _recover_calls(access: StoreAccess, lease: Lease) -> list[Recovered]:
    found, settled = list[Recovered](), list[LedgerEntry]()
    for entry in access.ledger().values():
        status = entry.state.status
        if entry.stray:
            continue
        if status == "pending":
            detail = "had not started: it can be run"
            found.append(Recovered("call", entry.id, "waiting", detail, entry.tool))
        elif status == "running" and entry.idempotent:
            access.save_entries([entry.reset()], lease)
            detail = "was running and says that it may run again"
            found.append(Recovered("call", entry.id, "repeat", detail, entry.tool))
        elif status == "running":
            settled.append(entry.with_state(fail(entry.state, INTERRUPTED)))
            found.append(Recovered("call", entry.id, "interrupted", INTERRUPTED, entry.tool))
        else:
            settled.append(entry)
            detail = "was done; its result has its place now"
            found.append(Recovered("call", entry.id, "appended", detail, entry.tool))
    return _append_results(access, settled, found, lease)


def _append_results(
    access: StoreAccess, settled: Sequence[LedgerEntry], found: list[Recovered], lease: Lease
) -> list[Recovered]:
    """Append the results, answer by answer; mark those whose calls have left the view."""
    gone: set[str] = set()
    for answer in dict.fromkeys(entry.message_id for entry in settled):
        batch = [entry for entry in settled if entry.message_id == answer]
        _, strays = access.append_results(batch, lease)
        gone.update(entry.id for entry in strays)
    detail = "its call has left the conversation; the result is kept in the ledger"
    return [
        replace(item, outcome="stray", detail=detail) if item.id in gone else item for item in found
    ]
