"""Build the sdist and the wheel, and prove both: what is in them, and that they install and run.

Each is installed into a clean environment of its own, with the versions of `constraints.txt`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
SAY_VERSION = "import palaver; print(palaver.__version__)"
SKILL = "palaver/.agents/skills/palaver/SKILL.md"


def main() -> int:
    """Build, look inside, install, run; print every problem and answer the exit status."""
    with tempfile.TemporaryDirectory(prefix="palaver-dist-") as folder:
        place = Path(folder)
        built = run(
            sys.executable, "-m", "build", "--no-isolation", "--outdir", place / "dist", ROOT
        )
        (wheel,) = (place / "dist").glob("*.whl")
        (sdist,) = (place / "dist").glob("*.tar.gz")
        problems = [*built.warnings, *wrong_in_wheel(wheel), *wrong_in_sdist(sdist)]
        with ThreadPoolExecutor() as pool:
            from_wheel = pool.submit(install_wheel, wheel, place / "from-wheel")
            from_sdist = pool.submit(install_sdist, sdist, place / "from-sdist")
        problems += [*from_wheel.result(), *from_sdist.result()]
    for problem in problems:
        print(problem)
    print(f"dist: {len(problems)} problems" if problems else "dist: wheel and sdist are whole")
    return 1 if problems else 0


class Ran:
    """What a program printed."""

    def __init__(self, output: str) -> None:
        self.output = output.strip()
        self.warnings = re.findall(r"^.*Warning: .*$", output, re.MULTILINE)


def run(*command: str | Path, cwd: Path | None = None) -> Ran:
    """Run a program; when it fails, show what it said and stop."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return Ran(done.stdout + done.stderr)


def wrong_in_wheel(wheel: Path) -> Iterator[str]:
    """Look for what a wheel must and must not hold."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    if "palaver/py.typed" not in names:
        yield f"{wheel.name}: palaver/py.typed is missing, so users get no types"
    if SKILL not in names:
        yield f"{wheel.name}: {SKILL} is missing, so coding agents get no skill"
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        yield f"{wheel.name}: the license is missing"
    for name in names:
        if not name.startswith("palaver/") and ".dist-info/" not in name:
            yield f"{wheel.name}: {name} does not belong in the wheel"


def wrong_in_sdist(sdist: Path) -> Iterator[str]:
    """Look for what an sdist must and must not hold."""
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    for name in ("pyproject.toml", "src/palaver/py.typed", "tests/conftest.py", "LICENSE"):
        if name not in names:
            yield f"{sdist.name}: {name} is missing"
    for name in names:
        if any(step.startswith(".venv") or step == "__pycache__" for step in name.split("/")):
            yield f"{sdist.name}: {name} does not belong in the sdist"


def install_wheel(wheel: Path, place: Path) -> list[str]:
    """Install the wheel as a user would: the library alone, then with its command."""
    python = clean(place)
    install(python, wheel)
    found = run(python, "-c", SAY_VERSION, cwd=place).output
    install(python, f"{wheel}[cli]")
    told = run(python.with_name("palaver"), "--version", cwd=place).output
    if found not in wheel.name:
        return [f"{wheel.name}: says it is version {found}"]
    if found not in told:
        return [f"{wheel.name}: palaver is {found}, but `palaver --version` says {told}"]
    return []


def install_sdist(sdist: Path, place: Path) -> list[str]:
    """Install the sdist, built here with the pinned backend."""
    python = clean(place)
    install(python, "hatchling")
    install(python, "--no-build-isolation", sdist)
    found = run(python, "-c", SAY_VERSION, cwd=place).output
    return [] if found in sdist.name else [f"{sdist.name}: says it is version {found}"]


def clean(place: Path) -> Path:
    """Make an environment with nothing in it but pip."""
    venv.create(place, with_pip=True, symlinks=True)  # no copy that another thread could run
    return place / "bin" / "python"


def install(python: Path, *what: str | Path) -> None:
    """Install with the pinned versions."""
    pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "-qq")
    run(*pip, "-c", ROOT / "constraints.txt", *what)


if __name__ == "__main__":
    sys.exit(main())
