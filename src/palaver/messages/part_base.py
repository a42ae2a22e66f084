"""The base of all parts: an id, and the ids of the session and the message it belongs to.

A part checks itself when it is made, by its constructor or from JSON, so every part that exists is
valid. Errors are logged before they are raised. The file part is here too, because the state of a
tool call can hold files. A file's url is stored and passed on; palaver never fetches it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

from palaver.errors import PartValidationError, ValidationError
from palaver.messages.ids import is_uuid, require_uuid
from palaver.messages.limits import MAX_NAME, check_fields, check_name, freeze_mapping

if TYPE_CHECKING:
    from collections.abc import Callable

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
    "check_all",
    "check_ids",
    "check_value",
    "freeze_field",
    "json_name",
    "refuse",
]


_log = logging.getLogger("palaver.messages")


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

    @property
    def type(self) -> str:
        """The part's type, as in its JSON."""
        return str(self.__struct_config__.tag)

    def __post_init__(self) -> None:
        """Check the ids and every other field."""
        check_all(self)


def refuse(owner: Struct, detail: str, path: str, rule: str) -> NoReturn:
    """Log and raise a `PartValidationError` for a part, or for the state of a tool part."""
    part = owner.type if isinstance(owner, PartBase) else "tool"
    error = PartValidationError(detail, path=path, rule=rule, part=part)
    _log.error("%s", error)
    raise error


def check_value(
    owner: Struct,
    check: Callable[[Any, str], None],
    value: object,
    path: str,
    rule: str | None = None,
) -> None:
    """Check one value of a part or a state; an error of the rule `schema` gets the given rule."""
    try:
        check(value, path)
    except ValidationError as error:
        chosen = rule if rule and error.rule == "schema" else error.rule
        refuse(owner, error.detail, error.path, chosen)


def check_all(part: PartBase) -> None:
    """Check the ids, and every other field by its annotation."""
    check_ids(part)
    try:
        check_fields(part)
    except ValidationError as error:
        refuse(part, error.detail, error.path, error.rule)


def freeze_field(owner: Struct, name: str, value: object) -> None:
    """Replace an object of a part or a state by a frozen copy."""
    try:
        frozen = freeze_mapping(value, f"$.{name}")
    except ValidationError as error:
        refuse(owner, error.detail, error.path, error.rule)
    if frozen is not value:
        force_setattr(owner, name, frozen)


def check_ids(part: PartBase) -> None:
    """Check that a part has an id and the UUIDs of its session and its message."""
    part_id = part.id
    try:
        require_uuid(part.session_id)
        require_uuid(part.message_id)
        if 0 < len(part_id) <= MAX_NAME and part_id.isprintable():
            return
    except (AttributeError, TypeError, ValueError):
        pass
    _explain_ids(part)


def _explain_ids(part: PartBase) -> NoReturn:
    names = (("id", part.id), ("sessionID", part.session_id), ("messageID", part.message_id))
    for name, value in names:
        check_value(part, lambda item, path: check_name(item, path, "part-id"), value, f"$.{name}")
    name, value = names[2] if is_uuid(part.session_id) else names[1]
    refuse(part, f"must be a UUID, not {value[:80]!r}", f"$.{name}", "not-a-uuid")


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
