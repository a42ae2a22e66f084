"""What makes a list of LangChain's messages valid for the model that is asked next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.prompt_values import PromptValue

from palaver.adapters.langchain.convert import THOUGHTS
from palaver.messages.limits import is_list, is_object
from palaver.wire.pairing import INTERRUPTED
from palaver.wire.repair import begin_with_user, pair_results

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["put_user_first", "repair", "repair_messages"]


def _sender(message: BaseMessage) -> str:
    return "assistant" if isinstance(message, AIMessage) else message.type


def put_user_first(messages: list[BaseMessage]) -> list[BaseMessage]:
    """Return messages, with a short text of the user before an answer that comes first."""
    return begin_with_user(messages, role=_sender, made=HumanMessage)


def repair_messages(
    messages: Sequence[BaseMessage] | PromptValue, *, resuming: bool = False
) -> list[BaseMessage]:
    """Make messages valid for the model that is asked next: `prompt | repair_messages | model`.

    Results without a call are left out, and calls without a result get one that says so; `resuming`
    leaves the calls of the last answer open, for callers that will run them. Thoughts that stand
    alone, as Claude writes them, go with the answer that they led to, and answers that say nothing
    are left out, but for the last one: providers refuse an answer without content. An answer that
    comes first, such as a greeting, follows a short text of the user.

    >>> repair_messages([ToolMessage("4", tool_call_id="c1")])
    []
    >>> call = AIMessage("", tool_calls=[{"name": "add", "args": {}, "id": "c1"}])
    >>> [message.type for message in repair_messages([HumanMessage("2 + 2?"), call])]
    ['human', 'ai', 'tool']
    >>> [message.type for message in repair_messages([AIMessage("Hello!")])]
    ['human', 'ai']
    """
    given = messages.to_messages() if isinstance(messages, PromptValue) else messages
    return put_user_first(repair(given, resuming=resuming))


def repair(messages: Sequence[BaseMessage], *, resuming: bool) -> list[BaseMessage]:
    """Return messages in which each call has its result and each answer says something.

    How they begin stays as it is.
    """
    joined = _join_thoughts(messages)
    if _is_sound(joined, resuming=resuming):
        return joined
    return pair_results(
        joined,
        calls=_call_ids,
        answers=_answered_call,
        missing=_interrupted_result,
        keep_open=resuming,
    )


def _join_thoughts(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Put thoughts that stand alone before the answer that follows; leave them out if none does.

    Answers that say nothing are left out too, but for the last one.
    """
    joined: list[BaseMessage] = []
    thoughts: list[Any] = []
    for index, message in enumerate(messages, 1):
        if _is_thought(message):
            thoughts += message.content
            continue
        if index < len(messages) and _says_nothing(message):
            continue
        if thoughts and isinstance(message, AIMessage):
            said = message.content
            blocks = said if isinstance(said, list) else [{"type": "text", "text": said}]
            content = [*thoughts, *(blocks if said else ())]
            message = message.model_copy(update={"content": content})  # noqa: PLW2901 - the same
        thoughts = []
        joined.append(message)
    return joined


def _is_thought(message: BaseMessage) -> bool:
    """Tell whether an answer is nothing but thoughts."""
    if not isinstance(message, AIMessage) or not is_list(message.content) or not message.content:
        return False
    kinds = {block.get("type") if is_object(block) else "text" for block in message.content}
    return kinds <= THOUGHTS and not _open_calls(message)


def _says_nothing(message: BaseMessage) -> bool:
    """Tell whether an answer has no content: it was interrupted, or edited, or the model's own."""
    if not isinstance(message, AIMessage) or message.tool_calls or message.invalid_tool_calls:
        return False
    if any(message.additional_kwargs.values()):
        return False
    said = message.content
    texts = [said] if isinstance(said, str) else [_only_text(block) for block in said]
    return all(text is not None and not text.strip() for text in texts)


def _only_text(block: object) -> str | None:
    """Return the text of a block that is nothing else."""
    if is_object(block) and block.get("type") == "text":
        return str(block.get("text", ""))
    return block if isinstance(block, str) else None


def _is_sound(messages: Sequence[BaseMessage], *, resuming: bool) -> bool:
    """Tell whether nothing has to be repaired."""
    waiting: list[str] = []
    for message in messages:
        if not isinstance(message, ToolMessage):
            if waiting:
                return False
            waiting = _call_ids(message)
        elif message.tool_call_id not in waiting:
            return False
        else:
            waiting.remove(message.tool_call_id)
    return resuming or not waiting


def _open_calls(message: BaseMessage) -> list[tuple[str, str | None]]:
    """The calls of a message, ids and names, with invalid ones, which are sent to a model too."""
    if not isinstance(message, AIMessage):
        return []
    calls = (*message.tool_calls, *message.invalid_tool_calls)
    return [(call["id"], call["name"]) for call in calls if call["id"]]


def _call_ids(message: BaseMessage) -> list[str]:
    return [call for call, _ in _open_calls(message)]


def _answered_call(message: BaseMessage) -> str | None:
    return message.tool_call_id if isinstance(message, ToolMessage) else None


def _interrupted_result(message: BaseMessage, call: str) -> BaseMessage:
    name = dict(_open_calls(message))[call]
    return ToolMessage(INTERRUPTED, tool_call_id=call, name=name, status="error")
