"""Messages: read a range of them, append, query, mark and search them.

Messages in a request stay raw bytes until palaver's own decoder reads them: it accepts every form
of a message and names the path of what is wrong.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from anyio import to_thread
from litestar import Response, delete, get, post, put
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import UNSET, Meta, Raw, UnsetType
from msgspec.structs import asdict

from palaver.errors import ValidationError
from palaver.history.frame import handle_of
from palaver.history.marks import overlaps
from palaver.messages import Message, Role, ToolCallPart, ToolPart, parse_messages
from palaver.server.markdown import SECONDS, Reason, render
from palaver.server.requests import IdempotencyKey, IfMatch, Shape, read_if_match, with_etag
from palaver.server.services import ServiceDependency
from palaver.server.services.conversations import display_name
from palaver.stores.annotations import (
    HIGHEST_SCORE,
    LONGEST_NOTE,
    annotate,
    read_annotations,
    read_versions,
)
from palaver.stores.records import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.history import View
    from palaver.stores import Store, StoredHistory
    from palaver.stores.annotations import Annotation
    from palaver.tokens import RunningTotal

__all__ = ["ROUTES", "RawMessages", "read_messages"]

_DEFAULT_LENGTH: Final = 50
_MAX_LENGTH: Final = 500
_LOOKED_BACK: Final = 100
"""How many versions are searched for a message that is gone, and messages for a result's call."""
_RECENT_KEYS: Final = 1_000
"""How many of the newest versions are searched for an idempotency key."""
_MARKDOWN_SECONDS: Final = 2.0
"""How long a thread is busy with the Markdown of one request; what is left then stays plain."""

_MESSAGE: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"enum": ["system", "user", "assistant", "tool"]},
        "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
        "id": {"type": "string", "minLength": 1, "maxLength": 200},
        "timestamp": {"type": "integer", "minimum": 0},
        "metadata": {"type": "object"},
    },
}
"""The least that a message needs; the reference of messages has all of it."""

RawMessages: TypeAlias = Annotated[
    Raw, Meta(extra_json_schema={"type": "array", "items": _MESSAGE})
]
"""Messages that are not decoded yet."""

_Milliseconds = Annotated[int, Meta(ge=0)]
_Handle = Annotated[str, QueryParameter(min_length=1, max_length=200)]
_Query = Annotated[str, QueryParameter(min_length=1, max_length=1_000)]
_Conversation = Annotated[str | None, QueryParameter(max_length=200)]
_Owner = Annotated[str | None, QueryParameter(min_length=1, max_length=200)]
_Limit = Annotated[int, QueryParameter(ge=1, le=200)]


class MessageItem(Shape, frozen=True):
    """A message with its index; `handle` is `msg-3` and the like, None if it has none.

    `orphans` are the ids of calls whose results it holds and which nothing before it made.
    """

    index: int
    handle: str | None
    message: Message
    marks: list[str]
    tokens: int | UnsetType = UNSET
    orphans: list[str] | UnsetType = UNSET


class MessageRange(Shape, frozen=True):
    """A range of a view, from `start` on; `length` is that of the whole view."""

    version: int
    length: int
    start: int
    items: list[MessageItem]


class AppendRequest(Shape, frozen=True):
    """Messages to append."""

    messages: RawMessages


class AppendResult(Shape, frozen=True):
    """The appended messages, with the version and length of the conversation after them."""

    version: int
    length: int
    items: list[MessageItem]


class QueryRequest(Shape, frozen=True):
    """The conditions of a query; a message must meet all of them."""

    role: Role | None = None
    roles: list[Role] | None = None
    mark: str | None = None
    recent: _Milliseconds | None = None
    range: tuple[_Milliseconds, _Milliseconds] | None = None
    since: _Milliseconds | None = None
    until: _Milliseconds | None = None
    text: str | None = None
    speaker: str | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class QueryItem(Shape, frozen=True):
    """A message that matches, and its index in the view."""

    index: int | None
    message: Message


class QueryResult(Shape, frozen=True):
    """The messages that match, and how many there are in all."""

    version: int
    total: int
    items: list[QueryItem]


class FindResult(Shape, frozen=True):
    """The indices of the messages of a version that contain a text, in order."""

    version: int
    length: int
    indices: list[int]


class MarkedMessage(Shape, frozen=True):
    """A mark on a message; `index` is None if the message is not in the view."""

    name: str
    message: str
    index: int | None
    handle: str | None


class MarkRequest(Shape, frozen=True):
    """The message to mark: its id or handle, or its index."""

    message: str | Annotated[int, Meta(ge=0)]


class MarkResult(Shape, frozen=True):
    """The version of the conversation after the change."""

    version: int


class AnnotationItem(Shape, frozen=True):
    """A note and a score on a message, since `at`; `index` is None if it is not in the view."""

    message: str
    index: int | None
    note: str
    score: int | None
    at: int
    by: str | None


class AnnotationRequest(Shape, frozen=True):
    """A message (its id or handle, or its index), and the note and the score that it gets.

    Neither takes both away.
    """

    message: str | Annotated[int, Meta(ge=0)]
    note: Annotated[str, Meta(max_length=LONGEST_NOTE)] = ""
    score: Annotated[int, Meta(ge=1, le=HIGHEST_SCORE)] | None = None
    by: Annotated[str, Meta(min_length=1, max_length=200)] | None = None


class SearchHit(Shape, frozen=True):
    """A message that contains the words.

    `index` is None if it is not in the view now. Then `seen_in` is the newest of the last hundred
    versions that has it, if one does, and `seen_at` its index there.
    """

    conversation: str
    title: str | None
    index: int | None
    message: Message
    snippet: str
    seen_in: int | None = None
    seen_at: int | None = None
    status: Status = "active"


class SearchResult(Shape, frozen=True):
    """The messages that were found, best first."""

    items: list[SearchHit]


class MarkdownRequest(Shape, frozen=True):
    """Texts that are to be shown as Markdown, at most 500."""

    texts: Annotated[list[str], Meta(max_length=500)]


class MarkdownTree(Shape, frozen=True):
    """A text as a tree of known elements; `palaver.server.markdown` says what is in it.

    The first `settled` blocks stay as they are when more is written, and the others begin at
    `offset` (in UTF-16 units). `plain` is the reason why a text has no tree.
    """

    blocks: list[Any]
    settled: int
    offset: int
    plain: Reason | None


@get("/conversations/{conversation:str}/messages")
async def read_range(
    service: ServiceDependency,
    conversation: FromPath[str],
    version: Annotated[int | None, QueryParameter(ge=0)] = None,
    start: FromQuery[int | None] = None,
    stop: FromQuery[int | None] = None,
    tokens: FromQuery[bool] = False,
) -> Response[MessageRange]:
    """Get a range of a conversation, by default its last 50 messages, and at most 500.

    `version` reads it as it was then. A negative `start` or `stop` counts from the end.
    """
    if service.reads_inline and version is None and not tokens:
        view = service.conversations.cached_view(conversation)
        if view is not None:
            first, last = _bounds(start, stop, len(view))
            if last - first <= _DEFAULT_LENGTH:
                return _read_range(view, first, last)

    def read() -> Response[MessageRange]:
        chat = service.conversations.get(conversation)
        view = chat.history.view if version is None else chat.history.at(version)
        return _read_range(view, *_bounds(start, stop, len(view)), chat.tally if tokens else None)

    return await to_thread.run_sync(read)


@post("/conversations/{conversation:str}/messages", sync_to_thread=True)
def append(
    service: ServiceDependency,
    conversation: FromPath[str],
    data: JSONBody[AppendRequest],
    key: IdempotencyKey = None,
    if_match: IfMatch = None,
) -> Response[AppendResult]:
    """Append messages; with an Idempotency-Key, sending them again adds nothing.

    With If-Match, they are only appended to a version that it names.
    """
    messages = read_messages(data.messages)
    history = service.conversations.get(conversation).history
    before: list[View] = []
    history.extend(messages, key=key, expect=read_if_match(if_match), unless=before.append)
    view, added = _find_appended(history, before, messages)
    if added:
        items = _list_items(view, len(view) - len(messages), len(view))
    else:
        items = [] if key is None else _list_items_of_key(service.store, history, key)
    result = AppendResult(version=view.version, length=len(view), items=items)
    return with_etag(result, view.version, status=201)


@post(
    "/conversations/{conversation:str}/query",
    sync_to_thread=True,
    status_code=200,
    opt={"reads": True},
)
def query(
    service: ServiceDependency, conversation: FromPath[str], data: JSONBody[QueryRequest]
) -> Response[QueryResult]:
    """Find the messages that meet all conditions, in order."""
    view = service.store.get(conversation).view
    conditions: dict[str, Any] = asdict(data)
    limit = conditions.pop("limit")
    found = view.query(**conditions)
    items = [QueryItem(index=_find_index(view, one.id), message=one) for one in found[:limit]]
    result = QueryResult(version=view.version, total=len(found), items=items)
    return with_etag(result, view.version)


@get("/conversations/{conversation:str}/find", sync_to_thread=True)
def find(
    service: ServiceDependency,
    conversation: FromPath[str],
    q: _Query,
    version: Annotated[int | None, QueryParameter(ge=0)] = None,
) -> Response[FindResult]:
    """Find a text in a whole conversation, as it is now or was at a version; case does not matter.

    It is searched for in all content: text, reasoning, the arguments and results of tools, the
    names of files, and in the notes on messages. Unlike `search` it finds parts of words, also
    where the store is encrypted.
    """
    history = service.conversations.get(conversation).history
    view = history.view if version is None else history.at(version)
    wanted = q.casefold()
    notes = read_annotations(service.store, conversation)
    noted = {name for name, one in notes.items() if wanted in one.note.casefold()}
    indices = [
        index
        for index, message in enumerate(view)
        if any(wanted in text.casefold() for text in message.texts) or message.id in noted
    ]
    result = FindResult(version=view.version, length=len(view), indices=indices)
    return with_etag(result, view.version)


@get("/conversations/{conversation:str}/marks", sync_to_thread=True)
def list_marks(
    service: ServiceDependency, conversation: FromPath[str]
) -> Response[list[MarkedMessage]]:
    """List every marked message, by mark; `index` is None for one that is not in the view."""
    view = service.store.get(conversation).view
    found = [
        MarkedMessage(
            name=name, message=message, index=view.index_of(position), handle=view.handle(message)
        )
        for name, messages in view.marks.items()
        for message in messages
        for position in [view.find(message)]
    ]
    return with_etag(found, view.version)


@put("/conversations/{conversation:str}/marks/{name:str}", sync_to_thread=True)
def mark(
    service: ServiceDependency,
    conversation: FromPath[str],
    name: FromPath[str],
    data: JSONBody[MarkRequest],
    if_match: IfMatch = None,
) -> Response[MarkResult]:
    """Put a mark on a message."""
    history = service.store.get(conversation)
    history.mark(data.message, name, expect=read_if_match(if_match))
    return with_etag(MarkResult(version=history.version), history.version)


@delete("/conversations/{conversation:str}/marks/{name:str}", sync_to_thread=True, status_code=200)
def unmark(
    service: ServiceDependency,
    conversation: FromPath[str],
    name: FromPath[str],
    message: _Handle,
    if_match: IfMatch = None,
) -> Response[MarkResult]:
    """Take a mark off a message, given by its id, its handle or its index."""
    history = service.store.get(conversation)
    which = int(message) if message.isdecimal() and message.isascii() else message
    history.unmark(which, name, expect=read_if_match(if_match))
    return with_etag(MarkResult(version=history.version), history.version)


@get("/conversations/{conversation:str}/annotations", sync_to_thread=True)
def list_annotations(
    service: ServiceDependency,
    conversation: FromPath[str],
    message: Annotated[str | None, QueryParameter(min_length=1, max_length=200)] = None,
    q: Annotated[str, QueryParameter(max_length=1_000)] = "",
    score: Annotated[int | None, QueryParameter(ge=1, le=HIGHEST_SCORE)] = None,
) -> list[AnnotationItem]:
    """List the notes and scores on messages, in the order of the messages.

    `q` limits it to notes that contain a text, `score` to messages with a score. With a `message`
    (its id) every version of its note and score is listed, the newest first.
    """
    view = service.conversations.get(conversation).history.view
    if message is not None:
        return [
            _annotation(view, one) for one in read_versions(service.store, conversation, message)
        ]
    wanted = q.casefold()
    found = [
        _annotation(view, one)
        for one in read_annotations(service.store, conversation).values()
        if wanted in one.note.casefold() and score in {None, one.score}
    ]
    return sorted(found, key=lambda one: (one.index is None, one.index or 0))


@put("/conversations/{conversation:str}/annotations", sync_to_thread=True)
def put_annotation(
    service: ServiceDependency, conversation: FromPath[str], data: JSONBody[AnnotationRequest]
) -> AnnotationItem:
    """Put a note and a score on a message; it makes no version, and those before stay readable."""
    made = annotate(
        service.store, conversation, data.message, note=data.note, score=data.score, by=data.by
    )
    service.live.emit_changed(conversation)
    return _annotation(service.conversations.get(conversation).history.view, made)


def _annotation(view: View, one: Annotation) -> AnnotationItem:
    index = _find_index(view, one.message)
    return AnnotationItem(
        message=one.message, index=index, note=one.note, score=one.score, at=one.at, by=one.by
    )


@get("/search", sync_to_thread=True)
def search(
    service: ServiceDependency,
    q: _Query,
    conversation: _Conversation = None,
    limit: _Limit = 20,
    owner: _Owner = None,
) -> SearchResult:
    """Find the messages with all these words; words "in quotes" must follow one another.

    `owner` limits it to what was written in conversations of an owner.
    """
    store = service.store
    titles: dict[str, tuple[str | None, Status]] = {}
    items: list[SearchHit] = []
    for hit in store.search(q, conversation=conversation, limit=limit, owner=owner):
        if hit.conversation not in titles:
            head = store.head(hit.conversation)
            titles[hit.conversation] = display_name(store, head), head.status
        seen: tuple[int | None, int | None] = (None, None)
        if hit.index is None:
            seen = _find_seen(store.get(hit.conversation), hit.position)
        items.append(
            SearchHit(
                conversation=hit.conversation,
                title=titles[hit.conversation][0],
                index=hit.index,
                message=hit.message,
                snippet=hit.snippet,
                seen_in=seen[0],
                seen_at=seen[1],
                status=titles[hit.conversation][1],
            )
        )
    return SearchResult(items=items)


@post("/markdown", status_code=200, opt={"reads": True})
async def parse_markdown(
    service: ServiceDependency, data: JSONBody[MarkdownRequest]
) -> list[MarkdownTree]:
    """Parse texts as Markdown, each into a tree of elements from which a page can be built."""
    left = _MARKDOWN_SECONDS

    def parse(text: str) -> MarkdownTree:
        nonlocal left
        start = time.thread_time()
        tree = render(text, seconds=min(left, SECONDS))
        left -= time.thread_time() - start
        return MarkdownTree(**tree._asdict())

    return [await to_thread.run_sync(parse, one, limiter=service.parsing) for one in data.texts]


def _find_seen(history: StoredHistory, position: int) -> tuple[int | None, int | None]:
    """The newest version that has a message which is gone, and its index there."""
    newest = history.version
    for version in range(newest - 1, max(-1, newest - _LOOKED_BACK), -1):
        index = history.at(version).index_of(position)
        if index is not None:
            return version, index
    return None, None


def read_messages(given: Raw) -> list[Message]:
    """Decode the messages of a body; an error names the path in the body."""
    try:
        return parse_messages(bytes(given))
    except ValidationError as error:
        raise error.under("$.messages") from None


def _list_items(
    view: View, start: int, stop: int, tally: RunningTotal | None = None
) -> list[MessageItem]:
    """The messages of a range, each with its index, its handle and its marks."""
    positions = [p for a, b in view.ranges_between(start, stop) for p in range(a, b)]
    if not positions:
        return []
    messages = view[start:stop]
    marks = _find_marks(view, start, stop)
    orphans = _find_orphans(view, start, messages)
    return [
        MessageItem(
            index=index,
            handle=handle_of(position, message.id, view.frame),
            message=message,
            marks=marks.get(position, []),
            tokens=UNSET if tally is None else tally.weigh(message),
            orphans=orphans.get(index, UNSET),
        )
        for index, (position, message) in enumerate(zip(positions, messages, strict=True), start)
    ]


def _find_orphans(view: View, start: int, messages: Sequence[Message]) -> dict[int, list[str]]:
    """The results without a call before them, by the index of their message."""
    if not any(message.role == "tool" for message in messages):
        return {}
    found: dict[int, list[str]] = {}
    called: set[str] = set()
    first = max(0, start - _LOOKED_BACK)
    for index, message in enumerate((*view[first:start], *messages), first):
        called |= {part.call_id for part in message.parts if isinstance(part, ToolCallPart)}
        results = [part.call_id for part in message.parts if isinstance(part, ToolPart)]
        if index >= start and (lost := [name for name in results if name not in called]):
            found[index] = lost
    return found


def _find_marks(view: View, start: int, stop: int) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for name, rope in sorted(view.mark_ropes.items()):
        for first, last in view.ranges_between(start, stop):
            for begin, end in overlaps(rope, first, last):
                for position in range(begin, end):
                    found.setdefault(position, []).append(name)
    return found


def _list_items_of_key(store: Store, history: StoredHistory, key: str) -> list[MessageItem]:
    """The messages that were appended under a key before, as far as they are in the view."""
    version, view = history.version, history.view
    keys = store.keys(history.id, max(version - _RECENT_KEYS, -1), version)
    known = next((number for number, name in keys.items() if name == key), None)
    if known is None:
        return []
    (change,) = store.journal(history.id, known - 1, 1)
    indices = (view.index_of(change.first + number) for number in range(change.count))
    return [
        item
        for index in indices
        if index is not None
        for item in _list_items(view, index, index + 1)
    ]


def _find_index(view: View, message_id: str) -> int | None:
    """The index of a message in a view; None if it is not there."""
    for position in reversed(view.log.positions_of(message_id)):
        index = view.index_of(position)
        if index is not None:
            return index
    return None


def _read_range(
    view: View, first: int, last: int, tally: RunningTotal | None = None
) -> Response[MessageRange]:
    items = _list_items(view, first, last, tally)
    found = MessageRange(version=view.version, length=len(view), start=first, items=items)
    return with_etag(found, view.version)


def _bounds(start: int | None, stop: int | None, length: int) -> tuple[int, int]:
    """The range that is meant: by default the last messages, and never more than the limit."""
    last = length if stop is None else min(max(stop + length if stop < 0 else stop, 0), length)
    if start is None:
        return max(last - _DEFAULT_LENGTH, 0), last
    first = min(max(start + length if start < 0 else start, 0), length)
    return first, min(max(first, last), first + _MAX_LENGTH)


def _find_appended(
    history: StoredHistory, before: list[View], messages: list[Message]
) -> tuple[View, bool]:
    """The view right after an append, and whether it added anything.

    `before` has the view that it followed. Others may have appended since then.
    """
    view = history.view
    if not before or view.version == before[-1].version:
        return view, False
    mine = history.at(before[-1].version + 1)
    ids = [message.id for message in mine[-len(messages) :]]
    added = ids == [message.id for message in messages]
    return (mine if added else view), added


ROUTES: Final = [
    read_range, append, query, find, list_marks, mark, unmark, list_annotations, put_annotation,
    search, parse_markdown,
]  # fmt: skip
