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
    ToolCompleted,
    ToolPart,
    UnknownPart,
)
from palaver.messages.parts import CompactionPart
from palaver.transcripts import codex
from palaver.wire.notes import Note, ParsedConversation
from tests.transcripts.samples import sample, sound, spoken


@pytest.fixture(scope="module")
def parsed() -> ParsedConversation:
    (found,) = sound(codex.read(sample("codex.jsonl")))
    return found


def read_items(*items: dict[str, Any]) -> ParsedConversation:
    rows = [{"type": "response_item", "payload": item} for item in items]
    return read_rows(*rows)


def read_rows(*rows: dict[str, Any]) -> ParsedConversation:
    (found,) = sound(codex.read("\n".join(map(json.dumps, rows)).encode()))
    return found


def said(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def test_items_are_the_conversation(parsed: ParsedConversation) -> None:
    assert [
        ("system", "You are Codex."),
        ("system", "Sandbox: read-only."),
        ("user", "<environment_context>\n<cwd>/home/ada/teapot</cwd>\n</environment_context>"),
        ("user", "Does it hold water?"),
        ("assistant", "I'll pour some."),
        ("tool", "poured 1 cup"),
        ("tool", "done"),
        ("tool", "drip: not found"),
        ("assistant", "It does."),
        ("user", "It holds water."),
        ("user", "Polish it."),
        ("assistant", "Polishing"),
    ] == spoken(parsed.messages)


def test_an_answer_has_its_reasoning_texts_and_calls(parsed: ParsedConversation) -> None:
    thought, words, shell, patch, drip = parsed.messages[4].parts
    assert isinstance(thought, ReasoningPart)
    assert "Try it." == thought.text
    assert {"openai": {"id": "rs_1", "encrypted_content": "gAAAA=="}} == thought.metadata
    assert isinstance(words, TextPart)
    assert {"openai": {"id": "msg_1", "phase": "commentary", "after": "rs_1"}} == words.metadata
    assert isinstance(shell, ToolCallPart)
    assert ({"command": ["pour", "--cup"]}, "call_1") == (shell.input, shell.call_id)
    assert '{"command":["pour","--cup"]}' == shell.raw
    assert isinstance(patch, ToolCallPart)
    assert ({}, "*** Begin Patch\n*** End Patch") == (patch.input, patch.raw)
    assert {"custom": True} == patch.metadata["openai"]
    assert isinstance(drip, ToolCallPart)
    assert ("local_shell", ["drip"]) == (drip.tool, drip.input["command"])


def test_results_are_joined_to_their_calls(parsed: ParsedConversation) -> None:
    parts = [message.parts[0] for message in parsed.messages if message.role == "tool"]
    results = [part for part in parts if isinstance(part, ToolPart)]
    assert [
        ("call_1", "shell", "completed"),
        ("call_2", "apply_patch", "completed"),
        ("call_3", "local_shell", "error"),
    ] == [(part.call_id, part.tool, part.state.status) for part in results]
    done = results[1].state
    assert isinstance(done, ToolCompleted)
    assert isinstance(done.attachments, tuple)
    assert ["image/png"] == [file.mime for file in done.attachments]


def test_tokens_are_counted_once_for_each_answer_and_disjoint(parsed: ParsedConversation) -> None:
    infos = [m.info for m in parsed.messages if isinstance(m.info, AssistantInfo)]
    assert [
        TokenCounts(400, 50, 40, CacheCounts(600, 0)),
        TokenCounts(400, 30, 0, CacheCounts(1000, 0)),
        None,
    ] == [info.tokens for info in infos]
    assert "gpt-5.2-codex" == (infos[0].model and infos[0].model.model_id)
    assert [None, None, "interrupted"] == [info.finish for info in infos]


def test_an_item_without_a_part_is_stored_whole(parsed: ParsedConversation) -> None:
    block = parsed.messages[8].parts[0]
    assert isinstance(block, UnknownPart)
    assert ("openai-responses", "ws_1") == (block.type, block.raw["block"]["id"])


def test_a_compaction_is_marked_with_its_summary(parsed: ParsedConversation) -> None:
    mark, text, sealed = parsed.messages[9].parts
    assert isinstance(mark, CompactionPart)
    assert isinstance(text, TextPart)
    assert isinstance(sealed, UnknownPart)
    assert "gBBBB==" == sealed.raw["block"]["encrypted_content"]


def test_turns_that_were_taken_back_are_left_out_and_noted(parsed: ParsedConversation) -> None:
    detail = "the user went back: 2 messages of 1 turns are left out"
    assert Note("lost", "line 25", "transcript.branch", detail) in parsed.notes
    assert "No." not in [message.text for message in parsed.messages]


def test_what_is_left_out_is_noted_and_what_is_said_twice_is_not(
    parsed: ParsedConversation,
) -> None:
    told = [note.detail for note in parsed.notes if note.rule == "transcript.record"]
    assert [
        "turn_context: only model and folder are kept",
        "compacted: replacement history (2 items): the messages are kept whole",
        "hologram: is no part of what was said",
    ] == told


def test_what_is_known_of_the_session(parsed: ParsedConversation) -> None:
    assert {
        "id": "019c2b7e-5b1f-7d10-8c55-6a2f3b4c5d6e",
        "cwd": "/home/ada/teapot",
        "model": "gpt-5.2-codex",
        "version": "0.104.0",
        "originator": "codex_cli_rs",
        "git": {"commit_hash": "c0ffee", "branch": "main"},
        "created": 1_772_445_600_000,
    } == parsed.about


def test_a_users_picture_is_a_file(parsed: ParsedConversation) -> None:
    picture = parsed.messages[3].parts[1]
    assert isinstance(picture, FilePart)
    assert "image/png" == picture.mime


def test_the_older_form_has_bare_items() -> None:
    (parsed,) = sound(codex.read(sample("codex-bare.jsonl")))
    assert [
        ("system", "You are Codex."),
        ("user", "Does it hold water?"),
        ("assistant", ""),
        ("tool", "(no output)"),
        ("assistant", "It does."),
    ] == spoken(parsed.messages)
    thought, call = parsed.messages[2].parts
    assert isinstance(thought, ReasoningPart)
    assert "Try it." == thought.text
    assert isinstance(call, ToolCallPart)
    assert ({}, "not json") == (call.input, call.raw)


def test_reading_twice_gives_the_same(parsed: ParsedConversation) -> None:
    assert parsed.messages == next(codex.read(sample("codex.jsonl"))).messages


def test_a_damaged_line_loses_itself() -> None:
    rows = sample("codex.jsonl").splitlines()
    rows[14] = b"{" + rows[14]
    (parsed,) = sound(codex.read(b"\n".join(rows)))
    assert 11 == len(parsed.messages)
    assert "line 15" in [note.where for note in parsed.notes]


def test_older_reasoning_has_text_and_summary() -> None:
    parsed = read_items(
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "Short."}],
            "content": [{"type": "text", "text": "Long."}],
        }
    )
    short, long = parsed.messages[0].parts
    assert isinstance(short, ReasoningPart)
    assert isinstance(long, ReasoningPart)
    assert ("Short.", "Long.") == (short.text, long.text)
    assert {"openai": {"content": True}} == long.metadata


def test_what_a_tool_gave_is_stored_in_any_form() -> None:
    def output(value: object, **more: str) -> dict[str, Any]:
        return {"type": "function_call_output", "call_id": "c", "output": value, **more}

    parsed = read_items(
        output(None),
        output({"exit": 1}, name="ls"),
        output([{"type": "encrypted_content", "encrypted_content": "g"}]),
        {"type": "function_call_output", "output": "whose?"},
    )
    assert ["(no output)", '{"exit":1}', "(no output)"] == [
        said for _, said in spoken(parsed.messages)
    ]
    named, sealed = parsed.messages[1].parts[0], parsed.messages[2].parts[0]
    assert isinstance(named, ToolPart)
    assert isinstance(sealed, ToolPart)
    assert "ls" == named.tool
    assert "g" == sealed.metadata["openai"]["output"][0]["encrypted_content"]
    assert ["line 4"] == [note.where for note in parsed.notes]


def test_another_agents_words_are_a_users_with_its_name() -> None:
    parsed = read_rows(
        {
            "type": "inter_agent_communication",
            "payload": {
                "author": "/a",
                "recipient": "/b",
                "content": "Done.",
                "trigger_turn": True,
            },
        },
        {
            "type": "response_item",
            "payload": {
                "type": "agent_message",
                "author": "/a",
                "content": [{"type": "encrypted_content", "encrypted_content": "g"}, None],
                "encrypted_content": "h",
            },
        },
    )
    first, second = parsed.messages
    assert ("user", "Done.") == (first.role, first.text)
    assert {"codex": {"author": "/a", "recipient": "/b"}} == first.metadata
    assert ["openai-responses"] * 2 == [part.type for part in second.parts]


def test_a_header_that_comes_again_is_that_of_the_origin() -> None:
    parsed = read_rows(
        {"type": "session_meta", "payload": {"id": "new", "forked_from_id": "old"}},
        {"type": "session_meta", "payload": {"id": "old"}},
        {"type": "response_item", "payload": {}},
        {"type": 7},
    )
    assert ("new", "old") == (parsed.about["id"], parsed.about["forked_from"])
    rules = ["transcript.damaged", "transcript.record", "transcript.record"]
    assert rules == [note.rule for note in parsed.notes]


def test_events_without_an_answer_change_nothing() -> None:
    def event(**payload: object) -> dict[str, Any]:
        return {"type": "event_msg", "payload": payload}

    counts = {"last_token_usage": {"input_tokens": 5}, "total_token_usage": {}}
    parsed = read_rows(
        event(type="token_count", info=counts),
        event(type="turn_aborted"),
        event(type="thread_rolled_back", num_turns=3),
        event(type="task_started"),
        {"type": "response_item", "payload": said("user", "hi")},
        event(type="thread_rolled_back"),
        event(type="thread_rolled_back", num_turns=3),
    )
    assert () == parsed.messages
    rules = ["transcript.branch", "transcript.record"]
    assert rules == [note.rule for note in parsed.notes]


def test_an_answer_with_too_many_items_is_noted() -> None:
    parsed = read_items(*[said("assistant", "x")] * 10_001)
    assert () == parsed.messages
    assert ["transcript.damaged"] == [note.rule for note in parsed.notes]


def test_what_no_message_can_hold_is_noted() -> None:
    deep: object = "x"
    for _level in range(127):
        deep = [deep]
    parsed = read_rows({"type": "web_search_call", "action": deep}, said("user", "hi"))
    assert [("user", "hi")] == spoken(parsed.messages)
    assert ["line 1"] == [note.where for note in parsed.notes]


def test_a_turn_may_tell_nothing() -> None:
    parsed = read_rows({"type": "turn_context", "payload": {}})
    assert {} == parsed.about


def test_a_count_that_comes_again_is_not_that_of_the_next_answer() -> None:
    def count(tokens: int, total: int) -> dict[str, Any]:
        info = {
            "last_token_usage": {"input_tokens": tokens},
            "total_token_usage": {"input_tokens": total},
        }
        return {"type": "event_msg", "payload": {"type": "token_count", "info": info}}

    def item(role: str) -> dict[str, Any]:
        return {"type": "response_item", "payload": said(role, "x")}

    parsed = read_rows(
        item("assistant"), count(5, 5), count(6, 11), item("user"), item("assistant"),
        count(6, 11), count(7, 18),
    )  # fmt: skip
    infos = [m.info for m in parsed.messages if isinstance(m.info, AssistantInfo)]
    assert [5, 7] == [info.tokens and info.tokens.input for info in infos]


def test_a_turn_begins_where_a_person_speaks() -> None:
    def item(text: str) -> dict[str, Any]:
        return {"type": "response_item", "payload": said("user", text)}

    back = {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}
    parsed = read_rows(item("one"), item("two"), item("<environment_context>…"), back)
    assert [("user", "one")] == spoken(parsed.messages)


def test_ids_that_stand_twice_are_told_apart() -> None:
    parsed = read_items({**said("user", "a"), "id": "m"}, {**said("user", "b"), "id": "m"})
    first, second = (message.id for message in parsed.messages)
    assert "m" == first != second


def test_an_event_that_no_item_repeats_is_noted() -> None:
    def event(kind: str, **fields: str) -> dict[str, Any]:
        return {"type": "event_msg", "payload": {"type": kind, **fields}}

    item = said("assistant", "Fill the pot.")
    item["content"].append({"type": "output_text", "text": "Light the stove."})
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "First tea."}]}
    found = read_rows(
        event("user_message", message="Only the screen has this."),
        {"type": "response_item", "payload": said("user", "Make tea. ")},
        event("user_message", message="Make tea."),
        event("agent_reasoning", text="First tea."),
        {"type": "response_item", "payload": thought},
        {"type": "response_item", "payload": item},
        event("agent_message", message="Fill the pot.Light the stove."),
        event("agent_message", message="It boils."),
        event("user_message", message=" "),
    )

    kept = [("user", "Make tea. "), ("assistant", "Fill the pot.Light the stove.")]
    assert kept == spoken(found.messages)
    assert [
        Note("lost", "line 1", "transcript.record", "event user_message: no item says the same"),
        Note("lost", "line 8", "transcript.record", "event agent_message: no item says the same"),
    ] == list(found.notes)
