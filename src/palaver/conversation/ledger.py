"""The ledger: the state of every tool call that has no result in the log yet.

An entry is written in the same change as the answer that makes the call, and removed in the change
that appends the result. In between it holds the state of the call, and the state running is on disk
before the tool is called: after a crash it is known which calls may have run.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

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
    ToolRunning,
    ToolState,
    pending,
)
from palaver.messages.decode import decode
from palaver.messages.ids import derive_id, now_ms
from palaver.stores.records import APPROVAL
from palaver.tools.approval import GATED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from palaver.stores.records import Record

__all__ = [
    "CALL",
    "LedgerEntry",
    "call_changed",
    "call_digest",
    "content_digest",
    "pending_entries",
    "read_ledger",
]

CALL: Final = "call"
"""The kind of record that holds an entry."""
_MAX_QUOTED: Final = 1_000
"""How many characters of the arguments a result quotes."""


class LedgerEntry(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One tool call and its state.

    `stray` marks an entry that stays in the ledger for good: the result of a call whose answer has
    left the view, or one that came after its call had timed out.
    `asked` is the `content_digest` of the call in the log when it was started; the input in the
    state is what the tool really gets.
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
        """Whether the call has a result."""
        return isinstance(self.state, ToolCompleted | ToolError)

    def with_state(self, state: ToolState, *, idempotent: bool | None = None) -> LedgerEntry:
        """Return the entry in another state."""
        may = self.idempotent if idempotent is None else idempotent
        return replace(self, state=state, idempotent=may)

    def with_progress(self, title: str, metadata: Mapping[str, Any]) -> LedgerEntry:
        """Return the entry of a running call with what it has reported."""
        state = self.state
        if isinstance(state, ToolRunning):
            state = replace(state, title=title, metadata={**state.metadata, **metadata})
        return replace(self, state=state)

    def beside(self) -> LedgerEntry:
        """Return the entry for the ledger when the result of its call is in the log already."""
        return replace(self, id=derive_id(self.id, "late"), stray=True, asked="")

    def reset(self) -> LedgerEntry:
        """Return the entry in the state pending."""
        raw = msgspec.json.encode(self.state.input).decode()
        return replace(self, state=pending(self.state.input, raw))

    def with_edit_note(self) -> LedgerEntry:
        """Return the entry with a result that quotes the call that ran.

        For a call whose message was edited while it ran.
        """
        ran = f"{self.tool} {msgspec.json.encode(self.state.input).decode()[:_MAX_QUOTED]}"
        note = f"[the call was edited while it ran; this is the result of {ran}]\n"
        state, metadata = self.state, {"callEdited": True}
        if isinstance(state, ToolCompleted):
            metadata = {**state.metadata, **metadata}
            state = replace(state, output=note + state.output, metadata=metadata)
        elif isinstance(state, ToolError):
            metadata = {**state.metadata, **metadata}
            state = replace(state, error=note + state.error, metadata=metadata)
        return replace(self, state=state, asked="")

    def record(self) -> Record:
        """Return the record that stores the entry."""
        return (CALL, self.id, msgspec.json.encode(self))

    def removals(self) -> list[Record]:
        """Return the records that remove the entry, and what was decided about its call."""
        decided = APPROVAL in getattr(self.state, "metadata", ())
        kinds = (CALL, APPROVAL, GATED) if decided else (CALL,)
        return [(kind, self.id, None) for kind in kinds]

    def message(self) -> Message:
        """Return the result as a message; the same result always gives the same message."""
        message_id = derive_id(self.id, "result")
        part = ToolPart(
            id=derive_id(self.id, "state"),
            session_id=self.session_id,
            message_id=message_id,
            call_id=self.call_id,
            tool=self.tool,
            state=self.state,
        )
        at = self.state.time.end if isinstance(self.state, ToolCompleted | ToolError) else now_ms()
        return Message("tool", (part,), id=message_id, timestamp=at)


def pending_entries(message: Message) -> Iterator[LedgerEntry]:
    """Yield the entries of an answer's calls, all in the state pending."""
    for position, part in enumerate(message.parts):
        if isinstance(part, ToolCallPart):
            yield LedgerEntry(
                id=part.id,
                session_id=part.session_id,
                message_id=message.id,
                position=position,
                call_id=part.call_id,
                tool=part.tool,
                state=pending(part.input, part.raw),
            )


def content_digest(call: ToolCallPart) -> str:
    """Return the SHA-256 of a call's tool and arguments.

    >>> from palaver.messages import new_id, tool_call_part
    >>> one = tool_call_part(new_id(), new_id(), "pay", {"amount": 5, "to": "Ann"})
    >>> other = tool_call_part(new_id(), new_id(), "pay", {"to": "Ann", "amount": 5}, raw=one.raw)
    >>> content_digest(one) == content_digest(other)
    True
    """
    return _sha256([call.tool, msgspec.to_builtins(call.input), call.raw])


def call_digest(conversation: str, position: int, call: ToolCallPart) -> str:
    """Return the digest that an approval names: of a call and its message's position in the log.

    A message that replaces another has a position of its own, so the digest also changes when only
    the text around the call does.
    """
    return _sha256([conversation, position, call.id, call.call_id, content_digest(call)])


def call_changed(call: ToolCallPart, digest: str | None) -> CallChanged:
    """Return the error for a call that was changed after it was shown; `digest` is its new one."""
    detail = "was changed after it was shown: read it again and approve what it is now"
    return CallChanged(f"the call of {call.tool} ({call.call_id}) {detail}", digest)


def _sha256(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def read_ledger(records: dict[str, bytes]) -> dict[str, LedgerEntry]:
    """Read the ledger from its records, in the order of the calls."""
    try:
        found = [decode(value, LedgerEntry) for value in records.values()]
    except msgspec.DecodeError as error:
        msg = f"the ledger of tool calls can't be read: {error}"
        raise StoreDamaged(msg) from None
    found.sort(key=lambda entry: (entry.message_id, entry.position))
    return {entry.id: entry for entry in found}
