from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from palaver.messages import AssistantInfo, CacheCounts, TokenCounts, ToolPart, UnknownPart
from palaver.transcripts import codex, codex_exec
from tests.transcripts.samples import sample, sound, spoken

if TYPE_CHECKING:
    from palaver.wire.notes import ParsedConversation


def read_items(*items: dict[str, Any]) -> ParsedConversation:
    rows = [{"type": "item.completed", "item": item} for item in items]
    (parsed,) = sound(codex_exec.read("\n".join(map(json.dumps, rows)).encode()))
    return parsed


def test_the_events_of_a_run_are_a_conversation() -> None:
    (parsed,) = sound(codex_exec.read(sample("codex-exec.jsonl")))
    assert [
        ("assistant", ""),
        ("tool", "blue\nred\n"),
        ("assistant", ""),
        ("tool", "(no output)"),
        ("assistant", ""),
        ("tool", "(1 file: image/png)"),
        ("assistant", ""),
        ("tool", "(no description)"),
        ("assistant", "Two cups."),
        ("tool", "(no output)"),
        ("assistant", ""),
    ] == spoken(parsed.messages)
    assert {"id": "019c2b7e-0000-7d10-8c55-000000000001"} == parsed.about
    rules = ["transcript.open", "transcript.record", "transcript.record"]
    assert rules == [note.rule for note in parsed.notes]


def test_usage_and_failure_belong_to_the_answer_before() -> None:
    (parsed,) = codex_exec.read(sample("codex-exec.jsonl"))
    told, failed = parsed.messages[8].info, parsed.messages[10].info
    assert isinstance(told, AssistantInfo)
    assert TokenCounts(1000, 40, 10, CacheCounts(200, 0)) == told.tokens
    assert isinstance(failed, AssistantInfo)
    assert failed.error is not None
    assert "stream disconnected" == failed.error["message"]
    part = parsed.messages[7].parts[0]
    assert isinstance(part, ToolPart)
    assert {"codex": {"status": "failed", "exit_code": 1}} == part.metadata


def test_calls_of_every_kind() -> None:
    mcp = {"id": "i", "type": "mcp_tool_call", "server": "s", "tool": "t", "status": "failed"}
    parsed = read_items(
        {**mcp, "arguments": [1], "error": {"message": "no"}},
        {**mcp, "status": "completed", "result": {"content": [{"type": "text", "text": "ok"}, {}]}},
        {"type": "collab_tool_call", "tool": "wait", "prompt": "p", "agents_states": {"a": 1}},
        {"id": "w", "type": "web_search", "query": "tea"},
        {"id": "x", "item_type": "assistant_message", "text": "old"},
        {"id": "y", "type": "dance"},
        {},
    )
    tools = [part.tool for message in parsed.messages[1::2] for part in message.parts[:1]
             if isinstance(part, ToolPart)]  # fmt: skip
    assert ["t", "t", "wait", "web_search"] == tools
    assert [("tool", "no"), ("tool", "ok\n{}"), ("tool", '{"a":1}'), ("tool", "(no output)")] == [
        each for each in spoken(parsed.messages) if each[0] == "tool"
    ]
    assert isinstance(parsed.messages[-1].parts[-1], UnknownPart)
    assert ["transcript.damaged"] == [note.rule for note in parsed.notes]


def test_a_file_may_hold_several_threads_and_what_never_ended() -> None:
    rows = [
        {"type": "turn.failed", "error": {"message": "no model"}},
        {"type": "thread.started", "thread_id": "t1"},
        {"type": "turn.completed", "usage": {}},
        {"type": "item.started", "item": {"id": "i", "type": "agent_message", "text": "half"}},
        {"type": "thread.started", "thread_id": "t2"},
        {"type": "item.completed", "item": {"id": "i", "type": "agent_message", "text": "hi"}},
    ]
    one, two = sound(codex_exec.read("\n".join(map(json.dumps, rows)).encode()))
    assert ("t1", "half") == (one.about["id"], one.messages[0].text)
    assert ("t2", "hi") == (two.about["id"], two.messages[0].text)
    assert ["transcript.record"] == [note.rule for note in one.notes]


def test_the_oldest_sessions_of_codex_are_one_document() -> None:
    (parsed,) = sound(codex.read(sample("codex-legacy.json")))
    output = '{"output":"blue\\nred\\n","metadata":{"exit_code":0,"duration_seconds":0}}'
    assert [
        ("system", "Be brief."),
        ("user", "How many cups?"),
        ("assistant", ""),
        ("tool", output),
        ("assistant", "Two."),
    ] == spoken(parsed.messages)
    assert () == parsed.notes
    document = {"session": {"id": "s"}, "items": [7]}
    (parsed,) = sound(codex.read(json.dumps(document).encode()))
    assert ["$.items[0]"] == [note.where for note in parsed.notes]
