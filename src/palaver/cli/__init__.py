"""The command `palaver`.

`app` names the commands and the files that hold them and is how all of them behave; `options` and
`output` are what they share.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

from palaver import __version__

__all__ = ["main"]

_NEEDED: Final = ("click", "rich")
_EXTRAS: Final = "cli,local,server,team,tokens"
_AGAIN: Final = "PALAVER_WITH_EXTRAS"  # set for the second start, so that there is no third


def main(arguments: list[str] | None = None) -> int:
    """Run the command with these arguments, or those of the process; return its exit status."""
    try:
        from palaver.cli.app import app, run  # noqa: PLC0415 - without the extra it can't be loaded

        return run(app, sys.argv[1:] if arguments is None else arguments)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        if _is_uvx():
            return _start_with_extras(sys.argv[1:] if arguments is None else arguments)
        sys.stderr.write("palaver: the command needs its extra: pip install 'palaver[cli]'\n")
        return 2


def _is_uvx() -> bool:
    """Return whether `uvx palaver` started this: uv names itself, and no environment is active."""
    return "UV" in os.environ and not {"VIRTUAL_ENV", _AGAIN} & os.environ.keys()


def _start_with_extras(arguments: list[str]) -> int:
    """Start the command again through uv, in an environment that has what the command needs."""
    uv, whole = os.environ["UV"], f"palaver[{_EXTRAS}]=={__version__}"
    sys.stderr.write(f"palaver: fetching what the command needs: {whole}\n")
    sys.stderr.flush()
    os.environ[_AGAIN] = "1"
    command = [uv, "tool", "run", "--from", whole, "palaver", *arguments]
    if os.name == "posix":
        os.execv(uv, command)  # noqa: S606 - no shell is wanted; Ctrl-C and signals are the child's
    return subprocess.call(command)  # noqa: S603 - uv's own path, as uv says it
