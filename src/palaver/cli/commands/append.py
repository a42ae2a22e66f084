"""`palaver append`: append messages to a conversation, or create one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from palaver.cli.app import json_option, print_line, styled
from palaver.cli.options import (
    complete_conversation,
    find_conversation,
    owner_option,
    read_list,
    store_option,
    use_store,
)
from palaver.cli.output import print_json
from palaver.errors import ValidationError
from palaver.messages import ROLES, Message, parse_messages

if TYPE_CHECKING:
    from palaver.messages import Role

__all__ = ["append"]


@click.command(short_help="Append messages to a conversation, or create one.")
@click.argument("conversation", required=False, shell_complete=complete_conversation)
@click.argument("text", required=False)
@click.option(
    "--role", type=click.Choice(ROLES), default="user", help="The role of the message.  [user]"
)
@click.option(
    "--messages",
    "file",
    type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True),
    help="Messages as JSON, in place of TEXT.",
)
@click.option("--new", is_flag=True, help="Create a conversation; then only TEXT is given.")
@click.option("--title", help="The title of the new conversation.")
@click.option(
    "--tag", "tags", multiple=True, help="A tag of the new conversation; can be repeated."
)
@owner_option("Whom the new conversation belongs to.")
@click.option("--key", help="An idempotency key: the same key appends only once.")
@store_option
@json_option
def append(  # noqa: PLR0917 - one for each option
    conversation: str | None,
    text: str | None,
    role: Role,
    file: str | None,
    title: str | None,
    tags: tuple[str, ...],
    owner: str | None,
    key: str | None,
    address: str | None,
    *,
    new: bool,
    as_json: bool,
) -> None:
    """Append TEXT to CONVERSATION as one message; - is standard input.

    With --new a conversation is created, and its id is printed.
    """
    if new:
        if text is not None or key is not None:
            msg = "--new makes the id itself, and takes neither CONVERSATION nor --key"
            raise click.UsageError(msg)
        conversation, text = None, conversation
    elif conversation is None:
        msg = "either CONVERSATION or --new must be given"
        raise click.UsageError(msg)
    elif title is not None or tags or owner is not None:
        msg = "--title, --tag and --owner are for --new"
        raise click.UsageError(msg)
    messages = _read_messages(text, role, file)
    with use_store(address, create=new) as store:
        if conversation is None:
            history = store.create(messages, title=title, tags=tags, owner=owner)
        else:
            history = find_conversation(store, conversation)
            history.extend(messages, key=key)
        version = history.version
    if as_json:
        ids = [message.id for message in messages]
        print_json({"conversation": history.id, "version": version, "messages": ids})
    elif new:
        print_line(history.id)
    else:
        count = f"{len(messages):,} message{'' if len(messages) == 1 else 's'}"
        print_line(f"{styled(history.id, bold=True)}: version {version}, {count} added")


def _read_messages(text: str | None, role: Role, file: str | None) -> list[Message]:
    if (text is None) == (file is None):
        msg = "either TEXT or --messages must be given"
        raise click.UsageError(msg)
    if file is not None:
        return parse_messages(read_list(file, "messages"))
    if text == "-":
        try:
            text = sys.stdin.buffer.read().decode().removesuffix("\n")
        except UnicodeDecodeError as wrong:
            detail = f"standard input is not UTF-8 at byte {wrong.start}"
            raise ValidationError(detail, path="$.content", rule="text.utf8") from None
    if not text or text.isspace():
        detail = "is empty; give what is said as TEXT, or on standard input with -"
        raise ValidationError(detail, path="$.content", rule="empty-message")
    return [Message(role, text)]
