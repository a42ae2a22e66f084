"""Conversations and their items: any conversation of the store, as OpenAI's clients see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.conversation.scripted import Scripted, calling, saying
from tests.server.openai.door import FUNCTION, HOSTED, Door

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture(scope="module")
def door() -> Generator[Door]:
    with Door(Scripted()) as found:
        yield found


def say(door: Door, *answers: Any) -> None:  # noqa: ANN401 - events
    actor: Any = door.app.service.models.get()
    actor._answers = list(answers)


def user_item(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


def test_a_conversation_is_created_described_and_deleted(door: Door) -> None:
    made = door.good("POST", "conversations", {"metadata": {"a": "b"}, "items": [user_item("Hi")]})
    path = f"conversations/{made['id']}"
    assert {"a": "b"} == made["metadata"]
    assert made == door.good("GET", path)
    assert {"c": "d"} == door.good("POST", path, {"metadata": {"c": "d"}})["metadata"]
    assert {} == door.good("POST", path, {"metadata": None})["metadata"]
    assert ["Hi"] == door.ask.texts(made["id"])
    gone = door.good("DELETE", path)
    assert {"id": made["id"], "object": "conversation.deleted", "deleted": True} == gone
    assert 404 == door.refused(path, None, "GET")[0]


def test_an_empty_body_creates_an_empty_conversation(door: Door) -> None:
    made = door.ask.post("/v1/conversations").json()
    assert ({}, "conversation") == (made["metadata"], made["object"])
    listed = door.good("GET", f"conversations/{made['id']}/items")
    assert ([], False, None) == (listed["data"], listed["has_more"], listed["first_id"])


def test_metadata_has_limits(door: Door) -> None:
    body = {"metadata": {"a": "x" * 513}}
    assert (400, "metadata[...]", "invalid_type") == door.refused("conversations", body)


def test_items_are_appended_and_listed_page_by_page(door: Door) -> None:
    name = door.good("POST", "conversations", {})["id"]
    path = f"conversations/{name}/items"
    added = door.good("POST", path, {"items": [user_item(f"{n}") for n in range(5)]})
    assert 5 == len(added["data"])
    first = door.good("GET", path, limit=2)
    assert ["4", "3"] == [item["content"][0]["text"] for item in first["data"]]
    assert first["has_more"]
    rest = door.good("GET", path, after=first["last_id"], limit=100)
    assert ["2", "1", "0"] == [item["content"][0]["text"] for item in rest["data"]]
    assert not rest["has_more"]
    upwards = door.good("GET", path, order="asc", limit=1)["data"]
    assert "0" == upwards[0]["content"][0]["text"]
    assert upwards[0] == door.good("GET", f"{path}/{upwards[0]['id']}")
    assert 400 == door.ask.get(f"/v1/{path}", params={"after": "msg_x"}).status_code
    assert 404 == door.refused(f"{path}/msg_x", None, "GET")[0]


def test_items_of_a_response_have_the_same_ids_in_its_conversation(door: Door) -> None:
    say(door, calling(("calculate", {"expression": "2*3"}), text="Well."), saying("6."))
    name = door.good("POST", "conversations", {})["id"]
    response = door.create("Two by three?", conversation=name, tools=[HOSTED])
    listed = door.good("GET", f"conversations/{name}/items", order="asc")["data"]
    assert response["output"] == listed[1:]
    for item in listed:
        assert item == door.good("GET", f"conversations/{name}/items/{item['id']}")


def test_a_deleted_item_is_out_of_what_the_next_response_is_given(door: Door) -> None:
    say(door, saying("One."), calling(("weather", {}), text="Let me look."), saying("Three."))
    name = door.good("POST", "conversations", {})["id"]
    path = f"conversations/{name}/items"
    one = door.create("Hi", conversation=name)["output"][0]
    door.good("DELETE", f"{path}/{one['id']}")
    two = door.create("Weather?", conversation=name, tools=[FUNCTION])
    text, call = two["output"]
    door.good("DELETE", f"{path}/{call['id']}")
    shown = door.good("GET", path, order="asc")["data"]
    assert ["Hi", "Weather?", "Let me look."] == [item["content"][0]["text"] for item in shown]
    door.create("Well?", conversation=name)
    asked = [message["content"] for message in door.asked()]
    assert ["Hi", "Weather?", "Let me look.", "Well?"] == asked
    assert text["content"] == shown[-1]["content"]
    assert 404 == door.refused(f"{path}/{one['id']}", None, "DELETE")[0]
    assert 404 == door.refused(f"{path}/msg_x", None, "DELETE")[0]


def test_a_call_of_the_server_is_deleted_with_its_output(door: Door) -> None:
    say(door, calling(("calculate", {"expression": "2*3"})), saying("6."))
    name = door.good("POST", "conversations", {})["id"]
    call, _ = door.create("Two by three?", conversation=name, tools=[HOSTED])["output"]
    door.good("DELETE", f"conversations/{name}/items/{call['id']}")
    roles = [message["role"] for message in door.messages(name)]
    assert ["user", "assistant"] == roles


def test_outputs_may_be_added_as_items(door: Door) -> None:
    say(door, calling(("weather", {})), saying("Fine."))
    name = door.good("POST", "conversations", {})["id"]
    (call,) = door.create("Weather?", conversation=name, tools=[FUNCTION])["output"]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sun"}
    added = door.good("POST", f"conversations/{name}/items", {"items": [output]})["data"]
    assert ["function_call_output"] == [item["type"] for item in added]
    door.good("DELETE", f"conversations/{name}/items/{added[0]['id']}")
    door.good("POST", f"conversations/{name}/items", {"items": [output]})
    assert "Fine." == door.create([], conversation=name)["output"][0]["content"][0]["text"]
    wrong = {"items": [{**output, "call_id": "c9"}]}
    wanted = (400, "items[0].call_id", "call_not_found")
    assert wanted == door.refused(f"conversations/{name}/items", wrong)


def test_images_and_files_come_back_as_they_were_sent(door: Door) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"}
    file = {
        "type": "input_file",
        "filename": "a.pdf",
        "file_data": "data:application/pdf;base64,aGk=",
    }
    text = {"type": "input_text", "text": "Look."}
    item = {"role": "user", "content": [text, image, file]}
    made = door.good("POST", "conversations", {"items": [item]})
    (shown,) = door.good("GET", f"conversations/{made['id']}/items")["data"]
    assert [text, image, file] == shown["content"]
