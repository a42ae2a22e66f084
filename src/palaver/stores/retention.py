"""Retention: conversations expire by their age, and everything of an owner can be erased.

Expiring deletes conversations that nobody changed for long, in small transactions. With an archive
they are written there first: a part of the archive is on disk before its conversations are deleted,
and each is deleted only at the version that was archived. Whatever is killed in between, running it
again finds what the archive holds and goes on. A conversation that a younger fork reads from stays.

Others write meanwhile. So a transaction deletes as much as takes a few milliseconds, and the break
after it is several times as long. Where the store is busy, everything takes longer, and less is
done at once.

Erasing an owner deletes the conversations of that owner. Where another owner's conversation was
forked from one of them, its messages are erased in the whole family, with their summaries, and a
shell without content stays, since the fork reads its positions. The receipt says what has to be
gone, and `check_receipt` looks whether it is.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palaver.errors import Stale, UnknownConversation, ValidationError
from palaver.history.erase import ERASED, SUMMARY_OF
from palaver.messages.limits import check_argument, check_name
from palaver.stores.erase import positions_of_others
from palaver.stores.prune import make_note, read_versions
from palaver.stores.records import check_owner
from palaver.stores.transfer.archive import Archive, ArchiveReport

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from palaver.messages import Message
    from palaver.stores.backend import Backend
    from palaver.stores.records import Head
    from palaver.stores.store import Store

    Progress = Callable[[int, int | None], object]

__all__ = [
    "Expired",
    "OwnerErased",
    "check_receipt",
    "erase_owner",
    "expire",
    "read_receipt",
    "seal_receipt",
]

_PAGE: Final = 500
_PART: Final = 100  # conversations in a part of an archive
_AT_ONCE: Final = 500  # messages erased in one transaction
_TURN: Final = 0.008  # seconds that a transaction should take
_FEWEST: Final = 50  # conversations and messages deleted in one transaction, or one conversation
_MOST: Final = 800
_BREAK: Final = 6  # how long a break after a transaction is, in multiples of what that took
_READ_BREAK: Final = 2  # and after a part of an archive, which keeps nobody waiting
_SHORTEST: Final = 0.002
_LONGEST: Final = 0.5


class Expired(Struct, frozen=True, rename="camel"):
    """What expired: conversations whose last change was before a time, and their messages.

    `bytes` is how much they are as lines of an export, if they were archived. `kept` counts those
    that younger forks read from, `changed` those that somebody changed meanwhile: both stay.
    `sha256` is a hash over the ids and versions of the conversations, in the order of their ids.
    `done` is false for what would only expire.
    """

    before: int
    owner: str | None
    tag: str | None
    conversations: int
    messages: int
    bytes: int
    kept: int
    changed: int
    sha256: str
    archive: ArchiveReport | None
    done: bool


def expire(
    store: Store,
    older_than: timedelta,
    now: int,
    *,
    owner: str | None = None,
    tag: str | None = None,
    archive: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Expired:
    """Delete conversations that were last changed before a time; see `Store.expire`."""
    check_argument(older_than, timedelta, "$.older_than", "a timedelta", "timedelta(days=90)")
    before = now - older_than // timedelta(milliseconds=1)
    if older_than < timedelta(0) or before < 0:
        raise ValidationError("must be from 0 up to now", path="$.older_than", rule="argument")
    check_owner(owner)
    if tag is not None:
        check_name(tag, "$.tag")
    run = _Expiry(store, before, owner, tag, progress)
    if dry_run:
        for head in run.find():
            run.count(head)
        return run.report(None, done=False)
    with Archive(archive) if archive is not None else nullcontext() as file:
        run.delete(file)
        return run.report(None if file is None else file.report(), done=True)


class _Expiry:
    """One run: which conversations expire, and what became of them."""

    def __init__(
        self,
        store: Store,
        before: int,
        owner: str | None,
        tag: str | None,
        progress: Progress | None,
    ) -> None:
        self._store = store
        self._backend = store.backend
        self._before, self._owner, self._tag = before, owner, tag
        self._progress = progress
        self._gone: list[tuple[str, int]] = []
        self._messages = self._bytes = self._changed = 0
        self._kept: set[str] = set()
        self._forks_read: dict[str, list[Head]] = {}

    # ── which ───────────────────────────────────────────────────────────────────────────────────

    def find(self) -> Iterator[Head]:
        """Yield what may be deleted, forks before what they were forked from."""
        seen: set[str] = set()
        after: str | None = f"{self._before}:"
        while after is not None:
            page = self._backend.listing(after=after, limit=_PAGE, tag=self._tag, owner=self._owner)
            self._read_forks(page.conversations)
            for head in page.conversations:
                yield from self._with_forks(head, seen)
            after = page.next

    def _read_forks(self, heads: Sequence[Head]) -> None:
        """Read the forks of a page of conversations at once, where the backend can."""
        read: Callable[[Sequence[str]], dict[str, list[Head]]] | None
        read = getattr(self._backend, "forks_of", None)
        if read is not None and heads:
            self._forks_read = read([head.id for head in heads])

    def _with_forks(self, head: Head, seen: set[str]) -> Iterator[Head]:
        """Yield a conversation after its forks, unless one of them has to stay."""
        waiting = [(head, self._forks(head, seen))]
        while waiting:
            current, forks = waiting[-1]
            if forks:
                fork = forks.popleft()
                if fork.id in self._kept or not self._is_due(fork):
                    self._kept.add(current.id)
                elif fork.id not in seen:
                    waiting.append((fork, self._forks(fork, seen)))
                continue
            waiting.pop()
            if current.id in self._kept:
                if waiting:
                    self._kept.add(waiting[-1][0].id)
            elif current.id not in seen:
                yield current
            seen.add(current.id)

    def _forks(self, head: Head, seen: set[str]) -> deque[Head]:
        if head.id in seen:
            return deque()
        if head.id in self._forks_read:
            return deque(self._forks_read[head.id])
        try:
            return deque(self._backend.forks(head.id))
        except UnknownConversation:  # deleted meanwhile
            seen.add(head.id)
            return deque()

    def _is_due(self, head: Head) -> bool:
        return (
            head.updated < self._before
            and self._owner in {None, head.owner}
            and (self._tag is None or self._tag in head.tags)
        )

    # ── deleting ────────────────────────────────────────────────────────────────────────────────

    def delete(self, archive: Archive | None) -> None:
        """Delete what is found, part by part; each part is archived first."""
        if archive is not None:
            self._settle(archive)
        pace = _Pace()
        for part in _chunks(self.find(), _PART):
            if archive is not None:
                with _then_break(_READ_BREAK):
                    self._archive(archive, part)
            for some in pace.transactions(part):
                with pace.transaction(some):
                    gone = set(self._backend.delete_all([(h.id, h.version) for h in some]))
                for head in some:
                    if head.id in gone:
                        self.count(head)
                    else:
                        self._changed += 1
            if archive is not None:
                gone = {name for name, _ in self._gone[-len(part) :]}
                archive.withdraw(head.id for head in part if head.id not in gone)
        if self._gone:
            _sweep(self._backend)

    def _archive(self, archive: Archive, part: list[Head]) -> None:
        """Add to the archive what it does not hold yet; what was deleted meanwhile is left out."""
        new = [(h.id, h.version) for h in part if archive.held.get(h.id) != h.version]
        while new:
            try:
                self._bytes += archive.add(self._store, new)
            except UnknownConversation:
                new = [(name, version) for name, version in new if name in self._store]
            else:
                return

    def _settle(self, archive: Archive) -> None:
        """Withdraw what was archived and then changed, where the run before was killed."""
        changed: list[str] = []
        for name in list(archive.held)[-_PART:]:
            try:
                if self._backend.head(name).version != archive.held[name]:
                    changed.append(name)
            except UnknownConversation:
                continue
        archive.withdraw(changed)

    def count(self, head: Head) -> None:
        """Count a conversation as gone."""
        self._gone.append((head.id, head.version))
        self._messages += head.length - head.base
        if self._progress is not None:
            self._progress(len(self._gone), None)

    def report(self, archive: ArchiveReport | None, *, done: bool) -> Expired:
        """Return the receipt."""
        lines = "".join(f"{name} {version}\n" for name, version in sorted(self._gone))
        return Expired(
            self._before, self._owner, self._tag, len(self._gone), self._messages, self._bytes,
            len(self._kept), self._changed, sha256(lines.encode()).hexdigest(), archive, done,
        )  # fmt: skip


def _sweep(backend: Backend) -> None:
    """Destroy what is left of the bytes of deleted conversations, where something is."""
    sweep: Callable[[], None] | None = getattr(backend, "sweep", None)
    if sweep is not None:
        sweep()


def _chunks(heads: Iterable[Head], count: int) -> Iterator[list[Head]]:
    chunk: list[Head] = []
    for head in heads:
        chunk.append(head)
        if len(chunk) == count:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


class _Pace:
    """How much is done at once, and how long others have the store for themselves then."""

    def __init__(self) -> None:
        self._size = _FEWEST

    def transactions(self, heads: Iterable[Head]) -> Iterator[list[Head]]:
        """Yield what is to be deleted in one transaction."""
        chunk: list[Head] = []
        for head in heads:
            if chunk and _rows(*chunk, head) > self._size:
                yield chunk
                chunk = []
            chunk.append(head)
        if chunk:
            yield chunk

    @contextmanager
    def transaction(self, heads: Sequence[Head]) -> Generator[None]:
        """Take a break after the block, and find out how much goes into the next transaction."""
        begun = time.monotonic()
        with _then_break(_BREAK):
            yield
            took = time.monotonic() - begun
            if took > _TURN:
                self._size = max(self._size // 2, _FEWEST)
            elif took < _TURN / 2 and 2 * _rows(*heads) > self._size:
                self._size = min(2 * self._size, _MOST)


@contextmanager
def _then_break(times: int) -> Generator[None]:
    """Wait after the block, so many times as long as that took."""
    begun = time.monotonic()
    yield
    took = time.monotonic() - begun
    time.sleep(min(max(times * took, _SHORTEST), _LONGEST))


def _rows(*heads: Head) -> int:
    """Return about how much there is to delete of conversations."""
    return sum(head.length - head.base + 1 for head in heads)


# ── everything of an owner ──────────────────────────────────────────────────────────────────────


class OwnerErased(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What was erased of an owner. It has ids and no content; `check_receipt` checks it.

    `deleted` are conversations that are gone. `shells` are those that others' forks read from: they
    have no owner, title, tags and records any more. `erased` are the messages that have tombstones,
    as pairs of a conversation and the ids in it, also in the forks of others. `seal` is a hash of
    the rest.
    """

    owner: str
    at: int
    deleted: tuple[str, ...] = ()
    shells: tuple[str, ...] = ()
    erased: tuple[tuple[str, tuple[str, ...]], ...] = ()
    out_of_reach: tuple[str, ...] = (
        "archives and exports already written",
        "database backups and WAL archives",
        "names of marks, team tasks and reasons of edits in the versions of shells and forks",
    )
    seal: str = ""


def seal_receipt(receipt: OwnerErased) -> OwnerErased:
    """Return a receipt with its seal: a hash of everything else in it."""
    plain = msgspec.json.encode(replace(receipt, seal=""), order="deterministic")
    return replace(receipt, seal=sha256(plain).hexdigest())


def read_receipt(data: bytes) -> OwnerErased:
    """Read a receipt from JSON; `ValidationError` where it is none, or was changed."""
    try:
        receipt = msgspec.json.decode(data, type=OwnerErased)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        detail = f"is not the receipt of an erased owner: {error}"
        raise ValidationError(detail, path="$.receipt", rule="receipt") from None
    if seal_receipt(receipt) != receipt:
        raise ValidationError(
            "was changed: it does not fit its seal", path="$.receipt", rule="receipt"
        )
    return receipt


def check_receipt(store: Store, receipt: OwnerErased) -> Iterator[str]:
    """Yield what is there though the receipt says it is gone."""
    backend = store.backend
    for head in store.each(owner=receipt.owner):
        yield f"{head.id}: belongs to {receipt.owner!r}"
    for name in receipt.deleted:
        if name in store:
            yield f"{name}: was deleted, and is there"
    for name in receipt.shells:
        shell = _head(backend, name)
        if shell is not None and (shell.owner or shell.title or shell.tags or backend.kinds(name)):
            yield f"{name}: has an owner, a title, tags or records again"
    for name, messages in receipt.erased:
        for position in _with_content(backend, name, messages) if name in store else ():
            yield f"{name}: message {position} was erased, and has content"


def _with_content(backend: Backend, name: str, messages: Iterable[str]) -> Iterator[int]:
    """Yield where a conversation has messages with some ids that are no tombstones."""
    for message_id in messages:
        for position in backend.positions_of(name, message_id):
            if ERASED not in backend.messages(name, position, position + 1)[0].metadata:
                yield position


def erase_owner(store: Store, owner: str, at: int, progress: Progress | None = None) -> OwnerErased:
    """Erase everything of an owner; see `Store.erase_owner`."""
    check_owner(owner)
    backend = store.backend
    deleted: list[str] = []
    shells: list[str] = []
    erased: dict[str, tuple[str, ...]] = {}
    while True:
        page = backend.listing(after=None, limit=1, tag=None, owner=owner)
        if not page.conversations:
            break
        family = [_head(backend, name) for name in backend.family(page.conversations[0].id)]
        heads = {head.id: head for head in family if head is not None}
        own = [head for head in heads.values() if head.owner == owner]
        if len(own) < len(heads):
            try:
                own, ids = _erase_messages(backend, own, heads, at)
            except Stale:
                continue  # somebody wrote meanwhile: start over with this family
            erased |= ids
        stay = _read_by_others(heads, owner)
        for head in _forks_first(own, heads):
            if head.id in stay:
                if _empty(backend, head):
                    shells.append(head.id)
            else:
                deleted += backend.delete_all([(head.id, head.version)])
            if progress is not None:
                progress(len(deleted) + len(shells), None)
    _sweep(backend)
    return seal_receipt(
        OwnerErased(
            owner, at, tuple(sorted(deleted)), tuple(sorted(shells)),
            tuple(sorted((name, ids) for name, ids in erased.items() if name not in deleted)),
        )
    )  # fmt: skip


def _head(backend: Backend, name: str) -> Head | None:
    try:
        return backend.head(name)
    except UnknownConversation:  # deleted meanwhile
        return None


def _read_by_others(heads: dict[str, Head], owner: str) -> set[str]:
    """Return the conversations that another owner's conversation was forked from, or its parent."""
    found: set[str] = set()
    for head in heads.values():
        parent = head.parent if head.owner != owner else None
        while parent is not None and parent in heads and parent not in found:
            found.add(parent)
            parent = heads[parent].parent
    return found


def _forks_first(own: list[Head], heads: dict[str, Head]) -> list[Head]:
    """Return conversations so that forks come before what they were forked from."""

    def generation(head: Head) -> int:
        count, parent = 0, head.parent
        while parent is not None and parent in heads:
            count, parent = count + 1, heads[parent].parent
        return count

    return sorted(own, key=generation, reverse=True)


def _erase_messages(
    backend: Backend, own: list[Head], heads: dict[str, Head], at: int
) -> tuple[list[Head], dict[str, tuple[str, ...]]]:
    """Erase the own messages of some conversations in a whole family, and their summaries.

    Returns their heads afterwards, and which ids are erased, by the conversation that has them.
    """
    places, made_from = _places(backend, heads.values())
    mine = {head.id for head in own}
    ids = [name for name, rows in places.items() if any(owner in mine for owner, _ in rows)]
    spare = {place for name in ids for place in _of_others(backend, name, places[name], mine)}
    names = dict.fromkeys(ids)
    for name in ids:  # grows as summaries are found
        new = [found for found in dict.fromkeys(made_from.get(name, ())) if found not in names]
        names |= dict.fromkeys(new)
        ids += new
    first, *rest = own
    for start in range(0, len(ids), _AT_ONCE):
        some = ids[start : start + _AT_ONCE]
        book, versions = read_versions(backend, first)
        note = make_note("erase", first, book, versions, at, undo=True)
        backend.erase(first.id, some, at, note=replace(note, data={"messages": some}), spare=spare)
        first = backend.head(first.id)
    found: dict[str, list[str]] = {}
    for name in ids:
        for owner, position in places[name]:
            if (owner, position) not in spare:
                found.setdefault(owner, []).append(name)
    return [first, *rest], {owner: tuple(sorted({*names})) for owner, names in found.items()}


def _places(
    backend: Backend, heads: Iterable[Head]
) -> tuple[dict[str, list[tuple[str, int]]], dict[str, list[str]]]:
    """Return where a family has each id, and which messages are summaries of which."""
    places: dict[str, list[tuple[str, int]]] = {}
    made_from: dict[str, list[str]] = {}
    for head in heads:
        for position, message in _own_messages(backend, head):
            places.setdefault(message.id, []).append((head.id, position))
            sources = message.metadata.get(SUMMARY_OF)
            for source in sources if isinstance(sources, list) else ():
                made_from.setdefault(str(source), []).append(message.id)
    return places, made_from


def _of_others(
    backend: Backend, name: str, places: list[tuple[str, int]], mine: set[str]
) -> set[tuple[str, int]]:
    """Return where others have another message with the same id; a copy or a revision is none."""
    others = {place for place in places if place[0] not in mine}
    for owner, position in places if others else ():
        if owner in mine:
            others &= positions_of_others(backend, owner, name, position)
    return others


def _own_messages(backend: Backend, head: Head) -> Iterator[tuple[int, Message]]:
    """Yield the messages that are stored with a conversation, with their positions."""
    for start in range(head.base, head.length, _PAGE):
        stop = min(start + _PAGE, head.length)
        yield from enumerate(backend.messages(head.id, start, stop), start)


def _empty(backend: Backend, head: Head) -> bool:
    """Take records, title, tags and owner from a conversation whose messages are erased.

    Returns False where somebody wrote to it meanwhile; then it belongs to the owner still.
    """
    name = head.id
    for kind in backend.kinds(name):
        backend.keep(name, [(kind, called, None) for called in backend.records(name, kind)])
    try:
        backend.describe(name, None, (), after=head.version)
        backend.set_owner(name, None, after=head.version)
    except Stale:
        return False
    return True
