"""What a prompt is made of, as values: lines of context, the sections, and what comes out.

The JSON forms are S2's own.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from palaver.messages import to_dict

__all__ = ["AssemblerInput", "AssemblerOutput", "ContextMessage", "Sections"]


class ContextMessage(Struct, frozen=True):
    """A line of context: who said what to whom."""

    from_: str = field(name="from")
    to: str
    content: str


class AssemblerInput(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What an agent may be shown, before anything is left out for want of room."""

    context_messages: tuple[ContextMessage, ...]
    current_message: str
    team_task: str | None
    max_bytes: int
    system_instruction: str | None = None
    instruction_file_text: str | None = None
    max_tokens: int | None = None

    @property
    def sections(self) -> Sections:
        r"""The same as the sections of a prompt.

        >>> AssemblerInput((), "Hi", None, 99, "Be brief.", "Be kind.").sections.system
        'Be brief.\n\nBe kind.'
        """
        texts = (self.system_instruction, self.instruction_file_text)
        return Sections(
            system="\n\n".join(filter(None, texts)),
            team_task=self.team_task or "",
            lines=self.context_messages,
            current=self.current_message,
        )

    def to_dict(self) -> dict[str, Any]:
        """The input as JSON-ready data; what was not given is left out."""
        found: dict[str, Any] = to_dict(self)
        return found


class Sections(Struct, frozen=True):
    """What an assembler puts together; an empty section is left out."""

    system: str
    team_task: str
    lines: tuple[ContextMessage, ...]
    current: str


class AssemblerOutput(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A prompt, and the system text that goes beside it where the agent takes it so."""

    prompt: str
    system_flag: str | None = None

    @property
    def size(self) -> int:
        """How many bytes both take together, as UTF-8."""
        return len(self.prompt.encode()) + len((self.system_flag or "").encode())

    def to_dict(self) -> dict[str, Any]:
        """The output as JSON-ready data."""
        found: dict[str, Any] = to_dict(self)
        return found
