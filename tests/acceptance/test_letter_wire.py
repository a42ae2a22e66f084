"""Free-form tool input, one reader for each format, and usage that says nothing: to the letter."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from palaver import wire
from palaver.cli.app import app
from palaver.messages import (
    AssistantInfo,
    Message,
    TokenCounts,
    ToolCallPart,
    ToolCompleted,
    ToolPart,
    new_id,
    parse_message,
    reasoning_part,
    to_dict,
    tool_call_part,
    user,
)
from palaver.messages.codec import to_content
from palaver.messages.parts import CacheCounts, ModelRef
from palaver.testing import check_request
from palaver.transcripts import read_transcript

if TYPE_CHECKING:
    from pathlib import Path

PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-one\n+two \U0001f375\n*** End Patch"
FORMATS = list(wire.FORMATS)


def session() -> bytes:
    """A session of Codex: a patch as free text, and a call whose arguments are no JSON."""
    items: list[dict[str, Any]] = [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Change it."}],
        },
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": PATCH},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done."},
        {"type": "function_call", "call_id": "c2", "name": "shell", "arguments": '{"cmd": "ls'},
        {"type": "function_call_output", "call_id": "c2", "output": "no JSON"},
    ]
    lines = ({"type": "response_item", "payload": item} for item in items)
    return "\n".join(json.dumps(line) for line in lines).encode()


def calls(messages: tuple[Message, ...]) -> list[tuple[str, str, dict[str, Any]]]:
    """The calls of a conversation: tool, what the model wrote, what palaver understood."""
    return [
        (part.tool, part.raw, dict(part.input))
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]


# ── free-form tool input ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", FORMATS)
def test_free_form_input_is_carried_by_every_format_and_read_back(form: str) -> None:
    (parsed,) = read_transcript(session(), "codex")
    request = wire.to(form, parsed.messages)
    again = wire.from_(form, request.body)

    expected: list[Any] = [("apply_patch", PATCH, {}), ("shell", '{"cmd": "ls', {})]
    assert expected == calls(parsed.messages)
    assert expected == calls(again.messages)
    assert () == check_request(form, request.body)
    assert request.body == wire.to(form, again.messages).body
    assert [] == [note for note in request.notes if note.rule == "unknown-part"]


def test_free_form_input_stands_where_the_format_has_a_place_for_it() -> None:
    (parsed,) = read_transcript(session(), "codex")

    items = wire.to("openai-responses", parsed.messages).body["input"]
    called = {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": PATCH}
    assert called == items[1]
    output = {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done."}
    assert output == items[2]
    messages = wire.to("openai-chat", parsed.messages).body["messages"]
    custom = {"name": "apply_patch", "input": PATCH}
    assert [{"id": "c1", "type": "custom", "custom": custom}] == messages[1]["tool_calls"]


@pytest.mark.parametrize("form", ["anthropic", "gemini"])
def test_free_form_input_is_wrapped_elsewhere_with_a_note(form: str) -> None:
    (parsed,) = read_transcript(session(), "codex")
    request = wire.to(form, parsed.messages)
    back = wire.to("openai-responses", wire.from_(form, request.body).messages)

    assert json.dumps({"freeform_input": PATCH})[1:-1] in json.dumps(request.body)
    noted = [note for note in request.repairs if note.rule == "freeform-input"]
    assert ["apply_patch", "shell"] == [note.detail.split(":")[0].split()[-1] for note in noted]
    kinds = [item.get("type") for item in back.body["input"]]
    assert "custom_tool_call" in kinds
    assert "custom_tool_call_output" in kinds


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("raw", ["", '{ "cups": 2 }', "[1]", '"two"', "5", "null"])
def test_free_form_input_is_read_back_whatever_it_looks_like(form: str, raw: str) -> None:
    item = {"type": "custom_tool_call", "call_id": "c1", "name": "pour", "input": raw}
    messages = wire.from_("openai-responses", [{"role": "user", "content": "Tea?"}, item]).messages
    body = wire.to(form, messages).body
    again = wire.from_(form, body).messages
    back = wire.to("openai-responses", again).body["input"]

    assert calls(messages) == calls(again)
    assert raw == calls(again)[0][1]
    assert ("custom_tool_call", "pour", raw) in [
        (found.get("type"), found.get("name"), found.get("input")) for found in back
    ]


@pytest.mark.parametrize("form", FORMATS)
def test_strict_passes_where_a_patch_is_carried_and_the_patch_is_there(
    form: str, tmp_path: Path
) -> None:
    source, target = tmp_path / "rollout.jsonl", tmp_path / "out.json"
    source.write_bytes(session())
    command = ["convert", str(source), "--to", form, "--strict", "--output", str(target)]
    result = CliRunner().invoke(app, command)

    assert 0 == result.exit_code, result.stderr
    parsed = wire.from_(form, json.loads(target.read_text("utf-8")))
    assert [PATCH, '{"cmd": "ls'] == [raw for _, raw, _ in calls(parsed.messages)]


@pytest.mark.parametrize("form", FORMATS)
def test_strict_refuses_a_conversion_that_loses_something(form: str, tmp_path: Path) -> None:
    """Reasoning of another provider has no place: nothing is written."""
    thought = Message("assistant", (reasoning_part(new_id(), new_id(), "Hm."),))
    source = tmp_path / "messages.json"
    source.write_text(json.dumps([to_dict(user("Tea?")), to_dict(thought)]), "utf-8")
    target = tmp_path / "out.json"
    command = ["convert", str(source), "--to", form, "--strict", "--output", str(target)]
    result = CliRunner().invoke(app, command)

    assert result.exit_code != 0
    assert not target.exists()


def test_a_call_gives_its_arguments_as_an_object_whatever_the_model_wrote() -> None:
    call = tool_call_part(new_id(), new_id(), "apply_patch", {}, raw=PATCH)

    assert {"freeform_input": PATCH} == call.arguments
    assert {} == tool_call_part(new_id(), new_id(), "clock", {}, raw="").arguments
    assert {"cups": 2} == tool_call_part(new_id(), new_id(), "pour", {"cups": 2}).arguments


def test_the_content_list_carries_free_form_input_too() -> None:
    call = tool_call_part(new_id(), new_id(), "apply_patch", {}, call_id="c1", raw=PATCH)
    content, left_out = to_content(Message("assistant", (call,)))
    again = parse_message({"role": "assistant", "content": content})

    assert () == left_out
    assert [("apply_patch", PATCH, {})] == calls((again,))


# ── usage that says nothing, or only a total ─────────────────────────────────────────────────────


def reply_with(form: str, usage: Any) -> AssistantInfo:  # noqa: ANN401 - JSON
    """What is known of a short answer with this usage."""
    replies: dict[str, dict[str, Any]] = {
        "openai-chat": {
            "choices": [{"message": {"content": "Tea."}, "finish_reason": "stop"}],
            "usage": usage,
        },
        "openai-responses": {
            "output": [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "Tea."}],
                }
            ],
            "status": "completed",
            "usage": usage,
        },
        "anthropic": {
            "content": [{"type": "text", "text": "Tea."}],
            "stop_reason": "end_turn",
            "usage": usage,
        },
        "gemini": {
            "candidates": [{"content": {"parts": [{"text": "Tea."}]}, "finishReason": "STOP"}],
            "usageMetadata": usage,
        },
    }
    info = wire.reply(form, replies[form]).info
    assert isinstance(info, AssistantInfo)
    return info


FIGURES: dict[str, tuple[str, ...]] = {
    "openai-chat": ("prompt_tokens", "completion_tokens", "total_tokens"),
    "openai-responses": ("input_tokens", "output_tokens", "total_tokens"),
    "anthropic": ("input_tokens", "output_tokens"),
    "gemini": ("promptTokenCount", "candidatesTokenCount", "totalTokenCount"),
}


@pytest.mark.parametrize("figure", [0, None, "many", {}])
@pytest.mark.parametrize("form", FORMATS)
def test_a_usage_of_zeros_or_nulls_is_no_usage(form: str, figure: object) -> None:
    assert reply_with(form, dict.fromkeys(FIGURES[form], figure)).tokens is None
    assert reply_with(form, {}).tokens is None
    assert reply_with(form, None).tokens is None


@pytest.mark.parametrize("form", ["openai-chat", "openai-responses", "gemini"])
def test_a_usage_with_only_a_total_is_that_many_tokens(form: str) -> None:
    prompt, output, total = FIGURES[form]
    tokens = reply_with(form, {total: 29}).tokens

    assert TokenCounts(29, 0, 0, CacheCounts(), 29) == tokens
    assert tokens == reply_with(form, {prompt: None, output: None, total: 29}).tokens


@pytest.mark.parametrize("form", ["openai-chat", "openai-responses", "gemini"])
def test_the_figure_that_is_missing_follows_from_the_others(form: str) -> None:
    prompt, output, total = FIGURES[form]

    assert TokenCounts(20, 9, 0, CacheCounts()) == reply_with(form, {prompt: 20, total: 29}).tokens
    assert TokenCounts(20, 9, 0, CacheCounts()) == reply_with(form, {output: 9, total: 29}).tokens


def test_a_stream_whose_usage_is_empty_tells_of_no_usage() -> None:
    reader = wire.reply_reader("openai-chat")
    usage = {"prompt_tokens": 0, "completion_tokens": 0}
    deltas = reader.feed({"choices": [{"delta": {"content": "Tea."}}], "usage": usage})

    assert ["TextDelta"] == [type(delta).__name__ for delta in deltas]


# ── one format, one reader ───────────────────────────────────────────────────────────────────────

USAGE = [
    (
        "openai-chat",
        {"prompt_tokens": 20, "completion_tokens": 9, "prompt_cache_hit_tokens": 8},
        TokenCounts(12, 9, 0, CacheCounts(8, 0)),
    ),
    (
        "openai-chat",
        {
            "prompt_tokens": 20,
            "completion_tokens": 9,
            "total_tokens": 32,
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
        TokenCounts(20, 9, 3, CacheCounts()),
    ),
    (
        "anthropic",
        {
            "input_tokens": 5,
            "output_tokens": 9,
            "output_tokens_details": {"thinking_tokens": 4},
            "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4},
        },
        TokenCounts(5, 5, 4, CacheCounts(0, 7)),
    ),
    (
        "gemini",
        {"promptTokenCount": 9, "toolUsePromptTokenCount": 2, "candidatesTokenCount": 3},
        TokenCounts(11, 3, 0, CacheCounts()),
    ),
]


@pytest.mark.parametrize(("form", "usage", "expected"), USAGE)
def test_the_five_counts_of_each_provider(
    form: str, usage: dict[str, Any], expected: TokenCounts
) -> None:
    assert expected == reply_with(form, usage).tokens


def test_an_answer_that_was_aborted_ends_as_one_that_broke_off_live() -> None:
    item = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Te"}],
    }
    lines = [
        {"type": "response_item", "payload": item},
        {"type": "event_msg", "payload": {"type": "turn_aborted"}},
    ]
    data = "\n".join(json.dumps(line) for line in lines).encode()
    (found,) = read_transcript(data, "codex")
    reader = wire.reply_reader("openai-chat")
    reader.feed({"choices": [{"delta": {"content": "Te"}}]})

    for message in (found.messages[-1], reader.message()):
        assert isinstance(message.info, AssistantInfo)
        assert "interrupted" == message.info.finish


def test_the_texts_of_a_result_stand_on_lines_of_their_own_in_a_content_list() -> None:
    result = {"tool_use_id": "c1", "content": [{"type": "text", "text": text} for text in "ab"]}
    message = parse_message(
        {"role": "tool", "content": [{"type": "tool_result", "tool_result": result}]}
    )
    (part,) = message.parts

    assert isinstance(part, ToolPart)
    assert isinstance(part.state, ToolCompleted)
    assert "a\nb" == part.state.output


def test_a_log_reads_an_answer_in_the_format_in_which_it_came() -> None:
    """A gateway takes a Claude model in OpenAI's format: the response tells which it was."""
    request = {"model": "claude-x", "messages": [{"role": "user", "content": "Tea?"}]}
    said = {"role": "assistant", "content": "Yes."}
    response = {"choices": [{"message": said, "finish_reason": "stop"}]}
    row = json.dumps({"request": request, "response": response}).encode()
    (found,) = read_transcript(row, "requests")

    assert ["Tea?", "Yes."] == [message.text for message in found.messages]
    assert "openai-chat" == found.about["format"]


# ── what is written is read ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("model", ["deepseek-x", None])
def test_reasoning_that_chat_is_sent_is_read_again(field: str, model: str | None) -> None:
    said = {"role": "assistant", "content": "Tea.", field: "Hm."}
    ref = ModelRef("openai", "deepseek-x")
    body = {"choices": [{"message": said, "finish_reason": "stop"}]}
    answer = wire.reply("openai-chat", body, model=ref)
    sent = wire.to("openai-chat", [user("Well?"), answer], wire.Target(ref)).body
    parsed = wire.from_("openai-chat", {**sent, **({"model": model} if model else {})})

    assert "Hm." == sent["messages"][1][field]
    assert ["reasoning", "text"] == [part.type for part in parsed.messages[-1].parts]
    assert () == parsed.notes


def test_a_result_that_is_left_out_is_a_loss(tmp_path: Path) -> None:
    file = tmp_path / "orphan.json"
    orphan = {"role": "tool", "tool_call_id": "q", "content": "said by nobody"}
    file.write_text(json.dumps({"messages": [{"role": "user", "content": "x"}, orphan]}))
    for form in wire.FORMATS:
        done = CliRunner().invoke(app, ["convert", str(file), "--to", form, "--strict"])
        assert 1 == done.exit_code
        assert "1 thing is lost and --strict" in done.stderr
