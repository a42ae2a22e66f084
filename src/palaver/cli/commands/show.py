"""`palaver list`, `show`, `log` and `diff`: conversations, their messages and their versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from palaver.cli.app import json_option, print_line, printable, styled
from palaver.cli.options import (
    conversation_argument,
    find_conversation,
    owner_option,
    store_option,
    use_store,
)
from palaver.cli.output import format_message, format_time, print_json
from palaver.messages import to_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.conversation.runs import RunCall, RunPage, RunStep
    from palaver.history import View
    from palaver.stores import Store
    from palaver.stores.records import Head, JournalEntry

__all__ = ["list_", "log", "show"]


@click.command("list", short_help="List conversations, the latest changed first.")
@click.option("--limit", type=click.IntRange(min=1), default=50, help="How many.  [50]")
@click.option("--after", metavar="CURSOR", help="Continue after a page: its `next`.")
@click.option("--tag", help="Only those with this tag.")
@owner_option("Only those of this owner.")
@store_option
@json_option
def list_(
    limit: int,
    after: str | None,
    tag: str | None,
    owner: str | None,
    address: str | None,
    *,
    as_json: bool,
) -> None:
    """List the conversations of a store: id, last change, messages, title, tags and owner."""
    if after is not None and not after.partition(":")[0].isdecimal():
        msg = f"{after!r} is not where a page ended"
        raise click.BadParameter(msg, param_hint="--after")
    with use_store(address) as store:
        page = store.list(after=after, limit=limit, tag=tag, owner=owner)
    if as_json:
        heads = [_head_json(head) for head in page.conversations]
        print_json({"conversations": heads, "next": page.next})
        return
    for head in page.conversations:
        print_line(_format_head(head))
    if page.next is not None:
        print_line(styled(f"more: --after {page.next}", dim=True))


def _head_json(head: Head) -> dict[str, Any]:
    return {
        "id": head.id,
        "version": head.version,
        "messages": head.size,
        "title": head.title,
        "tags": list(head.tags),
        "created": head.created,
        "updated": head.updated,
        "parent": head.parent,
        "owner": head.owner,
    }


def _format_head(head: Head) -> str:
    tags = "".join(f" #{tag}" for tag in head.tags)
    tags += f" @{head.owner}" if head.owner is not None else ""
    return (
        f"{styled(head.id, bold=True)}  {styled(format_time(head.updated), dim=True)}  "
        f"{head.size:>7,}  {styled(head.title or '')}{styled(tags, fg='cyan')}"
    )


_PAGE = 500


@click.command(short_help="Show a conversation.")
@conversation_argument
@click.option("--at", type=click.IntRange(min=0), metavar="VERSION", help="As it was then.")
@click.option("--recent", type=click.IntRange(min=0), metavar="N", help="Only the last N.")
@click.option("--runs", is_flag=True, help="The requests and tool calls of each turn instead.")
@store_option
@json_option
def show(
    conversation: str,
    at: int | None,
    recent: int | None,
    address: str | None,
    *,
    runs: bool,
    as_json: bool,
) -> None:
    """Show the messages of a conversation: index, time, role, text and marks.

    With --runs, show what it did instead: each request to a model and each tool call, with its
    time, its tokens and its cost as they are stored.
    """
    with use_store(address) as store:
        history = find_conversation(store, conversation)
        view = history.view if at is None else history.at(at)
        if runs:
            page = _read_runs(store, history.id, view, recent)
            if as_json:
                print_json(msgspec.to_builtins(page))
            else:
                _print_runs(page)
            return
        start = 0 if recent is None else max(len(view) - recent, 0)
        messages = view[start:]
        marks = _marks_by_message(view)
        if as_json:
            print_json(
                {
                    "id": history.id,
                    "title": history.title,
                    "tags": list(history.tags),
                    "owner": history.owner,
                    "version": view.version,
                    "batchIndex": view.batch_index,
                    "teamTask": view.team_task,
                    "messages": [to_dict(message) for message in messages],
                    "marks": {name: list(ids) for name, ids in view.marks.items()},
                }
            )
            return
        title = f"  {printable(history.title)}" if history.title else ""
        print_line(styled(f"{history.id}{title}  (version {view.version})", bold=True))
        if view.team_task is not None:
            print_line(
                f"{styled('team task', bold=True)}  {styled(' '.join(view.team_task.split()))}"
            )
        for index, message in enumerate(messages, start):
            after = "".join(f"  [{name}]" for name in marks.get(message.id, ()))
            print_line(format_message(message, before=f"{index:>6}  ", after=after))


def _read_runs(store: Store, name: str, view: View, recent: int | None) -> RunPage:
    from palaver.conversation.ledger import CALL, read_ledger  # noqa: PLC0415 - loads models
    from palaver.conversation.runs import read_runs  # noqa: PLC0415 - the same

    ledger = read_ledger(store.records(name, CALL))
    return read_runs(view, ledger, limit=len(view) if recent is None else recent)


def _print_runs(page: RunPage) -> None:
    """Print each turn with its requests and their calls, one line each."""
    for turn in page.turns:
        text = styled(turn.text, bold=True)
        print_line(f"{turn.start:>6}  {styled(format_time(turn.at), dim=True)}  {text}")
        for step in turn.steps:
            print_line(f"{step.index:>6}    {_format_step(step)}")
            for call in step.calls:
                print_line(_format_call(call))
        for call in turn.results:
            print_line(_format_call(call))


def _format_step(step: RunStep) -> str:
    tokens = step.tokens
    facts = [_format_span(step.start, step.end)]
    if tokens is not None:
        facts.append(f"{tokens.prompt:,} in, {tokens.completion:,} out")
        facts += [f"{tokens.cache.read:,} cached"] if tokens.cache.read else []
    if step.cost is not None:
        facts.append(f"{'≈ ' if step.cost_computed else ''}${step.cost:.4f}")
    facts += [f"{len(step.retries)} retried"] if step.retries else []
    facts += [step.outcome] if step.outcome != "finished" else []
    facts += [printable(step.error)] if step.error else []
    return f"{styled(step.model or step.agent or 'answer', fg='green')}  {'  '.join(facts)}"


def _format_call(call: RunCall) -> str:
    index = "" if call.index is None else str(call.index)
    error = f"  {printable(call.error)}" if call.error else ""
    span = _format_span(call.start, call.end)
    return f"{index:>6}      {styled(call.tool, fg='yellow')}  {span}  {call.status}{error}"


def _format_span(start: int | None, end: int | None) -> str:
    """How long something took, if that is stored."""
    return "? s" if start is None or end is None else f"{(end - start) / 1000:.1f} s"


def _marks_by_message(view: View) -> dict[str, list[str]]:
    """The marks of each message, by its id."""
    marks: dict[str, list[str]] = {}
    for name, ids in view.marks.items():
        for message_id in ids:
            marks.setdefault(message_id, []).append(name)
    return marks


@click.command(short_help="Show the versions of a conversation.")
@conversation_argument
@click.option("--recent", type=click.IntRange(min=0), metavar="N", help="Only the last N.")
@store_option
@json_option
def log(conversation: str, recent: int | None, address: str | None, *, as_json: bool) -> None:
    """Show every version of a conversation: number, time, kind of change, messages added."""
    with use_store(address) as store:
        history = find_conversation(store, conversation)
        first = -1 if recent is None else max(history.version - recent, -1)
        changes = _read_changes(store, history.id, first)
        if as_json:
            print_json(
                [
                    {"version": c.version, "kind": c.kind, "at": c.at, "messages": c.count}
                    for c in changes
                ]
            )
            return
        for change in changes:
            added = f"  +{change.count:,}" if change.count else ""
            when = styled(format_time(change.at), dim=True)
            print_line(f"{change.version:>7}  {when}  {styled(change.kind, bold=True)}{added}")


def _read_changes(store: Store, conversation: str, after: int) -> Iterator[JournalEntry]:
    while page := store.journal(conversation, after, _PAGE):
        yield from page
        after = page[-1].version


@click.command(short_help="Show what changed between two versions.")
@conversation_argument
@click.argument("before", type=click.IntRange(min=0), required=False)
@click.argument("after", type=click.IntRange(min=0), required=False)
@store_option
@json_option
def diff(
    conversation: str,
    before: int | None,
    after: int | None,
    address: str | None,
    *,
    as_json: bool,
) -> None:
    """Show what changed from version BEFORE to version AFTER: by default, in the last change."""
    with use_store(address) as store:
        found_diff = find_conversation(store, conversation).diff(before, after)
        if as_json:
            print_json(found_diff.to_dict())
            return
        for sign, colour, entries in (
            ("-", "red", found_diff.removed),
            ("+", "green", found_diff.added),
        ):
            for entry in entries:
                line = format_message(entry.message, before=f"{entry.index:>6}  ")
                print_line(f"{styled(sign, fg=colour, bold=True)} {line}")
