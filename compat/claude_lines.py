"""Lines of a transcript, as the `claude` program writes them: the shapes of a real session."""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_DNS, uuid5

__all__ = [
    "KEY",
    "SESSION",
    "aside",
    "attachment",
    "call",
    "ident",
    "result",
    "said",
    "session",
    "thought",
    "told",
]

SESSION = "5bcd14b5-b290-42de-a238-8e968185e195"
KEY: Any = {"project_key": "-work", "session_id": SESSION}

Line = dict[str, Any]


def ident(name: str) -> str:
    """The uuid of a line, by a short name."""
    return str(uuid5(NAMESPACE_DNS, name))


def _line(kind: str, name: str, parent: str | None, **fields: Any) -> Line:
    return {
        "parentUuid": None if parent is None else ident(parent),
        "isSidechain": False,
        "type": kind,
        "uuid": ident(name),
        "timestamp": "2026-11-15T15:03:42.274Z",
        "userType": "external",
        "entrypoint": "sdk-py",
        "cwd": "/work",
        "sessionId": SESSION,
        "version": "2.1.325",
        "gitBranch": "HEAD",
        **fields,
    }


def said(name: str, parent: str | None, text: object, **fields: Any) -> Line:
    """What the user said."""
    return _line("user", name, parent, message={"role": "user", "content": text}, **fields)


def answer(name: str, parent: str, block: Line, *, of: str, **fields: Any) -> Line:
    """One block of an answer: each is a line of its own."""
    message = {
        "id": of,
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [block],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 527, "output_tokens": 12, "cache_read_input_tokens": 0},
    }
    return _line("assistant", name, parent, message=message, requestId="req_1", **fields)


def told(name: str, parent: str, text: str, *, of: str = "msg_1") -> Line:
    """What the model said."""
    return answer(name, parent, {"type": "text", "text": text}, of=of)


def thought(name: str, parent: str, text: str, *, of: str = "msg_1") -> Line:
    """What the model thought."""
    block = {"type": "thinking", "thinking": text, "signature": f"signed {text}"}
    return answer(name, parent, block, of=of)


def call(name: str, parent: str, call_id: str, *, of: str = "msg_1", **given: Any) -> Line:
    """A call, with a field that palaver knows nothing of."""
    block = {"type": "tool_use", "id": call_id, "name": "weather", "input": given}
    return answer(name, parent, {**block, "caller": {"type": "direct"}}, of=of)


def result(name: str, parent: str, call_id: str, text: str, **fields: Any) -> Line:
    """What came of a call, as a tool of the SDK's gives it."""
    content = [{"type": "text", "text": text}]
    block = {"tool_use_id": call_id, "type": "tool_result", "content": content, **fields}
    more = {"toolUseResult": content, "sourceToolAssistantUUID": ident(parent)}
    return said(name, parent, [block], **more)


def attachment(name: str, parent: str, text: str) -> Line:
    """What the program put before the model."""
    rendered = [{"content": f"<system-reminder>{text}</system-reminder>"}]
    given = {"type": "environment", "text": text}
    return _line("attachment", name, parent, attachment=given, rendered=rendered)


def aside(kind: str, **fields: Any) -> Line:
    """Something about the session: it has no place in the chain."""
    return {"type": kind, "sessionId": SESSION, **fields}


def session() -> list[Line]:
    """A whole session: two turns, a tool, and everything that stands between."""
    return [
        aside("queue-operation", operation="enqueue", content="Weather in Oslo?"),
        said("ask", None, "Weather in Oslo?", promptId="p1", permissionMode="dontAsk"),
        attachment("env", "ask", "a Linux machine"),
        aside("tools-used", tools=["weather"]),
        thought("think", "env", "I should look."),
        told("look", "think", "Let me look."),
        call("call", "look", "toolu_1", city="Oslo"),
        result("fine", "call", "toolu_1", "Sunny in Oslo"),
        attachment("left", "fine", "many tokens left"),
        told("sunny", "left", "It is sunny in Oslo.", of="msg_2"),
        aside("ai-title", aiTitle="Weather in Oslo"),
        said("thanks", "sunny", "Thanks!"),
        told("bye", "thanks", "You are welcome.", of="msg_3"),
    ]
