"""What must hold of every history at every moment, whatever was done to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.history.frame import MASK, SHIFTS, Branch, Leaf

if TYPE_CHECKING:
    from palaver.history import BaseHistory
    from palaver.history.frame import Rope
    from palaver.history.log import LogReader


def counted(start: int, stop: int, log: LogReader) -> int:
    """Count a stretch of the log by looking at each message."""
    counts = stop - start
    for position in range(start, stop):
        counts += 1 << SHIFTS[log[position].role]
    return counts


def check_rope(rope: Rope, log: LogReader) -> None:
    """Every leaf has something, every branch is balanced, every count is right."""
    if rope is None:
        return
    if isinstance(rope, Leaf):
        assert 0 <= rope.start < rope.stop <= len(log)
        assert counted(rope.start, rope.stop, log) == rope.counts
        return
    assert isinstance(rope, Branch)
    check_rope(rope.left, log)
    check_rope(rope.right, log)
    assert abs(rope.left.height - rope.right.height) <= 1
    assert 1 + max(rope.left.height, rope.right.height) == rope.height
    assert rope.left.counts + rope.right.counts == rope.counts
    assert sum(rope.counts >> shift & MASK for shift in SHIFTS.values()) == rope.counts & MASK


def check_indexes(history: BaseHistory) -> None:
    """The ropes are sound, and the union of the roles is the view."""
    view = history.view
    check_rope(view.frame.root, view.log)
    check_rope(view.rope, view.log)
    for rope in view.mark_ropes.values():
        assert rope is not None
        check_rope(rope, view.log)
    found = view.mark_map()
    united = [position for positions in found.type_indices.values() for position in positions]
    assert sorted(found.original_indices) == sorted(united)
    for role, positions in found.type_indices.items():
        assert positions == [p for p in found.original_indices if view.log[p].role == role]
