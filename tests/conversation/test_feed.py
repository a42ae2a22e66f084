"""Events in another process: what one does, the other is told, live and after the fact."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

import palaver
from palaver.conversation import Conversation, DropOldest, compact
from palaver.conversation.feed import follow_events
from palaver.errors import UnknownConversation
from palaver.messages import (
    Message,
    assistant,
    complete,
    new_id,
    pending,
    start,
    tool_call_part,
    tool_part,
    user,
)
from tests.conversation.scripted import Scripted, calling, saying
from tests.stores.postgres_server import postgres, postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver import Store
    from palaver.events import Event

__all__ = ["postgres", "postgres_server"]  # fixtures

ROOT = Path(__file__).resolve().parent.parent.parent
HAPPENED = [
    "message.added",
    "message.added",
    "tool.pending",
    "tool.pending",
    "usage.updated",
    "tool.running",
    "tool.running",
    "tool.completed",
    "message.added",
    "tool.error",
    "message.added",
    "message.added",
    "usage.updated",
    "team_task.changed",
    "history.rolled_back",
    "compaction.done",
    "history.edited",
    "message.erased",
]
"""What `work` comes to; that calls run may be seen a little earlier or later."""


def work(address: str, name: str, gate: str) -> None:
    """What the other process does; its tool waits for the gate to be opened."""

    def wait() -> str:
        while not Path(gate).exists():
            time.sleep(0.01)
        return "open"

    def fail() -> None:
        raise OSError

    async def steps() -> None:
        with palaver.open(address) as store:
            conversation = Conversation(store, name, tools=[wait, fail])
            conversation.add(user("Look."))
            asked = calling(("wait", {}), ("fail", {}), used=(9, 4))
            step = await conversation.step(Scripted(asked))
            await conversation.run_tools(step.calls)
            await conversation.step(Scripted(saying("Done.", used=(20, 2))))
            history = conversation.history
            history.set_team_task("Tea")
            history.undo()
            await compact(conversation, DropOldest(keep_tokens=1))
            history.replace(0, user("Again."))
            history.erase(0)

    anyio.run(steps)


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that two processes can open."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres")
        return found
    return str(tmp_path / "chat.db")


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    """It is open here too."""
    with palaver.open(address) as opened:
        yield opened


def names(events: list[Event]) -> list[str]:
    """What happened; where calls were seen to run does not matter."""
    return [event.name for event in events]


def quiet(events: list[Event]) -> list[str]:
    """What happened, without the looks at the ledger."""
    return [name for name in names(events) if name != "tool.running"]


@pytest.mark.parametrize("whole", [False, True], ids=["one", "all"])
def test_what_one_process_does_another_is_told(
    store: Store, address: str, tmp_path: Path, *, whole: bool
) -> None:
    """CV-08: in order, none missed; a call is seen running while it runs."""
    talk = store.create([user("A longer question that will have to go. " * 9)])
    gate = tmp_path / "gate"
    heard: list[Event] = []
    given = f"{address!r}, {talk.id!r}, {str(gate)!r}"
    code = f"from tests.conversation.test_feed import work; work({given})"
    following = follow_events(store, None if whole else talk.id, seconds=60)
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as other:
        for event in following:
            heard.append(event)
            if event.name == "tool.running" and event.data["tool"] == "wait":
                assert "tool.completed" not in names(heard)
                gate.touch()
            if event.name == "message.erased":
                break
    assert 0 == other.returncode
    assert [name for name in HAPPENED if name != "tool.running"] == quiet(heard)
    assert 2 == names(heard).count("tool.running")
    assert {talk.id} == {event.conversation for event in heard}
    _tells_what_is_known(store, talk.id, heard)
    _goes_on_from_anywhere(store, None if whole else talk.id, heard)


def _tells_what_is_known(store: Store, name: str, heard: list[Event]) -> None:
    by_name = {event.name: event for event in heard}
    log = store.get(name).log
    assert "Tea" == by_name["team_task.changed"].data["task"]
    assert "UNDO" == by_name["history.rolled_back"].data["operation"]
    assert "REPLACE" == by_name["history.edited"].data["operation"]
    assert [log[len(log) - 1].id] == by_name["message.erased"].data["messages"]
    assert 22 == by_name["usage.updated"].data["totalTokens"]
    assert "open" == by_name["tool.completed"].data["state"]["output"]
    assert "OSError" in by_name["tool.error"].data["state"]["error"]
    calls = {event.data["id"] for event in heard if event.name == "tool.pending"}
    for state in ("tool.running", "tool.completed", "tool.error"):
        assert {event.data["id"] for event in heard if event.name == state} <= calls
    versions = [event.version for event in heard if event.name != "tool.running"]
    assert sorted(versions) == versions


def _goes_on_from_anywhere(store: Store, name: str | None, heard: list[Event]) -> None:
    """Nothing is missed, and no change but the one that was cut is told again."""
    for place, event in enumerate(heard):
        again = list(follow_events(store, name, after=event.cursor, seconds=0))
        rest = quiet(heard[place + 1 :])
        told = quiet(again)
        assert rest == told[len(told) - len(rest) :]
        before = {earlier.version for earlier in again[: len(again) - len(rest)]}
        assert all(version >= event.version or event.name == "tool.running" for version in before)


def test_without_a_place_only_what_comes_is_told(store: Store) -> None:
    """What was there is not news; a new conversation is, where all are followed."""
    talk = store.create([user("before")])
    assert [] == list(follow_events(store, talk.id, seconds=0))
    assert [] == list(follow_events(store, seconds=0))
    everything, one = follow_events(store, seconds=0), follow_events(store, talk.id, seconds=0)
    talk.append(user("after"))
    other = store.create([user("elsewhere")])
    other.fork()
    assert [(talk.id, "message.added")] == [(e.conversation, e.name) for e in one]
    assert [(talk.id, "message.added"), (other.id, "message.added")] == [
        (e.conversation, e.name) for e in everything
    ]


def test_it_waits_for_what_comes(store: Store) -> None:
    """For as long as is said after the last event."""
    talk = store.create()
    events = follow_events(store, talk.id, seconds=120)
    later = threading.Timer(0.2, lambda: store.get(talk.id).append(user("now")))
    later.start()
    assert ["message.added"] == names([next(events)])
    later.join()
    assert [] == list(follow_events(store, talk.id, seconds=0.2))


def test_a_result_whose_call_is_far_away_has_its_own_id(store: Store) -> None:
    """It may have come in by another way."""
    talk, message_id = store.create(), new_id()
    done = complete(start(pending({}, "{}")), "fine", tool="look")
    part = tool_part(new_id(), message_id, "theirs", "look", done)
    talk.append(Message("tool", (part,), id=message_id))
    heard = list(follow_events(store, talk.id, after=0, seconds=0))
    assert ["tool.running", "tool.completed", "message.added"] == names(heard)
    assert part.id == heard[0].data["id"]


def test_a_conversation_that_is_gone_is_not_told_of(store: Store) -> None:
    """Of all, it is left out; of itself, it is an error."""
    talk = store.create([user("a")])
    calls = assistant([tool_call_part(new_id(), new_id(), "look", {})])
    following = follow_events(store, after=-1, seconds=0)
    talk.append(calls)
    assert "message.added" == next(following).name
    store.delete(talk.id)
    assert set(names(list(following))) <= {"message.added", "tool.pending"}
    with pytest.raises(UnknownConversation):
        follow_events(store, talk.id)
