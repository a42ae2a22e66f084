"""The oldest turns go, whole ones: what is dropped is in the version before, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from palaver.conversation.compaction.compacting import Plan
from palaver.conversation.compaction.scene import stretches
from palaver.messages import Role

if TYPE_CHECKING:
    from palaver.conversation.compaction.scene import Scene

__all__ = ["DropOldest"]

_SYSTEM: Final[frozenset[Role]] = frozenset(("system",))


class DropOldest(Struct, frozen=True, kw_only=True):
    """Drop the oldest groups until no more than `keep_tokens` are left.

    The user's last turn always stays, and so does whatever must.
    """

    keep_tokens: int
    keep_roles: frozenset[Role] = _SYSTEM
    name: str = "drop-oldest"

    async def plan(self, scene: Scene) -> Plan | None:
        """Leave out the oldest that may go."""
        begins = [group.start for group in scene.groups if group.begins_turn]
        last = begins[-1] if begins else len(scene.messages)
        left, dropped = scene.total, set[int]()
        for group in scene.groups:
            if left <= self.keep_tokens or group.start >= last:
                break
            if not group.stays:
                left -= group.tokens
                dropped.update(range(group.start, group.stop))
        if not dropped:
            return None
        kept = [index for index in range(len(scene.messages)) if index not in dropped]
        return Plan(tuple(stretches(kept)), f"dropped {len(dropped):,} messages")
