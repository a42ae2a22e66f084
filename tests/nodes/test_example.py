from __future__ import annotations

import pytest

from examples import workflow

pytestmark = pytest.mark.anyio


async def test_the_example_goes_its_way(capsys: pytest.CaptureFixture[str]) -> None:
    await workflow.main()
    shown = capsys.readouterr().out
    way = [line.split()[0] for line in shown.splitlines() if "→" in line]
    assert ["llm", "tool", "llm", "tool", "human", "tool", "llm"] == way
    assert "booked the 12:00 for 60 EUR" in shown
    assert "for 80 EUR" not in shown
