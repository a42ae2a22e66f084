"""What an agent sees: the prompt, why it is what it is, and the one before it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from palaver.context.explaining import Comparison, Part, Reason
from palaver.server.bodies import Shape

__all__ = ["Explained", "Explanation", "Line", "Prompted", "Verdict"]


class Line(Shape, frozen=True):
    """A line of context, as S2 has it."""

    from_: str = field(name="from")
    to: str
    content: str


class Prompted(Shape, frozen=True):
    """What an agent would be shown now."""

    version: int
    context_messages: list[Line]
    current_message: str
    team_task: str | None
    max_bytes: int
    prompt: str
    system_flag: str | None


class Verdict(Shape, frozen=True):
    """What became of one message in reach, and the beginning of what it says."""

    id: str
    handle: str | None
    from_: str = field(name="from")
    to: str
    kept: bool
    reason: Reason
    bytes: int
    tokens: int
    text: Annotated[str, Meta(description="the first characters of it")]


class Explanation(Shape, frozen=True):
    """Why a prompt is what it is; `older` is how many messages lie further back."""

    agent: str
    agent_type: str
    window: int
    visibility: str
    max_bytes: int
    max_tokens: int | None
    bytes: int
    tokens: int
    parts: list[Part]
    entries: list[Verdict]
    older: int
    since: Comparison | None


class Explained(Prompted, frozen=True):
    """The same, with the reasons; `previous_prompt` is what the agent had before it last spoke."""

    explain: Explanation
    previous_prompt: str | None
