"""The sessions of Agent Framework over conversations in a store.

A run holds the conversation's lease from its first read to its last write, so that the turns of two
runs never mix. An `after_strategy` of the framework's compaction that excludes messages or sums
them up becomes one edit of the conversation.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import OrderedDict
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import quote

from agent_framework import HistoryProvider
from agent_framework import Message as FrameworkMessage

from palaver.adapters._turns import Turn, Wait, check_seconds
from palaver.adapters._worker_threads import run_in_background, run_to_end
from palaver.adapters.agent_framework.convert import (
    METADATA_KEY,
    alternate,
    answered_calls,
    check_messages,
    from_agent_framework,
    open_calls,
    repair_messages,
    to_agent_framework,
    with_contents,
)
from palaver.errors import Conflict, LeaseLost, LeaseTaken, UnknownConversation
from palaver.messages.limits import check_name, is_object
from palaver.messages.parts import ToolCallPart
from palaver.stores.store import check_store
from palaver.wire.repair import begin_with_user, with_call_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from agent_framework import AgentSession, Content, SessionContext, SupportsAgentRun

    from palaver.history.view import View
    from palaver.messages import Message
    from palaver.stores import Store, StoredHistory

__all__ = ["REDUCED", "PalaverHistoryProvider", "conversation_id", "quote_unprintable"]

REDUCED: Final = "AGENT_FRAMEWORK"
"""The reason of an edit that is what a compaction of the framework did."""
_GEMINI: Final = "agent_framework_gemini"
"""The package of a client."""
_MAX_LOOKBACK: Final = 40
"""How many messages are searched for the call of a result."""
_MAX_HISTORIES: Final = 128
"""How many conversations a provider has open."""
_POLL_SECONDS: Final = 0.05
_BEGAN_ELSEWHERE: Final = "began_with_the_provider"
"""The key in a session's state that says who has the beginning of the conversation."""
_SILENT_SECONDS: Final = 600
"""How long a run may be silent, while its model thinks or a tool works, and keep its turn."""
_Held = TypeVar("_Held")

_log = logging.getLogger("palaver.adapters.agent_framework")


class _Turn(Turn):
    """A run on a conversation: its turn, and what the framework was given to compact."""

    def __init__(self, store: Store, history: StoredHistory, seconds: float) -> None:
        silent = max(_SILENT_SECONDS, seconds)
        super().__init__(store, history.id, seconds, silent_seconds=silent)
        self.history = history
        self.task = asyncio.current_task()
        self.wrote = False
        self.ends = False
        self.is_left = False
        self.read: list[tuple[int, FrameworkMessage]] = []
        """The messages that were read, with their indexes in the view."""
        self.version = -1
        self.given: list[FrameworkMessage] | None = None
        """The same messages, where a compaction looks for them."""
        self.loop = asyncio.get_running_loop()
        self.unanswered: dict[int, weakref.finalize[..., SessionContext]] = {}
        """The contexts that the framework holds while it waits for an answer, by their ids."""
        self.question: weakref.finalize[..., Content] | None = None
        """What was asked, which the framework holds as long as the run lasts."""

    def is_over(self) -> bool:
        """Tell whether the run was given up, its question was dropped, or its loop was closed."""
        dropped = self.question is not None and not self.question.alive
        return self.is_left or dropped or super().is_over()


_turns: ContextVar[Mapping[tuple[int, str], _Turn] | None] = ContextVar(
    "palaver_turns", default=None
)
"""The runs that this code is part of, by store and conversation."""


class PalaverHistoryProvider(HistoryProvider):
    """Keeps the sessions of Agent Framework in a store: a session's id is its conversation's.

    Runs on one session take turns, in this process and elsewhere: each waits up to `wait_seconds`
    for the one before, and a process that was killed is succeeded after `turn_seconds`.
    `max_messages` gives a run no more than the newest so many messages, beginning with a question.
    The other arguments are those of every history provider.

    >>> import asyncio, palaver
    >>> from agent_framework import Message
    >>> store = palaver.open(":memory:")
    >>> provider = PalaverHistoryProvider(store)
    >>> asyncio.run(provider.save_messages("tea-talk", [Message("user", ["Tea?"])]))
    >>> store.get("tea-talk")[0].text
    'Tea?'
    """

    DEFAULT_SOURCE_ID: Final = "palaver"

    def __init__(
        self,
        store: Store,
        source_id: str = DEFAULT_SOURCE_ID,
        *,
        load_messages: bool = True,
        store_inputs: bool = True,
        store_context_messages: bool = False,
        store_context_from: set[str] | None = None,
        store_outputs: bool = True,
        max_messages: int | None = None,
        turn_seconds: float = 10.0,
        wait_seconds: float = 120.0,
    ) -> None:
        """Take a store, which the caller closes."""
        check_store(store)
        check_seconds(turn_seconds, wait_seconds)
        if max_messages is not None and (type(max_messages) is not int or max_messages < 1):
            allowed = "a whole number from 1 on, or None"
            raise ValueError(f"max_messages must be {allowed}, not {max_messages!r}")
        super().__init__(
            source_id,
            load_messages=load_messages,
            store_inputs=store_inputs,
            store_context_messages=store_context_messages,
            store_context_from=store_context_from,
            store_outputs=store_outputs,
        )
        self.store = store
        self.max_messages = max_messages
        self._turn_seconds, self._wait_seconds = turn_seconds, wait_seconds
        self._histories: OrderedDict[str, StoredHistory] = OrderedDict()
        self._tasks: weakref.WeakKeyDictionary[asyncio.Task[Any], set[_Turn]] = (
            weakref.WeakKeyDictionary()
        )

    def history(self, session_id: str) -> StoredHistory:
        """Return the conversation of a session as it is now, to read and to edit."""
        name = conversation_id(session_id)
        return self._open(name) or self.store.get(name)

    # ── what the framework calls ────────────────────────────────────────────────────────────────

    async def get_messages(
        self,
        session_id: str | None,
        *,
        state: dict[str, Any] | None = None,  # noqa: ARG002 - the store has it all
        **_more: object,
    ) -> list[FrameworkMessage]:
        """Return the messages of a session as they are now: as they were stored, or edited."""
        name = conversation_id(session_id)
        found, version = await run_to_end(partial(self._read, name))
        turn = self._turn(name)
        if turn is not None:
            turn.read, turn.version = found, version
        return [message for _, message in found]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[FrameworkMessage],
        *,
        state: dict[str, Any] | None = None,  # noqa: ARG002 - the store has it all
        **_more: object,
    ) -> None:
        """Append messages, in one change; they are stored when this returns.

        Messages that begin with all that the session has, as a client sends that repeats the whole
        transcript, are added from where they go on.
        """
        if not messages:
            return
        check_messages(messages)
        name = conversation_id(session_id)
        turn = self._turn(name)
        if turn is None:
            turn = await self._new_turn(name)
            turn.ends = True
        await self._when_free(turn, partial(self._append, turn, messages))

    async def before_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Take a turn, and give the run what the session has, so that it is a valid request.

        `ValueError` if another provider of the agent stores the same messages there.
        """
        self._check_others(agent)
        name = conversation_id(context.session_id)
        turn = self._turn(name)
        if turn is None or (turn.is_over() and not any(answered_calls(context.input_messages))):
            turn = await self._new_turn(name)  # not that of a run which the task's parent has left
            self._begin(turn, name)
        if turn.task is asyncio.current_task():
            self._watch(turn, context)
        await self._when_free(turn, partial(self._renew, turn))
        state.pop("messages", None)  # of a run that failed
        await super().before_run(agent=agent, session=session, context=context, state=state)
        given = context.context_messages.get(self.source_id, [])
        asked = {call for message in given for call in open_calls(message)}
        context.input_messages[:] = [*_without_orphans(context.input_messages, asked)]
        deferred = _deferred_calls(session)
        if _provider_has_it(session, state, is_new=not turn.history.log):
            given = []
        shown = repair_messages(given, coming=context.input_messages, deferred=deferred)
        shown = begin_with_user(shown, role=attrgetter("role"), made=_question)
        if _asks_gemini(agent):
            shown = alternate(shown, coming=context.input_messages)
        context.context_messages[self.source_id] = []
        context.extend_messages(self, shown)  # what is not marked as history counts as new input
        if not _stores_each_step(agent):
            turn.given = state["messages"] = [message for _, message in turn.read]

    async def after_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Store what was said, and end the turn unless the run goes on with a tool.

        A call of a tool that needs an approval, or that the caller carries out, ends the run.
        """
        turn = self._turn(conversation_id(context.session_id))
        reduced = state.pop("messages", None)
        if turn is None:
            await super().after_run(agent=agent, session=session, context=context, state=state)
            return
        asked = turn.unanswered.pop(id(context), None)
        if asked is not None:
            asked.detach()
        given = turn.given
        if given is not None and reduced is given:
            await run_to_end(partial(self._reduce, turn, given))
        said = context.response.messages if context.response is not None else []
        goes_on = _stores_each_step(agent) and _calls_tools(agent, said)
        turn.ends = not goes_on and turn.task is asyncio.current_task()
        await super().after_run(agent=agent, session=session, context=context, state=state)
        if turn.ends:
            await run_to_end(partial(self._release, turn))

    def _check_others(self, agent: SupportsAgentRun) -> None:
        """Refuse an agent that would store its messages twice in one conversation."""
        others: Sequence[object] = getattr(agent, "context_providers", ())
        for other in others:
            if (
                other is not self
                and isinstance(other, PalaverHistoryProvider)
                and other.store is self.store
                and (
                    (other.store_inputs and self.store_inputs)
                    or (other.store_outputs and self.store_outputs)
                )
            ):
                raise ValueError(
                    f"the history providers {self.source_id!r} and {other.source_id!r} would store"
                    " the same messages twice in one conversation: give one of them another store,"
                    " or store_inputs=False and store_outputs=False"
                )

    # ── one access to the store each ────────────────────────────────────────────────────────────

    def _open(self, name: str) -> StoredHistory | None:
        """Return a conversation as it is now, or None."""
        history = self._histories.get(name)
        try:
            return self._remember(self.store.get(name)) if history is None else history.refresh()
        except UnknownConversation:
            self._histories.pop(name, None)
            return None

    def _open_or_create(self, name: str) -> StoredHistory:
        found = self._open(name)
        if found is None:  # processes may create it at the same time
            found = self._remember(self.store.create(id=name, key=f"agent-framework {name}"))
        return found

    def _remember(self, history: StoredHistory) -> StoredHistory:
        self._histories[history.id] = history
        if len(self._histories) > _MAX_HISTORIES:
            with suppress(KeyError):  # another thread was first
                self._histories.popitem(last=False)
        return history

    def _read(self, name: str) -> tuple[list[tuple[int, FrameworkMessage]], int]:
        history = self._open(name)
        if history is None:
            return [], -1
        view, version = history.view, history.version
        first = 0 if self.max_messages is None else _first_question(view, self.max_messages)
        given = with_call_ids(view[first:], METADATA_KEY)
        found = ((at, to_agent_framework(each)) for at, each in enumerate(given, first))
        return [(at, message) for at, message in found if message is not None], version

    def _append(self, turn: _Turn, messages: Sequence[FrameworkMessage]) -> None:
        history = turn.history
        self._renew(turn)
        try:
            history.refresh()
            tools = _tools_of(history, messages)
            new: list[Message] = []
            for each in _new_messages(history.view, messages):
                new.append(from_agent_framework(each, session=history.id, tools=tools))
                calls = (part for part in new[-1].parts if isinstance(part, ToolCallPart))
                tools.update((part.call_id, part.tool) for part in calls)
            history.extend(new, lease=turn.lease, release=turn.ends)
            turn.wrote = True
            if turn.ends and new:  # it was given back with the change
                turn.let_go()
        finally:
            if turn.ends:
                self._release(turn)

    def _reduce(self, turn: _Turn, messages: Sequence[FrameworkMessage]) -> None:
        """Make one edit of what a compaction did to the messages that were read."""
        places = {id(message): at for at, message in turn.read}
        kept = [each for each in messages if not each.additional_properties.get("_excluded")]
        if [id(each) for each in kept] == [*places]:
            return
        history = turn.history
        shown = set(places.values())
        pieces: list[Any] = [
            range(at, at + 1) for at in range(len(history.view)) if at not in shown
        ]
        for each in kept:
            at = places.get(id(each))
            made = from_agent_framework(each, session=history.id) if at is None else None
            pieces.append(range(at or 0, (at or 0) + 1) if made is None else made)
        try:
            history.rewrite(pieces, reason=REDUCED, expect=turn.version)
        except Conflict as error:  # an edit came in between: it counts, and the next run compacts
            _log.info("a compaction of %s was left out: %s", history.id, error)

    # ── a turn ──────────────────────────────────────────────────────────────────────────────────

    async def _new_turn(self, name: str) -> _Turn:
        history = await run_to_end(partial(self._open_or_create, name))
        return _Turn(self.store, history, self._turn_seconds)

    def _begin(self, turn: _Turn, name: str) -> None:
        """Make a run known to what it calls, and to the end of its task."""
        others = dict(_turns.get() or {})
        for key, one in [*others.items()]:
            if one.lease is None or one.is_over():
                del others[key]
                self._forget(one)
        _turns.set({**others, (id(self.store), name): turn})
        if turn.task is not None:
            if turn.task not in self._tasks:
                turn.task.add_done_callback(self._end)
            self._tasks.setdefault(turn.task, set()).add(turn)

    def _turn(self, name: str) -> _Turn | None:
        """Return the run that this code is part of, while it has its turn."""
        turn = (_turns.get() or {}).get((id(self.store), name))
        has_it = turn is not None and turn.lease is not None and not turn.is_left
        return turn if has_it else None

    async def _when_free(self, turn: _Turn, work: Callable[[], object]) -> None:
        """Do some work under the lease, when no other run has it."""
        wait = Wait(turn.history.id, self._wait_seconds)
        while True:
            try:
                await run_to_end(work)
            except LeaseTaken as error:
                if turn.wrote:
                    raise self._lost(turn) from error
                if wait.is_over(error):
                    msg = f"session {turn.history.id} is used by another run"
                    raise LeaseTaken(f"{msg}; {wait.describe(error)}") from error
                await asyncio.sleep(_POLL_SECONDS)
            else:
                return

    def _renew(self, turn: _Turn) -> None:
        """Take the turn, or go on with it."""
        began = turn.lease is None
        if not turn.take() and not began and turn.wrote:
            self._release(turn)
            raise self._lost(turn)

    def _lost(self, turn: _Turn) -> LeaseLost:
        return LeaseLost(
            f"session {turn.history.id} went to another run: this one was silent for too long, or"
            " its process was suspended; run again"
        )

    def _watch(self, turn: _Turn, context: SessionContext) -> None:
        """Notice when the framework drops a context without an answer, or what it was asked.

        It does not report a model that raised, a stream that nobody reads on, nor a run that ends
        with a call: at a limit, or because a middleware says so.
        """
        turn.unanswered[id(context)] = self._when_dropped(context, turn)
        if any(answered_calls(context.input_messages)):
            return  # a further step of the run
        turn.wrote = False
        asked = [content for message in context.input_messages for content in message.contents]
        if asked:
            turn.question = self._when_dropped(asked[-1], turn)

    def _when_dropped(self, held: _Held, turn: _Turn) -> weakref.finalize[..., _Held]:
        dropped = weakref.finalize(held, self._drop, turn)
        dropped.atexit = False
        return dropped

    def _drop(self, turn: _Turn) -> None:
        """Take note of what was dropped; the garbage collector may call this anywhere."""
        with suppress(RuntimeError):  # the loop has ended, and the task with it
            cast("asyncio.AbstractEventLoop", turn.loop).call_soon_threadsafe(self._leave, turn)

    def _leave(self, turn: _Turn) -> None:
        """Let others have the session of a run that is over.

        One that has stored a step may be tried again by a middleware, which holds what was asked.
        Should it go on nevertheless, it takes its turn again, or is refused.
        """
        if any(each.alive for each in turn.unanswered.values()):
            return
        if not turn.wrote:
            self._give_up(turn)
        elif turn.lease is not None and turn.is_over():
            run_in_background(turn.suspend)

    def _end(self, task: asyncio.Task[Any]) -> None:
        """Let others have the sessions of a task that has ended."""
        for turn in self._tasks.pop(task, ()):
            self._give_up(turn)

    def _give_up(self, turn: _Turn) -> None:
        """Have no code be part of a run from now on, and give its lease back on a thread."""
        turn.is_left = True
        self._forget(turn)
        if turn.lease is not None:
            run_in_background(turn.release)

    def _release(self, turn: _Turn) -> None:
        self._forget(turn)
        turn.release()

    def _forget(self, turn: _Turn) -> None:
        if turn.question is not None:
            turn.question.detach()
        if turn.task is not None and turn.task in self._tasks:
            self._tasks[turn.task].discard(turn)


def conversation_id(session_id: str | None) -> str:
    """Return the id of a session's conversation: what is not printable is written as %XX."""
    if session_id is None or session_id == "":
        raise ValueError("a session needs an id: give the run a session, and create it with one")
    if not isinstance(cast("object", session_id), str):
        raise TypeError(f"session_id must be text, not {session_id!r}")
    name = quote_unprintable(session_id)
    check_name(name, "$.session_id", "argument")
    return name


def quote_unprintable(text: str) -> str:
    """Return a text with what is not printable written as %XX."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else quote(each, safe="", errors="surrogatepass")
        for each in text
    )


def _provider_has_it(session: AgentSession, state: dict[str, Any], *, is_new: bool) -> bool:
    """Tell whether the model's provider has the conversation, and there is only a copy here.

    That is so where the session began with a conversation of the provider's. One that the provider
    has kept beside palaver is left to it, or the model would be sent all of it twice.
    """
    if session.service_session_id is None:
        return False
    if is_new:
        state[_BEGAN_ELSEWHERE] = True
    if state.get(_BEGAN_ELSEWHERE):
        return True
    session.service_session_id = None
    return False


def _stores_each_step(agent: SupportsAgentRun) -> bool:
    """Tell whether a run stores what a model said before the tools run."""
    return bool(getattr(agent, "require_per_service_call_history_persistence", False))


def _calls_tools(agent: SupportsAgentRun, said: Sequence[FrameworkMessage]) -> bool:
    """Tell whether the framework runs the tools that a model called.

    It runs none of an answer where one needs an approval, or is the caller's to carry out: the run
    ends there. Tools that were given to the run alone are not known here.
    """
    asked = {call for message in said for call in open_calls(message)}
    contents = (each for message in said for each in message.contents)
    called = {each.name for each in contents if each.call_id in asked}
    return bool(asked) and called.isdisjoint(_pausing_tools(agent))


def _deferred_calls(session: AgentSession) -> set[str]:
    """Return the calls of an answer that waits for the caller: the framework runs the rest then.

    It keeps them in the session's state. A decision about a tool that needs an approval is a
    message of its own; the result of a tool that the caller carries out looks like any other.
    """
    state: Any = session.state.get("tool_approval")
    batch = state.get("pending_mixed_pause_batch") if is_object(state) else None
    if not is_object(batch):
        return set()
    requests = [item.get("request") for item in batch.get("items") or ()]
    calls = [each.get("function_call") or each for each in requests if is_object(each)]
    calls += batch.get("deferred_function_calls") or ()
    return {str(each.get("call_id")) for each in calls}


def _pausing_tools(agent: SupportsAgentRun) -> set[str]:
    """Return the names of an agent's tools that the framework doesn't run by itself."""
    options: Mapping[str, Any] = getattr(agent, "default_options", None) or {}
    servers: Sequence[Any] = getattr(agent, "mcp_tools", None) or ()
    tools = [*(options.get("tools") or ()), *(each for one in servers for each in one.functions)]
    return {
        str(each.name)
        for each in tools
        if getattr(each, "approval_mode", None) == "always_require"
        or getattr(each, "declaration_only", False)
    }


def _asks_gemini(agent: SupportsAgentRun) -> bool:
    """Tell whether an agent has the client that sends two messages of one role as they are."""
    kinds = type(getattr(agent, "client", None)).__mro__
    return any(kind.__module__.startswith(_GEMINI) for kind in kinds)


def _question(text: str) -> FrameworkMessage:
    return FrameworkMessage("user", [text])


def _first_question(view: View, count: int) -> int:
    """Return where the newest so many messages begin: at a question, if one is among them."""
    first = max(len(view) - count, 0)
    found = (at for at, each in enumerate(view[first:], first) if each.role in ("user", "system"))
    return next(found, first)


def _without_orphans(
    messages: Sequence[FrameworkMessage], asked: set[str]
) -> Iterator[FrameworkMessage]:
    """Leave out the results of calls that an edit has removed."""
    asked = asked | {call for message in messages for call in open_calls(message)}
    for message in messages:
        kept = [
            each
            for each in message.contents
            if each.type != "function_result" or not each.call_id or each.call_id in asked
        ]
        if len(kept) == len(message.contents):
            yield message
        elif kept:
            yield with_contents(message, kept)


def _new_messages(view: View, messages: Sequence[FrameworkMessage]) -> Sequence[FrameworkMessage]:
    """Leave out the transcript so far, where messages begin with all of it and go on.

    A question that was asked before, and the same answer to it, are new.
    """
    if not 1 < len(view) < len(messages):
        return messages
    given = with_call_ids(view, METADATA_KEY)
    known = [each for each in map(to_agent_framework, given) if each is not None]
    same = all(map(_is_same, known, messages))
    return messages[len(known) :] if known and same else messages


def _is_same(one: FrameworkMessage, other: FrameworkMessage) -> bool:
    if one.message_id is not None and one.message_id == other.message_id:
        return True
    return one.role == other.role and [each.to_dict() for each in one.contents] == [
        each.to_dict() for each in other.contents
    ]


def _tools_of(history: StoredHistory, messages: Sequence[FrameworkMessage]) -> dict[str, str]:
    """Name the tools of earlier calls that messages have the results of."""
    wanted = {call for message in messages for call in answered_calls([message])}
    if not wanted:
        return {}
    recent = history.view[max(len(history.view) - _MAX_LOOKBACK, 0) :]
    calls = (part for each in recent for part in each.parts if isinstance(part, ToolCallPart))
    return {part.call_id: part.tool for part in calls if part.call_id in wanted}
