"""Pruning: what no way leads to any more lets go of what it said. Only when it is asked for.

A version that was undone, or a batch that was rolled back and left behind, is still there, and
`restore` finds it. Pruning makes room: it takes the text of messages that nothing reaches. What is
reached: the view as it is, every batch on its line (rollback), its marks, as many undos and redos
as the caller wants to keep, and whatever a fork reads as part of its log. All else keeps its place
in the log, its id, role and time, and says no more; versions are counted on, and one that selected
such messages shows them so. Frames stay: later ones point into them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from palaver.errors import Stale, ValidationError
from palaver.history.erasing import ERASED
from palaver.history.rope import Branch, Leaf
from palaver.history.versions import Versions
from palaver.stores.ancestry import read_frames
from palaver.stores.preconditions import check_expected
from palaver.stores.records import Change
from palaver.stores.rows import PRUNED, body_of
from palaver.stores.versions import StoredStops

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.history.frame import Batch, Frame
    from palaver.history.rope import Rope
    from palaver.stores.frames import FrameBook
    from palaver.stores.preconditions import Expected
    from palaver.stores.protocol import Keeper
    from palaver.stores.records import Head

__all__ = ["Pruned", "prune"]

_PAGE = 1_000


class Pruned(Struct, frozen=True, rename="camel"):
    """What pruning took away, or would: the messages' ids, and the bytes that they had."""

    conversation: str
    messages: tuple[str, ...]
    bytes: int
    done: bool


def prune(
    keeper: Keeper,
    conversation: str,
    *,
    undo: int,
    dry_run: bool,
    at: int,
    expect: Expected | None = None,
) -> Pruned:
    """Take the text of messages that nothing reaches; `dry_run` only says which."""
    if type(undo) is not int or undo < 0:
        raise ValidationError(f"must be 0 or more, not {undo!r}", path="$.undo")
    while True:
        head = keeper.head(conversation)
        check_expected(expect, head.version)
        family = keeper.family(conversation)
        book, frames = read_frames(keeper, head)
        stops = StoredStops(keeper, head.id, head.version, head.stop)
        versions = Versions.of(frames, stops)
        reached = _Reached()
        _reach_from(versions, undo, reached)
        for fork in keeper.forks(conversation):
            reached.add(0, fork.base)
        gone = list(_unreached(keeper, head, reached))
        ids = tuple(name for _, name, _ in gone)
        freed = sum(count for _, _, count in gone)
        if dry_run or not gone:
            if expect is not None:  # nothing is committed, and others may have been before us
                check_expected(expect, keeper.head(conversation).version)
            return Pruned(conversation, ids, freed, done=False)
        note = _note(head, book, versions, undo, at)
        try:
            keeper.bury(note, [position for position, _, _ in gone], family)
        except Stale:
            continue  # somebody wrote or forked meanwhile: look again
        return Pruned(conversation, ids, freed, done=True)


def _note(head: Head, book: FrameBook, versions: Versions, undo: int, at: int) -> Change:
    """The change that says so: nothing else changes, and undo leads only where something is."""
    version = head.version
    changed = replace(
        versions.frame(version),
        back=versions.back(version) if undo else None,
        redo=versions.redo(version) if undo else None,
        logged=head.length,
    )
    return Change(
        conversation=head.id, after=head.version, kind="prune", at=at, stop=head.stop,
        size=head.size, first=head.length, counts=head.counts,
        frame=book.encode(changed, head.version + 1),
    )  # fmt: skip


# ── what is reached ─────────────────────────────────────────────────────────────────────────────


class _Reached:
    """Positions that something leads to. What ropes share is walked through once."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._seen: dict[int, Branch | Leaf] = {}  # kept, so that no id is given twice
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
        """A moment: its selection, its marks, and every batch on its line."""
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
        """The stretches between two positions that nothing leads to."""
        for begin, end in sorted(self._ranges):
            if begin >= stop:
                break
            if begin > start:
                yield start, begin
            start = max(start, end)
        if start < stop:
            yield start, stop


def _reach_from(versions: Versions, undo: int, reached: _Reached) -> None:
    """The present, and so many steps back and forth."""
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


def _unreached(keeper: Keeper, head: Head, reached: _Reached) -> Iterator[tuple[int, str, int]]:
    """Position, id and bytes of each message of its own that nothing leads to."""
    for start, stop in reached.gaps(head.base, head.length):
        for first in range(start, stop, _PAGE):
            messages = keeper.messages(head.id, first, min(first + _PAGE, stop))
            for position, message in enumerate(messages, first):
                if ERASED not in message.metadata and PRUNED not in message.metadata:
                    yield position, message.id, len(body_of(message).encode())
