"""Sessions of opencode: its database, its export, and the folder of files of older releases.

All three hold the same turns, `{info, parts}`, which palaver's own turns follow; `messages` reads
them. A damaged part loses that part, not its turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.errors import ValidationError
from palaver.messages import unfold
from palaver.messages.codec import MAX_DOCUMENT
from palaver.messages.foreign import parse_turn
from palaver.messages.ids import derive_id
from palaver.messages.limits import is_list, is_object
from palaver.transcripts.sources import (
    column_text,
    get_list,
    get_object,
    get_text,
    load_record,
    load_value,
    open_database,
    open_source,
    parse_time,
)
from palaver.wire.notes import NoteCollector, ParsedConversation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from palaver.messages.message import Message
    from palaver.messages.parts import ToolPart
    from palaver.messages.turns import WithParts
    from palaver.transcripts.sources import Database

__all__ = ["TABLES", "read_database", "read_export", "read_folder", "without_greeting"]

TABLES: Final = ("session", "message", "part")
_GREETING: Final = b"Exporting session: "
_SESSION: Final = (
    "id", "parent_id", "directory", "title", "version", "model", "time_created", "time_archived",
)  # fmt: skip


def read_database(source: bytes | Path) -> Iterator[ParsedConversation]:
    """Read every session of a database."""
    notes = NoteCollector()
    with open_database(source, notes) as database:
        for session in database.rows("session", _SESSION, "order by time_created, id"):
            name = column_text(session["id"])
            turns = list(_stored_turns(database, name, notes))
            if not turns and database.has("session_message"):
                _count_newer(database, name, notes)
            yield _conversation(turns, _about_row(session), notes)
            notes = database.notes = NoteCollector()
    if notes.all():  # damage that no session could tell
        yield ParsedConversation((), notes.all())


def read_export(source: bytes | Path) -> Iterator[ParsedConversation]:
    """Read an export: one session, or the bare list of its turns."""
    notes = NoteCollector()
    with open_source(source) as stream:
        data = stream.read(MAX_DOCUMENT + 1)
    value = load_value(without_greeting(data), "$", notes)
    about: dict[str, Any] = {}
    if is_object(value) and "messages" in value:
        about = _about_info(get_object(value, "info"))
        value = value["messages"]
    items = value if is_list(value) else (value,)
    turns = [
        turn
        for where, item in _with_own_ids(items, notes)
        if (turn := _turn(item, where, notes)) is not None
    ]
    yield _conversation(turns, about, notes)


def without_greeting(data: bytes) -> bytes:
    r"""Return an export without the line that the command prints for the person before it.

    >>> without_greeting(b"Exporting session: ses_1\n{}")
    b'{}'
    """
    return data.partition(b"\n")[2] if data.startswith(_GREETING) else data


def _with_own_ids(items: Iterable[object], notes: NoteCollector) -> Iterator[tuple[str, object]]:
    """Yield place and turn; where an id was used before, as where ids are hidden, with another.

    A turn that stands there twice, word for word, is left out.
    """
    turns: dict[str, object] = {}
    parts: dict[str, tuple[str, object]] = {}
    for index, item in enumerate(items):
        where = f"$.messages[{index}]"
        name = get_text(get_object(item, "info"), "id") if is_object(item) else ""
        first = turns.setdefault(name, item)
        if not is_object(item) or not name:
            yield where, item
        elif first is not item and first == item:
            notes.lost(f"message {name}", "transcript.damaged", "stands there twice")
        else:
            own = name if first is item else derive_id(name, where)
            mine = [
                _with_own_id(part, own, f"{where}.{place}", parts)
                for place, part in enumerate(get_list(item, "parts"))
            ]
            if own != name or mine != get_list(item, "parts"):
                detail = "has ids of others, which say something else: all are kept"
                notes.repaired(where, "transcript.uuid", detail)
                item = {**item, "info": {**item["info"], "id": own}, "parts": mine}  # noqa: PLW2901 - the same turn
            yield where, item


def _with_own_id(
    part: object, message: str, where: str, taken: dict[str, tuple[str, object]]
) -> object:
    """Return a part of a message, with another id where a different part has its own."""
    name = get_text(part, "id") if is_object(part) else ""
    if not is_object(part) or not name:
        return part
    if taken.setdefault(name, (message, part)) == (message, part):
        return part
    return {**part, "id": derive_id(name, where)}


def read_folder(source: Path) -> Iterator[ParsedConversation]:
    """Read the folder `storage` of an older release: a file for each session, message and part."""
    sessions = {path.stem: path for path in sorted(source.glob("session/*/*.json"))}
    for folder in sorted(source.glob("message/*")):
        notes = NoteCollector()
        about: dict[str, Any] = {}
        if folder.name in sessions:
            about = _about_info(_file(sessions[folder.name], notes) or {})
        turns: list[WithParts] = []
        for path in sorted(folder.glob("*.json")):
            info = _file(path, notes)
            files = sorted((source / "part" / path.stem).glob("*.json"))
            parts = [part for file in files if (part := _file(file, notes)) is not None]
            turn = None if info is None else _turn({"info": info, "parts": parts}, path.name, notes)
            turns += [turn] if turn is not None else []
        turns.sort(key=lambda turn: turn.info.time.created)  # stable: ids rise with time
        yield _conversation(turns, {"id": folder.name, **about}, notes)


def _file(path: Path, notes: NoteCollector) -> Mapping[str, Any] | None:
    with path.open("rb") as stream:
        return load_record(stream.read(MAX_DOCUMENT + 1), path.name, notes)


def _stored_turns(database: Database, session: str, notes: NoteCollector) -> Iterator[WithParts]:
    by_message: dict[str, list[dict[str, Any]]] = {}
    mine, key = "where session_id = ?", (session,)
    for row in database.rows("part", ("id", "message_id", "data"), f"{mine} order by id", key):
        owner, name = column_text(row["message_id"]), column_text(row["id"])
        value = load_record(column_text(row["data"]).encode(), f"part {name}", notes)
        if value is not None:
            part = {**value, "id": name, "sessionID": session, "messageID": owner}
            by_message.setdefault(owner, []).append(part)
    in_order = f"{mine} order by time_created, id"
    for row in database.rows("message", ("id", "data"), in_order, key):
        name = column_text(row["id"])
        value = load_record(column_text(row["data"]).encode(), f"message {name}", notes)
        parts = by_message.pop(name, [])
        if value is None:
            continue
        info = {**value, "id": name, "sessionID": session}
        turn = _turn({"info": info, "parts": parts}, f"message {name}", notes)
        if turn is not None:
            yield turn
    for owner, parts in by_message.items():
        detail = f"{len(parts)} parts belong to a message that is not there"
        notes.lost(f"message {owner}", "transcript.damaged", detail)


def _count_newer(database: Database, session: str, notes: NoteCollector) -> None:
    mine = "where session_id = ?"
    for row in database.rows("session_message", ("id",), mine, (session,)):
        why = "a form of message that palaver does not read yet"
        notes.skipped(f"message {column_text(row['id'])}", "session_message", why)


def _turn(item: object, where: str, notes: NoteCollector) -> WithParts | None:
    """Return a turn, whole if it can be, else without its damaged parts."""
    try:
        return parse_turn(item)
    except ValidationError as refusal:
        parts = item.get("parts") if is_object(item) else None
        if not is_object(item) or not is_object(item.get("info")) or not is_list(parts):
            notes.lost(where, "transcript.damaged", str(refusal))
            return None
    good: dict[object, object] = {}
    for index, part in enumerate(parts):
        name = part.get("id") if is_object(part) else None
        key = name if isinstance(name, str) else index
        try:
            parse_turn({**item, "parts": [part]})
        except ValidationError as refusal:
            refused = str(refusal.moved("$.parts[0]", f"$.parts[{index}]"))
            if not refusal.path.startswith("$.parts"):
                notes.lost(where, "transcript.damaged", str(refusal))
                return None
        else:
            refused = f"$.parts[{index}].id: another part has it" if key in good else ""
            good.setdefault(key, part)
        if refused:
            notes.lost(where, "transcript.part", refused)
    return parse_turn({**item, "parts": list(good.values())})


def _conversation(
    turns: list[WithParts], about: dict[str, Any], notes: NoteCollector
) -> ParsedConversation:
    """Return the conversation of some turns; note each call that nobody answered."""
    messages: dict[str, Message] = {}
    ledger: dict[str, ToolPart] = {}
    for turn in turns:
        try:
            found = unfold([turn])
        except ValidationError as refusal:  # what a turn keeps for later may be anything
            notes.lost(f"message {turn.info.id}", "transcript.damaged", str(refusal))
            continue
        ledger.update(found.ledger)
        for message in found.messages:
            if messages.setdefault(message.id, message) is not message:
                notes.lost(f"message {message.id}", "transcript.damaged", "stands there twice")
    for call in ledger.values():
        detail = f"the call of {call.tool} was still {call.state.status}: it has no result"
        notes.lost(f"call {call.call_id}", "transcript.open", detail, call.message_id)
    models = (getattr(message.info, "model", None) for message in reversed(messages.values()))
    model = next((model.model_id for model in models if model is not None), None)
    if model is not None:
        about = {**about, "model": model}
    return ParsedConversation(tuple(messages.values()), notes.all(), about)


def _about_row(row: Mapping[str, Any]) -> dict[str, Any]:
    about = {
        "id": column_text(row["id"]),
        "title": column_text(row["title"]),
        "cwd": column_text(row["directory"]),
        "version": column_text(row["version"]),
        "parent": column_text(row["parent_id"]),
        "created": parse_time(row["time_created"]),
    }
    return {name: item for name, item in about.items() if item}


def _about_info(info: Mapping[str, Any]) -> dict[str, Any]:
    about = {
        "id": get_text(info, "id"),
        "title": get_text(info, "title"),
        "cwd": get_text(info, "directory"),
        "version": get_text(info, "version"),
        "parent": get_text(info, "parentID"),
        "created": parse_time(get_object(info, "time").get("created")),
    }
    return {name: item for name, item in about.items() if item}
