"""The SDK's `SessionStore` over a palaver store: a session is a conversation, a line a message.

A batch of lines is one change: messages go into the log, and other lines into records beside it, in
the same transaction. A line is recognized by its uuid, so that a batch that is sent again adds
nothing.
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

from palaver.adapters.claude_agent_sdk.convert import (
    METADATA_KEY,
    SideLine,
    from_line,
    to_transcript,
)
from palaver.errors import AlreadyExists, UnknownConversation
from palaver.messages import new_id
from palaver.messages.ids import now_ms
from palaver.messages.parts import ToolCallPart
from palaver.stores.store import check_store
from palaver.transcripts.builder import KnownCall
from palaver.transcripts.claude_code import content_blocks, tool_result
from palaver.transcripts.sources import get_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from palaver.history.view import View
    from palaver.messages import Message
    from palaver.stores import Store, StoredHistory
    from palaver.stores.records import Head, Record

__all__ = ["PalaverSessionStore"]

_SIDE_LINES: Final = METADATA_KEY
"""The kind of records with lines that are not messages; their names are in order."""
_VERBATIM: Final = f"{METADATA_KEY}.whole"
"""The kind of records with verbatim lines, by uuid."""
_STATE: Final = f"{METADATA_KEY}.state"
_PROJECT: Final = "claude-project:"
"""The prefix of the tag that names a session's project."""
_SUBAGENT: Final = "claude-subagent"
_TITLES: Final = {"custom-title": "customTitle", "ai-title": "aiTitle"}
_MAX_LOOKBACK: Final = 400
"""How many messages are searched for the call of a result; `_PAGE` of them at a time."""
_PAGE: Final = 16
_ALL: Final = 1_000_000
_T = TypeVar("_T")


class _AlreadyStored(Exception):  # noqa: N818 - nothing went wrong
    """Another process has stored some of these lines meanwhile."""


class PalaverSessionStore(SessionStore):
    """Stores the sessions of the Claude Agent SDK in a palaver store.

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
        """Take a store, which the caller closes."""
        check_store(store)
        self._store = store

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Store a batch of lines, all or none."""
        if entries:
            await _in_thread(partial(self._append, key, entries))

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return the lines of a session as the conversation is now, or None."""
        return await _in_thread(partial(self._load, key))

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """List the sessions of a project, and when each was last changed."""
        return await _in_thread(partial(self._list_sessions, project_key))

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the SDK's summary of each session of a project, made again after a change."""
        return await _in_thread(partial(self._list_summaries, project_key))

    async def delete(self, key: SessionKey) -> None:
        """Delete a session and its subagents, or one subagent."""
        await _in_thread(partial(self._delete, key))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """List the subagents of a session."""
        return await _in_thread(partial(self._list_subkeys, key))

    # ── which conversation ───────────────────────────────────────────────────────────────────────

    def _name(self, key: SessionKey) -> str:
        """The conversation id of a session: its id, with the project if that id is taken."""
        whole = _session_name(key)
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
            return self._store.head(name)
        except UnknownConversation:
            return None

    def _open(self, key: SessionKey) -> StoredHistory:
        """Open the conversation of a session, or create it."""
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
        history = self._open(key)
        while True:
            try:
                self._write(history, entries)
            except _AlreadyStored:
                history.refresh()
            else:
                break
        title = _find_title(entries)
        if title is not None and title != history.title:
            self._store.describe(history.id, title=title, tags=history.tags)

    def _write(self, history: StoredHistory, entries: Sequence[Mapping[str, Any]]) -> None:
        store = self._store
        messages: list[Message] = []
        records: list[Record] = []
        last = history[-1].id if len(history) else ""
        calls = _CallIndex(history)
        first, known, taken = new_id(), 0, set[str]()
        for number, entry in enumerate(entries):
            made = from_line(entry, calls.wanted_by(entry))
            if made and (made[0].id in taken or store.find_positions(history.id, made[0].id)):
                known += 1
                continue
            if made:
                taken.add(made[0].id)
                messages += made
                last = made[-1].id
                calls.learn(made)
                if made[0].metadata[METADATA_KEY].get("whole"):
                    records.append((_VERBATIM, str(entry["uuid"]), _json(entry)))
            else:
                value = _json({"after": last, "entry": entry})
                records.append((_SIDE_LINES, f"{first}.{number:06}", value))
        if known and not messages:
            return  # the whole batch was stored before
        records.append((_STATE, "touched", _json({"at": now_ms(), "by": first})))
        if not messages:
            store.put_records(history.id, records)
            return
        names = [message.id for message in messages]
        again = hashlib.sha256("\n".join(names).encode()).hexdigest()

        def unless(_: View) -> None:
            if any(store.find_positions(history.id, name) for name in names):
                raise _AlreadyStored

        history.extend(messages, key=f"{METADATA_KEY} {again}", records=records, unless=unless)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def _load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        name = self._name(key)
        if self._head(name) is None:
            return None
        history = self._store.get(name)
        ancestors = list(self._ancestors(history.id))
        side_lines: dict[str, bytes] = {}
        verbatim: dict[str, bytes] = {}
        for each in [*ancestors, history.id]:
            side_lines |= self._store.records(each, _SIDE_LINES)
            verbatim |= self._store.records(each, _VERBATIM)
        if not side_lines and not len(history.log):
            return None
        lines = (json.loads(value) for _, value in sorted(side_lines.items()))
        entries = to_transcript(
            history.view,
            [SideLine(value["after"], value["entry"]) for value in lines],
            verbatim,
            session_id=key["session_id"],
            forked_from=frozenset(ancestors),
        )
        return cast("list[SessionStoreEntry]", entries)

    def _ancestors(self, name: str) -> list[str]:
        """The conversations that one was forked from, whose records belong to it too."""
        found: list[str] = []
        parent = self._store.head(name).parent
        while parent is not None:
            found.append(parent)
            parent = self._store.head(parent).parent
        return found[::-1]

    def _heads(self, project_key: str) -> Iterator[tuple[str, Head, dict[str, Any]]]:
        """The sessions of a project: id, head and state."""
        after: str | None = None
        suffix = f"@{_safe(project_key)}"
        while True:
            page = self._store.list(tag=_PROJECT + project_key, after=after)
            for head in page.conversations:
                kept = self._store.records(head.id, _STATE)
                state = {name: json.loads(value) for name, value in kept.items()}
                if state or head.size:
                    yield head.id.removesuffix(suffix), head, state
            after = page.next
            if after is None:
                return

    def _list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        return [
            {"session_id": session, "mtime": _modified_at(head, state)}
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
                self._store.put_record(head.id, _STATE, "summary", _json(kept))
            changed = _modified_at(head, state)
            found.append({"session_id": session, "mtime": changed, "data": kept["data"]})
        return found

    def _list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        start = f"{_session_name(key)}/"
        return [name.removeprefix(start) for name in self._store.named(start, limit=_ALL)]

    def _delete(self, key: SessionKey) -> None:
        names = [self._name(key)]
        if not key.get("subpath"):
            names += self._store.named(f"{_session_name(key)}/", limit=_ALL)
        for name in names:
            if self._head(name) is not None:
                self._store.delete(name)


class _CallIndex:
    """The tool calls of a batch's results, in the batch or before it."""

    def __init__(self, history: StoredHistory) -> None:
        self._view = history.view
        self._known: dict[str, KnownCall] = {}

    def wanted_by(self, entry: Mapping[str, Any]) -> Mapping[str, KnownCall]:
        """Return the known calls, after searching for those that a line has results of."""
        content = get_object(entry, "message").get("content")
        results = map(tool_result, content_blocks(content)) if entry.get("type") == "user" else ()
        wanted = {result.call_id for result in results if result is not None}
        end = len(self._view)
        start = max(end - _MAX_LOOKBACK, 0)
        while end > start and not wanted <= self._known.keys():
            begin = max(end - _PAGE, start)
            known, self._known = self._known, {}
            self.learn(self._view[begin:end])
            self._known |= known  # what came later counts
            end = begin
        return self._known

    def learn(self, messages: Sequence[Message]) -> None:
        """Add the calls of messages; the latest of an id counts."""
        for message in messages:
            for part in message.parts:
                if isinstance(part, ToolCallPart):
                    call = KnownCall(part.tool, part.input, part.raw, message.timestamp)
                    self._known[part.call_id] = call


async def _in_thread(work: Callable[[], _T]) -> _T:
    return await anyio.to_thread.run_sync(work)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()  # ASCII: it keeps every character


def _safe(text: str) -> str:
    """A text without the separators of a name's parts."""
    return text.replace("%", "%25").replace("/", "%2F").replace("@", "%40")


def _session_name(key: SessionKey | SessionListSubkeysKey) -> str:
    return f"{_safe(key['session_id'])}@{_safe(key['project_key'])}"


def _modified_at(head: Head, state: Mapping[str, Any]) -> int:
    """When a session was last changed, by the SDK or with palaver."""
    return max(head.updated, int(state.get("touched", {}).get("at", 0)))


def _find_title(entries: Sequence[Mapping[str, Any]]) -> str | None:
    """The last title that lines give the session."""
    for entry in reversed(entries):
        title = entry.get(_TITLES.get(str(entry.get("type")), ""))
        if isinstance(title, str) and title.strip() and title.isprintable():
            return title
    return None
