"""Export: a conversation as a file, and as the changes it is made of.

Version 1 is a snapshot (see `snapshot_v1`): users' and assistants' messages, and the team task.
Version 2 is everything: every message of the log, every version with its view, batches and marks,
and the records beside the log, so that an imported conversation can be undone, redone and rolled
back like the exported one. It is one JSON document

    {"version": 2, "timestamp": …, "id": …, "title": …, "tags": […], "created": …, "teamTask": …,
     "owner"?: …, "records": [{kind, name, value}], "messages": […],
     "changes": [{version, kind, at, count, stop, frame?, replaces?, key?, data?}]}

or the same as JSON lines, for large ones: a header, records, and each change after the messages it
brought; a closing line with the counts shows that the file was not cut off. `frame` is the view as
every store has it. A fork is exported as a conversation of its own, with the messages it has from
its ancestors.

Who exports many small conversations lets the backend read some of them together (`read_together`).
"""

from __future__ import annotations

import base64
from io import TextIOBase
from typing import IO, TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import msgspec

from palaver.errors import StoreDamaged, ValidationError
from palaver.history.frame import size
from palaver.history.log import packed_count
from palaver.messages import dump
from palaver.messages.limits import describe_argument
from palaver.stores.annotations import ANNOTATION, annotation_records
from palaver.stores.frame_codec import FrameCodec, open_codec, read_frames
from palaver.stores.records import Change
from palaver.stores.transfer.snapshot_v1 import write_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from palaver.history.frame import Frame
    from palaver.messages import Message
    from palaver.stores.backend import Backend
    from palaver.stores.records import Head, JournalEntry, StoredConversation, StoredFrame
    from palaver.stores.store import Store

    Progress: TypeAlias = Callable[[int, int | None], object]

__all__ = [
    "FORMS",
    "Form",
    "check_stream",
    "export_conversation",
    "read_changes",
    "read_records",
    "read_together",
]

Form: TypeAlias = Literal["lines", "document", "version-1"]
FORMS: Final[tuple[Form, ...]] = ("lines", "document", "version-1")
"""The forms of an export: JSON lines or one document (version 2), or a snapshot of version 1."""

_PAGE: Final = 500
_READ_AHEAD: Final = 5_000


def check_stream(stream: object, mode: str) -> None:
    """Raise `ValidationError` for a path or a text file in the place of a file of bytes."""
    wanted = "write" if "w" in mode else "read"
    if isinstance(stream, TextIOBase) or not hasattr(stream, wanted):
        detail = f"must be a file of bytes, such as open(PATH, {mode!r}), not "
        raise ValidationError(detail + describe_argument(stream), path="$.stream", rule="argument")


def export_conversation(
    store: Store,
    conversation: str,
    stream: IO[bytes],
    *,
    form: Form = "lines",
    progress: Progress | None = None,
    stored: StoredConversation | None = None,
) -> None:
    """Write a conversation to a stream, as JSON lines, as one document, or as version 1.

    `stored` is what `read_together` has read of it, if anything. These forms can be imported again;
    `palaver.wire.convert.export_as` has more, for people and for providers.

    >>> import io, json, palaver
    >>> store, file = palaver.open(":memory:"), io.BytesIO()
    >>> export_conversation(store, store.create([palaver.user("hi")]).id, file, form="version-1")
    >>> json.loads(file.getvalue())["messages"][0]["content"]
    'hi'
    """
    check_stream(stream, "wb")
    if form not in FORMS:
        detail = f"must be one of {', '.join(FORMS)}"
        raise ValidationError(detail, path="$.form", rule="export-format")
    if form == "version-1":
        history = store.get(conversation)
        at = store.backend.head(conversation).updated
        view = history.view
        stream.write(dump(write_snapshot(view, team_task=view.team_task, timestamp=at)) + b"\n")
        return
    backend = store.backend if stored is None else cast("Backend", _StoredReader(stored))
    lines = _write_lines(backend, conversation, progress)
    if form == "lines":
        for line in lines:
            stream.write(msgspec.json.encode(line) + b"\n")
    else:
        _write_document(lines, stream)


def _write_lines(
    backend: Backend, conversation: str, progress: Progress | None
) -> Iterator[dict[str, Any]]:
    head = backend.head(conversation)
    records = read_records(backend, conversation)
    if head.parent is not None:  # it has the notes of its ancestors, as it has their messages
        own = {name for kind, name, _ in records if kind == ANNOTATION}
        notes = annotation_records(backend, conversation)
        records += [(ANNOTATION, name, value) for name, value in notes if name not in own]
    yield {
        "palaver": "conversation",
        "version": 2,
        "timestamp": head.updated,
        "id": head.id,
        "title": head.title,
        "tags": list(head.tags),
        "created": head.created,
        "teamTask": read_frames(backend, head)[1][-1][1].team_task,
        "messages": head.length,
        **({} if head.owner is None else {"owner": head.owner}),
    }
    for kind, name, value in records:
        data = base64.b64encode(value).decode()
        yield {"record": {"kind": kind, "name": name, "value": data}}
    done = 0
    for change in read_changes(backend, head, standalone=True):
        for message in change.messages:
            yield {"message": msgspec.Raw(dump(message))}
        yield {"change": _encode_change(change)}
        done += len(change.messages)
        if progress is not None:
            progress(done, head.length)
    yield {"end": {"messages": done, "changes": head.version + 1, "records": len(records)}}


def _encode_change(change: Change) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "version": change.after + 1,
        "kind": change.kind,
        "at": change.at,
        "count": len(change.messages),
        "stop": change.stop,
    }
    if change.frame is not None:
        fields["frame"] = msgspec.Raw(change.frame)
    if change.replaces:
        fields["replaces"] = {str(index): position for index, position in change.replaces.items()}
    if change.key is not None:
        fields["key"] = change.key
    if change.data:
        fields["data"] = change.data
    return fields


def _write_document(lines: Iterator[dict[str, Any]], stream: IO[bytes]) -> None:
    """Write lines as one document: the messages as they come, the rest after them."""
    header = dict(next(lines))
    del header["palaver"], header["messages"]
    records: list[Any] = []
    changes: list[Any] = []
    stream.write(msgspec.json.encode(header)[:-1] + b',"messages":[')
    separator = b""
    for line in lines:
        if "message" in line:
            stream.write(separator + bytes(line["message"]))
            separator = b","
        elif "change" in line:
            changes.append(line["change"])
        elif "record" in line:
            records.append(line["record"])
    rest = msgspec.json.encode({"changes": changes, "records": records})
    stream.write(b"]," + rest[1:] + b"\n")


# ── reading a conversation ──────────────────────────────────────────────────────────────────────


def read_together(backend: Backend, conversations: Sequence[str]) -> dict[str, StoredConversation]:
    """Return conversations that the backend reads at once; the others have to be read one by one.

    A backend may have a method `read_whole(conversations)`, which does that for those that are no
    forks and not long: a server answers in a few round trips.
    """
    read: Callable[[Sequence[str]], dict[str, StoredConversation]] | None
    read = getattr(backend, "read_whole", None)
    return {} if read is None else read(conversations)


class _StoredReader:
    """The part of a backend that an export needs, from a conversation that was read whole."""

    def __init__(self, stored: StoredConversation) -> None:
        self._stored = stored

    def head(self, _: str) -> Head:
        return self._stored.head

    def kinds(self, _: str) -> list[str]:
        return sorted({kind for kind, _, _ in self._stored.records})

    def records(self, _: str, kind: str) -> dict[str, bytes]:
        return {name: value for found, name, value in self._stored.records if found == kind}

    def journal(self, _: str, after: int, limit: int) -> list[JournalEntry]:
        return self._stored.journal[after + 1 :][:limit]

    def frames(self, _: str, after: int, upto: int) -> list[StoredFrame]:
        return [frame for frame in self._stored.frames if after < frame.version <= upto]

    def keys(self, _: str, after: int, upto: int) -> dict[int, str]:
        return {number: key for number, key in self._stored.keys.items() if after < number <= upto}

    def before(self, _: str, position: int) -> int:
        return sum(map(packed_count, self._stored.messages[:position]))

    def stop(self, _: str, version: int) -> int:
        return self._stored.stops[version]

    def messages(self, _: str, start: int, stop: int) -> list[Message]:
        return self._stored.messages[start:stop]

    def replaced(self, _: str, position: int) -> int | None:
        return self._stored.replaces.get(position)


def read_records(backend: Backend, conversation: str) -> list[tuple[str, str, bytes]]:
    """Return the records beside the log: kind, name, value."""
    return [
        (kind, name, value)
        for kind in backend.kinds(conversation)
        for name, value in backend.records(conversation, kind).items()
    ]


def read_changes(
    backend: Backend, head: Head, *, after: int = -1, standalone: bool = False
) -> Iterator[Change]:
    """Yield the changes of a conversation after a version, each as it was made.

    A fork is read as it is, so that it can be copied beside its parent, or `standalone`: with the
    messages that it has from its ancestors, and with frames that point to no other conversation.
    """
    reader = _ChangeReader(backend, head, standalone=standalone and head.parent is not None)
    version = after
    reader.skip_to(after)
    while version < head.version:
        page = [c for c in backend.journal(head.id, version, _PAGE) if c.version <= head.version]
        expected = range(version + 1, version + 1 + len(page))
        if not page or [c.version for c in page] != list(expected):
            msg = f"{head.id}: version {version + 1} is missing from the journal"
            raise StoreDamaged(msg)
        yield from reader.read(page)
        version = page[-1].version


class _ChangeReader:
    """Reads a journal once, with the frames read so far."""

    def __init__(self, backend: Backend, head: Head, *, standalone: bool) -> None:
        self._backend = backend
        self._head = head
        self._book = open_codec(backend, head)
        self._standalone = FrameCodec() if standalone else None
        self._frame: Frame | None = None

    def skip_to(self, version: int) -> None:
        """Read the frames up to a version, which others point to."""
        for stored in self._backend.frames(self._head.id, -1, version):
            self._frame = self._book.decode(stored.data, stored.version)

    def read(self, page: list[JournalEntry]) -> Iterator[Change]:
        backend, name = self._backend, self._head.id
        first, last = page[0].version, page[-1].version
        frames = {f.version: f.data for f in backend.frames(name, first - 1, last)}
        keys = backend.keys(name, first - 1, last)
        counts = backend.before(name, page[0].first)
        log = _LogReader(backend, self._head)
        for entry in page:
            data = frames.get(entry.version)
            stop = entry.first + entry.count
            if data is not None:
                self._frame = self._book.decode(data, entry.version)
                stop = backend.stop(name, entry.version)
            if self._frame is None:
                msg = f"{name}: version {entry.version} has no frame"
                raise StoreDamaged(msg)
            start, messages, before = entry.first, log.read(entry.first, entry.count), counts
            counts += sum(map(packed_count, messages))
            if self._standalone is not None:
                if entry.version == 0:
                    start, before = 0, 0
                    messages = (*log.read(0, self._head.base), *messages)
                if data is not None:
                    data = self._standalone.encode(self._frame, entry.version)
                    self._standalone.keep(self._frame, entry.version)
            yield Change(
                conversation=name,
                after=entry.version - 1,
                kind="create" if self._standalone and entry.version == 0 else entry.kind,
                at=entry.at,
                stop=stop,
                size=size(self._frame.root) + stop - self._frame.start,
                first=start,
                counts=before,
                messages=messages,
                frame=data,
                replaces=self._replaces(start, len(messages)) if data is not None else {},
                key=keys.get(entry.version),
                data=entry.data,
            )

    def _replaces(self, first: int, count: int) -> dict[int, int]:
        found = (
            (index, self._backend.replaced(self._head.id, first + index)) for index in range(count)
        )
        return {index: position for index, position in found if position is not None}


class _LogReader:
    """Reads the messages of a log in order, many at a time."""

    def __init__(self, backend: Backend, head: Head) -> None:
        self._backend = backend
        self._name, self._length = head.id, head.length
        self._start = 0
        self._ahead: list[Message] = []

    def read(self, first: int, count: int) -> tuple[Message, ...]:
        index = first - self._start
        if index < 0 or index + count > len(self._ahead):
            stop = max(first + count, min(first + _READ_AHEAD, self._length))
            self._ahead = self._backend.messages(self._name, first, stop)
            if len(self._ahead) != stop - first:  # a gap would shift all that follow
                msg = f"{self._name}: of the messages {first} to {stop - 1} some are missing"
                raise StoreDamaged(msg)
            self._start, index = first, 0
        return tuple(self._ahead[index : index + count])
