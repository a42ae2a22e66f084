"""The terms of a query: what may be asked, and the parts of the answer that need no view."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from palaver.errors import ValidationError
from palaver.messages import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.messages import Role

__all__ = ["check_terms", "wanted_roles", "window", "within"]


def wanted_roles(role: Role | None, roles: Iterable[Role] | None) -> tuple[Role, ...] | None:
    """The roles that are asked for; None for all of them."""
    if role is None and roles is None:
        return None
    wanted: list[Role] = [] if role is None else [role]
    if roles is not None:
        wanted += _listed(roles)
    for name in wanted:
        if name not in ROLES:
            detail = f"must be system, user, assistant or tool, not {name!r}"
            raise ValidationError(detail, path="$.role", rule="role")
    return tuple(dict.fromkeys(wanted))


def _listed(roles: Any) -> Iterable[Role]:  # noqa: ANN401 - it is for this to find out
    if isinstance(roles, str) or not isinstance(roles, Iterable):
        raise ValidationError("must be a list of roles", path="$.roles", rule="QR-01")
    return roles


def check_terms(texts: Mapping[str, object], times: Mapping[str, object]) -> None:
    """Refuse texts that are none, and times that are no milliseconds."""
    for name, value in texts.items():
        if value is not None and not isinstance(value, str):
            raise ValidationError("must be text", path=f"$.{name}", rule="QR-01")
    for name, value in times.items():
        if value is not None and type(value) is not int:
            detail = f"must be a whole number of milliseconds, not {value!r}"
            raise ValidationError(detail, path=f"$.{name}", rule="QR-01")


def window(total: int, bounds: tuple[int, int] | None, recent: int | None) -> tuple[int, int]:
    """Which of so many are asked for: those of a range, and of these the last few."""
    start, stop = 0, total
    if bounds is not None:
        start, stop = bounds
        for name, value in (("start", start), ("end", stop)):
            if type(value) is not int or value < 0:
                detail = f"must be a whole number from 0 on, not {value!r}"
                raise ValidationError(detail, path=f"$.range.{name}", rule="QR-01")
        if start > stop:
            detail = f"must not be beyond the end: {start} > {stop}"
            raise ValidationError(detail, path="$.range.start", rule="QR-01")
        start, stop = min(start, total), min(stop, total)
    if recent is not None:
        if type(recent) is not int or recent < 0:
            detail = f"must be a whole number from 0 on, not {recent!r}"
            raise ValidationError(detail, path="$.recent", rule="QR-01")
        start = max(start, stop - recent)
    return start, stop


def within(
    stretches: Iterable[tuple[int, int]], runs: list[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """What stretches have in common with sorted runs of positions, in the stretches' order."""
    ends = [end for _, end in runs]
    for start, stop in stretches:
        for place in range(bisect_right(ends, start), len(runs)):
            begin, end = runs[place]
            if begin >= stop:
                break
            yield max(begin, start), min(end, stop)
