"""Python functions as tools: the signature is the schema, the docstring the description.

A parameter of type `ToolContext` is filled in by palaver and is not shown to the model. Plain
functions run in a thread, async functions in the event loop. Docstrings are read in three styles:
Google's (`Args:`), NumPy's (a title over dashes) and Sphinx's (`:param name:`); sections about
results, errors and examples are left out.

Types may be all that JSON has, enums, `Literal`, dataclasses, `TypedDict`, `NamedTuple`, msgspec's
structs, and pydantic's models and fields where pydantic is installed; the function gets values of
those types. What can't be a tool is refused where it is made one.

A tool may be described by a JSON schema instead: `SchemaTool`. Its arguments are checked by
jsonschema-rs (`palaver[schema]`). A schema may come from a stranger: nothing that it refers to is
fetched, the work is bounded, and what can't be checked is refused.
"""

from __future__ import annotations

import importlib
import inspect
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from functools import partial
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    NamedTuple,
    ParamSpec,
    TypeGuard,
    TypeVar,
    cast,
    get_args,
    get_type_hints,
    overload,
)
from urllib.parse import unquote

import msgspec

from palaver.errors import ValidationError
from palaver.messages.decode import convert, explain_mismatch, is_pydantic, refuse_meta
from palaver.messages.limits import (
    MAX_DEPTH,
    FrozenDict,
    check_argument,
    check_callable,
    check_name,
    check_number,
    describe_argument,
    is_list,
    is_object,
    kind_of,
    path_step,
    unexpected_keyword,
)
from palaver.tools.runner import ToolContext, call_function
from palaver.wire import ToolSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import jsonschema_rs

    from palaver.tools.runner import ToolOutput

__all__ = [
    "ArgumentChecker",
    "Docstring",
    "FunctionTool",
    "SchemaTool",
    "check_arguments",
    "explain_type",
    "is_deeper",
    "read_docstring",
    "tool",
]

_P = ParamSpec("_P")
_R = TypeVar("_R")


_ARGUMENTS: Final = frozenset(("args", "arguments", "parameters", "params", "other parameters"))
_LEFT_OUT: Final = frozenset(
    ("returns", "return", "yields", "yield", "raises", "example", "examples", "see also", "doctest")
)
_FIELD: Final = re.compile(r":(\w+)(?:\s+([^:]*))?:\s*(.*)")
_GOOGLE: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?\s*:\s*(.*)")
_NUMPY: Final = re.compile(r"\*{0,2}(\w+)\s*(?::.*)?$")
_DASHES: Final = re.compile(r"-{3,}\s*$")


class FunctionTool(Generic[_P, _R]):
    """A function as a tool. It is called as the function is."""

    def __init__(
        self,
        function: Callable[_P, _R],
        *,
        name: str | None = None,
        description: str | None = None,
        idempotent: bool = False,
        timeout: float | None = None,
        needs_approval: bool | Callable[[Mapping[str, Any]], bool] = False,
    ) -> None:
        """Read the signature and the docstring; raise `ValidationError` if it can't be a tool."""
        _check_options(function, timeout, idempotent, needs_approval=needs_approval)
        if name is not None:
            check_name(name, "$.name")
        elif _name(function) == "<lambda>":
            detail = "a lambda has no name, and a tool needs one: tool(name='…')(lambda …)"
            raise ValidationError(detail, path="$.name", rule="tool-definition")
        check_argument(description, (str, NoneType), "$.description", "text")
        self.idempotent = idempotent
        self.timeout = timeout
        self.needs_approval = needs_approval
        self._function = function
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise _not_a_tool(function, "a tool returns its result once, it does not yield")
        docstring = read_docstring(
            "" if isinstance(function, partial) else inspect.getdoc(function) or ""
        )
        self._context, fields = _fields(function, docstring.arguments)
        make = _PydanticArguments if any(map(_is_for_pydantic, fields)) else _PlainArguments
        self._arguments: _PydanticArguments | _PlainArguments = make(function, fields)
        self.spec = ToolSpec(
            name or _name(function),
            docstring.text if description is None else description,
            self._arguments.schema,
        )

    def __repr__(self) -> str:
        """Return the name of the tool."""
        return f"<FunctionTool {self.spec.name}>"

    def __call__(self, *args: _P.args, **keywords: _P.kwargs) -> _R:
        """Call the function itself."""
        return self._function(*args, **keywords)

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as the function takes them; `ValidationError` if they don't fit."""
        try:
            return self._arguments.read(arguments)
        except ValueError as error:  # of msgspec, and of pydantic
            detail = explain_mismatch(error)
            raise ValidationError(detail, path="$.arguments", rule="tool-arguments") from None

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Check the arguments and run the function."""
        given = self.check(arguments)
        if self._context is not None:
            given[self._context] = context
        return await call_function(partial(cast("Any", self._function), **given), context)


@overload
def tool(
    function: Callable[_P, _R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    timeout: float | None = None,
    needs_approval: bool | Callable[[Mapping[str, Any]], bool] = False,
) -> FunctionTool[_P, _R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    timeout: float | None = None,
    needs_approval: bool | Callable[[Mapping[str, Any]], bool] = False,
) -> Callable[[Callable[_P, _R]], FunctionTool[_P, _R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    **options: Any,
) -> FunctionTool[Any, Any] | Callable[[Callable[..., Any]], FunctionTool[Any, Any]]:
    """Make a tool of a function, plain or with options.

    `idempotent` says that it may run again when it is unknown whether it ran, as after a crash;
    `timeout` is in seconds. With `needs_approval`, a call waits until a person has approved it; it
    may be a function that is given the arguments and returns whether that is so.

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
    for given in options:
        if given not in _OPTIONS:
            raise unexpected_keyword("tool", given, _OPTIONS)
    if function is not None:
        return FunctionTool(function, **options)
    return partial(FunctionTool, **options)


_OPTIONS: Final = ("name", "description", "idempotent", "timeout", "needs_approval")


def _check_options(
    function: object, timeout: float | None, idempotent: object, *, needs_approval: object = False
) -> None:
    if not callable(function):
        detail = f"must be a function, not {describe_argument(function)}"
        hint = f"; for a name write @tool(name={function!r})" if isinstance(function, str) else ""
        raise ValidationError(detail + hint, path="$.function", rule="tool-definition")
    if timeout is not None:
        check_number(timeout, "$.timeout")
    check_argument(idempotent, bool, "$.idempotent", "True or False")
    wanted = "True, False or a plain function that takes the arguments and returns one of them"
    if callable(needs_approval):  # what an async one returns would count as True
        check_callable(needs_approval, "$.needs_approval", wanted, takes=1, plain=True)
    else:
        check_argument(needs_approval, bool, "$.needs_approval", wanted)


_CLASS: Final = re.compile(r"schema_hook.*type <class '([^']+)'>", re.DOTALL)
_USE: Final = "take text, numbers, lists, dicts, a dataclass or a pydantic model instead"


class _Field(NamedTuple):
    """An argument: its name, its type, and its default or `inspect.Parameter.empty`."""

    name: str
    kind: Any
    default: Any
    description: str


def _fields(
    function: Callable[..., Any], described: Mapping[str, str]
) -> tuple[str | None, list[_Field]]:
    """Return the name of the parameter that takes the context, and all others as fields."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise _not_a_tool(function, "it does not say which arguments it takes") from None
    hints, context = _hints(function), None
    fields: list[_Field] = []
    for name, parameter in signature.parameters.items():
        kind: Any = hints.get(name, Any)
        if kind is ToolContext or ToolContext in get_args(kind):
            context = name
            continue
        if name in ("self", "cls") and name not in hints and not fields:
            detail = f"it is a method, and no model can give {name!r}: make a tool of the method "
            raise _not_a_tool(function, detail + "of an object, as in tool(shop.order)")
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            detail = f"{name!r} is no argument that a model can give by name: write each argument "
            raise _not_a_tool(function, detail + "by itself, without *, ** and /")
        if parameter.default is None:
            kind = kind | None if kind is not Any else kind  # `days: int = None` is often written
        description = described.get(name) or next(
            filter(_is_text, getattr(kind, "__metadata__", ())), ""
        )
        fields.append(_Field(name, kind, parameter.default, description))
    return context, fields


class _PlainArguments:
    """The arguments of a function, with types that msgspec knows."""

    def __init__(self, function: Callable[..., Any], fields: list[_Field]) -> None:
        made: list[Any] = []
        for name, kind, default, description in fields:
            if description:
                kind = Annotated[kind, msgspec.Meta(description=description)]  # noqa: PLW2901
            missing = default is inspect.Parameter.empty
            made.append((name, kind) if missing else (name, kind, _default(default)))
            _check_kind(function, name, kind)
        try:
            self._type = msgspec.defstruct(
                "Arguments", made, kw_only=True, forbid_unknown_fields=True
            )
        except (TypeError, ValueError) as error:
            raise _not_a_tool(function, str(error)) from None
        self.schema = _schema(self._type)

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as the function gets them."""
        try:
            checked = convert(arguments, self._type)
        except msgspec.ValidationError:
            checked = convert(_integers(arguments), self._type)
        return {name: getattr(checked, name) for name in self._type.__struct_fields__}


class _PydanticArguments:
    """The arguments of a function that has pydantic's models or fields among its types."""

    def __init__(self, function: Callable[..., Any], fields: list[_Field]) -> None:
        made: dict[str, Any] = {}
        try:
            pydantic: Any = importlib.import_module("pydantic")
            for name, kind, default, description in fields:
                refuse_meta(kind)
                if description:
                    kind = Annotated[kind, pydantic.Field(description=description)]  # noqa: PLW2901
                made[name] = (kind, ... if default is inspect.Parameter.empty else default)
            self._model = pydantic.create_model(
                "Arguments",
                __config__={"extra": "forbid", "arbitrary_types_allowed": False},
                **made,
            )
            self.schema: dict[str, Any] = self._model.model_json_schema()
        except Exception as error:  # noqa: BLE001 - pydantic has several of them
            why = str(error).partition("\n")[0]
            raise _not_a_tool(function, f"one of its arguments: {why}; {_USE}") from None
        self.schema.pop("title", None)

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as the function gets them."""
        checked: Any = self._model.model_validate(msgspec.to_builtins(arguments))
        return {name: getattr(checked, name) for name in type(checked).model_fields}


def _is_for_pydantic(field: _Field) -> bool:
    return is_pydantic(field.kind) or is_pydantic(field.default)


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


def _check_kind(function: Callable[..., Any], name: str, kind: object) -> None:
    """Raise `ValidationError` if an argument's type can't be written as a JSON schema."""
    try:
        msgspec.json.schema(kind)
    except (TypeError, ValueError) as error:
        why = explain_type(error)
        raise _not_a_tool(function, f"its argument {name!r}: {why}; {_USE}") from None


def explain_type(error: Exception) -> str:
    """Return in one sentence why a type has no JSON schema, as msgspec or pydantic found."""
    found = _CLASS.search(str(error))
    return f"{found[1]} is no type of JSON" if found else " ".join(str(error).split())


def _schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema of a type, as one object with its definitions inside."""
    (found,), shared = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
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


# ── JSON schemas ────────────────────────────────────────────────────────────────────────────────


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
        """Take the description; `function` gets the arguments as one dict, and may be async.

        Raises `ValidationError` if arguments can't be checked against the schema.
        """
        _check_options(function, timeout, idempotent)
        check_name(name, "$.name")
        check_argument(parameters, Mapping, "$.parameters", "a JSON schema of an object")
        self.spec = ToolSpec(name, description, parameters)
        self.idempotent = idempotent
        self.timeout = timeout
        self._function = function
        self._checker = ArgumentChecker(parameters)

    def check(self, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """Return a copy of the arguments; `ValidationError` if they don't fit the schema."""
        return self._checker.check(arguments)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Check the arguments and run the function."""
        given = self.check(arguments)  # the function may change it
        return await call_function(partial(self._function, given), context)


def check_arguments(schema: Mapping[str, Any], arguments: object) -> None:
    """Raise `ValidationError` for the first argument that does not fit a schema.

    An `ArgumentChecker` does the same for many arguments.

    >>> check_arguments({"type": "object", "required": ["city"]}, {})
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.city: is missing [tool-arguments]
    """
    ArgumentChecker(schema).check(arguments)


_MAX_CHECKS: Final = 100_000
"""The most subschemas that a schema may have, counted with every reference followed."""
_MAX_PATTERNS: Final = 100
"""The most regular expressions in a schema."""
_PATTERN_BYTES: Final = 10_000_000, 500_000
"""How large they may become together, and each of them in any case: a megabyte takes some 5 ms."""
_MAX_STEPS: Final = 100_000
"""How far a regular expression with lookaround or backreferences may go; others need no limit."""
_MAX_DESCRIBED: Final = 1_000_000
"""The most subschemas times values: the library copies a value for each that it describes."""
_MAX_SECONDS: Final = 1.0
"""How long references are looked into to describe one problem."""
_LONGEST: Final = 400
_DOCUMENT: Final = "palaver:///arguments"
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_UNEVALUATED: Final = frozenset(("unevaluatedItems", "unevaluatedProperties"))
_SENTENCES: Final[Mapping[str, str]] = {
    "additionalItems": "must be at most {} items",
    "const": "must be {!r}",
    "contains": "does not contain the items that it must contain",
    "exclusiveMaximum": "must be less than {}",
    "exclusiveMinimum": "must be more than {}",
    "falseSchema": "is not allowed here",
    "maxItems": "must be at most {} items",
    "maxLength": "must be at most {} characters",
    "maxProperties": "must be at most {} fields",
    "maximum": "must be at most {}",
    "minItems": "must be at least {} items",
    "minLength": "must be at least {} characters",
    "minProperties": "must be at least {} fields",
    "minimum": "must be at least {}",
    "multipleOf": "must be a multiple of {}",
    "not": "is of a form that is not allowed",
    "oneOf": "is of several of the forms of which it must have exactly one",
    "pattern": "must match the pattern {}",
    "unevaluatedItems": "has items that are not allowed",
    "uniqueItems": "must have no item twice",
}


class ArgumentChecker:
    """A JSON schema that was compiled to check arguments with.

    The draft is the one that `$schema` names, or else 2020-12. As the drafts have it, `format` is
    for the reader and is not checked.

    >>> ArgumentChecker({"prefixItems": [{"type": "integer"}, {"type": "string"}]}).check([1, 2])
    Traceback (most recent call last):
    palaver.errors.ValidationError: $[1]: must be string, not a whole number [tool-arguments]
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Compile a schema; raise `ValidationError` if arguments can't be checked against it."""
        if is_deeper(schema, MAX_DEPTH):
            raise _unusable(f"it is nested deeper than {MAX_DEPTH} levels")
        try:
            self._document: Any = msgspec.to_builtins(schema)
        except (TypeError, ValueError) as error:
            raise _unusable(f"it is no JSON: {error}") from None
        nodes = list(_nodes(self._document))
        patterns = sum(_count_patterns(node) for node in nodes)
        if patterns > _MAX_PATTERNS:
            raise _unusable(
                f"it has {patterns} regular expressions, and {_MAX_PATTERNS} is the most"
            )
        if _count_checks(self._document, nodes) > _MAX_CHECKS:
            detail = "its references lead to more than {:,} subschemas; use fewer in one another"
            raise _unusable(detail.format(_MAX_CHECKS))
        total, least = _PATTERN_BYTES
        self._pattern_bytes = max(least, total // max(1, patterns))
        self._size = len(nodes)
        self._validator = _compile(self._document, self._pattern_bytes)

    def check(self, arguments: object) -> Any:  # noqa: ANN401 - JSON
        """Return the arguments as plain values of their own; raise `ValidationError` for others."""
        if not isinstance(arguments, FrozenDict) and is_deeper(arguments, MAX_DEPTH):
            raise _refused("$", f"is nested deeper than {MAX_DEPTH} levels")
        try:
            given: Any = msgspec.to_builtins(arguments)
            if self._validator.is_valid(given):
                return given
        except (TypeError, ValueError) as error:
            raise _refused("$", f"is no JSON: {error}") from None
        raise self._describe(given)

    def _describe(self, given: object) -> ValidationError:
        problem = None
        if self._size * sum(1 for _ in _nodes(given)) <= _MAX_DESCRIBED:
            with suppress(Exception):  # it is refused in any case, if with fewer words
                problem = _Description(self._document, self._pattern_bytes).problem(given)
        if problem is None:
            detail = (
                "does not fit the schema of the tool's arguments: look at every field's name and"
            )
            return _refused("$", f"{detail} type, at what is required, and at what is not known")
        return _refused("$" + "".join(map(path_step, problem.path)), problem.detail)


def is_deeper(value: object, most: int) -> bool:
    """Return whether objects and lists are nested in one another more than `most` deep."""
    level: list[object] = [value]
    for _ in range(most):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return False
    return any(is_object(one) or is_list(one) for one in level)


def _inside(value: object) -> Iterable[object]:
    return value.values() if is_object(value) else value if is_list(value) else ()


def _nodes(value: object) -> Iterator[object]:
    """Yield a value and all values in it."""
    waiting = [value]
    while waiting:
        yield (one := waiting.pop())
        waiting += _inside(one)


def _refused(path: str, detail: str) -> ValidationError:
    cut = detail if len(detail) <= _LONGEST else f"{detail[:_LONGEST]}…"
    return ValidationError(cut, path=path, rule="tool-arguments")


def _unusable(detail: str, where: str = "") -> ValidationError:
    detail = f"arguments can't be checked against this schema: {detail[:_LONGEST]}"
    return ValidationError(detail, path=f"$.parameters{where}", rule="tool-definition")


def _compile(document: Any, pattern_bytes: int, **options: Any) -> jsonschema_rs.Validator:  # noqa: ANN401 - a schema
    """Compile a document; its regular expressions take linear time or a limited number of steps."""
    try:
        import jsonschema_rs as library  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise _unusable("that needs one more package: pip install 'palaver[schema]'") from None
    compile_with = partial(
        library.validator_for, document, offline=True, validate_formats=False, **options
    )
    with suppress(ValueError):  # it may have a pattern that the linear engine does not know
        return compile_with(pattern_options=library.RegexOptions(size_limit=pattern_bytes))
    try:
        bounded = library.FancyRegexOptions(_MAX_STEPS, size_limit=pattern_bytes)
        return compile_with(pattern_options=bounded)
    except library.ValidationError as error:
        kinds, message = library.ValidationErrorKind, error.message
        if isinstance(error.kind, kinds.AnyOf):  # a type, or a list of them
            message = error.kind.context[0][0].message
        elif isinstance(error.kind, kinds.Referencing):
            detail = "all that it refers to must be in it, for nothing is fetched"
            message = f"{detail}: {message}"
        elif isinstance(error.kind, kinds.Format):
            message = f"{message}, or it is too large"
        where = "".join(map(path_step, error.instance_path))
        raise _unusable(message, where) from None
    except ValueError as error:
        raise _unusable(str(error)) from None


def _count_patterns(node: object) -> int:
    if not is_object(node):
        return 0
    by_name = node.get("patternProperties")
    return isinstance(node.get("pattern"), str) + (len(by_name) if is_object(by_name) else 0)


def _count_checks(document: object, nodes: list[object]) -> int:
    """Count the subschemas with every reference followed; one that leads back counts as one.

    A value may be checked against all of them, and definitions that each use the next one twice
    double their number. Where it is unclear what is referred to, the largest is taken.
    """
    named = [node for node in nodes if is_object(node)]
    roots = [document, *(node for node in named if isinstance(node.get("$id"), str))]
    by_name, counts = _by_name(named), dict[int, int]()

    def targets(reference: str) -> Iterable[object]:
        address, _, fragment = reference.partition("#")
        if fragment and not fragment.startswith("/"):
            return by_name.get(unquote(fragment), ())
        within = by_name.get(address.rpartition("/")[2], roots) if address else roots
        return (_follow(root, unquote(fragment)) for root in within)

    def count(node: object) -> int:
        if not (is_object(node) or is_list(node)):
            return 0
        if id(node) not in counts:
            counts[id(node)] = 1
            total = 1 + sum(map(count, _inside(node)))
            if node is document and is_object(node):  # definitions count where they are used
                total -= sum(count(node.get(name)) for name in ("$defs", "definitions"))
            for reference in _references(node):
                total += max(map(count, targets(reference)), default=0)
            counts[id(node)] = total
        return counts[id(node)]

    try:
        return count(document)
    except RecursionError:  # references that lead to references, a thousand times
        return _MAX_CHECKS + 1


def _by_name(nodes: Iterable[Mapping[str, Any]]) -> dict[str, list[object]]:
    """Return the subschemas by anchor and by the last step of their id."""
    found: dict[str, list[object]] = {}
    for node in nodes:
        for name in (node.get(key) for key in ("$anchor", "$dynamicAnchor", "$id")):
            if isinstance(name, str):  # draft 7 writes an anchor as the id `#name`
                found.setdefault(name.rpartition("/")[2].strip("#"), []).append(node)
    return found


def _references(node: object) -> list[str]:
    if not is_object(node):
        return []
    return [node[name] for name in _REFERENCES if isinstance(node.get(name), str)]


def _follow(value: object, pointer: str) -> object:
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if is_object(value):
            value = value.get(name)
        else:
            value = dict(enumerate(_inside(value))).get(int(name)) if name.isdecimal() else None
    return value


def _hide_references(value: Any) -> Any:  # noqa: ANN401 - a schema
    """Return a schema with each reference as `{"allOf": [{"not": {"not": {"$ref": …}}}]}`.

    What a negation holds evaluates nothing, so `unevaluatedProperties` and the like are left out.
    """
    if is_list(value):
        return [_hide_references(one) for one in value]
    if not is_object(value):
        return value
    made = {name: _hide_references(one) for name, one in value.items() if name not in _UNEVALUATED}
    hidden = [
        {"not": {"not": {name: made.pop(name)}}}
        for name in _REFERENCES
        if isinstance(made.get(name), str)
    ]
    return {**made, "allOf": [*made.get("allOf", ()), *hidden]} if hidden else made


class _Problem(NamedTuple):
    """What is wrong with the value at the end of a path; `types` if it is of none of these."""

    path: tuple[str | int, ...]
    detail: str
    types: tuple[str, ...] = ()


class _Description:
    """Describes what is wrong with a value that does not fit a document, in bounded time.

    The library describes a value that fits none of several forms by what is wrong with it in each,
    and follows references to do so: with a few that lead back, this takes exponential time. So
    references are hidden in a double negation, which the library does not look into, and those that
    fail are described one after the other.
    """

    def __init__(self, document: Any, pattern_bytes: int) -> None:  # noqa: ANN401 - a schema
        import jsonschema_rs  # noqa: PLC0415 - an extra, and it is there

        self._error = jsonschema_rs.ValidationError
        self._kinds = jsonschema_rs.ValidationErrorKind
        named = document.get("$id") if is_object(document) else None
        self._base = named if isinstance(named, str) and "://" in named else _DOCUMENT
        hides = any(map(_references, _nodes(document)))
        described: Any = _hide_references(document) if hides else document
        self._registry = jsonschema_rs.Registry([(self._base, described)])
        self._pattern_bytes = pattern_bytes
        self._end = time.monotonic() + _MAX_SECONDS

    def problem(self, value: object) -> _Problem | None:
        """Return the first problem, or None if it can't be described."""
        return self._describe(self._base, value)

    def _describe(self, reference: str, value: object) -> _Problem | None:
        if time.monotonic() > self._end:
            return None
        try:
            document = {"$ref": reference}
            validator = _compile(document, self._pattern_bytes, registry=self._registry)
        except ValidationError:  # it refers to what hiding has moved
            return None
        try:
            validator.validate(value)
        except self._error as error:
            return self._read(error)
        return None

    def _read(self, error: jsonschema_rs.ValidationError) -> _Problem:
        """Return the problem that an error of the library is about."""
        kinds, kind, path = self._kinds, error.kind, tuple(error.instance_path)
        found, at = None, error.absolute_keyword_location or ""
        if isinstance(kind, kinds.AnyOf | kinds.OneOfNotValid):
            found = _choose([self._read(first) for first, *_ in kind.context], error.instance)
        elif isinstance(kind, kinds.Not) and is_object(kind.schema):
            if _references(kind.schema.get("not")):
                inner = self._describe(f"{at}/not", error.instance)
                inner = inner or _Problem((), "does not fit what the schema refers to")
                found = inner._replace(path=path + inner.path)
        elif isinstance(kind, kinds.Type):
            found = _of_types(path, kind.types, error.instance)
        elif isinstance(kind, kinds.Required):
            found = _Problem((*path, kind.property), "is missing")
        elif isinstance(kind, kinds.AdditionalProperties | kinds.UnevaluatedProperties):
            found = _Problem((*path, kind.unexpected[0]), f"is not known{self._known(at)}")
        elif isinstance(kind, kinds.FalseSchema) and at.endswith("/additionalProperties"):
            found = _Problem(path, "must have no fields")
        return found or _Problem(path, self._sentence(kind))

    def _sentence(self, kind: jsonschema_rs.ValidationErrorKind) -> str:
        if isinstance(kind, self._kinds.Enum):
            return f"must be one of {', '.join(map(repr, kind.options[:20]))}"
        if isinstance(kind, self._kinds.PropertyNames):
            return f"has a field whose name {self._read(kind.error).detail}"
        other = f"does not fit {kind.name} in the schema"
        return _SENTENCES.get(kind.name, other).format(kind.value)

    def _known(self, location: str) -> str:
        """Return the names of the fields beside a keyword, as part of a sentence."""
        parent = location.rpartition("/")[0]
        beside = self._registry.resolver(self._base).lookup(parent).contents
        fields = beside.get("properties") if is_object(beside) else None
        return f"; there are: {', '.join(fields)}" if is_object(fields) and fields else ""


def _of_types(path: tuple[str | int, ...], types: Iterable[str], value: object) -> _Problem:
    wanted = tuple(dict.fromkeys(types))
    return _Problem(path, f"must be {' or '.join(wanted)}, not {kind_of(value)}", wanted)


def _choose(forms: list[_Problem], value: object) -> _Problem | None:
    """Return the problem of the form that was meant: the deepest, or the types of all together."""
    if forms and all(form.types and form.path == forms[0].path for form in forms):
        return _of_types(forms[0].path, (name for form in forms for name in form.types), value)
    return max(forms, key=lambda form: len(form.path), default=None)
