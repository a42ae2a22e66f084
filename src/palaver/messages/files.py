"""Files in a message: what they are, and where in a project or a resource they came from.

A url is kept and handed on; palaver never fetches it.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from palaver.messages.base import PartBase
from palaver.messages.fields import check_fields
from palaver.messages.naming import json_name

__all__ = [
    "FilePart",
    "FilePartSource",
    "FileSource",
    "LineRange",
    "Position",
    "ResourceSource",
    "SourceText",
    "SymbolSource",
]


class SourceText(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """The text that stood for the file in a prompt, and where."""

    value: str
    start: int
    end: int

    def __post_init__(self) -> None:
        """Check the fields."""
        check_fields(self)


class Position(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A place in a text file, counted from 0."""

    line: int
    character: int

    def __post_init__(self) -> None:
        """Check the fields."""
        check_fields(self)


class LineRange(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """From one place to another."""

    start: Position
    end: Position

    def __post_init__(self) -> None:
        """Check the fields."""
        check_fields(self)


class FileSource(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag="file"):
    """A file of the project."""

    path: str
    text: SourceText

    def __post_init__(self) -> None:
        """Check the fields."""
        check_fields(self)


class SymbolSource(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag="symbol"):
    """A function, class or other symbol in a file."""

    path: str
    range: LineRange
    name: str
    kind: int
    text: SourceText

    def __post_init__(self) -> None:
        """Check the fields."""
        check_fields(self)


class ResourceSource(
    Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag="resource", rename=json_name
):
    """A resource of a server, by its own uri."""

    client_name: str
    uri: str
    text: SourceText

    def __post_init__(self) -> None:
        """Check the fields."""
        check_fields(self)


FilePartSource: TypeAlias = FileSource | SymbolSource | ResourceSource


class FilePart(PartBase, frozen=True, kw_only=True, tag="file"):
    """A file: its type, its url (a reference or `data:`), perhaps its name and its source."""

    mime: str
    url: str
    filename: str | None = None
    source: FilePartSource | None = None
