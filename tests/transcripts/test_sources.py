from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from palaver.messages.parts import CacheCounts, TokenCounts
from palaver.transcripts import sources
from palaver.transcripts.sources import (
    get_count,
    get_list,
    get_object,
    load_record,
    parse_input,
    parse_time,
    read_records,
    token_counts,
)
from palaver.wire.notes import Note, NoteCollector

if TYPE_CHECKING:
    from pathlib import Path


def values(data: bytes, notes: NoteCollector | None = None) -> list[object]:
    return [
        record.value for record in read_records(data, NoteCollector() if notes is None else notes)
    ]


def test_blank_lines_and_a_byte_order_mark_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"b": 2}')
    found = list(read_records(path, NoteCollector()))
    assert [("line 1", {"a": 1}), ("line 3", {"b": 2})] == [(r.where, r.value) for r in found]


def test_a_line_that_is_too_long_is_noted_and_the_next_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "MAX_LINE", 20)
    notes = NoteCollector()
    long = b'{"a": "' + b"x" * 100 + b'"}'
    assert [{"b": 2}] == values(long + b'\n{"b": 2}\n' + long, notes)
    where = [(note.where, note.rule) for note in notes.all()]
    assert [("line 1", "transcript.size"), ("line 3", "transcript.size")] == where


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"a": "x\\u0000"}', {"a": "x\ufffd"}),
        (b'{"a": "\\ud800"}', {"a": "\ufffd"}),
        (b'{"a": 9999999999999999}', {"a": "9999999999999999"}),
        (b'{"a": NaN}', {"a": None}),
        (b'{"a": "\xff"}', {"a": "\ufffd"}),
        (b'{"a": 1e999}', {"a": None}),
    ],
)
def test_what_the_gate_refuses_is_replaced_and_noted(text: bytes, expected: object) -> None:
    notes = NoteCollector()
    assert expected == load_record(text, "here", notes)
    (note,) = notes.all()
    assert ("repaired", "here", "transcript.text") == (note.action, note.where, note.rule)


@pytest.mark.parametrize("text", [b"{", b"[1]", b"7", b'{"a": ' + b"[" * 500 + b"]" * 500 + b"}"])
def test_what_is_no_record_is_lost_and_noted(text: bytes) -> None:
    notes = NoteCollector()
    assert load_record(text, "here", notes) is None
    assert ["transcript.damaged"] == [note.rule for note in notes.all()]


def test_a_flood_of_notes_becomes_a_number() -> None:
    notes = NoteCollector()
    assert [] == values(b"x\n" * 1_000, notes)
    told = notes.all()
    assert 101 == len(told)
    assert Note("lost", "further on", "transcript.damaged", "900 more of these") == told[-1]


def test_repairs_are_counted_apart_from_losses() -> None:
    notes = NoteCollector()
    for _ in range(150):
        notes.repaired("here", "r", "d")
    assert Note("repaired", "further on", "r", "50 more of these") == notes.all()[-1]


def test_too_many_kinds_of_records_are_one_kind() -> None:
    notes = NoteCollector()
    for number in range(500):
        notes.skipped(f"line {number}", f"kind {number}", "is odd")
    told = notes.all()
    assert 201 == len(told)
    assert ("line 200 and 299 more", "other records: of too many kinds to name") == (
        told[-1].where,
        told[-1].detail,
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-03-01T09:00:00.250Z", 1_772_355_600_250),
        ("2026-03-01T10:00:00+01:00", 1_772_355_600_000),
        ("2026-03-01T09:00:00", 1_772_355_600_000),
        (1_772_355_600, 1_772_355_600_000),
        (1_772_355_600_250, 1_772_355_600_250),
        (1.5, 1_500),
        (-5, None),
        (True, None),
        (None, None),
        ("0001-01-01T00:00:00+14:00", None),
        (1e300, None),
    ],
)
def test_times_in_many_forms(value: object, expected: int | None) -> None:
    assert expected == parse_time(value)


def test_fields_of_another_kind_are_not_there() -> None:
    value = {"a": "x", "b": 2**60}
    assert ({}, (), 0) == (get_object(value, "a"), get_list(value, "a"), get_count(value, "a", "b"))
    assert {} == parse_input("[1]")


def test_counts_are_disjoint_and_none_where_there_are_none() -> None:
    assert token_counts(0, 0) is None
    assert TokenCounts(0, 0, 9, CacheCounts(7, 0)) == token_counts(5, 3, read=7, reasoning=9)
