"""`palaver query` and `palaver search`: find messages by role, time and text, or by words."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from palaver.cli.app import json_option, print_line, styled
from palaver.cli.options import (
    Originals,
    complete_conversation,
    find_conversation,
    owner_option,
    read_list,
    store_option,
    use_store,
)
from palaver.cli.output import format_message, format_time, print_json
from palaver.history import History
from palaver.messages import ROLES, to_dict

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.messages import Message, Role

__all__ = ["query", "search"]


class _Time(click.ParamType[int]):
    """ISO 8601, in UTC where it names no zone, or milliseconds since 1970."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None  # noqa: ANN401 - click's
    ) -> int:  # fmt: skip
        if isinstance(value, int):
            return value
        if str(value).isdecimal():
            return int(value)
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is neither ISO 8601 nor milliseconds", param, ctx)
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return round(zoned.timestamp() * 1000)


class _Range(click.ParamType[tuple[int, int]]):
    """Two numbers with a colon between them."""

    name = "a:b"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None  # noqa: ANN401 - click's
    ) -> tuple[int, int]:  # fmt: skip
        if isinstance(value, tuple):
            return value
        start, colon, end = str(value).partition(":")
        if not (colon and start.isdecimal() and end.isdecimal()):
            self.fail(f"{value!r} is not A:B, such as 0:20", param, ctx)
        if int(start) > int(end):
            self.fail(f"{value!r} begins beyond its end", param, ctx)
        return int(start), int(end)


@click.command(short_help="Print some of the messages of a file or a conversation.")
@click.argument(
    "file",
    required=False,
    type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True),
)
@click.option(
    "--conversation",
    shell_complete=complete_conversation,
    help="A stored conversation, in place of FILE.",
)
@click.option("--role", "roles", multiple=True, type=click.Choice(ROLES), help="Any of these.")
@click.option("--mark", help="With this mark; of a stored conversation.")
@click.option("--recent", type=click.IntRange(min=0), metavar="N", help="Only the last N.")
@click.option("--range", "bounds", type=_Range(), help="Only from A to before B.")
@click.option("--since", type=_Time(), help="From this time on.")
@click.option("--until", type=_Time(), help="Before this time.")
@click.option("--text", help="With this text in it.")
@click.option("--speaker", metavar="NAME", help="Of this speaker: an id or a name.")
@click.option("--count", is_flag=True, help="Only print how many there are.")
@store_option
@json_option
def query(  # noqa: PLR0917 - one for each option
    file: str | None,
    conversation: str | None,
    roles: tuple[Role, ...],
    mark: str | None,
    recent: int | None,
    bounds: tuple[int, int] | None,
    since: int | None,
    until: int | None,
    text: str | None,
    speaker: str | None,
    address: str | None,
    *,
    count: bool,
    as_json: bool,
) -> None:
    """Print the messages in FILE, or of a stored conversation, that match every option given.

    --range and --recent count among those that match the others. Times are ISO 8601 (UTC unless
    they say otherwise) or milliseconds; a message without a time matches no time.
    """
    if (file is None) == (conversation is None):
        msg = "either FILE or --conversation must be given"
        raise click.UsageError(msg)
    conditions: dict[str, Any] = {
        "roles": roles or None,
        "mark": mark,
        "recent": recent,
        "range": bounds,
        "since": since,
        "until": until,
        "text": text,
        "speaker": speaker,
    }
    if conversation is not None:
        with use_store(address) as store:
            found = find_conversation(store, conversation).query(**conditions)
        _print(found, to_dict, count=count, as_json=as_json)
        return
    if mark is not None:
        msg = "--mark goes with --conversation: messages in a file have no marks"
        raise click.UsageError(msg)
    originals = Originals()
    raw = read_list(str(file), "messages")
    messages = originals.messages(raw)
    if since is not None or until is not None:
        timed = zip(messages, raw, strict=True)
        messages = [message for message, value in timed if "timestamp" in value]
    matching = History(messages).query(**conditions)
    _print(matching, originals.json_of, count=count, as_json=as_json)


def _print(
    messages: list[Message], to_json: Callable[[Message], Any], *, count: bool, as_json: bool
) -> None:
    if count:
        print_line(json.dumps({"count": len(messages)}) if as_json else str(len(messages)))
    elif as_json:
        shown = [to_json(message) for message in messages]
        click.echo(json.dumps(shown, ensure_ascii=False))
    else:
        for message in messages:
            print_line(format_message(message, timed="timestamp" in to_json(message)))


@click.command(short_help="Find messages by their words.")
@click.argument("words", nargs=-1, required=True)
@click.option("--conversation", shell_complete=complete_conversation, help="Only in this one.")
@click.option("--limit", type=click.IntRange(min=1), default=20, help="How many.  [20]")
@owner_option("Only in conversations of this owner.")
@store_option
@json_option
def search(
    words: tuple[str, ...],
    conversation: str | None,
    limit: int,
    owner: str | None,
    address: str | None,
    *,
    as_json: bool,
) -> None:
    """Find the messages with all WORDS; "in quotes" they must follow one another.

    Messages that were edited away or compacted are found too, and marked so.
    """
    with use_store(address) as store:
        name = None if conversation is None else find_conversation(store, conversation).id
        hits = store.search(" ".join(words), conversation=name, limit=limit, owner=owner)
    if as_json:
        print_json(
            [
                {
                    "conversation": hit.conversation,
                    "position": hit.position,
                    "index": hit.index,
                    "snippet": hit.snippet,
                    "message": to_dict(hit.message),
                }
                for hit in hits
            ]
        )
        return
    for hit in hits:
        when = styled(format_time(hit.message.timestamp), dim=True)
        gone = "" if hit.in_view else styled("  (not in the conversation now)", dim=True)
        print_line(f"{styled(hit.conversation, bold=True)}  {when}  {styled(hit.snippet)}{gone}")
