"""What fits into a prompt: the newest lines of context, after everything that must be there.

Costs are worked out on the pieces, before any text is put together, and they add up: the fixed part
and the lines that are kept come to the size of the prompt and its system flag, byte for byte.
Tokens are counted piece by piece too; a tokenizer may need a few less for the whole.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from palaver.context.assemblers import Layout, indented
from palaver.errors import DoesNotFit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from palaver.context.assemblers import Assembler
    from palaver.context.sections import AssemblerOutput, Sections
    from palaver.tokens import Counter

__all__ = ["NOTHING", "Bill", "Cost", "Limits", "fitting", "measured"]


class Cost(NamedTuple):
    """What something takes."""

    bytes: int
    tokens: int

    def plus(self, other: Cost) -> Cost:
        """Both together."""
        return Cost(self.bytes + other.bytes, self.tokens + other.tokens)


NOTHING = Cost(0, 0)


class Limits(NamedTuple):
    """How much there may be, of bytes and, where that is asked for, of tokens."""

    bytes: int
    tokens: int | None = None

    def refuses(self, cost: Cost) -> str | None:
        """What there is too much of, if anything."""
        if cost.bytes > self.bytes:
            return "bytes"
        if self.tokens is not None and cost.tokens > self.tokens:
            return "tokens"
        return None


class Bill(NamedTuple):
    """What each piece of a prompt takes; the lines in their order, the oldest first.

    `context` is what the section of context takes beside its lines. An assembler that is no layout
    can't say what is what: there `layout` is everything that is no line.
    """

    system: Cost
    team_task: Cost
    message: Cost
    layout: Cost
    context: Cost
    lines: tuple[Cost, ...]

    def total(self, kept: int) -> Cost:
        """What the prompt takes with so many of the newest lines."""
        total = self.system.plus(self.team_task).plus(self.message).plus(self.layout)
        if kept:
            total = total.plus(self.context)
        for line in self.lines[len(self.lines) - kept :]:
            total = total.plus(line)
        return total

    def kept(self, limits: Limits) -> int:
        """How many of the newest lines fit; an error where not even nothing does."""
        total = self.total(0)
        unit = limits.refuses(total)
        if unit is not None:
            needed = total.bytes if unit == "bytes" else total.tokens
            limit = limits.bytes if unit == "bytes" else limits.tokens or 0
            raise DoesNotFit(needed, limit, unit)
        total = total.plus(self.context)
        for count, line in enumerate(reversed(self.lines)):
            total = total.plus(line)
            if limits.refuses(total):
                return count
        return len(self.lines)


def fitting(
    assembler: Assembler, sections: Sections, limits: Limits, count: Counter | None
) -> tuple[AssemblerOutput, int]:
    """The prompt with as many of the newest lines as fit, and how many those are."""
    kept = measured(assembler, sections, count if limits.tokens is not None else None).kept(limits)
    return assembler(newest(sections, kept)), kept


def newest(sections: Sections, kept: int) -> Sections:
    """The sections with so many of the newest lines."""
    return replace(sections, lines=sections.lines[len(sections.lines) - kept :])


def measured(assembler: Assembler, sections: Sections, count: Counter | None) -> Bill:
    """What each piece takes; without a counter no tokens are counted."""
    if isinstance(assembler, Layout):
        return _of_layout(assembler, sections, count)
    return _of_any(assembler, sections, count)


def _of_layout(layout: Layout, sections: Sections, count: Counter | None) -> Bill:
    def cost(texts: Iterable[str]) -> Cost:
        total = NOTHING
        for text in texts:
            total = total.plus(_cost(text, count))
        return total

    without = cost(layout.glue(sections, with_context=False))
    within = cost(layout.glue(sections, with_context=True))
    last = len(sections.lines) - 1
    return Bill(
        system=_cost(sections.system, count),
        team_task=_cost(sections.team_task, count),
        message=_cost(indented(sections.current), count),
        layout=without,
        context=Cost(within.bytes - without.bytes, within.tokens - without.tokens),
        lines=tuple(
            _cost(layout.line_of(line) + ("\n" if place < last else ""), count)
            for place, line in enumerate(sections.lines)
        ),
    )


def _of_any(assembler: Assembler, sections: Sections, count: Counter | None) -> Bill:
    """What each line adds, found by trying: an assembler of somebody's own tells no more."""
    totals = [
        _cost(output.prompt, count).plus(_cost(output.system_flag or "", count))
        for output in (assembler(newest(sections, kept)) for kept in range(len(sections.lines) + 1))
    ]
    added = [
        Cost(after.bytes - before.bytes, after.tokens - before.tokens)
        for before, after in pairwise(totals)
    ]
    return Bill(NOTHING, NOTHING, NOTHING, totals[0], NOTHING, tuple(reversed(added)))


def _cost(text: str, count: Counter | None) -> Cost:
    return Cost(len(text.encode()), 0 if count is None else count(text))
