"""The peer that does the same work: the pydantic models, with palaver's rules declared on them.

Wherever pydantic can check a rule itself, in compiled code, it does: patterns, lengths and ranges.
Only what it has no words for is Python here too: freezing a JSON object, and unique part ids.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter, model_validator

from bench import models
from palaver.messages.limits import MAX_INT, MAX_NAME, MAX_TEXT, freeze_mapping

__all__ = ["MESSAGES"]

Uuid = Annotated[
    str, StringConstraints(pattern=r"^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$")
]
Name = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_NAME, pattern=r"^[^\p{C}\p{Zl}\p{Zp}]+$")
]
Prose = Annotated[str, StringConstraints(max_length=MAX_TEXT, pattern=r"^[^\x00]*$")]
Output = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00]*$")]
Whole = Annotated[int, Field(ge=0, le=MAX_INT)]
Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
NOTHING: Final[dict[str, Any]] = {}
Json = Annotated[dict[str, Any], AfterValidator(freeze_mapping)]


class _Part(models.Part):
    id: Name
    session_id: Uuid
    message_id: Uuid


class _Text(_Part, models.Text):
    text: Prose
    metadata: Json = NOTHING


class _Reasoning(_Part, models.Reasoning):
    text: Prose
    metadata: Json = NOTHING


class _ToolCall(_Part, models.ToolCall):
    call_id: Name
    tool: Name
    input: Json
    raw: Prose
    metadata: Json = NOTHING


class _Start(models.Start):
    start: Whole


class _Span(models.Span):
    start: Whole
    end: Whole
    compacted: Whole | None = None


class _File(_Part, models.File):
    mime: Prose
    url: Prose
    filename: Prose | None = None


class _Pending(models.Pending):
    input: Json
    raw: Prose


class _Running(models.Model):
    status: Literal["running"]
    input: Json
    title: Prose | None = None
    metadata: Json = NOTHING
    time: _Start


class _Completed(models.Model):
    status: Literal["completed"]
    input: Json
    output: Output
    title: Prose
    metadata: Json
    time: _Span
    attachments: tuple[_File, ...] | None = None


class _Error(models.Model):
    status: Literal["error"]
    input: Json
    error: Output
    metadata: Json = NOTHING
    time: _Span


class _Tool(_Part):
    type: Literal["tool"]
    call_id: Name
    tool: Name
    state: Annotated[_Pending | _Running | _Completed | _Error, Field(discriminator="status")]
    metadata: Json = NOTHING


class _StepStart(_Part, models.StepStart):
    pass


class _Cache(models.Cache):
    read: Whole = 0
    write: Whole = 0


class _Tokens(models.Model):
    input: Whole
    output: Whole
    reasoning: Whole
    cache: _Cache
    total: Whole | None = None


class _StepFinish(_Part):
    type: Literal["step-finish"]
    reason: Prose
    tokens: _Tokens
    cost: Price | None = None
    cost_computed: bool = False
    snapshot: Prose | None = None


_Parts = Annotated[
    _Text | _Reasoning | _ToolCall | _Tool | _StepStart | _StepFinish | _File,
    Field(discriminator="type"),
]


class _Message(models.Model):
    role: models.Role
    content: Prose | tuple[_Parts, ...]
    id: Name
    timestamp: Whole
    metadata: Json = NOTHING

    @model_validator(mode="after")
    def _ids_are_unique(self) -> _Message:
        if not isinstance(self.content, str):
            ids = {part.id for part in self.content}
            if len(ids) < len(self.content):
                msg = "an id stands twice"
                raise ValueError(msg)
        return self


MESSAGES: TypeAdapter[list[_Message]] = TypeAdapter(list[_Message])
"""Reads and writes a list of messages."""
