"""Tool calls and their results: each call has one result, in its place.

Where a provider wants the results in the very next turn, `settle` holds a turn of calls against
it. Where a result may come later, the format does its own walk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from palaver.testing.providers.findings import Findings

__all__ = ["Pin", "settle", "unique_calls"]


class Pin(NamedTuple):
    """A call or a result: what it is matched by, and where it stands."""

    key: str
    path: str


def settle(
    found: Findings, calls: Iterable[Pin], results: Iterable[Pin], known: Collection[str]
) -> None:
    """Hold the calls of one turn against the results of the next.

    `known` has the key of every call of the request: a result for one of those is out of place,
    a result for any other has no call at all.
    """
    waiting = {call.key: call.path for call in calls}
    answered: set[str] = set()
    for key, path in results:
        if key in answered:
            found.add(path, "duplicate-result", f"{key[:80]} has a result already")
        elif key in waiting:
            answered.add(key)
        elif key in known:
            found.add(path, "result-out-of-order", f"{key[:80]} was not called in the turn before")
        else:
            found.add(path, "result-without-call", f"nothing was called by {key[:80]}")
    for key, path in waiting.items():
        if key not in answered:
            found.add(path, "call-without-result", f"{key[:80]} has no result in the next turn")


def unique_calls(found: Findings, calls: Iterable[Pin]) -> set[str]:
    """Want no key twice among these calls; answer all keys."""
    seen: set[str] = set()
    for key, path in calls:
        if key in seen:
            found.add(path, "duplicate-call-id", f"another call has this id: {key[:80]}")
        seen.add(key)
    return seen
