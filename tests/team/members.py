"""Members for tests: programs that say one thing, models that follow a script."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaver.team import CommandMember, Coordinator, Human, ModelMember, Team
from tests.conversation.scripted import Scripted, saying

if TYPE_CHECKING:
    from palaver import Store
    from palaver.messages import Message

USER = Human(id="user", name="User")
WORKER = """
import sys, anyio, palaver
from palaver.team import Coordinator, load_team

async def work(file, store, conversation):
    team = Coordinator(load_team(file), palaver.open(store), conversation,
                       folder=sys.argv[4], lease_seconds=1)
    await team.run()

anyio.run(work, *sys.argv[1:4])
"""
"""A process that lets a team work: the team file, the store, the conversation, the folder."""


def says(name: str, text: str, **fields: Any) -> CommandMember:  # noqa: ANN401 - a command's own fields
    """A program that says one thing, whatever it is told."""
    return CommandMember(id=name, name=name.title(), argv=["printf", "%s", text], **fields)


def python(name: str, code: str, **fields: Any) -> CommandMember:  # noqa: ANN401 - as above
    """A program in Python."""
    return CommandMember(id=name, name=name.title(), argv=[sys.executable, "-ISc", code], **fields)


def shell(name: str, code: str, **fields: Any) -> CommandMember:  # noqa: ANN401 - as above
    """A program of the shell's."""
    return CommandMember(id=name, name=name.title(), argv=["sh", "-c", code], **fields)


def scripted(name: str, *, members: str = "script", **fields: Any) -> ModelMember:  # noqa: ANN401 - as above
    """A model of `Stage`."""
    return ModelMember(id=name, name=name.title(), model=f"{members}:{name}", **fields)


class Stage:
    """A team whose models say their lines in order, and what was heard of it."""

    def __init__(
        self,
        store: Store,
        team: Team,
        lines: dict[str, list[Any]] | None = None,
        conversation: str | None = None,
        **options: Any,  # noqa: ANN401 - the coordinator's own
    ) -> None:
        """Give each model its lines: text, or a list of stream events."""
        self.models = {
            name: Scripted(*(saying(line) if isinstance(line, str) else line for line in said))
            for name, said in (lines or {}).items()
        }
        self.turns: list[str] = []
        self.pieces: list[str] = []
        self.coordinator = Coordinator(
            team,
            store,
            conversation,
            models=lambda name: self.models[name.partition(":")[2]],
            on_turn=lambda member: self.turns.append(member.id),
            on_text=lambda _, text: self.pieces.append(text),
            **options,
        )

    def asked(self, name: str, place: int = -1) -> str:
        """The prompt that a model got."""
        text = self.models[name].asked[place].body["messages"][-1]["content"]
        assert isinstance(text, str)
        return text

    @property
    def said(self) -> list[tuple[str, str]]:
        """Who said what."""
        return [(who(message), message.text) for message in self.coordinator.history]


def who(message: Message) -> str:
    """The id of the speaker, or the role where nobody speaks."""
    return message.speaker.role_id if message.speaker else message.role


def is_at_work(pid: int) -> bool:
    """Tell whether a process runs; one that nobody has buried yet does not."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except FileNotFoundError:
        return False
    return facts.rpartition(")")[2].split()[0] != "Z"
