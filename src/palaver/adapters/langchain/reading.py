"""LangChain's messages as palaver's.

First the message is made as palaver would have it, with a harmless sign wherever the gate would
refuse a character. Then it is written back in thought, and what comes out differently is kept with
it (see `leftovers`). So nothing is lost, whatever LangChain puts into its messages next year.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

import msgspec

from palaver.adapters.langchain.leftovers import KEY, keep
from palaver.adapters.langchain.writing import CLASSES, INVALID, NAMELESS, blocks_of, plain
from palaver.errors import ValidationError
from palaver.messages import (
    NO_OUTPUT,
    AssistantInfo,
    CacheCounts,
    Message,
    ModelRef,
    TokenCounts,
    UnknownPart,
    complete,
    fail,
    file_part,
    new_id,
    pending,
    reasoning_part,
    replace_refused,
    start,
    text_part,
    tool_call_part,
    tool_part,
)
from palaver.messages.content import image_mime
from palaver.messages.gate import MAX_INT, MAX_NAME, freeze_mapping, is_object
from palaver.messages.ids import NIL_ID, now_ms, uuid_for

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

    from palaver.adapters.langchain.leftovers import Packer
    from palaver.messages import Part, Role, ToolState

__all__ = ["from_langchain"]

_ROLES: Final[dict[str, Role]] = {
    "human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool",
}  # fmt: skip
_SPOKEN: Final[dict[str, Role]] = {
    "user": "user", "human": "user", "assistant": "assistant", "ai": "assistant",
    "system": "system", "developer": "system",
}  # fmt: skip
_CALLS: Final = frozenset(("tool_use", "tool_call", "function_call", "tool_call_chunk"))
"""Blocks that say again what stands in `tool_calls`."""


def from_langchain(
    message: BaseMessage, *, session: str = NIL_ID, packer: Packer | None = None
) -> Message:
    """A message of LangChain's, such that `to_langchain` gives it back exactly.

    `session` is the id of the conversation. Values that are no JSON (a tool's artifact may be
    anything) need a `packer`, such as LangGraph's serializers; without one they are refused.

    >>> from langchain_core.messages import HumanMessage
    >>> from_langchain(HumanMessage("Tea?", id="m1")).text
    'Tea?'
    """
    if type(message) is not CLASSES.get(message.type):
        detail = f"must be one of LangChain's own messages, not {type(message).__name__}"
        raise ValidationError(detail, path="$.message", rule="schema")
    fields: dict[str, Any] = {**message.__dict__, **(message.__pydantic_extra__ or {})}
    made = _made(fields, _role(fields), session)
    ((_, guessed),) = plain(made)
    left = {
        name: value
        for name, value in fields.items()
        if name not in guessed or not _same(guessed[name], value)
    }
    if "content" in left and _same(blocks_of(made.parts), left["content"]):
        left["blocks"] = True
        del left["content"]
    metadata = keep(left, made.content, packer)
    return msgspec.structs.replace(made, metadata=metadata) if metadata else made


def _same(guessed: object, value: object) -> bool:
    """Tell whether two values are equal; what is no JSON never is."""
    if value is None or isinstance(value, str | int | float):
        return type(guessed) is type(value) and guessed == value
    if type(value) is dict:
        return (
            type(guessed) is dict
            and guessed.keys() == value.keys()
            and all(_same(guessed[key], item) for key, item in value.items())
        )
    if type(value) is list:
        return (
            type(guessed) is list and len(guessed) == len(value) and all(map(_same, guessed, value))
        )
    return False


def _role(fields: dict[str, Any]) -> Role:
    kind = str(fields["type"]).removesuffix("MessageChunk").lower()
    return _SPOKEN.get(str(fields["role"]), "user") if kind == "chat" else _ROLES[kind]


def _made(fields: dict[str, Any], role: Role, session: str) -> Message:
    """The message without what palaver has no field for."""
    name = fields["id"]
    name = name if _is_name(name) else new_id()
    ids = uuid_for(session), uuid_for(name)
    content = fields["content"]
    if role == "tool":
        return Message("tool", (_result(fields, name, ids),), id=name)
    calls = [_call(call, ids) for call in fields.get("tool_calls") or ()]
    calls += [_invalid(call, ids) for call in fields.get("invalid_tool_calls") or ()]
    info = _info(fields) if role == "assistant" else None
    if isinstance(content, str) and not calls:
        return Message(role, _text(content), id=name, info=info)
    said = [content] if isinstance(content, str) and content else content or ()
    parts = [part for block in said if (part := _block(block, ids)) is not None]
    if not parts and not calls:
        return Message(role, "", id=name, info=info)
    return Message(role, (*parts, *calls), id=name, info=info)


def _is_name(name: object) -> TypeGuard[str]:
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()


def _name(name: object, otherwise: str) -> str:
    return name if _is_name(name) else otherwise


def _text(text: object) -> str:
    return cast("str", replace_refused(text)) if isinstance(text, str) else ""


def _object(value: object) -> dict[str, Any]:
    """A JSON object that the gate takes, or an empty one."""
    harmless = replace_refused(value)
    try:
        return dict(freeze_mapping(harmless)) if is_object(harmless) else {}
    except ValidationError:
        return {}


# ── parts ───────────────────────────────────────────────────────────────────────────────────────


def _block(block: object, ids: tuple[str, str]) -> Part | None:
    """A content block as a part; None where it says nothing new, or nothing that palaver can."""
    if isinstance(block, str):
        return text_part(*ids, _text(block))
    if not is_object(block) or block.get("type") in _CALLS:
        return None
    kind, said = block.get("type"), block.get("text")
    if kind == "text" and isinstance(said, str):
        return text_part(*ids, _text(said))
    thought = block.get("reasoning", block.get("thinking"))
    if kind in ("reasoning", "thinking") and isinstance(thought, str):
        return reasoning_part(*ids, _text(thought))
    url = _url(block)
    if url:
        return file_part(*ids, image_mime(url), _text(url))
    return _unknown(block)


def _url(block: Any) -> str | None:  # noqa: ANN401 - a JSON object
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


def _unknown(block: object) -> Part | None:
    raw = _object(block)
    return UnknownPart(raw) if isinstance(raw.get("type"), str) else None


def _call(call: Any, ids: tuple[str, str]) -> Part:  # noqa: ANN401 - a JSON object
    call_id, tool = _name(call.get("id"), new_id()), _name(call.get("name"), NAMELESS)
    return tool_call_part(*ids, tool, _object(call.get("args")), call_id=call_id)


def _invalid(call: Any, ids: tuple[str, str]) -> Part:  # noqa: ANN401 - a JSON object
    call_id, tool = _name(call.get("id"), new_id()), _name(call.get("name"), NAMELESS)
    raw = _text(call.get("args"))
    return tool_call_part(*ids, tool, {}, call_id=call_id, raw=raw, metadata=INVALID)


def _result(fields: dict[str, Any], message_id: str, ids: tuple[str, str]) -> Part:
    tool = _name(fields.get("name"), NAMELESS)
    call_id = _name(fields.get("tool_call_id"), message_id)
    content, now = fields["content"], now_ms()
    if isinstance(content, str):
        output = _text(content)
    else:
        output = "\n".join(text for block in content if (text := _said(block)))
    running = start(pending({}, ""), at=now)
    if fields.get("status") == "error":
        state: ToolState = fail(running, output or NO_OUTPUT, at=now)
    else:
        state = complete(running, output, tool=tool, at=now)
    return tool_part(*ids, call_id, tool, state)


def _said(block: object) -> str:
    text = block.get("text") if is_object(block) else block
    return _text(text)


# ── what an answer used ─────────────────────────────────────────────────────────────────────────


def _info(fields: dict[str, Any]) -> AssistantInfo | None:
    about = fields.get("response_metadata")
    about = about if is_object(about) else {}
    model = about.get("model_name", about.get("model"))
    finish = about.get("finish_reason", about.get("stop_reason"))
    tokens = _tokens(fields.get("usage_metadata"))
    named = None
    if _is_name(model):
        named = ModelRef(_name(about.get("model_provider"), KEY), model)
    ended = finish if _is_name(finish) else None
    if named is None and ended is None and tokens is None:
        return None
    return AssistantInfo(model=named, finish=ended, tokens=tokens)


def _tokens(usage: object) -> TokenCounts | None:
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
