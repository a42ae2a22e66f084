"""Tool calls that have no result yet: see them, let them run, deny them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anyio import to_thread
from litestar import get, post
from litestar.params import FromPath, JSONBody
from msgspec import UNSET

from palaver.conversation.ledger import changed_since
from palaver.messages import pending
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
    waiting = {part.id: part for part in talk.waiting()}
    digests = talk.digests(waiting.values())
    found: list[Call] = []
    for entry in talk.ledger().values():
        # what waits is shown as it is in the conversation now: that is what would run
        part = waiting.get(entry.id)
        shown = None if entry.state.status != "pending" else part
        tool = entry.tool if shown is None else shown.tool
        call = Call(
            id=entry.id,
            call_id=entry.call_id,
            message_id=entry.message_id,
            tool=tool,
            state=entry.state if shown is None else pending(shown.input, shown.raw),
            asks_first=workshop.tools.asks_first(tool),
            stray=entry.stray,
            digest=UNSET if shown is None else digests.get(entry.id, UNSET),
        )
        found.append(call)
    return Calls(version=talk.history.version, items=found)


@post("/conversations/{conversation:str}/calls/{call:str}", status_code=202)
async def settle(
    conversation: FromPath[str],
    call: FromPath[str],
    data: JSONBody[Settling],
    service: Served,
    if_match: Stamp = None,
) -> StepBegun:
    """Run a call that waits, or deny it; then the model goes on, if no other call waits.

    `digest` names the call as it was shown. Where it is another one by now this is refused (409)
    with the digest that it has, and the call waits on.
    """
    workshop = service.part(Workshop)
    await to_thread.run_sync(check_stamp, service.store, conversation, if_match)
    waiting = await to_thread.run_sync(_waiting, workshop, conversation, call, data.digest)
    order = await to_thread.run_sync(
        workshop.order, data.model, data.tools, data.loop, data.options
    )
    reason = None
    if data.action == "deny":
        reason = f"{_DENIED}: {data.reason}" if data.reason else _DENIED
    begun = await workshop.settle(conversation, waiting, order, digest=data.digest, reason=reason)
    return StepBegun(step=begun.step, version=begun.version)


def _waiting(workshop: Workshop, conversation: str, call: str, digest: str) -> ToolCallPart:
    """The call of an id, if it waits and has this digest; the provider's id of it is taken too."""
    talk = workshop.talks.get(conversation)
    for part in talk.waiting():
        if call in {part.id, part.call_id}:
            now = talk.digests([part]).get(part.id)
            if now != digest:
                raise changed_since(part, now)
            return part
    if any(call in {entry.id, entry.call_id} for entry in talk.ledger().values()):
        detail = f"call {call!r} does not wait: it runs, its result is on its way, or it is gone"
        raise Refusal(409, detail)
    raise Refusal(404, f"no call {call!r} waits in this conversation")


ROUTES: Final = [calls, settle]
