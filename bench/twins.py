"""The floor for values: the same shapes as palaver's, as structs that check nothing.

Field by field and option by option what `palaver.messages` has, without its rules and without its
frozen dicts. What palaver takes longer than these is the price of its checks.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = ["BareMessage"]


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join("ID" if word == "id" else word.capitalize() for word in rest)


class _Base(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True,
            rename=_json_name, forbid_unknown_fields=True):  # fmt: skip
    id: str
    session_id: str
    message_id: str


class _TextTime(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    start: int | None = None
    end: int | None = None


class _Text(_Base, frozen=True, kw_only=True, tag="text"):
    text: str
    synthetic: bool | None = None
    ignored: bool | None = None
    time: _TextTime | None = None
    metadata: dict[str, Any] = {}


class _Reasoning(_Base, frozen=True, kw_only=True, tag="reasoning"):
    text: str
    time: _TextTime
    metadata: dict[str, Any] = {}


class _ToolCall(_Base, frozen=True, kw_only=True, tag="tool-call"):
    call_id: str
    tool: str
    input: dict[str, Any]
    raw: str
    metadata: dict[str, Any] = {}


class _Start(msgspec.Struct, frozen=True, gc=False):
    start: int


class _Span(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    start: int
    end: int
    compacted: int | None = None


class _State(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True,
             tag_field="status", rename=_json_name, forbid_unknown_fields=True):  # fmt: skip
    input: dict[str, Any]


class _Pending(_State, frozen=True, kw_only=True, tag="pending"):
    raw: str


class _Running(_State, frozen=True, kw_only=True, tag="running"):
    title: str | None = None
    metadata: dict[str, Any] = {}
    time: _Start


class _Completed(_State, frozen=True, kw_only=True, tag="completed"):
    output: str
    title: str
    metadata: dict[str, Any]
    time: _Span
    attachments: tuple[_File, ...] | msgspec.UnsetType = msgspec.UNSET


class _Error(_State, frozen=True, kw_only=True, tag="error"):
    error: str
    metadata: dict[str, Any] = {}
    time: _Span


class _Tool(_Base, frozen=True, kw_only=True, tag="tool"):
    call_id: str
    tool: str
    state: _Pending | _Running | _Completed | _Error
    metadata: dict[str, Any] = {}


class _StepStart(_Base, frozen=True, kw_only=True, tag="step-start"):
    snapshot: str | None = None


class _Cache(msgspec.Struct, frozen=True, gc=False):
    read: int = 0
    write: int = 0


class _Tokens(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    input: int
    output: int
    reasoning: int
    cache: _Cache
    total: int | None = None


class _StepFinish(_Base, frozen=True, kw_only=True, tag="step-finish"):
    reason: str
    tokens: _Tokens
    cost: float | None = None
    cost_computed: bool = False
    snapshot: str | None = None


class _File(_Base, frozen=True, kw_only=True, tag="file"):
    mime: str
    url: str
    filename: str | None = None


class BareMessage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename=_json_name,
                  forbid_unknown_fields=True):  # fmt: skip
    """A message that nobody has checked."""

    role: Literal["system", "user", "assistant", "tool"]
    content: (
        str | tuple[_Text | _Reasoning | _ToolCall | _Tool | _StepStart | _StepFinish | _File, ...]
    )
    id: str
    timestamp: int
    metadata: dict[str, Any] = {}
