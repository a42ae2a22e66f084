"""Pydantic AI: its message history, loaded from and saved to a conversation in a store.

    result = agent.run_sync("Tea?", message_history=load(history))
    save(history, result.new_messages())

What was not edited comes back exactly as it was saved; the next run sees what was edited.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace as copy_with
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from palaver.errors import ValidationError, needs_extra
from palaver.history.erase import ERASED
from palaver.history.history import BaseHistory
from palaver.messages.ids import derive_id, new_id, now_ms, uuid_for
from palaver.messages.limits import check_argument, is_list, is_object, replace_refused
from palaver.messages.message import AssistantInfo, Message
from palaver.messages.part_base import FilePart
from palaver.messages.parts import (
    CacheCounts,
    ModelRef,
    ReasoningPart,
    TextPart,
    TokenCounts,
    ToolCallPart,
    ToolPart,
    UnknownPart,
    file_part,
    read_arguments,
    reasoning_part,
    text_part,
    tool_call_part,
    tool_part,
)
from palaver.messages.tool_state import ToolCompleted, ToolError, complete, fail, pending, start
from palaver.stores import StoredHistory
from palaver.wire.format import CLEARED, attachments_of, part_as_text, raw_block
from palaver.wire.pairing import INTERRUPTED
from palaver.wire.repair import (
    begin_with_user,
    has_own_greeting,
    is_portable,
    portable,
    with_call_ids,
)
from palaver.wire.round_trip import apply_changes, diff, fingerprint

with needs_extra("pydantic-ai"):
    from pydantic_ai.messages import (
        ModelMessagesTypeAdapter,
        ModelRequest,
        ModelResponse,
    )
    from pydantic_ai.messages import repair_messages as pair_results

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pydantic_ai.messages import ModelMessage

    from palaver.history.view import View
    from palaver.messages.message import Role
    from palaver.messages.parts import Part

__all__ = ["load", "repair_messages", "save"]


def load(history: BaseHistory, *, resuming: bool = False) -> list[ModelMessage]:
    """Return the conversation as `message_history`: as it was saved, or as it was edited.

    Pydantic AI itself repairs calls and results that an edit has separated. It refuses a new prompt
    after calls without results: those get a result here that says so, unless the run continues
    with them (`resuming`: without a prompt, or with `deferred_tool_results`). An answer that comes
    first, after an edit or as another's greeting, follows a short prompt. Of what Pydantic AI did
    not write, or what was edited, thoughts and blank texts are left out, and files in answers are
    mentioned. For a provider that refuses what Pydantic AI wrote with another one, there is
    `repair_messages`.

    >>> from palaver.history import History
    >>> from palaver.messages import user
    >>> load(History([user("Tea?")]))[0].parts[0].content
    'Tea?'
    """
    _check_history(history)
    if isinstance(history, StoredHistory):
        history.refresh()
    view = history.view
    given = with_call_ids(view, METADATA_KEY)
    messages = ModelMessagesTypeAdapter.validate_python([*_messages(given)])
    if not has_own_greeting(view, METADATA_KEY):
        messages = _begin_with_user(messages)
    last = messages[-1] if messages else None
    if isinstance(last, ModelResponse) and last.tool_calls and not resuming:
        return pair_results(messages)
    return messages


def repair_messages(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return messages as every provider takes them: give it what `load` returns.

    Pydantic AI sends what it wrote with one provider to another as it is. Anthropic refuses answers
    of nothing but white space, and it wants a prompt first, as Gemini does: such texts are left out
    here, and an answer that comes first, such as a greeting, follows a short prompt. Save the run's
    `new_messages()`.

    >>> from pydantic_ai.messages import ModelResponse, TextPart
    >>> [message.kind for message in repair_messages([ModelResponse([TextPart("Hello!")])])]
    ['request', 'response']
    """
    said = [_without_blanks(message) for message in _checked_messages(messages)]
    return _begin_with_user([message for message in said if message.parts])


def _without_blanks(message: ModelMessage) -> ModelMessage:
    """Return a response without texts of white space; they may carry a signature."""
    if not isinstance(message, ModelResponse):
        return message
    rest = [
        part
        for part in message.parts
        if part.part_kind != "text" or part.content.strip() or part.provider_details
    ]
    return message if len(rest) == len(message.parts) else copy_with(message, parts=rest)


def _begin_with_user(messages: list[ModelMessage]) -> list[ModelMessage]:
    return begin_with_user(messages, role=_role, made=ModelRequest.user_text_prompt)


def _role(message: ModelMessage) -> str:
    if isinstance(message, ModelResponse):
        return "assistant"
    parts = message.parts
    given = parts and all(part.part_kind == "system-prompt" for part in parts)
    return "system" if given else "user"


def _check_history(history: object) -> None:
    hint = "store.get('tea-talk') and store.create() return one"
    check_argument(history, BaseHistory, "$.history", "a history", hint)


def _checked_messages(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    hint = "result.new_messages() and result.all_messages() return them"
    check_argument(messages, Iterable, "$.messages", "the messages of a run", hint)
    given = list(messages)
    for index, message in enumerate(given):
        path, wanted = f"$.messages[{index}]", "a ModelRequest or a ModelResponse"
        check_argument(message, (ModelRequest, ModelResponse), path, wanted, hint)
    return given


def _messages(view: Iterable[Message]) -> Iterator[JsonObject]:
    request: JsonObject | None = None
    is_own = False  # one that Pydantic AI wrote comes back though it may be empty
    for message in view:
        if ERASED in message.metadata:
            continue
        answers = message.role == "assistant"
        if request is not None and (answers or REQUEST_KEY in message.metadata):
            if request["parts"] or is_own:
                yield request
            request = None
        if answers:
            response = to_response(message)
            if response["parts"] or METADATA_KEY in message.metadata:
                yield response
        else:
            if request is None:
                request, is_own = _request(message), REQUEST_KEY in message.metadata
            request["parts"] += to_request_parts(message)
    if request is not None and (request["parts"] or is_own):
        yield request


def _request(message: Message) -> JsonObject:
    """A request without parts, with the stored fields of the request."""
    try:
        stored: object = msgspec.json.decode(str(message.metadata.get(REQUEST_KEY, "{}")))
    except msgspec.DecodeError:
        stored = {}
    return {**(stored if is_object(stored) else {}), "parts": [], "kind": "request"}


def save(history: BaseHistory, messages: Sequence[ModelMessage]) -> list[Message]:
    """Append the messages of a run in one change, and return those that are new.

    Give it `result.new_messages()` or `result.all_messages()`. What was saved or loaded before is
    not added again. What a store refuses (NUL, lone surrogates, numbers beyond JSON's) is replaced.

    >>> from palaver.history import History
    >>> from pydantic_ai.messages import ModelRequest
    >>> history, asked = History(), [ModelRequest.user_text_prompt("Tea?")]
    >>> [message.text for message in save(history, asked)], save(history, asked)
    (['Tea?'], [])
    """
    _check_history(history)
    given = _checked_messages(messages)
    session = uuid_for(history.id)
    if isinstance(history, StoredHistory):
        history.refresh()
    new: list[Message] = []
    edited: frozenset[str] | None = None
    for theirs in reversed(_dump(given)):
        found = _from_json(theirs, session)
        if _is_stored(history, found[0].id):
            break  # and so is all that came before it
        if edited is None:
            edited = _edited_at_end(history, session)
        if found[0].id in edited:
            break  # this was loaded, with all that came before it
        new[:0] = found
    if new:
        history.extend(new)
    return new


def _from_json(theirs: JsonObject, session: str) -> list[Message]:
    """Convert as `from_json` does, without what a store refuses."""
    try:
        return from_json(theirs, session)
    except (ValidationError, UnicodeEncodeError):
        return from_json(cast("JsonObject", replace_refused(theirs)), session)


def _edited_at_end(history: BaseHistory, session: str) -> frozenset[str]:
    """The ids that what is at the end would get, back to what is as it was saved.

    A run is given neighbors of one kind as one message.
    """
    found: set[str] = set()
    end: list[ModelMessage] = []
    for group in _groups_backwards(_as_loaded(history.view)):
        loaded = ModelMessagesTypeAdapter.validate_python(list(_messages(group)))
        end[:0] = loaded
        names = _names(loaded, session)
        if any(_is_stored(history, name) for name in names):
            break
        found |= names
    return frozenset(found | _names(pair_results(end), session))


def _as_loaded(view: View) -> Sequence[Message]:
    """Return the messages as a run is given them; the ids of a call depend on those before it."""
    last = view[-1] if view else None
    if last is None or METADATA_KEY in last.metadata:  # as it was saved: nobody looks further
        return view
    return [*with_call_ids(view, METADATA_KEY)]


def _names(messages: Sequence[ModelMessage], session: str) -> set[str]:
    return {_from_json(theirs, session)[0].id for theirs in _dump(messages)}


def _groups_backwards(view: Sequence[Message]) -> Iterator[list[Message]]:
    """The messages that are a request or a response together, from the end."""
    group: list[Message] = []
    for message in reversed(view):
        if ERASED in message.metadata:
            continue
        if message.role == "assistant":
            if group:
                yield group
            group = []
            yield [message]
            continue
        group.insert(0, message)
        if REQUEST_KEY in message.metadata:
            yield group
            group = []
    if group:
        yield group


def _is_stored(history: BaseHistory, message_id: str) -> bool:
    """Tell whether a message is in the log, though it may have left the view."""
    return bool(history.log.log.positions_of(message_id))


def _dump(messages: Sequence[ModelMessage]) -> list[JsonObject]:
    """The messages as JSON, without the fields that are not set where they can be left out."""
    complete: list[JsonObject] = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    compact = [_drop_unset(message) for message in complete]
    again = ModelMessagesTypeAdapter.validate_python(compact)
    read_back = ModelMessagesTypeAdapter.dump_python(again, mode="json")
    return [
        short if again_full == full else full
        for short, again_full, full in zip(compact, read_back, complete, strict=True)
    ]


def _drop_unset(message: JsonObject) -> JsonObject:
    found = {field: value for field, value in message.items() if value is not None}
    usage: Any = found.get("usage")
    if is_object(usage):
        found["usage"] = {field: value for field, value in usage.items() if value}
    found["parts"] = [
        {field: value for field, value in part.items() if value is not None or field == "content"}
        for part in message["parts"]
    ]
    return found


REQUEST_KEY: Final = "pydantic_ai_request"
"""The metadata key of a request's own fields, in its first message."""
_FAILED_OUTCOMES: Final = frozenset(("failed", "denied", "interrupted", "retried"))


def from_json(theirs: JsonObject, session: str) -> list[Message]:
    """Convert a request or a response to messages, at least one."""
    name = derive_id(PART_TYPE, fingerprint(theirs))
    parts = theirs.get("parts")
    found = [*parts] if is_list(parts) else []
    if theirs.get("kind") == "response":
        return [_with_difference(_read_response(theirs, found, session, name), theirs)]
    rest = {field: value for field, value in theirs.items() if field != "parts"}
    messages = [
        _with_difference(
            _read_request_part(part, derive_id(name, str(index)) if index else name, session),
            [part],
        )
        for index, part in enumerate(found)
    ] or [Message("user", (), id=name)]
    head = {**messages[0].metadata, REQUEST_KEY: msgspec.json.encode(rest).decode()}
    return [replace(messages[0], metadata=head), *messages[1:]]


def _with_difference(message: Message, theirs: object) -> Message:
    stored = difference(message, theirs)
    if stored is None:
        return message
    return replace(message, metadata={**message.metadata, METADATA_KEY: stored})


def _read_request_part(part: JsonObject, name: str, session: str) -> Message:
    """A message of one part of a request."""
    kind, content = part.get("part_kind"), part.get("content")
    at = _to_ms(part.get("timestamp"))
    role: Role = "user" if kind in ("user-prompt", "retry-feedback") else "system"
    if kind in ("tool-return", "retry-prompt") and part.get("tool_call_id"):
        role, content = "tool", [_read_result(part, name, session, at)]
    elif kind == "user-prompt" and is_list(content):
        content = [_read_content(item, name, session) for item in content]
    elif not isinstance(content, str):
        content = [_unknown_part(part)]
    said = content if isinstance(content, str) else tuple(content)
    return Message(role, said, id=name, timestamp=at)


def _read_result(part: JsonObject, name: str, session: str, at: int) -> Part:
    content = part.get("content")
    text = content if isinstance(content, str) else msgspec.json.encode(content).decode()
    tool = str(part.get("tool_name") or "unknown")
    running = start(pending({}, ""), at=at)
    failed = part.get("part_kind") == "retry-prompt" or part.get("outcome") in _FAILED_OUTCOMES
    state = (
        fail(running, text, at=at)
        if failed and text.strip()
        else complete(running, text, tool=tool, at=at)
    )
    return tool_part(session, name, str(part["tool_call_id"]), tool, state)


def _read_content(item: str | JsonObject, name: str, session: str) -> Part:
    """What a user said: text, a file, something else."""
    if isinstance(item, str):
        return text_part(session, name, item)
    mime, kind = item.get("media_type"), item.get("kind")
    url = item.get("url")
    if kind == "binary":
        url = f"data:{mime};base64,{item.get('data')}"
    if isinstance(url, str) and url and isinstance(mime, str) and mime:
        return file_part(session, name, mime, url)
    return _unknown_part(item)


def _unknown_part(block: Mapping[str, Any]) -> Part:
    return UnknownPart({"type": PART_TYPE, "id": new_id(), "block": block})


def _read_response(theirs: JsonObject, parts: list[Any], session: str, name: str) -> Message:
    at = _to_ms(theirs.get("timestamp"))
    info = AssistantInfo(
        model=_model_ref(theirs), tokens=_token_counts(theirs.get("usage")), completed=at,
        finish=str(theirs["finish_reason"]) if theirs.get("finish_reason") else None,
    )  # fmt: skip
    content = tuple(_read_response_part(part, session, name, at) for part in parts)
    return Message("assistant", content, id=name, timestamp=at, info=info)


def _read_response_part(part: JsonObject, session: str, name: str, at: int) -> Part:
    kind, content = part.get("part_kind"), part.get("content")
    if kind == "text" and isinstance(content, str):
        return text_part(session, name, content)
    if kind == "thinking" and isinstance(content, str):
        return reasoning_part(session, name, content, start=at)
    call_id, tool = part.get("tool_call_id"), part.get("tool_name")
    if kind == "tool-call" and call_id and tool:
        given = read_arguments(part.get("args") or {})
        return tool_call_part(session, name, tool, given.input, call_id=call_id, raw=given.raw)
    return _unknown_part(part)


def _model_ref(theirs: JsonObject) -> ModelRef | None:
    model = theirs.get("model_name")
    return ModelRef(str(theirs.get("provider_name") or PART_TYPE), model) if model else None


def _token_counts(usage: object) -> TokenCounts | None:
    """Their counts overlap, ours are disjoint."""
    if not is_object(usage) or not usage.get("input_tokens"):
        return None
    count = {name: value for name, value in usage.items() if isinstance(value, int)}
    from_json, write = count.get("cache_read_tokens", 0), count.get("cache_write_tokens", 0)
    reasoning = count.get("output_reasoning_tokens", 0)
    return TokenCounts(
        input=max(count["input_tokens"] - from_json - write, 0),
        output=max(count.get("output_tokens", 0) - reasoning, 0),
        reasoning=reasoning,
        cache=CacheCounts(read=from_json, write=write),
    )


def _to_ms(time: object) -> int:
    """A time as palaver counts; not every part has one."""
    return (
        int(datetime.fromisoformat(time).timestamp() * 1000) if isinstance(time, str) else now_ms()
    )


JsonObject: TypeAlias = dict[str, Any]

PART_TYPE: Final = "pydantic-ai"
"""The type of a part that palaver stores without interpreting it."""
METADATA_KEY: Final = "pydantic_ai"
"""The metadata key of the difference to Pydantic AI's JSON."""


def to_request_parts(message: Message) -> list[JsonObject]:
    """Convert a message to parts of a request: the original ones, or as it was edited.

    >>> from palaver.messages import user
    >>> to_request_parts(user("Tea?", timestamp=0))
    [{'content': 'Tea?', 'timestamp': '1970-01-01T00:00:00.000000Z', 'part_kind': 'user-prompt'}]
    """
    original = _original(list(_write_request_parts(message)), message)
    if isinstance(original, list):
        return [part for part in original if isinstance(part, dict)]
    found = portable(message)
    return [] if found is None else [*_write_request_parts(found)]


def to_response(message: Message) -> JsonObject:
    """Convert a message to a response: the original one, or as it was edited.

    Thoughts are only in the original one: another model's, or without the signature that they were
    made with, they would be sent as text. Files and blank texts are, too.
    """
    original = _original(_write_response(message), message)
    if isinstance(original, dict) and original.get("kind") == "response":
        return original
    found = portable(message)
    return _write_response(replace(message, content=()) if found is None else found)


def difference(message: Message, theirs: object) -> str | None:
    """Encode the difference between a message and Pydantic AI's JSON; None if there is none."""
    ours = (
        _write_response(message)
        if message.role == "assistant"
        else list(_write_request_parts(message))
    )
    steps = diff(ours, theirs)
    if not steps and is_portable(message):
        return None
    return f"{fingerprint(ours)} {msgspec.json.encode(steps).decode()}"


def _original(ours: Any, message: Message) -> object:  # noqa: ANN401 - JSON
    """Return Pydantic AI's JSON of a message as it was saved; None where it was edited."""
    stored = message.metadata.get(METADATA_KEY)
    if not isinstance(stored, str):
        return None
    then, _, steps = stored.partition(" ")
    if then != fingerprint(ours):
        return None
    with suppress(msgspec.DecodeError):
        return apply_changes(ours, msgspec.json.decode(steps))
    return None


# ── writing ───────────────────────────────────────────────────────────────────────────────────


def _write_request_parts(message: Message) -> Iterator[JsonObject]:
    parts, at = message.sendable_parts, _to_iso(message.timestamp)
    if message.role == "tool":
        yield from (_write_result(part, at) for part in parts if type(part) is ToolPart)
    elif message.role == "system" and (text := message.sendable_text):
        yield {"content": text, "timestamp": at, "part_kind": "system-prompt"}
    elif isinstance(message.content, str):
        yield {"content": message.content, "timestamp": at, "part_kind": "user-prompt"}
    elif blocks := [block for part in parts if "part_kind" in (block := _block(part))]:
        yield from blocks
    elif said := [_write_content(part) for part in parts]:
        yield {"content": said, "timestamp": at, "part_kind": "user-prompt"}


def _block(part: Part) -> JsonObject:
    """What palaver keeps of Pydantic AI without understanding it."""
    return raw_block(part) if type(part) is UnknownPart and part.type == PART_TYPE else {}


def _write_content(part: Part) -> Any:  # noqa: ANN401 - text or JSON
    """What a user may say: text, a file, something unknown."""
    if type(part) is FilePart:
        return _write_file(part)
    return _block(part) or str(getattr(part, "text", part_as_text(part, "user") or ""))


def _write_file(part: FilePart) -> JsonObject:
    kind = part.mime.partition("/")[0]
    if part.url.startswith("data:"):
        data = part.url.partition(",")[2]
        return {"data": data, "media_type": part.mime, "kind": "binary"}
    named = kind if kind in ("image", "audio", "video") else "document"
    return {"url": part.url, "media_type": part.mime, "kind": f"{named}-url"}


def _write_result(part: ToolPart, at: str) -> JsonObject:
    state = part.state
    if type(state) is ToolCompleted:
        text, outcome = state.output if state.time.compacted is None else CLEARED, "success"
    else:
        text, outcome = state.error if type(state) is ToolError else INTERRUPTED, "failed"
    files = [_write_file(file) for file in attachments_of(part)]
    return {
        "tool_name": part.tool, "content": [text, *files] if files else text,
        "tool_call_id": part.call_id, "timestamp": at, "outcome": outcome,
        "part_kind": "tool-return",
    }  # fmt: skip


def _write_response(message: Message) -> JsonObject:
    content = message.content
    if isinstance(content, str):
        parts = [{"content": content, "part_kind": "text"}] if content else []
    else:
        parts = [json for part in message.sendable_parts if (json := _write_response_part(part))]
    return {"parts": parts, "timestamp": _to_iso(message.timestamp), "kind": "response"}


def _write_response_part(part: Part) -> JsonObject | None:
    """A part of an answer."""
    if type(part) is TextPart:
        return {"content": part.text, "part_kind": "text"}
    if type(part) is ReasoningPart:
        return {"content": part.text, "part_kind": "thinking"}
    if type(part) is ToolCallPart:
        spelled = msgspec.json.encode(part.input).decode()
        args: Any = dict(part.input) if part.raw in ("", spelled) else part.raw
        return {
            "tool_name": part.tool, "args": args, "tool_call_id": part.call_id,
            "part_kind": "tool-call",
        }  # fmt: skip
    return _block(part) or None


def _to_iso(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
