"""`palaver doctor`: what a provider would refuse, where, and a history that it takes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

import palaver
from palaver.cli.app import app
from palaver.messages import (
    AssistantInfo,
    Message,
    ModelRef,
    assistant,
    complete,
    dump,
    file_part,
    new_id,
    parse_messages,
    pending,
    reasoning_part,
    start,
    system,
    tool_call_part,
    tool_part,
    user,
)
from palaver.messages.parts import step_start_part
from palaver.testing import check_request
from palaver.wire import FORMATS
from palaver.wire.notes import REFUSALS
from tests.transcripts.samples import DATA, database

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import CompletedProcess

SESSION, OWNER = new_id(), new_id()
RULES = Path(__file__).resolve().parents[3] / "docs" / "wire.md"


def run(*arguments: str | Path, given: object = None) -> Result:
    data = given if isinstance(given, bytes | None) else json.dumps(given).encode()
    return CliRunner().invoke(app, ["doctor", *map(str, arguments)], input=data)


def problems(result: Result) -> list[tuple[str, str]]:
    """Place and rule of each problem."""
    answer = json.loads(result.stdout)
    assert int(bool(answer["problems"])) == result.exit_code
    return [(each["where"], each["rule"]) for each in answer["problems"]]


def calls(*ids: str, tool: str = "weather") -> tuple[Any, ...]:
    return tuple(tool_call_part(SESSION, OWNER, tool, {}, call_id=name) for name in ids)


def result(call: str, output: str = "9 °C") -> Message:
    done = complete(start(pending({}, "")), output, tool="weather")
    return Message("tool", (tool_part(SESSION, OWNER, call, "weather", done),))


SICK = [
    assistant("Hello."),
    user("How cold is it?"),
    result("later"),
    assistant(calls("later", "lost")),
    user("Go on."),
    result("gone"),
    assistant("  "),
    user("And now?"),
]
ASKED = {
    "model": "claude-opus-4-6",
    "max_tokens": 9,
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": "How cold is it?"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "call.1", "name": "weather", "input": {}}],
        },
        {"role": "user", "content": "Never mind."},
        {"role": "assistant", "content": "Well:"},
    ],
}


def test_a_sound_history() -> None:
    sound = [system("S"), user("Tea?"), assistant("Yes.")]
    done = run("-", given=dump(sound))
    assert (0, "") == (done.exit_code, done.stderr)
    every = ", ".join(FORMATS)
    assert f"standard input: nothing to refuse for {every}\n" == done.stdout


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_wrong_is_said_and_mended(form: str, tmp_path: Path) -> None:  # CV-03
    file = tmp_path / "mended.json"
    found = problems(run("-", "--for", form, "--json", "--output", file, given=dump(SICK)))
    assert {
        ("messages[3]", "result-out-of-order"),
        ("messages[3]", "call-without-result"),
        ("messages[5]", "result-without-call"),
    } <= set(found)
    assert FORMATS[form].alternates == (("messages[0]", "first-role") in found)
    assert 0 == run(file, "--for", form).exit_code
    again = parse_messages(json.loads(file.read_bytes()))
    ids = [message.id for message in again]
    assert {SICK[at].id for at in (0, 1, 4, 7)} <= set(ids)
    assert SICK[5].id not in ids
    if form != "gemini":  # which has no ids of calls
        assert ids.index(SICK[1].id) < ids.index(SICK[2].id)


def test_each_problem_is_said_once_with_who_minds() -> None:
    done = run("-", given=dump(SICK))
    assert 1 == done.exit_code
    lines = done.stdout.splitlines()
    assert lines[0].startswith("standard input: messages[0]: the wrong one begins: ")
    assert lines[0].endswith("[first-role] (anthropic, gemini)")
    places = [int(place) for place in re.findall(r"messages\[(\d+)\]: a", done.stdout)]
    assert sorted(places) == places
    strays = [line for line in lines if "[result-without-call]" in line]
    assert 1 == len(strays)
    assert strays[0].endswith(f"({', '.join(FORMATS)})")
    assert lines[-1].startswith(f"standard input: {len(lines) - 1} problems for ")


def test_two_of_a_kind_in_one_place_are_two() -> None:
    talk = [user("q"), assistant(calls("c1", "c2")), user("Go on.")]
    found = problems(run("-", "--json", given=dump(talk)))
    assert 2 == found.count(("messages[1]", "call-without-result"))


def test_whose_history_it_is_must_be_said_to_repair_it(tmp_path: Path) -> None:
    refused = run("-", "--output", tmp_path / "out.json", given=dump(SICK))
    assert 2 == refused.exit_code
    assert "--output needs --for" in refused.stderr


@pytest.mark.parametrize("name", ["claude-code.jsonl", "codex.jsonl", "opencode-export.json"])
def test_a_transcript_is_judged_by_who_made_it(name: str, tmp_path: Path) -> None:
    file = tmp_path / "mended.json"
    found = run(DATA / name, "--conversation", "1", "--output", file)
    assert (0 if "codex" in name else 1) == found.exit_code  # its free-form calls are sent as such
    made_by = "openai-responses" if "codex" in name else "anthropic"
    assert found.stdout.splitlines()[-1].endswith(f"for {made_by}")
    assert 0 == run(file).exit_code
    before = json.loads(
        CliRunner().invoke(app, ["convert", str(DATA / name), "--to", "palaver",
                                 "--conversation", "1"]).stdout
    )  # fmt: skip
    kept = {each["id"] for each in before} & {each["id"] for each in json.loads(file.read_bytes())}
    assert len(before) - 2 <= len(kept)


def test_a_request_is_judged_as_what_it_is(tmp_path: Path) -> None:
    file = tmp_path / "mended.json"
    found = run("-", "--json", "--output", file, given=ASKED)
    assert [
        ("$.messages[1]", "call-without-result"),
        ("$.messages[1]", "call-id"),
        ("$.messages[3]", "last-role"),
    ] == problems(found)
    mended = json.loads(file.read_bytes())
    assert () == check_request("anthropic", mended)
    assert ("claude-opus-4-6", 9) == (mended["model"], mended["max_tokens"])
    assert 0 == run(file).exit_code
    assert str(file) == json.loads(found.stdout)["file"]


def test_a_request_can_be_judged_for_another(tmp_path: Path) -> None:
    file = tmp_path / "mended.json"
    found = problems(run("-", "--for", "openai-chat", "--json", "--output", file, given=ASKED))
    assert [("$.messages[1]", "call-without-result")] == found
    assert {"messages"} == json.loads(file.read_bytes()).keys()
    assert () == check_request("openai-chat", json.loads(file.read_bytes()))


@pytest.mark.parametrize("form", FORMATS)
def test_a_sound_request(form: str) -> None:
    asked: dict[str, Any] = {
        "openai-chat": [{"role": "user", "content": "Tea?"}],
        "openai-responses": {"model": "m", "input": "Tea?"},
        "anthropic": {"messages": [{"role": "user", "content": "Tea?"}], "system": "S"},
        "gemini": {"contents": [{"parts": [{"text": "Tea?"}], "role": "user"}],
                   "system_instruction": {"parts": [{"text": "S"}]}},
    }  # fmt: skip
    assert [] == problems(run("-", "--from", form, "--json", given=asked[form]))


def test_a_system_text_has_a_place_too() -> None:
    asked = {"system": " ", "messages": [{"role": "user", "content": "Tea?"}]}
    ((where, _),) = problems(run("-", "--from", "anthropic", "--json", given=asked))
    assert "$.system" == where


def test_a_field_that_does_not_exist() -> None:
    asked = {"messages": [{"role": "user", "content": "Tea?", "mood": "good"}]}
    found = problems(run("-", "--from", "anthropic", "--json", given=asked))
    assert [("$.messages[0].mood", "unknown-field")] == found


@pytest.mark.parametrize(
    ("form", "asked", "where"),
    [
        ("openai-chat", {"messages": [{"role": "user", "content": "Tea?"}, 5]}, "$.messages[1]"),
        ("anthropic", {"messages": [{"role": "user", "content": "a"}], "system": []}, "$.system"),
    ],
)
def test_what_nobody_noted_is_found_by_comparing(
    form: str, asked: dict[str, Any], where: str
) -> None:
    assert [(where, "shape")] == problems(run("-", "--from", form, "--json", given=asked))


def test_a_system_text_of_the_wrong_kind() -> None:
    asked = {"messages": [{"role": "user", "content": "Tea?"}], "system": 5}
    ((where, _),) = problems(run("-", "--from", "anthropic", "--json", given=asked))
    assert "$.system" == where


def test_a_request_with_nothing_that_can_be_read() -> None:
    refused = run(
        "-", "--from", "anthropic", given={"messages": [{"role": "user", "content": [5]}]}
    )
    assert 1 == refused.exit_code
    assert "nothing was said in standard input: " in refused.stderr


def test_reasoning_after_a_switch_of_models() -> None:
    def thought(model: str) -> Message:
        part = reasoning_part(SESSION, OWNER, "hm", metadata={"anthropic": {"signature": "c2ln"}})
        info = AssistantInfo(model=ModelRef("anthropic", model))
        text = assistant("Yes.").text
        return assistant([part, *_text(text)], info=info)

    talk = [user("a"), thought("claude-a"), user("b"), thought("claude-b")]
    same = [user("a"), thought("claude-b"), user("b"), thought("claude-b")]
    rule = "foreign-reasoning"
    assert [("messages[1]", rule)] == problems(run("-", "--json", given=dump(talk)))
    assert [] == problems(run("-", "--json", given=dump(same)))
    named = run("-", "--json", "--model", "claude-c", given=dump(same))
    assert [("messages[1]", rule), ("messages[3]", rule)] == problems(named)
    assert [] == problems(run("-", "--json", "--for", "openai-chat", given=dump(talk)))


def _text(text: str) -> tuple[Any, ...]:
    from palaver.messages import text_part  # noqa: PLC0415

    return (text_part(SESSION, OWNER, text),)


def test_what_is_not_sent_stays_in_a_repaired_history(tmp_path: Path) -> None:
    """Parts that a request has no place for, ids and times: the very messages are used again."""
    file = tmp_path / "mended.json"
    picture = file_part(SESSION, OWNER, "image/png", "data:image/png;base64,aGk=")
    talk = [
        user("Look."),
        user([picture, *_text("And?")]),
        assistant([step_start_part(SESSION, OWNER), *_text("Seen."), *calls("c1")]),
        result("c1"),
        user("x"),
        result("gone"),
    ]
    run("-", "--for", "anthropic", "--output", file, given=dump(talk))
    assert talk[:-1] == parse_messages(json.loads(file.read_bytes()))


def test_the_repaired_one_on_standard_output() -> None:
    done = run("-", "--for", "anthropic", "--output", "-", given=dump(SICK))
    assert 1 == done.exit_code
    assert parse_messages(json.loads(done.stdout))
    assert "[first-role]" in done.stderr
    quiet = run("-", "--for", "anthropic", "--output", "-", "--json", given=dump(SICK))
    assert (done.stdout.count("role"), "") == (quiet.stdout.count("role"), quiet.stderr)


def test_damaged_lines_are_told(tmp_path: Path) -> None:
    file = tmp_path / "cut.jsonl"
    file.write_bytes(dump(user("a")) + b"\nbroken\n")
    done = run(file, "--for", "gemini")
    assert 0 == done.exit_code
    assert "line 2: " in done.stderr


def test_one_of_several(tmp_path: Path) -> None:
    file = database(tmp_path / "s.db", "llm.sql")
    assert 1 == run(file).exit_code
    assert "choose one with --conversation" in run(file).stderr
    assert 0 == run(file, "--conversation", "01jnew").exit_code


def test_wrong_usage() -> None:
    assert 2 == run("-", "--for", "tape", given=b"[]").exit_code


def test_the_real_command(palaver: Callable[..., CompletedProcess[bytes]]) -> None:
    done = palaver("doctor", "-", given=dump(SICK))
    assert (1, b"") == (done.returncode, done.stderr)


def test_the_rules_are_those_of_the_page() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| ([^|]+) \|", RULES.read_text("utf-8"), re.MULTILINE)
    assert REFUSALS.items() <= dict(rows).items()


def test_a_store_says_what_it_runs_on(tmp_path: Path) -> None:
    with palaver.open(tmp_path / "chat.db") as store:
        schema = store.migrated[1]
    done = run("--store", tmp_path / "chat.db")
    assert 0 == done.exit_code
    assert f"sqlite, schema {schema}" in done.output
    assert "nothing is missing" in done.output
    found = json.loads(run("--store", tmp_path / "chat.db", "--json").output)
    assert ("sqlite", schema, []) == (found["server"], found["schema"], found["missing"])


def test_either_a_file_or_a_store_is_examined(tmp_path: Path) -> None:
    (tmp_path / "history.json").write_text("[]")
    both: list[str | Path] = [tmp_path / "history.json", "--store", tmp_path / "chat.db"]
    for arguments in (both[:0], both):
        done = run(*arguments)
        assert 2 == done.exit_code
        assert "give either FILE, a history, or --store" in done.output
