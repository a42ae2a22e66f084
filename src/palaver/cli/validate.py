"""`palaver validate FILE`: is it right, and if not, where and by which rule."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from palaver.cli.documents import Checker, Problem
from palaver.cli.manners import (
    REFUSED,
    file_argument,
    json_option,
    name_of,
    on_terminal,
    open_input,
    say,
    styled,
)
from palaver.errors import PartValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["validate"]

_WORTH_A_BAR: Final = 8 * 1024 * 1024
_LONG: Final = 160


@click.command(short_help="Check a file of messages, parts or turns.")
@file_argument
@json_option
@click.pass_context
def validate(context: click.Context, file: str, *, as_json: bool) -> None:
    """Check FILE: messages, parts or turns, as JSON or as JSON lines.

    Prints each error with its line, its path and the rule it breaks. The exit status is 0 where
    all is right and 1 where something is not.
    """
    with open_input(file) as (stream, size), _progress(size) as progress:
        checker = Checker(stream, progress)
        report = _as_json if as_json else _as_text
        wrong = report(checker, name_of(file))
    context.exit(REFUSED if wrong else 0)


def _as_text(checker: Checker, name: str) -> int:
    count = 0
    for count, problem in enumerate(checker.problems(), 1):  # noqa: B007 - the last is the count
        say(_line(name, problem))
    verdict = f"{count:,} error{'' if count == 1 else 's'}" if count else "all valid"
    styles = {"fg": "red" if count else "green", "bold": True}
    say(f"{styled(name, bold=True)}: {checker.checked:,} checked, {styled(verdict, **styles)}")
    return count


def _line(name: str, problem: Problem) -> str:
    error = problem.error
    part = f" ({error.part} part)" if isinstance(error, PartValidationError) else ""
    return (
        f"{styled(f'{name}:{problem.line}', bold=True)}: {styled(_short(error.path), fg='cyan')}: "
        f"{styled(error.detail + part)} {styled(f'[{error.rule}]', fg='yellow')}"
    )


def _short(path: str) -> str:
    return path if len(path) <= _LONG else f"{path[: _LONG // 2]}…{path[-_LONG // 2 :]}"


def _as_json(checker: Checker, _name: str) -> int:
    """Write each error as it is found: nothing is kept, however many there are."""
    count = 0
    click.echo('{"errors": [', nl=False)
    for problem in checker.problems():
        click.echo(",\n " if count else "\n ", nl=False)
        click.echo(json.dumps(problem.to_dict(), ensure_ascii=False), nl=False)
        count += 1
    click.echo(f'], "checked": {checker.checked}, "valid": {json.dumps(not count)}}}')
    return count


@contextmanager
def _progress(size: int | None) -> Generator[Callable[[int], object] | None]:
    """A bar on standard error, for a person who waits for a large file."""
    if size is None or size < _WORTH_A_BAR or not on_terminal():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 - it takes its time to load
    from rich.progress import Progress  # noqa: PLC0415 - the same

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("checking", total=size)
        yield lambda length: bar.advance(task, length)
