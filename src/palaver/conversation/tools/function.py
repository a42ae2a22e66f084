"""Python functions as tools: the schema is their signature, the description their docstring.

A parameter of type `ToolContext` is filled in by palaver and is no business of the model's. Plain
functions run in a thread, async ones in the loop.
"""

from __future__ import annotations

import inspect
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard, get_args, get_type_hints, overload

import msgspec

from palaver.conversation.tools.base import ToolContext
from palaver.conversation.tools.calling import called
from palaver.conversation.tools.docstrings import read_docstring
from palaver.errors import ValidationError
from palaver.messages.decoding import convert
from palaver.messages.gate import is_list, is_object
from palaver.wire.tools import ToolSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from palaver.conversation.tools.base import ToolOutput

__all__ = ["FunctionTool", "tool"]


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
        """Read the signature and the docstring."""
        self.idempotent = idempotent
        self.timeout = timeout
        self._function = function
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise _refused(function, "a tool returns its result once, it does not yield")
        told = read_docstring(
            "" if isinstance(function, partial) else inspect.getdoc(function) or ""
        )
        self._context, self._type = _arguments(function, told.arguments)
        self.spec = ToolSpec(
            name or _name(function),
            told.text if description is None else description,
            _schema(function, self._type),
        )

    def __call__(self, *args: Any, **keywords: Any) -> Any:  # noqa: ANN401 - the function's own
        """Call the function itself."""
        return self._function(*args, **keywords)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Check the arguments and run it."""
        try:
            checked = self._checked(arguments)
        except msgspec.ValidationError as error:
            raise ValidationError(str(error), path="$.arguments", rule="CV-05") from None
        given = {name: getattr(checked, name) for name in self._type.__struct_fields__}
        if self._context is not None:
            given[self._context] = context
        return await called(partial(self._function, **given), context)

    def _checked(self, arguments: Mapping[str, Any]) -> msgspec.Struct:
        try:
            return convert(arguments, self._type)
        except msgspec.ValidationError:
            return convert(_whole(arguments), self._type)


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

    `idempotent` says that it may run again when nobody knows whether it ran; `timeout` is in
    seconds.

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


def _arguments(
    function: Callable[..., Any], described: Mapping[str, str]
) -> tuple[str | None, type[msgspec.Struct]]:
    """The name of the parameter that wants the context, and a type of all others."""
    signature, hints, context = inspect.signature(function), _hints(function), None
    fields: list[Any] = []
    for name, parameter in signature.parameters.items():
        kind: Any = hints.get(name, Any)
        if kind is ToolContext or ToolContext in get_args(kind):
            context = name
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise _refused(function, f"{name!r} is no argument that a model can give by name")
        if parameter.default is None:
            kind = kind | None if kind is not Any else kind  # `days: int = None` is often written
        words = described.get(name) or next(filter(_is_text, getattr(kind, "__metadata__", ())), "")
        if words:
            kind = Annotated[kind, msgspec.Meta(description=words)]
        missing = parameter.default is parameter.empty
        fields.append((name, kind) if missing else (name, kind, _default(parameter.default)))
    try:
        made = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
    except (TypeError, ValueError) as error:
        raise _refused(function, str(error)) from None
    return context, made


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    bare: Any = function.func if isinstance(function, partial) else function
    if not inspect.isroutine(bare):
        bare = bare.__call__  # an object that can be called
    try:
        return get_type_hints(bare, include_extras=True)
    except (NameError, TypeError) as error:
        detail = f"its annotations can't be read: {error}"
        raise _refused(function, detail) from None


def _whole(value: Any) -> Any:  # noqa: ANN401 - JSON
    """The same with 3 for 3.0: some models write every number so."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if is_object(value):
        return {name: _whole(item) for name, item in value.items()}
    return [_whole(item) for item in value] if is_list(value) else value


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)


def _default(value: Any) -> Any:  # noqa: ANN401 - whatever the signature has
    if isinstance(value, list | dict | set | bytearray):
        return msgspec.field(default_factory=partial(copy, value))
    try:
        msgspec.json.encode(value)
    except TypeError:
        return msgspec.field(default_factory=lambda: value)  # the schema can't spell it
    return value


def _schema(function: Callable[..., Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of a type, as one object with its definitions beside it."""
    try:
        (found,), shared = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise _refused(function, str(error)) from None
    name = found["$ref"].rpartition("/")[2]
    schema = dict(shared.pop(name))
    schema.pop("title", None)
    return {**schema, "$defs": shared} if shared else schema


def _name(function: Callable[..., Any]) -> str:
    bare = function.func if isinstance(function, partial) else function
    return str(getattr(bare, "__name__", type(bare).__name__))


def _refused(function: Callable[..., Any], detail: str) -> ValidationError:
    detail = f"{_name(function)} can't be a tool: {detail}"
    return ValidationError(detail, path="$.tools", rule="CV-05")
