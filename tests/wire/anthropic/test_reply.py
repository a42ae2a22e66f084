"""Anthropic Messages: replies whole and in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver import wire
from palaver.errors import ValidationError
from palaver.messages import CacheCounts, ModelRef, TokenCounts, ToolCallPart
from palaver.wire.reply import CallDelta, CallReady, CallStarted, Failed, Finished
from tests.profiles import at_least
from tests.wire.cuts import cut, folded, info_of, parts_of, said, sent_back, words

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

FORM: Final = "anthropic"
MODEL = ModelRef("anthropic", "claude-opus-4-5")
USAGE = {
    "input_tokens": 20,
    "cache_read_input_tokens": 64,
    "cache_creation_input_tokens": 6,
    "output_tokens": 30,
    "output_tokens_details": {"thinking_tokens": 20},
}
CITATION = {"type": "char_location", "cited_text": "tea", "document_index": 0}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
HIDDEN = {"type": "redacted_thinking", "data": "ZGF0YQ=="}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"q": "tea"}}
SERVED = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": "a"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


def message(content: list[Any], reason: str | None = "end_turn") -> dict[str, Any]:
    """A message."""
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-4-5"}
    return {**head, "content": content, "stop_reason": reason, "usage": USAGE}


def begin(block: dict[str, Any], index: int = 0) -> dict[str, Any]:
    """A block begins."""
    return {"type": "content_block_start", "index": index, "content_block": block}


def grow(kind: str, index: int = 0, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A block grows."""
    delta = {"type": kind, **fields}
    return {"type": "content_block_delta", "index": index, "delta": delta}


def end(index: int = 0) -> dict[str, Any]:
    """A block ends."""
    return {"type": "content_block_stop", "index": index}


def over(reason: str) -> list[Any]:
    """The message ends."""
    delta = {"stop_reason": reason, "stop_sequence": None}
    usage = {
        "input_tokens": None,
        "output_tokens": 30,
        "output_tokens_details": {"thinking_tokens": 20},
    }
    return [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def pieces(draw: DrawFn, block: dict[str, Any], index: int) -> list[Any]:
    """The events of one block, cut anywhere."""
    kind = block["type"]
    if kind == "text":
        grown = [grow("text_delta", index, text=part) for part in cut(draw, block["text"])]
        cited = [grow("citations_delta", index, citation=one) for one in block["citations"] or ()]
        return [begin({"type": "text", "text": "", "citations": None}, index), *grown, *cited]
    if kind == "thinking":
        grown = [
            grow("thinking_delta", index, thinking=part) for part in cut(draw, block["thinking"])
        ]
        signed = grow("signature_delta", index, signature=block["signature"])
        return [begin({**block, "thinking": "", "signature": ""}, index), *grown, signed]
    if "input" in block:
        raw = msgspec.json.encode(block["input"]).decode() if block["input"] else ""
        grown = [grow("input_json_delta", index, partial_json=part) for part in cut(draw, raw)]
        return [begin({**block, "input": {}}, index), *grown]
    return [begin(block, index)]


@st.composite
def blocks(draw: DrawFn) -> dict[str, Any]:
    """A block of any kind."""
    cited = draw(st.sampled_from([None, [CITATION, {**CITATION, "document_index": 1}]]))
    text = {"type": "text", "text": draw(words), "citations": cited}
    thinking = {**THOUGHT, "thinking": draw(words)}
    call = {**CALL, "input": draw(st.sampled_from([{}, {"q": "tea"}, {"n": [1, {"d": "}"}]}]))}
    return draw(st.sampled_from([text, thinking, HIDDEN, call, SERVED, FOUND]))


@st.composite
def streams(draw: DrawFn) -> tuple[dict[str, Any], list[Any]]:
    """A message, and the same as a stream, cut anywhere."""
    content = draw(st.lists(blocks(), max_size=4))
    reason = draw(st.sampled_from(["end_turn", "tool_use", "pause_turn", "max_tokens"]))
    start = {**message([], None), "usage": {**USAGE, "output_tokens": 1}}
    events: list[Any] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(content):
        events += [*pieces(draw, block, index), end(index)]
    return message(content, reason), [*events, *over(reason)]


@at_least(60)
@given(answer=streams())
def test_whole_or_in_pieces_it_is_the_same(answer: tuple[dict[str, Any], list[Any]]) -> None:
    """The fold of a stream equals the reply, whatever the cuts."""
    body, events = answer

    assert said(wire.reply(FORM, body)) == said(folded(FORM, events))


def test_thoughts_signatures_and_calls_go_back_as_they_came() -> None:
    """What the provider verifies is there to the letter."""
    content = [THOUGHT, HIDDEN, {"type": "text", "text": "Let me see."}, CALL]
    answer = wire.reply(FORM, message(content, "tool_use"), model=MODEL)
    info = info_of(answer)

    assert content == sent_back(FORM, answer, MODEL)[1]["content"]
    assert TokenCounts(20, 10, 20, CacheCounts(64, 6)) == info.tokens
    assert ("tool-calls", MODEL, "msg_1") == (
        info.finish,
        info.model,
        answer.metadata["reply"]["id"],
    )


def test_what_anthropic_ran_itself_goes_back_as_it_came() -> None:
    """A server's tool and its result are blocks that palaver only keeps."""
    events = [
        begin({**SERVED, "input": {}}, 0),
        grow("input_json_delta", 0, partial_json='{"q"'),
        grow("input_json_delta", 0, partial_json=': "a"}'),
        end(0),
        begin(FOUND, 1),
        end(1),
        begin({"type": "text", "text": "Found."}, 2),
        end(2),
        *over("end_turn"),
    ]
    answer = folded(FORM, events, model=MODEL)

    assert [SERVED, FOUND] == [part.raw["block"] for part in parts_of(answer)[:2]]
    assert [SERVED, FOUND, {"type": "text", "text": "Found."}] == sent_back(FORM, answer, MODEL)[1][
        "content"
    ]


def test_deltas_of_a_call_and_one_without_arguments() -> None:
    """Nothing spelled out means an empty object."""
    reader = wire.reply_reader(FORM)

    assert [CallStarted(0, "toolu_1", "search")] == reader.feed(begin({**CALL, "input": {}}))
    assert [] == reader.feed(grow("input_json_delta", partial_json=""))
    assert [CallDelta(0, "{}"), CallReady(0, "toolu_1", "search", "{}")] == reader.feed(end())


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content-filter"),
        ("pause_turn", "other"),
    ],
)
def test_why_it_ended(reason: str, finish: str) -> None:
    """The provider's reasons in palaver's words; its own word is kept."""
    answer = wire.reply(FORM, message([{"type": "text", "text": "x"}], reason))

    assert (finish, reason) == (info_of(answer).finish, answer.metadata["reply"]["finish"])


def test_an_interrupted_answer_keeps_its_words_and_no_thought_without_a_signature() -> None:
    """CV-04: half a thought can't be verified, so it does not go back; half a call is text."""
    reader = wire.reply_reader(FORM, model=MODEL)
    for event in [
        begin({"type": "thinking", "thinking": "", "signature": ""}, 0),
        grow("thinking_delta", 0, thinking="hm"),
        begin({"type": "text", "text": ""}, 1),
        grow("text_delta", 1, text="Let"),
        begin({**CALL, "input": {}}, 2),
        grow("input_json_delta", 2, partial_json='{"q'),
    ]:
        reader.feed(event)
    answer = reader.message()

    assert ("interrupted", "Let", "hm") == (
        info_of(answer).finish,
        answer.text,
        parts_of(answer)[0].text,
    )
    assert not [part for part in parts_of(answer) if isinstance(part, ToolCallPart)]
    assert '{"q' == answer.metadata["incompleteCalls"][0]["raw"]
    assert [{"type": "text", "text": "Let"}] == sent_back(FORM, answer, MODEL)[1]["content"]


def test_an_error_in_the_stream_is_a_value() -> None:
    """The provider is overloaded."""
    reader = wire.reply_reader(FORM)
    reader.feed(grow("text_delta", text="Let"))
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}

    assert [Failed("overloaded_error", "Overloaded"), Finished("error")] == reader.feed(error)
    assert "Let" == reader.message().text
    assert "overloaded_error" == (info_of(wire.reply(FORM, error)).error or {})["name"]


@pytest.mark.parametrize("body", [None, {}, {"content": "x"}])
def test_what_is_no_reply_is_refused(body: object) -> None:
    """A clear error, and no empty message."""
    with pytest.raises(ValidationError, match="is no reply of anthropic"):
        wire.reply(FORM, body)


def test_strange_things_are_noted_once() -> None:
    """Events, pieces and blocks nobody knows; arguments of a server's tool that are no JSON."""
    reader = wire.reply_reader(FORM)
    for event in [
        {"type": "beam"},
        {"type": "beam"},
        grow("beam_delta"),
        begin({"text": "x"}),
        begin(SERVED, 1),
        grow("input_json_delta", 1, partial_json="{"),
        end(1),
        {"type": "message_delta", "delta": {"container": {"id": "c1"}}},
    ]:
        reader.feed(event)

    assert 4 == len(reader.notes)
    assert "c1" == reader.message().metadata["reply"]["container"]
