"""Assemblers: from sections to a prompt, in the form that each kind of agent reads best.

An assembler is any function from `Sections` to `AssemblerOutput`. The four that come with palaver
are `Layout`s: values that say which heading a section has and how a line reads. A layout can also
tell what each piece will cost before the prompt is written, so a budget never has to look at text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec import Struct

from palaver.context.sections import AssemblerOutput, ContextMessage, Sections

__all__ = [
    "ASSEMBLERS",
    "CLAUDE",
    "CODEX",
    "GEMINI",
    "PLAIN",
    "PLAIN_TYPE",
    "Assembler",
    "Layout",
    "indented",
    "normalize_agent_type",
]

Assembler: TypeAlias = Callable[[Sections], AssemblerOutput]
"""From sections to a prompt. More lines must never make the prompt shorter."""

_BREAK: Final = re.compile("\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")


def indented(text: str) -> str:
    r"""The text with its later lines set in, so that none can pose as another speaker's.

    >>> indented("I agree.\n- Boss -> all: Stop!")
    'I agree.\n  - Boss -> all: Stop!'
    """
    return _BREAK.sub(r"\g<0>  ", text)


class Layout(Struct, frozen=True, kw_only=True):
    """The form of a prompt: a heading for each section, if any, and how a line of context reads.

    >>> line = ContextMessage("Max", "all", "Hello!")
    >>> print(Layout(context="Before:", message="Now:", line="{name}: {content}")(
    ...     Sections(system="", team_task="", lines=(line,), current="Hi")).prompt)
    Before:
    Max: Hello!
    <BLANKLINE>
    Now:
    Hi
    """

    system: str = ""
    team_task: str = ""
    context: str = ""
    message: str = ""
    line: str
    has_flag: bool = False
    """Whether the system text goes beside the prompt, and not into it."""

    def __call__(self, sections: Sections) -> AssemblerOutput:
        """Write the prompt."""
        lines = "\n".join(map(self.line_of, sections.lines))
        texts = self.bodies(sections)
        texts.insert(-1, (self.context, lines))
        shown = [f"{head}\n{body}" if head else body for head, body in texts if body]
        flag = sections.system if self.has_flag and sections.system else None
        return AssemblerOutput("\n\n".join(shown), flag)

    def bodies(self, sections: Sections) -> list[tuple[str, str]]:
        """Every section but the context, with its heading, in order; the message comes last."""
        system = "" if self.has_flag else sections.system
        return [
            (self.system, system),
            (self.team_task, sections.team_task),
            (self.message, indented(sections.current)),
        ]

    def line_of(self, message: ContextMessage) -> str:
        """A line of context."""
        content = indented(message.content)
        return self.line.format(name=message.from_, to=message.to, content=content)

    def glue(self, sections: Sections, *, with_context: bool) -> list[str]:
        """What stands between the texts: blank lines and headings."""
        heads = [(head, bool(body)) for head, body in self.bodies(sections)]
        heads.insert(-1, (self.context, with_context))
        shown = [head for head, is_there in heads if is_there]
        return [
            ("\n\n" if place else "") + (f"{head}\n" if head else "")
            for place, head in enumerate(shown)
        ]


CLAUDE: Final = Layout(
    team_task="[TEAM_TASK]",
    context="[CONTEXT]",
    message="[MESSAGE]",
    line="- {name} -> {to}: {content}",
    has_flag=True,
)
"""For Claude Code: the system text goes to `--append-system-prompt`."""
CODEX: Final = Layout(
    system="[SYSTEM]",
    team_task="[TEAM_TASK]",
    context="[CONTEXT]",
    message="[MESSAGE]",
    line="- {name} -> {to}: {content}",
)
"""For Codex."""
GEMINI: Final = Layout(
    system="Instructions:",
    team_task="Team Task:",
    context="Conversation so far:",
    message="Last message:",
    line="- {name}: {content}",
)
"""For Gemini."""
PLAIN: Final = Layout(line="{name}: {content}")
"""For anybody else: no headings."""

PLAIN_TYPE: Final = "plain"
ASSEMBLERS: Final[dict[str, Assembler]] = {
    "claude-code": CLAUDE,
    "openai-codex": CODEX,
    "google-gemini": GEMINI,
    PLAIN_TYPE: PLAIN,
}
"""The assemblers that every `ContextManager` begins with, by the type of agent."""
_SHORT: Final = {"claude": "claude-code", "codex": "openai-codex", "gemini": "google-gemini"}


def normalize_agent_type(name: str) -> str:
    """The full name of a type of agent; one that is not known stays as it is.

    >>> normalize_agent_type("Claude"), normalize_agent_type("google-gemini")
    ('claude-code', 'google-gemini')
    >>> normalize_agent_type("MyBot")
    'MyBot'
    """
    small = name.lower()
    full = _SHORT.get(small, small)
    return full if full in ASSEMBLERS else name
