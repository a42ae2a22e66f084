"""Events of `codex exec --json`: what a run of Codex printed, as JSON lines.

A thread has turns, and a turn has items: what the model said and thought, and each call together
with its result. An item that began is told again when it is complete, and the last telling counts.
The prompt is not among the events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.errors import ValidationError
from palaver.messages.codec import dump
from palaver.messages.limits import is_list, is_object
from palaver.messages.message import AssistantInfo, Message
from palaver.transcripts.builder import ConversationBuilder, KnownCall
from palaver.transcripts.sources import (
    get_count,
    get_name,
    get_object,
    get_text,
    parse_time,
    read_records,
    token_counts,
)
from palaver.wire.format import FileContent
from palaver.wire.notes import NoteCollector, ParsedConversation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from palaver.messages.parts import TokenCounts
    from palaver.transcripts.builder import MessageBuilder
    from palaver.transcripts.sources import LineRecord

__all__ = ["EVENTS", "read"]

EVENTS: Final = frozenset(
    ("thread.started", "turn.started", "turn.completed", "turn.failed", "item.started",
     "item.updated", "item.completed")
)  # fmt: skip
"""The types of a line, without `error`, which other programs write too."""
_METADATA_KEY: Final = "codex"
_FAILED: Final = frozenset(("failed", "declined"))
_CALLS: Final = {
    "command_execution": ("command",),
    "file_change": ("changes",),
    "mcp_tool_call": (),
    "collab_tool_call": ("prompt", "receiver_thread_ids"),
    "web_search": ("query", "action"),
    "todo_list": ("items",),
}
"""The items that are calls, and the fields that are their input."""


def read(source: bytes | Path) -> Iterator[ParsedConversation]:
    """Read the threads of a run; a file usually holds one."""
    notes = NoteCollector()
    thread = _Thread(None, notes)
    for record in read_records(source, notes):
        name = get_name(record.value, "thread_id")
        if record.value.get("type") == "thread.started" and thread.name not in {None, name}:
            yield thread.conversation()
            notes = NoteCollector()
            thread = _Thread(name, notes)
        try:
            thread.read(record)
        except ValidationError as error:
            notes.lost(record.where, "transcript.damaged", str(error))
    yield thread.conversation()


class _Reply:
    """What the model said until a tool answered."""

    def __init__(self, name: str, parts: MessageBuilder, at: int) -> None:
        self.name = name
        self.parts = parts
        self.at = at
        self.tokens: TokenCounts | None = None
        self.error: Mapping[str, Any] | None = None

    def message(self) -> Message:
        info = AssistantInfo(tokens=self.tokens, completed=self.at, error=self.error)
        return Message("assistant", self.parts.content, id=self.name, timestamp=self.at, info=info)


class _Thread:
    """Reads the events of one thread."""

    def __init__(self, name: str | None, notes: NoteCollector) -> None:
        self.name = name
        self.notes = notes
        self.builder = ConversationBuilder(name)
        self.said: list[Message | _Reply] = []
        self.answer: _Reply | None = None
        self.latest: _Reply | None = None
        self.begun: dict[str, LineRecord] = {}

    def read(self, record: LineRecord) -> None:
        """Read an event."""
        value, kind = record.value, record.value.get("type")
        at = self.builder.at(parse_time(value.get("timestamp")))
        item = get_object(value, "item")
        if kind == "item.completed":
            self.begun.pop(get_text(item, "id"), None)
            self._item(item, record, at)
        elif kind in {"item.started", "item.updated"}:
            self.begun[get_text(item, "id")] = record
        elif kind == "turn.completed":
            self._count(get_object(value, "usage"))
            self._close(at)
        elif kind == "turn.failed":
            self._close(at)
            self._fail(get_text(get_object(value, "error"), "message"), record)
        elif kind == "thread.started":
            if self.name is None and (name := get_name(value, "thread_id")):
                self.name, self.builder = name, ConversationBuilder(name)
        elif kind != "turn.started":
            self.notes.skipped(record.where, f"event {kind}", "is no part of what was said")

    def _reply(self, record: LineRecord, at: int) -> MessageBuilder:
        if self.answer is None:
            name = self.builder.new_id(None, record.where)
            self.answer = self.latest = _Reply(name, self.builder.message(name), at)
            self.said.append(self.answer)
        return self.answer.parts

    def _item(self, item: Mapping[str, Any], record: LineRecord, at: int) -> None:
        kind = get_text(item, "type") or get_text(item, "item_type")
        text = get_text(item, "text")
        if kind in {"agent_message", "assistant_message"}:
            self._reply(record, at).text(text)
        elif kind == "reasoning":
            self._reply(record, at).reasoning(text, at)
        elif kind in _CALLS:
            self._call(kind, item, record, at)
            self._result(item, record, at)
        elif kind == "error":
            self.notes.skipped(record.where, "item error", "a notice for the person")
        elif item:
            self._reply(record, at).unknown(_METADATA_KEY, item)
        else:
            self.notes.lost(record.where, "transcript.damaged", "has no item")

    def _call(self, kind: str, item: Mapping[str, Any], record: LineRecord, at: int) -> str:
        """Add a call to the answer; return its id."""
        call_id = get_name(item, "id") or record.where
        if call_id in self.builder.calls:  # a resumed thread counts its items anew
            call_id = f"{call_id} {record.where}"
        tool, given = kind, {name: item[name] for name in _CALLS[kind] if item.get(name)}
        if kind == "mcp_tool_call":
            tool = get_name(item, "tool") or kind
            arguments = item.get("arguments")
            given = {**get_object(item, "arguments")}
            if arguments and not is_object(arguments):
                given = {"arguments": arguments}
        elif kind == "collab_tool_call":
            tool = get_name(item, "tool") or kind
        call = KnownCall(tool, given, dump(given).decode(), at)
        self.builder.calls[call_id] = call
        self._reply(record, at).call(call_id, call)
        return call_id

    def _result(self, item: Mapping[str, Any], record: LineRecord, at: int) -> None:
        call_id = next(reversed(self.builder.calls))
        content = get_object(item, "result").get("content")
        blocks = [block for block in content if is_object(block)] if is_list(content) else []
        texts = [
            get_text(item, "aggregated_output"),
            get_text(get_object(item, "error"), "message"),
        ]
        files: list[FileContent] = []
        for block in blocks:
            data, mime = get_text(block, "data"), get_text(block, "mimeType")
            if data and mime:
                files.append(FileContent(mime, f"data:{mime};base64,{data}"))
            else:
                texts.append(get_text(block, "text") or dump(block).decode())
        if states := get_object(item, "agents_states"):
            texts.append(dump(states).decode())
        structured = get_object(item, "result").get("structured_content")
        more = {
            name: given
            for name, given in (
                ("status", item.get("status")),
                ("exit_code", item.get("exit_code")),
                ("server", item.get("server")),
                ("structured_content", structured),
            )
            if given is not None
        }
        made = self.builder.result(
            call_id,
            "\n".join(text for text in texts if text),
            self.builder.new_id(None, f"{record.where} result"),
            at,
            is_error=get_text(item, "status") in _FAILED,
            files=files,
            metadata={_METADATA_KEY: more} if more else {},
        )
        self.said.append(made)
        self.answer = None

    def _count(self, usage: Mapping[str, Any]) -> None:
        if self.latest is not None:
            self.latest.tokens = token_counts(
                get_count(usage, "input_tokens"),
                get_count(usage, "output_tokens"),
                read=get_count(usage, "cached_input_tokens"),
                write=get_count(usage, "cache_write_input_tokens"),
                reasoning=get_count(usage, "reasoning_output_tokens"),
            )

    def _fail(self, message: str, record: LineRecord) -> None:
        if self.latest is None:
            self.notes.lost(record.where, "transcript.record", f"the turn failed: {message}")
        else:
            self.latest.error = {"name": "CodexError", "message": message}

    def _close(self, at: int) -> None:
        """End a turn: what began and never ended is a call without a result."""
        for record in self.begun.values():
            item = get_object(record.value, "item")
            kind = get_text(item, "type")
            if kind == "todo_list":  # it is only complete when the turn is
                self._item(item, record, at)
            elif kind in _CALLS:
                self._call(kind, item, record, at)
                detail = f"the {kind} was still running: it has no result"
                self.notes.lost(record.where, "transcript.open", detail)
            else:
                self._item(item, record, at)
        self.begun.clear()
        self.answer = None

    def conversation(self) -> ParsedConversation:
        """Return the conversation."""
        self._close(self.builder.at(None))
        about = {} if self.name is None else {"id": self.name}
        messages: list[Message] = []
        for said in self.said:
            try:
                messages.append(said.message() if isinstance(said, _Reply) else said)
            except ValidationError as error:
                self.notes.lost("an answer", "transcript.damaged", str(error))
        return ParsedConversation(tuple(messages), self.notes.all(), about)
