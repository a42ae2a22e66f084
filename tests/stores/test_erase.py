"""Which records have traces of an erased message."""

from __future__ import annotations

import json

import pytest

from palaver.history import ERASED
from palaver.messages import Message, parse_message, user
from palaver.stores.erase import Traces

SAID = "The code of the door is\n    4711, as ever."


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        (True, SAID.encode()),
        (True, b"prompt: The code of the door is 4711"),
        (True, json.dumps({"a": [{"b": SAID}]}).encode()),
        (True, json.dumps(json.dumps(SAID)).encode()),  # as text within text
        (True, b'{"of": "m-1"}'),
        (True, b"see m-1."),
        (True, b"\xff m-1 \xff"),
        (False, b"see m-12, m-1-2 and xm-1"),
        (False, b"4711, as ever"),
        (False, b"The code of the window"),
        (False, b""),
    ],
)
def test_its_words_and_its_id(expected: bool, value: bytes) -> None:  # noqa: FBT001 - what is expected
    assert expected is Traces([user(SAID, id="m-1")]).found_in("draft", "d", value)


def test_its_calls() -> None:
    call = {"type": "tool_use", "tool_use": {"id": "c9", "name": "look", "input": {"at": "x"}}}
    result = {"type": "tool_result", "tool_result": {"tool_use_id": "c8", "content": "some kettle"}}
    messages: list[Message] = [
        parse_message({"role": "assistant", "content": [call], "id": "a"}),
        parse_message({"role": "tool", "content": [result], "id": "t"}),
    ]
    messages.append(user("hm", id="u", metadata={"model": "some-large-model"}))
    traces = Traces(messages)
    assert not traces.found_in("ledger", "x", b'{"model": "some-large-model"}')
    assert traces.found_in("ledger", "c9", b"{}")
    assert traces.found_in("ledger", "x", b'["c8"]')
    assert traces.found_in("ledger", "x", b'{"output": "some kettle boils"}')
    assert not traces.found_in("ledger", "c7", b'{"tool": "look"}')


def test_what_is_short_or_gone_already_proves_nothing() -> None:
    assert not Traces([user("yes", id="m-1")]).found_in("draft", "d", b"yes")
    gone = Message("user", "", id="m-1", metadata={ERASED: 5})
    assert not Traces([gone]).found_in("draft", "d", b"palaver.erased")
    assert Traces([gone]).found_in("draft", "d", b'"m-1"')


def test_what_merges_need_stays() -> None:
    assert not Traces([user(SAID, id="m-1")]).found_in("names", "m-1", SAID.encode())
