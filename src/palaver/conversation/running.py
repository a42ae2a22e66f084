"""Tool calls at work: each one at most once, side by side, with a record at every turn.

Before a tool is touched its call is written down as running, with the arguments that the tool gets;
when it is done the outcome is written down; when all of them are, the results are appended in the
order of the calls, in one change. So a crash at any moment leaves a ledger that says what may have
run, and nothing runs twice unless its tool says that it may. A call that is not the one that was
approved does not run.
"""

from __future__ import annotations

import traceback
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palaver.conversation.cancellation import AtTheEnd, at_last, shielded
from palaver.conversation.holding import while_held
from palaver.conversation.ledger import Entry
from palaver.conversation.progress import Progress
from palaver.conversation.tools.base import ToolContext, ToolOutput
from palaver.conversation.tools.outputs import as_output, fit_text
from palaver.conversation.watching import UNWATCHED
from palaver.errors import PalaverError, ValidationError
from palaver.events import Event
from palaver.messages import (
    Message,
    ToolCallPart,
    ToolRunning,
    ToolState,
    complete,
    expire,
    fail,
    start,
)
from palaver.messages.gate import EMPTY
from palaver.messages.ids import now_ms
from palaver.messages.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from palaver.conversation.desk import Desk
    from palaver.conversation.tools.base import Around, Executor, Tool
    from palaver.conversation.watching import Watch
    from palaver.events import Events
    from palaver.stores.records import Lease

    _Taken: TypeAlias = tuple[Lease, dict[str, Entry], dict[str, Entry], list[Entry]]

__all__ = ["Limits", "Outcome", "Runner"]

_Given: TypeAlias = "Callable[[Mapping[str, Any]], Awaitable[Entry]]"
"""Records the arguments that a tool is about to get, where they are not the call's own."""
_TOGETHER: Final = 0.002
"""How long a result waits for others, in seconds, before it is written down by itself."""
_CUT: Final = "\n[… {left:,} more characters were left out]"


class Limits(Struct, frozen=True):
    """How long a call may take, how many run at once, how much text a result may have."""

    seconds: float = 600.0
    at_once: int = 16
    output: int = 1_000_000


class Outcome(Struct, frozen=True):
    """What became of a call; `message` is None where the call has left the conversation."""

    call: ToolCallPart
    state: ToolState
    message: Message | None

    @property
    def failed(self) -> bool:
        """Tell whether it failed."""
        return self.state.status == "error"

    @property
    def text(self) -> str:
        """What the model is told."""
        return str(getattr(self.state, "error" if self.failed else "output", ""))


class Runner:
    """Runs the calls of one conversation."""

    def __init__(
        self,
        desk: Desk,
        events: Events,
        tools: Mapping[str, Tool],
        *,
        limits: Limits,
        executor: Executor | None,
        watch: Watch = UNWATCHED,
        around: Around | None = None,
    ) -> None:
        """Run calls with these tools, or with an executor that knows better."""
        self._desk = desk
        self._events = events
        self._tools = tools
        self._limits = limits
        self._executor = executor
        self._watch = watch
        self._around = around

    async def run(
        self, calls: Sequence[ToolCallPart], approved: Mapping[str, str] = EMPTY
    ) -> list[Outcome]:
        """Run calls side by side; answer in their order. `approved` are digests, by their ids."""
        desk = self._desk
        taken = await shielded(partial(self._take, calls, approved), undo=self._put_back)
        lease, entries, done, _ = taken
        async with AtTheEnd(partial(desk.let_go, lease), needed=partial(desk.is_held, lease)):
            try:
                for entry in entries.values():
                    await self._tell(entry)
            except BaseException as error:
                await at_last(error, partial(self._put_back, taken))
                raise
            fresh, appended, strays = await while_held(
                desk, lambda: self._concluded(calls, entries, done, lease)
            )
        ready = [*fresh, *done.values()]
        for entry in fresh:
            await self._tell(entry)
        for message in appended:
            await self._added(message)
        messages = {message.id: message for message in appended}
        left = {entry.id for entry in strays}
        settled = {entry.id: entry for entry in ready}
        return [
            Outcome(
                call,
                settled[call.id].state,
                None if call.id in left else messages.get(settled[call.id].message().id),
            )
            for call in calls
        ]

    def _take(self, calls: Sequence[ToolCallPart], approved: Mapping[str, str]) -> _Taken:
        """Write the calls down as running; those that are done already only want their place."""
        lease = self._desk.hold()
        try:
            known = self._desk.open_calls(calls, approved)
            done = {name: entry for name, entry in known.items() if entry.done}
            _refuse_running(known.values())
            fresh = {
                name: entry.moved(start(entry.state), idempotent=self._may_repeat(entry.tool))
                for name, entry in known.items()
                if not entry.done
            }
            self._desk.note(fresh.values(), lease)
        except BaseException:
            self._desk.let_go(lease)
            raise
        return lease, fresh, done, [known[name] for name in fresh]

    def _put_back(self, taken: _Taken) -> None:
        """Undo `_take`: no tool was touched, so the calls wait as before."""
        lease, _, _, waiting = taken
        try:
            self._desk.note(waiting, lease)
        finally:
            self._desk.let_go(lease)

    async def _concluded(
        self,
        calls: Sequence[ToolCallPart],
        entries: dict[str, Entry],
        done: dict[str, Entry],
        lease: Lease,
    ) -> tuple[list[Entry], list[Message], list[Entry]]:
        """Run the calls and append their results: what ran, what was appended, what was not."""
        outcomes = await self._all(calls, entries, lease)
        fresh = [outcomes[call.id] for call in calls if call.id in outcomes]
        ready = [*fresh, *done.values()]
        return fresh, *await shielded(partial(self._conclude, ready, lease))

    def _conclude(self, ready: Sequence[Entry], lease: Lease) -> tuple[list[Message], list[Entry]]:
        """Append the results; others may work on the conversation then."""
        try:
            return self._desk.conclude(ready, lease)
        finally:
            self._desk.let_go(lease)

    def _may_repeat(self, name: str) -> bool:
        tool = self._tools.get(name)
        return tool is not None and tool.idempotent

    async def _all(
        self, calls: Sequence[ToolCallPart], entries: dict[str, Entry], lease: Lease
    ) -> dict[str, Entry]:
        outcomes, unnoted, everyone = dict[str, Entry](), dict[str, Entry](), anyio.Event()
        slots = anyio.Semaphore(max(1, self._limits.at_once), fast_acquire=True)

        async def given(name: str, arguments: Mapping[str, Any]) -> Entry:
            """Record other arguments than the call's before a tool gets them."""
            entry = entries[name]
            entries[name] = entry = entry.moved(replace(entry.state, input=arguments))
            await shielded(partial(self._desk.note, [entry], lease))
            return entry

        async def one(call: ToolCallPart, entry: Entry) -> None:
            try:
                async with slots:
                    state = await self._watched(call, entry, partial(given, entry.id))
            except anyio.get_cancelled_exc_class():
                entry = entries[entry.id]
                outcomes[entry.id] = entry.moved(fail(entry.state, "cancelled"))
                raise
            outcomes[entry.id] = unnoted[entry.id] = entry.moved(state)
            if len(outcomes) == len(entries):
                everyone.set()
            with anyio.move_on_after(_TOGETHER, shield=True):
                await everyone.wait()  # what is done at once is kept at once, with the results
                return
            noted = list(unnoted.values())
            unnoted.clear()
            if noted:
                await shielded(partial(self._desk.note, noted, lease))

        try:
            async with anyio.create_task_group() as group:
                for call in calls:
                    if call.id in entries:
                        group.start_soon(one, call, entries[call.id])
        except anyio.get_cancelled_exc_class():
            for name, entry in entries.items():
                outcomes.setdefault(name, entry.moved(fail(entry.state, "cancelled")))
            await shielded(partial(self._desk.conclude, list(outcomes.values()), lease))
            raise
        return outcomes

    async def _watched(self, call: ToolCallPart, entry: Entry, given: _Given) -> ToolState:
        tool = self._tools.get(call.tool)
        spec = None if tool is None else tool.spec
        with self._watch.call(self._desk.history.id, call, spec) as ended:
            state = await self._one(call, entry, given)
            ended(state)
        return state

    async def _one(self, call: ToolCallPart, entry: Entry, given: _Given) -> ToolState:
        limit = self._limits.seconds
        tool = self._tools.get(call.tool)
        if tool is not None and tool.timeout is not None:
            limit = tool.timeout
        progress, output = Progress(partial(self._progress, entry)), None
        context = ToolContext(self._desk.history.id, call, progress)

        async def run(chosen: ToolCallPart) -> ToolOutput:
            nonlocal entry
            if (chosen.id, chosen.call_id, chosen.tool) != (call.id, call.call_id, call.tool):
                detail = "another call may not run in its place, only other arguments"
                raise ValidationError(detail, path="$.calls", rule="CV-05")
            if chosen.input != call.input:
                entry = await given(chosen.input)
            return await self._call(tool, chosen, context)

        try:
            with anyio.move_on_after(limit):
                output = as_output(await self._let(run, call, context), context)
            return self._settled(call, entry.state, output, round(limit * 1_000))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - what a tool raises is its result
            return fail(entry.state, self._cut(_words(error)))
        finally:
            progress.stop()

    def _settled(
        self, call: ToolCallPart, state: ToolState, output: ToolOutput | None, limit: int
    ) -> ToolState:
        if output is None:
            # whatever the clock says, the time is up
            since = state.time.start if isinstance(state, ToolRunning) else 0
            return expire(state, limit_ms=limit, at=max(now_ms(), since + limit))
        return complete(
            state,
            self._cut(output.text),
            tool=call.tool,
            title=output.title,
            metadata=output.metadata,
            attachments=output.attachments,
        )

    async def _let(
        self,
        run: Callable[[ToolCallPart], Awaitable[ToolOutput]],
        call: ToolCallPart,
        context: ToolContext,
    ) -> ToolOutput:
        """Run a call, or leave it to whoever stands around it."""
        if self._around is None:
            return await run(call)
        return await self._around(call, context, run)

    async def _call(
        self, tool: Tool | None, call: ToolCallPart, context: ToolContext
    ) -> ToolOutput:
        if self._executor is not None:
            return await self._executor(call, context)
        if tool is None:
            known = ", ".join(sorted(self._tools)) or "none"
            raise ValidationError(f"there is no tool {call.tool!r}; there are: {known}")
        return await tool.call(_arguments(call), context)

    def _cut(self, text: str) -> str:
        most = self._limits.output
        if len(text) <= most:
            return text
        return text[:most] + _CUT.format(left=len(text) - most)

    def _progress(self, entry: Entry, title: str, metadata: Mapping[str, Any]) -> None:
        data = {**_about(entry), "title": title, "metadata": dict(metadata)}
        self._events.emit(self._event("tool.running", data))

    async def _tell(self, entry: Entry) -> None:
        name: Any = f"tool.{entry.state.status}"
        if self._events.wanted(name):
            data = {**_about(entry), "state": msgspec.to_builtins(entry.state)}
            await self._events.publish(self._event(name, data))

    async def _added(self, message: Message) -> None:
        if self._events.wanted("message.added"):
            data = {"id": message.id, "role": message.role}
            await self._events.publish(self._event("message.added", data))

    def _event(self, name: Any, data: Mapping[str, Any]) -> Event:  # noqa: ANN401 - a Name
        history = self._desk.history
        return Event(name, history.id, history.version, data)


def _words(error: BaseException) -> str:
    """What the model is told of an error: palaver's own words, or Python's, without secrets."""
    if isinstance(error, PalaverError) and str(error).strip():
        return fit_text(redact(str(error)))
    return fit_text(redact("".join(traceback.format_exception_only(error)).strip()))


def _refuse_running(entries: Iterable[Entry]) -> None:
    running = [entry for entry in entries if entry.state.status == "running"]
    if running:
        names = ", ".join(f"{entry.tool} ({entry.call_id})" for entry in running)
        detail = f"under way already, or cut off: {names}; recover() settles them"
        raise ValidationError(detail, path="$.calls", rule="CV-06")


def _about(entry: Entry) -> dict[str, Any]:
    return {"id": entry.id, "callID": entry.call_id, "tool": entry.tool}


def _arguments(call: ToolCallPart) -> Mapping[str, Any]:
    """A call's arguments; the model may have written something else than a JSON object."""
    if call.raw.strip() and not call.input:
        try:
            found = msgspec.json.decode(call.raw)
        except msgspec.DecodeError as error:
            detail = f"the arguments are no JSON: {error}"
            raise ValidationError(detail, path="$.arguments", rule="CV-05") from None
        if not isinstance(found, dict):
            detail = "the arguments must be a JSON object"
            raise ValidationError(detail, path="$.arguments", rule="CV-05")
    return call.input
