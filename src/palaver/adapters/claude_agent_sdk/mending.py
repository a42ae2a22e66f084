"""An edited transcript made whole: no line hangs on one that is gone, no call lacks its result.

A line names the one before it (`parentUuid`), and the program walks from the last one back. Where a
line was taken out, those that hung on it hang on what now stands before them; where one was put in,
it takes its place in the chain. A call whose result is gone goes too, and a result whose call is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from palaver.messages.gate import is_list, is_object
from palaver.wire.transcripts.fields import object_in, text_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Line", "mended"]

_REFERENCES: Final = ("logicalParentUuid", "sourceToolAssistantUUID", "leafUuid")
_THOUGHTS: Final = frozenset(("thinking", "redacted_thinking"))


class Line(Struct, frozen=True):
    """A line, and whether it is `new`: put in with palaver, and in no chain yet."""

    entry: dict[str, Any]
    new: bool = False

    def blocks(self) -> list[Mapping[str, Any]]:
        """The blocks of what it says, where it says something."""
        content = object_in(self.entry, "message").get("content")
        return [block for block in content if is_object(block)] if is_list(content) else []

    def ids(self, kind: str, name: str) -> Iterator[str]:
        """The ids of the calls that it makes or answers."""
        return (text_in(block, name) for block in self.blocks() if block.get("type") == kind)


def mended(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The lines as the program can go on from.

    >>> told = [{"uuid": "a", "parentUuid": None}, {"uuid": "c", "parentUuid": "gone"}]
    >>> [line["parentUuid"] for line in mended([Line(line) for line in told])]
    [None, 'a']
    """
    return _linked(_in_turn(_without_bare_thoughts(_paired(_summed_up(lines)))))


def _summed_up(lines: Sequence[Line]) -> list[Line]:
    """Leave out where a compaction began, unless its summary follows."""
    kept: list[Line] = []
    follows = False
    for line in reversed(lines):
        if line.entry.get("subtype") == "compact_boundary":
            if not follows:
                continue
        elif "message" in line.entry:
            follows = line.entry.get("isCompactSummary") is True
        kept.append(line)
    return kept[::-1]


def _paired(lines: Sequence[Line]) -> list[Line]:
    """Leave out calls without results, and results without calls."""
    calls: dict[str, int] = {}
    results: dict[str, int] = {}
    for place, line in enumerate(lines):
        for call in line.ids("tool_use", "id"):
            calls.setdefault(call, place)
        for call in line.ids("tool_result", "tool_use_id"):
            if call in calls:
                results.setdefault(call, place)

    def stands(block: Mapping[str, Any], place: int) -> bool:
        """Tell whether a call or a result has its other half, and is the first of its id."""
        if block.get("type") == "tool_use":
            call = text_in(block, "id")
            return call in results and calls[call] == place
        return block.get("type") != "tool_result" or (
            results.get(text_in(block, "tool_use_id")) == place
        )

    kept: list[Line] = []
    for place, line in enumerate(lines):
        blocks = line.blocks()
        stay = [block for block in blocks if stands(block, place)]
        if len(stay) < len(blocks):
            line.entry["message"] = {**line.entry["message"], "content": stay}
        if stay or not blocks:
            kept.append(line)
    return kept


def _without_bare_thoughts(lines: Sequence[Line]) -> list[Line]:
    """Leave out what is left of an answer where only its thoughts are: nobody takes them back."""
    answers: dict[str, set[str]] = {}
    for line in lines:
        if line.entry.get("type") == "assistant":
            kinds = {text_in(block, "type") for block in line.blocks()}
            answers.setdefault(_answer(line), set()).update(kinds)
    bare = {name for name, kinds in answers.items() if kinds <= _THOUGHTS}
    return [
        line for line in lines if line.entry.get("type") != "assistant" or _answer(line) not in bare
    ]


def _answer(line: Line) -> str:
    return text_in(object_in(line.entry, "message"), "id") or text_in(line.entry, "uuid")


def _in_turn(lines: Sequence[Line]) -> list[Line]:
    """Let what was put in between a call and its result wait until the result is there."""
    done: list[Line] = []
    waiting: list[Line] = []
    open_calls: set[str] = set()
    for line in lines:
        if line.new and open_calls and not set(line.ids("tool_result", "tool_use_id")):
            waiting.append(line)
            continue
        done.append(line)
        open_calls.update(line.ids("tool_use", "id"))
        open_calls.difference_update(line.ids("tool_result", "tool_use_id"))
        if not open_calls:
            done += waiting
            waiting = []
    return done


def _linked(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Let every line hang on one that is there."""
    there = {text_in(line.entry, "uuid") for line in lines}
    follower: dict[str | None, str] = {}
    last: str | None = None
    for line in lines:
        entry = line.entry
        for name in _REFERENCES:
            if isinstance(entry.get(name), str) and entry[name] not in there:
                entry[name] = last
        if not line.new and "parentUuid" not in entry:
            continue
        parent = last if line.new else entry["parentUuid"]
        if line.new:
            follower[last] = entry["uuid"]
        elif entry.get("subtype") != "compact_boundary":
            parent = last if parent is not None and parent not in there else parent
            while parent in follower:
                parent = follower[parent]
        entry["parentUuid"] = parent
        last = entry.get("uuid", last)
    return [line.entry for line in lines]
