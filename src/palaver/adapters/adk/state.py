"""The state of ADK's sessions, apps and users: in records beside the conversations.

That of a session follows from the events of its view, and is stored with the change of each event
that sets it. That of an app or a user is stored with the change, too, as pending, and then put in
its place beside a conversation of its own.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from google.adk.events.event_actions import EventActions
from google.adk.sessions.state import State

from palaver.adapters.adk.convert import METADATA_KEY, state_delta, to_json
from palaver.adapters.adk.names import safe, state_name
from palaver.errors import AlreadyExists, UnknownConversation
from palaver.messages.ids import new_id, now_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.history.view import View
    from palaver.stores import Store, StoredHistory
    from palaver.stores.records import Head, Record

__all__ = ["MustWait", "SessionState", "scopes"]

_RECORDS: Final = METADATA_KEY
"""The kind of records of a session: its initial state, its `state` now, and what is pending."""
_INITIAL: Final = "initial "
"""How the names of records begin with the initial state, each key by itself: an erasure removes the
records that repeat what it destroys, and the other keys are to stay."""
_PENDING: Final = "pending "
"""How the names of records begin with state of the app or the user that is not in its place yet."""
_SHARED: Final = f"{METADATA_KEY}.state"
"""The kind of records with the state of an app or a user, by key."""
_Json = dict[str, Any]


class MustWait(Exception):  # noqa: N818 - caught where a thread can wait
    """A session can't be read without waiting: for a disk, or for another thread."""


def scopes(delta: Mapping[str, Any]) -> tuple[_Json, _Json, _Json]:
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
    return dict(to_json(EventActions(state_delta=dict(state)))["stateDelta"])


def _initial(records: Mapping[str, bytes]) -> _Json:
    """Return the state that a session was created with; older sessions have it in one record."""
    state: _Json = json.loads(records.get(_INITIAL.strip(), b"{}"))
    for name, value in records.items():
        if name.startswith(_INITIAL):
            state[unquote(name.removeprefix(_INITIAL))] = json.loads(value)
    return state


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()  # ASCII: it keeps every character


class SessionState:
    """The state of the sessions in a store."""

    def __init__(self, store: Store) -> None:
        """Take the store."""
        self._store = store

    def first_records(self, state: Mapping[str, Any]) -> list[Record]:
        """Return the records of a new session that begins with a state."""
        *shared, own = scopes(_json_state(state))
        records = self._pending(*shared)
        return records + [(_RECORDS, f"{_INITIAL}{safe(key)}", _encode(own[key])) for key in own]

    def merged(
        self, head: Head, view: View, app: str, user: str, *, may_wait: bool = True
    ) -> _Json:
        """Return the state of a session with that of its app and its user."""
        records = self._store.records(head.id, _RECORDS)
        if not may_wait and any(name.startswith(_PENDING) for name in records):
            raise MustWait
        self._settle(head.id, records, app, user)
        _, state = self._own_state(head, view, records, may_wait=may_wait)
        state.update((State.APP_PREFIX + key, v) for key, v in self.shared(app, None).items())
        state.update((State.USER_PREFIX + key, v) for key, v in self.shared(app, user).items())
        return state

    def _own_state(
        self, head: Head, view: View, kept: Mapping[str, bytes], *, may_wait: bool = True
    ) -> tuple[list[int], _Json]:
        """Return the last edit and erasure, and the state that the events of the view then say.

        The view is that of the head or newer: then the record that is stored counts as old.
        """
        seen = [head.framed, head.erased]
        known = json.loads(kept["state"]) if "state" in kept else None
        if known is not None and known["seen"] == seen:
            return seen, dict(known["state"])
        if known is None and seen == [0, 0] and head.parent is None and head.stop == 0:
            return seen, _initial(kept)
        if not may_wait:  # it is computed anew, and stored
            raise MustWait
        state = self._initial_state(head)
        for message in view:
            state.update(scopes(state_delta(message))[2])
        record = _encode({"seen": seen, "state": state})
        self._store.put_record(head.id, _RECORDS, "state", record)
        return seen, state

    def _initial_state(self, head: Head) -> _Json:
        while head.parent is not None:
            head = self._store.head(head.parent)
        return _initial(self._store.records(head.id, _RECORDS))

    def shared(self, app: str, user: str | None) -> _Json:
        """Return the state of an app, or of a user of it."""
        try:
            records = self._store.records(state_name(app, user), _SHARED)
        except UnknownConversation:
            return {}
        return {unquote(name): json.loads(value)["value"] for name, value in records.items()}

    def _pending(self, app: _Json, user: _Json) -> list[Record]:
        """Return the records with which a change says what it sets of the app and the user."""
        if not app and not user:
            return []
        name = f"{_PENDING}{now_ms():015} {new_id()}"
        return [(_RECORDS, name, _encode({"app": app, "user": user}))]

    def settle(self, name: str, app: str, user: str) -> None:
        """Store the state of the app and the user that changes of a session have set.

        A process that dies before this leaves it to the next one that reads the session.
        """
        self._settle(name, self._store.records(name, _RECORDS), app, user)

    def _settle(self, name: str, records: Mapping[str, bytes], app: str, user: str) -> None:
        for record, value in records.items():
            if not record.startswith(_PENDING):
                continue
            at = record.removeprefix(_PENDING)
            pending = json.loads(value)
            for owner, scope in ((None, "app"), (user, "user")):
                if pending[scope]:
                    self._share(state_name(app, owner), pending[scope], at)
            self._store.put_record(name, _RECORDS, record, None)

    def _share(self, name: str, values: _Json, at: str) -> None:
        if name not in self._store:
            with suppress(AlreadyExists):
                self._store.create(id=name, title="State of ADK sessions")
        kept = self._store.records(name, _SHARED)
        newer = {key for key, value in kept.items() if json.loads(value)["at"] > at}
        records = [
            (_SHARED, safe(key), _encode({"at": at, "value": value}))
            for key, value in values.items()
            if safe(key) not in newer
        ]
        self._store.put_records(name, records)

    def changed(self, history: StoredHistory, shared: Sequence[_Json], own: _Json) -> list[Record]:
        """Return the records of what an event sets of the app, the user and the session."""
        records = self._pending(*shared)
        if own:
            head, kept = history.refresh().head, self._store.records(history.id, _RECORDS)
            seen, before = self._own_state(head, history.view, kept)
            state: _Json = {**before, **own}
            records.append((_RECORDS, "state", _encode({"seen": seen, "state": state})))
        return records
