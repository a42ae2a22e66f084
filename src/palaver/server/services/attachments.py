"""Files that a person attaches to a message: their limits, their types, and who can read them.

A file comes with its bytes and is stored by value, as a `file` part with a `data:` URL; no address
is ever fetched. The type that a browser names goes by the file's name, so the bytes decide: a
picture is one if it begins like one, and what is text is sent as text. What a model reads of a file
is asked of the wire format that would write it, so that there is one answer to it.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta
from msgspec.structs import replace

from palaver import wire
from palaver.errors import ValidationError
from palaver.messages import Message, file_part, new_id, text_part, user
from palaver.messages.ids import uuid_for
from palaver.server.requests import Shape
from palaver.server.settings import MEGABYTE
from palaver.wire.format import is_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.messages import FilePart, Part
    from palaver.models.base import Model

__all__ = [
    "MAX_FILE",
    "MAX_FILES",
    "AttachedFile",
    "FileSupport",
    "check_files",
    "media_type",
    "support_of",
    "user_message",
]

MAX_FILE: Final = 5 * MEGABYTE
"""The bytes of a file: what every provider takes of an image."""
MAX_FILES: Final = 10
"""The files of a message."""

_SIGNATURES: Final = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"%PDF-"), "application/pdf"),
)
_PROVEN: Final = frozenset(mime for _, mime in _SIGNATURES)
"""The types that a file has if, and only if, it begins so."""
_MIME: Final = re.compile(r"[a-z0-9.+-]+/[a-z0-9.+-]+")
_BYTES: Final = "application/octet-stream"


class AttachedFile(Shape, frozen=True):
    """A file: its name, the type that the sender believes it has, and its bytes in base64."""

    filename: Annotated[str, Meta(min_length=1, max_length=255)]
    data: bytes
    mime: Annotated[str, Meta(max_length=255)] = ""


class FileSupport(Shape, frozen=True):
    """What a model reads of a file: the file as it is, its text, or nothing."""

    filename: str
    mime: str
    size: int
    reads: Literal["file", "text", "nothing"]


def check_files(files: Sequence[AttachedFile]) -> None:
    """Raise `ValidationError` for a file that is empty or too large."""
    for index, file in enumerate(files):
        size = len(file.data)
        if not 0 < size <= MAX_FILE:
            found = f"has {-(-size * 10 // MEGABYTE) / 10} MB" if size else "is empty"
            detail = f"“{file.filename}” {found}; a file has 1 byte to {MAX_FILE // MEGABYTE} MB"
            raise ValidationError(detail, path=f"$.files[{index}].data", rule="size")


def media_type(file: AttachedFile) -> str:
    """The type of a file, by its bytes where they tell.

    >>> media_type(AttachedFile(filename="a.png", data=b"%PDF-1.7", mime="image/png"))
    'application/pdf'
    >>> media_type(AttachedFile(filename="a.rs", data=b"fn main() {}"))
    'text/plain'
    """
    for signature, mime in _SIGNATURES:
        if signature.match(file.data):
            return mime
    given = file.mime.partition(";")[0].strip().lower()
    if given in _PROVEN or not _MIME.fullmatch(given):
        given = _BYTES
    of_its_own = is_text(given) and not given.startswith("text/x-")  # which few providers know
    if of_its_own or not _holds_text(file.data):
        return given
    return "text/xml" if given == "image/svg+xml" else "text/plain"


def _holds_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def user_message(
    conversation: str, text: str | None, files: Sequence[AttachedFile]
) -> Message | None:
    """The message of a user with a text, files, or both; None if there is neither."""
    if not files:
        return None if text is None else user(text)
    check_files(files)
    session, name = uuid_for(conversation), new_id()
    parts: list[Part] = [] if text is None else [text_part(session, name, text)]
    for index, file in enumerate(files):
        try:
            parts.append(_part(session, name, file))
        except ValidationError as error:
            raise error.under(f"$.files[{index}]") from None
    return user(parts, id=name)


def _part(session: str, message: str, file: AttachedFile) -> FilePart:
    mime = media_type(file)
    url = f"data:{mime};base64,{base64.b64encode(file.data).decode()}"
    return file_part(session, message, mime, url, filename=file.filename)


def support_of(file: AttachedFile, model: Model) -> FileSupport:
    """What a model would read of a file."""
    name = new_id()
    part = _part(name, name, file)
    target = replace(model.target, model=model.ref)
    written = wire.to(model.format, [user([part], id=name)], target)
    noted = {note.action for note in written.notes if note.rule == "media"}
    reads: Literal["file", "text", "nothing"] = "text" if is_text(part.mime) else "file"
    return FileSupport(
        filename=file.filename,
        mime=part.mime,
        size=len(file.data),
        reads="nothing" if "lost" in noted else reads,
    )
