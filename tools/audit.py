"""Audit what palaver depends on: known vulnerabilities of the pinned versions, and licences.

`pip-audit` asks the package index for advisories about every pin in the constraints files. An index
that can't be reached, or that has no advisories (many mirrors have none), is reported and is no
failure; an advisory is. The licences are read from the installed packages, so they need no network:
`docs/licences.md` lists every package that palaver or one of its extras brings, and a licence that
is not on the list of accepted ones fails.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from packaging.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/licences.md"
ACCEPTED: Final = frozenset((
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0",
    "PSF-2.0",
))  # fmt: skip
EXCEPTIONS: Final = {
    "apsw": "any-OSI",  # its authors let everyone choose any licence that the OSI approves
    "psycopg": "LGPL-3.0-only",  # a library that is used unchanged, and only where it is asked for
    "psycopg-binary": "LGPL-3.0-only",
}
_CLASSIFIERS: Final = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_SECONDS: Final = 300
_HEAD: Final = """\
# Licences

Every package that palaver or one of its extras installs, and its licence; made by
`python -m tools.audit --write`, checked by `make check`. palaver itself is under Apache-2.0.

| package | licence |
|---|---|
"""


class Advisory(msgspec.Struct):
    """A known vulnerability."""

    id: str
    fix_versions: list[str] = []
    description: str = ""


class Audited(msgspec.Struct):
    """What the audit says of one package: advisories, or why it could not be looked up."""

    name: str
    version: str = ""
    skip_reason: str = ""
    vulns: list[Advisory] = []


class Report(msgspec.Struct):
    """What `pip-audit` prints as JSON."""

    dependencies: list[Audited]


def main(arguments: list[str] | None = None) -> int:
    """Print what was found; return the exit status."""
    parser = argparse.ArgumentParser(prog="audit", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE} again")
    page = ROOT / PAGE
    licences = dict(sorted(installed_licences("palaver")))
    text = _HEAD + "".join(f"| {name} | {licence} |\n" for name, licence in licences.items())
    if parser.parse_args(arguments).write:
        page.write_text(text, "utf-8")
    problems = list(refused(licences))
    if not page.exists() or page.read_text("utf-8") != text:
        problems.append(f"{PAGE} is out of date: python -m tools.audit --write")
    print(f"licences: {len(licences)} packages, {len(problems)} problems")
    for constraints in sorted(ROOT.glob("constraints*.txt")):
        report = audit(constraints)
        problems += advisories(report)
        print(summary(constraints.name, report))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


# ── licences ────────────────────────────────────────────────────────────────────────────────────


def installed_licences(package: str) -> Iterator[tuple[str, str]]:
    """Yield every installed package that one needs, with all its extras, and its licence.

    >>> dict(installed_licences("palaver"))["msgspec"]
    'BSD-3-Clause'
    """
    waiting, seen = [(package, True)], {package}
    while waiting:
        name, with_extras = waiting.pop()
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # of a framework that has an environment of its own
            continue
        if name != package:
            yield name, licence_of(found)
        for text in found.requires or ():
            needed = Requirement(text)
            wanted = with_extras or needed.marker is None or needed.marker.evaluate({"extra": ""})
            key = re.sub(r"[-_.]+", "-", needed.name).lower()
            if wanted and key not in seen:
                seen.add(key)
                waiting.append((key, False))


def licence_of(found: metadata.Distribution) -> str:
    """Return a package's licence as an SPDX expression, or what it says instead."""
    headers = found.metadata.json
    if expression := headers.get("license_expression"):
        return str(expression)
    named = [
        line.rpartition(" :: ")[2]
        for line in headers.get("classifier", ())
        if line.startswith("License ::")
    ]
    if named:
        return " OR ".join(_CLASSIFIERS.get(name, name) for name in named)
    first = str(headers.get("license") or "unknown").strip().partition("\n")[0]
    return _CLASSIFIERS.get(first, first)


def refused(licences: dict[str, str]) -> Iterator[str]:
    """Say which licences are not accepted.

    >>> list(refused({"a": "MIT OR GPL-3.0-only", "b": "MIT AND PSF-2.0", "c": "GPL-3.0-only"}))
    ["c: its licence is 'GPL-3.0-only', which is not accepted (tools/audit.py)"]
    """
    for name, licence in licences.items():
        if EXCEPTIONS.get(name) == licence:
            continue
        choices = [choice.split(" AND ") for choice in licence.split(" OR ")]
        if not any(all(one.strip(" ()") in ACCEPTED for one in choice) for choice in choices):
            yield f"{name}: its licence is {licence!r}, which is not accepted (tools/audit.py)"


# ── vulnerabilities ─────────────────────────────────────────────────────────────────────────────


def audit(constraints: Path) -> Report | str:
    """Ask for advisories about every pin of a file; the reason where nobody could be asked."""
    command = [
        sys.executable, "-m", "pip_audit", "--requirement", str(constraints), "--no-deps",
        "--disable-pip", "--format", "json", "--progress-spinner", "off", "--timeout", "10",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_SECONDS} seconds"
    try:
        report: Report = msgspec.json.decode(done.stdout, type=Report)
    except msgspec.DecodeError:
        lines = done.stderr.strip().splitlines() or ["no output"]
        return lines[-1]
    return report


def advisories(report: Report | str) -> Iterable[str]:
    """Return a line for every advisory.

    >>> list(advisories(Report([Audited("a", "1", vulns=[Advisory("CVE-1", ["2"])])])))
    ['a 1: CVE-1; fixed in 2']
    """
    if isinstance(report, str):
        return []
    return [
        f"{one.name} {one.version}: {found.id}; fixed in {', '.join(found.fix_versions) or 'none'}"
        for one in report.dependencies
        for found in one.vulns
    ]


def summary(name: str, report: Report | str) -> str:
    """Say how many pins were audited, and what stood in the way of the others.

    >>> summary("constraints.txt", "no network")
    'audit of constraints.txt: nobody could be asked: no network'
    >>> summary("constraints.txt", Report([Audited("a", "1"), Audited("b", skip_reason="?")]))
    'audit of constraints.txt: 1 of 2 pins audited, 0 advisories; 1 unknown to the index'
    """
    if isinstance(report, str):
        return f"audit of {name}: nobody could be asked: {report}"
    skipped = sum(bool(one.skip_reason) for one in report.dependencies)
    total = len(report.dependencies)
    found = len(list(advisories(report)))
    unknown = f"; {skipped} unknown to the index" if skipped else ""
    return (
        f"audit of {name}: {total - skipped} of {total} pins audited, {found} advisories{unknown}"
    )


if __name__ == "__main__":
    sys.exit(main())
