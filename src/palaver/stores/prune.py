"""Pruning: removing the text of messages that nothing reaches any more. Only done on request.

A version that was undone, or a batch that was rolled back, is still stored, and `restore` finds it.
Pruning frees that space. Reached are: the messages of the current view, of every batch on its line
(for rollback) and of its marks, of as many undos and redos as the caller wants to keep, and of
whatever a fork reads as part of its log. All other messages keep their position, id, role and time
and lose their content; an old version that selected them shows them so. Frames stay, because later
ones point into them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from palaver.errors import Stale, ValidationError
from palaver.history import check_expected
from palaver.history.erase import ERASED
from palaver.history.frame import Branch, Leaf, Versions
from palaver.stores.frame_codec import read_frames
from palaver.stores.records import PRUNED, Change, encode_body
from palaver.stores.stored_log import StoredStops

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.history import Expected
    from palaver.history.frame import Batch, Frame, Rope
    from palaver.stores.backend import Backend
    from palaver.stores.frame_codec import FrameCodec
    from palaver.stores.records import Head

__all__ = ["Pruned", "make_note", "prune", "read_versions"]

_PAGE = 1_000


class Pruned(Struct, frozen=True, rename="camel"):
    """The messages whose text was removed, or would be: their ids, and the bytes that they had."""

    conversation: str
    messages: tuple[str, ...]
    bytes: int
    done: bool


def prune(
    backend: Backend,
    conversation: str,
    *,
    undo: int,
    dry_run: bool,
    at: int,
    expect: Expected | None = None,
) -> Pruned:
    """Remove the text of messages that nothing reaches; `dry_run` only reports which."""
    if type(undo) is not int or undo < 0:
        raise ValidationError(f"must be 0 or more, not {undo!r}", path="$.undo")
    while True:
        head = backend.head(conversation)
        check_expected(expect, head.version)
        family = backend.family(conversation)
        book, versions = read_versions(backend, head)
        reached = _Reached()
        _reach_from(versions, undo, reached)
        for fork in backend.forks(conversation):
            reached.add(0, fork.base)
        unreached = list(_find_unreached(backend, head, reached))
        ids = tuple(name for _, name, _ in unreached)
        freed = sum(count for _, _, count in unreached)
        if dry_run or not unreached:
            if expect is not None:  # nothing is committed, and others may have come first
                check_expected(expect, backend.head(conversation).version)
            return Pruned(conversation, ids, freed, done=False)
        note = make_note("prune", head, book, versions, at, undo=undo > 0)
        try:
            backend.bury(note, [position for position, _, _ in unreached], family)
        except Stale:
            continue  # another process wrote or forked meanwhile: start over
        return Pruned(conversation, ids, freed, done=True)


def read_versions(backend: Backend, head: Head) -> tuple[FrameCodec, Versions]:
    """Return the versions of a conversation, and what encodes its next frame."""
    book, frames = read_frames(backend, head)
    return book, Versions.of(frames, StoredStops(backend, head.id, head.version, head.stop))


def make_note(
    kind: str, head: Head, book: FrameCodec, versions: Versions, at: int, *, undo: bool
) -> Change:
    """Return the change that records it: the view stays, and undo leads only to what is left."""
    version = head.version
    changed = replace(
        versions.frame(version),
        back=versions.back(version) if undo else None,
        redo=versions.redo(version) if undo else None,
        logged=head.length,
    )
    return Change(
        conversation=head.id, after=head.version, kind=kind, at=at, stop=head.stop,
        size=head.size, first=head.length, counts=head.counts,
        frame=book.encode(changed, head.version + 1),
    )  # fmt: skip


# ── what is reached ─────────────────────────────────────────────────────────────────────────────


class _Reached:
    """Positions that something reaches. Parts that ropes share are visited once."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._seen: dict[int, Branch | Leaf] = {}  # held, so that no id is given twice
        self._batches: dict[int, Batch] = {}
        self._maps: dict[int, Mapping[str, Rope]] = {}

    def add(self, start: int, stop: int) -> None:
        if start < stop:
            self._ranges.append((start, stop))

    def add_rope(self, rope: Rope) -> None:
        waiting = [] if rope is None else [rope]
        while waiting:
            node = waiting.pop()
            if id(node) in self._seen:
                continue
            self._seen[id(node)] = node
            if type(node) is Branch:
                waiting += [node.left, node.right]
            else:
                assert type(node) is Leaf  # noqa: S101 - there are only two kinds
                self.add(node.start, node.stop)

    def add_frame(self, frame: Frame, stop: int) -> None:
        """Add a version: its selection, its marks, and every batch on its line."""
        self.add_rope(frame.root)
        self.add(frame.start, stop)
        if id(frame.marks) not in self._maps:
            self._maps[id(frame.marks)] = frame.marks
            for rope in frame.marks.values():
                self.add_rope(rope)
        batch = frame.line
        while batch is not None and id(batch) not in self._batches:
            self._batches[id(batch)] = batch
            self.add_rope(batch.root)
            self.add(batch.start, batch.stop)
            batch = batch.before

    def gaps(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges between two positions that nothing reaches."""
        for begin, end in sorted(self._ranges):
            if begin >= stop:
                break
            if begin > start:
                yield start, begin
            start = max(start, end)
        if start < stop:
            yield start, stop


def _reach_from(versions: Versions, undo: int, reached: _Reached) -> None:
    """Add the current version, and so many undos and redos."""
    stops = versions.stops
    version = len(stops) - 1
    reached.add_frame(versions.frame(version), stops[version])
    back, redo = versions.back(version), versions.redo(version)
    for _ in range(undo):
        if back is None and redo is None:
            return
        if back is not None:
            reached.add_frame(versions.frame(back), stops[back])
            back = versions.back(back)
        if redo is not None:
            reached.add_frame(versions.frame(redo.version), stops[redo.version])
            redo = redo.after


def _find_unreached(
    backend: Backend, head: Head, reached: _Reached
) -> Iterator[tuple[int, str, int]]:
    """Yield position, id and bytes of each of its own messages that nothing reaches."""
    for start, stop in reached.gaps(head.base, head.length):
        for first in range(start, stop, _PAGE):
            messages = backend.messages(head.id, first, min(first + _PAGE, stop))
            for position, message in enumerate(messages, first):
                if ERASED not in message.metadata and PRUNED not in message.metadata:
                    yield position, message.id, len(encode_body(message).encode())
