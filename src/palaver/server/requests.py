"""What every route does alike with a request: JSON bodies, `If-Match`, `ETag`.

A body is decoded once and strictly by msgspec into the type that the route declares; an error names
the path of the wrong value. Messages stay raw bytes until palaver's own decoder reads them. The
entity tag of a conversation is its version, `"17"`: every response about a conversation carries it,
and a change with `If-Match: "17"` is only made if 17 is still the newest version. That check is
part of the commit; the answer is 412 otherwise.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
from litestar import Response
from litestar.dto import AbstractDTO
from litestar.openapi.spec import Schema
from litestar.params import HeaderParameter
from msgspec import Struct

from palaver.errors import ValidationError
from palaver.history import check_expected
from palaver.messages.codec import load_json, translate_error
from palaver.messages.decode import check_unique_names, convert, decoder_for

if TYPE_CHECKING:
    from collections.abc import Generator

    from litestar.dto.data_structures import DTOFieldDefinition
    from litestar.typing import FieldDefinition

    from palaver.stores import Store

__all__ = [
    "BodyDTO",
    "IdempotencyKey",
    "IfMatch",
    "Shape",
    "check_if_match",
    "convert_at",
    "missing_body",
    "read_body",
    "read_if_match",
    "with_etag",
]

_T = TypeVar("_T")

IdempotencyKey = Annotated[str | None, HeaderParameter(name="Idempotency-Key", max_length=200)]
"""The header of a change that may be sent twice and is made once."""
IfMatch = Annotated[str | None, HeaderParameter(name="If-Match", max_length=1_000)]
"""The header of a change that is only made on the newest version."""

_TAG: Final = re.compile(
    r'[ \t]*(?:(?P<weak>W/)?"(?P<quoted>[!#-~\x80-\xff]*)"|(?P<bare>[0-9]+))?[ \t]*(?:,|$)'
)
"""One member of a list of entity tags (RFC 9110, 8.8.3), which may be empty."""
_VERSION: Final = re.compile(r"0|[1-9][0-9]{0,17}")

# ── bodies ──────────────────────────────────────────────────────────────────────────────────────


class Shape(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The base of all bodies: camelCase in JSON; unknown fields are refused."""


def read_body(data: bytes, kind: Any) -> Any:  # noqa: ANN401 - a value of the kind
    """Decode a body as a type; an error names the path of what is wrong.

    >>> class Cup(Shape, frozen=True):
    ...     size: int
    >>> read_body(b'{"size": 3}', Cup)
    Cup(size=3)
    >>> read_body(b'{"size": "3"}', Cup)
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.size: Expected `int`, got `str` [schema]
    >>> read_body(b'{"size": 3, "size": 4}', Cup)
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.size: occurs twice in the same object; ... [json.duplicate]
    >>> read_body(b"{}", Cup)
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.size: is missing; the body needs size (integer) [schema]
    """
    if not data.strip():
        raise missing_body(kind)
    try:
        value = decoder_for(kind).decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        load_json(data)  # has the better message where the text itself is not JSON
        if isinstance(error, msgspec.ValidationError):
            raise _with_fields(translate_error(error, {}), kind) from None
        raise  # pragma: no cover - load_json has raised already
    check_unique_names(data)
    return value


def missing_body(kind: Any) -> ValidationError:  # noqa: ANN401 - a type
    """The error for an empty body: it names the fields that are needed, with their types.

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


def _with_fields(error: ValidationError, kind: Any) -> ValidationError:  # noqa: ANN401 - a type
    """Add the needed fields to an error about a missing field of the body itself."""
    if error.detail != "is missing" or error.path.count(".") != 1 or "[" in error.path:
        return error
    detail = f"{error.detail}; the body needs {_fields(kind, required=True)}"
    return ValidationError(detail, path=error.path, rule=error.rule)


def _fields(kind: Any, *, required: bool) -> str:  # noqa: ANN401 - a type
    """List the required or the optional fields of a body, with their JSON types."""
    (shape,), schemas = msgspec.json.schema_components([kind], ref_template="{name}")
    found = schemas[shape["$ref"]]
    names = [name for name in found["properties"] if (name in found["required"]) is required]
    return ", ".join(f"{name} ({_type_of(found['properties'][name], schemas)})" for name in names)


def _type_of(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    """Name the type that a JSON schema allows."""
    if "$ref" in schema:
        return _type_of(schemas[schema["$ref"]], schemas)
    if "enum" in schema:
        return " or ".join("null" if one is None else str(one) for one in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type_of(one, schemas) for one in schema["anyOf"]))
    types = schema.get("type", "any value")
    return types if isinstance(types, str) else " or ".join(types)


def convert_at(value: Any, kind: type[_T], path: str) -> _T:  # noqa: ANN401 - plain JSON
    """Convert plain data to a type; an error's path begins with `path`."""
    try:
        return convert(value, kind)
    except msgspec.ValidationError as error:
        raise translate_error(error, {}).under(path) from None


class BodyDTO(AbstractDTO[Any]):
    """The litestar DTO that reads and writes every body of this server."""

    kinds: Final[dict[str, Any]] = {}
    """The type of the body that each handler takes, by the handler's own id."""

    @classmethod
    def create_for_field_definition(
        cls, field_definition: FieldDefinition, handler_id: str, backend_cls: Any = None  # noqa: ANN401 - litestar's
    ) -> None:  # fmt: skip
        """Store the type of the body that a handler takes."""
        del backend_cls
        if field_definition.name == "data":
            cls.kinds[handler_id] = field_definition.raw

    def decode_bytes(self, value: bytes) -> Any:  # noqa: ANN401 - what the handler takes
        """Decode the body that a handler takes."""
        return read_body(value, self.kinds[self.asgi_connection.route_handler.handler_id])

    def data_to_encodable_type(self, data: Any) -> Any:  # noqa: ANN401 - any value
        """Return the response unchanged."""
        return data

    @classmethod
    def create_openapi_schema(
        cls,
        field_definition: FieldDefinition,
        handler_id: str,
        schema_creator: Any,  # noqa: ANN401 - litestar's own
    ) -> Schema:
        """Return an empty schema; `openapi` fills it in from the types."""
        del field_definition, handler_id, schema_creator
        return Schema()

    @classmethod
    def is_supported_model_type_field(cls, field_definition: FieldDefinition) -> bool:
        """Accept every type."""
        del field_definition
        return True

    @classmethod
    def generate_field_definitions(
        cls, model_type: type[Any]
    ) -> Generator[DTOFieldDefinition, None, None]:
        """Yield nothing: msgspec knows the fields."""
        del model_type  # pragma: no cover - asked by backends only, and there are none
        yield from ()  # pragma: no cover - the same

    @classmethod
    def detect_nested_field(cls, field_definition: FieldDefinition) -> bool:
        """Return False: msgspec knows the fields."""
        del field_definition  # pragma: no cover - the same
        return False  # pragma: no cover - the same


# ── versions ────────────────────────────────────────────────────────────────────────────────────


def with_etag(value: _T, version: int, *, status: int | None = None) -> Response[_T]:
    """A response with the version of its conversation as its ETag."""
    return Response(value, status_code=status, headers={"ETag": f'"{version}"'})


def read_if_match(header: str | None) -> frozenset[int] | None:
    """Read the versions that an `If-Match` names, as the `expect` of a change; None allows any.

    Weak tags and tags that are no version match nothing. A version without quotes is accepted.

    >>> read_if_match('"17", W/"18", "ab"'), read_if_match("*"), read_if_match(None)
    (frozenset({17}), None, None)
    >>> read_if_match("latest")
    Traceback (most recent call last):
    palaver.errors.ValidationError: If-Match: must be * or a list of entity tags, such as "17" ...
    """
    if header is None or header.strip(" \t") == "*":
        return None
    versions: set[int] = set()
    start = tags = 0
    while start < len(header):
        found = _TAG.match(header, start)
        if found is None:
            raise _malformed()
        start = found.end()
        tag = found["quoted"] if found["bare"] is None else found["bare"]
        tags += tag is not None
        if tag is not None and not found["weak"] and _VERSION.fullmatch(tag):
            versions.add(int(tag))
    if not tags:
        raise _malformed()
    return frozenset(versions)


def _malformed() -> ValidationError:
    detail = 'must be * or a list of entity tags, such as "17"'
    return ValidationError(detail, path="If-Match", rule="version")


def check_if_match(store: Store, conversation: str, header: str | None) -> None:
    """Check the `If-Match` of a request that makes no version of its own."""
    expect = read_if_match(header)
    if expect is not None:
        check_expected(expect, store.head(conversation).version)
