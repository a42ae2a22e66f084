"""`palaver search`: messages by the words in them."""

from __future__ import annotations

import click

from palaver.cli.manners import json_option, say, styled
from palaver.cli.stored import found, moment, opened, put_json, store_option
from palaver.messages import to_dict

__all__ = ["search"]


@click.command(short_help="Find messages by their words.")
@click.argument("words", nargs=-1, required=True)
@click.option("--conversation", help="Only in this one.")
@click.option("--limit", type=click.IntRange(min=1), default=20, help="How many.  [20]")
@store_option
@json_option
def search(
    words: tuple[str, ...],
    conversation: str | None,
    limit: int,
    address: str | None,
    *,
    as_json: bool,
) -> None:
    """Find the messages with all WORDS; "in quotes" they must follow one another."""
    with opened(address) as store:
        name = None if conversation is None else found(store, conversation).id
        hits = store.search(" ".join(words), conversation=name, limit=limit)
    if as_json:
        put_json(
            [
                {
                    "conversation": hit.conversation,
                    "position": hit.position,
                    "snippet": hit.snippet,
                    "message": to_dict(hit.message),
                }
                for hit in hits
            ]
        )
        return
    for hit in hits:
        when = styled(moment(hit.message.timestamp), dim=True)
        say(f"{styled(hit.conversation, bold=True)}  {when}  {styled(hit.snippet)}")
