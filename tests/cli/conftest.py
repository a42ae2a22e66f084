from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from palaver.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

START = "import sys; from palaver.cli import main; sys.exit(main())"


@pytest.fixture
def validate(tmp_path: Path) -> Callable[..., Result]:
    """Write bytes to a file, and validate it."""

    def run(content: bytes | str, *options: str) -> Result:
        file = tmp_path / "given.json"
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return CliRunner().invoke(app, ["validate", str(file), *options])

    return run


@pytest.fixture
def palaver() -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Run the real command, in a process of its own."""

    def run(
        *arguments: str, given: bytes = b"", **variables: str
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-c", START, *arguments],
            input=given,
            capture_output=True,
            check=False,
            env={**os.environ, **variables},
        )

    return run
