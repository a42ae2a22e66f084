"""Sessions of GitHub Copilot CLI: `events.jsonl`, or the document that older releases wrote.

An event has a type and data. Messages of the user and the model, the results of tools and
compactions are the conversation; the other events tell how the program got on. What an agent did on
the side (`agentId`) is a conversation of its own. The older document has a timeline for the screen,
and it may have the messages as they went to the model: then these are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver import wire
from palaver.errors import ValidationError
from palaver.messages.codec import dump
from palaver.messages.limits import is_object
from palaver.messages.message import AssistantInfo, Message
from palaver.messages.parts import ModelRef
from palaver.transcripts.builder import ConversationBuilder, KnownCall
from palaver.transcripts.sources import (
    get_count,
    get_list,
    get_name,
    get_object,
    get_text,
    parse_input,
    parse_time,
    read_records_or_document,
    token_counts,
)
from palaver.wire.format import FileContent
from palaver.wire.notes import NoteCollector, ParsedConversation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from palaver.transcripts.builder import MessageBuilder
    from palaver.transcripts.sources import LineRecord

__all__ = ["is_document", "is_event", "read"]

_METADATA_KEY: Final = "copilot-cli"
_PROVIDER: Final = "github-copilot"
_SUBJECTS: Final = frozenset(("session", "user", "assistant", "tool", "system", "hook", "subagent"))
_REPEATING: Final = frozenset(
    ("assistant.turn_start", "assistant.turn_end", "assistant.message_start",
     "assistant.message_delta", "assistant.reasoning_delta", "assistant.streaming_delta",
     "session.idle", "session.resume")
)  # fmt: skip
"""Events that say nothing, or what another says: nothing is lost without them."""
_USER_FIELDS: Final = frozenset(("content", "interactionId", "supportedNativeDocumentMimeTypes"))
_REASONING: Final = ("reasoningOpaque", "encryptedContent", "reasoningWireField")
"""What only the provider can read of the reasoning."""


def is_event(value: Mapping[str, Any]) -> bool:
    """Tell whether a line is an event of a session."""
    subject, dot, _ = get_text(value, "type").partition(".")
    return bool(dot) and subject in _SUBJECTS and is_object(value.get("data")) and "id" in value


def is_document(value: Mapping[str, Any]) -> bool:
    """Tell whether a document is a session of an older release."""
    return "sessionId" in value and isinstance(value.get("timeline"), list | tuple)


def read(source: bytes | Path) -> Iterator[ParsedConversation]:
    """Read a session: the conversation, then what each agent did on the side."""
    session = _CopilotSession()
    for record in read_records_or_document(source, session.notes):
        if is_document(record.value):
            yield _read_document(record.value, session.notes)
            return
        try:
            session.read(record)
        except ValidationError as error:
            session.notes.lost(record.where, "transcript.damaged", str(error))
    yield from session.conversations()


class _Reply:
    """One answer of the model."""

    def __init__(self, name: str, parts: MessageBuilder, at: int, model: str | None) -> None:
        self.name = name
        self.parts = parts
        self.at = at
        self.model = model
        self.output = 0
        self.finish: str | None = None

    def message(self) -> Message:
        info = AssistantInfo(
            model=ModelRef(_PROVIDER, self.model) if self.model else None,
            tokens=token_counts(0, self.output),
            finish=self.finish,
            completed=self.at,
        )
        return Message("assistant", self.parts.content, id=self.name, timestamp=self.at, info=info)


class _Track:
    """One conversation of a session: the main one, or an agent's."""

    def __init__(self, name: str | None) -> None:
        self.builder = ConversationBuilder(name)
        self.said: list[tuple[str, Message | _Reply]] = []
        self.replies: dict[str, _Reply] = {}
        self.open: dict[str, LineRecord] = {}

    def messages(self, notes: NoteCollector) -> Iterator[Message]:
        """Yield the messages; note what can't be one, and each call without a result."""
        for where, said in self.said:
            if isinstance(said, _Reply) and not said.parts.parts:
                continue
            try:
                yield said.message() if isinstance(said, _Reply) else said
            except ValidationError as error:
                notes.lost(where, "transcript.damaged", str(error))
        for call_id, record in self.open.items():
            detail = f"the call {call_id} was still running: it has no result"
            notes.lost(record.where, "transcript.open", detail)


class _CopilotSession:
    """Reads the events of one file."""

    def __init__(self) -> None:
        self.notes = NoteCollector()
        self.about: dict[str, Any] = {}
        self.model: str | None = None
        self.tracks: dict[str | None, _Track] = {}
        self.places: dict[str, tuple[int, ...]] = {}

    def read(self, record: LineRecord) -> None:
        """Read an event."""
        value, kind = record.value, get_text(record.value, "type")
        data = get_object(value, "data")
        agent = get_name(value, "agentId")
        track = self.tracks.setdefault(agent, _Track(agent or get_name(self.about, "id")))
        at = track.builder.at(parse_time(value.get("timestamp")))
        if agent is None and (name := get_name(value, "id")):
            self.places[name] = (len(track.said),)
        if kind == "user.message":
            self._user(track, data, record, at)
        elif kind == "assistant.message":
            self._answer(track, data, record, at)
        elif kind == "assistant.reasoning":
            self._reasoning(track, data, record, at)
        elif kind.startswith("tool."):
            self._tool(track, kind, data, record, at)
        elif kind in {"system.message", "skill.invoked", "system.notification"}:
            self._system(track, kind, data, record, at)
        elif kind == "session.compaction_complete":
            self._compact(track, data, record, at)
        elif kind in {"session.snapshot_rewind", "abort"}:
            self._back(track, kind, data, record)
        elif not self._about(kind, data, track) and kind not in _REPEATING:
            self.notes.skipped(record.where, kind or "no type", "is no part of what was said")

    def _about(self, kind: str, data: Mapping[str, Any], track: _Track) -> bool:
        """Read an event about the session; False where it is something else."""
        if kind == "session.start":
            name = get_name(data, "sessionId")
            if name is not None and not track.said:
                self.tracks[None] = _Track(name)
            found = {
                "id": name,
                "cwd": get_text(get_object(data, "context"), "cwd") or None,
                "version": get_text(data, "copilotVersion") or None,
                "created": parse_time(data.get("startTime")),
            }
            self.about |= {key: item for key, item in found.items() if item is not None}
            self.model = get_name(data, "selectedModel") or self.model
        elif kind == "session.model_change":
            self.model = get_name(data, "newModel") or self.model
        elif kind == "session.title_changed":
            self.about["title"] = get_text(data, "title")
        else:
            return False
        return True

    def _user(self, track: _Track, data: Mapping[str, Any], record: LineRecord, at: int) -> None:
        name = track.builder.new_id(get_name(record.value, "id"), record.where)
        message = track.builder.message(name)
        program = data.get("isAutopilotContinuation") is True or bool(get_text(data, "source"))
        if content := get_text(data, "content"):
            message.text(content, **({"synthetic": True} if program else {}))
        for attached in get_list(data, "attachments"):
            if not is_object(attached):
                continue
            mime, blob = get_text(attached, "mimeType"), get_text(attached, "data")
            if mime and blob:
                shown = get_text(attached, "displayName") or None
                message.file(mime, f"data:{mime};base64,{blob}", shown)
            elif text := get_text(attached, "text"):
                message.text(text)
        more = {key: item for key, item in data.items() if key not in _USER_FIELDS and item}
        metadata = {_METADATA_KEY: more} if more else {}
        made = Message(
            "user", message.content if message.parts else "", id=name, timestamp=at,
            metadata=metadata,
        )  # fmt: skip
        track.said.append((record.where, made))

    def _reply(self, track: _Track, data: Mapping[str, Any], record: LineRecord, at: int) -> _Reply:
        """Return the answer that an event belongs to: it may come in several pieces."""
        group = get_text(data, "messageId") or record.where
        reply = track.replies.get(group)
        if reply is None:
            name = track.builder.new_id(get_name(record.value, "id"), record.where)
            model = get_name(data, "model") or self.model
            reply = _Reply(name, track.builder.message(name), at, model)
            track.replies[group] = reply
            track.said.append((record.where, reply))
        return reply

    def _answer(self, track: _Track, data: Mapping[str, Any], record: LineRecord, at: int) -> None:
        reply = self._reply(track, data, record, at)
        hidden = {key: data[key] for key in _REASONING if get_text(data, key)}
        if get_text(data, "reasoningText") or hidden:
            metadata = {_METADATA_KEY: hidden} if hidden else {}
            reply.parts.reasoning(get_text(data, "reasoningText"), at, metadata)
        if content := get_text(data, "content"):
            reply.parts.text(content)
        for request in get_list(data, "toolRequests"):
            if not is_object(request):
                continue
            call_id = get_name(request, "toolCallId")
            if call_id is None or get_name(request, "name") is None:
                reply.parts.unknown(_METADATA_KEY, request)
                continue
            call = _call(get_name(request, "name") or "", request.get("arguments"), at)
            track.builder.calls[call_id] = call
            track.open[call_id] = record
            reply.parts.call(call_id, call)
        reply.output += get_count(data, "outputTokens")

    def _reasoning(
        self, track: _Track, data: Mapping[str, Any], record: LineRecord, at: int
    ) -> None:
        group = {"messageId": get_text(data, "reasoningId")}
        self._reply(track, group, record, at).parts.reasoning(get_text(data, "content"), at)

    def _tool(
        self, track: _Track, kind: str, data: Mapping[str, Any], record: LineRecord, at: int
    ) -> None:
        call_id = get_name(data, "toolCallId")
        if call_id is None:
            self.notes.skipped(record.where, kind, "does not say which call it is about")
        elif kind == "tool.execution_complete":
            self._result(track, call_id, data, record, at)
        elif kind in {"tool.execution_start", "tool.user_requested"}:
            if call_id not in track.builder.calls:  # the user asked for it, not the model
                reply = self._reply(track, {}, record, at)
                call = _call(get_name(data, "toolName") or "unknown", data.get("arguments"), at)
                track.builder.calls[call_id] = call
                track.open[call_id] = record
                reply.parts.call(call_id, call)
        else:
            self.notes.skipped(record.where, kind, "tells how a tool got on")

    def _result(
        self, track: _Track, call_id: str, data: Mapping[str, Any], record: LineRecord, at: int
    ) -> None:
        track.open.pop(call_id, None)
        result, error = get_object(data, "result"), get_object(data, "error")
        output = get_text(result, "content") or get_text(error, "message")
        blocks = (*get_list(result, "binaryResultsForLlm"), *get_list(result, "contents"))
        files: dict[str, FileContent] = {}
        for block in blocks:
            mime = get_text(block, "mimeType") if is_object(block) else ""
            if mime and get_text(block, "data"):
                url = f"data:{mime};base64,{block['data']}"
                files[url] = FileContent(mime, url)
        shown = get_text(result, "detailedContent")
        more = {"detailedContent": shown} if shown and shown != output else {}
        structured = result.get("structuredContent")
        more |= {"structuredContent": structured} if structured is not None else {}
        made = track.builder.result(
            call_id,
            output,
            track.builder.new_id(get_name(record.value, "id"), record.where),
            at,
            is_error=data.get("success") is False,
            files=files.values(),
            metadata={_METADATA_KEY: more} if more else {},
        )
        track.said.append((record.where, made))

    def _system(
        self, track: _Track, kind: str, data: Mapping[str, Any], record: LineRecord, at: int
    ) -> None:
        """Add what the program put before the model."""
        if not get_text(data, "content"):
            return
        name = track.builder.new_id(get_name(record.value, "id"), record.where)
        if kind == "system.message":
            made = Message("system", data["content"], id=name, timestamp=at)
        else:
            message = track.builder.message(name)
            message.text(data["content"], synthetic=True)
            more = {_METADATA_KEY: {"event": kind, **_without(data, "content")}}
            made = Message("user", message.content, id=name, timestamp=at, metadata=more)
        track.said.append((record.where, made))

    def _compact(self, track: _Track, data: Mapping[str, Any], record: LineRecord, at: int) -> None:
        """Mark a compaction. What was before stays; the model went on with the summary."""
        if data.get("success") is False:
            self.notes.skipped(record.where, "compaction", "it failed")
            return
        name = track.builder.new_id(get_name(record.value, "id"), record.where)
        message = track.builder.message(name)
        message.compaction(auto=get_text(data, "trigger") != "manual")
        if summary := get_text(data, "summaryContent"):
            message.text(summary)
        track.said.append((record.where, Message("user", message.content, id=name, timestamp=at)))

    def _back(self, track: _Track, kind: str, data: Mapping[str, Any], record: LineRecord) -> None:
        if kind == "abort":
            replies = [said for _, said in track.said if isinstance(said, _Reply)]
            if replies:
                replies[-1].finish = "aborted"
            return
        place = self.places.get(get_text(data, "upToEventId"))
        if place is None:
            self.notes.skipped(record.where, kind, "the events are gone from the file already")
            return
        gone = len(track.said) - place[0]
        del track.said[place[0] :]
        detail = f"the user went back: {gone} messages are left out"
        self.notes.lost(record.where, "transcript.branch", detail)

    def conversations(self) -> Iterator[ParsedConversation]:
        """Yield the conversation, then the agents'."""
        self.tracks.setdefault(None, _Track(None))
        for agent in sorted(self.tracks, key=lambda agent: agent is not None):
            track = self.tracks[agent]
            messages = tuple(track.messages(self.notes))
            about = {**self.about, "model": self.model}
            if agent is not None:
                about |= {"id": agent, "parent": self.about.get("id"), "sidechain": True}
            known = {name: item for name, item in about.items() if item is not None}
            yield ParsedConversation(messages, self.notes.all(), known)
            self.notes = NoteCollector()


def _call(tool: str, arguments: object, at: int) -> KnownCall:
    if is_object(arguments):
        return KnownCall(tool, arguments, dump(arguments).decode(), at)
    raw = arguments if isinstance(arguments, str) else ""
    return KnownCall(tool, parse_input(raw), raw, at)


def _without(data: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: item for name, item in data.items() if name not in names}


# ── the document of older releases ───────────────────────────────────────────────────────────────


def _read_document(value: Mapping[str, Any], notes: NoteCollector) -> ParsedConversation:
    """Read a session of an older release."""
    about = {"id": get_name(value, "sessionId"), "created": parse_time(value.get("startTime"))}
    known = {name: item for name, item in about.items() if item is not None}
    sent, timeline = get_list(value, "chatMessages"), get_list(value, "timeline")
    if sent:
        found = wire.from_("openai-chat", {"messages": sent})
        if timeline:
            notes.skipped("$.timeline", "timeline", "shows what the messages say")
        return ParsedConversation(found.messages, (*notes.all(), *found.notes), known)
    messages = _timeline(timeline, get_name(value, "sessionId"), notes)
    return ParsedConversation(messages, notes.all(), known)


def _timeline(entries: object, session: str | None, notes: NoteCollector) -> tuple[Message, ...]:
    track = _Track(session)
    builder = track.builder
    for index, entry in enumerate(entries if isinstance(entries, list | tuple) else ()):
        where = f"$.timeline[{index}]"
        kind = get_text(entry, "type") if is_object(entry) else ""
        at = builder.at(parse_time(entry.get("timestamp"))) if is_object(entry) else 0
        if kind in {"user", "copilot"}:
            name = builder.new_id(get_name(entry, "id"), where)
            parts = builder.message(name)
            parts.text(get_text(entry, "text"))
            if kind == "copilot":
                track.said.append((where, _Reply(name, parts, at, None)))
            else:
                made = Message("user", parts.content, id=name, timestamp=at)
                track.said.append((where, made))
        elif kind in {"tool_call_completed", "tool_call_requested"}:
            _timeline_call(track, entry, where, at)
        else:
            notes.skipped(where, kind or "no type", "a notice for the person at the terminal")
    return tuple(track.messages(notes))


def _timeline_call(track: _Track, entry: Mapping[str, Any], where: str, at: int) -> None:
    """Add a call, and its result where there is one."""
    builder, call_id = track.builder, get_name(entry, "callId", "id") or where
    if call_id not in builder.calls:
        call = _call(get_name(entry, "name") or "unknown", entry.get("arguments"), at)
        builder.calls[call_id] = call
        name = builder.new_id(None, f"{where} call")
        reply = _Reply(name, builder.message(name), at, None)
        reply.parts.call(call_id, call)
        track.said.append((where, reply))
    result = entry.get("result")
    if result is None:
        return
    found = result if is_object(result) else {"log": result}
    log = found.get("log")
    output = log if isinstance(log, str) else dump(log).decode()
    name = builder.new_id(get_name(entry, "id"), where)
    failed = get_text(found, "type") in {"failure", "error", "rejected", "denied"}
    track.said.append((where, builder.result(call_id, output, name, at, is_error=failed)))
