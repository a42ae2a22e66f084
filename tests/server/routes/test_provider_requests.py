"""The exact request that a provider would get, with its repairs, through HTTP."""

from __future__ import annotations

import pytest

from palaver.conversation import model as named_model
from palaver.server import demo
from palaver.testing.providers import check_request
from palaver.testing.servers import Answer, ProviderServer
from tests.conversation.scripted import Scripted, calling
from tests.server.scripted_server import MODEL, ScriptedServer

FORMATS = ("openai-chat", "openai-responses", "anthropic", "gemini")


def test_what_is_shown_is_what_is_sent() -> None:
    """To the letter: the server on the other side got the same."""
    with ProviderServer("openai-chat", [Answer("Yes.")]) as server:
        model = named_model("openai:gpt-6", base_url=server.url)
        with ScriptedServer(model) as stage:
            talk = stage.ask.begun("Tea?")
            path = f"conversations/{talk}/request"
            shown = stage.ask.good("GET", path, params={"tools": "true"})
            assert ("openai-chat", MODEL, []) == (shown["format"], shown["model"], shown["notes"])
            stage.step(talk, tools=True)
            sent = dict(server.requests[0].body)
            assert (True, {"include_usage": True}) == (
                sent.pop("stream"),
                sent.pop("stream_options"),
            )
            assert shown["request"] == sent


@pytest.mark.parametrize("form", FORMATS)
def test_a_broken_history_is_repaired_in_every_format(stage: ScriptedServer, form: str) -> None:
    """CV-03: what the provider would refuse is put right, and told."""
    path = f"conversations/{demo.BROKEN}/request"
    shown = stage.ask.good("GET", path, params={"format": form, "tools": "true"})
    assert (form, None) == (shown["format"], shown["model"])
    rules = {note["rule"] for note in shown["problems"]}
    assert {"call-without-result", "result-without-call"} <= rules
    assert all(note["why"] and note["what"] and note["path"] for note in shown["notes"])
    assert all(note["refused"] for note in shown["problems"])
    assert () == check_request(form, shown["request"])
    assert shown["request"]["tools"]


def test_a_signature_of_another_model_is_left_at_home(stage: ScriptedServer) -> None:
    path = f"conversations/{demo.BROKEN}/request"
    wanted = {"model": "anthropic:claude-sonnet-5-5"}
    shown = stage.ask.good("GET", path, params=wanted)
    assert "foreign-reasoning" in {note["rule"] for note in shown["problems"]}
    assert "claude-sonnet-5-5" == shown["request"]["model"]


def test_a_call_that_waits_keeps_its_place() -> None:
    search = ("search_conversations", {"words": "tea"})
    with ScriptedServer(Scripted(calling(search))) as stage:
        talk = stage.ask.begun("Look it up.")
        stage.step(talk, tools=True)
        shown = stage.ask.good("GET", f"conversations/{talk}/request")
        (note,) = shown["problems"]
        assert "the call is still running" in note["what"]
        assert "tool" == shown["request"]["messages"][-1]["role"]


def test_the_embedded_model_shows_what_its_process_gets() -> None:
    with ScriptedServer(Scripted(), model=None) as stage:
        talk = stage.ask.begun("Tea?")
        path = f"conversations/{talk}/request"
        shown = stage.ask.good("GET", path, params={"tools": "true"})
        assert ("local:smollm2", True) == (shown["model"], "grammar" in shown["request"])


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ({"format": "morse"}, "format"),
        ({"model": "nobody"}, "$.model"),
        ({"model": MODEL, "format": "gemini"}, "$.format"),
        ({"tools": "perhaps"}, "tools"),
    ],
)
def test_a_wrong_question_about_a_request(
    stage: ScriptedServer, query: dict[str, str], path: str
) -> None:
    refused = stage.ask.refused("GET", f"conversations/{demo.TEAM}/request", params=query)
    assert refused["status"] in {400, 422}
    assert path in refused["path"]
    assert 404 == stage.ask.refused("GET", "conversations/none/request")["status"]
