"""A conversation as the transcript that the `claude` program resumes from.

The lines are those of the view, in its order. Between them stands what is no message (attachments,
titles, modes), each after the message it came after. What nobody edited comes out as it went in;
what was edited keeps its line's envelope, and a message that never had one is given its
neighbour's.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from palaver.adapters.claude_agent_sdk.entries import (
    KEPT,
    Entry,
    blocks_from,
    envelope_of,
    fingerprint,
    write_entry,
)
from palaver.adapters.claude_agent_sdk.mending import Line, mended
from palaver.history.erasing import ERASED
from palaver.messages import AssistantInfo, to_dict
from palaver.messages.ids import uuid_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.history.view import View
    from palaver.messages import Message

__all__ = ["Aside", "write_transcript"]

_SESSION: Final = (
    *("isSidechain", "agentId", "userType", "entrypoint"),
    *("cwd", "sessionId", "version", "gitBranch"),
)
"""What every line of a session repeats."""


class Aside(Struct, frozen=True):
    """A line that is no message, and the id of the message it came after ("" for none)."""

    after: str
    entry: Entry

    @property
    def uuid(self) -> str | None:
        """Its place in the chain of lines; None where it is about the session as a whole."""
        found = self.entry.get("uuid")
        return found if isinstance(found, str) else None


def write_transcript(
    view: View,
    asides: Sequence[Aside],
    wholes: Mapping[str, bytes],
    *,
    session_id: str,
    forked_from: frozenset[str] = frozenset(),
) -> list[Entry]:
    """The lines of a conversation as it is now.

    `asides` are in the order they came in; `wholes` are lines that were kept to the letter, by
    their uuids. The lines of a fork name the session it was `forked_from`, and shall name this one.
    """
    writer = _Writer(view, wholes, session_id)
    said = writer.lines()
    between, dropped = writer.between(asides)
    lines = [*between.get(-1, ())]
    for place, line in enumerate(said):
        lines += [*([] if line is None else [line]), *between.get(place, ())]
    entries = mended(lines) if dropped or writer.edited else [line.entry for line in lines]
    for entry in entries:
        if entry.get("sessionId") in forked_from:
            entry["sessionId"] = session_id
    return entries


class _Writer:
    """The messages of a view as lines, under way."""

    def __init__(self, view: View, wholes: Mapping[str, bytes], session_id: str) -> None:
        self._view = view
        self._wholes = wholes
        self._session: Entry = {"isSidechain": False, "userType": "external"}
        self._session |= {"cwd": "/", "sessionId": session_id, "version": "1"}
        self._taken: set[str] = set()
        self._places: dict[str, int] = {}  # of each message, and of each that one has replaced
        self._order: list[tuple[int, int]] = []  # position in the log, and place
        self.edited = not _is_whole(view)

    def lines(self) -> list[Line | None]:
        """A line for each group of messages that came from one; None where nothing is left."""
        found: list[Line | None] = []
        positions = [at for start, stop in self._view.ranges() for at in range(start, stop)]
        told = zip(positions, self._view, strict=True)
        for place, (_, group) in enumerate(groupby(told, _line_of)):
            pairs = list(group)
            self._order += [(position, place) for position, _ in pairs]
            self._places.update((message.id, place) for _, message in pairs)
            line = self._line(pairs[0][0], [message for _, message in pairs], place)
            self.edited = self.edited or line is None or line.new
            if line is not None:
                self._session |= {name: line.entry[name] for name in _SESSION if name in line.entry}
                self._taken.add(line.entry["uuid"])
            found.append(line)
        return found

    def between(self, asides: Sequence[Aside]) -> tuple[dict[int, list[Line]], bool]:
        """What stands after which line, and whether anything was left out.

        What hangs on a message goes with it. What is about the session stays where it would stand,
        and so does the place where a compaction began.
        """
        found: dict[int, list[Line]] = {}
        seen: set[str] = set()
        dropped = False
        self._order.sort()
        for aside in asides:
            uuid, place = aside.uuid, -1
            if uuid is not None and uuid in seen:
                continue  # it was sent twice
            if aside.after not in self._places and aside.after:
                dropped = True
                if uuid is not None and aside.entry.get("subtype") != "compact_boundary":
                    continue
                place = self._place_before(aside.after)
            elif aside.after:
                place = self._places[aside.after]
            seen.update([] if uuid is None else [uuid])
            found.setdefault(place, []).append(Line(aside.entry))
        return found, dropped

    def _place_before(self, message_id: str) -> int:
        """The place of the last line from before a message that is gone."""
        position = min(self._view.log.positions_of(message_id), default=0)
        index = bisect_left(self._order, (position, 0))
        return self._order[index - 1][1] if index else -1

    def _line(self, position: int, messages: list[Message], place: int) -> Line | None:
        envelope = envelope_of(messages[0])
        if envelope is None:
            return self._new(position, messages[0], place)
        uuid: str = envelope["uuid"]
        self._places[uuid] = place
        kept = messages[0].metadata[KEPT]
        whole = self._wholes.get(uuid)
        if whole is not None and kept.get("made") == fingerprint(messages):
            return Line(json.loads(whole))
        entry = write_entry(messages)
        if entry is None or uuid not in self._taken:
            return None if entry is None else Line(entry)
        return Line({**entry, "uuid": uuid_for(messages[0].id)}, new=True)

    def _new(self, position: int, message: Message, place: int) -> Line | None:
        """A line for a message of palaver's, in the envelope of what it replaced."""
        blocks = [] if ERASED in message.metadata else blocks_from(message)
        role = "assistant" if message.role == "assistant" else "user"
        origin = self._origin(position, place)
        if not blocks:
            return None
        content: str | list[Entry] = blocks
        if role == "user" and len(blocks) == 1 and blocks[0]["type"] == "text":
            content = blocks[0]["text"]
        uuid = uuid_for(message.id)
        if origin is not None and origin["message"].get("role") == role:
            entry = to_dict(origin)
            entry.pop("toolUseResult", None)
            entry["message"]["content"] = content
            new = entry["uuid"] in self._taken
            return Line({**entry, "uuid": uuid} if new else entry, new=new)
        said = {"role": role, "content": content}
        if role == "assistant":
            said = {**_answered(message, uuid), **said}
        fields = {"isMeta": True} if message.role == "system" else {}
        time = datetime.fromtimestamp(message.timestamp / 1000, UTC)
        stamp = time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        entry = {"type": role, "uuid": uuid, "timestamp": stamp, "message": said}
        return Line({"parentUuid": None, **self._session, **fields, **entry}, new=True)

    def _origin(self, position: int, place: int) -> Mapping[str, Any] | None:
        """The envelope of the message that one was put in the place of, however long ago."""
        log = self._view.log
        before = log.replaced(position)
        while before is not None:
            replaced = log[before]
            self._places.setdefault(replaced.id, place)
            envelope = envelope_of(replaced)
            if envelope is not None:
                self._places.setdefault(envelope["uuid"], place)
                return envelope
            before = log.replaced(before)
        return None


def _is_whole(view: View) -> bool:
    """Tell whether a view is all that was ever added, in order: then nobody edited it."""
    end = 0
    for start, stop in view.ranges():
        if start != end:
            return False
        end = stop
    return end == len(view.log)


def _line_of(told: tuple[int, Message]) -> str:
    position, message = told
    envelope = envelope_of(message)
    return f"message {position}" if envelope is None else envelope["uuid"]


def _answered(message: Message, uuid: str) -> Entry:
    """What an answer's line says of it, where the program never saw it."""
    model = message.info.model if isinstance(message.info, AssistantInfo) else None
    return {
        "id": f"msg_{uuid}",
        "type": "message",
        "model": "claude" if model is None else model.model_id,
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }
