"""Parts: what a message is made of, with a factory and a type guard for each.

A `tool-call` part is a call that the model asked for and belongs in an assistant's message; a
`tool` part holds the state or the result of a call and belongs in a tool message. A part of a type
that palaver does not know becomes an `UnknownPart`, which is written back exactly as it was read.

A factory takes the ids of the session and the message, then the content; it gives the part an id
of its own, and takes the optional fields by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, get_args

import msgspec
from msgspec import Struct, field
from msgspec.structs import force_setattr

from palaver.errors import ValidationError
from palaver.messages.ids import new_id, now_ms
from palaver.messages.limits import (
    EMPTY,
    MAX_INT,
    MAX_NAME,
    MAX_TEXT,
    check_all,
    check_fields,
    check_ids,
    check_name,
    check_text,
    check_time,
    check_value,
    describe_number,
    freeze_field,
    freeze_mapping,
    is_list,
    is_object,
    is_plain,
    kind_of,
    refuse,
    replace_refused,
    shorten,
)
from palaver.messages.part_base import FilePart, PartBase, SourceText, json_name
from palaver.messages.tool_state import ToolState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import TypeIs

__all__ = [
    "FREEFORM",
    "AgentPart",
    "CacheCounts",
    "CallArguments",
    "CompactionPart",
    "Created",
    "KnownPart",
    "ModelRef",
    "Part",
    "PatchPart",
    "ReasoningPart",
    "RetryPart",
    "SnapshotPart",
    "StepFinishPart",
    "StepStartPart",
    "SubtaskPart",
    "TextPart",
    "TextTime",
    "TokenCounts",
    "ToolCallPart",
    "ToolPart",
    "UnknownPart",
    "agent_part",
    "compaction_part",
    "file_part",
    "is_agent_part",
    "is_compaction_part",
    "is_file_part",
    "is_patch_part",
    "is_reasoning_part",
    "is_retry_part",
    "is_snapshot_part",
    "is_step_finish_part",
    "is_step_start_part",
    "is_subtask_part",
    "is_text_part",
    "is_tool_call_part",
    "is_tool_part",
    "is_unknown_part",
    "patch_part",
    "read_arguments",
    "reasoning_part",
    "retry_part",
    "snapshot_part",
    "step_finish_part",
    "step_start_part",
    "subtask_part",
    "text_part",
    "tool_call_part",
    "tool_part",
]


_STATES: Final = frozenset(get_args(ToolState))


class TextTime(Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """When the writing of a text started and ended, in milliseconds."""

    start: int | None = None
    end: int | None = None


class CacheCounts(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Prompt tokens that were read from and written to the provider's cache."""

    read: int = 0
    write: int = 0


class TokenCounts(Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """Tokens of one model call. No token is in two of the five counts."""

    input: int
    output: int
    reasoning: int
    cache: CacheCounts
    total: int | None = None

    @property
    def prompt(self) -> int:
        """All tokens of the prompt: new ones and those read from or written to the cache."""
        return self.input + self.cache.read + self.cache.write

    @property
    def completion(self) -> int:
        """All tokens of the answer, including reasoning."""
        return self.output + self.reasoning


class ModelRef(
    Struct, frozen=True, gc=False, forbid_unknown_fields=True, rename=json_name, omit_defaults=True
):
    """A model, named by its provider and its own id."""

    provider_id: str
    model_id: str
    variant: str | None = None

    def __post_init__(self) -> None:
        """Check the names; plain ones need no further check."""
        if not (is_plain(self.provider_id) and is_plain(self.model_id) and self.variant is None):
            check_fields(self)


class Created(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """When something was created, in milliseconds."""

    created: int


class TextPart(PartBase, frozen=True, kw_only=True, tag="text"):
    """Text. `ignored` text is not sent to a model (`is_sendable`); `synthetic` was generated."""

    text: str
    synthetic: bool | None = None
    ignored: bool | None = None
    time: TextTime | None = None
    metadata: Mapping[str, Any] = EMPTY

    def __post_init__(self) -> None:
        """Check the ids, the text, the metadata and the time."""
        check_ids(self)
        text = self.text
        if type(text) is not str or not text.isascii() or "\0" in text or len(text) > MAX_TEXT:
            check_value(self, check_text, text, "$.text")
        if self.metadata is not EMPTY:
            freeze_field(self, "metadata", self.metadata)
        if self.time is not None:
            _check_span(self, self.time)
        if self.synthetic is not None or self.ignored is not None:
            check_all(self)


def is_sendable(part: object) -> bool:
    """Tell whether a model may see a part: ignored text is stored and for people only."""
    return not (isinstance(part, TextPart) and part.ignored)


class ReasoningPart(PartBase, frozen=True, kw_only=True, tag="reasoning"):
    """The model's reasoning; provider data such as signatures is in `metadata`."""

    text: str
    time: TextTime
    metadata: Mapping[str, Any] = EMPTY

    def __post_init__(self) -> None:
        """Check the ids, the text, and that there is a start time."""
        check_ids(self)
        if not is_plain(self.text):
            check_value(self, check_text, self.text, "$.text")
        if self.metadata is not EMPTY:
            freeze_field(self, "metadata", self.metadata)
        _check_span(self, self.time)
        if self.time.start is None:
            refuse(self, "is missing", "$.time.start", "reasoning-start-time")


FREEFORM: Final = "freeform_input"
"""The key under which a call's free text stands where only an object can."""


class ToolCallPart(PartBase, frozen=True, kw_only=True, tag="tool-call"):
    """A tool call that the model asked for. `raw` is its input exactly as the model wrote it.

    A model may write something else than a JSON object: a patch as free text, or arguments that
    are damaged. Then `input` is empty, and `arguments` has the text.
    """

    call_id: str
    tool: str
    input: Mapping[str, Any]
    raw: str
    metadata: Mapping[str, Any] = EMPTY

    def __post_init__(self) -> None:
        """Check the ids, the names and the input."""
        check_ids(self)
        _check_call(self)
        if not is_plain(self.raw):
            check_value(self, check_text, self.raw, "$.raw")
        freeze_field(self, "input", self.input)
        if self.metadata is not EMPTY:
            freeze_field(self, "metadata", self.metadata)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments as an object: `input`, or free text under the key `freeform_input`."""
        if self.input or not self.raw.strip():
            return self.input
        found = _decode(self.raw)
        if not is_object(found):
            return {FREEFORM: self.raw}
        return found or self.input  # else it is too deep, or too large, to be stored


class ToolPart(PartBase, frozen=True, kw_only=True, tag="tool"):
    """The state of a tool call, which includes its result."""

    call_id: str
    tool: str
    state: ToolState
    metadata: Mapping[str, Any] = EMPTY

    def __post_init__(self) -> None:
        """Check the ids and the names; the state has checked itself."""
        check_ids(self)
        _check_call(self)
        if type(self.state) not in _STATES:
            refuse(self, "must be a tool state", "$.state", "schema")
        if self.metadata is not EMPTY:
            freeze_field(self, "metadata", self.metadata)


class StepStartPart(PartBase, frozen=True, kw_only=True, tag="step-start"):
    """The start of a model call."""

    snapshot: str | None = None

    def __post_init__(self) -> None:
        """Check the ids, and the snapshot where there is one."""
        if self.snapshot is None:
            check_ids(self)
        else:
            check_all(self)


class StepFinishPart(PartBase, frozen=True, kw_only=True, tag="step-finish"):
    """The end of a model call: its reason, tokens and cost. An unknown `cost` is None."""

    reason: str
    tokens: TokenCounts
    cost: float | None = None
    cost_computed: bool = False
    snapshot: str | None = None

    def __post_init__(self) -> None:
        """Check the ids, the reason, the cost and the token counts."""
        check_ids(self)
        if self.snapshot is not None or not is_plain(self.reason):
            check_all(self)
        problem = check_figures(self.cost, self.tokens)
        if problem:
            refuse(self, *problem)


class CompactionPart(PartBase, frozen=True, kw_only=True, tag="compaction"):
    """A mark where the conversation was compacted."""

    auto: bool
    overflow: bool | None = None
    tail_start_id: str | None = field(default=None, name="tail_start_id")


class RetryPart(PartBase, frozen=True, kw_only=True, tag="retry"):
    """A model call failed and was tried again."""

    attempt: int
    error: Mapping[str, Any]
    time: Created

    def __post_init__(self) -> None:
        """Check the ids, the error and the time."""
        check_all(self)
        freeze_field(self, "error", self.error)
        check_value(self, check_time, self.time.created, "$.time.created")


class SubtaskPart(PartBase, frozen=True, kw_only=True, tag="subtask"):
    """A task given to another agent."""

    prompt: str
    description: str
    agent: str
    model: ModelRef | None = None
    command: str | None = None


class AgentPart(PartBase, frozen=True, kw_only=True, tag="agent"):
    """An agent that the text mentions by name."""

    name: str
    source: SourceText | None = None


class PatchPart(PartBase, frozen=True, kw_only=True, tag="patch"):
    """A change of files: the hash of the change and the names of the files."""

    hash: str
    files: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check the ids and the names; a list of files becomes a tuple."""
        check_all(self)
        if not is_list(self.files):
            detail = f"must be a list of names, not {kind_of(self.files)}"
            refuse(self, detail, "$.files", "schema")
        force_setattr(self, "files", tuple(self.files))
        for index, name in enumerate(self.files):
            check_value(self, check_text, name, f"$.files[{index}]")


class SnapshotPart(PartBase, frozen=True, kw_only=True, tag="snapshot"):
    """A snapshot of the working folder, by its name in the tool that made it."""

    snapshot: str


_LONGEST_SHOWN: Final = 200
"""Characters of a type that an error shows."""


def _is_readable(name: str) -> bool:
    return 0 < len(name) <= _LONGEST_SHOWN and name.isprintable()


class UnknownPart:
    """A part of a type that palaver does not know; it is written back as it was read.

    >>> part = UnknownPart({"type": "hologram", "id": "h1", "beam": [1, 2]})
    >>> part.type, part.raw["beam"]
    ('hologram', [1, 2])
    """

    __slots__ = ("_raw",)

    def __init__(self, raw: Mapping[str, Any]) -> None:
        """Take the JSON object. It needs a `type` and must be within the limits."""
        given = raw.get("type") if is_object(raw) else None
        name = given if isinstance(given, str) and _is_readable(given) else "unknown"
        try:
            frozen = freeze_mapping(raw)
        except ValidationError as error:
            refuse(name, error.detail, error.path, error.rule)
        kind = frozen.get("type")
        if not isinstance(kind, str):
            detail = f"must be text, not {kind_of(kind)}" if "type" in frozen else "is missing"
            refuse(name, detail, "$.type", "part-type")
        if not kind:
            refuse(name, "must not be empty", "$.type", "part-type")
        if kind in _KNOWN_TYPES:
            refuse(name, f"is the type of a known part: {kind!r}", "$.type", "part-type")
        self._raw = frozen

    @property
    def raw(self) -> Mapping[str, Any]:
        """The part's JSON."""
        return self._raw

    @property
    def type(self) -> str:
        """The type in the JSON."""
        return str(self._raw["type"])

    @property
    def id(self) -> str:
        """The id in the JSON, or an empty text."""
        found = self._raw.get("id")
        return found if isinstance(found, str) else ""

    def __eq__(self, other: object) -> bool:
        """Equal when all of it is equal."""
        return isinstance(other, UnknownPart) and self._raw == other._raw

    def __hash__(self) -> int:
        """Hash the type and the id."""
        return hash((self.type, self.id))

    def __repr__(self) -> str:
        """Show the JSON."""
        return shorten(f"UnknownPart({dict(self._raw)!r})")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as its JSON."""
        return UnknownPart, (dict(self._raw),)


KnownPart: TypeAlias = (
    TextPart | ReasoningPart | ToolCallPart | ToolPart | StepStartPart | StepFinishPart | FilePart
    | CompactionPart | RetryPart | SubtaskPart | AgentPart | PatchPart | SnapshotPart
)  # fmt: skip
_KNOWN_TYPES: Final = frozenset(str(one.__struct_config__.tag) for one in get_args(KnownPart))
if TYPE_CHECKING:
    Part: TypeAlias = KnownPart | UnknownPart
else:
    # msgspec decodes the known ones; `codec` reads the unknown ones
    Part: Final = KnownPart


def text_part(session_id: str, message_id: str, text: str, **fields: Any) -> TextPart:  # noqa: ANN401 - the part's own fields, here and below
    """Make a text part.

    >>> from palaver.messages import new_id
    >>> text_part(new_id(), new_id(), "hello").text
    'hello'
    """
    return TextPart(id=new_id(), session_id=session_id, message_id=message_id, text=text, **fields)


def reasoning_part(
    session_id: str,
    message_id: str,
    text: str,
    *,
    start: int | None = None,
    end: int | None = None,
    **fields: Any,  # noqa: ANN401
) -> ReasoningPart:
    """Make a reasoning part. It starts now unless `start` is given.

    >>> from palaver.messages import new_id
    >>> reasoning_part(new_id(), new_id(), "hm", start=1).time.start
    1
    """
    time = TextTime(now_ms() if start is None else start, end)
    return ReasoningPart(
        id=new_id(), session_id=session_id, message_id=message_id, text=text, time=time, **fields
    )


def tool_call_part(
    session_id: str,
    message_id: str,
    tool: str,
    input: Mapping[str, Any],  # noqa: A002 - the design's name
    *,
    call_id: str | None = None,
    raw: str | None = None,
    **fields: Any,  # noqa: ANN401
) -> ToolCallPart:
    """Make a tool-call part. `raw` is the input as JSON unless given as the model wrote it.

    >>> from palaver.messages import new_id
    >>> tool_call_part(new_id(), new_id(), "search", {"q": "tea"}).raw
    '{"q":"tea"}'
    """
    part_id = new_id()
    return ToolCallPart(
        id=part_id,
        session_id=session_id,
        message_id=message_id,
        call_id=part_id if call_id is None else call_id,
        tool=tool,
        input=input,
        raw=_as_json(input) if raw is None else raw,
        **fields,
    )


class CallArguments(NamedTuple):
    """What a call was given: `input` and `raw` of its part, and whether free text was wrapped."""

    input: Mapping[str, Any]
    raw: str
    wrapped: bool = False


def read_arguments(given: object) -> CallArguments:
    """Read a call's arguments: an object, or the text that the model wrote.

    Text that is no JSON object leaves `input` empty. An object that only wraps free text, as
    `ToolCallPart.arguments` does, gives that text back.

    >>> read_arguments('{"q": "tea"}')
    CallArguments(input={'q': 'tea'}, raw='{"q": "tea"}', wrapped=False)
    >>> read_arguments({"freeform_input": "*** Begin Patch"})
    CallArguments(input={}, raw='*** Begin Patch', wrapped=True)
    """
    if given is None:
        return CallArguments(EMPTY, "")
    value = _decode(given) if isinstance(given, str) else given
    text = value.get(FREEFORM) if is_object(value) and len(value) == 1 else None
    if isinstance(text, str):
        return CallArguments(_storable_object(_decode(text)), text, wrapped=True)
    if isinstance(given, str):
        return CallArguments(_storable_object(value), given)
    return CallArguments(value if is_object(value) else EMPTY, _as_json(value))


def _decode(raw: str) -> object:
    """Return the value of a JSON text; None where it is none."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None


def _storable_object(value: object) -> Mapping[str, Any]:
    """Return an object as a part can store it; an empty one where it can't."""
    try:
        return freeze_mapping(replace_refused(value)) if is_object(value) else EMPTY
    except ValidationError:
        return EMPTY


def tool_part(
    session_id: str,
    message_id: str,
    call_id: str,
    tool: str,
    state: ToolState,
    **fields: Any,  # noqa: ANN401
) -> ToolPart:
    """Make a tool part.

    >>> from palaver.messages import new_id, pending
    >>> tool_part(new_id(), new_id(), "call_1", "ls", pending({}, "")).state.status
    'pending'
    """
    return ToolPart(
        id=new_id(),
        session_id=session_id,
        message_id=message_id,
        call_id=call_id,
        tool=tool,
        state=state,
        **fields,
    )


def step_start_part(
    session_id: str, message_id: str, *, snapshot: str | None = None
) -> StepStartPart:
    """Make a step-start part.

    >>> from palaver.messages import new_id
    >>> step_start_part(new_id(), new_id()).type
    'step-start'
    """
    return StepStartPart(
        id=new_id(), session_id=session_id, message_id=message_id, snapshot=snapshot
    )


def step_finish_part(
    session_id: str,
    message_id: str,
    reason: str,
    cost: float | None,
    tokens: TokenCounts,
    **fields: Any,  # noqa: ANN401
) -> StepFinishPart:
    """Make a step-finish part. A cost of None means that it is unknown.

    >>> from palaver.messages import CacheCounts, TokenCounts, new_id
    >>> tokens = TokenCounts(9, 3, 0, CacheCounts())
    >>> step_finish_part(new_id(), new_id(), "stop", None, tokens).reason
    'stop'
    """
    return StepFinishPart(
        id=new_id(),
        session_id=session_id,
        message_id=message_id,
        reason=reason,
        cost=cost,
        tokens=tokens,
        **fields,
    )


def file_part(session_id: str, message_id: str, mime: str, url: str, **fields: Any) -> FilePart:  # noqa: ANN401
    """Make a file part.

    >>> from palaver.messages import new_id
    >>> file_part(new_id(), new_id(), "image/png", "data:image/png;base64,").mime
    'image/png'
    """
    return FilePart(
        id=new_id(), session_id=session_id, message_id=message_id, mime=mime, url=url, **fields
    )


def compaction_part(
    session_id: str,
    message_id: str,
    *,
    auto: bool,
    **fields: Any,  # noqa: ANN401
) -> CompactionPart:
    """Make a compaction part.

    >>> from palaver.messages import new_id
    >>> compaction_part(new_id(), new_id(), auto=True).auto
    True
    """
    return CompactionPart(
        id=new_id(), session_id=session_id, message_id=message_id, auto=auto, **fields
    )


def retry_part(
    session_id: str,
    message_id: str,
    attempt: int,
    error: Mapping[str, Any],
    *,
    at: int | None = None,
) -> RetryPart:
    """Make a retry part.

    >>> from palaver.messages import new_id
    >>> retry_part(new_id(), new_id(), 2, {"name": "APIError"}).attempt
    2
    """
    return RetryPart(
        id=new_id(),
        session_id=session_id,
        message_id=message_id,
        attempt=attempt,
        error=error,
        time=Created(now_ms() if at is None else at),
    )


def subtask_part(
    session_id: str,
    message_id: str,
    prompt: str,
    description: str,
    agent: str,
    **fields: Any,  # noqa: ANN401
) -> SubtaskPart:
    """Make a subtask part.

    >>> from palaver.messages import new_id
    >>> subtask_part(new_id(), new_id(), "count them", "count", "counter").agent
    'counter'
    """
    return SubtaskPart(
        id=new_id(),
        session_id=session_id,
        message_id=message_id,
        prompt=prompt,
        description=description,
        agent=agent,
        **fields,
    )


def agent_part(session_id: str, message_id: str, name: str, **fields: Any) -> AgentPart:  # noqa: ANN401
    """Make an agent part.

    >>> from palaver.messages import new_id
    >>> agent_part(new_id(), new_id(), "reviewer").name
    'reviewer'
    """
    return AgentPart(id=new_id(), session_id=session_id, message_id=message_id, name=name, **fields)


def patch_part(session_id: str, message_id: str, hash: str, files: Iterable[str]) -> PatchPart:  # noqa: A002 - the design's name
    """Make a patch part.

    >>> from palaver.messages import new_id
    >>> patch_part(new_id(), new_id(), "9f2c", ["a.py"]).files
    ('a.py',)
    """
    return PatchPart(
        id=new_id(),
        session_id=session_id,
        message_id=message_id,
        hash=hash,
        files=tuple(files),
    )


def snapshot_part(session_id: str, message_id: str, snapshot: str) -> SnapshotPart:
    """Make a snapshot part.

    >>> from palaver.messages import new_id
    >>> snapshot_part(new_id(), new_id(), "9f2c").snapshot
    '9f2c'
    """
    return SnapshotPart(
        id=new_id(), session_id=session_id, message_id=message_id, snapshot=snapshot
    )


def is_text_part(part: object) -> TypeIs[TextPart]:
    """Return whether it is a text part.

    >>> is_text_part("just text")
    False
    """
    return isinstance(part, TextPart)


def is_reasoning_part(part: object) -> TypeIs[ReasoningPart]:
    """Return whether it is a reasoning part."""
    return isinstance(part, ReasoningPart)


def is_tool_call_part(part: object) -> TypeIs[ToolCallPart]:
    """Return whether it is a tool-call part."""
    return isinstance(part, ToolCallPart)


def is_tool_part(part: object) -> TypeIs[ToolPart]:
    """Return whether it is a tool part, which holds the state of a call."""
    return isinstance(part, ToolPart)


def is_step_start_part(part: object) -> TypeIs[StepStartPart]:
    """Return whether it marks the start of a model call."""
    return isinstance(part, StepStartPart)


def is_step_finish_part(part: object) -> TypeIs[StepFinishPart]:
    """Return whether it marks the end of a model call."""
    return isinstance(part, StepFinishPart)


def is_file_part(part: object) -> TypeIs[FilePart]:
    """Return whether it is a file."""
    return isinstance(part, FilePart)


def is_compaction_part(part: object) -> TypeIs[CompactionPart]:
    """Return whether it marks a compaction."""
    return isinstance(part, CompactionPart)


def is_retry_part(part: object) -> TypeIs[RetryPart]:
    """Return whether it records a retry."""
    return isinstance(part, RetryPart)


def is_subtask_part(part: object) -> TypeIs[SubtaskPart]:
    """Return whether it is a task for another agent."""
    return isinstance(part, SubtaskPart)


def is_agent_part(part: object) -> TypeIs[AgentPart]:
    """Return whether it names an agent."""
    return isinstance(part, AgentPart)


def is_patch_part(part: object) -> TypeIs[PatchPart]:
    """Return whether it records changed files."""
    return isinstance(part, PatchPart)


def is_snapshot_part(part: object) -> TypeIs[SnapshotPart]:
    """Return whether it names a snapshot of the working folder."""
    return isinstance(part, SnapshotPart)


def is_unknown_part(part: object) -> TypeIs[UnknownPart]:
    """Return whether it is of a type that palaver does not know."""
    return isinstance(part, UnknownPart)


_COUNTS: Final = ("input", "output", "reasoning", "cache.read", "cache.write", "total")
_NUMBERS: Final = frozenset((float, int))


def check_figures(cost: float | None, tokens: TokenCounts | None) -> tuple[str, str, str] | None:
    """Return the first problem of a cost and token counts as detail, path and rule, or None."""
    if cost is not None and not (type(cost) in _NUMBERS and 0 <= cost <= MAX_INT):
        return f"must be a price, not {describe_number(cost)}", "$.cost", "cost"
    if tokens is None:
        return None
    if type(tokens) is not TokenCounts or type(tokens.cache) is not CacheCounts:
        return "must be TokenCounts, with CacheCounts inside", "$.tokens", "token-counts"
    cache, total = tokens.cache, tokens.total
    if total is None and _are_counts(
        tokens.input, tokens.output, tokens.reasoning, cache.read, cache.write
    ):
        return None
    counts = (tokens.input, tokens.output, tokens.reasoning, cache.read, cache.write)
    for name, count in zip(_COUNTS, counts if total is None else (*counts, total), strict=False):
        if type(count) is not int or not 0 <= count <= MAX_INT:
            detail = f"must be a count of tokens, not {describe_number(count)}"
            return detail, f"$.tokens.{name}", "token-counts"
    return None


def _are_counts(a: Any, b: Any, c: Any, d: Any, e: Any) -> bool:  # noqa: ANN401 - to be seen
    # in one expression, since every answer has them
    return (
        type(a) is type(b) is type(c) is type(d) is type(e) is int
        and 0 <= a <= MAX_INT
        and 0 <= b <= MAX_INT
        and 0 <= c <= MAX_INT
        and 0 <= d <= MAX_INT
        and 0 <= e <= MAX_INT
    )


def _check_call(part: ToolCallPart | ToolPart) -> None:
    call_id, tool = part.call_id, part.tool
    if (
        type(call_id) is type(tool) is str
        and 0 < len(call_id) <= MAX_NAME
        and 0 < len(tool) <= MAX_NAME
        and call_id.isprintable()
        and tool.isprintable()
    ):
        return
    for name, value in (("callID", part.call_id), ("tool", part.tool)):
        if not (type(value) is str and 0 < len(value) <= MAX_NAME and value.isprintable()):
            check_value(part, check_name, value, f"$.{name}")


def _check_span(part: TextPart | ReasoningPart, time: object) -> None:
    if not isinstance(time, TextTime):
        refuse(part, f"must be a TextTime, not {kind_of(time)}", "$.time", "schema")
    start, end = time.start, time.end
    if end is None and type(start) is int and 0 <= start <= MAX_INT:
        return  # the common case without detours
    if start is not None:
        check_value(part, check_time, start, "$.time.start")
    if end is not None:
        check_value(part, check_time, end, "$.time.end")
        if start is not None and end < start:
            detail = f"must not be before the start: {end} < {start}"
            refuse(part, detail, "$.time.end", "time-order")


def _as_json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return ""  # not JSON: the part refuses it with a path
