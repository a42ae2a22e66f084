from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palaver
from palaver.errors import ValidationError
from palaver.messages import assistant, system, user
from palaver.stores.transfer import (
    export_conversation,
    import_conversation,
    read_snapshot,
    write_snapshot,
)
from tests.profiles import at_least

SCENE: dict[str, Any] = {
    "messages": [
        {
            "id": "msg-1",
            "content": "Hi [NEXT: max]",
            "speaker": {"roleId": "user-1", "roleName": "User", "type": "human"},
            "timestamp": 1_700_000_000_001,
            "routing": {"rawNextMarkers": ["[NEXT: max]"], "resolvedAddressees": ["max"]},
        },
        {
            "id": "msg-2",
            "content": "Hello! [NEXT: sarah]",
            "speaker": {"roleId": "max", "roleName": "Max", "type": "ai", "agentType": "claude"},
            "timestamp": "2023-11-14T22:13:20.002Z",
            "routing": {"resolvedAddressees": ["sarah"]},
        },
        {
            "id": "msg-3",
            "content": "Good day.",
            "speaker": {"roleId": "sarah", "roleName": "Sarah", "type": "ai", "display": {"c": 3}},
            "metadata": {"mood": "fine"},
            "teamId": None,
        },
    ],
    "teamTask": "Greet one another",
    "timestamp": 1_700_000_000_009,
    "version": 1,
}
"""S2's scene: the user speaks to Max, Max to Sarah, Sarah to all."""


def round_trip(snapshot: object) -> Any:  # noqa: ANN401 - what comes back
    store = palaver.open(":memory:")
    history = import_conversation(store, io.BytesIO(json.dumps(snapshot).encode()))
    out = io.BytesIO()
    export_conversation(store, history.id, out, form="version-1")
    return json.loads(out.getvalue())


def test_the_scene_comes_back_exactly() -> None:
    assert SCENE == round_trip(SCENE)


def test_the_scene_is_a_history_like_any_other() -> None:
    store = palaver.open(":memory:")
    history = import_conversation(store, io.BytesIO(json.dumps(SCENE).encode()))
    assert ["user", "assistant", "assistant"] == [message.role for message in history]
    assert ["msg-1", "msg-2", "msg-3"] == [message.id for message in history]
    assert [("max",), ("sarah",), ()] == [message.addressees for message in history]
    assert "Greet one another" == history.team_task
    speaker = history[1].speaker
    assert speaker is not None
    assert {"agentType": "claude"} == speaker.extra
    assert [1_700_000_000_001, 1_700_000_000_009] == [history[i].timestamp for i in (0, 2)]


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text("aé文🙂 \n", max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz"), inner, max_size=3),
    max_leaves=5,
)
_extra = st.dictionaries(st.sampled_from(["extra", "status", "note", "é"]), _json, max_size=3)
_names = st.text("abcé文 ", min_size=1, max_size=5)


@st.composite
def _messages(draw: st.DrawFn) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for number in range(draw(st.integers(0, 4))):
        message: dict[str, Any] = {
            "id": f"msg-{number}",
            "content": draw(st.text("aé文🙂 []\n")),
            "speaker": {
                "roleId": draw(_names),
                "roleName": draw(_names),
                "type": draw(st.sampled_from(["human", "ai"])),
                **draw(_extra),
            },
            **draw(_extra),
        }
        if draw(st.booleans()):
            message["timestamp"] = draw(_json)
        if draw(st.booleans()):
            routing = {"resolvedAddressees": draw(st.lists(_names, max_size=2)), **draw(_extra)}
            message["routing"] = draw(st.sampled_from([None, routing, draw(_extra)]))
        made.append(message)
    return made


@at_least(100)
@given(messages=_messages(), task=st.none() | st.text("ab[]文\n"), at=st.integers(0, 2**53))
def test_any_snapshot_comes_back_exactly(
    messages: list[dict[str, Any]], task: str | None, at: int
) -> None:
    snapshot = {"messages": messages, "teamTask": task, "timestamp": at, "version": 1}
    assert snapshot == round_trip(snapshot)


def without(*steps: str | int) -> dict[str, Any]:
    """The scene with one thing missing."""
    scene: dict[str, Any] = json.loads(json.dumps(SCENE))
    inner: Any = scene
    for step in steps[:-1]:
        inner = inner[step]
    del inner[steps[-1]]
    return scene


def having(value: object, *steps: str | int) -> dict[str, Any]:
    """The scene with another value in one place."""
    scene: dict[str, Any] = json.loads(json.dumps(SCENE))
    inner: Any = scene
    for step in steps[:-1]:
        inner = inner[step]
    inner[steps[-1]] = value
    return scene


@pytest.mark.parametrize(
    ("snapshot", "text"),
    [
        ({}, "Invalid snapshot format"),
        ([], "Invalid snapshot format"),
        (None, "Invalid snapshot format"),
        (having(3, "version"), "Invalid snapshot format"),
        (having("1", "version"), "Invalid snapshot format"),
        (having(True, "version"), "Invalid snapshot format"),  # noqa: FBT003 - the value
        (having(1, "more"), "$.more"),
        (without("messages"), "$.messages"),
        (without("teamTask"), "$.teamTask"),
        (without("timestamp"), "$.timestamp"),
        (having(5, "teamTask"), "$.teamTask"),
        (having(-5, "timestamp"), "$.timestamp"),
        (having({}, "messages"), "$.messages"),
        (having("hi", "messages", 1), "$.messages[1]"),
        (without("messages", 1, "id"), "$.messages[1].id"),
        (without("messages", 1, "content"), "$.messages[1].content"),
        (without("messages", 1, "speaker"), "$.messages[1].speaker"),
        (having(["a"], "messages", 1, "content"), "$.messages[1].content"),
        (having(7, "messages", 1, "id"), "$.messages[1].id"),
        (having("msg-1", "messages", 1, "id"), "another message has the id 'msg-1'"),
        (having("Max", "messages", 1, "speaker"), "$.messages[1].speaker"),
        (without("messages", 1, "speaker", "roleId"), "$.messages[1].speaker.roleId"),
        (without("messages", 1, "speaker", "roleName"), "$.messages[1].speaker.roleName"),
        (having("", "messages", 1, "speaker", "roleId"), "$.messages[1].speaker.roleId"),
        (having("[x]", "messages", 1, "speaker", "roleName"), "$.messages[1].speaker.roleName"),
        (having("robot", "messages", 1, "speaker", "type"), "$.messages[1].speaker.type"),
        (having([], "messages", 1, "speaker", "type"), "$.messages[1].speaker.type"),
        (having("all", "messages", 0, "routing"), "$.messages[0].routing"),
        (having("max", "messages", 0, "routing", "resolvedAddressees"), "resolvedAddressees"),
        (having([1], "messages", 0, "routing", "resolvedAddressees"), "resolvedAddressees[0]"),
        (having("a\0", "messages", 0, "note"), "$.messages[0]"),
    ],
)
def test_everything_is_checked_first(snapshot: object, text: str) -> None:
    store = palaver.open(":memory:")
    with pytest.raises(ValidationError) as refusal:
        import_conversation(store, io.BytesIO(json.dumps(snapshot).encode()))
    assert text in str(refusal.value)
    assert [] == list(store)
    with pytest.raises(ValidationError):
        read_snapshot(snapshot)


def test_only_what_was_said_goes_out() -> None:
    """System messages have no speaker there; others speak under the name of their role."""
    said = [system("Be brief."), user("Hi", id="a"), assistant("Hello", id="b")]
    written = write_snapshot(said, team_task=None, timestamp=1)
    assert ["a", "b"] == [message["id"] for message in written["messages"]]
    assert ["human", "ai"] == [message["speaker"]["type"] for message in written["messages"]]
    assert "routing" not in written["messages"][0]
    assert written == write_snapshot(read_snapshot(written).messages, team_task=None, timestamp=1)


def test_what_could_not_come_back_does_not_go_out() -> None:
    with pytest.raises(ValidationError, match="another message has the id 'a'"):
        write_snapshot([user("x", id="a"), user("y", id="a")], team_task=None, timestamp=1)
