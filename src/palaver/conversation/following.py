"""What happens in a store, as events, for whoever did not do it: another process, or a page.

The journal has every change, in order, none missed and none twice; this only says what each change
means. That a call is running is no change but a look at its ledger: it is told as soon as somebody
sees it, and with the result at the latest.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from palaver.conversation.ledger import CALL, read_entries
from palaver.errors import UnknownConversation
from palaver.events import Event, Name
from palaver.messages import (
    AssistantInfo,
    Message,
    ToolCallPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    ToolRunning,
)
from palaver.messages.toolstate import RunningTime

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.conversation.ledger import Entry
    from palaver.messages import TokenCounts, ToolState
    from palaver.stores.records import Journaled
    from palaver.stores.store import Store

__all__ = ["Follower", "follow_events"]

_NAP: Final = 0.1
_BACK: Final = 200
"""How far back the call of a result is looked for."""
_TOLD: Final[Mapping[str, Name]] = {
    "rollback": "history.rolled_back",
    "undo": "history.rolled_back",
    "redo": "history.rolled_back",
    "restore": "history.rolled_back",
    "compact": "compaction.done",
    "team_task": "team_task.changed",
    "erase": "message.erased",
}
"""What a kind of change is told as; the others are edits."""


def follow_events(
    store: Store,
    conversation: str | None = None,
    *,
    after: int | None = None,
    seconds: float | None = None,
) -> Iterator[Event]:
    """Every event of a conversation, or of the whole store, in order; waits for more.

    `after` is the `cursor` of the last event seen; without it, only what happens from now on is
    told. `seconds` ends the waiting when nothing has happened for so long. Whoever stops amid the
    events of one change and goes on later is told that change again, and misses nothing.

    >>> import palaver
    >>> store = palaver.open(":memory:")
    >>> talk = store.create([palaver.user("Tea?")])
    >>> _ = talk.undo() if len(talk) > 1 else talk.clear()
    >>> [event.name for event in follow_events(store, talk.id, after=-1, seconds=0)]
    ['message.added', 'history.edited']
    """
    if after is None:
        keeper = store.keeper
        after = keeper.newest() if conversation is None else keeper.head(conversation).version
    return Follower(store, conversation, after).events(seconds)


class Follower:
    """A place in the journal, and the calls that are known to be open.

    `touched` are the conversations of the changes that were passed, for whoever empties it.
    """

    def __init__(self, store: Store, conversation: str | None, after: int) -> None:
        """Begin after a version of a conversation, or after a cursor of the whole store."""
        self.touched: set[str] = set()
        self._store = store
        self._keeper = store.keeper
        self._conversation = conversation
        self._after = after
        self._watched = set[str]() if conversation is None else {conversation}
        self._running: set[str] = set()
        self._settled: set[str] = set()

    def events(self, seconds: float | None) -> Iterator[Event]:
        """All there are, and then all that come."""
        last = time.monotonic()
        while True:
            quiet = True
            for event in self.news():
                quiet = False
                yield event
            if not quiet:
                last = time.monotonic()
                continue
            left = _NAP if seconds is None else last + seconds - time.monotonic()
            if left <= 0:
                return
            self._keeper.wait(min(left, _NAP))

    @property
    def after(self) -> int:
        """The last change that was told whole."""
        return self._after

    def news(self) -> Iterator[Event]:
        """What is new: first the changes, then the calls that a look before them found at work.

        So nothing is said to run before it is said to be there, or after it is said to be done.
        """
        at_work = list(self._look())
        self._settled.clear()
        for change in self._store.follow(self._conversation, after=self._after, seconds=0):
            cursor = change.cursor if self._conversation is None else change.version
            told = list(self._told(change))
            for place, (name, data) in enumerate(told, 1):
                seen = cursor if place == len(told) else self._after
                yield Event(
                    name, change.conversation, change.version, data, at=change.at, cursor=seen
                )
            self._after = cursor
            self.touched.add(change.conversation)
        for conversation, entry, state in at_work:
            if entry.id not in self._settled:
                self._running.add(entry.id)
                data = {**_about(entry.id, entry.call_id, entry.tool), "state": _plain(state)}
                version = self._keeper.head(conversation).version
                yield Event(
                    "tool.running", conversation, version, data,
                    at=state.time.start, cursor=self._after,
                )  # fmt: skip

    # ── what a change means ─────────────────────────────────────────────────────────────────────

    def _told(self, change: Journaled) -> Iterator[tuple[Name, dict[str, Any]]]:
        try:
            stop = change.first + change.count
            messages = self._keeper.messages(change.conversation, change.first, stop)
            if change.kind in ("append", "create"):
                for message in messages:
                    yield from self._added(change, message)
                return
            task = self._task(change) if change.kind == "team_task" else None
        except UnknownConversation:  # it was deleted meanwhile, and nobody can look at it
            return
        if change.kind == "fork":
            return
        data: dict[str, Any] = {"operation": change.kind.upper(), **change.data}
        if messages:
            data["added"] = [message.id for message in messages]
        if change.kind == "team_task":
            data = {"task": task}
        yield _TOLD.get(change.kind, "history.edited"), data

    def _task(self, change: Journaled) -> str | None:
        return self._store.get(change.conversation).at(change.version).team_task

    def _added(self, change: Journaled, message: Message) -> Iterator[tuple[Name, dict[str, Any]]]:
        for part in message.parts:
            if isinstance(part, ToolPart):
                yield from self._result(change, part)
        yield "message.added", {"id": message.id, "role": message.role}
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                self._watched.add(change.conversation)
                yield "tool.pending", _about(part.id, part.call_id, part.tool)
        if isinstance(message.info, AssistantInfo) and message.info.tokens is not None:
            yield "usage.updated", _used(message, message.info.tokens)

    def _result(self, change: Journaled, part: ToolPart) -> Iterator[tuple[Name, dict[str, Any]]]:
        """A result: that its call was running is told before, where nobody saw it."""
        state = part.state
        if not isinstance(state, ToolCompleted | ToolError):
            return  # pragma: no cover - a message has no open calls
        call_id = self._call_of(change, part)
        about = _about(call_id, part.call_id, part.tool)
        if call_id not in self._running:
            running = ToolRunning(input=state.input, time=RunningTime(state.time.start))
            yield "tool.running", {**about, "state": _plain(running)}
        self._running.discard(call_id)
        self._settled.add(call_id)
        name: Name = "tool.error" if isinstance(state, ToolError) else "tool.completed"
        yield name, {**about, "state": _plain(state)}

    def _call_of(self, change: Journaled, result: ToolPart) -> str:
        """The id of the call that a result is of; the result's own where the call is far away."""
        start = max(0, change.first - _BACK)
        for message in reversed(self._keeper.messages(change.conversation, start, change.first)):
            for part in message.parts:
                if isinstance(part, ToolCallPart) and part.call_id == result.call_id:
                    return part.id
        return result.id

    # ── what the ledger shows ───────────────────────────────────────────────────────────────────

    def _look(self) -> Iterator[tuple[str, Entry, ToolRunning]]:
        """The calls that have begun since the last look."""
        for conversation in sorted(self._watched):
            try:
                entries = read_entries(self._keeper.records(conversation, CALL))
            except UnknownConversation:
                entries = {}
            if not entries and self._conversation is None:
                self._watched.discard(conversation)  # until it has calls again
            for entry in entries.values():
                if isinstance(entry.state, ToolRunning) and entry.id not in self._running:
                    yield conversation, entry, entry.state


def _about(part_id: str, call_id: str, tool: str) -> dict[str, Any]:
    return {"id": part_id, "callID": call_id, "tool": tool}


def _plain(state: ToolState) -> Any:  # noqa: ANN401 - JSON
    return msgspec.to_builtins(state)


def _used(message: Message, tokens: TokenCounts) -> dict[str, Any]:
    """What one answer used; the sums of a conversation are in `Conversation.usage`."""
    return {
        "message": message.id,
        "last": msgspec.to_builtins(tokens),
        "promptTokens": tokens.prompt,
        "completionTokens": tokens.completion,
        "totalTokens": tokens.prompt + tokens.completion,
    }
