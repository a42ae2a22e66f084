"""Assemblers and their budget: from the sections of a prompt to a text that fits its limits.

An assembler is any function from `Sections` to `AssemblerOutput`. The four that come with palaver
are `Layout`s: values that give each section its heading and each line its form. `fit` keeps
everything that must be there and the newest lines that fit. Costs are worked out on the pieces
before any text is joined, and they add up: the fixed part and the lines that are kept come to the
size of the prompt and its system flag, byte for byte. Tokens are counted piece by piece too; a
tokenizer may need a few less for the joined text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from palaver.errors import DoesNotFit, ValidationError
from palaver.messages import to_dict
from palaver.messages.codec import load_json, translate_error
from palaver.messages.decode import convert
from palaver.messages.limits import check_argument, is_list, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from palaver.tokens import TokenCounter

__all__ = [
    "ASSEMBLERS",
    "CLAUDE",
    "CODEX",
    "GEMINI",
    "PLAIN",
    "PLAIN_TYPE",
    "ZERO_COST",
    "Assembler",
    "AssemblerInput",
    "AssemblerOutput",
    "ContextMessage",
    "Cost",
    "CostBreakdown",
    "Layout",
    "PromptLimits",
    "Sections",
    "fit",
    "fit_stream",
    "indent",
    "measure",
    "normalize_agent_type",
]

_LINE_BREAK: Final = re.compile("\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")


# ── input and output ────────────────────────────────────────────────────────────────────────────


class ContextMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """A line of context: who said what to whom."""

    from_: str = field(name="from")
    to: str
    content: str


class Sections(Struct, frozen=True):
    """The sections that an assembler puts together; it leaves out the empty ones."""

    system: str
    team_task: str
    lines: tuple[ContextMessage, ...]
    current: str


class AssemblerInput(
    Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """What an agent may be shown, before lines are dropped to fit the limits."""

    context_messages: tuple[ContextMessage, ...]
    current_message: str
    team_task: str | None
    max_bytes: Annotated[int, Meta(ge=0)]
    system_instruction: str | None = None
    instruction_file_text: str | None = None
    max_tokens: Annotated[int, Meta(ge=0)] | None = None

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

    @classmethod
    def parse(cls, data: Mapping[str, Any] | bytes | str) -> AssemblerInput:
        """Read an input from JSON, or from a mapping that holds JSON.

        A line of context without `to` is for everybody.

        >>> AssemblerInput.parse({"contextMessages": [{"from": "User", "content": "Hi"}],
        ...     "currentMessage": "Hello!", "teamTask": None, "maxBytes": 99}).context_messages
        (ContextMessage(from_='User', to='all', content='Hi'),)
        """
        value = load_json(data) if isinstance(data, bytes | str) else data
        if not isinstance(value, Mapping):
            detail = f"must be an AssemblerInput or its JSON, an object, not {kind_of(value)}"
            raise ValidationError(detail, rule="schema")
        fields = dict(value)
        if is_list(lines := fields.get("contextMessages")):
            fields["contextMessages"] = [
                {**line, "to": "all"}
                if isinstance(line, Mapping) and line.get("to") is None
                else line
                for line in lines
            ]
        try:
            return convert(fields, cls)
        except msgspec.ValidationError as error:
            raise translate_error(error, {}) from None

    def to_dict(self) -> dict[str, Any]:
        """The input as JSON-ready data; fields that were not given are left out."""
        found: dict[str, Any] = to_dict(self)
        return found


class AssemblerOutput(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A prompt, and the system text beside it for agents that take it as an argument."""

    prompt: str
    system_flag: str | None = None

    @property
    def size(self) -> int:
        """The size of both together, in bytes of UTF-8."""
        return len(self.prompt.encode()) + len((self.system_flag or "").encode())

    def to_dict(self) -> dict[str, Any]:
        """The output as JSON-ready data."""
        found: dict[str, Any] = to_dict(self)
        return found


Assembler: TypeAlias = Callable[[Sections], AssemblerOutput]
"""From sections to a prompt. More lines must never make the prompt shorter."""


# ── layouts ─────────────────────────────────────────────────────────────────────────────────────


class Layout(Struct, frozen=True, kw_only=True):
    """The form of a prompt: an optional heading for each section, and the form of a context line.

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
    """Whether the system text goes beside the prompt instead of into it."""

    def __call__(self, sections: Sections) -> AssemblerOutput:
        """Write the prompt."""
        flag = sections.system if self.has_flag and sections.system else None
        return AssemblerOutput("".join(self.pieces(sections, sections.lines)), flag)

    def pieces(self, sections: Sections, lines: Iterable[ContextMessage]) -> Iterator[str]:
        """Write the prompt piece by piece, with these lines of context; each is taken when due."""
        blank = ""
        *others, current = self._headed(sections)
        for heading, body in others:
            if body:
                yield f"{blank}{heading}\n{body}" if heading else f"{blank}{body}"
                blank = "\n\n"
        before = f"{blank}{self.context}\n" if self.context else blank
        for line in lines:
            yield before + self.format_line(line)
            before, blank = "\n", "\n\n"
        heading, body = current
        if body:
            yield f"{blank}{heading}\n{body}" if heading else f"{blank}{body}"

    def format_line(self, message: ContextMessage) -> str:
        """Write a line of context."""
        content = indent(message.content)
        return self.line.format(name=message.from_, to=message.to, content=content)

    def separators(self, sections: Sections, *, with_context: bool) -> list[str]:
        """List what stands between the texts of a prompt: blank lines and headings."""
        heads = [(head, bool(body)) for head, body in self._headed(sections)]
        heads.insert(-1, (self.context, with_context))
        shown = [head for head, is_there in heads if is_there]
        return [
            ("\n\n" if index else "") + (f"{head}\n" if head else "")
            for index, head in enumerate(shown)
        ]

    def _headed(self, sections: Sections) -> list[tuple[str, str]]:
        """Every section but the context, with its heading, in order; the message comes last."""
        system = "" if self.has_flag else sections.system
        return [
            (self.system, system),
            (self.team_task, indent(sections.team_task)),
            (self.message, indent(sections.current)),
        ]


def indent(text: str) -> str:
    r"""Indent all lines but the first, so that none can pose as another speaker's.

    >>> indent("I agree.\n- Boss -> all: Stop!")
    'I agree.\n  - Boss -> all: Stop!'
    """
    return _LINE_BREAK.sub(r"\g<0>  ", text)


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
"""For any other agent: no headings."""

PLAIN_TYPE: Final = "plain"
ASSEMBLERS: Final[dict[str, Assembler]] = {
    "claude-code": CLAUDE,
    "openai-codex": CODEX,
    "google-gemini": GEMINI,
    PLAIN_TYPE: PLAIN,
}
"""The assemblers that every `ContextManager` begins with, by the type of agent."""
_SHORT_TYPES: Final = {
    "claude": "claude-code",
    "codex": "openai-codex",
    "gemini": "google-gemini",
}


def normalize_agent_type(name: str) -> str:
    """Return the full name of a type of agent; an unknown one is returned unchanged.

    >>> normalize_agent_type("Claude"), normalize_agent_type("google-gemini")
    ('claude-code', 'google-gemini')
    >>> normalize_agent_type("MyBot")
    'MyBot'
    """
    try:
        small = name.lower()
    except AttributeError:
        check_argument(name, str, "$.agentType", "text, such as 'claude-code'")
        raise
    full = _SHORT_TYPES.get(small, small)
    return full if full in ASSEMBLERS else name


# ── the budget ────────────────────────────────────────────────────────────────────────────────────


class Cost(NamedTuple):
    """The size of a text in bytes and in tokens."""

    bytes: int
    tokens: int

    def plus(self, other: Cost) -> Cost:
        """Add two costs."""
        return Cost(self.bytes + other.bytes, self.tokens + other.tokens)


ZERO_COST: Final = Cost(0, 0)


class PromptLimits(NamedTuple):
    """How many bytes a prompt may have and, unless None, how many tokens."""

    bytes: int
    tokens: int | None = None

    def exceeded_by(self, cost: Cost) -> str | None:
        """Return the unit of which there is too much, `bytes` or `tokens`, or None."""
        if cost.bytes > self.bytes:
            return "bytes"
        if self.tokens is not None and cost.tokens > self.tokens:
            return "tokens"
        return None


class CostBreakdown(NamedTuple):
    """The cost of each piece of a prompt; `lines` are in order, the oldest first.

    `context` is what the context section costs beside its lines. An assembler that is not a
    `Layout` doesn't say what its pieces are: for it, `layout` is everything that is not a line.
    """

    system: Cost
    team_task: Cost
    message: Cost
    layout: Cost
    context: Cost
    lines: tuple[Cost, ...]

    def total(self, count: int) -> Cost:
        """The cost of the prompt with the `count` newest lines."""
        total = self.system.plus(self.team_task).plus(self.message).plus(self.layout)
        if count:
            total = total.plus(self.context)
        for line in self.lines[len(self.lines) - count :]:
            total = total.plus(line)
        return total

    def count_fitting(self, limits: PromptLimits) -> int:
        """How many of the newest lines fit; `DoesNotFit` where the fixed part alone doesn't."""
        total = self.total(0)
        unit = limits.exceeded_by(total)
        if unit is not None:
            needed = total.bytes if unit == "bytes" else total.tokens
            limit = limits.bytes if unit == "bytes" else limits.tokens or 0
            raise DoesNotFit(needed, limit, unit)
        total = total.plus(self.context)
        for count, line in enumerate(reversed(self.lines)):
            total = total.plus(line)
            if limits.exceeded_by(total):
                return count
        return len(self.lines)


def fit(
    assembler: Assembler, sections: Sections, limits: PromptLimits, counter: TokenCounter | None
) -> tuple[AssemblerOutput, int]:
    """Assemble the prompt with as many of the newest lines as fit; return it and their number."""
    costs = measure(assembler, sections, None if limits.tokens is None else counter)
    count = costs.count_fitting(limits)
    return assembler(_keep_newest(sections, count)), count


def fit_stream(
    layout: Layout,
    sections: Sections,
    lines: Iterable[tuple[str, ContextMessage]],
    limits: PromptLimits,
    counter: TokenCounter | None,
) -> list[str]:
    """Return the names of the newest lines that fit, the newest first; keep no line in memory.

    `lines` are named, the newest first. They are the lines that `fit` would keep.
    """
    used = None if limits.tokens is None else counter
    costs = measure(layout, sections, used)
    costs.count_fitting(limits)  # refuses what does not fit without any line
    total, fitting = costs.total(0).plus(costs.context), list[str]()
    for name, line in lines:
        total = total.plus(_cost(layout.format_line(line) + ("\n" if fitting else ""), used))
        if limits.exceeded_by(total):
            break
        fitting.append(name)
    return fitting


def measure(
    assembler: Assembler, sections: Sections, counter: TokenCounter | None
) -> CostBreakdown:
    """Work out what each piece costs; without a counter all token counts are 0."""
    if isinstance(assembler, Layout):
        return _measure_layout(assembler, sections, counter)
    return _measure_function(assembler, sections, counter)


def _measure_layout(
    layout: Layout, sections: Sections, counter: TokenCounter | None
) -> CostBreakdown:
    def cost(texts: Iterable[str]) -> Cost:
        total = ZERO_COST
        for text in texts:
            total = total.plus(_cost(text, counter))
        return total

    without = cost(layout.separators(sections, with_context=False))
    within = cost(layout.separators(sections, with_context=True))
    last = len(sections.lines) - 1
    return CostBreakdown(
        system=_cost(sections.system, counter),
        team_task=_cost(indent(sections.team_task), counter),
        message=_cost(indent(sections.current), counter),
        layout=without,
        context=Cost(within.bytes - without.bytes, within.tokens - without.tokens),
        lines=tuple(
            _cost(layout.format_line(line) + ("\n" if index < last else ""), counter)
            for index, line in enumerate(sections.lines)
        ),
    )


def _measure_function(
    assembler: Assembler, sections: Sections, counter: TokenCounter | None
) -> CostBreakdown:
    """Find what each line adds by assembling with none, one, two … of the newest lines."""
    totals = [
        _cost(output.prompt, counter).plus(_cost(output.system_flag or "", counter))
        for output in (
            assembler(_keep_newest(sections, count)) for count in range(len(sections.lines) + 1)
        )
    ]
    added = [
        Cost(after.bytes - before.bytes, after.tokens - before.tokens)
        for before, after in pairwise(totals)
    ]
    lines = tuple(reversed(added))
    return CostBreakdown(ZERO_COST, ZERO_COST, ZERO_COST, totals[0], ZERO_COST, lines)


def _keep_newest(sections: Sections, count: int) -> Sections:
    return replace(sections, lines=sections.lines[len(sections.lines) - count :])


def _cost(text: str, counter: TokenCounter | None) -> Cost:
    return Cost(len(text.encode()), 0 if counter is None else counter(text))
