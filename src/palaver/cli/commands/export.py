"""`palaver export` and `palaver copy`: write a conversation to a file, or copy to another store."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import click

from palaver.cli.app import Refused, json_option, print_line, styled
from palaver.cli.options import (
    complete_conversation,
    find_conversation,
    open_with_keys,
    owner_option,
    resolve_address,
    store_file,
    store_option,
    use_store,
)
from palaver.cli.output import open_output, print_json, print_notes, progress_bar
from palaver.messages import to_dict
from palaver.stores.transfer import copy_conversations, write_archive
from palaver.stores.transfer.archive import check_archive_name
from palaver.wire.convert import EXPORTS, export_as

if TYPE_CHECKING:
    from palaver.stores.transfer.documents import Render

__all__ = ["copy", "export"]


@click.command(short_help="Write a conversation to a file.")
@click.argument("conversation", required=False, shell_complete=complete_conversation)
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@click.option(
    "--format", "--form", "form", type=click.Choice(EXPORTS), default="lines",
    help="The format of the file.  [lines]",
)  # fmt: skip
@owner_option("Everything of this owner, in place of CONVERSATION.")
@store_option
@json_option
def export(
    conversation: str | None,
    file: str,
    form: str,
    owner: str | None,
    address: str | None,
    *,
    as_json: bool,
) -> None:
    """Write CONVERSATION to FILE, by default to standard output.

    "lines" and "document" hold everything: every version, batch and mark. "version-1" holds the
    messages of users and assistants, and the team task, "messages" all messages as they are now.
    "markdown" and "html" have these for people, HTML as one file that needs no other. The others
    are requests for a provider. A fork is written with everything that it has from its parent. The
    file is plain text, also where the store is encrypted. It appears when it is complete.

    With --owner, every conversation of an owner is written to FILE, an archive: lines, which are
    compressed if its name ends in .jsonl.gz or .jsonl.zst. `palaver import` reads it.
    """
    if owner is not None:
        if file != "-" or form != "lines":
            msg = "with --owner there is no CONVERSATION and no --format, only FILE"
            raise click.UsageError(msg)
        _export_owner(owner, conversation or "-", address, as_json=as_json)
        return
    if conversation is None:
        msg = "either CONVERSATION or --owner must be given"
        raise click.UsageError(msg)
    with use_store(address) as store:
        history = find_conversation(store, conversation)
        with open_output(file) as stream, progress_bar("exporting") as bar:
            render = _make_renderer() if form == "html" else None
            notes = export_as(store, history.id, stream, form, progress=bar, render=render)
        print_notes(notes, history.id)
        if form == "version-1":
            _warn_about_omitted(len(history) - history.count(roles=("user", "assistant")))
        if file == "-":
            return  # standard output is the conversation
        if as_json:
            print_json({"conversation": history.id, "version": history.version, "file": file})
        else:
            print_line(f"{styled(history.id, bold=True)}: written to {click.format_filename(file)}")


def _export_owner(owner: str, file: str, address: str | None, *, as_json: bool) -> None:
    name = ".jsonl" if file == "-" else Path(file).name
    check_archive_name(name)
    with (
        use_store(address) as store,
        open_output(file) as stream,
        progress_bar("exporting") as bar,
    ):
        names = [head.id for head in store.each(owner=owner)]
        count = write_archive(store, names, stream, name=name, progress=bar)
    if file == "-":
        return
    if as_json:
        print_json({"owner": owner, "conversations": count, "file": file})
    else:
        what = f"{count:,} conversation{'' if count == 1 else 's'}"
        print_line(f"{styled(owner, bold=True)}: {what} written to {click.format_filename(file)}")


def _make_renderer() -> Render | None:
    """What makes HTML of Markdown, if the extra `server` is there; texts stay as written if not."""
    try:
        from palaver.server.markdown import make_renderer  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return None
    return make_renderer(inf)


def _warn_about_omitted(count: int) -> None:
    if count:
        what = f"{count:,} system and tool message{'' if count == 1 else 's'}"
        click.echo(f"palaver: {what} left out: version 1 has no place for them", err=True)


@click.command(short_help="Copy conversations to another store.")
@click.argument("target", metavar="TARGET")
@click.argument("conversations", nargs=-1, shell_complete=complete_conversation)
@store_option
@json_option
def copy(
    target: str, conversations: tuple[str, ...], address: str | None, *, as_json: bool
) -> None:
    """Copy CONVERSATIONS, by default all, from the store to the store TARGET (a file or a URL).

    What is there already is skipped, and what is there in part is completed: after an interruption,
    run it again. Forks are copied with the conversations that they were forked from.
    """
    with use_store(address) as source:
        names = [find_conversation(source, text).id for text in conversations] or None
        place, aim = store_file(resolve_address(address)), store_file(target)
        if place and aim and aim.exists() and place.samefile(aim):
            msg = "the store can't be copied to itself"
            raise Refused(msg)
        with open_with_keys(target) as there, progress_bar("copying") as bar:
            copied = copy_conversations(source, there, names, progress=bar)
    if as_json:
        print_json(to_dict(copied))
        return
    print_line(
        f"{copied.copied:,} conversation{'' if copied.copied == 1 else 's'} copied "
        f"({copied.messages:,} messages), {copied.unchanged:,} there already"
    )
