"""Files in a message: what they are, and where in a project or a resource they came from.

A url is kept and handed on; palaver never fetches it.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from palaver.messages.base import PartBase
from palaver.messages.gate import check_text
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


class SourceText(Struct, frozen=True, gc=False):
    """The text that stood for the file in a prompt, and where."""

    value: str
    start: int
    end: int


class Position(Struct, frozen=True, gc=False):
    """A place in a text file, counted from 0."""

    line: int
    character: int


class LineRange(Struct, frozen=True, gc=False):
    """From one place to another."""

    start: Position
    end: Position


class FileSource(Struct, frozen=True, gc=False, tag="file"):
    """A file of the project."""

    path: str
    text: SourceText


class SymbolSource(Struct, frozen=True, gc=False, tag="symbol"):
    """A function, class or other symbol in a file."""

    path: str
    range: LineRange
    name: str
    kind: int
    text: SourceText


class ResourceSource(Struct, frozen=True, gc=False, tag="resource", rename=json_name):
    """A resource of a server, by its own uri."""

    client_name: str
    uri: str
    text: SourceText


FilePartSource: TypeAlias = FileSource | SymbolSource | ResourceSource


class FilePart(PartBase, frozen=True, kw_only=True, tag="file"):
    """A file: its type, its url (a reference or `data:`), perhaps its name and its source."""

    mime: str
    url: str
    filename: str | None = None
    source: FilePartSource | None = None

    def __post_init__(self) -> None:
        """Check the base and the texts."""
        super().__post_init__()
        self._checked(check_text, self.mime, "$.mime")
        self._checked(check_text, self.url, "$.url")
        if self.filename is not None:
            self._checked(check_text, self.filename, "$.filename")
        if self.source is not None:
            self._checked(check_text, self.source.text.value, "$.source.text.value")
