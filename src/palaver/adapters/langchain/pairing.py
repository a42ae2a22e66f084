"""Messages that a model takes: a result follows its call, and every call has one.

An edit may part the two, and a crash may leave a call open; every later request would be refused.
What is whole passes as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from palaver.wire.mending import INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["mended"]


def mended(messages: Sequence[BaseMessage], *, resuming: bool = False) -> list[BaseMessage]:
    """Leave out results without a call, and give calls without a result one that says so.

    `resuming` leaves the calls of the last answer open, for who is about to carry them out.

    >>> mended([ToolMessage("4", tool_call_id="c1")])
    []
    >>> call = AIMessage("", tool_calls=[{"name": "add", "args": {}, "id": "c1"}])
    >>> [message.type for message in mended([call])]
    ['ai', 'tool']
    >>> mended([call], resuming=True) == [call]
    True
    """
    if _whole(messages, resuming=resuming):
        return list(messages)
    made: list[BaseMessage] = []
    later: dict[str, BaseMessage] = {}
    last = True
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            later[message.tool_call_id] = message
            continue
        for call, name in reversed(_calls(message).items()):
            found = later.pop(call, None)
            if found or not (last and resuming):
                made.append(found or _interrupted(call, name))
        made.append(message)
        last = False
    made.reverse()
    return made


def _whole(messages: Sequence[BaseMessage], *, resuming: bool) -> bool:
    """Whether nothing is to be mended."""
    waiting: dict[str, str | None] = {}
    for message in messages:
        if not isinstance(message, ToolMessage):
            if waiting:
                return False
            waiting = _calls(message)
        elif message.tool_call_id not in waiting:
            return False
        else:
            del waiting[message.tool_call_id]
    return resuming or not waiting


def _calls(message: BaseMessage) -> dict[str, str | None]:
    """The calls of a message, by id: those that could not be read are sent to the model as well."""
    if not isinstance(message, AIMessage):
        return {}
    calls = (*message.tool_calls, *message.invalid_tool_calls)
    return {call["id"]: call["name"] for call in calls if call["id"]}


def _interrupted(call: str, name: str | None) -> ToolMessage:
    return ToolMessage(INTERRUPTED, tool_call_id=call, name=name, status="error")
