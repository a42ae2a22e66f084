"""Many messages at once: JSON becomes drafts, and one pass looks at all of them and accepts them.

A value checks itself when it is made, and thousands of such calls take longer than reading the
JSON. So the decoder makes drafts, which check nothing; here they are looked at together, what they
hold is frozen, and every one is given its real class. No mode is switched on that could leak:
nobody else has seen a draft, and whatever is made meanwhile, in this thread or in another, checks
itself as always.

Nothing is refused here. Of what is not beyond doubt the answer is None, and the caller reads it
again in the way that tells wrong from unusual and says what is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, get_args

from msgspec import UNSET, MsgspecError, Raw

from palaver.messages.drafts import Doubt, drafts, frozen
from palaver.messages.files import FilePart, FilePartSource, SourceText
from palaver.messages.gate import EMPTY, MAX_INT, MAX_TEXT, FrozenDict
from palaver.messages.message import MAX_PARTS, Message
from palaver.messages.parts import (
    Created,
    ModelRef,
    ReasoningPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolCallPart,
    ToolPart,
)
from palaver.messages.toolstate import ToolCompleted

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Struct

__all__ = ["read_messages"]

_Known: TypeAlias = dict[bytes, FrozenDict[str, Any]]
_CONTROLS: Final = tuple(map(chr, (*range(0x20), 0x7F)))
_HEX: Final = b"0123456789abcdefABCDEF"
_TO_FORM: Final = bytes(ord("x") if n in _HEX else n if n == ord("-") else 0 for n in range(256))
_UUID_FORM: Final = b"xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
_SAFE: Final = frozenset((bool, NoneType, ModelRef, SourceText, *get_args(FilePartSource)))
"""What needs no look; the structures among them are no drafts and have checked themselves."""


class _Found(NamedTuple):
    """What is looked at for all parts together, and the objects that have been frozen so far."""

    names: list[str]
    sessions: list[str]
    owners: list[str]
    known: _Known


def read_messages(raw: bytes) -> list[Message] | None:
    """Read a list of messages; None where there is any doubt.

    >>> [message.text for message in read_messages(b'[{"role": "user", "content": "hi"}]')]
    ['hi']
    >>> read_messages(b'[{"role": "robot", "content": "hi"}]') is None
    True
    """
    if type(raw) is not bytes or len(raw) > MAX_TEXT:  # in so few bytes no text can be too long
        return None
    try:
        made = drafts().decoder.decode(raw)
        _accept(made)
    except (Doubt, MsgspecError, RecursionError, UnicodeError):
        return None
    return made


def _accept(messages: list[Any]) -> None:
    """Make messages of drafts, or raise Doubt."""
    found = _Found([message.id for message in messages], [], [], {})
    ids: list[str] = []
    for draft, parts in _accept_messages(messages, found.known).items():
        ids += _accept_parts(parts, drafts().parts[draft], found)
    if len(set(ids)) < len(ids) or len(ids) > MAX_PARTS:  # in all of them, so look at each
        _look_at_number_of_parts(messages)
    found.names.extend(ids)
    _look_at_ids(found)


def _accept_messages(messages: list[Any], known: _Known) -> dict[type, list[Any]]:
    """Make messages of drafts; their parts, which are still drafts, by kind."""
    answers: list[Any] = []
    others: list[Any] = []
    for message in messages:
        content = message.content
        if type(content) is str:
            if "\0" in content:
                raise Doubt
        elif message.role == "assistant":
            answers += content
        else:
            others += content
        if message.metadata is not EMPTY:
            message.metadata = frozen(message.metadata, known)
        if message.info is not None and message.info.__struct_config__.tag != message.role:
            raise Doubt
        message.__class__ = Message
    kinds: dict[type, list[Any]] = defaultdict(list)
    for part in answers:
        kinds[type(part)].append(part)
    if drafts().tool in kinds:  # what became of a call stands in no answer (PT-04)
        raise Doubt
    for part in others:
        kinds[type(part)].append(part)
    return kinds


def _accept_parts(parts: list[Any], kind: type[Struct], found: _Found) -> list[str]:
    """Make parts of drafts of one kind; their ids, which are the caller's to look at."""
    _LOOKS.get(kind, _look_at_fields)(parts, found)
    found.sessions.extend([part.session_id for part in parts])
    found.owners.extend([part.message_id for part in parts])
    for part in parts:
        part.__class__ = kind
    return [part.id for part in parts]


def _look_at_number_of_parts(messages: list[Message]) -> None:
    for parts in (message.parts for message in messages):
        if len({part.id for part in parts}) < len(parts) or len(parts) > MAX_PARTS:
            raise Doubt


def _look_at_ids(found: _Found) -> None:
    """Look at names and ids, in one text each: the decoder has seen to their lengths."""
    names = "".join(found.names)
    if any(map(names.__contains__, _CONTROLS)) if names.isascii() else not names.isprintable():
        raise Doubt
    sessions = found.sessions
    if sessions and sessions.count(sessions[0]) == len(sessions):  # as in any conversation
        sessions = sessions[:1]
    for ids in (sessions, found.owners):
        text = "".join(ids)
        if not text.isascii() or text.encode().translate(_TO_FORM) != _UUID_FORM * len(ids):
            raise Doubt


def _look_at_whole(bits: int) -> None:
    """Look at the bits of many numbers together: a sign stays, and so does too high a bit."""
    if not 0 <= bits <= MAX_INT:
        raise Doubt


def _look_at_texts(parts: list[Any], found: _Found) -> None:
    known, bits = found.known, 0
    for part in parts:
        if "\0" in part.text:
            raise Doubt
        if part.metadata is not EMPTY:
            part.metadata = frozen(part.metadata, known)
        time = part.time
        if time is not None:
            bits |= (time.start or 0) | (time.end or 0)
    _look_at_whole(bits)


def _look_at_thoughts(parts: list[Any], found: _Found) -> None:
    if any(part.time.start is None for part in parts):
        raise Doubt
    _look_at_texts(parts, found)


def _look_at_calls(parts: list[Any], found: _Found) -> None:
    names, known = found.names, found.known
    for part in parts:
        names += part.call_id, part.tool
        if "\0" in part.raw:
            raise Doubt
        part.input = frozen(part.input, known)
        if part.metadata is not EMPTY:
            part.metadata = frozen(part.metadata, known)


def _look_at_tools(parts: list[Any], found: _Found) -> None:
    names, known, kinds, bits = found.names, found.known, drafts().states, 0
    for part in parts:
        names += part.call_id, part.tool
        if part.metadata is not EMPTY:
            part.metadata = frozen(part.metadata, known)
        state = part.state
        state.input = frozen(state.input, known)
        if state.metadata is not EMPTY:
            state.metadata = frozen(state.metadata, known)
        time, kind = state.time, kinds[type(state)]
        bits |= time.start | time.end
        if kind is ToolCompleted:
            if "\0" in state.output or "\0" in state.title:
                raise Doubt
            if time.compacted is not None:
                bits |= time.compacted
            if state.attachments is not UNSET:
                names += _accept_parts(list(state.attachments), FilePart, found)
        elif "\0" in state.error or not state.error.strip():
            raise Doubt
        state.__class__ = kind
    _look_at_whole(bits)


def _look_at_starts(parts: list[Any], _found: _Found) -> None:
    for part in parts:
        if part.snapshot is not None and "\0" in part.snapshot:
            raise Doubt


def _look_at_finishes(parts: list[Any], _found: _Found) -> None:
    bits = 0
    for part in parts:
        if "\0" in part.reason or (part.snapshot is not None and "\0" in part.snapshot):
            raise Doubt
        tokens = part.tokens
        cache = tokens.cache
        bits |= tokens.input | tokens.output | tokens.reasoning | cache.read | cache.write
        if tokens.total is not None:
            bits |= tokens.total
    _look_at_whole(bits)


def _look_at_fields(parts: list[Any], found: _Found) -> None:
    """Look at parts of a rarer kind: at each field, by what it holds."""
    for part in parts:
        for name in part.__struct_fields__:
            value = getattr(part, name)
            kind = type(value)
            if kind is str or kind is tuple:  # in a tuple are texts
                if "\0" in (value if kind is str else "".join(value)):
                    raise Doubt
            elif kind is Raw:
                setattr(part, name, frozen(value, found.known))
            elif kind is int or kind is Created:
                _look_at_whole(value if kind is int else value.created)
            elif kind not in _SAFE:  # pragma: no cover - a field that is not there yet
                raise Doubt


_LOOKS: Final[dict[type[Struct], Callable[[list[Any], _Found], None]]] = {
    TextPart: _look_at_texts,
    ReasoningPart: _look_at_thoughts,
    ToolCallPart: _look_at_calls,
    ToolPart: _look_at_tools,
    StepStartPart: _look_at_starts,
    StepFinishPart: _look_at_finishes,
}
