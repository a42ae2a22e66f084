"""The house rules that need the frameworks: what each module promises is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.test_house import FOREIGN, check_names, named

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("path", FOREIGN, ids=named)
def test_every_promised_name_is_there(path: Path) -> None:
    check_names(path)
