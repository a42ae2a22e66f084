"""`palaver prune`: make room by letting go of what only abandoned versions have."""

from __future__ import annotations

import click

from palaver.cli.manners import Refused, json_option, say, styled
from palaver.cli.stored import conversation_argument, found, opened, put_json, store_option, sure
from palaver.messages import to_dict

__all__ = ["prune"]


@click.command(short_help="Let go of what only abandoned versions have.")
@conversation_argument
@click.option(
    "--undo",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="How many steps of undo and redo stay whole.  [0]",
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
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
    """Take the text of messages of CONVERSATION that nothing leads to any more.

    Those are the ones that were undone, or rolled back and left behind. What is there now, the
    batches it can be rolled back to, its marks, and what its forks share stay as they are. There is
    no way back.
    """
    with opened(address) as store:
        name = found(store, conversation).id
        pruned = store.prune(name, undo=undo, dry_run=True)
        if pruned.messages and not dry_run:
            if not yes:
                click.echo(_what(len(pruned.messages), pruned.bytes), err=True)
                if not sure("Let go of it, with no way back?"):
                    msg = "nothing was pruned"
                    raise Refused(msg)
            pruned = store.prune(name, undo=undo)
    if as_json:
        put_json(to_dict(pruned))
        return
    verb = "pruned" if pruned.done else "would be pruned" if pruned.messages else "to prune"
    say(f"{styled(name, bold=True)}: {_what(len(pruned.messages), pruned.bytes)} {verb}")


def _what(count: int, size: int) -> str:
    if not count:
        return "nothing"
    return f"{count:,} message{'' if count == 1 else 's'} ({size:,} bytes)"
