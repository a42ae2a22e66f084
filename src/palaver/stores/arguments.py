"""What callers give a store, checked before any store sees it: so all stores answer alike.

What would be kept and can't be is a `ValidationError` (see `palaver.messages.gate`). What is only
looked up and could never have been kept is answered like anything else that is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.errors import UnknownConversation, ValidationError
from palaver.messages.gate import check_name, check_text, is_text, kind_of, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "check_idempotency_key",
    "check_known",
    "check_records",
    "check_tags",
    "check_title",
    "check_words",
]


def check_known(conversation: object) -> None:
    r"""Refuse an id that no conversation can have, as every store refuses an unknown one.

    >>> check_known("a\0b")
    Traceback (most recent call last):
    palaver.errors.UnknownConversation: no conversation has the id 'a\x00b'
    """
    if not is_text(conversation):
        msg = f"no conversation has the id {quoted(conversation)}"
        raise UnknownConversation(msg)


def check_idempotency_key(key: object) -> None:
    """Refuse a key that can't be kept: no text, empty, too long, unprintable; None is no key."""
    if key is not None:
        check_name(key, "$.key")


def check_title(title: str | None) -> str | None:
    """Return a title that can be kept."""
    if title is not None:
        check_text(title, "$.title")
    return title


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return tags that can be kept, each once."""
    given = tuple(tags)
    for index, tag in enumerate(given):
        check_name(tag, f"$.tags[{index}]")
    return tuple(dict.fromkeys(given))


def check_words(words: object) -> None:
    """Refuse what is no text to search for; what is text, and in no message, is not found."""
    if not isinstance(words, str):
        raise ValidationError(f"must be text, not {kind_of(words)}", path="$.words")


def check_records(records: Iterable[tuple[str, str, object]]) -> None:
    """Refuse records beside the log that can't be kept."""
    for index, (kind, name, value) in enumerate(records):
        check_name(kind, f"$.records[{index}].kind")
        check_text(name, f"$.records[{index}].name")
        if value is not None and not isinstance(value, bytes):
            detail = f"must be bytes, not {kind_of(value)}"
            raise ValidationError(detail, path=f"$.records[{index}].value")
