"""What every part has: an id, and the session and the message it belongs to (BR-01, BR-04).

A part checks itself when it is made, by a constructor or from JSON, so a part that exists is a
part that is right. Refusals are logged before they are raised.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct
from msgspec.structs import force_setattr

from palaver.errors import PartValidationError, ValidationError
from palaver.messages.fields import check_fields
from palaver.messages.gate import MAX_NAME, check_name, freeze_mapping
from palaver.messages.ids import demand_uuid, is_uuid
from palaver.messages.naming import json_name

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PartBase", "check_all", "check_ids", "checked", "freeze_field", "refuse"]

_log = logging.getLogger("palaver.messages")


class PartBase(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True,
               rename=json_name, forbid_unknown_fields=True):  # fmt: skip
    """The fields that all parts share."""

    id: str
    session_id: str
    message_id: str

    @property
    def type(self) -> str:
        """The part's type, as in its JSON (BR-03)."""
        return str(self.__struct_config__.tag)

    def __post_init__(self) -> None:
        """Check BR-01, BR-04 and the fields."""
        check_all(self)


def refuse(part: PartBase, detail: str, path: str, rule: str) -> NoReturn:
    """Log and raise what is wrong with a part."""
    error = PartValidationError(detail, path=path, rule=rule, part=part.type)
    _log.error("%s", error)
    raise error


def checked(part: PartBase, check: Callable[[Any, str], None], value: object, path: str) -> None:
    """Check a value that a part holds; what is wrong with it is wrong with the part."""
    try:
        check(value, path)
    except ValidationError as error:
        refuse(part, error.detail, error.path, error.rule)


def check_all(part: PartBase) -> None:
    """Check the ids, and every other field by its annotation."""
    check_ids(part)
    try:
        check_fields(part)
    except ValidationError as error:
        refuse(part, error.detail, error.path, error.rule)


def freeze_field(part: PartBase, name: str, value: object) -> None:
    """Put a frozen copy of an object in its place."""
    try:
        frozen = freeze_mapping(value, f"$.{name}")
    except ValidationError as error:
        refuse(part, error.detail, error.path, error.rule)
    if frozen is not value:
        force_setattr(part, name, frozen)


def check_ids(part: PartBase) -> None:
    """Check BR-01 and BR-04: in the common case a look-up for each id."""
    part_id = part.id
    try:
        demand_uuid(part.session_id)
        demand_uuid(part.message_id)
        if 0 < len(part_id) <= MAX_NAME and part_id.isprintable():
            return
    except (AttributeError, TypeError, ValueError):
        pass
    _explain_ids(part)


def _explain_ids(part: PartBase) -> NoReturn:
    names = (("id", part.id), ("sessionID", part.session_id), ("messageID", part.message_id))
    for name, value in names:
        checked(part, lambda item, path: check_name(item, path, "BR-01"), value, f"$.{name}")
    name, value = names[2] if is_uuid(part.session_id) else names[1]
    refuse(part, f"must be a UUID, not {value[:80]!r}", f"$.{name}", "BR-04")
