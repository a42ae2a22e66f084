"""A rewrite: the next selection spelled out, old stretches and new messages in any order.

It is what compaction needs and the seven operations can't say in one: drop this stretch, put a
summary in its place, clear those three outputs. One rewrite is one batch, like any other edit, and
is undone like any other. It is for programs: it has no JSON form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from palaver.errors import ValidationError
from palaver.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.history.view import View

__all__ = ["Piece", "Rewrite", "pieces_of"]

Piece: TypeAlias = range | Message | tuple[int, Message]
"""Messages that stay, by their indexes; a new message; a new message in the place of an old one."""


class Rewrite(Struct, frozen=True):
    """The next selection, piece by piece; `reason` is what the batch before it will say.

    Indexes are those of the current selection, or with `of_log` positions in the log: then it may
    take back what was left out before.
    """

    pieces: tuple[Piece, ...]
    reason: str = "COMPACT"
    of_log: bool = False

    @property
    def messages(self) -> tuple[Message, ...]:
        """The new messages, in order."""
        return tuple(
            piece[1] if isinstance(piece, tuple) else piece
            for piece in self.pieces
            if not isinstance(piece, range)
        )

    def origins(self) -> Iterator[tuple[int, int]]:
        """Which new message stands for which index."""
        count = 0
        for piece in self.pieces:
            if isinstance(piece, tuple):
                yield count, piece[0]
            count += not isinstance(piece, range)


def pieces_of(rewrite: Rewrite, view: View) -> Iterator[tuple[int, int]]:
    """The stretches of the log, in order; new messages count from -1 downwards."""
    length, new, seen = len(view), 0, set[int]()
    for piece in rewrite.pieces:
        if not isinstance(piece, range):
            new += 1
            yield -new, -new + 1
            continue
        if piece.step != 1 or not 0 <= piece.start <= piece.stop <= length:
            detail = f"must be a range of indexes from 0 to {length}, not {piece}"
            raise ValidationError(detail, path="$.pieces", rule="CV-09")
        for index in piece:
            if index in seen:
                detail = f"must not have a message twice: index {index}"
                raise ValidationError(detail, path="$.pieces", rule="CV-09")
            seen.add(index)
        yield from view.ranges_between(piece.start, piece.stop)
