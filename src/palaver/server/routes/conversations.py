"""Conversations: which there are, how they are called, a new one, one less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from anyio import to_thread
from litestar import Response, delete, get, patch, post
from litestar.params import FromPath, HeaderParameter, JSONBody, QueryParameter
from msgspec import UNSET

from palaver.errors import StoreError
from palaver.server.problems import Refusal
from palaver.server.reading import read_messages
from palaver.server.routes.messages import Stamp
from palaver.server.service import Served, Service
from palaver.server.shapes.conversations import Description, Head, Heads, Opening, Work, head_of
from palaver.server.stamps import expected, stamped
from palaver.server.working import Workshop
from palaver.stores.beginning import id_of_key

if TYPE_CHECKING:
    from palaver.messages import Message
    from palaver.stores import Store
    from palaver.stores.records import Head as Stored

__all__ = ["ROUTES"]

_LONGEST: Final = 160

Limit = Annotated[int, QueryParameter(ge=1, le=500)]
Text = Annotated[str | None, QueryParameter(max_length=1_000)]


@get("/conversations", sync_to_thread=True)
def listing(service: Served, limit: Limit = 50, after: Text = None, tag: Text = None) -> Heads:
    """List conversations, the latest changed first; `after` is the `next` of the page before."""
    page = service.store.list(after=after, limit=limit, tag=tag)
    return Heads(items=[_told(service, head) for head in page.conversations], next=page.next)


@post("/conversations", sync_to_thread=True)
def begin(
    service: Served,
    data: JSONBody[Opening],
    key: Annotated[str | None, HeaderParameter(name="Idempotency-Key", max_length=200)] = None,
) -> Response[Head]:
    """Begin a conversation, with some messages or none; with an Idempotency-Key, once."""
    history = service.store.create(
        read_messages(data.messages),
        id=id_of_key(key, None) if data.id is None else data.id,
        title=data.title,
        tags=data.tags,
        key=key,
    )
    return stamped(_head(service, history.id), history.version, status=201)


@get("/conversations/{conversation:str}")
async def head(service: Served, conversation: FromPath[str]) -> Response[Head]:
    """Say where a conversation stands."""
    stored = service.store.keeper.head(conversation) if service.near else None
    if stored is not None and _said_last(stored):
        found = _told(service, stored)
    else:
        found = await to_thread.run_sync(_head, service, conversation)
    return stamped(found, found.version)


@patch("/conversations/{conversation:str}", sync_to_thread=True)
def describe(
    service: Served,
    conversation: FromPath[str],
    data: JSONBody[Description],
    if_match: Stamp = None,
) -> Response[Head]:
    """Give a conversation another title, other tags, or both; that makes no version."""
    now = service.store.keeper.head(conversation)
    title = now.title if data.title is UNSET else data.title
    tags = now.tags if data.tags is UNSET else data.tags
    service.store.describe(conversation, title=title, tags=tags, expect=expected(if_match))
    service.live.changed(conversation)
    found = _head(service, conversation)
    return stamped(found, found.version)


@delete("/conversations/{conversation:str}", sync_to_thread=True)
def forget(service: Served, conversation: FromPath[str], if_match: Stamp = None) -> None:
    """Forget a conversation and everything in it, if nothing was forked from it."""
    service.store.keeper.head(conversation)
    try:
        service.store.delete(conversation, expect=expected(if_match))
    except StoreError as error:
        if type(error) is not StoreError:
            raise
        raise Refusal(409, str(error)) from error
    service.live.changed(conversation)


def _head(service: Service, conversation: str) -> Head:
    return _told(service, service.store.keeper.head(conversation))


def _told(service: Service, head: Stored) -> Head:
    """A head with the beginning of what was said last, and what goes on."""
    preview: Any = UNSET
    last = _last(service.store, head)
    if last is not None:
        preview = " ".join(last.text[: 4 * _LONGEST].split())[:_LONGEST]
    workshop = service.part(Workshop)
    stepping = workshop.running(head.id) is not None
    state = Work(stepping=stepping, waiting=workshop.waiting(head.id))
    return head_of(head, preview=preview, state=state)


def _last(store: Store, head: Stored) -> Message | None:
    """What was said last and is still in view."""
    if not head.size:
        return None
    if _said_last(head):
        return store.keeper.messages(head.id, head.stop - 1, head.stop)[0]
    return store.get(head.id)[-1]


def _said_last(head: Stored) -> bool:
    """Whether nothing but an append came last: then the log ends with what is seen last."""
    return (head.framed == 0 and head.parent is None) or head.version > head.framed


ROUTES: Final = [listing, begin, head, describe, forget]
