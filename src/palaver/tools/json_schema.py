"""Tools described by a JSON schema, and the check of arguments against one.

The check covers the parts of the standard that people use: types, required and unknown fields,
enums and constants, bounds of numbers and lengths, items, references inside the document, `anyOf`,
`oneOf` and `allOf`. Other keywords are not checked. A schema may come from a stranger: the work is
bounded, and no regular expression is run.
"""

from __future__ import annotations

from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

import msgspec

from palaver.errors import ValidationError
from palaver.messages.limits import is_list, is_object, kind_of, path_step
from palaver.tools.runner import call_function
from palaver.wire import ToolSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from palaver.tools.base import ToolContext, ToolOutput

__all__ = ["SchemaTool", "check_arguments"]

_MAX_DEPTH: Final = 200
_MAX_SCHEMAS: Final = 10_000
"""The limits of nesting and of subschemas in all; what exceeds them is not checked."""

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


class SchemaTool:
    """A tool described by a JSON schema, and run by a function of the arguments.

    >>> weather = SchemaTool("weather", "The weather in a city.", {"type": "object"}, print)
    >>> weather.spec.name, weather.idempotent
    ('weather', False)
    """

    def __init__(
        self,
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        function: Callable[[dict[str, Any]], Any],
        *,
        idempotent: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Take the description; `function` gets the arguments as one dict, and may be async."""
        self.spec = ToolSpec(name, description, parameters)
        self.idempotent = idempotent
        self.timeout = timeout
        self._function = function

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Check the arguments and run the function."""
        check_arguments(self.spec.parameters, arguments)
        given: dict[str, Any] = msgspec.to_builtins(arguments)  # the function may change it
        return await call_function(partial(self._function, given), context)


def check_arguments(schema: Mapping[str, Any], arguments: object) -> None:
    """Raise `ValidationError` for the first argument that does not fit a schema.

    >>> check_arguments({"type": "object", "required": ["city"]}, {})
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.city: is missing [tool-arguments]
    """
    for path, detail in _SchemaChecker(schema).problems(schema, arguments, "$", 0):
        raise ValidationError(detail, path=path, rule="tool-arguments")


class _SchemaChecker:
    """Checks values against the schemas of one document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._left = _MAX_SCHEMAS

    def problems(self, given: object, value: object, path: str, depth: int) -> Iterator[_Problem]:
        """Yield what is wrong with a value."""
        if given is False:
            yield path, "is not allowed here"
        schema, self._left = self._resolve(given), self._left - 1
        if not is_object(schema) or depth > _MAX_DEPTH or self._left < 0:
            return
        yield from self._check_combinations(schema, value, path, depth)
        wanted = schema.get("type")
        types = wanted if is_list(wanted) else [wanted] if isinstance(wanted, str) else []
        if types and not any(_has_type(value, name) for name in types):
            yield path, f"must be {' or '.join(map(str, types))}, not {kind_of(value)}"
            return
        yield from _check_bounds(schema, value, path)
        if is_object(value):
            yield from self._check_fields(schema, value, path, depth)
        elif is_list(value) and "items" in schema:
            for index, item in enumerate(value):
                yield from self.problems(schema["items"], item, f"{path}[{index}]", depth + 1)

    def _check_combinations(
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
                    yield max(
                        filter(None, found), key=lambda problem: len(problem[0])
                    )  # the deepest

    def _check_fields(
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

    def _resolve(self, schema: object) -> object:
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


def _check_bounds(schema: Mapping[str, Any], value: object, path: str) -> Iterator[_Problem]:
    choices = schema.get("enum")
    if is_list(choices) and not any(_equal(value, choice) for choice in choices):
        yield path, f"must be one of {', '.join(map(repr, choices[:20]))}"
    if "const" in schema and not _equal(value, schema["const"]):
        yield path, f"must be {schema['const']!r}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from _check_range(schema, value, path, ("minimum", "maximum"), "")
        yield from _check_exclusive(schema, value, path)
    elif isinstance(value, str):
        yield from _check_range(schema, len(value), path, ("minLength", "maxLength"), " characters")
    elif is_list(value):
        yield from _check_range(schema, len(value), path, ("minItems", "maxItems"), " items")


def _check_range(
    schema: Mapping[str, Any], size: float, path: str, names: tuple[str, str], what: str
) -> Iterator[_Problem]:
    least, most = (schema.get(name) for name in names)
    if isinstance(least, int | float) and size < least:
        yield path, f"must be at least {least}{what}"
    if isinstance(most, int | float) and size > most:
        yield path, f"must be at most {most}{what}"


def _check_exclusive(schema: Mapping[str, Any], value: float, path: str) -> Iterator[_Problem]:
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if isinstance(above, int | float) and value <= above:
        yield path, f"must be more than {above}"
    if isinstance(below, int | float) and value >= below:
        yield path, f"must be less than {below}"


def _has_type(value: object, name: object) -> bool:
    if isinstance(value, bool) and name != "boolean":
        return False
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(str(name), (object,)))


def _equal(value: object, other: object) -> bool:
    """Compare as JSON does: true is not 1."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)
