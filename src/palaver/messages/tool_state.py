"""The state of a tool call: pending → running → completed | error.

States are values, and transitions are pure functions that take a state and return the next one.
The same transition again with the same payload returns the state unchanged (times are not
payload); with another payload it raises `InvalidStateTransition`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias, cast

from msgspec import UNSET, Struct, UnsetType, to_builtins
from msgspec.structs import force_setattr, replace

from palaver.errors import InvalidStateTransition
from palaver.messages.ids import now_ms
from palaver.messages.limits import (
    EMPTY,
    MAX_INT,
    check_number,
    check_text,
    check_time,
    check_value,
    freeze_field,
    is_list,
    is_object,
    is_plain,
    kind_of,
    refuse,
    short_repr,
)
from palaver.messages.part_base import FilePart, json_name

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
    "completed",
    "expire",
    "fail",
    "failed",
    "pending",
    "raw_output",
    "running",
    "stand_in",
    "start",
    "states_between",
]

NO_OUTPUT: Final = "(no output)"
"""The output that is stored for an empty one; `rawOutput` in the metadata is then empty."""


def stand_in(mimes: Iterable[str] = ()) -> str:
    """Return the output that is stored for an empty one: that there is none, or only files.

    >>> stand_in(), stand_in(["image/png", "image/png"])
    ('(no output)', '(2 files: image/png)')
    """
    found = list(mimes)
    if not found:
        return NO_OUTPUT
    kinds = ", ".join(dict.fromkeys(found))
    return f"({len(found)} file{'' if len(found) == 1 else 's'}: {kinds})"


def raw_output(state: ToolCompleted) -> str:
    """Return the output as the tool gave it: empty where the stored one only stands in for it."""
    mimes = [file.mime for file in state.attachments or ()]
    empty = state.metadata.get("rawOutput") == "" and state.output == stand_in(mimes)
    return "" if empty else state.output


Status: TypeAlias = Literal["pending", "running", "completed", "error"]
_NEXT: Final[dict[str, tuple[str, ...]]] = {
    "pending": ("running",),
    "running": ("completed", "error"),
    "completed": (),
    "error": (),
}
_log = logging.getLogger("palaver.messages")


class RunningTime(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """When a call started, in milliseconds."""

    start: int


class ToolTime(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """When a call started and ended, in milliseconds."""

    start: int
    end: int


class CompletedTime(Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """When a call started and ended, and when compaction cleared its output."""

    start: int
    end: int
    compacted: int | None = None


class _State(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag_field="status",
             rename=json_name, forbid_unknown_fields=True):  # fmt: skip
    """The fields that all four states share."""

    input: Mapping[str, Any]

    __repr__ = short_repr

    @property
    def status(self) -> Status:
        """The state's name."""
        return cast("Status", self.__struct_config__.tag)


class ToolPending(_State, frozen=True, kw_only=True, tag="pending"):
    """A call that has not started. `raw` is its input exactly as the model wrote it."""

    raw: str

    def __post_init__(self) -> None:
        """Check the input and the raw text."""
        freeze_field(self, "input", self.input)
        check_value(self, check_text, self.raw, "$.raw", "tool-call-raw")


class ToolRunning(_State, frozen=True, kw_only=True, tag="running"):
    """A call that has been running since `time.start`."""

    title: str | None = None
    metadata: Mapping[str, Any] = EMPTY
    time: RunningTime

    def __post_init__(self) -> None:
        """Check the input, the metadata, the title and the start time."""
        freeze_field(self, "input", self.input)
        freeze_field(self, "metadata", self.metadata)
        if self.title is not None:
            check_value(self, check_text, self.title, "$.title")
        _check_time(self, "tool-start-time", RunningTime)


class ToolCompleted(_State, frozen=True, kw_only=True, tag="completed"):
    """A call that ended at `time.end` with an output, which is never empty."""

    output: str
    title: str
    metadata: Mapping[str, Any]
    time: CompletedTime
    attachments: tuple[FilePart, ...] | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Check the texts, the metadata, the times and the attachments."""
        freeze_field(self, "input", self.input)
        freeze_field(self, "metadata", self.metadata)
        if not (is_plain(self.title) and is_plain(self.output)):
            check_value(self, check_text, self.title, "$.title")
            check_value(self, check_text, self.output, "$.output")
        if not self.output:
            detail = f"must not be empty; complete() stores an empty output as {NO_OUTPUT!r}"
            refuse(self, detail, "$.output", "empty-output")
        _check_time(self, "tool-end-time", CompletedTime)
        if self.attachments is not UNSET:
            force_setattr(self, "attachments", _files(self, self.attachments))


class ToolError(_State, frozen=True, kw_only=True, tag="error"):
    """A call that failed at `time.end`, with a description of the error."""

    error: str
    metadata: Mapping[str, Any] = EMPTY
    time: ToolTime

    def __post_init__(self) -> None:
        """Check the error, the metadata and the times."""
        freeze_field(self, "input", self.input)
        freeze_field(self, "metadata", self.metadata)
        check_value(self, check_text, self.error, "$.error")
        if not self.error.strip():
            refuse(self, "must say what went wrong", "$.error", "empty-error")
        _check_time(self, "tool-end-time", ToolTime)


ToolState: TypeAlias = ToolPending | ToolRunning | ToolCompleted | ToolError


def pending(input: Mapping[str, Any], raw: str) -> ToolPending:  # noqa: A002 - the design's name
    """Make the first state of a call that the model asked for.

    >>> pending({"q": "tea"}, '{"q": "tea"}').status
    'pending'
    """
    return ToolPending(input=input, raw=raw)


def running(
    input: Mapping[str, Any],  # noqa: A002 - the design's name
    title: str | None = None,
    *,
    metadata: Mapping[str, Any] = EMPTY,
    at: int | None = None,
) -> ToolRunning:
    """Make the state of a call that runs, from now on or since `at`.

    >>> running({"q": "tea"}, "Search", at=1).title
    'Search'
    """
    time = RunningTime(now_ms() if at is None else at)
    return ToolRunning(input=input, title=title, metadata=metadata, time=time)


def completed(  # noqa: PLR0917 - the design's order
    input: Mapping[str, Any],  # noqa: A002 - the design's name
    output: str,
    title: str,
    metadata: Mapping[str, Any] = EMPTY,
    start: int | None = None,
    end: int | None = None,
    *,
    attachments: Iterable[FilePart] = (),
) -> ToolCompleted:
    """Make the state of a call that is done, now if no `end` is given.

    An empty output is stored as `complete` does it.

    >>> completed({}, "warm", "Weather", {}, 1, 5).output
    'warm'
    """
    stored, files, noted = _checked_output(output, attachments)
    until = _time(end)
    return ToolCompleted(
        input=input,
        output=stored,
        title=title,
        metadata=_merge(metadata, noted),
        time=CompletedTime(until if start is None else start, until),
        attachments=files or UNSET,
    )


def failed(
    input: Mapping[str, Any],  # noqa: A002 - the design's name
    error: str,
    start: int | None = None,
    end: int | None = None,
    *,
    metadata: Mapping[str, Any] = EMPTY,
) -> ToolError:
    """Make the state of a call that failed, now if no `end` is given.

    >>> failed({}, "no such file", 1, 5).status
    'error'
    """
    until = _time(end)
    time = ToolTime(until if start is None else start, until)
    return ToolError(input=input, error=error, metadata=metadata, time=time)


def start(
    state: ToolState,
    *,
    title: str | None = None,
    metadata: Mapping[str, Any] = EMPTY,
    at: int | None = None,
) -> ToolRunning:
    """Return the running state of a pending call.

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
    """Return the completed state of a running call.

    The title is the given one, else that of the running state, else the tool's name. An empty
    output is stored as `(no output)`, or as what the attachments are. If the call has timed out
    already, it stays an error, and the output goes into its metadata as
    `lateResult`.

    >>> done = complete(start(pending({}, ""), at=1), "", tool="ls", at=2)
    >>> done.output, done.title, done.metadata["rawOutput"]
    ('(no output)', 'ls', '')
    """
    end = _time(at)
    stored, files, noted = _checked_output(output, attachments)
    for name, value in (("title", title), ("tool", tool)):
        if value is not None:
            check_value("tool", check_text, value, f"$.{name}")
    metadata = _merge(metadata, noted)
    if isinstance(state, ToolRunning):
        return ToolCompleted(
            input=state.input,
            output=stored,
            title=title or state.title or tool,
            metadata={**state.metadata, **metadata},
            time=CompletedTime(state.time.start, max(end, state.time.start)),
            attachments=files or UNSET,
        )
    if isinstance(state, ToolCompleted):
        again = (stored, title or state.title, {**state.metadata, **metadata})
        same_files = (files or UNSET) == state.attachments
        if same_files and again == (state.output, state.title, state.metadata):
            return state
    if isinstance(state, ToolError) and state.metadata.get("timedOut"):
        said = {name: value for name, value in metadata.items() if name not in noted}
        rest = {"title": title, "metadata": said, "attachments": to_builtins(files)}
        late = {"output": output, **{name: value for name, value in rest.items() if value}}
        return _add_late_result(state, late, "completed", end)
    return _invalid(state, "completed")


def fail(
    state: ToolState,
    error: str,
    *,
    metadata: Mapping[str, Any] = EMPTY,
    at: int | None = None,
) -> ToolError:
    """Return the error state of a running or pending call.

    A pending call runs first, for no time at all; `states_between` shows that state.

    >>> fail(start(pending({}, ""), at=1), "no such file", at=2).time.end
    2
    """
    end = _time(at)
    metadata = _merge(metadata)
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
            return _add_late_result(state, {"error": error}, "error", end)
    return _invalid(state, "error")


def expire(state: ToolState, *, limit_ms: int, at: int | None = None) -> ToolState:
    """Return the error state of a call that has run past its limit; else the state unchanged.

    >>> expire(start(pending({}, ""), at=0), limit_ms=50, at=80).error
    'timed out after 50 ms'
    """
    _check_state(state, "$.state")
    check_number(limit_ms, "$.limit_ms")
    now = _time(at)
    if isinstance(state, ToolRunning) and now - state.time.start >= limit_ms:
        return fail(state, f"timed out after {limit_ms} ms", metadata={"timedOut": True}, at=now)
    return state


def states_between(before: ToolState, after: ToolState) -> tuple[ToolState, ...]:
    """Return the states to record when a call goes from one state to another.

    A call never skips a state: from pending to error it goes through running.

    >>> first = pending({}, "")
    >>> [state.status for state in states_between(first, fail(first, "no such tool"))]
    ['running', 'error']
    """
    _check_state(before, "$.before")
    _check_state(after, "$.after")
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


def _add_late_result(state: ToolError, result: dict[str, Any], status: str, at: int) -> ToolError:
    known = state.metadata.get("lateResult")
    if known is not None:
        if is_object(known) and {**known, **result} == known:
            return state
        return _invalid(state, status)
    return replace(state, metadata={**state.metadata, "lateResult": {**result, "at": at}})


def _time(at: int | None) -> int:
    if at is None:
        return now_ms()
    check_value("tool", check_time, at, "$.at", "tool-end-time")
    return at


def _merge(*given: object) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for metadata in given:
        if not is_object(metadata):
            refuse("tool", f"must be an object, not {kind_of(metadata)}", "$.metadata", "schema")
        found |= metadata
    return found


def _checked_output(
    output: object, attachments: object
) -> tuple[str, tuple[FilePart, ...], Mapping[str, Any]]:
    """Return the output as it is stored, the files, and what the metadata says of an empty one."""
    if not isinstance(output, str):
        refuse("tool", f"must be text, not {kind_of(output)}", "$.output", "schema")
    given = tuple(attachments) if isinstance(attachments, Iterator) else attachments
    files = _files("tool", given)
    stored = output or stand_in(file.mime for file in files)
    return stored, files, EMPTY if output else {"rawOutput": output}


def _check_state(state: object, path: str) -> None:
    if not isinstance(state, ToolPending | ToolRunning | ToolCompleted | ToolError):
        detail = f"must be the state of a tool call, such as pending(…), not {kind_of(state)}"
        refuse("tool", detail, path, "schema")


def _files(state: ToolCompleted | str, attachments: object) -> tuple[FilePart, ...]:
    if not is_list(attachments):
        refuse(state, f"must be a list, not {kind_of(attachments)}", "$.attachments", "schema")
    for index, item in enumerate(attachments):
        if not isinstance(item, FilePart):
            detail = f"must be a file part, not {kind_of(item)}"
            refuse(state, detail, f"$.attachments[{index}]", "schema")
    return tuple(attachments)


def _invalid(state: ToolState, attempted: str) -> NoReturn:
    _check_state(state, "$.state")
    error = InvalidStateTransition(state.status, attempted, _NEXT[state.status])
    _log.error("%s", error)
    raise error


def _check_time(
    state: ToolRunning | ToolCompleted | ToolError, rule: str, kind: type[Struct]
) -> None:
    time = state.time
    if type(time) is not kind:
        refuse(state, f"must be {kind.__name__}, not {type(time).__name__}", "$.time", rule)
    if type(time) is CompletedTime and time.compacted is None:
        start, end = time.start, time.end
        if type(start) is type(end) is int and 0 <= start <= end <= MAX_INT:
            return
    for name in kind.__struct_fields__:
        value = getattr(time, name)
        if value is None and name == "compacted":
            continue
        if not (type(value) is int and 0 <= value <= MAX_INT):
            check_value(state, check_time, value, f"$.time.{name}", rule)
    if not isinstance(time, RunningTime) and time.end < time.start:
        detail = f"must not be before the start: {time.end} < {time.start}"
        refuse(state, detail, "$.time.end", rule)
