"""Memory of details: what a format says and messages have no words for comes back on the way home.

When a body is read, its messages are written again at once, and where an element differs from the
original the difference is kept in the message's metadata, with a fingerprint of our own writing.
Written later in the same format, an element that still has that fingerprint gets its difference
back and is the original again, byte for byte. An edited one has another fingerprint; then the
detail is gone, and a note says so.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from palaver.messages.gate import is_list, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.messages.message import Message

__all__ = ["APART", "KEY", "changed", "changes", "fingerprint", "is_apart", "memories"]

KEY: Final = "wire"
"""Where a message's metadata keeps this."""
APART: Final = "apart"
_ITEMS: Final = "items"


def fingerprint(element: object) -> str:
    """What tells an element from every other."""
    text = msgspec.json.encode(element)
    return hashlib.blake2b(text, digest_size=12).hexdigest()


def changes(ours: Any, theirs: Any) -> list[list[Any]]:  # noqa: ANN401 - JSON on both sides
    """What must change in ours to get theirs: a path and a value, or a path alone to remove.

    >>> changes({"a": [1, {"b": 2}], "c": 0}, {"a": [1, {"b": 3}], "d": 4})
    [[['a', 1, 'b'], 3], [['c']], [['d'], 4]]
    """
    return list(_changes(ours, theirs, []))


def _changes(ours: Any, theirs: Any, path: list[str | int]) -> Iterator[list[Any]]:  # noqa: ANN401
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in ours:
            if key not in theirs:
                yield [[*path, key]]
            else:
                yield from _changes(ours[key], theirs[key], [*path, key])
        for key in theirs:
            if key not in ours:
                yield [[*path, key], theirs[key]]
    elif is_list(ours) and is_list(theirs) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from _changes(one, other, [*path, index])
    elif ours != theirs or type(ours) is not type(theirs):
        yield [path, theirs]


def changed(element: Any, steps: object) -> Any:  # noqa: ANN401 - JSON
    """The element with these changes; None where they do not fit: metadata may be anything."""
    result = {"": msgspec.to_builtins(element)}
    for step in steps if is_list(steps) else ():
        if not (is_list(step) and len(step) in (1, 2) and is_list(step[0])):
            return None
        path: list[Any] = ["", *step[0]]
        place: Any = result
        try:
            for parent in path[:-1]:
                place = place[parent]
            if len(step) == 1:
                del place[path[-1]]
            else:
                place[path[-1]] = msgspec.to_builtins(step[1])
        except (KeyError, IndexError, TypeError):
            return None
    return result[""]


def memories(message: Message, form: str) -> Mapping[str, Any]:
    """What a message remembers of a format: the items begun by it, `apart`."""
    if not message.metadata:
        return {}
    kept = message.metadata.get(KEY)
    found = kept.get(form) if is_object(kept) else None
    return found if is_object(found) else {}


def is_apart(message: Message, form: str) -> bool:
    """Tell whether a message stood in an element of its own beside a neighbour of its role."""
    return memories(message, form).get(APART) is True


def said_elsewhere(message: Message, form: str) -> Iterator[tuple[str, str]]:
    """What other formats said in a message beyond it: the format, and the fields by name."""
    kept = message.metadata.get(KEY)
    for other in kept if is_object(kept) else ():
        items = memories(message, other).get(_ITEMS)
        if other == form or not is_object(items):
            continue
        paths = (step[0] for item in items.values() if is_list(item) for step in item[1:])
        fields = {str(path[-1]) for path in paths if is_list(path) and path}
        yield other, ", ".join(sorted(fields))


def recalled(element: Any, ordinal: str, kept: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """The element as it was; None where nothing is kept for it, False where it was edited."""
    items = kept.get(_ITEMS)
    found = items.get(ordinal) if is_object(items) else None
    if not is_list(found) or not found:
        return None
    print_then, *steps = found
    return changed(element, steps) if fingerprint(element) == print_then else False


def remember(
    metadata: Mapping[str, Any], form: str, items: Mapping[str, Any], *, apart: bool
) -> dict[str, Any]:
    """A message's metadata with this memory in it."""
    kept = metadata.get(KEY)
    memory: dict[str, Any] = {APART: True} if apart else {}
    if items:
        memory[_ITEMS] = dict(items)
    return {**metadata, KEY: {**(kept if is_object(kept) else {}), form: memory}}
