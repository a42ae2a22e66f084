"""What a tool is, the toolbox that holds some, and running one call to a final state.

A tool may come from a function, a JSON schema or an MCP server. It says itself whether it may run
again after a crash; the default is that it may not.

A call runs within its limits, in a thread or in the event loop. What a tool raises becomes the
error of its call. The model is told the type and text of errors that are meant for it, and of any
other only the type; a hook may tell it something else. The traceback is for the developer, in the
log `palaver.tools` and on the outcome, without secrets. What a tool returns becomes text for the
model, and files. A thread can't be stopped: one whose call has timed out or was cancelled is
abandoned, so that a tool that hangs delays neither the store, nor other tools, nor the end of the
process. What a thread returns after a timeout goes into the metadata of the error.
"""

from __future__ import annotations

import base64
import importlib
import inspect
import logging
import os
import sys
import threading
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from queue import SimpleQueue
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast, runtime_checkable

import anyio
import msgspec
from anyio import from_thread
from anyio.lowlevel import current_token
from msgspec import Struct

from palaver.errors import PalaverError, ToolFailed, ToolUnreachable, ValidationError
from palaver.messages import FilePart, ToolCallPart, ToolRunning, complete, fail, file_part
from palaver.messages.ids import now_ms
from palaver.messages.limits import (
    EMPTY,
    NamedFields,
    check_argument,
    check_number,
    describe_argument,
    freeze_mapping,
    is_object,
    is_plain,
    replace_refused,
    short_repr,
    shorten,
)
from palaver.messages.redaction import redact
from palaver.messages.tool_state import expire

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from palaver.messages import ToolState
    from palaver.wire import ToolSpec

__all__ = [
    "MAX_FILE",
    "DescribeError",
    "Executor",
    "MiddlewareFailed",
    "Progress",
    "ReportProgress",
    "Tool",
    "ToolContext",
    "ToolLimits",
    "ToolMiddleware",
    "ToolOutput",
    "ToolRunner",
    "Toolbox",
    "as_toolbox",
    "attach_file",
    "call_function",
    "error_text",
    "import_object",
    "open_tools",
    "storable_metadata",
    "storable_text",
    "to_output",
]


class ToolOutput(Struct, frozen=True):
    """What a tool returns: text for the model, and perhaps files."""

    text: str
    title: str | None = None
    metadata: Mapping[str, Any] = EMPTY
    attachments: tuple[FilePart, ...] = ()

    __repr__ = short_repr


class ReportProgress(Protocol):
    """A function that reports the progress of a call: a title, and perhaps data."""

    def __call__(self, title: str, metadata: Mapping[str, Any] = EMPTY, /) -> None:
        """Report it."""
        ...


class ToolContext(Struct, frozen=True):
    """What a tool can learn about its call while it runs.

    `progress` reports how far the call is; it may be called from any thread.
    """

    conversation: str
    call: ToolCallPart
    progress: ReportProgress


@runtime_checkable
class Tool(Protocol):
    """One tool."""

    @property
    def spec(self) -> ToolSpec:
        """Its name, its description, and a JSON schema of its arguments."""
        ...

    @property
    def idempotent(self) -> bool:
        """Whether it may run again when it is unknown whether it ran."""
        ...

    @property
    def timeout(self) -> float | None:
        """How many seconds it may take; None for the conversation's own limit."""
        ...

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Check the arguments and run; what it raises becomes the call's error."""
        ...


Executor: TypeAlias = Callable[[ToolCallPart, ToolContext], Awaitable[ToolOutput]]
"""Runs any call in place of the tools, for engines that have tools of their own."""

ToolMiddleware: TypeAlias = Callable[
    [ToolCallPart, ToolContext, Callable[[ToolCallPart], Awaitable[ToolOutput]]],
    Awaitable[ToolOutput],
]
"""Wraps every call: it gets the call and a function that runs it, with its arguments or others.

The arguments that it chooses are recorded before the tool gets them. With `ToolFailed` it refuses
the call, and the model is told the text. Any other error of its own is raised to whoever runs the
calls, after the other calls; a call whose tool was not begun waits again.
"""

DescribeError: TypeAlias = Callable[[ToolCallPart, BaseException], "str | None"]
"""Returns what the model is told of an error that a tool raised; None for the usual text."""


class Toolbox(Mapping[str, Tool]):
    """Tools by name. Plain functions are taken too.

    >>> def add(a: int, b: int) -> int:
    ...     "Add two numbers."
    ...     return a + b
    >>> list(Toolbox([add]))
    ['add']
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        """Take tools and functions; raise `ValidationError` for two of one name."""
        from palaver.tools.function import tool  # noqa: PLC0415 - it imports this module

        self._tools: dict[str, Tool] = {}
        for index, given in enumerate(_check_tools(tools)):
            if not isinstance(given, Tool) and not callable(given):
                detail = f"must be a tool or a function, not {describe_argument(given)}"
                raise ValidationError(detail, path=f"$.tools[{index}]", rule="tool-definition")
            found = given if isinstance(given, Tool) else tool(given)
            name = found.spec.name
            if name in self._tools:
                detail = f"there are two tools named {name!r}; give one another: tool(name='…')"
                raise ValidationError(detail, path="$.tools", rule="tool-definition")
            self._tools[name] = found

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The descriptions that a model gets."""
        return tuple(found.spec for found in self._tools.values())

    def __repr__(self) -> str:
        """Return the names of the tools."""
        return shorten(f"<Toolbox: {', '.join(self._tools)}>")

    def __getitem__(self, name: str) -> Tool:
        """Return the tool of a name."""
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._tools)

    def __len__(self) -> int:
        """Return how many tools there are."""
        return len(self._tools)


def _check_tools(tools: object) -> Iterable[Any]:
    if not isinstance(tools, Iterable) or isinstance(tools, str | bytes | Mapping):
        detail = f"must be a list of tools and functions, not {describe_argument(tools)}"
        if callable(tools):
            detail += ": write tools=[…]"
        raise ValidationError(detail, path="$.tools", rule="tool-definition")
    return tools


def as_toolbox(tools: Toolbox | Iterable[Tool | Callable[..., Any]]) -> Toolbox:
    """Return tools as a toolbox."""
    return tools if isinstance(tools, Toolbox) else Toolbox(tools)


def import_object(location: str) -> Any:  # noqa: ANN401 - whatever the module has
    """Import the object at `module:attribute`; modules of the current folder are found too.

    >>> import_object("math:sqrt")(9)
    3.0
    """
    module, colon, attribute = location.partition(":")
    if not (module and colon and attribute):
        detail = f"{location!r} must be MODULE:ATTR, as in my_tools:weather"
        raise ValidationError(detail, path="$.tools", rule="tool-definition")
    if os.getcwd() not in sys.path:  # noqa: PTH109 - as Python's own -m does it
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - the same
    value: Any = importlib.import_module(module)
    for step in attribute.split("."):
        value = getattr(value, step)
    return value


@asynccontextmanager
async def open_tools(sources: Iterable[object]) -> AsyncGenerator[list[Any]]:
    """Open sources of tools, and yield all their tools; the sources are closed at the end.

    A source is a tool, a function, a list or mapping of them, or an async context manager with
    `tools`, such as an `McpServer`. Raises `ToolUnreachable` if a source can't be opened.
    """
    async with AsyncExitStack() as stack:
        tools: list[Any] = []
        for value in sources:
            source: Any = value
            if hasattr(source, "__aenter__"):
                source = (await _enter(source, stack)).tools
            if isinstance(source, Mapping):
                tools += source.values()
            elif isinstance(source, Tool) or callable(source):
                tools.append(source)
            else:
                tools += source
        yield tools


async def _enter(source: Any, stack: AsyncExitStack) -> Any:  # noqa: ANN401 - a context manager
    try:
        return await stack.enter_async_context(source)
    except PalaverError:
        raise
    except Exception as error:
        name = getattr(source, "name", type(source).__name__)
        msg = f"{name}: {str(error) or type(error).__name__}"
        raise ToolUnreachable(msg) from error


_log: Final = logging.getLogger("palaver.tools")
MAX_FILE: Final = 20_000_000
"""The largest file in a result, in bytes; of a larger one, only the size is stored."""
_CUT: Final = "\n[… {left:,} more characters were left out]"
_CUT_OFF: Final = "the program that runs the tools failed; it may have run, or have run in part"
_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


class ToolLimits(Struct, frozen=True, metaclass=NamedFields):
    """How many seconds a call may take, how many run at once, how long a result's text may be."""

    seconds: float = 600.0
    at_once: int = 16
    output: int = 1_000_000

    def __post_init__(self) -> None:
        """Refuse a limit that can't be kept."""
        check_number(self.seconds, "$.seconds")
        check_number(self.at_once, "$.at_once", least=1, whole=True)
        check_number(self.output, "$.output", whole=True)


class MiddlewareFailed(Exception):  # noqa: N818 - it reads as what happened
    """What wraps a call raised `error`, which is the caller's; `state` is that of the call then.

    If the tool was not begun, the state is running as before, and the call may run again.
    """

    def __init__(self, error: BaseException, state: ToolState) -> None:
        """Take the error and the state."""
        super().__init__(type(error).__name__)  # the text is the error's own to give
        self.error = error
        self.state = state


class _Attempt:
    """A call that runs: its state, whether its tool was begun, and what the tool raised.

    When it is over, its tool may not be called any more: nobody would store that it was.
    """

    def __init__(self, state: ToolState) -> None:
        self.state = state
        self.over = False
        self._began = False
        self._raised: BaseException | None = None

    def check(self) -> None:
        """Raise `ValidationError` if the call has ended, and `around` would still run it."""
        if self.over:
            detail = "the call has ended, and is not run any more: await what runs it"
            raise ValidationError(detail, path="$.around", rule="tool-call")

    def __enter__(self) -> None:
        """The tool begins."""
        self.check()
        self._began = True

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """The tool ends."""
        self._raised = error

    async def watch(self, wrapped: Awaitable[object]) -> object:
        """Run the wrapped call; raise `MiddlewareFailed` for an error that is not the tool's."""
        try:
            return await wrapped
        except (Exception, SystemExit) as error:
            if error is self._raised or isinstance(error, ToolFailed):
                raise
            state = fail(self.state, _CUT_OFF) if self._began else self.state
            raise MiddlewareFailed(error, state) from error


class ToolRunner:
    """Runs single calls with tools, or with an executor in their place. It stores nothing."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        *,
        limits: ToolLimits,
        executor: Executor | None = None,
        middleware: ToolMiddleware | None = None,
        describe_error: DescribeError | None = None,
    ) -> None:
        """Take the tools by name; `middleware` wraps every call."""
        self.tools = tools
        self.limits = limits
        self._executor = executor
        self._middleware = middleware
        self._describe_error = describe_error

    async def run(
        self,
        call: ToolCallPart,
        state: ToolState,
        *,
        conversation: str,
        record_arguments: Callable[[Mapping[str, Any]], Awaitable[ToolState]],
        record_progress: Callable[[str, Mapping[str, Any]], ToolState],
        on_failure: Callable[[str], None],
        on_late: Callable[[ToolState], None],
    ) -> ToolState:
        """Run a call that is in the state running, and return the state that it ends in.

        `record_arguments` is awaited before a tool gets other arguments than the call's; it returns
        the state with them, as `record_progress` returns it with what the tool reports.
        `on_failure` gets the traceback of what the tool raises. If a result comes after the call
        has timed out, `on_late` gets the state with it, in whatever thread it came. Raises
        `MiddlewareFailed` for an error that is not the tool's.
        """
        tool = self.tools.get(call.tool)
        own = None if tool is None else tool.timeout
        limit = self.limits.seconds if own is None else own
        attempt, output = _Attempt(state), None

        def report(title: str, metadata: Mapping[str, Any]) -> None:
            attempt.state = record_progress(title, _without_decision(metadata))

        progress = Progress(report)
        context = ToolContext(conversation, call, progress)
        late = _LateResult(partial(self._add_result, call), on_late)

        async def run(chosen: ToolCallPart) -> ToolOutput:
            _check_chosen(call, chosen)
            attempt.check()
            if chosen.input != attempt.state.input:  # it may have had others before
                attempt.state = await record_arguments(chosen.input)
            with attempt:
                given = ToolContext(conversation, chosen, progress)
                try:
                    return await self._call(tool, chosen, given)
                except anyio.get_cancelled_exc_class() as error:
                    if _is_cancelled(error):
                        raise
                    detail = "cancelled: the tool waited for something that was cancelled"
                    raise ToolFailed(detail) from error

        outer = _late_result.set(late)
        try:
            with anyio.move_on_after(limit):
                returned = await attempt.watch(self._wrap(call, context, run))
                output = to_output(returned, context)
            if output is not None:
                return self._add_result(call, output, attempt.state)
            return late.expect(_expire(attempt.state, round(limit * 1_000)))
        except MiddlewareFailed:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - what a tool raises is its result
            _log_failure(call, error)
            on_failure(self._cut(_traceback_text(error)))
            return self._add_result(call, error, attempt.state)
        finally:
            _late_result.reset(outer)
            progress.stop()
            attempt.over = True

    async def _wrap(
        self,
        call: ToolCallPart,
        context: ToolContext,
        run: Callable[[ToolCallPart], Awaitable[ToolOutput]],
    ) -> object:
        """Run a call, wrapped by the middleware if there is one."""
        if self._middleware is None:
            return await run(call)
        output: object = self._middleware(call, context, run)
        if inspect.isawaitable(output):
            return await output
        detail = f"must be an async function, and it returned {describe_argument(output)}"
        raise ValidationError(detail, path="$.around", rule="argument")

    def _error_text(self, call: ToolCallPart, error: BaseException) -> str:
        """Return what the model is told of an error: what the hook says, or else the usual text."""
        text: object = None
        try:
            if self._describe_error is not None:
                text = self._describe_error(call, error)
                wanted = "a function that returns text"
                check_argument(text, (str, NoneType), "$.on_tool_error", wanted)
        except Exception:  # noqa: BLE001 - the call has failed, and its result must be stored
            _log.exception("on_tool_error failed; the model is told the usual text")
            text = None
        return storable_text(redact(text if isinstance(text, str) else _usual_text(error)))

    async def _call(
        self, tool: Tool | None, call: ToolCallPart, context: ToolContext
    ) -> ToolOutput:
        if self._executor is not None:
            return await call_function(partial(self._executor, call, context), context)
        if tool is None:
            known = ", ".join(sorted(self.tools)) or "none"
            raise ValidationError(f"there is no tool {call.tool!r}; there are: {known}")
        return await tool.call(_arguments(call), context)

    def _add_result(
        self, call: ToolCallPart, result: ToolOutput | BaseException, state: ToolState
    ) -> ToolState:
        """Return the state with a result: what a tool returned, or what it raised."""
        if isinstance(result, BaseException):
            return fail(state, self._cut(self._error_text(call, result)))
        return complete(
            state,
            self._cut(result.text),
            tool=call.tool,
            title=result.title,
            metadata={**_without_decision(result.metadata), **_decision_about(state)},
            attachments=result.attachments,
        )

    def _cut(self, text: str) -> str:
        most = self.limits.output
        if len(text) <= most:
            return text
        return text[:most] + _CUT.format(left=len(text) - most)


_DECISION: Final = "approval"
"""Where the metadata of a state have what a person decided about the call."""


def _decision_about(state: ToolState) -> Mapping[str, Any]:
    """Return what was decided about a call, as its state has it from its start on."""
    metadata: Mapping[str, Any] = getattr(state, "metadata", EMPTY)
    return {_DECISION: metadata[_DECISION]} if _DECISION in metadata else EMPTY


def _without_decision(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a tool says, but for what was decided about its call: that is not its to say."""
    return {name: value for name, value in metadata.items() if name != _DECISION}


def _check_chosen(call: ToolCallPart, chosen: ToolCallPart) -> None:
    """Refuse another call in place of the one that was asked for."""
    if (chosen.id, chosen.call_id, chosen.tool) != (call.id, call.call_id, call.tool):
        detail = "another call may not run in its place, only other arguments"
        raise ValidationError(detail, path="$.calls", rule="tool-call")


def _is_cancelled(error: BaseException) -> bool:
    """Tell whether the task of a call is cancelled, and not only one that its tool waited for."""
    import asyncio  # noqa: PLC0415 - whoever raises its error has loaded it

    if not isinstance(error, asyncio.CancelledError):
        return True  # trio's is nobody's own
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class _LateResult:
    """Joins the state of a call that has timed out with the result that comes after it.

    Either may come first: the thread that runs the tool can end at the very moment.
    """

    def __init__(
        self,
        add_result: Callable[[ToolOutput | BaseException, ToolState], ToolState],
        on_late: Callable[[ToolState], None],
    ) -> None:
        self._add_result = add_result
        self._on_late = on_late
        self._lock = threading.Lock()
        self._state: ToolState | None = None
        self._result: ToolOutput | BaseException | None = None

    def expect(self, state: ToolState) -> ToolState:
        """Take and return the state of the call, which has timed out."""
        with self._lock:
            self._state = state
            result, self._result = self._result, None
        if result is not None:
            self._on_late(self._add_result(result, state))
        return state

    def arrive(self, result: ToolOutput | BaseException) -> None:
        """Take a result that nobody waits for any more."""
        with self._lock:
            state, self._state = self._state, None
            if state is None:
                self._result = result
        if state is not None:
            self._on_late(self._add_result(result, state))


_late_result: Final[ContextVar[_LateResult | None]] = ContextVar("late_result", default=None)
"""Where the thread of a call hands its result when nobody waits for it any more."""


def _expire(state: ToolState, limit_ms: int) -> ToolState:
    # the clock may have been set back, but the time is up
    since = state.time.start if isinstance(state, ToolRunning) else 0
    return expire(state, limit_ms=limit_ms, at=max(now_ms(), since + limit_ms))


def error_text(error: BaseException) -> str:
    """Return the text of an error; none if the class of the error has a bug in that."""
    try:
        return str(error).strip()
    except Exception:  # noqa: BLE001 - the error must be told of all the same
        return ""


def _usual_text(error: BaseException) -> str:
    """Return what the model is told of an error: the text only if it is meant for the model.

    A tool says with `ToolFailed`, or with one of Python's errors about values, what was wrong with
    its arguments. The text of any other error may have internals in it.
    """
    text = error_text(error)
    if isinstance(error, PalaverError) and text:
        return text
    name = type(error).__name__
    if isinstance(error, ValueError | LookupError | ArithmeticError):
        return f"{name}: {text}" if text else name
    return f"{name}: the tool failed; the reason is in the program's log"


def _log_failure(call: ToolCallPart, error: BaseException) -> None:
    """Log what a tool raised: a bug, or a server that can't be reached, is an error.

    Another error of palaver's with no cause is the tool's answer to the model, such as wrong
    arguments or a `ToolFailed` that it chose to raise.
    """
    is_answer = isinstance(error, PalaverError) and error.__cause__ is None
    level = logging.ERROR
    if is_answer and not isinstance(error, ToolUnreachable):
        level = logging.INFO
    _log.log(level, "the tool %s failed (call %s)", call.tool, call.call_id, exc_info=error)


def _traceback_text(error: BaseException) -> str:
    return storable_text(redact("".join(traceback.format_exception(error))))


def _redact_record(record: logging.LogRecord) -> bool:
    """Set the text that formatters write for a record's exception; theirs would have secrets."""
    if record.exc_info and record.exc_info[1]:
        record.exc_text = _traceback_text(record.exc_info[1])
    return True


_log.addFilter(_redact_record)


def _arguments(call: ToolCallPart) -> Mapping[str, Any]:
    """Return a call's arguments; raise if the model did not write a JSON object."""
    if call.raw.strip() and not call.input:
        try:
            found = msgspec.json.decode(call.raw)
        except msgspec.DecodeError as error:
            detail = f"the arguments are no JSON: {error}"
            raise ValidationError(detail, path="$.arguments", rule="tool-arguments") from None
        if not isinstance(found, dict):
            detail = "the arguments must be a JSON object"
            raise ValidationError(detail, path="$.arguments", rule="tool-arguments")
    return call.input


class Progress:
    """Reports the progress of a call from any thread to a function in the event loop.

    Make it in the loop. After `stop`, reports of an abandoned call are ignored.
    """

    def __init__(self, on_progress: Callable[[str, Mapping[str, Any]], None]) -> None:
        """Call `on_progress` in the loop for every report."""
        self._on_progress = on_progress
        self._loop = current_token()
        self._thread = threading.get_ident()
        self._running = True

    def __call__(self, title: str, metadata: Mapping[str, Any] = EMPTY, /) -> None:
        """Report a title, and perhaps data."""
        if threading.get_ident() == self._thread:
            self._report(title, metadata)
        elif self._running:
            with suppress(anyio.RunFinishedError):
                from_thread.run_sync(self._report, title, metadata, token=self._loop)

    def _report(self, title: str, metadata: Mapping[str, Any]) -> None:
        if self._running:
            self._on_progress(storable_text(title), storable_metadata(metadata))

    def stop(self) -> None:
        """Ignore further reports."""
        self._running = False


# ── outputs ─────────────────────────────────────────────────────────────────────────────────────


def to_output(value: Any, context: ToolContext) -> ToolOutput:  # noqa: ANN401 - whatever a tool returns
    """Convert what a tool returned: bytes become text or a file, other objects become JSON."""
    if isinstance(value, ToolOutput):
        title = None if value.title is None else storable_text(value.title)
        metadata = storable_metadata(value.metadata)
        return ToolOutput(storable_text(value.text), title, metadata, tuple(value.attachments))
    if value is None or isinstance(value, str):
        return ToolOutput(storable_text(value or ""))
    if isinstance(value, FilePart):
        return ToolOutput(f"[a file of type {value.mime}]", attachments=(value,))
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes_output(bytes(value), context)
    try:
        encoded = msgspec.json.encode(value, enc_hook=partial(_to_json, whole=value))
        return ToolOutput(storable_text(encoded.decode()))
    except (TypeError, ValueError, RecursionError):
        return ToolOutput(storable_text(repr(value)))


def _to_json(value: Any, whole: object) -> Any:  # noqa: ANN401 - whatever is in an output
    """Return a pydantic model as it is dumped, and any other object in a value as text."""
    if hasattr(type(value), "__pydantic_validator__") and hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if value is whole:
        raise TypeError
    return str(value)


def attach_file(encoded: str, mime: str, context: ToolContext, **fields: Any) -> FilePart | None:  # noqa: ANN401 - of a file part
    """Make a file part of base64 data; None if it is larger than `MAX_FILE`."""
    if len(encoded) > MAX_FILE * 4 // 3 + 4:
        return None
    call = context.call
    url = f"data:{mime};base64,{encoded}"
    return file_part(call.session_id, call.message_id, mime, url, **fields)


def storable_text(text: str) -> str:
    """Return the text with characters replaced that no store accepts."""
    return text if is_plain(text) else str(replace_refused(text))


def storable_metadata(value: object) -> Mapping[str, Any]:
    """Return metadata that every store accepts; what is not JSON becomes its `repr`."""
    plain = replace_refused(msgspec.to_builtins(value, str_keys=True, enc_hook=repr))
    return freeze_mapping(plain if is_object(plain) else {"value": plain}, "$.metadata")


def _bytes_output(value: bytes, context: ToolContext) -> ToolOutput:
    mime = next((mime for magic, mime in _SIGNATURES if value.startswith(magic)), "")
    if not mime:
        try:
            return ToolOutput(storable_text(value.decode()))
        except UnicodeDecodeError:
            mime = "application/octet-stream"
    size = f"[{len(value):,} bytes of {mime}]"
    part = attach_file(base64.b64encode(value).decode(), mime, context)
    return ToolOutput(size, metadata={"bytes": len(value)}, attachments=(part,) if part else ())


# ── functions and threads ───────────────────────────────────────────────────────────────────────


async def call_function(function: Callable[[], Any], context: ToolContext) -> ToolOutput:
    """Call a function, async ones in the event loop and others in a thread; return its output."""
    if inspect.iscoroutinefunction(function):
        return to_output(await function(), context)

    def in_thread() -> Any:  # noqa: ANN401 - an output, or an awaitable
        value = function()
        return value if inspect.isawaitable(value) else to_output(value, context)

    found = await _run_in_thread(in_thread)
    return to_output(await found, context) if inspect.isawaitable(found) else found


async def _run_in_thread(work: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever it returns
    done, loop = anyio.Event(), cast("Any", current_token().native_token)
    # asyncio's name for it, or trio's; neither waits for the loop
    soon: Callable[..., object] = getattr(loop, "call_soon_threadsafe", None) or loop.run_sync_soon
    value: Any = None
    failure: BaseException | None = None
    late, first = _late_result.get(), threading.Lock()

    def hand_over() -> None:
        """Do nothing the first time; the second time, there is a result and nobody waits for it."""
        result = value if failure is None else failure
        is_second = not first.acquire(blocking=False)
        if is_second and late is not None and isinstance(result, ToolOutput | BaseException):
            late.arrive(result)

    def run() -> None:
        nonlocal value, failure
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 - raised again, in the loop
            failure = error
        hand_over()

    def finish() -> None:
        with suppress(RuntimeError):  # the call was abandoned, and the loop is closed
            soon(done.set)

    _idle_thread().put((partial(copy_context().run, run), finish))
    try:
        await done.wait()
    except anyio.get_cancelled_exc_class():
        hand_over()
        raise
    if failure is not None:
        raise failure
    return value


_WorkQueue: TypeAlias = "SimpleQueue[tuple[Callable[[], None], Callable[[], None]]]"
"""A thread's queue of work, each with a function to call when the thread is idle again."""
_MAX_IDLE: Final = 32
_idle: Final[deque[_WorkQueue]] = deque()
"""The queues of idle threads; a thread that hangs never comes back here."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # threads stay with the parent


def _idle_thread() -> _WorkQueue:
    """Return the queue of an idle thread; start one if there is none."""
    try:
        return _idle.pop()
    except IndexError:
        queue: _WorkQueue = SimpleQueue()
        # a daemon, so that a tool that never returns does not keep the process from ending
        threading.Thread(target=_serve, args=(queue,), name="palaver tool", daemon=True).start()
        return queue


def _serve(queue: _WorkQueue) -> None:
    while True:
        work, finish = queue.get()
        work()
        stays = len(_idle) < _MAX_IDLE
        if stays:
            _idle.append(queue)
        finish()
        if not stays:
            return
