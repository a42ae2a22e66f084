"""Messages as Pydantic AI's JSON: a part for each of a request's messages, an answer as a whole.

This is how palaver says it. What Pydantic AI said beyond that is kept in a message's metadata, as
the difference to this, with a fingerprint of it: an edited message has another one, and then the
difference is not used.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from palaver.messages.files import FilePart
from palaver.messages.parts import ReasoningPart, TextPart, ToolCallPart, ToolPart, UnknownPart
from palaver.messages.toolstate import ToolCompleted, ToolError
from palaver.wire.memory import changed, changes, fingerprint
from palaver.wire.mending import INTERRUPTED
from palaver.wire.pen import CLEARED, block_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.messages.message import Message
    from palaver.messages.parts import Part

__all__ = ["FORM", "KEY", "Json", "difference", "parts_of", "response_of"]

Json: TypeAlias = dict[str, Any]

FORM: Final = "pydantic-ai"
"""The type of a part that palaver keeps without understanding it."""
KEY: Final = "pydantic_ai"
"""Where a message's metadata keeps what Pydantic AI said beyond it."""


def parts_of(message: Message) -> list[Json]:
    """The parts of a request that a message gives: as they were, or as it was edited.

    >>> from palaver.messages import user
    >>> parts_of(user("Tea?", timestamp=0))
    [{'content': 'Tea?', 'timestamp': '1970-01-01T00:00:00.000000Z', 'part_kind': 'user-prompt'}]
    """
    return [part for part in _recalled(list(_parts(message)), message) if isinstance(part, dict)]


def response_of(message: Message) -> Json:
    """An answer: as it was, or as it was edited."""
    ours = _response(message)
    found = _recalled(ours, message)
    return found if isinstance(found, dict) and found.get("kind") == "response" else ours


def difference(message: Message, theirs: object) -> str | None:
    """What must be kept of Pydantic AI's JSON beside a message; None where there is nothing."""
    ours = _response(message) if message.role == "assistant" else list(_parts(message))
    steps = changes(ours, theirs)
    return f"{fingerprint(ours)} {msgspec.json.encode(steps).decode()}" if steps else None


def _recalled(ours: Any, message: Message) -> Any:  # noqa: ANN401 - JSON
    kept = message.metadata.get(KEY)
    if not isinstance(kept, str):
        return ours
    then, _, steps = kept.partition(" ")
    try:
        found = changed(ours, msgspec.json.decode(steps)) if then == fingerprint(ours) else None
    except msgspec.DecodeError:
        found = None
    return found if type(found) is type(ours) else ours


# ── in palaver's own words ──────────────────────────────────────────────────────────────────────


def _parts(message: Message) -> Iterator[Json]:
    content, at = message.content, _time(message.timestamp)
    if message.role == "tool":
        yield from (_returned(part, at) for part in message.parts if type(part) is ToolPart)
    elif message.role == "system" and (text := message.text):
        yield {"content": text, "timestamp": at, "part_kind": "system-prompt"}
    elif isinstance(content, str):
        yield {"content": content, "timestamp": at, "part_kind": "user-prompt"}
    elif whole := [block for part in content if "part_kind" in (block := _block(part))]:
        yield from whole
    elif said := [_said(part) for part in content]:
        yield {"content": said, "timestamp": at, "part_kind": "user-prompt"}


def _block(part: Part) -> Json:
    """What palaver keeps of Pydantic AI without understanding it."""
    return block_of(part) if type(part) is UnknownPart and part.type == FORM else {}


def _said(part: Part) -> Any:  # noqa: ANN401 - text or JSON
    """What a user may say: text, a file, something unknown."""
    if type(part) is FilePart:
        return _file(part)
    return _block(part) or str(getattr(part, "text", ""))


def _file(part: FilePart) -> Json:
    kind = part.mime.partition("/")[0]
    if part.url.startswith("data:"):
        data = part.url.partition(",")[2]
        return {"data": data, "media_type": part.mime, "kind": "binary"}
    named = kind if kind in ("image", "audio", "video") else "document"
    return {"url": part.url, "media_type": part.mime, "kind": f"{named}-url"}


def _returned(part: ToolPart, at: str) -> Json:
    state = part.state
    if type(state) is ToolCompleted:
        text, outcome = state.output if state.time.compacted is None else CLEARED, "success"
    else:
        text, outcome = state.error if type(state) is ToolError else INTERRUPTED, "failed"
    return {
        "tool_name": part.tool, "content": text, "tool_call_id": part.call_id, "timestamp": at,
        "outcome": outcome, "part_kind": "tool-return",
    }  # fmt: skip


def _response(message: Message) -> Json:
    content = message.content
    if isinstance(content, str):
        parts = [{"content": content, "part_kind": "text"}] if content else []
    else:
        parts = [json for part in content if (json := _answered(part))]
    return {"parts": parts, "timestamp": _time(message.timestamp), "kind": "response"}


def _answered(part: Part) -> Json | None:
    """A part of an answer."""
    if type(part) is TextPart:
        return {"content": part.text, "part_kind": "text"}
    if type(part) is ReasoningPart:
        return {"content": part.text, "part_kind": "thinking"}
    if type(part) is ToolCallPart:
        spelled = msgspec.json.encode(part.input).decode()
        args: Any = dict(part.input) if part.raw in ("", spelled) else part.raw
        return {
            "tool_name": part.tool, "args": args, "tool_call_id": part.call_id,
            "part_kind": "tool-call",
        }  # fmt: skip
    return _block(part) or None


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
