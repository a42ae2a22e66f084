"""Opening a store by its address: a file, `:memory:`, or `postgresql://…`.

An address can contain a password. A misspelt address is not taken for a file name, which would be
shown or even created, and no error shows the address.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast
from urllib.parse import unquote

from palaver.errors import EncryptionError, StoreError, ValidationError
from palaver.messages.ids import now_ms
from palaver.messages.limits import describe_argument
from palaver.stores.encryption import EncryptedBackend, as_ciphers
from palaver.stores.records import check_owner
from palaver.stores.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from palaver.stores.backend import Backend
    from palaver.stores.encryption import Cipher, EncryptableBackend

__all__ = ["check_address", "database_path", "open_store", "printable_path"]

_POSTGRES: Final = ("postgresql://", "postgres://")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}")
_MISSPELT: Final = re.compile(
    r"""
    \s*postgres(ql)?\s*:                              # postgresql:/…
    | (?!\.{1,2}[\\/] | [A-Za-z]:[\\/] | /(?!/))      # not ./… or C:/… or /…
      (
        [^@]*:[^@]*@                                  # user:password@…
        | .*\b(password|passwd|pwd|PGPASSWORD)\s*=    # host=… password=…
      )
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)


def open_store(
    address: str | os.PathLike[str],
    *,
    clock: Callable[[], int] = now_ms,
    key: Cipher | Sequence[Cipher] | None = None,
    read: Literal["primary", "replica"] = "primary",
    owner: str | None = None,
) -> Store:
    """Open a store, and create it if it does not exist.

    With a `key`, what conversations say is encrypted before it is stored: a `palaver.Key`, or
    another `Cipher`. Of several keys the first encrypts, and every one decrypts. A new store is
    encrypted from the beginning; one with plain text in it is refused, and `Store.encrypt` brings
    it over. An encrypted store that is opened without its key can be listed, and reading from it
    is an `EncryptionError`.

    A file may be given as text or as a path; `~` is the home folder. Something that cannot be a
    store's file (a folder, a device, a name that is not UTF-8) is a `StoreError`, and nothing is
    created.

    The address of a store in PostgreSQL may have several hosts, `postgresql://one,two/talks`:
    changes go to the one that accepts them, and to another one after a failover. With
    `read="replica"`, conversations are opened and read from a standby among them, if there is one
    and it has what this store has seen or changed already; everything else goes to the primary.

    With an `owner`, only what belongs to that owner can be seen and changed, and what is created
    belongs to that owner. Only a store in PostgreSQL with row security can do that (see
    `Store.secure_rows`); its address can name the owner, too: `postgresql://…/talks?owner=anna`.

    >>> open_store(":memory:").create(title="A talk").title
    'A talk'
    """
    if read not in {"primary", "replica"}:
        detail = f"must be 'primary' or 'replica', not {describe_argument(read)}"
        raise ValidationError(detail, path="$.read", rule="argument")
    name: object = address
    if isinstance(address, os.PathLike):
        name = os.fspath(address)
    if not isinstance(name, str):
        kind = type(name).__name__
        msg = f"the address of a store must be text or a path, such as 'chat.db', not {kind}"
        raise StoreError(msg)
    check_address(name)
    check_owner(owner)
    if name.startswith(_POSTGRES):
        ciphers = () if key is None else as_ciphers(key)
        return Store(_with_key(_postgres(name, read, owner), ciphers), clock=clock)
    if owner is not None:
        msg = "only a store in PostgreSQL can be opened for an owner; others have no row security"
        raise StoreError(msg)
    if read == "replica":
        detail = "a file has no standby to read from; a store in PostgreSQL has: read='primary'"
        raise ValidationError(detail, path="$.read", rule="argument")
    if name == ":memory:":
        from palaver.stores.memory import MemoryBackend  # noqa: PLC0415 - loaded on demand

        if key is not None:
            msg = "a store in memory can't be encrypted: nothing of it is ever stored; omit the key"
            raise StoreError(msg)
        return Store(MemoryBackend(), clock=clock)
    path = database_path(name)
    from palaver.stores.sqlite import SQLiteBackend  # noqa: PLC0415 - the same

    ciphers = () if key is None else as_ciphers(key)
    return Store(_with_key(SQLiteBackend(path), ciphers), clock=clock)


def _with_key(backend: EncryptableBackend, ciphers: tuple[Cipher, ...]) -> Backend:
    """Return what encrypts before a backend stores, if the store is encrypted or new."""
    encrypted = backend.encrypted
    if not ciphers and not encrypted:
        return backend
    if not encrypted:
        if getattr(backend, "owner", None) is not None:  # what others have is out of sight
            backend.close()
            msg = (
                "a key was given, and the store is not encrypted; a store that was opened for an "
                "owner can't be encrypted for all: open it without the key, or encrypt it first "
                "with `palaver encrypt` as a role that sees everything"
            )
            raise EncryptionError(msg)
        if backend.listing(after=None, limit=1, tag=None).conversations:
            backend.close()
            msg = (
                "a key was given, and the store has plain text in it; encrypt it with "
                "`palaver encrypt` or Store.encrypt, or open it without the key"
            )
            raise EncryptionError(msg)
        backend.rows.set_encrypted(True)
    return cast("Backend", EncryptedBackend(backend, ciphers))


def _postgres(
    address: str, read: Literal["primary", "replica"], owner: str | None
) -> EncryptableBackend:
    try:
        from palaver.stores.postgres import PostgresBackend  # noqa: PLC0415 - the same
    except ImportError as error:
        if (error.name or "psycopg").partition(".")[0] != "psycopg":
            raise
        msg = "a store in PostgreSQL needs more packages: pip install 'palaver[postgres]'"
        raise StoreError(msg) from None
    place, mark, options = address.partition("?")
    named = [option for option in options.split("&") if option.startswith("owner=")]
    if named:
        others = "&".join(option for option in options.split("&") if option not in named)
        address = f"{place}{mark}{others}".removesuffix("?")
        given = check_owner(unquote(named[-1].removeprefix("owner=")))
        if owner not in {None, given}:
            msg = f"the address names another owner than {owner!r}"
            raise StoreError(msg)
        owner = given
    return PostgresBackend(address, read=read, owner=owner)


def check_address(address: str) -> None:
    """Raise `StoreError` for an address that is neither a file nor a store, without showing it.

    >>> check_address("chat.db")
    >>> check_address("mysql://me:secret@localhost/talks")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    palaver.errors.StoreError: there is no store for mysql:// addresses; expected a file, ...
    """
    expected = "expected a file, :memory: or postgresql://user:password@host:port/database"
    scheme, found, _ = address.partition("://")
    if found and not address.startswith(_POSTGRES):
        named = f"{scheme}:// addresses" if _SCHEME.fullmatch(scheme) else "such an address"
        msg = f"there is no store for {named}; {expected}"
        raise StoreError(msg)
    if not found and _MISSPELT.match(address):
        msg = (
            f"that looks like a misspelt address and not like a file; {expected} "
            "(a file with such a name can be given by its absolute path)"
        )
        raise StoreError(msg)


_LONGEST: Final = 500
"""The most bytes of a path; SQLite takes 512, and appends to it for files beside this one."""
_SCHEMES: Final = ("file:", "sqlite:")
_KINDS: Final = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def database_path(name: str) -> str:
    """Return the absolute path of a SQLite file; `StoreError` if it cannot be one.

    `~` is the home folder. Nothing is created or opened.

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


def printable_path(path: str) -> str:
    """Return a path as text for a message: bytes that are not UTF-8 are escaped."""
    return path.encode("utf-8", "backslashreplace").decode()


def _check_name(path: str) -> None:
    try:
        length = len(path.encode())
    except UnicodeEncodeError:
        msg = f"{printable_path(path)} is not UTF-8, and SQLite takes no other names: rename it"
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
