"""The one door to all readers: a file and, if need be, the name of its format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from palaver.errors import ValidationError
from palaver.messages import MAX_DOCUMENT
from palaver.messages.gate import is_list, is_object, kind_of
from palaver.wire.report import Reading
from palaver.wire.transcripts import claude_code, codex, llm_logs, opencode, plain, request_logs
from palaver.wire.transcripts.detecting import detect
from palaver.wire.transcripts.gathering import Notes
from palaver.wire.transcripts.lines import load_value, open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["FORMATS", "each_conversation", "read_transcript"]

_REQUESTS: Final = ("openai-chat", "openai-responses", "anthropic", "gemini")
_SNAPSHOTS: Final = ("palaver-lines", "palaver-2", "palaver-1")


def read_transcript(source: bytes | Path, format: str | None = None) -> tuple[Reading, ...]:  # noqa: A002 - the word for it
    """Read a transcript: one reading for each conversation in it.

    >>> (reading,) = read_transcript(b'[{"role": "user", "content": "hi"}]')
    >>> reading.messages[0].text
    'hi'
    """
    return tuple(each_conversation(source, format))


def each_conversation(source: bytes | Path, format: str | None = None) -> Iterator[Reading]:  # noqa: A002 - as above
    """The same one by one, for a file with more conversations than fit in the memory.

    `ValidationError` for a format that nobody knows, and for a file that can't be read at all.

    >>> list(each_conversation(b"", "tape"))
    Traceback (most recent call last):
    palaver.errors.ValidationError: $.format: must be one of anthropic, ... [transcript.format]
    """
    name = detect(source) if format is None else format
    if name is None:
        detail = "is in no format that palaver knows; if you know it, name it"
        raise ValidationError(detail, rule="transcript.format")
    if name in _SNAPSHOTS:
        detail = "is a snapshot of palaver's, with all its versions: import it into a store"
        raise ValidationError(detail, rule="transcript.format")
    if name not in FORMATS:
        detail = f"must be one of {', '.join(sorted(FORMATS))}"
        raise ValidationError(detail, path="$.format", rule="transcript.format")
    return FORMATS[name](source)


def _body(form: str, body: Mapping[str, Any]) -> Reading:
    """The body of one request, read by the format's own reader."""
    from palaver import wire  # noqa: PLC0415 - the formats stand beside this, and are many

    if form == "openai-responses" and isinstance(body.get("input"), str):
        body = {**body, "input": [{"role": "user", "content": body["input"]}]}
    return wire.from_(form, body)


def _requests(source: bytes | Path) -> Iterator[Reading]:
    return request_logs.read(source, _body)


def _request(form: str) -> Callable[[bytes | Path], Iterator[Reading]]:
    def read(source: bytes | Path) -> Iterator[Reading]:
        notes = Notes()
        with open_source(source) as stream:
            value = load_value(stream.read(MAX_DOCUMENT + 1), "$", notes)
        if is_list(value) and form in {"openai-chat", "anthropic"}:
            value = {"messages": value}  # the bare list, without the request around it
        if not is_object(value):
            raise ValidationError(f"must be an object, not {kind_of(value)}")
        found = _body(form, value)
        yield Reading(found.messages, (*notes.all(), *found.notes), found.about)

    return read


def _folder(source: bytes | Path) -> Iterator[Reading]:
    if not isinstance(source, Path):
        raise ValidationError("must be the path of a folder", rule="transcript.format")
    return opencode.read_folder(source)


FORMATS: Final[Mapping[str, Callable[[bytes | Path], Iterator[Reading]]]] = {
    "claude-code": claude_code.read,
    "codex": codex.read,
    "opencode": opencode.read_database,
    "opencode-export": opencode.read_export,
    "opencode-folder": _folder,
    "llm": llm_logs.read,
    "requests": _requests,
    "messages": plain.read,
    **{name: _request(name) for name in _REQUESTS},
}
"""The readers, by the names that `detect` gives."""
