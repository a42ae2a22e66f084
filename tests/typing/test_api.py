"""What the type checkers know of the public API: both read this file, and pytest runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_type

from palaver import Message as TopMessage
from palaver.conversation import Approve, Decision
from palaver.messages import (
    AssistantInfo,
    FilePart,
    Message,
    Part,
    ReasoningPart,
    Role,
    Routing,
    Speaker,
    TextPart,
    TokenCounts,
    ToolCallPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    ToolPending,
    ToolRunning,
    ToolState,
    UnknownPart,
    UserInfo,
    Validation,
    WithParts,
    complete,
    dump,
    fail,
    fold,
    new_id,
    parse_message,
    parse_messages,
    parse_part,
    pending,
    start,
    text_part,
    tool_call_part,
    unfold,
    user,
    validate,
)
from palaver.messages.codec import to_content
from palaver.messages.foreign import Export, parse_export
from palaver.messages.parts import (
    StepFinishPart,
    is_file_part,
    is_reasoning_part,
    is_step_finish_part,
    is_text_part,
    is_tool_call_part,
    is_tool_part,
    is_unknown_part,
)
from palaver.messages.tool_state import expire, states_between
from palaver.messages.turns import Unfolded
from palaver.messages.validation import try_parse


def guards_narrow(part: Part) -> None:
    """A guard tells the type checker what the part is, and what it is not."""
    if is_text_part(part):
        assert_type(part, TextPart)
    elif is_reasoning_part(part):
        assert_type(part, ReasoningPart)
    elif is_tool_call_part(part):
        assert_type(part, ToolCallPart)
    elif is_tool_part(part):
        assert_type(part, ToolPart)
        assert_type(part.state, ToolPending | ToolRunning | ToolCompleted | ToolError)
    elif is_step_finish_part(part):
        assert_type(part, StepFinishPart)
        assert_type(part.tokens, TokenCounts)
    elif is_file_part(part):
        assert_type(part, FilePart)
    elif is_unknown_part(part):
        assert_type(part, UnknownPart)
        assert_type(part.raw, Mapping[str, Any])


def messages_have_types(message: Message) -> None:
    """The fields of a message."""
    assert_type(message.role, Role)
    assert_type(message.content, str | tuple[Part, ...])
    assert_type(message.parts, tuple[Part, ...])
    assert_type(message.text, str)
    assert_type(message.metadata, Mapping[str, Any])
    assert_type(message.speaker, Speaker | None)
    assert_type(message.routing, Routing | None)
    assert_type(message.info, UserInfo | AssistantInfo | None)
    assert_type(message.timestamp, int)


def states_have_types(state: ToolState) -> None:
    """What each transition gives."""
    assert_type(pending({}, ""), ToolPending)
    running = start(state)
    assert_type(running, ToolRunning)
    assert_type(complete(running, "out", tool="t"), ToolCompleted | ToolError)
    assert_type(fail(running, "no"), ToolError)
    assert_type(expire(running, limit_ms=1), ToolState)
    assert_type(states_between(state, running), tuple[ToolState, ...])


def readers_have_types() -> None:
    """What each reader and writer gives."""
    session, message = new_id(), user("hi")
    assert_type(parse_message(dump(message)), Message)
    assert_type(parse_messages(dump([message])), list[Message])
    part = text_part(session, session, "hi")
    assert_type(part, TextPart)
    assert_type(tool_call_part(session, session, "t", {}), ToolCallPart)
    assert_type(parse_part(dump(part)), Part)
    assert_type(try_parse(dump(part)), Part | None)
    assert_type(fold([message]), tuple[WithParts, ...])
    assert_type(unfold(fold([message])), Unfolded)
    assert_type(parse_export([]), Export)
    assert_type(validate(message), Validation)
    assert_type(to_content(message), tuple[str | list[dict[str, Any]], tuple[Part, ...]])
    assert_type(user([part]), TopMessage)


def test_the_typed_calls_run() -> None:
    session = new_id()
    guards_narrow(text_part(session, session, "hi"))
    messages_have_types(user("hi"))
    states_have_types(pending({}, ""))
    readers_have_types()


def test_an_approver_has_a_type() -> None:
    def careful(call: ToolCallPart) -> Decision:
        return Decision("deny", reason=f"{call.tool} is not allowed")

    approve: Approve = careful
    call = tool_call_part(new_id(), new_id(), "pay", {})
    assert Decision("deny", reason="pay is not allowed") == approve(call)
