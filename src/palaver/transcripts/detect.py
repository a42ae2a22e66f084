"""Detection of a file's format by its content, never by its name.

Each answer rests on fields that only that format has.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from palaver.errors import ValidationError
from palaver.messages.codec import MAX_DOCUMENT, load_json
from palaver.messages.limits import is_list, is_object
from palaver.transcripts import llm, opencode
from palaver.transcripts.codex import BARE, WRAPPED
from palaver.transcripts.sources import (
    MAGIC,
    MAX_LINE,
    get_list,
    get_text,
    load_record,
    open_database,
    open_source,
    read_lines,
)
from palaver.wire.notes import NoteCollector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.transcripts.sources import Database

__all__ = ["detect", "document_format", "line_format", "request_format"]


_LOOKS: Final = 200
"""Lines that are read before a file is given up."""
_GOES_ON: Final = (b"[", b"{", b":", b",")
_BOM: Final = b"\xef\xbb\xbf"


def detect(source: bytes | Path) -> str | None:
    """Return the format of a file, of bytes, or of opencode's folder; None where it is unknown.

    The answers: `claude-code`, `codex`, `opencode`, `opencode-export`, `opencode-folder`, `llm`,
    `requests` (a log of them, as JSON lines), `messages` (palaver's own JSON, or what is as plain),
    `palaver-lines`, `palaver-2`, `palaver-1` (snapshots), and of a single request `openai-chat`,
    `openai-responses`, `anthropic` or `gemini`.

    >>> detect(b'{"type": "session_meta", "payload": {"id": "s1"}}')
    'codex'
    >>> detect(b"Dear diary") is None
    True
    """
    if isinstance(source, Path) and source.is_dir():
        there = all((source / name).is_dir() for name in opencode.TABLES)
        return "opencode-folder" if there else None
    with open_source(source) as stream:
        opening = stream.read(len(MAGIC))
        stream.seek(0)
        if opening == MAGIC:
            return _database_format(source)
        return _text_format(stream)


def _database_format(source: bytes | Path) -> str | None:
    try:
        with open_database(source, NoteCollector()) as database:
            return _tables_format(database)
    except ValidationError:
        return None


def _tables_format(database: Database) -> str | None:
    if database.has(*opencode.TABLES) and "data" in database.columns["part"]:
        return "opencode"
    older, newer = database.has(*llm.TABLES), database.has(*llm.THREADS)
    return "llm" if older or newer else None


def _text_format(stream: IO[bytes]) -> str | None:
    """Return the format of lines, where the first line is a value by itself, or of a document."""
    lines = _first_lines(stream)
    if not lines:
        return None
    whole = _parses(lines[0])
    if len(lines) > 1 and (whole or not lines[0].endswith(_GOES_ON)):
        return _lines_format(lines)
    stream.seek(0)
    data = lines[0] if whole else stream.read(MAX_DOCUMENT + 1).removeprefix(_BOM)
    try:
        value = load_json(data, unique=False)
    except ValidationError:
        return _lines_format(lines)
    found = document_format(value)
    alone = line_format(value) if is_object(value) else None
    return alone if found is None or alone in _AS_LINE else found


_AS_LINE: Final = frozenset(("claude-code", "codex", "palaver-lines"))
"""Formats of a file with one line, which can't be a document."""


def _first_lines(stream: IO[bytes]) -> list[bytes]:
    lines: list[bytes] = []
    room = MAX_LINE
    for _number, text in islice(read_lines(stream), _LOOKS):
        if text is not None:
            lines.append(text)
            room -= len(text)
        if room < 0:
            break
    return lines


def _parses(text: bytes) -> bool:
    try:
        load_json(text, unique=False)
    except ValidationError:
        return False
    return True


def _lines_format(lines: list[bytes]) -> str | None:
    notes = NoteCollector()
    for text in lines:
        value = load_record(text, "", notes)
        found = None if value is None else line_format(value)
        if found is not None:
            return found
    return None


_CLAUDE: Final = frozenset(
    ("user", "assistant", "system", "attachment", "progress", "queue-operation", "custom-title",
     "ai-title", "agent-name", "permission-mode", "last-prompt", "pr-link", "tag")
)  # fmt: skip
_CHAT_ONLY: Final = frozenset(("tool_calls", "tool_call_id", "function_call", "refusal"))
_TEXTS: Final = frozenset(("input_text", "output_text", "input_image"))
_CHAT_ROLES: Final = frozenset(("developer", "function"))
_CHAT_BLOCKS: Final = frozenset(("image_url", "input_audio", "file"))
_ANTHROPIC_BLOCKS: Final = frozenset(
    ("tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document")
)
_ANTHROPIC_ONLY: Final = frozenset(
    ("system", "stop_sequences", "anthropic_version", "anthropic_beta", "thinking", "top_k")
)
_ITEMS: Final = frozenset(("function_call", "function_call_output", "reasoning", "item_reference"))
_EVERYTHING: Final = 2


def line_format(value: Mapping[str, Any]) -> str | None:
    """Return the format that one JSON line belongs to, or None where it could be anything.

    >>> line_format({"type": "response_item", "payload": {}})
    'codex'
    >>> line_format({"type": "user", "uuid": "u", "sessionId": "s", "message": {}})
    'claude-code'
    """
    kind = value.get("type")
    if "palaver" in value:
        return "palaver-lines"
    if _is_codex(value, kind):
        return "codex"
    if _is_claude(value, kind):
        return "claude-code"
    if is_object(value.get("request")) or request_format(value) is not None:
        return "requests"
    return "messages" if _is_message(value) else None


def document_format(value: object) -> str | None:
    """Return the format of a whole JSON document, or None.

    >>> document_format([{"role": "user", "content": "hi"}])
    'messages'
    """
    if is_list(value):
        first = value[0] if value else None
        if not is_object(first):
            return None
        if is_object(first.get("info")) and "parts" in first:
            return "opencode-export"
        return _messages_format(value) or "messages" if _is_message(first) else None
    return _object_format(value) if is_object(value) else None


def _object_format(value: Mapping[str, Any]) -> str | None:
    if "timestamp" in value and is_list(value.get("messages")):
        version = value.get("version")
        if type(version) is int and version == 1:
            return "palaver-1"
        if version == _EVERYTHING and "changes" in value:
            return "palaver-2"
    if is_object(value.get("info")) and (is_list(value.get("messages")) or "parts" in value):
        return "opencode-export"
    return request_format(value) or ("messages" if _is_message(value) else None)


def request_format(body: Mapping[str, Any]) -> str | None:
    """Return the provider's format of a request's body, or None.

    >>> request_format({"model": "claude-x", "max_tokens": 9, "messages": []})
    'anthropic'
    """
    if is_list(body.get("contents")) and "messages" not in body:
        return "gemini"
    if _is_responses(body):
        return "openai-responses"
    messages = body.get("messages")
    return _chat_format(body, messages) if is_list(messages) else None


def _chat_format(body: Mapping[str, Any], messages: list[Any] | tuple[Any, ...]) -> str | None:
    """Return Anthropic's format or OpenAI's: both have `messages`."""
    known = _messages_format(messages)
    alike = all(is_object(item) and "role" in item for item in messages[:8])
    if known is not None or not alike or not (messages or "model" in body):
        return known
    claude = get_text(body, "model").rpartition("/")[2].startswith("claude")
    return "anthropic" if claude or not _ANTHROPIC_ONLY.isdisjoint(body) else "openai-chat"


def _is_codex(value: Mapping[str, Any], kind: object) -> bool:
    if isinstance(kind, str) and is_object(value.get("payload")):
        return kind in WRAPPED
    if isinstance(kind, str) and kind in BARE:
        return kind != "message" or any(
            is_object(item) and get_text(item, "type") in _TEXTS
            for item in get_list(value, "content")
        )
    if "record_type" in value:
        return True
    return kind is None and {"id", "timestamp", "instructions"} <= value.keys()


def _is_claude(value: Mapping[str, Any], kind: object) -> bool:
    if kind == "summary":
        return "leafUuid" in value
    if kind == "file-history-snapshot":
        return "snapshot" in value
    return isinstance(kind, str) and "sessionId" in value and (kind in _CLAUDE or "uuid" in value)


def _is_responses(body: Mapping[str, Any]) -> bool:
    given = body.get("input")
    if isinstance(given, str):
        return "model" in body and "messages" not in body
    return is_list(given) and all(
        is_object(item) and ("role" in item or get_text(item, "type") in BARE | _ITEMS)
        for item in given[:8]
    )


def _is_message(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("role"), str) and "content" in value


def _messages_format(messages: list[Any] | tuple[Any, ...]) -> str | None:
    """Return the format that the messages show; None where all providers write them so."""
    for message in messages:
        if not is_object(message):
            return None
        if get_text(message, "role") in _CHAT_ROLES or not _CHAT_ONLY.isdisjoint(message):
            return "openai-chat"
        for block in get_list(message, "content"):
            kind = block.get("type") if is_object(block) else None
            if not isinstance(kind, str) or "messageID" in block:
                continue  # a part of palaver's
            if kind in _CHAT_BLOCKS:
                return "openai-chat"
            if kind in _ANTHROPIC_BLOCKS and not (kind in block or "image_url" in block):
                return "anthropic"  # palaver's own list has {"type": "tool_use", "tool_use": {…}}
    return None
