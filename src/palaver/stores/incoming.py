"""What comes into a store from a file of version 2, checked before anything is believed.

Versions follow one another, every message belongs to a change, every frame can be read, selects
only what the log has by then, counts right, and points only backwards. What passes makes the same
history that was written; what does not is a `ValidationError` with the place.
"""

from __future__ import annotations

import base64
import binascii
from array import array
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from palaver.errors import StoreDamaged, ValidationError
from palaver.history.rope import MASK, Branch, Leaf, size
from palaver.messages.codec import decode_message, load_json, translated
from palaver.messages.decoding import decode
from palaver.messages.gate import (
    EMPTY,
    MAX_DEPTH,
    check_name,
    check_text,
    check_time,
    freeze_mapping,
)
from palaver.stores.frames import FrameBook
from palaver.stores.names import NAMES, read_names
from palaver.stores.records import Change, Head
from palaver.stores.rows import one

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from palaver.history.frame import Batch, Frame
    from palaver.messages import Message

__all__ = ["Incoming", "Line", "as_lines", "decoded", "read_line"]

Line: TypeAlias = dict[str, Raw]
_T = TypeVar("_T")
_WORDS: Final = ("record", "message", "change", "end")
_TALL: Final = MAX_DEPTH


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


class _Written(Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    kind: str
    at: int
    count: int
    stop: int
    frame: Raw = Raw(b"")  # empty: there is none
    replaces: dict[str, int] = {}
    key: str | None = None
    data: dict[str, Any] = {}


class _Kept(Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    name: str
    value: str


class _End(Struct, frozen=True, forbid_unknown_fields=True):
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


# ── lines ───────────────────────────────────────────────────────────────────────────────────────


def decoded(raw: bytes | Raw, kind: type[_T], path: str) -> _T:
    """Read JSON as a kind of value, with errors that say where."""
    try:
        return decode(raw, kind)
    except msgspec.ValidationError as error:
        raise translated(error, {}).under(path) from None
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        try:
            load_json(bytes(raw), unique=False)
        except ValidationError as error:
            raise error.under(path) from None
        raise ValidationError("can't be read", path=path, rule="json") from None


def read_line(raw: bytes, number: int) -> Line:
    """One line: an object, of which only the outermost level is read."""
    return decoded(raw, dict[str, Raw], f"$[{number}]")


def as_lines(data: bytes) -> Iterator[Line]:
    """A document as the lines it would be."""
    document = decoded(data, _Document, "$")
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
        )
    }
    for record in document.records:
        yield {"record": record}
    messages = iter(document.messages)
    for index, change in enumerate(document.changes):
        count = decoded(change, _Written, f"$.changes[{index}]").count
        for _, message in zip(range(count), messages, strict=False):
            yield {"message": message}
        yield {"change": change}
    end = _End(len(document.messages), len(document.changes), len(document.records))
    yield {"end": Raw(msgspec.json.encode(end))}


# ── a conversation ──────────────────────────────────────────────────────────────────────────────


class Incoming:
    """A conversation as it comes in: first its header and records, then change after change."""

    def __init__(self, lines: Iterable[Line], name: str | None = None) -> None:
        """Read the header; `name` is an id to give it instead of its own."""
        self._lines = enumerate(lines)
        self._header = self._read_header()
        self.name = self._header.id if name is None else name
        self.total = self._header.messages
        self._messages: list[Message] = []
        self._log = _Counts()
        self._frames = _Frames(self._log)
        self._version = -1
        self._stop = 0
        self._keys: set[str] = set()
        self._records: dict[tuple[str, str], bytes] = {}
        self._named: list[tuple[int, str]] = []  # the last position that a record names, and where

    def _read_header(self) -> _Header:
        _, line = next(self._lines, (0, {}))
        header = decoded(msgspec.json.encode(line), _Header, "$")
        if header.palaver != "conversation" or header.version != 2:  # noqa: PLR2004 - as it says
            raise ValidationError("Invalid snapshot format", path="$.version", rule="CX-08")
        check_name(header.id, "$.id")
        for field in ("created", "timestamp"):
            check_time(getattr(header, field), f"$.{field}")
        if header.title is not None:
            check_text(header.title, "$.title")
        for index, tag in enumerate(header.tags):
            check_name(tag, f"$.tags[{index}]")
        return header

    def head(self) -> Head:
        """The conversation's head, as far as the header says."""
        header = self._header
        return Head(
            id=self.name, version=0, stop=0, length=0, counts=0, framed=0, size=0,
            title=header.title, tags=header.tags, created=header.created,
        )  # fmt: skip

    def changes(self) -> Iterator[Change]:
        """Every change, checked; the first has the records with it. Ends with the closing line."""
        for number, line in self._lines:
            path = f"$[{number}]"
            word = next(iter(line), "")
            if len(line) != 1 or word not in _WORDS:
                detail = f"must have one of {', '.join(_WORDS)}, and nothing else"
                raise ValidationError(detail, path=path, rule="CX-08")
            inner, value = f"{path}.{word}", line[word]
            if word == "message":
                self._messages.append(_message(value, inner))
            elif word == "change":
                yield self._change(decoded(value, _Written, inner), inner)
            elif word == "record":
                self._record(decoded(value, _Kept, inner), inner)
            else:
                self._end(decoded(value, _End, inner), inner)
                return
        detail = "is cut off: the closing line is missing"
        raise ValidationError(detail, path="$", rule="CX-08")

    def _record(self, record: _Kept, path: str) -> None:
        if self._version >= 0 or self._messages:
            raise ValidationError("must come before the messages", path=path, rule="CX-08")
        check_name(record.kind, f"{path}.kind")
        check_text(record.name, f"{path}.name")
        if (record.kind, record.name) in self._records:
            raise ValidationError("stands twice", path=f"{path}.name", rule="CX-08")
        try:
            value = base64.b64decode(record.value, validate=True)
        except (binascii.Error, ValueError):
            raise ValidationError("is not base64", path=f"{path}.value", rule="CX-08") from None
        if record.kind == NAMES:
            self._read_names(record.name, value, path)
        self._records[record.kind, record.name] = value

    def _read_names(self, other: str, value: bytes, path: str) -> None:
        check_name(other, f"{path}.name")
        try:
            names = read_names(value)
        except ValueError as error:
            detail = f"does not say which messages come from elsewhere: {error}"
            raise ValidationError(detail, path=f"{path}.value", rule="CX-08") from None
        if names:
            self._named.append((max(names.values()), f"{path}.value"))

    def _end(self, end: _End, path: str) -> None:
        counts = len(self._log), self._version + 1, len(self._records)
        if self._messages or counts != (end.messages, end.changes, end.records):
            detail = "says another number of messages, changes or records than there are"
            raise ValidationError(detail, path=path, rule="CX-08")
        for position, where in self._named:
            _demand(position < len(self._log), "names a message that the log has not", where)
        if self._version < 0:
            raise ValidationError("has no change at all", path=path, rule="CX-08")
        extra = next(self._lines, None)
        if extra is not None:
            raise ValidationError("comes after the end", path=f"$[{extra[0]}]", rule="CX-08")

    def _change(self, written: _Written, path: str) -> Change:
        version = self._version + 1
        messages, self._messages = tuple(self._messages), []
        _demand(written.version == version, f"must be {version}", f"{path}.version")
        _demand(written.count == len(messages), f"must be {len(messages)}", f"{path}.count")
        check_name(written.kind, f"{path}.kind")
        check_time(written.at, f"{path}.at")
        if written.key is not None:
            check_name(written.key, f"{path}.key")
            _demand(written.key not in self._keys, "stands twice", f"{path}.key")
            self._keys.add(written.key)
        first, counts = len(self._log), self._log.packed(len(self._log))
        self._log.extend(messages)
        length = first + len(messages)
        data = bytes(written.frame)
        if not data:
            goes_on = written.kind == "append" and bool(messages) and self._stop == first
            _demand(version > 0 and goes_on, "is missing", f"{path}.frame")
            _demand(written.stop == length, f"must be {length}", f"{path}.stop")
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
            records=tuple((*key, value) for key, value in self._records.items())
            if not version
            else (),
        )


def _message(raw: Raw, path: str) -> Message:
    try:
        return decode_message(bytes(raw))
    except ValidationError as error:
        raise error.under(path) from None


def _replaces(
    written: dict[str, int], first: int, count: int, version: int, path: str
) -> dict[int, int]:
    """Which messages stand in the place of which: of earlier ones, in a first change of any."""
    found: dict[int, int] = {}
    for name, place in written.items():
        known = name.isascii() and name.isdecimal() and int(name) < count
        end = first if version else first + count
        _demand(known and 0 <= place < end, "names no message", f"{path}.replaces")
        found[int(name)] = place
    return found


def _demand(right: bool, detail: str, path: str) -> None:  # noqa: FBT001 - what must be
    if not right:
        raise ValidationError(detail, path=path, rule="CX-08")


class _Counts:
    """How many messages of each role came before each position, in little room."""

    def __init__(self) -> None:
        self._low = array("Q", [0])
        self._high = array("Q", [0])
        self._top = array("L", [0])

    def __len__(self) -> int:
        return len(self._low) - 1

    def extend(self, messages: Iterable[Message]) -> None:
        counts = self.packed(len(self))
        for message in messages:
            counts += one(message)
            self._low.append(counts & 0xFFFFFFFFFFFFFFFF)
            self._high.append(counts >> 64 & 0xFFFFFFFFFFFFFFFF)
            self._top.append(counts >> 128)

    def packed(self, position: int) -> int:
        return self._low[position] | self._high[position] << 64 | self._top[position] << 128


class _Frames:
    """The frames as they come, each checked against the log as it is by then."""

    def __init__(self, log: _Counts) -> None:
        self._log = log
        self._book = FrameBook()
        self.last: Frame

    def read(self, data: bytes, version: int, stop: int, path: str) -> None:
        try:
            frame = self._book.decode(data, version)
        except StoreDamaged as error:
            raise ValidationError(str(error), path=path, rule="CX-08") from None
        length = len(self._log)
        for node in self._book.nodes_of(version):
            self._check_node(node, path)
        for batch in self._book.batches_of(version):
            self._check_batch(batch, path)
        _demand(0 <= frame.start <= stop <= length, "ends beyond the log", path)
        _demand(0 <= frame.logged <= length, "was made for a longer log", path)
        _demand(0 <= frame.opened <= length, "opened beyond the log", path)
        whole = size(frame.root) + stop - frame.start
        _demand(whole <= length, "selects more than the log has", path)
        back, redo = frame.back, frame.redo
        _demand(back is None or 0 <= back < version, "goes back to no version", path)
        _demand(redo is None or 0 <= redo.version < version, "would redo no version", path)
        if frame.team_task is not None:
            check_text(frame.team_task, f"{path}.t")
        for name in self._book.marked:  # those that changed: the others were checked before
            check_name(name, f"{path}.m")
        self.last = frame

    def _check_node(self, node: Leaf | Branch, path: str) -> None:
        length = len(self._log)
        _demand(0 < node.counts & MASK <= length, "selects more than the log has", path)
        if type(node) is Leaf:
            right = 0 <= node.start < node.stop <= length
            _demand(right, "selects what the log has not", path)
            counts = self._log.packed(node.stop) - self._log.packed(node.start)
            _demand(counts == node.counts, "counts roles wrong", path)
        else:
            _demand(node.height <= _TALL, "is too tall", path)

    def _check_batch(self, batch: Batch, path: str) -> None:
        before = batch.before
        _demand(batch.index == (0 if before is None else before.index + 1), "skips a batch", path)
        right = 0 <= batch.start <= batch.stop <= len(self._log) and batch.opened >= 0
        _demand(right, "has a batch beyond the log", path)
        _demand(batch.jump is None or batch.jump.index < batch.index, "jumps ahead", path)
        check_time(batch.ended, path)
        check_text(batch.reason, path)
