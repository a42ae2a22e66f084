"""Whatever a tool gives back, as text for a model and files beside it, fit for every store."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import msgspec

from palaver.conversation.tools.base import ToolOutput
from palaver.messages import FilePart, file_part
from palaver.messages.gate import freeze_mapping, is_object, is_plain
from palaver.messages.replacement import replace_refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.conversation.tools.base import ToolContext

__all__ = ["MAX_FILE", "as_output", "attached", "fit_metadata", "fit_text"]

MAX_FILE: Final = 20_000_000
"""The largest file that is kept in a conversation, in bytes; of a larger one, its size."""

_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


def as_output(value: Any, context: ToolContext) -> ToolOutput:  # noqa: ANN401 - whatever a tool gives
    """Text as it is, bytes as text or a file, nothing as nothing, anything else as JSON."""
    if isinstance(value, ToolOutput):
        title = None if value.title is None else fit_text(value.title)
        return ToolOutput(
            fit_text(value.text), title, fit_metadata(value.metadata), tuple(value.attachments)
        )
    if value is None or isinstance(value, str):
        return ToolOutput(fit_text(value or ""))
    if isinstance(value, FilePart):
        return ToolOutput(f"[a file of type {value.mime}]", attachments=(value,))
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes(bytes(value), context)
    try:
        return ToolOutput(fit_text(msgspec.json.encode(value).decode()))
    except (TypeError, ValueError, RecursionError):
        return ToolOutput(fit_text(repr(value)))


def attached(encoded: str, mime: str, context: ToolContext, **fields: Any) -> FilePart | None:  # noqa: ANN401 - of a file part
    """A file part of what base64 spells; None where it is larger than a conversation keeps."""
    if len(encoded) > MAX_FILE * 4 // 3 + 4:
        return None
    call = context.call
    url = f"data:{mime};base64,{encoded}"
    return file_part(call.session_id, call.message_id, mime, url, **fields)


def fit_text(text: str) -> str:
    """Text that every store can keep."""
    return text if is_plain(text) else str(replace_refused(text))


def fit_metadata(value: object) -> Mapping[str, Any]:
    """Metadata that every store can keep: what is no JSON is spelled as Python spells it."""
    plain = replace_refused(msgspec.to_builtins(value, str_keys=True, enc_hook=repr))
    return freeze_mapping(plain if is_object(plain) else {"value": plain}, "$.metadata")


def _bytes(value: bytes, context: ToolContext) -> ToolOutput:
    mime = next((mime for magic, mime in _MAGIC if value.startswith(magic)), "")
    if not mime:
        try:
            return ToolOutput(fit_text(value.decode()))
        except UnicodeDecodeError:
            mime = "application/octet-stream"
    size = f"[{len(value):,} bytes of {mime}]"
    part = attached(base64.b64encode(value).decode(), mime, context)
    return ToolOutput(size, metadata={"bytes": len(value)}, attachments=(part,) if part else ())
