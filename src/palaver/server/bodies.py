"""Bodies in and out: JSON straight into values and straight from them, with errors that say where.

litestar would read a body into dicts, forgive wrong types, and convert. Here the types decide: a
body is decoded once, strictly, by msgspec, and what is wrong with it is told like everything that
palaver refuses. For messages even that is too early: they stay the bytes they are until palaver's
own reader takes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from litestar.dto import AbstractDTO
from litestar.openapi.spec import Schema
from msgspec import Struct

from palaver.errors import ValidationError
from palaver.messages.codec import load_json, translated
from palaver.messages.decoding import convert, prepared
from palaver.messages.duplicates import check_unique

if TYPE_CHECKING:
    from collections.abc import Generator

    from litestar.dto.data_structures import DTOFieldDefinition
    from litestar.typing import FieldDefinition

__all__ = ["Bodies", "Shape", "converted", "missing_body", "read_body"]

_T = TypeVar("_T")


class Shape(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A body: camelCase in JSON, and no field that nobody knows."""


def read_body(data: bytes, kind: Any) -> Any:  # noqa: ANN401 - a value of the kind
    """Read a body as a kind of value; what is wrong with it is told with its place.

    >>> class Cup(Shape, frozen=True):
    ...     size: int
    >>> read_body(b'{"size": 3}', Cup)
    Cup(size=3)
    >>> read_body(b'{"size": "3"}', Cup)
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.size: Expected `int`, got `str` [schema]
    >>> read_body(b'{"size": 3, "size": 4}', Cup)
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.size: stands twice in the same object; ... [json.duplicate]
    >>> read_body(b"{}", Cup)
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.size: is missing; the body needs size (integer) [schema]
    """
    if not data.strip():
        raise missing_body(kind)
    try:
        value = prepared(kind).decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        load_json(data)  # says it better, where the text itself is wrong
        if isinstance(error, msgspec.ValidationError):
            raise _told(translated(error, {}), kind) from None
        raise  # pragma: no cover - what is wrong with the text, load_json has said
    check_unique(data)
    return value


def missing_body(kind: Any) -> ValidationError:  # noqa: ANN401 - a type
    """What is said of a request whose body is empty: which fields it needs, and of which types.

    >>> class Cup(Shape, frozen=True):
    ...     size: int
    ...     name: str | None = None
    >>> str(missing_body(Cup))
    '$: the body is empty; it must be a JSON object with size (integer) [json]'
    """
    needed = _fields(kind, required=True)
    allowed = _fields(kind, required=False)
    more = f" with {needed}" if needed else f", {{}} at least; it may have {allowed}"
    return ValidationError(f"the body is empty; it must be a JSON object{more}", rule="json")


def _told(error: ValidationError, kind: Any) -> ValidationError:  # noqa: ANN401 - a type
    """The error; of a field of the body that is missing it says which ones it needs."""
    if error.detail != "is missing" or error.path.count(".") != 1 or "[" in error.path:
        return error
    detail = f"{error.detail}; the body needs {_fields(kind, required=True)}"
    return ValidationError(detail, path=error.path, rule=error.rule)


def _fields(kind: Any, *, required: bool) -> str:  # noqa: ANN401 - a type
    """The fields of a body in words, with their types in JSON."""
    (shape,), schemas = msgspec.json.schema_components([kind], ref_template="{name}")
    found = schemas[shape["$ref"]]
    names = [name for name in found["properties"] if (name in found["required"]) is required]
    return ", ".join(f"{name} ({_type_of(found['properties'][name], schemas)})" for name in names)


def _type_of(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    """The type that a JSON schema allows, in words."""
    if "$ref" in schema:
        return _type_of(schemas[schema["$ref"]], schemas)
    if "enum" in schema:
        return " or ".join("null" if one is None else str(one) for one in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type_of(one, schemas) for one in schema["anyOf"]))
    types = schema.get("type", "any value")
    return types if isinstance(types, str) else " or ".join(types)


def converted(value: Any, kind: type[_T], place: str) -> _T:  # noqa: ANN401 - plain JSON
    """Read plain data as a kind of value; an error's path begins at a place."""
    try:
        return convert(value, kind)
    except msgspec.ValidationError as error:
        raise translated(error, {}).under(place) from None


class Bodies(AbstractDTO[Any]):
    """How litestar reads and writes every body of this server."""

    kinds: Final[dict[str, Any]] = {}
    """The type of the body that each handler takes, by the handler's own id."""

    @classmethod
    def create_for_field_definition(
        cls, field_definition: FieldDefinition, handler_id: str, backend_cls: Any = None  # noqa: ANN401 - litestar's
    ) -> None:  # fmt: skip
        """Remember what a handler takes."""
        del backend_cls
        if field_definition.name == "data":
            cls.kinds[handler_id] = field_definition.raw

    def decode_bytes(self, value: bytes) -> Any:  # noqa: ANN401 - what the handler takes
        """Read what a handler takes."""
        return read_body(value, self.kinds[self.asgi_connection.route_handler.handler_id])

    def data_to_encodable_type(self, data: Any) -> Any:  # noqa: ANN401 - any value
        """An answer is written as it is."""
        return data

    @classmethod
    def create_openapi_schema(
        cls,
        field_definition: FieldDefinition,
        handler_id: str,
        schema_creator: Any,  # noqa: ANN401 - litestar's own
    ) -> Schema:
        """Leave a blank: `openapi` fills it in from the types."""
        del field_definition, handler_id, schema_creator
        return Schema()

    @classmethod
    def is_supported_model_type_field(cls, field_definition: FieldDefinition) -> bool:
        """Take everything."""
        del field_definition
        return True

    @classmethod
    def generate_field_definitions(
        cls, model_type: type[Any]
    ) -> Generator[DTOFieldDefinition, None, None]:
        """Look into no type: msgspec does that."""
        del model_type  # pragma: no cover - asked by backends only, and there are none
        yield from ()  # pragma: no cover - the same

    @classmethod
    def detect_nested_field(cls, field_definition: FieldDefinition) -> bool:
        """The same."""
        del field_definition  # pragma: no cover - the same
        return False  # pragma: no cover - the same
