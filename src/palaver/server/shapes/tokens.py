"""Tokens: how full the window is, what was used, and making room."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from palaver.messages import Message, Role, TokenCounts
from palaver.server.bodies import Shape
from palaver.server.shapes.changes import Size

__all__ = ["ByRole", "Compacted", "Compacting", "Gone", "Saved", "Share", "Tokens", "Used"]

Count = Annotated[int, Meta(ge=0)]


class ByRole(Shape, frozen=True):
    """How many tokens each role has."""

    system: int = 0
    user: int = 0
    assistant: int = 0
    tool: int = 0


class Share(Shape, frozen=True):
    """What one message takes, or a stretch of neighbours; a stretch of several roles has none."""

    start: int
    stop: int
    tokens: int
    index: int | UnsetType = UNSET
    role: Role | UnsetType = UNSET


class Used(Shape, frozen=True):
    """What the last answer used, and all of them together; nobody may know the cost."""

    last: TokenCounts | None
    total: TokenCounts
    cost: float | None
    calls: int
    prompt_tokens: int
    completion_tokens: int


class Tokens(Shape, frozen=True):
    """How full the window is.

    `total` is the provider's figure, carried forward, where there is one (`source` is `api`), else
    our own count. `limit` is where one should make room.
    """

    version: int
    total: int
    source: Literal["api", "tokenizer", "estimate"]
    limit: int | None
    window: int | None
    model: str
    by_role: ByRole
    items: list[Share]
    usage: Used


class Compacting(Shape, frozen=True):
    """A way to make room, and how much of it; a preview changes nothing.

    `keep_tokens` is for `drop-oldest` and `summarise`, `protect_tokens`, `protect_turns` and
    `least_gain` are for `clear-outputs`, `model` and `instructions` for `summarise`. What a preview
    showed is what happens when the same is asked for without it.
    """

    kind: Literal["clear-outputs", "drop-oldest", "summarise"]
    preview: bool = False
    keep_tokens: Count = 1_000
    protect_tokens: Count = 1_000
    protect_turns: Count = 1
    least_gain: Count = 1
    keep_roles: list[Role] | None = None
    model: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    instructions: Annotated[str, Meta(min_length=1, max_length=20_000)] | None = None


class Gone(Shape, frozen=True):
    """A message that goes, by its index before."""

    index: int
    id: str
    role: Role
    tokens: int
    text: str


class Saved(Shape, frozen=True):
    """What making room came to."""

    strategy: str
    detail: str
    saved: int


class Compacted(Shape, frozen=True):
    """What making room does, or did: `done` says which.

    `removed` are the messages that go, `added` those that come, in the places of the first that go.
    Where there is nothing to gain both are empty and `result` is None.
    """

    version: int
    done: bool
    before: Size
    after: Size
    removed: list[Gone]
    added: list[Message]
    cache_lost: int
    result: Saved | None
