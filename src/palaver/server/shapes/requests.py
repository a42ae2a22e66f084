"""The exact request that a provider would get, and what had to be repaired for it."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType, field

from palaver.server.bodies import Shape

__all__ = ["Form", "Repair", "RequestShown"]

Form = Literal["openai-chat", "openai-responses", "anthropic", "gemini"]


class Repair(Shape, frozen=True):
    """One thing that was repaired or left out: where, what was done, and why.

    `refused` says that the provider would not have taken it as it was.
    """

    action: Literal["repaired", "lost"]
    path: str
    what: str
    why: str
    rule: str
    refused: bool
    message_id: str | UnsetType = field(default=UNSET, name="messageID")


class RequestShown(Shape, frozen=True):
    """What a provider would be sent now; `problems` are the notes about what it would refuse."""

    version: int
    format: Form
    model: str | None
    request: dict[str, Any]
    notes: list[Repair]
    problems: list[Repair]
    tokens: int
