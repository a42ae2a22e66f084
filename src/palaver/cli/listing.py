"""`palaver list`: the conversations of a store, the latest changed first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from palaver.cli.manners import json_option, say, styled
from palaver.cli.stored import moment, opened, put_json, store_option

if TYPE_CHECKING:
    from palaver.stores.records import Head

__all__ = ["list_"]


@click.command("list", short_help="List conversations, the latest changed first.")
@click.option("--limit", type=click.IntRange(min=1), default=50, help="How many.  [50]")
@click.option("--after", metavar="CURSOR", help="Go on after a page: its `next`.")
@click.option("--tag", help="Only those with this tag.")
@store_option
@json_option
def list_(
    limit: int, after: str | None, tag: str | None, address: str | None, *, as_json: bool
) -> None:
    """List the conversations of a store: id, last change, messages, title and tags."""
    if after is not None and not after.partition(":")[0].isdecimal():
        msg = f"{after!r} is not where a page ended"
        raise click.BadParameter(msg, param_hint="--after")
    with opened(address) as store:
        page = store.list(after=after, limit=limit, tag=tag)
    if as_json:
        heads = [_as_json(head) for head in page.conversations]
        put_json({"conversations": heads, "next": page.next})
        return
    for head in page.conversations:
        say(_line(head))
    if page.next is not None:
        say(styled(f"more: --after {page.next}", dim=True))


def _as_json(head: Head) -> dict[str, Any]:
    return {
        "id": head.id,
        "version": head.version,
        "messages": head.size,
        "title": head.title,
        "tags": list(head.tags),
        "created": head.created,
        "updated": head.updated,
        "parent": head.parent,
    }


def _line(head: Head) -> str:
    tags = "".join(f" #{tag}" for tag in head.tags)
    return (
        f"{styled(head.id, bold=True)}  {styled(moment(head.updated), dim=True)}  "
        f"{head.size:>7,}  {styled(head.title or '')}{styled(tags, fg='cyan')}"
    )
