"""Checks of JSON values, and what all providers' rules have in common.

A check looks at one value and adds a violation for each thing that is wrong with it; it never
raises, whatever it is given. Checks are combined into `Form` (an object with known fields) and
`Kinds` (an object whose `type` says which form it has). The functions that look something up return
nothing where it is not there: the form adds the violation.
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, get_args

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

__all__ = [
    "BOUNDS",
    "IMAGES",
    "LONGEST_TEXT",
    "RULES",
    "Check",
    "Findings",
    "Form",
    "Kinds",
    "PairKey",
    "Rule",
    "Violation",
    "anything",
    "at",
    "base64_data",
    "boolean",
    "bytes_of",
    "check_json",
    "closed_objects",
    "data_url",
    "filled",
    "items",
    "kind",
    "listing",
    "look",
    "mapping",
    "match_results",
    "name_check",
    "no_bounds",
    "number",
    "one_of",
    "one_source",
    "openai_answer_format",
    "openai_file_data",
    "openai_image_url",
    "openai_text",
    "optional",
    "proto_bytes",
    "string",
    "unique_calls",
    "unique_names",
    "url",
    "word",
]


Rule = Literal[
    "alternation",
    "cache-breakpoints",
    "call-arguments",
    "call-id",
    "call-without-result",
    "duplicate-call-id",
    "duplicate-result",
    "duplicate-tool",
    "empty-content",
    "empty-text",
    "first-role",
    "foreign-reasoning",
    "item-id",
    "last-role",
    "media",
    "missing-signature",
    "part-placement",
    "reasoning-placement",
    "result-not-alone",
    "result-out-of-order",
    "result-without-call",
    "role",
    "shape",
    "size",
    "speaker-name",
    "system-placement",
    "text-encoding",
    "tool-name",
    "trailing-space",
    "unknown-field",
    "unknown-part",
]

RULES: Final[tuple[Rule, ...]] = get_args(Rule)
"""The names of the rules that providers hold requests to; docs/wire.md has a row for each."""


class Violation(Struct, frozen=True):
    """One thing that a provider would refuse.

    `path` is its position in the body (`messages[0].content`, or `$` for all of it), `rule` is the
    rule's name in docs/wire.md, `detail` describes it.

    >>> str(Violation("messages[0].content", "empty-content", "there is nothing in it"))
    'messages[0].content: there is nothing in it (empty-content)'
    """

    path: str
    rule: str
    detail: str

    def __str__(self) -> str:
        """One line for a person."""
        return f"{self.path}: {self.detail} ({self.rule})"


class Findings:
    """The violations found so far, in order."""

    def __init__(self) -> None:
        """Start without violations."""
        self._found: dict[tuple[str, str], Violation] = {}

    def add(self, path: str, rule: Rule, detail: str) -> None:
        """Add a violation; one of the same rule at the same path is added once."""
        self._found.setdefault((path, rule), Violation(path, rule, detail))

    def __iter__(self) -> Iterator[Violation]:
        return iter(self._found.values())


Check: TypeAlias = Callable[["Findings", str, object], None]

NOTHING: Mapping[str, Any] = {}


def at(path: str, step: str | int) -> str:
    """Return the path with one more step."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    return step if path == "$" else f"{path}.{step}"


_NAMES: Mapping[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}


def kind(value: object) -> str:
    """Say what JSON calls such a value."""
    return _NAMES.get(type(value), f"a {type(value).__name__}, which is not JSON")


def anything(found: Findings, path: str, value: object) -> None:
    """Leave a value alone: it is the provider's business and not the conversation's."""


def string(found: Findings, path: str, value: object) -> None:
    """Require a string, an empty one too."""
    if not isinstance(value, str):
        found.add(path, "shape", f"must be a string, not {kind(value)}")


def filled(found: Findings, path: str, value: object) -> None:
    """Require a string with something in it."""
    string(found, path, value)
    if value == "":
        found.add(path, "shape", "must be a string of at least one character")


def boolean(found: Findings, path: str, value: object) -> None:
    """Require true or false."""
    if not isinstance(value, bool):
        found.add(path, "shape", f"must be a boolean, not {kind(value)}")


def number(found: Findings, path: str, value: object) -> None:
    """Require a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        found.add(path, "shape", f"must be a number, not {kind(value)}")


def mapping(found: Findings, path: str, value: object) -> None:
    """Require an object, with whatever fields."""
    if not isinstance(value, dict):
        found.add(path, "shape", f"must be an object, not {kind(value)}")


def optional(check: Check) -> Check:
    """Require what the check wants, or null."""

    def run(found: Findings, path: str, value: object) -> None:
        if value is not None:
            check(found, path, value)

    return run


def one_of(*choices: str, rule: Rule = "shape") -> Check:
    """Require one of these words."""

    def run(found: Findings, path: str, value: object) -> None:
        if not isinstance(value, str) or value not in choices:
            found.add(path, rule, f"must be one of {', '.join(choices)}")

    return run


def listing(each: Check, *, at_least: int = 0, rule: Rule = "empty-content") -> Check:
    """Require an array of such values; `rule` is the one that too short an array breaks."""

    def run(found: Findings, path: str, value: object) -> None:
        if not isinstance(value, list):
            found.add(path, "shape", f"must be an array, not {kind(value)}")
            return
        if len(value) < at_least:
            found.add(path, rule, "the array is empty; at least one entry is expected")
        for place, entry in enumerate(value):
            each(found, at(path, place), entry)

    return run


class Form:
    """An object with known fields, some of them required, each with its own check."""

    def __init__(self, required: Mapping[str, Check], known: Mapping[str, Check] = NOTHING) -> None:
        """Set the required fields and the optional ones."""
        self._required = frozenset(required)
        self._checks = {**required, **known}

    def __call__(self, found: Findings, path: str, value: object) -> None:
        """Check a value."""
        if not isinstance(value, dict):
            found.add(path, "shape", f"must be an object, not {kind(value)}")
            return
        for name in sorted(self._required - value.keys()):
            found.add(at(path, name), "shape", "the field is required and missing")
        for name, field in value.items():
            check = self._checks.get(name)
            if check is None:
                found.add(at(path, str(name)), "unknown-field", "no such field is known here")
            else:
                check(found, at(path, name), field)


class Kinds:
    """An object whose `type` says which form it has.

    `elsewhere` has the types that exist but are not allowed here.
    """

    def __init__(
        self, here: Mapping[str, Check], *, elsewhere: frozenset[str] = frozenset()
    ) -> None:
        """Set the types that are allowed here."""
        self._here = here
        self._elsewhere = elsewhere

    def __call__(self, found: Findings, path: str, value: object) -> None:
        """Check a value by its type."""
        if not isinstance(value, dict):
            found.add(path, "shape", f"must be an object, not {kind(value)}")
            return
        name = value.get("type")
        if not isinstance(name, str):
            found.add(at(path, "type"), "shape", "the type is required and missing")
        elif name in self._here:
            self._here[name](found, path, value)
        elif name in self._elsewhere:
            found.add(path, "part-placement", f"{name} may not stand here")
        else:
            found.add(path, "unknown-part", f"no such type is known: {name[:60]}")


def look(value: object, *steps: str) -> object:
    """Return what is at the end of these fields, or None."""
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def word(value: object, *steps: str) -> str | None:
    """Return the string at the end of these fields, or None."""
    found = look(value, *steps)
    return found if isinstance(found, str) else None


def items(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Yield the entries of an array, each with its path; none where it is no array."""
    if isinstance(value, list):
        yield from ((at(path, place), entry) for place, entry in enumerate(value))


def closed_objects(found: Findings, path: str, schema: object, *, complete: bool) -> None:
    """Require each object in a JSON schema to have named fields only, and with `complete` all."""
    for where, one in _schemas(path, schema):
        if word(one, "type") != "object":
            continue
        if look(one, "additionalProperties") is not False:
            found.add(where, "shape", "additionalProperties must be false in every object")
        named, required = look(one, "properties"), look(one, "required")
        if complete and isinstance(named, dict):
            given = required if isinstance(required, list) else []
            for name in sorted(named.keys() - set(map(str, given))):
                found.add(at(where, "required"), "shape", f"every field is required, also {name}")


def openai_answer_format(found: Findings, path: str, form: object) -> None:
    """Require a name, and of a strict schema that it leaves nothing open."""
    if word(form, "type") == "json_schema" or look(form, "schema") is not None:
        _FORMAT_NAME(found, at(path, "name"), look(form, "name"))
        if look(form, "strict") is True:
            closed_objects(found, at(path, "schema"), look(form, "schema"), complete=True)


def no_bounds(found: Findings, path: str, schema: object) -> None:
    """Require a JSON schema without bounds of numbers, texts and arrays."""
    for where, one in _schemas(path, schema):
        for name in sorted(BOUNDS & (one.keys() if isinstance(one, dict) else set())):
            found.add(at(where, name), "shape", "such a limit is not supported")


BOUNDS: Final = frozenset(
    ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
) | {"minLength", "maxLength", "maxItems", "uniqueItems"}


def _schemas(path: str, schema: object, levels: int = 64) -> Iterator[tuple[str, object]]:
    """Yield a JSON schema and all those in it, so deep, each with its path."""
    yield path, schema
    if not levels:
        return
    for field in ("properties", "$defs", "definitions"):
        inner = look(schema, field)
        for name, one in inner.items() if isinstance(inner, dict) else ():
            yield from _schemas(at(at(path, field), name), one, levels - 1)
    if look(schema, "items") is not None:
        yield from _schemas(at(path, "items"), look(schema, "items"), levels - 1)
    for field in ("anyOf", "oneOf", "allOf"):
        for where, one in items(look(schema, field), at(path, field)):
            yield from _schemas(where, one, levels - 1)


def name_check(rule: Rule, pattern: str, *, longest: int) -> Check:
    """Require a string of this pattern and of 1 to `longest` characters."""
    compiled = re.compile(pattern)

    def run(found: Findings, path: str, value: object) -> None:
        if not isinstance(value, str):
            found.add(path, "shape", f"must be a string, not {kind(value)}")
        elif not value:
            found.add(path, rule, "must not be empty")
        elif len(value) > longest:
            found.add(path, rule, f"{len(value)} characters are more than {longest}")
        elif not compiled.fullmatch(value):
            found.add(path, rule, f"does not match the pattern {pattern}")

    return run


_FORMAT_NAME: Final = name_check("shape", "[a-zA-Z0-9_-]+", longest=64)


def unique_names(found: Findings, named: Iterable[tuple[str, object]]) -> None:
    """Require no name twice among these tools."""
    seen: set[str] = set()
    for path, tool in named:
        name = word(tool, "name")
        if name is None:
            continue
        if name in seen:
            found.add(path, "duplicate-tool", f"another tool has this name: {name[:60]}")
        seen.add(name)


IMAGES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
"""The images that OpenAI and Anthropic take."""

_DATA_URL = re.compile(r"data:([^;,\s]+);base64,", re.ASCII)
_PROTO = str.maketrans("-_", "+/")


def bytes_of(text: str) -> bytes | None:
    """Decode base64, or answer None where it is none; line breaks and the like are none.

    >>> bytes_of("aGk="), bytes_of("a-b")
    (b'hi', None)
    """
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return None


def base64_data(*, limit: int | None = None) -> Check:
    """Require base64 with something in it, and no more than so many bytes of it."""

    def run(found: Findings, path: str, value: object) -> None:
        if not isinstance(value, str):
            found.add(path, "shape", f"must be a string, not {kind(value)}")
        elif not bytes_of(value):
            found.add(path, "media", "must be base64 data, and not empty")
        elif limit is not None and len(value) > limit:
            found.add(path, "size", f"{len(value)} bytes of base64 are more than {limit}")

    return run


def proto_bytes(value: object) -> bytes | None:
    """Decode as protobuf does for JSON: either alphabet of base64, padded or not."""
    if not isinstance(value, str):
        return None
    text = value.translate(_PROTO).rstrip("=")
    return bytes_of(text + "=" * (-len(text) % 4))


def data_url(found: Findings, path: str, value: str, types: Collection[str]) -> None:
    """Require a data URL in base64 of one of these media types."""
    match = _DATA_URL.match(value)
    if match is None:
        found.add(path, "media", "a data URL has to read data:<media type>;base64,<data>")
    elif match[1].lower() not in types:
        found.add(path, "media", f"the media type {match[1]} is not supported here")
    elif not bytes_of(value[match.end() :]):
        found.add(path, "media", "the data of the URL must be base64, and not empty")


def url(*schemes: str) -> Check:
    """Require a whole URL with one of these schemes."""
    pattern = re.compile(rf"(?:{'|'.join(schemes)})://[^\s/]+[^\s]*", re.IGNORECASE)

    def run(found: Findings, path: str, value: object) -> None:
        if not isinstance(value, str):
            found.add(path, "shape", f"must be a string, not {kind(value)}")
        elif not pattern.fullmatch(value):
            found.add(path, "media", f"must be a whole URL that begins with {' or '.join(schemes)}")

    return run


class PairKey(NamedTuple):
    """A call or a result: what it is matched by, and where it stands."""

    key: str
    path: str


def match_results(
    found: Findings, calls: Iterable[PairKey], results: Iterable[PairKey], known: Collection[str]
) -> None:
    """Match the calls of one turn with the results of the next.

    `known` has the key of every call of the request: a result for one of those is out of place,
    a result for any other has no call at all.
    """
    waiting = {call.key: call.path for call in calls}
    answered: set[str] = set()
    for key, path in results:
        if key in answered:
            found.add(path, "duplicate-result", f"{key[:80]} has a result already")
        elif key in waiting:
            answered.add(key)
        elif key in known:
            found.add(path, "result-out-of-order", f"{key[:80]} was not called in the turn before")
        else:
            found.add(path, "result-without-call", f"nothing was called by {key[:80]}")
    for key, path in waiting.items():
        if key not in answered:
            found.add(path, "call-without-result", f"{key[:80]} has no result in the next turn")


def unique_calls(found: Findings, calls: Iterable[PairKey]) -> set[str]:
    """Require every key once among these calls; return all keys."""
    seen: set[str] = set()
    for key, path in calls:
        if key in seen:
            found.add(path, "duplicate-call-id", f"another call has this id: {key[:80]}")
        seen.add(key)
    return seen


def check_json(found: Findings, body: object, *, limit: int) -> None:
    """Require JSON with valid Unicode, of at most `limit` bytes.

    The size is that of all strings, so a little less than what is sent: no body is called too large
    that is not.
    """
    size = 0
    waiting: list[tuple[str, object]] = [("$", body)]
    while waiting:
        path, value = waiting.pop()
        match value:
            case str():
                size += len(value) if value.isascii() else _utf8_size(found, path, value)
            case dict():
                for name, field in value.items():
                    if isinstance(name, str):
                        waiting += [(at(path, name), name), (at(path, name), field)]
                    else:
                        found.add(path, "shape", f"a field's name can't be {kind(name)}")
            case list():
                waiting.extend((at(path, place), entry) for place, entry in enumerate(value))
            case float() if not math.isfinite(value):
                found.add(path, "shape", f"{value} is not JSON")
            case None | bool() | int() | float():
                pass
            case _:
                found.add(path, "shape", f"must be JSON, not {kind(value)}")
    if size > limit:
        found.add("$", "size", f"{size} bytes are more than {limit}")


def _utf8_size(found: Findings, path: str, text: str) -> int:
    """Count the bytes of a text; note a half of a surrogate pair, which no UTF-8 can carry."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        found.add(path, "text-encoding", "half of a surrogate pair can't be sent as UTF-8")
        return len(text)


LONGEST_TEXT = 10_485_760
LONGEST_IMAGE = 20_971_520
LONGEST_FILE = 73_400_320

_REMOTE = url("https", "http")


def openai_text(found: Findings, path: str, value: object) -> None:
    """A text, which may be empty, but not endless."""
    _no_longer(found, path, value, LONGEST_TEXT)


def openai_image_url(found: Findings, path: str, value: object) -> None:
    """A URL, or a data URL of an image."""
    if _no_longer(found, path, value, LONGEST_IMAGE):
        if str(value).startswith("data:"):
            data_url(found, path, str(value), IMAGES)
        else:
            _REMOTE(found, path, value)


def openai_file_data(types: Collection[str]) -> Check:
    """A data URL of a file of these media types, or its base64 alone."""

    def run(found: Findings, path: str, value: object) -> None:
        if _no_longer(found, path, value, LONGEST_FILE):
            if str(value).startswith("data:"):
                data_url(found, path, str(value), types)
            elif not bytes_of(str(value)):
                found.add(path, "media", "must be base64 data or a data URL, and not empty")

    return run


def one_source(found: Findings, path: str, value: object, names: tuple[str, ...]) -> None:
    """Exactly one of these fields says where an image or a file is; data also has a name."""
    given = [name for name in names if look(value, name) is not None]
    if len(given) != 1:
        found.add(path, "media", f"exactly one of {', '.join(names)} is needed")
    elif given == ["file_data"] and not look(value, "filename"):
        found.add(path, "media", "data of a file needs a filename")


def _no_longer(found: Findings, path: str, value: object, longest: int) -> bool:
    """Require a string of at most so many characters; tell whether it is a string."""
    if not isinstance(value, str):
        found.add(path, "shape", f"must be a string, not {kind(value)}")
        return False
    if len(value) > longest:
        found.add(path, "size", f"{len(value)} characters are more than {longest}")
    return True
