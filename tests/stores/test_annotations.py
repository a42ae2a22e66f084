"""Notes and scores on messages: they stay with the message, and every version of them is there."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

import palaver
from palaver.errors import StoreDamaged, UnknownMessage, ValidationError
from palaver.stores.annotations import ANNOTATION, annotate, read_annotations, read_versions
from palaver.stores.transfer import copy_conversations, export_conversation, import_conversation
from palaver.wire.convert import export_as

if TYPE_CHECKING:
    from pathlib import Path

    from palaver.stores import Store, StoredHistory
    from palaver.stores.transfer import Form


def begin(store: Store) -> StoredHistory:
    return store.create([palaver.user("Capital?", id="q"), palaver.assistant("Paris.", id="a")])


def test_the_newest_counts_and_the_others_stay_readable(store: Store) -> None:
    name = begin(store).id
    annotate(store, name, 1, note="right", score=4, by="lee")
    annotate(store, name, "a", note="right, but curt", score=3)
    annotate(store, name, "q", score=1)
    found = read_annotations(store, name)
    assert ("right, but curt", 3, None) == (found["a"].note, found["a"].score, found["a"].by)
    assert 1 == found["q"].score
    assert ["right, but curt", "right"] == [one.note for one in read_versions(store, name, "a")]
    annotate(store, name, "q")
    assert {"a"} == read_annotations(store, name).keys()
    assert [None, 1] == [one.score for one in read_versions(store, name, "q")]


def test_they_survive_edits_forks_copies_and_files(store: Store, tmp_path: Path) -> None:
    history = begin(store)
    annotate(store, history.id, "a", note="right")
    better = {"role": "assistant", "content": "It is Paris.", "id": "a"}
    history.execute({"operation": "REPLACE", "index": 1, "message": better})
    history.execute({"operation": "TRUNCATE", "keepFirst": 1})
    assert "right" == read_annotations(store, history.id)["a"].note
    history.undo()
    fork = history.fork()
    annotate(store, fork.id, "q", score=5)
    assert {"a", "q"} == read_annotations(store, fork.id).keys()
    assert {"a"} == read_annotations(store, history.id).keys()
    with palaver.open(tmp_path / "other.db") as other:
        forms: tuple[Form, ...] = ("lines", "document")
        for form in forms:
            file = io.BytesIO()
            export_conversation(store, fork.id, file, form=form)
            file.seek(0)
            made = import_conversation(other, file, id=form)
            assert {"a", "q"} == read_annotations(other, made.id).keys()
        copy_conversations(store, other, [history.id])
        assert "right" == read_annotations(other, history.id)["a"].note


def test_they_are_erased_with_their_message(store: Store) -> None:
    history = begin(store)
    annotate(store, history.id, "a", note="Ann's secret")
    annotate(store, history.id, "q", note="stays")
    fork = history.fork()
    annotate(store, fork.id, "a", note="Ann's secret, again")
    history.erase("a")
    assert {"q"} == read_annotations(store, fork.id).keys()
    assert {"q"} == read_annotations(store, history.id).keys()
    assert [] == read_versions(store, history.id, "a")


def test_they_are_in_documents_for_people(store: Store) -> None:
    name = begin(store).id
    annotate(store, name, "a", note="# right\n<b>but curt</b>", score=4)
    annotate(store, name, "q", score=2)
    file = io.BytesIO()
    export_as(store, name, file, "markdown")
    text = file.getvalue().decode()
    assert "**Note (4 of 5)**\n\n> # right\n> <b>but curt</b>\n" in text
    assert "**Score (2 of 5)**\n" in text
    file = io.BytesIO()
    export_as(store, name, file, "html")
    assert b'<div class="note"># right\n&lt;b&gt;but curt&lt;/b&gt;</div>' in file.getvalue()


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"score": 6}, "$.score"),
        ({"score": 0}, "$.score"),
        ({"score": True}, "$.score"),
        ({"score": 2.5}, "$.score"),
        ({"note": "x" * 10_001}, "$.note"),
        ({"note": "\ud800"}, "$.note"),
        ({"by": ""}, "$.by"),
    ],
)
def test_wrong_ones_are_refused(wrong: dict[str, Any], path: str) -> None:
    store = palaver.open(":memory:")
    with pytest.raises(ValidationError) as refused:
        annotate(store, begin(store).id, 0, **wrong)
    assert path == refused.value.path


def test_a_message_that_is_not_there_and_a_damaged_record_are_named() -> None:
    store = palaver.open(":memory:")
    name = begin(store).id
    with pytest.raises(UnknownMessage):
        annotate(store, name, "nobody", note="x")
    store.put_record(name, ANNOTATION, "broken", b"{")
    with pytest.raises(StoreDamaged, match="annotation 'broken' is damaged"):
        read_annotations(store, name)
