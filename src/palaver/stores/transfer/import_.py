"""Import: a conversation from a file into a store, all of it or nothing.

Nothing is stored before everything has been checked: versions follow one another, every message
belongs to a change, every frame can be read, selects only what the log has by then, counts right,
and points only backwards. A file that passes makes the same history that was exported; any other
raises a `ValidationError` with the location. Approvals of tool calls stay behind: whoever wrote the
file can't give them here. See `export` for the formats.
"""

from __future__ import annotations

import base64
import binascii
import shutil
import tempfile
from array import array
from contextlib import contextmanager
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from palaver.errors import AlreadyExists, StoreDamaged, ValidationError
from palaver.history.frame import IMPORT, MASK, Batch, Branch, Frame, Leaf, numbering_after, size
from palaver.history.log import packed_count
from palaver.messages import new_id
from palaver.messages.codec import MAX_DOCUMENT, decode_message, load_json, translate_error
from palaver.messages.decode import decode
from palaver.messages.limits import (
    EMPTY,
    MAX_DEPTH,
    check_name,
    check_text,
    check_time,
    freeze_mapping,
)
from palaver.stores.frame_codec import FrameCodec
from palaver.stores.records import (
    MERGED_POSITIONS,
    PERMISSIONS,
    Change,
    Head,
    check_owner,
    read_positions,
)
from palaver.stores.transfer.copy import first_head
from palaver.stores.transfer.export import check_stream
from palaver.stores.transfer.snapshot_v1 import read_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from palaver.messages import Message
    from palaver.stores import StoredHistory
    from palaver.stores.records import Record
    from palaver.stores.store import Store
    from palaver.stores.transfer.export import Progress
    from palaver.stores.transfer.snapshot_v1 import Snapshot

__all__ = ["check_conversation", "import_conversation"]

_Line: TypeAlias = dict[str, Raw]
_T = TypeVar("_T")
_LINES: Final = ("record", "message", "change", "end")
_VERSION: Final = 2
_IN_MEMORY: Final = 16 * 1024 * 1024
_MAX_HEADER: Final = 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"
_MAX_HEIGHT: Final = MAX_DEPTH  # of a rope
_NOT_INTO: Final = "is a whole conversation, which can't go into another"


def import_conversation(
    store: Store,
    stream: IO[bytes],
    *,
    id: str | None = None,  # noqa: A002 - the word for it
    into: str | None = None,
    owner: str | None = None,
    progress: Progress | None = None,
) -> StoredHistory:
    """Read a conversation of any form into a store: all of it or, where anything is wrong, nothing.

    Everything is checked before anything is stored. The id is the exported one, unless another is
    given; a snapshot of version 1 has none and gets a new one. Raises `AlreadyExists` for an id
    that is taken. It belongs to `owner`, or to whom the exported one belonged.

    A snapshot of version 1 can also go `into` an existing conversation: its messages and team task
    replace those of the conversation, in one change that can be undone and rolled back.
    """
    check_stream(stream, "rb")
    if id is not None:
        check_name(id, "$.id")
    check_owner(owner)
    if into is not None:
        return _import_into(store.get(into), stream, id)
    with _rereadable(stream) as (readable, start):
        if _is_lines(readable, start):
            name = _import_lines(store, lambda: _read_lines(readable, start), id, owner, progress)
        else:
            data = readable.read(MAX_DOCUMENT + 1)
            document = load_json(data, unique=False)
            if isinstance(document, dict) and document.get("version") == _VERSION:
                del document
                name = _import_lines(store, lambda: _document_lines(data), id, owner, progress)
            else:
                name = _import_version_1(store, document, id, owner)
    return store.get(name)


def check_conversation(stream: IO[bytes]) -> None:
    """Raise what is wrong with a conversation as lines; the stream is back at its start then."""
    for _ in _ConversationReader(_read_lines(stream, 0)).changes():
        pass
    stream.seek(0)


@contextmanager
def _rereadable(stream: IO[bytes]) -> Generator[tuple[IO[bytes], int]]:
    """Yield a stream that can be read twice, and its start: first to check, then to store."""
    if stream.seekable():
        yield stream, stream.tell()
        return
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool:
        shutil.copyfileobj(stream, spool)
        spool.seek(0)
        yield spool, 0


def _is_lines(stream: IO[bytes], start: int) -> bool:
    """Tell JSON lines from a document by the header; the stream is back at its start afterwards."""
    line = stream.readline(_MAX_HEADER)
    stream.seek(start)
    try:
        header = msgspec.json.decode(line.removeprefix(_BOM), type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return "palaver" in header


def _read_lines(stream: IO[bytes], start: int) -> Iterator[_Line]:
    stream.seek(start)
    number = 0
    while line := stream.readline(MAX_DOCUMENT + 1):
        if number == 0:
            line = line.removeprefix(_BOM)
        if line.strip():
            yield _decode(line, dict[str, Raw], f"$[{number}]")
            number += 1


def _import_lines(
    store: Store,
    lines: Callable[[], Iterator[_Line]],
    name: str | None,
    owner: str | None,
    progress: Progress | None,
) -> str:
    """Read everything once, to check it, and once more, to store it."""
    checked = 0
    reader = _ConversationReader(lines(), name)
    if reader.name in store:
        msg = f"a conversation has the id {reader.name!r} already"
        raise AlreadyExists(msg)
    for change in reader.changes():
        checked += len(change.messages)
        if progress is not None:
            progress(checked, None if reader.total is None else reader.total * 2)
    again = _ConversationReader(lines(), name)

    def counted() -> Iterator[Change]:
        stored = checked
        for change in again.changes():
            stored += len(change.messages)
            yield change
            if progress is not None:
                progress(stored, checked * 2)

    changes = counted()
    first = next(changes)
    head = first_head(again.head(), first)
    if owner is not None:
        head = replace(head, owner=owner)
    store.backend.adopt(head, chain([first], changes))
    return again.name


def _import_into(history: StoredHistory, stream: IO[bytes], name: str | None) -> StoredHistory:
    """Replace the messages of a conversation by those of a snapshot of version 1."""
    if name is not None:
        raise ValidationError(
            "goes with a new conversation only", path="$.id", rule="import-format"
        )
    with _rereadable(stream) as (readable, start):
        if _is_lines(readable, start):
            raise ValidationError(_NOT_INTO, path="$.version", rule="import-format")
        document = load_json(readable.read(MAX_DOCUMENT + 1), unique=False)
    if isinstance(document, dict) and document.get("version") == _VERSION:
        raise ValidationError(_NOT_INTO, path="$.version", rule="import-format")
    snapshot = read_snapshot(document)
    history.replace_all(snapshot.messages, team_task=snapshot.team_task)
    return history


def _import_version_1(store: Store, document: object, name: str | None, owner: str | None) -> str:
    """Create a conversation with messages and team task in one change, at the snapshot's time."""
    snapshot = read_snapshot(document)
    messages = snapshot.messages
    count = len(messages)
    frame = Frame(logged=count, team_task=snapshot.team_task, line=_numbered(snapshot))
    first = Change(
        conversation=new_id() if name is None else name,
        after=-1,
        kind="import",
        at=snapshot.timestamp,
        stop=count,
        size=count,
        messages=messages,
        frame=FrameCodec().encode(frame, 0),
    )
    head = Head(
        id=first.conversation, version=0, stop=0, length=0, counts=0, framed=0, size=0,
        created=snapshot.timestamp, owner=owner,
    )  # fmt: skip
    store.backend.create(first_head(head, first), first)
    return first.conversation


def _numbered(snapshot: Snapshot) -> Batch | None:
    """Return an empty batch before the import if handles do not simply count its messages."""
    ids = [message.id for message in snapshot.messages]
    numbering = numbering_after(0, ids)
    if numbering is None or ids == [f"msg-{number}" for number in range(1, len(ids) + 1)]:
        return None
    return Batch(0, None, None, None, 0, 0, 0, snapshot.timestamp, IMPORT, numbering=numbering)


# ── the format ──────────────────────────────────────────────────────────────────────────────────


class _Header(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    palaver: str
    version: int
    id: str
    created: int
    timestamp: int = 0
    title: str | None = None
    tags: tuple[str, ...] = ()
    team_task: str | None = None
    messages: int | None = None
    owner: str | None = None


class _ChangeLine(Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    kind: str
    at: int
    count: int
    stop: int
    frame: Raw = Raw(b"")  # empty: there is none
    replaces: dict[str, int] = {}
    key: str | None = None
    data: dict[str, Any] = {}


class _RecordLine(Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    name: str
    value: str


class _EndLine(Struct, frozen=True, forbid_unknown_fields=True):
    messages: int
    changes: int
    records: int


class _Document(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    version: int
    id: str
    created: int
    messages: list[Raw]
    changes: list[Raw]
    timestamp: int = 0
    title: str | None = None
    tags: tuple[str, ...] = ()
    team_task: str | None = None
    records: list[Raw] = []
    owner: str | None = None


def _decode(raw: bytes | Raw, kind: type[_T], path: str) -> _T:
    """Decode JSON as a type; a `ValidationError` has the path."""
    try:
        return decode(raw, kind)
    except msgspec.ValidationError as error:
        raise translate_error(error, {}).under(path) from None
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        try:
            load_json(bytes(raw), unique=False)
        except ValidationError as error:
            raise error.under(path) from None
        raise ValidationError("can't be read", path=path, rule="json") from None


def _document_lines(data: bytes) -> Iterator[_Line]:
    """Yield a document as the lines of the other form."""
    document = _decode(data, _Document, "$")
    yield {
        name: Raw(msgspec.json.encode(value))
        for name, value in (
            ("palaver", "conversation"),
            ("version", document.version),
            ("id", document.id),
            ("created", document.created),
            ("timestamp", document.timestamp),
            ("title", document.title),
            ("tags", document.tags),
            ("teamTask", document.team_task),
            ("messages", len(document.messages)),
            ("owner", document.owner),
        )
    }
    for record in document.records:
        yield {"record": record}
    messages = iter(document.messages)
    for index, change in enumerate(document.changes):
        count = _decode(change, _ChangeLine, f"$.changes[{index}]").count
        for _, message in zip(range(count), messages, strict=False):
            yield {"message": message}
        yield {"change": change}
    end = _EndLine(len(document.messages), len(document.changes), len(document.records))
    yield {"end": Raw(msgspec.json.encode(end))}


# ── a conversation ──────────────────────────────────────────────────────────────────────────────


class _ConversationReader:
    """Reads a conversation from lines: its header and records, then change after change."""

    def __init__(self, lines: Iterable[_Line], name: str | None = None) -> None:
        """Read the header; `name` is an id to use instead of its own."""
        self._lines = enumerate(lines)
        self._header = self._read_header()
        self.name = self._header.id if name is None else name
        self.total = self._header.messages
        self._messages: list[Message] = []
        self._log = _RoleCounts()
        self._frames = _FrameReader(self._log)
        self._version = -1
        self._stop = 0
        self._keys: set[str] = set()
        self._records: dict[tuple[str, str], bytes] = {}
        self._named: list[tuple[int, str]] = []  # the last position of a record, and its path

    def _read_header(self) -> _Header:
        _, line = next(self._lines, (0, {}))
        header = _decode(msgspec.json.encode(line), _Header, "$")
        if header.palaver != "conversation" or header.version != 2:  # noqa: PLR2004 - as it says
            raise ValidationError("Invalid snapshot format", path="$.version", rule="import-format")
        check_name(header.id, "$.id")
        for field in ("created", "timestamp"):
            check_time(getattr(header, field), f"$.{field}")
        if header.title is not None:
            check_text(header.title, "$.title")
        for index, tag in enumerate(header.tags):
            check_name(tag, f"$.tags[{index}]")
        check_owner(header.owner)
        return header

    def head(self) -> Head:
        """Return the conversation's head, as far as the header has it."""
        header = self._header
        return Head(
            id=self.name, version=0, stop=0, length=0, counts=0, framed=0, size=0,
            title=header.title, tags=header.tags, created=header.created, owner=header.owner,
        )  # fmt: skip

    def changes(self) -> Iterator[Change]:
        """Yield every change after checking it, to the closing line; the first has the records."""
        for number, line in self._lines:
            path = f"$[{number}]"
            kind = next(iter(line), "")
            if len(line) != 1 or kind not in _LINES:
                detail = f"must have one of {', '.join(_LINES)}, and nothing else"
                raise ValidationError(detail, path=path, rule="import-format")
            inner, value = f"{path}.{kind}", line[kind]
            if kind == "message":
                self._messages.append(_decode_message(value, inner))
            elif kind == "change":
                yield self._read_change(_decode(value, _ChangeLine, inner), inner)
            elif kind == "record":
                self._read_record(_decode(value, _RecordLine, inner), inner)
            else:
                self._check_end(_decode(value, _EndLine, inner), inner)
                return
        detail = "is cut off: the closing line is missing"
        raise ValidationError(detail, path="$", rule="import-format")

    def _read_record(self, record: _RecordLine, path: str) -> None:
        if self._version >= 0 or self._messages:
            raise ValidationError("must come before the messages", path=path, rule="import-format")
        check_name(record.kind, f"{path}.kind")
        check_text(record.name, f"{path}.name")
        if (record.kind, record.name) in self._records:
            raise ValidationError("stands twice", path=f"{path}.name", rule="import-format")
        try:
            value = base64.b64decode(record.value, validate=True)
        except (binascii.Error, ValueError):
            raise ValidationError(
                "is not base64", path=f"{path}.value", rule="import-format"
            ) from None
        if record.kind == MERGED_POSITIONS:
            self._read_names(record.name, value, path)
        self._records[record.kind, record.name] = value

    def _read_names(self, other: str, value: bytes, path: str) -> None:
        check_name(other, f"{path}.name")
        try:
            names = read_positions(value)
        except ValueError as error:
            detail = f"does not say which messages come from elsewhere: {error}"
            raise ValidationError(detail, path=f"{path}.value", rule="import-format") from None
        if names:
            self._named.append((max(names.values()), f"{path}.value"))

    def _check_end(self, end: _EndLine, path: str) -> None:
        counts = len(self._log), self._version + 1, len(self._records)
        if self._messages or counts != (end.messages, end.changes, end.records):
            detail = "says another number of messages, changes or records than there are"
            raise ValidationError(detail, path=path, rule="import-format")
        for position, where in self._named:
            _require(position < len(self._log), "names a message that the log has not", where)
        if self._version < 0:
            raise ValidationError("has no change at all", path=path, rule="import-format")
        extra = next(self._lines, None)
        if extra is not None:
            raise ValidationError(
                "comes after the end", path=f"$[{extra[0]}]", rule="import-format"
            )

    def _read_change(self, written: _ChangeLine, path: str) -> Change:
        version = self._version + 1
        messages, self._messages = tuple(self._messages), []
        _require(written.version == version, f"must be {version}", f"{path}.version")
        _require(written.count == len(messages), f"must be {len(messages)}", f"{path}.count")
        check_name(written.kind, f"{path}.kind")
        check_time(written.at, f"{path}.at")
        if written.key is not None:
            check_name(written.key, f"{path}.key")
            _require(written.key not in self._keys, "stands twice", f"{path}.key")
            self._keys.add(written.key)
        first, counts = len(self._log), self._log.packed(len(self._log))
        self._log.extend(messages)
        length = first + len(messages)
        data = bytes(written.frame)
        if not data:
            goes_on = written.kind == "append" and bool(messages) and self._stop == first
            _require(version > 0 and goes_on, "is missing", f"{path}.frame")
            _require(written.stop == length, f"must be {length}", f"{path}.stop")
        else:
            self._frames.read(data, version, written.stop, f"{path}.frame")
        self._version, self._stop = version, written.stop
        frame = self._frames.last
        return Change(
            conversation=self.name,
            after=version - 1,
            kind=written.kind,
            at=written.at,
            stop=written.stop,
            size=size(frame.root) + written.stop - frame.start,
            first=first,
            counts=counts,
            messages=messages,
            frame=data or None,
            replaces=_replaces(written.replaces, first, len(messages), version, path),
            key=written.key,
            data=freeze_mapping(written.data, f"{path}.data") if written.data else EMPTY,
            records=() if version else self._kept_records(),
        )

    def _kept_records(self) -> tuple[Record, ...]:
        """Return the records to store: all but those that would let tool calls run."""
        return tuple(
            (kind, name, value)
            for (kind, name), value in self._records.items()
            if kind not in PERMISSIONS
        )


def _decode_message(raw: Raw, path: str) -> Message:
    try:
        return decode_message(bytes(raw))
    except ValidationError as error:
        raise error.under(path) from None


def _replaces(
    written: dict[str, int], first: int, count: int, version: int, path: str
) -> dict[int, int]:
    """Return which messages replace which: earlier ones, or any in a first change."""
    found: dict[int, int] = {}
    for name, position in written.items():
        known = name.isascii() and name.isdecimal() and int(name) < count
        end = first + (int(name) if known and version else count)
        _require(known and 0 <= position < end, "names no message", f"{path}.replaces")
        found[int(name)] = position
    return found


def _require(right: bool, detail: str, path: str) -> None:  # noqa: FBT001 - what must be
    if not right:
        raise ValidationError(detail, path=path, rule="import-format")


class _RoleCounts:
    """How many messages of each role came before each position, in little memory."""

    def __init__(self) -> None:
        self._low = array("Q", [0])
        self._high = array("Q", [0])
        self._top = array("L", [0])

    def __len__(self) -> int:
        return len(self._low) - 1

    def extend(self, messages: Iterable[Message]) -> None:
        counts = self.packed(len(self))
        for message in messages:
            counts += packed_count(message)
            self._low.append(counts & 0xFFFFFFFFFFFFFFFF)
            self._high.append(counts >> 64 & 0xFFFFFFFFFFFFFFFF)
            self._top.append(counts >> 128)

    def packed(self, position: int) -> int:
        return self._low[position] | self._high[position] << 64 | self._top[position] << 128


class _FrameReader:
    """Reads frames in order, and checks each against the log as it is by then."""

    def __init__(self, log: _RoleCounts) -> None:
        self._log = log
        self._book = FrameCodec()
        self.last: Frame

    def read(self, data: bytes, version: int, stop: int, path: str) -> None:
        try:
            frame = self._book.decode(data, version)
        except StoreDamaged as error:
            raise ValidationError(str(error), path=path, rule="import-format") from None
        length = len(self._log)
        for node in self._book.nodes_of(version):
            self._check_node(node, path)
        for batch in self._book.batches_of(version):
            self._check_batch(batch, path)
        _require(0 <= frame.start <= stop <= length, "ends beyond the log", path)
        _require(0 <= frame.logged <= length, "was made for a longer log", path)
        _require(0 <= frame.opened <= length, "opened beyond the log", path)
        whole = size(frame.root) + stop - frame.start
        _require(whole <= length, "selects more than the log has", path)
        back, redo = frame.back, frame.redo
        _require(back is None or 0 <= back < version, "goes back to no version", path)
        _require(redo is None or 0 <= redo.version < version, "would redo no version", path)
        if frame.team_task is not None:
            check_text(frame.team_task, f"{path}.t")
        for name in self._book.marked:  # those that changed: the others were checked before
            check_name(name, f"{path}.m")
        self.last = frame

    def _check_node(self, node: Leaf | Branch, path: str) -> None:
        length = len(self._log)
        _require(0 < node.counts & MASK <= length, "selects more than the log has", path)
        if type(node) is Leaf:
            right = 0 <= node.start < node.stop <= length
            _require(right, "selects what the log has not", path)
            counts = self._log.packed(node.stop) - self._log.packed(node.start)
            _require(counts == node.counts, "counts roles wrong", path)
        else:
            _require(node.height <= _MAX_HEIGHT, "is too tall", path)

    def _check_batch(self, batch: Batch, path: str) -> None:
        before = batch.before
        _require(batch.index == (0 if before is None else before.index + 1), "skips a batch", path)
        right = 0 <= batch.start <= batch.stop <= len(self._log) and batch.opened >= 0
        _require(right, "has a batch beyond the log", path)
        start, number = batch.numbering or (0, 0)
        _require(0 <= start <= len(self._log) and number >= 0, "numbers beyond the log", path)
        _require(batch.jump is None or batch.jump.index < batch.index, "jumps ahead", path)
        check_time(batch.ended, path)
        check_text(batch.reason, path)
