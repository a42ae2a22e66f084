"""The commands by name, and the module of each. To add one, add it to a module and list it here.

A module is loaded when its command is used, so that `palaver --version` stays fast.
"""

from __future__ import annotations

import importlib
from typing import Final

import click

from palaver import __version__
from palaver.cli.runtime import CommandGroup

__all__ = ["COMMANDS", "app"]


COMMANDS: Final = {
    "append": "palaver.cli.commands.append",
    "apply": "palaver.cli.commands.edit",
    "chat": "palaver.cli.commands.chat",
    "context": "palaver.cli.commands.context",
    "convert": "palaver.cli.commands.convert",
    "copy": "palaver.cli.commands.export",
    "diff": "palaver.cli.commands.show",
    "doctor": "palaver.cli.commands.doctor",
    "edit": "palaver.cli.commands.edit",
    "erase": "palaver.cli.commands.erase",
    "export": "palaver.cli.commands.export",
    "fork": "palaver.cli.commands.fork",
    "import": "palaver.cli.commands.import_",
    "list": "palaver.cli.commands.show",
    "log": "palaver.cli.commands.show",
    "mark": "palaver.cli.commands.edit",
    "mcp": "palaver.cli.commands.serve",
    "merge": "palaver.cli.commands.fork",
    "migrate": "palaver.cli.commands.verify",
    "model": "palaver.cli.commands.model",
    "prune": "palaver.cli.commands.erase",
    "query": "palaver.cli.commands.query",
    "redo": "palaver.cli.commands.undo",
    "rollback": "palaver.cli.commands.undo",
    "schema": "palaver.cli.commands.schema",
    "search": "palaver.cli.commands.query",
    "serve": "palaver.cli.commands.serve",
    "show": "palaver.cli.commands.show",
    "team": "palaver.cli.commands.team",
    "undo": "palaver.cli.commands.undo",
    "validate": "palaver.cli.commands.validate",
    "verify": "palaver.cli.commands.verify",
}
"""The module of each command; it has the command under its name, or with a _ after it."""


class _LazyGroup(CommandGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name])
        for name in (cmd_name, f"{cmd_name}_"):  # `import` and `list` are Python's own names
            found: object = getattr(module, name, None)
            if isinstance(found, click.Command):
                return found
        return None


@click.group(
    cls=_LazyGroup,
    name="palaver",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 success, 1 the input is refused, 2 wrong usage.",
)
@click.version_option(__version__, prog_name="palaver", message="%(prog)s %(version)s")
def app() -> None:
    """Work with the conversations of LLM agents.

    Where a FILE is asked for, - is standard input.
    """
