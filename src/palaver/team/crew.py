"""The agents of a team at work: each gets its prompt, made for it, and gives its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import to_thread

from palaver.context import ContextManager
from palaver.errors import MemberFailed
from palaver.team.answering import answer_of_model
from palaver.team.commands import answer_of_command
from palaver.team.roster import Command, ModelMember

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from palaver.context import Prompt
    from palaver.conversation.models.base import Model
    from palaver.messages import Message
    from palaver.stores.history import StoredHistory
    from palaver.team.roster import Agent

__all__ = ["Crew"]


class Crew:
    """Asks agents. Each has its own look at the one history: window, budgets, what it may see."""

    def __init__(
        self, history: StoredHistory, folder: Path, models: Callable[[str], Model]
    ) -> None:
        """Look at a history; models are made by their names when they are first asked."""
        self._history = history
        self._folder = folder
        self._make = models
        self._faces: dict[str, ContextManager] = {}
        self._models: dict[str, Model] = {}

    async def answer(
        self,
        member: Agent,
        told: Callable[[str], object],
        started: Callable[[int], Awaitable[None]],
    ) -> Message:
        """Ask an agent; `told` hears what it says, `started` the process number of a program."""
        prompt = (await to_thread.run_sync(self.prompt, member)).output
        if isinstance(member, Command):
            return await answer_of_command(member, prompt, self._folder, told, started)
        assert isinstance(member, ModelMember)  # noqa: S101 - there are these two
        if member.model not in self._models:
            self._models[member.model] = await to_thread.run_sync(self._make, member.model)
        chosen = self._models[member.model]
        return await answer_of_model(member, chosen, prompt, self._history.id, told)

    def prompt(self, member: Agent) -> Prompt:
        """What an agent is shown now; it can be explained."""
        face = self._faces.get(member.id)
        if face is None:
            face = self._faces[member.id] = ContextManager(
                self._history,
                window=member.window,
                max_bytes=member.max_bytes,
                max_tokens=member.max_tokens,
                visibility=member.visibility,
            )
        form = member.known.format if isinstance(member, Command) else member.format
        return face.prompt_for(
            member.id,
            form or "plain",
            system_instruction=member.system or None,
            instruction_file_text=self._instructions(member),
            name=member.shown,
        )

    def _instructions(self, member: Agent) -> str | None:
        """The text of its file, read anew for each prompt: people edit it meanwhile."""
        if member.instructions is None:
            return None
        try:
            return (self._folder / member.instructions).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            msg = f"{member.instructions} can't be read: {error}"
            raise MemberFailed(msg) from None

    async def close(self) -> None:
        """Let go of the models."""
        for model in self._models.values():
            await model.close()
        self._models.clear()
