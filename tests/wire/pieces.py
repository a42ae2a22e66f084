"""Messages and requests that the tests of the formats are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver import wire
from palaver.messages import (
    Message,
    UnknownPart,
    assistant,
    complete,
    new_id,
    pending,
    reasoning_part,
    start,
    tool_call_part,
    tool_part,
)
from palaver.testing import check_request
from palaver.wire import Target
from tests.wire.sdk_types import check_types

if TYPE_CHECKING:
    from palaver.messages import FilePart, Part
    from palaver.testing.providers import FormatName
    from palaver.wire import Request

__all__ = [
    "ANYONE",
    "PDF",
    "PIXEL",
    "S",
    "block",
    "call",
    "calling",
    "judged",
    "part",
    "result",
    "rules",
    "thought",
]

S: Final = new_id()
ANYONE: Final = Target()
PDF: Final = "JVBERi0xLjQ="
PIXEL: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGA"
    "hKmMIQAAAABJRU5ErkJggg=="
)


def judged(
    form: FormatName,
    messages: tuple[Message, ...],
    target: Target,
    open_calls: tuple[str, ...] = (),
) -> Request:
    """Write, and have the result judged by the provider's rules and the SDK's types."""
    request = wire.to(form, messages, target, open_calls=open_calls)
    known = target.model is not None and target.model.provider_id == wire.FORMATS[form].provider
    named = {"model": target.model.model_id} if target.model is not None and known else {}
    problems = check_request(form, {**request.body, **named})
    assert [] == [str(p) for p in problems if not (target.prefill and p.rule == "last-role")]
    assert () == check_types(form, request.body)
    return request


def part(message: Message, index: int = 0) -> Any:  # noqa: ANN401 - a part of whatever type
    """One part of a message."""
    return message.parts[index]


def rules(request: Request) -> list[str]:
    """The rules of a request's notes."""
    return [note.rule for note in request.notes]


def call(call_id: str = "c1", tool: str = "ls", **fields: Any) -> Part:  # noqa: ANN401 - the part's own
    """A call."""
    return tool_call_part(S, S, tool, {"path": "/"}, call_id=call_id, **fields)


def calling(*parts: Part, **fields: Any) -> Message:  # noqa: ANN401 - the message's own
    """An answer with these parts; one call unless said otherwise."""
    return assistant(parts or (call(),), **fields)


def result(call_id: str = "c1", output: str = "a b", *files: FilePart) -> Message:
    """What a call gave."""
    done = complete(start(pending({}, "")), output, tool="ls", attachments=files)
    return Message("tool", (tool_part(S, S, call_id, "ls", done),))


def thought(stored: dict[str, Any], words: str = "hm") -> Part:
    """A thought, with what its provider needs to take it back."""
    return reasoning_part(S, S, words, metadata=stored)


def block(form: str, raw: dict[str, Any]) -> Part:
    """A block that palaver keeps without understanding it."""
    return UnknownPart({"type": form, "id": new_id(), "block": raw})
