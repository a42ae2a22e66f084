"""A conversation as Pydantic AI's message history, and what a run brought back into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, repair_messages

from palaver.adapters.pydantic_ai.reading import REQUEST, read
from palaver.adapters.pydantic_ai.writing import parts_of, response_of
from palaver.errors import UnknownMessage, ValidationError
from palaver.history.erasing import ERASED
from palaver.messages.gate import is_object
from palaver.messages.ids import uuid_for
from palaver.messages.replacement import replace_refused
from palaver.stores.history import StoredHistory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pydantic_ai.messages import ModelMessage

    from palaver.adapters.pydantic_ai.writing import Json
    from palaver.history import History
    from palaver.messages.message import Message

__all__ = ["load", "save"]


def load(history: History, *, resuming: bool = False) -> list[ModelMessage]:
    """The conversation as `message_history`: as it was saved, or as it was edited since.

    Pydantic AI puts right what an edit has parted before it asks a model. What it refuses is a new
    prompt after calls without results: those get one here that says so, unless the run is to go on
    with them (`resuming`: without a prompt, or with `deferred_tool_results`).

    >>> from palaver.history import History
    >>> from palaver.messages import user
    >>> load(History([user("Tea?")]))[0].parts[0].content
    'Tea?'
    """
    if isinstance(history, StoredHistory):
        history.refresh()
    found = list(_messages(history.view))
    messages = ModelMessagesTypeAdapter.validate_python(found)
    last = messages[-1] if messages else None
    if isinstance(last, ModelResponse) and last.tool_calls and not resuming:
        return repair_messages(messages)
    return messages


def _messages(view: Iterable[Message]) -> Iterator[Json]:
    request: Json | None = None
    for message in view:
        if ERASED in message.metadata:
            continue
        answers = message.role == "assistant"
        if request is not None and (answers or REQUEST in message.metadata):
            yield request
            request = None
        if answers:
            yield response_of(message)
        else:
            request = request or _request(message)
            request["parts"] += parts_of(message)
    if request is not None:
        yield request


def _request(message: Message) -> Json:
    """A request without parts, with what was said of it as a whole."""
    try:
        kept: object = msgspec.json.decode(str(message.metadata.get(REQUEST, "{}")))
    except msgspec.DecodeError:
        kept = {}
    return {**(kept if is_object(kept) else {}), "parts": [], "kind": "request"}


def save(history: History, messages: Sequence[ModelMessage]) -> list[Message]:
    """Add what a run brought, in one change, and return it; what is there already is left out.

    Give it `result.new_messages()` or `result.all_messages()`. Doing it again changes nothing. What
    a store refuses (NUL, half characters, numbers beyond JSON's) is replaced.

    >>> from palaver.history import History
    >>> from pydantic_ai.messages import ModelRequest
    >>> history, asked = History(), [ModelRequest.user_text_prompt("Tea?")]
    >>> [message.text for message in save(history, asked)], save(history, asked)
    (['Tea?'], [])
    """
    session = uuid_for(history.id)
    if isinstance(history, StoredHistory):
        history.refresh()
    new: list[Message] = []
    for theirs in reversed(_dumped(messages)):
        try:
            found = read(theirs, session)
        except ValidationError:
            found = read(cast("Json", replace_refused(theirs)), session)
        if _is_kept(history, found[0].id):
            break  # and so is all that came before it
        new[:0] = found
    if new:
        history.extend(new)
    return new


def _is_kept(history: History, message_id: str) -> bool:
    """Tell whether a message was ever added, though it may have left the view since."""
    try:
        history.log.find(message_id)
    except UnknownMessage:
        return False
    return True


def _dumped(messages: Sequence[ModelMessage]) -> list[Json]:
    """The messages as JSON, without the fields that are not set where they can be left out."""
    whole: list[Json] = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    spare = [_spare(message) for message in whole]
    again = ModelMessagesTypeAdapter.validate_python(spare)
    read_back = ModelMessagesTypeAdapter.dump_python(again, mode="json")
    return [
        less if then == all_of_it else all_of_it
        for less, then, all_of_it in zip(spare, read_back, whole, strict=True)
    ]


def _spare(message: Json) -> Json:
    found = {field: value for field, value in message.items() if value is not None}
    usage: Any = found.get("usage")
    if is_object(usage):
        found["usage"] = {field: value for field, value in usage.items() if value}
    found["parts"] = [
        {field: value for field, value in part.items() if value is not None or field == "content"}
        for part in message["parts"]
    ]
    return found
