"""The frames of a conversation, with those of its ancestors that they point to."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from palaver.errors import StoreDamaged
from palaver.stores.frames import FrameBook

if TYPE_CHECKING:
    from palaver.history.frame import Frame
    from palaver.stores.protocol import Keeper
    from palaver.stores.records import Head

__all__ = ["open_book", "read_frames"]


def open_book(keeper: Keeper, head: Head) -> FrameBook:
    """A book for the frames of a conversation, which reads those of its ancestors when needed."""
    if head.parent is None:
        return FrameBook()
    return FrameBook(keeper.generation(head.id), partial(keeper.ancestor_frames, head.id))


def read_frames(keeper: Keeper, head: Head) -> tuple[FrameBook, list[tuple[int, Frame]]]:
    """All frames of a conversation with the first version of each, and the book they are in."""
    book = open_book(keeper, head)
    kept = keeper.frames(head.id, -1, head.framed)
    frames = [(one.version, frame) for one, frame in zip(kept, book.decode_all(kept), strict=True)]
    if not frames:
        msg = f"{head.id} has no frame"
        raise StoreDamaged(msg)
    return book, frames
