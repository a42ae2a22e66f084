"""`palaver list`, `show`, `log` and `diff`: conversations, their messages and their versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

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
@store_option
@json_option
def show(
    conversation: str, at: int | None, recent: int | None, address: str | None, *, as_json: bool
) -> None:
    """Show the messages of a conversation: index, time, role, text and marks."""
    with use_store(address) as store:
        history = find_conversation(store, conversation)
        view = history.view if at is None else history.at(at)
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
