"""`palaver import FILE`: import conversations from a file, each completely or not at all.

A snapshot of palaver's own has its versions. Of any other format each conversation becomes one of
the store's, with its title; what the file says about it is stored in a record beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from palaver.cli.app import REFUSED, Refused, display_name, json_option, print_line, printable
from palaver.cli.options import (
    choose_conversation,
    complete_conversation,
    conversation_option,
    detect_format,
    find_conversation,
    from_option,
    open_source,
    owner_option,
    source_argument,
    store_option,
    use_store,
)
from palaver.cli.output import (
    print_json,
    print_notes,
    progress_bar,
    report_option,
    strict_option,
    write_json,
)
from palaver.errors import AlreadyExists
from palaver.stores.transfer import import_archive, import_conversation, is_archive
from palaver.transcripts.importer import TranscriptImport
from palaver.transcripts.readers import SNAPSHOTS, read_file
from palaver.wire.notes import count_losses

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from palaver.wire import ParsedConversation

__all__ = ["import_"]


_LISTED: Final = 5


@click.command("import", short_help="Import conversations from a file.")
@source_argument
@click.option("--id", "name", help="The id to give it, instead of its own.")
@click.option(
    "--into",
    metavar="CONVERSATION",
    shell_complete=complete_conversation,
    help="Replace the messages of that conversation.",
)
@from_option
@conversation_option
@click.option("--branches", is_flag=True, help="Import each branch that was left as a fork.")
@click.option("--missing", is_flag=True, help="Skip those that the store has already.")
@owner_option("Whom the conversations belong to.  [whom the file says]")
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
    owner: str | None,
    report: str | None,
    address: str | None,
    *,
    branches: bool,
    missing: bool,
    strict: bool,
    as_json: bool,
) -> None:
    """Import the conversations in FILE, and print their ids.

    FILE has any form that `palaver export` writes, or any format that `palaver convert` reads; the
    format is detected. All of FILE is checked first: if anything is wrong with it, nothing changes.
    Each conversation is stored completely or not at all. If one can't be stored, those before it
    are removed again, except those that were changed or forked meanwhile: the error names them.
    After a kill, --missing imports the rest. What could not be converted is listed on standard
    error. With --branches, what the user went back from is imported too, where the format keeps it
    (Claude Code, ChatGPT): each branch as a fork, which shares the messages before it.

    An archive, as `palaver expire` and `palaver export --owner` write it, has many conversations.

    With --into, FILE is a snapshot of version 1, and `palaver undo` returns to what was there
    before.
    """
    if name is not None and into is not None:
        msg = "--id goes with a new conversation, --into with one that is there"
        raise click.UsageError(msg)
    with open_source(file) as path:
        if named is None and is_archive(path):
            if any((name, into, wanted, branches, report, strict)):
                msg = "with an archive go only --missing and --owner"
                raise click.UsageError(msg)
            _import_archive(path, address, owner, missing=missing, as_json=as_json)
            return
        origin = detect_format(path, named, file)
        if origin in SNAPSHOTS:
            if wanted is not None or missing or branches:
                msg = (
                    "--conversation, --missing and --branches are for files with several "
                    "conversations"
                )
                raise click.UsageError(msg)
            _import_snapshot(path, name, into, owner, address, as_json=as_json)
            return
        if into is not None:
            msg = f"{display_name(file)} is no snapshot of version 1, which is what --into takes"
            raise Refused(msg)
        with use_store(address, create=True) as store, progress_bar("importing") as bar:
            transcript = TranscriptImport(
                store,
                lambda: _readings(path, origin, wanted, file, branches=branches),
                name,
                owner=owner,
            )
            transcript.plan(bar)
            _check(transcript, file, missing=missing)
            answer = {"from": origin, **transcript.report()}
            if report is not None:
                write_json(report, answer)
            lost = count_losses(transcript.notes) if strict else 0
            if not lost:
                transcript.run(bar)
        _print_result(transcript, answer, file, lost, as_json=as_json)


def _import_archive(
    path: Path, address: str | None, owner: str | None, *, missing: bool, as_json: bool
) -> None:
    with use_store(address, create=True) as store, progress_bar("importing") as bar:
        names = import_archive(store, path, missing=missing, owner=owner, progress=bar)
    if as_json:
        print_json({"from": "archive", "conversations": names})
        return
    for name in names:
        print_line(printable(name))


def _import_snapshot(
    path: Path,
    name: str | None,
    into: str | None,
    owner: str | None,
    address: str | None,
    *,
    as_json: bool,
) -> None:
    with (
        use_store(address, create=into is None) as store,
        path.open("rb") as stream,
        progress_bar("importing") as bar,
    ):
        target = None if into is None else find_conversation(store, into).id
        history = import_conversation(
            store, stream, id=name, into=target, owner=owner, progress=bar
        )
        size = len(history)
    if as_json:
        print_json({"conversation": history.id, "version": history.version, "messages": size})
    else:
        print_line(history.id)


def _readings(
    path: Path, origin: str, wanted: str | None, file: str, *, branches: bool
) -> Iterator[ParsedConversation]:
    find_conversation = read_file(path, origin, branches=branches)
    return (
        find_conversation
        if wanted is None
        else iter((choose_conversation(find_conversation, wanted, file),))
    )


def _check(transcript: TranscriptImport, file: str, *, missing: bool) -> None:
    """Refuse what can't be imported as it was asked for."""
    if transcript.unnamed:
        msg = f"{display_name(file)} has several conversations: --id can't name them all"
        raise Refused(msg)
    known = transcript.known
    if known and not missing:
        shown = ", ".join(map(repr, known[:_LISTED]))
        more = f" and {len(known) - _LISTED:,} more" if len(known) > _LISTED else ""
        advice = (
            "--missing leaves out what is there" if transcript.planned else "--id gives another"
        )
        msg = f"the store has {shown}{more} already: {advice}"
        raise AlreadyExists(msg)
    if not known and not transcript.planned:
        why = f": {transcript.notes[0]}" if transcript.notes else ""
        msg = f"nothing was said in {display_name(file)}{why}"
        raise Refused(msg)


def _print_result(
    transcript: TranscriptImport, answer: dict[str, Any], file: str, lost: int, *, as_json: bool
) -> None:
    if as_json:
        print_json({**answer, "conversations": []} if lost else answer)
    else:
        print_notes(transcript.notes, display_name(file))
    if lost:
        if as_json:
            click.get_current_context().exit(REFUSED)
        msg = f"{lost:,} thing{' is' if lost == 1 else 's are'} lost and --strict: nothing imported"
        raise Refused(msg)
    if not as_json:
        for planned in transcript.planned:
            print_line(printable(planned.id))
