"""Frames as bytes: the nodes that a change made, and references to those that were there before.

A rope shares almost everything with the one before it, and is stored that way: a frame's bytes hold
the nodes that are new and refer to the others by the version that brought them. Reading all frames
of a conversation in order therefore gives every rope that ever was, sharing as before.

A fork refers to the frames of its ancestors: a reference names the generation (0 is the first
ancestor), the version, and the node's index in that version. Only the ancestors' frames that are
referred to are read, and those that these refer to in turn; most forks refer to none. A fork that
was imported without its family has no parent to refer to: its first frame contains its past
batches, which are numbered like versions before 0.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from palaver.errors import StoreDamaged
from palaver.history.frame import Batch, Branch, Frame, Leaf, Redo, Rope, session_after
from palaver.history.marks import PersistentMap, changes_between
from palaver.stores.records import pack_counts, refuse_sealed, unpack_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from palaver.stores.backend import Backend
    from palaver.stores.records import Head, StoredFrame

    Ancestors = Callable[[Sequence[tuple[int, int, int]]], Iterable[tuple[int, int, bytes]]]

__all__ = ["FrameCodec", "open_codec", "read_frames"]

V = TypeVar("V")
Ref = tuple[int, int, int]
BatchRef = tuple[int, int]
FrameRef = tuple[int, int]
"""A frame by its generation and version."""

_AHEAD: Final = 16
"""How many frames are read ahead at first; four times as many in every round."""
_ALL: Final = 1 << 62

_BATCHES: Final = 1 << 32
"""More batches than one frame adds."""

_FEW: Final = 16
"""A map of at most so many names is written in full."""
_MarkChanges: TypeAlias = tuple[BatchRef, dict[str, Ref | None]]
"""The marks of an earlier frame, and what differs from them; None where a mark is gone."""
_MergedChanges: TypeAlias = tuple[BatchRef, dict[str, int]]


class _BatchData(Struct, frozen=True, array_like=True):
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
    numbering: tuple[int, int] | None = None


class _FrameData(Struct, frozen=True, rename={"root": "r", "start": "s", "line": "l", "opened": "o",
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
    batch: _BatchData | None = None
    merged: dict[str, int] | _MergedChanges = {}
    past: list[_BatchData] = []


_decoder = msgspec.json.Decoder(_FrameData)
_encoder = msgspec.json.Encoder()
_UNREADABLE: Final = (msgspec.MsgspecError, KeyError, TypeError, ValueError, IndexError)


def read_frames(
    backend: Backend,
    head: Head,
    known: Sequence[StoredFrame] | None = None,
) -> tuple[FrameCodec, list[tuple[int, Frame]]]:
    """Read all frames of a conversation, each with its first version, and return their codec.

    `known` are those frames, if they were read already.
    """
    codec = open_codec(backend, head)
    stored = backend.frames(head.id, -1, head.framed) if known is None else known
    frames = [
        (found.version, frame)
        for found, frame in zip(stored, codec.decode_all(stored), strict=True)
    ]
    if not frames:
        msg = f"{head.id} has no frame"
        raise StoreDamaged(msg)
    return codec, frames


def open_codec(backend: Backend, head: Head) -> FrameCodec:
    """Return a codec for a conversation's frames, which reads those of its ancestors on demand."""
    if head.parent is None:
        return FrameCodec()
    return FrameCodec(backend.generation(head.id), partial(backend.ancestor_frames, head.id))


class FrameCodec:
    """Encodes and decodes the frames of a conversation, and decodes those of its ancestors.

    Nodes and batches live as long as the codec, so they are told apart by `id()`.
    """

    def __init__(self, generation: int = 0, ancestors: Ancestors | None = None) -> None:
        """Create a codec that knows no frames.

        `ancestors` returns frames of earlier generations: for each generation, those after a
        version and up to another, as generation, version and bytes.
        """
        self.generation = generation
        self._ancestors = ancestors
        self._inherited: set[FrameRef] = set()
        self._nodes: dict[Ref, Leaf | Branch] = {}
        self._refs: dict[int, Ref] = {}
        self._batches: dict[tuple[int, int], Batch] = {}
        self._batch_refs: dict[int, tuple[int, int]] = {}
        self._redo: dict[tuple[int, int], Redo | None] = {}
        self._newest = -1  # the newest version of its own that it knows a frame of
        self._marks: _Maps[Rope] = _Maps()
        self._merged: _Maps[int] = _Maps()
        self.marked: Iterable[str] = ()
        """The names of the marks that the last decoded frame contained."""

    def branch(self, version: int, frame: Frame, ancestors: Ancestors) -> FrameCodec:
        """Return the codec of a new fork from a version, which knows what there was by then.

        The fork begins with a frame of which nothing is new: it selects what that version did.
        """
        child = FrameCodec(self.generation + 1, ancestors)

        def known(generation: int, number: int) -> bool:
            return generation < self.generation or _version_of(number) <= version

        if version >= self._newest:
            child._nodes, child._refs = self._nodes.copy(), self._refs.copy()
            child._batches, child._batch_refs = self._batches.copy(), self._batch_refs.copy()
            child._redo = self._redo.copy()
        else:
            for ref, node in self._nodes.items():
                if known(ref[0], ref[1]):
                    child._add_node(ref, node)
            for name, batch in self._batches.items():
                if known(*name):
                    child._add_batch(name, batch)
            child._redo = {ref: redo for ref, redo in self._redo.items() if known(*ref)}
        child._inherited = {*child._redo}
        for maps, own in ((self._marks, child._marks), (self._merged, child._merged)):
            maps.copy(own, known)
        child.keep(frame, 0)
        return child

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def encode(self, frame: Frame, version: int) -> bytes:
        """Return a frame as bytes; call `keep` once they are committed."""
        nodes: list[list[Any]] = []
        new: dict[int, Ref] = {}

        def ref(rope: Rope) -> Ref | None:
            if rope is None:
                return None
            for node in _new_nodes(rope, self._refs, new):
                written: list[Any]
                if type(node) is Leaf:
                    written = [node.start, node.stop, *unpack_counts(node.counts)]
                else:
                    assert type(node) is Branch  # noqa: S101 - there are only two kinds
                    written = [self._ref(node.left, new), self._ref(node.right, new)]
                new[id(node)] = (self.generation, version, len(nodes))
                nodes.append(written)
            return self._ref(rope, new)

        unknown = self._unknown_batches(frame.line)
        names = {id(batch): name for name, batch in self._references_of(unknown, version)}

        def named(batch: Batch | None) -> BatchRef | None:
            return None if batch is None else names.get(id(batch)) or self._batch_refs[id(batch)]

        ended = [
            _BatchData(
                batch.index, named(batch.before), named(batch.jump), ref(batch.root), batch.start,
                batch.stop, batch.opened, batch.ended, batch.reason, batch.place,
                self._written_merged(batch.merged), batch.numbering,
            )
            for batch in unknown
        ]  # fmt: skip
        redo, root = frame.redo, ref(frame.root)
        base, changed = self._marks.written(frame.marks)
        marks: dict[str, Any] = {name: ref(rope) for name, rope in changed.items()}
        return _encoder.encode(
            _FrameData(
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
        """Return the batches of a line that have no reference yet, oldest first; usually one."""
        found: list[Batch] = []
        while batch is not None and id(batch) not in self._batch_refs:
            found.append(batch)
            batch = batch.before
        return found[::-1]

    def _references_of(
        self, batches: list[Batch], version: int
    ) -> Iterator[tuple[BatchRef, Batch]]:
        """Yield the references of the new batches: the last by its version, the others below 0."""
        for place, batch in enumerate(batches, 1):
            number = version if place == len(batches) else _past(version, place)
            yield (self.generation, number), batch

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def decode(self, data: bytes, version: int) -> Frame:
        """Decode the frame of a version; frames must come in the order of versions."""
        return self._decode(data, version, self._ancestors)

    def _decode(self, data: bytes, version: int, ancestors: Ancestors | None) -> Frame:
        """Decode a frame; without `ancestors`, what it refers to in theirs has been read."""
        try:
            written = _decoder.decode(data)
            if ancestors is not None:
                self._inherit(_references(written), ancestors)
            return self._read(written, self.generation, version)
        except _UNREADABLE as error:
            refuse_sealed(data)
            msg = f"the frame of version {version} can't be read: {error}"
            raise StoreDamaged(msg) from None

    def decode_all(self, frames: Sequence[StoredFrame]) -> list[Frame]:
        """Decode frames in order; what they refer to in ancestors' frames is read all at once."""
        if self._ancestors is not None:
            try:
                written = (_decoder.decode(stored.data) for stored in frames)
                pointed = set(chain.from_iterable(map(_references, written)))
                self._inherit(pointed, self._ancestors)
            except _UNREADABLE as error:
                for stored in frames:
                    refuse_sealed(stored.data)
                msg = f"frames of its ancestors can't be read: {error}"
                raise StoreDamaged(msg) from None
        return [self._decode(stored.data, stored.version, None) for stored in frames]

    def _inherit(self, wanted: Iterable[FrameRef], ancestors: Ancestors) -> None:
        """Read the ancestors' frames that are wanted, and the frames that these refer to.

        They are read in rounds. The first reads only what is wanted; each further round reads four
        times as far ahead, so that there are O(log n) rounds.
        """
        found: dict[FrameRef, bytes] = {}
        reached: dict[FrameRef, _FrameData] = {}
        waiting = self._unread(wanted, reached)
        rounds = 0
        while waiting:
            missing = waiting - found.keys()
            if missing:
                for generation, version, data in ancestors(_plan_reads(missing, rounds)):
                    found[generation, version] = data
                rounds += 1
            frames = {ref: _decoder.decode(found[ref]) for ref in waiting}
            reached |= frames
            waiting = self._unread(chain.from_iterable(map(_references, frames.values())), reached)
        for (generation, version), frame in sorted(reached.items(), key=itemgetter(0)):
            self._read(frame, generation, version)  # what it points to is older, and so is read
        self._inherited |= reached.keys()

    def _unread(self, refs: Iterable[FrameRef], reached: Collection[FrameRef]) -> set[FrameRef]:
        """Return those that are ancestors' frames and not read yet."""
        known, own = self._inherited, self.generation
        return {ref for ref in refs if ref[0] < own and ref not in known and ref not in reached}

    def _read(self, written: _FrameData, generation: int, version: int) -> Frame:
        for index, node in enumerate(written.nodes):
            if len(node) == 2:  # noqa: PLR2004 - a branch has two
                left, right = self._nodes[tuple(node[0])], self._nodes[tuple(node[1])]
                height = max(left.height, right.height) + 1
                made: Leaf | Branch = Branch(left, right, left.counts + right.counts, height)
            else:
                start, stop, *counts = node
                made = Leaf(start, stop, pack_counts(stop - start, *counts))
            self._add_node((generation, version, index), made)
        for place, batch in enumerate(written.past, 1):
            self._add_batch((generation, _past(version, place)), self._read_batch(batch))
        if written.batch is not None:
            self._add_batch((generation, version), self._read_batch(written.batch))
        redo = None
        if written.redo is not None:
            target, chained = written.redo
            redo = Redo(target, self._redo.get((generation, target)) if chained else None)
        self._note_redo(generation, version, redo)
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

    def _read_batch(self, written: _BatchData) -> Batch:
        before = None if written.before is None else self._batches[written.before]
        return Batch(
            written.index,
            before,
            None if written.jump is None else self._batches[written.jump],
            self._node(written.root),
            written.start, written.stop, written.opened, written.ended, written.reason,
            written.place, self._read_merged(written.merged),
            session_after(before, written.opened), written.numbering,
        )  # fmt: skip

    def _node(self, ref: Ref | None) -> Rope:
        return None if ref is None else self._nodes[ref]

    def _add_node(self, ref: Ref, node: Leaf | Branch) -> None:
        self._nodes[ref] = node
        self._refs[id(node)] = ref

    def _add_batch(self, ref: tuple[int, int], batch: Batch) -> None:
        self._batches[ref] = batch
        self._batch_refs[id(batch)] = ref

    def _note_redo(self, generation: int, version: int, redo: Redo | None) -> None:
        self._redo[generation, version] = redo
        if generation == self.generation:
            self._newest = max(self._newest, version)

    def nodes_of(self, version: int) -> Iterator[Leaf | Branch]:
        """Yield the nodes that a version of this conversation added, children before parents."""
        index = 0
        while (node := self._nodes.get((self.generation, version, index))) is not None:
            yield node
            index += 1

    def batches_of(self, version: int) -> Iterator[Batch]:
        """Yield the batches that a version added, oldest first; usually one."""
        place = 1
        while (batch := self._batches.get((self.generation, _past(version, place)))) is not None:
            yield batch
            place += 1
        if (batch := self._batches.get((self.generation, version))) is not None:
            yield batch

    def keep(self, frame: Frame, version: int) -> None:
        """Note that a frame is committed: later frames may refer to its nodes and batch."""
        index = 0
        unknown = self._unknown_batches(frame.line)
        ropes = [batch.root for batch in unknown]
        _, changed = self._marks.written(frame.marks)
        for rope in (*ropes, frame.root, *changed.values()):
            if rope is None:
                continue
            for node in _new_nodes(rope, self._refs, {}):
                self._add_node((self.generation, version, index), node)
                index += 1
        for name, batch in self._references_of(unknown, version):
            self._add_batch(name, batch)
        self._note_redo(self.generation, version, frame.redo)
        self._marks.add((self.generation, version), frame.marks)
        self._merged.add((self.generation, version), frame.merged)


def _past(version: int, place: int) -> int:
    """Return the number of a batch that a frame adds before its last one; places count from 1."""
    return -version * _BATCHES - place


def _version_of(number: int) -> int:
    """Return the version that added a batch, by the batch's number."""
    return number if number >= 0 else -number // _BATCHES


class _Maps(Generic[V]):
    """The maps of all frames: a large one is written as its difference from an earlier one."""

    def __init__(self) -> None:
        self._known: dict[BatchRef, Mapping[str, V]] = {}
        self._refs: dict[int, BatchRef] = {}
        self._last: BatchRef | None = None

    def add(self, ref: BatchRef, found: Mapping[str, V]) -> None:
        """Note the map of a frame; one that an earlier frame had keeps its first reference."""
        if len(found) > _FEW:
            first = self._refs.setdefault(id(found), ref)
            self._known.setdefault(first, found)
            self._last = first

    def copy(self, other: _Maps[Any], known: Callable[[int, int], bool]) -> None:
        """Add those maps to another's that are of known frames."""
        for ref, found in self._known.items():
            if known(*ref):
                other.add(ref, found)

    def written(self, now: Mapping[str, V]) -> tuple[BatchRef | None, Mapping[str, V | None]]:
        """Return a map in its written form: a reference and what differs, or all of it."""
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
        """Return the map of a reference, with changes."""
        if not changes:
            return self._known[base]
        found = PersistentMap.of(self._known[base])
        for name, value in changes.items():
            found = found.remove(name) if value is None else found.set(name, value)
        return found


def _references(written: _FrameData) -> Iterator[FrameRef]:
    """Yield the frames that a frame refers to, including itself."""
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
            yield link[0], _version_of(link[1])


def _plan_reads(missing: Collection[FrameRef], rounds: int) -> list[tuple[int, int, int]]:
    """Return what to read: a generation, after a version, up to another; more in later rounds."""
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
    """Yield the nodes of a rope that have no reference yet, children before parents."""
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
