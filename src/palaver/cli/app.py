"""The commands by name, the module of each, and how all of them run. To add one, list it here.

A module is loaded when its command is used, so that `palaver --version` stays fast.

The exit status is 0, 1 if the input is refused, 2 for wrong usage, and 130 after Ctrl-C. An error
is one line on standard error and never a traceback. Text is UTF-8 in every locale; colour is only
for terminals, and `NO_COLOR` turns it off. A closed pipe (`palaver … | head`) is no error.
"""

from __future__ import annotations

import importlib
import io
import json
import logging
import os
import re
import sys
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, TypeVar
from unicodedata import category

import click

from palaver import __version__
from palaver.errors import PalaverError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

__all__ = [
    "COMMANDS",
    "INTERRUPTED",
    "PIPE_CLOSED",
    "REFUSED",
    "CommandGroup",
    "Refused",
    "app",
    "display_name",
    "file_argument",
    "is_terminal",
    "json_option",
    "open_input",
    "print_line",
    "printable",
    "run",
    "styled",
]


REFUSED: Final = 1
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
"""The status that a shell gives a program whose pipe was closed."""

_SILENCE: Final = logging.NullHandler()
_LETTER: Final = "[\u0620-\u0dff\u1000-\u109f\u1780-\u18af]"
"""A letter or sign of a script whose words have joiners: Arabic to Sinhala, Myanmar, Khmer."""
_PICTURE: Final = "[\u203c-\u3299\ufe0f\U0001f000-\U0001faff]"
_UNPRINTABLE: Final = re.compile(
    rf"(?!(?<={_PICTURE})\u200d{_PICTURE}|(?<={_LETTER})[\u200c\u200d]{_LETTER})[^ -~]"
)
"""A character that may have to be escaped: not ASCII's own, and no joiner where it belongs."""
_Function = TypeVar("_Function", bound="Callable[..., Any]")


class Refused(click.ClickException):
    """The input is refused: one line on standard error, exit status 1."""

    exit_code = REFUSED


class CommandGroup(click.Group):
    """A group of commands that turns palaver's errors into refusals."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - whatever the command returns
        """Run the command with the library's log silenced."""
        logging.getLogger("palaver").addHandler(_SILENCE)
        try:
            return super().invoke(ctx)
        except PalaverError as error:
            raise Refused(str(error)) from error


def run(app: click.Command, arguments: Sequence[str]) -> int:
    """Run a command, and return its exit status."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        status = _invoke(app, list(arguments))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # the reader is gone; Python needs something to flush into at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except OSError as error:
        click.echo(f"palaver: {printable(str(error))}", err=True)
        return REFUSED
    return status


def _open_closed_streams() -> None:
    """Let a standard stream that was closed before the start lead to nowhere.

    A file that is opened later would otherwise get its number, and what is printed.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - until the end
            setattr(sys, name, nowhere)


def _invoke(app: click.Command, arguments: list[str]) -> int:
    if "_PALAVER_COMPLETE" in os.environ:
        app.main(arguments, prog_name="palaver")
    try:
        with app.make_context("palaver", arguments) as context:
            app.invoke(context)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as wrong:
        click.echo(wrong.format_message(), err=True)
        return wrong.exit_code
    except click.ClickException as wrong:
        hint = "" if isinstance(wrong, Refused) else _hint(wrong)
        one_line = " ".join(wrong.format_message().split())
        if "--json" in arguments:
            cause = wrong.__cause__
            known = cause.to_dict() if isinstance(cause, PalaverError) else {}
            click.echo(json.dumps({"error": {"message": one_line, **known}}), err=True)
        else:
            click.echo(f"palaver: {printable(one_line)}{hint}", err=True)
        return wrong.exit_code
    return 0


def _hint(wrong: click.ClickException) -> str:
    context = wrong.ctx if isinstance(wrong, click.UsageError) else None
    return f" (try '{context.command_path} --help')" if context else ""


def json_option(function: _Function) -> _Function:
    """Add `--json`: the same output, for programs."""
    return click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")(function)


def file_argument(function: _Function) -> _Function:
    """Add the argument FILE; open it with `open_input`."""
    kind = click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True)
    return click.argument("file", type=kind)(function)


@contextmanager
def open_input(file: str) -> Generator[tuple[BinaryIO, int | None]]:
    """Open FILE, or standard input for `-`; yield the stream and its size, if that is known."""
    if file == "-":
        yield sys.stdin.buffer, None
        return
    with Path(file).open("rb") as stream:
        yield stream, os.fstat(stream.fileno()).st_size or None  # a pipe has a size of 0


def display_name(file: str) -> str:
    """The name of a file in messages."""
    return "standard input" if file == "-" else click.format_filename(file)


def printable(text: str) -> str:
    r"""Escape everything in a text that would control a terminal or stay hidden in one.

    Spaces of every script, and joiners inside a word or a picture, are left as they are.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    if text.isprintable():
        return text
    return _UNPRINTABLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    if char.isprintable() or category(char) == "Zs":
        return char
    return char.encode("unicode_escape").decode()


def print_line(text: str) -> None:
    """Print a line on standard output."""
    click.echo(text, color=True)  # `styled` has decided about colour


def styled(text: str, **style: Any) -> str:  # noqa: ANN401 - click's own styles
    """Make a text safe to print, and style it if standard output is a terminal with colour."""
    safe = printable(text)
    return click.style(safe, **style) if _wants_colour(sys.stdout) else safe


def is_terminal() -> bool:
    """Tell whether standard error is a terminal."""
    return sys.stderr.isatty()


def _wants_colour(stream: IO[str]) -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


COMMANDS: Final = {
    "append": "palaver.cli.commands.append",
    "apply": "palaver.cli.commands.edit",
    "chat": "palaver.cli.commands.chat",
    "context": "palaver.cli.commands.context",
    "convert": "palaver.cli.commands.convert",
    "copy": "palaver.cli.commands.export",
    "deferred": "palaver.cli.commands.edit",
    "delete": "palaver.cli.commands.erase",
    "diff": "palaver.cli.commands.show",
    "doctor": "palaver.cli.commands.doctor",
    "edit": "palaver.cli.commands.edit",
    "encrypt": "palaver.cli.commands.encrypt",
    "erase": "palaver.cli.commands.erase",
    "expire": "palaver.cli.commands.erase",
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
    "schema": "palaver.cli.commands.validate",
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
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; for an unknown one, say which was meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = get_close_matches(args[0].lower(), COMMANDS, n=1)
            if not close or "Did you mean" in error.message:
                raise
            raise click.UsageError(f"{error.message} Did you mean '{close[0]}'?", ctx) from None

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
