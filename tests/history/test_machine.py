"""A history and a plain list model of it, led through the same life, step by step."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from palaver.errors import Conflict, NothingToUndo, ValidationError
from palaver.history import ERASED, BaseHistory, History, Operation, Result, View, parse_operation
from palaver.messages import Message, Role, ToolCallPart, ToolPart, parse_message, to_dict
from tests.history.checks import check_indexes
from tests.history.model import Disagreement, Facts, Model
from tests.profiles import steps

if TYPE_CHECKING:
    from collections.abc import Callable

ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
WORDS = ("tea", "milk", "sugar", "Tea")
MARKS = ("pin", "todo")
FORKS = 4

# a number that is cut down to what there is when it is used, so that it always means something
places = st.integers(0, 1_000)
small = st.integers(0, 6)
roles = st.sampled_from(ROLES)
words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=2, unique=True)
kinds = st.sampled_from([*ROLES, "call", "result"])
spoken = st.lists(st.tuples(kinds, st.sampled_from(WORDS)), min_size=1, max_size=4)
windows = st.tuples(small, small).map(lambda pair: tuple(sorted(pair)))
truncations = st.fixed_dictionaries(
    {},
    optional={
        "keepFirst": places.map(lambda n: n % 12),
        "keepLast": places.map(lambda n: n % 12),
        "removeFirst": small.map(lambda n: n % 3),
        "removeLast": small.map(lambda n: n % 3),
        "range": st.tuples(small, st.integers(6, 20)).map(
            lambda pair: {"start": pair[0], "end": pair[1]}
        ),
        "role": roles,
        "others": st.just("keep"),
    },
)
filters = st.fixed_dictionaries(
    {},
    optional={
        "roles": st.lists(roles, min_size=1, max_size=3, unique=True),
        "contentContains": words,
        "contentExcludes": words,
    },
)
queries = st.fixed_dictionaries(
    {},
    optional={
        "role": roles,
        "roles": st.lists(roles, max_size=3),
        "mark": st.sampled_from([*MARKS, "none has it"]),
        "since": st.integers(0, 60),
        "until": st.integers(0, 60),
        "text": st.sampled_from([*WORDS, "e"]),
        "range": windows,
        "recent": small,
    },
)
ways = st.sampled_from(["typed", "dict", "text", "bytes"])


def ids(messages: list[Message] | View) -> list[str]:
    return [message.id for message in messages]


def tokens(message: Message) -> int:
    return len(message.text) + 1


class Pair:
    """A real history and its model."""

    def __init__(self, real: BaseHistory, model: Model) -> None:
        self.real = real
        self.model = model


class HistoryMachine(RuleBasedStateMachine):
    """Every operation, in any order, on a history and on its forks."""

    taken: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.facts = Facts()
        self.pairs: list[Pair] = []
        self.touched: Pair | None = None
        self.now = 0
        self.numbers = itertools.count()

    @initialize(said=st.lists(st.tuples(kinds, st.sampled_from(WORDS)), max_size=6))
    def begin(self, said: list[tuple[str, str]]) -> None:
        messages = self.say(said)
        model = Model("root", self.facts, messages)
        model.clock = self.clock
        self.pairs = [Pair(History(messages, id="root", clock=self.clock), model)]

    def clock(self) -> int:
        return self.now

    def pick(self, which: int) -> Pair:
        type(self).taken += 1
        self.now += 1
        self.touched = self.pairs[which % len(self.pairs)]
        return self.touched

    def say(self, said: list[tuple[str, str]]) -> list[Message]:
        return [self.message(*one) for one in said]

    def message(self, kind: str, word: str) -> Message:
        number = next(self.numbers)
        name, call = f"m{number}", f"c{number % 3}"
        content: Any = f"{word} {number}"
        if kind == "call":
            use = {"id": call, "name": "brew", "input": {"with": word}}
            content = [{"type": "text", "text": word}, {"type": "tool_use", "tool_use": use}]
        if kind == "result":
            made = {"tool_use_id": call, "content": word}
            content = [{"type": "tool_result", "tool_result": made}]
        role = {"call": "assistant", "result": "tool"}.get(kind, kind)
        return parse_message(
            {"role": role, "content": content, "id": name, "timestamp": number % 50}
        )

    def execute(self, pair: Pair, way: str, operation: dict[str, Any]) -> None:
        """Carry out an operation on the real history in one of the forms it may come in."""
        forms: dict[str, Callable[[], Operation | dict[str, Any] | str | bytes]] = {
            "typed": lambda: parse_operation(operation),
            "dict": lambda: operation,
            "text": lambda: json.dumps(operation),
            "bytes": lambda: json.dumps(operation).encode(),
        }
        self.compare(pair, pair.real.execute(forms[way]()))

    def compare(self, pair: Pair, result: Result) -> None:
        model = pair.model
        assert model.stats() == to_dict(result.stats)
        assert model.batch_index == result.affected_batch_index
        if not self.facts.erased:
            expected = model.result()
            assert expected == result.to_dict()
            for snapshot in expected["state"]["batchSnapshots"]:
                del snapshot["messages"]
            assert expected == result.to_dict(snapshots=False)

    # ── the seven operations ────────────────────────────────────────────────────────────────────

    @rule(which=small, said=spoken, one_by_one=st.booleans(), way=ways)
    def append(
        self, which: int, said: list[tuple[str, str]], *, one_by_one: bool, way: str
    ) -> None:
        pair, messages = self.pick(which), self.say(said)
        if one_by_one:
            for message in messages:
                pair.model.append([message])
                assert message is pair.real.append(message)
        else:
            pair.model.append(messages)
            self.execute(pair, way, {"operation": "APPEND", "messages": to_dict(messages)})

    @rule(which=small, said=st.lists(st.tuples(kinds, st.sampled_from(WORDS)), max_size=3))
    def extend(self, which: int, said: list[tuple[str, str]]) -> None:
        pair, messages = self.pick(which), self.say(said)
        pair.model.append(messages)
        self.compare(pair, pair.real.extend(iter(messages)))

    @rule(which=small, place=places, said=spoken, way=ways)
    def insert(self, which: int, place: int, said: list[tuple[str, str]], way: str) -> None:
        pair, messages = self.pick(which), self.say(said)
        position = place % (len(pair.model.messages) + 1)
        pair.model.insert(position, messages)
        operation = {"operation": "INSERT", "position": position, "messages": to_dict(messages)}
        self.execute(pair, way, operation)

    @rule(which=small, place=places, said=spoken, way=ways)
    def replace(self, which: int, place: int, said: list[tuple[str, str]], way: str) -> None:
        pair, message = self.pick(which), self.say(said)[0]
        if pair.model.messages:
            index = place % len(pair.model.messages)
            pair.model.replace(index, message)
            operation = {"operation": "REPLACE", "index": index, "message": to_dict(message)}
            self.execute(pair, way, operation)

    @rule(which=small, options=truncations, way=ways)
    def truncate(self, which: int, options: dict[str, Any], way: str) -> None:
        pair = self.pick(which)
        says_something = options.keys() - {"role", "others"}
        if says_something and ("role" in options or "others" not in options):
            pair.model.truncate(options)
            self.execute(pair, way, {"operation": "TRUNCATE", **options})
        else:
            with pytest.raises(ValidationError):
                pair.real.execute({"operation": "TRUNCATE", **options})

    @rule(
        which=small,
        option=st.sampled_from(["keepFirst", "keepLast", "removeFirst", "removeLast"]),
        place=places,
        way=ways,
    )
    def cut(self, which: int, option: str, place: int, way: str) -> None:
        """A truncate of one option that falls anywhere in the view, and often in the middle."""
        pair = self.pick(which)
        options = {option: place % (len(pair.model.messages) + 2)}
        pair.model.truncate(options)
        self.execute(pair, way, {"operation": "TRUNCATE", **options})

    @rule(which=small, keep=st.booleans(), way=ways)
    def clear(self, which: int, *, keep: bool, way: str) -> None:
        pair = self.pick(which)
        pair.model.clear(keep_system=keep)
        self.execute(pair, way, {"operation": "CLEAR", "keepSystemMessage": keep})

    @rule(which=small, options=filters, way=ways)
    def filter(self, which: int, options: dict[str, Any], way: str) -> None:
        pair = self.pick(which)
        pair.model.filter(options)
        self.execute(pair, way, {"operation": "FILTER", **options})

    @rule(which=small, place=places, way=ways)
    def rollback(self, which: int, place: int, way: str) -> None:
        pair = self.pick(which)
        target = place % (pair.model.batch_index + 1)
        pair.model.rollback(target)
        self.execute(pair, way, {"operation": "ROLLBACK", "targetBatchIndex": target})

    # ── the way back ────────────────────────────────────────────────────────────────────────────

    @rule(which=small, times=st.integers(1, 4))
    def undo(self, which: int, times: int) -> None:
        pair = self.pick(which)
        for _ in range(times):
            if pair.model.undo():
                self.compare(pair, pair.real.undo())
            else:
                with pytest.raises(NothingToUndo):
                    pair.real.undo()

    @rule(which=small, times=st.integers(1, 4))
    def redo(self, which: int, times: int) -> None:
        pair = self.pick(which)
        for _ in range(times):
            if pair.model.redo():
                self.compare(pair, pair.real.redo())
            else:
                with pytest.raises(NothingToUndo):
                    pair.real.redo()

    @rule(which=small, said=spoken, task=st.sampled_from([None, "make tea", "serve it"]))
    def change_ones_mind(self, which: int, said: list[tuple[str, str]], task: str | None) -> None:
        """What is appended after an undo ends the redo, also where the log had not grown since."""
        self.team_task(which, task)
        self.undo(which, 1)
        self.append(which, said, one_by_one=True, way="typed")
        self.redo(which, 1)

    @rule(which=small, place=places)
    def restore(self, which: int, place: int) -> None:
        pair = self.pick(which)
        version = place % len(pair.model.versions)
        pair.model.restore(version)
        self.compare(pair, pair.real.restore(version))

    @rule(which=small, place=places, other=places)
    def look_back(self, which: int, place: int, other: int) -> None:
        pair = self.pick(which)
        versions = pair.model.versions
        before, after = place % len(versions), other % len(versions)
        for version in (before, after):
            self.check_view(pair, pair.real.at(version), version)
        old, new = versions[before].state.messages, versions[after].state.messages
        diff = pair.real.diff(before, after)
        assert [
            [(index, name) for index, name in enumerate(old) if name not in new],
            [(index, name) for index, name in enumerate(new) if name not in old],
        ] == [[(index, message.id) for index, message in side]
              for side in (diff.removed, diff.added)]  # fmt: skip

    # ── forks ───────────────────────────────────────────────────────────────────────────────────

    @precondition(lambda self: len(self.pairs) < FORKS)
    @rule(which=small, back=st.sampled_from([0, 0, 1, 3, 1_000]))
    def fork(self, which: int, back: int) -> None:
        pair = self.pick(which)
        name = f"fork {len(self.pairs)}"
        version = max(pair.model.version - back, 0)
        real = pair.real.fork(at=version if back else None, id=name)
        self.pairs.append(Pair(real, pair.model.fork(name, version)))
        self.touched = self.pairs[-1]

    @precondition(lambda self: len(self.pairs) > 1)
    @rule(which=small)
    def bring_a_fork_home(self, which: int) -> None:
        child, parent = self.fork_and_parent(which)
        self.merge(parent, child)

    @precondition(lambda self: len(self.pairs) > 1)
    @rule(which=small)
    def catch_up_with_the_parent(self, which: int) -> None:
        child, parent = self.fork_and_parent(which)
        self.merge(child, parent)

    def fork_and_parent(self, which: int) -> tuple[Pair, Pair]:
        child = self.pairs[1:][which % (len(self.pairs) - 1)]
        return child, next(pair for pair in self.pairs if pair.model is child.model.parent)

    def merge(self, pair: Pair, other: Pair) -> None:
        self.pick(self.pairs.index(pair))
        before = pair.real.version, pair.real.messages
        refused: set[str] = set()
        try:
            pair.model.merge(other.model)
        except Disagreement as refusal:
            refused = refusal.things
        if refused:
            with pytest.raises(Conflict) as caught:
                pair.real.merge(other.real)
            assert refused == {clash.what for clash in caught.value.clashes}
            assert before == (pair.real.version, pair.real.messages)
        else:
            self.compare(pair, pair.real.merge(other.real))

    # ── marks, task, erasing ────────────────────────────────────────────────────────────────────

    @rule(which=small, place=places, name=st.sampled_from(MARKS), off=st.booleans())
    def mark(self, which: int, place: int, name: str, *, off: bool) -> None:
        pair = self.pick(which)
        if pair.model.log:
            message = pair.model.log[place % len(pair.model.log)]
            (pair.model.unmark if off else pair.model.mark)(message, name)
            (pair.real.unmark if off else pair.real.mark)(message, name)

    @rule(which=small, task=st.sampled_from([None, "make tea", "serve it"]))
    def team_task(self, which: int, task: str | None) -> None:
        pair = self.pick(which)
        pair.model.set_task(task)
        pair.real.set_team_task(task)

    @rule(which=small, place=places, rarely=st.integers(0, 5))
    def erase(self, which: int, place: int, rarely: int) -> None:
        pair = self.pick(which)
        if not rarely and pair.model.log:
            message = pair.model.log[place % len(pair.model.log)]
            pair.model.erase(message)
            receipt = pair.real.erase(message)
            assert message == receipt.message_id
            for each in self.pairs:
                for found in each.real.log:
                    if found.id == message:
                        assert "" == found.text
                        assert ERASED in found.metadata

    # ── questions ───────────────────────────────────────────────────────────────────────────────

    @rule(which=small, place=places, terms=queries)
    def query(self, which: int, place: int, terms: dict[str, Any]) -> None:
        pair = self.pick(which)
        model, real = pair.model, pair.real
        old = place % len(model.versions)
        then = model.versions[old].state
        counting = {key: terms[key] for key in terms if key not in ("range", "recent")}
        for names, marks, view in (
            (model.messages, model.state.marks, real),
            (then.messages, then.marks, real.at(old)),
            (model.log, model.state.marks, real.log),
        ):
            assert model.query(names, marks, terms) == ids(view.query(**terms))
            assert len(model.query(names, marks, counting)) == view.count(**counting)

    @rule(which=small, role=st.none() | roles, n=small, window=windows)
    def ask_the_short_way(
        self, which: int, role: Role | None, n: int, window: tuple[int, int]
    ) -> None:
        pair = self.pick(which)
        state = pair.model.state

        def expected(**terms: Any) -> list[str]:  # noqa: ANN401 - a query's own
            return pair.model.query(state.messages, state.marks, {"role": role, **terms})

        assert expected(recent=n) == ids(pair.real.recent(n, role=role))
        assert expected(range=window) == ids(pair.real.range(*window, role=role))
        if role is not None:
            assert expected() == ids(pair.real.by_role(role))

    @rule(which=small, place=places, said=spoken, options=truncations, keep=st.booleans())
    def price(
        self,
        which: int,
        place: int,
        said: list[tuple[str, str]],
        options: dict[str, Any],
        *,
        keep: bool,
    ) -> None:
        pair, messages = self.pick(which), self.say(said)
        before = pair.real.version
        length = len(pair.model.messages)
        spelled: Any = to_dict(messages)
        operations: list[dict[str, Any]] = [
            {"operation": "APPEND", "messages": spelled},
            {"operation": "INSERT", "position": place % (length + 1), "messages": spelled},
            {"operation": "CLEAR", "keepSystemMessage": keep},
            {"operation": "ROLLBACK", "targetBatchIndex": place % (pair.model.batch_index + 1)},
            {"operation": "TRUNCATE", "role": "user", "removeLast": 1, **options},
        ]
        if length:
            operations.append(
                {"operation": "REPLACE", "index": place % length, "message": spelled[0]}
            )
        self.check_price(pair, operations[place % len(operations)])
        assert before == pair.real.version

    def check_price(self, pair: Pair, operation: dict[str, Any]) -> None:
        real = pair.real.fork()
        real.execute(operation)
        price = pair.real.price(operation, tokens=tokens)
        old, new = pair.real.messages, real.messages
        gone = [message for message in old if message not in new]
        come = [message for message in new if message not in old]
        alike = 0
        while alike < min(len(old), len(new)) and old[alike] == new[alike]:
            alike += 1
        assert gone == list(price.removed)
        assert sum(map(tokens, gone)) == price.tokens_freed
        if operation["operation"] != "ROLLBACK":
            assert ids(come) == ids(list(price.added))
            assert sum(map(tokens, come)) == price.tokens_added
        assert sum(map(tokens, old[alike:])) == price.cache_tokens
        had = [calls(old, kind) for kind in (ToolCallPart, ToolPart)]
        has = [calls(new, kind) for kind in (ToolCallPart, ToolPart)]
        assert (has[0] - has[1]) & had[1] == set(price.calls_without_results)
        assert (has[1] - has[0]) & had[0] == set(price.results_without_calls)

    # ── what always holds ───────────────────────────────────────────────────────────────────────

    def check_view(self, pair: Pair, view: View, version: int) -> None:
        state = pair.model.versions[version].state
        assert version == view.version
        assert state.messages == ids(view)
        assert state.task == view.team_task
        assert state.marks == {name: set(marked) for name, marked in view.marks.items()}
        assert len(state.batches) == view.batch_index
        for index, batch in enumerate(state.batches):
            snapshot = view.batch_snapshot(index)
            assert snapshot is not None
            assert batch.messages == ids(snapshot.messages)
            assert (index, batch.time, batch.description, len(batch.messages)) == (
                snapshot.batch_index,
                snapshot.timestamp,
                snapshot.description,
                snapshot.message_count,
            )
        assert view.batch_snapshot(len(state.batches)) is None

    @invariant()
    def both_are_alike(self) -> None:
        if self.touched is not None:
            self.check(self.touched)
            self.touched = None
        for pair in self.pairs:
            assert pair.model.version == pair.real.version
            assert len(pair.model.messages) == len(pair.real)

    def check(self, pair: Pair) -> None:
        check_indexes(pair.real)
        self.check_view(pair, pair.real.view, pair.model.version)
        assert pair.model.mark_map() == to_dict(pair.real.mark_map())
        assert pair.model.stats() == to_dict(pair.real.stats)
        assert pair.model.log == ids(pair.real.log)

    def teardown(self) -> None:
        """At the end, every history and every version of it is looked at once more."""
        for pair in self.pairs:
            self.check(pair)
            for version in range(pair.model.version + 1):
                self.check_view(pair, pair.real.at(version), version)


def calls(messages: list[Message], kind: type[ToolCallPart | ToolPart]) -> set[str]:
    return {
        part.call_id for message in messages for part in message.parts if isinstance(part, kind)
    }


@pytest.mark.hypothesis
def test_a_history_does_what_lists_do() -> None:
    wanted = steps(2_500, in_faults=200_000)
    HistoryMachine.taken = 0
    enough = settings(max_examples=wanted // 40, stateful_step_count=50)
    run_state_machine_as_test(HistoryMachine, settings=enough)
    assert HistoryMachine.taken >= wanted
