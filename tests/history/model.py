"""A history as plainly as it can be written: lists of ids that are copied for every version.

Nothing is shared, nothing is indexed, nothing is clever. A message is its id; `Facts` knows what
each id says. What the real history does, this must do too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from palaver.messages import ToolCallPart, ToolPart, to_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from palaver.messages import Message


class Disagreement(Exception):  # noqa: N818 - not an error of the model's
    """The model refuses: both sides of a merge touched the same thing."""

    def __init__(self, things: set[str]) -> None:
        super().__init__(things)
        self.things = things


@dataclass
class Facts:
    """What all messages say, and which took the place of which; the same for all forks."""

    messages: dict[str, Message] = field(default_factory=dict[str, "Message"])
    replaced: dict[str, str] = field(default_factory=dict[str, str])
    erased: set[str] = field(default_factory=set[str])

    def role(self, name: str) -> str:
        return self.messages[name].role

    def says(self, name: str, word: str) -> bool:
        """Whether a word is anywhere in what a message says."""
        texts = [""] if name in self.erased else self.messages[name].texts
        return any(word in text for text in texts)

    def calls(self, names: Iterable[str], kind: type[ToolCallPart | ToolPart]) -> set[str]:
        return {
            part.call_id
            for name in names
            if name not in self.erased
            for part in self.messages[name].parts
            if isinstance(part, kind)
        }


@dataclass
class Ended:
    """A batch that has ended."""

    messages: list[str]
    time: int
    description: str
    opened: int
    merged: dict[str, int]

    def copy(self) -> Ended:
        return replace(self, messages=list(self.messages), merged=dict(self.merged))


@dataclass
class State:
    """Everything that a version has."""

    messages: list[str]
    batches: list[Ended] = field(default_factory=list[Ended])
    opened: int = 0
    marks: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    task: str | None = None
    merged: dict[str, int] = field(default_factory=dict[str, int])

    def copy(self) -> State:
        return State(
            list(self.messages),
            [batch.copy() for batch in self.batches],
            self.opened,
            {mark: set(names) for mark, names in self.marks.items()},
            self.task,
            dict(self.merged),
        )


class Version(NamedTuple):
    """A state, how long the log was, and the versions that undo and redo lead to."""

    state: State
    logged: int
    past: list[int]
    future: list[int]


class Model:
    """The history of one conversation: its log as a list, its versions as copies."""

    def __init__(self, name: str, facts: Facts, messages: Iterable[Message] = ()) -> None:
        self.name = name
        self.facts = facts
        self.parent: Model | None = None
        self.born = -1
        self.log: list[str] = []
        self.clock: Callable[[], int] = lambda: 0
        names = self._add(messages)
        self.versions = [Version(State(names), len(self.log), [], [])]

    # ── the present ─────────────────────────────────────────────────────────────────────────────

    @property
    def version(self) -> int:
        return len(self.versions) - 1

    @property
    def state(self) -> State:
        return self.versions[-1].state

    @property
    def messages(self) -> list[str]:
        return self.state.messages

    @property
    def batch_index(self) -> int:
        return len(self.state.batches)

    def _add(self, messages: Iterable[Message]) -> list[str]:
        names: list[str] = []
        for message in messages:
            self.facts.messages[message.id] = message
            names.append(message.id)
        self.log += names
        return names

    def _change(self, state: State, future: Iterable[int] = ()) -> None:
        past = [*self.versions[-1].past, self.version]
        self.versions.append(Version(state.copy(), len(self.log), past, [*future]))

    # ── operations ──────────────────────────────────────────────────────────────────────────────

    def append(self, messages: list[Message]) -> None:
        if messages:
            state = self.state.copy()
            state.messages += self._add(messages)
            self._change(state)

    def _edit(self, description: str, left: list[str]) -> None:
        self._open_batch(self.state.copy(), description, left, len(self.log))

    def _open_batch(self, state: State, description: str, left: list[str], opened: int) -> None:
        now = self.state.copy()
        ended = Ended(now.messages, self.clock(), description, now.opened, now.merged)
        state.batches.append(ended)
        state.opened = opened
        state.messages = left
        self._change(state)

    def insert(self, position: int, messages: list[Message]) -> None:
        left, opened = list(self.messages), len(self.log)
        left[position:position] = self._add(messages)
        description = f"Before INSERT at position {position}"
        self._open_batch(self.state.copy(), description, left, opened)

    def replace(self, index: int, message: Message) -> None:
        left, opened = list(self.messages), len(self.log)
        self.facts.replaced[message.id] = left[index]
        left[index : index + 1] = self._add([message])
        description = f"Before REPLACE at index {index}"
        self._open_batch(self.state.copy(), description, left, opened)

    def truncate(self, options: dict[str, Any]) -> None:
        role = options.get("role")
        mine = [name for name in self.messages if role in (None, self.facts.role(name))]
        kept = list(mine)
        if options.get("keepFirst") is not None:
            kept = kept[: options["keepFirst"]]
        if options.get("keepLast") is not None:
            kept = [name for i, name in enumerate(kept) if i >= len(kept) - options["keepLast"]]
        if options.get("removeFirst") is not None:
            kept = kept[options["removeFirst"] :]
        if options.get("removeLast") is not None:
            kept = [name for i, name in enumerate(kept) if i < len(kept) - options["removeLast"]]
        if options.get("range") is not None:
            kept = kept[options["range"]["start"] : options["range"]["end"]]
        if options.get("others") == "keep":
            kept = [name for name in self.messages if name in kept or name not in mine]
        self._edit("Before TRUNCATE", kept)

    def clear(self, *, keep_system: bool) -> None:
        kept = [name for name in self.messages if keep_system and self.facts.role(name) == "system"]
        self._edit("Before CLEAR", kept)

    def filter(self, options: dict[str, Any]) -> None:
        def keeps(name: str) -> bool:
            says = partial(self.facts.says, name)
            roles, words = options.get("roles"), options.get("contentContains")
            return (
                (roles is None or self.facts.role(name) in roles)
                and (words is None or any(map(says, words)))
                and not any(map(says, options.get("contentExcludes") or ()))
            )

        self._edit("Before FILTER", [name for name in self.messages if keeps(name)])

    def rollback(self, index: int) -> None:
        if index == self.batch_index:
            return
        state = self.state.copy()
        ended = state.batches[index]
        state.batches = state.batches[:index]
        state.messages, state.opened, state.merged = ended.messages, ended.opened, ended.merged
        self._change(state, [self.version, *self.versions[-1].future])

    # ── the way back ────────────────────────────────────────────────────────────────────────────

    def undo(self) -> bool:
        now = self.versions[-1]
        if not now.past:
            return False
        before = self.versions[now.past[-1]]
        state, future = before.state.copy(), [self.version, *now.future]
        self.versions.append(Version(state, len(self.log), before.past, future))
        return True

    def redo(self) -> bool:
        now = self.versions[-1]
        if not now.future:
            return False
        again = self.versions[now.future[0]]
        state = again.state.copy()
        self.versions.append(Version(state, len(self.log), again.past, now.future[1:]))
        return True

    def restore(self, version: int) -> None:
        self._change(self.versions[version].state, [self.version, *self.versions[-1].future])

    # ── marks, task, erasing ────────────────────────────────────────────────────────────────────

    def mark(self, name: str, mark: str) -> None:
        if name not in self.state.marks.get(mark, ()):
            state = self.state.copy()
            state.marks.setdefault(mark, set()).add(name)
            self._change(state)

    def unmark(self, name: str, mark: str) -> None:
        if name in self.state.marks.get(mark, ()):
            state = self.state.copy()
            state.marks[mark].remove(name)
            self._change(_tidy(state))

    def set_task(self, task: str | None) -> None:
        if task != self.state.task:
            state = self.state.copy()
            state.task = task
            self._change(state)

    def erase(self, name: str) -> None:
        self.facts.erased.add(name)
        state, past = self.state.copy(), self.versions[-1].past
        self.versions.append(Version(state, len(self.log), past, []))

    # ── forks ───────────────────────────────────────────────────────────────────────────────────

    def fork(self, name: str, version: int) -> Model:
        fork = Model(name, self.facts)
        fork.parent = self
        fork.clock = self.clock
        fork.log = self.log[: self.versions[version].logged]
        fork.born = version
        state = self.versions[version].state.copy()
        fork.versions = [Version(state, len(fork.log), [], [])]
        return fork

    def base_with(self, other: Model) -> State:
        """What both last had in common: what one of them last brought in from the other."""
        have, given = self.has_of(other, self.state), other.has_of(self, other.state)
        if have == -1:
            return self.versions[given].state
        if given == -1:
            return other.versions[have].state
        then = self.versions[given].state
        return then if self.has_of(other, then) >= have else other.versions[have].state

    def has_of(self, other: Model, state: State) -> int:
        """Up to which version of the other everything is in a state; a fork begins with some."""
        return state.merged.get(other.name, self.born if self.parent is other else -1)

    def merge(self, other: Model) -> bool:
        """Bring in what the other did; tell whether that made a difference."""
        base, ours, theirs = self.base_with(other), self.state, other.state
        mine, yours = _fates(base, ours, self.facts), _fates(base, theirs, self.facts)
        clashes = {f"message {name}" for name in base.messages if _clash(name, mine, yours)}
        if len({base.task, ours.task, theirs.task}) == 3:
            clashes.add("team task")
        if clashes:
            raise Disagreement(clashes)
        places: list[tuple[tuple[int, int, int, int], str]] = []
        for place, name in enumerate(base.messages):
            if name in mine and name in yours:
                standing = yours[name] if mine[name] == name else mine[name]
                places.append(((place, 0, 0, 0), standing))
        for side, state, fates in ((0, ours, mine), (1, theirs, yours)):
            for index, name in enumerate(state.messages):
                if name in fates.values() or (side == 1 and name in ours.messages):
                    continue
                places.append(((_gap(base, state, fates, index), 1, side, index), name))
        return self._take_over(other, base, [name for _, name in sorted(places)])

    def _take_over(self, other: Model, base: State, left: list[str]) -> bool:
        state, theirs = self.state.copy(), other.state
        opened = len(self.log)
        new = [name for name in left if name not in self.log]
        log = [*self.log, *new]
        for mark in {*base.marks, *theirs.marks}:
            had, has = base.marks.get(mark, set()), theirs.marks.get(mark, set())
            put = {name for name in has if name in log and (name in new or name not in had)}
            state.marks[mark] = (state.marks.get(mark, set()) | put) - (had - has)
        if theirs.task != base.task:
            state.task = theirs.task
        _tidy(state)
        if (left, state.marks, state.task) == (self.messages, self.state.marks, self.state.task):
            return False
        state.merged[other.name] = other.version
        self.log = log
        self._open_batch(state, "Before MERGE", left, opened)
        return True

    # ── questions ───────────────────────────────────────────────────────────────────────────────

    def query(
        self, names: list[str], marks: dict[str, set[str]], terms: dict[str, Any]
    ) -> list[str]:
        found = names
        if terms.get("role") is not None or terms.get("roles") is not None:
            wanted = {terms.get("role"), *(terms.get("roles") or ())}
            found = [name for name in found if self.facts.role(name) in wanted]
        if terms.get("mark") is not None:
            found = [name for name in found if name in marks.get(terms["mark"], ())]
        if terms.get("since") is not None:
            found = [n for n in found if self.facts.messages[n].timestamp >= terms["since"]]
        if terms.get("until") is not None:
            found = [n for n in found if self.facts.messages[n].timestamp < terms["until"]]
        if terms.get("text") is not None:
            found = [name for name in found if self.facts.says(name, terms["text"])]
        if terms.get("range") is not None:
            found = found[terms["range"][0] : terms["range"][1]]
        if terms.get("recent") is not None:
            found = found[max(len(found) - terms["recent"], 0) :]
        return found

    def mark_map(self) -> dict[str, Any]:
        places = [self.log.index(name) for name in self.messages]
        opened = [*(batch.opened for batch in self.state.batches), self.state.opened]
        return {
            "originalIndices": places,
            "typeIndices": {
                role: [p for p in places if self.facts.role(self.log[p]) == role]
                for role in ("system", "user", "assistant", "tool")
            },
            "batchBoundaries": opened,
            "boundaryToBatch": list(range(len(opened))),
            "currentBatch": self.batch_index,
        }

    def stats(self) -> dict[str, int]:
        count = len(self.messages)
        return {
            "totalMessages": count,
            "currentBatchMessages": count,
            "totalBatches": self.batch_index + 1,
            "currentBatchIndex": self.batch_index,
        }

    def result(self) -> dict[str, Any]:
        """What the real one answers, as JSON; nothing may have been erased."""
        return {
            "state": {
                "messages": self._spelled(self.messages),
                "batchSnapshots": [
                    {
                        "batchIndex": index,
                        "timestamp": batch.time,
                        "messages": self._spelled(batch.messages),
                        "messageCount": len(batch.messages),
                        "description": batch.description,
                    }
                    for index, batch in enumerate(self.state.batches)
                ],
                "currentBatchIndex": self.batch_index,
                "totalMessageCount": len(self.messages),
            },
            "stats": self.stats(),
            "affectedBatchIndex": self.batch_index,
        }

    def _spelled(self, names: list[str]) -> list[dict[str, Any]]:
        return [to_dict(self.facts.messages[name]) for name in names]


def _tidy(state: State) -> State:
    state.marks = {mark: names for mark, names in state.marks.items() if names}
    return state


def _fates(base: State, side: State, facts: Facts) -> dict[str, str]:
    """What stands on one side in the place of each message of the base."""
    fates: dict[str, str] = {}
    for name in side.messages:
        origin: str | None = name
        while origin is not None and origin not in base.messages:
            origin = facts.replaced.get(origin)
            if origin in side.messages:
                origin = None
        if origin is not None and origin not in fates:
            fates[origin] = name
    return fates


def _clash(name: str, mine: dict[str, str], yours: dict[str, str]) -> bool:
    one, other = mine.get(name), yours.get(name)
    return one != other and name not in (one, other)


def _gap(base: State, side: State, fates: dict[str, str], index: int) -> int:
    """After which message of the base something was put in; at the end, where none comes after."""
    standing = {new: old for old, new in fates.items()}
    before = [standing[name] for name in side.messages[:index] if name in standing]
    after = [standing[name] for name in side.messages[index:] if name in standing]
    if not after:
        return len(base.messages) - 1
    return base.messages.index(before[-1]) if before else -1
