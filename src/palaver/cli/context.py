"""`palaver context FILE --agent NAME`: what an agent would be shown now, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from palaver.cli.manners import (
    Refused,
    file_argument,
    json_option,
    name_of,
    open_input,
    printable,
    say,
    styled,
)
from palaver.cli.stored import put_json
from palaver.context import MAX_BYTES, WINDOW, ContextManager
from palaver.context.retracing import Known, prompt_before
from palaver.messages import MAX_DOCUMENT
from palaver.stores import open_store
from palaver.stores.snapshots import import_conversation

if TYPE_CHECKING:
    from palaver.context import Explanation, Prompt, Visibility
    from palaver.history import History

__all__ = ["context"]

_REASONS: Final = {
    "current": "the current message",
    "fits": "within the window",
    "duplicate": "repeats the current message",
    "bytes": "no room: bytes",
    "tokens": "no room: tokens",
    "role": "no line of context",
    "erased": "erased",
    "no text": "has no text",
    "not addressed": "addressed to others",
}


@click.command(short_help="Print what an agent would be shown, and why.")
@file_argument
@click.option("--agent", required=True, metavar="NAME", help="Whose turn it is: its id or name.")
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
@click.option("--explain", is_flag=True, help="Say of each message in reach what became of it.")
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
    *,
    explain: bool,
    as_json: bool,
) -> None:
    """Print what an agent would be shown now, of the snapshot (version 1 or 2) in FILE.

    Prints contextMessages, currentMessage, teamTask, maxBytes, prompt and systemFlag. With
    --explain it says of each message in reach whether it is kept, why, and how large it is, and
    what has changed since the prompt that the agent had before it last spoke.
    """
    with open_input(file) as (stream, _), open_store(":memory:") as store:
        history: History = import_conversation(store, stream)
        who = Known(history.messages, agent)
        options: dict[str, Any] = {
            "agent_type": agent_type or who.agent_type,
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
        prompt = ContextManager(history, **limits).prompt_for(who.id, **options)
        told = None
        if explain:
            told = prompt.explain(since=prompt_before(who, history, limits, options))
    if as_json:
        put_json({**_answer(prompt), **({} if told is None else {"explain": told.to_dict()})})
        return
    _show(_answer(prompt))
    if told is not None:
        _show_why(told)


def _read(file: str) -> str:
    with open_input(file) as (stream, _):
        data = stream.read(MAX_DOCUMENT)
    try:
        return data.decode()
    except UnicodeDecodeError as wrong:
        msg = f"{name_of(file)} is not UTF-8 at byte {wrong.start}"
        raise Refused(msg) from None


def _answer(prompt: Prompt) -> dict[str, Any]:
    given = prompt.input.to_dict()
    return {
        "contextMessages": given["contextMessages"],
        "currentMessage": given["currentMessage"],
        "teamTask": given["teamTask"],
        "maxBytes": given["maxBytes"],
        "prompt": prompt.prompt,
        "systemFlag": prompt.system_flag,
    }


def _show(answer: dict[str, Any]) -> None:
    say(styled("contextMessages", bold=True))
    for line in answer["contextMessages"]:
        say(f"  {styled(line['from'], fg='green')} -> {styled(line['to'])}")
        _lines(line["content"], "    ")
    for name in ("currentMessage", "teamTask", "maxBytes", "prompt", "systemFlag"):
        say(styled(name, bold=True))
        value = answer[name]
        _lines("(none)" if value is None else str(value), "  ")


def _lines(text: str, before: str) -> None:
    for line in text.split("\n"):
        say(f"{before}{printable(line)}".rstrip())


def _show_why(told: Explanation) -> None:
    limit = "" if told.max_tokens is None else f" of {told.max_tokens:,}"
    say(styled("explain", bold=True))
    say(f"  {told.bytes:,} of {told.max_bytes:,} bytes, {told.tokens:,}{limit} tokens")
    for part in told.parts:
        say(f"  {part.bytes:>9,}  {part.tokens:>8,}  {styled(part.name)}")
    for entry in told.entries:
        verdict = styled(
            "kept   " if entry.kept else "dropped", fg="green" if entry.kept else "red"
        )
        who = styled(f"{entry.handle or entry.id} {entry.from_} -> {entry.to}")
        why = styled(_REASONS[entry.reason], dim=True)
        say(f"  {entry.bytes:>9,}  {entry.tokens:>8,}  {verdict}  {who}: {why}")
    say(f"  {told.older:,} older")
    if told.since is not None:
        since = told.since
        say(
            f"  since its previous prompt: {len(since.added):,} new, {len(since.gone):,} gone, "
            f"{len(since.stayed):,} stayed, {since.bytes:+,} bytes"
        )
