"""What a step costs beside the model: four tools side by side, and a provider that answers at once.

Everybody talks to the same provider through the SDK's own client, over a transport that has its
answer ready: what is measured is what a library does around it. The floor is the bare SDK and
`asyncio.gather`. Against peers both keep nothing but in memory, or both keep it in SQLite (WAL,
synchronous=FULL, a memory disk): palaver every state of every call, a peer what it keeps.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import itertools
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import palaver
from bench.harness import AtLeast, Row, Run, Within, against_floor, against_peer
from palaver.conversation import Conversation, Toolbox, run_until_answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    Go = Callable[[], Awaitable[None]]
    Prepare = Callable[[], Go]

__all__ = ["rows"]

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a memory disk, where there is one
_PLACES: Final = ("here", "there", "above", "below")
_ANSWER: Final = "All is well, everywhere."
_QUESTION: Final = "Look at four places."
_TURN: Final = 2
"""Model calls of a turn: one that asks for tools, one that answers."""
_TIMES: Final = 10
"""One after the other in one task, as in a program that goes on: threads and connections stay."""
_CLOCK: Final = 0.01
"""A shorter difference of two times, in milliseconds, is none."""
_NOTE: Final = "the SDK's client over a transport with the answer ready; the floor stores nothing"


def rows(run: Run) -> Iterator[Row]:
    """A step over the floor, then a turn over the floor, against peers'."""
    with (
        tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder,
        asyncio.Runner() as runner,
    ):
        bench = _Bench(Path(folder), runner)
        rounds = run.rounds(30)
        for where in ("memory", "SQLite"):
            took = bench.timed(rounds, {"ours": bench.step(where), "floor": bench.bare(1)})
            yield against_floor(
                f"step with 4 tools, {where}", took["ours"], took["floor"], n=rounds,
                goal=Within(1.5, 3, "ms"), note=f"floor: the bare SDK and gather; {_NOTE}",
            )  # fmt: skip
        yield from _against_peers(bench, rounds)
        bench.close()


def _against_peers(bench: _Bench, rounds: int) -> Iterator[Row]:
    for name, peer in (("OpenAI Agents Runner", _agents), ("LangGraph create_agent", _langgraph)):
        for where in ("memory", "SQLite"):
            contenders = {
                "ours": bench.turn(where),
                "theirs": peer(bench, where),
                "floor": bench.bare(_TURN),
            }
            took = bench.timed(rounds, contenders)
            yield against_peer(
                f"overhead of a turn with 4 tools, {where}, against {name}",
                max(took["ours"] - took["floor"], _CLOCK), took["theirs"] - took["floor"],
                n=rounds, goal=AtLeast(3), note=f"time beyond the bare SDK's; {_NOTE}",
            )  # fmt: skip


class _Bench:
    """A loop, a folder, and the provider."""

    def __init__(self, folder: Path, runner: asyncio.Runner) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self._runner = runner
        self._open: list[Any] = []
        self.client = client()

    def timed(self, rounds: int, contenders: Mapping[str, Prepare]) -> dict[str, float]:
        """The times of one go; what is made ready before is not counted."""

        async def run(several: list[Go]) -> float:
            began = time.perf_counter()
            for go in several:
                await go()
            return (time.perf_counter() - began) / len(several) * 1_000

        best = dict.fromkeys(contenders, float("inf"))
        for _ in range(rounds):
            for name, prepare in contenders.items():
                several = [prepare() for _ in range(_TIMES)]
                gc.collect()
                best[name] = min(best[name], self._runner.run(run(several)))
        return best

    def _store(self, where: str) -> palaver.Store:
        return palaver.open(":memory:" if where == "memory" else self.file())

    def close(self) -> None:
        """Close what a peer would leave open."""
        for connection in self._open:
            self._runner.run(connection.close())

    def name(self) -> str:
        """A name that was never used."""
        return f"{next(self._numbers)}"

    def file(self) -> Path:
        """A file that was never used."""
        return self._folder / f"{self.name()}.db"

    def made(self, saving: Any, aiosqlite: Any) -> Any:  # noqa: ANN401 - a peer's
        """LangGraph's saver, in the loop that it will run in; it sets WAL itself."""

        async def make() -> Any:  # noqa: ANN401
            connection = await aiosqlite.connect(self.file())
            self._open.append(connection)
            await connection.execute("PRAGMA synchronous = FULL")
            saver = saving.AsyncSqliteSaver(connection)
            await saver.setup()
            return saver

        return self._runner.run(make())

    def step(self, where: str) -> Prepare:
        """One step and its tools, each time in another conversation that has a question."""
        store, tools = self._store(where), Toolbox([look])
        model = palaver.model("openai:gpt-5", client=self.client)

        async def go(conversation: Conversation) -> None:
            step = await conversation.step()
            done = await conversation.run_tools(step.calls)
            assert len(done) == len(_PLACES)

        def prepare() -> Go:
            conversation = Conversation(store, model=model, tools=tools)
            conversation.add(palaver.user(_QUESTION))
            return lambda: go(conversation)

        return prepare

    def turn(self, where: str) -> Prepare:
        """A question, four calls, an answer; each time in another conversation."""
        store, tools = self._store(where), Toolbox([look])
        model = palaver.model("openai:gpt-5", client=self.client)

        async def go(conversation: Conversation) -> None:
            conversation.add(palaver.user(_QUESTION))
            assert (await run_until_answer(conversation)).text == _ANSWER

        def prepare() -> Go:
            conversation = Conversation(store, model=model, tools=tools)
            return lambda: go(conversation)

        return prepare

    def bare(self, calls: int) -> Prepare:
        """The SDK and gather, by hand."""
        return lambda: lambda: _by_hand(self.client, calls)


async def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is fine"


async def _by_hand(sdk: Any, calls: int) -> None:  # noqa: ANN401 - an SDK's client
    messages: list[Any] = [{"role": "user", "content": _QUESTION}]
    for _ in range(calls):
        answer = await sdk.chat.completions.create(model="gpt-5", messages=messages, tools=TOOLS)
        asked = [call.model_dump() for call in answer.choices[0].message.tool_calls or ()]
        results = await asyncio.gather(
            *(look(**json.loads(call["function"]["arguments"])) for call in asked)
        )
        messages.append({"role": "assistant", "content": None, "tool_calls": asked})
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": text}
            for call, text in zip(asked, results, strict=True)
        ]


# ── the provider ────────────────────────────────────────────────────────────────────────────────

TOOLS: Final = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Look at a place.",
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string"}},
                "required": ["place"],
            },
        },
    }
]
_CALLS: Final = [
    {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": "look", "arguments": json.dumps({"place": place})},
    }
    for number, place in enumerate(_PLACES)
]
_USED: Final = {"prompt_tokens": 50, "completion_tokens": 20, "total_tokens": 70}


def client() -> Any:  # noqa: ANN401 - an SDK's client
    """OpenAI's own client, with every answer ready."""
    openai: Any = importlib.import_module("openai")
    httpx: Any = importlib.import_module(openai.DefaultAsyncHttpxClient.__mro__[1].__module__)
    answers = {
        (called, stream): _stream(called=called) if stream else _body(called=called)
        for called in (True, False)
        for stream in (True, False)
    }

    async def answer(request: Any) -> Any:  # noqa: ANN401 - httpx's own
        body = json.loads(request.content)
        called, stream = body["messages"][-1]["role"] == "tool", bool(body.get("stream"))
        kind = "text/event-stream" if stream else "application/json"
        return httpx.Response(200, headers={"content-type": kind}, content=answers[called, stream])

    http = openai.DefaultAsyncHttpxClient(transport=httpx.MockTransport(answer))
    return openai.AsyncOpenAI(
        api_key="none", base_url="http://127.0.0.1:9/v1", max_retries=0, http_client=http
    )


def _body(*, called: bool) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": _ANSWER if called else None}
    if not called:
        message["tool_calls"] = _CALLS
    finish = "stop" if called else "tool_calls"
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    return json.dumps({**_about("chat.completion"), "choices": [choice], "usage": _USED}).encode()


def _stream(*, called: bool) -> bytes:
    pieces: list[dict[str, Any]] = [{"role": "assistant", "content": _ANSWER if called else None}]
    if not called:
        pieces += [{"tool_calls": [{"index": n, **call}]} for n, call in enumerate(_CALLS)]
    about = _about("chat.completion.chunk")
    choices: list[list[dict[str, Any]]] = [
        [{"index": 0, "delta": piece, "finish_reason": None}] for piece in pieces
    ]
    finish = "stop" if called else "tool_calls"
    choices.append([{"index": 0, "delta": {}, "finish_reason": finish}])
    events = [{**about, "choices": choice} for choice in choices]
    events.append({**about, "choices": [], "usage": _USED})
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def _about(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "gpt-5"}


# ── the contenders ──────────────────────────────────────────────────────────────────────────────


def _agents(bench: _Bench, where: str) -> Prepare:
    agents: Any = importlib.import_module("agents")
    sessions: Any = importlib.import_module("agents.memory")
    agents.set_tracing_disabled(True)
    model = agents.OpenAIChatCompletionsModel("gpt-5", openai_client=bench.client)
    agent = agents.Agent(name="bench", model=model, tools=[agents.function_tool(look)])

    file = None if where == "memory" else bench.file()

    async def go(session: Any) -> None:  # noqa: ANN401 - a peer's, here and below
        found = await agents.Runner.run(agent, _QUESTION, session=session)
        assert found.final_output == _ANSWER

    def prepare() -> Go:
        name = bench.name()
        session = None if file is None else sessions.SQLiteSession(name, file)
        return lambda: go(session)

    return prepare


def _langgraph(bench: _Bench, where: str) -> Prepare:
    saving: Any = importlib.import_module("langgraph.checkpoint.sqlite.aio")
    aiosqlite: Any = importlib.import_module("aiosqlite")
    create: Any = importlib.import_module("langchain.agents").create_agent
    tool: Any = importlib.import_module("langchain_core.tools").tool
    openai: Any = importlib.import_module("langchain_openai")
    model = openai.ChatOpenAI(model="gpt-5", api_key="none", max_retries=0)
    model.async_client = bench.client.chat.completions
    saver = None if where == "memory" else bench.made(saving, aiosqlite)
    agent = create(model, tools=[tool(look)], checkpointer=saver)

    async def go(thread: dict[str, Any]) -> None:
        given = {"messages": [{"role": "user", "content": _QUESTION}]}
        found = await agent.ainvoke(given, thread)
        assert found["messages"][-1].text == _ANSWER

    def prepare() -> Go:
        thread = {"configurable": {"thread_id": bench.name()}}
        return lambda: go(thread)

    return prepare
