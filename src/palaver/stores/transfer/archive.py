"""An archive: many conversations in one file, which grows by whole parts and outlives a kill.

The file is JSON lines, plain (`.jsonl`), or compressed (`.jsonl.gz`, `.jsonl.zst`):

    {"palaver": "archive", "version": 1}
    {"palaver": "conversation", …} … {"end": …}         each conversation as `export` writes it
    {"palaver": "withdrawn", "id": …}                   what stands above under this id is not meant

What is written at once is a part: one gzip member or one Zstandard frame, synced to disk before
anybody counts on it. A writer that was killed leaves a part that is cut off at the end of the file,
and the next writer removes it. A conversation is never taken out of the middle: it is withdrawn.
"""

from __future__ import annotations

import gzip
import os
import tempfile
import time
import zlib
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, Self, cast

import msgspec
from msgspec import Struct

from palaver.errors import AlreadyExists, StoreError, ValidationError
from palaver.messages.limits import is_text
from palaver.stores.transfer.export import export_conversation, read_together
from palaver.stores.transfer.import_ import check_conversation, import_conversation

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has none
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from palaver.stores.store import Store
    from palaver.stores.transfer.export import Progress

__all__ = [
    "ARCHIVES",
    "Archive",
    "ArchiveReport",
    "check_archive_name",
    "import_archive",
    "is_archive",
    "write_archive",
]

ARCHIVES: Final = (".jsonl", ".jsonl.gz", ".jsonl.zst")
"""How the name of an archive may end; it tells how the file is compressed."""

_FIRST: Final = b'{"palaver":"archive","version":1}\n'
_WITHDRAWN: Final = b'{"palaver":"withdrawn"'
_HEADER: Final = b'{"palaver":"conversation"'
_END: Final = b'{"end"'
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_BLOCK: Final = 1 << 18
_IN_MEMORY: Final = 16 << 20
_LISTED: Final = 5
_TOGETHER: Final = 25  # conversations that are read at once: what takes a millisecond or two
_AT_ONCE: Final = 1024  # bytes that are written before others may have the processor
_give_way: Final[Callable[[], None]] = getattr(os, "sched_yield", lambda: time.sleep(0))


class ArchiveReport(Struct, frozen=True, rename="camel"):
    """What an archive holds: how many conversations, its size in bytes, and its SHA-256."""

    file: str
    conversations: int
    bytes: int
    sha256: str


# ── compression ─────────────────────────────────────────────────────────────────────────────────


class _Decompressor(Protocol):
    """What `zlib` and `zstandard` read one member or frame with."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def _zstandard() -> Any:  # noqa: ANN401 - a module that may not be there
    try:
        import zstandard  # noqa: PLC0415 - an extra
    except ImportError:
        msg = "Zstandard needs one more package: pip install 'palaver[zstd]'; .jsonl.gz needs none"
        raise StoreError(msg) from None
    return zstandard


def check_archive_name(name: str) -> None:
    """Raise what is wrong with the name of an archive: its ending, or a package that is missing.

    >>> check_archive_name("old.jsonl.gz")
    >>> check_archive_name("old.zip")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.archive: 'old.zip' must end in .jsonl, .jsonl.gz or ...
    """
    if not name.endswith(ARCHIVES):
        detail = f"{name!r} must end in .jsonl, .jsonl.gz or .jsonl.zst"
        raise ValidationError(detail, path="$.archive")
    if name.endswith(".zst"):
        _zstandard()


@contextmanager
def _part(stream: IO[bytes], name: str) -> Generator[IO[bytes]]:
    """Yield what a part is written to; it is complete in the stream afterwards."""
    if name.endswith(".gz"):
        with gzip.GzipFile(fileobj=stream, mode="wb", mtime=0) as inner:
            yield cast("IO[bytes]", inner)  # it has `write`, which is all that is needed
    elif name.endswith(".zst"):
        with _zstandard().ZstdCompressor().stream_writer(stream, closefd=False) as inner:
            yield inner
    else:
        yield stream


def _decompressor(beginning: bytes) -> Callable[[], _Decompressor] | None:
    """Return what makes a reader of one member or frame; None where nothing is compressed."""
    if beginning.startswith(_GZIP):
        return lambda: zlib.decompressobj(31)
    if beginning.startswith(_ZSTD):
        reader = _zstandard().ZstdDecompressor()
        return cast("Callable[[], _Decompressor]", reader.decompressobj)
    return None


def _read_blocks(stream: IO[bytes]) -> Iterator[tuple[bytes, int | None]]:
    """Yield what was written, in blocks of whole lines or not; and where a part ended, that place.

    In a plain file a part ends with every line that closes something.
    """
    beginning = stream.read(len(_ZSTD))
    stream.seek(0)
    make = _decompressor(beginning)
    if make is None:
        place = 0
        for line in stream:
            place += len(line)
            closing = line.startswith((_END, _FIRST[:-1], _WITHDRAWN)) and line.endswith(b"\n")
            yield line, place if closing else None
        return
    reader, read, rest = make(), 0, b""
    while True:
        data = rest or stream.read(_BLOCK)
        if not data:
            return
        read += 0 if rest else len(data)
        found, rest = reader.decompress(data), b""
        if reader.eof:
            rest = reader.unused_data
            yield found, read - len(rest)
            reader = make()
        else:
            yield found, None


def _read_lines(stream: IO[bytes]) -> Iterator[tuple[bytes, int | None]]:
    """Yield the lines of an archive; the last of a part with the place where that ends.

    What was cut off raises `ValidationError`, after everything before it.
    """
    tail = b""
    whole = True
    waiting: bytes | None = None
    try:
        for block, end in _read_blocks(stream):
            *lines, tail = (tail + block).split(b"\n")
            for line in lines:
                if waiting is not None:
                    yield waiting, None
                waiting = line
            whole = end is not None and not tail
            if whole and waiting is not None:
                yield waiting, end
                waiting = None
    except (zlib.error, EOFError) as error:
        raise _broken(f"can't be decompressed: {error}") from None
    except Exception as error:
        if type(error).__name__ != "ZstdError":
            raise
        raise _broken(f"can't be decompressed: {error}") from None
    if not whole:
        raise _CutOffError("is cut off", path="$", rule="import-format")


class _CutOffError(ValidationError):
    """An archive ends in the middle of a part."""


def _broken(detail: str) -> ValidationError:
    return ValidationError(detail, path="$", rule="import-format")


# ── writing ─────────────────────────────────────────────────────────────────────────────────────


def write_archive(
    store: Store,
    conversations: Iterable[str],
    stream: IO[bytes],
    *,
    name: str = ".jsonl",
    progress: Progress | None = None,
) -> int:
    """Write conversations to a stream as an archive; its `name` tells how to compress it.

    Returns how many there were.
    """
    check_archive_name(name)
    count = 0
    with _part(stream, name) as part:
        part.write(_FIRST)
        for conversation in conversations:
            export_conversation(store, conversation, part)
            count += 1
            if progress is not None:
                progress(count, None)
    return count


class Archive:
    """An archive that conversations are added to. Only one process may have it open.

    `held` has the version of every conversation that it holds.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open a file, or make it; what a killed writer left at its end is removed."""
        self.path = Path(path)
        check_archive_name(self.path.name)
        if not self.path.exists():
            if not self.path.parent.is_dir():
                folder, name = repr(str(self.path.parent)), repr(self.path.name)
                detail = f"there is no folder {folder} to write {name} in; make it first"
                raise ValidationError(detail, path="$.archive", rule="argument")
            self._make()
        self._stream = self.path.open("r+b")
        try:
            self._lock()
            self.held, self._length = self._scan()
            self._cut()
        except BaseException:
            self._stream.close()
            raise

    def __enter__(self) -> Self:
        """Return the archive; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file. What was added is on disk already."""
        self._stream.close()

    def _make(self) -> None:
        """Make the file with its first line, or not at all."""
        folder = self.path.parent
        number, name = tempfile.mkstemp(prefix=f".{self.path.name[:100]}.", dir=folder)
        try:
            with os.fdopen(number, "wb") as stream:
                with _part(stream, self.path.name) as part:
                    part.write(_FIRST)
                stream.flush()
                os.fsync(stream.fileno())
            with suppress(FileExistsError):  # another process was quicker
                os.link(name, self.path)
        finally:
            Path(name).unlink()
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)

    def _lock(self) -> None:
        if fcntl is None:  # pragma: no cover - Windows
            return
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            msg = f"{self.path} is being written to by another process"
            raise StoreError(msg) from None

    def _scan(self) -> tuple[dict[str, int], int]:
        """Return what the file holds, by id, and where its last complete part ends."""
        held: dict[str, int] = {}
        new: list[tuple[str, int | None]] = []
        length, name = 0, ""
        lines = _read_lines(self._stream)
        with suppress(_CutOffError):  # that is what a killed writer leaves, and nothing else
            for number, (line, end) in enumerate(lines):
                if number == 0 and line + b"\n" != _FIRST:
                    break
                if line.startswith(_HEADER):
                    name = _id_of(line)
                elif line.startswith(_END):
                    new.append((name, msgspec.json.decode(line)["end"]["changes"] - 1))
                elif line.startswith(_WITHDRAWN):
                    new.append((_id_of(line), None))
                if end is not None:
                    for which, version in new:
                        held.pop(which, None)  # the last comes last
                        if version is not None:
                            held[which] = version
                    length, new = end, []
        if not length:
            msg = f"{self.path} is not an archive of palaver: give the name of a new file"
            raise StoreError(msg)
        return held, length

    def _cut(self) -> None:
        """Remove what comes after the last complete part."""
        self._stream.seek(0, os.SEEK_END)
        if self._stream.tell() > self._length:
            self._stream.truncate(self._length)
            os.fsync(self._stream.fileno())
        self._stream.seek(self._length)

    def add(self, store: Store, conversations: Iterable[tuple[str, int]]) -> int:
        """Add conversations at a version as one part, and return how many bytes of lines it has.

        They are on disk when this returns. A conversation that is there at another version is
        withdrawn before.
        """
        counted = _Counted()
        added = list(conversations)
        names = [name for name, _ in added]
        with self._new_part() as part:
            counted.inner = part
            for start in range(0, len(names), _TOGETHER):
                some = names[start : start + _TOGETHER]
                found = read_together(store.backend, some)
                for name in some:
                    if name in self.held:
                        counted.write(_withdrawal(name))
                    stream = cast("IO[bytes]", counted)
                    export_conversation(store, name, stream, stored=found.get(name))
        for name, version in added:
            self.held.pop(name, None)
            self.held[name] = version
        return counted.count

    def withdraw(self, conversations: Iterable[str]) -> None:
        """Note that conversations are not meant to be here any more; their lines stay."""
        names = [name for name in conversations if name in self.held]
        if names:
            with self._new_part() as part:
                for name in names:
                    part.write(_withdrawal(name))
            for name in names:
                del self.held[name]

    @contextmanager
    def _new_part(self) -> Generator[IO[bytes]]:
        try:
            with _part(self._stream, self.path.name) as part:
                yield part
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._length = self._stream.tell()
        except BaseException:
            self._cut()
            raise

    def report(self) -> ArchiveReport:
        """Return how much there is, and the hash of the file."""
        digest = sha256()
        with self.path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
        return ArchiveReport(str(self.path), len(self.held), self._length, digest.hexdigest())


class _Counted:
    """Counts the bytes that are written, and lets others have the processor now and then.

    The kernel of a server does not interrupt who computes: without a system call, a process that is
    woken on the same processor waits for the next tick, 4 ms.
    """

    inner: IO[bytes]
    count = 0
    _since = 0

    def write(self, data: bytes) -> int:
        self.count += len(data)
        self._since += len(data)
        if self._since >= _AT_ONCE:
            self._since = 0
            _give_way()
        return self.inner.write(data)


def _id_of(line: bytes) -> str:
    found = msgspec.json.decode(line).get("id")
    return found if is_text(found) else ""


def _withdrawal(name: str) -> bytes:
    return msgspec.json.encode({"palaver": "withdrawn", "id": name}) + b"\n"


# ── reading ─────────────────────────────────────────────────────────────────────────────────────


def is_archive(path: Path) -> bool:
    """Tell whether a file is an archive, or compressed, as nothing else that is imported is."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        beginning = stream.read(len(_FIRST))
    return beginning.startswith((_GZIP, _ZSTD)) or beginning == _FIRST


def import_archive(
    store: Store,
    path: str | os.PathLike[str],
    *,
    missing: bool = False,
    owner: str | None = None,
    progress: Progress | None = None,
) -> list[str]:
    """Import the conversations of an archive, and return their ids.

    All of it is checked first: if anything is wrong with it, or the store has one of them already,
    nothing is stored. With `missing`, those that the store has are left as they are. Each is stored
    completely or not at all. They belong to `owner`, or to whom they belonged.
    """
    wanted: dict[str, int] = {}
    with Path(path).open("rb") as stream:
        for number, (name, lines) in enumerate(_conversations(stream)):
            wanted.pop(name, None)
            if lines is not None:
                check_conversation(lines)
                wanted[name] = number
            if progress is not None:
                progress(number, None)
    known = [name for name in wanted if name in store]
    if known and not missing:
        shown = ", ".join(map(repr, known[:_LISTED]))
        more = f" and {len(known) - _LISTED:,} more" if len(known) > _LISTED else ""
        msg = f"the store has {shown}{more} already: --missing leaves out what is there"
        raise AlreadyExists(msg)
    new = {wanted[name] for name in wanted.keys() - known}
    imported: list[str] = []
    with Path(path).open("rb") as stream:
        for number, (name, lines) in enumerate(_conversations(stream)):
            if lines is not None and number in new:
                import_conversation(store, lines, owner=owner)
                imported.append(name)
                if progress is not None:
                    progress(len(imported), len(new))
    return imported


def _conversations(stream: IO[bytes]) -> Iterator[tuple[str, IO[bytes] | None]]:
    """Yield the conversations of an archive, each with its lines; None where it is withdrawn."""
    name, spool, number = "", None, -1
    try:
        for number, (line, _) in enumerate(_read_lines(stream)):
            if number == 0:
                if line + b"\n" != _FIRST:
                    raise _broken("is not an archive of palaver")
            elif line.startswith(_WITHDRAWN):
                yield _id_of(line), None
            elif spool is None:
                if not line.startswith(_HEADER):
                    raise _broken(f"line {number + 1} must begin a conversation")
                name = _id_of(line)
                spool = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - until its end
                spool.write(line + b"\n")
            else:
                spool.write(line + b"\n")
                if line.startswith(_END):
                    spool.seek(0)
                    yield name, spool
                    spool.close()
                    spool = None
        if spool is not None or number < 0:
            raise _broken("is cut off: the closing line is missing")
    finally:
        if spool is not None:
            spool.close()
