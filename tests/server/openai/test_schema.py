"""Whatever a model says, every object and event fits the SDK's types, live and repeated."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palaver.messages import new_id
from palaver.server.openai.events import EventWriter, LiveEvents
from palaver.server.openai.ids import (
    ItemId,
    ResponseId,
    new_conversation_id,
    new_record_name,
    read_item_id,
    read_response_id,
)
from palaver.wire.reply import CallDelta, CallReady, CallStarted
from tests.conversation.scripted import Scripted, calling, saying
from tests.profiles import steps
from tests.server.openai.door import FUNCTION, HOSTED, Door, check_response

if TYPE_CHECKING:
    from collections.abc import Generator

CUSTOM = {"type": "custom", "name": "patch"}
TOOLS = [FUNCTION, HOSTED, CUSTOM]
texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
thoughts = st.lists(texts, max_size=2)


@st.composite
def answers(draw: st.DrawFn) -> list[Any]:
    """Reasoning, texts and calls, in pieces; the last ones of a kind that ends the response."""
    events: list[Any] = [
        {"choices": [{"delta": {"reasoning_content": piece}}]} for piece in draw(thoughts)
    ]
    events += [{"choices": [{"delta": {"content": piece}}]} for piece in draw(thoughts)]
    calls: list[tuple[str, Any]] = [
        draw(
            st.sampled_from(
                [
                    ("calculate", {"expression": "1+1"}),
                    ("calculate", {"expression": "nonsense"}),
                    ("weather", {"city": "Rome"}),
                    ("weather", ""),
                    ("patch", {"freeform_input": "+x"}),
                ]
            )
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    if calls:
        return [*events, *calling(*calls)]
    if not events:
        return saying(draw(texts))
    finish = draw(st.sampled_from(["stop", "length", "content_filter"]))
    return [*events, *saying(finish=finish, used=draw(st.sampled_from([None, (9, 4)])))]


@pytest.fixture(scope="module")
def door() -> Generator[Door]:
    with Door(Scripted()) as found:
        yield found


@settings(max_examples=steps(15, in_faults=400), deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(st.lists(answers(), min_size=1, max_size=3), st.booleans())
def test_streams_and_objects_fit_and_a_repeated_stream_is_the_same(
    door: Door,
    script: list[Any],
    encrypted: bool,  # noqa: FBT001 - drawn
) -> None:
    actor: Any = door.app.service.models.get()
    actor._answers = [*script, saying("The end."), saying("The end.")]
    include = {"include": ["reasoning.encrypted_content"]} if encrypted else {}
    events = door.stream("Go", tools=TOOLS, **include)
    assert list(range(len(events))) == [event["sequence_number"] for event in events]
    response = events[-1]["response"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in done if item["type"] != "mcp_call"] == [
        item["type"] for item in response["output"] if item["type"] != "mcp_call"
    ]
    assert response == door.good("GET", f"responses/{response['id']}")
    door.forget()
    assert response == door.good("GET", f"responses/{response['id']}")
    again = door.again(response["id"])
    assert [without_encrypted(event) for event in events] == [
        without_encrypted(event) for event in again
    ]
    shown = door.good("GET", f"responses/{response['id']}/input_items")["data"]
    assert ["message"] == [item["type"] for item in shown]


def without_encrypted(event: dict[str, Any]) -> dict[str, Any]:
    """An event without what is only known of an item when the answer is over."""
    item = event.get("item", {})
    return {**event, "item": {**item, "encrypted_content": None}} if item else event


@given(st.text(min_size=1, max_size=60), st.integers(0, 2**40), st.integers(0, 999))
def test_ids_say_where_a_thing_is_stored(name: str, version: int, index: int) -> None:
    for conversation in (name, new_conversation_id(), new_id()):
        response = ResponseId(conversation, new_record_name(version))
        assert response == read_response_id(str(response))
        for message in (name, new_id()):
            item = ItemId("fc", conversation, message, index)
            assert item == read_item_id(str(item))


@given(st.text(max_size=80))
def test_other_texts_are_no_ids(text: str) -> None:
    for wrong in (text, f"resp_{text}", f"msg_{text}"):
        for found in (read_response_id(wrong), read_item_id(wrong)):
            assert found is None or str(found) == wrong


def test_a_response_of_every_kind_is_json_that_the_types_accept(door: Door) -> None:
    actor: Any = door.app.service.models.get()
    actor._answers = [saying("Yes.")]
    found = door.create("Hi")
    check_response(json.loads(json.dumps(found)))


def test_calls_that_arrive_side_by_side_are_written_one_after_the_other() -> None:
    events: list[dict[str, Any]] = []
    live = LiveEvents(EventWriter(events.append), "talk", custom=["patch"])
    live.begin(new_id())
    for delta in (
        CallStarted(0, "a", "weather"),
        CallStarted(1, "b", "clock"),
        CallStarted(2, "c", "patch"),
        CallDelta(1, '{"zone": '),
        CallDelta(0, '{"city": "Rome"}'),
        CallDelta(2, '{"freeform_input": "+x"}'),
        CallDelta(1, '"UTC"}'),
        CallReady(1, "b", "clock", ""),
        CallReady(0, "a", "weather", ""),
        CallReady(2, "c", "patch", ""),
    ):
        live.add(delta)
    indexes = [event["output_index"] for event in events]
    assert sorted(indexes) == indexes
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert ['{"city": "Rome"}', '{"zone": "UTC"}'] == [item["arguments"] for item in done[:2]]
    assert "+x" == done[2]["input"]
