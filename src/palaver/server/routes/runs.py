"""Runs and costs: what a conversation did, request by request, and what was spent over time."""

from __future__ import annotations

from typing import Annotated, Final

from litestar import get
from litestar.params import FromPath, QueryParameter

from palaver.conversation.runs import RunPage, read_runs
from palaver.server.services import ServiceDependency
from palaver.server.services.costs import CostReport, StoreCosts

__all__ = ["ROUTES"]

_Stop = Annotated[int | None, QueryParameter(ge=0, description="the index before which it ends")]
_Limit = Annotated[int, QueryParameter(ge=10, le=1_000, description="how many messages are read")]
_Days = Annotated[int, QueryParameter(ge=1, le=1_100)]
_Offset = Annotated[int, QueryParameter(ge=-840, le=840, description="minutes ahead of UTC")]


@get("/conversations/{conversation:str}/runs", sync_to_thread=True)
def runs(
    conversation: FromPath[str],
    service: ServiceDependency,
    stop: _Stop = None,
    limit: _Limit = 200,
) -> RunPage:
    """Get the last turns of a conversation: each request to a model, and each tool call.

    Times, tokens and costs are those that were stored. A call without a result is as the ledger has
    it.
    """
    chat = service.conversations.get(conversation)
    return read_runs(chat.messages, chat.ledger(), stop=stop, limit=limit)


@get("/conversations/{conversation:str}/costs", sync_to_thread=True)
def conversation_costs(conversation: FromPath[str], service: ServiceDependency) -> CostReport:
    """Get what a conversation spent over time.

    A long conversation is read in several requests: until it is `complete`, ask again.
    """
    chat = service.conversations.get(conversation)
    return service.costs.report(conversation, chat.usage)


@get("/costs", sync_to_thread=True)
def store_costs(service: ServiceDependency, days: _Days = 30, offset: _Offset = 0) -> StoreCosts:
    """Get what all conversations of the store spent in the last days.

    Points are hours up to 2 days, days up to 120, and weeks beyond. Answers are read once while the
    server runs; until it is `complete`, ask again.
    """
    return service.costs.of_store(days, offset)


ROUTES: Final = [runs, conversation_costs, store_costs]
