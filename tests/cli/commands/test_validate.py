from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Self

import pytest
from click.testing import CliRunner

from palaver.cli.app import app
from palaver.cli.commands import validate as documents
from palaver.messages import new_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

    Validate = Callable[..., Result]

SESSION, MESSAGE = new_id(), new_id()
IDS = {"id": "p1", "sessionID": SESSION, "messageID": MESSAGE}
TEXT: dict[str, Any] = {"type": "text", **IDS, "text": "hi"}
USER: dict[str, Any] = {"role": "user", "content": "hi"}
ROBOT: dict[str, Any] = {"role": "robot", "content": "beep"}
TURN: dict[str, Any] = {
    "info": {"id": "msg_1", "sessionID": "ses_1", "role": "user", "time": {"created": 5}},
    "parts": [{**TEXT, "sessionID": "ses_1", "messageID": "msg_1"}],
}


def lines(*values: object) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def errors(result: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(result.stdout)["errors"]
    return found


@pytest.mark.parametrize(
    ("content", "checked"),
    [
        pytest.param(json.dumps([USER, USER]), 2, id="a list of messages"),
        pytest.param(json.dumps([USER, TEXT, TURN], indent=2), 3, id="a list of all three"),
        pytest.param(json.dumps(USER), 1, id="one message"),
        pytest.param(json.dumps(TEXT, indent=2), 1, id="one part"),
        pytest.param(json.dumps(TURN), 1, id="one turn"),
        pytest.param(json.dumps({"info": {"id": "ses_1"}, "messages": [TURN]}), 1, id="an export"),
        pytest.param(lines(USER, USER, USER), 3, id="lines of messages"),
        pytest.param(lines(TURN, USER, TEXT, USER), 4, id="lines of all three"),
        pytest.param("\n\n" + lines(USER) + "\n" + lines(USER), 2, id="blank lines between"),
        pytest.param("\ufeff" + lines(USER, USER), 2, id="a byte order mark"),
        pytest.param("[\n" + json.dumps(USER) + "\n]", 1, id="a list over lines"),
        pytest.param('{"role": "user",\n"content": "hi"}', 1, id="a message over lines"),
        pytest.param("[]", 0, id="an empty list"),
        pytest.param(lines(USER).strip(), 1, id="no newline at the end"),
        pytest.param(lines({"type": "hologram", "beam": 2}), 1, id="a part nobody knows"),
    ],
)
def test_what_is_right_passes(validate: Validate, content: str, checked: int) -> None:
    result = validate(content, "--json")
    assert (0, "") == (result.exit_code, result.stderr)
    assert {"valid": True, "checked": checked, "errors": []} == json.loads(result.stdout)


def test_each_error_has_its_line_path_and_rule(validate: Validate) -> None:
    result = validate(json.dumps([USER, ROBOT, {"role": "user", "content": "a\0"}], indent=1))
    assert 1 == result.exit_code
    first, second, verdict = result.stdout.splitlines()
    assert first.endswith(
        "given.json:7: $[1].role: must be system, user, assistant or tool, not 'robot' [role]"
    )
    assert second.endswith("given.json:12: $[2].content: holds a NUL character at 1 [text.nul]")
    assert verdict.endswith("given.json: 3 checked, 2 errors")
    assert "" == result.stderr


def test_json_names_the_part(validate: Validate) -> None:
    bad = {**TEXT, "sessionID": "ses_1"}
    content = "[" + lines(USER) + "," + lines({"role": "user", "content": [TEXT, bad]}) + "]"
    assert [
        {
            "line": 2,
            "path": "$[1].content[1].sessionID",
            "rule": "not-a-uuid",
            "detail": "must be a UUID, not 'ses_1'",
            "part": "text",
        }
    ] == errors(validate(content, "--json"))


def test_all_parts_of_a_message_are_looked_at(validate: Validate) -> None:
    bad = [{"type": "snapshot", "snapshot": "x"}, TEXT, {"type": "agent", "name": 5}]
    found = errors(validate(json.dumps({"role": "user", "content": bad}), "--json"))
    assert ["$.content[0].id", "$.content[2].name"] == [error["path"] for error in found]


def test_json_lines_have_the_line_of_the_file(validate: Validate) -> None:
    content = "\n" + lines(USER, ROBOT) + "\n" + "{broken\n" + lines(TURN, {"type": "text"}, [], 5)
    found = errors(validate(content, "--json"))
    assert [(3, "role"), (5, "json"), (7, "part-id"), (8, "schema"), (9, "schema")] == [
        (error["line"], error["rule"]) for error in found
    ]


def test_a_broken_first_line_does_not_hide_the_others(validate: Validate) -> None:
    result = validate('{"role": "user", "content": "hi"\n' + lines(USER, ROBOT), "--json")
    assert [1, 3] == [error["line"] for error in errors(result)]
    assert 3 == json.loads(result.stdout)["checked"]


def test_a_broken_document_says_where(validate: Validate) -> None:
    (error,) = errors(validate('[\n{"role": "user",\n "content": NaN}\n]', "--json"))
    assert (3, "$[0].content", "number.nan") == (error["line"], error["path"], error["rule"])


def test_an_exports_own_info_is_checked(validate: Validate) -> None:
    content = json.dumps({"info": {"id": "a\0"}, "messages": [TURN, ROBOT]}, indent=0)
    found = errors(validate(content, "--json"))
    assert ["$.info.id", "$.messages[1].role"] == [error["path"] for error in found]
    assert 3 == found[0]["line"]


@pytest.mark.parametrize(
    ("content", "rule", "text"),
    [
        (b"", "json", "is empty"),
        (b" \n\n", "json", "is empty"),
        (b'{"role": "user", "content": "\xff"}', "text.utf8", "is not UTF-8 at byte 29"),
        ('{"role": "user"}'.encode("utf-16"), "text.utf8", "is not UTF-8 at byte 0"),
        (b'{"role": "user", "content": "\\ud800"}', "text.surrogate", "half a character"),
        (b'{"role": "user", "content": 1152921504606846976}', "schema", "Expected `str | array`"),
        (b'{"role": "user", "content": "", "metadata": {"n": 1152921504606846976}}',
         "number.range", "within ±2^53"),
        (b'"hi"', "schema", "must be a message, a part or a turn"),
        (b"hi", "json", "is not JSON"),
    ],
)  # fmt: skip
def test_bad_files_say_what_is_wrong(
    validate: Validate, content: bytes, rule: str, text: str
) -> None:
    result = validate(content, "--json")
    (error,) = errors(result)
    assert (1, 1, rule) == (result.exit_code, error["line"], error["rule"])
    assert text in error["detail"]


@pytest.mark.parametrize("depth", [200, 100_000])
def test_deep_nesting_is_refused(validate: Validate, depth: int) -> None:
    deep = "[" * depth + "]" * depth
    content = '{"role": "user", "content": "", "metadata": {"tree": ' + deep + "}}"
    result = validate(content, "--json")
    assert ["depth"] == [error["rule"] for error in errors(result)]


def test_a_line_that_is_too_long_is_refused_and_skipped(
    validate: Validate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "MAX_DOCUMENT", 100)
    monkeypatch.setattr("palaver.messages.codec.MAX_DOCUMENT", 100)
    result = validate(lines(USER, {**USER, "id": "x" * 250}, ROBOT), "--json")
    assert [(2, "size"), (3, "role")] == [(e["line"], e["rule"]) for e in errors(result)]


def test_a_document_that_is_too_long_is_refused(
    validate: Validate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "MAX_DOCUMENT", 100)
    monkeypatch.setattr("palaver.messages.codec.MAX_DOCUMENT", 100)
    result = validate(json.dumps([USER] * 10, indent=1), "--json")
    assert ["size"] == [error["rule"] for error in errors(result)]


def test_standard_input_is_a_dash() -> None:
    result = CliRunner().invoke(app, ["validate", "-"], input=lines(USER, ROBOT))
    assert 1 == result.exit_code
    assert result.stdout.startswith("standard input:2: $.role: ")


def test_the_text_steers_no_terminal(validate: Validate) -> None:
    result = validate('{"role": "user", "content": "", "\\u001b[31mred": 1}')
    assert "\x1b" not in result.stdout
    assert "\\x1b[31mred" in result.stdout


def test_a_long_path_is_shortened_for_people_only(validate: Validate) -> None:
    deep: object = "\0"
    for _ in range(60):
        deep = {"branch": deep}
    content = json.dumps({**USER, "metadata": {"tree": deep}})
    assert "…" in validate(content).stdout
    assert 400 < len(errors(validate(content, "--json"))[0]["path"])


def test_the_librarys_log_does_not_leak(
    validate: Validate, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    result = validate(lines({**TEXT, "text": "\0"}))
    assert 1 == result.exit_code
    assert "" == capfd.readouterr().err == result.stderr


def test_a_large_file_shows_progress_on_a_terminal(
    validate: Validate, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    class Bar:
        def __init__(self, **_options: object) -> None:
            pass

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_error: object) -> None:
            pass

        def add_task(self, _name: str, total: int) -> int:
            seen.append(total)
            return 0

        def advance(self, _task: int, length: int) -> None:
            seen.append(length)

    monkeypatch.setattr("palaver.cli.commands.validate._MIN_PROGRESS_SIZE", 10)
    monkeypatch.setattr("palaver.cli.commands.validate.is_terminal", lambda: True)
    monkeypatch.setattr("rich.progress.Progress", Bar)
    content = lines(USER, USER)
    assert 0 == validate(content).exit_code
    assert [len(content), len(content) // 2, len(content) // 2] == seen


@pytest.mark.parametrize(
    ("content", "path", "line"),
    [
        ('[{"role": "user",\n"content": "a",\n"role": "system"}]', "$[0].role", 1),
        (lines(USER) + '{"role": "user", "content": "a", "role": "user"}\n', "$.role", 2),
    ],
)
def test_a_name_that_stands_twice_is_told(
    validate: Validate, content: str, path: str, line: int
) -> None:
    (error,) = errors(validate(content, "--json"))
    assert (path, line, "json.duplicate") == (error["path"], error["line"], error["rule"])
