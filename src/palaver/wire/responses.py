"""OpenAI Responses: a flat `input` of items, where thoughts, words and calls stand side by side.

A result may come any time after its call; what the API is strict about are the ids it gave: each
stands once, none of an item that thought led to without that thought, and no thought without what
it led to. An item without an id is always welcome, so in doubt an id stays at home.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec.structs import replace

from palaver.messages.files import FilePart
from palaver.messages.gate import is_list, is_object
from palaver.messages.ids import new_id
from palaver.messages.parts import ReasoningPart, TextPart, ToolCallPart, UnknownPart
from palaver.messages.toolstate import ToolCompleted
from palaver.wire import details
from palaver.wire.chat import is_custom
from palaver.wire.format import Format
from palaver.wire.items import Items, pair_of
from palaver.wire.kept import FILES, ITEMS
from palaver.wire.media import Linked, is_image, media_of
from palaver.wire.names import Alphabet
from palaver.wire.pen import attachments, block_of
from palaver.wire.shapes import passed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.messages.message import Message
    from palaver.messages.parts import Part, ToolPart
    from palaver.wire.format import Element, Written
    from palaver.wire.mending import Turn
    from palaver.wire.pen import Pen
    from palaver.wire.reading import Source
    from palaver.wire.shapes import Kind

__all__ = ["RESPONSES"]

_OFFICE: Final = "application/vnd.openxmlformats-officedocument."
_FILES: Final = frozenset(
    (
        *("application/pdf", "application/json", "application/msword", "application/rtf"),
        *("application/vnd.ms-excel", "application/vnd.ms-powerpoint"),
        "application/vnd.oasis.opendocument.text",
        f"{_OFFICE}presentationml.presentation",
        f"{_OFFICE}spreadsheetml.sheet",
        f"{_OFFICE}wordprocessingml.document",
        *("text/css", "text/csv", "text/html", "text/javascript", "text/markdown", "text/plain"),
        *("text/rtf", "text/tab-separated-values", "text/x-python", "text/xml"),
    )
)
"""The files that a model of OpenAI reads."""
_GIVEN: Final = frozenset(("item_reference", "additional_tools"))
"""Items that no model made: reasoning does not lead to one of these."""
_PHASES: Final = ("commentary", "final_answer")
_UNFINISHED: Final = ("incomplete", "in_progress")


class Responses(Format):
    """OpenAI Responses, and every server that speaks it."""

    name: ClassVar[str] = "openai-responses"
    provider: ClassVar[str] = "openai"
    items: ClassVar[str] = "input"
    plain: ClassVar[bool] = True
    heads: ClassVar[tuple[str, ...]] = ("instructions",)
    tool_names: ClassVar[Alphabet] = Alphabet("[a-zA-Z0-9_-]", 128)
    call_ids: ClassVar[Alphabet] = Alphabet("[!-~]", 64)
    fields: ClassVar[Mapping[str, Kind]] = details.RESPONSES

    def write(self, turn: Turn, pen: Pen) -> Sequence[Written]:
        """An item for a message; for an answer one for each thing in it, then the results."""
        message = turn.message
        content = message.content
        if type(content) is str:
            return (({"role": message.role, "content": content}, message),)
        if message.role == "assistant":
            return _Answer(turn, pen).written()
        blocks = [
            block
            for part in pen.sendable(turn)
            if (block := _block(part, message, pen)) is not None
        ]
        if not blocks:
            pen.nothing(message)
            return ()
        return (({"role": message.role, "content": blocks}, message),)

    def words(self, role: str, text: str) -> Element:
        """A message of palaver's own."""
        return {"role": role, "content": text}

    def leads(self, turn: Turn) -> bool:
        """Tell whether a message was read from `instructions`."""
        kept = turn.message.metadata.get("openai")
        instructs = is_object(kept) and kept.get("instructions") is True
        return instructs and turn.message.role == "system"

    def system(self, turn: Turn, pen: Pen) -> list[Any]:
        """The text of the instructions."""
        parts = (part for part in pen.sendable(turn) if type(part) is TextPart)
        content = turn.message.content
        return [content if isinstance(content, str) else "".join(part.text for part in parts)]

    def head(self, blocks: Sequence[Any]) -> Element:
        """The instructions."""
        return {"instructions": "\n\n".join(blocks)}

    def pairs(self, element: Element) -> Sequence[str]:
        """The call id, of a call or of a result."""
        return [f"{element.get('type')} {element['call_id']}"] if "call_id" in element else []

    def omits(self, element: Element, path: Sequence[Any]) -> bool:  # noqa: ARG002 - in any
        """What has a value that goes without saying."""
        return path[-1:] in (["type"], ["detail"], ["annotations"])

    def kind(self, element: Element, path: Sequence[Any]) -> Kind:
        """What may stand in a field; of the content, by who says it."""
        if list(path) == ["content"] and "role" in element:
            return details.RESPONSES_CONTENT[element["role"]]
        return super().kind(element, path)

    def spelled_out(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A text alone is what a user says."""
        given = body.get("input")
        if not isinstance(given, str):
            return body
        return {**body, "input": [{"role": "user", "content": given}]}

    def read(self, body: Mapping[str, Any], source: Source) -> None:
        """Read the instructions and the items."""
        instructions = body.get("instructions")
        if isinstance(instructions, str):
            source.add("system", instructions, -1, new_id())
            kept = {"openai": {"instructions": True}}
            source.messages[-1] = replace(source.messages[-1], metadata=kept)
        elif instructions is not None:
            source.lost("$.instructions", "shape", "instructions that are no text are left out")
        items = Items(source, body["input"])
        for place, item in enumerate(body["input"]):
            items.take(item, place)
        items.close()


class _Answer:
    """Writes one answer; remembers which thought was written last, and whether it is awaited."""

    def __init__(self, turn: Turn, pen: Pen) -> None:
        self._turn, self._pen = turn, pen
        self._ours = pen.target.takes_reasoning_of(turn.message)
        self._thought: str | None = None
        self._awaited = False
        self._calls = 0

    def written(self) -> Sequence[Written]:
        """The items of the answer and its results."""
        pen, message = self._pen, self._turn.message
        elements: list[Element] = []
        for group in self._groups():
            item = self._item(group)
            if item is not None:
                elements.append(item)
                self._awaited = item.get("type") == "reasoning"
        while elements and elements[-1].get("type") == "reasoning":
            elements.pop()
            detail = "reasoning that led to nothing is not sent"
            pen.note("lost", "reasoning-placement", detail, message)
        if not elements:
            pen.nothing(message)
        calls = [element for element in elements if element.get("type") in _OUTCOMES]
        written: list[Written] = [(element, message) for element in elements]
        for position, text, _, part, owner in pen.results(self._turn):
            call = calls[position]
            output = _output(text, part, owner, pen)
            result = {"type": _OUTCOMES[call["type"]], "call_id": call["call_id"], "output": output}
            written.append((result, owner))
        return written

    def _groups(self) -> list[list[Part]]:
        """The parts, those together that are of one item."""
        groups: list[list[Part]] = []
        last: tuple[object, ...] | None = None
        for part in self._pen.sendable(self._turn):
            kept = kept_by(part)
            if type(part) is TextPart and not part.text and not kept:
                continue
            key = _key(part, kept)
            if key is not None and key == last and not kept.get("apart"):
                groups[-1].append(part)
            else:
                groups.append([part])
            last = key
        return groups

    def _item(self, group: list[Part]) -> Element | None:
        part = group[0]
        if type(part) is ReasoningPart:
            return self._reasoning(part, group)
        if type(part) is ToolCallPart:
            return self._call(part)
        return self._other(part) if type(part) is UnknownPart else self._said(part, group)

    def _said(self, part: Part, group: list[Part]) -> Element:
        kept = kept_by(part)
        name = self._id(kept, "msg")
        phase = {"phase": kept["phase"]} if kept.get("phase") in _PHASES else {}
        if name is None:
            texts = (
                self._pen.left_out(piece, self._turn.message)
                if type(piece) is FilePart
                else getattr(piece, "text", "")
                for piece in group
            )
            return {"role": "assistant", "content": "".join(texts), **phase}
        status = kept.get("status")
        return {
            "type": "message",
            "id": name,
            "role": "assistant",
            "status": status if status in _UNFINISHED else "completed",
            "content": [_output_block(piece) for piece in group if type(piece) is TextPart],
            **phase,
        }

    def _reasoning(self, part: ReasoningPart, group: list[Part]) -> Element | None:
        self._thought = None
        name = self._id(kept_by(part), "rs")
        if name is None:
            detail = "reasoning without an id of its own in this request is not sent"
            self._pen.note("lost", "foreign-reasoning", detail, self._turn.message)
            return None
        element: Element = {"type": "reasoning", "id": name, "summary": []}
        for piece in group:
            kept, text = kept_by(piece), getattr(piece, "text", "")
            sealed = kept.get("encrypted_content")
            if isinstance(sealed, str) and sealed.strip():
                element["encrypted_content"] = sealed
            if text and kept.get("content") is True:
                element.setdefault("content", []).append({"type": "reasoning_text", "text": text})
            elif text:
                element["summary"].append({"type": "summary_text", "text": text})
        self._thought = name
        return element

    def _call(self, call: ToolCallPart) -> Element:
        pen, turn, kept = self._pen, self._turn, kept_by(call)
        call_id = pen.call_id(turn, self._calls)
        self._calls += 1
        custom = is_custom(call)
        element: Element = {
            "type": "custom_tool_call" if custom else "function_call",
            "call_id": call_id,
            "name": pen.tool(call.tool, turn.message),
            "input" if custom else "arguments": (
                call.raw if custom else pen.arguments(call, turn.message)
            ),
        }
        name = self._id(kept, "ctc" if custom else "fc")
        if name is not None:
            element["id"] = name
        if isinstance(kept.get("namespace"), str) and kept["namespace"]:
            element["namespace"] = kept["namespace"]
        if self._ours and is_object(kept.get("caller")):
            element["caller"] = kept["caller"]
        return element

    def _other(self, part: UnknownPart) -> Element | None:
        """An item as it came; left out where what it hangs on is not there."""
        block, after = _passed(part), part.raw.get("after")
        if block is None:
            why = "is not as it should be"
        elif (pair := pair_of(block)) and pair not in self._pairs():
            why = "has a call or an output without the other"
        elif after is not None and after != self._thought:
            why = "came after reasoning that is not sent"
        elif self._awaited and block["type"] in _GIVEN:
            why = "can't follow reasoning"
        elif "id" in block and not self._pen.once(str(block["id"])):
            why = "stands twice"
        else:
            return block
        detail = f"an item of type {block_of(part).get('type')!r} {why}: it is not sent"
        self._pen.note("lost", "unknown-part", detail, self._turn.message)
        return None

    def _pairs(self) -> set[tuple[str, str]]:
        """The calls and outputs of this answer that have each other."""
        blocks = (_passed(part) for part in self._turn.message.parts if type(part) is UnknownPart)
        found = {pair for block in blocks if block and (pair := pair_of(block))}
        return {(side, key) for side, key in found if {("call", key), ("output", key)} <= found}

    def _id(self, kept: Mapping[str, Any], prefix: str) -> str | None:
        """An item's id, where it may be sent: to its model, after its thought, once."""
        name, after = kept.get("id"), kept.get("after")
        if not isinstance(name, str) or not self._ours or (after and after != self._thought):
            return None
        if not re.fullmatch(rf"{prefix}[a-zA-Z0-9_-]{{1,{64 - len(prefix)}}}", name):
            return None
        return name if self._pen.once(name) else None


_OUTCOMES: Final = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}


def _passed(part: UnknownPart) -> Element | None:
    """An item as far as OpenAI knows such a one."""
    raw = block_of(part)
    block = raw if raw.get("type") is not None else {**raw, "type": "item_reference"}
    shape = ITEMS.get(str(block["type"]))
    return None if part.type != RESPONSES.name or shape is None else passed(block, shape)


def kept_by(part: Part) -> Mapping[str, Any]:
    """What a part keeps of OpenAI's."""
    metadata: Mapping[str, Any] = getattr(part, "metadata", {})
    kept = metadata.get("openai")
    return kept if is_object(kept) else {}


def _key(part: Part, kept: Mapping[str, Any]) -> tuple[object, ...] | None:
    """What parts of one item have in common."""
    if type(part) is ReasoningPart:
        return (ReasoningPart, kept.get("id"))
    if type(part) is TextPart or type(part) is FilePart:
        return (TextPart, kept.get("id"), kept.get("phase"))
    return None


def _output_block(part: TextPart) -> Element:
    kept = kept_by(part)
    if kept.get("refusal") is True:
        return {"type": "refusal", "refusal": part.text}
    found = kept.get("annotations")
    notes = [note for note in found if is_object(note)] if is_list(found) else []
    return {"type": "output_text", "text": part.text, "annotations": notes}


def _block(part: Part, message: Message, pen: Pen) -> Element | None:
    """A block of what a user or a system message says."""
    if type(part) is TextPart:
        return {"type": "input_text", "text": part.text}
    if type(part) is UnknownPart and message.role == "user":
        raw = block_of(part)
        shape = FILES.get(str(raw.get("type")))
        if shape is not None and (block := passed(raw, shape)) is not None:
            return block
    if type(part) is FilePart:
        if message.role == "user" and (block := _file(part, pen)) is not None:
            return block
        return {"type": "input_text", "text": pen.left_out(part, message)}
    pen.misplaced(part, message)
    return None


def _file(part: FilePart, pen: Pen) -> Element | None:
    media = media_of(part)
    if is_image(media):
        image = {"type": "input_image", "detail": "auto", "image_url": media.url}
        return image if pen.target.images else None
    if media is None or media.mime not in _FILES or not pen.target.files:
        return None
    if isinstance(media, Linked):
        return (
            None if media.url.startswith("gs:") else {"type": "input_file", "file_url": media.url}
        )
    name = part.filename or f"file.{media.mime.rpartition('/')[2]}"
    return {"type": "input_file", "filename": name, "file_data": media.url}


def _output(text: str, part: ToolPart | None, owner: Message, pen: Pen) -> str | list[Element]:
    """What a call gave: text, or blocks where there are files."""
    files = attachments(part)
    if not files:
        return text
    state = part.state if part is not None else None
    silent = type(state) is ToolCompleted and state.metadata.get("rawOutput") == ""
    blocks: list[Element] = [] if silent else [{"type": "input_text", "text": text}]
    for file in files:
        words = {"type": "input_text", "text": ""}
        blocks.append(_file(file, pen) or {**words, "text": pen.left_out(file, owner)})
    return blocks


RESPONSES: Final = Responses()
