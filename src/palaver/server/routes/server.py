"""The server itself: health, sessions, what it has, its metrics, its live events and its API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

from litestar import Request, Response, delete, get, post
from litestar.datastructures import Cookie
from litestar.enums import MediaType
from litestar.params import HeaderParameter, JSONBody, QueryParameter
from litestar.response import Stream

from palaver import __version__, wire
from palaver.messages.codec import to_dict
from palaver.server.errors import RequestRefused
from palaver.server.live import read_event_id
from palaver.server.openapi import openapi_document
from palaver.server.requests import Shape
from palaver.server.security import cookie_value
from palaver.server.services import ServiceDependency
from palaver.server.services.attachments import MAX_FILE, MAX_FILES
from palaver.server.services.models import ModelInfo
from palaver.server.services.teams import TEAM_TAG

if TYPE_CHECKING:
    from palaver.server.app import App
    from palaver.stores import Store

__all__ = ["ROUTES"]

_MONTH: Final = 30 * 24 * 3600
_LISTED_TEAMS: Final = 50

_StoreKind = Literal["sqlite", "postgres", "memory", "other"]
_STORE_KINDS: Final[dict[str, _StoreKind]] = {
    "sqlite": "sqlite",
    "postgres": "postgres",
    "memory": "memory",
}
_EventId = Annotated[str | None, QueryParameter(max_length=40)]
_LastEventId = Annotated[str | None, HeaderParameter(name="Last-Event-ID", max_length=40)]
_Conversation = Annotated[str | None, QueryParameter(max_length=200)]


class Health(Shape, frozen=True):
    """The server is up."""

    status: Literal["ok"]
    version: str


class LoginRequest(Shape, frozen=True):
    """The token, for which a cookie is given."""

    token: str


class ToolInfo(Shape, frozen=True):
    """A tool that models may call."""

    name: str
    description: str
    schema: dict[str, Any]


class TeamInfo(Shape, frozen=True):
    """A conversation that has a team."""

    conversation: str
    title: str | None


class ServerLimits(Shape, frozen=True):
    """Limits of the server: bytes in a body, steps at once, bytes of a file, files of a message."""

    body: int
    steps: int
    file: int
    files: int


class ServerInfo(Shape, frozen=True):
    """What this server has and can do; `cursor` is the id of the last event.

    `discovers` says whether the transcripts of other programs on its machine can be brought in.
    """

    version: str
    store: _StoreKind
    read_only: bool
    models: list[ModelInfo]
    tools: list[ToolInfo]
    formats: list[str]
    teams: list[TeamInfo]
    limits: ServerLimits
    cursor: str
    discovers: bool


@get("/openapi.json", include_in_schema=False, sync_to_thread=True)
def api() -> Response[bytes]:
    """Get the OpenAPI 3.1 document of this API."""
    return Response(openapi_document(), media_type=MediaType.JSON)


@get("/health", opt={"open": True})
async def health() -> Health:
    """Check that the server is up; no token is needed."""
    return Health(status="ok", version=__version__)


@post("/session", status_code=204, opt={"reads": True, "open": True})
async def log_in(
    request: Request[Any, Any, Any], data: JSONBody[LoginRequest], service: ServiceDependency
) -> Response[None]:
    """Exchange the token for a cookie that no script can read."""
    if not service.gate.matches_token(data.token):
        service.gate.count_guess(request.scope.get("client"))
        raise RequestRefused(401, "this is not the server's token", path="$.token")
    secure = request.headers.get("origin", "").startswith("https:")
    cookie = Cookie(
        key=_cookie_name(request),
        value=cookie_value(service.settings.token),
        path="/",
        max_age=_MONTH,
        httponly=True,
        samesite="strict",
        secure=secure,
    )
    return Response(None, status_code=204, cookies=[cookie])


@delete("/session", opt={"reads": True})
async def log_out(request: Request[Any, Any, Any]) -> Response[None]:
    """Remove the cookie."""
    cookie = Cookie(
        key=_cookie_name(request), value="", path="/", max_age=0, httponly=True, samesite="strict"
    )
    return Response(None, status_code=204, cookies=[cookie])


@get("/info", sync_to_thread=True)
def info(service: ServiceDependency) -> ServerInfo:
    """Get what this server has and can do."""
    settings = service.settings
    return ServerInfo(
        version=__version__,
        store=_STORE_KINDS.get(service.store.kind, "other"),
        read_only=settings.read_only,
        models=service.models.list(),
        tools=[
            ToolInfo(
                name=tool.spec.name,
                description=tool.spec.description,
                schema=to_dict(tool.spec.schema),
            )
            for tool in service.tools
        ],
        formats=list(wire.FORMATS),
        teams=_list_teams(service.store),
        limits=ServerLimits(
            body=settings.body, steps=settings.steps, file=MAX_FILE, files=MAX_FILES
        ),
        cursor=service.live.last,
        discovers=settings.discover and not settings.read_only,
    )


@get("/metrics", media_type=MediaType.TEXT)
async def metrics(request: Request[Any, Any, Any], service: ServiceDependency) -> str:
    """Get the metrics of this process in Prometheus' text format."""
    app = cast("App", request.app)
    return app.metrics.text({"palaver_streams": service.live.streams})


@get("/events", media_type="text/event-stream")
async def events(
    service: ServiceDependency,
    conversation: _Conversation = None,
    after: _EventId = None,
    last_event_id: _LastEventId = None,
) -> Stream:
    """Stream events as they happen, of one conversation or of all; after a break, from an id on."""
    since = last_event_id or after
    position = read_event_id(since) if since else None
    service.live.reserve_stream()
    headers = {"X-Accel-Buffering": "no"}
    stream = service.live.stream(conversation, position)
    return Stream(stream, media_type="text/event-stream", headers=headers)


def _cookie_name(request: Request[Any, Any, Any]) -> str:
    server = request.scope.get("server")
    return f"palaver_{server[1] if server else None}"


def _list_teams(store: Store) -> list[TeamInfo]:
    heads = store.list(limit=_LISTED_TEAMS, tag=TEAM_TAG).conversations
    return [TeamInfo(conversation=head.id, title=head.title) for head in heads]


ROUTES: Final = [api, health, log_in, log_out, info, metrics, events]
