"""Conversations as lists and headings show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import UNSET, Meta, Raw, UnsetType, field

from palaver.server.bodies import Shape
from palaver.server.shapes.messages import RawMessages

if TYPE_CHECKING:
    from palaver.stores.records import Head as Stored

__all__ = ["Description", "Forking", "Head", "Heads", "Opening", "Work", "head_of"]

Id = Annotated[str, Meta(min_length=1, max_length=200)]


def _none() -> Raw:
    """No messages."""
    return Raw(b"[]")


class Work(Shape, frozen=True):
    """What goes on in a conversation: a step, and calls that wait for a person."""

    stepping: bool
    waiting: int


class Head(Shape, frozen=True):
    """Where a conversation stands; `length` is how many messages it has now."""

    id: str
    title: str | None
    tags: tuple[str, ...]
    version: int
    length: int
    created: int
    updated: int
    parent: str | None
    origin: int | None
    preview: str | UnsetType = UNSET
    state: Work | UnsetType = UNSET


class Heads(Shape, frozen=True):
    """A page of conversations, the latest changed first, and where the next page begins."""

    items: list[Head]
    next: str | None


class Opening(Shape, frozen=True):
    """A conversation to begin, with some messages or none."""

    id: Id | None = None
    title: str | None = None
    tags: tuple[Id, ...] = ()
    messages: RawMessages = field(default_factory=_none)


class Description(Shape, frozen=True):
    """A new title, new tags, or both."""

    title: str | UnsetType | None = UNSET
    tags: tuple[Id, ...] | UnsetType = UNSET


class Forking(Shape, frozen=True):
    """From which version a fork goes its own way, and what it is called."""

    at: Annotated[int, Meta(ge=0)] | None = None
    id: Id | None = None
    title: str | UnsetType | None = UNSET


def head_of(
    head: Stored, *, preview: str | UnsetType = UNSET, state: Work | UnsetType = UNSET
) -> Head:
    """A head as it is told."""
    return Head(
        id=head.id,
        title=head.title,
        tags=head.tags,
        version=head.version,
        length=head.size,
        created=head.created,
        updated=head.updated,
        parent=head.parent,
        origin=None if head.parent is None else head.origin,
        preview=preview,
        state=state,
    )
