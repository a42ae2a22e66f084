"""`palaver convert FILE --to FORMAT`: a conversation in another format, and what that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from palaver.cli.manners import REFUSED, Refused, json_option, name_of, say, styled
from palaver.cli.reporting import report_option, strict_option, tell, write_json
from palaver.cli.sources import (
    chosen,
    conversation_option,
    from_option,
    opened_source,
    origin_of,
    source_argument,
)
from palaver.cli.stored import put_json
from palaver.wire.conversions import OURS, TARGETS, converted
from palaver.wire.report import are_lost
from palaver.wire.transcripts.files import readings

if TYPE_CHECKING:
    from palaver.wire.conversions import Converted

__all__ = ["convert"]


@click.command(short_help="Convert a conversation to another format.")
@source_argument
@click.option(
    "--to", "form", type=click.Choice(TARGETS), required=True, help="The format to write."
)
@from_option
@conversation_option
@click.option("--model", metavar="NAME", help="The model that shall read it.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    default="-",
    metavar="FILE",
    help="Where to write it; by default to standard output.",
)
@report_option
@strict_option
@json_option
def convert(  # noqa: PLR0917 - one for each option
    file: str,
    form: str,
    named: str | None,
    wanted: str | None,
    model: str | None,
    output: str,
    report: str | None,
    *,
    strict: bool,
    as_json: bool,
) -> None:
    """Convert the conversation in FILE to another format.

    FILE is a request to a provider, messages or a snapshot of palaver's, a transcript of Claude
    Code, Codex CLI, opencode or llm, or a log of requests; its content tells. What had to be
    repaired and what could not be carried is listed on standard error. A conversation is written
    as far as it went: it may end with an answer.

    With --json the answer is one object: the report, and what was made as "result" unless --output
    takes it.
    """
    if form == OURS and model is not None:
        msg = "--model goes with a provider's format"
        raise click.UsageError(msg)
    with opened_source(file) as path:
        origin = origin_of(path, named, file)
        reading = chosen(readings(path, origin), wanted, file)
    made = converted(reading, origin, form, model)
    answer = {"from": origin, "to": form, **made.report(reading)}
    if report is not None:
        write_json(report, answer)
    lost = are_lost(made.notes) if strict else 0
    if as_json:
        _put(answer, made, output, refused=bool(lost))
    else:
        tell(made.notes, name_of(file))
    if lost:
        if as_json:
            click.get_current_context().exit(REFUSED)
        msg = f"{lost:,} thing{' is' if lost == 1 else 's are'} lost and --strict: nothing written"
        raise Refused(msg)
    if not as_json:
        write_json(output, made.result)
        if output != "-":
            size = len(reading.messages)
            count = f"{size:,} message{'' if size == 1 else 's'}"
            say(f"{styled(click.format_filename(output), bold=True)}: {count} as {form}")


def _put(answer: dict[str, Any], made: Converted, output: str, *, refused: bool) -> None:
    if refused:
        put_json(answer)
    elif output == "-":
        put_json({**answer, "result": made.result})
    else:
        write_json(output, made.result)
        put_json({**answer, "file": output})
