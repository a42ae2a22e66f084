"""Messages of Strands' and palaver's, both ways, and the repair of calls without results.

A message comes back as it was put: what palaver has no field for is stored in its metadata as the
difference from what `to_strands` would write. The difference of the content is used only while the
content is unchanged; that of the rest outlives an edit.

Of a message that Strands did not write, it is given what its clients take: no reasoning, which
providers refuse of another model, and no blank texts; of the files, those that it has a format for.
So a message of its own with any of that has the key in its metadata, also where nothing is stored.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec
from msgspec.structs import replace
from strands.types.session import decode_bytes_values, encode_bytes_values

from palaver.errors import ValidationError
from palaver.history.erase import ERASED
from palaver.messages.ids import NIL_ID, new_id, now_ms, uuid_for
from palaver.messages.limits import EMPTY, is_list, is_name, is_object, replace_refused
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
from palaver.wire.pairing import INTERRUPTED
from palaver.wire.repair import CallIds, mention, portable
from palaver.wire.request import NO_DESCRIPTION
from palaver.wire.round_trip import apply_changes, diff, fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from strands.types.content import Message as StrandsMessage

    from palaver.messages import Part
    from palaver.wire.format import Alphabet

    _WriteFile = Callable[[FilePart], dict[str, Any]]

__all__ = [
    "METADATA_KEY",
    "Fields",
    "from_strands",
    "join_neighbors",
    "read_message",
    "repair_messages",
    "stored_about",
    "to_strands",
    "with_valid_ids",
    "write_message",
]

Fields: TypeAlias = dict[str, Any]
"""A message of Strands', or a part of one, as JSON."""

METADATA_KEY: Final = "strands"
"""The metadata key."""
UNKNOWN_TOOL: Final = "unknown"
"""The tool of a call or result that does not say."""
_MEDIA: Final = {"image": "image", "video": "video", "document": "application", "audio": "audio"}
"""By the kind of a block: what its media type begins with."""
_IMAGES: Final = frozenset(("gif", "jpeg", "png", "webp"))
_OFFICE: Final = "application/vnd.openxmlformats-officedocument"
_DOCUMENTS: Final = {
    "application/msword": "doc",
    "application/pdf": "pdf",
    "application/vnd.ms-excel": "xls",
    f"{_OFFICE}.spreadsheetml.sheet": "xlsx",
    f"{_OFFICE}.wordprocessingml.document": "docx",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "text/plain": "txt",
}
"""The formats of documents, by media type."""
_TYPES: Final = {form: mime for mime, form in _DOCUMENTS.items()}
_TEXTS: Final = frozenset(("application/json", "application/xml", "application/yaml"))
"""Documents that are text, beside those whose type begins with it."""
_UNNAMED: Final = re.compile(r"[^A-Za-z0-9 ()\[\]-]+")
"""What Bedrock refuses in the name of a document."""


# ── messages both ways ──────────────────────────────────────────────────────────────────────────


def from_strands(
    message: StrandsMessage, *, session: str = NIL_ID, tools: Mapping[str, str] = EMPTY
) -> Message:
    """Convert a message of Strands', such that `to_strands` returns it as it was.

    `session` is the id of the conversation, and `tools` names the tools of earlier calls by their
    ids.

    >>> from_strands({"role": "user", "content": [{"text": "Tea?"}]}).text
    'Tea?'
    """
    return read_message(message, {}, session, tools)


def read_message(
    message: StrandsMessage, about: Fields, session: str, tools: Mapping[str, str]
) -> Message:
    """Convert a message; `about` is what a repository stores beside it."""
    given = cast("object", message)
    if not is_object(given) or not is_list(given.get("content")):
        detail = "must be a message of Strands', with a role and a list of content blocks"
        raise ValidationError(detail, path="$.message", rule="schema")
    try:
        theirs = json.loads(json.dumps(encode_bytes_values(dict(given))))
    except (TypeError, ValueError, RecursionError) as error:
        detail = f"holds what is no JSON and could not be read back: {error}"
        raise ValidationError(detail, path="$.message", rule="schema") from None
    made = _make_message(theirs, session, tools)
    ours = _write(made)
    rest = diff(_without_content(ours), _without_content(theirs))
    content = diff(ours["content"], theirs["content"])
    stored = dict(about)
    if rest:
        stored["about"] = rest
    if content:
        stored |= {"content": content, "of": fingerprint(ours["content"])}
    if not stored and ours["content"] and _write_foreign(made) == ours:
        return made
    return replace(made, metadata={METADATA_KEY: json.dumps(stored)})


def to_strands(message: Message) -> StrandsMessage | None:
    """Convert a message; one that was erased, or that is none of Strands', gives None.

    Strands has no system messages: an agent has a system prompt. Reasoning that Strands did not
    write, or that was edited, is left out. A file that Strands did not write and can't hold, such
    as a link, is a text that names it.

    >>> from palaver.messages import user
    >>> to_strands(user("Tea?"))
    {'role': 'user', 'content': [{'text': 'Tea?'}]}
    """
    return write_message(message, stored_about(message))


def write_message(message: Message, stored: Fields) -> StrandsMessage | None:
    """Convert a message as `to_strands` does; `stored` is what is stored beside it."""
    if ERASED in message.metadata or message.role == "system":
        return None
    if METADATA_KEY not in message.metadata:
        ours = _write_foreign(message)
        return cast("StrandsMessage", decode_bytes_values(ours)) if ours["content"] else None
    ours = _write(message)
    edited = "of" not in stored or stored["of"] != fingerprint(ours["content"])
    if edited and "of" in stored:
        rest = [block for block in ours["content"] if "reasoningContent" not in block]
        if ours["content"] and not rest:
            return None
        ours["content"] = rest
    with suppress(ValueError, TypeError, KeyError, IndexError, AttributeError):
        made = apply_changes(_without_content(ours), stored.get("about", []))
        content = ours["content"]
        if not edited:
            content = apply_changes(content, stored["content"])
        if is_object(made) and is_list(content) and made.get("role") in {"user", "assistant"}:
            ours = {**made, "content": content}
    return cast("StrandsMessage", decode_bytes_values(ours))


def stored_about(message: Message) -> Fields:
    """Return what is stored beside a message; nothing where that is not ours."""
    text = message.metadata.get(METADATA_KEY)
    with suppress(ValueError):
        found = json.loads(text) if isinstance(text, str) else {}
        return cast("Fields", found) if is_object(found) else {}
    return {}


def _without_content(fields: Fields) -> Fields:
    return {key: value for key, value in fields.items() if key != "content"}


def _make_message(fields: Fields, session: str, tools: Mapping[str, str]) -> Message:
    """The message without what palaver has no field for."""
    name = new_id()
    ids = uuid_for(session), uuid_for(name)
    blocks = fields["content"]
    if any(is_object(block) and "toolResult" in block for block in blocks):
        parts = [_read_block(block, ids, tools) for block in blocks]
        return Message("tool", tuple(parts), id=name)
    role: Any = "assistant" if fields.get("role") == "assistant" else "user"
    parts = [_read_block(block, ids, tools) for block in blocks]
    if not parts:
        return Message(role, "", id=name)
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return Message(role, parts[0].text, id=name)
    return Message(role, tuple(parts), id=name)


def _read_block(block: Any, ids: tuple[str, str], tools: Mapping[str, str]) -> Part:  # noqa: ANN401 - JSON
    """Convert a content block."""
    kind = next(iter(block), "") if is_object(block) else ""
    value = block[kind] if kind else block
    if kind == "text" and isinstance(value, str):
        return text_part(*ids, _clean(value))
    if not is_object(value):
        return _unknown(kind, block)
    if kind == "toolUse":
        read = read_arguments(replace_refused(value.get("input", {})))
        tool, call = _name(value.get("name"), UNKNOWN_TOOL), _name(value.get("toolUseId"), new_id())
        return tool_call_part(*ids, tool, read.input, call_id=call, raw=read.raw)
    if kind == "toolResult":
        return _read_result(value, ids, tools)
    reasoning = value.get("reasoningText")
    if kind == "reasoningContent" and is_object(reasoning):
        return reasoning_part(*ids, _clean(reasoning.get("text")))
    file = _read_file(kind, value, ids) if kind in _MEDIA else None
    return file if file is not None else _unknown(kind, block)


def _unknown(kind: str, block: object) -> UnknownPart:
    return UnknownPart(
        cast("Fields", replace_refused({"type": f"strands-{kind}", "id": new_id(), "block": block}))
    )


def _read_result(
    value: Mapping[str, Any], ids: tuple[str, str], tools: Mapping[str, str]
) -> ToolPart:
    """Convert a tool's result: its texts and JSON are the output, and its media are attached."""
    call = _name(value.get("toolUseId"), new_id())
    tool = tools.get(call, UNKNOWN_TOOL)
    texts, files = list[str](), list[FilePart]()
    content = value.get("content")
    for item in content if is_list(content) else ():
        for kind, inner in item.items() if is_object(item) else ():
            file = _read_file(kind, inner, ids) if kind in _MEDIA and is_object(inner) else None
            if file is not None:
                files.append(file)
            else:
                texts.append(inner if isinstance(inner, str) else json.dumps(inner))
    now, output = now_ms(), _clean("\n".join(texts))
    running = start(pending({}, ""), at=now)
    state: Any
    if value.get("status") == "error":
        state = fail(running, output if output.strip() else NO_DESCRIPTION, at=now)
    else:
        state = complete(running, output, tool=tool, attachments=files, at=now)
    return tool_part(*ids, call, tool, state)


def _read_file(kind: str, value: Mapping[str, Any], ids: tuple[str, str]) -> FilePart | None:
    """Convert an image, a video or a document; None if it says neither its bytes nor where."""
    source = value.get("source")
    form, name = _name(value.get("format"), "*"), value.get("name")
    if not is_object(source):
        return None
    mime = _TYPES.get(form) or f"{_MEDIA[kind]}/{form}"
    data, place = source.get("bytes"), source.get("location")
    named = {"filename": name} if isinstance(name, str) and _name(name, "") else {}
    if is_object(data) and isinstance(data.get("data"), str):
        return file_part(*ids, mime, f"data:{mime};base64,{data['data']}", **named)
    if is_object(place) and _name(place.get("uri"), ""):
        return file_part(*ids, mime, place["uri"], **named)
    return None


def _name(name: object, otherwise: str) -> str:
    return name if is_name(name) else otherwise


def _clean(text: object) -> str:
    return cast("str", replace_refused(text)) if isinstance(text, str) else ""


def _write(message: Message) -> Fields:
    """Write a message as JSON, without the stored difference."""
    role = "assistant" if message.role == "assistant" else "user"
    if isinstance(message.content, str):
        return {"role": role, "content": [{"text": message.content}] if message.content else []}
    parts = message.parts if message.role == "tool" else message.sendable_parts
    return {"role": role, "content": [block for part in parts for block in _write_part(part)]}


def _write_foreign(message: Message) -> Fields:
    """Write a message that Strands did not write, as its clients take it."""
    found = portable(message)
    if found is None:
        return {"role": "assistant" if message.role == "assistant" else "user", "content": []}
    written = _write(found)
    if isinstance(found.content, str):
        return written
    parts = found.parts if found.role == "tool" else found.sendable_parts
    blocks = [block for part in parts for block in _write_part(part, _write_foreign_file)]
    return {**written, "content": blocks}


def _write_part(
    part: Part, write_file: Callable[[FilePart], Fields] | None = None
) -> Iterator[Fields]:
    """Write a part; `write_file` writes the files of a message that Strands did not write."""
    if isinstance(part, TextPart):
        yield {"text": part.text}
    elif isinstance(part, ReasoningPart):
        yield {"reasoningContent": {"reasoningText": {"text": part.text}}}
    elif isinstance(part, ToolCallPart):
        given = msgspec.to_builtins(part.arguments)
        yield {"toolUse": {"toolUseId": part.call_id, "name": part.tool, "input": given}}
    elif isinstance(part, ToolPart):
        yield _write_result(part, write_file)
    elif isinstance(part, FilePart):
        yield (write_file or _write_file)(part)
    elif isinstance(part, UnknownPart) and str(part.raw.get("type")).startswith("strands-"):
        yield msgspec.to_builtins(part.raw.get("block"))


def _write_result(part: ToolPart, write_file: _WriteFile | None) -> Fields:
    state = part.state
    content: list[Fields] = []
    if isinstance(state, ToolCompleted):
        output = raw_output(state)
        is_text = bool(output.strip()) if write_file else bool(output or not state.attachments)
        content = [{"text": output}] if is_text else []
        content += [(write_file or _write_file)(file) for file in state.attachments or ()]
    elif isinstance(state, ToolError):
        content = [{"text": state.error}]
    status = "success" if isinstance(state, ToolCompleted) else "error"
    return {"toolResult": {"toolUseId": part.call_id, "status": status, "content": content}}


def _write_file(part: FilePart) -> Fields:
    family, _, form = part.mime.partition("/")
    kind = family if family in _MEDIA else "document"
    fields: Fields = {"format": _DOCUMENTS.get(part.mime, form)}
    if part.filename is not None:
        fields["name"] = part.filename
    return {kind: {**fields, "source": _source(part)}}


def _source(part: FilePart) -> Fields:
    head, _, data = part.url.partition(";base64,")
    if head.startswith("data:"):
        return {"bytes": {"__bytes_encoded__": True, "data": data}}
    return {"location": {"type": "s3", "uri": part.url}}


def _write_foreign_file(part: FilePart) -> Fields:
    """Write a file in a format that Strands has, or else mention it."""
    family, _, form = part.mime.partition("/")
    if not part.url.startswith("s3:") and ";base64," not in part.url:
        return {"text": mention(part)}
    if family == "image":
        form = "jpeg" if form == "jpg" else form
        return (
            {"image": {"format": form, "source": _source(part)}}
            if form in _IMAGES
            else {"text": mention(part)}
        )
    if family in _MEDIA:
        return {family: {"format": form, "source": _source(part)}}
    is_text = family == "text" or part.mime in _TEXTS
    known = _DOCUMENTS.get(part.mime) or (form if form in _TYPES else "txt" if is_text else None)
    if known is None:
        return {"text": mention(part)}
    name = " ".join(_UNNAMED.sub(" ", part.filename or "").split()) or "document"
    return {"document": {"format": known, "name": name, "source": _source(part)}}


# ── calls and their results ─────────────────────────────────────────────────────────────────────


def repair_messages(messages: Sequence[StrandsMessage]) -> list[StrandsMessage]:
    """Return the messages so that the results of every call follow it at once, each once.

    Results without a call are left out, and a call without a result is given one that says so. The
    calls of the last message stay open: Strands answers them when it goes on.

    >>> result = {"toolResult": {"toolUseId": "c1", "status": "success", "content": []}}
    >>> repair_messages([{"role": "user", "content": [result]}])
    []
    >>> call = {"toolUse": {"toolUseId": "c1", "name": "stock", "input": {}}}
    >>> asked = [{"role": "assistant", "content": [call]}, {"role": "user", "content": []}]
    >>> [[*block] for message in repair_messages(asked) for block in message["content"]]
    [['toolUse'], ['toolResult']]
    """
    results: dict[str, Any] = {}
    for message in messages:
        for block in message["content"]:
            if "toolResult" in block:
                results.setdefault(block["toolResult"]["toolUseId"], block)
    repaired: list[StrandsMessage] = []
    wanted: list[str] = []  # the calls of the message before
    for message in messages:
        content: list[Any] = message["content"]
        others = [block for block in content if "toolResult" not in block]
        answers = [_result_of(call, results) for call in wanted]
        if message["role"] == "user":
            if answers or len(others) != len(content):
                message = _with_content(message, answers + others)  # noqa: PLW2901 - as it must be
            wanted = []
            if message["content"] or not content:
                repaired.append(message)
            continue
        if answers:
            repaired.append(_with_content({"role": "user", "content": []}, answers))
        calls = [block["toolUse"]["toolUseId"] for block in content if "toolUse" in block]
        wanted = list(dict.fromkeys(calls))
        repaired.append(message)
    return repaired


def join_neighbors(
    messages: Sequence[StrandsMessage], *, results_alone: bool = False
) -> list[StrandsMessage]:
    """Return the messages with those of one role that stand side by side as one.

    Bedrock refuses them otherwise. Gemini wants results in a message by themselves
    (`results_alone`), and takes another message of the user after it. A joined message has what the
    first has beside its content.

    >>> asked = [{"role": "user", "content": [{"text": text}]} for text in ("Tea?", "Rum?")]
    >>> [len(message["content"]) for message in join_neighbors(asked)]
    [2]
    """
    joined: list[StrandsMessage] = []
    for message in messages:
        for piece in _split_results(message) if results_alone else (message,):
            last = joined[-1] if joined and joined[-1]["role"] == piece["role"] else None
            if last is None or (results_alone and (_has_results(last) or _has_results(piece))):
                joined.append(piece)
            else:
                joined[-1] = _with_content(last, [*last["content"], *piece["content"]])
    return joined


def with_valid_ids(messages: Sequence[StrandsMessage], allowed: Alphabet) -> list[StrandsMessage]:
    """Return the messages with ids of calls that a provider takes, and each id once.

    Of several calls of one id in one message, which has one result, the first is left.
    """
    ids = CallIds(allowed)
    return [
        _with_content(message, [_with_id(block, at, ids) for block in _each_call_once(message)])
        for at, message in enumerate(messages)
    ]


def _each_call_once(message: StrandsMessage) -> Iterator[Any]:
    known: set[str] = set()
    for block in message["content"]:
        call = block["toolUse"]["toolUseId"] if "toolUse" in block else None
        if call is None or call not in known:
            yield block
        known.update(() if call is None else (call,))


def _with_id(block: Any, at: int, ids: CallIds) -> Any:  # noqa: ANN401 - a content block
    kind = "toolUse" if "toolUse" in block else "toolResult" if "toolResult" in block else None
    if kind is None:
        return block
    name = block[kind]["toolUseId"]
    valid = ids.of_call(name, at) if kind == "toolUse" else ids.of_result(name)
    return block if valid == name else {**block, kind: {**block[kind], "toolUseId": valid}}


def _split_results(message: StrandsMessage) -> Iterator[StrandsMessage]:
    """Yield the results of a message, and then the rest of it."""
    results = [block for block in message["content"] if "toolResult" in block]
    rest = [block for block in message["content"] if "toolResult" not in block]
    if not results or not rest:
        yield message
    else:
        yield _with_content(message, results)
        yield _with_content({"role": message["role"], "content": []}, rest)


def _has_results(message: StrandsMessage) -> bool:
    return any("toolResult" in block for block in message["content"])


def _with_content(message: StrandsMessage, content: list[Any]) -> StrandsMessage:
    if content == message["content"]:
        return message
    changed = {"tracking_id": uuid_for(json.dumps(content, default=str)), **message}
    return cast("StrandsMessage", {**changed, "content": content})


def _result_of(call: str, results: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a content block
    missing = {"toolUseId": call, "status": "error", "content": [{"text": INTERRUPTED}]}
    return results.get(call) or {"toolResult": missing}
