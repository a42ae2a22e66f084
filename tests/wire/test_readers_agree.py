"""One reader for each format: a reply, a stream, a request body, a log and a transcript agree.

The same content is read in every way that palaver reads it, and must give the same parts, tokens,
cost and reason to end. The contents and the ways are in `readings`: a new one is a row there.
"""

from __future__ import annotations

from typing import Any

import pytest

from palaver import wire
from palaver.messages import ToolCallPart, ToolCompleted, ToolPart
from tests.wire.readings import ANSWERS, RESULTS, USAGES, Reading, ends, read_answer, read_result

ENDS = {
    "anthropic": "end_turn",
    "openai-chat": "stop",
    "openai-responses": "completed",
    "gemini": "STOP",
}
"""How an answer ends that nothing broke off."""
SILENT = ("body", "codex")
"""The ways that say neither what an answer cost nor why it ended."""


def agree(readings: dict[str, Reading]) -> None:
    """Compare each way with the first."""
    first, *others = readings
    expected = readings[first]
    for way in others:
        known = Reading(expected.said) if way in SILENT else expected
        assert known == readings[way], f"{way} differs from {first}"


def rows(table: dict[str, dict[str, Any]]) -> list[tuple[str, str]]:
    """The format and the name of each row."""
    return [(form, name) for form, contents in table.items() for name in contents]


@pytest.mark.parametrize(("form", "name"), rows(ANSWERS))
def test_what_is_said_reads_the_same_everywhere(form: str, name: str) -> None:
    agree(read_answer(form, ANSWERS[form][name], USAGES[form]["plain"], ENDS[form]))


@pytest.mark.parametrize(("form", "name"), rows(USAGES))
def test_what_was_used_reads_the_same_everywhere(form: str, name: str) -> None:
    agree(read_answer(form, ANSWERS[form]["a text"], USAGES[form][name], ENDS[form]))


@pytest.mark.parametrize("content", ["a text", "a call"])
@pytest.mark.parametrize(("form", "end"), [(form, end) for form in ANSWERS for end in ends(form)])
def test_why_an_answer_ended_reads_the_same_everywhere(form: str, end: str, content: str) -> None:
    readings = read_answer(form, ANSWERS[form][content], USAGES[form]["plain"], end)

    agree(readings)
    words = ("stop", "tool-calls", "length", "content-filter", "error", "other")
    assert readings["reply"].finish in words


@pytest.mark.parametrize(("form", "name"), rows(RESULTS))
def test_a_result_reads_the_same_everywhere(form: str, name: str) -> None:
    """Texts stay apart, errors stay errors, and nothing beside them is lost."""
    readings = read_result(form, RESULTS[form][name])
    (result,) = readings["body"].said

    agree(readings)
    failed = "fail" in name
    assert ("error" if failed else "completed") == result["state"]["status"]
    if name.startswith("two texts"):
        assert "a\nb" == result["state"]["error" if failed else "output"]
    if "image" in name:
        assert ["data:image/png;base64,aGk="] == result["files"]


def test_a_call_of_the_older_chat_interface_has_its_result() -> None:
    called = {"name": "f", "arguments": "{}"}
    body = {
        "messages": [
            {"role": "user", "content": "Well?"},
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
