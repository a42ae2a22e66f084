"""A store: conversations that last. Open one with `palaver.open`.

    store = palaver.open("chat.db")
    history = store.create([user("hello")], title="A talk")
    …
    history = store.get(history.id)

A store returns histories like any other; each change is committed before it returns. Everything
outside `palaver.stores` goes through `Store` and `StoredHistory`, not through the backend.
"""

from __future__ import annotations

import os
import re
import time
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, cast

from msgspec.structs import replace

from palaver.errors import Stale, StoreError, UnknownConversation, ValidationError
from palaver.history.frame import Frame, check_expected
from palaver.history.log import packed_count
from palaver.history.operations import read_messages
from palaver.messages import new_id
from palaver.messages.ids import now_ms
from palaver.messages.limits import (
    MAX_NAME,
    check_argument,
    check_callable,
    check_name,
    check_number,
    describe_argument,
    is_text,
    not_pickled,
)
from palaver.stores.backend import check_creation_key, create_once
from palaver.stores.encryption import EncryptedBackend, as_ciphers, decrypt_all, encrypt_all
from palaver.stores.frame_codec import FrameCodec
from palaver.stores.prune import Pruned, prune
from palaver.stores.records import (
    Change,
    Head,
    Hit,
    JournalEntry,
    Listing,
    StoreReport,
    Work,
    check_known,
    check_owner,
    check_tags,
    check_title,
    check_words,
)
from palaver.stores.stored_history import StoredHistory
from palaver.stores.twins import in_thread
from palaver.stores.verify import find_problems

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta
    from types import TracebackType

    from palaver.history import View
    from palaver.history.frame import Expected
    from palaver.messages import Message
    from palaver.stores.backend import Backend
    from palaver.stores.encryption import Cipher, EncryptableBackend
    from palaver.stores.records import Lease, Record
    from palaver.stores.retention import Expired, OwnerErased

__all__ = ["Store", "before_close", "check_store"]

_PAGE = 500
_WAIT = 0.25  # seconds between two looks at the journal
_LONGEST = 31_536_000  # seconds of a lease: a year
_KINDS: Final[dict[str, Literal["memory", "sqlite", "postgres"]]] = {
    "MemoryBackend": "memory",
    "SQLiteBackend": "sqlite",
    "PostgresBackend": "postgres",
}
_FILE = re.compile(r"[\w./\\~ :-]*")
_CURSOR = re.compile(r"\d{1,16}:.", re.DOTALL)

before_close: Final[list[Callable[[Store], object]]] = []
"""What gives back what it has taken in a store, such as leases, before that is closed."""


def _check_lease(conversation: str, holder: str, seconds: float) -> None:
    check_known(conversation)
    check_name(holder, "$.holder")
    if not 0 <= seconds <= _LONGEST:
        detail = f"a lease of {seconds} seconds: from 0 to {_LONGEST:,} are allowed"
        raise ValidationError(detail, path="$.seconds", rule="lease-seconds")


def check_store(value: object) -> None:
    """Raise `ValidationError` unless the value is a store; say how to open one."""
    if isinstance(value, str | os.PathLike):
        name = os.fsdecode(value)
        # an address may have a password in it, and is not shown
        shown = "…" if len(name) > MAX_NAME or not _FILE.fullmatch(name) else repr(name)
        detail = f"must be a Store, not the address of one; write palaver.open({shown})"
        raise ValidationError(detail, path="$.store", rule="argument")
    check_argument(value, Store, "$.store", "a Store", "palaver.open('chat.db') opens one")


def check_history_of(store: Store | str | os.PathLike[str], history: StoredHistory) -> None:
    """Raise `ValidationError` for a history of another store: its leases would be in this one."""
    backend = store.backend if isinstance(store, Store) else None
    if history._backend is not backend:  # noqa: SLF001 - of the same package
        detail = "is of another store; give its own store, or the id of one of this store"
        raise ValidationError(detail, path="$.conversation", rule="argument")


class Store:
    """Conversations in a backend.

    >>> import palaver
    >>> from palaver.messages import user
    >>> with palaver.open(":memory:") as store:
    ...     history = store.create([user("hello")], title="A talk")
    ...     store.get(history.id)[0].text
    'hello'
    """

    def __init__(self, backend: Backend, *, clock: Callable[[], int] = now_ms) -> None:
        """Use a backend: memory, SQLite, PostgreSQL or one of your own."""
        if not callable(getattr(backend, "commit", None)) or isinstance(backend, type):
            shown = "text" if isinstance(backend, str) else describe_argument(backend)
            detail = f"must be a Backend, not {shown}; palaver.open opens a store by its address"
            raise ValidationError(detail, path="$.backend", rule="argument")
        check_callable(clock, "$.clock", "a function that returns milliseconds")
        self.backend = backend
        self._clock = clock

    __reduce_ex__ = not_pickled("open it again by its address, in each process by itself")

    def __repr__(self) -> str:
        """Return the kind of the backend: an address may have a password in it."""
        return f"<Store: {self.kind}>"

    def __enter__(self) -> Self:
        """Return the store; it is closed at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the store."""
        self.close()

    async def __aenter__(self) -> Self:
        """Return the store; it is closed at the end of the block."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the store."""
        await self.aclose()

    def close(self) -> None:
        """Close files and connections. Every change that was made is on disk already."""
        for work in before_close:
            work(self)
        self.backend.close()

    @property
    def kind(self) -> Literal["memory", "sqlite", "postgres", "other"]:
        """The kind of the backend."""
        backend = getattr(self.backend, "inner", self.backend)  # behind one that encrypts
        return _KINDS.get(type(backend).__name__, "other")

    @property
    def migrated(self) -> tuple[int, int]:
        """The schema's version when the store was opened, and the version it has now."""
        return self.backend.migrated

    def examine(self) -> StoreReport:
        """Return what the store runs on: the server, the nodes of its cluster, what is missing.

        >>> import palaver
        >>> palaver.open(":memory:").examine().server
        'memory'
        """
        look: Callable[[], StoreReport] | None = getattr(self.backend, "examine", None)
        report = StoreReport(self.kind, self.migrated[1]) if look is None else look()
        return replace(report, encrypted=getattr(self.backend, "encrypted", False))

    def distribute(self) -> None:
        """Bring a store in PostgreSQL to all nodes of a cluster, if that server has Citus.

        A store that is made there is distributed from the beginning. Nobody can use it meanwhile,
        and processes that have it open have to open it again.
        """
        bring: Callable[[], None] | None = getattr(self.backend, "distribute", None)
        if bring is None:
            msg = f"a store of the kind {self.kind} can't be distributed; one in PostgreSQL can"
            raise StoreError(msg)
        bring()

    def secure_rows(self, *, on: bool = True) -> None:
        """Turn row security by owner on or off, in a store in PostgreSQL; off is the default.

        A store that is then opened with an owner, `palaver.open(url, owner="anna")`, sees and
        changes nothing of others. Processes that have it open have to open it again. The server
        enforces it for every role but superusers and those with BYPASSRLS: such a role is needed
        for this call, for migrations, and to work on the conversations of all owners.
        """
        secure: Callable[..., None] | None = getattr(self.backend, "secure_rows", None)
        if secure is None:
            msg = f"a store of the kind {self.kind} has no row security; one in PostgreSQL has"
            raise StoreError(msg)
        secure(on=on)

    # ── encryption ──────────────────────────────────────────────────────────────────────────────

    @property
    def encrypted(self) -> bool:
        """Whether what conversations say is encrypted where it is stored."""
        return bool(getattr(self.backend, "encrypted", False))

    def encrypt(
        self,
        key: Cipher | Sequence[Cipher] | None = None,
        *,
        progress: Callable[[int, int | None], object] | None = None,
    ) -> int:
        """Encrypt everything that is stored with a key, and return how many rows were rewritten.

        It switches encryption on, or rotates to another key: of several keys the first encrypts,
        and every one decrypts, and so do those that the store was opened with, which are the
        default. Rows are rewritten in small transactions, while others with these keys read and
        write; after an interruption, call it again. A search is off afterwards. `progress` is
        called with how many conversations are done. Histories that were open have to be got again.

        >>> import palaver, tempfile
        >>> with tempfile.TemporaryDirectory() as folder, palaver.open(f"{folder}/c.db") as store:
        ...     _ = store.create([palaver.user("tea?")])
        ...     store.encrypt(palaver.Key.generate()), store.encrypted
        (2, True)
        """
        inner, known = self._encryptable()
        ciphers = as_ciphers(known if key is None else (*as_ciphers(key), *known))
        backend = EncryptedBackend(inner, ciphers)
        self.backend = cast("Backend", backend)  # from here on: also if the rest fails
        return encrypt_all(backend, progress)

    def decrypt(self, *, progress: Callable[[int, int | None], object] | None = None) -> int:
        """Bring everything back to plain text, and return how many rows were rewritten.

        The store must be open with its keys, and nobody else may write to it meanwhile. The search
        is on again afterwards.
        """
        inner, known = self._encryptable()
        count = decrypt_all(inner, known, progress)
        self.backend = inner
        return count

    def _encryptable(self) -> tuple[EncryptableBackend, tuple[Cipher, ...]]:
        """Return the backend that stores, and the keys that the store was opened with."""
        inner: Any = getattr(self.backend, "inner", self.backend)
        if getattr(inner, "owner", None) is not None:
            msg = "a store that was opened for an owner can't be encrypted or decrypted for all"
            raise StoreError(msg)
        if not hasattr(inner, "rows"):
            msg = f"a store of the kind {self.kind} can't be encrypted; SQLite or PostgreSQL can"
            raise StoreError(msg)
        return inner, getattr(getattr(self.backend, "sealing", None), "ciphers", ())

    def with_clock(self, clock: Callable[[], int]) -> Store:
        """Return the same store with another clock, which returns the time in milliseconds."""
        return Store(self.backend, clock=clock)

    # ── conversations ───────────────────────────────────────────────────────────────────────────

    def create(
        self,
        messages: Iterable[Message | Mapping[str, Any]] = (),
        *,
        id: str | None = None,  # noqa: A002 - the word for it
        title: str | None = None,
        tags: Iterable[str] = (),
        owner: str | None = None,
        key: str | None = None,
        records: Iterable[Record] = (),
    ) -> StoredHistory:
        """Create a conversation, with some messages or none.

        `owner` is whom it belongs to, as your program names its users: listings and searches can
        be limited to an owner, and everything of one can be exported and erased.
        `records` are stored beside the log in the same change. An id that is taken is an error
        (`AlreadyExists`). With an `id` and a `key`, creating it again, after an answer that was
        lost, returns the conversation that was created.
        """
        check_creation_key(id, key)
        new = read_messages(messages)
        name = new_id() if id is None else id
        check_name(name, "$.id")
        counts = sum(map(packed_count, new))
        now = self._clock()
        frame = Frame(logged=len(new))
        head = Head(
            id=name, version=0, stop=len(new), length=len(new), counts=counts, framed=0,
            size=len(new), title=check_title(title), tags=check_tags(tags), created=now,
            updated=now, owner=check_owner(owner) or getattr(self.backend, "owner", None),
        )  # fmt: skip
        first = Change(
            conversation=name, after=-1, kind="create", at=now, stop=len(new), size=len(new),
            messages=new, frame=FrameCodec().encode(frame, 0), key=key, records=tuple(records),
        )  # fmt: skip
        made = create_once(self.backend, head, first)
        return StoredHistory(self.backend, name, clock=self._clock, opened=made)

    def get(self, conversation: str, *, last: int = 0) -> StoredHistory:
        """Return a conversation as it is now; `UnknownConversation` if it does not exist.

        Messages are read when they are needed. The `last` so many are read at once with the rest:
        where the store is on another machine, that is one round trip instead of two.

        >>> import palaver
        >>> store = palaver.open(":memory:")
        >>> _ = store.create([palaver.user("one"), palaver.user("two")], id="talk")
        >>> [message.text for message in store.get("talk", last=20)[-20:]]
        ['one', 'two']
        """
        check_number(last, "$.last", least=0, whole=True)
        return StoredHistory(self.backend, conversation, clock=self._clock, last=last)

    def head(self, conversation: str) -> Head:
        """Return a conversation's head; `UnknownConversation` if it does not exist."""
        return self.backend.head(conversation)

    def __contains__(self, conversation: object) -> bool:
        """Tell whether there is a conversation with an id."""
        try:
            check_known(str(conversation))
            self.backend.head(str(conversation))
        except UnknownConversation:
            return False
        return True

    def list(
        self,
        *,
        after: str | None = None,
        limit: int = 50,
        tag: str | None = None,
        owner: str | None = None,
        without: Iterable[str] = (),
    ) -> Listing:
        """Return a page of conversations, the last changed first; `after` is a page's `next`.

        `tag` and `owner` limit it to the conversations with a tag, and to those of an owner;
        `without` leaves out those with any of some tags.

        >>> import palaver
        >>> store = palaver.open(":memory:")
        >>> _ = store.create(id="tea", owner="anna"), store.create(id="rum", owner="jim")
        >>> [head.id for head in store.list(owner="anna").conversations]
        ['tea']
        """
        check_number(limit, "$.limit", least=1, whole=True)
        if after is not None and not (is_text(after) and _CURSOR.match(after)):
            raise ValidationError("must be the `next` of a page", path="$.after")
        check_argument(tag, (str, NoneType), "$.tag", "text")
        check_owner(owner)
        without = check_tags(without, "$.without")
        if tag is not None and not is_text(tag):
            return Listing((), None)
        return self.backend.listing(after=after, limit=limit, tag=tag, owner=owner, without=without)

    def named(self, beginning: str, *, limit: int = 20) -> builtins.list[str]:
        """Return the ids that begin with a text, in order, at most `limit` of them.

        >>> import palaver
        >>> store = palaver.open(":memory:")
        >>> _ = store.create(id="tea-1"), store.create(id="tea-2"), store.create(id="rum")
        >>> store.named("tea")
        ['tea-1', 'tea-2']
        """
        return self.backend.named(beginning, limit) if is_text(beginning) else []

    def __iter__(self) -> Iterator[Head]:
        """Iterate over the heads of all conversations, the last changed first."""
        return self.each()

    def each(
        self, *, tag: str | None = None, owner: str | None = None, without: Iterable[str] = ()
    ) -> Iterator[Head]:
        """Iterate over the heads of all conversations, of those with a tag, or of an owner.

        `without` leaves out those with any of some tags.

        >>> import palaver
        >>> store = palaver.open(":memory:")
        >>> _ = store.create(id="tea", owner="anna"), store.create(id="rum")
        >>> [head.id for head in store.each(owner="anna")]
        ['tea']
        """
        without = check_tags(without, "$.without")
        page = self.list(limit=_PAGE, tag=tag, owner=owner, without=without)
        yield from page.conversations
        while page.next is not None:
            page = self.list(after=page.next, limit=_PAGE, tag=tag, owner=owner, without=without)
            yield from page.conversations

    def describe(
        self,
        conversation: str,
        *,
        title: str | None = None,
        tags: Iterable[str] = (),
        expect: Expected | None = None,
    ) -> None:
        """Set a conversation's title and tags.

        `expect` is the version that must be the newest; `VersionMismatch` if it is not. Title and
        tags are not part of a version: changing them makes no new one.
        """
        title, tags = check_title(title), check_tags(tags)
        self._conditional(
            conversation,
            expect,
            lambda after: self.backend.describe(conversation, title, tags, after=after),
        )

    def set_owner(
        self, conversation: str, owner: str | None, *, expect: Expected | None = None
    ) -> None:
        """Give a conversation to another owner, or to none. Forks of it keep theirs.

        `expect` is as in `describe`; changing the owner makes no version either.

        >>> import palaver
        >>> store = palaver.open(":memory:")
        >>> history = store.create(owner="anna")
        >>> store.set_owner(history.id, "jim")
        >>> store.head(history.id).owner
        'jim'
        """
        owner = check_owner(owner)
        self._conditional(
            conversation,
            expect,
            lambda after: self.backend.set_owner(conversation, owner, after=after),
        )

    def delete(self, conversation: str, *, expect: Expected | None = None) -> None:
        """Delete a conversation and everything in it, if nothing was forked from it.

        `expect` is the version that must be the newest; `VersionMismatch` if it is not.
        """
        self._conditional(
            conversation, expect, lambda after: self.backend.delete(conversation, after=after)
        )

    def _conditional(
        self, conversation: str, expect: Expected | None, change: Callable[[int | None], None]
    ) -> None:
        """Make a change that makes no version, if the newest version is expected."""
        check_known(conversation)
        if expect is None:
            change(None)
            return
        while True:
            version = self.backend.head(conversation).version
            check_expected(expect, version)
            try:
                change(version)
            except Stale:
                continue  # another writer committed meanwhile: check again
            return

    def prune(
        self,
        conversation: str,
        *,
        undo: int = 0,
        dry_run: bool = False,
        expect: Expected | None = None,
    ) -> Pruned:
        """Remove the content of messages that only abandoned versions have.

        Those are messages that were undone, or rolled back and left behind. The view, its batches
        and its marks stay, and so does everything that a fork shares. `undo` is how many steps of
        undo and redo stay complete; `dry_run` only returns what would be removed. `expect` is the
        version that must be the newest; `VersionMismatch` if it is not. It cannot be undone.

        >>> import palaver
        >>> store = palaver.open(":memory:")
        >>> history = store.create([palaver.user("one")])
        >>> _ = history.append(palaver.user("two")), history.undo()
        >>> len(store.prune(history.id, undo=1, dry_run=True).messages)
        0
        >>> len(store.prune(history.id).messages)
        1
        """
        check_known(conversation)
        at = self._clock()
        return prune(self.backend, conversation, undo=undo, dry_run=dry_run, at=at, expect=expect)

    # ── retention ───────────────────────────────────────────────────────────────────────────────

    def expire(
        self,
        older_than: timedelta,
        *,
        owner: str | None = None,
        tag: str | None = None,
        archive: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
        progress: Callable[[int, int | None], object] | None = None,
    ) -> Expired:
        """Delete conversations whose last change is older: all, of an owner, or with a tag.

        They go in small transactions, so that others can write meanwhile. With an `archive`, a
        file (`.jsonl`, `.jsonl.gz` or `.jsonl.zst`), each is written there and synced to disk
        before it is deleted. After a kill, the same call goes on: the archive never has a
        conversation twice, or half of it, and `import_archive` brings them back. A conversation
        that a younger fork reads from stays. `dry_run` only counts. `progress` is called with how
        many are gone.

        >>> import palaver
        >>> from datetime import timedelta
        >>> store = palaver.open(":memory:").with_clock(lambda: 1_000_000_000_000)
        >>> _ = store.create([palaver.user("old")])
        >>> later = store.with_clock(lambda: 1_100_000_000_000)
        >>> later.expire(timedelta(days=90), dry_run=True).conversations
        1
        """
        from palaver.stores import retention  # noqa: PLC0415 - loaded on demand

        return retention.expire(
            self, older_than, self._clock(), owner=owner, tag=tag, archive=archive,
            dry_run=dry_run, progress=progress,
        )  # fmt: skip

    def erase_owner(
        self, owner: str, *, progress: Callable[[int, int | None], object] | None = None
    ) -> OwnerErased:
        """Erase everything of an owner, also in what others forked from it; return a receipt.

        Conversations of the owner are deleted. Where another's was forked from one, its messages
        are erased for all of them, as `StoredHistory.erase` does, and what stays of it is empty and
        belongs to nobody. `check_receipt` checks later that nothing came back. It can't be undone;
        if it is interrupted, call it again.

        >>> import palaver
        >>> store = palaver.open(":memory:")
        >>> mine = store.create([palaver.user("a secret")], id="mine", owner="anna")
        >>> other = mine.fork(id="other", owner="jim")
        >>> receipt = store.erase_owner("anna")
        >>> receipt.shells, store.get("other")[0].text, list(store.check_receipt(receipt))
        (('mine',), '', [])
        """
        from palaver.stores import retention  # noqa: PLC0415 - the same

        return retention.erase_owner(self, owner, self._clock(), progress)

    def check_receipt(self, receipt: OwnerErased) -> Iterator[str]:
        """Yield, as text, what is there though a receipt of `erase_owner` says it is gone."""
        from palaver.stores import retention  # noqa: PLC0415 - the same

        return retention.check_receipt(self, receipt)

    # ── finding ─────────────────────────────────────────────────────────────────────────────────

    def search(
        self,
        words: str,
        *,
        conversation: str | None = None,
        limit: int = 20,
        owner: str | None = None,
    ) -> builtins.list[Hit]:
        """Return the messages with all these words ("in quotes": one after the other).

        Messages that are no longer in their conversation are found too; `Hit.in_view` tells them
        apart. With an `owner`, only messages are found that were written in conversations of that
        owner: not those that a fork has from another's. The first 100,000 characters of a message
        are searched, and words are compared by their first 200. More than 256 different words are
        refused with `ValidationError`.

        >>> import palaver
        >>> store = palaver.open(":memory:")
        >>> history = store.create([palaver.user("Tea?")])
        >>> _ = history.clear()
        >>> [(hit.snippet, hit.in_view) for hit in store.search("tea")]
        [('Tea?', False)]
        """
        check_words(words)
        check_number(limit, "$.limit", whole=True)
        if conversation is not None:
            check_known(conversation)
        check_owner(owner)
        if conversation is not None and owner is not None:
            if self.backend.head(conversation).owner != owner:
                return []
            owner = None
        hits: list[Hit] = []
        views: dict[str, View] = {}
        for hit in self.backend.search(words, conversation, limit, owner=owner):
            name = hit.conversation
            try:
                if name not in views:
                    views[name] = self.get(name).view
            except UnknownConversation:  # deleted meanwhile
                continue
            hits.append(replace(hit, index=views[name].index_of(hit.position)))
        return hits

    def find_positions(self, conversation: str, message_id: str) -> builtins.list[int]:
        """Return the log positions of the messages with an id."""
        return self.backend.positions_of(conversation, message_id)

    def messages(self, conversation: str, start: int, stop: int) -> builtins.list[Message]:
        """Return the messages of a conversation's log from one position to before another."""
        return self.backend.messages(conversation, start, stop)

    def keys(self, conversation: str, after: int, upto: int) -> dict[int, str]:
        """Return the idempotency keys of changes after one version and up to another."""
        return self.backend.keys(conversation, after, upto)

    # ── forks ───────────────────────────────────────────────────────────────────────────────────

    def family(self, conversation: str) -> builtins.list[str]:
        """Return the ids of a conversation and of all that share its first ancestor."""
        return self.backend.family(conversation)

    def forks(self, conversation: str) -> builtins.list[Head]:
        """Return the heads of a conversation's forks, oldest first."""
        return self.backend.forks(conversation)

    def generation(self, conversation: str) -> int:
        """Return how many ancestors a conversation has: 0 for one that was not forked."""
        return self.backend.generation(conversation)

    # ── records beside the log ──────────────────────────────────────────────────────────────────

    def records(
        self,
        conversation: str,
        kind: str,
        *,
        since: str = "",
        until: str | None = None,
        last: int | None = None,
    ) -> dict[str, bytes]:
        """Return the records of a kind by name, in the order of the names' code points.

        `since` and `until` select the names from one to before another, `last` the last so many of
        these.
        """
        return self.backend.records(conversation, kind, since=since, until=until, last=last)

    def kinds(self, conversation: str) -> builtins.list[str]:
        """Return the kinds of records that a conversation has, in order."""
        return self.backend.kinds(conversation)

    def put_record(self, conversation: str, kind: str, name: str, value: bytes | None) -> None:
        """Store a record beside the log; None as the value removes it."""
        self.backend.put(conversation, kind, name, value)

    def put_records(
        self, conversation: str, records: Sequence[Record], *, token: int | None = None
    ) -> None:
        """Store or remove several records, all or none.

        With the `token` of a lease that another worker holds by now it is refused with `LeaseLost`.
        """
        self.backend.keep(conversation, records, token=token)

    # ── following ───────────────────────────────────────────────────────────────────────────────

    def follow(
        self,
        conversation: str | None = None,
        *,
        after: int | None = None,
        seconds: float | None = None,
    ) -> Iterator[JournalEntry]:
        """Yield every change in order, none missed and none twice, and wait for more.

        Follows one conversation from a version on, or the whole store from a cursor on: `after` is
        the last one seen. `seconds` ends the waiting when nothing has happened for so long.
        """
        if conversation is not None:
            check_known(conversation)
        start = self.newest(conversation) if after is None else after
        return self._follow(conversation, start, seconds)

    def _follow(
        self, conversation: str | None, after: int, seconds: float | None
    ) -> Iterator[JournalEntry]:
        last = time.monotonic()
        while True:
            changes = self.backend.journal(conversation, after, _PAGE)
            for change in changes:
                yield change
                after = change.cursor if conversation is None else change.version
            if changes:
                last = time.monotonic()
                continue
            left = _WAIT if seconds is None else last + seconds - time.monotonic()
            if left <= 0:
                return
            self.backend.wait(min(left, _WAIT))

    def newest(self, conversation: str | None = None) -> int:
        """Return the newest version of a conversation, or the cursor of the store's last change."""
        if conversation is not None:
            return self.backend.head(conversation).version
        return self.backend.newest()

    def journal(
        self, conversation: str | None, after: int, limit: int
    ) -> builtins.list[JournalEntry]:
        """Return the changes after a version (of a conversation) or a cursor (of the store)."""
        return self.backend.journal(conversation, after, limit)

    def wait(self, seconds: float) -> None:
        """Wait until something may have changed, and no longer than this."""
        self.backend.wait(seconds)

    # ── workers ─────────────────────────────────────────────────────────────────────────────────

    def lease(self, conversation: str, holder: str, *, seconds: float = 60) -> Lease:
        """Take or renew the right to take the next step; an earlier holder's writes are refused.

        The store's own clock measures the seconds (see `Lease`), so that machines whose clocks
        differ agree on who holds it. `LeaseTaken` while another holder has it.
        """
        _check_lease(conversation, holder, seconds)
        return self.backend.lease(conversation, holder, seconds)

    def begin_work(
        self, conversation: str, holder: str, kinds: Sequence[str], *, seconds: float = 60
    ) -> Work:
        """Take or renew the lease, then read all records of these kinds, then the head.

        It is what `lease`, `records` and `head` do, in as few round trips as the store can.
        """
        begin = getattr(self.backend, "begin_work", None)
        if begin is not None:
            _check_lease(conversation, holder, seconds)
            work: Work = begin(conversation, holder, seconds, kinds)
            return work
        lease = self.lease(conversation, holder, seconds=seconds)
        read = {kind: self.records(conversation, kind) for kind in kinds}
        return Work(lease, self.backend.head(conversation), read)

    def release(self, lease: Lease) -> None:
        """Give a lease back before it ends."""
        self.backend.release(lease)

    # ── proof ───────────────────────────────────────────────────────────────────────────────────

    def verify(
        self,
        conversation: str | None = None,
        *,
        progress: Callable[[int, int | None], object] | None = None,
    ) -> Iterator[str]:
        """Yield everything that is wrong with the store, as text; nothing if it is sound.

        `progress` is called with how many messages and versions have been checked, and of how many.
        """
        return find_problems(self, conversation, progress)

    def notes(self, conversation: str | None = None) -> Iterator[str]:
        """Yield what is worth knowing but not wrong, as text: messages that a search does not find.

        A search looks at the first 100,000 characters of a message, and a message that could not
        be read when the search index came to it is not in it.

        >>> import palaver
        >>> store = palaver.open(":memory:")
        >>> _ = store.create([palaver.user("tea " * 50_000)], id="long")
        >>> list(store.notes())
        ['long: message 0: only its first 100,000 characters are searched']
        """
        if conversation is not None:
            check_known(conversation)
        heads = self if conversation is None else [self.backend.head(conversation)]
        for head in heads:
            for position, reason in self.backend.unindexed(head.id):
                yield f"{head.id}: message {position}: {reason}"

    # ── async twins ─────────────────────────────────────────────────────────────────────────────

    aclose = in_thread(close)
    aencrypt = in_thread(encrypt)
    adecrypt = in_thread(decrypt)
    acreate = in_thread(create)
    aget = in_thread(get)
    ahead = in_thread(head)
    alist = in_thread(list)  # noqa: A003 - the method
    anamed = in_thread(named)
    adescribe = in_thread(describe)
    aset_owner = in_thread(set_owner)
    adelete = in_thread(delete)
    aprune = in_thread(prune)
    aexpire = in_thread(expire)
    aerase_owner = in_thread(erase_owner)
    asearch = in_thread(search)
    afind_positions = in_thread(find_positions)
    amessages = in_thread(messages)
    akeys = in_thread(keys)
    afamily = in_thread(family)
    aforks = in_thread(forks)
    ageneration = in_thread(generation)
    arecords = in_thread(records)
    akinds = in_thread(kinds)
    aput_record = in_thread(put_record)
    aput_records = in_thread(put_records)
    anewest = in_thread(newest)
    ajournal = in_thread(journal)
    alease = in_thread(lease)
    abegin_work = in_thread(begin_work)
    arelease = in_thread(release)
