"""Validation that returns all problems of a value instead of raising the first one.

`validate_part`, `validate_message` and `validate_turn` return a `Validation` with a list of
problems, each with its path and rule. `validate` finds out by itself which of them applies.
`try_parse` is for streams in which a part may arrive before all its fields do.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from palaver.errors import PartValidationError, ValidationError
from palaver.messages.codec import parse_message, parse_part, to_dict
from palaver.messages.foreign import parse_turn
from palaver.messages.limits import is_list, is_object, kind_of
from palaver.messages.parts import UnknownPart

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from palaver.messages.parts import Part

__all__ = [
    "Validation",
    "try_parse",
    "validate",
    "validate_message",
    "validate_part",
    "validate_turn",
]

_log = logging.getLogger("palaver.messages")


class Validation(Struct, frozen=True):
    """The result of a validation: the problems, or none."""

    problems: tuple[ValidationError, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether there are no problems."""
        return not self.problems


def try_parse(data: bytes | str | Mapping[str, Any]) -> Part | None:
    """Read a part, or return None if a required field is missing.

    Any other problem raises `ValidationError`.

    >>> try_parse({"type": "text", "text": "no ids yet"}) is None
    True
    """
    try:
        return parse_part(data)
    except PartValidationError as error:
        if error.detail != "is missing":
            raise
        _log.warning("%s", error)
        return None


def validate_part(part: Part | Mapping[str, Any]) -> Validation:
    """Check a part, or the JSON of a part.

    >>> validate_part({"type": "snapshot", "snapshot": "9f2c"}).problems[0].rule
    'part-id'
    """
    return _check(lambda: parse_part(_json(part)))


def validate_message(message: object) -> Validation:
    """Check a message, or the JSON of a message, and report the problems of all its parts."""
    value = _json(message)
    first = _check(lambda: parse_message(value))
    if first.valid or not is_object(value):
        return first
    return _problems_of_all(value, "content", first, parse_message)


def validate_turn(turn: object) -> Validation:
    """Check a turn, or the JSON of a turn, and report the problems of all its parts."""
    value = _json(turn)
    first = _check(lambda: parse_turn(value))
    if first.valid or not is_object(value):
        return first
    return _problems_of_all(value, "parts", first, parse_turn)


def validate(value: object) -> Validation:
    """Check a turn (it has `info` and `parts`), a message (`role`) or a part (`type`).

    >>> [problem.path for problem in validate({"role": "robot", "content": 5}).problems]
    ['$.role']
    """
    value = _json(value)
    if not is_object(value):
        detail = f"must be a message, a part or a turn, not {kind_of(value)}"
        return Validation((ValidationError(detail),))
    if "info" in value and "parts" in value:
        return validate_turn(value)
    if "role" in value or "content" in value:
        return validate_message(value)
    if "type" in value:
        return validate_part(value)
    detail = "must be a message (role), a part (type) or a turn (info and parts)"
    return Validation((ValidationError(detail),))


def _problems_of_all(
    value: Mapping[str, Any], name: str, first: Validation, parse: Callable[[Any], object]
) -> Validation:
    """Check each part alone, to find all problems of a value that has at least one."""
    items = value.get(name)
    if not is_list(items):
        return first
    problems: list[ValidationError] = list(_check(lambda: parse({**value, name: []})).problems)
    for index, item in enumerate(items):
        alone = _check(partial(parse, {**value, name: [item]}))
        problems += [
            problem.moved(f"$.{name}[0]", f"$.{name}[{index}]")
            for problem in alone.problems
            if problem.path.startswith(f"$.{name}[0]")
        ]
    return Validation(tuple(problems) or first.problems)


def _json(value: object) -> Any:  # noqa: ANN401 - JSON
    return to_dict(value) if isinstance(value, Struct | UnknownPart) else value


def _check(parse: Callable[[], object]) -> Validation:
    try:
        parse()
    except ValidationError as error:
        return Validation((error,))
    return Validation()
