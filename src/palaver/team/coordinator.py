"""The coordinator of a team: whose turn it is, and what each member is given to answer.

A model is asked once, with its prompt as the whole question. A program is run with its prompt on
standard input, and its output becomes the message. Whatever goes wrong is `MemberFailed`, with the
exit status and what the program wrote about it.
"""

from __future__ import annotations

import logging
import signal
import tempfile
from contextlib import aclosing, contextmanager
from functools import partial
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from palaver import wire
from palaver.context import ContextManager, find_team_task
from palaver.errors import ArgumentTooLong, MemberFailed, PalaverError, ValidationError
from palaver.events import Event, EventBus
from palaver.messages import AssistantInfo, Message, assistant, new_id, system, user
from palaver.messages.ids import derive_id, uuid_for
from palaver.messages.limits import check_argument, check_callable, check_number
from palaver.messages.redaction import redact
from palaver.models import model as named_model
from palaver.models.base import ModelRequest
from palaver.stores import StoredHistory
from palaver.stores.store import check_store
from palaver.team.config import CommandMember, Human, ModelMember, Team
from palaver.team.processes import (
    EchoFilter,
    kill_orphan,
    process_mark,
    run_program,
    select_environment,
    strip_echo,
)
from palaver.team.routing import Route, TurnRequest, read_route
from palaver.team.state import LEASE_SECONDS, HumanTurnReason, TeamStore
from palaver.wire.reply import TextDelta

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from palaver.context import AssemblerOutput, Prompt
    from palaver.history import Expected
    from palaver.models.base import Model
    from palaver.stores.store import Store
    from palaver.team.config import Agent, Member
    from palaver.team.processes import ProcessResult
    from palaver.team.state import TeamState, TeamTurn

__all__ = [
    "LONGEST_ARGUMENT",
    "AgentRunner",
    "Coordinator",
    "HumanTurn",
    "ask_model_member",
    "run_command_member",
]


LONGEST_ARGUMENT: Final = 128 * 1024 - 1
"""The longest argument that Linux takes, in bytes, without its terminating zero."""
_MAX_ERROR_TEXT: Final = 4_096


class AgentRunner:
    """Asks agents. Each has its own view of the one history: window, limits, visibility."""

    def __init__(
        self, history: StoredHistory, folder: Path, models: Callable[[str], Model]
    ) -> None:
        """Take a history; `models` makes a model by its name when it is first asked."""
        self._history = history
        self._folder = folder
        self._make_model = models
        self._contexts: dict[str, ContextManager] = {}
        self._models: dict[str, Model] = {}

    async def answer(
        self,
        member: Agent,
        on_text: Callable[[str], object],
        on_start: Callable[[int], Awaitable[None]],
    ) -> Message:
        """Ask an agent; `on_text` gets its text as it comes, `on_start` a program's process id."""
        prompt = (await to_thread.run_sync(self.prompt, member)).output
        if isinstance(member, CommandMember):
            return await run_command_member(member, prompt, self._folder, on_text, on_start)
        assert isinstance(member, ModelMember)  # noqa: S101 - there are these two
        if member.model not in self._models:
            self._models[member.model] = await to_thread.run_sync(self._make_model, member.model)
        model = self._models[member.model]
        return await ask_model_member(member, model, prompt, self._history.id, on_text)

    def prompt(self, member: Agent) -> Prompt:
        """Work out what an agent is shown now; the prompt can be explained."""
        context = self._contexts.get(member.id)
        if context is None:
            context = self._contexts[member.id] = ContextManager(
                self._history,
                window=member.window,
                max_bytes=member.max_bytes,
                max_tokens=member.max_tokens,
                visibility=member.visibility,
            )
        form = member.known.format if isinstance(member, CommandMember) else member.format
        return context.prompt_for(
            member.id,
            form or "plain",
            system_instruction=member.system or None,
            instruction_file_text=self._instructions(member),
            name=member.shown,
        )

    def _instructions(self, member: Agent) -> str | None:
        """Read the instruction file, anew for each prompt, since people edit it meanwhile."""
        if member.instructions is None:
            return None
        try:
            return (self._folder / member.instructions).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            msg = f"{member.instructions} can't be read: {error}"
            raise MemberFailed(msg) from None

    async def close(self) -> None:
        """Close the models."""
        for model in self._models.values():
            await model.close()
        self._models.clear()


# ── models ──────────────────────────────────────────────────────────────────────────────────────


async def ask_model_member(
    member: ModelMember,
    model: Model,
    prompt: AssemblerOutput,
    session: str,
    on_text: Callable[[str], object],
) -> Message:
    """Ask a model and return its answer; `on_text` gets the text as it comes."""
    question = [user(prompt.prompt)]
    if prompt.system_flag:
        question.insert(0, system(prompt.system_flag))
    target = replace(model.target, model=model.ref)
    request = wire.to(model.format, question, target)
    fold = wire.reply_reader(model.format, model=model.ref, session=uuid_for(session))
    ask = ModelRequest(body=request.body, options=member.options)
    async with aclosing(model.stream(ask)) as events:
        async for event in events:
            for delta in fold.feed(event):
                if isinstance(delta, TextDelta):
                    on_text(delta.text)
    message = fold.message()
    if not message.text.strip():
        msg = "it said nothing"
        raise MemberFailed(msg)
    return message


# ── programs ────────────────────────────────────────────────────────────────────────────────────


async def run_command_member(
    member: CommandMember,
    prompt: AssemblerOutput,
    folder: Path,
    on_text: Callable[[str], object],
    on_start: Callable[[int], Awaitable[None]] | None = None,
) -> Message:
    """Run a program and return its output as a message; `on_text` gets the text as it comes."""
    with _arguments(member, prompt.system_flag) as argv:
        try:
            result = await run_program(
                argv,
                prompt.prompt,
                cwd=str(folder / (member.cwd or "")),
                env=_environment(member),
                max_output=member.max_output,
                on_text=EchoFilter(prompt.prompt, on_text),
                on_start=on_start,
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            msg = f"{argv[0]} can't be started: {why}"
            raise MemberFailed(msg) from None
    if result.status:
        raise MemberFailed(_describe_failure(_describe_status(result.status), result))
    text = strip_echo(result.output, prompt.prompt)
    if not text:
        raise MemberFailed(_describe_failure("it said nothing", result))
    facts: dict[str, Any] = {"leftOut": result.left_out} if result.left_out else {}
    return assistant(text, metadata={"team": facts} if facts else {})


def _environment(member: CommandMember) -> dict[str, str]:
    """The program's environment: nothing of palaver's own that was not selected."""
    if not member.inherit_env:
        return dict(member.env)
    return {**select_environment((*member.known.variables, *member.pass_env)), **member.env}


@contextmanager
def _arguments(member: CommandMember, system_text: str | None) -> Generator[list[str]]:
    """The arguments, with the system text in the form that the program takes."""
    known = member.known
    argv = list(known.argv)
    if not system_text:
        yield argv
        return
    size = len(system_text.encode())
    if known.system_flag and size <= LONGEST_ARGUMENT:
        yield [*argv, known.system_flag, system_text]
        return
    if not known.system_file_flag:
        msg = (
            f"the system text has {size:,} bytes, an argument holds {LONGEST_ARGUMENT:,}, "
            f"and {argv[0]} takes it from no file"
        )
        raise ArgumentTooLong(msg)
    with tempfile.NamedTemporaryFile("wb", prefix="palaver-", suffix=".txt") as file:
        file.write(system_text.encode())
        file.flush()
        yield [*argv, known.system_file_flag, file.name]


def _describe_status(status: int) -> str:
    if status > 0:
        return f"exit status {status}"
    try:
        return f"ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"ended by signal {-status}"


def _describe_failure(what: str, result: ProcessResult) -> str:
    """What happened, and the end of the program's errors, or else of its output."""
    # redact before cutting: half a secret has no recognizable form
    said = redact(result.errors.strip() or result.output.strip())[-_MAX_ERROR_TEXT:]
    return f"{what}\n{said}" if said else what


_NO_ROUTE: Final = Route()
_log: Final = logging.getLogger("palaver.team")


class HumanTurn(Struct, frozen=True):
    """The human whose turn it is, and why (see `HumanTurnReason`); None while paused."""

    human: str | None
    why: HumanTurnReason | Literal["paused"]


class Coordinator:
    """A team at work on one conversation of a store.

    >>> import anyio, palaver
    >>> from palaver.team import CommandMember, Human, Team
    >>> echo = CommandMember(id="max", argv=["sh", "-c", "echo Hello."])
    >>> team = Team(members=[Human(id="user"), echo], default="max")
    >>> coordinator = Coordinator(team, palaver.open(":memory:"))
    >>> async def talk():
    ...     await coordinator.say("Hi")
    ...     return await coordinator.run()
    >>> anyio.run(talk)
    HumanTurn(human='user', why='drained')
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
        events: EventBus | None = None,
        on_turn: Callable[[Member], object] | None = None,
        on_text: Callable[[Member, str], object] | None = None,
        on_message: Callable[[Message], object] | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        """Work on a conversation, or begin one; commands run in `folder`.

        `on_turn` is called with the member whose turn begins, `on_text` with an agent and the next
        piece of its text, `on_message` with each message after it was stored.
        """
        check_argument(team, Team, "$.team", "a Team", "load_team('team.yaml') reads one")
        check_store(store)
        wanted = "the id of a conversation of this store, or what Store.get returns"
        check_argument(conversation, (str, StoredHistory, NoneType), "$.conversation", wanted)
        check_argument(folder, (str, Path), "$.folder", "a path")
        check_callable(models, "$.models", "a function that makes a model of its name")
        check_argument(events, (EventBus, NoneType), "$.events", "an EventBus")
        check_callable(on_turn, "$.on_turn", "a function that takes a member")
        check_callable(on_text, "$.on_text", "a function that takes a member and a text")
        check_callable(on_message, "$.on_message", "a function that takes a message")
        check_number(lease_seconds, "$.lease_seconds")
        if conversation is None:
            conversation = store.create(title=team.name)
        history = store.get(conversation) if isinstance(conversation, str) else conversation
        self.team = team
        self.history = history
        self.events = EventBus() if events is None else events
        self._team_store = TeamStore(store, history, lease_seconds)
        self._context = ContextManager(history, events=self.events)
        self._agents = AgentRunner(history, Path(folder), models)
        self._on_turn = on_turn
        self._on_text = on_text
        self._on_message = on_message
        self._lock = anyio.Lock()
        self._scope: anyio.CancelScope | None = None
        self._cancelled = False

    @property
    def id(self) -> str:
        """The conversation's id."""
        return self.history.id

    async def state(self) -> TeamState:
        """Read the current state of the team."""
        return await to_thread.run_sync(self._team_store.load)

    async def close(self) -> None:
        """Close the models."""
        await self._agents.close()

    # ── humans ──────────────────────────────────────────────────────────────────────────────────

    async def say(
        self,
        text: str,
        *,
        speaker: str | None = None,
        key: str | None = None,
        expect: Expected | None = None,
    ) -> Message:
        """Add a human's message: by default of the human who has the floor, or who spoke last.

        The text may call other members; if it calls nobody and nobody waits, the team's `default`
        gets it. A message that is said again under the same `key` is added once. `expect` is the
        version that the message must follow; `VersionMismatch` if it is not the newest.
        """
        if not text.strip():
            raise ValidationError("must not be empty", path="$.text", rule="empty-message")

        async def add() -> Message:
            async with self._lock:
                state = await self.state()
                human = self._human(state, speaker)
                route = read_route(text, human, self.team)
                room = self.team.limits.queue
                heard, overflow = state.hear(human.id).enqueue(route, room)
                if route.lost:
                    heard = heard.hand_to(human.id, "lost")
                elif route == _NO_ROUTE and not heard.queue and heard.begun is None:
                    heard, _ = heard.enqueue(self._default_route(), room)
                message = user(
                    text,
                    id=new_id() if key is None else derive_id(self.id, key),
                    speaker=human.speaker,
                    routing=route.to_routing(overflow=overflow),
                )
                first = None if len(self.history) else self.team.task
                return await self._add(message, heard, key, find_team_task(text) or first, expect)

        return await self._team_store.while_held(add)

    def _default_route(self) -> Route:
        chosen = self.team.find(self.team.default or "")
        return _NO_ROUTE if chosen is None else Route(calls=(TurnRequest(chosen.id),))

    def _human(self, state: TeamState, name: str | None = None) -> Human:
        found = self.team.find(name or state.floor or state.human or "")
        if isinstance(found, Human):
            return found
        if name is not None:
            detail = f"{name!r} is no human of this team"
            raise ValidationError(detail, path="$.speaker", rule="unknown-speaker")
        return self.team.humans[0]

    # ── turns ───────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> HumanTurn:
        """Give members their turns until a human has the floor, or the team is paused.

        When this is cancelled, the running turn is abandoned and stays the next one.
        """
        return await self._team_store.while_held(self._run)

    async def _run(self) -> HumanTurn:
        while True:
            async with self._lock:
                state = await self.state()
                if state.paused:
                    return HumanTurn(None, "paused")
                if state.floor is not None:
                    return HumanTurn(state.floor, state.why)
                turn, again = state.begun, state.begun is not None
                if turn is None:
                    if await self._hand_over(state):
                        continue
                    turn = state.queue[0]
                    await self._save(state.begin_turn())
            await self._take_turn(turn, again=again)

    async def _hand_over(self, state: TeamState) -> bool:
        """Give the floor to a human if it is a human's turn; tell whether it was."""
        human = self._human(state).id
        if not state.queue:
            await self._save(state.hand_to(human, "drained"))
            return True
        called = self.team.find(state.queue[0].member)
        if isinstance(called, Human):
            await self._save(state.begin_turn().hand_to(called.id, "called"))
            return True
        most = self.team.limits.turns
        if state.turns < most:
            return False
        waiting = ", ".join(dict.fromkeys(turn.member for turn in state.queue))
        text = f"{most} turns in a row: the floor is yours. Waiting: {waiting}"
        await self._add(_notice("limit", text), state.hand_to(human, "limit"), None)
        return True

    async def _take_turn(self, turn: TeamTurn, *, again: bool) -> None:
        self._cancelled = False
        member = self.team.find(turn.member)
        if member is None or isinstance(member, Human):
            text = f"{turn.member} is no agent of this team any more"
            await self._finish_turn(turn, _notice("gone", text), _NO_ROUTE)
            return
        if again and turn.process is not None:
            kill_orphan(turn.process)
        self._notify(self._on_turn, member)
        if again and not member.rerun:
            why = "interrupted, perhaps after it had effects; it is not asked again"
            await self._finish_turn(turn, _failure(member, why), _NO_ROUTE)
            return
        try:
            message = await self._answer(member)
        except MemberFailed as error:
            message, route = _failure(member, str(error)), _NO_ROUTE
        else:
            route = read_route(message.sendable_text, member, self.team)
        await self._finish_turn(turn, message, route)

    async def _answer(self, member: Agent) -> Message:
        """Ask an agent; whatever goes wrong is `MemberFailed`."""
        deadline = anyio.CancelScope(deadline=anyio.current_time() + member.timeout)
        try:
            with anyio.CancelScope() as self._scope, deadline:
                on_text = partial(self._notify, self._on_text, member)
                message = await self._agents.answer(member, on_text, self._process_started)
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

    async def _process_started(self, pid: int) -> None:
        async with self._lock:
            await self._save((await self.state()).set_process(process_mark(pid)))

    async def _finish_turn(self, turn: TeamTurn, message: Message, route: Route) -> None:
        """Store the message that ends a turn, and who is next because of it."""
        async with self._lock:
            state = (await self.state()).end_turn()
            state, overflow = state.enqueue(route, self.team.limits.queue)
            human = self._human(state).id
            if self._cancelled:
                state = replace(state, queue=()).hand_to(human, "cancelled")
            elif route.lost:
                state = state.hand_to(human, "lost")
            task = None if route is _NO_ROUTE else find_team_task(message.sendable_text)
            message = replace(message, routing=route.to_routing(overflow=overflow))
            with anyio.CancelScope(shield=True):
                await self._add(message, state, turn.id, task)

    # ── stopping ────────────────────────────────────────────────────────────────────────────────

    async def pause(self) -> None:
        """Begin no further turn; the running one is finished."""
        await self._update(lambda state: replace(state, paused=True))

    async def resume(self) -> None:
        """Let turns begin again; `run` continues where it stopped."""
        await self._update(lambda state: replace(state, paused=False))

    async def cancel(self) -> None:
        """Cancel the running turn and all waiting ones; the human gets the floor."""
        if self._scope is not None:
            self._cancelled = True
            self._scope.cancel()
            return
        await self._update(
            lambda state: replace(state, queue=()).hand_to(self._human(state).id, "cancelled")
        )

    async def _update(self, change: Callable[[TeamState], TeamState]) -> None:
        async def save() -> None:
            async with self._lock:
                await self._save(change(await self.state()))

        await self._team_store.while_held(save)

    # ── the store and the callbacks ─────────────────────────────────────────────────────────────

    async def _save(self, state: TeamState) -> None:
        await to_thread.run_sync(self._team_store.save, state)

    async def _add(
        self,
        message: Message,
        state: TeamState,
        key: str | None,
        task: str | None = None,
        expect: Expected | None = None,
    ) -> Message:
        # set the task first: if the process ends in between, the turn is taken again
        if task is not None and expect is None:
            await to_thread.run_sync(self._context.set_team_task, task)
        stored = await to_thread.run_sync(self._team_store.append, message, state, key, expect)
        if stored != message:  # it was stored before, under the same key
            return stored
        if task is not None and expect is not None:  # `expect` is for the message
            await to_thread.run_sync(self._context.set_team_task, task)
        data = {"id": message.id, "role": message.role}
        await self.events.publish(Event("message.added", self.id, self.history.version, data))
        self._notify(self._on_message, message)
        return message

    def _notify(self, callback: Callable[..., object] | None, *facts: Any) -> None:  # noqa: ANN401 - the callback's arguments
        """Call a callback; if it raises, that is logged and changes nothing."""
        if callback is None:
            return
        try:
            callback(*facts)
        except Exception:  # noqa: BLE001 - whatever it raises
            _log.exception("a callback failed")


def _notice(kind: str, text: str) -> Message:
    """A message of the team itself; no agent is shown it."""
    return system(text, metadata={"team": {"notice": kind}})


def _failure(member: Agent, why: str) -> Message:
    """The message in place of an answer that failed, with secrets redacted."""
    why = redact(why)
    info = AssistantInfo(finish="error", error={"name": "MemberFailed", "message": why})
    facts = {"team": {"failed": True}}
    return assistant(f"(no answer) {why}", speaker=member.speaker, info=info, metadata=facts)
