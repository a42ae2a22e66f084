"""Count the source files of palaver that one call crosses: how far a reader has to follow it.

    python -m tools.walk [--files] [--write]

Every source file whose functions run during the call is counted once, and each change from one file
to another is a switch. A walk beyond its limit fails. `--write` puts the table into
`docs/architecture.md`, `--files` lists the files of each walk.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
from litestar.testing import TestClient

import palaver
from palaver import Conversation, wire
from palaver.context import ContextManager
from palaver.messages import ModelRef, assistant, user
from palaver.server import Settings, make_app

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
    from types import FrameType

    from palaver.models.base import ModelRequest
    from palaver.stores import Store

__all__ = ["LIMITS", "Walk", "main", "walk", "walks"]

LIMITS: Final = {
    "append": 9,
    "truncate": 12,
    "rollback": 12,
    "a step with a tool call": 35,
    "append over HTTP": 21,
    "wire.to": 9,
    "a prompt": 9,
}
"""The most files that each walk may cross."""

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "architecture.md"
_TABLE: Final = re.compile(r"(?<=<!-- walks -->\n).*(?=<!-- /walks -->)", re.DOTALL)
_SOURCE: Final = str(Path(palaver.__file__).parent)
_TOKEN: Final = "a-token-for-the-walk"  # noqa: S105 - of a server that nobody reaches


class Walk(NamedTuple):
    """The files that a call crossed, in the order of their first use, and the switches."""

    files: list[str]
    switches: int


class _Recorder:
    """A profile hook for all threads that records only while a call is walked."""

    def __init__(self) -> None:
        self.files: dict[str, None] | None = None
        self.last, self.switches = "", 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:  # noqa: ANN401 - the hook's form
        name = frame.f_code.co_filename
        if event == "call" and self.files is not None and name.startswith(_SOURCE):
            self.files[name[len(_SOURCE) + 1 :]] = None
            self.switches += name != self.last
            self.last = name


_recorder: Final = _Recorder()


@contextmanager
def _profiled() -> Generator[None]:
    """Install the recorder, in this thread and in those that begin meanwhile."""
    threading.setprofile(_recorder)
    sys.setprofile(_recorder)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def walk(call: Callable[[], object]) -> Walk:
    """Make a call and return which source files it crossed."""
    with _profiled():
        return _walk(call)


def _walk(call: Callable[[], object]) -> Walk:
    files: dict[str, None] = {}
    _recorder.files, _recorder.last, _recorder.switches = files, "", 0
    try:
        call()
    finally:
        _recorder.files = None
    return Walk(list(files), _recorder.switches)


class _Model:
    """A model that always calls a tool."""

    format = "openai-chat"
    window: int | None = 8_000

    def __init__(self) -> None:
        self.ref = ModelRef("openai", "scripted")
        self.target = wire.Target()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Mapping[str, Any]]:
        """Yield the events of an answer."""
        del request
        call = {"name": "weather", "arguments": '{"city": "Oslo"}'}
        delta = {"tool_calls": [{"index": 0, "id": "call_1", "function": call}]}
        yield {"choices": [{"delta": delta}]}
        yield {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}

    async def complete(self, request: ModelRequest) -> Mapping[str, Any]:
        """It is only ever streamed."""
        raise NotImplementedError

    async def close(self) -> None:
        """There is nothing to close."""


def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"Cold in {city}."


def walks() -> Iterator[tuple[str, Walk]]:
    """Make every walk: its name, and what it crossed."""
    with (
        tempfile.TemporaryDirectory() as folder,
        palaver.open(Path(folder, "walk.db")) as store,
        _profiled(),
    ):
        yield from _history_walks(store)
        yield "a step with a tool call", _step_walk(store)
        yield "append over HTTP", _http_walk(store)
        history = palaver.History([user("Is it cold?"), assistant("Yes."), user("Why?")])
        messages = history.messages
        yield "wire.to", _second(lambda: wire.to("anthropic", messages))
        manager = ContextManager(history)
        yield "a prompt", _second(lambda: manager.prompt_for("writer"))


def _second(call: Callable[[], object]) -> Walk:
    """Walk a call the second time: the first one loads what the later ones use.

    Of a few walks, the shortest counts: another thread may happen to do something meanwhile.
    """
    call()
    return min((_walk(call) for _ in range(3)), key=lambda found: len(found.files))


def _history_walks(store: Store) -> Iterator[tuple[str, Walk]]:
    history = store.create([user("one"), user("two"), user("three")])
    message = user("hello")
    yield "append", _second(lambda: history.append(message))
    yield "truncate", _walk(lambda: history.truncate(keep_last=2))
    yield "rollback", _walk(lambda: history.rollback(0))


def _step_walk(store: Store) -> Walk:
    conversation = Conversation(store, model=_Model(), tools=[weather])

    async def step() -> None:
        await conversation.run_tools((await conversation.step()).calls)

    conversation.add(user("Is it cold in Oslo?"))
    anyio.run(step)
    conversation.add(user("And in Rome?"))
    return _walk(lambda: anyio.run(step))


def _http_walk(store: Store) -> Walk:
    app = make_app(store, Settings(token=_TOKEN))
    path = f"/api/conversations/{store.create().id}/messages"
    headers = {"authorization": f"Bearer {_TOKEN}"}
    with TestClient(app, base_url="http://127.0.0.1:7007") as client:

        def post() -> None:
            message = {"role": "user", "content": "hello"}
            client.post(path, json={"messages": [message]}, headers=headers).raise_for_status()

        return _second(post)


def main(arguments: list[str] | None = None) -> int:
    """Print the table; return 1 if a walk is beyond its limit or the page has another table."""
    parser = argparse.ArgumentParser(prog="walk", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", action="store_true", help="list the files of each walk")
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    options = parser.parse_args(arguments)
    lines = ["| walk | files | at most | switches |", "|---|---|---|---|"]
    beyond: list[str] = []
    for name, found in walks():
        count, limit = len(found.files), LIMITS[name]
        lines.append(f"| {name} | {count} | {limit} | {found.switches} |")
        beyond += [name] if count > limit else []
        if options.files:
            print(f"{name}: {count}", *found.files, sep="\n    ")
    table = "\n" + "\n".join(lines) + "\n\n"
    print(table.strip())
    if options.write:
        PAGE.write_text(_TABLE.sub(lambda _: table, PAGE.read_text("utf-8")), "utf-8")
    for name in beyond:
        print(f"{name} crosses more than {LIMITS[name]} files", file=sys.stderr)
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
