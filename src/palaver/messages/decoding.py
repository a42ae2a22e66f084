"""Reading into types, safe for threads from the first time on.

msgspec looks at a type when it first reads one, and other threads see what it has found so far: a
second one that reads the same type meanwhile crashes the process. So the first time is had alone.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Final, TypeVar, overload

import msgspec

__all__ = ["convert", "decode", "prepared"]

_T = TypeVar("_T")
_alone: Final = threading.Lock()
_decoders: Final[dict[Any, msgspec.json.Decoder[Any]]] = {}

if hasattr(os, "register_at_fork"):  # a forked child has not the thread that may hold it
    os.register_at_fork(
        before=_alone.acquire, after_in_parent=_alone.release, after_in_child=_alone.release
    )


@overload
def prepared(kind: type[_T]) -> msgspec.json.Decoder[_T]: ...
@overload
def prepared(kind: Any) -> msgspec.json.Decoder[Any]: ...  # noqa: ANN401 - a union, say
def prepared(kind: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of a type, which every thread may use.

    >>> prepared(list[int]).decode(b"[1, 2]")
    [1, 2]
    """
    found = _decoders.get(kind)
    if found is None:
        with _alone:  # two may come one after the other: the second finds it all done
            found = _decoders[kind] = msgspec.json.Decoder(kind)
    return found


def decode(data: bytes | str | msgspec.Raw, kind: type[_T]) -> _T:
    """Read JSON into a type.

    >>> decode(b'{"a": 1}', dict[str, int])
    {'a': 1}
    """
    return prepared(kind).decode(data)


@overload
def convert(value: object, kind: type[_T]) -> _T: ...
@overload
def convert(value: object, kind: Any) -> Any: ...  # noqa: ANN401 - as above
def convert(value: object, kind: Any) -> Any:
    """Read a value that is JSON already into a type.

    >>> convert([1, 2], tuple[int, ...])
    (1, 2)
    """
    prepared(kind)
    return msgspec.convert(value, kind)
