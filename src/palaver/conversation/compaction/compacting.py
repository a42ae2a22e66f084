"""One compaction: look, plan, refuse what does not help, switch in one change, tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from anyio import to_thread
from msgspec import Struct

from palaver.conversation.compaction.scene import scene_of
from palaver.errors import CompactionRefused
from palaver.events import Event
from palaver.history import Piece, Price, Rewrite
from palaver.stores.preconditions import check_expected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from palaver.conversation.compaction.scene import Scene
    from palaver.conversation.conversation import Conversation
    from palaver.messages import Role
    from palaver.stores.preconditions import Expected

__all__ = ["Compaction", "Plan", "Preview", "Strategy", "compact", "compacting", "preview"]


class Plan(Struct, frozen=True):
    """What a strategy would have instead, and what it did, in words."""

    pieces: tuple[Piece, ...]
    detail: str


class Strategy(Protocol):
    """A way to make room."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def keep_roles(self) -> frozenset[Role]:
        """The roles whose messages stay to the letter."""
        ...

    async def plan(self, scene: Scene) -> Plan | None:
        """What to have instead; None where there is nothing to gain."""
        ...


class Compaction(Struct, frozen=True):
    """What a compaction did: the price it was to have, and what it saved in the end."""

    strategy: str
    detail: str
    version: int
    before: int
    after: int
    price: Price

    @property
    def saved(self) -> int:
        """How many tokens it saved."""
        return self.before - self.after

    def to_dict(self) -> dict[str, Any]:
        """The compaction as JSON-ready data."""
        return {
            "strategy": self.strategy,
            "detail": self.detail,
            "version": self.version,
            "tokensBefore": self.before,
            "tokensAfter": self.after,
            "saved": self.saved,
            "price": self.price.to_dict(),
        }


class Preview(Struct, frozen=True):
    """What a compaction would do: its plan, and what it would come to."""

    strategy: str
    plan: Plan
    version: int
    before: int
    after: int
    price: Price


async def preview(conversation: Conversation, strategy: Strategy) -> Preview | None:
    """What `compact` would do now, and refuse; nothing changes."""
    scene = await to_thread.run_sync(_look, conversation, strategy)
    plan = None if scene is None else await strategy.plan(scene)
    if scene is None or plan is None:
        return None
    return await to_thread.run_sync(_weighed, conversation, strategy, scene, plan)


async def compact(
    conversation: Conversation, strategy: Strategy, *, expect: Expected | None = None
) -> Compaction | None:
    """Make room now; None where there is nothing to gain, or nothing new since the last time.

    What does not make the conversation shorter is refused with `CompactionRefused`, and nothing
    changes. `expect` is the version that it must follow; `VersionMismatch` where that is not the
    newest.
    """
    scene = await to_thread.run_sync(_look, conversation, strategy)
    check_expected(expect, conversation.history.version)
    if scene is None:
        return None
    plan = await strategy.plan(scene)
    if plan is None:
        return None
    done = await to_thread.run_sync(_switch, conversation, strategy, scene, plan, expect)
    history = conversation.history
    event = Event("compaction.done", history.id, history.version, done.to_dict())
    await conversation.events.publish(event)
    return done


def compacting(
    conversation: Conversation, strategy: Strategy
) -> Callable[[Event], Awaitable[None]]:
    """A handler for `tokens.exceeded` that makes room; a refusal is logged by the bus.

    conversation.events.on("tokens.exceeded", compacting(conversation, ClearOutputs()))
    """

    async def make_room(_: Event) -> None:
        await compact(conversation, strategy)

    return make_room


def _look(conversation: Conversation, strategy: Strategy) -> Scene | None:
    history = conversation.history
    history.refresh()
    view, tally = history.view, conversation.tally
    if conversation.compacted.get(strategy.name) == view.version:
        return None
    open_calls = frozenset(entry.call_id for entry in conversation.ledger().values())
    return scene_of(
        view,
        tally.each(view),
        tally.weigh,
        open_calls=open_calls,
        keep_roles=strategy.keep_roles,
    )


def _weighed(conversation: Conversation, strategy: Strategy, scene: Scene, plan: Plan) -> Preview:
    """What a plan would come to; one that makes nothing shorter is refused."""
    tally = conversation.tally
    rewrite = Rewrite(plan.pieces)
    added = sum(map(tally.weigh, rewrite.messages))
    kept = sum(
        sum(scene.tokens[piece.start : piece.stop])
        for piece in plan.pieces
        if isinstance(piece, range)
    )
    if added + kept >= scene.total:
        detail = f"{strategy.name} would leave {added + kept:,} of {scene.total:,} tokens"
        raise CompactionRefused(detail)
    price = conversation.history.price(rewrite, tokens=tally.weigh)
    version = scene.view.version
    return Preview(strategy.name, plan, version, scene.total, added + kept, price)


def _switch(
    conversation: Conversation,
    strategy: Strategy,
    scene: Scene,
    plan: Plan,
    expect: Expected | None,
) -> Compaction:
    """Put the plan in place, where it makes the conversation shorter."""
    history, price = conversation.history, _weighed(conversation, strategy, scene, plan).price
    history.rewrite(plan.pieces, expect=None if expect is None else scene.view.version)
    version = history.version
    conversation.compacted[strategy.name] = version
    after = conversation.tally.total(history.view)
    return Compaction(strategy.name, plan.detail, version, scene.total, after, price)
