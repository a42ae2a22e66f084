from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
import pytest

from palaver.messages import (
    AssistantInfo,
    CacheCounts,
    FilePart,
    ModelRef,
    ReasoningPart,
    TokenCounts,
    ToolCallPart,
    ToolCompleted,
    ToolPart,
    UnknownPart,
)
from palaver.transcripts import llm
from palaver.transcripts.llm import model_of
from tests.transcripts.samples import database, sound, spoken

if TYPE_CHECKING:
    from pathlib import Path

    from palaver.messages import Message
    from palaver.wire.notes import ParsedConversation

DEEP = '{"a": ' + "[" * 127 + "]" * 127 + "}"
"""As deep as a value may be: there is no room for it inside another."""


def changed(path: Path, *statements: str, **values: str) -> list[ParsedConversation]:
    """The readings of a database after these changes."""
    connection = apsw.Connection(str(path))
    connection.pragma("synchronous", 0)
    for statement in statements:
        connection.execute(statement, values or None)
    connection.close()
    return sound(llm.read(path))


def result(message: Message) -> ToolPart:
    part = message.parts[0]
    assert isinstance(part, ToolPart)
    return part


class TestResponses:
    """The older tables."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return database(tmp_path / "logs.db", "llm.sql")

    @pytest.fixture
    def found(self, path: Path) -> list[ParsedConversation]:
        return sound(llm.read(path))

    @pytest.fixture
    def tea(self, found: list[ParsedConversation]) -> ParsedConversation:
        return found[0]

    def test_a_conversation_is_put_together_from_its_rows(self, tea: ParsedConversation) -> None:
        assert [
            ("system", "Speak English.\n\nBe brief."),
            ("user", "The label: TEA\nWhat time is it, and what does it say?"),
            ("assistant", ""),
            ("tool", "16:00"),
            ("tool", "Error: no bell"),
            ("tool", "(1 file: image/jpeg)"),
            ("assistant", "Four. It says tea."),
        ] == spoken(tea.messages)

    def test_what_is_known_of_it(self, tea: ParsedConversation) -> None:
        about = {
            "id": "01jtea",
            "title": "Tea?",
            "model": "gpt-5-mini",
            "created": 1_772_618_400_000,
        }
        assert about == tea.about

    def test_attachments_are_files_in_their_order(self, tea: ParsedConversation) -> None:
        files = [part for part in tea.messages[1].parts if isinstance(part, FilePart)]
        assert [
            ("image/png", "data:image/png;base64,iVBORw==", None),
            ("text/plain", "file:///home/ada/my%20label.txt", "my label.txt"),
        ] == [(file.mime, file.url, file.filename) for file in files]
        assert ["attachment gone"] == [note.where for note in tea.notes]

    def test_an_answer_has_thoughts_calls_and_figures(self, tea: ParsedConversation) -> None:
        answer = tea.messages[2]
        thought, clock, ring, look = answer.parts
        assert isinstance(thought, ReasoningPart)
        calls = [part for part in (clock, ring, look) if isinstance(part, ToolCallPart)]
        assert [("call_c", {"zone": "UTC"}), ("01r1-1", {}), ("call_l", {})] == [
            (call.call_id, call.input) for call in calls
        ]
        assert isinstance(answer.info, AssistantInfo)
        assert ModelRef("openai", "gpt-5-mini-2026") == answer.info.model
        assert TokenCounts(30, 9, 0, CacheCounts(20, 0)) == answer.info.tokens
        assert 1_500 == (answer.info.completed or 0) - answer.timestamp
        details = {"prompt_tokens_details": {"cached_tokens": 20}}
        stored = {"options": {"temperature": 0.2}, "tokenDetails": details}
        assert {"llm": stored} == answer.metadata

    def test_results_find_their_calls_even_without_an_id(self, tea: ParsedConversation) -> None:
        clock, ring, look = (result(message) for message in tea.messages[3:6])
        assert [("call_c", "completed"), ("01r1-1", "error"), ("call_l", "completed")] == [
            (part.call_id, part.state.status) for part in (clock, ring, look)
        ]
        assert {"llm": {"exception": "BellError: no bell"}} == ring.metadata
        assert isinstance(look.state, ToolCompleted)
        assert isinstance(look.state.attachments, tuple)
        assert ["https://example.com/cup.jpg"] == [file.url for file in look.state.attachments]

    def test_a_row_without_a_conversation_is_one(self, found: list[ParsedConversation]) -> None:
        alone = found[2]
        assert [("user", "Alone"), ("assistant", "Yes.")] == spoken(alone.messages)
        assert {"llm": {"schema": "s1"}} == alone.messages[1].metadata

    def test_rows_of_a_conversation_that_is_gone_are_read(self, path: Path) -> None:
        found = changed(path, "delete from conversations where id = '01jtea'")
        assert ["01jnew", "01jtea", None] == [parsed.about.get("id") for parsed in found]
        assert 7 == len(found[1].messages)

    def test_a_table_of_an_older_release_may_be_missing(self, path: Path) -> None:
        gone = ("tool_calls", "tool_results", "system_fragments", "prompt_attachments")
        tea = changed(path, *(f"drop table {table}" for table in gone))[0]
        assert ["system", "user", "assistant", "assistant"] == [m.role for m in tea.messages]
        assert () == tea.notes

    def test_columns_of_an_older_release_may_be_missing(self, path: Path) -> None:
        tea = changed(path, "alter table responses drop column reasoning")[0]
        assert 7 == len(tea.messages)

    def test_text_that_is_none_is_repaired_and_noted(self, path: Path) -> None:
        bad = "update responses set prompt = cast(x'41ff0042' as text) where id = '01r3'"
        found = changed(path, bad)
        assert "A\ufffd\ufffdB" == found[2].messages[0].text
        assert ["transcript.text"] == [note.rule for note in found[2].notes]

    def test_a_name_that_no_tool_can_have_is_left_out(self, path: Path) -> None:
        bad = "update tool_calls set name = char(10), tool_call_id = char(10)"
        tea = changed(path, bad)[0]
        names = [part.tool for part in tea.messages[2].parts if isinstance(part, ToolCallPart)]
        assert ["unknown"] * 3 == names
        assert "Four. It says tea." == tea.messages[-1].text

    def test_results_without_ids_take_their_calls_in_turn(self, path: Path) -> None:
        tea = changed(
            path,
            "update tool_calls set name = 'ring', tool_call_id = null",
            "update tool_results set name = 'ring', tool_call_id = null",
        )[0]
        calls = [result(message).call_id for message in tea.messages[3:6]]
        assert ["01r1-0", "01r1-1", "01r1-2"] == calls

    def test_what_no_message_can_hold_loses_the_row(self, path: Path) -> None:
        tea = changed(path, "update responses set options_json = :d where id = '01r1'", d=DEEP)[0]
        assert "response 01r1" in [note.where for note in tea.notes]
        assert "Four. It says tea." == tea.messages[-1].text


class TestThreads:
    """The newer tables."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return database(tmp_path / "logs.db", "llm-threads.sql")

    @pytest.fixture
    def found(self, path: Path) -> list[ParsedConversation]:
        return sound(llm.read(path))

    def test_a_thread_is_the_way_to_its_tip(self, found: list[ParsedConversation]) -> None:
        begin = [
            ("system", "Be brief."),
            ("user", "The label: TEA\nWhat time is it?"),
            ("assistant", ""),
            ("tool", "16:00"),
            ("tool", "no bell"),
            ("assistant", "Four."),
        ]
        assert [*begin, ("user", "Thanks.")] == spoken(found[0].messages)
        assert [*begin, ("user", "And tea?")] == spoken(found[1].messages)

    def test_what_is_known_of_a_thread(self, found: list[ParsedConversation]) -> None:
        assert {
            "id": "01jfork",
            "title": "And tea?",
            "forked_from": "01jnew",
            "model": "gpt-5-mini-2026",
            "created": 1_785_582_000_000,
        } == found[1].about

    def test_a_turn_tells_time_model_and_tokens(self, found: list[ParsedConversation]) -> None:
        answer = found[0].messages[2]
        assert isinstance(answer.info, AssistantInfo)
        assert TokenCounts(50, 5, 4, CacheCounts(0, 0)) == answer.info.tokens
        assert 1_785_578_401_000 == answer.timestamp
        assert {"id": "resp_1"} == answer.metadata["openai"]
        assert "s1" == answer.metadata["llm"]["schema"]

    def test_parts_are_stored(self, found: list[ParsedConversation]) -> None:
        thought, call, served = found[0].messages[2].parts
        assert isinstance(thought, ReasoningPart)
        told = {"openai": {"encrypted_content": "gAAAA=="}, "llm": {"redacted": True}}
        assert told == thought.metadata
        assert isinstance(call, ToolCallPart)
        assert ("call_c", '{"zone":"UTC"}') == (call.call_id, call.raw)
        assert isinstance(served, UnknownPart)
        assert ("llm", "web") == (served.type, served.raw["block"]["name"])

    def test_results_are_messages_of_their_own(self, found: list[ParsedConversation]) -> None:
        clock, ring = (result(message) for message in found[0].messages[3:5])
        assert ("call_c", "clock", "completed") == (clock.call_id, clock.tool, clock.state.status)
        assert ("result of ring", "ring", "error") == (ring.call_id, ring.tool, ring.state.status)

    def test_damage_is_noted(self, found: list[ParsedConversation]) -> None:
        assert [
            ["message b2:01, part 0"],
            ["message b2:01, part 0", "message b2:06"],
            ["message b2:lost", "message b2:08, part 0"],
            [],
        ] == [[note.where for note in parsed.notes] for parsed in found]

    def test_a_thread_stands_for_the_conversation_of_its_id(self, tmp_path: Path) -> None:
        both = sound(llm.read(database(tmp_path / "b.db", "llm.sql", "llm-threads.sql")))
        ids = ["01jtea", None, "01jnew", "01jfork", "01jdamaged", "01jempty"]
        assert ids == [parsed.about.get("id") for parsed in both]
        assert "What time is it?" == both[2].about["title"]

    def test_messages_that_go_in_a_circle_end(self, path: Path) -> None:
        found = changed(path, "update messages set parent_hash = 'b2:05' where hash = 'b2:00'")
        assert 7 == len(found[0].messages)

    def test_odd_parts_are_stored_or_noted(self, path: Path) -> None:
        parsed = changed(
            path,
            "update parts set text = null, payload = null where message_hash = 'b2:04'",
            "update parts set type = 'text' where message_hash = 'b2:03' and position = 1",
            'update parts set payload = \'{"name": "clock", "output": "1"}\' '
            "where message_hash = 'b2:03' and position = 0",
            "update messages set provider_metadata = '[]' where hash = 'b2:02'",
            "delete from parts where message_hash = 'b2:00'",
            "update parts set payload = '{\"text_ref\": [7]}' "
            "where message_hash = 'b2:01' and position = 0",
            "delete from parts where message_hash = 'b2:01' and position = 1",
        )[0]
        assert [
            ("system", ""),
            ("user", ""),
            ("assistant", ""),
            ("tool", "1"),
            ("assistant", ""),
            ("user", "Thanks."),
        ] == spoken(parsed.messages)
        assert "call_c" == result(parsed.messages[3]).call_id
        rules = [note.rule for note in parsed.notes]
        assert ["transcript.damaged", "transcript.damaged", "transcript.part"] == rules

    def test_what_no_message_can_hold_is_noted(self, path: Path) -> None:
        parsed = changed(path, "update turns set options_json = :d where id = '01t1'", d=DEEP)[0]
        assert 6 == len(parsed.messages)
        assert "message b2:02" in [note.where for note in parsed.notes]


@pytest.mark.parametrize(
    ("name", "provider"),
    [("claude-opus-4-6", "anthropic"), ("gemini-3-pro", "google"), ("o3", "openai"), ("x", "llm")],
)
def test_the_provider_is_noted_by_the_models_name(name: str, provider: str) -> None:
    assert ModelRef(provider, name) == model_of(name)


def test_a_name_that_is_none_is_no_model() -> None:
    assert model_of("") is None
    assert model_of("a\nb") is None
