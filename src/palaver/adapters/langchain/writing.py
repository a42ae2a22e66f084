"""palaver's messages as LangChain's.

One message of the log is one of LangChain's, with one exception: there a tool message has a single
result, so a message of several results becomes several. `plain` is what a message comes to by
itself; what was kept with it (see `leftovers`) is put over that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

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

from palaver.adapters.langchain.leftovers import KEY, kept, thawed
from palaver.errors import ValidationError
from palaver.messages import (
    NO_OUTPUT,
    AssistantInfo,
    FilePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    UnknownPart,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from palaver.adapters.langchain.leftovers import Packer
    from palaver.messages import Message, Part, TokenCounts

__all__ = ["CLASSES", "INVALID", "NAMELESS", "blocks_of", "plain", "to_langchain"]

CLASSES: Final[dict[str, type[BaseMessage]]] = {
    str(kind.model_fields["type"].default): kind
    for kind in (
        HumanMessage, AIMessage, SystemMessage, ToolMessage, FunctionMessage, ChatMessage,
        HumanMessageChunk, AIMessageChunk, SystemMessageChunk, ToolMessageChunk,
        FunctionMessageChunk, ChatMessageChunk,
    )
}  # fmt: skip
"""LangChain's messages, by what their `type` says."""

INVALID: Final = {KEY: "invalid"}
"""The metadata of a tool-call part whose arguments LangChain could not read."""
NAMELESS: Final = "unknown"
"""The tool of a call or result that does not say."""
_NAMED: Final = (FunctionMessage, FunctionMessageChunk)
_KINDS: Final = {"user": "human", "assistant": "ai", "system": "system"}


def to_langchain(message: Message, *, packer: Packer | None = None) -> list[BaseMessage]:
    """A message as LangChain has it: one, or one for each of several tool results.

    >>> from palaver.messages import user
    >>> to_langchain(user("Tea?", id="m1"))
    [HumanMessage(content='Tea?', additional_kwargs={}, response_metadata={}, id='m1')]
    """
    made = plain(message)
    if KEY not in message.metadata:
        return [CLASSES[kind].model_construct(**fields) for kind, fields in made]
    (kind, fields), *more = made
    left = kept(message, packer)
    if left.pop("blocks", False):
        left["content"] = blocks_of(message.parts)
    wanted = CLASSES.get(str(left.get("type", kind)))
    known = {} if wanted is None else wanted.model_fields
    own = {name: value for name, value in fields.items() if name in known}
    if own.get("name") is None and left.get("name") is None and wanted in _NAMED:
        own["name"] = NAMELESS
    first = _checked(wanted, own | left)
    return [first, *(CLASSES[kind].model_construct(**fields) for kind, fields in more)]


def _checked(kind: type[BaseMessage] | None, fields: dict[str, Any]) -> BaseMessage:
    """Make a message of fields that were kept, if LangChain would take them."""
    if kind is None:
        detail = f"can't be a message of LangChain's: {fields.get('type')!r} is no type of theirs"
        raise ValidationError(detail, path=f"$.metadata.{KEY}", rule="schema")
    try:
        kind.model_validate(dict(fields))
    except (Refused, TypeError, KeyError) as error:
        detail = f"can't be a message of LangChain's: {error}"
        raise ValidationError(detail, path=f"$.metadata.{KEY}", rule="schema") from None
    return kind.model_construct(**fields)  # as it was: validating fills in and changes


def plain(message: Message) -> list[tuple[str, dict[str, Any]]]:
    """What a message comes to by itself: kinds and fields."""
    results = [part for part in message.parts if isinstance(part, ToolPart)]
    found = [("tool", _result(message, part, index)) for index, part in enumerate(results)]
    kind = _KINDS.get(message.role)
    if kind is None:  # a tool message
        if not found:
            fields = _common(message, "tool", message.text)
            found.append(("tool", fields | _of_tool("", "success")))
        return found
    rest = [part for part in message.parts if not isinstance(part, ToolPart)]
    if rest or not found:
        fields = _common(message, kind, _content(message, rest))
        if found:
            fields["id"] = f"{message.id}:{len(found)}"
        if kind == "ai":
            fields |= _of_answer(message)
        found.append((kind, fields))
    return found


def _common(message: Message, kind: str, content: object) -> dict[str, Any]:
    name = None if message.speaker is None else message.speaker.role_name
    return {
        "content": content, "additional_kwargs": {}, "response_metadata": {}, "type": kind,
        "name": name, "id": message.id,
    }  # fmt: skip


def _of_tool(call_id: str, status: str) -> dict[str, Any]:
    return {"tool_call_id": call_id, "artifact": None, "status": status}


def _result(message: Message, part: ToolPart, index: int) -> dict[str, Any]:
    state = part.state
    output = state.error if isinstance(state, ToolError) else ""
    if isinstance(state, ToolCompleted):
        output = state.output
        if output == NO_OUTPUT and state.metadata.get("rawOutput") == "":
            output = ""
    fields = _common(message, "tool", output)
    if part.tool != NAMELESS:
        fields["name"] = part.tool
    if index:
        fields["id"] = f"{message.id}:{index}"
    return fields | _of_tool(part.call_id, "error" if isinstance(state, ToolError) else "success")


def _of_answer(message: Message) -> dict[str, Any]:
    calls: list[dict[str, Any]] = []
    invalid: list[dict[str, Any]] = []
    for part in message.parts:
        if not isinstance(part, ToolCallPart):
            continue
        if part.metadata == INVALID:
            invalid.append(
                {"name": part.tool, "args": part.raw, "id": part.call_id, "error": None,
                 "type": "invalid_tool_call"}
            )  # fmt: skip
        else:
            calls.append(
                {"name": part.tool, "args": thawed(part.input), "id": part.call_id,
                 "type": "tool_call"}
            )  # fmt: skip
    tokens = message.info.tokens if isinstance(message.info, AssistantInfo) else None
    usage = None if tokens is None else _usage(tokens)
    return {"tool_calls": calls, "invalid_tool_calls": invalid, "usage_metadata": usage}


def _usage(tokens: TokenCounts) -> dict[str, Any]:
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


def _content(message: Message, parts: Sequence[Part]) -> str | list[Any]:
    if isinstance(message.content, str):
        return message.content
    said = [part for part in parts if not isinstance(part, ToolCallPart)]
    if all(isinstance(part, TextPart) for part in said):
        return "".join(
            part.text for part in said if isinstance(part, TextPart) and not part.ignored
        )
    return blocks_of(said)


def blocks_of(parts: Iterable[Part]) -> list[Any]:
    """Parts as LangChain's content blocks; what has no block there is left out."""
    blocks: list[Any] = []
    for part in parts:
        if isinstance(part, TextPart) and not part.ignored:
            blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, ReasoningPart):
            blocks.append({"type": "reasoning", "reasoning": part.text})
        elif isinstance(part, FilePart):
            blocks.append(_file(part))
        elif isinstance(part, UnknownPart):
            blocks.append(thawed(part.raw))
    return blocks


def _file(part: FilePart) -> dict[str, Any]:
    if part.mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": part.url}}
    head, _, data = part.url.partition(";base64,")
    if head.startswith("data:"):
        return {"type": "file", "base64": data, "mime_type": part.mime}
    return {"type": "file", "url": part.url, "mime_type": part.mime}
