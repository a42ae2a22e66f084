"""The campaign of failovers, a few times; `make faults` has thirty."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.faults import failovers

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.tally import Tally

FAILOVERS = int(os.environ.get("PALAVER_FAILOVERS", "2"))


def test_nothing_is_lost_while_primaries_are_killed(told: Callable[[Tally], None]) -> None:
    told(failovers.run(FAILOVERS, seed=0))
