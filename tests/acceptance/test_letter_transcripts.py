"""Transcripts: what every program writes down is read, and nothing is gone without a note."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import palaver
from palaver import wire
from palaver.cli.app import app
from palaver.testing import check_request
from palaver.transcripts import detect, read_transcript
from palaver.wire.convert import convert
from palaver.wire.notes import count_losses
from tests.transcripts.samples import DATA, spoken

if TYPE_CHECKING:
    from pathlib import Path

PROGRAMS = {
    "gemini-cli.json": "gemini-cli",
    "gemini-cli.jsonl": "gemini-cli",
    "codex-exec.jsonl": "codex-exec",
    "codex-legacy.json": "codex",
    "chatgpt.json": "chatgpt",
    "copilot-cli.jsonl": "copilot-cli",
    "copilot-cli.json": "copilot-cli",
}
FORMATS = ("openai-chat", "openai-responses", "anthropic", "gemini")
PNG = "iVBORw0KGgo="


def claude(uuid: str | None, parent: str | None, said: object, **fields: object) -> dict[str, Any]:
    """A line of a Claude Code session."""
    role = fields.pop("role", "user")
    line = {"type": role, "uuid": uuid, "parentUuid": parent, **fields}
    return {**line, "message": {"role": role, "content": said}}


def lines(*rows: dict[str, Any]) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


BRANCHED = lines(
    claude("a", None, "Brew tea.", sessionId="s1"),
    claude("b", "a", "Green?", sessionId="s1", role="assistant"),
    claude("c", "b", "Yes, green.", sessionId="s1"),
    claude("d", "b", "No, black.", sessionId="s1"),
    claude("e", "d", "Black it is.", sessionId="s1", role="assistant"),
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_is_told_by_the_content_of_its_file(name: str) -> None:
    assert PROGRAMS[name] == detect(DATA / name)
    assert any(parsed.messages for parsed in read_transcript(DATA / name))


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_text_in_a_file_is_imported_or_noted(name: str) -> None:
    parsed = read_transcript(DATA / name, branches=True)
    kept = json.dumps([palaver.messages.to_dict(list(each.messages)) for each in parsed])
    lost = [note for each in parsed for note in each.notes]
    missing = [text for text in said_texts(DATA / name) if json.dumps(text)[1:-1] not in kept]
    left = {"Never mind.", "Wrong pot."}  # the user went back from these
    assert set(missing) <= left
    assert bool(missing) <= any(note.rule == "transcript.branch" for note in lost)


def said_texts(path: Path) -> set[str]:
    """Every text that somebody said in a file: a plain walk, which knows nothing of formats."""
    data = path.read_text()
    rows = [json.loads(data)] if path.suffix == ".json" else map(json.loads, data.splitlines())
    found: set[str] = set()

    def walk(value: object, key: str) -> None:
        if isinstance(value, dict):
            if value.get("type") in {"info", "error"} or "infoType" in value:
                return  # a notice for the person at the terminal
            if value.get("content_type") == "reasoning_recap":
                return  # how long the model took
            for name, inner in value.items():
                walk(inner, name)
        elif isinstance(value, list):
            for inner in value:
                walk(inner, key)
        elif isinstance(value, str) and key in SAID and value:
            found.add(value)

    for row in rows:
        walk(row, "")
    return found


SAID = {
    "text", "parts", "content", "output", "aggregated_output", "command", "subject",
    "summaryContent", "reasoningText", "log", "user_profile", "user_instructions",
}  # fmt: skip
"""The names under which programs write what was said."""


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("form", FORMATS)
def test_each_becomes_a_valid_request_and_strict_is_honest(name: str, form: str) -> None:
    parsed = [each for each in read_transcript(DATA / name) if each.messages]
    requests = [convert(each, PROGRAMS[name], form, None) for each in parsed]
    for made in requests:  # a conversation may end with an answer
        wrong = [found for found in check_request(form, made.result) if found.rule != "last-role"]
        assert [] == wrong
    arguments = ["convert", str(DATA / name), "--to", form, "--strict", "--conversation", "1"]
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code != 0) == bool(count_losses(requests[0].notes))


def test_claude_code_without_a_session_id_is_read() -> None:
    source = lines(claude("a", None, "Brew tea."), claude("b", "a", "It brews.", role="assistant"))
    assert "claude-code" == detect(source)
    (parsed,) = read_transcript(source)
    assert [("user", "Brew tea."), ("assistant", "It brews.")] == spoken(parsed.messages)


def test_what_claude_code_prints_as_stream_json_is_read() -> None:
    source = lines(
        {"type": "system", "subtype": "init", "session_id": "s1", "cwd": "/tea", "tools": []},
        claude(None, None, "Brewing.", session_id="s1", role="assistant"),
        claude(None, None, "Ask the cook.", session_id="s1", parent_tool_use_id="t1"),
        {"type": "result", "subtype": "success", "session_id": "s1", "result": "Brewing."},
    )
    main, agent = read_transcript(source)
    assert ("s1", "Brewing.") == (main.about["id"], main.messages[0].text)
    assert ("t1", "s1", True) == tuple(agent.about[key] for key in ("id", "parent", "sidechain"))


def test_a_result_that_is_only_an_image_says_so() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [image]}
    (parsed,) = read_transcript(
        lines(
            claude("a", None, "Look."),
            claude("b", "a", [call], role="assistant"),
            claude("c", "b", [result]),
        )
    )
    assert ("tool", "(1 file: image/png)") == spoken(parsed.messages)[-1]
    for form in FORMATS:
        assert "(no output)" not in json.dumps(wire.to(form, parsed.messages).body)


def test_branches_are_noted_and_can_be_read() -> None:
    (main,) = read_transcript(BRANCHED)
    assert ["Brew tea.", "Green?", "No, black.", "Black it is."] == [
        message.text for message in main.messages
    ]
    (note,) = [note for note in main.notes if note.rule == "transcript.branch"]
    assert "1 lines are on branches" in note.detail
    assert "--branches" in note.detail
    again, branch = read_transcript(BRANCHED, branches=True)
    assert (main.messages, ()) == (again.messages, again.notes)
    assert ["Brew tea.", "Green?", "Yes, green."] == [message.text for message in branch.messages]
    assert ("c", "s1", 2) == tuple(branch.about[key] for key in ("id", "parent", "branch"))


@pytest.mark.parametrize(
    ("name", "parent", "fork", "texts"),
    [
        ("claude.jsonl", "s1", "s1:c", ["Brew tea.", "Green?", "Yes, green."]),
        (
            "chatgpt.json",
            "67c2d1f0-0000-8003-8000-000000000001",
            "67c2d1f0-0000-8003-8000-000000000001:a0",
            ["I keep cups.\n\nBe brief.", "How heavy is this cup?", "A first try."],
        ),
    ],
)
def test_branches_are_imported_as_forks(
    tmp_path: Path, name: str, parent: str, fork: str, texts: list[str]
) -> None:
    file = tmp_path / name
    file.write_bytes(BRANCHED if name == "claude.jsonl" else (DATA / name).read_bytes())
    address = str(tmp_path / "chat.db")
    plain = CliRunner().invoke(app, ["import", str(file), "--store", address])
    assert (0, f"{parent}\n") == (plain.exit_code, plain.stdout)
    arguments = ["import", str(file), "--store", address, "--branches", "--missing"]
    done = CliRunner().invoke(app, arguments)
    assert (0, f"{fork}\n") == (done.exit_code, done.stdout)
    with palaver.open(address) as store:
        assert [fork] == [head.id for head in store.forks(parent)]
        assert texts == [message.text for message in store.get(fork)]
        assert [] == list(store.verify())
        assert store.records(fork, "origin")


def test_a_uuid_that_comes_twice_keeps_both_or_says_which() -> None:
    (parsed,) = read_transcript(
        lines(
            claude("a", None, "one", sessionId="s"),
            claude("a", None, "two", sessionId="s"),
            claude("a", None, "one", sessionId="s"),
            claude("b", "a", "three", sessionId="s"),
        )
    )
    assert ["one", "two", "three"] == [message.text for message in parsed.messages]
    assert len({message.id for message in parsed.messages}) == len(parsed.messages)
    uuid, repeated = parsed.notes
    assert ("repaired", "line 2", "transcript.uuid") == (uuid.action, uuid.where, uuid.rule)
    assert "line 1" in uuid.detail
    assert ("line 3", "transcript.record") == (repeated.where, repeated.rule)
