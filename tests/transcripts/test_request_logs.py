from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from palaver import wire
from palaver.errors import ValidationError
from palaver.messages import AssistantInfo, CacheCounts, ModelRef, TokenCounts, assistant, user
from palaver.transcripts import read_transcript, request_logs
from palaver.transcripts.request_logs import logged_reply
from palaver.wire.notes import Note, ParsedConversation
from tests.transcripts.samples import DATA, sample, sound, spoken

if TYPE_CHECKING:
    from collections.abc import Mapping


def said(role: str, content: object) -> dict[str, Any]:
    return {"role": role, "content": content}


def chat(*messages: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"model": "gpt-5-mini", "messages": list(messages), **more}


def read_rows(*rows: object) -> list[ParsedConversation]:
    return sound(request_logs.read("\n".join(map(json.dumps, rows)).encode()))


TEA, YES, MILK = said("user", "Tea?"), said("assistant", "Yes."), said("user", "With milk?")


def test_a_line_that_goes_on_with_another_is_the_same_conversation() -> None:
    tea, coffee = sound(read_transcript(DATA / "requests-openai.jsonl"))
    assert [
        ("system", "Be brief."),
        ("user", "Tea?"),
        ("assistant", "Yes."),
        ("user", "With milk?"),
        ("assistant", "Never."),
    ] == spoken(tea.messages)
    assert [("system", "Be brief."), ("user", "Coffee?"), ("assistant", "No.")] == spoken(
        coffee.messages
    )
    assert () == tea.notes
    assert ("gpt-5-mini", 1_772_524_800_000) == (tea.about["model"], tea.about["created"])


def test_every_reply_gives_its_answer_tokens_and_end() -> None:
    tea = read_transcript(DATA / "requests-openai.jsonl")[0]
    first, second = (m.info for m in tea.messages if isinstance(m.info, AssistantInfo))
    assert TokenCounts(12, 5, 0, CacheCounts(8, 0)) == first.tokens
    assert TokenCounts(40, 6, 0, CacheCounts(0, 0)) == second.tokens
    assert ("stop", "stop") == (first.finish, second.finish)


def test_requests_to_anthropic_are_read_too() -> None:
    tea, coffee = sound(read_transcript(DATA / "requests-anthropic.jsonl"))
    assert ["Be brief.", "Tea?", "Yes.", "With milk?"] == [m.text for m in tea.messages]
    assert ["Be brief.", "Coffee?"] == [m.text for m in coffee.messages]


def test_an_earlier_beginning_said_otherwise_is_another_conversation() -> None:
    otherwise = chat(TEA, said("assistant", "No."), MILK)
    conversations = read_rows(chat(TEA), chat(TEA, YES, MILK), otherwise)
    assert ["Yes.", "No."] == [parsed.messages[1].text for parsed in conversations]


def test_a_line_goes_on_with_the_conversation_that_it_shares_most_with() -> None:
    long, short = read_rows(chat(TEA, YES, MILK), chat(TEA), chat(TEA, YES, MILK, YES, TEA))
    assert [5, 1] == [len(long.messages), len(short.messages)]


def test_conversations_may_take_turns_in_a_log() -> None:
    other = said("user", "Coffee?")
    conversations = read_rows(chat(TEA), chat(other), chat(TEA, YES, MILK), chat(other, YES, MILK))
    assert [3, 3] == [len(parsed.messages) for parsed in conversations]


def answered(text: str, *messages: dict[str, Any]) -> dict[str, Any]:
    response = {"choices": [{"message": said("assistant", text)}]}
    return {"request": chat(*messages), "response": response}


def test_a_request_that_is_sent_again_with_another_reply_is_another_conversation() -> None:
    yes, no = read_rows(
        answered("Yes.", TEA),
        answered("No.", TEA),
        answered("No.", TEA),
        answered("Never.", TEA, YES, MILK),
        answered("Why?", TEA, said("assistant", "No."), MILK),
    )
    assert ["Tea?", "Yes.", "With milk?", "Never."] == [m.text for m in yes.messages]
    assert ["Tea?", "No.", "With milk?", "Why?"] == [m.text for m in no.messages]
    assert () == yes.notes


def test_a_reply_may_be_quoted_back_in_another_form() -> None:
    blocks = said("assistant", [{"type": "text", "text": "No."}])
    conversations = read_rows(
        answered("Yes.", TEA), answered("No.", TEA), chat(TEA, YES, MILK), chat(TEA, blocks, MILK)
    )
    assert ["Yes.", "No."] == [parsed.messages[1].text for parsed in conversations]


def test_a_reply_that_was_not_taken_up_is_noted() -> None:
    (parsed,) = read_rows(answered("Yes.", TEA), answered("Both.", TEA, MILK))
    assert ["Tea?", "With milk?", "Both."] == [message.text for message in parsed.messages]
    detail = "another reply took the place of the one to line 1"
    assert (Note("lost", "line 2", "transcript.branch", detail),) == parsed.notes


def test_a_reply_continues_a_conversation_that_is_quoted_back_word_for_word() -> None:
    response = {"choices": [{"message": YES}]}
    (parsed,) = read_rows(
        {"request": chat(TEA), "response": response}, {"request": chat(TEA, YES, MILK)}
    )
    assert 3 == len(parsed.messages)


def test_instructions_that_change_are_noted() -> None:
    (parsed,) = read_rows(
        chat(TEA, instructions="Be brief."), chat(TEA, YES, MILK, instructions="Be long.")
    )
    assert "transcript.instructions" in [note.rule for note in parsed.notes]


def test_bodies_may_be_wrapped_as_http_clients_do() -> None:
    row = {
        "request": {"method": "POST", "body": chat(TEA)},
        "response": {"status": 200, "json": {"choices": [{"message": YES}]}},
        "ts": 1_700_000_000,
    }
    (parsed,) = read_rows(row)
    assert [("user", "Tea?"), ("assistant", "Yes.")] == spoken(parsed.messages)
    assert 1_700_000_000_000 == parsed.about["created"]


def test_a_line_that_is_no_request_is_noted_and_the_rest_is_read() -> None:
    damaged = sample("requests-openai.jsonl") + b'{"hello": 1}\n{"request": {"mess'
    tea, _coffee = sound(request_logs.read(damaged))
    assert 5 == len(tea.messages)
    assert ["line 4", "line 5"] == [note.where for note in tea.notes]


def test_a_log_of_nothing_but_damage_still_tells_it() -> None:
    (parsed,) = read_rows({"hello": 1})
    assert ((), 1) == (parsed.messages, len(parsed.notes))


def test_a_body_that_its_reader_refuses_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_form: str, body: Mapping[str, Any]) -> ParsedConversation:
        if body["messages"] == [TEA]:
            raise ValidationError("is no good")
        return ParsedConversation((user("hi"),))

    log = "\n".join(map(json.dumps, (chat(TEA), chat(MILK)))).encode()
    monkeypatch.setattr(wire, "from_", refuse)
    (parsed,) = request_logs.read(log)
    assert ["line 1"] == [note.where for note in parsed.notes]


def test_what_the_body_says_of_an_answer_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    known = AssistantInfo(model=ModelRef("openai", "mine"))

    def bodies(_form: str, _body: Mapping[str, Any]) -> ParsedConversation:
        return ParsedConversation((assistant("a", info=known), assistant("b"), assistant("c")))

    response = {"model": "theirs", "choices": [{"message": YES}]}
    rows = [{"request": chat(TEA, YES), "response": response}, chat(TEA, YES, YES)]
    log = "\n".join(map(json.dumps, rows)).encode()
    monkeypatch.setattr(wire, "from_", bodies)
    (parsed,) = request_logs.read(log)
    models = [getattr(message.info, "model", None) for message in parsed.messages]
    assert [ModelRef("openai", "mine"), ModelRef("openai", "theirs"), None] == models


@pytest.mark.parametrize(
    ("form", "response", "expected"),
    [
        (
            "anthropic",
            {
                "model": "claude-x",
                "content": [{"type": "text", "text": "Yes."}],
                "stop_reason": "end_turn",
                "usage": {"input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 3},
            },
            ("assistant", "anthropic", TokenCounts(5, 3, 0, CacheCounts(7, 0)), "stop"),
        ),
        (
            "openai-responses",
            {
                "model": "gpt-x",
                "output": [{"role": "assistant", "type": "message", "content": []}],
                "status": "completed",
                "usage": {
                    "input_tokens": 9,
                    "output_tokens": 8,
                    "output_tokens_details": {"reasoning_tokens": 5},
                },
            },
            ("assistant", "openai", TokenCounts(9, 3, 5, CacheCounts(0, 0)), "stop"),
        ),
        (
            "gemini",
            {
                "modelVersion": "gemini-x",
                "candidates": [{"content": {"parts": [{"text": "Yes."}]}, "finishReason": "STOP"}],
                "usageMetadata": {
                    "promptTokenCount": 9,
                    "candidatesTokenCount": 3,
                    "thoughtsTokenCount": 2,
                },
            },
            ("model", "google", TokenCounts(9, 3, 2, CacheCounts(0, 0)), "stop"),
        ),
    ],
)
def test_replies_of_each_provider(form: str, response: dict[str, Any], expected: object) -> None:
    reply = logged_reply(form, response)
    assert reply is not None
    assert reply.model is not None
    found = (reply.items[0]["role"], reply.model.provider_id, reply.tokens, reply.finish)
    assert expected == found


@pytest.mark.parametrize("form", ["openai-chat", "anthropic", "openai-responses", "gemini"])
@pytest.mark.parametrize("response", [{}, {"error": {"message": "overloaded"}}])
def test_an_error_is_no_reply(form: str, response: dict[str, Any]) -> None:
    assert logged_reply(form, response) is None


def test_a_prompt_that_is_bare_text_is_a_users_message() -> None:
    row = {"model": "gpt-5-mini", "input": "Tea?"}
    for data in (row, {"request": row}):
        (parsed,) = read_transcript(json.dumps(data).encode())
        assert [("user", "Tea?")] == spoken(parsed.messages)
