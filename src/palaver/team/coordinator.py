"""The coordinator: one turn after the other, until it is a human's turn again.

It decides nothing by itself: messages say who speaks next, and the state says where the team
stands. Both are stored in one change, and a turn is noted before it begins, so that whatever ends
the process, another one goes on with the same turn: none is lost, none is answered twice.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from palaver.context import ContextManager, team_task_in
from palaver.conversation.models import model as named_model
from palaver.errors import MemberFailed, PalaverError, ValidationError
from palaver.events import Event, Events
from palaver.messages import AssistantInfo, Message, assistant, new_id, system, user
from palaver.messages.ids import derived_id
from palaver.messages.redaction import redact
from palaver.team.book import LEASE_SECONDS, Book
from palaver.team.crew import Crew
from palaver.team.leftovers import end_leftover, mark_of
from palaver.team.roster import Human
from palaver.team.routing import Call, Route, read_route
from palaver.team.state import Why

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.conversation.models.base import Model
    from palaver.stores.history import StoredHistory
    from palaver.stores.preconditions import Expected
    from palaver.stores.store import Store
    from palaver.team.roster import Agent, Member, Team
    from palaver.team.state import State, Turn

__all__ = ["Coordinator", "Floor"]

_NOBODY: Final = Route()
_log: Final = logging.getLogger("palaver.team")


class Floor(Struct, frozen=True):
    """Which human has the floor, and why (see `Why`); none has it while the team is paused."""

    human: str | None
    why: Why | Literal["paused"]


class Coordinator:
    """A team at work on one conversation of a store.

    >>> import anyio, palaver
    >>> from palaver.team import Command, Human, Team
    >>> echo = Command(id="max", argv=["sh", "-c", "echo Hello."])
    >>> team = Team(members=[Human(id="user"), echo], default="max")
    >>> coordinator = Coordinator(team, palaver.open(":memory:"))
    >>> async def scene():
    ...     await coordinator.say("Hi")
    ...     return await coordinator.run()
    >>> anyio.run(scene)
    Floor(human='user', why='drained')
    >>> [message.text for message in coordinator.history]
    ['Hi', 'Hello.']
    """

    def __init__(
        self,
        team: Team,
        store: Store,
        conversation: StoredHistory | str | None = None,
        *,
        folder: str | Path = ".",
        models: Callable[[str], Model] = named_model,
        events: Events | None = None,
        on_turn: Callable[[Member], object] | None = None,
        on_text: Callable[[Member, str], object] | None = None,
        on_message: Callable[[Message], object] | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        """Work on a conversation, or begin one; commands run in `folder`.

        `on_turn` is told whose turn begins, `on_text` what an agent says as it says it,
        `on_message` each message after it was stored.
        """
        if conversation is None:
            conversation = store.create(title=team.name)
        history = store.get(conversation) if isinstance(conversation, str) else conversation
        self.team = team
        self.history = history
        self.events = Events() if events is None else events
        self._book = Book(store, history, lease_seconds)
        self._face = ContextManager(history, events=self.events)
        self._crew = Crew(history, Path(folder), models)
        self._on_turn = on_turn
        self._on_text = on_text
        self._on_message = on_message
        self._lock = anyio.Lock()
        self._scope: anyio.CancelScope | None = None
        self._called_off = False

    @property
    def id(self) -> str:
        """The conversation's id."""
        return self.history.id

    async def state(self) -> State:
        """Where the team stands."""
        return await to_thread.run_sync(self._book.read)

    async def close(self) -> None:
        """Let go of the models."""
        await self._crew.close()

    # ── humans ──────────────────────────────────────────────────────────────────────────────────

    async def say(
        self,
        text: str,
        *,
        speaker: str | None = None,
        key: str | None = None,
        expect: Expected | None = None,
    ) -> Message:
        """A human speaks: by itself the one who has the floor, or spoke last.

        What it says may call others; where it calls nobody and nobody waits, the team's `default`
        gets it. `key` makes saying it again harmless. `expect` is the version that the message must
        follow; `VersionMismatch` where that is not the newest.
        """
        if not text.strip():
            raise ValidationError("must not be empty", path="$.text", rule="TM-01")

        async def spoken() -> Message:
            async with self._lock:
                state = await self.state()
                human = self._human(state, speaker)
                route = read_route(text, human, self.team)
                room = self.team.limits.queue
                heard, over = state.heard(human.id).called(route, room)
                if route.lost:
                    heard = heard.handed(human.id, "lost")
                elif route == _NOBODY and not heard.queue and heard.begun is None:
                    heard, _ = heard.called(self._by_default(), room)
                message = user(
                    text,
                    id=new_id() if key is None else derived_id(self.id, key),
                    speaker=human.speaker,
                    routing=route.kept(over=over),
                )
                first = None if len(self.history) else self.team.task
                return await self._add(message, heard, key, team_task_in(text) or first, expect)

        return await self._book.while_held(spoken)

    def _by_default(self) -> Route:
        chosen = self.team.find(self.team.default or "")
        return _NOBODY if chosen is None else Route(calls=(Call(chosen.id),))

    def _human(self, state: State, name: str | None = None) -> Human:
        found = self.team.find(name or state.floor or state.human or "")
        if isinstance(found, Human):
            return found
        if name is not None:
            detail = f"{name!r} is no human of this team"
            raise ValidationError(detail, path="$.speaker", rule="TM-01")
        return self.team.humans[0]

    # ── turns ───────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> Floor:
        """Give everybody their turns until a human has the floor, or the team is paused.

        When this is called off, the turn under way is given up and stays the next one.
        """
        return await self._book.while_held(self._run)

    async def _run(self) -> Floor:
        while True:
            async with self._lock:
                state = await self.state()
                if state.paused:
                    return Floor(None, "paused")
                if state.floor is not None:
                    return Floor(state.floor, state.why)
                turn, again = state.begun, state.begun is not None
                if turn is None:
                    if await self._hands_over(state):
                        continue
                    turn = state.queue[0]
                    await self._noted(state.next())
            await self._take_turn(turn, again=again)

    async def _hands_over(self, state: State) -> bool:
        """Give the floor to a human where it is time to, and tell whether it was."""
        human = self._human(state).id
        if not state.queue:
            await self._noted(state.handed(human, "drained"))
            return True
        called = self.team.find(state.queue[0].member)
        if isinstance(called, Human):
            await self._noted(state.next().handed(called.id, "called"))
            return True
        most = self.team.limits.turns
        if state.turns < most:
            return False
        waiting = ", ".join(dict.fromkeys(turn.member for turn in state.queue))
        words = f"{most} turns in a row: the floor is yours. Waiting: {waiting}"
        await self._add(_notice("limit", words), state.handed(human, "limit"), None)
        return True

    async def _take_turn(self, turn: Turn, *, again: bool) -> None:
        self._called_off = False
        member = self.team.find(turn.member)
        if member is None or isinstance(member, Human):
            words = f"{turn.member} is no agent of this team any more"
            await self._answered(turn, _notice("gone", words), _NOBODY)
            return
        if again and turn.process is not None:
            end_leftover(turn.process)
        self._tell(self._on_turn, member)
        if again and not member.rerun:
            why = "interrupted, perhaps after it had effects; it is not asked again"
            await self._answered(turn, _failure(member, why), _NOBODY)
            return
        try:
            message = await self._answer(member)
        except MemberFailed as error:
            message, route = _failure(member, str(error)), _NOBODY
        else:
            route = read_route(message.text, member, self.team)
        await self._answered(turn, message, route)

    async def _answer(self, member: Agent) -> Message:
        """What an agent says; anything that goes wrong with it is `MemberFailed`."""
        deadline = anyio.CancelScope(deadline=anyio.current_time() + member.timeout)
        try:
            with anyio.CancelScope() as self._scope, deadline:
                told = lambda text: self._tell(self._on_text, member, text)  # noqa: E731 - it is short
                message = await self._crew.answer(member, told, self._started)
                return replace(message, speaker=member.speaker)
        except PalaverError as error:
            raise error if isinstance(error, MemberFailed) else MemberFailed(str(error)) from error
        except Exception as error:
            _log.exception("%s failed", member.id)
            msg = f"{type(error).__name__}: {error}"
            raise MemberFailed(msg) from error
        finally:
            self._scope = None
        if deadline.cancelled_caught:
            msg = f"no answer within {member.timeout:g} s"
            raise MemberFailed(msg)
        msg = "called off"
        raise MemberFailed(msg)

    async def _started(self, pid: int) -> None:
        async with self._lock:
            await self._noted((await self.state()).started(mark_of(pid)))

    async def _answered(self, turn: Turn, message: Message, route: Route) -> None:
        """Keep what a turn came to, and who is next because of it."""
        async with self._lock:
            state, over = (await self.state()).answered().called(route, self.team.limits.queue)
            human = self._human(state).id
            if self._called_off:
                state = replace(state, queue=()).handed(human, "cancelled")
            elif route.lost:
                state = state.handed(human, "lost")
            task = None if route is _NOBODY else team_task_in(message.text)
            message = replace(message, routing=route.kept(over=over))
            with anyio.CancelScope(shield=True):
                await self._add(message, state, turn.id, task)

    # ── stopping ────────────────────────────────────────────────────────────────────────────────

    async def pause(self) -> None:
        """Begin no further turn; the one under way is seen through."""
        await self._change(lambda state: replace(state, paused=True))

    async def resume(self) -> None:
        """Let turns begin again; `run` goes on where it was."""
        await self._change(lambda state: replace(state, paused=False))

    async def cancel(self) -> None:
        """Call off the turn under way and everything that waits; the floor goes to the human."""
        if self._scope is not None:
            self._called_off = True
            self._scope.cancel()
            return
        await self._change(
            lambda state: replace(state, queue=()).handed(self._human(state).id, "cancelled")
        )

    async def _change(self, change: Callable[[State], State]) -> None:
        async def changed() -> None:
            async with self._lock:
                await self._noted(change(await self.state()))

        await self._book.while_held(changed)

    # ── the store, and whoever listens ──────────────────────────────────────────────────────────

    async def _noted(self, state: State) -> None:
        await to_thread.run_sync(self._book.note, state)

    async def _add(
        self,
        message: Message,
        state: State,
        key: str | None,
        task: str | None = None,
        expect: Expected | None = None,
    ) -> Message:
        # the task goes first: should the process end in between, the turn is taken again
        if task is not None and expect is None:
            await to_thread.run_sync(self._face.set_team_task, task)
        kept = await to_thread.run_sync(self._book.add, message, state, key, expect)
        if kept != message:  # it was said before
            return kept
        if task is not None and expect is not None:  # the message is what the version is for
            await to_thread.run_sync(self._face.set_team_task, task)
        data = {"id": message.id, "role": message.role}
        await self.events.publish(Event("message.added", self.id, self.history.version, data))
        self._tell(self._on_message, message)
        return message

    def _tell(self, listener: Callable[..., object] | None, *facts: Any) -> None:  # noqa: ANN401 - whatever it is told
        """Tell a listener; one that fails is logged and changes nothing."""
        if listener is None:
            return
        try:
            listener(*facts)
        except Exception:  # noqa: BLE001 - whatever it raises
            _log.exception("a listener failed")


def _notice(kind: str, words: str) -> Message:
    """Something that the team has to say itself; no agent is shown it."""
    return system(words, metadata={"team": {"notice": kind}})


def _failure(member: Agent, why: str) -> Message:
    """What stands in the place of an answer that never came; no secret is in it."""
    why = redact(why)
    info = AssistantInfo(finish="error", error={"name": "MemberFailed", "message": why})
    facts = {"team": {"failed": True}}
    return assistant(f"(no answer) {why}", speaker=member.speaker, info=info, metadata=facts)
