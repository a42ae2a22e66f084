"""Marks: names put on messages. A frame's marks are a persistent map from names to ropes.

The rope of a mark holds the sorted positions that carry it, so a mark costs what an edit costs, old
versions share theirs, and a range of marked messages is one leaf. `PersistentMap` is an immutable
mapping that shares its nodes with its copies: setting or removing one name takes O(log n). It is a
treap whose priorities are hashes of the names, so its shape depends only on its content, and the
names that differ between two maps are found in O(d log n), where d is their number.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from palaver.history.frame import MASK, Branch, Leaf, Rope, concat, ranges, split

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.history.frame import Counter

__all__ = ["PersistentMap", "changes_between", "has", "overlaps", "put", "take"]

V = TypeVar("V")


def has(rope: Rope, position: int) -> bool:
    """Tell whether a position is marked."""
    return _rank(rope, position + 1) > _rank(rope, position)


def put(rope: Rope, position: int, log: Counter) -> Rope:
    """Mark a position."""
    if has(rope, position):
        return rope
    left, right = split(rope, _rank(rope, position), log)
    leaf = Leaf(position, position + 1, log.before(position + 1) - log.before(position))
    return concat(concat(left, leaf), right)


def take(rope: Rope, position: int, log: Counter) -> Rope:
    """Remove the mark from a position."""
    if not has(rope, position):
        return rope
    rank = _rank(rope, position)
    left, rest = split(rope, rank, log)
    return concat(left, split(rest, 1, log)[1])


def overlaps(rope: Rope, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the marked ranges between two positions, in the log's order."""
    for begin, end in _from(rope, start):
        if begin >= stop:
            return
        if end > start:
            yield max(begin, start), min(end, stop)


def _first(rope: Leaf | Branch) -> int:
    while type(rope) is Branch:
        rope = rope.left
    assert type(rope) is Leaf  # noqa: S101 - there are only two kinds
    return rope.start


def _rank(rope: Rope, position: int) -> int:
    """Return how many marked positions there are before this one."""
    rank = 0
    while type(rope) is Branch:
        if position < _first(rope.right):
            rope = rope.left
        else:
            rank += rope.left.counts & MASK
            rope = rope.right
    if type(rope) is Leaf and position > rope.start:
        rank += min(position, rope.stop) - rope.start
    return rank


def _from(rope: Rope, position: int) -> Iterator[tuple[int, int]]:
    waiting: list[Leaf | Branch] = []
    while type(rope) is Branch:
        if position < _first(rope.right):
            waiting.append(rope.right)
            rope = rope.left
        else:
            rope = rope.right
    if rope is not None:
        yield from ranges(rope)
    while waiting:
        yield from ranges(waiting.pop())


class _Node(Struct, frozen=True, gc=False):
    name: str
    value: Any
    rank: bytes
    left: _Node | None
    right: _Node | None
    size: int


def _node(name: str, value: Any, rank: bytes, left: _Node | None, right: _Node | None) -> _Node:  # noqa: ANN401 - a map's value
    size = 1 + (0 if left is None else left.size) + (0 if right is None else right.size)
    return _Node(name, value, rank, left, right, size)


class PersistentMap(Mapping[str, V], Generic[V]):
    """An immutable mapping, in the order of its names.

    >>> one = PersistentMap.of({"b": 2}).set("a", 1)
    >>> dict(one), dict(one.remove("b"))
    ({'a': 1, 'b': 2}, {'a': 1})
    """

    __slots__ = ("_root",)

    def __init__(self, root: _Node | None = None) -> None:
        """Create an empty map; use `of` for a map of something."""
        self._root = root

    @classmethod
    def of(cls, mapping: Mapping[str, V]) -> PersistentMap[V]:
        """Return a map of the same names and values; a persistent map is returned as it is."""
        if isinstance(mapping, PersistentMap):
            return mapping
        root: _Node | None = None
        for name, value in mapping.items():
            root = _set(root, name, value, _priority(name))
        return cls(root)

    def __len__(self) -> int:
        """Return the number of names."""
        return 0 if self._root is None else self._root.size

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names in order."""
        return (node.name for node in _nodes(self._root))

    def __getitem__(self, name: str) -> V:
        """Return the value of a name."""
        node = self._root
        while node is not None:
            if name == node.name:
                value: V = node.value
                return value
            node = node.left if name < node.name else node.right
        raise KeyError(name)

    def set(self, name: str, value: V) -> PersistentMap[V]:
        """Return the same map with a value for a name."""
        return PersistentMap(_set(self._root, name, value, _priority(name)))

    def remove(self, name: str) -> PersistentMap[V]:
        """Return the same map without a name."""
        return PersistentMap(_remove(self._root, name))

    def changes_from(self, before: PersistentMap[V]) -> dict[str, V | None]:
        """Return the names whose values differ from another map's; None where a name is gone."""
        found: dict[str, V | None] = {}
        waiting = [(before._root, self._root)]
        while waiting:
            old, new = waiting.pop()
            if old is new:
                continue
            if old is None or new is None:
                found.update((node.name, None) for node in _nodes(old))
                found.update((node.name, node.value) for node in _nodes(new))
            elif old.name == new.name:
                if old.value is not new.value:
                    found[new.name] = new.value
                waiting += [(old.left, new.left), (old.right, new.right)]
            elif (old.rank, old.name) > (new.rank, new.name):
                found[old.name] = None
                left, right = _split(new, old.name)
                waiting += [(old.left, left), (old.right, right)]
            else:
                found[new.name] = new.value
                left, right = _split(old, new.name)
                waiting += [(left, new.left), (right, new.right)]
        return found


def changes_between(before: Mapping[str, V], after: Mapping[str, V]) -> dict[str, V | None]:
    """Return what differs between two mappings of any kind; None where a name is gone.

    >>> changes_between({"a": 1, "b": 2}, {"b": 2, "c": 3})
    {'a': None, 'c': 3}
    """
    if isinstance(before, PersistentMap) and isinstance(after, PersistentMap):
        return after.changes_from(before)
    found: dict[str, V | None] = {name: None for name in before if name not in after}
    found.update((name, value) for name, value in after.items() if before.get(name) is not value)
    return found


def _priority(name: str) -> bytes:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _nodes(root: _Node | None) -> Iterator[_Node]:
    """Yield all nodes, in the order of their names."""
    waiting: list[_Node] = []
    node = root
    while waiting or node is not None:
        while node is not None:
            waiting.append(node)
            node = node.left
        node = waiting.pop()
        yield node
        node = node.right


def _set(node: _Node | None, name: str, value: Any, rank: bytes) -> _Node:  # noqa: ANN401 - a map's value
    if node is None:
        return _node(name, value, rank, None, None)
    if name == node.name:
        return _node(name, value, rank, node.left, node.right)
    if (rank, name) > (node.rank, node.name):
        return _node(name, value, rank, *_split(node, name))
    if name < node.name:
        left = _set(node.left, name, value, rank)
        return _node(node.name, node.value, node.rank, left, node.right)
    right = _set(node.right, name, value, rank)
    return _node(node.name, node.value, node.rank, node.left, right)


def _split(node: _Node | None, name: str) -> tuple[_Node | None, _Node | None]:
    """Return the nodes before a name and those after it; the name itself is in neither."""
    if node is None:
        return None, None
    if name == node.name:
        return node.left, node.right
    if name < node.name:
        left, right = _split(node.left, name)
        return left, _node(node.name, node.value, node.rank, right, node.right)
    left, right = _split(node.right, name)
    return _node(node.name, node.value, node.rank, node.left, left), right


def _remove(node: _Node | None, name: str) -> _Node | None:
    if node is None:
        return None
    if name == node.name:
        return _merge(node.left, node.right)
    if name < node.name:
        left = _remove(node.left, name)
        return (
            node if left is node.left else _node(node.name, node.value, node.rank, left, node.right)
        )
    right = _remove(node.right, name)
    return (
        node if right is node.right else _node(node.name, node.value, node.rank, node.left, right)
    )


def _merge(left: _Node | None, right: _Node | None) -> _Node | None:
    """Join two trees; every name of the first comes before every name of the second."""
    if left is None or right is None:
        return right if left is None else left
    if (left.rank, left.name) > (right.rank, right.name):
        return _node(left.name, left.value, left.rank, left.left, _merge(left.right, right))
    return _node(right.name, right.value, right.rank, _merge(left, right.left), right.right)
