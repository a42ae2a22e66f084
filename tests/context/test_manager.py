# CX-01 # CX-06
"""The manager beyond the document's own list of tests."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import palaver
from palaver.context import ContextManager, ContextMessage
from palaver.errors import ValidationError
from palaver.events import Event, EventBus
from palaver.history import History
from palaver.messages import Message, Speaker, assistant, system, user
from tests.context.conversations import (
    MAX,
    SARAH,
    SNAPSHOT,
    USER,
    ai,
    contents,
    filled,
    human,
    said,
)


def test_adding_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """S2 §7.2."""
    caplog.set_level(logging.DEBUG, "palaver.context")
    added = ContextManager().add_message(human("Hi"))
    assert [f"[ContextManager] Message added: {added.id}"] == caplog.messages
    assert ["DEBUG"] == [record.levelname for record in caplog.records]


def test_a_message_of_palavers_own_is_taken_as_it_is() -> None:
    message = said("Hi", MAX, ("sarah",))
    assert message is ContextManager().add_message(message)


def test_a_speaker_needs_no_more_than_an_id() -> None:
    added = ContextManager().add_message({"content": "", "speaker": {"roleId": "u1"}})
    assert Speaker("u1", "u1", "human") == added.speaker


def test_a_team_task_in_a_message_becomes_the_teams() -> None:
    """The last one wins; what a tool or a quote says does not."""
    seen: list[str | None] = []
    context = filled(human("[TEAM_TASK: tea]"), on_team_task_changed=seen.append)
    context.add_message(ai("[TEAM_TASK] rum [TEAM_TASK] coffee [/TEAM_TASK] ok"))
    context.add_message(human("> [TEAM_TASK: quoted]\n```\n[TEAM_TASK: code]\n```"))
    context.add_message(Message("tool", "[TEAM_TASK: output]", speaker=MAX))
    assert ("coffee", ["tea", "coffee"]) == (context.team_task, seen)


def test_a_hook_that_fails_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: object) -> None:
        raise RuntimeError

    context = filled(human("Hi"), on_message_added=fails)
    assert (1, True) == (len(context.messages), "Hook failed: fails" in caplog.text)


def test_events_are_told_too() -> None:
    events = EventBus()
    seen: list[Event] = []
    events.on("*", seen.append)
    context = ContextManager(events=events)
    added = context.add_message(human("[TEAM_TASK: tea]"))
    context.clear()
    context.import_snapshot(SNAPSHOT)
    assert [
        ("message.added", {"id": added.id, "role": "user"}),
        ("team_task.changed", {"teamTask": "tea"}),
        ("history.edited", {"operation": "SESSION"}),
        ("team_task.changed", {"teamTask": None}),
        ("history.edited", {"operation": "IMPORT"}),
        ("team_task.changed", {"teamTask": "tea"}),
    ] == [(event.name, event.data) for event in seen]


def test_it_keeps_no_second_copy() -> None:
    """What is changed in the history is what an agent sees."""
    with palaver.open(":memory:") as store:
        history = store.create()
        context = ContextManager(history)
        context.add_message(human("one"))
        context.add_message(human("two"))
        history.replace(0, said("ONE", USER))
        assert ["ONE"] == contents(context)
        assert "two" == store.get(history.id)[-1].text
        context.clear()
        assert 0 == len(store.get(history.id))


def test_only_what_people_and_models_say_is_context() -> None:
    history = History([
        system("Be brief."), user("Hi"), Message("tool", "output"), assistant("Hello!"),
        Message("tool", "[NEXT: admin]"),
    ])  # fmt: skip
    given = ContextManager(history).context_for("max")
    assert ("Hello!", (ContextMessage("user", "all", "Hi"),)) == (
        given.current_message, given.context_messages,
    )  # fmt: skip


def test_a_member_who_sees_only_what_is_addressed_is_shown_nothing_else() -> None:
    """Not as context, and not as the current message either; the filter comes before the window."""
    talk = [
        said("to all"),
        said("to max", USER, ("max",)),
        said("secret", SARAH, ("User",)),
        said("also secret", SARAH, ("User",)),
    ]
    context = ContextManager(History(talk), window=1, visibility="addressed")
    given = context.context_for("m1", name="Max")
    assert "to max" == given.current_message
    assert ["to all"] == [line.content for line in given.context_messages]
    everything = context.context_for("m1", name="Max", visibility="all")
    assert "also secret" == everything.current_message


@pytest.mark.parametrize(
    "options",
    [
        {"window": -1}, {"window": True}, {"window": 1.0}, {"max_bytes": -1}, {"max_tokens": -1},
        {"windows": {"max": -1}}, {"visibility": "some"}, {"assemblers": {"": print}},
    ],
)  # fmt: skip
def test_options_must_make_sense(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ContextManager(**options)


@pytest.mark.parametrize(
    "options",
    [{"agent": ""}, {"window": -1}, {"visibility": "some"}, {"system_instruction": "a\0b"},
     {"instruction_file_text": "\ud800"}],
)  # fmt: skip
def test_so_must_what_is_asked_for(options: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"agent": "max", **options}
    with pytest.raises(ValidationError):
        ContextManager().context_for(**asked)


def test_a_task_must_be_text() -> None:
    with pytest.raises(ValidationError):
        ContextManager().set_team_task(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
