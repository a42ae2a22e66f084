"""Annotations: notes and scores that people put on messages, beside the log.

An annotation belongs to a message by its id, so it stays when the message is edited, moved or taken
out of the view. Every change is a record of its own that is never written again: the newest counts,
the others are its earlier versions, and two writers never lose what the other wrote. Records go
along with an export, an import and a copy, and are erased with the message. A fork shows those of
the conversation that it was forked from, and adds its own. No model is shown any of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from palaver.errors import StoreDamaged, ValidationError
from palaver.messages.ids import new_id, now_ms
from palaver.messages.limits import check_name, check_text, quote_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.stores.backend import Backend
    from palaver.stores.store import Store

__all__ = [
    "ANNOTATION",
    "HIGHEST_SCORE",
    "LONGEST_NOTE",
    "Annotation",
    "annotate",
    "annotation_records",
    "read_annotations",
    "read_versions",
]

ANNOTATION: Final = "annotation"
"""The kind of record."""
HIGHEST_SCORE: Final = 5
LONGEST_NOTE: Final = 10_000


class Annotation(Struct, frozen=True, omit_defaults=True):
    """A note and a score on a message, since when, and by whom if it was said.

    One without a note and without a score says that there are none any more.
    """

    message: str
    note: str = ""
    score: int | None = None
    at: int = 0
    by: str | None = None

    @property
    def empty(self) -> bool:
        """Whether it has neither a note nor a score."""
        return not self.note and self.score is None


def annotate(
    store: Store,
    conversation: str,
    message: int | str,
    *,
    note: str = "",
    score: int | None = None,
    by: str | None = None,
) -> Annotation:
    """Put a note and a score from 1 to 5 on a message, in place of those that it has.

    The message is given by its index, its id or its handle; `UnknownMessage` if there is none.

    >>> import palaver
    >>> store = palaver.open(":memory:")
    >>> history = store.create([palaver.assistant("Paris.")])
    >>> annotate(store, history.id, 0, note="right, but curt", score=4).score
    4
    """
    given: object = score  # whatever the caller passed
    if given is not None and (type(given) is not int or not 1 <= given <= HIGHEST_SCORE):
        detail = f"must be a whole number from 1 to {HIGHEST_SCORE}, not {quote_value(given)}"
        raise ValidationError(detail, path="$.score")
    check_text(note, "$.note")
    if len(note) > LONGEST_NOTE:
        detail = f"must have at most {LONGEST_NOTE:,} characters, not {len(note):,}"
        raise ValidationError(detail, path="$.note")
    if by is not None:
        check_name(by, "$.by")
    view = store.get(conversation).view
    made = Annotation(view.log[view.find(message)].id, note, score, now_ms(), by)
    store.put_record(conversation, ANNOTATION, new_id(), msgspec.json.encode(made))
    return made


def read_annotations(store: Store, conversation: str) -> dict[str, Annotation]:
    """Return the notes and scores that messages have now, by the messages' ids.

    >>> import palaver
    >>> store = palaver.open(":memory:")
    >>> name = store.create([palaver.user("Tea?", id="m1"), palaver.user("Milk?")]).id
    >>> _ = annotate(store, name, 0, score=2), annotate(store, name, "m1", note="unclear")
    >>> read_annotations(store, name)["m1"].note
    'unclear'
    """
    newest = {each.message: each for each in _read_all(store, conversation)}
    return {name: each for name, each in newest.items() if not each.empty}


def read_versions(store: Store, conversation: str, message: str) -> list[Annotation]:
    """Return every version of what a message's annotation was, the newest first."""
    found = [each for each in _read_all(store, conversation) if each.message == message]
    return found[::-1]


def annotation_records(backend: Backend, conversation: str) -> list[tuple[str, bytes]]:
    """The records of a conversation and of those that it was forked from, the oldest first."""
    found: dict[str, bytes] = {}
    name: str | None = conversation
    while name is not None:
        found.update(backend.records(name, ANNOTATION))
        name = backend.head(name).parent
    return sorted(found.items())  # their names are in the order of their times


def _read_all(store: Store, conversation: str) -> Iterator[Annotation]:
    for name, value in annotation_records(store.backend, conversation):
        try:
            yield msgspec.json.decode(value, type=Annotation)
        except msgspec.MsgspecError as error:
            msg = f"{conversation}: the annotation {name!r} is damaged: {error}"
            raise StoreDamaged(msg) from error
