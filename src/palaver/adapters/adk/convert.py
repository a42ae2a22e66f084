"""Events of ADK as messages, and back; what makes a request valid after an edit.

A message keeps the event's fields beside the content as ADK wrote them, in its metadata, and the
content itself as palaver's own parts. Where these lack anything of ADK's, the metadata has the
difference. An event that says nothing but a text, which is the most common one, takes a short way:
its JSON is made once, and read once by pydantic's own validators.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from google.adk.events.event import Event
from google.genai.types import Content
from google.genai.types import Part as ContentPart
from msgspec.structs import replace
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, SchemaValidator

from palaver.errors import ValidationError
from palaver.history.erase import ERASED
from palaver.messages.ids import new_id, uuid_for
from palaver.messages.limits import (
    MAX_INT,
    freeze_checked,
    is_name,
    is_object,
    is_plain,
    replace_refused,
)
from palaver.messages.message import Message
from palaver.messages.part_base import FilePart
from palaver.messages.parts import ReasoningPart, TextPart, ToolCallPart, ToolPart, UnknownPart
from palaver.messages.tool_state import ToolCompleted, ToolError, raw_output
from palaver.wire.format import Inline, Linked, attachments_of, media_of, raw_block
from palaver.wire.gemini.blocks import SIGNATURE, read_part, read_response
from palaver.wire.gemini.request import GEMINI
from palaver.wire.repair import CALL_IDS, CallIds, begin_with_user, portable
from palaver.wire.request import BodyReader
from palaver.wire.round_trip import apply_changes, diff, fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.adk.agents.callback_context import CallbackContext
    from google.adk.models.llm_request import LlmRequest

    from palaver.messages.message import Role
    from palaver.messages.parts import Part

__all__ = [
    "METADATA_KEY",
    "from_event",
    "original_event",
    "repair_request",
    "state_delta",
    "to_event",
    "to_json",
]

METADATA_KEY: Final = "adk"
"""Where a message's metadata keeps its event without the content, and what the content lacks."""
_NOTHING: Final = UnknownPart({"type": METADATA_KEY})
"""The content of an event that says nothing, such as a change of state."""
_CONTENT: Final = {"content"}
_NO_PART: Final[dict[str, Any]] = {**ContentPart().__dict__}
_NULL: Final = b"null"
_SPEAKERS: Final[Mapping[str | None, Role]] = {"user": "user", "model": "assistant"}
_Json = dict[str, Any]
_Model = TypeVar("_Model", bound=BaseModel)


def from_event(event: Event, *, session: str = "") -> Message:
    """Convert an event to a message, such that `to_event` returns it exactly.

    `session` is the id of the conversation.

    >>> from google.genai.types import Content, Part
    >>> said = Content(role="user", parts=[Part(text="Tea?")])
    >>> from_event(Event(author="user", content=said)).text
    'Tea?'
    """
    name = event.id if is_name(event.id) else new_id()
    at = int(min(event.timestamp * 1000, MAX_INT)) if event.timestamp > 0 else 0
    said = _text_alone(event.content)
    if said is not None:
        with suppress(ValidationError, PydanticSerializationError):
            beside = event.model_dump_json(by_alias=True, exclude_none=True, exclude=_CONTENT)
            return Message(*said, name, at, _metadata({"event": beside}))
    fields = to_json(event)
    theirs = fields.pop("content", None)
    role = _role(event.author, theirs)
    try:
        made = Message(role, _read_content(theirs, role, session, name), name, at)
    except ValidationError:  # a character or a number that no store takes: the difference has it
        content = _read_content(replace_refused(theirs), role, session, name)
        made = Message(role, content, name, at)
    ours = _write_content(made)
    stored = {"event": msgspec.json.encode(fields).decode()}
    if steps := diff(ours, theirs):
        stored["content"] = f"{fingerprint(ours)} {msgspec.json.encode(steps).decode()}"
    return replace(made, metadata=_metadata(stored))


def to_json(model: BaseModel) -> _Json:
    """Return a model of ADK's as JSON; half a character, as a file's name may have, is replaced."""
    try:
        found = msgspec.json.decode(model.model_dump_json(by_alias=True, exclude_none=True))
    except PydanticSerializationError:
        given = model.model_dump(mode="json", by_alias=True, exclude_none=True)
        text = json.dumps(given, ensure_ascii=False)
        found = json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    return dict(found)


def _text_alone(content: Content | None) -> tuple[Role, str] | None:
    """Return who says what, if the content is one text of the user or the model and no more."""
    if type(content) is not Content or content.role not in _SPEAKERS:
        return None
    parts = content.parts or ()
    if len(parts) != 1 or type(parts[0]) is not ContentPart:
        return None
    text = parts[0].text
    if type(text) is not str or {**parts[0].__dict__, "text": None} != _NO_PART:
        return None
    return _SPEAKERS[content.role], text


def _metadata(stored: dict[str, Any]) -> Mapping[str, Any]:
    """Return a message's metadata; most is checked soon."""
    if len(stored) == 1 and is_plain(stored["event"]):
        return freeze_checked({METADATA_KEY: freeze_checked(stored)})
    return {METADATA_KEY: stored}


def _role(author: str, content: Any) -> Role:  # noqa: ANN401 - JSON
    parts = (content or {}).get("parts") or ()
    if parts and all("functionResponse" in part for part in parts):
        return "tool"
    said_by = (content or {}).get("role") or author
    return "user" if said_by == "user" else "assistant"


def _read_content(content: Any, role: Role, session: str, name: str) -> str | tuple[Part, ...]:  # noqa: ANN401 - JSON
    reader = BodyReader(GEMINI, session=uuid_for(session), model=None, names={})
    given: list[_Json] = (content or {}).get("parts") or []
    if len(given) == 1 and given[0].keys() == {"text"}:
        return str(given[0]["text"])
    parts = tuple(_read(part, role, reader, uuid_for(name)) for part in given)
    return parts or (_NOTHING,)


def _read(part: _Json, role: Role, reader: BodyReader, message_id: str) -> Part:
    result = read_response(part) if role == "tool" else None
    if result is not None:
        tool, answer = result
        response = part["functionResponse"].get("response")
        if is_object(response) and [*response] == ["result"] and response["result"]:
            said = response["result"]
            answer = replace(answer, output=said if isinstance(said, str) else answer.output)
        return reader.result(message_id, answer, tool)
    found = None if "functionCall" in part and role != "assistant" else read_part(part)
    return reader.unknown(part) if found is None else reader.part(message_id, found)


def to_event(message: Message, *, author: str = "model", invocation_id: str = "") -> Event | None:
    """Convert a message to an event: the original one, with what was edited.

    The result is None for a message that was erased. A message that ADK did not write is said by
    the user, or by `author`, in the invocation `invocation_id`, without its reasoning: only the
    model that made it takes that. The result is None where nothing else is there.

    >>> import palaver
    >>> to_event(palaver.assistant("Yes."), author="ada").content.parts[0].text
    'Yes.'
    """
    if ERASED in message.metadata:
        return None
    original = original_event(message)
    if original is not None:
        return original
    said = portable(message, images=True)
    if said is None:
        return None
    by = "user" if message.role in ("user", "system") else author
    at = message.timestamp / 1000
    return Event.model_validate(
        {"id": message.id, "author": by, "invocation_id": invocation_id, "timestamp": at,
         "content": msgspec.json.decode(_read_stored_content(said))}
    )  # fmt: skip


def original_event(message: Message) -> Event | None:
    """Return the event that was written as this message, with what was edited, or None.

    It depends on nothing but the message.
    """
    kept = _stored(message)
    fields = kept.get("event")
    if not isinstance(fields, str) or '"' not in fields:  # metadata of anywhere
        return None
    with suppress(ValueError):
        if isinstance(message.content, str) and "content" not in kept:
            return _read_event(fields, _text_content(message.role, message.content))
        said = _read_stored_content(message)
        return _read_event(fields, None if said == _NULL else Content.model_validate_json(said))
    return None


def _stored(message: Message) -> Mapping[str, Any]:
    stored = message.metadata.get(METADATA_KEY)
    return stored if is_object(stored) else {}


def _read_stored_content(message: Message) -> bytes:
    """Return the JSON of the content, with what a message can't say if it was not edited."""
    content = _write_content(message)
    then, _, steps = str(_stored(message).get("content", "")).partition(" ")
    if then and then == fingerprint(content):
        with suppress(msgspec.DecodeError):
            content = apply_changes(content, msgspec.json.decode(steps))
    return msgspec.json.encode(content)


def _fields_reader() -> Callable[[str], Any] | None:
    """Return what reads an event's fields from JSON, without the short forms that ADK takes too.

    ADK's own validator looks for these in every event, which takes longer than all the rest, and
    what it wrote never has them. None where pydantic builds that validator in another way.
    """
    schema: Any = Event.__pydantic_core_schema__
    shared = schema.get("definitions", [])
    model = schema["schema"] if schema["type"] == "definitions" else schema
    if model["type"] != "model" or model["schema"]["type"] != "function-before":
        return None
    if Event.__private_attributes__:
        return None
    fields = model["schema"]["schema"]
    if fields["type"] != "model-fields":
        return None
    whole: Any = {"type": "definitions", "schema": fields, "definitions": shared}
    return SchemaValidator(whole, model.get("config")).validate_json


_read_fields: Final = _fields_reader()
_PART: Final = ContentPart(text="").__dict__
_WHOLE: Final = Content(role="user", parts=[]).__dict__


def _read_event(fields: str, content: Content | None) -> Event:
    """Return an event from the JSON of its fields and from its content."""
    if _read_fields is None:
        event = Event.model_validate_json(fields)
        event.content = content
        return event
    values, _, given = _read_fields(fields)
    if content is not None:
        values["content"] = content
        given.add("content")
    event = _restored(Event, values, given)
    event.model_post_init(None)
    return event


def _text_content(role: Role, text: str) -> Content:
    """Return content of one text, unvalidated: that would be half of what an event takes."""
    said_by = "model" if role == "assistant" else "user"
    part = _restored(ContentPart, {**_PART, "text": text}, {"text"})
    return _restored(Content, {**_WHOLE, "parts": [part], "role": said_by}, {"parts", "role"})


def _restored(kind: type[_Model], fields: _Json, given: set[str]) -> _Model:
    """Return a model with these fields, as `copy` and `pickle` do: nothing is validated."""
    made = kind.__new__(kind)
    made.__setstate__({
        "__dict__": fields,
        "__pydantic_fields_set__": given,
        "__pydantic_extra__": None,
        "__pydantic_private__": None,
    })  # fmt: skip
    return made


def _write_content(message: Message) -> _Json | None:
    """Write the content as ADK would have it: None if there is nothing to say."""
    role = "model" if message.role == "assistant" else "user"
    if isinstance(message.content, str):
        return {"parts": [{"text": message.content}], "role": role}
    if message.content == (_NOTHING,):
        return None
    return {"parts": [*filter(None, map(_write, message.content))], "role": role}


def _write(part: Part) -> _Json | None:
    if isinstance(part, TextPart | ReasoningPart):
        thought = {"thought": True} if isinstance(part, ReasoningPart) else {}
        return _signed({"text": part.text, **thought}, part)
    if isinstance(part, ToolCallPart):
        given = msgspec.to_builtins(part.input)
        call = {"id": part.call_id, "args": given, "name": part.tool}
        return _signed({"functionCall": call}, part)
    if isinstance(part, ToolPart):
        given = {"id": part.call_id, "name": part.tool, "response": _response(part)}
        files = [_write_file(file) for file in attachments_of(part)]
        return {"functionResponse": {**given, "parts": files} if files else given}
    if isinstance(part, FilePart):
        return _write_file(part)
    if isinstance(part, UnknownPart) and part.type == GEMINI.name:
        return raw_block(part)
    return None


def _signed(element: _Json, part: TextPart | ReasoningPart | ToolCallPart) -> _Json:
    """Return the element with the signature that came on its part."""
    stored = part.metadata.get(GEMINI.provider) if part.metadata else None
    signature = stored.get(SIGNATURE) if is_object(stored) else None
    return {**element, SIGNATURE: signature} if isinstance(signature, str) else element


def _response(part: ToolPart) -> _Json:
    """Return what a function gave, as an object."""
    if isinstance(part.state, ToolError):
        return {"error": part.state.error}
    if not isinstance(part.state, ToolCompleted):
        return {}
    output = raw_output(part.state)
    with suppress(msgspec.DecodeError):
        found = msgspec.json.decode(output)
        if isinstance(found, dict):
            return found
    return {"result": output}


def _write_file(part: FilePart) -> _Json:
    media = media_of(part)
    named = {"displayName": part.filename} if part.filename else {}
    if isinstance(media, Inline):
        data = media.data.replace("+", "-").replace("/", "_")
        return {"inlineData": {**named, "data": data, "mimeType": part.mime}}
    url = media.url if isinstance(media, Linked) else part.url
    return {"fileData": {**named, "fileUri": url, "mimeType": part.mime}}


def state_delta(message: Message) -> _Json:
    """Return the state that the event of a message sets."""
    stored = message.metadata.get(METADATA_KEY) if message.metadata else None
    fields = stored.get("event") if is_object(stored) else None
    if not isinstance(fields, str) or '"stateDelta":{"' not in fields:
        return {}
    with suppress(msgspec.DecodeError):
        actions = msgspec.json.decode(fields).get("actions")
        delta = actions.get("stateDelta") if is_object(actions) else None
        if isinstance(delta, dict):
            return delta
    return {}


def repair_request(callback_context: CallbackContext, llm_request: LlmRequest) -> None:  # noqa: ARG001 - ADK gives both
    """Make a request one that every model takes: a `before_model_callback`.

    It is for sessions that may be edited, or go on with another model. ADK leaves out calls without
    responses and responses without calls. What then stands side by side of one role becomes one
    turn; responses stay alone. An answer that comes first gets a short text of the user before it.
    Texts of nothing but white space, which Anthropic refuses, are left out, files in answers are
    mentioned for any model but Google's own, and each call has an id of its own. The session stays
    as it is.

    >>> from google.adk.models.llm_request import LlmRequest
    >>> from google.genai.types import Content, Part
    >>> said = [Content(role="user", parts=[Part(text=text)]) for text in ("Tea?", "Rum?")]
    >>> request = LlmRequest(contents=said)
    >>> repair_request(None, request)
    >>> [[part.text for part in content.parts] for content in request.contents]
    [['Tea?', 'Rum?']]
    """
    takes_files = "gemini" in (llm_request.model or "gemini")
    ids = CallIds(CALL_IDS)
    said = [_without_refused(content, takes_files=takes_files) for content in llm_request.contents]
    turns: list[Content] = []
    for content in (_with_ids(each, ids) for each in said if each is not None):
        last = turns[-1] if turns else None
        if last is None or last.role != content.role or _responds(last) or _responds(content):
            turns.append(content)
        else:
            parts = [*(last.parts or ()), *(content.parts or ())]
            turns[-1] = Content(role=content.role, parts=parts)
    llm_request.contents = begin_with_user(turns, role=_speaker, made=_question)


def _without_refused(content: Content, *, takes_files: bool) -> Content | None:
    """Return the content without what a model refuses; None where that is all of it."""
    parts = content.parts or []
    if content.role == "model" and not takes_files:
        parts = [_without_file(part) for part in parts]
    rest = [part for part in parts if part.text is None or part.text.strip() or _carries(part)]
    if rest == content.parts:
        return content
    return Content(role=content.role, parts=rest) if rest else None


def _with_ids(content: Content, ids: CallIds) -> Content:
    """Return the content with ids of calls that every provider takes, and each id once."""
    parts = [_with_id(part, content, ids) for part in content.parts or ()]
    if all(part is was for part, was in zip(parts, content.parts or (), strict=True)):
        return content
    return Content(role=content.role, parts=parts)


def _with_id(part: ContentPart, content: Content, ids: CallIds) -> ContentPart:
    call, response = part.function_call, part.function_response
    if call is not None and call.id:
        name = ids.of_call(call.id, id(content))
        changed: _Json = {"function_call": call.model_copy(update={"id": name})}
    elif response is not None and response.id:
        name = ids.of_result(response.id)
        changed = {"function_response": response.model_copy(update={"id": name})}
    else:
        return part
    return (
        part
        if name in (call and call.id, response and response.id)
        else part.model_copy(update=changed)
    )


def _carries(part: ContentPart) -> bool:
    """Tell whether a part has something beside its text."""
    return bool(part.model_dump(exclude_none=True, exclude={"text", "thought"}))


def _without_file(part: ContentPart) -> ContentPart:
    """Return a part with a text in the place of a file."""
    data, link = part.inline_data, part.file_data
    if data is not None:
        return ContentPart(text=f"[a file of type {data.mime_type} is not included]")
    if link is not None:
        return ContentPart(text=f"[a file of type {link.mime_type} is at {link.file_uri}]")
    return part


def _speaker(content: Content) -> str:
    return "user" if content.role == "user" else "assistant"


def _question(text: str) -> Content:
    return Content(role="user", parts=[ContentPart(text=text)])


def _responds(content: Content) -> bool:
    return any(part.function_response is not None for part in content.parts or ())
