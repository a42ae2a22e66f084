"""Gemini's parts that carry files, and the way from contents to messages."""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import msgspec

from palaver.messages.factories import file_part, reasoning_part
from palaver.messages.gate import is_list, is_object
from palaver.messages.ids import new_id
from palaver.wire.media import Inline, Linked, is_text, media_of, text_of
from palaver.wire.pen import attachments

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.messages.files import FilePart
    from palaver.messages.message import Message
    from palaver.messages.parts import Part, ToolPart
    from palaver.wire.format import Element
    from palaver.wire.pen import Pen
    from palaver.wire.reading import Source

__all__ = [
    "SIGNATURE",
    "camel_body",
    "file_block",
    "is_signature",
    "read_contents",
    "result_files",
]

SIGNATURE: Final = "thoughtSignature"
_UNTYPED: Final = "application/octet-stream"
_TAKEN: Final = frozenset(
    f"{kind}/{name}"
    for kind, names in {
        "application": ("json", "pdf", "rtf", "x-javascript", "x-python"),
        "audio": (
            "aac",
            "aiff",
            "flac",
            "m4a",
            "mp3",
            "mp4",
            "mpeg",
            "mpga",
            "ogg",
            "opus",
            "pcm",
            "wav",
            "webm",
            "x-wav",
        ),
        "image": ("avif", "bmp", "heic", "heif", "jpeg", "png", "webp"),
        "text": (
            "css",
            "csv",
            "html",
            "javascript",
            "markdown",
            "md",
            "plain",
            "rtf",
            "x-python",
            "xml",
        ),
        "video": ("3gpp", "avi", "mov", "mp4", "mpeg", "mpg", "quicktime", "webm", "wmv", "x-flv"),
    }.items()
    for name in names
)
"""The types that Gemini looks at; image/gif is not one of them."""
_IN_RESULTS: Final = frozenset(
    ("image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain")
)
_OPAQUE: Final = frozenset(("args", "response", "partMetadata"))
_PROTO: Final = str.maketrans("-_", "+/")


def is_signature(value: object) -> TypeGuard[str]:
    """Tell whether a value can be a thought signature: bytes in base64, of either alphabet."""
    return isinstance(value, str) and _bytes(value) not in (None, b"")


def _bytes(text: str) -> bytes | None:
    try:
        return binascii.a2b_base64(_plain(text), strict_mode=True)
    except ValueError:
        return None


def _plain(text: str) -> str:
    """Base64 as everybody writes it: Google reads the alphabet for urls too, padded or not."""
    bare = text.translate(_PROTO).rstrip("=")
    return bare + "=" * (-len(bare) % 4)


def file_block(part: FilePart, message: Message, pen: Pen) -> Element:
    """A file as data or by reference, or a word that stands for it."""
    media = media_of(part)
    mime = part.mime.lower().partition(";")[0].strip()
    takes = pen.target.images if mime.startswith("image/") else pen.target.files
    if takes and isinstance(media, Inline):
        if mime in _TAKEN:
            return {"inlineData": {"mimeType": mime, "data": media.data}}
        words = text_of(media) if is_text(mime) else None
        if words:
            pen.note("repaired", "media", f"a {mime} file is sent as text", message)
            return {"text": words}
    if takes and isinstance(media, Linked) and media.url[:5].lower() != "http:":
        if mime in _TAKEN:
            return {"fileData": {"mimeType": mime, "fileUri": media.url}}
        if mime in ("image/*", _UNTYPED):
            return {"fileData": {"fileUri": media.url}}
    return {"text": pen.left_out(part, message)}


def result_files(part: ToolPart | None, owner: Message, pen: Pen) -> list[Element]:
    """The files of a response, as far as it may hold them."""
    found: list[Element] = []
    for file in attachments(part):
        media = media_of(file)
        takes = pen.target.images if file.mime.startswith("image/") else pen.target.files
        if takes and isinstance(media, Inline) and media.mime in _IN_RESULTS:
            found.append({"inlineData": {"mimeType": media.mime, "data": media.data}})
        else:
            pen.left_out(file, owner)
    return found


def camel_body(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """A body with the conversation's fields in camelCase."""
    fields = ("contents", "systemInstruction", "system_instruction")
    return {
        **{key: value for key, value in body.items() if key not in fields},
        **{_camel(key): _spelled(body[key]) for key in fields if key in body},
    }


def _spelled(value: Any) -> Any:  # noqa: ANN401 - JSON
    if is_list(value):
        return [_spelled(item) for item in value]
    if not is_object(value):
        return value
    spelled = ((_camel(key), inner) for key, inner in value.items())
    return {key: inner if key in _OPAQUE else _spelled(inner) for key, inner in spelled}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest) if rest else name


class _Calls:
    """The calls of the last turn of the model, waiting for their responses."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, str | None, str]] = []

    def claim(self, own: object, name: str) -> str | None:
        """The id of the call that a response answers."""
        for index, (call_id, known, tool) in enumerate(self.waiting):
            if (known == own) if isinstance(own, str) and own else (tool == name):
                del self.waiting[index]
                return call_id
        return None


def read_contents(body: Mapping[str, Any], source: Source) -> None:
    """Read the system instruction and the contents."""
    system = body.get("systemInstruction")
    if is_object(system) and system.get("parts"):
        message_id = new_id()
        texts = list(_parts(system["parts"], message_id, source, {}))
        source.add("system", _simple(texts, system["parts"]), -1, message_id)
    contents = body["contents"]
    past = max((i for i, content in enumerate(contents) if _speaks(content)), default=-1)
    calls = _Calls()
    for place, content in enumerate(contents):
        role = content.get("role", "user") if is_object(content) else None
        parts = content.get("parts") if is_object(content) else None
        if role not in ("user", "model", "function") or not is_list(parts) or not parts:
            where = f"$.contents[{place}]"
            source.lost(where, "role", f"a turn of role {role!r} without parts is left out")
            continue
        message_id = new_id()
        if role == "model":
            calls.waiting = []
            unsigned = {"unsigned": True} if place < past else {}
            answer = list(_parts(parts, message_id, source, unsigned, calls))
            if answer:
                source.add("assistant", _simple(answer, parts), place, message_id)
            continue
        rest = [part for part in parts if not _answered(part, place, source, calls)]
        said = list(_parts(rest, message_id, source, {}))
        if said:
            source.add("user", _simple(said, rest), place, message_id)


def _speaks(content: object) -> bool:
    parts = content.get("parts") if is_object(content) else None
    return (
        is_object(content)
        and content.get("role", "user") == "user"
        and is_list(parts)
        and any(is_object(part) and "functionResponse" not in part for part in parts)
    )


def _simple(parts: list[Part], raw: Any) -> str | list[Part]:  # noqa: ANN401 - JSON
    """One text with nothing else as text."""
    plain = is_list(raw) and len(raw) == 1 and is_object(raw[0]) and set(raw[0]) == {"text"}
    return str(raw[0]["text"]) if plain and parts else parts


def _answered(part: object, place: int, source: Source, calls: _Calls) -> bool:
    """Take a response as a message of its own, if it is one."""
    given = part.get("functionResponse") if is_object(part) else None
    if not is_object(given):
        return False
    message_id = new_id()
    name = str(given.get("name") or "unknown")
    call_id = calls.claim(given.get("id"), name) or str(given.get("id") or new_id())
    response = given.get("response")
    failed, output = False, response
    if is_object(response) and len(response) == 1:
        failed = "error" in response
        output = response.get("error", response.get("output", response))
    inner = given.get("parts")
    files = (
        _file(entry, message_id, source)
        for entry in (inner if is_list(inner) else ())
        if is_object(entry)
    )
    result = source.result(
        message_id,
        call_id,
        output if isinstance(output, str) else msgspec.json.encode(output).decode(),
        failed=failed,
        files=[file for file in files if file is not None],
        tool=name,
    )
    source.add("tool", [result], place, message_id)
    return True


def _parts(
    parts: Any,  # noqa: ANN401 - JSON
    message_id: str,
    source: Source,
    unsigned: Mapping[str, Any],
    calls: _Calls | None = None,
) -> Iterator[Part]:
    for raw in parts if is_list(parts) else ():
        part = _part(raw, message_id, source, unsigned, calls) if is_object(raw) else None
        if part is None:
            detail = "a part that is not as it should be"
            source.lost(f"message {message_id}", "unknown-part", detail)
        else:
            yield part


def _part(
    raw: Mapping[str, Any],
    message_id: str,
    source: Source,
    unsigned: Mapping[str, Any],
    calls: _Calls | None,
) -> Part | None:
    signature, text, call = raw.get(SIGNATURE), raw.get("text"), raw.get("functionCall")
    kept: dict[str, Any] = {SIGNATURE: signature} if isinstance(signature, str) else {}
    if isinstance(text, str):
        if raw.get("thought") is True:
            metadata = {"google": kept}
            return reasoning_part(source.session, message_id, text, metadata=metadata)
        return source.text(message_id, text, **({"metadata": {"google": kept}} if kept else {}))
    if is_object(call) and calls is not None:
        name, own = call.get("name"), call.get("id")
        if not isinstance(name, str) or not name:
            return None
        call_id = new_id()
        if not kept and not calls.waiting:
            kept.update(unsigned)
        if isinstance(own, str) and own:
            kept["id"] = call_id = own
        calls.waiting.append((call_id, kept.get("id"), name))
        fields = {"metadata": {"google": kept}} if kept else {}
        return source.call(message_id, call_id, name, call.get("args"), **fields)
    if not raw or {"text", "functionCall", "functionResponse"} & raw.keys():
        return None
    return _file(raw, message_id, source) or source.unknown(raw)


def _file(raw: Mapping[str, Any], message_id: str, source: Source) -> FilePart | None:
    """A file as data or by reference; None where it is neither."""
    held = raw.get("inlineData") or raw.get("fileData")
    if not is_object(held):
        return None
    data, url, name = held.get("data"), held.get("fileUri"), held.get("displayName")
    mime = held.get("mimeType")
    mime = mime if isinstance(mime, str) and mime else _UNTYPED
    if isinstance(data, str):
        url = f"data:{mime};base64,{_plain(data)}"
    if not isinstance(url, str):
        return None
    filename = name if isinstance(name, str) and name else None
    return file_part(source.session, message_id, mime, url, filename=filename)
