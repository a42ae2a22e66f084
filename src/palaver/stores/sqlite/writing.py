"""Writing to the SQLite store: every change whole or not at all.

A plain append of one message is one statement; any other change is a transaction with a journal
record. Only `erase` and `delete` destroy anything, and they leave nothing behind in the file.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NoReturn

import apsw

from palaver.errors import (
    AlreadyExists,
    LeaseLost,
    Stale,
    StoreError,
)
from palaver.stores.rows import (
    ROLE_NUMBERS,
    body_of,
    counts_of,
    message_of,
    one,
    row_hash,
    tombstone,
)
from palaver.stores.sqlite.base import QUERIES, Connections, translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from palaver.stores.records import Change, Head


__all__ = ["Writing"]

_APPEND: Final = QUERIES["append_message"]


class Writing(Connections):
    """The half of a keeper that changes something."""

    def create(self, head: Head, first: Change) -> None:
        """Begin a conversation, with its first messages and frame."""
        self._write(lambda: self._create(head, first))

    def _create(self, head: Head, first: Change) -> int:
        parent = None if head.parent is None else self._cid(head.parent, self._writer)
        counts = counts_of(head.counts)
        try:
            self._writer.execute(
                QUERIES["insert_conversation"],
                (head.id, head.stop, head.length, *counts, head.size, parent, head.base,
                 head.origin, head.title, json.dumps(head.tags), head.created, head.updated),
            )  # fmt: skip
        except apsw.ConstraintError:
            msg = f"a conversation has the id {head.id!r} already"
            raise AlreadyExists(msg) from None
        cid = self._writer.last_insert_rowid()
        number = self._rows(cid, 0, first)
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
            version: int = self._write(work)
        except BaseException:
            if head is not None:
                self._cids.pop(head.id, None)  # it never was there
            raise
        return version

    def commit(self, change: Change) -> int:
        """Keep a change and answer its version; `Stale` where another came first."""
        version: int
        if len(change.messages) == 1 and change.plain and not (change.token or change.records):
            version = self._write(lambda: self._append_one(change), atomic=True)
        else:
            version = self._write(lambda: self._commit(change))
        return version

    def _known(self, cid: int, change: Change) -> int | None:
        """The version of a change that was kept before, by its key."""
        row = self._writer.execute(QUERIES["version_of_key"], (cid, change.key)).fetchone()
        return None if row is None else int(row[0])

    def _append_one(self, change: Change) -> int:
        """The most common change of all, in one statement."""
        writer = self._writer
        cid = self._cids.get(change.conversation) or self._cid(change.conversation, writer)
        if change.key is not None:
            known = self._known(cid, change)
            if known is not None:
                return known
        (message,) = change.messages
        position, version = change.first, change.after + 1
        system, user, assistant = counts_of(change.counts)
        role = ROLE_NUMBERS[message.role]
        body = body_of(message)
        ordinal = (system, user, assistant, position - system - user - assistant)[role]
        try:
            writer.execute(
                _APPEND,
                (cid, position, version, change.at, role, ordinal, system, user, assistant,
                 message.timestamp, row_hash(position, body), change.key, message.id, body),
            )  # fmt: skip
        except apsw.ConstraintError:
            _stale(change)
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
        version: int = writer.execute(QUERIES["standing"], (cid,)).get
        if version != change.after:
            _stale(change)
        version += 1
        number = self._rows(cid, version, change)
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
        return int(version)

    def _rows(self, cid: int, version: int, change: Change) -> int:
        """Insert a change's messages, and answer the number that comes after theirs."""
        number: int = self._writer.execute(QUERIES["next_number"]).get
        system, user, assistant = counts_of(change.counts)
        position, last = change.first, len(change.messages) - 1
        rows: list[tuple[Any, ...]] = []
        for index, message in enumerate(change.messages):
            body = body_of(message)
            role = ROLE_NUMBERS[message.role]
            ordinal = (system, user, assistant, position - system - user - assistant)[role]
            closes = change.plain and index == last
            rows.append(
                (number, cid, position, version, last + 1 if closes else 0, change.at, role,
                 ordinal, system, user, assistant, message.timestamp, change.replaces.get(index),
                 row_hash(position, body), change.key if closes else None, message.id, body)
            )  # fmt: skip
            system += role == 0
            user += role == 1
            assistant += role == 2  # noqa: PLR2004 - the roles in their order
            position += 1
            number += 1
        if rows:
            self._writer.executemany(QUERIES["insert_message"], rows)
        return int(number)

    def _insert_journal(self, number: int, cid: int, version: int, change: Change) -> None:
        data = json.dumps(change.data, ensure_ascii=False) if change.data else None
        self._writer.execute(
            QUERIES["insert_journal"],
            (number, cid, version, change.kind, change.at, change.first, len(change.messages),
             change.stop, data, change.key, change.frame),
        )  # fmt: skip

    def _check_token(self, cid: int, token: int) -> None:
        row = self._writer.execute(QUERIES["lease"], (cid,)).fetchone()
        if row is None or row[1] != token:
            msg = "the lease went to another worker meanwhile"
            raise LeaseLost(msg)

    def describe(self, conversation: str, title: str | None, tags: Sequence[str]) -> None:
        """Set a conversation's title and tags."""

        def work() -> None:
            cid = self._cid(conversation, self._writer)
            self._writer.execute(QUERIES["describe"], (title, json.dumps(list(tags)), cid))

        self._write(work)

    def delete(self, conversation: str) -> None:
        """Forget a conversation that nothing was forked from."""

        def work() -> None:
            cid = self._cid(conversation, self._writer)
            fork = self._writer.execute(QUERIES["a_fork_of"], (cid,)).fetchone()
            if fork is not None:
                msg = f"{fork[0]} was forked from it, and reads its messages"
                raise StoreError(msg)
            self._forget_words(self._writer.execute(QUERIES["all_rows"], (cid,)).fetchall())
            newest: int = self._writer.execute(QUERIES["newest"]).get
            for table in ("messages", "journal", "leases", "records", "conversations"):
                self._writer.execute(f"DELETE FROM {table} WHERE cid = ?", (cid,))  # noqa: S608 - from the list above
            self._writer.execute(QUERIES["keep_counting"], (newest,))
            self._writer.execute(QUERIES["index_again"])

        self._write(work)
        self._cids.pop(conversation, None)
        self._lineages.clear()
        self._scrub()

    def _forget_words(self, rows: list[Any]) -> None:
        for number, body in rows:
            self._words.forget(number, body)

    def family(self, conversation: str) -> list[str]:
        """A conversation and all its relatives: whoever shares its first ancestor."""
        return [row[0] for row in self._read("family", self._cid(conversation))]

    def erase(
        self, conversation: str, message_ids: Sequence[str], at: int, *, note: Change | None = None
    ) -> int:
        """Put tombstones in the place of messages, here and in all relatives; destroy the bytes."""
        family = self.family(conversation)

        def work() -> int:
            places = 0
            for name in family:
                cid = self._cid(name, self._writer)
                for message_id in message_ids:
                    found = self._writer.execute(QUERIES["rows_of"], (message_id, cid))
                    rows: list[Any] = found.fetchall()
                    self._forget_words([(row[0], row[2]) for row in rows])
                    for number, position, body in rows:
                        left = body_of(tombstone(message_of(body), at))
                        mark = row_hash(position, left)
                        self._writer.execute(QUERIES["bury"], (left, mark, number))
                        self._words.remember(number, left)
                    places += len(rows)
                self._writer.execute(QUERIES["note_erasure"], (cid,))
            if note is not None:
                self._commit(note)
            return places

        places: int = self._write(work)
        self._scrub()
        return places

    def _scrub(self) -> None:
        """Empty the write-ahead log, which still has what was destroyed."""
        with translated(self.path):
            self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _put(self, cid: int, kind: str, name: str, value: bytes | None) -> None:
        if value is None:
            self._writer.execute(QUERIES["drop_record"], (cid, kind, name))
        else:
            self._writer.execute(QUERIES["put_record"], (cid, kind, name, value))


def _stale(change: Change) -> NoReturn:
    msg = f"{change.conversation} is no longer at version {change.after}"
    raise Stale(msg)
