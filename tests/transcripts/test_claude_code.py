from __future__ import annotations

import json
from typing import Any

import pytest

from palaver.messages import (
    AssistantInfo,
    CacheCounts,
    FilePart,
    ReasoningPart,
    TextPart,
    TokenCounts,
    ToolCallPart,
    ToolPart,
    UnknownPart,
)
from palaver.messages.parts import CompactionPart
from palaver.transcripts import claude_code
from palaver.wire.notes import Note, ParsedConversation
from tests.transcripts.samples import sample, sound, spoken


@pytest.fixture(scope="module")
def conversations() -> list[ParsedConversation]:
    return sound(claude_code.read(sample("claude-code.jsonl")))


@pytest.fixture(scope="module")
def main(conversations: list[ParsedConversation]) -> ParsedConversation:
    return conversations[0]


def read_lines(*rows: dict[str, Any]) -> list[ParsedConversation]:
    return sound(claude_code.read("\n".join(map(json.dumps, rows)).encode()))


def line(uuid: str, parent: str | None, content: object, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """One line, of a user unless `role` says otherwise."""
    role = more.pop("role", "user")
    said = {"role": role, "content": content, **more.pop("message", {})}
    return {"type": role, "uuid": uuid, "parentUuid": parent, "message": said, **more}


def answer_of(parsed: ParsedConversation, index: int) -> AssistantInfo:
    info = parsed.messages[index].info
    assert isinstance(info, AssistantInfo)
    return info


def test_what_was_said_is_the_way_to_the_last_line(main: ParsedConversation) -> None:
    assert [
        ("user", "Why is the lid loose?"),
        ("assistant", "I'll look at both."),
        ("tool", "HINGE = None\n"),
        ("tool", "ls: lids: no such folder"),
        ("user", "And the spout?"),
        ("assistant", "HINGE is None: nothing holds the lid."),
        ("user", "The lid is loose because HINGE is None."),
        ("user", "<local-command-caveat>not for you</local-command-caveat>"),
        ("user", "Is this the right hinge?"),
        ("assistant", "API Error: 529 overloaded"),
        ("assistant", "It is."),
    ] == spoken(main.messages)


def test_a_branch_that_was_left_is_noted(main: ParsedConversation) -> None:
    detail = (
        "2 lines are on branches that were left: palaver import --branches imports each as a fork"
    )
    assert Note("lost", "line 4", "transcript.branch", detail) in main.notes


def test_an_answer_over_several_lines_is_one_message_with_its_last_usage(
    main: ParsedConversation,
) -> None:
    answer = main.messages[1]
    kinds = [ReasoningPart, TextPart, ToolCallPart, ToolCallPart]
    assert kinds == [type(part) for part in answer.parts]
    info = answer_of(main, 1)
    assert TokenCounts(4, 57, 0, CacheCounts(1200, 300)) == info.tokens
    assert ("claude-opus-4-6", "tool-calls") == (info.model and info.model.model_id, info.finish)
    assert 3_000 == (info.completed or 0) - answer.timestamp


def test_a_thought_keeps_its_signature(main: ParsedConversation) -> None:
    thought = main.messages[1].parts[0]
    assert isinstance(thought, ReasoningPart)
    assert {"anthropic": {"signature": "c2ln"}} == thought.metadata


def test_results_are_joined_to_their_calls(main: ParsedConversation) -> None:
    first, second = main.messages[2].parts[0], main.messages[3].parts[0]
    assert isinstance(first, ToolPart)
    assert isinstance(second, ToolPart)
    assert ("toolu_a", "Read", "completed") == (first.call_id, first.tool, first.state.status)
    assert {"file_path": "lid.py"} == first.state.input
    assert ("toolu_b", "Bash", "error") == (second.call_id, second.tool, second.state.status)


def test_a_tools_own_record_is_stored_where_it_says_more(main: ParsedConversation) -> None:
    first, second = main.messages[2].parts[0], main.messages[3].parts[0]
    assert isinstance(first, ToolPart)
    assert isinstance(second, ToolPart)
    stored = {"toolUseResult": {"type": "text", "file": {"filePath": "lid.py", "numLines": 1}}}
    assert {"claude-code": stored} == first.metadata
    assert {} == second.metadata


def test_a_compaction_is_marked_and_what_was_before_stays(main: ParsedConversation) -> None:
    mark = main.messages[6].parts[0]
    assert isinstance(mark, CompactionPart)
    assert mark.auto is False


def test_what_the_program_said_for_the_user_is_synthetic(main: ParsedConversation) -> None:
    part = main.messages[7].parts[0]
    assert isinstance(part, TextPart)
    assert part.synthetic


def test_an_image_is_a_file(main: ParsedConversation) -> None:
    image = main.messages[8].parts[1]
    assert isinstance(image, FilePart)
    assert ("image/png", "data:image/png;base64,iVBORw0KGgo=") == (image.mime, image.url)


def test_an_error_of_the_provider_is_stored_but_not_sent(main: ParsedConversation) -> None:
    part, info = main.messages[9].parts[0], answer_of(main, 9)
    assert isinstance(part, TextPart)
    assert part.ignored
    assert info.model is None
    assert {"name": "APIError", "message": "API Error: 529 overloaded"} == info.error


def test_a_block_without_a_part_is_stored_whole(main: ParsedConversation) -> None:
    block = main.messages[10].parts[0]
    assert isinstance(block, UnknownPart)
    assert "anthropic" == block.type
    assert "web_search" == block.raw["block"]["name"]


def test_a_cost_that_is_given_is_stored(main: ParsedConversation) -> None:
    assert 0.0125 == answer_of(main, 10).cost


def test_ids_and_the_rest_of_a_line_are_stored(main: ParsedConversation) -> None:
    message = main.messages[1]
    assert "0000000a-0000-4000-8000-00000000000a" == message.id
    stored = message.metadata["claude-code"]
    assert ("req_msg_one", "msg_one") == (stored["requestId"], stored["message"]["id"])
    assert "cwd" not in stored


def test_every_kind_of_record_that_is_left_out_is_noted(main: ParsedConversation) -> None:
    told = [note.detail.partition(":")[0] for note in main.notes]
    for kind in (
        "file-history-snapshot",
        "queue-operation",
        "progress",
        "attachment todo_reminder",
        "system turn_duration",
        "hologram",
    ):
        assert kind in told


def test_an_agent_on_the_side_is_a_conversation_of_its_own(
    conversations: list[ParsedConversation],
) -> None:
    _main, side = conversations
    said = [("user", "Find every hinge."), ("assistant", "There is one, in lid.py.")]
    assert said == spoken(side.messages)
    assert ("a7", True) == (side.about["id"], side.about["sidechain"])
    assert () == side.notes


def test_what_is_known_of_the_session(main: ParsedConversation) -> None:
    assert {
        "id": "5a1de0c4-6b1e-4c3f-9d0a-2f6f3c1b7e01",
        "title": "The loose lid",
        "model": "claude-opus-4-6",
        "cwd": "/home/ada/teapot",
        "version": "2.1.37",
        "gitBranch": "main",
        "created": 1_772_355_601_250,
    } == main.about


def test_reading_twice_gives_the_same(main: ParsedConversation) -> None:
    again = next(claude_code.read(sample("claude-code.jsonl")))
    assert main.messages == again.messages


def test_a_damaged_line_loses_itself_and_nothing_before_it() -> None:
    rows = sample("claude-code.jsonl").splitlines()
    rows[18] = rows[18][:50]  # the answer before the compaction
    parsed = sound(claude_code.read(b"\n".join(rows)))[0]
    assert "Why is the lid loose?" == parsed.messages[0].text
    assert 10 == len(parsed.messages)
    (damage,) = [note for note in parsed.notes if note.rule == "transcript.damaged"]
    assert "line 19" == damage.where


def test_a_line_whose_parent_is_missing_goes_on_from_the_line_before() -> None:
    (parsed,) = read_lines(line("a", None, "one"), line("b", "gone", "two"))
    assert ["one", "two"] == [message.text for message in parsed.messages]


def test_a_line_that_stands_twice_is_read_once() -> None:
    (parsed,) = read_lines(line("a", None, "one"), line("a", None, "one"), line("b", "a", "two"))
    assert ["one", "two"] == [message.text for message in parsed.messages]
    assert ["transcript.record"] == [note.rule for note in parsed.notes]


def test_one_line_may_hold_several_results_and_words() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "ls", "input": {}}
    results = [
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "tool_reference"}]},
        {"type": "tool_result", "tool_use_id": "t2", "content": None, "is_error": True},
        {"type": "tool_result", "content": "whose?"},
        {"type": "text", "text": "And?"},
    ]
    (parsed,) = read_lines(line("a", None, [call], role="assistant"), line("b", "a", results))
    assert [
        ("assistant", ""),
        ("tool", "(no output)"),
        ("tool", "(no description)"),
        ("user", "And?"),
    ] == spoken(parsed.messages)
    first, second = parsed.messages[1].parts[0], parsed.messages[2].parts[0]
    assert isinstance(first, ToolPart)
    assert isinstance(second, ToolPart)
    assert {"anthropic": {"content": [{"type": "tool_reference"}]}} == first.metadata
    assert "unknown" == second.tool


def test_lines_without_ids_and_of_a_new_type_are_read_by_what_they_say() -> None:
    said = {"role": "user", "content": "hi"}
    (parsed,) = read_lines({"type": "voice", "message": said}, {"type": "voice", "message": said})
    assert ["hi", "hi"] == [message.text for message in parsed.messages]


def test_the_last_title_is_the_title() -> None:
    (parsed,) = read_lines(
        {"type": "summary", "summary": "Old", "leafUuid": "x"},
        {"type": "custom-title", "customTitle": "New", "sessionId": "s"},
    )
    assert "New" == parsed.about["title"]
    assert ["title 'Old': a later one took its place"] == [note.detail for note in parsed.notes]


def test_agents_without_a_name_are_told_apart_by_where_they_begin() -> None:
    conversations = read_lines(
        line("a", None, "one", isSidechain=True),
        line("b", None, "two", isSidechain=True),
        line("c", "a", "three", isSidechain=True),
    )
    assert [["one", "three"], ["two"]] == [
        [message.text for message in parsed.messages] for parsed in conversations
    ]


def test_odd_content_is_stored_as_it_is() -> None:
    (parsed,) = read_lines(
        line("a", None, None),
        line("b", "a", ["bare", 7]),
        line("c", "b", [{"type": "image", "source": {"type": "url", "url": "https://e.org/a"}}]),
        line("d", "c", [{"type": "document", "source": {"type": "file", "file_id": "f"}}]),
        line("e", "d", [{"type": "redacted_thinking", "data": "x"}], role="assistant"),
    )
    assert [[], ["text", "text"], ["file"], ["anthropic"], ["reasoning"]] == [
        [part.type for part in message.parts] for message in parsed.messages
    ]


def test_what_no_message_can_hold_is_noted() -> None:
    deep: object = "x"
    for _level in range(127):
        deep = [deep]
    (parsed,) = read_lines(
        line("a", None, [{"type": "text", "text": "hi"}], role="assistant", odd=deep),
        line("b", "a", "there", odd=deep),
        line("c", "b", "still here"),
    )
    assert ["still here"] == [message.text for message in parsed.messages]
    assert 2 == sum(note.rule == "transcript.damaged" for note in parsed.notes)


def test_a_picture_in_an_error_is_stored_beside_it() -> None:
    picture = {"type": "image", "source": {"type": "base64", "data": "aGk="}}
    failed = {"type": "tool_result", "tool_use_id": "t", "content": [picture], "is_error": True}
    (parsed,) = read_lines(line("a", None, [failed]))
    part = parsed.messages[0].parts[0]
    assert isinstance(part, ToolPart)
    assert "data:image/*;base64,aGk=" == part.metadata["attachments"][0]["url"]


def test_a_call_that_is_written_again_is_one_call() -> None:
    call = {"type": "tool_use", "id": "t", "name": "ls", "input": {}}
    again = {"role": "assistant", "message": {"id": "m"}}
    (parsed,) = read_lines(line("a", None, [call], **again), line("b", "a", [call], **again))
    assert [1] == [len(message.parts) for message in parsed.messages]


def test_the_other_calls_of_an_answer_are_no_branch() -> None:
    def call(name: str) -> list[dict[str, Any]]:
        return [{"type": "tool_use", "id": name, "name": "ls", "input": {}}]

    def result(name: str) -> list[dict[str, Any]]:
        return [{"type": "tool_result", "tool_use_id": name, "content": name}]

    same = {"role": "assistant", "message": {"id": "m"}}
    (parsed,) = read_lines(
        line("a1", None, call("t1"), **same),
        line("a2", "a1", call("t2"), **same),
        line("r1", "a1", result("t1")),
        line("r2", "a2", result("t2")),
        line("b", "r1", "Done.", role="assistant"),
    )
    said = [("assistant", ""), ("tool", "t1"), ("tool", "t2"), ("assistant", "Done.")]
    assert said == spoken(parsed.messages)
    assert () == parsed.notes


def test_a_message_without_content_is_noted() -> None:
    odd = {**line("u1", None, None), "message": {"role": "user", "parts": [{"text": "Tea?"}]}}
    answer = {**line("u2", "u1", None, role="assistant"), "message": {"role": "model", "parts": []}}
    (found,) = read_lines(odd, answer, line("u3", "u2", "Black."))

    assert [("user", "Black.")] == spoken(found.messages)
    detail = "its message has no content, only role, parts"
    assert [
        Note("lost", "line 1", "transcript.damaged", detail),
        Note("lost", "line 2", "transcript.damaged", detail),
    ] == list(found.notes)


def test_a_summary_that_is_no_title_is_noted() -> None:
    told = {"type": "summary", "uuid": "s1", "message": {"role": "system", "content": "All of it."}}
    (found,) = read_lines(line("u1", None, "Tea?"), told)

    detail = "summary: is of a type that palaver does not know"
    assert [Note("lost", "line 2", "transcript.record", detail)] == list(found.notes)
