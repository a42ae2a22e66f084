"""Conversations from a file into a store: looked through once, then read again and kept.

Each becomes one of the store's, with its title; what the file says about it as a whole is kept in a
record beside it. Each is kept in one change, whole or not at all. Where one fails, those before it
are taken back, except what somebody has changed or forked from meanwhile: the error names these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from palaver.errors import (
    AlreadyExists,
    PalaverError,
    StoreError,
    UnknownConversation,
    ValidationError,
)
from palaver.messages import dump, new_id
from palaver.messages.gate import check_name
from palaver.wire.report import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from palaver.stores import Store
    from palaver.wire.report import Note, Reading

    Progress = Callable[[int, int | None], None] | None

__all__ = ["ORIGIN", "Planned", "Transcript"]

ORIGIN: Final = "origin"
"""The kind of record that keeps what a file said about a conversation as a whole."""
_SHOWN: Final = 5
"""How many ids an error lists."""


class Planned(NamedTuple):
    """A conversation that shall be in the store."""

    id: str
    place: int
    title: str | None
    size: int


class Transcript:
    """A file on its way into a store.

    `known` are the ids that the store has already; `unnamed` says that one id was given for
    several conversations.

    >>> import palaver
    >>> from palaver.wire.transcripts import each_conversation
    >>> store, said = palaver.open(":memory:"), b'[{"role": "user", "content": "hi"}]'
    >>> transcript = Transcript(store, lambda: each_conversation(said))
    >>> transcript.look(), transcript.keep(), len(store.list().conversations)
    (None, None, 1)
    """

    def __init__(
        self, store: Store, readings: Callable[[], Iterator[Reading]], name: str | None = None
    ) -> None:
        """Take what reads the file from its beginning, as often as it is asked."""
        self.planned: list[Planned] = []
        self.notes: list[Note] = []
        self.known: list[str] = []
        self.unnamed = False
        self._store = store
        self._readings = readings
        self._name = name
        self._key = new_id()  # the first change of each conversation has it: it tells ours apart

    def look(self, progress: Progress = None) -> None:
        """Read everything and change nothing: which conversations there are, and what is lost."""
        ids: set[str] = set()
        for place, reading in enumerate(self._readings()):
            self.notes += reading.notes
            if not reading.messages:
                continue
            name = self._name or _id_of(reading, ids)
            self.unnamed = self.unnamed or name in ids
            ids.add(name)
            if name in self._store:
                self.known.append(name)
                continue
            title = reading.about.get("title")
            self.planned.append(
                Planned(name, place, str(title) if title else None, len(reading.messages))
            )
            if progress is not None:
                progress(len(ids), None)

    def keep(self, progress: Progress = None) -> None:
        """Read it again and keep it, each conversation in one change.

        Where that fails, what was kept is taken back. What somebody has changed or forked from
        meanwhile stays, and the error names it. After a kill nothing is taken back; what is there
        is whole, and whoever looks again finds it among the `known`.
        """
        kept: list[Planned] = []
        try:
            wanted = {planned.place: planned for planned in self.planned}
            for place, reading in enumerate(self._readings()):
                if place not in wanted:
                    continue
                planned = wanted[place]
                kept.append(planned)
                about = [(ORIGIN, "about", dump(reading.about))] if reading.about else []
                self._store.create(
                    reading.messages,
                    id=planned.id,
                    title=planned.title,
                    key=self._key,
                    records=about,
                )
                if progress is not None:
                    progress(len(kept), len(wanted))
        except BaseException as error:
            stays = [planned.id for planned in kept if not self._take_back(planned)]
            if stays:
                _tell_what_stays(error, stays)
            raise

    def _take_back(self, planned: Planned) -> bool:
        """Delete a conversation that was kept here, unless others have made something of it."""
        keeper = self._store.keeper
        try:
            head = keeper.head(planned.id)
            if keeper.keys(planned.id, -1, 0).get(0) != self._key:
                return True  # somebody else has begun it
            described = (head.title, head.tags) != (planned.title, ())
            if described or set(keeper.kinds(planned.id)) - {ORIGIN}:
                return False  # neither makes a version
            self._store.delete(planned.id, expect=0)
        except UnknownConversation:
            return True
        except (PalaverError, OSError):  # it has another version, or forks, or the store is gone
            return False
        return True

    def answer(self) -> dict[str, Any]:
        """What comes of it, for programs."""
        conversations = [
            {"conversation": planned.id, "title": planned.title, "messages": planned.size}
            for planned in self.planned
        ]
        return {"conversations": conversations, "known": self.known, **counted(self.notes)}


def _tell_what_stays(error: BaseException, stays: list[str]) -> None:
    """Raise an error that also says which conversations could not be taken back.

    What is no error but an interruption is not replaced: it gets a note.
    """
    more = f" and {len(stays) - _SHOWN:,} more" if len(stays) > _SHOWN else ""
    shown = ", ".join(map(repr, stays[:_SHOWN]))
    note = f"imported, and not taken back, for it was changed or can't be reached: {shown}{more}"
    if not isinstance(error, Exception):
        error.add_note(note)
        return
    why = str(error) if isinstance(error, PalaverError) else f"{type(error).__name__}: {error}"
    kind = AlreadyExists if isinstance(error, AlreadyExists) else StoreError
    raise kind(f"{why}; {note}") from error


def _id_of(reading: Reading, taken: set[str]) -> str:
    """The id that a conversation has, where it can be one in a store; else a new one."""
    about = reading.about
    name = about.get("id")
    if about.get("sidechain"):
        name = f"{about.get('parent')}:{name}"  # such an id is short, and good in its session only
    try:
        check_name(name)
    except ValidationError:
        return new_id()
    return new_id() if name in taken else str(name)
