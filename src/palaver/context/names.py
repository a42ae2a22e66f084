"""Names of team members: when two spellings are one name, and how a list of them reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.messages import Message

__all__ = ["EVERYBODY", "addressees_text", "fold_name", "speaker_name"]

EVERYBODY: Final = "all"
"""How a message without addressees says whom it is for."""
_BETWEEN: Final = str.maketrans("", "", " -_")


def fold_name(name: str) -> str:
    """The same for every spelling of a name: without case, spaces, `-` and `_`.

    >>> fold_name("Max_the-Great") == fold_name("max the great")
    True
    """
    return name.translate(_BETWEEN).casefold() or name


def addressees_text(names: Sequence[str] | None) -> str:
    """S2's `formatAddressees`: whom a message is for, in words.

    >>> addressees_text(None), addressees_text(["max"]), addressees_text(["max", "sarah"])
    ('all', 'max', 'max, sarah')
    """
    return ", ".join(names) if names else EVERYBODY


def speaker_name(message: Message) -> str:
    """Who said it: the speaker's name, or the role where nobody is named."""
    return message.role if message.speaker is None else message.speaker.role_name
