"""What the saver's records and conversations are called.

A thread is a conversation of the same id; its checkpoints are records beside the log. A record's
name begins with the namespace and the checkpoint's id, both written so that no sign of theirs is a
slash: so a namespace, and a checkpoint in it, are a range of names, and the newest comes last.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from palaver.errors import ValidationError
from palaver.messages.gate import MAX_NAME, check_name
from palaver.messages.ids import derived_id

__all__ = [
    "BLOBS",
    "CHECKPOINTS",
    "FOLDED",
    "KINDS",
    "TIP",
    "WRITES",
    "Where",
    "after",
    "blob_name",
    "channel_conversation",
    "checkpoint_name",
    "conversation_of",
    "inner",
    "point",
    "split_name",
    "write_name",
]

CHECKPOINTS: Final = "langgraph"
"""A checkpoint: everything but its messages and its large values."""
BLOBS: Final = "langgraph-blobs"
"""A large value of a channel, by the channel's version: kept once for all who have it."""
WRITES: Final = "langgraph-writes"
"""What a task wrote before the next checkpoint."""
FOLDED: Final = "langgraph-folded"
"""What a delta channel needs of checkpoints that were taken away."""
TIP: Final = "langgraph-tip"
"""The last version that the saver made of a conversation, and the checkpoint it made it for."""
KINDS: Final = (CHECKPOINTS, BLOBS, WRITES, FOLDED, TIP)


class Where(NamedTuple):
    """A checkpoint by its namespace and id; none before the first."""

    namespace: str
    checkpoint: str | None


_SAFE: Final = ":|,@ -_.~"
_AFTER_SLASH: Final = chr(ord("/") + 1)


@lru_cache(maxsize=4_096)
def _quoted(text: str) -> str:
    return quote(text, _SAFE)


def conversation_of(thread: object) -> str:
    """The conversation of a thread: of the same id, if that can be one.

    >>> conversation_of("talk-1"), conversation_of(7)
    ('talk-1', '7')
    """
    name = str(thread)
    try:
        check_name(name)
    except ValidationError:
        return derived_id(name, "langgraph thread")
    return name


def channel_conversation(home: str, namespace: str, channel: str) -> str:
    """The conversation of a message channel that is not the thread's own.

    >>> channel_conversation("talk-1", "critic:4f", "messages")
    'talk-1#critic:4f/messages'
    """
    rest = f"{_quoted(namespace)}/{_quoted(channel)}"
    whole = inner(home) + rest
    return whole if len(whole) <= MAX_NAME else inner(home) + derived_id(rest, "langgraph channel")


def inner(home: str) -> str:
    """What the ids of a thread's other conversations begin with."""
    return f"{home}#"


def checkpoint_name(namespace: str, checkpoint: str = "") -> str:
    """A checkpoint's name; without an id, what the names of a namespace begin with.

    >>> checkpoint_name("", "1f0a"), checkpoint_name("critic/1", "1f0a")
    ('/1f0a', 'critic%2F1/1f0a')
    """
    return f"{_quoted(namespace)}/{_quoted(checkpoint)}"


def split_name(name: str) -> tuple[str, str]:
    """The namespace and the id of a checkpoint's name, or of a write's."""
    namespace, checkpoint, *_ = name.split("/")
    return unquote(namespace), unquote(checkpoint)


def write_name(namespace: str, checkpoint: str, task: str = "") -> str:
    """The name of what a task wrote; without a task, what all of a checkpoint's begin with."""
    return f"{checkpoint_name(namespace, checkpoint)}/{_quoted(task)}"


def blob_name(namespace: str, channel: str, version: object) -> str:
    """The name of a channel's value at one of its versions."""
    return f"{_quoted(namespace)}/{_quoted(channel)}/{_quoted(str(version))}"


def after(beginning: str) -> str:
    """The first name that no longer begins with a text that ends with a slash."""
    return beginning[:-1] + _AFTER_SLASH


def point(name: str) -> str:
    """The first name after this one, to read just this one."""
    return name + "\x01"
