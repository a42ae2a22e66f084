"""Versions over HTTP: every answer about a conversation is stamped, and a change may name a stamp.

The stamp is the version, as an ETag: `"17"`. A change that comes with `If-Match: "17"` is only made
if that is still the newest; the answer otherwise says what came in between.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from litestar import Response

from palaver.errors import ValidationError
from palaver.server.problems import Clashing, Refusal

if TYPE_CHECKING:
    from palaver.history import View
    from palaver.stores.history import StoredHistory

__all__ = ["check_version", "stamped"]

_T = TypeVar("_T")
_STAMP: Final = re.compile(r'"?(\d{1,18})"?')


def stamped(value: _T, version: int, *, status: int | None = None) -> Response[_T]:
    """An answer with the version it is about."""
    return Response(value, status_code=status, headers={"ETag": f'"{version}"'})


def check_version(history: StoredHistory | View, stamp: str | None) -> None:
    """Refuse a change that was meant for another version than the newest."""
    if stamp is None or stamp.strip() == "*":
        return
    found = _STAMP.fullmatch(stamp.strip())
    if found is None:
        detail = 'must be a version, such as "17"'
        raise ValidationError(detail, path="If-Match", rule="version")
    wanted, version = int(found[1]), history.version
    if wanted == version:
        return
    detail = f"the conversation is at version {version}, not {wanted}"
    clash = Clashing("the conversation", f"changed at version {wanted}", _since(history, wanted))
    more: dict[str, Any] = {"version": version, "clashes": [clash]}
    raise Refusal(409, detail, **more)


def _since(history: StoredHistory | View, version: int) -> str:
    """What came after a version, in words."""
    newest = history.version
    if version > newest:
        return f"is only at version {newest}"
    return f"went from version {version} to {newest} meanwhile"
