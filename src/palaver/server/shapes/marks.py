"""Marks, and the messages that have them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from palaver.server.bodies import Shape

__all__ = ["Mark", "Marked", "Marking"]


class Mark(Shape, frozen=True):
    """A mark on a message; `index` is its place in the view, if it has one."""

    name: str
    message: str
    index: int | None
    handle: str | None


class Marking(Shape, frozen=True):
    """The message to mark: its id or handle, or its index."""

    message: str | Annotated[int, Meta(ge=0)]


class Marked(Shape, frozen=True):
    """Where the conversation stands."""

    version: int
