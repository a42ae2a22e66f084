"""Files as a request can hold them: as data or as a reference, and never fetched.

A url that is neither `data:` nor of a scheme that providers fetch is not sent: `file:` would hand
out a path of this machine.
"""

from __future__ import annotations

import base64
import binascii
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeGuard
from urllib.parse import unquote_to_bytes

from msgspec import Struct

if TYPE_CHECKING:
    from palaver.messages.files import FilePart

__all__ = ["IMAGES", "Inline", "Linked", "is_image", "is_text", "media_of", "text_of"]

IMAGES: Final = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
"""The images that every provider reads."""

_LINK: Final = re.compile(r"(?:https?|gs)://[^\s/]\S*", re.IGNORECASE)


class Inline(Struct, frozen=True):
    """A file as data, in base64."""

    mime: str
    data: str

    @property
    def url(self) -> str:
        """The data as a url."""
        return f"data:{self.mime};base64,{self.data}"


class Linked(Struct, frozen=True):
    """A file by reference."""

    mime: str
    url: str


def media_of(part: FilePart) -> Inline | Linked | None:
    """Tell how a file can go out; None where it can't.

    >>> from palaver.messages import file_part, new_id
    >>> media_of(file_part(new_id(), new_id(), "image/png", "data:image/png;base64,aGk="))
    Inline(mime='image/png', data='aGk=')
    >>> media_of(file_part(new_id(), new_id(), "image/png", "file:///etc/passwd")) is None
    True
    """
    url = part.url
    if url[:5].lower() == "data:":
        data = _data(url)
        return None if data is None else Inline(part.mime.lower(), data)
    if _LINK.fullmatch(url):
        return Linked(part.mime.lower(), url)
    return None


@lru_cache(maxsize=256)
def _data(url: str) -> str | None:
    """The base64 of a data url, without spaces; None where it is none or empty."""
    head, comma, body = url.partition(",")
    if not comma:
        return None
    if not head.lower().endswith(";base64"):
        return base64.b64encode(unquote_to_bytes(body)).decode() or None
    try:
        binascii.a2b_base64(body, strict_mode=True)
    except (binascii.Error, ValueError):
        return None
    return body or None


def is_image(media: Inline | Linked | None) -> TypeGuard[Inline | Linked]:
    """Tell whether it is an image that every provider reads; a reference may be of any type."""
    if isinstance(media, Linked):
        return media.mime.startswith("image/") and not media.url.startswith("gs:")
    return media is not None and media.mime in IMAGES


def is_text(mime: str) -> bool:
    """Tell whether a file of this type can be sent as words."""
    return mime.startswith("text/") or mime in ("application/json", "application/xml")


def text_of(media: Inline) -> str | None:
    """The words of a text file; None where the bytes are no UTF-8 text."""
    try:
        return base64.b64decode(media.data).decode().replace("\0", "")
    except (UnicodeDecodeError, ValueError):
        return None
