"""The impact of an edit, computed before it runs: messages, tokens, broken pairs, cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from palaver.errors import ValidationError
from palaver.history.diff import common_prefix, missing
from palaver.history.frame import Frame
from palaver.history.operations import Append, Rewrite, Rollback, as_operation
from palaver.history.plan import edit_rope, plan_selection
from palaver.history.view import View
from palaver.messages import Message, ToolCallPart, ToolPart
from palaver.messages.codec import to_dict
from palaver.messages.limits import describe_argument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from palaver.history.operations import Operation

__all__ = ["Impact", "measure_impact"]


class Impact(Struct, frozen=True):
    """What an edit removes, adds and breaks.

    `cache_tokens` counts the tokens from the first changed message on: the provider's prompt cache
    no longer covers them.
    """

    removed: tuple[Message, ...]
    added: tuple[Message, ...]
    tokens_freed: int
    tokens_added: int
    calls_without_results: tuple[str, ...]
    results_without_calls: tuple[str, ...]
    cache_tokens: int

    def to_dict(self) -> dict[str, Any]:
        """Return the impact as JSON-ready data; removed messages by their ids."""
        return {
            "removed": [message.id for message in self.removed],
            "added": [to_dict(message) for message in self.added],
            "tokensFreed": self.tokens_freed,
            "tokensAdded": self.tokens_added,
            "callsWithoutResults": list(self.calls_without_results),
            "resultsWithoutCalls": list(self.results_without_calls),
            "cacheTokens": self.cache_tokens,
        }


def measure_impact(
    given: Operation | Rewrite | Mapping[str, Any] | bytes | str,
    view: View,
    tokens: Callable[[Message], int],
) -> Impact:
    """Return the impact of an operation on a view."""
    if not callable(tokens):
        detail = "must be a function that returns the number of tokens of a message, not "
        raise ValidationError(detail + describe_argument(tokens), path="$.tokens", rule="argument")
    operation = given if isinstance(given, Rewrite) else as_operation(given)
    if isinstance(operation, Append):
        return compare_impact(view, view, operation.messages, len(view), tokens)
    if isinstance(operation, Rollback):
        after: View = view
        if operation.target_batch_index != view.batch_index:
            snapshot = view.batch_snapshot(operation.target_batch_index)
            if snapshot is None:
                detail = f"must be a batch from 0 to {view.batch_index}"
                raise ValidationError(detail, path="$.targetBatchIndex", rule="unknown-batch")
            after = snapshot.messages
        return compare_impact(view, after, (), None, tokens)
    edit = plan_selection(view, operation)
    rope = edit_rope(replace(edit, messages=()), view.rope, 0, view.log)
    left = View(view.log, Frame(root=rope), 0, view.version)
    changed = edit.removed or edit.messages
    return compare_impact(view, left, edit.messages, edit.place if changed else None, tokens)


def compare_impact(
    before: View,
    after: View,
    added: tuple[Message, ...],
    changed_from: int | None,
    tokens: Callable[[Message], int],
) -> Impact:
    """Return the impact of going from one view to another, with `added` messages besides.

    `changed_from` is the index of the first changed message, if it is known.
    """
    messages = before[:]
    removed = tuple(
        message
        for index, start, stop in missing(before, after)
        for message in messages[index : index + stop - start]
    )
    first = common_prefix(before, after) if changed_from is None else changed_from
    calls, results = _pairs(after, added)
    had_calls, had_results = _pairs(messages, ())
    return Impact(
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
