"""Sessions of Gemini CLI: a document, or in newer releases a log of its changes as JSON lines.

The log begins with the header. A message that comes again replaces the one of its id, `$set`
changes the header or gives all messages anew, `$rewindTo` removes a message and all after it. What
the program leaves out of a new list (it compressed the chat) was said all the same, and stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.errors import ValidationError
from palaver.messages.codec import dump
from palaver.messages.limits import EMPTY, is_list, is_object
from palaver.messages.message import AssistantInfo, Message
from palaver.messages.parts import ModelRef
from palaver.transcripts.builder import ConversationBuilder
from palaver.transcripts.sources import (
    get_count,
    get_list,
    get_name,
    get_object,
    get_text,
    parse_time,
    read_records_or_document,
    token_counts,
)
from palaver.wire.format import CallContent, FileContent
from palaver.wire.gemini.blocks import read_part, read_response
from palaver.wire.notes import NoteCollector, ParsedConversation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from palaver.transcripts.builder import MessageBuilder

__all__ = ["is_session", "read"]

_FORM: Final = "gemini"
_PROVIDER: Final = "google"
_METADATA_KEY: Final = "gemini-cli"
_NOTICES: Final = frozenset(("info", "warning", "error"))
_INJECTED: Final = ("<session_context>", "<hook_context>")
"""How a user's message begins that the program wrote."""
_HEADER: Final = {"sessionId": "id", "summary": "title", "startTime": "created", "kind": "kind"}


def is_session(value: Mapping[str, Any]) -> bool:
    """Tell whether a document, or the first line of a log, is the header of a session."""
    return isinstance(value.get("sessionId"), str) and isinstance(value.get("projectHash"), str)


def read(source: bytes | Path) -> Iterator[ParsedConversation]:
    """Read a session; a file holds one."""
    session = _GeminiSession()
    for record in read_records_or_document(source, session.notes):
        session.record(record.value, record.where)
    yield session.conversation()


class _GeminiSession:
    """Follows the records of one file, then builds its messages."""

    def __init__(self) -> None:
        self.notes = NoteCollector()
        self.header: dict[str, Any] = {}
        self.messages: dict[str, Mapping[str, Any]] = {}
        self.places: dict[str, str] = {}
        self.compressed: set[str] = set()
        self.answered: dict[str, str] = {}
        self.builder = ConversationBuilder()

    def record(self, value: Mapping[str, Any], where: str) -> None:
        """Follow one record."""
        if isinstance(value.get("$rewindTo"), str):
            self._rewind(value["$rewindTo"], where)
        elif is_object(value.get("$set")):
            self._update(value["$set"], where)
        elif isinstance(value.get("id"), str):
            self._put(value, where)
        elif is_session(value):
            self._update(value, where)
        else:
            self.notes.skipped(where, "record", "is no part of what was said")

    def _rewind(self, name: str, where: str) -> None:
        names = list(self.messages)
        gone = names[names.index(name) :] if name in self.messages else names
        for each in gone:
            del self.messages[each]
        detail = f"the user went back: {len(gone)} messages are left out"
        self.notes.lost(where, "transcript.branch", detail)

    def _update(self, fields: Mapping[str, Any], where: str) -> None:
        self.header |= {name: item for name, item in fields.items() if name != "messages"}
        messages = [item for item in get_list(fields, "messages") if is_object(item)]
        known = set(self.messages)
        for index, item in enumerate(messages):
            self._put(item, f"{where}.messages[{index}]")
        new = [name for name in self.messages if name not in known]
        if known - {item.get("id") for item in messages} and new:
            self.compressed.add(new[0])

    def _put(self, item: Mapping[str, Any], where: str) -> None:
        name = get_text(item, "id") or where
        before = self.messages.get(name)
        if before is not None and _says_less(before, item):
            detail = "a later record of this message says something else, and takes its place"
            self.notes.lost(self.places[name], "transcript.replaced", detail, name)
        self.messages[name], self.places[name] = item, where

    def conversation(self) -> ParsedConversation:
        """Return the conversation, and what the file says about it."""
        about = {ours: self.header.get(name) for name, ours in _HEADER.items()}
        self.builder = ConversationBuilder(get_name(about, "id"))
        about["created"] = parse_time(about["created"])
        directories = get_list(self.header, "directories")
        about["cwd"] = directories[0] if directories else None
        for name, item in self.messages.items():
            try:
                self._message(name, item)
            except ValidationError as error:
                self.notes.lost(self.places[name], "transcript.damaged", str(error))
        models = [getattr(message.info, "model", None) for message in self.builder.messages]
        about["model"] = next((ref.model_id for ref in reversed(models) if ref is not None), None)
        known = {name: item for name, item in about.items() if item is not None}
        return ParsedConversation(tuple(self.builder.messages), self.notes.all(), known)

    def _message(self, name: str, item: Mapping[str, Any]) -> None:
        kind, where = get_text(item, "type"), self.places[name]
        at = self.builder.at(parse_time(item.get("timestamp")))
        if kind in _NOTICES:
            self.notes.skipped(where, kind, "a notice for the person at the terminal")
        elif kind == "gemini":
            self._answer(name, item, at)
        elif kind in {"user", ""}:
            self._user(name, item, at)
        else:
            self.notes.skipped(where, kind, "is of a type that palaver does not know")

    def _user(self, name: str, item: Mapping[str, Any], at: int) -> None:
        parts = list(_parts(item.get("content")))
        responses = [read_response(part) for part in parts]
        for index, found in enumerate(responses):
            if found is None:
                continue
            tool, result = found
            call_id = result.call_id or f"{name}-{index}"
            if self.answered.get(call_id) != result.output:
                self._result(call_id, at, [parts[index]], place=f"{name}.{index}", tool=tool)
        spoken = [part for part, found in zip(parts, responses, strict=True) if found is None]
        if not spoken and any(found is not None for found in responses):
            return
        own = self.builder.new_id(name, self.places[name])
        message = self.builder.message(own)
        if name in self.compressed:
            message.compaction(auto=True)
        for part in spoken:
            text = get_text(part, "text").lstrip()
            self._add(message, part, at, synthetic=text.startswith(_INJECTED))
        self.builder.messages.append(Message("user", message.content, id=own, timestamp=at))

    def _add(
        self, message: MessageBuilder, part: Mapping[str, Any], at: int, *, synthetic: bool = False
    ) -> None:
        found = read_part(part)
        fields = {"synthetic": True} if synthetic else {}
        if found is None or not self.builder.add(
            message, found, at, form=_FORM, provider=_PROVIDER, **fields
        ):
            message.unknown(_FORM, part)

    def _answer(self, name: str, item: Mapping[str, Any], at: int) -> None:
        own = self.builder.new_id(name, self.places[name])
        message = self.builder.message(own)
        parts = list(_parts(item.get("content")))
        calls = [call for call in get_list(item, "toolCalls") if is_object(call)]
        if not any(part.get("thought") is True for part in parts):
            for thought in get_list(item, "thoughts"):
                if is_object(thought):
                    message.reasoning(_thought(thought), at)
        for part in parts:
            self._add(message, part, at)
        written = {get_text(get_object(part, "functionCall"), "id") for part in parts}
        for index, call in enumerate(calls):
            call_id = get_name(call, "id") or f"{name}-{index}"
            if call_id in written:
                continue
            tool, given = get_name(call, "name") or "unknown", get_object(call, "args")
            content = CallContent(call_id, tool, given, {"id": call_id})
            self.builder.add(message, content, at, form=_FORM, provider=_PROVIDER)
        if message.parts:
            self.builder.messages.append(
                Message("assistant", message.content, id=own, timestamp=at, info=_info(item, at))
            )
        for index, call in enumerate(calls):
            self._call_result(call, get_name(call, "id") or f"{name}-{index}", own, at)

    def _call_result(self, call: Mapping[str, Any], call_id: str, owner: str, at: int) -> None:
        result, tool = call.get("result"), get_name(call, "name")
        at = self.builder.at(parse_time(call.get("timestamp")) or at)
        shown = call.get("resultDisplay")
        parts = list(_parts(result))
        if result is None and shown is None:
            detail = f"the call of {tool} has no result: it is {get_text(call, 'status') or 'open'}"
            self.notes.lost(self.places[owner], "transcript.open", detail, owner)
            return
        own = [part for part in parts if _is_for(part, call_id)] or parts
        self._result(call_id, at, own, place=f"{owner} {call_id}", tool=tool, call=call)

    def _result(
        self,
        call_id: str,
        at: int,
        parts: list[Mapping[str, Any]],
        *,
        place: str,
        tool: str | None,
        call: Mapping[str, Any] = EMPTY,
    ) -> None:
        """Add the result of a call, of the parts that went to the model."""
        texts: list[str] = []
        files: list[FileContent] = []
        failed = call.get("status") in {"error", "cancelled"}
        for part in parts:
            response, said = read_response(part), read_part(part)
            if response is not None:
                texts.append(response[1].output)
                files += response[1].files
                failed = failed or response[1].failed
            elif isinstance(said, FileContent):
                files.append(said)
            else:
                texts.append(get_text(part, "text") or dump(part).decode())
        output = "\n".join(text for text in texts if text)
        shown = call.get("resultDisplay")
        if not parts and shown is not None:  # only the person saw it
            output = shown if isinstance(shown, str) else dump(shown).decode()
        more = {"resultDisplay": shown} if shown not in (None, "", output) else {}
        name = self.builder.new_id(None, place)
        made = self.builder.result(
            call_id,
            output,
            name,
            at,
            is_error=failed,
            tool=tool,
            files=files,
            metadata={_METADATA_KEY: more} if more else {},
        )
        self.answered[call_id] = output
        self.builder.messages.append(made)


def _parts(content: object) -> Iterator[Mapping[str, Any]]:
    """Yield the parts of a content; a text alone is one."""
    for item in content if is_list(content) else (content,):
        if isinstance(item, str):
            if item:
                yield {"text": item}
        elif is_object(item):
            yield item


def _is_for(part: Mapping[str, Any], call_id: str) -> bool:
    """Tell whether a part belongs to a call: the responses of a turn are stored together."""
    response = part.get("functionResponse")
    return not is_object(response) or response.get("id") == call_id


def _thought(thought: Mapping[str, Any]) -> str:
    subject, description = get_text(thought, "subject"), get_text(thought, "description")
    return f"**{subject}**\n{description}".strip() if subject else description


def _says_less(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Tell whether a record lacks something that an earlier one of the same message said."""
    said = before.get("content")
    if said and said != now.get("content"):
        return True
    results = {get_text(call, "id"): call.get("result") for call in _calls(now)}
    return any(
        call.get("result") and results.get(get_text(call, "id")) != call["result"]
        for call in _calls(before)
    )


def _calls(item: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [call for call in get_list(item, "toolCalls") if is_object(call)]


def _info(item: Mapping[str, Any], at: int) -> AssistantInfo:
    model, tokens = get_name(item, "model"), get_object(item, "tokens")
    thoughts = get_count(tokens, "thoughts")
    return AssistantInfo(
        model=ModelRef(_PROVIDER, model) if model else None,
        tokens=token_counts(
            get_count(tokens, "input") + get_count(tokens, "tool"),
            get_count(tokens, "output") + thoughts,
            read=get_count(tokens, "cached"),
            reasoning=thoughts,
        ),
        completed=at,
    )
