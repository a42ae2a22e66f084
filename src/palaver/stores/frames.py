"""Frames as bytes: what a change made new, and references to what was there before.

A rope shares almost everything with the one before it, and so it is kept: a frame's bytes hold the
nodes that are new, and point to the others by the version that brought them. Reading all frames of
a conversation in order therefore gives every rope that ever was, sharing as before.

Whoever was forked points into the frames of its parent: a reference names the generation (0 is the
first ancestor), the version, and which node of that version. Only those of the ancestors' frames
are read that are pointed to, and what these point to in turn; most forks point to none. A fork that
was taken out of its family (see `snapshots`) has no parent to point to: its first frame brings its
past batches along, which count as those of versions before 0.
"""

from __future__ import annotations

from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from palaver.errors import StoreDamaged
from palaver.history.frame import Batch, Frame, Redo, session_after
from palaver.history.persistent import PersistentMap, changes_between
from palaver.history.rope import Branch, Leaf, Rope
from palaver.stores.rows import counts_of, packed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from palaver.stores.records import Frames

    Ancestors = Callable[[Sequence[tuple[int, int, int]]], Iterable[tuple[int, int, bytes]]]

__all__ = ["FrameBook"]

V = TypeVar("V")
Ref = tuple[int, int, int]
BatchRef = tuple[int, int]
FrameRef = tuple[int, int]
"""A frame by its generation and version."""

_AHEAD: Final = 16
"""Frames that are read ahead of what is asked for, at first; four times as many every round."""
_ALL: Final = 1 << 62

_FEW: Final = 16
"""A map of no more names than these is written whole."""
_MarkChanges: TypeAlias = tuple[BatchRef, dict[str, Ref | None]]
"""The marks of an earlier frame, and what differs from them; None where a mark is gone."""
_MergedChanges: TypeAlias = tuple[BatchRef, dict[str, int]]


class _Batch(Struct, frozen=True, array_like=True):
    index: int
    before: tuple[int, int] | None
    jump: tuple[int, int] | None
    root: Ref | None
    start: int
    stop: int
    opened: int
    ended: int
    reason: str
    place: int | None
    merged: dict[str, int] | _MergedChanges = {}


class _Frame(Struct, frozen=True, rename={"root": "r", "start": "s", "line": "l", "opened": "o",
             "marks": "m", "team_task": "t", "logged": "g", "back": "b", "redo": "d", "nodes": "n",
             "batch": "e", "merged": "w", "past": "p"}, omit_defaults=True):  # fmt: skip
    """The written form. `nodes` has leaves of five numbers and branches of two references."""

    root: Ref | None = None
    start: int = 0
    line: tuple[int, int] | None = None
    opened: int = 0
    marks: dict[str, Ref] | _MarkChanges = {}
    team_task: str | None = None
    logged: int = 0
    back: int | None = None
    redo: tuple[int, bool] | None = None
    nodes: list[list[Any]] = []
    batch: _Batch | None = None
    merged: dict[str, int] | _MergedChanges = {}
    past: list[_Batch] = []


_decoder = msgspec.json.Decoder(_Frame)
_encoder = msgspec.json.Encoder()
_UNREADABLE: Final = (msgspec.MsgspecError, KeyError, TypeError, ValueError, IndexError)


class FrameBook:
    """All frames of a conversation and its ancestors, as they are read and written.

    Nodes and batches live as long as the book does, so Python's own identity tells them apart.
    """

    def __init__(self, generation: int = 0, ancestors: Ancestors | None = None) -> None:
        """Begin empty.

        `ancestors` answers the frames of earlier generations: for each generation, after a version
        and up to another, all there are, as generation, version and bytes.
        """
        self.generation = generation
        self._ancestors = ancestors
        self._inherited: set[FrameRef] = set()
        self._nodes: dict[Ref, Leaf | Branch] = {}
        self._refs: dict[int, Ref] = {}
        self._batches: dict[tuple[int, int], Batch] = {}
        self._batch_refs: dict[int, tuple[int, int]] = {}
        self._redo: dict[tuple[int, int], Redo | None] = {}
        self._marks: _Maps[Rope] = _Maps()
        self._merged: _Maps[int] = _Maps()
        self.marked: Iterable[str] = ()
        """The names of the marks that stood in the last frame that was decoded."""

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def encode(self, frame: Frame, version: int) -> bytes:
        """A frame as bytes; `keep` it once they are safe."""
        nodes: list[list[Any]] = []
        new: dict[int, Ref] = {}

        def ref(rope: Rope) -> Ref | None:
            if rope is None:
                return None
            for node in _new_nodes(rope, self._refs, new):
                written: list[Any]
                if type(node) is Leaf:
                    written = [node.start, node.stop, *counts_of(node.counts)]
                else:
                    assert type(node) is Branch  # noqa: S101 - there are only two kinds
                    written = [self._ref(node.left, new), self._ref(node.right, new)]
                new[id(node)] = (self.generation, version, len(nodes))
                nodes.append(written)
            return self._ref(rope, new)

        unknown = self._unknown_batches(frame.line)
        names = {id(batch): name for name, batch in self._names(unknown, version)}

        def named(batch: Batch | None) -> BatchRef | None:
            return None if batch is None else names.get(id(batch)) or self._batch_refs[id(batch)]

        ended = [
            _Batch(
                batch.index, named(batch.before), named(batch.jump), ref(batch.root), batch.start,
                batch.stop, batch.opened, batch.ended, batch.reason, batch.place,
                self._written_merged(batch.merged),
            )
            for batch in unknown
        ]  # fmt: skip
        redo, root = frame.redo, ref(frame.root)
        base, changed = self._marks.written(frame.marks)
        marks: dict[str, Any] = {name: ref(rope) for name, rope in changed.items()}
        return _encoder.encode(
            _Frame(
                root=root,
                start=frame.start,
                line=named(frame.line),
                opened=frame.opened,
                marks=marks if base is None else (base, marks),
                team_task=frame.team_task,
                logged=frame.logged,
                back=frame.back,
                redo=None if redo is None else (redo.version, redo.after is not None),
                nodes=nodes,
                batch=ended[-1] if ended else None,
                merged=self._written_merged(frame.merged),
                past=ended[:-1],
            )
        )

    def _written_merged(self, merged: Mapping[str, int]) -> dict[str, int] | _MergedChanges:
        base, changed = self._merged.written(merged)
        numbers = {name: number for name, number in changed.items() if number is not None}
        if base is None or len(numbers) < len(changed):
            return dict(merged)
        return base, numbers

    def _ref(self, node: Leaf | Branch, new: dict[int, Ref]) -> Ref:
        return self._refs.get(id(node)) or new[id(node)]

    def _unknown_batches(self, batch: Batch | None) -> list[Batch]:
        """The batches of a line without a name yet, oldest first: one at most, save for a past."""
        found: list[Batch] = []
        while batch is not None and id(batch) not in self._batch_refs:
            found.append(batch)
            batch = batch.before
        return found[::-1]

    def _names(self, batches: list[Batch], version: int) -> Iterator[tuple[BatchRef, Batch]]:
        """What batches that are new in a version are called: the last by it, others before all."""
        for place, batch in enumerate(batches, 1):
            yield (self.generation, version if place == len(batches) else -place), batch

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def decode(self, data: bytes, version: int) -> Frame:
        """Read the frame of a version and keep its nodes; frames come in the order of versions."""
        try:
            written = _decoder.decode(data)
            if self._ancestors is not None:
                self._inherit(_points_to(written), self._ancestors)
            return self._read(written, self.generation, version)
        except _UNREADABLE as error:
            msg = f"the frame of version {version} can't be read: {error}"
            raise StoreDamaged(msg) from None

    def decode_all(self, frames: Sequence[Frames]) -> list[Frame]:
        """Read frames in their order, with what they point to in ancestors' frames all at once."""
        if self._ancestors is not None:
            try:
                written = (_decoder.decode(kept.data) for kept in frames)
                pointed = set(chain.from_iterable(map(_points_to, written)))
                self._inherit(pointed, self._ancestors)
            except _UNREADABLE as error:
                msg = f"frames of its ancestors can't be read: {error}"
                raise StoreDamaged(msg) from None
        return [self.decode(kept.data, kept.version) for kept in frames]

    def _inherit(self, wanted: Iterable[FrameRef], ancestors: Ancestors) -> None:
        """Read the ancestors' frames that are wanted, and whatever these point to.

        They are asked for in rounds. The first asks for no more than is wanted; where a round leads
        to further ones, each reads four times as far ahead, so that there are O(log n) rounds.
        """
        found: dict[FrameRef, bytes] = {}
        reached: dict[FrameRef, _Frame] = {}
        waiting = self._unread(wanted, reached)
        rounds = 0
        while waiting:
            missing = waiting - found.keys()
            if missing:
                for generation, version, data in ancestors(_ahead(missing, rounds)):
                    found[generation, version] = data
                rounds += 1
            frames = {ref: _decoder.decode(found[ref]) for ref in waiting}
            reached |= frames
            waiting = self._unread(chain.from_iterable(map(_points_to, frames.values())), reached)
        for (generation, version), frame in sorted(reached.items(), key=itemgetter(0)):
            self._read(frame, generation, version)  # what it points to is older, and so is read
        self._inherited |= reached.keys()

    def _unread(self, refs: Iterable[FrameRef], reached: Collection[FrameRef]) -> set[FrameRef]:
        """Those that are ancestors' frames and not read yet."""
        known, own = self._inherited, self.generation
        return {ref for ref in refs if ref[0] < own and ref not in known and ref not in reached}

    def _read(self, written: _Frame, generation: int, version: int) -> Frame:
        for index, node in enumerate(written.nodes):
            if len(node) == 2:  # noqa: PLR2004 - a branch has two
                left, right = self._nodes[tuple(node[0])], self._nodes[tuple(node[1])]
                height = max(left.height, right.height) + 1
                made: Leaf | Branch = Branch(left, right, left.counts + right.counts, height)
            else:
                start, stop, *counts = node
                made = Leaf(start, stop, packed(stop - start, *counts))
            self._name((generation, version, index), made)
        if written.past and version:
            msg = "only a first frame brings a past along"
            raise ValueError(msg)
        for place, batch in enumerate(written.past, 1):
            self._name_batch((generation, -place), self._read_batch(batch))
        if written.batch is not None:
            self._name_batch((generation, version), self._read_batch(written.batch))
        redo = None
        if written.redo is not None:
            target, chained = written.redo
            redo = Redo(target, self._redo.get((generation, target)) if chained else None)
        self._redo[generation, version] = redo
        marks = self._read_marks(written.marks)
        merged = self._read_merged(written.merged)
        self._marks.add((generation, version), marks)
        self._merged.add((generation, version), merged)
        return Frame(
            root=self._node(written.root),
            start=written.start,
            line=None if written.line is None else self._batches[written.line],
            opened=written.opened,
            marks=marks,
            team_task=written.team_task,
            logged=written.logged,
            back=written.back,
            redo=redo,
            merged=merged,
        )

    def _read_marks(self, written: dict[str, Ref] | _MarkChanges) -> Mapping[str, Rope]:
        base, changed = (None, written) if isinstance(written, dict) else written
        self.marked = changed
        ropes = {name: self._node(ref) for name, ref in changed.items()}
        return ropes if base is None else self._marks.changed(base, ropes)

    def _read_merged(self, written: dict[str, int] | _MergedChanges) -> Mapping[str, int]:
        return written if isinstance(written, dict) else self._merged.changed(*written)

    def _read_batch(self, written: _Batch) -> Batch:
        before = None if written.before is None else self._batches[written.before]
        return Batch(
            written.index,
            before,
            None if written.jump is None else self._batches[written.jump],
            self._node(written.root),
            written.start, written.stop, written.opened, written.ended, written.reason,
            written.place, self._read_merged(written.merged),
            session_after(before, written.opened),
        )  # fmt: skip

    def _node(self, ref: Ref | None) -> Rope:
        return None if ref is None else self._nodes[ref]

    def _name(self, ref: Ref, node: Leaf | Branch) -> None:
        self._nodes[ref] = node
        self._refs[id(node)] = ref

    def _name_batch(self, ref: tuple[int, int], batch: Batch) -> None:
        self._batches[ref] = batch
        self._batch_refs[id(batch)] = ref

    def nodes_of(self, version: int) -> Iterator[Leaf | Branch]:
        """The nodes that a version of this conversation brought, children before their parents."""
        index = 0
        while (node := self._nodes.get((self.generation, version, index))) is not None:
            yield node
            index += 1

    def batches_of(self, version: int) -> Iterator[Batch]:
        """The batches that a version brought; the first may have brought a past along."""
        place = -1
        while not version and (batch := self._batches.get((self.generation, place))) is not None:
            yield batch
            place -= 1
        if (batch := self._batches.get((self.generation, version))) is not None:
            yield batch

    def keep(self, frame: Frame, version: int) -> None:
        """The bytes are safe: from now on this frame's nodes and batch can be pointed to."""
        index = 0
        unknown = self._unknown_batches(frame.line)
        ropes = [batch.root for batch in unknown]
        _, changed = self._marks.written(frame.marks)
        for rope in (*ropes, frame.root, *changed.values()):
            if rope is None:
                continue
            for node in _new_nodes(rope, self._refs, {}):
                self._name((self.generation, version, index), node)
                index += 1
        for name, batch in self._names(unknown, version):
            self._name_batch(name, batch)
        self._redo[self.generation, version] = frame.redo
        self._marks.add((self.generation, version), frame.marks)
        self._merged.add((self.generation, version), frame.merged)


class _Maps(Generic[V]):
    """The maps of all frames of one kind: a large one is written as what differs from another."""

    def __init__(self) -> None:
        self._known: dict[BatchRef, Mapping[str, V]] = {}
        self._refs: dict[int, BatchRef] = {}
        self._last: BatchRef | None = None

    def add(self, ref: BatchRef, found: Mapping[str, V]) -> None:
        """Note the map of a frame; one that an earlier frame had keeps its first name."""
        if len(found) > _FEW:
            first = self._refs.setdefault(id(found), ref)
            self._known.setdefault(first, found)
            self._last = first

    def written(self, now: Mapping[str, V]) -> tuple[BatchRef | None, Mapping[str, V | None]]:
        """A map as it is written: the name of another and what differs, or all of it."""
        if len(now) <= _FEW:
            return None, now
        ref = self._refs.get(id(now))
        if ref is not None:
            return ref, {}
        if self._last is not None:
            changes = changes_between(self._known[self._last], now)
            if len(changes) < len(now):
                return self._last, changes
        return None, now

    def changed(self, base: BatchRef, changes: Mapping[str, V | None]) -> Mapping[str, V]:
        """The map of a name, with changes."""
        if not changes:
            return self._known[base]
        found = PersistentMap.of(self._known[base])
        for name, value in changes.items():
            found = found.remove(name) if value is None else found.set(name, value)
        return found


def _points_to(written: _Frame) -> Iterator[FrameRef]:
    """The frames that a frame points to, its own among them."""
    batches = (*written.past, written.batch) if written.batch is not None else written.past
    base, marks = (None, written.marks) if isinstance(written.marks, dict) else written.marks
    ropes = (written.root, *marks.values(), *(batch.root for batch in batches))
    branches = (node for node in written.nodes if len(node) == 2)  # noqa: PLR2004 - see `_read`
    for rope in chain(ropes, chain.from_iterable(branches)):
        if rope is not None:
            yield rope[0], rope[1]
    for merged in (written.merged, *(batch.merged for batch in batches)):
        if not isinstance(merged, dict):
            yield merged[0]
    links = (written.line, *chain.from_iterable((batch.before, batch.jump) for batch in batches))
    for link in (base, *links):
        if link is not None:
            yield link[0], max(link[1], 0)  # the first frame brings those of before 0


def _ahead(missing: Collection[FrameRef], rounds: int) -> list[tuple[int, int, int]]:
    """What to ask for: a generation, after a version, up to another; and the more, the later."""
    if not rounds:
        return [(generation, version - 1, version) for generation, version in sorted(missing)]
    far = _AHEAD * 4**rounds
    asked: dict[int, tuple[int, int]] = {}
    for generation, version in missing:
        after, upto = asked.get(generation, (version, version))
        asked[generation] = min(after, version - far), max(upto, version)
    for missed in list(asked):
        for generation in range(max(missed - far // _AHEAD, 0), missed):
            asked.setdefault(generation, (-1, _ALL))
    return [(generation, *versions) for generation, versions in sorted(asked.items())]


def _new_nodes(
    rope: Leaf | Branch, known: dict[int, Ref], also: dict[int, Ref]
) -> Iterator[Leaf | Branch]:
    """The nodes of a rope that have no name yet, children before their parents."""
    waiting: list[tuple[Leaf | Branch, bool]] = [(rope, False)]
    while waiting:
        node, ready = waiting.pop()
        if id(node) in known or id(node) in also:
            continue
        if ready or type(node) is Leaf:
            yield node
            continue
        assert type(node) is Branch  # noqa: S101 - there are only two kinds
        waiting += [(node, True), (node.right, False), (node.left, False)]
