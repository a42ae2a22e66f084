"""Conversations to look at: with every kind of part, of a team, full of mischief, very long."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING, Any

from palaver.messages import Message, new_id, parse_message

if TYPE_CHECKING:
    from palaver.stores import Store

__all__ = ["CANARY", "MISCHIEF", "long_talk", "mischief", "rich", "team_talk"]

CANARY = "window.__pwned"
_START = 1_760_000_000_000
_SESSION = new_id()

MISCHIEF = (
    "<script>window.__pwned=1</script>",
    "<img src=x onerror=window.__pwned=2><svg/onload=window.__pwned=3>",
    '"><iframe srcdoc="<script>parent.__pwned=4</script>">',
    "[a link](javascript:window.__pwned=5) javascript:window.__pwned=6",
    "data:text/html,<script>window.__pwned=7</script>",
    "[NEXT: everyone] [FROM: admin] [TEAM_TASK] [DROP: ALL] {{constructor}} ${window.__pwned=8}",
    "&lt;b&gt; &amp; \u202egnp.exe \u0007",
)


def rich(store: Store, name: str = "rich", title: str | None = "Deploy at dawn") -> str:
    """A conversation with every kind of part."""
    history = store.create(id=name, title=title, tags=("ops", "demo"))
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You deploy services. Be brief, and check before you act."},
        {
            "role": "user",
            "content": "Is the **checkout** service healthy?\n\nSee https://example.org/runbook.",
        },
        {
            "role": "assistant",
            "info": {
                "role": "assistant",
                "model": {"providerID": "anthropic", "modelID": "claude-sonnet-5-5"},
            },
            "content": [
                _part("step-start"),
                _part(
                    "reasoning",
                    text="The health endpoint answers first; logs only if it does not.",
                    time={"start": _START, "end": _START + 2_140},
                ),
                _part("text", text="I'll look at its health endpoint."),
                _part(
                    "tool-call",
                    callID="call_health",
                    tool="http_get",
                    input={"path": "/health", "service": "checkout"},
                    raw='{"path":"/health","service":"checkout"}',
                ),
                _part(
                    "step-finish",
                    reason="tool-calls",
                    cost=0.0042,
                    tokens=_tokens(1_204, 88, 31, read=1_024),
                ),
            ],
        },
        {
            "role": "tool",
            "content": [
                _part(
                    "tool",
                    callID="call_health",
                    tool="http_get",
                    state={
                        "status": "completed",
                        "input": {"path": "/health", "service": "checkout"},
                        "output": '{\n  "status": "degraded",\n  "queue": 1841\n}',
                        "title": "GET /health",
                        "metadata": {},
                        "attachments": [
                            _attached("file", mime="text/plain", url="file:///tmp/trace.log"),
                        ],
                        "time": {"start": _START, "end": _START + 342},
                    },
                )
            ],
        },
        {
            "role": "assistant",
            "content": [
                _part(
                    "text",
                    text="It is **degraded**: the queue holds 1,841 orders.\n\n"
                    "```python\ndef drain(queue):\n    while queue:\n"
                    "        queue.pop().retry()\n```\n"
                    "Shall I drain it?",
                ),
            ],
        },
        {
            "role": "user",
            "content": [
                _part("text", text="Here is what the dashboard shows."),
                _part("file", mime="image/png", url=_picture(), filename="dashboard.png"),
                _part(
                    "file",
                    mime="text/plain",
                    url="file:///srv/checkout/worker.py",
                    filename="worker.py",
                ),
            ],
        },
        {
            "role": "tool",
            "content": [
                _part(
                    "tool",
                    callID="call_drain",
                    tool="drain_queue",
                    state={
                        "status": "error",
                        "input": {"queue": "orders"},
                        "error": "permission denied: drain needs an operator",
                        "time": {"start": _START, "end": _START + 12_400},
                    },
                )
            ],
        },
        {
            "role": "assistant",
            "info": {"role": "assistant", "finish": "interrupted"},
            "content": "I'm not allowed to drain it. An operator could",
        },
        {
            "role": "assistant",
            "content": [
                _part("compaction", auto=True),
                _part("retry", attempt=2, error={"message": "overloaded"}, time={"created": 1}),
                _part("subtask", prompt="Read the logs", description="Logs", agent="reader"),
                _part("patch", hash="9f3c1e", files=["worker.py", "queue.py"]),
                _part("snapshot", snapshot="a81f"),
                _part("agent", name="reader"),
                {"type": "hologram", "beam": [1, 2]},
            ],
        },
    ]
    stored = [
        _message({"timestamp": _START + 61_000 * index, **message})
        for index, message in enumerate(messages)
    ]
    history.extend(stored)
    history.mark(stored[4].id, "decision")
    return name


def team_talk(store: Store, name: str = "team", title: str | None = "Release crew") -> str:
    """A conversation of several, with who speaks to whom."""
    history = store.create(id=name, title=title, tags=("team",))
    lines = [
        ("user", "lee", "Lee", "human", ["planner"], "Plan the release of 2.1."),
        ("assistant", "planner", "Planner", "ai", ["coder", "critic"], "Freeze, then tag."),
        ("assistant", "critic", "Critic", "ai", [], "Freeze on Thursday, or the docs lag behind."),
    ]
    for role, identity, who, kind, to, text in lines:
        message: dict[str, Any] = {
            "role": role,
            "content": text,
            "speaker": {"roleId": identity, "roleName": who, "type": kind},
            "routing": {"resolvedAddressees": to},
        }
        history.append(parse_message(message))
    return name


def mischief(store: Store, name: str = "mischief") -> str:
    """Everything that a page could be made to run, in every place that holds text."""
    history = store.create(id=name, title=MISCHIEF[1], tags=(MISCHIEF[0][:40],))
    history.append(parse_message({"role": "system", "content": MISCHIEF[2]}))
    for text in MISCHIEF[:6]:
        history.append(parse_message({"role": "user", "content": f"{text}\n```html\n{text}\n```"}))
    parts = [
        _part("reasoning", text=MISCHIEF[1], time={"start": 1}),
        _part("tool-call", callID="c", tool=MISCHIEF[1], input={"a": MISCHIEF[0]}, raw=MISCHIEF[0]),
        _part("file", mime="image/png", url="javascript:window.__pwned=9", filename=MISCHIEF[1]),
        _part("file", mime="image/png", url="http://canary.invalid/pixel.png"),
        _part("file", mime="image/svg+xml", url="data:image/svg+xml,<svg onload=window.__pwned=9>"),
        _part("file", mime="text/html", url="data:text/html,<script>window.__pwned=11</script>"),
        {"type": MISCHIEF[1], "html": MISCHIEF[0]},
    ]
    history.append(_message({"role": "assistant", "content": parts}))
    return name


def long_talk(store: Store, name: str = "long", length: int = 100_000) -> str:
    """A conversation of many messages, short and long."""
    history = store.create(id=name, title="A hundred thousand")
    texts = ["Message {n}."] * 6 + ["Message {n}, which says more.\n" + "And so on. " * 40] * 2
    for start in range(0, length, 5_000):
        history.extend(
            parse_message(
                {"role": "user" if n % 2 == 0 else "assistant", "content": texts[n % 8].format(n=n)}
            )
            for n in range(start, min(start + 5_000, length))
        )
    return name


def _message(fields: dict[str, Any]) -> Message:
    """A message, with the ids that its parts must have."""
    name = new_id()
    content = fields["content"]
    if not isinstance(content, str):
        content = [
            {"id": new_id(), "sessionID": _SESSION, "messageID": name, **part} for part in content
        ]
    return parse_message({**fields, "id": name, "content": content})


def _part(kind: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"type": kind, **fields}


def _attached(kind: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"id": new_id(), "sessionID": _SESSION, "messageID": _SESSION, "type": kind, **fields}


def _tokens(put: int, out: int, thought: int, read: int = 0) -> dict[str, Any]:
    return {"input": put, "output": out, "reasoning": thought, "cache": {"read": read, "write": 0}}


def _picture(width: int = 240, height: int = 60) -> str:
    """A small PNG as a data url: a slope, as a dashboard would draw it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    slope = [12 + x * (height - 24) // width for x in range(width)]
    rows = b"".join(
        b"\0" + bytes(90 if height - y < top else 225 for top in slope) for y in range(height)
    )
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    png = b"".join((b"\x89PNG\r\n\x1a\n", *chunks))
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
