"""`openai` from PyPI, as it is, against `palaver serve`."""

from __future__ import annotations

import json
from typing import Any, Final, Literal

import pytest
from openai import BadRequestError, NotFoundError, OpenAI
from pydantic import BaseModel

from compat.serving import LOCAL, MODELS, TALK, TOKEN, Serving, server, serving
from palaver.testing.servers import Answer

__all__ = ["server", "serving"]  # fixtures, found here by pytest

TOOL: Final[Any] = {
    "type": "function",
    "name": "weather",
    "description": "Tell the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
CHAT_TOOL: Final[Any] = {
    "type": "function",
    "function": {name: value for name, value in TOOL.items() if name != "type"},
}


class City(BaseModel):
    name: str
    degrees: int


class Choice(BaseModel):
    """An answer that even a small model brings to an end."""

    city: Literal["Rome", "Oslo"]
    warm: bool


def connect(serving: Serving) -> OpenAI:
    """A client that gives up at the first failure."""
    return OpenAI(base_url=serving.url, api_key=TOKEN, max_retries=0, timeout=60)


def weather(arguments: str) -> str:
    """The client's own tool."""
    return f"{json.loads(arguments)['city']}: 21 degrees"


def outputs(response: Any) -> list[Any]:
    """What that tool says to the calls of a response."""
    return [
        {
            "type": "function_call_output",
            "call_id": item.call_id,
            "output": weather(item.arguments),
        }
        for item in response.output
        if item.type == "function_call"
    ]


def results(message: Any) -> list[Any]:
    """The same for the calls of a chat completion's message."""
    return [
        {
            "role": "tool",
            "tool_call_id": call.id,
            "content": weather(call.function.arguments),
        }
        for call in message.tool_calls
    ]


@pytest.mark.parametrize("model", MODELS)
def test_turns_with_a_tool_go_on_from_an_edit(serving: Serving, model: str) -> None:
    client = connect(serving)
    serving.calls_weather(model, "Rome", "Oslo")
    asked: dict[str, Any] = {"model": model, "tools": [TOOL]}
    first = client.responses.create(input="Rome?", **asked)
    told = client.responses.create(input=outputs(first), previous_response_id=first.id, **asked)
    assert "Lovely in Rome." == told.output_text
    with client.responses.stream(input="Oslo?", previous_response_id=told.id, **asked) as stream:
        arguments = [
            event.snapshot
            for event in stream
            if event.type == "response.function_call_arguments.delta"
        ]
        second = stream.get_final_response()
    assert arguments
    with client.responses.stream(
        input=outputs(second), previous_response_id=second.id, **asked
    ) as stream:
        pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
        last = stream.get_final_response()
    assert "Lovely in Oslo." == "".join(pieces) == last.output_text
    assert TALK == serving.said()
    serving.history().replace(7, {"role": "assistant", "content": "Cold in Oslo."})
    serving.then(model, "Wear a coat.")
    after = client.responses.create(input="And now?", previous_response_id=last.id, **asked)
    assert "Wear a coat." == after.output_text
    assert "Cold in Oslo." in serving.sent(model)
    assert "Lovely in Oslo." not in serving.sent(model)


@pytest.mark.parametrize("model", MODELS)
def test_a_client_that_sends_everything_again(serving: Serving, model: str) -> None:
    client = connect(serving)
    serving.calls_weather(model, "Rome", "Oslo")
    asked: dict[str, Any] = {
        "model": model,
        "tools": [TOOL],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    items: list[Any] = [{"role": "user", "content": "Rome?"}]
    response: Any = None
    for stage in range(4):
        if stage % 2:
            with client.responses.stream(input=items, **asked) as stream:
                response = stream.get_final_response()
        else:
            response = client.responses.parse(input=items, **asked)
        items += [*response.output, *outputs(response)]
        if not outputs(response):
            items.append({"role": "user", "content": "Oslo?"})
    assert "Lovely in Oslo." == response.output_text
    for word in ("Rome?", "21 degrees", "Lovely in Rome.", "Oslo?"):
        assert word in serving.sent(model)
    assert not serving.new_conversations()


@pytest.mark.parametrize("model", MODELS)
def test_an_answer_is_parsed_into_a_type(serving: Serving, model: str) -> None:
    client = connect(serving)
    answer = '{"name": "Rome", "degrees": 21}'
    serving.then(model, answer, answer, answer)
    rome = City(name="Rome", degrees=21)
    parsed = client.responses.parse(model=model, input="Rome?", text_format=City)
    assert rome == parsed.output_parsed
    with client.responses.stream(model=model, input="Rome?", text_format=City) as stream:
        assert rome == stream.get_final_response().output_parsed
    chat = client.chat.completions.parse(
        model=model, messages=[{"role": "user", "content": "Rome?"}], response_format=City
    )
    assert rome == chat.choices[0].message.parsed


def test_the_embedded_model_answers_in_a_type(serving: Serving) -> None:
    client = connect(serving)
    parsed = client.responses.parse(model=LOCAL, input="A warm city?", text_format=Choice)
    assert isinstance(parsed.output_parsed, Choice)
    with client.responses.stream(
        model=LOCAL, input="Another one?", previous_response_id=parsed.id, text_format=Choice
    ) as stream:
        assert isinstance(stream.get_final_response().output_parsed, Choice)
    chat = client.chat.completions.create(
        model=LOCAL, messages=[{"role": "user", "content": "Hi"}], max_tokens=5
    )
    assert chat.choices[0].message.content
    assert ["user", "assistant"] * 2 == [role for role, _ in serving.said()]


def test_a_response_in_the_background_is_polled_resumed_and_cancelled(serving: Serving) -> None:
    client, model = connect(serving), MODELS[0]
    endless = Answer("No end. " * 10_000, delay=0.05)
    serving.then(model, Answer("One, two, three.", piece=2), endless)
    begun = client.responses.create(model=model, input="Count", background=True, stream=True)
    events = list(begun)
    (created,) = (event for event in events if event.type == "response.created")
    name = created.response.id
    for after in range(len(events)):
        rest = list(client.responses.retrieve(name, stream=True, starting_after=after))
        assert events[after + 1 :] == rest
    assert "One, two, three." == client.responses.retrieve(name).output_text
    with client.responses.stream(response_id=name, starting_after=3) as resumed:
        assert "One, two, three." == resumed.get_final_response().output_text
    running = client.responses.create(model=model, input="Again", background=True)
    assert running.status in ("queued", "in_progress")
    followed = client.responses.retrieve(running.id, stream=True)
    next(event for event in followed if event.type == "response.output_text.delta")
    followed.close()
    assert "cancelled" == client.responses.cancel(running.id).status
    assert "cancelled" == client.responses.retrieve(running.id).status


def test_a_conversation_and_its_items(serving: Serving) -> None:
    client, model = connect(serving), MODELS[1]
    talk = client.conversations.create(
        items=[{"type": "message", "role": "user", "content": "Call me Ada."}],
        metadata={"topic": "names"},
    )
    serving.then(model, "Hello Ada.", "Hello Bob.")
    response = client.responses.create(model=model, input="Hi", conversation=talk.id)
    assert "Hello Ada." == response.output_text
    assert response.conversation is not None
    assert talk.id == response.conversation.id
    items = list(client.conversations.items.list(talk.id, order="asc", limit=2))
    assert 3 == len(items), "pages are followed"
    given = list(client.responses.input_items.list(response.id, order="asc"))
    assert [item.id for item in items[:2]] == [item.id for item in given]
    client.conversations.items.delete(str(items[0].id), conversation_id=talk.id)
    client.conversations.items.create(
        talk.id, items=[{"type": "message", "role": "user", "content": "I am Bob."}]
    )
    client.responses.create(model=model, input="Hi", conversation=talk.id)
    assert "I am Bob." in serving.sent(model)
    assert "Call me Ada." not in serving.sent(model)
    assert {"topic": "people"} == client.conversations.update(
        talk.id, metadata={"topic": "people"}
    ).metadata
    assert client.conversations.delete(talk.id).deleted
    with pytest.raises(NotFoundError):
        client.conversations.retrieve(talk.id)


@pytest.mark.parametrize("model", MODELS)
def test_responses_over_a_websocket(serving: Serving, model: str) -> None:
    answer = Answer("Warm.")
    serving.then(model, answer, answer)
    with connect(serving).responses.connect() as connection:
        previous: Any = None
        for text in ("Rome?", "Sure?"):
            connection.response.create(
                model=model, input=text, store=False, previous_response_id=previous
            )
            events: list[Any] = []
            for event in connection:
                events.append(event)
                if event.type in ("response.completed", "error"):
                    break
            assert "response.completed" == events[-1].type
            assert "Warm." == events[-1].response.output_text
            previous = events[-1].response.id
    assert all(each in str(serving.sent(model)) for each in ("Rome?", "Warm.", "Sure?"))


@pytest.mark.parametrize("model", MODELS)
def test_chat_completions_with_a_tool(serving: Serving, model: str) -> None:
    client = connect(serving)
    serving.calls_weather(model, "Rome", "Oslo")
    messages: list[Any] = [{"role": "user", "content": "Rome?"}]
    asked: dict[str, Any] = {"model": model, "tools": [CHAT_TOOL]}
    first = client.chat.completions.create(messages=messages, **asked).choices[0].message
    messages += [first, *results(first)]
    told = client.chat.completions.create(messages=messages, **asked).choices[0].message
    assert "Lovely in Rome." == told.content
    messages += [told, {"role": "user", "content": "Oslo?"}]
    with client.chat.completions.stream(messages=messages, **asked) as stream:
        second = stream.get_final_completion().choices[0].message
    messages += [second, *results(second)]
    chunks = client.chat.completions.create(
        messages=messages, stream=True, store=True, stream_options={"include_usage": True}, **asked
    )
    found = list(chunks)
    text = "".join(each.choices[0].delta.content or "" for each in found if each.choices)
    assert "Lovely in Oslo." == text
    assert found[-1].usage
    assert "Lovely in Oslo." == serving.said()[-1][1]


def test_refusals_are_the_clients_own_errors(serving: Serving) -> None:
    client, model = connect(serving), MODELS[0]
    with pytest.raises(BadRequestError) as refused:
        client.responses.create(model=model, input="Hi", top_logprobs=3)
    assert "top_logprobs" == refused.value.param
    with pytest.raises(BadRequestError) as refused:
        client.responses.create(model=model, input="Hi", extra_body={"colour": "red"})
    assert "colour" == refused.value.param
    with pytest.raises(NotFoundError) as missing:
        client.responses.create(model=model, input="Hi", previous_response_id="resp_nothing")
    assert "previous_response_id" == missing.value.param


def test_models_are_listed_and_found(serving: Serving) -> None:
    client = connect(serving)
    names = [each.id for each in client.models.list()]
    assert names
    for name in names:
        assert name == client.models.retrieve(name).id
