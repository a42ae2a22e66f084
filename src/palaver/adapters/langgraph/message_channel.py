"""A message channel: a conversation as LangChain's messages, which are converted once.

Reading again costs one read of the conversation's head; the objects are cached by their position in
the log. Writing finds new messages without converting the old ones: an object that was given to the
graph and comes back is recognized by its identity, and its fields are compared with what they were.
(What is compared is a copy of the dicts and lists too, so that a tool call's arguments that a human
corrected in place are stored.)

`add_messages` is LangGraph's reducer, faster where a list only grows. Looking at every message of a
long thread is what takes time: the objects are in no cache of the processor. A list that a channel
gave out, or that `add_messages` made of one, is known by its identity. The channel has the ids of
its messages, and compares their fields once after a node ran, for the reducer and the checkpoint.
Messages that came one by one lie all over the memory; now and then they are copied, so that they
lie side by side, and then looking at all of them takes half the time.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from copy import copy
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, cast
from weakref import WeakValueDictionary

from langchain_core.messages import AnyMessage, BaseMessageChunk, convert_to_messages
from langgraph.graph.message import add_messages as add_any
from typing_extensions import TypedDict

from palaver.adapters.langchain.convert import MESSAGE_CLASSES, from_langchain, to_langchain
from palaver.errors import UnknownConversation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from langchain_core.messages import BaseMessage
    from langgraph.graph.message import Messages

    from palaver.adapters.langchain.convert import Serializer
    from palaver.history.view import View
    from palaver.messages import Message
    from palaver.stores import Store, StoredHistory
    from palaver.stores.records import Record

__all__ = [
    "MESSAGE_TYPES",
    "ConversationMoved",
    "MessageChannel",
    "MessageSnapshot",
    "MessagesState",
    "SaverTip",
    "add_messages",
    "are_messages",
    "take_snapshot",
]


MESSAGE_TYPES = frozenset(MESSAGE_CLASSES.values())
"""The classes of messages that the log can hold: not their subclasses, and no removals."""
_PLAIN_TYPES = frozenset(kind for kind in MESSAGE_TYPES if not issubclass(kind, BaseMessageChunk))
_UNCONVERTED: Final = (str, tuple, dict)
"""What LangGraph makes messages of."""
TIP: Final = "langgraph-tip"
"""The last version that the saver made of a conversation, and the checkpoint it made it for."""
_MAX_SNAPSHOTS = 100_000
_MAX_SCATTERED: Final = 500
"""So many messages may come one by one, and a quarter of all, before all of them are copied."""


class ConversationMoved(Exception):  # noqa: N818 - nothing went wrong
    """The conversation was changed by another meanwhile: plan the change again."""


class SaverTip(NamedTuple):
    """The last version that a saver made of a conversation, and the checkpoint it was for."""

    version: int
    checkpoint: str


class MessageSnapshot(NamedTuple):
    """A message that was given to the graph, and its fields as they were then."""

    message: BaseMessage
    fields: dict[str, Any]


def take_snapshot(message: BaseMessage) -> MessageSnapshot:
    """Take a snapshot of a message as it is now."""
    return MessageSnapshot(message, _copy(vars(message)))


def _copy_snapshot(snapshot: MessageSnapshot) -> MessageSnapshot:
    """Copy a message that is as it was."""
    message = copy(snapshot.message)
    vars(message).update(_copy(snapshot.fields))
    return MessageSnapshot(message, _copy(snapshot.fields))


def _copy(value: Any) -> Any:  # noqa: ANN401 - a dict or a list
    """Copy a dict or a list, and those in it; a node on another thread may be changing them."""
    copied = value.copy()
    for key, item in copied.items() if type(copied) is dict else enumerate(copied):
        if type(item) is dict or type(item) is list:
            copied[key] = _copy(item)
    return copied


class _Loaded(NamedTuple):
    """The messages of a version, their fields as they are, and as they were."""

    messages: list[BaseMessage]
    fields: list[dict[str, Any]]
    given: list[dict[str, Any]]

    def append(self, snapshot: MessageSnapshot) -> None:
        self.messages.append(snapshot.message)
        self.fields.append(vars(snapshot.message))
        self.given.append(snapshot.fields)  # the last: another thread may be looking

    def is_unchanged(self, start: int = 0, stop: int | None = None) -> bool:
        """Tell whether messages are as they were."""
        return self.fields[start:stop] == self.given[start:stop]


class _Given(NamedTuple):
    """A list that the graph was given, or that `add_messages` made of one."""

    value: list[BaseMessage]
    is_new: bool = False
    """Whether no node has had it yet, so that nobody can have changed its messages."""
    checked: int = 0
    """How many of its messages were as they were when it was made."""


_MAX_GIVEN: Final = 4
_channels: Final[WeakValueDictionary[int, MessageChannel]] = WeakValueDictionary()
"""The channels that know a list, by its identity."""


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
    return MESSAGE_TYPES.issuperset(map(type, new))


class MessageChannel:
    """A conversation of a store, as LangChain's messages."""

    def __init__(self, store: Store, conversation: str) -> None:
        """Open a conversation; its messages are not read yet."""
        self._store = store
        self.history: StoredHistory = store.get(conversation)
        head = self._store.head(conversation)
        self._created, self._erased = head.created, head.erased
        self._snapshots: dict[int, tuple[MessageSnapshot, ...]] = {}
        self._positions: dict[object, dict[int, None]] = {}  # by what `_key` says, in order
        self.version = -1  # of what is loaded
        self._loaded = _Loaded([], [], [])
        self._scattered = 0  # so many of the messages that were converted or added came one by one
        self._are_plain = True  # all messages that were converted or added, and have ids
        self._given: OrderedDict[int, _Given] = OrderedDict()
        self._tip = SaverTip(-1, "")
        self._tip_version = -1  # the version of the conversation that the tip is known for

    @property
    def name(self) -> str:
        """The conversation's id."""
        return self.history.id

    def fork(self, store: Store, name: str) -> MessageChannel:
        """Fork the conversation; the fork shares the message objects."""
        self.history.fork(id=name)
        other = MessageChannel(store, name)
        for position, snapshots in self._snapshots.items():
            other._add(position, snapshots)
        return other

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def is_current(self) -> bool:
        """Tell whether it is still the same conversation."""
        return self._store.head(self.name).created == self._created

    def refresh(self) -> bool:
        """Read the changes of others; False if it is no longer the same conversation."""
        head = self._store.head(self.name)
        if head.created != self._created:
            return False
        if head.erased != self._erased:
            self._erased = head.erased
            self._snapshots.clear()
            self._positions.clear()
            self.version = -1
            self.history.refresh()
        if head.version != self.history.version:
            self.history.refresh()
        return True

    @property
    def tip(self) -> SaverTip:
        """The last change by a saver, as of the version that is loaded."""
        if self._tip_version != self.history.version:
            found = self._store.records(self.name, TIP).get("")
            version, _, checkpoint = (found or b"-1:").decode().partition(":")
            self._tip, self._tip_version = SaverTip(int(version), checkpoint), self.history.version
        return self._tip

    def read(
        self, version: int, serializer: Serializer, *, paused: bool = False
    ) -> list[BaseMessage]:
        """Return the messages at a version, as a new list.

        Where the graph is `paused`, its nodes may change them before anything is added.
        """
        if version == self.version and self.is_unchanged():
            if self._scattered > max(_MAX_SCATTERED, len(self._loaded.messages) // 4):
                self._copy_all(self.history.at(version), serializer)
            return self._give(is_new=not paused)
        view = self.history.at(version)
        if version == self.history.version:
            self._load(view, serializer)
            return self._give(is_new=not paused)
        return [snapshot.message for snapshot in self._snapshots_of_view(view, serializer)]

    def at(self, positions: Iterable[int], serializer: Serializer) -> list[BaseMessage]:
        """Return the messages at some positions in the log."""
        return [
            snapshot.message
            for position in positions
            for snapshot in self._snapshots_between(position, position + 1, serializer)[0]
        ]

    def is_unchanged(self) -> bool:
        """Tell whether the messages that were last read or written are still as they were."""
        return self._loaded.is_unchanged()

    def _load(self, view: View, serializer: Serializer) -> None:
        pairs = self._snapshots_of_view(view, serializer)
        self._loaded = _Loaded(
            [snapshot.message for snapshot in pairs],
            [vars(snapshot.message) for snapshot in pairs],
            [snapshot.fields for snapshot in pairs],
        )
        self.version = view.version

    def _copy_all(self, view: View, serializer: Serializer) -> None:
        """Copy the messages of a view, which are as they were, so that they lie side by side."""
        for start, stop in view.ranges():
            for position in range(start, stop):
                if position in self._snapshots:
                    snapshots = map(_copy_snapshot, self._snapshots[position])
                    self._snapshots[position] = tuple(snapshots)
        self._load(view, serializer)
        self._scattered = 0

    def _snapshots_of_view(self, view: View, serializer: Serializer) -> list[MessageSnapshot]:
        return [
            snapshot
            for start, stop in view.ranges()
            for snapshots in self._snapshots_between(start, stop, serializer)
            for snapshot in snapshots
        ]

    def _snapshots_between(
        self, start: int, stop: int, serializer: Serializer
    ) -> list[tuple[MessageSnapshot, ...]]:
        """Return the snapshots of a range of the log; missing or changed ones are made anew."""
        missing = [
            position
            for position in range(start, stop)
            if (snapshots := self._snapshots.get(position)) is None
            or not all(vars(snapshot.message) == snapshot.fields for snapshot in snapshots)
        ]
        if missing:
            if len(self._snapshots) > _MAX_SNAPSHOTS:
                self._snapshots.clear()
                self._positions.clear()
                missing = list(range(start, stop))
            first, last = missing[0], missing[-1] + 1
            wanted = frozenset(missing)
            log = self.history.log.log
            for position, message in enumerate(log.between(first, last), first):
                if position in wanted:
                    made = to_langchain(message, serializer=serializer)
                    self._add(position, tuple(map(take_snapshot, made)))
            if not self.is_current():  # what was read may be of another conversation of the name
                msg = f"the conversation {self.name!r} is no longer the same"
                raise UnknownConversation(msg)
        return [self._snapshots[position] for position in range(start, stop)]

    def _add(self, position: int, snapshots: tuple[MessageSnapshot, ...]) -> None:
        self._snapshots[position] = snapshots
        for snapshot in snapshots:
            is_plain = type(snapshot.message) in _PLAIN_TYPES and snapshot.fields["id"] is not None
            self._are_plain = self._are_plain and is_plain
            self._positions.setdefault(_key(snapshot.fields), {})[position] = None

    # ── the lists that the graph has ────────────────────────────────────────────────────────────

    def _give(self, *, is_new: bool) -> list[BaseMessage]:
        """Return what is loaded, as a new list."""
        value = self._loaded.messages[:]
        self._note(_Given(value, is_new=is_new))
        return value

    def _note(self, given: _Given) -> None:
        self._given[id(given.value)] = given
        _channels[id(given.value)] = self
        if len(self._given) > _MAX_GIVEN:
            _, oldest = self._given.popitem(last=False)
            _channels.pop(id(oldest.value), None)

    def join(
        self, left: list[BaseMessage], new: list[BaseMessage], ids: Collection[str | None]
    ) -> list[BaseMessage] | None:
        """Return a list that was given out with new messages behind it, as a new list.

        None if that can't be told without a look at every message of it, or if it has one of the
        ids. What the graph has had is compared with what it was, but no more.
        """
        given, loaded = self._given.pop(id(left), None), self._loaded
        if given is None or given.value is not left or not self._are_plain:
            return None
        _channels.pop(id(left), None)
        count = min(len(loaded.given), len(left))
        rest = left[count:]
        if left[:count] != loaded.messages[:count] or not _PLAIN_TYPES.issuperset(map(type, rest)):
            return None
        if not given.is_new and not loaded.is_unchanged(0, count):
            return None
        if any(each in self._positions for each in ids) or not _ids_of(rest).isdisjoint(ids):
            return None
        joined = left + new
        self._note(_Given(joined, checked=0 if given.is_new else count))
        return joined

    # ── finding ─────────────────────────────────────────────────────────────────────────────────

    def position_of(self, message: BaseMessage) -> int | None:
        """Return the position in the log of an unchanged message, if it is cached."""
        for position in reversed(self._positions.get(_key(vars(message)), {})):
            snapshots = self._snapshots[position]
            if len(snapshots) == 1 and _is_same(snapshots[0], message):
                return position
        return None

    def begins(self, value: list[BaseMessage]) -> bool:
        """Tell whether a list begins with the same object as what was last read or written."""
        messages = self._loaded.messages
        return bool(messages) and bool(value) and value[0] is messages[0]

    def growth(self, value: list[BaseMessage], *, sure: bool) -> int | None:
        """Return how many messages of a list are stored, if the rest only comes after them.

        Whether one of them was changed in place is looked at, unless the caller is `sure` or
        `add_messages` has just looked.
        """
        loaded = self._loaded
        count = len(loaded.messages)
        # comparing lists looks at identity first, in C: no more is needed for what was given out
        if len(value) < count or value[:count] != loaded.messages:
            return None
        given = self._given.get(id(value))
        checked = given.checked if given is not None and given.value is value else 0
        return count if sure or loaded.is_unchanged(checked) else None

    def pieces(self, value: list[BaseMessage]) -> list[range | BaseMessage]:
        """Split a list into ranges of the log and messages that are not in it."""
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
        """The position of the messages at an index, and how many of them it holds."""
        for position in reversed(self._positions.get(_key(vars(value[index])), {})):
            snapshots = self._snapshots[position]
            here = value[index : index + len(snapshots)]
            if (
                position not in used
                and len(here) == len(snapshots)
                and all(map(_is_same, snapshots, here))
            ):
                return position, len(snapshots)
        return None, 0

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    @property
    def end(self) -> int:
        """The position of the next message in the log."""
        return len(self.history.log)

    def extend(
        self,
        new: list[BaseMessage],
        checkpoint: str,
        records: Sequence[Record],
        serializer: Serializer,
    ) -> None:
        """Append messages; `ConversationMoved` if another change came first."""
        first, seen = self.end, self.history.version
        tip = SaverTip(seen + 1, checkpoint)
        snapshots = tuple(
            map(take_snapshot, new)
        )  # before they are stored, since one may be changed meanwhile
        self.history.extend(
            self._convert(new, serializer),
            records=(*records, _record(tip)),
            unless=_unless_moved(seen),
        )
        follows = self.version == seen
        self._scattered += len(snapshots)
        for position, snapshot in enumerate(snapshots, first):
            self._add(position, (snapshot,))
            if follows:
                self._loaded.append(snapshot)
        if follows:
            self.version = tip.version
        self._tip, self._tip_version = tip, tip.version

    def select(
        self,
        pieces: list[range | BaseMessage],
        checkpoint: str,
        records: Sequence[Record],
        serializer: Serializer,
    ) -> None:
        """Select these pieces; `ConversationMoved` if another change came first."""
        first, seen = self.end, self.history.version
        tip = SaverTip(seen + 1, checkpoint)
        new = [piece for piece in pieces if not isinstance(piece, range)]
        snapshots = tuple(map(take_snapshot, new))
        made = iter(self._convert(new, serializer))
        selection = [piece if isinstance(piece, range) else next(made) for piece in pieces]
        self.history.rewrite(
            selection,
            reason="LANGGRAPH",
            of_log=True,
            records=(*records, _record(tip)),
            unless=_unless_moved(seen),
        )
        for position, snapshot in enumerate(snapshots, first):
            self._add(position, (snapshot,))
        self._load(self.history.view, serializer)
        self._tip, self._tip_version = tip, tip.version

    def restore(self, version: int, checkpoint: str) -> None:
        """Restore the selection of a version, for a checkpoint that has it."""
        self.history.restore(version)
        tip = SaverTip(self.history.version, checkpoint)
        self._store.put_records(self.name, [_record(tip)])
        self._tip, self._tip_version = tip, tip.version

    def _convert(self, messages: Iterable[BaseMessage], serializer: Serializer) -> list[Message]:
        name = self.name
        return [
            from_langchain(message, session=name, serializer=serializer) for message in messages
        ]


def _key(fields: dict[str, Any]) -> object:
    """What a message is looked up by: its id, or for one without an id what it says."""
    name, content = fields["id"], fields["content"]
    if name is not None:
        return name
    return (content,) if isinstance(content, str) else len(content)


def _is_same(snapshot: MessageSnapshot, message: BaseMessage) -> bool:
    """Tell whether a message is the one of a snapshot, or equal to it, and unchanged."""
    if snapshot.message is not message and type(snapshot.message) is not type(message):
        return False
    return (
        snapshot.fields == vars(message)
        and snapshot.message.__pydantic_extra__ == message.__pydantic_extra__
    )


def _record(tip: SaverTip) -> Record:
    return TIP, "", f"{tip.version}:{tip.checkpoint}".encode()


def _unless_moved(version: int) -> Any:  # noqa: ANN401 - a check of a view
    def check(view: View) -> None:
        if view.version != version:
            raise ConversationMoved

    return check


def add_messages(left: Messages, right: Messages) -> Messages:
    """Do what LangGraph's reducer of the same name does, faster.

    >>> from langchain_core.messages import AIMessage, HumanMessage
    >>> said = add_messages([HumanMessage("Tea?", id="1")], AIMessage("Yes.", id="2"))
    >>> [message.content for message in said]
    ['Tea?', 'Yes.']
    """
    new: list[Any] = right if isinstance(right, list) else [right]
    if any(isinstance(each, _UNCONVERTED) for each in new):
        new = convert_to_messages(new)
    if not (isinstance(left, list) and _PLAIN_TYPES.issuperset(map(type, new))):
        return add_any(left, right)
    for message in new:
        if message.id is None:
            message.id = str(uuid.uuid4())
    ids = {None, *(message.id for message in new)}  # one without is LangGraph's to name
    if len(ids) <= len(new):
        return add_any(left, cast("Messages", new))
    channel = _channels.get(id(left))
    joined = None if channel is None else channel.join(cast("list[BaseMessage]", left), new, ids)
    if joined is not None:
        return cast("Messages", joined)
    if not _PLAIN_TYPES.issuperset(map(type, left)) or not _ids_of(left).isdisjoint(ids):
        return add_any(left, cast("Messages", new))
    return left + new


def _ids_of(messages: Iterable[Any]) -> set[str | None]:
    return {message.id for message in messages}


class MessagesState(TypedDict):
    """LangGraph's state of the same name, with the faster reducer."""

    messages: Annotated[list[AnyMessage], add_messages]
