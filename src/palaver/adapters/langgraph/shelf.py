"""One message channel in this process: the log's messages as LangChain's objects, made once.

Reading a thread again costs one look at where the conversation stands; the objects are at hand by
their place in the log. Writing finds what is new without looking at what is old: an object that was
handed out and comes back is known by its identity, and by its fields, which are compared with how
they were. (A change deep inside a field, such as in a dict of a dict, is not noticed.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from palaver.adapters.langchain.reading import from_langchain
from palaver.adapters.langchain.writing import CLASSES, to_langchain
from palaver.adapters.langgraph.naming import TIP

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_core.messages import BaseMessage

    from palaver.adapters.langchain.leftovers import Packer
    from palaver.history.view import View
    from palaver.messages import Message
    from palaver.stores import Store
    from palaver.stores.history import StoredHistory
    from palaver.stores.records import Record

__all__ = ["KINDS", "Face", "Moved", "Shelf", "Tip", "are_messages", "face_of"]

KINDS = frozenset(CLASSES.values())
"""The classes of messages that the log can hold: not their subclasses, and no removals."""
_HELD = 100_000


class Moved(Exception):  # noqa: N818 - nothing went wrong
    """Another changed the conversation first: look again, and decide again."""


class Tip(NamedTuple):
    """The last version that a saver made of a conversation, and the checkpoint it was for."""

    version: int
    checkpoint: str


class Face(NamedTuple):
    """A message as it was handed out, and its fields as they were then."""

    message: BaseMessage
    fields: dict[str, Any]


def face_of(message: BaseMessage) -> Face:
    """A message as it is now."""
    return Face(message, vars(message).copy())


def are_messages(value: object, known: Sequence[BaseMessage] = ()) -> bool:
    """Tell whether a channel's value is a list of messages that the log can hold.

    What it begins with may be `known` to be such messages: then only the others are looked at.

    >>> from langchain_core.messages import HumanMessage
    >>> are_messages([HumanMessage("hi")]), are_messages(["hi"]), are_messages([])
    (True, False, False)
    """
    if type(value) is not list or not value:
        return False
    new = value[len(known) :] if value[: len(known)] == known else value
    return KINDS.issuperset(map(type, new))


class Shelf:
    """A conversation of a store, as LangChain's messages."""

    def __init__(self, store: Store, conversation: str) -> None:
        """Look at a conversation; nothing of it is read yet."""
        self._keeper = store.keeper
        self.history: StoredHistory = store.get(conversation)
        head = self._keeper.head(conversation)
        self._born, self._erased = head.created, head.erased
        self._faces: dict[int, tuple[Face, ...]] = {}
        self._places: dict[str | None, list[int]] = {}
        self.version = -1  # of what is in the lists
        self._messages: list[BaseMessage] = []
        self._live: list[dict[str, Any]] = []  # their fields, as they are
        self._fields: list[dict[str, Any]] = []  # and as they were
        self._tip = Tip(-1, "")
        self._tipped = -1  # the version of the conversation that the tip is known for

    @property
    def name(self) -> str:
        """The conversation's id."""
        return self.history.id

    def fork(self, store: Store, name: str) -> Shelf:
        """A conversation that begins as this one is, with the same objects."""
        self.history.fork(id=name)
        other = Shelf(store, name)
        for position, faces in self._faces.items():
            other._shelve(position, faces)
        return other

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def lives(self) -> bool:
        """Tell whether it is still the same conversation."""
        return self._keeper.head(self.name).created == self._born

    def look(self) -> bool:
        """See what others have done meanwhile; False where it is not the same conversation."""
        head = self._keeper.head(self.name)
        if head.created != self._born:
            return False
        if head.erased != self._erased:
            self._erased = head.erased
            self._faces.clear()
            self._places.clear()
            self.version = -1
            self.history.refresh()
        if head.version != self.history.version:
            self.history.refresh()
        return True

    @property
    def tip(self) -> Tip:
        """What a saver last made of it, as of the version that is at hand."""
        if self._tipped != self.history.version:
            found = self._keeper.records(self.name, TIP).get("")
            version, _, checkpoint = (found or b"-1:").decode().partition(":")
            self._tip, self._tipped = Tip(int(version), checkpoint), self.history.version
        return self._tip

    def read(self, version: int, packer: Packer) -> list[BaseMessage]:
        """The messages at a version; the list is the caller's."""
        if version == self.version and self.untouched():
            return self._messages[:]
        view = self.history.at(version)
        if version == self.history.version:
            self._lay_out(view, packer)
            return self._messages[:]
        return [face.message for face in self._of_view(view, packer)]

    def at(self, positions: Iterable[int], packer: Packer) -> list[BaseMessage]:
        """The messages at some places in the log."""
        return [
            face.message
            for position in positions
            for face in self._of(position, position + 1, packer)[0]
        ]

    def untouched(self) -> bool:
        """Tell whether the messages that were last read or written are still as they were."""
        return self._live == self._fields

    def _lay_out(self, view: View, packer: Packer) -> None:
        pairs = self._of_view(view, packer)
        self._messages = [face.message for face in pairs]
        self._live = [vars(message) for message in self._messages]
        self._fields = [face.fields for face in pairs]
        self.version = view.version

    def _of_view(self, view: View, packer: Packer) -> list[Face]:
        return [
            face
            for start, stop in view.ranges()
            for faces in self._of(start, stop, packer)
            for face in faces
        ]

    def _of(self, start: int, stop: int, packer: Packer) -> list[tuple[Face, ...]]:
        """The faces of a stretch of the log; what is not at hand, or was changed, is made anew."""
        missing = [
            position
            for position in range(start, stop)
            if (faces := self._faces.get(position)) is None
            or not all(vars(face.message) == face.fields for face in faces)
        ]
        if missing:
            if len(self._faces) > _HELD:
                self._faces.clear()
                self._places.clear()
                missing = list(range(start, stop))
            first, last = missing[0], missing[-1] + 1
            wanted = frozenset(missing)
            log = self.history.log.log
            for position, message in enumerate(log.between(first, last), first):
                if position in wanted:
                    made = to_langchain(message, packer=packer)
                    self._shelve(position, tuple(map(face_of, made)))
        return [self._faces[position] for position in range(start, stop)]

    def _shelve(self, position: int, faces: tuple[Face, ...]) -> None:
        self._faces[position] = faces
        for face in faces:
            places = self._places.setdefault(face.fields["id"], [])
            if position not in places:
                places.append(position)

    # ── finding ─────────────────────────────────────────────────────────────────────────────────

    def place_of(self, message: BaseMessage) -> int | None:
        """Where in the log a message stands alone and as it is, as far as is known here."""
        for position in reversed(self._places.get(message.id, ())):
            faces = self._faces[position]
            if len(faces) == 1 and _is(faces[0], message):
                return position
        return None

    def begins(self, value: list[BaseMessage]) -> bool:
        """Tell whether a list begins with the same object as what was last read or written."""
        return bool(self._messages) and bool(value) and value[0] is self._messages[0]

    def growth(self, value: list[BaseMessage], *, sure: bool) -> int | None:
        """How many messages of a list are there already, if the rest only comes after them.

        Whether one of them was changed in place is looked at, unless the caller is `sure`.
        """
        count = len(self._messages)
        # comparing lists looks at identity first, in C: no more is needed for what was handed out
        same = len(value) >= count and value[:count] == self._messages
        return count if same and (sure or self.untouched()) else None

    def pieces(self, value: list[BaseMessage]) -> list[range | BaseMessage]:
        """The stretches of the log that a list is made of, and the messages that are not there."""
        found: list[range | BaseMessage] = []
        used: set[int] = set()
        index = 0
        while index < len(value):
            message = value[index]
            position, length = self._next(value, index, used)
            if position is None:
                found.append(message)
                index += 1
                continue
            used.add(position)
            index += length
            last = found[-1] if found else None
            if isinstance(last, range) and last.stop == position:
                found[-1] = range(last.start, position + 1)
            else:
                found.append(range(position, position + 1))
        return found

    def _next(self, value: list[BaseMessage], index: int, used: set[int]) -> tuple[int | None, int]:
        """The place of the messages at an index, and how many of them it stands for."""
        for position in reversed(self._places.get(value[index].id, ())):
            faces = self._faces[position]
            here = value[index : index + len(faces)]
            if position not in used and len(here) == len(faces) and all(map(_is, faces, here)):
                return position, len(faces)
        return None, 0

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    @property
    def end(self) -> int:
        """Where the next message of the log will stand."""
        return len(self.history.log)

    def extend(
        self,
        new: list[BaseMessage],
        checkpoint: str,
        records: Sequence[Record],
        packer: Packer,
    ) -> None:
        """Add messages after all there are; `Moved` where another came first."""
        first, seen = self.end, self.history.version
        tip = Tip(seen + 1, checkpoint)
        faces = tuple(map(face_of, new))  # before they are kept: one may be changed meanwhile
        self.history.extend(
            self._made(new, packer), records=(*records, _record(tip)), unless=_still(seen)
        )
        follows = self.version == seen
        for position, face in enumerate(faces, first):
            self._shelve(position, (face,))
            if follows:
                self._messages.append(face.message)
                self._live.append(vars(face.message))
                self._fields.append(face.fields)
        if follows:
            self.version = tip.version
        self._tip, self._tipped = tip, tip.version

    def select(
        self,
        pieces: list[range | BaseMessage],
        checkpoint: str,
        records: Sequence[Record],
        packer: Packer,
    ) -> None:
        """Make the current selection these pieces; `Moved` where another came first."""
        first, seen = self.end, self.history.version
        tip = Tip(seen + 1, checkpoint)
        new = [piece for piece in pieces if not isinstance(piece, range)]
        faces = tuple(map(face_of, new))
        made = iter(self._made(new, packer))
        whole = [piece if isinstance(piece, range) else next(made) for piece in pieces]
        self.history.rewrite(
            whole,
            reason="LANGGRAPH",
            of_log=True,
            records=(*records, _record(tip)),
            unless=_still(seen),
        )
        for position, face in enumerate(faces, first):
            self._shelve(position, (face,))
        self._lay_out(self.history.view, packer)
        self._tip, self._tipped = tip, tip.version

    def restore(self, version: int, checkpoint: str) -> None:
        """Make the current selection that of a version again, for a checkpoint that has it."""
        self.history.restore(version)
        tip = Tip(self.history.version, checkpoint)
        self._keeper.keep(self.name, [_record(tip)])
        self._tip, self._tipped = tip, tip.version

    def _made(self, messages: Iterable[BaseMessage], packer: Packer) -> list[Message]:
        name = self.name
        return [from_langchain(message, session=name, packer=packer) for message in messages]


def _is(face: Face, message: BaseMessage) -> bool:
    """Tell whether a message is one that was handed out, or is equal to it as it was."""
    if face.message is not message and type(face.message) is not type(message):
        return False
    return (
        face.fields == vars(message)
        and face.message.__pydantic_extra__ == message.__pydantic_extra__
    )


def _record(tip: Tip) -> Record:
    return TIP, "", f"{tip.version}:{tip.checkpoint}".encode()


def _still(version: int) -> Any:  # noqa: ANN401 - a check of a view
    def check(view: View) -> None:
        if view.version != version:
            raise Moved

    return check
