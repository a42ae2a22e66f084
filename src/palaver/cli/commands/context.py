"""`palaver context FILE --agent NAME`: the prompt that an agent would get now, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from palaver.cli.app import (
    Refused,
    display_name,
    file_argument,
    json_option,
    open_input,
    print_line,
    printable,
    styled,
)
from palaver.cli.output import print_json
from palaver.context import ASSEMBLERS, MAX_BYTES, WINDOW, ContextManager, normalize_agent_type
from palaver.context.assemblers import PLAIN_TYPE
from palaver.context.manager import KnownAgent, previous_prompt, prompt_at_turn
from palaver.messages.codec import MAX_DOCUMENT
from palaver.stores import open_store
from palaver.stores.transfer import import_conversation

if TYPE_CHECKING:
    from palaver.context import Prompt, PromptExplanation, Visibility
    from palaver.history import BaseHistory

__all__ = ["context", "print_explanation", "print_prompt", "prompt_json"]


_REASONS: Final = {
    "current": "the current message",
    "fits": "within the window",
    "duplicate": "repeats the current message",
    "bytes": "no room: bytes",
    "tokens": "no room: tokens",
    "role": "no line of context",
    "erased": "erased",
    "no text": "no text for a model",
    "not addressed": "addressed to others",
}


@click.command(short_help="Print the prompt of an agent, and why it is so.")
@file_argument
@click.option("--agent", required=True, metavar="NAME", help="The agent: its id or its name.")
@click.option(
    "--type",
    "agent_type",
    metavar="TYPE",
    help="claude, codex, gemini or plain; by default what the file says of the agent, else plain.",
)
@click.option(
    "--window",
    type=click.IntRange(min=0),
    default=WINDOW,
    show_default=True,
    help="How many messages before the current one.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(min=0),
    default=MAX_BYTES,
    show_default=True,
    help="How many bytes prompt and system flag may have together.",
)
@click.option("--max-tokens", type=click.IntRange(min=0), help="The same in tokens.")
@click.option(
    "--visibility",
    type=click.Choice(["all", "addressed"]),
    default="all",
    show_default=True,
    help="Show everything, or what the agent sent, what is addressed to it, and what is to all.",
)
@click.option("--system", "system", metavar="TEXT", help="The system instruction.")
@click.option(
    "--instructions",
    type=click.Path(exists=True, dir_okay=False, readable=True),
    metavar="FILE",
    help="A file whose text follows the system instruction.",
)
@click.option(
    "--turn",
    type=click.IntRange(min=1),
    help="Print the prompt that the agent had at this turn of its own.  [the next one]",
)
@click.option("--explain", is_flag=True, help="Say of each message whether it is in the prompt.")
@json_option
def context(  # noqa: PLR0917 - click passes options by name
    file: str,
    agent: str,
    agent_type: str | None,
    window: int,
    max_bytes: int,
    max_tokens: int | None,
    visibility: Visibility,
    system: str | None,
    instructions: str | None,
    turn: int | None,
    *,
    explain: bool,
    as_json: bool,
) -> None:
    """Print the prompt that an agent would get now, of the snapshot (version 1 or 2) in FILE.

    Prints contextMessages, currentMessage, teamTask, maxBytes, prompt and systemFlag. With
    --explain it says of each message in the window whether it is in the prompt, why, and how large
    it is, and what has changed since the prompt that the agent had before it last spoke.
    """
    with open_input(file) as (stream, _), open_store(":memory:") as store:
        history: BaseHistory = import_conversation(store, stream)
        who = KnownAgent(history.messages, agent)
        kind = agent_type or who.agent_type
        if normalize_agent_type(kind) not in ASSEMBLERS:
            types = "claude, codex, gemini and plain"
            warning = f'Unknown agentType "{kind}", using plain; there are {types}'
            click.echo(printable(f"palaver: {warning}"), err=True)
            kind = PLAIN_TYPE
        options: dict[str, Any] = {
            "agent_type": kind,
            "name": who.name,
            "system_instruction": system,
            "instruction_file_text": None if instructions is None else _read(instructions),
        }
        limits: dict[str, Any] = {
            "window": window,
            "max_bytes": max_bytes,
            "max_tokens": max_tokens,
            "visibility": visibility,
        }
        if turn is None:
            prompt = ContextManager(history, **limits).prompt_for(who.id, **options)
            before = previous_prompt(who, history, limits, options) if explain else None
        else:
            prompt = prompt_at_turn(who, history, turn, limits, options)
            before = None
        explanation = prompt.explain(since=before) if explain else None
    if as_json:
        print_json(
            {
                **prompt_json(prompt),
                **({} if explanation is None else {"explain": explanation.to_dict()}),
            }
        )
        return
    print_prompt(prompt_json(prompt))
    if explanation is not None:
        print_explanation(explanation)


def _read(file: str) -> str:
    with open_input(file) as (stream, _):
        data = stream.read(MAX_DOCUMENT)
    try:
        return data.decode()
    except UnicodeDecodeError as wrong:
        msg = f"{display_name(file)} is not UTF-8 at byte {wrong.start}"
        raise Refused(msg) from None


def prompt_json(prompt: Prompt) -> dict[str, Any]:
    """The prompt as JSON-ready data."""
    given = prompt.input.to_dict()
    return {
        "contextMessages": given["contextMessages"],
        "currentMessage": given["currentMessage"],
        "teamTask": given["teamTask"],
        "maxBytes": given["maxBytes"],
        "prompt": prompt.prompt,
        "systemFlag": prompt.system_flag,
    }


def print_prompt(answer: dict[str, Any]) -> None:
    """Print a prompt, section by section."""
    print_line(styled("contextMessages", bold=True))
    for line in answer["contextMessages"]:
        print_line(f"  {styled(line['from'], fg='green')} -> {styled(line['to'])}")
        _print_lines(line["content"], "    ")
    for name in ("currentMessage", "teamTask", "maxBytes", "prompt", "systemFlag"):
        print_line(styled(name, bold=True))
        value = answer[name]
        _print_lines("(none)" if value is None else str(value), "  ")


def _print_lines(text: str, before: str) -> None:
    for line in text.split("\n"):
        print_line(f"{before}{printable(line)}".rstrip())


def print_explanation(explanation: PromptExplanation) -> None:
    """Print why a prompt is as it is."""
    limit = "" if explanation.max_tokens is None else f" of {explanation.max_tokens:,}"
    print_line(styled("explain", bold=True))
    sizes = f"{explanation.bytes:,} of {explanation.max_bytes:,} bytes"
    print_line(f"  {sizes}, {explanation.tokens:,}{limit} tokens")
    for part in explanation.parts:
        print_line(f"  {part.bytes:>9,}  {part.tokens:>8,}  {styled(part.name)}")
    for entry in explanation.entries:
        verdict = styled(
            "kept   " if entry.kept else "dropped", fg="green" if entry.kept else "red"
        )
        who = styled(f"{entry.handle or entry.id} {entry.from_} -> {entry.to}")
        why = styled(_REASONS[entry.reason], dim=True)
        print_line(f"  {entry.bytes:>9,}  {entry.tokens:>8,}  {verdict}  {who}: {why}")
    print_line(f"  {explanation.older:,} older")
    if explanation.since is not None:
        since = explanation.since
        print_line(
            f"  since its previous prompt: {len(since.added):,} new, {len(since.gone):,} gone, "
            f"{len(since.stayed):,} stayed, {since.bytes:+,} bytes"
        )
