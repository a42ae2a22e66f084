"""Readers of transcripts by format: the one way to read a file in any format that palaver knows."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from palaver import wire
from palaver.errors import ValidationError
from palaver.messages import parse_message, parse_messages
from palaver.messages.codec import MAX_DOCUMENT
from palaver.messages.limits import is_list, is_object, kind_of
from palaver.stores import open_store
from palaver.stores.transfer import import_conversation
from palaver.transcripts import claude_code, codex, llm, opencode, request_logs
from palaver.transcripts.detect import detect
from palaver.transcripts.sources import load_value, open_source, read_records
from palaver.wire.notes import Note, NoteCollector, ParsedConversation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from palaver.messages.message import Message

__all__ = [
    "NAMES",
    "READERS",
    "SNAPSHOTS",
    "each_conversation",
    "format_of",
    "read_file",
    "read_transcript",
]

SNAPSHOTS: Final = frozenset(("palaver-1", "palaver-2", "palaver-lines"))
"""The formats that `palaver export` writes, as `detect` names them."""
_OURS: Final = "palaver"
_PLAIN: Final = "messages"


def read_transcript(
    source: bytes | Path,
    format: str | None = None,  # noqa: A002 - the word for it
) -> tuple[ParsedConversation, ...]:
    """Read a transcript; return every conversation in it.

    >>> (parsed,) = read_transcript(b'[{"role": "user", "content": "hi"}]')
    >>> parsed.messages[0].text
    'hi'
    """
    return tuple(each_conversation(source, format))


def each_conversation(
    source: bytes | Path,
    format: str | None = None,  # noqa: A002 - as above
) -> Iterator[ParsedConversation]:
    """Yield the conversations one by one, for a file with more of them than fit in the memory.

    Raise `ValidationError` for an unknown format, and for a file that can't be read at all.

    >>> list(each_conversation(b"", "tape"))
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.format: must be one of anthropic, ... [transcript.format]
    """
    name = detect(source) if format is None else format
    if name is None:
        detail = "is in no format that palaver knows; if you know it, name it"
        raise ValidationError(detail, rule="transcript.format")
    if name in SNAPSHOTS:
        detail = "is a snapshot of palaver's, with all its versions: import it into a store"
        raise ValidationError(detail, rule="transcript.format")
    if name not in READERS:
        detail = f"must be one of {', '.join(sorted(READERS))}"
        raise ValidationError(detail, path="$.format", rule="transcript.format")
    return READERS[name](source)


def format_of(source: bytes | Path, named: str | None) -> str | None:
    """Return the format of a file, by the names of `detect`; None where it is unknown."""
    if named not in {None, _OURS}:
        return named
    found = detect(source)
    if named == _OURS:
        return found if found in SNAPSHOTS else _PLAIN
    return found


def read_file(source: bytes | Path, origin: str) -> Iterator[ParsedConversation]:
    """Yield every conversation of a file; of palaver's own snapshots, as it is now.

    >>> said = b'[{"role": "user", "content": "hi"}]'
    >>> [len(parsed.messages) for parsed in read_file(said, "messages")]
    [1]
    """
    if origin in SNAPSHOTS:
        return iter((_read_snapshot(source),))
    return each_conversation(source, origin)


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


def _request(form: str) -> Callable[[bytes | Path], Iterator[ParsedConversation]]:
    def read(source: bytes | Path) -> Iterator[ParsedConversation]:
        notes = NoteCollector()
        with open_source(source) as stream:
            value = load_value(stream.read(MAX_DOCUMENT + 1), "$", notes)
        if is_list(value) and form in {"openai-chat", "anthropic"}:
            value = {"messages": value}  # the bare list, without the request around it
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
    "opencode": opencode.read_database,
    "opencode-export": opencode.read_export,
    "opencode-folder": _folder,
    "llm": llm.read,
    "requests": request_logs.read,
    "messages": _read_messages,
    **{name: _request(name) for name in wire.FORMATS},
}
"""The readers by the names that `detect` returns."""
NAMES: Final = (_OURS, *sorted(set(READERS) - {_PLAIN}))
"""The names of formats for users; `palaver` stands for messages and for snapshots."""
