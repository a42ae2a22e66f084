"""A part of every type as JSON, with the ids that it needs."""

from __future__ import annotations

from typing import Any

from palaver.messages import (
    CacheCounts,
    TokenCounts,
)

SESSION = "0190163d-8694-739b-aea5-966c26f8ad91"
MESSAGE = "0190163d-8694-739b-aea5-966c26f8ad92"
IDS = {"id": "p1", "sessionID": SESSION, "messageID": MESSAGE}
TEXT: dict[str, Any] = {"type": "text", **IDS, "text": "hi"}
TOKENS = TokenCounts(9, 3, 1, CacheCounts(4, 2))
JSON_TOKENS = {"input": 9, "output": 3, "reasoning": 1, "cache": {"read": 4, "write": 2}}

JSON_PARTS: dict[str, dict[str, Any]] = {
    "text": {
        "text": "hi",
        "synthetic": True,
        "ignored": False,
        "time": {"start": 1, "end": 2},
        "metadata": {"a": [1]},
    },
    "reasoning": {"text": "hm", "time": {"start": 1, "end": 2}, "metadata": {"signature": "s"}},
    "tool-call": {"callID": "c1", "tool": "ls", "input": {"path": "."}, "raw": '{"path": "."}'},
    "tool": {
        "callID": "c1",
        "tool": "ls",
        "state": {
            "status": "completed",
            "input": {"path": "."},
            "output": "a.py",
            "title": "ls",
            "metadata": {},
            "time": {"start": 1, "end": 2, "compacted": 3},
            "attachments": [{"type": "file", **IDS, "mime": "image/png", "url": "data:,"}],
        },
    },
    "step-start": {"snapshot": "9f2c"},
    "step-finish": {"reason": "stop", "cost": 0.5, "tokens": JSON_TOKENS, "snapshot": "9f2c"},
    "file": {
        "mime": "text/x-python",
        "filename": "a.py",
        "url": "file:///a.py",
        "source": {
            "type": "file",
            "path": "a.py",
            "text": {"value": "@a.py", "start": 0, "end": 5},
        },
    },
    "compaction": {"auto": True, "overflow": False, "tail_start_id": "m7"},
    "retry": {"attempt": 2, "error": {"name": "APIError"}, "time": {"created": 5}},
    "subtask": {
        "prompt": "count",
        "description": "count them",
        "agent": "counter",
        "model": {"providerID": "p", "modelID": "m"},
        "command": "/count",
    },
    "agent": {"name": "reviewer", "source": {"value": "@reviewer", "start": 0, "end": 9}},
    "patch": {"hash": "9f2c", "files": ["a.py", "b.py"]},
    "snapshot": {"snapshot": "9f2c"},
}
"""Every part type with every field, as JSON."""


def part_json(kind: str) -> dict[str, Any]:
    return {"type": kind, **IDS, **JSON_PARTS[kind]}
