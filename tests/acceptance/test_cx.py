"""CX: what an agent sees, from outside, one requirement after the other."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest

import palaver
from palaver.errors import ValidationError
from palaver.messages import assistant, user
from palaver.stores.transfer import export_conversation, import_conversation

if TYPE_CHECKING:
    from pathlib import Path

    from palaver.stores import Store, StoredHistory
    from palaver.stores.transfer import Form

SCENE: dict[str, Any] = {
    "messages": [
        {
            "id": "msg-1",
            "content": "Hi",
            "speaker": {"roleId": "user-1", "roleName": "User", "type": "human"},
        },
        {
            "id": "msg-2",
            "content": "Hello! [NEXT: sarah]",
            "speaker": {"roleId": "max", "roleName": "Max", "type": "ai", "agentType": "claude"},
            "routing": {"rawNextMarkers": ["[NEXT: sarah]"], "resolvedAddressees": ["sarah"]},
        },
        {
            "id": "msg-3",
            "content": "Good day, both of you.",
            "speaker": {"roleId": "sarah", "roleName": "Sarah", "type": "ai"},
            "routing": {"resolvedAddressees": []},
            "timestamp": 1_700_000_000_003,
        },
    ],
    "teamTask": "Say hello",
    "timestamp": 1_700_000_000_004,
    "version": 1,
}
"""The scene of S2 §4.7: the user speaks to Max, and Max to Sarah."""


def brought_in(store: Store, data: object, name: str | None = None) -> StoredHistory:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return import_conversation(store, io.BytesIO(raw), id=name)


def taken_out(store: Store, name: str, form: Form) -> bytes:
    stream = io.BytesIO()
    export_conversation(store, name, stream, form=form)
    return stream.getvalue()


# CX-08


def test_cx_08_version_1_is_read_and_written_exactly(tmp_path: Path) -> None:
    with palaver.open(tmp_path / "chat.db") as store:
        history = brought_in(store, SCENE)
        assert SCENE == json.loads(taken_out(store, history.id, "version-1"))
        assert ["user", "assistant", "assistant"] == [message.role for message in history]
        assert "Say hello" == history.team_task


@pytest.mark.parametrize("form", ["lines", "document"])
def test_cx_08_version_2_has_the_whole_history(form: Form, tmp_path: Path) -> None:
    with palaver.open(tmp_path / "chat.db") as store, palaver.open(":memory:") as other:
        history = store.create([user("one"), assistant("two")], id="talk")
        history.truncate(keep_last=1)
        history.mark(0, "good")
        history.append(user("three"))
        written = taken_out(store, "talk", form)
        twin = brought_in(other, written)
        assert written == taken_out(other, "talk", form)
        for version in range(history.version + 1):
            assert list(history.at(version)) == list(twin.at(version))
            assert history.at(version).marks == twin.at(version).marks
        assert ["one", "two"] == [message.text for message in twin.rollback(0).state.messages]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {**SCENE, "version": 3},
        {**SCENE, "messages": [*SCENE["messages"], SCENE["messages"][0]]},
        {**SCENE, "messages": [*SCENE["messages"], {"id": "msg-4", "content": "who?"}]},
        {**SCENE, "teamTask": 5},
    ],
)
def test_cx_08_importing_changes_all_or_nothing(wrong: object, tmp_path: Path) -> None:
    with palaver.open(tmp_path / "chat.db") as store:
        kept = store.create([user("kept")])
        with pytest.raises(ValidationError):
            brought_in(store, wrong)
        assert [kept.id] == [head.id for head in store]
        assert 0 == store.get(kept.id).version


def test_cx_08_a_stream_that_was_cut_off_changes_nothing(tmp_path: Path) -> None:
    with palaver.open(tmp_path / "chat.db") as store:
        history = store.create([user(str(number)) for number in range(50)])
        lines = taken_out(store, history.id, "lines").splitlines(keepends=True)
        for count in (1, 20, len(lines) - 1):
            with pytest.raises(ValidationError, match="cut off"):
                brought_in(store, b"".join(lines[:count]), "twin")
        assert [history.id] == [head.id for head in store]


# CX-09


def test_cx_09_foreign_ids_are_accepted_on_import() -> None:
    with palaver.open(":memory:") as store:
        history = brought_in(store, SCENE)
        assert ["msg-1", "msg-2", "msg-3"] == [message.id for message in history]
        history.mark("msg-2", "good")
        assert {"good": ["msg-2"]} == dict(history.marks)
