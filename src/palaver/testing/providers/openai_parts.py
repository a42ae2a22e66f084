"""What OpenAI's two endpoints have in common: text, images and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.testing.providers.media import IMAGES, bytes_of, data_url, url
from palaver.testing.providers.values import kind, look

if TYPE_CHECKING:
    from collections.abc import Collection

    from palaver.testing.providers.findings import Findings
    from palaver.testing.providers.values import Check

__all__ = ["LONGEST_TEXT", "file_data", "image_url", "one_source", "text"]

LONGEST_TEXT = 10_485_760
LONGEST_IMAGE = 20_971_520
LONGEST_FILE = 73_400_320

_REMOTE = url("https", "http")


def text(found: Findings, path: str, value: object) -> None:
    """A text, which may be empty, but not endless."""
    _no_longer(found, path, value, LONGEST_TEXT)


def image_url(found: Findings, path: str, value: object) -> None:
    """A URL, or a data URL of an image."""
    if _no_longer(found, path, value, LONGEST_IMAGE):
        if str(value).startswith("data:"):
            data_url(found, path, str(value), IMAGES)
        else:
            _REMOTE(found, path, value)


def file_data(types: Collection[str]) -> Check:
    """A data URL of a file of these media types, or its base64 alone."""

    def run(found: Findings, path: str, value: object) -> None:
        if _no_longer(found, path, value, LONGEST_FILE):
            if str(value).startswith("data:"):
                data_url(found, path, str(value), types)
            elif not bytes_of(str(value)):
                found.add(path, "media", "must be base64 data or a data URL, and not empty")

    return run


def one_source(found: Findings, path: str, value: object, names: tuple[str, ...]) -> None:
    """Exactly one of these fields says where an image or a file is; data also has a name."""
    given = [name for name in names if look(value, name) is not None]
    if len(given) != 1:
        found.add(path, "media", f"exactly one of {', '.join(names)} is needed")
    elif given == ["file_data"] and not look(value, "filename"):
        found.add(path, "media", "data of a file needs a filename")


def _no_longer(found: Findings, path: str, value: object, longest: int) -> bool:
    """Want a string of at most so many characters; tell whether it is a string."""
    if not isinstance(value, str):
        found.add(path, "shape", f"must be a string, not {kind(value)}")
        return False
    if len(value) > longest:
        found.add(path, "size", f"{len(value)} characters are more than {longest}")
    return True
