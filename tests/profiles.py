"""How many examples a property test tries, and how much of a campaign is run.

`FAULTS_SCALE` makes a run of the profile `faults` shorter or longer: 0.1 is a tenth of everything.
"""

from __future__ import annotations

import os
from typing import Final

from hypothesis import settings

__all__ = ["SCALE", "at_least", "scaled", "steps"]

SCALE: Final = float(os.environ.get("FAULTS_SCALE", "1"))


def scaled(count: int) -> int:
    """So many, or the share of it that `FAULTS_SCALE` asks for; at least one.

    >>> scaled(0)
    1
    """
    return max(1, round(count * SCALE))


def at_least(examples: int, *, in_faults: int = 0) -> settings:
    """Ask for so many examples; the profile `faults` takes its own number where that is more.

    The usual profile tries the same ones every time: 50 and a third of the rest are enough for it.

    >>> at_least(2_000, in_faults=100_000).max_examples >= 700
    True
    """
    if settings.get_current_profile_name() == "repeatable":
        return settings(max_examples=min(examples, 50) + max(0, examples - 50) // 3)
    usual = settings().max_examples if settings.get_current_profile_name() == "faults" else 0
    return settings(max_examples=steps(max(examples, usual), in_faults=in_faults))


def steps(usual: int, *, in_faults: int) -> int:
    """How many steps a state machine is to take in all; more in the profile `faults`.

    >>> steps(5_000, in_faults=200_000) >= 5_000
    True
    """
    in_campaign = settings.get_current_profile_name() == "faults"
    return max(scaled(in_faults), usual) if in_campaign else usual
