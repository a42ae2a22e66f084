"""Everything that a conversation reads from its store and writes to it, synchronously.

Each method is called once in a worker thread. What belongs together is one change: a step's intent
is stored before the model is asked, its answer with usage and calls in one change, the state
running of a call before its tool is called, all results of an answer in one change.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from palaver.conversation.deferred import DEFERRED, apply_edits, edits_due, read_deferred
from palaver.conversation.feed import CHANGE_EVENTS, EventFeed
from palaver.conversation.ledger import (
    CALL,
    LedgerEntry,
    call_changed,
    call_digest,
    content_digest,
    pending_entries,
    read_ledger,
)
from palaver.conversation.prompt_cache import (
    BREAKS,
    CACHE,
    BlockHashes,
    Cause,
    PromptPrefix,
    RequestStart,
    last_request,
    read_prefixes,
    tools_digest,
)
from palaver.conversation.usage import KIND as USAGE
from palaver.conversation.usage import drop_empty_usage, read_usage
from palaver.errors import CallChanged, StoreDamaged, StoreError, ValidationError
from palaver.events import Event, EventName
from palaver.history import ERASED
from palaver.messages import (
    AssistantInfo,
    Message,
    ModelRef,
    ToolCallPart,
    ToolPart,
    dump,
    new_id,
    parse_message,
)
from palaver.messages.decode import decode
from palaver.messages.ids import now_ms
from palaver.messages.limits import EMPTY
from palaver.stores.records import Lease, check_idempotency_key, decode_record
from palaver.wire import Converter, Request, converter

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from palaver.conversation.usage import Usage
    from palaver.events import EventBus
    from palaver.history import View
    from palaver.stores import StoredHistory
    from palaver.stores.lease import SharedLease
    from palaver.stores.records import JournalEntry, Record, Work
    from palaver.stores.store import Store
    from palaver.tokens import RunningTotal
    from palaver.wire import Target, ToolSpec

__all__ = ["ChangeAnnouncer", "OpenStep", "StepIntent", "StoreAccess", "hash_family"]

STEP: Final = "step"
"""The kind of record that holds the intent of a step."""
DRAFT: Final = "draft"
"""The kind of record that holds what has arrived of an answer."""
ANSWER: Final = "answer"
"""The kind of record that holds which message answered the step of a key."""
_MESSAGE_EVENTS: Final[tuple[EventName, ...]] = (
    "message.added", "tool.pending", "tool.completed", "tool.error", "usage.updated",
    "cache.updated",
)  # fmt: skip
"""The events of a message; that a call is running is published by who runs it."""
_MAX_ANSWERS: Final = 32
"""How many answers are remembered by the keys of their steps; a step is repeated soon or never."""
_CHUNK: Final = 100
_CHANGES: Final = 1_000
"""How many changes since the last request are looked at for the cause of a break."""
_log: Final = logging.getLogger("palaver.conversation")
_RECENT: Final = 8  # messages at the end of a view, where a call that waits is found


def hash_family(first: str) -> str:
    """Return the key for the prompt cache of all conversations with this first ancestor."""
    return hashlib.blake2b(first.encode(), digest_size=16, person=b"prompt cache").hexdigest()


class StepIntent(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The record of a step that is about to ask a model; it is removed with the answer."""

    id: str
    model: ModelRef | None
    version: int
    at: int
    key: str | None = None


class OpenStep(Struct, frozen=True):
    """A step that has begun: its intent, its lease and the request to send.

    `records` are those that it began with, by kind and name: nobody else changes them meanwhile.
    `cache_key` is that of `StoreAccess`.
    """

    intent: StepIntent
    lease: Lease
    request: Request
    records: dict[str, dict[str, bytes]]
    cache_key: str
    cache: RequestStart | None = None


class _KnownRequests(Struct, frozen=True):
    """The beginnings of earlier requests: this conversation's own, or those of its parent."""

    prefixes: list[PromptPrefix]
    is_fork: bool = False


class _StepAnswer(Struct, frozen=True):
    """The message that answered a step, and when."""

    message: str
    at: int


class _Conversion(Struct, frozen=True):
    """A converter, the ranges of the log that it has converted, and the hashes of its blocks."""

    converter: Converter
    ranges: list[tuple[int, int]]
    chain: BlockHashes


class _CallsChanged(Exception):  # noqa: N818 - it never leaves this module
    """Some calls have left the view, or were edited since they were started."""

    def __init__(self, calls: list[str], edited: list[str]) -> None:
        super().__init__(calls, edited)
        self.calls = frozenset(calls)
        self.edited = frozenset(edited)


class ChangeAnnouncer:
    """Publishes every change that is made through one history on a bus, as followers see it.

    A step publishes what it stores itself, when its lease is released: `silently` is for that.
    """

    def __init__(self, store: Store, conversation: str, events: EventBus) -> None:
        """Announce nothing yet; see `of`."""
        self._store = store
        self._conversation = conversation
        self._events = events
        self._local = threading.local()

    @classmethod
    def of(cls, store: Store, history: StoredHistory, events: EventBus) -> ChangeAnnouncer:
        """Return what announces a history on a bus: there is one for each bus and history."""
        known = events.sources.get(history)
        if isinstance(known, cls):
            return known
        made = events.sources[history] = cls(store, history.id, events)
        history.listen(made.announce)
        return made

    @contextmanager
    def silently(self) -> Generator[None]:
        """Announce nothing of what this thread does inside the block."""
        self._local.silent = True
        try:
            yield
        finally:
            self._local.silent = False

    def announce(self, change: JournalEntry) -> None:
        """Publish the events of a change, if they have handlers."""
        names = _MESSAGE_EVENTS
        if change.kind != "append":
            names = (CHANGE_EVENTS.get(change.kind, "history.edited"),)
            if change.kind == "team_task" and change.count:
                names += _MESSAGE_EVENTS
        if getattr(self._local, "silent", False) or not any(map(self._events.wanted, names)):
            return
        feed = EventFeed(self._store, self._conversation, change.version)
        for name, data in list(feed.change_events(change)):
            event = Event(name, change.conversation, change.version, data, at=change.at)
            self._events.emit(event)


class StoreAccess:
    """Reads and writes one conversation of a store."""

    def __init__(
        self,
        store: Store,
        history: StoredHistory,
        tally: RunningTotal,
        announcer: ChangeAnnouncer,
        lease: SharedLease,
    ) -> None:
        """Take the conversation, the count of its tokens, what announces its changes, the lease."""
        self.store = store
        self.history = history
        self.tally = tally
        self.announcer = announcer
        self.lease = lease
        self._conversions: dict[tuple[str, Target], _Conversion] = {}
        self._cache_key = ""

    def cache_key(self) -> str:
        """Return what a conversation and its forks have in common for a provider's prompt cache.

        It is made of the id of their first ancestor, and does not tell it.
        """
        if not self._cache_key:
            first, origin = self.history.id, self.history.origin
            while origin is not None:
                first, parent = origin[0], self.store.head(origin[0]).parent
                origin = None if parent is None else (parent, 0)
            self._cache_key = hash_family(first)
        return self._cache_key

    # ── a step ──────────────────────────────────────────────────────────────────────────────────

    def begin_step(
        self,
        form: str,
        target: Target,
        key: str | None = None,
        *,
        tools: Sequence[ToolSpec] = (),
        options: Mapping[str, Any] = EMPTY,
    ) -> OpenStep | Message:
        """Take the lease, store the intent, and convert the conversation to a request.

        If the step of this key has its answer already, the answer is returned instead.
        """
        check_idempotency_key(key)  # it is stored with the answer, when it is too late to refuse
        history = self.history
        work = self.lease.begin("step", (USAGE, CALL, ANSWER, CACHE, DEFERRED))
        lease, records = work.lease, work.records
        try:
            history.refresh(work.head)
            if key is not None and (known := self._find_answer(key, records)) is not None:
                self.lease.release(lease)
                return known
            read_usage(records[USAGE])  # damage is found now, not when an answer is to be stored
            earlier = self._known_requests(work)
            if records[DEFERRED]:
                self._apply_due(records[DEFERRED], earlier, target.model, tools)
            request = self._request(form, target, read_ledger(records[CALL]))
            cache_key = self.cache_key()
            intent = StepIntent(new_id(), target.model, history.version, now_ms(), key)
            cache = self._expect_cache(form, target, request, intent, earlier, tools, options)
            self._put([(STEP, intent.id, msgspec.json.encode(intent))], lease)
        except BaseException:
            self.lease.release(lease)
            raise
        return OpenStep(intent, lease, request, records, cache_key, cache)

    def _expect_cache(  # noqa: PLR0917 - what a request is made of
        self,
        form: str,
        target: Target,
        request: Request,
        intent: StepIntent,
        known: _KnownRequests,
        tools: Sequence[ToolSpec],
        options: Mapping[str, Any],
    ) -> RequestStart | None:
        """Return what a request may read from the provider's cache; a failure is logged."""
        if intent.model is None:
            return None
        try:
            conversion = self._conversions.get((form, target))
            chain = BlockHashes() if conversion is None else conversion.chain
            return RequestStart.of(
                request, chain, tools, options, known.prefixes, model=intent.model, at=intent.at,
                version=intent.version, is_fork=known.is_fork,
                why=partial(self._changes_since, intent.model, known.prefixes),
            )  # fmt: skip
        except Exception:  # noqa: BLE001 - a step is taken without it
            _log.warning("what the cache may hold of a request is unknown", exc_info=True)
            return None

    def _known_requests(self, work: Work) -> _KnownRequests:
        """Return the beginnings of earlier requests; a fork begins with those of its parent."""
        own, parent = read_prefixes(work.records[CACHE]), work.head.parent
        if own or parent is None:
            return _KnownRequests(own)
        try:
            return _KnownRequests(read_prefixes(self.store.records(parent, CACHE)), is_fork=True)
        except StoreError:  # the parent was deleted
            return _KnownRequests([])

    def _apply_due(
        self,
        records: Mapping[str, bytes],
        known: _KnownRequests,
        model: ModelRef | None,
        tools: Sequence[ToolSpec],
    ) -> None:
        """Apply the edits that wait, if the cache is lost anyway; a failure is logged."""
        try:
            last = None if model is None else last_request(known.prefixes, model)
            due = edits_due(
                self.history, read_deferred(records), last, tools=tools_digest(tools), at=now_ms(),
                is_fork=known.is_fork,
            )  # fmt: skip
            refused = apply_edits(self.store, self.history, due)[1] if due else []
        except Exception:  # noqa: BLE001 - the step is taken without them, and they wait on
            _log.warning("the edits that wait could not be applied", exc_info=True)
            return
        for edit in refused:
            _log.warning("an edit that waited was not applied (%s): %s", edit.detail, edit.problem)

    def _changes_since(self, model: ModelRef, known: Sequence[PromptPrefix]) -> Cause:
        """Return what changed the messages since the last request to a model."""
        after = max((one.version for one in known if one.model == model), default=-1)
        changes = self.store.journal(self.history.id, after, _CHANGES)
        kinds = {change.kind for change in changes} - {"append", "create", "fork"}
        for kind in kinds & BREAKS.keys():
            return BREAKS[kind]
        return "edit" if kinds else "unknown"

    def _compare_cache(self, step: OpenStep, message: Message) -> tuple[Message, list[Record]]:
        """Return an answer with what the cache was to hold and what was read, and its records.

        Nothing here may keep an answer from being stored.
        """
        begun, info = step.cache, message.info
        if begun is None or not isinstance(info, AssistantInfo) or info.tokens is None:
            return message, []
        try:
            return begun.settle(message, info.tokens)
        except Exception:  # noqa: BLE001 - as above
            _log.exception("what the cache held of a request could not be compared")
            return message, []

    def save_draft(self, step: OpenStep, message: Message) -> None:
        """Store what has arrived of an answer."""
        self._put([(DRAFT, step.intent.id, dump(message))], step.lease)

    def finish_step(
        self,
        step: OpenStep,
        message: Message,
        add_cost: Callable[[Message], Message],
        *,
        complete: bool = True,
    ) -> tuple[Message, Usage, tuple[LedgerEntry, ...]]:
        """Store an answer with its usage and its calls in one change, and end the step.

        `add_cost` adds the cost that the provider left out. Only a complete answer is remembered by
        the step's key: an interrupted one is asked for again. A complete answer is published by
        whoever takes the step, an interrupted one is announced like any other change.
        """
        history, intent = self.history, step.intent
        try:
            message = add_cost(drop_empty_usage(message))
            message, cache_records = self._compare_cache(step, message)
            entries = tuple(pending_entries(message))
            counted = self.tally.total(history.view) + self.tally.weigh(message)
            usage = read_usage(step.records[USAGE]).after(message, history.version + 1, counted)
            records = [
                *_removals(intent.id),
                *(entry.record() for entry in entries),
                usage.record(),
                *cache_records,
            ]
            if intent.key is not None and complete:
                records += _answer_records(intent.key, message, step.records)
            with (
                self.announcer.silently() if complete else nullcontext(),
                self.lease.finishing(step.lease) as (lease, release),
            ):
                history.extend(
                    [message], key=intent.id, records=records, lease=lease, release=release
                )
        finally:
            self.lease.release(step.lease)
        return message, usage, entries

    def _find_answer(self, key: str, records: Mapping[str, dict[str, bytes]]) -> Message | None:
        """Return the answer of the step of a key, if it has one."""
        stored = _read_answers(records).get(key)
        if stored is None:
            return None
        log = self.history.view.log
        positions = log.positions_of(stored.message)
        return log[positions[0]] if positions else None

    def withdraw(self, step: OpenStep | Message) -> None:
        """Undo `begin_step`: no model was asked."""
        if isinstance(step, OpenStep):
            self.abandon_step(step)

    def abandon_step(self, step: OpenStep) -> None:
        """End a step without an answer: its intent is removed."""
        try:
            self._put(_removals(step.intent.id), step.lease)
        finally:
            self.lease.release(step.lease)

    def request(self, form: str, target: Target) -> Request:
        """Return the request for the conversation as it is now; only what is new is converted."""
        return self._request(form, target, self.ledger())

    def _request(self, form: str, target: Target, ledger: Mapping[str, LedgerEntry]) -> Request:
        view, key = self.history.view, (form, target)
        open_calls = {entry.call_id for entry in ledger.values() if not entry.done}
        if open_calls:
            fresh = converter(form, target, open_calls=open_calls)
            fresh.extend(view)
            return fresh.request()
        ranges = list(view.ranges())
        known = self._conversions.get(key)
        more = None if known is None else _new_ranges(known.ranges, ranges)
        if known is None or more is None:
            known, more = _Conversion(converter(form, target), [], BlockHashes()), ranges
        for start, stop in more:
            known.converter.extend(view.log.between(start, stop))
        self._conversions[key] = _Conversion(known.converter, ranges, known.chain)
        return known.converter.request()

    def usage(self) -> Usage:
        """Return the usage so far."""
        return read_usage(self.store.records(self.history.id, USAGE))

    # ── tool calls ──────────────────────────────────────────────────────────────────────────────

    def ledger(self) -> dict[str, LedgerEntry]:
        """Return the calls that have no result in the log, by the id of their part."""
        return read_ledger(self.store.records(self.history.id, CALL))

    def waiting(self) -> list[ToolCallPart]:
        """Return the calls in the view that were not started."""
        entries = [e for e in self.ledger().values() if e.state.status == "pending" and not e.stray]
        if not entries:
            return []
        view = self.history.refresh().view
        return [
            part
            for entry in entries
            for part in _calls_in(view, entry.message_id)
            if part.id == entry.id
        ]

    def digests(self, calls: Iterable[ToolCallPart]) -> dict[str, str]:
        """Return the digests that approvals of these calls name, by the id of their part.

        A digest is made of the call as it is given. A call that is not in the view has none.
        """
        ledger, view = self.ledger(), self.history.refresh().view
        found = dict[str, str]()
        for call in calls:
            located = _find_open_call(view, call.id, ledger.get(call.id))
            if located is not None:
                found[call.id] = call_digest(self.history.id, located[0], call)
        return found

    def begin_calls(self) -> Work:
        """Take the lease for calls, and read what `open_calls` looks at."""
        return self.lease.begin("calls", (CALL,))

    def open_calls(
        self, work: Work, calls: Sequence[ToolCallPart], approved: Mapping[str, str] = EMPTY
    ) -> dict[str, LedgerEntry]:
        """Return the entries of calls that need a result, by the id of their part.

        A call that was not added by a step gets its entry now. `ValidationError` refuses a call
        that has its result already or was never made, `CallChanged` one that was not started and
        differs in the view from what is given, or from its digest in `approved`.
        """
        ledger, found = read_ledger(work.records[CALL]), dict[str, LedgerEntry]()
        view = self.history.refresh(work.head).view
        for call in calls:
            entry = ledger.get(call.id)
            if entry is None or entry.state.status == "pending":
                entry = self._current_entry(view, call, entry, approved.get(call.id))
            if entry is None or entry.id in found:
                reason = "is given twice"
                if entry is None:
                    reason = "is not open: it has its result or was never made"
                detail = f"call {call.call_id!r} of {call.tool} {reason}"
                raise ValidationError(detail, path="$.calls", rule="tool-call")
            found[call.id] = entry
        return found

    def _current_entry(
        self, view: View, call: ToolCallPart, known: LedgerEntry | None, approved: str | None
    ) -> LedgerEntry | None:
        """Return the entry of a call as it is in the view; raise `CallChanged` if it differs."""
        located = _find_open_call(view, call.id, known)
        if located is None:
            if known is not None or approved is not None:
                msg = f"the call of {call.tool} ({call.call_id}) has left the conversation"
                raise CallChanged(msg)
            return None
        position, now = located
        digest = call_digest(self.history.id, position, now)
        if not _asks_the_same(call, now) or approved not in (None, digest):
            raise call_changed(now, digest)
        entry = next(entry for entry in pending_entries(view.log[position]) if entry.id == call.id)
        return msgspec.structs.replace(entry, asked=content_digest(now))

    def save_entries(
        self, entries: Iterable[LedgerEntry], lease: Lease, records: Sequence[Record] = ()
    ) -> None:
        """Store the states of calls, with other records."""
        self._put([*(entry.record() for entry in entries), *records], lease)

    def append_results(
        self, entries: Sequence[LedgerEntry], lease: Lease, *, last: bool = False
    ) -> tuple[list[Message], list[LedgerEntry]]:
        """Append results in the order of the calls, in one change.

        The `last` change of a work gives its lease back, unless results are left over. A result
        whose call has left the view stays in the ledger. Returns the messages that were appended
        and the entries that were not.
        """
        ordered = sorted(entries, key=lambda entry: entry.position)
        left = frozenset[str]()
        while here := [entry for entry in ordered if entry.id not in left]:
            key = f"results-{'-'.join(entry.id for entry in here)}"[:200]
            try:
                with self._finishing(lease, over=last and not left) as (renewed, release):
                    self.history.extend(
                        [entry.message() for entry in here],
                        key=key,
                        records=[record for entry in here for record in entry.removals()],
                        lease=renewed,
                        release=release,
                        unless=partial(_check_calls, here),
                    )
            except _CallsChanged as found:
                left |= found.calls
                ordered = [e.with_edit_note() if e.id in found.edited else e for e in ordered]
                continue
            break
        strays = [
            msgspec.structs.replace(entry, stray=True) for entry in ordered if entry.id in left
        ]
        if strays:
            self.save_entries(strays, lease)
        return [entry.message() for entry in here], strays

    @contextmanager
    def _finishing(self, lease: Lease, *, over: bool) -> Generator[tuple[Lease, bool]]:
        """Give the lease to write under, and whether it is given back, which ends the work."""
        if over:
            with self.lease.finishing(lease) as ending:
                yield ending
        else:
            with self.lease.writing(lease) as renewed:
                yield renewed, False

    def save_late_result(self, entry: LedgerEntry) -> bool:
        """Store what came after a call's result, beside it; nothing if the call was erased."""
        log = self.history.refresh().view.log
        for name in (entry.message_id, entry.message().id):
            if any(ERASED in log[position].metadata for position in log.positions_of(name)):
                return False
        self.store.put_records(self.history.id, [entry.beside().record()])
        return True

    # ── after a crash ───────────────────────────────────────────────────────────────────────────

    def intents(self) -> dict[str, StepIntent]:
        """Return the intents of the steps that were begun and not finished."""
        found = self.store.records(self.history.id, STEP)
        return {
            name: decode_record(value, StepIntent, f"the step {name!r}")
            for name, value in found.items()
        }

    def drafts(self) -> dict[str, Message]:
        """Return what had arrived of their answers."""
        found = self.store.records(self.history.id, DRAFT)
        return {name: parse_message(value) for name, value in found.items()}

    def abandon_intent(self, intent: StepIntent, lease: Lease) -> None:
        """End a step of which no draft was stored: its intent is removed."""
        self._put(_removals(intent.id), lease)

    def append_draft(self, intent: StepIntent, message: Message, lease: Lease) -> None:
        """Append what had arrived of an answer as a message, and end its step."""
        entries = tuple(pending_entries(message))
        records = [*_removals(intent.id), *(entry.record() for entry in entries)]
        with self.lease.writing(lease) as renewed:
            self.history.extend([message], key=intent.id, records=records, lease=renewed)

    def _put(self, records: Sequence[Record], lease: Lease) -> None:
        with self.lease.writing(lease) as renewed:
            self.store.put_records(self.history.id, records, token=renewed.token)


def _read_answers(records: Mapping[str, dict[str, bytes]]) -> dict[str, _StepAnswer]:
    """Return which messages answered the steps that had keys."""
    try:
        return {name: decode(value, _StepAnswer) for name, value in records[ANSWER].items()}
    except msgspec.DecodeError as error:
        msg = f"which messages answered which steps can't be read: {error}"
        raise StoreDamaged(msg) from None


def _answer_records(
    key: str, message: Message, records: Mapping[str, dict[str, bytes]]
) -> list[Record]:
    """Return the records that remember an answer by its key and forget the oldest ones."""
    known = _read_answers(records)
    by_age = sorted(known, key=lambda name: known[name].at)
    old = by_age[: max(0, len(by_age) - _MAX_ANSWERS + 1)]
    fresh = msgspec.json.encode(_StepAnswer(message.id, now_ms()))
    return [(ANSWER, key, fresh), *((ANSWER, name, None) for name in old if name != key)]


def _removals(step: str) -> list[Record]:
    return [(STEP, step, None), (DRAFT, step, None)]


def _new_ranges(
    known: list[tuple[int, int]], now: list[tuple[int, int]]
) -> list[tuple[int, int]] | None:
    """Return the ranges of a view after the known ones; None if it begins differently."""
    if not known:
        return now
    last = len(known) - 1
    if len(now) <= last or known[:last] != now[:last] or known[last][0] != now[last][0]:
        return None
    start, stop = known[last][1], now[last][1]
    if stop < start:
        return None
    return [(start, stop), *now[last + 1 :]] if stop > start else now[last + 1 :]


def _check_calls(entries: Sequence[LedgerEntry], view: View) -> None:
    """Raise `_CallsChanged` for results whose calls have left the view or were edited."""
    gone: list[str] = []
    edited: list[str] = []
    seen: dict[str, dict[str, ToolCallPart]] = {}
    for entry in entries:
        if entry.message_id not in seen:
            seen[entry.message_id] = {part.id: part for part in _calls_in(view, entry.message_id)}
        call = seen[entry.message_id].get(entry.id)
        if call is None:
            gone.append(entry.id)
        elif entry.asked and entry.asked != content_digest(call):
            edited.append(entry.id)
    if gone or edited:
        raise _CallsChanged(gone, edited)


def _calls_in(view: View, message_id: str) -> list[ToolCallPart]:
    return [part for _, part in _calls_with_positions(view, message_id)]


def _calls_with_positions(view: View, message_id: str) -> Iterator[tuple[int, ToolCallPart]]:
    """Yield the calls of a message in the view, each with the message's log position.

    It is nearly always one of the last; only if it is not, the store is asked where it is.
    """
    first = max(0, len(view) - _RECENT)
    recent = [i for i, message in enumerate(view[first:], first) if message.id == message_id]
    found = list(map(view.position, recent)) or view.log.positions_of(message_id)
    for position in found:
        if recent or view.index_of(position) is not None:
            for part in view.log[position].parts:
                if isinstance(part, ToolCallPart):
                    yield position, part


def _find_open_call(
    view: View, name: str, known: LedgerEntry | None
) -> tuple[int, ToolCallPart] | None:
    """Return the call of an id as it is in the view, without a result, and its log position.

    Its entry says where it is; a call without an entry, or one that is in another message now, is
    searched from the end.
    """
    for position, call in () if known is None else _calls_with_positions(view, known.message_id):
        if call.id == name:
            return position, call
    answered = set[str]()
    for stop in range(len(view), 0, -_CHUNK):
        begin = max(0, stop - _CHUNK)
        for index, message in reversed(list(enumerate(view[begin:stop], begin))):
            answered.update(p.call_id for p in message.parts if isinstance(p, ToolPart))
            for part in message.parts:
                if isinstance(part, ToolCallPart) and part.id == name:
                    return None if part.call_id in answered else (view.position(index), part)
    return None


def _asks_the_same(one: ToolCallPart, other: ToolCallPart) -> bool:
    """Tell whether two calls have the same tool, arguments and call id."""
    return one.call_id == other.call_id and content_digest(one) == content_digest(other)
