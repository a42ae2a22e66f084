"""The server itself: is it well, who is there, what can it do, what has it counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from litestar import Request, Response, delete, get, post
from litestar.datastructures import Cookie
from litestar.enums import MediaType
from litestar.params import JSONBody

from palaver import __version__, wire
from palaver.messages.codec import to_dict
from palaver.server.openapi import document
from palaver.server.problems import Refusal
from palaver.server.security import cookie_value
from palaver.server.service import Served
from palaver.server.shapes.house import Health, Info, Limits, TeamInfo, TokenGiven, ToolInfo
from palaver.server.teams import TAG
from palaver.server.working import Workshop

if TYPE_CHECKING:
    from palaver.stores import Store

__all__ = ["ROUTES"]

_MONTH: Final = 30 * 24 * 3600
_LOOKED_AT: Final = 50


@get("/openapi.json", include_in_schema=False, sync_to_thread=True)
def api() -> Response[bytes]:
    """Describe this API in OpenAPI 3.1."""
    return Response(document(), media_type=MediaType.JSON)


@get("/health", opt={"open": True})
async def health() -> Health:
    """Say that the server is there; no token is needed."""
    return Health(status="ok", version=__version__)


@post("/session", status_code=204, opt={"reads": True, "open": True})
async def log_in(
    request: Request[Any, Any, Any], data: JSONBody[TokenGiven], service: Served
) -> Response[None]:
    """Give the token, and get a cookie that stands for it and that no script can read."""
    if not service.gate.fits(data.token):
        service.guessed(request.scope.get("client"))
        raise Refusal(401, "this is not the server's token", path="$.token")
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
    """Have the cookie forgotten."""
    cookie = Cookie(
        key=_cookie_name(request), value="", path="/", max_age=0, httponly=True, samesite="strict"
    )
    return Response(None, status_code=204, cookies=[cookie])


def _cookie_name(request: Request[Any, Any, Any]) -> str:
    server = request.scope.get("server")
    return f"palaver_{server[1] if server else None}"


@get("/info", sync_to_thread=True)
def info(service: Served) -> Info:
    """Say what this server has and can do."""
    settings, workshop = service.settings, service.part(Workshop)
    return Info(
        version=__version__,
        store=service.kind,
        read_only=settings.read_only,
        models=workshop.shelf.offers(),
        tools=[
            ToolInfo(
                name=tool.spec.name,
                description=tool.spec.description,
                schema=to_dict(tool.spec.schema),
            )
            for tool in workshop.tools
        ],
        formats=list(wire.FORMATS),
        teams=_teams(service.store),
        limits=Limits(body=settings.body, steps=settings.steps),
        cursor=service.live.last,
    )


def _teams(store: Store) -> list[TeamInfo]:
    heads = store.list(limit=_LOOKED_AT, tag=TAG).conversations
    return [TeamInfo(conversation=head.id, title=head.title) for head in heads]


@get("/metrics", media_type=MediaType.TEXT)
async def metrics(service: Served) -> str:
    """Give the counts of this process, as Prometheus reads them."""
    return service.metrics.text({"palaver_streams": service.live.streams})


ROUTES: Final = [api, health, log_in, log_out, info, metrics]
