"""How forks are stored: which ancestor of a conversation has which rows.

A fork stores only its own messages. It reads those before its `base` from its parent, which may be
a fork itself. A lineage has one link for every conversation in that line. Each link points to its
parent and to one far ancestor (a skew-binary jump), so that the owner of a position, or the
ancestor of a generation, is found in O(log n) steps. Links are shared: the lineages of a chain of n
forks take n links together. Along a line `base` never falls. `first_of_fork` is what a fork begins
with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from palaver.errors import StoreDamaged
from palaver.history.frame import size
from palaver.messages.limits import MAX_INT
from palaver.stores.records import Change, Head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from palaver.history.frame import Frame
    from palaver.history.plan import HistoryState
    from palaver.stores.frame_codec import FrameCodec

__all__ = ["FAR", "Lineage", "Lineages", "RowRange", "first_of_fork", "pages"]

K = TypeVar("K", int, str)

FAR: Final = MAX_INT
"""Beyond every position."""
_KNOWN: Final = 100_000


class RowRange(NamedTuple, Generic[K]):
    """The positions from `start` to before `stop` are rows of the conversation `key`."""

    key: K
    start: int
    stop: int


class Lineage(Generic[K]):
    """A conversation as a link in its line of ancestors; the first one is generation 0.

    >>> first = Lineage("first", None, 0, 0)
    >>> fork = Lineage("fork", first, 10, 3)
    >>> later = Lineage("later", fork, 10, 0)  # `fork` added nothing before it was forked
    >>> [tuple(found) for found in later.row_ranges(5, 12)]
    [('first', 5, 10), ('later', 10, 12)]
    """

    __slots__ = ("base", "generation", "jump", "key", "origin", "parent")

    def __init__(self, key: K, parent: Lineage[K] | None, base: int, origin: int) -> None:
        """Link a conversation to its parent, which it left at version `origin`."""
        self.key: K = key
        self.parent: Lineage[K] | None = parent
        self.base = base
        self.origin = origin
        self.generation = 0
        self.jump: Lineage[K] = self
        if parent is not None:
            self.generation = parent.generation + 1
            far = parent.jump
            same = parent.generation - far.generation == far.generation - far.jump.generation
            self.jump = far.jump if same else parent

    def owner(self, position: int) -> Lineage[K] | None:
        """Return the conversation in this line that has the row of a position."""
        link: Lineage[K] | None = self
        while link is not None and link.base > position:
            link = link.jump if link.jump.base > position and link.jump is not link else link.parent
        return link

    def ancestor(self, generation: int) -> Lineage[K] | None:
        """Return the conversation of a generation in this line, or None."""
        link: Lineage[K] | None = self if 0 <= generation <= self.generation else None
        while link is not None and link.generation > generation:
            link = link.jump if link.jump.generation >= generation else link.parent
        return link

    def row_ranges(self, start: int = 0, stop: int = FAR) -> list[RowRange[K]]:
        """Return which conversations have the rows of a range of positions, oldest first."""
        found: list[RowRange[K]] = []
        link = self.owner(stop - 1) if start < stop else None
        while link is not None and start < stop:
            found.append(RowRange(link.key, max(start, link.base), stop))
            stop = link.base
            link = link.owner(stop - 1)
        return found[::-1]

    def frames(self, wanted: Iterable[tuple[int, int, int]]) -> Iterator[tuple[K, int, int]]:
        """Yield which ancestors' frames this conversation may read: key, after and up to a version.

        `wanted` gives the generation, after and up to a version. Frames that an ancestor made after
        the line was forked from it are left out.
        """
        for generation, after, upto in wanted:
            child = self.ancestor(generation + 1)
            if child is not None and child.parent is not None:
                yield child.parent.key, after, min(upto, child.origin)


class Lineages(Generic[K]):
    """A cache of lineages; missing ones are loaded, a whole line at a time.

    `load` returns key, parent, base and origin of a conversation and of its ancestors, up to the
    first one or to one that is known.
    """

    def __init__(self, load: Callable[[K], Iterable[tuple[K, K | None, int, int]]]) -> None:
        """Create an empty cache."""
        self._load: Callable[[K], Iterable[tuple[K, K | None, int, int]]] = load
        self._known: dict[K, Lineage[K]] = {}

    def __contains__(self, key: K) -> bool:
        """Tell whether a conversation's lineage is known."""
        return key in self._known

    def get(self, key: K) -> Lineage[K]:
        """Return the lineage of a conversation; `StoreDamaged` if the line is broken."""
        known = self._known.get(key)
        return self._read(key) if known is None else known

    def _read(self, key: K) -> Lineage[K]:
        rows = {row[0]: row[1:] for row in self._load(key)}
        line: list[tuple[K, int, int]] = []
        link: Lineage[K] | None = None
        above: K | None = key
        while above is not None and (link := self._known.get(above)) is None:
            row = rows.pop(above, None)
            if row is None:  # it is not there, or it was there before: its own ancestor
                msg = f"the ancestors of conversation {key!r} can't be read: the line is broken"
                raise StoreDamaged(msg)
            line.append((above, row[1], row[2]))
            above = row[0]
        self._make_room()
        for one, base, origin in reversed(line):
            link = self._known[one] = Lineage(one, link, base, origin)
        assert link is not None  # noqa: S101 - the line has at least one
        return link

    def learn(self, key: K, parent: K | None, base: int, origin: int) -> None:
        """Cache what a head says; a different lineage under the same key is dropped."""
        known = self._known.get(key)
        if known is not None:
            above = None if known.parent is None else known.parent.key
            if (above, known.base, known.origin) == (parent, base, origin):
                return
            del self._known[key]
        link = None if parent is None else self._known.get(parent)
        if parent is None or link is not None:
            self._make_room()
            self._known[key] = Lineage(key, link, base, origin)

    def _make_room(self) -> None:
        if len(self._known) > _KNOWN:
            self._known.clear()

    def forget(self, key: K) -> None:
        """Drop a conversation that was deleted."""
        self._known.pop(key, None)

    def clear(self) -> None:
        """Empty the cache."""
        self._known.clear()


def pages(ranges: Sequence[RowRange[K]], most: int) -> Iterator[list[RowRange[K]]]:
    """Group row ranges into pages of at most `most` positions; ranges are cut where needed."""
    page: list[RowRange[K]] = []
    room = most
    for key, start, stop in ranges:
        begin = start
        while begin < stop:
            end = min(stop, begin + room)
            page.append(RowRange(key, begin, end))
            room -= end - begin
            begin = end
            if not room:
                yield page
                page, room = [], most
    if page:
        yield page


def first_of_fork(  # noqa: PLR0917 - what a fork is made of
    state: HistoryState, codec: FrameCodec, parent: Head, name: str, version: int, key: str | None
) -> tuple[Head, Change, Frame]:
    """Return the head, the first change and the frame of a fork from a version of its parent."""
    frame, stop = state.versions.frame(version), state.stops[version]
    base = max(frame.logged, stop)
    counts, at = state.log.before(base), state.clock()
    bare = replace(frame, logged=base, back=None, redo=None)
    count = size(bare.root) + stop - bare.start
    head = Head(
        id=name, version=0, stop=stop, length=base, counts=counts, framed=0, size=count,
        parent=parent.id, base=base, origin=version, title=parent.title, tags=parent.tags,
        created=at, updated=at, owner=parent.owner,
    )  # fmt: skip
    first = Change(
        conversation=name, after=-1, kind="fork", at=at, stop=stop, size=count, first=base,
        counts=counts, frame=codec.encode(bare, 0), key=key,
    )  # fmt: skip
    return head, first, bare
