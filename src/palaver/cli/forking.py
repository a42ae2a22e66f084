"""`palaver fork`, `palaver diff` and `palaver merge`: ways that part and meet again."""

from __future__ import annotations

import click

from palaver.cli.manners import json_option, say, styled
from palaver.cli.stored import (
    conversation_argument,
    describe_change,
    found,
    message_line,
    opened,
    put_json,
    store_option,
)

__all__ = ["diff", "fork", "merge"]


@click.command(short_help="Let a conversation go another way from here.")
@conversation_argument
@click.option("--at", type=click.IntRange(min=0), metavar="VERSION", help="From that version on.")
@click.option("--id", "name", help="The id of the fork.")
@store_option
@json_option
def fork(
    conversation: str, at: int | None, name: str | None, address: str | None, *, as_json: bool
) -> None:
    """Begin a conversation that goes its own way from CONVERSATION, and print its id.

    Nothing is copied: the messages up to there are the same rows.
    """
    with opened(address) as store:
        history = found(store, conversation)
        made = history.fork(at=at, id=name)
        if as_json:
            origin = history.version if at is None else at
            put_json({"conversation": made.id, "parent": history.id, "origin": origin})
        else:
            say(made.id)


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
    with opened(address) as store:
        found_diff = found(store, conversation).diff(before, after)
        if as_json:
            put_json(found_diff.to_dict())
            return
        for sign, colour, entries in (
            ("-", "red", found_diff.removed),
            ("+", "green", found_diff.added),
        ):
            for entry in entries:
                line = message_line(entry.message, before=f"{entry.index:>6}  ")
                say(f"{styled(sign, fg=colour, bold=True)} {line}")


@click.command(short_help="Bring in what a fork did.")
@conversation_argument
@click.argument("other")
@store_option
@json_option
def merge(conversation: str, other: str, address: str | None, *, as_json: bool) -> None:
    """Bring into CONVERSATION what OTHER did: a fork of it, or what it was forked from.

    Where both changed the same message, each is named, and nothing changes.
    """
    with opened(address) as store:
        history = found(store, conversation)
        describe_change(history, history.merge(found(store, other)), as_json=as_json)
