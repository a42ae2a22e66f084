"""Steps: let a model answer, look on, stop it."""

from __future__ import annotations

from typing import Final

from anyio import to_thread
from litestar import delete, get, post
from litestar.params import FromPath, JSONBody

from palaver.server.routes.messages import Key, Stamp
from palaver.server.service import Served
from palaver.server.shapes.steps import StepAsked, StepBegun, StepSeen
from palaver.server.stamps import check_stamp, expected
from palaver.server.working import Workshop

__all__ = ["ROUTES"]


@post("/conversations/{conversation:str}/step", status_code=202)
async def begin(
    conversation: FromPath[str],
    data: JSONBody[StepAsked],
    service: Served,
    key: Key = None,
    if_match: Stamp = None,
) -> StepBegun:
    """Say something and let a model answer; the answer comes by the live events.

    One step at a time in a conversation (409), and so many in the server (429).
    """
    workshop, expect = service.part(Workshop), expected(if_match)
    order = await to_thread.run_sync(
        workshop.order, data.model, data.tools, data.loop, data.options
    )
    begun = await workshop.step(conversation, order, text=data.text, key=key, expect=expect)
    return StepBegun(step=begun.step, version=begun.version)


@get("/conversations/{conversation:str}/step", sync_to_thread=True)
def look(conversation: FromPath[str], service: Served) -> StepSeen:
    """Look at the step under way, and at what has arrived of its answer."""
    return service.part(Workshop).look(conversation)


@delete("/conversations/{conversation:str}/step")
async def stop(conversation: FromPath[str], service: Served, if_match: Stamp = None) -> None:
    """Stop the step under way; what had arrived is kept, marked as interrupted."""
    await to_thread.run_sync(service.store.keeper.head, conversation)
    await to_thread.run_sync(check_stamp, service.store, conversation, if_match)
    await service.part(Workshop).stop(conversation)


ROUTES: Final = [begin, look, stop]
