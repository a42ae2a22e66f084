"""`palaver show` and `palaver log`: a conversation as it reads, and its versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from palaver.cli.manners import json_option, printable, say, styled
from palaver.cli.stored import (
    conversation_argument,
    found,
    message_line,
    moment,
    opened,
    put_json,
    store_option,
)
from palaver.messages import to_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.history import View
    from palaver.stores import Store
    from palaver.stores.records import Journaled

__all__ = ["log", "show"]

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
    with opened(address) as store:
        history = found(store, conversation)
        view = history.view if at is None else history.at(at)
        start = 0 if recent is None else max(len(view) - recent, 0)
        messages = view[start:]
        marks = _marks(view)
        if as_json:
            put_json(
                {
                    "id": history.id,
                    "title": history.title,
                    "tags": list(history.tags),
                    "version": view.version,
                    "batchIndex": view.batch_index,
                    "teamTask": view.team_task,
                    "messages": [to_dict(message) for message in messages],
                    "marks": {name: list(ids) for name, ids in view.marks.items()},
                }
            )
            return
        title = f"  {printable(history.title)}" if history.title else ""
        say(styled(f"{history.id}{title}  (version {view.version})", bold=True))
        if view.team_task is not None:
            say(f"{styled('team task', bold=True)}  {styled(' '.join(view.team_task.split()))}")
        for index, message in enumerate(messages, start):
            after = "".join(f"  [{name}]" for name in marks.get(message.id, ()))
            say(message_line(message, before=f"{index:>6}  ", after=after))


def _marks(view: View) -> dict[str, list[str]]:
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
    with opened(address) as store:
        history = found(store, conversation)
        first = -1 if recent is None else max(history.version - recent, -1)
        changes = _changes(store, history.id, first)
        if as_json:
            put_json(
                [
                    {"version": c.version, "kind": c.kind, "at": c.at, "messages": c.count}
                    for c in changes
                ]
            )
            return
        for change in changes:
            added = f"  +{change.count:,}" if change.count else ""
            when = styled(moment(change.at), dim=True)
            say(f"{change.version:>7}  {when}  {styled(change.kind, bold=True)}{added}")


def _changes(store: Store, conversation: str, after: int) -> Iterator[Journaled]:
    while page := store.keeper.journal(conversation, after, _PAGE):
        yield from page
        after = page[-1].version
