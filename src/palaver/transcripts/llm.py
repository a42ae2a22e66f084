"""Conversations of simonw's llm, from its `logs.db`.

Older releases have a row for each call of a model: the prompt and the answer, and in other tables
attachments, fragments, tool calls, and the results that came in with the prompt. Newer releases
have threads: a thread points at its last message, a message at its parent. Messages are shared
between threads and have no time and no model; a turn, which is one call of a model, has both for
the messages up to its tip. A file may have both, and a thread replaces the conversation of its id.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from palaver.errors import ValidationError
from palaver.messages.codec import dump
from palaver.messages.limits import EMPTY, MAX_INT, MAX_NAME, is_object
from palaver.messages.message import AssistantInfo, Message
from palaver.messages.parts import ModelRef
from palaver.transcripts.builder import ConversationBuilder, KnownCall
from palaver.transcripts.sources import (
    column_text,
    get_count,
    get_list,
    get_name,
    get_object,
    get_text,
    load_record,
    open_database,
    parse_input,
    parse_time,
    token_counts,
)
from palaver.wire.format import FileContent
from palaver.wire.notes import NoteCollector, ParsedConversation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from palaver.messages.message import Role
    from palaver.transcripts.builder import MessageBuilder
    from palaver.transcripts.sources import Database

__all__ = ["TABLES", "THREADS", "model_of", "read"]


TABLES: Final = ("conversations", "responses")
THREADS: Final = ("threads", "turns", "messages", "parts")
_RESPONSE: Final = (
    "id", "model", "resolved_model", "prompt", "system", "response", "reasoning", "options_json",
    "schema_id", "duration_ms", "datetime_utc", "input_tokens", "output_tokens", "token_details",
)  # fmt: skip
"""Everything but `prompt_json` and `response_json`, which say the same in the provider's words."""


def read(source: bytes | Path) -> Iterator[ParsedConversation]:
    """Read every conversation of a `logs.db`."""
    with open_database(source, NoteCollector()) as database:
        threads: set[str] = set()
        if database.has(*TABLES):
            if database.has(*THREADS):
                tipped = database.rows("threads", ("id",), "where tip_message_hash is not null")
                threads = {column_text(row["id"]) for row in tipped}
            yield from _Responses(database).conversations(threads)
        if database.has(*THREADS):
            yield from _read_threads(database)
        if database.notes.all():  # damage that no conversation could tell
            yield ParsedConversation((), database.notes.all())


class _Responses:
    """The older tables, with the row ids of what has no index."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.calls = database.row_ids("tool_calls", "response_id")
        self.results = database.row_ids("tool_results", "response_id")

    def conversations(self, elsewhere: set[str]) -> Iterator[ParsedConversation]:
        """Yield the conversations, without those that are `elsewhere`, in threads."""
        places = self.database.row_ids("responses", "conversation_id", "datetime_utc")
        alone = places.pop("", [])
        for row in self.database.rows("conversations", ("id", "name", "model"), "order by rowid"):
            name = column_text(row["id"])
            mine = places.pop(name, [])
            if name in elsewhere:
                self.database.notes.skipped(
                    f"conversation {name}", "responses", "the thread of this id says the same"
                )
                continue
            about = {
                "id": name,
                "title": column_text(row["name"]),
                "model": column_text(row["model"]),
            }
            yield self._conversation(name, mine, about)
        for name, mine in places.items():  # of conversations that are not there
            yield self._conversation(name, mine, {"id": name})
        for place in alone:
            yield self._conversation(None, [place], {})

    def _conversation(
        self, name: str | None, places: list[int], about: Mapping[str, Any]
    ) -> ParsedConversation:
        notes = self.database.notes
        builder = ConversationBuilder(name)
        conversation = _LlmConversation(builder, self.database)
        for place in places:
            row = self.database.row("responses", place, _RESPONSE)
            response = column_text(row["id"])
            try:
                conversation.add(row, self.results.get(response, []), self.calls.get(response, []))
            except ValidationError as error:
                notes.lost(f"response {response}", "transcript.damaged", str(error))
        made = {"created": builder.messages[0].timestamp} if builder.messages else {}
        known = {key: item for key, item in {**about, **made}.items() if item}
        self.database.notes = NoteCollector()
        return ParsedConversation(tuple(builder.messages), notes.all(), known)


class _LlmConversation:
    """A conversation, built row by row."""

    def __init__(self, builder: ConversationBuilder, database: Database) -> None:
        self.builder = builder
        self.database = database
        self.system = ""
        self.open: dict[str, str] = {}

    def add(self, row: Mapping[str, Any], results: list[int], calls: list[int]) -> None:
        """Add the prompt and the answer of one call of a model."""
        builder, response = self.builder, column_text(row["id"])
        at = builder.at(parse_time(column_text(row["datetime_utc"])))
        system = self._joined("system_fragments", response, column_text(row["system"]), "\n\n")
        if system and system != self.system:
            self.system = system
            name = builder.new_id(None, f"{response} system")
            builder.messages.append(Message("system", system, id=name, timestamp=at))
        for place in results:
            self._result(place, response, at)
        self._prompt(row, response, at)
        name = builder.new_id(response or None, f"{response} answer")
        parts = builder.message(name)
        if reasoning := column_text(row["reasoning"]):
            parts.reasoning(reasoning, at)
        if said := column_text(row["response"]):
            parts.text(said)
        for index, place in enumerate(calls):
            self._call(place, f"{response}-{index}", parts, at)
        builder.messages.append(
            Message(
                "assistant",
                parts.content if parts.parts else "",
                id=name,
                timestamp=at,
                info=_info_of(row, at),
                metadata=_metadata_of(row),
            )
        )

    def _prompt(self, row: Mapping[str, Any], response: str, at: int) -> None:
        text = self._joined("prompt_fragments", response, column_text(row["prompt"]), "\n")
        name = self.builder.new_id(None, f"{response} prompt")
        parts = self.builder.message(name)
        if text:
            parts.text(text)
        for file in _attached(self.database, "prompt_attachments", "response_id", response):
            parts.file(file.mime, file.url, file.filename)
        if parts.parts:
            self.builder.messages.append(Message("user", parts.content, id=name, timestamp=at))

    def _joined(self, table: str, response: str, text: str, between: str) -> str:
        """Return a text with the fragments before it."""
        database, mine = self.database, 'where response_id = ? order by "order"'
        rows = (
            database.rows(table, ("fragment_id",), mine, (response,)) if table in database else ()
        )
        ids = [row["fragment_id"] for row in rows]
        found = [database.rows("fragments", ("content",), "where id = ?", (name,)) for name in ids]
        pieces = [column_text(row["content"]) for rows in found for row in rows]
        if between == "\n\n":  # around a system text llm takes off what is blank
            return between.join(piece for item in (*pieces, text) if (piece := item.strip()))
        return between.join([*pieces, text] if text else pieces)

    def _call(self, place: int, usual: str, parts: MessageBuilder, at: int) -> None:
        row = self.database.row("tool_calls", place, ("name", "arguments", "tool_call_id"))
        tool, raw = get_name(row, "name") or "unknown", column_text(row["arguments"])
        call_id = get_name(row, "tool_call_id") or usual
        call = KnownCall(tool, parse_input(raw), raw, at)
        self.builder.calls[call_id] = call
        self.open[call_id] = tool
        parts.call(call_id, call)

    def _result(self, place: int, response: str, at: int) -> None:
        columns = ("id", "name", "output", "tool_call_id", "exception")
        row = self.database.row("tool_results", place, columns)
        tool, output = get_name(row, "name"), column_text(row["output"])
        call_id = get_name(row, "tool_call_id") or next(
            (call for call, name in self.open.items() if name == tool), f"{response}-result-{place}"
        )
        self.open.pop(call_id, None)
        problem = column_text(row["exception"])
        name = self.builder.new_id(None, f"{response} result {place}")
        files = _attached(self.database, "tool_results_attachments", "tool_result_id", row["id"])
        made = self.builder.result(
            call_id,
            output or problem,
            name,
            at,
            is_error=bool(problem),
            tool=tool,
            files=files,
            metadata={"llm": {"exception": problem}} if problem else {},
        )
        self.builder.messages.append(made)


_FORMAT: Final = "llm"
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


def _read_threads(database: Database) -> Iterator[ParsedConversation]:
    """Read every thread."""
    turns = database.row_ids("turns", "tip_message_hash", "datetime_utc")
    for row in database.rows("threads", _THREAD, "order by datetime_utc, rowid"):
        thread = _Thread(database, column_text(row["id"]))
        thread.read(_chain(database, column_text(row["tip_message_hash"])), turns)
        about = {
            "id": column_text(row["id"]),
            "title": column_text(row["name"]),
            "forked_from": column_text(row["forked_from"]),
            "model": thread.model,
            "created": parse_time(column_text(row["datetime_utc"])),
        }
        known = {name: item for name, item in about.items() if item}
        notes, database.notes = database.notes, NoteCollector()
        yield ParsedConversation(tuple(thread.builder.messages), notes.all(), known)


def _chain(database: Database, tip: str) -> list[dict[str, Any]]:
    """Return the messages of a thread, oldest first."""
    found: dict[str, dict[str, Any]] = {}
    while tip and tip not in found:
        rows = list(database.rows("messages", _MESSAGE, "where hash = ?", (tip,)))
        if not rows:
            database.notes.lost(f"message {tip}", "transcript.damaged", "is not there")
            break
        found[tip] = rows[0]
        tip = column_text(rows[0]["parent_hash"])
    return list(found.values())[::-1]


class _Thread:
    """Reads one thread."""

    def __init__(self, database: Database, name: str) -> None:
        self.database = database
        self.name = name
        self.builder = ConversationBuilder(name or None)
        self.model: str | None = None

    def read(self, chain: list[dict[str, Any]], turns: Mapping[str, list[int]]) -> None:
        """Read the messages, those up to a turn's tip with what the turn says of them."""
        waiting: list[dict[str, Any]] = []
        for row in chain:
            waiting.append(row)
            places = turns.get(column_text(row["hash"]))
            if places:
                self._take(waiting, self._turn(places))
                waiting = []
        self._take(waiting, None)

    def _turn(self, places: list[int]) -> dict[str, Any]:
        """Return the turn that ended at a message: of this thread, else of its origin."""
        rows = [self.database.row("turns", place, _TURN) for place in places[:8]]
        return next((row for row in rows if column_text(row["thread_id"]) == self.name), rows[0])

    def _take(self, rows: list[dict[str, Any]], turn: dict[str, Any] | None) -> None:
        at = self.builder.at(parse_time(column_text(turn["datetime_utc"])) if turn else None)
        for row in rows:
            name = column_text(row["hash"])
            role = _ROLES.get(column_text(row["role"]))
            try:
                if role is None:
                    detail = f"has the role {column_text(row['role'])[:80]!r}"
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
        name = self.builder.new_id(wanted, wanted)
        parts = self.builder.message(name)
        for part in self._parts(wanted):
            if part.get("type") == "tool_result" and role != "assistant":
                self._result(part, f"{wanted} {part.get('position')}", at)
            else:
                self._put(parts, part, at)
        metadata = {} if turn is None else _metadata_of(turn)
        if stored := column_text(row["provider_metadata"]):
            value = load_record(stored.encode(), f"message {wanted}", self.database.notes)
            metadata |= value or {}
        if role != "tool" and (parts.parts or role != "user"):
            info = _info_of(turn, at) if turn is not None and role == "assistant" else None
            if info is not None and info.model is not None:
                self.model = info.model.model_id
            content = parts.content if parts.parts else ""
            made = Message(role, content, id=name, timestamp=at, info=info, metadata=metadata)
            self.builder.messages.append(made)
        elif parts.parts:
            detail = "a tool's message says more than results"
            self.database.notes.lost(f"message {wanted}", "transcript.part", detail)

    def _parts(self, message: str) -> Iterator[dict[str, Any]]:
        mine = "where message_hash = ? order by position"
        for row in self.database.rows("parts", _PART, mine, (message,)):
            where = f"message {message}, part {row['position']}"
            payload = column_text(row["payload"])
            value = load_record(payload.encode(), where, self.database.notes) if payload else {}
            part = {**(value or {}), "type": column_text(row["type"]), "position": row["position"]}
            if row["text"] is not None:
                part["text"] = column_text(row["text"])
            elif "text_ref" in part:
                part["text"] = "".join(self._pieces(get_list(part, "text_ref"), where))
            yield part

    def _pieces(self, pieces: list[Any] | tuple[Any, ...], where: str) -> Iterator[str]:
        """Yield literal text, and fragments by their ids."""
        for piece in pieces:
            holder = piece if is_object(piece) else EMPTY
            if isinstance(holder.get("literal"), str):
                yield holder["literal"]
                continue
            key = (holder.get("fragment"),)
            rows = list(self.database.rows("fragments", ("content",), "where id = ?", key))
            if rows:
                yield column_text(rows[0]["content"])
            else:
                self.database.notes.lost(where, "transcript.damaged", "a fragment is not there")

    def _put(self, parts: MessageBuilder, part: Mapping[str, Any], at: int) -> None:
        kind, stored = part.get("type"), get_object(part, "provider_metadata")
        call_id = get_name(part, "tool_call_id") or f"call-{len(self.builder.calls)}"
        if kind == "text" and isinstance(part.get("text"), str):
            parts.text(part["text"], **({"metadata": stored} if stored else {}))
        elif kind == "reasoning" and isinstance(part.get("text"), str):
            redacted = {_FORMAT: {"redacted": True}} if part.get("redacted") is True else {}
            parts.reasoning(part["text"], at, {**stored, **redacted})
        elif kind == "tool_call" and part.get("server_executed") is not True:
            given = get_object(part, "arguments")
            tool = get_name(part, "name") or "unknown"
            call = KnownCall(tool, given, dump(part.get("arguments")).decode(), at)
            self.builder.calls[call_id] = call
            parts.call(call_id, call, stored)
        elif kind == "attachment" and (file := self._file(get_object(part, "attachment"))):
            parts.file(file.mime, file.url, file.filename)
        else:
            block = {name: item for name, item in part.items() if name != "position"}
            parts.unknown(_FORMAT, block)

    def _result(self, part: Mapping[str, Any], place: str, at: int) -> None:
        call_id = get_name(part, "tool_call_id") or self._call_of(get_text(part, "name"))
        problem = get_text(part, "exception")
        found = [self._file(item) for item in get_list(part, "attachments") if is_object(item)]
        stored = get_object(part, "provider_metadata")
        made = self.builder.result(
            call_id,
            get_text(part, "output") or problem,
            self.builder.new_id(None, place),
            at,
            is_error=bool(problem),
            tool=get_name(part, "name"),
            files=[file for file in found if file is not None],
            metadata={**stored, _FORMAT: {"exception": problem}} if problem else stored,
        )
        self.builder.messages.append(made)

    def _call_of(self, tool: str) -> str:
        """Return the last call of this tool, for a result without a call's id."""
        calls = reversed(self.builder.calls.items())
        return next((name for name, call in calls if call.tool == tool), f"result of {tool}"[:80])

    def _file(self, value: Mapping[str, Any]) -> FileContent | None:
        return _attachment(self.database, get_text(value, "id"))


_MAKERS: Final = (
    ("claude", "anthropic"), ("anthropic", "anthropic"), ("gemini", "google"), ("gpt", "openai"),
    ("chatgpt", "openai"), ("o1", "openai"), ("o3", "openai"), ("o4", "openai"),
    ("openai", "openai"),
)  # fmt: skip
"""How a model's name begins, and who makes it: llm itself does not say."""


def model_of(name: str) -> ModelRef | None:
    """Return a model by its name; its provider where the name tells, else llm.

    >>> model_of("gpt-4o-mini").provider_id, model_of("orca-mini").provider_id
    ('openai', 'llm')
    """
    if not (0 < len(name) <= MAX_NAME and name.isprintable()):
        return None
    maker = next((maker for begin, maker in _MAKERS if name.lower().startswith(begin)), "llm")
    return ModelRef(maker, name)


def _info_of(row: Mapping[str, Any], at: int) -> AssistantInfo:
    """Return what a row says of the call: its model, its tokens, its time."""
    details = parse_input(column_text(row["token_details"]))
    flat = {name: item for key in details for name, item in _flat(key, details[key]).items()}
    took = get_count(row, "duration_ms")
    return AssistantInfo(
        model=model_of(column_text(row["resolved_model"]) or column_text(row["model"])),
        tokens=token_counts(
            get_count(row, "input_tokens"),
            get_count(row, "output_tokens"),
            read=get_count(flat, "cached_tokens", "cache_read_input_tokens"),
            reasoning=get_count(flat, "reasoning_tokens"),
        ),
        completed=at + took if at + took <= MAX_INT else None,
    )


def _flat(name: str, value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {name: value}


def _metadata_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what else a row says: options, the schema's name, details of the tokens."""
    named = {"options": "options_json", "tokenDetails": "token_details"}
    found: dict[str, Any] = {
        name: value
        for name, column in named.items()
        if (value := parse_input(column_text(row[column])))
    }
    if schema := column_text(row["schema_id"]):
        found["schema"] = schema
    return {"llm": found} if found else {}


def _attached(database: Database, table: str, column: str, owner: object) -> list[FileContent]:
    """Return the files attached to a prompt or a result."""
    if table not in database:
        return []
    where = f'where "{column}" = ? order by "order"'
    ids = [
        row["attachment_id"] for row in database.rows(table, ("attachment_id",), where, (owner,))
    ]
    return [file for name in ids if (file := _attachment(database, column_text(name)))]


def _attachment(database: Database, name: str) -> FileContent | None:
    """Return an attachment; palaver opens neither its path nor its url."""
    columns = ("type", "path", "url", "content")
    for row in database.rows("attachments", columns, "where id = ?", (name,)):
        mime = column_text(row["type"]) or "application/octet-stream"
        if path := column_text(row["path"]):
            return FileContent(mime, f"file://{quote(path)}", path.rpartition("/")[2] or None)
        if url := column_text(row["url"]):
            return FileContent(mime, url)
        content = row["content"]
        if isinstance(content, bytes):
            return FileContent(mime, f"data:{mime};base64,{base64.b64encode(content).decode()}")
    database.notes.lost(f"attachment {name}", "transcript.damaged", "is not there")
    return None
