"""Requests to Anthropic Messages: system text apart, results first in the user turn after a call.

Reasoning goes back with its signature or not at all. A tool that Anthropic runs itself leaves its
call and its result in the answer; they are sent as they are, both or none.
"""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile
from operator import is_not
from typing import TYPE_CHECKING, Any, ClassVar, Final

from palaver.messages.ids import new_id
from palaver.messages.limits import is_list, is_object
from palaver.messages.part_base import FilePart
from palaver.messages.parts import ReasoningPart, TextPart, ToolCallPart, UnknownPart
from palaver.wire.anthropic.blocks import (
    ASSISTANT_BLOCKS,
    FIELDS,
    PDF,
    RESULT_CONTENT,
    SERVER_RESULTS,
    USER_BLOCKS,
    read_block,
    read_result,
)
from palaver.wire.anthropic.reply import AnthropicReply
from palaver.wire.format import (
    IMAGES,
    Alphabet,
    Format,
    Inline,
    Linked,
    TextContent,
    attachments_of,
    is_image,
    is_text,
    known_fields,
    media_of,
    raw_block,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from palaver.messages.message import Message, Role
    from palaver.messages.parts import Part, ToolPart
    from palaver.wire.format import Element, ToolSpec, ValueSchema, Writer, WrittenElement
    from palaver.wire.pairing import PairedTurn
    from palaver.wire.reply import ReplyReader
    from palaver.wire.request import BodyReader, Target

__all__ = ["ANTHROPIC", "AnthropicFormat", "mark_breakpoints"]

_REASONING: Final = frozenset(("thinking", "redacted_thinking"))
_VERSION: Final = re.compile(r"-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_SYSTEM_INSIDE: Final = (4, 8)
"""From this version on a system message may stand among the others."""
_LARGEST_IMAGE: Final = 10 * 1024 * 1024
_MOST_BREAKPOINTS: Final = 4
_MARKABLE: Final = frozenset(
    ("text", "image", "document", "search_result", "tool_use", "tool_result", "server_tool_use")
) | frozenset(SERVER_RESULTS)
"""The blocks that a breakpoint of the prompt cache may stand after."""


class AnthropicFormat(Format):
    """Anthropic Messages."""

    name: ClassVar[str] = "anthropic"
    provider: ClassVar[str] = "anthropic"
    reply_reader: ClassVar[type[ReplyReader]] = AnthropicReply
    items: ClassVar[str] = "messages"
    plain: ClassVar[bool] = True
    heads: ClassVar[tuple[str, ...]] = ("system",)
    tool_names: ClassVar[Alphabet] = Alphabet("[a-zA-Z0-9_-]", 128)
    call_ids: ClassVar[Alphabet] = Alphabet("[a-zA-Z0-9_-]", 64)
    marks_failures: ClassVar[bool] = True
    alternates: ClassVar[bool] = True
    may_repeat: ClassVar[bool] = True
    fields: ClassVar[Mapping[str, ValueSchema]] = FIELDS
    opaque: ClassVar[frozenset[str]] = frozenset(("input", "citations", "caller"))

    # ── writing ──────────────────────────────────────────────────────────────────────────────────

    def write(self, turn: PairedTurn, writer: Writer) -> Sequence[WrittenElement]:
        """Return one element for a message, and one for all results of an answer's calls."""
        message = turn.message
        role, content = message.role, message.content
        if role == "system":
            text = writer.inline_system(turn)
            return () if text is None else ((self.text_element("user", text), message),)
        if type(content) is str:
            if _is_blank(content):
                writer.note_nothing(message)
                return ()
            return (({"role": role, "content": content}, message),)
        if role == "assistant":
            return self._assistant(turn, writer)
        blocks = [
            block
            for part in writer.sendable_parts(turn)
            if (block := self._block(part, message, writer)) is not None
        ]
        if not blocks:
            writer.note_nothing(message)
            return ()
        return (({"role": "user", "content": blocks}, message),)

    def write_tools(self, tools: Sequence[tuple[str, ToolSpec]]) -> list[dict[str, Any]]:
        """Return the tools with their `input_schema`."""
        return [{**spec.named(name), "input_schema": spec.schema} for name, spec in tools]

    def text_element(self, role: str, text: str) -> Element:
        """Return a message of one text."""
        return {"role": role, "content": text}

    def role(self, element: Element) -> str:
        """Return who speaks; a system message among the others is on the user's side."""
        return "assistant" if element["role"] == "assistant" else "user"

    def merge(self, element: Element, more: Element) -> None:
        """Add the blocks of a neighbour; reasoning comes first."""
        content = element["content"]
        if type(content) is str:
            content = element["content"] = [_text_block(content)]
        added = more["content"]
        content += [_text_block(added)] if type(added) is str else added
        if element["role"] == "assistant":
            _move_reasoning_first(content)

    def close(self, element: Element) -> Element:
        """Return an answer to be continued without white space at its end."""
        content = element["content"]
        blocks = [_text_block(content)] if type(content) is str else content
        last = blocks[-1].get("text")
        if element["role"] != "assistant" or not isinstance(last, str) or last == last.rstrip():
            return element
        if type(content) is str:
            return {**element, "content": last.rstrip()}
        return {**element, "content": [*blocks[:-1], {**blocks[-1], "text": last.rstrip()}]}

    def allows(
        self,
        element: Element,
        around: tuple[Element | None, Element | None],
        owner: Message,  # noqa: ARG002 - any
        target: Target,
    ) -> bool:
        """Tell whether a system message may stay: after a user, before an answer or at the end."""
        if element["role"] != "system":
            return True
        before, after = around
        said = (before or {}).get("content")
        served = is_list(said) and said and said[-1].get("type") in _SERVER_BLOCKS
        return (
            before is not None
            and (before["role"] == "user" or bool(served))
            and (after is None or after["role"] == "assistant")
            and (target.model is None or _version(target.model.model_id) >= _SYSTEM_INSIDE)
        )

    def system_blocks(self, turn: PairedTurn, writer: Writer) -> list[Any]:
        """Return the texts of a system message that comes first."""
        texts = list[Any]()
        for text in writer.system_texts(turn):
            if _is_blank(text):
                _note_blank(turn.message, writer)
            else:
                texts.append(text if isinstance(turn.message.content, str) else _text_block(text))
        return texts

    def head(self, blocks: Sequence[Any]) -> Element:
        """Return the system text: a string where it is one text, else blocks."""
        if len(blocks) == 1:
            return {"system": blocks[0] if type(blocks[0]) is str else [blocks[0]]}
        return {"system": [_text_block(b) if type(b) is str else b for b in blocks]}

    def pair_keys(self, element: Element) -> Sequence[str]:
        """Return the call ids of calls and results."""
        content = element.get("content")
        return [
            f"{block.get('type')} {block.get('id')} {block.get('tool_use_id')}"
            for block in (content if is_list(content) else ())
            if is_object(block) and block.get("type") in ("tool_use", "tool_result")
        ]

    def may_omit(self, element: Element, path: Sequence[Any]) -> bool:  # noqa: ARG002 - in any
        """Tell whether a field may be missing: the content of a result may."""
        return path[-1:] == ["content"] and len(path) > 1

    def field_schema(self, element: Element, path: Sequence[Any]) -> ValueSchema:
        """Return what a field may hold; the content of a result is not that of a message."""
        if path[-1] == "content" and len(path) > 1:
            return RESULT_CONTENT
        return super().field_schema(element, path)

    def _assistant(self, turn: PairedTurn, writer: Writer) -> Sequence[WrittenElement]:
        message = turn.message
        blocks: list[Element] = []
        ids: list[str] = []
        reasons = False
        for part in writer.sendable_parts(turn):
            block: Element | None
            if type(part) is ToolCallPart:
                call_id = writer.call_id(turn, len(ids))
                name = writer.tool_name(part.tool, message)
                ids.append(call_id)
                arguments = writer.arguments_object(part, message)
                block = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
            elif type(part) is TextPart and not _is_blank(part.text):
                block = {"type": "text", "text": part.text}
            elif type(part) is ReasoningPart:
                reasons, block = True, _reasoning_block(part, message, writer)
            else:
                block = self._block(part, message, writer)
            if block is not None:
                blocks.append(block)
        if reasons:
            _move_reasoning_first(blocks)
            _drop_last_reasoning(blocks, message, writer)
        if not blocks:
            writer.note_nothing(message)
            return ()
        answer: WrittenElement = ({"role": "assistant", "content": blocks}, message)
        if not ids:
            return (answer,)
        results = writer.results(turn)
        given = [
            _result_block(ids[position], (output, failed), part, owner, writer)
            for position, output, failed, part, owner in results
        ]
        return answer, ({"role": "user", "content": given}, results[0][-1])

    def _block(self, part: Part, message: Message, writer: Writer) -> Element | None:
        if type(part) is TextPart:
            if not _is_blank(part.text):
                return _text_block(part.text)
            _note_blank(message, writer)
        elif type(part) is FilePart:
            if message.role == "user":
                return _file_block(part, message, writer)
            return _text_block(writer.placeholder(part, message))
        elif type(part) is UnknownPart:
            return self._unknown(part, message, writer)
        else:
            writer.note_misplaced(part, message)
        return None

    def _unknown(self, part: UnknownPart, message: Message, writer: Writer) -> Element | None:
        """Return a block that palaver does not understand, where it may be sent."""
        block = _known_block(part, message)
        if block is None:
            kind = raw_block(part).get("type")
            detail = f"a block of type {kind!r} has no place in a {message.role} message"
            writer.note("lost", "unknown-part", detail, message)
        elif block["type"] == "server_tool_use":
            if writer.neighbour(1) is None:
                writer.unsettled = writer.turn  # its result may come with the next answer
                if writer.target.prefill:
                    return block
            if block["id"] not in _server_results(message, part) | _server_results(
                writer.neighbour(1)
            ):
                detail = f"call {block['id']!r} of {block['name']} has no result: left out"
                writer.note("repaired", "call-without-result", detail, message)
                return None
        elif block["type"] in SERVER_RESULTS:
            called = _server_calls(message, part) | _server_calls(writer.neighbour(-1))
            if block["tool_use_id"] not in called:
                detail = (
                    f"a {block['type']} is left out: call {block['tool_use_id']!r} is not there"
                )
                writer.note("repaired", "result-without-call", detail, message)
                return None
        return block

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def read(self, body: Mapping[str, Any], reader: BodyReader) -> None:
        """Read the system text and the messages."""
        system = body.get("system")
        if system:
            _read_message("system", system, -1, reader)
        for position, element in enumerate(body["messages"]):
            role = element.get("role") if is_object(element) else None
            if role not in ("user", "assistant", "system"):
                where = f"$.messages[{position}]"
                reader.note_loss(where, "role", f"a message of role {role!r} is not understood")
                continue
            content = element.get("content")
            if role == "user" and is_list(content):
                content = _read_results(content, position, reader)
                if not content and reader.positions[-1:] == [position]:
                    continue
            _read_message(role, content, position, reader)


_SERVER_BLOCKS: Final = frozenset(("server_tool_use", *SERVER_RESULTS))


def mark_breakpoints(
    body: Mapping[str, Any], *, compacted: int = 0, ttl: str = "5m", grows: bool = True
) -> dict[str, Any]:
    """Return a request with breakpoints for the prompt cache, in place of any that it has.

    The last request ended with the question before the last answer, so a breakpoint stands there
    and one at the end: what was written then is found now, however many blocks an answer and its
    results have. One stands after the first `compacted` messages, which end with a summary, one
    after the system text and, where there are fewer than four, one after the tools. In a request
    that no other will begin with, which does not grow, only system text and tools are marked.

    >>> asked = [{"role": "user", "content": "Tea?"}]
    >>> mark_breakpoints({"system": "Hi.", "messages": asked})["system"]
    [{'type': 'text', 'text': 'Hi.', 'cache_control': {'type': 'ephemeral'}}]
    """
    mark = {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}
    messages = [_without_marks(message) for message in body["messages"]]
    answers = [message["role"] == "assistant" for message in messages]
    answer = _last(answers, len(answers), of=True)
    question = _last(answers, answer, of=False)
    marked = 0
    ends = {compacted - 1, question, len(messages) - 1} - {-1} if grows else set[int]()
    for position in ends:
        content = _with_mark(messages[position]["content"], mark)
        if content is not None:
            messages[position] = {**messages[position], "content": content}
            marked += 1
    found = {**body, "messages": messages}
    system = _with_mark(_unmarked(body.get("system", [])), mark)
    if system is not None:
        found["system"] = system
        marked += 1
    tools = body.get("tools")
    if tools:
        found["tools"] = tools = list(_unmarked(tools))
        loaded = [n for n, tool in enumerate(tools) if not tool.get("defer_loading")]
        if loaded and marked < _MOST_BREAKPOINTS:
            tools[loaded[-1]] = {**tools[loaded[-1]], "cache_control": mark}
    return found


def _last(values: Sequence[bool], before: int, *, of: bool) -> int:
    """Return the position of the last such value before another, or -1."""
    return next((n for n in range(before - 1, -1, -1) if values[n] is of), -1)


def _without_marks(message: Element) -> Element:
    content = message["content"]
    plain = _unmarked(content)
    return message if plain is content else {**message, "content": plain}


def _unmarked(content: Any) -> Any:  # noqa: ANN401 - JSON
    """Return blocks without breakpoints; a text, and what has none, as it is."""
    if not is_list(content):
        return content
    plain = [_without_mark(block) for block in content]
    return plain if any(map(is_not, plain, content)) else content


def _without_mark(block: Element) -> Element:
    inner = block.get("content")
    plain = _unmarked(inner)
    if plain is not inner:
        block = {**block, "content": plain}
    if "cache_control" in block:
        return {name: value for name, value in block.items() if name != "cache_control"}
    return block


def _with_mark(content: Any, mark: Element) -> list[Element] | None:  # noqa: ANN401 - JSON
    """Return blocks with a breakpoint after the last that may have one; None if none may."""
    blocks = [_text_block(content)] if type(content) is str else content
    for index in range(len(blocks) - 1, -1, -1):
        block = blocks[index]
        if block.get("type") in _MARKABLE and block.get("text") != "":
            return [*blocks[:index], {**block, "cache_control": mark}, *blocks[index + 1 :]]
    return None


def _is_blank(text: str) -> bool:
    """Tell whether Anthropic would refuse a text as empty."""
    return not text or text.isspace()


def _note_blank(message: Message, writer: Writer) -> None:
    writer.note("repaired", "empty-text", "a text with nothing in it is left out", message)


def _text_block(text: str) -> Element:
    return {"type": "text", "text": text}


def _version(model: str) -> tuple[int, int]:
    found = _VERSION.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else _SYSTEM_INSIDE


def _move_reasoning_first(blocks: list[Element]) -> None:
    """Move the first reasoning to the beginning: some models demand it."""
    kinds = [block["type"] in _REASONING for block in blocks]
    if True not in kinds or kinds[0]:
        return
    start = kinds.index(True)
    end = next((i for i in range(start, len(kinds)) if not kinds[i]), len(kinds))
    blocks[:end] = blocks[start:end] + blocks[:start]


def _drop_last_reasoning(blocks: list[Element], message: Message, writer: Writer) -> None:
    """Leave out reasoning at the end: a message can't end with it."""
    while blocks and blocks[-1]["type"] in _REASONING:
        blocks.pop()
        detail = "reasoning with nothing after it is left out"
        writer.note("lost", "reasoning-placement", detail, message)


def _reasoning_block(part: ReasoningPart, message: Message, writer: Writer) -> Element | None:
    stored = part.metadata["anthropic"]
    redacted, signature = stored.get("redacted"), stored.get("signature")
    if isinstance(redacted, str) and redacted.strip():
        if part.text:
            detail = "redacted reasoning has no text: it is left out"
            writer.note("lost", "missing-signature", detail, message)
        return {"type": "redacted_thinking", "data": redacted}
    if isinstance(signature, str) and signature.strip():
        return {"type": "thinking", "thinking": part.text, "signature": signature}
    detail = "reasoning without its signature is refused by Anthropic"
    writer.note("lost", "missing-signature", detail, message)
    return None


def _result_block(
    call_id: str, outcome: tuple[str, bool], part: ToolPart | None, owner: Message, writer: Writer
) -> Element:
    output, failed = outcome
    content: str | list[Element] = output
    files = attachments_of(part)
    if files:
        texts = [] if _is_blank(output) else [_text_block(output)]
        content = [*texts, *(_file_block(file, owner, writer) for file in files)]
    result: Element = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    if failed:
        result["is_error"] = True
    return result


def _file_block(part: FilePart, message: Message, writer: Writer) -> Element:
    """Return a file as an image or a document, or a text in its place."""
    media = media_of(part)
    kind = "image" if is_image(media) else "document"
    source = None
    if isinstance(media, Linked):
        if media.url[:6].lower() == "https:" and (kind == "image" or media.mime == PDF):
            source = {"type": "url", "url": media.url}
    elif isinstance(media, Inline):
        source = _source(media, part, message, writer)
    takes = writer.target.images if kind == "image" else writer.target.files
    if source is None or not takes:
        return _text_block(writer.placeholder(part, message))
    block: Element = {"type": kind, "source": source}
    if kind == "document" and part.filename:
        block["title"] = part.filename
    return block


def _source(media: Inline, part: FilePart, message: Message, writer: Writer) -> Element | None:
    if media.mime in IMAGES:
        fits = len(media.data) <= _LARGEST_IMAGE
        return {"type": "base64", "media_type": media.mime, "data": media.data} if fits else None
    if media.mime == PDF:
        return {"type": "base64", "media_type": PDF, "data": media.data}
    text = text_of(media) if is_text(media.mime) else None
    if text is None or _is_blank(text):
        return None
    if media.mime != "text/plain" and writer.target.files:
        detail = f"a file of type {part.mime} is sent as text/plain"
        writer.note("repaired", "media", detail, message)
    return {"type": "text", "media_type": "text/plain", "data": text}


def _known_block(part: UnknownPart, message: Message) -> Element | None:
    """Return a block as far as Anthropic knows such a block in a message of this role."""
    block = raw_block(part)
    schemas = ASSISTANT_BLOCKS if message.role == "assistant" else USER_BLOCKS
    schema = schemas.get(str(block.get("type")))
    return None if schema is None else known_fields(block, schema)


def _known_blocks(message: Message | None) -> Iterator[tuple[Part, Element]]:
    """Yield the blocks of an answer that may be sent, and the parts they are in."""
    if message is not None and message.role == "assistant":
        for part in message.parts:
            if type(part) is UnknownPart and part.type == "anthropic":
                block = _known_block(part, message)
                if block is not None:
                    yield part, block


def _server_results(message: Message | None, after: Part | None = None) -> set[Any]:
    """Return the calls whose results Anthropic left in an answer, or after one of its parts."""
    found = _known_blocks(message)
    if after is not None:
        found = dropwhile(lambda one: one[0] is not after, found)
    return {block["tool_use_id"] for _, block in found if block["type"] in SERVER_RESULTS}


def _server_calls(message: Message | None, before: Part | None = None) -> set[Any]:
    """Return the calls that Anthropic left in an answer, or before one of its parts."""
    found = takewhile(lambda one: one[0] is not before, _known_blocks(message))
    return {block["id"] for _, block in found if block["type"] == "server_tool_use"}


def _read_message(role: Role, content: object, position: int, reader: BodyReader) -> None:
    message_id = new_id()
    if isinstance(content, str):
        reader.add(role, content, position, message_id)
        return
    parts = list(_read_parts(content, message_id, reader))
    if parts:
        reader.add(role, parts, position, message_id)
    else:
        detail = "a message with nothing in it"
        reader.note_loss(f"$.messages[{position}]", "empty-content", detail)


def _read_parts(content: object, message_id: str, reader: BodyReader) -> Iterator[Part]:
    for block in content if is_list(content) else ():
        found = read_block(block) if is_object(block) else None
        if found is None:
            kind = block.get("type") if is_object(block) else None
            detail = f"a block of type {kind!r} that is not as it should be"
            reader.note_loss(f"message {message_id}", "unknown-part", detail)
        elif found != TextContent(""):  # no live answer stores one, and none may be sent
            yield reader.part(message_id, found)


def _read_results(blocks: Sequence[Any], position: int, reader: BodyReader) -> list[Any]:
    """Read results as messages of their own; return the other blocks."""
    others: list[Any] = []
    for block in blocks:
        result = read_result(block) if is_object(block) else None
        if result is None:
            others.append(block)
        else:
            reader.add_result(result, position)
    return others


ANTHROPIC: Final = AnthropicFormat()
