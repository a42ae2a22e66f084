"""Memory of details: what a format says and messages have no words for comes back on the way home.

When a body is read, its messages are written again at once, and where an element differs from the
original the difference is kept in the message's metadata, with a fingerprint of our own writing.
Written later in the same format, an element that still has that fingerprint gets its difference
back and is the original again, byte for byte. An edited one has another fingerprint; then the
detail is gone, and a note says so. Metadata may come from anywhere: what does not fit is not used.
"""

from __future__ import annotations

import hashlib
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

import msgspec

from palaver.messages.gate import is_list, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from palaver.messages.message import Message
    from palaver.wire.format import Format

__all__ = [
    "APART",
    "KEY",
    "changed",
    "changes",
    "fingerprint",
    "is_apart",
    "may_stand",
    "memories",
    "recalled",
    "remember",
    "remembers",
    "said_elsewhere",
    "strangers",
]

KEY: Final = "wire"
"""Where a message's metadata keeps this."""
APART: Final = "apart"
_ITEMS: Final = "items"
_ROLES: Final = frozenset[tuple[str | None, str | None]](
    (("system", "developer"), ("user", "system"), ("user", None))
)
"""What palaver writes, and what else may have stood there."""


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
    if isinstance(ours, dict) and isinstance(theirs, dict) and _same_type(ours, theirs):
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


def _same_type(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Tell whether two objects are of one type: others are not compared field by field."""
    return "type" not in ours or "type" not in theirs or ours["type"] == theirs["type"]


def changed(element: Any, steps: object) -> Any:  # noqa: ANN401 - JSON
    """The element with these changes; None where they do not fit.

    >>> changed({"a": [1, 2]}, [[["a", 0], 5], [["b"], 6]]), changed({"a": 1}, [[["b", "c"], 5]])
    ({'a': [5, 2], 'b': 6}, None)
    """
    result = {"": msgspec.to_builtins(element)}
    for step in steps if is_list(steps) else ():
        if not _is_step(step):
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
    return result.get("")


def _is_step(step: object) -> bool:
    """Tell whether it is a path and a value, or a path alone."""
    return is_list(step) and len(step) in (1, 2) and is_list(step[0])


def strangers(path: Sequence[Any], form: Format) -> list[str]:
    """The fields in a path that a provider does not know; what it does not look into is its own."""
    steps = takewhile(lambda step: not (isinstance(step, str) and step in form.opaque), path)
    return [step for step in steps if isinstance(step, str) and step not in form.fields]


def memories(message: Message, form: str) -> Mapping[str, Any]:
    """What a message remembers of a format: the items begun by it, `apart`."""
    if not message.metadata:
        return {}
    kept = message.metadata.get(KEY)
    found = kept.get(form) if is_object(kept) else None
    return found if is_object(found) else {}


def remembers(message: Message, form: str) -> bool:
    """Tell whether a message has details to give back."""
    return bool(memories(message, form).get(_ITEMS))


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
        steps = (step for item in items.values() if is_list(item) for step in item[1:])
        fields = {str(step[0][-1]) for step in steps if _is_step(step) and step[0]}
        yield other, ", ".join(sorted(fields))


def recalled(element: Any, ordinal: str, kept: Mapping[str, Any], form: Format) -> Any:  # noqa: ANN401 - JSON
    """The element as it was; None where nothing is kept for it, False where it was edited."""
    items = kept.get(_ITEMS)
    found = items.get(ordinal) if is_object(items) else None
    if not is_list(found) or not found:
        return None
    print_then, *steps = found
    if fingerprint(element) != print_then:
        return False
    if not all(_is_step(step) and may_stand(element, step, form) for step in steps):
        return None
    then = changed(element, steps)
    return then if isinstance(then, dict) and _is_alike(element, then, form) else None


def may_stand(element: Any, change: Sequence[Any], form: Format) -> bool:  # noqa: ANN401 - JSON
    """Tell whether the provider knows the fields of a change, and takes what it puts there."""
    return not strangers(change[0], form) and form.takes(element, change)


def _is_alike(element: dict[str, Any], then: dict[str, Any], form: Format) -> bool:
    """Tell whether it is still the same one speaking, with the same calls and results."""
    now, was = element.get("role"), then.get("role")
    return (now == was or (now, was) in _ROLES) and form.pairs(element) == form.pairs(then)


def remember(
    metadata: Mapping[str, Any], form: str, items: Mapping[str, Any], *, apart: bool
) -> dict[str, Any]:
    """A message's metadata with this memory in it."""
    kept = metadata.get(KEY)
    memory: dict[str, Any] = {APART: True} if apart else {}
    if items:
        memory[_ITEMS] = dict(items)
    return {**metadata, KEY: {**(kept if is_object(kept) else {}), form: memory}}
