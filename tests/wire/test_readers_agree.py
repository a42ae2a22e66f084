"""One reader for each format: a reply, a stream, a request body, a log and a transcript agree.

The same content is read in every way that palaver reads it, and must give the same parts, tokens
and reason to end. Where the ways once differed, what is stored now is what the most complete one
stored.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from palaver import wire
from palaver.messages import (
    AssistantInfo,
    Message,
    ToolCallPart,
    ToolCompleted,
    ToolPart,
    to_dict,
)
from palaver.transcripts import read_transcript

ASKED = {"role": "user", "content": "Well?"}
CITATION = {"type": "char_location", "cited_text": "tea", "document_index": 0}
ANTHROPIC_BLOCKS: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "c2VhbGVk"},
    {"type": "text", "text": "Tea.", "citations": [CITATION]},
    {
        "type": "tool_use",
        "id": "c1",
        "name": "pour",
        "input": {"cups": 2},
        "caller": {"type": "direct"},
    },
]
ANTHROPIC_USAGE = {
    "input_tokens": 5,
    "cache_read_input_tokens": 7,
    "cache_creation_input_tokens": 2,
    "output_tokens": 9,
    "output_tokens_details": {"thinking_tokens": 4},
}
ANTHROPIC_REPLY = {
    "model": "claude-x",
    "role": "assistant",
    "content": ANTHROPIC_BLOCKS,
    "stop_reason": "tool_use",
    "usage": ANTHROPIC_USAGE,
}
ITEMS: list[dict[str, Any]] = [
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "content": [{"type": "reasoning_text", "text": "Tea or coffee?"}],
        "encrypted_content": "c2VhbGVk",
    },
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [
            {"type": "output_text", "text": "Tea.", "annotations": [{"type": "url_citation"}]},
            {"type": "refusal", "refusal": "No coffee."},
        ],
    },
    {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": "c1",
        "name": "patch",
        "input": "*** Begin",
    },
]


def said(message: Message) -> list[Any]:
    """What the parts of a message say, without the ids and times that differ."""
    parts = [to_dict(part) for part in message.parts]
    for part in parts:
        for name in ("id", "sessionID", "messageID", "time"):
            part.pop(name, None)
    return parts


def ended(message: Message) -> Any:  # noqa: ANN401 - tokens and reason
    """The tokens of an answer, and why it ended."""
    assert isinstance(message.info, AssistantInfo)
    return message.info.tokens, message.info.finish


def logged(request: dict[str, Any], response: dict[str, Any]) -> Message:
    """The answer in a log of requests."""
    row = json.dumps({"request": request, "response": response}).encode()
    (found,) = read_transcript(row, "requests")
    return found.messages[-1]


def test_an_answer_of_anthropic_reads_the_same_everywhere() -> None:
    live = wire.reply("anthropic", ANTHROPIC_REPLY)
    reader = wire.reply_reader("anthropic")
    reader.feed({"type": "message_start", "message": {**ANTHROPIC_REPLY, "content": []}})
    for index, block in enumerate(ANTHROPIC_BLOCKS):
        reader.feed({"type": "content_block_start", "index": index, "content_block": block})
        reader.feed({"type": "content_block_stop", "index": index})
    reader.feed({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})
    answer = {"role": "assistant", "content": ANTHROPIC_BLOCKS}
    body = wire.from_("anthropic", {"model": "claude-x", "messages": [ASKED, answer]})
    request = {"model": "claude-x", "messages": [ASKED], "max_tokens": 9}
    line = {"type": "assistant", "uuid": "u1", "sessionId": "s1", "message": ANTHROPIC_REPLY}
    (session,) = read_transcript(json.dumps(line).encode(), "claude-code")
    log = logged(request, ANTHROPIC_REPLY)

    for message in (reader.message(), body.messages[-1], log, session.messages[-1]):
        assert said(live) == said(message)
    for message in (reader.message(), log, session.messages[-1]):
        assert ended(live) == ended(message)


def test_an_answer_of_responses_reads_the_same_everywhere() -> None:
    usage = {
        "input_tokens": 9,
        "output_tokens": 8,
        "output_tokens_details": {"reasoning_tokens": 5},
    }
    response = {"model": "gpt-x", "output": ITEMS, "status": "completed", "usage": usage}
    live = wire.reply("openai-responses", response)
    reader = wire.reply_reader("openai-responses")
    for index, item in enumerate(ITEMS):
        reader.feed({"type": "response.output_item.done", "output_index": index, "item": item})
    reader.feed({"type": "response.completed", "response": {**response, "output": []}})
    body = wire.from_("openai-responses", [ASKED, *ITEMS])
    log = logged({"model": "gpt-x", "input": [ASKED]}, response)
    rows = "\n".join(json.dumps({"type": "response_item", "payload": item}) for item in ITEMS)
    (session,) = read_transcript(rows.encode(), "codex")

    for message in (reader.message(), body.messages[-1], log, session.messages[-1]):
        assert said(live) == said(message)
    for message in (reader.message(), log):
        assert ended(live) == ended(message)


def test_an_answer_of_chat_reads_the_same_everywhere() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "pour", "arguments": "{}"}}
    answer = {
        "role": "assistant",
        "reasoning_content": "Hm.",
        "content": "Tea.",
        "refusal": "No coffee.",
        "tool_calls": [call],
    }
    usage = {
        "prompt_tokens": 20,
        "completion_tokens": 9,
        "prompt_cache_hit_tokens": 8,
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    response = {
        "model": "m",
        "choices": [{"message": answer, "finish_reason": "tool_calls"}],
        "usage": usage,
    }
    live = wire.reply("openai-chat", response)
    reader = wire.reply_reader("openai-chat")
    reader.feed({**response, "choices": [{"delta": answer, "finish_reason": "tool_calls"}]})
    body = wire.from_("openai-chat", {"model": "m", "messages": [ASKED, answer]})
    log = logged({"model": "m", "messages": [ASKED]}, response)

    for message in (reader.message(), body.messages[-1], log):
        assert said(live) == said(message)
    for message in (reader.message(), log):
        assert ended(live) == ended(message)


def test_an_answer_of_gemini_reads_the_same_everywhere() -> None:
    parts = [
        {"text": "Hm.", "thought": True, "thoughtSignature": "c2ln"},
        {"text": "Tea."},
        {"functionCall": {"id": "c1", "name": "pour", "args": {"cups": 2}}},
        {"fileData": {"mimeType": "image/png", "fileUri": "https://example.org/a.png"}},
        {"executableCode": {"code": "1", "language": "PYTHON"}},
    ]
    usage = {"promptTokenCount": 9, "toolUsePromptTokenCount": 2, "candidatesTokenCount": 3}
    response = {
        "modelVersion": "gemini-x",
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
        "usageMetadata": usage,
    }
    asked = {"role": "user", "parts": [{"text": "Well?"}]}
    live = wire.reply("gemini", response)
    body = wire.from_("gemini", {"contents": [asked, {"role": "model", "parts": parts}]})
    log = logged({"model": "gemini-x", "contents": [asked]}, response)

    for message in (body.messages[-1], log):
        assert said(live) == said(message)
    assert ended(live) == ended(log)


RESULT = {
    "type": "tool_result",
    "tool_use_id": "c1",
    "content": [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
        {"type": "tool_reference", "tool_name": "pour"},
    ],
}


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("content", [RESULT["content"], "", [RESULT["content"][2]]])
def test_a_result_reads_the_same_in_a_body_and_in_a_transcript(
    content: Any,  # noqa: ANN401 - JSON
    *,
    failed: bool,
) -> None:
    """Texts stay apart, errors stay errors, and nothing beside them is lost."""
    block = {**RESULT, "content": content, "is_error": failed}
    body = wire.from_("anthropic", [ASKED, {"role": "user", "content": [block]}])
    message = {"role": "user", "content": [block]}
    line = {"type": "user", "uuid": "u1", "sessionId": "s1", "message": message}
    (session,) = read_transcript(json.dumps(line).encode(), "claude-code")
    (read,), (written,) = body.messages[-1].parts, session.messages[-1].parts

    assert isinstance(read, ToolPart)
    assert isinstance(written, ToolPart)
    assert facts(read) == facts(written)
    assert ("error" if failed else "completed") == read.state.status
    if isinstance(content, list) and len(content) > 1:
        assert "a\nb" in facts(read)
        assert {"content": [RESULT["content"][3]]} == read.metadata["anthropic"]


def facts(part: ToolPart) -> list[Any]:
    """What a result says, without ids and times."""
    state = part.state
    files = getattr(state, "attachments", None) or part.metadata.get("attachments") or ()
    return [
        state.status,
        getattr(state, "output", None) or getattr(state, "error", None),
        [file["url"] if isinstance(file, dict) else file.url for file in files],
        part.metadata.get("anthropic"),
    ]


def test_a_call_of_the_older_chat_interface_has_its_result() -> None:
    called = {"name": "f", "arguments": "{}"}
    body = {
        "messages": [
            ASKED,
            {"role": "assistant", "content": None, "function_call": called},
            {"role": "function", "name": "f", "content": "4"},
        ]
    }
    _asked, answer, result = wire.from_("openai-chat", body).messages
    (call,), (given,) = answer.parts, result.parts

    assert isinstance(call, ToolCallPart)
    assert isinstance(given, ToolPart)
    assert isinstance(given.state, ToolCompleted)
    assert ("f", "4") == (call.tool, given.state.output)
    assert call.call_id == given.call_id
