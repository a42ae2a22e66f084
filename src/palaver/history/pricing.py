"""What an edit would cost, before it runs: messages, tokens, broken pairs, cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from palaver.errors import ValidationError
from palaver.history.diff import common_prefix, missing
from palaver.history.frame import Frame
from palaver.history.operations import Append, Rollback, as_operation
from palaver.history.plan import carried_out, planned
from palaver.history.rewriting import Rewrite
from palaver.history.view import View
from palaver.messages import Message, ToolCallPart, ToolPart
from palaver.messages.codec import to_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from palaver.history.operations import Operation

__all__ = ["Price", "price_of"]


class Price(Struct, frozen=True):
    """What an edit takes away and breaks.

    `cache_tokens` is how much of what the provider has cached no longer begins the prompt: every
    message from the first changed one on.
    """

    removed: tuple[Message, ...]
    added: tuple[Message, ...]
    tokens_freed: int
    tokens_added: int
    calls_without_results: tuple[str, ...]
    results_without_calls: tuple[str, ...]
    cache_tokens: int

    def to_dict(self) -> dict[str, Any]:
        """The price as JSON-ready data; messages by their ids."""
        return {
            "removed": [message.id for message in self.removed],
            "added": [to_dict(message) for message in self.added],
            "tokensFreed": self.tokens_freed,
            "tokensAdded": self.tokens_added,
            "callsWithoutResults": list(self.calls_without_results),
            "resultsWithoutCalls": list(self.results_without_calls),
            "cacheTokens": self.cache_tokens,
        }


def price_of(
    given: Operation | Rewrite | Mapping[str, Any] | bytes | str,
    view: View,
    tokens: Callable[[Message], int],
) -> Price:
    """The price of an operation on a view."""
    operation = given if isinstance(given, Rewrite) else as_operation(given)
    if isinstance(operation, Append):
        return priced(view, view, operation.messages, len(view), tokens)
    if isinstance(operation, Rollback):
        after: View = view
        if operation.target_batch_index != view.batch_index:
            snapshot = view.batch_snapshot(operation.target_batch_index)
            if snapshot is None:
                detail = f"must be a batch from 0 to {view.batch_index}"
                raise ValidationError(detail, path="$.targetBatchIndex", rule="HI-10")
            after = snapshot.messages
        return priced(view, after, (), None, tokens)
    plan = planned(view, operation)
    bare = replace(plan, messages=())
    rope = carried_out(bare, view.rope, 0, view.log)
    left = View(view.log, Frame(root=rope), 0, view.version)
    changed = plan.removed or plan.messages
    return priced(view, left, plan.messages, plan.place if changed else None, tokens)


def priced(
    before: View,
    after: View,
    added: tuple[Message, ...],
    changed_from: int | None,
    tokens: Callable[[Message], int],
) -> Price:
    """The price of going from one view to another, where `added` messages come in besides."""
    messages = before[:]
    removed = tuple(
        message
        for index, start, stop in missing(before, after)
        for message in messages[index : index + stop - start]
    )
    first = common_prefix(before, after) if changed_from is None else changed_from
    calls, results = _pairs(after, added)
    had_calls, had_results = _pairs(messages, ())
    return Price(
        removed=removed,
        added=added,
        tokens_freed=sum(map(tokens, removed)),
        tokens_added=sum(map(tokens, added)),
        calls_without_results=tuple(
            call for call in calls if call not in results and call in had_results
        ),
        results_without_calls=tuple(
            call for call in results if call not in calls and call in had_calls
        ),
        cache_tokens=sum(map(tokens, messages[first:])),
    )


def _pairs(view: Iterable[Message], added: tuple[Message, ...]) -> tuple[dict[str, None], ...]:
    calls: dict[str, None] = {}
    results: dict[str, None] = {}
    for message in (*view, *added):
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                calls[part.call_id] = None
            elif isinstance(part, ToolPart):
                results[part.call_id] = None
    return calls, results
