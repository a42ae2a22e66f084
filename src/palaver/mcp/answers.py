"""What the tools answer: plain values, whose fields and notes become the tools' schemas."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "Change",
    "Conversation",
    "Conversations",
    "Diff",
    "Found",
    "Hit",
    "Page",
    "Said",
    "Standing",
    "Text",
    "Versions",
]


@dataclass(frozen=True)
class Said:
    """A message; `more` counts the characters that `text` leaves out."""

    index: int
    id: str
    role: str
    at: str
    text: str
    more: int
    marks: tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """Messages of a conversation from index `start`; `next` begins the next page, if any."""

    conversation: str
    title: str | None
    version: int
    total: int
    start: int
    messages: tuple[Said, ...]
    next: int | None


@dataclass(frozen=True)
class Text:
    """A stretch of one message's text; `next` begins the next one, if any."""

    conversation: str
    id: str
    role: str
    start: int
    text: str
    next: int | None


@dataclass(frozen=True)
class Hit:
    """A message that was found; `index` is None where it has left the conversation."""

    conversation: str
    index: int | None
    id: str
    role: str
    at: str
    snippet: str


@dataclass(frozen=True)
class Found:
    """What a search found, best first."""

    hits: tuple[Hit, ...]


@dataclass(frozen=True)
class Conversation:
    """Where a conversation stands; `parent` is what it was forked from."""

    id: str
    title: str | None
    tags: tuple[str, ...]
    messages: int
    version: int
    updated: str
    parent: str | None


@dataclass(frozen=True)
class Conversations:
    """Conversations, the latest changed first; `next` is the cursor of the next page, if any."""

    conversations: tuple[Conversation, ...]
    next: str | None


@dataclass(frozen=True)
class Change:
    """One change of a conversation: the version it made, and how many messages it added."""

    version: int
    kind: str
    at: str
    added: int


@dataclass(frozen=True)
class Versions:
    """Changes, the newest first; `before` of the next page is `next`, if there is one."""

    conversation: str
    version: int
    changes: tuple[Change, ...]
    next: int | None


@dataclass(frozen=True)
class Diff:
    """What differs between two versions; `left_out` counts the messages that are not shown."""

    conversation: str
    before: int
    after: int
    removed: tuple[Said, ...]
    added: tuple[Said, ...]
    left_out: int


@dataclass(frozen=True)
class Standing:
    """Where a conversation stands after a change."""

    conversation: str
    version: int
    messages: int
    batch: int
