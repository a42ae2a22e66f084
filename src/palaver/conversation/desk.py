"""The synchronous half of a conversation: everything it does to its store.

Each method is one visit to the store, made from a worker thread. What belongs together is kept
together: a step's intent before the model is asked, its answer with usage and calls in one change,
a call's start before its tool is touched, all results of an answer in one change.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from palaver.conversation.ledger import (
    CALL,
    Entry,
    call_digest,
    changed_since,
    content_digest,
    entries_of,
    read_entries,
)
from palaver.conversation.usage import KIND as USAGE
from palaver.conversation.usage import read_usage
from palaver.errors import CallChanged, ValidationError
from palaver.messages import Message, ModelRef, ToolCallPart, ToolPart, dump, new_id, parse_message
from palaver.messages.decoding import decode
from palaver.messages.gate import EMPTY
from palaver.messages.ids import now_ms
from palaver.stores.arguments import check_idempotency_key
from palaver.stores.records import Lease
from palaver.wire import Converter, Request, converter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from palaver.conversation.usage import Usage
    from palaver.history import View
    from palaver.stores.history import StoredHistory
    from palaver.stores.records import Record
    from palaver.stores.store import Store
    from palaver.tokens import Tally
    from palaver.wire import Target

__all__ = ["Begun", "Desk", "Intent"]

STEP: Final = "step"
DRAFT: Final = "draft"
ANSWER: Final = "answer"
_ANSWERS: Final = 32
"""How many answers are remembered by the keys of their steps: who asks again does so soon."""
LEASE_SECONDS: Final = 60.0
_STRETCH: Final = 100


class Intent(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A model is about to be asked: said before it happens, taken away by the answer."""

    id: str
    model: ModelRef | None
    version: int
    at: int
    key: str | None = None


class Begun(Struct, frozen=True):
    """A step under way."""

    intent: Intent
    lease: Lease
    request: Request


class _Answer(Struct, frozen=True):
    """Which message answered a step, and when."""

    message: str
    at: int


class _Written(Struct, frozen=True):
    """A converter, and the stretches of the log that it has written."""

    converter: Converter
    ranges: list[tuple[int, int]]


class _CallGone(Exception):  # noqa: N818 - not an error of the caller's
    """Some calls have left the view, or read otherwise than when they were begun."""

    def __init__(self, calls: list[str], edited: list[str]) -> None:
        super().__init__(calls, edited)
        self.calls = frozenset(calls)
        self.edited = frozenset(edited)


class Desk:
    """What a conversation writes and reads, in whole visits."""

    def __init__(self, store: Store, history: StoredHistory, tally: Tally) -> None:
        """Work on one conversation of a store."""
        self.store = store
        self.history = history
        self.tally = tally
        self._keeper = store.keeper
        self._holder = new_id()
        self._gate = threading.Lock()
        self._holds: list[Lease] = []
        self._written: dict[tuple[str, Target], _Written] = {}

    # ── a step ──────────────────────────────────────────────────────────────────────────────────

    def begin(self, form: str, target: Target, key: str | None = None) -> Begun | Message:
        """Take the lease, say what is about to happen, and write the request.

        Where the step of this key has its answer already, that is all there is to it.
        """
        check_idempotency_key(key)  # it is kept with the answer: too late to be refused then
        history = self.history
        lease = self.hold()
        try:
            history.refresh()
            if key is not None and (known := self._answer(key)) is not None:
                self.let_go(lease)
                return known
            request = self.request(form, target)
            intent = Intent(new_id(), target.model, history.version, now_ms(), key)
            self._keep([(STEP, intent.id, msgspec.json.encode(intent))], lease)
        except BaseException:
            self.let_go(lease)
            raise
        return Begun(intent, lease, request)

    def hold(self) -> Lease:
        """Take the right to work on the conversation; whoever works for this desk shares it."""
        with self._gate:
            lease = self._leased()
            self._holds.append(lease)
            return lease

    def renew(self) -> None:
        """Keep the right for longer, if it was not given back meanwhile."""
        with self._gate:
            if self._holds:
                self._leased()

    def _leased(self) -> Lease:
        return self.store.lease(self.history.id, self._holder, seconds=LEASE_SECONDS)

    def is_held(self, lease: Lease) -> bool:
        """Tell whether a lease that was taken here was not given back yet."""
        return any(held is lease for held in self._holds)

    def let_go(self, lease: Lease) -> None:
        """Give the right back; the last one to do so gives it to others. Twice is once."""
        with self._gate:
            if not self.is_held(lease):
                return
            self._holds = [held for held in self._holds if held is not lease]
            if not self._holds:
                self.store.release(lease)

    def draft(self, begun: Begun, message: Message) -> None:
        """Keep what has arrived of an answer."""
        self._keep([(DRAFT, begun.intent.id, dump(message))], begun.lease)

    def finish(
        self,
        begun: Begun,
        message: Message,
        finished: Callable[[Message], Message],
        *,
        whole: bool = True,
    ) -> tuple[Message, Usage, tuple[Entry, ...]]:
        """Store an answer with its usage and its calls, in one change; the step is over.

        `finished` adds to the answer what the provider left out. Only a whole answer is remembered
        by the step's key: what was cut off is asked for again.
        """
        history, intent = self.history, begun.intent
        try:
            message = finished(message)
            entries = tuple(entries_of(message))
            counted = self.tally.total(history.view) + self.tally.weigh(message)
            usage = self.usage().after(message, history.version + 1, counted)
            records = [*_over(intent.id), *(entry.kept() for entry in entries), usage.kept()]
            if intent.key is not None and whole:
                records += self._remembered(intent.key, message)
            history.extend([message], key=intent.id, records=records, lease=begun.lease)
        finally:
            self.let_go(begun.lease)
        return message, usage, entries

    def _answer(self, key: str) -> Message | None:
        """The answer that the step of a key has got."""
        kept = self._keeper.records(self.history.id, ANSWER).get(key)
        if kept is None:
            return None
        log = self.history.view.log
        places = log.positions_of(decode(kept, _Answer).message)
        return log[places[0]] if places else None

    def _remembered(self, key: str, message: Message) -> list[Record]:
        """The record of an answer; the oldest ones go."""
        known = self._keeper.records(self.history.id, ANSWER)
        by_age = sorted(known, key=lambda name: decode(known[name], _Answer).at)
        old = by_age[: max(0, len(by_age) - _ANSWERS + 1)]
        fresh = msgspec.json.encode(_Answer(message.id, now_ms()))
        return [(ANSWER, key, fresh), *((ANSWER, name, None) for name in old if name != key)]

    def withdraw(self, begun: Begun | Message) -> None:
        """Take back what `begin` did: nobody was asked."""
        if isinstance(begun, Begun):
            self.abandon(begun)

    def abandon(self, begun: Begun) -> None:
        """Nothing came of a step: its intent goes."""
        try:
            self._keep(_over(begun.intent.id), begun.lease)
        finally:
            self.let_go(begun.lease)

    def request(self, form: str, target: Target) -> Request:
        """What the model would be sent now; only what is new is written."""
        view, key = self.history.view, (form, target)
        open_calls = {entry.call_id for entry in self.ledger().values() if not entry.done}
        if open_calls:
            fresh = converter(form, target, open_calls=open_calls)
            fresh.extend(view)
            return fresh.request()
        ranges = list(view.ranges())
        known = self._written.get(key)
        more = None if known is None else _after(known.ranges, ranges)
        if known is None or more is None:
            known, more = _Written(converter(form, target), []), ranges
        for start, stop in more:
            known.converter.extend(view.log.between(start, stop))
        self._written[key] = _Written(known.converter, ranges)
        return known.converter.request()

    def usage(self) -> Usage:
        """What was used so far."""
        return read_usage(self._keeper.records(self.history.id, USAGE))

    # ── tool calls ──────────────────────────────────────────────────────────────────────────────

    def ledger(self) -> dict[str, Entry]:
        """The calls that have no result in the log, by the id of their part."""
        return read_entries(self._keeper.records(self.history.id, CALL))

    def waiting(self) -> list[ToolCallPart]:
        """The calls in the view that have not begun."""
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
        """What an approval of these calls would name, by the id of their part.

        A digest is made of the call as it is given. Those that are not in the view have none.
        """
        ledger, view = self.ledger(), self.history.refresh().view
        found = dict[str, str]()
        for call in calls:
            located = _locate(view, call.id, ledger.get(call.id))
            if located is not None:
                found[call.id] = call_digest(self.history.id, located[0], call)
        return found

    def open_calls(
        self, calls: Sequence[ToolCallPart], approved: Mapping[str, str] = EMPTY
    ) -> dict[str, Entry]:
        """The entries of calls that want a result, by the id of their part.

        A call that came in by another way than a step gets its entry now. One that has its result
        already, or that nobody asked for, is refused. So is one that has not begun and reads
        otherwise in the view than it is given, or than its digest in `approved` says.
        """
        ledger, found = self.ledger(), dict[str, Entry]()
        view = self.history.refresh().view
        for call in calls:
            entry = ledger.get(call.id)
            if entry is None or entry.state.status == "pending":
                entry = self._current(view, call, entry, approved.get(call.id))
            if entry is None or entry.id in found:
                why = (
                    "stands twice" if entry else "is not open: it has its result or was never made"
                )
                detail = f"call {call.call_id!r} of {call.tool} {why}"
                raise ValidationError(detail, path="$.calls", rule="CV-05")
            found[call.id] = entry
        return found

    def _current(
        self, view: View, call: ToolCallPart, known: Entry | None, approved: str | None
    ) -> Entry | None:
        """The entry of a call as it stands in the view; `CallChanged` where it is another one."""
        located = _locate(view, call.id, known)
        if located is None:
            if known is not None or approved is not None:
                msg = f"the call of {call.tool} ({call.call_id}) has left the conversation"
                raise CallChanged(msg)
            return None
        position, now = located
        digest = call_digest(self.history.id, position, now)
        if not _same(call, now) or approved not in (None, digest):
            raise changed_since(now, digest)
        entry = next(entry for entry in entries_of(view.log[position]) if entry.id == call.id)
        return msgspec.structs.replace(entry, asked=content_digest(now))

    def note(self, entries: Iterable[Entry], lease: Lease) -> None:
        """Write down how far calls have got."""
        self._keep([entry.kept() for entry in entries], lease)

    def conclude(self, entries: Sequence[Entry], lease: Lease) -> tuple[list[Message], list[Entry]]:
        """Append results in the order of the calls, in one change.

        A result whose call has left the view stays in the ledger. Answers what was appended and
        what was not.
        """
        ordered = sorted(entries, key=lambda entry: entry.position)
        gone = frozenset[str]()
        while here := [entry for entry in ordered if entry.id not in gone]:
            key = f"results-{'-'.join(entry.id for entry in here)}"[:200]
            try:
                self.history.extend(
                    [entry.message() for entry in here],
                    key=key,
                    records=[entry.gone() for entry in here],
                    lease=lease,
                    unless=partial(_check_calls, here),
                )
            except _CallGone as found:
                gone |= found.calls
                ordered = [e.call_edited() if e.id in found.edited else e for e in ordered]
                continue
            break
        strays = [
            msgspec.structs.replace(entry, stray=True) for entry in ordered if entry.id in gone
        ]
        if strays:
            self.note(strays, lease)
        return [entry.message() for entry in here], strays

    # ── after a crash ───────────────────────────────────────────────────────────────────────────

    def intents(self) -> dict[str, Intent]:
        """The steps that were begun and not finished."""
        found = self._keeper.records(self.history.id, STEP)
        return {name: decode(value, Intent) for name, value in found.items()}

    def drafts(self) -> dict[str, Message]:
        """What had arrived of their answers."""
        found = self._keeper.records(self.history.id, DRAFT)
        return {name: parse_message(value) for name, value in found.items()}

    def forget_step(self, intent: Intent, lease: Lease) -> None:
        """A step of which nothing is left is over."""
        self._keep(_over(intent.id), lease)

    def keep_draft(self, intent: Intent, message: Message, lease: Lease) -> None:
        """What had arrived of an answer becomes a message; the step is over."""
        entries = tuple(entries_of(message))
        records = [*_over(intent.id), *(entry.kept() for entry in entries)]
        self.history.extend([message], key=intent.id, records=records, lease=lease)

    def _keep(self, records: Sequence[Record], lease: Lease) -> None:
        self._keeper.keep(self.history.id, records, token=lease.token)


def _over(step: str) -> list[Record]:
    return [(STEP, step, None), (DRAFT, step, None)]


def _after(
    known: list[tuple[int, int]], now: list[tuple[int, int]]
) -> list[tuple[int, int]] | None:
    """The stretches of a view after those that are known; None where it begins otherwise."""
    if not known:
        return now
    last = len(known) - 1
    if len(now) <= last or known[:last] != now[:last] or known[last][0] != now[last][0]:
        return None
    start, stop = known[last][1], now[last][1]
    if stop < start:
        return None
    return [(start, stop), *now[last + 1 :]] if stop > start else now[last + 1 :]


def _check_calls(entries: Sequence[Entry], view: View) -> None:
    """Refuse results whose calls are no longer there, or no longer the ones that ran."""
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
        raise _CallGone(gone, edited)


def _calls_in(view: View, message_id: str) -> list[ToolCallPart]:
    return [part for _, part in _located_in(view, message_id)]


def _located_in(view: View, message_id: str) -> Iterator[tuple[int, ToolCallPart]]:
    """The calls of a message that the view selects, each with the message's log position."""
    for position in view.log.positions_of(message_id):
        if view.index_of(position) is not None:
            for part in view.log[position].parts:
                if isinstance(part, ToolCallPart):
                    yield position, part


def _locate(view: View, name: str, known: Entry | None) -> tuple[int, ToolCallPart] | None:
    """The call of an id as it stands in the view, without a result, and its log position.

    It is where its entry says; one that has no entry, or that stands in another message now, is
    looked for from the end.
    """
    for position, call in () if known is None else _located_in(view, known.message_id):
        if call.id == name:
            return position, call
    answered = set[str]()
    for stop in range(len(view), 0, -_STRETCH):
        begin = max(0, stop - _STRETCH)
        for index, message in reversed(list(enumerate(view[begin:stop], begin))):
            answered.update(p.call_id for p in message.parts if isinstance(p, ToolPart))
            for part in message.parts:
                if isinstance(part, ToolCallPart) and part.id == name:
                    return None if part.call_id in answered else (view.position(index), part)
    return None


def _same(one: ToolCallPart, other: ToolCallPart) -> bool:
    """Whether two calls ask for the same, for the same place."""
    return one.call_id == other.call_id and content_digest(one) == content_digest(other)
