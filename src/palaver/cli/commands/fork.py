"""`palaver fork` and `palaver merge`: branch off a conversation, and merge it again."""

from __future__ import annotations

import click

from palaver.cli.app import json_option, print_line
from palaver.cli.options import (
    complete_conversation,
    conversation_argument,
    find_conversation,
    owner_option,
    store_option,
    use_store,
)
from palaver.cli.output import print_change, print_json


@click.command(short_help="Fork a conversation.")
@conversation_argument
@click.option(
    "--at",
    type=click.IntRange(min=0),
    metavar="VERSION",
    help="The version to fork at.  [the newest]",
)
@click.option("--id", "name", help="The id of the fork.")
@owner_option("Whom the fork belongs to.  [the owner of CONVERSATION]")
@store_option
@json_option
def fork(
    conversation: str,
    at: int | None,
    name: str | None,
    owner: str | None,
    address: str | None,
    *,
    as_json: bool,
) -> None:
    """Fork CONVERSATION, and print the id of the fork.

    Nothing is copied: the fork shares the stored messages up to there.
    """
    with use_store(address) as store:
        history = find_conversation(store, conversation)
        made = history.fork(at=at, id=name, owner=owner)
        if as_json:
            origin = history.version if at is None else at
            print_json({"conversation": made.id, "parent": history.id, "origin": origin})
        else:
            print_line(made.id)


@click.command(short_help="Merge the changes of a fork.")
@conversation_argument
@click.argument("other", shell_complete=complete_conversation)
@store_option
@json_option
def merge(conversation: str, other: str, address: str | None, *, as_json: bool) -> None:
    """Merge into CONVERSATION the changes of OTHER: a fork of it, or the one it was forked from.

    If both changed the same message, the error names both sides, and nothing changes.
    """
    with use_store(address) as store:
        history = find_conversation(store, conversation)
        print_change(history, history.merge(find_conversation(store, other)), as_json=as_json)
