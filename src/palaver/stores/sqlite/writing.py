"""Writing to the SQLite store: every change whole or not at all.

A plain append of a few messages is one statement; any other change is a transaction with a journal
record. Only `erase` and `delete` destroy anything, and they leave nothing behind in the file.
"""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NoReturn

import apsw

from palaver.errors import (
    AlreadyExists,
    LeaseLost,
    Stale,
    StoreError,
)
from palaver.stores.records import Again, Erased
from palaver.stores.rows import (
    ROLE_NUMBERS,
    body_of,
    counts_of,
    message_of,
    one,
    pruned,
    tombstone,
)
from palaver.stores.sealing import row_hash
from palaver.stores.sqlite.base import QUERIES, Connections, translated, unknown
from palaver.stores.traces import Traces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from palaver.messages import Message
    from palaver.stores.records import Change, Head


__all__ = ["Writing"]

_FEW: Final = 16
_APPENDS: Final = [QUERIES["append_message"] + QUERIES["one_more"] * more for more in range(_FEW)]
"""The statements that append one message, two, and so on."""


class Writing(Connections):
    """The half of a keeper that changes something."""

    def create(self, head: Head, first: Change) -> None:
        """Begin a conversation, with its first messages and frame."""
        self._write(lambda: self._create(head, first))

    def _create(self, head: Head, first: Change) -> int:
        parent = None if head.parent is None else self._cid(head.parent, self._writer)
        counts, tags = counts_of(head.counts), json.dumps(head.tags)
        mark = row_hash(b"", head.id, parent, head.base, head.origin, head.created, 0, head.title,
                        tags)  # fmt: skip
        try:
            self._writer.execute(
                QUERIES["insert_conversation"],
                (head.id, head.stop, head.length, *counts, head.size, parent, head.base,
                 head.origin, head.title, tags, head.created, head.updated, mark),
            )  # fmt: skip
        except apsw.ConstraintError:
            msg = f"a conversation has the id {head.id!r} already"
            raise AlreadyExists(msg) from None
        cid = self._writer.last_insert_rowid()
        number = self._insert_rows(cid, 0, first)
        self._insert_journal(number, cid, 0, first)
        for record in first.records:
            self._put(cid, *record)
        return 0

    def adopt(self, head: Head | None, changes: Iterable[Change]) -> int:
        """Keep changes that were made elsewhere: all of them, or none."""

        def work() -> int:
            version = -1
            for change in changes:
                if head is not None and change.after < 0:
                    version = self._create(head, change)
                else:
                    version = self._commit(change)
            return version

        try:
            version: int = self._write(work, again=False)  # changes may come from a stream
        except BaseException:
            if head is not None:
                self._cids.pop(head.id, None)  # it never was there
            raise
        return version

    def commit(self, change: Change) -> int:
        """Keep a change and answer its version; `Stale` where another came first."""
        version: int
        few = 0 < len(change.messages) <= _FEW
        if few and change.plain and not (change.token or change.records):
            version = self._write(lambda: self._append(change), atomic=True)
        else:
            version = self._write(lambda: self._commit(change))
        return version

    def _known(self, cid: int, change: Change) -> Again | None:
        """The version of a change that was kept before, by its key."""
        row = self._writer.execute(QUERIES["version_of_key"], (cid, change.key)).fetchone()
        return None if row is None else Again(row[0])

    def _append(self, change: Change) -> int:
        """The most common change of all, in one statement."""
        writer = self._writer
        cid = self._cids.get(change.conversation) or self._cid(change.conversation, writer)
        if change.key is not None:
            known = self._known(cid, change)
            if known is not None:
                return known
        version = change.after + 1
        messages = change.messages
        if len(messages) == 1:
            row = _row(cid, change, 0, counts_of(change.counts), 1)
        else:
            row = tuple(chain.from_iterable(_rows(cid, change)))
        try:
            writer.execute(_APPENDS[len(messages) - 1], (cid, version, change.at, *row))
        except apsw.ConstraintError:
            _stale(change.conversation, change.after)
        return version

    def _commit(self, change: Change) -> int:
        """Any change. A plain append is its messages; the others have a journal record too."""
        writer = self._writer
        cid = self._cid(change.conversation, writer)
        if change.key is not None:
            known = self._known(cid, change)
            if known is not None:
                return known
        if change.token is not None:
            self._check_token(cid, change.token)
        self._check_version(cid, change.conversation, change.after)
        version = change.after + 1
        number = self._insert_rows(cid, version, change)
        if not change.plain:
            self._insert_journal(number, cid, version, change)
            length = change.first + len(change.messages)
            counts = counts_of(change.counts + sum(map(one, change.messages)))
            framed = None if change.frame is None else version
            writer.execute(
                QUERIES["advance"],
                (version, change.stop, length, *counts, framed, change.size, change.at, cid),
            )
        for record in change.records:
            self._put(cid, *record)
        return version

    def _check_version(self, cid: int, conversation: str, after: int) -> None:
        """Refuse a change that was made for another version than the newest."""
        if self._writer.execute(QUERIES["standing"], (cid,)).get != after:
            _stale(conversation, after)

    def _insert_rows(self, cid: int, version: int, change: Change) -> int:
        """Insert a change's messages, and answer the number that comes after theirs."""
        first: int = self._writer.execute(QUERIES["next_number"]).get
        rows = [
            (number, cid, version, change.at, *row)
            for number, row in enumerate(_rows(cid, change), first)
        ]
        if rows:
            self._writer.executemany(QUERIES["insert_message"], rows)
        return first + len(rows)

    def _insert_journal(self, number: int, cid: int, version: int, change: Change) -> None:
        data = json.dumps(change.data, ensure_ascii=False) if change.data else None
        columns = (cid, version, change.kind, change.at, change.first, len(change.messages),
                   change.stop, data, change.key)  # fmt: skip
        mark = row_hash(change.frame or b"", *columns)
        row = (number, *columns, change.frame, mark)
        self._writer.execute(QUERIES["insert_journal"], row)

    def _check_token(self, cid: int, token: int) -> None:
        row = self._writer.execute(QUERIES["lease"], (cid,)).fetchone()
        if row is None or row[1] != token:
            msg = "the lease went to another worker meanwhile"
            raise LeaseLost(msg)

    def describe(
        self, conversation: str, title: str | None, tags: Sequence[str], *, after: int | None = None
    ) -> None:
        """Set a conversation's title and tags."""

        def work() -> None:
            cid = self._cid(conversation, self._writer)
            if after is not None:
                self._check_version(cid, conversation, after)
            self._label(cid, lambda erased, *_: (erased, title, json.dumps(list(tags))))

        self._write(work)

    def _label(self, cid: int, change: Callable[[int, str | None, str], tuple[Any, ...]]) -> None:
        """Change what is said of a conversation, and its hash."""
        row: Any = self._writer.execute(QUERIES["labels"], (cid,)).fetchone()
        if row is None:  # another process has deleted it meanwhile
            unknown(f"number {cid}")
        *fixed, erased, title, tags = row
        said = change(erased, title, tags)
        self._writer.execute(QUERIES["label"], (*said, row_hash(b"", *fixed, *said), cid))

    def delete(self, conversation: str, *, after: int | None = None) -> None:
        """Forget a conversation that nothing was forked from."""

        def work() -> None:
            cid = self._cid(conversation, self._writer)
            if after is not None:
                self._check_version(cid, conversation, after)
            fork = self._writer.execute(QUERIES["a_fork_of"], (cid,)).fetchone()
            if fork is not None:
                msg = f"{fork[0]} was forked from it, and reads its messages"
                raise StoreError(msg)
            for number, body in self._writer.execute(QUERIES["all_rows"], (cid,)):
                self._words.forget(number, cid, body)
            newest: int = self._writer.execute(QUERIES["newest"]).get
            for table in ("messages", "journal", "leases", "records", "conversations"):
                self._writer.execute(f"DELETE FROM {table} WHERE cid = ?", (cid,))  # noqa: S608 - from the list above
            self._writer.execute(QUERIES["keep_counting"], (newest,))
            self._writer.execute(QUERIES["index_again"])

        self._write(work)
        cid = self._cids.pop(conversation, None)
        if cid is not None:
            self._lineages.forget(cid)
        self.erasures += 1
        self._scrub()

    def family(self, conversation: str) -> list[str]:
        """A conversation and all its relatives: whoever shares its first ancestor."""
        return [row[0] for row in self._read("family", self._cid(conversation))]

    def erase(
        self, conversation: str, message_ids: Sequence[str], at: int, *, note: Change | None = None
    ) -> Erased:
        """Put tombstones in the place of messages, here and in all relatives; destroy the bytes."""

        def work() -> Erased:
            writer = self._writer
            cid = self._cid(conversation, writer)
            family: list[Any] = writer.execute(QUERIES["family"], (cid,)).fetchall()
            rows: list[Any] = [
                row
                for _, relative in family
                for message_id in message_ids
                for row in writer.execute(QUERIES["rows_of"], (message_id, relative)).fetchall()
            ]
            traces = Traces([message_of(row[1]) for row in rows])
            for number, body, *columns in rows:
                self._bury(number, columns, body, tombstone(message_of(body), at))
            gone = [
                (name, *record)
                for name, relative in family
                for record in self._drop_records(relative, traces)
            ]
            for _, relative in family:
                self._label(relative, lambda erased, *said: (erased + 1, *said))
            if note is not None:
                self._commit(note)
            return Erased(len(rows), tuple(gone))

        erased: Erased = self._write(work)
        self.erasures += 1
        self._scrub()
        return erased

    def bury(self, note: Change, positions: Sequence[int], family: Sequence[str]) -> None:
        """Put tombstones in the place of messages that nothing reaches any more."""

        def work() -> None:
            writer = self._writer
            cid = self._cid(note.conversation, writer)
            found: list[Any] = writer.execute(QUERIES["family"], (cid,)).fetchall()
            if sorted(family) != sorted(name for name, _ in found):
                msg = f"{note.conversation} has other relatives meanwhile"
                raise Stale(msg)
            self._commit(note)
            for position in positions:
                row: Any = writer.execute(QUERIES["row_at"], (cid, position)).fetchone()
                number, body, *columns = row
                self._bury(number, columns, body, pruned(message_of(body), note.at))
            self._label(cid, lambda erased, *said: (erased + 1, *said))

        self._write(work)
        self.erasures += 1
        self._scrub()

    def _bury(self, number: int, columns: list[Any], body: str, left: Message) -> None:
        """Put a tombstone in the place of a message, here and in the index."""
        self._words.forget(number, columns[0], body)
        what = body_of(left)
        mark = row_hash(what.encode(), *columns)
        self._writer.execute(QUERIES["bury"], (what, mark, number))
        self._words.remember(number, columns[0], what)

    def _drop_records(self, cid: int, traces: Traces) -> list[tuple[str, str]]:
        """Take away the records that give something away."""
        kept: list[Any] = self._writer.execute(QUERIES["all_records"], (cid,)).fetchall()
        found = [(kind, name) for kind, name, value in kept if traces.are_in(kind, name, value)]
        for kind, name in found:
            self._put(cid, kind, name, None)
        return found

    def _scrub(self) -> None:
        """Empty the write-ahead log, which still has what was destroyed."""
        self._group.hold()
        try:
            with translated(self.path):
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            self._group.release()

    def _put(self, cid: int, kind: str, name: str, value: bytes | None) -> None:
        if value is None:
            self._writer.execute(QUERIES["drop_record"], (cid, kind, name))
        else:
            mark = row_hash(value, cid, kind, name)
            self._writer.execute(QUERIES["put_record"], (cid, kind, name, value, mark))


def _rows(cid: int, change: Change) -> list[tuple[Any, ...]]:
    """The rows of a change's messages; the last of a plain append is its journal record, too."""
    rows: list[tuple[Any, ...]] = []
    system, user, assistant = counts_of(change.counts)
    count = len(change.messages)
    for index, message in enumerate(change.messages):
        batch = count if change.plain and index == count - 1 else 0
        rows.append(_row(cid, change, index, (system, user, assistant), batch))
        system += message.role == "system"
        user += message.role == "user"
        assistant += message.role == "assistant"
    return rows


def _row(
    cid: int, change: Change, index: int, counts: tuple[int, int, int], batch: int
) -> tuple[Any, ...]:
    """What the row of a message has, beside what is the same for all of a change."""
    message, position, version = change.messages[index], change.first + index, change.after + 1
    system, user, assistant = counts
    role = ROLE_NUMBERS[message.role]
    ordinal = (system, user, assistant, position - system - user - assistant)[role]
    key = change.key if batch else None
    replaces = change.replaces.get(index)
    body = body_of(message)
    mark = row_hash(body.encode(), cid, position, replaces, version, batch, change.at, key)
    return (position, batch, role, ordinal, system, user, assistant, message.timestamp, replaces,
            mark, key, message.id, body)  # fmt: skip


def _stale(conversation: str, after: int) -> NoReturn:
    msg = f"{conversation} is no longer at version {after}"
    raise Stale(msg)
