"""Agent Framework's messages as palaver's, and back."""

from __future__ import annotations

from typing import Any

import pytest
from agent_framework import Content, Message
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from compat.agent_framework_agent import call, said
from palaver.adapters.agent_framework import (
    from_agent_framework,
    repair_messages,
    to_agent_framework,
)
from palaver.adapters.agent_framework.convert import METADATA_KEY
from palaver.errors import ValidationError
from palaver.messages import (
    ToolPart,
    assistant,
    dump,
    new_id,
    parse_message,
    reasoning_part,
    system,
    text_part,
    user,
)
from palaver.wire.pairing import INTERRUPTED


def there_and_back(message: Message) -> Any:
    """Through the bytes of a store."""
    made: Any = to_agent_framework(parse_message(dump(from_agent_framework(message))))
    return made.to_dict()


def result(name: str, text: str = "sunny") -> Content:
    return Content.from_function_result(name, result=text)


# ── every message comes back as it was ──────────────────────────────────────────────────────────

TEXTS = st.text(max_size=20) | st.sampled_from(["", "a\0b", "x" * 2_000, "\U0001f375", "\ud83c"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
MORE = st.dictionaries(TEXTS, JSON, max_size=2)
CONTENTS = st.one_of(
    st.builds(
        lambda text, more: Content.from_text(text, additional_properties=more), TEXTS, MORE
    ),
    st.builds(
        lambda text, name, data: Content.from_text_reasoning(
            text=text, id=name, protected_data=data
        ),
        TEXTS | st.none(), TEXTS | st.none(), st.sampled_from([None, "p"]),
    ),
    st.builds(
        lambda name, tool, given: Content.from_function_call(name, tool, arguments=given),
        TEXTS, TEXTS, TEXTS | st.dictionaries(TEXTS, JSON, max_size=2),
    ),
    st.builds(
        lambda name, given, error: Content.from_function_result(
            name, result=given, exception=error
        ),
        TEXTS, TEXTS | JSON, st.none() | st.just("boom"),
    ),
    st.binary(max_size=8).map(lambda data: Content.from_data(data, "image/png")),
    st.just(Content.from_uri("https://x.org/a.png", media_type="image/png")),
    st.just(Content.from_error(message="too much", error_code="429")),
    st.just(Content.from_hosted_file(file_id="f1")),
    st.just(
        Content.from_function_approval_request(
            id="a1", function_call=Content.from_function_call("c1", "weather", arguments="{}")
        )
    ),
)  # fmt: skip
MESSAGES = st.builds(
    lambda role, contents, author, name, more: Message(
        role, contents, author_name=author, message_id=name, additional_properties=more
    ),
    st.sampled_from(["user", "assistant", "system", "tool", "developer"]),
    st.lists(CONTENTS, max_size=3),
    st.none() | TEXTS,
    st.none() | TEXTS,
    MORE,
)


@given(MESSAGES)
def test_every_message_comes_back_as_it_was_put(message: Message) -> None:
    assert there_and_back(message) == message.to_dict()


def test_what_palaver_has_a_field_for_needs_no_metadata() -> None:
    made = from_agent_framework(Message("assistant", call()))
    assert [part.type for part in made.parts] == ["text", "tool-call"]
    assert not made.metadata
    answered = from_agent_framework(Message("tool", [result("c1")]), tools={"c1": "weather"})
    assert (answered.role, not answered.metadata) == ("tool", True)
    (part,) = answered.parts
    assert isinstance(part, ToolPart)
    assert (part.tool, part.call_id) == ("weather", "c1")


def test_an_edit_is_what_the_framework_gets() -> None:
    reasoning = Content.from_text_reasoning(text="Hm.", protected_data="secret")
    message = Message("assistant", [reasoning, "No."], author_name="Ada", message_id="m1")
    changed: Any = to_agent_framework(replace(from_agent_framework(message), content="Yes."))
    assert said([changed]) == ["Yes."]
    assert (changed.author_name, changed.message_id) == ("Ada", "m1")


def test_only_the_framework_s_own_reasoning_comes_back() -> None:
    plain = Message("assistant", [Content.from_text_reasoning(text="Hm."), "No."])
    assert there_and_back(plain) == plain.to_dict()
    ids = new_id(), new_id()
    thought, text = reasoning_part(*ids, "Hm."), text_part(*ids, "No.")
    found: Any = to_agent_framework(assistant([thought, text]))
    assert [each.type for each in found.contents] == ["text"]
    assert to_agent_framework(assistant([thought])) is None


def test_reasoning_beside_an_edit_is_left_out() -> None:
    reasoning = Content.from_text_reasoning(text="Hm.", id="rs_1", protected_data="secret")
    made = from_agent_framework(Message("assistant", [reasoning, "No."]))
    edited = replace(made, content=(made.parts[0], text_part(new_id(), made.id, "Yes.")))
    changed: Any = to_agent_framework(edited)
    assert [each.to_dict() for each in changed.contents] == [Content.from_text("Yes.").to_dict()]


@pytest.mark.parametrize(
    "stored",
    [7, "no JSON", "[]", '{"about": 7}', '{"about": [[["role", "x"], 1]]}', '{"of": 1}'],
)
def test_metadata_that_is_not_ours_is_ignored(stored: object) -> None:
    found: Any = to_agent_framework(replace(user("Tea?"), metadata={METADATA_KEY: stored}))
    assert said([found]) == ["Tea?"]


def test_what_cannot_be_stored_is_refused() -> None:
    wrong: Any = {"role": "user"}
    with pytest.raises(ValidationError, match=r"\$\.message"):
        from_agent_framework(wrong)
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValidationError, match="no JSON"):
        from_agent_framework(Message("user", additional_properties={"no": deep}))


def test_messages_of_palavers_own() -> None:
    shown = [to_agent_framework(each) for each in (system("Be kind."), assistant(""))]
    assert [(each.role, said([each])) for each in shown if each] == [("system", ["Be kind."])]


# ── calls and their results ─────────────────────────────────────────────────────────────────────


def test_calls_without_results_and_results_without_calls_are_repaired() -> None:
    broken = [
        Message("user", ["Rome?"]),
        Message("assistant", call("a")),
        Message("user", [result("b"), "And now?"], author_name="Ann"),
        Message("assistant", [*call("c"), *call("d")]),
        Message("assistant", ["Well."]),
        Message("tool", [result("d")]),
        Message("assistant", call("e")),
    ]
    repaired = repair_messages(broken, coming=[Message("tool", [result("e")])])
    assert said(repaired) == [
        "Rome?", "Let me see.+function_call", "function_result", "And now?",
        "Let me see.+function_call+Let me see.+function_call", "function_result+function_result",
        "Well.", "Let me see.+function_call",
    ]  # fmt: skip
    assert [each.result for each in repaired[5].contents] == [INTERRUPTED, "sunny"]
    assert (repaired[3].author_name, said(broken)[2]) == ("Ann", "function_result+And now?")
    assert repair_messages(repaired[:6]) == repaired[:6]
