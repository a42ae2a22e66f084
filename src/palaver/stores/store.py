"""A store: conversations that last. Open one with `palaver.open`.

    store = palaver.open("chat.db")
    history = store.create([user("hello")], title="A talk")
    …
    history = store.get(history.id)

What a store hands out are histories like any other; each change is kept before it returns.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Self

from palaver.errors import Stale, UnknownConversation, ValidationError
from palaver.history.frame import Frame
from palaver.history.operations import read_messages
from palaver.messages import new_id
from palaver.messages.gate import check_name, is_text
from palaver.messages.ids import now_ms
from palaver.stores.arguments import check_known, check_tags, check_title, check_words
from palaver.stores.beginning import begin, check_key
from palaver.stores.checking import problems
from palaver.stores.frames import FrameBook
from palaver.stores.history import StoredHistory
from palaver.stores.preconditions import check_expected
from palaver.stores.pruning import Pruned, prune
from palaver.stores.records import Change, Head, Hit, Journaled, Lease, Listing
from palaver.stores.rows import one

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType

    from palaver.messages import Message
    from palaver.stores.preconditions import Expected
    from palaver.stores.protocol import Keeper
    from palaver.stores.records import Record

__all__ = ["Store"]

_PAGE = 500
_NAP = 0.25
_LONGEST = 31_536_000  # seconds of a lease: a year
_CURSOR = re.compile(r"\d{1,16}:.", re.DOTALL)


class Store:
    """Conversations, kept by a keeper.

    >>> import palaver
    >>> from palaver.messages import user
    >>> with palaver.open(":memory:") as store:
    ...     history = store.create([user("hello")], title="A talk")
    ...     store.get(history.id)[0].text
    'hello'
    """

    def __init__(self, keeper: Keeper, *, clock: Callable[[], int] = now_ms) -> None:
        """Take a keeper: memory, SQLite, PostgreSQL or one of your own."""
        self.keeper = keeper
        self._clock = clock

    def __enter__(self) -> Self:
        """Close it at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let go of files and connections."""
        self.close()

    def close(self) -> None:
        """Let go of files and connections; every change that was made is kept already."""
        self.keeper.close()

    # ── conversations ───────────────────────────────────────────────────────────────────────────

    def create(
        self,
        messages: Iterable[Message | Mapping[str, Any]] = (),
        *,
        id: str | None = None,  # noqa: A002 - the word for it
        title: str | None = None,
        tags: Iterable[str] = (),
        key: str | None = None,
        records: Iterable[Record] = (),
    ) -> StoredHistory:
        """Begin a conversation, with some messages or none.

        `records` are kept beside the log in the same change. An id that is taken is an error
        (`AlreadyExists`). With an `id` and a `key` of the caller's, doing it again, after an answer
        that was lost, returns the conversation that was begun.
        """
        check_key(id, key)
        new = read_messages(messages)
        name = new_id() if id is None else id
        check_name(name, "$.id")
        counts = sum(map(one, new))
        now = self._clock()
        frame = Frame(logged=len(new))
        head = Head(
            id=name, version=0, stop=len(new), length=len(new), counts=counts, framed=0,
            size=len(new), title=check_title(title), tags=check_tags(tags), created=now,
            updated=now,
        )  # fmt: skip
        first = Change(
            conversation=name, after=-1, kind="create", at=now, stop=len(new), size=len(new),
            messages=new, frame=FrameBook().encode(frame, 0), key=key, records=tuple(records),
        )  # fmt: skip
        begin(self.keeper, head, first)
        return self.get(name)

    def get(self, conversation: str) -> StoredHistory:
        """A conversation as it is now."""
        return StoredHistory(self.keeper, conversation, clock=self._clock)

    def __contains__(self, conversation: object) -> bool:
        """Tell whether there is a conversation of this id."""
        try:
            check_known(str(conversation))
            self.keeper.head(str(conversation))
        except UnknownConversation:
            return False
        return True

    def list(self, *, after: str | None = None, limit: int = 50, tag: str | None = None) -> Listing:
        """Conversations, the latest changed first; `after` is the `next` of the page before."""
        if limit < 1:
            raise ValidationError(f"must be at least 1, not {limit}", path="$.limit")
        if after is not None and not (is_text(after) and _CURSOR.match(after)):
            raise ValidationError("must be the `next` of a page", path="$.after")
        if tag is not None and not is_text(tag):
            return Listing((), None)
        return self.keeper.listing(after=after, limit=limit, tag=tag)

    def named(self, beginning: str, *, limit: int = 20) -> builtins.list[str]:
        """The ids that begin with a text, in order, and no more than so many of them.

        >>> import palaver
        >>> store = palaver.open(":memory:")
        >>> _ = store.create(id="tea-1"), store.create(id="tea-2"), store.create(id="rum")
        >>> store.named("tea")
        ['tea-1', 'tea-2']
        """
        return self.keeper.named(beginning, limit) if is_text(beginning) else []

    def __iter__(self) -> Iterator[Head]:
        """Where every conversation stands, the latest changed first."""
        page = self.list(limit=_PAGE)
        yield from page.conversations
        while page.next is not None:
            page = self.list(after=page.next, limit=_PAGE)
            yield from page.conversations

    def describe(
        self,
        conversation: str,
        *,
        title: str | None = None,
        tags: Iterable[str] = (),
        expect: Expected | None = None,
    ) -> None:
        """Give a conversation a title and tags.

        `expect` is the version that must be the newest; `VersionMismatch` where it is not. Title
        and tags are no part of a version: changing them makes none.
        """
        title, tags = check_title(title), check_tags(tags)
        self._conditional(
            conversation,
            expect,
            lambda after: self.keeper.describe(conversation, title, tags, after=after),
        )

    def delete(self, conversation: str, *, expect: Expected | None = None) -> None:
        """Forget a conversation and everything in it, if nothing was forked from it.

        `expect` is the version that must be the newest; `VersionMismatch` where it is not.
        """
        self._conditional(
            conversation, expect, lambda after: self.keeper.delete(conversation, after=after)
        )

    def _conditional(
        self, conversation: str, expect: Expected | None, change: Callable[[int | None], None]
    ) -> None:
        """Make a change of something that has no version, if the newest version is expected."""
        check_known(conversation)
        if expect is None:
            change(None)
            return
        while True:
            version = self.keeper.head(conversation).version
            check_expected(expect, version)
            try:
                change(version)
            except Stale:
                continue  # somebody wrote meanwhile: look again
            return

    def prune(
        self,
        conversation: str,
        *,
        undo: int = 0,
        dry_run: bool = False,
        expect: Expected | None = None,
    ) -> Pruned:
        """Make room: take the text of messages that nothing leads to any more.

        Those are the ones that only abandoned versions have: what was undone, or rolled back and
        left behind. What the view has, its batches and its marks stay, and so does whatever a fork
        shares. `undo` is how many steps of undo and redo shall stay whole;
        `dry_run` only says what would go. `expect` is the version that must be the newest;
        `VersionMismatch` where it is not. There is no way back.

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
        return prune(self.keeper, conversation, undo=undo, dry_run=dry_run, at=at, expect=expect)

    def search(
        self, words: str, *, conversation: str | None = None, limit: int = 20
    ) -> builtins.list[Hit]:
        """The messages with all these words ("in quotes": one after the other).

        The first 100,000 characters of a message are searched, and words are compared by their
        first 200. More than 256 different words are refused with `ValidationError`.
        """
        check_words(words)
        if conversation is not None:
            check_known(conversation)
        return self.keeper.search(words, conversation, limit)

    # ── following ───────────────────────────────────────────────────────────────────────────────

    def follow(
        self,
        conversation: str | None = None,
        *,
        after: int | None = None,
        seconds: float | None = None,
    ) -> Iterator[Journaled]:
        """Every change, in order, none missed and none twice; waits for more.

        Of one conversation from a version on, or of the whole store from a cursor on: `after` is
        the last one seen. `seconds` ends the waiting when nothing has happened for so long.
        """
        if conversation is not None:
            check_known(conversation)
        start = self._newest(conversation) if after is None else after
        return self._follow(conversation, start, seconds)

    def _follow(
        self, conversation: str | None, after: int, seconds: float | None
    ) -> Iterator[Journaled]:
        last = time.monotonic()
        while True:
            changes = self.keeper.journal(conversation, after, _PAGE)
            for change in changes:
                yield change
                after = change.cursor if conversation is None else change.version
            if changes:
                last = time.monotonic()
                continue
            left = _NAP if seconds is None else last + seconds - time.monotonic()
            if left <= 0:
                return
            self.keeper.wait(min(left, _NAP))

    def _newest(self, conversation: str | None) -> int:
        if conversation is not None:
            return self.keeper.head(conversation).version
        return self.keeper.newest()

    # ── workers ─────────────────────────────────────────────────────────────────────────────────

    def lease(self, conversation: str, holder: str, *, seconds: float = 60) -> Lease:
        """The right to take the next step; whoever held it before can no longer write under it.

        The store's own clock measures the seconds (see `Lease`), so that machines whose clocks
        differ agree on who holds it. `LeaseTaken` while another does.
        """
        check_known(conversation)
        check_name(holder, "$.holder")
        if not 0 <= seconds <= _LONGEST:
            detail = f"a lease of {seconds} seconds: from 0 to {_LONGEST:,} are allowed"
            raise ValidationError(detail, path="$.seconds", rule="lease-seconds")
        return self.keeper.lease(conversation, holder, seconds)

    def release(self, lease: Lease) -> None:
        """Give a lease back before it ends."""
        self.keeper.release(lease)

    # ── proof ───────────────────────────────────────────────────────────────────────────────────

    def verify(
        self,
        conversation: str | None = None,
        *,
        progress: Callable[[int, int | None], object] | None = None,
    ) -> Iterator[str]:
        """Everything that is wrong, in words; nothing if the store is whole.

        `progress` is told how many messages and versions have been looked at, and of how many.
        """
        return problems(self, conversation, progress)

    def notes(self, conversation: str | None = None) -> Iterator[str]:
        """What is not wrong but worth knowing, in words: messages that a search does not find.

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
        heads = self if conversation is None else [self.keeper.head(conversation)]
        for head in heads:
            for position, reason in self.keeper.unindexed(head.id):
                yield f"{head.id}: message {position}: {reason}"
