"""JSON into typed values: decoders that are safe for threads, and a fast way for many messages.

A message checks itself when it is made, and thousands of such calls take longer than decoding the
JSON. So `decode_messages` decodes a list into drafts, which check nothing, checks all drafts
together in a few loops, and gives them their real classes at the end. No other code sees a draft,
but for a reader of a provider's items that checks a whole batch at once (`draft_class`, `accept`).
Messages that are made meanwhile, in this thread or another, check themselves as always.

`decode_messages` refuses nothing. If anything is unusual it returns None, and the caller decodes
again in the way that tells unusual from wrong and says what is wrong.
"""

from __future__ import annotations

import os
import re
import threading
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, reduce
from operator import or_
from types import GenericAlias, NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    NamedTuple,
    NoReturn,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import msgspec
from msgspec import UNSET, Meta, MsgspecError, Raw, UnsetType
from msgspec.json import Decoder

from palaver.errors import ValidationError
from palaver.messages.ids import uuid_for
from palaver.messages.limits import (
    EMPTY,
    MAX_DEPTH,
    MAX_INT,
    MAX_NAME,
    MAX_TEXT,
    FrozenDict,
    FrozenList,
    path_step,
)
from palaver.messages.message import MAX_PARTS, Message
from palaver.messages.part_base import FilePart, FilePartSource, SourceText
from palaver.messages.parts import (
    Created,
    KnownPart,
    ModelRef,
    ReasoningPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolCallPart,
    ToolPart,
)
from palaver.messages.tool_state import ToolCompleted, ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from json import JSONDecoder

    from msgspec import Struct

__all__ = [
    "DUPLICATE_NAME",
    "accept",
    "check_unique_names",
    "convert",
    "decode",
    "decode_messages",
    "decoder_for",
    "draft_class",
    "line_of",
    "offset_of",
    "offsets_of",
    "path_at",
    "path_of_duplicate",
    "path_too_deep",
]


_T = TypeVar("_T")
_S = TypeVar("_S", bound="Struct")
_decoders: Final[dict[Any, Decoder[Any]]] = {}
_decoders_lock: Final = threading.Lock()
_drafts_lock: Final = threading.Lock()

if hasattr(os, "register_at_fork"):  # a forked child lacks the thread that may hold a lock
    for _lock in (_decoders_lock, _drafts_lock):
        os.register_at_fork(
            before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
        )


@overload
def decoder_for(kind: type[_T]) -> Decoder[_T]: ...
@overload
def decoder_for(kind: Any) -> Decoder[Any]: ...  # noqa: ANN401 - a union, say
def decoder_for(kind: Any) -> Decoder[Any]:
    """Return the decoder of a type, which every thread may use.

    msgspec inspects a type when its first decoder is made, and another thread that uses the type
    meanwhile crashes the process. So the first decoder of a type is made under a lock.

    >>> decoder_for(list[int]).decode(b"[1, 2]")
    [1, 2]
    """
    found = _decoders.get(kind)
    if found is None:
        with _decoders_lock:  # a second thread that waits here finds the type inspected
            found = _decoders[kind] = Decoder(kind)
    return found


def decode(data: bytes | str | Raw, kind: type[_T]) -> _T:
    """Decode JSON into a type.

    >>> decode(b'{"a": 1}', dict[str, int])
    {'a': 1}
    """
    return decoder_for(kind).decode(data)


@overload
def convert(value: object, kind: type[_T]) -> _T: ...
@overload
def convert(value: object, kind: Any) -> Any: ...  # noqa: ANN401 - as above
def convert(value: object, kind: Any) -> Any:
    """Convert a value that is decoded JSON into a type.

    >>> convert([1, 2], tuple[int, ...])
    (1, 2)
    """
    decoder_for(kind)
    return msgspec.convert(value, kind)


_PYDANTIC: Final = frozenset(("pydantic", "pydantic_core", "annotated_types"))


def is_pydantic(kind: object) -> bool:
    """Tell whether a type, or a default, is pydantic's to read: at any depth, also in a dataclass.

    msgspec would drop such a constraint without a word.
    """
    return any(
        hasattr(one, "__pydantic_validator__") or {_package(one), _package(type(one))} & _PYDANTIC
        for one in _types_within(kind)
    )


def refuse_meta(kind: object) -> None:
    """Raise `TypeError` if a type for pydantic has msgspec's `Meta` in it, which would be lost."""
    if any(isinstance(one, Meta) for one in _types_within(kind)):
        detail = "it has msgspec's Meta, which pydantic ignores: write pydantic.Field(…) for it"
        raise TypeError(detail)


def explain_mismatch(error: Exception) -> str:
    """Return what msgspec or pydantic found wrong with a value, in the words for a model."""
    problems = getattr(error, "errors", None)
    if not callable(problems):
        return str(error)
    found: Any = problems(include_url=False, include_context=False, include_input=False)
    steps = (["$", *map(path_step, one["loc"])] for one in found)
    return "; ".join(
        f"{one['msg']} - at `{''.join(path)}`" for one, path in zip(found, steps, strict=True)
    )


def _package(value: object) -> str:
    return str(getattr(value, "__module__", "")).partition(".")[0]


def _types_within(kind: object) -> Iterator[object]:
    """Yield a type, its arguments and annotations, and the types of its fields."""
    waiting, seen = [kind], dict[int, object]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        yield one
        waiting += [*get_args(one), *getattr(one, "__metadata__", ())]
        if isinstance(one, type) and not hasattr(one, "__pydantic_validator__"):
            with suppress(NameError, TypeError):  # it is for the reader of the type to say so
                waiting += get_type_hints(one, include_extras=True).values()


def decode_messages(raw: bytes) -> list[Message] | None:
    """Decode a list of messages; return None if anything in it is unusual or wrong.

    >>> [message.text for message in decode_messages(b'[{"role": "user", "content": "hi"}]')]
    ['hi']
    >>> decode_messages(b'[{"role": "robot", "content": "hi"}]') is None
    True
    """
    if type(raw) is not bytes or len(raw) > MAX_TEXT:  # in so few bytes no text can be too long
        return None
    try:
        messages = _draft_types().decoder.decode(raw)
        _accept(messages)
    except (_Unusual, MsgspecError, RecursionError, UnicodeError):
        return None
    return messages


class _Unusual(Exception):  # noqa: N818 - not an error: the careful way decides
    """A draft is unusual or wrong."""


_FrozenObjects: TypeAlias = dict[bytes, FrozenDict[str, Any]]


class _Collected(NamedTuple):
    """The names and ids of all parts, which are checked together, and the objects frozen so far."""

    names: list[str]
    sessions: list[str]
    owners: list[str]
    objects: _FrozenObjects


def _set_class(drafts: Iterable[Any], kind: type[Struct]) -> None:
    """Give accepted drafts their real class. Only this and `accept` assign `__class__`.

    A draft's class is a subclass of the real one with the same fields, so the layout is the same,
    and until now only this module has seen the draft. The way without it, decoding into the real
    classes, which check themselves one by one, took 1.4 times as long for 2,100 messages.
    """
    for draft in drafts:
        draft.__class__ = kind


def draft_class(kind: type[_S]) -> type[_S]:
    """Return the class of a kind's drafts, which check nothing; `accept` ends a draft.

    It is for a reader that has checked every field already: all texts of a batch in one go, say.
    Where the fields are not of its own making, the class itself is the way.

    >>> draft = draft_class(Message)("user", "hi")
    >>> accept(draft, Message) == Message("user", "hi", draft.id, draft.timestamp)
    True
    """
    return _draft(kind, {})  # type: ignore[no-any-return]


def accept(draft: _S, kind: type[_S]) -> _S:
    """Give a draft of which every field is right its real class, and return it."""
    draft.__class__ = kind
    return draft


def _accept(messages: list[Any]) -> None:
    """Turn drafts into messages, or raise _Unusual."""
    collected = _Collected([message.id for message in messages], [], [], {})
    ids: list[str] = []
    for draft, parts in _accept_messages(messages, collected.objects).items():
        ids += _accept_parts(parts, _draft_types().parts[draft], collected)
    if len(set(ids)) < len(ids) or len(ids) > MAX_PARTS:  # over all messages, so check each one
        _check_parts_of_each(messages)
    collected.names.extend(ids)
    _check_ids(collected)
    _check_owners(messages)


def _accept_messages(messages: list[Any], objects: _FrozenObjects) -> dict[type, list[Any]]:
    """Turn drafts into messages; return their parts, which are still drafts, by class."""
    answers: list[Any] = []
    others: list[Any] = []
    for message in messages:
        content = message.content
        if type(content) is str:
            if "\0" in content:
                raise _Unusual
        elif message.role == "assistant":
            answers += content
        else:
            others += content
        if message.metadata is not EMPTY:
            message.metadata = _freeze_raw(message.metadata, objects)
        if message.info is not None and message.info.__struct_config__.tag != message.role:
            raise _Unusual
    _set_class(messages, Message)
    kinds: dict[type, list[Any]] = defaultdict(list)
    for part in answers:
        kinds[type(part)].append(part)
    if _draft_types().tool in kinds:  # the result of a call does not belong in an answer
        raise _Unusual
    for part in others:
        kinds[type(part)].append(part)
    return kinds


def _check_owners(messages: list[Any]) -> None:
    """Require each part to be its message's; the careful way makes it so."""
    for message in messages:
        if type(message.content) is tuple:
            name = message.id
            for part in message.content:
                if part.message_id != name and part.message_id != uuid_for(name):
                    raise _Unusual


def _accept_parts(parts: list[Any], kind: type[Struct], collected: _Collected) -> list[str]:
    """Turn drafts of one class into parts; return their ids, which the caller checks."""
    _CHECKS.get(kind, _check_fields)(parts, collected)
    collected.sessions.extend([part.session_id for part in parts])
    collected.owners.extend([part.message_id for part in parts])
    _set_class(parts, kind)
    return [part.id for part in parts]


def _check_parts_of_each(messages: list[Message]) -> None:
    for parts in (message.parts for message in messages):
        if len({part.id for part in parts}) < len(parts) or len(parts) > MAX_PARTS:
            raise _Unusual


_CONTROLS: Final = tuple(map(chr, (*range(0x20), 0x7F)))
_HEX: Final = b"0123456789abcdefABCDEF"
_TO_FORM: Final = bytes(ord("x") if n in _HEX else n if n == ord("-") else 0 for n in range(256))
_UUID_FORM: Final = b"xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"


def _check_ids(collected: _Collected) -> None:
    """Check names and ids, joined into one text each; the decoder has checked the lengths."""
    names = "".join(collected.names)
    if any(map(names.__contains__, _CONTROLS)) if names.isascii() else not names.isprintable():
        raise _Unusual
    sessions = collected.sessions
    if sessions and sessions.count(sessions[0]) == len(sessions):  # as in most conversations
        sessions = sessions[:1]
    for ids in (sessions, collected.owners):
        text = "".join(ids)
        if not text.isascii() or text.encode().translate(_TO_FORM) != _UUID_FORM * len(ids):
            raise _Unusual


def _check_bits(bits: int) -> None:
    """Check many numbers that were combined with `|`: a sign or too high a bit is still there."""
    if not 0 <= bits <= MAX_INT:
        raise _Unusual


def _check_texts(parts: list[Any], collected: _Collected) -> None:
    objects, bits = collected.objects, 0
    for part in parts:
        if "\0" in part.text:
            raise _Unusual
        if part.metadata is not EMPTY:
            part.metadata = _freeze_raw(part.metadata, objects)
        time = part.time
        if time is not None:
            start, end = time.start or 0, time.end
            bits |= start if end is None else start | end | end - start  # no end before its start
    _check_bits(bits)


def _check_reasoning(parts: list[Any], collected: _Collected) -> None:
    if any(part.time.start is None for part in parts):
        raise _Unusual
    _check_texts(parts, collected)


def _check_calls(parts: list[Any], collected: _Collected) -> None:
    names, objects = collected.names, collected.objects
    for part in parts:
        names += part.call_id, part.tool
        if "\0" in part.raw:
            raise _Unusual
        part.input = _freeze_raw(part.input, objects)
        if part.metadata is not EMPTY:
            part.metadata = _freeze_raw(part.metadata, objects)


def _check_tools(parts: list[Any], collected: _Collected) -> None:
    names, objects, bits = collected.names, collected.objects, 0
    states: dict[type, list[Any]] = defaultdict(list)
    kinds = _draft_types().states
    for part in parts:
        names += part.call_id, part.tool
        if part.metadata is not EMPTY:
            part.metadata = _freeze_raw(part.metadata, objects)
        state = part.state
        state.input = _freeze_raw(state.input, objects)
        if state.metadata is not EMPTY:
            state.metadata = _freeze_raw(state.metadata, objects)
        time, kind = state.time, kinds[type(state)]
        bits |= time.start | time.end | time.end - time.start  # no end before its start
        if kind is ToolCompleted:
            if "\0" in state.output or "\0" in state.title:
                raise _Unusual
            if time.compacted is not None:
                bits |= time.compacted
            if state.attachments is not UNSET:
                names += _accept_parts(list(state.attachments), FilePart, collected)
        elif "\0" in state.error or not state.error.strip():
            raise _Unusual
        states[kind].append(state)
    for kind, found in states.items():
        _set_class(found, kind)
    _check_bits(bits)


def _check_step_starts(parts: list[Any], _collected: _Collected) -> None:
    for part in parts:
        if part.snapshot is not None and "\0" in part.snapshot:
            raise _Unusual


def _check_step_finishes(parts: list[Any], _collected: _Collected) -> None:
    bits = 0
    for part in parts:
        if "\0" in part.reason or (part.snapshot is not None and "\0" in part.snapshot):
            raise _Unusual
        tokens = part.tokens
        cached = tokens.cache
        bits |= tokens.input | tokens.output | tokens.reasoning | cached.read | cached.write
        if tokens.total is not None:
            bits |= tokens.total
    _check_bits(bits)


_CHECKED: Final = frozenset((bool, NoneType, ModelRef, SourceText, *get_args(FilePartSource)))
"""Types of fields that need no check; the structs among them have checked themselves."""


def _check_fields(parts: list[Any], collected: _Collected) -> None:
    """Check parts of the rarer classes: each field, by the type of its value."""
    for part in parts:
        for name in part.__struct_fields__:
            value = getattr(part, name)
            kind = type(value)
            if kind is str or kind is tuple:  # a tuple holds texts
                if "\0" in (value if kind is str else "".join(value)):
                    raise _Unusual
            elif kind is Raw:
                setattr(part, name, _freeze_raw(value, collected.objects))
            elif kind is int or kind is Created:
                _check_bits(value if kind is int else value.created)
            elif kind not in _CHECKED:  # pragma: no cover - for a field that is added later
                raise _Unusual


_CHECKS: Final[dict[type[Struct], Callable[[list[Any], _Collected], None]]] = {
    TextPart: _check_texts,
    ReasoningPart: _check_reasoning,
    ToolCallPart: _check_calls,
    ToolPart: _check_tools,
    StepStartPart: _check_step_starts,
    StepFinishPart: _check_step_finishes,
}


class _DraftTypes(NamedTuple):
    """The decoder of drafts, and the real class of each draft's class."""

    decoder: Decoder[list[Any]]
    parts: dict[type, type[Struct]]
    states: dict[type, type[Struct]]
    tool: type


def _draft_types() -> _DraftTypes:
    with _drafts_lock:  # two threads that come first together would each make their own classes
        return _make_draft_types()


_Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
_Uuid: TypeAlias = Annotated[str, Meta(min_length=36, max_length=36)]
_NonEmpty: TypeAlias = Annotated[str, Meta(min_length=1)]
_Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INT)]
_Cost: TypeAlias = Annotated[float, Meta(ge=0, le=MAX_INT)] | None


@cache
def _make_draft_types() -> _DraftTypes:
    ids = {"id": _Name, "session_id": _Uuid, "message_id": _Uuid, "call_id": _Name, "tool": _Name}
    file = _draft(FilePart, ids)
    files = GenericAlias(tuple, (file, ...)) | UnsetType
    completed = _draft(ToolCompleted, {"output": _NonEmpty, "attachments": files})
    # only final states: a message holds no open call
    states: dict[type, type[Struct]] = {completed: ToolCompleted, _draft(ToolError, {}): ToolError}
    others = {"cost": _Cost, "state": reduce(or_, states)}
    kinds = [kind for kind in get_args(KnownPart) if kind is not FilePart]
    made = {_draft(kind, ids | others): kind for kind in kinds}
    parts: dict[type, type[Struct]] = {file: FilePart, **made}
    content = str | GenericAlias(tuple, (reduce(or_, parts), ...))
    message = _draft(Message, {"id": _Name, "timestamp": _Count, "content": content})
    tool = next(draft for draft, kind in parts.items() if kind is ToolPart)
    return _DraftTypes(decoder_for(GenericAlias(list, (message,))), parts, states, tool)


class _Absent:
    """Hides the `__post_init__` that a draft's class would inherit."""

    def __get__(self, draft: object, kind: object) -> NoReturn:
        raise AttributeError


def _draft(kind: type[Struct], types: dict[str, Any]) -> Any:  # noqa: ANN401 - a class, made here
    """Make the class of a kind's drafts: a subclass that is mutable and checks nothing.

    Its fields are those of the real class. Those in `types` have a narrower type, which the
    decoder checks at no cost, and JSON objects stay raw until `_freeze_raw` replaces them.
    """
    config, fields = kind.__struct_config__, []
    for field in msgspec.structs.fields(kind):
        raw = Raw if get_origin(field.type) is Mapping else None
        narrow = types.get(field.name, raw)
        if narrow is not None:
            default = {"default": field.default, "default_factory": field.default_factory}
            fields.append((field.name, narrow, msgspec.field(name=field.encode_name, **default)))
    return msgspec.defstruct(
        kind.__name__, fields, bases=(kind,), namespace={"__post_init__": _Absent()},
        frozen=False, gc=False, kw_only=kind is not Message,
        tag=config.tag, tag_field=config.tag_field,
    )  # fmt: skip


_MIN_INT: Final = -MAX_INT
_BACKSLASH, _BRACKET = b"\\["  # numbers, which are found far more quickly than bytes
_OBJECT: Final = Decoder(dict[str, Any])
_FLAT: Final = Decoder(
    dict[str, str | Annotated[int, Meta(ge=_MIN_INT, le=MAX_INT)] | float | bool | None]
)
_new_dict, _fill_dict = dict.__new__, dict.update
_new_list, _fill_list = list.__new__, list.extend


def _freeze_raw(raw: Raw, objects: _FrozenObjects) -> FrozenDict[str, Any]:
    """Decode a raw JSON object into the same frozen value that `freeze_mapping` makes of it.

    `objects` holds the objects of the document so far: a call and its result have the same input,
    and metadata often repeats. JSON has no NaN and the decoder refuses lone surrogates, which
    leaves NUL, large numbers and depth to check.

    >>> _freeze_raw(Raw(b'{"a": [1, {"b": null}]}'), {})
    {'a': [1, {'b': None}]}
    """
    text = bytes(raw)
    made = objects.get(text)
    if made is None:
        if _BACKSLASH in text and b"\\u0000" in text:
            raise _Unusual
        if _BRACKET in text or text.rfind(b"{"):
            made = _freeze_decoded(_OBJECT.decode(text), MAX_DEPTH)
        else:  # a flat object, whose numbers the decoder has checked
            made = _new_dict(FrozenDict)
            _fill_dict(made, _FLAT.decode(text))
        made = objects[text] = made or EMPTY
    return made


def _freeze_decoded(value: Any, levels: int) -> Any:  # noqa: ANN401 - a dict or list from JSON
    if not levels:
        raise _Unusual
    is_object = type(value) is dict
    for key, item in value.items() if is_object else enumerate(value):
        kind = type(item)
        if kind is dict or kind is list:
            value[key] = _freeze_decoded(item, levels - 1)
        elif kind is int and not _MIN_INT <= item <= MAX_INT:
            raise _Unusual
    made: Any
    if is_object:
        made = _new_dict(FrozenDict)
        _fill_dict(made, value)
    else:
        made = _new_list(FrozenList)
        _fill_list(made, value)
    return made


DUPLICATE_NAME: Final = "json.duplicate"
"""The rule that a name occurs once in an object."""
_ESCAPED: Final = b"\\u003"
"""The start of an escaped colon."""


def check_unique_names(data: bytes, value: object = msgspec.UNSET) -> None:
    """Raise `ValidationError` if an object in a JSON text has a name twice.

    The text must be valid JSON. `value` is its decoded value, if the caller has it.

    >>> check_unique_names(b'{"a": {"b": 1, "c": 2}}')
    >>> check_unique_names(b'{"a": {"b": 1, "b": 2}}')
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.a.b: occurs twice in the same object; ... [json.duplicate]
    """
    try:
        are_unique = _has_all_colons(data, value) if _ESCAPED not in data else _has_each_once(data)
    except RecursionError:
        detail = f"is nested deeper than {MAX_DEPTH} levels"
        raise ValidationError(detail, path=path_too_deep(data, MAX_DEPTH), rule="depth") from None
    if not are_unique:
        detail = "occurs twice in the same object; give it once"
        raise ValidationError(detail, path=path_of_duplicate(data), rule=DUPLICATE_NAME)


def _has_all_colons(data: bytes, value: object) -> bool:
    plain = msgspec.json.decode(data) if value is msgspec.UNSET else value
    return data.count(b":") == msgspec.json.encode(plain).count(b":")


class _Repeated(Exception):  # noqa: N818 - only to leave the decoder
    """An object has a name twice."""


def _refuse_repeated(members: list[tuple[str, Any]]) -> None:
    if len(dict(members)) != len(members):
        raise _Repeated


@cache
def _decoder() -> JSONDecoder:
    import json  # noqa: PLC0415 - loaded when it is first needed

    # float takes whole numbers of any length; int refuses very long ones
    return json.JSONDecoder(object_pairs_hook=_refuse_repeated, parse_int=float)


def _has_each_once(data: bytes) -> bool:
    try:
        _decoder().decode(data.decode())
    except _Repeated:
        return False
    return True


_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_Path = tuple[str | int, ...]


def _values(data: bytes) -> Iterator[tuple[int, list[str | int]]]:
    """Yield each value's offset and path in the order of the text; the path is changed later."""
    path: list[str | int] = []
    open_objects: list[bool] = []
    key_next = False
    for match in _TOKEN.finditer(data):
        token = match.group()
        if token in (b"{", b"["):
            yield match.start(), path
            open_objects.append(token == b"{")
            path.append("" if token == b"{" else 0)
            key_next = token == b"{"
        elif token in (b"}", b"]"):
            if not open_objects:
                return
            open_objects.pop()
            path.pop()
            key_next = False
        elif token == b",":
            if open_objects and open_objects[-1]:
                key_next = True
            elif path and isinstance(path[-1], int):
                path[-1] += 1
        elif token == b":":
            key_next = False
        elif key_next:
            path[-1] = token.strip(b'"').decode(errors="replace")
            key_next = False
        else:
            yield match.start(), path


def path_of_duplicate(data: bytes) -> str:
    """Return the path of the first name that occurs twice in its object; `$` if there is none.

    >>> path_of_duplicate(b'[{"a": {"b": 1}, "a": 2}]')
    '$[0].a'
    """
    path: list[str | int] = []
    known: list[set[str]] = []  # the names so far of every object that is open
    objects: list[bool] = []
    key_next = False
    for match in _TOKEN.finditer(data):
        token = match.group()
        if token in (b"{", b"["):
            key_next = token == b"{"
            objects.append(key_next)
            known.append(set())
            path.append("" if key_next else 0)
        elif token in (b"}", b"]"):
            key_next = False
            objects.pop()
            known.pop()
            path.pop()
        elif token == b",":
            key_next = objects[-1]
            if not key_next:
                path[-1] = int(path[-1]) + 1
        elif key_next:
            key_next = False
            path[-1] = name = msgspec.json.decode(token, type=str)
            if name in known[-1]:
                return "$" + "".join(map(path_step, path))
            known[-1].add(name)
    return "$"


def path_at(data: bytes, offset: int) -> str:
    """Return the path of the value at an offset.

    >>> path_at(b'{"a": [1, NaN]}', 10)
    '$.a[1]'
    """
    found: list[str | int] = []
    for start, path in _values(data):
        if start > offset:
            break
        found = list(path)
    return "$" + "".join(map(path_step, found))


def path_too_deep(data: bytes, levels: int) -> str:
    """Return the path of the first value that is nested deeper than a number of levels.

    >>> path_too_deep(b'[[{"a": [0]}]]', 3)
    '$[0][0].a'
    """
    for _, path in _values(data):
        if len(path) >= levels:
            return "$" + "".join(map(path_step, path))
    return "$"


def offset_of(data: bytes, path: str) -> int:
    """Return the offset of the value at a path, or of the nearest value around it.

    >>> offset_of(b'{"a": [1, 2]}', "$.a[1].nothing")
    10
    """
    return offsets_of(data, (path,))[path]


def offsets_of(data: bytes, paths: Iterable[str]) -> dict[str, int]:
    """Return the offsets of the values at many paths, in one pass over the text.

    >>> offsets_of(b'{"a": [1, 2]}', ["$.a", "$.a[1].nothing"])
    {'$.a': 6, '$.a[1].nothing': 10}
    """
    around = {path: _around(path) for path in paths}
    wanted = {prefix for prefixes in around.values() for prefix in prefixes}
    deepest = max((len(prefixes) for prefixes in around.values()), default=0)
    found: dict[str, int] = {}
    for start, steps in _values(data):
        if len(steps) < deepest:
            here = "$" + "".join(map(path_step, steps))
            if here in wanted:
                found.setdefault(here, start)
                if len(found) == len(wanted):
                    break
    return {
        path: next((found[prefix] for prefix in prefixes if prefix in found), 0)
        for path, prefixes in around.items()
    }


def _around(path: str) -> list[str]:
    """Return a path and all paths that lead to it, the longest first."""
    ends = [index for index, char in enumerate(path) if char in ".["]
    return [path, *(path[:end] for end in reversed(ends))]


def line_of(data: bytes, offset: int) -> int:
    """Return the number of the line, from 1, that holds an offset."""
    return data.count(b"\n", 0, offset) + 1
