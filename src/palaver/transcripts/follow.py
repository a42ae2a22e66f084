"""Transcripts brought into a store and followed as they grow: nothing is stored twice.

Each conversation of a file becomes one of the store's. A record beside it says which file it is
from, and how many of the file's messages were stored, with their digest; it changes in the same
commit as the messages. At the next look the file's messages after those are appended. Where the
file says something else now (an answer went on, the user went back), the conversation is selected
anew in one change, unless somebody has changed it here meanwhile: then it stays as it is.
"""

from __future__ import annotations

import time
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from palaver.errors import AlreadyExists, Conflict, StoreDamaged, ValidationError
from palaver.messages import dump
from palaver.messages.decode import decode
from palaver.messages.ids import derive_id
from palaver.stores.open import printable_path
from palaver.transcripts.discover import first_line, format_of_transcript
from palaver.transcripts.importer import ORIGIN, choose_pieces, name_of
from palaver.transcripts.readers import each_conversation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from palaver.messages import Message
    from palaver.stores import Store
    from palaver.stores.records import Record
    from palaver.transcripts.discover import FoundTranscript
    from palaver.wire.notes import Note, ParsedConversation

__all__ = ["BroughtIn", "Follower", "bring_in", "is_brought_in"]

FILE: Final = "file"
"""The record, of the kind `ORIGIN`, that says how much of which file is stored."""
SEEN: Final = "seen"
"""The record, of the same kind, that says of which size and date a file was stored completely."""
_BUDGET: Final = 64 * 1024 * 1024
"""Bytes that one look of a follower reads, or one file where that is larger."""
_REST: Final = 20
"""A file that took a second to read is left alone for so many."""


class BroughtIn(NamedTuple):
    """What came of a conversation of a file, or of a file that could not be read."""

    action: Literal["created", "appended", "replaced", "unchanged", "kept", "busy", "failed"]
    """`kept`: the file says something else than before, and so does the conversation here; `busy`:
    somebody else changed it at the same moment."""
    path: Path
    conversation: str | None = None
    title: str | None = None
    messages: int = 0
    """How many messages the file has."""
    added: int = 0
    """How many of them are new to the store."""
    detail: str = ""
    notes: tuple[Note, ...] = ()


class _State(Struct, frozen=True):
    """How much of which file is stored."""

    path: str
    messages: int
    digest: str
    title: str | None

    def record(self) -> Record:
        """Return it as a record beside the conversation."""
        return (ORIGIN, FILE, dump(asdict(self)))


def bring_in(
    store: Store, found: FoundTranscript, *, owner: str | None = None
) -> Iterator[BroughtIn]:
    """Store the conversations of a transcript, or what is new in them; yield what came of each.

    Each conversation is stored in one change. A file that can't be read is `failed`, with the
    reason; the others go on.
    """
    complete = True
    for path in (found.path, *found.agents):
        taken: set[str] = set()
        try:
            for parsed in each_conversation(path, format_of_transcript(found, path)):
                if parsed.messages:
                    name = _choose_name(store, parsed, path, taken)
                    result = _store(store, name, parsed, path, owner)
                    complete = complete and result.action != "busy"
                    yield result
        except (ValidationError, StoreDamaged, OSError) as error:
            complete = False
            detail = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            yield BroughtIn("failed", path, detail=detail)
    if complete and found.conversation is not None and found.conversation in store:
        # its size and date were read before the file was: what was written since counts as new
        store.put_record(found.conversation, ORIGIN, SEEN, _signature(found))


def is_brought_in(store: Store, found: FoundTranscript) -> bool:
    """Tell whether the store has all of a file, by the file's name, size and date alone."""
    name = found.conversation
    return name is not None and name in store and _signature(found) == _seen(store, name)


def _signature(found: FoundTranscript) -> bytes:
    return dump([printable_path(str(found.path)), found.size, found.modified])


def _seen(store: Store, name: str) -> bytes | None:
    return store.records(name, ORIGIN).get(SEEN)


def digest_of(messages: Iterable[Message]) -> str:
    """Return a digest of messages, in order."""
    digest = blake2b(digest_size=16)
    for message in messages:
        digest.update(dump(message))
        digest.update(b"\n")
    return digest.hexdigest()


def _choose_name(store: Store, parsed: ParsedConversation, path: Path, taken: set[str]) -> str:
    """Return the id for a conversation of a file, the same at every look.

    A conversation without an id, or with one that belongs to another file that is still there,
    has an id that follows from the path.
    """
    own = name_of(parsed.about)
    if own is not None and own not in taken and own in store:
        state = _read_state(store, own)
        if (
            state is not None
            and state.path != printable_path(str(path))
            and Path(state.path).exists()
        ):
            own = None
    name = own if own is not None and own not in taken else None
    chosen = name or derive_id(
        f"{printable_path(str(path))}\n{parsed.about.get('id')}", parsed.messages[0].id
    )
    taken.add(chosen)
    return chosen


def _store(
    store: Store, name: str, parsed: ParsedConversation, path: Path, owner: str | None
) -> BroughtIn:
    messages, title = parsed.messages, _title_of(parsed)
    state = _State(printable_path(str(path)), len(messages), digest_of(messages), title)
    result = BroughtIn("created", path, name, title, len(messages), notes=parsed.notes)
    if name not in store:
        about = (ORIGIN, "about", dump(parsed.about))
        try:
            store.create(
                messages, id=name, title=title, owner=owner,
                records=(about, state.record()),
            )  # fmt: skip
        except AlreadyExists:
            return result._replace(action="busy", detail="another process has just stored it")
        return result._replace(added=len(messages))
    try:
        return _grow(store, messages, state, result)
    except Conflict:
        return result._replace(action="busy", detail="it was changed at the same moment")


def _title_of(parsed: ParsedConversation) -> str | None:
    """Return a title; an agent on the side has that of its session, and is named by its task."""
    given, said = str(parsed.about.get("title") or ""), first_line(parsed.messages)
    return (said or given if parsed.about.get("sidechain") else given or said) or None


def _grow(store: Store, messages: Sequence[Message], state: _State, result: BroughtIn) -> BroughtIn:
    """Bring a conversation that is there to what its file says now."""
    name = str(result.conversation)
    head = store.head(name)  # before the record: a change after this one is a conflict
    stored = _read_state(store, name) or _first_state(store, name)
    if stored is None:
        return result._replace(action="kept", detail="the store has another of this id")
    if len(messages) >= stored.messages and stored.digest == digest_of(messages[: stored.messages]):
        new = messages[stored.messages :]
        if new:
            store.get(name, last=1).extend(new, records=[state.record()], expect=head.version)
            result = result._replace(action="appended", added=len(new))
        else:
            if state != stored:
                store.put_records(name, [state.record()])
            result = result._replace(action="unchanged")
    else:
        history = store.get(name)
        if digest_of(history) != stored.digest:
            detail = "it was changed here, and the file says something else than before"
            return result._replace(action="kept", detail=detail)
        pieces = choose_pieces(history, messages)
        records = [state.record()]
        history.rewrite(pieces, reason="import", records=records, expect=head.version)
        added = sum(not isinstance(piece, range) for piece in pieces)
        result = result._replace(action="replaced", added=added)
    if state.title and head.title == stored.title != state.title:
        store.describe(name, title=state.title, tags=head.tags)
    return result


def _read_state(store: Store, name: str) -> _State | None:
    value = store.records(name, ORIGIN).get(FILE)
    try:
        return None if value is None else decode(value, _State)
    except msgspec.DecodeError as error:
        msg = f"{name}: how much of its file is stored can't be read: {error}"
        raise StoreDamaged(msg) from error


def _first_state(store: Store, name: str) -> _State | None:
    """Return how much was stored by an import that kept no state: its first version."""
    if "about" not in store.records(name, ORIGIN):
        return None
    first = store.get(name).at(0)
    return _State("", len(first), digest_of(first), store.head(name).title)


class Follower:
    """Follows transcripts: each look reads the files that changed since, within a budget.

    `find` gives the transcripts; it is called at every look, so new ones are noticed. What a look
    leaves for the next is `waiting`. A large file rests after it was read, in proportion to the
    time that took. All that a follower has to remember is in the store: one that was stopped goes
    on where it was.
    """

    def __init__(
        self,
        store: Store,
        find: Callable[[], Iterable[FoundTranscript]],
        *,
        owner: str | None = None,
        budget: int = _BUDGET,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Follow what `find` gives; what is stored belongs to the `owner`."""
        self.waiting = 0
        self._store = store
        self._find = find
        self._owner = owner
        self._budget = budget
        self._clock = clock
        self._seen: dict[Path, tuple[int, int]] = {}
        self._told: set[tuple[str, Path, str | None]] = set()
        self._resting: dict[Path, float] = {}

    def look(self) -> Iterator[BroughtIn]:
        """Read what has changed; yield what came of it, without what is unchanged."""
        left = self._budget
        self.waiting = 0
        begun = self._clock()
        due = [found for found in self._find() if self._is_new(found)]
        due.sort(key=lambda each: (self._resting.get(each.path, 0), -each.modified))
        for found in due:
            spent = left < self._budget
            if self._resting.get(found.path, 0) > begun or (spent and found.size > left):
                self.waiting += 1
                continue
            left -= max(found.size, 1)
            start = self._clock()
            busy = False
            for result in bring_in(self._store, found, owner=self._owner):
                busy = busy or result.action == "busy"
                if self._is_news(result):
                    yield result
            end = self._clock()
            self._resting[found.path] = end + _REST * (end - start)
            if busy:
                self.waiting += 1
            else:
                self._seen[found.path] = (found.size, found.modified)

    def _is_news(self, result: BroughtIn) -> bool:
        """Tell whether a result is worth telling; what stays as it is or fails is told once."""
        if result.action in {"kept", "failed"}:
            told = (result.action, result.path, result.conversation)
            known = told in self._told
            self._told.add(told)
            return not known
        return result.action not in {"unchanged", "busy"}

    def _is_new(self, found: FoundTranscript) -> bool:
        now = (found.size, found.modified)
        if found.path not in self._seen and is_brought_in(self._store, found):
            self._seen[found.path] = now
        return self._seen.get(found.path) != now
