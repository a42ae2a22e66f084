"""System calls that fail when told: SQLite's own calls of reading, writing, cutting, opening.

SQLite lets the calls it makes be replaced. They are replaced by ones that count, and from a chosen
call on give an error as the kernel would. What SQLite makes of the error is its own affair, as in
life; an error raised inside a file system written in Python would come out in places where SQLite
itself goes on. Only a failing sync has to be made that way: it can't be replaced.
"""

from __future__ import annotations

import ctypes
import errno
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import apsw

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["Calls", "Syncs", "failing_calls", "failing_syncs"]

_INT, _LONG, _POINTER, _TEXT = ctypes.c_int, ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_char_p
_SHAPES: Final[dict[str, tuple[Any, ...]]] = {  # what they answer, and take
    "open": (_INT, _TEXT, _INT, _INT),
    "ftruncate": (_INT, _INT, ctypes.c_longlong),
    "pread64": (_LONG, _INT, _POINTER, ctypes.c_size_t, ctypes.c_longlong),
    "pwrite64": (_LONG, _INT, _POINTER, ctypes.c_size_t, ctypes.c_longlong),
    "unlink": (_INT, _TEXT),
    "fstat": (_INT, _INT, _POINTER),
}
_GROWING: Final = {"pwrite64"}


class Calls:
    """The calls since the last `arm`, and which of them fails."""

    def __init__(self) -> None:
        """Fail nothing."""
        self.seen = 0
        self.failed: str | None = None
        self._at: int | None = None
        self._full = False

    def arm(self, at: int, *, full: bool = False) -> None:
        """Fail the call of this number; as a full disk, all writes from there on."""
        self.seen, self.failed, self._at, self._full = 0, None, at, full

    def disarm(self) -> None:
        """The disk works again."""
        self._at = None

    def error(self, name: str) -> int:
        """The error that a call is to give; 0 for none."""
        if self._at is None or (self._full and name not in _GROWING):
            return 0
        self.seen += 1
        if self.seen - 1 == self._at or (self._full and self.seen > self._at):
            self.failed = self.failed or name
            return errno.ENOSPC if self._full else errno.EIO
        return 0


@contextmanager
def failing_calls() -> Generator[Calls]:
    """Put counting calls in the place of SQLite's own."""
    calls = Calls()
    system = apsw.VFS("palaver-calls", "unix")
    kept = [_replace(system, name, shape, calls) for name, shape in _SHAPES.items()]
    try:
        yield calls
    finally:
        for name in _SHAPES:
            system.xSetSystemCall(name, 0)
        system.unregister()
        del kept  # until here: SQLite calls them


def _replace(system: apsw.VFS, name: str, shape: tuple[Any, ...], calls: Calls) -> object:
    kind = ctypes.CFUNCTYPE(*shape, use_errno=True)
    address = system.xGetSystemCall(name)
    assert address is not None
    real = kind(address)

    def call(*args: Any) -> int:  # noqa: ANN401 - what the kernel's takes
        error = calls.error(name)
        if error:
            ctypes.set_errno(error)
            return -1
        answer: int = real(*args)
        return answer

    mine = kind(call)
    system.xSetSystemCall(name, ctypes.cast(mine, ctypes.c_void_p).value or 0)
    return mine


class Syncs(Calls):
    """The syncs since the last `arm`, and which of them fails."""


class _Failing(apsw.VFS):
    def __init__(self, name: str, syncs: Syncs) -> None:
        super().__init__(name, "")
        self._syncs = syncs

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's
        return _File(self._syncs, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, syncs: Syncs, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._syncs = syncs

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's
        if self._syncs.error("fsync"):
            raise apsw.IOError("disk I/O error")
        super().xSync(flags)


@contextmanager
def failing_syncs(name: str = "palaver-syncs") -> Generator[Syncs]:
    """A file system, by its name, whose syncs fail when told."""
    syncs = Syncs()
    system = _Failing(name, syncs)
    told = sys.unraisablehook
    sys.unraisablehook = lambda _: None  # apsw tells there of errors that SQLite takes in silence
    try:
        yield syncs
    finally:
        sys.unraisablehook = told
        system.unregister()
