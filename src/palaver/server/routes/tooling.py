"""Tool calls that have no result yet: see them, let them run, deny them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anyio import to_thread
from litestar import get, post
from litestar.params import FromPath, JSONBody

from palaver.server.problems import Refusal
from palaver.server.routes.messages import Stamp
from palaver.server.service import Served
from palaver.server.shapes.steps import Call, Calls, Settling, StepBegun
from palaver.server.stamps import check_stamp
from palaver.server.working import Workshop

if TYPE_CHECKING:
    from palaver.messages import ToolCallPart

__all__ = ["ROUTES"]

_DENIED: Final = "the user did not allow this call"


@get("/conversations/{conversation:str}/calls", sync_to_thread=True)
def calls(conversation: FromPath[str], service: Served) -> Calls:
    """The calls that have no result in the conversation yet, with their states."""
    workshop = service.part(Workshop)
    talk = workshop.talks.get(conversation)
    found = [
        Call(
            id=entry.id,
            call_id=entry.call_id,
            message_id=entry.message_id,
            tool=entry.tool,
            state=entry.state,
            asks_first=workshop.tools.asks_first(entry.tool),
            stray=entry.stray,
        )
        for entry in talk.ledger().values()
    ]
    return Calls(version=talk.history.version, items=found)


@post("/conversations/{conversation:str}/calls/{call:str}", status_code=202)
async def settle(
    conversation: FromPath[str],
    call: FromPath[str],
    data: JSONBody[Settling],
    service: Served,
    if_match: Stamp = None,
) -> StepBegun:
    """Run a call that waits, or deny it; then the model goes on, if no other call waits."""
    workshop = service.part(Workshop)
    await to_thread.run_sync(check_stamp, service.store, conversation, if_match)
    waiting = await to_thread.run_sync(_waiting, workshop, conversation, call)
    order = await to_thread.run_sync(
        workshop.order, data.model, data.tools, data.loop, data.options
    )
    reason = None
    if data.action == "deny":
        reason = f"{_DENIED}: {data.reason}" if data.reason else _DENIED
    begun = await workshop.settle(conversation, waiting, order, reason=reason)
    return StepBegun(step=begun.step, version=begun.version)


def _waiting(workshop: Workshop, conversation: str, call: str) -> ToolCallPart:
    """The call of an id, if it waits; the provider's id of it is taken too."""
    talk = workshop.talks.get(conversation)
    for part in talk.waiting():
        if call in {part.id, part.call_id}:
            return part
    if any(call in {entry.id, entry.call_id} for entry in talk.ledger().values()):
        raise Refusal(409, f"call {call!r} does not wait: it runs, or its result is on its way")
    raise Refusal(404, f"no call {call!r} waits in this conversation")


ROUTES: Final = [calls, settle]
