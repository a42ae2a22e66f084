"""One rule of one provider: a body that it takes, and the nearest one that it refuses."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

Json = dict[str, Any]

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n and so on").decode()
PDF = base64.b64encode(b"%PDF-1.7 and so on").decode()


class Case(NamedTuple):
    """Both bodies, and what is refused in the second: rules by their paths."""

    name: str
    accepted: Json
    refused: Json
    problems: dict[str, str]
