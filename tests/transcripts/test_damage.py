"""Whatever happens to a file: what is there is read, what is not is noted, and nothing crashes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import ValidationError
from palaver.transcripts import READERS, detect, each_conversation
from tests.profiles import at_least
from tests.transcripts.samples import database, sample, sound

if TYPE_CHECKING:
    from pathlib import Path

    from palaver.wire.notes import ParsedConversation

FILES = {
    "claude-code.jsonl": "claude-code",
    "codex.jsonl": "codex",
    "codex-bare.jsonl": "codex",
    "requests-openai.jsonl": "requests",
    "requests-anthropic.jsonl": "requests",
}
ODD: list[Any] = [
    None, True, 0, -1, 7.5, 2**60, "", "x", "a\0b", "\n", "x" * 2_000, [], {}, [[]], [None],
    {"": {}}, {"type": "text"}, [{"type": "text", "text": 7}], "2026-03-01T09:00:00Z", 10**18,
]  # fmt: skip


def survives(source: bytes, form: str) -> list[ParsedConversation]:
    """The readings, or none where the file as a whole is refused."""
    detect(source)
    try:
        return sound(each_conversation(source, form))
    except ValidationError:
        return []


@pytest.mark.parametrize(("name", "form"), [("codex-bare.jsonl", "codex"), *FILES.items()])
def test_a_file_that_was_cut_off_is_read_as_far_as_it_goes(name: str, form: str) -> None:
    whole = sample(name)
    step = 1 if len(whole) < 1_200 else 101
    for end in range(0, len(whole), step):
        conversations = sound(READERS[form](whole[:end]))
        cut = end > 0 and whole[end - 1 : end] != b"\n" and whole[end : end + 1] != b"\n"
        told = {note.rule for parsed in conversations for note in parsed.notes}
        assert not cut or "transcript.damaged" in told


def test_each_line_that_is_broken_is_noted_once() -> None:
    for name, form in FILES.items():
        lines = sample(name).splitlines()
        for index, line in enumerate(lines):
            broken = b"\n".join([*lines[:index], line[:-3], *lines[index + 1 :]])
            conversations = sound(READERS[form](broken))
            told = [note for parsed in conversations for note in parsed.notes]
            damage = [note.where for note in told if note.rule == "transcript.damaged"]
            assert [f"line {index + 1}"] == damage, (name, index)


def test_a_database_that_was_cut_off_or_overwritten_is_no_crash(tmp_path: Path) -> None:
    for form, script in (
        ("opencode", "opencode.sql"),
        ("llm", "llm.sql"),
        ("llm", "llm-threads.sql"),
    ):
        whole = database(tmp_path / script, script).read_bytes()
        for end in range(0, len(whole), 1_021):
            survives(whole[:end], form)
            path = tmp_path / "damaged.db"
            path.write_bytes(whole[:end] + b"\xaa" * 64 + whole[end + 64 :])
            assert isinstance(detect(path), str | None)
            survives(path.read_bytes(), form)


def test_a_damaged_page_of_a_database_is_noted_and_the_rest_is_read(tmp_path: Path) -> None:
    path = database(tmp_path / "o.db", "opencode.sql")
    data = bytearray(path.read_bytes())
    place = data.index(b'{"type":"text","text":"Why is') // 4096 * 4096
    data[place : place + 8] = b"\0" * 8
    path.write_bytes(data)
    conversations = sound(READERS["opencode"](path))
    assert "The loose lid" in [parsed.about.get("title") for parsed in conversations]
    assert "transcript.database" in {note.rule for each in conversations for note in each.notes}


def test_what_is_no_database_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"SQLite format 3\0" + b"x" * 500)
    for source in (path, path.read_bytes(), tmp_path / "nowhere.db"):
        with pytest.raises(ValidationError, match="is no database that can be read"):
            list(each_conversation(source, "opencode"))


@pytest.mark.parametrize(("name", "form"), FILES.items())
@at_least(60)
@given(data=st.data())
def test_bytes_that_change_are_no_crash(name: str, form: str, data: st.DataObject) -> None:
    raw = bytearray(sample(name))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place : place + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=6))
    survives(bytes(raw), form)


@st.composite
def twisted(draw: st.DrawFn, value: Any) -> Any:  # noqa: ANN401 - JSON
    """A value with something odd somewhere in it, or something missing."""
    if isinstance(value, dict) and value and draw(st.integers(0, 3)):
        key = draw(st.sampled_from(sorted(value)))
        if not draw(st.integers(0, 4)):
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: draw(twisted(value[key]))}
    if isinstance(value, list) and value and draw(st.integers(0, 3)):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], draw(twisted(value[place])), *value[place + 1 :]]
    return draw(st.sampled_from(ODD))


@pytest.mark.parametrize(("name", "form"), FILES.items())
@at_least(80)
@given(data=st.data())
def test_records_that_say_odd_things_are_no_crash(
    name: str, form: str, data: st.DataObject
) -> None:
    rows = [json.loads(line) for line in sample(name).splitlines()]
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(rows) - 1))
        rows[place] = data.draw(twisted(rows[place]))
    assert sound(READERS[form]("\n".join(map(json.dumps, rows)).encode())) or not rows


@at_least(80)
@given(data=st.data())
def test_an_export_that_says_odd_things_is_no_crash(data: st.DataObject) -> None:
    value = json.loads(sample("opencode-export.json"))
    for _ in range(data.draw(st.integers(1, 4))):
        value = data.draw(twisted(value))
    survives(json.dumps(value).encode(), "opencode-export")


@pytest.mark.parametrize(
    ("form", "script"),
    [("opencode", "opencode.sql"), ("llm", "llm.sql"), ("llm", "llm-threads.sql")],
)
@at_least(25)
@given(data=st.data())
def test_a_database_with_bytes_that_change_is_no_crash(
    form: str, script: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "whole"
    folder.mkdir(exist_ok=True)
    path = folder / script
    raw = bytearray((path if path.exists() else database(path, script)).read_bytes())
    for _ in range(data.draw(st.integers(1, 20))):
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place] = data.draw(st.integers(0, 255))
    survives(bytes(raw), form)


@pytest.mark.parametrize(
    ("form", "script", "table"),
    [("opencode", "opencode.sql", "session"), ("llm", "llm.sql", "responses")],
)
def test_damage_that_no_conversation_can_tell_is_noted(
    form: str, script: str, table: str, tmp_path: Path
) -> None:
    path = database(tmp_path / "x.db", script)
    connection = apsw.Connection(str(path))
    query = "select rootpage from sqlite_schema where name = ?"
    page = int(str(connection.execute(query, (table,)).fetchall()[0][0]))
    connection.execute("delete from conversations" if form == "llm" else "select 1")
    connection.close()
    data = bytearray(path.read_bytes())
    data[(page - 1) * 4096 : page * 4096] = b"\xaa" * 4096
    (parsed,) = READERS[form](bytes(data))
    assert () == parsed.messages
    assert {"transcript.database"} == {note.rule for note in parsed.notes}
