"""Compaction on request: first a preview, then exactly what was previewed.

A plan made with a model would come out differently the second time, so the last preview of a
conversation is stored, and used if nothing has changed since. Each compaction works on its own
`Conversation`, as it was read then: messages added meanwhile are merged and never lost.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

from anyio import to_thread
from msgspec import Meta
from msgspec.structs import replace

from palaver.conversation import ClearOutputs, Conversation, DropOldest, Summarise
from palaver.conversation.compaction import compact, preview
from palaver.errors import ModelError
from palaver.history import check_expected
from palaver.messages import Message, Role
from palaver.server.errors import RequestRefused
from palaver.server.requests import Shape
from palaver.server.services.conversations import ConversationSize

if TYPE_CHECKING:
    from palaver.conversation.compaction import (
        CompactionInput,
        CompactionPlan,
        CompactionPreview,
        Strategy,
    )
    from palaver.history import Expected, View
    from palaver.server.services import Service

__all__ = [
    "CompactionReport",
    "CompactionRequest",
    "CompactionSavings",
    "Compactor",
    "RemovedMessage",
]

_PREVIEWS: Final = 64
_TEXT_LENGTH: Final = 200
_LISTED: Final = 2_000
"""How many of the removed messages are listed, at most."""

_Count = Annotated[int, Meta(ge=0)]


class CompactionRequest(Shape, frozen=True):
    """How to compact a conversation, and how far; a preview changes nothing.

    `keep_tokens` is for `drop-oldest` and `summarise`, `protect_tokens`, `protect_turns` and
    `least_gain` are for `clear-outputs`, `model` and `instructions` for `summarise`. The
    same request without `preview` does exactly what the preview showed.
    """

    kind: Literal["clear-outputs", "drop-oldest", "summarise"]
    preview: bool = False
    keep_tokens: _Count = 1_000
    protect_tokens: _Count = 1_000
    protect_turns: _Count = 1
    least_gain: _Count = 1
    keep_roles: list[Role] | None = None
    model: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    instructions: Annotated[str, Meta(min_length=1, max_length=20_000)] | None = None


class RemovedMessage(Shape, frozen=True):
    """A message that is removed, with its index before."""

    index: int
    id: str
    role: Role
    tokens: int
    text: str


class CompactionSavings(Shape, frozen=True):
    """What a compaction saved, in tokens."""

    strategy: str
    detail: str
    saved: int


class CompactionReport(Shape, frozen=True):
    """What a compaction would do, or has done: `done` says which.

    `removed` are the messages that it removes, `added` those that take the place of the first of
    them. If there is nothing to gain, both are empty and `result` is None.
    """

    version: int
    done: bool
    before: ConversationSize
    after: ConversationSize
    removed: list[RemovedMessage]
    added: list[Message]
    cache_lost: int
    result: CompactionSavings | None


class Compactor:
    """Compacts conversations on request, and remembers what was previewed."""

    def __init__(self, service: Service) -> None:
        """Compact the conversations of one service."""
        self._service = service
        self._previews: OrderedDict[str, _StoredPreview] = OrderedDict()
        self._lock = threading.Lock()

    async def compact(
        self, conversation: str, request: CompactionRequest, expect: Expected | None = None
    ) -> CompactionReport:
        """Compact a conversation, or preview it; refused while a step is running.

        `expect` is the version that must be the newest, at the beginning and at the end.
        """
        steps = self._service.steps
        running = steps.claim(conversation, request.model or self._service.models.default)
        try:
            chat = await to_thread.run_sync(self._open, conversation)
            check_expected(expect, chat.history.version)
            strategy = await to_thread.run_sync(self._make_strategy, request)
            stored = self._previews.get(conversation)
            if stored is not None and stored.request == _without_preview(request):
                strategy = _FixedPlan(strategy, stored.preview.plan, stored.preview.version)
            return await self._compact(chat, strategy, request, expect)
        except ModelError as error:
            raise RequestRefused(409, str(error), name=type(error).__name__) from None
        finally:
            steps.release(running)

    def _open(self, conversation: str) -> Conversation:
        shared = self._service.conversations.get(conversation)
        tools = self._service.tools.select(wanted=True)  # as in steps, for the prompt cache
        own = Conversation(self._service.store, conversation, tools=tools)
        own.compacted = shared.compacted
        return own

    async def _compact(
        self,
        chat: Conversation,
        strategy: Strategy,
        request: CompactionRequest,
        expect: Expected | None,
    ) -> CompactionReport:
        found = await preview(chat, strategy)
        check_expected(expect, chat.history.version)
        if found is None:
            return await to_thread.run_sync(_report_nothing, chat)
        self._store_preview(chat.id, _StoredPreview(_without_preview(request), found))
        before = chat.messages
        if request.preview:
            return await to_thread.run_sync(_report, chat, before, found, None)
        planned = _FixedPlan(strategy, found.plan, found.version)
        done = await compact(chat, planned, expect=expect)
        version = None if done is None else done.version
        return await to_thread.run_sync(_report, chat, before, found, version)

    def _store_preview(self, conversation: str, stored: _StoredPreview) -> None:
        with self._lock:
            self._previews.pop(conversation, None)
            self._previews[conversation] = stored
            if len(self._previews) > _PREVIEWS:
                self._previews.popitem(last=False)

    def _make_strategy(self, request: CompactionRequest) -> Strategy:
        more: dict[str, Any] = {}
        if request.keep_roles is not None:
            more["keep_roles"] = frozenset(request.keep_roles)
        if request.kind == "clear-outputs":
            return ClearOutputs(
                protect_tokens=request.protect_tokens,
                protect_turns=request.protect_turns,
                least_gain=request.least_gain,
                **more,
            )
        if request.kind == "drop-oldest":
            return DropOldest(keep_tokens=request.keep_tokens, **more)
        if request.instructions is not None:
            more["instructions"] = request.instructions
        model = self._service.steps.get_model(request.model)
        return Summarise(model=model, keep_tokens=request.keep_tokens, **more)


class _StoredPreview(NamedTuple):
    """The last preview of a conversation, and the request that it was made for."""

    request: CompactionRequest
    preview: CompactionPreview


class _FixedPlan:
    """A strategy whose plan is made already; on another version it plans again."""

    def __init__(self, strategy: Strategy, plan: CompactionPlan, version: int) -> None:
        self.name = strategy.name
        self.keep_roles: frozenset[Role] = strategy.keep_roles
        self._strategy = strategy
        self._plan = plan
        self._version = version

    async def plan(self, scene: CompactionInput) -> CompactionPlan | None:
        """The plan made before, if the version is still the same."""
        if scene.view.version == self._version:
            return self._plan
        return await self._strategy.plan(scene)


def _without_preview(request: CompactionRequest) -> CompactionRequest:
    return replace(request, preview=False)


def _report_nothing(chat: Conversation) -> CompactionReport:
    """The report if there is nothing to gain: nothing changes."""
    size = ConversationSize(messages=len(chat), tokens=chat.tally.total(chat.messages))
    return CompactionReport(
        version=chat.history.version,
        done=False,
        before=size,
        after=size,
        removed=[],
        added=[],
        cache_lost=0,
        result=None,
    )


def _report(
    chat: Conversation, before: View, found: CompactionPreview, version: int | None
) -> CompactionReport:
    """The report of what goes and what comes; `version` is the one that it made, if it is done."""
    weigh, price = chat.tally.weigh, found.price
    ids = {message.id for message in price.removed}
    removed = [
        RemovedMessage(
            index=index,
            id=message.id,
            role=message.role,
            tokens=weigh(message),
            text=message.text[:_TEXT_LENGTH],
        )
        for index, message in enumerate(before)
        if message.id in ids
    ]
    after = len(before) - len(removed) + len(price.added)
    return CompactionReport(
        version=chat.history.version if version is None else version,
        done=version is not None,
        before=ConversationSize(messages=len(before), tokens=found.before),
        after=ConversationSize(messages=after, tokens=found.after),
        removed=removed[:_LISTED],
        added=list(price.added),
        cache_lost=price.cache_tokens,
        result=CompactionSavings(
            strategy=found.strategy, detail=found.plan.detail, saved=found.before - found.after
        ),
    )
