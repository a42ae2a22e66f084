"""What is edited with palaver is what the `claude` program resumes with, and it is always whole."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from msgspec.structs import replace

import palaver
from compat.claude_lines import KEY, SESSION, aside, attachment, ident, said, session, told
from compat.claude_sessions import Sessions, chain, whole
from palaver.messages import ToolCallPart, ToolPart, new_id, text_part

if TYPE_CHECKING:
    from palaver.stores import Store


@pytest.fixture
def store() -> Store:
    return palaver.open(":memory:")


@pytest.fixture
def sessions(store: Store) -> Sessions:
    made = Sessions(store)
    made.append(*session())
    return made


def test_a_replaced_message_keeps_its_line(sessions: Sessions) -> None:
    sessions.history.replace(0, palaver.user("Weather in Rome?"))
    before, after = session(), sessions.load()
    assert "Weather in Rome?" == after[1]["message"]["content"]
    after[1]["message"]["content"] = "Weather in Oslo?"
    assert before == after


def test_a_message_edited_in_its_parts_keeps_the_rest(sessions: Sessions) -> None:
    history = sessions.history
    part = history[3].parts[0]
    assert isinstance(part, ToolCallPart)
    history.replace(3, replace(history[3], content=(replace(part, input={"city": "Rome"}),)))
    line = next(line for line in sessions.load() if line.get("uuid") == ident("call"))
    assert ({"city": "Rome"}, {"type": "direct"}) == (
        line["message"]["content"][0]["input"],
        line["message"]["content"][0]["caller"],
    )


def test_what_the_person_saw_of_a_result_goes_with_it(sessions: Sessions) -> None:
    """A secret that was edited out of an output is nowhere in what the program reads."""
    history = sessions.history
    part = history[4].parts[0]
    assert isinstance(part, ToolPart)
    hidden = replace(part, state=replace(part.state, output="(removed)"))
    history.replace(4, replace(history[4], content=(hidden,)))
    lines = sessions.load()
    assert whole(lines)
    assert "Sunny in Oslo" not in json.dumps(lines)
    assert [{"type": "text", "text": "(removed)"}] == (
        next(line for line in lines if line.get("uuid") == ident("fine"))["message"]["content"][0][
            "content"
        ]
    )


def test_a_deleted_message_leaves_no_gap(sessions: Sessions) -> None:
    """What hung on it hangs on what stands before, and what came with it goes."""
    history = sessions.history
    history.rewrite([range(5), range(6, 8)])  # without "It is sunny in Oslo."
    lines = sessions.load()
    assert whole(lines)
    assert ("thanks", "left") in chain(lines)
    assert aside("ai-title", aiTitle="Weather in Oslo") in lines


def test_a_result_that_is_gone_takes_its_call_along(sessions: Sessions) -> None:
    sessions.history.rewrite([range(4), range(5, 8)])
    lines = sessions.load()
    assert whole(lines)
    assert ("sunny", "look") in chain(lines)
    assert "tool_use" not in json.dumps([line.get("message") for line in lines])


def test_thoughts_that_lead_nowhere_go_with_their_answer(sessions: Sessions) -> None:
    history = sessions.history
    history.rewrite([range(2), range(5, 8)])  # the call, its words and its result are gone
    lines = sessions.load()
    assert whole(lines)
    assert "thinking" not in json.dumps(lines)


def test_an_inserted_message_takes_its_place_in_the_chain(sessions: Sessions) -> None:
    sessions.history.insert(6, [palaver.user("In Celsius."), palaver.assistant("Sure.")])
    lines = sessions.load()
    assert whole(lines)
    new = [line for line in lines if chain([line])[:1] and chain([line])[0][0] == "new"]
    assert ["user", "assistant"] == [line["type"] for line in new]
    assert {SESSION} == {line["sessionId"] for line in new}
    assert "/work" == new[0]["cwd"]
    assert ("In Celsius.", "2.1.325") == (new[0]["message"]["content"], new[0]["version"])


@pytest.mark.parametrize("place", [0, 4])
def test_what_is_put_in_waits_for_the_result(place: int, sessions: Sessions) -> None:
    """At the very beginning, and between a call and its result."""
    sessions.history.insert(place, [palaver.system("Be brief.")])
    lines = sessions.load()
    assert whole(lines)
    spoken = [line for line in lines if "message" in line]
    assert (0 if place == 0 else 5) == [line.get("isMeta") for line in spoken].index(True)


def test_a_message_of_another_role_is_a_line_of_its_own(sessions: Sessions) -> None:
    sessions.history.replace(5, palaver.user("Never mind."))
    lines = sessions.load()
    assert whole(lines)
    assert ident("sunny") not in [line.get("uuid") for line in lines]
    sessions.history.replace(5, palaver.assistant("It rains."))  # and back again, over two edits
    assert session()[9]["uuid"] in [line.get("uuid") for line in sessions.load()]


def test_going_back_leaves_no_trace_and_undo_brings_all_back(sessions: Sessions) -> None:
    """What hung on the messages that are gone goes too; what is about the session stays."""
    history = sessions.history
    history.truncate(keep_first=4)
    lines = sessions.load()
    assert whole(lines)
    assert [("ask", None), ("env", "ask"), ("think", "env"), ("look", "think")] == chain(lines)
    history.undo()
    assert session() == sessions.load()


def test_a_copy_of_a_line_is_another_line(sessions: Sessions) -> None:
    """A message that stands twice has two uuids: the chain never runs in a circle."""
    history = sessions.history
    history.insert(8, [replace(history[6], id=new_id())])
    lines = sessions.load()
    assert whole(lines)
    assert ["Thanks!", "Thanks!"] == [
        line["message"]["content"] for line in lines if line.get("type") == "user"
    ][-2:]


def test_an_erased_message_is_gone_from_the_lines(sessions: Sessions) -> None:
    sessions.history.erase(0)
    lines = sessions.load()
    assert whole(lines)
    assert "Weather in Oslo?" not in json.dumps(lines)
    assert [] == list(sessions.store.verify())


@pytest.mark.parametrize("edit", [
    lambda history: history.erase(0),
    lambda history: history.truncate(keep_last=1),
    lambda history: history.truncate(remove_first=3),
    lambda history: history.rewrite([palaver.assistant("Hello."), range(8)]),
])  # fmt: skip
def test_an_answer_never_comes_first(sessions: Sessions, edit: Any) -> None:
    """The provider refuses that, and the session could not be resumed any more."""
    edit(sessions.history)
    lines = sessions.load()
    assert whole(lines)
    first = next(line for line in lines if "message" in line)
    assert ("user", True, SESSION) == (first["type"], first["isMeta"], first["sessionId"])
    assert "user" == first["message"]["role"]
    assert lines == sessions.load()


def test_a_cleared_session_keeps_what_is_about_it(sessions: Sessions) -> None:
    sessions.history.clear()
    kinds = ["queue-operation", "tools-used", "ai-title"]
    assert kinds == [line["type"] for line in sessions.load()]


def boundary() -> list[dict[str, Any]]:
    """A session that the program has summed up."""
    cut = {**attachment("cut", "ask", ""), "type": "system", "subtype": "compact_boundary"}
    cut |= {"parentUuid": None, "logicalParentUuid": ident("old")}
    return [
        said("ask", None, "Hello"),
        told("old", "ask", "Hi."),
        cut,
        said("sum", "cut", "So far: a greeting.", isCompactSummary=True),
        told("bye", "sum", "Go on."),
    ]


def test_a_compaction_stands_and_falls_with_its_summary(store: Store) -> None:
    sessions = Sessions(store)
    sessions.append(*boundary())
    assert boundary() == sessions.load()
    sessions.history.rewrite([range(1), range(2, 4)])  # what came right before it is gone
    lines = sessions.load()
    assert ["user", "system", "user", "assistant"] == [line["type"] for line in lines]
    assert (None, ident("ask")) == (lines[1]["parentUuid"], lines[1]["logicalParentUuid"])
    sessions.history.truncate(keep_first=1)
    assert ["user"] == [line["type"] for line in sessions.load()]


def test_a_fork_made_with_palaver_is_a_session(sessions: Sessions) -> None:
    """It has its parent's lines under its own id, and goes its own way."""
    made = sessions.history.fork(at=0)
    fork = sessions.history.fork()
    fork.replace(0, palaver.user("Weather in Rome?"))
    key = {**KEY, "session_id": fork.id}
    lines = sessions.load(key)
    assert {fork.id} == {line["sessionId"] for line in lines}
    assert len(session()) == len(lines)
    found = anyio.run(sessions.adapter.list_sessions, "-work")
    assert {SESSION, fork.id} == {one["session_id"] for one in found}
    sessions.append(told("more", "bye", "On we go.", of="msg_9"), key=key)
    assert "On we go." == sessions.store.get(fork.id)[-1].text
    assert len(session()) == len(sessions.load())
    assert 0 == len(made)


def test_a_conversation_of_palavers_own_can_be_resumed(store: Store) -> None:
    """It never was on a line: it gets an envelope, and a chain."""
    history = store.create([palaver.user("Hello"), palaver.assistant("Hi.")])
    lines = Sessions(store).load({**KEY, "session_id": history.id})
    assert whole(lines)
    assert ["user", "assistant"] == [line["type"] for line in lines]
    assert {history.id} == {line["sessionId"] for line in lines}


def test_ignored_text_does_not_reach_the_model(sessions: Sessions) -> None:
    """Put into a line or into a message of palaver's own; a line of an API error keeps its text."""
    parts = [
        text_part(new_id(), new_id(), "seen"),
        text_part(new_id(), new_id(), "HIDDEN", ignored=True),
    ]
    history = sessions.history
    history.replace(0, replace(history[0], content=tuple(parts)))
    history.append(palaver.user(parts))
    wrong = told("wrong", "bye", "API Error: 500", of="msg_9") | {"isApiErrorMessage": True}
    sessions.append(wrong)
    lines = sessions.load()
    assert "HIDDEN" not in json.dumps(lines)
    assert 2 == json.dumps(lines).count('"seen"')
    assert "API Error: 500" in json.dumps(lines)
