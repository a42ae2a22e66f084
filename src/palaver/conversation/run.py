"""The agent loop: ask the model, run its tools, ask again, until there is an answer.

`Conversation` takes single steps and never decides to take another. `run_until_answer` does, for
everyone without an engine of their own, within `Limits`. `ask` adds a message and runs the loop;
`RunStream` does the same and yields everything that happens meanwhile.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeAlias, TypedDict, TypeVar, cast

import anyio
import msgspec
from anyio import to_thread
from anyio.lowlevel import current_token
from msgspec import Struct

from palaver.conversation.usage import Usage
from palaver.errors import (
    BadAnswer,
    BudgetExceeded,
    ContentFiltered,
    LimitExceeded,
    TooManySteps,
    ValidationError,
)
from palaver.messages import Message, ToolCallPart, user
from palaver.messages.decode import convert
from palaver.messages.limits import EMPTY, check_argument, check_callable, describe_argument
from palaver.models.base import LOCAL_PROVIDER
from palaver.tools.approval import (
    Decision,
    apply_decisions,
    forget_decisions,
    load_decisions,
    parse_answer,
    save_decisions,
    valid_decisions,
)
from palaver.tools.approval import needs_approval as tool_needs_approval

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from anyio.streams.memory import MemoryObjectSendStream

    from palaver.conversation.conversation import Conversation
    from palaver.conversation.step import OnDelta, Step, ToolOutcome
    from palaver.models import AnyModel
    from palaver.tools import Tool, Toolbox, ToolContext, ToolOutput
    from palaver.tools.runner import ToolMiddleware
    from palaver.wire.reply import Delta

__all__ = [
    "Approve",
    "ChooseOptions",
    "Limits",
    "RunEvent",
    "RunResult",
    "RunSettings",
    "RunStream",
    "ask",
    "run_until_answer",
]

_T = TypeVar("_T")
_log: Final = logging.getLogger("palaver.conversation")
_REPAIRS: Final = 2
"""How often a model is asked again for an answer that fits the wanted type."""
_SHOWN: Final = 500
"""Characters of an answer that an error shows."""
_AGAIN: Final = (
    "That answer does not fit: {error}. Answer again, with nothing but JSON that fits the schema."
)

ChooseOptions: TypeAlias = (
    "Callable[[Sequence[ToolCallPart], Sequence[ToolCallPart]], Mapping[str, Any]]"
)
"""Returns the options of a step, given the calls that were just run and the calls before them."""
Approve: TypeAlias = "Callable[[ToolCallPart], object | Awaitable[object]]"
"""Decides about a call: returns True, False, a reason to deny it, or a `Decision`; may be async."""
RunEvent: TypeAlias = "Delta | Step | ToolOutcome | RunResult"
"""What happens in a run: a piece of an answer, a finished step, the outcome of a call, the end."""


class Limits(Struct, frozen=True, kw_only=True):
    """How much one run may use. What is None has no limit.

    >>> Limits(cost=-1)
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.limits.cost: must be a number above 0, not -1 [limits]
    """

    steps: int | None = 20
    tool_calls: int | None = None
    total_tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        """Check that each limit is a number above 0."""
        for name in self.__struct_fields__:
            value: object = getattr(self, name)
            whole = name in ("steps", "tool_calls", "total_tokens")
            fits = type(value) is int or (type(value) is float and not whole)
            if value is None or (fits and 0 < cast("float", value) < math.inf):
                continue
            detail = f"must be a {'whole ' if whole else ''}number above 0, not {value!r}"
            raise ValidationError(detail, path=f"$.limits.{name}", rule="limits")


class RunSettings(TypedDict, total=False):
    """What a run takes beside its message."""

    model: AnyModel | None
    tools: Toolbox | Iterable[Tool | Callable[..., Any]] | None
    options: Mapping[str, Any] | ChooseOptions
    limits: Limits
    approve: Approve | None
    around: ToolMiddleware | None
    key: str | None


class RunResult(Struct, frozen=True):
    """The answer of a run, what it took, and the calls that wait for an approval.

    `waiting` has calls where the run stopped before its answer: nobody was there to approve them.
    """

    message: Message
    usage: Usage
    steps: int = 1
    tokens: int = 0
    cost: float | None = None
    waiting: tuple[ToolCallPart, ...] = ()

    @property
    def text(self) -> str:
        """The text of the answer."""
        return self.message.text

    def __str__(self) -> str:
        """Return the text of the answer."""
        return self.message.text


async def run_until_answer(
    conversation: Conversation,
    model: AnyModel | None = None,
    *,
    tools: Toolbox | Iterable[Tool | Callable[..., Any]] | None = None,
    options: Mapping[str, Any] | ChooseOptions = EMPTY,
    needs_approval: Callable[[ToolCallPart], bool] | None = None,
    approve: Approve | None = None,
    around: ToolMiddleware | None = None,
    limits: Limits = Limits(),  # noqa: B008 - it is frozen
    key: str | None = None,
    on_delta: OnDelta | None = None,
    on_step: Callable[[Step], object] | None = None,
    on_outcome: Callable[[ToolOutcome], object] | None = None,
) -> Step:
    """Run the waiting calls, then take steps until an answer makes no calls; return the last step.

    With `tools`, only the waiting calls of these tools are run. `options` are those of every step,
    or a function that chooses them. A call needs an approval if its tool says so, or if
    `needs_approval` does, which is asked in the tools' place. `approve` decides about such a call;
    without it, the other calls are run and the step is returned with the calls that wait. With a
    `key`, a run that was cut off goes on where it was, and one that is over is not repeated. Raises
    `LimitExceeded` when a limit is reached.
    """
    run = _Run(
        conversation, model, tools=tools, options=options, needs_approval=needs_approval,
        approve=approve, around=around, limits=limits, key=key, on_delta=on_delta, on_step=on_step,
        on_outcome=on_outcome,
    )  # fmt: skip
    return await conversation.hold(run.until_answer)


class _Run:
    """One run: what it was given, how much it has used, and how its calls are approved and run."""

    def __init__(
        self,
        conversation: Conversation,
        model: AnyModel | None,
        *,
        tools: Toolbox | Iterable[Tool | Callable[..., Any]] | None = None,
        options: Mapping[str, Any] | ChooseOptions = EMPTY,
        needs_approval: Callable[[ToolCallPart], bool] | None = None,
        approve: Approve | None = None,
        around: ToolMiddleware | None = None,
        limits: Limits = Limits(),  # noqa: B008 - it is frozen
        key: str | None = None,
        on_delta: OnDelta | None = None,
        on_step: Callable[[Step], object] | None = None,
        on_outcome: Callable[[ToolOutcome], object] | None = None,
    ) -> None:
        if not hasattr(conversation, "run_tools"):
            detail = f"must be a Conversation, not {describe_argument(conversation)}"
            raise ValidationError(detail, path="$.conversation", rule="argument")
        check_argument(limits, Limits, "$.limits", "Limits(…)")
        check_callable(on_step, "$.on_step", "a function that takes a step")
        check_callable(approve, "$.approve", "a function that takes a call")
        check_callable(needs_approval, "$.needs_approval", "a function that takes a call")
        self._conversation = conversation
        self._model = conversation.model if model is None else conversation.find_model(model)
        self._box = conversation.toolbox(tools)
        self._only_these = tools is not None
        self._options, self._limits, self._key = options, limits, key
        self._needs = needs_approval or partial(tool_needs_approval, self._box)
        self._approve, self._around = approve, around
        self._on_delta, self._on_step, self._on_outcome = on_delta, on_step, on_outcome
        self._steps = self._calls = 0
        self._before: Usage | None = None

    async def until_answer(self) -> Step:
        """Run until there is an answer, or until the time is over."""
        await self.begin()
        seconds = self._limits.seconds
        with anyio.move_on_after(seconds):
            return await self._loop()
        detail = f"no answer after {seconds:g} seconds; what had arrived is stored"
        raise LimitExceeded(detail, limit="seconds")

    async def _loop(self) -> Step:
        conversation = self._conversation
        before: Sequence[ToolCallPart] = ()
        calls: Sequence[ToolCallPart] = await to_thread.run_sync(conversation.waiting)
        if self._only_these:
            calls = [call for call in calls if call.tool in self._box]
        await self.run_calls(calls)
        while True:
            number = await self.next_step()
            step = await conversation.step(
                self._model,
                tools=self._box,
                options=self.next_options(calls, before),
                on_delta=self._on_delta,
                key=None if self._key is None else f"{self._key}/{number}",
            )
            await _report(self._on_step, step)
            before, calls = calls, step.calls
            if not calls:
                return step
            if step.again:  # some of its calls may have run before the run was cut off
                waits = {call.id for call in await to_thread.run_sync(conversation.waiting)}
                calls = [call for call in calls if call.id in waits]
            if await self.run_calls(calls):
                return step

    async def begin(self) -> None:
        """Check that the limits can be enforced, and note what was used before the run."""
        limits, model = self._limits, self._model
        if limits.cost is not None and model is not None:
            limit = f"a cost of at most {limits.cost}"
            self._conversation.check_price(model.ref, limit, "$.limits.cost")
        if limits.cost is not None or limits.total_tokens is not None:
            self._before = await to_thread.run_sync(lambda: self._conversation.usage)

    async def next_step(self) -> int:
        """Return the number of the next step; raise `LimitExceeded` if there may be none."""
        limits = self._limits
        if self._steps == limits.steps:
            msg = f"{limits.steps} steps and no answer without tool calls"
            raise TooManySteps(msg)
        if self._before is not None and self._steps:
            usage = await to_thread.run_sync(lambda: self._conversation.usage)
            used = _tokens(usage) - _tokens(self._before)
            cost = (usage.cost or 0.0) - (self._before.cost or 0.0)
            if limits.total_tokens is not None and used >= limits.total_tokens:
                detail = f"{used:,} of {limits.total_tokens:,} tokens are used: no further step"
                raise LimitExceeded(detail, limit="total_tokens")
            if limits.cost is not None and cost >= limits.cost:
                detail = f"{cost:.4f} of {limits.cost:.4f} are spent: no further step is begun"
                raise BudgetExceeded(detail)
        self._steps += 1
        return self._steps

    def next_options(
        self, calls: Sequence[ToolCallPart], before: Sequence[ToolCallPart]
    ) -> Mapping[str, Any]:
        """Return the options of the next step, after these calls and those before them.

        A forced call has been made, so no further call is forced. A model that repeats the same
        calls would repeat them for ever, and a small model on this machine rarely makes better
        calls the second time: both are asked for text.
        """
        given = self._options
        if callable(given):
            return given(calls, before)
        if not calls:
            return given
        same = [_signature(call) for call in calls] == [_signature(call) for call in before]
        small = self._model is not None and self._model.ref.provider_id == LOCAL_PROVIDER
        if same or small or given.get("tool_choice") == "none":
            return {**given, "tool_choice": "none"}
        return {name: value for name, value in given.items() if name != "tool_choice"}

    async def run_calls(self, calls: Sequence[ToolCallPart]) -> list[ToolCallPart]:
        """Run the calls that may run; return those that wait for an approval."""
        conversation = self._conversation
        asking = [call for call in calls if self._needs(call)]
        decisions: dict[str, Decision] = {}
        if asking:
            decisions = await to_thread.run_sync(self._stored_decisions, asking)
            if self._approve is not None:
                left = [call for call in asking if call.id not in decisions]
                decisions |= await self._decide(left, self._approve)
        waiting = [call for call in asking if call.id not in decisions]
        ready = [call for call in calls if call not in waiting]
        if not ready:
            return waiting
        self._calls += len(ready)
        most = self._limits.tool_calls
        if most is not None and self._calls > most:
            detail = f"{self._calls} tool calls, and {most} are allowed: the last ones were not run"
            raise LimitExceeded(detail, limit="tool_calls")
        outcomes = await conversation.run_tools(
            ready,
            tools=self._box,
            around=_both(apply_decisions(decisions), self._around) if decisions else self._around,
            approved={name: one.digest or "" for name, one in decisions.items()},
        )
        if decisions:
            await to_thread.run_sync(forget_decisions, conversation, list(decisions))
        for outcome in outcomes:
            await _report(self._on_outcome, outcome)
        return waiting

    def _stored_decisions(self, calls: Sequence[ToolCallPart]) -> dict[str, Decision]:
        """Return what was decided about calls already, here or elsewhere."""
        stored = load_decisions(self._conversation)
        digests = self._conversation.digests(calls)
        asked = {call.id for call in calls}
        return valid_decisions({n: one for n, one in stored.items() if n in asked}, digests)

    async def _decide(self, calls: Sequence[ToolCallPart], approve: Approve) -> dict[str, Decision]:
        """Ask about each call, and store what was decided before anything runs."""
        digests = await to_thread.run_sync(self._conversation.digests, calls)
        decisions: dict[str, Decision] = {}
        for call in calls:
            verdict = await _call(approve, call)
            if isinstance(verdict, str) and verdict.strip().lower() not in ("approve", "deny"):
                verdict = Decision("deny", reason=verdict)
            decisions |= parse_answer({call.id: verdict}, [call], digests)
        if decisions:
            await to_thread.run_sync(save_decisions, self._conversation, decisions)
        return decisions


def _both(outer: ToolMiddleware, inner: ToolMiddleware | None) -> ToolMiddleware:
    """Return a middleware that wraps a call with two of them."""
    if inner is None:
        return outer

    async def middleware(
        call: ToolCallPart,
        context: ToolContext,
        run: Callable[[ToolCallPart], Awaitable[ToolOutput]],
    ) -> ToolOutput:
        return await outer(call, context, lambda chosen: inner(chosen, context, run))

    return middleware


def _signature(call: ToolCallPart) -> tuple[str, str]:
    return call.tool, call.raw


def _tokens(usage: Usage) -> int:
    """Return the tokens of all requests and answers together."""
    return usage.total.prompt + usage.total.completion


async def _report(function: Callable[[Any], object] | None, value: object) -> None:
    """Call who watches; what it raises is logged, since what it watches is stored."""
    try:
        if function is not None:
            await _call(function, value)
    except Exception:  # noqa: BLE001 - who watches a run must not stop it
        _log.exception("who watches a run failed")


async def _call(function: Callable[[Any], Any], value: object) -> Any:  # noqa: ANN401 - its own
    found = function(value)
    return await found if inspect.isawaitable(found) else found


# ── questions ───────────────────────────────────────────────────────────────────────────────────


async def ask(
    conversation: Conversation,
    message: Message | Mapping[str, Any] | str | None = None,
    *,
    settings: RunSettings,
    on_event: Callable[[RunEvent], object] | None = None,
    output: OutputType[Any] | None = None,
) -> tuple[RunResult, Any]:
    """Add a message, run until there is an answer, and return it with its value."""
    return await conversation.hold(partial(_ask, conversation, message, settings, on_event, output))


async def _ask(
    conversation: Conversation,
    message: Message | Mapping[str, Any] | str | None,
    settings: RunSettings,
    on_event: Callable[[RunEvent], object] | None,
    output: OutputType[Any] | None,
) -> tuple[RunResult, Any]:
    rest: dict[str, Any] = dict(settings)
    model, key = rest.pop("model", None), rest.get("key")
    if output is not None:
        rest["options"] = output.with_schema(rest.get("options", EMPTY))
    _Run(conversation, model, **rest)  # it refuses wrong settings before anything is added
    if message is not None:
        given = user(message) if isinstance(message, str) else message
        await to_thread.run_sync(partial(conversation.add, given, key=key))
    before = await to_thread.run_sync(lambda: conversation.usage)
    steps = 0

    async def on_step(step: Step) -> None:
        nonlocal steps
        steps += 1
        if on_event is not None:
            await _call(on_event, step)

    async def run() -> RunResult:
        watchers: Any = {"on_delta": on_event, "on_step": on_step, "on_outcome": on_event}
        step = await _Run(conversation, model, **rest, **watchers).until_answer()
        after = step.usage
        return RunResult(
            step.message,
            after,
            steps,
            _tokens(after) - _tokens(before),
            None if after.cost is None else after.cost - (before.cost or 0.0),
            tuple(await to_thread.run_sync(conversation.waiting)) if step.calls else (),
        )

    answer = await run()
    for repair in range(_REPAIRS + 1):
        if output is None or answer.waiting:
            break
        try:
            return answer, output.read(answer.message)
        except ValidationError as error:
            if repair == _REPAIRS:
                detail = f"no answer fits the wanted type: {error.detail}; the last was: "
                raise BadAnswer(detail + answer.text[:_SHOWN]) from None
            words = user(_AGAIN.format(error=error.detail))
            rest["key"] = None if key is None else f"{key}/repair-{repair + 1}"
            add = partial(conversation.add, words, key=rest["key"])
            await to_thread.run_sync(add)
        answer = await run()
    return answer, None


class OutputType(Generic[_T]):
    """The type of a structured answer: its JSON schema, and how an answer becomes a value.

    It is a class that msgspec knows (a `Struct`, a dataclass, a `TypedDict`, a `NamedTuple`), a
    pydantic model, or any other type that JSON can have, as `list[int]`.
    """

    def __init__(self, kind: type[_T]) -> None:
        """Take the type; raise `ValidationError` if JSON can't have it."""
        self._kind = kind
        pydantic: Any = getattr(kind, "model_json_schema", None)
        self._validate: Callable[[str], _T] | None = None
        try:
            if pydantic is not None:
                self.schema: dict[str, Any] = pydantic()
                self._validate = cast("Any", kind).model_validate_json
            else:
                self.schema = _inline(msgspec.json.schema(kind))
        except (TypeError, ValueError) as error:
            name = getattr(kind, "__name__", repr(kind))
            detail = f"{name} can't be the type of an answer: {error}"
            raise ValidationError(detail, path="$.output", rule="output-type") from None

    def with_schema(self, options: object) -> Mapping[str, Any] | ChooseOptions:
        """Return the options of a run with this type's schema."""
        if not callable(options):
            return {**cast("Mapping[str, Any]", options), "schema": self.schema}
        choose = cast("ChooseOptions", options)
        return lambda calls, before: {**choose(calls, before), "schema": self.schema}

    def read(self, message: Message) -> _T:
        """Return the value of an answer; raise `ValidationError` if the answer does not fit."""
        if getattr(message.info, "finish", None) == "content-filter":
            detail = f"the model refused to answer: {message.text[:_SHOWN]}"
            raise ContentFiltered(detail)
        text = message.text.strip()
        if text.startswith("```"):  # some models fence their JSON
            text = text.strip("`").removeprefix("json").strip()
        try:
            if self._validate is not None:
                return self._validate(text)
            return convert(msgspec.json.decode(text), self._kind)
        except ValueError as error:  # of msgspec, and of pydantic
            detail = str(error) or type(error).__name__
            raise ValidationError(detail, path="$", rule="output-type") from None


def _inline(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that is an object at its top, not a reference to a definition."""
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    definitions = dict(schema.get("$defs", {}))
    name = reference.rpartition("/")[2]
    found = dict(definitions[name])
    if f'"{reference}"' not in msgspec.json.encode(definitions).decode():  # not recursive
        del definitions[name]
    return {**found, "$defs": definitions} if definitions else found


# ── streams ─────────────────────────────────────────────────────────────────────────────────────


class RunStream(AsyncIterator[RunEvent]):
    """The events of a run as they happen; the last one is the `RunResult`.

        async for event in talk.stream("Tea?"):
            if isinstance(event, TextDelta):
                print(event.text, end="")

    The run begins with the first event that is asked for. What was received is stored as it
    arrives. Who leaves the loop early cancels the run; `async with` waits until it is cancelled.
    """

    def __init__(self, run: Callable[[Callable[[RunEvent], None]], Awaitable[RunResult]]) -> None:
        """Take the run: a function that gets where to send events."""
        self._run = run
        self._scope: anyio.CancelScope | None = None  # of the run, once it has begun
        self._events, self._received = anyio.create_memory_object_stream[Any](math.inf)
        self._done = anyio.Event()
        self.answer: RunResult | None = None

    def __aiter__(self) -> RunStream:
        """Return itself."""
        return self

    async def __anext__(self) -> RunEvent:
        """Return the next event; raise what the run raised."""
        if self._scope is None:
            self._scope = anyio.CancelScope()
            _spawn(partial(_feed, self._run, self._events, self._scope, self._done))
        try:
            event: RunEvent | BaseException = await self._received.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None
        if isinstance(event, BaseException):
            raise event
        if isinstance(event, RunResult):
            self.answer = event
        return event

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Cancel the run if it is not over, and wait until it is."""
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel the run if it is not over, and wait until what had arrived is stored."""
        if self._scope is not None:
            self._scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._done.wait()
        self._received.close()
        self._events.close()

    def __del__(self) -> None:
        """Cancel a run that nobody listens to any more."""
        if self._scope is not None:
            self._scope.cancel()
        self._received.close()
        self._events.close()


async def _feed(
    run: Callable[[Callable[[RunEvent], None]], Awaitable[RunResult]],
    events: MemoryObjectSendStream[Any],
    scope: anyio.CancelScope,
    done: anyio.Event,
) -> None:
    """Run, and send what happens; this holds no reference to the stream, which may be left."""

    def send(event: object) -> None:
        try:
            events.send_nowait(event)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            scope.cancel()

    try:
        with scope:
            try:
                send(await run(send))
            except Exception as error:  # noqa: BLE001 - raised where the events are received
                send(error)
    finally:
        events.close()
        done.set()


def _spawn(work: Callable[[], Awaitable[None]]) -> None:
    """Begin a task of its own, that outlives the call that begins it."""
    loop: Any = current_token().native_token
    if not hasattr(loop, "create_task"):
        trio: Any = importlib.import_module("trio")  # pragma: no cover - whoever runs it has it
        trio.lowlevel.spawn_system_task(work)  # pragma: no cover - the same
        return  # pragma: no cover - the same
    task = loop.create_task(work())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


_tasks: Final = set[Any]()
"""The tasks of streams: asyncio holds only weak references to them."""
