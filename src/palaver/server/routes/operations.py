"""Operations on a conversation: edits, their impact, edits that wait, merge, erase and prune.

Beside the seven operations of the history there is DELETE, which removes a range from the middle.
It is what people do most, and it is one batch like any other edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from litestar import Response, delete, get, post
from litestar.params import FromPath, JSONBody
from msgspec import Meta, field

from palaver.errors import UnsupportedOperation, ValidationError
from palaver.history import History, Impact, Range, Rewrite, Stats, check_expected, parse_operation
from palaver.history.impact import compare_impact, measure_impact
from palaver.messages import Role, ToolCallPart, ToolPart
from palaver.server.errors import RequestRefused
from palaver.server.requests import (
    IfMatch,
    Shape,
    check_if_match,
    convert_at,
    read_if_match,
    with_etag,
)
from palaver.server.services import ServiceDependency
from palaver.server.services.conversations import ConversationSize
from palaver.stores.prune import Pruned
from palaver.tokens import is_exact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.conversation.deferred import DeferredEdit
    from palaver.history import Operation, Result, View
    from palaver.stores import StoredHistory
    from palaver.tokens import RunningTotal

__all__ = ["ROUTES", "ChangeResult", "OperationData", "apply_all", "change_response"]

_DELETE: Final = "DELETE"
_NAMES: Final = (
    "APPEND", "INSERT", "REPLACE", "TRUNCATE", "CLEAR", "FILTER", "ROLLBACK", _DELETE,
)  # fmt: skip
_LISTED: Final = 20
"""How many of the removed messages an impact lists."""
_TEXT_LENGTH: Final = 120

_Number = Annotated[int, Meta(ge=0)]
OperationData = Annotated[
    dict[str, Any],
    Meta(
        description="One of the seven operations as JSON, or a DELETE of a range.",
        extra_json_schema={
            "required": ["operation"],
            "properties": {"operation": {"enum": list(_NAMES)}},
        },
    ),
]


class OperationRequest(Shape, frozen=True):
    """An operation to apply, or several, all or nothing."""

    operation: OperationData | None = None
    operations: list[OperationData] | None = None


class OperationOutcome(Shape, frozen=True):
    """The batch that an operation affected, and the numbers after it."""

    affected_batch_index: int
    stats: Stats


class ChangeResult(Shape, frozen=True):
    """The version after a change, and its outcome."""

    version: int
    result: OperationOutcome


class ImpactRequest(Shape, frozen=True):
    """One operation, or several that follow one another."""

    operation: OperationData | None = None
    operations: list[OperationData] | None = None


class BrokenPair(Shape, frozen=True):
    """A call that would lose its result, or a result that would lose its call."""

    call_id: str = field(name="callID")
    tool: str
    missing: Literal["result", "call"]


class MessageBrief(Shape, frozen=True):
    """A message, shortened."""

    index: int
    id: str
    role: Role
    text: str


class ImpactCost(Shape, frozen=True):
    """What an edit would cost in dollars, by the prices of the model that was asked last.

    `now` is what the next request costs more than without the edit, `later` what each one after it
    does; what is negative is saved. It has paid after `pays_after` later requests. What is unknown
    is null, for the `reason`. The provider's cache is `warm`, or has `expired`, or is `cold`: then
    it costs nothing to break.
    """

    model: str | None
    cache: Literal["warm", "expired", "cold"]
    now: float | None
    later: float | None
    pays_after: int | None
    reason: Literal["no-model", "no-price", "never-pays"] | None


class ImpactReport(Shape, frozen=True):
    """What an edit would remove, break and cost; nothing is changed.

    `cache_lost` is how many tokens of a provider's cached prompt prefix would be lost; `removed`
    has the first few of the messages that would be removed.
    """

    version: int
    before: ConversationSize
    after: ConversationSize
    tokens_freed: int
    tokens_added: int
    cache_lost: int
    cost: ImpactCost
    source: Literal["tokenizer", "estimate"]
    removed_count: int
    added_count: int
    removed: list[MessageBrief]
    pairs_broken: list[BrokenPair]


class WaitingEdit(Shape, frozen=True):
    """An edit that waits until the provider's cache breaks anyway.

    `tokens` is how many fewer a request will have. `problem` says why it could not be applied when
    it was due: then it waits on, until it is cancelled.
    """

    id: str
    at: int
    version: int
    detail: str
    operations: list[dict[str, Any]]
    removed_count: int
    added_count: int
    tokens: int
    problem: str | None


class WaitingEdits(Shape, frozen=True):
    """The edits that wait, the oldest first."""

    version: int
    items: list[WaitingEdit]


class MergeRequest(Shape, frozen=True):
    """The fork to merge, or the conversation that this one was forked from."""

    other: str


class EraseRequest(Shape, frozen=True):
    """The message whose content is to be destroyed: its id, its handle or its index."""

    message: str | _Number


class EraseReceipt(Shape, frozen=True):
    """What was erased, and what could not be reached."""

    message_id: str = field(name="messageID")
    erased_at: int
    messages: int
    summaries: int
    places: int
    versions: int
    records: int
    out_of_reach: list[str]


class PruneRequest(Shape, frozen=True):
    """How many undo steps are kept; a dry run only reports what would be removed."""

    undo: _Number = 0
    dry_run: bool = False


@post("/conversations/{conversation:str}/operations", sync_to_thread=True, status_code=200)
def apply(
    service: ServiceDependency,
    conversation: FromPath[str],
    data: JSONBody[OperationRequest],
    if_match: IfMatch = None,
) -> Response[ChangeResult]:
    """Apply an operation: one of the seven, or DELETE, which removes a range.

    Several operations are applied all or nothing, as one version; an error names the place.
    """
    _check_one_given(data)
    history = service.store.get(conversation)
    expect = read_if_match(if_match)
    check_expected(expect, history.version)
    read = None if expect is None else history.version  # the version that it was read for
    if data.operation is not None:
        result = history.execute(_read_operation(data.operation, len(history)), expect=read)
    else:
        result = apply_all(history, data.operations or [], read)
    return change_response(history, result)


def apply_all(
    history: StoredHistory, given: list[dict[str, Any]], expect: int | None = None
) -> Result:
    """Apply operations as one version, all or nothing; an error names the place in the body."""
    operations = _read_operations(given, history.view)
    try:
        return history.execute(operations, expect=expect)
    except ValidationError as error:
        raise error.under("$.operations") from None


@post(
    "/conversations/{conversation:str}/price",
    sync_to_thread=True,
    status_code=200,
    opt={"reads": True},
)
def impact(
    service: ServiceDependency, conversation: FromPath[str], data: JSONBody[ImpactRequest]
) -> Response[ImpactReport]:
    """Report what an operation would remove, break and cost; nothing changes.

    Several operations are reported as one; each applies to the result of the one before it.
    """
    _check_one_given(data)
    chat = service.conversations.get(conversation)
    view, tally = chat.history.view, chat.tally
    if data.operation is not None:
        operation = _read_operation(data.operation, len(view))
        found = measure_impact(operation, view, tally.weigh)
    else:
        found = _combined_impact(data.operations or [], view, tally)
    cost = convert_at(chat.cost_of(found).to_dict(), ImpactCost, "$.cost")
    return with_etag(_report_impact(found, view, tally, cost), view.version)


@get("/conversations/{conversation:str}/deferred", sync_to_thread=True)
def list_deferred(
    service: ServiceDependency, conversation: FromPath[str]
) -> Response[WaitingEdits]:
    """List the edits that wait until the provider's cache breaks anyway."""
    chat = service.conversations.get(conversation)
    edits = WaitingEdits(version=chat.history.version, items=list(map(_waiting, chat.deferred())))
    return with_etag(edits, chat.history.version)


@post("/conversations/{conversation:str}/deferred", sync_to_thread=True, status_code=200)
def defer(
    service: ServiceDependency,
    conversation: FromPath[str],
    data: JSONBody[OperationRequest],
    if_match: IfMatch = None,
) -> Response[WaitingEdit]:
    """Store an edit that is applied when the provider's cache breaks anyway.

    That is before a request to another model, with other tools, after the cache has expired, or
    after a compaction or another edit before it. Until then nothing changes.
    """
    _check_one_given(data)
    chat = service.conversations.get(conversation)
    check_if_match(service.store, conversation, if_match)
    if data.operation is not None:
        operations = [_read_operation(data.operation, len(chat.messages))]
    else:
        operations = _read_operations(data.operations or [], chat.messages)
    try:
        edit = chat.defer(operations)
    except ValidationError as error:
        if error.rule != "deferred-twice":
            raise
        raise RequestRefused(409, str(error)) from None
    return with_etag(_waiting(edit), chat.history.version)


@delete(
    "/conversations/{conversation:str}/deferred/{edit:str}", sync_to_thread=True, status_code=200
)
def cancel_deferred(
    service: ServiceDependency,
    conversation: FromPath[str],
    edit: FromPath[str],
    if_match: IfMatch = None,
) -> Response[WaitingEdit]:
    """Cancel an edit that waits."""
    chat = service.conversations.get(conversation)
    check_if_match(service.store, conversation, if_match)
    try:
        cancelled = chat.cancel_deferred(edit)
    except ValidationError as error:
        raise RequestRefused(404, str(error)) from None
    return with_etag(_waiting(cancelled), chat.history.version)


def _waiting(edit: DeferredEdit) -> WaitingEdit:
    shown: WaitingEdit = convert_at(edit.to_dict(), WaitingEdit, "$")
    return shown


@post("/conversations/{conversation:str}/merge", sync_to_thread=True, status_code=200)
def merge(
    service: ServiceDependency,
    conversation: FromPath[str],
    data: JSONBody[MergeRequest],
    if_match: IfMatch = None,
) -> Response[ChangeResult]:
    """Merge the changes of a fork; a conflict names the messages that both sides changed."""
    history = service.store.get(conversation)
    result = history.merge(service.store.get(data.other), expect=read_if_match(if_match))
    return change_response(history, result)


@post("/conversations/{conversation:str}/erase", sync_to_thread=True, status_code=200)
def erase(
    service: ServiceDependency,
    conversation: FromPath[str],
    data: JSONBody[EraseRequest],
    if_match: IfMatch = None,
) -> Response[EraseReceipt]:
    """Destroy the content of a message in every version and fork; this can't be undone."""
    history = service.store.get(conversation)
    done = history.erase(data.message, expect=read_if_match(if_match))
    receipt = EraseReceipt(
        message_id=done.message_id,
        erased_at=done.erased_at,
        messages=len(done.messages),
        summaries=len(done.summaries),
        places=done.places,
        versions=done.versions,
        records=len(done.records),
        out_of_reach=list(done.out_of_reach),
    )
    return with_etag(receipt, history.version)


@post(
    "/conversations/{conversation:str}/prune",
    sync_to_thread=True,
    status_code=200,
    opt={"reads": True},
)
def prune(
    service: ServiceDependency,
    conversation: FromPath[str],
    data: JSONBody[PruneRequest],
    if_match: IfMatch = None,
) -> Pruned:
    """Remove what only abandoned versions have; a dry run only reports what would go."""
    if service.settings.read_only and not data.dry_run:
        raise RequestRefused(403, "this server is read-only: only a dry run may be asked for")
    expect = read_if_match(if_match)
    return service.store.prune(conversation, undo=data.undo, dry_run=data.dry_run, expect=expect)


def change_response(history: StoredHistory, result: Result) -> Response[ChangeResult]:
    """The response for a change that was made."""
    outcome = OperationOutcome(affected_batch_index=result.affected_batch_index, stats=result.stats)
    change = ChangeResult(version=history.version, result=outcome)
    return with_etag(change, history.version)


def _read_operation(
    given: Mapping[str, Any], length: int, path: str = "$.operation"
) -> Operation | Rewrite:
    """Read an operation for a view of `length` messages; an error names the path in the body.

    >>> _read_operation({"operation": "DELETE", "range": {"start": 1, "end": 3}}, 5).pieces
    (range(0, 1), range(3, 5))
    """
    try:
        if given.get("operation") == _DELETE:
            return _read_delete(given, length)
        return parse_operation(given)
    except UnsupportedOperation as error:
        raise UnsupportedOperation(error.operation, path=f"{path}.operation") from None
    except ValidationError as error:
        raise error.under(path) from None


def _read_delete(given: Mapping[str, Any], length: int) -> Rewrite:
    unknown = given.keys() - {"operation", "range"}
    if unknown:
        raise ValidationError("is not a field of it", path=f"$.{min(unknown)}", rule="operation")
    if "range" not in given:
        raise ValidationError("is missing", path="$.range", rule="operation")
    removed: Range = convert_at(given["range"], Range, "$.range")
    if not 0 <= removed.start <= removed.end <= length:
        detail = f"must be within the {length:,} messages there are"
        raise ValidationError(detail, path="$.range", rule="operation")
    return Rewrite((range(removed.start), range(removed.end, length)), _DELETE)


def _check_one_given(data: OperationRequest | ImpactRequest) -> None:
    if (data.operation is None) == (data.operations is None):
        raise ValidationError("either operation or operations must be given", path="$")


def _read_operations(given: list[dict[str, Any]], view: View) -> list[Operation | Rewrite]:
    """Read operations that follow one another.

    A DELETE is read for the length that those before it leave; a copy in memory tells it.
    """
    copy = History(view[:]) if any(one.get("operation") == _DELETE for one in given[1:]) else view
    found: list[Operation | Rewrite] = []
    for index, one in enumerate(given):
        path = f"$.operations[{index}]"
        found.append(_read_operation(one, len(copy), path))
        if isinstance(copy, History):
            try:
                copy.execute(found[-1])
            except ValidationError as error:
                raise error.under(path) from None
    return found


def _combined_impact(operations: list[dict[str, Any]], view: View, tally: RunningTotal) -> Impact:
    """The impact of several operations as one, found by applying them to a copy in memory."""
    copy = History(view[:])
    for index, given in enumerate(operations):
        copy.execute(_read_operation(given, len(copy), f"$.operations[{index}]"))
    added = tuple(entry.message for entry in copy.diff(0).added)
    cost = compare_impact(copy.at(0), copy.view, (), None, tally.weigh)
    return Impact(
        removed=cost.removed,
        added=added,
        tokens_freed=cost.tokens_freed,
        tokens_added=sum(map(tally.weigh, added)),
        calls_without_results=cost.calls_without_results,
        results_without_calls=cost.results_without_calls,
        cache_tokens=cost.cache_tokens,
    )


def _report_impact(
    price: Impact, view: View, tally: RunningTotal, cost: ImpactCost
) -> ImpactReport:
    """An impact with the sizes before and after, as a page shows it."""
    total = tally.total(view)
    return ImpactReport(
        version=view.version,
        before=ConversationSize(messages=len(view), tokens=total),
        after=ConversationSize(
            messages=len(view) - len(price.removed) + len(price.added),
            tokens=total - price.tokens_freed + price.tokens_added,
        ),
        tokens_freed=price.tokens_freed,
        tokens_added=price.tokens_added,
        cache_lost=price.cache_tokens,
        cost=cost,
        source="tokenizer" if is_exact() else "estimate",
        removed_count=len(price.removed),
        added_count=len(price.added),
        removed=_shorten(price, view),
        pairs_broken=_find_broken(price, view),
    )


def _shorten(price: Impact, view: View) -> list[MessageBrief]:
    briefs: list[MessageBrief] = []
    for message in price.removed[:_LISTED]:
        indices = (view.index_of(position) for position in view.log.positions_of(message.id))
        index = next((found for found in indices if found is not None), 0)
        text = " ".join(message.text[: 4 * _TEXT_LENGTH].split())[:_TEXT_LENGTH]
        briefs.append(MessageBrief(index=index, id=message.id, role=message.role, text=text))
    return briefs


def _find_broken(price: Impact, view: View) -> list[BrokenPair]:
    """The pairs that would be broken, with the names of their tools."""
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
            BrokenPair(call_id=call, tool=tools.get(call, ""), missing="result")
            for call in price.calls_without_results
        ),
        *(
            BrokenPair(call_id=call, tool=tools.get(call, ""), missing="call")
            for call in price.results_without_calls
        ),
    ]


ROUTES: Final = [apply, impact, list_deferred, defer, cancel_deferred, merge, erase, prune]
