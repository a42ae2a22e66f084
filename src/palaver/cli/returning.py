"""`palaver undo`, `palaver redo` and `palaver rollback`: the way back."""

from __future__ import annotations

import click

from palaver.cli.manners import json_option
from palaver.cli.stored import conversation_argument, describe_change, found, opened, store_option

__all__ = ["redo", "rollback", "undo"]


@click.command(short_help="Reverse the last change of a conversation.")
@conversation_argument
@store_option
@json_option
def undo(conversation: str, address: str | None, *, as_json: bool) -> None:
    """Reverse the last change. The undoing is itself a new version, and nothing is lost."""
    with opened(address) as store:
        history = found(store, conversation)
        describe_change(history, history.undo(), as_json=as_json)


@click.command(short_help="Bring back what was undone.")
@conversation_argument
@store_option
@json_option
def redo(conversation: str, address: str | None, *, as_json: bool) -> None:
    """Bring back what the last undo or rollback left, as long as nothing was changed since."""
    with opened(address) as store:
        history = found(store, conversation)
        describe_change(history, history.redo(), as_json=as_json)


@click.command(short_help="Go back to a batch as it ended.")
@conversation_argument
@click.argument("batch", type=click.IntRange(min=0))
@store_option
@json_option
def rollback(conversation: str, batch: int, address: str | None, *, as_json: bool) -> None:
    """Go back to BATCH as it ended; `redo` returns to what came after it."""
    with opened(address) as store:
        history = found(store, conversation)
        describe_change(history, history.rollback(batch), as_json=as_json)
