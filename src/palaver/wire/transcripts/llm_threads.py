"""Threads of llm's newer `logs.db`: a thread points at its last message, a message at its parent.

Messages are shared between threads and know no time and no model; a turn, which is one call of a
model, says both for the messages up to its tip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.errors import ValidationError
from palaver.messages.codec import dump
from palaver.messages.gate import EMPTY, is_object
from palaver.messages.message import Message
from palaver.wire.report import Reading
from palaver.wire.transcripts.building import Call, Conversation
from palaver.wire.transcripts.databases import text_of
from palaver.wire.transcripts.fields import list_in, milliseconds, name_in, object_in, text_in
from palaver.wire.transcripts.gathering import Notes
from palaver.wire.transcripts.lines import load_record
from palaver.wire.transcripts.llm_rows import attachment, info_of, metadata_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.messages.message import Role
    from palaver.wire.transcripts.building import Sheet
    from palaver.wire.transcripts.databases import Database

__all__ = ["read_threads"]

FORMAT: Final = "llm"
_ROLES: Final[dict[str, Role]] = {
    "system": "system", "user": "user", "assistant": "assistant", "tool": "tool",
}  # fmt: skip
_THREAD: Final = ("id", "name", "tip_message_hash", "forked_from", "datetime_utc")
_MESSAGE: Final = ("hash", "parent_hash", "role", "provider_metadata")
_PART: Final = ("position", "type", "text", "payload")
_TURN: Final = (
    "thread_id", "model", "resolved_model", "options_json", "schema_id", "duration_ms",
    "datetime_utc", "input_tokens", "output_tokens", "token_details",
)  # fmt: skip


def read_threads(database: Database) -> Iterator[Reading]:
    """Read every thread."""
    turns = database.places("turns", "tip_message_hash", "datetime_utc")
    for row in database.rows("threads", _THREAD, "order by datetime_utc, rowid"):
        thread = _Thread(database, text_of(row["id"]))
        thread.read(_chain(database, text_of(row["tip_message_hash"])), turns)
        about = {
            "id": text_of(row["id"]),
            "title": text_of(row["name"]),
            "forked_from": text_of(row["forked_from"]),
            "model": thread.model,
            "created": milliseconds(text_of(row["datetime_utc"])),
        }
        known = {name: item for name, item in about.items() if item}
        notes, database.notes = database.notes, Notes()
        yield Reading(tuple(thread.talk.messages), notes.all(), known)


def _chain(database: Database, tip: str) -> list[dict[str, Any]]:
    """The messages of a thread, oldest first."""
    found: dict[str, dict[str, Any]] = {}
    while tip and tip not in found:
        rows = list(database.rows("messages", _MESSAGE, "where hash = ?", (tip,)))
        if not rows:
            database.notes.lost(f"message {tip}", "transcript.damaged", "is not there")
            break
        found[tip] = rows[0]
        tip = text_of(rows[0]["parent_hash"])
    return list(found.values())[::-1]


class _Thread:
    """A thread, under way."""

    def __init__(self, database: Database, name: str) -> None:
        self.database = database
        self.name = name
        self.talk = Conversation(name or None)
        self.model: str | None = None

    def read(self, chain: list[dict[str, Any]], turns: Mapping[str, list[int]]) -> None:
        """Read the messages, those up to a turn's tip with what the turn says of them."""
        waiting: list[dict[str, Any]] = []
        for row in chain:
            waiting.append(row)
            places = turns.get(text_of(row["hash"]))
            if places:
                self._take(waiting, self._turn(places))
                waiting = []
        self._take(waiting, None)

    def _turn(self, places: list[int]) -> dict[str, Any]:
        """The turn that ended at a message: of this thread, else of the one it came from."""
        rows = [self.database.at("turns", place, _TURN) for place in places[:8]]
        return next((row for row in rows if text_of(row["thread_id"]) == self.name), rows[0])

    def _take(self, rows: list[dict[str, Any]], turn: dict[str, Any] | None) -> None:
        at = self.talk.at(milliseconds(text_of(turn["datetime_utc"])) if turn else None)
        for row in rows:
            name = text_of(row["hash"])
            role = _ROLES.get(text_of(row["role"]))
            try:
                if role is None:
                    detail = f"has the role {text_of(row['role'])[:80]!r}"
                    self.database.notes.lost(f"message {name}", "transcript.role", detail)
                else:
                    self._message(row, name, role, at, turn if row is rows[-1] else None)
            except ValidationError as error:
                self.database.notes.lost(f"message {name}", "transcript.damaged", str(error))

    def _message(
        self,
        row: Mapping[str, Any],
        wanted: str,
        role: Role,
        at: int,
        turn: Mapping[str, Any] | None,
    ) -> None:
        name = self.talk.new_id(wanted, wanted)
        sheet = self.talk.sheet(name)
        for part in self._parts(wanted):
            if part.get("type") == "tool_result" and role != "assistant":
                self._result(part, f"{wanted} {part.get('position')}", at)
            else:
                self._put(sheet, part, at)
        metadata = {} if turn is None else metadata_of(turn)
        if kept := text_of(row["provider_metadata"]):
            value = load_record(kept.encode(), f"message {wanted}", self.database.notes)
            metadata |= value or {}
        if role != "tool" and (sheet.parts or role != "user"):
            info = info_of(turn, at) if turn is not None and role == "assistant" else None
            if info is not None and info.model is not None:
                self.model = info.model.model_id
            content = sheet.content if sheet.parts else ""
            made = Message(role, content, id=name, timestamp=at, info=info, metadata=metadata)
            self.talk.messages.append(made)
        elif sheet.parts:
            detail = "a tool's message says more than results"
            self.database.notes.lost(f"message {wanted}", "transcript.part", detail)

    def _parts(self, message: str) -> Iterator[dict[str, Any]]:
        mine = "where message_hash = ? order by position"
        for row in self.database.rows("parts", _PART, mine, (message,)):
            where = f"message {message}, part {row['position']}"
            payload = text_of(row["payload"])
            value = load_record(payload.encode(), where, self.database.notes) if payload else {}
            part = {**(value or {}), "type": text_of(row["type"]), "position": row["position"]}
            if row["text"] is not None:
                part["text"] = text_of(row["text"])
            elif "text_ref" in part:
                part["text"] = "".join(self._pieces(list_in(part, "text_ref"), where))
            yield part

    def _pieces(self, pieces: list[Any] | tuple[Any, ...], where: str) -> Iterator[str]:
        """Literal text, and fragments by their numbers."""
        for piece in pieces:
            holder = piece if is_object(piece) else EMPTY
            if isinstance(holder.get("literal"), str):
                yield holder["literal"]
                continue
            key = (holder.get("fragment"),)
            rows = list(self.database.rows("fragments", ("content",), "where id = ?", key))
            if rows:
                yield text_of(rows[0]["content"])
            else:
                self.database.notes.lost(where, "transcript.damaged", "a fragment is not there")

    def _put(self, sheet: Sheet, part: Mapping[str, Any], at: int) -> None:
        kind, told = part.get("type"), object_in(part, "provider_metadata")
        call_id = name_in(part, "tool_call_id") or f"call-{len(self.talk.calls)}"
        if kind == "text" and isinstance(part.get("text"), str):
            sheet.text(part["text"], **({"metadata": told} if told else {}))
        elif kind == "reasoning" and isinstance(part.get("text"), str):
            redacted = {FORMAT: {"redacted": True}} if part.get("redacted") is True else {}
            sheet.reasoning(part["text"], at, {**told, **redacted})
        elif kind == "tool_call" and part.get("server_executed") is not True:
            given = object_in(part, "arguments")
            tool = name_in(part, "name") or "unknown"
            call = Call(tool, given, dump(part.get("arguments")).decode(), at)
            self.talk.calls[call_id] = call
            sheet.call(call_id, call, told)
        elif kind == "attachment" and (file := self._file(object_in(part, "attachment"))):
            sheet.file(*file)
        else:
            block = {name: item for name, item in part.items() if name != "position"}
            sheet.unknown(FORMAT, block)

    def _result(self, part: Mapping[str, Any], place: str, at: int) -> None:
        call_id = name_in(part, "tool_call_id") or self._call_of(text_in(part, "name"))
        problem = text_in(part, "exception")
        found = [self._file(item) for item in list_in(part, "attachments") if is_object(item)]
        told = object_in(part, "provider_metadata")
        made = self.talk.result(
            call_id,
            text_in(part, "output") or problem,
            self.talk.new_id(None, place),
            at,
            is_error=bool(problem),
            tool=name_in(part, "name"),
            files=[file[:2] for file in found if file is not None],
            metadata={**told, FORMAT: {"exception": problem}} if problem else told,
        )
        self.talk.messages.append(made)

    def _call_of(self, tool: str) -> str:
        """The last call of this tool: what a result without a call's id must belong to."""
        calls = reversed(self.talk.calls.items())
        return next((name for name, call in calls if call.tool == tool), f"result of {tool}"[:80])

    def _file(self, value: Mapping[str, Any]) -> tuple[str, str, str | None] | None:
        return attachment(self.database, text_in(value, "id"))
