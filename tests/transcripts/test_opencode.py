from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import apsw
import pytest

from palaver.errors import ValidationError
from palaver.messages import AssistantInfo, ToolPart, UnknownPart
from palaver.transcripts import detect, opencode, read_transcript
from tests.transcripts.samples import DATA, database, sample, sound, spoken

if TYPE_CHECKING:
    from pathlib import Path

    from palaver.wire.notes import ParsedConversation

SAID = [("user", "Why is the lid loose?"), ("assistant", "Nothing holds it.")]


@pytest.fixture
def sessions(tmp_path: Path) -> list[ParsedConversation]:
    return sound(opencode.read_database(database(tmp_path / "o.db", "opencode.sql")))


def test_each_session_of_a_database_is_a_conversation(sessions: list[ParsedConversation]) -> None:
    first, second, third = sessions
    assert [*SAID, ("tool", "(no output)")] == spoken(first.messages)
    assert [("user", "Find every hinge.")] == spoken(second.messages)
    assert () == third.messages


def test_what_is_known_of_a_session(sessions: list[ParsedConversation]) -> None:
    assert {
        "id": "ses_41aa",
        "title": "The loose lid",
        "cwd": "/home/ada/teapot",
        "version": "1.9.2",
        "model": "claude-opus-4-6",
        "created": 1_772_000_000_000,
    } == sessions[0].about
    assert "ses_41aa" == sessions[1].about["parent"]


def test_figures_and_ids_are_stored(sessions: list[ParsedConversation]) -> None:
    answer = sessions[0].messages[1]
    assert "msg_02" == answer.id
    assert isinstance(answer.info, AssistantInfo)
    assert 0.02 == answer.info.cost
    assert 5 == (answer.info.tokens and answer.info.tokens.cache.read)
    result = sessions[0].messages[2].parts[0]
    assert isinstance(result, ToolPart)
    assert ("toolu_a", "read") == (result.call_id, result.tool)


def test_damage_and_open_calls_are_noted(sessions: list[ParsedConversation]) -> None:
    first, second, third = ([note.rule for note in session.notes] for session in sessions)
    assert ["transcript.part", "transcript.open"] == first
    assert ["transcript.damaged", "transcript.damaged"] == second
    assert ["transcript.record"] == third


def test_a_database_may_come_as_bytes_and_with_a_wal(tmp_path: Path) -> None:
    path = database(tmp_path / "o.db", "opencode.sql")
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.execute("update session set title = 'Later'")
    waiting = (tmp_path / "o.db-wal").stat().st_size
    first = next(opencode.read_database(path))
    assert waiting == (tmp_path / "o.db-wal").stat().st_size > 0
    assert "The loose lid" == first.about["title"]
    assert "o.db-wal" in [note.where for note in first.notes]
    connection.close()  # which moves the change over
    first = sound(opencode.read_database(path.read_bytes()))[0]
    assert "Later" == first.about["title"]


def test_a_file_is_not_touched(tmp_path: Path) -> None:
    path = database(tmp_path / "o #1?.db", "opencode.sql")
    before = path.read_bytes()
    path.chmod(0o400)
    assert 3 == len(list(opencode.read_database(path)))
    assert before == path.read_bytes()
    assert [path] == list(tmp_path.iterdir())


def test_an_export_is_read_whole() -> None:
    (parsed,) = sound(opencode.read_export(DATA / "opencode-export.json"))
    assert [*SAID, ("tool", "HINGE = None")] == spoken(parsed.messages)
    assert ("ses_41aa", "The loose lid") == (parsed.about["id"], parsed.about["title"])
    kinds = [type(part) for part in parsed.messages[1].parts]
    assert UnknownPart in kinds
    assert ["transcript.open"] == [note.rule for note in parsed.notes]


def test_an_export_may_be_a_bare_list_and_hold_odd_characters() -> None:
    turns = json.loads(sample("opencode-export.json"))["messages"]
    turns[0]["parts"][0]["text"] = "a\0b"
    (parsed,) = sound(opencode.read_export(json.dumps(turns).encode()))
    assert "a\ufffdb" == parsed.messages[0].text
    assert "transcript.text" == parsed.notes[0].rule


def test_an_export_that_is_no_json_is_an_error() -> None:
    with pytest.raises(ValidationError, match="is not JSON"):
        list(opencode.read_export(b'{"messages": ['))


def turn(**more: object) -> dict[str, Any]:
    info = {"id": "m1", "role": "user", "time": {"created": 5}, **more}
    return {"info": info, "parts": []}


def test_what_is_wrong_in_a_turn_is_noted() -> None:
    def part(**more: object) -> dict[str, Any]:
        return {"id": "p1", "type": "text", "sessionID": "s", "messageID": "m1", **more}

    pending = {"status": "pending", "input": {}, "raw": ""}
    call = part(id="p3", type="tool", callID="c", tool="t", state=pending)
    keeping = turn(id="m2", role="assistant", keep={"calls": {"p3": {"type": "text"}}})
    turns = [
        {**turn(), "parts": [part(text="one"), part(text="two"), part(id="p2"), 7]},
        {**turn(role="wizard"), "parts": [part(text="x"), part()]},
        turn(),
        {"info": {}},
        "turn",
        {**keeping, "parts": [call]},
    ]
    (parsed,) = sound(opencode.read_export(json.dumps({"info": 1, "messages": turns}).encode()))
    assert [("user", "onetwo"), ("user", "")] == spoken(parsed.messages)
    assert [
        "$.messages[0]", "$.messages[0]", "$.messages[0]", "$.messages[1]", "$.messages[1]",
        "$.messages[2]", "$.messages[3]", "$.messages[4]", "message m2",
    ] == [note.where for note in parsed.notes]  # fmt: skip


def test_the_folder_of_older_releases(tmp_path: Path) -> None:
    def put(place: str, value: object) -> None:
        path = tmp_path / f"{place}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))

    export = json.loads(sample("opencode-export.json"))
    put("session/p1/ses_41aa", export["info"])
    for entry in export["messages"]:
        name = entry["info"]["id"]
        put(f"message/ses_41aa/{name}", entry["info"])
        for part in entry["parts"]:
            put(f"part/{name}/{part['id']}", part)
    put("message/ses_0000/msg_77", turn(id="msg_77")["info"])
    put("message/ses_0000/msg_78", "broken")
    stranger, parsed = sound(opencode.read_folder(tmp_path))
    assert [*SAID, ("tool", "HINGE = None")] == spoken(parsed.messages)
    assert "The loose lid" == parsed.about["title"]
    assert {"id": "ses_0000"} == stranger.about
    assert ["msg_78.json"] == [note.where for note in stranger.notes]


def test_what_the_command_says_before_an_export_is_no_part_of_it() -> None:
    data = b"Exporting session: ses_41aa\n" + sample("opencode-export.json")

    assert "opencode-export" == detect(data)
    assert read_transcript(data) == read_transcript(sample("opencode-export.json"))


def test_turns_and_parts_of_one_id_are_all_kept() -> None:
    def turn(text: str, *more: str, made: int) -> dict[str, Any]:
        info = {"role": "user", "id": "HIDDEN", "sessionID": "s", "time": {"created": made}}
        own = {"type": "text", "id": "HIDDEN", "sessionID": "s", "messageID": "HIDDEN"}
        return {"info": info, "parts": [{**own, "text": each} for each in (text, *more)]}

    tea, milk = turn("Tea?", "Black.", made=1), turn("Milk?", made=2)
    (found,) = sound(opencode.read_export(json.dumps([tea, milk, tea]).encode()))

    assert [("user", "Tea?Black."), ("user", "Milk?")] == spoken(found.messages)
    assert [
        ("repaired", "$.messages[0]", "transcript.uuid"),
        ("repaired", "$.messages[1]", "transcript.uuid"),
        ("lost", "message HIDDEN", "transcript.damaged"),
    ] == [(note.action, note.where, note.rule) for note in found.notes]
