"""The builder of answers, by itself; the replies of each format show the rest."""

from __future__ import annotations

from palaver.messages import CacheCounts, ModelRef, TextPart, TokenCounts, ToolCallPart
from palaver.wire.reply import (
    CallReady,
    CallStarted,
    Failed,
    Finished,
    ReplyBuilder,
    TextDelta,
    UsageDelta,
)


def made() -> ReplyBuilder:
    """An answer with nothing in it."""
    return ReplyBuilder("openai-chat", "openai")


def test_blocks_stand_in_the_order_of_their_keys() -> None:
    """Whatever came first."""
    answer = made()
    answer.text((2,), "b", id="x")
    answer.text((0,), "a", id="y")

    assert ["a", "b"] == [part.text for part in answer.message().parts if type(part) is TextPart]


def test_an_answer_with_nothing_in_it_is_an_empty_text() -> None:
    """Empty blocks leave no parts."""
    answer = made()
    answer.text((0,), "")
    answer.reasoning((1,), "")
    answer.finish("stop")

    assert "" == answer.message().content


def test_the_first_name_and_the_first_id_of_a_call_stand() -> None:
    """They may come with any piece; a call is announced when both are known or it goes on."""
    answer = made()
    answer.call((0,), call_id="c1")
    assert [] == answer.deltas
    answer.call((0,), call_id="c2", name="ls")
    answer.call((0,), name="rm")
    answer.ready((0,))
    answer.ready((0,))
    answer.ready((7,))

    assert [CallStarted(0, "c1", "ls"), CallReady(0, "c1", "ls", "")] == answer.deltas
    assert [("c1", "ls", {})] == [
        (part.call_id, part.tool, part.input)
        for part in answer.message().parts
        if type(part) is ToolCallPart
    ]


def test_a_call_without_a_name_has_one_all_the_same() -> None:
    """A part needs one; the model will be told that there is no such tool."""
    answer = made()
    answer.call((0,), piece="{}")
    answer.finish("tool-calls")
    (part,) = answer.message().parts

    assert type(part) is ToolCallPart
    assert ("unknown", True) == (part.tool, bool(part.call_id))


def test_the_first_end_stands_unless_the_provider_breaks_off() -> None:
    """An error after the end is the end."""
    answer = made()
    answer.finish("length")
    answer.finish("stop")
    answer.fail(None, None)
    answer.deltas, found = [], answer.deltas

    assert [
        Finished("length"),
        Failed("error", "the provider gave no reason"),
        Finished("error"),
    ] == found


def test_the_last_word_on_usage_counts_and_is_noted_once() -> None:
    """The same figures again are no news."""
    answer = made()
    tokens = TokenCounts(1, 2, 0, CacheCounts())
    answer.usage({"a": 1}, tokens, None)
    answer.usage({"a": 2}, tokens, 0.5)
    info = answer.message().info

    assert [UsageDelta(tokens)] == answer.deltas
    assert {"a": 2} == answer.message().metadata["usage"]
    assert 0.5 == getattr(info, "cost", None)


def test_what_is_repeated_whole_settles_a_block() -> None:
    """The rest is news, a correction is not; the model that was named first stands."""
    answer = made()
    answer.text((0,), "ab")
    answer.settle((0,), "abc")
    answer.settle((0,), "abc")
    answer.settle((0,), "x")
    answer.model("")
    answer.model("gpt-5")
    answer.model("gpt-6")

    assert [TextDelta("ab"), TextDelta("c")] == answer.deltas
    assert "x" == answer.message().text
    assert ModelRef("openai", "gpt-5") == getattr(answer.message().info, "model", None)
