"""Versions over HTTP: every answer about a conversation is stamped, and a change may name a stamp.

The stamp is the version, as an ETag: `"17"`. A change that comes with `If-Match: "17"` is only made
if that is still the newest version; the check is part of the commit. The answer is 412 otherwise.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeVar

from litestar import Response

from palaver.errors import ValidationError
from palaver.stores.preconditions import check_expected

if TYPE_CHECKING:
    from palaver.stores import Store

__all__ = ["check_stamp", "expected", "stamped"]

_T = TypeVar("_T")
_TAG: Final = re.compile(
    r'[ \t]*(?:(?P<weak>W/)?"(?P<quoted>[!#-~\x80-\xff]*)"|(?P<bare>[0-9]+))?[ \t]*(?:,|$)'
)
"""One member of a list of entity tags (RFC 9110, 8.8.3), which may be empty."""
_VERSION: Final = re.compile(r"0|[1-9][0-9]{0,17}")


def stamped(value: _T, version: int, *, status: int | None = None) -> Response[_T]:
    """An answer with the version it is about."""
    return Response(value, status_code=status, headers={"ETag": f'"{version}"'})


def expected(stamp: str | None) -> frozenset[int] | None:
    """The versions that an `If-Match` names, as the `expect` of a change; None: any will do.

    Weak tags and tags that are no version match nothing. A version without quotes is taken too.

    >>> expected('"17"'), expected('W/"17", "ab"'), expected("*"), expected(None)
    (frozenset({17}), frozenset(), None, None)
    >>> expected("latest")
    Traceback (most recent call last):
    palaver.errors.ValidationError: If-Match: must be * or a list of entity tags, such as "17" ...
    """
    if stamp is None or stamp.strip(" \t") == "*":
        return None
    versions: set[int] = set()
    place = tags = 0
    while place < len(stamp):
        found = _TAG.match(stamp, place)
        if found is None:
            raise _malformed()
        place = found.end()
        tag = found["quoted"] if found["bare"] is None else found["bare"]
        tags += tag is not None
        if tag is not None and not found["weak"] and _VERSION.fullmatch(tag):
            versions.add(int(tag))
    if not tags:
        raise _malformed()
    return frozenset(versions)


def _malformed() -> ValidationError:
    detail = 'must be * or a list of entity tags, such as "17"'
    return ValidationError(detail, path="If-Match", rule="version")


def check_stamp(store: Store, conversation: str, stamp: str | None) -> None:
    """Refuse what makes no version of its own, where an `If-Match` does not name the newest."""
    expect = expected(stamp)
    if expect is not None:
        check_expected(expect, store.keeper.head(conversation).version)
