"""Messages and parts as JSON: `parse_message`, `parse_messages`, `parse_part`, `dump`, `to_dict`.

Reading tries the fast way first: msgspec's decoder makes the values and the values check
themselves. If that fails, the careful way reads content lists and parts of unknown types, and says
of any error where it is and which rule is broken. For lists of messages, `decode_messages` comes
before both.

A content list is the plain form of content: items of the types `text`, `image`, `tool_use` and
`tool_result` without ids. Reading makes parts of them; `to_content` writes parts as such a list.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, NoReturn, get_args

import msgspec
from msgspec import Struct

from palaver.errors import PartValidationError, ValidationError
from palaver.messages.decode import (
    check_unique_names,
    convert,
    decode_messages,
    decoder_for,
    path_at,
    path_too_deep,
)
from palaver.messages.ids import NIL_ID, uuid_for
from palaver.messages.limits import (
    MAX_DEPTH,
    MAX_NAME,
    freeze,
    is_list,
    is_object,
    is_plain,
    kind_of,
    quote_value,
    replace_refused,
)
from palaver.messages.message import ROLES, Message
from palaver.messages.part_base import FilePart
from palaver.messages.parts import (
    KnownPart,
    Part,
    TextPart,
    ToolCallPart,
    ToolPart,
    UnknownPart,
    file_part,
    is_sendable,
    read_arguments,
    text_part,
    tool_call_part,
    tool_part,
)
from palaver.messages.tool_state import (
    ToolCompleted,
    ToolError,
    ToolPending,
    ToolRunning,
    complete,
    pending,
    raw_output,
    start,
)

__all__ = [
    "MAX_DOCUMENT",
    "PART_TYPES",
    "decode_message",
    "dump",
    "encode",
    "image_mime",
    "load_json",
    "parse_message",
    "parse_messages",
    "parse_part",
    "to_content",
    "to_dict",
    "translate_error",
]


MAX_DOCUMENT: Final = 512 * 1024 * 1024
"""The maximum number of bytes in one JSON text. Longer histories are read as JSON lines."""

PART_TYPES: Final[dict[str, type[KnownPart]]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(KnownPart)
}
_PART_RULES: Final = {"id": "part-id", "sessionID": "part-id", "messageID": "part-id"}
_STATE_RULES: Final = {
    "raw": "tool-call-raw", "start": "tool-start-time", "time": "tool-end-time",
    "end": "tool-end-time", "output": "empty-output", "error": "empty-error",
}  # fmt: skip
_log = logging.getLogger("palaver.messages")
_AT = re.compile(r" - at `(?:key` in `)?([^`]*)`")
_MISSING = re.compile(r"Object missing required field `(.+)`")
_UNEXPECTED = re.compile(r"Object contains unknown field `(.+)`")
_BYTE = re.compile(r"\(byte (\d+)\)")
_HALF = re.compile(
    rb"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)
_LONG: Final = 200


@cache
def _decoder() -> msgspec.json.Decoder[Message]:
    return decoder_for(Message)


@cache
def _list_decoder() -> msgspec.json.Decoder[list[Message]]:
    return decoder_for(list[Message])


def _plain(value: object) -> object:
    if isinstance(value, UnknownPart):
        return value.raw
    msg = f"{type(value).__name__} has no JSON form"
    raise TypeError(msg)


encode: Final[Callable[[object], bytes]] = msgspec.json.Encoder(enc_hook=_plain).encode
"""What `dump` calls, for those who have many to encode."""


def dump(value: object) -> bytes:
    """Encode a message, a part, a turn, or a list of them as JSON.

    >>> dump(parse_message('{"role": "user", "content": "hi", "id": "m1", "timestamp": 5}'))
    b'{"role":"user","content":"hi","id":"m1","timestamp":5}'
    """
    return encode(value)


def to_dict(value: object) -> Any:  # noqa: ANN401 - dict or list, as the value is
    """Return a message, a part, a turn, or a list of them as plain dicts and lists.

    >>> to_dict(Message("user", "hi", id="m1", timestamp=5))
    {'role': 'user', 'content': 'hi', 'id': 'm1', 'timestamp': 5}
    """
    return msgspec.json.decode(encode(value))


def parse_message(data: bytes | str | Mapping[str, Any], *, replace: bool = False) -> Message:
    """Read a message from JSON, or from a dict that holds JSON.

    A message without an id or a time gets a new one. With `replace`, characters and numbers beyond
    the limits are replaced (see `replace_refused`) instead of refused. An object that has a name
    twice is refused. Raises `ValidationError`.

    >>> parse_message('{"role": "user", "content": "hi"}').text
    'hi'
    >>> parse_message('{"role": "robot", "content": "hi"}')
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.role: must be system, user, assistant or tool, not 'robot' ...
    """
    if isinstance(data, bytes | str) and not replace:
        raw = _to_bytes(data)
        message = decode_message(raw)
        check_unique_names(raw)
        return message
    return _read_message(_load(data, replace=replace), "$", {})


def decode_message(data: bytes | str) -> Message:
    """Read a message from JSON that palaver has written, without the check for duplicate names.

    >>> decode_message('{"role": "user", "content": "hi"}').text
    'hi'
    """
    try:
        return _decoder().decode(_to_bytes(data))
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        _raise_own(error)
    return _read_message(load_json(data, unique=False), "$", {})


def parse_messages(
    data: bytes | str | Iterable[Mapping[str, Any]],
    *,
    replace: bool = False,
    unique: bool = False,
) -> list[Message]:
    """Read a list of messages from JSON, or from dicts that hold JSON.

    This is the fast way for many messages. With `unique`, an object that has a name twice is
    refused, which takes about twice as long as the reading; otherwise the last value counts.
    Raises `ValidationError` if any message is invalid.

    >>> [message.role for message in parse_messages('[{"role": "user", "content": "hi"}]')]
    ['user']
    """
    if isinstance(data, bytes | str) and not replace:
        messages = _read_many(_to_bytes(data))
        if unique:
            check_unique_names(_to_bytes(data))
        return messages
    items = _load(list(data) if isinstance(data, Iterator) else data, replace=replace)
    return _read_each(items)


def _read_many(raw: bytes) -> list[Message]:
    messages = decode_messages(raw)
    if messages is not None:
        return messages
    try:
        return _list_decoder().decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        _raise_own(error)
    return _read_each(load_json(raw, unique=False))


def _read_each(items: object) -> list[Message]:
    if isinstance(items, Mapping | str | bytes) or not isinstance(items, Iterable):
        raise ValidationError("must be a list of messages", rule="schema")
    tools: dict[str, str] = {}
    return [_read_message(item, f"$[{index}]", tools) for index, item in enumerate(items)]


def parse_part(data: bytes | str | Mapping[str, Any], *, replace: bool = False) -> Part:
    """Read a part from JSON, or from a dict that holds JSON.

    A part of an unknown type becomes an `UnknownPart`.

    >>> parse_part({"type": "hologram", "beam": 2}).type
    'hologram'
    >>> parse_part({"type": "text", "text": "hi"})
    Traceback (most recent call last):
    palaver.errors.PartValidationError: $.id: is missing (text part) [part-id]
    """
    return _read_part(_load(data, replace=replace), "$")


def load_json(data: bytes | str, *, unique: bool = True) -> Any:  # noqa: ANN401 - whatever the text holds
    """Decode JSON into plain values; an error says where in the text it is.

    Malformed text, NaN, lone surrogates and too deep nesting raise `ValidationError`, and so does
    an object that has a name twice. With `unique=False` that check is left out and the last value
    counts; that is for bulk data, for which the check would take too long.

    >>> load_json('{"a": [1, NaN]}')
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.a[1]: must be a finite number, not NaN [number.nan]
    """
    raw = _to_bytes(data)
    try:
        value = msgspec.json.decode(raw)
    except RecursionError:
        detail = f"is nested deeper than {MAX_DEPTH} levels"
        raise ValidationError(detail, path=path_too_deep(raw, MAX_DEPTH), rule="depth") from None
    except UnicodeDecodeError:
        _explain_bytes(raw)
    except msgspec.MsgspecError as error:
        _explain_json(raw, error)
    if unique:
        check_unique_names(raw, value)
    return value


def _load(data: object, *, replace: bool) -> Any:  # noqa: ANN401 - as above
    if isinstance(data, bytes | str):
        if not replace:
            return load_json(data)
        import json  # noqa: PLC0415 - the lenient reader, loaded only when asked for

        _check_size(data)
        try:
            return replace_refused(json.loads(data))
        except (ValueError, RecursionError):
            return replace_refused(load_json(data))
    return replace_refused(data) if replace else data


def _check_size(data: bytes | str) -> None:
    if len(data) > MAX_DOCUMENT:
        detail = f"has {len(data):,} bytes; {MAX_DOCUMENT:,} is the most, JSON lines take more"
        raise ValidationError(detail, rule="size")


def _to_bytes(data: bytes | str) -> bytes:
    _check_size(data)
    if isinstance(data, bytes):
        return data
    try:
        return data.encode()
    except UnicodeEncodeError as error:
        detail = f"holds half a character (a lone surrogate) at {error.start}"
        raw = data.encode(errors="replace")
        place = len(data[: error.start].encode(errors="replace"))
        raise ValidationError(detail, path=path_at(raw, place), rule="text.surrogate") from None


def _explain_bytes(raw: bytes) -> NoReturn:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        detail, path = f"is not UTF-8 at byte {error.start}", path_at(raw, error.start)
        raise ValidationError(detail, path=path, rule="text.utf8") from None
    raise AssertionError  # pragma: no cover - the decoder has found it wrong


def _explain_json(raw: bytes, error: msgspec.MsgspecError) -> NoReturn:
    if isinstance(error, msgspec.ValidationError):  # without a type only one: a number too large
        raise translate_error(error, {}) from None
    found = _BYTE.search(str(error))
    offset = int(found[1]) if found else len(raw)
    half = _HALF.search(raw, 0, offset)
    if half:
        detail = f"holds half a character (a lone surrogate) at byte {half.start(1)}"
        path = path_at(raw, half.start(1))
        raise ValidationError(detail, path=path, rule="text.surrogate") from None
    number = re.match(rb"-?(NaN|-?Infinity)", raw[max(offset - 1, 0) :][:10].lstrip(b" :,["))
    if number:
        detail = f"must be a finite number, not {number[0].decode()}"
        raise ValidationError(detail, path=path_at(raw, offset), rule="number.nan") from None
    what = str(error).removeprefix("JSON is malformed: ")
    if "invalid character" in what and raw[offset : offset + 1] < b" ":
        what = f"a control character must be escaped (byte {offset})"
    raise ValidationError(f"is not JSON: {what}", path=path_at(raw, offset), rule="json") from None


def _read_message(value: object, path: str, tools: dict[str, str]) -> Message:
    if isinstance(value, Message):
        return value
    if not is_object(value):
        raise ValidationError(f"must be an object, not {kind_of(value)}", path=path)
    if "role" in value and value["role"] not in ROLES:
        detail = f"must be system, user, assistant or tool, not {quote_value(value['role'])}"
        raise ValidationError(detail, path=f"{path}.role", rule="role")
    if not {"role", "content"} <= value.keys():
        detail = "Invalid message format: role and content are required"
        missing = "role" if "role" not in value else "content"
        raise ValidationError(detail, path=f"{path}.{missing}", rule="message")
    value = _without_nulls(value, Message)
    content = value["content"]
    try:
        if not is_list(content):
            return convert(value, Message)
        bare = convert({**value, "content": ""}, Message)
    except (RecursionError, UnicodeError):
        _explain_value(value, path)
    except msgspec.ValidationError as error:
        raise translate_error(error, value).under(path) from None
    session = next(filter(None, map(_session_of, content)), NIL_ID)
    parts = [
        _read_item(item, bare, uuid_for(session), f"{path}.content[{index}]", tools)
        for index, item in enumerate(content)
    ]
    tools.update((part.call_id, part.tool) for part in parts if isinstance(part, ToolCallPart))
    try:
        return msgspec.structs.replace(bare, content=tuple(parts))
    except ValidationError as error:
        raise error.under(path) from None


def _session_of(part: object) -> str:
    found = part.get("sessionID") if is_object(part) else None
    # the part refuses any other value
    return found if isinstance(found, str) and len(found) <= MAX_NAME and is_plain(found) else ""


def _read_item(
    item: object, message: Message, session: str, path: str, tools: dict[str, str]
) -> Part:
    if not (is_object(item) and _is_content_item(item)):
        return _read_part(item, path)
    try:
        return _read_content_item(
            item,
            session_id=session,
            message_id=uuid_for(message.id),
            role=message.role,
            at=message.timestamp,
            tools=tools,
        )
    except (RecursionError, UnicodeError):
        _explain_value(item, path)
    except ValidationError as error:
        raise error.under(path) from None
    except msgspec.ValidationError as error:
        raise translate_error(error, item).under(path) from None


def _read_part(value: object, path: str) -> Part:
    if not is_object(value):
        refusal = PartValidationError(f"must be an object, not {kind_of(value)}", path=path)
        _log.error("%s", refusal)
        raise refusal
    kind = value.get("type")
    try:
        known = PART_TYPES.get(kind) if isinstance(kind, str) else None
        if known is None:
            return UnknownPart(value)
        return convert(_without_nulls(value, known), known)
    except (RecursionError, UnicodeError):
        _explain_value(value, path)
    except ValidationError as error:
        raise error.under(path) from None
    except msgspec.ValidationError as error:
        raise translate_error(error, value).under(path) from None


def _without_nulls(value: Mapping[str, Any], kind: type[Struct]) -> Mapping[str, Any]:
    """Return an object without the nulls of optional fields: null is the default.

    The state of a tool part is such an object too.
    """
    if None not in value.values() and kind is not ToolPart:
        return value
    optional = {field.encode_name for field in msgspec.structs.fields(kind) if not field.required}
    found = {name: item for name, item in value.items() if item is not None or name not in optional}
    state = found.get("state")
    if kind is ToolPart and is_object(state):
        status = state.get("status")
        known = _STATES.get(status) if isinstance(status, str) else None
        found["state"] = state if known is None else _without_nulls(state, known)
    return found


_STATES: Final[Mapping[str, type[Struct]]] = {
    "pending": ToolPending,
    "running": ToolRunning,
    "completed": ToolCompleted,
    "error": ToolError,
}


def _explain_value(value: object, path: str) -> NoReturn:
    """Raise the error that stopped the decoder, with its path: `freeze` finds it again."""
    freeze(value, path)
    raise ValidationError("is too deep", path=path)  # pragma: no cover - a nearly full stack


def _raise_own(error: Exception) -> None:
    """Raise the error that a part raised itself; any other error needs the careful way."""
    if isinstance(error.__cause__, PartValidationError):
        assert isinstance(error, msgspec.ValidationError)  # noqa: S101 - the decoder's own
        raise translate_error(error, {}) from None


def translate_error(error: msgspec.ValidationError, value: Mapping[str, Any]) -> ValidationError:
    """Return a msgspec error as a `ValidationError` with its path and rule."""
    text = str(error).encode(errors="backslashreplace").decode()  # it may quote half a character
    detail, path = text[:_LONG], "$"
    for match in _AT.finditer(text):  # the last one: a value that is quoted may hold another
        detail, path = text[: match.start()][:_LONG], match[1]
    cause = error.__cause__
    rule, part = "schema", value.get("type")
    if isinstance(cause, ValidationError):
        detail, path, rule = cause.detail, path + cause.path[1:], cause.rule
        part = getattr(cause, "part", part)
    missing, unexpected = _MISSING.fullmatch(detail), _UNEXPECTED.fullmatch(detail)
    if missing:
        name = missing[1]
        if isinstance(part, str):
            rule = _rule_of(part, value, path, name)
        detail, path = "is missing", f"{path}.{name}"
    elif unexpected:
        detail, path = "is not a field of it", f"{path}.{unexpected[1]}"
    elif detail.startswith("Number out of range"):
        detail, rule = "must be a finite number", "number.range"
    if not isinstance(part, str):
        return ValidationError(detail, path=path, rule=rule)
    refusal = PartValidationError(detail, path=path, rule=rule, part=part)
    if not isinstance(cause, PartValidationError):  # otherwise the part has logged it itself
        _log.error("%s", refusal)
    return refusal


def _rule_of(part: str, value: Mapping[str, Any], path: str, name: str) -> str:
    """Return the rule by which a field is required."""
    if part == "tool" and path in {"$.state", "$.state.time"}:
        running = value["state"].get("status") == "running"
        return "tool-start-time" if name == "time" and running else _STATE_RULES.get(name, "schema")
    # an element of a list is an attachment, which is a part too
    return _PART_RULES.get(name, "schema") if path == "$" or path.endswith("]") else "schema"


_CONTENT_TYPES: Final = frozenset(("text", "image", "tool_use", "tool_result"))
_IDS: Final = frozenset(("id", "sessionID", "messageID"))
_UNKNOWN_TOOL_NAME: Final = "unknown"


class _Strict(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    pass


class _Text(_Strict, frozen=True, tag="text"):
    text: str


class _Url(Struct, frozen=True, forbid_unknown_fields=True):
    url: str


class _Image(_Strict, frozen=True, tag="image"):
    image_url: _Url


class _Use(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    name: str
    input: dict[str, Any]


class _ToolUse(_Strict, frozen=True, tag="tool_use"):
    tool_use: _Use


class _Piece(Struct, frozen=True, forbid_unknown_fields=True):
    type: str
    text: str


class _Result(Struct, frozen=True, forbid_unknown_fields=True):
    tool_use_id: str
    content: str | list[_Piece]


class _ToolResult(_Strict, frozen=True, tag="tool_result"):
    tool_result: _Result


_Item = _Text | _Image | _ToolUse | _ToolResult


def _is_content_item(item: Mapping[str, Any]) -> bool:
    """Return whether a value is an item of a content list: its type is one of four, without ids.

    >>> _is_content_item({"type": "text", "text": "hi"})
    True
    >>> _is_content_item({"type": "text", "text": "hi", "messageID": "m"})
    False
    """
    kind = item.get("type")
    return isinstance(kind, str) and kind in _CONTENT_TYPES and _IDS.isdisjoint(item)


def _read_content_item(
    item: Mapping[str, Any],
    *,
    session_id: str,
    message_id: str,
    role: str,
    at: int,
    tools: Mapping[str, str],
) -> Part:
    """Read one item of a content list into a part.

    `tools` maps the id of each call so far to its tool, which a result does not name.
    """
    value: _Item = convert(item, _Item)
    if isinstance(value, _Text):
        return text_part(session_id, message_id, value.text)
    if isinstance(value, _Image):
        return file_part(
            session_id, message_id, image_mime(value.image_url.url), value.image_url.url
        )
    if isinstance(value, _ToolUse):
        use = value.tool_use
        given = read_arguments(use.input)
        return tool_call_part(
            session_id, message_id, use.name, given.input, call_id=use.id, raw=given.raw
        )
    if role == "assistant":
        return UnknownPart(item)  # a result does not belong in an answer
    result = value.tool_result
    fields: dict[str, Any] = {}
    if isinstance(result.content, str):
        output = result.content
    else:
        output = "\n".join(piece.text for piece in result.content)
        fields["metadata"] = {"content": msgspec.to_builtins(result.content)}
    tool = tools.get(result.tool_use_id, _UNKNOWN_TOOL_NAME)
    done = complete(start(pending({}, ""), at=at), output, tool=tool, at=at)
    return tool_part(session_id, message_id, result.tool_use_id, tool, done, **fields)


def to_content(message: Message) -> tuple[str | list[dict[str, Any]], tuple[Part, ...]]:
    """Return a message's content as a content list, and the parts that have no form there.

    >>> from palaver.messages import parse_message
    >>> to_content(parse_message({"role": "user", "content": [{"type": "text", "text": "hi"}]}))
    ([{'type': 'text', 'text': 'hi'}], ())
    """
    if isinstance(message.content, str):
        return message.content, ()
    items: list[dict[str, Any]] = []
    left_out: list[Part] = []
    for part in message.content:
        item = _to_item(part)
        if item is None:
            left_out.append(part)
        else:
            items.append(item)
    return items, tuple(left_out)


def _to_item(part: Part) -> dict[str, Any] | None:
    if isinstance(part, TextPart):  # the list can't say that no model may see it
        return {"type": "text", "text": part.text} if is_sendable(part) else None
    if isinstance(part, FilePart) and part.mime.startswith("image/"):
        return {"type": "image", "image_url": {"url": part.url}}
    if isinstance(part, ToolCallPart):
        use = {"id": part.call_id, "name": part.tool, "input": dict(part.arguments)}
        return {"type": "tool_use", "tool_use": use}
    if isinstance(part, ToolPart):
        result = {"tool_use_id": part.call_id, "content": _output(part)}
        return {"type": "tool_result", "tool_result": result}
    if isinstance(part, UnknownPart) and _is_content_item(part.raw):
        return dict(part.raw)
    return None


def _output(part: ToolPart) -> Any:  # noqa: ANN401 - text, or the list it came as
    if "content" in part.metadata:
        return part.metadata["content"]
    if isinstance(part.state, ToolError):
        return part.state.error
    if not isinstance(part.state, ToolCompleted):  # pragma: no cover - a message has no open calls
        return ""
    return raw_output(part.state)


def image_mime(url: str) -> str:
    """Return the media type of an image by its url; `image/*` if the url does not show it.

    >>> image_mime("https://example.org/a.jpg"), image_mime("https://example.org/a")
    ('image/jpeg', 'image/*')
    """
    if url.startswith("data:"):
        kind = url[5:].partition(",")[0].partition(";")[0]
        if kind.startswith("image/"):
            return kind
    extension = url.partition("?")[0].rpartition(".")[2].lower()
    known = {"jpg": "jpeg", "jpeg": "jpeg", "png": "png", "gif": "gif", "webp": "webp"}
    return f"image/{known.get(extension, '*')}"
