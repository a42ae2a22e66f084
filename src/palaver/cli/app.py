"""The commands, by name. A new one is a file beside this one, and one line here.

A command's file is loaded when the command is used, so that `palaver --version` stays quick.
"""

from __future__ import annotations

import importlib
from typing import Final

import click

from palaver import __version__
from palaver.cli.manners import Commands

__all__ = ["COMMANDS", "app"]

COMMANDS: Final = {
    "apply": "palaver.cli.apply",
    "query": "palaver.cli.query",
    "validate": "palaver.cli.validate",
}
"""Each command's name, and the module that has it under the same name."""


class _Lazy(Commands):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        found: object = getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name)
        return found if isinstance(found, click.Command) else None


@click.group(
    cls=_Lazy,
    name="palaver",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 all is well, 1 the input is refused, 2 wrong usage.",
)
@click.version_option(__version__, prog_name="palaver", message="%(prog)s %(version)s")
def app() -> None:
    """Work with the conversations of LLM agents.

    Where a FILE is asked for, - is standard input.
    """
