"""How every command behaves: exit status, errors, encoding, colour and input files.

The exit status is 0, 1 if the input is refused, 2 for wrong usage, and 130 after Ctrl-C. An error
is one line on standard error and never a traceback. Text is UTF-8 in every locale; colour is only
for terminals, and `NO_COLOR` turns it off. A closed pipe (`palaver … | head`) is no error.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, TypeVar

import click

from palaver.errors import PalaverError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

__all__ = [
    "INTERRUPTED",
    "PIPE_CLOSED",
    "REFUSED",
    "CommandGroup",
    "Refused",
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
    r"""Escape everything in a text that would control a terminal.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


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
