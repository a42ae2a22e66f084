"""A provider's body to messages, with everything it said kept or noted.

A format reads its elements into a `Source`; what is read is then written again and compared, and
what messages have no words for is kept in their metadata (see `memory`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from palaver.errors import ValidationError
from palaver.messages.factories import text_part, tool_call_part, tool_part
from palaver.messages.gate import is_list, is_object, path_step
from palaver.messages.ids import NIL_ID, new_id, now_ms
from palaver.messages.message import AssistantInfo, Message
from palaver.messages.parts import ModelRef, TextPart, UnknownPart
from palaver.messages.toolstate import complete, fail, pending, start
from palaver.wire.converting import Converter
from palaver.wire.memory import changes, fingerprint, is_apart, remember, strangers
from palaver.wire.report import Note, Reading
from palaver.wire.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from palaver.messages.files import FilePart
    from palaver.messages.message import Role
    from palaver.messages.parts import Part, ToolCallPart, ToolPart
    from palaver.wire.format import Format

__all__ = ["Source", "arguments_of", "read_body"]


class Source:
    """What a body has given so far: messages, the elements they came from, notes, tools' names."""

    def __init__(
        self, form: Format, *, session: str, model: ModelRef | None, names: Mapping[str, str]
    ) -> None:
        """Read for a session; `names` gives tools their own names back."""
        self.form = form
        self.session = session
        self.model = model
        self.messages: list[Message] = []
        self.places: list[int] = []
        self.notes: list[Note] = []
        self.tools: dict[str, str] = {}
        self._names = names
        self._at = now_ms()

    def add(self, role: Role, content: str | Iterable[Part], place: int, message_id: str) -> None:
        """Take one message, read from the element at this place (-1: the system text)."""
        parts = content if isinstance(content, str) else tuple(content)
        info = None
        if role == "assistant" and self.model is not None:
            info = AssistantInfo(model=self.model)
        self.messages.append(Message(role, parts, id=message_id, timestamp=self._at, info=info))
        self.places.append(place)

    def lost(self, where: str, rule: str, detail: str) -> None:
        """Say what was not kept."""
        self.notes.append(Note("lost", where, rule, detail))

    def mended(self, where: str) -> None:
        """Say that something can't go out again as it stands."""
        detail = "is not kept to the letter: it needs repairs to be sent"
        self.notes.append(Note("repaired", where, "mended", detail))

    def text(self, message_id: str, text: str, **fields: Any) -> TextPart:  # noqa: ANN401 - the part's fields
        """A text part of this session."""
        return text_part(self.session, message_id, text, **fields)

    def call(
        self,
        message_id: str,
        call_id: str,
        tool: str,
        arguments: object,
        **fields: Any,  # noqa: ANN401 - the part's fields
    ) -> ToolCallPart:
        """A call, under the tool's own name; its result will want to know it.

        Arguments are an object, or text that should be JSON.
        """
        name = self._names.get(tool, tool)
        self.tools[call_id] = name
        raw = arguments if isinstance(arguments, str) else None
        given = arguments_of(arguments)
        return tool_call_part(
            self.session, message_id, name, given, call_id=call_id, raw=raw, **fields
        )

    def result(
        self,
        message_id: str,
        call_id: str,
        output: str,
        *,
        failed: bool = False,
        files: Iterable[FilePart] = (),
        tool: str | None = None,
    ) -> ToolPart:
        """What became of a call; a result in most formats does not name its tool."""
        name = self.tools.get(call_id) or self._names.get(tool or "", tool) or "unknown"
        running = start(pending({}, ""), at=self._at)
        if failed and output.strip():
            state: Any = fail(running, output, at=self._at)
        else:
            state = complete(running, output, tool=name, attachments=files, at=self._at)
        return tool_part(self.session, message_id, call_id, name, state)

    def unknown(self, block: Mapping[str, Any]) -> UnknownPart:
        """A block that palaver keeps without understanding it."""
        return UnknownPart({"type": self.form.name, "id": new_id(), "block": block})


def arguments_of(arguments: object) -> Mapping[str, Any]:
    """A call's arguments as an object; empty where they are none."""
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except msgspec.DecodeError:
            return {}
    return arguments if is_object(arguments) else {}


def read_body(
    form: Format,
    body: object,
    *,
    session: str = NIL_ID,
    names: Mapping[str, str] | None = None,
) -> Reading:
    """Read a request's body in this format; a list is taken for its elements."""
    if is_list(body):
        body = {form.items: body}
    if is_object(body):
        body = form.spelled_out(body)
    if not is_object(body) or not is_list(body.get(form.items)):
        detail = f"is no {form.name} request: it needs a list of {form.items}"
        raise ValidationError(detail, path="$", rule="schema")
    named = body.get("model")
    model = ModelRef(form.provider, named) if isinstance(named, str) and named else None
    source = Source(form, session=session, model=model, names=names or {})
    form.read(body, source)
    messages = _remembered(source, body)
    rest = {key: body[key] for key in body if key not in (form.items, *form.heads)}
    about: dict[str, Any] = {"request": rest} if rest else {}
    if model is not None:
        about["model"] = named
    return Reading(messages, tuple(source.notes), about)


def _remembered(source: Source, body: Mapping[str, Any]) -> tuple[Message, ...]:
    """The messages, each with what its element says beyond it."""
    form, messages = source.form, source.messages
    for index in _apart(source):
        message = messages[index]
        metadata = remember(message.metadata, form.name, {}, apart=True)
        messages[index] = replace(message, metadata=metadata)
    converter = Converter(form, Target(source.model, prefill=True))
    converter.extend(messages)
    memory: dict[str, dict[str, Any]] = {}
    theirs = body[form.items]
    drafts = converter.drafts()
    if len(drafts) != len(theirs):
        source.mended(f"$.{form.items}")
        theirs = drafts = []
    pairs = [
        (f"$.{form.items}[{i}]", *pair) for i, pair in enumerate(zip(drafts, theirs, strict=True))
    ]
    head = converter.draft_of_head()
    if head is not None and all(body.get(key) for key in head.element):
        pairs.append(("$", head, {key: body[key] for key in head.element}))
    for where, draft, their in pairs:
        found = changes(draft.element, their)
        if not found:
            continue
        if draft.mended or form.pairs(draft.element) != form.pairs(their):
            source.mended(where)
            continue
        known = [change for change in found if _is_known(change, source, where)]
        if not all(form.takes(draft.element, change) for change in known):
            source.mended(where)
        elif known:
            items = memory.setdefault(draft.owner.id, {})
            items[draft.ordinal] = [fingerprint(draft.element), *known]
    return tuple(_with(message, form.name, memory) for message in messages)


def _with(message: Message, form: str, memory: Mapping[str, Mapping[str, Any]]) -> Message:
    if message.id not in memory:
        return message
    apart = is_apart(message, form)
    return replace(
        message, metadata=remember(message.metadata, form, memory[message.id], apart=apart)
    )


def _is_known(change: list[Any], source: Source, where: str) -> bool:
    """Tell whether a provider knows the fields of a change; a stranger's field is lost."""
    strange = strangers(change[0], source.form)
    if strange:
        path = "".join(path_step(step) for step in change[0])
        source.lost(f"{where}{path}", "unknown-field", f"{source.form.name} knows no such field")
    return not strange


def _apart(source: Source) -> list[int]:
    """The messages that stood in an element of their own beside a neighbour of their role."""
    if not source.form.may_repeat:
        return []
    sides = [message.role == "assistant" for message in source.messages]
    places = source.places
    return [
        index
        for index in range(1, len(places))
        if (places[index] != places[index - 1] >= 0 and sides[index] == sides[index - 1])
        or (source.messages[index].role == "system" and places[index] > 0)
    ]
