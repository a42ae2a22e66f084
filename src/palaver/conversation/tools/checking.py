"""Arguments against a JSON schema: the parts of the standard that people use.

Types, required and unknown fields, enums and constants, bounds of numbers and lengths, items,
references inside the document, `anyOf`, `oneOf` and `allOf`. What a schema says beyond that is for
the model to read. A schema may come from a stranger: the work is bounded, and no pattern is run.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from palaver.errors import ValidationError
from palaver.messages.gate import is_list, is_object, kind_of, path_step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["check_arguments"]

_DEEP: Final = 200
_MANY: Final = 10_000
"""So many schemas inside one another, and in all, are looked at; what is left is let through."""

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
    "null": (type(None),),
}
_Problem = tuple[str, str]


def check_arguments(schema: Mapping[str, Any], arguments: object) -> None:
    """Refuse arguments that do not fit a schema; says where.

    >>> check_arguments({"type": "object", "required": ["city"]}, {})
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.city: is missing [CV-05]
    """
    for path, detail in _Checker(schema).problems(schema, arguments, "$", 0):
        raise ValidationError(detail, path=path, rule="CV-05")


class _Checker:
    """Checks values against schemas of one document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._left = _MANY

    def problems(self, given: object, value: object, path: str, depth: int) -> Iterator[_Problem]:
        """What is wrong with a value, the first thing first."""
        if given is False:
            yield path, "is not allowed here"
        schema, self._left = self._resolved(given), self._left - 1
        if not is_object(schema) or depth > _DEEP or self._left < 0:
            return
        yield from self._combined(schema, value, path, depth)
        wanted = schema.get("type")
        types = wanted if is_list(wanted) else [wanted] if isinstance(wanted, str) else []
        if types and not any(_is(value, name) for name in types):
            yield path, f"must be {' or '.join(map(str, types))}, not {kind_of(value)}"
            return
        yield from _bounds(schema, value, path)
        if is_object(value):
            yield from self._fields(schema, value, path, depth)
        elif is_list(value) and "items" in schema:
            for index, item in enumerate(value):
                yield from self.problems(schema["items"], item, f"{path}[{index}]", depth + 1)

    def _combined(
        self, schema: Mapping[str, Any], value: object, path: str, depth: int
    ) -> Iterator[_Problem]:
        every = schema.get("allOf")
        for choice in every if is_list(every) else ():
            yield from self.problems(choice, value, path, depth + 1)
        for keyword in ("anyOf", "oneOf"):
            choices = schema.get(keyword)
            if is_list(choices) and choices:
                tried = (next(self.problems(one, value, path, depth + 1), None) for one in choices)
                found = list(takewhile(bool, tried))
                if len(found) == len(choices):
                    yield max(filter(None, found), key=lambda problem: len(problem[0]))  # so near

    def _fields(
        self, schema: Mapping[str, Any], value: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[_Problem]:
        required, known = schema.get("required"), schema.get("properties")
        for name in required if is_list(required) else ():
            if name not in value:
                yield f"{path}{path_step(str(name))}", "is missing"
        fields: Mapping[str, Any] = known if is_object(known) else {}
        others = schema.get("additionalProperties", True)
        for name, item in value.items():
            inside = f"{path}{path_step(name)}"
            if name in fields:
                yield from self.problems(fields[name], item, inside, depth + 1)
            elif others is False and "patternProperties" not in schema:
                yield inside, f"is not known; there are: {', '.join(fields) or 'none'}"
            elif is_object(others):
                yield from self.problems(others, item, inside, depth + 1)

    def _resolved(self, schema: object) -> object:
        """A schema, or what its reference inside the document leads to; a few steps at most."""
        for _ in range(20):
            reference = schema.get("$ref") if is_object(schema) else None
            if not isinstance(reference, str) or not reference.startswith("#"):
                return schema
            found: object = self._document
            for step in reference[1:].split("/")[1:]:
                name = step.replace("~1", "/").replace("~0", "~")
                found = found.get(name) if is_object(found) else None
            schema = found
        return None


def _bounds(schema: Mapping[str, Any], value: object, path: str) -> Iterator[_Problem]:
    choices = schema.get("enum")
    if is_list(choices) and not any(_same(value, choice) for choice in choices):
        yield path, f"must be one of {', '.join(map(repr, choices[:20]))}"
    if "const" in schema and not _same(value, schema["const"]):
        yield path, f"must be {schema['const']!r}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from _between(schema, value, path, ("minimum", "maximum"), "")
        yield from _beyond(schema, value, path)
    elif isinstance(value, str):
        yield from _between(schema, len(value), path, ("minLength", "maxLength"), " characters")
    elif is_list(value):
        yield from _between(schema, len(value), path, ("minItems", "maxItems"), " items")


def _between(
    schema: Mapping[str, Any], size: float, path: str, names: tuple[str, str], what: str
) -> Iterator[_Problem]:
    least, most = (schema.get(name) for name in names)
    if isinstance(least, int | float) and size < least:
        yield path, f"must be at least {least}{what}"
    if isinstance(most, int | float) and size > most:
        yield path, f"must be at most {most}{what}"


def _beyond(schema: Mapping[str, Any], value: float, path: str) -> Iterator[_Problem]:
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if isinstance(above, int | float) and value <= above:
        yield path, f"must be more than {above}"
    if isinstance(below, int | float) and value >= below:
        yield path, f"must be less than {below}"


def _is(value: object, name: object) -> bool:
    if isinstance(value, bool) and name != "boolean":
        return False
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(str(name), (object,)))


def _same(value: object, other: object) -> bool:
    """In JSON, true is not 1."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)
