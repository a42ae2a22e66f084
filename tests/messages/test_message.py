from __future__ import annotations

import pickle
from types import MappingProxyType
from typing import Any

import pytest

from palaver.errors import ValidationError
from palaver.messages import (
    ROLES,
    AssistantInfo,
    Message,
    ModelRef,
    Routing,
    Speaker,
    TokenCounts,
    UserInfo,
    assistant,
    complete,
    new_id,
    parse_message,
    pending,
    start,
    system,
    text_part,
    to_dict,
    tool_part,
    user,
)
from palaver.messages.ids import is_uuid
from palaver.messages.message import Summary, WorkingPath
from tests.messages.outcome import outcome

SESSION, MESSAGE = new_id(), new_id()
HI = text_part(SESSION, MESSAGE, "hi")
DONE = tool_part(SESSION, MESSAGE, "c", "t", complete(start(pending({}, "")), "out", tool="t"))
OPEN = tool_part(SESSION, MESSAGE, "c", "t", pending({}, ""))


@pytest.mark.parametrize("role", ROLES)
def test_a_message_has_one_of_four_roles(role: Any) -> None:  # noqa: ANN401 - a role
    assert role == Message(role, "x").role


@pytest.mark.parametrize("role", ["robot", "", "User", None, 5, ["user"], "x" * 10_000])
def test_any_other_role_is_refused_and_quoted_shortly(role: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValidationError) as caught:
        Message(role, "x")
    assert ("$.role", "role") == (caught.value.path, caught.value.rule)
    assert len(str(caught.value)) < 200


def test_a_message_gets_an_id_and_a_time() -> None:
    one, other = user("a"), user("a")
    assert is_uuid(one.id)
    assert one.id < other.id
    assert one.timestamp > 1_600_000_000_000
    assert one != other


def test_text_is_the_text_of_all_text_parts() -> None:
    message = user([HI, DONE, text_part(SESSION, MESSAGE, " there")])
    assert "hi there" == message.text
    assert 3 == len(message.parts)
    assert ("plain", ()) == (user("plain").text, user("plain").parts)


@pytest.mark.parametrize("make", [tuple, list, iter, lambda parts: (part for part in parts)])
def test_parts_may_come_in_any_order_keeping_form(make: Any) -> None:  # noqa: ANN401
    assert (HI, DONE) == user(make([HI, DONE]), id=MESSAGE).content


@pytest.mark.parametrize(
    ("content", "path"),
    [
        (5, "$.content"),
        (None, "$.content"),
        (b"bytes", "$.content"),
        ({"type": "text"}, "$.content"),
        (["text"], "$.content[0]"),
        ([HI, {"type": "text"}], "$.content[1]"),
        ("a\0", "$.content"),
    ],
)
def test_content_is_text_or_parts(content: Any, path: str) -> None:  # noqa: ANN401
    for refusal in (outcome(Message, "user", content), outcome(user, content)):
        assert isinstance(refusal, ValidationError)
        assert path == refusal.path


def test_a_message_has_a_cap_on_its_parts() -> None:
    with pytest.raises(ValidationError) as caught:
        user([HI] * 10_001)
    assert ("$.content", "size") == (caught.value.path, caught.value.rule)


def test_an_answer_holds_no_results_and_no_message_holds_open_calls() -> None:
    misplaced, unfinished = outcome(assistant, [DONE]), outcome(Message, "tool", (OPEN,))
    assert isinstance(misplaced, ValidationError)
    assert "tool-part-in-answer" == misplaced.rule
    assert isinstance(unfinished, ValidationError)
    assert "open-tool-call" == unfinished.rule
    assert (DONE,) == Message("tool", (DONE,), id=MESSAGE).content


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"id": ""}, "$.id"),
        ({"id": "a\nb"}, "$.id"),
        ({"id": 5}, "$.id"),
        ({"timestamp": -1}, "$.timestamp"),
        ({"timestamp": 1.5}, "$.timestamp"),
        ({"timestamp": True}, "$.timestamp"),
        ({"metadata": []}, "$.metadata"),
        ({"metadata": {"a": "\ud800"}}, "$.metadata.a"),
        ({"speaker": {"roleId": "a"}}, "$.speaker"),
        ({"routing": ["a"]}, "$.routing"),
        ({"info": {"agent": "a"}}, "$.info"),
        ({"info": AssistantInfo()}, "$.info.role"),
    ],
)
def test_every_field_is_checked(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(ValidationError) as caught:
        user("x", **fields)
    assert path == caught.value.path


def test_addressees_come_from_the_routing() -> None:
    assert () == user("x").addressees
    assert ("a", "b") == user("x", routing=Routing(("a", "b"))).addressees
    assert ("a",) == Routing(["a"]).resolved_addressees  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("bad", ["a", ("a", ""), ("a\n",), 5])
def test_addressees_are_names(bad: Any) -> None:  # noqa: ANN401 - something else
    with pytest.raises(ValidationError) as caught:
        Routing(bad)
    assert caught.value.path.startswith("$.resolvedAddressees")


@pytest.mark.parametrize("bad", ["", "a\nb", "[NEXT: x]", "]", 5])
@pytest.mark.parametrize("field", ["role_id", "role_name"])
def test_a_speakers_name_cannot_pose_as_a_marker(field: str, bad: object) -> None:
    with pytest.raises(ValidationError):
        Speaker(**{"role_id": "a", "role_name": "A", "type": "ai", field: bad})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", ["robot", None, ["ai"]])
def test_a_speaker_is_human_or_ai(kind: Any) -> None:  # noqa: ANN401 - something else
    assert "human" == Speaker("a", "A", "human").type
    with pytest.raises(ValidationError) as caught:
        Speaker("a", "A", kind)
    assert "$.type" == caught.value.path


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: UserInfo(agent="\0"), "$.agent"),
        (lambda: UserInfo(system=5), "$.system"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: UserInfo(variant="\ud800"), "$.variant"),
        (lambda: UserInfo(model="m"), "$.model"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: UserInfo(tools={"ls": 1}), "$.tools.ls"),  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
        (lambda: UserInfo(tools=["ls"]), "$.tools"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: UserInfo(summary=True), "$.summary"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: Summary(title="\0"), "$.title"),
        (lambda: Summary(diffs=5), "$.diffs"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: Summary(diffs=({"a": "\0"},)), "$.diffs[0].a"),
        (lambda: WorkingPath("a", "\0"), "$.root"),
        (lambda: AssistantInfo(agent="\0"), "$.agent"),
        (lambda: AssistantInfo(finish="\ud800"), "$.finish"),
        (lambda: AssistantInfo(model="m"), "$.model"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: AssistantInfo(path="p"), "$.path"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: AssistantInfo(summary="yes"), "$.summary"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: AssistantInfo(error={"a": float("nan")}), "$.error.a"),
        (lambda: AssistantInfo(tokens={"input": 1}), "$.tokens"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: AssistantInfo(cost=1.0, cost_computed="yes"), "$.costComputed"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: AssistantInfo(completed=-1), "$.completed"),
        (lambda: AssistantInfo(tokens=TokenCounts(-1, 0, 0, None)), "$.tokens"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ],
)
def test_extensions_check_themselves(make: Any, path: str) -> None:  # noqa: ANN401
    with pytest.raises(ValidationError) as caught:
        make()
    assert path == caught.value.path


def test_extensions_carry_what_they_are_given() -> None:
    info = AssistantInfo(
        agent="a",
        model=ModelRef("p", "m", "high"),
        path=WorkingPath("a", "b"),
        error={"name": "E"},
        summary=True,
    )
    assert info == assistant("x", info=info).info
    assert info == parse_message(to_dict(assistant("x", info=info))).info


def test_the_callers_values_can_be_changed_afterwards_and_the_message_stays() -> None:
    """HI-12: what callers pass in can't change the value behind its back."""
    parts, metadata, tools = [HI], {"a": [1]}, {"ls": True}
    diffs: list[dict[str, Any]] = [{"file": "a.py"}]
    info = UserInfo(tools=tools, summary=Summary(diffs=diffs))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    message = user(parts, metadata=metadata, info=info)
    before = to_dict(message)
    parts.append(DONE)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    metadata["a"].append(2)
    tools["rm"] = True
    diffs[0]["file"] = "b.py"
    diffs.append({})
    assert before == to_dict(message)


def test_what_a_message_hands_out_cannot_be_changed() -> None:
    """HI-12: what callers get can't change it either."""
    message = user("x", metadata={"a": [1]}, info=UserInfo(tools={"ls": True}))
    with pytest.raises(AttributeError):
        message.role = "tool"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError):
        message.metadata["b"] = 1  # type: ignore[index]  # pyright: ignore[reportIndexIssue]
    with pytest.raises(TypeError):
        message.metadata["a"].append(2)
    assert isinstance(message.info, UserInfo)
    with pytest.raises(TypeError):
        message.info.tools["rm"] = True  # type: ignore[index]  # pyright: ignore[reportIndexIssue, reportOptionalSubscript]
    assert isinstance(user([HI]).content, tuple)


def test_messages_are_values() -> None:
    message = user([HI], metadata={"a": [1]}, speaker=Speaker("a", "A", "human"))
    again = pickle.loads(pickle.dumps(message))  # noqa: S301 - our own
    assert message == again
    assert hash(message) == hash(again)
    assert 1 == len({message, again})


def test_metadata_may_be_any_mapping() -> None:
    assert {"a": 1} == user("x", metadata=MappingProxyType({"a": 1})).metadata


def test_three_roles_have_factories() -> None:
    assert ["user", "assistant", "system"] == [make("x").role for make in (user, assistant, system)]
    assert "m1" == user("x", id="m1").id
