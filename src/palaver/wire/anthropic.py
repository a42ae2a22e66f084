"""Anthropic Messages: the system text apart, results at the head of the user turn after a call.

What an answer thought goes back with its signature or not at all. A tool that Anthropic runs
itself leaves its call and its result in the answer; they are kept as they are, both or none.
"""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Any, ClassVar, Final

from palaver.messages.files import FilePart
from palaver.messages.gate import is_list, is_object
from palaver.messages.parts import ReasoningPart, TextPart, ToolCallPart, UnknownPart
from palaver.wire import details
from palaver.wire.anthropic_blocks import SERVED, file_block, is_blank, read_messages, words_block
from palaver.wire.format import Format
from palaver.wire.kept import OF_ANSWERS, OF_USERS
from palaver.wire.names import Alphabet
from palaver.wire.pen import attachments, block_of
from palaver.wire.shapes import passed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from palaver.messages.message import Message
    from palaver.messages.parts import Part, ToolPart
    from palaver.wire.format import Element, Written
    from palaver.wire.mending import Turn
    from palaver.wire.pen import Pen
    from palaver.wire.reading import Source
    from palaver.wire.shapes import Kind
    from palaver.wire.target import Target

__all__ = ["ANTHROPIC", "Anthropic"]

_THOUGHTS: Final = frozenset(("thinking", "redacted_thinking"))
_VERSION: Final = re.compile(r"-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_SYSTEM_INSIDE: Final = (4, 8)
"""From this version on a system message may stand among the others."""


class Anthropic(Format):
    """Anthropic Messages."""

    name: ClassVar[str] = "anthropic"
    provider: ClassVar[str] = "anthropic"
    items: ClassVar[str] = "messages"
    plain: ClassVar[bool] = True
    heads: ClassVar[tuple[str, ...]] = ("system",)
    tool_names: ClassVar[Alphabet] = Alphabet("[a-zA-Z0-9_-]", 128)
    call_ids: ClassVar[Alphabet] = Alphabet("[a-zA-Z0-9_-]", 64)
    says_failure: ClassVar[bool] = True
    alternates: ClassVar[bool] = True
    may_repeat: ClassVar[bool] = True
    fields: ClassVar[Mapping[str, Kind]] = details.ANTHROPIC

    opaque: ClassVar[frozenset[str]] = frozenset(("input", "citations", "caller"))

    def write(self, turn: Turn, pen: Pen) -> Sequence[Written]:
        """One element for a message, and one for all results of an answer's calls."""
        message = turn.message
        role, content = message.role, message.content
        if role == "system":
            aside = pen.aside(turn)
            return () if aside is None else ((self.words("user", aside), message),)
        if type(content) is str:
            if is_blank(content):
                pen.nothing(message)
                return ()
            return (({"role": role, "content": content}, message),)
        if role == "assistant":
            return self._answer(turn, pen)
        blocks = [
            block
            for part in pen.sendable(turn)
            if (block := self._block(part, message, pen)) is not None
        ]
        if not blocks:
            pen.nothing(message)
            return ()
        return (({"role": "user", "content": blocks}, message),)

    def words(self, role: str, text: str) -> Element:
        """A message of palaver's own."""
        return {"role": role, "content": text}

    def role(self, element: Element) -> str:
        """Who speaks; a system message among the others stands on the user's side."""
        return "assistant" if element["role"] == "assistant" else "user"

    def join(self, element: Element, more: Element) -> None:
        """Add the blocks of a neighbour; what was thought comes first."""
        content = element["content"]
        if type(content) is str:
            content = element["content"] = [words_block(content)]
        added = more["content"]
        content += [words_block(added)] if type(added) is str else added
        if element["role"] == "assistant":
            _thoughts_first(content)

    def close(self, element: Element) -> Element:
        """An answer to be continued must not end with white space."""
        content = element["content"]
        blocks = [words_block(content)] if type(content) is str else content
        last = blocks[-1].get("text")
        if element["role"] != "assistant" or not isinstance(last, str) or last == last.rstrip():
            return element
        if type(content) is str:
            return {**element, "content": last.rstrip()}
        return {**element, "content": [*blocks[:-1], {**blocks[-1], "text": last.rstrip()}]}

    def holds(
        self,
        element: Element,
        around: tuple[Element | None, Element | None],
        owner: Message,  # noqa: ARG002 - any
        target: Target,
    ) -> bool:
        """A system message among the others follows a user, and nobody but an answer follows it."""
        if element["role"] != "system":
            return True
        before, after = around
        said = (before or {}).get("content")
        served = is_list(said) and said and said[-1].get("type") in ("server_tool_use", *SERVED)
        return (
            before is not None
            and (before["role"] == "user" or bool(served))
            and (after is None or after["role"] == "assistant")
            and (target.model is None or _version(target.model.model_id) >= _SYSTEM_INSIDE)
        )

    def system(self, turn: Turn, pen: Pen) -> list[Any]:
        """The texts of a system message that stands first."""
        texts = list[Any]()
        for text in pen.instruction(turn):
            if is_blank(text):
                _dropped(turn.message, pen)
            else:
                texts.append(text if isinstance(turn.message.content, str) else words_block(text))
        return texts

    def head(self, blocks: Sequence[Any]) -> Element:
        """The system text: as it is where it is one, as blocks where there are several."""
        if len(blocks) == 1:
            return {"system": blocks[0] if type(blocks[0]) is str else [blocks[0]]}
        return {"system": [words_block(b) if type(b) is str else b for b in blocks]}

    def pairs(self, element: Element) -> Sequence[str]:
        """Call ids, of calls and of results."""
        content = element.get("content")
        return [
            f"{block.get('type')} {block.get('id')} {block.get('tool_use_id')}"
            for block in (content if is_list(content) else ())
            if is_object(block) and block.get("type") in ("tool_use", "tool_result")
        ]

    def omits(self, element: Element, path: Sequence[Any]) -> bool:  # noqa: ARG002 - in any
        """The content of a result."""
        return path[-1:] == ["content"] and len(path) > 1

    def kind(self, element: Element, path: Sequence[Any]) -> Kind:
        """What may stand in a field; the content of a result is not that of a message."""
        if path[-1] == "content" and len(path) > 1:
            return details.ANTHROPIC_OUTPUT
        return super().kind(element, path)

    def read(self, body: Mapping[str, Any], source: Source) -> None:
        """Read the system text and the messages."""
        read_messages(body, source)

    def _answer(self, turn: Turn, pen: Pen) -> Sequence[Written]:
        message = turn.message
        blocks: list[Element] = []
        ids: list[str] = []
        thinks = False
        for part in pen.sendable(turn):
            block: Element | None
            if type(part) is ToolCallPart:
                call_id, name = pen.call_id(turn, len(ids)), pen.tool(part.tool, message)
                ids.append(call_id)
                arguments = pen.given(part, message)
                block = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
            elif type(part) is TextPart and not is_blank(part.text):
                block = {"type": "text", "text": part.text}
            elif type(part) is ReasoningPart:
                thinks, block = True, _thought(part, message, pen)
            else:
                block = self._block(part, message, pen)
            if block is not None:
                blocks.append(block)
        if thinks:
            _thoughts_first(blocks)
            _thoughts_lead(blocks, message, pen)
        if not blocks:
            pen.nothing(message)
            return ()
        answer: Written = ({"role": "assistant", "content": blocks}, message)
        if not ids:
            return (answer,)
        results = pen.results(turn)
        given = [
            _result(ids[position], (output, failed), part, owner, pen)
            for position, output, failed, part, owner in results
        ]
        return answer, ({"role": "user", "content": given}, results[0][-1])

    def _block(self, part: Part, message: Message, pen: Pen) -> Element | None:
        if type(part) is TextPart:
            if not is_blank(part.text):
                return words_block(part.text)
            _dropped(message, pen)
        elif type(part) is FilePart:
            if message.role == "user":
                return file_block(part, message, pen)
            return words_block(pen.left_out(part, message))
        elif type(part) is UnknownPart:
            return self._kept(part, message, pen)
        else:
            pen.misplaced(part, message)
        return None

    def _kept(self, part: UnknownPart, message: Message, pen: Pen) -> Element | None:
        """A block that palaver does not understand, where it may stand."""
        block = _passed(part, message)
        if block is None:
            kind = block_of(part).get("type")
            detail = f"a block of type {kind!r} has no place in a {message.role} message"
            pen.note("lost", "unknown-part", detail, message)
        elif block["type"] == "server_tool_use":
            if pen.neighbour(1) is None:
                pen.unsettled = pen.turn  # its result may come with the next answer
                if pen.target.prefill:
                    return block
            if block["id"] not in _served(message, part) | _served(pen.neighbour(1)):
                detail = f"call {block['id']!r} of {block['name']} has no result: left out"
                pen.note("repaired", "call-without-result", detail, message)
                return None
        elif block["type"] in SERVED:
            called = _called(message, part) | _called(pen.neighbour(-1))
            if block["tool_use_id"] not in called:
                detail = (
                    f"a {block['type']} is left out: call {block['tool_use_id']!r} is not there"
                )
                pen.note("repaired", "result-without-call", detail, message)
                return None
        return block


def _version(model: str) -> tuple[int, int]:
    found = _VERSION.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else _SYSTEM_INSIDE


def _thoughts_first(blocks: list[Element]) -> None:
    """Begin with what was thought first, where anything was: some models demand it."""
    kinds = [block["type"] in _THOUGHTS for block in blocks]
    if True not in kinds or kinds[0]:
        return
    start = kinds.index(True)
    end = next((i for i in range(start, len(kinds)) if not kinds[i]), len(kinds))
    blocks[:end] = blocks[start:end] + blocks[:start]


def _thoughts_lead(blocks: list[Element], message: Message, pen: Pen) -> None:
    """Leave out the thoughts at the end: an answer can't stop at them."""
    while blocks and blocks[-1]["type"] in _THOUGHTS:
        blocks.pop()
        detail = "a thought that leads to nothing is left out"
        pen.note("repaired", "reasoning-placement", detail, message)


def _thought(part: ReasoningPart, message: Message, pen: Pen) -> Element | None:
    kept = part.metadata["anthropic"]
    redacted, signature = kept.get("redacted"), kept.get("signature")
    if isinstance(redacted, str) and redacted.strip():
        return {"type": "redacted_thinking", "data": redacted}
    if isinstance(signature, str) and signature.strip():
        return {"type": "thinking", "thinking": part.text, "signature": signature}
    detail = "a thought without its signature is not taken back"
    pen.note("lost", "missing-signature", detail, message)
    return None


def _result(
    call_id: str, outcome: tuple[str, bool], part: ToolPart | None, owner: Message, pen: Pen
) -> Element:
    output, failed = outcome
    content: str | list[Element] = output
    files = attachments(part)
    if files:
        texts = [] if is_blank(output) else [words_block(output)]
        content = [*texts, *(file_block(file, owner, pen) for file in files)]
    result: Element = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    if failed:
        result["is_error"] = True
    return result


def _dropped(message: Message, pen: Pen) -> None:
    pen.note("repaired", "empty-text", "a text with nothing in it is left out", message)


def _passed(part: UnknownPart, message: Message) -> Element | None:
    """A block as far as Anthropic knows such a one in a message of this role."""
    block = block_of(part)
    shape = (OF_ANSWERS if message.role == "assistant" else OF_USERS).get(str(block.get("type")))
    return None if shape is None else passed(block, shape)


def _blocks(message: Message | None) -> Iterator[tuple[Part, Element]]:
    """The blocks of an answer that may go out, and the parts they stand in."""
    if message is not None and message.role == "assistant":
        for part in message.parts:
            if type(part) is UnknownPart and part.type == "anthropic":
                block = _passed(part, message)
                if block is not None:
                    yield part, block


def _served(message: Message | None, after: Part | None = None) -> set[Any]:
    """The calls whose results Anthropic left in an answer, or after one of its parts."""
    found = _blocks(message)
    if after is not None:
        found = dropwhile(lambda one: one[0] is not after, found)
    return {block["tool_use_id"] for _, block in found if block["type"] in SERVED}


def _called(message: Message | None, before: Part | None = None) -> set[Any]:
    """The calls that Anthropic left in an answer, or before one of its parts."""
    found = takewhile(lambda one: one[0] is not before, _blocks(message))
    return {block["id"] for _, block in found if block["type"] == "server_tool_use"}


ANTHROPIC: Final = Anthropic()
