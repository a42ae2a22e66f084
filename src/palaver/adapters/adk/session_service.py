"""ADK's sessions, events and state over conversations in a store.

An append is one statement in a worker thread, under the lease of its `Session` object. What it
needs to know of the session, its writer knows: which events are in it, and whether another run has
had the lease since.

The conversations that were used last stay open, with the events that were read of them. A session
that is read again is a look at the head, the state, and a copy of each event; what others have
changed since is read, and what they have erased is forgotten. Where that takes no longer than
waking a thread, and nothing is to be waited for, the loop does it itself.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import OrderedDict
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.sessions.base_session_service import (
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)
from google.adk.sessions.session import Session
from google.adk.sessions.state import State

from palaver.adapters._turns import Turn, Wait, check_seconds
from palaver.adapters._worker_threads import (
    Patience,
    is_local,
    patience_with,
    run_in_background,
    run_to_end,
)
from palaver.adapters.adk.convert import from_event, state_delta, to_event
from palaver.adapters.adk.event_cache import EventCache
from palaver.adapters.adk.names import (
    STATE_NAME,
    TAG,
    full_name,
    owner_of,
    safe,
    session_id_of,
    strip_id,
    tags_of,
)
from palaver.adapters.adk.state import MustWait, SessionState, scopes
from palaver.errors import (
    AlreadyExists,
    LeaseLost,
    LeaseTaken,
    StoreError,
    UnknownConversation,
)
from palaver.messages.ids import new_id
from palaver.messages.limits import check_name
from palaver.stores.store import check_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from google.adk.events.event import Event

    from palaver.history.view import View
    from palaver.stores import Store, StoredHistory
    from palaver.stores.records import Head, Record

__all__ = ["PalaverSessionService"]

_POLL_SECONDS: Final = 0.02
_SILENT_SECONDS: Final = 600
"""How long a run may be silent, while its model thinks or a tool works, and keep its turn."""
_PATIENCE: Final = 0.000_15
"""How long the loop waits for an append, in seconds: a disk that is slower has the loop go on."""
_READING: Final = 0.001
"""And for a session that is read, which keeps the interpreter busy and not the disk."""
_MAX_OPEN: Final = 128
"""So many conversations stay open."""
_FEW: Final = 64
"""So many messages are read in a moment, most of them from memory."""
_Found = TypeVar("_Found", "Head", "_Open")
_T = TypeVar("_T")
_Json = dict[str, Any]


# ── the service ─────────────────────────────────────────────────────────────────────────────────


class _Open(NamedTuple):
    """A conversation that stays open, for all `Session` objects of it."""

    head: Head
    """As it was when it was last looked at; the history may have gone on since."""
    history: StoredHistory
    events: EventCache

    @property
    def tags(self) -> tuple[str, ...]:
        return self.head.tags


class _Writer:
    """A `Session` object that was given to ADK: what it has seen, and the turn it writes in."""

    def __init__(
        self,
        turn: Turn,
        talk: _Open,
        version: int | None,
        config: GetSessionConfig | None,
        ids: set[str] | None = None,
    ) -> None:
        self.turn = turn
        self.talk = talk
        self.history = talk.history
        self.config = config
        self.version = version
        self.ids = ids
        """Of all events in the view of this version; None if they were not all read."""
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        """Those of the run that have appended; its turn ends with the last of them."""


_run: ContextVar[weakref.ref[_Writer] | None] = ContextVar("palaver_adk_run", default=None)
"""What the run that this code is part of writes with: a tool may set the state of its session."""


class PalaverSessionService(BaseSessionService):
    """Stores the sessions of ADK in a palaver store: a session's id is its conversation's.

    An id that another user or another program has taken gets the user and the app added. A
    conversation that was forked from a session with palaver is a session of the same user.

    >>> import asyncio, palaver
    >>> from google.adk.events.event import Event
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
        turn_seconds: float = 10.0,
        wait_seconds: float = 120.0,
    ) -> None:
        """Take a store, which the caller closes.

        `agent` is the author of answers that ADK did not write, if no agent spoke before them.
        `turn_seconds` is how long a process that was killed keeps others from its sessions,
        `wait_seconds` how long a run waits for another before it is refused.
        """
        check_store(store)
        check_seconds(turn_seconds, wait_seconds)
        check_name(agent, "$.agent", "argument")
        self._store = store
        self._state = SessionState(store)
        self._agent = agent
        self._turn_seconds, self._wait_seconds = turn_seconds, wait_seconds
        self._is_local = is_local(store)
        self._patience = patience_with(store, _PATIENCE, together=True)
        self._reading = patience_with(store, _READING)
        self._beginning = patience_with(store, 2 * _PATIENCE, together=True)  # with the lease
        self._reads_here = Patience(0)  # which counts those in a row
        self._in_threads = 0  # calls that are under way there, and may hold a lock
        self._open: OrderedDict[str, _Open] = OrderedDict()
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
        return await self._in_thread(
            partial(self._create, app_name, user_id, state or {}, session_id)
        )

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a session as its conversation is now, or None."""
        work = partial(self._get, app_name, user_id, session_id, config)
        if self._is_at_hand(session_id, config):
            with suppress(MustWait):
                found = work(may_wait=False)
                if self._reads_here.is_turn_of_others():
                    await asyncio.sleep(0)
                return found
        return await self._in_thread(work, self._reading)

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """List the sessions of a user, or of all, without events; the last changed is last."""
        found = await self._in_thread(partial(self._list, app_name, user_id))
        return ListSessionsResponse(sessions=found)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session and its conversation.

        A conversation with forks stays for these, and is no session any more.
        """
        await self._in_thread(partial(self._delete, app_name, user_id, session_id))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user, without the prefix."""
        return await self._in_thread(partial(self._state.shared, app_name, user_id))

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
        if task is not None and writer is not None:
            writer.tasks.discard(task)
            task.remove_done_callback(self._end)
            await self._in_thread(writer.turn.release, self._patience)

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
        return await self._in_thread(work)

    async def adopt_session(self, *, app_name: str, user_id: str, session_id: str) -> Session:
        """Make a session of a conversation that another program wrote: `session_id` is its id."""
        return await self._in_thread(partial(self._adopt, app_name, user_id, session_id))

    # ── where it runs ───────────────────────────────────────────────────────────────────────────

    async def _in_thread(self, work: Callable[[], _T], patience: Patience | None = None) -> _T:
        """Run some work on a worker thread, to its end."""
        self._in_threads += 1
        try:
            return await run_to_end(work, patience)
        finally:
            self._in_threads -= 1

    def _is_at_hand(self, session_id: str, config: GetSessionConfig | None) -> bool:
        """Tell whether a session may be read on the loop: it was read before, and is short.

        Nothing else of this service runs in a thread, so that none holds the lock of a history.
        """
        talk = self._open.get(strip_id(session_id))
        if talk is None or self._in_threads or not self._is_local:
            return False
        wanted = None if config is None else config.num_recent_events
        return (len(talk.history) if wanted is None else wanted) <= _FEW

    # ── which conversation ──────────────────────────────────────────────────────────────────────

    def _find(
        self, app: str, user: str, session_id: str, read: Callable[[str], _Found]
    ) -> _Found | None:
        """Return what `read` returns for the conversation of a session, or None."""
        wanted = strip_id(session_id)
        for name in (wanted, full_name(app, user, wanted)):
            with suppress(UnknownConversation):
                found = read(name) if name else None
                owned = found is not None and tags_of(app, user)[1] in found.tags
                if owned and session_id_of(name, app, user) == wanted:
                    return found
        return None

    def _name_of(self, app: str, user: str, session_id: str) -> str:
        head = self._find(app, user, session_id, self._store.head)
        if head is None:
            raise SessionNotFoundError(f"Session {session_id} not found.")
        return head.id

    def _free_names(self, app: str, user: str, session_id: str | None) -> Iterator[str]:
        """Yield the ids that a new session's conversation may have, while there is no such session.

        Whoever creates it at the same time may have taken the one that was yielded first.
        """
        wanted = strip_id(session_id or "") or new_id()
        names = [full_name(app, user, wanted)]
        if wanted == safe(wanted) and not wanted.startswith(STATE_NAME):
            names.insert(0, wanted)
        for name in names:
            if self._find(app, user, wanted, self._store.head) is not None:
                raise AlreadyExistsError(f"Session with id {wanted} already exists.")
            yield name

    # ── one access to the store each ────────────────────────────────────────────────────────────

    def _create(self, app: str, user: str, given: _Json, session_id: str | None) -> Session:
        records = self._state.first_records(given)
        for name in self._free_names(app, user, session_id):
            with suppress(AlreadyExists):
                history = self._store.create(id=name, tags=tags_of(app, user), records=records)
                return self._session(self._keep(history), app, user, None)
        raise AlreadyExistsError(f"Session with id {session_id} already exists.")

    def _get(
        self,
        app: str,
        user: str,
        session_id: str,
        config: GetSessionConfig | None,
        *,
        may_wait: bool = True,
    ) -> Session | None:
        """Return a session; `MustWait` if it `may_wait` for nothing and would have to."""
        last = 0 if config is None else config.num_recent_events or 0
        read = partial(self._open_now, last=last, may_wait=may_wait)
        talk = self._find(app, user, session_id, read)
        return None if talk is None else self._session(talk, app, user, config, may_wait=may_wait)

    def _list(self, app: str, user: str | None) -> list[Session]:
        tag = tags_of(app, user or "")[user is not None]
        page = self._store.list(tag=tag)
        heads = list(page.conversations)
        while page.next is not None:
            page = self._store.list(tag=tag, after=page.next)
            heads += page.conversations
        found = [
            self._session(
                _Open(head, self._store.get(head.id), EventCache()), app, owner_of(head, app), None,
                with_events=False,
            )
            for head in heads
        ]  # fmt: skip
        return sorted(found, key=lambda each: (each.last_update_time, each.user_id, each.id))

    def _delete(self, app: str, user: str, session_id: str) -> None:
        head = self._find(app, user, session_id, self._store.head)
        if head is None:
            return
        self._open.pop(head.id, None)
        try:
            self._store.delete(head.id)
        except StoreError:
            if not self._store.forks(head.id):
                raise
            kept = [tag for tag in head.tags if not tag.startswith(TAG)]
            self._store.describe(head.id, title=head.title, tags=kept)

    def _fork(
        self, app: str, user: str, session_id: str, new: str | None, before: str | None
    ) -> Session:
        history = self.history(app_name=app, user_id=user, session_id=session_id)
        end = len(history.view)
        if before is not None:
            events = EventCache().events(history.view, self._agent)
            ids = [event.id for event in events if event.invocation_id == before]
            if not ids:
                raise ValueError(f"there is no invocation {before!r} in session {session_id!r}")
            end = next(i for i, message in enumerate(history.view) if message.id == ids[0])
        for name in self._free_names(app, user, new):
            with suppress(AlreadyExists):
                fork = history.fork(id=name)
                if end < len(fork.view):
                    fork.truncate(keep_first=end)
                return self._session(self._keep(fork), app, user, None)
        raise AlreadyExistsError(f"Session with id {new} already exists.")

    def _adopt(self, app: str, user: str, session_id: str) -> Session:
        history = self._store.get(session_id)
        tags = tags_of(app, user)
        others = [tag for tag in history.tags if tag.startswith(TAG) and tag not in tags]
        if others:
            raise AlreadyExistsError(f"{session_id} is a session of another user: {others[-1]!r}")
        self._store.describe(
            session_id, title=history.title, tags=dict.fromkeys([*history.tags, *tags])
        )
        return self._session(self._keep(history), app, user, None)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def _open_now(self, name: str, last: int = 0, *, may_wait: bool = True) -> _Open:
        """Return a conversation as it is now; what was read of it before is not read again.

        `last` is how many messages are read at once where it was not open.
        """
        known = self._open.get(name)
        if known is None and not may_wait:
            raise MustWait
        if known is None:
            return self._keep(self._store.get(name, last=last))
        version = known.history.version
        try:
            head = self._store.head(name)
        except UnknownConversation:
            self._open.pop(name, None)
            raise
        if not may_wait and not _is_near(head, known.history):
            raise MustWait
        if head.created != known.head.created or head.version < version:  # another of this id
            return self._keep(self._store.get(name, last=last))
        if head.erased != known.head.erased:
            known.events.clear()
        return self._keep(known.history.refresh(head), head, known.events)

    def _keep(
        self, history: StoredHistory, head: Head | None = None, events: EventCache | None = None
    ) -> _Open:
        """Leave a conversation open, and close the one that was used least lately."""
        kept = _Open(head or history.head, history, events or EventCache())
        self._open.pop(history.id, None)
        self._open[history.id] = kept
        if len(self._open) > _MAX_OPEN:
            with suppress(KeyError):  # another thread was first
                self._open.popitem(last=False)
        return kept

    def _session(
        self,
        talk: _Open,
        app: str,
        user: str,
        config: GetSessionConfig | None,
        *,
        with_events: bool = True,
        may_wait: bool = True,
    ) -> Session:
        """Return the session of a conversation; it may append from here on."""
        name, view = talk.head.id, talk.history.view
        state = self._state.merged(talk.head, view, app, user, may_wait=may_wait)
        events = self._events(talk, view, config) if with_events else []
        session = Session(
            id=session_id_of(name, app, user),
            app_name=app,
            user_id=user,
            state=state,
            events=events,
            last_update_time=_updated(talk.head, view, events),
        )
        if with_events:
            partly = config is not None and (config.num_recent_events, config.after_timestamp)
            ids = {each.id for each in events} if partly in (False, (None, None)) else None
            self._remember(session, _Writer(self._turn_on(talk), talk, view.version, config, ids))
        return session

    def _turn_on(self, talk: _Open) -> Turn:
        seconds, silent = self._turn_seconds, max(_SILENT_SECONDS, self._turn_seconds)
        return Turn(self._store, talk.history.id, seconds, silent_seconds=silent)

    def _remember(self, session: Session, writer: _Writer) -> _Writer:
        self._writers[id(session)] = writer
        weakref.finalize(session, self._forget, id(session)).atexit = False
        return writer

    def _forget(self, session: int) -> None:
        """Let others have the session of a run that is over: nobody has its object any more."""
        writer = self._writers.pop(session, None)
        turn = None if writer is None else writer.turn
        if turn is not None and turn.lease is not None and turn.loop is not None:
            with suppress(RuntimeError):  # a closed loop: the lease ends by itself
                turn.loop.call_soon_threadsafe(run_in_background, turn.release)

    def _events(self, talk: _Open, view: View, config: GetSessionConfig | None) -> list[Event]:
        if config is None:
            return talk.events.events(view, self._agent)
        wanted, since = config.num_recent_events, config.after_timestamp
        start = 0 if wanted is None else max(len(view) - wanted, 0)
        events = talk.events.events(view[start:], self._agent)
        return [each for each in events if since is None or each.timestamp >= since]

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    async def _write(self, session: Session, event: Event) -> None:
        task = asyncio.current_task()
        writer = self._writers.get(id(session))
        if writer is None:  # a session that this service did not give, such as a copy
            owner = session.app_name, session.user_id, session.id
            talk = await self._in_thread(lambda: self._open_now(self._name_of(*owner)))
            writer = self._remember(session, _Writer(self._turn_on(talk), talk, None, None))
        run = _run.get()
        outer = None if run is None or event.content or run() is writer else run()
        if outer is not None and outer.history is writer.history and outer.turn.lease is not None:
            own, writer.turn = writer.turn, outer.turn
            with suppress(LeaseTaken, LeaseLost):  # the run has lost its turn: wait for another
                try:
                    await self._in_thread(partial(self._append, writer, session, event))
                    return
                finally:
                    writer.turn = own
        _run.set(weakref.ref(writer))
        if task is not None and self._tasks.get(task) is not writer:
            if task not in self._tasks:
                task.add_done_callback(self._end)
            before = self._leave(task)
            self._tasks[task] = writer
            writer.tasks.add(task)
            if before is not None:
                await self._in_thread(before.turn.release)
        writer.turn.loop = asyncio.get_running_loop()
        wait = Wait(writer.history.id, self._wait_seconds)
        while True:
            patience = self._beginning if writer.turn.lease is None else self._patience
            try:
                await self._in_thread(partial(self._append, writer, session, event), patience)
            except (LeaseTaken, LeaseLost) as error:
                if wait.is_over(error):
                    msg = f"Session {session.id} is being written to by another run"
                    raise StaleSessionError(f"{msg}; {wait.describe(error)}") from error
                await asyncio.sleep(_POLL_SECONDS)
            else:
                return

    def _append(self, writer: _Writer, session: Session, event: Event) -> None:
        """Append an event under the lease; what the session holds then is what is stored."""
        history, outside = writer.history, writer.turn.lease is None
        shared: list[_Json] = []
        try:
            self._take_turn(writer, session, event)
            if self._is_stored(writer, event):
                return
            message = from_event(event, session=history.id)
            records: list[Record] = []
            if event.actions.state_delta:
                *shared, own = scopes(state_delta(message))
                records = self._state.changed(history, shared, own)
            history.extend((message,), records=records, lease=writer.turn.lease)
        except UnknownConversation:
            raise SessionNotFoundError(f"Session {session.id} not found.") from None
        except LeaseLost:  # just now: the next try sees what the other has written
            writer.turn.let_go()
            raise
        if any(shared):
            self._state.settle(history.id, session.app_name, session.user_id)
        unseen = writer.version != history.version - 1
        writer.version = history.version
        if writer.ids is not None:
            writer.ids.add(event.id)
        if unseen:
            self._bring_up_to_date(writer, session, event)
        else:
            self._commit_event_to_session(session, event)
        session.last_update_time = event.timestamp
        if outside and event.content is None:  # state set by hand: a run begins with a message
            writer.turn.release()

    def _take_turn(self, writer: _Writer, session: Session, event: Event) -> None:
        """Take the turn or go on with it; what another run has written may forbid it."""
        if writer.turn.take():
            return
        writer.history.refresh()
        if writer.version == writer.history.version:
            return
        known = {each.id for each in session.events}
        view = writer.history.view
        foreign = len(view) > 0 and view[-1].id not in known
        begins = event.author == "user" and event.invocation_id not in {
            each.invocation_id for each in session.events if each.invocation_id
        }
        if foreign and (known or writer.version is not None) and event.content and not begins:
            writer.turn.release()
            msg = (
                f"Session {session.id} was modified in storage by another run since it was read:"
                " get it again"
            )
            raise StaleSessionError(msg)

    def _is_stored(self, writer: _Writer, event: Event) -> bool:
        """Tell whether the view has this very event: appending it again changes nothing."""
        history = writer.history
        read = writer.ids if writer.version == history.version else None
        if read is not None and event.id not in read:
            return False
        history.refresh()  # an edit may have taken it out
        return any(
            to_event(found) == event
            for position in self._store.find_positions(history.id, event.id)
            for found in self._store.messages(history.id, position, position + 1)
            if found in history.view
        )

    def _bring_up_to_date(self, writer: _Writer, session: Session, event: Event) -> None:
        """Give the session what is stored, with this event; what was never stored stays in it."""
        history = writer.history
        head, view = history.head, history.view
        read = self._events(writer.talk, view, _as_wide(writer.config, session, view))
        stored = [each for each in read if each.id != event.id]
        taken = {each.id for each in stored}
        if writer.ids is not None:
            writer.ids = {*taken, event.id}
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
        session.state.update(self._state.merged(head, view, session.app_name, session.user_id))
        session.state.update(temporary)

    # ── the end of a turn ───────────────────────────────────────────────────────────────────────

    def _leave(self, task: asyncio.Task[Any]) -> _Writer | None:
        """Return what a task has written with, unless other tasks of its run go on with it."""
        writer = self._tasks.pop(task, None)
        if writer is not None:
            writer.tasks.discard(task)
        return None if writer is None or writer.tasks else writer

    def _end(self, task: asyncio.Task[Any]) -> None:
        """Let others have the session of a task that has ended."""
        writer = self._leave(task)
        if writer is not None and writer.turn.lease is not None:
            run_in_background(writer.turn.release)


def _as_wide(
    config: GetSessionConfig | None, session: Session, view: View
) -> GetSessionConfig | None:
    """Return what reads again what a session has, and one event more: it was read in part then.

    From the first of its events that is still there, and as many as it has.
    """
    if config is None or config.num_recent_events is None:
        return config
    missing = {each.id for each in session.events}
    last = len(missing) + 1
    for count, message in enumerate(reversed(view), 1):
        if not missing:
            break
        if message.id in missing:
            missing.remove(message.id)
            last = max(last, count)
    return config.model_copy(update={"num_recent_events": last})


def _is_near(head: Head, history: StoredHistory) -> bool:
    """Tell whether nothing but a few appended messages is to be read up to a newer head."""
    new = head.length - len(history.view.log)
    return head.framed <= history.version <= head.version and new <= _FEW


def _updated(head: Head, view: View, events: Sequence[Event]) -> float:
    """When a session was last changed, as ADK has it."""
    last = events[-1] if events else None
    if last is None and len(view):
        last = to_event(view[-1])
    return last.timestamp if last is not None else head.created / 1000
