"""One factory for each type of part: the ids it belongs to, then what it says.

Every factory gives its part an id of its own and takes the optional fields by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from palaver.messages.files import FilePart
from palaver.messages.ids import new_id, now_ms
from palaver.messages.parts import (
    AgentPart,
    CompactionPart,
    Created,
    PatchPart,
    ReasoningPart,
    RetryPart,
    SnapshotPart,
    StepFinishPart,
    StepStartPart,
    SubtaskPart,
    TextPart,
    TextTime,
    TokenCounts,
    ToolCallPart,
    ToolPart,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from palaver.messages.toolstate import ToolState

__all__ = [
    "agent_part",
    "compaction_part",
    "file_part",
    "patch_part",
    "reasoning_part",
    "retry_part",
    "snapshot_part",
    "step_finish_part",
    "step_start_part",
    "subtask_part",
    "text_part",
    "tool_call_part",
    "tool_part",
]


def text_part(session_id: str, message_id: str, text: str, **fields: Any) -> TextPart:  # noqa: ANN401 - the part's own fields, here and below
    """Make a text part.

    >>> from palaver.messages import new_id
    >>> text_part(new_id(), new_id(), "hello").text
    'hello'
    """
    return TextPart(id=new_id(), session_id=session_id, message_id=message_id, text=text, **fields)


def reasoning_part(
    session_id: str,
    message_id: str,
    text: str,
    *,
    start: int | None = None,
    end: int | None = None,
    **fields: Any,  # noqa: ANN401
) -> ReasoningPart:
    """Make a reasoning part, begun now unless `start` says when.

    >>> from palaver.messages import new_id
    >>> reasoning_part(new_id(), new_id(), "hm", start=1).time.start
    1
    """
    time = TextTime(now_ms() if start is None else start, end)
    return ReasoningPart(
        id=new_id(), session_id=session_id, message_id=message_id, text=text, time=time, **fields
    )


def tool_call_part(
    session_id: str,
    message_id: str,
    tool: str,
    input: Mapping[str, Any],  # noqa: A002 - the design's name
    *,
    call_id: str | None = None,
    raw: str | None = None,
    **fields: Any,  # noqa: ANN401
) -> ToolCallPart:
    """Make a tool-call part; `raw` is the input as JSON unless the model wrote it otherwise.

    >>> from palaver.messages import new_id
    >>> tool_call_part(new_id(), new_id(), "search", {"q": "tea"}).raw
    '{"q":"tea"}'
    """
    part_id = new_id()
    return ToolCallPart(
        id=part_id,
        session_id=session_id,
        message_id=message_id,
        call_id=part_id if call_id is None else call_id,
        tool=tool,
        input=input,
        raw=_spelled(input) if raw is None else raw,
        **fields,
    )


def _spelled(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return ""  # no JSON: the part will refuse it, and say why


def tool_part(
    session_id: str,
    message_id: str,
    call_id: str,
    tool: str,
    state: ToolState,
    **fields: Any,  # noqa: ANN401
) -> ToolPart:
    """Make a tool part.

    >>> from palaver.messages import new_id, pending
    >>> tool_part(new_id(), new_id(), "call_1", "ls", pending({}, "")).state.status
    'pending'
    """
    return ToolPart(
        id=new_id(),
        session_id=session_id,
        message_id=message_id,
        call_id=call_id,
        tool=tool,
        state=state,
        **fields,
    )


def step_start_part(
    session_id: str, message_id: str, *, snapshot: str | None = None
) -> StepStartPart:
    """Make a step-start part.

    >>> from palaver.messages import new_id
    >>> step_start_part(new_id(), new_id()).type
    'step-start'
    """
    return StepStartPart(
        id=new_id(), session_id=session_id, message_id=message_id, snapshot=snapshot
    )


def step_finish_part(
    session_id: str,
    message_id: str,
    reason: str,
    cost: float | None,
    tokens: TokenCounts,
    **fields: Any,  # noqa: ANN401
) -> StepFinishPart:
    """Make a step-finish part; a cost of None means that nobody knows it.

    >>> from palaver.messages import CacheCounts, TokenCounts, new_id
    >>> tokens = TokenCounts(9, 3, 0, CacheCounts())
    >>> step_finish_part(new_id(), new_id(), "stop", None, tokens).reason
    'stop'
    """
    return StepFinishPart(
        id=new_id(),
        session_id=session_id,
        message_id=message_id,
        reason=reason,
        cost=cost,
        tokens=tokens,
        **fields,
    )


def file_part(session_id: str, message_id: str, mime: str, url: str, **fields: Any) -> FilePart:  # noqa: ANN401
    """Make a file part.

    >>> from palaver.messages import new_id
    >>> file_part(new_id(), new_id(), "image/png", "data:image/png;base64,").mime
    'image/png'
    """
    return FilePart(
        id=new_id(), session_id=session_id, message_id=message_id, mime=mime, url=url, **fields
    )


def compaction_part(
    session_id: str,
    message_id: str,
    *,
    auto: bool,
    **fields: Any,  # noqa: ANN401
) -> CompactionPart:
    """Make a compaction part.

    >>> from palaver.messages import new_id
    >>> compaction_part(new_id(), new_id(), auto=True).auto
    True
    """
    return CompactionPart(
        id=new_id(), session_id=session_id, message_id=message_id, auto=auto, **fields
    )


def retry_part(
    session_id: str,
    message_id: str,
    attempt: int,
    error: Mapping[str, Any],
    *,
    at: int | None = None,
) -> RetryPart:
    """Make a retry part.

    >>> from palaver.messages import new_id
    >>> retry_part(new_id(), new_id(), 2, {"name": "APIError"}).attempt
    2
    """
    return RetryPart(
        id=new_id(),
        session_id=session_id,
        message_id=message_id,
        attempt=attempt,
        error=error,
        time=Created(now_ms() if at is None else at),
    )


def subtask_part(
    session_id: str,
    message_id: str,
    prompt: str,
    description: str,
    agent: str,
    **fields: Any,  # noqa: ANN401
) -> SubtaskPart:
    """Make a subtask part.

    >>> from palaver.messages import new_id
    >>> subtask_part(new_id(), new_id(), "count them", "count", "counter").agent
    'counter'
    """
    return SubtaskPart(
        id=new_id(),
        session_id=session_id,
        message_id=message_id,
        prompt=prompt,
        description=description,
        agent=agent,
        **fields,
    )


def agent_part(session_id: str, message_id: str, name: str, **fields: Any) -> AgentPart:  # noqa: ANN401
    """Make an agent part.

    >>> from palaver.messages import new_id
    >>> agent_part(new_id(), new_id(), "reviewer").name
    'reviewer'
    """
    return AgentPart(id=new_id(), session_id=session_id, message_id=message_id, name=name, **fields)


def patch_part(session_id: str, message_id: str, hash: str, files: Iterable[str]) -> PatchPart:  # noqa: A002 - the design's name
    """Make a patch part.

    >>> from palaver.messages import new_id
    >>> patch_part(new_id(), new_id(), "9f2c", ["a.py"]).files
    ('a.py',)
    """
    return PatchPart(
        id=new_id(),
        session_id=session_id,
        message_id=message_id,
        hash=hash,
        files=tuple(files),
    )


def snapshot_part(session_id: str, message_id: str, snapshot: str) -> SnapshotPart:
    """Make a snapshot part.

    >>> from palaver.messages import new_id
    >>> snapshot_part(new_id(), new_id(), "9f2c").snapshot
    '9f2c'
    """
    return SnapshotPart(
        id=new_id(), session_id=session_id, message_id=message_id, snapshot=snapshot
    )
