from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from examples import tour

SCRIPT = Path(tour.__file__)


def test_the_tour_takes_every_stop(capsys: pytest.CaptureFixture[str]) -> None:
    tour.main()
    shown = capsys.readouterr().out
    for number, stop in enumerate(tour.STOPS, 1):
        assert f"{number}. {stop.__doc__}" in shown


def test_what_the_tour_shows_is_so() -> None:
    answers = [answer for stop in tour.STOPS for _, answer in stop()]
    assert False not in answers
    assert len(answers) > 10


@pytest.mark.parametrize("hidden", ["", "import sys; sys.modules['rich.console'] = None; "])
def test_it_runs_by_itself_with_and_without_rich(hidden: str) -> None:
    code = f"{hidden}import runpy; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (0, b"") == (done.returncode, done.stderr)
    assert "→ True" in done.stdout.decode()


def test_it_stays_short_enough_to_read() -> None:
    assert len(SCRIPT.read_text("utf-8").splitlines()) < 250
