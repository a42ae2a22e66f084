"""The inspector page: files of the package, and nothing else. They hold no data, so they are open.

Each file is known by the hash of its bytes, so a browser asks whether it has changed and is told no
without being sent it again.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Any, Final

from litestar import Request, Response, Router, get
from litestar.params import FromPath

from palaver.server.problems import Refusal

__all__ = ["PAGE"]

_TYPES: Final = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "json": "application/json",
    "svg": "image/svg+xml",
    "png": "image/png",
    "woff2": "font/woff2",
    "webmanifest": "application/manifest+json",
}


@get("/", include_in_schema=False, sync_to_thread=True)
def index(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The page itself."""
    return _file("index.html", request)


@get("/page/{path:path}", include_in_schema=False, sync_to_thread=True)
def file(request: Request[Any, Any, Any], path: FromPath[str]) -> Response[bytes]:
    """A file of the page."""
    return _file(path.lstrip("/"), request)


def _file(name: str, request: Request[Any, Any, Any]) -> Response[bytes]:
    found = _read(name)
    if found is None:
        raise Refusal(404, "there is no such file")
    data, tag, kind = found
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(b"", status_code=304, media_type=kind, headers=headers)
    return Response(data, media_type=kind, headers=headers)


def _read(name: str) -> tuple[bytes, str, str] | None:
    """A file's bytes, tag and type; None where there is none, or none to be shown."""
    kind = _TYPES.get(name.rpartition(".")[2])
    steps = name.split("/")
    if kind is None or any(not step or step.startswith(".") or "\\" in step for step in steps):
        return None
    place = files("palaver.server").joinpath("page", *steps)
    if not place.is_file():
        return None
    data = place.read_bytes()
    return data, f'"{hashlib.sha256(data).hexdigest()[:32]}"', kind


PAGE: Final = Router("/", route_handlers=[index, file])
