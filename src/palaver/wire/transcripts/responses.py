"""Items of OpenAI's Responses API, as Codex writes them down: to parts and to tool results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from palaver.messages.codec import dump
from palaver.messages.gate import is_list, is_object
from palaver.wire.transcripts.building import Call
from palaver.wire.transcripts.fields import list_in, name_in, object_in, parsed_input, text_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.wire.transcripts.building import Conversation, Sheet

__all__ = [
    "CALLS",
    "FORMAT",
    "OUTPUTS",
    "PROVIDER",
    "Output",
    "output_of",
    "put_content",
    "put_item",
]

FORMAT: Final = "openai-responses"
PROVIDER: Final = "openai"
CALLS: Final = frozenset(("function_call", "custom_tool_call", "local_shell_call"))
OUTPUTS: Final = frozenset(
    ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
)
_TEXTS: Final = frozenset(("input_text", "output_text", "text"))


class Output(NamedTuple):
    """What a tool gave back."""

    text: str
    is_error: bool
    files: tuple[tuple[str, str], ...]
    metadata: dict[str, Any]


def put_content(sheet: Sheet, content: object, metadata: Mapping[str, Any] | None = None) -> None:
    """Put a message's content on a sheet."""
    fields = {"metadata": metadata} if metadata else {}
    for item in content if is_list(content) else (content,):
        if isinstance(item, str):
            sheet.text(item, **fields)
        elif not is_object(item):
            sheet.unknown(FORMAT, {"type": "unknown", "value": item})
        elif text_in(item, "type") in _TEXTS and isinstance(item.get("text"), str):
            sheet.text(item["text"], **fields)
        elif file := _image(item):
            sheet.file(*file)
        else:
            sheet.unknown(FORMAT, item)


def put_item(sheet: Sheet, item: Mapping[str, Any], talk: Conversation, at: int) -> None:
    """Put an item of an answer on a sheet, as the part that says the same, or whole."""
    kind = text_in(item, "type")
    if kind == "message":
        known = _known(item, "id", "phase", "status")
        put_content(sheet, item.get("content"), {PROVIDER: known} if known else None)
    elif kind == "reasoning":
        _put_reasoning(sheet, item, at)
    elif kind in CALLS and (call_id := name_in(item, "call_id", "id")):
        call = _call(item, at)
        talk.calls[call_id] = call
        known = _known(item, "id", "status", "namespace")
        if kind != "function_call":
            known["type"] = kind
        sheet.call(call_id, call, {PROVIDER: known} if known else {})
    else:
        sheet.unknown(FORMAT, item)


def output_of(item: Mapping[str, Any]) -> Output:
    """What became of a call."""
    found = item.get("output")
    if is_object(found):  # an older form: {content, success}
        text = text_in(found, "content") or dump(found).decode()
        return Output(text, is_error=found.get("success") is False, files=(), metadata={})
    if not is_list(found):
        text = found if isinstance(found, str) else dump(found).decode()
        return Output(text, is_error=False, files=(), metadata={})
    texts: list[str] = []
    files: list[tuple[str, str]] = []
    others: list[Any] = []
    for piece in found:
        if (
            is_object(piece)
            and text_in(piece, "type") in _TEXTS
            and isinstance(piece.get("text"), str)
        ):
            texts.append(piece["text"])
        elif is_object(piece) and (file := _image(piece)):
            files.append(file)
        else:
            others.append(piece)
    metadata: dict[str, Any] = {PROVIDER: {"output": others}} if others else {}
    return Output("\n".join(texts), is_error=False, files=tuple(files), metadata=metadata)


def _call(item: Mapping[str, Any], at: int) -> Call:
    kind = item["type"]
    if kind == "local_shell_call":
        action = object_in(item, "action")
        return Call("local_shell", action, dump(action).decode(), at)
    raw = text_in(item, "arguments" if kind == "function_call" else "input")
    given = parsed_input(raw) if kind == "function_call" else {}
    return Call(name_in(item, "name") or "unknown", given, raw, at)


def _put_reasoning(sheet: Sheet, item: Mapping[str, Any], at: int) -> None:
    """The full text where there is one, else the summary; what is encrypted goes along."""
    pieces = [*list_in(item, "content")] or [*list_in(item, "summary")]
    text = "\n\n".join(text_in(piece, "text") for piece in pieces if is_object(piece))
    known = _known(item, "id", "encrypted_content")
    if list_in(item, "content") and list_in(item, "summary"):
        known["summary"] = item["summary"]
    sheet.reasoning(text, at, {PROVIDER: known} if known else {})


def _known(item: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: item[name] for name in names if item.get(name) is not None}


def _image(item: Mapping[str, Any]) -> tuple[str, str] | None:
    url = item.get("image_url")
    if item.get("type") != "input_image" or not isinstance(url, str) or not url:
        return None
    kind = url[5:].partition(",")[0].partition(";")[0] if url.startswith("data:") else ""
    return kind or "image/*", url
