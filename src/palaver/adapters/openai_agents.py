"""The OpenAI Agents SDK: its session, over a conversation in a store.

    session = PalaverSession(palaver.open("chat.db"), "talk-1")
    config = RunConfig(call_model_input_filter=repair_input)
    await Runner.run(agent, "Tea?", session=session, run_config=config)

The items of one answer are one message, an output is a tool message, and what was not edited comes
back to the SDK exactly as it was written.

The SDK appends the items of a turn, reads the items before it, and removes its last items when it
tries again. Each is one access to the store from a worker thread: a write runs to its end even if
the task is cancelled, a read is abandoned. What is removed only leaves the view, and
`history.undo()` restores it.

The session stores, and never repairs: what it returns is what was added or edited. `repair_input`
repairs the request: each call has its output, as providers demand, whatever was edited.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from palaver.adapters._worker_threads import run_cancellable, run_to_end
from palaver.errors import Conflict, UnknownConversation, ValidationError, needs_extra
from palaver.history.erase import ERASED
from palaver.messages.decode import accept, draft_class
from palaver.messages.ids import new_id, now_ms, uuid_for
from palaver.messages.limits import (
    EMPTY,
    MAX_TEXT,
    freeze_checked,
    freeze_mapping,
    is_list,
    is_object,
    replace_refused,
)
from palaver.messages.message import MAX_PARTS, Message
from palaver.messages.parts import (
    ReasoningPart,
    TextPart,
    TextTime,
    ToolCallPart,
    ToolPart,
    UnknownPart,
    tool_call_part,
)
from palaver.messages.tool_state import CompletedTime, ToolCompleted
from palaver.stores import StoredHistory
from palaver.wire.format import Writer, raw_block
from palaver.wire.openai_responses.blocks import CALLS, ITEMS, RESULTS, pair_of
from palaver.wire.openai_responses.request import (
    OPENAI_RESPONSES,
    SENDABLE_IDS,
    ItemReader,
    write_plain_answer,
)
from palaver.wire.pairing import INTERRUPTED, Pairing
from palaver.wire.request import ANY_TARGET, BodyReader
from palaver.wire.round_trip import apply_changes, diff, fingerprint

with needs_extra("openai-agents"):
    from agents.memory import session_settings as sdk
    from agents.run import ModelInputData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agents import TResponseInputItem
    from agents.memory.session import _CompactionSnapshot
    from agents.memory.session_settings import SessionSettings
    from agents.run import CallModelData

    from palaver.history.view import View
    from palaver.messages.message import Role
    from palaver.messages.parts import Part
    from palaver.stores.store import Store

__all__ = ["PalaverSession", "repair_input"]


_ROLES: Final = frozenset(("user", "assistant", "system", "developer"))


def from_items(
    items: Sequence[Any], session: str, tools: Mapping[str, str] | None = None
) -> list[tuple[Message, Sequence[Any]]]:
    """Convert items to messages, each with its items; `tools` names those of earlier calls.

    What a store refuses (NUL, half characters, numbers beyond JSON's) is replaced: an agent's run
    does not fail for a stray byte in a tool's output.
    """
    known = tools or {}
    try:
        return from_plain_items(items, session, known) or from_any_items(items, session, known)
    except ValidationError:
        replaced = replace_refused(items)
        return from_any_items(replaced if is_list(replaced) else (), session, known)


def from_any_items(
    items: Sequence[Any], session: str, tools: Mapping[str, str]
) -> list[tuple[Message, Sequence[Any]]]:
    """Convert any items: each message is written again, to find what that leaves out."""
    source = BodyReader(OPENAI_RESPONSES, session=session, model=None, names={})
    source.tools.update(tools)
    reader = ItemReader(source, ())
    for index, item in enumerate(items):
        if not is_object(item):
            raise ValidationError("must be an object", path=f"$.items[{index}]", rule="schema")
        if _is_understood(item):
            reader.read(item, index)
        else:
            reader.close()
            role: Role = "tool" if str(item.get("type")).endswith("_output") else "assistant"
            source.add(role, [source.unknown(item)], index, new_id())
    reader.close()
    found: list[tuple[Message, Sequence[Any]]] = []
    end = len(items)
    for message, index in zip(reversed(source.messages), reversed(source.positions), strict=True):
        theirs = items[index:end]
        found.append((_with_difference(message, theirs), theirs))
        end = index
    return found[::-1]


def _is_understood(item: Mapping[str, Any]) -> bool:
    """Tell whether the reader of the wire format keeps an item, whatever came before it.

    An output of a computer, a shell and the like is stored as it is: its call may be in another
    batch.
    """
    kind = item.get("type")
    if kind in (None, "message") and "role" in item:
        return item["role"] in _ROLES
    if kind in ITEMS:
        return (pair_of(item) or ("call", ""))[0] == "call"
    return kind == "reasoning" or kind in CALLS or kind in RESULTS


def _with_difference(message: Message, theirs: Sequence[Any]) -> Message:
    ours = _write_items(message)
    if _is_plain(ours) and ours == theirs:
        return message
    steps = diff(ours, list(theirs))
    if not steps:
        return message
    return replace(
        message, metadata={**message.metadata, METADATA_KEY: encode_difference(ours, steps)}
    )


def _is_plain(items: list[Item]) -> bool:
    """Tell whether it is one item of nothing but texts, where equal is the same (1 == True)."""
    return len(items) == 1 and all(type(value) is str for value in items[0].values())


def to_items(message: Message) -> list[Item]:
    """Convert a message to items: the original ones, or new ones if it was edited.

    >>> from palaver.messages import user
    >>> to_items(user("Tea?"))
    [{'role': 'user', 'content': 'Tea?'}]
    """
    ours = _write_items(message)
    stored = message.metadata.get(METADATA_KEY) if message.metadata else None
    if isinstance(stored, str):
        then, _, steps = stored.partition(" ")
        if then == fingerprint(ours):
            return _apply_difference(ours, steps)
    return ours


def _apply_difference(ours: list[Item], steps: str) -> list[Item]:
    """Apply the stored difference; it is ignored if it is not valid."""
    try:
        theirs = apply_changes(ours, msgspec.json.decode(steps))
    except msgspec.DecodeError:
        return ours
    return [*theirs] if is_list(theirs) and all(map(is_object, theirs)) else ours


def _write_items(message: Message) -> list[Item]:
    """Write a message as items, without the stored difference."""
    content, role = message.content, message.role
    if isinstance(content, str):
        silent = role == "tool" or ERASED in message.metadata
        return [] if silent else [{"role": role, "content": content}]
    if len(content) == 1 and type(content[0]) is UnknownPart:
        return [raw_block(content[0])] if content[0].type == OPENAI_RESPONSES.name else []
    given, calls = [message], 0
    if role == "tool" and len(content) == 1 and (output := _plain_output(content[0])):
        return [output]
    if role == "assistant" and (items := write_plain_answer(content)):
        return items
    if role == "tool":  # a result is written with its call, and the call left out
        parts = [part for part in content if type(part) is ToolPart]
        calls = len(parts)
        given.insert(0, Message("assistant", tuple(map(_make_call, parts))))
    mender = Pairing()
    mender.extend(given)
    turn = mender.turns[0]
    elements = [
        element
        for element, _ in OPENAI_RESPONSES.write(
            turn, Writer(OPENAI_RESPONSES, ANY_TARGET, (), mender)
        )
    ]
    if role == "tool":
        return elements[calls:]
    return elements[: len(elements) - len(turn.calls)]  # without the results that repair adds


def _plain_output(part: Part) -> Item | None:
    """The common case without detours: a call gave a text."""
    if type(part) is not ToolPart or not OPENAI_RESPONSES.call_ids.fits(part.call_id):
        return None
    state = part.state
    if type(state) is not ToolCompleted or state.attachments or state.time.compacted is not None:
        return None
    return {"type": "function_call_output", "call_id": part.call_id, "output": state.output}


def _make_call(part: ToolPart) -> Any:  # noqa: ANN401 - a part
    return tool_call_part(part.session_id, part.message_id, part.tool, {}, call_id=part.call_id)


Item: TypeAlias = dict[str, Any]

METADATA_KEY: Final = "openai_agents"
"""Where a message's metadata keeps what its items say beyond it."""
_IN_PARTS: Final = frozenset(("phase", "namespace", "caller", "encrypted_content"))
"""What `items` keeps in a part."""
_MAX_PLAIN: Final = MAX_TEXT // 2
"""Items of so many bytes have no text that is too long, not even the one of what they add."""
_QUESTION, _OUTPUT = 2, 3  # how many fields of a question and an output palaver writes
_is_reasoning_id, _is_message_id, _is_call_item_id = (SENDABLE_IDS[k] for k in ("rs", "msg", "fc"))
_fits_call: Final = OPENAI_RESPONSES.call_ids.fits
_fits_tool: Final = OPENAI_RESPONSES.tool_names.fits


_Calling: Final = draft_class(ToolCallPart)
_Completed: Final = draft_class(ToolCompleted)
_Drafted: Final = draft_class(Message)
_Reasoned: Final = draft_class(ReasoningPart)
_Result: Final = draft_class(ToolPart)
_Said: Final = draft_class(TextPart)


class _Unusual(Exception):  # noqa: N818 - nothing is wrong
    """There is an item that needs a closer look."""


def from_plain_items(
    items: Sequence[Any], session: str, tools: Mapping[str, str]
) -> list[tuple[Message, Sequence[Any]]] | None:
    """The messages of some items, each with its own; None where one of them is unusual.

    What is of the items in these messages is texts, which are checked here, all in one go, and the
    arguments of calls. So they are made as drafts, which don't check themselves once more.
    """
    try:
        text = msgspec.json.encode(items)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None  # half a character, or no JSON
    if b"\\u0000" in text or len(text) > _MAX_PLAIN or len(items) > MAX_PARTS:
        return None
    reader = _PlainReader(items, session, tools)
    try:
        for index, item in enumerate(items):
            reader.take(item, index)
        reader.close(len(items))
    except (_Unusual, msgspec.DecodeError):
        return None
    return reader.found


def encode_difference(ours: list[Item], steps: list[Any]) -> str:
    """Encode a difference as one text: a fingerprint of what palaver writes, and the changes."""
    return f"{fingerprint(ours)} {msgspec.json.encode(steps).decode()}"


class _PlainReader:
    """Reads items one by one; an answer goes on until something comes that is not the model's.

    `_ours` is how palaver writes the items of the message that is being read, and `_steps` what
    they say beyond that.
    """

    def __init__(self, items: Sequence[Any], session: str, tools: Mapping[str, str]) -> None:
        self.found: list[tuple[Message, Sequence[Any]]] = []
        self._items, self._session, self._tools = items, session, {**tools}
        self._at = now_ms()
        self._names: set[str] = set()
        self._calls: set[str] = set()
        self._begin(0)

    def _begin(self, index: int) -> None:
        self._start, self._message_id = index, ""
        self._parts: list[Part] = []
        self._ours: list[Item] = []
        self._steps: list[Any] = []
        self._after: str | None = None

    def take(self, item: Item, index: int) -> None:
        """Read the item at this index."""
        kind = item.get("type") if type(item) is dict else ""
        if kind == "function_call_output":
            self._output(item, index)
        elif kind == "function_call":
            self._call(item)
        elif kind == "reasoning":
            self._reasoning(item)
        elif kind == "message" and item.get("role") == "assistant":
            self._text(item)
        elif kind is None or kind == "message":
            self._question(item, index)
        else:
            raise _Unusual

    def close(self, index: int) -> None:
        """End the answer that is being read, where there is one, before this index."""
        if self._parts:
            if type(self._parts[-1]) is ReasoningPart:
                raise _Unusual
            self._add("assistant", tuple(self._parts), index)

    def _add(self, role: Role, content: str | tuple[Part, ...], stop: int) -> None:
        metadata = EMPTY
        if self._steps:
            difference = encode_difference(self._ours, self._steps)
            metadata = freeze_checked({METADATA_KEY: difference})
        draft = _Drafted(role, content, self._message_id or new_id(), self._at, metadata)
        self.found.append((accept(draft, Message), self._items[self._start : stop]))
        self._begin(stop)

    def _write(self, ours: Item, theirs: Item) -> None:
        """Note how palaver writes an item, and what the item says beyond that."""
        if len(theirs) > len(ours):
            index = len(self._ours)
            for key in theirs:
                if key not in ours:
                    self._steps.append([[index, key], theirs[key]])
        self._ours.append(ours)

    def _name(self, item: Item, fits: Callable[[str], object]) -> str:
        """The id of an item of the model's: one that may be sent again, and stands once."""
        name = item.get("id")
        if type(name) is not str or not fits(name) or name in self._names:
            raise _Unusual
        if not _IN_PARTS.isdisjoint(item):
            raise _Unusual
        self._names.add(name)
        if not self._message_id:
            self._message_id = new_id()
        return name

    def _part_metadata(self, name: str) -> Mapping[str, Any]:
        openai = {"id": name, "after": self._after} if self._after else {"id": name}
        return freeze_checked({"openai": freeze_checked(openai)})

    def _question(self, item: Item, index: int) -> None:
        role, text = item.get("role"), item.get("content")
        if role not in ("user", "system") or type(text) is not str:
            raise _Unusual
        self.close(index)
        if len(item) > _QUESTION:
            self._write({"role": role, "content": text}, item)
        self._add(role, text, index + 1)

    def _reasoning(self, item: Item) -> None:
        name = self._name(item, _is_reasoning_id)
        if item.get("summary") != [] or item.get("content") not in ([], None):
            raise _Unusual
        draft = _Reasoned(
            id=new_id(), session_id=self._session, message_id=self._message_id, text="",
            time=TextTime(self._at), metadata=self._part_metadata(name),
        )  # fmt: skip
        self._parts.append(accept(draft, ReasoningPart))
        self._write({"type": "reasoning", "id": name, "summary": []}, item)
        self._after = name

    def _text(self, item: Item) -> None:
        name, content = self._name(item, _is_message_id), item.get("content")
        block = content[0] if type(content) is list and len(content) == 1 else None
        if type(block) is not dict or item.get("status") != "completed":
            raise _Unusual
        text, said = block.get("text"), (block.get("type"), block.get("annotations"))
        if type(text) is not str or said != ("output_text", []):
            raise _Unusual
        ours: Item = {"type": "output_text", "text": text, "annotations": []}
        if len(block) > len(ours):
            inner = [len(self._ours), "content", 0]
            self._steps += [[[*inner, key], block[key]] for key in block if key not in ours]
        draft = _Said(
            id=new_id(), session_id=self._session, message_id=self._message_id, text=text,
            metadata=self._part_metadata(name),
        )  # fmt: skip
        self._parts.append(accept(draft, TextPart))
        written = {"type": "message", "id": name, "role": "assistant", "status": "completed",
                 "content": [ours]}  # fmt: skip
        self._write(written, item)

    def _call(self, item: Item) -> None:
        name = self._name(item, _is_call_item_id)
        call_id, tool, raw = item.get("call_id"), item.get("name"), item.get("arguments")
        if type(call_id) is not str or type(tool) is not str or type(raw) is not str:
            raise _Unusual
        given = msgspec.json.decode(raw)
        if type(given) is not dict or not (_fits_call(call_id) and _fits_tool(tool)):
            raise _Unusual
        if call_id in self._calls:
            raise _Unusual
        self._calls.add(call_id)
        self._tools[call_id] = tool
        draft = _Calling(
            id=new_id(), session_id=self._session, message_id=self._message_id, call_id=call_id,
            tool=tool, input=freeze_mapping(given), raw=raw, metadata=self._part_metadata(name),
        )  # fmt: skip
        self._parts.append(accept(draft, ToolCallPart))
        ours = {"type": "function_call", "call_id": call_id, "name": tool, "arguments": raw,
                "id": name}  # fmt: skip
        self._write(ours, item)

    def _output(self, item: Item, index: int) -> None:
        call_id, output = item.get("call_id"), item.get("output")
        if type(call_id) is not str or type(output) is not str or not output:
            raise _Unusual
        if call_id not in self._calls and not _fits_call(call_id):
            raise _Unusual
        self.close(index)
        tool = self._tools.get(call_id) or "unknown"
        time = CompletedTime(self._at, self._at)
        state = _Completed(input=EMPTY, output=output, title=tool, metadata=EMPTY, time=time)
        self._message_id = new_id()
        draft = _Result(
            id=new_id(), session_id=self._session, message_id=self._message_id, call_id=call_id,
            tool=tool, state=accept(state, ToolCompleted),
        )  # fmt: skip
        if len(item) > _OUTPUT:
            ours = {"type": "function_call_output", "call_id": call_id, "output": output}
            self._write(ours, item)
        self._add("tool", (accept(draft, ToolPart),), index + 1)


_log = logging.getLogger("palaver.adapters.openai_agents")
_MAX_ENCODED: Final = 20_000
"""So many messages are encoded as items; when more are added, it begins anew."""
_MAX_LOOKBACK: Final = 200
"""How many messages are searched for the call of an output that comes in a later batch."""


class _EncodedItems(NamedTuple):
    """The items of a message as JSON text without the brackets, and their number."""

    message: Message
    text: bytes
    size: int

    def items(self) -> list[Item]:
        """Decode the items, as new objects every time."""
        return _decode(self.text)


def _decode(text: bytes) -> list[Item]:
    return cast("list[Item]", msgspec.json.decode(b"[%b]" % text))


class PalaverSession:
    """A conversation as a session of the OpenAI Agents SDK.

    The conversation is created with the first items. `session_settings` limits how many items a
    run is shown, as everywhere in the SDK. Where the conversation is edited, or a limit cuts it,
    give the run `repair_input`, so that the request is valid.

    >>> import asyncio, palaver
    >>> store = palaver.open(":memory:")
    >>> session = PalaverSession(store, "talk-1")
    >>> asyncio.run(session.add_items([{"role": "user", "content": "Tea?"}]))
    >>> asyncio.run(session.get_items())
    [{'role': 'user', 'content': 'Tea?'}]
    >>> store.get("talk-1")[0].text
    'Tea?'
    """

    session_id: str
    session_settings: SessionSettings | None

    def __init__(
        self,
        store: Store | StoredHistory,
        session_id: str | None = None,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        """Take a store and the id of a conversation, which may be new; or a stored history."""
        self._store = None if isinstance(store, StoredHistory) else store
        self._history = store if isinstance(store, StoredHistory) else None
        if self._history is not None and session_id in (None, self._history.id):
            session_id = self._history.id
        elif self._history is not None or not session_id:
            given = "another id than its history's" if self._history is not None else "no id"
            raise ValueError(f"a session needs the id of its conversation: it was given {given}")
        self.session_id = session_id
        self.session_settings = sdk.coerce_session_settings(
            session_settings or sdk.SessionSettings()
        )
        self._lock = threading.Lock()
        self._closed = False
        self._encoded: dict[str, _EncodedItems] = {}

    @property
    def history(self) -> StoredHistory:
        """The conversation, to read and to edit; it is created if it does not exist."""
        with self._lock:
            return self._open_or_create()

    # ── what the SDK calls ──────────────────────────────────────────────────────────────────────

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the last items, or all, in order: as they were added, or as they were edited.

        `pop_item` removes the same items, one by one. What an edit or the limit has separated is
        returned as it is; `repair_input` makes a valid request of it.
        """
        wanted = sdk.resolve_session_limit(limit, self.session_settings)
        found, _ = await run_cancellable(lambda: self._get(wanted))
        return cast("list[TResponseInputItem]", found)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items at the end, in one change."""
        if items or self._closed:  # which the worker reports
            await run_to_end(lambda: self._add(items))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item from the view and return it, or None if there is none."""
        return cast("TResponseInputItem | None", await run_to_end(self._pop))

    async def clear_session(self) -> None:
        """Remove everything from the view, system messages too; `history.undo()` restores it."""
        await run_to_end(self._clear)

    def close(self) -> None:
        """Close the session: every later call raises `RuntimeError`, closing it again does nothing.

        A change that is under way is finished first. The store stays open: whoever opened it
        closes it.
        """
        with self._lock:
            self._closed = True
            self._encoded.clear()

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[Any], bool] | None = None
    ) -> _CompactionSnapshot | None:
        """Return the last items, and a function that replaces the end of them in one change.

        The SDK's own sessions have this for its compaction; without it, a history that is shown in
        part is not compacted. A subclass that changes what is read or written has to have its own.
        """
        from agents.memory.session import _CompactionSnapshot  # noqa: PLC0415 - the SDK may drop it

        mine, base = type(self), PalaverSession
        if (mine.get_items, mine.add_items) != (base.get_items, base.add_items):
            return None
        found, version = await run_cancellable(lambda: self._get(limit + 1))
        items = cast("list[TResponseInputItem]", found[-limit:])
        count = len(items)

        async def replace_suffix(start: int, new: list[TResponseInputItem]) -> bool:
            work = partial(self._replace, count - start, new, version, prune_prefix)
            return await run_to_end(work)

        return _CompactionSnapshot(items, len(found) <= limit, replace_suffix)

    # ── one access to the store each ────────────────────────────────────────────────────────────

    def _open(self) -> StoredHistory | None:
        """Return the conversation as it is now, or None if it does not exist yet."""
        self._check_open()
        if self._history is not None:
            self._history.refresh()
        elif self._store is not None:
            with contextlib.suppress(UnknownConversation):
                self._history = self._store.get(self.session_id)
        return self._history

    def _open_or_create(self) -> StoredHistory:
        history = self._open()
        if history is None:
            assert self._store is not None  # noqa: S101 - without a store there is a history
            key = f"openai-agents {self.session_id}"  # processes may create it at the same time
            history = self._history = self._store.create(id=self.session_id, key=key)
        return history

    def _check_open(self) -> None:
        if self._closed:
            name = type(self).__name__
            raise RuntimeError(f"{name} is closed: make a new one of {self.session_id!r}")

    def _get(self, limit: int | None) -> tuple[list[Item], int]:
        """Return the last items, or all, and the version that they are of."""
        with self._lock:
            history = self._open()
            if history is None or limit == 0:
                return [], 0
            return self._last(history.view, limit), history.version

    def _last(self, view: View, limit: int | None) -> list[Item]:
        """Return the last items of a view; a message gives none, one or several."""
        left = limit if limit is not None and limit > 0 else sys.maxsize
        first: list[Item] = []
        found: list[bytes] = []
        stop = len(view)
        while stop and left:
            start = max(stop - left, 0)
            for message in reversed(view[start:stop]):
                written = self._items_of(message)
                if written.size > left:
                    first, left = written.items()[-left:], 0
                    break
                if written.size:
                    found.append(written.text)
                    left -= written.size
                    if not left:
                        break
            stop = start
        return first + _decode(b",".join(reversed(found)))

    def _items_of(self, message: Message) -> _EncodedItems:
        encoded = self._encoded.get(message.id)
        if encoded is None or encoded.message is not message:
            encoded = self._encode(message, to_items(message))
        return encoded

    def _encode(self, message: Message, items: Sequence[Any]) -> _EncodedItems:
        """Cache the items of a message as text, since each caller gets objects of its own."""
        text = msgspec.json.encode(items)[1:-1]
        encoded = _EncodedItems(message, text, len(items))
        if len(self._encoded) < _MAX_ENCODED:  # what is read from the end fills it, and stays
            self._encoded[message.id] = encoded
        return encoded

    def _add(self, items: Sequence[Any]) -> None:
        with self._lock:
            self._check_open()
            history = self._open_or_create() if self._history is None else self._history
            new = from_items(items, uuid_for(history.id), _earlier_tools(items, history))
            if len(new) == 1:
                history.append(new[0][0])
            else:
                history.extend([message for message, _ in new])
            if len(self._encoded) + len(new) > _MAX_ENCODED:
                self._encoded.clear()
            for message, theirs in new:
                self._encode(message, theirs)

    def _pop(self) -> Item | None:
        with self._lock:
            history = self._open()
            while history is not None and len(history.view):
                view = history.view
                last = len(view) - 1
                message = view[last]
                items = self._items_of(message).items()
                rest = [each for each, _ in from_items(items[:-1], uuid_for(history.id))]
                try:
                    _replace_last(history, last, rest)
                except Conflict:
                    continue  # another worker removed a part of the same answer
                if items and message in history.at(history.version - 1):
                    return items[-1]  # nobody else removed it meanwhile
                history.refresh()
            return None

    def _replace(
        self, count: int, new: Sequence[Any], version: int, is_expired: Callable[[Any], bool] | None
    ) -> bool:
        """Replace the last items, and drop the first messages of which all items are expired.

        It does nothing and returns False if the conversation has changed since this version.
        """
        with self._lock:
            history = self._open()
            if history is None or history.version != version or not count:
                return False
            view = history.view
            left, stop = count, len(view)
            while left > 0:
                stop -= 1
                left -= self._items_of(view[stop]).size
            rest = self._items_of(view[stop]).items()[:-left] if left else []
            start = 0
            if is_expired is not None:
                while start < stop and all(map(is_expired, self._items_of(view[start]).items())):
                    start += 1
            made = [each for each, _ in from_items([*rest, *new], uuid_for(history.id))]
            try:
                history.rewrite([range(start, stop), *made], expect=version)
            except Conflict:  # another process was first
                return False
            return True

    def _clear(self) -> None:
        with self._lock:
            history = self._open()
            if history is not None and len(history.view):
                history.clear(keep_system_message=False)


def _replace_last(history: StoredHistory, last: int, rest: list[Message]) -> None:
    """Replace the last message by what is left of it, in one edit."""
    if not rest:
        history.truncate(remove_last=1)
    elif len(rest) == 1:
        history.replace(last, rest[0])
    else:
        history.rewrite([range(last), *rest], reason="POP")


def _earlier_tools(items: Sequence[Any], history: StoredHistory) -> dict[str, str]:
    """Return the tools of earlier calls that these items have outputs of, by call id."""
    made, asked = set[str](), set[str]()
    for item in items:
        kind = item.get("type") if type(item) is dict or is_object(item) else None
        if kind == "function_call":
            made.add(str(item.get("call_id")))
        elif kind == "function_call_output":
            asked.add(str(item.get("call_id")))
    asked -= made
    if not asked:
        return {}
    return {
        part.call_id: part.tool
        for message in history.view.recent(_MAX_LOOKBACK, role="assistant")
        for part in message.parts
        if isinstance(part, ToolCallPart) and part.call_id in asked
    }


_OUTPUTS: Final = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
}
"""The calls that are answered by whoever runs the agent, and what they are answered with."""
_ENDS: Final = frozenset(_OUTPUTS.values())
_IN_WORDS: Final = frozenset(("function_call", "custom_tool_call"))
"""Those whose output may be a text."""
_WITH_ID: Final = frozenset(
    f"{kind}_call"
    for kind in ("code_interpreter", "computer", "file_search", "image_generation", "local_shell",
                 "mcp", "web_search")
)  # fmt: skip
"""Calls that can't be sent without their ids."""


def repair_input(data: CallModelData[Any]) -> ModelInputData:
    """Make the input of a model valid: a filter for a run whose session may have been edited.

    It is called right before each request. An output without its call is left out, a call without
    an output gets one that says so, reasoning without what it led to is left out, and an answer
    that was cut in two goes without the ids that OpenAI would refuse. Where nothing is broken, the
    input stays as it is. In a filter of your own, call it last.

    It is for runs with a session. Where the provider holds the conversation
    (`previous_response_id`, `conversation_id`), a request has outputs without their calls, and they
    would be left out.

    >>> from agents import Agent, RunConfig
    >>> from agents.run import CallModelData, ModelInputData
    >>> config = RunConfig(call_model_input_filter=repair_input)
    >>> asked = {"role": "user", "content": "Tea?"}
    >>> output = {"type": "function_call_output", "call_id": "c1", "output": "4"}
    >>> given = ModelInputData(input=[output, asked], instructions="Be brief.")
    >>> repair_input(CallModelData(given, Agent(name="Ada"), None)).input
    [{'role': 'user', 'content': 'Tea?'}]
    """
    given = data.model_data
    valid = repair_items(cast("list[Item]", given.input))
    if valid is given.input:
        return given
    _log.info("%d items of a request became %d valid ones", len(given.input), len(valid))
    return ModelInputData(cast("list[TResponseInputItem]", valid), given.instructions)


def repair_items(items: list[Item]) -> list[Item]:
    """The items as a provider takes them; the very same list where nothing is broken.

    >>> repair_items([{"type": "function_call_output", "call_id": "c1", "output": "4"}])
    []
    """
    valid = list(_Turns(_without_cut_ids(items)).written())
    return items if valid == items else valid


def _without_cut_ids(items: list[Item]) -> list[Item]:
    """The items without ids that are refused: of an answer that begins before the first item.

    OpenAI refuses the id of an item without the reasoning that led to it: text and calls go without
    their ids then, and what can't be without one is left out.
    """
    ends = (i for i, item in enumerate(items) if _is_given(item) or item.get("type") == "reasoning")
    end = next(ends, len(items))
    if not any("id" in item for item in items[:end]):
        return items
    return [*filter(None, map(_without_id, items[:end])), *items[end:]]


def _without_id(item: Item) -> Item | None:
    kind = item.get("type")
    if "id" not in item:
        return item
    if item.get("role") == "assistant":
        return {"role": "assistant", "content": _text(item)}
    if kind in _OUTPUTS and kind not in _WITH_ID:
        return {name: value for name, value in item.items() if name != "id"}
    return None if kind in _WITH_ID else item


def _is_given(item: Item) -> bool:
    """Tell whether an item is something that no model made."""
    return item.get("role") in ("user", "system", "developer")


def _key(item: Item) -> str:
    return str(item.get("call_id") or item.get("id"))


class _Turn:
    """What a model made in one go, with the outputs of its calls; or one item of somebody else."""

    def __init__(self, *, made: bool) -> None:
        self.made = made
        self.items: list[Item] = []
        self.outputs: dict[str, Item] = {}


class _Turns:
    """The items in turns, each output with the newest call of its id."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._turns: list[_Turn] = []
        self._waiting: dict[str, tuple[_Turn, str]] = {}
        for item in items:
            self._take(item)

    def _take(self, item: Item) -> None:
        kind = item.get("type")
        if kind in _ENDS:
            turn, wanted = self._waiting.pop(_key(item), (None, ""))
            if turn is not None:
                turn.outputs[_key(item)] = item if kind == wanted else {**item, "type": wanted}
            return
        made = not _is_given(item)
        last = self._turns[-1] if self._turns else None
        if last is None or not (made and last.made) or last.outputs:
            last = _Turn(made=made)
            self._turns.append(last)
        last.items.append(item)
        if kind in _OUTPUTS:
            self._waiting[_key(item)] = (last, _OUTPUTS[kind])

    def written(self) -> Iterable[Item]:
        """All of it, in order."""
        for turn in self._turns:
            outputs = turn.outputs
            ends = turn is self._turns[-1]
            items: list[Item] = []
            for item in turn.items:
                kind = str(item.get("type"))
                if kind in _OUTPUTS and _key(item) not in outputs and not ends:
                    if kind not in _IN_WORDS:
                        continue
                    outputs[_key(item)] = {
                        "type": _OUTPUTS[kind], "call_id": _key(item), "output": INTERRUPTED
                    }  # fmt: skip
                items.append(item)
            while items and items[-1].get("type") == "reasoning":
                items.pop()
            yield from items
            yield from outputs.values()


def _text(item: Item) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "".join(str(block.get("text") or block.get("refusal") or "") for block in blocks)
