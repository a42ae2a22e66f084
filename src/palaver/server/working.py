"""Steps at work: a model is asked, tools run, and whoever looks on is told as it happens.

A conversation has one step at a time, the server a few. A step is a task of the server and not of
the request that began it: a page may be closed meanwhile. Stopping one keeps what had arrived. What
a step does is stored by the conversation itself; here is only what is gone when the process ends.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import to_thread
from msgspec import UNSET
from msgspec.structs import replace

from palaver.conversation.desk import DRAFT, STEP, Intent
from palaver.conversation.ledger import CALL, read_entries
from palaver.conversation.models.base import Ask, Model
from palaver.conversation.tools.gathering import entered
from palaver.errors import (
    LeaseTaken,
    ModelError,
    PalaverError,
    StoreError,
    TooManySteps,
    ValidationError,
)
from palaver.messages import ModelRef, ToolCallPart, parse_message, user
from palaver.messages.decoding import decode
from palaver.messages.parts import ReasoningPart
from palaver.server.drafts import Draft, DraftCall
from palaver.server.problems import Refusal
from palaver.server.shapes.steps import StepSeen
from palaver.server.shelf import Shelf, usual
from palaver.server.talks import Talks
from palaver.server.toolroom import Toolroom, built_in, denied
from palaver.server.underway import Order, Outcome, Running, Started
from palaver.server.warming import warm

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from palaver.conversation import Conversation, ToolContext, ToolOutput
    from palaver.messages import Message
    from palaver.server.service import Service
    from palaver.stores.preconditions import Expected

__all__ = ["Workshop"]

_MOST_STEPS: Final = 20
_LOOKED_AT: Final = 200
"""How many conversations are looked at for leftovers when the server starts."""
_PATIENCE: Final = 75.0
"""Longer than the lease of a process that was killed lasts, in seconds."""
_log: Final = logging.getLogger("palaver.server")


class Workshop:
    """All steps of a server, and what they need: models, tools, open conversations."""

    def __init__(self, service: Service) -> None:
        """Serve one service; it is asked for as `service.part(Workshop)`."""
        settings = service.settings
        self.shelf = Shelf(() if settings.model is None else (settings.model,))
        self.tools = Toolroom(built_in(service.store))
        self.talks = Talks(service.store, service.live.tell)
        self._store = service.store
        self._settings = settings
        self._tell = service.live.tell
        self._running: dict[str, Running] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._behind = anyio.CancelScope()
        service.on_stop(self.close)

    async def start(self) -> None:
        """Open the tools that were given; settle what a killed process left, and load the model."""
        if self._settings.toolset:
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._task(self._hold_tools(ready))
            await ready
        if not self._settings.read_only:
            self._task(self._prepare())

    async def _hold_tools(self, ready: asyncio.Future[None]) -> None:
        """Tools of servers of their own want to be opened and closed in one task."""
        try:
            async with entered(self._settings.toolset) as tools:
                self.tools = Toolroom((*built_in(self._store), *tools))
                ready.set_result(None)
                await self._stopping.wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def order(
        self,
        model: str | None,
        tools: bool | list[str],  # noqa: FBT001 - as the body of a request has it
        loop: bool,  # noqa: FBT001 - the same
        options: Mapping[str, Any],
    ) -> Order:
        """What a request asks for, checked before anything is begun."""
        box = self.tools.chosen(tools)
        Ask({}, tools=box.specs, options=options).checked()
        name = self.shelf.default if model is None else model
        chosen = self.model(name)
        forced = options.get("tool_choice") not in (None, "auto", "none")
        return Order(chosen, name, box, loop, {**usual(chosen, forced=forced), **options})

    def model(self, name: str | None = None) -> Model:
        """A model by its name; one that is not installed, or whose SDK is not, is a refusal."""
        try:
            return self.shelf.get(name)
        except ModelError as error:
            raise Refusal(409, str(error), name=type(error).__name__) from None

    # ── beginning and ending ────────────────────────────────────────────────────────────────────

    async def step(
        self,
        conversation: str,
        order: Order,
        *,
        text: str | None = None,
        key: str | None = None,
        expect: Expected | None = None,
    ) -> Started:
        """Say something, if there is something to say, and let the model answer.

        `expect` is the version that must be the newest when it begins.
        """

        def said(talk: Conversation) -> bool:
            if text is None:
                talk.history.extend([], expect=expect)  # adds nothing, and checks the version
                return True
            kept = talk.add(user(text), key=key, expect=expect)
            return talk.messages[-1].id == kept.id

        async def work(talk: Conversation, running: Running) -> Outcome:
            return await self._answered(talk, order, running)

        return await self._begun(conversation, order.name, said, work)

    async def settle(
        self,
        conversation: str,
        call: ToolCallPart,
        order: Order,
        *,
        digest: str,
        reason: str | None = None,
    ) -> Started:
        """Run one call that waited, or deny it with a reason; then go on, if nothing else waits.

        It has to be the call of this digest still when it is begun. This returns when that is on
        disk: of two decisions, in this process or in two, one is taken and the other refused.
        """
        box = self.tools.chosen(wanted=True) if reason is None else denied(call, reason)

        async def work(talk: Conversation, running: Running) -> Outcome:
            async def begun(
                made: ToolCallPart,
                _: ToolContext,
                run: Callable[[ToolCallPart], Awaitable[ToolOutput]],
            ) -> ToolOutput:
                running.refusal = None
                running.taken.set()
                return await run(made)

            try:
                await talk.run_tools([call], tools=box, around=begun, approved={call.id: digest})
            except ValidationError as error:  # it has its result, or is not there any more
                running.refusal = running.refusal and Refusal(409, str(error))
                raise
            except PalaverError as error:
                running.refusal = running.refusal and error
                raise
            if await to_thread.run_sync(talk.waiting):
                return "waiting"
            return await self._answered(talk, order, running) if order.loop else "calls"

        return await self._begun(conversation, order.name, lambda _: True, work, taken=True)

    async def _begun(
        self,
        conversation: str,
        model: str,
        prepare: Callable[[Conversation], bool],
        work: Callable[[Conversation, Running], Awaitable[Outcome]],
        *,
        taken: bool = False,
    ) -> Started:
        running = self.claim(conversation, model)
        try:
            talk = await to_thread.run_sync(self.talks.get, conversation)
            await talk.recover()
            goes_on = await to_thread.run_sync(prepare, talk)
        except BaseException:
            self.release(running)
            raise
        version = talk.history.version
        if not goes_on:
            self.release(running)
            return Started(None, version)
        self.launch(running, lambda: work(talk, running))
        if taken:
            await running.taken.wait()
            if running.refusal is not None:
                raise running.refusal
        return Started(running.id, version)

    def claim(self, conversation: str, model: str | None) -> Running:
        """Take the one place that a conversation has for a step, and one of the server's."""
        if conversation in self._running:
            msg = "a step is under way in this conversation"
            raise LeaseTaken(msg)
        if len(self._running) >= self._settings.steps:
            detail = f"{self._settings.steps} steps are under way, and no more may be"
            raise Refusal(429, detail, headers={"Retry-After": "5"})
        running = Running(conversation, model, self._tell)
        self._running[conversation] = running
        return running

    def release(self, running: Running) -> None:
        """Give the place back."""
        self._running.pop(running.conversation, None)
        running.taken.set()
        running.done.set()

    def launch(self, running: Running, work: Callable[[], Awaitable[Outcome]]) -> None:
        """Do the work of a step in a task of its own."""
        self._task(self._run(running, work))

    async def stop(self, conversation: str) -> None:
        """Stop a step, and wait until what had arrived is stored."""
        running = self._running.get(conversation)
        if running is not None:
            running.scope.cancel()
            await running.done.wait()

    async def close(self) -> None:
        """Stop every step, and let go of the models."""
        self._stopping.set()
        self._behind.cancel()
        for running in list(self._running.values()):
            running.scope.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.shelf.close()

    # ── the work ────────────────────────────────────────────────────────────────────────────────

    async def _run(self, running: Running, work: Callable[[], Awaitable[Outcome]]) -> None:
        outcome: Outcome = "stopped"
        failure: Exception | None = None
        self._tell("step.started", {**running.names, "model": running.model})
        with running.scope:
            async with anyio.create_task_group() as group:
                group.start_soon(running.incoming.keep_telling)
                try:
                    outcome = await work()
                except Exception as error:  # noqa: BLE001 - it is told, and the server goes on
                    outcome, failure = "failed", error
                group.cancel_scope.cancel()
        running.incoming.clear()
        self.release(running)
        told: dict[str, Any] = {**running.names, "outcome": outcome}
        if failure is not None:
            told["error"] = _about(failure)
        self._tell("step.ended", told)

    async def _answered(self, talk: Conversation, order: Order, running: Running) -> Outcome:
        """Run what may run, ask, and so on until there is an answer or a person has to say yes."""
        calls = list[ToolCallPart]()
        if order.loop and order.tools:
            waiting = await to_thread.run_sync(talk.waiting)
            calls = [call for call in waiting if call.tool in order.tools]
        before = list[ToolCallPart]()
        for _ in range(_MOST_STEPS):
            await self._called(talk, order, calls)
            step = await talk.step(
                order.model,
                tools=order.tools,
                options=order.asked(calls, before),
                on_delta=running.incoming.heard,
            )
            running.incoming.clear()
            before, calls = calls, list(step.calls)
            if not calls:
                return "answered"
            if not order.loop:
                return "calls"
            if any(self.tools.asks_first(call.tool) for call in calls):
                await self._called(talk, order, calls)
                return "waiting"
        msg = f"{_MOST_STEPS} steps and no answer without tool calls"
        raise TooManySteps(msg)

    async def _called(self, talk: Conversation, order: Order, calls: list[ToolCallPart]) -> None:
        """Run the calls that need nobody's word."""
        free = [call for call in calls if not self.tools.asks_first(call.tool)]
        if free:
            await talk.run_tools(free, tools=order.tools)

    # ── looking on ──────────────────────────────────────────────────────────────────────────────

    def look(self, conversation: str) -> StepSeen:
        """What can be seen of a conversation's step, of this process or of another."""
        running = self._running.get(conversation)
        if running is not None:
            return StepSeen(
                running=True,
                step=running.id,
                since=running.since,
                model=running.model or UNSET,
                draft=running.incoming.draft,
            )
        keeper = self._store.keeper
        keeper.head(conversation)
        for name, kept in keeper.records(conversation, STEP).items():
            intent = decode(kept, Intent)
            draft = keeper.records(conversation, DRAFT).get(name)
            return StepSeen(
                running=True,
                step=name,
                since=intent.at,
                model=_named(intent.model) or UNSET,
                draft=Draft() if draft is None else _drafted(parse_message(draft)),
                elsewhere=True,
            )
        return StepSeen(running=False)

    def running(self, conversation: str) -> Running | None:
        """The step that this process is at in a conversation, if it is."""
        return self._running.get(conversation)

    def waiting(self, conversation: str) -> int:
        """How many calls of a conversation wait for somebody to run them."""
        try:
            entries = read_entries(self._store.keeper.records(conversation, CALL)).values()
        except StoreError:  # it is gone, or damaged: a list of conversations has to go on
            return 0
        return sum(entry.state.status == "pending" and not entry.stray for entry in entries)

    # ── at the start, behind everything else ────────────────────────────────────────────────────

    async def _prepare(self) -> None:
        with self._behind:
            async with anyio.create_task_group() as group:
                if self._settings.warm:
                    group.start_soon(warm, self.shelf)
                for name in await to_thread.run_sync(self._leftovers):
                    group.start_soon(self._recover_one, name)

    def _leftovers(self) -> list[str]:
        keeper = self._store.keeper
        heads = self._store.list(limit=_LOOKED_AT).conversations
        return [head.id for head in heads if {STEP, CALL} & set(keeper.kinds(head.id))]

    async def _recover_one(self, name: str) -> None:
        try:
            talk = await to_thread.run_sync(self.talks.get, name)
            for found in await talk.recover(wait=_PATIENCE):
                _log.info("%s: %s: %s", name, found.tool or found.kind, found.detail)
        except PalaverError as error:
            _log.warning("%s could not be recovered: %s", name, error)


def _about(failure: Exception) -> dict[str, Any]:
    """What a page is told of a failure: palaver's own words, or no more than its kind."""
    if isinstance(failure, PalaverError):
        return failure.to_dict()
    _log.error("a step failed", exc_info=failure)
    return {"name": type(failure).__name__, "message": "the step failed; the log says more"}


def _named(ref: ModelRef | None) -> str | None:
    return None if ref is None else f"{ref.provider_id}:{ref.model_id}"


def _drafted(message: Message) -> Draft:
    """A draft as another process kept it."""
    thought = "".join(part.text for part in message.parts if isinstance(part, ReasoningPart))
    calls = [part for part in message.parts if isinstance(part, ToolCallPart)]
    made = tuple(DraftCall(part.call_id, part.tool, part.raw) for part in calls)
    return replace(Draft(), text=message.text, reasoning=thought, calls=made)
