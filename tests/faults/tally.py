"""What a campaign counted, and the table of all of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Tally", "table"]

_SHOWN = 5


class Tally(Struct):
    """How many faults a campaign made, what became of them, and what should not have happened.

    >>> tally = Tally("power cut", "images")
    >>> tally.count("whole")
    >>> tally.fail("lost", "seed 7, event 12")
    >>> tally.faults, tally.failures
    (2, {'lost': 1})
    """

    name: str
    unit: str
    outcomes: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    stories: list[str] = field(default_factory=list)

    @property
    def faults(self) -> int:
        """How many faults there were."""
        return sum(self.outcomes.values()) + sum(self.failures.values())

    def count(self, outcome: str, times: int = 1) -> None:
        """A fault had an outcome that is allowed."""
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + times

    def fail(self, failure: str, story: str) -> None:
        """A fault had an outcome that must not be; the story says how to see it again."""
        self.failures[failure] = self.failures.get(failure, 0) + 1
        if len(self.stories) < _SHOWN:
            self.stories.append(f"{failure}: {story}")

    def add(self, other: Tally) -> None:
        """Count what another tally counted, too."""
        self.outcomes = dict(Counter(self.outcomes) + Counter(other.outcomes))
        self.failures = dict(Counter(self.failures) + Counter(other.failures))
        self.stories = [*self.stories, *other.stories][:_SHOWN]

    def check(self) -> None:
        """Raise where something happened that must not."""
        assert not self.failures, "\n".join([str(self.failures), *self.stories])


def table(tallies: Iterable[Tally]) -> str:
    """The tallies as a table in Markdown, those of one name added up.

    >>> print(table([Tally("kill -9", "kills", {"whole": 3}), Tally("kill -9", "kills")]))
    | fault | count | outcome | failures |
    |---|---|---|---|
    | kill -9 | 3 kills | 3 whole | none |
    """
    joined: dict[str, Tally] = {}
    for tally in tallies:
        joined.setdefault(tally.name, Tally(tally.name, tally.unit)).add(tally)
    lines = ["| fault | count | outcome | failures |", "|---|---|---|---|"]
    for tally in joined.values():
        outcomes = ", ".join(f"{times:,} {what}" for what, times in tally.outcomes.items())
        failures = ", ".join(f"{times:,} {what}" for what, times in tally.failures.items())
        count = f"{tally.faults:,} {tally.unit}"
        lines.append(f"| {tally.name} | {count} | {outcomes} | {failures or 'none'} |")
    return "\n".join(lines)
