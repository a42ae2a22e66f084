"""A step: one request to a model, its stored answer, and the tool calls of that answer.

The intent to ask is stored before the model is asked, and the answer with its usage in one change.
Calls run side by side, each at most once: the state running, with the arguments that the tool gets,
is stored before a tool is called; the outcome is stored when the call is done; when all are done,
the results are appended in the order of the calls, in one change. So a crash at any moment leaves a
ledger that says what may have run, and nothing runs twice unless its tool says that it may. A call
that differs from the approved one does not run.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
from contextlib import aclosing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import anyio
import msgspec
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from palaver import wire
from palaver.conversation.ledger import LedgerEntry, pending_entries
from palaver.conversation.prompt_cache import CacheUse, cache_use_of
from palaver.conversation.telemetry import observe
from palaver.conversation.usage import Usage
from palaver.errors import LeaseLost, OutputTooLong, StoreError, ValidationError
from palaver.events import Event
from palaver.messages import (
    AssistantInfo,
    CacheCounts,
    Message,
    TokenCounts,
    ToolCallPart,
    ToolState,
    UserInfo,
    fail,
    start,
    text_part,
)
from palaver.messages.ids import uuid_for
from palaver.messages.limits import (
    EMPTY,
    MAX_ANSWER,
    short_repr,
)
from palaver.messages.message import MAX_PARTS, WorkingPath
from palaver.messages.parts import RetryPart, retry_part, step_finish_part, step_start_part
from palaver.models.base import ModelRequest
from palaver.models.retry import ON_RETRY
from palaver.stores.lease import OnExit, clean_up, run_shielded
from palaver.tools.runner import MiddlewareFailed
from palaver.wire import Note

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from palaver.conversation.store_access import OpenStep, StoreAccess
    from palaver.errors import ModelError
    from palaver.models.base import Model
    from palaver.wire import ToolSpec
    from palaver.wire.reply import Delta

__all__ = ["OnDelta", "Step", "ToolCallBatch", "ToolOutcome", "take_step"]


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from anyio.abc import TaskGroup

    from palaver.conversation.store_access import StoreAccess
    from palaver.conversation.telemetry import Instrumentation
    from palaver.events import EventBus
    from palaver.history import View
    from palaver.stores.records import Lease, Record
    from palaver.tools.runner import ToolRunner


_BATCH_SECONDS: Final = 0.002
"""How long an outcome waits for others before it is stored by itself."""
_PROGRESS_SECONDS: Final = 0.05
"""How long a report of progress waits for others before it is stored."""


class ToolOutcome(Struct, frozen=True):
    """What became of a call; `message` is None if the call has left the conversation.

    `traceback` says where the tool failed, if it raised an error just now. It is for the developer:
    it is not stored, and no model gets it.
    """

    call: ToolCallPart
    state: ToolState
    message: Message | None
    traceback: str = ""

    __repr__ = short_repr

    @property
    def failed(self) -> bool:
        """Whether the call failed."""
        return self.state.status == "error"

    @property
    def text(self) -> str:
        """The text that the model gets."""
        return str(getattr(self.state, "error" if self.failed else "output", ""))


class _Started(NamedTuple):
    """Calls that are stored as running.

    `running` and `done` are entries by the id of their part; `before` are the entries of the
    running ones as they were before. `tracebacks` has those of the calls that have failed since,
    `errors` what was raised around the calls.
    """

    lease: Lease
    running: dict[str, LedgerEntry]
    done: dict[str, LedgerEntry]
    before: list[LedgerEntry]
    tracebacks: dict[str, str]
    errors: list[BaseException]


class ToolCallBatch:
    """Runs tool calls of one conversation side by side, and appends their results."""

    def __init__(
        self,
        access: StoreAccess,
        events: EventBus,
        runner: ToolRunner,
        instrumentation: Instrumentation | None = None,
    ) -> None:
        """Run calls with a runner; store what becomes of them, and publish it as events."""
        self._access = access
        self._events = events
        self._runner = runner
        self._instrumentation = instrumentation
        self._late = dict[str, LedgerEntry]()  # with results that came after a timeout
        self._late_lock = threading.Lock()
        self._appended = False

    async def run(
        self,
        calls: Sequence[ToolCallPart],
        approved: Mapping[str, str] = EMPTY,
        metadata: Mapping[str, Mapping[str, Any]] = EMPTY,
        records: Sequence[Record] = (),
    ) -> list[ToolOutcome]:
        """Run calls and return their outcomes in order.

        By the ids of calls, `approved` are their digests, and `metadata` what is stored with them
        from their start on. `records` are stored when they are started.
        """
        access = self._access
        start_calls = partial(self._start, calls, approved, metadata, records)
        started = await access.lease.patiently(
            lambda: run_shielded(start_calls, undo=self._undo_start)
        )
        lease = started.lease
        release, holds = partial(access.lease.release, lease), partial(access.lease.holds, lease)
        async with OnExit(release, needed=holds):
            try:
                for entry in started.running.values():
                    await self._publish_state(entry)
            except BaseException as error:
                await clean_up(error, partial(self._undo_start, started))
                raise
            settled, appended, strays = await access.lease.keep_renewed(
                lambda: self._run_and_append(calls, started)
            )
        for name in started.running:
            await self._publish_state(settled[name])
        for message in appended:
            await self._publish("message.added", {"id": message.id, "role": message.role})
        if started.errors:
            raise started.errors[0]
        messages = {message.id: message for message in appended}
        left = {entry.id for entry in strays}
        return [
            ToolOutcome(
                call,
                settled[call.id].state,
                None if call.id in left else messages.get(settled[call.id].message().id),
                started.tracebacks.get(call.id, ""),
            )
            for call in calls
        ]

    # ── the store ───────────────────────────────────────────────────────────────────────────────

    def _start(
        self,
        calls: Sequence[ToolCallPart],
        approved: Mapping[str, str],
        metadata: Mapping[str, Mapping[str, Any]],
        records: Sequence[Record],
    ) -> _Started:
        """Store the calls as running; of those that are done already, only results are missing."""
        access = self._access
        work = access.begin_calls()
        lease = work.lease
        try:
            known = access.open_calls(work, calls, approved)
            done = {name: entry for name, entry in known.items() if entry.done}
            _refuse_running(known.values())
            running = {
                name: entry.with_state(
                    start(entry.state, metadata=metadata.get(name, EMPTY)),
                    idempotent=self._may_repeat(entry.tool),
                )
                for name, entry in known.items()
                if not entry.done
            }
            access.save_entries(running.values(), lease, records)
        except BaseException:
            access.lease.release(lease)
            raise
        return _Started(lease, running, done, [known[name] for name in running], {}, [])

    def _undo_start(self, started: _Started) -> None:
        """Undo `_start`: no tool was called, so the calls are pending as before."""
        try:
            self._access.save_entries(started.before, started.lease)
        finally:
            self._access.lease.release(started.lease)

    def _append_results(
        self, finished: Sequence[LedgerEntry], lease: Lease
    ) -> tuple[dict[str, LedgerEntry], list[Message], list[LedgerEntry]]:
        """Append the results and release the lease."""
        try:
            with self._access.announcer.silently():  # `run` publishes them, in the event loop
                return self._append(finished, lease)
        finally:
            self._access.lease.release(lease)

    def _append(
        self, finished: Sequence[LedgerEntry], lease: Lease
    ) -> tuple[dict[str, LedgerEntry], list[Message], list[LedgerEntry]]:
        """Append the results, each with what came after its timeout."""
        with self._late_lock:
            settled = {entry.id: self._late.get(entry.id, entry) for entry in finished}
            try:
                return settled, *self._access.append_results([*settled.values()], lease, last=True)
            finally:
                self._appended = True

    def _add_late_result(self, entry: LedgerEntry, state: ToolState) -> None:
        """Store the result of a call that has timed out, with its error or beside it."""
        entry = entry.with_state(state)
        with self._late_lock:
            if not self._appended:
                self._late[entry.id] = entry
                return
        try:
            stored = self._access.save_late_result(entry)
        except Exception:  # noqa: BLE001 - it is a tool's thread, and nobody waits for it
            detail = "a result of %s (call %s) came too late to be stored"
            _log.warning(detail, entry.tool, entry.call_id, exc_info=True)
            return
        if stored:
            data = {**_about(entry), "state": msgspec.to_builtins(state)}
            self._events.emit(self._event("tool.error", data))

    def _may_repeat(self, name: str) -> bool:
        tool = self._runner.tools.get(name)
        return tool is not None and tool.idempotent

    # ── the calls ───────────────────────────────────────────────────────────────────────────────

    async def _run_and_append(
        self, calls: Sequence[ToolCallPart], started: _Started
    ) -> tuple[dict[str, LedgerEntry], list[Message], list[LedgerEntry]]:
        """Run the calls and append results: the entries by id, the messages, and the strays."""
        outcomes = await self._run_all(calls, started)
        finished = [outcomes[call.id] for call in calls if call.id in outcomes]
        results = [*finished, *started.done.values()]
        return await run_shielded(partial(self._append_results, results, started.lease))

    async def _run_all(
        self, calls: Sequence[ToolCallPart], started: _Started
    ) -> dict[str, LedgerEntry]:
        group = anyio.create_task_group()
        save = partial(self._access.save_entries, lease=started.lease)
        states = _RunningStates(started.running, save, group)
        slots = anyio.Semaphore(max(1, self._runner.limits.at_once), fast_acquire=True)
        before = {entry.id: entry for entry in started.before}

        async def run_one(call: ToolCallPart) -> None:
            async with slots:
                on_failure = partial(started.tracebacks.__setitem__, call.id)
                try:
                    state = await self._run_call(call, states, on_failure)
                except MiddlewareFailed as failed:  # the caller's own error
                    started.errors.append(failed.error)
                    state = failed.state
            if state.status == "running":  # its tool was not begun
                await states.wait_again(call.id, before[call.id])
            else:
                await states.finish(call.id, state)

        try:
            async with group:
                for call in calls:
                    if call.id in before:
                        group.start_soon(run_one, call)
        except anyio.get_cancelled_exc_class():
            outcomes = states.cancel()
            await run_shielded(partial(self._append, list(outcomes.values()), started.lease))
            raise
        except ExceptionGroup as errors:  # the store failed, or the lease was lost
            raise errors.exceptions[0] from None
        return states.cancel()  # `around` may have raised the error of a cancellation by itself

    async def _run_call(
        self, call: ToolCallPart, states: _RunningStates, on_failure: Callable[[str], None]
    ) -> ToolState:
        tool = self._runner.tools.get(call.tool)
        spec = None if tool is None else tool.spec
        conversation, entry = self._access.history.id, states.running[call.id]

        def record_progress(title: str, metadata: Mapping[str, Any]) -> ToolState:
            data = {**_about(entry), "title": title, "metadata": dict(metadata)}
            self._events.emit(self._event("tool.running", data))
            return states.record_progress(call.id, title, metadata)

        observed: AbstractContextManager[Callable[[ToolState], None] | None] = nullcontext()
        if self._instrumentation is not None:
            observed = observe(partial(self._instrumentation.call, conversation, call, spec))
        with observed as on_end:
            state = await self._runner.run(
                call,
                entry.state,
                conversation=conversation,
                record_arguments=partial(states.record_arguments, call.id),
                record_progress=record_progress,
                on_failure=on_failure,
                on_late=partial(self._add_late_result, entry),
            )
            if on_end is not None:
                on_end(state)
        return state

    # ── events ──────────────────────────────────────────────────────────────────────────────────

    async def _publish_state(self, entry: LedgerEntry) -> None:
        name: Any = f"tool.{entry.state.status}"
        if self._events.wanted(name):
            data = {**_about(entry), "state": msgspec.to_builtins(entry.state)}
            await self._events.publish(self._event(name, data))

    async def _publish(self, name: Any, data: Mapping[str, Any]) -> None:  # noqa: ANN401 - a Name
        if self._events.wanted(name):
            await self._events.publish(self._event(name, data))

    def _event(self, name: Any, data: Mapping[str, Any]) -> Event:  # noqa: ANN401 - a Name
        history = self._access.history
        return Event(name, history.id, history.version, data)


class _RunningStates:
    """The states of calls that run side by side, each stored soon after it is known.

    The last outcome of all is not stored here but with the results. `running` are the entries of
    the calls by their ids, `outcomes` those of the calls that are done.
    """

    def __init__(
        self,
        running: dict[str, LedgerEntry],
        save: Callable[[list[LedgerEntry]], None],
        group: TaskGroup,
    ) -> None:
        self.running = running
        self.outcomes = dict[str, LedgerEntry]()
        self._save = save
        self._group = group
        self._unsaved = set[str]()
        self._saving = anyio.Lock()  # or a state could be stored over the one that follows it
        self._all_done = anyio.Event()
        self._has_reports = False

    async def record_arguments(self, name: str, arguments: Mapping[str, Any]) -> ToolState:
        """Store other arguments than the call's before a tool gets them."""
        entry = self.running[name]
        self.running[name] = entry.with_state(replace(entry.state, input=arguments))
        self._unsaved.add(name)
        await self._flush()
        return self.running[name].state

    def record_progress(self, name: str, title: str, metadata: Mapping[str, Any]) -> ToolState:
        """Take what a running call reports; it is stored soon, with what else is reported."""
        self.running[name] = entry = self.running[name].with_progress(title, metadata)
        self._unsaved.add(name)
        if not self._has_reports:
            self._has_reports = True
            self._group.start_soon(self._flush_reports)
        return entry.state

    async def _flush_reports(self) -> None:
        with anyio.move_on_after(_PROGRESS_SECONDS):
            await self._all_done.wait()
            return
        self._has_reports = False
        await self._flush_early()

    async def finish(self, name: str, state: ToolState) -> None:
        """Take the state that a call ends in; what is done at once is stored at once."""
        self.outcomes[name] = self.running[name].with_state(state)
        self._unsaved.add(name)
        self._look_for_the_end()
        with anyio.move_on_after(_BATCH_SECONDS, shield=True):
            await self._all_done.wait()
            return
        await self._flush_early()

    async def wait_again(self, name: str, before: LedgerEntry) -> None:
        """Store a call that was not begun after all as it was before."""
        async with self._saving:
            del self.running[name]
            self._unsaved.discard(name)
            self._look_for_the_end()
            with _logged_failure():
                await run_shielded(partial(self._save, [before]))

    def _look_for_the_end(self) -> None:
        if len(self.outcomes) == len(self.running):
            self._all_done.set()

    async def _flush_early(self) -> None:
        """Store what will be stored with the results too: if it fails, the calls go on."""
        with _logged_failure():
            await self._flush()

    async def _flush(self) -> None:
        async with self._saving:
            entries = [self.outcomes.get(name, self.running[name]) for name in self._unsaved]
            self._unsaved.clear()
            if entries:
                await run_shielded(partial(self._save, entries))

    def cancel(self) -> dict[str, LedgerEntry]:
        """End the calls that have no outcome, and return the outcomes of all."""
        for name, entry in self.running.items():
            self.outcomes.setdefault(name, entry.with_state(fail(entry.state, "cancelled")))
        return self.outcomes


@contextmanager
def _logged_failure() -> Generator[None]:
    """Log that a state was not stored. Without it, only a crash would lose something."""
    try:
        yield
    except LeaseLost:
        raise
    except StoreError:
        _log.warning("the state of a tool call was not stored", exc_info=True)


def _refuse_running(entries: Iterable[LedgerEntry]) -> None:
    running = [entry for entry in entries if entry.state.status == "running"]
    if running:
        names = ", ".join(f"{entry.tool} ({entry.call_id})" for entry in running)
        detail = f"under way already, or cut off: {names}; recover() settles them"
        raise ValidationError(detail, path="$.calls", rule="calls-running")


def _about(entry: LedgerEntry) -> dict[str, Any]:
    return {"id": entry.id, "callID": entry.call_id, "tool": entry.tool}


OnDelta: TypeAlias = "Callable[[Delta], Awaitable[None] | None]"
"""A plain or async function that gets each piece of an answer as it arrives."""

_AGENT: Final = "assistant"
"""The agent of an answer where the user's message names none."""
_LOOKBACK: Final = 20
_UNKNOWN: Final = "unknown"
_NO_TOKENS: Final = TokenCounts(0, 0, 0, CacheCounts())
_log: Final = logging.getLogger("palaver.conversation")
DRAFT_SECONDS: Final = 1.0
"""The time between drafts, in seconds: what a crash may cost of an answer."""
DRAFT_BYTES: Final = 64 * 1024
"""The size from which on a draft waits until the answer has grown by an eighth: a draft holds the
complete answer so far, and all drafts together shall write no more than a few times its size."""


class Step(Struct, frozen=True):
    """The result of one step: the answer, the calls it makes, and the usage.

    `notes` says what was repaired in the conversation, or left out, for the request. `again` means
    that no model was asked: the step of this key had its answer already.
    """

    message: Message
    usage: Usage
    notes: tuple[Note, ...]
    entries: tuple[LedgerEntry, ...] = ()
    again: bool = False

    __repr__ = short_repr

    @property
    def calls(self) -> tuple[ToolCallPart, ...]:
        """The tool calls, in order."""
        return tuple(part for part in self.message.parts if isinstance(part, ToolCallPart))

    @property
    def text(self) -> str:
        """The text of the answer."""
        return self.message.text

    @property
    def cache(self) -> CacheUse | None:
        """What the provider was expected to read from its cache, and what it read."""
        return cache_use_of(self.message)


async def take_step(
    access: StoreAccess,
    model: Model,
    tools: tuple[ToolSpec, ...],
    *,
    options: Mapping[str, Any],
    on_delta: OnDelta | None,
    add_cost: Callable[[Message], Message],
    key: str | None = None,
    on_begin: Callable[[str], object] | None = None,
) -> Step:
    """Take one step; `add_cost` adds the cost that the provider left out of its answer.

    `on_begin` is given the id that the answer will have, before the model is asked.
    """
    target = replace(model.target, model=model.ref)
    begin = partial(access.begin_step, model.format, target, key, tools=tools, options=options)
    begun = await access.lease.patiently(lambda: run_shielded(begin, undo=access.withdraw))
    if isinstance(begun, Message):
        usage = await to_thread.run_sync(access.usage)
        return Step(begun, usage, (), tuple(pending_entries(begun)), again=True)
    lease = begun.lease
    release, holds = partial(access.lease.release, lease), partial(access.lease.holds, lease)
    async with OnExit(release, needed=holds):
        incoming: _IncomingAnswer | None = None
        try:
            names = {**wire.FORMATS[model.format].own_names(tools), **begun.request.names}
            request = ModelRequest(
                begun.request.body, tools, names, options, begun.cache_key, begun.request.compacted
            )
            incoming = _IncomingAnswer(access, begun, model, names, on_delta)
            if on_begin is not None:
                on_begin(incoming.fold.answer.id)
            await access.lease.keep_renewed(partial(incoming.receive, request))
        except BaseException as error:
            if isinstance(error, Exception):
                _log.error("asking %s failed: %s", model.ref.model_id, error)
            await clean_up(error, partial(_store_partial, access, begun, incoming, add_cost))
            raise
        finish = partial(_store_answer, access, begun, incoming, add_cost)
        message, usage, entries = await run_shielded(finish)
    return Step(message, usage, begun.request.notes, entries)


class _IncomingAnswer:
    """An answer as it arrives."""

    def __init__(
        self,
        access: StoreAccess,
        step: OpenStep,
        model: Model,
        names: Mapping[str, str],
        on_delta: OnDelta | None,
    ) -> None:
        self._access = access
        self._step = step
        self._model = model
        self._on_delta = on_delta
        self.fold = wire.FORMATS[model.format].reply_reader(
            model=model.ref,
            session=uuid_for(access.history.id),
            names=names,
            limit=MAX_ANSWER,
        )
        self.retries: list[RetryPart] = []

    async def receive(self, request: ModelRequest) -> None:
        """Send the request and take in the answer, piece by piece; store drafts now and then.

        An answer that is longer than `MAX_ANSWER` is cut off there with `OutputTooLong`.
        """
        token = ON_RETRY.set(self._note_retry)
        try:
            await self._receive(request)
        finally:
            ON_RETRY.reset(token)

    def _note_retry(self, error: ModelError) -> None:
        session, owner = uuid_for(self._access.history.id), uuid_for(self.fold.answer.id)
        about = {"name": type(error).__name__, "message": error.detail}
        self.retries.append(retry_part(session, owner, len(self.retries) + 1, about))

    async def _receive(self, request: ModelRequest) -> None:
        stored, due = time.monotonic(), 0
        answer = self.fold.answer
        async with aclosing(self._model.stream(request)) as events:
            async for event in events:
                for delta in self.fold.feed(event):
                    await self._report(delta)
                if answer.over_limit:
                    detail = f"the answer is longer than {MAX_ANSWER:,} bytes, and was cut off"
                    answer.cut(OutputTooLong.__name__, detail)
                    raise OutputTooLong(detail, provider=self._model.ref.provider_id)
                if answer.size >= due and time.monotonic() - stored > DRAFT_SECONDS:
                    due = answer.size + (answer.size // 8 if answer.size > DRAFT_BYTES else 0)
                    await to_thread.run_sync(self._store_draft)
                    stored = time.monotonic()

    async def _report(self, delta: Delta) -> None:
        """Call `on_delta`; what it raises is logged, and it is not called again."""
        if self._on_delta is None:
            return
        try:
            handled = self._on_delta(delta)
            if inspect.isawaitable(handled):
                await handled
        except Exception:  # noqa: BLE001 - who watches an answer must not cut it off
            self._on_delta = None
            _log.exception("on_delta failed; it is not called again in this step")

    def _store_draft(self) -> None:
        """Store what has arrived. Without a draft, only a crash would lose something."""
        try:
            self._access.save_draft(self._step, self.message(interrupted=True))
        except LeaseLost:
            raise
        except StoreError:
            _log.warning("a draft of an answer was not stored", exc_info=True)

    def message(self, *, interrupted: bool | None = None) -> Message:
        """Return the answer so far; without its usage, if the provider's figures can't be true."""
        try:
            return self.fold.message(interrupted=interrupted)
        except ValidationError:
            _log.warning("the usage of an answer can't be true and is left out", exc_info=True)
            self.fold.answer.usage(EMPTY, TokenCounts(0, 0, 0, CacheCounts()), None)
            return self.fold.message(interrupted=interrupted)


def _store_answer(
    access: StoreAccess,
    step: OpenStep,
    incoming: _IncomingAnswer,
    add_cost: Callable[[Message], Message],
) -> tuple[Message, Usage, tuple[LedgerEntry, ...]]:
    """Store the complete answer."""
    describe = partial(_describe_step, access, add_cost, incoming.retries)
    return access.finish_step(step, incoming.message(), describe)


def _store_partial(
    access: StoreAccess,
    step: OpenStep,
    incoming: _IncomingAnswer | None,
    add_cost: Callable[[Message], Message],
) -> None:
    """Store what had arrived of an answer that was cut off, marked as interrupted."""
    message = None if incoming is None else incoming.message(interrupted=True)
    if message is not None and (message.content or "incompleteCalls" in message.metadata):
        retries = () if incoming is None else incoming.retries
        describe = partial(_describe_step, access, add_cost, retries)
        access.finish_step(step, message, describe, complete=False)
    else:
        access.abandon_step(step)


# ── what a step says of itself ──────────────────────────────────────────────────────────────────


def _describe_step(
    access: StoreAccess,
    add_cost: Callable[[Message], Message],
    retries: Sequence[RetryPart],
    message: Message,
) -> Message:
    """Return an answer with its cost, and with what the step says of itself.

    Nothing here may keep an answer from being stored.
    """
    message = add_cost(message)
    try:
        return describe_step(message, access.history.id, _agent(access.history.view), retries)
    except Exception:  # noqa: BLE001 - a paid answer without its step parts is better than none
        _log.exception("the step of %s could not be described", message.id)
        return message


def _agent(view: View) -> str:
    """Return the agent that the user's last message is for, or that answered it before."""
    for message in reversed(view[-_LOOKBACK:]):
        if isinstance(message.info, UserInfo | AssistantInfo) and message.info.agent:
            return message.info.agent
        if message.role == "user":
            break
    return _AGENT


def describe_step(
    message: Message, conversation: str, agent: str = _AGENT, retries: Sequence[RetryPart] = ()
) -> Message:
    """Return an answer between `step-start` and `step-finish`, with its agent, mode and path.

    The path is where this program works; `retries` are the requests that failed before the answer.

    >>> from palaver.messages import AssistantInfo, assistant
    >>> answer = assistant("4,810 m", info=AssistantInfo(finish="stop"))
    >>> described = describe_step(answer, "talk")
    >>> [part.type for part in described.parts], described.text, described.info.agent
    (['step-start', 'text', 'step-finish'], '4,810 m', 'assistant')
    """
    info = message.info if isinstance(message.info, AssistantInfo) else AssistantInfo()
    agent = info.agent or agent
    session, owner = uuid_for(conversation), uuid_for(message.id)
    parts = message.parts
    if isinstance(message.content, str) and message.content:
        parts = (text_part(session, owner, message.content),)
    if len(parts) + len(retries) + 2 <= MAX_PARTS:
        parts = (
            step_start_part(session, owner),
            *retries,
            *parts,
            step_finish_part(
                session, owner, info.finish or _UNKNOWN, info.cost, info.tokens or _NO_TOKENS,
                cost_computed=info.cost_computed,
            ),
        )  # fmt: skip
    described = replace(info, agent=agent, mode=info.mode or agent, path=info.path or _path())
    return replace(message, content=parts or message.content, info=described)


def _path() -> WorkingPath | None:
    """Return the working directory and the root of its project; None if it has been deleted."""
    try:
        cwd = Path.cwd()
        root = next((path for path in (cwd, *cwd.parents) if (path / ".git").exists()), cwd)
    except OSError:
        return None
    return WorkingPath(str(cwd), str(root))
