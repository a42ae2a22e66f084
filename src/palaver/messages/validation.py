"""Validation that answers instead of raising: what is wrong with a value, all of it.

`validate_part`, `validate_message` and `validate_turn` answer with a list of problems, each with
its path and rule. `try_parse` is for streams in which a part may come before all its fields do.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from palaver.errors import PartValidationError, ValidationError
from palaver.messages.codec import parse_message, parse_part, to_dict
from palaver.messages.exports import parse_turn
from palaver.messages.gate import is_list, is_object, kind_of
from palaver.messages.parts import UnknownPart

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    """The answer: no problems, or each of them."""

    problems: tuple[ValidationError, ...] = ()

    @property
    def valid(self) -> bool:
        """Tell whether there is none."""
        return not self.problems


def try_parse(data: bytes | str | Mapping[str, Any]) -> Part | None:
    """Read a part; None where a required field is missing. Anything else wrong is raised.

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
    """Check a part, or the JSON of one.

    >>> validate_part({"type": "snapshot", "snapshot": "9f2c"}).problems[0].rule
    'BR-01'
    """
    return _checked(lambda: parse_part(_json(part)))


def validate_message(message: object) -> Validation:
    """Check a message, or the JSON of one: all its parts, not only the first that is wrong."""
    value = _json(message)
    whole = _checked(lambda: parse_message(value))
    if whole.valid or not is_object(value):
        return whole
    return _gathered(value, "content", whole, parse_message)


def validate_turn(turn: object) -> Validation:
    """Check a turn, or the JSON of one: all its parts, not only the first that is wrong."""
    value = _json(turn)
    whole = _checked(lambda: parse_turn(value))
    if whole.valid or not is_object(value):
        return whole
    return _gathered(value, "parts", whole, parse_turn)


def validate(value: object) -> Validation:
    """Check whatever it is: a turn has `info`, a message a `role`, a part a `type`.

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


def _gathered(value: Mapping[str, Any], name: str, whole: Validation, parse: Any) -> Validation:  # noqa: ANN401 - a parser
    """One problem is known; look at each part by itself to find the others."""
    items = value.get(name)
    if not is_list(items):
        return whole
    problems: list[ValidationError] = list(_checked(lambda: parse({**value, name: []})).problems)
    for index, item in enumerate(items):
        alone = _checked(partial(parse, {**value, name: [item]}))
        problems += [
            problem.moved(f"$.{name}[0]", f"$.{name}[{index}]")
            for problem in alone.problems
            if problem.path.startswith(f"$.{name}[0]")
        ]
    return Validation(tuple(problems) or whole.problems)


def _json(value: object) -> Any:  # noqa: ANN401 - JSON
    return to_dict(value) if isinstance(value, Struct | UnknownPart) else value


def _checked(parse: Any) -> Validation:  # noqa: ANN401 - a parser without arguments
    try:
        parse()
    except ValidationError as error:
        return Validation((error,))
    return Validation()
