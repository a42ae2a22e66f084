"""What a format's writer has at hand: whom it writes for, spelling, and a place for notes."""

from __future__ import annotations

from bisect import bisect_left
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from palaver.messages.files import FilePart
from palaver.messages.parts import (
    CompactionPart,
    ReasoningPart,
    SubtaskPart,
    TextPart,
    ToolCallPart,
    ToolPart,
    UnknownPart,
)
from palaver.messages.toolstate import ToolCompleted, ToolError
from palaver.wire.memory import memories, said_elsewhere
from palaver.wire.mending import INTERRUPTED, PENDING
from palaver.wire.report import Note

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from palaver.messages.base import PartBase
    from palaver.messages.message import Message
    from palaver.messages.parts import Part
    from palaver.wire.format import Format
    from palaver.wire.mending import Mender, Turn
    from palaver.wire.target import Target

__all__ = ["CLEARED", "Pen", "attachments", "block_of", "in_words"]

CLEARED: Final = "(output cleared to save room)"
_read: Final = msgspec.json.Decoder(msgspec.Raw).decode  # looks through it, and makes nothing


class Pen:
    """Writes one conversation in one format."""

    def __init__(
        self, form: Format, target: Target, open_calls: Collection[str], mender: Mender
    ) -> None:
        """Write in this format for this target; `open_calls` are still at work."""
        self.form = form
        self.target = target
        self.names: dict[str, str] = {}
        self.renamed: list[Note] = []
        self.notes: list[tuple[int, Note]] = []
        self.turn = 0  # what notes are about
        self.unsettled: int | None = None
        """A turn that is written as the last one, and otherwise once another follows."""
        self._open = open_calls
        self._mender = mender
        self._said: dict[str, int] = {}
        self._tools: dict[str, str] = {}
        self._ids: dict[str, object] = {}
        self._fits = form.call_ids.fits

    def rewind(self, turn: int) -> None:
        """Forget the notes about this turn and all after it, and the ids written there."""
        self.notes = rewound(self.notes, turn)
        if self.unsettled is not None and self.unsettled >= turn:
            self.unsettled = None
        while self._said and next(reversed(self._said.values())) >= turn:
            self._said.popitem()

    def once(self, name: str) -> bool:
        """Tell whether an id is new to the request; where it may stand only once, ask first."""
        if name in self._said:
            return False
        self._said[name] = self.turn
        return True

    def note(
        self, action: Literal["repaired", "lost"], rule: str, detail: str, message: Message
    ) -> None:
        """Say what was repaired or lost."""
        self.notes.append((self.turn, Note(action, self._where(), rule, detail, message.id)))

    def _where(self) -> str:
        return f"messages[{self._mender.turns[self.turn].place}]"

    def tool(self, name: str, message: Message) -> str:
        """A tool's name as the provider takes it; remembered, for the way back."""
        spelled = self._tools.get(name)
        if spelled is None:
            spelled = self._tools[name] = self.form.tool_names.spell(name)
            if spelled != name:
                detail = f"{name[:80]!r} is sent as {spelled!r}"
                self.names[spelled] = name
                note = Note("repaired", self._where(), "tool-name", detail, message.id)
                self.renamed.append(note)
        return spelled

    def call_id(self, turn: Turn, position: int) -> str:
        """A call's id as the provider takes it, different from all others in the request."""
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

    def arguments(self, call: ToolCallPart, message: Message) -> str:
        """A call's arguments as JSON text: to the letter where the model wrote JSON."""
        raw = call.raw
        try:
            _read(raw)
            if raw.lstrip()[0] == "{":
                return raw
        except msgspec.DecodeError:
            pass
        if raw:
            detail = f"the arguments of {call.tool} are no JSON object: sent as understood"
            self.note("repaired", "call-arguments", detail, message)
        return msgspec.json.encode(call.input).decode()

    def given(self, call: ToolCallPart, message: Message) -> dict[str, Any]:
        """A call's arguments as an object."""
        if not call.input:
            self.arguments(call, message)  # says where the model wrote something else
        return dict(call.input)

    def sendable(self, turn: Turn) -> Iterable[Part]:
        """The parts that may go out: text, files, calls, reasoning that the target made."""
        parts = turn.message.parts
        return parts if turn.simple else self._sorted(parts, turn.message)

    def _sorted(self, parts: Iterable[Part], message: Message) -> Iterator[Part]:
        for part in parts:
            if isinstance(part, TextPart):
                if not part.ignored:
                    yield part
            elif isinstance(part, ToolCallPart | FilePart):
                yield part
            elif isinstance(part, ReasoningPart):
                if self.takes(part, message):
                    yield part
            elif not isinstance(part, ToolPart):
                yield from self._other(part, message)

    def takes(self, part: ReasoningPart, message: Message) -> bool:
        """Tell whether the target may get a thought back; where not, say so."""
        ours = part.metadata.get(self.form.provider)
        if isinstance(ours, dict) and self.target.takes_reasoning_of(message):
            return True
        detail = "reasoning goes only to the model that made it"
        self.note("lost", "foreign-reasoning", detail, message)
        return False

    def _other(self, part: Part, message: Message) -> Iterator[Part]:
        words = in_words(part, message.role)
        if isinstance(part, UnknownPart):
            if part.type == self.form.name:
                yield part
                return
        elif words is not None:
            yield _said(part, words)
            return
        detail = f"{self.form.name} has no place for a part of type {part.type!r}"
        self.note("lost", "unknown-part", detail, message)

    def strangers(self, message: Message) -> None:
        """Say what another format said in this message and this one can't."""
        for form, detail in said_elsewhere(message, self.form.name):
            words = f"{form} said {detail}: {self.form.name} has no place for it"
            self.note("lost", "foreign-detail", words, message)

    def neighbour(self, step: int) -> Message | None:
        """The message so many turns on; where there is none yet, another may still come."""
        index, turns = self.turn + step, self._mender.turns
        return turns[index].message if 0 <= index < len(turns) else None

    def is_past(self) -> bool:
        """Tell whether the user has spoken since this turn."""
        return self.turn < self._mender.spoken

    def instruction(self, turn: Turn) -> Iterator[str]:
        """The texts of a system message."""
        message = turn.message
        if isinstance(message.content, str):
            yield message.content
        for part in self.sendable(turn):
            if isinstance(part, TextPart):
                yield part.text
            elif isinstance(part, FilePart):
                yield self.left_out(part, message)
            else:
                self.misplaced(part, message)

    def aside(self, turn: Turn) -> str | None:
        """A system message where only a user may speak: it stays in its place, as words.

        Further up it would change the beginning of the request, which the provider has cached.
        """
        message = turn.message
        text = "\n\n".join(text for text in self.instruction(turn) if text.strip())
        if not text:
            self.nothing(message)
            return None
        if not memories(message, self.form.name):
            detail = "a system message in the middle is sent as the user's words"
            self.note("repaired", "system-placement", detail, message)
        return f"<system>\n{text}\n</system>"

    def results(self, turn: Turn) -> list[tuple[int, str, bool, ToolPart | None, Message]]:
        """The results of a turn: call, text, whether it failed, part, message that brought it.

        Those that are there come in the order of their arrival, then a word for each that is not.
        """
        found: list[tuple[int, str, bool, ToolPart | None, Message]] = []
        for result in turn.results:
            part, message = result.part, result.message
            if message.metadata:
                self.strangers(message)
            if result.moved:
                detail = f"the result of {part.tool} was put after its call {part.call_id!r}"
                self.note("repaired", "result-out-of-order", detail, message)
            state = part.state
            if type(state) is ToolCompleted:
                output = state.output if state.time.compacted is None else CLEARED
                found.append((result.call, output, False, part, message))
                if state.attachments and not self.form.takes_attachments:
                    self.attachments_lost(part, message)
            else:
                output = state.error if type(state) is ToolError else INTERRUPTED
                found.append((result.call, output, True, part, message))
                self._failed(part, message)
        if len(found) < len(turn.calls):
            for index in turn.unanswered():
                call = turn.calls[index]
                text = PENDING if call.call_id in self._open else INTERRUPTED
                detail = f"call {call.call_id!r} of {call.tool} has no result: {text}"
                self.note("repaired", "call-without-result", detail, turn.message)
                found.append((index, text, True, None, turn.message))
        return found

    def _failed(self, part: ToolPart, message: Message) -> None:
        if not self.form.says_failure:
            detail = f"that {part.tool} failed is only in its words: {self.form.name} can't say it"
            self.note("lost", "failed-result", detail, message)

    def left_out(self, part: FilePart, message: Message) -> str:
        """What stands for a file that can't be sent."""
        named = f" {part.filename!r}" if part.filename else ""
        detail = f"a file{named} of type {part.mime} can't be sent here: a word stands for it"
        self.note("lost", "media", detail, message)
        return f"[a file{named} of type {part.mime} is not included]"

    def attachments_lost(self, part: ToolPart | None, message: Message) -> None:
        """Say that a result's files stay at home."""
        for file in attachments(part):
            detail = f"{self.form.name} takes no file in a result: {file.mime}"
            self.note("lost", "media", detail, message)

    def misplaced(self, part: Part, message: Message) -> None:
        """Say that a part has no place in a message of this role."""
        detail = f"a {part.type!r} part has no place in a {message.role} message"
        self.note("lost", "unknown-part", detail, message)

    def nothing(self, message: Message) -> None:
        """Say that a message was left out, having nothing that may be sent."""
        detail = f"nothing in this {message.role} message can be sent: it was left out"
        self.note("repaired", "empty-text", detail, message)


def in_words(part: Part, role: str) -> str | None:
    """What is said in the place of a part that requests have no place for."""
    if isinstance(part, SubtaskPart):
        return f"Task for {part.agent}: {part.prompt}"
    return "What did we do so far?" if isinstance(part, CompactionPart) and role == "user" else None


def rewound(notes: list[tuple[int, Note]], turn: int) -> list[tuple[int, Note]]:
    """The notes, which are in order, up to a turn; another list, since requests hold the old."""
    end = bisect_left(notes, turn, key=itemgetter(0))
    return notes if end == len(notes) else notes[:end]


def _said(part: PartBase, text: str) -> TextPart:
    return TextPart(id=part.id, session_id=part.session_id, message_id=part.message_id, text=text)


def attachments(part: ToolPart | None) -> tuple[FilePart, ...]:
    """The files of a result."""
    state = part.state if part is not None else None
    if type(state) is ToolCompleted and state.attachments and state.time.compacted is None:
        return state.attachments
    return ()


def block_of(part: UnknownPart) -> dict[str, Any]:
    """A block of this format that palaver keeps without understanding it."""
    block = part.raw.get("block")
    return dict(block) if isinstance(block, dict) else {}
