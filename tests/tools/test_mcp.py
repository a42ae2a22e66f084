"""MCP servers of the official SDK as tools, over pipes and over HTTP."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import palaver
from palaver.conversation import Conversation, ToolContext, ToolLimits
from palaver.errors import ToolFailed, ToolUnreachable, ValidationError
from palaver.messages import user
from palaver.tools import runner
from palaver.tools.mcp import McpServer
from tests.conversation.scripted import Scripted, calling

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from palaver import Store
    from palaver.conversation import Tool

pytestmark = pytest.mark.anyio

PROGRAM = str(Path(__file__).with_name("mcp_program.py"))


@contextmanager
def listening() -> Generator[tuple[subprocess.Popen[bytes], int]]:
    """The server on a port, until the block ends."""
    with subprocess.Popen([sys.executable, PROGRAM, "http"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Where the server listens."""
    with listening() as (process, found):
        del process
        yield found


@pytest.fixture
def store() -> Iterator[Store]:
    """One is enough here: servers take their time to start."""
    with palaver.open(":memory:") as opened:
        yield opened


@pytest.fixture
def address(port: int) -> McpServer:
    """A server that is there already."""
    return McpServer.http(f"http://127.0.0.1:{port}/mcp", name="address")


@pytest.fixture(params=["stdio", "http"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(kind: str, request: pytest.FixtureRequest) -> McpServer:
    """A server over each transport."""
    if kind == "stdio":
        return McpServer.stdio(sys.executable, PROGRAM, env={"FROM": "palaver"}, name="program")
    port = request.getfixturevalue("port")
    return McpServer.http(f"http://127.0.0.1:{port}/mcp", headers={"x-from": "palaver"})


def named(server: McpServer) -> dict[str, Tool]:
    return {tool.spec.name: tool for tool in server.tools}


async def test_a_servers_tools_are_tools(server: McpServer, store: Store) -> None:
    """CV-05: in a conversation, with arguments checked, results and errors recorded."""
    async with server:
        conversation = Conversation(store, tools=server.tools)
        conversation.add(user("go"))
        model = Scripted(
            calling(
                ("weather", {"city": "Oslo", "days": 2}),
                ("weather", {"days": "two"}),
                ("fails", {}),
                ("refuses", {}),
                ("greets", {}),
            )
        )
        step = await conversation.step(model)
        done = await conversation.run_tools(step.calls)

    listed = {spec.name: spec for spec in model.asked[0].tools}
    assert "The weather in a city." == listed["weather"].description
    assert "Everything" == listed["shows"].description
    assert ["city"] == listed["weather"].parameters["required"]
    assert '{\n  "city": "Oslo",\n  "degrees": 22.5\n}' == done[0].text
    expected = {"structuredContent": {"city": "Oslo", "degrees": 22.5}}
    assert expected == done[0].state.metadata  # type: ignore[union-attr] # pyright: ignore[reportAttributeAccessIssue]
    assert "$.city: is missing [tool-arguments]" == done[1].text
    assert "the printer is on fire" == done[2].text
    assert f"{server.name}: not today (code -32000)" == done[3].text
    assert "palaver" == done[4].text
    assert [False, True, True, True, False] == [one.failed for one in done]


async def test_every_kind_of_content_is_taken(
    server: McpServer, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "MAX_FILE", 1_000)
    async with server:
        tools = named(server)
        shown = await tools["shows"].call({}, context)
        large = await tools["large"].call({}, context)
        data = await tools["structured"].call({}, context)
        odd = await tools["says"].call({"words": "a\0b"}, context)
        with pytest.raises(ToolFailed, match="without a message"):
            await tools["fails"].call({"silently": True}, context)

    assert "text\n[passwords](file:///etc/passwd): do not follow\na memo" == shown.text
    files = [(file.mime, file.url.partition(",")[2], file.filename) for file in shown.attachments]
    assert [
        ("image/png", "iVBORw==", None),
        ("audio/wav", "UklGRg==", None),
        ("application/x-b", "AAE=", "memo://2"),
    ] == files
    assert ("[a file of type image/png that is too large to store]", ()) == (
        large.text,
        large.attachments,
    )
    assert ('{"a":[1,2]}', {"structuredContent": {"a": [1, 2]}}) == (data.text, data.metadata)
    assert "a\ufffdb" == odd.text


async def test_hints_say_what_may_run_again(port: int) -> None:
    """CV-06: unless the server is not trusted."""
    url = f"http://127.0.0.1:{port}/mcp"
    async with McpServer.http(url, prefix="x_", timeout=7) as trusted:
        may = {tool.spec.name: tool.idempotent for tool in trusted.tools}
        assert {7} == {tool.timeout for tool in trusted.tools}
    async with McpServer(url, trust_hints=False) as other:
        assert {False} == {tool.idempotent for tool in other.tools}

    assert (True, True, False) == (may["x_weather"], may["x_says"], may["x_fails"])


async def test_a_call_that_takes_too_long_is_called_off_at_the_server(
    server: McpServer, store: Store, tmp_path: Path
) -> None:
    """CV-05: the time limit reaches the server, and its progress reaches us."""
    file, heard = tmp_path / "off", list[tuple[Any, Any]]()
    async with server:
        conversation = Conversation(store, tools=server.tools, limits=ToolLimits(seconds=0.5))
        conversation.events.on(
            "tool.running",
            lambda event: heard.append((event.data.get("title"), event.data.get("metadata"))),
        )
        conversation.add(user("go"))
        step = await conversation.step(Scripted(calling(("waits", {"file": str(file)}))))
        (done,) = await conversation.run_tools(step.calls)
        for _ in range(100):
            if file.exists():
                break
            await anyio.sleep(0.05)
        again = await conversation.step(Scripted(calling(("says", {"words": "still here"}))))
        (after,) = await conversation.run_tools(again.calls)

    assert "timed out after 500 ms" == done.text
    assert "called off" == file.read_text(encoding="utf-8")
    assert ("begun", {"progress": 1.0, "total": 3.0}) in heard
    assert ("2 of 3", {"progress": 2.0, "total": 3.0}) in heard
    assert ("2.5", {"progress": 2.5, "total": None}) in heard
    assert "still here" == after.text


async def test_a_server_that_crashes_fails_its_calls_and_nothing_else(
    store: Store, tmp_path: Path
) -> None:
    """CV-05: those under way, and those that come later."""
    async with McpServer.stdio(sys.executable, PROGRAM, name="program") as server:
        conversation = Conversation(store, tools=server.tools)
        conversation.add(user("go"))
        calls = [("waits", {"file": str(tmp_path / "off")}), ("crashes", {})]
        step = await conversation.step(Scripted(calling(*calls)))
        done = await conversation.run_tools(step.calls)
        later = await conversation.step(Scripted(calling(("says", {"words": "hello"}))))
        (after,) = await conversation.run_tools(later.calls)

    lost = "program: the connection was lost"
    assert [lost, lost, lost] == [one.text for one in (*done, after)]


async def test_over_http_too(store: Store) -> None:
    """A server that is killed while a call is under way."""
    with listening() as (process, found):
        url = f"http://127.0.0.1:{found}/mcp"
        async with McpServer.http(url) as server:
            conversation = Conversation(store, tools=server.tools, limits=ToolLimits(seconds=20))
            conversation.add(user("go"))
            step = await conversation.step(Scripted(calling(("crashes", {}))))
            (done,) = await conversation.run_tools(step.calls)
            process.wait()
            again = await conversation.step(Scripted(calling(("says", {"words": "hello"}))))
            (after,) = await conversation.run_tools(again.calls)

    assert [True, True] == [done.failed, after.failed]
    assert done.text.startswith(f"{url}: ")
    assert after.text.startswith(f"{url}: ")


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (McpServer.stdio("no-such-program-here"), "no-such-program-here: .*No such file"),
        (McpServer.stdio(sys.executable, "-c", "", name="mute"), "mute: Connection closed"),
        (McpServer.http("http://127.0.0.1:9/mcp"), "http://127.0.0.1:9/mcp: "),
        (
            McpServer.stdio(
                sys.executable, "-c", "import time; time.sleep(60)", name="x", connect_timeout=0.5
            ),
            "x: no answer in 0.5 seconds",
        ),
    ],
    ids=["no program", "ends at once", "nobody there", "says nothing"],
)
async def test_a_server_that_can_not_be_reached_is_named(server: McpServer, words: str) -> None:
    began = time.monotonic()
    with pytest.raises(ToolUnreachable, match=words):
        async with server:
            pytest.fail("it opened")

    assert time.monotonic() - began < 20


async def test_tools_outlive_their_server_and_say_so(
    address: McpServer, context: ToolContext
) -> None:
    async with address:
        says = named(address)["says"]
    with pytest.raises(ToolUnreachable, match="it is closed"):
        await says.call({"words": "x"}, context)

    with pytest.raises(ValidationError, match="words: is missing"):
        await says.call({}, context)


async def test_what_ends_the_block_comes_out_as_it_is(address: McpServer) -> None:
    """Not wrapped, and not swallowed."""
    with pytest.raises(ValueError, match=r"^mine$"):
        async with address:
            raise ValueError("mine")


async def test_a_server_can_be_opened_again(address: McpServer, context: ToolContext) -> None:
    for _ in range(2):
        async with address:
            assert "x" == (await named(address)["says"].call({"words": "x"}, context)).text


async def test_a_cancelled_block_closes_its_server(address: McpServer) -> None:
    with anyio.CancelScope() as scope:
        async with address:
            scope.cancel()
            await anyio.sleep_forever()

    with pytest.raises(ToolUnreachable, match="it is closed"):
        await address.call_tool("says", {}, _nothing)


async def _nothing(progress: float, total: float | None, message: str | None) -> None:
    """Hear nothing."""


async def test_without_the_package_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(ToolUnreachable, match=r"pip install 'palaver\[mcp\]'"):
        async with McpServer("http://127.0.0.1:9/mcp"):
            pytest.fail("it opened")
