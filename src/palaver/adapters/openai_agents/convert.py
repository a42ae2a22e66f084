"""Conversion of the SDK's items to messages and back: what was not edited comes back equal.

Items are read as `palaver.wire` reads those of OpenAI Responses: reasoning, text and calls in a row
are one answer. Each message is written as items again at once, and the difference to the original
items is stored in its metadata, with a fingerprint of what palaver writes. A message that still has
that fingerprint gives its original items; an edited one is written anew. `from_plain_items` reads
the common items without writing them first, with the same result.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from palaver.errors import ValidationError
from palaver.history.erase import ERASED
from palaver.messages.ids import new_id, now_ms
from palaver.messages.limits import EMPTY, is_list, is_object, replace_refused
from palaver.messages.message import Message
from palaver.messages.parts import (
    ToolPart,
    UnknownPart,
    reasoning_part,
    text_part,
    tool_call_part,
    tool_part,
)
from palaver.messages.tool_state import CompletedTime, ToolCompleted
from palaver.wire.openai_responses.blocks import CALLS, ITEMS, RESULTS, pair_of
from palaver.wire.openai_responses.request import OPENAI_RESPONSES, ItemReader
from palaver.wire.pairing import Pairing
from palaver.wire.request import ANY_TARGET, BodyReader
from palaver.wire.round_trip import apply_changes, diff, fingerprint
from palaver.wire.writer import Writer, raw_block

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.messages.message import Role
    from palaver.messages.parts import Part

__all__ = [
    "METADATA_KEY",
    "Item",
    "encode_difference",
    "from_any_items",
    "from_items",
    "from_plain_items",
    "to_items",
]


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
_IDS: Final = {
    prefix: re.compile(rf"{prefix}[a-zA-Z0-9_-]{{1,{64 - len(prefix)}}}").fullmatch
    for prefix in ("rs", "msg", "fc")
}
"""The ids of OpenAI's that may be sent to it again."""
_fits_call: Final = OPENAI_RESPONSES.call_ids.fits
_fits_tool: Final = OPENAI_RESPONSES.tool_names.fits


class _Unusual(Exception):  # noqa: N818 - nothing is wrong
    """There is an item that needs a closer look."""


def from_plain_items(
    items: Sequence[Any], session: str, tools: Mapping[str, str]
) -> list[tuple[Message, Sequence[Any]]] | None:
    """The messages of some items, each with its own; None where one of them is unusual."""
    reader = _PlainReader(items, session, tools)
    try:
        for index, item in enumerate(items):
            reader.take(item, index)
        reader.close(len(items))
    except (_Unusual, msgspec.DecodeError):
        return None
    return reader.found


def encode_difference(ours: list[Item], steps: list[Any]) -> str:
    """Encode a difference: a fingerprint of what palaver writes, and the changes to it.

    One text: that is cheap to let in.
    """
    return f"{fingerprint(ours)} {msgspec.json.encode(steps).decode()}"


class _PlainReader:
    """Reads items one by one; an answer goes on until something comes that is not the model's."""

    def __init__(self, items: Sequence[Any], session: str, tools: Mapping[str, str]) -> None:
        self.found: list[tuple[Message, Sequence[Any]]] = []
        self._items, self._session, self._tools = items, session, {**tools}
        self._at = now_ms()
        self._begin(0)

    def _begin(self, index: int) -> None:
        self._start, self._message_id = index, new_id()
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
            if self._ours[-1]["type"] == "reasoning":
                raise _Unusual
            self._add("assistant", tuple(self._parts), index)

    def _add(self, role: Role, content: str | tuple[Part, ...], stop: int) -> None:
        metadata = (
            {METADATA_KEY: encode_difference(self._ours, self._steps)} if self._steps else EMPTY
        )
        message = Message(role, content, self._message_id, self._at, metadata)
        self.found.append((message, self._items[self._start : stop]))
        self._begin(stop)

    def _write(self, ours: Item, theirs: Item) -> None:
        """Note how palaver writes an item, and what the item says beyond that."""
        if len(theirs) > len(ours):
            index = len(self._ours)
            self._steps += [[[index, key], theirs[key]] for key in theirs if key not in ours]
        self._ours.append(ours)

    def _name(self, item: Item, prefix: str) -> str:
        """The id of an item: one that may be sent again, and stands once."""
        name = item.get("id")
        if type(name) is not str or not _IDS[prefix](name) or not _IN_PARTS.isdisjoint(item):
            raise _Unusual
        if any(name == known["id"] for known in self._ours):
            raise _Unusual
        return name

    def _part_metadata(self, name: str) -> dict[str, Any]:
        return {"openai": {"id": name, "after": self._after} if self._after else {"id": name}}

    def _question(self, item: Item, index: int) -> None:
        role, text = item.get("role"), item.get("content")
        if role not in ("user", "system") or type(text) is not str:
            raise _Unusual
        self.close(index)
        self._write({"role": role, "content": text}, item)
        self._add(role, text, index + 1)

    def _reasoning(self, item: Item) -> None:
        name = self._name(item, "rs")
        if item.get("summary") != [] or item.get("content") not in ([], None):
            raise _Unusual
        stored = {"openai": {"id": name}}
        self._parts.append(reasoning_part(self._session, self._message_id, "", metadata=stored))
        self._write({"type": "reasoning", "id": name, "summary": []}, item)
        self._after = name

    def _text(self, item: Item) -> None:
        name, content = self._name(item, "msg"), item.get("content")
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
        written = {"type": "message", "id": name, "role": "assistant", "status": "completed",
                 "content": [ours]}  # fmt: skip
        stored = self._part_metadata(name)
        self._parts.append(text_part(self._session, self._message_id, text, metadata=stored))
        self._write(written, item)

    def _call(self, item: Item) -> None:
        name = self._name(item, "fc")
        call_id, tool, raw = item.get("call_id"), item.get("name"), item.get("arguments")
        if type(call_id) is not str or type(tool) is not str or type(raw) is not str:
            raise _Unusual
        given = msgspec.json.decode(raw)
        if type(given) is not dict or not (_fits_call(call_id) and _fits_tool(tool)):
            raise _Unusual
        if any(call_id == known.get("call_id") for known in self._ours):
            raise _Unusual
        self._tools[call_id] = tool
        self._parts.append(
            tool_call_part(
                self._session, self._message_id, tool, given, call_id=call_id, raw=raw,
                metadata=self._part_metadata(name),
            )
        )  # fmt: skip
        ours = {"type": "function_call", "call_id": call_id, "name": tool, "arguments": raw,
                "id": name}  # fmt: skip
        self._write(ours, item)

    def _output(self, item: Item, index: int) -> None:
        call_id, output = item.get("call_id"), item.get("output")
        if type(call_id) is not str or type(output) is not str or not output:
            raise _Unusual
        if not _fits_call(call_id):
            raise _Unusual
        self.close(index)
        tool = self._tools.get(call_id) or "unknown"
        time = CompletedTime(self._at, self._at)
        state = ToolCompleted(input=EMPTY, output=output, title=tool, metadata=EMPTY, time=time)
        part = tool_part(self._session, self._message_id, call_id, tool, state)
        ours = {"type": "function_call_output", "call_id": call_id, "output": output}
        self._write(ours, item)
        self._add("tool", (part,), index + 1)
