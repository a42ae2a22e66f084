"""What holds for a body as a whole: it is JSON, its text is Unicode, and it is not too large."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from palaver.testing.providers.values import at, kind

if TYPE_CHECKING:
    from palaver.testing.providers.findings import Findings

__all__ = ["whole"]


def whole(found: Findings, body: object, *, limit: int) -> None:
    """Want JSON with sound text, of at most `limit` bytes.

    The size is that of all strings, so a little less than what is sent: nothing is accused of
    being too large that is not.
    """
    size = 0
    waiting: list[tuple[str, object]] = [("$", body)]
    while waiting:
        path, value = waiting.pop()
        match value:
            case str():
                size += len(value) if value.isascii() else measured(found, path, value)
            case dict():
                for name, field in value.items():
                    if isinstance(name, str):
                        waiting += [(at(path, name), name), (at(path, name), field)]
                    else:
                        found.add(path, "shape", f"a field's name can't be {kind(name)}")
            case list():
                waiting.extend((at(path, place), entry) for place, entry in enumerate(value))
            case float() if not math.isfinite(value):
                found.add(path, "shape", f"{value} is not JSON")
            case None | bool() | int() | float():
                pass
            case _:
                found.add(path, "shape", f"must be JSON, not {kind(value)}")
    if size > limit:
        found.add("$", "size", f"{size} bytes are more than {limit}")


def measured(found: Findings, path: str, text: str) -> int:
    """Count the bytes of a text; note a half of a surrogate pair, which no UTF-8 can carry."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        found.add(path, "text-encoding", "half of a surrogate pair can't be sent as UTF-8")
        return len(text)
