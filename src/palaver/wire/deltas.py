"""What came in with one event of a stream, the same small values for every provider."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from palaver.messages.parts import TokenCounts

__all__ = [
    "CallDelta",
    "CallReady",
    "CallStarted",
    "Delta",
    "Failed",
    "Finished",
    "ReasoningDelta",
    "TextDelta",
    "UsageDelta",
]


class TextDelta(Struct, frozen=True, tag=True):
    """More of what the model says."""

    text: str


class ReasoningDelta(Struct, frozen=True, tag=True):
    """More of what the model thinks."""

    text: str


class CallStarted(Struct, frozen=True, tag=True):
    """The model begins to call a tool; `index` tells the calls of an answer apart."""

    index: int
    call_id: str
    tool: str


class CallDelta(Struct, frozen=True, tag=True):
    """More of a call's arguments."""

    index: int
    text: str


class CallReady(Struct, frozen=True, tag=True):
    """A call is whole, with its arguments to the letter."""

    index: int
    call_id: str
    tool: str
    raw: str


class UsageDelta(Struct, frozen=True, tag=True):
    """The tokens used so far, by the provider's count."""

    tokens: TokenCounts


class Finished(Struct, frozen=True, tag=True):
    """The answer is over: `stop`, `tool-calls`, `length`, `content-filter`, `error` or `other`."""

    reason: str


class Failed(Struct, frozen=True, tag=True):
    """The provider broke off, and says why."""

    name: str
    message: str


Delta: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | CallStarted
    | CallDelta
    | CallReady
    | UsageDelta
    | Finished
    | Failed
)
