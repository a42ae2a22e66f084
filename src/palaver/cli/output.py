"""What commands print and write: lines, JSON, times, messages, changes, notes and files."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from palaver.cli.app import is_terminal, print_line, printable, styled
from palaver.messages import ToolCallPart, ToolPart, to_dict
from palaver.messages.message import describe_content, describe_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from palaver.history import Result
    from palaver.messages import Message
    from palaver.stores import StoredHistory
    from palaver.wire import Note

__all__ = ["open_output", "print_notes", "report_option", "strict_option", "write_json"]


_COLOURS: Final = {"system": "magenta", "user": "green", "assistant": "blue", "tool": "yellow"}
_SHOWN: Final = 200
"""The characters of a message's calls and results."""


def confirm(question: str) -> bool:
    """Ask before something is destroyed; without a terminal the answer is no."""
    try:
        return click.confirm(question, err=True)
    except click.Abort:  # Ctrl-C, or nobody to ask
        return False


def print_json(value: object) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, ensure_ascii=False))


def format_time(at: int) -> str:
    """A time in UTC, as people read it."""
    try:
        return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{at} ms"


def format_message(
    message: Message, *, timed: bool = True, before: str = "", after: str = ""
) -> str:
    """A message on one line: time, role, text, calls."""
    when = f"{format_time(message.timestamp)}  " if timed else ""
    text = message.text or describe_content(message, _SHOWN)
    calls = [part for part in message.parts if isinstance(part, ToolCallPart | ToolPart)]
    if calls and message.text:
        text = f"{text} {describe_parts(calls, _SHOWN)}"
    role = styled(f"{message.role:9}", fg=_COLOURS[message.role], bold=True)
    start = f"{styled(before, dim=True)}{styled(when, dim=True)}{role}"
    return f"{start}  {styled(' '.join(text.split()))}{styled(after, fg='cyan')}"


def print_change(history: StoredHistory, result: Result | None, *, as_json: bool) -> None:
    """Print the version and size of a conversation after a change."""
    size = len(history)
    if as_json:
        answer: dict[str, Any] = {"conversation": history.id, "version": history.version}
        if result is not None:
            answer["affectedBatchIndex"] = result.affected_batch_index
            answer["stats"] = to_dict(result.stats)
        print_json(answer)
        return
    count = f"{size:,} message{'' if size == 1 else 's'}"
    batch = f"batch {history.batch_index}"
    print_line(f"{styled(history.id, bold=True)}: version {history.version}, {count}, {batch}")


@contextmanager
def progress_bar(what: str) -> Generator[Callable[[int, int | None], None] | None]:
    """A progress bar on standard error: a function of how many are done, of how many.

    It is None if standard error is no terminal.
    """
    if not is_terminal():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 - slow to load
    from rich.progress import Progress  # noqa: PLC0415 - the same

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def open_output(file: str) -> Generator[IO[bytes]]:
    """Open FILE for writing; it appears when it is complete, readable only by its owner."""
    if file == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(file)
    if path.exists() and not path.is_file():  # a pipe or a device
        with path.open("wb") as stream:
            yield stream
        return
    if not path.parent.is_dir():  # or the name of a temporary file would be in the error
        msg = f"there is no folder {path.parent} to write {path.name} in; make it first"
        raise FileNotFoundError(msg)
    number, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as stream:
            yield stream
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


_LISTED: Final = 50

report_option = click.option(
    "--report",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write what was repaired and what was lost to a file, as JSON.",
)
strict_option = click.option(
    "--strict", is_flag=True, help="Where anything would be lost, do nothing: exit status 1."
)


def print_notes(notes: Sequence[Note], name: str) -> None:
    """Print what a conversion repaired and lost, on standard error."""
    if not notes:
        return
    from palaver.wire.notes import count_losses  # noqa: PLC0415 - only conversions need it

    lost = count_losses(notes)
    click.echo(f"palaver: {name}: {len(notes) - lost:,} repaired, {lost:,} lost", err=True)
    for note in notes[:_LISTED]:
        click.echo(f"  {note.action:8}  {printable(str(note))}", err=True)
    if len(notes) > _LISTED:
        click.echo(f"  and {len(notes) - _LISTED:,} more", err=True)


def write_json(file: str, value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Write JSON to a file; - is standard output."""
    text = json.dumps(value, ensure_ascii=False)
    with open_output(file) as stream:
        stream.write(text.encode() + b"\n")
