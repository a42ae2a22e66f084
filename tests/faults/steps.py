"""Kill -9 in the middle of a step: a model is asked, three tools run, and the process is killed.

The process says in a ledger how far it is, and each tool says in a file of its own, on disk before
it goes on, that it has begun and that it is done. After every kill `recover()` must account for
each call without guessing: what had an effect is never said to be waiting, nothing that was
acknowledged is gone, no effect is there twice, and what is left is valid for every provider. Then
the conversation goes on to an answer. Some kills are left to the next process to recover from, so
that recovering is killed too.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unittest import mock

import anyio
import apsw

import palaver
from palaver.conversation import Conversation, ToolContext, run_until_answer, tool
from palaver.conversation import step as steps
from palaver.errors import PalaverError
from palaver.messages import ModelRef, ToolCallPart, ToolPart, user
from palaver.testing import check_request
from palaver.testing.providers import FORMAT_NAMES
from palaver.wire import Target
from palaver.wire.reply import TextDelta
from tests.conversation.scripted import Scripted, calling, saying
from tests.faults.nursery import KILLED, Ledger, Nursery
from tests.faults.scratch import scratch
from tests.faults.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from palaver import Store
    from palaver.conversation import Recovered

__all__ = ["GOAL", "NAME", "run"]

NAME: Final = "kill -9, a step with tools"
GOAL: Final = "200 kills, each call accounted for, no effect twice"
_KILLS: Final = 12
"""Of one store."""
_TOOLS: Final = ("slow", "plain", "again")
_SAID: Final = ("I will ", "look at ", "three things. ")
_ANSWER: Final = ("All ", "is ", "well.")
_MOMENTS: Final = {
    "": "before the call",
    "asking": "before the call",
    "heard": "in the stream",
    "stored": "after the reply",
    "begun": "in a tool",
    "done": "in a tool",
    "results": "after the results",
    "recovered": "after recovering",
    "recovering": "while recovering",
}


def run(count: int, seed: int) -> Tally:
    """Kill so many times."""
    tally = Tally(NAME, "kills", GOAL)
    number = 0
    with scratch() as folder, Nursery() as nursery:
        while tally.faults < count:
            trial = _Trial(f"step/{seed}/{number}", folder / f"{number}", nursery, tally)
            trial.run(min(_KILLS, count - tally.faults))
            number += 1
    return tally


# ── the process that is killed ──────────────────────────────────────────────────────────────────


def child(ledger: Ledger, folder: str, name: str, seed: str) -> None:
    """Recover, then ask, run tools and ask again, until killed."""
    with mock.patch.object(steps, "DRAFT_SECONDS", -1.0):  # a draft for every piece
        anyio.run(_work, ledger, folder, name, seed)


async def _work(ledger: Ledger, folder: str, name: str, seed: str) -> None:
    store = _open(folder)
    conversation = Conversation(store, name, tools=_tools(folder, seed, ledger.write))
    ledger.write("recovering")
    await conversation.recover()
    if calls := conversation.waiting():
        await conversation.run_tools(calls)
    ledger.write("recovered")
    while True:
        added = conversation.add(user("And now?"))
        ledger.write(f"asking {added.id}")
        await _answered(conversation, ledger.write)


def _open(folder: object) -> Store:
    """The store, as if the lease of every process before this one had run out."""
    path = f"{folder}/killed.db"
    store = palaver.open(path)
    with closing(apsw.Connection(path)) as file:
        file.set_busy_timeout(10_000)
        file.execute("UPDATE leases SET expires = 0")
    return store


async def _answered(conversation: Conversation, tell: Callable[[str], None]) -> None:
    """One turn: a step with calls, their results, an answer."""
    wanted = [(tool, {"words": f"{len(conversation)}"}) for tool in _TOOLS]
    model = Scripted(_pieces(_SAID, calling(*wanted, used=(20, 9))), saying(*_ANSWER))
    step = await conversation.step(model, on_delta=lambda delta: tell(f"heard {_text(delta)}"))
    tell(f"stored {step.message.id}")
    outcomes = await conversation.run_tools(step.calls)
    tell("results " + " ".join(outcome.message.id for outcome in outcomes if outcome.message))
    step = await conversation.step(model, on_delta=lambda delta: tell(f"heard {_text(delta)}"))
    tell(f"stored {step.message.id}")


def _pieces(words: Sequence[str], rest: list[Any]) -> list[Any]:
    return [*({"choices": [{"delta": {"content": word}}]} for word in words), *rest]


def _text(delta: object) -> str:
    return delta.text.strip().replace(" ", "_") if isinstance(delta, TextDelta) else ""


def _tools(folder: str, seed: str, tell: Callable[[str], None]) -> list[Any]:
    """Three tools that leave traces: one async, one plain, one that may run again."""
    draw = random.Random(seed)  # noqa: S311 - no secret

    def trace(what: str, context: ToolContext) -> None:
        file = os.open(f"{folder}/{context.call.tool}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.write(file, f"{what} {context.call.id}\n".encode())
        os.fsync(file)
        os.close(file)
        tell(f"{what} {context.call.tool}")

    async def slow(words: str, context: ToolContext) -> str:
        trace("begun", context)
        await anyio.sleep(draw.random() * 0.004)
        trace("done", context)
        return words

    def plain(words: str, context: ToolContext) -> str:
        trace("begun", context)
        time.sleep(draw.random() * 0.004)
        trace("done", context)
        return words

    return [slow, plain, tool(plain, name="again", idempotent=True)]


# ── what is looked at afterwards ────────────────────────────────────────────────────────────────


class _Failure(Exception):  # noqa: N818 - told in the tally
    """Something that must not be."""


class _Effects(NamedTuple):
    """What the tools did: how often each call began, and was done."""

    begun: Counter[str]
    done: Counter[str]

    @staticmethod
    def read(folder: Path) -> _Effects:
        lines = [
            line.split()
            for name in _TOOLS
            if (folder / name).exists()
            for line in (folder / name).read_text().splitlines()
        ]
        return _Effects(
            Counter(call for what, call in lines if what == "begun"),
            Counter(call for what, call in lines if what == "done"),
        )


class _Asked(NamedTuple):
    """A model of some format, as far as writing a request for it goes."""

    format: str
    ref: ModelRef = ModelRef("anyone", "any")
    target: Target = Target()

    def stream(self, _: object) -> None:
        """Nobody asks it."""


class _Trial:
    """One store, and a process that is killed again and again."""

    def __init__(self, name: str, folder: Path, nursery: Nursery, tally: Tally) -> None:
        self._name = name
        self._folder = folder
        self._nursery = nursery
        self._tally = tally
        self._draw = random.Random(name)  # noqa: S311 - no secret
        self._acked: list[str] = []
        folder.mkdir()
        with palaver.open(folder / "killed.db") as store:
            self._conversation = store.create([user("Look at three things.")]).id

    def run(self, kills: int) -> None:
        """Kill, look, go on."""
        for number in range(kills):
            heard = self._killed(number)
            if heard is None:
                return
            moment = _MOMENTS[heard[-1].split()[0] if heard else ""]
            story = f"{self._name}, kill {number}, last line {heard[-1:]}"
            if self._draw.random() < 0.2 and number < kills - 1:
                self._tally.count(f"{moment} (the next process recovers)")
                continue
            try:
                anyio.run(self._look, heard, number + 1)
            except (_Failure, PalaverError) as failure:
                what = str(failure).partition(":")[0]
                self._tally.fail(what, f"{story}: {type(failure).__name__} {failure}")
                return
            self._tally.count(moment)

    def _killed(self, number: int) -> list[str] | None:
        """The lines of a process that was killed; None where it ended by itself."""
        ledger = self._folder / "ledger"
        ledger.unlink(missing_ok=True)
        args = [str(self._folder), self._conversation, f"{self._name}/{number}"]
        lines, grace = self._draw.randint(0, 36), self._draw.choice([0, self._draw.random() * 0.01])
        job = "tests.faults.steps:child"
        status = self._nursery.run(job, args, ledger, lines=lines, grace=grace)
        heard = ledger.read_text().splitlines() if ledger.exists() else []
        if status != KILLED:
            self._tally.fail("ended by itself", f"{self._name}, kill {number}, {heard[-1:]}")
            return None
        for line in heard:
            what, *ids = line.split()
            if what in ("asking", "stored", "results"):
                self._acked += ids
        return heard

    async def _look(self, heard: list[str], number: int) -> None:
        with _open(self._folder) as store:
            self._whole(store)
            tools = _tools(str(self._folder), self._name, lambda _: None)
            conversation = Conversation(store, self._conversation, tools=tools)
            open_before = {e.id for e in conversation.ledger().values() if not e.stray}
            steps_before = set(store.backend.records(conversation.id, "step"))
            found = await conversation.recover()
            self._reported(found, open_before, steps_before)
            self._accounted(conversation, number)
            self._kept(conversation, found, heard)
            _valid(conversation)
            step = await run_until_answer(conversation, Scripted(saying(*_ANSWER)))
            _expect(step.text == "".join(_ANSWER), f"no answer: {step.text!r}")
            _valid(conversation)
            _expect(not conversation.ledger(), "open calls: after an answer")
            self._accounted(conversation, number)
            self._whole(store)

    def _whole(self, store: Store) -> None:
        problems = list(store.verify())
        _expect(not problems, f"corrupt: {problems[:1]}")

    def _reported(
        self, found: list[Recovered], open_before: set[str], steps_before: set[str]
    ) -> None:
        """Each call and each step that was open is reported, once, and nothing else is."""
        calls = Counter(item.id for item in found if item.kind == "call")
        drafted = {
            item.id for item in found if item.kind == "step" and item.outcome == "kept"
        }  # their calls come into the ledger with them
        seen = Counter(item.id for item in found if item.kind == "step")
        _expect(seen == Counter(steps_before), f"unreported: steps {steps_before} as {seen}")
        _expect(set(calls.values()) <= {1}, f"reported twice: {calls}")
        missing = open_before - set(calls)
        _expect(not missing, f"unreported: calls {missing}")
        extra = set(calls) - open_before
        _expect(not extra or bool(drafted), f"invented: calls {extra}")
        again = [item.tool for item in found if item.outcome == "repeat"]
        _expect(set(again) <= {"again"}, f"repeated: {again}")

    def _accounted(self, conversation: Conversation, number: int) -> None:
        """Each call has one result or waits, and both agree with what the tools did."""
        effects, states = _Effects.read(self._folder), _states(conversation)
        waiting = {entry.id for entry in conversation.ledger().values()}
        for call in _calls(conversation):
            state, began = states.get(call.id), effects.begun[call.id]
            _expect((state is None) == (call.id in waiting), f"unaccounted: {call.tool} is {state}")
            most = 1 + number if call.tool == "again" else 1
            _expect(began <= most, f"effect twice: {call.tool} began {began} times")
            if state is None and call.tool != "again":
                _expect(began == 0, f"guessed: {call.tool} has begun and is said to wait")
            if state == "completed":
                _expect(effects.done[call.id] > 0, f"guessed: {call.tool} was never done")

    def _kept(self, conversation: Conversation, found: list[Recovered], heard: list[str]) -> None:
        """What was acknowledged is there; of a broken answer, all but the last piece heard."""
        ids = {message.id for message in conversation.messages}
        lost = [name for name in self._acked if name not in ids]
        _expect(not lost, f"lost: {lost}")
        stored = max((at for at, line in enumerate(heard) if line.startswith("stored")), default=-1)
        pieces = [line.removeprefix("heard") for line in heard[stored + 1 :] if "heard" in line]
        if any(item.kind == "step" for item in found):
            wanted = "".join(map(str.strip, pieces[:-1])).replace("_", "")
            got = conversation.messages[-1].text.replace(" ", "")
            _expect(not wanted or got.startswith(wanted), f"lost: {wanted!r}, kept {got!r}")


def _states(conversation: Conversation) -> dict[str, str]:
    """What became of the calls, by the ids of their parts; each result follows its call, once."""
    states: dict[str, str] = {}
    waiting: dict[str, str] = {}
    for message in conversation.messages:
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                waiting[part.call_id] = part.id
            elif isinstance(part, ToolPart):
                call = waiting.pop(part.call_id, None)
                _expect(call is not None, f"results: one of {part.tool} too many")
                states[str(call)] = part.state.status
    return states


def _calls(conversation: Conversation) -> list[ToolCallPart]:
    parts = [part for message in conversation.messages for part in message.parts]
    return [part for part in parts if isinstance(part, ToolCallPart)]


def _valid(conversation: Conversation) -> None:
    """Every provider would take it."""
    for form in FORMAT_NAMES:
        body = conversation.request(_Asked(form)).body  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        problems = check_request(form, body)
        _expect(not problems, f"invalid: {form}, {problems[:1]}")


def _expect(true: bool, otherwise: str) -> None:  # noqa: FBT001 - like assert
    if not true:
        raise _Failure(otherwise)
