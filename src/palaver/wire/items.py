"""Items of OpenAI Responses, read: a flat list becomes messages again.

What the model made in one go (thoughts, words, calls, what OpenAI ran itself) is one answer, up to
the next word of a user or the next result. What an item says beyond its words is kept in its parts'
metadata under `openai`: its `id`, and with `after` the reasoning without which that id is refused.
"""

from __future__ import annotations

import mimetypes
from typing import TYPE_CHECKING, Any, Final

from palaver.messages.content import image_mime
from palaver.messages.factories import file_part, reasoning_part
from palaver.messages.gate import is_list, is_object
from palaver.messages.ids import new_id
from palaver.messages.parts import TextPart, UnknownPart
from palaver.wire.kept import ITEMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from palaver.messages.files import FilePart
    from palaver.messages.message import Role
    from palaver.messages.parts import Part
    from palaver.wire.reading import Source

__all__ = [
    "CALLS",
    "OTHERS",
    "RESULTS",
    "Items",
    "kept_of_call",
    "kept_of_text",
    "kept_of_thought",
    "pair_of",
]

CALLS: Final = {"function_call": "arguments", "custom_tool_call": "input"}
"""The items that call a tool of ours, and where each has what it is called with."""
RESULTS: Final = frozenset(f"{call}_output" for call in CALLS)
OTHERS: Final = frozenset(ITEMS)
"""The items that palaver keeps without understanding them."""
_PAIRS: Final = {
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "tool_search_call": "tool_search_output",
}
_ENDS: Final = frozenset(_PAIRS.values())


def pair_of(item: Mapping[str, Any]) -> tuple[str, str] | None:
    """Tell a call or an output that must not be without the other, and what pairs them.

    >>> pair_of({"type": "computer_call", "call_id": "c1"})
    ('call', 'c1')
    """
    kind = item.get("type")
    key = item.get("call_id") or (kind == "local_shell_call_output" and item.get("id"))
    if not isinstance(key, str):
        return None
    return ("call", key) if kind in _PAIRS else ("output", key) if kind in _ENDS else None


def kept_of_text(
    item: Mapping[str, Any], block: Mapping[str, Any], after: str | None
) -> dict[str, Any]:
    """What the model's words keep of their item and their block."""
    kept = {key: item[key] for key in ("id", "phase") if isinstance(item.get(key), str)}
    if item.get("status") in ("incomplete", "in_progress"):
        kept["status"] = item["status"]
    if block.get("type") == "refusal":
        kept["refusal"] = True
    notes = block.get("annotations")
    if is_list(notes) and notes:
        kept["annotations"] = notes
    return _placed(kept, after)


def kept_of_call(item: Mapping[str, Any], after: str | None) -> dict[str, Any]:
    """What a call keeps of its item."""
    kept = {key: item[key] for key in ("id", "namespace") if isinstance(item.get(key), str)}
    if is_object(item.get("caller")):
        kept["caller"] = item["caller"]
    if item.get("type") == "custom_tool_call":
        kept["custom"] = True
    return _placed(kept, after)


def kept_of_thought(item: Mapping[str, Any], *, first: bool, inner: bool) -> dict[str, Any]:
    """What a thought keeps of its item; the first of an item has what only OpenAI can read."""
    keys = ("id", "encrypted_content") if first else ("id",)
    kept = {key: item[key] for key in keys if isinstance(item.get(key), str)}
    return {**kept, "content": True} if inner else kept


def _placed(kept: dict[str, Any], after: str | None) -> dict[str, Any]:
    return {**kept, "after": after} if after and "id" in kept else kept


class Items:
    """Reads items one by one into a source."""

    def __init__(self, source: Source, items: Iterable[object]) -> None:
        """Read into this source; the items are looked through for outputs that come late."""
        self._source = source
        self._outputs = {
            key[1]: item
            for item in items
            if is_object(item) and (key := pair_of(item)) and key[0] == "output"
        }
        self._waiting: dict[str, Mapping[str, Any]] = {}
        self._placed: set[str] = set()
        self._parts: list[Part] | None = None
        self._plain: str | None = None
        self._message_id = ""
        self._place = 0
        self._after: str | None = None
        self._calls = 0

    def take(self, item: object, place: int) -> None:
        """Read the item at this place."""
        kind = item.get("type") if is_object(item) else None
        kind = kind if kind is None or isinstance(kind, str) else str(kind)
        if not is_object(item):
            self._lost(place, "shape", "an item that is no object was left out")
        elif kind in (None, "message") and "role" in item:
            self._message(item, place)
        elif kind == "reasoning":
            self._reasoning(item, place)
        elif kind in CALLS:
            self._call(item, place)
        elif kind in RESULTS:
            self._result(item, place)
        elif kind in OTHERS or (kind is None and "id" in item):
            self._other(item, place)
        else:
            self._lost(place, "unknown-part", f"an item of type {kind!r} is not understood")

    def close(self) -> None:
        """End the answer that is being read."""
        if self._parts is not None:
            for key, output in self._waiting.items():
                self._keep(output, self._parts)  # it came late: its place is with its call
                self._placed.add(key)
            self._waiting.clear()
            plain = self._plain if len(self._parts) == 1 else None
            content = self._parts if plain is None else plain
            self._source.add("assistant", content, self._place, self._message_id)
        self._parts = self._plain = self._after = None
        self._calls = 0

    def _lost(self, place: int, rule: str, detail: str) -> None:
        self._source.lost(f"$.input[{place}]", rule, detail)

    def _answer(self, place: int) -> list[Part]:
        if self._parts is None:
            self._parts, self._message_id, self._place = [], new_id(), place
        return self._parts

    def _message(self, item: Mapping[str, Any], place: int) -> None:
        role, content, source = item["role"], item.get("content"), self._source
        if role == "assistant":
            self._said(item, place)
        elif role in ("user", "system", "developer"):
            self.close()
            message_id = new_id()
            side: Role = "user" if role == "user" else "system"
            if not isinstance(content, str):
                content = tuple(_given(content, message_id, source))
            source.add(side, content, place, message_id)
        else:
            self._lost(place, "role", f"a message of role {role!r} is not understood")

    def _said(self, item: Mapping[str, Any], place: int) -> None:
        """Words of the model: they go on with its answer unless they can't be told from it."""
        named = isinstance(item.get("id"), str)
        beside = any(type(part) is TextPart for part in (self._parts or ())[-1:])
        if beside and not named and not self._calls:
            self.close()
            beside = False
        parts, content = self._answer(place), item.get("content")
        blocks = [{"text": content}] if isinstance(content, str) else content
        for block in blocks if is_list(blocks) else ():
            text = block.get("text", block.get("refusal")) if is_object(block) else None
            if not isinstance(text, str):
                self._lost(place, "unknown-part", "a block of an answer is not understood")
                continue
            kept = kept_of_text(item, block, self._after)
            if not named and (beside or not text):
                kept["apart"] = True  # else it would flow into its neighbour, or be left out
                beside = False
            metadata = {"openai": kept} if kept else {}
            parts.append(self._source.text(self._message_id, text, metadata=metadata))
        if isinstance(content, str) and not named and "phase" not in item and len(parts) == 1:
            self._plain = content

    def _reasoning(self, item: Mapping[str, Any], place: int) -> None:
        parts = self._answer(place)
        session, message_id = self._source.session, self._message_id
        texts = [
            (block["text"], key == "content")
            for key in ("summary", "content")
            for block in (item[key] if is_list(item.get(key)) else ())
            if is_object(block) and isinstance(block.get("text"), str)
        ]
        for index, (text, inner) in enumerate(texts or [("", False)]):
            kept = kept_of_thought(item, first=not index, inner=inner)
            metadata = {"openai": kept}
            parts.append(reasoning_part(session, message_id, text, metadata=metadata))
        name = item.get("id")
        self._after = name if isinstance(name, str) else None

    def _call(self, item: Mapping[str, Any], place: int) -> None:
        parts, kind = self._answer(place), str(item["type"])
        raw, call_id = item.get(CALLS[kind]), item.get("call_id")
        kept = kept_of_call(item, self._after)
        self._calls += 1
        parts.append(
            self._source.call(
                self._message_id,
                call_id if isinstance(call_id, str) and call_id else new_id(),
                str(item.get("name") or "unknown"),
                raw if isinstance(raw, str) else "",
                metadata={"openai": kept} if kept else {},
            )
        )

    def _result(self, item: Mapping[str, Any], place: int) -> None:
        self.close()
        message_id, output = new_id(), item.get("output")
        files: list[FilePart] = []
        if not isinstance(output, str):
            texts = list[str]()
            for block in output if is_list(output) else ():
                if is_object(block) and isinstance(block.get("text"), str):
                    texts.append(block["text"])
                elif is_object(block) and (file := _file(block, message_id, self._source)):
                    files.append(file)
            output = "".join(texts)
        part = self._source.result(message_id, str(item.get("call_id")), output, files=files)
        self._source.add("tool", [part], place, message_id)

    def _other(self, item: Mapping[str, Any], place: int) -> None:
        """What OpenAI ran, or another program for it."""
        key = pair_of(item)
        if key and key[0] == "output":
            if key[1] in self._placed:
                return
            if self._waiting.pop(key[1], None) is None:
                detail = f"an item of type {item['type']!r} has no call before it"
                self._lost(place, "result-without-call", detail)
                return
            self._placed.add(key[1])
        self._keep(item, self._answer(place))
        if key and key[0] == "call" and key[1] in self._outputs:
            self._waiting[key[1]] = self._outputs[key[1]]

    def _keep(self, item: Mapping[str, Any], parts: list[Part]) -> None:
        raw: dict[str, Any] = {"type": self._source.form.name, "id": new_id(), "block": item}
        parts.append(UnknownPart({**raw, "after": self._after} if self._after else raw))


def _given(content: object, message_id: str, source: Source) -> Iterator[Part]:
    """What a user or a system message holds."""
    for block in content if is_list(content) else ():
        if not is_object(block):
            source.lost(f"message {message_id}", "unknown-part", "a block that is no object")
        elif block.get("type") == "input_text" and isinstance(block.get("text"), str):
            yield source.text(message_id, block["text"])
        else:
            yield _file(block, message_id, source) or source.unknown(block)


def _file(block: Mapping[str, Any], message_id: str, source: Source) -> FilePart | None:
    """An image or a file; None where it is something else or kept elsewhere."""
    image, held, linked = (block.get(key) for key in ("image_url", "file_data", "file_url"))
    name, mime, url = block.get("filename"), "", ""
    if isinstance(image, str) and image:
        mime, url = image_mime(image), image
    elif isinstance(held, str) and held.startswith("data:"):
        mime, url = held[5:].partition(",")[0].partition(";")[0], held
    elif isinstance(linked, str) and linked:
        mime, url = mimetypes.guess_type(linked)[0] or "application/pdf", linked
    if not mime:
        return None
    named = name if isinstance(name, str) and name else None
    return file_part(source.session, message_id, mime, url, filename=named)
