"""There and back again: what goes through JSON, turns or both comes out the same."""

from __future__ import annotations

import json
import pickle
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from palaver.messages import (
    Message,
    ToolPart,
    dump,
    fold,
    parse_message,
    parse_messages,
    parse_part,
    to_dict,
    unfold,
    validate,
)
from palaver.messages.codec import to_content
from palaver.messages.foreign import Export, parse_export, parse_turn, write_export, write_turn
from tests.messages.strategies import (
    OUR_JSON,
    Talk,
    ids,
    messages,
    opencode_exports,
    parts,
    plain_items,
    states,
    talks,
)
from tests.profiles import at_least


def same(expected: object, actual: object) -> bool:
    """Equal as JSON: 1, 1.0 and true are three things there."""
    return json.dumps(expected, sort_keys=True) == json.dumps(actual, sort_keys=True)


@at_least(400)
@given(st.sampled_from(sorted(OUR_JSON)).flatmap(lambda kind: OUR_JSON[kind]))
def test_the_json_of_a_part_comes_back(value: dict[str, Any]) -> None:
    assert same(value, to_dict(parse_part(value)))
    assert same(value, json.loads(dump(parse_part(json.dumps(value)))))


@at_least(400)
@given(parts)
def test_a_part_comes_back_from_its_json(part: Any) -> None:  # noqa: ANN401 - any part
    assert part == parse_part(dump(part))
    assert part == parse_part(to_dict(part))
    assert part == pickle.loads(pickle.dumps(part))  # noqa: S301 - our own


@at_least(200)
@given(states)
def test_a_state_comes_back_from_its_json(state: Any) -> None:  # noqa: ANN401 - any state
    assert state == msgspec.json.decode(dump(state), type=type(state))
    assert state == pickle.loads(pickle.dumps(state))  # noqa: S301 - our own


@at_least(300)
@given(messages())
def test_a_message_comes_back_from_its_json(message: Message) -> None:
    written = dump(message)
    assert message == parse_message(written)
    assert message == parse_message(to_dict(message))
    assert written == dump(parse_message(written))
    assert message == pickle.loads(pickle.dumps(message))  # noqa: S301 - our own
    assert validate(to_dict(message)).valid


@at_least(100)
@given(st.lists(messages(), max_size=4))
def test_messages_come_back_from_their_json(log: list[Message]) -> None:
    assert log == parse_messages(dump(log))
    assert log == parse_messages(to_dict(log))


@at_least(300)
@given(st.sampled_from(["user", "assistant", "tool"]), st.lists(plain_items, max_size=4))
def test_a_plain_content_list_comes_back(role: str, items: list[dict[str, Any]]) -> None:
    message = parse_message({"role": role, "content": items})
    assert (items, ()) == to_content(message)
    assert message == parse_message(dump(message))


@at_least(400)
@given(talks(), st.none() | ids)
def test_messages_and_ledger_come_back_from_turns(talk: Talk, session: str | None) -> None:
    """Straight away, from the turns' own JSON, and from an export."""
    turns = fold(talk.messages, talk.ledger, session_id=session)
    own = tuple(parse_turn(dump(turn)) for turn in turns)
    export = parse_export(json.dumps(write_export(Export(turns)))).turns
    assert turns == own == export
    back = unfold(export)
    assert talk.messages == list(back.messages)
    assert talk.ledger == back.ledger


@at_least(300)
@given(opencode_exports)
def test_an_opencode_export_comes_back(theirs: Any) -> None:  # noqa: ANN401 - JSON
    export = parse_export(json.dumps(theirs))
    assert same(theirs, write_export(export))
    unfolded = unfold(export.turns)
    log = parse_messages(dump(unfolded.messages))
    ledger: dict[str, ToolPart] = {}
    for name, part in unfolded.ledger.items():
        read = parse_part(dump(part))
        assert isinstance(read, ToolPart)
        ledger[name] = read
    again = fold(log, ledger)
    assert same(theirs, write_export(Export(again, export.envelope)))
    assert list(export.turns) == list(again)


@at_least(100)
@given(opencode_exports)
def test_a_turn_read_in_our_form_is_the_same_turn(theirs: Any) -> None:  # noqa: ANN401 - JSON
    for turn in parse_export(theirs).turns:
        assert turn == parse_turn(dump(turn))
        assert turn == parse_turn(write_turn(turn))
        assert validate(write_turn(turn)).valid
