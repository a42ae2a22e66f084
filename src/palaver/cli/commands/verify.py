"""`palaver verify` and `palaver migrate`: check a store, and bring its schema up to date."""

from __future__ import annotations

import click

from palaver.cli.app import REFUSED, json_option, print_line, styled
from palaver.cli.options import (
    complete_conversation,
    find_conversation,
    store_option,
    use_store,
)
from palaver.cli.output import print_json, progress_bar

__all__ = ["migrate", "verify"]


@click.command(short_help="Verify a store.")
@click.argument("conversation", required=False, shell_complete=complete_conversation)
@store_option
@json_option
@click.pass_context
def verify(
    context: click.Context, conversation: str | None, address: str | None, *, as_json: bool
) -> None:
    """Verify a store, or one CONVERSATION, and report everything that is wrong.

    Messages that a search does not find, or not by all of their text, are noted, and are no
    problem. The exit status is 0 if nothing is wrong, and else 1.
    """
    with use_store(address) as store:
        name = None if conversation is None else find_conversation(store, conversation).id
        with progress_bar("verifying") as bar:
            problems = list(store.verify(name, progress=bar))
        notes = [] if problems else list(store.notes(name))  # a damaged store may not have them
    if as_json:
        print_json({"problems": problems, "notes": notes, "whole": not problems})
    else:
        for note in notes:
            print_line(styled(f"note: {note}", dim=True))
        for problem in problems:
            print_line(styled(problem))
        count = len(problems)
        verdict = f"{count:,} problem{'' if count == 1 else 's'}" if problems else "whole"
        print_line(styled(verdict, fg="red" if problems else "green", bold=True))
    context.exit(REFUSED if problems else 0)


@click.command(short_help="Bring a store's schema up to date.")
@click.option("--distribute", is_flag=True, help="Bring it to all nodes of a Citus cluster.")
@store_option
@json_option
def migrate(address: str | None, *, distribute: bool, as_json: bool) -> None:
    """Bring the schema of a store to the newest version, and print both versions.

    Every command does this when it opens a store; this one does nothing else. With --distribute, a
    store in PostgreSQL with the extension Citus is distributed over the nodes of its cluster, and
    nobody can use it meanwhile.
    """
    with use_store(address) as store:
        before, after = store.migrated
        if distribute:
            store.distribute()
    if as_json:
        print_json({"from": before, "to": after, "distributed": distribute})
        return
    if distribute:
        print_line("the store is distributed over the nodes of the cluster")
    if before == after:
        print_line(f"the schema is at version {after}, the newest")
    else:
        print_line(f"the schema went from version {before} to {after}")
