"""Every campaign's tally goes with its test's report, and so reaches the table at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.tally import Tally


@pytest.fixture
def told(record_property: Callable[[str, object], None]) -> Callable[[Tally], None]:
    """Note a tally for the table, and fail where something happened that must not."""

    def tell(tally: Tally) -> None:
        record_property("tally", msgspec.json.encode(tally).decode())
        tally.check()

    return tell
