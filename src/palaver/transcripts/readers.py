"""Readers of transcripts by format: the one way to read a file in any format that palaver knows.

`detect` tells a file's format by its content, never by its name; each answer rests on fields that
only that format has.
"""

from __future__ import annotations

from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from palaver import wire
from palaver.errors import ValidationError
from palaver.messages import parse_message, parse_messages
from palaver.messages.codec import MAX_DOCUMENT, load_json
from palaver.messages.limits import is_list, is_object, kind_of
from palaver.stores import open_store
from palaver.stores.transfer import import_conversation
from palaver.transcripts import (
    chatgpt,
    claude_code,
    codex,
    codex_exec,
    copilot_cli,
    gemini_cli,
    llm,
    opencode,
    request_logs,
)
from palaver.transcripts.codex import BARE, WRAPPED
from palaver.transcripts.request_logs import messages_format, request_format
from palaver.transcripts.sources import (
    MAGIC,
    MAX_LINE,
    get_list,
    get_text,
    load_record,
    load_value,
    open_database,
    open_source,
    read_lines,
    read_records,
)
from palaver.wire.notes import Note, NoteCollector, ParsedConversation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from palaver.messages.message import Message
    from palaver.transcripts.sources import Database

__all__ = [
    "NAMES",
    "READERS",
    "SNAPSHOTS",
    "detect",
    "document_format",
    "each_conversation",
    "format_of",
    "line_format",
    "read_file",
    "read_transcript",
    "why_unknown",
]


_LOOKS: Final = 200
"""Lines that are read before a file is given up."""
_GOES_ON: Final = (b"[", b"{", b":", b",")
_BOM: Final = b"\xef\xbb\xbf"


def detect(source: bytes | Path) -> str | None:
    """Return the format of a file, of bytes, or of opencode's folder; None where it is unknown.

    The answers: `claude-code`, `codex`, `codex-exec`, `gemini-cli`, `copilot-cli`, `chatgpt`,
    `opencode`, `opencode-export`, `opencode-folder`, `llm`,
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
    greets = not opencode.without_greeting(lines[0])
    if len(lines) > 1 and not greets and (whole or not lines[0].endswith(_GOES_ON)):
        return _lines_format(lines)
    stream.seek(0)
    data = lines[0] if whole else stream.read(MAX_DOCUMENT + 1).removeprefix(_BOM)
    data = opencode.without_greeting(data)
    try:
        value = load_json(data, unique=False)
    except ValidationError:
        return _lines_format(lines)
    found = document_format(value)
    alone = line_format(value) if is_object(value) else None
    return alone if found is None or alone in _AS_LINE else found


_AS_LINE: Final = frozenset(("claude-code", "codex", "codex-exec", "copilot-cli", "palaver-lines"))
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


_SPEAKERS: Final = frozenset(("user", "assistant"))
_CLAUDE: Final = frozenset(
    ("user", "assistant", "system", "attachment", "progress", "queue-operation", "custom-title",
     "ai-title", "agent-name", "permission-mode", "last-prompt", "pr-link", "tag")
)  # fmt: skip
_TEXTS: Final = frozenset(("input_text", "output_text", "input_image"))
_EVERYTHING: Final = 2


def line_format(value: Mapping[str, Any]) -> str | None:
    """Return the format that one JSON line belongs to, or None where it could be anything.

    >>> line_format({"type": "response_item", "payload": {}})
    'codex'
    >>> line_format({"type": "user", "uuid": "u", "sessionId": "s", "message": {}})
    'claude-code'
    """
    return next((name for name, is_line in _LINES.items() if is_line(value)), None)


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
        if chatgpt.is_export(first) or _is_gemini(first):
            return "gemini" if _is_gemini(first) else "chatgpt"
        return messages_format(value) or "messages" if _is_message(first) else None
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
    found = next((name for name, is_session in _SESSIONS.items() if is_session(value)), None)
    return found or request_format(value) or ("messages" if _is_message(value) else None)


_SESSIONS: Final[Mapping[str, Callable[[Mapping[str, Any]], bool]]] = {
    "gemini-cli": gemini_cli.is_session,
    "copilot-cli": copilot_cli.is_document,
    "codex": codex.is_document,
    "chatgpt": chatgpt.is_export,
}
"""How to tell the document of a program."""


def _is_codex(value: Mapping[str, Any]) -> bool:
    kind = value.get("type")
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


def _is_claude(value: Mapping[str, Any]) -> bool:
    kind = value.get("type")
    if kind == "summary":
        return "leafUuid" in value
    if kind == "file-history-snapshot":
        return "snapshot" in value
    if not isinstance(kind, str):
        return False
    said = value.get("message")
    if kind in _SPEAKERS and is_object(said) and "content" in said:
        return said.get("role") in _SPEAKERS  # with or without a session
    named = "sessionId" in value or "session_id" in value
    return named and (kind in _CLAUDE or "uuid" in value)


def _is_gemini(value: Mapping[str, Any]) -> bool:
    """Tell whether a value is a content of Gemini's, as a saved chat of its command lists them."""
    return value.get("role") in {"user", "model"} and is_list(value.get("parts"))


def _is_message(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("role"), str) and "content" in value


_LINES: Final[Mapping[str, Callable[[Mapping[str, Any]], bool]]] = {
    "palaver-lines": lambda value: "palaver" in value,
    "codex": _is_codex,
    "codex-exec": lambda value: get_text(value, "type") in codex_exec.EVENTS,
    "copilot-cli": copilot_cli.is_event,
    "gemini-cli": gemini_cli.is_session,
    "claude-code": _is_claude,
    "requests": lambda value: is_object(value.get("request")) or bool(request_format(value)),
    "messages": _is_message,
}
"""How to tell a line of each format, the surest first."""


SNAPSHOTS: Final = frozenset(("palaver-1", "palaver-2", "palaver-lines"))
"""The formats that `palaver export` writes, as `detect` names them."""
_OURS: Final = "palaver"
_PLAIN: Final = "messages"


def read_transcript(
    source: bytes | Path,
    format: str | None = None,  # noqa: A002 - the word for it
    *,
    branches: bool = False,
) -> tuple[ParsedConversation, ...]:
    """Read a transcript; return every conversation in it.

    With `branches`, what the user went back from is read too, where the format keeps it (Claude
    Code, ChatGPT): each such branch is a conversation of its own after the one it left. `about`
    then has the `parent`, and as `branch` the number of messages that both begin with.

    >>> (parsed,) = read_transcript(b'[{"role": "user", "content": "hi"}]')
    >>> parsed.messages[0].text
    'hi'
    """
    return tuple(each_conversation(source, format, branches=branches))


def each_conversation(
    source: bytes | Path,
    format: str | None = None,  # noqa: A002 - as above
    *,
    branches: bool = False,
) -> Iterator[ParsedConversation]:
    """Yield the conversations one by one, for a file with more of them than fit in the memory.

    `branches` is as in `read_transcript`.

    Raise `ValidationError` for an unknown format, and for a file that can't be read at all.

    >>> list(each_conversation(b"", "tape"))
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.format: must be one of anthropic, ... [transcript.format]
    """
    name = detect(source) if format is None else format
    if name is None:
        detail, may_be_named = why_unknown(source)
        hint = "; if you know it, name it" if may_be_named else ""
        raise ValidationError(f"{detail}{hint}", rule="transcript.format")
    if name in SNAPSHOTS:
        detail = "is a snapshot of palaver's, with all its versions: import it into a store"
        raise ValidationError(detail, rule="transcript.format")
    if name not in READERS:
        detail = f"must be one of {', '.join(sorted(READERS))}"
        raise ValidationError(detail, path="$.format", rule="transcript.format")
    return _BRANCHING[name](source) if branches and name in _BRANCHING else READERS[name](source)


def format_of(source: bytes | Path, named: str | None) -> str | None:
    """Return the format of a file, by the names of `detect`; None where it is unknown."""
    if named not in {None, _OURS}:
        return named
    found = detect(source)
    if named == _OURS:
        return found if found in SNAPSHOTS else _PLAIN
    return found


def why_unknown(source: bytes | Path) -> tuple[str, bool]:
    """Say why no format was found, and whether it could be one all the same, if somebody named it.

    >>> why_unknown(b"Dear diary")
    ('is in no format that palaver knows', True)
    >>> why_unknown(b"[1, 2")
    ('$[1]: is not JSON: Input data was truncated', False)
    """
    unknown = "is in no format that palaver knows", True
    if isinstance(source, Path) and source.is_dir():
        return unknown
    with open_source(source) as stream:
        first = next((line for _, line in read_lines(stream)), b"")
        if first == b"":
            return "is empty", False
        if first is None or first[:1] not in {b"{", b"["}:
            return unknown
        stream.seek(0)
        whole = stream.read(MAX_DOCUMENT + 1)
    if len(whole) > MAX_DOCUMENT:
        return unknown
    try:
        load_json(first, unique=False)  # a log has a document on each line
    except ValidationError:
        try:
            load_json(whole, unique=False)
        except ValidationError as error:
            return f"{error.path}: {error.detail}".removeprefix("$: "), False
    return unknown


def read_file(
    source: bytes | Path, origin: str, *, branches: bool = False
) -> Iterator[ParsedConversation]:
    """Yield every conversation of a file; of palaver's own snapshots, as it is now.

    >>> said = b'[{"role": "user", "content": "hi"}]'
    >>> [len(parsed.messages) for parsed in read_file(said, "messages")]
    [1]
    """
    if origin in SNAPSHOTS:
        return iter((_read_snapshot(source),))
    return each_conversation(source, origin, branches=branches)


def _read_snapshot(source: bytes | Path) -> ParsedConversation:
    with (
        open_store(":memory:") as store,
        BytesIO(source) if isinstance(source, bytes) else source.open("rb") as stream,
    ):
        history = import_conversation(store, stream)
        view = history.view
        about = {"title": history.title, "teamTask": view.team_task}
        notes: list[Note] = []
        if history.version or view.marks:
            detail = "only what the conversation is now is carried: no earlier versions, no marks"
            notes.append(Note("lost", "$", "versions", detail))
        known = {name: item for name, item in about.items() if item is not None}
        return ParsedConversation(tuple(view), tuple(notes), known)


def _read_messages(source: bytes | Path) -> Iterator[ParsedConversation]:
    """Read messages in palaver's own JSON; a list is read whole or not at all, lines one by one."""
    notes = NoteCollector()
    with open_source(source) as stream:
        opening = stream.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    messages: list[Message] = []
    if opening.startswith(b"["):
        with open_source(source) as stream:
            value = load_value(stream.read(MAX_DOCUMENT + 1), "$", notes)
        messages = parse_messages(value)
    else:
        for record in read_records(source, notes):
            try:
                messages.append(parse_message(record.value))
            except ValidationError as error:
                notes.lost(record.where, "transcript.damaged", str(error))
    yield ParsedConversation(tuple(_unique(messages, notes)), notes.all())


def _unique(messages: list[Message], notes: NoteCollector) -> Iterator[Message]:
    seen: set[str] = set()
    for message in messages:
        if message.id in seen:
            detail = "another message has its id"
            notes.lost(f"message {message.id}", "transcript.damaged", detail, message.id)
            continue
        seen.add(message.id)
        yield message


_BARE_LISTS: Final = {"gemini": "contents", "openai-responses": "input"}
"""The field of a request that a bare list is, where it is not `messages`."""


def _request(form: str) -> Callable[[bytes | Path], Iterator[ParsedConversation]]:
    def read(source: bytes | Path) -> Iterator[ParsedConversation]:
        notes = NoteCollector()
        with open_source(source) as stream:
            value = load_value(stream.read(MAX_DOCUMENT + 1), "$", notes)
        if is_list(value):  # without the request around it
            value = {_BARE_LISTS.get(form, "messages"): value}
        if not is_object(value):
            raise ValidationError(f"must be an object, not {kind_of(value)}")
        found = wire.from_(form, value)
        yield ParsedConversation(found.messages, (*notes.all(), *found.notes), found.about)

    return read


def _folder(source: bytes | Path) -> Iterator[ParsedConversation]:
    if not isinstance(source, Path):
        raise ValidationError("must be the path of a folder", rule="transcript.format")
    return opencode.read_folder(source)


READERS: Final[Mapping[str, Callable[[bytes | Path], Iterator[ParsedConversation]]]] = {
    "claude-code": claude_code.read,
    "codex": codex.read,
    "codex-exec": codex_exec.read,
    "gemini-cli": gemini_cli.read,
    "copilot-cli": copilot_cli.read,
    "chatgpt": chatgpt.read,
    "opencode": opencode.read_database,
    "opencode-export": opencode.read_export,
    "opencode-folder": _folder,
    "llm": llm.read,
    "requests": request_logs.read,
    "messages": _read_messages,
    **{name: _request(name) for name in wire.FORMATS},
}
"""The readers by the names that `detect` returns."""
_BRANCHING: Final[Mapping[str, Callable[[bytes | Path], Iterator[ParsedConversation]]]] = {
    "claude-code": partial(claude_code.read, branches=True),
    "chatgpt": partial(chatgpt.read, branches=True),
}
"""The readers of formats that keep branches, to read these too."""
NAMES: Final = (_OURS, *sorted(set(READERS) - {_PLAIN}))
"""The names of formats for users; `palaver` stands for messages and for snapshots."""
