"""Conversations as files over HTTP, conversions, search, proof; and the page's own files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import palaver

if TYPE_CHECKING:
    from palaver.stores import Store
    from tests.server.client import APIClient

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Tea?"}]}
SESSION = "\n".join(
    json.dumps(line)
    for line in (
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
    )
)


def exported(ask: APIClient, name: str, form: str) -> bytes:
    answer = ask.get(f"/api/conversations/{name}/export", params={"format": form})
    assert 200 == answer.status_code, answer.text
    assert "application/octet-stream" == answer.headers["content-type"]
    ending = "jsonl" if form == "jsonl" else "json"
    assert f'attachment; filename="{name}.{ending}"' == answer.headers["content-disposition"]
    return answer.content


@pytest.mark.parametrize("form", ["palaver-2", "jsonl", "palaver-1"])
def test_what_goes_out_comes_in_again(ask: APIClient, store: Store, form: str) -> None:
    history = store.create([palaver.user("a"), palaver.user("b")], title="Tea")
    history.truncate(keep_last=1)
    data = exported(ask, history.id, form)
    again = ask.good("POST", "import", params={"id": f"{history.id}-{form}"}, content=data)
    (one,) = again["conversations"]
    assert (f"{history.id}-{form}", 1) == (one["id"], one["length"])
    assert ["b"] == ask.texts(one["id"])
    if form != "palaver-1":
        ask.good("POST", f"conversations/{one['id']}/undo")
        assert ["a", "b"] == ask.texts(one["id"])
        taken = ask.post("/api/import", content=data)
        assert 409 == taken.status_code


def test_a_conversation_goes_out_as_a_request(ask: APIClient) -> None:
    name = ask.begun("Tea?")
    said = {"role": "user", "content": "Tea?"}
    assert {"messages": [said]} == json.loads(exported(ask, name, "openai-chat"))
    (message,) = json.loads(exported(ask, name, "messages"))
    assert said.items() <= message.items()
    for form in ("openai-responses", "anthropic", "gemini"):
        assert b"Tea?" in exported(ask, name, form)
    for form, ending in (("markdown", "md"), ("html", "html"), ("gemini", "json")):
        answer = ask.get(f"/api/conversations/{name}/export", params={"format": form})
        # a browser must never show it as a page of this server
        assert "application/octet-stream" == answer.headers["content-type"]
        assert f'.{ending}"' in answer.headers["content-disposition"]
        assert answer.headers["content-disposition"].startswith("attachment")
    assert 400 == ask.refused("GET", f"conversations/{name}/export?format=tape")["status"]
    assert 404 == ask.refused("GET", "conversations/none/export")["status"]
    assert 404 == ask.refused("GET", "conversations/none/export?format=anthropic")["status"]


def test_a_transcript_of_another_tool_comes_in(ask: APIClient) -> None:
    found = ask.good("POST", "import", content=SESSION.encode(), params={"id": "session"})
    assert ("messages", ["session"]) == (
        found["from"],
        [one["id"] for one in found["conversations"]],
    )
    assert ["one", "two"] == ask.texts("session")
    again = {"params": {"id": "session"}, "content": SESSION.encode()}
    assert 409 == ask.refused("POST", "import", **again)["status"]
    missing = ask.good(
        "POST", "import", content=SESSION.encode(), params={"id": "session", "missing": "true"}
    )
    assert ([], ["session"]) == (missing["conversations"], missing["known"])
    named = ask.good(
        "POST", "import", content=json.dumps(CHAT).encode(), params={"format": "openai-chat"}
    )
    assert "openai-chat" == named["from"]


@pytest.mark.parametrize(
    ("data", "query"),
    [
        (b"nothing that anybody knows", {}),
        (b"[]", {"format": "messages"}),
        (b"{}", {"format": "tape"}),
        (b"{}", {"format": "opencode-folder"}),
        (b"", {}),
    ],
)
def test_what_is_no_transcript_is_refused(
    ask: APIClient, data: bytes, query: dict[str, str]
) -> None:
    answer = ask.post("/api/import", content=data, params=query)
    assert 422 == answer.status_code


def test_one_id_is_for_one_conversation(ask: APIClient) -> None:
    lines = "\n".join(
        json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]})
        for text in ("one", "two")
    )
    query = {"format": "requests", "id": "both"}
    answer = ask.post("/api/import", content=lines.encode(), params=query)
    assert (422, "$.id") == (answer.status_code, answer.json()["path"])


def test_a_document_is_converted(ask: APIClient) -> None:
    made = ask.good("POST", "convert", {"to": "anthropic", "document": CHAT})
    assert [{"role": "user", "content": "Tea?"}] == made["document"]["messages"]
    assert ("openai-chat", ["lost"]) == (made["from"], [note["action"] for note in made["notes"]])
    back = ask.good("POST", "convert", {"to": "palaver", "document": SESSION})
    assert ["one", "two"] == [message["content"] for message in back["document"]]
    strict = ask.refused("POST", "convert", {"to": "gemini", "document": CHAT, "strict": True})
    assert (422, "$.document") == (strict["status"], strict["path"])
    assert 422 == ask.refused("POST", "convert", {"to": "gemini", "document": {}})["status"]
    none: dict[str, Any] = {"to": "gemini", "document": [], "from": "palaver"}
    assert "$.document" == ask.refused("POST", "convert", none)["path"]


def test_a_snapshot_is_converted_as_it_is_now(ask: APIClient) -> None:
    name = ask.begun("a", "b")
    ask.good("POST", f"conversations/{name}/operations", {"operation": {"operation": "CLEAR"}})
    ask.good("POST", f"conversations/{name}/undo")
    document = json.loads(exported(ask, name, "palaver-2"))
    made = ask.good("POST", "convert", {"to": "openai-chat", "document": document})
    assert ("palaver-2", 2) == (made["from"], len(made["document"]["messages"]))
    assert "versions" in {note["rule"] for note in made["notes"]}


def test_words_are_found(ask: APIClient, store: Store) -> None:
    history = store.create([palaver.user("a rare wombat"), palaver.user("b")], title="Zoo")
    other = ask.begun("another wombat")
    (hit,) = ask.good("GET", "search", params={"q": "rare wombat"})["items"]
    assert (history.id, "Zoo", 0) == (hit["conversation"], hit["title"], hit["index"])
    assert "a rare wombat" == hit["message"]["content"]
    history.truncate(keep_last=1)
    found = ask.good("GET", "search", params={"q": "wombat", "conversation": history.id})["items"]
    last = history.version - 1
    assert [(None, last, 0)] == [(one["index"], one["seenIn"], one["seenAt"]) for one in found]
    assert 2 == len(ask.good("GET", "search", params={"q": "wombat"})["items"])
    assert 1 == len(ask.good("GET", "search", params={"q": "wombat", "limit": 1})["items"])
    assert other
    assert 400 == ask.refused("GET", "search")["status"]


def test_a_search_for_too_many_words_is_refused(ask: APIClient) -> None:
    words = " ".join(f"{number:x}" for number in range(257))
    refused = ask.refused("GET", "search", params={"q": words})
    assert 400 <= refused["status"] < 500
    assert "257 words; a search takes at most 256" in refused["detail"]


def test_a_conversation_is_proved_whole(ask: APIClient) -> None:
    name = ask.begun("a")
    proof = {"problems": [], "notes": [], "whole": True}
    assert proof == ask.good("GET", f"conversations/{name}/verify")
    assert 404 == ask.refused("GET", "conversations/none/verify")["status"]


# ── the description, and the page ───────────────────────────────────────────────────────────────


def test_the_api_is_described(ask: APIClient) -> None:
    answer = ask.get("/api/openapi.json")
    assert "application/json" == answer.headers["content-type"]
    described = answer.json()
    assert described["openapi"].startswith("3.1")
    operation = described["paths"]["/api/conversations/{conversation}/messages"]["post"]
    assert {"201", "404", "409", "413", "422"} <= operation["responses"].keys()
    assert {"application/problem+json"} == operation["responses"]["409"]["content"].keys()
    assert [] == described["paths"]["/api/health"]["get"]["security"]
    names = [one["operationId"] for way in described["paths"].values() for one in way.values()]
    assert len(set(names)) == len(names)
