"""`palaver erase`: destroy what a message says, everywhere."""

from __future__ import annotations

import click

from palaver.cli.manners import Refused, json_option, say, styled
from palaver.cli.stored import (
    conversation_argument,
    found,
    message_line,
    opened,
    put_json,
    store_option,
    sure,
    which,
)

__all__ = ["erase"]


@click.command(short_help="Destroy what a message says, in every version.")
@conversation_argument
@click.argument("message")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@json_option
def erase(
    conversation: str, message: str, address: str | None, *, yes: bool, as_json: bool
) -> None:
    """Destroy what MESSAGE says (its index or its id), in every version, fork and index.

    Every summary made from it goes too. A tombstone with its id and role stays. There is no way
    back.
    """
    with opened(address) as store:
        history = found(store, conversation)
        target = which(message)
        if not yes:
            place = history.view.find(target)
            said = history.log[place]
            click.echo(message_line(said), err=True)
            if not sure("Destroy it, with no way back?"):
                msg = "nothing was erased"
                raise Refused(msg)
        receipt = history.erase(target)
    if as_json:
        put_json(receipt.to_dict())
        return
    count = len(receipt.messages) + len(receipt.summaries)
    what = f"{count} message{'' if count == 1 else 's'}"
    say(f"{styled(receipt.message_id, bold=True)}: {what} erased in {receipt.places} places")
    for owner, kind, name in receipt.records:
        say(styled(f"taken away beside it: {kind} {name} of {owner}"))
    say(styled(f"out of reach: {', '.join(receipt.out_of_reach)}", dim=True))
