"""`palaver import FILE`: conversations from files into a store, all of them or none.

A snapshot of palaver's own brings its versions with it. Of anything else each conversation becomes
one of the store's, with its title; what the file says about it is kept in a record beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from palaver.cli.manners import REFUSED, Refused, json_option, name_of, printable, say
from palaver.cli.reporting import (
    are_lost,
    counted,
    report_option,
    strict_option,
    tell,
    write_json,
)
from palaver.cli.sources import (
    SNAPSHOTS,
    chosen,
    conversation_option,
    from_option,
    opened_source,
    origin_of,
    readings,
    source_argument,
)
from palaver.cli.stored import found, opened, progress, put_json, store_option
from palaver.errors import AlreadyExists, ValidationError
from palaver.messages import dump, new_id
from palaver.messages.gate import check_name
from palaver.stores.snapshots import import_conversation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from palaver.stores import Store
    from palaver.wire import Note, Reading

    Progress = Callable[[int, int | None], None] | None

__all__ = ["import_"]

ORIGIN: Final = "origin"
"""The kind of record that keeps what a file said about a conversation as a whole."""
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
    changes. What a file has that could not be kept is listed on standard error.

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
            transcript = _Transcript(store, _Source(path, origin, file), wanted=wanted, name=name)
            transcript.look(bar, missing=missing)
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


def _tell(
    transcript: _Transcript, answer: dict[str, Any], file: str, lost: int, *, as_json: bool
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


class _Planned(NamedTuple):
    """A conversation that shall be in the store."""

    id: str
    place: int
    title: str | None
    size: int


class _Source(NamedTuple):
    """Where conversations come from: what FILE is called may not be where it is read from."""

    path: Path
    origin: str
    file: str


class _Transcript:
    """A file on its way into a store: looked through once, then read again and kept."""

    def __init__(
        self, store: Store, source: _Source, *, wanted: str | None, name: str | None
    ) -> None:
        self.planned: list[_Planned] = []
        self.notes: list[Note] = []
        self.known: list[str] = []
        self._store = store
        self._source = source
        self._file = name_of(source.file)
        self._wanted = wanted
        self._name = name

    def _readings(self) -> Iterator[Reading]:
        source, wanted = self._source, self._wanted
        found = readings(source.path, source.origin)
        return found if wanted is None else iter((chosen(found, wanted, source.file),))

    def look(self, bar: Progress, *, missing: bool) -> None:
        """Read everything and change nothing: which conversations there are, and what is lost."""
        ids: set[str] = set()
        for place, reading in enumerate(self._readings()):
            self.notes += reading.notes
            if not reading.messages:
                continue
            name = self._name or _id_of(reading, ids)
            if name in ids:
                msg = f"{self._file} has several conversations: --id can't name them all"
                raise Refused(msg)
            ids.add(name)
            if name in self._store:
                self.known.append(name)
                continue
            title = reading.about.get("title")
            self.planned.append(
                _Planned(name, place, str(title) if title else None, len(reading.messages))
            )
            if bar is not None:
                bar(len(ids), None)
        if self.known and not missing:
            self._refuse()
        if not ids:
            why = f": {self.notes[0]}" if self.notes else ""
            msg = f"nothing was said in {self._file}{why}"
            raise Refused(msg)

    def _refuse(self) -> None:
        shown = ", ".join(map(repr, self.known[:_SHOWN]))
        more = f" and {len(self.known) - _SHOWN:,} more" if len(self.known) > _SHOWN else ""
        advice = "--missing leaves out what is there" if self.planned else "--id gives another"
        msg = f"the store has {shown}{more} already: {advice}"
        raise AlreadyExists(msg)

    def keep(self, bar: Progress) -> None:
        """Read it again and keep it; where that fails, what was kept goes again."""
        kept: list[str] = []
        try:
            wanted = {planned.place: planned for planned in self.planned}
            for place, reading in enumerate(self._readings()):
                if place not in wanted:
                    continue
                planned = wanted[place]
                kept.append(planned.id)
                self._store.create(reading.messages, id=planned.id, title=planned.title)
                if reading.about:
                    self._store.keeper.put(planned.id, ORIGIN, "about", dump(reading.about))
                if bar is not None:
                    bar(len(kept), len(wanted))
        except BaseException as error:
            if isinstance(error, AlreadyExists):
                kept.pop()  # somebody else has just begun it
            for name in kept:
                if name in self._store:
                    self._store.delete(name)
            raise

    def answer(self) -> dict[str, Any]:
        """What comes of it, for programs."""
        conversations = [
            {"conversation": planned.id, "title": planned.title, "messages": planned.size}
            for planned in self.planned
        ]
        return {"conversations": conversations, "known": self.known, **counted(self.notes)}


def _id_of(reading: Reading, taken: set[str]) -> str:
    """The id that a conversation has, where it can be one in a store; else a new one."""
    about = reading.about
    name = about.get("id")
    if about.get("sidechain"):
        name = f"{about.get('parent')}:{name}"  # such an id is short, and good in its session only
    try:
        check_name(name)
    except ValidationError:
        return new_id()
    return new_id() if name in taken else str(name)
