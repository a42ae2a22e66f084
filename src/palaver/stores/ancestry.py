"""The frames of a conversation, read after those of its ancestors that they point to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.errors import StoreDamaged
from palaver.stores.frames import FrameBook

if TYPE_CHECKING:
    from palaver.history.frame import Frame
    from palaver.stores.protocol import Keeper
    from palaver.stores.records import Head

__all__ = ["read_frames"]


def read_frames(keeper: Keeper, head: Head) -> tuple[FrameBook, list[tuple[int, Frame]]]:
    """All frames of a conversation with the first version of each, and the book they are in."""
    line = [(head, head.framed)]
    while line[-1][0].parent is not None:
        child = line[-1][0]
        line.append((keeper.head(str(child.parent)), child.origin))
        if any(line[-1][0].id == known.id for known, _ in line[:-1]):
            msg = f"{head.id} is its own ancestor"
            raise StoreDamaged(msg)
    book = FrameBook(len(line) - 1)
    frames: list[tuple[int, Frame]] = []
    for generation, (one, upto) in enumerate(reversed(line)):
        frames = [
            (kept.version, book.decode(kept.data, kept.version, generation))
            for kept in keeper.frames(one.id, -1, upto)
        ]
    if not frames:
        msg = f"{head.id} has no frame"
        raise StoreDamaged(msg)
    return book, frames
