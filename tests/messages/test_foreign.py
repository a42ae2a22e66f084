"""Turns in opencode's JSON: read and written without loss."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given

from palaver.errors import PartValidationError, ValidationError
from palaver.messages import ToolCompleted, ToolError, ToolPart, fold, unfold, user
from palaver.messages.foreign import (
    Export,
    difference,
    fit_fields,
    parse_export,
    parse_turn,
    restore,
    write_export,
    write_turn,
)
from palaver.messages.ids import is_uuid
from palaver.messages.parts import StepFinishPart
from palaver.messages.tool_state import NO_OUTPUT
from tests.messages.outcome import outcome
from tests.messages.strategies import anything, objects
from tests.profiles import at_least

BASE = {"sessionID": "ses_1", "messageID": "msg_1"}
INFO = {"id": "msg_1", "sessionID": "ses_1", "role": "assistant", "time": {"created": 1}}
TEXT = {"type": "text", "id": "prt_1", **BASE, "text": "hi"}


def tool(state: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool", "id": "prt_2", **BASE, "callID": "c", "tool": "t", "state": state}


def turn(*parts: Any, **info: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"info": {**INFO, **info}, "parts": list(parts)}


def through_messages(theirs: Any) -> Any:  # noqa: ANN401 - JSON
    """Read, unfold, fold, write."""
    export = parse_export(theirs)
    back = unfold(export.turns)
    return write_export(Export(fold(back.messages, back.ledger), export.envelope))


@pytest.mark.parametrize(
    "theirs",
    [
        [],
        [turn(TEXT)],
        {"messages": []},
        {"info": {}, "messages": [turn(TEXT)]},
        {"info": {"id": "ses_1", "title": "T"}, "messages": [turn(TEXT)], "version": "1.2"},
        {"info": "text", "messages": []},
        [{**turn(TEXT), "shoe": 44}],
        [turn(TEXT, metadata={})],
        [turn({**TEXT, "metadata": {}, "synthetic": False})],
        [turn({**TEXT, "time": {"start": 1, "shoe": [44]}})],
        [turn({"type": "hologram", "beam": 2}, {"type": "hologram", "beam": 3})],
        [
            turn(
                cost=0,
                tokens={
                    "input": 0,
                    "output": 0,
                    "reasoning": 0,
                    "cache": {"read": 0, "write": 0, "x": 1},
                },
            )
        ],
        [turn(cost=1)],
        [turn(cost=0, costComputed=True)],
        [turn(modelID="m", providerID="p", mode="build")],
        [turn(model={"providerID": "a", "modelID": "b"}, modelID="m", providerID="p")],
        [turn(role="user", cost=5, path={"cwd": "a", "root": "b"}, error={"x": 1})],
        [turn(role="user", summary=True), turn(id="msg_2", summary=True)],
        [turn(summary={"title": "of an answer"})],
        [turn(role="user", summary={"title": "T", "diffs": [{"file": "a"}], "shoe": 44})],
        [turn(role="system", agent="a")],
        [{"info": {"id": "m", "role": "user", "time": {"created": 1}}, "parts": []}],
        [
            {
                "info": {"id": "m", "role": "user", "time": {"created": 1, "updated": 2}},
                "parts": [TEXT],
            }
        ],
        [turn(speaker={"roleId": "a", "roleName": "A", "type": "ai", "shoe": 44})],
        [turn(sessionID="another")],
    ],
    ids=range(25),
)
def test_an_export_is_written_as_it_was_read(theirs: Any) -> None:  # noqa: ANN401 - JSON
    before = json.dumps(theirs)
    assert theirs == write_export(parse_export(theirs))
    assert theirs == write_export(parse_export(json.dumps(theirs).encode()))
    assert theirs == through_messages(theirs)
    assert before == json.dumps(theirs)


def test_one_turn_alone_is_read_too() -> None:
    assert [turn(TEXT)] == write_export(parse_export(turn(TEXT)))
    assert turn(TEXT) == write_turn(parse_turn(json.dumps(turn(TEXT))))


def test_foreign_ids_become_uuids_that_belong_together() -> None:
    (read,) = parse_export([turn(TEXT)]).turns
    part = read.parts[0]
    assert read.info.session_id == part.session_id  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]
    assert is_uuid(read.info.session_id or "")
    assert ("msg_1", "prt_1") == (read.info.id, part.id)


@pytest.mark.parametrize(
    ("state", "field", "value"),
    [
        (
            {
                "status": "completed",
                "input": {},
                "output": "",
                "title": "",
                "metadata": {"a": 1},
                "time": {"start": 1, "end": 2},
            },
            "output",
            NO_OUTPUT,
        ),
        (
            {"status": "error", "input": {}, "error": "", "time": {"start": 1, "end": 2}},
            "error",
            "(no description)",
        ),
        (
            {"status": "error", "input": {}, "error": " \n", "time": {"start": 1, "end": 2}},
            "error",
            "(no description)",
        ),
    ],
)
def test_empty_texts_are_mapped_and_written_back(
    state: dict[str, Any], field: str, value: str
) -> None:
    theirs = [turn(tool(state))]
    part = parse_export(theirs).turns[0].parts[0]
    assert isinstance(part, ToolPart)
    assert isinstance(part.state, ToolCompleted | ToolError)
    assert value == getattr(part.state, field)
    assert theirs == through_messages(theirs)


def test_attachments_are_mapped_and_written_back() -> None:
    image = {
        "type": "file",
        "id": "prt_9",
        **BASE,
        "mime": "image/png",
        "url": "data:,",
        "shoe": 44,
    }
    state = {
        "status": "completed",
        "input": {},
        "output": "x",
        "title": "t",
        "metadata": {},
        "time": {"start": 1, "end": 2},
    }
    for attachments in ([], [image], [image, {**image, "id": "prt_8"}]):
        theirs = [turn(tool({**state, "attachments": attachments}))]
        assert theirs == through_messages(theirs)


def test_a_value_that_was_changed_since_is_written_as_it_is_now() -> None:
    from msgspec.structs import replace  # noqa: PLC0415 - to change one

    (read,) = parse_export([turn({**TEXT, "shoe": 44})]).turns
    changed = replace(read, parts=(replace(read.parts[0], text="bye"),))  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    assert turn({**TEXT, "text": "bye", "shoe": 44}) == write_turn(changed)


def test_turns_that_palaver_made_are_written_in_the_same_form() -> None:
    message = user("hi", metadata={"a": 1})
    written = write_turn(fold([message])[0])
    assert {"info", "parts"} == set(written)
    assert (message,) == unfold(parse_export([written]).turns).messages


@pytest.mark.parametrize(
    ("value", "path", "rule"),
    [
        (5, "$", "schema"),
        ("5", "$", "schema"),
        ({"messages": 5}, "$.messages", "schema"),
        ({"messages": [5]}, "$.messages[0]", "turn"),
        ([{}], "$[0]", "turn"),
        ([{"info": 5, "parts": []}], "$[0].info", "schema"),
        ([{"info": INFO, "parts": {}}], "$[0].parts", "schema"),
        ([{"info": {}, "parts": []}], "$[0].info.id", "turn"),
        ([{"info": {"id": "m"}, "parts": []}], "$[0].info.role", "turn"),
        ([{"info": {"id": "m", "role": "user"}, "parts": []}], "$[0].info.time", "turn"),
        ([turn(id=5)], "$[0].info.id", "schema"),
        ([turn(role="robot")], "$[0].info.role", "schema"),
        ([turn(role=["user"])], "$[0].info.role", "schema"),
        ([turn(time={})], "$[0].info.time.created", "schema"),
        ([turn(cost=-1)], "$[0].info.cost", "cost"),
        ([turn(shoe="\0")], "$[0].info.shoe", "text.nul"),
        ([{**turn(), "shoe": float("nan")}], "$[0].shoe", "number.nan"),
        ([turn(5)], "$[0].parts[0]", "schema"),
        ([turn({**TEXT, "text": 5})], "$[0].parts[0].text", "schema"),
        ([turn({"type": "text"})], "$[0].parts[0].id", "part-id"),
        ([turn({"type": 5})], "$[0].parts[0].type", "part-type"),
        ([turn({**TEXT, "sessionID": "\ud800"})], "$[0].parts[0].sessionID", "part-id"),
        ([turn({**TEXT, "sessionID": "x" * 2000})], "$[0].parts[0].sessionID", "size"),
        ([turn(TEXT, TEXT)], "$[0].parts[1].id", "duplicate-part-id"),
        ([turn(tool({"status": "odd"}))], "$[0].parts[0].state.status", "schema"),
        ([turn(tool({"status": ["odd"]}))], "$[0].parts[0].state.status", "schema"),
    ],
)
def test_an_export_that_is_wrong_says_where(value: Any, path: str, rule: str) -> None:  # noqa: ANN401
    with pytest.raises(ValidationError) as caught:
        parse_export(value)
    assert (path, rule) == (caught.value.path, caught.value.rule)


def test_what_is_wrong_in_a_part_is_an_error_of_that_part() -> None:
    with pytest.raises(PartValidationError) as caught:
        parse_turn(turn({**TEXT, "text": 5}))
    assert ("text", "$.parts[0].text") == (caught.value.part, caught.value.path)


@at_least(300)
@given(anything)
def test_whatever_comes_in_only_a_typed_error_comes_out(value: Any) -> None:  # noqa: ANN401
    for theirs in (
        value,
        [value],
        {"info": value, "messages": [value]},
        [{"info": value, "parts": value}],
        [
            turn(
                TEXT, value, sessionID=value, cost=value, summary=value, model=value, metadata=value
            )
        ],
        [
            turn(
                {**TEXT, "metadata": value},
                tool({"status": "completed", "output": "", "metadata": value}),
            )
        ],
        [{**turn(TEXT), "keep": value, "shoe": value}],
        [turn(TEXT, keep=value, modelID=value, providerID=value)],
    ):
        export = outcome(parse_export, theirs)
        if isinstance(export, Export):
            assert json.dumps(write_export(export))
        else:
            assert isinstance(export, ValidationError)
            assert export.path.startswith("$")
            assert str(export).encode()


def test_mapping_knows_only_what_palaver_knows() -> None:
    theirs = {
        "type": "step-finish",
        "cost": 0,
        "costComputed": True,
        "tokens": {"input": 1, "x": 2},
    }
    assert {
        "type": "step-finish",
        "cost": 0,
        "costComputed": True,
        "tokens": {"input": 1},
    } == fit_fields(theirs, StepFinishPart)


def test_a_list_where_a_struct_belongs_is_left_for_the_decoder_to_refuse() -> None:
    with pytest.raises(ValidationError) as caught:
        parse_export([turn(tokens=[{"input": 1}])])
    assert "$[0].info.tokens" == caught.value.path


@at_least(300)
@given(objects, objects)
def test_taking_the_differences_back_gives_the_other_value(
    ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    changed = restore(copy.deepcopy(ours), difference(ours, theirs))
    assert json.dumps(theirs, sort_keys=True) == json.dumps(changed, sort_keys=True)


@pytest.mark.parametrize(("ours", "theirs"), [({"a": 1}, {"a": 1.0}), ({"a": 1}, {"a": True})])
def test_numbers_that_json_tells_apart_are_different(
    ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    assert [{"path": ["a"], "now": ours["a"], "was": theirs["a"]}] == difference(ours, theirs)


def test_a_place_that_somebody_has_changed_since_is_left_alone() -> None:
    notes = difference({"a": 1, "b": {"c": 2}}, {"a": 9, "b": {"c": 8}, "d": 7})
    assert {"a": 5, "b": {"c": 8}, "d": 6} == restore({"a": 5, "b": {"c": 2}, "d": 6}, notes)
    assert {"a": 9, "b": 3, "d": 7} == restore({"a": 1, "b": 3}, notes)
    assert {"a": 9, "d": 7} == restore({"a": 1}, notes)


def test_a_field_that_only_we_have_is_taken_out() -> None:
    assert {} == restore({"a": 1}, difference({"a": 1}, {}))
    assert {"a": 2} == restore({"a": 2}, difference({"a": 1}, {}))
    assert {"b": 1} == restore({"b": 1}, [{"path": ["a"]}])


@at_least(200)
@given(anything)
def test_notes_that_are_none_are_passed_over(notes: Any) -> None:  # noqa: ANN401 - anything
    assert {"a": 1} == restore({"a": 1}, notes)
    assert {"a": 1} == restore({"a": 1}, [notes, {"path": notes, "now": 2}, {"path": [5]}])
