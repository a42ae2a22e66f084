"""What came of a call that may refuse: the value, or the refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, TypeVar

from palaver.errors import PalaverError

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
_P = ParamSpec("_P")


def outcome(call: Callable[_P, _T], *args: _P.args, **keywords: _P.kwargs) -> _T | PalaverError:
    r"""The value, or the typed error; any other error goes through.

    >>> from palaver.messages import user
    >>> outcome(user, "a\0").rule
    'text.nul'
    """
    try:
        return call(*args, **keywords)
    except PalaverError as error:
        return error
