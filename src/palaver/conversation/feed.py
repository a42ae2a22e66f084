"""The events of a store, for observers in other processes, for the page and for the bus.

The journal has every change, in order, none missed and none twice; this module derives the events
of each change, for those who follow the store and for the bus of a conversation alike. That a call
is running is not a change but a state in the ledger: its event is emitted as soon as the state is
seen, and with the result at the latest.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from palaver.conversation.ledger import CALL, read_ledger
from palaver.conversation.prompt_cache import cache_data, cache_use_of
from palaver.errors import UnknownConversation
from palaver.events import Event, EventName
from palaver.messages import (
    AssistantInfo,
    Message,
    ToolCallPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    ToolRunning,
)
from palaver.messages.limits import check_number
from palaver.messages.tool_state import RunningTime
from palaver.stores.store import check_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.conversation.ledger import LedgerEntry
    from palaver.messages import TokenCounts, ToolState
    from palaver.stores.records import JournalEntry
    from palaver.stores.store import Store

__all__ = ["CHANGE_EVENTS", "EventFeed", "follow_events"]

_POLL_SECONDS: Final = 0.1
_MAX_LOOKBACK: Final = 200
"""How many messages back the call of a result is searched."""
CHANGE_EVENTS: Final[Mapping[str, EventName]] = {
    "rollback": "history.rolled_back",
    "undo": "history.rolled_back",
    "redo": "history.rolled_back",
    "restore": "history.rolled_back",
    "compact": "compaction.done",
    "team_task": "team_task.changed",
    "erase": "message.erased",
}
"""The event of a kind of change; all other kinds are edits."""


def follow_events(
    store: Store,
    conversation: str | None = None,
    *,
    after: int | None = None,
    seconds: float | None = None,
) -> Iterator[Event]:
    """Yield every event of a conversation, or of the whole store, in order; wait for more.

    `after` is the `cursor` of the last event seen; without it, only events from now on are yielded.
    `seconds` ends the wait when nothing has happened for so long. If a reader stops amid the events
    of one change and continues later, it gets the events of that change again, and misses none.

    >>> import palaver
    >>> store = palaver.open(":memory:")
    >>> talk = store.create([palaver.user("Tea?")])
    >>> _ = talk.undo() if len(talk) > 1 else talk.clear()
    >>> [event.name for event in follow_events(store, talk.id, after=-1, seconds=0)]
    ['message.added', 'history.edited']
    """
    check_store(store)
    for value, path in ((after, "$.after"), (seconds, "$.seconds")):
        if value is not None:
            check_number(value, path, least=-1 if path == "$.after" else 0)
    if after is None:
        after = store.newest() if conversation is None else store.head(conversation).version
    return EventFeed(store, conversation, after).events(seconds)


class EventFeed:
    """A position in the journal, and the calls that are known to be open.

    `touched` collects the conversations of the changes that were read; the reader empties it.
    """

    def __init__(self, store: Store, conversation: str | None, after: int) -> None:
        """Start after a version of a conversation, or after a cursor of the whole store."""
        self.touched: set[str] = set()
        self._store = store
        self._conversation = conversation
        self._after = after
        self._watched = set[str]() if conversation is None else {conversation}
        self._running: set[str] = set()
        self._settled: set[str] = set()

    def events(self, seconds: float | None) -> Iterator[Event]:
        """Yield all events there are, and then those that come."""
        last = time.monotonic()
        while True:
            quiet = True
            for event in self.poll():
                quiet = False
                yield event
            if not quiet:
                last = time.monotonic()
                continue
            left = _POLL_SECONDS if seconds is None else last + seconds - time.monotonic()
            if left <= 0:
                return
            self._store.wait(min(left, _POLL_SECONDS))

    @property
    def after(self) -> int:
        """The last change all of whose events were yielded."""
        return self._after

    def poll(self) -> Iterator[Event]:
        """Yield what is new: first the changes, then the calls that were running before them.

        So a call is never reported as running before it is reported as pending, or after its end.
        """
        running = list(self._newly_running())
        self._settled.clear()
        for change in self._store.follow(self._conversation, after=self._after, seconds=0):
            cursor = change.cursor if self._conversation is None else change.version
            events = list(self.change_events(change))
            for count, (name, data) in enumerate(events, 1):
                seen = cursor if count == len(events) else self._after
                yield Event(
                    name, change.conversation, change.version, data, at=change.at, cursor=seen
                )
            self._after = cursor
            self.touched.add(change.conversation)
        for conversation, entry, state in running:
            if entry.id not in self._settled:
                self._running.add(entry.id)
                data = {**_about(entry.id, entry.call_id, entry.tool), "state": _to_json(state)}
                version = self._store.head(conversation).version
                yield Event(
                    "tool.running", conversation, version, data,
                    at=state.time.start, cursor=self._after,
                )  # fmt: skip

    # ── the events of a change ────────────────────────────────────────────────────────────────────

    def change_events(self, change: JournalEntry) -> Iterator[tuple[EventName, dict[str, Any]]]:
        """Yield the names and the data of the events that one change is."""
        try:
            stop = change.first + change.count
            messages = self._store.messages(change.conversation, change.first, stop)
            if change.kind in ("append", "create", "team_task"):
                for message in messages:
                    yield from self._message_events(change, message)
                if change.kind != "team_task":
                    return
            task = self._task(change) if change.kind == "team_task" else None
        except UnknownConversation:  # it was deleted meanwhile
            return
        if change.kind == "fork":
            return
        data: dict[str, Any] = {"operation": change.kind.upper(), **change.data}
        if messages:
            data["added"] = [message.id for message in messages]
        if change.kind == "team_task":
            data = {"task": task}
        yield CHANGE_EVENTS.get(change.kind, "history.edited"), data

    def _task(self, change: JournalEntry) -> str | None:
        return self._store.get(change.conversation).at(change.version).team_task

    def _message_events(
        self, change: JournalEntry, message: Message
    ) -> Iterator[tuple[EventName, dict[str, Any]]]:
        for part in message.parts:
            if isinstance(part, ToolPart):
                yield from self._result_events(change, part)
        yield "message.added", {"id": message.id, "role": message.role}
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                self._watched.add(change.conversation)
                yield "tool.pending", _about(part.id, part.call_id, part.tool)
        if isinstance(message.info, AssistantInfo) and message.info.tokens is not None:
            yield "usage.updated", _usage_data(message, message.info.tokens)
        use = cache_use_of(message)
        if use is not None:
            yield "cache.updated", cache_data(message, use)

    def _result_events(
        self, change: JournalEntry, part: ToolPart
    ) -> Iterator[tuple[EventName, dict[str, Any]]]:
        """Yield the events of a result; before them that it was running, if that was not seen."""
        state = part.state
        if not isinstance(state, ToolCompleted | ToolError):
            return  # pragma: no cover - a message has no open calls
        call_id = self._call_id_of(change, part)
        about = _about(call_id, part.call_id, part.tool)
        if call_id not in self._running:
            running = ToolRunning(input=state.input, time=RunningTime(state.time.start))
            yield "tool.running", {**about, "state": _to_json(running)}
        self._running.discard(call_id)
        self._settled.add(call_id)
        name: EventName = "tool.error" if isinstance(state, ToolError) else "tool.completed"
        yield name, {**about, "state": _to_json(state)}

    def _call_id_of(self, change: JournalEntry, result: ToolPart) -> str:
        """Return the id of a result's call; the result's own id if the call is too far back."""
        start = max(0, change.first - _MAX_LOOKBACK)
        for message in reversed(self._store.messages(change.conversation, start, change.first)):
            for part in message.parts:
                if isinstance(part, ToolCallPart) and part.call_id == result.call_id:
                    return part.id
        return result.id

    # ── the state of the ledger ───────────────────────────────────────────────────────────────────

    def _newly_running(self) -> Iterator[tuple[str, LedgerEntry, ToolRunning]]:
        """Yield the calls that were started since the last poll."""
        for conversation in sorted(self._watched):
            try:
                entries = read_ledger(self._store.records(conversation, CALL))
            except UnknownConversation:
                entries = {}
            if not entries and self._conversation is None:
                self._watched.discard(conversation)  # until it has calls again
            for entry in entries.values():
                if isinstance(entry.state, ToolRunning) and entry.id not in self._running:
                    yield conversation, entry, entry.state


def _about(part_id: str, call_id: str, tool: str) -> dict[str, Any]:
    return {"id": part_id, "callID": call_id, "tool": tool}


def _to_json(state: ToolState) -> Any:  # noqa: ANN401 - JSON
    return msgspec.to_builtins(state)


def _usage_data(message: Message, tokens: TokenCounts) -> dict[str, Any]:
    """Return the usage of one answer; the sums of a conversation are in `Conversation.usage`."""
    return {
        "message": message.id,
        "last": msgspec.to_builtins(tokens),
        "promptTokens": tokens.prompt,
        "completionTokens": tokens.completion,
        "totalTokens": tokens.prompt + tokens.completion,
    }
