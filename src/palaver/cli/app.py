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
    "append": "palaver.cli.adding",
    "apply": "palaver.cli.apply",
    "context": "palaver.cli.context",
    "convert": "palaver.cli.converting",
    "chat": "palaver.cli.chat",
    "copy": "palaver.cli.carrying",
    "diff": "palaver.cli.forking",
    "doctor": "palaver.cli.doctoring",
    "edit": "palaver.cli.editing",
    "erase": "palaver.cli.erasing",
    "export": "palaver.cli.carrying",
    "fork": "palaver.cli.forking",
    "import": "palaver.cli.importing",
    "list": "palaver.cli.listing",
    "log": "palaver.cli.showing",
    "mark": "palaver.cli.marking",
    "mcp": "palaver.cli.mcp",
    "merge": "palaver.cli.forking",
    "migrate": "palaver.cli.proving",
    "model": "palaver.cli.model",
    "prune": "palaver.cli.pruning",
    "query": "palaver.cli.query",
    "redo": "palaver.cli.returning",
    "rollback": "palaver.cli.returning",
    "schema": "palaver.cli.schema",
    "search": "palaver.cli.searching",
    "serve": "palaver.cli.serving",
    "show": "palaver.cli.showing",
    "team": "palaver.cli.team",
    "undo": "palaver.cli.returning",
    "validate": "palaver.cli.validate",
    "verify": "palaver.cli.proving",
}
"""Each command's name, and the module that has it: under that name, or with a _ after it."""


class _Lazy(Commands):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name])
        for name in (cmd_name, f"{cmd_name}_"):  # `import` and `list` are words of Python's own
            found: object = getattr(module, name, None)
            if isinstance(found, click.Command):
                return found
        return None


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
