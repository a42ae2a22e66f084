"""Gemini contents: a system instruction, turns of user and model, responses in a turn of their own.

Calls and responses are paired by id where the model gave ids, else by name and order. A thought
signature goes back on the part it came on, to the model that made it. The newest models refuse a
call without one while its turn is open; a call from elsewhere gets the value that Google names for
history its model did not write.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

from palaver.messages.files import FilePart
from palaver.messages.gate import is_list, is_object
from palaver.messages.parts import ReasoningPart, TextPart, ToolCallPart, UnknownPart
from palaver.wire import details
from palaver.wire.format import Format
from palaver.wire.gemini_parts import (
    SIGNATURE,
    camel_body,
    file_block,
    is_signature,
    read_contents,
    result_files,
)
from palaver.wire.kept import PARTS
from palaver.wire.names import Alphabet
from palaver.wire.pen import attachments, block_of
from palaver.wire.shapes import passed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.messages.message import Message
    from palaver.messages.parts import Part
    from palaver.wire.format import Element, Written
    from palaver.wire.mending import Turn
    from palaver.wire.pen import Pen
    from palaver.wire.reading import Source
    from palaver.wire.shapes import Kind, Shape
    from palaver.wire.target import Target

__all__ = ["FOREIGN", "GEMINI", "Gemini"]

FOREIGN: Final = "skip_thought_signature_validator"
"""The signature of a call that the model did not make."""
_VERSION: Final = re.compile(r"gemini-(\d+)")
_SIGNED: Final = 3
"""From this version on calls need signatures and responses may hold files."""
_BESIDES: Final[Shape] = {
    "thought*": bool,
    f"{SIGNATURE}*": is_signature,
    "partMetadata*": dict,
}


class Gemini(Format):
    """Gemini's generateContent, in the spelling of its REST interface."""

    name: ClassVar[str] = "gemini"
    provider: ClassVar[str] = "google"
    items: ClassVar[str] = "contents"
    heads: ClassVar[tuple[str, ...]] = ("systemInstruction",)
    tool_names: ClassVar[Alphabet] = Alphabet("[a-zA-Z0-9_.:-]", 128, "[a-zA-Z_]")
    call_ids: ClassVar[Alphabet] = Alphabet("(?s:.)", 1024)
    says_failure: ClassVar[bool] = True
    alternates: ClassVar[bool] = True
    fields: ClassVar[Mapping[str, Kind]] = details.GEMINI

    opaque: ClassVar[frozenset[str]] = frozenset(("args", "response", "partMetadata"))

    def write(self, turn: Turn, pen: Pen) -> Sequence[Written]:
        """One element for a message, and one for all responses to an answer's calls."""
        message = turn.message
        role, content = message.role, message.content
        if role == "system":
            aside = pen.aside(turn)
            return () if aside is None else ((self.words("user", aside), message),)
        if type(content) is str:
            if not content:
                pen.nothing(message)
                return ()
            return ((self.words(role, content), message),)
        if role == "assistant":
            return self._answer(turn, pen)
        parts = [
            found
            for part in pen.sendable(turn)
            if (found := self._part(part, message, pen)) is not None
        ]
        if not parts:
            pen.nothing(message)
            return ()
        return (({"role": "user", "parts": parts}, message),)

    def words(self, role: str, text: str) -> Element:
        """A turn of one text."""
        return {"role": "user" if role == "user" else "model", "parts": [{"text": text}]}

    def joins(self, element: Element, more: Element, owner: Message) -> bool:
        """Tell whether a neighbour becomes one with an element: responses stand alone."""
        return (
            not _responds(element) and not _responds(more) and super().joins(element, more, owner)
        )

    def join(self, element: Element, more: Element) -> None:
        """Add the parts of a neighbour."""
        element["parts"] += more["parts"]

    def holds(
        self,
        element: Element,
        around: tuple[Element | None, Element | None],  # noqa: ARG002 - any
        owner: Message,
        target: Target,
    ) -> bool:
        """A signature comes back only to the model that made it."""
        signed = any(part.get(SIGNATURE, FOREIGN) != FOREIGN for part in element.get("parts", ()))
        return not signed or target.takes_reasoning_of(owner)

    def system(self, turn: Turn, pen: Pen) -> list[Any]:
        """The texts of a system message that stands first."""
        return [{"text": text} for text in pen.instruction(turn) if text]

    def head(self, blocks: Sequence[Any]) -> Element:
        """The system instruction."""
        return {"systemInstruction": {"parts": list(blocks)}}

    def spelled_out(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A body in camelCase: both spellings are read."""
        return camel_body(body)

    def pairs(self, element: Element) -> Sequence[str]:
        """Calls and responses, by id and name."""
        parts = element.get("parts")
        return [
            f"{field} {part[field].get('id')} {part[field].get('name')}"
            for part in (parts if is_list(parts) else ())
            for field in ("functionCall", "functionResponse")
            if is_object(part) and is_object(part.get(field))
        ]

    def omits(self, element: Element, path: Sequence[Any]) -> bool:  # noqa: ARG002 - in any
        """The arguments of a call."""
        return path[-1:] == ["args"]

    def read(self, body: Mapping[str, Any], source: Source) -> None:
        """Read the system instruction and the contents."""
        read_contents(body, source)

    def _answer(self, turn: Turn, pen: Pen) -> Sequence[Written]:
        message = turn.message
        parts: list[Element] = []
        calls: list[Element] = []
        ids: set[str] = set()
        for part in pen.sendable(turn):
            if type(part) is ToolCallPart:
                call = _call(turn, len(calls), ids, pen)
                calls.append(call["functionCall"])
                found: Element | None = call
            elif type(part) is ReasoningPart:
                found = _signed({"text": part.text, "thought": True}, part, message, pen)
                found = None if _is_empty(found) else found
            else:
                found = self._part(part, message, pen)
            if found is not None:
                parts.append(found)
        if not parts:
            pen.nothing(message)
            return ()
        answer: Written = ({"role": "model", "parts": parts}, message)
        if not calls:
            return (answer,)
        return answer, self._responses(turn, calls, pen)

    def _responses(self, turn: Turn, calls: list[Element], pen: Pen) -> Written:
        results = list(pen.results(turn))
        names = [call["name"] for call in calls if "id" not in call]
        if len(set(names)) < len(names):
            results.sort(key=lambda result: result[0])  # only order tells these calls apart
        parts: list[Element] = []
        for position, output, failed, part, owner in results:
            call = calls[position]
            response: Element = {"name": call["name"]}
            if "id" in call:
                response["id"] = call["id"]
            response["response"] = {"error" if failed else "output": output}
            if attachments(part):
                files = result_files(part, owner, pen) if _is_new(pen.target) else []
                if files:
                    response["parts"] = files
                elif not _is_new(pen.target):
                    pen.attachments_lost(part, owner)
            parts.append({"functionResponse": response})
        return {"role": "user", "parts": parts}, results[0][-1]

    def _part(self, part: Part, message: Message, pen: Pen) -> Element | None:
        if type(part) is TextPart:
            found = _signed({"text": part.text}, part, message, pen)
            if not _is_empty(found):
                return found
            pen.note("repaired", "empty-text", "a text with nothing in it is left out", message)
        elif type(part) is FilePart:
            return file_block(part, message, pen)
        elif type(part) is UnknownPart:
            return _kept(part, message, pen)
        else:
            pen.misplaced(part, message)
        return None


def _responds(element: Element) -> bool:
    return "functionResponse" in element["parts"][0]


def _is_empty(part: Element) -> bool:
    return not part["text"] and SIGNATURE not in part


def _is_new(target: Target) -> bool:
    """Tell whether the target may be one of the newest models: nobody knows better."""
    found = _VERSION.search(target.model.model_id) if target.model is not None else None
    return found is None or int(found[1]) >= _SIGNED


def _signed(
    element: Element, part: TextPart | ReasoningPart | ToolCallPart, message: Message, pen: Pen
) -> Element:
    """The element with the signature that came on its part, where the target made it."""
    kept = part.metadata.get("google")
    signature = kept.get(SIGNATURE) if is_object(kept) else None
    if is_signature(signature) and message.role == "assistant":
        if pen.target.takes_reasoning_of(message):
            element[SIGNATURE] = signature
        else:
            detail = "a thought signature goes only to the model that made it"
            pen.note("lost", "foreign-reasoning", detail, message)
    return element


def _call(turn: Turn, position: int, ids: set[str], pen: Pen) -> Element:
    """A call; `ids` are those of the calls before it in its answer."""
    message, part = turn.message, turn.calls[position]
    kept = part.metadata.get("google")
    ours = kept if is_object(kept) else {}
    call: Element = {
        "name": pen.tool(part.tool, message),
        "args": pen.given(part, message),
    }
    own = ours.get("id")
    if isinstance(own, str) and own:
        if own in ids:
            twice, own = own, pen.call_id(turn, position)
            if own == part.call_id:  # else it was said already
                detail = f"{twice[:80]!r} is sent as {own!r}"
                pen.note("repaired", "duplicate-call-id", detail, message)
        while own in ids:
            own += "'"
        ids.add(own)
        call["id"] = own
    found = _signed({"functionCall": call}, part, message, pen)
    unneeded = position or (ours.get("unsigned") is True and pen.is_past())
    if SIGNATURE not in found and not unneeded and _is_new(pen.target):
        found[SIGNATURE] = FOREIGN
        detail = f"the call of {part.tool} has no signature of this model: {FOREIGN!r} stands in"
        pen.note("repaired", "missing-signature", detail, message)
    return found


def _kept(part: UnknownPart, message: Message, pen: Pen) -> Element | None:
    """A part that palaver does not understand, where it may stand: in an answer."""
    raw = {key: value for key, value in block_of(part).items() if value is not None}
    carried = [key for key in raw if f"{key}*" not in _BESIDES]
    shape = PARTS.get(carried[0]) if len(carried) == 1 and message.role == "assistant" else None
    block = passed(raw, {carried[0]: shape, **_BESIDES}) if shape is not None else None
    if block is None:
        detail = f"a part with {', '.join(sorted(carried)) or 'nothing'} has no place here"
        pen.note("lost", "unknown-part", detail, message)
        return None
    if SIGNATURE in block and not pen.target.takes_reasoning_of(message):
        del block[SIGNATURE]
        detail = "a thought signature goes only to the model that made it"
        pen.note("lost", "foreign-reasoning", detail, message)
    return block


GEMINI: Final = Gemini()
