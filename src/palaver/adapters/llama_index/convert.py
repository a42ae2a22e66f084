"""Chat messages of LlamaIndex and messages of the log, both ways, and the repair of calls.

What a chat message says beyond a message of the log is stored in the metadata as the difference
from what `to_llama_index` would write, so that it comes back as it was put. The difference of the
blocks is used only while the content is unchanged: LlamaIndex sees what was edited with palaver.
The role and `additional_kwargs` outlive an edit.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec
from llama_index.core.base.llms.types import (
    ChatMessage,
    ContentBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from msgspec.structs import replace
from pydantic import TypeAdapter
from pydantic import ValidationError as Refused
from pydantic_core import PydanticSerializationError

from palaver.errors import ValidationError
from palaver.history.erase import ERASED
from palaver.messages.codec import image_mime
from palaver.messages.ids import NIL_ID, new_id, now_ms, uuid_for
from palaver.messages.limits import EMPTY, is_list, is_name, is_object, replace_refused
from palaver.messages.message import Message
from palaver.messages.part_base import FilePart
from palaver.messages.parts import (
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolPart,
    UnknownPart,
    file_part,
    read_arguments,
    reasoning_part,
    text_part,
    tool_call_part,
    tool_part,
)
from palaver.messages.tool_state import (
    ToolCompleted,
    ToolError,
    complete,
    pending,
    raw_output,
    start,
)
from palaver.wire.pairing import INTERRUPTED
from palaver.wire.repair import is_portable, pair_results, portable
from palaver.wire.round_trip import apply_changes, diff, fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from palaver.messages import Part, Role

__all__ = [
    "METADATA_KEY",
    "RESULTS",
    "UNKNOWN_TOOL",
    "Fields",
    "answered_call",
    "expand",
    "from_llama_index",
    "is_plain",
    "repair_messages",
    "to_llama_index",
    "write_message",
]

Fields: TypeAlias = dict[str, Any]
"""A chat message as JSON: its role, its `additional_kwargs` and its blocks."""

METADATA_KEY: Final = "llama_index"
"""The metadata key."""
UNKNOWN_TOOL: Final = "unknown"
"""The tool of a call or result that does not say."""
_ROLES: Final[dict[str, Role]] = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant",
    "chatbot": "assistant", "model": "assistant", "tool": "tool", "function": "tool",
}  # fmt: skip
_THEIR_ROLES: Final = {role: MessageRole(role) for role in _ROLES.values()}
RESULTS: Final = (MessageRole.TOOL, MessageRole.FUNCTION)
_MEDIA: Final[dict[str, tuple[str, str]]] = {
    "image": ("image", "image_mimetype"),
    "audio": ("audio", "format"),
    "video": ("video", "video_mimetype"),
    "document": ("data", "document_mimetype"),
}
"""By the type of a block: the fields of its data and of its media type."""
_SHOWN_BESIDE_RESULTS: Final = ("image/", "application/pdf")
"""The files of a tool that every client of LlamaIndex's sends, or leaves out where it may not."""
_ANY_BLOCK: Final[TypeAdapter[ContentBlock]] = TypeAdapter(ContentBlock)


# ── messages both ways ──────────────────────────────────────────────────────────────────────────


def from_llama_index(
    message: ChatMessage, *, session: str = NIL_ID, tools: Mapping[str, str] = EMPTY
) -> Message:
    """Convert a chat message, such that `to_llama_index` returns it as it was.

    `session` is the id of the conversation, and `tools` names the tools of earlier calls by their
    ids. Objects in `additional_kwargs` are stored as LlamaIndex's own stores do: a pydantic model
    as a dict, bytes as base64. What is no JSON then is refused.

    >>> from llama_index.core.llms import ChatMessage
    >>> from_llama_index(ChatMessage("Tea?")).text
    'Tea?'
    """
    if not isinstance(cast("object", message), ChatMessage):
        detail = f"must be a ChatMessage of LlamaIndex's, not {type(message).__name__}"
        raise ValidationError(detail, path="$.message", rule="schema")
    try:
        theirs = _dump(message)
        made = _make_message(theirs, session, tools)
        (ours,) = write_message(made)
        about = diff(_about(ours), _about(theirs))
        blocks = diff(ours["blocks"], theirs["blocks"])
        if not about and not blocks and is_portable(made) and not _has_call_without_id(made):
            return made
        of = fingerprint(ours["blocks"])
        text = json.dumps({"about": about, "blocks": blocks, "of": of})  # escapes any character
    except (PydanticSerializationError, TypeError, RecursionError, UnicodeDecodeError) as error:
        detail = f"holds what is no JSON and could not be read back: {error}"
        raise ValidationError(detail, path="$.message", rule="schema") from None
    return replace(made, metadata={METADATA_KEY: text})


def _has_call_without_id(message: Message) -> bool:
    """Tell whether a call has its tool's name for an id, which may come again."""
    return any(
        isinstance(part, ToolCallPart) and part.call_id == part.tool for part in message.parts
    )


def to_llama_index(message: Message) -> list[ChatMessage]:
    """Convert a message to chat messages: one, or one for each of several tool results.

    Reasoning that LlamaIndex did not write, or that was edited, is left out. A message that was
    erased, or that is nothing but such reasoning, gives none.

    >>> from palaver.messages import user
    >>> [str(message) for message in to_llama_index(user("Tea?"))]
    ['user: Tea?']
    """
    if is_plain(message):  # the usual case, without detours
        role, blocks = _THEIR_ROLES[message.role], [TextBlock(text=cast("str", message.content))]
        return [ChatMessage.model_construct(role=role, additional_kwargs={}, blocks=blocks)]
    if ERASED in message.metadata:
        return []
    stored = message.metadata.get(METADATA_KEY)
    found = message if isinstance(stored, str) else portable(message)
    made = write_message(found) if found is not None else []
    if made and isinstance(stored, str):
        made[0] = _apply(made[0], stored)
    elif made:
        made[0] = _without_reasoning(made[0])
        if not made[0]["blocks"]:
            return []
    return [_load(fields) for fields in made]


def expand(messages: Iterable[Message]) -> list[ChatMessage]:
    """Convert messages, each to one or several."""
    return [made for message in messages for made in to_llama_index(message)]


def is_plain(message: Message) -> bool:
    """Tell whether a message is nothing but a text: it has no calls and is no result."""
    content = message.content
    return not message.metadata and isinstance(content, str) and bool(content.strip())


def _about(fields: Fields) -> Fields:
    return {"role": fields["role"], "additional_kwargs": fields["additional_kwargs"]}


def _apply(ours: Fields, stored: str) -> Fields:
    """Apply a stored difference; what is not valid, or of other content, is ignored."""
    try:
        left = json.loads(stored)
        edited = left["of"] != fingerprint(ours["blocks"])
        older = ["additional_kwargs", "tool_calls"] if edited else None  # they are blocks by now
        made = apply_changes(_about(ours), [each for each in left["about"] if each[0] != older])
        if edited:
            blocks = _without_reasoning(ours)["blocks"]
        else:
            blocks = apply_changes(ours["blocks"], left["blocks"])
        role = MessageRole(made["role"]).value
        given = made["additional_kwargs"]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return _without_reasoning(ours)
    if not (is_object(given) and is_list(blocks)):
        return _without_reasoning(ours)
    return {"role": role, "additional_kwargs": given, "blocks": blocks}


def _without_reasoning(fields: Fields) -> Fields:
    """Leave out reasoning, and empty texts beside something else.

    LlamaIndex's clients refuse reasoning without the signature of their own model, or send it as
    the model's own, and one sends what stands before an empty text twice.
    """
    said = [block for block in fields["blocks"] if block.get("block_type") != "thinking"]
    filled = [block for block in said if block != _text_block("")]
    return {**fields, "blocks": filled or said[:1]}


def _load(fields: Fields) -> ChatMessage:
    """Make a chat message of JSON; it is not validated, which would add to its blocks."""
    return ChatMessage.model_construct(
        role=MessageRole(fields["role"]),
        additional_kwargs=fields["additional_kwargs"],
        blocks=[*map(_load_block, fields["blocks"])],
    )


def _load_block(fields: Any) -> ContentBlock:  # noqa: ANN401 - JSON
    """Make a block; one that LlamaIndex refuses, such as of a file that is gone, says so."""
    try:
        if fields["block_type"] == "text":
            return TextBlock(text=fields["text"])
        return _ANY_BLOCK.validate_python(fields)
    except (Refused, TypeError, KeyError):
        return TextBlock(text=f"[could not be read: {fields!s:.200}]")


# ── a chat message as JSON ──────────────────────────────────────────────────────────────────────


def _dump(message: ChatMessage) -> Fields:
    given = message.additional_kwargs and message.model_dump(include={"additional_kwargs"})
    return {
        "role": MessageRole(message.role).value,
        "additional_kwargs": given.get("additional_kwargs", {}),
        "blocks": [*map(_dump_block, message.blocks)],
    }


def _dump_block(block: ContentBlock) -> Fields:
    if type(block) is TextBlock:
        return {"block_type": "text", "text": block.text}
    if isinstance(block, ToolCallBlock):
        fields = {"tool_call_id": block.tool_call_id, "tool_name": block.tool_name,
                  "tool_kwargs": block.tool_kwargs}  # fmt: skip
    elif block.block_type in (*_MEDIA, "thinking"):
        fields = block.model_dump(mode="json", exclude_defaults=True)
    else:
        fields = block.model_dump(mode="json")
    return {"block_type": block.block_type, **fields}


# ── from their fields to ours ───────────────────────────────────────────────────────────────────


def _make_message(fields: Fields, session: str, tools: Mapping[str, str]) -> Message:
    """The message without what palaver has no field for."""
    name, role, blocks = new_id(), _ROLES[fields["role"]], fields["blocks"]
    ids = uuid_for(session), uuid_for(name)
    if role == "tool":
        return Message("tool", (_read_result(fields, name, ids, tools),), id=name)
    parts = [_read_block(block, ids) for block in blocks]
    known = {part.call_id for part in parts if isinstance(part, ToolCallPart)}
    calls = _older_calls(fields["additional_kwargs"])
    parts += [_call_part(ids, *call) for call in calls if (call[0] or call[1]) not in known]
    if not parts:
        return Message(role, "", id=name)
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return Message(role, parts[0].text, id=name)
    return Message(role, tuple(parts), id=name)


def _older_calls(given: Fields) -> Iterator[tuple[object, object, object]]:
    """Calls where older integrations keep them: the id, the tool and the arguments of each."""
    calls = given.get("tool_calls")
    for call in calls if is_list(calls) else ():
        inner = call.get("function") if is_object(call) else None
        if is_object(call) and is_object(inner):
            yield call.get("id"), inner.get("name"), inner.get("arguments")


def _read_result(
    fields: Fields, name: str, ids: tuple[str, str], tools: Mapping[str, str]
) -> ToolPart:
    given = fields["additional_kwargs"]
    call = _name(given.get("tool_call_id"), name)
    tool = _name(given.get("name"), tools.get(call, UNKNOWN_TOOL))
    texts = [block["text"] for block in fields["blocks"] if block["block_type"] == "text"]
    output, now = _clean_text("\n".join(texts)), now_ms()
    read = [_read_file(kind, each) for each in fields["blocks"] if (kind := _kind(each)) in _MEDIA]
    files = [file_part(*ids, *file) for file in read if file is not None]
    running = start(pending({}, ""), at=now)
    state = complete(running, output, tool=tool, attachments=files, at=now)
    return tool_part(*ids, call, tool, state)


def _kind(block: Fields) -> str:
    return str(block["block_type"])


def _read_block(block: Fields, ids: tuple[str, str]) -> Part:
    kind = block["block_type"]
    if kind == "text":
        return text_part(*ids, _clean_text(block["text"]))
    if kind == "thinking":
        return reasoning_part(*ids, _clean_text(block.get("content")))
    if kind == "tool_call":
        return _call_part(ids, block["tool_call_id"], block["tool_name"], block["tool_kwargs"])
    file = _read_file(kind, block) if kind in _MEDIA else None
    if file is not None:
        return file_part(*ids, *file)
    return UnknownPart(cast("Fields", replace_refused({"type": f"llama-index-{kind}", **block})))


def _call_part(ids: tuple[str, str], call: object, tool: object, given: object) -> Part:
    read = read_arguments(replace_refused(given))
    named = _name(tool, UNKNOWN_TOOL)
    return tool_call_part(*ids, named, read.input, call_id=_name(call, named), raw=read.raw)


def _read_file(kind: str, block: Fields) -> tuple[str, str] | None:
    """The media type and the URL of a file; None if it says only where on this disk it is."""
    data_field, mime_field = _MEDIA[kind]
    data, url, mime = block.get(data_field), block.get("url"), block.get(mime_field)
    otherwise = image_mime(url or "") if kind == "image" else f"{kind}/*"
    if kind == "document":
        otherwise = "application/octet-stream"
    mime = mime if isinstance(mime, str) and "/" in mime else otherwise
    if data:
        return mime, f"data:{mime};base64,{data}"
    return (mime, str(replace_refused(url))) if url else None


def _name(name: object, otherwise: str) -> str:
    return name if is_name(name) else otherwise


def _clean_text(text: object) -> str:
    return cast("str", replace_refused(text)) if isinstance(text, str) else ""


# ── from our message to their fields ────────────────────────────────────────────────────────────


def write_message(message: Message) -> list[Fields]:
    """Write a message as chat messages, without the stored difference."""
    if isinstance(message.content, str):
        return [_fields(message.role, [_text_block(message.content)])]
    if message.role == "tool":
        return [_write_result(part) for part in message.parts if isinstance(part, ToolPart)]
    return [_fields(message.role, [_write_part(part) for part in message.sendable_parts])]


def _fields(role: str, blocks: list[Fields], given: Fields | None = None) -> Fields:
    return {"role": role, "additional_kwargs": given or {}, "blocks": blocks}


def _text_block(text: str) -> Fields:
    return {"block_type": "text", "text": text}


def _write_result(part: ToolPart) -> Fields:
    state = part.state
    failed = state.error if isinstance(state, ToolError) else ""
    output = raw_output(state) if isinstance(state, ToolCompleted) else failed
    files = (isinstance(state, ToolCompleted) and state.attachments) or ()
    shown = [_write_file(file) for file in files if file.mime.startswith(_SHOWN_BESIDE_RESULTS)]
    return _fields("tool", [_text_block(output), *shown], {"tool_call_id": part.call_id})


def _write_part(part: Part) -> Fields:
    if isinstance(part, TextPart):
        return _text_block(part.text)
    if isinstance(part, ReasoningPart):
        return {"block_type": "thinking", "content": part.text}
    if isinstance(part, ToolCallPart):
        return {"block_type": "tool_call", "tool_call_id": part.call_id, "tool_name": part.tool,
                "tool_kwargs": msgspec.to_builtins(part.arguments)}  # fmt: skip
    if isinstance(part, FilePart):
        return _write_file(part)
    raw = msgspec.to_builtins(part.raw) if isinstance(part, UnknownPart) else {}
    if "block_type" in raw:
        raw.pop("type", None)
        return cast("Fields", raw)
    return _text_block("")  # of another provider, and nothing that a block could say


def _write_file(part: FilePart) -> Fields:
    kind = part.mime.partition("/")[0]
    kind = kind if kind in _MEDIA else "document"
    data_field, mime_field = _MEDIA[kind]
    head, _, data = part.url.partition(";base64,")
    fields: Fields = {"block_type": kind}
    fields |= {data_field: data} if head.startswith("data:") else {"url": part.url}
    mime = part.mime.partition("/")[2] if kind == "audio" else part.mime
    return fields if mime.endswith("*") else {**fields, mime_field: mime}


# ── calls and their results ─────────────────────────────────────────────────────────────────────


def repair_messages(
    messages: Sequence[ChatMessage], *, resuming: bool = False
) -> list[ChatMessage]:
    """Drop results without a call, and give calls without a result one that says so.

    `resuming` leaves the calls of the last answer open, for callers that will run them. Answers
    that say nothing are left out, but for the last one: providers refuse them.

    >>> result = ChatMessage("4", role="tool", additional_kwargs={"tool_call_id": "c1"})
    >>> repair_messages([result])
    []
    >>> call = ChatMessage([ToolCallBlock(tool_call_id="c1", tool_name="add")], role="assistant")
    >>> [message.role.value for message in repair_messages([call])]
    ['assistant', 'tool']
    """
    last = len(messages) - 1
    said = [each for at, each in enumerate(messages) if at == last or not _says_nothing(each)]
    return pair_results(
        said,
        calls=_open_calls,
        answers=answered_call,
        missing=_interrupted_result,
        keep_open=resuming,
    )


def _says_nothing(message: ChatMessage) -> bool:
    """Tell whether an answer has no content but thoughts, and no calls."""
    if _ROLES[message.role.value] != "assistant" or any(message.additional_kwargs.values()):
        return False
    return all(
        isinstance(block, ThinkingBlock)
        or (isinstance(block, TextBlock) and not block.text.strip())
        for block in message.blocks
    )


def _calls(message: ChatMessage) -> list[tuple[object, object]]:
    """Return the id and the tool of each call of a message."""
    blocks = (block for block in message.blocks if isinstance(block, ToolCallBlock))
    calls: list[tuple[object, object]] = [(each.tool_call_id, each.tool_name) for each in blocks]
    older = (each[:2] for each in _older_calls(message.additional_kwargs))
    return calls + [each for each in older if each not in calls]


def _open_calls(message: ChatMessage) -> list[str]:
    """Return the ids of a message's calls; by the tool's name such without one are answered."""
    return [str(call or tool) for call, tool in _calls(message) if call or tool]


def answered_call(message: ChatMessage) -> str | None:
    """Return the id of the call that a message is the result of, or None."""
    call = message.additional_kwargs.get("tool_call_id") if message.role in RESULTS else None
    return call if isinstance(call, str) and call else None


def _interrupted_result(message: ChatMessage, call: str) -> ChatMessage | None:
    if call not in (name for name, _ in _calls(message)):
        return None  # nobody waits for the result of a call without an id
    return _load(_fields("tool", [_text_block(INTERRUPTED)], {"tool_call_id": call}))
