"""A server on a free port, for a browser to talk to: a real store, and a model that says its lines.

The lines are OpenAI's stream events, as in `tests.conversation.scripted`; a `threading.Event` among
them holds the answer back until the test sets it, so that a test sees what stands in between.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import uvicorn

from palaver.messages import ModelRef
from palaver.server.app import make_app
from palaver.server.run import bind
from palaver.server.services.models import ModelRegistry
from palaver.server.settings import Settings
from palaver.wire import Target

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncGenerator, Generator, Mapping

    from palaver.models.base import ModelRequest
    from palaver.server.app import App
    from palaver.stores import Store

__all__ = ["MODEL", "TOKEN", "PageServer", "ScriptedModel", "running_server"]

TOKEN = "the-token-of-this-test-and-no-other"  # noqa: S105 - no secret
MODEL = "scripted:actor"
_PATIENCE = 60.0


class ScriptedModel:
    """A model that says the lines it was given last, one answer a question."""

    format = "openai-chat"
    window: int | None = 8_000

    def __init__(self) -> None:
        """Have nothing to say yet."""
        self.ref = ModelRef("openai", "actor")
        self.target = Target()
        self.lines: deque[list[Any]] = deque()
        self.asked: list[ModelRequest] = []

    def request(self, ask: ModelRequest) -> dict[str, Any]:
        """The body that a provider would get."""
        tools = [{"type": "function", "function": {"name": spec.name}} for spec in ask.tools]
        offered = {"tools": tools} if tools else {}
        return {"model": self.ref.model_id, **ask.body, **ask.options, **offered}

    async def stream(self, ask: ModelRequest) -> AsyncGenerator[Mapping[str, Any]]:
        """Say the next lines, as fast as their gates open."""
        self.asked.append(ask)
        for event in self.lines.popleft():
            if isinstance(event, threading.Event):
                while not event.is_set():  # noqa: ASYNC110 - the test sets it, from its own thread
                    await anyio.sleep(0.005)
            elif isinstance(event, BaseException):
                raise event
            else:
                await anyio.sleep(0.001)
                yield event

    async def complete(self, ask: ModelRequest) -> Mapping[str, Any]:
        """Say the next lines at once."""
        self.asked.append(ask)
        events = [event for event in self.lines.popleft() if isinstance(event, dict)]
        deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
        text = "".join(delta.get("content") or "" for delta in deltas)
        message = {"role": "assistant", "content": text}
        return {"choices": [{"message": message, "finish_reason": "stop"}]}

    async def close(self) -> None:
        """Nothing is open."""


class PageServer:
    """What a test needs of a server: its address, its store, its model, and a quick way in."""

    def __init__(self, store: Store, model: ScriptedModel, address: str) -> None:
        """Know where everything is."""
        self.store = store
        self.model = model
        self.address = address
        self.client = httpx.Client(
            base_url=f"{address}/api/",
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=_PATIENCE,
        )

    @property
    def entrance(self) -> str:
        """The address that `palaver serve` would print."""
        return f"{self.address}/#token={TOKEN}"

    def say(self, *answers: list[Any]) -> None:
        """Have the model answer with these, one a question."""
        self.model.lines.extend(answers)

    def ask(self, method: str, path: str, body: Any = None) -> Any:  # noqa: ANN401 - JSON
        """Ask the API itself; an answer that is no success is an error."""
        answer = self.client.request(method, path, json=body)
        answer.raise_for_status()
        return answer.json() if answer.content else None


@contextmanager
def running_server(store: Store, *, port: int = 0, **settings: Any) -> Generator[PageServer]:  # noqa: ANN401 - Settings' own
    """Serve a store from a thread, at a port or at any that is free."""
    model = ScriptedModel()
    app = make_app(store, Settings(token=TOKEN, **settings))
    listening = bind("127.0.0.1", port)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = _Server(app, uvicorn.Config(app, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        _await(lambda: server.started)
        app.service.models = ModelRegistry((MODEL,), make=lambda _: model)
        found = PageServer(store, model, address)
        yield found
        found.client.close()
    finally:
        server.should_exit = True
        thread.join(_PATIENCE)
        listening.close()


class _Server(uvicorn.Server):
    """uvicorn, whose streams are told to end before it waits for them."""

    def __init__(self, app: App, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._app.service.stop()
        await super().shutdown(sockets)


def _await(ready: Any) -> None:  # noqa: ANN401 - a question
    until = time.monotonic() + _PATIENCE
    while not ready():
        assert time.monotonic() < until, "the server did not start"
        time.sleep(0.01)
