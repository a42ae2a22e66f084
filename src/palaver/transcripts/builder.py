"""Builders of conversations: unique ids, calls joined to results, and times.

Ids follow from what was read, so that reading a file twice gives the same messages. A message has
the id it had in its file; a part's id follows from its message's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from palaver.messages.codec import to_dict
from palaver.messages.ids import NIL_ID, derive_id, uuid_for
from palaver.messages.limits import EMPTY
from palaver.messages.message import Message
from palaver.messages.part_base import FilePart
from palaver.messages.parts import (
    CompactionPart,
    ReasoningPart,
    TextPart,
    TextTime,
    ToolCallPart,
    ToolPart,
    UnknownPart,
    read_arguments,
)
from palaver.messages.tool_state import complete, fail, pending, start
from palaver.transcripts.sources import is_name
from palaver.wire.format import (
    CallContent,
    FileContent,
    ReasoningContent,
    TextContent,
    UnknownContent,
)
from palaver.wire.reply import metadata_of_call
from palaver.wire.request import NO_DESCRIPTION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from palaver.messages.parts import Part
    from palaver.wire.format import Content

__all__ = ["ConversationBuilder", "KnownCall", "MessageBuilder"]

_UNKNOWN_TOOL: Final = "unknown"
"""The tool of a result whose call is nowhere to be found."""


class KnownCall(NamedTuple):
    """What is known of a tool call when its result comes."""

    tool: str
    input: Mapping[str, Any] = EMPTY
    raw: str = ""
    at: int = 0


class MessageBuilder:
    """Builds the parts of one message, in order."""

    def __init__(self, session_id: str, message_id: str) -> None:
        """Start without parts."""
        self.parts: list[Part] = []
        self._session = session_id
        self._message = message_id
        self._plain = True

    def _ids(self) -> dict[str, Any]:
        return {
            "id": derive_id(f"{self._session}\n{self._message}", f"part {len(self.parts)}"),
            "session_id": self._session,
            "message_id": uuid_for(self._message),
        }

    def text(self, text: str, **fields: Any) -> None:  # noqa: ANN401 - the part's own fields
        """Add a text."""
        self._plain = self._plain and not self.parts and not fields
        self.parts.append(TextPart(**self._ids(), text=text, **fields))

    def reasoning(self, text: str, at: int, metadata: Mapping[str, Any] = EMPTY) -> None:
        """Add reasoning of the model."""
        part = ReasoningPart(**self._ids(), text=text, time=TextTime(at, at), metadata=metadata)
        self._add(part)

    def call(self, call_id: str, call: KnownCall, metadata: Mapping[str, Any] = EMPTY) -> None:
        """Add a tool call."""
        ids, (tool, given, raw, _at) = self._ids(), call
        self._add(
            ToolCallPart(**ids, call_id=call_id, tool=tool, input=given, raw=raw, metadata=metadata)
        )

    def file(self, mime: str, url: str, filename: str | None = None) -> None:
        """Add a file."""
        self._add(FilePart(**self._ids(), mime=mime, url=url, filename=filename))

    def compaction(self, *, auto: bool) -> None:
        """Add the mark of a compaction."""
        self._add(CompactionPart(**self._ids(), auto=auto))

    def unknown(self, form: str, block: Mapping[str, Any], **context: Any) -> None:  # noqa: ANN401 - JSON
        """Add a block that palaver has no part for, whole and under the name of its format."""
        self._add(UnknownPart({"type": form, "block": block, **context}))

    def _add(self, part: Part) -> None:
        self._plain = False
        self.parts.append(part)

    @property
    def content(self) -> str | tuple[Part, ...]:
        """The parts; a single text with nothing else is a plain text."""
        first = self.parts[0] if len(self.parts) == 1 else None
        return first.text if self._plain and isinstance(first, TextPart) else tuple(self.parts)


class ConversationBuilder:
    """Builds the messages of one conversation."""

    def __init__(self, session: str | None = None) -> None:
        """Start without messages; `session` is the conversation's id in its file."""
        self.session = session
        self.session_id = NIL_ID if session is None else uuid_for(session)
        self.messages: list[Message] = []
        self.calls: dict[str, KnownCall] = {}
        self._ids: set[str] = set()
        self._now = 0

    def at(self, time: int | None) -> int:
        """Return the time that was given, else that of what came before."""
        self._now = self._now if time is None else time
        return self._now

    def new_id(self, wanted: str | None, place: str) -> str:
        """Return an id for a message: the one it had if it is free, else one made of its place.

        >>> builder = ConversationBuilder("s1")
        >>> builder.new_id("m1", "line 1"), builder.new_id("m1", "line 2") == "m1"
        ('m1', False)
        """
        name = wanted
        while name is None or name in self._ids:
            name = derive_id(f"{self.session_id}\n{name}", place)
        self._ids.add(name)
        return name

    def message(self, message_id: str) -> MessageBuilder:
        """Return a builder for a message of this conversation."""
        return MessageBuilder(self.session_id, message_id)

    def add(
        self,
        message: MessageBuilder,
        content: Content,
        at: int,
        *,
        form: str,
        provider: str,
        **fields: bool,
    ) -> bool:
        """Add what a provider's block says to a message; False where its ids can't be used.

        `fields` are those of a text part.
        """
        if isinstance(content, TextContent):
            metadata = {"metadata": {provider: content.metadata}} if content.metadata else {}
            message.text(content.text, **metadata, **fields)
        elif isinstance(content, ReasoningContent):
            message.reasoning(content.text, at, {provider: content.metadata})
        elif isinstance(content, FileContent):
            message.file(content.mime, content.url, content.filename)
        elif isinstance(content, UnknownContent):
            message.unknown(form, content.block, **content.context)
        else:
            return self._add_call(message, content, at, provider)
        return True

    def _add_call(
        self, message: MessageBuilder, content: CallContent, at: int, provider: str
    ) -> bool:
        if not is_name(content.call_id) or not is_name(content.tool):
            return False
        given = read_arguments(content.arguments)
        call = KnownCall(content.tool, given.input, given.raw, at)
        self.calls[content.call_id] = call
        metadata = metadata_of_call(provider, content.metadata, wrapped=given.wrapped)
        message.call(content.call_id, call, metadata)
        return True

    def result(
        self,
        call_id: str,
        output: str,
        message_id: str,
        at: int,
        *,
        is_error: bool = False,
        tool: str | None = None,
        files: Iterable[FileContent] = (),
        metadata: Mapping[str, Any] = EMPTY,
    ) -> Message:
        """Return the message with the result of a call; the caller puts it in its place."""
        known = self.calls.get(call_id) or KnownCall(tool or _UNKNOWN_TOOL, at=at)
        running = start(pending(known.input, known.raw), at=min(known.at, at))
        builder = self.message(message_id)
        for file in files:
            builder.file(file.mime, file.url, file.filename)
        attachments = tuple(part for part in builder.parts if isinstance(part, FilePart))
        if is_error:
            state: Any = fail(running, output if output.strip() else NO_DESCRIPTION, at=at)
            if attachments:
                metadata = {**metadata, "attachments": to_dict(attachments)}
        else:
            state = complete(running, output, tool=known.tool, attachments=attachments, at=at)
        part = ToolPart(
            id=derive_id(f"{self.session_id}\n{message_id}", "result"),
            session_id=self.session_id,
            message_id=uuid_for(message_id),
            call_id=call_id,
            tool=known.tool,
            state=state,
            metadata=metadata,
        )
        return Message("tool", (part,), id=message_id, timestamp=at)
