"""Requests to Gemini: a system instruction, turns of user and model, responses in their own turn.

Calls and responses are paired by id where the model gave ids, else by name and order. A thought
signature goes back on the part it came on, to the model that made it. The newest models refuse a
call without one while its turn is open; a call from elsewhere gets the value that Google names for
history its model did not write.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec.structs import replace

from palaver.messages.ids import new_id
from palaver.messages.limits import is_list, is_object
from palaver.messages.part_base import FilePart
from palaver.messages.parts import ReasoningPart, TextPart, ToolCallPart, UnknownPart
from palaver.wire.format import (
    Alphabet,
    CallContent,
    Format,
    Inline,
    Linked,
    attachments_of,
    is_text,
    known_fields,
    media_of,
    raw_block,
    text_of,
)
from palaver.wire.gemini.blocks import (
    BESIDES,
    FIELDS,
    PARTS,
    SIGNATURE,
    UNTYPED,
    camel_case,
    is_signature,
    read_part,
    read_response,
)
from palaver.wire.gemini.reply import GeminiReply

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from palaver.messages.message import Message
    from palaver.messages.parts import Part, ToolPart
    from palaver.wire.format import Element, ToolSpec, ValueSchema, Writer, WrittenElement
    from palaver.wire.pairing import PairedTurn
    from palaver.wire.reply import ReplyReader
    from palaver.wire.request import BodyReader, Target

__all__ = ["FOREIGN_SIGNATURE", "GEMINI", "GeminiFormat"]

FOREIGN_SIGNATURE: Final = "skip_thought_signature_validator"
"""The signature of a call that the model did not make."""
_VERSION: Final = re.compile(r"gemini-(\d+)")
_SIGNED: Final = 3
"""From this version on calls need signatures and responses may hold files."""
_MEDIA: Final = frozenset(
    f"{kind}/{name}"
    for kind, names in {
        "application": ("json", "pdf", "rtf", "x-javascript", "x-python"),
        "audio": (
            *("aac", "aiff", "flac", "m4a", "mp3", "mp4", "mpeg", "mpga", "ogg", "opus", "pcm"),
            *("wav", "webm", "x-wav"),
        ),
        "image": ("avif", "bmp", "heic", "heif", "jpeg", "png", "webp"),
        "text": (
            *("css", "csv", "html", "javascript", "markdown", "md", "plain", "rtf", "x-python"),
            "xml",
        ),
        "video": ("3gpp", "avi", "mov", "mp4", "mpeg", "mpg", "quicktime", "webm", "wmv", "x-flv"),
    }.items()
    for name in names
)
"""The types that Gemini reads; image/gif is not one of them."""
_MEDIA_IN_RESULTS: Final = frozenset(
    ("image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain")
)


class GeminiFormat(Format):
    """Gemini's generateContent, in the spelling of its REST interface."""

    name: ClassVar[str] = "gemini"
    provider: ClassVar[str] = "google"
    reply_reader: ClassVar[type[ReplyReader]] = GeminiReply
    items: ClassVar[str] = "contents"
    heads: ClassVar[tuple[str, ...]] = ("systemInstruction",)
    tool_names: ClassVar[Alphabet] = Alphabet("[a-zA-Z0-9_.:-]", 128, "[a-zA-Z_]")
    call_ids: ClassVar[Alphabet] = Alphabet("(?s:.)", 1024)
    marks_failures: ClassVar[bool] = True
    alternates: ClassVar[bool] = True
    fields: ClassVar[Mapping[str, ValueSchema]] = FIELDS
    opaque: ClassVar[frozenset[str]] = frozenset(("args", "response", "partMetadata"))

    # ── writing ──────────────────────────────────────────────────────────────────────────────────

    def write(self, turn: PairedTurn, writer: Writer) -> Sequence[WrittenElement]:
        """Return one element for a message, and one for all responses to an answer's calls."""
        message = turn.message
        role, content = message.role, message.content
        if role == "system":
            text = writer.inline_system(turn)
            return () if text is None else ((self.text_element("user", text), message),)
        if type(content) is str:
            if not content:
                writer.note_nothing(message)
                return ()
            return ((self.text_element(role, content), message),)
        if role == "assistant":
            return self._assistant(turn, writer)
        parts = [
            found
            for part in writer.sendable_parts(turn)
            if (found := self._part(part, message, writer)) is not None
        ]
        if not parts:
            writer.note_nothing(message)
            return ()
        return (({"role": "user", "parts": parts}, message),)

    def write_tools(self, tools: Sequence[tuple[str, ToolSpec]]) -> list[dict[str, Any]]:
        """Return one tool with all function declarations."""
        # `parameters` takes a small part of JSON schema only; this field takes the whole
        declared = [
            {
                **spec.named(name),
                **({"parametersJsonSchema": spec.schema} if spec.parameters else {}),
            }
            for name, spec in tools
        ]
        return [{"functionDeclarations": declared}] if declared else []

    def text_element(self, role: str, text: str) -> Element:
        """Return a turn of one text."""
        return {"role": "user" if role == "user" else "model", "parts": [{"text": text}]}

    def can_merge(self, element: Element, more: Element, owner: Message) -> bool:
        """Tell whether a neighbour is merged into an element: responses stand alone."""
        return (
            not _responds(element)
            and not _responds(more)
            and super().can_merge(element, more, owner)
        )

    def merge(self, element: Element, more: Element) -> None:
        """Add the parts of a neighbour."""
        element["parts"] += more["parts"]

    def allows(
        self,
        element: Element,
        around: tuple[Element | None, Element | None],  # noqa: ARG002 - any
        owner: Message,
        target: Target,
    ) -> bool:
        """Tell whether an element may be restored: a signature only for the model that made it."""
        signatures = (part.get(SIGNATURE) for part in element.get("parts", ()))
        signed = any(found not in (None, FOREIGN_SIGNATURE) for found in signatures)
        return not signed or target.takes_reasoning_of(owner)

    def system_blocks(self, turn: PairedTurn, writer: Writer) -> list[Any]:
        """Return the texts of a system message that comes first."""
        return [{"text": text} for text in writer.system_texts(turn) if text]

    def head(self, blocks: Sequence[Any]) -> Element:
        """Return the system instruction."""
        return {"systemInstruction": {"parts": list(blocks)}}

    def normalize(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a body in camelCase: both spellings are read."""
        return camel_case(body)

    def pair_keys(self, element: Element) -> Sequence[str]:
        """Return the ids and names of calls and responses."""
        parts = element.get("parts")
        return [
            f"{field} {part[field].get('id')} {part[field].get('name')}"
            for part in (parts if is_list(parts) else ())
            for field in ("functionCall", "functionResponse")
            if is_object(part) and is_object(part.get(field))
        ]

    def may_omit(self, element: Element, path: Sequence[Any]) -> bool:  # noqa: ARG002 - in any
        """Tell whether a field may be missing: the arguments of a call may."""
        return path[-1:] == ["args"]

    def _assistant(self, turn: PairedTurn, writer: Writer) -> Sequence[WrittenElement]:
        message = turn.message
        parts: list[Element] = []
        calls: list[Element] = []
        ids: set[str] = set()
        for part in writer.sendable_parts(turn):
            if type(part) is ToolCallPart:
                call = _call(turn, len(calls), ids, writer)
                calls.append(call["functionCall"])
                found: Element | None = call
            elif type(part) is ReasoningPart:
                found = _signed({"text": part.text, "thought": True}, part, message, writer)
                found = None if _is_empty(found) else found
            else:
                found = self._part(part, message, writer)
            if found is not None:
                parts.append(found)
        if not parts:
            writer.note_nothing(message)
            return ()
        answer: WrittenElement = ({"role": "model", "parts": parts}, message)
        if not calls:
            return (answer,)
        return answer, self._responses(turn, calls, writer)

    def _responses(self, turn: PairedTurn, calls: list[Element], writer: Writer) -> WrittenElement:
        results = list(writer.results(turn))
        names = [call["name"] for call in calls if "id" not in call]
        if len(set(names)) < len(names):
            results.sort(key=lambda result: result[0])  # only order tells these calls apart
        parts: list[Element] = []
        for position, output, failed, part, owner in results:
            call = calls[position]
            response: Element = {"name": call["name"]}
            if "id" in call:
                response["id"] = call["id"]
            response["response"] = {"error" if failed else "output": output}
            if attachments_of(part):
                files = _result_files(part, owner, writer) if _is_new(writer.target) else []
                if files:
                    response["parts"] = files
                elif not _is_new(writer.target):
                    writer.note_lost_attachments(part, owner)
            parts.append({"functionResponse": response})
        return {"role": "user", "parts": parts}, results[0][-1]

    def _part(self, part: Part, message: Message, writer: Writer) -> Element | None:
        if type(part) is TextPart:
            found = _signed({"text": part.text}, part, message, writer)
            if not _is_empty(found):
                return found
            writer.note("repaired", "empty-text", "a text with nothing in it is left out", message)
        elif type(part) is FilePart:
            return _file_part(part, message, writer)
        elif type(part) is UnknownPart:
            return _known_part(part, message, writer)
        else:
            writer.note_misplaced(part, message)
        return None

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def read(self, body: Mapping[str, Any], reader: BodyReader) -> None:
        """Read the system instruction and the contents."""
        system = body.get("systemInstruction")
        if is_object(system) and system.get("parts"):
            message_id = new_id()
            texts = list(_read_parts(system["parts"], message_id, reader))
            reader.add("system", _content(texts, system["parts"]), -1, message_id)
        contents = body["contents"]
        past = max((i for i, content in enumerate(contents) if _is_spoken(content)), default=-1)
        calls = _OpenCalls()
        for position, content in enumerate(contents):
            role = content.get("role", "user") if is_object(content) else None
            parts = content.get("parts") if is_object(content) else None
            if role not in ("user", "model", "function") or not is_list(parts) or not parts:
                detail = f"a turn of role {role!r} without parts is left out"
                reader.note_loss(f"$.contents[{position}]", "role", detail)
                continue
            message_id = new_id()
            if role == "model":
                calls.waiting = []
                calls.unsigned = position < past
                answer = list(_read_parts(parts, message_id, reader, calls))
                if answer:
                    reader.add("assistant", _content(answer, parts), position, message_id)
                continue
            rest = [part for part in parts if not _read_result(part, position, reader, calls)]
            said = list(_read_parts(rest, message_id, reader))
            if said:
                reader.add("user", _content(said, rest), position, message_id)


def _responds(element: Element) -> bool:
    return "functionResponse" in element["parts"][0]


def _is_empty(part: Element) -> bool:
    return not part["text"] and SIGNATURE not in part


def _is_new(target: Target) -> bool:
    """Tell whether the target may be one of the newest models; without a version, it may."""
    found = _VERSION.search(target.model.model_id) if target.model is not None else None
    return found is None or int(found[1]) >= _SIGNED


def _signed(
    element: Element,
    part: TextPart | ReasoningPart | ToolCallPart,
    message: Message,
    writer: Writer,
) -> Element:
    """Return the element with the signature that came on its part, where the target made it."""
    stored = part.metadata.get("google") if part.metadata else None
    signature = stored.get(SIGNATURE) if is_object(stored) else None
    if signature is not None and is_signature(signature) and message.role == "assistant":
        if writer.target.takes_reasoning_of(message):
            element[SIGNATURE] = signature
        else:
            detail = "a thought signature goes only to the model that made it"
            writer.note("lost", "foreign-reasoning", detail, message)
    return element


def _call(turn: PairedTurn, position: int, ids: set[str], writer: Writer) -> Element:
    """Return a call; `ids` are those of the calls before it in its answer."""
    message, part = turn.message, turn.calls[position]
    stored = part.metadata.get("google") if part.metadata else None
    ours = stored if is_object(stored) else {}
    call: Element = {
        "name": writer.tool_name(part.tool, message),
        "args": writer.arguments_object(part, message),
    }
    own = ours.get("id")
    if isinstance(own, str) and own:
        if own in ids:
            twice, own = own, writer.call_id(turn, position)
            if own == part.call_id:  # else it is noted already
                detail = f"{twice[:80]!r} is sent as {own!r}"
                writer.note("repaired", "duplicate-call-id", detail, message)
        while own in ids:
            own += "'"
        ids.add(own)
        call["id"] = own
    found = _signed({"functionCall": call}, part, message, writer)
    unneeded = position or (ours.get("unsigned") is True and writer.user_spoke_since())
    if SIGNATURE not in found and not unneeded and _is_new(writer.target):
        found[SIGNATURE] = FOREIGN_SIGNATURE
        detail = (
            f"the call of {part.tool} has no signature of this model: {FOREIGN_SIGNATURE!r} is sent"
        )
        writer.note("repaired", "missing-signature", detail, message)
    return found


def _file_part(part: FilePart, message: Message, writer: Writer) -> Element:
    """Return a file as data or by reference, or a text in its place."""
    media = media_of(part)
    mime = part.mime.lower().partition(";")[0].strip()
    takes = writer.target.images if mime.startswith("image/") else writer.target.files
    if takes and isinstance(media, Inline):
        if mime in _MEDIA:
            return {"inlineData": {"mimeType": mime, "data": media.data}}
        text = text_of(media) if is_text(mime) else None
        if text:
            writer.note("repaired", "media", f"a {mime} file is sent as text", message)
            return {"text": text}
    if takes and isinstance(media, Linked) and media.url[:5].lower() != "http:":
        if mime in _MEDIA:
            return {"fileData": {"mimeType": mime, "fileUri": media.url}}
        if mime in ("image/*", UNTYPED):
            return {"fileData": {"fileUri": media.url}}
    return {"text": writer.placeholder(part, message)}


def _result_files(part: ToolPart | None, owner: Message, writer: Writer) -> list[Element]:
    """Return the files of a response, as far as it may hold them."""
    found: list[Element] = []
    for file in attachments_of(part):
        media = media_of(file)
        takes = writer.target.images if file.mime.startswith("image/") else writer.target.files
        if takes and isinstance(media, Inline) and media.mime in _MEDIA_IN_RESULTS:
            found.append({"inlineData": {"mimeType": media.mime, "data": media.data}})
        else:
            writer.placeholder(file, owner)
    return found


def _known_part(part: UnknownPart, message: Message, writer: Writer) -> Element | None:
    """Return a part that palaver does not understand, where it may be sent: in an answer."""
    raw = {key: value for key, value in raw_block(part).items() if value is not None}
    carried = [key for key in raw if f"{key}*" not in BESIDES]
    schema = PARTS.get(carried[0]) if len(carried) == 1 and message.role == "assistant" else None
    block = known_fields(raw, {carried[0]: schema, **BESIDES}) if schema is not None else None
    if block is None:
        detail = f"a part with {', '.join(sorted(carried)) or 'nothing'} has no place here"
        writer.note("lost", "unknown-part", detail, message)
        return None
    if SIGNATURE in block and not writer.target.takes_reasoning_of(message):
        del block[SIGNATURE]
        detail = "a thought signature goes only to the model that made it"
        writer.note("lost", "foreign-reasoning", detail, message)
    return block


class _OpenCalls:
    """The calls of the model's last turn, waiting for their responses."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, str | None, str]] = []
        self.unsigned = False
        """Whether the user has spoken since: such a call needs no signature."""

    def add(self, call: CallContent) -> CallContent:
        """Add a call; return it with an id, and marked where it needs no signature."""
        metadata: dict[str, Any] = dict(call.metadata)
        if self.unsigned and not self.waiting and SIGNATURE not in metadata:
            metadata = {"unsigned": True, **metadata}
        call = replace(call, call_id=call.call_id or new_id(), metadata=metadata)
        self.waiting.append((str(call.call_id), metadata.get("id"), call.tool))
        return call

    def claim(self, own: str | None, name: str) -> str | None:
        """Return the id of the call that a response answers."""
        for index, (call_id, known, tool) in enumerate(self.waiting):
            if (known == own) if own else (tool == name):
                del self.waiting[index]
                return call_id
        return None


def _is_spoken(content: object) -> bool:
    """Tell whether the user says something in a turn, beside responses."""
    parts = content.get("parts") if is_object(content) else None
    return (
        is_object(content)
        and content.get("role", "user") == "user"
        and is_list(parts)
        and any(is_object(part) and "functionResponse" not in part for part in parts)
    )


def _content(parts: list[Part], raw: Any) -> str | list[Part]:  # noqa: ANN401 - JSON
    """Return one text with nothing else as text."""
    plain = is_list(raw) and len(raw) == 1 and is_object(raw[0]) and set(raw[0]) == {"text"}
    return str(raw[0]["text"]) if plain and parts else parts


def _read_parts(
    parts: Any,  # noqa: ANN401 - JSON
    message_id: str,
    reader: BodyReader,
    calls: _OpenCalls | None = None,
) -> Iterator[Part]:
    for raw in parts if is_list(parts) else ():
        found = read_part(raw) if is_object(raw) else None
        if isinstance(found, CallContent):
            found = None if calls is None else calls.add(found)
        if found is None:
            detail = "a part that is not as it should be"
            reader.note_loss(f"message {message_id}", "unknown-part", detail)
        else:
            yield reader.part(message_id, found)


def _read_result(part: object, position: int, reader: BodyReader, calls: _OpenCalls) -> bool:
    """Read a response as a message of its own; return whether it is one."""
    found = read_response(part) if is_object(part) else None
    if found is None:
        return False
    name, result = found
    call_id = calls.claim(result.call_id, name) or result.call_id
    reader.add_result(replace(result, call_id=call_id), position, tool=name)
    return True


GEMINI: Final = GeminiFormat()
