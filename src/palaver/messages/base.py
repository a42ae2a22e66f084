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
from palaver.messages.gate import MAX_NAME, check_name, freeze_mapping
from palaver.messages.ids import is_uuid
from palaver.messages.naming import json_name

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PartBase", "check_ids"]

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
        """Check BR-01 and BR-04."""
        check_ids(self)

    def _explain_ids(self) -> NoReturn:
        names = (("id", self.id), ("sessionID", self.session_id), ("messageID", self.message_id))
        for name, value in names:
            self._checked(lambda v, p: check_name(v, p, "BR-01"), value, f"$.{name}")
        for name, value in names[1:]:
            if not is_uuid(value):
                self._refuse(f"must be a UUID, not {value[:80]!r}", f"$.{name}", "BR-04")
        raise AssertionError  # pragma: no cover - called only when one of them is wrong

    def _refuse(self, detail: str, path: str, rule: str) -> NoReturn:
        error = PartValidationError(detail, path=path, rule=rule, part=self.type)
        _log.error("%s", error)
        raise error

    def _checked(self, check: Callable[[Any, str], None], value: object, path: str) -> None:
        try:
            check(value, path)
        except ValidationError as error:
            self._refuse(error.detail, error.path, error.rule)

    def _freeze(self, name: str, value: object) -> None:
        try:
            frozen = freeze_mapping(value, f"$.{name}")
        except ValidationError as error:
            self._refuse(error.detail, error.path, error.rule)
        if frozen is not value:
            force_setattr(self, name, frozen)


def check_ids(part: PartBase) -> None:
    """Check BR-01 and BR-04: in the common case a look-up for each id."""
    part_id = part.id
    try:
        if (
            0 < len(part_id) <= MAX_NAME
            and part_id.isprintable()
            and is_uuid(part.session_id)
            and is_uuid(part.message_id)
        ):
            return
    except (TypeError, AttributeError):
        pass
    part._explain_ids()  # noqa: SLF001 - its own module
