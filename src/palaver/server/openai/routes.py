"""The paths under `/v1`, as OpenAI's clients know them.

A handler reads its body itself: a mistake is answered in OpenAI's own form, with the field's name.
The contract is OpenAI's published one, so these paths are not in palaver's own description.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from anyio import to_thread
from litestar import Request, Response, Router, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Stream

from palaver.conversation.compaction import INSTRUCTIONS
from palaver.errors import PalaverError
from palaver.server.errors import RequestRefused
from palaver.server.openai.chat import ChatCompletions, ChatRequest
from palaver.server.openai.conversations import Conversations
from palaver.server.openai.ids import ItemId
from palaver.server.openai.items import seal_summary
from palaver.server.openai.responses import Responses
from palaver.server.openai.shapes import (
    CompactRequest,
    ConversationRequest,
    ItemsRequest,
    MetadataRequest,
    ResponseRequest,
    refuse,
    respond_to_error,
)
from palaver.server.requests import read_body

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from palaver.server.services import Service

__all__ = ["ROUTES", "Door"]

_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_NO_BUFFER: Final = {"X-Accel-Buffering": "no"}
_Limit = Annotated[int, QueryParameter(ge=1, le=100)]
_Order = Annotated[Literal["asc", "desc"], QueryParameter()]
_After = Annotated[int | None, QueryParameter(ge=0)]


class Door:
    """Everything that these routes share: a service, as OpenAI's clients see it."""

    def __init__(self, service: Service) -> None:
        """Open the door to a service."""
        self.models = service.models
        self.heartbeat = service.settings.heartbeat
        self.responses = Responses(service)
        self.conversations = Conversations(service, self.responses)
        self.chat = ChatCompletions(service, self.responses.planner)


DoorDependency: TypeAlias = NamedDependency[Door]
"""The door as a route asks for it."""


def _check_query(request: Request[Any, Any, Any], *known: str) -> None:
    """Refuse a parameter that would have no effect; what can be included always is."""
    for name in request.query_params:
        if name not in known and name.removesuffix("[]") != "include":
            allowed = ", ".join(("include", *known))
            raise refuse(f"is no parameter here; there are {allowed}", name, "unknown_parameter")


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
async def create_response(request: Request[Any, Any, Any], door: DoorDependency) -> Response[Any]:
    """Answer an input: whole, as a stream, or in the background."""
    wanted: ResponseRequest = read_body(await request.body(), ResponseRequest)
    run = await door.responses.create(wanted)
    if wanted.stream:
        return _events(run.stream(-1, door.heartbeat))
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
    request: Request[Any, Any, Any],
    response: FromPath[str],
    door: DoorDependency,
    stream: FromQuery[bool] = False,  # noqa: FBT002 - a parameter of the query
    starting_after: _After = None,
) -> Response[Any]:
    """Get a response, or its stream from an event on."""
    _check_query(request, "stream", "starting_after")
    if stream:
        after = -1 if starting_after is None else starting_after
        return _events(await door.responses.stream(response, after))
    return Response(await door.responses.get(response), media_type=_JSON)


@delete("/responses/{response:str}", status_code=200)
async def delete_response(response: FromPath[str], door: DoorDependency) -> Response[Any]:
    """Forget a response."""
    await to_thread.run_sync(door.responses.delete, response)
    gone = {"id": response, "object": "response", "deleted": True}
    return Response(gone, media_type=_JSON)


@post("/responses/{response:str}/cancel", status_code=200)
async def cancel_response(response: FromPath[str], door: DoorDependency) -> Response[Any]:
    """Stop a response that runs."""
    return Response(await door.responses.cancel(response), media_type=_JSON)


@get("/responses/{response:str}/input_items")
async def list_input_items(
    request: Request[Any, Any, Any],
    response: FromPath[str],
    door: DoorDependency,
    *,
    limit: _Limit = 20,
    order: _Order = "desc",
    after: FromQuery[str | None] = None,
) -> Response[Any]:
    """List what a response was given."""
    _check_query(request, "limit", "order", "after")
    items = await to_thread.run_sync(door.responses.input_items, response)
    return Response(_page(items, limit, order, after), media_type=_JSON)


@post("/responses/compact", status_code=200)
async def compact(request: Request[Any, Any, Any], door: DoorDependency) -> Response[Any]:
    """Sum up an input, or what a response was about, as an item that can be sent in its place."""
    wanted: CompactRequest = read_body(await request.body(), CompactRequest)
    given = wanted.input
    before = [{"role": "user", "content": given}] if isinstance(given, str) else given or []
    run = await door.responses.create(
        ResponseRequest(
            model=wanted.model,
            input=[*before, {"role": "user", "content": INSTRUCTIONS}],
            instructions=wanted.instructions,
            previous_response_id=wanted.previous_response_id,
            store=False,
        )
    )
    await run.done.wait()
    if run.failure is not None:
        raise _as_refusal(run.failure)
    response = run.response
    texts = [block["text"] for item in response["output"] if item["type"] == "message"
             for block in item["content"] if block["type"] == "output_text"]  # fmt: skip
    name = ItemId("cmp", run.name.conversation, run.name.record, 0)
    item = {
        "type": "compaction",
        "id": str(name),
        "encrypted_content": seal_summary("".join(texts)),
    }
    found = {
        "id": response["id"],
        "object": "response.compaction",
        "created_at": response["created_at"],
        "output": [item],
        "usage": response["usage"],
    }
    return Response(found, media_type=_JSON)


# ── conversations ───────────────────────────────────────────────────────────────────────────────


@post("/conversations", status_code=200)
async def create_conversation(
    request: Request[Any, Any, Any], door: DoorDependency
) -> Response[Any]:
    """Create a conversation."""
    wanted = read_body(await request.body() or b"{}", ConversationRequest)
    made = await to_thread.run_sync(door.conversations.create, wanted)
    return Response(made, media_type=_JSON)


@get("/conversations/{conversation:str}")
async def get_conversation(conversation: FromPath[str], door: DoorDependency) -> Response[Any]:
    """Get a conversation."""
    found = await to_thread.run_sync(door.conversations.get, conversation)
    return Response(found, media_type=_JSON)


@post("/conversations/{conversation:str}", status_code=200)
async def update_conversation(
    request: Request[Any, Any, Any], conversation: FromPath[str], door: DoorDependency
) -> Response[Any]:
    """Set the metadata of a conversation."""
    wanted: MetadataRequest = read_body(await request.body(), MetadataRequest)
    update = door.conversations.update
    found = await to_thread.run_sync(update, conversation, wanted.metadata)
    return Response(found, media_type=_JSON)


@delete("/conversations/{conversation:str}", status_code=200)
async def delete_conversation(conversation: FromPath[str], door: DoorDependency) -> Response[Any]:
    """Delete a conversation."""
    gone = await to_thread.run_sync(door.conversations.delete, conversation)
    return Response(gone, media_type=_JSON)


@post("/conversations/{conversation:str}/items", status_code=200)
async def add_items(
    request: Request[Any, Any, Any], conversation: FromPath[str], door: DoorDependency
) -> Response[Any]:
    """Append items to a conversation."""
    wanted: ItemsRequest = read_body(await request.body(), ItemsRequest)
    add = door.conversations.add_items
    items = await to_thread.run_sync(add, conversation, wanted.items)
    return Response(_page(items, max(1, len(items)), "asc", None), media_type=_JSON)


@get("/conversations/{conversation:str}/items")
async def list_items(
    request: Request[Any, Any, Any],
    conversation: FromPath[str],
    door: DoorDependency,
    *,
    limit: _Limit = 20,
    order: _Order = "desc",
    after: FromQuery[str | None] = None,
) -> Response[Any]:
    """List the items of a conversation."""
    _check_query(request, "limit", "order", "after")
    items = await to_thread.run_sync(door.conversations.items, conversation)
    return Response(_page(items, limit, order, after), media_type=_JSON)


@get("/conversations/{conversation:str}/items/{item:str}")
async def get_item(
    conversation: FromPath[str], item: FromPath[str], door: DoorDependency
) -> Response[Any]:
    """Get an item of a conversation."""
    found = await to_thread.run_sync(door.conversations.get_item, conversation, item)
    return Response(found, media_type=_JSON)


@delete("/conversations/{conversation:str}/items/{item:str}", status_code=200)
async def delete_item(
    conversation: FromPath[str], item: FromPath[str], door: DoorDependency
) -> Response[Any]:
    """Remove an item from a conversation."""
    remove = door.conversations.delete_item
    return Response(await to_thread.run_sync(remove, conversation, item), media_type=_JSON)


# ── chat completions ────────────────────────────────────────────────────────────────────────────


@post("/chat/completions", status_code=200)
async def create_chat_completion(
    request: Request[Any, Any, Any], door: DoorDependency
) -> Response[Any]:
    """Answer a list of messages."""
    wanted: ChatRequest = read_body(await request.body(), ChatRequest)
    run = await door.chat.create(wanted)
    if wanted.stream:
        usage = wanted.stream_options is not None and bool(wanted.stream_options.include_usage)
        return _events(run.stream(usage=usage, heartbeat=door.heartbeat))
    await run.done.wait()
    if run.failure is not None:
        raise _as_refusal(run.failure)
    return Response(run.completion(), media_type=_JSON)


# ── models ──────────────────────────────────────────────────────────────────────────────────────


def _model(name: str) -> dict[str, Any]:
    owner = name.partition(":")[0]
    return {"id": name, "object": "model", "created": 0, "owned_by": owner}


@get("/models")
async def list_models(door: DoorDependency) -> Response[Any]:
    """List the models that are ready."""
    found = await to_thread.run_sync(door.models.list)
    data = [_model(info.name) for info in found if info.ready]
    return Response({"object": "list", "data": data}, media_type=_JSON)


@get("/models/{name:str}")
async def get_model(name: FromPath[str], door: DoorDependency) -> Response[Any]:
    """Get a model by its name."""
    try:
        door.models.check(name)
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
        compact,
        create_conversation,
        get_conversation,
        update_conversation,
        delete_conversation,
        add_items,
        list_items,
        get_item,
        delete_item,
        create_chat_completion,
        list_models,
        get_model,
    ],
    include_in_schema=False,
    exception_handlers={Exception: respond_to_error},
)
