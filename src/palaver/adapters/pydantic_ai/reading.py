"""Pydantic AI's JSON to messages: each part of a request is a message, an answer is one.

The ids follow from what was said, so a message that is stored already is recognised wherever it
comes up again: Pydantic AI stamps everything with its time, and nothing is said twice.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from palaver.adapters.pydantic_ai.writing import FORM, KEY, difference
from palaver.messages.factories import (
    file_part,
    reasoning_part,
    text_part,
    tool_call_part,
    tool_part,
)
from palaver.messages.gate import is_list, is_object
from palaver.messages.ids import derived_id, new_id, now_ms
from palaver.messages.message import AssistantInfo, Message
from palaver.messages.parts import CacheCounts, ModelRef, TokenCounts, UnknownPart
from palaver.messages.toolstate import complete, fail, pending, start
from palaver.wire.memory import fingerprint
from palaver.wire.reading import arguments_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.adapters.pydantic_ai.writing import Json
    from palaver.messages.message import Role
    from palaver.messages.parts import Part

__all__ = ["REQUEST", "read"]

REQUEST: Final = "pydantic_ai_request"
"""Where the first message of a request keeps what was said of the request as a whole."""
_FAILED: Final = frozenset(("failed", "denied", "interrupted", "retried"))


def read(theirs: Json, session: str) -> list[Message]:
    """The messages of a request, or of an answer; there is always a first."""
    name = derived_id(FORM, fingerprint(theirs))
    parts = theirs.get("parts")
    found = [*parts] if is_list(parts) else []
    if theirs.get("kind") == "response":
        return [_kept(_answer(theirs, found, session, name), theirs)]
    rest = {field: value for field, value in theirs.items() if field != "parts"}
    messages = [
        _kept(_given(part, derived_id(name, str(place)) if place else name, session), [part])
        for place, part in enumerate(found)
    ] or [Message("user", (), id=name)]
    head = {**messages[0].metadata, REQUEST: msgspec.json.encode(rest).decode()}
    return [replace(messages[0], metadata=head), *messages[1:]]


def _kept(message: Message, theirs: object) -> Message:
    kept = difference(message, theirs)
    if kept is None:
        return message
    return replace(message, metadata={**message.metadata, KEY: kept})


def _given(part: Json, name: str, session: str) -> Message:
    """A message of one part of a request."""
    kind, content = part.get("part_kind"), part.get("content")
    at = _ms(part.get("timestamp"))
    role: Role = "user" if kind in ("user-prompt", "retry-feedback") else "system"
    if kind in ("tool-return", "retry-prompt") and part.get("tool_call_id"):
        role, content = "tool", [_result(part, name, session, at)]
    elif kind == "user-prompt" and is_list(content):
        content = [_said(item, name, session) for item in content]
    elif not isinstance(content, str):
        content = [_unknown(part)]
    said = content if isinstance(content, str) else tuple(content)
    return Message(role, said, id=name, timestamp=at)


def _result(part: Json, name: str, session: str, at: int) -> Part:
    content = part.get("content")
    text = content if isinstance(content, str) else msgspec.json.encode(content).decode()
    tool = str(part.get("tool_name") or "unknown")
    running = start(pending({}, ""), at=at)
    failed = part.get("part_kind") == "retry-prompt" or part.get("outcome") in _FAILED
    state = (
        fail(running, text, at=at)
        if failed and text.strip()
        else complete(running, text, tool=tool, at=at)
    )
    return tool_part(session, name, str(part["tool_call_id"]), tool, state)


def _said(item: str | Json, name: str, session: str) -> Part:
    """What a user said: text, a file, something else."""
    if isinstance(item, str):
        return text_part(session, name, item)
    mime, kind = item.get("media_type"), item.get("kind")
    url = item.get("url")
    if kind == "binary":
        url = f"data:{mime};base64,{item.get('data')}"
    if isinstance(url, str) and url and isinstance(mime, str) and mime:
        return file_part(session, name, mime, url)
    return _unknown(item)


def _unknown(block: Mapping[str, Any]) -> Part:
    return UnknownPart({"type": FORM, "id": new_id(), "block": block})


def _answer(theirs: Json, parts: list[Any], session: str, name: str) -> Message:
    at = _ms(theirs.get("timestamp"))
    info = AssistantInfo(
        model=_model(theirs), tokens=_tokens(theirs.get("usage")), completed=at,
        finish=str(theirs["finish_reason"]) if theirs.get("finish_reason") else None,
    )  # fmt: skip
    content = tuple(_answered(part, session, name, at) for part in parts)
    return Message("assistant", content, id=name, timestamp=at, info=info)


def _answered(part: Json, session: str, name: str, at: int) -> Part:
    kind, content = part.get("part_kind"), part.get("content")
    if kind == "text" and isinstance(content, str):
        return text_part(session, name, content)
    if kind == "thinking" and isinstance(content, str):
        return reasoning_part(session, name, content, start=at)
    call_id, tool = part.get("tool_call_id"), part.get("tool_name")
    if kind == "tool-call" and call_id and tool:
        args = part.get("args")
        raw = args if isinstance(args, str) else None
        return tool_call_part(session, name, tool, arguments_of(args), call_id=call_id, raw=raw)
    return _unknown(part)


def _model(theirs: Json) -> ModelRef | None:
    model = theirs.get("model_name")
    return ModelRef(str(theirs.get("provider_name") or FORM), model) if model else None


def _tokens(usage: object) -> TokenCounts | None:
    """Their counts overlap, ours are disjoint."""
    if not is_object(usage) or not usage.get("input_tokens"):
        return None
    count = {name: value for name, value in usage.items() if isinstance(value, int)}
    read, write = count.get("cache_read_tokens", 0), count.get("cache_write_tokens", 0)
    thought = count.get("output_reasoning_tokens", 0)
    return TokenCounts(
        input=max(count["input_tokens"] - read - write, 0),
        output=max(count.get("output_tokens", 0) - thought, 0),
        reasoning=thought,
        cache=CacheCounts(read=read, write=write),
    )


def _ms(time: object) -> int:
    """A time as palaver counts; not every part has one."""
    return (
        int(datetime.fromisoformat(time).timestamp() * 1000) if isinstance(time, str) else now_ms()
    )
