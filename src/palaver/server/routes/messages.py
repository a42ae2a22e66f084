"""The messages of a conversation: a stretch of them, those that match, and more of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from anyio import to_thread
from litestar import Response, get, post
from litestar.params import FromPath, FromQuery, HeaderParameter, JSONBody, QueryParameter
from msgspec.structs import asdict

from palaver.server.reading import index_of, items_of, kept_before, read_messages
from palaver.server.service import Served
from palaver.server.shapes.messages import (
    Added,
    Addition,
    Asked,
    Found,
    FoundItem,
    Items,
)
from palaver.server.stamps import expected, stamped
from palaver.server.working import Workshop

if TYPE_CHECKING:
    from palaver.history import View
    from palaver.messages import Message
    from palaver.stores.history import StoredHistory
    from palaver.tokens import Tally

__all__ = ["ROUTES", "Key", "Stamp"]

_USUAL: Final = 50
_MOST: Final = 500

Key = Annotated[str | None, HeaderParameter(name="Idempotency-Key", max_length=200)]
Stamp = Annotated[str | None, HeaderParameter(name="If-Match", max_length=1_000)]


@get("/conversations/{conversation:str}/messages")
async def stretch(
    service: Served,
    conversation: FromPath[str],
    version: Annotated[int | None, QueryParameter(ge=0)] = None,
    start: FromQuery[int | None] = None,
    stop: FromQuery[int | None] = None,
    tokens: FromQuery[bool] = False,
) -> Response[Items]:
    """Give a stretch of a conversation, by default its last 50 messages, and at most 500.

    `version` reads it as it was then. A negative `start` or `stop` counts from the end.
    """
    talks = service.part(Workshop).talks
    if service.near and version is None and not tokens:
        view = talks.at_hand(conversation)
        if view is not None:
            first, last = _bounds(start, stop, len(view))
            if last - first <= _USUAL:
                return _stretch(view, first, last)

    def read() -> Response[Items]:
        talk = talks.get(conversation)
        view = talk.history.view if version is None else talk.history.at(version)
        return _stretch(view, *_bounds(start, stop, len(view)), talk.tally if tokens else None)

    return await to_thread.run_sync(read)


def _stretch(view: View, first: int, last: int, tally: Tally | None = None) -> Response[Items]:
    items = items_of(view, first, last, tally)
    answer = Items(version=view.version, length=len(view), start=first, items=items)
    return stamped(answer, view.version)


def _bounds(start: int | None, stop: int | None, length: int) -> tuple[int, int]:
    """Which stretch is meant: the last few unless said, never more than fit in one answer."""
    last = length if stop is None else min(max(stop + length if stop < 0 else stop, 0), length)
    if start is None:
        return max(last - _USUAL, 0), last
    first = min(max(start + length if start < 0 else start, 0), length)
    return first, min(max(first, last), first + _MOST)


@post("/conversations/{conversation:str}/messages", sync_to_thread=True)
def append(
    service: Served,
    conversation: FromPath[str],
    data: JSONBody[Addition],
    key: Key = None,
    if_match: Stamp = None,
) -> Response[Added]:
    """Add messages at the end; with an Idempotency-Key, doing it again adds nothing.

    With If-Match, they are only added after a version that it names.
    """
    messages = read_messages(data.messages)
    history = service.part(Workshop).talks.get(conversation).history
    followed: list[View] = []
    history.extend(messages, key=key, expect=expected(if_match), unless=followed.append)
    view, added = _outcome(history, followed, messages)
    if added:
        items = items_of(view, len(view) - len(messages), len(view))
    else:
        items = [] if key is None else kept_before(service.store.keeper, history, key)
    answer = Added(version=view.version, length=len(view), items=items)
    return stamped(answer, view.version, status=201)


def _outcome(
    history: StoredHistory, followed: list[View], messages: list[Message]
) -> tuple[View, bool]:
    """What an append came to, and whether it added anything: others may have added since."""
    view = history.view
    if not followed or view.version == followed[-1].version:
        return view, False
    mine = history.at(followed[-1].version + 1)
    ids = [message.id for message in mine[-len(messages) :]]
    added = ids == [message.id for message in messages]
    return (mine if added else view), added


@post(
    "/conversations/{conversation:str}/query",
    sync_to_thread=True,
    status_code=200,
    opt={"reads": True},
)
def query(service: Served, conversation: FromPath[str], data: JSONBody[Asked]) -> Response[Found]:
    """Find the messages that match everything given, in order."""
    view = service.store.get(conversation).view
    asked: dict[str, Any] = asdict(data)
    limit = asked.pop("limit")
    found = view.query(**asked)
    items = [FoundItem(index=index_of(view, one), message=one) for one in found[:limit]]
    answer = Found(version=view.version, total=len(found), items=items)
    return stamped(answer, view.version)


ROUTES: Final = [stretch, append, query]
