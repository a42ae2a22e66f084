"""Events of ADK as messages, and back; and copies of those that were read before."""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from google.adk.auth.auth_tool import AuthConfig
from google.adk.events.event import Event, NodeInfo
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import palaver
from compat.adk_agent import HERE, content
from palaver.adapters.adk import (
    PalaverSessionService,
    convert,
    event_cache,
    from_event,
    to_event,
)
from palaver.adapters.adk.event_cache import EventCache, copier
from palaver.messages import ToolCallPart, ToolPart, assistant
from palaver.messages.message import Message
from tests.profiles import at_least

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.stores import Store


# ── events and messages ─────────────────────────────────────────────────────────────────────────


CALL = {"function_call": types.FunctionCall(id="c1", name="f", args={"a": [1, None]})}
RESPONSES: list[dict[str, Any]] = [
    {"result": "4"},
    {"result": ""},
    {"result": 4},
    {"output": "4"},
    {"error": "no"},
    {"a": {"b": [1]}},
    {},
]
CONTENTS: list[types.Content | None] = [
    None,
    types.Content(role="model"),
    types.Content(parts=[types.Part(text="no role")]),
    content(),
    content({"text": "Tea?"}, role="user"),
    content({"text": ""}),
    content({"text": "\x00 and \uffff"}),
    content({"text": "hm", "thought": True, "thought_signature": b"\xff\xfe+"}, {"text": "Yes."}),
    content({"text": "a"}, CALL, {**CALL, "thought_signature": b"abc"}),
    content({"function_call": types.FunctionCall(name="f")}),
    content({"function_call": types.FunctionCall(name="f", args={"n": 2**70})}),
    content(CALL, role="user"),
    content({"inline_data": types.Blob(data=b"\xff\xfb\xef\x00", mime_type="image/png")}),
    content({"inline_data": types.Blob(data=b"a", mime_type="x/Y", display_name="n")}),
    content({"inline_data": types.Blob(data=b"", mime_type="image/png")}),
    content({"file_data": types.FileData(file_uri="gs://b/f", mime_type="video/mp4")}),
    content({"executable_code": types.ExecutableCode(code="1", language=types.Language.PYTHON)}),
    content({"text": "x", "video_metadata": types.VideoMetadata(fps=2.0)}),
    *(
        content({"function_response": types.FunctionResponse(id="c1", name="f", response=each)})
        for each in RESPONSES
    ),
    content({"function_response": types.FunctionResponse(name="f", response={"result": "4"})}),
    content(
        {"function_response": types.FunctionResponse(id="c1", name="f", response={"result": "4"})},
        {"text": "and this"},
        role="user",
    ),
]


@pytest.mark.parametrize("given", CONTENTS)
@pytest.mark.parametrize("author", ["user", "ada"])
def test_an_event_comes_back_exactly(given: types.Content | None, author: str) -> None:
    """Every kind of content, and the fields beside it; as a message it can be stored."""
    event = Event(
        author=author,
        content=given,
        invocation_id="i1",
        branch="a.b",
        long_running_tool_ids={"c1"},
        custom_metadata={"none": None, "nul": "\x00"},
        actions=EventActions(state_delta={"none": None, "deep": [{"a": 1.5}]}, escalate=True),
        usage_metadata=types.GenerateContentResponseUsageMetadata(total_token_count=3),
        timestamp=1700000000.1234567,
    )
    store = palaver.open(":memory:")
    history = store.create([from_event(event)])
    assert event == to_event(store.get(history.id)[0])


@pytest.mark.parametrize(
    "part",
    [
        lambda half: {"text": half},
        lambda half: {"function_response": types.FunctionResponse(name="f", response={"a": half})},
    ],
    ids=["text", "response"],
)
def test_half_a_character_is_replaced(here: Store, part: Any) -> None:
    """A tool that lists files whose names are not UTF-8 does not end the run."""
    half = "\udcff"

    def event(text: str) -> Event:
        actions = EventActions(state_delta={"last": [text], "nul": "\0", "none": None, "n": 2**70})
        said = content(part(text), role="user")
        return Event(id="e1", author="user", content=said, actions=actions, timestamp=1.0)

    history = here.create([from_event(event(f"a{half}"))])
    assert event("a\ufffd") == to_event(here.get(history.id)[0])
    begins = PalaverSessionService(here).create_session(**HERE, state={"dir": half, "none": None})
    assert {"dir": "\ufffd", "none": None} == asyncio.run(begins).state


@pytest.mark.parametrize("given", CONTENTS)
def test_an_event_is_read_the_same_by_its_fields_alone(
    given: types.Content | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The short way, and the one for an ADK whose events are built otherwise."""
    message = from_event(Event(author="ada", content=given, invocation_id="i1", branch="a"))
    event = to_event(message)
    assert convert._read_fields is not None
    monkeypatch.setattr(convert, "_read_fields", None)
    again = to_event(message)
    assert event is not None
    assert again is not None
    assert again == event
    assert again.model_fields_set | {"content"} == event.model_fields_set | {"content"}
    assert again.model_dump_json() == event.model_dump_json()


def test_an_event_is_a_message_of_its_role() -> None:
    answer = from_event(Event(author="ada", content=content({"text": "a"}, CALL)))
    assert ("assistant", "a") == (answer.role, answer.text)
    (call,) = [part for part in answer.parts if isinstance(part, ToolCallPart)]
    assert ("f", "c1") == (call.tool, call.call_id)
    outputs = []
    for response in RESPONSES[:5]:
        given = types.FunctionResponse(id="c1", name="f", response=response)
        made = from_event(Event(author="ada", content=content({"function_response": given})))
        assert "tool" == made.role
        (part,) = [part for part in made.parts if isinstance(part, ToolPart)]
        outputs.append(getattr(part.state, "output", None) or getattr(part.state, "error", None))
    assert ["4", '{"result":""}', '{"result":4}', "4", "no"] == outputs


def test_what_was_edited_is_what_comes_back() -> None:
    """The words are the new ones; the fields beside them are those of the event."""
    event = Event(author="ada", content=content({"text": "Sunny."}), invocation_id="i1")
    stored = from_event(event)
    again = to_event(Message("assistant", "Rain.", stored.id, stored.timestamp, stored.metadata))
    assert again is not None
    assert ("ada", "i1", event.id) == (again.author, again.invocation_id, again.id)
    assert content({"text": "Rain."}) == again.content


# ── events that were read before ────────────────────────────────────────────────────────────────

TEXTS = st.sampled_from(["", "Tea?", "tea \u8336 \U0001f375", "\x00", '"\\'])
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=3)


def some(kind: Any, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A model with some of these fields; the others are not given."""
    return st.fixed_dictionaries({}, optional=fields).map(lambda chosen: kind(**chosen))


PARTS = st.one_of(
    some(types.Part, text=TEXTS),
    some(types.Part, text=TEXTS, thought=st.booleans(), thought_signature=st.binary(max_size=3)),
    some(
        types.Part,
        function_call=some(types.FunctionCall, id=TEXTS, name=TEXTS, args=OBJECTS),
        video_metadata=some(types.VideoMetadata, fps=st.floats(0.5, 24)),
    ),
    some(
        types.Part,
        function_response=some(types.FunctionResponse, id=TEXTS, name=TEXTS, response=OBJECTS),
    ),
    some(types.Part, inline_data=some(types.Blob, data=st.binary(max_size=3), mime_type=TEXTS)),
    some(types.Part, file_data=some(types.FileData, file_uri=TEXTS, mime_type=TEXTS)),
    some(
        types.Part,
        code_execution_result=some(
            types.CodeExecutionResult, outcome=st.sampled_from(types.Outcome), output=TEXTS
        ),
    ),
)
CONTENT = some(
    types.Content, role=st.sampled_from(["user", "model"]), parts=st.lists(PARTS, max_size=3)
)
ACTIONS = some(
    EventActions,
    state_delta=OBJECTS,
    artifact_delta=st.dictionaries(TEXTS, st.integers(0, 9), max_size=2),
    escalate=st.booleans(),
    transfer_to_agent=TEXTS,
    agent_state=OBJECTS,
    route=st.booleans() | TEXTS | st.lists(TEXTS, max_size=2),
    requested_tool_confirmations=st.dictionaries(
        TEXTS, some(ToolConfirmation, hint=TEXTS, payload=VALUES), max_size=2
    ),
    compaction=CONTENT.map(
        lambda said: EventCompaction(start_timestamp=0, end_timestamp=1, compacted_content=said)
    ),
)
USAGE = some(
    types.GenerateContentResponseUsageMetadata,
    total_token_count=st.integers(0, 9),
    prompt_tokens_details=st.lists(
        some(
            types.ModalityTokenCount,
            modality=st.sampled_from(types.MediaModality),
            token_count=st.integers(0, 9),
        ),
        max_size=2,
    ),
)
EVENTS = some(
    Event,
    author=TEXTS,
    content=st.none() | CONTENT,
    invocation_id=TEXTS,
    id=st.sampled_from(["e1", "an id"]),
    timestamp=st.floats(0, 2**33),
    branch=st.none() | TEXTS,
    actions=ACTIONS,
    node_info=some(NodeInfo, path=TEXTS, output_for=st.lists(TEXTS, max_size=2)),
    output=VALUES,
    long_running_tool_ids=st.sets(TEXTS, max_size=2),
    custom_metadata=OBJECTS,
    usage_metadata=USAGE,
    finish_reason=st.sampled_from(types.FinishReason),
    turn_complete=st.booleans(),
    error_code=TEXTS,
)


def described(value: Any) -> Any:
    """What can be told of a value: the kinds and the given fields of everything that it holds."""
    if isinstance(value, BaseModel):
        kept = (value.model_fields_set, value.model_extra, value.__pydantic_private__)
        return type(value), kept, list(value.__dict__), described(value.__dict__)
    if isinstance(value, dict):
        return dict, {key: described(each) for key, each in value.items()}
    if isinstance(value, list):
        return list, [described(each) for each in value]
    return type(value), value


def changeable(value: Any) -> Iterator[int]:
    """The identities of all objects in a value that somebody could change."""
    if isinstance(value, BaseModel):
        yield from (id(value), id(value.__pydantic_fields_set__), *changeable(value.__dict__))
    elif isinstance(value, dict | list | set):
        yield id(value)
        for each in value.values() if isinstance(value, dict) else value:
            yield from changeable(each)


@at_least(300)
@given(EVENTS)
def test_an_event_that_was_read_before_is_as_pydantic_makes_it(event: Event) -> None:
    """Whatever can be told of it; and nothing that can be changed is in two of them."""
    fresh = Event.model_validate_json(event.model_dump_json(by_alias=True, exclude_none=True))
    message, cache = from_event(event), EventCache()
    first, second, third = (cache.events([message], "ada")[0] for _ in range(3))
    for copy in (first, second, third, pickle.loads(pickle.dumps(third))):  # noqa: S301 - our own
        assert event == fresh == copy
        assert described(fresh) == described(copy)
        for which in ("round_trip", "exclude_unset", "exclude_defaults", "exclude_none"):
            chosen: Any = {which: True}
            assert fresh.model_dump(**chosen) == copy.model_dump(**chosen)
            in_json: Any = {**chosen, "mode": "json"}
            assert fresh.model_dump(**in_json) == copy.model_dump(**in_json)
        for deep in (False, True):
            assert described(fresh) == described(copy.model_copy(deep=deep))
    held = [*changeable(first), *changeable(second), *changeable(third)]
    assert len(held) == len(set(held))


def test_what_is_done_to_an_event_is_not_in_the_next_copy() -> None:
    cache = EventCache()
    stored = Event(author="ada", content=content({"text": "Tea?"}), invocation_id="i1")
    message = from_event(stored)
    for _ in range(4):
        (event,) = cache.events([message], "ada")
        assert stored == event
        assert event.content is not None
        assert event.content.parts is not None
        event.actions.state_delta["tea"] = "green"
        event.content.parts[0].text = "Rum?"
        event.content.parts.append(types.Part(text="Now."))
        event.node_info.path = "a/b"
        event.branch = "b"


def test_an_event_with_a_value_of_another_kind_is_made_every_time() -> None:
    """A model with fields of its own choosing, as the configurations of authentication are."""
    config = AuthConfig.model_validate(
        {"authScheme": {"type": "apiKey", "name": "key", "in": "header", "more": 1}}
    )
    actions = EventActions(requested_auth_configs={"c1": config})
    message, cache = from_event(Event(author="ada", actions=actions)), EventCache()
    first, second, third = (cache.events([message], "ada")[0] for _ in range(3))
    assert first == second == third == to_event(message)
    assert not {*changeable(second)} & {*changeable(third)}
    with pytest.raises(TypeError):
        copier(first)
    with pytest.raises(TypeError, match="object is not copied"):
        copier({"a": [object()]})


def test_only_the_events_that_were_read_last_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_cache, "_MOST", 8)
    cache = EventCache()
    messages = [from_event(Event(author="ada", id=str(number))) for number in range(20)]
    for _ in range(3):
        assert [str(n) for n in range(20)] == [event.id for event in cache.events(messages, "ada")]
        assert {id(message) for message in messages[-8:]} == {*cache._known}
    cache.events(messages[:1], "ada")
    assert id(messages[0]) in cache._known
    assert len(cache._known) <= 8
    cache.clear()
    assert not cache._known


def test_an_answer_of_another_program_is_the_agents_that_spoke_last() -> None:
    """What comes before it decides, so it is not remembered."""
    cache = EventCache()
    foreign = assistant("Yes.")
    said = from_event(Event(author="bob", invocation_id="i1"))
    assert [("ada", "")] == [(e.author, e.invocation_id) for e in cache.events([foreign], "ada")]
    assert [("bob", "i1")] * 2 == [
        (each.author, each.invocation_id) for each in cache.events([said, foreign], "ada")
    ]
