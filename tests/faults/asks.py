"""Kill -9 in the middle of a question: an approval waits, an answer streams in, or has a type.

A process asks with a key and says in a ledger how far it is. It is killed; the next process asks
the same with the same key, and may be killed too; the last one gets the answer. It takes over when
the lease of the killed one has run out, as it would in a service: nothing is reset. Then the
question is there once, no tool had its effect twice, no answer that was stored was asked for again,
and what had been heard of an answer is stored.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import anyio
import anyio.lowlevel

import palaver
from palaver import Conversation, TextDelta, tool
from palaver.conversation import step as steps
from palaver.errors import PalaverError
from palaver.messages import AssistantInfo, Message, ModelRef, ToolCallPart
from palaver.wire import Target
from tests.conversation.scripted import calling, saying
from tests.faults.nursery import KILLED, Ledger, Nursery
from tests.faults.scratch import scratch
from tests.faults.tally import Tally

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
    from pathlib import Path

    from palaver.models.base import ModelRequest

    Tell = Callable[[str], None]

__all__ = ["GOAL", "NAMES", "ScriptedProvider", "run"]

NAMES: Final = {
    "approval": "kill -9, a waiting approval",
    "stream": "kill -9, a streamed answer",
    "output": "kill -9, a structured answer",
}
GOAL: Final = "30 kills, the question once, no effect twice, no stored answer asked for again"
_QUESTION: Final = "What about Oslo?"
_KEY: Final = "q"
_LEASE: Final = 0.5
_KILLS: Final = 3
"""Of one question, at most."""
_WORDS: Final = tuple(f"word-{number} " for number in range(12))


@dataclass(frozen=True)
class Forecast:
    """What is asked for."""

    city: str
    degrees: int


class ScriptedProvider:
    """A model that answers by what it is sent, as often as it is asked, and tells when it is."""

    format = "openai-chat"
    window: int | None = 8_000

    def __init__(self, kind: str, tell: Tell) -> None:
        """Answer in the way of one kind of question."""
        self.ref = ModelRef("openai", "scripted")
        self.target = Target()
        self._kind = kind
        self._tell = tell

    def _answer(self, messages: list[Mapping[str, Any]]) -> list[Any]:
        if self._kind == "approval":
            done = any(message["role"] == "tool" for message in messages)
            return saying("Paid.") if done else calling(("pay", {"amount": 5}))
        if self._kind == "output":
            again = any("does not fit" in str(message) for message in messages)
            return saying('{"city": "Oslo",', ' "degrees": 9}') if again else saying("It is cold.")
        return saying(*_WORDS)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Mapping[str, Any]]:
        """Give the events of an answer, one by one."""
        self._tell("asked")
        event: Any
        for event in self._answer(request.body["messages"]):
            await anyio.lowlevel.checkpoint()
            yield event
            self._tell("taken")

    async def complete(self, request: ModelRequest) -> Mapping[str, Any]:
        """It is only ever streamed."""
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open."""


# ── the process that is killed ──────────────────────────────────────────────────────────────────


def child(ledger: Ledger, address: str, name: str, kind: str) -> None:
    """Ask, until there is an answer or the process is killed."""
    with mock.patch.object(steps, "DRAFT_SECONDS", -1.0):  # a draft for every piece
        anyio.run(_ask, ledger.write, address, name, kind)


async def _ask(tell: Tell, address: str, name: str, kind: str) -> None:
    async with palaver.open(address) as store:
        history = await store.aget(name)
        model = ScriptedProvider(kind, tell)
        talk = Conversation(store, history, model=model, tools=[_pay(tell)], lease=_LEASE, wait=20)
        tell("opened")
        tell(f"answered {await _PROGRAMS[kind](talk, tell)}")


def _pay(tell: Tell) -> Any:  # noqa: ANN401 - a tool
    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay an amount."""
        tell("effect begun")
        await anyio.sleep(0.003)
        tell("effect done")
        return f"paid {amount}"

    return pay


async def _approval(talk: Conversation, tell: Tell) -> str:
    answer = await talk.ask(_QUESTION, key=_KEY)
    if answer.waiting:
        tell("waiting")
        await anyio.sleep(0.003)

        def approve(_: ToolCallPart) -> bool:
            tell("approving")
            return True

        answer = await talk.ask(_QUESTION, key=_KEY, approve=approve)
    return answer.text


async def _stream(talk: Conversation, tell: Tell) -> str:
    async with talk.stream(_QUESTION, key=_KEY) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                tell(f"heard {event.text.strip()}")
    assert events.answer is not None
    return events.answer.text


async def _output(talk: Conversation, _: Tell) -> str:
    return repr(await talk.ask(_QUESTION, key=_KEY, output=Forecast))


_PROGRAMS: Final[dict[str, Callable[[Conversation, Tell], Awaitable[str]]]] = {
    "approval": _approval,
    "stream": _stream,
    "output": _output,
}
_ANSWERS: Final = {
    "approval": "Paid.",
    "stream": "".join(_WORDS),
    "output": repr(Forecast("Oslo", 9)),
}
_LINES: Final = {"approval": 14, "stream": 26, "output": 10}
"""How many lines a process writes before its answer, about."""


# ── what is looked at afterwards ────────────────────────────────────────────────────────────────


def run(count: int, seed: int, *, kind: str) -> Tally:
    """Kill so many times."""
    tally = Tally(NAMES[kind], "kills", GOAL)
    number = 0
    with scratch() as folder, Nursery() as nursery:
        while tally.faults < count:
            trial = _Trial(f"ask/{kind}/{seed}/{number}", folder, nursery, tally)
            trial.run(kind, min(_KILLS, count - tally.faults))
            number += 1
    return tally


class _Trial:
    """One question, and processes that are killed while they ask it."""

    def __init__(self, name: str, folder: Path, nursery: Nursery, tally: Tally) -> None:
        self._name = name
        self._address = str(folder / "killed.db")
        self._folder = folder
        self._nursery = nursery
        self._tally = tally
        self._draw = random.Random(name)  # noqa: S311 - no secret

    def run(self, kind: str, kills: int) -> None:
        """Kill, ask again, and compare in the end."""
        with palaver.open(self._address) as store:
            name = store.create().id
        lines: list[str] = []
        moments: list[str] = []
        status = KILLED
        job, args = "tests.faults.asks:child", [self._address, name, kind]
        for number in range(kills + 1):
            ledger = self._folder / f"ledger-{name}-{number}"
            ask = partial(self._nursery.run, job, args, ledger)
            if number < kills:
                after = self._draw.randint(1, _LINES[kind])
                status = ask(lines=after, grace=self._draw.random() * 0.004)
            else:
                status = ask()
            told = ledger.read_text().splitlines() if ledger.exists() else []
            lines += told
            if status != KILLED:
                break
            moments.append(told[-1] if told else "opening")
        if status or not lines[-1].startswith("answered"):
            self._tally.fail("ended otherwise", f"{self._name}: {status}, {lines}")
            return
        try:
            self._look(name, kind, lines, len(moments))
        except (AssertionError, PalaverError) as error:
            self._tally.fail(str(error).partition(":")[0], f"{self._name}: {error}, {lines}")
            return
        for moment in moments:
            self._tally.count(f"after {moment.partition(' word')[0]!r}")

    def _look(self, name: str, kind: str, lines: list[str], kills: int) -> None:
        said = Counter(line.partition(" ")[0] for line in lines)
        effects = Counter(line for line in lines if line.startswith("effect"))
        answer = next(line for line in lines if line.startswith("answered"))
        with palaver.open(self._address) as store:
            problems = list(store.verify(name))
            talk = Conversation(store, name)
            messages, left = list(talk.messages), talk.ledger()
            leftover = [kind for kind in ("step", "draft") if store.records(name, kind)]
        _expect(not problems, f"corrupt: {problems}")
        _expect(not left and not leftover, f"left open: {left}, {leftover}")
        _expect([_QUESTION] == _texts(messages, "user")[:1], f"question: {messages}")
        _expect(_texts(messages, "user").count(_QUESTION) == 1, "question: more than once")
        _expect(answer == f"answered {_ANSWERS[kind]}" or _cut_off(lines), f"answer: {answer}")
        _expect(max(effects.values(), default=0) <= 1, f"effect twice: {effects}")
        complete = [
            message
            for message in messages
            if isinstance(message.info, AssistantInfo)
            and (message.info.finish != "interrupted" or _makes_calls(message))
        ]
        wanted = 1 if kind == "stream" else 2
        _expect(len(complete) == wanted, f"answers: {len(complete)} in place of {wanted}")
        _expect(said["asked"] <= wanted + kills, f"asked again: {said['asked']}, {kills} kills")
        repairs = sum("does not fit" in text for text in _texts(messages, "user"))
        _expect(repairs == (kind == "output"), f"repairs: {repairs}")
        if kind == "stream":  # a piece is stored before the next one is taken in
            both = pairwise(lines)
            heard = [one.split()[1] for one, then in both if (one[:5], then) == ("heard", "taken")]
            stored = " ".join(_texts(messages, "assistant")).split()
            _expect(_is_part(heard, stored), f"lost: {heard}; stored: {stored}")


def _cut_off(lines: list[str]) -> bool:
    """Tell whether the payment was cut off: then the model is told so, and answers the same."""
    return "effect begun" in lines and "effect done" not in lines


def _makes_calls(message: Message) -> bool:
    return any(isinstance(part, ToolCallPart) for part in message.parts)


def _is_part(heard: list[str], stored: list[str]) -> bool:
    """Tell whether all that was heard is stored, in order."""
    rest = iter(stored)
    return all(word in rest for word in heard)


def _texts(messages: list[Message], role: str) -> list[str]:
    return [message.text for message in messages if message.role == role]


def _expect(holds: object, failure: str) -> None:
    assert holds, failure
