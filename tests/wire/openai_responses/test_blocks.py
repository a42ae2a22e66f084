"""Items of OpenAI Responses, read: one answer is one message, and comes back to the letter."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from palaver import wire
from palaver.errors import ValidationError
from tests.wire.conversations import PIXEL
from tests.wire.samples import (
    CALL,
    FORM,
    HELLO,
    MODEL,
    RESULT,
    SCREEN,
    SEARCH,
    SHOT,
    SPOKEN,
    THOUGHT,
    A,
    B,
    parts,
    read,
    rules,
    text,
    written,
)

PDF = "data:application/pdf;base64,JVBERi0xLjQ="
CITED = {"type": "file_citation", "file_id": "f", "filename": "a", "index": 1}


def test_items_of_one_answer_are_read_as_one_message() -> None:
    """Up to the next user or result; ids and thoughts in the parts' metadata."""
    given = [HELLO, THOUGHT, SEARCH, SPOKEN, CALL, RESULT, SPOKEN | {"id": "msg_2"}]
    parsed = read(given, model="gpt-5")
    _, said, got, more = parsed.messages

    assert ["user", "assistant", "tool", "assistant"] == [one.role for one in parsed.messages]
    kinds = ["reasoning", "reasoning", FORM, "text", "tool-call"]
    assert kinds == [part.type for part in said.parts]
    assert {"id": "rs_1", "encrypted_content": "gAAAA"} == parts(said)[0].metadata["openai"]
    assert {"id": "fc_1", "after": "rs_1"} == parts(said)[4].metadata["openai"]
    assert ("search", "9") == (parts(got)[0].tool, parts(got)[0].state.output)
    assert {"id": "msg_2"} == parts(more)[0].metadata["openai"]
    assert MODEL == getattr(said.info, "model", None)


@pytest.mark.parametrize(
    "given",
    [
        [A, B],
        [{"role": "assistant", "content": ""}, CALL, RESULT],
        [CALL, A, B, RESULT],
        [A, CALL, B, RESULT],
        [{"role": "assistant", "content": [{"type": "output_text", "text": "a"}]}],
        [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}],
        [{"role": "assistant", "content": "a", "phase": "commentary"}],
        [{"type": "message", "role": "developer", "content": "a"}],
        [{"role": "user", "content": [{"type": "input_text", "text": ""}]}],
        [{"role": "user", "content": [{"type": "input_image", "file_id": "f", "detail": "low"}]}],
        [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}],
        [{"role": "user", "content": [{"type": "input_file", "file_data": PDF, "filename": "a"}]}],
        [{"role": "user", "content": [{"type": "input_file", "file_url": "https://e.org/a"}]}],
        [{"role": "user", "content": [{"type": "input_image", "image_url": PIXEL}]}],
        [CALL, {**RESULT, "output": ""}],
        [CALL, {**RESULT, "output": [{"type": "input_text", "text": "a"}], "status": "completed"}],
        [CALL, {**RESULT, "output": [{"type": "input_image", "image_url": PIXEL}]}],
        [CALL, {**RESULT, "output": [{"type": "input_file", "file_id": "f"}]}],
        [CALL, {**CALL, "id": "fc_2", "call_id": "c2"}, {**RESULT, "call_id": "c2"}, RESULT],
        [SPOKEN, {**SPOKEN, "id": "msg_2", "status": "incomplete", "phase": "final_answer"}],
        [THOUGHT | {"summary": [], "content": [{"type": "reasoning_text", "text": "x"}]}, SPOKEN],
        [THOUGHT | {"encrypted_content": None, "status": "completed"}, SPOKEN],
        [SCREEN, SHOT, SPOKEN],
        [{**SPOKEN, "content": [{"type": "output_text", "text": "a", "annotations": [CITED]}]}],
        [CALL | {"caller": {"type": "direct"}, "namespace": "crm"}, RESULT],
        [{"type": "item_reference", "id": "msg_9"}],
        [{"type": "custom_tool_call", "call_id": "c", "name": "p", "input": "*"},
         {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"}],
    ],
)  # fmt: skip
def test_what_the_endpoint_takes_comes_back_to_the_letter(given: list[Any]) -> None:
    """Format → messages → the same format is the identity."""
    # CV-10
    read(given)


def test_arguments_that_are_no_json_are_wrapped_and_not_restored() -> None:
    """A repair is not undone by memory."""
    parsed = wire.from_(FORM, {"input": [{**CALL, "arguments": "{oops"}, RESULT]})

    sent = written(parsed.messages).items[0]["arguments"]
    assert '{"freeform_input":"{oops"}' == sent


def test_instructions_come_back_as_instructions() -> None:
    """They are a system message in between; in another format an ordinary one."""
    parsed = read([HELLO], instructions="Be brief.")

    assert ("system", "Be brief.") == (parsed.messages[0].role, parsed.messages[0].text)
    chat = wire.to("openai-chat", parsed.messages).body
    assert {"role": "system", "content": "Be brief."} == chat["messages"][0]
    moved = wire.to(FORM, [*parsed.messages[1:], parsed.messages[0]])
    assert [HELLO, {"role": "system", "content": "Be brief."}] == moved.items
    lead = replace(parsed.messages[0], content=(text("Be "), text("kind.")))
    assert {"instructions": "Be kind."} == wire.to(FORM, [lead]).head


def test_a_text_alone_is_what_a_user_says() -> None:
    """The short way to say one thing."""
    assert "Hello" == wire.from_(FORM, {"input": "Hello"}).messages[0].text
    with pytest.raises(ValidationError, match="needs a list of input"):
        wire.from_(FORM, {"input": 7})


def test_an_output_that_came_late_stands_with_its_call() -> None:
    """A screenshot's picture after another result; one without a call is reported."""
    given = [SCREEN, CALL, RESULT, SHOT, {**SHOT, "call_id": "c0"}]
    parsed = wire.from_(FORM, {"input": given})
    said = wire.to(FORM, parsed.messages).items

    assert [SCREEN, CALL, SHOT, RESULT] == said
    assert "result-without-call" in rules(parsed.notes)
    shell = {"type": "local_shell_call_output", "id": "c9", "output": "x"}
    began = {**SCREEN, "type": "local_shell_call"}
    stored = wire.from_(FORM, [began, shell]).messages[0]
    assert [began, shell] == [part.raw["block"] for part in parts(stored)]


def test_what_is_not_understood_is_reported() -> None:
    """Items and roles nobody knows, and instructions that are no text; bare texts are texts."""
    body = {
        "instructions": ["a"],
        "input": [
            7,
            {"type": "hologram"},
            {"role": "robot", "content": "beep"},
            {"role": "user", "content": ["no", {"type": "input_text", "text": "a"}]},
            {"role": "assistant", "content": ["no", {"type": "output_text", "text": "b"}]},
            {"type": "function_call", "arguments": 7},
            {**RESULT, "call_id": "c0", "output": ["no"]},
        ],
    }
    parsed = wire.from_(FORM, body)
    expected = ["shape", "shape", "unknown-part", "role"]

    assert expected == rules(parsed.notes)[:4]
    assert ["noa", "nob", ""] == [message.text for message in parsed.messages]
    assert "no" == parts(parsed.messages[2])[0].state.output
    assert "unknown" == parts(parsed.messages[1])[-1].tool
