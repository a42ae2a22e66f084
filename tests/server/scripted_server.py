"""A server whose model says what a test wants it to, and whose volatile events are written down."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Self

import palaver
from palaver.models import register
from palaver.server import Settings, make_app
from tests.server.client import ADDRESS, TOKEN, APIClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from palaver.models.base import Model
    from palaver.stores import Store

__all__ = ["MODEL", "ScriptedServer", "wait_for"]

MODEL: Final = "stage:actor"
PATIENCE: Final = 60.0
_actors: Final[dict[str, Model]] = {}


def _actor(name: str, **_: object) -> Model:
    return _actors[name]


register("stage", _actor)


def wait_for(look: Callable[[], Any]) -> Any:  # noqa: ANN401 - JSON, or whatever is asked for
    """What a look finds, once it finds something."""
    until = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < until, "it never came"
        time.sleep(0.01)
    return found


class ScriptedServer:
    """A store behind a server, with one model that a test has written."""

    def __init__(self, actor: Model, *, store: Store | None = None, **settings: Any) -> None:  # noqa: ANN401 - JSON, or whatever is asked for
        """Set up; the server runs inside a `with`."""
        _actors["actor"] = actor
        self._stack = ExitStack()
        self.store = self._stack.enter_context(palaver.open(":memory:")) if store is None else store
        chosen: dict[str, Any] = {"token": TOKEN, "rate": 0, "model": MODEL, **settings}
        self.app = make_app(self.store, Settings(**chosen))
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.ask = APIClient(self.app, base_url=ADDRESS)
        self.ask.headers["authorization"] = f"Bearer {TOKEN}"
        live = self.app.service.live
        emit = live.emit

        def heard(name: str, data: Mapping[str, Any]) -> None:
            if name != "conversation.changed":  # it comes when it comes
                self.told.append((name, dict(data)))
            emit(name, data)

        live.emit = heard  # type: ignore[method-assign]

    def __enter__(self) -> Self:
        self._stack.enter_context(self.ask)
        if self.app.service.settings.model == MODEL:
            self.app.service.models.get()  # before another stage has another actor
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def step(self, conversation: str, text: str | None = None, **body: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON, or whatever is asked for
        """Take a step, and see it through."""
        words = {} if text is None else {"text": text}
        path = f"conversations/{conversation}/step"
        begun: dict[str, Any] = self.ask.good("POST", path, {**words, **body})
        self.over(conversation)
        return begun

    def over(self, conversation: str) -> None:
        """Wait for the step under way."""
        wait_for(lambda: not self.look(conversation)["running"])

    def look(self, conversation: str) -> dict[str, Any]:
        """What can be seen of a step."""
        found: dict[str, Any] = self.ask.good("GET", f"conversations/{conversation}/step")
        return found

    def arrived(self, conversation: str, text: str) -> None:
        """Wait until so much of an answer has arrived."""
        wait_for(lambda: self.look(conversation).get("draft", {}).get("text") == text)

    def messages(self, conversation: str) -> list[dict[str, Any]]:
        """The messages of a conversation."""
        found = self.ask.good("GET", f"conversations/{conversation}/messages")
        return [item["message"] for item in found["items"]]

    def calls(self, conversation: str) -> list[dict[str, Any]]:
        """The calls that have no result yet."""
        found: dict[str, Any] = self.ask.good("GET", f"conversations/{conversation}/calls")
        items: list[dict[str, Any]] = found["items"]
        return items

    def ended(self) -> list[Any]:
        """How the steps so far have ended."""
        return [data["outcome"] for name, data in self.told if name == "step.ended"]

    def results(self, conversation: str) -> list[tuple[str, str]]:
        """What became of each tool call: its state, and what the model is told."""
        states = [
            part["state"]
            for message in self.messages(conversation)
            if message["role"] == "tool"
            for part in message["content"]
        ]
        return [(state["status"], state.get("output") or state.get("error")) for state in states]
