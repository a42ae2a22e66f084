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

    >>> tally = Tally("power cut", "images", "20,000 images, none corrupt")
    >>> tally.count("whole", 11)
    >>> tally.fail("lost", "seed 7, event 12")
    >>> tally.faults, tally.failures
    (12, {'lost': 1})
    >>> print(tally)
    12 images: 11 whole; failed: 1 lost
    """

    name: str
    unit: str
    goal: str
    outcomes: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    stories: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def faults(self) -> int:
        """How many faults there were."""
        return sum(self.outcomes.values()) + sum(self.failures.values())

    def __str__(self) -> str:
        """All of it in one line."""
        failed = f"; failed: {_listed(self.failures)}" if self.failures else ""
        return f"{self.faults:,} {self.unit}: {_listed(self.outcomes)}{failed}"

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
        self.seconds += other.seconds

    def check(self) -> None:
        """Raise where something happened that must not."""
        assert not self.failures, "\n".join([str(self.failures), *self.stories])


def _listed(counted: dict[str, int]) -> str:
    return ", ".join(f"{times:,} {what}" for what, times in counted.items())


def table(tallies: Iterable[Tally]) -> str:
    """The tallies as a table in Markdown, those of one name added up.

    >>> goal = "500 kills, none lost"
    >>> one = Tally("kill -9", "kills", goal, {"whole": 3}, seconds=90)
    >>> print(table([one, Tally("kill -9", "kills", goal)]))
    | fault | goal | made | what came of it | failures | minutes |
    |---|---|---|---|---|---|
    | kill -9 | 500 kills, none lost | 3 kills | 3 whole | none | 1.5 |
    """
    joined: dict[str, Tally] = {}
    for tally in tallies:
        joined.setdefault(tally.name, Tally(tally.name, tally.unit, tally.goal)).add(tally)
    lines = [
        "| fault | goal | made | what came of it | failures | minutes |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {tally.name} | {tally.goal} | {tally.faults:,} {tally.unit} | "
        f"{_listed(tally.outcomes)} | {_listed(tally.failures) or 'none'} | "
        f"{tally.seconds / 60:.1f} |"
        for tally in joined.values()
    ]
    return "\n".join(lines)
