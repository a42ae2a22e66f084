"""Messages over HTTP: stretches of them, queries, and more of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import palaver
from palaver.messages import Speaker, TextPart, new_id, parse_message
from palaver.stores import StoredHistory

if TYPE_CHECKING:
    from palaver.stores import Store
    from tests.server.client import APIClient


@pytest.fixture
def many(store: Store) -> str:
    return store.create([palaver.user(str(number)) for number in range(700)]).id


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, range(650, 700)),
        ({"start": 0, "stop": 3}, range(3)),
        ({"start": 10}, range(10, 510)),
        ({"start": -3}, range(697, 700)),
        ({"start": -3, "stop": -1}, range(697, 699)),
        ({"stop": 20}, range(20)),
        ({"stop": 200}, range(150, 200)),
        ({"start": 9, "stop": 3}, range(9, 9)),
        ({"start": 700}, range(700, 700)),
        ({"start": -9999, "stop": 9999}, range(500)),
        ({"start": 10**30}, range(700, 700)),
    ],
)
def test_a_stretch_is_given(
    ask: APIClient, many: str, query: dict[str, int], expected: range
) -> None:
    found = ask.good("GET", f"conversations/{many}/messages", params=query)
    assert found == ask.good("GET", f"conversations/{many}/messages", params=query)  # at hand now
    assert (700, 0, expected.start) == (found["length"], found["version"], found["start"])
    assert list(expected) == [item["index"] for item in found["items"]]
    assert [str(number) for number in expected] == [
        item["message"]["content"] for item in found["items"]
    ]
    assert [f"msg-{number + 1}" for number in expected] == [
        item["handle"] for item in found["items"]
    ]


def test_an_earlier_version_can_be_read(ask: APIClient, store: Store) -> None:
    history = store.create([palaver.user("a"), palaver.user("b")])
    history.truncate(keep_last=1)
    assert ["b"] == ask.texts(history.id)
    assert ["a", "b"] == ask.texts(history.id, version=0)
    assert 422 == ask.refused("GET", f"conversations/{history.id}/messages?version=9")["status"]


def test_handles_and_marks_stay_with_their_messages(ask: APIClient, store: Store) -> None:
    history = store.create([palaver.user(text) for text in "abc"])
    history.mark(1, "keep")
    history.mark(1, "also")
    history.insert(0, [palaver.system("s")])
    found = ask.good("GET", f"conversations/{history.id}/messages")["items"]
    assert ["msg-4", "msg-1", "msg-2", "msg-3"] == [item["handle"] for item in found]
    assert [[], [], ["also", "keep"], []] == [item["marks"] for item in found]


def test_what_was_said_before_a_session_has_no_handle(ask: APIClient, store: Store) -> None:
    history = store.create([palaver.user("before")])
    history.replace_all([palaver.user("after")], team_task=None)
    history.rewrite([range(1), range(1, 2)], of_log=True)
    found = ask.good("GET", f"conversations/{history.id}/messages")["items"]
    assert [None, "msg-1"] == [item["handle"] for item in found]
    history.truncate(keep_first=1)
    (alone,) = ask.good("GET", f"conversations/{history.id}/messages")["items"]
    assert alone["handle"] is None


def test_tokens_are_counted_when_asked_for(ask: APIClient, many: str) -> None:
    path = f"conversations/{many}/messages"
    counted = ask.good("GET", path, params={"tokens": "true"})["items"]
    assert all(item["tokens"] > 0 for item in counted)
    assert "tokens" not in ask.good("GET", path)["items"][0]


def test_messages_are_added_at_the_end(ask: APIClient) -> None:
    name = ask.begun("a")
    answer = ask.post(
        f"/api/conversations/{name}/messages",
        json={
            "messages": [{"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
        },
    )
    assert (201, '"1"') == (answer.status_code, answer.headers["etag"])
    added = answer.json()
    assert (1, 3) == (added["version"], added["length"])
    assert [(1, "msg-2"), (2, "msg-3")] == [(i["index"], i["handle"]) for i in added["items"]]
    assert ["a", "b", "c"] == ask.texts(name)


def test_adding_again_with_a_key_adds_nothing(ask: APIClient) -> None:
    name = ask.begun()
    said = {"messages": [{"role": "user", "content": "once"}]}
    headers = {"idempotency-key": "k"}
    first = ask.good("POST", f"conversations/{name}/messages", said, headers=headers)
    again = ask.good("POST", f"conversations/{name}/messages", said, headers=headers)
    assert ["once"] == ask.texts(name)
    assert (1, 1) == (again["version"], again["length"])
    assert first["items"] == again["items"]
    nothing = ask.good("POST", f"conversations/{name}/messages", {"messages": []})
    assert (1, []) == (nothing["version"], nothing["items"])
    ask.good("POST", f"conversations/{name}/operations", {"operation": {"operation": "CLEAR"}})
    gone = ask.good("POST", f"conversations/{name}/messages", said, headers=headers)
    assert (2, []) == (gone["version"], gone["items"])
    none = ask.good(
        "POST", f"conversations/{name}/messages", {"messages": []}, headers={"idempotency-key": "x"}
    )
    assert [] == none["items"]


def test_every_part_comes_back_as_it_was(ask: APIClient) -> None:
    name, part, session, message = ask.begun(), new_id(), new_id(), new_id()
    content = [
        {"type": "text", "id": part, "sessionID": session, "messageID": message, "text": "<b>&"},
        {"type": "hologram", "beam": {"deep": [1, None]}},
    ]
    said = {"role": "assistant", "content": content, "id": message, "timestamp": 5}
    ask.good("POST", f"conversations/{name}/messages", {"messages": [said]})
    (item,) = ask.good("GET", f"conversations/{name}/messages")["items"]
    assert said == item["message"]
    assert isinstance(parse_message(item["message"]).parts[0], TextPart)


@pytest.mark.parametrize(
    ("stamp", "status"),
    [
        ('"0"', 201),
        ("0", 201),
        (" * ", 201),
        ('"7", "0"', 201),
        ('"7","0",', 201),
        ('"a,b", W/"7" , "0"', 201),
        ('"7"', 412),
        ('"7", "8"', 412),
        ('W/"0"', 412),
        ('W/"0", "7"', 412),
        ('"00"', 412),
        ('""', 412),
        ('"abc"', 412),
        ('"99999999999999999999"', 412),
        ("x", 422),
        ("", 422),
        (", ,", 422),
        ('"0', 422),
        ('w/"0"', 422),
        ('*, "0"', 422),
        ('"0" "1"', 422),
        ("-1", 422),
    ],
)
def test_an_addition_may_name_its_version(ask: APIClient, stamp: str, status: int) -> None:
    """RFC 9110, 13.1.1: any of a list, `*` for whatever is there, and a weak tag never matches."""
    name = ask.begun("a")
    said = {"messages": [{"role": "user", "content": "b"}]}
    headers = {"if-match": stamp}
    answer = ask.post(f"/api/conversations/{name}/messages", json=said, headers=headers)
    assert status == answer.status_code


def test_messages_are_found_by_what_fits(ask: APIClient, store: Store) -> None:
    ada = Speaker("u1", "Ada", "human")
    history = store.create(
        [
            palaver.user("tea"), palaver.assistant("yes"), palaver.user("milk", speaker=ada),
            palaver.user("tea!"),
        ]
    )  # fmt: skip
    history.mark(2, "keep")
    history.truncate(remove_first=1)

    def found(**asked: object) -> list[tuple[int, str]]:
        answer = ask.good("POST", f"conversations/{history.id}/query", asked)
        return [(item["index"], item["message"]["content"]) for item in answer["items"]]

    assert [(1, "milk"), (2, "tea!")] == found(role="user")
    assert [(2, "tea!")] == found(roles=["user"], text="tea")
    assert [(1, "milk")] == found(mark="keep")
    assert [(1, "milk")] == found(speaker="ada")
    assert [(2, "tea!")] == found(recent=1)
    assert [(1, "milk")] == found(role="user", range=[0, 1])
    assert [] == found(until=1)
    assert [(0, "yes")] == found(limit=1)
    wrong = ask.refused("POST", f"conversations/{history.id}/query", {"range": [3, 1]})
    assert (422, "$.range.start") == (wrong["status"], wrong["path"])


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Somebody else adds a message `before` or `after` the next append, however close to it."""
    when: list[str] = []
    extend = StoredHistory.extend

    def extended(history: StoredHistory, messages: Any, **more: Any) -> Any:  # noqa: ANN401 - as it is
        moment = when.pop() if when else ""
        if moment == "before":
            history.append(palaver.user("somebody else"))
        result = extend(history, messages, **more)
        if moment == "after":
            history.append(palaver.user("somebody else"))
        return result

    monkeypatch.setattr(StoredHistory, "extend", extended)
    return when


@pytest.mark.parametrize(("moment", "index"), [("before", 2), ("after", 1)])
def test_whoever_appends_is_told_of_its_own(
    ask: APIClient, meanwhile: list[str], moment: str, index: int
) -> None:
    name = ask.begun("first")
    meanwhile.append(moment)
    body = {"messages": [{"role": "user", "content": "mine"}]}
    told = ask.good("POST", f"conversations/{name}/messages", body)
    found = [(item["index"], item["message"]["content"]) for item in told["items"]]
    assert [(index, "mine")] == found
    assert (index, index + 1) == (told["version"], told["length"])
    assert "mine" == ask.texts(name)[index]


def test_an_append_for_a_version_that_has_just_passed_is_refused(
    ask: APIClient, meanwhile: list[str]
) -> None:
    name = ask.begun("first")
    stamp = {"if-match": ask.get(f"/api/conversations/{name}").headers["etag"]}
    meanwhile.append("before")
    body = {"messages": [{"role": "user", "content": "mine"}]}
    refused = ask.refused("POST", f"conversations/{name}/messages", body, headers=stamp)
    assert (412, 1) == (refused["status"], refused["version"])
    assert ["first", "somebody else"] == ask.texts(name)


def test_doing_it_again_under_its_key_adds_nothing_though_others_have(
    ask: APIClient, meanwhile: list[str]
) -> None:
    name = ask.begun("first")
    body, key = {"messages": [{"role": "user", "content": "mine"}]}, {"idempotency-key": "k"}
    ask.good("POST", f"conversations/{name}/messages", body, headers=key)
    meanwhile.append("after")
    again = ask.good("POST", f"conversations/{name}/messages", body, headers=key)
    assert [(1, "mine")] == [(item["index"], item["message"]["content"]) for item in again["items"]]
    assert ["first", "mine", "somebody else"] == ask.texts(name)


@pytest.mark.parametrize("number", [2**53, 2**63, 10**30])
def test_a_number_beyond_every_time_and_version_finds_what_there_is(
    ask: APIClient, number: int
) -> None:
    name = ask.begun("one")
    found = [
        len(ask.good("POST", f"conversations/{name}/query", body)["items"])
        for body in ({"since": number}, {"until": number})
    ]
    assert [0, 1] == found
    after = ask.good("GET", f"conversations/{name}/versions", params={"after": number})
    assert [] == after["items"]


def test_a_text_is_found_in_the_whole_conversation(ask: APIClient, store: Store) -> None:
    said = [palaver.user(f"line {number}") for number in range(600)]
    said[7] = palaver.user("The KETTLE is on.")
    history = store.create(said)
    history.append(palaver.assistant("A tea-kettle, then."))
    found = ask.good("GET", f"conversations/{history.id}/find", params={"q": "kettle"})
    assert {"version": 1, "length": 601, "indices": [7, 600]} == found
    older = ask.good("GET", f"conversations/{history.id}/find", params={"q": "KETT", "version": 0})
    assert [7] == older["indices"]
    assert [] == ask.good("GET", f"conversations/{history.id}/find", params={"q": "pot"})["indices"]
    assert 400 == ask.refused("GET", f"conversations/{history.id}/find?q=")["status"]
    assert 404 == ask.refused("GET", "conversations/nobody/find?q=x")["status"]


def test_messages_have_notes_and_scores(ask: APIClient, store: Store) -> None:
    said = [palaver.user("Capital?", id="q"), palaver.assistant("Paris.", id="a")]
    history = store.create(said)
    path = f"conversations/{history.id}/annotations"
    made = ask.good("PUT", path, {"message": 1, "note": "Right, but curt", "score": 4, "by": "lee"})
    assert ("a", 1, "Right, but curt", 4, "lee") == tuple(
        made[key] for key in ("message", "index", "note", "score", "by")
    )
    ask.good("PUT", path, {"message": "q", "score": 2})
    assert [0, 1] == [one["index"] for one in ask.good("GET", path)]
    assert ["a"] == [one["message"] for one in ask.good("GET", path, params={"q": "CURT"})]
    assert ["q"] == [one["message"] for one in ask.good("GET", path, params={"score": 2})]
    found = ask.good("GET", f"conversations/{history.id}/find", params={"q": "curt"})
    assert [1] == found["indices"]
    ask.good("PUT", path, {"message": "a"})
    assert ["q"] == [one["message"] for one in ask.good("GET", path)]
    versions = ask.good("GET", path, params={"message": "a"})
    assert [("", None), ("Right, but curt", 4)] == [(one["note"], one["score"]) for one in versions]
    assert 404 == ask.refused("PUT", path, {"message": "nobody", "note": "x"})["status"]
    assert 422 == ask.refused("PUT", path, {"message": 0, "score": 9})["status"]
    history.execute({"operation": "TRUNCATE", "keepLast": 1})
    assert [None] == [one["index"] for one in ask.good("GET", path)]
