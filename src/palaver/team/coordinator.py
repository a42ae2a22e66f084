"""The coordinator of a team: whose turn it is, and what each member is given to answer.

A model is asked with its prompt as the whole question. The calls that it makes are messages of the
conversation, with the member as their speaker; they run, or wait for an approval, as everywhere
else, and the model is asked again with their results until it answers. A program is run with its
prompt on standard input, and its output becomes the message. Whatever goes wrong is `MemberFailed`,
with the exit status and what the program wrote about it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import aclosing
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
from palaver.context.manager import KnownAgent, prompt_at_turn
from palaver.conversation import Conversation
from palaver.conversation.ledger import pending_entries
from palaver.conversation.run import decide, options_after, run_decided, sort_calls
from palaver.conversation.store_access import hash_family
from palaver.errors import LeaseTaken, MemberFailed, PalaverError, ValidationError
from palaver.events import Event, EventBus
from palaver.messages import (
    AssistantInfo,
    Message,
    ToolCallPart,
    ToolPart,
    assistant,
    new_id,
    system,
    user,
)
from palaver.messages.ids import derive_id, uuid_for
from palaver.messages.limits import (
    MAX_ANSWER,
    check_argument,
    check_callable,
    check_number,
    not_pickled,
    short_repr,
)
from palaver.messages.redaction import redact
from palaver.models import model as named_model
from palaver.models.base import ModelRequest
from palaver.stores import StoredHistory
from palaver.stores.holders import process_mark
from palaver.stores.lease import run_shielded
from palaver.stores.store import check_store
from palaver.team.config import PLAIN_FORMAT, Agent, CommandMember, Human, ModelMember, Team
from palaver.team.processes import kill_orphan, run_command_member
from palaver.team.routing import Route, TurnRequest, describe_team, read_route
from palaver.team.state import LEASE_SECONDS, HumanTurnReason, TeamStore
from palaver.tools import Tool, Toolbox
from palaver.tools.approval import Decision, needs_approval
from palaver.tools.runner import as_toolbox, error_text, import_object, storable_text
from palaver.wire.reply import TextDelta

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from palaver.context import AssemblerOutput, Prompt, PromptExplanation
    from palaver.conversation.run import Approve
    from palaver.history import Expected
    from palaver.models.base import Model
    from palaver.stores.store import Store
    from palaver.team.config import Member
    from palaver.team.state import TeamState, TeamTurn

__all__ = [
    "AgentRunner",
    "CallsWait",
    "Coordinator",
    "HumanTurn",
    "ask_model_member",
    "find_toolboxes",
    "prompt_limits",
    "prompt_options",
]


_MAX_STEPS: Final = 20
"""How often a model is asked in one turn."""
_RECENT: Final = 1_000
"""How many of the newest messages are searched for the calls of the running turn."""


class CallsWait(Exception):  # noqa: N818 - no error
    """A member has made calls that wait for an approval; its turn goes on after that."""

    def __init__(self, calls: Sequence[ToolCallPart]) -> None:
        """Take the calls."""
        super().__init__()
        self.calls = tuple(calls)


class AgentRunner:
    """Asks agents. Each has its own view of the one history: window, limits, visibility."""

    def __init__(
        self,
        team: Team,
        conversation: Conversation,
        folder: Path,
        models: Callable[[str], Model],
        toolboxes: Mapping[str, Toolbox],
    ) -> None:
        """Take a conversation; `models` makes a model by its name when it is first asked.

        `toolboxes` are the tools of the models, by the ids of the members.
        """
        self._team = team
        self._conversation = conversation
        self._history = conversation.history
        self._folder = folder
        self._make_model = models
        self._contexts: dict[str, ContextManager] = {}
        self._models: dict[str, Model] = {}
        self.toolboxes = toolboxes
        self.seen: int | None = None  # the version that the member of the running turn was shown

    async def answer(
        self,
        member: Agent,
        turn: TeamTurn,
        *,
        on_text: Callable[[str], object],
        on_start: Callable[[int], Awaitable[None]],
        on_calls: Callable[[Message, int], Awaitable[None]],
    ) -> Message:
        """Ask an agent; `on_text` gets its text as it comes, `on_start` a program's process id.

        `on_calls` stores a message with tool calls, and the version that the agent was shown.
        Raises `CallsWait` if calls wait for an approval.
        """
        prompt = await to_thread.run_sync(self.prompt, member, turn.sees)
        self.seen = prompt.fingerprint.version if turn.sees is None else turn.sees
        if isinstance(member, CommandMember):
            given = prompt.output
            return await run_command_member(member, given, self._folder, on_text, on_start)
        assert isinstance(member, ModelMember)  # noqa: S101 - there are these two
        if member.model not in self._models:
            self._models[member.model] = await to_thread.run_sync(self._make_model, member.model)
        model, box = self._models[member.model], self.toolboxes[member.id]
        own: list[Message] = []
        if turn.sees is not None:  # it has made calls, before they were approved or a crash
            own = await to_thread.run_sync(self._own_messages, turn)
        for number in range(sum(map(bool, map(_calls_of, own))), _MAX_STEPS):
            if number:
                await self._run_calls(turn, box)
                own = await to_thread.run_sync(self._own_messages, turn)
            message = await ask_model_member(
                member, model, prompt.output, self._history.id, on_text, tools=box, own=own
            )
            if not _calls_of(message):
                return message
            facts = {"turn": turn.id, "sees": self.seen}
            message = replace(
                message, speaker=member.speaker, metadata={**message.metadata, "team": facts}
            )
            await on_calls(message, self.seen)
        msg = f"{_MAX_STEPS} steps and no answer without tool calls"
        raise MemberFailed(msg)

    async def _run_calls(self, turn: TeamTurn, box: Toolbox) -> None:
        """Run the calls of a turn that have no result; raise `CallsWait` if some may not run."""
        waiting = await to_thread.run_sync(self.open_calls, turn)
        needs = partial(needs_approval, box)
        decisions, undecided = await sort_calls(self._conversation, waiting, needs)
        ready = [call for call in waiting if call not in undecided]
        await run_decided(self._conversation, ready, decisions, tools=box)
        if undecided:
            raise CallsWait(undecided)

    def open_calls(self, turn: TeamTurn) -> list[ToolCallPart]:
        """Return the calls of a turn that were not started."""
        waiting = self._conversation.waiting()
        if not waiting:
            return []
        own = {part.id for message in self._own_messages(turn) for part in message.parts}
        return [call for call in waiting if call.id in own]

    def _own_messages(self, turn: TeamTurn) -> list[Message]:
        """Return the calls of a turn and their results, in order."""
        own: list[Message] = []
        made: set[str] = set()
        view = self._history.refresh().view
        for message in view[-_RECENT:]:
            if _turn_of(message) == turn.id:
                made.update(part.call_id for part in _calls_of(message))
                own.append(message)
            elif any(isinstance(p, ToolPart) and p.call_id in made for p in message.parts):
                own.append(message)
        return own

    def prompt(self, member: Agent, at: int | None = None) -> Prompt:
        """Work out what an agent is shown now, or at a version; the prompt can be explained."""
        context = self._contexts.get(member.id)
        if context is None:
            limits = prompt_limits(member)
            context = self._contexts[member.id] = ContextManager(self._history, **limits)
        return context.prompt_for(member.id, **self._options(member), at=at)

    def prompt_at(self, member: Agent, turn: int) -> Prompt:
        """Work out what an agent was shown at one of its turns."""
        who = KnownAgent((), member.id)
        limits, options = prompt_limits(member), self._options(member)
        return prompt_at_turn(who, self._history, turn, limits, options)

    def _options(self, member: Agent) -> dict[str, Any]:
        return prompt_options(member, self._team, self._instructions(member))

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


def prompt_limits(member: Agent) -> dict[str, Any]:
    """Return the limits of an agent's prompts, as `ContextManager` takes them."""
    return {
        "window": member.window,
        "max_bytes": member.max_bytes,
        "max_tokens": member.max_tokens,
        "visibility": member.visibility,
    }


def prompt_options(member: Agent, team: Team, instructions: str | None) -> dict[str, Any]:
    """Return what an agent's prompts say, as `ContextManager.prompt_for` takes it.

    A model is told who is in the team and how to hand over; a program has its own instructions.
    """
    form = member.known.format if isinstance(member, CommandMember) else member.format
    told = [member.system] if member.system else []
    if isinstance(member, ModelMember):
        told.append(describe_team(member, team))
    return {
        "agent_type": form or PLAIN_FORMAT,
        "system_instruction": "\n\n".join(told) or None,
        "instruction_file_text": instructions,
        "name": member.shown,
    }


def _calls_of(message: Message) -> list[ToolCallPart]:
    return [part for part in message.parts if isinstance(part, ToolCallPart)]


def _turn_of(message: Message) -> object:
    """Return the turn in which a member made the calls of a message."""
    facts: object = message.metadata.get("team")
    return facts.get("turn") if isinstance(facts, Mapping) else None


# ── models ──────────────────────────────────────────────────────────────────────────────────────


def find_toolboxes(team: Team, given: Toolbox) -> dict[str, Toolbox]:
    """Return the tools of a team's models by the ids of the members.

    A name is that of a given tool, or `MODULE:ATTR` of others. Raises `ValidationError` if there is
    no such tool.
    """
    return {
        member.id: _find_tools(member.tools, given, f"$.members[{index}].tools")
        for index, member in enumerate(team.members)
        if isinstance(member, ModelMember)
    }


def _find_tools(names: Sequence[str], given: Toolbox, path: str) -> Toolbox:
    found: list[Any] = []
    for index, name in enumerate(names):
        if ":" in name:
            found += _import_tools(name, f"{path}[{index}]")
        elif name in given:
            found.append(given[name])
        else:
            known = ", ".join(given) or "none"
            detail = f"there is no tool {name!r}; there are: {known}; MODULE:ATTR imports one"
            raise ValidationError(detail, path=f"{path}[{index}]", rule="unknown-tool")
    return Toolbox(found)


def _import_tools(place: str, path: str) -> list[Any]:
    try:
        value = import_object(place)
    except Exception as error:
        detail = f"{place} can't be imported: {type(error).__name__}: {error}"
        raise ValidationError(detail, path=path, rule="unknown-tool") from error
    if hasattr(value, "__aenter__"):
        detail = f"{place} has to be opened: give it to the team, and name its tools here"
        raise ValidationError(detail, path=path, rule="unknown-tool")
    if isinstance(value, Mapping):
        return list(value.values())
    return [value] if isinstance(value, Tool) or callable(value) else list(value)


async def ask_model_member(
    member: ModelMember,
    model: Model,
    prompt: AssemblerOutput,
    session: str,
    on_text: Callable[[str], object],
    *,
    tools: Toolbox,
    own: Sequence[Message] = (),
) -> Message:
    """Ask a model and return its answer; `on_text` gets the text as it comes.

    `own` are the calls that it has made in this turn, and their results.
    """
    question = [user(prompt.prompt), *own]
    if prompt.system_flag:
        question.insert(0, system(prompt.system_flag))
    target = replace(model.target, model=model.ref)
    request = wire.to(model.format, question, target)
    names = {**wire.FORMATS[model.format].own_names(tools.specs), **request.names}
    fold = wire.reply_reader(
        model.format, model=model.ref, session=uuid_for(session), names=names, limit=MAX_ANSWER
    )
    made = [calls for message in own if (calls := _calls_of(message))]
    options: Mapping[str, Any] = member.options
    if made and tools:
        options = options_after(options, model, made[-1], made[-2] if len(made) > 1 else ())
    # a member's prompt is written anew in each turn; only the calls of one turn add to it
    key = hash_family(session) if tools else ""
    ask = ModelRequest(request.body, tools.specs, names, options, key)
    async with aclosing(model.stream(ask)) as events:
        async for event in events:
            for delta in fold.feed(event):
                if isinstance(delta, TextDelta):
                    on_text(delta.text)
            if fold.answer.over_limit:
                msg = f"the answer is longer than {MAX_ANSWER:,} bytes"
                raise MemberFailed(msg)
    message = fold.message()
    if not message.text.strip() and not _calls_of(message):
        msg = "it said nothing"
        raise MemberFailed(msg)
    return message


# ── the team ────────────────────────────────────────────────────────────────────────────────────


_NO_ROUTE: Final = Route()
_log: Final = logging.getLogger("palaver.team")


class HumanTurn(Struct, frozen=True, omit_defaults=True):
    """The human whose turn it is, and why (see `HumanTurnReason`); None while paused.

    With `approval`, `calls` are those that a person has to decide about (`Coordinator.decide`)
    before the running turn can go on.
    """

    human: str | None
    why: HumanTurnReason | Literal["paused", "approval"]
    calls: tuple[ToolCallPart, ...] = ()

    __repr__ = short_repr


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
        tools: Toolbox | Iterable[Tool | Callable[..., Any]] = (),
        approve: Approve | None = None,
        events: EventBus | None = None,
        on_turn: Callable[[Member], object] | None = None,
        on_text: Callable[[Member, str], object] | None = None,
        on_message: Callable[[Message], object] | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        """Work on a conversation, or begin one; commands run in `folder`.

        `tools` are those that members name. `approve` decides about calls that need an approval,
        as in `Conversation.ask`; without it, `run` returns with the calls that wait. `on_turn` is
        called with the member whose turn begins, `on_text` with an agent and the next piece of its
        text, `on_message` with each message after it was stored.
        """
        check_argument(team, Team, "$.team", "a Team", "load_team('team.yaml') reads one")
        check_store(store)
        wanted = "the id of a conversation of this store, or what Store.get returns"
        check_argument(conversation, (str, StoredHistory, NoneType), "$.conversation", wanted)
        check_argument(folder, (str, Path), "$.folder", "a path")
        check_callable(models, "$.models", "a function that makes a model of its name")
        check_callable(approve, "$.approve", "a function that takes a call")
        check_argument(events, (EventBus, NoneType), "$.events", "an EventBus")
        check_callable(on_turn, "$.on_turn", "a function that takes a member")
        check_callable(on_text, "$.on_text", "a function that takes a member and a text")
        check_callable(on_message, "$.on_message", "a function that takes a message")
        check_number(lease_seconds, "$.lease_seconds")
        toolboxes = find_toolboxes(team, as_toolbox(tools))
        if conversation is None:
            conversation = store.create(title=team.name)
        history = store.get(conversation) if isinstance(conversation, str) else conversation
        self.team = team
        self.history = history
        self.events = EventBus() if events is None else events
        self._team_store = TeamStore(store, history, lease_seconds)
        self._context = ContextManager(history, events=self.events)
        self._conversation = Conversation(store, history)
        self._conversation.share_lease(self._team_store.shared)
        self._conversation.events.on("*", self._forward_event)
        self._agents = AgentRunner(team, self._conversation, Path(folder), models, toolboxes)
        self._approve = approve
        self._on_turn = on_turn
        self._on_text = on_text
        self._on_message = on_message
        self._lock = anyio.Lock()
        self._running = False
        self._scope: anyio.CancelScope | None = None
        self._cancelled = False

    __reduce_ex__ = not_pickled("make it again: Coordinator(team, store, id) in each process")

    @property
    def id(self) -> str:
        """The conversation's id."""
        return self.history.id

    @property
    def toolboxes(self) -> Mapping[str, Toolbox]:
        """The tools of the models, by the ids of the members."""
        return self._agents.toolboxes

    async def state(self) -> TeamState:
        """Read the current state of the team."""
        return await to_thread.run_sync(self._team_store.load)

    async def close(self) -> None:
        """Close the models."""
        await self._agents.close()

    # ── what members see ────────────────────────────────────────────────────────────────────────

    def prompt(self, member: str, turn: int | None = None) -> Prompt:
        """Return what a model or a program was shown at one of its turns, 1 being its first.

        Without `turn`, it is what the member would be shown now. A prompt is worked out with the
        member's settings as they are now.
        """
        found = self.team.find(member)
        if not isinstance(found, Agent):
            agents = ", ".join(one.id for one in self.team.members if isinstance(one, Agent))
            detail = f"{member!r} is no agent of this team; there are: {agents}"
            raise ValidationError(detail, path="$.member", rule="unknown-member")
        self.history.refresh()
        return self._agents.prompt(found) if turn is None else self._agents.prompt_at(found, turn)

    def explain(self, member: str, turn: int | None = None) -> PromptExplanation:
        """Say which messages a member was shown at a turn, or would be now, and why."""
        return self.prompt(member, turn).explain()

    # ── approvals ───────────────────────────────────────────────────────────────────────────────

    async def open_calls(self) -> list[ToolCallPart]:
        """Return the calls of the running turn that were not started, decided or not."""
        begun = (await self.state()).begun
        return [] if begun is None else await to_thread.run_sync(self._agents.open_calls, begun)

    async def waiting(self) -> list[ToolCallPart]:
        """Return the calls of the running turn that wait for a decision."""
        begun = (await self.state()).begun
        if begun is None:
            return []
        calls = await to_thread.run_sync(self._agents.open_calls, begun)
        needs = partial(needs_approval, self._agents.toolboxes.get(begun.member, Toolbox()))
        return (await sort_calls(self._conversation, calls, needs))[1]

    async def decide(self, call: ToolCallPart | str, verdict: object) -> Decision:
        """Decide about a call that waits, given by its part or its id; `run` goes on then.

        The verdict is True, False, a reason to deny it or a `Decision`, which may have the digest
        of the call as it was shown. Raises `ValidationError` if no such call waits, or if it was
        decided already.
        """
        name = call if isinstance(call, str) else call.id

        async def save() -> Decision:
            found = [one for one in await self.waiting() if name in (one.id, one.call_id)]
            if not found:
                detail = f"no call {name!r} waits for a decision in this team"
                raise ValidationError(detail, path="$.call", rule="unknown-call")
            begun = (await self.state()).begun
            box = self._agents.toolboxes.get("" if begun is None else begun.member, Toolbox())
            made = await decide(self._conversation, found[:1], lambda _: verdict, box)
            return made[found[0].id]

        return await self._team_store.while_held(save)

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

        When this is cancelled, the running turn is abandoned and stays the next one. Raises
        `LeaseTaken` while it is under way already, here or in another process.
        """
        if self._running:  # it would take the same turn a second time
            msg = "the team is at work already: run() is under way"
            raise LeaseTaken(msg)
        self._running = True
        try:
            return await self._team_store.while_held(self._run)
        finally:
            self._running = False

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
            try:
                await self._take_turn(turn, again=again)
            except CallsWait as waiting:
                return HumanTurn(self._human(state).id, "approval", waiting.calls)

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
            await self._recover()
            await self._drop_calls(turn, text)
            await self._finish_turn(turn, _notice("gone", text), _NO_ROUTE)
            return
        if again and turn.process is not None:
            kill_orphan(turn.process)
        self._notify(self._on_turn, member)
        if again and not member.rerun and turn.sees is None:
            why = "interrupted, perhaps after it had effects; it is not asked again"
            await self._finish_turn(turn, _failure(member, why), _NO_ROUTE)
            return
        if again:
            await self._recover()
        try:
            message = await self._answer_with_calls(member, turn)
        except MemberFailed as error:
            await self._recover()
            await self._drop_calls(turn, str(error))
            message, route = _failure(member, str(error)), _NO_ROUTE
        else:
            route = read_route(message.sendable_text, member, self.team)
        await self._finish_turn(turn, message, route)

    async def _answer_with_calls(self, member: Agent, turn: TeamTurn) -> Message:
        """Ask an agent, and a person about its calls that need an approval.

        The person may take longer than the member.
        """
        while True:
            try:
                return await self._answer(member, turn)
            except CallsWait as waiting:
                if self._approve is None:
                    raise
                box = self._agents.toolboxes[member.id]
                try:
                    with anyio.CancelScope() as scope:
                        self._scope = scope
                        await decide(self._conversation, waiting.calls, self._approve, box)
                finally:
                    self._scope = None
                if scope.cancelled_caught:
                    msg = "called off"
                    raise MemberFailed(msg) from None
                turn = (await self.state()).begun or turn

    async def _answer(self, member: Agent, turn: TeamTurn) -> Message:
        """Ask an agent; whatever goes wrong is `MemberFailed`."""
        deadline = anyio.CancelScope(deadline=anyio.current_time() + member.timeout)
        try:
            with anyio.CancelScope() as self._scope, deadline:
                on_text = partial(self._notify, self._on_text, member)
                message = await self._agents.answer(
                    member, turn, on_text=on_text, on_start=self._process_started,
                    on_calls=self._add_calls,
                )  # fmt: skip
                return replace(message, speaker=member.speaker)
        except CallsWait:
            raise
        except PalaverError as error:
            raise error if isinstance(error, MemberFailed) else MemberFailed(str(error)) from error
        except Exception as error:
            _log.exception("%s failed", member.id)
            name, text = type(error).__name__, error_text(error)
            raise MemberFailed(f"{name}: {text}" if text else name) from error
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

    async def _add_calls(self, message: Message, seen: int) -> None:
        """Store a message with tool calls: from now on they wait to be run."""
        async with self._lock:
            state = (await self.state()).set_seen(seen)
            with anyio.CancelScope(shield=True):
                await self._add(message, state, message.id)

    async def _recover(self) -> None:
        """Settle the calls that a crash, or a store that failed, has left running."""
        await run_shielded(self._conversation.recover_if_needed)

    async def _drop_calls(self, turn: TeamTurn, reason: str) -> None:
        """Deny the calls of a turn that ends before they were run."""
        with anyio.CancelScope(shield=True):
            calls = await to_thread.run_sync(self._agents.open_calls, turn)
            digests = await to_thread.run_sync(self._conversation.digests, calls)
            why = f"the turn has ended: {storable_text(redact(reason))}"
            denied = {
                call.id: Decision("deny", why, digest=digests[call.id])
                for call in calls
                if call.id in digests
            }
            ended = [call for call in calls if call.id in denied]
            await run_decided(self._conversation, ended, denied, tools=Toolbox())

    async def _finish_turn(self, turn: TeamTurn, message: Message, route: Route) -> None:
        """Store the message that ends a turn, and who is next because of it."""
        seen, self._agents.seen = self._agents.seen, None
        if seen is not None:
            facts = {**message.metadata.get("team", {}), "turn": turn.id, "sees": seen}
            message = replace(message, metadata={**message.metadata, "team": facts})
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

        async def end() -> None:
            begun = (await self.state()).begun
            if begun is not None:
                if not self._running:  # then no call is
                    await self._recover()
                await self._drop_calls(begun, "called off")

        await self._team_store.while_held(end)
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
        calls = [entry.record() for entry in pending_entries(message)]
        append = partial(self._team_store.append, message, state, key, expect, calls)
        stored = await to_thread.run_sync(append)
        if stored != message:  # it was stored before, under the same key
            return stored
        if task is not None and expect is not None:  # `expect` is for the message
            await to_thread.run_sync(self._context.set_team_task, task)
        data = {"id": message.id, "role": message.role}
        await self.events.publish(Event("message.added", self.id, self.history.version, data))
        self._notify(self._on_message, message)
        return message

    async def _forward_event(self, event: Event) -> None:
        """Publish what becomes of tool calls; the team publishes its own messages itself."""
        is_result = event.name == "message.added" and event.data["role"] == "tool"
        if is_result or event.name.startswith("tool."):
            await self.events.publish(event)
        if is_result and self._on_message is not None:
            view = self.history.view
            position = await to_thread.run_sync(view.find, event.data["id"])
            self._notify(self._on_message, view.log[position])

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
    why = storable_text(redact(why))
    info = AssistantInfo(finish="error", error={"name": "MemberFailed", "message": why})
    facts = {"team": {"failed": True}}
    return assistant(f"(no answer) {why}", speaker=member.speaker, info=info, metadata=facts)
