"""The checkpoints of Agent Framework's workflows, as records beside a conversation."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from agent_framework import WorkflowCheckpoint
from agent_framework._workflows._checkpoint_encoding import (
    decode_checkpoint_value,
    encode_checkpoint_value,
)
from agent_framework.exceptions import WorkflowCheckpointException

from palaver.adapters._worker_threads import run_to_end
from palaver.adapters.agent_framework.convert import METADATA_KEY
from palaver.adapters.agent_framework.history_provider import conversation_id, quote_unprintable
from palaver.errors import UnknownConversation
from palaver.messages.ids import derive_id
from palaver.messages.limits import MAX_NAME
from palaver.stores.store import check_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.stores import Store
    from palaver.stores.records import Record

__all__ = ["PalaverCheckpointStorage"]

_CHECKPOINT: Final = f"{METADATA_KEY}.checkpoint"
"""The kind of records with checkpoints, by their ids."""
_WORKFLOW: Final = f"{METADATA_KEY}.workflow/"
"""How the kinds of records begin that name a workflow's checkpoints, the newest last."""

_log = logging.getLogger("palaver.adapters.agent_framework")


class PalaverCheckpointStorage:
    """Stores the checkpoints of workflows as records beside a conversation.

    They go with the conversation when it is deleted. `allowed_checkpoint_types` is what it is for
    the framework's own storage in files: the classes of yours, as `module:qualname`, that a
    checkpoint may hold.

    >>> import asyncio, palaver
    >>> from agent_framework import WorkflowCheckpoint
    >>> storage = PalaverCheckpointStorage(palaver.open(":memory:"), "tea-talk")
    >>> checkpoint = WorkflowCheckpoint("brew", "hash", state={"cups": 2})
    >>> name = asyncio.run(storage.save(checkpoint))
    >>> asyncio.run(storage.load(name)).state
    {'cups': 2}
    """

    def __init__(
        self,
        store: Store,
        conversation: str = "agent-framework-checkpoints",
        *,
        allowed_checkpoint_types: Sequence[str] = (),
    ) -> None:
        """Take a store, which the caller closes; the conversation is created if it is not there."""
        check_store(store)
        self.store = store
        self.conversation = conversation_id(conversation)
        self._allowed = frozenset(allowed_checkpoint_types)

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Store a checkpoint; one that could not be read again is refused."""
        return await run_to_end(partial(self._save, checkpoint))

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """Return a checkpoint; `WorkflowCheckpointException` if there is none of that id."""
        found = await run_to_end(partial(self._find, checkpoint_id))
        if found is None:
            raise WorkflowCheckpointException(f"No checkpoint found with ID {checkpoint_id}")
        return self._decode(found)

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """Return the checkpoints of a workflow, the oldest first; broken ones are left out."""
        return await run_to_end(partial(self._list, workflow_name, None))

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """Return the ids of a workflow's checkpoints, the oldest first."""
        found = await self.list_checkpoints(workflow_name=workflow_name)
        return [checkpoint.checkpoint_id for checkpoint in found]

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """Return the newest checkpoint of a workflow, or None."""
        found = await run_to_end(partial(self._list, workflow_name, 1))
        return found[-1] if found else None

    async def delete(self, checkpoint_id: str) -> bool:
        """Delete a checkpoint, and tell whether there was one."""
        return await run_to_end(partial(self._delete, checkpoint_id))

    # ── one access to the store each ────────────────────────────────────────────────────────────

    def _save(self, checkpoint: WorkflowCheckpoint) -> str:
        name = checkpoint.checkpoint_id
        try:
            # as the framework writes them, with what JSON itself has no numbers for: NaN, Infinity
            value = json.dumps(encode_checkpoint_value(checkpoint.to_dict())).encode()
            self._decode(value)
        except WorkflowCheckpointException:
            raise
        except Exception as error:
            msg = f"Checkpoint {name} cannot be encoded or restored: {error}"
            raise WorkflowCheckpointException(msg) from error
        records: list[Record] = [(_CHECKPOINT, name, value), (*_place(checkpoint), b"")]
        before = self._find(name)
        if before is not None:
            old = _place(self._decode(before))
            records = [(*old, None), *records] if old != _place(checkpoint) else records
        elif self.conversation not in self.store:  # processes may create it at the same time
            key = f"agent-framework {self.conversation}"
            self.store.create(id=self.conversation, key=key)
        self.store.put_records(self.conversation, records)
        return name

    def _find(self, checkpoint_id: str) -> bytes | None:
        try:
            found = self.store.records(
                self.conversation, _CHECKPOINT, since=checkpoint_id, until=f"{checkpoint_id}!"
            )
        except UnknownConversation:
            return None
        return found.get(checkpoint_id)

    def _list(self, workflow: str, last: int | None) -> list[WorkflowCheckpoint]:
        try:
            names = self.store.records(self.conversation, _kind(workflow), last=last)
        except UnknownConversation:
            return []
        found: list[WorkflowCheckpoint] = []
        for name in names:
            value = self._find(name.partition(" ")[2])
            try:
                found += [] if value is None else [self._decode(value)]
            except WorkflowCheckpointException as error:
                _log.warning("checkpoint %s of %s was left out: %s", name, workflow, error)
        return found

    def _delete(self, checkpoint_id: str) -> bool:
        value = self._find(checkpoint_id)
        if value is None:
            return False
        fields = json.loads(value)
        place = _kind(fields["workflow_name"]), _stamp(fields["timestamp"], checkpoint_id)
        self.store.put_records(
            self.conversation, [(_CHECKPOINT, checkpoint_id, None), (*place, None)]
        )
        return True

    def _decode(self, value: bytes) -> WorkflowCheckpoint:
        fields = decode_checkpoint_value(json.loads(value), allowed_types=self._allowed)
        return WorkflowCheckpoint.from_dict(fields)


def _kind(workflow: str) -> str:
    """Return the kind of the records of a workflow; a long name gives a derived one."""
    kind = _WORKFLOW + quote_unprintable(workflow)
    return kind if len(kind) <= MAX_NAME else _WORKFLOW + derive_id(kind, "workflow")


def _place(checkpoint: WorkflowCheckpoint) -> tuple[str, str]:
    """Return the kind and the name of the record that says where a checkpoint stands."""
    stamp = _stamp(checkpoint.timestamp, checkpoint.checkpoint_id)
    return _kind(checkpoint.workflow_name), stamp


def _stamp(timestamp: str, checkpoint_id: str) -> str:
    """Return a name that sorts by time; a timestamp that is none sorts before all others."""
    try:
        microseconds = round(datetime.fromisoformat(timestamp).timestamp() * 1_000_000)
    except (ValueError, OverflowError):
        microseconds = 0
    return f"{microseconds:020} {checkpoint_id}"
