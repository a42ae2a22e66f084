"""What tasks write between two checkpoints: a record for each task.

Most of it is messages, and a moment later they are in the log. So the change that brings them there
also puts a record in place of the task's that says where they stand, and no longer what they say.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from langgraph.checkpoint.base import WRITES_IDX_MAP
from msgspec.structs import replace

from palaver.adapters.langgraph.naming import WRITES, point, write_name
from palaver.adapters.langgraph.saved import Write, read_writes, writes_record
from palaver.adapters.langgraph.shelf import are_messages, face_of
from palaver.adapters.langgraph.thread import Waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import BaseMessage
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from palaver.adapters.langgraph.naming import Where
    from palaver.adapters.langgraph.shelf import Face
    from palaver.adapters.langgraph.thread import Thread

__all__ = ["Task", "settled_by", "writes_of"]

_WAITING: Final = 32


class Task(NamedTuple):
    """A task by its id, and its path in the graph."""

    id: str
    path: str


def writes_of(
    thread: Thread,
    where: Where,
    task: Task,
    writes: Sequence[tuple[str, Any]],
    serde: SerializerProtocol,
) -> bytes:
    """The record of what a task wrote, offered to the checkpoint that comes next.

    What is kept already stays as it is, but for errors, interrupts and such. Of one task, one call
    at a time.
    """
    thread.begin()
    name = write_name(where.namespace, where.checkpoint or "", task.id)
    found = thread.keeper.records(thread.home, WRITES, since=name, until=point(name))
    kept_path, kept = read_writes(found[name]) if found else (task.path, [])
    by_index = {write.index: write for write in kept}
    messages: dict[int, list[Face]] = {}
    for place, (channel, value) in enumerate(writes):
        index = WRITES_IDX_MAP.get(channel, place)
        if index >= 0 and index in by_index:
            continue
        said = _messages_in(value)
        alone = value is not said
        other = None if task.path == kept_path else task.path
        positions = () if said is None else _in_log(thread, said)
        if positions:
            write = Write(index, channel, None, "", positions, alone, other)
        else:
            if said is not None:
                messages[index] = [face_of(one) for one in said]
            write = Write(index, channel, serde.dumps_typed(value), alone=alone, path=other)
        by_index[index] = write
    together = [by_index[index] for index in sorted(by_index)]
    if messages:
        thread.waiting[name] = Waiting(kept_path, together, messages)
        while len(thread.waiting) > _WAITING:
            del thread.waiting[next(iter(thread.waiting))]
    record = writes_record(kept_path, together)
    thread.traffic.offer(name, record)
    return record


def _messages_in(value: Any) -> list[BaseMessage] | None:  # noqa: ANN401 - anything
    if are_messages(value):
        return value  # type: ignore[no-any-return]
    return [value] if are_messages([value]) else None


def _in_log(thread: Thread, messages: list[BaseMessage]) -> tuple[int, ...]:
    """Where messages stand in the thread's own log, if all of them do."""
    shelf = thread.shelf("", look=False)
    places = [place for one in messages if (place := shelf.place_of(one)) is not None]
    return tuple(places) if len(places) == len(messages) else ()


def settled_by(
    thread: Thread, parent: Where, placed: dict[int, tuple[str, int]]
) -> dict[str, bytes | None]:
    """The writes that lead from a checkpoint to the next, saying where their messages will stand.

    `placed` has the messages that come into the log, by identity. A record that is in the store and
    stays as it is has None.
    """
    beginning = write_name(parent.namespace, parent.checkpoint or "")
    aloft = thread.traffic.aloft
    settled: dict[str, bytes | None] = {
        name: record for name, record in aloft.items() if name.startswith(beginning)
    }
    for name, waiting in thread.waiting.items():
        if name.startswith(beginning):
            writes = [_settle(write, waiting.messages.get(write.index), placed)
                      for write in waiting.writes]  # fmt: skip
            same = all(map(operator.is_, writes, waiting.writes))
            settled[name] = aloft.get(name) if same else writes_record(waiting.path, writes)
    return settled


def _settle(write: Write, faces: list[Face] | None, placed: dict[int, tuple[str, int]]) -> Write:
    places = [
        placed[id(face.message)]
        for face in faces or ()
        if id(face.message) in placed and vars(face.message) == face.fields
    ]
    wheres = {conversation for conversation, _ in places}
    if not faces or len(places) < len(faces) or len(wheres) > 1:
        return write
    positions = tuple(position for _, position in places)
    return replace(write, value=None, conversation=wheres.pop(), positions=positions)
