"""The SDK's `SessionStore` over a palaver store: a session is a conversation, a line a message.

A batch of lines is one change: the messages go into the log, and what is no message beside it, in
the same transaction. A line is known by its uuid, so that a batch that is sent again adds nothing.
"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import anyio.to_thread
from claude_agent_sdk import fold_session_summary
from claude_agent_sdk.types import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)

from palaver.adapters.claude_agent_sdk.entries import KEPT, read_entry
from palaver.adapters.claude_agent_sdk.transcript import Aside, write_transcript
from palaver.errors import AlreadyExists, UnknownConversation
from palaver.messages import new_id
from palaver.messages.ids import now_ms
from palaver.messages.parts import ToolCallPart
from palaver.wire.transcripts.blocks import blocks_of, result_of
from palaver.wire.transcripts.building import Call
from palaver.wire.transcripts.fields import object_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from palaver.history.view import View
    from palaver.messages import Message
    from palaver.stores import Store
    from palaver.stores.history import StoredHistory
    from palaver.stores.records import Head, Record

__all__ = ["PalaverSessionStore"]

_ASIDES: Final = KEPT
"""The kind of the records that hold lines which are no messages; their names are in order."""
_WHOLES: Final = f"{KEPT}.whole"
"""The kind of those that hold lines to the letter, by their uuids."""
_STATE: Final = f"{KEPT}.state"
_PROJECT: Final = "claude-project:"
"""How the tag of a session begins that says which project it is of."""
_SUBAGENT: Final = "claude-subagent"
_TITLES: Final = {"custom-title": "customTitle", "ai-title": "aiTitle"}
_LOOKED_BACK: Final = 400
"""Messages that are searched for the call of a result, and so many at once."""
_AT_ONCE: Final = 16
_ALL: Final = 1_000_000
_T = TypeVar("_T")


class _CameBefore(Exception):  # noqa: N818 - nothing went wrong
    """Another process has kept some of these lines meanwhile."""


class PalaverSessionStore(SessionStore):
    """Keeps the sessions of the Claude Agent SDK in a palaver store.

    The session's id is the conversation's. Its project is a tag of it, and a subagent's transcript
    is a conversation beside it.

    >>> import anyio, palaver
    >>> store = palaver.open(":memory:")
    >>> sessions = PalaverSessionStore(store)
    >>> line = {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "Tea?"}}
    >>> anyio.run(sessions.append, {"project_key": "p", "session_id": "s1"}, [line])
    >>> store.get("s1")[0].text
    'Tea?'
    """

    def __init__(self, store: Store) -> None:
        """Take a store; it stays the caller's to close."""
        self._store = store

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Keep a batch of lines, all or none."""
        if entries:
            await _in_thread(partial(self._append, key, entries))

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """The lines of a session as the conversation is now; None where there is none."""
        return await _in_thread(partial(self._load, key))

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The sessions of a project, and when each was last changed, by whomever."""
        return await _in_thread(partial(self._list_sessions, project_key))

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """The SDK's summary of each session of a project; it is made again after a change."""
        return await _in_thread(partial(self._list_summaries, project_key))

    async def delete(self, key: SessionKey) -> None:
        """Forget a session and its subagents, or one subagent."""
        await _in_thread(partial(self._delete, key))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """The subagents of a session."""
        return await _in_thread(partial(self._list_subkeys, key))

    # ── which conversation ───────────────────────────────────────────────────────────────────────

    def _name(self, key: SessionKey) -> str:
        """The conversation of a session: its id, or with the project where another has that."""
        whole = _whole_name(key)
        subpath = key.get("subpath")
        if subpath:
            return f"{whole}/{subpath}"
        plain = key["session_id"]
        head = self._head(plain)
        if head is None:
            return whole if self._head(whole) else plain
        projects = [tag for tag in head.tags if tag.startswith(_PROJECT)]
        return plain if not projects or _PROJECT + key["project_key"] in projects else whole

    def _head(self, name: str) -> Head | None:
        try:
            return self._store.keeper.head(name)
        except UnknownConversation:
            return None

    def _opened(self, key: SessionKey) -> StoredHistory:
        """The conversation of a session, begun if it is not there."""
        while True:
            name = self._name(key)
            tag = _SUBAGENT if key.get("subpath") else _PROJECT + key["project_key"]
            try:
                return self._store.get(name)
            except UnknownConversation:
                pass
            try:
                return self._store.create(id=name, tags=[tag])
            except AlreadyExists:  # by another process, just now; perhaps of another project
                continue

    # ── writing ──────────────────────────────────────────────────────────────────────────────────

    def _append(self, key: SessionKey, entries: Sequence[Mapping[str, Any]]) -> None:
        history = self._opened(key)
        while True:
            try:
                self._write(history, entries)
            except _CameBefore:
                history.refresh()
            else:
                break
        title = _title_in(entries)
        if title is not None and title != history.title:
            self._store.describe(history.id, title=title, tags=history.tags)

    def _write(self, history: StoredHistory, entries: Sequence[Mapping[str, Any]]) -> None:
        keeper = self._store.keeper
        messages: list[Message] = []
        records: list[Record] = []
        last = history[-1].id if len(history) else ""
        calls = _Calls(history)
        first, known, taken = new_id(), 0, set[str]()
        for number, entry in enumerate(entries):
            made = read_entry(entry, calls.wanted_by(entry))
            if made and (made[0].id in taken or keeper.positions_of(history.id, made[0].id)):
                known += 1
                continue
            if made:
                taken.add(made[0].id)
                messages += made
                last = made[-1].id
                calls.learn(made)
                if made[0].metadata[KEPT].get("whole"):
                    records.append((_WHOLES, str(entry["uuid"]), _json(entry)))
            else:
                value = _json({"after": last, "entry": entry})
                records.append((_ASIDES, f"{first}.{number:06}", value))
        if known and not messages:
            return  # the batch was kept before, with all that is in it
        records.append((_STATE, "touched", _json({"at": now_ms(), "by": first})))
        if not messages:
            keeper.keep(history.id, records)
            return
        names = [message.id for message in messages]
        again = hashlib.sha256("\n".join(names).encode()).hexdigest()

        def unless(_: View) -> None:
            if any(keeper.positions_of(history.id, name) for name in names):
                raise _CameBefore

        history.extend(messages, key=f"{KEPT} {again}", records=records, unless=unless)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def _load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        name = self._name(key)
        if self._head(name) is None:
            return None
        history = self._store.get(name)
        ancestors = list(self._ancestors(history.id))
        asides: dict[str, bytes] = {}
        wholes: dict[str, bytes] = {}
        for each in [*ancestors, history.id]:
            asides |= self._store.keeper.records(each, _ASIDES)
            wholes |= self._store.keeper.records(each, _WHOLES)
        if not asides and not len(history.log):
            return None
        told = (json.loads(value) for _, value in sorted(asides.items()))
        entries = write_transcript(
            history.view,
            [Aside(value["after"], value["entry"]) for value in told],
            wholes,
            session_id=key["session_id"],
            forked_from=frozenset(ancestors),
        )
        return cast("list[SessionStoreEntry]", entries)

    def _ancestors(self, name: str) -> list[str]:
        """The conversations that one was forked from: what stands beside their logs is its too."""
        found: list[str] = []
        parent = self._store.keeper.head(name).parent
        while parent is not None:
            found.append(parent)
            parent = self._store.keeper.head(parent).parent
        return found[::-1]

    def _heads(self, project_key: str) -> Iterator[tuple[str, Head, dict[str, Any]]]:
        """The sessions of a project: id, head and state."""
        after: str | None = None
        suffix = f"@{_safe(project_key)}"
        while True:
            page = self._store.list(tag=_PROJECT + project_key, after=after)
            for head in page.conversations:
                kept = self._store.keeper.records(head.id, _STATE)
                state = {name: json.loads(value) for name, value in kept.items()}
                if state or head.size:
                    yield head.id.removesuffix(suffix), head, state
            after = page.next
            if after is None:
                return

    def _list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        return [
            {"session_id": session, "mtime": _changed(head, state)}
            for session, head, state in self._heads(project_key)
        ]

    def _list_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        found: list[SessionSummaryEntry] = []
        for session, head, state in self._heads(project_key):
            seen = [head.version, state.get("touched", {}).get("by")]
            kept: dict[str, Any] = state.get("summary", {})
            if kept.get("seen") != seen:
                key: SessionKey = {"project_key": project_key, "session_id": session}
                data = fold_session_summary(None, key, self._load(key) or [])["data"]
                kept = {"seen": seen, "data": data}
                self._store.keeper.put(head.id, _STATE, "summary", _json(kept))
            changed = _changed(head, state)
            found.append({"session_id": session, "mtime": changed, "data": kept["data"]})
        return found

    def _list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        start = f"{_whole_name(key)}/"
        return [name.removeprefix(start) for name in self._store.named(start, limit=_ALL)]

    def _delete(self, key: SessionKey) -> None:
        names = [self._name(key)]
        if not key.get("subpath"):
            names += self._store.named(f"{_whole_name(key)}/", limit=_ALL)
        for name in names:
            if self._head(name) is not None:
                self._store.delete(name)


class _Calls:
    """The tool calls that the results of a batch answer: in it, or in what came before."""

    def __init__(self, history: StoredHistory) -> None:
        self._view = history.view
        self._known: dict[str, Call] = {}

    def wanted_by(self, entry: Mapping[str, Any]) -> Mapping[str, Call]:
        """The calls that are known, after a look back for those that a line has results of."""
        content = object_in(entry, "message").get("content")
        results = map(result_of, blocks_of(content)) if entry.get("type") == "user" else ()
        wanted = {result.call_id for result in results if result is not None}
        end = len(self._view)
        start = max(end - _LOOKED_BACK, 0)
        while end > start and not wanted <= self._known.keys():
            begin = max(end - _AT_ONCE, start)
            known, self._known = self._known, {}
            self.learn(self._view[begin:end])
            self._known |= known  # what came later counts
            end = begin
        return self._known

    def learn(self, messages: Sequence[Message]) -> None:
        """Take in the calls of messages; the latest of an id counts."""
        for message in messages:
            for part in message.parts:
                if isinstance(part, ToolCallPart):
                    call = Call(part.tool, part.input, part.raw, message.timestamp)
                    self._known[part.call_id] = call


async def _in_thread(work: Callable[[], _T]) -> _T:
    return await anyio.to_thread.run_sync(work)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()  # ASCII: it keeps every character


def _safe(text: str) -> str:
    """A text without the signs that stand between the parts of a name."""
    return text.replace("%", "%25").replace("/", "%2F").replace("@", "%40")


def _whole_name(key: SessionKey | SessionListSubkeysKey) -> str:
    return f"{_safe(key['session_id'])}@{_safe(key['project_key'])}"


def _changed(head: Head, state: Mapping[str, Any]) -> int:
    """When a session was last changed: by the SDK, or with palaver."""
    return max(head.updated, int(state.get("touched", {}).get("at", 0)))


def _title_in(entries: Sequence[Mapping[str, Any]]) -> str | None:
    """The last title that lines give the session."""
    for entry in reversed(entries):
        title = entry.get(_TITLES.get(str(entry.get("type")), ""))
        if isinstance(title, str) and title.strip() and title.isprintable():
            return title
    return None
