"""The seven operations, what they would cost, and what destroys for good: erase and prune."""

from __future__ import annotations

from typing import Final

from litestar import Response, post
from litestar.params import FromPath, JSONBody

from palaver.errors import ValidationError
from palaver.history import Rewrite
from palaver.history.pricing import price_of
from palaver.server.pricing import price_together, read_operation, tagged
from palaver.server.problems import Refusal
from palaver.server.routes.messages import Stamp
from palaver.server.service import Served
from palaver.server.shapes.changes import (
    Changed,
    Erasure,
    Operations,
    PriceAsked,
    PriceTag,
    Pruning,
    Receipt,
    outcome_of,
)
from palaver.server.stamps import expected, stamped
from palaver.server.working import Workshop
from palaver.stores.preconditions import check_expected
from palaver.stores.pruning import Pruned

__all__ = ["ROUTES"]


@post("/conversations/{conversation:str}/operations", sync_to_thread=True, status_code=200)
def operate(
    service: Served, conversation: FromPath[str], data: JSONBody[Operations], if_match: Stamp = None
) -> Response[Changed]:
    """Carry out an operation: one of the seven, or DELETE, which takes a range out."""
    history = service.store.get(conversation)
    expect = expected(if_match)
    check_expected(expect, history.version)
    operation = read_operation(data.operation, len(history))
    read = None if expect is None else history.version  # which the operation was read for
    if isinstance(operation, Rewrite):
        result = history.rewrite(operation.pieces, reason=operation.reason, expect=read)
    else:
        result = history.execute(operation, expect=read)
    answer = Changed(version=history.version, result=outcome_of(result))
    return stamped(answer, history.version)


@post(
    "/conversations/{conversation:str}/price",
    sync_to_thread=True,
    status_code=200,
    opt={"reads": True},
)
def price(
    service: Served, conversation: FromPath[str], data: JSONBody[PriceAsked]
) -> Response[PriceTag]:
    """Say what an operation would take away, break and cost; nothing changes.

    Several operations are priced as one, each on what the one before it would leave.
    """
    if (data.operation is None) == (data.operations is None):
        raise ValidationError("either operation or operations must be given", path="$")
    talk = service.part(Workshop).talks.get(conversation)
    view, tally = talk.history.view, talk.tally
    if data.operation is not None:
        operation = read_operation(data.operation, len(view))
        tag = tagged(price_of(operation, view, tally.weigh), view, tally)
    else:
        tag = tagged(price_together(data.operations or [], view, tally), view, tally)
    return stamped(tag, view.version)


@post("/conversations/{conversation:str}/erase", sync_to_thread=True, status_code=200)
def erase(
    service: Served, conversation: FromPath[str], data: JSONBody[Erasure], if_match: Stamp = None
) -> Response[Receipt]:
    """Destroy what a message says, in every version and fork; there is no way back."""
    history = service.store.get(conversation)
    done = history.erase(data.message, expect=expected(if_match))
    answer = Receipt(
        message_id=done.message_id,
        erased_at=done.erased_at,
        messages=len(done.messages),
        summaries=len(done.summaries),
        places=done.places,
        versions=done.versions,
        records=len(done.records),
        out_of_reach=list(done.out_of_reach),
    )
    return stamped(answer, history.version)


@post(
    "/conversations/{conversation:str}/prune",
    sync_to_thread=True,
    status_code=200,
    opt={"reads": True},
)
def prune(
    service: Served, conversation: FromPath[str], data: JSONBody[Pruning], if_match: Stamp = None
) -> Pruned:
    """Let go of what only abandoned versions have; a dry run only says what would go."""
    if service.settings.read_only and not data.dry_run:
        raise Refusal(403, "this server is read-only: only a dry run may be asked for")
    expect = expected(if_match)
    return service.store.prune(conversation, undo=data.undo, dry_run=data.dry_run, expect=expect)


ROUTES: Final = [operate, price, erase, prune]
