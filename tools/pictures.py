"""Make the pictures in the docs: what the tour really prints, as an SVG, and the page itself.

`python -m tools.pictures` writes them again; `make pictures` calls it.
"""

from __future__ import annotations

import io
import logging
import re
from pathlib import Path
from typing import Final

from rich.console import Console

from examples import tour
from tools.page_pictures import take_all

__all__ = ["draw", "main"]

FOLDER: Final = Path(__file__).parent.parent / "docs" / "pictures"
_FONTS: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_STOPS: Final = (tour.a_refused_message, tour.a_history, tour.a_fork)


def draw() -> str:
    """Some stops of the tour, as a picture of a terminal."""
    logging.getLogger("palaver").addHandler(logging.NullHandler())
    console = Console(
        record=True, file=io.StringIO(), width=92, highlight=False, force_terminal=True
    )
    for stop in _STOPS:
        tour.show_stop(stop, lambda text, style: console.print(text, style=style, markup=False))
    picture = console.export_svg(title="python -m examples.tour", unique_id="palaver")
    return _FONTS.sub("", picture)  # nobody's browser is sent elsewhere for a font


def main() -> None:
    """Write every picture."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "tour.svg").write_text(draw(), "utf-8")
    take_all(FOLDER)


if __name__ == "__main__":
    main()
