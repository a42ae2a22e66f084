"""The paths under `/v1`, as OpenAI's clients know them.

A handler reads its body itself: a mistake is answered in OpenAI's own form, with the field's name.
The contract is OpenAI's published one, so these paths are not in palaver's own description.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from anyio import to_thread
from litestar import Request, Response, Router, delete, get, post
from litestar.params import FromPath, QueryParameter
from litestar.response import Stream

from palaver.errors import PalaverError
from palaver.server.errors import RequestRefused
from palaver.server.openai.shapes import ResponseRequest, refuse, respond_to_error
from palaver.server.requests import read_body
from palaver.server.services import ServiceDependency

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ["ROUTES"]

_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_NO_BUFFER: Final = {"X-Accel-Buffering": "no"}
_Limit = Annotated[int, QueryParameter(ge=1, le=100)]
_After = Annotated[int | None, QueryParameter(ge=0)]


def _events(stream: AsyncGenerator[bytes, None]) -> Stream:
    return Stream(stream, media_type=_EVENTS, headers=_NO_BUFFER)


def _page(items: list[dict[str, Any]], limit: int, order: str, after: str | None) -> dict[str, Any]:
    """A page of a list, as OpenAI has it."""
    ordered = items if order == "asc" else items[::-1]
    start = 0
    if after is not None:
        places = [index for index, item in enumerate(ordered) if item.get("id") == after]
        if not places:
            raise refuse(f"there is no item {after!r} in this list", "after", "item_not_found")
        start = places[0] + 1
    found = ordered[start : start + limit]
    return {
        "object": "list",
        "data": found,
        "first_id": found[0].get("id") if found else None,
        "last_id": found[-1].get("id") if found else None,
        "has_more": start + limit < len(ordered),
    }


# ── responses ───────────────────────────────────────────────────────────────────────────────────


@post("/responses", status_code=200)
async def create_response(
    request: Request[Any, Any, Any], service: ServiceDependency
) -> Response[Any]:
    """Answer an input: whole, as a stream, or in the background."""
    wanted: ResponseRequest = read_body(await request.body(), ResponseRequest)
    run = await service.responses.create(wanted)
    if wanted.stream:
        return _events(run.stream(-1, service.settings.heartbeat))
    if not wanted.background:
        await run.done.wait()
        if run.failure is not None:
            raise _as_refusal(run.failure)
    return Response(run.response, media_type=_JSON)


def _as_refusal(failure: Exception) -> Exception:
    """The error of a response that failed; one of palaver's own says itself what it is."""
    if isinstance(failure, PalaverError | RequestRefused):
        return failure
    return RequestRefused(500, "the response failed; the server's log says more")


@get("/responses/{response:str}")
async def get_response(
    response: FromPath[str],
    service: ServiceDependency,
    stream: bool = False,  # noqa: FBT001, FBT002 - a parameter of the query
    starting_after: _After = None,
) -> Response[Any]:
    """Get a response, or its stream from an event on."""
    if stream:
        after = -1 if starting_after is None else starting_after
        return _events(await service.responses.stream(response, after))
    return Response(await service.responses.get(response), media_type=_JSON)


@delete("/responses/{response:str}", status_code=200)
async def delete_response(response: FromPath[str], service: ServiceDependency) -> Response[Any]:
    """Forget a response."""
    await to_thread.run_sync(service.responses.delete, response)
    gone = {"id": response, "object": "response", "deleted": True}
    return Response(gone, media_type=_JSON)


@post("/responses/{response:str}/cancel", status_code=200)
async def cancel_response(response: FromPath[str], service: ServiceDependency) -> Response[Any]:
    """Stop a response that runs."""
    return Response(await service.responses.cancel(response), media_type=_JSON)


@get("/responses/{response:str}/input_items")
async def list_input_items(
    response: FromPath[str],
    service: ServiceDependency,
    limit: _Limit = 20,
    order: Literal["asc", "desc"] = "desc",
    after: str | None = None,
) -> Response[Any]:
    """List what a response was given."""
    items = await to_thread.run_sync(service.responses.input_items, response)
    return Response(_page(items, limit, order, after), media_type=_JSON)


# ── models ──────────────────────────────────────────────────────────────────────────────────────


def _model(name: str) -> dict[str, Any]:
    owner = name.partition(":")[0]
    return {"id": name, "object": "model", "created": 0, "owned_by": owner}


@get("/models")
async def list_models(service: ServiceDependency) -> Response[Any]:
    """List the models that are ready."""
    found = await to_thread.run_sync(service.models.list)
    data = [_model(info.name) for info in found if info.ready]
    return Response({"object": "list", "data": data}, media_type=_JSON)


@get("/models/{name:str}")
async def get_model(name: FromPath[str], service: ServiceDependency) -> Response[Any]:
    """Get a model by its name."""
    try:
        service.models.check(name)
    except PalaverError as error:
        raise RequestRefused(404, str(error), path="$.model", rule="model_not_found") from None
    return Response(_model(name), media_type=_JSON)


ROUTES: Final = Router(
    "/v1",
    route_handlers=[
        create_response,
        get_response,
        delete_response,
        cancel_response,
        list_input_items,
        list_models,
        get_model,
    ],
    include_in_schema=False,
    exception_handlers={Exception: respond_to_error},
)
