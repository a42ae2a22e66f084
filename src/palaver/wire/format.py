"""What a provider's format declares: its names, its field schemas, how to write and read it.

`Format` is the interface; each provider has one subclass, in `request.py` of its own folder. What
all formats share is elsewhere: `pairing` joins calls and results, `request` merges neighbours and
restores details. `Writer` is what a format writes with: its target, the spelling of names and ids,
and the notes. The `…Content` values are what a block of
any provider says: `blocks.py` of a provider's folder makes them, and request bodies, replies and
transcripts are all built of them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, TypeGuard
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Struct

from palaver.messages.limits import EMPTY, is_list, is_object
from palaver.messages.part_base import FilePart
from palaver.messages.parts import (
    FREEFORM,
    CompactionPart,
    ReasoningPart,
    SubtaskPart,
    TextPart,
    ToolCallPart,
    ToolPart,
    UnknownPart,
)
from palaver.messages.tool_state import ToolCompleted, ToolError
from palaver.wire.notes import Note
from palaver.wire.pairing import INTERRUPTED, PENDING
from palaver.wire.round_trip import KEY, details_of, foreign_details, stands_apart

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from palaver.messages.message import Message
    from palaver.messages.part_base import PartBase
    from palaver.messages.parts import Part
    from palaver.wire.pairing import PairedTurn, Pairing
    from palaver.wire.reply import ReplyReader
    from palaver.wire.request import BodyReader, Target

__all__ = [
    "CLEARED",
    "IMAGES",
    "Alphabet",
    "CallContent",
    "Content",
    "Element",
    "FileContent",
    "Format",
    "Inline",
    "Linked",
    "ReasoningContent",
    "ResultContent",
    "Schema",
    "TextContent",
    "ToolSpec",
    "UnknownContent",
    "ValueSchema",
    "Writer",
    "WrittenElement",
    "any_of",
    "any_text",
    "attachments_of",
    "freeform_text",
    "is_freeform",
    "is_image",
    "is_text",
    "known_fields",
    "list_of",
    "matches",
    "media_of",
    "never",
    "not_null",
    "notes_before",
    "nullable",
    "part_as_text",
    "raw_block",
    "text_of",
    "typed",
]


Element: TypeAlias = dict[str, Any]
"""A JSON object of a request: a message, an item or a turn of contents."""
WrittenElement: TypeAlias = tuple[Element, "Message"]
"""An element and the message that it comes from."""


class ToolSpec(Struct, frozen=True):
    """What a model is told of a tool: its name, what it is for, and the JSON schema of its input.

    >>> ToolSpec("clock", "The time of day.").schema
    {'type': 'object', 'properties': {}}
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = EMPTY

    @property
    def schema(self) -> dict[str, Any]:
        """The schema as providers want it: an object's, even where there is nothing to pass."""
        return {"type": "object", "properties": {}, **self.parameters}

    def named(self, name: str) -> dict[str, Any]:
        """Return the fields `name` and, where there is one, `description`."""
        return (
            {"name": name, "description": self.description} if self.description else {"name": name}
        )


class Format:
    """A provider's way to write a conversation."""

    name: ClassVar[str]
    provider: ClassVar[str]
    reply_reader: ClassVar[type[ReplyReader]]
    """What reads the provider's replies."""
    items: ClassVar[str]
    """The field of a body that holds the elements."""
    heads: ClassVar[tuple[str, ...]] = ()
    """The fields of a body that hold the system text."""
    tool_names: ClassVar[Alphabet]
    call_ids: ClassVar[Alphabet]
    plain: ClassVar[bool] = False
    """A text alone is written as an element of `role` and `content`, unchanged."""
    alternates: ClassVar[bool] = False
    """Neighbours of one role are merged, a user speaks first, and the system text stands apart."""
    may_repeat: ClassVar[bool] = False
    """Two elements of one role may follow each other, and stay apart if they were read so."""
    marks_failures: ClassVar[bool] = False
    """A result can say that its call failed, beside the text of it."""
    takes_attachments: ClassVar[bool] = True
    """A result can hold files."""
    fields: ClassVar[Mapping[str, ValueSchema]]
    """Every field that the provider knows in an element, at any depth, and what it may hold."""
    carried: ClassVar[frozenset[str]] = frozenset()
    """Fields that are no detail: parts hold them, and writing tells where it leaves one out."""
    opaque: ClassVar[frozenset[str]] = frozenset()
    """The fields whose values the provider does not look into."""

    def own_names(self, specs: Iterable[ToolSpec]) -> dict[str, str]:
        """Return each tool's own name by the name it has in a request."""
        return {self.tool_names.spell(spec.name): spec.name for spec in specs}

    def write(self, turn: PairedTurn, writer: Writer) -> Iterable[WrittenElement]:
        """Return the elements of one turn, each with the message it comes from."""
        raise NotImplementedError

    def write_tools(self, tools: Sequence[tuple[str, ToolSpec]]) -> list[dict[str, Any]]:
        """Return the field `tools` of a request, for tools with their names as they are sent."""
        raise NotImplementedError

    def text_element(self, role: str, text: str) -> Element:
        """Return an element of palaver's own, to begin or to end a request with."""
        raise NotImplementedError

    def role(self, element: Element) -> str:
        """Return who speaks in an element: `user` or something else; only where `alternates`."""
        return str(element.get("role", "user"))

    def can_merge(self, element: Element, more: Element, owner: Message) -> bool:
        """Tell whether a neighbour is merged into an element; only where `alternates`."""
        alike = self.role(element) == self.role(more)
        return alike and not (self.may_repeat and stands_apart(owner, self.name))

    def merge(self, element: Element, more: Element) -> None:
        """Add a neighbour of the same role to an element; only where `alternates`."""
        raise NotImplementedError

    def is_head(self, turn: PairedTurn) -> bool:
        """Tell whether a message with nothing before it goes to the head of the body."""
        return self.alternates and turn.message.role == "system"

    def close(self, element: Element) -> Element:
        """Return the last element, of an answer to be continued, as it may end a request."""
        return element

    def allows(
        self,
        element: Element,  # noqa: ARG002 - here and below, for the formats that look
        around: tuple[Element | None, Element | None],  # noqa: ARG002
        owner: Message,  # noqa: ARG002
        target: Target,  # noqa: ARG002
    ) -> bool:
        """Tell whether a restored element may be sent between these two, to this target."""
        return True

    def system_blocks(self, turn: PairedTurn, writer: Writer) -> list[Any]:
        """Return the blocks of a system message that goes to the head of the body."""
        raise NotImplementedError

    def head(self, blocks: Sequence[Any]) -> Element:
        """Return the fields of the body that hold the system text, made of its blocks."""
        raise NotImplementedError

    def normalize(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a body in the one spelling that is written, where a provider reads several."""
        return body

    def field_schema(self, element: Element, path: Sequence[Any]) -> ValueSchema:  # noqa: ARG002 - as above
        """Return what the field at the end of a path may hold."""
        return self.fields[path[-1]] if isinstance(path[-1], str) else ()

    def accepts(self, element: Element, change: Sequence[Any]) -> bool:
        """Tell whether the provider accepts an element with this change of known fields."""
        path = change[0]
        if any(isinstance(step, str) and step in self.opaque for step in path[:-1]):
            return True
        if len(change) == 1:
            return self.may_omit(element, path)
        if len(path) > 1 and isinstance(path[-1], int):  # one of a list, for another
            return matches([change[1]], self.field_schema(element, path[:-1]))
        return (
            bool(path)
            and isinstance(path[-1], str)
            and matches(change[1], self.field_schema(element, path))
        )

    def may_omit(self, element: Element, path: Sequence[Any]) -> bool:  # noqa: ARG002 - as above
        """Tell whether a field that palaver writes may be missing."""
        return False

    def read(self, body: Mapping[str, Any], reader: BodyReader) -> None:
        """Read a body's system text and elements into a reader."""
        raise NotImplementedError

    def pair_keys(self, element: Element) -> Sequence[str]:
        """Return what pairs the calls and results in an element: no detail may change these."""
        raise NotImplementedError


# ── what a block says ────────────────────────────────────────────────────────────────────────────


class TextContent(Struct, frozen=True):
    """A text; `metadata` is what its provider wants back, here and below."""

    text: str
    metadata: Mapping[str, Any] = EMPTY


class ReasoningContent(Struct, frozen=True):
    """Reasoning, whose text may be empty where only the provider can read it."""

    text: str
    metadata: Mapping[str, Any] = EMPTY


class CallContent(Struct, frozen=True):
    """A tool call; `arguments` is an object, or the text that the model wrote."""

    call_id: str | None
    tool: str
    arguments: Mapping[str, Any] | str
    metadata: Mapping[str, Any] = EMPTY


class FileContent(Struct, frozen=True):
    """A file, as a `data:` url or by reference."""

    mime: str
    url: str
    filename: str | None = None


class UnknownContent(Struct, frozen=True):
    """A block that palaver stores without understanding it, with its `context`."""

    block: Mapping[str, Any]
    context: Mapping[str, Any] = EMPTY


class ResultContent(Struct, frozen=True):
    """The result of a call; `metadata` holds what is neither text nor file."""

    call_id: str | None
    output: str
    failed: bool = False
    files: tuple[FileContent, ...] = ()
    metadata: Mapping[str, Any] = EMPTY


Content: TypeAlias = TextContent | ReasoningContent | CallContent | FileContent | UnknownContent


# ── names ────────────────────────────────────────────────────────────────────────────────────────

_HASH: Final = 8


class Alphabet(Struct, frozen=True, dict=True):
    """The names a provider allows: a pattern for each letter, a length, a pattern for the first.

    A name that fits is sent as it is. Any other is spelled with what is allowed and ends with a
    hash of the whole, so that two names never become one and a name is always spelled the same.

    >>> tools = Alphabet("[a-zA-Z0-9_-]", 64)
    >>> tools.spell("get_weather"), tools.spell("weather.get")
    ('get_weather', 'weather_get_8b16a113')
    """

    letters: str
    longest: int
    first: str = ""

    @cached_property
    def fits(self) -> Callable[[str], object]:
        """Tell whether the provider takes a name as it is."""
        pattern = f"{self.first or self.letters}{self.letters}{{0,{self.longest - 1}}}"
        return re.compile(pattern).fullmatch

    def spell(self, name: str) -> str:
        """Return a name as the provider takes it."""
        if self.fits(name):
            return name
        digest = hashlib.blake2b(name.encode(), digest_size=_HASH // 2).hexdigest()
        allowed = re.compile(self.letters)
        plain = "".join(letter if allowed.fullmatch(letter) else "_" for letter in name[:200])
        if not re.match(self.first, plain):
            plain = f"_{plain}"
        return f"{plain[: self.longest - _HASH - 1]}_{digest}"


# ── schemas of fields and blocks ─────────────────────────────────────────────────────────────────

ValueSchema: TypeAlias = (
    "type | tuple[str, ...] | re.Pattern[str] | Callable[[object], bool] | Schema"
)
"""What a JSON value must be: a type, one of some words, a pattern, a check, or an object."""
Schema: TypeAlias = "dict[str, ValueSchema]"
"""An object's fields; one that ends with `*` may be missing, one with `?` may also be null."""


def known_fields(block: Mapping[str, Any], schema: Schema) -> dict[str, Any] | None:
    """Return a block's known fields; None where one is missing or has another kind of value.

    >>> known_fields({"id": "x", "more": 1}, {"id": str})
    {'id': 'x'}
    >>> known_fields({"id": 5}, {"id": str}) is None
    True
    """
    known: dict[str, Any] = {}
    for name, value in schema.items():
        field = name.rstrip("?*")
        if field not in block:
            if name == field:
                return None
        elif not matches(block[field], value) and not (block[field] is None and name[-1] == "?"):
            return None
        else:
            known[field] = block[field]
    return {field: known[field] for field in block if field in known}


def matches(value: object, schema: ValueSchema) -> bool:
    """Tell whether a value is what a schema says; `str` means a text that is not blank."""
    if isinstance(schema, dict):
        return is_object(value) and known_fields(value, schema) == value
    if isinstance(schema, tuple):
        return value in schema
    if isinstance(schema, re.Pattern):
        return isinstance(value, str) and schema.fullmatch(value) is not None
    if schema is str:
        return isinstance(value, str) and value.strip() != ""
    if schema is dict:
        return is_object(value)
    return type(value) is schema if isinstance(schema, type) else schema(value)


def any_text(value: object) -> bool:
    """Accept any text, also an empty one."""
    return isinstance(value, str)


def list_of(schema: ValueSchema, *, at_least: int = 0) -> Callable[[object], bool]:
    """Return a check for a list of such values."""

    def check(value: object) -> bool:
        return is_list(value) and len(value) >= at_least and all(matches(v, schema) for v in value)

    return check


def never(value: object) -> bool:
    """Accept no value: palaver writes such a field itself."""
    del value
    return False


def not_null(value: object) -> bool:
    """Accept any value but null."""
    return value is not None


def nullable(*schemas: ValueSchema) -> Callable[[object], bool]:
    """Return a check for null, or a value that one of these schemas accepts."""
    return any_of(type(None), *schemas)


def any_of(*schemas: ValueSchema) -> Callable[[object], bool]:
    """Return a check for a value that one of these schemas accepts."""
    return lambda value: any(matches(value, schema) for schema in schemas)


def typed(*kinds: str) -> Callable[[object], bool]:
    """Return a check for an object whose `type` is one of these, or any; its rest is not read."""

    def check(value: object) -> bool:
        kind = value.get("type") if is_object(value) else None
        return kind in kinds if kinds else isinstance(kind, str)

    return check


IMAGES: Final = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
"""The images that every provider reads."""

_LINK: Final = re.compile(r"(?:https?|gs)://[^\s/]\S*", re.IGNORECASE)


class Inline(Struct, frozen=True):
    """A file as data, in base64."""

    mime: str
    data: str

    @property
    def url(self) -> str:
        """The data as a url."""
        return f"data:{self.mime};base64,{self.data}"


class Linked(Struct, frozen=True):
    """A file by reference."""

    mime: str
    url: str


def media_of(part: FilePart) -> Inline | Linked | None:
    """Return how a file can be sent, or None where it can't.

    >>> from palaver.messages import file_part, new_id
    >>> media_of(file_part(new_id(), new_id(), "image/png", "data:image/png;base64,aGk="))
    Inline(mime='image/png', data='aGk=')
    >>> media_of(file_part(new_id(), new_id(), "image/png", "file:///etc/passwd")) is None
    True
    """
    url = part.url
    if url[:5].lower() == "data:":
        data = _data(url)
        return None if data is None else Inline(part.mime.lower(), data)
    if _LINK.fullmatch(url):
        return Linked(part.mime.lower(), url)
    return None


@lru_cache(maxsize=256)
def _data(url: str) -> str | None:
    """Return the base64 of a data url, without spaces; None where it is none or empty."""
    head, comma, body = url.partition(",")
    if not comma:
        return None
    if not head.lower().endswith(";base64"):
        return base64.b64encode(unquote_to_bytes(body)).decode() or None
    try:
        binascii.a2b_base64(body, strict_mode=True)
    except (binascii.Error, ValueError):
        return None
    return body or None


def is_image(media: Inline | Linked | None) -> TypeGuard[Inline | Linked]:
    """Tell whether it is an image that every provider reads; a reference may be of any type."""
    if isinstance(media, Linked):
        return media.mime.startswith("image/") and not media.url.startswith("gs:")
    return media is not None and media.mime in IMAGES


def is_text(mime: str) -> bool:
    """Tell whether a file of this type can be sent as text."""
    return mime.startswith("text/") or mime in ("application/json", "application/xml")


def text_of(media: Inline) -> str | None:
    """Return the text of a text file; None where the bytes are no UTF-8 text."""
    try:
        return base64.b64decode(media.data).decode().replace("\0", "")
    except (UnicodeDecodeError, ValueError):
        return None


CLEARED: Final = "(output cleared to save room)"
"""What is sent in the place of an output that a compaction has cleared."""
_check_json: Final = msgspec.json.Decoder(msgspec.Raw).decode  # parses, and builds no value


class Writer:
    """Writes one conversation in one format: what its `Format` needs while it writes."""

    def __init__(
        self, form: Format, target: Target, open_calls: Collection[str], pairing: Pairing
    ) -> None:
        """Write in this format for this target; `open_calls` are the calls still running."""
        self.form = form
        self.target = target
        self.names: dict[str, str] = {}
        self.renamed: list[Note] = []
        self.notes: list[tuple[int, Note]] = []
        self.turn = 0
        """The turn that is being written, which notes are about."""
        self.unsettled: int | None = None
        """A turn that is written one way while it is the last, and another way later."""
        self._open = open_calls
        self._pairing = pairing
        self._claimed: dict[str, int] = {}
        self._tools: dict[str, str] = {}
        self._ids: dict[str, object] = {}
        self._fits = form.call_ids.fits

    def rewind(self, turn: int) -> None:
        """Drop the notes about this turn and all after it, and the ids written there."""
        self.notes = notes_before(self.notes, turn)
        if self.unsettled is not None and self.unsettled >= turn:
            self.unsettled = None
        while self._claimed and next(reversed(self._claimed.values())) >= turn:
            self._claimed.popitem()

    def claim_id(self, name: str) -> bool:
        """Claim an id that may be in the request only once; False where it is there already."""
        if name in self._claimed:
            return False
        self._claimed[name] = self.turn
        return True

    def note(
        self, action: Literal["repaired", "lost"], rule: str, detail: str, message: Message
    ) -> None:
        """Note what was repaired or lost."""
        self.notes.append((self.turn, Note(action, self._where(), rule, detail, message.id)))

    def _where(self) -> str:
        return f"messages[{self._pairing.turns[self.turn].position}]"

    def tool_name(self, name: str, message: Message) -> str:
        """Return a tool's name as the provider takes it, and remember it for the way back."""
        spelled = self._tools.get(name)
        if spelled is None:
            spelled = self._tools[name] = self.form.tool_names.spell(name)
            if spelled != name:
                detail = f"{name[:80]!r} is sent as {spelled!r}"
                self.names[spelled] = name
                note = Note("repaired", self._where(), "tool-name", detail, message.id)
                self.renamed.append(note)
        return spelled

    def call_id(self, turn: PairedTurn, position: int) -> str:
        """Return a call's id as the provider takes it, different from all others in the request."""
        name, ids = turn.calls[position].call_id, self._ids
        occurrence = turn.occurrences[position] if turn.occurrences else 0
        if not occurrence and self._fits(name) and ids.setdefault(name, name) == name:
            return name
        key: object = (name, occurrence) if occurrence else name
        wanted, tries = f"{name}#{occurrence + 1}" if occurrence else name, 0
        spelled = self.form.call_ids.spell(wanted)
        while ids.setdefault(spelled, key) != key:  # another call's own id looks the same
            tries += 1
            spelled = self.form.call_ids.spell(f"{wanted}.{tries}")
        rule = "duplicate-call-id" if occurrence else "call-id"
        self.note("repaired", rule, f"{name[:80]!r} is sent as {spelled!r}", turn.message)
        return spelled

    def arguments_text(self, call: ToolCallPart, message: Message) -> str:
        """Return a call's arguments as JSON text: unchanged where the model wrote an object."""
        raw = call.raw
        try:
            _check_json(raw)
            if raw.lstrip()[0] == "{":
                return raw
        except (msgspec.DecodeError, RecursionError):
            pass
        found = call.arguments
        if found is not call.input:
            self._note_wrapped(call, message)
        elif raw.strip():
            detail = f"the arguments of {call.tool} are no JSON object: sent as understood"
            self.note("repaired", "call-arguments", detail, message)
        return msgspec.json.encode(found).decode()

    def arguments_object(self, call: ToolCallPart, message: Message) -> dict[str, Any]:
        """Return a call's arguments as an object."""
        found = {FREEFORM: freeform_text(call)} if is_freeform(call) else call.arguments
        if found is not call.input and FREEFORM in found:
            self._note_wrapped(call, message)
        return dict(found)

    def _note_wrapped(self, call: ToolCallPart, message: Message) -> None:
        detail = f"the free text given to {call.tool}: it is sent as {FREEFORM!r} of an object"
        self.note("repaired", "freeform-input", detail, message)

    def sendable_parts(self, turn: PairedTurn) -> Iterable[Part]:
        """Return the parts that may be sent: text, files, calls, reasoning that the target made."""
        return turn.message.parts if turn.simple else self._sendable(turn.message)

    def _sendable(self, message: Message) -> Iterator[Part]:
        for part in message.sendable_parts:
            if isinstance(part, TextPart | ToolCallPart | FilePart):
                yield part
            elif isinstance(part, ReasoningPart):
                if self._may_return(part, message):
                    yield part
            elif not isinstance(part, ToolPart):
                yield from self._other(part, message)

    def _may_return(self, part: ReasoningPart, message: Message) -> bool:
        """Tell whether the target may get its reasoning back; where not, note it."""
        ours = part.metadata.get(self.form.provider)
        if isinstance(ours, dict) and self.target.takes_reasoning_of(message):
            return True
        detail = "reasoning goes only to the model that made it"
        self.note("lost", "foreign-reasoning", detail, message)
        return False

    def _other(self, part: Part, message: Message) -> Iterator[Part]:
        text = part_as_text(part, message.role)
        if isinstance(part, UnknownPart):
            if part.type == self.form.name:
                yield part
                return
        elif text is not None:
            yield _text_part(part, text)
            return
        detail = f"{self.form.name} has no place for a part of type {part.type!r}"
        self.note("lost", "unknown-part", detail, message)

    def note_foreign_details(self, message: Message) -> None:
        """Note the details of other formats in a message, which this format can't express."""
        for form, fields in foreign_details(message, self.form.name):
            detail = f"{form} has {fields}: {self.form.name} has no field for it"
            self.note("lost", "foreign-detail", detail, message)

    def neighbour(self, step: int) -> Message | None:
        """Return the message so many turns on; where there is none yet, one may still come."""
        index, turns = self.turn + step, self._pairing.turns
        return turns[index].message if 0 <= index < len(turns) else None

    def user_spoke_since(self) -> bool:
        """Tell whether the user has spoken since this turn."""
        return self.turn < self._pairing.last_user_turn

    def system_texts(self, turn: PairedTurn) -> Iterator[str]:
        """Yield the texts of a system message."""
        message = turn.message
        if isinstance(message.content, str):
            yield message.content
        for part in self.sendable_parts(turn):
            if isinstance(part, TextPart):
                yield part.text
            elif isinstance(part, FilePart):
                yield self.placeholder(part, message)
            else:
                self.note_misplaced(part, message)

    def inline_system(self, turn: PairedTurn) -> str | None:
        """Return the text for a system message where only a user may speak; None for no text.

        It stays in its position, as the user's text. Further up it would change the beginning of
        the request, which the provider has cached.
        """
        message = turn.message
        text = "\n\n".join(text for text in self.system_texts(turn) if text.strip())
        if not text:
            self.note_nothing(message)
            return None
        if not details_of(message, self.form.name):
            detail = "a system message in the middle is sent as the user's text"
            self.note("repaired", "system-placement", detail, message)
        return f"<system>\n{text}\n</system>"

    def results(self, turn: PairedTurn) -> list[tuple[int, str, bool, ToolPart | None, Message]]:
        """Return a turn's results: call, text, whether it failed, part, message that brought it.

        Those that are there come in the order of their arrival, then a text for each missing one.
        """
        found: list[tuple[int, str, bool, ToolPart | None, Message]] = []
        for result in turn.results:
            part, message = result.part, result.message
            if KEY in message.metadata:
                self.note_foreign_details(message)
            if result.moved:
                detail = f"the result of {part.tool} was moved after its call {part.call_id!r}"
                self.note("repaired", "result-out-of-order", detail, message)
            state = part.state
            if type(state) is ToolCompleted:
                output = state.output if state.time.compacted is None else CLEARED
                found.append((result.call, output, False, part, message))
                if state.attachments and not self.form.takes_attachments:
                    self.note_lost_attachments(part, message)
            else:
                output = state.error if type(state) is ToolError else INTERRUPTED
                found.append((result.call, output, True, part, message))
                self._note_failure(part, message)
        if len(found) < len(turn.calls):
            for index in turn.unanswered():
                call = turn.calls[index]
                text = PENDING if call.call_id in self._open else INTERRUPTED
                detail = f"call {call.call_id!r} of {call.tool} has no result: {text}"
                self.note("repaired", "call-without-result", detail, turn.message)
                found.append((index, text, True, None, turn.message))
        return found

    def _note_failure(self, part: ToolPart, message: Message) -> None:
        if not self.form.marks_failures:
            detail = (
                f"that {part.tool} failed is only in its text: {self.form.name} has no field for it"
            )
            self.note("lost", "failed-result", detail, message)

    def placeholder(self, part: FilePart, message: Message) -> str:
        """Return the text that is sent instead of a file that can't be sent."""
        named = f" {part.filename!r}" if part.filename else ""
        detail = f"a file{named} of type {part.mime} can't be sent here: a text is sent instead"
        self.note("lost", "media", detail, message)
        return f"[a file{named} of type {part.mime} is not included]"

    def note_lost_attachments(self, part: ToolPart | None, message: Message) -> None:
        """Note that a result's files are not sent."""
        for file in attachments_of(part):
            detail = f"{self.form.name} takes no file in a result: {file.mime}"
            self.note("lost", "media", detail, message)

    def note_misplaced(self, part: Part, message: Message) -> None:
        """Note that a part has no place in a message of this role."""
        detail = f"a {part.type!r} part has no place in a {message.role} message"
        self.note("lost", "unknown-part", detail, message)

    def note_nothing(self, message: Message) -> None:
        """Note that a message was left out because nothing in it may be sent."""
        detail = f"nothing in this {message.role} message can be sent: it was left out"
        self.note("repaired", "empty-text", detail, message)


def is_freeform(call: ToolCallPart) -> bool:
    """Tell whether a call is of a tool that takes free text instead of JSON."""
    stored = call.metadata.get("openai") if call.metadata else None
    return is_object(stored) and stored.get("custom") is True


def freeform_text(call: ToolCallPart) -> str:
    """Return the free text of a call: what the model wrote, or the input that was put in place."""
    return call.raw if call.raw or not call.input else msgspec.json.encode(call.input).decode()


def part_as_text(part: Part, role: str) -> str | None:
    """Return the text for a part that requests have no place for, or None."""
    if isinstance(part, SubtaskPart):
        return f"Task for {part.agent}: {part.prompt}"
    return "What did we do so far?" if isinstance(part, CompactionPart) and role == "user" else None


def notes_before(notes: list[tuple[int, Note]], turn: int) -> list[tuple[int, Note]]:
    """Return the notes, which are in order, up to a turn.

    Where some are dropped it is another list, because requests hold the old one.
    """
    end = bisect_left(notes, turn, key=itemgetter(0))
    return notes if end == len(notes) else notes[:end]


def _text_part(part: PartBase, text: str) -> TextPart:
    return TextPart(id=part.id, session_id=part.session_id, message_id=part.message_id, text=text)


def attachments_of(part: ToolPart | None) -> tuple[FilePart, ...]:
    """Return the files of a result, unless a compaction has cleared it."""
    state = part.state if part is not None else None
    if type(state) is ToolCompleted and state.attachments and state.time.compacted is None:
        return state.attachments
    return ()


def raw_block(part: UnknownPart) -> dict[str, Any]:
    """Return the block of this format that palaver stores without understanding it."""
    block = part.raw.get("block")
    return dict(block) if isinstance(block, dict) else {}
