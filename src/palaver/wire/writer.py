"""The context of a format's writer: its target, the spelling of names and ids, and the notes."""

from __future__ import annotations

from bisect import bisect_left
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from palaver.messages.part_base import FilePart
from palaver.messages.parts import (
    CompactionPart,
    ReasoningPart,
    SubtaskPart,
    TextPart,
    ToolCallPart,
    ToolPart,
    UnknownPart,
)
from palaver.messages.tool_state import ToolCompleted, ToolError
from palaver.wire.notes import Note
from palaver.wire.pairing import INTERRUPTED, PENDING
from palaver.wire.round_trip import details_of, foreign_details

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from palaver.messages.message import Message
    from palaver.messages.part_base import PartBase
    from palaver.messages.parts import Part
    from palaver.wire.format import Format
    from palaver.wire.pairing import PairedTurn, Pairing
    from palaver.wire.request import Target

__all__ = ["CLEARED", "Writer", "attachments_of", "notes_before", "part_as_text", "raw_block"]

CLEARED: Final = "(output cleared to save room)"
"""What is sent in the place of an output that a compaction has cleared."""
_check_json: Final = msgspec.json.Decoder(msgspec.Raw).decode  # parses, and builds no value


class Writer:
    """Writes one conversation in one format: what its `Format` needs while it writes."""

    def __init__(
        self, form: Format, target: Target, open_calls: Collection[str], pairing: Pairing
    ) -> None:
        """Write in this format for this target; `open_calls` are the calls still running."""
        self.form = form
        self.target = target
        self.names: dict[str, str] = {}
        self.renamed: list[Note] = []
        self.notes: list[tuple[int, Note]] = []
        self.turn = 0
        """The turn that is being written, which notes are about."""
        self.unsettled: int | None = None
        """A turn that is written one way while it is the last, and another way later."""
        self._open = open_calls
        self._pairing = pairing
        self._claimed: dict[str, int] = {}
        self._tools: dict[str, str] = {}
        self._ids: dict[str, object] = {}
        self._fits = form.call_ids.fits

    def rewind(self, turn: int) -> None:
        """Drop the notes about this turn and all after it, and the ids written there."""
        self.notes = notes_before(self.notes, turn)
        if self.unsettled is not None and self.unsettled >= turn:
            self.unsettled = None
        while self._claimed and next(reversed(self._claimed.values())) >= turn:
            self._claimed.popitem()

    def claim_id(self, name: str) -> bool:
        """Claim an id that may be in the request only once; False where it is there already."""
        if name in self._claimed:
            return False
        self._claimed[name] = self.turn
        return True

    def note(
        self, action: Literal["repaired", "lost"], rule: str, detail: str, message: Message
    ) -> None:
        """Note what was repaired or lost."""
        self.notes.append((self.turn, Note(action, self._where(), rule, detail, message.id)))

    def _where(self) -> str:
        return f"messages[{self._pairing.turns[self.turn].position}]"

    def tool_name(self, name: str, message: Message) -> str:
        """Return a tool's name as the provider takes it, and remember it for the way back."""
        spelled = self._tools.get(name)
        if spelled is None:
            spelled = self._tools[name] = self.form.tool_names.spell(name)
            if spelled != name:
                detail = f"{name[:80]!r} is sent as {spelled!r}"
                self.names[spelled] = name
                note = Note("repaired", self._where(), "tool-name", detail, message.id)
                self.renamed.append(note)
        return spelled

    def call_id(self, turn: PairedTurn, position: int) -> str:
        """Return a call's id as the provider takes it, different from all others in the request."""
        name, ids = turn.calls[position].call_id, self._ids
        occurrence = turn.occurrences[position] if turn.occurrences else 0
        if not occurrence and self._fits(name) and ids.setdefault(name, name) == name:
            return name
        key: object = (name, occurrence) if occurrence else name
        wanted, tries = f"{name}#{occurrence + 1}" if occurrence else name, 0
        spelled = self.form.call_ids.spell(wanted)
        while ids.setdefault(spelled, key) != key:  # another call's own id looks the same
            tries += 1
            spelled = self.form.call_ids.spell(f"{wanted}.{tries}")
        rule = "duplicate-call-id" if occurrence else "call-id"
        self.note("repaired", rule, f"{name[:80]!r} is sent as {spelled!r}", turn.message)
        return spelled

    def arguments_text(self, call: ToolCallPart, message: Message) -> str:
        """Return a call's arguments as JSON text: unchanged where the model wrote an object."""
        raw = call.raw
        try:
            _check_json(raw)
            if raw.lstrip()[0] == "{":
                return raw
        except msgspec.DecodeError:
            pass
        if raw:
            detail = f"the arguments of {call.tool} are no JSON object: sent as understood"
            self.note("repaired", "call-arguments", detail, message)
        return msgspec.json.encode(call.input).decode()

    def arguments_object(self, call: ToolCallPart, message: Message) -> dict[str, Any]:
        """Return a call's arguments as an object."""
        if not call.input:
            self.arguments_text(call, message)  # notes where the model wrote something else
        return dict(call.input)

    def sendable_parts(self, turn: PairedTurn) -> Iterable[Part]:
        """Return the parts that may be sent: text, files, calls, reasoning that the target made."""
        parts = turn.message.parts
        return parts if turn.simple else self._sendable(parts, turn.message)

    def _sendable(self, parts: Iterable[Part], message: Message) -> Iterator[Part]:
        for part in parts:
            if isinstance(part, TextPart):
                if not part.ignored:
                    yield part
            elif isinstance(part, ToolCallPart | FilePart):
                yield part
            elif isinstance(part, ReasoningPart):
                if self._may_return(part, message):
                    yield part
            elif not isinstance(part, ToolPart):
                yield from self._other(part, message)

    def _may_return(self, part: ReasoningPart, message: Message) -> bool:
        """Tell whether the target may get its reasoning back; where not, note it."""
        ours = part.metadata.get(self.form.provider)
        if isinstance(ours, dict) and self.target.takes_reasoning_of(message):
            return True
        detail = "reasoning goes only to the model that made it"
        self.note("lost", "foreign-reasoning", detail, message)
        return False

    def _other(self, part: Part, message: Message) -> Iterator[Part]:
        text = part_as_text(part, message.role)
        if isinstance(part, UnknownPart):
            if part.type == self.form.name:
                yield part
                return
        elif text is not None:
            yield _text_part(part, text)
            return
        detail = f"{self.form.name} has no place for a part of type {part.type!r}"
        self.note("lost", "unknown-part", detail, message)

    def note_foreign_details(self, message: Message) -> None:
        """Note the details of other formats in a message, which this format can't express."""
        for form, fields in foreign_details(message, self.form.name):
            detail = f"{form} has {fields}: {self.form.name} has no field for it"
            self.note("lost", "foreign-detail", detail, message)

    def neighbour(self, step: int) -> Message | None:
        """Return the message so many turns on; where there is none yet, one may still come."""
        index, turns = self.turn + step, self._pairing.turns
        return turns[index].message if 0 <= index < len(turns) else None

    def user_spoke_since(self) -> bool:
        """Tell whether the user has spoken since this turn."""
        return self.turn < self._pairing.last_user_turn

    def system_texts(self, turn: PairedTurn) -> Iterator[str]:
        """Yield the texts of a system message."""
        message = turn.message
        if isinstance(message.content, str):
            yield message.content
        for part in self.sendable_parts(turn):
            if isinstance(part, TextPart):
                yield part.text
            elif isinstance(part, FilePart):
                yield self.placeholder(part, message)
            else:
                self.note_misplaced(part, message)

    def inline_system(self, turn: PairedTurn) -> str | None:
        """Return the text for a system message where only a user may speak; None for no text.

        It stays in its position, as the user's text. Further up it would change the beginning of
        the request, which the provider has cached.
        """
        message = turn.message
        text = "\n\n".join(text for text in self.system_texts(turn) if text.strip())
        if not text:
            self.note_nothing(message)
            return None
        if not details_of(message, self.form.name):
            detail = "a system message in the middle is sent as the user's text"
            self.note("repaired", "system-placement", detail, message)
        return f"<system>\n{text}\n</system>"

    def results(self, turn: PairedTurn) -> list[tuple[int, str, bool, ToolPart | None, Message]]:
        """Return a turn's results: call, text, whether it failed, part, message that brought it.

        Those that are there come in the order of their arrival, then a text for each missing one.
        """
        found: list[tuple[int, str, bool, ToolPart | None, Message]] = []
        for result in turn.results:
            part, message = result.part, result.message
            if message.metadata:
                self.note_foreign_details(message)
            if result.moved:
                detail = f"the result of {part.tool} was moved after its call {part.call_id!r}"
                self.note("repaired", "result-out-of-order", detail, message)
            state = part.state
            if type(state) is ToolCompleted:
                output = state.output if state.time.compacted is None else CLEARED
                found.append((result.call, output, False, part, message))
                if state.attachments and not self.form.takes_attachments:
                    self.note_lost_attachments(part, message)
            else:
                output = state.error if type(state) is ToolError else INTERRUPTED
                found.append((result.call, output, True, part, message))
                self._note_failure(part, message)
        if len(found) < len(turn.calls):
            for index in turn.unanswered():
                call = turn.calls[index]
                text = PENDING if call.call_id in self._open else INTERRUPTED
                detail = f"call {call.call_id!r} of {call.tool} has no result: {text}"
                self.note("repaired", "call-without-result", detail, turn.message)
                found.append((index, text, True, None, turn.message))
        return found

    def _note_failure(self, part: ToolPart, message: Message) -> None:
        if not self.form.marks_failures:
            detail = (
                f"that {part.tool} failed is only in its text: {self.form.name} has no field for it"
            )
            self.note("lost", "failed-result", detail, message)

    def placeholder(self, part: FilePart, message: Message) -> str:
        """Return the text that is sent instead of a file that can't be sent."""
        named = f" {part.filename!r}" if part.filename else ""
        detail = f"a file{named} of type {part.mime} can't be sent here: a text is sent instead"
        self.note("lost", "media", detail, message)
        return f"[a file{named} of type {part.mime} is not included]"

    def note_lost_attachments(self, part: ToolPart | None, message: Message) -> None:
        """Note that a result's files are not sent."""
        for file in attachments_of(part):
            detail = f"{self.form.name} takes no file in a result: {file.mime}"
            self.note("lost", "media", detail, message)

    def note_misplaced(self, part: Part, message: Message) -> None:
        """Note that a part has no place in a message of this role."""
        detail = f"a {part.type!r} part has no place in a {message.role} message"
        self.note("lost", "unknown-part", detail, message)

    def note_nothing(self, message: Message) -> None:
        """Note that a message was left out because nothing in it may be sent."""
        detail = f"nothing in this {message.role} message can be sent: it was left out"
        self.note("repaired", "empty-text", detail, message)


def part_as_text(part: Part, role: str) -> str | None:
    """Return the text for a part that requests have no place for, or None."""
    if isinstance(part, SubtaskPart):
        return f"Task for {part.agent}: {part.prompt}"
    return "What did we do so far?" if isinstance(part, CompactionPart) and role == "user" else None


def notes_before(notes: list[tuple[int, Note]], turn: int) -> list[tuple[int, Note]]:
    """Return the notes, which are in order, up to a turn.

    Where some are dropped it is another list, because requests hold the old one.
    """
    end = bisect_left(notes, turn, key=itemgetter(0))
    return notes if end == len(notes) else notes[:end]


def _text_part(part: PartBase, text: str) -> TextPart:
    return TextPart(id=part.id, session_id=part.session_id, message_id=part.message_id, text=text)


def attachments_of(part: ToolPart | None) -> tuple[FilePart, ...]:
    """Return the files of a result, unless a compaction has cleared it."""
    state = part.state if part is not None else None
    if type(state) is ToolCompleted and state.attachments and state.time.compacted is None:
        return state.attachments
    return ()


def raw_block(part: UnknownPart) -> dict[str, Any]:
    """Return the block of this format that palaver stores without understanding it."""
    block = part.raw.get("block")
    return dict(block) if isinstance(block, dict) else {}
