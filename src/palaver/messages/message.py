"""A message: an immutable value with a role and either text or parts.

Everything in a history is a `Message`. It was checked when it was made and can't change, so every
message that exists is valid.
"""

from __future__ import annotations

import html
import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from palaver.errors import ValidationError
from palaver.messages.ids import new_id, now_ms, uuid_for
from palaver.messages.limits import (
    EMPTY,
    MAX_INT,
    MAX_NAME,
    check_fields,
    check_name,
    check_text,
    check_time,
    freeze_mapping,
    is_list,
    is_plain,
    kind_of,
    path_step,
    quote_value,
    shorten,
    unexpected_keyword,
)
from palaver.messages.part_base import (
    FilePart,
    FileSource,
    ResourceSource,
    SourceText,
    SymbolSource,
    json_name,
)
from palaver.messages.parts import (
    AgentPart,
    KnownPart,
    ModelRef,
    Part,
    PatchPart,
    ReasoningPart,
    RetryPart,
    StepFinishPart,
    StepStartPart,
    SubtaskPart,
    TextPart,
    TokenCounts,
    ToolCallPart,
    ToolPart,
    UnknownPart,
    check_figures,
    is_sendable,
)
from palaver.messages.tool_state import ToolCompleted, ToolError, ToolPending, ToolRunning

__all__ = [
    "MAX_PARTS",
    "MOST_ALONE",
    "ROLES",
    "AssistantInfo",
    "Message",
    "Role",
    "Routing",
    "Speaker",
    "Summary",
    "UserInfo",
    "WorkingPath",
    "as_parts",
    "assistant",
    "check_kind",
    "check_tools",
    "check_unique_ids",
    "fold_name",
    "message_rows",
    "own_parts",
    "show_html",
    "show_rich",
    "system",
    "user",
]

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
_PARTS: Final = frozenset((*get_args(KnownPart), UnknownPart))
MAX_PARTS: Final = 10_000
_NOT_IN_NAMES: Final = frozenset("[]\r\n")
_SPEAKERS: Final = ("human", "ai")
_SEPARATORS: Final = str.maketrans("", "", " -_")


def fold_name(name: str) -> str:
    """Return the same string for every spelling of a name: without case, spaces, `-` and `_`.

    >>> fold_name("Max_the-Great") == fold_name("max the great")
    True
    """
    return name.translate(_SEPARATORS).casefold() or name


class Speaker(
    Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True, rename="camel"
):
    """Who wrote a message, in a conversation of several: an id, a name, and human or AI."""

    role_id: str
    role_name: str
    type: Literal["human", "ai"]
    extra: Mapping[str, Any] = EMPTY

    def __post_init__(self) -> None:
        """Refuse brackets and line breaks, which could be taken for a marker or another line."""
        for name, value in (("roleId", self.role_id), ("roleName", self.role_name)):
            check_name(value, f"$.{name}")
            if not _NOT_IN_NAMES.isdisjoint(value):
                detail = "must not have brackets or line breaks"
                raise ValidationError(detail, path=f"$.{name}", rule="name")
        if self.type not in _SPEAKERS:
            detail = f"must be human or ai, not {quote_value(self.type)}"
            raise ValidationError(detail, path="$.type", rule="schema")
        force_setattr(self, "extra", freeze_mapping(self.extra, "$.extra"))

    @property
    def names(self) -> frozenset[str]:
        """Its id and its name, as `fold_name` spells them."""
        return frozenset((fold_name(self.role_id), fold_name(self.role_name)))


class Routing(
    Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True, rename="camel"
):
    """To whom a message is addressed; an empty list means everybody."""

    resolved_addressees: tuple[str, ...] = ()
    extra: Mapping[str, Any] = EMPTY

    def __post_init__(self) -> None:
        """Check the names; a list becomes a tuple."""
        if not is_list(self.resolved_addressees):
            detail = f"must be a list of names, not {kind_of(self.resolved_addressees)}"
            raise ValidationError(detail, path="$.resolvedAddressees", rule="schema")
        force_setattr(self, "resolved_addressees", tuple(self.resolved_addressees))
        for index, name in enumerate(self.resolved_addressees):
            check_name(name, f"$.resolvedAddressees[{index}]")
        force_setattr(self, "extra", freeze_mapping(self.extra, "$.extra"))


class Summary(Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """A summary of a range of the conversation; only compaction makes one."""

    title: str | None = None
    body: str | None = None
    diffs: tuple[Mapping[str, Any], ...] | None = None

    def __post_init__(self) -> None:
        """Check the texts and freeze the diffs."""
        check_fields(self)
        if self.diffs is not None:
            if not is_list(self.diffs):
                detail = f"must be a list of diffs, not {kind_of(self.diffs)}"
                raise ValidationError(detail, path="$.diffs", rule="schema")
            diffs = enumerate(self.diffs)
            frozen = tuple(freeze_mapping(diff, f"$.diffs[{index}]") for index, diff in diffs)
            force_setattr(self, "diffs", frozen)


class WorkingPath(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """The working directory of an agent, and the root of its project."""

    cwd: str
    root: str

    def __post_init__(self) -> None:
        """Check the texts."""
        check_fields(self)


class UserInfo(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag="user",
               tag_field="role", rename=json_name, forbid_unknown_fields=True):  # fmt: skip
    """Optional data of a user's message: the agent and the model it is for, and more."""

    agent: str | None = None
    model: ModelRef | None = None
    system: str | None = None
    tools: Mapping[str, bool] | None = None
    variant: str | None = None
    summary: Summary | None = None

    def __post_init__(self) -> None:
        """Check the fields and freeze the tools."""
        check_fields(self)
        if self.tools is not None:
            force_setattr(self, "tools", freeze_mapping(self.tools, "$.tools"))
            check_tools(self.tools)


def check_tools(tools: Mapping[str, bool] | None) -> None:
    """Raise `ValidationError` unless it is said of each tool by true or false whether it is on."""
    for name, enabled in (tools or EMPTY).items():
        check_kind(enabled, f"$.tools{path_step(name)}", bool)


class AssistantInfo(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True,
                    tag="assistant", tag_field="role", rename=json_name,
                    forbid_unknown_fields=True):  # fmt: skip
    """Optional data of an answer: its model, its cost and tokens, and when it was complete.

    `cost` is the provider's figure, or palaver's with `cost_computed`, or None if it is unknown; a
    0 never means "unknown". `completed` is set when the answer is complete.
    """

    agent: str | None = None
    mode: str | None = None
    model: ModelRef | None = None
    path: WorkingPath | None = None
    cost: float | None = None
    cost_computed: bool = False
    tokens: TokenCounts | None = None
    completed: int | None = None
    finish: str | None = None
    error: Mapping[str, Any] | None = None
    summary: bool | None = None

    def __post_init__(self) -> None:
        """Check the fields, the cost, the token counts and the time."""
        if not (
            (self.agent is None or is_plain(self.agent))
            and (self.mode is None or is_plain(self.mode))
            and (self.finish is None or is_plain(self.finish))
            and (self.model is None or type(self.model) is ModelRef)
            and (self.path is None or type(self.path) is WorkingPath)
            and self.summary is None
            and self.cost_computed is False
        ):
            check_fields(self)
        problem = check_figures(self.cost, self.tokens)
        if problem:
            detail, path, rule = problem
            raise ValidationError(detail, path=path, rule=rule)
        if self.cost is None and self.cost_computed:
            detail = "says the cost was computed, but there is none"
            raise ValidationError(detail, path="$.costComputed", rule="cost")
        if self.completed is not None:
            check_time(self.completed, "$.completed", "completion-time")
        if self.error is not None:
            force_setattr(self, "error", freeze_mapping(self.error, "$.error"))


class Message(Struct, frozen=True, gc=False, omit_defaults=True, rename=json_name,
              forbid_unknown_fields=True):  # fmt: skip
    """One message of a conversation.

    >>> message = Message("user", "How high is Mont Blanc?")
    >>> message.role, message.text
    ('user', 'How high is Mont Blanc?')
    >>> Message("robot", "beep")
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.role: must be system, user, assistant or tool, not 'robot' ...
    """

    role: Role
    content: str | tuple[Part, ...]
    id: str = field(default_factory=new_id)
    timestamp: int = field(default_factory=now_ms)
    metadata: Mapping[str, Any] = EMPTY
    speaker: Speaker | None = None
    routing: Routing | None = None
    info: UserInfo | AssistantInfo | None = None

    def __repr__(self) -> str:
        """Return the role, the beginning of the content, and the id."""
        shown = describe_content(self, 72)
        return f"Message({self.role!r}, {shown!r}, id={shorten(self.id, 72)!r})"

    def _repr_html_(self) -> str:
        """Return the message as a notebook shows it."""
        return show_html("", message_rows([self], MOST_ALONE))

    def __rich__(self) -> Any:  # noqa: ANN401 - a table of rich
        """Return the message as `rich` shows it."""
        return show_rich("", message_rows([self], MOST_ALONE))

    def __post_init__(self) -> None:
        """Check every field; a message of plain text and nothing else is checked fastest."""
        if self.role not in ROLES:
            detail = f"must be system, user, assistant or tool, not {quote_value(self.role)}"
            raise ValidationError(detail, path="$.role", rule="role")
        if isinstance(self.content, str):
            if not is_plain(self.content):
                check_text(self.content, "$.content")
        else:
            _check_parts(self)
        name, time = self.id, self.timestamp
        if not (type(name) is str and 0 < len(name) <= MAX_NAME and name.isprintable()):
            check_name(name, "$.id", "id")
        if not (type(time) is int and 0 <= time <= MAX_INT):
            check_time(time, "$.timestamp")
        if self.metadata is not EMPTY:
            force_setattr(self, "metadata", freeze_mapping(self.metadata, "$.metadata"))
        if not (self.info is None and self.speaker is None and self.routing is None):
            _check_extras(self)
        if not isinstance(self.content, str):
            owned = own_parts(self.content, name)
            if owned is not self.content:
                force_setattr(self, "content", owned)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts; none if the content is plain text."""
        return () if isinstance(self.content, str) else self.content

    @property
    def text(self) -> str:
        """The text of the message: all its text parts joined."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def sendable_parts(self) -> tuple[Part, ...]:
        """The parts that a model may see: all but ignored text; none if the content is plain text.

        Everything that goes to a model is written from here or from `sendable_text`.
        """
        parts = self.parts
        return parts if all(map(is_sendable, parts)) else tuple(filter(is_sendable, parts))

    @property
    def sendable_text(self) -> str:
        """The text that a model may see: all text parts joined, without those that are ignored."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.sendable_parts if isinstance(part, TextPart))

    @property
    def texts(self) -> Iterator[str]:
        """Every text of the content: text, reasoning, calls, results, the names of files.

        Queries and FILTER look in these.
        """
        yield self.text
        for part in self.parts:
            if type(part) is not TextPart:
                yield from _texts(part)

    @property
    def addressees(self) -> tuple[str, ...]:
        """To whom it is addressed; empty means everybody."""
        return self.routing.resolved_addressees if self.routing else ()


_SEARCHED: Final[Mapping[type, tuple[str, ...]]] = {
    ReasoningPart: ("text",),
    ToolCallPart: ("tool", "raw", "input"),
    ToolPart: ("tool", "state"),
    ToolPending: ("raw", "input"),
    ToolRunning: ("title", "input"),
    ToolCompleted: ("title", "input", "output", "attachments"),
    ToolError: ("input", "error"),
    FilePart: ("filename", "url", "source"),
    FileSource: ("path", "text"),
    SymbolSource: ("path", "name", "text"),
    ResourceSource: ("client_name", "uri", "text"),
    SourceText: ("value",),
    RetryPart: ("error",),
    SubtaskPart: ("prompt", "description", "agent", "command"),
    AgentPart: ("name", "source"),
    PatchPart: ("files",),
    UnknownPart: ("raw",),
}
"""The fields with content; what describes a step, and ids, are no content."""


def _texts(value: object) -> Iterator[str]:
    """Yield the texts and numbers in a part, or in a value of one."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield name
            yield from _texts(inner)
    elif is_list(value):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, int | float):
        yield str(value)
    else:
        for name in _SEARCHED.get(type(value), ()):
            inner = getattr(value, name)
            if name != "url" or not inner.startswith("data:"):  # that is the file itself
                yield from _texts(inner)


def _check_extras(message: Message) -> None:
    info = message.info
    if message.speaker is not None:
        check_kind(message.speaker, "$.speaker", Speaker)
    if message.routing is not None:
        check_kind(message.routing, "$.routing", Routing)
    if info is None:
        return
    check_kind(info, "$.info", UserInfo, AssistantInfo)
    if info.__struct_config__.tag != message.role:
        detail = f"is of another role than the message: {info.__struct_config__.tag}"
        raise ValidationError(detail, path="$.info.role", rule="info-role")


def check_kind(value: object, path: str, *kinds: type) -> None:
    """Raise `ValidationError` unless a value is of one of the kinds."""
    if not isinstance(value, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ValidationError(f"must be {names}, not {kind_of(value)}", path=path, rule="schema")


def as_parts(parts: object, path: str) -> tuple[Part, ...]:
    """Return parts as a tuple; raise `ValidationError` for anything else, or for too many."""
    if type(parts) is tuple:
        found = parts
    elif isinstance(parts, str | bytes | Mapping) or not isinstance(parts, Iterable):
        wanted = "text or a list of parts" if path == "$.content" else "a list of parts"
        detail = f"must be {wanted}, not {kind_of(parts)}"
        raise ValidationError(detail, path=path, rule="schema")
    else:
        found = tuple(parts)
    if len(found) > MAX_PARTS:
        detail = f"has {len(found):,} parts; {MAX_PARTS:,} is the most"
        raise ValidationError(detail, path=path, rule="size")
    if not _PARTS.issuperset(map(type, found)):
        index = next(i for i, part in enumerate(found) if type(part) not in _PARTS)
        detail = f"must be a part, not {type(found[index]).__name__}"
        raise ValidationError(detail, path=f"{path}[{index}]", rule="schema")
    return found


def _check_parts(message: Message) -> None:
    parts = as_parts(message.content, "$.content")
    if parts is not message.content:
        force_setattr(message, "content", parts)
    if ToolPart in map(type, parts):
        _check_tool_parts(message.role, parts)
    if len(parts) > 1 and len({part.id for part in parts}) < len(parts):
        check_unique_ids(parts, "$.content")


def own_parts(parts: tuple[Part, ...], message_id: str) -> tuple[Part, ...]:
    """Return the parts as those of a message: their `message_id` is its id, or stands for it.

    >>> from palaver.messages import new_id, text_part
    >>> owner = new_id()
    >>> own_parts((text_part(new_id(), new_id(), "hi"),), owner)[0].message_id == owner
    True
    """
    owner = uuid_for(message_id)
    for part in parts:
        if not isinstance(part, UnknownPart) and part.message_id != owner:
            break
    else:
        return parts
    return tuple(
        part if isinstance(part, UnknownPart) else replace(part, message_id=owner) for part in parts
    )


def check_unique_ids(parts: tuple[Part, ...], path: str) -> None:
    """Raise `ValidationError` if two parts have the same id; an unknown part may have none."""
    seen: set[str] = set()
    for index, part in enumerate(parts):
        if part.id and part.id in seen:
            detail = f"occurs twice in the message: {part.id[:80]!r}"
            raise ValidationError(detail, path=f"{path}[{index}].id", rule="duplicate-part-id")
        seen.add(part.id)


def _check_tool_parts(role: Role, parts: tuple[Part, ...]) -> None:
    for index, part in enumerate(parts):
        if isinstance(part, ToolPart):
            _check_tool_part(role, part, f"$.content[{index}]")


def _check_tool_part(role: Role, part: ToolPart, path: str) -> None:
    if role == "assistant":
        detail = "the result of a call belongs in a tool message; an answer holds tool-call parts"
        raise ValidationError(detail, path=path, rule="tool-part-in-answer")
    if part.state.status in ("pending", "running"):
        detail = f"is still {part.state.status}: a message is final, open calls are in the ledger"
        raise ValidationError(detail, path=f"{path}.state.status", rule="open-tool-call")


def user(content: str | Iterable[Part], **fields: Any) -> Message:  # noqa: ANN401 - Message's own fields
    """Make a user's message.

    >>> user("hello").role
    'user'
    """
    return _message("user", content, fields)


def assistant(content: str | Iterable[Part], **fields: Any) -> Message:  # noqa: ANN401 - as above
    """Make an assistant's message.

    >>> assistant("hello", info=AssistantInfo(finish="stop")).info.finish
    'stop'
    """
    return _message("assistant", content, fields)


def system(content: str | Iterable[Part], **fields: Any) -> Message:  # noqa: ANN401 - as above
    """Make a system message.

    >>> system("Be brief.").role
    'system'
    """
    return _message("system", content, fields)


_FIELDS: Final = ("id", "timestamp", "metadata", "speaker", "routing", "info")


def _message(role: Role, content: str | Iterable[Part], fields: dict[str, Any]) -> Message:
    for name in fields:
        if name not in _FIELDS:
            raise unexpected_keyword(role, name, _FIELDS)
    # the message makes a tuple of a list or any other iterable
    return Message(role, content, **fields)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# ── display ─────────────────────────────────────────────────────────────────────────────────────

MOST_ALONE: Final = 20_000
"""The characters of a text that is shown by itself."""
_MOST_OF_MANY: Final = 500
"""The characters of each message of a history."""
_ENDS: Final = 15
"""The messages that are shown at each end of a longer history."""
_STYLE: Final = "text-align:left;vertical-align:top;white-space:pre-wrap"

Row: TypeAlias = tuple[str, str]
"""A line of what is shown: who, or what, and the text."""


def describe_content(message: Message, most: int) -> str:
    """Return the content as text, cut to so many characters; other parts in brackets.

    Of a step's beginning and end nothing is shown, unless there is nothing else.
    """
    if isinstance(message.content, str):
        return shorten(message.content, most)
    said = [one for one in message.content if not isinstance(one, StepStartPart | StepFinishPart)]
    return describe_parts(said or message.content[-1:], most)


def describe_parts(parts: Iterable[Part], most: int) -> str:
    """Return parts as text, cut to so many characters; what is no text stands in brackets."""
    pieces: list[str] = []
    room = most
    for part in parts:
        piece = " ".join(shorten(text, room) for text in _describe_part(part) if text)
        pieces.append(piece if isinstance(part, TextPart) else f"{piece}]")
        room -= len(piece)
        if room <= 0:
            break
    return shorten(" ".join(pieces), most)


def _describe_part(part: Part) -> Iterator[str]:
    if isinstance(part, TextPart):
        yield part.text
        return
    yield f"[{part.type}"
    if isinstance(part, ToolCallPart):
        yield from (part.tool, part.raw)
    elif isinstance(part, ToolPart):
        state = part.state
        yield from (part.tool, state.status)
        if isinstance(state, ToolCompleted | ToolError):
            yield state.output if isinstance(state, ToolCompleted) else state.error
    elif isinstance(part, StepFinishPart):
        yield part.reason
    else:
        yield from _texts(part)


def message_rows(messages: Sequence[Message], most: int = _MOST_OF_MANY) -> Iterator[Row]:
    """Yield what is shown of messages: of many, those at both ends."""
    count = len(messages)
    left_out = count - 2 * _ENDS
    if left_out <= 0:
        yield from (_row(message, most) for message in messages)
        return
    yield from (_row(message, most) for message in messages[:_ENDS])
    yield "…", f"{left_out:,} more messages"
    yield from (_row(message, most) for message in messages[count - _ENDS :])


def _row(message: Message, most: int) -> Row:
    who = message.role if message.speaker is None else message.speaker.role_name
    text = describe_content(message, most)
    if isinstance(message.content, str) and len(message.content) > most:
        text += f" [{len(message.content) - most:,} more characters]"
    return who, text


def show_html(title: str, rows: Iterable[Row]) -> str:
    """Return rows as a table for a notebook; every text is escaped."""
    caption = f"<caption>{_escape(title)}</caption>" if title else ""
    cell = f'<{{0}} style="{_STYLE}">{{1}}</{{0}}>'
    lines = (
        f"<tr>{cell.format('th', _escape(who))}{cell.format('td', _escape(text))}</tr>"
        for who, text in rows
    )
    return f"<table>{caption}{''.join(lines)}</table>"


def show_rich(title: str, rows: Iterable[Row]) -> Any:  # noqa: ANN401 - a table of rich
    """Return rows as a table for `rich`, which called this and so is there; no text is markup."""
    text_class: Any = importlib.import_module("rich.text").Text
    table: Any = importlib.import_module("rich.table").Table(
        title=text_class(_plain(title)) if title else None, show_header=False, box=None
    )
    for who, text in rows:
        table.add_row(text_class(_plain(who), style="bold"), text_class(_plain(text)))
    return table


def _escape(text: str) -> str:
    return html.escape(_plain(text))


def _plain(text: str) -> str:
    """Return a text in which nothing controls a terminal."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in text
    )
