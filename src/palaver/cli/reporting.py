"""What a conversion could not keep, told to people on standard error and to programs as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from palaver.cli.manners import printable
from palaver.cli.outputs import open_output
from palaver.wire.report import are_lost

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from palaver.wire import Note

__all__ = ["report_option", "strict_option", "tell", "write_json"]

_SHOWN: Final = 50

report_option = click.option(
    "--report",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write what was repaired and what was lost to a file, as JSON.",
)
strict_option = click.option(
    "--strict", is_flag=True, help="Where anything would be lost, do nothing: exit status 1."
)


def tell(notes: Sequence[Note], name: str) -> None:
    """Say it to a person: the counts, then each thing."""
    if not notes:
        return
    lost = are_lost(notes)
    click.echo(f"palaver: {name}: {len(notes) - lost:,} repaired, {lost:,} lost", err=True)
    for note in notes[:_SHOWN]:
        click.echo(f"  {note.action:8}  {printable(str(note))}", err=True)
    if len(notes) > _SHOWN:
        click.echo(f"  and {len(notes) - _SHOWN:,} more", err=True)


def write_json(file: str, value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Write JSON to a file; - is standard output."""
    text = json.dumps(value, ensure_ascii=False)
    with open_output(file) as stream:
        stream.write(text.encode() + b"\n")
