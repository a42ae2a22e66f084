"""Logs of requests, as JSON lines: what a program sent to a provider, and perhaps what came back.

Each request holds the whole conversation so far. So a line whose messages begin with those of an
earlier line continues it, and the last line of a conversation says everything; any other line
begins a conversation of its own. Finding out costs one pass: conversations are looked up by a
fingerprint of their messages, taken message by message.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from palaver import wire
from palaver.errors import PalaverError
from palaver.messages.codec import dump
from palaver.messages.limits import EMPTY, is_list, is_object
from palaver.messages.message import AssistantInfo
from palaver.transcripts.codex import BARE
from palaver.transcripts.sources import (
    get_list,
    get_name,
    get_object,
    get_text,
    parse_time,
    read_records,
)
from palaver.wire.notes import NoteCollector, ParsedConversation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from palaver.messages.message import Message
    from palaver.messages.parts import ModelRef, TokenCounts
    from palaver.transcripts.sources import LineRecord

__all__ = ["LoggedReply", "logged_reply", "read", "request_format"]

_SPEAKERS: Final = frozenset(("assistant", "model"))

_CHAT_ONLY: Final = frozenset(("tool_calls", "tool_call_id", "function_call", "refusal"))
_CHAT_ROLES: Final = frozenset(("developer", "function"))
_CHAT_BLOCKS: Final = frozenset(("image_url", "input_audio", "file"))
_ANTHROPIC_BLOCKS: Final = frozenset(
    ("tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document")
)
_ANTHROPIC_ONLY: Final = frozenset(
    ("system", "stop_sequences", "anthropic_version", "anthropic_beta", "thinking", "top_k")
)
_ITEMS: Final = frozenset(("function_call", "function_call_output", "reasoning", "item_reference"))


def read(source: bytes | Path) -> Iterator[ParsedConversation]:
    """Read a log of requests: one conversation for each chain of requests."""
    log = _RequestLog()
    for record in read_records(source, log.notes):
        log.read(record)
    yield from log.conversations()


class LoggedReply(NamedTuple):
    """A reply in a log: its elements in the provider's form, and what it says of itself."""

    items: tuple[Any, ...]
    model: ModelRef | None
    tokens: TokenCounts | None
    cost: float | None
    finish: str | None
    metadata: Mapping[str, Any]


def logged_reply(form: str, body: Mapping[str, Any]) -> LoggedReply | None:
    """Read a response; None where there is none, or only an error.

    >>> logged_reply("anthropic", {"content": [{"type": "text", "text": "hi"}]}).items[0]["role"]
    'assistant'
    """
    items = _elements(form, body)
    if not items:
        return None
    reader = wire.FORMATS[form].reply_reader()
    try:
        reader.read_body(body)
        message = reader.message(interrupted=False)
    except PalaverError:  # no message can hold it; its elements are read, and noted, with the body
        return LoggedReply(items, None, None, None, None, EMPTY)
    info = message.info if isinstance(message.info, AssistantInfo) else AssistantInfo()
    said = {key: message.metadata[key] for key in ("usage", "reply") if key in message.metadata}
    return LoggedReply(items, info.model, info.tokens, info.cost, info.finish, said)


def _elements(form: str, body: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what a response adds to the conversation, as the next request would have it."""
    if form == "anthropic":
        content = body.get("content")
        return ({"role": "assistant", "content": content},) if is_list(content) else ()
    if form == "openai-responses":
        return tuple(get_list(body, "output"))
    if form == "gemini":
        content = get_object(_first(body, "candidates"), "content")
        return ({"role": "model", **content},) if content else ()
    message = get_object(_first(body, "choices"), "message")
    return ({"role": "assistant", **message},) if message else ()


def _first(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = get_list(body, name)
    return found[0] if found and is_object(found[0]) else {}


class _LoggedConversation:
    """A conversation in a log: its longest request so far, and every reply."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.body: Mapping[str, Any] = EMPTY
        self.items: tuple[Any, ...] = ()
        self.replies: dict[int, LoggedReply] = {}
        self.line = 0
        self.tips: tuple[bytes, ...] = ()
        self.created: int | None = None

    def differs(self, items: tuple[Any, ...], reply: LoggedReply | None) -> bool:
        """Tell whether the same request got another reply: then it is another conversation."""
        known = self.replies.get(_count_answers(items))
        return self.items == items and None not in (known, reply) and known != reply

    def extend(
        self,
        line: int,
        body: Mapping[str, Any],
        items: tuple[Any, ...],
        reply: LoggedReply | None,
    ) -> None:
        """Continue with a longer request, and what came back to it."""
        self.line, self.body, self.items = line, body, items
        if reply is not None:
            self.replies[_count_answers(items)] = reply

    def elements(self) -> tuple[Any, ...]:
        """Return the elements of the last request and of the reply to it."""
        reply = self.replies.get(_count_answers(self.items))
        return (*self.items, *(reply.items if reply is not None else ()))

    def request(self) -> Mapping[str, Any]:
        """Return the last request, with the reply to it at its end."""
        return {**self.body, wire.FORMATS[self.form].items: list(self.elements())}


class _RequestLog:
    """Reads the lines of one log."""

    def __init__(self) -> None:
        self.notes = NoteCollector()
        self.found: list[_LoggedConversation] = []
        self.by_tip: dict[bytes, _LoggedConversation] = {}

    def read(self, record: LineRecord) -> None:
        """Read a line: it continues a conversation, or begins one."""
        value = record.value
        body = get_object(value, "request") or value
        body = get_object(body, "body") or get_object(body, "json") or body
        response = _response(value)
        form = request_format(body, response)
        if form is None:
            self.notes.lost(record.where, "transcript.damaged", "is no request that palaver knows")
            return
        given = body.get(wire.FORMATS[form].items)
        items = tuple(given) if is_list(given) else ({"role": "user", "content": given},)
        prints = list(_fingerprints(form, items))
        known = next((self.by_tip[tip] for tip in reversed(prints) if tip in self.by_tip), None)
        reply = logged_reply(form, response)
        if known is None or known.differs(items, reply):
            known = _LoggedConversation(form)
            known.created = _time(value) or _time(body)
            self.found.append(known)
        elif _system(known.body) != _system(body):
            detail = f"the instructions of line {known.line} are not those of this line; these stay"
            self.notes.lost(record.where, "transcript.instructions", detail)
        if known.replies.get(_count_answers(items), reply) != reply and reply is not None:
            detail = f"another reply took the place of the one to line {known.line}"
            self.notes.lost(record.where, "transcript.branch", detail)
        self._forget(known)
        known.extend(record.line, body, items, reply)
        known.tips = (*prints[-1:], *list(_fingerprints(form, known.elements()))[-1:])
        self.by_tip.update(dict.fromkeys(known.tips, known))

    def _forget(self, known: _LoggedConversation) -> None:
        for tip in known.tips:
            if self.by_tip.get(tip) is known:
                del self.by_tip[tip]

    def conversations(self) -> Iterator[ParsedConversation]:
        """Yield the conversations, in the order they began."""
        notes = self.notes
        for known in self.found:
            try:
                parsed = wire.from_(known.form, known.request())
            except PalaverError as error:
                notes.lost(f"line {known.line}", "transcript.damaged", str(error))
                continue
            model = get_name(known.body, "model")
            about = {"format": known.form, "model": model, "created": known.created}
            known_about = {name: item for name, item in about.items() if item is not None}
            messages = tuple(_with_replies(parsed.messages, known))
            yield ParsedConversation(
                messages, (*notes.all(), *parsed.notes), {**parsed.about, **known_about}
            )
            notes = NoteCollector()  # they are about the file, and are given once
        if notes.all():
            yield ParsedConversation((), notes.all())


def _fingerprints(form: str, items: tuple[Any, ...]) -> Iterator[bytes]:
    """Yield the fingerprint of each beginning of a conversation, from its first message on."""
    digest = hashlib.blake2b(form.encode(), digest_size=16)
    for item in items:
        digest.update(dump(item))
        yield digest.digest()


def _count_answers(items: tuple[Any, ...]) -> int:
    """Return how many answers are among these: the number of the one that comes next."""
    return sum(is_object(item) and get_text(item, "role") in _SPEAKERS for item in items)


def _with_replies(messages: tuple[Message, ...], known: _LoggedConversation) -> Iterator[Message]:
    """Yield the messages, each answer with what its reply said of model, tokens and end."""
    turn = 0
    for message in messages:
        if message.role != "assistant":
            yield message
            continue
        reply = known.replies.get(turn)
        turn += 1
        if reply is None:
            yield message
            continue
        info = message.info if isinstance(message.info, AssistantInfo) else AssistantInfo()
        facts = {
            name: item
            for name in ("model", "tokens", "cost", "finish")
            if (item := getattr(reply, name)) is not None and getattr(info, name) is None
        }
        metadata = {**reply.metadata, **message.metadata}
        yield replace(message, info=replace(info, **facts), metadata=metadata)


def _response(value: Mapping[str, Any]) -> Mapping[str, Any]:
    found = get_object(value, "response")
    return get_object(found, "body") or get_object(found, "json") or found


def _system(body: Mapping[str, Any]) -> object:
    names = ("system", "instructions", "systemInstruction", "system_instruction")
    return next((body[name] for name in names if name in body), None)


def _time(value: Mapping[str, Any]) -> int | None:
    for name in ("timestamp", "time", "created_at", "created", "ts", "datetime"):
        found = parse_time(value.get(name))
        if found is not None:
            return found
    return None


def request_format(body: Mapping[str, Any], response: Mapping[str, Any] = EMPTY) -> str | None:
    """Return the provider's format of a request's body, or None; the response may tell it.

    >>> request_format({"model": "claude-x", "max_tokens": 9, "messages": []})
    'anthropic'
    """
    if is_list(body.get("contents")) and "messages" not in body:
        return "gemini"
    if _is_responses(body):
        return "openai-responses"
    messages = body.get("messages")
    return _chat_format(body, messages, response) if is_list(messages) else None


def _chat_format(
    body: Mapping[str, Any], messages: list[Any] | tuple[Any, ...], response: Mapping[str, Any]
) -> str | None:
    """Return Anthropic's format or OpenAI's: both have `messages`."""
    known = messages_format(messages)
    alike = all(is_object(item) and "role" in item for item in messages[:8])
    if known is not None or not alike or not (messages or "model" in body):
        return known
    if is_list(response.get("choices")) or is_list(response.get("content")):
        return "openai-chat" if is_list(response.get("choices")) else "anthropic"
    claude = get_text(body, "model").rpartition("/")[2].startswith("claude")
    return "anthropic" if claude or not _ANTHROPIC_ONLY.isdisjoint(body) else "openai-chat"


def _is_responses(body: Mapping[str, Any]) -> bool:
    given = body.get("input")
    if isinstance(given, str):
        return "model" in body and "messages" not in body
    return is_list(given) and all(
        is_object(item) and ("role" in item or get_text(item, "type") in BARE | _ITEMS)
        for item in given[:8]
    )


def messages_format(messages: list[Any] | tuple[Any, ...]) -> str | None:
    """Return the format that the messages show; None where all providers write them so."""
    for message in messages:
        if not is_object(message):
            return None
        if get_text(message, "role") in _CHAT_ROLES or not _CHAT_ONLY.isdisjoint(message):
            return "openai-chat"
        for block in get_list(message, "content"):
            kind = block.get("type") if is_object(block) else None
            if not isinstance(kind, str) or "messageID" in block:
                continue  # a part of palaver's
            if kind in _CHAT_BLOCKS:
                return "openai-chat"
            if kind in _ANTHROPIC_BLOCKS and not (kind in block or "image_url" in block):
                return "anthropic"  # palaver's own list has {"type": "tool_use", "tool_use": {…}}
    return None
