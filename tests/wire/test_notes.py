"""A note says where, what and why, to a person and to a program."""

from __future__ import annotations

import msgspec

from palaver import wire
from palaver.messages import user
from palaver.wire import Note, ParsedConversation, Target
from tests.wire.pieces import call, calling, result


def test_a_note_is_one_line_for_a_person_and_json_for_a_program() -> None:
    note = Note("lost", "messages[2]", "media", "a file can't be sent", "m1")

    assert "messages[2]: a file can't be sent (media)" == str(note)
    assert {
        "action": "lost",
        "where": "messages[2]",
        "rule": "media",
        "detail": "a file can't be sent",
        "messageId": "m1",
    } == msgspec.to_builtins(note)
    assert "messageId" not in msgspec.to_builtins(Note("repaired", "end", "last-role", "x"))


def test_a_parsed_conversation_is_what_was_read_and_nothing_lost_unless_said() -> None:
    parsed = ParsedConversation((user("x"),))

    assert ((), {}) == (parsed.notes, dict(parsed.about))


def test_repairs_and_losses_are_told_apart_and_name_their_message() -> None:
    talk = [user("x"), calling(call("c1", "weather.get"))]
    request = wire.to("openai-chat", [*talk, result("c9")], Target())

    assert request.notes == (*request.repairs, *request.losses)
    assert ["call-without-result", "tool-name", "result-without-call"] == [
        note.rule for note in request.repairs
    ]
    assert {talk[1].id} == {note.message_id for note in request.repairs[:2]}
    assert ["messages[1]", "messages[1]", "messages[2]"] == [n.where for n in request.repairs]
