from __future__ import annotations

import pytest

from palaver.errors import PartValidationError
from palaver.messages import (
    CacheCounts,
    TextTime,
    TokenCounts,
    compaction_part,
    is_uuid,
    new_id,
    patch_part,
    reasoning_part,
    retry_part,
    step_finish_part,
    subtask_part,
    text_part,
    tool_call_part,
)

SESSION, MESSAGE = new_id(), new_id()


def test_every_part_gets_an_id_of_its_own() -> None:
    one, other = text_part(SESSION, MESSAGE, "a"), text_part(SESSION, MESSAGE, "a")
    assert is_uuid(one.id)
    assert one.id < other.id


def test_optional_fields_go_by_name() -> None:
    assert text_part(SESSION, MESSAGE, "a", ignored=True).ignored
    assert compaction_part(SESSION, MESSAGE, auto=False, overflow=True).overflow
    assert "c" == subtask_part(SESSION, MESSAGE, "p", "d", "a", command="c").command
    tokens = TokenCounts(1, 2, 3, CacheCounts())
    assert step_finish_part(SESSION, MESSAGE, "stop", 1.5, tokens, cost_computed=True).cost_computed


def test_reasoning_and_retries_begin_now_unless_said_otherwise() -> None:
    assert TextTime(0, 9) == reasoning_part(SESSION, MESSAGE, "hm", start=0, end=9).time
    now = reasoning_part(SESSION, MESSAGE, "hm").time.start
    assert now is not None
    assert now > 1_600_000_000_000
    assert 0 == retry_part(SESSION, MESSAGE, 1, {}, at=0).time.created
    assert retry_part(SESSION, MESSAGE, 1, {}).time.created >= now


def test_a_tool_call_is_spelled_out_unless_the_model_wrote_it_otherwise() -> None:
    assert '{"q":"茶"}' == tool_call_part(SESSION, MESSAGE, "t", {"q": "茶"}).raw
    assert "{'q'" == tool_call_part(SESSION, MESSAGE, "t", {}, raw="{'q'").raw
    assert "" == tool_call_part(SESSION, MESSAGE, "t", {}, raw="").raw


def test_a_tool_call_has_its_own_id_unless_the_model_gave_one() -> None:
    part = tool_call_part(SESSION, MESSAGE, "t", {})
    assert part.id == part.call_id
    assert "c1" == tool_call_part(SESSION, MESSAGE, "t", {}, call_id="c1").call_id


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ({"a": "\ud800"}, "text.surrogate"),
        ({"a": float("nan")}, "number.nan"),
        ({"a": 2**70}, "number.range"),
        ({"a": object()}, "schema"),
        ({5: 1}, "schema"),
        ([], "schema"),
    ],
)
def test_an_input_that_is_no_json_is_refused_by_the_part(value: object, rule: str) -> None:
    with pytest.raises(PartValidationError) as caught:
        tool_call_part(SESSION, MESSAGE, "t", value)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert rule == caught.value.rule
    assert caught.value.path.startswith("$.input")


def test_files_of_a_patch_may_be_any_iterable() -> None:
    assert ("a", "b") == patch_part(SESSION, MESSAGE, "h", iter(["a", "b"])).files
