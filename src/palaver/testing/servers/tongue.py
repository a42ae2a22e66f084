"""What a provider's protocol has to say for itself, so that a server can speak it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.testing.servers.script import Refusal, Turn

__all__ = ["Tongue", "data", "event"]


class Tongue(ABC):
    """A provider's paths, headers, answers, streams and errors."""

    base: ClassVar[str] = ""
    """What follows the host in the address that a client is given."""

    @abstractmethod
    def knows(self, path: str) -> bool:
        """Tell whether the provider has this path."""

    @abstractmethod
    def authorised(self, headers: Mapping[str, str]) -> bool:
        """Tell whether a key was sent."""

    def streams(self, path: str, body: Mapping[str, Any]) -> bool:
        """Tell whether a stream is asked for."""
        del path
        return body.get("stream") is True

    def model(self, path: str, body: Mapping[str, Any]) -> str:
        """The model that is asked."""
        del path
        return str(body.get("model", ""))

    @abstractmethod
    def said(self, body: Mapping[str, Any]) -> str:
        """The last words of the request, for an echo."""

    @abstractmethod
    def whole(self, turn: Turn) -> dict[str, Any]:
        """A whole answer."""

    @abstractmethod
    def stream(self, turn: Turn) -> Iterator[bytes]:
        """The events of a stream, as they go over the line."""

    @abstractmethod
    def refusal(self, refusal: Refusal) -> dict[str, Any]:
        """An error."""


def data(value: object, end: str = "\n\n") -> bytes:
    r"""An event without a name.

    >>> data({"a": 1})
    b'data: {"a":1}\n\n'
    """
    return b"data: " + msgspec.json.encode(value) + end.encode()


def event(name: str, value: object) -> bytes:
    r"""An event with a name.

    >>> event("ping", {})
    b'event: ping\ndata: {}\n\n'
    """
    return f"event: {name}\n".encode() + data(value)
