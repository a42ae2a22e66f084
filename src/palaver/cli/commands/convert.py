"""`palaver convert FILE --to FORMAT`: convert a conversation, and report what was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from palaver.cli.app import REFUSED, Refused, display_name, json_option, print_line, styled
from palaver.cli.options import (
    choose_conversation,
    conversation_option,
    detect_format,
    from_option,
    open_source,
    source_argument,
)
from palaver.cli.output import print_json, print_notes, report_option, strict_option, write_json
from palaver.transcripts.readers import read_file
from palaver.wire.convert import PALAVER, TARGETS
from palaver.wire.convert import convert as convert_document
from palaver.wire.notes import count_losses

if TYPE_CHECKING:
    from palaver.wire.convert import ConversionResult

__all__ = ["convert"]


@click.command(short_help="Convert a conversation to another format.")
@source_argument
@click.option(
    "--to", "form", type=click.Choice(TARGETS), required=True, help="The format to write."
)
@from_option
@conversation_option
@click.option("--model", metavar="NAME", help="The model that will read it.")
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
    Code, Codex CLI, Gemini CLI, Copilot CLI, ChatGPT, opencode or llm, or a log of requests; the
    format is detected. What had to be repaired and what was lost is listed on standard error. A
    conversation may end with an answer.

    With --json the output is one object: the report, and the document as "result" unless --output
    is given.
    """
    if form == PALAVER and model is not None:
        msg = "--model goes with a provider's format"
        raise click.UsageError(msg)
    with open_source(file) as path:
        origin = detect_format(path, named, file)
        reading = choose_conversation(read_file(path, origin), wanted, file)
    made = convert_document(reading, origin, form, model)
    answer = {"from": origin, "to": form, **made.report(reading)}
    if report is not None:
        write_json(report, answer)
    lost = count_losses(made.notes) if strict else 0
    if as_json:
        _print_result(answer, made, output, refused=bool(lost))
    else:
        print_notes(made.notes, display_name(file))
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
            print_line(f"{styled(click.format_filename(output), bold=True)}: {count} as {form}")


def _print_result(
    answer: dict[str, Any], made: ConversionResult, output: str, *, refused: bool
) -> None:
    if refused:
        print_json(answer)
    elif output == "-":
        print_json({**answer, "result": made.result})
    else:
        write_json(output, made.result)
        print_json({**answer, "file": output})
