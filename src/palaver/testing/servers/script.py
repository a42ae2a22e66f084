"""The script of a test server: answers and failures, and how a provider's protocol encodes them.

A script is a list of these values, one for each request. A plain text is an answer; a function gets
the request and returns one of these. After the last one, the server repeats the request's text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from palaver.messages.limits import is_list, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Answer",
    "Call",
    "Exchange",
    "Garbage",
    "HangUp",
    "PendingAnswer",
    "ProviderProtocol",
    "Refusal",
    "ReportedUsage",
    "Scripted",
    "Silence",
    "encode_data",
    "encode_event",
    "last_text",
    "split_text",
]


class Call(Struct, frozen=True):
    """A tool call. Arguments that are a text are sent unchanged."""

    name: str
    arguments: Mapping[str, Any] | str = ""
    id: str | None = None

    @property
    def raw(self) -> str:
        """The arguments as JSON."""
        if isinstance(self.arguments, str):
            return self.arguments or "{}"
        return msgspec.json.encode(self.arguments).decode()


class ReportedUsage(Struct, frozen=True):
    """The usage that an answer reports: `cached` is part of `input`, `reasoning` of `output`."""

    input: int
    output: int
    cached: int = 0
    reasoning: int = 0


class Answer(Struct, frozen=True):
    """An answer: reasoning, text and calls, streamed in pieces of `piece` characters.

    `finish` is the provider's own word; by default a matching one. `delay` is the time between two
    events, `start_after` the time before the first. `cut_after` closes the connection after so
    many events, or after half of a whole answer; `cleanly` as if all were well.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    usage: ReportedUsage | None = None
    finish: str | None = None
    piece: int = 8
    delay: float = 0.0
    start_after: float = 0.0
    cut_after: int | None = None
    cleanly: bool = False


class Refusal(Struct, frozen=True):
    """An error in the provider's own form. `retry_after` is in seconds."""

    status: int
    message: str = "refused by the script"
    code: str | None = None
    retry_after: float | None = None


class Garbage(Struct, frozen=True):
    """Bytes that are no answer, with status 200."""

    data: bytes = b"data: {\x00\xff not json\n\n"


class Silence(Struct, frozen=True):
    """The request is accepted, and nothing is ever sent."""


class HangUp(Struct, frozen=True):
    """The connection is closed at once."""


class Exchange(Struct):
    """One request that a server got, and what became of it.

    `problems` says what the provider would have refused; `aborted`, that the client went away
    before it had the whole answer.
    """

    path: str
    headers: Mapping[str, str]
    body: Any
    problems: tuple[str, ...] = ()
    status: int | None = None
    aborted: bool = False


Scripted: TypeAlias = (
    Answer | Refusal | Garbage | Silence | HangUp | str | Callable[[Exchange], "Scripted"]
)


class PendingAnswer(NamedTuple):
    """An answer of the script, with what the server knows about the request."""

    answer: Answer
    number: int
    model: str
    usage: ReportedUsage
    body: Mapping[str, Any]

    def call_id(self, place: int, prefix: str) -> str:
        """The id of a call."""
        return self.answer.calls[place].id or f"{prefix}{self.number}_{place}"


def split_text(text: str, size: int) -> list[str]:
    """Split a text into pieces.

    >>> split_text("abcde", 2)
    ['ab', 'cd', 'e']
    """
    return [text[start : start + size] for start in range(0, len(text), max(1, size))]


class ProviderProtocol(ABC):
    """A provider's paths, headers, answers, streams and errors, so that a server can speak it."""

    base: ClassVar[str] = ""
    """The path that follows the host in the base address for clients."""

    @abstractmethod
    def has_path(self, path: str) -> bool:
        """Tell whether the provider has this path."""

    @abstractmethod
    def is_authorized(self, headers: Mapping[str, str]) -> bool:
        """Tell whether a key was sent."""

    def streams(self, path: str, body: Mapping[str, Any]) -> bool:
        """Tell whether the request asks for a stream."""
        del path
        return body.get("stream") is True

    def model(self, path: str, body: Mapping[str, Any]) -> str:
        """The model that the request names."""
        del path
        return str(body.get("model", ""))

    @abstractmethod
    def last_text(self, body: Mapping[str, Any]) -> str:
        """The last text of the request, which the server repeats."""

    @abstractmethod
    def encode_answer(self, turn: PendingAnswer) -> dict[str, Any]:
        """The body of an answer that is not streamed."""

    @abstractmethod
    def stream(self, turn: PendingAnswer) -> Iterator[bytes]:
        """The events of a stream, encoded."""

    @abstractmethod
    def encode_error(self, refusal: Refusal) -> dict[str, Any]:
        """The body of an error."""


def encode_data(value: object, end: str = "\n\n") -> bytes:
    r"""Encode an event without a name.

    >>> encode_data({"a": 1})
    b'data: {"a":1}\n\n'
    """
    return b"data: " + msgspec.json.encode(value) + end.encode()


def encode_event(name: str, value: object) -> bytes:
    r"""Encode an event with a name.

    >>> encode_event("ping", {})
    b'event: ping\ndata: {}\n\n'
    """
    return f"event: {name}\n".encode() + encode_data(value)


def last_text(content: object) -> str:
    """The text of a content: a string, or the text of the last block that has one.

    >>> last_text([{"type": "text", "text": "Tea?"}])
    'Tea?'
    """
    if isinstance(content, str):
        return content
    found = ""
    for block in content if is_list(content) else ():
        text = block.get("text") if is_object(block) else None
        found = text if isinstance(text, str) else found
    return found
