"""Messages of Agent Framework's and palaver's, both ways, and the repair of calls without results.

A message comes back as it was put: what palaver has no field for is stored in its metadata as the
difference from what `to_agent_framework` would write. The difference of the contents is used only
while they are unchanged; that of the rest outlives an edit.

A compaction of the framework's notes on messages what it thinks of them, and numbers them by their
positions. Neither is stored: what was left out of one request is not lost for all others.

The framework is given only the reasoning that it wrote itself, and as it wrote it: its clients
refuse reasoning without the signature of their own model, or send it as text. A message with
reasoning that it wrote has its key in the metadata, also where nothing else is to be stored.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec
from agent_framework import Content
from agent_framework import Message as FrameworkMessage
from msgspec.structs import replace

from palaver.errors import ValidationError
from palaver.history.erase import ERASED
from palaver.messages.ids import NIL_ID, new_id, now_ms, uuid_for
from palaver.messages.limits import (
    EMPTY,
    MAX_NAME,
    describe_argument,
    is_object,
    replace_refused,
)
from palaver.messages.message import Message
from palaver.messages.part_base import FilePart
from palaver.messages.parts import (
    ReasoningPart,
    TextPart,
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
from palaver.messages.tool_state import (
    ToolCompleted,
    ToolError,
    complete,
    fail,
    pending,
    raw_output,
    start,
)
from palaver.wire.format import attachments_of
from palaver.wire.pairing import INTERRUPTED
from palaver.wire.repair import is_portable, portable
from palaver.wire.request import NO_DESCRIPTION
from palaver.wire.round_trip import apply_changes, diff, fingerprint

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from palaver.messages import Part
    from palaver.messages.message import Role

__all__ = [
    "METADATA_KEY",
    "alternate",
    "answered_calls",
    "from_agent_framework",
    "open_calls",
    "repair_messages",
    "to_agent_framework",
    "with_contents",
]

Fields: TypeAlias = dict[str, Any]
"""A message of the framework, or a content of one, as JSON."""

METADATA_KEY: Final = "agent_framework"
"""The metadata key."""
UNKNOWN_TOOL: Final = "unknown"
"""The tool of a result whose call is not known."""
UNANSWERED: Final = "(no answer)"
"""What stands for an answer between two questions where one has to be."""
_NOTES: Final = ("_group", "_excluded", "_exclude_reason")
"""What a compaction notes on messages while it works."""
_POSITION: Final = re.compile(r"msg_\d+").fullmatch
"""The ids that a compaction gives to messages by their positions."""
_ROLES: Final = frozenset(("system", "user", "assistant", "tool"))


# ── messages both ways ──────────────────────────────────────────────────────────────────────────


def check_messages(messages: Sequence[object]) -> None:
    """Raise `ValidationError` unless all of these are messages of the framework."""
    for message in messages:
        if not isinstance(message, FrameworkMessage):
            detail = f"must be a message of Agent Framework's, not {describe_argument(message)}"
            raise ValidationError(detail, path="$.message", rule="schema")


def from_agent_framework(
    message: FrameworkMessage, *, session: str = NIL_ID, tools: Mapping[str, str] = EMPTY
) -> Message:
    """Convert a message of the framework, such that `to_agent_framework` returns it as it was.

    `session` is the id of the conversation, and `tools` names the tools of earlier calls by their
    ids. What a compaction has noted on the message, and the raw representation of a provider's
    answer, are left out.

    >>> from agent_framework import Message
    >>> from_agent_framework(Message("user", ["Tea?"])).text
    'Tea?'
    """
    check_messages([message])
    try:
        theirs = json.loads(json.dumps(_without_notes(message.to_dict())))
    except (TypeError, ValueError, RecursionError) as error:
        detail = f"holds what is no JSON and could not be read back: {error}"
        raise ValidationError(detail, path="$.message", rule="schema") from None
    made = _make_message(theirs, session, tools)
    ours = _write(made)
    rest = diff(_without_contents(ours), _without_contents(theirs))
    contents = diff(ours["contents"], theirs["contents"])
    stored: Fields = {}
    if rest:
        stored["about"] = rest
    if contents:
        stored |= {"contents": contents, "of": fingerprint(ours["contents"])}
    if not stored and is_portable(made):
        return made
    return replace(made, metadata={METADATA_KEY: json.dumps(stored)})


def to_agent_framework(message: Message) -> FrameworkMessage | None:
    """Convert a message: the original one, with what was edited.

    Reasoning that the framework did not write, or that was edited, is left out. A message that was
    erased, or that is nothing but such reasoning, gives None.

    >>> from palaver.messages import user
    >>> to_agent_framework(user("Tea?")).to_dict()["contents"]
    [{'type': 'text', 'text': 'Tea?', 'additional_properties': {}}]
    """
    if ERASED in message.metadata:
        return None
    stored = _stored_about(message)
    if not stored and isinstance(message.content, str):  # the usual case, without detours
        if METADATA_KEY not in message.metadata and not message.content.strip():
            return None
        return FrameworkMessage(message.role, [message.content] if message.content else [])
    ours = _write(message)
    contents: list[Fields] = ours["contents"]
    is_same = stored.get("of") == fingerprint(contents)
    if not is_same and ("of" in stored or METADATA_KEY not in message.metadata):
        found = portable(message)
        if found is None:
            return None
        ours = _write(found)
    with suppress(ValueError, TypeError, KeyError, IndexError, AttributeError):
        made = apply_changes(_without_contents(ours), stored.get("about", []))
        given = apply_changes(contents, stored["contents"]) if is_same else ours["contents"]
        return FrameworkMessage.from_dict({**made, "contents": given})
    return FrameworkMessage.from_dict(ours)  # metadata may come from anywhere


def _without_notes(fields: Fields) -> Fields:
    """Leave out what a compaction has noted on a message."""
    given = fields.get("additional_properties")
    noted = {key: given[key] for key in _NOTES if key in given} if is_object(given) else {}
    if not noted:
        return fields
    rest = {key: value for key, value in (given or {}).items() if key not in noted}
    made = {**fields, "additional_properties": rest}
    if "_group" in noted and _POSITION(str(fields.get("message_id"))):
        del made["message_id"]
    return made


def _without_contents(fields: Fields) -> Fields:
    return {key: value for key, value in fields.items() if key != "contents"}


def _stored_about(message: Message) -> Fields:
    """Return what is stored beside a message; nothing where that is not ours."""
    text = message.metadata.get(METADATA_KEY) if message.metadata else None
    with suppress(ValueError):
        found = json.loads(text) if isinstance(text, str) else {}
        return cast("Fields", found) if is_object(found) else {}
    return {}


def _make_message(fields: Fields, session: str, tools: Mapping[str, str]) -> Message:
    """The message without what palaver has no field for."""
    name = new_id()
    ids = uuid_for(session), uuid_for(name)
    contents: list[Fields] = fields["contents"]
    said = fields.get("role")
    role: Role = said if said in _ROLES else "user"
    if any(each.get("type") == "function_result" for each in contents):
        role = "tool"
    parts = [_read_content(each, ids, tools) for each in contents]
    if role != "tool" and not parts:
        return Message(role, "", id=name)
    if role != "tool" and len(parts) == 1 and isinstance(parts[0], TextPart):
        return Message(role, parts[0].text, id=name)
    return Message(role, tuple(parts), id=name)


def _read_content(content: Fields, ids: tuple[str, str], tools: Mapping[str, str]) -> Part:
    kind = content.get("type")
    text = content.get("text")
    if kind == "text" and isinstance(text, str):
        return text_part(*ids, _clean(text))
    if kind == "text_reasoning":
        return reasoning_part(*ids, _clean(text))
    call_id = _name(content.get("call_id"), new_id())
    if kind == "function_call":
        read = read_arguments(replace_refused(content.get("arguments")))
        tool = _name(content.get("name"), UNKNOWN_TOOL)
        return tool_call_part(*ids, tool, read.input, call_id=call_id, raw=read.raw)
    if kind == "function_result":
        return _read_result(content, call_id, ids, tools)
    mime, url = content.get("media_type"), content.get("uri")
    if kind in ("data", "uri") and _name(mime, "") and isinstance(url, str) and url.isprintable():
        return file_part(*ids, str(mime), url)
    given = {"type": f"agent-framework-{kind}", "id": new_id(), "content": content}
    return UnknownPart(cast("Fields", replace_refused(given)))


def _read_result(
    content: Fields, call_id: str, ids: tuple[str, str], tools: Mapping[str, str]
) -> ToolPart:
    tool, now = tools.get(call_id, UNKNOWN_TOOL), now_ms()
    result = content.get("result")
    output = _clean(result if isinstance(result, str) else msgspec.json.encode(result).decode())
    running = start(pending({}, ""), at=now)
    state: Any
    if content.get("exception") is not None:
        state = fail(running, output if output.strip() else NO_DESCRIPTION, at=now)
    else:
        state = complete(running, output, tool=tool, at=now)
    return tool_part(*ids, call_id, tool, state)


def _name(name: object, otherwise: str) -> str:
    fits = isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()
    return cast("str", name) if fits else otherwise


def _clean(text: object) -> str:
    return cast("str", replace_refused(text)) if isinstance(text, str) else ""


def _write(message: Message) -> Fields:
    """Write a message as JSON, without the stored difference."""
    if isinstance(message.content, str):
        contents = [_text(message.content)] if message.content else []
    else:
        parts = message.parts if message.role == "tool" else message.sendable_parts
        contents = [written for part in parts if (written := _write_part(part)) is not None]
    return {
        "type": "message", "role": message.role, "contents": contents, "additional_properties": {}
    }  # fmt: skip


def _text(text: str) -> Fields:
    return {"type": "text", "text": text, "additional_properties": {}}


def _write_part(part: Part) -> Fields | None:
    if isinstance(part, TextPart):
        return _text(part.text)
    if isinstance(part, ReasoningPart):
        return {"type": "text_reasoning", "text": part.text, "additional_properties": {}}
    if isinstance(part, ToolCallPart):
        return {
            "type": "function_call", "call_id": part.call_id, "name": part.tool,
            "arguments": part.raw, "hosted": False, "additional_properties": {},
        }  # fmt: skip
    if isinstance(part, ToolPart):
        return _write_result(part)
    if isinstance(part, FilePart):
        return _write_file(part)
    ours = isinstance(part, UnknownPart) and part.type.startswith("agent-framework-")
    return msgspec.to_builtins(cast("UnknownPart", part).raw["content"]) if ours else None


def _write_file(part: FilePart) -> Fields:
    named = {} if part.filename is None else {"filename": part.filename}
    kind = "data" if part.url.startswith("data:") else "uri"
    return {"type": kind, "uri": part.url, "media_type": part.mime, "additional_properties": named}


def _write_result(part: ToolPart) -> Fields:
    state, failed = part.state, isinstance(part.state, ToolError)
    output = INTERRUPTED
    if isinstance(state, ToolCompleted):
        output = raw_output(state)
    elif isinstance(state, ToolError):
        output = state.error
    written: Fields = {
        "type": "function_result", "call_id": part.call_id, "result": output,
        "items": [_text(output), *map(_write_file, attachments_of(part))],
        "additional_properties": {},
    }  # fmt: skip
    return {**written, "exception": "FunctionInvocationError"} if failed else written


# ── calls and their results ─────────────────────────────────────────────────────────────────────


def repair_messages(
    messages: Sequence[FrameworkMessage],
    *,
    coming: Sequence[FrameworkMessage] = (),
    deferred: Collection[str] = (),
) -> list[FrameworkMessage]:
    """Return the messages so that the results of every call follow it at once, each once.

    Results without a call are left out, and a call without a result is given one that says so.
    Texts of nothing but white space are left out, which Anthropic refuses.
    Calls whose results, or approvals, are in `coming` stay open: these messages follow. So do the
    other calls of an answer that is decided about, which the framework runs then, and calls that
    wait for an approval, which it leaves out of requests; and the calls whose ids are `deferred`.

    >>> from agent_framework import Content, Message
    >>> result = Content.from_function_result("c1", result="4")
    >>> repair_messages([Message("tool", [result])])
    []
    >>> call = Content.from_function_call("c1", "stock", arguments="{}")
    >>> [each.role for each in repair_messages([Message("assistant", [call])])]
    ['assistant', 'tool']
    """
    messages = [said for message in messages if (said := _without_blanks(message)) is not None]
    results = _match_results(messages)
    last = {call: at for at, message in enumerate(messages) for call in open_calls(message)}
    left_open = {
        *deferred,
        *answered_calls(coming),
        *_waiting_calls(messages),
        *_resumed_calls(messages, {*_decided_calls(coming)}),
    }
    repaired: list[FrameworkMessage] = []
    for at, message in enumerate(messages):
        rest = [each for each in message.contents if each.type != "function_result"]
        if len(rest) == len(message.contents):
            repaired.append(message)
        elif rest:
            repaired.append(with_contents(message, rest))
        answers = [
            results.get((at, call)) or _interrupted(call)
            for call in dict.fromkeys(open_calls(message))
            if (at, call) in results or last[call] != at or call not in left_open
        ]
        if answers:
            repaired.append(FrameworkMessage("tool", answers))
    return messages if _shape(repaired) == _shape(messages) else repaired


def _without_blanks(message: FrameworkMessage) -> FrameworkMessage | None:
    """Return a message without blank texts; None where it is nothing else."""
    rest = [each for each in message.contents if each.type != "text" or (each.text or "").strip()]
    if rest and len(rest) == len(message.contents):
        return message
    return with_contents(message, rest) if rest else None


def alternate(
    messages: Sequence[FrameworkMessage], *, coming: Sequence[FrameworkMessage] = ()
) -> list[FrameworkMessage]:
    """Return the messages so that user and assistant alternate, as Gemini wants it.

    Neighbors of one role become one message. A question without an answer that would stand before
    another one, of the messages `coming`, gets an answer that says so: those are the run's own.

    >>> from agent_framework import Message
    >>> asked = [Message("user", [text]) for text in ("Tea?", "Rum?")]
    >>> [len(message.contents) for message in alternate(asked)]
    [2]
    """
    joined: list[FrameworkMessage] = []
    for message in messages:
        last = joined[-1] if joined else None
        if last is None or last.role != message.role or message.role == "system":
            joined.append(message)
        else:
            joined[-1] = with_contents(last, [*last.contents, *message.contents])
    follows = next((each.role for each in coming if each.role != "system"), None)
    if joined and joined[-1].role == follows == "user":
        joined.append(FrameworkMessage("assistant", [UNANSWERED]))
    return joined


def _match_results(messages: Sequence[FrameworkMessage]) -> dict[tuple[int, str], Content]:
    """Return the results by their calls: where these are, and their ids, which may come again."""
    asked: dict[str, int] = {}
    results: dict[tuple[int, str], Content] = {}
    for at, message in enumerate(messages):
        asked.update(dict.fromkeys(open_calls(message), at))
        for content in message.contents:
            call = content.call_id
            if content.type == "function_result" and call in asked:
                results.setdefault((asked[call], call), content)
    return results


def _waiting_calls(messages: Sequence[FrameworkMessage]) -> Iterator[str]:
    """Yield the calls that somebody is asked to approve."""
    for message in messages:
        for content in message.contents:
            call = content.function_call
            if content.type == "function_approval_request" and call and call.call_id:
                yield call.call_id


def _resumed_calls(messages: Sequence[FrameworkMessage], decided: set[str]) -> Iterator[str]:
    """Yield all calls of the answers with a call that is decided about."""
    for message in messages:
        calls = open_calls(message)
        if not decided.isdisjoint(calls):
            yield from calls


def open_calls(message: FrameworkMessage) -> list[str]:
    """Return the calls of a message that somebody here has to answer."""
    return [
        each.call_id
        for each in message.contents
        if each.type == "function_call" and each.call_id and not each.informational_only
    ]


def answered_calls(messages: Sequence[FrameworkMessage]) -> Iterator[str]:
    """Yield the calls that messages have results of, or decide about."""
    for message in messages:
        for content in message.contents:
            if content.type == "function_result" and content.call_id:
                yield content.call_id
    yield from _decided_calls(messages)


def _decided_calls(messages: Sequence[FrameworkMessage]) -> Iterator[str]:
    """Yield the calls that messages approve or reject."""
    for message in messages:
        for content in message.contents:
            call = content.function_call
            if content.type == "function_approval_response" and call and call.call_id:
                yield call.call_id


def _interrupted(call: str) -> Content:
    return Content.from_function_result(call, result=INTERRUPTED, exception=INTERRUPTED)


def with_contents(message: FrameworkMessage, contents: list[Content]) -> FrameworkMessage:
    """Return a message with other contents."""
    return FrameworkMessage(
        message.role,
        contents,
        author_name=message.author_name,
        message_id=message.message_id,
        additional_properties=message.additional_properties,
    )


def _shape(messages: Sequence[FrameworkMessage]) -> list[list[int]]:
    return [[id(content) for content in message.contents] for message in messages]
