from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from palaver.messages import (
    AssistantInfo,
    FilePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    UnknownPart,
)
from palaver.messages.parts import CompactionPart
from palaver.transcripts import copilot_cli
from tests.transcripts.samples import sample, sound, spoken

if TYPE_CHECKING:
    from palaver.wire.notes import ParsedConversation


def read_events(*events: tuple[str, dict[str, Any]]) -> list[ParsedConversation]:
    rows = [
        {"type": kind, "data": data, "id": f"e{index}", "timestamp": None, "parentId": None}
        for index, (kind, data) in enumerate(events)
    ]
    return sound(copilot_cli.read("\n".join(map(json.dumps, rows)).encode()))


def test_events_are_read_and_agents_apart() -> None:
    main, agent = sound(copilot_cli.read(sample("copilot-cli.jsonl")))
    assert [
        ("system", "You are Copilot."),
        ("user", "Draw the teapot."),
        ("assistant", "I'll draw it."),
        ("tool", "(1 file: image/png)"),
        ("tool", "The patch does not fit."),
        ("user", "A pot was drawn."),
        ("user", "How to glaze."),
        ("assistant", "Glazing."),
    ] == spoken(main.messages)
    assert [("assistant", "The lid is round.")] == spoken(agent.messages)
    assert "/home/ada/teapot" == main.about["cwd"]
    assert ("agent-1", main.about["id"]) == (agent.about["id"], agent.about["parent"])
    rules = ["transcript.branch", "transcript.open", "transcript.record"]
    assert rules == [note.rule for note in main.notes]


def test_messages_have_their_parts_and_what_else_was_said() -> None:
    main = next(copilot_cli.read(sample("copilot-cli.jsonl")))
    asked, answered, drawn, failed, compacted, skill, last = main.messages[1:]
    assert [TextPart, FilePart] == [type(part) for part in asked.parts]
    assert "<now>9:00</now>" in asked.metadata["copilot-cli"]["transformedContent"]
    kinds = [ReasoningPart, TextPart, ToolCallPart, ToolCallPart]
    assert kinds == [type(part) for part in answered.parts]
    patch = answered.parts[3]
    assert isinstance(patch, ToolCallPart)
    assert ("*** Begin Patch", {}) == (patch.raw, patch.input)
    assert isinstance(answered.info, AssistantInfo)
    assert answered.info.model is not None
    assert "claude-sonnet-4.6" == answered.info.model.model_id
    for message, kind in ((drawn, ToolCompleted), (failed, ToolError)):
        part = message.parts[0]
        assert isinstance(part, ToolPart)
        assert isinstance(part.state, kind)
    mark, text = compacted.parts[0], skill.parts[0]
    assert isinstance(mark, CompactionPart)
    assert not mark.auto
    assert isinstance(text, TextPart)
    assert text.synthetic
    assert isinstance(last.info, AssistantInfo)
    assert "aborted" == last.info.finish


def test_other_events() -> None:
    (parsed,) = read_events(
        ("abort", {}),
        ("user.message", {"content": "", "attachments": [7, {"text": "selected"}, {"path": "p"}]}),
        ("assistant.reasoning", {"reasoningId": "r", "content": "Hm."}),
        ("assistant.message", {"messageId": "m", "content": "a", "toolRequests": [7, {"name": 1}]}),
        ("assistant.message", {"messageId": "m", "content": "b", "toolRequests": None}),
        ("assistant.message", {"messageId": "n", "content": ""}),
        ("tool.user_requested", {"toolCallId": "c", "toolName": "ls", "arguments": 5}),
        ("tool.execution_start", {"toolCallId": "c", "toolName": "ls"}),
        ("tool.execution_progress", {"toolCallId": "c"}),
        ("tool.execution_complete", {}),
        (
            "tool.execution_complete",
            {
                "toolCallId": "c",
                "success": True,
                "result": {"content": "x", "detailedContent": "xx", "structuredContent": {"n": 1}},
            },
        ),
        ("system.message", {"content": ""}),
        ("session.title_changed", {"title": "Pots"}),
        ("session.compaction_complete", {"success": False}),
        ("session.compaction_complete", {"success": True}),
        ("session.snapshot_rewind", {"upToEventId": "gone"}),
        ("", {}),
    )
    assert [
        ("user", "selected"),
        ("assistant", ""),
        ("assistant", "ab"),
        ("assistant", ""),
        ("tool", "x"),
        ("user", ""),
    ] == spoken(parsed.messages)
    assert "Pots" == parsed.about["title"]
    assert isinstance(parsed.messages[2].parts[1], UnknownPart)
    part = parsed.messages[4].parts[0]
    assert isinstance(part, ToolPart)
    assert {"detailedContent": "xx", "structuredContent": {"n": 1}} == part.metadata["copilot-cli"]
    assert ["transcript.record"] * 5 == [note.rule for note in parsed.notes]


def test_damage_costs_what_is_damaged() -> None:
    (empty,) = sound(copilot_cli.read(b""))
    assert () == empty.messages
    huge = {"type": "user.message", "id": "e", "data": {"content": "x", "n": 10**30}}
    (parsed,) = sound(copilot_cli.read(json.dumps(huge).encode()))
    assert ["x"] == [message.text for message in parsed.messages]


def test_the_older_document_is_read() -> None:
    (parsed,) = sound(copilot_cli.read(sample("copilot-cli.json")))
    assert [
        ("user", "Count the cups."),
        ("assistant", "I'll count."),
        ("assistant", ""),
        ("tool", "4"),
        ("assistant", "Four."),
    ] == spoken(parsed.messages)


def test_the_older_document_may_hold_the_messages_themselves() -> None:
    asked = {"type": "tool_call_requested", "callId": "c", "name": "ls", "arguments": {}}
    entries = [7, asked, {**asked, "type": "tool_call_completed", "result": {"log": {"n": 1}}}]
    document = {"sessionId": "s", "timeline": entries, "chatMessages": []}
    (parsed,) = sound(copilot_cli.read(json.dumps(document).encode()))
    assert [("assistant", ""), ("tool", '{"n":1}')] == spoken(parsed.messages)
    document["chatMessages"] = [{"role": "user", "content": "hi"}]
    (parsed,) = sound(copilot_cli.read(json.dumps(document).encode()))
    assert [("user", "hi")] == spoken(parsed.messages)
    assert ["$.timeline"] == [note.where for note in parsed.notes]
