"""The same program in memory and in every store: the same life, step by step.

A step is drawn as plain numbers, cut down to what there is when it is carried out, and carried out
everywhere. Stores are closed and opened again at any moment. Nothing may tell the lives apart:
answers, errors, messages, batches, marks, versions.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

import palaver
from palaver.history import BaseHistory
from palaver.messages import to_dict
from palaver.stores import Store
from tests.faults.scratch import scratch
from tests.faults.tally import Tally
from tests.history.samples import one
from tests.profiles import scaled, steps
from tests.stores.conftest import KINDS
from tests.stores.worlds import StoredWorld, World, outcome, seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from palaver.messages import Message

    Told = Callable[[Tally], None]

LETTERS = "suat"
WORDS = ("tea", "milk", "sugar")
FORKS = 4
STEPS_OF_ONE: Final = 36
"""That a program takes on average, about; one rule may be several steps."""

numbers = st.integers(0, 1_000)
small = st.integers(0, 6)
spoken = st.lists(st.sampled_from(LETTERS), min_size=1, max_size=4)
truncations = st.fixed_dictionaries(
    {},
    optional={
        "keepFirst": numbers.map(lambda n: n % 12),
        "keepLast": numbers.map(lambda n: n % 12),
        "removeFirst": small.map(lambda n: n % 3),
        "removeLast": small.map(lambda n: n % 3),
        "role": st.sampled_from(["user", "system", "assistant", "tool"]),
        "others": st.just("keep"),
    },
)
filters = st.fixed_dictionaries(
    {},
    optional={
        "roles": st.lists(st.sampled_from(["user", "system", "tool"]), min_size=1, max_size=2),
        "contentContains": st.lists(st.sampled_from(WORDS), min_size=1, max_size=2),
        "contentExcludes": st.lists(st.sampled_from(["1", "2", "tea"]), max_size=2),
    },
)


class ProgramMachine(RuleBasedStateMachine):
    """Every change, in any order, in every world."""

    taken: ClassVar[int] = 0
    server: ClassVar[str] = ""
    """The address of a database. It serves all programs, so each gives its talks other names."""
    programs: ClassVar[Iterator[int]] = count()

    def __init__(self) -> None:
        super().__init__()
        self.rooms = ExitStack()
        folder = self.rooms.enter_context(scratch())
        self.program = next(self.programs)
        self.now = 0
        self.said = 0
        clock = self.clock
        self.worlds = [
            World(clock),
            *(StoredWorld(clock, kind(folder)) for kind in KINDS.values()),
            StoredWorld(clock, lambda: palaver.open(self.server)),
        ]
        for world in self.worlds:
            self.rooms.callback(world.close)
        self.names: list[str] = []

    def clock(self) -> int:
        return self.now

    def say(self, letters: list[str]) -> list[Message]:
        messages: list[Message] = []
        for letter in letters:
            self.said += 1
            text = f"{WORDS[self.said % 3]} {self.said}"
            messages.append(one(f"{letter}{self.said}", text, timestamp=self.said % 50))
        return messages

    @property
    def plain(self) -> World:
        return self.worlds[0]

    def pick(self, which: int) -> str:
        return self.names[which % len(self.names)]

    def everywhere(self, name: str, what: Callable[[World], object]) -> None:
        """Do something in every world, and demand the same answer and the same state."""
        type(self).taken += 1
        self.now += 1
        answers = [outcome(partial(what, world)) for world in self.worlds]
        states = [seen(world.histories[name]) for world in self.worlds]
        for answer, state in zip(answers[1:], states[1:], strict=True):
            assert answers[0] == answer
            assert states[0] == state

    def on(self, name: str, what: Callable[[BaseHistory], object]) -> None:
        self.everywhere(name, lambda world: what(world.histories[name]))

    @initialize(letters=st.lists(st.sampled_from(LETTERS), max_size=6))
    def begin(self, letters: list[str]) -> None:
        messages = self.say(letters)
        self.names = [f"talk {self.program}"]
        for world in self.worlds:
            world.begin(self.names[0], messages)

    # ── the seven operations ────────────────────────────────────────────────────────────────────

    @rule(which=small, letters=spoken, together=st.booleans())
    def append(self, which: int, letters: list[str], *, together: bool) -> None:
        messages = self.say(letters)
        if together:
            self.on(self.pick(which), lambda history: history.extend(messages))
        else:
            for message in messages:
                self.on(self.pick(which), _appending(message))

    @rule(which=small, place=numbers, letters=spoken)
    def insert(self, which: int, place: int, letters: list[str]) -> None:
        name, messages = self.pick(which), self.say(letters)
        position = place % (len(self.plain.histories[name]) + 2)  # one too many is refused
        self.on(name, lambda history: history.insert(position, messages))

    @rule(which=small, place=numbers, letter=st.sampled_from(LETTERS))
    def replace(self, which: int, place: int, letter: str) -> None:
        name, (message,) = self.pick(which), self.say([letter])
        index = place % (len(self.plain.histories[name]) + 1)
        self.on(name, lambda history: history.replace(index, message))

    @rule(which=small, options=truncations)
    def truncate(self, which: int, options: dict[str, Any]) -> None:
        operation = {"operation": "TRUNCATE", **options}
        self.on(self.pick(which), lambda history: history.execute(operation))

    @rule(which=small, options=filters)
    def filter(self, which: int, options: dict[str, Any]) -> None:
        operation = {"operation": "FILTER", **options}
        self.on(self.pick(which), lambda history: history.execute(operation))

    @rule(which=small, keep=st.booleans())
    def clear(self, which: int, *, keep: bool) -> None:
        self.on(self.pick(which), lambda history: history.clear(keep_system_message=keep))

    @rule(which=small, place=numbers)
    def rollback(self, which: int, place: int) -> None:
        name = self.pick(which)
        target = place % (self.plain.histories[name].batch_index + 2)
        self.on(name, lambda history: history.rollback(target))

    # ── the way back ────────────────────────────────────────────────────────────────────────────

    @rule(which=small, times=st.integers(1, 4))
    def undo(self, which: int, times: int) -> None:
        for _ in range(times):
            self.on(self.pick(which), lambda history: history.undo())

    @rule(which=small, times=st.integers(1, 4))
    def redo(self, which: int, times: int) -> None:
        for _ in range(times):
            self.on(self.pick(which), lambda history: history.redo())

    @rule(which=small, place=numbers)
    def restore(self, which: int, place: int) -> None:
        name = self.pick(which)
        version = place % (self.plain.histories[name].version + 2)
        self.on(name, lambda history: history.restore(version))

    @rule(which=small, place=numbers)
    def look_back(self, which: int, place: int) -> None:
        name = self.pick(which)
        version = place % (self.plain.histories[name].version + 1)
        self.on(name, lambda history: history.at(version).state.to_dict())
        self.on(name, lambda history: to_dict(history.at(version).mark_map()))
        self.on(name, lambda history: to_dict(list(history.log)))

    # ── marks, task, questions, erasing ─────────────────────────────────────────────────────────

    @rule(which=small, place=numbers, mark=st.sampled_from(["pin", "todo"]), put=st.booleans())
    def mark(self, which: int, place: int, mark: str, *, put: bool) -> None:
        name = self.pick(which)
        log = list(self.plain.histories[name].log)
        message: int | str = log[place % len(log)].id if log else 0
        change = BaseHistory.mark if put else BaseHistory.unmark
        self.on(name, lambda history: change(history, message, mark))

    @rule(which=small, task=st.sampled_from([None, "make tea", "serve it"]))
    def set_team_task(self, which: int, task: str | None) -> None:
        self.on(self.pick(which), lambda history: history.set_team_task(task))

    @rule(which=small, since=st.integers(0, 50), role=st.sampled_from(["user", "tool"]))
    def ask(self, which: int, since: int, role: Any) -> None:  # noqa: ANN401 - a Role
        name = self.pick(which)
        self.on(name, lambda history: history.recent(3, role=role))
        self.on(name, lambda history: history.query(since=since, until=since + 9))
        self.on(name, lambda history: history.log.query(role=role, mark="pin"))

    @rule(which=small, place=numbers, sure=st.sampled_from([True, False, False, False]))
    def erase(self, which: int, place: int, *, sure: bool) -> None:
        name = self.pick(which)
        if sure and len(self.plain.histories[name]):
            index = place % len(self.plain.histories[name])
            self.on(name, lambda history: history.erase(index).to_dict())
            for world in self.worlds[1:]:
                world.reopen()  # whoever has it open sees it when it looks again

    # ── forks ───────────────────────────────────────────────────────────────────────────────────

    @precondition(lambda self: len(self.names) < FORKS)
    @rule(which=small, back=st.sampled_from([0, 0, 1, 3, 1_000]))
    def fork(self, which: int, back: int) -> None:
        parent, name = self.pick(which), f"fork {len(self.names)} of {self.program}"
        version = max(self.plain.histories[parent].version - back, 0)
        self.names.append(name)

        def fork(world: World) -> None:
            world.histories[name] = world.histories[parent].fork(
                at=version if back else None, id=name
            )

        self.everywhere(name, fork)

    @precondition(lambda self: len(self.names) > 1)
    @rule(which=small, home=st.booleans())
    def merge(self, which: int, *, home: bool) -> None:
        child = self.names[1:][which % (len(self.names) - 1)]
        origin = self.plain.histories[child].origin
        assert origin is not None
        into, other = (origin[0], child) if home else (child, origin[0])
        self.everywhere(into, lambda world: world.histories[into].merge(world.histories[other]))

    @rule()
    def reopen(self) -> None:
        for world in self.worlds:
            world.reopen()

    def teardown(self) -> None:
        """At the end, everything is looked at once more."""
        with self.rooms:
            self.look_at_all()

    def look_at_all(self) -> None:
        """Every version of every conversation, read anew, is the same everywhere."""
        self.reopen()
        for name in self.names:
            plain = self.plain.histories[name]
            for world in self.worlds[1:]:
                kept = world.histories[name]
                assert seen(plain) == seen(kept)
                for version in range(plain.version + 1):
                    before, after = plain.at(version), kept.at(version)
                    assert to_dict(list(before)) == to_dict(list(after))
                    assert before.marks == after.marks
        for world in self.worlds:
            world.prove()


def _appending(message: Message) -> Callable[[BaseHistory], object]:
    return lambda history: history.append(message)


def run(wanted: int, address: str) -> Tally:
    """Let programs take at least so many steps, and find them the same everywhere.

    How many steps a program takes is chance, so programs are run until there were enough.
    """
    ProgramMachine.taken, ProgramMachine.server = 0, address
    tally = Tally("the same random program", "steps", "100,000 steps, identical on all stores")
    while (missing := wanted - ProgramMachine.taken) > 0:
        more = settings(max_examples=missing // STEPS_OF_ONE + 3, stateful_step_count=40)
        run_state_machine_as_test(ProgramMachine, settings=more)
    tally.count("identical in memory, SQLite and PostgreSQL", ProgramMachine.taken)
    return tally


def test_every_store_does_what_a_history_in_memory_does(told: Told, postgres: str) -> None:
    told(run(300, postgres))


@pytest.mark.faults
@pytest.mark.parametrize("share", range(1, 11))
def test_every_store_does_the_same_by_the_thousand(told: Told, postgres: str, share: int) -> None:
    del share  # each run of the profile `faults` draws afresh
    told(run(scaled(10_000), postgres))


class Stale:
    """Two who have the same conversation open in one store, and do not always look."""

    def __init__(self, name: str, open_store: Callable[[], Store]) -> None:
        self.opened = [open_store(), open_store()]
        self.stores = [Store(store.backend, clock=lambda: 7) for store in self.opened]
        first = self.stores[0].create([one("s0"), one("u0"), one("a0")], id=name)
        self.handles = [first, self.stores[1].get(name)]


@pytest.mark.hypothesis
def test_writers_that_are_behind_fare_alike_in_every_store(postgres: str) -> None:
    """Stale appends, edits, ways back: the same answers, the same conflicts, the same result."""
    chance = random.Random(7)  # noqa: S311 - no secret
    for program in range(steps(2, in_faults=300)):
        with scratch() as folder:
            _run_behind(chance, f"talk {program}", [
                *(kind(folder) for kind in KINDS.values()), lambda: palaver.open(postgres),
            ])  # fmt: skip


def _run_behind(chance: random.Random, name: str, kinds: list[Callable[[], Store]]) -> None:
    pairs = [Stale(name, kind) for kind in kinds]
    for step in range(40):
        work, who = _stale_step(chance, step), chance.randrange(2)
        handles = [pair.handles[who] for pair in pairs]
        answers = [outcome(partial(work, handle)) for handle in handles]
        states = [seen(handle) for handle in handles]
        for answer, state in zip(answers, states, strict=True):
            assert answers[0] == answer
            assert states[0] == state
    for pair in pairs:
        mine, theirs = (handle.refresh() for handle in pair.handles)
        assert seen(mine) == seen(theirs) == seen(pair.stores[0].get(name))
        assert [] == list(pair.stores[1].verify(name))
        for store in pair.opened:
            store.close()


def _stale_step(chance: random.Random, step: int) -> Callable[[Any], object]:
    letter, place = chance.choice(LETTERS), chance.randrange(100)
    message = one(f"{letter}{step}x", f"tea {step}")
    works: list[Callable[[Any], object]] = [
        lambda history: history.append(message),
        lambda history: history.extend([message, one(f"u{step}y")], key=f"k{step}"),
        lambda history: history.insert(place % (len(history) + 1), [message]),
        lambda history: history.replace(place % (len(history) + 1), message),
        lambda history: history.truncate(keep_last=place % 20 + 2),
        lambda history: history.filter(content_excludes=[str(place % 10)]),
        lambda history: history.undo(),
        lambda history: history.redo(),
        lambda history: history.rollback(max(history.batch_index - 1, 0)),
        lambda history: history.mark(place % (len(history) + 1), "pin"),
        lambda history: history.set_team_task(f"task {place % 3}"),
        lambda history: len(history.refresh()),
    ]
    return chance.choice(works)
