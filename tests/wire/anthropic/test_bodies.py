"""Anthropic Messages read and written again: to the letter, wherever the provider took it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from palaver import wire
from palaver.messages import assistant, text_part
from palaver.testing import check_request
from palaver.testing.prompt_cache import anthropic_breakpoints
from palaver.wire import Target
from tests.profiles import at_least
from tests.wire.anthropic.test_request import (
    FOUND,
    HAIKU,
    OPUS,
    SEARCH,
    answer,
    contents,
    sent,
    text,
    use,
)
from tests.wire.pieces import PDF, PIXEL, S, part, rules

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

BODY: Final[dict[str, Any]] = {
    "model": "claude-opus-4-8",
    "max_tokens": 1024,
    "system": [
        text("You help.", cache_control={"type": "ephemeral", "ttl": "1h"}),
        text("Briefly."),
    ],
    "messages": [
        {
            "role": "user",
            "content": [
                text("Look."),
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
                    "cache_control": {"type": "ephemeral"},
                },
                {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
                {
                    "type": "document",
                    "source": {"type": "text", "media_type": "text/plain", "data": "rain"},
                    "title": "Notes",
                    "context": "old",
                    "citations": {"enabled": True},
                },
                {"type": "document", "source": {"type": "content", "content": "snow"}},
                {"type": "document", "source": {"type": "content", "content": [text("sun")]}},
                {"type": "container_upload", "file_id": "file_2"},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "ZGF0YQ=="},
                SEARCH,
                FOUND,
                {"type": "thinking", "thinking": "now", "signature": "c2ln"},
                text("It says", citations=None),
                use("toolu_1", caller={"type": "direct"}),
                use("toolu_2"),
                use("toolu_3"),
            ],
        },
        {
            "role": "user",
            "content": [
                answer("toolu_2", "", cache_control={"type": "ephemeral"}),
                {"type": "tool_result", "tool_use_id": "toolu_1"},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_3",
                    "is_error": True,
                    "content": [
                        text("see"),
                        {
                            "type": "image",
                            "source": {"type": "url", "url": "https://example.org/a"},
                        },
                        {
                            "type": "search_result",
                            "source": "s",
                            "title": "t",
                            "content": [text("found")],
                        },
                    ],
                },
                text("And?"),
            ],
        },
        {"role": "user", "content": "Hello?"},
        {"role": "system", "content": "The user is in a hurry."},
        {"role": "assistant", "content": [text("Yes, "), text("well")]},
        {"role": "user", "content": [text("Thanks.")]},
    ],
}


def test_a_realistic_body_comes_back_to_the_letter() -> None:
    parsed = wire.from_("anthropic", BODY)
    again = wire.to("anthropic", parsed.messages, Target(OPUS))

    assert () == check_request("anthropic", BODY)
    assert BODY == {**again.body, "model": BODY["model"], "max_tokens": 1024}
    assert () == parsed.notes
    assert () == again.notes
    assert "claude-opus-4-8" == parsed.about["model"]


def test_what_a_body_says_is_there_for_other_formats() -> None:
    messages = wire.from_("anthropic", BODY).messages

    assert ["system", "user", "assistant", "tool", "tool", "tool", "user", "user", "system"] == [
        message.role for message in messages[:9]
    ]
    assert "see\nfound" == part(messages[5]).state.error
    assert ["data:text/plain;base64,cmFpbg==", "Notes"] == [
        part(messages[1], 3).url,
        part(messages[1], 3).filename,
    ]


def test_a_system_message_among_the_others_stands_only_where_it_may() -> None:
    body = {
        "messages": [
            {"role": "user", "content": "x"},
            {"role": "system", "content": "Hurry."},
            {"role": "assistant", "content": "y"},
            {"role": "user", "content": "z"},
            {"role": "user", "content": "w"},
        ]
    }
    one, hurry, two, three, four = wire.from_("anthropic", body).messages

    assert body == sent(one, hurry, two, three, four).body
    assert body["messages"][:2] == sent(one, hurry).body["messages"]
    old = sent(one, hurry, two, three, target=Target(HAIKU))
    assert "<system>\nHurry.\n</system>" == contents(old)[1]
    assert ["edited"] == rules(old)
    follows = sent(one, hurry, four)
    assert ["x", "<system>\nHurry.\n</system>", "w"] == contents(follows)
    assert ["edited"] == rules(follows)
    assert ["edited"] == rules(sent(one, two, hurry, three))
    after_answer = sent(one, two, hurry, assistant("v"), four)
    assert ["x", "y", "<system>\nHurry.\n</system>", "v", "w"] == contents(after_answer)
    assert ["edited"] == rules(after_answer)
    assert {"system": "Hurry.", "messages": [{"role": "user", "content": "w"}]} == sent(
        hurry, four
    ).body


def test_a_system_message_may_follow_a_tool_of_the_provider() -> None:
    body = {
        "messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": [SEARCH, FOUND]},
            {"role": "system", "content": "Hurry."},
            {"role": "assistant", "content": "y"},
            {"role": "user", "content": "z"},
        ]
    }

    assert body == sent(*wire.from_("anthropic", body).messages).body


def test_what_makes_no_sense_is_reported_and_the_rest_is_read() -> None:
    body = {
        "messages": [
            {"role": "user", "content": ["?", {"type": "text"}, {"type": "text", "text": "x"}]},
            {"role": "robot", "content": "beep"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1"}, answer(), {"type": 1}],
            },
            {"role": "user", "content": []},
            {"role": "user", "content": [{"type": "tool_result"}, {"type": "image", "source": 5}]},
            7,
        ]
    }
    parsed = wire.from_("anthropic", body)

    assert ["user", "tool", "user"] == [message.role for message in parsed.messages]
    assert {"unknown-part", "role", "empty-content", "inexact"} == {n.rule for n in parsed.notes}


def test_an_edited_message_says_that_its_details_are_gone() -> None:
    body = {
        "messages": [{"role": "user", "content": [text("x", cache_control={"type": "ephemeral"})]}]
    }
    (message,) = wire.from_("anthropic", body).messages
    edited = msgspec.structs.replace(message, content=(text_part(S, S, "other"),))

    request = sent(edited)
    assert [[text("other")]] == contents(request)
    assert ["edited"] == rules(request)


words = st.sampled_from(["hello", "你好", " a ", "x\n"])
cached: Any = st.sampled_from([{}, {}, {"cache_control": {"type": "ephemeral"}}])
images = st.sampled_from(
    [
        {"type": "base64", "media_type": "image/png", "data": PIXEL},
        {"type": "url", "url": "https://example.org/a.png"},
        {"type": "file", "file_id": "file_1"},
    ]
)


@st.composite
def user_blocks(draw: DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["text", "text", "image", "document", "container_upload"]))
    stored = draw(cached)
    if kind == "text":
        return text(draw(words), **stored)
    if kind == "image":
        return {"type": "image", "source": draw(images), **stored}
    if kind == "document":
        source = {"type": "base64", "media_type": "application/pdf", "data": PDF}
        return {"type": "document", "source": source, "title": draw(words), **stored}
    return {"type": "container_upload", "file_id": "file_1", **stored}


@st.composite
def bodies(draw: DrawFn) -> dict[str, Any]:
    """A body that the provider accepts."""
    ids = (f"toolu_{number}" for number in range(100))
    messages: list[dict[str, Any]] = []
    waiting: list[str] = []
    for _ in range(draw(st.integers(1, 5))):
        said = draw(st.lists(user_blocks(), min_size=not waiting, max_size=3))
        outputs: Any = st.sampled_from(["", "out", [], [text("out")]])
        results = [
            answer(name, draw(outputs), **draw(cached)) for name in draw(st.permutations(waiting))
        ]
        plain = not waiting and draw(st.booleans())
        whole: Any = draw(words) if plain else [*results, *said]
        messages.append({"role": "user", "content": whole})
        waiting = []
        if draw(st.integers(0, 3)) == 0:
            messages.append({"role": "user", "content": draw(words)})
        if draw(st.integers(0, 3)) == 0:
            messages.append({"role": "system", "content": draw(words)})
        if draw(st.integers(0, 3)) == 0:
            messages.append({"role": "assistant", "content": draw(words)})
            continue
        blocks: list[dict[str, Any]] = []
        if draw(st.booleans()):
            blocks.append({"type": "thinking", "thinking": "hm", "signature": "c2ln"})
        blocks.append(text(draw(words), **draw(cached)))
        waiting = [next(ids) for _ in range(draw(st.integers(0, 3)))]
        blocks += [use(name, **draw(cached)) for name in waiting]
        messages.append({"role": "assistant", "content": blocks})
    messages.append({"role": "user", "content": [*map(answer, waiting), text("so?")]})
    head: dict[str, Any] = draw(
        st.sampled_from([{}, {"system": "Be kind."}, {"system": [text("a"), text("b")]}])
    )
    return {**head, "messages": messages}


@at_least(100)
@given(body=bodies())
def test_every_body_the_provider_accepts_comes_back_to_the_letter(body: dict[str, Any]) -> None:
    assume(not anthropic_breakpoints(body))  # more than four are not accepted
    parsed = wire.from_("anthropic", body)

    assert () == check_request("anthropic", body)
    assert body == wire.to("anthropic", parsed.messages).body
    assert () == parsed.notes
