"""How every command behaves, in one place, so that no command has to think of it.

Exit status 0, 1 where the input is refused, 2 for wrong usage, 130 after Ctrl-C. An error is one
line on standard error and never a traceback. Text is UTF-8 whatever the locale says; colour is for
terminals, and `NO_COLOR` turns it off. A reader that goes away (`palaver … | head`) is no error.
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
    "Commands",
    "Refused",
    "file_argument",
    "json_option",
    "name_of",
    "on_terminal",
    "open_input",
    "printable",
    "run",
    "say",
    "styled",
]

REFUSED: Final = 1
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
"""As the shell counts a program that the end of its pipe has stopped."""

_SILENCE: Final = logging.NullHandler()
_Function = TypeVar("_Function", bound="Callable[..., Any]")


class Refused(click.ClickException):
    """The input can't be taken: one line on standard error, exit status 1."""

    exit_code = REFUSED


class Commands(click.Group):
    """A group of commands whose errors are ours: what palaver refuses, the command refuses."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - whatever the command returns
        """Run the command; it speaks for itself, and the library's log stays silent."""
        logging.getLogger("palaver").addHandler(_SILENCE)
        try:
            return super().invoke(ctx)
        except PalaverError as error:
            raise Refused(str(error)) from error


def run(app: click.Command, arguments: Sequence[str]) -> int:
    """Run a command to its end, and answer the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        status = _invoke(app, list(arguments))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # nobody reads any more; give Python something to flush into when it ends
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
    """Give a command `--json`: the same answer, for programs."""
    return click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")(function)


def file_argument(function: _Function) -> _Function:
    """Give a command FILE; open it with `open_input`."""
    kind = click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True)
    return click.argument("file", type=kind)(function)


@contextmanager
def open_input(file: str) -> Generator[tuple[BinaryIO, int | None]]:
    """Open FILE, or standard input for `-`: its bytes, and how many there are, if that is known."""
    if file == "-":
        yield sys.stdin.buffer, None
        return
    with Path(file).open("rb") as stream:
        yield stream, os.fstat(stream.fileno()).st_size or None  # a pipe has a size of 0


def name_of(file: str) -> str:
    """What a message calls the file."""
    return "standard input" if file == "-" else click.format_filename(file)


def printable(text: str) -> str:
    r"""The text without anything that would steer a terminal.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def say(text: str) -> None:
    """Print a line on standard output."""
    click.echo(text, color=True)  # whether there is colour in it, `styled` has decided


def styled(text: str, **style: Any) -> str:  # noqa: ANN401 - click's own styles
    """Make it safe to print, and give it colour and weight where standard output wants them."""
    safe = printable(text)
    return click.style(safe, **style) if _wants_colour(sys.stdout) else safe


def on_terminal() -> bool:
    """Tell whether a person is watching standard error."""
    return sys.stderr.isatty()


def _wants_colour(stream: IO[str]) -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()
