"""The seven operations, as typed values and as JSON; and `Rewrite`, which is for programs only.

    {"operation": "INSERT", "position": 3, "messages": [{"role": "user", "content": "hi"}]}

An operation checks its own fields; `plan` checks whether it fits a history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from palaver.errors import UnsupportedOperation, ValidationError
from palaver.messages import ROLES, Message, Role, parse_message, parse_messages
from palaver.messages.codec import load_json, to_dict, translate_error
from palaver.messages.decode import convert
from palaver.messages.limits import describe_argument, quote_value

__all__ = [
    "Append", "Clear", "Edit", "Filter", "Insert", "Operation", "OperationInput", "Piece", "Range",
    "Replace", "Rewrite", "Rollback", "Truncate", "as_operation", "as_operations",
    "parse_operation", "parse_operations", "read_messages",
]  # fmt: skip


class _Operation(Struct, frozen=True, tag_field="operation", tag=str.upper, rename="camel",
                 omit_defaults=True, forbid_unknown_fields=True):  # fmt: skip
    """An operation, with its name and its JSON form."""

    @property
    def operation(self) -> str:
        """The name, in capitals as in JSON."""
        return str(self.__struct_config__.tag)

    def to_dict(self) -> dict[str, Any]:
        """Return the operation as JSON-ready data.

        >>> Rollback(2).to_dict()
        {'operation': 'ROLLBACK', 'targetBatchIndex': 2}
        """
        data: dict[str, Any] = to_dict(self)
        return data


class Append(_Operation, frozen=True):
    """Add messages at the end. Opens no batch."""

    messages: tuple[Message, ...]

    def __post_init__(self) -> None:
        """Check the messages."""
        force_setattr(self, "messages", read_messages(self.messages))


class Insert(_Operation, frozen=True):
    """Insert messages before the one at `position`; `position` may be the length."""

    position: int
    messages: tuple[Message, ...]

    def __post_init__(self) -> None:
        """Check the position and the messages."""
        _check_count(self.position, "position")
        force_setattr(self, "messages", read_messages(self.messages))


class Replace(_Operation, frozen=True):
    """Replace the message at `index`; the new one may have another role."""

    index: int
    message: Message

    def __post_init__(self) -> None:
        """Check the index and the message."""
        _check_count(self.index, "index")
        if type(self.message) is not Message:
            force_setattr(self, "message", _under("$.message", parse_message, self.message))


class Range(Struct, frozen=True, forbid_unknown_fields=True):
    """The range from `start` to before `end`."""

    start: int
    end: int


class Truncate(_Operation, frozen=True, kw_only=True):
    """Keep one range of the messages. The options apply in the order of the fields.

    With `role`, only that role's messages are kept; with `others="keep"`, all other messages stay
    and only the role's own messages are truncated.
    """

    keep_first: int | None = None
    keep_last: int | None = None
    remove_first: int | None = None
    remove_last: int | None = None
    range: Range | None = None
    role: Role | None = None
    others: Literal["drop", "keep"] = "drop"

    COUNTS: ClassVar = ("keep_first", "keep_last", "remove_first", "remove_last")

    def __post_init__(self) -> None:
        """Check that at least one option is given and that none is negative."""
        given = [name for name in self.COUNTS if getattr(self, name) is not None]
        for name in given:
            _check_count(getattr(self, name), _camel(name))
        if isinstance(self.range, Mapping):
            force_setattr(self, "range", _convert(self.range, Range, "$.range"))
        if self.range is not None:
            _check_count(self.range.start, "range.start")
            _check_count(self.range.end, "range.end")
            if self.range.start > self.range.end:
                detail = f"must not be beyond range.end: {self.range.start} > {self.range.end}"
                raise ValidationError(detail, path="$.range.start", rule="truncate")
        if not given and self.range is None:
            detail = "needs one of keepFirst, keepLast, removeFirst, removeLast, range"
            raise ValidationError(detail, path="$", rule="truncate")
        _check_role(self.role, "$.role")
        _set_default(self, "others")
        if self.others not in ("drop", "keep"):
            raise ValidationError('must be "drop" or "keep"', path="$.others", rule="truncate")
        if self.others == "keep" and self.role is None:
            raise ValidationError("goes with a role", path="$.others", rule="truncate")

    def window(self, length: int) -> tuple[int, int]:
        """Return the range that is kept of `length` messages.

        >>> Truncate(keep_first=8, keep_last=3).window(10)
        (5, 8)
        """
        start, stop = 0, length
        if self.keep_first is not None:
            stop = min(stop, self.keep_first)
        if self.keep_last is not None:
            start = max(start, stop - self.keep_last)
        if self.remove_first is not None:
            start = min(stop, start + self.remove_first)
        if self.remove_last is not None:
            stop = max(start, stop - self.remove_last)
        if self.range is not None:
            start, stop = min(stop, start + self.range.start), min(stop, start + self.range.end)
        return start, stop


class Clear(_Operation, frozen=True):
    """Remove all messages; system messages stay unless `keep_system_message` is false."""

    keep_system_message: bool = True

    def __post_init__(self) -> None:
        """Check the flag; None is the default."""
        _set_default(self, "keep_system_message")
        if type(self.keep_system_message) is not bool:
            detail = "must be true or false"
            raise ValidationError(detail, path="$.keepSystemMessage", rule="clear")


class Filter(_Operation, frozen=True, kw_only=True):
    """Keep the messages that match every field; within a field, any entry may match.

    The words are searched for in all content, with their case: text, reasoning, the arguments and
    results of tools, the names of files.
    """

    roles: tuple[Role, ...] | None = None
    content_contains: tuple[str, ...] | None = None
    content_excludes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Check the roles, and that no text is empty."""
        for name in ("roles", "content_contains", "content_excludes"):
            entries = _entries(getattr(self, name), f"$.{_camel(name)}")
            force_setattr(self, name, entries)
            if entries == () and name != "content_excludes":
                detail = "must not be an empty list: nothing would be left"
                raise ValidationError(detail, path=f"$.{_camel(name)}", rule="filter")
        for index, role in enumerate(self.roles or ()):
            _check_role(role, f"$.roles[{index}]", needed=True)
        _check_words(self.content_contains or (), "$.contentContains")
        _check_words(self.content_excludes or (), "$.contentExcludes")

    def keeps(self, message: Message) -> bool:
        """Tell whether a message stays.

        >>> from palaver.messages import user
        >>> Filter(content_contains=["tea"]).keeps(user("more tea?"))
        True
        """
        if self.roles is not None and message.role not in self.roles:
            return False
        if self.content_contains is None and not self.content_excludes:
            return True
        texts = tuple(message.texts)
        wanted, unwanted = self.content_contains or (), self.content_excludes or ()
        if wanted and not any(word in text for word in wanted for text in texts):
            return False
        return not any(word in text for word in unwanted for text in texts)


class Rollback(_Operation, frozen=True):
    """Return to a batch as it ended. Opens no batch."""

    target_batch_index: int

    def __post_init__(self) -> None:
        """Check the number."""
        _check_count(self.target_batch_index, "targetBatchIndex")


Piece: TypeAlias = range | Message | tuple[int, Message]
"""A range of indexes that stay, a new message, or an index and the message that replaces it."""


class Rewrite(Struct, frozen=True):
    """The next selection spelled out: old ranges and new messages in any order, in one batch.

    Compaction uses it to drop a range, insert a summary and clear outputs in one edit. Indexes are
    those of the current selection, or, with `of_log`, positions in the log: then messages that were
    removed before can be selected again. `reason` becomes the reason of the batch that ends. A
    rewrite has no JSON form.
    """

    pieces: tuple[Piece, ...]
    reason: str = "COMPACT"
    of_log: bool = False

    @property
    def messages(self) -> tuple[Message, ...]:
        """The new messages, in order."""
        return tuple(
            piece[1] if isinstance(piece, tuple) else piece
            for piece in self.pieces
            if not isinstance(piece, range)
        )

    def origins(self) -> Iterator[tuple[int, int]]:
        """Yield which new message (counted from 0) replaces which index."""
        count = 0
        for piece in self.pieces:
            if isinstance(piece, tuple):
                yield count, piece[0]
            count += not isinstance(piece, range)


Edit: TypeAlias = Insert | Replace | Truncate | Clear | Filter | Rewrite
"""An operation that ends the open batch and begins the next one."""
Operation: TypeAlias = Append | Insert | Replace | Truncate | Clear | Filter | Rollback
OperationInput: TypeAlias = (
    Operation
    | Rewrite
    | Mapping[str, Any]
    | bytes
    | str
    | Iterable[Operation | Rewrite | Mapping[str, Any]]
)
"""An operation as a value or as JSON, or a list of them."""
_KINDS = {str(kind.__struct_config__.tag): kind for kind in get_args(Operation)}


def parse_operation(data: bytes | str | Mapping[str, Any]) -> Operation:
    """Read an operation from JSON, or from a dict that holds JSON.

    >>> parse_operation('{"operation": "INSERT", "position": 3, "messages": []}')
    Insert(position=3, messages=())
    >>> parse_operation({"operation": "EXPLODE"})
    Traceback (most recent call last):
    palaver.errors.UnsupportedOperation: Unsupported operation type: EXPLODE
    """
    return _parse_object(load_json(data) if isinstance(data, bytes | str) else data)


def _parse_object(value: object) -> Operation:
    if not isinstance(value, Mapping):
        raise ValidationError("must be an operation, an object", rule="operation")
    name = value.get("operation")
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        if "operation" not in value:
            raise ValidationError("is missing", path="$.operation", rule="operation")
        raise UnsupportedOperation(name)
    optional = kind.__struct_fields__[len(kind.__struct_fields__) - len(kind.__struct_defaults__) :]
    nulls = {_camel(field) for field in optional if value.get(_camel(field), value) is None}
    fields = {field: given for field, given in value.items() if field not in nulls}
    if "messages" in fields and kind in (Append, Insert):
        fields["messages"] = read_messages(fields["messages"])
    if "message" in fields and kind is Replace:
        fields["message"] = _under("$.message", parse_message, fields["message"])
    operation: Operation = _convert(fields, kind, "$")
    return operation


def as_operation(operation: Operation | Mapping[str, Any] | bytes | str) -> Operation:
    """Return an operation as it is, or parse it; `UnsupportedOperation` for anything else."""
    if isinstance(operation, Mapping | bytes | str):
        return parse_operation(operation)
    given: object = operation
    if not isinstance(given, tuple(_KINDS.values())):
        raise UnsupportedOperation(type(given).__name__)
    return operation


def as_operations(given: OperationInput) -> Operation | Rewrite | list[Operation | Rewrite]:
    """Return an operation, or a list of them, as it is or parsed.

    >>> as_operations('[{"operation": "CLEAR"}]')
    [Clear(keep_system_message=True)]
    """
    value: object = load_json(given) if isinstance(given, bytes | str) else given
    if isinstance(value, Rewrite):
        return value
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        return as_operation(cast("Mapping[str, Any]", value))
    operations = list(_read_list(value))
    if not operations:
        raise ValidationError("must have an operation", rule="operation")
    return operations


def parse_operations(data: bytes | str | Iterable[Mapping[str, Any]]) -> list[Operation]:
    """Read a list of operations, all or none; an error's path begins with the index.

    >>> [operation.operation for operation in parse_operations('[{"operation": "CLEAR"}]')]
    ['CLEAR']
    """
    values = load_json(data) if isinstance(data, bytes | str) else data
    if isinstance(values, Mapping) or not isinstance(values, Iterable):
        raise ValidationError("must be a list of operations", rule="operation")
    return cast("list[Operation]", list(_read_list(values)))


def _read_list(values: Iterable[Any]) -> Iterator[Operation | Rewrite]:
    for index, value in enumerate(values):
        try:
            known = isinstance(value, (*_KINDS.values(), Rewrite))
            yield value if known else _parse_object(value)
        except ValidationError as error:
            raise error.under(f"$[{index}]") from None
        except UnsupportedOperation as error:
            raise UnsupportedOperation(error.operation, path=f"$[{index}].operation") from None


def _convert(value: Mapping[str, Any], kind: type[Any], path: str) -> Any:  # noqa: ANN401 - kind's
    try:
        # messages are values already: as attributes they pass through unread
        return convert(value, kind)
    except msgspec.ValidationError as error:
        found = translate_error(error, {}).under(path)
        rule = "operation" if found.rule == "schema" else found.rule
        raise ValidationError(found.detail, path=found.path, rule=rule) from None


def read_messages(value: object) -> tuple[Message, ...]:
    """Return a list of messages, given as values or as JSON data; errors name the index."""
    if isinstance(value, Message | Mapping | str | bytes) or not isinstance(value, Iterable):
        detail = f"must be a list of messages, not {describe_argument(value)}: write [user('…')]"
        raise ValidationError(detail, path="$.messages", rule="operation")
    messages = tuple(value)
    if {*map(type, messages)} <= {Message}:
        return messages
    for index, message in enumerate(messages):
        if isinstance(message, str):
            detail = f"must be a message, not text; write user({quote_value(message)})"
            raise ValidationError(detail, path=f"$.messages[{index}]", rule="schema")
    return tuple(_under("$.messages", parse_messages, messages))


def _under(path: str, parse: Any, value: object) -> Any:  # noqa: ANN401 - a parser and what it gives
    try:
        return parse(value)
    except ValidationError as error:
        raise error.under(path) from None


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _check_count(value: object, name: str) -> None:
    if type(value) is not int:
        detail = f"must be a whole number, not {value!r}"
        raise ValidationError(detail, path=f"$.{name}", rule="operation")
    if value < 0:
        raise ValidationError(f"must not be negative: {value}", path=f"$.{name}", rule="operation")


def _set_default(operation: _Operation, name: str) -> None:
    """Put the default of a field in the place of None."""
    if getattr(operation, name) is None:
        fields, defaults = operation.__struct_fields__, operation.__struct_defaults__
        force_setattr(operation, name, defaults[fields.index(name) - len(fields)])


def _check_role(role: object, path: str, *, needed: bool = False) -> None:
    if (role is not None or needed) and role not in ROLES:
        detail = f"must be system, user, assistant or tool, not {role!r}"
        raise ValidationError(detail, path=path, rule="role")


def _entries(value: object, path: str) -> tuple[Any, ...] | None:
    if value is None:
        return None
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ValidationError("must be a list", path=path, rule="filter")
    return tuple(value)


def _check_words(words: Iterable[object], path: str) -> None:
    for index, word in enumerate(words):
        if not isinstance(word, str) or not word:
            detail = "must not be empty" if word == "" else "must be text"
            raise ValidationError(detail, path=f"{path}[{index}]", rule="filter")
