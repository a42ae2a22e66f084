"""Measure, print the table, write `results.json` beside this file."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from pathlib import Path
from typing import Final

from bench import TOPICS
from bench.harness import Row, Run, save, table

__all__ = ["RESULTS", "main"]

RESULTS: Final = Path(__file__).parent / "results.json"


def main(arguments: list[str] | None = None) -> int:
    """Run the topics that were asked for; a goal that was missed is said, and is no failure."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", metavar="NAME", default="", help="topics with this in their name")
    parser.add_argument("--quick", action="store_true", help="few rounds: a first look")
    parser.add_argument(
        "--output", type=Path, help="where to write; a quick look is not written unless you say"
    )
    chosen = parser.parse_args(arguments)
    topics = [name for name in TOPICS if chosen.only in name.removeprefix("bench.")]
    if not topics:
        names = ", ".join(name.removeprefix("bench.") for name in TOPICS)
        parser.error(f"no topic has {chosen.only!r} in its name; there are {names}")
    rows: list[Row] = []
    for topic in topics:
        print(f"measuring {topic.removeprefix('bench.')} …", end=" ", file=sys.stderr, flush=True)
        load, began = os.getloadavg()[0], time.monotonic()
        found = importlib.import_module(topic).rows(Run(quick=chosen.quick))
        rows += [row._replace(load=load) for row in found]
        print(f"{time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(table(rows))
    print("\nratio: times slower than a floor, times faster than a peer")
    if chosen.output is not None:
        save(rows, chosen.output)
    elif not chosen.quick:
        save(rows, RESULTS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
