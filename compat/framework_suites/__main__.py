"""Run the suites, and print what became of them."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import palaver
from compat.framework_suites.suites import FRAMEWORKS, compare, suites_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compat.framework_suites.suites import Comparison, Suite

ROOT: Final = Path(__file__).parents[2]
_PYTEST: Final = (
    *("-P", "-m", "pytest"),  # -P: not the sources in the checkout, but what is installed
    *("-p", "compat.framework_suites.plugin", "-p", "no:cacheprovider"),
    *("-q", "--continue-on-collection-errors", "-o", "addopts="),
)
_HEADS: Final = ("tests", "in its place", "own", "palaver", "can't pass", "unexpected")


class _Run(NamedTuple):
    """What pytest told: the outcome of each test, and the files that could not be collected."""

    outcomes: dict[str, str]
    uncollected: dict[str, str]


class _Row(NamedTuple):
    """A line of the table."""

    framework: str
    suite: str
    in_place: str
    found: Comparison

    def cells(self) -> tuple[str, ...]:
        """Return the texts of the line."""
        own, known = self.found.own, self.found.cannot_pass
        odd = len(self.found.broken) + len(self.found.repaired)
        return (
            self.suite,
            self.in_place,
            str(own) if own == self.found.tests else f"{own} of {self.found.tests}",
            str(self.found.palaver),
            str(sum(map(len, known.values())) or ""),
            str(odd or ""),
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites that the arguments ask for; the result is what the process exits with."""
    parser = argparse.ArgumentParser("python -m compat.framework_suites", description=__doc__)
    parser.add_argument("checkouts", type=Path, help="the folder with the frameworks' sources")
    parser.add_argument("--only", action="append", choices=FRAMEWORKS, help="this framework")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file, too")
    asked = parser.parse_args(arguments)
    print(f"palaver {version('palaver')} of {Path(palaver.__file__).parent}\n", flush=True)
    rows: list[_Row] = []
    for framework in asked.only or FRAMEWORKS:
        for number, suite in enumerate(suites_of(framework)):
            if not (asked.checkouts / suite.folder).is_dir():
                print(f"{suite.title}: there is no {asked.checkouts / suite.folder}")
                continue
            rows += _run_suite(asked.checkouts, framework, number, suite)
    _print_table(rows)
    _print_tests(rows)
    if asked.json:
        found = [{**row._asdict(), "found": asdict(row.found)} for row in rows]
        asked.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0 if rows and all(row.found.is_as_expected for row in rows) else 1


def _run_suite(checkouts: Path, framework: str, number: int, suite: Suite) -> list[_Row]:
    """Run a suite with the framework's own class, and with each of palaver's."""
    name = f"{framework}:{number}"
    print(f"{suite.title} …", file=sys.stderr, flush=True)
    own = _run(checkouts, suite, name, None, suite.files)
    for why, count in Counter(own.uncollected.values()).items():
        print(f"{suite.title}: {count} of the files could not be imported: {why}")
    rows: list[_Row] = []
    for index, in_place in enumerate(suite.in_place):
        ours = _run(checkouts, suite, name, index, suite.files)
        found = compare(own.outcomes, ours.outcomes, in_place.cannot_pass)
        if found.broken and not suite.program:  # a pause of the machine may have been the reason
            again = _run(checkouts, suite, name, index, found.broken)
            outcomes = ours.outcomes | again.outcomes
            found = compare(own.outcomes, outcomes, in_place.cannot_pass)
        rows.append(_Row(framework, suite.title, in_place.title, found))
    return rows


def _run(
    checkouts: Path, suite: Suite, name: str, in_place: int | None, tests: Sequence[str]
) -> _Run:
    """Run tests in a process of their own, in the folder of the checkout."""
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    with tempfile.TemporaryDirectory() as folder:
        outcomes, log = Path(folder, "outcomes.json"), Path(folder, "log")
        chosen = [] if in_place is None else ["--in-place", str(in_place)]
        program = ["-m", suite.program] if suite.program else _PYTEST
        command = [sys.executable, *program, "--suite", name, *chosen, "--outcomes", str(outcomes)]
        with log.open("w", encoding="utf-8") as output:
            subprocess.run(
                [*command, *tests],
                cwd=checkouts / suite.folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if not outcomes.exists():
            sys.exit(
                f"{suite.title}: pytest did not run\n{log.read_text(encoding='utf-8')[-3000:]}"
            )
        found = _Run(**json.loads(outcomes.read_text(encoding="utf-8")))
    return found._replace(
        outcomes={test: found.outcomes[test] for test in found.outcomes if suite.takes(test)}
    )


def _print_table(rows: list[_Row]) -> None:
    lines = [_HEADS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADS))]
    print()
    for line in lines:
        print("  ".join(map(str.ljust, line, widths)).rstrip())


def _print_tests(rows: list[_Row]) -> None:
    """Print how many tests can't pass for each reason, and each one that nobody expected."""
    for row in rows:
        if row.found.cannot_pass or not row.found.is_as_expected:
            print(f"\n{row.suite}: {row.in_place}")
        for reason, tests in row.found.cannot_pass.items():
            print(f"  {len(tests)} can't pass: {reason}")
        for test in row.found.broken:
            print(f"  fails, and is not known to: {test}")
        for test in row.found.repaired:
            print(f"  passes, and is listed as one that can't: {test}")


if __name__ == "__main__":
    sys.exit(main())
