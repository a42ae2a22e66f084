"""Tool names and call ids in the alphabet a provider allows.

A name that is fine goes out as it is. Any other is spelled with what is allowed and given a hash
of the whole, so that two names never become one and the same name always becomes the same.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

from msgspec import Struct

__all__ = ["Alphabet"]

_HASH: Final = 8


class Alphabet(Struct, frozen=True):
    """The names a provider allows: a pattern for all of it, what else stands for, and a length.

    >>> tools = Alphabet("[a-zA-Z0-9_-]", 64)
    >>> tools.spell("get_weather"), tools.spell("weather.get")
    ('get_weather', 'weather_get_8b16a113')
    """

    letters: str
    longest: int
    first: str = ""

    def spell(self, name: str) -> str:
        """Spell a name so that the provider takes it."""
        return _spell(self, name)

    def numbered(self, name: str, occurrence: int) -> str:
        """Spell an id; the second call under one id gets another one, and so on."""
        return _spell(self, f"{name}#{occurrence + 1}" if occurrence else name)


@lru_cache(maxsize=65_536)
def _spell(alphabet: Alphabet, name: str) -> str:
    first = alphabet.first or alphabet.letters
    if len(name) <= alphabet.longest and re.fullmatch(f"{first}{alphabet.letters}*", name):
        return name
    digest = hashlib.blake2b(name.encode(), digest_size=_HASH // 2).hexdigest()
    allowed = re.compile(alphabet.letters)
    plain = "".join(letter if allowed.fullmatch(letter) else "_" for letter in name[:200])
    if not re.match(first, plain):
        plain = f"_{plain}"
    return f"{plain[: alphabet.longest - _HASH - 1]}_{digest}"
