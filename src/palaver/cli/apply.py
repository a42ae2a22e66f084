"""`palaver apply FILE --ops FILE`: what operations make of messages, as a pure function."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from palaver.cli.manners import Refused, file_argument
from palaver.cli.messages import Originals, load_list
from palaver.errors import UnsupportedOperation, ValidationError
from palaver.history import History, Result, State, View
from palaver.messages import to_dict

__all__ = ["apply"]


@click.command(short_help="Apply operations to messages, and print what they come to.")
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
    """Apply operations to the messages in FILE, and print the state they come to as JSON.

    Messages are printed as they were read: no id and no time is added to them. Where an operation
    is refused, its place in the array is named and nothing is printed.
    """
    if file == operations == "-":
        msg = "only one of FILE and --ops can be standard input"
        raise click.UsageError(msg)
    originals = Originals()
    history = History(originals.messages(load_list(file, "messages")))
    result = Result(history.state, history.batch_index)
    for index, raw in enumerate(load_list(operations, "operations")):
        result = _applied(history, originals, raw, index)
    answer = {
        "state": _state(result.state, originals, snapshots=not no_snapshots),
        "stats": to_dict(result.stats),
        "affectedBatchIndex": result.affected_batch_index,
    }
    click.echo(json.dumps(answer, ensure_ascii=False))


def _applied(history: History, originals: Originals, raw: Any, index: int) -> Result:  # noqa: ANN401 - whatever the file has
    place = f"$[{index}]"
    if not isinstance(raw, Mapping):
        raise ValidationError("must be an operation, an object", path=place, rule="HI-01")
    try:
        return history.execute(originals.operation(raw))
    except ValidationError as error:
        raise error.under(place) from None
    except UnsupportedOperation as error:
        msg = f"{place}: {error}"
        raise Refused(msg) from None


def _state(state: State, originals: Originals, *, snapshots: bool) -> dict[str, Any]:
    def spelled(view: View) -> list[Any]:
        return [originals.json_of(message) for message in view]

    return {
        "messages": spelled(state.messages),
        "batchSnapshots": [
            {
                **snapshot.to_dict(messages=False),
                **({"messages": spelled(snapshot.messages)} if snapshots else {}),
            }
            for snapshot in state.batch_snapshots
        ],
        "currentBatchIndex": state.current_batch_index,
        "totalMessageCount": state.total_message_count,
    }
