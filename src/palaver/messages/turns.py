"""Turns: an answer whose tool calls are joined with their results, and back to messages.

    messages:  assistant [text, tool-call a, tool-call b]   tool [a: done]   ledger {b: running}
    turn:      assistant [text, tool a: done, tool b: running]

`fold` makes turns of messages and `unfold` makes messages of turns. What a turn has no field for is
in its `keep`, so that folding and unfolding gives the same messages. A message that is not an
answer, or does not fit its answer exactly, is a turn of its own. No message is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct
from msgspec.structs import asdict, force_setattr, replace

from palaver.errors import ValidationError
from palaver.messages.codec import dump, parse_message, parse_part, to_dict
from palaver.messages.ids import NIL_ID, derive_id, is_uuid, uuid_for
from palaver.messages.limits import (
    EMPTY,
    check_fields,
    check_name,
    check_time,
    freeze_mapping,
    is_list,
    is_object,
    quote_value,
)
from palaver.messages.message import (
    ROLES,
    AssistantInfo,
    Message,
    Role,
    Routing,
    Speaker,
    Summary,
    UserInfo,
    WorkingPath,
    as_parts,
    check_kind,
    check_tools,
    check_unique_ids,
    own_parts,
)
from palaver.messages.part_base import json_name
from palaver.messages.parts import (
    ModelRef,
    Part,
    TextPart,
    TokenCounts,
    ToolCallPart,
    ToolPart,
    UnknownPart,
    check_figures,
)
from palaver.messages.tool_state import ToolCompleted, ToolError, ToolPending, ToolState, pending

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = [
    "FOREIGN",
    "LedgerCall",
    "TurnInfo",
    "TurnTime",
    "Unfolded",
    "WithParts",
    "fold",
    "object_at",
    "session_of",
    "tool_message_id",
    "unfold",
]

FOREIGN: Final = "palaver.foreign"
"""The metadata key for what was different about a message in the program it came from."""
_INFO_FIELDS: Final = {
    "user": frozenset(UserInfo.__struct_fields__),
    "assistant": frozenset(AssistantInfo.__struct_fields__) - {"completed"},
}


class TurnTime(Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """When a turn was created and when it was complete, in milliseconds."""

    created: int
    completed: int | None = None


class TurnInfo(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, rename=json_name,
               forbid_unknown_fields=True):  # fmt: skip
    """All of a turn except its parts."""

    id: str
    role: Role
    time: TurnTime
    session_id: str | None = None
    agent: str | None = None
    mode: str | None = None
    model: ModelRef | None = None
    system: str | None = None
    tools: Mapping[str, bool] | None = None
    variant: str | None = None
    summary: Summary | bool | None = None
    path: WorkingPath | None = None
    cost: float | None = None
    cost_computed: bool = False
    tokens: TokenCounts | None = None
    finish: str | None = None
    error: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] = EMPTY
    speaker: Speaker | None = None
    routing: Routing | None = None
    keep: Mapping[str, Any] = EMPTY

    def __post_init__(self) -> None:
        """Check what a message checks, so that every turn that exists can be unfolded."""
        check_name(self.id, "$.id", "id")
        if self.role not in ROLES:
            detail = f"must be system, user, assistant or tool, not {quote_value(self.role)}"
            raise ValidationError(detail, path="$.role", rule="role")
        check_fields(self)
        check_time(self.time.created, "$.time.created")
        if self.time.completed is not None:
            check_time(self.time.completed, "$.time.completed", "completion-time")
        problem = check_figures(self.cost, self.tokens)
        if problem:
            detail, path, rule = problem
            raise ValidationError(detail, path=path, rule=rule)
        for name in ("keep", "metadata", "tools", "error"):
            value = getattr(self, name)
            if value is not None:
                force_setattr(self, name, freeze_mapping(value, f"$.{name}"))
        check_tools(self.tools)


class WithParts(Struct, frozen=True, gc=False):
    """A turn: its info and its parts, with each tool call joined to its state."""

    info: TurnInfo
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        """Check the info and the parts; a list becomes a tuple, and each part is this turn's.

        A turn is in its parts' session, where its info names none.
        """
        info = self.info
        check_kind(info, "$.info", TurnInfo)
        parts = as_parts(self.parts, "$.parts")
        check_unique_ids(parts, "$.parts")
        force_setattr(self, "parts", own_parts(parts, info.id))
        session = session_of(parts)
        if info.session_id is None and session != NIL_ID:
            force_setattr(self, "info", replace(info, session_id=session))


class Unfolded(Struct, frozen=True, gc=False):
    """The result of `unfold`: the messages, and a ledger of the calls that have no message."""

    messages: tuple[Message, ...]
    ledger: Mapping[str, ToolPart]


class LedgerCall(Protocol):
    """A call that has no message yet: a `ToolPart`, or an entry of a conversation's ledger."""

    @property
    def id(self) -> str:
        """The id of the part."""
        ...

    @property
    def call_id(self) -> str:
        """The id of the call."""
        ...

    @property
    def state(self) -> ToolState:
        """What became of the call so far."""
        ...


def fold(
    messages: Iterable[Message],
    ledger: Mapping[str, LedgerCall] = EMPTY,
    *,
    session_id: str | None = None,
) -> tuple[WithParts, ...]:
    """Fold messages into turns. `ledger` has the state of each call that is still open.

    That is what `unfold` returned, or the `ledger()` of a conversation: a call that runs is shown
    running.

    >>> from palaver.messages import user
    >>> fold([user("hi")])[0].parts[0].text
    'hi'
    """
    return tuple(_Folder(tuple(messages), ledger, session_id).turns())


def unfold(turns: Iterable[WithParts]) -> Unfolded:
    """Unfold turns into messages, and the open calls into a ledger.

    >>> from palaver.messages import user
    >>> message = user("hi")
    >>> unfold(fold([message])).messages == (message,)
    True
    """
    messages: list[Message] = []
    ledger: dict[str, ToolPart] = {}
    for turn in turns:
        own, open_calls = _unfold(turn)
        messages += own
        ledger.update(open_calls)
    return Unfolded(tuple(messages), ledger)


class _Folder:
    """One pass over the messages with the ledger."""

    def __init__(
        self, messages: Sequence[Message], ledger: Mapping[str, LedgerCall], session_id: str | None
    ) -> None:
        self.messages = messages
        self.ledger = {known.call_id: known for known in ledger.values()}
        self.by_part = {known.id: known for known in ledger.values()}
        self.session_id = session_id
        self.last_ask = {  # of a call id that is used twice, the ledger has the latest call
            part.call_id: index
            for index, message in enumerate(messages)
            for part in (message.parts if message.role == "assistant" else ())
            if isinstance(part, ToolCallPart)
        }

    def turns(self) -> Iterator[WithParts]:
        index = 0
        while index < len(self.messages):
            message = self.messages[index]
            results = self._results(index) if message.role == "assistant" else []
            yield self._turn(index, message, results)
            index += 1 + len(results)

    def _results(self, index: int) -> list[Message]:
        """Return the tool messages after an answer that match its calls one to one."""
        message = self.messages[index]
        waiting = _calls(message)
        taken = {part.id for part in message.parts}
        found: list[Message] = []
        while waiting and index + 1 + len(found) < len(self.messages):
            later = self.messages[index + 1 + len(found)]
            part = later.parts[0] if len(later.parts) == 1 else None
            if later.role != "tool" or not isinstance(part, ToolPart):
                break
            if part.call_id not in waiting or part.id in taken:
                break
            waiting.discard(part.call_id)
            taken.add(part.id)
            found.append(later)
        return found

    def _turn(self, index: int, message: Message, results: list[Message]) -> WithParts:
        keep: dict[str, Any] = {}
        session = uuid_for(self.session_id or _session(message))
        if isinstance(message.content, str):
            keep["content"] = "text"
            parts: tuple[Part, ...] = (_text_of(message, session),)
        else:
            parts = self._join(index, message, results, keep)
        if message.info is not None and not set(to_dict(message.info)) - {"role"}:
            keep["info"] = "empty"
        foreign = {own.id: noted for own in (message, *results) if (noted := _foreign(own))}
        if foreign:
            keep["foreign"] = foreign
        if session != session_of(parts) and "sessionID" not in foreign.get(message.id, EMPTY):
            keep["session"] = "given"
        return WithParts(_info(message, session, keep), parts)

    def _join(
        self, index: int, message: Message, results: list[Message], keep: dict[str, Any]
    ) -> tuple[Part, ...]:
        by_call = {_tool(result).call_id: _joined(message, result) for result in results}
        calls = _calls(message)
        taken = {part.id for part in (*message.parts, *by_call.values())}
        joined: list[Part] = []
        for part in message.parts:
            if not isinstance(part, ToolCallPart) or part.call_id not in calls:
                joined.append(part)
                continue
            state, source = by_call.get(part.call_id), "message"
            if state is None:
                state, source = self._open(index, part, taken, keep)
            joined.append(state)
            _note_call(part, state, source, keep)
        for result in results:
            _note_result(result, keep)
        arrived = {part.id: None for part in by_call.values()}
        if list(arrived) != [part.id for part in joined if part.id in arrived]:
            keep["order"] = list(arrived)
        return tuple(joined)

    def _open(
        self, index: int, call: ToolCallPart, taken: set[str], keep: dict[str, Any]
    ) -> tuple[ToolPart, str]:
        """Return the state of a call that has no message: the ledger's, else pending."""
        state = pending(call.input, call.raw)
        known = self.by_part.get(call.id)
        if known is None and self.last_ask[call.call_id] == index:
            known = self.ledger.get(call.call_id)
        if isinstance(known, ToolPart):
            if known.id in taken:  # the parts of a turn have different ids
                keep.setdefault("ids", {})[derive_id(call.id, "state")] = known.id
                known = replace(known, id=derive_id(call.id, "state"))
            taken.add(known.id)
            if known.message_id != uuid_for(self.messages[index].id):
                keep.setdefault("owners", {})[known.id] = known.message_id
            return known, "ledger"
        part = ToolPart(
            id=derive_id(call.id, "state"),
            session_id=call.session_id,
            message_id=call.message_id,
            call_id=call.call_id,
            tool=call.tool,
            state=state if known is None else known.state,
        )
        return part, "none" if known is None else "ledger"


def _calls(message: Message) -> set[str]:
    """Return the ids of an answer's calls; none if one occurs twice and results are ambiguous."""
    calls = [part.call_id for part in message.parts if isinstance(part, ToolCallPart)]
    clear = message.role == "assistant" and len(set(calls)) == len(calls)
    return set(calls) if clear else set()


def _tool(message: Message) -> ToolPart:
    part = message.parts[0]
    assert isinstance(part, ToolPart)  # noqa: S101 - _results let nothing else through
    return part


def _joined(message: Message, result: Message) -> ToolPart:
    """Return the part of a result as a part of the answer that made the call."""
    return replace(_tool(result), message_id=uuid_for(message.id))


def _session(message: Message) -> str:
    noted = _foreign(message).get("sessionID")
    return noted if isinstance(noted, str) and is_uuid(noted) else session_of(message.parts)


def session_of(parts: Iterable[Part]) -> str:
    """Return the session id of the first part that has one, or `NIL_ID`."""
    return next((part.session_id for part in parts if not isinstance(part, UnknownPart)), NIL_ID)


def _foreign(message: Message) -> Mapping[str, Any]:
    """Return what was different about a message in the program it came from."""
    return object_at(message.metadata, FOREIGN)


def object_at(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the object under a name, or an empty one: a turn from outside may hold anything."""
    found = value.get(name)
    return found if is_object(found) else EMPTY


def _text_of(message: Message, session: str) -> TextPart:
    return TextPart(
        id=derive_id(message.id, "text"),
        session_id=session,
        message_id=uuid_for(message.id),
        text=str(message.content),
    )


def _info(message: Message, session: str, keep: dict[str, Any]) -> TurnInfo:
    extension = asdict(message.info) if message.info else {}
    completed = extension.pop("completed", None)
    return TurnInfo(
        id=message.id,
        role=message.role,
        time=TurnTime(message.timestamp, completed),
        session_id=session if session != NIL_ID else None,
        metadata=_without_foreign(message),
        speaker=message.speaker,
        routing=message.routing,
        keep=keep,
        **extension,
    )


def _without_foreign(message: Message) -> Mapping[str, Any]:
    if not _foreign(message):
        return message.metadata
    return {key: value for key, value in message.metadata.items() if key != FOREIGN}


def _usual_call(state: ToolPart) -> ToolCallPart:
    """The call that a turn from elsewhere must have had."""
    said = state.state.raw if isinstance(state.state, ToolPending) else None
    return ToolCallPart(
        id=derive_id(state.id, "call"),
        session_id=state.session_id,
        message_id=state.message_id,
        call_id=state.call_id,
        tool=state.tool,
        input=state.state.input,
        raw=dump(state.state.input).decode() if said is None else said,
    )


def _usual_result(state: ToolPart) -> Message:
    """The tool message that a turn from elsewhere must have had."""
    time = state.state.time.end if isinstance(state.state, ToolCompleted | ToolError) else 0
    name = derive_id(state.id, "result")
    return Message("tool", (replace(state, message_id=name),), id=name, timestamp=time)


def _note_call(call: ToolCallPart, state: ToolPart, source: str, keep: dict[str, Any]) -> None:
    if call != _usual_call(state):
        keep.setdefault("calls", {})[state.id] = to_dict(call)
    if source != _usual_source(state):
        keep.setdefault("sources", {})[state.id] = source


def _usual_source(state: ToolPart) -> str:
    return "message" if isinstance(state.state, ToolCompleted | ToolError) else "ledger"


def _note_result(message: Message, keep: dict[str, Any]) -> None:
    state = _tool(message)
    bare = replace(message, metadata=_without_foreign(message))
    if bare != _usual_result(state):
        envelope = to_dict(replace(bare, content=""))
        del envelope["content"], envelope["role"]
        keep.setdefault("results", {})[state.id] = envelope


def _unfold(turn: WithParts) -> tuple[list[Message], dict[str, ToolPart]]:
    info, keep = turn.info, turn.info.keep
    if info.role != "assistant":
        return [_message(turn, turn.parts)], {}
    content: list[Part] = []
    results: dict[str, Message] = {}
    ledger: dict[str, ToolPart] = {}
    for part in turn.parts:
        if not isinstance(part, ToolPart):
            content.append(part)
            continue
        known = object_at(keep, "calls").get(part.id)
        content.append(_usual_call(part) if known is None else parse_part(known))
        source = object_at(keep, "sources").get(part.id, _usual_source(part))
        if source == "message":
            results[part.id] = _result(part, keep)
        elif source == "ledger":
            own = object_at(keep, "ids").get(part.id, part.id)
            owner = object_at(keep, "owners").get(part.id, part.message_id)
            if (own, owner) != (part.id, part.message_id):
                part = replace(part, id=own, message_id=owner)  # noqa: PLW2901 - the ledger's own
            ledger[part.call_id] = part
    first = keep.get("order", ())
    order = [name for name in first if name in results] if is_list(first) else []
    order += [name for name in results if name not in order]
    return [_message(turn, tuple(content)), *(results[name] for name in order)], ledger


def _result(state: ToolPart, keep: Mapping[str, Any]) -> Message:
    envelope = object_at(object_at(keep, "results"), state.id)
    message = _usual_result(state)
    if envelope:
        message = parse_message({"role": "tool", "content": "", **envelope})
    return _with_foreign(replace(message, content=(state,)), keep)


def tool_message_id(state: ToolPart, keep: Mapping[str, Any]) -> str:
    """Return the id of the tool message that a finished call of a turn unfolds into."""
    envelope = object_at(object_at(keep, "results"), state.id)
    return str(envelope.get("id")) if envelope else _usual_result(state).id


def _with_foreign(message: Message, keep: Mapping[str, Any]) -> Message:
    foreign = object_at(object_at(keep, "foreign"), message.id)
    if not foreign:
        return message
    return replace(message, metadata={**message.metadata, FOREIGN: foreign})


def _message(turn: WithParts, parts: tuple[Part, ...]) -> Message:
    info = turn.info
    content: str | tuple[Part, ...] = parts
    if info.keep.get("content") == "text" and all(isinstance(part, TextPart) for part in parts):
        content = "".join(part.text for part in parts if isinstance(part, TextPart))
    message = Message(
        info.role,
        content,
        id=info.id,
        timestamp=info.time.created,
        metadata=info.metadata,
        speaker=info.speaker,
        routing=info.routing,
        info=_extension(info),
    )
    return _with_foreign(message, info.keep)


def _extension(info: TurnInfo) -> UserInfo | AssistantInfo | None:
    names = _INFO_FIELDS.get(info.role, frozenset())
    fields = {name: getattr(info, name) for name in names}
    said = any(value is not None for name, value in fields.items() if name != "cost_computed")
    if info.role == "user" and (said or "info" in info.keep):
        return UserInfo(**fields)
    if info.role == "assistant" and (
        said or info.time.completed is not None or "info" in info.keep
    ):
        return AssistantInfo(**fields, completed=info.time.completed)
    return None
