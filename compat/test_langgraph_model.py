"""The saver against LangGraph's own in-memory saver: whatever a graph does, both say the same.

A run is a random walk: checkpoints that go on from the newest or from an older one, in two
namespaces, with messages added, removed, replaced and changed in place, with other channels that
come, stay and go; writes of tasks; and now and then a process that knows nothing yet.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME

import palaver
from palaver.adapters.langgraph import PalaverSaver
from tests.profiles import scaled

if TYPE_CHECKING:
    from random import Random

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        BaseCheckpointSaver,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
    )

    from palaver.stores import Store

NAMESPACES = ("", "critic:1")


class Walk:
    """Both savers, and what was done to them."""

    def __init__(self, store: Store, chance: Random) -> None:
        self.store = store
        self.chance = chance
        self.ours = PalaverSaver(store)
        self.theirs = InMemorySaver()
        self.ids: dict[str, list[str]] = {namespace: [] for namespace in NAMESPACES}
        self.made = 0

    def config(self, namespace: str, checkpoint: str | None = None) -> RunnableConfig:
        where: dict[str, Any] = {"thread_id": "walk", "checkpoint_ns": namespace}
        if checkpoint is not None:
            where["checkpoint_id"] = checkpoint
        return {"configurable": where}

    def number(self) -> int:
        self.made += 1
        return self.made

    def message(self) -> BaseMessage:
        number = self.number()
        kind = self.chance.randrange(5)
        name = None if kind == 4 else f"m{number}"
        if kind == 0:
            call = {"name": "look", "args": {"at": number}, "id": f"c{number}"}
            return AIMessage("", id=name, tool_calls=[call])
        if kind == 1:
            return ToolMessage(f"seen {number}", tool_call_id=f"c{number - 1}", id=name)
        if kind == 2:
            return SystemMessage([{"type": "text", "text": f"rule {number}"}], id=name)
        return HumanMessage(f"word {number}", id=name)

    def changed(self, messages: Any) -> list[BaseMessage]:
        """A list as a node might leave it."""
        found = messages[:] if isinstance(messages, list) else []
        for _ in range(self.chance.randrange(1, 4)):
            way = self.chance.randrange(9)
            place = self.chance.randrange(len(found)) if found else 0
            if way < 5 or not found:
                found.append(self.message())
            elif way == 5:
                del found[place]
            elif way == 6:
                found[place] = found[place].model_copy(update={"content": f"new {self.number()}"})
            elif way == 7:
                found[place].content = f"in place {self.number()}"
            else:
                found.insert(place, copy.deepcopy(found[place]))
        return found

    def step(self) -> None:
        """A checkpoint that goes on from the newest, or from an older one, or from none."""
        namespace = self.chance.choice(NAMESPACES)
        known = self.ids[namespace]
        way = self.chance.randrange(10)
        parent = None if not known else known[-1] if way < 8 else self.chance.choice(known)
        before = None if parent is None else self.ours.get_tuple(self.config(namespace, parent))
        values: dict[str, Any] = {}
        versions: dict[str, Any] = {}
        if before is not None:
            values = {**before.checkpoint["channel_values"]}
            versions = {**before.checkpoint["channel_versions"]}
        new: dict[str, Any] = {}
        following = self.ours.get_next_version(max(versions.values(), default=None), None)
        for channel, value in self.writes(values).items():
            versions[channel] = new[channel] = following
            values.pop(channel, None)
            if value is not ...:
                values[channel] = value
        number = self.number()
        checkpoint: Checkpoint = {
            "v": 4, "id": f"1f{number:06}", "ts": f"t{number}", "channel_values": values,
            "channel_versions": versions, "versions_seen": {"node": {**new}},
            "updated_channels": sorted(new),
        }  # fmt: skip
        about: CheckpointMetadata = {"source": "loop", "step": number % 3, "parents": {}}
        config = self.config(namespace, parent)
        theirs = self.theirs.put(config, copy.deepcopy(checkpoint), about, new)
        assert theirs == self.ours.put(config, checkpoint, about, new)
        known.append(checkpoint["id"])

    def writes(self, values: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.chance.randrange(4):
            found["messages"] = self.changed(values.get("messages", []))
        if not self.chance.randrange(4):
            found["notes"] = self.changed(values.get("notes", []))
        if self.chance.randrange(2):
            found["count"] = self.number()
        if not self.chance.randrange(3):
            found["large"] = f"large {self.number()} " * 30
        if not self.chance.randrange(3):
            found["__start__"] = {"messages": [HumanMessage(f"in {self.number()}")]}
        if not self.chance.randrange(3):
            found["gone"] = ... if "gone" in values else None
        if not self.chance.randrange(6):
            found["messages"] = [] if self.chance.randrange(2) else "no list"
        return found

    def task(self) -> None:
        """What a task wrote: something new, or what is in the log already."""
        namespace = self.chance.choice(NAMESPACES)
        if not self.ids[namespace]:
            return
        at = self.config(namespace, self.chance.choice(self.ids[namespace][-3:]))
        found = self.ours.get_tuple(at)
        assert found is not None
        said = found.checkpoint["channel_values"].get("messages")
        known = said[-1] if isinstance(said, list) and said else self.message()
        value = self.chance.choice(
            [[self.message()], self.message(), [known], known, "text", None, {"a": [self.number()]}]
        )
        channel = self.chance.choice(["messages", "count", ERROR, INTERRUPT, RESUME])
        writes = [(channel, value), ("count", self.number())]
        task, path = self.chance.choice(["t1", "t2"]), self.chance.choice(["", "~a", "~b"])
        self.theirs.put_writes(at, copy.deepcopy(writes), task, path)
        self.ours.put_writes(at, writes, task, path)

    def compare(self) -> None:
        """Everything that both can be asked."""
        for namespace in NAMESPACES:
            if not self.ids[namespace]:
                assert self.ours.get_tuple(self.config(namespace)) is None
                continue
            for name in (None, *self.ids[namespace]):
                config = self.config(namespace, name)
                assert self.theirs.get_tuple(config) == self.ours.get_tuple(config)
        for namespace in NAMESPACES:
            assert _all(self.theirs, self.config(namespace)) == _all(
                self.ours, self.config(namespace)
            )
            some: dict[str, Any] = {"filter": {"step": 1}, "limit": 2}
            if self.ids[namespace]:
                some["before"] = self.config(namespace, self.chance.choice(self.ids[namespace]))
            assert _all(self.theirs, self.config(namespace), **some) == _all(
                self.ours, self.config(namespace), **some
            )


def _all(saver: BaseCheckpointSaver[Any], config: Any, **some: Any) -> list[CheckpointTuple]:
    return list(saver.list(config, **some))


@settings(
    max_examples=scaled(60),
    suppress_health_check=[HealthCheck.too_slow],
    deadline=None,
    derandomize=True,
    database=None,
)
@given(st.randoms(use_true_random=False))
def test_both_say_the_same(chance: Random) -> None:
    with palaver.open(":memory:") as store:
        walk = Walk(store, chance)
        for _ in range(chance.randrange(3, 16)):
            way = chance.randrange(8)
            if way < 5:
                walk.step()
            elif way < 7:
                walk.task()
            else:
                walk.ours = PalaverSaver(store)
            if not chance.randrange(4):
                walk.compare()
        walk.compare()
        walk.ours = PalaverSaver(store)
        walk.compare()
        assert [] == list(store.verify())
