"""A file in any format that palaver reads, its own snapshots among them."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Final

from palaver.stores import open_store
from palaver.stores.snapshots import import_conversation
from palaver.wire.report import Note, Reading
from palaver.wire.transcripts.detecting import detect
from palaver.wire.transcripts.reading import FORMATS, each_conversation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["NAMES", "SNAPSHOTS", "format_of", "readings"]

SNAPSHOTS: Final = frozenset(("palaver-1", "palaver-2", "palaver-lines"))
"""What `palaver export` writes, as `detect` calls it."""

_OURS: Final = "palaver"
_PLAIN: Final = "messages"
NAMES: Final = (_OURS, *sorted(set(FORMATS) - {_PLAIN}))
"""The names that a person may give a format; `palaver` stands for messages and for snapshots."""


def format_of(source: bytes | Path, named: str | None) -> str | None:
    """The format of a file, by the names of `detect`; None where nobody knows it."""
    if named not in {None, _OURS}:
        return named
    found = detect(source)
    if named == _OURS:
        return found if found in SNAPSHOTS else _PLAIN
    return found


def readings(source: bytes | Path, origin: str) -> Iterator[Reading]:
    """Every conversation of a file, one by one; of palaver's own snapshots, as it is now.

    >>> said = b'[{"role": "user", "content": "hi"}]'
    >>> [len(reading.messages) for reading in readings(said, "messages")]
    [1]
    """
    if origin in SNAPSHOTS:
        return iter((_snapshot(source),))
    return each_conversation(source, origin)


def _snapshot(source: bytes | Path) -> Reading:
    with (
        open_store(":memory:") as store,
        BytesIO(source) if isinstance(source, bytes) else source.open("rb") as stream,
    ):
        history = import_conversation(store, stream)
        view = history.view
        about = {"title": history.title, "teamTask": view.team_task}
        notes: list[Note] = []
        if history.version or view.marks:
            detail = "only what the conversation is now is carried: no earlier versions, no marks"
            notes.append(Note("lost", "$", "versions", detail))
        known = {name: item for name, item in about.items() if item is not None}
        return Reading(tuple(view), tuple(notes), known)
