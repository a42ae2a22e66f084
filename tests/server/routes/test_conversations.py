"""Conversations over HTTP: listed, begun, described, forgotten."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

import palaver
from palaver.stores.transfer import export_conversation, import_conversation
from tests.conversation.scripted import Scripted
from tests.server.scripted_server import ScriptedServer

if TYPE_CHECKING:
    from pathlib import Path

    from palaver.stores import Store
    from palaver.stores.records import Listing
    from tests.server.client import APIClient


def test_a_conversation_is_begun_and_found(ask: APIClient, store: Store) -> None:
    answer = ask.post(
        "/api/conversations",
        json={
            "id": "tea",
            "title": "Tea",
            "tags": ["a"],
            "messages": [{"role": "user", "content": "Tea,   or \n coffee?"}],
        },
    )
    assert (201, '"0"') == (answer.status_code, answer.headers["etag"])
    head = answer.json()
    assert ("tea", "Tea", ["a"], 0, 1) == (
        head["id"],
        head["title"],
        head["tags"],
        head["version"],
        head["length"],
    )
    assert "Tea, or coffee?" == head["preview"]
    assert {"stepping": False, "waiting": 0} == head["state"]
    assert (None, None) == (head["parent"], head["origin"])
    assert head == ask.good("GET", "conversations/tea")
    assert "Tea" == store.get("tea").title


def test_an_id_that_is_taken_is_refused(ask: APIClient) -> None:
    ask.begun(id="rum")
    assert 409 == ask.refused("POST", "conversations", {"id": "rum"})["status"]


@pytest.mark.parametrize("name", ["a/b", "a\\b", ".", "..", "a\nb", "\x7f"])
def test_an_id_that_no_path_can_name_is_refused(ask: APIClient, store: Store, name: str) -> None:
    """Nobody could open or delete such a conversation here."""
    before = len(list(store.each()))
    problem = ask.refused("POST", "conversations", {"id": name})
    assert (422, "$.id", "path-segment") == (problem["status"], problem["path"], problem["rule"])
    tea = ask.begun()
    assert 422 == ask.refused("POST", f"conversations/{tea}/fork", {"id": name})["status"]
    sent = ask.post("/api/import", params={"id": name}, content=b'[{"role":"user","content":"x"}]')
    assert (422, "$.id") == (sent.status_code, sent.json()["path"])
    assert before + 1 == len(list(store.each()))


@pytest.mark.parametrize("name", ["caf\u00e9 \u4e2d", "a;b", "50%", "a?b#c", "%2f", "..."])
def test_an_id_that_a_path_can_name_is_taken(ask: APIClient, name: str) -> None:
    assert name == ask.good("POST", "conversations", {"id": name})["id"]
    assert name == ask.good("GET", f"conversations/{quote(name, safe='')}")["id"]


def test_beginning_again_with_a_key_is_harmless(ask: APIClient) -> None:
    headers = {"idempotency-key": "k1"}
    first = ask.good("POST", "conversations", {"id": "milk"}, headers=headers)
    assert first == ask.good("POST", "conversations", {"id": "milk"}, headers=headers)


def test_beginning_again_with_a_key_and_no_id_is_harmless_too(ask: APIClient) -> None:
    headers = {"idempotency-key": "k2"}
    for where in ("conversations", f"conversations/{ask.begun('x')}/fork"):
        made = {ask.good("POST", where, {}, headers=headers)["id"] for _ in range(3)}
        other = ask.good("POST", where, {}, headers={"idempotency-key": "k3"})["id"]
        assert 1 == len(made)
        assert other not in made
        assert len({ask.good("POST", where, {})["id"] for _ in range(3)}) == 3


def test_what_is_wrong_with_a_message_is_told_with_its_place(ask: APIClient) -> None:
    wrong = {"messages": [{"role": "user", "content": "a"}, {"role": "user"}]}
    problem = ask.refused("POST", "conversations", wrong)
    assert (422, "$.messages[1].content") == (problem["status"], problem["path"])


def test_they_are_listed_page_by_page(ask: APIClient) -> None:
    names = [
        ask.begun(f"{number}", tags=["all", "odd"] if number % 2 else ["all"])
        for number in range(5)
    ]
    first = ask.good("GET", "conversations", params={"limit": 2, "tag": "all"})
    assert names[:2:-1] == [head["id"] for head in first["items"]]
    rest = ask.good("GET", "conversations", params={"tag": "all", "after": first["next"]})
    assert (names[2::-1], None) == ([head["id"] for head in rest["items"]], rest["next"])
    odd = ask.good("GET", "conversations", params={"tag": "odd"})
    assert [names[3], names[1]] == [head["id"] for head in odd["items"]]
    assert 422 == ask.refused("GET", "conversations", params={"after": "x"})["status"]


def test_a_title_is_changed_and_the_tags_stay(ask: APIClient) -> None:
    name = ask.begun(title="old", tags=["a", "b"])
    assert ["a", "b"] == ask.good("PATCH", f"conversations/{name}", {"title": "new"})["tags"]
    assert "new" == ask.good("PATCH", f"conversations/{name}", {"tags": []})["title"]
    assert [] == ask.good("GET", f"conversations/{name}")["tags"]
    assert ask.good("PATCH", f"conversations/{name}", {"title": None})["title"] is None


def test_one_is_forgotten_unless_others_read_it(ask: APIClient) -> None:
    name = ask.begun("hi")
    fork = ask.good("POST", f"conversations/{name}/fork", {})["id"]
    problem = ask.refused("DELETE", f"conversations/{name}")
    assert 409 == problem["status"]
    assert fork in problem["detail"]
    ask.good("DELETE", f"conversations/{fork}")
    ask.good("DELETE", f"conversations/{name}")
    assert 404 == ask.refused("GET", f"conversations/{name}")["status"]
    assert 404 == ask.refused("DELETE", f"conversations/{name}")["status"]


def test_a_preview_is_of_what_is_in_view(ask: APIClient, store: Store) -> None:
    history = store.create([palaver.user("first"), palaver.user("last")])
    history.truncate(keep_first=1)
    assert "first" == ask.good("GET", f"conversations/{history.id}")["preview"]


def test_the_server_says_what_it_has(ask: APIClient) -> None:
    info = ask.good("GET", "info")
    assert ("memory", False) == (info["store"], info["readOnly"])
    assert ["openai-chat", "openai-responses", "anthropic", "gemini"] == info["formats"]
    assert info["models"][0]["isDefault"] is True
    assert {"name", "description", "schema"} == info["tools"][0].keys()
    assert info["limits"]["body"] > 1_000_000
    assert info["cursor"].isdecimal()


def test_requests_are_counted(ask: APIClient) -> None:
    def count(text: str, what: str) -> int:
        return int(next(line for line in text.splitlines() if line.startswith(what)).split()[-1])

    ask.get("/api/nothing")
    missing, all_of_them = (
        'palaver_requests_total{method="GET",status="404"}',
        "palaver_request_seconds_count",
    )
    before = ask.get("/api/metrics").text
    ask.get("/api/nothing")
    after = ask.get("/api/metrics").text
    assert count(before, missing) + 1 == count(after, missing)
    assert count(before, all_of_them) + 2 == count(after, all_of_them)
    assert "palaver_streams 0" in after


def test_a_conversation_has_an_owner_that_lists_and_searches_go_by(
    ask: APIClient, store: Store
) -> None:
    said = [{"role": "user", "content": "Tea?"}]
    for name, owner in (("hers", "anna"), ("his", "jim"), ("ale", None)):
        made = ask.good("POST", "conversations", {"id": name, "owner": owner, "messages": said})
        assert owner == made["owner"]
    listed = ask.good("GET", "conversations?owner=anna")["items"]
    assert [("hers", "anna")] == [(head["id"], head["owner"]) for head in listed]
    found = ask.good("GET", "search?q=tea&owner=jim")["items"]
    assert ["his"] == [hit["conversation"] for hit in found]
    assert "anna" == ask.good("POST", "conversations/hers/fork", {})["owner"]
    assert "jim" == ask.good("POST", "conversations/hers/fork", {"owner": "jim"})["owner"]
    assert "max" == ask.good("PATCH", "conversations/hers", {"owner": "max"})["owner"]
    assert "max" == ask.good("PATCH", "conversations/hers", {"title": "Tea"})["owner"]
    assert ask.good("PATCH", "conversations/hers", {"owner": None})["owner"] is None
    assert store.head("hers").owner is None


def test_a_wrong_owner_is_refused(ask: APIClient) -> None:
    assert 422 == ask.post("/api/conversations", json={"owner": ""}).status_code
    assert 422 == ask.post("/api/conversations", json={"owner": "a\nb"}).status_code
    assert 400 == ask.get("/api/conversations?owner=").status_code


def test_the_list_bears_that_conversations_are_deleted_and_imported_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        palaver.open(tmp_path / "chat.db") as store,
        palaver.open(tmp_path / "chat.db") as other,
        ScriptedServer(Scripted(), store=store) as server,
    ):
        for name in ("rum", "tea"):
            store.create([palaver.user("Hot?")], id=name)
        store.get("tea").fork(id="fork").append(palaver.user("Or cold?"))
        listed = store.list

        def names() -> list[str]:
            found = server.ask.good("GET", "conversations")["items"]
            return sorted(f"{head['id']}: {head['preview']}" for head in found)

        assert ["fork: Or cold?", "rum: Hot?", "tea: Hot?"] == names()
        file = io.BytesIO()
        export_conversation(other, "fork", file)
        other.delete("fork")
        file.seek(0)
        import_conversation(other, file)
        assert ["fork: Or cold?", "rum: Hot?", "tea: Hot?"] == names()

        def outpaced(**limits: Any) -> Listing:  # noqa: ANN401 - what `list` takes
            page = listed(**limits)
            other.delete("rum")
            return page

        monkeypatch.setattr(store, "list", outpaced)
        assert ["fork: Or cold?", "tea: Hot?"] == names()


def test_conversations_are_found_by_a_few_letters_of_their_names(
    ask: APIClient, store: Store
) -> None:
    for title in ("Weather report", "Report to the board", "A preprint", "Rain and deep snow"):
        store.create(title=title)
    untitled = store.create([palaver.user("Repair the kettle\n\nplease")])
    nameless = store.create()

    def names(text: str) -> list[str | None]:
        found = ask.good("GET", "names", params={"q": text})["items"]
        return [item["name"] for item in found]

    expected = ["Repair the kettle", "Report to the board", "Weather report", "A preprint"]
    assert [*expected, "Rain and deep snow"] == names("ReP")
    assert ["Report to the board"] == names("rprt brd")
    assert [] == names("xyz")
    assert [nameless.id, untitled.id] == [
        item["id"] for item in ask.good("GET", "names", params={"limit": 2})["items"]
    ]
    ask.good("PATCH", f"conversations/{untitled.id}", {"title": "Zinnia"})
    store.delete(nameless.id)
    assert ["Zinnia"] == names("znn")


def test_conversations_are_pinned_archived_and_thrown_away(ask: APIClient, store: Store) -> None:
    for name in ("one", "two", "three", "four"):
        store.create([palaver.user("Tea?")], id=f"state-{name}", title=name, tags=["state", name])

    def listed(**query: str | bool) -> set[str]:
        found = ask.good("GET", "conversations", params={"tag": "state", **query})["items"]
        return {item["title"] for item in found}

    head = ask.good("PATCH", "conversations/state-one", {"pinned": True})
    assert ("active", True, ["state", "one"]) == (head["status"], head["pinned"], head["tags"])
    ask.good("PATCH", "conversations/state-two", {"status": "archived"})
    head = ask.good("PATCH", "conversations/state-three", {"status": "trashed"})
    assert ("trashed", False) == (head["status"], head["pinned"])
    assert {"one", "four"} == listed()
    assert {"one"} == listed(pinned=True)
    assert {"four"} == listed(pinned=False)
    assert {"two"} == listed(status="archived")
    assert {"three"} == listed(status="trashed")
    assert {"one", "two", "three", "four"} == listed(status="all")
    # the tags that a person gives do not touch the status, and the other way round
    head = ask.good("PATCH", "conversations/state-two", {"tags": ["state"], "pinned": True})
    assert ("archived", True, ["state"]) == (head["status"], head["pinned"], head["tags"])
    assert "three" not in [
        one["name"] for one in ask.good("GET", "names", params={"q": "three"})["items"]
    ]
    # what is taken out of the trash is as it was
    head = ask.good("PATCH", "conversations/state-three", {"status": "active"})
    assert ("active", ["state", "three"]) == (head["status"], head["tags"])
    assert 422 == ask.refused("PATCH", "conversations/state-one", {"status": "lost"})["status"]
    # a fork is in use, wherever its parent is
    made = ask.good("POST", "conversations/state-two/fork", {})
    assert ("active", False, ["state"]) == (made["status"], made["pinned"], made["tags"])


@pytest.mark.parametrize("tag", ["palaver.trashed", "palaver.archived", "palaver.pinned"])
def test_no_tag_changes_the_status(ask: APIClient, tag: str) -> None:
    talk = ask.begun("a")
    for method, path in (("POST", "conversations"), ("PATCH", f"conversations/{talk}")):
        problem = ask.refused(method, path, {"tags": ["mine", tag]})
        assert (422, "$.tags[1]") == (problem["status"], problem["path"])
    head = ask.good("GET", f"conversations/{talk}")
    assert ("active", False) == (head["status"], head["pinned"])


def test_the_trash_is_emptied_only_when_asked(ask: APIClient, store: Store) -> None:
    for name in ("gone", "parent", "stays"):
        store.create([palaver.user("Trashy tea?")], id=f"trash-{name}")
    ask.good("POST", "conversations/trash-parent/fork", {"id": "trash-fork"})
    ask.good("POST", "conversations/trash-stays/fork", {"id": "trash-alive"})
    for name in ("trash-gone", "trash-parent", "trash-fork", "trash-stays"):
        ask.good("PATCH", f"conversations/{name}", {"status": "trashed"})
    hits = ask.good("GET", "search", params={"q": "trashy", "conversation": "trash-gone"})["items"]
    assert ["trashed"] == [hit["status"] for hit in hits]
    # the parent goes after its fork; one with a fork that is in use stays in the trash
    assert {"deleted": 3, "kept": ["trash-stays"]} == ask.good("DELETE", "trash")
    assert "trash-gone" not in store
    assert "trash-fork" not in store
    assert "trashed" == store.head("trash-stays").status
    assert {"deleted": 0, "kept": ["trash-stays"]} == ask.good("DELETE", "trash")
