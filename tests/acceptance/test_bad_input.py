"""Bad input: a typed error that names the path and the rule, and nothing half made."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from palaver.errors import InvalidStateTransition, ValidationError
from palaver.messages import (
    FilePart,
    Message,
    TextPart,
    ToolCallPart,
    complete,
    parse_message,
    parse_messages,
    parse_part,
    pending,
    start,
    text_part,
    tool_call_part,
    user,
)
from palaver.messages.foreign import parse_export
from tests.acceptance.parts import MESSAGE, SESSION, TEXT, part_json
from tests.patience import within

if TYPE_CHECKING:
    from collections.abc import Callable


def refused(make: Callable[[], object], path: str, rule: str) -> ValidationError:
    """Expect a typed refusal with this path and rule, before anyone loses patience."""
    with within(60), pytest.raises(ValidationError) as caught:
        make()
    error = caught.value
    assert (path, rule) == (error.path, error.rule)
    assert len(str(error)) < 1_000
    assert rule in str(error)
    return error


def as_json_and_as_dict(value: Any) -> list[Any]:  # noqa: ANN401 - JSON
    return [value, json.dumps(value), json.dumps(value).encode()]


def test_bad_input_an_unknown_role() -> None:
    for value in as_json_and_as_dict({"role": "robot"}):
        refused(lambda value=value: parse_message(value), "$.role", "role")  # type: ignore[misc]  # bound now
    refused(lambda: Message("robot", "beep"), "$.role", "role")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    refused(
        lambda: parse_messages('[{"role":"user","content":""},{"role":"robot"}]'),
        "$[1].role",
        "role",
    )


def test_bad_input_a_part_without_an_id() -> None:
    part = {key: item for key, item in TEXT.items() if key != "id"}
    refused(lambda: parse_part(part), "$.id", "part-id")
    refused(
        lambda: parse_message(json.dumps({"role": "user", "content": [TEXT, part]})),
        "$.content[1].id",
        "part-id",
    )


def test_bad_input_a_completed_state_with_empty_output() -> None:
    part = part_json("tool")
    part["state"] = {**part["state"], "output": ""}
    refused(lambda: parse_part(part), "$.state.output", "empty-output")
    refused(
        lambda: parse_message(json.dumps({"role": "tool", "content": [part]})),
        "$.content[0].state.output",
        "empty-output",
    )


def test_bad_input_a_transition_from_completed_to_running() -> None:
    done = complete(start(pending({}, "")), "out", tool="t")
    with pytest.raises(InvalidStateTransition) as caught:
        start(done)
    assert ("completed", "running", ()) == (
        caught.value.current_status,
        caught.value.attempted_status,
        caught.value.valid_transitions,
    )


def test_bad_input_100_000_levels_of_nesting() -> None:
    levels = 100_000
    deep: Any = 0
    for _ in range(levels):
        deep = [deep]
    text = (
        '{"role":"user","content":"x","metadata":{"a":' + "[" * levels + "0" + "]" * levels + "}}"
    )
    for value in (text, {"role": "user", "content": "x", "metadata": {"a": deep}}):
        for replace in (False, True):
            with within(60), pytest.raises(ValidationError) as caught:
                parse_message(value, replace=replace)
            assert "depth" == caught.value.rule
            assert caught.value.path.startswith("$.metadata.a[0][0]")
            assert len(str(caught.value)) < 1_000
    for make in (
        lambda: parse_part({**TEXT, "metadata": {"a": deep}}),
        lambda: parse_part({"type": "hologram", "beam": deep}),
        lambda: tool_call_part(SESSION, MESSAGE, "t", {"a": deep}),
        lambda: user("x", metadata={"a": deep}),
        lambda: parse_export("[" * levels),
        lambda: parse_messages("[" * levels + "]" * levels),
    ):
        with within(60), pytest.raises(ValidationError) as caught:
            make()
        assert "depth" == caught.value.rule


def test_bad_input_200_mb_of_text() -> None:
    text = "x" * 200_000_000
    refused(lambda: user(text), "$.content", "size")
    refused(lambda: text_part(SESSION, MESSAGE, text), "$.text", "size")
    value = b'{"role":"user","content":"' + text.encode() + b'"}'
    refused(lambda: parse_message(value), "$.content", "size")


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: user("a\ud800"), "$.content"),
        (lambda: parse_message(r'{"role": "user", "content": "a\ud800"}'), "$.content"),
        (lambda: parse_message('{"role": "user", "content": "a\ud800"}'), "$.content"),
        (lambda: parse_message({"role": "user", "content": "a\ud800"}), "$.content"),
        (lambda: user("x", metadata={"a": ["\udc00"]}), "$.metadata.a[0]"),
        (lambda: parse_part({**TEXT, "text": "\udfff"}), "$.text"),
        (lambda: text_part(SESSION, MESSAGE, "\udfff"), "$.text"),
    ],
)
def test_bad_input_a_lone_surrogate(make: Callable[[], object], path: str) -> None:
    refused(make, path, "text.surrogate")


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: user("x", metadata={"a": {"b": float("nan")}}), "$.metadata.a.b"),
        (
            lambda: parse_message('{"role": "user", "content": "x", "metadata": {"a": NaN}}'),
            "$.metadata.a",
        ),
        (lambda: tool_call_part(SESSION, MESSAGE, "t", {"a": float("inf")}), "$.input.a"),
    ],
)
def test_bad_input_nan(make: Callable[[], object], path: str) -> None:
    refused(make, path, "number.nan")


@pytest.mark.parametrize("number", [2**60, -(2**60), 10**5000], ids=["2^60", "-2^60", "10^5000"])
def test_bad_input_an_integer_beyond_2_to_the_53(number: int) -> None:
    refused(lambda: user("x", metadata={"a": [number]}), "$.metadata.a[0]", "number.range")
    refused(lambda: user("x", timestamp=abs(number)), "$.timestamp", "number.range")
    refused(lambda: pending({"a": number}, ""), "$.input.a", "number.range")
    if number.bit_length() < 100:
        value = {"role": "user", "content": "x", "metadata": {"a": [number]}}
        for form in as_json_and_as_dict(value):
            refused(lambda form=form: parse_message(form), "$.metadata.a[0]", "number.range")  # type: ignore[misc]  # bound now


LIST: Any = ["hi"]


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: parse_part({**TEXT, "text": ["hi"]}), "$.text"),
        (lambda: TextPart(id="p", session_id=SESSION, message_id=MESSAGE, text=["hi"]), "$.text"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: parse_message({"role": "user", "content": ["hi"]}), "$.content[0]"),
        (lambda: user(["hi"]), "$.content[0]"),  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
        (lambda: parse_message({"role": ["user"], "content": "hi"}), "$.role"),
        (lambda: parse_message({"role": "user", "content": "x", "id": ["m"]}), "$.id"),
        (
            lambda: ToolCallPart(
                id="p",
                session_id=SESSION,
                message_id=MESSAGE,
                call_id=LIST,
                tool="t",
                input={},
                raw="",
            ),
            "$.callID",
        ),
        (
            lambda: FilePart(id="p", session_id=SESSION, message_id=MESSAGE, mime=LIST, url=""),
            "$.mime",
        ),
        (lambda: pending({}, ["raw"]), "$.raw"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ],
)
def test_bad_input_a_list_where_a_string_belongs(make: Callable[[], object], path: str) -> None:
    with pytest.raises(ValidationError) as caught:
        make()
    assert path == caught.value.path
    assert caught.value.rule in {"schema", "role", "id", "tool-call-raw"}


def test_bad_input_leaves_nothing_half_made() -> None:
    """A list of messages is read whole or not at all, and the caller's values stay as they were."""
    good, bad = {"role": "user", "content": "x"}, {"role": "user", "content": [TEXT, {}]}
    before = json.dumps([good, bad])
    with pytest.raises(ValidationError):
        parse_messages([good, bad])
    assert before == json.dumps([good, bad])
