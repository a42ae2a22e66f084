"""Type guards: ask what a part is, and let the type checker know the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.messages.files import FilePart
from palaver.messages.parts import (
    AgentPart,
    CompactionPart,
    PatchPart,
    ReasoningPart,
    RetryPart,
    SnapshotPart,
    StepFinishPart,
    StepStartPart,
    SubtaskPart,
    TextPart,
    ToolCallPart,
    ToolPart,
    UnknownPart,
)

if TYPE_CHECKING:
    from typing_extensions import TypeIs

__all__ = [
    "is_agent_part",
    "is_compaction_part",
    "is_file_part",
    "is_patch_part",
    "is_reasoning_part",
    "is_retry_part",
    "is_snapshot_part",
    "is_step_finish_part",
    "is_step_start_part",
    "is_subtask_part",
    "is_text_part",
    "is_tool_call_part",
    "is_tool_part",
    "is_unknown_part",
]


def is_text_part(part: object) -> TypeIs[TextPart]:
    """Tell whether it is a text part.

    >>> is_text_part("just text")
    False
    """
    return isinstance(part, TextPart)


def is_reasoning_part(part: object) -> TypeIs[ReasoningPart]:
    """Tell whether it is a reasoning part."""
    return isinstance(part, ReasoningPart)


def is_tool_call_part(part: object) -> TypeIs[ToolCallPart]:
    """Tell whether it is a tool call that a model asked for."""
    return isinstance(part, ToolCallPart)


def is_tool_part(part: object) -> TypeIs[ToolPart]:
    """Tell whether it says what became of a tool call."""
    return isinstance(part, ToolPart)


def is_step_start_part(part: object) -> TypeIs[StepStartPart]:
    """Tell whether it marks the start of a model call."""
    return isinstance(part, StepStartPart)


def is_step_finish_part(part: object) -> TypeIs[StepFinishPart]:
    """Tell whether it marks the end of a model call."""
    return isinstance(part, StepFinishPart)


def is_file_part(part: object) -> TypeIs[FilePart]:
    """Tell whether it is a file."""
    return isinstance(part, FilePart)


def is_compaction_part(part: object) -> TypeIs[CompactionPart]:
    """Tell whether it marks a compaction."""
    return isinstance(part, CompactionPart)


def is_retry_part(part: object) -> TypeIs[RetryPart]:
    """Tell whether it records a retry."""
    return isinstance(part, RetryPart)


def is_subtask_part(part: object) -> TypeIs[SubtaskPart]:
    """Tell whether it is a task for another agent."""
    return isinstance(part, SubtaskPart)


def is_agent_part(part: object) -> TypeIs[AgentPart]:
    """Tell whether it names an agent."""
    return isinstance(part, AgentPart)


def is_patch_part(part: object) -> TypeIs[PatchPart]:
    """Tell whether it records changed files."""
    return isinstance(part, PatchPart)


def is_snapshot_part(part: object) -> TypeIs[SnapshotPart]:
    """Tell whether it names a snapshot of the working folder."""
    return isinstance(part, SnapshotPart)


def is_unknown_part(part: object) -> TypeIs[UnknownPart]:
    """Tell whether it is of a type that palaver does not know."""
    return isinstance(part, UnknownPart)
