"""`palaver erase`, `prune` and `delete`: destroy a message, what is abandoned, a conversation."""

from __future__ import annotations

import click

from palaver.cli.app import Refused, json_option, print_line, styled
from palaver.cli.options import (
    complete_conversation,
    conversation_argument,
    find_conversation,
    read_message_ref,
    store_option,
    use_store,
)
from palaver.cli.output import confirm, format_message, print_json
from palaver.messages import to_dict

__all__ = ["delete", "erase", "prune"]


@click.command(short_help="Destroy the content of a message in every version.")
@conversation_argument
@click.argument("message")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@json_option
def erase(
    conversation: str, message: str, address: str | None, *, yes: bool, as_json: bool
) -> None:
    """Destroy the content of MESSAGE (its index or its id) in every version, fork and index.

    Every summary made from it is destroyed too. A tombstone with its id and role stays. This can't
    be undone.
    """
    with use_store(address) as store:
        history = find_conversation(store, conversation)
        target = read_message_ref(message)
        if not yes:
            place = history.view.find(target)
            said = history.log[place]
            click.echo(format_message(said), err=True)
            if not confirm("Destroy it, with no way back?"):
                msg = "nothing was erased"
                raise Refused(msg)
        receipt = history.erase(target)
    if as_json:
        print_json(receipt.to_dict())
        return
    count = len(receipt.messages) + len(receipt.summaries)
    what = f"{count} message{'' if count == 1 else 's'}"
    print_line(f"{styled(receipt.message_id, bold=True)}: {what} erased in {receipt.places} places")
    for owner, kind, name in receipt.records:
        print_line(styled(f"taken away beside it: {kind} {name} of {owner}"))
    print_line(styled(f"out of reach: {', '.join(receipt.out_of_reach)}", dim=True))


@click.command(short_help="Remove what only abandoned versions have.")
@conversation_argument
@click.option(
    "--undo",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="How many steps of undo and redo stay possible.  [0]",
)
@click.option("--dry-run", is_flag=True, help="Only report what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@json_option
def prune(
    conversation: str,
    undo: int,
    address: str | None,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove the text of messages of CONVERSATION that only abandoned versions have.

    These are messages that were undone or rolled back. What is there now, the batches that it can
    be rolled back to, its marks, and what its forks share stay. This can't be undone.
    """
    with use_store(address) as store:
        name = find_conversation(store, conversation).id
        pruned = store.prune(name, undo=undo, dry_run=True)
        if pruned.messages and not dry_run:
            if not yes:
                click.echo(_describe(len(pruned.messages), pruned.bytes), err=True)
                if not confirm("Let go of it, with no way back?"):
                    msg = "nothing was pruned"
                    raise Refused(msg)
            pruned = store.prune(name, undo=undo)
    if as_json:
        print_json(to_dict(pruned))
        return
    verb = "pruned" if pruned.done else "would be pruned" if pruned.messages else "to prune"
    print_line(f"{styled(name, bold=True)}: {_describe(len(pruned.messages), pruned.bytes)} {verb}")


@click.command(short_help="Delete conversations with all their versions.")
@click.argument(
    "conversations",
    metavar="CONVERSATION...",
    nargs=-1,
    required=True,
    shell_complete=complete_conversation,
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@json_option
def delete(
    conversations: tuple[str, ...], address: str | None, *, yes: bool, as_json: bool
) -> None:
    """Delete each CONVERSATION with all its messages, versions, marks and records.

    A conversation that others were forked from can't be deleted before them. This can't be undone;
    `palaver export` makes a copy first.
    """
    with use_store(address) as store:
        found = [find_conversation(store, name) for name in dict.fromkeys(conversations)]
        if not yes:
            for history in found:
                about = f"{history.id}: {history.title or 'untitled'}, {len(history):,} messages"
                click.echo(about, err=True)
            if not confirm("Delete with no way back?"):
                msg = "nothing was deleted"
                raise Refused(msg)
        for history in found:
            store.delete(history.id)
            if not as_json:
                print_line(f"{styled(history.id, bold=True)}: deleted")
    if as_json:
        print_json({"deleted": [history.id for history in found]})


def _describe(count: int, size: int) -> str:
    if not count:
        return "nothing"
    return f"{count:,} message{'' if count == 1 else 's'} ({size:,} bytes)"
