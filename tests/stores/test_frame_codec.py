"""Frames as bytes: read in order, they give every rope that ever was, shared as before."""

from __future__ import annotations

import random

import pytest

from palaver.errors import StoreDamaged
from palaver.history.frame import Branch, Leaf
from palaver.stores import Store
from palaver.stores.frame_codec import FrameCodec
from palaver.stores.memory import MemoryBackend
from tests.history.samples import one, talk


def nodes(rope: Leaf | Branch | None) -> list[int]:
    """Every node of a rope, by identity."""
    if rope is None:
        return []
    if isinstance(rope, Leaf):
        return [id(rope)]
    return [id(rope), *nodes(rope.left), *nodes(rope.right)]


def test_what_was_written_is_read_and_shares_what_it_shared() -> None:
    chance = random.Random(3)  # noqa: S311 - no secret
    backend = MemoryBackend()
    history = Store(backend).create(talk(" ".join(f"u{n}" for n in range(50))))
    for number in range(60):
        history.insert(chance.randrange(len(history) + 1), [one(f"a{number}")])
        if number % 7 == 0:
            history.mark(chance.randrange(len(history)), "pin")
        if number % 11 == 0:
            history.undo()
            history.set_team_task(f"task {number}")
    book = FrameCodec()
    kept = backend.frames(history.id, -1, history.version)
    read = [book.decode(frame.data, frame.version) for frame in kept]
    written = [history.at(frame.version).frame for frame in kept]
    for before, after in zip(written, read, strict=True):
        assert before.root == after.root
        assert (before.start, before.opened, before.logged) == (
            after.start, after.opened, after.logged,
        )  # fmt: skip
        assert (before.back, before.redo, before.team_task) == (
            after.back, after.redo, after.team_task,
        )  # fmt: skip
        assert before.marks == after.marks
        assert before.batch_index == after.batch_index
    shared = [{*nodes(frame.root)} for frame in read]
    for before_nodes, after_nodes in zip(shared[-5:], shared[-4:], strict=False):
        assert len(after_nodes - before_nodes) < 30 < len(after_nodes)
    assert max(len(frame.data) for frame in kept) < 2_000


def test_a_frame_is_written_without_what_is_known_already() -> None:
    history = Store(MemoryBackend()).create(talk(" ".join(f"u{n}" for n in range(200))))
    sizes: list[int] = []
    for number in range(100):
        history.insert(number * 2, [one(f"a{number}")])
        kept = history._backend.frames(history.id, history.version - 1, history.version)
        sizes.append(len(kept[0].data))
    assert max(sizes[50:]) < 2 * max(sizes[10:50])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        b"[]",
        b'{"r": [0, 9, 9]}',
        b'{"l": [0, 9]}',
        b'{"n": [[1]]}',
        b'{"n": [["a", "b", 0, 0, 0]]}',
        b'{"n": [[[0, 7, 7], [0, 7, 8]]]}',
        b'{"s": "one"}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_frame_is_damage(data: bytes) -> None:
    with pytest.raises(StoreDamaged, match="the frame of version 3 can't be read"):
        FrameCodec().decode(data, 3)
