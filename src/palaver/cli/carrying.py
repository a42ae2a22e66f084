"""`palaver export` and `palaver copy`: conversations out of a store."""

from __future__ import annotations

import click

from palaver.cli.manners import Refused, json_option, say, styled
from palaver.cli.outputs import open_output
from palaver.cli.stored import (
    conversation_argument,
    file_of,
    found,
    opened,
    place_of,
    progress,
    put_json,
    store_option,
)
from palaver.messages import to_dict
from palaver.stores import open_store
from palaver.stores.copying import copy as copy_conversations
from palaver.stores.snapshots import FORMS, Form, export_conversation

__all__ = ["copy", "export"]


@click.command(short_help="Write a conversation to a file.")
@conversation_argument
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@click.option("--form", type=click.Choice(FORMS), default="lines", help="Which form.  [lines]")
@store_option
@json_option
def export(conversation: str, file: str, form: Form, address: str | None, *, as_json: bool) -> None:
    """Write CONVERSATION to FILE, by default to standard output.

    "lines" and "document" hold everything: every version, batch and mark. "version-1" holds what
    users and assistants said, and the team task. A fork is written with all that it has from its
    parent. The file appears when it is complete.
    """
    with opened(address) as store:
        history = found(store, conversation)
        with open_output(file) as stream, progress("exporting") as bar:
            export_conversation(store, history.id, stream, form=form, progress=bar)
        if form == "version-1":
            _say_what_is_missing(len(history) - history.count(roles=("user", "assistant")))
        if file == "-":
            return  # standard output is the conversation
        if as_json:
            put_json({"conversation": history.id, "version": history.version, "file": file})
        else:
            say(f"{styled(history.id, bold=True)}: written to {click.format_filename(file)}")


def _say_what_is_missing(count: int) -> None:
    if count:
        what = f"{count:,} system and tool message{'' if count == 1 else 's'}"
        click.echo(f"palaver: {what} left out: version 1 has no place for them", err=True)


@click.command(short_help="Copy conversations to another store.")
@click.argument("target", metavar="TARGET")
@click.argument("conversations", nargs=-1)
@store_option
@json_option
def copy(
    target: str, conversations: tuple[str, ...], address: str | None, *, as_json: bool
) -> None:
    """Copy CONVERSATIONS, by default all, from the store to the store TARGET (a file or a URL).

    What is there already is skipped, and what is there in part is completed: after an interruption,
    simply do it again. Forks go with the conversations they were forked from.
    """
    with opened(address) as source:
        names = [found(source, text).id for text in conversations] or None
        place, aim = file_of(place_of(address)), file_of(target)
        if place and aim and aim.exists() and place.samefile(aim):
            msg = "the store can't be copied to itself"
            raise Refused(msg)
        with open_store(target) as there, progress("copying") as bar:
            copied = copy_conversations(source, there, names, progress=bar)
    if as_json:
        put_json(to_dict(copied))
        return
    say(
        f"{copied.copied:,} conversation{'' if copied.copied == 1 else 's'} copied "
        f"({copied.messages:,} messages), {copied.unchanged:,} there already"
    )
