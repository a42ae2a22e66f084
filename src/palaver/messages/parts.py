"""Parts: what a message is made of.

`tool-call` is what the model asked for and stands in an assistant's message; `tool` is what became
of it and stands in a tool message. A part of a type that palaver does not know is kept whole as an
`UnknownPart` and written back as it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

from msgspec import Struct, field
from msgspec.structs import force_setattr

from palaver.errors import PartValidationError
from palaver.messages.base import (
    PartBase,
    check_all,
    check_ids,
    checked,
    freeze_field,
    refuse,
)
from palaver.messages.fields import check_fields
from palaver.messages.files import FilePart, SourceText
from palaver.messages.gate import (
    EMPTY,
    MAX_INT,
    MAX_NAME,
    MAX_TEXT,
    check_name,
    check_text,
    check_time,
    freeze_mapping,
    is_list,
    is_plain,
    kind_of,
    number_or_kind,
)
from palaver.messages.naming import json_name
from palaver.messages.toolstate import ToolState

__all__ = [
    "AgentPart",
    "CacheCounts",
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
]


_STATES: Final = frozenset(get_args(ToolState))


class TextTime(Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """When a text began and ended."""

    start: int | None = None
    end: int | None = None


class CacheCounts(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Prompt tokens that the provider's cache served (read) and stored (write)."""

    read: int = 0
    write: int = 0


class TokenCounts(Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """Tokens of one model call; the five counts are disjoint (BR-13)."""

    input: int
    output: int
    reasoning: int
    cache: CacheCounts
    total: int | None = None

    @property
    def prompt(self) -> int:
        """All that went in: fresh, and read from or written to the cache."""
        return self.input + self.cache.read + self.cache.write

    @property
    def completion(self) -> int:
        """All that came out, reasoning included."""
        return self.output + self.reasoning


class ModelRef(
    Struct, frozen=True, gc=False, forbid_unknown_fields=True, rename=json_name, omit_defaults=True
):
    """A model, by its provider's name and its own."""

    provider_id: str
    model_id: str
    variant: str | None = None

    def __post_init__(self) -> None:
        """Check the names; plain ones are the quick way through."""
        if not (is_plain(self.provider_id) and is_plain(self.model_id) and self.variant is None):
            check_fields(self)


class Created(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """When something was made."""

    created: int


class TextPart(PartBase, frozen=True, kw_only=True, tag="text"):
    """Text. `ignored` text is kept but not sent to a model; `synthetic` text was not typed."""

    text: str
    synthetic: bool | None = None
    ignored: bool | None = None
    time: TextTime | None = None
    metadata: Mapping[str, Any] = EMPTY

    def __post_init__(self) -> None:
        """Check the base and the text."""
        check_ids(self)
        text = self.text
        if type(text) is not str or not text.isascii() or "\0" in text or len(text) > MAX_TEXT:
            checked(self, check_text, text, "$.text")
        if self.metadata is not EMPTY:
            freeze_field(self, "metadata", self.metadata)
        if self.time is not None:
            _check_span(self, self.time)
        if self.synthetic is not None or self.ignored is not None:
            check_all(self)


class ReasoningPart(PartBase, frozen=True, kw_only=True, tag="reasoning"):
    """What the model thought; signatures and the like are in its metadata."""

    text: str
    time: TextTime
    metadata: Mapping[str, Any] = EMPTY

    def __post_init__(self) -> None:
        """Check the base, the text, and that a start is there."""
        check_ids(self)
        if not is_plain(self.text):
            checked(self, check_text, self.text, "$.text")
        if self.metadata is not EMPTY:
            freeze_field(self, "metadata", self.metadata)
        _check_span(self, self.time)
        if self.time.start is None:
            refuse(self, "is missing", "$.time.start", "PT-01")


class ToolCallPart(PartBase, frozen=True, kw_only=True, tag="tool-call"):
    """A tool call the model asked for; `raw` is what it wrote, to the letter."""

    call_id: str
    tool: str
    input: Mapping[str, Any]
    raw: str
    metadata: Mapping[str, Any] = EMPTY

    def __post_init__(self) -> None:
        """Check the base, the names, the input."""
        check_ids(self)
        _check_call(self)
        if not is_plain(self.raw):
            checked(self, check_text, self.raw, "$.raw")
        freeze_field(self, "input", self.input)
        if self.metadata is not EMPTY:
            freeze_field(self, "metadata", self.metadata)


class ToolPart(PartBase, frozen=True, kw_only=True, tag="tool"):
    """What became of a tool call: its state."""

    call_id: str
    tool: str
    state: ToolState
    metadata: Mapping[str, Any] = EMPTY

    def __post_init__(self) -> None:
        """Check the base and the names; the state has checked itself."""
        check_ids(self)
        _check_call(self)
        if type(self.state) not in _STATES:
            refuse(self, "must be a tool state", "$.state", "schema")
        if self.metadata is not EMPTY:
            freeze_field(self, "metadata", self.metadata)


class StepStartPart(PartBase, frozen=True, kw_only=True, tag="step-start"):
    """A model call begins."""

    snapshot: str | None = None

    def __post_init__(self) -> None:
        """Check the base; most have no more."""
        if self.snapshot is None:
            check_ids(self)
        else:
            check_all(self)


class StepFinishPart(PartBase, frozen=True, kw_only=True, tag="step-finish"):
    """A model call is over: why, and what it used. `cost` is None where nobody knows it."""

    reason: str
    tokens: TokenCounts
    cost: float | None = None
    cost_computed: bool = False
    snapshot: str | None = None

    def __post_init__(self) -> None:
        """Check the base, the reason and the figures; a plain reason is the quick way through."""
        check_ids(self)
        if self.snapshot is not None or not is_plain(self.reason):
            check_all(self)
        problem = check_figures(self.cost, self.tokens)
        if problem:
            refuse(self, *problem)


class CompactionPart(PartBase, frozen=True, kw_only=True, tag="compaction"):
    """Here the conversation was compacted."""

    auto: bool
    overflow: bool | None = None
    tail_start_id: str | None = field(default=None, name="tail_start_id")


class RetryPart(PartBase, frozen=True, kw_only=True, tag="retry"):
    """A model call failed and was tried again."""

    attempt: int
    error: Mapping[str, Any]
    time: Created

    def __post_init__(self) -> None:
        """Check the base and the error."""
        check_all(self)
        freeze_field(self, "error", self.error)
        checked(self, check_time, self.time.created, "$.time.created")


class SubtaskPart(PartBase, frozen=True, kw_only=True, tag="subtask"):
    """A task handed to another agent."""

    prompt: str
    description: str
    agent: str
    model: ModelRef | None = None
    command: str | None = None


class AgentPart(PartBase, frozen=True, kw_only=True, tag="agent"):
    """An agent that the text calls by name."""

    name: str
    source: SourceText | None = None


class PatchPart(PartBase, frozen=True, kw_only=True, tag="patch"):
    """Files that changed, under the hash of the change."""

    hash: str
    files: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check the base; a list of files becomes a tuple."""
        check_all(self)
        if not is_list(self.files):
            detail = f"must be a list of names, not {kind_of(self.files)}"
            refuse(self, detail, "$.files", "schema")
        force_setattr(self, "files", tuple(self.files))
        for index, name in enumerate(self.files):
            checked(self, check_text, name, f"$.files[{index}]")


class SnapshotPart(PartBase, frozen=True, kw_only=True, tag="snapshot"):
    """A snapshot of the working folder, by its name in whatever keeps it."""

    snapshot: str


class UnknownPart:
    """A part of a type that palaver does not know: kept whole, written back as it came.

    >>> part = UnknownPart({"type": "hologram", "id": "h1", "beam": [1, 2]})
    >>> part.type, part.raw["beam"]
    ('hologram', [1, 2])
    """

    __slots__ = ("_raw",)

    def __init__(self, raw: Mapping[str, Any]) -> None:
        """Take the JSON object whole; only the gate's rules apply to it."""
        frozen = freeze_mapping(raw)
        kind = frozen.get("type")
        if not isinstance(kind, str):
            detail = f"must be text, not {kind_of(kind)}" if "type" in frozen else "is missing"
            raise PartValidationError(detail, path="$.type", rule="BR-03", part="unknown")
        self._raw = frozen

    @property
    def raw(self) -> Mapping[str, Any]:
        """The part's JSON."""
        return self._raw

    @property
    def type(self) -> str:
        """The type it says it is."""
        return str(self._raw["type"])

    @property
    def id(self) -> str:
        """Its id, or nothing."""
        found = self._raw.get("id")
        return found if isinstance(found, str) else ""

    def __eq__(self, other: object) -> bool:
        """Equal when all of it is equal."""
        return isinstance(other, UnknownPart) and self._raw == other._raw

    def __hash__(self) -> int:
        """Hash what tells parts apart."""
        return hash((self.type, self.id))

    def __repr__(self) -> str:
        """Show the JSON."""
        return f"UnknownPart({dict(self._raw)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as its JSON."""
        return UnknownPart, (dict(self._raw),)


KnownPart: TypeAlias = (
    TextPart | ReasoningPart | ToolCallPart | ToolPart | StepStartPart | StepFinishPart | FilePart
    | CompactionPart | RetryPart | SubtaskPart | AgentPart | PatchPart | SnapshotPart
)  # fmt: skip
if TYPE_CHECKING:
    Part: TypeAlias = KnownPart | UnknownPart
else:
    # msgspec decodes the known ones; `codec` puts the unknown ones beside them
    Part: Final = KnownPart


_COUNTS: Final = ("input", "output", "reasoning", "cache.read", "cache.write", "total")
_NUMBERS: Final = frozenset((float, int))


def check_figures(cost: float | None, tokens: TokenCounts | None) -> tuple[str, str, str] | None:
    """What is wrong with a cost and token counts, as detail, path and rule."""
    if cost is not None and not (type(cost) in _NUMBERS and 0 <= cost <= MAX_INT):
        return f"must be a price, not {number_or_kind(cost)}", "$.cost", "BR-12"
    if tokens is None:
        return None
    if type(tokens) is not TokenCounts or type(tokens.cache) is not CacheCounts:
        return "must be TokenCounts, with CacheCounts inside", "$.tokens", "BR-13"
    cache, total = tokens.cache, tokens.total
    if total is None and _are_counts(
        tokens.input, tokens.output, tokens.reasoning, cache.read, cache.write
    ):
        return None
    counts = (tokens.input, tokens.output, tokens.reasoning, cache.read, cache.write)
    for name, count in zip(_COUNTS, counts if total is None else (*counts, total), strict=False):
        if type(count) is not int or not 0 <= count <= MAX_INT:
            detail = f"must be a count of tokens, not {number_or_kind(count)}"
            return detail, f"$.tokens.{name}", "BR-13"
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
            checked(part, check_name, value, f"$.{name}")


def _check_span(part: TextPart | ReasoningPart, time: object) -> None:
    if not isinstance(time, TextTime):
        refuse(part, f"must be a TextTime, not {kind_of(time)}", "$.time", "schema")
    if time.start is not None:
        checked(part, check_time, time.start, "$.time.start")
    if time.end is not None:
        checked(part, check_time, time.end, "$.time.end")
