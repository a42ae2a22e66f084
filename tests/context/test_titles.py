# ruff: noqa: D403 - the titles are the document's own
# CX-01
"""S2's own list of tests (§8), by their titles, and its tables row by row."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from palaver.context import MAX_TEAM_TASK_BYTES, ContextManager
from palaver.errors import ValidationError
from palaver.history import History
from palaver.messages import Message, assistant, system, user
from palaver.messages.ids import is_uuid
from tests.context.conversations import (
    HUMAN,
    MAX,
    ROBOT,
    SARAH,
    SNAPSHOT,
    ai,
    contents,
    filled,
    human,
    said,
)

# ── 8.1 message management ──────────────────────────────────────────────────────────────────────


def test_add_message_stores_and_returns_message_with_generated_id() -> None:
    """addMessage stores and returns message with generated id."""
    context = ContextManager()
    first, second = context.add_message(human("Hi")), context.add_message(ai("Hello!"))
    assert [first, second] == context.messages
    assert ("msg-1", "msg-2") == (context.handle(first), context.handle(second))
    assert is_uuid(first.id)
    assert second == context.message("msg-2") == context.message(second.id) == context.message(1)
    assert ("user", "assistant") == (first.role, second.role)


def test_add_message_throws_on_null_message() -> None:
    """addMessage throws on null message."""
    with pytest.raises(TypeError, match=r"^Message cannot be null or undefined$"):
        ContextManager().add_message(None)


def test_add_message_throws_on_non_string_content() -> None:
    """addMessage throws on non-string content."""
    with pytest.raises(TypeError, match=r"^Message content must be a string$"):
        ContextManager().add_message({"content": 123, "speaker": HUMAN})


def test_add_message_throws_on_missing_speaker() -> None:
    """addMessage throws on missing speaker."""
    with pytest.raises(TypeError, match=r"^Message speaker is required$"):
        ContextManager().add_message({"content": "Hi"})


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (None, "Message cannot be null or undefined"),
        ("", "Message cannot be null or undefined"),
        (0, "Message cannot be null or undefined"),
        ({}, "Message content must be a string"),
        ("Hi", "Message content must be a string"),
        ({"content": None, "speaker": HUMAN}, "Message content must be a string"),
        ({"content": ["Hi"], "speaker": HUMAN}, "Message content must be a string"),
        ({"content": "Hi", "speaker": None}, "Message speaker is required"),
        ({"content": "Hi", "speaker": {}}, "Message speaker.roleId is required"),
        (user("Hi"), "Message speaker is required"),
        ({"content": "Hi", "speaker": {"roleName": "x"}}, "Message speaker.roleId is required"),
        ({"content": "Hi", "speaker": {"roleId": ""}}, "Message speaker.roleId is required"),
        ({"content": "Hi", "speaker": "max"}, "Message speaker.roleId is required"),
    ],
)
def test_validation_row_by_row(wrong: Any, text: str) -> None:  # noqa: ANN401 - anything
    """S2 §4.1 and §6.1; and nothing has changed."""
    context = ContextManager()
    with pytest.raises(TypeError) as caught:
        context.add_message(wrong)
    assert (text, 0) == (str(caught.value), context.history.version)


def test_add_message_calls_on_message_added_hook() -> None:
    """addMessage calls onMessageAdded hook."""
    seen: list[Message] = []
    context = ContextManager(on_message_added=seen.append)
    assert [context.add_message(human("Hi"))] == seen


def test_get_messages_returns_shallow_copy() -> None:
    """getMessages returns shallow copy."""
    context = filled(human("Hi"))
    mine = context.messages
    mine.clear()
    assert 1 == len(context.messages)
    assert context.messages[0] is context.messages[0]


def test_get_messages_returns_empty_array_initially() -> None:
    """getMessages returns empty array initially."""
    assert [] == ContextManager().messages


def test_get_latest_message_returns_null_when_empty() -> None:
    """getLatestMessage returns null when empty."""
    assert ContextManager().latest is None


def test_get_latest_message_returns_last_message() -> None:
    """getLatestMessage returns last message."""
    context = filled(human("Hi"), ai("Hello!"))
    assert context.messages[-1] == context.latest


# ── 8.2 team task management ────────────────────────────────────────────────────────────────────


def test_set_team_task_stores_task() -> None:
    """setTeamTask stores task."""
    context = ContextManager()
    context.set_team_task("tea")
    assert "tea" == context.team_task == context.history.team_task


@pytest.mark.parametrize(
    ("task", "length"),
    [
        ("x" * 5120, 5120),
        ("x" * 5121, 5120),
        ("ä" * 2560, 5120),
        ("x" + "ä" * 2560, 5119),
        ("字" * 2000, 5118),
        ("x" + "🙂" * 2000, 5117),
    ],
)
def test_set_team_task_truncates_at_5_kb(task: str, length: int) -> None:
    """setTeamTask truncates at 5KB: at a whole character."""
    context = ContextManager()
    context.set_team_task(task)
    kept = context.team_task or ""
    assert (length, True) == (len(kept.encode()), task.startswith(kept))


def test_set_team_task_logs_warning_on_truncation(caplog: pytest.LogCaptureFixture) -> None:
    """setTeamTask logs warning on truncation."""
    context = ContextManager()
    context.set_team_task("x" * MAX_TEAM_TASK_BYTES)
    assert [] == caplog.record_tuples
    context.set_team_task("ä" * 3_000 + "x")
    assert [
        (
            "palaver.context",
            logging.WARNING,
            "[ContextManager] TeamTask exceeded 5KB limit (6001 bytes), truncated to 5120 bytes",
        )
    ] == caplog.record_tuples


def test_set_team_task_calls_on_team_task_changed_hook() -> None:
    """setTeamTask calls onTeamTaskChanged hook: with what was stored."""
    seen: list[str | None] = []
    context = ContextManager(on_team_task_changed=seen.append)
    context.set_team_task("tea")
    context.set_team_task("x" * 6_000)
    context.set_team_task(None)
    assert ["tea", "x" * 5120, None] == seen


def test_get_team_task_returns_null_initially() -> None:
    """getTeamTask returns null initially."""
    assert ContextManager().team_task is None


# ── 8.3 context for an agent ────────────────────────────────────────────────────────────────────


def test_returns_empty_context_when_no_messages() -> None:
    """returns empty context when no messages."""
    context = ContextManager(max_bytes=99)
    given = context.context_for("max", "claude", system_instruction="Be brief.")
    assert {
        "contextMessages": [], "currentMessage": "", "teamTask": None, "maxBytes": 99,
        "systemInstruction": "Be brief.",
    } == given.to_dict()  # fmt: skip


def test_applies_context_window_size_limit() -> None:
    """applies contextWindowSize limit."""
    talk = [human(str(number)) for number in range(8)]
    assert ["2", "3", "4", "5", "6"] == contents(filled(*talk))
    assert ["5", "6"] == contents(filled(*talk, window=2))
    assert [] == contents(filled(*talk, window=0))
    assert 7 == len(contents(filled(*talk, window=99)))


def test_respects_window_size_override() -> None:
    """respects windowSizeOverride; beside it a window for an agent, or for a type."""
    talk = [human(str(number)) for number in range(8)]
    context = filled(*talk, windows={"sarah": 1, "openai-codex": 2})
    assert ["4", "5", "6"] == contents(context, window=3)
    assert [] == contents(context, window=0)
    assert ["6"] == contents(context)
    assert 2 == len(context.context_for("carol", "codex").context_messages)
    assert 5 == len(context.context_for("carol", "gemini").context_messages)


def test_strips_markers_from_context_messages() -> None:
    """strips markers from context messages; the log keeps them."""
    context = filled(human("[FROM: x] Hi  [NEXT: max]"), ai("Hello!"))
    assert ["Hi"] == contents(context)
    assert "[FROM: x] Hi  [NEXT: max]" == context.messages[0].text


def test_strips_markers_from_current_message() -> None:
    """strips markers from current message."""
    assert "Hi" == filled(human("Hi [NEXT: max]")).context_for("max").current_message


def test_deduplicates_ai_ai_context(caplog: pytest.LogCaptureFixture) -> None:
    """deduplicates AI→AI context: the very last line, by id or by speaker and content."""
    caplog.set_level(logging.DEBUG, "palaver.context")
    context = filled(human("Hi"), ai("Same"), ai("Same [NEXT: sarah]"))
    caplog.clear()
    assert ["Hi"] == contents(context)
    assert ["[ContextManager] Deduplicated context for AI→AI"] == caplog.messages
    assert 3 == len(context.messages)
    again = said("Same", MAX, id="m1")
    twice = History([said("Hi"), again, said("changed", SARAH, id="m1")])
    assert ["Hi"] == contents(ContextManager(twice))
    between = filled(ai("Same"), human("Hi"), ai("Same"))
    assert ["Same", "Hi"] == contents(between)


def test_does_not_deduplicate_human_messages() -> None:
    """does NOT deduplicate human messages."""
    assert ["Same"] == contents(filled(human("Same"), human("Same")))
    assert ["Same"] == contents(filled(human("Same"), ai("Same")))
    bare = History([assistant("Same"), assistant("Same")])
    assert [] == contents(ContextManager(bare))


def test_passes_system_instruction_and_instruction_file_text() -> None:
    """passes systemInstruction and instructionFileText."""
    given = filled(human("Hi")).context_for(
        "max", "claude", system_instruction="Be brief.", instruction_file_text="Be kind."
    )
    assert ("Be brief.", "Be kind.") == (given.system_instruction, given.instruction_file_text)


def test_passes_max_bytes_to_output() -> None:
    """passes maxBytes to output."""
    assert 786_432 == ContextManager().context_for("max").max_bytes
    assert 99 == ContextManager(max_bytes=99).context_for("max").max_bytes


# ── 8.4 lifecycle ───────────────────────────────────────────────────────────────────────────────


def test_clear_removes_all_messages() -> None:
    """clear removes all messages: from the view, and the log keeps them."""
    context = filled(human("Hi"), ai("Hello!"))
    context.history.append(system("Be brief."))
    context.clear()
    assert ([], None) == (context.messages, context.latest)
    assert 3 == len(context.history.log)
    context.history.undo()
    assert 3 == len(context.messages)


def test_clear_resets_team_task() -> None:
    """clear resets teamTask, in the same change."""
    seen: list[str | None] = []
    context = ContextManager(on_team_task_changed=seen.append)
    context.set_team_task("tea")
    version = context.history.version
    context.clear()
    assert (None, version + 1) == (context.team_task, context.history.version)
    assert ["tea", None] == seen
    context.history.undo()
    assert "tea" == context.team_task


def test_clear_resets_message_id_counter() -> None:
    """clear resets message ID counter."""
    context = filled(human("one"), human("two"))
    context.clear()
    third = context.add_message(human("three"))
    assert ("msg-1", third) == (context.handle(third), context.message("msg-1"))


def test_export_snapshot_returns_serializable_object() -> None:
    """exportSnapshot returns serializable object."""
    context = filled(human("Hi", timestamp=4, mood="good"), ai("Hello!", timestamp=5))
    context.set_team_task("tea")
    snapshot = json.loads(json.dumps(context.export_snapshot()))
    ids = [message.id for message in context.messages]
    assert [
        {"id": ids[0], "content": "Hi", "speaker": HUMAN, "timestamp": 4, "mood": "good"},
        {"id": ids[1], "content": "Hello!", "speaker": ROBOT, "timestamp": 5},
    ] == snapshot["messages"]
    assert ("tea", 1, int) == (
        snapshot["teamTask"], snapshot["version"], type(snapshot["timestamp"]),
    )  # fmt: skip


def test_import_snapshot_restores_messages() -> None:
    """importSnapshot restores messages; markers in them are only text."""
    context = filled(human("old"))
    context.import_snapshot(SNAPSHOT)
    assert ["msg-1", "msg-2"] == [message.id for message in context.messages]
    assert SNAPSHOT["messages"] == context.export_snapshot()["messages"]
    third = context.add_message(human("three"))
    assert "msg-3" == context.handle(third)
    context.history.undo()
    context.history.undo()
    assert ["old"] == [message.text for message in context.messages]


def test_import_snapshot_restores_team_task() -> None:
    """importSnapshot restores teamTask."""
    seen: list[str | None] = []
    context = ContextManager(on_team_task_changed=seen.append)
    context.import_snapshot(SNAPSHOT)
    assert ("tea", ["tea"]) == (context.team_task, seen)


@pytest.mark.parametrize(
    "wrong",
    [None, {}, [], "x", {**SNAPSHOT, "version": 2}, {**SNAPSHOT, "version": "1"},
     {**SNAPSHOT, "version": True}],
)  # fmt: skip
def test_import_snapshot_throws_on_invalid_format(wrong: object) -> None:
    """importSnapshot throws on invalid format; and nothing has changed."""
    context = filled(human("old"))
    with pytest.raises(ValidationError, match="Invalid snapshot format"):
        context.import_snapshot(wrong)
    assert 1 == context.history.version


# ── 8.5 assembling ──────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def scene() -> ContextManager:
    context = filled(human("Hi"), ai("Hello!", routing={"resolvedAddressees": ["sarah"]}))
    context.set_team_task("Greet")
    return context


def test_uses_claude_context_assembler_for_claude_code(scene: ContextManager) -> None:
    """uses ClaudeContextAssembler for claude-code."""
    given = scene.context_for("sarah", "claude", system_instruction="Be brief.")
    output = scene.assemble("claude-code", given)
    prompt = "[TEAM_TASK]\nGreet\n\n[CONTEXT]\n- User -> all: Hi\n\n[MESSAGE]\nHello!"
    assert (prompt, "Be brief.") == (output.prompt, output.system_flag)
    assert output == scene.assemble("Claude", given)


def test_uses_codex_context_assembler_for_openai_codex(scene: ContextManager) -> None:
    """uses CodexContextAssembler for openai-codex."""
    given = scene.context_for("sarah", "codex", system_instruction="Be brief.")
    output = scene.assemble("openai-codex", given)
    assert output.prompt.startswith("[SYSTEM]\nBe brief.\n\n[TEAM_TASK]\nGreet\n\n[CONTEXT]\n- ")
    assert output.system_flag is None


def test_uses_gemini_context_assembler_for_google_gemini(scene: ContextManager) -> None:
    """uses GeminiContextAssembler for google-gemini."""
    output = scene.assemble("google-gemini", scene.context_for("sarah", "gemini"))
    assert (
        "Team Task:\nGreet\n\nConversation so far:\n- User: Hi\n\nLast message:\nHello!"
    ) == output.prompt


def test_falls_back_to_plain_text_assembler_for_unknown_type(scene: ContextManager) -> None:
    """falls back to PlainTextAssembler for unknown type."""
    output = scene.assemble("MyBot", scene.context_for("sarah", "MyBot"))
    assert "Greet\n\nUser: Hi\n\nHello!" == output.prompt


def test_logs_warning_for_unknown_agent_type(
    scene: ContextManager, caplog: pytest.LogCaptureFixture
) -> None:
    """logs warning for unknown agent type."""
    given = scene.context_for("sarah", "MyBot")
    scene.assemble("plain", given)
    scene.assemble("claude", given)
    assert [] == caplog.messages
    scene.assemble("MyBot", given)
    assert [
        (
            "palaver.context",
            logging.WARNING,
            (
                '[ContextManager] Unknown agentType "MyBot" (normalized: "MyBot"), '
                "using PlainTextAssembler"
            ),
        )
    ] == caplog.record_tuples
