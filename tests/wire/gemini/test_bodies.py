"""Gemini contents read and written again: to the letter, wherever the provider took it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hypothesis import given as drawn
from hypothesis import strategies as st
from msgspec.structs import replace

from palaver import wire
from palaver.messages import AssistantInfo
from palaver.testing import check_request
from palaver.wire import Target
from tests.profiles import at_least
from tests.wire.gemini.test_request import OLD, PRO, STAND_IN, asked, given, parts, said, sent
from tests.wire.pieces import PDF, PIXEL, part, rules

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

BODY: Final[dict[str, Any]] = {
    "systemInstruction": {"role": "system", "parts": [said("You help."), said("Briefly.")]},
    "contents": [
        {
            "role": "user",
            "parts": [
                said("Look."),
                {"inlineData": {"mimeType": "image/png", "data": PIXEL, "displayName": "a.png"}},
                {
                    "fileData": {"mimeType": "video/mp4", "fileUri": "gs://bucket/a.mp4"},
                    "videoMetadata": {"fps": 1},
                },
                {"fileData": {"fileUri": "https://example.org/a"}},
            ],
        },
        {
            "role": "model",
            "parts": [
                said("Let me see.", thought=True),
                said("", thought=True, thoughtSignature="c2ln"),
                {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
                {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
                said("So:"),
                asked(signature=None),
                asked(signature=None),
            ],
        },
        {"role": "user", "parts": [given("one"), given("two")]},
        {"role": "user", "parts": [said("Go on.")]},
        {"role": "model", "parts": [asked(id="f1"), asked("cat", None, id="f2")]},
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "name": "cat",
                        "id": "f2",
                        "response": {"result": {"lines": [1, 2]}},
                        "parts": [{"inlineData": {"mimeType": "application/pdf", "data": PDF}}],
                    }
                },
                {"functionResponse": {"name": "ls", "id": "f1", "response": {"error": "no"}}},
            ],
        },
        {"role": "model", "parts": [said("Done.", thoughtSignature="c2ln"), said("Yes.")]},
        {"role": "user", "parts": [said("Thanks.")]},
    ],
}


def test_a_realistic_body_comes_back_to_the_letter() -> None:
    parsed = wire.from_("gemini", BODY)
    again = wire.to("gemini", parsed.messages)

    assert () == check_request("gemini", BODY)
    assert BODY == again.body
    assert () == parsed.notes
    assert () == again.notes


def test_what_a_body_says_is_there_for_other_formats() -> None:
    messages = wire.from_("gemini", BODY).messages

    assert ["system", "user", "assistant", "tool", "tool", "user", "assistant", "tool", "tool"] == [
        message.role for message in messages[:9]
    ]
    one, two, cat, broken = (part(messages[index]) for index in (3, 4, 7, 8))
    assert [part(messages[2], 5).call_id, part(messages[2], 6).call_id] == [
        one.call_id,
        two.call_id,
    ]
    assert ["one", "two"] == [one.state.output, two.state.output]
    assert '{"result":{"lines":[1,2]}}' == cat.state.output
    assert "application/pdf" == cat.state.attachments[0].mime
    assert "no" == broken.state.error


def test_both_spellings_are_read_and_one_is_written() -> None:
    image = {"inline_data": {"mime_type": "image/png", "data": PIXEL}}
    call = {"function_call": {"name": "ls", "args": {"a_b": 1}}, "thought_signature": "c2ln"}
    response = {"function_response": {"name": "ls", "response": {"output": "x"}}}
    parsed = wire.from_(
        "gemini",
        {
            "system_instruction": {"parts": [{"text": "Help."}]},
            "contents": [
                {"role": "user", "parts": [image]},
                {"role": "model", "parts": [call]},
                {"role": "user", "parts": [response]},
            ],
        },
    )

    assert {
        "systemInstruction": {"parts": [{"text": "Help."}]},
        "contents": [
            {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": PIXEL}}]},
            {
                "role": "model",
                "parts": [
                    {
                        "functionCall": {"name": "ls", "args": {"a_b": 1}},
                        "thoughtSignature": "c2ln",
                    }
                ],
            },
            {"role": "user", "parts": [given("x")]},
        ],
    } == sent(*parsed.messages).body
    assert () == parsed.notes


def test_base64_of_the_other_alphabet_is_understood_and_comes_back() -> None:
    odd = {"inlineData": {"mimeType": "image/png", "data": "-_-_YQ"}}
    body = {"contents": [{"role": "user", "parts": [odd]}]}
    parsed = wire.from_("gemini", body)

    assert "data:image/png;base64,+/+/YQ==" == part(parsed.messages[0]).url
    assert body == sent(*parsed.messages).body


def test_a_past_call_without_signature_stays_so_until_its_turn_is_open_again() -> None:
    parsed = wire.from_("gemini", BODY)
    cut = parsed.messages[:5]

    request = sent(*cut)
    assert STAND_IN == parts(request)[1][-2]["thoughtSignature"]
    assert "missing-signature" in rules(request)


def test_a_restored_signature_goes_only_to_the_model_that_made_it() -> None:
    picture = {
        "inlineData": {"mimeType": "image/png", "data": PIXEL},
        "thoughtSignature": "c2ln",
    }
    body = {
        "contents": [
            {"role": "user", "parts": [said("Draw.")]},
            {"role": "model", "parts": [picture]},
            {"role": "user", "parts": [said("Nice.")]},
        ]
    }
    ask, drawn_by, nice = wire.from_("gemini", body).messages
    drawn_by = replace(drawn_by, info=AssistantInfo(model=PRO))

    assert body == sent(ask, drawn_by, nice, target=Target(PRO)).body
    other = sent(ask, drawn_by, nice, target=Target(OLD))
    assert [{"inlineData": picture["inlineData"]}] == parts(other)[1]
    assert ["edited"] == rules(other)


def test_what_makes_no_sense_is_reported_and_the_rest_is_read() -> None:
    lost = {"functionResponse": {"name": "ls", "response": {"output": "x"}}}
    body = {
        "systemInstruction": {"parts": []},
        "contents": [
            {"parts": ["?", {}, {"text": 5}, {"text": "x"}]},
            {"role": "robot", "parts": [{"text": "beep"}]},
            {"role": "model", "parts": []},
            {"role": "model", "parts": [{"functionCall": {}}]},
            {"role": "function", "parts": [lost, {"inlineData": {"mimeType": "image/png"}}]},
            7,
        ],
    }
    parsed = wire.from_("gemini", body)

    assert ["user", "tool", "user"] == [message.role for message in parsed.messages]
    assert {"unknown-part", "role", "inexact"} == {note.rule for note in parsed.notes}


words = st.sampled_from(["hello", "你好", " ", "x\n"])
signatures = st.sampled_from([{}, {"thoughtSignature": "c2ln"}, {"thoughtSignature": "-_-_YQ"}])


@st.composite
def user_parts(draw: DrawFn) -> dict[str, Any]:
    kinds: list[dict[str, Any]] = [
        said(draw(words)),
        said(draw(words), partMetadata={"a": 1}),
        {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
        {"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.org/a"}},
    ]
    return draw(st.sampled_from(kinds))


@st.composite
def bodies(draw: DrawFn) -> dict[str, Any]:
    """A body that the provider accepts."""
    contents: list[dict[str, Any]] = []
    count = draw(st.integers(1, 4))
    for number in range(count):
        said_first = draw(st.lists(user_parts(), min_size=1, max_size=3))
        contents.append({"role": "user", "parts": said_first})
        for _ in range(draw(st.integers(0, 2))):
            tools = draw(st.lists(st.sampled_from(["ls", "cat"]), min_size=1, max_size=3))
            ids = draw(st.booleans())
            extra = [{"id": f"f{index}"} if ids else {} for index in range(len(tools))]
            sealed = number == count - 1 or draw(st.booleans())
            calls = [
                asked(tool, "c2ln" if sealed and not index else None, **extra[index])
                for index, tool in enumerate(tools)
            ]
            before = [said("hm", thought=True)] if draw(st.booleans()) else []
            contents.append({"role": "model", "parts": [*before, *calls]})
            answers = [
                given(draw(words), tool, **own) for tool, own in zip(tools, extra, strict=True)
            ]
            if ids or len(set(tools)) == len(tools):
                answers = draw(st.permutations(answers))
            contents.append({"role": "user", "parts": answers})
        contents.append({"role": "model", "parts": [said(draw(words), **draw(signatures))]})
    contents.append({"role": "user", "parts": [said("so?")]})
    head = draw(st.sampled_from([{}, {"systemInstruction": {"parts": [said("Be kind.")]}}]))
    return {**head, "contents": contents}


@at_least(100)
@drawn(body=bodies())
def test_every_body_the_provider_accepts_comes_back_to_the_letter(body: dict[str, Any]) -> None:
    parsed = wire.from_("gemini", body)

    assert () == check_request("gemini", body)
    assert body == wire.to("gemini", parsed.messages).body
    assert () == parsed.notes
