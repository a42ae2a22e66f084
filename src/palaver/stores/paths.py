"""The path of a store's file: what can be one, and what is refused before anything is made."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from palaver.errors import StoreError

__all__ = ["database_path", "shown"]

_LONGEST: Final = 500
"""Bytes of a whole path; SQLite takes 512, and puts longer names beside the file."""
_SCHEMES: Final = ("file:", "sqlite:")
_KINDS: Final = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def database_path(name: str) -> str:
    """The absolute path of a SQLite file; `StoreError` says why something can't be one.

    `~` is the home folder. Nothing is made or opened.

    >>> database_path("/tmp/chat.db")
    '/tmp/chat.db'
    >>> database_path("/dev/null")
    Traceback (most recent call last):
    palaver.errors.StoreError: /dev/null is a device; a store needs a file of its own
    """
    if not name:
        msg = "the path of a store is empty; give a file, or :memory:"
        raise StoreError(msg)
    if "\0" in name:
        msg = f"the path of a store can't have a NUL in it: {name!r}"
        raise StoreError(msg)
    if name.startswith(_SCHEMES):
        scheme = name.partition(":")[0]
        msg = f"there is no store for {scheme}: addresses; give the path of the file alone"
        raise StoreError(msg)
    path = os.path.abspath(os.path.expanduser(name))  # noqa: PTH100, PTH111 - names may begin with ~
    _check_name(path)
    _check_kind(path, folder=name.endswith(os.sep))
    return path


def shown(path: str) -> str:
    """A path as a message can have it: bytes that are no UTF-8 are escaped."""
    return path.encode("utf-8", "backslashreplace").decode()


def _check_name(path: str) -> None:
    try:
        length = len(path.encode())
    except UnicodeEncodeError:
        msg = f"{shown(path)} is not UTF-8, and SQLite takes no other names: rename it"
        raise StoreError(msg) from None
    if length > _LONGEST:
        msg = f"the path has {length} bytes, and SQLite takes {_LONGEST}: {path[:60]}…"
        raise StoreError(msg)


def _check_kind(path: str, *, folder: bool) -> None:
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFDIR if folder else stat.S_IFREG
    except OSError as error:
        msg = f"{path} can't be opened: {error.strerror}"
        raise StoreError(msg) from None
    for is_kind, what in _KINDS:
        if is_kind(mode):
            msg = f"{path} is {what}; a store needs a file of its own"
            raise StoreError(msg)
