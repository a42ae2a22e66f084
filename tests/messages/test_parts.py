"""Parts, their factories and their type guards."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given

from palaver.errors import PartValidationError, ValidationError
from palaver.messages import (
    CacheCounts,
    FilePart,
    ModelRef,
    ReasoningPart,
    TextPart,
    TokenCounts,
    ToolCallPart,
    ToolPart,
    UnknownPart,
    dump,
    new_id,
    parse_part,
    pending,
    reasoning_part,
    text_part,
    to_dict,
    tool_call_part,
)
from palaver.messages import parts as part_module
from palaver.messages.ids import is_uuid
from palaver.messages.part_base import (
    FileSource,
    LineRange,
    Position,
    ResourceSource,
    SourceText,
    SymbolSource,
)
from palaver.messages.parts import (
    AgentPart,
    CompactionPart,
    Created,
    PatchPart,
    RetryPart,
    SnapshotPart,
    StepFinishPart,
    StepStartPart,
    SubtaskPart,
    TextTime,
    compaction_part,
    patch_part,
    retry_part,
    step_finish_part,
    subtask_part,
)
from tests.messages.strategies import PARTS, parts
from tests.profiles import at_least

if TYPE_CHECKING:
    from collections.abc import Callable


IDS: dict[str, Any] = {
    "id": "p1",
    "session_id": "0190163d-8694-739b-aea5-966c26f8ad91",
    "message_id": "0190163d-8694-739b-aea5-966c26f8ad92",
}
TOKENS = TokenCounts(1, 2, 3, CacheCounts(4, 5))
RIGHT: dict[type, dict[str, Any]] = {
    TextPart: {"text": "hi", "synthetic": True, "ignored": False, "time": TextTime(1, 2)},
    ReasoningPart: {"text": "hm", "time": TextTime(1)},
    ToolCallPart: {"call_id": "c", "tool": "t", "input": {}, "raw": ""},
    ToolPart: {"call_id": "c", "tool": "t", "state": pending({}, "")},
    StepStartPart: {"snapshot": "s"},
    StepFinishPart: {"reason": "stop", "tokens": TOKENS, "snapshot": "s"},
    FilePart: {
        "mime": "m",
        "url": "u",
        "filename": "f",
        "source": FileSource("p", SourceText("v", 0, 1)),
    },
    CompactionPart: {"auto": True, "overflow": False, "tail_start_id": "m"},
    RetryPart: {"attempt": 1, "error": {}, "time": Created(1)},
    SubtaskPart: {
        "prompt": "p",
        "description": "d",
        "agent": "a",
        "model": ModelRef("p", "m"),
        "command": "c",
    },
    AgentPart: {"name": "a", "source": SourceText("v", 0, 1)},
    PatchPart: {"hash": "h", "files": ("a",)},
    SnapshotPart: {"snapshot": "s"},
}
"""Every kind of part, with all that its constructor takes."""

FIELDS = [
    pytest.param(kind, name, id=f"{kind.__name__}.{name}")
    for kind, fields in RIGHT.items()
    for name in fields
]


@pytest.mark.parametrize("kind", RIGHT)
def test_the_constructor_makes_what_json_makes(kind: Any) -> None:  # noqa: ANN401 - a part type
    part = kind(**IDS, **RIGHT[kind])
    assert part == parse_part(dump(part))


@pytest.mark.parametrize(("kind", "name"), FIELDS)
@pytest.mark.parametrize("bad", [object(), 1.5, [5]], ids=["object", "float", "list"])
def test_the_constructor_refuses_what_is_of_another_type(kind: Any, name: str, bad: object) -> None:  # noqa: ANN401
    with pytest.raises(PartValidationError) as caught:
        kind(**IDS, **{**RIGHT[kind], name: bad})
    assert kind.__struct_config__.tag == caught.value.part
    assert caught.value.path.startswith(f"$.{encoded(kind, name)}")


def encoded(kind: Any, name: str) -> str:  # noqa: ANN401 - a part type
    return {f.name: f.encode_name for f in msgspec.structs.fields(kind)}[name]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(kind, name, id=f"{kind.__name__}.{name}")
        for kind, fields in RIGHT.items()
        for name, value in fields.items()
        if isinstance(value, str)
    ],
)
@pytest.mark.parametrize("bad", ["a\0b", "a\ud800"])
def test_every_text_of_a_part_is_checked(kind: Any, name: str, bad: str) -> None:  # noqa: ANN401
    with pytest.raises(PartValidationError) as caught:
        kind(**IDS, **{**RIGHT[kind], name: bad})
    assert f"$.{encoded(kind, name)}" == caught.value.path


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda bad: SourceText(bad, 0, 1), "$.value"),
        (lambda bad: FileSource(bad, SourceText("", 0, 1)), "$.path"),
        (lambda bad: ResourceSource(bad, "", SourceText("", 0, 1)), "$.clientName"),
        (lambda bad: ResourceSource("", bad, SourceText("", 0, 1)), "$.uri"),
        (
            lambda bad: SymbolSource(
                "", LineRange(Position(0, 0), Position(0, 1)), bad, 1, SourceText("", 0, 1)
            ),
            "$.name",
        ),
        (lambda bad: ModelRef(bad, "m"), "$.providerID"),
        (lambda bad: ModelRef("p", bad), "$.modelID"),
        (lambda bad: ModelRef("p", "m", bad), "$.variant"),
    ],
)
@pytest.mark.parametrize("bad", ["\0", "\ud800", 5, [], b""])
def test_nor_round_it_inside_a_part(make: Any, path: str, bad: object) -> None:  # noqa: ANN401
    with pytest.raises(ValidationError) as caught:
        make(bad)
    assert path == caught.value.path


@pytest.mark.parametrize("bad", [2**60, 10**5000, "1", None, 1.0, True], ids=range(6))
def test_numbers_inside_a_part_are_integers_within_the_limit(bad: Any) -> None:  # noqa: ANN401 - anything
    for make in (
        lambda: SourceText("", bad, 1),
        lambda: Position(bad, 1),
        lambda: RetryPart(**IDS, attempt=bad, error={}, time=Created(1)),
        lambda: RetryPart(**IDS, attempt=1, error={}, time=Created(bad)),
        lambda: TextPart(**IDS, text="", time=TextTime(bad if bad is not None else -1)),
        lambda: ReasoningPart(**IDS, text="", time=TextTime(bad)),
        lambda: StepFinishPart(**IDS, reason="", tokens=TokenCounts(bad, 1, 1, CacheCounts())),
    ):
        with pytest.raises(ValidationError):
            make()


def test_a_position_is_where_a_position_belongs() -> None:
    with pytest.raises(ValidationError, match="must be Position"):
        LineRange((0, 1), (0, 2))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "tokens",
    [{"input": 1}, TokenCounts(1, 1, 1, {"read": 1})],  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
)
def test_token_counts_are_counts(tokens: Any) -> None:  # noqa: ANN401 - something else
    with pytest.raises(PartValidationError) as caught:
        StepFinishPart(**IDS, reason="", tokens=tokens)
    assert ("$.tokens", "token-counts") == (caught.value.path, caught.value.rule)


@pytest.mark.parametrize("total", [-1, 2**60, "9"])
def test_a_total_is_a_count_too(total: Any) -> None:  # noqa: ANN401 - something else
    with pytest.raises(PartValidationError) as caught:
        StepFinishPart(**IDS, reason="", tokens=TokenCounts(1, 1, 1, CacheCounts(), total))
    assert "$.tokens.total" == caught.value.path


@pytest.mark.parametrize(
    "cost", [-0.5, float("nan"), float("inf"), 10**400, "free", True], ids=range(6)
)
def test_a_cost_is_a_price(cost: Any) -> None:  # noqa: ANN401 - something else
    with pytest.raises(PartValidationError) as caught:
        StepFinishPart(**IDS, reason="", tokens=TOKENS, cost=cost)
    assert ("$.cost", "cost") == (caught.value.path, caught.value.rule)


def test_reasoning_has_a_start() -> None:
    with pytest.raises(PartValidationError) as caught:
        ReasoningPart(**IDS, text="hm", time=TextTime(end=5))
    assert "$.time.start" == caught.value.path


def test_files_of_a_patch_may_come_as_a_list() -> None:
    assert ("a", "b") == PatchPart(**IDS, hash="h", files=["a", "b"]).files  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(PartValidationError) as caught:
        PatchPart(**IDS, hash="h", files=("a", "\0"))
    assert "$.files[1]" == caught.value.path


@pytest.mark.parametrize("name", ["metadata", "input"])
def test_the_callers_dict_can_be_changed_afterwards_and_the_part_stays(name: str) -> None:
    """HI-12: what callers pass in can't change the value behind its back."""
    given_dict: dict[str, Any] = {"a": [1, {"b": 2}]}
    fields: dict[str, Any] = {**RIGHT[ToolCallPart], name: given_dict}
    part = ToolCallPart(**IDS, **fields)
    given_dict["a"][1]["b"] = 9
    given_dict["c"] = 3
    assert {"a": [1, {"b": 2}]} == getattr(part, name)


def test_what_a_part_hands_out_cannot_be_changed() -> None:
    """HI-12: what callers get can't change it either."""
    part = ToolCallPart(**IDS, call_id="c", tool="t", input={"a": [1]}, raw="")
    with pytest.raises(TypeError):
        part.input["b"] = 1  # type: ignore[index]  # pyright: ignore[reportIndexIssue]
    with pytest.raises(TypeError):
        part.input["a"].append(1)
    with pytest.raises(AttributeError):
        part.tool = "u"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    to_dict(part)["input"]["a"].append(1)
    assert {"a": [1]} == part.input


@at_least(100)
@given(parts)
def test_parts_are_values(part: Any) -> None:  # noqa: ANN401 - any part
    again = pickle.loads(pickle.dumps(part))  # noqa: S301 - our own
    assert part == again == copy.copy(part) == copy.deepcopy(part)
    assert hash(part) == hash(again)
    assert part.type in repr(part) or type(part).__name__ in repr(part)


@pytest.mark.parametrize("kind", PARTS)
def test_parts_of_different_types_are_different(kind: str) -> None:
    if kind != "unknown":
        raw = {"type": "x", "id": "p1"}
        assert UnknownPart(raw) != kind


def test_an_unknown_part_is_stored_unchanged() -> None:
    raw: dict[str, Any] = {"type": "hologram", "beam": [1, 2]}
    part = UnknownPart(raw)
    raw["beam"].append(3)
    assert ("hologram", "", [1, 2]) == (part.type, part.id, part.raw["beam"])
    assert "h1" == UnknownPart({"type": "hologram", "id": "h1"}).id
    assert "" == UnknownPart({"type": "hologram", "id": 5}).id
    assert part == UnknownPart({"type": "hologram", "beam": [1, 2]})
    assert part != UnknownPart({"type": "hologram"})
    assert "hologram" in repr(part)
    with pytest.raises(TypeError):
        part.raw["x"] = 1  # type: ignore[index]  # pyright: ignore[reportIndexIssue]


@pytest.mark.parametrize("raw", [{}, {"type": 5}, {"type": None}])
def test_an_unknown_part_has_a_type(raw: dict[str, Any]) -> None:
    with pytest.raises(PartValidationError) as caught:
        UnknownPart(raw)
    assert ("$.type", "part-type") == (caught.value.path, caught.value.rule)


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


GUARDS: dict[str, Callable[[object], bool]] = {
    kind: getattr(part_module, f"is_{kind.replace('-', '_')}_part") for kind in PARTS
}


@pytest.mark.parametrize("kind", PARTS)
def test_exactly_one_guard_knows_each_part(kind: str) -> None:
    @at_least(20)
    @given(PARTS[kind])
    def check(part: Any) -> None:  # noqa: ANN401 - any part
        assert [kind] == [name for name, guard in GUARDS.items() if guard(part)]

    check()


@pytest.mark.parametrize("value", [None, "text", {"type": "text"}, 5])
def test_no_guard_knows_anything_else(value: object) -> None:
    assert not any(guard(value) for guard in GUARDS.values())
