"""What a provider's fields may hold: the details that a memory may put back, and no others.

A body that was read may have been wrong, and metadata may come from anywhere. So a memory is used
for an element only where every change in it is one that the provider takes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from palaver.wire.kept import CACHE, DOCUMENT, FILES, OF_USERS, STATUS, WORDS
from palaver.wire.media import IMAGES
from palaver.wire.shapes import all_of, either, text, typed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.wire.shapes import Kind, Shape

__all__ = [
    "ANTHROPIC",
    "ANTHROPIC_OUTPUT",
    "CHAT",
    "CHAT_CONTENT",
    "GEMINI",
    "RESPONSES",
    "RESPONSES_CONTENT",
]


def _never(value: object) -> bool:
    """Palaver writes this itself, and nothing else may stand there."""
    del value
    return False


def _any(value: object) -> bool:
    return value is not None


def _blank_or(*kinds: Kind) -> Kind:
    return either(type(None), *kinds)


_TOOL: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_IMAGE: Final = re.compile(
    r"(?:https?://[^\s/]\S*|data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2})",
    re.IGNORECASE,
)
_DETAIL: Final = ("auto", "low", "high", "original")
_BREAK: Final[Shape] = {"prompt_cache_breakpoint*": dict}

_SAID: Final[Shape] = {"type": ("text",), "text": text, **_BREAK}
_REFUSED: Final[Shape] = {"type": ("refusal",), "refusal": text}
_CHAT_IMAGE: Final[Shape] = {
    "type": ("image_url",),
    "image_url": {"url": _IMAGE, "detail*": _DETAIL},
    **_BREAK,
}
_ONLY_TEXT: Final = either(text, all_of(_SAID, least=1))
CHAT_CONTENT: Final[Mapping[str, Kind]] = {
    "system": _ONLY_TEXT,
    "tool": _ONLY_TEXT,
    "user": either(text, all_of(either(_SAID, _CHAT_IMAGE), least=1)),
    "assistant": _blank_or(text, all_of(either(_SAID, _REFUSED), least=1)),
}
"""What a message of each role says in OpenAI Chat."""
CHAT: Final[Mapping[str, Kind]] = {
    "role": ("system", "developer", "user", "assistant", "tool"),
    "content": _never,
    "name": _TOOL,
    "refusal": _blank_or(text),
    "audio": _blank_or({"id": str}),
    **dict.fromkeys(("tool_calls", "tool_call_id", "id", "function", "custom", "type"), _never),
    **dict.fromkeys(("arguments", "input", "text", "filename"), text),
    **dict.fromkeys(("image_url", "input_audio", "file", "file_data", "file_id"), _never),
    "url": _IMAGE,
    "detail": _DETAIL,
    "data": str,
    "format": ("wav", "mp3"),
    "prompt_cache_breakpoint": dict,
    **dict.fromkeys(("mode", "ttl"), _any),
}

_INPUT: Final[Shape] = {"type": ("input_text",), "text": text, **_BREAK}
_OUTPUT: Final[Shape] = {
    "type": ("output_text",),
    "text": text,
    "annotations*": all_of(typed()),
    "logprobs*": all_of(dict),
}
_PICTURE: Final[Shape] = {
    "type": ("input_image",),
    "image_url": _IMAGE,
    "detail": _DETAIL,
    **_BREAK,
}
_SENT: Final = either(_INPUT, _PICTURE, *FILES.values())
_GIVEN: Final = either(text, all_of(_SENT, least=1))
RESPONSES_CONTENT: Final[Mapping[str, Kind]] = {
    "system": _GIVEN,
    "user": _GIVEN,
    "assistant": either(text, all_of(either(_OUTPUT, _REFUSED), least=1)),
}
"""What a message of each role says in OpenAI Responses."""
RESPONSES: Final[Mapping[str, Kind]] = {
    "type": ("message",),
    "role": ("system", "developer", "user", "assistant"),
    "content": _blank_or(all_of({"type": ("reasoning_text",), "text": text})),
    "id": re.compile(r"(?:fc|ctc)[a-zA-Z0-9_-]{1,61}"),
    "status": STATUS,
    "phase": _blank_or(("commentary", "final_answer")),
    **dict.fromkeys(("text", "refusal", "arguments", "input"), text),
    "summary": all_of({"type": ("summary_text",), "text": text}),
    "annotations": all_of(typed()),
    "logprobs": all_of(dict),
    **dict.fromkeys(("file_id", "title", "url", "container_id", "token", "filename"), str),
    **dict.fromkeys(("index", "start_index", "end_index"), int),
    **dict.fromkeys(("bytes", "logprob", "top_logprobs", "mode", "ttl"), _any),
    "prompt_cache_breakpoint": _blank_or(dict),
    "image_url": _blank_or(_IMAGE),
    "detail": _blank_or(_DETAIL),
    **dict.fromkeys(("file_data", "file_url", "call_id"), _never),
    "name": re.compile(r"[a-zA-Z0-9_-]{1,128}"),
    "namespace": str,
    "caller": _blank_or(typed("direct", "program")),
    "caller_id": str,
    "async": bool,
    "output": either(text, all_of(_SENT)),
    "encrypted_content": _blank_or(str),
    "instructions": str,
}


_DATA: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_LINK: Final[Shape] = {"type": ("url",), "url": re.compile(r"https://[^\s/]\S*")}
_FOUND: Final = either(
    WORDS,
    *OF_USERS.values(),
    {
        "type": ("image",),
        "source": either(
            _LINK, {"type": ("base64",), "media_type": tuple(sorted(IMAGES)), "data": _DATA}
        ),
        **CACHE,
    },
    {
        "type": ("document",),
        "source": either(
            _LINK,
            {"type": ("base64",), "media_type": ("application/pdf",), "data": _DATA},
            {"type": ("text",), "media_type": ("text/plain",), "data": str},
        ),
        **DOCUMENT,
    },
)
ANTHROPIC_OUTPUT: Final[Kind] = either(text, all_of(_FOUND))
"""What a call gave, for Anthropic."""
ANTHROPIC: Final[Mapping[str, Kind]] = {
    "system": either(str, all_of(WORDS, least=1)),
    "role": ("user", "assistant", "system"),
    "content": either(str, all_of(WORDS, least=1)),
    **dict.fromkeys(("type", "id", "tool_use_id"), _never),
    **dict.fromkeys(("text", "data", "media_type", "url", "file_id", "signature"), str),
    "thinking": text,
    "cache_control": CACHE["cache_control?"],
    "ttl": ("5m", "1h"),
    "source": {"type": ("content",), "content": str},  # what palaver writes as text
    **dict.fromkeys(("title", "context", "toolset_name"), _blank_or(str)),
    "name": re.compile(r"[a-zA-Z0-9_-]{1,128}"),
    "transformations": _blank_or(dict),
    "is_error": bool,
    "input": dict,
    "citations": _blank_or(dict, all_of(typed())),
    "caller": dict,
}

GEMINI: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("systemInstruction", "parts", "inlineData", "fileData", "name", "id"), _never),
    **dict.fromkeys(("functionCall", "functionResponse"), _never),
    "role": ("user", "model", "function", "system"),  # the last in the instruction, where any is
    **dict.fromkeys(("text", "mimeType", "data", "displayName", "fileUri", "scheduling"), str),
    "thought": bool,
    "thoughtSignature": str,
    **dict.fromkeys(
        ("videoMetadata", "mediaResolution", "mediaProcessing", "speechMetadata"), _any
    ),
    **dict.fromkeys(("startOffset", "endOffset", "fps", "level"), _any),
    "willContinue": bool,
    **dict.fromkeys(("args", "response", "partMetadata"), dict),
}
