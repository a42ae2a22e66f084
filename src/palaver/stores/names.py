"""Which messages a conversation has from another: positions there and here, as a record.

Merges write such a record for each conversation they bring in, and opening a conversation reads all
of them. The form is a JSON list of pairs of positions.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from palaver.messages.decoding import prepared
from palaver.messages.gate import MAX_INT

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NAMES", "read_names", "write_names"]

NAMES: Final = "names"
"""The kind of these records; their name is the id of the other conversation."""

_Position: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INT)]
_PAIRS: Final = list[tuple[_Position, _Position]]


def write_names(pairs: Mapping[int, int]) -> bytes:
    """Return the record of which position there is which position here."""
    return json.dumps(list(pairs.items())).encode()  # with blanks, as every version has written it


def read_names(data: bytes) -> dict[int, int]:
    """Read such a record; `ValueError` says what is wrong with it.

    >>> read_names(write_names({3: 7}))
    {3: 7}
    >>> read_names(b"[[3]]")
    Traceback (most recent call last):
    ValueError: Expected `array` of length 2 - at `$[0]`
    """
    try:
        return dict(prepared(_PAIRS).decode(data))
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ValueError(str(error)) from None
