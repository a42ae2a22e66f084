"""Conversations as files: out of a store, and into one, all or nothing.

Version 1 is S2's (see `version1`): what was said, and the team task. Version 2 is everything: every
message of the log, every version with its selection, batches and marks, and what is kept beside the
log, so that what comes in can be undone, redone and rolled back like what went out. It is one JSON
document

    {"version": 2, "timestamp": …, "id": …, "title": …, "tags": […], "created": …, "teamTask": …,
     "records": [{kind, name, value}], "messages": […],
     "changes": [{version, kind, at, count, stop, frame?, replaces?, key?, data?}]}

or the same as JSON lines, for large ones: a header, records, and each change after the messages it
brought; a closing line with the counts tells a whole file from one that was cut off. `frame` is the
selection as every store keeps it (see `frames`). A fork is written as a conversation of its own,
with the messages it has from its ancestors.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
from contextlib import contextmanager
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, Literal, TypeAlias

import msgspec

from palaver.errors import AlreadyExists, ValidationError
from palaver.history.frame import Frame
from palaver.messages import MAX_DOCUMENT, dump, new_id
from palaver.messages.codec import load_json
from palaver.messages.gate import check_name
from palaver.stores.copying import first_head
from palaver.stores.frames import FrameBook
from palaver.stores.incoming import Incoming, as_lines, read_line
from palaver.stores.records import Change, Head
from palaver.stores.version1 import read_snapshot, write_snapshot
from palaver.stores.wholes import changes_of, records_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from palaver.stores.history import StoredHistory
    from palaver.stores.incoming import Line
    from palaver.stores.store import Store

    Progress: TypeAlias = Callable[[int, int | None], object]

__all__ = ["FORMS", "export_conversation", "import_conversation"]

Form: TypeAlias = Literal["lines", "document", "version-1"]
FORMS: Final[tuple[Form, ...]] = ("lines", "document", "version-1")
_EVERYTHING: Final = 2
_IN_MEMORY: Final = 16 * 1024 * 1024
_HEADER: Final = 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"
_WHOLE: Final = "is a whole conversation, which can't go into another"


# ── out ─────────────────────────────────────────────────────────────────────────────────────────


def export_conversation(
    store: Store,
    conversation: str,
    stream: IO[bytes],
    *,
    form: Form = "lines",
    progress: Progress | None = None,
) -> None:
    """Write a conversation to a stream, as JSON lines, as one document, or as version 1.

    >>> import io, palaver
    >>> store, file = palaver.open(":memory:"), io.BytesIO()
    >>> export_conversation(store, store.create([palaver.user("hi")]).id, file, form="version-1")
    >>> load_json(file.getvalue())["messages"][0]["content"]
    'hi'
    """
    if form not in FORMS:
        detail = f"must be one of {', '.join(FORMS)}"
        raise ValidationError(detail, path="$.form", rule="CX-08")
    if form == "version-1":
        history = store.get(conversation)
        at = store.keeper.head(conversation).updated
        view = history.view
        stream.write(dump(write_snapshot(view, team_task=view.team_task, timestamp=at)) + b"\n")
        return
    lines = _lines(store, conversation, progress)
    if form == "lines":
        for line in lines:
            stream.write(msgspec.json.encode(line) + b"\n")
    else:
        _write_document(lines, stream)


def _lines(store: Store, conversation: str, progress: Progress | None) -> Iterator[dict[str, Any]]:
    head = store.keeper.head(conversation)
    records = records_of(store.keeper, conversation)
    yield {
        "palaver": "conversation",
        "version": 2,
        "timestamp": head.updated,
        "id": head.id,
        "title": head.title,
        "tags": list(head.tags),
        "created": head.created,
        "teamTask": store.get(conversation).at(head.version).team_task,
        "messages": head.length,
    }
    for kind, name, value in records:
        data = base64.b64encode(value).decode()
        yield {"record": {"kind": kind, "name": name, "value": data}}
    done = 0
    for change in changes_of(store.keeper, head, alone=True):
        for message in change.messages:
            yield {"message": msgspec.Raw(dump(message))}
        yield {"change": _written(change)}
        done += len(change.messages)
        if progress is not None:
            progress(done, head.length)
    yield {"end": {"messages": done, "changes": head.version + 1, "records": len(records)}}


def _written(change: Change) -> dict[str, Any]:
    written: dict[str, Any] = {
        "version": change.after + 1,
        "kind": change.kind,
        "at": change.at,
        "count": len(change.messages),
        "stop": change.stop,
    }
    if change.frame is not None:
        written["frame"] = msgspec.Raw(change.frame)
    if change.replaces:
        written["replaces"] = {str(index): place for index, place in change.replaces.items()}
    if change.key is not None:
        written["key"] = change.key
    if change.data:
        written["data"] = change.data
    return written


def _write_document(lines: Iterator[dict[str, Any]], stream: IO[bytes]) -> None:
    """The lines, sorted into one document: messages as they come, the rest after them."""
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


# ── in ──────────────────────────────────────────────────────────────────────────────────────────


def import_conversation(
    store: Store,
    stream: BinaryIO,
    *,
    id: str | None = None,  # noqa: A002 - the word for it
    into: str | None = None,
    progress: Progress | None = None,
) -> StoredHistory:
    """Read a conversation of any form into a store: all of it or, where anything is wrong, nothing.

    Everything is checked before the store is touched. The id is the one it had, unless another is
    given; a snapshot of version 1 has none and gets a new one. `AlreadyExists` if it is taken.

    A snapshot of version 1 can go `into` a conversation that is there, too: its messages and team
    task take the place of those there are, in one change that can be undone and rolled back.
    """
    if id is not None:
        check_name(id, "$.id")
    if into is not None:
        return _import_into(store.get(into), stream, id)
    with _rereadable(stream) as (readable, start):
        if _is_lines(readable, start):
            name = _import(store, lambda: _read_lines(readable, start), id, progress)
        else:
            data = readable.read(MAX_DOCUMENT + 1)
            document = load_json(data, unique=False)
            if isinstance(document, dict) and document.get("version") == _EVERYTHING:
                del document
                name = _import(store, lambda: as_lines(data), id, progress)
            else:
                name = _import_version_1(store, document, id)
    return store.get(name)


@contextmanager
def _rereadable(stream: BinaryIO) -> Generator[tuple[IO[bytes], int]]:
    """A stream that can be read again, and from where: first to check, then to keep."""
    if stream.seekable():
        yield stream, stream.tell()
        return
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool:
        shutil.copyfileobj(stream, spool)
        spool.seek(0)
        yield spool, 0


def _is_lines(stream: IO[bytes], start: int) -> bool:
    """Tell lines from a document by the header; the stream is back at its start afterwards."""
    line = stream.readline(_HEADER)
    stream.seek(start)
    try:
        header = msgspec.json.decode(line.removeprefix(_BOM), type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return "palaver" in header


def _read_lines(stream: IO[bytes], start: int) -> Iterator[Line]:
    stream.seek(start)
    number = 0
    while line := stream.readline(MAX_DOCUMENT + 1):
        if number == 0:
            line = line.removeprefix(_BOM)
        if line.strip():
            yield read_line(line, number)
            number += 1


def _import(
    store: Store,
    lines: Callable[[], Iterator[Line]],
    name: str | None,
    progress: Progress | None,
) -> str:
    """Read it all once, to check it, and once more, to keep it."""
    checked = 0
    checking = Incoming(lines(), name)
    if checking.name in store:
        msg = f"a conversation has the id {checking.name!r} already"
        raise AlreadyExists(msg)
    for change in checking.changes():
        checked += len(change.messages)
        if progress is not None:
            progress(checked, None if checking.total is None else checking.total * 2)
    keeping = Incoming(lines(), name)

    def counted() -> Iterator[Change]:
        kept = checked
        for change in keeping.changes():
            kept += len(change.messages)
            yield change
            if progress is not None:
                progress(kept, checked * 2)

    changes = counted()
    first = next(changes)
    store.keeper.adopt(first_head(keeping.head(), first), chain([first], changes))
    return keeping.name


def _import_into(history: StoredHistory, stream: BinaryIO, name: str | None) -> StoredHistory:
    """Put a snapshot of version 1 in the place of what a conversation has."""
    if name is not None:
        raise ValidationError("goes with a new conversation only", path="$.id", rule="CX-08")
    with _rereadable(stream) as (readable, start):
        if _is_lines(readable, start):
            raise ValidationError(_WHOLE, path="$.version", rule="CX-08")
        document = load_json(readable.read(MAX_DOCUMENT + 1), unique=False)
    if isinstance(document, dict) and document.get("version") == _EVERYTHING:
        raise ValidationError(_WHOLE, path="$.version", rule="CX-08")
    snapshot = read_snapshot(document)
    history.replace_all(snapshot.messages, team_task=snapshot.team_task)
    return history


def _import_version_1(store: Store, document: object, name: str | None) -> str:
    """Messages and team task in one change, made when the snapshot was."""
    snapshot = read_snapshot(document)
    messages = snapshot.messages
    count = len(messages)
    frame = Frame(logged=count, team_task=snapshot.team_task)
    first = Change(
        conversation=new_id() if name is None else name,
        after=-1,
        kind="import",
        at=snapshot.timestamp,
        stop=count,
        size=count,
        messages=messages,
        frame=FrameBook().encode(frame, 0),
    )
    head = Head(
        id=first.conversation, version=0, stop=0, length=0, counts=0, framed=0, size=0,
        created=snapshot.timestamp,
    )  # fmt: skip
    store.keeper.create(first_head(head, first), first)
    return first.conversation
