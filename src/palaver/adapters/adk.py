"""The Agent Development Kit (ADK): its session service, over conversations in a store.

    service = PalaverSessionService(palaver.open("chat.db"))
    runner = Runner(app_name="tea", agent=agent, session_service=service)

An event is a message, and what was not edited comes back to ADK exactly as it was written. The
state of a session is what the events in its view say: an event and its state delta are one change,
and an edit, a rollback or a fork takes the state along. The state of an app or a user belongs to
all of their sessions, and stays.

A `Session` object that appends holds the conversation's lease until its task ends or goes on to
another session. Another run waits for that, so that two runs never mix their events. A run that
lost the lease is refused with `StaleSessionError` once another has written. An edit needs no lease:
the run that is under way sees it before its next request.
"""

from __future__ import annotations

import asyncio
import json
import time
import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, unquote

import msgspec
from msgspec.structs import replace

from palaver.adapters._worker_threads import run_to_end
from palaver.errors import (
    AlreadyExists,
    LeaseLost,
    LeaseTaken,
    StoreError,
    UnknownConversation,
    ValidationError,
    needs_extra,
)
from palaver.history.erase import ERASED
from palaver.messages.ids import new_id, now_ms, uuid_for
from palaver.messages.limits import MAX_INT, MAX_NAME, is_object, replace_refused
from palaver.messages.message import Message
from palaver.messages.part_base import FilePart
from palaver.messages.parts import ReasoningPart, TextPart, ToolCallPart, ToolPart, UnknownPart
from palaver.messages.tool_state import ToolCompleted, ToolError, raw_output
from palaver.stores.records import holder_name
from palaver.wire.format import Inline, Linked, media_of, raw_block
from palaver.wire.gemini.blocks import SIGNATURE, read_part, read_response
from palaver.wire.gemini.request import GEMINI
from palaver.wire.request import BEGIN, BodyReader
from palaver.wire.round_trip import apply_changes, diff, fingerprint

with needs_extra("adk"):
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events.event import Event
    from google.adk.events.event_actions import EventActions
    from google.adk.sessions.base_session_service import (
        BaseSessionService,
        GetSessionConfig,
        ListSessionsResponse,
    )
    from google.adk.sessions.session import Session
    from google.adk.sessions.state import State
    from google.genai.types import Content
    from google.genai.types import Part as ContentPart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from google.adk.agents.callback_context import CallbackContext
    from google.adk.models.llm_request import LlmRequest

    from palaver.messages.message import Role
    from palaver.messages.parts import Part
    from palaver.stores import Store, StoredHistory
    from palaver.stores.records import Head, Lease, Record

__all__ = ["PalaverSessionService", "from_event", "repair_request", "to_event"]

METADATA_KEY: Final = "adk"
"""Where a message's metadata keeps its event without the content, and what the content lacks."""
_NOTHING: Final = UnknownPart({"type": METADATA_KEY})
"""The content of an event that says nothing, such as a change of state."""
_TEXT_PART: Final = ContentPart(text="")
_TEXT_CONTENT: Final = Content(role="user", parts=[_TEXT_PART])
_RECORDS: Final = METADATA_KEY
"""The kind of records of a session: its `initial` state, and its `state` now."""
_PENDING: Final = f"{METADATA_KEY}.pending"
"""The kind of records with state of the app or the user that is not yet stored where it belongs."""
_SHARED: Final = f"{METADATA_KEY}.state"
"""The kind of records with the state of an app or a user, by key."""
_SHARED_NAME: Final = "adk-state:"
"""How the ids of the conversations begin that have the state of apps and users beside them."""
_TAG: Final = "adk:"
"""How the tags begin that name a session's app, and its app and user."""
_POLL_SECONDS: Final = 0.02
_Found = TypeVar("_Found", "Head", "StoredHistory")
_Json = dict[str, Any]


# ── events and messages ─────────────────────────────────────────────────────────────────────────


def from_event(event: Event, *, session: str = "") -> Message:
    """Convert an event to a message, such that `to_event` returns it exactly.

    `session` is the id of the conversation.

    >>> from google.genai.types import Content, Part
    >>> said = Content(role="user", parts=[Part(text="Tea?")])
    >>> from_event(Event(author="user", content=said)).text
    'Tea?'
    """
    fields = msgspec.json.decode(event.model_dump_json(by_alias=True, exclude_none=True))
    theirs = fields.pop("content", None)
    name = event.id if 0 < len(event.id) <= MAX_NAME and event.id.isprintable() else new_id()
    role = _role(event.author, theirs)
    at = int(min(event.timestamp * 1000, MAX_INT)) if event.timestamp > 0 else 0
    try:
        made = Message(role, _read_content(theirs, role, session, name), name, at)
    except ValidationError:  # a character or a number that no store takes: the difference has it
        content = _read_content(replace_refused(theirs), role, session, name)
        made = Message(role, content, name, at)
    ours = _write_content(made)
    stored = {"event": msgspec.json.encode(fields).decode()}
    same = isinstance(made.content, str) and ours == theirs  # nothing but text: no 1 that is True
    if not same and (steps := diff(ours, theirs)):
        stored["content"] = f"{fingerprint(ours)} {msgspec.json.encode(steps).decode()}"
    return replace(made, metadata={METADATA_KEY: stored})


def _role(author: str, content: Any) -> Role:  # noqa: ANN401 - JSON
    parts = (content or {}).get("parts") or ()
    if parts and all("functionResponse" in part for part in parts):
        return "tool"
    said_by = (content or {}).get("role") or author
    return "user" if said_by == "user" else "assistant"


def _read_content(content: Any, role: Role, session: str, name: str) -> str | tuple[Part, ...]:  # noqa: ANN401 - JSON
    reader = BodyReader(GEMINI, session=uuid_for(session), model=None, names={})
    given: list[_Json] = (content or {}).get("parts") or []
    if len(given) == 1 and given[0].keys() == {"text"}:
        return str(given[0]["text"])
    parts = tuple(_read(part, role, reader, uuid_for(name)) for part in given)
    return parts or (_NOTHING,)


def _read(part: _Json, role: Role, reader: BodyReader, message_id: str) -> Part:
    result = read_response(part) if role == "tool" else None
    if result is not None:
        tool, answer = result
        response = part["functionResponse"].get("response")
        if is_object(response) and [*response] == ["result"] and response["result"]:
            said = response["result"]
            answer = replace(answer, output=said if isinstance(said, str) else answer.output)
        return reader.result(message_id, answer, tool)
    found = None if "functionCall" in part and role != "assistant" else read_part(part)
    return reader.unknown(part) if found is None else reader.part(message_id, found)


def to_event(message: Message, *, author: str = "model", invocation_id: str = "") -> Event | None:
    """Convert a message to an event: the original one, with what was edited.

    The result is None for a message that was erased. A message that ADK did not write is said by
    the user, or by `author`, in the invocation `invocation_id`.

    >>> import palaver
    >>> to_event(palaver.assistant("Yes."), author="ada").content.parts[0].text
    'Yes.'
    """
    if ERASED in message.metadata:
        return None
    stored = message.metadata.get(METADATA_KEY)
    kept = stored if is_object(stored) else {}
    found = kept.get("event")
    fields = found if isinstance(found, str) and '"' in found else None  # metadata of anywhere
    if fields is not None and isinstance(message.content, str) and "content" not in kept:
        with suppress(ValueError):
            event = Event.model_validate_json(fields)
            event.content = _text_content(message.role, message.content)
            return event
    content = _write_content(message)
    then, _, steps = str(kept.get("content", "")).partition(" ")
    if then and then == fingerprint(content):
        with suppress(msgspec.DecodeError):
            content = apply_changes(content, msgspec.json.decode(steps))
    said = msgspec.json.encode(content).decode()
    if fields is not None:
        whole = fields if content is None else f'{fields[:-1]},"content":{said}}}'
        with suppress(ValueError):
            return Event.model_validate_json(whole)
    by = "user" if message.role in ("user", "system") else author
    at = message.timestamp / 1000
    return Event.model_validate(
        {"id": message.id, "author": by, "invocation_id": invocation_id, "timestamp": at,
         "content": msgspec.json.decode(said)}
    )  # fmt: skip


def _text_content(role: Role, text: str) -> Content:
    """Return content of one text, unvalidated: that would be half of what an event takes."""
    part = _TEXT_PART.model_copy(update={"text": text})
    said_by = "model" if role == "assistant" else "user"
    return _TEXT_CONTENT.model_copy(update={"parts": [part], "role": said_by})


def _write_content(message: Message) -> _Json | None:
    """Write the content as ADK would have it: None if there is nothing to say."""
    role = "model" if message.role == "assistant" else "user"
    if isinstance(message.content, str):
        return {"parts": [{"text": message.content}], "role": role}
    if message.content == (_NOTHING,):
        return None
    return {"parts": [*filter(None, map(_write, message.content))], "role": role}


def _write(part: Part) -> _Json | None:
    if isinstance(part, TextPart | ReasoningPart):
        thought = {"thought": True} if isinstance(part, ReasoningPart) else {}
        return _signed({"text": part.text, **thought}, part)
    if isinstance(part, ToolCallPart):
        given = msgspec.to_builtins(part.input)
        call = {"id": part.call_id, "args": given, "name": part.tool}
        return _signed({"functionCall": call}, part)
    if isinstance(part, ToolPart):
        response = _response(part)
        return {"functionResponse": {"id": part.call_id, "name": part.tool, "response": response}}
    if isinstance(part, FilePart):
        return _write_file(part)
    if isinstance(part, UnknownPart) and part.type == GEMINI.name:
        return raw_block(part)
    return None


def _signed(element: _Json, part: TextPart | ReasoningPart | ToolCallPart) -> _Json:
    """Return the element with the signature that came on its part."""
    stored = part.metadata.get(GEMINI.provider) if part.metadata else None
    signature = stored.get(SIGNATURE) if is_object(stored) else None
    return {**element, SIGNATURE: signature} if isinstance(signature, str) else element


def _response(part: ToolPart) -> _Json:
    """Return what a function gave, as an object."""
    if isinstance(part.state, ToolError):
        return {"error": part.state.error}
    if not isinstance(part.state, ToolCompleted):
        return {}
    output = raw_output(part.state)
    with suppress(msgspec.DecodeError):
        found = msgspec.json.decode(output)
        if isinstance(found, dict):
            return found
    return {"result": output}


def _write_file(part: FilePart) -> _Json:
    media = media_of(part)
    named = {"displayName": part.filename} if part.filename else {}
    if isinstance(media, Inline):
        data = media.data.replace("+", "-").replace("/", "_")
        return {"inlineData": {**named, "data": data, "mimeType": part.mime}}
    url = media.url if isinstance(media, Linked) else part.url
    return {"fileData": {**named, "fileUri": url, "mimeType": part.mime}}


def _state_delta(message: Message) -> _Json:
    """Return the state that the event of a message sets."""
    stored = message.metadata.get(METADATA_KEY) if message.metadata else None
    fields = stored.get("event") if is_object(stored) else None
    if not isinstance(fields, str) or '"stateDelta":{"' not in fields:
        return {}
    with suppress(msgspec.DecodeError):
        actions = msgspec.json.decode(fields).get("actions")
        delta = actions.get("stateDelta") if is_object(actions) else None
        if isinstance(delta, dict):
            return delta
    return {}


def repair_request(callback_context: CallbackContext, llm_request: LlmRequest) -> None:  # noqa: ARG001 - ADK gives both
    """Make user and model alternate: a `before_model_callback` where a session may be edited.

    ADK leaves out calls without responses and responses without calls. What then stands side by
    side of one role becomes one turn; responses stay alone. An answer that comes first gets a
    short text of the user before it. The session stays as it is.

    >>> from google.adk.models.llm_request import LlmRequest
    >>> from google.genai.types import Content, Part
    >>> said = [Content(role="user", parts=[Part(text=text)]) for text in ("Tea?", "Rum?")]
    >>> request = LlmRequest(contents=said)
    >>> repair_request(None, request)
    >>> [[part.text for part in content.parts] for content in request.contents]
    [['Tea?', 'Rum?']]
    """
    turns: list[Content] = []
    if llm_request.contents and llm_request.contents[0].role != "user":
        turns.append(Content(role="user", parts=[ContentPart(text=BEGIN)]))
    for content in llm_request.contents:
        last = turns[-1] if turns else None
        if last is None or last.role != content.role or _responds(last) or _responds(content):
            turns.append(content)
        else:
            parts = [*(last.parts or ()), *(content.parts or ())]
            turns[-1] = Content(role=content.role, parts=parts)
    llm_request.contents = turns


def _responds(content: Content) -> bool:
    return any(part.function_response is not None for part in content.parts or ())


# ── state ───────────────────────────────────────────────────────────────────────────────────────


def _scopes(delta: Mapping[str, Any]) -> tuple[_Json, _Json, _Json]:
    """Divide state into that of the app, the user and the session; temporary state is left out."""
    app: _Json = {}
    user: _Json = {}
    own: _Json = {}
    for key, value in delta.items():
        if key.startswith(State.APP_PREFIX):
            app[key.removeprefix(State.APP_PREFIX)] = value
        elif key.startswith(State.USER_PREFIX):
            user[key.removeprefix(State.USER_PREFIX)] = value
        elif not key.startswith(State.TEMP_PREFIX):
            own[key] = value
    return app, user, own


def _json_state(state: Mapping[str, Any]) -> _Json:
    """Return state as JSON, as ADK writes that of an event."""
    actions = EventActions(state_delta=dict(state))
    return dict(json.loads(actions.model_dump_json())["state_delta"])


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()  # ASCII: it keeps every character


# ── the service ─────────────────────────────────────────────────────────────────────────────────


class _Writer:
    """A `Session` object that was given to ADK: what it has seen, and the lease it writes under."""

    def __init__(self, history: StoredHistory, config: GetSessionConfig | None) -> None:
        self.holder = holder_name()
        self.history = history
        self.config = config
        self.version: int | None = history.version
        self.lease: Lease | None = None
        self.renew_at = 0.0


class PalaverSessionService(BaseSessionService):
    """Stores the sessions of ADK in a palaver store: a session's id is its conversation's.

    An id that another user or another program has taken gets the user and the app added. A
    conversation that was forked from a session with palaver is a session of the same user.

    >>> import asyncio, palaver
    >>> from google.genai.types import Content, Part
    >>> store = palaver.open(":memory:")
    >>> service = PalaverSessionService(store)
    >>> async def talk():
    ...     session = await service.create_session(app_name="tea", user_id="ann", session_id="s1")
    ...     said = Content(role="user", parts=[Part(text="Tea?")])
    ...     await service.append_event(session, Event(author="user", content=said))
    >>> asyncio.run(talk())
    >>> store.get("s1")[0].text
    'Tea?'
    """

    def __init__(
        self,
        store: Store,
        *,
        agent: str = "model",
        turn_seconds: float = 60,
        wait_seconds: float = 120,
    ) -> None:
        """Take a store, which the caller closes.

        `agent` is the author of answers that ADK did not write, if no agent spoke before them.
        `turn_seconds` is how long a run that writes nothing keeps others from the session,
        `wait_seconds` how long a run waits for another before it is refused.
        """
        for name, value in (("turn_seconds", turn_seconds), ("wait_seconds", wait_seconds)):
            if not value > 0:
                raise ValueError(f"{name} must be more than 0, not {value!r}")
        self._store = store
        self._agent = agent
        self._turn_seconds, self._wait_seconds = turn_seconds, wait_seconds
        self._writers: dict[int, _Writer] = {}
        self._tasks: weakref.WeakKeyDictionary[asyncio.Task[Any], _Writer] = (
            weakref.WeakKeyDictionary()
        )

    # ── what ADK calls ──────────────────────────────────────────────────────────────────────────

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session; an id that the user has already is an `AlreadyExistsError`."""
        return await run_to_end(partial(self._create, app_name, user_id, state or {}, session_id))

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a session as its conversation is now, or None."""
        return await run_to_end(partial(self._get, app_name, user_id, session_id, config))

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """List the sessions of a user, or of all, without events; the last changed is last."""
        found = await run_to_end(partial(self._list, app_name, user_id))
        return ListSessionsResponse(sessions=found)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session and its conversation.

        A conversation with forks stays for these, and is no session any more.
        """
        await run_to_end(partial(self._delete, app_name, user_id, session_id))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user, without the prefix."""
        return await run_to_end(partial(self._shared, app_name, user_id))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event and its state delta in one change, and bring the session up to date.

        It waits while another run is writing. `StaleSessionError` if that takes too long, or if
        another has written in the middle of this run.
        """
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        await self._write(session, event)
        return event

    async def flush(self) -> None:
        """Let other runs have the session that this task wrote to; nothing is buffered."""
        task = asyncio.current_task()
        writer = self._tasks.pop(task, None) if task is not None else None
        if writer is not None:
            await run_to_end(partial(self._release, writer))

    # ── what ADK does not have ──────────────────────────────────────────────────────────────────

    def history(self, *, app_name: str, user_id: str, session_id: str) -> StoredHistory:
        """Return the conversation of a session, to read and to edit."""
        return self._store.get(self._name_of(app_name, user_id, session_id))

    async def fork_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        new_session_id: str | None = None,
        before_invocation_id: str | None = None,
    ) -> Session:
        """Return a new session that shares the events so far, and goes its own way.

        `before_invocation_id` leaves out that invocation and what follows. The session that was
        forked stays as it is.
        """
        work = partial(
            self._fork, app_name, user_id, session_id, new_session_id, before_invocation_id
        )
        return await run_to_end(work)

    async def adopt_session(self, *, app_name: str, user_id: str, session_id: str) -> Session:
        """Make a session of a conversation that another program wrote: `session_id` is its id."""
        return await run_to_end(partial(self._adopt, app_name, user_id, session_id))

    # ── which conversation ──────────────────────────────────────────────────────────────────────

    def _find(
        self, app: str, user: str, session_id: str, read: Callable[[str], _Found]
    ) -> _Found | None:
        """Return what `read` returns for the conversation of a session, or None."""
        wanted = session_id.strip()
        for name in (wanted, _full_name(app, user, wanted)):
            with suppress(UnknownConversation):
                found = read(name) if name else None
                owned = found is not None and _tags(app, user)[1] in found.tags
                if owned and _session_id(name, app, user) == wanted:
                    return found
        return None

    def _name_of(self, app: str, user: str, session_id: str) -> str:
        head = self._find(app, user, session_id, self._store.head)
        if head is None:
            raise SessionNotFoundError(f"Session {session_id} not found.")
        return head.id

    def _free_names(self, app: str, user: str, session_id: str | None) -> Iterator[str]:
        """Yield the ids that a new session's conversation may have."""
        wanted = (session_id or "").strip() or new_id()
        if self._find(app, user, wanted, self._store.head) is not None:
            raise AlreadyExistsError(f"Session with id {wanted} already exists.")
        if wanted == _safe(wanted) and not wanted.startswith(_SHARED_NAME):
            yield wanted
        yield _full_name(app, user, wanted)

    # ── one access to the store each ────────────────────────────────────────────────────────────

    def _create(self, app: str, user: str, given: _Json, session_id: str | None) -> Session:
        *shared, own = _scopes(_json_state(given))
        records = self._pending(*shared)
        records.append((_RECORDS, "initial", _encode(own)))
        for name in self._free_names(app, user, session_id):
            with suppress(AlreadyExists):
                history = self._store.create(id=name, tags=_tags(app, user), records=records)
                return self._session(history, app, user, None)
        raise AlreadyExistsError(f"Session with id {session_id} already exists.")

    def _get(
        self, app: str, user: str, session_id: str, config: GetSessionConfig | None
    ) -> Session | None:
        last = 0 if config is None else config.num_recent_events or 0
        history = self._find(app, user, session_id, partial(self._store.get, last=last))
        return None if history is None else self._session(history, app, user, config)

    def _list(self, app: str, user: str | None) -> list[Session]:
        tag = _tags(app, user or "")[user is not None]
        page = self._store.list(tag=tag)
        heads = list(page.conversations)
        while page.next is not None:
            page = self._store.list(tag=tag, after=page.next)
            heads += page.conversations
        found = [
            self._session(self._store.get(head.id), app, _owner(head, app), None, with_events=False)
            for head in heads
        ]
        return sorted(found, key=lambda each: (each.last_update_time, each.user_id, each.id))

    def _delete(self, app: str, user: str, session_id: str) -> None:
        head = self._find(app, user, session_id, self._store.head)
        if head is None:
            return
        try:
            self._store.delete(head.id)
        except StoreError:
            if not self._store.forks(head.id):
                raise
            kept = [tag for tag in head.tags if not tag.startswith(_TAG)]
            self._store.describe(head.id, title=head.title, tags=kept)

    def _fork(
        self, app: str, user: str, session_id: str, new: str | None, before: str | None
    ) -> Session:
        history = self.history(app_name=app, user_id=user, session_id=session_id)
        end = len(history.view)
        if before is not None:
            events = self._events(history, None)
            ids = [event.id for event in events if event.invocation_id == before]
            if not ids:
                raise ValueError(f"there is no invocation {before!r} in session {session_id!r}")
            end = next(i for i, message in enumerate(history.view) if message.id == ids[0])
        for name in self._free_names(app, user, new):
            with suppress(AlreadyExists):
                fork = history.fork(id=name)
                if end < len(fork.view):
                    fork.truncate(keep_first=end)
                return self._session(fork, app, user, None)
        raise AlreadyExistsError(f"Session with id {new} already exists.")

    def _adopt(self, app: str, user: str, session_id: str) -> Session:
        history = self._store.get(session_id)
        tags = _tags(app, user)
        others = [tag for tag in history.tags if tag.startswith(_TAG) and tag not in tags]
        if others:
            raise AlreadyExistsError(f"{session_id} is a session of another user: {others[-1]!r}")
        self._store.describe(
            session_id, title=history.title, tags=dict.fromkeys([*history.tags, *tags])
        )
        return self._session(history, app, user, None)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def _session(
        self,
        history: StoredHistory,
        app: str,
        user: str,
        config: GetSessionConfig | None,
        *,
        with_events: bool = True,
    ) -> Session:
        """Return the session of a conversation; it may append from here on."""
        state = self._merged_state(history, app, user)
        events = self._events(history, config) if with_events else []
        session = Session(
            id=_session_id(history.id, app, user),
            app_name=app,
            user_id=user,
            state=state,
            events=events,
            last_update_time=self._updated(history, events),
        )
        if with_events:
            self._remember(session, _Writer(history, config))
        return session

    def _remember(self, session: Session, writer: _Writer) -> _Writer:
        self._writers[id(session)] = writer
        weakref.finalize(session, self._writers.pop, id(session), None).atexit = False
        return writer

    def _events(self, history: StoredHistory, config: GetSessionConfig | None) -> list[Event]:
        view = history.view
        wanted = config.num_recent_events if config is not None else None
        start = 0 if wanted is None else max(len(view) - wanted, 0)
        since = config.after_timestamp if config is not None else None
        events: list[Event] = []
        author, invocation = self._agent, ""
        for message in view[start:]:
            event = to_event(message, author=author, invocation_id=invocation)
            if event is None:
                continue
            invocation = event.invocation_id
            author = author if event.author == "user" else event.author
            if since is None or event.timestamp >= since:
                events.append(event)
        return events

    def _updated(self, history: StoredHistory, events: Sequence[Event]) -> float:
        last = events[-1] if events else None
        if last is None and len(history.view):
            last = to_event(history.view[-1])
        return last.timestamp if last is not None else self._store.head(history.id).created / 1000

    def _merged_state(self, history: StoredHistory, app: str, user: str) -> _Json:
        """Return the state of a session with that of its app and its user."""
        self._settle(history.id, app, user)
        _, state = self._own_state(history)
        state.update((State.APP_PREFIX + key, v) for key, v in self._shared(app, None).items())
        state.update((State.USER_PREFIX + key, v) for key, v in self._shared(app, user).items())
        return state

    def _own_state(self, history: StoredHistory) -> tuple[list[int], _Json]:
        """Return the last edit and erasure, and the state that the events of the view then say."""
        head = self._store.head(history.id)
        history.refresh(head)
        seen = [head.framed, head.erased]
        kept = self._store.records(history.id, _RECORDS)
        known = json.loads(kept["state"]) if "state" in kept else None
        if known is not None and known["seen"] == seen:
            return seen, dict(known["state"])
        if known is None and seen == [0, 0] and head.parent is None and head.stop == 0:
            return seen, dict(json.loads(kept.get("initial", b"{}")))
        state = self._initial_state(head)
        for message in history.view:
            state.update(_scopes(_state_delta(message))[2])
        record = _encode({"seen": seen, "state": state})
        self._store.put_record(history.id, _RECORDS, "state", record)
        return seen, state

    def _initial_state(self, head: Head) -> _Json:
        while head.parent is not None:
            head = self._store.head(head.parent)
        return dict(json.loads(self._store.records(head.id, _RECORDS).get("initial", b"{}")))

    # ── state of apps and users ─────────────────────────────────────────────────────────────────

    def _shared(self, app: str, user: str | None) -> _Json:
        """Return the state of an app, or of a user of it."""
        try:
            records = self._store.records(_shared_name(app, user), _SHARED)
        except UnknownConversation:
            return {}
        return {unquote(name): json.loads(value)["value"] for name, value in records.items()}

    def _pending(self, app: _Json, user: _Json) -> list[Record]:
        """Return the records with which a change says what it sets of the app and the user."""
        if not app and not user:
            return []
        name = f"{now_ms():015} {new_id()}"
        return [(_PENDING, name, _encode({"app": app, "user": user}))]

    def _settle(self, name: str, app: str, user: str) -> None:
        """Store the state of the app and the user that changes of a session have set.

        A process that dies before this leaves it to the next one that reads the session.
        """
        for at, value in self._store.records(name, _PENDING).items():
            pending = json.loads(value)
            for owner, scope in ((None, "app"), (user, "user")):
                if pending[scope]:
                    self._share(_shared_name(app, owner), pending[scope], at)
            self._store.put_record(name, _PENDING, at, None)

    def _share(self, name: str, values: _Json, at: str) -> None:
        if name not in self._store:
            with suppress(AlreadyExists):
                self._store.create(id=name, title="State of ADK sessions")
        kept = self._store.records(name, _SHARED)
        newer = {key for key, value in kept.items() if json.loads(value)["at"] > at}
        records = [
            (_SHARED, _safe(key), _encode({"at": at, "value": value}))
            for key, value in values.items()
            if _safe(key) not in newer
        ]
        self._store.put_records(name, records)

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    async def _write(self, session: Session, event: Event) -> None:
        task = asyncio.current_task()
        writer = self._writers.get(id(session))
        if writer is None:  # a session that this service did not give, such as a copy
            work = partial(self._name_of, session.app_name, session.user_id, session.id)
            history = self._store.get(await run_to_end(work))
            writer = self._remember(session, _Writer(history, None))
            writer.version = None
        before = self._tasks.get(task) if task is not None else None
        if task is not None and before is not writer:
            if before is None:
                task.add_done_callback(self._end)
            self._tasks[task] = writer
        if before is not None and before is not writer:
            await run_to_end(partial(self._release, before))
        loop = asyncio.get_running_loop()
        until = loop.time() + self._wait_seconds
        while True:
            try:
                await run_to_end(partial(self._append, writer, session, event))
            except (LeaseTaken, LeaseLost) as error:
                if loop.time() >= until:
                    msg = f"Session {session.id} is being written to by another run: {error}"
                    raise StaleSessionError(msg) from error
                await asyncio.sleep(_POLL_SECONDS)
            else:
                return

    def _append(self, writer: _Writer, session: Session, event: Event) -> None:
        """Append an event under the lease; what the session holds then is what is stored."""
        history = writer.history
        try:
            lease = self._lease(writer, session, event)
            if self._is_stored(history, event):
                return
            message = from_event(event, session=history.id)
            *shared, own = _scopes(_state_delta(message))
            records = self._pending(*shared)
            if own:
                seen, before = self._own_state(history)
                state: _Json = {**before, **own}
                records.append((_RECORDS, "state", _encode({"seen": seen, "state": state})))
            history.extend([message], records=records, lease=lease)
        except UnknownConversation:
            raise SessionNotFoundError(f"Session {session.id} not found.") from None
        except LeaseLost:  # just now: the next try sees what the other has written
            writer.lease = None
            raise
        app, user = session.app_name, session.user_id
        if any(shared):
            self._settle(history.id, app, user)
        unseen = writer.version != history.version - 1
        writer.version = history.version
        if unseen:
            self._bring_up_to_date(writer, session, event)
        else:
            self._commit_event_to_session(session, event)
        session.last_update_time = event.timestamp

    def _lease(self, writer: _Writer, session: Session, event: Event) -> Lease:
        """Take or renew the lease; what another run has written meanwhile may forbid it."""
        now = time.monotonic()
        if writer.lease is not None and now < writer.renew_at:
            return writer.lease
        lease = self._store.lease(writer.history.id, writer.holder, seconds=self._turn_seconds)
        continued = writer.lease is not None and writer.lease.token == lease.token
        writer.lease, writer.renew_at = lease, now + self._turn_seconds / 3
        writer.history.refresh()
        if continued or writer.version == writer.history.version:
            return lease
        known = {each.id for each in session.events}
        view = writer.history.view
        foreign = len(view) > 0 and view[-1].id not in known
        begins = event.author == "user" and event.invocation_id not in {
            each.invocation_id for each in session.events if each.invocation_id
        }
        if foreign and (known or writer.version is not None) and event.content and not begins:
            self._release(writer)
            msg = (
                f"Session {session.id} was modified in storage by another run since it was read:"
                " get it again"
            )
            raise StaleSessionError(msg)
        return lease

    def _is_stored(self, history: StoredHistory, event: Event) -> bool:
        """Tell whether the view has this very event: appending it again changes nothing."""
        return any(
            to_event(found) == event
            for position in self._store.find_positions(history.id, event.id)
            for found in self._store.messages(history.id, position, position + 1)
            if found in history.view
        )

    def _bring_up_to_date(self, writer: _Writer, session: Session, event: Event) -> None:
        """Give the session what is stored, with this event; what was never stored stays in it."""
        history = writer.history
        stored = [each for each in self._events(history, writer.config) if each.id != event.id]
        taken = {each.id for each in stored}
        local = [
            each
            for each in session.events
            if each.id not in taken and not self._store.find_positions(history.id, each.id)
        ]
        session.events[:] = [*stored, *local, event]
        temporary = {
            key: value for key, value in session.state.items() if key.startswith(State.TEMP_PREFIX)
        }
        session.state.clear()
        session.state.update(self._merged_state(history, session.app_name, session.user_id))
        session.state.update(temporary)

    # ── the end of a turn ───────────────────────────────────────────────────────────────────────

    def _end(self, task: asyncio.Task[Any]) -> None:
        """Let others have the session of a task that has ended."""
        writer = self._tasks.pop(task, None)
        if writer is not None and writer.lease is not None:
            task.get_loop().run_in_executor(None, self._release, writer)

    def _release(self, writer: _Writer) -> None:
        lease, writer.lease = writer.lease, None
        if lease is not None:
            with suppress(StoreError):  # the store may be closed by now
                self._store.release(lease)


# ── names ───────────────────────────────────────────────────────────────────────────────────────


def _safe(text: str) -> str:
    """A text that can be a part of a name: printable, without the separators."""
    if text.isprintable() and not {"%", "/", "@"} & {*text}:
        return text
    return "".join(
        each if each.isprintable() and each not in "%/@" else quote(each, safe="") for each in text
    )


def _tags(app: str, user: str) -> tuple[str, str]:
    """The tags of a session: its app's, and its user's."""
    return f"{_TAG}{_safe(app)}", f"{_TAG}{_safe(app)}/{_safe(user)}"


def _owner(head: Head, app: str) -> str:
    """The user of a session."""
    start = f"{_TAG}{_safe(app)}/"
    return next(unquote(tag.removeprefix(start)) for tag in head.tags if tag.startswith(start))


def _full_name(app: str, user: str, session_id: str) -> str:
    return f"{_safe(session_id)}@{_safe(user)}@{_safe(app)}"


def _session_id(name: str, app: str, user: str) -> str:
    suffix = f"@{_safe(user)}@{_safe(app)}"
    return unquote(name.removesuffix(suffix)) if name.endswith(suffix) else name


def _shared_name(app: str, user: str | None) -> str:
    return f"{_SHARED_NAME}{_safe(app)}" + ("" if user is None else f"/{_safe(user)}")
