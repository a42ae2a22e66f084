"""What a model is: a client that sends one request and returns the provider's own JSON.

A model knows nothing of histories. It gets the fields of a request that `palaver.wire` has written,
adds what the provider expects beside them, and returns the provider's events unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from palaver.errors import ValidationError
from palaver.messages.limits import EMPTY, is_object
from palaver.wire import ToolSpec

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from palaver.messages.parts import ModelRef
    from palaver.wire.request import Target

__all__ = ["OPTIONS", "Model", "ModelRequest", "merge_fields"]

OPTIONS: Final = frozenset(
    ("temperature", "top_p", "max_tokens", "stop", "tool_choice", "schema", "extra")
)
"""The options that every model takes; `extra` holds fields of the provider's own."""


class ModelRequest(Struct, frozen=True):
    """One request to a model.

    `body` holds the conversation in the provider's format (`wire.Request.body`), `names` the tools'
    own names by those in the body (`wire.Request.names`). `options` are those of `OPTIONS`:
    `tool_choice` is `auto`, `none`, `required` or a tool's own name, `schema` is a JSON schema for
    the answer's text, `extra` is merged over the request.

    >>> ModelRequest({"messages": []}, options={"temprature": 1}).check()
    Traceback (most recent call last):
        ...
    palaver.errors.ValidationError: $.options.temprature: unknown option; known are ... [option]
    """

    body: Mapping[str, Any]
    tools: tuple[ToolSpec, ...] = ()
    names: Mapping[str, str] = EMPTY
    options: Mapping[str, Any] = EMPTY

    def check(self) -> ModelRequest:
        """Return this request; raise `ValidationError` for an unknown option or tool choice."""
        for name in self.options:
            if name not in OPTIONS:
                detail = f"unknown option; known are {', '.join(sorted(OPTIONS))}"
                raise ValidationError(detail, path=f"$.options.{name}", rule="option")
        choice = self.options.get("tool_choice")
        if choice is not None and choice not in ("auto", "none"):
            known = [tool.name for tool in self.tools]
            if choice not in known and not (choice == "required" and known):
                detail = f"{choice!r} is not among the tools: {', '.join(known) or 'none'}"
                raise ValidationError(detail, path="$.options.tool_choice", rule="option")
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The options that are set: not None, and without `extra`."""
        return {
            name: value
            for name, value in self.options.items()
            if value is not None and name != "extra"
        }

    @property
    def extra(self) -> Mapping[str, Any]:
        """The provider's own fields, to be merged over the request."""
        return self.options.get("extra") or EMPTY


class Model(Protocol):
    """A model that can be asked. To add one, write a class with these seven members."""

    @property
    def ref(self) -> ModelRef:
        """The provider's id and the model's id."""
        ...

    @property
    def format(self) -> str:
        """The name of the wire format that it speaks."""
        ...

    @property
    def window(self) -> int | None:
        """The size of its context window in tokens, if it is known."""
        ...

    @property
    def target(self) -> Target:
        """Which kinds of content it accepts."""
        ...

    def stream(self, request: ModelRequest, /) -> AsyncGenerator[Mapping[str, Any]]:
        """Send a request and yield the provider's stream events as they arrive."""
        ...

    async def complete(self, request: ModelRequest, /) -> Mapping[str, Any]:
        """Send a request and return the provider's complete answer."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def merge_fields(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge one JSON object over another, and the objects inside them likewise.

    >>> merge_fields({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}, "d": 4})
    {'a': {'b': 1, 'c': 3}, 'd': 4}
    """
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        if is_object(below) and is_object(value):
            value = merge_fields(below, value)  # noqa: PLW2901 - the merged one
        merged[name] = value
    return merged
