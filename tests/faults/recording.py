"""A file system for SQLite that writes down every write, sync, truncation and deletion.

From the recording `Disk` makes what a disk may hold after a power cut: what was synced, and of the
rest nothing, everything, or any pieces of it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import apsw

if TYPE_CHECKING:
    import random
    from collections.abc import Generator
    from pathlib import Path

__all__ = ["Disk", "Event", "Recorder", "eager_checkpoints", "recording", "write_image"]

_BESIDE: Final = ("-wal", "-journal")
_EAGER: Final = 12
"""A checkpoint after so many pages, so that a short program has many."""


class Event(NamedTuple):
    """Something that happened: to a file (told by its ending), or in the program."""

    kind: str  # write, truncate, sync, delete; begin and ack of a step
    file: str = ""
    offset: int = 0
    data: bytes = b""


class Recorder(apsw.VFS):
    """The ordinary file system, with a list of what was done to it."""

    def __init__(self, name: str) -> None:
        """Be known to SQLite by a name."""
        super().__init__(name, "")
        self.events: list[Event] = []

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's
        """Open a file that records."""
        return _File(self.events, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001, N802 - SQLite's
        """Delete a file."""
        self.events.append(Event("delete", _ending(filename)))
        super().xDelete(filename, syncdir)


class _File(apsw.VFSFile):
    def __init__(
        self, events: list[Event], name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        super().__init__("", name, flags)
        self._events = events
        spelled = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._file = None if spelled is None else _ending(spelled)

    def _note(self, kind: str, offset: int = 0, data: bytes = b"") -> None:
        if self._file is not None:  # one without a name does not outlive its process
            self._events.append(Event(kind, self._file, offset, data))

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's
        self._note("write", offset, bytes(data))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's
        self._note("truncate", newsize)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's
        super().xSync(flags)
        self._note("sync")


def _ending(name: str) -> str:
    return next((end for end in _BESIDE if name.endswith(end)), "")


@contextmanager
def recording(name: str = "palaver-recording") -> Generator[Recorder]:
    """A recorder that stores can be opened with, by its name."""
    recorder = Recorder(name)
    try:
        with eager_checkpoints():
            yield recorder
    finally:
        recorder.unregister()


@contextmanager
def eager_checkpoints() -> Generator[None]:
    """Have every connection that is opened move pages from the write-ahead log early and often."""

    def eager(connection: apsw.Connection) -> None:
        connection.wal_autocheckpoint(_EAGER)

    apsw.connection_hooks.append(eager)
    try:
        yield
    finally:
        apsw.connection_hooks.remove(eager)


class Disk:
    """A disk that is told events one by one; `image` is what a power cut now may leave."""

    def __init__(self) -> None:
        """Begin empty."""
        self._safe: dict[str, bytes] = {}
        self._waiting: dict[str, list[Event]] = {}

    def take(self, event: Event) -> None:
        """Something was done."""
        if event.kind == "sync":
            waiting = self._waiting.pop(event.file, [])
            if event.file and (event.file not in self._safe or _deleted(waiting)):
                self._sync_folder()  # SQLite does, with the first sync of a new journal
            kept = _replayed(self._safe.get(event.file), waiting)
            if kept is None:
                self._safe.pop(event.file, None)
            else:
                self._safe[event.file] = kept
        else:
            self._waiting.setdefault(event.file, []).append(event)

    def _sync_folder(self) -> None:
        """Deletions are safe now; what was written since then is not."""
        for file, waiting in self._waiting.items():
            if gone := _deleted(waiting):
                self._safe.pop(file, None)
                self._waiting[file] = waiting[gone[-1] + 1 :]

    @property
    def unsure(self) -> bool:
        """Tell whether there is anything that a power cut may take."""
        return any(self._waiting.values())

    def image(self, way: str, draw: random.Random) -> dict[str, bytes]:
        """The files, by their endings, with the unsynced lost, kept, in pieces or as holes."""
        found: dict[str, bytes] = {}
        for file in sorted({*self._safe, *self._waiting}):
            old, waiting = self._safe.get(file), self._waiting.get(file, [])
            if way == "lost":
                left = old
            elif way == "kept":
                left = _replayed(old, waiting)
            elif way == "prefix":
                left = _replayed(old, waiting[: draw.randint(0, len(waiting))])
            else:
                left = _torn(old, waiting, way, draw)
            if left is not None:
                found[file] = left
        return found


def _replayed(old: bytes | None, events: list[Event]) -> bytes | None:
    content = None if old is None else bytearray(old)
    for event in events:
        if event.kind == "delete":
            content = None
            continue
        content = bytearray() if content is None else content
        if event.kind == "truncate":
            del content[event.offset :]
            content.extend(bytes(event.offset - len(content)))
        else:
            _put(content, event.offset, event.data)
    return None if content is None else bytes(content)


def _deleted(events: list[Event]) -> list[int]:
    return [index for index, event in enumerate(events) if event.kind == "delete"]


def _put(content: bytearray, offset: int, data: bytes) -> None:
    content.extend(bytes(max(offset + len(data) - len(content), 0)))
    content[offset : offset + len(data)] = data


def _torn(old: bytes | None, events: list[Event], way: str, draw: random.Random) -> bytes | None:
    """Any of the sectors that were written; as "holes" the lost ones of a longer file are zeros."""
    sector = 4096 if way.endswith("4096") else 512
    gone = _deleted(events)
    if gone and draw.random() < 0.5:
        old, events = None, events[gone[-1] + 1 :]
    elif gone:
        events = events[: gone[0]]
    likely = draw.choice([0.1, 0.5, 0.9])
    content = None if old is None else bytearray(old)
    for event in events:
        if event.kind == "truncate":
            if draw.random() < likely:
                content = bytearray(_replayed(bytes(content or b""), [event]) or b"")
            continue
        content = bytearray() if content is None else content
        for start, piece in _sectors(event, sector):
            if draw.random() < likely:
                _put(content, start, piece)
            elif way.startswith("holes"):
                content.extend(bytes(max(start + len(piece) - len(content), 0)))
    return None if content is None else bytes(content)


def _sectors(event: Event, size: int) -> Generator[tuple[int, bytes]]:
    start, end = event.offset, event.offset + len(event.data)
    while start < end:
        stop = min(start - start % size + size, end)
        yield start, event.data[start - event.offset : stop - event.offset]
        start = stop


def write_image(files: dict[str, bytes], path: Path) -> None:
    """Put an image where a store can be opened."""
    for end in ("", *_BESIDE, "-shm"):
        beside = path.with_name(path.name + end)
        beside.unlink(missing_ok=True)
        if end in files:
            beside.write_bytes(files[end])
