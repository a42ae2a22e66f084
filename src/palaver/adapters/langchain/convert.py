"""LangChain's messages as messages of the log, and back.

`from_langchain` makes a palaver message, with a replacement for characters that no message can
hold. Then it converts that back, and stores the fields that differ. Some of those repeat the
content (`content`, `tool_calls`, …): they are used only while the content is unchanged, so that
LangChain sees what was edited with palaver. One message of the log is one of LangChain's, except
that a message of several tool results becomes one message for each.

LangChain is given only the reasoning that it wrote itself, and as it wrote it: its clients refuse
reasoning without the id or the signature of their own model, or send it as the model's own. Blocks
that only another provider understands are left out too.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import msgspec
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    ChatMessageChunk,
    FunctionMessage,
    FunctionMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)
from pydantic import ValidationError as Refused

from palaver.errors import ValidationError
from palaver.history.erase import ERASED
from palaver.messages import (
    AssistantInfo,
    CacheCounts,
    FilePart,
    Message,
    ModelRef,
    ReasoningPart,
    TextPart,
    TokenCounts,
    ToolCallPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    UnknownPart,
    complete,
    fail,
    file_part,
    new_id,
    pending,
    reasoning_part,
    start,
    text_part,
    to_dict,
    tool_call_part,
    tool_part,
)
from palaver.messages.codec import PART_TYPES, image_mime
from palaver.messages.ids import NIL_ID, now_ms, uuid_for
from palaver.messages.limits import (
    EMPTY,
    MAX_INT,
    FrozenDict,
    FrozenList,
    freeze,
    freeze_mapping,
    is_list,
    is_name,
    is_object,
    replace_refused,
)
from palaver.messages.parts import is_sendable, read_arguments
from palaver.messages.tool_state import NO_OUTPUT, raw_output
from palaver.wire import spell_tool
from palaver.wire.repair import (
    is_portable,
    portable,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from palaver.messages import Part, Role, ToolState

__all__ = [
    "MESSAGE_CLASSES",
    "METADATA_KEY",
    "THOUGHTS",
    "Serializer",
    "from_langchain",
    "to_langchain",
]

METADATA_KEY: Final = "langchain"
"""The metadata key."""
THOUGHTS: Final = frozenset(("reasoning", "thinking", "redacted_thinking"))
"""The blocks of an answer that are thoughts."""

_CONTENT_FIELDS: Final = frozenset(
    ("content", "blocks", "tool_calls", "invalid_tool_calls", "tool_call_id", "status")
)
"""The fields that repeat the content."""
MESSAGE_CLASSES: Final[dict[str, type[BaseMessage]]] = {
    str(kind.model_fields["type"].default): kind
    for kind in (
        HumanMessage, AIMessage, SystemMessage, ToolMessage, FunctionMessage, ChatMessage,
        HumanMessageChunk, AIMessageChunk, SystemMessageChunk, ToolMessageChunk,
        FunctionMessageChunk, ChatMessageChunk,
    )
}  # fmt: skip
"""LangChain's messages, by what their `type` says."""

INVALID_CALL: Final = {METADATA_KEY: "invalid"}
"""The metadata of a tool-call part whose arguments LangChain could not read."""
_TEXTS: Final[dict[str, Mapping[str, Any]]] = {
    "text": EMPTY,
    "refusal": freeze_mapping({"openai": {"refusal": True}}),  # as in an answer of OpenAI's
}
"""The blocks that are text, which is in the field of the same name, and their part's metadata."""
UNKNOWN_TOOL: Final = "unknown"
"""The tool of a call or result that does not say."""
_NAMED: Final = (FunctionMessage, FunctionMessageChunk)
_KINDS: Final = {"user": "human", "assistant": "ai", "system": "system"}
_ROLES: Final[dict[str, Role]] = {
    "human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool",
}  # fmt: skip
_CHAT_ROLES: Final[dict[str, Role]] = {
    "user": "user", "human": "user", "assistant": "assistant", "ai": "assistant",
    "system": "system", "developer": "system",
}  # fmt: skip
_REPEATED: Final = frozenset(("audio", "function_call", "reasoning", "refusal", "tool_calls"))
"""What integrations put into `additional_kwargs` that repeats the content, or led to it."""
_CALLS: Final = frozenset(("tool_use", "tool_call", "function_call", "tool_call_chunk"))
"""Blocks that say again what stands in `tool_calls`."""
_OUR_TYPES: Final = frozenset((*PART_TYPES, "image", "tool_result"))
"""What is read as a part of palaver's own, or as an item of its content lists."""
_BLOCK: Final = "langchain-block"
"""The type of a part that holds a block with one of these types."""


class Serializer(Protocol):
    """Serializes values that are not JSON, such as LangGraph's serializers."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:  # noqa: ANN401 - anything
        """A value as bytes, and what kind of bytes."""
        ...

    def loads_typed(self, data: tuple[str, bytes]) -> Any:  # noqa: ANN401 - anything
        """The value again."""
        ...


def from_langchain(
    message: BaseMessage, *, session: str = NIL_ID, serializer: Serializer | None = None
) -> Message:
    """Convert a LangChain message, such that `to_langchain` returns it exactly.

    `session` is the id of the conversation. Values that are not JSON (a tool's artifact may
    be anything) need a `serializer`, such as LangGraph's; without one they are refused.

    >>> from langchain_core.messages import HumanMessage
    >>> from_langchain(HumanMessage("Tea?", id="m1")).text
    'Tea?'
    """
    if type(message) is not MESSAGE_CLASSES.get(getattr(message, "type", "")):
        detail = f"must be one of LangChain's own messages, not {type(message).__name__}"
        raise ValidationError(detail, path="$.message", rule="schema")
    fields: dict[str, Any] = {**message.__dict__, **(message.__pydantic_extra__ or {})}
    made = _make_message(fields, _role(fields), session)
    ((_, guessed),) = default_fields(made)
    left = {
        name: value
        for name, value in fields.items()
        if name not in guessed or not _is_same(guessed[name], value)
    }
    if "content" in left and _is_same(to_blocks(made.parts), left["content"]):
        left["blocks"] = True
        del left["content"]
    metadata = pack_fields(left, made.content, serializer)
    if not metadata and not is_portable(made):
        metadata = {METADATA_KEY: {}}  # it is LangChain's own, and comes back as it was
    return msgspec.structs.replace(made, metadata=metadata) if metadata else made


def _is_same(guessed: object, value: object) -> bool:
    """Tell whether two values are equal; what is no JSON never is."""
    if value is None or isinstance(value, str | int | float):
        return type(guessed) is type(value) and guessed == value
    if type(value) is dict:
        return (
            type(guessed) is dict
            and guessed.keys() == value.keys()
            and all(_is_same(guessed[key], item) for key, item in value.items())
        )
    if type(value) is list:
        return (
            type(guessed) is list
            and len(guessed) == len(value)
            and all(map(_is_same, guessed, value))
        )
    return False


def _role(fields: dict[str, Any]) -> Role:
    kind = str(fields["type"]).removesuffix("MessageChunk").lower()
    return _CHAT_ROLES.get(str(fields["role"]), "user") if kind == "chat" else _ROLES[kind]


def _make_message(fields: dict[str, Any], role: Role, session: str) -> Message:
    """The message without what palaver has no field for."""
    name = fields["id"]
    name = name if is_name(name) else new_id()
    ids = uuid_for(session), uuid_for(name)
    content = fields["content"]
    if role == "tool":
        return Message("tool", (_read_result(fields, name, ids),), id=name)
    if role == "assistant" and isinstance(content, str) and (refusal := _refusal(fields)):
        content = [content, refusal] if content else [refusal]
    calls = [_read_call(call, ids) for call in fields.get("tool_calls") or ()]
    calls += [_read_invalid_call(call, ids) for call in fields.get("invalid_tool_calls") or ()]
    info = _read_info(fields) if role == "assistant" else None
    if isinstance(content, str) and not calls:
        return Message(role, _clean_text(content), id=name, info=info)
    said = [content] if isinstance(content, str) and content else content or ()
    parts = [part for block in said if (part := _read_block(block, ids)) is not None]
    if not parts and not calls:
        return Message(role, "", id=name, info=info)
    return Message(role, (*parts, *calls), id=name, info=info)


def _refusal(fields: dict[str, Any]) -> dict[str, str] | None:
    """A refusal of OpenAI's Chat Completions as a block; LangChain keeps it beside the content."""
    about = fields.get("additional_kwargs")
    said = about.get("refusal") if is_object(about) else None
    return {"type": "refusal", "refusal": said} if isinstance(said, str) and said else None


def _name(name: object, otherwise: str) -> str:
    return name if is_name(name) else otherwise


def _clean_text(text: object) -> str:
    return cast("str", replace_refused(text)) if isinstance(text, str) else ""


def _clean_object(value: object) -> dict[str, Any]:
    """A JSON object that a message can hold, or an empty one."""
    harmless = replace_refused(value)
    try:
        return dict(freeze_mapping(harmless)) if is_object(harmless) else {}
    except ValidationError:
        return {}


# ── parts ───────────────────────────────────────────────────────────────────────────────────────


def _read_block(block: object, ids: tuple[str, str]) -> Part | None:
    """Convert a content block to a part; None if it repeats a call or has no content."""
    if isinstance(block, str):
        return text_part(*ids, _clean_text(block))
    if not is_object(block) or block.get("type") in _CALLS:
        return None
    kind = block.get("type")
    if kind in _TEXTS and isinstance(said := block.get(kind), str):
        return text_part(*ids, _clean_text(said), metadata=_TEXTS[kind])
    thought = block.get("reasoning", block.get("thinking"))
    if kind in ("reasoning", "thinking") and isinstance(thought, str):
        return reasoning_part(*ids, _clean_text(thought))
    url = _image_url(block)
    if url:
        return file_part(*ids, image_mime(url), _clean_text(url))
    file = _read_file(block)
    return _unknown_part(block) if file is None else file_part(*ids, *file)


def _read_file(block: Any) -> tuple[str, str] | None:  # noqa: ANN401 - a JSON object
    """The media type and the URL of a file block; None if a provider has the file."""
    mime, data, url = block.get("mime_type"), block.get("base64"), block.get("url")
    kind = block.get("type")
    if kind not in ("file", "audio", "video") or not (mime is None or is_name(mime)):
        return None
    mime = mime or ("application/octet-stream" if kind == "file" else f"{kind}/*")
    if isinstance(data, str):
        return mime, _clean_text(f"data:{mime};base64,{data}")
    return (mime, _clean_text(url)) if isinstance(url, str) and url else None


def _image_url(block: Any) -> str | None:  # noqa: ANN401 - a JSON object
    """Where an image block says its image is."""
    if block.get("type") == "image_url":
        inner = block.get("image_url")
        url = inner.get("url") if is_object(inner) else inner
        return url if isinstance(url, str) else None
    if block.get("type") != "image":
        return None
    data, mime, url = block.get("base64"), block.get("mime_type"), block.get("url")
    if isinstance(data, str) and isinstance(mime, str):
        return f"data:{mime};base64,{data}"
    return url if isinstance(url, str) else None


def _unknown_part(block: object) -> Part | None:
    raw = _clean_object(block)
    kind = raw.get("type")
    if not isinstance(kind, str) or not kind:
        return None
    return UnknownPart({"type": _BLOCK, "block": raw} if kind in _OUR_TYPES else raw)


def _read_call(call: Any, ids: tuple[str, str]) -> Part:  # noqa: ANN401 - a JSON object
    call_id, tool = _name(call.get("id"), new_id()), _name(call.get("name"), UNKNOWN_TOOL)
    given = read_arguments(_clean_object(call.get("args")))
    return tool_call_part(*ids, tool, given.input, call_id=call_id, raw=given.raw)


def _read_invalid_call(call: Any, ids: tuple[str, str]) -> Part:  # noqa: ANN401 - a JSON object
    call_id, tool = _name(call.get("id"), new_id()), _name(call.get("name"), UNKNOWN_TOOL)
    raw = _clean_text(call.get("args"))
    return tool_call_part(*ids, tool, {}, call_id=call_id, raw=raw, metadata=INVALID_CALL)


def _read_result(fields: dict[str, Any], message_id: str, ids: tuple[str, str]) -> Part:
    tool = _name(fields.get("name"), UNKNOWN_TOOL)
    call_id = _name(fields.get("tool_call_id"), message_id)
    content, now = fields["content"], now_ms()
    if isinstance(content, str):
        output = _clean_text(content)
    else:
        output = "\n".join(text for block in content if (text := _block_text(block)))
    running = start(pending({}, ""), at=now)
    if fields.get("status") == "error":
        state: ToolState = fail(running, output or NO_OUTPUT, at=now)
    else:
        state = complete(running, output, tool=tool, at=now)
    return tool_part(*ids, call_id, tool, state)


def _block_text(block: object) -> str:
    text = block.get("text") if is_object(block) else block
    return _clean_text(text)


# ── what an answer used ─────────────────────────────────────────────────────────────────────────


def _read_info(fields: dict[str, Any]) -> AssistantInfo | None:
    about = fields.get("response_metadata")
    about = about if is_object(about) else {}
    model = about.get("model_name", about.get("model"))
    finish = about.get("finish_reason", about.get("stop_reason"))
    tokens = _token_counts(fields.get("usage_metadata"))
    named = None
    if is_name(model):
        named = ModelRef(_name(about.get("model_provider"), METADATA_KEY), model)
    ended = finish if is_name(finish) else None
    if named is None and ended is None and tokens is None:
        return None
    return AssistantInfo(model=named, finish=ended, tokens=tokens)


def _token_counts(usage: object) -> TokenCounts | None:
    """The counts, made disjoint; None where they are not such as palaver would count."""
    if not is_object(usage):
        return None
    of_input, of_output = usage.get("input_token_details"), usage.get("output_token_details")
    into = _counts(of_input, "cache_read", "cache_creation")
    out = _counts(of_output, "reasoning")
    sums = _counts(usage, "input_tokens", "output_tokens", "total_tokens")
    if into is None or out is None or sums is None:
        return None
    fresh, said = sums[0] - sum(into), sums[1] - out[0]
    if fresh < 0 or said < 0:
        return None
    total = None if sums[2] == sums[0] + sums[1] else sums[2]
    return TokenCounts(fresh, said, out[0], CacheCounts(*into), total)


def _counts(of: object, *names: str) -> list[int] | None:
    found: list[int] = []
    for name in names:
        count = of.get(name, 0) if is_object(of) else 0
        if type(count) is not int or not 0 <= count <= MAX_INT:
            return None
        found.append(count)
    return found


def to_langchain(message: Message, *, serializer: Serializer | None = None) -> list[BaseMessage]:
    """Convert a message to LangChain's: one, or one for each of several tool results.

    Reasoning that LangChain did not write, or that was edited, is left out, and so are blocks of
    other providers. A message that was erased, or that is nothing but these, gives none.

    >>> from palaver.messages import user
    >>> to_langchain(user("Tea?", id="m1"))
    [HumanMessage(content='Tea?', additional_kwargs={}, response_metadata={}, id='m1')]
    """
    if ERASED in message.metadata:
        return []
    if METADATA_KEY not in message.metadata:
        found = portable(message)
        made = default_fields(found) if found is not None else []
        if any(isinstance(part, UnknownPart) for part in message.parts):
            made = [(kind, fields) for kind, fields in made if _has_content(kind, fields)]
        return [MESSAGE_CLASSES[kind].model_construct(**fields) for kind, fields in made]
    (kind, fields), *more = default_fields(message)
    left = unpack_fields(message, serializer)
    if left.pop("blocks", False):
        left["content"] = to_blocks(message.parts)
    wanted = MESSAGE_CLASSES.get(str(left.get("type", kind)))
    known = {} if wanted is None else wanted.model_fields
    own = {name: value for name, value in fields.items() if name in known}
    if own.get("name") is None and left.get("name") is None and wanted in _NAMED:
        own["name"] = UNKNOWN_TOOL
    first = _construct(wanted, own | left)
    return [first, *(MESSAGE_CLASSES[kind].model_construct(**fields) for kind, fields in more)]


def _has_content(kind: str, fields: dict[str, Any]) -> bool:
    said = ("content", "tool_calls", "invalid_tool_calls")
    return kind == "tool" or any(fields.get(name) for name in said)


def _construct(kind: type[BaseMessage] | None, fields: dict[str, Any]) -> BaseMessage:
    """Make a message of stored fields, if LangChain would accept them."""
    if kind is None:
        detail = f"can't be a message of LangChain's: {fields.get('type')!r} is no type of theirs"
        raise ValidationError(detail, path=f"$.metadata.{METADATA_KEY}", rule="schema")
    try:
        kind.model_validate(dict(fields))
    except (Refused, TypeError, KeyError) as error:
        detail = f"can't be a message of LangChain's: {error}"
        raise ValidationError(detail, path=f"$.metadata.{METADATA_KEY}", rule="schema") from None
    return kind.model_construct(**fields)  # as it was: validating fills in and changes


def default_fields(message: Message) -> list[tuple[str, dict[str, Any]]]:
    """Convert a message without its stored fields: the types and fields."""
    results = [part for part in message.parts if isinstance(part, ToolPart)]
    found = [("tool", _write_result(message, part, index)) for index, part in enumerate(results)]
    kind = _KINDS.get(message.role)
    if kind is None:  # a tool message
        if not found:
            fields = _common_fields(message, "tool", message.text)
            found.append(("tool", fields | _tool_fields("", "success")))
        return found
    rest = [part for part in message.parts if not isinstance(part, ToolPart)]
    if rest or not found:
        fields = _common_fields(message, kind, _write_content(message, rest))
        if found:
            fields["id"] = f"{message.id}:{len(found)}"
        if kind == "ai":
            fields |= _answer_fields(message)
        found.append((kind, fields))
    return found


def _common_fields(message: Message, kind: str, content: object) -> dict[str, Any]:
    name = None
    if message.speaker is not None:
        name = spell_tool("openai-chat", message.speaker.role_name)  # names are refused alike
    return {
        "content": content, "additional_kwargs": {}, "response_metadata": {}, "type": kind,
        "name": name, "id": message.id,
    }  # fmt: skip


def _tool_fields(call_id: str, status: str) -> dict[str, Any]:
    return {"tool_call_id": call_id, "artifact": None, "status": status}


def _write_result(message: Message, part: ToolPart, index: int) -> dict[str, Any]:
    state = part.state
    output = state.error if isinstance(state, ToolError) else ""
    if isinstance(state, ToolCompleted):
        output = raw_output(state)
    fields = _common_fields(message, "tool", output)
    if part.tool != UNKNOWN_TOOL:
        fields["name"] = part.tool
    if index:
        fields["id"] = f"{message.id}:{index}"
    return fields | _tool_fields(
        part.call_id, "error" if isinstance(state, ToolError) else "success"
    )


def _answer_fields(message: Message) -> dict[str, Any]:
    calls: list[dict[str, Any]] = []
    invalid: list[dict[str, Any]] = []
    for part in message.parts:
        if not isinstance(part, ToolCallPart):
            continue
        if part.metadata == INVALID_CALL:
            invalid.append(
                {"name": part.tool, "args": part.raw, "id": part.call_id, "error": None,
                 "type": "invalid_tool_call"}
            )  # fmt: skip
        else:
            calls.append(
                {"name": part.tool, "args": thaw(part.arguments), "id": part.call_id,
                 "type": "tool_call"}
            )  # fmt: skip
    tokens = message.info.tokens if isinstance(message.info, AssistantInfo) else None
    usage = None if tokens is None else _write_usage(tokens)
    return {"tool_calls": calls, "invalid_tool_calls": invalid, "usage_metadata": usage}


def _write_usage(tokens: TokenCounts) -> dict[str, Any]:
    total = tokens.prompt + tokens.completion if tokens.total is None else tokens.total
    usage: dict[str, Any] = {
        "input_tokens": tokens.prompt,
        "output_tokens": tokens.completion,
        "total_tokens": total,
    }
    cached = {"cache_creation": tokens.cache.write, "cache_read": tokens.cache.read}
    if tokens.cache.write or tokens.cache.read:
        usage["input_token_details"] = {name: count for name, count in cached.items() if count}
    if tokens.reasoning:
        usage["output_token_details"] = {"reasoning": tokens.reasoning}
    return usage


def _write_content(message: Message, parts: Sequence[Part]) -> str | list[Any]:
    if isinstance(message.content, str):
        return message.content
    left_out = ToolCallPart | ReasoningPart
    if METADATA_KEY not in message.metadata:
        left_out |= UnknownPart
    said = [part for part in filter(is_sendable, parts) if not isinstance(part, left_out)]
    if all(isinstance(part, TextPart) for part in said):
        return message.sendable_text
    return to_blocks(said)


def to_blocks(parts: Iterable[Part]) -> list[Any]:
    """Convert parts to LangChain's content blocks; parts without a block are left out."""
    blocks: list[Any] = []
    for part in filter(is_sendable, parts):
        if isinstance(part, TextPart):
            kind = "refusal" if part.metadata == _TEXTS["refusal"] else "text"
            blocks.append({"type": kind, kind: part.text})
        elif isinstance(part, ReasoningPart):
            blocks.append({"type": "reasoning", "reasoning": part.text})
        elif isinstance(part, FilePart):
            blocks.append(_write_file(part))
        elif isinstance(part, UnknownPart):
            blocks.append(thaw(part.raw["block"] if part.type == _BLOCK else part.raw))
    return blocks


def _write_file(part: FilePart) -> dict[str, Any]:
    if part.mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": part.url}}
    kind = part.mime.partition("/")[0]
    kind = kind if kind in ("audio", "video") else "file"
    head, _, data = part.url.partition(";base64,")
    if head.startswith("data:"):
        return {"type": kind, "base64": data, "mime_type": part.mime}
    return {"type": kind, "url": part.url, "mime_type": part.mime}


def pack_fields(
    fields: dict[str, Any], content: object, serializer: Serializer | None
) -> dict[str, Any]:
    """Pack fields into metadata; `content` is the palaver message's own."""
    if not fields:
        return {}
    left: dict[str, Any] = {}
    not_json: dict[str, Any] = {}
    for name, value in fields.items():
        is_plain = _is_plain(value) and name not in ("", "hard", "of")
        (left if is_plain else not_json)[name] = value
    if not_json:
        left["hard"] = _pack(not_json, serializer)
    if _repeats_content(fields):
        left["of"] = _checksum(content)
    return {METADATA_KEY: left}


def unpack_fields(message: Message, serializer: Serializer | None) -> dict[str, Any]:
    """Unpack the fields stored with a message that are still valid."""
    left = message.metadata.get(METADATA_KEY)
    if not is_object(left):
        return {}
    fields: dict[str, Any] = {
        name: thaw(value) for name, value in left.items() if name not in ("hard", "of")
    }
    if "hard" in left:
        fields |= _unpack(left["hard"], serializer)
    if _repeats_content(fields) and left.get("of") != _checksum(message.content):
        fields = {name: value for name, value in fields.items() if name not in _CONTENT_FIELDS}
        given = fields.get("additional_kwargs")
        if is_object(given) and message.role == "assistant":
            fields["additional_kwargs"] = {k: given[k] for k in given if k not in _REPEATED}
    return fields


def _repeats_content(fields: Mapping[str, Any]) -> bool:
    """Tell whether some of the fields are valid only while the content is unchanged."""
    given = fields.get("additional_kwargs")
    repeats = is_object(given) and any(given.get(name) for name in _REPEATED)
    return repeats or not _CONTENT_FIELDS.isdisjoint(fields)


def thaw(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Convert a frozen value to plain dicts and lists."""
    kind = type(value)
    if kind is FrozenDict:
        return {key: thaw(item) for key, item in value.items()}
    if kind is FrozenList:
        return [thaw(item) for item in value]
    return value


def _checksum(content: object) -> int:
    """A number that changes with the content."""
    return zlib.crc32(msgspec.json.encode(to_dict(content)))


def _is_plain(value: object) -> bool:
    """Tell whether a value comes back from JSON as it is."""
    try:
        freeze(value)
    except ValidationError:
        return False
    return _is_json(value)


def _is_json(value: object) -> bool:
    if type(value) is dict:
        return all(_is_json(item) for item in value.values())
    if type(value) is list:
        return all(map(_is_json, value))
    return not (is_object(value) or is_list(value))  # a tuple would come back as a list


def _pack(not_json: dict[str, Any], serializer: Serializer | None) -> list[str]:
    if serializer is not None:
        kind, data = serializer.dumps_typed(not_json)
        return [kind, base64.b64encode(data).decode()]
    try:  # escapes in JSON carry any character, and Python's own reader any number
        text = json.dumps(not_json)
        same = _equal(json.loads(text), not_json)
    except (TypeError, ValueError, RecursionError):
        text, same = "", False
    if not same:
        detail = f"holds what is no JSON and could not be read back: {', '.join(sorted(not_json))}"
        raise ValidationError(detail, path="$.message", rule="schema")
    return ["text", text]


def _equal(one: Any, other: Any) -> bool:  # noqa: ANN401 - anything
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other) or one != one  # noqa: PLR0124 - NaN is no other


def _unpack(packed: object, serializer: Serializer | None) -> Mapping[str, Any]:
    try:
        kind, data = cast("list[str]", packed)  # two texts, or it is refused
        if kind == "text":
            return dict(json.loads(data))
        if serializer is not None:
            return dict(serializer.loads_typed((kind, base64.b64decode(data))))
    except (TypeError, ValueError) as error:
        detail = f"can't be read: {error}"
        raise ValidationError(
            detail, path=f"$.metadata.{METADATA_KEY}.hard", rule="schema"
        ) from None
    return {}  # stored by another adapter, whose serializer is not here
