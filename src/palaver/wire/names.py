"""Tool names and call ids in the alphabet a provider allows.

A name that is fine goes out as it is. Any other is spelled with what is allowed and given a hash
of the whole, so that two names never become one and the same name always becomes the same.
"""

from __future__ import annotations

import hashlib
import re
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Alphabet"]

_HASH: Final = 8


class Alphabet(Struct, frozen=True, dict=True):
    """The names a provider allows: a pattern for each letter, a length, a pattern for the first.

    >>> tools = Alphabet("[a-zA-Z0-9_-]", 64)
    >>> tools.spell("get_weather"), tools.spell("weather.get")
    ('get_weather', 'weather_get_8b16a113')
    """

    letters: str
    longest: int
    first: str = ""

    @cached_property
    def fits(self) -> Callable[[str], object]:
        """Tell whether the provider takes a name as it is."""
        pattern = f"{self.first or self.letters}{self.letters}{{0,{self.longest - 1}}}"
        return re.compile(pattern).fullmatch

    def spell(self, name: str) -> str:
        """Spell a name so that the provider takes it."""
        if self.fits(name):
            return name
        digest = hashlib.blake2b(name.encode(), digest_size=_HASH // 2).hexdigest()
        allowed = re.compile(self.letters)
        plain = "".join(letter if allowed.fullmatch(letter) else "_" for letter in name[:200])
        if not re.match(self.first, plain):
            plain = f"_{plain}"
        return f"{plain[: self.longest - _HASH - 1]}_{digest}"
