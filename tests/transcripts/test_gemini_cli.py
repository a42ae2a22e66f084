from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from palaver.messages import (
    AssistantInfo,
    CacheCounts,
    FilePart,
    ReasoningPart,
    TextPart,
    TokenCounts,
    ToolCallPart,
    ToolError,
    ToolPart,
    UnknownPart,
)
from palaver.messages.parts import CompactionPart
from palaver.transcripts import gemini_cli, read_transcript
from tests.transcripts.samples import sample, sound, spoken

if TYPE_CHECKING:
    from palaver.wire.notes import ParsedConversation

SAID = [
    ("user", "Is the water hot?"),
    ("assistant", "I'll look."),
    ("tool", "98 °C"),
    ("tool", "no cup"),
]


def read(name: str) -> ParsedConversation:
    (parsed,) = sound(gemini_cli.read(sample(name)))
    return parsed


def read_messages(*messages: dict[str, Any]) -> ParsedConversation:
    document = {"sessionId": "s", "projectHash": "h", "messages": list(messages)}
    (parsed,) = sound(gemini_cli.read(json.dumps(document).encode()))
    return parsed


def answer(**fields: object) -> dict[str, Any]:
    return {"id": "g", "type": "gemini", "content": "", **fields}


def test_a_document_is_read() -> None:
    parsed = read("gemini-cli.json")
    assert [*SAID, ("assistant", "It is hot.")] == spoken(parsed.messages)
    assert {
        "id": "7f0c1e6a-0000-4000-8000-000000000001",
        "title": "The hot water",
        "created": 1772355600000,
        "model": "gemini-3-pro",
    } == parsed.about
    assert ["transcript.record"] == [note.rule for note in parsed.notes]


def test_a_log_is_followed_and_what_was_compressed_stays() -> None:
    parsed = read("gemini-cli.jsonl")
    assert [
        ("user", "<session_context>\nLinux.\n</session_context>"),
        *SAID,
        ("user", "And the cup?"),
        ("user", "<state_snapshot>Hot water, no cup.</state_snapshot>"),
        ("assistant", ""),
        ("tool", "two cups"),
        ("user", ""),
        ("assistant", "Two cups."),
    ] == spoken(parsed.messages)
    context, snapshot = parsed.messages[0].parts[0], parsed.messages[6].parts
    assert isinstance(context, TextPart)
    assert context.synthetic
    assert isinstance(snapshot[0], CompactionPart)
    thought, call = parsed.messages[7].parts
    assert isinstance(thought, ReasoningPart)
    assert isinstance(call, ToolCallPart)
    assert {"google": {"thoughtSignature": "c2ln", "id": "look-3"}} == call.metadata
    assert isinstance(parsed.messages[9].parts[0], FilePart)
    (note,) = parsed.notes
    assert ("line 8", "transcript.branch") == (note.where, note.rule)


def test_an_answer_has_its_tokens_thoughts_and_calls() -> None:
    message = read("gemini-cli.json").messages[1]
    assert isinstance(message.info, AssistantInfo)
    assert TokenCounts(80, 9, 5, CacheCounts(40, 0)) == message.info.tokens
    kinds = [ReasoningPart, TextPart, ToolCallPart, ToolCallPart]
    assert kinds == [type(part) for part in message.parts]


def test_a_failed_call_says_why_and_what_the_person_saw_is_kept() -> None:
    part = read("gemini-cli.json").messages[3].parts[0]
    assert isinstance(part, ToolPart)
    assert isinstance(part.state, ToolError)
    assert {"gemini-cli": {"resultDisplay": {"fileDiff": "-tea\n+spilt"}}} == part.metadata


def test_a_call_may_have_no_result_or_only_what_was_shown() -> None:
    open_call = {"id": "c1", "name": "look", "args": {}, "status": "executing"}
    stopped = {"id": "c2", "name": "pour", "status": "cancelled", "resultDisplay": "Stopped."}
    drawn = {"name": "draw", "status": "success", "resultDisplay": {"diff": "x"}}
    parsed = read_messages(answer(toolCalls=[open_call, stopped, drawn, 7]))
    assert ["tool", "tool"] == [message.role for message in parsed.messages[1:]]
    assert [("tool", "Stopped."), ("tool", '{"diff":"x"}')] == spoken(parsed.messages[1:])
    assert ["transcript.open"] == [note.rule for note in parsed.notes]


def test_a_result_is_made_of_its_own_parts() -> None:
    def response(name: str, output: str) -> dict[str, Any]:
        return {"functionResponse": {"id": name, "name": "look", "response": {"output": output}}}

    together = [response("c1", "one"), response("c2", "two"), {"text": "more"}, {"odd": 1}]
    image = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    calls = [
        {"id": "c1", "name": "look", "result": [*together, image]},
        {"id": "c2", "name": "look", "result": "plain"},
    ]
    again = {"id": "u", "type": "user", "content": [response("c1", "other"), response("", "lone")]}
    parsed = read_messages(answer(toolCalls=calls), again)
    assert [
        ("tool", 'one\nmore\n{"odd":1}'),
        ("tool", "plain"),
        ("tool", "other"),
        ("tool", "lone"),
    ] == spoken(parsed.messages[1:])


def test_what_is_odd_is_noted_or_kept_whole() -> None:
    parsed = read_messages(
        {"id": "a", "type": "robot", "content": "beep"},
        {"id": "b", "type": "user", "content": [{"functionCall": 7}, "hi", 5]},
        answer(),
        {"id": "c", "type": "user", "content": {"text": "alone"}},
        answer(id="d", toolCalls=[{"id": "x" * 9999, "name": "look", "result": ["ok"]}]),
    )
    assert ["hi", "alone"] == [message.text for message in parsed.messages[:2]]
    assert isinstance(parsed.messages[0].parts[0], UnknownPart)
    assert ["transcript.record"] == [note.rule for note in parsed.notes]


def test_a_record_that_says_less_is_noted() -> None:
    rows = [
        {"sessionId": "s", "projectHash": "h"},
        {"id": "a", "type": "user", "content": "the whole question"},
        {"id": "a", "type": "user", "content": "masked"},
        answer(toolCalls=[{"id": "c", "name": "look", "result": ["long"]}]),
        answer(toolCalls=[{"id": "c", "name": "look", "result": ["short"]}]),
        {"unknown": True},
        {"$rewindTo": "nowhere"},
        {"id": "b", "type": "user", "content": "anew"},
    ]
    (parsed,) = sound(gemini_cli.read("\n".join(map(json.dumps, rows)).encode()))
    assert ["anew"] == [message.text for message in parsed.messages]
    assert [
        ("line 2", "transcript.replaced"),
        ("line 4", "transcript.replaced"),
        ("line 7", "transcript.branch"),
        ("line 6", "transcript.record"),
    ] == [(note.where, note.rule) for note in parsed.notes]


def test_a_saved_chat_is_a_list_of_contents() -> None:
    saved = [{"role": "user", "parts": [{"text": "hi"}]}]
    (parsed,) = read_transcript(json.dumps(saved).encode())
    assert "hi" == parsed.messages[0].text
