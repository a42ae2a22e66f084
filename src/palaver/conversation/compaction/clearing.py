"""Old tool outputs go, the calls stay: most of a long agent's context is output nobody reads again.

A cleared result keeps its place and its state; only its output is no longer sent. What it said is
in the version before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from palaver.conversation.compaction.compacting import Plan
from palaver.messages import Message, Role, ToolCompleted, ToolPart, new_id
from palaver.messages.ids import now_ms

if TYPE_CHECKING:
    from palaver.conversation.compaction.scene import Scene
    from palaver.history import Piece

__all__ = ["ClearOutputs"]

_NOTHING: Final[frozenset[Role]] = frozenset()


class ClearOutputs(Struct, frozen=True, kw_only=True):
    """Clear old tool outputs.

    The newest `protect_tokens` of output and the last `protect_turns` of the user are left alone,
    and nothing happens for a gain of less than `least_gain`.
    """

    protect_tokens: int = 40_000
    protect_turns: int = 2
    least_gain: int = 20_000
    keep_roles: frozenset[Role] = _NOTHING
    name: str = "clear-outputs"

    async def plan(self, scene: Scene) -> Plan | None:
        """Replace the results that can go by themselves without output."""
        cleared: dict[int, Message] = {}
        gain = protected = 0
        end = _before_turns(scene, self.protect_turns)
        for group in reversed(scene.groups):
            for index in reversed(range(group.start, group.stop)):
                message = scene.messages[index]
                if message.role != "tool" or not _has_output(message):
                    continue
                if index >= end or protected < self.protect_tokens:
                    protected += scene.tokens[index]
                elif not group.stays:
                    bare = _cleared(message)
                    gain += scene.tokens[index] - scene.weigh(bare)
                    cleared[index] = bare
        if not cleared or gain < self.least_gain:
            return None
        pieces: list[Piece] = []
        start = 0
        for index in sorted(cleared):
            pieces += [range(start, index), (index, cleared[index])]
            start = index + 1
        pieces.append(range(start, len(scene.messages)))
        return Plan(tuple(pieces), f"cleared the outputs of {len(cleared):,} tool calls")


def _before_turns(scene: Scene, turns: int) -> int:
    """The index at which the last so many turns of the user begin."""
    begins = [group.start for group in scene.groups if group.begins_turn]
    if turns <= 0 or not begins:
        return len(scene.messages)
    return begins[max(0, len(begins) - turns)]


def _has_output(message: Message) -> bool:
    return any(
        isinstance(part, ToolPart)
        and isinstance(part.state, ToolCompleted)
        and part.state.time.compacted is None
        for part in message.parts
    )


def _cleared(message: Message) -> Message:
    now = now_ms()
    parts = [
        replace(part, state=replace(part.state, time=replace(part.state.time, compacted=now)))
        if isinstance(part, ToolPart) and isinstance(part.state, ToolCompleted)
        else part
        for part in message.parts
    ]
    metadata = {**message.metadata, "clearedFrom": message.id}
    return replace(message, content=tuple(parts), id=new_id(), metadata=metadata)
