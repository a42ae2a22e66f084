"""`palaver query FILE`: some of the messages in a file, by role, time, text and place."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from palaver.cli.manners import file_argument, json_option, say, styled
from palaver.cli.messages import Originals, load_list
from palaver.history import History
from palaver.messages import ROLES

if TYPE_CHECKING:
    from palaver.messages import Message, Role

__all__ = ["query"]

_COLOURS = {"system": "magenta", "user": "green", "assistant": "blue", "tool": "yellow"}


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


@click.command(short_help="Print some of the messages in a file.")
@file_argument
@click.option("--role", "roles", multiple=True, type=click.Choice(ROLES), help="Any of these.")
@click.option("--recent", type=click.IntRange(min=0), metavar="N", help="Only the last N.")
@click.option("--range", "bounds", type=_Range(), help="Only from A to before B.")
@click.option("--since", type=_Time(), help="From this time on.")
@click.option("--until", type=_Time(), help="Before this time.")
@click.option("--text", help="With this text in it.")
@click.option("--count", is_flag=True, help="Only say how many.")
@json_option
def query(  # noqa: PLR0917 - one for each option
    file: str,
    roles: tuple[Role, ...],
    recent: int | None,
    bounds: tuple[int, int] | None,
    since: int | None,
    until: int | None,
    text: str | None,
    *,
    count: bool,
    as_json: bool,
) -> None:
    """Print the messages in FILE that match every option given.

    --range and --recent count among those that match the others. Times are ISO 8601 (UTC unless
    they say otherwise) or milliseconds; a message without a time is in no stretch of time.
    """
    originals = Originals()
    raw = load_list(file, "messages")
    messages = originals.messages(raw)
    if since is not None or until is not None:
        timed = zip(messages, raw, strict=True)
        messages = [message for message, value in timed if "timestamp" in value]
    found = History(messages).query(
        roles=roles or None, recent=recent, range=bounds, since=since, until=until, text=text
    )
    if count:
        say(json.dumps({"count": len(found)}) if as_json else str(len(found)))
    elif as_json:
        shown = [originals.json_of(message) for message in found]
        click.echo(json.dumps(shown, ensure_ascii=False))
    else:
        for message in found:
            say(_line(message, timed="timestamp" in originals.json_of(message)))


def _line(message: Message, *, timed: bool) -> str:
    when = ""
    if timed:
        moment = datetime.fromtimestamp(message.timestamp / 1000, UTC)
        when = f"{moment:%Y-%m-%d %H:%M:%S}  "
    text = message.text or " ".join(f"[{part.type}]" for part in message.parts)
    role = styled(f"{message.role:9}", fg=_COLOURS[message.role], bold=True)
    return f"{styled(when, dim=True)}{role}  {styled(' '.join(text.split()))}"
