"""Rows that lose what they say: tombstones in the place of messages, and their hashes and words.

Everything here runs inside a transaction that has locked the search index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from palaver.stores.postgres.connections import STATEMENTS
from palaver.stores.postgres.searching import Words
from palaver.stores.postgres.writing import tags_text
from palaver.stores.records import Erased
from palaver.stores.rows import body_of, message_of
from palaver.stores.sealing import row_hash
from palaver.stores.traces import Traces

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from palaver.messages import Message
    from palaver.stores.postgres.connections import Line

__all__ = ["erase_rows", "hollow_rows", "label"]


def erase_rows(
    line: Line, family: list[str], ids: Sequence[str], left: Callable[[Message], Message]
) -> Erased:
    """Bury all messages with some ids, and take away the records that give them away."""
    rows = line.execute(STATEMENTS["rows_of"], (family, list(ids))).fetchall()
    traces = Traces([message_of(row[0]) for row in rows])
    _bury(line, rows, left)
    gone = [
        (name, kind, called)
        for name, kind, called, value in line.execute(STATEMENTS["all_records"], (family,))
        if traces.are_in(kind, called, value)
    ]
    for name, kind, called in gone:
        line.execute(STATEMENTS["drop_record"], {"id": name, "kind": kind, "name": called})
    label(line, family, lambda erased, *said: (erased + 1, *said))
    return Erased(len(rows), tuple(gone))


def hollow_rows(
    line: Line, name: str, positions: Sequence[int], left: Callable[[Message], Message]
) -> None:
    """Bury the messages of a conversation at some positions."""
    _bury(line, line.execute(STATEMENTS["rows_at"], (name, list(positions))).fetchall(), left)
    label(line, [name], lambda erased, *said: (erased + 1, *said))


def _bury(line: Line, rows: list[tuple[Any, ...]], left: Callable[[Message], Message]) -> None:
    for said, *columns in rows:
        body = body_of(left(message_of(said)))
        name, position, *_ = columns
        mark = row_hash(body.encode(), *columns)
        line.execute(STATEMENTS["bury"], (body, mark, name, position))
        Words.replace(line, name, position, body)


def label(line: Line, names: list[str], change: Callable[..., tuple[Any, ...]]) -> int:
    """Change what is said of conversations, and their hashes; answer how many there are."""
    rows = line.execute(STATEMENTS["labels"], (names,)).fetchall()
    for *fixed, erased, title, tags in rows:
        said = change(erased, title, tags)
        mark = row_hash(b"", *fixed, *said[:-1], tags_text(said[-1]))
        line.execute(STATEMENTS["label"], (*said, mark, fixed[0]))
    return len(rows)
