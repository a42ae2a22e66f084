"""Responses: what one follows, how it is begun, run, followed, stored and found again.

A response's input is appended in one change with its record, and its answer comes from an ordinary
step. What follows a response goes on where it ended, with every edit since then; if another
response came after it, what follows begins as a fork of the state before that one. A record says
which versions a response lies between, so nothing is stored twice, and any process can read it.

A response that is not to be stored runs in a store in memory, and nothing of it is written.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from palaver.conversation import Conversation, Limits, run_until_answer
from palaver.conversation.compaction import DropOldest, compact
from palaver.errors import (
    CompactionRefused,
    LeaseTaken,
    PalaverError,
    RateLimited,
    UnknownConversation,
    VersionMismatch,
)
from palaver.messages import Message, ToolCallPart, ToolPart
from palaver.messages.ids import now_ms
from palaver.server.errors import RequestRefused
from palaver.server.openai.events import EventWriter, LiveEvents, encode_event, ending, replay
from palaver.server.openai.ids import (
    ResponseId,
    new_conversation_id,
    new_record_name,
    read_item_id,
    read_response_id,
)
from palaver.server.openai.items import is_whole, read_input, render_items
from palaver.server.openai.plan import Planner
from palaver.server.openai.shapes import (
    ResponseRecord,
    refuse,
    response_object,
    usage_object,
)
from palaver.stores import open_store
from palaver.stores.records import decode_record
from palaver.tools.approval import Decision, save_decisions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping

    from palaver.conversation.step import Step, ToolOutcome
    from palaver.history import View
    from palaver.server.openai.items import Input
    from palaver.server.openai.plan import Plan
    from palaver.server.openai.shapes import ResponseRequest
    from palaver.server.services import Service
    from palaver.server.services.steps import RunningStep, StepOutcome
    from palaver.stores import Store, StoredHistory
    from palaver.stores.records import Record

__all__ = ["RESPONSE", "Responses", "RunningResponse"]

RESPONSE: Final = "response"
"""The kind of record that holds a response."""
_NEXT: Final = "response-next"
"""The kind of record that says at which version the next response began."""
_MAX_STEPS: Final = 20
_ATTEMPTS: Final = 20
_LOOK_AGAIN_SECONDS: Final = 0.02
_LOOKBACK: Final = 200
"""How many messages are searched for calls without a result."""
_ANSWER_SHARE: Final = 8
"""Where nobody says how long an answer may be, this part of the window is left for it."""
_KEPT_EVENTS: Final = 64
"""How many responses that are over stay in memory, for clients that come back to their streams."""
_SETTLE_SECONDS: Final = 10.0
"""How long to wait for the lease of a process that was killed."""
_STOPPED: Final = "the server was stopped while it answered; what had arrived is stored"
_log: Final = logging.getLogger("palaver.server")


class _Place(Struct, frozen=True):
    """Where a response goes: a conversation at a version, a fork of one, or a new one.

    `newest` is the record of the last response there.
    """

    target: str
    parent: str | None = None
    version: int = 0
    forked: bool = False
    newest: str | None = None


class RunningResponse:
    """A response that runs in this process, or has run a moment ago, with its events."""

    def __init__(self, name: ResponseId, record: ResponseRecord) -> None:
        """Start without events."""
        self.name = name
        self.record = record
        self.events: list[bytes] = []
        self.writer = EventWriter(self._emit)
        self.response: dict[str, Any] = response_object(str(name), record, [])
        self.failure: Exception | None = None
        self.done = asyncio.Event()
        self.cancelled = False
        self.messages: list[Message] | None = None
        """The whole conversation after it, of a response that was not to be stored."""
        self._news = asyncio.Event()

    def _emit(self, event: dict[str, Any]) -> None:
        self.events.append(encode_event(event))
        news, self._news = self._news, asyncio.Event()
        news.set()

    def finish(self, response: dict[str, Any], failure: Exception | None = None) -> None:
        """End the stream with the response as it is stored."""
        self.response, self.failure = response, failure
        self.writer.write(ending(response), response=response)
        self.done.set()

    async def stream(self, after: int, heartbeat: float) -> AsyncGenerator[bytes, None]:
        """The events after a number, and then each as it comes."""
        number = after + 1
        while True:
            news = self._news
            if number < len(self.events):
                yield b"".join(self.events[number:])
                number = len(self.events)
            if self.done.is_set():
                if number >= len(self.events):
                    return
                continue
            with anyio.move_on_after(heartbeat) as waiting:
                await news.wait()
            if waiting.cancelled_caught:
                yield b":\n\n"


class Responses:
    """The responses of a server."""

    def __init__(self, service: Service) -> None:
        """Answer from the store of a service, with its models, its tools and its limits."""
        self._service = service
        self._store = service.store
        self.planner = Planner(service)
        self._memory: Store | None = None  # for what is not to be stored
        self._runs: dict[str, RunningResponse] = {}

    # ── where it goes ───────────────────────────────────────────────────────────────────────────

    def _place(self, request: ResponseRequest) -> _Place:
        """Find what a response follows."""
        store = self._store
        if request.previous_response_id is not None:
            name = self._known(request.previous_response_id, "previous_response_id")
            newest = self._newest(name.conversation)
            head = store.head(name.conversation)
            if newest == name.record:
                return _Place(head.id, head.id, head.version, newest=newest)
            ended = self._read(name.conversation, _NEXT, name.record)
            version = (
                head.version
                if ended is None
                else decode_record(ended, int, "where the next response began")
            )
            return _Place(new_conversation_id(), head.id, version, forked=True)
        wanted = request.conversation_id
        if wanted is None:
            return _Place(new_conversation_id())
        try:
            head = store.head(wanted)
        except UnknownConversation as error:
            raise RequestRefused(404, str(error), path="$.conversation") from None
        return _Place(head.id, head.id, head.version, newest=self._newest(head.id))

    def _known(self, text: str, param: str) -> ResponseId:
        """Read the id of a response that is stored and was not deleted."""
        name = read_response_id(text)
        if name is None or self.find(name) is None:
            detail = f"there is no response {text!r}; it was deleted, or it was not stored"
            raise RequestRefused(
                404, detail, path=f"$.{param}", rule=f"{param.removesuffix('_id')}_not_found"
            )
        return name

    def find(self, name: ResponseId) -> ResponseRecord | None:
        """The record of a response; None if there is none, or it was deleted."""
        try:
            found = self._read(name.conversation, RESPONSE, name.record)
        except PalaverError:
            return None
        if found is None:
            return None
        record = decode_record(found, ResponseRecord, f"the response {name}")
        return None if record.status == "deleted" else record

    def _read(self, conversation: str, kind: str, name: str) -> bytes | None:
        return self._store.records(conversation, kind, since=name, until=f"{name}~").get(name)

    def _newest(self, conversation: str) -> str | None:
        return next(iter(self._store.records(conversation, RESPONSE, last=1)), None)

    # ── beginning ───────────────────────────────────────────────────────────────────────────────

    async def create(
        self, request: ResponseRequest, before: list[Message] | None = None
    ) -> RunningResponse:
        """Store the input of a response and begin to answer it.

        `before` is what a response that was not stored left behind, where it is the previous one.
        """
        plan = await to_thread.run_sync(self.planner.plan, request)
        if not request.stored:
            return await self._create_unstored(plan, before)
        for _ in range(_ATTEMPTS):
            place = await to_thread.run_sync(self._place, request)
            if place.newest is not None and not place.forked:
                name = ResponseId(place.target, place.newest)
                if str(name) in self._runs and not self._runs[str(name)].done.is_set():
                    raise _busy()
                await self._settle(name)
            try:
                running = self._service.steps.claim(place.target, plan.name)
            except LeaseTaken:  # by one that is about to begin, and will be what came next
                await anyio.sleep(_LOOK_AGAIN_SECONDS)
                continue
            try:
                chat, run = await to_thread.run_sync(self._begin, plan, place)
            except VersionMismatch:  # somebody edited it, or answered first: look again
                self._service.steps.release(running)
                continue
            except BaseException:
                self._service.steps.release(running)
                raise
            self._launch(run, plan, chat, running)
            return run
        raise _busy()

    def _begin(self, plan: Plan, place: _Place) -> tuple[Conversation, RunningResponse]:
        """Append the input, with the record of the response, in one change."""
        request, store = plan.request, self._store
        given = self._input(request)
        record = ResponseRecord(
            request=request.echo(),
            model=plan.name,
            base=place.version,
            start=place.version,
            created=now_ms(),
            hosted=tuple(sorted(plan.hosted)),
            conversation=request.conversation_id,
        )
        if place.parent is None:
            self.check_calls(given, [])
            if not given.messages:
                raise refuse("is empty: there is nothing to answer", "input", "missing")
            name = ResponseId(place.target, new_record_name(0))
            store.create(given.messages, id=place.target, records=[_record(name, record)])
            return self._service.conversations.get(place.target), RunningResponse(name, record)
        chat = self._service.conversations.get(place.parent)
        history: StoredHistory = chat.history
        if place.forked:
            history = history.fork(at=place.version, id=place.target)
            place = replace(place, version=history.version)
        view = history.refresh().view
        calls = self.open_calls(view)
        given = self.check_calls(given, calls)
        if place.forked:
            chat = self._service.conversations.get(place.target)
            history = chat.history
        removed = [
            gone
            for entry in chat.ledger().values()
            if entry.call_id in given.results
            for gone in entry.removals()
        ]
        added = bool(given.messages)
        record = replace(record, base=place.version, start=place.version + added)
        name = ResponseId(place.target, new_record_name(place.version))
        records: list[Record] = [_record(name, record), *removed]
        if place.newest is not None:
            records.append((_NEXT, place.newest, str(place.version).encode()))
        if added:
            history.extend(given.messages, expect=place.version, records=records)
        else:
            history.extend([], expect=place.version)
            store.put_records(place.target, records)
        self._decide(chat, given, calls)
        return chat, RunningResponse(name, record)

    def _input(self, request: ResponseRequest) -> Input:
        return read_input(request.input, self.resolve)

    def resolve(self, text: str, path: str) -> list[dict[str, Any]]:
        """Return the item that a reference names."""
        item = self.find_item(text)
        if item is None:
            raise refuse(f"there is no item {text!r}", f"{path}.id", "item_not_found")
        return [item]

    def find_item(self, text: str, conversation: str | None = None) -> dict[str, Any] | None:
        """Find an item by its id, in the log of its conversation."""
        name = read_item_id(text)
        if name is None or conversation not in (None, name.conversation):
            return None
        try:
            history = self._service.conversations.get(name.conversation).history
        except PalaverError:
            return None
        view = history.view
        log = view.log
        positions = log.positions_of(name.message)
        if not positions:
            return None
        seen = [each for each in positions if view.index_of(each) is not None]
        position = (seen or positions)[-1]
        message = log[position]
        after = log.between(position + 1, min(len(log), position + _LOOKBACK))
        results = [each for each in after if each.role == "tool"]
        hosted = [tool.spec.name for tool in self._service.tools]
        shown = render_items([message, *results], name.conversation, hosted=hosted, encrypted=True)
        return next((item for item in shown if item.get("id") == text), None)

    @staticmethod
    def check_calls(
        given: Input, calls: list[tuple[ToolCallPart, bool]], where: str = "input"
    ) -> Input:
        """Refuse outputs without their calls, and calls that would go without their outputs."""
        open_calls = {call.call_id: call.tool for call, _ in calls}
        given.check_pairing(open_calls, complete=where == "input")
        for approval in given.approvals:
            if not any(_names_call(approval.request, call) for call, _ in calls):
                detail = f"no call waits for an answer to {approval.request!r}"
                param = f"{approval.where}.approval_request_id"
                raise refuse(detail, param, "approval_request_not_found")
        decided = {approval.request for approval in given.approvals}
        for call, is_last in calls:
            asked = any(_names_call(each, call) for each in decided)
            if where != "input" or not is_last or asked:
                continue
            if call.call_id not in given.results:
                detail = f"has no output for the call {call.call_id!r} of {call.tool}, which waits"
                raise refuse(detail, "input", "missing_tool_output")
        return given.with_tools(open_calls)

    @staticmethod
    def open_calls(view: View | list[Message]) -> list[tuple[ToolCallPart, bool]]:
        """The calls near the end that have no result, and whether nothing was said after each."""
        answered: set[str] = set()
        found: list[tuple[ToolCallPart, bool]] = []
        last = True
        for message in reversed(view[-_LOOKBACK:]):
            if message.role == "tool":
                answered |= {part.call_id for part in message.parts if isinstance(part, ToolPart)}
                continue
            calls = [part for part in message.parts if isinstance(part, ToolCallPart)]
            found += [(call, last) for call in calls if call.call_id not in answered]
            answered -= {call.call_id for call in calls}  # an id may come again
            last = False
        return found

    @staticmethod
    def _decide(chat: Conversation, given: Input, calls: list[tuple[ToolCallPart, bool]]) -> None:
        """Store what the client decided about calls that wait."""
        decisions: dict[str, Decision] = {}
        digests = chat.digests([call for call, _ in calls]) if given.approvals else {}
        for approval in given.approvals:
            for call, _ in calls:
                if _names_call(approval.request, call) and call.id in digests:
                    verdict: Any = "approve" if approval.approve else "deny"
                    decisions[call.id] = Decision(
                        verdict, approval.reason, by="client", digest=digests[call.id], at=now_ms()
                    )
        if decisions:
            save_decisions(chat, decisions)

    async def _create_unstored(
        self, plan: Plan, known: list[Message] | None = None
    ) -> RunningResponse:
        """Answer in a store in memory: nothing is written, and nothing can be read afterwards."""
        if self._memory is None:
            self._memory = open_store(":memory:")
        request, memory = plan.request, self._memory

        def begin() -> tuple[Conversation, RunningResponse]:
            before: list[Message] = known or []
            calls = self.open_calls(before)
            if request.previous_response_id is not None and known is None:
                place = self._place(request)
                parent = self._service.conversations.get(str(place.parent)).history
                view = parent.at(place.version)
                before, calls = list(view), self.open_calls(view)
            given = self.check_calls(self._input(request), calls)
            if not given.messages and not before:
                raise refuse("is empty: there is nothing to answer", "input", "missing")
            record = ResponseRecord(
                request=request.echo(), model=plan.name, base=0, start=0, created=now_ms(),
                hosted=tuple(sorted(plan.hosted)),
            )  # fmt: skip
            name = ResponseId(new_conversation_id(), new_record_name(0))
            memory.create([*before, *given.messages], id=name.conversation)
            return Conversation(memory, name.conversation), RunningResponse(name, record)

        running = self._service.steps.claim(new_conversation_id(), plan.name)
        try:
            chat, run = await to_thread.run_sync(begin)
        except BaseException:
            self._service.steps.release(running)
            raise
        self._launch(run, plan, chat, running)
        return run

    # ── running ─────────────────────────────────────────────────────────────────────────────────

    def _launch(
        self, run: RunningResponse, plan: Plan, chat: Conversation, running: RunningStep
    ) -> None:
        self._runs[str(run.name)] = run
        for old in list(self._runs)[: max(0, len(self._runs) - _KEPT_EVENTS)]:
            if self._runs[old].done.is_set():
                del self._runs[old]
        run.writer.begin(run.response)
        stored = chat.store is self._store
        work = _Work(self, run, plan, chat, running if stored else None)
        steps = self._service.steps
        if stored:
            steps.launch(running, work.run)
        else:
            steps.launch_quietly(running, work.run)

    def forget_finished(self) -> None:
        """Forget the events of responses that are over; the store has what they were."""
        self._runs = {name: run for name, run in self._runs.items() if not run.done.is_set()}

    def finish(self, run: RunningResponse, chat: Conversation, record: ResponseRecord) -> None:
        """Store how a response has ended; nothing, where it is not to be stored."""
        if chat.store is self._store:
            self._store.put_records(run.name.conversation, [_record(run.name, record)])
        else:
            run.messages = list(chat.history.view)
            chat.store.delete(run.name.conversation)

    def stopping(self) -> bool:
        """Whether the server is about to end."""
        return self._service.steps.stopping

    def asks_first(self, plan: Plan, call: ToolCallPart) -> bool:
        """Tell whether a call waits: for the client that runs it, or for a person."""
        if call.tool not in plan.hosted:
            return True
        return plan.always_ask or self._service.tools.asks_first(call)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    async def get(self, text: str) -> dict[str, Any]:
        """A response as it is now."""
        run = self._runs.get(text)
        if run is not None and not run.done.is_set():
            return run.response
        name = await to_thread.run_sync(self._known, text, "response_id")
        await self._settle(name, quietly=True)
        return await to_thread.run_sync(self._render, name)

    def _render(self, name: ResponseId) -> dict[str, Any]:
        record = self.find(name)
        if record is None:  # pragma: no cover - deleted a moment ago
            raise RequestRefused(404, "the response was deleted")
        return response_object(str(name), record, self.output(name, record))

    def output(self, name: ResponseId, record: ResponseRecord) -> list[dict[str, Any]]:
        """The output items of a response, from the log."""
        log = self._service.conversations.get(name.conversation).history.view.log
        return _rendered([log[position] for position in record.outputs], name, record)

    async def stream(self, text: str, after: int) -> AsyncGenerator[bytes, None]:
        """The events of a response after a number: from this process, or repeated."""
        run = self._runs.get(text)
        heartbeat = self._service.settings.heartbeat
        if run is not None and not run.done.is_set():
            return run.stream(after, heartbeat)
        name = await to_thread.run_sync(self._known, text, "response_id")
        return self._repeat(name, after, heartbeat) if run is None else run.stream(after, heartbeat)

    async def _repeat(
        self, name: ResponseId, after: int, heartbeat: float
    ) -> AsyncGenerator[bytes, None]:
        """Wait until a response that another process runs is over, and repeat its events."""
        since = anyio.current_time()
        while True:
            await self._settle(name, quietly=True)
            response = await to_thread.run_sync(self._render, name)
            if response["status"] not in ("in_progress", "queued"):
                break
            await to_thread.run_sync(self._store.wait, 0.2)
            await anyio.sleep(0.05)
            if anyio.current_time() - since > heartbeat:
                since = anyio.current_time()
                yield b":\n\n"
        record = await to_thread.run_sync(self.find, name)
        events: list[dict[str, Any]] = []
        writer = EventWriter(events.append)
        writer.begin({**response, "status": "in_progress", "output": [], "usage": None,
                      "error": None, "completed_at": None, "incomplete_details": None})  # fmt: skip
        replay(writer, response["output"], [] if record is None else record.pieces)
        if record is not None and record.killed:  # a client may have seen more events than these
            writer.skip_to(after + 1)
        writer.write(ending(response), response=response)
        yield b"".join(encode_event(each) for each in events if each["sequence_number"] > after)

    def input_items(self, text: str) -> list[dict[str, Any]]:
        """Everything that a response was given, in order: what came before, and its input."""
        name = self._known(text, "response_id")
        record = self.find(name)
        history = self._service.conversations.get(name.conversation).history
        start = history.version if record is None else record.start
        hosted = [tool.spec.name for tool in self._service.tools]
        custom = () if record is None else record.custom
        view = history.at(start)
        return render_items(view, name.conversation, hosted=hosted, custom=custom)

    # ── ending ──────────────────────────────────────────────────────────────────────────────────

    async def cancel(self, text: str) -> dict[str, Any]:
        """Stop a response that runs; what had arrived is stored."""
        run = self._runs.get(text)
        if run is None:
            name = await to_thread.run_sync(self._known, text, "response_id")
            record = await to_thread.run_sync(self.find, name)
            if record is not None and not record.over:
                await self._service.steps.stop(name.conversation)
        elif not run.done.is_set():
            run.cancelled = True
            await self._service.steps.stop(run.name.conversation)
            await run.done.wait()
        return await self.get(text)

    def delete(self, text: str) -> None:
        """Forget a response; a conversation in which nothing else was said goes with it."""
        name = self._known(text, "response_id")
        run = self._runs.get(text)
        if run is not None and not run.done.is_set():
            raise RequestRefused(409, "the response is in progress: cancel it first")
        self._runs.pop(text, None)
        record = self.find(name)
        if record is None:
            return
        known = self._store.records(name.conversation, RESPONSE, last=2)
        if record.conversation is None and len(known) == 1:
            try:
                self._store.delete(name.conversation)
            except PalaverError:
                _log.debug("%s was forked: its messages stay", name.conversation)
            else:
                return
        gone = ResponseRecord(
            request={}, model="", base=record.base, start=record.start, end=record.end,
            created=record.created, status="deleted",
        )  # fmt: skip
        self._store.put_records(name.conversation, [_record(name, gone)])

    async def _settle(self, name: ResponseId, *, quietly: bool = False) -> None:
        """Settle a response whose process is gone; refused while it still runs elsewhere."""
        record = await to_thread.run_sync(self.find, name)
        run = self._runs.get(str(name))
        if record is None or record.over or (run is not None and not run.done.is_set()):
            return
        try:
            chat = await to_thread.run_sync(self._service.conversations.get, name.conversation)
            await chat.recover(wait=0 if quietly else _SETTLE_SECONDS)
        except LeaseTaken:
            if quietly:
                return
            raise _busy() from None
        await to_thread.run_sync(self._settle_record, name, chat)

    def _settle_record(self, name: ResponseId, chat: Conversation) -> None:
        """Store how a response has ended whose process was killed before it could."""
        record = self.find(name)
        if record is None or record.over:
            return
        history = chat.history.refresh()
        ended = self._read(name.conversation, _NEXT, name.record)
        last = (
            history.version
            if ended is None
            else decode_record(ended, int, "where the next response began")
        )
        found: list[Message] = []
        for change in self._store.journal(name.conversation, record.start, 1_000):
            if change.version <= last and change.count and change.kind == "append":
                made = history.view.log.between(change.first, change.first + change.count)
                found += [each for each in made if each.role in ("assistant", "tool")]
        finish = next(
            (getattr(each.info, "finish", None) for each in reversed(found)
             if each.role == "assistant"), None,
        )  # fmt: skip
        done = finish in ("stop", "tool-calls") and found[-1].role == "assistant"
        error = {"code": "server_error", "message": _STOPPED}
        self._store.put_records(
            name.conversation,
            [
                _record(
                    name,
                    replace(
                        record,
                        status="completed" if done else "failed",
                        error=None if done else error,
                        outputs=_positions(history.view.log, [each.id for each in found]),
                        usage=_usage(found),
                        completed=now_ms(),
                        end=last,
                        killed=True,
                    ),
                )
            ],
        )


class _Work:
    """One response at work."""

    def __init__(
        self,
        responses: Responses,
        run: RunningResponse,
        plan: Plan,
        chat: Conversation,
        running: RunningStep | None,
    ) -> None:
        self._responses, self._run, self._plan, self._chat = responses, run, plan, chat
        self._running = running
        conversation = run.name.conversation
        self._live = LiveEvents(run.writer, conversation, plan.hosted, plan.custom)
        self._outputs: list[str] = []
        self._last: Step | None = None

    async def run(self) -> StepOutcome:
        """Answer, and store how it went, whatever happens."""
        plan, chat = self._plan, self._chat
        try:
            if plan.request.truncation == "auto":
                await self._truncate()
            step = await run_until_answer(
                chat,
                plan.model,
                tools=plan.tools,
                options=plan.options,
                needs_approval=lambda call: self._responses.asks_first(plan, call),
                limits=Limits(steps=_MAX_STEPS),
                on_begin=self._on_begin,
                on_delta=self._on_delta,
                on_step=self._on_step,
                on_outcome=self._on_outcome,
            )
        except anyio.get_cancelled_exc_class():
            stopped = self._responses.stopping() and not self._run.cancelled
            error = {"code": "server_error", "message": _STOPPED} if stopped else None
            await self._finish("failed" if stopped else "cancelled", error)
            raise
        except Exception as error:
            await self._finish("failed", _describe(error), failure=error)
            raise
        self._live.wait(self._items())
        finish = getattr(step.message.info, "finish", None)
        reasons = {"length": "max_output_tokens", "content-filter": "content_filter"}
        failed = finish == "error"
        info = step.message.info
        reported: Mapping[str, Any] = (getattr(info, "error", None) or {}) if failed else {}
        said = {"code": "server_error", "message": str(reported.get("message", "failed"))}
        status = "failed" if failed else "incomplete" if finish in reasons else "completed"
        await self._finish(status, said if failed else None, reason=reasons.get(str(finish)))
        return "calls" if step.calls else "answered"

    async def _truncate(self) -> None:
        """Drop the oldest turns of a conversation that is larger than the model's window."""
        window = self._plan.model.window
        if window is None:
            return
        keep = window - (self._plan.request.max_output_tokens or window // _ANSWER_SHARE)
        if await self._chat.atokens() > keep > 0:
            try:
                await compact(self._chat, DropOldest(keep_tokens=keep))
            except CompactionRefused:
                _log.debug("%s can't be truncated", self._chat.id)

    def _on_begin(self, message: str) -> None:
        self._outputs.append(message)
        self._live.begin(message)

    def _on_delta(self, delta: Any) -> None:  # noqa: ANN401 - a Delta
        if self._running is not None:
            self._running.draft.add_delta(delta)
        self._live.add(delta)

    def _on_step(self, step: Step) -> None:
        self._last = step
        if self._running is not None:
            self._running.draft.clear()
        self._live.end(whole=is_whole(step.message))

    def _on_outcome(self, outcome: ToolOutcome) -> None:
        if outcome.message is not None:
            self._outputs.append(outcome.message.id)
        if self._last is not None and outcome.message is not None:
            items = render_items(
                [self._last.message, outcome.message], self._run.name.conversation,
                hosted=self._plan.hosted,
            )  # fmt: skip
            for item in items:
                if item["type"] == "mcp_call" and item["name"] == outcome.call.tool:
                    self._live.outcome(outcome, item)

    def _items(self) -> list[dict[str, Any]]:
        found = _messages(self._chat.history.view.log, self._outputs)
        return _rendered(found, self._run.name, self._run.record)

    async def _finish(
        self,
        status: str,
        error: dict[str, Any] | None = None,
        *,
        reason: str | None = None,
        failure: Exception | None = None,
    ) -> None:
        run, chat = self._run, self._chat

        def store() -> dict[str, Any]:
            history = chat.history.refresh()
            found = _messages(history.view.log, self._outputs)
            record = replace(
                run.record,
                status=status,
                error=error,
                reason=reason,
                outputs=_positions(history.view.log, [message.id for message in found]),
                pieces=run.writer.pieces,
                usage=_usage(found) or _counted(chat, found),
                completed=now_ms(),
                end=history.version,
            )
            items = self._items()
            if not found and status != "cancelled":
                self._take_back(record)
            run.record = record
            self._responses.finish(run, chat, record)
            return response_object(str(run.name), record, items)

        self._live.end(whole=status == "completed")
        with anyio.CancelScope(shield=True):  # whoever waits for it would wait forever
            try:
                run.finish(await to_thread.run_sync(store), failure)
            except Exception as problem:
                _log.exception("how a response has ended could not be stored")
                broken = replace(run.record, status="failed", error=_describe(problem))
                run.finish(response_object(str(run.name), broken, []), failure or problem)
                raise

    def _take_back(self, record: ResponseRecord) -> None:
        """Take the input of a response without any answer out again: it will be sent again."""
        history = self._chat.history
        if record.start > record.base and history.version == record.start:
            try:
                history.restore(record.base, expect=record.start)
            except VersionMismatch:
                _log.debug("somebody edited a conversation whose response has failed")


# ── small things ────────────────────────────────────────────────────────────────────────────────


def _record(name: ResponseId, record: ResponseRecord) -> Record:
    return (RESPONSE, name.record, msgspec.json.encode(record))


def _busy() -> RequestRefused:
    detail = "a response is in progress in this conversation: wait for it, or cancel it"
    return RequestRefused(409, detail, rule="conversation_locked", headers={"Retry-After": "1"})


def _names_call(request: str, call: ToolCallPart) -> bool:
    """Tell whether the id of an approval request is that of a call's message."""
    name = read_item_id(request)
    return name is not None and name.message == call.message_id


def _messages(log: Any, names: Iterable[str]) -> list[Message]:  # noqa: ANN401 - a log of any kind
    found = ((log, log.positions_of(name)) for name in names)
    return [each[positions[0]] for each, positions in found if positions]


def _positions(log: Any, names: Iterable[str]) -> tuple[int, ...]:  # noqa: ANN401 - the same
    return tuple(log.positions_of(name)[0] for name in names)


def _rendered(
    messages: list[Message], name: ResponseId, record: ResponseRecord
) -> list[dict[str, Any]]:
    return render_items(
        messages,
        name.conversation,
        hosted=record.hosted,
        custom=record.custom,
        encrypted=record.encrypted,
    )


def _usage(messages: Iterable[Message]) -> dict[str, Any] | None:
    """What the providers reported for some answers together."""
    counts = [tokens for message in messages if (tokens := getattr(message.info, "tokens", None))]
    if not counts:
        return None
    return usage_object(
        sum(each.prompt for each in counts),
        sum(each.completion for each in counts),
        cached=sum(each.cache.read for each in counts),
        written=sum(each.cache.write for each in counts),
        reasoning=sum(each.reasoning for each in counts),
    )


def _counted(chat: Conversation, messages: list[Message]) -> dict[str, Any] | None:
    """Palaver's own count, where a provider reports none."""
    if not messages:
        return None
    added = sum(chat.tally.weigh(message) for message in messages)
    return usage_object(max(0, chat.count_messages() - added), added)


def _describe(error: Exception) -> dict[str, Any]:
    """What a response says of its failure: palaver's own text, or only the type."""
    code = "rate_limit_exceeded" if isinstance(error, RateLimited) else "server_error"
    if isinstance(error, PalaverError):
        return {"code": code, "message": str(error)}
    return {"code": code, "message": f"{type(error).__name__}; the server's log says more"}
