"""`palaver verify` and `palaver migrate`: is the store whole, and is its schema the newest."""

from __future__ import annotations

import click

from palaver.cli.manners import REFUSED, json_option, say, styled
from palaver.cli.stored import found, opened, progress, put_json, store_option

__all__ = ["migrate", "verify"]


@click.command(short_help="Prove that a store is whole.")
@click.argument("conversation", required=False)
@store_option
@json_option
@click.pass_context
def verify(
    context: click.Context, conversation: str | None, address: str | None, *, as_json: bool
) -> None:
    """Walk through a store, or through one CONVERSATION, and say everything that is wrong.

    Messages that a search does not find, or not by all they say, are noted, and are no problem.
    The exit status is 0 where it is whole and 1 where something is wrong.
    """
    with opened(address) as store:
        name = None if conversation is None else found(store, conversation).id
        with progress("verifying") as bar:
            problems = list(store.verify(name, progress=bar))
        notes = [] if problems else list(store.notes(name))  # a damaged store may not have them
    if as_json:
        put_json({"problems": problems, "notes": notes, "whole": not problems})
    else:
        for note in notes:
            say(styled(f"note: {note}", dim=True))
        for problem in problems:
            say(styled(problem))
        count = len(problems)
        verdict = f"{count:,} problem{'' if count == 1 else 's'}" if problems else "whole"
        say(styled(verdict, fg="red" if problems else "green", bold=True))
    context.exit(REFUSED if problems else 0)


@click.command(short_help="Bring a store's schema up to date.")
@store_option
@json_option
def migrate(address: str | None, *, as_json: bool) -> None:
    """Bring the schema of a store to the newest version, and say from which to which.

    Every command does this when it opens a store; this one does nothing else.
    """
    with opened(address) as store:
        before, after = store.keeper.migrated
    if as_json:
        put_json({"from": before, "to": after})
    elif before == after:
        say(f"the schema is at version {after}, the newest")
    else:
        say(f"the schema went from version {before} to {after}")
