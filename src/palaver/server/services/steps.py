"""Steps: a model is asked, its tools run, and clients get the progress as live events.

A conversation has one running step at a time, and the server has a few. A step is a task of the
server and not of the request that started it, so it goes on when the page is closed. Stopping a
step stores what had arrived. Everything durable is stored by the conversation itself; this module
only holds what ends with the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import anyio
import msgspec
from anyio import to_thread
from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import replace

from palaver.conversation import Limits, Toolbox, run_until_answer
from palaver.conversation.ledger import CALL, read_ledger
from palaver.conversation.store_access import DRAFT, STEP, StepIntent
from palaver.errors import LeaseTaken, ModelError, PalaverError, StoreError, ValidationError
from palaver.messages import (
    ModelRef,
    ToolCallPart,
    ToolPart,
    UnknownPart,
    new_id,
    parse_message,
)
from palaver.messages.ids import now_ms
from palaver.messages.limits import EMPTY
from palaver.messages.parts import ReasoningPart
from palaver.models.base import Model, ModelRequest
from palaver.server.errors import RequestRefused
from palaver.server.requests import Shape
from palaver.server.services.conversations import read_settings
from palaver.server.services.models import default_options, load_default
from palaver.server.services.tools import ServerTools, builtin_tools
from palaver.stores.records import decode_record
from palaver.tools.approval import Decision, load_allowed
from palaver.tools.runner import open_tools
from palaver.wire.reply import CallDelta, CallReady, CallStarted, ReasoningDelta, TextDelta

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from palaver.conversation import Conversation, ToolOutcome
    from palaver.events import Event
    from palaver.history import Expected, View
    from palaver.messages import Message
    from palaver.server.live import Live
    from palaver.server.services import Service
    from palaver.stores import StoredHistory
    from palaver.wire.reply import Delta

__all__ = [
    "DraftBuffer",
    "DraftCall",
    "DraftPiece",
    "Name",
    "Rerun",
    "RunningStep",
    "StepDraft",
    "StepOptions",
    "StepOutcome",
    "StepPlan",
    "StepRunner",
    "StepStarted",
    "StepStatus",
]


_MAX_STEPS: Final = 20
_RECOVERED: Final = 200
"""How many of the newest conversations are checked for interrupted steps at the start."""
_LEASE_WAIT: Final = 75.0
"""Seconds to wait for the lease of a killed process; longer than such a lease lasts."""
_TRACEBACKS: Final = 200
"""How many tracebacks of failed calls are held, for the developer; they are never stored."""
_STOPPED: Final = "the step was stopped before the call was begun, and the call waits on"
_ELSEWHERE: Final = (
    "another process runs this step, or ran it until a few seconds ago: stop it there; if that"
    " process is gone, what it left is settled within seconds"
)
_log: Final = logging.getLogger("palaver.server")

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
"""The name of a model, a tool or a person in a request."""
_Options: TypeAlias = Annotated[
    dict[str, Any],
    Meta(
        description="what can be asked of any model, such as temperature or max_tokens",
        extra_json_schema={
            "properties": {
                "temperature": {"type": "number"},
                "top_p": {"type": "number"},
                "max_tokens": {"type": "integer", "minimum": 1},
                "tool_choice": {"type": "string"},
            }
        },
    ),
]

StepOutcome: TypeAlias = Literal[
    "answered", "calls", "waiting", "stopped", "failed", "done", "paused"
]
"""How a step ended: with an answer, with calls that it was not to run, with calls that a person has
to allow, stopped, or failed. The step of a team is done when a human has the turn, or is paused."""


class StepStarted(Shape, frozen=True):
    """The step that was started; None if the same message, by its key, was answered before."""

    step: str | None
    version: int


class StepStatus(Shape, frozen=True):
    """Whether a step is running, and what has arrived of its answer.

    `elsewhere` means that another process runs it, or ran it until it was killed.
    """

    running: bool
    elsewhere: bool = False
    step: str | UnsetType = UNSET
    since: int | UnsetType = UNSET
    model: str | UnsetType = UNSET
    draft: StepDraft | UnsetType = UNSET


class StepOptions(Shape, frozen=True):
    """How a model is asked: which one, with which tools and options.

    `tools` are all, none, or some by name; with `loop` the calls run and the model is asked again
    until it answers. Without a `model` the server's default is asked. Tools and options that are
    not given are those of the conversation's settings.
    """

    model: Name | None = None
    tools: bool | list[Name] | None = None
    loop: bool = True
    options: _Options = field(default_factory=dict[str, Any])


class StepPlan(Struct, frozen=True):
    """What a step is to do: the model, its tools and options, and whether to run the calls."""

    model: Model
    name: str
    tools: Toolbox
    loop: bool = True
    options: Mapping[str, Any] = EMPTY


class Rerun(Struct, frozen=True):
    """A call that is to run again, and the pieces of the view that it begins with.

    The call's message gets new ids, since the result of a call is known by the call's own. The
    results of the message's other calls stay; everything after them goes.
    """

    call: ToolCallPart
    pieces: tuple[Any, ...]

    @classmethod
    def find(cls, view: View, name: str) -> Rerun:
        """Find the call with a result that a name is of: the call's id or callID, or the result's.

        It is searched from the end. Refused if there is none, or if it has no result.
        """
        results: dict[str, tuple[int, ToolPart]] = {}
        for index in reversed(range(len(view))):
            message = view[index]
            for part in message.parts:
                if isinstance(part, ToolPart):
                    results[part.call_id] = (index, part)
                elif isinstance(part, ToolCallPart):
                    result = results.pop(part.call_id, None)
                    own = {part.id, part.call_id} | ({result[1].id} if result else set())
                    if name not in own:
                        continue
                    if result is None:
                        detail = f"call {name!r} has no result yet: run it or deny it"
                        raise RequestRefused(409, detail)
                    return cls._plan(view, index, part, result)
        raise RequestRefused(404, f"no call {name!r} is in this conversation")

    @classmethod
    def _plan(
        cls, view: View, index: int, call: ToolCallPart, result: tuple[int, ToolPart]
    ) -> Rerun:
        parts = view[index].parts
        renamed = tuple(
            part if isinstance(part, UnknownPart) else replace(part, id=new_id()) for part in parts
        )
        message = replace(view[index], id=new_id(), timestamp=now_ms(), content=renamed)
        stop = index + 1
        while stop < len(view) and view[stop].role == "tool":
            stop += 1
        at, gone = result
        kept: tuple[Any, ...] = (range(index + 1, stop),)
        if at < stop:
            others = tuple(part for part in view[at].parts if part.id != gone.id)
            rest = ((at, replace(view[at], id=new_id(), content=others)),) if others else ()
            kept = (range(index + 1, at), *rest, range(at + 1, stop))
        again: Any = message.parts[parts.index(call)]
        return cls(again, (range(index), (index, message), *kept))


class RunningStep:
    """A step that is running in this process."""

    def __init__(self, conversation: str, model: str | None, live: Live) -> None:
        """Start now."""
        self.id = new_id()
        self.conversation = conversation
        self.model = model
        self.since = now_ms()
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()
        self.decided = anyio.Event()  # a settled call is begun on disk, or never will be
        self.refusal: Exception | None = RequestRefused(409, _STOPPED)  # None once it is begun
        self.draft = DraftBuffer(self._emit_piece)
        self._live = live

    @property
    def names(self) -> dict[str, Any]:
        """The conversation and the step, as events name them."""
        return {"conversation": self.conversation, "step": self.id}

    def _emit_piece(self, piece: DraftPiece) -> None:
        self._live.emit("step.delta", {**self.names, **msgspec.to_builtins(piece)})


class StepRunner:
    """Starts, stops and reports the steps of a server."""

    def __init__(self, service: Service) -> None:
        """Run the steps of one service."""
        self._service = service
        self._store = service.store
        self._settings = service.settings
        self._live = service.live
        self._running: dict[str, RunningStep] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._has_tools = False
        self._tracebacks: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._background: anyio.CancelScope | None = None

    async def open_tools(self) -> None:
        """Open the given tools, once; raise why they can't be used."""
        if self._settings.toolset and not self._has_tools:
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._create_task(self._hold_tools(ready))
            await ready
            self._has_tools = True

    async def start(self) -> None:
        """Open the given tools; in the background, recover steps and load the model."""
        await self.open_tools()
        if not self._settings.read_only:
            self._background = anyio.CancelScope()
            self._create_task(self._prepare(self._background))

    async def close(self) -> None:
        """Stop every step, and close the models."""
        self._stopping.set()
        if self._background is not None:
            self._background.cancel()
        for running in list(self._running.values()):
            running.scope.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._service.models.close()

    def plan(self, conversation: str, asked: StepOptions, *, tools: bool = False) -> StepPlan:
        """Check what a request asks for, before anything is started.

        What it leaves open is as the conversation's settings have it; `tools` says whether there
        are any where those leave it open too.
        """
        toolbox = self.tools_of(conversation, asked.tools, otherwise=tools)
        ModelRequest({}, tools=toolbox.specs, options=asked.options).check()
        name = self._service.models.default if asked.model is None else asked.model
        model = self.get_model(name)
        options = self.options_of(conversation, model, asked.options)
        return StepPlan(model, name, toolbox, asked.loop, options)

    def tools_of(
        self,
        conversation: str,
        asked: bool | list[str] | None,  # noqa: FBT001 - as the body of a request has it
        *,
        otherwise: bool = False,
    ) -> Toolbox:
        """The tools of a step: those it asks for, or those of the conversation's settings."""
        tools = self._service.tools
        if asked is not None:
            return tools.select(asked)
        allowed = read_settings(self._store, conversation).tools
        return tools.among(otherwise if allowed is None else allowed)

    def options_of(
        self, conversation: str, model: Model, asked: Mapping[str, Any] = EMPTY
    ) -> dict[str, Any]:
        """The options of a step: the model's, over them the conversation's, and those asked for."""
        forced = asked.get("tool_choice") not in (None, "auto", "none")
        settings = read_settings(self._store, conversation)
        return {**default_options(model, forced=forced), **settings.options, **asked}

    def get_model(self, name: str | None = None) -> Model:
        """The model of a name; refused if it, or its SDK, is not installed."""
        try:
            return self._service.models.get(name)
        except ModelError as error:
            raise RequestRefused(409, str(error), name=type(error).__name__) from None

    # ── start and stop ──────────────────────────────────────────────────────────────────────────

    async def step(
        self,
        conversation: str,
        plan: StepPlan,
        *,
        message: Message | None = None,
        edit: Callable[[StoredHistory], object] | None = None,
        key: str | None = None,
        expect: Expected | None = None,
    ) -> StepStarted:
        """Add a message, if there is one, or `edit` first, and let the model answer.

        `expect` is the version that must be the newest when the step starts.
        """

        def prepare(chat: Conversation) -> bool:
            if edit is not None:
                chat.history.extend([], expect=expect)
                edit(chat.history)
                return True
            if message is None:
                chat.history.extend([], expect=expect)  # adds nothing, and checks the version
                return True
            added = chat.add(message, key=key, expect=expect)
            return chat.messages[-1].id == added.id

        async def work(chat: Conversation, running: RunningStep) -> StepOutcome:
            return await self._answer(chat, plan, running)

        return await self._start(conversation, plan.name, prepare, work)

    async def settle(
        self,
        conversation: str,
        call: ToolCallPart,
        plan: StepPlan,
        decision: Decision,
    ) -> StepStarted:
        """Run one waiting call as it was decided, or deny it; then go on if no other call waits.

        The call must still have the decision's digest when it is begun. This returns when the
        decision is on disk: of two decisions, in this process or in two, one is taken and the other
        refused.
        """

        async def work(chat: Conversation, running: RunningStep) -> StepOutcome:
            await self._run_decided(chat, running, call, decision)
            return await self._go_on(chat, running, plan)

        return await self._start(conversation, plan.name, lambda _: True, work, decided=True)

    async def rerun(
        self,
        conversation: str,
        name: str,
        plan: StepPlan,
        decide: Callable[[ToolCallPart], Decision],
        expect: Expected | None = None,
    ) -> StepStarted:
        """Run a call again that has a result, and go on from there; see `Rerun`.

        `decide` gives the decision of the person who asks for it, or refuses the call.
        """
        seen: list[int] = []

        def check(chat: Conversation) -> bool:
            chat.history.extend([], expect=expect)
            seen.append(chat.history.version)
            decide(Rerun.find(chat.history.view, name).call)
            return True

        def cut(chat: Conversation) -> tuple[ToolCallPart, Decision]:
            found = Rerun.find(chat.history.view, name)
            decision = decide(found.call)
            chat.history.rewrite(found.pieces, reason="RERUN", expect=seen[0])
            digest = chat.digests([found.call])[found.call.id]
            return found.call, replace(decision, digest=digest)

        async def work(chat: Conversation, running: RunningStep) -> StepOutcome:
            async def run() -> None:
                call, decision = await to_thread.run_sync(cut, chat)
                await self._run_decided(chat, running, call, decision)

            try:  # nobody else may begin a step between the edit and the call
                await chat.hold(run)
            except (PalaverError, RequestRefused) as error:
                running.refusal = running.refusal and error
                raise
            return await self._go_on(chat, running, plan)

        return await self._start(conversation, plan.name, check, work, decided=True)

    async def _run_decided(
        self,
        chat: Conversation,
        running: RunningStep,
        call: ToolCallPart,
        decision: Decision,
    ) -> None:
        """Run one call as it was decided."""

        def begin(event: Event) -> None:
            if event.data["id"] == call.id:
                running.refusal = None
                running.decided.set()

        toolbox = self._service.tools.select(wanted=True)
        stop = chat.events.on("tool.running", begin)
        try:
            outcomes = await chat.run_tools([call], tools=toolbox, approved={call.id: decision})
        except ValidationError as error:  # the call has its result, or is gone
            running.refusal = running.refusal and RequestRefused(409, str(error))
            raise
        except PalaverError as error:
            running.refusal = running.refusal and error
            raise
        finally:
            stop()
        self._note_traceback(outcomes[0])

    async def _go_on(self, chat: Conversation, running: RunningStep, plan: StepPlan) -> StepOutcome:
        """Let the model answer, if no other call waits for a decision."""
        if await to_thread.run_sync(_still_waiting, chat):
            return "waiting"
        return await self._answer(chat, plan, running) if plan.loop else "calls"

    async def _start(
        self,
        conversation: str,
        model: str,
        prepare: Callable[[Conversation], bool],
        work: Callable[[Conversation, RunningStep], Awaitable[StepOutcome]],
        *,
        decided: bool = False,
    ) -> StepStarted:
        running = self.claim(conversation, model)
        try:
            chat = await to_thread.run_sync(self._service.conversations.get, conversation)
            await chat.recover()
            goes_on = await to_thread.run_sync(prepare, chat)
        except BaseException:
            self.release(running)
            raise
        version = chat.history.version
        if not goes_on:
            self.release(running)
            return StepStarted(step=None, version=version)
        self.launch(running, lambda: work(chat, running))
        if decided:
            await running.decided.wait()
            if running.refusal is not None:
                raise running.refusal
        return StepStarted(step=running.id, version=version)

    def claim(self, conversation: str, model: str | None) -> RunningStep:
        """Reserve the conversation's only step, and one of the server's steps."""
        if conversation in self._running:
            msg = "a step is under way in this conversation"
            raise LeaseTaken(msg)
        if len(self._running) >= self._settings.steps:
            detail = f"{self._settings.steps} steps are under way, and no more may be"
            raise RequestRefused(429, detail, headers={"Retry-After": "5"})
        running = RunningStep(conversation, model, self._live)
        self._running[conversation] = running
        return running

    def release(self, running: RunningStep) -> None:
        """Give a claim back."""
        self._running.pop(running.conversation, None)
        running.decided.set()
        running.done.set()

    def launch(self, running: RunningStep, work: Callable[[], Awaitable[StepOutcome]]) -> None:
        """Do the work of a step in a task of its own."""
        self._create_task(self._run(running, work))

    def launch_quietly(
        self, running: RunningStep, work: Callable[[], Awaitable[StepOutcome]]
    ) -> None:
        """Do the work of a step in a task of its own, of which no page is told."""
        self._create_task(self._run_quietly(running, work))

    async def _run_quietly(
        self, running: RunningStep, work: Callable[[], Awaitable[StepOutcome]]
    ) -> None:
        with running.scope:
            try:
                await work()
            except Exception:  # noqa: BLE001 - whoever waits for it is told
                _log.debug("a step that is not stored failed", exc_info=True)
        self.release(running)

    @property
    def stopping(self) -> bool:
        """Whether the server is about to end."""
        return self._stopping.is_set()

    async def stop(self, conversation: str) -> None:
        """Stop a step, and wait until what had arrived is stored.

        The step of a process that is gone is settled; one of a process that lives is refused.
        """
        running = self._running.get(conversation)
        if running is not None:
            running.scope.cancel()
            await running.done.wait()
        elif (await to_thread.run_sync(self.status, conversation)).elsewhere:
            try:
                await self._settle_interrupted(conversation)
            except LeaseTaken:
                raise RequestRefused(409, _ELSEWHERE, name="LeaseTaken") from None

    # ── the work of a step ──────────────────────────────────────────────────────────────────────

    async def _run(self, running: RunningStep, work: Callable[[], Awaitable[StepOutcome]]) -> None:
        outcome: StepOutcome = "stopped"
        failure: Exception | None = None
        self._live.emit("step.started", {**running.names, "model": running.model})
        with running.scope:
            async with anyio.create_task_group() as group:
                group.start_soon(running.draft.emit_forever)
                try:
                    outcome = await work()
                except Exception as error:  # noqa: BLE001 - it is reported, and the server goes on
                    outcome, failure = "failed", error
                group.cancel_scope.cancel()
        running.draft.clear()
        self.release(running)
        ended: dict[str, Any] = {**running.names, "outcome": outcome}
        if failure is not None:
            ended["error"] = _describe_failure(failure)
        self._live.emit("step.ended", ended)

    async def _answer(
        self, chat: Conversation, plan: StepPlan, running: RunningStep
    ) -> StepOutcome:
        """Run calls and ask the model until it answers, or until a person must allow a call."""
        if not plan.loop:
            on_delta = running.draft.add_delta
            step = await chat.step(
                plan.model, tools=plan.tools, options=plan.options, on_delta=on_delta
            )
            running.draft.clear()
            return "calls" if step.calls else "answered"
        last = await run_until_answer(
            chat,
            plan.model,
            tools=plan.tools,
            options=plan.options,
            needs_approval=self._service.tools.asks_first,
            limits=Limits(steps=_MAX_STEPS),
            on_delta=running.draft.add_delta,
            on_step=lambda _: running.draft.clear(),
            on_outcome=self._note_traceback,
        )
        return "waiting" if last.calls else "answered"

    def _note_traceback(self, outcome: ToolOutcome) -> None:
        """Hold where a call failed, with the message of its result, by the id of the result."""
        message = outcome.message
        if outcome.traceback and message is not None:
            self._tracebacks[message.parts[0].id] = (message.id, outcome.traceback)
            while len(self._tracebacks) > _TRACEBACKS:
                self._tracebacks.popitem(last=False)

    def traceback(self, conversation: str, result: str) -> str | None:
        """Where the call of a result failed; None if it did not, or not in this process.

        It is told only of a result that the conversation has, and none once that was erased.
        """
        log = self._service.conversations.get(conversation).history.view.log
        message, text = self._tracebacks.get(result, ("", ""))
        positions = log.positions_of(message) if text else ()
        has_it = any(part.id == result for at in positions for part in log[at].parts)
        return text if has_it else None

    # ── status ──────────────────────────────────────────────────────────────────────────────────

    def status(self, conversation: str) -> StepStatus:
        """The status of a conversation's step, in this process or in another."""
        running = self._running.get(conversation)
        if running is not None:
            return StepStatus(
                running=True,
                step=running.id,
                since=running.since,
                model=running.model or UNSET,
                draft=running.draft.draft,
            )
        self._store.head(conversation)
        for name, record in self._store.records(conversation, STEP).items():
            intent = decode_record(record, StepIntent, f"the step {name!r}")
            draft = self._store.records(conversation, DRAFT).get(name)
            return StepStatus(
                running=True,
                step=name,
                since=intent.at,
                model=_model_name(intent.model) or UNSET,
                draft=StepDraft() if draft is None else _read_draft(parse_message(draft)),
                elsewhere=True,
            )
        return StepStatus(running=False)

    def running(self, conversation: str) -> RunningStep | None:
        """The step of a conversation that is running in this process, if there is one."""
        return self._running.get(conversation)

    def count_waiting(self, conversation: str) -> int:
        """How many calls of a conversation wait to be run."""
        try:
            entries = read_ledger(self._store.records(conversation, CALL)).values()
        except StoreError:  # it is gone or damaged: a list of conversations must not fail for it
            return 0
        return sum(entry.state.status == "pending" and not entry.stray for entry in entries)

    # ── at the start, in the background ─────────────────────────────────────────────────────────

    async def _hold_tools(self, ready: asyncio.Future[None]) -> None:
        """Open the given tools and close them at the end, in one task, as MCP servers need it."""
        try:
            async with open_tools(self._settings.toolset) as tools:
                self._service.tools = ServerTools((*builtin_tools(self._store), *tools))
                ready.set_result(None)
                await self._stopping.wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def _prepare(self, scope: anyio.CancelScope) -> None:
        with scope:
            async with anyio.create_task_group() as group:
                if self._settings.warm:
                    group.start_soon(load_default, self._service.models)
                for name in await to_thread.run_sync(self._find_interrupted):
                    group.start_soon(self._recover, name)

    def _find_interrupted(self) -> list[str]:
        heads = self._store.list(limit=_RECOVERED).conversations
        return [head.id for head in heads if {STEP, CALL} & set(self._store.kinds(head.id))]

    async def _recover(self, name: str) -> None:
        try:
            await self._settle_interrupted(name, wait=_LEASE_WAIT)
        except PalaverError as error:
            _log.warning("%s could not be recovered: %s", name, error)

    async def _settle_interrupted(self, name: str, wait: float = 0) -> None:
        """Settle what a process that is gone left unfinished, and say that its step has ended."""
        chat = await to_thread.run_sync(self._service.conversations.get, name)
        for found in await chat.recover(wait=wait):
            _log.info("%s: %s: %s", name, found.tool or found.kind, found.detail)
            if found.kind == "step":
                ended = {"conversation": name, "step": found.id, "outcome": "stopped"}
                self._live.emit("step.ended", ended)

    def _create_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _still_waiting(chat: Conversation) -> bool:
    """Whether a call waits for a decision; one of a tool that was approved for good does not."""
    allowed = load_allowed(chat)
    return any(call.tool not in allowed for call in chat.waiting())


def _describe_failure(failure: Exception) -> dict[str, Any]:
    """What a client learns of a failure: palaver's own text, or only the type of the exception."""
    if isinstance(failure, PalaverError):
        return failure.to_dict()
    _log.error("a step failed", exc_info=failure)
    return {"name": type(failure).__name__, "message": "the step failed; the log says more"}


def _model_name(ref: ModelRef | None) -> str | None:
    return None if ref is None else f"{ref.provider_id}:{ref.model_id}"


def _read_draft(message: Message) -> StepDraft:
    """A draft that another process stored."""
    reasoning = "".join(part.text for part in message.parts if isinstance(part, ReasoningPart))
    calls = [part for part in message.parts if isinstance(part, ToolCallPart)]
    made = tuple(DraftCall(part.call_id, part.tool, part.raw) for part in calls)
    return StepDraft(text=message.text, reasoning=reasoning, calls=made)


_INTERVAL: Final = 1 / 30
"""Seconds between two emitted pieces, at least."""

_Kind: TypeAlias = Literal["text", "reasoning", "call"]


class DraftCall(Struct, frozen=True):
    """A tool call that is being written."""

    call_id: str = field(name="callID")
    tool: str
    text: str


class StepDraft(Struct, frozen=True):
    """What has arrived of an answer; `answer` counts the answers of the step before it."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[DraftCall, ...] = ()
    answer: int = 0


class DraftPiece(Struct, frozen=True, omit_defaults=True):
    """What arrived since the last piece.

    `answer` counts the answers of the step before this one, and `start` the characters of its text.
    """

    kind: _Kind
    text: str
    start: int
    answer: int
    name: str | None = None
    call_id: str | None = field(default=None, name="callID")


class DraftBuffer:
    """Collects the deltas of an answer, and emits pieces at a pace that a page can follow.

    >>> pieces = []
    >>> buffer = DraftBuffer(pieces.append)
    >>> buffer.add_delta(TextDelta("Ye")), buffer.add_delta(TextDelta("s."))
    (None, None)
    >>> buffer.flush()
    >>> buffer.draft.text, [piece.text for piece in pieces]
    ('Yes.', ['Yes.'])
    """

    def __init__(self, emit: Callable[[DraftPiece], Any]) -> None:
        """Take the function that gets the pieces; it must not block."""
        self._emit = emit
        self._texts: dict[Any, _DraftText] = {}
        self._answer = 0
        self._news = anyio.Event()

    @property
    def draft(self) -> StepDraft:
        """What has arrived."""
        calls = tuple(
            DraftCall(each.call_id or "", each.name or "", each.text)
            for each in self._texts.values()
            if each.kind == "call"
        )
        return StepDraft(self._text_of("text"), self._text_of("reasoning"), calls, self._answer)

    def add_delta(self, delta: Delta) -> None:
        """Add one event of a model's stream."""
        if isinstance(delta, TextDelta):
            self._get_text("text").add(delta.text)
        elif isinstance(delta, ReasoningDelta):
            self._get_text("reasoning").add(delta.text)
        elif isinstance(delta, CallStarted):
            self._texts[delta.index] = _DraftText("call", delta.tool, delta.call_id)
        elif isinstance(delta, CallDelta) and delta.index in self._texts:
            self._texts[delta.index].add(delta.text)
        elif isinstance(delta, CallReady) and delta.index not in self._texts:
            self._texts[delta.index] = _DraftText("call", delta.tool, delta.call_id)
            self._texts[delta.index].add(delta.raw)
        else:
            return
        self._news.set()

    def add_text(self, text: str, name: str) -> None:
        """Add text that a member of a team writes."""
        self._texts.setdefault("text", _DraftText("text", name)).add(text)
        self._news.set()

    def clear(self) -> None:
        """Start a new draft: the answer is stored, or given up."""
        self.flush()
        self._answer += bool(self._texts)
        self._texts.clear()

    def flush(self) -> None:
        """Emit what is new now."""
        for text in self._texts.values():
            piece = text.take_new(self._answer)
            if piece is not None:
                self._emit(piece)

    async def emit_forever(self) -> None:
        """Emit what is new as it comes, until this is cancelled."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            self.flush()
            await anyio.sleep(_INTERVAL)

    def _text_of(self, kind: _Kind) -> str:
        return self._texts[kind].text if kind in self._texts else ""

    def _get_text(self, kind: _Kind) -> _DraftText:
        return self._texts.setdefault(kind, _DraftText(kind))


class _DraftText:
    """One text of a draft, and how much of it was emitted."""

    def __init__(self, kind: _Kind, name: str | None = None, call_id: str | None = None) -> None:
        self.kind: _Kind = kind
        self.name = name
        self.call_id = call_id
        self._pieces: list[str] = []
        self._new: list[str] = []
        self._emitted = 0
        self._is_new = kind == "call"  # a call is emitted when it begins, while it is still empty

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self._new.append(text)

    @property
    def text(self) -> str:
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    def take_new(self, answer: int) -> DraftPiece | None:
        text = "".join(self._new)
        if not (text or self._is_new):
            return None
        piece = DraftPiece(self.kind, text, self._emitted, answer, self.name, self.call_id)
        self._emitted += len(text)
        self._new.clear()
        self._is_new = False
        return piece
