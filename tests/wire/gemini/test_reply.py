"""Gemini: replies whole and in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from google.genai.types import FinishReason
from hypothesis import given
from hypothesis import strategies as st

from palaver import wire
from palaver.errors import ValidationError
from palaver.messages import CacheCounts, ModelRef, TokenCounts, ToolCallPart
from palaver.wire.gemini.reply import GeminiReply
from palaver.wire.reply import CallDelta, CallReady, CallStarted, Failed, Finished, TextDelta
from tests.profiles import at_least
from tests.wire.cuts import cut, folded, info_of, parts_of, said, sent_back, words

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

FORM: Final = "gemini"
MODEL = ModelRef("google", "gemini-3-pro")
SIGNATURE = "c2lnbmF0dXJl"
USAGE = {
    "promptTokenCount": 90,
    "toolUsePromptTokenCount": 10,
    "cachedContentTokenCount": 64,
    "candidatesTokenCount": 10,
    "thoughtsTokenCount": 20,
    "totalTokenCount": 130,
}
CALL = {"functionCall": {"id": "c1", "name": "search", "args": {"q": "tea"}}}
SIGNED = {**CALL, "thoughtSignature": SIGNATURE}
CODE = {"executableCode": {"language": "PYTHON", "code": "1"}}
PICTURE = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}


def reply(parts: list[Any], reason: str | None = None, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A reply, or a part of one."""
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
    if reason:
        candidate["finishReason"] = reason
    head = {"responseId": "r1", "modelVersion": "gemini-3-pro"}
    return {**head, "candidates": [candidate], **more}


@st.composite
def streams(draw: DrawFn) -> tuple[dict[str, Any], list[Any]]:
    """A reply, and the same as a stream, cut anywhere."""
    text: dict[str, Any] = {"text": draw(words)}
    thought = {"text": draw(words), "thought": True}
    signed = {"text": draw(words), "thoughtSignature": SIGNATURE}
    empty = {"text": "", "thoughtSignature": SIGNATURE}
    kinds: list[dict[str, Any]] = [text, thought, signed, empty, SIGNED, CALL, CODE, PICTURE]
    parts = draw(st.lists(st.sampled_from(kinds), max_size=5))
    events = []
    for part in parts:
        whole = "text" not in part or "thoughtSignature" in part
        cuts = [part] if whole else [{**part, "text": one} for one in cut(draw, part["text"])]
        events += [reply([one], usageMetadata={"promptTokenCount": 90}) for one in cuts]
    reason = draw(st.sampled_from(["STOP", "MAX_TOKENS", "OTHER"]))
    last = reply([], reason, usageMetadata=USAGE)
    return reply(parts, reason, usageMetadata=USAGE), [*events, last]


@at_least(60)
@given(answer=streams())
def test_whole_or_in_pieces_it_is_the_same(answer: tuple[dict[str, Any], list[Any]]) -> None:
    """The fold of a stream equals the reply, whatever the cuts."""
    body, events = answer

    assert said(wire.reply(FORM, body)) == said(folded(FORM, events))


def test_signatures_go_back_on_the_part_they_came_on() -> None:
    """A signature is not moved to a neighbour, and parts with one are not joined."""
    signed = {"text": "", "thoughtSignature": SIGNATURE}
    parts = [{"text": "hm", "thought": True}, {"text": "Let"}, {"text": " me."}, signed, SIGNED]
    answer = wire.reply(FORM, reply(parts, "STOP", usageMetadata=USAGE), model=MODEL)
    info = info_of(answer)

    assert ["hm", "Let me.", ""] == [part.text for part in parts_of(answer)[:3]]
    back = sent_back(FORM, answer, MODEL)[1]["parts"]
    assert SIGNED == back[-1]
    assert {"text": "Let me."} in back
    assert TokenCounts(36, 10, 20, CacheCounts(64, 0)) == info.tokens
    assert ("tool-calls", MODEL) == (info.finish, info.model)


def test_a_call_without_an_id_gets_one() -> None:
    """Gemini may leave the id out; the ledger needs one."""
    bare = {"functionCall": {"name": "search"}}
    answer = wire.reply(FORM, reply([bare, bare], "STOP"))
    first, second = [part for part in parts_of(answer) if isinstance(part, ToolCallPart)]

    assert first.call_id != second.call_id
    assert ({}, "{}", {}) == (first.input, first.raw, first.metadata)


def test_deltas_and_the_sdk_s_own_spelling() -> None:
    """What Google's SDK prints is in snake_case."""
    reader = wire.reply_reader(FORM)
    printed = {
        "model_version": "gemini-3-pro",
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [{"text": "Hi"}, {"function_call": CALL["functionCall"]}],
                },
                "finish_reason": "STOP",
            }
        ],
        "usage_metadata": {"prompt_token_count": 3},
    }

    assert [
        TextDelta("Hi"),
        CallStarted(0, "c1", "search"),
        CallDelta(0, '{"q":"tea"}'),
        CallReady(0, "c1", "search", '{"q":"tea"}'),
        Finished("tool-calls"),
    ] == reader.feed(printed)[:5]
    assert TokenCounts(3, 0, 0, CacheCounts()) == info_of(reader.message()).tokens
    assert MODEL == info_of(reader.message()).model


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content-filter"),
        ("MODEL_ARMOR", "content-filter"),
        ("MALFORMED_FUNCTION_CALL", "error"),
        ("MISSING_THOUGHT_SIGNATURE", "error"),
        ("LANGUAGE", "other"),
    ],
)
def test_why_it_ended(reason: str, finish: str) -> None:
    """The provider's reasons in palaver's words; its own word is kept."""
    answer = wire.reply(FORM, reply([{"text": "x"}], reason))

    assert (finish, reason) == (info_of(answer).finish, answer.metadata["reply"]["finish"])


def test_every_reason_that_the_sdk_names_is_understood() -> None:
    """Those that say neither how it ended nor who ended it are palaver's "other"."""
    vague = {"FINISH_REASON_UNSPECIFIED", "IMAGE_OTHER", "LANGUAGE", "NO_IMAGE", "OTHER"}

    assert vague == {reason.value for reason in FinishReason} - {*GeminiReply.finish_reasons}


def test_a_prompt_that_was_blocked_is_an_empty_answer() -> None:
    """No candidate, only feedback."""
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": USAGE}
    answer = wire.reply(FORM, blocked)

    assert ("", "content-filter") == (answer.content, info_of(answer).finish)
    assert "SAFETY" == answer.metadata["reply"]["finish"]


def test_an_interrupted_answer_keeps_what_came() -> None:
    """CV-04: no finish reason came."""
    reader = wire.reply_reader(FORM)
    reader.feed(reply([{"text": "Let"}]))

    assert ("Let", "interrupted") == (reader.message().text, info_of(reader.message()).finish)
    error = {"error": {"status": "UNAVAILABLE", "message": "later"}}
    assert [Failed("UNAVAILABLE", "later"), Finished("error")] == reader.feed(error)


@pytest.mark.parametrize("body", [None, {}, {"candidates": []}])
def test_what_is_no_reply_is_refused(body: object) -> None:
    """A clear error, and no empty message."""
    with pytest.raises(ValidationError, match="is no reply of gemini"):
        wire.reply(FORM, body)


def test_strange_things_are_noted_once() -> None:
    """Other candidates, calls without a name."""
    reader = wire.reply_reader(FORM)
    nameless: dict[str, Any] = {"functionCall": {"partialArgs": []}}
    reader.feed(reply([nameless, nameless, {}, "no"]))
    reader.feed({"candidates": [{"index": 1}, "no"]})

    assert ["call", "choice"] == [note.rule for note in reader.notes]
    assert "" == reader.message().content
