"""LangGraph's `add_messages`, quick where a list only grows.

LangGraph looks at every message several times whenever one is added: of a turn at 4,000 messages
that is most of the time. A list that only grows needs its kinds and ids looked at, once. Whatever
else is asked for (an id that is there already, a removal, a chunk, a dict) is LangGraph's own work.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated, Any, cast

from langchain_core.messages import AnyMessage, BaseMessageChunk
from langgraph.graph.message import add_messages as add_any
from typing_extensions import TypedDict

from palaver.adapters.langgraph.shelf import KINDS

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langgraph.graph.message import Messages

__all__ = ["MessagesState", "add_messages"]

_WHOLE = frozenset(kind for kind in KINDS if not issubclass(kind, BaseMessageChunk))


def add_messages(left: Messages, right: Messages) -> Messages:
    """What LangGraph's reducer of the same name answers, sooner.

    >>> from langchain_core.messages import AIMessage, HumanMessage
    >>> said = add_messages([HumanMessage("Tea?", id="1")], AIMessage("Yes.", id="2"))
    >>> [message.content for message in said]
    ['Tea?', 'Yes.']
    """
    new: list[Any] = right if isinstance(right, list) else [right]
    if not (isinstance(left, list) and _WHOLE.issuperset(map(type, left))):
        return add_any(left, right)
    if not _WHOLE.issuperset(map(type, new)):
        return add_any(left, right)
    for message in new:
        if message.id is None:
            message.id = str(uuid.uuid4())
    ids = {None, *(message.id for message in new)}  # one without is LangGraph's to name
    known = [message.id for message in cast("list[BaseMessage]", left)]
    if len(ids) <= len(new) or not ids.isdisjoint(known):
        return add_any(left, right)
    return left + new


class MessagesState(TypedDict):
    """LangGraph's state of the same name, with the quicker reducer."""

    messages: Annotated[list[AnyMessage], add_messages]
