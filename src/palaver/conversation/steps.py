"""One step: a model is asked exactly once, and what it answers is stored before anybody acts on it.

The intent is on disk before the question goes out, and what arrives is kept as it comes, so that a
crash loses no more than the last moment. The answer, what it used and the calls it makes are one
change. A step that fails or is cancelled keeps what had arrived and says so.
"""

from __future__ import annotations

import inspect
import logging
import time
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from palaver import wire
from palaver.conversation.cancellation import AtTheEnd, at_last, shielded
from palaver.conversation.holding import while_held
from palaver.conversation.ledger import Entry, entries_of
from palaver.conversation.models.base import Ask
from palaver.conversation.usage import Usage
from palaver.errors import OutputTooLong
from palaver.messages import MAX_ANSWER, Message, ToolCallPart
from palaver.messages.ids import uuid_for
from palaver.wire import Note
from palaver.wire.tools import tool_names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from palaver.conversation.desk import Begun, Desk
    from palaver.conversation.models.base import Model
    from palaver.wire.deltas import Delta
    from palaver.wire.tools import ToolSpec

__all__ = ["OnDelta", "Step", "ask"]

OnDelta: TypeAlias = "Callable[[Delta], Awaitable[None] | None]"
"""A plain or async function that is told each piece of an answer as it arrives."""

_log: Final = logging.getLogger("palaver.conversation")
DRAFT_SECONDS: Final = 1.0
"""How much of an answer a crash may cost, in time."""
DRAFT_BYTES: Final = 64 * 1024
"""The size from which on a draft waits until the answer has grown by an eighth: a draft holds the
whole answer, and all drafts together shall be no more than a few times that."""


class Step(Struct, frozen=True):
    """What one call of a model came to: its answer, the calls it makes, what it used.

    `notes` says what had to be repaired in the conversation, or left out, to ask at all. `again`
    says that nobody was asked: the step had its answer from before, under the same key.
    """

    message: Message
    usage: Usage
    notes: tuple[Note, ...]
    entries: tuple[Entry, ...] = ()
    again: bool = False

    @property
    def calls(self) -> tuple[ToolCallPart, ...]:
        """The tool calls, in order."""
        return tuple(part for part in self.message.parts if isinstance(part, ToolCallPart))

    @property
    def text(self) -> str:
        """The words of the answer."""
        return self.message.text


async def ask(
    desk: Desk,
    model: Model,
    tools: tuple[ToolSpec, ...],
    *,
    options: Mapping[str, Any],
    on_delta: OnDelta | None,
    finished: Callable[[Message], Message],
    key: str | None = None,
) -> Step:
    """Take one step; `finished` adds to an answer what the provider left out (its cost)."""
    target = replace(model.target, model=model.ref)
    begin = partial(desk.begin, model.format, target, key)
    begun = await shielded(begin, undo=desk.withdraw)
    if isinstance(begun, Message):
        usage = await to_thread.run_sync(desk.usage)
        return Step(begun, usage, (), tuple(entries_of(begun)), again=True)
    lease = begun.lease
    async with AtTheEnd(partial(desk.let_go, lease), needed=partial(desk.is_held, lease)):
        asking: _Asking | None = None
        try:
            names = {**tool_names(model.format, tools), **begun.request.names}
            question = Ask(body=begun.request.body, tools=tools, names=names, options=options)
            asking = _Asking(desk, begun, model, names, on_delta)
            await while_held(desk, partial(asking.hear, question))
        except BaseException as error:
            if isinstance(error, Exception):
                _log.error("asking %s failed: %s", model.ref.model_id, error)
            await at_last(error, partial(_keep_the_rest, desk, begun, asking, finished))
            raise
        finish = partial(_keep_all, desk, begun, asking, finished)
        message, usage, entries = await shielded(finish)
    return Step(message, usage, begun.request.notes, entries)


class _Asking:
    """An answer on its way in."""

    def __init__(
        self,
        desk: Desk,
        begun: Begun,
        model: Model,
        names: Mapping[str, str],
        on_delta: OnDelta | None,
    ) -> None:
        self._desk = desk
        self._begun = begun
        self._model = model
        self._on_delta = on_delta
        self.fold = wire.fold(
            model.format,
            model=model.ref,
            session=_session(desk),
            names=names,
            limit=MAX_ANSWER,
        )

    async def hear(self, question: Ask) -> None:
        """Take in the answer, piece by piece; a draft is kept now and then.

        An answer that is longer than `MAX_ANSWER` is cut off there: `OutputTooLong`.
        """
        kept, due = time.monotonic(), 0
        answer = self.fold.answer
        async with aclosing(self._model.stream(question)) as events:
            async for event in events:
                for delta in self.fold.feed(event):
                    if self._on_delta is not None:
                        heard = self._on_delta(delta)
                        if inspect.isawaitable(heard):
                            await heard
                if answer.over_limit:
                    detail = f"the answer is longer than {MAX_ANSWER:,} bytes, and was cut off"
                    answer.cut(OutputTooLong.__name__, detail)
                    raise OutputTooLong(detail, provider=self._model.ref.provider_id)
                if answer.size >= due and time.monotonic() - kept > DRAFT_SECONDS:
                    due = answer.size + (answer.size // 8 if answer.size > DRAFT_BYTES else 0)
                    await to_thread.run_sync(self._draft)
                    kept = time.monotonic()

    def _draft(self) -> None:
        self._desk.draft(self._begun, self.fold.message(interrupted=True))


def _keep_all(
    desk: Desk, begun: Begun, asking: _Asking, finished: Callable[[Message], Message]
) -> tuple[Message, Usage, tuple[Entry, ...]]:
    """The answer is over: keep it."""
    return desk.finish(begun, asking.fold.message(), finished)


def _keep_the_rest(
    desk: Desk, begun: Begun, asking: _Asking | None, finished: Callable[[Message], Message]
) -> None:
    """The answer was cut off: keep what had arrived, marked so."""
    message = None if asking is None else asking.fold.message(interrupted=True)
    if message is not None and (message.content or "incompleteCalls" in message.metadata):
        desk.finish(begun, message, finished, whole=False)
    else:
        desk.abandon(begun)


def _session(desk: Desk) -> str:
    """The id that a conversation's parts bear."""
    return uuid_for(desk.history.id)
