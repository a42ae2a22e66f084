"""Batches hang on one another, and any of them is near; versions remember their frames."""

from __future__ import annotations

import pytest

from palaver.errors import ValidationError
from palaver.history.frame import Batch, Frame, Redo, jump_of
from palaver.history.versions import Versions


def a_line(count: int) -> Batch | None:
    line: Batch | None = None
    for index in range(count):
        line = Batch(index, line, jump_of(line), None, 0, 0, 0, 0, "CLEAR")
    return line


def test_every_batch_of_a_line_is_found() -> None:
    for count in (0, 1, 2, 3, 7, 8, 100):
        frame = Frame(line=a_line(count))
        assert count == frame.batch_index
        found = [frame.batch(index) for index in range(count)]
        assert list(range(count)) == [batch.index for batch in found if batch is not None]
        assert [None, None, None] == [frame.batch(index) for index in (-1, count, count + 1)]


def test_a_batch_is_a_few_jumps_away() -> None:
    """Skew binary jumps: about 2 log2(n) steps where one by one would take n."""
    batch, steps = a_line(100_000), 0
    while batch is not None and batch.index > 17:
        far = batch.jump
        batch = far if far is not None and far.index >= 17 else batch.before
        steps += 1
    assert batch is not None
    assert steps <= 50


@pytest.mark.parametrize(
    ("reason", "place", "description"),
    [
        ("INSERT", 3, "Before INSERT at position 3"),
        ("REPLACE", 2, "Before REPLACE at index 2"),
        ("TRUNCATE", None, "Before TRUNCATE"),
        ("CLEAR", None, "Before CLEAR"),
        ("FILTER", None, "Before FILTER"),
        ("MERGE", None, "Before MERGE"),
    ],
)
def test_a_batch_says_what_ended_it(reason: str, place: int | None, description: str) -> None:
    assert description == Batch(0, None, None, None, 0, 0, 0, 0, reason, place).description


def test_long_chains_are_let_go_of() -> None:
    """A linked list that is freed by recursion would take the whole process with it."""
    line: Batch | None = a_line(500_000)
    redo: Redo | None = None
    for version in range(500_000):
        redo = Redo(version, redo)
    del line, redo


def test_versions_know_their_frame_and_the_way_back() -> None:
    first, second = Frame(), Frame(back=1, redo=Redo(1))
    versions = Versions(first, 0)
    versions.stops.append(1)
    versions.add(second, 1)
    versions.stops.append(2)
    assert [first, first, second, second] == [versions.frame(version) for version in range(4)]
    assert [None, 0, 1, 2] == [versions.back(version) for version in range(4)]
    assert [None, None, Redo(1), None] == [versions.redo(version) for version in range(4)]


@pytest.mark.parametrize("version", [-1, 1, True, 1.0, "0", None])
def test_a_version_that_is_not_there_is_refused(version: object) -> None:
    with pytest.raises(ValidationError, match=r"\$\.version: must be a version from 0 to 0"):
        Versions(Frame(), 0).frame(version)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - that is the point
