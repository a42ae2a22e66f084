"""`palaver import FILE`: conversations from files into a store, each whole or not at all.

A snapshot of palaver's own brings its versions with it. Of anything else each conversation becomes
one of the store's, with its title; what the file says about it is kept in a record beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from palaver.cli.manners import REFUSED, Refused, json_option, name_of, printable, say
from palaver.cli.reporting import report_option, strict_option, tell, write_json
from palaver.cli.sources import (
    chosen,
    conversation_option,
    from_option,
    opened_source,
    origin_of,
    source_argument,
)
from palaver.cli.stored import found, opened, progress, put_json, store_option
from palaver.errors import AlreadyExists
from palaver.stores.snapshots import import_conversation
from palaver.wire.report import are_lost
from palaver.wire.transcripts.files import SNAPSHOTS, readings
from palaver.wire.transcripts.keeping import Transcript

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from palaver.wire import Reading

__all__ = ["import_"]

_SHOWN: Final = 5


@click.command("import", short_help="Read conversations from a file.")
@source_argument
@click.option("--id", "name", help="The id to give it, instead of its own.")
@click.option("--into", metavar="CONVERSATION", help="Put it in the place of what that one has.")
@from_option
@conversation_option
@click.option("--missing", is_flag=True, help="Leave out those that the store has already.")
@report_option
@strict_option
@store_option
@json_option
def import_(  # noqa: PLR0917 - one for each option
    file: str,
    name: str | None,
    into: str | None,
    named: str | None,
    wanted: str | None,
    report: str | None,
    address: str | None,
    *,
    missing: bool,
    strict: bool,
    as_json: bool,
) -> None:
    """Read the conversations in FILE into the store, and print their ids.

    FILE is of any form that `palaver export` writes, or of any format that `palaver convert` reads;
    its content tells. All of FILE is checked first. Where anything is wrong with it, nothing
    changes. Each conversation is stored whole or not at all. Where one can't be stored, those
    before it are taken back, except those that somebody has changed or forked from meanwhile: the
    error names them. After a kill, --missing brings in the rest. What a file has that could not be
    kept is listed on standard error.

    With --into, FILE is a snapshot of version 1, and `palaver undo` returns to what was there
    before.
    """
    if name is not None and into is not None:
        msg = "--id goes with a new conversation, --into with one that is there"
        raise click.UsageError(msg)
    with opened_source(file) as path:
        origin = origin_of(path, named, file)
        if origin in SNAPSHOTS:
            if wanted is not None or missing:
                msg = "--conversation and --missing are for files with several conversations"
                raise click.UsageError(msg)
            _import_snapshot(path, name, into, address, as_json=as_json)
            return
        if into is not None:
            msg = f"{name_of(file)} is no snapshot of version 1, which is what --into takes"
            raise Refused(msg)
        with opened(address, make=True) as store, progress("importing") as bar:
            transcript = Transcript(store, lambda: _readings(path, origin, wanted, file), name)
            transcript.look(bar)
            _check(transcript, file, missing=missing)
            answer = {"from": origin, **transcript.answer()}
            if report is not None:
                write_json(report, answer)
            lost = are_lost(transcript.notes) if strict else 0
            if not lost:
                transcript.keep(bar)
        _tell(transcript, answer, file, lost, as_json=as_json)


def _import_snapshot(
    path: Path, name: str | None, into: str | None, address: str | None, *, as_json: bool
) -> None:
    with (
        opened(address, make=into is None) as store,
        path.open("rb") as stream,
        progress("importing") as bar,
    ):
        target = None if into is None else found(store, into).id
        history = import_conversation(store, stream, id=name, into=target, progress=bar)
        size = len(history)
    if as_json:
        put_json({"conversation": history.id, "version": history.version, "messages": size})
    else:
        say(history.id)


def _readings(path: Path, origin: str, wanted: str | None, file: str) -> Iterator[Reading]:
    found = readings(path, origin)
    return found if wanted is None else iter((chosen(found, wanted, file),))


def _check(transcript: Transcript, file: str, *, missing: bool) -> None:
    """Refuse what can't be imported as it was asked for."""
    if transcript.unnamed:
        msg = f"{name_of(file)} has several conversations: --id can't name them all"
        raise Refused(msg)
    known = transcript.known
    if known and not missing:
        shown = ", ".join(map(repr, known[:_SHOWN]))
        more = f" and {len(known) - _SHOWN:,} more" if len(known) > _SHOWN else ""
        advice = (
            "--missing leaves out what is there" if transcript.planned else "--id gives another"
        )
        msg = f"the store has {shown}{more} already: {advice}"
        raise AlreadyExists(msg)
    if not known and not transcript.planned:
        why = f": {transcript.notes[0]}" if transcript.notes else ""
        msg = f"nothing was said in {name_of(file)}{why}"
        raise Refused(msg)


def _tell(
    transcript: Transcript, answer: dict[str, Any], file: str, lost: int, *, as_json: bool
) -> None:
    if as_json:
        put_json({**answer, "conversations": []} if lost else answer)
    else:
        tell(transcript.notes, name_of(file))
    if lost:
        if as_json:
            click.get_current_context().exit(REFUSED)
        msg = f"{lost:,} thing{' is' if lost == 1 else 's are'} lost and --strict: nothing imported"
        raise Refused(msg)
    if not as_json:
        for planned in transcript.planned:
            say(printable(planned.id))
