"""Images and files as a request carries them: data in base64, data URLs, references.

Whether the bytes are the image they claim to be is not looked at, and nothing is ever fetched.
"""

from __future__ import annotations

import binascii
import re
from typing import TYPE_CHECKING

from palaver.testing.providers.values import kind

if TYPE_CHECKING:
    from collections.abc import Collection

    from palaver.testing.providers.findings import Findings
    from palaver.testing.providers.values import Check

__all__ = ["IMAGES", "base64_data", "bytes_of", "data_url", "proto_bytes", "url"]

IMAGES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
"""The images that OpenAI and Anthropic take."""

_DATA_URL = re.compile(r"data:([^;,\s]+);base64,", re.ASCII)
_PROTO = str.maketrans("-_", "+/")


def bytes_of(text: str) -> bytes | None:
    """Decode base64, or answer None where it is none; line breaks and the like are none.

    >>> bytes_of("aGk="), bytes_of("a-b")
    (b'hi', None)
    """
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return None


def base64_data(*, limit: int | None = None) -> Check:
    """Want base64 with something in it, and no more than so many bytes of it."""

    def run(found: Findings, path: str, value: object) -> None:
        if not isinstance(value, str):
            found.add(path, "shape", f"must be a string, not {kind(value)}")
        elif not bytes_of(value):
            found.add(path, "media", "must be base64 data, and not empty")
        elif limit is not None and len(value) > limit:
            found.add(path, "size", f"{len(value)} bytes of base64 are more than {limit}")

    return run


def proto_bytes(value: object) -> bytes | None:
    """Decode as protobuf does for JSON: either alphabet of base64, padded or not."""
    if not isinstance(value, str):
        return None
    text = value.translate(_PROTO).rstrip("=")
    return bytes_of(text + "=" * (-len(text) % 4))


def data_url(found: Findings, path: str, value: str, types: Collection[str]) -> None:
    """Want a data URL in base64 of one of these media types."""
    match = _DATA_URL.match(value)
    if match is None:
        found.add(path, "media", "a data URL has to read data:<media type>;base64,<data>")
    elif match[1].lower() not in types:
        found.add(path, "media", f"the media type {match[1]} is not supported here")
    elif not bytes_of(value[match.end() :]):
        found.add(path, "media", "the data of the URL must be base64, and not empty")


def url(*schemes: str) -> Check:
    """Want a whole URL with one of these schemes."""
    pattern = re.compile(rf"(?:{'|'.join(schemes)})://[^\s/]+[^\s]*", re.IGNORECASE)

    def run(found: Findings, path: str, value: object) -> None:
        if not isinstance(value, str):
            found.add(path, "shape", f"must be a string, not {kind(value)}")
        elif not pattern.fullmatch(value):
            found.add(path, "media", f"must be a whole URL that begins with {' or '.join(schemes)}")

    return run
