"""What the commands over a store share: which store, which conversation, how both are printed.

A conversation is given by its id or by the beginning of it, as long as that fits only one.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from palaver.cli.manners import Refused, on_terminal, say, styled
from palaver.messages import to_dict
from palaver.stores import open_store
from palaver.stores.opening import check_address
from palaver.stores.paths import database_path

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from palaver.history import Result
    from palaver.messages import Message
    from palaver.stores import Store
    from palaver.stores.history import StoredHistory

__all__ = [
    "conversation_argument",
    "describe_change",
    "file_of",
    "found",
    "message_line",
    "moment",
    "opened",
    "place_of",
    "progress",
    "put_json",
    "store_option",
    "sure",
    "which",
]

_COLOURS: Final = {"system": "magenta", "user": "green", "assistant": "blue", "tool": "yellow"}
_MANY: Final = 5
_Function = TypeVar("_Function", bound="Callable[..., Any]")


# ── which store ─────────────────────────────────────────────────────────────────────────────────


def store_option(function: _Function) -> _Function:
    """Give a command `--store`; open it with `opened`."""
    return click.option(
        "--store",
        "address",
        envvar="PALAVER_STORE",
        metavar="FILE|URL",
        help="Where the conversations are: by default a file in your data folder.",
    )(function)


def place_of(address: str | None) -> str:
    """Where the store is that was asked for, or that is there by default."""
    return str(_default_file()) if address is None else address


def file_of(where: str) -> Path | None:
    """The file of a store; None for one that is not in a file."""
    return None if "://" in where or where == ":memory:" else Path(database_path(where))


def _default_file() -> Path:
    home = os.environ.get("XDG_DATA_HOME") or ""
    folder = Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "share"
    return folder / "palaver" / "palaver.db"


@contextmanager
def opened(address: str | None, *, make: bool = False) -> Generator[Store]:
    """Open the store that was asked for; only a command that adds to it makes a new one."""
    where = place_of(address)
    check_address(where)  # what is misspelt may hold a password, and is not shown
    file = file_of(where)
    if file is not None and not file.exists():
        if not make:
            msg = f"there is no store at {click.format_filename(where)}"
            raise Refused(msg)
        if address is None:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_store(where) as store:
        yield store


# ── which conversation, which message ───────────────────────────────────────────────────────────


def conversation_argument(function: _Function) -> _Function:
    """Give a command CONVERSATION; look it up with `found`."""
    return click.argument("conversation")(function)


def found(store: Store, text: str) -> StoredHistory:
    """The conversation of an id, or of the beginning of one."""
    if text in store:
        return store.get(text)
    fitting = store.named(text, limit=_MANY + 1) if text else []
    if len(fitting) == 1:
        return store.get(fitting[0])
    if not fitting:
        msg = f"no conversation has an id that begins with {text!r}"
        raise Refused(msg)
    shown = ", ".join(fitting[:_MANY])
    more = " and more" if len(fitting) > _MANY else ""
    msg = f"{text!r} is the beginning of several ids: {shown}{more}"
    raise Refused(msg)


def which(text: str) -> int | str:
    """A message as a command names it: a number is its index, anything else its id."""
    return int(text) if text.isdecimal() else text


# ── printing ────────────────────────────────────────────────────────────────────────────────────


def sure(question: str) -> bool:
    """Ask before something is destroyed; nobody to ask is a no."""
    try:
        return click.confirm(question, err=True)
    except click.Abort:  # Ctrl-C, or nobody to ask
        return False


def put_json(value: object) -> None:
    """Print an answer for programs."""
    click.echo(json.dumps(value, ensure_ascii=False))


def moment(at: int) -> str:
    """A time as people read it, in UTC."""
    try:
        return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{at} ms"


def message_line(message: Message, *, timed: bool = True, before: str = "", after: str = "") -> str:
    """A message on one line: when, who, what."""
    when = f"{moment(message.timestamp)}  " if timed else ""
    text = message.text or " ".join(f"[{part.type}]" for part in message.parts)
    role = styled(f"{message.role:9}", fg=_COLOURS[message.role], bold=True)
    start = f"{styled(before, dim=True)}{styled(when, dim=True)}{role}"
    return f"{start}  {styled(' '.join(text.split()))}{styled(after, fg='cyan')}"


def describe_change(history: StoredHistory, result: Result | None, *, as_json: bool) -> None:
    """Say where a conversation stands after a change."""
    size = len(history)
    if as_json:
        answer: dict[str, Any] = {"conversation": history.id, "version": history.version}
        if result is not None:
            answer["affectedBatchIndex"] = result.affected_batch_index
            answer["stats"] = to_dict(result.stats)
        put_json(answer)
        return
    count = f"{size:,} message{'' if size == 1 else 's'}"
    batch = f"batch {history.batch_index}"
    say(f"{styled(history.id, bold=True)}: version {history.version}, {count}, {batch}")


@contextmanager
def progress(what: str) -> Generator[Callable[[int, int | None], None] | None]:
    """A bar on standard error, for a person who waits: call it with how many are done, of how many.

    Nobody sees it where standard error is no terminal.
    """
    if not on_terminal():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 - it takes its time to load
    from rich.progress import Progress  # noqa: PLC0415 - the same

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
