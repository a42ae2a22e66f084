"""Sessions of Codex: rollout files, JSON lines of a header, items and events.

Items are what went to the model and came back; they are the conversation. Events repeat for the
screen what items say, and give the tokens used and what was rolled back. Older files have the items
bare, newer ones wrapped: `{"timestamp", "type": "response_item", "payload": {…}}`. The oldest are
one document, `{"session": {…}, "items": […]}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.errors import ValidationError
from palaver.messages.codec import dump
from palaver.messages.ids import derive_id
from palaver.messages.limits import is_list, is_object
from palaver.messages.message import AssistantInfo, Message
from palaver.messages.parts import ModelRef
from palaver.transcripts.builder import ConversationBuilder, KnownCall
from palaver.transcripts.sources import (
    LineRecord,
    get_count,
    get_list,
    get_name,
    get_object,
    get_text,
    parse_time,
    read_records_or_document,
    token_counts,
)
from palaver.wire.notes import NoteCollector, ParsedConversation
from palaver.wire.openai_responses.blocks import (
    CALLS,
    RESULTS,
    read_content,
    read_item,
    read_output,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from palaver.messages.parts import TokenCounts
    from palaver.transcripts.builder import MessageBuilder
    from palaver.wire.format import Content

__all__ = ["BARE", "WRAPPED", "is_document", "read"]

_FORM: Final = "openai-responses"
_PROVIDER: Final = "openai"
_LOCAL_SHELL: Final = "local_shell_call"
"""A call that Codex runs itself, and answers like any other."""
_OUTPUTS: Final = RESULTS | {f"{_LOCAL_SHELL}_output"}
WRAPPED: Final = frozenset(
    ("session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state",
     "inter_agent_communication", "inter_agent_communication_metadata", "security_risk_score")
)  # fmt: skip
"""The types of a line that has a payload."""
BARE: Final = frozenset(
    ("message", "reasoning", "function_call", "custom_tool_call", "local_shell_call",
     "web_search_call", "image_generation_call", *_OUTPUTS)
)  # fmt: skip
"""The types of an item that is a line by itself, in older files."""
_REPEATING: Final = frozenset(
    ("user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content",
     "context_compacted", "web_search_end", "image_generation_end")
)  # fmt: skip
"""Events that repeat an item for the screen; a text that no item has is noted."""
_INJECTED: Final = (
    "<environment_context>", "<environments_instructions>", "<user_instructions>",
    "<apps_instructions>", "<skills_instructions>", "<plugins_instructions>", "<tools>",
    "<collaboration_mode>", "<multi_agent_mode>", "<context_window", "<turn_aborted>",
    "<user_shell_command>", "<codex_internal_context", "<goal_context>", "<subagent_notification>",
    "# AGENTS.md instructions",
)  # fmt: skip
"""How a user's message begins that the program wrote: no turn begins there."""


def is_document(value: Mapping[str, Any]) -> bool:
    """Tell whether a value is a session in one document, as the oldest releases wrote it."""
    session = value.get("session")
    return is_object(session) and "id" in session and is_list(value.get("items"))


def read(source: bytes | Path) -> Iterator[ParsedConversation]:
    """Read a session; a file holds one."""
    session = _CodexSession()
    for record in _records(source, session.notes):
        try:
            session.read(record)
        except ValidationError as error:
            session.notes.lost(record.where, "transcript.damaged", str(error))
    yield session.conversation()


def _records(source: bytes | Path, notes: NoteCollector) -> Iterator[LineRecord]:
    """Yield the lines; of a document, its header and its items as if they were lines."""
    for record in read_records_or_document(source, notes):
        if not is_document(record.value):
            yield record
            continue
        yield LineRecord(
            1, {"type": "session_meta", "payload": record.value["session"]}, "$.session"
        )
        for index, item in enumerate(record.value["items"]):
            if is_object(item):
                wrapped = {"type": "response_item", "payload": item}
                yield LineRecord(1, wrapped, f"$.items[{index}]")
            else:
                notes.lost(f"$.items[{index}]", "transcript.damaged", "must be an object")


def _texts(item: Mapping[str, Any]) -> Iterator[str]:
    """Yield each text of an item, and all of them as an event may join them."""
    blocks = (*get_list(item, "content"), *get_list(item, "summary"))
    texts = [get_text(block, "text").strip() for block in blocks if is_object(block)]
    yield from texts
    if len(texts) > 1:
        yield from ("".join(texts), "\n".join(texts))


class _CodexReply:
    """An answer: the items of the model until a user or a tool speaks."""

    def __init__(
        self, message_id: str, parts: MessageBuilder, at: int, model: ModelRef | None
    ) -> None:
        self.id = message_id
        self.parts = parts
        self.at = at
        self.ended = at
        self.model = model
        self.tokens: TokenCounts | None = None
        self.finish: str | None = None
        self.after: str | None = None
        """The id of the reasoning that comes before the next item."""

    def message(self) -> Message:
        """Return the whole answer."""
        info = AssistantInfo(
            model=self.model, tokens=self.tokens, finish=self.finish, completed=self.ended
        )
        return Message("assistant", self.parts.content, id=self.id, timestamp=self.at, info=info)


class _CodexSession:
    """Reads the lines of one file."""

    def __init__(self) -> None:
        self.notes = NoteCollector()
        self.builder = ConversationBuilder()
        self.about: dict[str, Any] = {}
        self.said: list[Message | _CodexReply] = []
        self.answer: _CodexReply | None = None
        self.latest: _CodexReply | None = None
        self.turns: list[int] = []
        self.provider = _PROVIDER
        self.model: ModelRef | None = None
        self.counted: object = None
        self.heard: set[str] = set()
        """The texts of the items, without the space around them."""
        self.shown: list[tuple[str, str, str]] = []
        """Place, kind and text of each event that repeats an item."""

    def read(self, record: LineRecord) -> None:
        """Read a line."""
        value, kind = record.value, record.value.get("type")
        at = self.builder.at(parse_time(value.get("timestamp")))
        payload = get_object(value, "payload")
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
            name = kind if isinstance(kind, str) else get_text(value, "record_type") or "no type"
            self.notes.skipped(record.where, name, "is no part of what was said")

    def _begin(self, meta: Mapping[str, Any], record: LineRecord, at: int) -> None:
        """Read the header; a file that was forked has its own first, then that of its origin."""
        if "id" in self.about:
            self.notes.skipped(record.where, "session_meta", "the header of what it came from")
            return
        names = {"id": "id", "cwd": "cwd", "cli_version": "version", "git": "git",
                 "originator": "originator", "forked_from_id": "forked_from"}  # fmt: skip
        self.about |= {ours: meta[name] for name, ours in names.items() if meta.get(name)}
        self.about["created"] = parse_time(meta.get("timestamp")) or at
        self.provider = get_name(meta, "model_provider") or _PROVIDER
        session = get_name(meta, "id")
        if session is not None and not self.said:
            self.builder = ConversationBuilder(session)
            self.builder.at(at)
        base = get_object(meta, "base_instructions")
        instructions = get_text(base, "text") or get_text(meta, "instructions")
        if instructions:
            name = self.builder.new_id(derive_id(session or "", "instructions"), record.where)
            self.said.append(Message("system", instructions, id=name, timestamp=at))

    def _turn(self, context: Mapping[str, Any], record: LineRecord) -> None:
        model, cwd = get_name(context, "model"), get_text(context, "cwd")
        if model is not None:
            self.model = ModelRef(self.provider, model)
            self.about["model"] = model
        if cwd:
            self.about.setdefault("cwd", cwd)
        self.notes.skipped(record.where, "turn_context", "only model and folder are kept")

    def _item(self, item: Mapping[str, Any], record: LineRecord, at: int) -> None:
        kind, role = get_text(item, "type"), get_text(item, "role")
        self.heard.update(_texts(item))
        if kind in _OUTPUTS:
            self._output(item, record, at)
        elif kind == "agent_message" or (kind == "message" and role != "assistant"):
            self._read_message(item, record, at)
        elif is_object(item) and item:
            if self.answer is None:
                name = self.builder.new_id(get_name(item, "id"), record.where)
                self.answer = _CodexReply(name, self.builder.message(name), at, self.model)
                self.latest = self.answer
                self.said.append(self.answer)
            self._add_item(self.answer, item, at)
            self.answer.ended = at
        else:
            self.notes.lost(record.where, "transcript.damaged", "has no payload")

    def _add_item(self, answer: _CodexReply, item: Mapping[str, Any], at: int) -> None:
        """Add an item of the model to its answer."""
        call_id, kind = get_name(item, "call_id", "id"), get_text(item, "type")
        if kind == _LOCAL_SHELL and call_id is not None:
            action = get_object(item, "action")
            call = KnownCall("local_shell", action, dump(action).decode(), at)
            self.builder.calls[call_id] = call
            known = {name: item[name] for name in ("id", "status") if item.get(name) is not None}
            answer.parts.call(call_id, call, {_PROVIDER: {**known, "type": _LOCAL_SHELL}})
            return
        if kind in CALLS and "call_id" not in item:
            item = {**item, "call_id": call_id}
        self._add(answer.parts, read_item(item, answer.after), at, item)
        if kind == "reasoning":
            answer.after = get_name(item, "id")

    def _add(
        self,
        message: MessageBuilder,
        found: Iterable[Content],
        at: int,
        item: Mapping[str, Any] | None = None,
    ) -> None:
        for content in found:
            added = self.builder.add(message, content, at, form=_FORM, provider=_PROVIDER)
            if not added and item is not None:
                message.unknown(_FORM, item)

    def _read_message(self, item: Mapping[str, Any], record: LineRecord, at: int) -> None:
        """Read a message of a user, the program or another agent to the model."""
        self.answer = None
        name = self.builder.new_id(get_name(item, "id"), record.where)
        message = self.builder.message(name)
        self._add(message, read_content(item.get("content")), at)
        if get_text(item, "encrypted_content"):
            message.unknown(_FORM, item)
        role = get_text(item, "role")
        spoken_by = {key: item[key] for key in ("author", "recipient") if get_text(item, key)}
        if role in {"system", "developer"}:
            metadata = {_PROVIDER: {"role": role}} if role == "developer" else {}
            made = Message("system", message.content, id=name, timestamp=at, metadata=metadata)
        else:
            metadata = {"codex": spoken_by} if spoken_by else {}
            made = Message("user", message.content, id=name, timestamp=at, metadata=metadata)
            if not spoken_by and not made.text.lstrip().startswith(_INJECTED):
                self.turns.append(len(self.said))
        self.said.append(made)

    def _output(self, item: Mapping[str, Any], record: LineRecord, at: int) -> None:
        call_id = get_name(item, "call_id", "id")
        if call_id is None:
            detail = "is the result of a call that it does not name"
            self.notes.lost(record.where, "transcript.damaged", detail)
            return
        self.answer = None
        output = read_output(item)
        name = self.builder.new_id(get_name(item, "id"), record.where)
        made = self.builder.result(
            call_id,
            output.output,
            name,
            at,
            is_error=output.failed,
            tool=get_name(item, "name"),
            files=output.files,
            metadata={_PROVIDER: output.metadata} if output.metadata else {},
        )
        self.said.append(made)

    def _compact(self, payload: Mapping[str, Any], record: LineRecord, at: int) -> None:
        """Mark a compaction. What was before stays; the model went on with the summary."""
        self.answer = None
        name = self.builder.new_id(None, record.where)
        message = self.builder.message(name)
        message.compaction(auto=True)
        if get_text(payload, "message"):
            message.text(payload["message"])
        history = [item for item in get_list(payload, "replacement_history") if is_object(item)]
        for item in history:
            if get_text(item, "encrypted_content") and item.get("type") != "reasoning":
                message.unknown(_FORM, item)
        if history:
            detail = f"replacement history ({len(history)} items): the messages are kept whole"
            self.notes.skipped(record.where, "compacted", detail)
        self.said.append(Message("user", message.content, id=name, timestamp=at))

    def _event(self, event: Mapping[str, Any], record: LineRecord) -> None:
        kind = get_text(event, "type")
        if kind == "token_count":
            self._count(get_object(event, "info"))
        elif kind == "thread_rolled_back":
            self._roll_back(get_count(event, "num_turns"), record)
        elif kind == "turn_aborted":
            if self.latest is not None:
                self.latest.finish = "interrupted"  # as of a live answer that broke off
        elif kind in _REPEATING:
            text = get_text(event, "message") or get_text(event, "text")
            self.shown.append((record.where, kind, text.strip()))
        else:
            self.notes.skipped(record.where, f"event {kind}", "is no part of what was said")

    def _count(self, info: Mapping[str, Any]) -> None:
        """Read the tokens, which come after the answer they were used for, sometimes twice."""
        last, total = get_object(info, "last_token_usage"), info.get("total_token_usage")
        answer, again = self.latest, total == self.counted
        self.counted = total
        if again or answer is None or answer.tokens is not None or not last:
            return
        answer.tokens = token_counts(
            get_count(last, "input_tokens"),
            get_count(last, "output_tokens"),
            read=get_count(last, "cached_input_tokens"),
            write=get_count(last, "cache_write_input_tokens"),
            reasoning=get_count(last, "reasoning_output_tokens"),
        )

    def _roll_back(self, count: int, record: LineRecord) -> None:
        """Remove the last turns, as the user did."""
        if not count or not self.turns:
            return
        begin = self.turns[max(len(self.turns) - count, 0)]
        gone = len(self.said) - begin
        del self.said[begin:], self.turns[max(len(self.turns) - count, 0) :]
        self.answer = self.latest = None
        detail = f"the user went back: {gone} messages of {count} turns are left out"
        self.notes.lost(record.where, "transcript.branch", detail)

    def conversation(self) -> ParsedConversation:
        """Return the conversation, and what the file says about it."""
        for where, kind, text in self.shown:
            if text and text not in self.heard:
                self.notes.skipped(where, f"event {kind}", "no item says the same")
        messages: list[Message] = []
        for said in self.said:
            if isinstance(said, _CodexReply) and not said.parts.parts:
                continue  # all of it was damaged, and is noted
            try:
                messages.append(said.message() if isinstance(said, _CodexReply) else said)
            except ValidationError as error:
                self.notes.lost("an answer", "transcript.damaged", str(error))
        return ParsedConversation(tuple(messages), self.notes.all(), self.about)
