"""Conversations: list, create, describe, delete and fork them."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from anyio import to_thread
from litestar import Response, delete, get, patch, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import UNSET, Meta, Raw, UnsetType, field
from msgspec.structs import replace

from palaver.errors import StoreError, UnknownConversation, ValidationError
from palaver.server.errors import RequestRefused
from palaver.server.requests import IdempotencyKey, IfMatch, Shape, read_if_match, with_etag
from palaver.server.routes.messages import RawMessages, read_messages
from palaver.server.security import check_segment
from palaver.server.services import Service, ServiceDependency
from palaver.server.services.conversations import (
    ConversationSettings,
    SettingsChange,
    copy_settings,
    display_name,
    read_settings,
    write_settings,
)
from palaver.stores import id_from_key
from palaver.stores.records import ARCHIVED, PINNED, STATUS_TAGS, TRASHED, Status

if TYPE_CHECKING:
    from palaver.messages import Message
    from palaver.stores import Store
    from palaver.stores.records import Head

__all__ = ["ROUTES"]

_PREVIEW: Final = 160
"""The length of a preview, in characters."""
_FORK: Final = re.compile(r" \(fork(?: (\d+))?\)$")

_Id = Annotated[str, Meta(min_length=1, max_length=200)]
_Limit = Annotated[int, QueryParameter(ge=1, le=500)]
_Text = Annotated[str | None, QueryParameter(max_length=1_000)]
_Owner = Annotated[str | None, QueryParameter(min_length=1, max_length=200)]


def _no_messages() -> Raw:
    return Raw(b"[]")


class Activity(Shape, frozen=True):
    """Whether a step is running in a conversation, and how many calls wait for a person."""

    stepping: bool
    waiting: int


class ConversationHead(Shape, frozen=True):
    """The current state of a conversation; `length` is how many messages it has now.

    `name` is what to call it: the title, or the first line of the first user message. `settings`
    are what its steps use; a list of conversations leaves them out.
    """

    id: str
    title: str | None
    tags: tuple[str, ...]
    version: int
    length: int
    created: int
    updated: int
    parent: str | None
    origin: int | None
    owner: str | None
    status: Status
    pinned: bool
    preview: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    state: Activity | UnsetType = UNSET
    can_undo: bool | UnsetType = UNSET
    can_redo: bool | UnsetType = UNSET
    settings: ConversationSettings | UnsetType = UNSET


class ConversationList(Shape, frozen=True):
    """A page of conversations, the latest changed first, and where the next page begins."""

    items: list[ConversationHead]
    next: str | None


class NamedConversation(Shape, frozen=True):
    """A conversation and what to call it; None if it has neither a title nor a user's line."""

    id: str
    name: str | None
    updated: int


class NameList(Shape, frozen=True):
    """The conversations whose names match, the best match first."""

    items: list[NamedConversation]


class CreateRequest(Shape, frozen=True):
    """A conversation to create, with some messages or none."""

    id: _Id | None = None
    title: str | None = None
    tags: tuple[_Id, ...] = ()
    owner: _Id | None = None
    messages: RawMessages = field(default_factory=_no_messages)


class DescribeRequest(Shape, frozen=True):
    """A new title, tags or owner, new settings, another status, a pin, or several of these."""

    title: str | UnsetType | None = UNSET
    tags: tuple[_Id, ...] | UnsetType = UNSET
    owner: _Id | UnsetType | None = UNSET
    settings: SettingsChange | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET


class TrashResult(Shape, frozen=True):
    """How many conversations were deleted, and which stay since something was forked from them."""

    deleted: int
    kept: list[str]


class ForkRequest(Shape, frozen=True):
    """The version to fork at, by default the newest, and id, title and owner of the fork.

    It belongs to the owner of the conversation, unless another one is given.
    """

    at: Annotated[int, Meta(ge=0)] | None = None
    id: _Id | None = None
    title: str | UnsetType | None = UNSET
    owner: _Id | None = None


@get("/conversations", sync_to_thread=True)
def list_conversations(
    service: ServiceDependency,
    limit: _Limit = 50,
    after: _Text = None,
    tag: _Text = None,
    owner: _Owner = None,
    status: FromQuery[Status | Literal["all"]] = "active",
    pinned: FromQuery[bool | None] = None,
) -> ConversationList:
    """List conversations, the latest changed first; `after` is the `next` of the page before.

    `tag` and `owner` limit the list to the conversations with a tag, and to those of an owner;
    `pinned` to those that are pinned or not. By default those in the archive and in the trash are
    left out. A page may have fewer than `limit` conversations and yet not be the last.
    """
    wanted, without = _conditions(status, pinned=pinned)
    wanted += [] if tag is None else [tag]
    first = wanted[0] if wanted else None
    page = service.store.list(after=after, limit=limit, tag=first, owner=owner, without=without)
    items: list[ConversationHead] = []
    for head in page.conversations:
        if not all(one in head.tags for one in wanted):
            continue
        with suppress(UnknownConversation):  # it was deleted meanwhile
            items.append(_describe(service, head))
    return ConversationList(items=items, next=page.next)


def _conditions(
    status: Status | Literal["all"], *, pinned: bool | None
) -> tuple[list[str], list[str]]:
    """The tags that a listed conversation must have, and those that it must not have."""
    wanted = {"active": [], "archived": [ARCHIVED], "trashed": [TRASHED], "all": []}[status]
    without = {"active": [ARCHIVED, TRASHED], "archived": [TRASHED]}.get(status, [])
    if pinned is None:
        return wanted, without
    return ([*wanted, PINNED], without) if pinned else (wanted, [*without, PINNED])


@get("/names", sync_to_thread=True)
def find_names(
    service: ServiceDependency,
    q: Annotated[str, QueryParameter(max_length=200)] = "",
    limit: _Limit = 20,
) -> NameList:
    """Find conversations by a few letters of their names, in this order; by default the latest."""
    found = service.names.find(q, limit)
    items = [NamedConversation(id=head.id, name=name, updated=head.updated) for head, name in found]
    return NameList(items=items)


@post("/conversations", sync_to_thread=True)
def create(
    service: ServiceDependency, data: JSONBody[CreateRequest], key: IdempotencyKey = None
) -> Response[ConversationHead]:
    """Create a conversation, with some messages or none; with an Idempotency-Key, once."""
    _check_tags(data.tags)
    _check_id(data.id)
    history = service.store.create(
        read_messages(data.messages),
        id=id_from_key(key, None) if data.id is None else data.id,
        title=data.title,
        tags=data.tags,
        owner=data.owner,
        key=key,
    )
    return with_etag(_read(service, history.id), history.version, status=201)


@get("/conversations/{conversation:str}")
async def read(
    service: ServiceDependency, conversation: FromPath[str]
) -> Response[ConversationHead]:
    """Get the current state of a conversation."""
    head = service.store.head(conversation) if service.reads_inline else None
    if head is not None and _ends_with_append(head):
        settings = read_settings(service.store, conversation)
        found = replace(
            _describe(service, head), can_undo=head.version > 0, can_redo=False, settings=settings
        )
    else:
        found = await to_thread.run_sync(_read, service, conversation)
    return with_etag(found, found.version)


def _check_id(name: str | None) -> None:
    if name is not None:
        check_segment(name, "$.id")


def _check_tags(tags: tuple[str, ...]) -> None:
    """Refuse the tags in which a status is stored: one would trash a conversation unseen."""
    for index, tag in enumerate(tags):
        if tag in STATUS_TAGS:
            detail = "is palaver's own: set status or pinned"
            raise ValidationError(detail, path=f"$.tags[{index}]", rule="tag")


@patch("/conversations/{conversation:str}", sync_to_thread=True)
def describe(
    service: ServiceDependency,
    conversation: FromPath[str],
    data: JSONBody[DescribeRequest],
    if_match: IfMatch = None,
) -> Response[ConversationHead]:
    """Change title, tags, owner, settings or status of a conversation, or pin it.

    That makes no version. What is in the trash stays until it is deleted, or the trash is emptied.
    """
    _check_tags(() if data.tags is UNSET else data.tags)
    if data.settings is not UNSET:
        try:
            data.settings.check(service.tools)
        except ValidationError as error:
            raise error.under("$.settings") from None
    now = service.store.head(conversation)
    title = now.title if data.title is UNSET else data.title
    tags = now.with_status(
        None if data.status is UNSET else data.status,
        pinned=None if data.pinned is UNSET else data.pinned,
        own_tags=None if data.tags is UNSET else data.tags,
    )
    expect = read_if_match(if_match)
    service.store.describe(conversation, title=title, tags=tags, expect=expect)
    if data.owner is not UNSET:
        service.store.set_owner(conversation, data.owner, expect=expect)
    if data.settings is not UNSET:
        write_settings(service.store, conversation, data.settings)
    service.live.emit_changed(conversation)
    found = _read(service, conversation)
    return with_etag(found, found.version)


@delete("/conversations/{conversation:str}", sync_to_thread=True)
def delete_conversation(
    service: ServiceDependency, conversation: FromPath[str], if_match: IfMatch = None
) -> None:
    """Delete a conversation and everything in it, if nothing was forked from it."""
    service.store.head(conversation)
    try:
        service.store.delete(conversation, expect=read_if_match(if_match))
    except StoreError as error:
        if type(error) is not StoreError:
            raise
        raise RequestRefused(409, str(error)) from error
    service.live.emit_changed(conversation)


@delete("/trash", sync_to_thread=True, status_code=200)
def empty_trash(service: ServiceDependency) -> TrashResult:
    """Delete every conversation in the trash; one from which something was forked stays there."""
    store = service.store
    left = [head.id for head in store.each(tag=TRASHED)]
    deleted = 0
    while left:
        kept: list[str] = []
        for name in left:
            try:
                if store.head(name).status == "trashed":  # it may be taken out meanwhile
                    store.delete(name)
                    deleted += 1
                    service.live.emit_changed(name)
            except UnknownConversation:
                continue
            except StoreError as error:
                if type(error) is not StoreError:
                    raise
                kept.append(name)  # a fork of it is there: perhaps in the trash too
        if len(kept) == len(left):
            break
        left = kept
    return TrashResult(deleted=deleted, kept=left)


@post("/conversations/{conversation:str}/fork", sync_to_thread=True)
def fork(
    service: ServiceDependency,
    conversation: FromPath[str],
    data: JSONBody[ForkRequest],
    key: IdempotencyKey = None,
    if_match: IfMatch = None,
) -> Response[ConversationHead]:
    """Fork a conversation at a version; with an Idempotency-Key, once."""
    _check_id(data.id)
    history = service.store.get(conversation)
    name = id_from_key(key, conversation) if data.id is None else data.id
    made = history.fork(
        at=data.at, id=name, owner=data.owner, key=key, expect=read_if_match(if_match)
    )
    title = data.title
    if title is UNSET:
        title = _fork_title(display_name(service.store, service.store.head(conversation)))
    copy_settings(service.store, conversation, made.id)
    head = service.store.head(made.id)
    if title != head.title or head.tags != head.own_tags:
        service.store.describe(made.id, title=title, tags=head.own_tags)  # in use, and not pinned
        head = service.store.head(made.id)
    return with_etag(_shape(head), head.version, status=201)


def _fork_title(name: str | None) -> str | None:
    """The title of a fork, which is not its parent's.

    >>> _fork_title("Tea"), _fork_title("Tea (fork)"), _fork_title("Tea (fork 2)")
    ('Tea (fork)', 'Tea (fork 2)', 'Tea (fork 3)')
    """
    if name is None:
        return None
    before = _FORK.search(name)
    if before is None:
        return f"{name} (fork)"
    return f"{name[: before.start()]} (fork {int(before[1] or 1) + 1})"


def _read(service: Service, conversation: str) -> ConversationHead:
    head = _describe(service, service.store.head(conversation))
    history = service.store.get(conversation)
    settings = read_settings(service.store, conversation)
    return replace(head, can_undo=history.can_undo, can_redo=history.can_redo, settings=settings)


def _describe(service: Service, head: Head) -> ConversationHead:
    """A head with the beginning of its last message, and its activity."""
    preview: Any = UNSET
    last = _read_last(service.store, head)
    if last is not None:
        preview = " ".join(last.text[: 4 * _PREVIEW].split())[:_PREVIEW]
    stepping = service.steps.running(head.id) is not None
    state = Activity(stepping=stepping, waiting=service.steps.count_waiting(head.id))
    name = display_name(service.store, head) or UNSET
    return _shape(head, preview=preview, name=name, state=state)


def _read_last(store: Store, head: Head) -> Message | None:
    """The last message of the view, if there is one."""
    if not head.size:
        return None
    found = store.messages(head.id, head.stop - 1, head.stop) if _ends_with_append(head) else None
    if found:
        return found[0]
    history = store.get(head.id)  # which may be another one by now, or not be there any more
    return history[-1] if len(history) else None


def _ends_with_append(head: Head) -> bool:
    """Whether the last change was an append: then the log and the view end with one message."""
    return (head.framed == 0 and head.parent is None) or head.version > head.framed


def _shape(
    head: Head,
    *,
    preview: str | UnsetType = UNSET,
    name: str | UnsetType = UNSET,
    state: Activity | UnsetType = UNSET,
) -> ConversationHead:
    return ConversationHead(
        id=head.id,
        title=head.title,
        tags=head.own_tags,
        version=head.version,
        length=head.size,
        created=head.created,
        updated=head.updated,
        parent=head.parent,
        origin=None if head.parent is None else head.origin,
        owner=head.owner,
        status=head.status,
        pinned=head.pinned,
        preview=preview,
        name=name,
        state=state,
    )


ROUTES: Final = [
    list_conversations, find_names, create, read, describe, delete_conversation,
    empty_trash, fork,
]  # fmt: skip
