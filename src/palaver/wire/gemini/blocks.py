"""Parts of Gemini's contents: what each says, and what each must look like.

This is the one reader of these parts: request bodies and replies both use `read_part` and
`read_response`. A part has exactly one field that carries data; what else it has is about that.
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import msgspec

from palaver.messages.limits import is_list, is_object
from palaver.wire.format import (
    CallContent,
    FileContent,
    ReasoningContent,
    ResultContent,
    TextContent,
    UnknownContent,
    any_text,
    never,
    not_null,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.wire.format import Content, Schema, ValueSchema

__all__ = [
    "BESIDES",
    "FIELDS",
    "PARTS",
    "SIGNATURE",
    "UNTYPED",
    "camel_case",
    "is_signature",
    "read_part",
    "read_response",
]

SIGNATURE: Final = "thoughtSignature"
UNTYPED: Final = "application/octet-stream"
"""The type of a file that has none."""
_OPAQUE: Final = frozenset(("args", "response", "partMetadata"))
_FROM_URL_ALPHABET: Final = str.maketrans("-_", "+/")


def read_part(part: Mapping[str, Any]) -> Content | None:
    """Read a part; None where it is a response, or not as it should be.

    >>> read_part({"text": "Tea?"})
    TextContent(text='Tea?', metadata={})
    """
    signature, text, call = part.get(SIGNATURE), part.get("text"), part.get("functionCall")
    metadata = {SIGNATURE: signature} if isinstance(signature, str) and signature else {}
    if isinstance(text, str):
        reasons = part.get("thought") is True
        return ReasoningContent(text, metadata) if reasons else TextContent(text, metadata)
    if is_object(call):
        return _read_call(call, metadata)
    if not part or {"text", "functionCall", "functionResponse"} & part.keys():
        return None
    return _read_file(part) or UnknownContent(part)


def _read_call(call: Mapping[str, Any], metadata: Mapping[str, Any]) -> CallContent | None:
    name, call_id, given = call.get("name"), call.get("id"), call.get("args")
    if not isinstance(name, str) or not name:
        return None
    own = {"id": call_id} if isinstance(call_id, str) and call_id else {}
    arguments = given if is_object(given) else {}
    return CallContent(own.get("id"), name, arguments, {**metadata, **own})


def _read_file(part: Mapping[str, Any]) -> FileContent | None:
    """Read a file as data or by reference; None where it is neither."""
    file = part.get("inlineData") or part.get("fileData")
    if not is_object(file):
        return None
    data, url, name = file.get("data"), file.get("fileUri"), file.get("displayName")
    mime = file.get("mimeType")
    mime = mime if isinstance(mime, str) and mime else UNTYPED
    if isinstance(data, str):
        url = f"data:{mime};base64,{_standard_base64(data)}"
    if not isinstance(url, str):
        return None
    return FileContent(mime, url, name if isinstance(name, str) and name else None)


def read_response(part: Mapping[str, Any]) -> tuple[str, ResultContent] | None:
    """Read a `functionResponse`: the function's name and its result; None where it is none.

    >>> read_response({"functionResponse": {"name": "f", "response": {"output": "4"}}})[1].output
    '4'
    """
    given = part.get("functionResponse")
    if not is_object(given):
        return None
    call_id, response, inner = given.get("id"), given.get("response"), given.get("parts")
    failed, output = False, response
    if is_object(response) and len(response) == 1:
        failed = "error" in response
        output = response.get("error", response.get("output", response))
    files = [_read_file(entry) for entry in (inner if is_list(inner) else ()) if is_object(entry)]
    return str(given.get("name") or "unknown"), ResultContent(
        call_id if isinstance(call_id, str) and call_id else None,
        output if isinstance(output, str) else msgspec.json.encode(output).decode(),
        failed,
        tuple(file for file in files if file is not None),
    )


def is_signature(value: object) -> TypeGuard[str]:
    """Tell whether a value can be a thought signature: bytes in base64, of either alphabet."""
    return isinstance(value, str) and _decode(value) not in (None, b"")


def _decode(text: str) -> bytes | None:
    try:
        return binascii.a2b_base64(_standard_base64(text), strict_mode=True)
    except ValueError:
        return None


def _standard_base64(text: str) -> str:
    """Return base64 in its usual alphabet: Google reads the one for urls too, padded or not."""
    bare = text.translate(_FROM_URL_ALPHABET).rstrip("=")
    return bare + "=" * (-len(bare) % 4)


def camel_case(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a body with the conversation's fields in camelCase.

    >>> camel_case({"contents": [{"parts": [{"inline_data": {"mime_type": "image/png"}}]}]})
    {'contents': [{'parts': [{'inlineData': {'mimeType': 'image/png'}}]}]}
    """
    fields = ("contents", "systemInstruction", "system_instruction")
    return {
        **{key: value for key, value in body.items() if key not in fields},
        **{_camel(key): _camel_keys(body[key]) for key in fields if key in body},
    }


def _camel_keys(value: Any) -> Any:  # noqa: ANN401 - JSON
    if is_list(value):
        return [_camel_keys(item) for item in value]
    if not is_object(value):
        return value
    spelled = ((_camel(key), inner) for key, inner in value.items())
    return {key: inner if key in _OPAQUE else _camel_keys(inner) for key, inner in spelled}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest) if rest else name


# ── schemas ──────────────────────────────────────────────────────────────────────────────────────

PARTS: Final[Mapping[str, Schema]] = {
    "executableCode": {"code": any_text, "language": str, "id?": str},
    "codeExecutionResult": {
        "outcome": ("OUTCOME_OK", "OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED"),
        "output?": any_text,
        "id?": str,
    },
    "toolCall": {"id?": str, "toolType?": str, "args?": dict},
    "toolResponse": {"id?": str, "toolType?": str, "response?": dict},
}
"""What a part of the model may carry that palaver has no part for."""
BESIDES: Final[Schema] = {
    "thought*": bool,
    f"{SIGNATURE}*": is_signature,
    "partMetadata*": dict,
}
"""What a part may have beside what it carries."""
FIELDS: Final[Mapping[str, ValueSchema]] = {
    **dict.fromkeys(("systemInstruction", "parts", "inlineData", "fileData", "name", "id"), never),
    **dict.fromkeys(("functionCall", "functionResponse"), never),
    "role": ("user", "model", "function", "system"),  # the last in the instruction, where any is
    **dict.fromkeys(("text", "mimeType", "data", "displayName", "fileUri", "scheduling"), str),
    "thought": bool,
    "thoughtSignature": str,
    **dict.fromkeys(
        ("videoMetadata", "mediaResolution", "mediaProcessing", "speechMetadata"), not_null
    ),
    **dict.fromkeys(("startOffset", "endOffset", "fps", "level"), not_null),
    "willContinue": bool,
    **dict.fromkeys(("args", "response", "partMetadata"), dict),
}
"""What each field of an element may hold, so that a detail may be put back."""
