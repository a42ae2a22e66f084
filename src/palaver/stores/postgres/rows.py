"""The rows of a PostgreSQL store as they are stored: decoded, and rewritten by encryption.

Many small conversations are read at once (`read_whole`): one by one, each would take some twenty
round trips.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from palaver.messages.limits import EMPTY
from palaver.stores import backend
from palaver.stores.postgres.changes import journal_hash, transaction_number
from palaver.stores.postgres.connections import STATEMENTS
from palaver.stores.postgres.erase import label
from palaver.stores.records import (
    JournalEntry,
    StoredConversation,
    StoredFrame,
    placed_hash,
    row_hash,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from palaver.stores.postgres.connections import PostgresConnections, TimedConnection
    from palaver.stores.postgres.families import Families
    from palaver.stores.postgres.search import PostgresSearchIndex
    from palaver.stores.records import BodyCodec, Head

    _Rows = dict[str, list[tuple[Any, ...]]]

__all__ = ["TAGS", "PostgresRows", "decode_head", "decode_journaled"]

TAGS: Final = 13
"""The column of the tags in the row of a head."""
_CONTENT: Final = tuple(
    f"palaver.{name}" for name in ("messages", "journal", "records", "conversations", "words")
)
"""The tables that contain what conversations say."""
_SMALL: Final = 50  # messages and versions of a conversation that is read with others
_HASHES: Final[dict[str, Callable[..., int]]] = {
    "hashes": placed_hash,
    "journal_hashes": journal_hash,
}
"""What hashes the rows of a query, where it is not `row_hash`."""


def decode_head(row: tuple[Any, ...]) -> Head:
    """Return a head from its row."""
    return backend.decode_head(row, row[TAGS])


def decode_journaled(row: tuple[Any, ...]) -> JournalEntry:
    """Return a change from its row in the journal."""
    conversation, version, kind, at, first, count, data, number = row
    known = EMPTY if data is None else json.loads(data)
    return JournalEntry(conversation, version, kind, at, first, count, known, number)


def _read_tables(names: list[str], connection: TimedConnection) -> list[_Rows]:
    """Return the rows of some conversations by name: journal, messages and records."""
    with connection.batch():
        answers = [
            connection.execute(STATEMENTS[f"whole_{table}"], {"ids": names})
            for table in ("journal", "messages", "records")
        ]
    tables: list[_Rows] = []
    for answer in answers:
        rows: _Rows = {name: [] for name in names}
        for row in answer.fetchall():
            rows[row[0]].append(row)
        tables.append(rows)
    return tables


def _decode_whole(
    head: Head,
    journal: list[tuple[Any, ...]],
    messages: list[tuple[Any, ...]],
    records: list[tuple[Any, ...]],
    *,
    codec: BodyCodec,
) -> StoredConversation:
    """Return a conversation as it was when its head was read: others may have written since."""
    journal, messages = journal[: head.version + 1], messages[: head.length]
    return StoredConversation(
        head,
        journal=[decode_journaled(row[:8]) for row in journal],
        stops={row[1]: row[8] for row in journal},
        keys={row[1]: row[9] for row in journal if row[9] is not None},
        frames=[StoredFrame(row[1], row[10]) for row in journal if row[10] is not None],
        messages=codec.messages([row[1] for row in messages]),
        replaces={at: row[2] for at, row in enumerate(messages) if row[2] is not None},
        records=[(kind, name, value) for _, kind, name, value in records],
    )


class PostgresRows:
    """The rows of all conversations; see `palaver.stores.encryption.StoredRows`."""

    def __init__(
        self,
        connections: PostgresConnections,
        index: PostgresSearchIndex,
        families: Families,
        *,
        read: Callable[..., list[Any]],
        clean_up: Callable[..., None],
    ) -> None:
        """Take what the backend has; `read` runs a named statement about a conversation."""
        self._connections = connections
        self._index = index
        self._families = families
        self._read = read
        self._clean_up = clean_up

    def forks_of(self, conversations: Sequence[str]) -> dict[str, list[Head]]:
        """Return the forks of several conversations, by the id of their parent."""
        found: dict[str, list[Head]] = {name: [] for name in conversations}
        for row in self._connections.fetch("forks_of", (list(conversations),)):
            head = decode_head(row)
            found[str(head.parent)].append(head)
        return found

    def read_whole(
        self, conversations: Sequence[str], codec: BodyCodec
    ) -> dict[str, StoredConversation]:
        """Return conversations whole, in two round trips; forks and long ones are left out."""
        values = {"ids": list(conversations), "most": _SMALL}
        heads = [decode_head(row) for row in self._connections.fetch("whole_heads", values)]
        tables = self._connections.run(partial(_read_tables, [h.id for h in heads]))
        return {
            head.id: _decode_whole(head, *(rows[head.id] for rows in tables), codec=codec)
            for head in heads
        }

    def set_encrypted(self, on: bool) -> None:  # noqa: FBT001 - the value of a setting
        """Empty the search index, and switch it off or on."""

        def work(connection: TimedConnection) -> None:
            with connection.transaction():
                self._index.lock(connection)
                connection.execute(STATEMENTS["empty_index"])
                connection.execute(STATEMENTS["reset_index"], (-1 if on else 0,))

        self._connections.run(work)

    def read(self, query: str, conversation: str, *values: Any) -> list[Any]:  # noqa: ANN401 - columns
        """Return rows of a conversation as they are stored."""
        return self._read(query, conversation, *values)

    @staticmethod
    def hash(query: str, body: bytes, columns: Sequence[Any]) -> int:
        """Return the hash of a row."""
        return _HASHES.get(query, row_hash)(body, *columns)

    def replace(self, query: str, conversation: str, rows: list[dict[str, Any]]) -> None:
        """Replace the content of rows that still have their old hash."""
        root = self._families.root(conversation)
        values = [{"root": root, "id": conversation, **row} for row in rows]

        def work(connection: TimedConnection) -> None:
            with connection.transaction():
                connection.cursor().executemany(STATEMENTS[f"replace_{query}"], values)

        self._connections.run(work)

    def retitle(self, conversation: str, change: Callable[[str | None], str | None]) -> None:
        """Replace the stored form of a title."""
        root = self._families.root(conversation)

        def work(connection: TimedConnection) -> None:
            with connection.transaction():
                label(
                    connection, root, [conversation],
                    lambda erased, title, *rest: (erased, change(title), *rest),
                )  # fmt: skip

        self._connections.run(work)

    def destroy_leftovers(self) -> None:
        """Clean up the tables whose rows were rewritten."""
        transaction = self._connections.run(transaction_number)
        self._clean_up(transaction, tables=_CONTENT)
