"""The command `palaver`.

`app` names the commands and the files that hold them and is how all of them behave; `options` and
`output` are what they share.
"""

from __future__ import annotations

import sys

__all__ = ["main"]

_NEEDED = ("click", "rich")


def main(arguments: list[str] | None = None) -> int:
    """Run the command with these arguments, or those of the process; return its exit status."""
    try:
        from palaver.cli.app import app, run  # noqa: PLC0415 - without the extra it can't be loaded

        return run(app, sys.argv[1:] if arguments is None else arguments)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        sys.stderr.write("palaver: the command needs its extra: pip install 'palaver[cli]'\n")
        return 2
