"""Python functions as tools: the signature is the schema, the docstring the description.

A parameter of type `ToolContext` is filled in by palaver and is not shown to the model. Plain
functions run in a thread, async functions in the event loop. Docstrings are read in three styles:
Google's (`Args:`), NumPy's (a title over dashes) and Sphinx's (`:param name:`); sections about
results, errors and examples are left out.

A tool may be described by a JSON schema instead: `SchemaTool`. The check of its arguments covers
types, required and unknown fields, enums and constants, bounds of numbers and lengths, items,
references inside the document, `anyOf`, `oneOf` and `allOf`. A schema may come from a stranger: the
work is bounded, and no regular expression is run.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from copy import copy
from functools import partial
from itertools import takewhile
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    NamedTuple,
    TypeGuard,
    get_args,
    get_type_hints,
    overload,
)

import msgspec

from palaver.errors import ValidationError
from palaver.messages.decode import convert
from palaver.messages.limits import (
    check_argument,
    check_name,
    check_number,
    describe_argument,
    is_list,
    is_object,
    kind_of,
    path_step,
)
from palaver.tools.runner import ToolContext, call_function
from palaver.wire import ToolSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from palaver.tools.runner import ToolOutput

__all__ = ["Docstring", "FunctionTool", "SchemaTool", "check_arguments", "read_docstring", "tool"]


_ARGUMENTS: Final = frozenset(("args", "arguments", "parameters", "params", "other parameters"))
_LEFT_OUT: Final = frozenset(
    ("returns", "return", "yields", "yield", "raises", "example", "examples", "see also", "doctest")
)
_FIELD: Final = re.compile(r":(\w+)(?:\s+([^:]*))?:\s*(.*)")
_GOOGLE: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?\s*:\s*(.*)")
_NUMPY: Final = re.compile(r"\*{0,2}(\w+)\s*(?::.*)?$")
_DASHES: Final = re.compile(r"-{3,}\s*$")


class FunctionTool:
    """A function as a tool."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        idempotent: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Read the signature and the docstring; raise `ValidationError` if it can't be a tool."""
        _check_options(function, timeout)
        self.idempotent = idempotent
        self.timeout = timeout
        self._function = function
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise _not_a_tool(function, "a tool returns its result once, it does not yield")
        docstring = read_docstring(
            "" if isinstance(function, partial) else inspect.getdoc(function) or ""
        )
        self._context, self._type = _argument_type(function, docstring.arguments)
        self.spec = ToolSpec(
            name or _name(function),
            docstring.text if description is None else description,
            _schema(function, self._type),
        )

    def __call__(self, *args: Any, **keywords: Any) -> Any:  # noqa: ANN401 - the function's own
        """Call the function itself."""
        return self._function(*args, **keywords)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Check the arguments and run the function."""
        try:
            checked = self._convert(arguments)
        except msgspec.ValidationError as error:
            raise ValidationError(str(error), path="$.arguments", rule="tool-arguments") from None
        given = {name: getattr(checked, name) for name in self._type.__struct_fields__}
        if self._context is not None:
            given[self._context] = context
        return await call_function(partial(self._function, **given), context)

    def _convert(self, arguments: Mapping[str, Any]) -> msgspec.Struct:
        try:
            return convert(arguments, self._type)
        except msgspec.ValidationError:
            return convert(_integers(arguments), self._type)


@overload
def tool(
    function: Callable[..., Any],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    timeout: float | None = None,
) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    timeout: float | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    **options: Any,
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of a function, plain or with options.

    `idempotent` says that it may run again when it is unknown whether it ran, as after a crash;
    `timeout` is in seconds.

    >>> @tool(idempotent=True)
    ... def weather(city: str, days: int = 1) -> str:
    ...     '''The weather in a city.
    ...
    ...     Args:
    ...         city: where
    ...     '''
    ...     return "fine"
    >>> weather.spec.description, weather.spec.parameters["properties"]["city"]
    ('The weather in a city.', {'description': 'where', 'type': 'string'})
    """
    if function is not None:
        return FunctionTool(function, **options)
    return partial(FunctionTool, **options)


def _check_options(function: object, timeout: float | None) -> None:
    if not callable(function):
        detail = f"must be a function, not {describe_argument(function)}"
        raise ValidationError(detail, path="$.function", rule="tool-definition")
    if timeout is not None:
        check_number(timeout, "$.timeout")


def _argument_type(
    function: Callable[..., Any], described: Mapping[str, str]
) -> tuple[str | None, type[msgspec.Struct]]:
    """Return the name of the parameter that takes the context, and a type of all others."""
    signature, hints, context = inspect.signature(function), _hints(function), None
    fields: list[Any] = []
    for name, parameter in signature.parameters.items():
        kind: Any = hints.get(name, Any)
        if kind is ToolContext or ToolContext in get_args(kind):
            context = name
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise _not_a_tool(function, f"{name!r} is no argument that a model can give by name")
        if parameter.default is None:
            kind = kind | None if kind is not Any else kind  # `days: int = None` is often written
        description = described.get(name) or next(
            filter(_is_text, getattr(kind, "__metadata__", ())), ""
        )
        if description:
            kind = Annotated[kind, msgspec.Meta(description=description)]
        missing = parameter.default is parameter.empty
        fields.append((name, kind) if missing else (name, kind, _default(parameter.default)))
    try:
        made = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
    except (TypeError, ValueError) as error:
        raise _not_a_tool(function, str(error)) from None
    return context, made


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    bare: Any = function.func if isinstance(function, partial) else function
    if not inspect.isroutine(bare):
        bare = bare.__call__  # a callable object
    try:
        return get_type_hints(bare, include_extras=True)
    except (NameError, TypeError) as error:
        detail = f"its annotations can't be read: {error}"
        raise _not_a_tool(function, detail) from None


def _integers(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the value with 3 for 3.0: some models write every number with a point."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if is_object(value):
        return {name: _integers(item) for name, item in value.items()}
    return [_integers(item) for item in value] if is_list(value) else value


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)


def _default(value: Any) -> Any:  # noqa: ANN401 - whatever the signature has
    if isinstance(value, list | dict | set | bytearray):
        return msgspec.field(default_factory=partial(copy, value))
    try:
        msgspec.json.encode(value)
    except TypeError:
        return msgspec.field(default_factory=lambda: value)  # JSON can't represent it
    return value


def _schema(function: Callable[..., Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema of a type, as one object with its definitions inside."""
    try:
        (found,), shared = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise _not_a_tool(function, str(error)) from None
    name = found["$ref"].rpartition("/")[2]
    schema = dict(shared.pop(name))
    schema.pop("title", None)
    return {**schema, "$defs": shared} if shared else schema


def _name(function: Callable[..., Any]) -> str:
    bare = function.func if isinstance(function, partial) else function
    return str(getattr(bare, "__name__", type(bare).__name__))


def _not_a_tool(function: Callable[..., Any], detail: str) -> ValidationError:
    detail = f"{_name(function)} can't be a tool: {detail}"
    return ValidationError(detail, path="$.tools", rule="tool-definition")


# ── docstrings ──────────────────────────────────────────────────────────────────────────────────


class Docstring(NamedTuple):
    """The description of a function, and those of its arguments by name."""

    text: str
    arguments: dict[str, str]


def read_docstring(text: str) -> Docstring:
    r"""Parse a docstring without indentation, as `inspect.getdoc` returns it.

    >>> read_docstring("Add.\n\nArgs:\n    a: the one\n    b: the\n        other")
    Docstring(text='Add.', arguments={'a': 'the one', 'b': 'the other'})
    """
    remaining: list[str] = []
    named: dict[str, list[str]] = {}
    for section, lines in _sections(text.splitlines()):
        if section in _ARGUMENTS:
            _read_entries(lines, named)
        elif section not in _LEFT_OUT:
            remaining += _drop_fields(lines, named)
    described = {name: " ".join(pieces).strip() for name, pieces in named.items()}
    plain = re.sub(r"\n{3,}", "\n\n", "\n".join(remaining))
    return Docstring(plain.strip(), {name: text for name, text in described.items() if text})


def _sections(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the lines by section title; lines outside of a section have the title "".

    A section of Google's style ends with its indentation, one of NumPy's at the next title.
    """
    title, dashed, under = "", False, list[str]()
    index = 0
    while index < len(lines):
        line = lines[index]
        after = lines[index + 1] if index + 1 < len(lines) else ""
        found, is_dashed = _title(line, after)
        left = bool(title) and not dashed and bool(line.strip()) and not line.startswith(" ")
        if found or left:
            yield title, under
            title, dashed, under = found, is_dashed, [] if found else [line]
        else:
            under.append(line)
        index += 2 if is_dashed else 1
    yield title, under


def _title(line: str, after: str) -> tuple[str, bool]:
    """Return the section title in a line, if it is one, and whether dashes follow it."""
    word = line.strip().lower()
    if _DASHES.match(after) and word:
        return word, True
    if word.endswith(":") and word[:-1] in _ARGUMENTS | _LEFT_OUT:
        return word[:-1], False
    return "", False


def _read_entries(lines: list[str], named: dict[str, list[str]]) -> None:
    """Read argument entries; a line that is indented more than the first continues its entry."""
    margin, name = None, ""
    for line in lines:
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        margin = indent if margin is None else margin
        if indent > margin:
            named.setdefault(name, []).append(line.strip())
            continue
        found = _GOOGLE.match(line.strip()) if margin else _NUMPY.match(line.strip())
        name = found[1] if found else ""
        named[name] = [found[2]] if found and margin else []
    named.pop("", None)


def _drop_fields(lines: list[str], named: dict[str, list[str]]) -> Iterator[str]:
    """Yield the lines without Sphinx fields; fields of arguments are added to `named`."""
    name: str | None = None
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field:
            is_argument = field[1] in ("param", "parameter", "arg", "argument") and field[2]
            name = field[2].split()[-1].lstrip("*") if is_argument else ""
            if name:
                named[name] = [field[3]]
        elif name is not None and line.startswith(" "):
            named.setdefault(name, []).append(line.strip())
        else:
            name = None
            yield line
    named.pop("", None)


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
        _check_options(function, timeout)
        check_name(name, "$.name")
        check_argument(parameters, Mapping, "$.parameters", "a JSON schema of an object")
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
