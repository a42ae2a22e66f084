"""Marks: names that belong to messages and survive every edit."""

from __future__ import annotations

from typing import Annotated, Final

from litestar import Response, delete, get, put
from litestar.params import FromPath, JSONBody, QueryParameter

from palaver.server.routes.messages import Stamp
from palaver.server.service import Served
from palaver.server.shapes.marks import Mark, Marked, Marking
from palaver.server.stamps import expected, stamped

__all__ = ["ROUTES"]

Which = Annotated[str, QueryParameter(min_length=1, max_length=200)]


@get("/conversations/{conversation:str}/marks", sync_to_thread=True)
def marks(service: Served, conversation: FromPath[str]) -> Response[list[Mark]]:
    """List every marked message, by mark; `index` is None for one that is not in view now."""
    view = service.store.get(conversation).view
    found = [
        Mark(name=name, message=message, index=view.index_of(place), handle=view.handle(message))
        for name, messages in view.marks.items()
        for message in messages
        for place in [view.find(message)]
    ]
    return stamped(found, view.version)


@put("/conversations/{conversation:str}/marks/{name:str}", sync_to_thread=True)
def mark(
    service: Served,
    conversation: FromPath[str],
    name: FromPath[str],
    data: JSONBody[Marking],
    if_match: Stamp = None,
) -> Response[Marked]:
    """Put a mark on a message."""
    history = service.store.get(conversation)
    history.mark(data.message, name, expect=expected(if_match))
    return stamped(Marked(version=history.version), history.version)


@delete("/conversations/{conversation:str}/marks/{name:str}", sync_to_thread=True, status_code=200)
def unmark(
    service: Served,
    conversation: FromPath[str],
    name: FromPath[str],
    message: Which,
    if_match: Stamp = None,
) -> Response[Marked]:
    """Take a mark off a message, given by its id, its handle or its index."""
    history = service.store.get(conversation)
    which = int(message) if message.isdecimal() and message.isascii() else message
    history.unmark(which, name, expect=expected(if_match))
    return stamped(Marked(version=history.version), history.version)


ROUTES: Final = [marks, mark, unmark]
