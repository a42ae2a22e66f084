"""The items of the OpenAI Agents SDK as messages, and messages as items; items that are repaired.

The items of one answer are one message, and an output is a tool message. What items say beyond
their message is stored in its metadata, so that what was not edited becomes the same items again.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, cast

import msgspec
from agents.run import ModelInputData
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from palaver.errors import ValidationError
from palaver.history.erase import ERASED
from palaver.messages.decode import accept, decode, draft_class
from palaver.messages.ids import derive_id, new_id, now_ms
from palaver.messages.limits import (
    EMPTY,
    MAX_TEXT,
    freeze_checked,
    freeze_mapping,
    is_list,
    is_name,
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
from palaver.wire.format import Writer, raw_block
from palaver.wire.openai_responses.blocks import CALLS, ITEMS, RESULTS, pair_of
from palaver.wire.openai_responses.request import (
    OPENAI_RESPONSES,
    PLAIN_ITEMS,
    PLAIN_WRITERS,
    SENDABLE_IDS,
    ItemReader,
    write_plain_answer,
)
from palaver.wire.pairing import INTERRUPTED, Pairing
from palaver.wire.request import ANY_TARGET, BodyReader
from palaver.wire.round_trip import apply_changes, diff, fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agents import TResponseInputItem
    from agents.run import CallModelData

    from palaver.messages.message import Role
    from palaver.messages.parts import Part
    from palaver.wire.openai_responses.request import PlainWriter

__all__ = [
    "Item",
    "from_items",
    "read_stored",
    "repair_input",
    "repair_items",
    "stored_name",
    "to_items",
]

_log = logging.getLogger("palaver.adapters.openai_agents")
_ROLES: Final = frozenset(("user", "assistant", "system", "developer"))


def from_items(
    items: Sequence[Any], session: str, earlier_tools: EarlierTools = dict
) -> list[tuple[Message, Sequence[Any]]]:
    """Convert items to messages, each with its items.

    `earlier_tools` returns the tools of calls in earlier batches by call id. It is called where an
    output has its call there.

    What a store refuses (NUL, half characters, numbers beyond JSON's) is replaced: an agent's run
    does not fail for a stray byte in a tool's output. A message has its own ids in place of those
    that are too long or unprintable; the items keep theirs.
    """
    try:
        plain = from_plain_items(items, session, earlier_tools)
        return plain or from_any_items(items, session, earlier_tools())
    except ValidationError:
        replaced = replace_refused(items)
        if not is_list(replaced):
            raise
        named = [_with_names(item) for item in replaced]
        return from_any_items(named, session, earlier_tools(), replaced)


def _with_names(item: object) -> object:
    """Return an item whose ids and names a message can have; the same one always gets the same."""
    if not is_object(item):
        return item
    refused = {
        key: stored_name(value)
        for key in ("id", "call_id", "name")
        if isinstance(value := item.get(key), str) and not is_name(value)
    }
    return {**item, **refused} if refused else item


def stored_name(name: str) -> str:
    """Return the id or name that a message has for one of an item's."""
    return name if is_name(name) else derive_id(name, "openai agents")


def from_any_items(
    items: Sequence[Any],
    session: str,
    tools: Mapping[str, str],
    originals: Sequence[Any] | None = None,
) -> list[tuple[Message, Sequence[Any]]]:
    """Convert any items: each message is written again, to find what that leaves out.

    `originals` are the items that `items` were made of, one for one, and come back in their place.
    """
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
        theirs = (items if originals is None else originals)[index:end]
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
    return _restore(message, _write_items)


def _restore(message: _Source, write: Callable[[_Source], _Written]) -> _Written | list[Item]:
    """Return the original items: what palaver writes, with what they said beyond that."""
    ours, metadata = write(message), message.metadata
    stored = metadata.get(METADATA_KEY) if metadata else None
    if ours is None or not isinstance(stored, str):
        return ours
    then, _, steps = stored.partition(" ")
    if then != fingerprint(ours):
        return ours
    theirs = _apply_difference(ours, steps)
    return write(message) if theirs is None else theirs


def _apply_difference(ours: list[Item], steps: str) -> list[Item] | None:
    """Apply the stored difference; None if it is not valid, and a part of it may be applied."""
    additions = _read_additions(steps) if len(steps) <= _MAX_SHORT else None
    if additions is None:
        try:
            theirs = apply_changes(ours, msgspec.json.decode(steps))
        except msgspec.DecodeError:
            return None
        return [*theirs] if is_list(theirs) and all(map(is_object, theirs)) else None
    try:
        for path, key, value, is_empty_list in additions:
            parent: Any = ours
            for step in path:
                parent = parent[step]
            parent[key] = [] if is_empty_list else value
    except (KeyError, IndexError, TypeError):
        return None
    return ours


class _Addition(NamedTuple):
    """A field that a difference adds."""

    path: list[str | int]
    key: str
    value: str | float | bool | list[Any]
    is_empty_list: bool


@lru_cache(maxsize=256)
def _read_additions(steps: str) -> tuple[_Addition, ...] | None:
    """Read a difference that only adds fields with a plain value or none; None for any other.

    Most are of this kind, and the same few: `"status": "completed"`, `"logprobs": []`.
    """
    try:
        changes = decode(steps, list[tuple[list[str | int], str | int | float | bool | list[Any]]])
    except msgspec.MsgspecError:
        return None
    found: list[_Addition] = []
    for path, value in changes:
        if not path or type(path[-1]) is not str or (type(value) is list and value):
            return None
        found.append(_Addition(path[:-1], path[-1], value, type(value) is list))
    return tuple(found)


def _write_items(message: Message) -> list[Item]:
    """Write a message as items, without the stored difference."""
    plain = _write_plain(message)
    if plain is not None:
        return plain
    content, role = message.parts, message.role
    if len(content) == 1 and type(content[0]) is UnknownPart:
        return [raw_block(content[0])] if content[0].type == OPENAI_RESPONSES.name else []
    given, calls = [message], 0
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


def _write_plain(
    message: Message | _StoredMessage, writers: Mapping[type, PlainWriter] = PLAIN_WRITERS
) -> list[Item] | None:
    """Write the common messages without detours: a text, an output, an answer with its ids."""
    content, role = message.content, message.role
    if type(content) is str:
        silent = role == "tool" or ERASED in message.metadata
        return [] if silent else [{"role": role, "content": content}]
    if role == "assistant":
        return write_plain_answer(content, writers)
    output = _plain_output(content[0]) if role == "tool" and len(content) == 1 else None
    return None if output is None else [output]


def _plain_output(part: Any) -> Item | None:  # noqa: ANN401 - a part, or what is read of it
    """The item of a call that gave a text."""
    if type(part) not in (ToolPart, _StoredOutput) or not _fits_call(part.call_id):
        return None
    state = part.state
    if type(state) not in (ToolCompleted, _StoredState) or state.attachments:
        return None
    if state.time.compacted is not None or not state.output:
        return None
    return {"type": "function_call_output", "call_id": part.call_id, "output": state.output}


def read_stored(stored: str) -> list[list[Item]] | None:
    """Convert a list of messages as a store has it to the items of each, as `to_items` does.

    Only what the items say is read, and no message is made or checked: the text is as trustworthy
    as the store. Return None where a message is unusual or can't be read.

    >>> from palaver.messages import dump, user
    >>> read_stored(dump([user("Tea?")]).decode())
    [[{'role': 'user', 'content': 'Tea?'}]]
    """
    try:
        messages = decode(stored, list[_StoredMessage])
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    found: list[list[Item]] = []
    for message in messages:
        metadata = message.metadata
        items = _restore_answer(message.content, metadata) if metadata else None
        if items is None:
            items = _restore(message, _write_stored)
        if items is None:
            return None
        found.append(items)
    return found


def _write_stored(message: _StoredMessage) -> list[Item] | None:
    return _write_plain(message, _STORED_WRITERS)


def _restore_answer(content: Sequence[Any], metadata: Mapping[str, Any]) -> list[Item] | None:
    """Return the original items of an answer that is as it was; None for any other message.

    With the fingerprint of what was written when the items were stored, nothing has to be checked:
    it was checked then.
    """
    try:
        then, _, steps = metadata[METADATA_KEY].partition(" ")
        ours = [_STORED_ITEMS[type(part)](part, part.metadata["openai"]["id"]) for part in content]
    except (AttributeError, KeyError, TypeError):
        return None
    return _apply_difference(ours, steps) if then == fingerprint(ours) else None


class _StoredText(Struct, tag="text", gc=False):
    text: str
    metadata: dict[str, Any] = EMPTY
    ignored: bool | None = None


class _StoredReasoning(Struct, tag="reasoning", gc=False):
    text: str
    metadata: dict[str, Any] = EMPTY


class _StoredCall(Struct, tag="tool-call", gc=False):
    call_id: str = field(name="callID")
    tool: str
    raw: str
    metadata: dict[str, Any] = EMPTY


class _StoredTime(Struct, gc=False):
    compacted: int | None = None


class _StoredState(Struct, tag="completed", tag_field="status", gc=False):
    output: str
    time: _StoredTime
    attachments: tuple[Raw, ...] = ()


class _StoredOutput(Struct, tag="tool", gc=False):
    call_id: str = field(name="callID")
    state: _StoredState


class _StoredMessage(Struct, gc=False):
    """What is read of a stored message to write its items."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[_StoredText | _StoredReasoning | _StoredCall | _StoredOutput]
    metadata: dict[str, Any] = EMPTY


_STORED_WRITERS: Final[Mapping[type, PlainWriter]] = {
    _StoredCall: PLAIN_WRITERS[ToolCallPart],
    _StoredText: PLAIN_WRITERS[TextPart],
    _StoredReasoning: PLAIN_WRITERS[ReasoningPart],
}
_STORED_ITEMS: Final[dict[type, Callable[[Any, str], Item]]] = {
    _StoredCall: PLAIN_ITEMS[ToolCallPart],
    _StoredText: PLAIN_ITEMS[TextPart],
    _StoredReasoning: PLAIN_ITEMS[ReasoningPart],
}
_Source = TypeVar("_Source", Message, _StoredMessage)
_Written = TypeVar("_Written", bound="list[Item] | None")


def _make_call(part: ToolPart) -> Any:  # noqa: ANN401 - a part
    return tool_call_part(part.session_id, part.message_id, part.tool, {}, call_id=part.call_id)


Item: TypeAlias = dict[str, Any]
EarlierTools: TypeAlias = "Callable[[], Mapping[str, str]]"

METADATA_KEY: Final = "openai_agents"
"""Where a message's metadata keeps what its items say beyond it."""
_IN_PARTS: Final = frozenset(("phase", "namespace", "caller", "encrypted_content"))
"""What `items` keeps in a part."""
_MAX_SHORT: Final = 200
"""The length of a difference whose reading is worth remembering."""
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
    items: Sequence[Any], session: str, earlier_tools: EarlierTools = dict
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
    reader = _PlainReader(items, session, earlier_tools)
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

    def __init__(self, items: Sequence[Any], session: str, earlier_tools: EarlierTools) -> None:
        self.found: list[tuple[Message, Sequence[Any]]] = []
        self._items, self._session, self._earlier_tools = items, session, earlier_tools
        self._at = now_ms()
        self._names: set[str] = set()
        self._tools: dict[str, str] = {}
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
            self._steps += [[[index, key], theirs[key]] for key in theirs if key not in ours]
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
        if call_id in self._tools:
            raise _Unusual
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
        tool = self._tools.get(call_id)
        if tool is None:
            if not _fits_call(call_id):
                raise _Unusual
            tool = self._earlier_tools().get(call_id) or "unknown"
        self.close(index)
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
