"""What a provider would refuse, one problem for each thing, gathered and never raised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.testing.providers.rules import Rule

__all__ = ["Findings", "Problem"]


class Problem(Struct, frozen=True):
    """One thing that a provider would refuse.

    `path` is where it stands in the body (`messages[0].content`, or `$` for the whole), `rule` is
    the rule's name in docs/wire.md, `detail` says it in words.

    >>> str(Problem("messages[0].content", "empty-content", "there is nothing in it"))
    'messages[0].content: there is nothing in it (empty-content)'
    """

    path: str
    rule: str
    detail: str

    def __str__(self) -> str:
        """One line for a person."""
        return f"{self.path}: {self.detail} ({self.rule})"


class Findings:
    """The problems found so far, in the order in which they were found."""

    def __init__(self) -> None:
        """Begin with none."""
        self._problems: dict[tuple[str, str], Problem] = {}

    def add(self, path: str, rule: Rule, detail: str) -> None:
        """Note a problem; one at the same place by the same rule is noted once."""
        self._problems.setdefault((path, rule), Problem(path, rule, detail))

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._problems.values())
