"""The items that most runs are made of, read without detours.

A question, a thought, words, a call, an output, each as the SDK writes it: how palaver writes those
is known beforehand, so that what an item says beyond it is found without writing it first. What is
made here is what `items` makes of the same; of anything unusual the answer is None, and it does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from palaver.messages.factories import reasoning_part, text_part, tool_call_part, tool_part
from palaver.messages.gate import EMPTY
from palaver.messages.ids import new_id, now_ms
from palaver.messages.message import Message
from palaver.messages.toolstate import CompletedTime, ToolCompleted
from palaver.wire.memory import fingerprint
from palaver.wire.responses import RESPONSES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.messages.message import Role
    from palaver.messages.parts import Part

__all__ = ["KEY", "Item", "kept_as", "plain_messages"]

Item: TypeAlias = dict[str, Any]

KEY: Final = "openai_agents"
"""Where a message's metadata keeps what its items say beyond it."""
_ELSEWHERE: Final = frozenset(("phase", "namespace", "caller", "encrypted_content"))
"""What `items` keeps in a part."""
_IDS: Final = {
    prefix: re.compile(rf"{prefix}[a-zA-Z0-9_-]{{1,{64 - len(prefix)}}}").fullmatch
    for prefix in ("rs", "msg", "fc")
}
"""The ids of OpenAI's that may be sent to it again."""
_fits_call: Final = RESPONSES.call_ids.fits
_fits_tool: Final = RESPONSES.tool_names.fits


class _Unusual(Exception):  # noqa: N818 - nothing is wrong
    """There is an item that needs a closer look."""


def plain_messages(
    items: Sequence[Any], session: str, tools: Mapping[str, str]
) -> list[tuple[Message, Sequence[Any]]] | None:
    """The messages of some items, each with its own; None where one of them is unusual."""
    reader = _Reader(items, session, tools)
    try:
        for place, item in enumerate(items):
            reader.take(item, place)
        reader.close(len(items))
    except (_Unusual, msgspec.DecodeError):
        return None
    return reader.found


def kept_as(ours: list[Item], steps: list[Any]) -> str:
    """What is kept of a difference: what palaver would write, in short, and what to change in it.

    One text: that is cheap to let in.
    """
    return f"{fingerprint(ours)} {msgspec.json.encode(steps).decode()}"


class _Reader:
    """Reads items one by one; an answer goes on until something comes that is not the model's."""

    def __init__(self, items: Sequence[Any], session: str, tools: Mapping[str, str]) -> None:
        self.found: list[tuple[Message, Sequence[Any]]] = []
        self._items, self._session, self._tools = items, session, {**tools}
        self._at = now_ms()
        self._begin(0)

    def _begin(self, place: int) -> None:
        self._place, self._message_id = place, new_id()
        self._parts: list[Part] = []
        self._ours: list[Item] = []
        self._steps: list[Any] = []
        self._after: str | None = None

    def take(self, item: Item, place: int) -> None:
        """Read the item at this place."""
        kind = item.get("type") if type(item) is dict else ""
        if kind == "function_call_output":
            self._output(item, place)
        elif kind == "function_call":
            self._call(item)
        elif kind == "reasoning":
            self._thought(item)
        elif kind == "message" and item.get("role") == "assistant":
            self._words(item)
        elif kind is None or kind == "message":
            self._question(item, place)
        else:
            raise _Unusual

    def close(self, place: int) -> None:
        """End the answer that is being read, where there is one, before this place."""
        if self._parts:
            if self._ours[-1]["type"] == "reasoning":
                raise _Unusual
            self._add("assistant", tuple(self._parts), place)

    def _add(self, role: Role, content: str | tuple[Part, ...], stop: int) -> None:
        metadata = {KEY: kept_as(self._ours, self._steps)} if self._steps else EMPTY
        message = Message(role, content, self._message_id, self._at, metadata)
        self.found.append((message, self._items[self._place : stop]))
        self._begin(stop)

    def _write(self, ours: Item, theirs: Item) -> None:
        """Note how palaver writes an item, and what the item says beyond that."""
        if len(theirs) > len(ours):
            place = len(self._ours)
            self._steps += [[[place, key], theirs[key]] for key in theirs if key not in ours]
        self._ours.append(ours)

    def _name(self, item: Item, prefix: str) -> str:
        """The id of an item: one that may be sent again, and stands once."""
        name = item.get("id")
        if type(name) is not str or not _IDS[prefix](name) or not _ELSEWHERE.isdisjoint(item):
            raise _Unusual
        if any(name == known["id"] for known in self._ours):
            raise _Unusual
        return name

    def _kept(self, name: str) -> dict[str, Any]:
        return {"openai": {"id": name, "after": self._after} if self._after else {"id": name}}

    def _question(self, item: Item, place: int) -> None:
        role, text = item.get("role"), item.get("content")
        if role not in ("user", "system") or type(text) is not str:
            raise _Unusual
        self.close(place)
        self._write({"role": role, "content": text}, item)
        self._add(role, text, place + 1)

    def _thought(self, item: Item) -> None:
        name = self._name(item, "rs")
        if item.get("summary") != [] or item.get("content") not in ([], None):
            raise _Unusual
        kept = {"openai": {"id": name}}
        self._parts.append(reasoning_part(self._session, self._message_id, "", metadata=kept))
        self._write({"type": "reasoning", "id": name, "summary": []}, item)
        self._after = name

    def _words(self, item: Item) -> None:
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
        whole = {"type": "message", "id": name, "role": "assistant", "status": "completed",
                 "content": [ours]}  # fmt: skip
        kept = self._kept(name)
        self._parts.append(text_part(self._session, self._message_id, text, metadata=kept))
        self._write(whole, item)

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
                metadata=self._kept(name),
            )
        )  # fmt: skip
        ours = {"type": "function_call", "call_id": call_id, "name": tool, "arguments": raw,
                "id": name}  # fmt: skip
        self._write(ours, item)

    def _output(self, item: Item, place: int) -> None:
        call_id, output = item.get("call_id"), item.get("output")
        if type(call_id) is not str or type(output) is not str or not output:
            raise _Unusual
        if not _fits_call(call_id):
            raise _Unusual
        self.close(place)
        tool = self._tools.get(call_id) or "unknown"
        time = CompletedTime(self._at, self._at)
        state = ToolCompleted(input=EMPTY, output=output, title=tool, metadata=EMPTY, time=time)
        part = tool_part(self._session, self._message_id, call_id, tool, state)
        ours = {"type": "function_call_output", "call_id": call_id, "output": output}
        self._write(ours, item)
        self._add("tool", (part,), place + 1)
