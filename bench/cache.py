"""What a long conversation writes to Anthropic's prompt cache, beside other ways to ask the same.

An agent talks for 100 turns with tools, is summed up twice and changes its model once. Everybody
asks a server on this machine the same questions and gets the same answers; the judge of
`palaver.testing`, which knows Anthropic's published rules only, then says what each request would
have read, written and paid in full. Nothing is timed: the figures are tokens, the same every time.
The re-write factor is what was written or paid in full, divided by the largest request.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio

from bench.harness import AtLeast, Row, Run, against_peer
from palaver.conversation import Conversation, Summarise, compact
from palaver.models import model
from palaver.testing import PromptCache, ProviderServer
from palaver.testing.servers import Answer, Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Body = Mapping[str, Any]

__all__ = ["NARROW", "WIDE", "Spent", "Talk", "judged", "ours", "pruned", "rows", "trailing"]

_SECONDS: Final = 10.0
"""The time between two requests."""
_MODELS: Final = ("claude-sonnet-4-5", "claude-sonnet-4-6")
_SYSTEM: Final = "You are careful, and look things up before you answer. " * 120
_SUMMARY: Final = "They looked up many numbers, and all of them were fine. " * 12
_ASK: Final = "Sum up the conversation so far."
_KEPT: Final = 4
_OUTPUT: Final = "The value is 42, measured twice, and nobody objected to it. " * 12
_MARK: Final = {"type": "ephemeral"}


class Talk(NamedTuple):
    """What is said: in every fourth turn the model makes `wide` calls, else two."""

    name: str
    wide: int = 12
    turns: int = 100

    @property
    def compacted(self) -> tuple[int, int]:
        """The turns after which it is summed up."""
        return self.turns * 2 // 5, self.turns * 4 // 5

    @property
    def changed(self) -> int:
        """The turn from which on another model is asked."""
        return self.turns * 3 // 5

    def calls(self, turn: int) -> int:
        """How many calls the model makes in a turn."""
        return self.wide if turn % 4 == 0 else 2

    def script(self) -> Iterator[Answer]:
        """What the model answers, summaries apart."""
        for turn in range(self.turns):
            calls = [Call("look_up", {"name": f"{turn}.{n}"}) for n in range(self.calls(turn))]
            yield Answer("I look that up. " * 8, calls=calls, piece=10_000)
            yield Answer(f"The answer to question {turn} is 42. " * 10, piece=10_000)


NARROW: Final = Talk("2 calls a turn", wide=2)
WIDE: Final = Talk("2 calls a turn, every fourth turn 12")


class Spent(NamedTuple):
    """The tokens of all requests, and of the largest; of summaries, how much was read."""

    read: int
    written: int
    uncached: int
    largest: int

    @property
    def factor(self) -> float:
        """How often the largest request was paid at the full price or more."""
        return (self.written + self.uncached) / self.largest

    @property
    def cost(self) -> float:
        """What it costs, in plain tokens: 0.1 for one that is read, 1.25 for one written."""
        return 0.1 * self.read + 1.25 * self.written + self.uncached


def judged(bodies: Iterable[Body]) -> Spent:
    """Return what requests cost by the judge, one every ten seconds."""
    cache = PromptCache("anthropic")
    found = [cache.request(body, at=n * _SECONDS) for n, body in enumerate(bodies)]
    return Spent(
        sum(each.read for each in found),
        sum(each.written for each in found),
        sum(each.uncached for each in found),
        max(each.total for each in found),
    )


def rows(run: Run) -> Iterator[Row]:
    """Compare with the naive ways and the peers, for two kinds of conversation."""
    del run  # nothing is timed
    for talk in (NARROW, WIDE):
        bodies = ours(talk)
        spent = judged(bodies)
        for name, asked in _others(talk, bodies):
            peer = judged(asked)
            yield against_peer(
                f"re-write factor, {talk.name}: against {name}",
                spent.factor, peer.factor, n=talk.turns, unit="x",
                goal=AtLeast(3) if talk is WIDE else None,
                note=f"cost in plain tokens: {spent.cost:,.0f} against {peer.cost:,.0f}",
            )  # fmt: skip


def _others(talk: Talk, bodies: Sequence[Body]) -> Iterator[tuple[str, Iterable[Body]]]:
    yield "one trailing breakpoint", map(trailing, bodies)
    yield "pruning in place", map(pruned, bodies)
    yield "LangChain", _langchain(talk)
    yield "pydantic-ai", _pydantic(talk)


# ── palaver ──────────────────────────────────────────────────────────────────────────────────────


def look_up(name: str) -> str:
    """Look up the value of a name in the table of values, and say who measured it."""
    return f"{name}: {_OUTPUT}"


def ours(talk: Talk) -> list[Body]:
    """Return the requests of a conversation of palaver."""
    return _asked(talk, lambda server: anyio.run(_converse, server, talk))


async def _converse(server: ProviderServer, talk: Talk) -> None:
    made = [model(f"anthropic:{name}", base_url=server.url, api_key="none") for name in _MODELS]
    async with Conversation(":memory:", tools=[look_up], model=made[0]) as conversation:
        conversation.add({"role": "system", "content": _SYSTEM})
        answers = talk.script()
        for turn in range(talk.turns):
            server.then(next(answers), next(answers))
            conversation.model = made[turn >= talk.changed]
            await conversation.ask(f"What is the answer to question {turn}?")
            if turn in talk.compacted:
                server.then(Answer(_SUMMARY))
                await compact(conversation, Summarise(keep_tokens=1_500))
    for each in made:
        await each.close()


def _asked(talk: Talk, ask: Callable[[ProviderServer], object]) -> list[Body]:
    """Return what a server was asked; all of it must have been valid."""
    with ProviderServer("anthropic") as server:
        ask(server)
    assert not server.failures, server.failures[:3]
    assert len(server.requests) == 2 * talk.turns + 2, (talk.name, len(server.requests))
    return [exchange.body for exchange in server.requests]


# ── the naive ways, on the same requests ─────────────────────────────────────────────────────────


def trailing(body: Body) -> Body:
    """Return a request with one breakpoint at its end; a summary is asked of the messages alone."""
    plain = _without_marks(body)
    if _is_summary(body):
        plain = {name: plain[name] for name in ("model", "messages")}
    return {**plain, "cache_control": _MARK}


def pruned(body: Body) -> Body:
    """Return a request in which all but the newest outputs are cleared, as it grows."""
    plain = dict(trailing(body))
    messages = list(plain["messages"])
    with_output = [n for n, each in enumerate(messages) if _results(each)]
    for index in with_output[:-_KEPT]:
        cleared = [
            {**block, "content": "(cleared)"} if block["type"] == "tool_result" else block
            for block in messages[index]["content"]
        ]
        messages[index] = {**messages[index], "content": cleared}
    return {**plain, "messages": messages}


def _results(message: Mapping[str, Any]) -> bool:
    content = message["content"]
    return not isinstance(content, str) and any(b["type"] == "tool_result" for b in content)


def _is_summary(body: Body) -> bool:
    return "Sum up the conversation" in str(body["messages"][-1]["content"])


def _without_marks(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, list):
        return [_without_marks(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _without_marks(each) for name, each in value.items() if name != "cache_control"}


# ── peers ────────────────────────────────────────────────────────────────────────────────────────


def _langchain(talk: Talk) -> list[Body]:
    """The requests of LangChain, with the mark that its caching middleware sets."""
    return _asked(talk, lambda server: _ask_langchain(server, talk))


def _ask_langchain(server: ProviderServer, talk: Talk) -> None:
    kinds: Any = importlib.import_module("langchain_core.messages")
    tools: Any = importlib.import_module("langchain_core.tools")
    anthropic: Any = importlib.import_module("langchain_anthropic")
    look: Any = tools.tool(look_up)
    made = [
        anthropic.ChatAnthropic(model=name, base_url=server.url, api_key="none", max_retries=0)
        for name in _MODELS
    ]
    said: list[Any] = [kinds.SystemMessage(_SYSTEM)]
    answers = talk.script()
    for turn in range(talk.turns):
        asking = made[turn >= talk.changed].bind_tools([look])
        said.append(kinds.HumanMessage(f"What is the answer to question {turn}?"))
        for _ in range(2):
            server.then(next(answers))
            answer = asking.invoke(said, cache_control=_MARK)
            said.append(answer)
            for call in answer.tool_calls:
                found = look_up(**call["args"])
                said.append(kinds.ToolMessage(found, tool_call_id=call["id"]))
        if turn in talk.compacted:
            cut = len(said) - _last_turns(said, kinds.HumanMessage)
            server.then(Answer(_SUMMARY))
            words = kinds.get_buffer_string(said[1:cut])
            summary = made[turn >= talk.changed].invoke(
                [kinds.HumanMessage(f"{_ASK}\n\n{words}")], cache_control=_MARK
            )
            said = [said[0], kinds.HumanMessage(summary.text), *said[cut:]]


def _last_turns(said: Sequence[Any], human: Any) -> int:  # noqa: ANN401 - a peer's type
    begins = [n for n, message in enumerate(said) if isinstance(message, human)]
    return len(said) - begins[-2]


def _pydantic(talk: Talk) -> list[Body]:
    """The requests of pydantic-ai, with all of its settings for caching on."""
    return _asked(talk, lambda server: anyio.run(_ask_pydantic, server, talk))


async def _ask_pydantic(server: ProviderServer, talk: Talk) -> None:
    agents: Any = importlib.import_module("pydantic_ai")
    models: Any = importlib.import_module("pydantic_ai.models.anthropic")
    providers: Any = importlib.import_module("pydantic_ai.providers.anthropic")
    sdk: Any = importlib.import_module("anthropic")
    client = sdk.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0)
    provider = providers.AnthropicProvider(anthropic_client=client)
    settings = models.AnthropicModelSettings(
        anthropic_cache_instructions=True,
        anthropic_cache_tool_definitions=True,
        anthropic_cache_messages=True,
    )
    made = [models.AnthropicModel(name, provider=provider, settings=settings) for name in _MODELS]
    agent = agents.Agent(instructions=_SYSTEM, tools=[look_up])
    summing = agents.Agent()
    history: list[Any] = []
    answers = talk.script()
    for turn in range(talk.turns):
        server.then(next(answers), next(answers))
        using = made[turn >= talk.changed]
        question = f"What is the answer to question {turn}?"
        done = await agent.run(question, message_history=history, model=using)
        history = done.all_messages()
        if turn in talk.compacted:
            server.then(Answer(_SUMMARY))
            turn_size = len(done.new_messages())
            summary = await summing.run(
                f"{_ASK}", message_history=history[:-turn_size], model=using
            )
            history = [*summary.new_messages(), *history[-turn_size:]]
    await client.close()
