"""The nodes' settings, as values that check themselves; in JSON and YAML they are camelCase.

Whoever holds one can trust it: what has no meaning is refused when it is read, by a path such as
`$.strategies[0].keepTokens`. The settings of the context node are operations; see `context`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, field

from palaver.conversation.models.base import OPTIONS
from palaver.errors import ValidationError
from palaver.messages import Role
from palaver.messages.gate import path_step

__all__ = [
    "Approve",
    "Choose",
    "ClearingRoom",
    "CompressConfig",
    "DroppingRoom",
    "Edit",
    "HumanConfig",
    "LLMConfig",
    "Reply",
    "Room",
    "SummarisingRoom",
    "ToolConfig",
]

Word: TypeAlias = Annotated[str, Meta(min_length=1)]
Some: TypeAlias = Annotated[int, Meta(ge=1)]
Whole: TypeAlias = Annotated[int, Meta(ge=0)]


class _Config(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True,
    rename="camel",
):  # fmt: skip
    """What all settings have in common."""


class LLMConfig(_Config, frozen=True, kw_only=True):
    """The model node: which model is asked, with which of the tools, and how.

    `model` is a name such as `openai:gpt-5`; without it the conversation's own is asked. `tools`
    are names of the conversation's tools; without it the model is told of all of them.
    """

    model: Word | None = None
    tools: tuple[Word, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        """Check that the options are known."""
        for name in self.options:
            if name not in OPTIONS:
                detail = f"no such option; there are {', '.join(sorted(OPTIONS))}"
                raise ValidationError(detail, path=f"$.options{path_step(name)}", rule="ND-01")


class ToolConfig(_Config, frozen=True, kw_only=True):
    """The tool node: which tools' calls a human has to approve: all, or some, by name."""

    approval: Literal["none", "all"] | tuple[Word, ...] = "none"

    def gates(self, tool: str) -> bool:
        """Tell whether a human has to approve a tool's calls.

        >>> ToolConfig(approval=("pay",)).gates("pay"), ToolConfig().gates("pay")
        (True, False)
        """
        if isinstance(self.approval, str):
            return self.approval == "all"
        return tool in self.approval


class _Asking(_Config, frozen=True, kw_only=True, tag_field="kind"):
    """What every question to a human has."""

    prompt: str = ""


class Approve(_Asking, frozen=True, kw_only=True, tag="approve"):
    """Ask whether tool calls may run: those of some tools, or all that wait."""

    tools: tuple[Word, ...] | None = None


class Reply(_Asking, frozen=True, kw_only=True, tag="text"):
    """Ask for words, which become a user's message.

    With `keepPrompt` the question itself is kept before them, as the assistant's.
    """

    keep_prompt: bool = False


class Choose(_Asking, frozen=True, kw_only=True, tag="choose"):
    """Ask for one of several options, which becomes a user's message."""

    options: Annotated[tuple[Word, ...], Meta(min_length=2)]
    keep_prompt: bool = False

    def __post_init__(self) -> None:
        """Check that they can be told apart."""
        for place, option in enumerate(self.options):
            if option in self.options[:place]:
                detail = f"{option!r} stands twice"
                raise ValidationError(detail, path=f"$.options[{place}]", rule="ND-01")


class Edit(_Asking, frozen=True, kw_only=True, tag="edit"):
    """Ask for a better text of the last message of a role; it is replaced, and undo returns it."""

    role: Role = "assistant"


HumanConfig: TypeAlias = Approve | Reply | Choose | Edit
"""The human node: one of four questions, by `kind`."""


class _Room(_Config, frozen=True, kw_only=True, tag_field="kind"):
    """What every way to make room has: the roles that stay to the letter, beside the marked."""

    keep_roles: tuple[Role, ...] | None = None


class ClearingRoom(_Room, frozen=True, kw_only=True, tag="clear-outputs"):
    """Take old tool outputs away and keep the calls."""

    protect_tokens: Whole = 40_000
    protect_turns: Whole = 2
    least_gain: Whole = 20_000


class DroppingRoom(_Room, frozen=True, kw_only=True, tag="drop-oldest"):
    """Drop the oldest turns until no more than `keepTokens` are left."""

    keep_tokens: Whole


class SummarisingRoom(_Room, frozen=True, kw_only=True, tag="summarise"):
    """Have a model sum up everything but the newest `keepTokens`."""

    model: Word | None = None
    keep_tokens: Whole = 4_000
    max_tokens: Some = 1_024
    instructions: Word | None = None


Room: TypeAlias = ClearingRoom | DroppingRoom | SummarisingRoom
"""A way to make room, by `kind`."""


class CompressConfig(_Config, frozen=True, kw_only=True):
    """The compression node: ways to make room, tried in order until there is enough.

    Enough is `limit` tokens, or else the conversation's own limit; without any, each is tried once.
    """

    limit: Some | None = None
    strategies: Annotated[tuple[Room, ...], Meta(min_length=1)] = (ClearingRoom(),)
