"""Sessions of Codex: rollout files, JSON lines of a header, items and events.

Items are what went to the model and came back; they are the conversation. Events say again, for the
screen, what items said, and give the tokens used and what was rolled back. Older files have the
items bare, newer ones wrapped: `{"timestamp", "type": "response_item", "payload": {…}}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.errors import ValidationError
from palaver.messages.gate import is_object
from palaver.messages.ids import derived_id
from palaver.messages.message import AssistantInfo, Message
from palaver.messages.parts import ModelRef
from palaver.wire.report import Reading
from palaver.wire.transcripts.building import Conversation
from palaver.wire.transcripts.fields import (
    count_in,
    list_in,
    milliseconds,
    name_in,
    object_in,
    text_in,
    token_counts,
)
from palaver.wire.transcripts.gathering import Notes
from palaver.wire.transcripts.lines import Record, records
from palaver.wire.transcripts.responses import (
    OUTPUTS,
    PROVIDER,
    output_of,
    put_content,
    put_item,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from palaver.messages.parts import TokenCounts
    from palaver.wire.transcripts.building import Sheet

__all__ = ["BARE", "WRAPPED", "read"]

WRAPPED: Final = frozenset(
    ("session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state",
     "inter_agent_communication", "inter_agent_communication_metadata", "security_risk_score")
)  # fmt: skip
"""The types of a line that has a payload."""
BARE: Final = frozenset(
    ("message", "reasoning", "function_call", "custom_tool_call", "local_shell_call",
     "web_search_call", "image_generation_call", *OUTPUTS)
)  # fmt: skip
"""The types of an item that stands on a line by itself, in older files."""
_SAID_AGAIN: Final = frozenset(
    ("user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content",
     "context_compacted", "web_search_end", "image_generation_end")
)  # fmt: skip
"""Events that say for the screen what an item says: nothing is lost without them."""
_INJECTED: Final = (
    "<environment_context>", "<environments_instructions>", "<user_instructions>",
    "<apps_instructions>", "<skills_instructions>", "<plugins_instructions>", "<tools>",
    "<collaboration_mode>", "<multi_agent_mode>", "<context_window", "<turn_aborted>",
    "<user_shell_command>", "<codex_internal_context", "<goal_context>", "<subagent_notification>",
    "# AGENTS.md instructions",
)  # fmt: skip
"""How a user's message begins that the program wrote: a turn does not begin there."""


def read(source: bytes | Path) -> Iterator[Reading]:
    """Read a session; a file holds one."""
    session = _Session()
    for record in records(source, session.notes):
        try:
            session.take(record)
        except ValidationError as error:
            session.notes.lost(record.where, "transcript.damaged", str(error))
    yield session.reading()


class _Answer:
    """An answer, under way: items of the model until a user or a tool speaks."""

    def __init__(self, message_id: str, sheet: Sheet, at: int, model: ModelRef | None) -> None:
        self.id = message_id
        self.sheet = sheet
        self.at = at
        self.ended = at
        self.model = model
        self.tokens: TokenCounts | None = None
        self.finish: str | None = None

    def message(self) -> Message:
        """The whole answer."""
        info = AssistantInfo(
            model=self.model, tokens=self.tokens, finish=self.finish, completed=self.ended
        )
        return Message("assistant", self.sheet.content, id=self.id, timestamp=self.at, info=info)


class _Session:
    """A file, under way."""

    def __init__(self) -> None:
        self.notes = Notes()
        self.talk = Conversation()
        self.about: dict[str, Any] = {}
        self.said: list[Message | _Answer] = []
        self.answer: _Answer | None = None
        self.latest: _Answer | None = None
        self.turns: list[int] = []
        self.provider = PROVIDER
        self.model: ModelRef | None = None
        self.counted: object = None

    def take(self, record: Record) -> None:
        """Take a line in."""
        value, kind = record.value, record.value.get("type")
        at = self.talk.at(milliseconds(value.get("timestamp")))
        payload = object_in(value, "payload")
        if kind == "response_item":
            self._item(payload, record, at)
        elif kind == "event_msg":
            self._event(payload, record)
        elif kind == "session_meta":
            self._begin(payload, record, at)
        elif kind == "turn_context":
            self._turn(payload, record)
        elif kind == "compacted":
            self._compact(payload, record, at)
        elif kind == "inter_agent_communication":
            self._item({**payload, "type": "agent_message"}, record, at)
        elif isinstance(kind, str) and kind in BARE:
            self._item(value, record, at)
        elif kind is None and "id" in value and "timestamp" in value:
            self._begin(value, record, at)
        else:
            name = kind if isinstance(kind, str) else text_in(value, "record_type") or "no type"
            self.notes.passed_over(record.where, name, "is no part of what was said")

    def _begin(self, meta: Mapping[str, Any], record: Record, at: int) -> None:
        """Read the header: a file that was forked has its own first, then that of its origin."""
        if "id" in self.about:
            self.notes.passed_over(record.where, "session_meta", "the header of what it came from")
            return
        names = {"id": "id", "cwd": "cwd", "cli_version": "version", "git": "git",
                 "originator": "originator", "forked_from_id": "forked_from"}  # fmt: skip
        self.about |= {ours: meta[name] for name, ours in names.items() if meta.get(name)}
        self.about["created"] = milliseconds(meta.get("timestamp")) or at
        self.provider = name_in(meta, "model_provider") or PROVIDER
        session = name_in(meta, "id")
        if session is not None and not self.said:
            self.talk = Conversation(session)
            self.talk.at(at)
        base = object_in(meta, "base_instructions")
        instructions = text_in(base, "text") or text_in(meta, "instructions")
        if instructions:
            name = self.talk.new_id(derived_id(session or "", "instructions"), record.where)
            self.said.append(Message("system", instructions, id=name, timestamp=at))

    def _turn(self, context: Mapping[str, Any], record: Record) -> None:
        model, cwd = name_in(context, "model"), text_in(context, "cwd")
        if model is not None:
            self.model = ModelRef(self.provider, model)
            self.about["model"] = model
        if cwd:
            self.about.setdefault("cwd", cwd)
        self.notes.passed_over(record.where, "turn_context", "only model and folder are kept")

    def _item(self, item: Mapping[str, Any], record: Record, at: int) -> None:
        kind, role = text_in(item, "type"), text_in(item, "role")
        if kind in OUTPUTS:
            self._output(item, record, at)
        elif kind == "agent_message" or (kind == "message" and role != "assistant"):
            self._listen(item, record, at)
        elif is_object(item) and item:
            if self.answer is None:
                name = self.talk.new_id(name_in(item, "id"), record.where)
                self.answer = _Answer(name, self.talk.sheet(name), at, self.model)
                self.latest = self.answer
                self.said.append(self.answer)
            put_item(self.answer.sheet, item, self.talk, at)
            self.answer.ended = at
        else:
            self.notes.lost(record.where, "transcript.damaged", "has no payload")

    def _listen(self, item: Mapping[str, Any], record: Record, at: int) -> None:
        """Read what a user, the program or another agent said to the model."""
        self.answer = None
        name = self.talk.new_id(name_in(item, "id"), record.where)
        sheet = self.talk.sheet(name)
        put_content(sheet, item.get("content"))
        if text_in(item, "encrypted_content"):
            sheet.unknown("openai-responses", item)
        role = text_in(item, "role")
        spoken_by = {key: item[key] for key in ("author", "recipient") if text_in(item, key)}
        if role in {"system", "developer"}:
            metadata = {PROVIDER: {"role": role}} if role == "developer" else {}
            made = Message("system", sheet.content, id=name, timestamp=at, metadata=metadata)
        else:
            metadata = {"codex": spoken_by} if spoken_by else {}
            made = Message("user", sheet.content, id=name, timestamp=at, metadata=metadata)
            if not spoken_by and not made.text.lstrip().startswith(_INJECTED):
                self.turns.append(len(self.said))
        self.said.append(made)

    def _output(self, item: Mapping[str, Any], record: Record, at: int) -> None:
        call_id = name_in(item, "call_id", "id")
        if call_id is None:
            detail = "is the result of a call that it does not name"
            self.notes.lost(record.where, "transcript.damaged", detail)
            return
        self.answer = None
        output = output_of(item)
        name = self.talk.new_id(name_in(item, "id"), record.where)
        made = self.talk.result(
            call_id,
            output.text,
            name,
            at,
            is_error=output.is_error,
            tool=name_in(item, "name"),
            files=output.files,
            metadata=output.metadata,
        )
        self.said.append(made)

    def _compact(self, payload: Mapping[str, Any], record: Record, at: int) -> None:
        """Mark the place. What was before stays; the model went on with the summary."""
        self.answer = None
        name = self.talk.new_id(None, record.where)
        sheet = self.talk.sheet(name)
        sheet.compaction(auto=True)
        if text_in(payload, "message"):
            sheet.text(payload["message"])
        history = [item for item in list_in(payload, "replacement_history") if is_object(item)]
        for item in history:
            if text_in(item, "encrypted_content") and item.get("type") != "reasoning":
                sheet.unknown("openai-responses", item)
        if history:
            detail = f"replacement history ({len(history)} items): the messages are kept whole"
            self.notes.passed_over(record.where, "compacted", detail)
        self.said.append(Message("user", sheet.content, id=name, timestamp=at))

    def _event(self, event: Mapping[str, Any], record: Record) -> None:
        kind = text_in(event, "type")
        if kind == "token_count":
            self._count(object_in(event, "info"))
        elif kind == "thread_rolled_back":
            self._roll_back(count_in(event, "num_turns"), record)
        elif kind == "turn_aborted":
            if self.latest is not None:
                self.latest.finish = "aborted"
        elif kind not in _SAID_AGAIN:
            self.notes.passed_over(record.where, f"event {kind}", "is no part of what was said")

    def _count(self, info: Mapping[str, Any]) -> None:
        """Tokens come after the answer they were used for, and sometimes twice."""
        last, total = object_in(info, "last_token_usage"), info.get("total_token_usage")
        answer, again = self.latest, total == self.counted
        self.counted = total
        if again or answer is None or answer.tokens is not None or not last:
            return
        answer.tokens = token_counts(
            count_in(last, "input_tokens"),
            count_in(last, "output_tokens"),
            read=count_in(last, "cached_input_tokens"),
            write=count_in(last, "cache_write_input_tokens"),
            reasoning=count_in(last, "reasoning_output_tokens"),
        )

    def _roll_back(self, count: int, record: Record) -> None:
        """Take back the last turns, as the user did."""
        if not count or not self.turns:
            return
        begin = self.turns[max(len(self.turns) - count, 0)]
        gone = len(self.said) - begin
        del self.said[begin:], self.turns[max(len(self.turns) - count, 0) :]
        self.answer = self.latest = None
        detail = f"the user went back: {gone} messages of {count} turns are left out"
        self.notes.lost(record.where, "transcript.branch", detail)

    def reading(self) -> Reading:
        """What was said, and about it."""
        messages: list[Message] = []
        for said in self.said:
            if isinstance(said, _Answer) and not said.sheet.parts:
                continue  # all of it was damaged, and is noted
            try:
                messages.append(said.message() if isinstance(said, _Answer) else said)
            except ValidationError as error:
                self.notes.lost("an answer", "transcript.damaged", str(error))
        return Reading(tuple(messages), self.notes.all(), self.about)
