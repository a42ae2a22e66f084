"""`palaver erase`, `prune`, `delete` and `expire`: destroy messages, conversations, what is old."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from palaver.cli.app import Refused, json_option, print_line, printable, styled
from palaver.cli.options import (
    complete_conversation,
    conversation_argument,
    find_conversation,
    owner_option,
    read_message_ref,
    store_option,
    use_store,
)
from palaver.cli.output import (
    confirm,
    format_message,
    format_time,
    print_json,
    progress_bar,
    write_json,
)
from palaver.messages import to_dict

if TYPE_CHECKING:
    from palaver.stores.retention import Expired

__all__ = ["delete", "erase", "expire", "prune"]

_AGE: Final = re.compile(r"(\d{1,6})\s*(h|d|w|y)")
_HOURS: Final = {"h": 1, "d": 24, "w": 7 * 24, "y": 365 * 24}


class _Age(click.ParamType[timedelta]):
    """A number of hours, days, weeks or years."""

    name = "age"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None  # noqa: ANN401 - click's
    ) -> timedelta:  # fmt: skip
        if isinstance(value, timedelta):
            return value
        found = _AGE.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is no age, such as 12h, 90d, 8w or 2y", param, ctx)
        return timedelta(hours=int(found[1]) * _HOURS[found[2]])


@click.command(short_help="Destroy the content of a message in every version.")
@click.argument("conversation", required=False, shell_complete=complete_conversation)
@click.argument("message", required=False)
@owner_option("Everything of this owner, in place of CONVERSATION and MESSAGE.")
@click.option(
    "--receipt",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="With --owner: write the receipt to a file, for `palaver verify --receipt`.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@json_option
def erase(
    conversation: str | None,
    message: str | None,
    owner: str | None,
    receipt: str | None,
    address: str | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Destroy the content of MESSAGE (its index or its id) in every version, fork and index.

    Every summary made from it is destroyed too. A tombstone with its id and role stays. This can't
    be undone.

    With --owner, every conversation of an owner is deleted. What others forked from one of them
    loses the owner's messages; `palaver export --owner` makes a copy first.
    """
    if owner is not None and conversation is None:
        _erase_owner(owner, receipt, address, yes=yes, as_json=as_json)
        return
    if owner is not None or receipt is not None or conversation is None or message is None:
        msg = "either CONVERSATION and MESSAGE must be given, or --owner (and --receipt)"
        raise click.UsageError(msg)
    _erase_message(conversation, message, address, yes=yes, as_json=as_json)


def _erase_owner(
    owner: str, file: str | None, address: str | None, *, yes: bool, as_json: bool
) -> None:
    with use_store(address) as store:
        if not yes:
            count = sum(1 for _ in store.each(owner=owner))
            what = f"{count:,} conversation{'' if count == 1 else 's'}"
            click.echo(f"{printable(owner)}: {what}", err=True)
            if not confirm("Destroy everything of this owner, with no way back?"):
                msg = "nothing was erased"
                raise Refused(msg)
        with progress_bar("erasing") as bar:
            erased = store.erase_owner(owner, progress=bar)
    if file is not None:
        write_json(file, to_dict(erased))
    if as_json:
        print_json(to_dict(erased))
        return
    messages = sum(len(ids) for _, ids in erased.erased)
    print_line(
        f"{styled(owner, bold=True)}: {len(erased.deleted):,} deleted, {len(erased.shells):,} "
        f"emptied for others' forks, {messages:,} messages erased there"
    )
    print_line(styled(f"out of reach: {', '.join(erased.out_of_reach)}", dim=True))


def _erase_message(
    conversation: str, message: str, address: str | None, *, yes: bool, as_json: bool
) -> None:
    with use_store(address) as store:
        history = find_conversation(store, conversation)
        target = read_message_ref(message)
        if not yes:
            place = history.view.find(target)
            said = history.log[place]
            click.echo(format_message(said), err=True)
            if not confirm("Destroy it, with no way back?"):
                msg = "nothing was erased"
                raise Refused(msg)
        receipt = history.erase(target)
    if as_json:
        print_json(receipt.to_dict())
        return
    count = len(receipt.messages) + len(receipt.summaries)
    what = f"{count} message{'' if count == 1 else 's'}"
    where = f"{receipt.places} place{'' if receipt.places == 1 else 's'}"
    print_line(f"{styled(receipt.message_id, bold=True)}: {what} erased in {where}")
    for owner, kind, name in receipt.records:
        print_line(styled(f"taken away beside it: {kind} {name} of {owner}"))
    print_line(styled(f"out of reach: {', '.join(receipt.out_of_reach)}", dim=True))


@click.command(short_help="Remove what only abandoned versions have.")
@conversation_argument
@click.option(
    "--undo",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="How many steps of undo and redo stay possible.  [0]",
)
@click.option("--dry-run", is_flag=True, help="Only report what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@json_option
def prune(
    conversation: str,
    undo: int,
    address: str | None,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove the text of messages of CONVERSATION that only abandoned versions have.

    These are messages that were undone or rolled back. What is there now, the batches that it can
    be rolled back to, its marks, and what its forks share stay. This can't be undone.
    """
    with use_store(address) as store:
        name = find_conversation(store, conversation).id
        pruned = store.prune(name, undo=undo, dry_run=True)
        if pruned.messages and not dry_run:
            if not yes:
                click.echo(_describe(len(pruned.messages), pruned.bytes), err=True)
                if not confirm("Let go of it, with no way back?"):
                    msg = "nothing was pruned"
                    raise Refused(msg)
            pruned = store.prune(name, undo=undo)
    if as_json:
        print_json(to_dict(pruned))
        return
    verb = "pruned" if pruned.done else "would be pruned" if pruned.messages else "to prune"
    print_line(f"{styled(name, bold=True)}: {_describe(len(pruned.messages), pruned.bytes)} {verb}")


@click.command(short_help="Delete conversations with all their versions.")
@click.argument(
    "conversations",
    metavar="CONVERSATION...",
    nargs=-1,
    required=True,
    shell_complete=complete_conversation,
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@json_option
def delete(
    conversations: tuple[str, ...], address: str | None, *, yes: bool, as_json: bool
) -> None:
    """Delete each CONVERSATION with all its messages, versions, marks and records.

    A conversation that others were forked from can't be deleted before them. This can't be undone;
    `palaver export` makes a copy first.
    """
    with use_store(address) as store:
        found = [find_conversation(store, name) for name in dict.fromkeys(conversations)]
        if not yes:
            for history in found:
                about = f"{history.id}: {history.title or 'untitled'}, {len(history):,} messages"
                click.echo(about, err=True)
            if not confirm("Delete with no way back?"):
                msg = "nothing was deleted"
                raise Refused(msg)
        for history in found:
            store.delete(history.id)
            if not as_json:
                print_line(f"{styled(history.id, bold=True)}: deleted")
    if as_json:
        print_json({"deleted": [history.id for history in found]})


@click.command(short_help="Delete conversations that nobody changed for long.")
@click.option(
    "--older-than",
    type=_Age(),
    required=True,
    help="The age of the last change: 12h, 90d, 8w or 2y.",
)
@owner_option("Only those of this owner.")
@click.option("--tag", help="Only those with this tag.")
@click.option(
    "--archive",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Write them to a file first: .jsonl, .jsonl.gz or .jsonl.zst.",
)
@click.option("--dry-run", is_flag=True, help="Only report what would be deleted.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@json_option
def expire(
    older_than: timedelta,
    owner: str | None,
    tag: str | None,
    archive: str | None,
    address: str | None,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete the conversations whose last change is older than an age, and print a receipt.

    They go in small transactions: others can read and write meanwhile. With --archive, each is on
    disk in FILE before it is deleted, an existing archive is continued, and `palaver import FILE`
    brings them back. After a kill, run the same command again. A conversation that a younger fork
    reads from stays.
    """
    with use_store(address) as store:
        if not (dry_run or yes or archive is not None):
            would = store.expire(older_than, owner=owner, tag=tag, dry_run=True)
            click.echo(_describe_expired(would), err=True)
            if not confirm("Delete them with no way back?"):
                msg = "nothing was deleted"
                raise Refused(msg)
        with progress_bar("expiring") as bar:
            expired = store.expire(
                older_than, owner=owner, tag=tag, archive=archive, dry_run=dry_run, progress=bar
            )
    if as_json:
        print_json(to_dict(expired))
        return
    print_line(f"{_describe_expired(expired)} {'deleted' if expired.done else 'would be deleted'}")
    for count, why in ((expired.kept, "younger forks read from"), (expired.changed, "changed")):
        if count:
            print_line(styled(f"{count:,} stay, which {why}", dim=True))
    if expired.archive is not None:
        held = expired.archive
        about = f"{held.conversations:,} conversations, {held.bytes:,} bytes, sha256 {held.sha256}"
        print_line(f"{click.format_filename(held.file)}: {about}")


def _describe_expired(expired: Expired) -> str:
    count = expired.conversations
    what = f"{count:,} conversation{'' if count == 1 else 's'}"
    return (
        f"{what} ({expired.messages:,} messages) last changed before {format_time(expired.before)}"
    )


def _describe(count: int, size: int) -> str:
    if not count:
        return "nothing"
    return f"{count:,} message{'' if count == 1 else 's'} ({size:,} bytes)"
