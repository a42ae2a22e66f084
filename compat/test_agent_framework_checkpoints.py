"""Agent Framework's checkpoint storage over palaver's records."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from agent_framework import WorkflowBuilder, WorkflowCheckpoint, WorkflowContext, executor
from agent_framework._workflows._checkpoint_encoding import encode_checkpoint_value
from agent_framework.exceptions import WorkflowCheckpointException

from palaver.adapters.agent_framework import PalaverCheckpointStorage
from palaver.adapters.agent_framework.convert import METADATA_KEY

if TYPE_CHECKING:
    from palaver.stores import Store


@dataclass
class Cup:
    """What a workflow of ours has in its state."""

    size: int


def test_a_workflow_goes_on_from_a_checkpoint_in_another_process(store: Store) -> None:
    @executor(id="brew")
    async def brew(text: str, context: WorkflowContext[str]) -> None:
        await context.send_message(f"{text}, brewed")

    @executor(id="pour")
    async def pour(text: str, context: WorkflowContext[Any, str]) -> None:
        await context.yield_output(f"{text}, poured")

    def build() -> Any:
        storage = PalaverCheckpointStorage(store, "tea-talk")
        builder = WorkflowBuilder(start_executor=brew, checkpoint_storage=storage, name="tea")
        return storage, builder.add_edge(brew, pour).build()

    async def go() -> None:
        storage, workflow = build()
        assert (await workflow.run("green")).get_outputs() == ["green, brewed, poured"]
        saved = await storage.list_checkpoints(workflow_name="tea")
        assert len(saved) >= 2
        stamps = [each.timestamp for each in saved]
        assert stamps == sorted(stamps)
        halfway = next(each for each in saved if each.messages)
        _, again = build()
        went_on = await again.run(checkpoint_id=halfway.checkpoint_id)
        assert went_on.get_outputs() == ["green, brewed, poured"]
        latest = await storage.get_latest(workflow_name="tea")
        assert latest is not None
        assert latest.timestamp >= stamps[-1]

    asyncio.run(go())


def test_a_checkpoint_storage(store: Store) -> None:
    mine = f"{Cup.__module__}:{Cup.__qualname__}"
    storage = PalaverCheckpointStorage(store, "talk", allowed_checkpoint_types=[mine])

    async def go() -> None:
        assert await storage.list_checkpoint_ids(workflow_name="tea") == []
        assert await storage.get_latest(workflow_name="tea") is None
        with pytest.raises(WorkflowCheckpointException, match="No checkpoint"):
            await storage.load("c1")
        assert await storage.delete("c1") is False
        first = WorkflowCheckpoint("tea", "hash", "c1", state={"cup": Cup(2)})
        first.timestamp = "2026-01-01T00:00:00+00:00"
        second = WorkflowCheckpoint("tea", "hash", "c10", previous_checkpoint_id="c1")
        second.timestamp = "2026-01-01T02:00:00+03:00"  # an hour before the first
        for each in (first, second, WorkflowCheckpoint("rum", "hash", "c2")):
            assert await storage.save(each) == each.checkpoint_id
        assert await storage.load("c1") == first
        assert await storage.list_checkpoint_ids(workflow_name="tea") == ["c10", "c1"]
        second.timestamp = "2026-01-02T00:00:00+00:00"
        await storage.save(second)
        assert await storage.get_latest(workflow_name="tea") == second
        assert await storage.list_checkpoint_ids(workflow_name="tea") == ["c1", "c10"]
        strict = PalaverCheckpointStorage(store, "talk")
        assert await strict.list_checkpoint_ids(workflow_name="tea") == ["c10"]
        with pytest.raises(WorkflowCheckpointException):
            await strict.save(WorkflowCheckpoint("tea", "hash", state={"cup": Cup(3)}))
        with pytest.raises(WorkflowCheckpointException, match="cannot be encoded"):
            await storage.save(WorkflowCheckpoint("tea", "hash", state={"f": lambda: 1}))
        assert await storage.delete("c1") is True
        assert await storage.list_checkpoint_ids(workflow_name="tea") == ["c10"]

    asyncio.run(go())
    assert len(store.get("talk").view) == 0


def test_a_checkpoint_has_numbers_that_json_has_not(store: Store) -> None:
    state: Any = {"no": math.nan, "most": [math.inf, {"least": -math.inf}], "half": "\ud83c"}
    storage = PalaverCheckpointStorage(store, "talk")
    asyncio.run(storage.save(WorkflowCheckpoint("tea", "hash", "c1", state=state)))
    found = asyncio.run(storage.load("c1")).state
    assert math.isnan(found.pop("no"))
    assert found == {key: state[key] for key in ("most", "half")}


def test_a_checkpoint_that_was_stored_before_is_read(here: Store) -> None:
    storage = PalaverCheckpointStorage(here, "talk")
    checkpoint = WorkflowCheckpoint(
        "tea", "hash", "c1", state={"cup": 1.5, "tea": "\u8336", "no": None}
    )
    asyncio.run(storage.save(checkpoint))
    before = msgspec.json.encode(encode_checkpoint_value(checkpoint.to_dict()))
    here.put_records("talk", [(f"{METADATA_KEY}.checkpoint", "c1", before)])
    assert asyncio.run(storage.load("c1")) == checkpoint
    assert asyncio.run(storage.delete("c1")) is True


def test_a_checkpoint_may_have_any_name_and_time(store: Store) -> None:
    storage = PalaverCheckpointStorage(store, "talk")
    names = ["", "n" * 3_000, "n" * 2_999 + "m", "\n" * 400, "a\nb", "\ud83c"]

    async def go() -> None:
        for at, name in enumerate(names):
            await storage.save(WorkflowCheckpoint(name, "hash", f"c{at}"))
        for at, name in enumerate(names):
            assert await storage.list_checkpoint_ids(workflow_name=name) == [f"c{at}"]
            assert await storage.delete(f"c{at}") is True
            assert await storage.get_latest(workflow_name=name) is None
        for at, stamp in enumerate(["2026-01-02T00:00:00", "yesterday", "", "2026-01-01"]):
            await storage.save(WorkflowCheckpoint("tea", "hash", f"c{at}", timestamp=stamp))
        found = await storage.list_checkpoints(workflow_name="tea")
        assert [each.checkpoint_id for each in found] == ["c1", "c2", "c3", "c0"]
        latest = await storage.get_latest(workflow_name="tea")
        assert latest == found[-1]

    asyncio.run(go())
