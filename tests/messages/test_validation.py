from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from palaver.errors import PartValidationError
from palaver.messages import Message, Validation, fold, text_part, user, validate
from palaver.messages.validation import try_parse, validate_message, validate_part, validate_turn
from tests.messages.strategies import anything, messages, parts
from tests.profiles import at_least

ID = "0190163d-8694-739b-aea5-966c26f8ad91"
TEXT: dict[str, Any] = {"type": "text", "id": "p1", "sessionID": ID, "messageID": ID, "text": "hi"}
INFO: dict[str, Any] = {"id": "m1", "role": "user", "time": {"created": 1}}


@at_least(100)
@given(messages(), parts)
def test_what_palaver_made_is_valid(message: Message, part: Any) -> None:  # noqa: ANN401
    assert validate_message(message).valid
    assert validate_part(part).valid
    assert all(validate_turn(turn).valid for turn in fold([message]))


def test_every_part_of_a_message_is_looked_at() -> None:
    content = [{**TEXT, "id": ""}, TEXT, {**TEXT, "id": "p2", "text": 5}, {"type": 5}]
    answer = validate_message({"role": "user", "content": content, "timestamp": -1})
    assert not answer.valid
    assert ["$.timestamp", "$.content[0].id", "$.content[2].text", "$.content[3].type"] == [
        problem.path for problem in answer.problems
    ] or ["$.timestamp"] == [problem.path for problem in answer.problems]


def test_every_part_of_a_right_envelope_is_looked_at() -> None:
    content = [{**TEXT, "id": ""}, TEXT, {**TEXT, "id": "p2", "text": 5}, {"type": 5}]
    answer = validate_message({"role": "user", "content": content})
    assert [
        ("$.content[0].id", "part-id"),
        ("$.content[2].text", "schema"),
        ("$.content[3].type", "part-type"),
    ] == [(problem.path, problem.rule) for problem in answer.problems]
    assert all(isinstance(problem, PartValidationError) for problem in answer.problems)


def test_every_part_of_a_turn_is_looked_at() -> None:
    answer = validate_turn({"info": INFO, "parts": [{**TEXT, "text": 5}, TEXT, {"type": "text"}]})
    assert ["$.parts[0].text", "$.parts[2].id"] == [problem.path for problem in answer.problems]


def test_a_problem_between_parts_is_found() -> None:
    for answer in (
        validate_message({"role": "user", "content": [TEXT, TEXT]}),
        validate_turn({"info": INFO, "parts": [TEXT, TEXT]}),
    ):
        assert ["duplicate-part-id"] == [problem.rule for problem in answer.problems]


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        ({"role": "robot", "content": 5}, ["$.role"]),
        ({"role": "user"}, ["$.content"]),
        ({"content": "x"}, ["$.role"]),
        ({"role": "user", "content": 5}, ["$.content"]),
        ({**TEXT, "text": 5}, ["$.text"]),
        ({"info": {}, "parts": []}, ["$.info.id"]),
        ({"info": INFO, "parts": 5}, ["$.parts"]),
        ({"shoe": 44}, ["$"]),
        ([], ["$"]),
        (5, ["$"]),
        ({"role": "user", "content": "x"}, []),
        (TEXT, []),
        ({"info": INFO, "parts": [TEXT]}, []),
        ({"type": "hologram"}, []),
    ],
)
def test_validate_finds_out_what_it_is(value: Any, paths: list[str]) -> None:  # noqa: ANN401
    answer = validate(value)
    assert paths == [problem.path for problem in answer.problems]
    assert answer.valid is not bool(paths)


def test_values_of_palaver_are_known_too() -> None:
    message = user("hi")
    assert validate(message).valid
    assert validate(fold([message])[0]).valid
    assert validate(text_part(ID, ID, "hi")).valid


@at_least(200)
@given(anything)
def test_validation_answers_whatever_is_asked(value: Any) -> None:  # noqa: ANN401 - anything
    for answer in (
        validate(value),
        validate_message(value),
        validate_part(value),
        validate_turn(value),
        validate({"role": "user", "content": [value]}),
        validate({"info": value, "parts": [value]}),
    ):
        assert isinstance(answer, Validation)


def test_try_parse_reads_a_complete_part() -> None:
    assert text_part(ID, ID, "hi").text == try_parse(json.dumps(TEXT)).text  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]


@pytest.mark.parametrize("field", ["id", "sessionID", "messageID", "text"])
def test_try_parse_waits_for_a_missing_field(field: str, caplog: pytest.LogCaptureFixture) -> None:
    assert try_parse({key: TEXT[key] for key in TEXT if key != field}) is None
    assert f"$.{field}: is missing" in caplog.text


def test_try_parse_waits_for_a_missing_type() -> None:
    assert try_parse({key: TEXT[key] for key in TEXT if key != "type"}) is None
    assert (
        try_parse({"type": "reasoning", **{k: TEXT[k] for k in TEXT if k != "type"}, "time": {}})
        is None
    )
