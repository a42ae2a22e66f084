"""Preconditions: a change that is made only if the conversation is at an expected version.

Every changing method of a stored history and of a store takes `expect`: one version, or several of
which any will do. The check is part of the commit, so of many changes that expect the same version
one is made. The others are refused with `VersionMismatch` and never merged.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeAlias

from palaver.errors import ValidationError, VersionMismatch

__all__ = ["Expected", "check_expected", "expected_versions"]

Expected: TypeAlias = int | Collection[int]
"""The version that must be the newest, or the versions one of which must be."""


def expected_versions(expect: Expected) -> tuple[int, ...]:
    """The versions that a change may follow, in order.

    >>> expected_versions(17), expected_versions({18, 17})
    ((17,), (17, 18))
    """
    given: Any = (expect,) if isinstance(expect, int) else expect
    are_some = isinstance(given, Collection) and not isinstance(given, str | bytes)
    if not are_some or any(type(version) is not int for version in given):
        detail = f"must be a version (an integer) or a collection of them, not {expect!r:.100}"
        raise ValidationError(detail, path="$.expect", rule="version")
    return tuple(sorted(given))


def check_expected(expect: Expected | None, version: int) -> None:
    """Raise `VersionMismatch` unless a version is among those expected; None expects nothing.

    >>> check_expected({17, 18}, 18)
    >>> check_expected(17, 18)
    Traceback (most recent call last):
    palaver.errors.VersionMismatch: the conversation is at version 18, not 17
    """
    if expect is None:
        return
    versions = expected_versions(expect)
    if version not in versions:
        raise VersionMismatch(versions, version)
