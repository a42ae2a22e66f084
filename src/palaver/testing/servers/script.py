"""What a server of `palaver.testing` is to answer: answers, and every way not to answer.

A script is a list of these, taken one for each request. A plain text is an answer; a function gets
the request and gives one of these; after the last one, the server repeats what it was told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

__all__ = [
    "Answer",
    "Call",
    "Exchange",
    "Garbage",
    "HangUp",
    "Refusal",
    "Scripted",
    "Silence",
    "Turn",
    "Usage",
    "pieces",
]


class Call(Struct, frozen=True):
    """A tool call. Arguments may be a text, and then go out to the letter."""

    name: str
    arguments: Mapping[str, Any] | str = ""
    id: str | None = None

    @property
    def raw(self) -> str:
        """The arguments as JSON."""
        if isinstance(self.arguments, str):
            return self.arguments or "{}"
        return msgspec.json.encode(self.arguments).decode()


class Usage(Struct, frozen=True):
    """What an answer is said to have cost: `cached` is part of `input`, `reasoning` of `output`."""

    input: int
    output: int
    cached: int = 0
    reasoning: int = 0


class Answer(Struct, frozen=True):
    """An answer: what was thought, said and called, in pieces of so many characters.

    `finish` is the provider's own word; by default the one that fits. `delay` is the time between
    two events, `start_after` the time before the first. `cut_after` closes the connection after so
    many events, or after half of a whole answer; `cleanly` as if all were well.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    usage: Usage | None = None
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
    """The request is taken, and nothing ever comes."""


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


class Turn(NamedTuple):
    """An answer about to be given: the script's, and what the server knows beside it."""

    answer: Answer
    number: int
    model: str
    usage: Usage
    body: Mapping[str, Any]

    def call_id(self, place: int, prefix: str) -> str:
        """The id of a call."""
        return self.answer.calls[place].id or f"{prefix}{self.number}_{place}"


def pieces(text: str, size: int) -> list[str]:
    """Cut a text into pieces.

    >>> pieces("abcde", 2)
    ['ab', 'cd', 'e']
    """
    return [text[start : start + size] for start in range(0, len(text), max(1, size))]
