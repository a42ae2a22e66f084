"""One line of a Claude Code transcript as messages, and messages as a line.

A line that says something becomes what it says: text, thoughts, tool calls and results as parts of
messages with the right roles. What else stands on the line is kept in their metadata, so that what
nobody edited is written back equal. Where even that would not be equal (a NUL in an output, say),
the line is kept whole beside the log, for as long as its messages are what was made of it.
"""

from __future__ import annotations

import hashlib
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from palaver.errors import ValidationError
from palaver.messages import Message, dump, to_dict
from palaver.messages.files import FilePart
from palaver.messages.gate import EMPTY, freeze, is_list, is_object
from palaver.messages.ids import derived_id
from palaver.messages.parts import ReasoningPart, TextPart, ToolCallPart, ToolPart, UnknownPart
from palaver.messages.replacement import replace_refused
from palaver.messages.toolstate import NO_OUTPUT, ToolCompleted, ToolError
from palaver.wire.transcripts.blocks import FORMAT, blocks_of, put_block, result_of
from palaver.wire.transcripts.building import Conversation
from palaver.wire.transcripts.claude_answers import Answer
from palaver.wire.transcripts.fields import milliseconds, name_in, object_in, text_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from palaver.messages.parts import Part
    from palaver.wire.transcripts.blocks import Result
    from palaver.wire.transcripts.building import Call

__all__ = [
    "KEPT",
    "Entry",
    "blocks_from",
    "envelope_of",
    "fingerprint",
    "read_entry",
    "write_entry",
]

Entry = dict[str, Any]
"""A line of a transcript: JSON."""

KEPT: Final = "claude-agent-sdk"
"""The key in the metadata of messages and parts under which the rest of their line is kept."""
_ROLES: Final = ("user", "assistant")
_SYNTHETIC: Final = "<synthetic>"
"""The model of an answer that the program wrote itself."""


# ── a line as messages ───────────────────────────────────────────────────────────────────────────


def read_entry(entry: Mapping[str, Any], calls: Mapping[str, Call]) -> tuple[Message, ...]:
    """The messages that a line comes to; none where it is no message.

    `calls` are the tool calls that are known so far, by their ids.

    >>> line = {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "Tea?"}}
    >>> [message.text for message in read_entry(line, {})]
    ['Tea?']
    >>> read_entry({"type": "custom-title", "customTitle": "Tea"}, {})
    ()
    """
    said = object_in(entry, "message")
    kind = text_in(entry, "type")
    if kind not in _ROLES or text_in(said, "role") != kind or name_in(entry, "uuid") is None:
        return ()
    try:
        messages = _messages(_gated(entry), calls)
    except ValidationError:  # too deep or too large for the gate: it is kept as it is
        return ()
    if not messages or write_entry(messages) == entry:
        return messages
    made = fingerprint(messages)
    return tuple(_with(message, made=made, whole=True) for message in messages)


def _gated(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The line as the gate lets it in: what it would refuse is replaced."""
    try:
        gated: Mapping[str, Any] = freeze(entry)
    except ValidationError:
        gated = freeze(replace_refused(entry))
    return gated


def _messages(entry: Mapping[str, Any], calls: Mapping[str, Call]) -> tuple[Message, ...]:
    said: Mapping[str, Any] = entry["message"]
    rest = {**entry, "message": {name: said[name] for name in said if name != "content"}}
    talk = Conversation(name_in(entry, "sessionId"))
    talk.calls.update(calls)
    at = talk.at(milliseconds(entry.get("timestamp")))
    content = said.get("content")
    if not (isinstance(content, str) or (is_list(content) and all(map(is_object, content)))):
        return ()
    if said["role"] == "assistant":
        answer = Answer(entry["uuid"], talk, at)
        answer.take(entry, said, at, {})
        parts = _parts(entry, content, talk, at, answer.id)
        return (replace(answer.message(), content=parts, metadata={KEPT: {"entry": rest}}),)
    kept: dict[str, Any] = {"entry": rest}
    if isinstance(content, str):
        kept["plain"] = True
    messages = tuple(_heard(entry, content, talk, at))
    if "toolUseResult" in entry:  # what the person saw: true only while the result is what it was
        kept["made"] = fingerprint(messages)
    return tuple(replace(message, metadata={KEPT: kept}) for message in messages)


def _heard(
    entry: Mapping[str, Any], content: object, talk: Conversation, at: int
) -> Iterator[Message]:
    """The messages of a user's line: each result is one, and so is what was said between them."""
    told = ((block, result_of(block)) for block in blocks_of(content))
    for place, (result, group) in enumerate(groupby(told, lambda pair: pair[1])):
        name: str = entry["uuid"] if place == 0 else derived_id(entry["uuid"], f"{place}")
        blocks = [block for block, _ in group]
        if result is not None:
            yield _result(talk, blocks[0], result, name, at)
        elif isinstance(content, str) and entry.get("isMeta") is not True:
            yield Message("user", content, id=name, timestamp=at)
        else:
            parts = _parts(entry, blocks, talk, at, name)
            yield Message("user", parts, id=name, timestamp=at)


def _result(
    talk: Conversation, block: Mapping[str, Any], result: Result, name: str, at: int
) -> Message:
    made = talk.result(
        result.call_id, result.output, name, at,
        is_error=result.is_error, files=result.files, metadata=result.metadata,
    )  # fmt: skip
    return replace(made, content=(_with_rest(made.parts[0], block),))


def _parts(
    entry: Mapping[str, Any], content: object, talk: Conversation, at: int, name: str
) -> tuple[Part, ...]:
    """A part for each block, with what the part does not say in its metadata."""
    fields: dict[str, bool] = {}
    if entry.get("isMeta") is True or text_in(entry["message"], "model") == _SYNTHETIC:
        fields["synthetic"] = True
    if entry.get("isApiErrorMessage") is True:
        fields["ignored"] = True
    sheet = talk.sheet(name)
    for block in blocks_of(content):
        put_block(sheet, block, talk, at, **fields)
        sheet.parts[-1] = _with_rest(sheet.parts[-1], block)
    return tuple(sheet.parts)


def _with_rest(part: Part, block: Mapping[str, Any]) -> Part:
    """Keep what a block has beside what its part says."""
    if not isinstance(part, TextPart | ReasoningPart | ToolCallPart | ToolPart):
        return part
    said = _block(part)
    rest = {name: item for name, item in block.items() if name not in said or said[name] != item}
    if "content" in rest:  # of a result: not once more, only that it is a list
        rest["content"] = []
        if block["content"] != [{"type": "text", "text": said["content"]}]:
            del rest["content"]
    return replace(part, metadata={**part.metadata, KEPT: rest}) if rest else part


def _with(message: Message, **more: object) -> Message:
    kept = message.metadata[KEPT]
    return replace(message, metadata={KEPT: {**kept, **more}})


def fingerprint(messages: Sequence[Message]) -> str:
    """What tells whether messages still say what they said."""
    said = dump([[message.role, message.content] for message in messages])
    return hashlib.sha256(said).hexdigest()[:32]


# ── messages as a line ───────────────────────────────────────────────────────────────────────────


def envelope_of(message: Message) -> Mapping[str, Any] | None:
    """What the line of a message says beside it; None where it never was on one."""
    kept = object_in(object_in(message.metadata, KEPT), "entry")
    return kept if is_object(kept.get("message")) and name_in(kept, "uuid") else None


def write_entry(messages: Sequence[Message]) -> Entry | None:
    """The line that these messages come from, as they are now; None where nothing is left to say.

    >>> line = {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "Tea?"}}
    >>> write_entry(read_entry(line, {})) == line
    True
    """
    envelope = envelope_of(messages[0])
    if envelope is None:
        return None
    entry: Entry = to_dict(envelope)
    kept = messages[0].metadata[KEPT]
    if "made" in kept and kept["made"] != fingerprint(messages):
        entry.pop("toolUseResult", None)
    content = _content(messages, plain=kept.get("plain") is True)
    if not content and messages[0].content:
        return None
    entry["message"]["content"] = content
    return entry


def _content(messages: Sequence[Message], *, plain: bool) -> str | list[Entry]:
    blocks = [block for message in messages for block in blocks_from(message)]
    texts = [block["text"] for block in blocks if block.get("type") == "text"]
    if plain and len(texts) == len(blocks):
        return "".join(texts)
    return blocks


def blocks_from(message: Message) -> list[Entry]:
    """What a message says, as Anthropic's blocks.

    >>> from palaver import user
    >>> blocks_from(user("Tea?"))
    [{'type': 'text', 'text': 'Tea?'}]
    """
    if isinstance(message.content, str):
        return [{"type": "text", "text": message.content}] if message.content else []
    return [block for part in message.content if (block := _whole_block(part))]


def _whole_block(part: Part) -> Entry:
    block = _block(part)
    rest: Entry = to_dict(object_in(getattr(part, "metadata", EMPTY), KEPT))
    if rest.pop("content", None) == [] and isinstance(block.get("content"), str):
        block["content"] = [{"type": "text", "text": block["content"]}]
    return {**block, **rest} if block else block


def _block(part: Part) -> Entry:  # noqa: PLR0911 - one for each kind of part
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ReasoningPart):
        kept = object_in(part.metadata, FORMAT)
        if "redacted" in kept:
            return {"type": "redacted_thinking", "data": kept["redacted"]}
        signature = text_in(kept, "signature")  # without it, nobody takes the thought back
        thought = {"type": "thinking", "thinking": part.text, "signature": signature}
        return thought if signature else {}
    if isinstance(part, ToolCallPart):
        given = to_dict(part.input)
        return {"type": "tool_use", "id": part.call_id, "name": part.tool, "input": given}
    if isinstance(part, ToolPart):
        return _outcome(part)
    if isinstance(part, FilePart):
        return _file(part)
    if isinstance(part, UnknownPart) and part.type == FORMAT:
        return dict(to_dict(part).get("block", {}))
    return {}


def _outcome(part: ToolPart) -> Entry:
    """What became of a call: its output, and the files that came with it."""
    state = part.state
    result: Entry = {"type": "tool_result", "tool_use_id": part.call_id, "content": ""}
    if isinstance(state, ToolError):
        return {**result, "content": state.error, "is_error": True}
    if isinstance(state, ToolCompleted):
        nothing = state.output == NO_OUTPUT and state.metadata.get("rawOutput") == ""
        result["content"] = output = "" if nothing else state.output
        if state.attachments:
            texts = [{"type": "text", "text": output}] if output else []
            result["content"] = texts + [
                block for file in state.attachments if (block := _file(file))
            ]
    return result


def _file(part: FilePart) -> Entry:
    """An image or a document: in the line itself, or by its address."""
    kind = "image" if part.mime.startswith("image/") else "document"
    start = f"data:{part.mime};base64,"
    source: Entry = {"type": "url", "url": part.url}
    if part.url.startswith(start):
        data = part.url.removeprefix(start)
        source = {"type": "base64", "media_type": part.mime, "data": data}
    titled = {"title": part.filename} if part.filename and kind == "document" else {}
    return {"type": kind, "source": source, **titled}
