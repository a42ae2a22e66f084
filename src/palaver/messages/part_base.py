"""The base of all parts: an id, and the ids of the session and the message it belongs to.

A part checks itself when it is made, by its constructor or from JSON, so every part that exists is
valid. The file part is here too, because the state of a tool call can hold files. A file's url is
stored and passed on; palaver never fetches it.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from palaver.messages.limits import check_all, check_fields, short_repr

__all__ = [
    "FilePart",
    "FilePartSource",
    "FileSource",
    "LineRange",
    "PartBase",
    "Position",
    "ResourceSource",
    "SourceText",
    "SymbolSource",
    "json_name",
]


def json_name(name: str) -> str:
    """Return the JSON name of a field: camelCase, with ID in capitals.

    >>> json_name("session_id"), json_name("cost_computed"), json_name("id")
    ('sessionID', 'costComputed', 'id')
    """
    first, *rest = name.split("_")
    return first + "".join("ID" if word == "id" else word.capitalize() for word in rest)


class PartBase(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True,
               rename=json_name, forbid_unknown_fields=True):  # fmt: skip
    """The fields that all parts share."""

    id: str
    session_id: str
    message_id: str

    __repr__ = short_repr

    @property
    def type(self) -> str:
        """The part's type, as in its JSON."""
        return str(self.__struct_config__.tag)

    def __post_init__(self) -> None:
        """Check the ids and every other field."""
        check_all(self)


class SourceText(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """The text that stands for the file in a prompt, with its start and end there."""

    value: str
    start: int
    end: int

    def __post_init__(self) -> None:
        """Check the fields."""
        check_fields(self)


class Position(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A line and a character in a text file, counted from 0."""

    line: int
    character: int

    def __post_init__(self) -> None:
        """Check the fields."""
        check_fields(self)


class LineRange(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A range in a text file, from one position to another."""

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
    """A resource of an MCP server, by its uri."""

    client_name: str
    uri: str
    text: SourceText

    def __post_init__(self) -> None:
        """Check the fields."""
        check_fields(self)


FilePartSource: TypeAlias = FileSource | SymbolSource | ResourceSource


class FilePart(PartBase, frozen=True, kw_only=True, tag="file"):
    """A file: its media type, its url (a reference or `data:`), and perhaps a name and a source."""

    mime: str
    url: str
    filename: str | None = None
    source: FilePartSource | None = None
