"""Operations as a page asks for them, and their price as a page shows it.

Beside the seven there is DELETE, which takes a range out of the middle: what people do most, and
what none of the seven says alone. It is one batch like any other edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.errors import UnsupportedOperation, ValidationError
from palaver.history import History, Price, Range, Rewrite, parse_operation
from palaver.history.pricing import priced
from palaver.messages import ToolCallPart, ToolPart
from palaver.server.bodies import converted
from palaver.server.shapes.changes import Brief, Broken, PriceTag, Size
from palaver.tokens.counters import is_exact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.history import Operation, View
    from palaver.tokens import Tally

__all__ = ["price_together", "read_operation", "tagged"]

DELETE: Final = "DELETE"
_NAMED: Final = 20
_WORDS: Final = 120


def read_operation(
    given: Mapping[str, Any], length: int, place: str = "$.operation"
) -> Operation | Rewrite:
    """Read an operation for a view of so many messages; an error says where in the body.

    >>> read_operation({"operation": "DELETE", "range": {"start": 1, "end": 3}}, 5).pieces
    (range(0, 1), range(3, 5))
    """
    try:
        return _deleting(given, length) if given.get("operation") == DELETE else _seven(given)
    except UnsupportedOperation as error:
        raise UnsupportedOperation(error.operation, path=f"{place}.operation") from None
    except ValidationError as error:
        raise error.under(place) from None


def _seven(given: Mapping[str, Any]) -> Operation:
    return parse_operation(given)


def _deleting(given: Mapping[str, Any], length: int) -> Rewrite:
    unknown = given.keys() - {"operation", "range"}
    if unknown:
        raise ValidationError("is not a field of it", path=f"$.{min(unknown)}", rule="HI-01")
    if "range" not in given:
        raise ValidationError("is missing", path="$.range", rule="HI-01")
    gone: Range = converted(given["range"], Range, "$.range")
    if not 0 <= gone.start <= gone.end <= length:
        detail = f"must be within the {length:,} messages there are"
        raise ValidationError(detail, path="$.range", rule="HI-01")
    return Rewrite((range(gone.start), range(gone.end, length)), DELETE)


def price_together(operations: list[dict[str, Any]], view: View, tally: Tally) -> Price:
    """The price of several operations as one, found by carrying them out on a copy in memory."""
    copy = History(view[:])
    for index, given in enumerate(operations):
        operation = read_operation(given, len(copy), f"$.operations[{index}]")
        if isinstance(operation, Rewrite):
            copy.rewrite(operation.pieces, reason=operation.reason)
        else:
            copy.execute(operation)
    added = tuple(entry.message for entry in copy.diff(0).added)
    cost = priced(copy.at(0), copy.view, (), None, tally.weigh)
    return Price(
        removed=cost.removed,
        added=added,
        tokens_freed=cost.tokens_freed,
        tokens_added=sum(map(tally.weigh, added)),
        calls_without_results=cost.calls_without_results,
        results_without_calls=cost.results_without_calls,
        cache_tokens=cost.cache_tokens,
    )


def tagged(price: Price, view: View, tally: Tally) -> PriceTag:
    """A price with what it is the price of, as a page shows it."""
    total = tally.total(view)
    return PriceTag(
        version=view.version,
        before=Size(messages=len(view), tokens=total),
        after=Size(
            messages=len(view) - len(price.removed) + len(price.added),
            tokens=total - price.tokens_freed + price.tokens_added,
        ),
        tokens_freed=price.tokens_freed,
        tokens_added=price.tokens_added,
        cache_lost=price.cache_tokens,
        source="tokenizer" if is_exact() else "estimate",
        removed_count=len(price.removed),
        added_count=len(price.added),
        removed=_briefs(price, view),
        pairs_broken=_broken(price, view),
    )


def _briefs(price: Price, view: View) -> list[Brief]:
    found: list[Brief] = []
    for message in price.removed[:_NAMED]:
        places = (view.index_of(position) for position in view.log.positions_of(message.id))
        index = next((place for place in places if place is not None), 0)
        text = " ".join(message.text[: 4 * _WORDS].split())[:_WORDS]
        found.append(Brief(index=index, id=message.id, role=message.role, text=text))
    return found


def _broken(price: Price, view: View) -> list[Broken]:
    """The pairs that would be broken, with the names of the tools."""
    wanted = {*price.calls_without_results, *price.results_without_calls}
    if not wanted:
        return []
    tools = {
        part.call_id: part.tool
        for message in view
        for part in message.parts
        if isinstance(part, ToolCallPart | ToolPart) and part.call_id in wanted
    }
    return [
        *(
            Broken(call_id=call, tool=tools.get(call, ""), missing="result")
            for call in price.calls_without_results
        ),
        *(
            Broken(call_id=call, tool=tools.get(call, ""), missing="call")
            for call in price.results_without_calls
        ),
    ]
