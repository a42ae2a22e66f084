"""Live events, as server-sent events: everything that happens, from now on or from an id on."""

from __future__ import annotations

from typing import Annotated, Final

from litestar import get
from litestar.params import HeaderParameter, QueryParameter
from litestar.response import Stream

from palaver.server.live import read_place
from palaver.server.service import Served

__all__ = ["ROUTES"]

Id = Annotated[str | None, QueryParameter(max_length=40)]
Last = Annotated[str | None, HeaderParameter(name="Last-Event-ID", max_length=40)]
Name = Annotated[str | None, QueryParameter(max_length=200)]


@get("/events", media_type="text/event-stream")
async def events(
    service: Served,
    conversation: Name = None,
    after: Id = None,
    last_event_id: Last = None,
) -> Stream:
    """Tell what happens, in one conversation or in all; after a break, from the last id on."""
    since = last_event_id or after
    place = read_place(since) if since else None
    service.live.check_room()
    headers = {"X-Accel-Buffering": "no"}
    stream = service.live.stream(conversation, place)
    return Stream(stream, media_type="text/event-stream", headers=headers)


ROUTES: Final = [events]
