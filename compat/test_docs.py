"""The examples in the pages about other frameworks run, beside those frameworks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.markdown import FOREIGN
from tests.test_docs import ROOT, run_page

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("page", sorted(FOREIGN))
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page's blocks run in order, in one namespace and one empty folder."""
    monkeypatch.chdir(tmp_path)
    run_page(ROOT / page)
