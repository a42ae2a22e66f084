"""What the compliance cases of Open Responses ask for, under the cases' own names, over HTTP.

Its cases of WebSockets (`websocket-…`) are in `test_socket.py`. Those of `file-search` and
`offline-web-search`, which were optional once, need tools that are OpenAI's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from tests.conversation.scripted import Scripted, calling, saying
from tests.server.openai.door import FUNCTION, Door, check_response, text_of

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture(scope="module")
def door() -> Generator[Door]:
    with Door(Scripted()) as found:
        yield found


def say(door: Door, *answers: Any) -> None:  # noqa: ANN401 - events
    actor: Any = door.app.service.models.get()
    actor._answers = list(answers)


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"type": "message", "role": role, "content": content, **more}


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}
FILE = {
    "type": "input_file",
    "filename": "a.pdf",
    "file_data": "data:application/pdf;base64,aGk=",
}
TEXT = {"type": "input_text", "text": "What is it?"}
CASES: dict[str, list[dict[str, Any]]] = {
    "basic-response": [message("user", "Greet me.")],
    "system-prompt": [message("system", "Rhyme."), message("user", "Greet me.")],
    "image-input": [message("user", [TEXT, IMAGE])],
    "file-input": [message("user", [TEXT, FILE])],
    "multi-turn": [
        message("user", "I am Ann."),
        message("assistant", "Hello, Ann."),
        message("user", "Who am I?"),
    ],
    "assistant-phase": [
        message("assistant", "Let me see.", phase="commentary"),
        message("assistant", "Four.", phase="final_answer"),
        message("user", "Again?"),
    ],
}


@pytest.mark.parametrize("case", CASES)
def test_input_is_answered(door: Door, case: str) -> None:
    say(door, saying("Yes."))
    response = door.create(CASES[case])
    assert ("completed", "Yes.") == (response["status"], text_of(response))


def test_streaming_response(door: Door) -> None:
    say(door, saying("1 ", "2 ", "3"))
    assert "completed" == door.stream([message("user", "Count.")])[-1]["response"]["status"]


def test_tool_calling_whole_and_streaming(door: Door) -> None:
    say(door, *[calling(("weather", {"city": "Rome"}))] * 2)
    (call,) = door.create("Weather?", tools=[FUNCTION])["output"]
    assert "function_call" == call["type"]
    events = door.stream("Weather?", tools=[FUNCTION])
    arguments = "response.function_call_arguments"
    assert {f"{arguments}.delta", f"{arguments}.done"} <= {event["type"] for event in events}
    items = [(each["type"], each["item"]["type"]) for each in events if "item" in each]
    assert [("added", "function_call"), ("done", "function_call")] == [
        (event.removeprefix("response.output_item."), item) for event, item in items
    ]


def test_function_call_roundtrip(door: Door) -> None:
    say(door, calling(("weather", {"city": "Rome"})), saying("Warm."))
    choice = {"type": "function", "name": "weather"}
    first = door.create("Weather?", tools=[FUNCTION], tool_choice=choice)
    call_id = first["output"][0]["call_id"]
    output = {"type": "function_call_output", "call_id": call_id, "output": "warm"}
    second = door.create([output], previous_response_id=first["id"])
    assert ("completed", "Warm.") == (second["status"], text_of(second))


def test_previous_response_id(door: Door) -> None:
    say(door, saying("Noted."), saying("Kiwi."))
    first = door.create("The word is kiwi.")
    second = door.create("The word?", previous_response_id=first["id"])
    assert "completed" == second["status"]


def test_compact_response_and_compact_missing_model(door: Door) -> None:
    say(door, saying("They meet on Monday."))
    body = {"model": "stage:actor", "prompt_cache_key": "k", "input": [message("user", "Monday.")]}
    found = door.good("POST", "responses/compact", body)
    assert ["compaction"] == [item["type"] for item in found["output"]]
    assert 400 == door.refused("responses/compact", {"input": "x"})[0]


def test_response_output_phase_schema(door: Door) -> None:
    say(door, saying("Yes."))
    response = door.create("Hi")
    (message,) = response["output"]
    for phase in ("commentary", "final_answer"):
        check_response({**response, "output": [{**message, "phase": phase}]})
    with pytest.raises(ValidationError):
        check_response({**response, "output": [{**message, "phase": "thinking"}]})


@pytest.mark.parametrize("kind", ["file_search", "web_search"])
def test_optional_tools_are_refused_by_name(door: Door, kind: str) -> None:
    body = {"input": "Look it up.", "tools": [{"type": kind}]}
    assert (400, "tools[0].type", "invalid_type") == door.refused("responses", body)
