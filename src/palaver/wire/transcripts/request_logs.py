"""Logs of requests, as JSON lines: what a program sent to a provider, and perhaps what came back.

Each request holds the whole conversation so far. So a line whose messages begin with those of an
earlier line goes on with it, and the last line of a conversation says everything; any other line
begins a conversation of its own. Finding out costs one pass: conversations are looked up by a
fingerprint of their messages, taken message by message.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from palaver.errors import PalaverError
from palaver.messages.codec import dump
from palaver.messages.gate import EMPTY, is_list, is_object
from palaver.messages.message import AssistantInfo
from palaver.wire.report import Reading
from palaver.wire.transcripts.fields import milliseconds, name_in, object_in, text_in
from palaver.wire.transcripts.gathering import Notes
from palaver.wire.transcripts.lines import records
from palaver.wire.transcripts.replies import Reply, reply_of
from palaver.wire.transcripts.shapes import request_format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from palaver.messages.message import Message
    from palaver.wire.transcripts.lines import Record

    Bodies = Callable[[str, Mapping[str, Any]], Reading]

__all__ = ["read"]

_ITEMS: Final = {
    "openai-chat": "messages",
    "anthropic": "messages",
    "openai-responses": "input",
    "gemini": "contents",
}
"""The field of a body that holds the conversation."""

_SPEAKERS: Final = frozenset(("assistant", "model"))


def read(source: bytes | Path, bodies: Bodies) -> Iterator[Reading]:
    """Read a log; `bodies` reads the body of one request, in the format of that name."""
    log = _Log()
    for record in records(source, log.notes):
        log.take(record)
    yield from log.readings(bodies)


class _Talk:
    """A conversation, under way: its longest request so far, and every reply."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.body: Mapping[str, Any] = EMPTY
        self.items: tuple[Any, ...] = ()
        self.replies: dict[int, Reply] = {}
        self.line = 0
        self.tips: tuple[bytes, ...] = ()
        self.created: int | None = None

    def differs(self, items: tuple[Any, ...], reply: Reply | None) -> bool:
        """Tell whether the same request got another reply: then it is another conversation."""
        known = self.replies.get(_answers(items))
        return self.items == items and None not in (known, reply) and known != reply

    def go_on(
        self, line: int, body: Mapping[str, Any], items: tuple[Any, ...], reply: Reply | None
    ) -> None:
        """Go on with a longer request, and what came back to it."""
        self.line, self.body, self.items = line, body, items
        if reply is not None:
            self.replies[_answers(items)] = reply

    def said(self) -> tuple[Any, ...]:
        """What the last request said, with what came back to it at its end."""
        reply = self.replies.get(_answers(self.items))
        return (*self.items, *(reply.items if reply is not None else ()))

    def asked(self) -> Mapping[str, Any]:
        """The last request, with what came back to it at its end."""
        return {**self.body, _ITEMS[self.form]: list(self.said())}


class _Log:
    """A file, under way."""

    def __init__(self) -> None:
        self.notes = Notes()
        self.talks: list[_Talk] = []
        self.by_tip: dict[bytes, _Talk] = {}

    def take(self, record: Record) -> None:
        """Take a line in: it goes on with a conversation, or begins one."""
        value = record.value
        body = object_in(value, "request") or value
        body = object_in(body, "body") or object_in(body, "json") or body
        form = request_format(body)
        if form is None:
            self.notes.lost(record.where, "transcript.damaged", "is no request that palaver knows")
            return
        given = body.get(_ITEMS[form])
        items = tuple(given) if is_list(given) else ({"role": "user", "content": given},)
        prints = list(_fingerprints(form, items))
        talk = next((self.by_tip[tip] for tip in reversed(prints) if tip in self.by_tip), None)
        reply = reply_of(form, _response(value))
        if talk is None or talk.differs(items, reply):
            talk = _Talk(form)
            talk.created = _time(value) or _time(body)
            self.talks.append(talk)
        elif _system(talk.body) != _system(body):
            detail = f"the instructions of line {talk.line} are not those of this line; these stay"
            self.notes.lost(record.where, "transcript.instructions", detail)
        if talk.replies.get(_answers(items), reply) != reply and reply is not None:
            detail = f"another reply took the place of the one to line {talk.line}"
            self.notes.lost(record.where, "transcript.branch", detail)
        self._forget(talk)
        talk.go_on(record.line, body, items, reply)
        talk.tips = (*prints[-1:], *list(_fingerprints(form, talk.said()))[-1:])
        self.by_tip.update(dict.fromkeys(talk.tips, talk))

    def _forget(self, talk: _Talk) -> None:
        for tip in talk.tips:
            if self.by_tip.get(tip) is talk:
                del self.by_tip[tip]

    def readings(self, bodies: Bodies) -> Iterator[Reading]:
        """One reading a conversation, in the order they began."""
        notes = self.notes
        for talk in self.talks:
            try:
                found = bodies(talk.form, talk.asked())
            except PalaverError as error:
                notes.lost(f"line {talk.line}", "transcript.damaged", str(error))
                continue
            model = name_in(talk.body, "model")
            about = {"format": talk.form, "model": model, "created": talk.created}
            known = {name: item for name, item in about.items() if item is not None}
            messages = tuple(_informed(found.messages, talk))
            yield Reading(messages, (*notes.all(), *found.notes), {**found.about, **known})
            notes = Notes()  # they are about the file, and are told once
        if notes.all():
            yield Reading((), notes.all())


def _fingerprints(form: str, items: tuple[Any, ...]) -> Iterator[bytes]:
    """The fingerprint of each beginning of a conversation, from its first message on."""
    digest = hashlib.blake2b(form.encode(), digest_size=16)
    for item in items:
        digest.update(dump(item))
        yield digest.digest()


def _answers(items: tuple[Any, ...]) -> int:
    """How many answers are among these: the number of the one that comes next."""
    return sum(is_object(item) and text_in(item, "role") in _SPEAKERS for item in items)


def _informed(messages: tuple[Message, ...], talk: _Talk) -> Iterator[Message]:
    """The messages, each answer with what its reply said of model, tokens and end."""
    turn = 0
    for message in messages:
        if message.role != "assistant":
            yield message
            continue
        reply = talk.replies.get(turn)
        turn += 1
        if reply is None:
            yield message
            continue
        info = message.info if isinstance(message.info, AssistantInfo) else AssistantInfo()
        told = {
            name: item
            for name in ("model", "tokens", "finish")
            if (item := getattr(reply, name)) is not None and getattr(info, name) is None
        }
        yield replace(message, info=replace(info, **told)) if told else message


def _response(value: Mapping[str, Any]) -> Mapping[str, Any]:
    found = object_in(value, "response")
    return object_in(found, "body") or object_in(found, "json") or found


def _system(body: Mapping[str, Any]) -> object:
    names = ("system", "instructions", "systemInstruction", "system_instruction")
    return next((body[name] for name in names if name in body), None)


def _time(value: Mapping[str, Any]) -> int | None:
    for name in ("timestamp", "time", "created_at", "created", "ts", "datetime"):
        found = milliseconds(value.get(name))
        if found is not None:
            return found
    return None
