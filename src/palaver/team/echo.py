"""What a program writes, as a person would read it: no echo of its prompt, nothing for terminals.

Some programs repeat the prompt before they answer. Its words are not theirs, so they are left out
before anybody reads who is called next.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Unechoed", "plain", "without_echo"]

_STEERING: Final = re.compile(
    r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-Z\\^_])"
)
_ALONE: Final = 80
"""A prompt at least so long, on lines of its own, is an echo wherever it stands."""


def plain(text: str) -> str:
    r"""The text with line feeds, and without what would steer a terminal.

    >>> plain("\x1b[1mHello\x1b[0m\r\nMax\0")
    'Hello\nMax\ufffd'
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\x1b" in text:
        text = _STEERING.sub("", text)
    return text.replace("\0", "\ufffd")


def without_echo(output: str, prompt: str) -> str:
    r"""The output without the prompt in it; short prompts count only at the beginning.

    >>> without_echo("Tea?\nYes.", "Tea?")
    'Yes.'
    >>> without_echo("You said:\nTea?", "Tea?")
    'You said:\nTea?'
    """
    echo = plain(prompt).strip()
    text = output.strip()
    if not echo:
        return text
    start = 0 if text.startswith(echo) else text.find(f"\n{echo}") + 1
    if start == 0 and not text.startswith(echo):
        return text
    if start and len(echo) < _ALONE:
        return text
    end = start + len(echo)
    if text[end : end + 1] not in {"", "\n"}:
        return text
    return (text[:start].rstrip() + "\n" + text[end:].lstrip("\n")).strip()


class Unechoed:
    r"""Hands on what a program writes as it comes, but for an echo at the beginning.

    >>> heard = []
    >>> tell = Unechoed("Tea?", heard.append)
    >>> for piece in ("Te", "a?\n", "Y", "es."):
    ...     tell(piece)
    >>> heard
    ['Y', 'es.']
    """

    def __init__(self, prompt: str, told: Callable[[str], object]) -> None:
        """Expect the prompt, and tell the rest."""
        self._echo = plain(prompt).strip()
        self._told = told
        self._held: str | None = ""

    def __call__(self, text: str) -> None:
        """Take in the next piece; it is held back as long as it may be the echo."""
        if self._held is None:
            self._told(plain(text))
            return
        self._held += plain(text)
        said = self._held.lstrip()
        if self._echo.startswith(said.rstrip()):
            return
        rest = said.removeprefix(self._echo)
        self._held = None
        if rest.strip():
            self._told(rest.lstrip("\n") if rest is not said else said)
