"""Making room by hand: first a preview, then the very thing that was previewed.

A plan that a model had a part in would come out differently the second time, so the last preview of
a conversation is kept, and used if nothing has changed since. Each is made with a conversation of
its own, as it was read then: whatever is said meanwhile is merged and never lost.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from anyio import to_thread
from msgspec.structs import replace

from palaver.conversation import ClearOutputs, Conversation, DropOldest, Summarise
from palaver.conversation.compaction import compact, preview
from palaver.errors import ModelError
from palaver.server.problems import Refusal
from palaver.server.shapes.changes import Size
from palaver.server.shapes.tokens import Compacted, Compacting, Gone, Saved
from palaver.server.working import Workshop
from palaver.stores.preconditions import check_expected

if TYPE_CHECKING:
    from palaver.conversation.compaction import Plan, Preview, Strategy
    from palaver.conversation.compaction.scene import Scene
    from palaver.history import View
    from palaver.messages import Role
    from palaver.server.service import Service
    from palaver.stores.preconditions import Expected

__all__ = ["Rooms"]

_KEPT: Final = 64
_SHOWN: Final = 200
_MOST: Final = 2_000
"""So many of the messages that go are listed."""


class _Planned:
    """A strategy whose plan is made already; on another version it plans anew."""

    def __init__(self, strategy: Strategy, plan: Plan, version: int) -> None:
        self.name = strategy.name
        self.keep_roles: frozenset[Role] = strategy.keep_roles
        self._strategy = strategy
        self._plan = plan
        self._version = version

    async def plan(self, scene: Scene) -> Plan | None:
        """What was planned before, where it still fits."""
        if scene.view.version == self._version:
            return self._plan
        return await self._strategy.plan(scene)


class _Kept(NamedTuple):
    asked: Compacting
    found: Preview


class Rooms:
    """Makes room in conversations, and remembers what was previewed."""

    def __init__(self, service: Service) -> None:
        """Serve one service; it is asked for as `service.part(Rooms)`."""
        self._service = service
        self._previews: OrderedDict[str, _Kept] = OrderedDict()
        self._gate = threading.Lock()

    async def make(
        self, conversation: str, asked: Compacting, expect: Expected | None = None
    ) -> Compacted:
        """Make room, or say what doing so would come to; busy while a step is under way.

        `expect` is the version that must be the newest, when it begins and when it is done.
        """
        workshop = self._service.part(Workshop)
        running = workshop.claim(conversation, asked.model or workshop.shelf.default)
        try:
            talk = await to_thread.run_sync(self._opened, workshop, conversation)
            check_expected(expect, talk.history.version)
            strategy = await to_thread.run_sync(_strategy, workshop, asked)
            kept = self._previews.get(conversation)
            if kept is not None and kept.asked == _without_preview(asked):
                strategy = _Planned(strategy, kept.found.plan, kept.found.version)
            return await self._made(talk, strategy, asked, expect)
        except ModelError as error:
            raise Refusal(409, str(error), name=type(error).__name__) from None
        finally:
            workshop.release(running)

    def _opened(self, workshop: Workshop, conversation: str) -> Conversation:
        shared = workshop.talks.get(conversation)
        own = Conversation(self._service.store, conversation)
        own.compacted = shared.compacted
        return own

    async def _made(
        self, talk: Conversation, strategy: Strategy, asked: Compacting, expect: Expected | None
    ) -> Compacted:
        found = await preview(talk, strategy)
        check_expected(expect, talk.history.version)
        if found is None:
            return await to_thread.run_sync(_nothing, talk)
        self._keep(talk.id, _Kept(_without_preview(asked), found))
        before = talk.messages
        if asked.preview:
            return await to_thread.run_sync(_shown, talk, before, found, None)
        planned = _Planned(strategy, found.plan, found.version)
        done = await compact(talk, planned, expect=expect)
        version = None if done is None else done.version
        return await to_thread.run_sync(_shown, talk, before, found, version)

    def _keep(self, conversation: str, kept: _Kept) -> None:
        with self._gate:
            self._previews.pop(conversation, None)
            self._previews[conversation] = kept
            if len(self._previews) > _KEPT:
                self._previews.popitem(last=False)


def _without_preview(asked: Compacting) -> Compacting:
    return replace(asked, preview=False)


def _strategy(workshop: Workshop, asked: Compacting) -> Strategy:
    more: dict[str, Any] = {}
    if asked.keep_roles is not None:
        more["keep_roles"] = frozenset(asked.keep_roles)
    if asked.kind == "clear-outputs":
        return ClearOutputs(
            protect_tokens=asked.protect_tokens,
            protect_turns=asked.protect_turns,
            least_gain=asked.least_gain,
            **more,
        )
    if asked.kind == "drop-oldest":
        return DropOldest(keep_tokens=asked.keep_tokens, **more)
    if asked.instructions is not None:
        more["instructions"] = asked.instructions
    return Summarise(model=workshop.model(asked.model), keep_tokens=asked.keep_tokens, **more)


def _nothing(talk: Conversation) -> Compacted:
    """There is nothing to gain, and nothing changes."""
    size = Size(messages=len(talk), tokens=talk.tally.total(talk.messages))
    return Compacted(
        version=talk.history.version,
        done=False,
        before=size,
        after=size,
        removed=[],
        added=[],
        cache_lost=0,
        result=None,
    )


def _shown(talk: Conversation, before: View, found: Preview, version: int | None) -> Compacted:
    """What goes and what comes; `version` is the one it was done as."""
    weigh, price = talk.tally.weigh, found.price
    ids = {message.id for message in price.removed}
    gone = [
        Gone(
            index=index,
            id=message.id,
            role=message.role,
            tokens=weigh(message),
            text=message.text[:_SHOWN],
        )
        for index, message in enumerate(before)
        if message.id in ids
    ]
    after = len(before) - len(gone) + len(price.added)
    return Compacted(
        version=talk.history.version if version is None else version,
        done=version is not None,
        before=Size(messages=len(before), tokens=found.before),
        after=Size(messages=after, tokens=found.after),
        removed=gone[:_MOST],
        added=list(price.added),
        cache_lost=price.cache_tokens,
        result=Saved(
            strategy=found.strategy, detail=found.plan.detail, saved=found.before - found.after
        ),
    )
