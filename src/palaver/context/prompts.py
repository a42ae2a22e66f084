"""A prompt that can say why it is what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from palaver.context.budget import Limits, measured
from palaver.context.choosing import Choice
from palaver.context.explaining import Comparison, Explanation, Given, entries_of, parts_of
from palaver.context.sight import Visibility
from palaver.history import View

if TYPE_CHECKING:
    from palaver.context.assemblers import Assembler
    from palaver.context.sections import AssemblerInput, AssemblerOutput
    from palaver.tokens import Counter

__all__ = ["Look", "Prompt"]


class Look(Struct, frozen=True):
    """An agent's look at a conversation: who looks, how far, and what it is shown."""

    agent: str
    agent_type: str
    window: int
    visibility: Visibility
    view: View
    choice: Choice


class Prompt:
    """What an agent is given: `prompt`, `system_flag`, and where it comes from."""

    def __init__(
        self,
        *,
        look: Look,
        given: AssemblerInput,
        assembler: Assembler,
        output: AssemblerOutput,
        kept: int,
        previous: Given | None,
        count: Counter,
    ) -> None:
        """Keep what is needed to explain it later: views cost nothing to hold."""
        self.prompt = output.prompt
        self.system_flag = output.system_flag
        self.input = given
        self.output = output
        self._look = look
        self._assembler = assembler
        self._kept = kept
        self._previous = previous
        self._count = count

    @property
    def given(self) -> Given:
        """What the agent's next prompt is compared with."""
        choice, sections = self._look.choice, self.input.sections
        shown = choice.context[len(choice.context) - self._kept :]
        current = () if choice.current is None else (choice.current,)
        return Given(
            version=self._look.view.version,
            messages=tuple(one.message.id for one in (*shown, *current)),
            bytes=self.output.size,
            system=hash(sections.system),
            team_task=hash(sections.team_task),
        )

    def explain(self, *, since: Prompt | None = None) -> Explanation:
        """What was kept and what was dropped, why, and how large it is.

        It is compared with the prompt that the agent was given before, or with another one.
        """
        look, kept = self._look, self._kept
        limits = Limits(self.input.max_bytes, self.input.max_tokens)
        bill = measured(self._assembler, self.input.sections, self._count)
        entries, older = entries_of(look.view, look.choice, bill, kept, limits)
        total = bill.total(kept)
        before = self._previous if since is None else since.given
        return Explanation(
            agent=look.agent,
            agent_type=look.agent_type,
            version=look.view.version,
            window=look.window,
            visibility=look.visibility,
            max_bytes=self.input.max_bytes,
            max_tokens=self.input.max_tokens,
            bytes=total.bytes,
            tokens=total.tokens,
            parts=parts_of(bill, kept),
            entries=entries,
            older=older,
            since=None if before is None else Comparison.of(before, self.given),
        )
