"""JSON in and out: the documents' own forms, read through the gate.

There is one quick way (the decoder makes the values and the values check themselves) and, when it
refuses, one careful way: it reads content lists and unknown parts, and says of anything that is
wrong where it is and which rule it breaks. For many messages a still quicker way comes first:
`bulk`, which takes what is beyond doubt.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, NoReturn, get_args

import msgspec

from palaver.errors import PartValidationError, ValidationError
from palaver.messages.bulk import read_messages
from palaver.messages.content import is_content_item, read_content_item
from palaver.messages.decoding import convert, prepared
from palaver.messages.duplicates import check_unique
from palaver.messages.gate import (
    MAX_DEPTH,
    MAX_NAME,
    freeze,
    is_list,
    is_object,
    is_plain,
    kind_of,
    quoted,
)
from palaver.messages.ids import NIL_ID, uuid_for
from palaver.messages.message import ROLES, Message
from palaver.messages.parts import KnownPart, Part, ToolCallPart, UnknownPart
from palaver.messages.replacement import replace_refused
from palaver.messages.scan import path_at, too_deep

__all__ = [
    "KNOWN_TYPES",
    "MAX_DOCUMENT",
    "decode_message",
    "dump",
    "load_json",
    "parse_message",
    "parse_messages",
    "parse_part",
    "to_dict",
    "translated",
]

MAX_DOCUMENT: Final = 512 * 1024 * 1024
"""Bytes in one JSON text; a longer history comes as JSON lines."""

KNOWN_TYPES: Final[dict[str, type[KnownPart]]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(KnownPart)
}
_PART_RULES: Final = {"id": "BR-01", "sessionID": "BR-01", "messageID": "BR-01"}
_STATE_RULES: Final = {
    "raw": "BR-06", "start": "BR-07", "time": "BR-08", "end": "BR-08", "output": "BR-09",
    "error": "BR-10",
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
    return prepared(Message)


@cache
def _list_decoder() -> msgspec.json.Decoder[list[Message]]:
    return prepared(list[Message])


def _plain(value: object) -> object:
    if isinstance(value, UnknownPart):
        return value.raw
    msg = f"{type(value).__name__} has no JSON form"
    raise TypeError(msg)


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def dump(value: object) -> bytes:
    """Write a message, a part, a turn, or a list of them as JSON.

    >>> dump(parse_message('{"role": "user", "content": "hi", "id": "m1", "timestamp": 5}'))
    b'{"role":"user","content":"hi","id":"m1","timestamp":5}'
    """
    return _encoder.encode(value)


def to_dict(value: object) -> Any:  # noqa: ANN401 - dict or list, as the value is
    """The same as `dump`, as plain dicts and lists.

    >>> to_dict(Message("user", "hi", id="m1", timestamp=5))
    {'role': 'user', 'content': 'hi', 'id': 'm1', 'timestamp': 5}
    """
    return msgspec.json.decode(_encoder.encode(value))


def parse_message(data: bytes | str | Mapping[str, Any], *, replace: bool = False) -> Message:
    """Read a message from JSON, or from a dict that holds JSON.

    An id and a time are given to a message that has none. `replace` puts U+FFFD, null or digits
    where a character or a number would be refused. A name that an object has twice is refused.

    >>> parse_message('{"role": "user", "content": "hi"}').text
    'hi'
    >>> parse_message('{"role": "robot", "content": "hi"}')
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.role: must be system, user, assistant or tool, not 'robot' ...
    """
    if isinstance(data, bytes | str) and not replace:
        raw = _checked_size(data)
        message = decode_message(raw)
        check_unique(raw)
        return message
    return _read_message(_json_of(data, replace=replace), "$", {})


def decode_message(data: bytes | str) -> Message:
    """Read a message from JSON that palaver has written: quicker, for it has no duplicate names.

    >>> decode_message('{"role": "user", "content": "hi"}').text
    'hi'
    """
    try:
        return _decoder().decode(_checked_size(data))
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        _raise_own(error)
    return _read_message(load_json(data, unique=False), "$", {})


def parse_messages(
    data: bytes | str | Iterable[Mapping[str, Any]],
    *,
    replace: bool = False,
    unique: bool = False,
) -> list[Message]:
    """Read a list of messages, all or none.

    It is made for many. `unique` refuses a name that stands twice in an object, which takes about
    twice as long as the reading; otherwise the last one counts.

    >>> [message.role for message in parse_messages('[{"role": "user", "content": "hi"}]')]
    ['user']
    """
    if isinstance(data, bytes | str) and not replace:
        messages = _read_many(_checked_size(data))
        if unique:
            check_unique(_checked_size(data))
        return messages
    items = _json_of(list(data) if isinstance(data, Iterator) else data, replace=replace)
    return _read_each(items)


def _read_many(raw: bytes) -> list[Message]:
    messages = read_messages(raw)
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
    """Read a part. A part of an unknown type is kept whole.

    >>> parse_part({"type": "hologram", "beam": 2}).type
    'hologram'
    >>> parse_part({"type": "text", "text": "hi"})
    Traceback (most recent call last):
    palaver.errors.PartValidationError: $.id: is missing (text part) [BR-01]
    """
    return _read_part(_json_of(data, replace=replace), "$")


def load_json(data: bytes | str, *, unique: bool = True) -> Any:  # noqa: ANN401 - whatever the text holds
    """Read JSON with errors that say where: malformed text, NaN, half a character, depth.

    A name that stands twice in an object is refused, too, unless `unique` is False: then the last
    one counts. That is for bulk data, for which the check would take too long.

    >>> load_json('{"a": [1, NaN]}')
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.a[1]: must be a finite number, not NaN [number.nan]
    """
    raw = _checked_size(data)
    try:
        value = msgspec.json.decode(raw)
    except RecursionError:
        detail = f"is nested deeper than {MAX_DEPTH} levels"
        raise ValidationError(detail, path=too_deep(raw, MAX_DEPTH), rule="depth") from None
    except UnicodeDecodeError:
        _explain_bytes(raw)
    except msgspec.MsgspecError as error:
        _explain_json(raw, error)
    if unique:
        check_unique(raw, value)
    return value


def _json_of(data: object, *, replace: bool) -> Any:  # noqa: ANN401 - as above
    if isinstance(data, bytes | str):
        if not replace:
            return load_json(data)
        import json  # noqa: PLC0415 - the lenient reader, loaded only for those who ask

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


def _checked_size(data: bytes | str) -> bytes:
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
        raise translated(error, {}) from None
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
        detail = f"must be system, user, assistant or tool, not {quoted(value['role'])}"
        raise ValidationError(detail, path=f"{path}.role", rule="role")
    if not {"role", "content"} <= value.keys():
        detail = "Invalid message format: role and content are required"
        missing = "role" if "role" not in value else "content"
        raise ValidationError(detail, path=f"{path}.{missing}", rule="message")
    content = value["content"]
    try:
        if not is_list(content):
            return convert(value, Message)
        bare = convert({**value, "content": ""}, Message)
    except (RecursionError, UnicodeError):
        _explain_value(value, path)
    except msgspec.ValidationError as error:
        raise translated(error, value).under(path) from None
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
    # anything odd is for the part to refuse
    return found if isinstance(found, str) and len(found) <= MAX_NAME and is_plain(found) else ""


def _read_item(
    item: object, message: Message, session: str, path: str, tools: dict[str, str]
) -> Part:
    if not (is_object(item) and is_content_item(item)):
        return _read_part(item, path)
    try:
        return read_content_item(
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
        raise translated(error, item).under(path) from None


def _read_part(value: object, path: str) -> Part:
    if not is_object(value):
        refusal = PartValidationError(f"must be an object, not {kind_of(value)}", path=path)
        _log.error("%s", refusal)
        raise refusal
    kind = value.get("type")
    try:
        known = KNOWN_TYPES.get(kind) if isinstance(kind, str) else None
        return UnknownPart(value) if known is None else convert(value, known)
    except (RecursionError, UnicodeError):
        _explain_value(value, path)
    except ValidationError as error:
        name = kind if isinstance(kind, str) and _is_presentable(kind) else "unknown"
        refusal = PartValidationError(
            error.detail, path=error.path, rule=error.rule, part=name
        ).under(path)
        _log.error("%s", refusal)
        raise refusal from None
    except msgspec.ValidationError as error:
        raise translated(error, value).under(path) from None


def _explain_value(value: object, path: str) -> NoReturn:
    """Say what stopped the reader: the gate, which knows where it is, finds the same."""
    freeze(value, path)
    raise ValidationError("is too deep", path=path)  # pragma: no cover - the stack was nearly full


def _is_presentable(name: str) -> bool:
    return 0 < len(name) <= _LONG and name.isprintable()


def _raise_own(error: Exception) -> None:
    """Raise what a part said of itself; anything else needs the careful way."""
    if isinstance(error.__cause__, PartValidationError):
        assert isinstance(error, msgspec.ValidationError)  # noqa: S101 - the decoder's own
        raise translated(error, {}) from None


def translated(error: msgspec.ValidationError, value: Mapping[str, Any]) -> ValidationError:
    """The decoder's error as one of ours: its path, its rule."""
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
    """Which rule says that the field must be there."""
    if part == "tool" and path in {"$.state", "$.state.time"}:
        running = value["state"].get("status") == "running"
        return "BR-07" if name == "time" and running else _STATE_RULES.get(name, "schema")
    # at the end of a list is an attachment, which is a part too
    return _PART_RULES.get(name, "schema") if path == "$" or path.endswith("]") else "schema"
