"""The parts of Gemini's turns, and in whose turn each may stand.

A part has exactly one of the fields that carry data; what else it has says something about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.testing.providers.media import proto_bytes, url
from palaver.testing.providers.naming import written
from palaver.testing.providers.values import (
    Form,
    anything,
    boolean,
    filled,
    kind,
    listing,
    look,
    mapping,
    one_of,
    string,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.testing.providers.findings import Findings
    from palaver.testing.providers.values import Check

__all__ = ["MODEL", "SYSTEM", "USER", "tool"]

FUNCTION_NAME = written("tool-name", r"[a-zA-Z_][a-zA-Z0-9_.:-]*", longest=128)

MEDIA = frozenset(
    [
        "application/json",
        "application/pdf",
        "application/rtf",
        "application/x-javascript",
        "application/x-python",
        "audio/aac",
        "audio/aiff",
        "audio/flac",
        "audio/m4a",
        "audio/mp3",
        "audio/mp4",
        "audio/mpeg",
        "audio/mpga",
        "audio/ogg",
        "audio/opus",
        "audio/pcm",
        "audio/wav",
        "audio/webm",
        "audio/x-wav",
        "image/avif",
        "image/bmp",
        "image/heic",
        "image/heif",
        "image/jpeg",
        "image/png",
        "image/webp",
        "text/css",
        "text/csv",
        "text/html",
        "text/javascript",
        "text/markdown",
        "text/md",
        "text/plain",
        "text/rtf",
        "text/x-python",
        "text/xml",
        "video/3gpp",
        "video/avi",
        "video/mov",
        "video/mp4",
        "video/mpeg",
        "video/mpg",
        "video/quicktime",
        "video/webm",
        "video/wmv",
        "video/x-flv",
    ]
)
"""What Gemini looks at; image/gif, for one, it does not."""


def media_type(found: Findings, path: str, value: object) -> None:
    """A media type that Gemini looks at."""
    if not isinstance(value, str):
        found.add(path, "shape", f"must be a string, not {kind(value)}")
    elif value.partition(";")[0].strip().lower() not in MEDIA:
        found.add(path, "media", f"the media type {value[:60]} is not supported")


def data(found: Findings, path: str, value: object) -> None:
    """Bytes in base64."""
    if not isinstance(value, str):
        found.add(path, "shape", f"must be a string, not {kind(value)}")
    elif not proto_bytes(value):
        found.add(path, "media", "must be base64 data, and not empty")


def signature(found: Findings, path: str, value: object) -> None:
    """A thought signature: bytes in base64."""
    if not isinstance(value, str):
        found.add(path, "shape", f"must be a string, not {kind(value)}")
    elif not proto_bytes(value):
        found.add(path, "foreign-reasoning", "a thought signature must be base64, and not empty")


def arguments(found: Findings, path: str, value: object) -> None:
    """The arguments of a call: an object."""
    if not isinstance(value, dict):
        found.add(path, "call-arguments", f"must be an object, not {kind(value)}")


_LABEL = {"displayName": string}
_BLOB = Form({"mimeType": media_type, "data": data}, _LABEL)
_FILE = Form({"fileUri": url("https", "gs")}, {"mimeType": media_type, **_LABEL})

CARRIED: dict[str, Check] = {
    "text": string,
    "inlineData": _BLOB,
    "fileData": _FILE,
    "functionCall": Form({"name": FUNCTION_NAME}, {"id": string, "args": arguments}),
    "functionResponse": Form(
        {"name": FUNCTION_NAME, "response": mapping},
        {
            "id": string,
            "parts": listing(Form({}, {"inlineData": _BLOB, "fileData": _FILE})),
            "scheduling": string,
            "willContinue": boolean,
        },
    ),
    "executableCode": Form({"code": string, "language": string}, {"id": filled}),
    "codeExecutionResult": Form(
        {"outcome": one_of("OUTCOME_OK", "OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED")},
        {"output": string, "id": filled},
    ),
    "toolCall": mapping,
    "toolResponse": mapping,
}
"""The fields of a part that carry data."""

BESIDES: Mapping[str, Check] = {
    "thought": boolean,
    "thoughtSignature": signature,
    **dict.fromkeys(
        ("mediaProcessing", "mediaResolution", "partMetadata", "speechMetadata", "videoMetadata"),
        anything,
    ),
}

_FORM = Form({}, {**CARRIED, **BESIDES})
OF_MODEL = frozenset(
    {"functionCall", "executableCode", "codeExecutionResult", "toolCall", "toolResponse"}
)
OF_USER = frozenset({"functionResponse"})
PLAIN = frozenset({"text", "inlineData", "fileData"})


def part(*fields: str) -> Check:
    """A part that carries one of these fields."""

    def run(found: Findings, path: str, value: object) -> None:
        _FORM(found, path, value)
        if not isinstance(value, dict):
            return
        carried = [name for name in CARRIED if value.get(name) is not None]
        if not carried and not value.keys() - BESIDES.keys():
            found.add(path, "empty-content", "a part must carry something")
        elif not carried:
            found.add(path, "unknown-part", "no field of this part is known to carry anything")
        elif len(carried) > 1:
            found.add(path, "shape", f"a part carries one thing, not {' and '.join(carried)}")
        elif carried[0] not in fields:
            found.add(path, "part-placement", f"{carried[0]} may not stand here")
        elif value.get("text") == "" and not value.get("thoughtSignature"):
            found.add(path, "empty-text", "an empty text counts as no data at all")
        if value.get("thought") is True and "functionCall" not in fields:
            found.add(path, "reasoning-placement", "only the model's turns have thoughts")

    return run


USER = part(*PLAIN, *OF_USER)
MODEL = part(*PLAIN, *OF_MODEL)
SYSTEM = part("text")

_DECLARATION = Form(
    {"name": FUNCTION_NAME},
    {
        "description": string,
        "parameters": mapping,
        "parametersJsonSchema": anything,
        "response": mapping,
        "responseJsonSchema": anything,
        "behavior": anything,
    },
)


def tool(found: Findings, path: str, value: object) -> None:
    """A list of functions; Google's own tools are its business."""
    mapping(found, path, value)
    declared = look(value, "functionDeclarations")
    if declared is not None:
        listing(_DECLARATION)(found, f"{path}.functionDeclarations", declared)
