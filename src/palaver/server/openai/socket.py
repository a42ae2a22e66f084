"""Responses over a WebSocket: one after the other, with the events that a stream has.

A client sends `response.create` with the body of a request, and gets each event as a message. What
is refused is an `error` event with its status, and the connection goes on. A response that is not
to be stored can be followed on the same connection: the newest one stays in its memory, until a
follow-up of it fails or the connection ends.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
import msgspec
from msgspec import Struct

from palaver.server.errors import RequestRefused, describe_error
from palaver.server.openai.shapes import ResponseRequest, encode_error, refuse
from palaver.server.requests import read_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from palaver.messages import Message
    from palaver.server.openai.responses import Responses, RunningResponse

__all__ = ["PATH", "ResponseSocket", "error_event"]

PATH: Final = "/v1/responses"
_SECONDS: Final = 60 * 60
"""How long a connection may last, as the specification has it."""
_OVER: Final = "websocket_connection_limit_reached"
_HEARTBEAT: Final = 3_600.0  # the protocol has its own


class _ClientGone(Exception):  # noqa: N818 - no error
    """The client has closed the connection."""


class _Event(Struct, frozen=True):
    type: str


class _Create(ResponseRequest, frozen=True, kw_only=True):
    """What starts a response: the body of a request, with the type of the event."""

    type: Literal["response.create"]


def error_event(error: Exception) -> bytes:
    """The event that says why a message was refused."""
    status, body = encode_error(describe_error(error)[0])
    found = msgspec.json.decode(body)
    return msgspec.json.encode({"type": "error", "status": status, **found})


class ResponseSocket:
    """One connection; `check` is called before each response, and refuses one too many."""

    def __init__(
        self,
        responses: Responses,
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
        *,
        check: Callable[[], None],
        most_bytes: int,
    ) -> None:
        """Take the responses of a server, and a connection as ASGI has it."""
        self._responses, self._receive, self._send = responses, receive, send
        self._check, self._most_bytes = check, most_bytes
        self._newest: dict[str, list[Message]] = {}

    async def serve(self) -> None:
        """Answer what the client sends, until it goes away or its hour is over.

        A response that has begun runs to its end without its client.
        """
        with suppress(_ClientGone):
            await self._serve()

    async def _serve(self) -> None:
        await self._receive()  # that it connects
        with suppress(OSError):
            await self._send({"type": "websocket.accept"})
        deadline = anyio.current_time() + _SECONDS
        while True:
            message: Any = None
            with anyio.move_on_at(deadline):
                message = await self._receive()
            if message is None:
                detail = "the connection has lasted as long as it may: open another"
                await self._tell(error_event(RequestRefused(400, detail, rule=_OVER)))
                await self._send({"type": "websocket.close", "code": 1000})
                return
            if message["type"] == "websocket.disconnect":
                return
            try:
                await self._answer(message.get("text") or message.get("bytes") or "")
            except _ClientGone:
                raise
            except Exception as error:  # noqa: BLE001 - the client is told, and goes on
                await self._tell(error_event(error))

    async def _answer(self, text: str | bytes) -> None:
        """Run the response that a message asks for, and send its events."""
        self._check()
        data = text.encode() if isinstance(text, str) else text
        if len(data) > self._most_bytes:
            detail = f"the message is too large: at most {self._most_bytes} bytes are taken"
            raise RequestRefused(413, detail)
        request = _read(data)
        previous = request.previous_response_id
        before = None if request.stored or previous is None else self._newest.pop(previous, None)
        run = await self._responses.create(request, before)
        await self._forward(run)
        if run.messages is not None and run.record.status == "completed":
            self._newest = {str(run.name): run.messages}

    async def _forward(self, run: RunningResponse) -> None:
        async for chunk in run.stream(-1, _HEARTBEAT):
            for block in chunk.split(b"\n\n"):
                event = block.partition(b"\ndata: ")[2]
                if event:
                    await self._tell(event)

    async def _tell(self, event: bytes) -> None:
        try:
            await self._send({"type": "websocket.send", "text": event.decode()})
        except OSError:
            raise _ClientGone from None


def _read(data: bytes) -> _Create:
    """Read a message; what belongs to HTTP is refused."""
    kind = msgspec.json.decode(data, type=_Event).type if _has_type(data) else None
    if kind is not None and kind != "response.create":
        raise refuse(f"must be response.create, not {kind!r}", "type")
    request: _Create = read_body(data, _Create)
    for name in ("stream", "stream_options", "background"):
        if getattr(request, name) is not None:
            raise refuse("goes without a WebSocket: its events are always streamed", name)
    return request


def _has_type(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=_Event)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return True
