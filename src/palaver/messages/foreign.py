"""Differences between two JSON values, kept so that a value from elsewhere can be written back.

Reading a foreign value may change it: an id becomes a UUID, an empty output gets its placeholder.
`difference` notes what was changed and `restored` takes it back, place by place, and only where
nobody has changed the place since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from palaver.messages.gate import is_list, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["difference", "restored"]


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What must change in our form to get theirs; a missing `now` or `was` means absence.

    >>> difference({"id": "u1", "a": 1}, {"id": "ses_1", "a": 1, "b": 2})
    [{'path': ['id'], 'now': 'u1', 'was': 'ses_1'}, {'path': ['b'], 'was': 2}]
    """
    return list(_differences(ours, theirs, []))


def _differences(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], path: list[str]
) -> Iterator[dict[str, Any]]:
    for key in [*ours, *(key for key in theirs if key not in ours)]:
        here = [*path, key]
        if key not in theirs:
            yield {"path": here, "now": ours[key]}
        elif key not in ours:
            yield {"path": here, "was": theirs[key]}
        elif _is_dict(ours[key]) and _is_dict(theirs[key]):
            yield from _differences(ours[key], theirs[key], here)
        elif not _same(ours[key], theirs[key]):
            yield {"path": here, "now": ours[key], "was": theirs[key]}


def _same(one: object, other: object) -> bool:
    # 1, 1.0 and true are equal in Python and different in JSON
    return one == other and repr(one) == repr(other)


def restored(ours: dict[str, Any], changes: object) -> dict[str, Any]:
    """Our form with the noted changes taken back; what is no note is passed over.

    >>> restored({"id": "u1", "a": 9}, [{"path": ["id"], "now": "u1", "was": "ses_1"}])
    {'id': 'ses_1', 'a': 9}
    """
    for change in filter(_is_note, changes if is_list(changes) else ()):
        *parents, key = change["path"]
        place: Any = ours
        for parent in parents:
            place = place.get(parent) if _is_dict(place) else None
        if not _is_dict(place):
            continue
        if "now" in change and not (key in place and place[key] == change["now"]):
            continue
        if "now" not in change and key in place:
            continue
        if "was" in change:
            place[key] = change["was"]
        else:
            place.pop(key, None)
    return ours


def _is_note(change: object) -> TypeGuard[Mapping[str, Any]]:
    """Tell whether it is a change as `difference` notes it: what is read back may be anything."""
    path = change.get("path") if is_object(change) else None
    return is_list(path) and bool(path) and all(isinstance(step, str) for step in path)


def _is_dict(value: object) -> TypeGuard[dict[str, Any]]:
    """Tell whether it is a dict."""
    return isinstance(value, dict)
