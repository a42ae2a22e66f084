"""Chat Completions: replies whole and in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver import wire
from palaver.errors import ValidationError
from palaver.messages import CacheCounts, ModelRef, TokenCounts, ToolCallPart
from palaver.wire.reply import (
    CallDelta,
    CallReady,
    CallStarted,
    Failed,
    Finished,
    ReasoningDelta,
    UsageDelta,
)
from tests.profiles import at_least
from tests.wire.cuts import cut, folded, info_of, parts_of, said, sent_back, words

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

    from palaver.messages import Message

FORM: Final = "openai-chat"
USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 30,
    "total_tokens": 130,
    "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 6},
    "completion_tokens_details": {"reasoning_tokens": 20},
}


def chunk(delta: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A chunk with one choice."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": more.pop("finish", None)}
    return {"id": "chatcmpl-1", "model": "gpt-5", "choices": [choice], **more}


def piece(
    index: int | None,
    arguments: str,
    name: str | None = None,
    id: str | None = None,  # noqa: A002 - the field's name
) -> dict[str, Any]:
    """A delta with a piece of a call."""
    function = {"arguments": arguments, **({"name": name} if name else {})}
    call = {"function": function, **({} if index is None else {"index": index})}
    return chunk({"tool_calls": [{**call, **({"id": id} if id is not None else {})}]})


def calls(message: Message) -> list[tuple[str, str]]:
    """The calls of a message: tool and arguments."""
    return [(part.tool, part.raw) for part in parts_of(message) if isinstance(part, ToolCallPart)]


@st.composite
def streams(draw: DrawFn) -> tuple[dict[str, Any], list[Any]]:
    """A completion, and the same as a stream, cut anywhere."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    events: list[Any] = [chunk({"role": "assistant", "content": ""})]
    for field in ("reasoning_content", "content", "refusal"):
        if text := draw(words):
            message[field] = text
            events += [chunk({field: part}) for part in cut(draw, text)]
    for index in range(draw(st.integers(0, 3))):
        raw = draw(st.sampled_from(['{"q": "tea"}', "{}", "", '{"n": [1, {"d": "}"}]}', "{oops"]))
        function = {"name": f"tool{index}", "arguments": raw}
        call = {"id": f"call_{index}", "type": "function", "function": function}
        message.setdefault("tool_calls", []).append(call)
        first, *rest = cut(draw, raw)
        events.append(piece(index, first, f"tool{index}", f"call_{index}"))
        events += [piece(index, part) for part in rest]
    reason = draw(st.sampled_from(["stop", "length", "content_filter", "odd"]))
    body = {
        "id": "chatcmpl-1",
        "model": "gpt-5",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": USAGE,
    }
    usage = {"id": "chatcmpl-1", "model": "gpt-5", "choices": [], "usage": USAGE}
    return body, [*events, chunk(finish=reason), usage]


@at_least(60)
@given(answer=streams())
def test_whole_or_in_pieces_it_is_the_same(
    answer: tuple[dict[str, Any], list[Any]],
) -> None:
    """The fold of a stream equals the reply, whatever the cuts."""
    body, events = answer

    assert said(wire.reply(FORM, body)) == said(folded(FORM, events))


def test_plain_words_become_plain_content() -> None:
    """A text alone is no list of parts; counts do not overlap and the raw ones are kept."""
    # CV-07
    choice = {"message": {"content": "Yes."}, "finish_reason": "stop"}
    message = wire.reply(FORM, {"model": "gpt-5", "choices": [choice], "usage": USAGE})
    info = info_of(message)

    assert ("assistant", "Yes.") == (message.role, message.content)
    assert TokenCounts(30, 10, 20, CacheCounts(64, 6)) == info.tokens
    assert USAGE == message.metadata["usage"]
    assert ("stop", ModelRef("openai", "gpt-5"), None) == (info.finish, info.model, info.cost)
    assert info.completed is not None


def test_what_the_words_cite_is_stored() -> None:
    """Annotations of a search stay with the text."""
    cited = {"type": "url_citation", "url_citation": {"url": "https://example.org"}}
    said_so = {"content": "Yes.", "annotations": [cited]}
    message = wire.reply(FORM, {"choices": [{"message": said_so, "finish_reason": "stop"}]})

    assert {"annotations": [cited]} == parts_of(message)[0].metadata["openai"]


def test_thought_that_is_counted_beside_the_completion_is_not_taken_from_it() -> None:
    """Some servers count thoughts apart: the total tells."""
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 35,
        "completion_tokens_details": {"reasoning_tokens": 20},
        "cost": 0.25,
    }
    message = wire.reply(FORM, {"choices": [{"message": {"content": "x"}}], "usage": usage})

    assert TokenCounts(10, 5, 20, CacheCounts()) == info_of(message).tokens
    assert 0.25 == info_of(message).cost


def test_deltas_say_what_each_event_brought() -> None:
    """Small typed values, in order; the tool has its own name back."""
    reader = wire.reply_reader(FORM, names={"weather_get_1": "weather.get"})

    assert [ReasoningDelta("hm")] == reader.feed(chunk({"reasoning": "hm"}))
    assert [CallStarted(0, "c1", "weather.get")] == reader.feed(piece(0, "", "weather_get_1", "c1"))
    assert [CallDelta(0, "{}")] == reader.feed(piece(0, "{}"))
    assert not reader.finished
    assert [CallReady(0, "c1", "weather.get", "{}"), Finished("tool-calls")] == reader.feed(
        chunk(finish="tool_calls")
    )
    assert [UsageDelta(TokenCounts(1, 0, 0, CacheCounts()))] == reader.feed(
        {"choices": [], "usage": {"prompt_tokens": 1}}
    )
    assert reader.finished


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([piece(0, "{}", "a", "1"), piece(0, "{}", "b", "2")], [("a", "{}"), ("b", "{}")]),
        ([piece(None, "{}", "a"), piece(None, "{}", "b")], [("a", "{}"), ("b", "{}")]),
        ([piece(None, "{", "a", "1"), piece(None, "}")], [("a", "{}")]),
        ([piece(0, "{", "a", "1"), piece(0, "}", "a", "1")], [("a", "{}")]),
        ([piece(None, "{", "a", "1"), piece(None, "}", "a", "1")], [("a", "{}")]),
        ([piece(0, "{", "a", "1"), piece(0, "}", id="")], [("a", "{}")]),
        ([piece(1, "{}", "b", "2"), piece(0, "{}", "a", "1")], [("b", "{}"), ("a", "{}")]),
        ([chunk({"function_call": {"name": "a", "arguments": "{}"}})], [("a", "{}")]),
    ],
    ids=["same-index", "no-index-no-id", "pieces-no-index", "id-again", "id-again-no-index",
         "empty-id", "any-order", "function-call"],
)  # fmt: skip
def test_calls_of_servers_that_leave_things_out(
    events: list[Any], expected: list[tuple[str, str]]
) -> None:
    """Index and id may be missing or repeated: calls are told apart all the same."""
    message = folded(FORM, [*events, chunk(finish="stop")])

    assert expected == calls(message)
    assert "tool-calls" == info_of(message).finish
    assert all(part.call_id for part in parts_of(message) if isinstance(part, ToolCallPart))


def test_a_call_that_broke_off_is_stored_as_text_only() -> None:
    """CV-04: what had arrived stays, marked as interrupted; half a call is no call."""
    reader = wire.reply_reader(FORM)
    for event in [chunk({"content": "Wait"}), piece(0, "{}", "a", "1"), piece(1, '{"q', "b", "2")]:
        reader.feed(event)
    message = reader.message()
    info = info_of(message)

    assert "Wait" == message.text
    assert [("a", "{}")] == calls(message)
    assert [{"callID": "2", "tool": "b", "raw": '{"q'}] == message.metadata["incompleteCalls"]
    assert ("interrupted", None) == (info.finish, info.completed)
    reader.feed(chunk(finish="stop"))
    assert "tool-calls" == info_of(reader.message()).finish
    assert "interrupted" == info_of(reader.message(interrupted=True)).finish


def test_a_call_cut_off_by_the_limit_is_no_call() -> None:
    """`length` in the middle of a call leaves arguments that nobody should run."""
    message = folded(FORM, [piece(0, '{"path": "/', "rm", "1"), chunk(finish="length")])

    assert [] == calls(message)
    assert '{"path": "/' == message.metadata["incompleteCalls"][0]["raw"]
    assert "length" == info_of(message).finish


def test_an_error_in_the_stream_is_a_value_and_keeps_what_was_said() -> None:
    """A router's error comes as a chunk."""
    reader = wire.reply_reader(FORM)
    reader.feed(chunk({"content": "Hal"}))
    error = {"error": {"code": "server_error", "message": "overloaded"}}

    assert [Failed("server_error", "overloaded"), Finished("error")] == reader.feed(error)
    message = reader.message()
    assert "Hal" == message.text
    assert {"name": "server_error", "message": "overloaded"} == info_of(message).error
    assert ("error", None) == (info_of(message).finish, info_of(message).completed)


def test_an_error_in_place_of_a_reply_is_a_message_too() -> None:
    """Also with a bare text."""
    message = wire.reply(FORM, {"error": "no credits"})

    assert ("", "error") == (message.content, info_of(message).finish)


@pytest.mark.parametrize("body", [None, [], {}, {"choices": []}, {"choices": [{"delta": {}}]}])
def test_what_is_no_reply_is_refused(body: object) -> None:
    """A clear error, and no empty message."""
    with pytest.raises(ValidationError, match="is no reply of openai-chat"):
        wire.reply(FORM, body)


def test_strange_things_are_noted_once() -> None:
    """Other choices, blocks nobody knows, events that are no objects."""
    reader = wire.reply_reader(FORM)
    other = {"choices": [{"index": 1, "delta": {"content": "no"}}, "no"]}
    for event in [other, other, "[DONE]", chunk({"content": [{"type": "map"}, {"text": "a"}]})]:
        reader.feed(event)
    reader.feed(chunk({"audio": {"id": "audio_1", "data": "aGk=", "transcript": "b"}}))
    message = reader.message()

    assert "ab" == message.text
    assert ["choice", "shape", "media"] == [note.rule for note in reader.notes]
    assert [{"audio": {"id": "audio_1"}}, {"type": "map"}] == [
        part.raw["block"] for part in parts_of(message)[2:]
    ]


def test_thoughts_in_blocks_and_in_detail() -> None:
    """Mistral thinks in blocks; a router's details are joined by index and kept."""
    thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]
    details = [
        [{"type": "reasoning.text", "index": 0, "text": "h", "signature": None}],
        [{"type": "reasoning.text", "index": 0, "text": "m", "signature": "s"}, "no"],
        [{"type": "reasoning.encrypted", "index": 1, "data": "x"}],
    ]
    events = [chunk({"content": thinking}), *(chunk({"reasoning_details": one}) for one in details)]
    message = folded(FORM, [*events, chunk(finish="stop")])
    part = parts_of(message)[0]

    assert "hm" == part.text
    assert [
        {"type": "reasoning.text", "index": 0, "text": "hm", "signature": "s"},
        {"type": "reasoning.encrypted", "index": 1, "data": "x"},
    ] == part.metadata["openai"]["details"]


def test_the_answer_goes_back_as_it_came() -> None:
    """Calls with their ids and their arguments to the letter."""
    model = ModelRef("openai", "gpt-5")
    raw = '{ "q" : "tea" }'
    message = folded(FORM, [piece(0, raw, "search", "call_9"), chunk(finish="stop")], model=model)

    assert {"name": "search", "arguments": raw} == sent_back(FORM, message, model)[1]["tool_calls"][
        0
    ]["function"]


def test_whatever_a_model_writes_can_be_stored() -> None:
    """Half characters in two pieces are joined; NUL, huge numbers and odd names do not break it."""
    huge = '{"n": 12345678901234567890}'
    deep = '{"a":' * 300 + "1" + "}" * 300
    events = [
        chunk({"content": "\ud83d"}),
        chunk({"content": "\ude00\0"}),
        piece(0, huge, "a\nb", "1"),
        piece(1, deep, "deep", "2"),
        chunk(finish="stop"),
    ]
    message = folded(FORM, events)

    assert "😀\ufffd" == message.text
    assert [("a_b", huge), ("deep", deep)] == calls(message)
    assert {"n": "12345678901234567890"} == parts_of(message)[1].input
    assert {} == parts_of(message)[2].input
