"""Clients from npm, as they are, against `palaver serve`: `openai` and the AI SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest

import palaver
from compat.serving import MODELS, TALK, TOKEN, Serving, run_node, server, serving
from palaver.testing.servers import Answer

__all__ = ["server", "serving"]  # fixtures, found here by pytest

ROME = {"name": "Rome", "degrees": 21}


def run(serving: Serving, client: str, case: str, model: str, **more: Any) -> Any:
    """What a case of a client's script finds."""
    given = {"case": case, "url": serving.url, "key": TOKEN, "model": model, **more}
    return json.loads(run_node(f"{client}.mjs", json.dumps(given)))


def edit_and_go_on(serving: Serving, client: str, model: str, last: str) -> None:
    """Change what was said last, and take another turn after a response."""
    talk = max(serving.new_conversations())  # ids grow with time
    assert TALK == serving.said(talk)
    serving.history(talk).replace(7, {"role": "assistant", "content": "Cold in Oslo."})
    serving.then(model, "Wear a coat.")
    assert "Wear a coat." == run(serving, client, "after", model, id=last)
    assert "Cold in Oslo." in serving.sent(model)
    assert "Lovely in Oslo." not in serving.sent(model)


@pytest.mark.parametrize("model", MODELS)
def test_openai_turns_with_a_tool_go_on_from_an_edit(serving: Serving, model: str) -> None:
    serving.calls_weather(model, "Rome", "Oslo")
    found = run(serving, "openai", "turns", model)
    assert ("Lovely in Rome.", "Lovely in Oslo.") == (found["first"], found["last"])
    assert found["last"] == found["streamed"]
    assert {"city": "Oslo"} == json.loads(found["written"])
    edit_and_go_on(serving, "openai", model, found["id"])


@pytest.mark.parametrize("model", MODELS)
def test_openai_answers_are_parsed_and_chat_runs_tools(serving: Serving, model: str) -> None:
    serving.then(model, *[json.dumps(ROME)] * 3)
    assert [ROME] * 3 == run(serving, "openai", "parse", model)
    serving.calls_weather(model, "Rome", "Oslo")
    assert ["Lovely in Rome.", "Lovely in Oslo."] == run(serving, "openai", "chat", model)


@pytest.mark.parametrize("model", MODELS)
def test_openai_that_sends_everything_again(serving: Serving, model: str) -> None:
    serving.calls_weather(model, "Rome")
    serving.then(model, "You are welcome.")
    assert "You are welcome." == run(serving, "openai", "everything_again", model)
    assert not serving.new_conversations()
    for word in ("Rome?", "Rome: 21 degrees", "Lovely in Rome.", "Thanks"):
        assert word in serving.sent(model)


@pytest.mark.parametrize("model", MODELS)
def test_openai_runs_tools_by_itself(serving: Serving, model: str) -> None:
    serving.calls_weather(model, "Rome", "Oslo")
    assert ["Lovely in Rome.", "Lovely in Oslo."] == run(serving, "openai", "runner", model)
    assert "Oslo: 21 degrees" in serving.sent(model)


def test_openai_background_resumed_and_cancelled(serving: Serving) -> None:
    model = MODELS[0]
    endless = Answer("No end. " * 10_000, delay=0.05)
    serving.then(model, Answer("One, two, three.", piece=2), endless)
    found = run(serving, "openai", "background", model)
    assert list(range(len(found["numbers"]))) == found["numbers"]
    assert found["numbers"][3:] == found["again"]
    assert ("One, two, three.", "cancelled") == (found["whole"], found["status"])


def test_openai_conversations_and_refusals(serving: Serving) -> None:
    model = MODELS[0]
    serving.then(model, "Hello Ada.", "Hello Bob.")
    found = run(serving, "openai", "conversation", model)
    assert ("Hello Ada.", "Hello Bob.", 3) == (found["first"], found["last"], found["items"])
    assert found["models"]
    assert "Call me Ada." not in serving.sent(model)
    assert [
        ["BadRequestError", 400, "top_logprobs"],
        ["BadRequestError", 400, "colour"],
        ["NotFoundError", 404, "previous_response_id"],
    ] == run(serving, "openai", "refusals", model)


@pytest.mark.parametrize("model", MODELS)
def test_ai_sdk_turns_with_a_tool_go_on_from_an_edit(serving: Serving, model: str) -> None:
    serving.calls_weather(model, "Rome", "Oslo")
    found = run(serving, "ai", "turns", model)
    assert ("Lovely in Rome.", "Lovely in Oslo.") == (found["first"], found["last"])
    edit_and_go_on(serving, "ai", model, found["id"])


@pytest.mark.parametrize("model", MODELS)
def test_ai_sdk_answers_in_a_type_and_sends_everything_again(serving: Serving, model: str) -> None:
    serving.then(model, *[json.dumps(ROME)] * 2)
    assert [ROME] * 2 == run(serving, "ai", "parse", model)
    serving.calls_weather(model, *["Rome", "Oslo"] * 3)
    texts = ["Lovely in Rome.", "Lovely in Oslo."]
    assert [texts] * 3 == run(serving, "ai", "everything_again", model)
    for word in ("Rome?", "Rome: 21 degrees", "Lovely in Rome.", "Oslo?", "Oslo: 21 degrees"):
        assert word in serving.sent(model)


def test_ai_sdk_goes_on_in_a_conversation_that_was_begun_elsewhere(serving: Serving) -> None:
    model = MODELS[2]
    talk = serving.store.create([palaver.user("Call me Ada."), palaver.assistant("Hello Ada.")])
    serving.then(model, "You are Ada.")
    found = run(serving, "ai", "conversation", model, id=talk.id, prompts=["Who am I?"])
    assert ["You are Ada."] == found
    assert "Call me Ada." in serving.sent(model)
    assert ("assistant", "You are Ada.") == serving.said(talk.id)[-1]
    assert ["AI_APICallError", 400, "max_tool_calls"] == run(serving, "ai", "refusal", model)
