"""Another answer to the same question: made by a step, found in versions and forks, chosen."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.messages import (
    Message,
    UnknownPart,
    assistant,
    completed,
    new_id,
    tool_call_part,
    tool_part,
    user,
)
from palaver.tools import tool
from palaver.tools.approval import ApprovalRequired
from tests.conversation.scripted import Scripted, calling, saying
from tests.server.routes.test_teams import ROSTER
from tests.server.scripted_server import ScriptedServer

SUM = ("calculate", {"expression": "6 * 7"})
MORE = ("calculate", {"expression": "1 + 1"})


def found(stage: ScriptedServer, talk: str) -> dict[int, tuple[int, list[dict[str, Any]]]]:
    """The alternatives of a conversation: by index, which one is here, and all of them."""
    answer = stage.ask.good("GET", f"conversations/{talk}/alternatives")
    return {one["index"]: (one["current"], one["items"]) for one in answer["items"]}


def cut(keep: int) -> dict[str, Any]:
    return {"operation": "TRUNCATE", "keepFirst": keep}


def again(stage: ScriptedServer, talk: str, *operations: dict[str, Any], **more: Any) -> None:  # noqa: ANN401 - JSON
    """Take a step that begins with operations."""
    version = stage.ask.good("GET", f"conversations/{talk}")["version"]
    body = {"operations": list(operations), **more}
    stage.ask.good("POST", f"conversations/{talk}/step", body, headers={"if-match": f'"{version}"'})
    stage.over(talk)


def test_another_answer_is_asked_for_and_each_can_be_chosen_again() -> None:
    with ScriptedServer(Scripted(saying("One."), saying("Two."), saying("Three."))) as stage:
        talk = stage.ask.begun()
        stage.step(talk, "Tea?")
        assert {} == found(stage, talk)
        again(stage, talk, cut(1))
        again(stage, talk, cut(1))
        assert ["Tea?", "Three."] == stage.ask.texts(talk)
        current, items = found(stage, talk)[1]
        assert (2, [talk] * 3) == (current, [one["conversation"] for one in items])
        assert all(one["model"] for one in items)
        said = []
        for one in items:
            stage.ask.good("POST", f"conversations/{talk}/restore", {"version": one["version"]})
            said.append(stage.ask.texts(talk)[-1])
            assert [item["message"] for item in items] == [
                item["message"] for item in found(stage, talk)[1][1]
            ]
        assert ["One.", "Two.", "Three."] == said


def test_another_question_is_asked_in_the_place_of_one() -> None:
    """What the first led to comes back with it."""
    with ScriptedServer(Scripted(saying("Yes."), saying("Rum it is."))) as stage:
        talk = stage.ask.begun()
        stage.step(talk, "Tea?")
        other = {"operation": "REPLACE", "index": 0, "message": {"role": "user", "content": "Rum?"}}
        before = stage.ask.good("GET", f"conversations/{talk}")["version"]
        again(stage, talk, other, cut(1))
        assert ["Rum?", "Rum it is."] == stage.ask.texts(talk)
        assert before + 2 == stage.ask.good("GET", f"conversations/{talk}")["version"]
        current, items = found(stage, talk)[0]
        assert (1, 2) == (current, len(items))
        version = {"version": items[0]["version"]}
        stage.ask.good("POST", f"conversations/{talk}/restore", version)
        assert ["Tea?", "Yes."] == stage.ask.texts(talk)


def test_the_answers_of_forks_are_alternatives_on_every_side() -> None:
    answers = [saying(text) for text in ("One.", "Two.", "Three.", "Four.")]
    with ScriptedServer(Scripted(*answers)) as stage:
        talk = stage.ask.begun()
        stage.step(talk, "Tea?")
        stage.ask.good("POST", f"conversations/{talk}/messages", {"messages": [
            {"role": "user", "content": "Milk?"}, {"role": "assistant", "content": "No."},
        ]})  # fmt: skip
        forks = [stage.ask.good("POST", f"conversations/{talk}/fork", {})["id"] for _ in "ab"]
        for fork in forks:
            again(stage, fork, cut(1))
        sides = [talk, *forks]
        for place, side in enumerate(sides):
            current, items = found(stage, side)[1]
            assert (place, 3) == (current, len(items))
        _, items = found(stage, talk)[1]
        assert sides == [one["conversation"] for one in items]
        # a fork has what it was forked from in a version of its own
        _, items = found(stage, forks[0])[1]
        assert [forks[0], forks[0], forks[1]] == [one["conversation"] for one in items]
        # and so on: "One." is only in the first, which is seen from a fork of a fork
        grandchild = stage.store.get(forks[0]).fork().id
        again(stage, grandchild, cut(1))
        _, items = found(stage, grandchild)[1]
        assert [talk, grandchild, forks[1], grandchild] == [one["conversation"] for one in items]
        assert 4 == len(found(stage, forks[0])[1][1])


def test_what_was_pruned_is_no_alternative() -> None:
    with ScriptedServer(Scripted(saying("One."), saying("Two."))) as stage:
        talk = stage.ask.begun()
        stage.step(talk, "Tea?")
        again(stage, talk, cut(1))
        first = found(stage, talk)[1][1][0]["version"]
        stage.ask.good("POST", f"conversations/{talk}/restore", {"version": first})
        assert 2 == len(found(stage, talk)[1][1])
        stage.ask.good("POST", f"conversations/{talk}/prune", {"undo": 0})
        assert {} == found(stage, talk)
        assert ["Tea?", "One."] == stage.ask.texts(talk)


@pytest.mark.parametrize(
    ("body", "headers", "path"),
    [
        ({"operations": []}, {}, "$.operations"),
        ({"operations": [cut(0)], "text": "Tea?"}, {}, "$.text"),
        ({"operations": [cut(0)]}, {"idempotency-key": "k"}, "$.operations"),
        ({"operations": [{"operation": "SHRED"}]}, {}, "$.operations[0].operation"),
        ({"operations": [cut(1), {"operation": "REPLACE", "index": 7,
          "message": {"role": "user", "content": "x"}}]}, {}, "$.operations[1]"),
    ],
)  # fmt: skip
def test_wrong_operations_are_refused_and_nothing_is_asked(
    body: dict[str, Any], headers: dict[str, str], path: str
) -> None:
    model = Scripted()
    with ScriptedServer(model) as stage:
        talk = stage.ask.begun("one", "two")
        refused = stage.ask.refused("POST", f"conversations/{talk}/step", body, headers=headers)
        assert refused["path"].startswith(path)
        assert ["one", "two"] == stage.ask.texts(talk)
        assert not stage.look(talk)["running"]


def test_operations_for_another_version_are_refused() -> None:
    with ScriptedServer(Scripted()) as stage:
        talk = stage.ask.begun("one", "two")
        body = {"operations": [cut(1)]}
        path = f"conversations/{talk}/step"
        refused = stage.ask.refused("POST", path, body, headers={"if-match": '"7"'})
        assert (412, ["one", "two"]) == (refused["status"], stage.ask.texts(talk))


# ── a call runs again ───────────────────────────────────────────────────────────────────────────


def result_of(stage: ScriptedServer, talk: str, which: int = 0) -> dict[str, Any]:
    parts = [
        part
        for message in stage.messages(talk)
        if message["role"] == "tool"
        for part in message["content"]
    ]
    part: dict[str, Any] = parts[which]
    return part


def rerun(stage: ScriptedServer, talk: str, call: str, **body: Any) -> None:  # noqa: ANN401 - JSON
    stage.ask.good("POST", f"conversations/{talk}/calls/{call}/rerun", body)
    stage.over(talk)


def test_a_call_runs_again_with_other_arguments_and_the_model_goes_on_from_there() -> None:
    model = Scripted(calling(SUM), saying("42."), saying("2."), saying("42 again."))
    with ScriptedServer(model) as stage:
        talk = stage.ask.begun()
        stage.step(talk, "Work it out.", tools=True)
        first = result_of(stage, talk)
        rerun(stage, talk, first["id"], arguments={"expression": "1 + 1"}, by="Ann")
        second = result_of(stage, talk)["state"]
        assert ("edit", "Ann") == (
            second["metadata"]["approval"]["verdict"],
            second["metadata"]["approval"]["by"],
        )
        assert ("1 + 1", True) == (second["input"]["expression"], "1 + 1 = 2" in second["output"])
        assert (4, "2.") == (len(stage.messages(talk)), stage.ask.texts(talk)[-1])
        rerun(stage, talk, first["callID"])
        assert [("completed", "6 * 7 = 42")] == stage.results(talk)
        assert "approve" == result_of(stage, talk)["state"]["metadata"]["approval"]["verdict"]
        # the call's message is another each time, and each can be chosen again
        current, items = found(stage, talk)[1]
        assert (2, 3) == (current, len(items))
        version = {"version": items[0]["version"]}
        stage.ask.good("POST", f"conversations/{talk}/restore", version)
        assert first == result_of(stage, talk)


def test_the_results_of_the_other_calls_stay() -> None:
    with ScriptedServer(Scripted(calling(SUM, MORE), saying("Both."), saying("Again."))) as stage:
        talk = stage.ask.begun()
        stage.step(talk, "Work it out.", tools=True)
        other = result_of(stage, talk, 1)
        rerun(stage, talk, result_of(stage, talk)["id"], arguments={"expression": "2 + 2"})
        assert ["completed", "completed"] == [status for status, _ in stage.results(talk)]
        assert other == result_of(stage, talk, 0)
        assert "2 + 2 = 4" in result_of(stage, talk, 1)["state"]["output"]
        assert "Again." == stage.ask.texts(talk)[-1]


def test_of_results_in_one_message_only_one_goes() -> None:
    """As some programs' transcripts have them."""
    calls = list(enumerate((SUM, MORE)))
    made = [tool_call_part(new_id(), new_id(), *call, call_id=f"c{n}") for n, call in calls]
    told = [
        tool_part(new_id(), new_id(), f"c{n}", name, completed(given, "told", name))
        for n, (name, given) in calls
    ]
    with ScriptedServer(Scripted(saying("Again."))) as stage:
        talk = stage.store.create(
            [
                user("Work it out."),
                assistant([UnknownPart({"type": "hologram"}), *made]),
                Message("tool", tuple(told)),
                assistant("Both."),
            ]
        ).id
        rerun(stage, talk, "c0")
        assert [("completed", "told"), ("completed", "6 * 7 = 42")] == stage.results(talk)
        assert "Again." == stage.ask.texts(talk)[-1]


def test_a_call_that_can_not_run_again_is_refused_and_nothing_changes() -> None:
    strange: tuple[str, dict[str, Any]] = ("no_such_tool", {})
    with ScriptedServer(Scripted(calling(SUM, strange), saying("Both."))) as stage:
        talk = stage.ask.begun()
        stage.step(talk, "Work it out.", tools=True)
        before = stage.ask.good("GET", f"conversations/{talk}")["version"]
        path = f"conversations/{talk}/calls"
        gone = stage.ask.refused("POST", f"{path}/nobody/rerun", {})
        assert (404, True) == (gone["status"], "nobody" in gone["detail"])
        unknown = result_of(stage, talk, 1)["id"]
        missing = stage.ask.refused("POST", f"{path}/{unknown}/rerun", {})
        assert (409, True) == (missing["status"], "no_such_tool" in missing["detail"])
        call = result_of(stage, talk)["id"]
        wrong = stage.ask.refused("POST", f"{path}/{call}/rerun", {"arguments": {"expr": 1}})
        assert 422 == wrong["status"]
        stale = stage.ask.refused("POST", f"{path}/{call}/rerun", {}, headers={"if-match": '"0"'})
        assert 412 == stale["status"]
        assert before == stage.ask.good("GET", f"conversations/{talk}")["version"]
        stage.ask.good("PUT", f"conversations/{talk}/team", {"document": ROSTER})
        team = stage.ask.refused("POST", f"{path}/{call}/rerun", {})
        assert (409, True) == (team["status"], "team" in team["detail"])


def test_a_call_that_waits_does_not_run_again() -> None:
    search = ("search_conversations", {"words": "tea"})
    with ScriptedServer(Scripted(calling(search))) as stage:
        talk = stage.ask.begun()
        stage.step(talk, "Look it up.", tools=True)
        (call,) = stage.calls(talk)
        refused = stage.ask.refused("POST", f"conversations/{talk}/calls/{call['id']}/rerun", {})
        assert (409, True) == (refused["status"], "no result yet" in refused["detail"])


# ── approval for good, and tracebacks ───────────────────────────────────────────────────────────


@tool
def explode(fuse: int) -> str:
    """Explode."""
    raise RuntimeError(f"boom after {fuse}")


def test_a_tool_is_approved_for_the_conversation_and_that_is_withdrawn() -> None:
    search = ("search_conversations", {"words": "tea"})
    model = Scripted(
        calling(search, search), saying("Found."), calling(search), saying("Once more."),
        calling(search),
    )  # fmt: skip
    with ScriptedServer(model) as stage:
        talk = stage.ask.begun()
        stage.step(talk, "Look it up.", tools=True)
        first, _ = stage.calls(talk)
        path = f"conversations/{talk}/calls"
        body = {"action": "run", "always": True, "digest": first["digest"], "by": "Ann"}
        for wrong in ({"action": "deny"}, {"arguments": {"words": "rum"}}):
            refused = stage.ask.refused("POST", f"{path}/{first['id']}", {**body, **wrong})
            assert (422, "$.always") == (refused["status"], refused["path"])
        stage.ask.good("POST", f"{path}/{first['id']}", body)
        stage.over(talk)
        assert "Found." == stage.ask.texts(talk)[-1]  # the other call of the tool did not wait
        allowed = stage.ask.good("GET", path)["allowed"]
        assert [("search_conversations", "Ann")] == [(one["tool"], one["by"]) for one in allowed]
        stage.step(talk, "Again.", tools=True)
        assert "Once more." == stage.ask.texts(talk)[-1]
        said = [
            part["state"]["metadata"]["approval"]
            for message in stage.messages(talk)
            if message["role"] == "tool"
            for part in message["content"]
        ]
        assert ["always", "approve", "approve"] == [one["verdict"] for one in said]
        assert {"Ann"} == {one["by"] for one in said}
        assert {allowed[0]["at"]} == {one["at"] for one in said}
        stage.ask.good("DELETE", f"conversations/{talk}/allowed/search_conversations")
        assert [] == stage.ask.good("GET", path)["allowed"]
        stage.step(talk, "And again.", tools=True)
        assert 1 == len(stage.calls(talk))


def test_a_developer_sees_where_a_tool_failed_and_no_model_does() -> None:
    model = Scripted(calling(("explode", {"fuse": 3})), saying("Oh."), saying("Oh again."))
    with ScriptedServer(model, toolset=(ApprovalRequired(explode),)) as stage:
        talk = stage.ask.begun()
        stage.step(talk, "Go.", tools=True)
        (call,) = stage.calls(talk)
        body = {"action": "run", "digest": call["digest"]}
        stage.ask.good("POST", f"conversations/{talk}/calls/{call['id']}", body)
        stage.over(talk)
        path = f"conversations/{talk}/calls"
        result = result_of(stage, talk)
        seen = stage.ask.good("GET", f"{path}/{result['id']}/traceback")["traceback"]
        assert "boom after 3" in seen
        assert "in explode" in seen
        assert "in explode" not in str(stage.messages(talk))
        unknown = stage.ask.good("GET", f"{path}/{call['id']}/traceback")
        assert {"traceback": None} == unknown
        gone = stage.ask.refused("GET", f"conversations/nobody/calls/{result['id']}/traceback")
        assert 404 == gone["status"]
        elsewhere = f"conversations/{stage.ask.begun('Hi.')}/calls/{result['id']}/traceback"
        assert {"traceback": None} == stage.ask.good("GET", elsewhere)
        fork = stage.ask.good("POST", f"conversations/{talk}/fork", {})["id"]
        inherited = f"conversations/{fork}/calls/{result['id']}/traceback"
        assert seen == stage.ask.good("GET", inherited)["traceback"]
        rerun(stage, talk, result["id"], arguments={"fuse": 4})
        stage.ask.good("POST", f"conversations/{talk}/erase", {"message": result["messageID"]})
        assert {"traceback": None} == stage.ask.good("GET", f"{path}/{result['id']}/traceback")
        fresh = result_of(stage, talk)["id"]
        assert "boom after 4" in stage.ask.good("GET", f"{path}/{fresh}/traceback")["traceback"]
        stage.app.service.steps._tracebacks.update({str(n): ("", "old") for n in range(200)})
        rerun(stage, talk, fresh, arguments={"fuse": 5}, loop=False)
        assert 200 == len(stage.app.service.steps._tracebacks)


def test_a_fork_is_compared_by_what_each_side_said_after_they_parted() -> None:
    """Both count on from the same place, and mean other messages by it."""
    with ScriptedServer(Scripted()) as stage:
        parent = stage.store.create([user("one"), user("two")])
        fork = parent.fork()
        for text in ("three", "four"):
            parent.append(user(text))
        fork.append(user("drei"))
        child = fork.fork()
        path = f"conversations/{parent.id}/diff"
        for other, said in ((fork, ["drei"]), (child, ["drei"])):
            found = stage.ask.good("GET", path, params={"other": other.id})
            assert ["three", "four"] == [one["message"]["content"] for one in found["removed"]]
            assert said == [one["message"]["content"] for one in found["added"]]
        stranger = stage.store.create([user("one")])
        found = stage.ask.good("GET", path, params={"other": stranger.id})
        assert (4, 1) == (found["removedCount"], found["addedCount"])
