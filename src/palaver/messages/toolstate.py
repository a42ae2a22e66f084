"""What became of a tool call: pending → running → completed | error.

States are values and transitions are pure functions: each takes a state and returns another.
Doing the same transition again with the same payload returns the state as it is (times are not
payload); with another payload it is `InvalidStateTransition`. Nothing else moves a state.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias, cast

from msgspec import UNSET, Struct, UnsetType, to_builtins
from msgspec.structs import force_setattr, replace

from palaver.errors import InvalidStateTransition, PartValidationError, ValidationError
from palaver.messages.files import FilePart
from palaver.messages.gate import (
    EMPTY,
    MAX_INT,
    check_text,
    check_time,
    freeze_mapping,
    is_list,
    is_object,
    is_plain,
    kind_of,
)
from palaver.messages.ids import now_ms
from palaver.messages.naming import json_name

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "NO_OUTPUT",
    "CompletedTime",
    "RunningTime",
    "Status",
    "ToolCompleted",
    "ToolError",
    "ToolPending",
    "ToolRunning",
    "ToolState",
    "ToolTime",
    "complete",
    "expire",
    "fail",
    "passage",
    "pending",
    "start",
]

NO_OUTPUT: Final = "(no output)"
"""What stands for an empty output, which is not allowed (BR-09); `rawOutput` keeps the rawness."""

Status: TypeAlias = Literal["pending", "running", "completed", "error"]
_NEXT: Final[dict[str, tuple[str, ...]]] = {
    "pending": ("running",),
    "running": ("completed", "error"),
    "completed": (),
    "error": (),
}
_log = logging.getLogger("palaver.messages")


class RunningTime(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """When a call started."""

    start: int


class ToolTime(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """When a call started and ended."""

    start: int
    end: int


class CompletedTime(Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """When a call started and ended, and when its output was cleared to save room."""

    start: int
    end: int
    compacted: int | None = None


class _State(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag_field="status",
             rename=json_name, forbid_unknown_fields=True):  # fmt: skip
    """What all four states have."""

    input: Mapping[str, Any]

    @property
    def status(self) -> Status:
        """The state's name."""
        return cast("Status", self.__struct_config__.tag)


class ToolPending(_State, frozen=True, kw_only=True, tag="pending"):
    """Asked for, not started. `raw` is what the model wrote, to the letter (BR-06)."""

    raw: str

    def __post_init__(self) -> None:
        """Check BR-06."""
        _freeze_field(self, "input", self.input)
        _checked(check_text, self.raw, "$.raw", "BR-06")


class ToolRunning(_State, frozen=True, kw_only=True, tag="running"):
    """Under way since `time.start` (BR-07)."""

    title: str | None = None
    metadata: Mapping[str, Any] = EMPTY
    time: RunningTime

    def __post_init__(self) -> None:
        """Check BR-07."""
        _freeze_field(self, "input", self.input)
        _freeze_field(self, "metadata", self.metadata)
        if self.title is not None:
            _checked(check_text, self.title, "$.title")
        _check_time(self, "BR-07", RunningTime)


class ToolCompleted(_State, frozen=True, kw_only=True, tag="completed"):
    """Done, with an output that is never empty (BR-09), at `time.end` (BR-08)."""

    output: str
    title: str
    metadata: Mapping[str, Any]
    time: CompletedTime
    attachments: tuple[FilePart, ...] | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Check BR-08 and BR-09."""
        _freeze_field(self, "input", self.input)
        _freeze_field(self, "metadata", self.metadata)
        if not (is_plain(self.title) and is_plain(self.output)):
            _checked(check_text, self.title, "$.title")
            _checked(check_text, self.output, "$.output")
        if not self.output:
            _refuse("must not be empty; complete() stores an empty one right", "$.output", "BR-09")
        _check_time(self, "BR-08", CompletedTime)
        if self.attachments is not UNSET:
            force_setattr(self, "attachments", _files(self.attachments))


class ToolError(_State, frozen=True, kw_only=True, tag="error"):
    """Failed, with a description (BR-10), at `time.end` (BR-08)."""

    error: str
    metadata: Mapping[str, Any] = EMPTY
    time: ToolTime

    def __post_init__(self) -> None:
        """Check BR-08 and BR-10."""
        _freeze_field(self, "input", self.input)
        _freeze_field(self, "metadata", self.metadata)
        _checked(check_text, self.error, "$.error")
        if not self.error.strip():
            _refuse("must say what went wrong", "$.error", "BR-10")
        _check_time(self, "BR-08", ToolTime)


ToolState: TypeAlias = ToolPending | ToolRunning | ToolCompleted | ToolError


def pending(input: Mapping[str, Any], raw: str) -> ToolPending:  # noqa: A002 - the design's name
    """A call that the model asked for.

    >>> pending({"q": "tea"}, '{"q": "tea"}').status
    'pending'
    """
    return ToolPending(input=input, raw=raw)


def start(
    state: ToolState,
    *,
    title: str | None = None,
    metadata: Mapping[str, Any] = EMPTY,
    at: int | None = None,
) -> ToolRunning:
    """Go from pending to running.

    >>> running = start(pending({"q": "tea"}, ""), at=1)
    >>> running.time.start, start(running) is running
    (1, True)
    """
    if isinstance(state, ToolPending):
        time = RunningTime(now_ms() if at is None else at)
        return ToolRunning(input=state.input, title=title, metadata=metadata, time=time)
    if isinstance(state, ToolRunning) and (title, metadata) in (
        (state.title, state.metadata),
        (None, EMPTY),
    ):
        return state
    return _invalid(state, "running")


def complete(
    state: ToolState,
    output: str,
    *,
    tool: str,
    title: str | None = None,
    metadata: Mapping[str, Any] = EMPTY,
    attachments: Iterable[FilePart] = (),
    at: int | None = None,
) -> ToolCompleted | ToolError:
    """Go from running to completed.

    The title is the one given, else the one it ran under, else the tool's name. An output that
    comes after the call timed out leaves it at error and is kept there as `lateResult`.

    >>> done = complete(start(pending({}, ""), at=1), "", tool="ls", at=2)
    >>> done.output, done.title, done.metadata["rawOutput"]
    ('(no output)', 'ls', '')
    """
    end = now_ms() if at is None else at
    kept = {"rawOutput": output} if not output else EMPTY
    files = tuple(attachments)
    if isinstance(state, ToolRunning):
        return ToolCompleted(
            input=state.input,
            output=output or NO_OUTPUT,
            title=title or state.title or tool,
            metadata={**state.metadata, **metadata, **kept},
            time=CompletedTime(state.time.start, max(end, state.time.start)),
            attachments=files or UNSET,
        )
    if isinstance(state, ToolCompleted):
        again = (output or NO_OUTPUT, title or state.title, {**state.metadata, **metadata, **kept})
        same_files = (files or UNSET) == state.attachments
        if same_files and again == (state.output, state.title, state.metadata):
            return state
    if isinstance(state, ToolError) and state.metadata.get("timedOut"):
        rest = {"title": title, "metadata": metadata, "attachments": to_builtins(files)}
        late = {"output": output, **{name: value for name, value in rest.items() if value}}
        return _keep_late(state, late, "completed", end)
    return _invalid(state, "completed")


def fail(
    state: ToolState,
    error: str,
    *,
    metadata: Mapping[str, Any] = EMPTY,
    at: int | None = None,
) -> ToolError:
    """Go to error: from running, or from pending by way of a running that `passage` spells out.

    >>> fail(start(pending({}, ""), at=1), "no such file", at=2).time.end
    2
    """
    end = now_ms() if at is None else at
    if isinstance(state, ToolPending):
        state = start(state, at=end)
    if isinstance(state, ToolRunning):
        return ToolError(
            input=state.input,
            error=error,
            metadata={**state.metadata, **metadata},
            time=ToolTime(state.time.start, max(end, state.time.start)),
        )
    if isinstance(state, ToolError):
        if (error, {**state.metadata, **metadata}) == (state.error, state.metadata):
            return state
        if state.metadata.get("timedOut"):
            return _keep_late(state, {"error": error}, "error", end)
    return _invalid(state, "error")


def expire(state: ToolState, *, limit_ms: int, at: int | None = None) -> ToolState:
    """Turn a call that has run past its limit into an error; any other state stays as it is.

    >>> expire(start(pending({}, ""), at=0), limit_ms=50, at=80).error
    'timed out after 50 ms'
    """
    now = now_ms() if at is None else at
    if isinstance(state, ToolRunning) and now - state.time.start >= limit_ms:
        return fail(state, f"timed out after {limit_ms} ms", metadata={"timedOut": True}, at=now)
    return state


def passage(before: ToolState, after: ToolState) -> tuple[ToolState, ...]:
    """The states to record on the way: pending → error goes through a running (BR-05).

    >>> first = pending({}, "")
    >>> [state.status for state in passage(first, fail(first, "no such tool"))]
    ['running', 'error']
    """
    if before == after:
        return ()
    if isinstance(before, ToolPending) and isinstance(after, ToolError):
        return start(before, at=after.time.start), after
    if after.status not in _NEXT[before.status] and not _is_late(before, after):
        _invalid(before, after.status)
    return (after,)


def _is_late(before: ToolState, after: ToolState) -> bool:
    return (
        isinstance(before, ToolError)
        and isinstance(after, ToolError)
        and after.metadata.get("lateResult") is not None
        and before.error == after.error
    )


def _keep_late(state: ToolError, result: dict[str, Any], status: str, at: int) -> ToolError:
    known = state.metadata.get("lateResult")
    if known is not None:
        if is_object(known) and {**known, **result} == known:
            return state
        return _invalid(state, status)
    return replace(state, metadata={**state.metadata, "lateResult": {**result, "at": at}})


def _files(attachments: object) -> tuple[FilePart, ...]:
    if not is_list(attachments):
        _refuse(f"must be a list, not {kind_of(attachments)}", "$.attachments", "schema")
    for index, item in enumerate(attachments):
        if not isinstance(item, FilePart):
            detail = f"must be a file part, not {kind_of(item)}"
            _refuse(detail, f"$.attachments[{index}]", "schema")
    return tuple(attachments)


def _invalid(state: ToolState, attempted: str) -> NoReturn:
    error = InvalidStateTransition(state.status, attempted, _NEXT[state.status])
    _log.error("%s", error)
    raise error


def _refuse(detail: str, path: str, rule: str) -> NoReturn:
    error = PartValidationError(detail, path=path, rule=rule, part="tool")
    _log.error("%s", error)
    raise error


def _checked(check: Any, value: object, path: str, rule: str | None = None) -> None:  # noqa: ANN401 - a gate function
    try:
        check(value, path)
    except ValidationError as error:
        _refuse(error.detail, error.path, rule if rule and error.rule == "schema" else error.rule)


def _freeze_field(state: _State, name: str, value: object) -> None:
    try:
        frozen = freeze_mapping(value, f"$.{name}")
    except ValidationError as error:
        _refuse(error.detail, error.path, error.rule)
    if frozen is not value:
        force_setattr(state, name, frozen)


def _check_time(
    state: ToolRunning | ToolCompleted | ToolError, rule: str, kind: type[Struct]
) -> None:
    time = state.time
    if type(time) is not kind:
        _refuse(f"must be {kind.__name__}, not {type(time).__name__}", "$.time", rule)
    if type(time) is CompletedTime and time.compacted is None:
        start, end = time.start, time.end
        if type(start) is type(end) is int and 0 <= start <= MAX_INT and 0 <= end <= MAX_INT:
            return
    for name in kind.__struct_fields__:
        value = getattr(time, name)
        if value is None and name == "compacted":
            continue
        if not (type(value) is int and 0 <= value <= MAX_INT):
            _checked(check_time, value, f"$.time.{name}", rule)
