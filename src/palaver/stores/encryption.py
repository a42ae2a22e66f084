"""Encryption at rest: what a conversation says is encrypted before a backend stores it.

`EncryptedBackend` stands before a backend. It encrypts the messages, frames, data, records and
titles of everything that is written, and decrypts them where they are read. Ids, roles, times,
counts, tags, idempotency keys and the names of records stay readable, since the backend works with
them. What is stored begins with the id of its key, so that several keys can be in use at once:
the first key encrypts, every key decrypts.

A ciphertext is bound to what it is: a message to its id, role and time, a frame to its version,
data to its change, a record to its conversation, kind and name. Forks share the rows of their
ancestors, and an append takes its position in the database, so a message can't be bound to a
conversation or a position. The hashes of rows are over ciphertext, and tell nothing about the text.

A search would need the words of the messages, and so it is off. That the search index is off is
also how a store remembers that it is encrypted.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, cast

import msgspec
from msgspec.structs import replace

from palaver.errors import (
    EncryptionError,
    StoreDamaged,
    UnknownConversation,
    ValidationError,
    needs_extra,
)
from palaver.messages.codec import encode
from palaver.messages.decode import decode_messages
from palaver.messages.limits import describe_argument, not_pickled
from palaver.stores.backend import Backend, Opened
from palaver.stores.records import (
    MAGIC,
    MERGED_POSITIONS,
    SEALED,
    BodyCodec,
    SealedMessage,
    StoredFrame,
    check_records,
    decode_body,
    encode_body,
    is_sealed,
    read_sealed,
)
from palaver.stores.text_index import SEARCH_IS_OFF

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from palaver.messages import Message
    from palaver.stores.records import (
        Change,
        Erased,
        Head,
        Hit,
        JournalEntry,
        Lease,
        Listing,
        Record,
        StoredConversation,
        Work,
    )

__all__ = ["Cipher", "EncryptedBackend", "Key", "as_ciphers", "decrypt_all", "encrypt_all"]

HIDDEN_TITLE: Final = "(encrypted)"
"""What is shown in place of a title to who has no key."""
_DATA: Final = "palaver.sealed"
_TITLE: Final = "palaver.sealed:"
_SECRET: Final = 32  # bytes of a key for AES-256
_NONCE: Final = 12
_PAGE: Final = 100  # rows rewritten in one transaction
_LISTED: Final = 500


class Cipher(Protocol):
    """What encrypts and decrypts: a `Key`, or your own, such as one that asks a KMS.

    `bound` is not secret. It says what the data is, and `decrypt` must refuse data that was
    encrypted with another `bound`.
    """

    @property
    def id(self) -> str:
        """The name of the key, at most 255 bytes; it is stored, readable, with everything."""
        ...

    def encrypt(self, data: bytes, bound: bytes) -> bytes:
        """Return the encrypted data."""
        ...

    def decrypt(self, data: bytes, bound: bytes) -> bytes:
        """Return what was encrypted; raise `ValueError` if it is not what `encrypt` returned."""
        ...


class Key:
    """A key of 32 random bytes, for AES-256-GCM. It needs the extra `encryption`.

    It is given as bytes, or as text: base64 or hexadecimal, as `Key.generate().text` is. The `id`
    is computed from the secret and does not reveal it. A password is no key: derive one with a
    function made for it, or take a random one.

    >>> key = Key(bytes(range(32)))
    >>> key.decrypt(key.encrypt(b"tea", b"a"), b"a")
    b'tea'
    >>> key.id, key
    ('a0e6490df62171bc', <Key a0e6490df62171bc>)
    """

    def __init__(self, secret: bytes | str) -> None:
        """Take the secret."""
        with needs_extra("encryption"):
            from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - too
        self._secret = _read_secret(secret)
        self._aead = AESGCM(self._secret)
        self._refused = InvalidTag, ValueError
        self.id = blake2b(self._secret, digest_size=8, person=b"palaver key id").hexdigest()

    @classmethod
    def generate(cls) -> Key:
        """Return a new random key; store its `text` where the database is not.

        >>> Key(Key.generate().text).id == Key.generate().id
        False
        """
        return cls(os.urandom(_SECRET))

    @property
    def text(self) -> str:
        """The secret as base64."""
        return b64encode(self._secret).decode()

    def encrypt(self, data: bytes, bound: bytes) -> bytes:
        """Return a random nonce and the encrypted data."""
        nonce = os.urandom(_NONCE)
        return nonce + self._aead.encrypt(nonce, data, bound)

    def decrypt(self, data: bytes, bound: bytes) -> bytes:
        """Return what was encrypted; `ValueError` if it was changed or bound to something else."""
        try:
            return self._aead.decrypt(data[:_NONCE], data[_NONCE:], bound)
        except self._refused:
            msg = "it was changed, or it belongs elsewhere"
            raise ValueError(msg) from None

    __reduce_ex__ = not_pickled("give its text to each process, and make it again there")

    def __repr__(self) -> str:
        """Return the id, never the secret."""
        return f"<Key {self.id}>"


def _read_secret(secret: object) -> bytes:
    """Return the bytes of a secret, without showing it in an error."""
    expected = "must be 32 bytes, or their base64 or hexadecimal text; Key.generate() makes one"
    if isinstance(secret, str):
        text = secret.strip()
        found = b""
        with suppress(ValueError, NotBase64):
            found = bytes.fromhex(text) if len(text) == 2 * _SECRET else b64decode(text, None, True)  # noqa: FBT003 - strict
    elif isinstance(secret, bytes | bytearray):
        found = bytes(secret)
    else:
        raise ValidationError(f"{expected}, not {type(secret).__name__}", path="$.secret")
    if len(found) != _SECRET:
        raise ValidationError(expected, path="$.secret")
    return found


def as_ciphers(key: object) -> tuple[Cipher, ...]:
    """Return the keys that were given: one, or several of which the first encrypts."""
    given: tuple[Any, ...] = tuple(key) if isinstance(key, list | tuple) else (key,)
    for index, one in enumerate(given):
        usable = all(callable(getattr(one, name, None)) for name in ("encrypt", "decrypt"))
        if isinstance(one, type) or not usable or not isinstance(getattr(one, "id", None), str):
            shown = "text" if isinstance(one, str | bytes) else describe_argument(one)
            detail = f"must be a palaver.Key or another Cipher, not {shown}; palaver.Key(…) is one"
            raise ValidationError(detail, path=f"$.key[{index}]", rule="argument")
        if not 0 < len(one.id.encode()) < 256:  # noqa: PLR2004 - its length is one byte
            detail = "the id of a key must have 1 to 255 bytes"
            raise ValidationError(detail, path=f"$.key[{index}].id")
    if not given:
        raise ValidationError("must have at least one key", path="$.key")
    return given


class _Sealing(BodyCodec):
    """Encrypts and decrypts each kind of content with some keys; without a key it refuses."""

    def __init__(self, ciphers: Sequence[Cipher] = ()) -> None:
        self.ciphers = tuple(ciphers)
        self._by_id = {cipher.id: cipher for cipher in reversed(self.ciphers)}
        self._header = _header(self.ciphers[0]) if self.ciphers else b""

    def seal(self, data: bytes, *bound: object) -> bytes:
        """Encrypt with the first key."""
        if not self.ciphers:
            msg = f"the store is encrypted, and nothing can be written without a key; {_GIVE_IT}"
            raise EncryptionError(msg)
        return self._header + self.ciphers[0].encrypt(data, _bound(bound))

    def open(self, data: bytes, *bound: object) -> bytes:
        """Decrypt; data that is not encrypted is returned as it is."""
        if not is_sealed(data):
            return data
        start = len(MAGIC) + 1
        end = start + data[start - 1]
        name = data[start:end].decode("utf-8", "replace")
        cipher = self._by_id.get(name)
        if cipher is None:
            self._refuse(name)
        try:
            return cipher.decrypt(data[end:], _bound(bound))
        except ValueError as error:
            msg = f"a {bound[0]} can't be decrypted with the key {name}: {error}"
            raise StoreDamaged(msg) from error

    def _refuse(self, name: str) -> NoReturn:
        known = ", ".join(self._by_id)
        given = f"the given key is {known}" if known else "no key was given"
        msg = f"the content is encrypted with the key {name}, and {given}; {_GIVE_IT}"
        raise EncryptionError(msg)

    def is_current(self, data: bytes) -> bool:
        """Whether data is encrypted with the first key."""
        return bool(self._header) and data.startswith(self._header)

    # ── messages ────────────────────────────────────────────────────────────────────────────────

    def seal_message(self, message: Message) -> SealedMessage:
        """Return a message as it is stored."""
        role, name, time = message.role, message.id, message.timestamp
        data = self.seal(encode(message), "message", role, name, time)
        return SealedMessage(data, role, name, time)

    def message(self, body: str | None) -> Message:
        """Return the message of a stored body."""
        return decode_body(body if body is None else self._plain_body(body).decode())

    def messages(self, bodies: Sequence[str]) -> list[Message]:
        """Return the messages of stored bodies, which are decoded together."""
        plain = [self._plain_body(body) for body in bodies]
        read = decode_messages(b"[%b]" % b",".join(plain))
        if read is None or len(read) != len(plain):  # one by one: the error names the fault
            read = [decode_body(body.decode()) for body in plain]
        return read

    def join(self, bodies: Sequence[str]) -> str:
        """Return the messages of stored bodies as JSON, with commas in between, unchecked."""
        return b",".join([self._plain_body(body) for body in bodies]).decode()

    def _plain_body(self, body: str) -> bytes:
        if not body.startswith(SEALED):
            return body.encode()
        stored = read_sealed(body)
        return self.open(stored.sealed, "message", stored.role, stored.id, stored.timestamp)

    # ── the rest ────────────────────────────────────────────────────────────────────────────────

    def seal_data(self, data: Mapping[str, Any], *change: object) -> Mapping[str, Any]:
        """Return the data of a change as it is stored."""
        if not data:
            return data
        sealed = self.seal(msgspec.json.encode(data), "change", *change)
        return {_DATA: b64encode(sealed).decode()}

    def open_data(self, data: Mapping[str, Any], *change: object) -> Mapping[str, Any]:
        """Return the data of a change; none to who has no key, since the rest can be followed."""
        if _DATA not in data:
            return data
        if not self.ciphers:
            return {}
        return cast(
            "dict[str, Any]",
            msgspec.json.decode(self.open(_from_base64(data[_DATA]), "change", *change)),
        )

    def value(self, conversation: str, kind: str, name: str, value: bytes) -> bytes:
        """Return the value of a record."""
        return self.open(value, "record", conversation, kind, name)

    def seal_record(self, conversation: str, record: Record) -> Record:
        """Return a record as it is stored."""
        kind, name, value = record
        if value is None:
            return record
        return kind, name, self.seal(value, "record", conversation, kind, name)

    def seal_title(self, title: str | None) -> str | None:
        """Return a title as it is stored. A fork has its parent's, so it is bound to neither."""
        if title is None:
            return None
        return _TITLE + b64encode(self.seal(title.encode(), "title")).decode()

    def open_title(self, title: str | None) -> str | None:
        """Return a title, or a word in place of it to who has no key."""
        if title is None or not title.startswith(_TITLE):
            return title
        if not self.ciphers:
            return HIDDEN_TITLE
        return self.open(_from_base64(title.removeprefix(_TITLE)), "title").decode()

    def seal_change(self, change: Change) -> Change:
        """Return a change as it is stored."""
        messages = tuple(self.seal_message(message) for message in change.messages)
        frame, name = change.frame, change.conversation
        return replace(
            change,
            messages=cast("tuple[Message, ...]", messages),
            frame=None if frame is None else self.seal(frame, "frame", change.after + 1),
            data=self.seal_data(change.data, name, change.kind, change.at),
            records=tuple(self.seal_record(name, record) for record in change.records),
        )


_GIVE_IT: Final = "give it as palaver.open(…, key=…), or to the command as PALAVER_KEY"


def _header(cipher: Cipher) -> bytes:
    name = cipher.id.encode()
    return MAGIC + bytes([len(name)]) + name


def _bound(what: Iterable[object]) -> bytes:
    return "\0".join(map(str, what)).encode()


def _from_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (ValueError, TypeError) as error:
        msg = f"what was encrypted can't be read: {error}"
        raise StoreDamaged(msg) from None


class EncryptableBackend(Backend, Protocol):
    """A backend whose content can be encrypted: the ones for SQLite and PostgreSQL."""

    codec: BodyCodec

    @property
    def encrypted(self) -> bool:
        """Whether the store is encrypted, or being encrypted."""
        ...

    @property
    def rows(self) -> StoredRows:
        """The rows as they are stored."""
        ...


class StoredRows(Protocol):
    """The rows of a store as they are stored, for those who rewrite them."""

    def set_encrypted(self, on: bool) -> None:  # noqa: FBT001 - the value of a setting
        """Note whether the store is encrypted: the search index is emptied, and then off or on."""

    def read(self, query: str, conversation: str, *values: Any) -> list[Any]:  # noqa: ANN401 - columns
        """Return rows of a conversation as they are stored, by one of the queries of `verify`."""
        ...

    def hash(self, query: str, body: bytes, columns: Sequence[Any]) -> int:
        """Return the hash of a row that such a query returned."""
        ...

    def replace(self, query: str, conversation: str, rows: list[dict[str, Any]]) -> None:
        """Replace the content of rows that still have their `old` hash, in one transaction."""

    def retitle(self, conversation: str, change: Callable[[str | None], str | None]) -> None:
        """Replace the stored form of a title, in one transaction."""

    def destroy_leftovers(self) -> None:
        """Destroy the bytes of what was replaced, in the database and in its write-ahead log."""


_OPTIONAL: Final = {
    "begin_work": "_begin_work",
    "commit_and_release": "_commit_and_release",
    "create_fork": "_create_fork",
    "forks_of": "_forks_of",
    "open": "_open",
    "read_whole": "_read_whole",
}
"""What only some backends have, and what does it here."""
_WITHOUT_CONTENT: Final = frozenset({
    "adopts_in_turn", "after_fork_in_child", "before", "befores", "between_times", "bodies",
    "check", "close", "damaged", "delete", "delete_all", "distribute", "encrypted", "erasures",
    "examine", "family", "generation", "keys", "kinds", "lease", "messages", "migrated", "named",
    "newest", "owner", "positions_of", "release", "replaced", "secure_rows", "select", "set_owner",
    "stop", "sweep", "unindexed", "unsound", "wait",
})  # fmt: skip
"""What is passed on as it is; messages are decrypted by the codec that the backend was given."""


class EncryptedBackend:
    """A backend that encrypts what it is given, and hands it to another one.

    What has no content is passed on as it is. Without a key, conversations can be listed, followed,
    leased and deleted; anything that needs their content raises `EncryptionError`.
    """

    def __init__(self, inner: EncryptableBackend, ciphers: Sequence[Cipher] = ()) -> None:
        """Take the backend that stores, and the keys, of which the first encrypts."""
        self.inner = inner
        self.sealing = inner.codec = _Sealing(ciphers)
        self._titles: dict[str, tuple[str | None, str | None]] = {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as the backend has it
        """Pass on what has no content, and what a backend may have; nothing else, to be safe."""
        own = _OPTIONAL.get(name)
        if own is None and name not in _WITHOUT_CONTENT:
            raise AttributeError(name=name, obj=self)
        found = getattr(self.inner, name)
        return found if own is None else getattr(self, own)

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def create(self, head: Head, first: Change) -> None:
        """Create a conversation."""
        self.inner.create(self._sealed_head(head), self.sealing.seal_change(first))

    def _create_fork(self, head: Head, first: Change) -> Head:
        inner: Any = self.inner  # it has `create_fork`, or this is not called
        plain, stored = self._titles.get(str(head.parent), (None, None))
        sealed = replace(head, title=stored) if plain == head.title else self._sealed_head(head)
        return self._head(inner.create_fork(sealed, self.sealing.seal_change(first)))

    def commit(self, change: Change) -> int:
        """Commit a change."""
        return self.inner.commit(self.sealing.seal_change(change))

    def _commit_and_release(self, change: Change, lease: Lease) -> int:
        inner: Any = self.inner  # it has `commit_and_release`, or this is not called
        version: int = inner.commit_and_release(self.sealing.seal_change(change), lease)
        return version

    def adopt(self, head: Head | None, changes: Iterable[Change]) -> int:
        """Commit changes that were made elsewhere."""
        sealed = None if head is None else self._sealed_head(head)
        return self.inner.adopt(sealed, map(self.sealing.seal_change, changes))

    def describe(
        self, conversation: str, title: str | None, tags: Sequence[str], *, after: int | None = None
    ) -> None:
        """Set a conversation's title and tags."""
        self.inner.describe(conversation, self.sealing.seal_title(title), tags, after=after)

    def erase(
        self,
        conversation: str,
        message_ids: Sequence[str],
        at: int,
        *,
        note: Change | None = None,
        spare: Collection[tuple[str, int]] = (),
    ) -> Erased:
        """Replace messages with tombstones, which have no content and are not encrypted."""
        sealed = None if note is None else self.sealing.seal_change(note)
        more = {"spare": spare} if spare else {}
        return self.inner.erase(conversation, message_ids, at, note=sealed, **more)

    def bury(self, note: Change, positions: Sequence[int], family: Sequence[str]) -> None:
        """Replace messages that no version needs with tombstones."""
        self.inner.bury(self.sealing.seal_change(note), positions, family)

    def put(self, conversation: str, kind: str, name: str, value: bytes | None) -> None:
        """Store a record."""
        self.keep(conversation, [(kind, name, value)])

    def keep(
        self, conversation: str, records: Sequence[Record], *, token: int | None = None
    ) -> None:
        """Store or remove several records."""
        check_records(records)
        sealed = [self.sealing.seal_record(conversation, record) for record in records]
        self.inner.keep(conversation, sealed, token=token)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def head(self, conversation: str) -> Head:
        """Return a conversation's head."""
        return self._head(self.inner.head(conversation))

    def listing(
        self,
        *,
        after: str | None,
        limit: int,
        tag: str | None,
        owner: str | None = None,
        without: Sequence[str] = (),
    ) -> Listing:
        """Return a page of conversations."""
        page = self.inner.listing(after=after, limit=limit, tag=tag, owner=owner, without=without)
        return replace(page, conversations=tuple(map(self._head, page.conversations)))

    def forks(self, conversation: str) -> list[Head]:
        """Return the heads of the conversations that were forked from this one."""
        return [self._head(head) for head in self.inner.forks(conversation)]

    def _forks_of(self, conversations: Sequence[str]) -> dict[str, list[Head]]:
        inner: Any = self.inner  # it has `forks_of`, or this is not called
        found: dict[str, list[Head]] = inner.forks_of(conversations)
        return {name: [self._head(head) for head in heads] for name, heads in found.items()}

    def _read_whole(self, conversations: Sequence[str]) -> dict[str, StoredConversation]:
        inner: Any = self.inner  # it has `read_whole`, or this is not called
        found: dict[str, StoredConversation] = inner.read_whole(conversations)
        return {name: self._whole(stored) for name, stored in found.items()}

    def _whole(self, stored: StoredConversation) -> StoredConversation:
        value, of = self.sealing.value, stored.head.id
        return replace(
            stored,
            head=self._head(stored.head),
            journal=[self._entry(entry) for entry in stored.journal],
            frames=[self._frame(frame) for frame in stored.frames],
            records=[(kind, n, value(of, kind, n, data)) for kind, n, data in stored.records],
        )

    def _begin_work(
        self, conversation: str, holder: str, seconds: float, kinds: Sequence[str]
    ) -> Work:
        inner: Any = self.inner  # it has `begin_work`, or this is not called
        work: Work = inner.begin_work(conversation, holder, seconds, kinds)
        value = self.sealing.value
        records = {
            kind: {name: value(conversation, kind, name, data) for name, data in found.items()}
            for kind, found in work.records.items()
        }
        return replace(work, head=self._head(work.head), records=records)

    def _open(self, conversation: str, last: int) -> Opened:
        inner: Any = self.inner  # it has `open`, or this is not called
        opened: Opened = inner.open(conversation, last)
        merged = {
            name: self.sealing.value(conversation, MERGED_POSITIONS, name, value)
            for name, value in opened.merged.items()
        }
        frames = [self._frame(frame) for frame in opened.frames]
        return replace(opened, head=self._head(opened.head), frames=frames, merged=merged)

    def frames(self, conversation: str, after: int, upto: int) -> list[StoredFrame]:
        """Return the frames after one version and up to another."""
        return [self._frame(frame) for frame in self.inner.frames(conversation, after, upto)]

    def ancestor_frames(
        self, conversation: str, wanted: Sequence[tuple[int, int, int]]
    ) -> list[tuple[int, int, bytes]]:
        """Return frames of a conversation's ancestors."""
        return [
            (generation, version, self.sealing.open(data, "frame", version))
            for generation, version, data in self.inner.ancestor_frames(conversation, wanted)
        ]

    def search(
        self, words: str, conversation: str | None, limit: int, *, owner: str | None = None
    ) -> list[Hit]:
        """Refuse: there is no index."""
        del words, conversation, limit, owner
        raise EncryptionError(SEARCH_IS_OFF)

    def journal(self, conversation: str | None, after: int, limit: int) -> list[JournalEntry]:
        """Return the changes after a version or a cursor."""
        return [self._entry(entry) for entry in self.inner.journal(conversation, after, limit)]

    def _entry(self, entry: JournalEntry) -> JournalEntry:
        if not entry.data:
            return entry
        data = self.sealing.open_data(entry.data, entry.conversation, entry.kind, entry.at)
        return replace(entry, data=data)

    def records(
        self,
        conversation: str,
        kind: str,
        *,
        since: str = "",
        until: str | None = None,
        last: int | None = None,
    ) -> dict[str, bytes]:
        """Return the records of a kind."""
        found = self.inner.records(conversation, kind, since=since, until=until, last=last)
        open_value = self.sealing.value
        return {name: open_value(conversation, kind, name, data) for name, data in found.items()}

    def _frame(self, frame: StoredFrame) -> StoredFrame:
        return StoredFrame(frame.version, self.sealing.open(frame.data, "frame", frame.version))

    def _head(self, head: Head) -> Head:
        """Return a head with its title decrypted, and remember both forms for a fork."""
        if head.title is None:
            return head
        title = self.sealing.open_title(head.title)
        if len(self._titles) >= _LISTED:
            self._titles.clear()
        self._titles[head.id] = title, head.title
        return replace(head, title=title)

    def _sealed_head(self, head: Head) -> Head:
        return replace(head, title=self.sealing.seal_title(head.title))


# ── switching on, rotation, and back to plain ───────────────────────────────────────────────────


def encrypt_all(
    backend: EncryptedBackend, progress: Callable[[int, int | None], object] | None = None
) -> int:
    """Bring everything that is stored to the backend's first key, and return how many rows.

    Rows are rewritten in small transactions, each only if it is still what was read. All of them
    can be read in between, with these keys; after an interruption, another run does the rest.
    """
    backend.inner.rows.set_encrypted(True)
    count = _rewrite_all(backend.inner, _Rewriter(backend.sealing, backend.sealing), progress)
    backend.inner.rows.destroy_leftovers()
    return count


def decrypt_all(
    inner: EncryptableBackend,
    ciphers: Sequence[Cipher],
    progress: Callable[[int, int | None], object] | None = None,
) -> int:
    """Bring everything that is stored back to plain text, and switch the search on again."""
    count = _rewrite_all(inner, _Rewriter(_Sealing(ciphers), None), progress)
    inner.rows.set_encrypted(False)
    inner.codec = BodyCodec()
    return count


def _rewrite_all(
    inner: EncryptableBackend,
    rewriter: _Rewriter,
    progress: Callable[[int, int | None], object] | None,
) -> int:
    """Rewrite every conversation, also those that were created or moved in the list meanwhile."""
    done: set[str] = set()
    count = 0
    while waiting := [name for name in _names(inner) if name not in done]:
        for name in waiting:
            with suppress(UnknownConversation):  # it was deleted meanwhile
                count += rewriter.rewrite(inner, name)
            done.add(name)
            if progress is not None:
                progress(len(done), None)
    return count


def _names(inner: Backend) -> Iterator[str]:
    after: str | None = None
    while True:
        page = inner.listing(after=after, limit=_LISTED, tag=None)
        yield from (head.id for head in page.conversations)
        after = page.next
        if after is None:
            return


class _Rewriter:
    """Decrypts with one set of keys, and encrypts with the first of another, or with none."""

    def __init__(self, source: _Sealing, target: _Sealing | None) -> None:
        self._source = source
        self._target = target

    def rewrite(self, inner: EncryptableBackend, name: str) -> int:
        """Rewrite a conversation's own rows, and return how many."""
        head = inner.head(name)
        count = 0

        def replace_rows(query: str, rows: Iterable[dict[str, Any] | None]) -> None:
            nonlocal count
            changed = [row for row in rows if row is not None]
            if changed:
                inner.rows.replace(query, name, changed)
                count += len(changed)

        for start in range(head.base, head.length, _PAGE):
            rows = inner.rows.read("hashes", name, start, min(start + _PAGE, head.length))
            replace_rows("hashes", [self._message(inner, row) for row in rows])
        version = -1
        while rows := inner.rows.read("journal_hashes", name, version, _PAGE):
            replace_rows("journal_hashes", [self._change(inner, name, row) for row in rows])
            version = rows[-1][4]
        records = inner.rows.read("record_hashes", name)
        for start in range(0, len(records), _PAGE):
            some = records[start : start + _PAGE]
            replace_rows("record_hashes", [self._record(inner, name, row) for row in some])
        if self._title(head.title) != head.title:
            inner.rows.retitle(name, self._title)
            count += 1
        return count

    def _bytes(self, data: bytes, *bound: object) -> bytes | None:
        """Return the new form of what is stored, None if that is the one it has."""
        if self._target is None:
            return self._source.open(data, *bound) if is_sealed(data) else None
        if self._target.is_current(data):
            return None
        return self._target.seal(self._source.open(data, *bound), *bound)

    def _message(self, inner: EncryptableBackend, row: tuple[Any, ...]) -> dict[str, Any] | None:
        mark, body, *_, columns = *row[:2], row[9:]
        is_plain = not body.startswith(SEALED)
        if self._target is None:
            if is_plain:
                return None
            new = encode_body(self._source.message(body))
        else:
            if not is_plain and self._target.is_current(read_sealed(body).sealed):
                return None
            new = encode(self._target.seal_message(self._source.message(body))).decode()
        hashed = inner.rows.hash("hashes", new.encode(), columns)
        return {"seq": columns[1], "old": mark, "body": new, "hash": hashed}

    def _change(
        self, inner: EncryptableBackend, name: str, row: tuple[Any, ...]
    ) -> dict[str, Any] | None:
        _, mark, frame, *columns = row
        _, version, kind, at, *_, data, _ = columns
        new_frame = None if frame is None else self._bytes(frame, "frame", version)
        new_data = None if data is None else self._data(data, name, kind, at)
        if new_frame is None and new_data is None:
            return None
        frame, columns[-2] = new_frame or frame, new_data or data
        hashed = inner.rows.hash("journal_hashes", frame or b"", columns)
        return {"version": version, "old": mark, "frame": frame, "data": columns[-2],
                "hash": hashed}  # fmt: skip

    def _data(self, text: str, *change: object) -> str | None:
        data = json.loads(text)
        stored = _from_base64(data[_DATA]) if _DATA in data else text.encode()
        new = self._bytes(stored, "change", *change)
        if new is None or self._target is None:
            return None if new is None else new.decode()
        return json.dumps({_DATA: b64encode(new).decode()})

    def _record(
        self, inner: EncryptableBackend, name: str, row: tuple[Any, ...]
    ) -> dict[str, Any] | None:
        _, mark, value, *columns = row
        _, kind, called = columns
        new = self._bytes(value, "record", name, kind, called)
        if new is None:
            return None
        hashed = inner.rows.hash("record_hashes", new, columns)
        return {"kind": kind, "name": called, "old": mark, "value": new, "hash": hashed}

    def _title(self, title: str | None) -> str | None:
        if title is None:
            return None
        is_plain = not title.startswith(_TITLE)
        stored = title.encode() if is_plain else _from_base64(title.removeprefix(_TITLE))
        new = self._bytes(stored, "title")
        if new is None:
            return title
        return new.decode() if self._target is None else _TITLE + b64encode(new).decode()
