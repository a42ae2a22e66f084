"""Teams behind a server: a roster beside a conversation, and a coordinator that gives the turns.

A roster comes in one of two ways. A file named at the start (`palaver serve --team`) is trusted: it
may name programs and files of this machine. What comes by HTTP, or with an import, may not: its
members are humans and models that the server knows.
"""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from anyio import to_thread

from palaver.context import addressees_text
from palaver.errors import LeaseTaken, ValidationError
from palaver.messages.ids import derived_id
from palaver.server.problems import Refusal
from palaver.server.sights import Look, seen
from palaver.server.working import Workshop
from palaver.team import Command, Coordinator, ModelMember, load_team, read_team
from palaver.team.roster import Agent

if TYPE_CHECKING:
    from palaver.messages import Message, Speaker
    from palaver.server.service import Service
    from palaver.server.sights import Sight
    from palaver.server.underway import Outcome, Running
    from palaver.stores import Store
    from palaver.stores.history import StoredHistory
    from palaver.stores.preconditions import Expected
    from palaver.team import Floor, Member, Team

__all__ = ["TAG", "Teams", "keep_roster", "speakers", "spoken"]

TAG: Final = "team"
"""The tag of conversations that have a team."""
_KIND: Final = "roster"
_NAME: Final = "document"
_FAR: Final = 10_000
"""How many of the newest messages are looked at for who spoke to whom."""


class _Trusted(NamedTuple):
    """The team of a file, and the folder that its paths are seen from."""

    team: Team
    folder: Path


class Teams:
    """The teams of a server, by their conversations."""

    def __init__(self, service: Service) -> None:
        """Serve one service; it is asked for as `service.part(Teams)`."""
        self._service = service
        self._store = service.store
        self._trusted: dict[str, _Trusted] = {}
        self._at_work: dict[str, tuple[Team, Coordinator]] = {}
        self._gate = threading.Lock()

    @property
    def _workshop(self) -> Workshop:
        return self._service.part(Workshop)

    async def start(self) -> None:
        """Take the team of the file that the server was started with."""
        file = self._service.settings.team
        if file is not None:
            await to_thread.run_sync(self.open_file, file)

    def open_file(self, file: str | Path) -> str:
        """Take the team of a file; answer its conversation, which is the same every time."""
        path = Path(file).resolve()
        team = load_team(path)
        name = derived_id("team file", str(path))
        if name not in self._store:
            title = team.name or path.stem
            self._store.create(id=name, title=title, tags=(TAG,), key=name)
        self._trusted[name] = _Trusted(team, path.parent)
        self._workshop.shelf.allow(
            member.model for member in team.members if isinstance(member, ModelMember)
        )
        return name

    # ── who is in it ────────────────────────────────────────────────────────────────────────────

    def roster(self, conversation: str) -> Team | None:
        """The team of a conversation, if it has one."""
        if conversation in self._trusted:
            return self._trusted[conversation].team
        kept = self._store.keeper.records(conversation, _KIND).get(_NAME)
        return None if kept is None else self._checked(kept.decode())

    def set_roster(self, conversation: str, document: str | dict[str, Any]) -> Team:
        """Give a conversation a team, in place of the one it had."""
        text = document if isinstance(document, str) else msgspec.json.encode(document).decode()
        head = self._store.keeper.head(conversation)
        if conversation in self._trusted:
            raise Refusal(409, "this conversation has the team of a file, given at the start")
        if self._workshop.running(conversation) is not None:
            msg = "a step is under way in this conversation"
            raise LeaseTaken(msg)
        team = self._checked(text)
        keep_roster(self._store, conversation, text.encode())
        if TAG not in head.tags:
            self._store.describe(conversation, title=head.title, tags=(*head.tags, TAG))
        with self._gate:
            self._at_work.pop(conversation, None)
        return team

    def _checked(self, text: str) -> Team:
        """Read a roster from outside: nobody in it may run programs or read files here."""
        team = read_team(text)
        for index, member in enumerate(team.members):
            path = f"$.members[{index}]"
            if isinstance(member, Command):
                detail = "programs are run only for a team of a file, given as --team at the start"
                raise ValidationError(detail, path=path, rule="TM-04")
            if isinstance(member, ModelMember):
                if member.instructions is not None:
                    detail = "files are read only for a team of a file, given at the start"
                    raise ValidationError(detail, path=f"{path}.instructions", rule="TM-04")
                self._workshop.shelf.check(member.model, f"{path}.model")
        return team

    # ── what it does ────────────────────────────────────────────────────────────────────────────

    async def say(
        self,
        conversation: str,
        text: str,
        *,
        speaker: str | None = None,
        key: str | None = None,
        expect: Expected | None = None,
    ) -> Message:
        """A human speaks; `expect` is the version that the message must follow."""
        coordinator = await self._coordinator(conversation)
        return await coordinator.say(text, speaker=speaker, key=key, expect=expect)

    async def run(self, conversation: str) -> str:
        """Give everybody their turns, as a step of the server; answer the step's id."""
        workshop = self._workshop
        running = workshop.claim(conversation, None)
        try:
            coordinator = await self._coordinator(conversation, running)
        except BaseException:
            workshop.release(running)
            raise

        async def work() -> Outcome:
            floor: Floor = await coordinator.run()
            return "paused" if floor.why == "paused" else "done"

        workshop.launch(running, work)
        return running.id

    async def pause(self, conversation: str) -> None:
        """Begin no further turn."""
        await (await self._coordinator(conversation)).pause()

    async def resume(self, conversation: str) -> None:
        """Let turns begin again."""
        await (await self._coordinator(conversation)).resume()

    async def cancel(self, conversation: str) -> None:
        """Call off the turn under way and all that wait."""
        await (await self._coordinator(conversation)).cancel()

    async def _coordinator(self, conversation: str, mine: Running | None = None) -> Coordinator:
        """The coordinator of a conversation; refused while an ordinary step is under way."""
        team = await to_thread.run_sync(self._demanded, conversation)
        known = self._at_work.get(conversation)
        running = self._workshop.running(conversation)
        if running is not None and running is not mine and running.model is not None:
            msg = "a step is under way in this conversation"
            raise LeaseTaken(msg)
        if known is None or known[0] != team:
            coordinator = await to_thread.run_sync(self._made, conversation, team)
            known = self._at_work[conversation] = (team, coordinator)
        return known[1]

    def _demanded(self, conversation: str) -> Team:
        self._store.keeper.head(conversation)
        team = self.roster(conversation)
        if team is None:
            raise Refusal(404, "this conversation has no team")
        return team

    def _made(self, conversation: str, team: Team) -> Coordinator:
        def turn(member: Member) -> None:
            names = {"conversation": conversation, "member": member.id}
            self._service.live.tell("team.turn", names)

        def text(member: Member, said: str) -> None:
            if (running := self._workshop.running(conversation)) is not None:
                running.incoming.said(said, member.id)

        def message(_: Message) -> None:
            if (running := self._workshop.running(conversation)) is not None:
                running.incoming.clear()

        return Coordinator(
            team,
            self._store,
            conversation,
            folder=self._folder(conversation),
            models=self._workshop.shelf.get,
            on_turn=turn,
            on_text=text,
            on_message=message,
        )

    def _folder(self, conversation: str) -> Path:
        trusted = self._trusted.get(conversation)
        return Path() if trusted is None else trusted.folder

    # ── what can be seen of it ──────────────────────────────────────────────────────────────────

    def sees(self, history: StoredHistory, name: str) -> Sight:
        """What a member would be shown now."""
        own = self._look(history.id, name)
        if own is None:
            spoke = {speaker.role_id for speaker in speakers(history)}
            spoke |= {speaker.role_name for speaker in speakers(history)}
            if name not in spoke:
                raise Refusal(404, f"nobody here is called {name!r}")
        return seen(history, own or Look(name))

    def shown(self, history: StoredHistory, asked: Look) -> Sight:
        """What anybody would be shown now: a member as its team has it, but for what is asked."""
        own = self._look(history.id, asked.agent)
        return seen(history, asked if own is None else asked.over(own))

    def _look(self, conversation_id: str, name: str) -> Look | None:
        team = self.roster(conversation_id)
        member = None if team is None else team.find(name)
        if member is None:
            return None
        if not isinstance(member, Agent):
            return Look(member.id, name=member.shown)
        form = member.known.format if isinstance(member, Command) else member.format
        return Look(
            agent=member.id,
            agent_type=form or "plain",
            window=member.window,
            max_bytes=member.max_bytes,
            max_tokens=member.max_tokens,
            visibility=member.visibility,
            system=member.system or None,
            instructions=self._instructions(conversation_id, member),
            name=member.shown,
        )

    def _instructions(self, conversation: str, member: Agent) -> str | None:
        if member.instructions is None:
            return None
        try:
            return (self._folder(conversation) / member.instructions).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Refusal(409, f"{member.instructions} can't be read: {error}") from None


def keep_roster(store: Store, conversation: str, document: bytes) -> None:
    """Keep a team beside its conversation."""
    store.keeper.put(conversation, _KIND, _NAME, document)


def speakers(history: StoredHistory) -> list[Speaker]:
    """Everybody who spoke lately, in the order of their first words."""
    newest = history.view[-_FAR:]
    found = {each.speaker.role_id: each.speaker for each in newest if each.speaker is not None}
    return list(found.values())


def spoken(history: StoredHistory) -> Counter[tuple[str, str]]:
    """How often who spoke to whom, lately."""
    pairs: Counter[tuple[str, str]] = Counter()
    for message in history.view[-_FAR:]:
        if message.speaker is not None:
            for to in message.addressees or (addressees_text(None),):
                pairs[message.speaker.role_id, to] += 1
    return pairs
