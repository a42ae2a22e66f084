"""`palaver edit`, `deferred`, `apply` and `mark`: change messages, now or later."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from palaver.cli.app import Refused, file_argument, json_option, print_line, styled
from palaver.cli.options import (
    Originals,
    conversation_argument,
    find_conversation,
    read_list,
    read_message_ref,
    store_option,
    use_store,
)
from palaver.cli.output import print_change, print_json
from palaver.errors import UnsupportedOperation
from palaver.history import History, Result, State, View, parse_operations
from palaver.messages import to_dict
from palaver.messages.codec import load_json
from palaver.tokens import is_exact

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.conversation import Conversation, DeferredEdit, EditCost, PricedEdit
    from palaver.history import Operation
    from palaver.stores import Store, StoredHistory

__all__ = ["apply", "deferred", "edit", "mark"]


@click.command(short_help="Apply operations to a conversation, or show their impact.")
@conversation_argument
@click.option("--op", "given", multiple=True, metavar="JSON", help="An operation; can be repeated.")
@click.option(
    "--ops",
    "file",
    type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True),
    help="A file with operations, a JSON array.",
)
@click.option("--price", is_flag=True, help="Only show what it would remove and cost.")
@click.option("--model", help="The model whose prices count, provider:name; else the last one.")
@click.option("--defer", is_flag=True, help="Wait until the provider's cache breaks anyway.")
@store_option
@json_option
def edit(
    conversation: str,
    given: tuple[str, ...],
    file: str | None,
    address: str | None,
    *,
    price: bool,
    model: str | None,
    defer: bool,
    as_json: bool,
) -> None:
    """Apply operations to CONVERSATION: APPEND, INSERT, REPLACE, TRUNCATE, CLEAR, FILTER,
    ROLLBACK, each as JSON such as {"operation": "TRUNCATE", "keepLast": 20}.

    They are applied all or nothing, as one version: if one is refused, the error names its index,
    and nothing changes. --price takes one operation; without the extra `tokens` its tokens are an
    estimate, and without the extra `prices` its cost is unknown. With --defer nothing changes yet:
    `palaver deferred` lists what waits.
    """  # noqa: D205 - the help text of the command
    if bool(given) == (file is not None):
        msg = "either --op or --ops must be given"
        raise click.UsageError(msg)
    raw = [load_json(text) for text in given] if file is None else read_list(file, "operations")
    operations = _read_operations(raw)
    if price and len(operations) != 1:
        msg = "--price takes exactly one operation"
        raise click.UsageError(msg)
    if price and defer:
        msg = "either --price or --defer can be given"
        raise click.UsageError(msg)
    if model is not None and not price:
        msg = "--model goes with --price"
        raise click.UsageError(msg)
    with use_store(address) as store:
        history = find_conversation(store, conversation)
        if price or defer:
            talk = _as_conversation(store, history)
            if defer:
                _print_deferred([talk.defer(operations)], as_json=as_json)
            else:
                _print_price(talk.price(operations[0], model=model), as_json=as_json)
            return
        result = history.execute(operations) if operations else None
        print_change(history, result, as_json=as_json)


def _as_conversation(store: Store, history: StoredHistory) -> Conversation:
    from palaver.conversation import Conversation, Prices  # noqa: PLC0415 - slow to load

    return Conversation(store, history, prices=Prices())


def _read_operations(
    raw: list[Any], read: Callable[[list[Any]], list[Operation]] = parse_operations
) -> list[Operation]:
    try:
        return read(raw)
    except UnsupportedOperation as error:
        msg = f"{error.path.removesuffix('.operation')}: {error}"
        raise Refused(msg) from None


def _print_price(priced: PricedEdit, *, as_json: bool) -> None:
    if as_json:
        print_json({**priced.to_dict(), "tokens": "exact" if is_exact() else "estimated"})
        return
    price, about = priced.impact, "" if is_exact() else "about "
    removed = len(price.removed)
    lines = {
        "removed": f"{removed:,} message{'' if removed == 1 else 's'}",
        "tokens freed": f"{about}{price.tokens_freed:,}",
        "tokens added": f"{about}{price.tokens_added:,}",
        "cached tokens lost": f"{about}{price.cache_tokens:,}",
        "calls without results": ", ".join(price.calls_without_results) or "none",
        "results without calls": ", ".join(price.results_without_calls) or "none",
        **_cost_lines(priced.cost),
    }
    for name, value in lines.items():
        print_line(f"{styled(f'{name:22}', bold=True)}{styled(value)}")


def _cost_lines(cost: EditCost) -> dict[str, str]:
    """The lines that say what an edit costs; one line says why it is not known."""
    if cost.now is None or cost.later is None:
        return {"cost": f"unknown: {cost.explanation}"}
    pays = f"{cost.pays_after:,} later requests" if cost.pays_after else "at once"
    return {
        "provider's cache": f"{cost.cache} ({cost.model})",
        "cost now": _dollars(cost.now),
        "each later request": _dollars(cost.later),
        "it pays after": pays if cost.pays_after is not None else f"never: {cost.explanation}",
    }


def _dollars(amount: float) -> str:
    """An amount with its sign: what is negative is saved.

    >>> _dollars(-0.0123), _dollars(2.5)
    ('-$0.0123', '+$2.5000')
    """
    return f"{'-' if amount < 0 else '+'}${abs(amount):,.4f}"


@click.command(short_help="List the edits that wait, apply or cancel them.")
@conversation_argument
@click.option("--cancel", metavar="ID", help="Cancel the edit with this id.")
@click.option("--apply", "apply_now", is_flag=True, help="Apply them now, in one batch.")
@store_option
@json_option
def deferred(
    conversation: str,
    cancel: str | None,
    address: str | None,
    *,
    apply_now: bool,
    as_json: bool,
) -> None:
    """List the edits of CONVERSATION that wait until the provider's cache breaks anyway.

    They are applied before a request to another model, with other tools, after the cache has
    expired, or after a compaction or another edit before them. `palaver edit --defer` adds one.
    """
    if cancel is not None and apply_now:
        msg = "either --cancel or --apply can be given"
        raise click.UsageError(msg)
    with use_store(address) as store:
        talk = _as_conversation(store, find_conversation(store, conversation))
        if apply_now:
            talk.apply_deferred()
            print_change(talk.history, None, as_json=as_json)
            return
        edits = talk.deferred() if cancel is None else [talk.cancel_deferred(cancel)]
        _print_deferred(edits, as_json=as_json)


def _print_deferred(edits: list[DeferredEdit], *, as_json: bool) -> None:
    if as_json:
        print_json([edit.to_dict() for edit in edits])
        return
    for edit in edits:
        told = f"{edit.detail}, {edit.tokens:,} tokens fewer"
        problem = f"; not applied: {edit.problem}" if edit.problem else ""
        print_line(f"{styled(edit.id, bold=True)}  {styled(told + problem)}")
    if not edits:
        print_line(styled("no edit waits"))


@click.command(short_help="Apply operations to messages in a file.")
@file_argument
@click.option(
    "--ops",
    "operations",
    required=True,
    type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True),
    help="The operations, a JSON array.",
)
@click.option("--no-snapshots", is_flag=True, help="Leave the snapshots' messages out.")
def apply(file: str, operations: str, *, no_snapshots: bool) -> None:
    """Apply operations to the messages in FILE, and print the resulting state as JSON.

    Messages are printed as they were read: no id and no time is added to them. If an operation is
    refused, the error names its index in the array, and nothing is printed.
    """
    if file == operations == "-":
        msg = "only one of FILE and --ops can be standard input"
        raise click.UsageError(msg)
    originals = Originals()
    history = History(originals.messages(read_list(file, "messages")))
    result = Result(history.state, history.batch_index)
    given = _read_operations(read_list(operations, "operations"), originals.operations)
    if given:
        result = history.execute(given)
    answer = {
        "state": _state_json(result.state, originals, snapshots=not no_snapshots),
        "stats": to_dict(result.stats),
        "affectedBatchIndex": result.affected_batch_index,
    }
    click.echo(json.dumps(answer, ensure_ascii=False))


def _state_json(state: State, originals: Originals, *, snapshots: bool) -> dict[str, Any]:
    def to_json(view: View) -> list[Any]:
        return [originals.json_of(message) for message in view]

    return {
        "messages": to_json(state.messages),
        "batchSnapshots": [
            {
                **snapshot.to_dict(messages=False),
                **({"messages": to_json(snapshot.messages)} if snapshots else {}),
            }
            for snapshot in state.batch_snapshots
        ],
        "currentBatchIndex": state.current_batch_index,
        "totalMessageCount": state.total_message_count,
    }


@click.command(short_help="Put a mark on a message.")
@conversation_argument
@click.argument("message")
@click.argument("name")
@click.option("--remove", is_flag=True, help="Remove the mark.")
@store_option
@json_option
def mark(
    conversation: str, message: str, name: str, address: str | None, *, remove: bool, as_json: bool
) -> None:
    """Put the mark NAME on MESSAGE, given by its index or its id."""
    with use_store(address) as store:
        history = find_conversation(store, conversation)
        change = history.unmark if remove else history.mark
        change(read_message_ref(message), name)
        print_change(history, None, as_json=as_json)
