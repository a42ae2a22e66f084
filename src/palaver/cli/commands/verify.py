"""`palaver verify` and `palaver migrate`: check a store, and bring its schema up to date."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from palaver.cli.app import REFUSED, json_option, print_line, styled
from palaver.cli.options import (
    complete_conversation,
    find_conversation,
    store_option,
    use_store,
)
from palaver.cli.output import print_json, progress_bar
from palaver.stores.retention import read_receipt

if TYPE_CHECKING:
    from palaver.stores import Store

__all__ = ["migrate", "verify"]


@click.command(short_help="Verify a store.")
@click.argument("conversation", required=False, shell_complete=complete_conversation)
@click.option(
    "--receipt",
    type=click.Path(exists=True, dir_okay=False, readable=True),
    metavar="FILE",
    help="Check that what a receipt of `erase --owner` says is still gone.",
)
@store_option
@json_option
@click.pass_context
def verify(
    context: click.Context,
    conversation: str | None,
    receipt: str | None,
    address: str | None,
    *,
    as_json: bool,
) -> None:
    """Verify a store, or one CONVERSATION, and report everything that is wrong.

    With --receipt, check a receipt that `palaver erase --owner` wrote, and nothing else.

    Messages that a search does not find, or not by all of their text, are noted, and are no
    problem. The exit status is 0 if nothing is wrong, and else 1.
    """
    with use_store(address) as store:
        if receipt is not None:
            problems, notes = _check_receipt(store, receipt, conversation), []
        else:
            name = None if conversation is None else find_conversation(store, conversation).id
            with progress_bar("verifying") as bar:
                problems = list(store.verify(name, progress=bar))
            notes = [] if problems else list(store.notes(name))  # a damaged store may have none
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


def _check_receipt(store: Store, file: str, conversation: str | None) -> list[str]:
    if conversation is not None:
        msg = "--receipt is about an owner, and goes without CONVERSATION"
        raise click.UsageError(msg)
    return list(store.check_receipt(read_receipt(Path(file).read_bytes())))


@click.command(short_help="Bring a store's schema up to date.")
@click.option("--distribute", is_flag=True, help="Bring it to all nodes of a Citus cluster.")
@click.option(
    "--row-security/--no-row-security",
    default=None,
    help="Let the server keep owners apart, or stop that.",
)
@store_option
@json_option
def migrate(
    address: str | None, *, distribute: bool, row_security: bool | None, as_json: bool
) -> None:
    """Bring the schema of a store to the newest version, and print both versions.

    Every command does this when it opens a store; this one does nothing else. With --distribute, a
    store in PostgreSQL with the extension Citus is distributed over the nodes of its cluster, and
    nobody can use it meanwhile. With --row-security, a store in PostgreSQL that is opened for an
    owner shows nothing of others; programs that have it open have to open it again.
    """
    with use_store(address) as store:
        before, after = store.migrated
        if distribute:
            store.distribute()
        if row_security is not None:
            store.secure_rows(on=row_security)
    if as_json:
        secured = {} if row_security is None else {"rowSecurity": row_security}
        print_json({"from": before, "to": after, "distributed": distribute, **secured})
        return
    if row_security is not None:
        print_line(f"row security is {'on' if row_security else 'off'}")
    if distribute:
        print_line("the store is distributed over the nodes of the cluster")
    if before == after:
        print_line(f"the schema is at version {after}, the newest")
    else:
        print_line(f"the schema went from version {before} to {after}")
