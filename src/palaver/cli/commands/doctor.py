"""`palaver doctor`: report what a provider would refuse in a history, or what a store runs on.

The rules are those of `palaver.wire`: what it has to repair before it sends a history is what the
provider would refuse. The repaired history is the converted request, read back. Of a store it says
which server and nodes it is on, and what is missing there.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import Struct
from msgspec.structs import replace

from palaver import wire
from palaver.cli.app import REFUSED, display_name, json_option, print_line, styled
from palaver.cli.options import (
    choose_conversation,
    conversation_option,
    detect_format,
    from_option,
    open_source,
    use_store,
)
from palaver.cli.output import print_json, print_notes, write_json
from palaver.messages import (
    ModelRef,
    to_dict,
)
from palaver.messages.ids import NIL_ID
from palaver.messages.limits import EMPTY, is_list
from palaver.transcripts.readers import read_file
from palaver.transcripts.sources import load_value
from palaver.wire import Target
from palaver.wire.notes import OTHER_REFUSAL, REFUSALS, NoteCollector, is_refused
from palaver.wire.repair import repair as repair_history
from palaver.wire.request import BodyReader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from palaver.wire import Note, ParsedConversation, Request

__all__ = ["doctor"]


_MAKERS: Final = {"anthropic": "anthropic", "openai": "openai-responses", "google": "gemini"}
"""The format in which a conversation goes on with the provider that made it."""


@click.command(short_help="Report what a provider would refuse, or what a store runs on.")
@click.argument(
    "file", type=click.Path(exists=True, readable=True, allow_dash=True), required=False
)
@click.option("--store", "address", metavar="FILE|URL", help="Look at a store instead.")
@click.option(
    "--for", "form", type=click.Choice(tuple(wire.FORMATS)), help="The format to check against."
)
@click.option("--model", metavar="NAME", help="The model that will continue it.")
@from_option
@conversation_option
@click.option(
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write a repaired history there.",
)
@json_option
@click.pass_context
def doctor(  # noqa: PLR0917 - one for each option
    context: click.Context,
    file: str | None,
    address: str | None,
    form: str | None,
    model: str | None,
    named: str | None,
    wanted: str | None,
    output: str | None,
    *,
    as_json: bool,
) -> None:
    """Report what a provider would refuse in the history in FILE, with its place and rule.

    Without --for, a request is checked against its own format, another history against that of the
    provider of its last answer, or against all formats if none is known. A history other than a
    request may end with an answer.

    With --output, a request is written as a repaired request, and any other history as palaver's
    messages. The exit status is 0 if nothing is wrong, and else 1.

    With --store it says what a store runs on instead of reading FILE: the server, the nodes of its
    cluster, the number of shards, and what is missing there.
    """
    if address is not None and file is None:
        context.exit(_look_at_store(address, as_json=as_json))
    if file is None or address is not None:
        msg = "give either FILE, a history, or --store, and not both"
        raise click.UsageError(msg)
    with open_source(file) as path:
        origin = detect_format(path, named, file)
        reading = choose_conversation(read_file(path, origin), wanted, file)
        history = _History(reading, origin, _read_body(path, origin))
    forms = [form] if form else history.forms()
    if output is not None and len(forms) > 1:
        msg = "--output needs --for: nothing in FILE tells whose history it is"
        raise click.UsageError(msg)
    findings = [history.examine(each, model) for each in forms]
    problems = _join(findings)
    if output is not None:
        write_json(output, findings[0].repaired)
    if as_json and output != "-":
        rows = [to_dict(problem) for problem in problems]
        where = {} if output is None else {"file": output}
        print_json({"from": origin, "for": forms, "problems": rows, **where})
    elif not as_json:
        print_notes(
            [note for note in reading.notes if note.where.startswith("line ")], display_name(file)
        )
        _print_problems(problems, display_name(file), forms, aside=output == "-")
    context.exit(REFUSED if problems else 0)


def _look_at_store(address: str, *, as_json: bool) -> int:
    """Print what a store runs on; return the exit status."""
    with use_store(address) as store:
        report = store.examine()
    if as_json:
        print_json(to_dict(report))
        return REFUSED if report.missing else 0
    print_line(f"{report.server}, schema {report.schema}")
    if report.citus is not None:
        spread = f"{report.shards:,} shards" if report.distributed else "not distributed"
        print_line(f"{report.citus}, {spread}")
    if report.encrypted:
        print_line("encrypted; search is off")
    for node in report.nodes:
        print_line(f"  {node.role} {node.address}: {node.shards:,} shards")
    if report.pooler:
        print_line("through a pooler: followers poll, since LISTEN needs a connection of its own")
    for problem in report.missing:
        print_line(styled(problem, fg="red"))
    if not report.missing:
        print_line(styled("nothing is missing", fg="green", bold=True))
    return REFUSED if report.missing else 0


def _print_problems(
    problems: list[ProviderProblem], name: str, forms: list[str], *, aside: bool
) -> None:
    """Print the problems; on standard error if standard output is the history."""
    for problem in problems:
        who = f" ({', '.join(problem.formats)})" if len(forms) > 1 else ""
        click.echo(
            f"{styled(name, bold=True)}: {styled(problem.where, fg='cyan')}: "
            f"{styled(problem.refused)}: {styled(problem.repair)} "
            f"{styled(f'[{problem.rule}]', fg='yellow')}{who}",
            err=aside,
            color=not aside,
        )
    count = len(problems)
    verdict = f"{count:,} problem{'' if count == 1 else 's'}" if count else "nothing to refuse"
    style = {"fg": "red" if count else "green", "bold": True}
    line = f"{styled(name, bold=True)}: {styled(verdict, **style)} for {', '.join(forms)}"
    click.echo(line, err=aside, color=not aside)


class ProviderProblem(Struct, frozen=True, rename="camel"):
    """One thing that a provider would refuse, and its repair."""

    where: str
    rule: str
    refused: str
    repair: str
    formats: tuple[str, ...] = ()


class _Examination(Struct, frozen=True):
    form: str
    problems: list[ProviderProblem]
    repaired: Any


def _join(findings: list[_Examination]) -> list[ProviderProblem]:
    """Each problem once, with all formats that have it, and the text of the first."""
    who: dict[tuple[str, str, int], list[str]] = {}
    first: dict[tuple[str, str, int], ProviderProblem] = {}
    for finding in findings:
        seen = Counter[tuple[str, str]]()
        for problem in finding.problems:
            spot = (problem.where, problem.rule)
            key = (*spot, seen[spot])
            seen[spot] += 1
            first.setdefault(key, problem)
            who.setdefault(key, []).append(finding.form)
    found = [replace(problem, formats=tuple(who[key])) for key, problem in first.items()]
    return sorted(found, key=_sort_key)


def _sort_key(problem: ProviderProblem) -> tuple[list[int], int]:
    """Sort by the numbers in a path (the system text first, the end last), then by rule."""
    numbers = [int(number) for number in re.findall(r"\[(\d+)\]", problem.where)]
    rules = list(REFUSALS)
    rank = rules.index(problem.rule) if problem.rule in rules else len(rules)
    return numbers or [sys.maxsize if problem.where == "end" else -1], rank


class _History:
    """A history to examine; `body` is the original request, if it was one."""

    def __init__(
        self, reading: ParsedConversation, origin: str, body: Mapping[str, Any] | None
    ) -> None:
        self._reading = reading
        self._origin = origin
        self._body = body
        made = [getattr(message.info, "model", None) for message in reading.messages]
        self._last: ModelRef | None = next((model for model in reversed(made) if model), None)
        self._places = self._find_places()

    def forms(self) -> list[str]:
        """The formats to check against, if none is named."""
        if self._body is not None:
            return [self._origin]
        maker = self._last.provider_id if self._last else None
        return [_MAKERS[maker]] if maker in _MAKERS else list(wire.FORMATS)

    def examine(self, form: str, model: str | None) -> _Examination:
        """Find what a provider would refuse in the history."""
        reading, provider = self._reading, wire.FORMATS[form].provider
        reader = ModelRef(provider, model) if model is not None else self._last
        if reader is not None and reader.provider_id != provider:
            reader = None
        home = form == self._origin
        target = Target(reader, prefill=self._body is None)
        request = wire.to(form, reading.messages, target)
        found = [note for note in request.notes if is_refused(note, form)]
        if home:
            found += (note for note in reading.notes if note.rule in REFUSALS)
        problems = [self._problem(note) for note in found]
        if self._body is None:
            repaired: Any = [
                to_dict(each) for each in repair_history(reading.messages, request, reader)
            ]
            return _Examination(form, problems, repaired)
        settings = to_dict(reading.about.get("request", EMPTY)) if home else {}
        if home and not problems:
            problems = self._differences(request)
        return _Examination(form, problems, {**settings, **request.body})

    def _differences(self, request: Request) -> list[ProviderProblem]:
        """The first place where palaver would write something else, without a note about it."""
        form, body = wire.FORMATS[self._origin], to_dict(self._body or EMPTY)
        head = {name: body[name] for name in form.heads if name in body}
        pairs = [(f"$.{name}", request.head.get(name), asked) for name, asked in head.items()]
        pairs += (
            (f"$.{form.items}[{at}]", *pair)
            for at, pair in enumerate(zip_longest(request.items, body[form.items]))
        )
        for where, sent, asked in pairs:
            if sent != asked:
                detail = f"is sent as {json.dumps(sent)[:80]}" if sent else "is left out"
                return [ProviderProblem(where, "shape", OTHER_REFUSAL, detail)]
        return []

    def _problem(self, note: Note) -> ProviderProblem:
        refused = REFUSALS.get(note.rule, OTHER_REFUSAL)
        where = self._places.get(note.where, note.where)
        return ProviderProblem(where, note.rule, refused, note.detail)

    def _find_places(self) -> dict[str, str]:
        """The path in FILE of each place that notes name."""
        messages = self._reading.messages
        spots = {f"message {each.id}": f"messages[{at}]" for at, each in enumerate(messages)}
        if self._body is None:
            return spots
        form = wire.FORMATS[self._origin]
        source = BodyReader(form, session=NIL_ID, model=None, names={})
        form.read(self._body, source)
        for at, place in enumerate(source.positions[: len(messages)]):
            spot = f"$.{form.heads[0]}" if place < 0 else f"$.{form.items}[{place}]"
            spots[f"messages[{at}]"] = spots[f"message {messages[at].id}"] = spot
        if form.heads:
            spots[f"$.{form.items}[-1]"] = f"$.{form.heads[0]}"
        spots["end"] = f"$.{form.items}[{len(self._body[form.items]) - 1}]"
        return spots


def _read_body(path: Path, origin: str) -> Mapping[str, Any] | None:
    """The request in a file, normalised as its format is read."""
    if origin not in wire.FORMATS:
        return None
    form = wire.FORMATS[origin]
    body: Any = load_value(path.read_bytes(), "$", NoteCollector())
    if is_list(body):
        body = {form.items: body}
    if isinstance(body.get(form.items), str):
        body = {**body, form.items: [{"role": "user", "content": body[form.items]}]}
    return form.normalize(body)
