"""The peer for values: the same shapes as pydantic models, the usual way.

Frozen, unknown fields refused, unions told apart by their `type` and `status`; types are checked,
palaver's rules are not. Validators written in Python would only slow the models down.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.alias_generators import to_camel

__all__ = ["MESSAGES"]


Role = Literal["system", "user", "assistant", "tool"]


def _alias(name: str) -> str:
    return f"{to_camel(name[:-3])}ID" if name.endswith("_id") else to_camel(name)


class Model(BaseModel):
    """What all models share: frozen, strict about names, camelCase outside."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=_alias, validate_by_name=True
    )


class Part(Model):
    """The ids of a part."""

    id: str
    session_id: str
    message_id: str


class TextTime(Model):
    """When a text began and ended."""

    start: int | None = None
    end: int | None = None


class Text(Part):
    """Text."""

    type: Literal["text"]
    text: str
    synthetic: bool | None = None
    ignored: bool | None = None
    time: TextTime | None = None
    metadata: dict[str, Any] = {}


class Reasoning(Part):
    """What the model thought."""

    type: Literal["reasoning"]
    text: str
    time: TextTime
    metadata: dict[str, Any] = {}


class ToolCall(Part):
    """A call the model asked for."""

    type: Literal["tool-call"]
    call_id: str
    tool: str
    input: dict[str, Any]
    raw: str
    metadata: dict[str, Any] = {}


class Start(Model):
    """When a call started."""

    start: int


class Span(Model):
    """When a call started and ended."""

    start: int
    end: int
    compacted: int | None = None


class File(Part):
    """A file."""

    type: Literal["file"]
    mime: str
    url: str
    filename: str | None = None


class Pending(Model):
    """Asked for."""

    status: Literal["pending"]
    input: dict[str, Any]
    raw: str


class Running(Model):
    """Under way."""

    status: Literal["running"]
    input: dict[str, Any]
    title: str | None = None
    metadata: dict[str, Any] = {}
    time: Start


class Completed(Model):
    """Done."""

    status: Literal["completed"]
    input: dict[str, Any]
    output: str
    title: str
    metadata: dict[str, Any]
    time: Span
    attachments: tuple[File, ...] | None = None


class Error(Model):
    """Failed."""

    status: Literal["error"]
    input: dict[str, Any]
    error: str
    metadata: dict[str, Any] = {}
    time: Span


class Tool(Part):
    """What became of a call."""

    type: Literal["tool"]
    call_id: str
    tool: str
    state: Annotated[Pending | Running | Completed | Error, Field(discriminator="status")]
    metadata: dict[str, Any] = {}


class StepStart(Part):
    """A model call begins."""

    type: Literal["step-start"]
    snapshot: str | None = None


class Cache(Model):
    """Tokens of the cache."""

    read: int = 0
    write: int = 0


class Tokens(Model):
    """Tokens of a model call."""

    input: int
    output: int
    reasoning: int
    cache: Cache
    total: int | None = None


class StepFinish(Part):
    """A model call is over."""

    type: Literal["step-finish"]
    reason: str
    tokens: Tokens
    cost: float | None = None
    cost_computed: bool = False
    snapshot: str | None = None


Parts = Annotated[
    Text | Reasoning | ToolCall | Tool | StepStart | StepFinish | File,
    Field(discriminator="type"),
]


class Message(Model):
    """One message."""

    role: Role
    content: str | tuple[Parts, ...]
    id: str
    timestamp: int
    metadata: dict[str, Any] = {}


MESSAGES: TypeAdapter[list[Message]] = TypeAdapter(list[Message])
"""Reads and writes a list of messages."""
