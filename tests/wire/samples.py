"""Items of OpenAI Responses, and the parts that they become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver import wire
from palaver.messages import (
    AssistantInfo,
    Message,
    ModelRef,
    assistant,
    new_id,
    reasoning_part,
    text_part,
    tool_call_part,
    tool_part,
)
from palaver.messages.tool_state import complete, pending, start
from palaver.testing import check_request
from palaver.wire import Target
from tests.wire.conversations import PIXEL
from tests.wire.sdk_types import check_types

if TYPE_CHECKING:
    from collections.abc import Iterable

    from palaver.messages import Part
    from palaver.wire import Note, ParsedConversation, Request

__all__ = [
    "CALL",
    "FORM",
    "HELLO",
    "MODEL",
    "RESULT",
    "SCREEN",
    "SEARCH",
    "SHOT",
    "SPOKEN",
    "THOUGHT",
    "A",
    "B",
    "M",
    "S",
    "answer",
    "call",
    "items",
    "parts",
    "read",
    "result",
    "rules",
    "text",
    "thought",
    "written",
]

FORM: Final = "openai-responses"
MODEL = ModelRef("openai", "gpt-5")
S, M = new_id(), new_id()
THOUGHT: dict[str, Any] = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}, {"type": "summary_text", "text": "so"}],
    "encrypted_content": "gAAAA",
}
SPOKEN: dict[str, Any] = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
}
CALL: dict[str, Any] = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "search",
    "arguments": '{ "q" : "tea" }',
}
RESULT: dict[str, Any] = {"type": "function_call_output", "call_id": "call_1", "output": "9"}
SEARCH: dict[str, Any] = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "tea"},
}
SCREEN: dict[str, Any] = {
    "type": "computer_call",
    "id": "cu_1",
    "call_id": "c9",
    "status": "completed",
    "pending_safety_checks": [],
    "action": {"type": "screenshot"},
}
SHOT: dict[str, Any] = {
    "type": "computer_call_output",
    "call_id": "c9",
    "output": {"type": "computer_screenshot", "image_url": PIXEL},
}
HELLO: dict[str, Any] = {"role": "user", "content": "Hello"}
A: dict[str, Any] = {"role": "assistant", "content": "a"}
B: dict[str, Any] = {"role": "assistant", "content": "b"}


def written(talk: Iterable[Message], target: Target | None = None) -> Request:
    """What goes out; it must be valid."""
    request = wire.to(FORM, talk, target or Target())
    assert () == check_request(FORM, request.body)
    assert () == check_types(FORM, request.body)
    return request


def items(talk: Iterable[Message], target: Target | None = None) -> list[Any]:
    """The items that go out."""
    return written(talk, target).items


def read(given: object, **more: Any) -> ParsedConversation:  # noqa: ANN401 - JSON
    """What is read, which must give the very same again."""
    assert () == check_request(FORM, {"input": given, **more})
    parsed = wire.from_(FORM, {"input": given, **more})
    named = more.get("model")
    model = ModelRef("openai", named) if named else None
    request = wire.to(FORM, parsed.messages, Target(model))
    head = {key: more[key] for key in ("instructions",) if key in more}
    assert {**head, "input": given} == request.body
    assert () == request.notes
    return parsed


def parts(message: Message) -> list[Any]:
    """The parts of a message, of whatever kinds they are."""
    return list(message.parts)


def rules(notes: Iterable[Note]) -> list[str]:
    """The rules that notes are about."""
    return [note.rule for note in notes]


def answer(*content: Part, model: ModelRef | None = MODEL) -> Message:
    """An answer of a model."""
    return assistant(content, info=AssistantInfo(model=model))


def text(words: str, **stored: Any) -> Part:  # noqa: ANN401 - JSON
    """A text, with what it keeps of OpenAI's."""
    return text_part(S, M, words, metadata={"openai": stored} if stored else {})


def thought(words: str, **stored: Any) -> Part:  # noqa: ANN401 - JSON
    """A thought, with what it keeps of OpenAI's."""
    return reasoning_part(S, M, words, metadata={"openai": stored})


def call(call_id: str = "call_1", **stored: Any) -> Part:  # noqa: ANN401 - JSON
    """A call, with what it keeps of OpenAI's."""
    metadata = {"openai": stored} if stored else {}
    return tool_call_part(S, M, "search", {}, call_id=call_id, metadata=metadata)


def result(call_id: str = "call_1", output: str = "9", files: Iterable[Any] = ()) -> Message:
    """A result."""
    state: Any = complete(start(pending({}, "")), output, tool="search", attachments=files)
    return Message("tool", (tool_part(S, M, call_id, "search", state),))
