"""How many examples a property test tries."""

from __future__ import annotations

from hypothesis import settings


def at_least(examples: int) -> settings:
    """Ask for so many examples, or for the profile's number where that is more.

    >>> at_least(2_000).max_examples >= 2_000
    True
    """
    return settings(max_examples=max(examples, settings().max_examples))


def steps(usual: int, *, in_faults: int) -> int:
    """How many steps a state machine is to take in all; more in the profile `faults`.

    >>> steps(5_000, in_faults=200_000) >= 5_000
    True
    """
    return in_faults if settings.get_current_profile_name() == "faults" else usual
