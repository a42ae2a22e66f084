"""`palaver import`: conversations from a file, or from what other programs keep on this machine.

A snapshot of palaver's own has its versions. Of any other format each conversation becomes one of
the store's, with its title; what the file says about it is stored in a record beside it. Either is
stored completely or not at all. `--discover` lists transcripts by name, size and date, and brings
in those that are chosen; `--watch` goes on with them as they grow.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from palaver.cli.app import (
    REFUSED,
    Refused,
    display_name,
    json_option,
    print_line,
    printable,
    styled,
)
from palaver.cli.options import (
    choose_conversation,
    complete_conversation,
    conversation_option,
    detect_format,
    find_conversation,
    from_option,
    open_source,
    owner_option,
    store_option,
    use_store,
)
from palaver.cli.output import (
    format_time,
    print_json,
    print_notes,
    progress_bar,
    report_option,
    strict_option,
    write_json,
)
from palaver.errors import AlreadyExists
from palaver.stores.open import printable_path
from palaver.stores.transfer import import_archive, import_conversation, is_archive
from palaver.transcripts.discover import (
    PROGRAMS,
    FoundTranscript,
    discover,
    title_of,
    transcript_at,
)
from palaver.transcripts.follow import BroughtIn, Follower, bring_in, is_brought_in
from palaver.transcripts.importer import TranscriptImport
from palaver.transcripts.readers import SNAPSHOTS, read_file
from palaver.wire.notes import count_losses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from palaver.stores import Store
    from palaver.wire import ParsedConversation

__all__ = ["import_"]


_LISTED: Final = 5
_REST: Final = 10
"""A look that found nothing new and took a second is followed by so many without one."""
_SOURCE: Final = click.Path(exists=True, readable=True, allow_dash=True)


@click.command("import", short_help="Import conversations from a file, or of other programs.")
@click.argument("files", metavar="[FILE|WHICH...]", nargs=-1)
@click.option(
    "--discover",
    "discovers",
    is_flag=True,
    help="List what other programs keep on this machine; with WHICH, bring it in.",
)
@click.option("--all", "everything", is_flag=True, help="Bring in all that is found.")
@click.option("--titles", is_flag=True, help="List titles too: reads the beginning of each file.")
@click.option("--dry-run", is_flag=True, help="List what would be brought in; read nothing.")
@click.option("--watch", is_flag=True, help="Go on with what is written, until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.05),
    default=2,
    show_default=True,
    metavar="SECONDS",
    help="How often --watch looks.",
)
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
    files: tuple[str, ...],
    every: float,
    name: str | None,
    into: str | None,
    named: str | None,
    wanted: str | None,
    owner: str | None,
    report: str | None,
    address: str | None,
    *,
    discovers: bool,
    everything: bool,
    titles: bool,
    dry_run: bool,
    watch: bool,
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

    --discover lists the transcripts of Claude Code, Codex, opencode, llm, Gemini CLI and Copilot
    CLI in their usual places, the one that was written last at the end. It looks at names, sizes
    and dates, and opens no file. WHICH says what to bring in: numbers and ranges of the list (3,
    5-8), programs (codex), beginnings of names; --all is everything. What the store has already is
    not stored twice, and what has grown is appended to. --watch goes on with that until Ctrl-C; the
    same command goes on later where it was.
    """
    many = (wanted, missing, branches)
    if discovers or watch:
        refused = any((name, into, named, report, strict, *many))
        _refuse(refused, "with --discover and --watch go only --owner, --store and --json")
        how = _Discovering(owner, address, every, dry_run, watch, as_json)
        if discovers:
            _discover(files, how, everything=everything, titles=titles)
        else:
            _follow_file(_only_file(files), how)
        return
    with_discover = everything or titles or dry_run
    _refuse(with_discover, "--all, --titles and --dry-run go with --discover")
    both = name is not None and into is not None
    _refuse(both, "--id goes with a new conversation, --into with one that is there")
    file = _only_file(files)
    with open_source(file) as path:
        if named is None and is_archive(path):
            refused = any((name, into, wanted, branches, report, strict))
            _refuse(refused, "with an archive go only --missing and --owner")
            _import_archive(path, address, owner, missing=missing, as_json=as_json)
            return
        origin = detect_format(path, named, file)
        if origin in SNAPSHOTS:
            several = "are for files with several conversations"
            _refuse(any(many), f"--conversation, --missing and --branches {several}")
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


def _refuse(wrong: object, message: str) -> None:
    """Refuse options that don't go together."""
    if wrong:
        raise click.UsageError(message)


def _only_file(files: tuple[str, ...]) -> str:
    """Return the one FILE that was given; anything else is refused."""
    if len(files) != 1:
        msg = "give one FILE, or --discover" if files else "Missing argument 'FILE', or --discover."
        raise click.UsageError(msg)
    return str(_SOURCE.convert(files[0], None, click.get_current_context()))


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


# ── what other programs keep ─────────────────────────────────────────────────────────────────────


class _Discovering(NamedTuple):
    """How transcripts are brought in."""

    owner: str | None
    address: str | None
    every: float
    dry_run: bool
    watch: bool
    as_json: bool


def _discover(which: tuple[str, ...], how: _Discovering, *, everything: bool, titles: bool) -> None:
    """List what is found, or bring in what is chosen of it."""
    _refuse(everything and which, "--all is everything: WHICH chooses")
    found, problems = discover()
    for problem in problems:
        click.echo(f"palaver: {printable(problem)}", err=True)
    chosen = found if everything else _choose(found, which)
    if how.dry_run or not (which or everything):
        _refuse(how.watch and not how.dry_run, "--watch needs WHICH, or --all")
        shown = chosen if which or everything else found
        _print_found(found, shown, how, titles=titles)
        return
    programs = set(PROGRAMS) if everything else {each for each in which if each in PROGRAMS}
    known = {each.path for each in chosen}
    _bring_in(
        lambda: (
            each for each in discover().transcripts
            if each.path in known or each.program in programs
        ),
        how,
    )  # fmt: skip


def _follow_file(file: str, how: _Discovering) -> None:
    """Bring in a file, and go on with it."""
    path, form = Path(file), detect_format(Path(file), None, file)
    if form in SNAPSHOTS:
        msg = f"{display_name(file)} is a snapshot, which does not grow"
        raise Refused(msg)

    def find() -> list[FoundTranscript]:
        try:
            return [transcript_at(path, form)]
        except FileNotFoundError:  # for a moment: it is written anew
            return []

    _bring_in(find, how)


def _choose(found: list[FoundTranscript], which: tuple[str, ...]) -> list[FoundTranscript]:
    """Return the transcripts that numbers, ranges, programs and names choose, in order."""
    chosen: set[Path] = set()
    for word in which:
        first, dash, last = word.partition("-")
        if first.isdecimal() and (last.isdecimal() or not dash):
            begin, end = int(first), int(last or first)
            if not 1 <= begin <= end <= len(found):
                numbers = f"the list has the numbers 1 to {len(found):,}"
                msg = f"{word}: {numbers if found else 'the list is empty: nothing was found'}"
                raise click.UsageError(msg)
            chosen.update(each.path for each in found[begin - 1 : end])
            continue
        named = [each for each in found if _is_named(each, word)]
        if not named and word not in PROGRAMS:
            msg = (
                f"{word!r} is no number, no program ({', '.join(PROGRAMS)}) and no beginning of "
                "a name in the list"
            )
            raise click.UsageError(msg)
        chosen.update(each.path for each in named)
    return [each for each in found if each.path in chosen]


def _is_named(found: FoundTranscript, word: str) -> bool:
    begins = any(name.startswith(word) for name in (found.name, found.path.name))
    return begins or word in {found.program, found.conversation}


def _print_found(
    found: list[FoundTranscript],
    shown: list[FoundTranscript],
    how: _Discovering,
    *,
    titles: bool,
) -> None:
    known = _known(shown, how)
    numbers = {each.path: number for number, each in enumerate(found, 1)}
    rows: list[dict[str, Any]] = [
        {
            "number": numbers[each.path],
            "program": each.program,
            "name": each.name,
            "path": printable_path(str(each.path)),
            "size": each.size,
            "modified": each.modified,
            "imported": each.path in known,
            **({"title": title_of(each)} if titles else {}),
        }
        for each in shown
    ]
    if how.as_json:
        print_json({"transcripts": rows})
        return
    if not rows:
        names = ", ".join(PROGRAMS.values())
        click.echo(f"nothing found of {names} in their usual places", err=True)
        return
    wide = max(len(row["program"]) for row in rows)
    for row in rows:
        mark = styled("stored ", dim=True) if row["imported"] else " " * 7
        title = f"  {row['title']}" if row.get("title") else ""
        line = (
            f"{row['number']:>5}  {row['program']:{wide}}  {format_size(row['size']):>8}  "
            f"{format_time(row['modified'])[:16]}  {mark}{printable(row['name'] + title)}"
        )
        print_line(line)
    total = format_size(sum(each.size for each in shown))
    click.echo(
        f"{len(shown):,} found, {total}; no file was {'brought in' if titles else 'opened'}. "
        "Bring in: palaver import --discover WHICH (numbers, programs, names), or --all",
        err=True,
    )


def _known(found: Iterable[FoundTranscript], how: _Discovering) -> set[Path]:
    """Return what the store has already; a store that is not there has nothing."""
    try:
        with use_store(how.address) as store:
            return {each.path for each in found if is_brought_in(store, each)}
    except (click.ClickException, OSError):
        return set()


def format_size(size: int) -> str:
    """Return a number of bytes as people read it.

    >>> format_size(900), format_size(2_500_000)
    ('900 B', '2.5 MB')
    """
    amount, units = float(size), ["B", "kB", "MB", "GB"]
    while amount >= 999.5 and len(units) > 1:  # noqa: PLR2004 - below, three digits do
        amount /= 1000
        units.pop(0)
    return f"{amount:.0f} {units[0]}" if units[0] == "B" else f"{amount:.1f} {units[0]}"


def _bring_in(find: Callable[[], Iterable[FoundTranscript]], how: _Discovering) -> None:
    with use_store(how.address, create=True) as store:
        if how.watch:
            _watch(store, find, how)
            return
        counts: Counter[str] = Counter()
        lost = 0
        for found in find():
            for result in bring_in(store, found, owner=how.owner):
                counts[result.action] += 1
                lost += count_losses(result.notes)
                _print_brought_in(result, how)
    if not how.as_json:
        said = ", ".join(f"{count:,} {action}" for action, count in counts.items())
        more = f"; {lost:,} things lost, which `palaver import FILE` lists" if lost else ""
        click.echo(f"{said or 'nothing was said in them'}{more}", err=True)
    if counts["failed"]:
        click.get_current_context().exit(REFUSED)


def _watch(store: Store, find: Callable[[], Iterable[FoundTranscript]], how: _Discovering) -> None:
    follower = Follower(store, find, owner=how.owner)
    try:
        while True:
            begun, idle = time.monotonic(), True
            for result in follower.look():
                idle = False
                _print_brought_in(result, how)
            # where a look at nothing new takes long, there are very many files: look less often
            took = _REST * (time.monotonic() - begun) if idle else 0
            time.sleep(max(how.every, took))
    except KeyboardInterrupt:
        click.echo("stopped; the same command goes on from here", err=True)


def _print_brought_in(result: BroughtIn, how: _Discovering) -> None:
    if how.as_json:
        rest = {name: item for name, item in result._asdict().items() if name != "notes"}
        print_json(
            {**rest, "path": printable_path(str(result.path)), "lost": count_losses(result.notes)}
        )
    elif result.action == "failed":
        click.echo(f"palaver: {display_name(str(result.path))}: {result.detail}", err=True)
    elif result.action != "unchanged":
        more = f" ({result.detail})" if result.detail else ""
        title = f"  {result.title}" if result.title else ""
        text = f"{result.conversation}  {result.action} +{result.added}{more}{title}"
        print_line(printable(text))
