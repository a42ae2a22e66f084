"""`palaver convert`: every format in, every format out, and nothing lost unsaid."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

import palaver
from palaver.cli.app import app
from palaver.messages import assistant, parse_messages, system, user
from palaver.stores.transfer import FORMS, export_conversation
from palaver.testing import check_request
from palaver.wire import FORMATS
from tests.transcripts.samples import DATA, database

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from subprocess import CompletedProcess

TOOL = {"name": "weather", "input_schema": {"type": "object"}}
ASKED: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "model": "gpt-5-mini",
        "temperature": 0.5,
        "messages": [{"role": "developer", "content": "S"}, {"role": "user", "content": "Tea?"}],
    },
    "openai-responses": {
        "model": "gpt-5-mini",
        "store": False,
        "instructions": "S",
        "input": [{"type": "message", "role": "user", "content": "Tea?"}],
    },
    "anthropic": {
        "model": "claude-opus-4-6",
        "max_tokens": 100,
        "tools": [TOOL],
        "system": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": "Tea?"}],
    },
    "gemini": {
        "generationConfig": {"temperature": 1},
        "systemInstruction": {"parts": [{"text": "S"}]},
        "contents": [{"role": "user", "parts": [{"text": "Tea?"}]}],
    },
}
TRANSCRIPTS = (
    "claude-code.jsonl",
    "codex-bare.jsonl",
    "codex.jsonl",
    "llm-threads.sql",
    "llm.sql",
    "opencode-export.json",
    "opencode.sql",
    "requests-anthropic.jsonl",
    "requests-openai.jsonl",
)


def run(*arguments: str | Path, given: bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["convert", *map(str, arguments)], input=given)


def made(result: Result) -> Any:  # noqa: ANN401 - JSON
    assert 0 == result.exit_code, result.output
    return json.loads(result.stdout)


def as_bytes(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.fixture
def transcript(tmp_path: Path) -> Callable[[str], Path]:
    """The file of a sample; a database is made of its script."""

    def find(name: str) -> Path:
        return database(tmp_path / "s.db", name) if name.endswith(".sql") else DATA / name

    return find


# ── each format ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_every_transcript_becomes_a_request_that_the_provider_takes(
    name: str, form: str, transcript: Callable[[str], Path]
) -> None:  # CV-03, CV-10
    result = run(transcript(name), "--to", form, "--conversation", "1", "--model", "newest")
    body = made(result)
    assert "newest" == body["model"]
    # a transcript may end with an answer; nothing else is wrong with it
    assert {"last-role"} >= {problem.rule for problem in check_request(form, body)}


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_every_transcript_becomes_messages(
    name: str, transcript: Callable[[str], Path], tmp_path: Path
) -> None:
    file = tmp_path / "messages.json"
    result = run(transcript(name), "--to", "palaver", "--conversation", "1", "--output", file)
    messages = parse_messages(json.loads(file.read_bytes()))
    assert f"{file}: {len(messages)} messages as palaver\n" == result.stdout
    assert json.loads(file.read_bytes()) == made(run(file, "--to", "palaver"))


@pytest.mark.parametrize("form", FORMATS)
def test_a_request_in_its_own_format_stays_what_it_was(form: str) -> None:
    result = run("-", "--to", form, "--strict", given=as_bytes(ASKED[form]))
    assert ASKED[form] == made(result)
    assert "" == result.stderr


@pytest.mark.parametrize("there", FORMATS)
@pytest.mark.parametrize("here", FORMATS)
def test_there_and_back_says_the_same(here: str, there: str) -> None:
    over = run("-", "--to", there, "--from", here, given=as_bytes(ASKED[here]))
    assert () == check_request(there, made(over))
    back = made(run("-", "--to", "palaver", "--from", there, given=over.stdout_bytes))
    assert [("system", "S"), ("user", "Tea?")] == [
        (message.role, message.text) for message in parse_messages(back)
    ]


def test_details_come_back_by_way_of_messages() -> None:
    """CV-10: what messages have no words for is in their metadata, and comes home."""
    body = {"messages": [{"role": "user", "content": [
        {"type": "text", "text": "Tea?", "cache_control": {"type": "ephemeral"}}]}]}  # fmt: skip
    away = run("-", "--to", "palaver", "--from", "anthropic", given=as_bytes(body))
    assert body == made(run("-", "--to", "anthropic", "--strict", given=away.stdout_bytes))


@pytest.mark.parametrize("form", FORMATS)
def test_the_plain_content_list_goes_to_every_provider(form: str) -> None:  # PT-02
    use = {"id": "c1", "name": "clock", "input": {"zone": "UTC"}}
    talk = [
        {"role": "user", "content": [{"type": "text", "text": "What time is it?"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "tool_use": use}]},
        {"role": "tool", "content": [
            {"type": "tool_result", "tool_result": {"tool_use_id": "c1", "content": "16:00"}}]},
    ]  # fmt: skip
    result = run("-", "--to", form, "--strict", given=as_bytes(talk))
    assert () == check_request(form, made(result))
    assert "16:00" in result.stdout


@pytest.mark.parametrize("form", FORMS)
def test_a_snapshot_is_converted_as_it_is_now(form: Any, tmp_path: Path) -> None:  # noqa: ANN401
    file = tmp_path / "talk.json"
    with palaver.open(":memory:") as store, file.open("wb") as stream:
        history = store.create([user("Tea?"), assistant("No.")], title="Tea")
        history.replace(1, assistant("Yes."))
        export_conversation(store, history.id, stream, form=form)
    result = run(file, "--to", "openai-chat", "--json")
    answer = made(result)
    assert ["Tea?", "Yes."] == [each["content"] for each in answer["result"]["messages"]]
    whole = form != "version-1"
    assert [("versions")] * whole == [note["rule"] for note in answer["notes"]]
    assert ({"title": "Tea"} if whole else {}) == answer["about"]


def test_a_log_of_requests_keeps_its_settings_at_home(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(as_bytes(ASKED["anthropic"]) + b"\n")
    answer = made(run(file, "--from", "requests", "--to", "anthropic"))
    assert ASKED["anthropic"] == answer


# ── what is lost ────────────────────────────────────────────────────────────────────────────────


def test_what_is_lost_is_listed_and_written(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    given = as_bytes(ASKED["anthropic"])
    result = run("-", "--to", "openai-chat", "--report", report, given=given)
    assert {"messages"} == made(result).keys()
    first, *lines = result.stderr.splitlines()
    assert "palaver: standard input: 0 repaired, 4 lost" == first
    told = json.loads(report.read_bytes())
    assert ("anthropic", "openai-chat", 4) == (told["from"], told["to"], told["lost"])
    assert [f"{note['where']}: {note['detail']} ({note['rule']})" for note in told["notes"]] == [
        line.removeprefix("  lost      ") for line in lines
    ]
    assert {"$.model", "$.max_tokens", "$.tools"} < {note["where"] for note in told["notes"]}


def test_strict_writes_nothing(tmp_path: Path) -> None:
    file, report = tmp_path / "out.json", tmp_path / "report.json"
    given = as_bytes(ASKED["gemini"])
    refused = run("-", "--to", "anthropic", "--strict", "--output", file, "--report", report,
                  given=given)  # fmt: skip
    assert (1, "") == (refused.exit_code, refused.stdout)
    assert "1 thing is lost and --strict: nothing written" in refused.stderr
    assert not file.exists()
    assert 1 == json.loads(report.read_bytes())["lost"]


def test_strict_for_programs(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    given = as_bytes(ASKED["gemini"])
    refused = run("-", "--to", "anthropic", "--strict", "--json", "--output", file, given=given)
    assert (1, "") == (refused.exit_code, refused.stderr)
    assert "result" not in json.loads(refused.stdout)
    assert not file.exists()


def test_a_repair_is_no_loss() -> None:
    given = as_bytes([{"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Tea?"}])
    result = run("-", "--to", "anthropic", "--strict", given=given)
    assert 3 == len(made(result)["messages"])
    assert "1 repaired, 0 lost" in result.stderr


def test_damaged_lines_are_told_and_the_rest_is_converted(tmp_path: Path) -> None:
    file = tmp_path / "cut.jsonl"
    file.write_bytes((DATA / "codex.jsonl").read_bytes()[:-30] + b"\nnothing\n")
    result = run(file, "--to", "openai-responses")
    assert 5 < len(made(result)["input"])
    assert "transcript.damaged" in result.stderr
    assert 1 == run(file, "--to", "openai-responses", "--strict").exit_code


def test_many_notes_are_not_all_shown(tmp_path: Path) -> None:
    file, report = tmp_path / "long.json", tmp_path / "report.json"
    talk = [{"role": "tool", "content": [
        {"type": "tool_result", "tool_result": {"tool_use_id": f"c{n}", "content": "x"}}]}
        for n in range(60)]  # fmt: skip
    file.write_bytes(as_bytes([{"role": "user", "content": "Tea?"}, *talk]))
    result = run(file, "--to", "openai-chat", "--report", report)
    assert "  and 10 more" == result.stderr.splitlines()[-1]
    assert 60 == len(json.loads(report.read_bytes())["notes"])


def test_renamed_tools_are_in_the_report(tmp_path: Path) -> None:
    file = tmp_path / "calls.json"
    file.write_bytes(as_bytes({"contents": [
        {"role": "user", "parts": [{"text": "Tea?"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "tea.make", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "tea.make", "response": {}}}]},
    ]}))  # fmt: skip
    answer = made(run(file, "--to", "openai-chat", "--json", "--output", tmp_path / "out.json"))
    assert ["tea.make"] == list(answer["names"].values())
    assert str(tmp_path / "out.json") == answer["file"]


# ── which conversation, which format ────────────────────────────────────────────────────────────


def test_several_conversations_are_listed(transcript: Callable[[str], Path]) -> None:
    file = transcript("opencode.sql")
    refused = run(file, "--to", "anthropic")
    assert (1, "") == (refused.exit_code, refused.stdout)
    assert (
        f"{file} has 2 conversations: choose one with --conversation: "
        "ses_41aa ('The loose lid', 3 messages), ses_41ab ('Every hinge', 1 message)"
    ) in refused.stderr


@pytest.mark.parametrize("wanted", ["ses_41ab", "2"])
def test_one_of_several(wanted: str, transcript: Callable[[str], Path]) -> None:
    result = run(transcript("opencode.sql"), "--to", "openai-chat", "--conversation", wanted)
    (message,) = made(result)["messages"]
    assert [{"type": "text", "text": "Find every hinge."}] == message["content"]


@pytest.mark.parametrize(
    ("wanted", "text"),
    [("ses_41a", "'ses_41a' is the beginning of several ids"), ("tea", "no conversation in")],
)
def test_none_of_several(wanted: str, text: str, transcript: Callable[[str], Path]) -> None:
    refused = run(transcript("opencode.sql"), "--to", "openai-chat", "--conversation", wanted)
    assert 1 == refused.exit_code
    assert text in refused.stderr
    assert "ses_41ab" in refused.stderr


def test_very_many_are_not_all_listed(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    lines = ({"model": "m", "messages": [{"role": "user", "content": f"{n}"}]} for n in range(25))
    file.write_bytes(b"\n".join(map(as_bytes, lines)))
    refused = run(file, "--to", "openai-chat")
    assert "25 conversations" in refused.stderr
    assert "20 (1 message) and 5 more" in refused.stderr
    assert "24" == made(run(file, "--to", "openai-chat", "--conversation", "25"))["messages"][0][
        "content"
    ]  # fmt: skip


def test_damage_is_told_whichever_conversation_is_chosen() -> None:
    log = b'{"model":"m","messages":[{"role":"user","content":"a"}]}\nbroken\n'
    log += b'{"model":"m","messages":[{"role":"user","content":"b"}]}\n'
    result = run("-", "--to", "openai-chat", "--conversation", "2", given=log)
    assert 1 == len(made(result)["messages"])
    assert "line 2: " in result.stderr


def test_nothing_said() -> None:
    refused = run("-", "--to", "gemini", given=b'{"model": "m", "messages": []}')
    assert 1 == refused.exit_code
    assert "nothing was said in standard input" in refused.stderr
    log = b'{"type":"user","uuid":"u","sessionId":"s","message":{"role":"user"}}\nbroken'
    assert "line 2: " in run("-", "--to", "gemini", given=log).stderr


def test_a_format_that_nobody_knows() -> None:
    refused = run("-", "--to", "openai-chat", given=b"Dear diary")
    assert 1 == refused.exit_code
    assert "in no format that palaver knows; if you know it, name it with --from" in refused.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--to", "tape"],
        ["--to", "gemini", "--from", "tape"],
        [],
        ["--to", "palaver", "--model", "gpt-5"],
    ],
)
def test_wrong_usage(arguments: list[str]) -> None:
    assert 2 == run("-", *arguments, given=b"[]").exit_code


def test_whoever_knows_better_says_so() -> None:
    given = as_bytes([{"role": "user", "content": "Tea?"}])
    assert "messages" == made(run("-", "--to", "gemini", "--json", given=given))["from"]
    named = run("-", "--to", "gemini", "--json", "--from", "openai-chat", given=given)
    assert "openai-chat" == made(named)["from"]
    assert "messages" == made(
        run("-", "--to", "gemini", "--json", "--from", "palaver", given=given)
    )["from"]  # fmt: skip


def test_an_output_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    file.write_text("kept", "utf-8")
    assert 1 == run("-", "--to", "gemini", "--output", file, given=b"Dear diary").exit_code
    assert "kept" == file.read_text("utf-8")


def test_the_real_command(palaver: Callable[..., CompletedProcess[bytes]]) -> None:
    given = as_bytes([{"role": "user", "content": "Tee\x1b[31m? 茶"}])
    done = palaver("convert", "-", "--to", "openai-chat", given=given)
    assert (0, b"") == (done.returncode, done.stderr)
    assert "茶" in done.stdout.decode()
    done = palaver("convert", "-", "--to", "openai-chat", given=b'[{"role": "tool\\u001b[31m"}]')
    assert 1 == done.returncode
    assert 1 == done.stderr.count(b"\n")
    assert b"\x1b" not in done.stderr


def test_a_system_message_alone_is_a_conversation() -> None:
    given = as_bytes([{"role": "system", "content": system("S").text}])
    assert "(please continue)" in run("-", "--to", "gemini", given=given).stdout
