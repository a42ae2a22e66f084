"""A conversation as a reader puts it together: unique ids, calls joined to results, and times.

Ids follow from what was read, so that reading a file twice gives the same messages. A message keeps
the id it had; a part's id follows from its message's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from palaver.messages.codec import to_dict
from palaver.messages.files import FilePart
from palaver.messages.gate import EMPTY
from palaver.messages.ids import NIL_ID, derived_id, uuid_for
from palaver.messages.message import Message
from palaver.messages.parts import (
    CompactionPart,
    ReasoningPart,
    TextPart,
    TextTime,
    ToolCallPart,
    ToolPart,
    UnknownPart,
)
from palaver.messages.toolstate import complete, fail, pending, start

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from palaver.messages.parts import Part

__all__ = ["Call", "Conversation", "Sheet"]

UNKNOWN_TOOL: Final = "unknown"
"""The tool of a result whose call is nowhere to be found."""
_NO_DESCRIPTION: Final = "(no description)"


class Call(NamedTuple):
    """What is known of a tool call when its result comes."""

    tool: str
    input: Mapping[str, Any] = EMPTY
    raw: str = ""
    at: int = 0


class Sheet:
    """The parts of one message, in order, under way."""

    def __init__(self, session_id: str, message_id: str) -> None:
        self.parts: list[Part] = []
        self._session = session_id
        self._message = message_id
        self._plain = True

    def _ids(self) -> dict[str, Any]:
        return {
            "id": derived_id(f"{self._session}\n{self._message}", f"part {len(self.parts)}"),
            "session_id": self._session,
            "message_id": uuid_for(self._message),
        }

    def text(self, text: str, **fields: Any) -> None:  # noqa: ANN401 - the part's own fields
        """Add text."""
        self._plain = self._plain and not self.parts and not fields
        self.parts.append(TextPart(**self._ids(), text=text, **fields))

    def reasoning(self, text: str, at: int, metadata: Mapping[str, Any] = EMPTY) -> None:
        """Add what the model thought."""
        part = ReasoningPart(**self._ids(), text=text, time=TextTime(at, at), metadata=metadata)
        self._add(part)

    def call(self, call_id: str, call: Call, metadata: Mapping[str, Any] = EMPTY) -> None:
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

    def unknown(self, form: str, block: Mapping[str, Any]) -> None:
        """Add what palaver has no part for, kept whole under the name of its format."""
        self._add(UnknownPart({"type": form, "block": block}))

    def _add(self, part: Part) -> None:
        self._plain = False
        self.parts.append(part)

    @property
    def content(self) -> str | tuple[Part, ...]:
        """The parts; a single text with nothing else is plain."""
        first = self.parts[0] if len(self.parts) == 1 else None
        return first.text if self._plain and isinstance(first, TextPart) else tuple(self.parts)


class Conversation:
    """The messages of one conversation, under way."""

    def __init__(self, session: str | None = None) -> None:
        self.session = session
        self.session_id = NIL_ID if session is None else uuid_for(session)
        self.messages: list[Message] = []
        self.calls: dict[str, Call] = {}
        self._taken: set[str] = set()
        self._now = 0

    def at(self, time: int | None) -> int:
        """The time that was given, else that of what came before."""
        self._now = self._now if time is None else time
        return self._now

    def new_id(self, wanted: str | None, place: str) -> str:
        """An id for a message: the one it had if it is free, else one that follows from its place.

        >>> talk = Conversation("s1")
        >>> talk.new_id("m1", "line 1"), talk.new_id("m1", "line 2") == "m1"
        ('m1', False)
        """
        name = wanted
        while name is None or name in self._taken:
            name = derived_id(f"{self.session_id}\n{name}", place)
        self._taken.add(name)
        return name

    def sheet(self, message_id: str) -> Sheet:
        """An empty sheet for a message of this conversation."""
        return Sheet(self.session_id, message_id)

    def result(
        self,
        call_id: str,
        output: str,
        message_id: str,
        at: int,
        *,
        is_error: bool = False,
        tool: str | None = None,
        files: Iterable[tuple[str, str]] = (),
        metadata: Mapping[str, Any] = EMPTY,
    ) -> Message:
        """Make the message that says what became of a call; the caller puts it in its place."""
        known = self.calls.get(call_id) or Call(tool or UNKNOWN_TOOL, at=at)
        running = start(pending(known.input, known.raw), at=min(known.at, at))
        sheet = self.sheet(message_id)
        for mime, url in files:
            sheet.file(mime, url)
        attachments = tuple(part for part in sheet.parts if isinstance(part, FilePart))
        if is_error:
            state: Any = fail(running, output if output.strip() else _NO_DESCRIPTION, at=at)
            if attachments:
                metadata = {**metadata, "attachments": to_dict(attachments)}
        else:
            state = complete(running, output, tool=known.tool, attachments=attachments, at=at)
        part = ToolPart(
            id=derived_id(f"{self.session_id}\n{message_id}", "result"),
            session_id=self.session_id,
            message_id=uuid_for(message_id),
            call_id=call_id,
            tool=known.tool,
            state=state,
            metadata=metadata,
        )
        return Message("tool", (part,), id=message_id, timestamp=at)
