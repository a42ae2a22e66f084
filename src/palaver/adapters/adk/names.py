"""How the conversations of ADK's sessions are named and tagged: by session, user and app."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from palaver.errors import ValidationError
from palaver.messages.limits import describe_argument

if TYPE_CHECKING:
    from palaver.stores.records import Head

__all__ = [
    "STATE_NAME",
    "TAG",
    "full_name",
    "owner_of",
    "safe",
    "session_id_of",
    "state_name",
    "strip_id",
    "tags_of",
]

STATE_NAME: Final = "adk-state:"
"""How the ids of the conversations begin that have the state of apps and users beside them."""
TAG: Final = "adk:"
"""How the tags begin that name a session's app, and its app and user."""


def _check_text(text: object) -> None:
    """Raise `ValidationError` unless this can be an app's name, or the id of a user or session."""
    wanted = "the name of an app and the ids of users and sessions must be text"
    if not isinstance(text, str):
        raise ValidationError(f"{wanted}, not {describe_argument(text)}", rule="argument")
    if not text.isascii() and any("\ud800" <= each <= "\udfff" for each in text):
        detail = f"{wanted}, and {describe_argument(text)} has half a character"
        raise ValidationError(detail, rule="argument")


def strip_id(session_id: str) -> str:
    """Return the id of a session as ADK reads it: without spaces around it."""
    _check_text(session_id)
    return session_id.strip()


@lru_cache(1024)
def safe(text: str) -> str:
    """A text that can be a part of a name: printable, without the separators."""
    _check_text(text)
    if text.isprintable() and not {"%", "/", "@"} & {*text}:
        return text
    return "".join(
        each if each.isprintable() and each not in "%/@" else quote(each, safe="") for each in text
    )


def tags_of(app: str, user: str) -> tuple[str, str]:
    """The tags of a session: its app's, and its user's."""
    return f"{TAG}{safe(app)}", f"{TAG}{safe(app)}/{safe(user)}"


def owner_of(head: Head, app: str) -> str:
    """The user of a session."""
    start = f"{TAG}{safe(app)}/"
    return next(unquote(tag.removeprefix(start)) for tag in head.tags if tag.startswith(start))


def full_name(app: str, user: str, session_id: str) -> str:
    """Return the id of a session's conversation where the session's own is taken."""
    return f"{safe(session_id)}@{safe(user)}@{safe(app)}"


def session_id_of(name: str, app: str, user: str) -> str:
    """Return the id of a session from that of its conversation."""
    suffix = f"@{safe(user)}@{safe(app)}"
    return unquote(name.removesuffix(suffix)) if name.endswith(suffix) else name


def state_name(app: str, user: str | None) -> str:
    """Return the id of the conversation that has the state of an app, or of a user, beside it."""
    return f"{STATE_NAME}{safe(app)}" + ("" if user is None else f"/{safe(user)}")
