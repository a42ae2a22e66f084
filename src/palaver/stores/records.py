"""The values that stores and backends exchange, the same for every backend.

A backend knows nothing of ropes and operations. It stores messages by conversation and position,
one journal entry for each change, and for each conversation a head: its newest version. The
functions encode what is stored (message bodies, packed counts, the positions of merged messages),
hash rows and check the hashes, check the arguments of a change, and read the clock of leases.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Meta, Struct

from palaver.errors import (
    EncryptionError,
    StoreDamaged,
    UnknownConversation,
    ValidationError,
)
from palaver.history.frame import MASK, SHIFTS
from palaver.messages import ROLES, Message, dump
from palaver.messages.codec import decode_message
from palaver.messages.decode import decoder_for
from palaver.messages.limits import (
    EMPTY,
    MAX_INT,
    check_name,
    check_text,
    describe_argument,
    is_text,
    kind_of,
    short_repr,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from palaver.messages import Role
    from palaver.stores.backend import Backend

_T = TypeVar("_T")

__all__ = [
    "ALLOWED",
    "APPROVAL",
    "ARCHIVED",
    "MAGIC",
    "MERGED_POSITIONS",
    "NO_REPLACEMENTS",
    "PERMISSIONS",
    "PINNED",
    "PRUNED",
    "ROLE_NUMBERS",
    "SEALED",
    "STATUS_TAGS",
    "TRASHED",
    "AlreadyCommitted",
    "BodyCodec",
    "Change",
    "Erased",
    "Head",
    "Hit",
    "JournalEntry",
    "LastChange",
    "Lease",
    "Listing",
    "NodeReport",
    "Placed",
    "Record",
    "SealedMessage",
    "Status",
    "StoreReport",
    "StoredConversation",
    "StoredFrame",
    "Work",
    "check_idempotency_key",
    "check_journal_rows",
    "check_known",
    "check_label",
    "check_message_rows",
    "check_owner",
    "check_records",
    "check_rows",
    "check_tags",
    "check_title",
    "check_words",
    "decode_body",
    "decode_record",
    "encode_body",
    "is_sealed",
    "label_hash",
    "pack_counts",
    "placed_hash",
    "pruned_message",
    "read_positions",
    "read_sealed",
    "refuse_sealed",
    "row_hash",
    "unpack_counts",
    "write_positions",
]


Record: TypeAlias = tuple[str, str, bytes | None]
"""A value stored beside the log: kind, name, value; None as the value removes it."""

NO_REPLACEMENTS: Final = cast("Mapping[int, int]", EMPTY)
"""No message replaces another."""


Status: TypeAlias = Literal["active", "archived", "trashed"]
"""Where a conversation is listed: among those in use, in the archive, or in the trash."""
PINNED: Final = "palaver.pinned"
ARCHIVED: Final = "palaver.archived"
TRASHED: Final = "palaver.trashed"
STATUS_TAGS: Final = frozenset({PINNED, ARCHIVED, TRASHED})
"""Tags of palaver's own: the status is stored as others are, so every store lists by it."""


class Head(Struct, frozen=True, gc=False):
    """The newest version of a conversation, and what is known about the conversation.

    `stop` is where the view's tail ends, `length` the number of messages in the log, `counts` their
    numbers by role (packed, see `palaver.history.frame`), `framed` the version of the frame in
    force. A fork reads the first `base` messages from its `parent`, as it was at version `origin`.
    `erased` counts the erasures: when it rises, messages that were read before may be gone.
    `owner` is whom the conversation belongs to, if it was said.
    """

    id: str
    version: int
    stop: int
    length: int
    counts: int
    framed: int
    size: int
    parent: str | None = None
    base: int = 0
    origin: int = 0
    title: str | None = None
    tags: tuple[str, ...] = ()
    created: int = 0
    updated: int = 0
    erased: int = 0
    owner: str | None = None

    @property
    def status(self) -> Status:
        """Whether it is in use, archived or in the trash."""
        return (
            "trashed" if TRASHED in self.tags else "archived" if ARCHIVED in self.tags else "active"
        )

    @property
    def pinned(self) -> bool:
        """Whether it comes first in lists for people."""
        return PINNED in self.tags

    @property
    def own_tags(self) -> tuple[str, ...]:
        """The tags without those that say its status and that it is pinned."""
        return tuple(tag for tag in self.tags if tag not in STATUS_TAGS)

    def with_status(
        self,
        status: Status | None = None,
        *,
        pinned: bool | None = None,
        own_tags: Iterable[str] | None = None,
    ) -> tuple[str, ...]:
        """The tags that give it another status, pin it, or change its own tags; None leaves it so.

        >>> Head("h", 0, 0, 0, 0, 0, 0, tags=("ops",)).with_status("archived")
        ('ops', 'palaver.archived')
        """
        mark = {"active": (), "archived": (ARCHIVED,), "trashed": (TRASHED,)}
        return (
            *(self.own_tags if own_tags is None else own_tags),
            *((PINNED,) if (self.pinned if pinned is None else pinned) else ()),
            *mark[self.status if status is None else status],
        )


class Change(Struct, frozen=True, gc=False):
    """One change of a conversation, to be committed as a whole or not at all.

    It applies to the version `after` and makes the next one; `first` and `counts` are the log's
    length and counts at that version. `frame` is set for every change except an append that
    continues the tail. `replaces` gives, by index, the positions that messages replace. `key` makes
    repeating it harmless; `token` is that of the lease it is made under; `records` are stored in
    the same step.

    A change that may stand `anywhere` is an append that follows whatever others committed first. A
    backend may take it as one that is made for `after`; or it commits it behind the others, if that
    continues the tail, and returns a `Placed` version.
    """

    conversation: str
    after: int
    kind: str
    at: int
    stop: int
    size: int
    first: int = 0
    counts: int = 0
    messages: tuple[Message, ...] = ()
    frame: bytes | None = None
    replaces: Mapping[int, int] = NO_REPLACEMENTS
    key: str | None = None
    token: int | None = None
    data: Mapping[str, Any] = EMPTY
    records: tuple[Record, ...] = ()
    anywhere: bool = False

    @property
    def plain(self) -> bool:
        """Whether it is an append that continues the tail, and nothing more."""
        return self.frame is None and self.kind == "append" and not self.data


class JournalEntry(Struct, frozen=True, gc=False):
    """A committed change, as followers see it.

    `cursor` is where the feed of the whole store goes on behind it. In the journal of one
    conversation it is 0 if the store is on several machines.
    """

    conversation: str
    version: int
    kind: str
    at: int
    first: int
    count: int
    data: Mapping[str, Any] = EMPTY
    cursor: int = 0


class StoredConversation(Struct, frozen=True):
    """A conversation that was read whole, without ancestors: what an export has.

    `stops` and `keys` are by version, `replaces` by position.
    """

    head: Head
    journal: list[JournalEntry]
    stops: dict[int, int]
    keys: dict[int, str]
    frames: list[StoredFrame]
    messages: list[Message]
    replaces: dict[int, int]
    records: list[tuple[str, str, bytes]]


class AlreadyCommitted(int):
    """The version of a change that was committed before under the same key."""

    __slots__ = ()


class Placed(int):
    """The version of an append that others came before, and where it stands.

    `first` is the position of its first message; `head` has the numbers of the conversation's head
    afterwards, and nothing else of it.

    >>> Placed(7, 12, Head("talk", 7, 13, 13, 13, 0, 13)) == 7
    True
    """

    first: int
    head: Head

    def __new__(cls, version: int, first: int, head: Head) -> Self:
        """Take the version, the position of the first message, and the head."""
        placed = super().__new__(cls, version)
        placed.first = first
        placed.head = head
        return placed


class Erased(Struct, frozen=True, gc=False):
    """The result of an erasure: the number of rows, and the records (conversation, kind, name)."""

    places: int
    records: tuple[tuple[str, str, str], ...] = ()


class StoredFrame(Struct, frozen=True, gc=False):
    """A frame in its stored form: the first version it is in force at, and its bytes."""

    version: int
    data: bytes


class Listing(Struct, frozen=True):
    """A page of conversations, and where the next page begins (None after the last)."""

    conversations: tuple[Head, ...]
    next: str | None


class Hit(Struct, frozen=True, gc=False):
    """A message that a search found.

    `position` is that in the log, `index` that in the conversation as it is now: None if the
    message is no longer in it, because it was edited away or compacted.
    """

    conversation: str
    position: int
    message: Message
    snippet: str
    index: int | None = None

    __repr__ = short_repr

    @property
    def in_view(self) -> bool:
        """Whether the message is in the conversation now."""
        return self.index is not None


class NodeReport(Struct, frozen=True, rename="camel"):
    """A node of a cluster: how it is reached, and how many shards of the store it has."""

    node: int
    address: str
    role: str
    shards: int
    answers: bool


class StoreReport(Struct, frozen=True, rename="camel"):
    """What a store runs on, and what is missing; see `Store.examine`."""

    server: str
    schema: int
    citus: str | None = None
    distributed: bool = False
    shards: int = 0
    nodes: tuple[NodeReport, ...] = ()
    missing: tuple[str, ...] = ()
    encrypted: bool = False
    pooler: bool = False  # in between; followers then look again and again


# ── messages as rows ────────────────────────────────────────────────────────────────────────────

ROLE_NUMBERS: Final[dict[Role, int]] = {role: number for number, role in enumerate(ROLES)}
_SYSTEM, _USER, _ASSISTANT, _TOOL = (SHIFTS[role] for role in ROLES)

PRUNED: Final = "palaver.pruned"
"""The metadata key of a message whose content was pruned: the time when it was done."""


def decode_record(value: bytes, kind: type[_T], what: str) -> _T:
    """Decode the value of a record; `what` it holds is said where it can't be read.

    A record may come from an import, so it is as trustworthy as the file was.

    >>> decode_record(b'{"a": 1}', dict[str, int], "the counts")
    {'a': 1}
    >>> decode_record(b"?", dict[str, int], "the counts")
    Traceback (most recent call last):
    palaver.errors.StoreDamaged: the counts can't be read: JSON is malformed: ...
    """
    try:
        return decoder_for(kind).decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise StoreDamaged(f"{what} can't be read: {error}") from None


def pruned_message(message: Message, at: int) -> Message:
    """Return what stays of a pruned message: its id, role and time."""
    return Message(
        message.role, "", id=message.id, timestamp=message.timestamp, metadata={PRUNED: at}
    )


def encode_body(message: Message) -> str:
    """Return a message as it is stored: canonical JSON."""
    return dump(message).decode()


def decode_body(body: str | None) -> Message:
    """Return the message of a stored body; `StoreDamaged` if it cannot be read.

    >>> decode_body(None)
    Traceback (most recent call last):
    palaver.errors.StoreDamaged: a message can't be read: its row is not there, or has no body
    """
    if body is None:
        msg = "a message can't be read: its row is not there, or has no body"
        raise StoreDamaged(msg)
    try:
        return decode_message(body)
    except ValidationError as error:
        refuse_sealed(body)
        msg = f"a message can't be read: {error}"
        raise StoreDamaged(msg) from error


SEALED: Final = '{"sealed":"'
"""What the body of an encrypted message begins with; no plain message does."""

MAGIC: Final = b"\x00palaver sealed\x01"
"""What encrypted bytes begin with; see `palaver.stores.encryption`."""


class SealedMessage(Struct, frozen=True, gc=False):
    """An encrypted message as it is stored: its ciphertext, and what stays readable of it."""

    sealed: bytes  # base64 in JSON
    role: str
    id: str
    timestamp: int


_sealed_decoder: Final = msgspec.json.Decoder(SealedMessage)


def read_sealed(body: str) -> SealedMessage:
    """Read the body of an encrypted message; `StoreDamaged` if it cannot be read."""
    try:
        return _sealed_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeError) as error:
        msg = f"an encrypted message can't be read: {error}"
        raise StoreDamaged(msg) from error


def is_sealed(data: bytes) -> bool:
    """Tell whether bytes were encrypted."""
    return data.startswith(MAGIC)


def refuse_sealed(data: str | bytes) -> None:
    """Raise `EncryptionError` for content that is encrypted, where it is read without a key."""
    if data.startswith(SEALED) if isinstance(data, str) else is_sealed(data):
        msg = (
            "the store was encrypted since it was opened; open it again with its key, as "
            "palaver.open(…, key=…)"
        )
        raise EncryptionError(msg)


class BodyCodec:
    """How a backend reads what it stored as plain text; that of an encrypted store decrypts."""

    def message(self, body: str | None) -> Message:
        """Return the message of a stored body."""
        return decode_body(body)

    def messages(self, bodies: Sequence[str]) -> list[Message]:
        """Return the messages of stored bodies."""
        return [self.message(body) for body in bodies]

    def join(self, bodies: Sequence[str]) -> str:
        """Return the messages of stored bodies as JSON, with commas in between, unchecked."""
        return ",".join(bodies)

    def value(self, conversation: str, kind: str, name: str, value: bytes) -> bytes:
        """Return the value of a record."""
        del conversation, kind, name
        return value


def pack_counts(position: int, system: int, user: int, assistant: int) -> int:
    """Return packed counts, from the three that a row has; the rest are tool messages."""
    try:
        tool = position - system - user - assistant
    except TypeError as error:  # only a damaged file has rows without
        msg = f"the counts at {position} can't be read"
        raise StoreDamaged(msg) from error
    return position | system << _SYSTEM | user << _USER | assistant << _ASSISTANT | tool << _TOOL


def unpack_counts(counts: int) -> tuple[int, int, int]:
    """Return the three counts that a row has: system, user, assistant."""
    return counts >> _SYSTEM & MASK, counts >> _USER & MASK, counts >> _ASSISTANT & MASK


# ── kinds of records ────────────────────────────────────────────────────────────────────────────

APPROVAL: Final = "approval"
"""The kind of record that holds what was decided about a tool call."""
ALLOWED: Final = "allowed"
"""The kind of record that holds who approved all calls of a tool, by the tool's name."""
PERMISSIONS: Final = frozenset((APPROVAL, ALLOWED))
"""The kinds of records that let calls run: they hold in the store in which a person gave them, and
no file brings them into another."""

# ── positions of merged messages ────────────────────────────────────────────────────────────────

MERGED_POSITIONS: Final = "names"
"""The kind of the records that merges write; their name is the id of the other conversation."""

_Position: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INT)]
_PAIRS: Final = list[tuple[_Position, _Position]]


def write_positions(pairs: Mapping[int, int]) -> bytes:
    """Return the record of a merge: positions in the other conversation and in this one."""
    return json.dumps(list(pairs.items())).encode()  # with blanks, as every version has written it


def read_positions(data: bytes) -> dict[int, int]:
    """Read such a record; `ValueError` if it cannot be read.

    >>> read_positions(write_positions({3: 7}))
    {3: 7}
    >>> read_positions(b"[[3]]")
    Traceback (most recent call last):
    ValueError: Expected `array` of length 2 - at `$[0]`
    """
    try:
        return dict(decoder_for(_PAIRS).decode(data))
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ValueError(str(error)) from None


def check_known(conversation: object) -> None:
    r"""Raise `UnknownConversation` for an id that no conversation can have.

    >>> check_known("a\0b")
    Traceback (most recent call last):
    palaver.errors.UnknownConversation: no conversation has the id 'a\x00b'
    """
    if not is_text(conversation):
        msg = f"no conversation has the id {describe_argument(conversation)}"
        raise UnknownConversation(msg)


def check_idempotency_key(key: object) -> None:
    """Refuse a key that cannot be stored: not text, empty, too long, unprintable; None is fine."""
    if key is not None:
        check_name(key, "$.key")


def check_title(title: str | None) -> str | None:
    """Return a title, or raise `ValidationError` if it cannot be stored."""
    if title is not None:
        check_text(title, "$.title")
    return title


def check_tags(tags: object, path: str = "$.tags") -> tuple[str, ...]:
    """Return tags, each once, or raise `ValidationError` if one cannot be stored."""
    if not isinstance(tags, Iterable) or isinstance(tags, str | bytes):
        raise ValidationError(f"must be a list of tags, not {describe_argument(tags)}", path=path)
    given: tuple[Any, ...] = tuple(tags)
    for index, tag in enumerate(given):
        check_name(tag, f"{path}[{index}]")
    return tuple(dict.fromkeys(given))


def check_owner(owner: str | None) -> str | None:
    """Return an owner, or raise `ValidationError` if it cannot be stored.

    >>> check_owner("anna")
    'anna'
    >>> check_owner("")
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.owner: must not be empty [schema]
    """
    if owner is not None:
        check_name(owner, "$.owner")
    return owner


def check_words(words: object) -> None:
    """Refuse a search that is not text."""
    if not isinstance(words, str):
        raise ValidationError(f"must be text, not {kind_of(words)}", path="$.words")


def check_records(records: Iterable[tuple[str, str, object]]) -> None:
    """Refuse records that cannot be stored beside the log."""
    for index, (kind, name, value) in enumerate(records):
        check_name(kind, f"$.records[{index}].kind")
        check_text(name, f"$.records[{index}].name")
        if value is not None and not isinstance(value, bytes):
            detail = f"must be bytes, not {kind_of(value)}"
            raise ValidationError(detail, path=f"$.records[{index}].value")


class Lease(Struct, frozen=True, gc=False):
    """The right to take a step, with a token that rises with every holder.

    `seconds` is how long it was given for, from the moment it was taken or renewed. `expires` is
    when that ends, in milliseconds on the store's own clock: the server's time on PostgreSQL, the
    machine's monotonic clock (`time.monotonic`) elsewhere. Compare it only with other leases of the
    same store, not with a wall clock.
    """

    conversation: str
    holder: str
    token: int
    expires: int
    seconds: float


class Work(Struct, frozen=True):
    """What work on a conversation begins with: lease, head, and records by kind and name."""

    lease: Lease
    head: Head
    records: dict[str, dict[str, bytes]]


class LastChange:
    """The last change under a lease, which is given back with it if the backend can do that."""

    def __init__(self, backend: Backend, lease: Lease | None) -> None:
        """Take the lease; None if it is kept."""
        self._backend = backend
        self._lease = lease
        self._released = False

    def commit(self, change: Change) -> int:
        """Commit the change."""
        both = getattr(self._backend, "commit_and_release", None)
        if self._lease is None or both is None:
            return self._backend.commit(change)
        version: int = both(change, self._lease)
        self._released = True
        return version

    def release(self) -> None:
        """Give the lease back, unless it was with the change."""
        if self._lease is not None and not self._released:
            self._backend.release(self._lease)


_HASH: Final = blake2b(digest_size=8)
"""The hash of nothing; a copy of it is made sooner than a new one."""


def row_hash(body: bytes, *columns: object) -> int:
    """Hash a row's body and some of its columns into a signed 64-bit number.

    >>> row_hash(b"hello", "talk", 3) == row_hash(b"hello", "talk", 4)
    False
    """
    hashed = _HASH.copy()
    hashed.update("\0".join([*map(str, columns), ""]).encode() + body)
    return int.from_bytes(hashed.digest(), "big", signed=True)


def label_hash(*columns: object) -> int:
    """Hash what is said of a conversation: id, parent, and so on, title, tags, and the owner.

    Without an owner the hash is the one that conversations had before they could have one.

    >>> label_hash("talk", "A title", None) == row_hash(b"", "talk", "A title")
    True
    """
    *others, owner = columns
    return row_hash(b"", *others) if owner is None else row_hash(b"", *others, owner)


def placed_hash(body: bytes, conversation: str, position: int, *columns: object) -> int:
    """Hash a message's row so that the position comes last: by a database, which does the XOR.

    >>> placed_hash(b"hello", "talk", 3) == row_hash(b"hello", "talk") ^ 3
    True
    """
    return row_hash(body, conversation, *columns) ^ position


def _hash_of_schema_1(position: int, body: bytes) -> int:
    mark = blake2b(body, digest_size=8, salt=position.to_bytes(16, "big"))
    return int.from_bytes(mark.digest(), "big", signed=True)


def check_message_rows(rows: Iterable[tuple[Any, ...]], start: int, stop: int) -> Iterator[str]:
    """Yield what is wrong with the rows of the messages from start to before stop.

    A row is its hash, its body, its role, ordinal, the three counts, its time and id; then the
    columns that the hash is over: the conversation, the position, and what else a store has there.
    """
    expected = start
    for mark, stored, role, ordinal, system, user, assistant, sent, name, *columns in rows:
        position: int = columns[1]
        if position != expected:
            yield f"message {expected} is missing"
        expected = position + 1
        body = stored.encode() if isinstance(stored, str) else stored
        counts = (system, user, assistant, position - system - user - assistant)
        hashes = row_hash(body, *columns), placed_hash(body, *columns)
        if mark not in (*hashes, _hash_of_schema_1(position, body)):
            yield f"message {position}: the row is not what was written"
        elif (role, sent, name) != _columns_of(body.decode()) or ordinal != counts[role]:
            yield f"message {position}: the row is not that of its message"
    if expected != stop:
        yield f"message {expected} is missing"


def _columns_of(text: str) -> tuple[int, int, str] | None:
    """Role, time and id as the body has them."""
    try:
        message = read_sealed(text) if text.startswith(SEALED) else decode_body(text)
    except StoreDamaged:
        return None
    role = cast("Role", message.role)
    return ROLE_NUMBERS[role], message.timestamp, message.id


def check_rows(
    rows: Iterable[tuple[Any, ...]], also: Callable[..., int] = row_hash
) -> Iterator[str]:
    """Yield what is wrong with other rows, each given as its name, hash, body and columns.

    `also` is another hash that rows may have.
    """
    for what, mark, body, *columns in rows:
        known = body or b""
        if mark not in (None, row_hash(known, *columns)) and mark != also(known, *columns):
            yield f"{what}: the row is not what was written"


def check_label(rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    """Yield what is wrong with what is said of a conversation: its hash, and the columns of it."""
    for mark, *columns in rows:
        if mark not in (None, label_hash(*columns)):
            yield "the head: the row is not what was written"


def check_journal_rows(
    read: Callable[[int], Sequence[tuple[Any, ...]]], also: Callable[..., int] = row_hash
) -> Iterator[str]:
    """Yield what is wrong with a journal; `read` returns a page of rows after a version."""
    version = -1
    while rows := read(version):
        yield from check_rows(rows, also)
        if rows[-1][4] <= version:  # a damaged index could lead here for ever
            yield f"what comes after version {version} of the journal can't be found"
            return
        version = rows[-1][4]
