"""Tokens: how full the window is, and making room."""

from __future__ import annotations

from typing import Annotated, Final

from litestar import get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from palaver.server.counting import counted
from palaver.server.roommaking import Rooms
from palaver.server.routes.messages import Stamp
from palaver.server.service import Served
from palaver.server.shapes.tokens import Compacted, Compacting, Tokens
from palaver.server.stamps import expected
from palaver.server.working import Workshop

__all__ = ["ROUTES"]


@get("/conversations/{conversation:str}/tokens", sync_to_thread=True)
def tokens(
    conversation: FromPath[str],
    service: Served,
    model: Annotated[str | None, QueryParameter(min_length=1, max_length=200)] = None,
) -> Tokens:
    """Count a conversation by message and by role, beside a model's window."""
    workshop = service.part(Workshop)
    talk = workshop.talks.get(conversation)
    name = model or workshop.shelf.default
    return counted(talk, workshop.model(name), name)


@post("/conversations/{conversation:str}/compact", status_code=200)
async def compact(
    conversation: FromPath[str],
    data: JSONBody[Compacting],
    service: Served,
    if_match: Stamp = None,
) -> Compacted:
    """Make room: clear old outputs, drop the oldest turns, or have a model sum up.

    It is an ordinary edit, which undo takes back. With `preview` nothing changes.
    """
    return await service.part(Rooms).make(conversation, data, expected(if_match))


ROUTES: Final = [tokens, compact]
