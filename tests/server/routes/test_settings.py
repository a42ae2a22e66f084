"""Settings of a conversation through HTTP: stored with it, and what its steps use."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

from palaver.conversation import model as named_model
from palaver.server.services.tools import ServerTools
from palaver.stores.transfer import export_conversation
from palaver.testing.servers import Answer, ProviderServer
from tests.conversation.scripted import Scripted, calling, saying
from tests.server.scripted_server import ScriptedServer

if TYPE_CHECKING:
    from palaver.stores import Store
    from tests.server.client import APIClient

NONE: dict[str, Any] = {"options": {}, "tools": None}


def put(ask: APIClient, talk: str, **settings: object) -> Any:  # noqa: ANN401 - JSON
    """Change settings; what the conversation has then."""
    return ask.good("PATCH", f"conversations/{talk}", {"settings": settings})["settings"]


def test_what_is_set_stays_and_makes_no_version(ask: APIClient) -> None:
    talk = ask.begun("Tea?")
    assert NONE == ask.good("GET", f"conversations/{talk}")["settings"]
    options = {"temperature": 0.3, "max_tokens": 400, "effort": "low"}
    assert {"options": options, "tools": None} == put(ask, talk, options=options)
    whole = {"options": options, "tools": ["calculate"]}
    assert whole == put(ask, talk, tools=["calculate"])
    head = ask.good("GET", f"conversations/{talk}")
    assert (whole, 0) == (head["settings"], head["version"])
    titled = ask.good("PATCH", f"conversations/{talk}", {"title": "Tea"})
    assert ("Tea", whole) == (titled["title"], titled["settings"])
    assert {"options": {}, "tools": ["calculate"]} == put(ask, talk, options={})
    assert NONE == put(ask, talk, tools=None)
    (listed,) = [one for one in ask.good("GET", "conversations")["items"] if one["id"] == talk]
    assert "settings" not in listed  # nobody needs those of a whole list


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"options": {"temperature": "hot"}}, "$.settings.options.temperature"),
        ({"options": {"top_p": 7}}, "$.settings.options.top_p"),
        ({"options": {"max_tokens": 0}}, "$.settings.options.max_tokens"),
        ({"options": {"effort": "heroic"}}, "$.settings.options.effort"),
        ({"options": {"temprature": 1}}, "$.settings.options.temprature"),
        ({"options": {"tool_choice": "required"}}, "$.settings.options.tool_choice"),
        ({"options": {"extra": {"tools": []}}}, "$.settings.options.extra"),
        ({"options": None}, "$.settings.options"),
        ({"tools": ["calculate", "no_such_tool"]}, "$.settings.tools[1]"),
        ({"tools": "all"}, "$.settings.tools"),
        ({"colour": "red"}, "$.settings.colour"),
    ],
)
def test_a_wrong_setting_is_refused_where_it_is_given(
    ask: APIClient, settings: object, path: str
) -> None:
    talk = ask.begun("Tea?")
    body = {"title": "Tea", "settings": settings}
    refused = ask.refused("PATCH", f"conversations/{talk}", body)
    assert (422, path) == (refused["status"], refused["path"])
    head = ask.good("GET", f"conversations/{talk}")
    assert (None, NONE) == (head["title"], head["settings"])


def test_settings_are_not_changed_on_another_version(ask: APIClient) -> None:
    talk = ask.begun("Tea?")
    body = {"settings": {"options": {"temperature": 1}}}
    path = f"conversations/{talk}"
    assert 412 == ask.refused("PATCH", path, body, headers={"If-Match": '"7"'})["status"]
    assert NONE == ask.good("GET", path)["settings"]


def test_the_next_step_uses_them_and_the_request_shows_it() -> None:
    """To the letter: what is shown is what the server on the other side got."""
    with ProviderServer("openai-chat", [Answer("Yes."), Answer("No."), Answer("So.")]) as server:
        model = named_model("openai:gpt-6", base_url=server.url)
        with ScriptedServer(model) as stage:
            talk = stage.ask.begun("Tea?")
            put(
                stage.ask, talk, options={"temperature": 0.5, "effort": "high"}, tools=["calculate"]
            )
            shown = stage.ask.good("GET", f"conversations/{talk}/request")["request"]
            stage.step(talk)
            sent = dict(server.requests[0].body)
            del sent["stream"], sent["stream_options"]
            assert shown == sent
            assert (0.5, "high") == (sent["temperature"], sent["reasoning_effort"])
            assert ["calculate"] == [one["function"]["name"] for one in sent["tools"]]
            stage.step(talk, "Rum?", tools=False, options={"temperature": 1})
            own = server.requests[1].body  # what a request says itself goes first
            assert (1, "high") == (own["temperature"], own["reasoning_effort"])
            assert "tools" not in own
            put(stage.ask, talk, options={}, tools=False)
            stage.step(talk, "Gin?")
            assert not {"tools", "temperature"} & server.requests[2].body.keys()


def test_after_an_approval_the_model_has_the_tools_of_the_conversation() -> None:
    search = ("search_conversations", {"words": "tea"})
    actor = Scripted(calling(search), saying("Done."), calling(search), saying("Done."))
    with ScriptedServer(actor) as stage:
        for tools, offered in [(["search_conversations"], 1), (None, 4)]:
            talk = stage.ask.begun("Look it up.")
            put(stage.ask, talk, tools=tools)
            stage.step(talk, tools=["search_conversations"])
            (call,) = stage.calls(talk)
            path = f"conversations/{talk}/calls/{call['id']}"
            stage.ask.good("POST", path, {"action": "run", "digest": call["digest"]})
            stage.over(talk)
            assert offered == len(actor.asked[-1].tools)


def test_a_tool_that_the_server_no_longer_has_is_not_offered() -> None:
    actor = Scripted(saying("Yes."))
    with ScriptedServer(actor) as stage:
        talk = stage.ask.begun("Tea?")
        put(stage.ask, talk, tools=["calculate", "current_time"])
        service = stage.app.service
        service.tools = ServerTools(one for one in service.tools if one.spec.name != "calculate")
        stage.step(talk)
        assert ["current_time"] == [one.name for one in actor.asked[0].tools]


def test_a_fork_and_an_export_take_them_along(ask: APIClient) -> None:
    talk = ask.begun("Tea?")
    settings = {"options": {"temperature": 0.1}, "tools": False}
    put(ask, talk, **settings)
    fork = ask.good("POST", f"conversations/{talk}/fork", {}, headers={"Idempotency-Key": "f1"})
    assert settings == ask.good("GET", f"conversations/{fork['id']}")["settings"]
    put(ask, fork["id"], tools=True)
    again = ask.good("POST", f"conversations/{talk}/fork", {}, headers={"Idempotency-Key": "f1"})
    assert fork["id"] == again["id"]
    assert ask.good("GET", f"conversations/{fork['id']}")["settings"]["tools"] is True
    file = io.BytesIO()
    export_conversation(ask.app.service.store, talk, file)
    ask.good("DELETE", f"conversations/{fork['id']}")
    ask.good("DELETE", f"conversations/{talk}")
    sent = {"content-type": "application/octet-stream"}
    answer = ask.post("/api/import", content=file.getvalue(), headers=sent)
    assert answer.is_success, answer.text
    assert settings == ask.good("GET", f"conversations/{talk}")["settings"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("options", b"{"),
        ("options", b"[]"),
        ("options", b'{"temperature": "hot"}'),
        ("options", b'{"extra": {"tools": [{"type": "mcp", "server_url": "https://a.example"}]}}'),
        ("tools", b"5"),
        ("tools", b"\xff"),
    ],
)
def test_settings_that_a_file_brought_and_nobody_could_set_are_refused(
    ask: APIClient, store: Store, name: str, value: bytes
) -> None:
    talk = ask.begun("Tea?")
    store.put_record(talk, "settings", name, value)
    for path in ("", "/request"):
        problem = ask.refused("GET", f"conversations/{talk}{path}")
        assert (503, "StoreDamaged") == (problem["status"], problem["name"])
        assert "PATCH" in problem["detail"]
    assert NONE == put(ask, talk, **NONE)
    assert NONE == ask.good("GET", f"conversations/{talk}")["settings"]
