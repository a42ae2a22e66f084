"""Round trip: details of a format that messages have no field for come back when written again.

When a body is read, its messages are written again at once. Where an element differs from the
original, the difference is stored in the message's metadata, with a fingerprint of the element as
palaver writes it. Written later in the same format, an element that still has that fingerprint gets
its difference back and equals the original byte for byte. An edited element has another
fingerprint: its details are dropped, with a note. Metadata may come from anywhere, so a difference
that does not fit is never applied.
"""

from __future__ import annotations

import hashlib
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

import msgspec

from palaver.messages.limits import is_list, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from palaver.messages.message import Message
    from palaver.wire.format import Format

__all__ = [
    "KEY",
    "apply_changes",
    "details_of",
    "diff",
    "fingerprint",
    "foreign_details",
    "has_details",
    "is_acceptable",
    "restore",
    "stands_apart",
    "unknown_fields",
    "with_details",
]

_HASH: Final = hashlib.blake2b(digest_size=12)
KEY: Final = "wire"
"""The key in a message's metadata under which details are stored."""
_APART: Final = "apart"
_ITEMS: Final = "items"
_ROLES: Final = frozenset[tuple[str | None, str | None]](
    (("system", "developer"), ("user", "system"), ("user", None))
)
"""A role that palaver writes, and another that may have been there originally."""


def fingerprint(element: object) -> str:
    """Return a hash that tells an element from every other."""
    hashed = _HASH.copy()
    hashed.update(msgspec.json.encode(element))
    return hashed.hexdigest()


def diff(ours: Any, theirs: Any) -> list[list[Any]]:  # noqa: ANN401 - JSON on both sides
    """Return the changes that make ours equal theirs: a path and a value, or a path to remove.

    >>> diff({"a": [1, {"b": 2}], "c": 0}, {"a": [1, {"b": 3}], "d": 4})
    [[['a', 1, 'b'], 3], [['c']], [['d'], 4]]
    """
    return list(_diff(ours, theirs, []))


def _diff(ours: Any, theirs: Any, path: list[str | int]) -> Iterator[list[Any]]:  # noqa: ANN401
    if isinstance(ours, dict) and isinstance(theirs, dict) and _same_type(ours, theirs):
        for key in ours:
            if key not in theirs:
                yield [[*path, key]]
            else:
                yield from _diff(ours[key], theirs[key], [*path, key])
        for key in theirs:
            if key not in ours:
                yield [[*path, key], theirs[key]]
    elif is_list(ours) and is_list(theirs) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from _diff(one, other, [*path, index])
    elif ours != theirs or type(ours) is not type(theirs):
        yield [path, theirs]


def _same_type(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Tell whether two objects have one `type`: others are not compared field by field."""
    return "type" not in ours or "type" not in theirs or ours["type"] == theirs["type"]


def apply_changes(element: Any, changes: object) -> Any:  # noqa: ANN401 - JSON
    """Return the element with these changes, or None where they do not fit.

    >>> apply_changes({"a": [1, 2]}, [[["a", 0], 5], [["b"], 6]])
    {'a': [5, 2], 'b': 6}
    >>> apply_changes({"a": 1}, [[["b", "c"], 5]]) is None
    True
    """
    result = {"": msgspec.to_builtins(element)}
    for change in changes if is_list(changes) else ():
        if not _is_change(change):
            return None
        path: list[Any] = ["", *change[0]]
        parent: Any = result
        try:
            for step in path[:-1]:
                parent = parent[step]
            if len(change) == 1:
                del parent[path[-1]]
            else:
                parent[path[-1]] = msgspec.to_builtins(change[1])
        except (KeyError, IndexError, TypeError):
            return None
    return result.get("")


def _is_change(change: object) -> bool:
    """Tell whether a value is a path and a value, or a path alone."""
    return is_list(change) and len(change) in (1, 2) and is_list(change[0])


def unknown_fields(path: Sequence[Any], form: Format) -> list[str]:
    """Return the fields in a path that a provider does not know, outside of opaque fields."""
    steps = takewhile(lambda step: not (isinstance(step, str) and step in form.opaque), path)
    return [step for step in steps if isinstance(step, str) and step not in form.fields]


def details_of(message: Message, form: str) -> Mapping[str, Any]:
    """Return the details that a message has of a format: `items`, and whether it is `apart`."""
    if not message.metadata:
        return {}
    stored = message.metadata.get(KEY)
    found = stored.get(form) if is_object(stored) else None
    return found if is_object(found) else {}


def has_details(message: Message, form: str) -> bool:
    """Tell whether a message has details to give back."""
    return bool(details_of(message, form).get(_ITEMS))


def stands_apart(message: Message, form: str) -> bool:
    """Tell whether a message had an element of its own beside a neighbour of its role."""
    return details_of(message, form).get(_APART) is True


def foreign_details(message: Message, form: str) -> Iterator[tuple[str, str]]:
    """Yield the details of other formats in a message: the format, and the fields by name."""
    stored = message.metadata.get(KEY)
    for other in stored if is_object(stored) else ():
        items = details_of(message, other).get(_ITEMS)
        if other == form or not is_object(items):
            continue
        changes = (change for item in items.values() if is_list(item) for change in item[1:])
        fields = {str(change[0][-1]) for change in changes if _is_change(change) and change[0]}
        yield other, ", ".join(sorted(fields))


def restore(element: Any, ordinal: str, details: Mapping[str, Any], form: Format) -> Any:  # noqa: ANN401 - JSON
    """Return the element as it was read.

    The result is None where nothing is stored for it, and False where the message was edited.
    """
    items = details.get(_ITEMS)
    found = items.get(ordinal) if is_object(items) else None
    if not is_list(found) or not found:
        return None
    known, *changes = found
    if fingerprint(element) != known:
        return False
    if not all(_is_change(change) and is_acceptable(element, change, form) for change in changes):
        return None
    restored = apply_changes(element, changes)
    return restored if isinstance(restored, dict) and _is_alike(element, restored, form) else None


def is_acceptable(element: Any, change: Sequence[Any], form: Format) -> bool:  # noqa: ANN401 - JSON
    """Tell whether the provider knows the fields of a change and accepts its value."""
    return not unknown_fields(change[0], form) and form.accepts(element, change)


def _is_alike(element: dict[str, Any], restored: dict[str, Any], form: Format) -> bool:
    """Tell whether the same role still speaks, with the same calls and results."""
    now, then = element.get("role"), restored.get("role")
    same_role = now == then or (now, then) in _ROLES
    return same_role and form.pair_keys(element) == form.pair_keys(restored)


def with_details(
    metadata: Mapping[str, Any], form: str, items: Mapping[str, Any], *, apart: bool
) -> dict[str, Any]:
    """Return a message's metadata with these details in it."""
    stored = metadata.get(KEY)
    details: dict[str, Any] = {_APART: True} if apart else {}
    if items:
        details[_ITEMS] = dict(items)
    return {**metadata, KEY: {**(stored if is_object(stored) else {}), form: details}}
