"""Erasing in SQLite: tombstones in place of messages, and no trace of them in the index or records.

Everything here runs inside a transaction. The bytes of the rows that are replaced or deleted are
overwritten with it (`secure_delete`); the write-ahead log is emptied by the caller afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from palaver.stores.backend import refuse_unknown
from palaver.stores.erase import Traces
from palaver.stores.records import Erased, encode_body, label_hash, row_hash
from palaver.stores.sqlite.connections import QUERIES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import apsw

    from palaver.messages import Message
    from palaver.stores.records import BodyCodec
    from palaver.stores.sqlite.search import SQLiteSearchIndex

__all__ = ["delete_rows", "erase_rows", "label", "prune_rows"]


def erase_rows(
    writer: apsw.Connection,
    index: SQLiteSearchIndex,
    family: Sequence[tuple[str, int]],
    places: Sequence[tuple[int, int]],
    *,
    codec: BodyCodec,
    left: Callable[[Message], Message],
) -> Erased:
    """Replace the messages of a family at some places, and remove records with traces of them.

    A place is the number of a conversation and a position there.
    """
    rows: list[Any] = [writer.execute(QUERIES["row_at"], place).fetchone() for place in places]
    messages = [codec.message(row[1]) for row in rows]
    traces = Traces(messages)
    for row, message in zip(rows, messages, strict=True):
        _replace_body(writer, index, row, left(message))
    dropped: list[tuple[str, str, str]] = []
    for owner, cid in family:
        stored: list[Any] = writer.execute(QUERIES["all_records"], (cid,)).fetchall()
        for kind, name, value in stored:
            if traces.found_in(kind, name, codec.value(owner, kind, name, value)):
                writer.execute(QUERIES["drop_record"], (cid, kind, name))
                dropped.append((owner, kind, name))
        label(writer, cid, lambda erased, *labels: (erased + 1, *labels))
    return Erased(len(rows), tuple(dropped))


def prune_rows(
    writer: apsw.Connection,
    index: SQLiteSearchIndex,
    cid: int,
    positions: Sequence[int],
    *,
    codec: BodyCodec,
    left: Callable[[Message], Message],
) -> None:
    """Replace the messages of a conversation at some positions."""
    for position in positions:
        row: Any = writer.execute(QUERIES["row_at"], (cid, position)).fetchone()
        _replace_body(writer, index, row, left(codec.message(row[1])))
    label(writer, cid, lambda erased, *labels: (erased + 1, *labels))


def _replace_body(
    writer: apsw.Connection, index: SQLiteSearchIndex, row: tuple[Any, ...], left: Message
) -> None:
    """Replace a message by its tombstone, in its row and in the index."""
    number, body, *columns = row
    index.remove(number, columns[0], body)
    new = encode_body(left)
    mark = row_hash(new.encode(), *columns)
    writer.execute(QUERIES["bury"], (new, mark, number))
    index.add(number, columns[0], new)


def delete_rows(writer: apsw.Connection, index: SQLiteSearchIndex, cid: int) -> None:
    """Delete the rows of a conversation, also from the index."""
    for number, body in writer.execute(QUERIES["all_rows"], (cid,)):
        index.remove(number, cid, body)
    newest: int = writer.execute(QUERIES["newest"]).get
    for table in ("messages", "journal", "leases", "records", "conversations"):
        writer.execute(f"DELETE FROM {table} WHERE cid = ?", (cid,))  # noqa: S608 - from the list above
    writer.execute(QUERIES["keep_counting"], (newest,))
    writer.execute(QUERIES["index_again"])


def label(writer: apsw.Connection, cid: int, change: Callable[..., tuple[Any, ...]]) -> None:
    """Change a conversation's count of erasures, title, tags or owner, and its hash."""
    row: Any = writer.execute(QUERIES["labels"], (cid,)).fetchone()
    if row is None:  # another process has deleted it meanwhile
        refuse_unknown(f"number {cid}")
    *fixed, erased, title, tags, owner = row
    labels = change(erased, title, tags, owner)
    writer.execute(QUERIES["label"], (*labels, label_hash(*fixed, *labels), cid))
