"""What a model is to palaver: something that is asked, and answers in its provider's own JSON.

A model knows nothing of histories. It gets the fields of a request that `palaver.wire` has written,
adds what the provider wants beside them, and hands on what comes back, to the letter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from palaver.errors import ValidationError
from palaver.messages.gate import EMPTY, is_object
from palaver.wire.tools import ToolSpec

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from palaver.messages.parts import ModelRef
    from palaver.wire.target import Target

__all__ = ["OPTIONS", "Ask", "Model", "merged"]

OPTIONS: Final = frozenset(
    ("temperature", "top_p", "max_tokens", "stop", "tool_choice", "schema", "extra")
)
"""What can be asked of any model; `extra` holds fields of the provider's own."""


class Ask(Struct, frozen=True):
    """One question to a model.

    `body` holds the conversation as the provider takes it (`wire.Request.body`), `names` the tools'
    own names by those in the body (`wire.Request.names`). `options` are those of `OPTIONS`;
    `tool_choice` is `auto`, `none`, `required` or a tool's own name, `schema` the JSON schema that
    the answer's text has to fit, `extra` is laid over the request as it stands.

    >>> Ask({"messages": []}, options={"temprature": 1}).checked()
    Traceback (most recent call last):
        ...
    palaver.errors.ValidationError: $.options.temprature: no such option; there are ... [option]
    """

    body: Mapping[str, Any]
    tools: tuple[ToolSpec, ...] = ()
    names: Mapping[str, str] = EMPTY
    options: Mapping[str, Any] = EMPTY

    def checked(self) -> Ask:
        """The same, if all its options are known and the tool that is chosen is there."""
        for name in self.options:
            if name not in OPTIONS:
                known = ", ".join(sorted(OPTIONS))
                detail = f"no such option; there are {known}"
                raise ValidationError(detail, path=f"$.options.{name}", rule="option")
        choice = self.options.get("tool_choice")
        if choice is not None and choice not in ("auto", "none"):
            known_tools = [tool.name for tool in self.tools]
            if choice not in known_tools and not (choice == "required" and known_tools):
                detail = f"{choice!r} is not among the tools: {', '.join(known_tools) or 'none'}"
                raise ValidationError(detail, path="$.options.tool_choice", rule="option")
        return self

    @property
    def wants(self) -> dict[str, Any]:
        """The options that are set: not None, and not `extra`."""
        return {
            name: value
            for name, value in self.options.items()
            if value is not None and name != "extra"
        }

    @property
    def extra(self) -> Mapping[str, Any]:
        """The provider's own fields."""
        return self.options.get("extra") or EMPTY


class Model(Protocol):
    """A model that can be asked; adding one is a class with these six things."""

    @property
    def ref(self) -> ModelRef:
        """Whose it is, and which."""
        ...

    @property
    def format(self) -> str:
        """The wire format it speaks, by name."""
        ...

    @property
    def window(self) -> int | None:
        """How many tokens go into it, where that is known."""
        ...

    @property
    def target(self) -> Target:
        """What it can take."""
        ...

    def stream(self, ask: Ask) -> AsyncGenerator[Mapping[str, Any]]:
        """Ask, and give the provider's stream events as they arrive."""
        ...

    async def whole(self, ask: Ask) -> Mapping[str, Any]:
        """Ask, and give the provider's whole answer."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one object over another, and the objects in them likewise.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}, "d": 4})
    {'a': {'b': 1, 'c': 3}, 'd': 4}
    """
    both = dict(under)
    for name, value in over.items():
        below = both.get(name)
        both[name] = merged(below, value) if is_object(below) and is_object(value) else value
    return both
