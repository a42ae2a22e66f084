"""FILE in any format that palaver reads: which one it is, and the conversations in it.

The format is told by content; `--from` is for whoever knows better. What a pipe brings is put into
a file first, since telling and reading are two looks at the same bytes.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from palaver.cli.manners import Refused, name_of, open_input, printable
from palaver.wire import Note, Reading
from palaver.wire.transcripts.files import NAMES, format_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

__all__ = [
    "chosen",
    "conversation_option",
    "from_option",
    "opened_source",
    "origin_of",
    "source_argument",
]

_SHOWN: Final = 20
_Function = TypeVar("_Function", bound="Callable[..., Any]")


# ── what a command takes ────────────────────────────────────────────────────────────────────────


def source_argument(function: _Function) -> _Function:
    """Give a command FILE, which may be a folder too; open it with `opened_source`."""
    kind = click.Path(exists=True, readable=True, allow_dash=True)
    return click.argument("file", type=kind)(function)


def from_option(function: _Function) -> _Function:
    """Give a command `--from`: the format of FILE, for whoever knows better."""
    return click.option(
        "--from",
        "named",
        type=click.Choice(NAMES),
        metavar="FORMAT",
        help=f"What FILE is, where its content does not tell: {', '.join(NAMES)}.",
    )(function)


def conversation_option(function: _Function) -> _Function:
    """Give a command `--conversation`: which one of those in FILE."""
    return click.option(
        "--conversation",
        "wanted",
        metavar="ID",
        help="Which conversation of FILE: its id, the beginning of it, or its number, from 1.",
    )(function)


# ── what is in it ───────────────────────────────────────────────────────────────────────────────


@contextmanager
def opened_source(file: str) -> Generator[Path]:
    """The path of FILE; what comes through a pipe is kept in a file for as long."""
    path = Path(file)
    if file != "-" and (path.is_file() or path.is_dir()):
        yield path
        return
    with open_input(file) as (stream, _), tempfile.NamedTemporaryFile(prefix="palaver-") as kept:
        shutil.copyfileobj(stream, kept)
        kept.flush()
        yield Path(kept.name)


def origin_of(path: Path, named: str | None, file: str) -> str:
    """The format of a file, by the names of `detect`; what nobody knows is refused."""
    found = format_of(path, named)
    if found is None:
        msg = (
            f"{name_of(file)} is in no format that palaver knows; "
            f"if you know it, name it with --from: {', '.join(NAMES)}"
        )
        raise Refused(msg)
    return found


def chosen(found: Iterable[Reading], wanted: str | None, file: str) -> Reading:
    """The conversation that is asked for, or the only one.

    What is wrong with other lines of the file is told with it: they may have been anybody's.
    """
    best: list[Reading] = []
    rank = _NOT
    labels: list[str] = []
    count = 0
    strays: list[Note] = []
    reasons: list[Note] = []
    for reading in found:
        strays += (note for note in reading.notes if note.where.startswith("line "))
        if not reading.messages:
            reasons += reading.notes[:1]
            continue
        count += 1
        if count <= _SHOWN:
            labels.append(_label(reading, count))
        fits = _ANY if wanted is None else _fit(reading, count, wanted)
        if fits < rank:
            rank, best = fits, []
        if fits == rank < _NOT and len(best) < 2:  # noqa: PLR2004 - a second one is one too many
            best.append(reading)
    if len(best) == 1:
        mine = set(best[0].notes)
        others = tuple(note for note in strays if note not in mine)
        return Reading(best[0].messages, (*best[0].notes, *others), best[0].about)
    name = name_of(file)
    if not count:
        why = f": {reasons[0]}" if reasons else ""
        msg = f"nothing was said in {name}{why}"
        raise Refused(msg)
    more = f" and {count - _SHOWN:,} more" if count > _SHOWN else ""
    listed = f"{', '.join(labels)}{more}"
    if wanted is None:
        msg = f"{name} has {count:,} conversations: choose one with --conversation: {listed}"
    elif best:
        msg = f"{wanted!r} is the beginning of several ids in {name}: {listed}"
    else:
        msg = f"no conversation in {name} is {wanted!r}: there is {listed}"
    raise Refused(msg)


_ANY: Final = 3
_NOT: Final = 4


def _fit(reading: Reading, number: int, wanted: str) -> int:
    """How well a conversation fits: by its id, by its number, by the beginning of its id."""
    name = str(reading.about.get("id", ""))
    if name == wanted:
        return 0
    if wanted == str(number):
        return 1
    return 2 if wanted and name.startswith(wanted) else _NOT


def _label(reading: Reading, number: int) -> str:
    about, size = reading.about, len(reading.messages)
    name = printable(str(about.get("id") or number))
    title = f"{printable(str(about['title']))[:60]!r}, " if about.get("title") else ""
    return f"{name} ({title}{size:,} message{'' if size == 1 else 's'})"
