"""`palaver doctor FILE`: what a provider would refuse in a history, and a history that it takes.

Nothing is judged twice: what `palaver.wire` has to repair before it may send a history is what the
provider would refuse in it. The repaired history is what was sent, read back.
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
from palaver.cli.manners import REFUSED, json_option, name_of, styled
from palaver.cli.mended import mended
from palaver.cli.reporting import tell, write_json
from palaver.cli.sources import (
    chosen,
    conversation_option,
    from_option,
    opened_source,
    origin_of,
    source_argument,
)
from palaver.cli.stored import put_json
from palaver.messages import ModelRef, to_dict
from palaver.messages.gate import EMPTY, is_list
from palaver.messages.ids import NIL_ID
from palaver.wire import Target
from palaver.wire.reading import Source
from palaver.wire.refusals import OTHERWISE, REFUSALS, is_refused
from palaver.wire.transcripts.files import readings
from palaver.wire.transcripts.gathering import Notes
from palaver.wire.transcripts.lines import load_value

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from palaver.wire import Note, Reading, Request

__all__ = ["doctor"]

_MAKERS: Final = {"anthropic": "anthropic", "openai": "openai-responses", "google": "gemini"}
"""The format in which a conversation goes on with the provider that made it."""


@click.command(short_help="Say what a provider would refuse in a history, and repair it.")
@source_argument
@click.option(
    "--for", "form", type=click.Choice(tuple(wire.FORMATS)), help="The format to judge it by."
)
@click.option("--model", metavar="NAME", help="The model that shall go on with it.")
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
    file: str,
    form: str | None,
    model: str | None,
    named: str | None,
    wanted: str | None,
    output: str | None,
    *,
    as_json: bool,
) -> None:
    """Say what a provider would refuse in the history in FILE: where, by which rule, in words.

    Without --for, a request is judged as what it is, another history as its last answer's provider
    would, and by all formats where nothing tells. A history other than a request may end with an
    answer.

    With --output, a request is written as a repaired request, and any other history as palaver's
    messages. The exit status is 0 where nothing is wrong and 1 where something is.
    """
    with opened_source(file) as path:
        origin = origin_of(path, named, file)
        reading = chosen(readings(path, origin), wanted, file)
        patient = _Patient(reading, origin, _body(path, origin))
    forms = [form] if form else patient.forms()
    if output is not None and len(forms) > 1:
        msg = "--output needs --for: nothing in FILE tells whose history it is"
        raise click.UsageError(msg)
    findings = [patient.examined(each, model) for each in forms]
    problems = _joined(findings)
    if output is not None:
        write_json(output, findings[0].repaired)
    if as_json and output != "-":
        rows = [to_dict(problem) for problem in problems]
        where = {} if output is None else {"file": output}
        put_json({"from": origin, "for": forms, "problems": rows, **where})
    elif not as_json:
        tell([note for note in reading.notes if note.where.startswith("line ")], name_of(file))
        _say(problems, name_of(file), forms, aside=output == "-")
    context.exit(REFUSED if problems else 0)


def _say(problems: list[Problem], name: str, forms: list[str], *, aside: bool) -> None:
    """Say it to a person; where standard output is the history, on standard error."""
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


class Problem(Struct, frozen=True, rename="camel"):
    """One thing that a provider would refuse, and what mends it."""

    where: str
    rule: str
    refused: str
    repair: str
    formats: tuple[str, ...] = ()


class _Examined(Struct, frozen=True):
    form: str
    problems: list[Problem]
    repaired: Any


def _joined(findings: list[_Examined]) -> list[Problem]:
    """Each problem once, with all the formats that have it, in the words of the first."""
    who: dict[tuple[str, str, int], list[str]] = {}
    first: dict[tuple[str, str, int], Problem] = {}
    for finding in findings:
        seen = Counter[tuple[str, str]]()
        for problem in finding.problems:
            spot = (problem.where, problem.rule)
            key = (*spot, seen[spot])
            seen[spot] += 1
            first.setdefault(key, problem)
            who.setdefault(key, []).append(finding.form)
    found = [replace(problem, formats=tuple(who[key])) for key, problem in first.items()]
    return sorted(found, key=_in_order)


def _in_order(problem: Problem) -> tuple[list[int], int]:
    """By the numbers in a place (the system text comes first, the end last), then by the rule."""
    numbers = [int(number) for number in re.findall(r"\[(\d+)\]", problem.where)]
    rules = list(REFUSALS)
    rank = rules.index(problem.rule) if problem.rule in rules else len(rules)
    return numbers or [sys.maxsize if problem.where == "end" else -1], rank


class _Patient:
    """A history to examine; `body` is the request that it was, where it was one."""

    def __init__(self, reading: Reading, origin: str, body: Mapping[str, Any] | None) -> None:
        self._reading = reading
        self._origin = origin
        self._body = body
        made = [getattr(message.info, "model", None) for message in reading.messages]
        self._last: ModelRef | None = next((model for model in reversed(made) if model), None)
        self._places = self._spots()

    def forms(self) -> list[str]:
        """The formats to judge by, where none is named."""
        if self._body is not None:
            return [self._origin]
        maker = self._last.provider_id if self._last else None
        return [_MAKERS[maker]] if maker in _MAKERS else list(wire.FORMATS)

    def examined(self, form: str, model: str | None) -> _Examined:
        """What stands between the history and a provider."""
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
            repaired: Any = [to_dict(each) for each in mended(reading.messages, request, reader)]
            return _Examined(form, problems, repaired)
        settings = to_dict(reading.about.get("request", EMPTY)) if home else {}
        if home and not problems:
            problems = self._differences(request)
        return _Examined(form, problems, {**settings, **request.body})

    def _differences(self, request: Request) -> list[Problem]:
        """What nobody noted: the first place where palaver would write something else."""
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
                return [Problem(where, "shape", OTHERWISE, detail)]
        return []

    def _problem(self, note: Note) -> Problem:
        refused = REFUSALS.get(note.rule, OTHERWISE)
        where = self._places.get(note.where, note.where)
        return Problem(where, note.rule, refused, note.detail)

    def _spots(self) -> dict[str, str]:
        """Where in FILE a message is, by the words that notes have for the place."""
        messages = self._reading.messages
        spots = {f"message {each.id}": f"messages[{at}]" for at, each in enumerate(messages)}
        if self._body is None:
            return spots
        form = wire.FORMATS[self._origin]
        source = Source(form, session=NIL_ID, model=None, names={})
        form.read(self._body, source)
        for at, place in enumerate(source.places[: len(messages)]):
            spot = f"$.{form.heads[0]}" if place < 0 else f"$.{form.items}[{place}]"
            spots[f"messages[{at}]"] = spots[f"message {messages[at].id}"] = spot
        if form.heads:
            spots[f"$.{form.items}[-1]"] = f"$.{form.heads[0]}"
        spots["end"] = f"$.{form.items}[{len(self._body[form.items]) - 1}]"
        return spots


def _body(path: Path, origin: str) -> Mapping[str, Any] | None:
    """The request in a file, in the spelling that its format is read in."""
    if origin not in wire.FORMATS:
        return None
    form = wire.FORMATS[origin]
    body: Any = load_value(path.read_bytes(), "$", Notes())
    if is_list(body):
        body = {form.items: body}
    if isinstance(body.get(form.items), str):
        body = {**body, form.items: [{"role": "user", "content": body[form.items]}]}
    return form.spelled_out(body)
