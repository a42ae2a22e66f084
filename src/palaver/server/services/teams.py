"""Teams: a roster stored beside a conversation, and a coordinator that gives the turns.

A roster comes in one of two ways. A file given at the start (`palaver serve --team`) is trusted: it
may name programs and files of this machine. A roster that comes by HTTP or with an import may not:
its members are humans and models that the server knows.
"""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from anyio import to_thread
from msgspec.structs import replace

from palaver.context import format_addressees
from palaver.errors import LeaseTaken, PalaverError, StoreDamaged, ValidationError
from palaver.messages.ids import derive_id
from palaver.server.errors import RequestRefused
from palaver.server.services.conversations import ContextQuery, build_context
from palaver.server.services.steps import StepStarted
from palaver.team import CommandMember, Coordinator, ModelMember, load_team, read_team
from palaver.team.config import Agent
from palaver.team.coordinator import find_toolboxes, prompt_limits, prompt_options
from palaver.tools.approval import needs_approval

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from palaver.history import Expected
    from palaver.messages import Message, Speaker, ToolCallPart
    from palaver.server.services import Service
    from palaver.server.services.conversations import AgentContext
    from palaver.server.services.steps import RunningStep, StepOutcome
    from palaver.stores import Store, StoredHistory
    from palaver.team import HumanTurn, Member, Team
    from palaver.tools import Toolbox
    from palaver.tools.approval import Decision

__all__ = ["TEAM_TAG", "Teams", "count_addressed", "list_speakers", "store_roster"]


TEAM_TAG: Final = "team"
"""The tag of conversations that have a team."""
_KIND: Final = "roster"
_NAME: Final = "document"
_OUTCOMES: Final[dict[str, StepOutcome]] = {"paused": "paused", "approval": "waiting"}
"""How a step of a team ends, by why a human has the floor; otherwise it is done."""
_RECENT: Final = 10_000
"""How many of the newest messages are read to find out who spoke to whom."""


class _FileTeam(NamedTuple):
    """The team of a file, the folder that its paths are relative to, and its members' tools."""

    team: Team
    folder: Path
    toolboxes: dict[str, Toolbox]


class TeamRefused(PalaverError):  # noqa: N818 - as palaver's other errors
    """The team file of the settings can't be served."""


class Teams:
    """The teams of a server, by their conversations."""

    def __init__(self, service: Service) -> None:
        """Serve the teams of one service."""
        self._service = service
        self._store = service.store
        self._file_teams: dict[str, _FileTeam] = {}
        self._coordinators: dict[str, tuple[Team, Coordinator]] = {}
        self._lock = threading.Lock()

    async def start(self) -> None:
        """Open the team file of the settings, if there is one; again, this changes nothing."""
        file = self._service.settings.team
        if file is None:
            return
        try:
            await to_thread.run_sync(self.open_file, file)
        except ValidationError as error:
            msg = f"{file}: {error}"
            raise TeamRefused(msg) from error

    def open_file(self, file: str | Path) -> str:
        """Open a team file; return the id of its conversation, which is the same every time."""
        path = Path(file).resolve()
        team = load_team(path)
        toolboxes = find_toolboxes(team, self._service.tools.select(wanted=True))
        name = derive_id("team file", str(path))
        if name not in self._store:
            title = team.name or path.stem
            self._store.create(id=name, title=title, tags=(TEAM_TAG,), key=name)
        self._file_teams[name] = _FileTeam(team, path.parent, toolboxes)
        self._service.models.allow(
            member.model for member in team.members if isinstance(member, ModelMember)
        )
        return name

    # ── members ─────────────────────────────────────────────────────────────────────────────────

    def roster(self, conversation: str) -> Team | None:
        """The team of a conversation, if it has one."""
        if conversation in self._file_teams:
            return self._file_teams[conversation].team
        stored = self._store.records(conversation, _KIND).get(_NAME)
        if stored is None:
            return None
        try:
            text = stored.decode()
        except UnicodeError:
            raise StoreDamaged(f"the team of {conversation} can't be read: it is no text") from None
        return self._read_roster(text)

    def set_roster(self, conversation: str, document: str | dict[str, Any]) -> Team:
        """Set the team of a conversation, in place of the one it had."""
        text = document if isinstance(document, str) else msgspec.json.encode(document).decode()
        head = self._store.head(conversation)
        if conversation in self._file_teams:
            raise RequestRefused(
                409, "this conversation has the team of a file, given at the start"
            )
        if self._service.steps.running(conversation) is not None:
            msg = "a step is under way in this conversation"
            raise LeaseTaken(msg)
        team = self._read_roster(text)
        store_roster(self._store, conversation, text.encode())
        if TEAM_TAG not in head.tags:
            self._store.describe(conversation, title=head.title, tags=(*head.tags, TEAM_TAG))
        with self._lock:
            self._coordinators.pop(conversation, None)
        return team

    def _read_roster(self, text: str) -> Team:
        """Read a roster from outside; refuse members that would run programs or read files."""
        team = read_team(text)
        for index, member in enumerate(team.members):
            path = f"$.members[{index}]"
            if isinstance(member, CommandMember):
                detail = "programs are run only for a team of a file, given as --team at the start"
                raise ValidationError(detail, path=path, rule="team-member")
            if isinstance(member, ModelMember):
                if member.instructions is not None:
                    detail = "files are read only for a team of a file, given at the start"
                    raise ValidationError(detail, path=f"{path}.instructions", rule="team-member")
                self._service.models.check(member.model, f"{path}.model")
                for place, name in enumerate(member.tools):
                    if ":" in name:
                        detail = "modules are imported only for a team of a file, given as --team"
                        where = f"{path}.tools[{place}]"
                        raise ValidationError(detail, path=where, rule="team-member")
        find_toolboxes(team, self._service.tools.select(wanted=True))
        return team

    # ── turns ────────────────────────────────────────────────────────────────────────────────────

    async def say(
        self,
        conversation: str,
        text: str,
        *,
        speaker: str | None = None,
        key: str | None = None,
        expect: Expected | None = None,
    ) -> Message:
        """Add a message of a human; `expect` is the version that it must follow."""
        coordinator = await self._coordinator(conversation)
        return await coordinator.say(text, speaker=speaker, key=key, expect=expect)

    async def run(
        self, conversation: str, prepare: Callable[[], Awaitable[None]] | None = None
    ) -> str:
        """Run the turns as a step of the server; return the step's id.

        `prepare` is awaited when the step may begin; if it raises, no step begins.
        """
        steps = self._service.steps
        running = steps.claim(conversation, None)
        try:
            coordinator = await self._coordinator(conversation, running)
            if prepare is not None:
                await prepare()
        except BaseException:
            steps.release(running)
            raise

        async def work() -> StepOutcome:
            floor: HumanTurn = await coordinator.run()
            return _OUTCOMES.get(floor.why, "done")

        steps.launch(running, work)
        return running.id

    async def settle(
        self, conversation: str, call: ToolCallPart, decision: Decision
    ) -> StepStarted | None:
        """Decide about a call of a member and go on with its turn; None if it is no such call.

        Nothing is decided if the turn can't go on, as while a step is under way.
        """
        if await to_thread.run_sync(self.roster, conversation) is None:
            return None
        coordinator = await self._coordinator(conversation)
        if call.id not in {one.id for one in await coordinator.open_calls()}:
            return None

        async def decide() -> None:
            if call.id not in {one.id for one in await coordinator.waiting()}:
                detail = f"call {call.call_id!r} waits for no decision: it runs with its turn"
                raise RequestRefused(409, detail)
            await coordinator.decide(call, decision)

        step = await self.run(conversation, decide)
        return StepStarted(step=step, version=coordinator.history.version)

    def asks_first(self, conversation: str, call: ToolCallPart) -> bool:
        """Tell whether a call waits for a person, in a team or without one."""
        file_team = self._file_teams.get(conversation)
        boxes = () if file_team is None else file_team.toolboxes.values()
        asks = any(needs_approval(box, call) for box in boxes)
        return asks or self._service.tools.asks_first(call)

    async def pause(self, conversation: str) -> None:
        """Start no further turn."""
        await (await self._coordinator(conversation)).pause()

    async def resume(self, conversation: str) -> None:
        """Allow turns to start again."""
        await (await self._coordinator(conversation)).resume()

    async def cancel(self, conversation: str) -> None:
        """Cancel the current turn and all queued ones."""
        await (await self._coordinator(conversation)).cancel()

    async def _coordinator(self, conversation: str, mine: RunningStep | None = None) -> Coordinator:
        """The coordinator of a conversation; refused while an ordinary step is running."""
        team = await to_thread.run_sync(self._require_team, conversation)
        known = self._coordinators.get(conversation)
        running = self._service.steps.running(conversation)
        if running is not None and running is not mine and running.model is not None:
            msg = "a step is under way in this conversation"
            raise LeaseTaken(msg)
        if known is None or known[0] != team:
            coordinator = await to_thread.run_sync(self._create_coordinator, conversation, team)
            known = self._coordinators[conversation] = (team, coordinator)
        return known[1]

    def _require_team(self, conversation: str) -> Team:
        self._store.head(conversation)
        team = self.roster(conversation)
        if team is None:
            raise RequestRefused(404, "this conversation has no team")
        return team

    def _create_coordinator(self, conversation: str, team: Team) -> Coordinator:
        def emit_turn(member: Member) -> None:
            data = {"conversation": conversation, "member": member.id}
            self._service.live.emit("team.turn", data)

        def add_text(member: Member, text: str) -> None:
            if (running := self._service.steps.running(conversation)) is not None:
                running.draft.add_text(text, member.id)

        def clear_draft(_: Message) -> None:
            if (running := self._service.steps.running(conversation)) is not None:
                running.draft.clear()

        made = Coordinator(
            team,
            self._store,
            conversation,
            folder=self._folder(conversation),
            models=self._service.models.get,
            tools=self._service.tools.select(wanted=True),
            on_turn=emit_turn,
            on_text=add_text,
            on_message=clear_draft,
        )
        made.events.on("tool.running", self._service.conversations.emit_progress)
        return made

    def _folder(self, conversation: str) -> Path:
        file_team = self._file_teams.get(conversation)
        return Path() if file_team is None else file_team.folder

    # ── context ───────────────────────────────────────────────────────────────────────────────

    def member_context(
        self, history: StoredHistory, name: str, turn: int | None = None
    ) -> AgentContext:
        """The prompt that a member, or somebody who spoke, would get now, or had at a turn."""
        own = self._member_query(history.id, name)
        if own is None:
            names = {speaker.role_id for speaker in list_speakers(history)}
            names |= {speaker.role_name for speaker in list_speakers(history)}
            if name not in names:
                raise RequestRefused(404, f"nobody here is called {name!r}")
        return build_context(history, replace(own or ContextQuery(name), turn=turn))

    def agent_context(self, history: StoredHistory, query: ContextQuery) -> AgentContext:
        """The prompt of an agent now; the settings of a member hold unless `query` has others."""
        own = self._member_query(history.id, query.agent)
        return build_context(history, query if own is None else query.over(own))

    def _member_query(self, conversation_id: str, name: str) -> ContextQuery | None:
        team = self.roster(conversation_id)
        member = None if team is None else team.find(name)
        if team is None or member is None:
            return None
        if not isinstance(member, Agent):
            return ContextQuery(member.id, name=member.shown)
        instructions = self._read_instructions(conversation_id, member)
        options = prompt_options(member, team, instructions)
        return ContextQuery(
            agent=member.id,
            agent_type=options["agent_type"],
            system=options["system_instruction"],
            instructions=instructions,
            name=member.shown,
            **prompt_limits(member),
        )

    def _read_instructions(self, conversation: str, member: Agent) -> str | None:
        if member.instructions is None:
            return None
        try:
            return (self._folder(conversation) / member.instructions).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RequestRefused(409, f"{member.instructions} can't be read: {error}") from None


def store_roster(store: Store, conversation: str, document: bytes) -> None:
    """Store a roster beside its conversation."""
    store.put_records(conversation, [(_KIND, _NAME, document)])


def list_speakers(history: StoredHistory) -> list[Speaker]:
    """Everybody who spoke recently, in the order of their first messages."""
    newest = history.view[-_RECENT:]
    found = {each.speaker.role_id: each.speaker for each in newest if each.speaker is not None}
    return list(found.values())


def count_addressed(history: StoredHistory) -> Counter[tuple[str, str]]:
    """How often each speaker addressed each other one recently."""
    pairs: Counter[tuple[str, str]] = Counter()
    for message in history.view[-_RECENT:]:
        if message.speaker is not None:
            for to in message.addressees or (format_addressees(None),):
                pairs[message.speaker.role_id, to] += 1
    return pairs
