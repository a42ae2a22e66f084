"""Strands' sessions, agents and messages over conversations in a store.

`PalaverSessionRepository` is the interface that Strands' own session manager writes to.
`PalaverSessionManager` is told of more, and can do more: it stores whatever was done to an agent's
messages, shows the agent what others have edited, and lets runs take turns.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import time
import warnings
import weakref
from contextlib import suppress
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote

import anyio
from msgspec.structs import replace
from strands.agent.agent import Agent
from strands.agent.state import AgentState
from strands.hooks import AfterInvocationEvent, BeforeInvocationEvent, BeforeModelCallEvent
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.session.repository_session_manager import RepositorySessionManager
from strands.session.session_repository import SessionRepository
from strands.types.exceptions import SessionException
from strands.types.session import (
    Session,
    SessionAgent,
    SessionMessage,
    SessionType,
    decode_bytes_values,
    encode_bytes_values,
)

from palaver.adapters._turns import Turn, Wait, check_seconds
from palaver.adapters.strands.convert import (
    METADATA_KEY,
    Fields,
    join_neighbors,
    read_message,
    repair_messages,
    stored_about,
    to_strands,
    with_valid_ids,
    write_message,
)
from palaver.errors import AlreadyExists, LeaseLost, LeaseTaken, UnknownConversation
from palaver.messages.ids import new_id, uuid_for
from palaver.messages.limits import EMPTY
from palaver.messages.parts import ToolCallPart
from palaver.stores.holders import holder_name
from palaver.stores.store import check_store
from palaver.wire.format import Alphabet
from palaver.wire.repair import CALL_IDS, begin_with_user

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strands.hooks import HookRegistry
    from strands.multiagent.base import MultiAgentBase
    from strands.types.agent import LocalAgent
    from strands.types.content import Message as StrandsMessage

    from palaver.messages import Message
    from palaver.stores import Lease, Store, StoredHistory
    from palaver.stores.records import Record

__all__ = ["REDUCED", "PalaverSessionManager", "PalaverSessionRepository"]

_log = logging.getLogger("palaver.adapters.strands")

REDUCED: Final = "STRANDS"
"""The reason of an edit that is what Strands did to an agent's messages."""
_TAG: Final = "strands"
_GEMINI: Final = "strands.models.gemini"
_OPENAI: Final = "strands.models.openai"
_OF_OPENAI: Final = Alphabet("[!-~]", 64)
"""The ids of calls that OpenAI takes, and servers like it make."""
_APPLIED: Final = "applied"
"""How many removed messages have left the view."""
_MANAGER: Final = "conversation_manager_state"
_PARTS: Final = ("state", _MANAGER, "_internal_state")
"""What of an agent may repeat what a message says."""
_COUNTED: Final = ("__name__", "removed_message_count")
"""What of a conversation manager's state does not, and is needed to restore it."""
_CREATE_SECONDS: Final = 2.0
"""How long an agent waits for another that is being created."""
_POLL_SECONDS: Final = 0.1
_MAX_LOOKBACK: Final = 40
"""How many messages are searched for the call of a result."""
_MAX_OPEN: Final = 128
"""How many conversations a repository has open, to append to them."""


# ── the repository ──────────────────────────────────────────────────────────────────────────────


class PalaverSessionRepository(SessionRepository):
    """The conversations of a store as Strands' sessions, agents and messages.

    Every call reads the conversation as it is now. Messages that a conversation manager of Strands'
    has removed leave the view, in one edit, and a summary takes their place; undo that edit and the
    agent has them again.

    >>> import palaver
    >>> from strands.session import RepositorySessionManager
    >>> store = palaver.open(":memory:")
    >>> manager = RepositorySessionManager("tea-talk", PalaverSessionRepository(store))
    >>> [head.id for head in store]
    ['tea-talk']
    """

    def __init__(self, store: Store) -> None:
        """Use a store."""
        check_store(store)
        self.store = store
        self._open: dict[tuple[str, str], StoredHistory] = {}

    # ── sessions ────────────────────────────────────────────────────────────────────────────────

    def create_session(self, session: Session, **_more: object) -> Session:
        """Create a session and its conversation."""
        record = (METADATA_KEY, "session", _encode(session.to_dict()))
        try:
            self.store.create(id=_safe(session.session_id), tags=[_TAG], records=[record])
        except AlreadyExists:
            msg = f"Session {session.session_id} already exists"
            raise SessionException(msg) from None
        return session

    def read_session(self, session_id: str, **_more: object) -> Session | None:
        """Return a session, or None; any conversation of the store is one."""
        try:
            created = _iso(self.store.head(_safe(session_id)).created)
            records = self.store.records(_safe(session_id), METADATA_KEY)
        except UnknownConversation:
            return None
        if "session" in records:
            return Session.from_dict(json.loads(records["session"]))
        return Session(session_id, SessionType.AGENT, created, created)

    def delete_session(self, session_id: str, **_more: object) -> None:
        """Delete a session: its conversation, and those of its other agents."""
        name = _safe(session_id)
        try:
            agents = self._agents(name)
            self.store.delete(name)
        except UnknownConversation:
            raise SessionException(f"Session {session_id} does not exist") from None
        for agent in agents:
            with suppress(UnknownConversation):
                self.store.delete(agent)

    def _agents(self, session: str) -> list[str]:
        """Return the conversations of a session's further agents."""
        names = self.store.records(session, METADATA_KEY)
        found = [name.removeprefix("agent/") for name in names if name.startswith("agent/")]
        return [f"{session}@{name}" for name in found]

    # ── agents ──────────────────────────────────────────────────────────────────────────────────

    def history(self, session_id: str, agent_id: str | None = None) -> StoredHistory:
        """Return the conversation of an agent, or that of the session's first, to edit it."""
        if agent_id is None:
            return self.store.get(_safe(session_id))
        name = self._find(session_id, agent_id)
        if name is None:
            msg = f"Agent {agent_id} in session {session_id} does not exist"
            raise SessionException(msg)
        return self.store.get(name)

    def _find(self, session_id: str, agent_id: str) -> str | None:
        """Return the conversation of an agent, or None."""
        session = _safe(session_id)
        try:
            records = self.store.records(session, METADATA_KEY)
        except UnknownConversation:
            return None
        if f"agent/{_safe(agent_id)}" in records:
            return f"{session}@{_safe(agent_id)}"
        first = json.loads(records.get("agent", b"null"))
        return session if first is not None and first["agent_id"] == agent_id else None

    def create_agent(self, session_id: str, session_agent: SessionAgent, **_more: object) -> None:
        """Create an agent: the first of a session has its conversation."""
        session, name = _safe(session_id), _safe(session_agent.agent_id)
        own = _agent_records(session_agent)
        try:
            lease = self._claim(session)
        except UnknownConversation:
            raise SessionException(f"Session {session_id} does not exist") from None
        try:
            if self._find(session_id, session_agent.agent_id) is not None:
                return self.put_agent(session_id, session_agent)
            if "agent" not in self.store.records(session, METADATA_KEY):
                return self.store.put_records(session, own)
            with suppress(AlreadyExists):
                self.store.create(id=f"{session}@{name}", tags=[_TAG], records=own)
            return self.store.put_record(session, METADATA_KEY, f"agent/{name}", b"{}")
        finally:
            if lease is not None:
                self.store.release(lease)

    def _claim(self, session: str) -> Lease | None:
        """Take the lease of a session without a first agent; None if it has one, or is busy."""
        holder = f"{holder_name()} {new_id()}"
        until = time.monotonic() + _CREATE_SECONDS
        while "agent" not in self.store.records(session, METADATA_KEY):
            with suppress(LeaseTaken):
                return self.store.lease(session, holder, seconds=4)
            if time.monotonic() > until:
                break
            time.sleep(_POLL_SECONDS)
        return None

    def read_agent(self, session_id: str, agent_id: str, **_more: object) -> SessionAgent | None:
        """Return an agent, or None; what it removed and its summary are as the view has them."""
        name = self._find(session_id, agent_id)
        fields = _agent_fields({} if name is None else self.store.records(name, METADATA_KEY))
        if name is None or fields is None:
            return None
        state = fields[_MANAGER]
        removed = state.get("removed_message_count")
        if removed and fields.get(_APPLIED) == removed:  # the view tells, which may be undone
            view = self.store.get(name).view
            state["removed_message_count"] = min(_first(view), removed)
            if state.get("summary_message"):
                state["summary_message"] = _summary(view)
        return SessionAgent.from_dict(fields)

    def update_agent(self, session_id: str, session_agent: SessionAgent, **_more: object) -> None:
        """Store an agent's state; what its conversation manager removed leaves the view."""
        name = self._find(session_id, session_agent.agent_id)
        if name is None:
            msg = f"Agent {session_agent.agent_id} in session {session_id} does not exist"
            raise SessionException(msg)
        state = session_agent.conversation_manager_state
        history = self.store.get(name)
        removed = state.get("removed_message_count") or 0
        summary = state.get("summary_message")
        if removed > _first(history.view) or (summary and summary != _summary(history.view)):
            kept = [
                index
                for index, message in enumerate(history.view)
                if not _is_summary(message) and _number(message, removed) >= removed
            ]
            pieces: list[Any] = [range(index, index + 1) for index in kept]
            if summary:
                pieces.insert(0, read_message(summary, {"summary": True}, history.id, {}))
            history.rewrite(pieces, reason=REDUCED)
        self.put_agent(session_id, session_agent)

    def put_agent(self, session_id: str, session_agent: SessionAgent) -> None:
        """Store an agent's state; the view has all that was done to its messages."""
        name = self._find(session_id, session_agent.agent_id)
        if name is None:
            msg = f"Agent {session_agent.agent_id} in session {session_id} does not exist"
            raise SessionException(msg)
        before = self.store.records(name, METADATA_KEY)
        fields = _agent_fields(before)
        if fields is not None:
            session_agent.created_at = fields["created_at"]
        applied = session_agent.conversation_manager_state.get("removed_message_count")
        records = _agent_records(session_agent, {_APPLIED: applied})
        changed = [record for record in records if before.get(record[1]) != record[2]]
        self.store.put_records(name, changed)

    # ── messages ────────────────────────────────────────────────────────────────────────────────

    def create_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **_more: object
    ) -> None:
        """Append a message to an agent's conversation."""
        key = session_id, agent_id
        history = self._open.pop(key, None)  # an append needs no look at what it follows
        if history is None:
            history = self.history(session_id, agent_id)
        try:
            history.append(self._convert(history, session_message))
        except UnknownConversation:
            msg = f"Agent {agent_id} in session {session_id} does not exist"
            raise SessionException(msg) from None
        self._open[key] = history
        if len(self._open) > _MAX_OPEN:
            del self._open[next(iter(self._open))]

    def _convert(self, history: StoredHistory, message: SessionMessage) -> Message:
        about: Fields = {"number": message.message_id, "created": message.created_at}
        if message.updated_at != message.created_at:
            about["updated"] = message.updated_at
        shown = message.to_message()
        return read_message(shown, about, history.id, _tools_of(history, shown))

    def read_message(
        self, session_id: str, agent_id: str, message_id: int, **_more: object
    ) -> SessionMessage | None:
        """Return a message of the view by its number, or None."""
        if not isinstance(cast("object", message_id), int):
            raise ValueError(f"message_id=<{message_id}> | message id must be an integer")  # noqa: TRY004 - as they do
        name = self._find(session_id, agent_id)
        if name is None:
            return None
        found = self.list_messages(session_id, agent_id, limit=1, offset=message_id)
        return found[0] if found and found[0].message_id == message_id else None

    def update_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **_more: object
    ) -> None:
        """Replace a message, as a guardrail does; until it is erased, the log has the former."""
        history = self.history(session_id, agent_id)
        number = session_message.message_id
        index = _index(history.view, number)
        if index is None or _number(history.view[index], -1) != number:
            raise SessionException(f"Message {number} does not exist")
        before = history.view[index]
        session_message.created_at = stored_about(before).get("created", session_message.created_at)
        made = self._convert(history, session_message)
        if session_message.redact_message is not None:
            about = {
                **stored_about(made),
                "redacts": stored_about(before).get("redacts", before.id),
            }
            made = replace(made, metadata={METADATA_KEY: json.dumps(about)})
        history.replace(index, made)

    def list_messages(
        self,
        session_id: str,
        agent_id: str,
        limit: int | None = None,
        offset: int = 0,
        **_more: object,
    ) -> list[SessionMessage]:
        """Return the messages of the view whose numbers are at least `offset`."""
        history = self.history(session_id, agent_id)
        index = _index(history.view, offset)
        found: list[SessionMessage] = []
        if index is None:
            return found
        stop = len(history.view) if limit is None else index + limit
        last = offset - 1
        for message in history.view[index:stop]:
            stored = stored_about(message)
            shown = None if stored.get("summary") is True else write_message(message, stored)
            if shown is None:
                continue
            last = stored["number"] if type(stored.get("number")) is int else last + 1
            created = str(stored.get("created") or _iso(message.timestamp))
            made = SessionMessage(shown, last, None, created, str(stored.get("updated", created)))
            if "redacts" in stored:
                made.redact_message = shown
            found.append(made)
        return found

    # ── several agents ──────────────────────────────────────────────────────────────────────────

    def create_multi_agent(
        self, session_id: str, multi_agent: MultiAgentBase, **_more: object
    ) -> None:
        """Store the state of several agents that work together."""
        state = _encode(encode_bytes_values(multi_agent.serialize_state()))
        name = f"multi-agent/{_safe(multi_agent.id)}"
        try:
            self.store.put_record(_safe(session_id), METADATA_KEY, name, state)
        except UnknownConversation:
            raise SessionException(f"Session {session_id} does not exist") from None

    def read_multi_agent(
        self, session_id: str, multi_agent_id: str, **_more: object
    ) -> dict[str, Any] | None:
        """Return the state of several agents, or None."""
        name = f"multi-agent/{_safe(multi_agent_id)}"
        with suppress(UnknownConversation):
            found = self.store.records(_safe(session_id), METADATA_KEY).get(name)
            return None if found is None else decode_bytes_values(json.loads(found))
        return None

    def update_multi_agent(
        self, session_id: str, multi_agent: MultiAgentBase, **_more: object
    ) -> None:
        """Store the state of several agents again."""
        if self.read_multi_agent(session_id, multi_agent.id) is None:
            msg = f"MultiAgent state {multi_agent.id} in session {session_id} does not exist"
            raise SessionException(msg)
        self.create_multi_agent(session_id, multi_agent)


def _agent_records(agent: SessionAgent, more: Fields = EMPTY) -> list[Record]:
    """Return the records of an agent: what may repeat a message has one each.

    An erasure removes a record that repeats what it destroys, and the agent is to stay.
    """
    fields: Fields = {**agent.to_dict(), **more}
    parts = [(METADATA_KEY, f"agent {part}", _encode(fields.pop(part))) for part in _PARTS]
    manager = agent.conversation_manager_state
    fields[_MANAGER] = {key: manager[key] for key in _COUNTED if key in manager}
    return [(METADATA_KEY, "agent", _encode(fields)), *parts]


def _agent_fields(records: Mapping[str, bytes]) -> Fields | None:
    """Return the fields of an agent from its records, or None; what was erased is empty."""
    if "agent" not in records:
        return None
    fields: Fields = {"state": {}, **json.loads(records["agent"])}
    found = ((part, records.get(f"agent {part}")) for part in _PARTS)
    return fields | {part: json.loads(value) for part, value in found if value is not None}


def _tools_of(history: StoredHistory, message: StrandsMessage) -> dict[str, str]:
    """Name the tools of the calls that a message has the results of."""
    wanted = {
        block["toolResult"].get("toolUseId")
        for block in message["content"]
        if "toolResult" in block
    }
    if not wanted:
        return {}
    recent = history.view[max(len(history.view) - _MAX_LOOKBACK, 0) :]
    calls = (part for each in recent for part in each.parts if isinstance(part, ToolCallPart))
    return {part.call_id: part.tool for part in calls if part.call_id in wanted}


def _number(message: Message, otherwise: int) -> int:
    found = stored_about(message).get("number")
    return found if type(found) is int else otherwise


def _is_summary(message: Message) -> bool:
    return stored_about(message).get("summary") is True


def _first(view: Sequence[Message]) -> int:
    """Return the number of the first message that has one: so many were removed before it."""
    return next((n for message in view if (n := _number(message, -1)) >= 0), 0)


def _summary(view: Sequence[Message]) -> StrandsMessage | None:
    """Return the summary that a view begins with, or None."""
    return next((to_strands(message) for message in view[:2] if _is_summary(message)), None)


def _index(view: Sequence[Message], number: int) -> int | None:
    """Return where the messages from a number on begin in a view, or None."""
    size = len(view)
    guess = number - _first(view[:3])
    for index in (guess, guess + 1):  # a summary may come first
        if 0 <= index < size and _number(view[index], -1) == number:
            return index
    last = -1
    for index, message in enumerate(view):
        last = _number(message, last + (not _is_summary(message)))
        if last >= number and not _is_summary(message):
            return index
    return None


def _safe(text: str) -> str:
    """A text that can be a part of a conversation's id: printable, and without the separator."""
    if not isinstance(cast("object", text), str) or not text:
        raise ValueError(f"id=<{text}> | an id must be text, and not empty")
    return "".join(
        each if each.isprintable() and each not in "%@" else quote(each, "", errors="surrogatepass")
        for each in text
    )


def _encode(value: object) -> bytes:
    return json.dumps(value).encode()


def _iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()


# ── the session manager ─────────────────────────────────────────────────────────────────────────


class _Run(Turn):
    """The turn of a run of Strands', of which a hook may not tell the end: one that raised."""

    _event: weakref.ref[BeforeInvocationEvent] | None = None

    def begin(self, event: BeforeInvocationEvent) -> None:
        """Note the event, which Strands holds until the run is over, however that ends."""
        self._event, self.loop = weakref.ref(event), asyncio.get_running_loop()

    def end(self) -> None:
        """Let others have their turn."""
        self._event = self.loop = None
        self.release()

    def is_over(self) -> bool:
        """Tell whether Strands has dropped the event, or the loop was closed."""
        event = self._event
        return event is not None and (event() is None or super().is_over())


class _Shown:
    """What an agent was shown: its messages, where they are in the view, and at which version."""

    def __init__(self, history: StoredHistory, turn: _Run) -> None:
        self.history = history
        self.turn = turn
        self.messages: list[StrandsMessage] = []
        self.waiting: list[StrandsMessage] = []  # appended while another run had its turn
        self.version = -1


class PalaverSessionManager(RepositorySessionManager):
    """A session of Strands' over a conversation, for one or several agents.

    What another writer or an edit changes is in the next request, also in the middle of a run. Runs
    of several processes on one session take turns: each waits up to `wait_seconds` for the one
    before, however long its model or a tool takes; a process that was killed is succeeded after
    `turn_seconds`.

    >>> import palaver
    >>> manager = PalaverSessionManager("tea-talk", palaver.open(":memory:"))
    >>> manager.history().id
    'tea-talk'
    """

    def __init__(
        self,
        session_id: str,
        store: Store,
        *,
        turn_seconds: float = 10.0,
        wait_seconds: float = 120.0,
    ) -> None:
        """Use the conversation `session_id` of a store; it is created if it is not there."""
        check_seconds(turn_seconds, wait_seconds)
        self.repository = PalaverSessionRepository(store)
        self._turn_seconds, self._wait_seconds = turn_seconds, wait_seconds
        self._shown: dict[str, _Shown] = {}
        try:
            super().__init__(session_id, self.repository)
        except SessionException:
            if self.repository.read_session(session_id) is None:
                raise
            super().__init__(session_id, self.repository)  # another run has begun it meanwhile

    def history(self, agent_id: str | None = None) -> StoredHistory:
        """Return the conversation of an agent, or that of the session's first, to edit it."""
        return self.repository.history(self.session_id, agent_id)

    def register_hooks(self, registry: HookRegistry, **more: object) -> None:
        """Take a turn when a run begins, and bring both sides up to date before each request."""
        super().register_hooks(registry, **more)
        registry.add_callback(BeforeInvocationEvent, self._begin)
        registry.add_callback(BeforeModelCallEvent, self._before_request)
        registry.add_callback(AfterInvocationEvent, self._end)

    # ── what Strands calls ──────────────────────────────────────────────────────────────────────

    def initialize(self, agent: LocalAgent, **_more: object) -> None:
        """Give an agent what the session has, or the session what the agent has."""
        name = agent.agent_id
        if name in self._shown:
            raise SessionException("The `agent_id` of an agent must be unique in a session.")
        if agent.storage is not None:
            warnings.warn(
                f"Agent-level storage is set, but {type(self).__name__} does not use it: the"
                " session is in palaver's store",
                stacklevel=1,  # this line, whoever calls: it is shown once, as Strands' own is
            )
        repository = self.repository
        stored = repository.read_agent(self.session_id, name)
        if stored is None:
            repository.create_agent(self.session_id, SessionAgent.from_agent(agent))
        history = repository.history(self.session_id, name)
        turn = _Run(repository.store, history.id, self._turn_seconds)
        shown = self._shown[name] = _Shown(history, turn)
        if isinstance(agent, Agent):
            agent.add_middleware(InvokeModelStage.Input, _make_valid)
        self._held_records[name] = []
        self._latest_agent_message[name] = None
        if stored is not None:
            agent.state = AgentState(stored.state)
            stored.initialize_internal_state(agent)
            self._restore_manager(agent, stored)
        if stored is None and not len(shown.history.view):
            for message in agent.messages:
                self.append_message(message, agent)
        elif not self._is_stateful(agent):
            self._show(agent, shown)
        self._is_new_session = False

    def append_message(self, message: StrandsMessage, agent: LocalAgent, **_more: object) -> None:
        """Append a message; it is stored when this returns.

        What is appended while another run has its turn, such as the results that Strands gives to
        interrupted calls before a run begins, is stored when that turn is over, unless that run has
        answered its calls itself.
        """
        shown = self._shown[agent.agent_id]
        outside = shown.turn.lease is None
        try:
            self._renew(shown)
        except LeaseTaken:
            if not outside:
                raise
            shown.waiting.append(message)
            return
        try:
            if not (outside and _is_stray(message, shown.history.refresh())):
                self._append(message, agent, shown)
        finally:
            if outside:
                shown.turn.release()

    def _append(self, message: StrandsMessage, agent: LocalAgent, shown: _Shown) -> None:
        history = shown.history
        is_stray = _is_stray(message, history)  # an edit has taken the call out, or parted them
        number = _next_number(history)
        stored = SessionMessage.from_message(message, number)
        about: Fields = {"number": number, "created": stored.created_at}
        made = read_message(message, about, history.id, _tools_of(history, message))
        history.extend([made], lease=shown.turn.lease)
        if history.version == shown.version + 1 and not is_stray:  # nobody has changed anything
            shown.version = history.version
        shown.messages.append(copy.deepcopy(message))
        self._latest_agent_message[agent.agent_id] = stored
        self._held_records.setdefault(agent.agent_id, []).append(stored)

    def sync_agent(self, agent: LocalAgent, **_more: object) -> None:
        """Store what changed of an agent; between runs, also what was done to its messages."""
        shown = self._shown.get(agent.agent_id)
        if shown is not None and isinstance(agent, Agent):
            self._store_between_runs(agent, shown)
        state = SessionAgent.from_agent(agent)
        now = {**state.to_dict(), "created_at": "", "updated_at": ""}
        self._prune_held_records(agent)
        if self._last_synced_internal_state.get(agent.agent_id) != now:
            self.repository.put_agent(self.session_id, state)
            self._last_synced_internal_state[agent.agent_id] = now

    def _store_between_runs(self, agent: Agent, shown: _Shown) -> None:
        """Store what was done to the messages, unless a run has the turn, which then does it."""
        if shown.turn.lease is not None or agent.messages == shown.messages:
            return
        with suppress(LeaseTaken):
            self._renew(shown)
            try:
                if shown.version == shown.history.refresh().version:
                    self._bring_up_to_date(agent, shown)
            finally:
                shown.turn.release()

    # ── a turn ──────────────────────────────────────────────────────────────────────────────────

    async def _begin(self, event: BeforeInvocationEvent) -> None:
        """Take the lease, and bring the agent up to date."""
        shown = self._shown[event.agent.agent_id]
        wait = Wait(shown.history.id, self._wait_seconds)
        shown.turn.release()  # of a run that never ended
        shown.turn.begin(event)
        while True:
            try:
                self._renew(shown)
                break
            except LeaseTaken as error:
                if wait.is_over(error):
                    msg = f"Session {self.session_id} is used by another run"
                    raise SessionException(f"{msg}; {wait.describe(error)}") from error
            await anyio.sleep(_POLL_SECONDS)
        waiting, shown.waiting = shown.waiting, []
        shown.history.refresh()
        for message in waiting:
            if not _is_stray(message, shown.history):
                self._append(message, event.agent, shown)
        self._bring_up_to_date(event.agent, shown)
        self._answer_open_calls(event, shown)

    def _answer_open_calls(self, event: BeforeInvocationEvent, shown: _Shown) -> None:
        """Give the calls that the last message left open a result, unless the prompt has them."""
        last = event.agent.messages[-1:]
        given = [block for message in event.messages or () for block in message["content"]]
        if given and not any("toolResult" in block for block in given):
            answered = repair_messages([*last, {"role": "user", "content": []}])
            if last and len(answered) > 1 and answered[1]["content"]:
                event.agent.messages.append(answered[1])
                self._append(answered[1], event.agent, shown)

    def _before_request(self, event: BeforeModelCallEvent) -> None:
        shown = self._shown[event.agent.agent_id]
        self._renew(shown)
        self._bring_up_to_date(event.agent, shown)

    def _end(self, event: AfterInvocationEvent) -> None:
        """Store what was done to the messages, and let others have their turn.

        A run whose turn went to another stores nothing: it would be in the middle of the other's.
        """
        shown = self._shown[event.agent.agent_id]
        try:
            if shown.turn.lease is not None:
                with suppress(LeaseLost):
                    self._renew(shown)
            if shown.turn.lease is not None:
                self._bring_up_to_date(event.agent, shown)
        finally:
            shown.turn.end()

    def _renew(self, shown: _Shown) -> None:
        """Take the turn, or go on with it: `LeaseLost` if it went to another run."""
        turn, why = shown.turn, ""
        began = turn.lease is None
        try:
            goes_on = turn.take() or began
        except LeaseTaken as error:
            if began:
                raise
            goes_on, why = False, f": {error}"
            turn.let_go()
        if not goes_on:
            turn.release()
            raise LeaseLost(f"Session {self.session_id} went to another run meanwhile{why}")

    # ── the agent's messages and the view ───────────────────────────────────────────────────────

    def _bring_up_to_date(self, agent: Agent, shown: _Shown) -> None:
        """Show the agent what others changed; or store what was done to its messages."""
        if self._is_stateful(agent):
            return
        shown.history.refresh()
        if shown.version != shown.history.version:
            self._show(agent, shown)
        elif agent.messages != shown.messages:
            self._store_changes(agent, shown)

    def _show(self, agent: LocalAgent, shown: _Shown) -> None:
        """Give the agent the messages of the view."""
        found = map(_with_tracking_id, shown.history.view)
        agent.messages = repair_messages([message for message in found if message is not None])
        shown.messages = copy.deepcopy(agent.messages)
        shown.version = shown.history.version

    def _store_changes(self, agent: Agent, shown: _Shown) -> None:
        """Make one edit of what was done to the agent's messages."""
        history = shown.history
        manager = agent.conversation_manager.get_state()
        summary = manager.get("summary_message")
        places: dict[str, list[tuple[int, StrandsMessage]]] = {}
        pieces: list[Any] = []
        for index, message in enumerate(history.view):
            theirs = _with_tracking_id(message)
            if theirs is None:  # not Strands' own, such as a system message: it stays in front
                pieces.append(range(index, index + 1))
            else:
                places.setdefault(_key(theirs), []).append((index, theirs))
        for given in agent.messages:
            found = places.get(_key(given), [])
            place = next((index for index, theirs in found if theirs == given), None)
            if place is not None:
                pieces.append(range(place, place + 1))
                continue
            about: Fields = {"summary": True} if given == summary else {}
            if found:
                about = {"number": _number(history.view[found[0][0]], 0)}
            pieces.append(read_message(given, about, history.id, _tools_of(history, given)))
        history.rewrite(pieces, reason=REDUCED, expect=shown.version)
        shown.messages = copy.deepcopy(agent.messages)
        shown.version = history.version

    def _restore_manager(self, agent: LocalAgent, stored: SessionAgent) -> None:
        """Give the conversation manager its state; one of another kind begins anew."""
        manager = getattr(agent, "conversation_manager", None)
        state = stored.conversation_manager_state
        if manager is not None and state.get("__name__") == type(manager).__name__:
            manager.restore_from_session(state)

    @staticmethod
    def _is_stateful(agent: LocalAgent) -> bool:
        """Tell whether the provider keeps the conversation, and the agent no messages."""
        return bool(getattr(getattr(agent, "model", None), "stateful", False))


def _make_valid(context: InvokeModelContext) -> InvokeModelContext:
    """Let the user begin and the roles alternate in a request; the agent's messages stay."""
    is_gemini = _is_of(context.model, _GEMINI)
    allowed = _OF_OPENAI if _is_of(context.model, _OPENAI) else CALL_IDS
    messages = with_valid_ids(context.messages, allowed)
    turns = join_neighbors(messages, results_alone=is_gemini)
    return context.replace(messages=begin_with_user(turns, role=itemgetter("role"), made=_question))


def _is_of(model: object, module: str) -> bool:
    return any(kind.__module__.startswith(module) for kind in type(model).__mro__)


def _question(text: str) -> StrandsMessage:
    return {"role": "user", "content": [{"text": text}]}


def _is_stray(message: StrandsMessage, history: StoredHistory) -> bool:
    """Tell whether a message has nothing but results, and of calls that are not open at the end."""
    results = [
        block["toolResult"]["toolUseId"] for block in message["content"] if "toolResult" in block
    ]
    if not results or len(results) < len(message["content"]):
        return False
    last = _with_tracking_id(history.view[-1]) if len(history.view) else None
    blocks = last["content"] if last is not None else []
    return not {*results} <= {
        block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block
    }


def _with_tracking_id(message: Message) -> StrandsMessage | None:
    """Convert a message; one that Strands did not write gets the same tracking id every time.

    Otherwise the agent would give it another one, which would be a change to be stored.
    """
    found = to_strands(message)
    if found is not None and not found.get("tracking_id"):
        found["tracking_id"] = uuid_for(message.id)
    return found


def _key(message: StrandsMessage) -> str:
    return str(message.get("tracking_id") or "")


def _next_number(history: StoredHistory) -> int:
    """Return the number after the last one of a view."""
    view = history.view
    for index in range(len(view) - 1, max(len(view) - _MAX_LOOKBACK, 0) - 1, -1):
        found = _number(view[index], -1)
        if found >= 0:
            return found + len(view) - index
    return len(view)
