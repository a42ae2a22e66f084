"""The OpenAPI document: the routes as litestar knows them, with the types as msgspec knows them.

Every operation lists every response that it may give: its own, and the problems that any route, or
a route of its kind, may end in. The JSON schemas come from msgspec, which also writes the JSON.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
from litestar import Litestar
from litestar.di import Provide
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.response import Response, Stream
from litestar.routes import HTTPRoute

from palaver import __version__
from palaver.messages import Message
from palaver.messages.parts import UnknownPart
from palaver.server.errors import PROBLEM_JSON, ProblemDetails
from palaver.server.requests import BodyDTO

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litestar.handlers import HTTPRouteHandler
    from litestar.typing import FieldDefinition

__all__ = ["openapi_document"]

_ALWAYS: Final = (400, 401, 403, 404, 408, 413, 414, 421, 422, 429, 503)
_WRITING: Final = (409, 415, 424)
_SCHEMAS: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"
_PART: Final = "MessagePart"
_TEXT: Final = {"type": "string"}
_BINARY: Final = {"type": "string", "format": "binary"}
_LIMITS: Final = {
    "ge": "minimum",
    "le": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
}
_REASONS: Final = {
    400: "The request can't be read, or its path is spelled in an unusual way.",
    401: "Neither the token nor the cookie was shown.",
    403: "Not from this page, or not on a read-only server.",
    404: "There is no such conversation, message or route.",
    408: "The request did not arrive in time.",
    409: "Somebody else was there first; both sides are named.",
    412: "If-Match does not name the newest version, which is `version`; nothing was changed.",
    413: "The body is too large.",
    414: "The path is too long.",
    415: "A form, which no page of this server sends.",
    421: "The server is not called that.",
    422: "Something asked for breaks a rule; `path` says where, `rule` which.",
    424: "A model, a tool or a member of a team failed.",
    429: "Too much at once; Retry-After says when to come back.",
    503: "The store can't be used.",
}


@cache
def openapi_document() -> bytes:
    """The OpenAPI 3.1 document of this API, as JSON."""
    from palaver.server.routes import ROUTES  # noqa: PLC0415 - one of them serves this

    config = OpenAPIConfig(
        title="palaver",
        version=__version__,
        description="Conversations of LLM agents: what was said, every edit, and the way back.",
        render_plugins=[JsonRenderPlugin()],
        use_handler_docstrings=True,
        operation_id_creator=_operation_id,
    )
    app = Litestar(
        ROUTES,
        openapi_config=config,
        dto=BodyDTO,
        return_dto=BodyDTO,
        dependencies={"service": Provide(lambda: None, sync_to_thread=False)},
    )
    described: dict[str, Any] = app.openapi_schema.to_schema()
    operations = list(_operations(app))
    kinds = [kind for _, _, handler in operations for kind in _body_types(handler)]
    schemas, shapes = _shapes([*kinds, ProblemDetails])
    for path, method, handler in operations:
        operation = described["paths"][path][method]
        _complete(operation, handler, method, shapes)
    described["components"] = {
        "schemas": schemas,
        "responses": {"ProblemDetails": _problem("Refused.")},
        "securitySchemes": {
            "token": {"type": "http", "scheme": "bearer"},
            "session": {"type": "apiKey", "in": "cookie", "name": "palaver_7007"},
        },
    }
    described["security"] = [{"token": []}, {"session": []}]
    return msgspec.json.encode(described)


def _operation_id(handler: HTTPRouteHandler, method: Any, path: Sequence[Any]) -> str:  # noqa: ANN401 - litestar's
    """The id of an operation: its method and the fixed parts of its path."""
    del handler
    names = [step for step in path if isinstance(step, str)][1:]
    one = [] if len(names) == len(path) - 1 or isinstance(path[-1], str) else ["one"]
    return "-".join((str(method.value).lower(), *names, *one))


def _operations(app: Litestar) -> Iterator[tuple[str, str, HTTPRouteHandler]]:
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                if handler.resolve_include_in_schema():
                    for method in sorted(handler.http_methods):
                        yield route.path_format, method.lower(), handler


# ── shapes ──────────────────────────────────────────────────────────────────────────────────────


def _response_type(handler: HTTPRouteHandler) -> Any:  # noqa: ANN401 - a type
    """The type of a handler's response; None for nothing, `Stream` for a stream."""
    found = handler.parsed_fn_signature.return_type
    if found.is_subclass_of(Stream):
        return Stream
    if found.is_subclass_of(Response):
        return found.inner_types[0].raw
    return found.raw


def _body_types(handler: HTTPRouteHandler) -> Iterator[Any]:
    field = handler.parsed_data_field
    if field is not None:
        yield field.raw
    kind = _response_type(handler)
    if kind not in {None, type(None), Stream, str, bytes}:
        yield kind


def _shapes(kinds: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schemas of all types, and the schema or reference for each of the given ones."""
    wanted = list({str(kind): kind for kind in kinds}.values())
    found, schemas = msgspec.json.schema_components(
        wanted, schema_hook=_schema_of, ref_template=_SCHEMAS
    )
    content = schemas[Message.__name__]["properties"]["content"]
    parts = next(way for way in content["anyOf"] if way.get("type") == "array")["items"]
    other = {"type": "object", "description": "A part of a kind that palaver does not know."}
    schemas[_PART] = {"anyOf": [*parts.get("anyOf", [parts]), other]}
    content["anyOf"] = [_TEXT, {"type": "array", "items": {"$ref": _SCHEMAS.format(name=_PART)}}]
    return schemas, {str(kind): shape for kind, shape in zip(wanted, found, strict=True)}


def _schema_of(kind: type[Any]) -> dict[str, Any]:
    if kind is UnknownPart:
        return {"type": "object"}
    raise NotImplementedError


# ── operations ──────────────────────────────────────────────────────────────────────────────────


def _complete(
    operation: dict[str, Any], handler: HTTPRouteHandler, method: str, shapes: dict[str, Any]
) -> None:
    """Add the request body and all responses to an operation."""
    for parameter in operation.get("parameters", []):
        _constrain(parameter, handler)
    field, takes = handler.parsed_data_field, handler.opt.get("takes")
    if field is not None:
        media: dict[str, Any] = {_JSON: {"schema": shapes[str(field.raw)]}}
        operation["requestBody"] = {"required": True, "content": media}
    elif takes is not None:
        operation["requestBody"] = {"required": True, "content": {takes: {"schema": _BINARY}}}
    good = str(handler.status_code)
    answers: dict[str, Any] = {good: _good(operation["responses"][good], handler, shapes)}
    wrong = [*_ALWAYS, *(_WRITING if method != "get" else ())]
    if any(parameter["name"] == "If-Match" for parameter in operation.get("parameters", [])):
        wrong.append(412)
    for status in sorted(wrong):
        answers[str(status)] = _problem(_REASONS[status])
    operation["responses"] = answers
    operation["summary"] = operation.get("description", "").partition("\n")[0]
    if handler.opt.get("open"):
        operation["security"] = []


def _constrain(parameter: dict[str, Any], handler: HTTPRouteHandler) -> None:
    """Add the limits of a parameter's type: litestar leaves those of optional ones out."""
    for noise in ("deprecated", "allowEmptyValue", "allowReserved"):
        parameter.pop(noise, None)
    for field in _fields(handler):
        given = field.kwarg_definition
        names = {field.name, getattr(given, "name", None)}
        if parameter["name"] not in names:
            continue
        kind = next((one for one in field.inner_types if not one.is_none_type), field)
        schema = msgspec.json.schema(kind.annotation if field.is_optional else field.annotation)
        for limit, name in _LIMITS.items():
            value = getattr(given, limit, None)
            if value is not None:
                schema[name] = value
        if field.has_default and field.default is not None:
            schema["default"] = field.default
        parameter["schema"] = schema


def _fields(handler: HTTPRouteHandler) -> list[FieldDefinition]:
    """The parameters of a handler and of its dependencies."""
    provided = handler.resolve_dependencies().values()
    signatures = [handler.parsed_fn_signature, *(one.parsed_fn_signature for one in provided)]
    return [field for one in signatures for field in one.parameters.values()]


def _good(
    described: dict[str, Any], handler: HTTPRouteHandler, shapes: dict[str, Any]
) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": described["description"]}
    kind = _response_type(handler)
    if kind in {None, type(None)}:
        return answer
    media = handler.media_type
    name = str(getattr(media, "value", media) or _JSON)
    schema = shapes.get(str(kind), _TEXT)
    if kind is Stream and name == "application/octet-stream":
        schema = _BINARY
    answer["content"] = {name: {"schema": schema}}
    if handler.parsed_fn_signature.return_type.is_subclass_of(Response):
        answer["headers"] = {"ETag": {"schema": _TEXT, "description": "The version."}}
    return answer


def _problem(why: str) -> dict[str, Any]:
    shape = {"$ref": _SCHEMAS.format(name=ProblemDetails.__name__)}
    return {"description": why, "content": {PROBLEM_JSON: {"schema": shape}}}
