"""A provider on this machine, for tests: it speaks the real protocol and judges every request.

It runs in a thread of its own on a free port of the loopback address, so that clients of any kind,
async or not, can be tested against it. What a provider would refuse is refused, in the provider's
own words, and kept in `failures`.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from palaver.messages.gate import is_object
from palaver.testing.providers import FORMATS, check_request
from palaver.testing.servers.anthropic import ANTHROPIC
from palaver.testing.servers.gemini import GEMINI
from palaver.testing.servers.line import Line
from palaver.testing.servers.openai_chat import CHAT
from palaver.testing.servers.openai_responses import RESPONSES
from palaver.testing.servers.script import (
    Answer,
    Exchange,
    Garbage,
    HangUp,
    Refusal,
    Scripted,
    Silence,
    Turn,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from palaver.testing.providers import Format
    from palaver.testing.servers.line import Request
    from palaver.testing.servers.tongue import Tongue

__all__ = ["ProviderServer"]

_TONGUES: Final[Mapping[str, Tongue]] = {
    "openai-chat": CHAT,
    "openai-responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
}
_JSON: Final = "application/json"
_STREAM: Final = "text/event-stream; charset=utf-8"


class ProviderServer:
    """A server that answers as a provider would, by a script.

    `url` is the base address for the provider's client, `requests` what came in, `failures` what
    was wrong with it. After the script's last answer it repeats the last words it was told.

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

    def __init__(self, form: Format, script: Iterable[Scripted] = ()) -> None:
        """Say which provider to be, and what to answer."""
        if form not in FORMATS:
            raise ValueError(f"unknown format {form!r}; known are {', '.join(FORMATS)}")
        self.format: Format = form
        self.url = ""
        self.requests: list[Exchange] = []
        self.failures: list[str] = []
        self._tongue = _TONGUES[form]
        self._script: list[Scripted] = list(script)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=f"{form} server", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Event | None = None
        self._lines: set[asyncio.Task[None]] = set()

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
        """Add to the script."""
        self._script.extend(more)

    # ── the thread ───────────────────────────────────────────────────────────────────────────────

    def _serve(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=1 << 20)
        port = server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}{self._tongue.base}"
        self._ready.set()
        await self._ending.wait()
        server.close()
        for line in self._lines:
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._talk(Line(reader, writer)))
        self._lines.add(task)
        task.add_done_callback(self._lines.discard)

    async def _talk(self, line: Line) -> None:
        try:
            while (request := await line.request()) is not None:
                exchange = Exchange(request.path, request.headers, _decoded(request.body))
                self.requests.append(exchange)
                if not await self._answered(line, request, exchange):
                    return
        finally:
            line.close()

    async def _answered(self, line: Line, request: Request, exchange: Exchange) -> bool:
        """Answer, unless the client goes away first; tell whether the line can be used again."""
        sending = asyncio.ensure_future(self._answer(line, request, exchange))
        watching = asyncio.ensure_future(line.gone())
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

    async def _answer(self, line: Line, request: Request, exchange: Exchange) -> bool:
        scripted = self._judged(request, exchange) or self._next(exchange)
        match scripted:
            case HangUp():
                return False
            case Silence():
                await asyncio.Event().wait()
                return False
            case Refusal():
                await self._refuse(line, scripted, exchange)
                return True
            case Garbage():
                exchange.status = 200
                streams = self._tongue.streams(exchange.path, exchange.body)
                kind = _STREAM if streams else _JSON
                await line.answer(200, kind, scripted.data, headers={}, sent=None)
                return True
            case _:
                exchange.status = 200
                return await self._speak(line, scripted, exchange)

    def _judged(self, request: Request, exchange: Exchange) -> Refusal | None:
        if request.method != "POST" or not self._tongue.knows(exchange.path):
            problem = f"{request.method} {exchange.path} is no path of {self.format}"
            return self._failed(exchange, 404, [problem])
        if not self._tongue.authorised(exchange.headers):
            return self._failed(exchange, 401, ["the request carries no key"])
        problems = check_request(self.format, exchange.body)
        return self._failed(exchange, 400, list(map(str, problems))) if problems else None

    def _failed(self, exchange: Exchange, status: int, problems: list[str]) -> Refusal:
        exchange.problems = tuple(problems)
        self.failures.extend(problems)
        return Refusal(status, "; ".join(problems))

    def _next(self, exchange: Exchange) -> Answer | Refusal | Garbage | Silence | HangUp:
        scripted = self._script.pop(0) if self._script else self._tongue.said(exchange.body)
        while callable(scripted):
            scripted = scripted(exchange)
        return Answer(scripted) if isinstance(scripted, str) else scripted

    async def _refuse(self, line: Line, refusal: Refusal, exchange: Exchange) -> None:
        exchange.status = refusal.status
        body = msgspec.json.encode(self._tongue.refusal(refusal))
        wait = refusal.retry_after
        headers = {} if wait is None or self.format == "gemini" else {"retry-after": f"{wait:g}"}
        await line.answer(refusal.status, _JSON, body, headers=headers, sent=None)

    async def _speak(self, line: Line, answer: Answer, exchange: Exchange) -> bool:
        body: Mapping[str, Any] = exchange.body
        asked = len(msgspec.json.encode(body)) // 4 + 1
        spoken = (len(answer.text) + len(answer.reasoning)) // 4 + 8 * len(answer.calls) + 1
        thought = len(answer.reasoning) // 4
        usage = answer.usage or Usage(asked, spoken, reasoning=thought)
        model = self._tongue.model(exchange.path, body)
        turn = Turn(answer, len(self.requests), model, usage, body)
        await asyncio.sleep(answer.start_after)
        if not self._tongue.streams(exchange.path, body):
            whole = msgspec.json.encode(self._tongue.whole(turn))
            cut = len(whole) // 2 if answer.cut_after is not None else None
            await line.answer(200, _JSON, whole, headers={}, sent=cut)
            return cut is None
        await line.begin(_STREAM)
        for place, event in enumerate(self._tongue.stream(turn)):
            if place == answer.cut_after:
                if answer.cleanly:
                    await line.chunk(b"")
                return False
            await line.chunk(event)
            await asyncio.sleep(answer.delay)
        await line.chunk(b"")
        return True


def _decoded(body: bytes) -> Any:  # noqa: ANN401 - JSON
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return value if is_object(value) else {}
