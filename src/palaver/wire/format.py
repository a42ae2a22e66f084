"""What a provider's format declares: its names, its field schemas, how to write and read it.

`Format` is the interface; each provider has one subclass, in `request.py` of its own folder. What
all formats share is elsewhere: `pairing` joins calls and results, `request` merges neighbours and
restores details, `writer` spells names and takes notes. The `…Content` values are what a block of
any provider says: `blocks.py` of a provider's folder makes them, and request bodies, replies and
transcripts are all built of them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypeGuard
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from palaver.messages.limits import EMPTY, is_list, is_object
from palaver.wire.round_trip import stands_apart

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from palaver.messages.message import Message
    from palaver.messages.part_base import FilePart
    from palaver.wire.pairing import PairedTurn
    from palaver.wire.request import BodyReader, Target
    from palaver.wire.writer import Writer

__all__ = [
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
    "WrittenElement",
    "any_of",
    "any_text",
    "is_image",
    "is_text",
    "known_fields",
    "list_of",
    "matches",
    "media_of",
    "never",
    "not_null",
    "nullable",
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
    opaque: ClassVar[frozenset[str]] = frozenset()
    """The fields whose values the provider does not look into."""

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
