"""Chat completions: everything is in the request, and nothing is stored unless it is asked for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.conversation.scripted import Scripted, calling, saying
from tests.server.openai.door import Door

if TYPE_CHECKING:
    from collections.abc import Generator

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def door() -> Generator[Door]:
    with Door(Scripted()) as found:
        yield found


def complete(door: Door, answer: Any, **body: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    actor: Any = door.app.service.models.get()
    actor._answers = [answer]
    found = door.good("POST", "chat/completions", {"messages": ASKED, **body})
    ChatCompletion.model_validate(found)
    return dict(found)


def test_a_completion_answers_and_stores_nothing(door: Door) -> None:
    before = door.store.newest()
    found = complete(door, saying("Hello."))
    (choice,) = found["choices"]
    assert ("Hello.", "stop") == (choice["message"]["content"], choice["finish_reason"])
    assert 13 == found["usage"]["total_tokens"]
    assert before == door.store.newest()
    assert ASKED == door.asked()


def test_a_stored_completion_is_a_conversation(door: Door) -> None:
    complete(door, saying("Stored."), store=True)
    name = door.store.list().conversations[0].id
    door.over(name)
    assert ["Be brief.", "Hi", "Stored."] == door.ask.texts(name)


def test_calls_are_made_and_their_results_are_sent_back(door: Door) -> None:
    found = complete(door, calling(("weather", {"city": "Rome"})), tools=[WEATHER])
    message = found["choices"][0]["message"]
    assert "tool_calls" == found["choices"][0]["finish_reason"]
    (call,) = message["tool_calls"]
    assert {"name": "weather", "arguments": '{"city": "Rome"}'} == call["function"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "sun"}
    complete(door, saying("Sunny."), messages=[*ASKED, message, result], tools=[WEATHER])
    assert "sun" == door.asked()[-1]["content"]


def test_what_an_sdk_has_read_out_of_an_answer_may_come_back_with_it(door: Door) -> None:
    call = {"name": "weather", "arguments": "{}", "parsed_arguments": {}}
    calls = [{"id": "c1", "type": "function", "function": call, "index": 0}]
    empty = {"annotations": None, "audio": None, "function_call": None, "refusal": None}
    said: dict[str, Any] = {"role": "assistant", "content": "{}", "parsed": {}, **empty}
    said["tool_calls"] = calls
    result = {"role": "tool", "tool_call_id": "c1", "content": "sun"}
    complete(door, saying("Fine."), messages=[*ASKED, said, result], tools=[WEATHER])
    assert "parsed" not in json.dumps(door.asked())
    plain = {**said, "tool_calls": None, "annotations": []}
    complete(door, saying("Fine."), messages=[*ASKED, plain, *ASKED[1:]])
    for odd in ("a call", {"id": "c1", "type": "function", "function": "weather"}):
        messages = [*ASKED, {**said, "tool_calls": [odd]}, result]
        assert 400 == door.refused("chat/completions", {"messages": messages})[0]
    messages = [*ASKED, {**said, "colour": "red"}, result]
    status, param, _ = door.refused("chat/completions", {"messages": messages})
    assert (400, "messages[2].colour") == (status, param)


@pytest.mark.parametrize("answer", [saying("Hel", "lo"), calling(("weather", {"a": 1}))])
def test_a_stream_has_the_same_in_pieces(door: Door, answer: Any) -> None:  # noqa: ANN401 - events
    actor: Any = door.app.service.models.get()
    actor._answers = [answer]
    body = {"messages": ASKED, "stream": True, "stream_options": {"include_usage": True},
            "tools": [WEATHER]}  # fmt: skip
    text = door.ask.post("/v1/chat/completions", json=body).text
    *lines, end = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert "[DONE]" == end
    chunks = [ChatCompletionChunk.model_validate(json.loads(line)) for line in lines]
    assert chunks[-1].usage is not None
    assert "assistant" == chunks[0].choices[0].delta.role
    assert chunks[-2].choices[0].finish_reason in ("stop", "tool_calls")


def test_a_stream_that_fails_says_so(door: Door) -> None:
    actor: Any = door.app.service.models.get()
    actor._answers = [[*saying("Ha")[:1], ConnectionError("down")]]
    text = door.ask.post("/v1/chat/completions", json={"messages": ASKED, "stream": True}).text
    assert '"error"' in text


def test_options_reach_the_model(door: Door) -> None:
    schema = {"type": "object"}
    given = {
        "temperature": 0.1, "max_completion_tokens": 9, "stop": ["x"], "reasoning_effort": "low",
        "tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "parallel_tool_calls": False,
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
    }  # fmt: skip
    complete(door, saying("{}"), **given)
    actor: Any = door.app.service.models.get()
    assert {
        "temperature": 0.1, "max_tokens": 9, "stop": ["x"], "effort": "low", "schema": schema,
        "tool_choice": "weather", "extra": {"parallel_tool_calls": False},
    } == actor.asked[-1].options  # fmt: skip


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"n": 2}, "n"),
        ({"seed": 1}, "seed"),
        ({"logprobs": True}, "logprobs"),
        ({"logit_bias": {"1": 1}}, "logit_bias"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"audio": {}}, "audio"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": []}]}]},
            "messages[0].content[0].text",
        ),
        ({"messages": [{"role": "user", "content": "x", "foo": 1}]}, "messages[0].foo"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": 5}]}]},
            "messages[0].tool_calls[0].id",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_its_name(door: Door, body: Any, param: str) -> None:  # noqa: ANN401 - JSON
    refused = door.refused("chat/completions", {"messages": ASKED, **body})
    assert (400, param) == refused[:2]


def test_a_model_that_fails_is_an_error(door: Door) -> None:
    actor: Any = door.app.service.models.get()
    actor._answers = [[ConnectionError("down")]]
    assert 500 == door.refused("chat/completions", {"messages": ASKED})[0]
