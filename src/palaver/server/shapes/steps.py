"""Steps and tool calls: what is asked for, what can be seen of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, field

from palaver.messages import ToolState
from palaver.server.bodies import Shape
from palaver.server.drafts import Draft

__all__ = ["Call", "Calls", "Settling", "StepAsked", "StepBegun", "StepSeen"]

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Options = Annotated[
    dict[str, Any],
    Meta(
        description="what can be asked of any model, such as temperature or max_tokens",
        extra_json_schema={
            "properties": {
                "temperature": {"type": "number"},
                "top_p": {"type": "number"},
                "max_tokens": {"type": "integer", "minimum": 1},
                "tool_choice": {"type": "string"},
            }
        },
    ),
]


class StepAsked(Shape, frozen=True):
    """A step to take.

    `text` is said first. `tools` are all there are, none, or some by name; with `loop` they run,
    and the model is asked again until it answers. Without a `model` the server's own is asked.
    """

    text: Annotated[str, Meta(min_length=1)] | None = None
    model: Name | None = None
    tools: bool | list[Name] = False
    loop: bool = True
    options: Options = field(default_factory=dict[str, Any])


class StepBegun(Shape, frozen=True):
    """The step that has begun; None where the same words, by their key, were answered before."""

    step: str | None
    version: int


class StepSeen(Shape, frozen=True):
    """Whether a step is under way, and what has arrived of its answer.

    `elsewhere` says that another process is at it, or was until it was killed.
    """

    running: bool
    elsewhere: bool = False
    step: str | UnsetType = UNSET
    since: int | UnsetType = UNSET
    model: str | UnsetType = UNSET
    draft: Draft | UnsetType = UNSET


class Call(Shape, frozen=True):
    """A tool call that has no result in the conversation yet.

    `asks_first` says that a person has to allow it; a `stray` one has left the conversation. One
    that waits has a `digest` of its tool, its arguments and the version of its message, and the
    state shows the same arguments: whoever lets it run or denies it sends the digest back.
    """

    id: str
    call_id: str = field(name="callID")
    message_id: str = field(name="messageID")
    tool: str
    state: ToolState
    asks_first: bool
    stray: bool
    digest: str | UnsetType = UNSET


class Calls(Shape, frozen=True):
    """The calls that have no result yet, in order."""

    version: int
    items: list[Call]


class Settling(Shape, frozen=True):
    """What is to become of a call: it runs, or is denied with a reason that the model is told.

    `digest` is that of the call as it was shown; a call that is another one by now is refused, and
    waits on. When no other call waits the model is asked again, as a step would, unless `loop` is
    false.
    """

    action: Literal["run", "deny"]
    digest: Digest
    reason: Annotated[str, Meta(min_length=1, max_length=2_000)] | None = None
    model: Name | None = None
    tools: bool | list[Name] = True
    loop: bool = True
    options: Options = field(default_factory=dict[str, Any])
