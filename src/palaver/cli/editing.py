"""`palaver edit`: operations on a stored conversation, or what they would cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from palaver.cli.manners import Refused, json_option, say, styled
from palaver.cli.messages import load_list
from palaver.cli.stored import (
    conversation_argument,
    describe_change,
    found,
    opened,
    put_json,
    store_option,
)
from palaver.errors import PalaverError
from palaver.history import parse_operation
from palaver.messages.codec import load_json

if TYPE_CHECKING:
    from palaver.history import Operation, Price, Result
    from palaver.messages import Message

__all__ = ["edit"]


@click.command(short_help="Edit a conversation with operations, or price them.")
@conversation_argument
@click.option("--op", "given", multiple=True, metavar="JSON", help="An operation; can be repeated.")
@click.option(
    "--ops",
    "file",
    type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True),
    help="A file with operations, a JSON array.",
)
@click.option("--price", is_flag=True, help="Only say what it would take away and cost.")
@store_option
@json_option
def edit(
    conversation: str,
    given: tuple[str, ...],
    file: str | None,
    address: str | None,
    *,
    price: bool,
    as_json: bool,
) -> None:
    """Carry out operations on CONVERSATION: APPEND, INSERT, REPLACE, TRUNCATE, CLEAR, FILTER,
    ROLLBACK, each as JSON such as {"operation": "TRUNCATE", "keepLast": 20}.

    All are read before the first is carried out. Each is a change of its own: where one is refused,
    those before it stay, and its place is named. --price takes one operation; its tokens are an
    estimate, a quarter of the characters.
    """  # noqa: D205 - the help text of the command
    if bool(given) == (file is not None):
        msg = "either --op or --ops must be given"
        raise click.UsageError(msg)
    raw = [load_json(text) for text in given] if file is None else load_list(file, "operations")
    operations = [_read(value, index) for index, value in enumerate(raw)]
    if price and len(operations) != 1:
        msg = "--price takes exactly one operation"
        raise click.UsageError(msg)
    with opened(address) as store:
        history = found(store, conversation)
        if price:
            _tell(history.price(operations[0], tokens=_estimate), as_json=as_json)
            return
        result: Result | None = None
        for index, operation in enumerate(operations):
            try:
                result = history.execute(operation)
            except PalaverError as error:
                done = f" ({index} carried out before it)" if index else ""
                msg = f"$[{index}]: {error}{done}"
                raise Refused(msg) from None
        describe_change(history, result, as_json=as_json)


def _read(value: Any, index: int) -> Operation:  # noqa: ANN401 - whatever the file has
    if not isinstance(value, Mapping):
        msg = f"$[{index}]: must be an operation, an object"
        raise Refused(msg)
    try:
        return parse_operation(value)
    except PalaverError as error:
        msg = f"$[{index}]: {error}"
        raise Refused(msg) from None


def _estimate(message: Message) -> int:
    return -(-len(message.text) // 4)


def _tell(price: Price, *, as_json: bool) -> None:
    if as_json:
        put_json({**price.to_dict(), "tokens": "estimated"})
        return
    removed = len(price.removed)
    lines = {
        "removed": f"{removed:,} message{'' if removed == 1 else 's'}",
        "tokens freed": f"about {price.tokens_freed:,}",
        "tokens added": f"about {price.tokens_added:,}",
        "cached tokens lost": f"about {price.cache_tokens:,}",
        "calls without results": ", ".join(price.calls_without_results) or "none",
        "results without calls": ", ".join(price.results_without_calls) or "none",
    }
    for name, value in lines.items():
        say(f"{styled(f'{name:22}', bold=True)}{styled(value)}")
