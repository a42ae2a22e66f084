"""Which records have traces of an erased message."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from palaver.history import ERASED
from palaver.messages import Message, parse_message, user
from palaver.stores.erase import Traces

if TYPE_CHECKING:
    from palaver.stores import Store

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


def test_another_message_with_the_same_id_stays(store: Store) -> None:
    history = store.create([user("one", id="x"), user("two", id="x")])
    fork = history.fork()
    fork.append(user("three", id="x"))
    history.replace(0, user("one, better", id="x"))
    assert 2 == history.erase(0).places
    assert ["", "two"] == [message.text for message in history]
    assert ["", "two", "three"] == [message.text for message in store.get(fork.id)]


def test_a_list_of_operations_is_one_change(store: Store) -> None:
    history = store.create([user(text) for text in "abc"])
    cut = {"operation": "TRUNCATE", "removeFirst": 1}
    history.execute([cut, cut])
    again = store.get(history.id)
    assert (1, 2, ["c"]) == (again.version, again.batch_index, [m.text for m in again])
    again.rollback(1)
    assert ["b", "c"] == [message.text for message in store.get(history.id)]
