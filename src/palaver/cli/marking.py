"""`palaver mark`: put a mark on a message, or take it off."""

from __future__ import annotations

import click

from palaver.cli.manners import json_option
from palaver.cli.stored import (
    conversation_argument,
    describe_change,
    found,
    opened,
    store_option,
    which,
)

__all__ = ["mark"]


@click.command(short_help="Put a mark on a message.")
@conversation_argument
@click.argument("message")
@click.argument("name")
@click.option("--remove", is_flag=True, help="Take it off.")
@store_option
@json_option
def mark(
    conversation: str, message: str, name: str, address: str | None, *, remove: bool, as_json: bool
) -> None:
    """Put the mark NAME on MESSAGE, given by its index or its id."""
    with opened(address) as store:
        history = found(store, conversation)
        change = history.unmark if remove else history.mark
        change(which(message), name)
        describe_change(history, None, as_json=as_json)
