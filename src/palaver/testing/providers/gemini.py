"""Rules of Gemini generateContent (REST, camelCase): what the endpoint refuses in a request.

Turns are the user's or the model's; the first and the last are the user's, and no two of the
model's follow each other. The turn after one with function calls has a response for each of them
and nothing else; a turn of the user's own text may follow that one. In the turn that is still open,
the first call of every step has the thought signature it came with. A part has exactly one of the
fields that carry data. The names of fields may be in snake_case too, as Google's SDK sends some.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from palaver.testing.providers.checks import (
    Form,
    PairKey,
    anything,
    at,
    boolean,
    check_json,
    filled,
    items,
    kind,
    listing,
    look,
    mapping,
    match_results,
    name_check,
    one_of,
    proto_bytes,
    string,
    unique_calls,
    unique_names,
    url,
    word,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.testing.providers.checks import Check, Findings

__all__ = ["check"]


FUNCTION_NAME = name_check("tool-name", r"[a-zA-Z_][a-zA-Z0-9_.:-]*", longest=128)

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


LARGEST = 100 * 1024 * 1024
_VERSION = re.compile(r"gemini-(\d+)")
SIGNED = 3
"""From this version on, calls of the open turn carry signatures."""

ROLES: dict[str, Check] = {
    "user": Form({"role": anything, "parts": listing(USER, at_least=1)}),
    "model": Form({"role": anything, "parts": listing(MODEL, at_least=1)}),
}


def turn(found: Findings, path: str, value: object) -> None:
    """One turn, by its role."""
    role = word(value, "role")
    if not isinstance(value, dict):
        found.add(path, "shape", f"must be an object, not {kind(value)}")
    elif role not in ROLES:
        found.add(at(path, "role"), "role", "must be user or model")
    else:
        ROLES[role](found, path, value)


BODY = Form(
    {"contents": listing(turn, at_least=1)},
    {
        "systemInstruction": Form({"parts": listing(SYSTEM, at_least=1)}, {"role": string}),
        "tools": listing(tool),
        **dict.fromkeys(
            [
                "cachedContent",
                "generationConfig",
                "labels",
                "model",
                "safetySettings",
                "serviceTier",
                "store",
                "toolConfig",
            ],
            anything,
        ),
    },
)


OPAQUE = frozenset({
    "args", "labels", "parameters", "parametersJsonSchema", "partMetadata", "response",
    "responseJsonSchema", "responseSchema",
})  # fmt: skip
"""The fields whose value is JSON of the caller's own."""
DEEPEST = 9
"""No field of a request lies deeper, but in what is opaque."""
_UNDERSCORE = re.compile("_([a-z])")


def in_camel_case(value: object, depth: int = 0) -> object:
    """Return a request with the names of its fields in camelCase; the endpoint reads both."""
    if depth > DEEPEST:
        return value
    if isinstance(value, list):
        return [in_camel_case(each, depth + 1) for each in value]
    if not isinstance(value, dict):
        return value
    made: dict[object, object] = {}
    for key, given in value.items():
        name = _UNDERSCORE.sub(lambda match: match[1].upper(), key) if type(key) is str else key
        kept = name in OPAQUE or (name in value and name != key)
        made[key if name in value else name] = given if kept else in_camel_case(given, depth + 1)
    return made


def check(found: Findings, body: object) -> None:
    """Add a violation for everything that the endpoint would refuse."""
    check_json(found, body, limit=LARGEST)
    body = in_camel_case(body)
    BODY(found, "$", body)
    declared = (
        entry
        for path, value in items(look(body, "tools"), "tools")
        for entry in items(look(value, "functionDeclarations"), at(path, "functionDeclarations"))
    )
    unique_names(found, declared)
    contents = list(items(look(body, "contents"), "contents"))
    order(found, contents)
    pairs(found, contents)
    version = _VERSION.search(word(body, "model") or "")
    if version is None or int(version[1]) >= SIGNED:
        signatures(found, contents)


def parts_of(path: str, turn: object, field: str) -> list[tuple[str, object]]:
    """The parts of a turn that have this field."""
    return [
        (place, part)
        for place, part in items(look(turn, "parts"), at(path, "parts"))
        if look(part, field) is not None
    ]


def order(found: Findings, contents: list[tuple[str, object]]) -> None:
    """Who speaks when."""
    before: tuple[str | None, bool] = (None, False)
    for path, value in contents:
        role = word(value, "role")
        responses = parts_of(path, value, "functionResponse")
        apart = role == "user" and (before[1] or bool(responses))
        if role in ROLES and role == before[0] and not apart:
            found.add(path, "alternation", f"two turns in a row are the {role}'s")
        if responses and len(responses) < len(list(items(look(value, "parts"), ""))):
            found.add(path, "result-not-alone", "a turn of function responses has nothing else")
        before = (role, bool(responses))
    if contents and word(contents[0][1], "role") == "model":
        found.add(contents[0][0], "first-role", "the first turn must be the user's")
    if contents and word(contents[-1][1], "role") == "model":
        found.add(contents[-1][0], "last-role", "the request must end with a user turn")


def pairs(found: Findings, contents: list[tuple[str, object]]) -> None:
    """Match the calls of each turn against the responses of the next."""
    turns = [
        (
            pins(parts_of(path, value, "functionCall"), "functionCall"),
            pins(parts_of(path, value, "functionResponse"), "functionResponse"),
            word(value, "role"),
        )
        for path, value in contents
    ]
    known: set[str] = set()
    for calls, _, _ in turns:
        known |= unique_calls(found, calls)
    waiting: list[PairKey] = []
    for calls, responses, role in turns:
        match_results(found, waiting, responses if role == "user" else (), known)
        waiting = calls if role == "model" else []
    match_results(found, waiting, (), known)
    renamed(found, contents)


def pins(parts: list[tuple[str, object]], field: str) -> list[PairKey]:
    """What calls and responses are matched by: the id, or else the name and its how-manieth."""
    counted: dict[str, int] = {}
    pins: list[PairKey] = []
    for path, part in parts:
        name = word(part, field, "name") or ""
        key = word(part, field, "id")
        if not key:
            counted[name] = counted.get(name, 0) + 1
            key = f"{name}#{counted[name]}"
        pins.append(PairKey(key, path))
    return pins


def renamed(found: Findings, contents: list[tuple[str, object]]) -> None:
    """A response has the name of the function that was called by its id."""
    names: dict[str, str | None] = {}
    for path, value in contents:
        for _, part in parts_of(path, value, "functionCall"):
            names[word(part, "functionCall", "id") or ""] = word(part, "functionCall", "name")
        for place, part in parts_of(path, value, "functionResponse"):
            key = word(part, "functionResponse", "id")
            if key and names.get(key, word(part, "functionResponse", "name")) != word(
                part, "functionResponse", "name"
            ):
                found.add(place, "tool-name", "the call with this id was of another function")


def signatures(found: Findings, contents: list[tuple[str, object]]) -> None:
    """Require a signature on the first call of every step since the user last spoke."""
    start = 0
    for place, (path, value) in enumerate(contents):
        if word(value, "role") == "user" and not parts_of(path, value, "functionResponse"):
            start = place
    for path, value in contents[start:]:
        calls = parts_of(path, value, "functionCall")
        if calls and not word(calls[0][1], "thoughtSignature"):
            found.add(calls[0][0], "missing-signature", "the call lacks its thoughtSignature")
