"""Messages of a file, each beside the JSON it came as, so that it can be printed as it was.

Reading gives a message an id and a time where it has none; printing the JSON it came as leaves
those out again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from palaver.cli.manners import name_of, open_input
from palaver.errors import ValidationError
from palaver.history import Append, Insert, Operation, Replace, parse_operation
from palaver.messages import MAX_DOCUMENT, Message, parse_messages
from palaver.messages.codec import load_json
from palaver.messages.duplicates import DUPLICATE

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Originals", "load_list"]


class Originals:
    """What each message looked like in the file."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}
        self._alive: list[Message] = []  # an id of Python's is good for as long as its object is

    def messages(self, raw: list[Any]) -> list[Message]:
        """Read messages and remember each one's JSON."""
        messages = parse_messages(raw)
        self._remember(messages, raw)
        return messages

    def operation(self, raw: Mapping[str, Any]) -> Operation:
        """Read an operation and remember the JSON of the messages in it."""
        operation = parse_operation(raw)
        if isinstance(operation, Append | Insert):
            self._remember(operation.messages, raw["messages"])
        elif isinstance(operation, Replace):
            self._remember([operation.message], [raw["message"]])
        return operation

    def _remember(self, messages: Iterable[Message], raw: Iterable[Any]) -> None:
        for message, original in zip(messages, raw, strict=True):
            self._known[id(message)] = original
            self._alive.append(message)

    def json_of(self, message: Message) -> Any:  # noqa: ANN401 - an object, as it came
        """The JSON that a message came as."""
        return self._known[id(message)]


def load_list(file: str, what: str) -> list[Any]:
    """The list that FILE holds, as a JSON array or as JSON lines."""
    with open_input(file) as (stream, _):
        data = stream.read(MAX_DOCUMENT + 1)
    try:
        value = load_json(data)
    except ValidationError as error:
        lines = [line for line in data.splitlines() if line.strip()]
        is_document = len(lines) < 2 or data.lstrip()[:1] == b"["  # noqa: PLR2004 - one line
        if is_document or error.rule == DUPLICATE:
            raise _of_file(error, file) from None
        value = _lines(lines, file)
    if isinstance(value, Mapping) and isinstance(value.get("messages"), list):
        value = value["messages"]
    if not isinstance(value, list):
        raise _of_file(ValidationError(f"must be a list of {what}"), file)
    return value


def _lines(lines: list[bytes], file: str) -> list[Any]:
    found: list[Any] = []
    for number, line in enumerate(lines):
        try:
            found.append(load_json(line))
        except ValidationError as error:
            raise _of_file(error.under(f"$[{number}]"), file) from None
    return found


def _of_file(error: ValidationError, file: str) -> ValidationError:
    return ValidationError(f"{error.detail} (in {name_of(file)})", path=error.path, rule=error.rule)
