"""What an agent sees: the same look at a short and at a long conversation, and markers by the byte.

Flatness is measured as elsewhere: the floor is the short one. In the addressed conversations a
hundred members are spoken to in turn, so a member has to be found among the others' messages; the
index is there after the first look, which is not measured. Text is stripped of its markers at 1 KB
and at 1 MB, both as people write it and as somebody writes it who means harm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.harness import AtMost, Row, Run, against_floor, timed
from palaver.context import ContextManager, strip_markers
from palaver.history import BaseHistory, History
from palaver.messages import Message, Routing, Speaker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.context import Visibility

__all__ = ["rows"]

_SHORT: Final = 1_000
_LONG: Final = 1_000_000
_CALLS: Final = 100
_MEMBERS: Final = 100
_KB: Final = 1_024
_TEXTS: Final = {
    "a talk": "Well done!  Look at a[0] and [1].\n\n[NEXT: sarah, max!P1] Thank you.\n",
    "open markers": "[FROM:[NEXT:",
    "markers in markers": "[NE[NEXT: a]XT: b]",
    "fenced code": "```\n[NEXT: a]\n```\n[NEXT: b]\n",
}


def rows(run: Run) -> Iterator[Row]:
    """Contexts at both lengths, then texts at both lengths."""
    short, long = History(_talk(_SHORT)), History(_talk(_LONG))
    yield _contexts(run, short, long, "all")
    yield _contexts(run, short, long, "addressed")
    for name, unit in _TEXTS.items():
        yield _markers(run, name, unit)


def _talk(count: int) -> list[Message]:
    human = Speaker("user-1", "User", "human")
    to = [Routing((f"member-{number}",)) for number in range(_MEMBERS)]
    return [
        Message("user", "What about [NEXT: max] tea?", speaker=human, routing=to[number % _MEMBERS])
        for number in range(count)
    ]


def _contexts(run: Run, short: BaseHistory, long: BaseHistory, visibility: Visibility) -> Row:
    looks = {
        name: ContextManager(history, visibility=visibility)
        for name, history in (("short", short), ("long", long))
    }
    what = "broadcast" if visibility == "all" else visibility
    member = f"member-{_MEMBERS // 2}"

    def look(name: str) -> None:
        for _ in range(_CALLS):
            looks[name].context_for(member, "claude")

    first = {name: context.context_for(member) for name, context in looks.items()}
    assert first["short"] == first["long"]
    took = timed(
        run.rounds(30),
        {"short": lambda _: look("short"), "long": lambda _: look("long")},
        repeats=1,
    )
    return against_floor(
        f"context for an agent, {what}, {_LONG:,} messages",
        took["long"], took["short"], n=_CALLS, goal=AtMost(3),
        note=f"floor: the same at {_SHORT:,} messages; {_CALLS} contexts of 5 messages",
    )  # fmt: skip


def _markers(run: Run, name: str, unit: str) -> Row:
    texts = {size: (unit * (size // len(unit) + 1))[:size] for size in (_KB, _KB * _KB)}
    took = timed(
        run.rounds(20),
        {
            "short": lambda _: [strip_markers(texts[_KB]) for _ in range(_KB)],
            "long": lambda _: strip_markers(texts[_KB * _KB]),
        },
        repeats=1,
    )
    each = {which: spent * 1e6 / (_KB * _KB) for which, spent in took.items()}
    return against_floor(
        f"strip markers from 1 MB, {name}", each["long"], each["short"], n=_KB * _KB, unit="ns/B",
        goal=AtMost(3), note="floor: 1 KB of the same, a thousand times; for one byte",
    )  # fmt: skip
