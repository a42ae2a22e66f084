"""`palaver undo`, `palaver redo` and `palaver rollback`: go back to earlier versions."""

from __future__ import annotations

import click

from palaver.cli.app import json_option
from palaver.cli.options import conversation_argument, find_conversation, store_option, use_store
from palaver.cli.output import print_change

__all__ = ["redo", "rollback", "undo"]


@click.command(short_help="Reverse the last change of a conversation.")
@conversation_argument
@store_option
@json_option
def undo(conversation: str, address: str | None, *, as_json: bool) -> None:
    """Reverse the last change. This makes a new version, and nothing is lost."""
    with use_store(address) as store:
        history = find_conversation(store, conversation)
        print_change(history, history.undo(), as_json=as_json)


@click.command(short_help="Reverse an undo or a rollback.")
@conversation_argument
@store_option
@json_option
def redo(conversation: str, address: str | None, *, as_json: bool) -> None:
    """Reverse the last undo or rollback, if nothing was changed since."""
    with use_store(address) as store:
        history = find_conversation(store, conversation)
        print_change(history, history.redo(), as_json=as_json)


@click.command(short_help="Go back to the end of a batch.")
@conversation_argument
@click.argument("batch", type=click.IntRange(min=0))
@store_option
@json_option
def rollback(conversation: str, batch: int, address: str | None, *, as_json: bool) -> None:
    """Go back to the end of BATCH; `redo` reverses this."""
    with use_store(address) as store:
        history = find_conversation(store, conversation)
        print_change(history, history.rollback(batch), as_json=as_json)
