"""The ledger: what is becoming of every tool call that has no result in the log yet.

An entry is written when an answer with calls is stored, in the same change, and taken away in the
change that appends the result. In between it says how far the call got, and it says so on disk
before the tool is touched: after a crash nobody has to guess what ran.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palaver.errors import CallChanged, StoreDamaged
from palaver.messages import (
    Message,
    ToolCallPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    ToolState,
    pending,
)
from palaver.messages.decoding import decode
from palaver.messages.ids import derived_id, now_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palaver.stores.records import Record

__all__ = [
    "CALL",
    "Entry",
    "call_digest",
    "changed_since",
    "content_digest",
    "entries_of",
    "read_entries",
]

CALL: Final = "call"
"""The kind of record an entry is."""
_NOTED: Final = 1_000
"""How many characters of its arguments a result repeats."""


class Entry(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One call: whose it is, and its state.

    `stray` marks a call whose answer has left the view: its result is kept here for good. `asked`
    is the `content_digest` of the call as it stood in the log when it was begun; the input in the
    state is what it really runs with.
    """

    id: str
    session_id: str
    message_id: str
    position: int
    call_id: str
    tool: str
    state: ToolState
    idempotent: bool = False
    stray: bool = False
    asked: str = ""

    @property
    def done(self) -> bool:
        """Tell whether it has a result."""
        return isinstance(self.state, ToolCompleted | ToolError)

    def moved(self, state: ToolState, *, idempotent: bool | None = None) -> Entry:
        """The entry in another state."""
        may = self.idempotent if idempotent is None else idempotent
        return replace(self, state=state, idempotent=may)

    def again(self) -> Entry:
        """The entry as if nothing had happened yet."""
        raw = msgspec.json.encode(self.state.input).decode()
        return replace(self, state=pending(self.state.input, raw))

    def call_edited(self) -> Entry:
        """The entry with a result that says what it is the result of: the call reads otherwise now.

        For a call whose message was replaced while it ran.
        """
        ran = f"{self.tool} {msgspec.json.encode(self.state.input).decode()[:_NOTED]}"
        note = f"[the call was edited while it ran; this is the result of {ran}]\n"
        state, metadata = self.state, {"callEdited": True}
        if isinstance(state, ToolCompleted):
            metadata = {**state.metadata, **metadata}
            state = replace(state, output=note + state.output, metadata=metadata)
        elif isinstance(state, ToolError):
            metadata = {**state.metadata, **metadata}
            state = replace(state, error=note + state.error, metadata=metadata)
        return replace(self, state=state, asked="")

    def kept(self) -> Record:
        """The record that keeps it."""
        return (CALL, self.id, msgspec.json.encode(self))

    def gone(self) -> Record:
        """The record that takes it away."""
        return (CALL, self.id, None)

    def message(self) -> Message:
        """The result as a message; the same result always gives the same message."""
        message_id = derived_id(self.id, "result")
        part = ToolPart(
            id=derived_id(self.id, "state"),
            session_id=self.session_id,
            message_id=message_id,
            call_id=self.call_id,
            tool=self.tool,
            state=self.state,
        )
        at = self.state.time.end if isinstance(self.state, ToolCompleted | ToolError) else now_ms()
        return Message("tool", (part,), id=message_id, timestamp=at)


def entries_of(message: Message) -> Iterator[Entry]:
    """The entries of an answer's calls, all pending."""
    for position, part in enumerate(message.parts):
        if isinstance(part, ToolCallPart):
            yield Entry(
                id=part.id,
                session_id=part.session_id,
                message_id=message.id,
                position=position,
                call_id=part.call_id,
                tool=part.tool,
                state=pending(part.input, part.raw),
            )


def content_digest(call: ToolCallPart) -> str:
    """The SHA-256 of what a call asks for: its tool and its arguments.

    >>> from palaver.messages import new_id, tool_call_part
    >>> one = tool_call_part(new_id(), new_id(), "pay", {"amount": 5, "to": "Ann"})
    >>> other = tool_call_part(new_id(), new_id(), "pay", {"to": "Ann", "amount": 5}, raw=one.raw)
    >>> content_digest(one) == content_digest(other)
    True
    """
    return _sha256([call.tool, msgspec.to_builtins(call.input), call.raw])


def call_digest(conversation: str, position: int, call: ToolCallPart) -> str:
    """What an approval names: the SHA-256 of a call, with the version of its message.

    `position` is where its message stands in the log. A message that replaces another has a
    position of its own, so the digest also changes when only the words around the call do.
    """
    return _sha256([conversation, position, call.id, call.call_id, content_digest(call)])


def changed_since(call: ToolCallPart, digest: str | None) -> CallChanged:
    """The error for a call that is not the one which was shown; `digest` is its own now."""
    what = "was changed after it was shown: read it again and approve what it is now"
    return CallChanged(f"the call of {call.tool} ({call.call_id}) {what}", digest)


def _sha256(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def read_entries(records: dict[str, bytes]) -> dict[str, Entry]:
    """The ledger as a store kept it, in the order of the calls."""
    try:
        found = [decode(value, Entry) for value in records.values()]
    except msgspec.DecodeError as error:
        msg = f"the ledger of tool calls can't be read: {error}"
        raise StoreDamaged(msg) from None
    found.sort(key=lambda entry: (entry.message_id, entry.position))
    return {entry.id: entry for entry in found}
