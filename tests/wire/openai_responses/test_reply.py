"""Responses: replies whole and in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palaver import wire
from palaver.errors import ValidationError
from palaver.messages import (
    CacheCounts,
    ModelRef,
    ReasoningPart,
    TextPart,
    TokenCounts,
    UnknownPart,
)
from palaver.wire.reply import (
    CallDelta,
    CallReady,
    CallStarted,
    Failed,
    Finished,
    ReasoningDelta,
    TextDelta,
)
from tests.profiles import at_least
from tests.wire.cuts import cut, folded, info_of, parts_of, said, sent_back, words

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

FORM: Final = "openai-responses"
MODEL = ModelRef("openai", "gpt-5")
USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 6},
    "output_tokens": 30,
    "output_tokens_details": {"reasoning_tokens": 20},
    "total_tokens": 130,
}
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "gAAAA",
}
SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "tea"},
}
SPOKEN = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "phase": "commentary",
    "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "search",
    "arguments": '{"q": "tea"}',
    "status": "completed",
}


def response(output: list[Any], status: str = "completed", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A response."""
    head = {"id": "resp_1", "object": "response", "model": "gpt-5", "status": status}
    return {**head, "output": output, "usage": USAGE, **more}


def event(kind: str, place: int = 0, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """An event of the stream."""
    return {"type": f"response.{kind}", "output_index": place, **more}


def spoken(draw: DrawFn, place: int) -> tuple[dict[str, Any], list[Any]]:
    """A message, and its events."""
    texts = draw(st.lists(words, min_size=1, max_size=2))
    blocks: list[Any] = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    if draw(st.booleans()):
        blocks.append({"type": "refusal", "refusal": draw(words)})
    item = {**SPOKEN, "id": f"msg_{place}", "content": blocks}
    events = [event("output_item.added", place, item={**item, "content": [], "status": "x"})]
    for index, block in enumerate(blocks):
        kind = "refusal" if "refusal" in block else "output_text"
        events.append(event("content_part.added", place, content_index=index, part={}))
        events += [
            event(f"{kind}.delta", place, content_index=index, delta=part)
            for part in cut(draw, block.get("text", block.get("refusal")))
        ]
    return item, events


def thought(draw: DrawFn, place: int) -> tuple[dict[str, Any], list[Any]]:
    """A reasoning item, and its events."""
    item: dict[str, Any] = {"type": "reasoning", "id": f"rs_{place}", "encrypted_content": "gA"}
    item["summary"] = [
        {"type": "summary_text", "text": text} for text in draw(st.lists(words, max_size=2))
    ]
    events = [event("output_item.added", place, item={**item, "encrypted_content": "part"})]
    for index, block in enumerate(item["summary"]):
        for part in cut(draw, block["text"]):
            fields = {"summary_index": index, "delta": part}
            events.append(event("reasoning_summary_text.delta", place, **fields))
    if draw(st.booleans()):
        item["content"] = [{"type": "reasoning_text", "text": draw(words)}]
        events += [
            event("reasoning_text.delta", place, content_index=0, delta=part)
            for part in cut(draw, item["content"][0]["text"])
        ]
    return item, events


def called(draw: DrawFn, place: int) -> tuple[dict[str, Any], list[Any]]:
    """A call, and its events."""
    raw = draw(st.sampled_from(['{"q": "tea"}', "{}", '{"n": [1]}']))
    item = {**CALL, "id": f"fc_{place}", "call_id": f"call_{place}", "arguments": raw}
    kind = "function_call_arguments"
    if draw(st.booleans()):
        item = {**item, "type": "custom_tool_call", "id": f"ctc_{place}", "input": raw}
        del item["arguments"]
        kind = "custom_tool_call_input"
    empty = {key: "" for key in ("input", "arguments") if key in item}
    events = [event("output_item.added", place, item={**item, **empty, "status": "in_progress"})]
    events += [event(f"{kind}.delta", place, delta=part) for part in cut(draw, raw)]
    return item, [*events, event(f"{kind}.done", place, arguments=raw)]


@st.composite
def streams(draw: DrawFn) -> tuple[dict[str, Any], list[Any]]:
    """A response, and the same as a stream, cut anywhere; the end may or may not repeat it all."""
    output: list[Any] = []
    events: list[Any] = [event("created", response=response([], "in_progress"))]
    for place in range(draw(st.integers(0, 4))):
        make = draw(st.sampled_from([spoken, thought, called, None]))
        item, grown = make(draw, place) if make else ({**SEARCH, "id": f"ws_{place}"}, [])
        output.append(item)
        events += [*grown, event("output_item.done", place, item=item)]
    repeated = output if draw(st.booleans()) else []
    return response(output), [*events, event("completed", response=response(repeated))]


@at_least(60)
@given(answer=streams())
def test_whole_or_in_pieces_it_is_the_same(answer: tuple[dict[str, Any], list[Any]]) -> None:
    """The fold of a stream equals the reply, whatever the cuts."""
    body, events = answer

    assert said(wire.reply(FORM, body)) == said(folded(FORM, events))


@at_least(30)
@given(answer=streams())
def test_a_reply_is_what_reading_its_items_gives(answer: tuple[dict[str, Any], list[Any]]) -> None:
    """An answer is the same message whether it was received or read from a request."""
    body, _ = answer
    if body["output"]:
        (read,) = wire.from_(FORM, body["output"]).messages
        replied = wire.reply(FORM, body)

        assert said(replace(replied, metadata={})) == said(
            replace(read, metadata={}, info=replied.info)
        )


def test_an_answer_is_one_message_with_all_that_the_provider_wants_back() -> None:
    """Thoughts, words, searches and calls, each with its id and the reasoning it came after."""
    # CV-07
    message = wire.reply(FORM, response([THOUGHT, SEARCH, SPOKEN, CALL]))
    thinking, searched, text, call = parts_of(message)
    info = info_of(message)

    assert {"id": "rs_1", "encrypted_content": "gAAAA"} == thinking.metadata["openai"]
    assert (SEARCH, "rs_1") == (searched.raw["block"], searched.raw["after"])
    expected = {"id": "msg_1", "phase": "commentary", "after": "rs_1"}
    assert expected == text.metadata["openai"]
    assert {"id": "fc_1", "after": "rs_1"} == call.metadata["openai"]
    assert TokenCounts(30, 10, 20, CacheCounts(64, 6)) == info.tokens
    assert ("tool-calls", MODEL) == (info.finish, info.model)
    assert {"id": "resp_1", "finish": "completed"} == message.metadata["reply"]


def test_the_answer_goes_back_as_it_came() -> None:
    """To its own model: every item with its id, nothing else."""
    message = wire.reply(FORM, response([THOUGHT, SEARCH, SPOKEN, CALL]), model=MODEL)
    items = sent_back(FORM, message, MODEL)
    called = {key: value for key, value in CALL.items() if key != "status"}

    assert [THOUGHT, SEARCH, SPOKEN, called] == items[1:5]
    assert {"type": "function_call_output", "call_id": "call_1", "output": "done"} == items[5]


def test_another_model_gets_no_thought_and_no_id_that_hangs_on_it() -> None:
    """Reasoning stays at home, and with it the ids that are refused without it."""
    message = wire.reply(FORM, response([THOUGHT, SEARCH, SPOKEN, CALL]), model=MODEL)
    items = sent_back(FORM, message, ModelRef("openai", "gpt-6"))

    said_so = {"role": "assistant", "content": "Let me see.", "phase": "commentary"}
    assert said_so == items[1]
    assert "id" not in items[2]
    assert ["function_call", "function_call_output"] == [item["type"] for item in items[2:]]


def test_deltas_say_what_each_event_brought() -> None:
    """Small typed values; what is repeated whole brings nothing new."""
    reader = wire.reply_reader(FORM)

    assert [ReasoningDelta("h")] == reader.feed(
        event("reasoning_summary_text.delta", 0, summary_index=0, delta="h")
    )
    assert [ReasoningDelta("m")] == reader.feed(event("output_item.done", 0, item=THOUGHT))
    assert [] == reader.feed(event("output_item.done", 0, item=THOUGHT))
    assert [TextDelta("Hi")] == reader.feed(event("output_text.delta", 1, delta="Hi"))
    begun = {**CALL, "arguments": "", "status": "in_progress"}
    assert [CallStarted(0, "call_1", "search")] == reader.feed(
        event("output_item.added", 2, item=begun)
    )
    raw = str(CALL["arguments"])
    assert [CallDelta(0, raw)] == reader.feed(event("function_call_arguments.delta", 2, delta=raw))
    assert [CallReady(0, "call_1", "search", raw)] == reader.feed(
        event("output_item.done", 2, item=CALL)
    )
    assert Finished("tool-calls") == reader.feed(event("completed", response=response([])))[-1]


def test_what_the_pieces_missed_is_settled_by_the_whole() -> None:
    """An item that is done has the last word."""
    events = [
        event("output_text.delta", 0, content_index=0, delta="Let us"),
        event("output_item.done", 0, item=SPOKEN),
        event("completed", response=response([])),
    ]

    assert "Let me see." == folded(FORM, events).text


@pytest.mark.parametrize(
    ("status", "details", "finish"),
    [
        ("incomplete", {"reason": "max_output_tokens"}, "length"),
        ("incomplete", {"reason": "content_filter"}, "content-filter"),
        ("incomplete", {"reason": "steered"}, "other"),
        ("cancelled", None, "other"),
        ("completed", None, "stop"),
    ],
)
def test_why_it_ended(status: str, details: dict[str, str] | None, finish: str) -> None:
    """The provider's reasons in palaver's words."""
    ended = response([SPOKEN], status, incomplete_details=details)

    assert finish == info_of(wire.reply(FORM, ended)).finish
    assert finish == info_of(folded(FORM, [event("incomplete", response=ended)])).finish


def test_reasoning_that_the_provider_withheld_from_the_model_is_told() -> None:
    """After an edit the answer may have been given without what was thought before."""
    withheld = [
        {"id": "rs_0", "action": "removed", "reason": "prefix_mismatch", "type": "reasoning"}
    ]
    ended = response([SPOKEN], input_transformations=withheld)

    assert withheld == wire.reply(FORM, ended).metadata["reply"]["inputTransformations"]
    streamed = folded(FORM, [event("completed", response=ended)])
    assert withheld == streamed.metadata["reply"]["inputTransformations"]


def test_half_a_call_in_an_incomplete_response_is_no_call() -> None:
    """The limit came in the middle of the arguments."""
    half = {**CALL, "arguments": '{"q": "t', "status": "incomplete"}
    ended = response([half], "incomplete", incomplete_details={"reason": "max_output_tokens"})
    message = wire.reply(FORM, ended)

    assert "" == message.content
    assert '{"q": "t' == message.metadata["incompleteCalls"][0]["raw"]


def test_an_interrupted_answer_keeps_what_came_but_not_ids_of_what_was_not_done() -> None:
    """CV-04: the thought was done, the words were not."""
    reader = wire.reply_reader(FORM, model=MODEL)
    reader.feed(event("output_item.done", 0, item=THOUGHT))
    reader.feed(event("output_text.delta", 1, content_index=0, delta="Let"))
    message = reader.message()
    thinking, text = parts_of(message)

    assert "interrupted" == info_of(message).finish
    assert isinstance(thinking, ReasoningPart)
    assert "rs_1" == thinking.metadata["openai"]["id"]
    assert isinstance(text, TextPart)
    assert ("Let", {}) == (text.text, text.metadata)
    items = sent_back(FORM, message, MODEL)
    assert [THOUGHT, {"role": "assistant", "content": "Let"}] == items[1:3]


@pytest.mark.parametrize(
    "broken",
    [
        {"type": "error", "code": "server_error", "message": "oops"},
        {"type": "error", "error": {"type": "server_error", "message": "oops"}},
        event(
            "failed",
            response=response([], "failed", error={"code": "server_error", "message": "oops"}),
        ),
    ],
    ids=["error", "nested-error", "failed"],
)
def test_errors_in_the_stream_are_values(broken: dict[str, Any]) -> None:
    """What was said before stays."""
    reader = wire.reply_reader(FORM)
    reader.feed(event("output_text.delta", 0, content_index=0, delta="Let"))

    assert [Failed("server_error", "oops"), Finished("error")] == reader.feed(broken)[-2:]
    assert "Let" == reader.message().text
    assert {"name": "server_error", "message": "oops"} == info_of(reader.message()).error


def test_a_response_that_failed_without_a_word_is_a_message() -> None:
    """Whole, too."""
    failed = response([], "failed", error={"code": "rate_limit_exceeded", "message": "slow"})

    assert "rate_limit_exceeded" == (info_of(wire.reply(FORM, failed)).error or {})["name"]


@pytest.mark.parametrize("body", [None, {}, {"output": []}, {"status": "completed"}])
def test_what_is_no_reply_is_refused(body: object) -> None:
    """A clear error, and no empty message."""
    with pytest.raises(ValidationError, match="is no reply of openai-responses"):
        wire.reply(FORM, body)


def test_strange_things_are_noted_once() -> None:
    """Events and items nobody knows; a block of a message that nobody knows is stored whole."""
    reader = wire.reply_reader(FORM)
    odd = {**SPOKEN, "content": [{"type": "hologram"}]}
    for strange in [
        event("beam.delta"),
        event("beam.delta"),
        event("web_search_call.searching"),
        event("output_item.done", item={"type": "beam"}),
        event("output_item.done", item=odd),
    ]:
        reader.feed(strange)

    assert 2 == len(reader.notes)
    assert "'response.beam.delta'" in reader.notes[0].detail
    (stored,) = reader.message().parts
    assert isinstance(stored, UnknownPart)
    assert {"type": "hologram"} == stored.raw["block"]
