"""Ways that part and meet again: fork and merge."""

from __future__ import annotations

from typing import Final

from litestar import Response, post
from litestar.params import FromPath, JSONBody
from msgspec import UNSET

from palaver.server.routes.messages import Key, Stamp
from palaver.server.service import Served
from palaver.server.shapes.changes import Changed, Merging, outcome_of
from palaver.server.shapes.conversations import Forking, Head, head_of
from palaver.server.stamps import expected, stamped
from palaver.stores.beginning import id_of_key

__all__ = ["ROUTES"]


@post("/conversations/{conversation:str}/fork", sync_to_thread=True)
def fork(
    service: Served,
    conversation: FromPath[str],
    data: JSONBody[Forking],
    key: Key = None,
    if_match: Stamp = None,
) -> Response[Head]:
    """Begin a conversation that goes its own way from here; with an Idempotency-Key, once."""
    history = service.store.get(conversation)
    name = id_of_key(key, conversation) if data.id is None else data.id
    made = history.fork(at=data.at, id=name, key=key, expect=expected(if_match))
    if data.title is not UNSET:
        service.store.describe(made.id, title=data.title, tags=made.tags)
    head = service.store.keeper.head(made.id)
    return stamped(head_of(head), head.version, status=201)


@post("/conversations/{conversation:str}/merge", sync_to_thread=True, status_code=200)
def merge(
    service: Served, conversation: FromPath[str], data: JSONBody[Merging], if_match: Stamp = None
) -> Response[Changed]:
    """Bring in what a fork did; where both changed the same message, each is named."""
    history = service.store.get(conversation)
    result = history.merge(service.store.get(data.other), expect=expected(if_match))
    answer = Changed(version=history.version, result=outcome_of(result))
    return stamped(answer, history.version)


ROUTES: Final = [fork, merge]
