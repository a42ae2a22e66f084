"""Import of a file's conversations into a store: read once to plan, then again to store.

Each becomes a conversation of the store, with its title; what the file says about it is stored in a
record beside it. Each is stored in one change, whole or not at all; a branch of another becomes a
fork of that. Where one fails, those before it are deleted again, except those that somebody has
changed or forked from meanwhile: the error names these.
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
from palaver.messages.limits import check_name
from palaver.wire.notes import notes_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from palaver.messages import Message
    from palaver.stores import Store
    from palaver.wire.notes import Note, ParsedConversation

    Progress = Callable[[int, int | None], None] | None

__all__ = ["ORIGIN", "PlannedImport", "TranscriptImport", "choose_pieces", "name_of"]

ORIGIN: Final = "origin"
"""The kind of record that holds what a file said about a conversation."""
_SHOWN: Final = 5
"""How many ids an error lists."""


class PlannedImport(NamedTuple):
    """A conversation that is to be stored."""

    id: str
    place: int
    title: str | None
    size: int
    parent: str | None = None
    """The conversation that it branched from, where it is to be a fork of that."""


class TranscriptImport:
    """The import of one file into a store.

    `plan` reads the file and changes nothing, `run` stores what was planned. `known` are the ids
    that the store has already; `unnamed` says that one id was given for several conversations.

    >>> import palaver
    >>> from palaver.transcripts import each_conversation
    >>> store, said = palaver.open(":memory:"), b'[{"role": "user", "content": "hi"}]'
    >>> transcript = TranscriptImport(store, lambda: each_conversation(said))
    >>> transcript.plan(), transcript.run(), len(store.list().conversations)
    (None, None, 1)
    """

    def __init__(
        self,
        store: Store,
        conversations: Callable[[], Iterator[ParsedConversation]],
        name: str | None = None,
        *,
        owner: str | None = None,
    ) -> None:
        """Import into a store; `conversations` reads the file from its beginning at every call.

        What is imported belongs to the `owner`.
        """
        self._owner = owner
        self.planned: list[PlannedImport] = []
        self.notes: list[Note] = []
        self.known: list[str] = []
        self.unnamed = False
        self._store = store
        self._conversations = conversations
        self._name = name
        self._key = new_id()  # the first change of each conversation has it: it tells ours apart

    def plan(self, progress: Progress = None) -> None:
        """Read everything and change nothing: find the conversations, and what is lost."""
        ids: set[str] = set()
        parents: dict[object, str] = {}
        for place, parsed in enumerate(self._conversations()):
            self.notes += parsed.notes
            if not parsed.messages:
                continue
            about = parsed.about
            parent = parents.get(about.get("parent")) if "branch" in about else None
            name = self._name or _id_of(parsed, ids)
            if self._name is not None and parent is not None:
                name = f"{parent}:{about.get('id')}"
            self.unnamed = self.unnamed or name in ids
            ids.add(name)
            parents.setdefault(about.get("id"), name)
            if name in self._store and not self._is_begun(name, parent):
                self.known.append(name)
                continue
            title = str(about["title"]) if about.get("title") else None
            self.planned.append(PlannedImport(name, place, title, len(parsed.messages), parent))
            if progress is not None:
                progress(len(ids), None)

    def _is_begun(self, name: str, parent: str | None) -> bool:
        """Tell whether a fork was made, and a kill came before it got its own messages."""
        head = self._store.head(name)
        return parent is not None and (head.parent, head.version) == (parent, 0)

    def run(self, progress: Progress = None) -> None:
        """Read the file again and store each conversation in one change; a branch is a fork.

        Where that fails, what was stored is deleted again. What somebody has changed or forked from
        meanwhile stays, and the error names it. After a kill nothing is deleted; what is there is
        whole, and the next `plan` finds it among the `known`.
        """
        stored: list[PlannedImport] = []
        try:
            wanted = {planned.place: planned for planned in self.planned}
            for place, parsed in enumerate(self._conversations()):
                if place not in wanted:
                    continue
                planned = wanted[place]
                stored.append(planned)
                if planned.parent is None:
                    about = [(ORIGIN, "about", dump(parsed.about))] if parsed.about else []
                    self._store.create(
                        parsed.messages,
                        id=planned.id,
                        title=planned.title,
                        owner=self._owner,
                        key=self._key,
                        records=about,
                    )
                else:
                    self._fork(planned, planned.parent, parsed)
                if progress is not None:
                    progress(len(stored), len(wanted))
        except BaseException as error:
            back = sorted(stored, key=lambda each: each.parent is None)  # forks come first
            stays = [planned.id for planned in back if not self._delete_again(planned)]
            if stays:
                _raise_with_rest(error, stays)
            raise

    def _fork(self, planned: PlannedImport, parent: str, parsed: ParsedConversation) -> None:
        """Store a branch as a fork: it shares the messages that both have."""
        store = self._store
        if planned.id in store:
            fork = store.get(planned.id)
        else:
            fork = store.get(parent).fork(at=0, id=planned.id, key=self._key)
        fork.rewrite(choose_pieces(fork, parsed.messages), reason="import")
        store.put_record(planned.id, ORIGIN, "about", dump(parsed.about))

    def _delete_again(self, planned: PlannedImport) -> bool:
        """Delete a conversation that was stored here; return False where others changed it."""
        store = self._store
        try:
            head = store.head(planned.id)
            if store.keys(planned.id, -1, 0).get(0) != self._key:
                return True  # somebody else has begun it
            described = (head.title, head.tags) != (planned.title, ())
            if described or set(store.kinds(planned.id)) - {ORIGIN}:
                return False  # neither makes a version
            made = 0 if planned.parent is None else min(head.version, 1)
            store.delete(planned.id, expect=made)
        except UnknownConversation:
            return True
        except (PalaverError, OSError):  # it has another version, or forks, or the store is gone
            return False
        return True

    def report(self) -> dict[str, Any]:
        """Return what was planned, for programs."""
        conversations = [
            {"conversation": planned.id, "title": planned.title, "messages": planned.size}
            for planned in self.planned
        ]
        return {"conversations": conversations, "known": self.known, **notes_report(self.notes)}


def _raise_with_rest(error: BaseException, stays: list[str]) -> None:
    """Raise an error that also says which conversations could not be deleted again.

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


def choose_pieces(history: Iterable[Message], wanted: Iterable[Message]) -> list[range | Message]:
    """Return what to select so that a history says what is wanted: its own ranges, and the new.

    >>> from palaver.messages import user
    >>> a, b, c = user("a"), user("b"), user("c")
    >>> choose_pieces([a, b], [a, b, c]) == [range(0, 2), c]
    True
    """
    places = {message.id: (index, message) for index, message in enumerate(history)}
    pieces: list[range | Message] = []
    for message in wanted:
        index, known = places.get(message.id, (-1, None))
        if known != message:
            pieces.append(message)
        elif pieces and isinstance(last := pieces[-1], range) and last.stop == index:
            pieces[-1] = range(last.start, index + 1)
        else:
            pieces.append(range(index, index + 1))
    return pieces


def name_of(about: Mapping[str, Any]) -> str | None:
    """Return the id that a conversation has, where a store can use it; else None.

    >>> name_of({"id": "a7", "parent": "s1", "sidechain": True}), name_of({})
    ('s1:a7', None)
    """
    name = about.get("id")
    if about.get("sidechain") or "branch" in about:
        name = f"{about.get('parent')}:{name}"  # such an id is short, and good in its session only
    try:
        check_name(name)
    except ValidationError:
        return None
    return str(name)


def _id_of(parsed: ParsedConversation, taken: set[str]) -> str:
    """Return the id that a conversation has, where it is free; else a new one."""
    name = name_of(parsed.about)
    return new_id() if name is None or name in taken else name
