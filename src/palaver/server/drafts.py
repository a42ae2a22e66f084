"""An answer on its way in, as a page shows it: what has arrived so far, and what is new of it.

Pieces come as fast as a model writes; they are told at most thirty times a second, joined. Each
piece says where it begins in the draft, so that whoever looks in late can tell what it has already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import anyio
from msgspec import Struct, field

from palaver.wire.deltas import CallDelta, CallReady, CallStarted, ReasoningDelta, TextDelta

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.wire.deltas import Delta

__all__ = ["Draft", "DraftCall", "Incoming", "Piece"]

PAUSE: Final = 1 / 30
"""How long at least between two tellings, in seconds."""

Kind: TypeAlias = Literal["text", "reasoning", "call"]


class DraftCall(Struct, frozen=True):
    """A tool call that is being written."""

    call_id: str = field(name="callID")
    tool: str
    text: str


class Draft(Struct, frozen=True):
    """What has arrived of an answer."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[DraftCall, ...] = ()


class Piece(Struct, frozen=True, omit_defaults=True):
    """What came in since the last telling; `start` is where it begins in its text."""

    kind: Kind
    text: str
    start: int
    name: str | None = None
    call_id: str | None = field(default=None, name="callID")


class _Growing:
    """One text of a draft: how much of it was told already."""

    def __init__(self, kind: Kind, name: str | None = None, call_id: str | None = None) -> None:
        self.kind: Kind = kind
        self.name = name
        self.call_id = call_id
        self._pieces: list[str] = []
        self._new: list[str] = []
        self._told = 0
        self._is_new = kind == "call"  # a call is told when it begins, with nothing in it yet

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self._new.append(text)

    @property
    def text(self) -> str:
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    def news(self) -> Piece | None:
        text = "".join(self._new)
        if not (text or self._is_new):
            return None
        piece = Piece(self.kind, text, self._told, self.name, self.call_id)
        self._told += len(text)
        self._new.clear()
        self._is_new = False
        return piece


class Incoming:
    """Takes deltas in, keeps the draft, and tells pieces at a pace that a page can follow.

    >>> told = []
    >>> incoming = Incoming(told.append)
    >>> incoming.heard(TextDelta("Ye")), incoming.heard(TextDelta("s."))
    (None, None)
    >>> incoming.flush()
    >>> incoming.draft.text, [piece.text for piece in told]
    ('Yes.', ['Yes.'])
    """

    def __init__(self, tell: Callable[[Piece], Any]) -> None:
        """Tell pieces to a function that does not wait."""
        self._tell = tell
        self._texts: dict[Any, _Growing] = {}
        self._news = anyio.Event()

    @property
    def draft(self) -> Draft:
        """What has arrived."""
        calls = tuple(
            DraftCall(each.call_id or "", each.name or "", each.text)
            for each in self._texts.values()
            if each.kind == "call"
        )
        return Draft(self._said("text"), self._said("reasoning"), calls)

    def _said(self, kind: Kind) -> str:
        return self._texts[kind].text if kind in self._texts else ""

    def heard(self, delta: Delta) -> None:
        """Take in what came with one event of a stream."""
        if isinstance(delta, TextDelta):
            self._of("text").add(delta.text)
        elif isinstance(delta, ReasoningDelta):
            self._of("reasoning").add(delta.text)
        elif isinstance(delta, CallStarted):
            self._texts[delta.index] = _Growing("call", delta.tool, delta.call_id)
        elif isinstance(delta, CallDelta) and delta.index in self._texts:
            self._texts[delta.index].add(delta.text)
        elif isinstance(delta, CallReady) and delta.index not in self._texts:
            self._texts[delta.index] = _Growing("call", delta.tool, delta.call_id)
            self._texts[delta.index].add(delta.raw)
        else:
            return
        self._news.set()

    def said(self, text: str, name: str) -> None:
        """Take in what a member of a team says."""
        self._texts.setdefault("text", _Growing("text", name)).add(text)
        self._news.set()

    def _of(self, kind: Kind) -> _Growing:
        return self._texts.setdefault(kind, _Growing(kind))

    def clear(self) -> None:
        """The answer is stored, or given up: the next one begins."""
        self.flush()
        self._texts.clear()

    def flush(self) -> None:
        """Tell what is new now."""
        for text in self._texts.values():
            piece = text.news()
            if piece is not None:
                self._tell(piece)

    async def keep_telling(self) -> None:
        """Tell what is new as it comes, until this is called off."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            self.flush()
            await anyio.sleep(PAUSE)
