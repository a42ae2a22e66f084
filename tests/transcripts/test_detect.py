from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import palaver
from palaver.errors import ValidationError
from palaver.messages import dump, tool_call_part, user
from palaver.messages.ids import NIL_ID
from palaver.stores.transfer import export_conversation
from palaver.transcripts import READERS, detect, each_conversation, read_transcript, sources
from palaver.transcripts.readers import document_format, line_format
from tests.transcripts.samples import DATA, database, sample

if TYPE_CHECKING:
    from pathlib import Path

HI = {"role": "user", "content": "hi"}
BLOCK = {"type": "tool_use", "id": "t", "name": "n", "input": {}}

FILES = {
    "claude-code.jsonl": "claude-code",
    "codex.jsonl": "codex",
    "codex-bare.jsonl": "codex",
    "opencode-export.json": "opencode-export",
    "requests-openai.jsonl": "requests",
    "requests-anthropic.jsonl": "requests",
}

DOCUMENTS: list[tuple[Any, str | None]] = [
    ([HI], "messages"),
    (HI, "messages"),
    ([{"role": "assistant", "content": None, "tool_calls": []}], "openai-chat"),
    ([{"role": "assistant", "content": [BLOCK]}], "anthropic"),
    (
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        "openai-chat",
    ),
    ([{"role": "user", "content": [{"type": "image", "image_url": {"url": "x"}}]}], "messages"),
    ([{"role": "user", "content": [{"type": "file", "messageID": "m"}, "hi"]}], "messages"),
    ([{"role": "user", "content": [{"type": "tool_use", "tool_use": BLOCK}]}], "messages"),
    ([HI, 7], "messages"),
    ([{"info": {}, "parts": []}], "opencode-export"),
    ({"info": {}, "parts": []}, "opencode-export"),
    ({"model": "gpt-5", "messages": [HI]}, "openai-chat"),
    ({"model": "anthropic/claude-opus", "messages": [HI]}, "anthropic"),
    ({"model": "m", "system": "s", "messages": [HI]}, "anthropic"),
    ({"model": "m", "messages": [{"role": "user", "content": [BLOCK]}]}, "anthropic"),
    ({"messages": [{"role": "developer", "content": "x"}]}, "openai-chat"),
    ({"model": "m", "messages": []}, "openai-chat"),
    ({"messages": []}, None),
    ({"messages": ["hi"]}, None),
    ({"model": "m", "input": "hi"}, "openai-responses"),
    ({"input": [HI, {"type": "function_call_output", "call_id": "c"}]}, "openai-responses"),
    ({"input": ["hi"]}, None),
    ({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}, "gemini"),
    ({"messages": [], "teamTask": None, "timestamp": 5, "version": 1}, "palaver-1"),
    ({"messages": [], "changes": [], "timestamp": 5, "version": 2}, "palaver-2"),
    ({"messages": [], "timestamp": 5, "version": True}, None),
    ({"hello": 1}, None),
    ([], None),
    ([7], None),
    (7, None),
]

LINES: list[tuple[dict[str, Any], str | None]] = [
    ({"palaver": "conversation", "version": 2}, "palaver-lines"),
    ({"record_type": "state"}, "codex"),
    ({"id": "i", "timestamp": "t", "instructions": None}, "codex"),
    ({"type": "event_msg", "payload": {}}, "codex"),
    ({"type": "hologram", "payload": {}}, None),
    ({"type": "function_call", "name": "n", "call_id": "c"}, "codex"),
    ({"type": "message", "content": [{"type": "input_text"}]}, "codex"),
    ({"type": "message", **HI}, "messages"),
    ({"type": "summary", "summary": "s", "leafUuid": "u"}, "claude-code"),
    ({"type": "summary"}, None),
    ({"type": "file-history-snapshot", "snapshot": {}}, "claude-code"),
    ({"type": "permission-mode", "sessionId": "s"}, "claude-code"),
    ({"type": "hologram", "sessionId": "s", "uuid": "u"}, "claude-code"),
    ({"type": "hologram", "sessionId": "s"}, None),
    ({"request": {}}, "requests"),
    ({"model": "gpt-5", "messages": [HI]}, "requests"),
    (HI, "messages"),
    ({"hello": 1}, None),
]


@pytest.mark.parametrize(("name", "expected"), FILES.items())
def test_a_file_is_told_by_what_is_in_it(name: str, expected: str, tmp_path: Path) -> None:
    nameless = tmp_path / "x"
    nameless.write_bytes(sample(name))
    assert expected == detect(DATA / name) == detect(nameless) == detect(sample(name))


@pytest.mark.parametrize(("name", "expected"), FILES.items())
def test_a_broken_first_line_changes_nothing(name: str, expected: str) -> None:
    if name.endswith(".jsonl"):
        assert expected == detect(b'{"broken\n' + sample(name))


@pytest.mark.parametrize(("value", "expected"), DOCUMENTS)
def test_documents(value: object, expected: str | None) -> None:
    assert expected == document_format(value)


@pytest.mark.parametrize(("value", "expected"), LINES)
def test_lines(value: dict[str, Any], expected: str | None) -> None:
    assert expected == line_format(value)


@pytest.mark.parametrize("indent", [None, 2])
def test_a_document_may_be_spread_over_lines(indent: int | None) -> None:
    assert "messages" == detect(json.dumps([HI, HI], indent=indent).encode())
    assert "openai-chat" == detect(json.dumps(chat(), indent=indent).encode())


def chat() -> dict[str, Any]:
    return {"model": "gpt-5", "messages": [HI, {"role": "assistant", "content": "hello"}]}


def test_one_line_alone_may_be_a_transcripts() -> None:
    assert "codex" == detect(json.dumps({"type": "event_msg", "payload": {}}).encode())
    assert "requests" == detect(json.dumps({"request": chat()}).encode())
    assert "messages" == detect(b"\xef\xbb\xbf" + json.dumps(HI).encode())


@pytest.mark.parametrize("data", [b"", b"  \n", b"Dear diary,\nit rains.", b"[", b'{"a":\n1', b"7"])
def test_what_is_nothing_of_it_is_nothing(data: bytes) -> None:
    assert detect(data) is None


def test_palavers_own_snapshots_are_known_and_left_to_the_store() -> None:
    store = palaver.open(":memory:")
    name = store.create([user("hi")]).id
    for form, expected in (
        ("lines", "palaver-lines"),
        ("document", "palaver-2"),
        ("version-1", "palaver-1"),
    ):
        file = io.BytesIO()
        export_conversation(store, name, file, form=form)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert expected == detect(file.getvalue())
        with pytest.raises(ValidationError, match="import it into a store"):
            read_transcript(file.getvalue())


def test_messages_as_palaver_writes_them_are_messages() -> None:
    call = user([tool_call_part(NIL_ID, NIL_ID, "ls", {})])
    assert "messages" == detect(dump([call]))
    (parsed,) = read_transcript(dump([call]))
    assert (call,) == parsed.messages


def test_databases_are_told_by_their_tables(tmp_path: Path) -> None:
    assert "opencode" == detect(database(tmp_path / "o", "opencode.sql"))
    assert "llm" == detect(database(tmp_path / "l", "llm.sql"))
    assert "llm" == detect(database(tmp_path / "t", "llm-threads.sql").read_bytes())
    other = apsw.Connection(str(tmp_path / "x"))
    other.execute("create table tea (id)")
    other.close()
    assert detect(tmp_path / "x") is None
    assert detect(b"SQLite format 3\0 and then nothing") is None


def test_views_in_the_place_of_tables_are_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    connection = apsw.Connection(str(path))
    for table in ("session", "message", "part"):
        connection.execute(f"create view {table} as select 1 as id, 2 as data")
    connection.close()
    assert detect(path) is None


def test_a_folder_of_opencode_is_detected_by_its_folders(tmp_path: Path) -> None:
    assert detect(tmp_path) is None
    for name in ("session", "message", "part"):
        (tmp_path / name).mkdir()
    assert "opencode-folder" == detect(tmp_path)
    assert () == read_transcript(tmp_path)


def test_a_file_in_no_known_format_is_an_error() -> None:
    with pytest.raises(ValidationError, match="in no format that palaver knows"):
        read_transcript(b"Dear diary")


def test_a_format_can_be_named_and_must_be_known() -> None:
    (parsed,) = read_transcript(b"", "codex")
    assert () == parsed.messages
    with pytest.raises(ValidationError, match="must be one of anthropic, chatgpt, claude-code"):
        list(each_conversation(b"", "tape"))
    with pytest.raises(ValidationError, match="path of a folder"):
        list(each_conversation(b"", "opencode-folder"))
    with pytest.raises(ValidationError, match="must be an object"):
        list(each_conversation(b"7", "gemini"))


def test_every_answer_has_a_reader() -> None:
    snapshots = {"palaver-lines", "palaver-2", "palaver-1"}
    answers = {name for _, name in (*DOCUMENTS, *LINES) if name} | set(FILES.values())
    assert answers - snapshots <= set(READERS)


def test_messages_on_lines_are_read_and_damage_is_noted() -> None:
    rows = [{**HI, "id": "a"}, {**HI, "id": "a"}, {"role": "wizard", "content": ""}, {**HI}]
    (parsed,) = read_transcript("\n".join(map(json.dumps, rows)).encode())
    assert 2 == len(parsed.messages)
    assert ["line 3", "message a"] == [note.where for note in parsed.notes]


def test_a_list_of_a_providers_messages_is_read_as_a_request() -> None:
    answer = {"role": "assistant", "content": "hello", "refusal": None}
    (parsed,) = read_transcript(json.dumps([HI, answer]).encode())
    assert ["hi", "hello"] == [message.text for message in parsed.messages]


def test_a_look_at_long_lines_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[detect.__module__], "MAX_LINE", 50)
    row = json.dumps({"hello": "x" * 40}).encode()
    assert detect(b"\n".join([row, row, b'{"record_type": "state"}'])) is None
    monkeypatch.setattr(sources, "MAX_LINE", 30)
    assert "codex" == detect(b"\n".join([row, b'{"record_type": "state"}', b"{}"]))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b'{"role": "user"', "$.role: is not JSON: Input data was truncated"),
        (b'[{"role": "user", "content": "x"},', "is not JSON"),
        (b'{"role": "user", "con\n{"role', "is not JSON"),
        (b'{"a": 1}', "is in no format that palaver knows"),
        (b'{"a": 1}\n{"a', "is in no format that palaver knows"),
        (b"Dear diary", "is in no format that palaver knows"),
    ],
)
def test_it_is_said_why_no_format_is_known(source: bytes, words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        read_transcript(source)
    assert words in str(refused.value)
    assert ("name it" in str(refused.value)) == ("no format" in words)
