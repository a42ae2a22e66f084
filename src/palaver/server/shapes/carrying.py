"""Conversations as files, and what became of them on the way."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, field

from palaver.server.bodies import Shape
from palaver.wire import Note

__all__ = ["Conversion", "Converted", "Imported", "ImportedOne", "Proof", "document_of"]

Form = Literal["openai-chat", "openai-responses", "anthropic", "gemini", "palaver"]


class Proof(Shape, frozen=True):
    """Everything that is wrong, in words; `notes` says which messages a search does not find."""

    problems: list[str]
    notes: list[str]
    whole: bool


class ImportedOne(Shape, frozen=True):
    """A conversation that came in."""

    id: str
    title: str | None
    length: int


class Imported(Shape, frozen=True):
    """What came in, what was there already, and what could not be kept."""

    origin: str = field(name="from")
    conversations: list[ImportedOne]
    known: list[str]
    report: list[Note]


class Conversion(Shape, frozen=True):
    """A conversation to write in another format; text is taken for a transcript."""

    to: Form
    document: Annotated[Raw, Meta(extra_json_schema={"type": ["object", "array", "string"]})]
    from_: Annotated[str, Meta(max_length=40)] | None = field(default=None, name="from")
    model: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    strict: bool = False


class Converted(Shape, frozen=True):
    """What was made of it, and everything that was repaired or lost."""

    origin: str = field(name="from")
    document: Any
    notes: list[Note]


def document_of(given: Raw) -> bytes:
    """The bytes of a document: JSON as it stands, or the text that a string holds.

    >>> document_of(Raw(b'"one line"'))
    b'one line'
    """
    data = bytes(given)
    return msgspec.json.decode(data, type=str).encode() if data.startswith(b'"') else data
