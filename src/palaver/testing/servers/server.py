"""A provider on this machine, for tests: it speaks the real protocol and checks every request.

It runs in its own thread on a free port of the loopback address, so that clients of any kind, async
or not, can be tested against it. What the provider would refuse is refused in the provider's own
form, and recorded in `failures`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec

from palaver.messages.limits import is_object
from palaver.testing.prompt_cache import PromptCache
from palaver.testing.providers import FORMAT_NAMES, check_request
from palaver.testing.servers.script import (
    ANTHROPIC,
    CHAT,
    GEMINI,
    RESPONSES,
    Answer,
    Exchange,
    Garbage,
    HangUp,
    PendingAnswer,
    Refusal,
    ReportedUsage,
    Scripted,
    Silence,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from palaver.testing.providers import FormatName
    from palaver.testing.servers.script import ProviderProtocol

__all__ = ["ProviderServer"]


_PROTOCOLS: Final[Mapping[str, ProviderProtocol]] = {
    "openai-chat": CHAT,
    "openai-responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
}
_JSON: Final = "application/json"
_STREAM: Final = "text/event-stream; charset=utf-8"
_MAX_BODY: Final = 256 * 1024 * 1024


class ProviderServer:
    """A server that answers as a provider would, by a script.

    `url` is the base address for the provider's client, `requests` what it received, and `failures`
    what was wrong with it. After the script's last answer it repeats the last text of a request.
    An answer reports the usage that `cache` judges, by the seconds of `clock`, unless the script
    gives figures of its own.

    >>> import json, urllib.request
    >>> body = {"model": "m", "messages": [{"role": "user", "content": "Tea?"}]}
    >>> with ProviderServer("openai-chat", ["Yes."]) as server:
    ...     request = urllib.request.Request(
    ...         server.url + "/chat/completions", json.dumps(body).encode(),
    ...         {"Authorization": "Bearer any", "Content-Type": "application/json"})
    ...     with urllib.request.urlopen(request) as answer:
    ...         json.load(answer)["choices"][0]["message"]["content"]
    'Yes.'
    """

    def __init__(
        self,
        form: FormatName,
        script: Iterable[Scripted] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the provider's format and the script, and what tells the time to its cache."""
        if form not in FORMAT_NAMES:
            raise ValueError(f"unknown format {form!r}; known are {', '.join(FORMAT_NAMES)}")
        if isinstance(script, str):
            raise TypeError(f"a script is a list; write [{script[:40]!r}]")
        self.format: FormatName = form
        self.url = ""
        self.cache = PromptCache(form)
        self.requests: list[Exchange] = []
        self.failures: list[str] = []
        self._protocol = _PROTOCOLS[form]
        self._clock = clock
        self._script: list[Scripted] = list(script)
        self._reasoning = set[str]()  # what it sent as `reasoning_content`
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=f"{form} server", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Event | None = None
        self._connections: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        """Start; `url` is known then."""
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and close every connection."""
        if self._loop is not None and self._ending is not None:
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()

    def then(self, *more: Scripted) -> None:
        """Add answers to the script."""
        self._script.extend(more)

    # ── the thread ───────────────────────────────────────────────────────────────────────────────

    def _serve(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=1 << 20)
        port = server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}{self._protocol.base}"
        self._ready.set()
        await self._ending.wait()
        server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._handle(_HTTPConnection(reader, writer)))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _handle(self, connection: _HTTPConnection) -> None:
        try:
            while (request := await connection.read_request()) is not None:
                exchange = Exchange(request.path, request.headers, _decode(request.body))
                self.requests.append(exchange)
                if not await self._answer_unless_gone(connection, request, exchange):
                    return
        finally:
            connection.close()

    async def _answer_unless_gone(
        self, connection: _HTTPConnection, request: _HTTPRequest, exchange: Exchange
    ) -> bool:
        """Answer, unless the client goes away first; tell whether the connection can be reused."""
        sending = asyncio.ensure_future(self._answer(connection, request, exchange))
        watching = asyncio.ensure_future(connection.wait_until_gone())
        try:
            await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                exchange.aborted = True
                return False
            return sending.result()
        except OSError:
            exchange.aborted = True
            return False
        finally:
            for task in (sending, watching):
                task.cancel()
            await asyncio.gather(sending, watching, return_exceptions=True)

    # ── one request ──────────────────────────────────────────────────────────────────────────────

    async def _answer(
        self, connection: _HTTPConnection, request: _HTTPRequest, exchange: Exchange
    ) -> bool:
        scripted = self._check(request, exchange) or self._next(exchange)
        match scripted:
            case HangUp():
                return False
            case Silence():
                await asyncio.Event().wait()
                return False
            case Refusal():
                await self._refuse(connection, scripted, exchange)
                return True
            case Garbage():
                exchange.status = 200
                streams = self._protocol.streams(exchange.path, exchange.body)
                kind = _STREAM if streams else _JSON
                await connection.answer(200, kind, scripted.data, headers={}, sent=None)
                return True
            case _:
                exchange.status = 200
                return await self._send_answer(connection, scripted, exchange)

    def _check(self, request: _HTTPRequest, exchange: Exchange) -> Refusal | None:
        if request.method != "POST" or not self._protocol.has_path(exchange.path):
            problem = f"{request.method} {exchange.path} is no path of {self.format}"
            return self._fail(exchange, 404, [problem])
        if not self._protocol.is_authorized(exchange.headers):
            return self._fail(exchange, 401, ["the request carries no key"])
        problems = check_request(self.format, self._without_reasoning(exchange.body))
        return self._fail(exchange, 400, list(map(str, problems))) if problems else None

    def _without_reasoning(self, body: Any) -> Any:  # noqa: ANN401 - JSON
        """Return a request without the reasoning that this server sent itself.

        OpenAI's own endpoint neither sends nor takes `reasoning_content`; a server that speaks its
        language and sends it takes it back, and an empty one of an answer that had none.
        """
        messages = body.get("messages") if isinstance(body, dict) else None
        if not self._reasoning or not isinstance(messages, list):
            return body
        return {**body, "messages": [self._without_own(message) for message in messages]}

    def _without_own(self, message: Any) -> Any:  # noqa: ANN401 - JSON
        is_answer = isinstance(message, dict) and message.get("role") == "assistant"
        if not is_answer or message.get("reasoning_content") not in {*self._reasoning, ""}:
            return message
        return {name: value for name, value in message.items() if name != "reasoning_content"}

    def _fail(self, exchange: Exchange, status: int, problems: list[str]) -> Refusal:
        exchange.problems = tuple(problems)
        self.failures.extend(problems)
        return Refusal(status, "; ".join(problems))

    def _next(self, exchange: Exchange) -> Answer | Refusal | Garbage | Silence | HangUp:
        scripted = self._script.pop(0) if self._script else self._protocol.last_text(exchange.body)
        while callable(scripted):
            scripted = scripted(exchange)
        return Answer(scripted) if isinstance(scripted, str) else scripted

    async def _refuse(
        self, connection: _HTTPConnection, refusal: Refusal, exchange: Exchange
    ) -> None:
        exchange.status = refusal.status
        body = msgspec.json.encode(self._protocol.encode_error(refusal))
        wait = refusal.retry_after
        headers = {} if wait is None or self.format == "gemini" else {"retry-after": f"{wait:g}"}
        await connection.answer(refusal.status, _JSON, body, headers=headers, sent=None)

    def _usage(self, answer: Answer, body: Mapping[str, Any], model: str) -> ReportedUsage:
        found = self.cache.request(body, at=self._clock(), model=model)
        if answer.usage is not None:
            return answer.usage
        return ReportedUsage(
            found.total,
            (len(answer.text) + len(answer.reasoning)) // 4 + 8 * len(answer.calls) + 1,
            cached=found.read,
            reasoning=len(answer.reasoning) // 4,
            written=found.written,
            written_1h=found.written_1h,
        )

    async def _send_answer(
        self, connection: _HTTPConnection, answer: Answer, exchange: Exchange
    ) -> bool:
        body: Mapping[str, Any] = exchange.body
        model = self._protocol.model(exchange.path, body)
        usage = self._usage(answer, body, model)
        turn = PendingAnswer(answer, len(self.requests), model, usage, body)
        if answer.reasoning and self.format == "openai-chat":
            self._reasoning.add(answer.reasoning)
        await asyncio.sleep(answer.start_after)
        if not self._protocol.streams(exchange.path, body):
            whole = msgspec.json.encode(self._protocol.encode_answer(turn))
            cut = len(whole) // 2 if answer.cut_after is not None else None
            await connection.answer(200, _JSON, whole, headers={}, sent=cut)
            return cut is None
        await connection.begin(_STREAM)
        for place, event in enumerate(self._protocol.stream(turn)):
            if place == answer.cut_after:
                if answer.cleanly:
                    await connection.chunk(b"")
                return False
            await connection.chunk(event)
            await asyncio.sleep(answer.delay)
        await connection.chunk(b"")
        return True


def _decode(body: bytes) -> Any:  # noqa: ANN401 - JSON
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return value if is_object(value) else {}


class _HTTPRequest(NamedTuple):
    """A request of a client."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class _HTTPConnection:
    """One connection of a client: as much of HTTP/1.1 as a provider's client needs.

    A stream is sent in chunks, so that a client can tell one that ended from one that was cut.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take the streams of the connection."""
        self._reader = reader
        self._writer = writer
        self._early = b""

    async def read_request(self) -> _HTTPRequest | None:
        """Read the next request; None if the client has gone, or sends something else."""
        try:
            head = self._early + await self._reader.readuntil(b"\r\n\r\n")
            self._early = b""
            first, *lines = head.decode("latin-1").strip().split("\r\n")
            method, path, _ = first.split(" ", 2)
            pairs = (line.partition(":") for line in lines)
            headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
            size = min(int(headers.get("content-length", "0")), _MAX_BODY)
            return _HTTPRequest(method, path, headers, await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, ValueError):
            return None

    async def wait_until_gone(self) -> None:
        """Return when the client has gone away; early bytes are kept for the next request."""
        try:
            while more := await self._reader.read(1):
                self._early += more
        except OSError:
            return

    async def answer(
        self, status: int, kind: str, body: bytes, *, headers: dict[str, str], sent: int | None
    ) -> None:
        """Send a response, or only the first `sent` bytes of it."""
        await self._head(status, {"content-type": kind, "content-length": len(body), **headers})
        self._writer.write(body if sent is None else body[:sent])
        await self._writer.drain()

    async def begin(self, kind: str) -> None:
        """Start a stream."""
        fields = {"content-type": kind, "cache-control": "no-cache", "transfer-encoding": "chunked"}
        await self._head(200, dict(fields))

    async def chunk(self, data: bytes) -> None:
        """Send a chunk of a stream; an empty one ends it."""
        self._writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await self._writer.drain()

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    async def _head(self, status: int, headers: dict[str, str | int]) -> None:
        lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {v}" for name, v in headers.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        await self._writer.drain()
