"""How many examples a property test tries."""

from __future__ import annotations

from hypothesis import settings


def at_least(examples: int) -> settings:
    """Ask for so many examples, or for the profile's number where that is more.

    >>> at_least(2_000).max_examples >= 2_000
    True
    """
    return settings(max_examples=max(examples, settings().max_examples))
