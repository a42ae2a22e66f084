"""Conversion of Claude Code transcripts to messages and back, and the repair of edited ones.

A line with content becomes messages with the right roles: text, reasoning, tool calls and results
are parts. Everything else on the line is stored in their metadata, so that what was not edited is
written back equal. If even that would not be equal (a NUL in an output, say), the line is stored
verbatim beside the log, and used as long as its messages are unchanged. An edited transcript is
repaired so that `claude` can resume from it: every line hangs on an existing one, and every call
has its result.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from palaver.errors import ValidationError
from palaver.history.erase import ERASED
from palaver.messages import AssistantInfo, Message, dump, to_dict
from palaver.messages.ids import derive_id, uuid_for
from palaver.messages.limits import EMPTY, freeze, is_list, is_object, replace_refused
from palaver.messages.part_base import FilePart
from palaver.messages.parts import ReasoningPart, TextPart, ToolCallPart, ToolPart, UnknownPart
from palaver.messages.tool_state import ToolCompleted, ToolError, raw_output
from palaver.transcripts.builder import ConversationBuilder
from palaver.transcripts.claude_code import (
    FORMAT,
    ClaudeReply,
    add_block,
    content_blocks,
    tool_result,
)
from palaver.transcripts.sources import get_name, get_object, get_text, parse_time
from palaver.wire.request import BEGIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from palaver.history.view import View
    from palaver.messages.parts import Part
    from palaver.transcripts.builder import KnownCall
    from palaver.transcripts.claude_code import ResultBlock

__all__ = [
    "METADATA_KEY",
    "JsonLine",
    "SideLine",
    "TranscriptLine",
    "envelope_of",
    "fingerprint_messages",
    "from_line",
    "repair_transcript",
    "to_blocks",
    "to_line",
    "to_transcript",
]


JsonLine = dict[str, Any]
"""A line of a transcript: JSON."""

METADATA_KEY: Final = "claude-agent-sdk"
"""The metadata key of messages and parts under which the rest of their line is stored."""
_ROLES: Final = ("user", "assistant")
_SYNTHETIC: Final = "<synthetic>"
"""The model name of an answer that the program wrote itself."""


# ── a line as messages ───────────────────────────────────────────────────────────────────────────


def from_line(entry: Mapping[str, Any], calls: Mapping[str, KnownCall]) -> tuple[Message, ...]:
    """Convert a line to messages; none if it is not a message.

    `calls` are the tool calls that are known so far, by their ids.

    >>> line = {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "Tea?"}}
    >>> [message.text for message in from_line(line, {})]
    ['Tea?']
    >>> from_line({"type": "custom-title", "customTitle": "Tea"}, {})
    ()
    """
    said = get_object(entry, "message")
    kind = get_text(entry, "type")
    if kind not in _ROLES or get_text(said, "role") != kind or get_name(entry, "uuid") is None:
        return ()
    try:
        messages = _messages(_clean(entry), calls)
    except ValidationError:  # too deep or too large for the gate: it is stored as it is
        return ()
    if not messages or to_line(messages) == entry:
        return messages
    made = fingerprint_messages(messages)
    return tuple(_with_metadata(message, made=made, whole=True) for message in messages)


def _clean(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace the characters and numbers of a line that no message can hold."""
    try:
        gated: Mapping[str, Any] = freeze(entry)
    except ValidationError:
        gated = freeze(replace_refused(entry))
    return gated


def _messages(entry: Mapping[str, Any], calls: Mapping[str, KnownCall]) -> tuple[Message, ...]:
    said: Mapping[str, Any] = entry["message"]
    rest = {**entry, "message": {name: said[name] for name in said if name != "content"}}
    talk = ConversationBuilder(get_name(entry, "sessionId"))
    talk.calls.update(calls)
    at = talk.at(parse_time(entry.get("timestamp")))
    content = said.get("content")
    if not (isinstance(content, str) or (is_list(content) and all(map(is_object, content)))):
        return ()
    if said["role"] == "assistant":
        answer = ClaudeReply(entry["uuid"], talk, at)
        answer.add_line(entry, said, at, {})
        parts = _parts(entry, content, talk, at, answer.id)
        return (replace(answer.message(), content=parts, metadata={METADATA_KEY: {"entry": rest}}),)
    kept: dict[str, Any] = {"entry": rest}
    if isinstance(content, str):
        kept["plain"] = True
    messages = tuple(_user_messages(entry, content, talk, at))
    if "toolUseResult" in entry:  # what the person saw: true only while the result is what it was
        kept["made"] = fingerprint_messages(messages)
    return tuple(replace(message, metadata={METADATA_KEY: kept}) for message in messages)


def _user_messages(
    entry: Mapping[str, Any], content: object, talk: ConversationBuilder, at: int
) -> Iterator[Message]:
    """The messages of a user's line: one for each result, and for the content between them."""
    item = ((block, tool_result(block)) for block in content_blocks(content))
    for index, (result, group) in enumerate(groupby(item, lambda pair: pair[1])):
        name: str = entry["uuid"] if index == 0 else derive_id(entry["uuid"], f"{index}")
        blocks = [block for block, _ in group]
        if result is not None:
            yield _result(talk, blocks[0], result, name, at)
        elif isinstance(content, str) and entry.get("isMeta") is not True:
            yield Message("user", content, id=name, timestamp=at)
        else:
            parts = _parts(entry, blocks, talk, at, name)
            yield Message("user", parts, id=name, timestamp=at)


def _result(
    talk: ConversationBuilder, block: Mapping[str, Any], result: ResultBlock, name: str, at: int
) -> Message:
    made = talk.result(
        result.call_id, result.output, name, at,
        is_error=result.is_error, files=result.files, metadata=result.metadata,
    )  # fmt: skip
    return replace(made, content=(_with_rest(made.parts[0], block),))


def _parts(
    entry: Mapping[str, Any], content: object, talk: ConversationBuilder, at: int, name: str
) -> tuple[Part, ...]:
    """A part for each block, with the rest of the block in its metadata."""
    fields: dict[str, bool] = {}
    if entry.get("isMeta") is True or get_text(entry["message"], "model") == _SYNTHETIC:
        fields["synthetic"] = True
    if _is_error(entry):
        fields["ignored"] = True
    sheet = talk.message(name)
    for block in content_blocks(content):
        add_block(sheet, block, talk, at, **fields)
        sheet.parts[-1] = _with_rest(sheet.parts[-1], block)
    return tuple(sheet.parts)


def _with_rest(part: Part, block: Mapping[str, Any]) -> Part:
    """Store what a block has beyond its part in the part's metadata."""
    if not isinstance(part, TextPart | ReasoningPart | ToolCallPart | ToolPart):
        return part
    said = _block(part)
    rest = {name: item for name, item in block.items() if name not in said or said[name] != item}
    if "content" in rest:  # of a result: not once more, only that it is a list
        rest["content"] = []
        if block["content"] != [{"type": "text", "text": said["content"]}]:
            del rest["content"]
    return replace(part, metadata={**part.metadata, METADATA_KEY: rest}) if rest else part


def _with_metadata(message: Message, **more: object) -> Message:
    kept = message.metadata[METADATA_KEY]
    return replace(message, metadata={METADATA_KEY: {**kept, **more}})


def fingerprint_messages(messages: Sequence[Message]) -> str:
    """A fingerprint that changes when messages are edited."""
    said = dump([[message.role, message.content] for message in messages])
    return hashlib.sha256(said).hexdigest()[:32]


# ── messages as a line ───────────────────────────────────────────────────────────────────────────


def envelope_of(message: Message) -> Mapping[str, Any] | None:
    """The rest of a message's line; None if the message never came from one."""
    kept = get_object(get_object(message.metadata, METADATA_KEY), "entry")
    return kept if is_object(kept.get("message")) and get_name(kept, "uuid") else None


def to_line(messages: Sequence[Message]) -> JsonLine | None:
    """Convert the messages of a line back to it, as they are now; None if nothing is left.

    >>> line = {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "Tea?"}}
    >>> to_line(from_line(line, {})) == line
    True
    """
    envelope = envelope_of(messages[0])
    if envelope is None:
        return None
    entry: JsonLine = to_dict(envelope)
    kept = messages[0].metadata[METADATA_KEY]
    if "made" in kept and kept["made"] != fingerprint_messages(messages):
        entry.pop("toolUseResult", None)
    content = _content(messages, plain=kept.get("plain") is True, whole=_is_error(entry))
    if not content and messages[0].content:
        return None
    entry["message"]["content"] = content
    return entry


def _is_error(entry: Mapping[str, Any]) -> bool:
    """Tell whether a line is an error of the API, which the program shows and never sends."""
    return entry.get("isApiErrorMessage") is True


def _content(messages: Sequence[Message], *, plain: bool, whole: bool) -> str | list[JsonLine]:
    blocks = [block for message in messages for block in to_blocks(message, whole=whole)]
    texts = [block["text"] for block in blocks if block.get("type") == "text"]
    if plain and len(texts) == len(blocks):
        return "".join(texts)
    return blocks


def to_blocks(message: Message, *, whole: bool = False) -> list[JsonLine]:
    """Convert what a model may see of a message, or the `whole` of it, to Anthropic's blocks.

    >>> from palaver import user
    >>> to_blocks(user("Tea?"))
    [{'type': 'text', 'text': 'Tea?'}]
    """
    if isinstance(message.content, str):
        return [{"type": "text", "text": message.content}] if message.content else []
    parts = message.content if whole else message.sendable_parts
    return [block for part in parts if (block := _complete_block(part))]


def _complete_block(part: Part) -> JsonLine:
    block = _block(part)
    rest: JsonLine = to_dict(get_object(getattr(part, "metadata", EMPTY), METADATA_KEY))
    if rest.pop("content", None) == [] and isinstance(block.get("content"), str):
        block["content"] = [{"type": "text", "text": block["content"]}]
    return {**block, **rest} if block else block


def _block(part: Part) -> JsonLine:  # noqa: PLR0911 - one for each kind of part
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ReasoningPart):
        kept = get_object(part.metadata, FORMAT)
        if "redacted" in kept:
            return {"type": "redacted_thinking", "data": kept["redacted"]}
        signature = get_text(kept, "signature")  # without it, nobody takes the thought back
        thought = {"type": "thinking", "thinking": part.text, "signature": signature}
        return thought if signature else {}
    if isinstance(part, ToolCallPart):
        given = to_dict(part.arguments)
        return {"type": "tool_use", "id": part.call_id, "name": part.tool, "input": given}
    if isinstance(part, ToolPart):
        return _result_block(part)
    if isinstance(part, FilePart):
        return _file_block(part)
    if isinstance(part, UnknownPart) and part.type == FORMAT:
        return dict(to_dict(part).get("block", {}))
    return {}


def _result_block(part: ToolPart) -> JsonLine:
    """The result of a call: its output and its files."""
    state = part.state
    result: JsonLine = {"type": "tool_result", "tool_use_id": part.call_id, "content": ""}
    if isinstance(state, ToolError):
        return {**result, "content": state.error, "is_error": True}
    if isinstance(state, ToolCompleted):
        result["content"] = output = raw_output(state)
        if state.attachments:
            texts = [{"type": "text", "text": output}] if output else []
            result["content"] = texts + [
                block for file in state.attachments if (block := _file_block(file))
            ]
    return result


def _file_block(part: FilePart) -> JsonLine:
    """An image or a document: inline, or by its URL."""
    kind = "image" if part.mime.startswith("image/") else "document"
    start = f"data:{part.mime};base64,"
    source: JsonLine = {"type": "url", "url": part.url}
    if part.url.startswith(start):
        data = part.url.removeprefix(start)
        source = {"type": "base64", "media_type": part.mime, "data": data}
    titled = {"title": part.filename} if part.filename and kind == "document" else {}
    return {"type": kind, "source": source, **titled}


_SESSION: Final = (
    *("isSidechain", "agentId", "userType", "entrypoint"),
    *("cwd", "sessionId", "version", "gitBranch"),
)
"""The fields that every line of a session repeats."""


class SideLine(Struct, frozen=True):
    """A line that is not a message, and the id of the message it came after ("" for none)."""

    after: str
    entry: JsonLine

    @property
    def uuid(self) -> str | None:
        """Its uuid in the chain of lines; None if it concerns the whole session."""
        found = self.entry.get("uuid")
        return found if isinstance(found, str) else None


def to_transcript(
    view: View,
    side_lines: Sequence[SideLine],
    verbatim: Mapping[str, bytes],
    *,
    session_id: str,
    forked_from: frozenset[str] = frozenset(),
) -> list[JsonLine]:
    """Convert a conversation, as it is now, to the lines of a transcript.

    `side_lines` are in the order they came in; `verbatim` are lines that were stored unchanged, by
    uuid. The lines of a fork name the session it was `forked_from`, and get this session's name.
    """
    writer = _Writer(view, verbatim, session_id)
    said = writer.lines()
    between, dropped = writer.between(side_lines)
    lines = [*between.get(-1, ())]
    for index, line in enumerate(said):
        lines += [*([] if line is None else [line]), *between.get(index, ())]
    entries = (
        repair_transcript(lines) if dropped or writer.edited else [line.entry for line in lines]
    )
    for entry in entries:
        if entry.get("sessionId") in forked_from:
            entry["sessionId"] = session_id
    return entries


class _Writer:
    """Writes the messages of a view as lines."""

    def __init__(self, view: View, verbatim: Mapping[str, bytes], session_id: str) -> None:
        self._view = view
        self._wholes = verbatim
        self._session: JsonLine = {"isSidechain": False, "userType": "external"}
        self._session |= {"cwd": "/", "sessionId": session_id, "version": "1"}
        self._taken: set[str] = set()
        self._places: dict[str, int] = {}  # of each message, and of each that one has replaced
        self._order: list[tuple[int, int]] = []  # position in the log, and index
        self.edited = not _is_unedited(view)

    def lines(self) -> list[TranscriptLine | None]:
        """A line for each group of messages that came from one; None if nothing is left."""
        found: list[TranscriptLine | None] = []
        positions = [at for start, stop in self._view.ranges() for at in range(start, stop)]
        item = zip(positions, self._view, strict=True)
        for index, (_, group) in enumerate(groupby(item, _line_of)):
            pairs = list(group)
            self._order += [(position, index) for position, _ in pairs]
            self._places.update((message.id, index) for _, message in pairs)
            line = self._line(pairs[0][0], [message for _, message in pairs], index)
            self.edited = self.edited or line is None or line.new
            if line is not None:
                self._session |= {name: line.entry[name] for name in _SESSION if name in line.entry}
                self._taken.add(line.entry["uuid"])
            found.append(line)
        return found

    def between(
        self, side_lines: Sequence[SideLine]
    ) -> tuple[dict[int, list[TranscriptLine]], bool]:
        """The side lines after each line, and whether any was left out.

        What hangs on a message goes with it. What is about the session stays where it would stand,
        and so does the index where a compaction began.
        """
        found: dict[int, list[TranscriptLine]] = {}
        seen: set[str] = set()
        dropped = False
        self._order.sort()
        for aside in side_lines:
            uuid, index = aside.uuid, -1
            if uuid is not None and uuid in seen:
                continue  # it was sent twice
            if aside.after not in self._places and aside.after:
                dropped = True
                if uuid is not None and aside.entry.get("subtype") != "compact_boundary":
                    continue
                index = self._place_before(aside.after)
            elif aside.after:
                index = self._places[aside.after]
            seen.update([] if uuid is None else [uuid])
            found.setdefault(index, []).append(TranscriptLine(aside.entry))
        return found, dropped

    def _place_before(self, message_id: str) -> int:
        """The index of the last line before a message that is gone."""
        position = min(self._view.log.positions_of(message_id), default=0)
        index = bisect_left(self._order, (position, 0))
        return self._order[index - 1][1] if index else -1

    def _line(self, position: int, messages: list[Message], index: int) -> TranscriptLine | None:
        envelope = envelope_of(messages[0])
        if envelope is None:
            return self._new(position, messages[0], index)
        uuid: str = envelope["uuid"]
        self._places[uuid] = index
        kept = messages[0].metadata[METADATA_KEY]
        whole = self._wholes.get(uuid)
        if whole is not None and kept.get("made") == fingerprint_messages(messages):
            return TranscriptLine(json.loads(whole))
        entry = to_line(messages)
        if entry is None or uuid not in self._taken:
            return None if entry is None else TranscriptLine(entry)
        return TranscriptLine({**entry, "uuid": uuid_for(messages[0].id)}, new=True)

    def _new(self, position: int, message: Message, index: int) -> TranscriptLine | None:
        """A line for a message that palaver added, in the envelope of the message it replaced."""
        blocks = [] if ERASED in message.metadata else to_blocks(message)
        role = "assistant" if message.role == "assistant" else "user"
        origin = self._origin(position, index)
        if not blocks:
            return None
        content: str | list[JsonLine] = blocks
        if role == "user" and len(blocks) == 1 and blocks[0]["type"] == "text":
            content = blocks[0]["text"]
        uuid = uuid_for(message.id)
        if origin is not None and origin["message"].get("role") == role:
            entry = to_dict(origin)
            entry.pop("toolUseResult", None)
            entry["message"]["content"] = content
            new = entry["uuid"] in self._taken
            return TranscriptLine({**entry, "uuid": uuid} if new else entry, new=new)
        said = {"role": role, "content": content}
        if role == "assistant":
            said = {**_new_answer(message, uuid), **said}
        fields = {"isMeta": True} if message.role == "system" else {}
        time = datetime.fromtimestamp(message.timestamp / 1000, UTC)
        stamp = time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        entry = {"type": role, "uuid": uuid, "timestamp": stamp, "message": said}
        return TranscriptLine({"parentUuid": None, **self._session, **fields, **entry}, new=True)

    def _origin(self, position: int, index: int) -> Mapping[str, Any] | None:
        """The envelope of the message that this one replaced, over any number of edits."""
        log = self._view.log
        before = log.replaced(position)
        while before is not None:
            replaced = log[before]
            self._places.setdefault(replaced.id, index)
            envelope = envelope_of(replaced)
            if envelope is not None:
                self._places.setdefault(envelope["uuid"], index)
                return envelope
            before = log.replaced(before)
        return None


def _is_unedited(view: View) -> bool:
    """Tell whether a view is everything that was ever added, in order."""
    end = 0
    for start, stop in view.ranges():
        if start != end:
            return False
        end = stop
    return end == len(view.log)


def _line_of(item: tuple[int, Message]) -> str:
    position, message = item
    envelope = envelope_of(message)
    return f"message {position}" if envelope is None else envelope["uuid"]


def _new_answer(message: Message, uuid: str) -> JsonLine:
    """The message fields of a line for an answer that the program never saw."""
    model = message.info.model if isinstance(message.info, AssistantInfo) else None
    return {
        "id": f"msg_{uuid}",
        "type": "message",
        "model": "claude" if model is None else model.model_id,
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


_REFERENCES: Final = ("logicalParentUuid", "sourceToolAssistantUUID", "leafUuid")
_REASONING_TYPES: Final = frozenset(("thinking", "redacted_thinking"))


class TranscriptLine(Struct, frozen=True):
    """A line, and whether it is `new`: added with palaver, and not in the chain yet."""

    entry: dict[str, Any]
    new: bool = False

    def blocks(self) -> list[Mapping[str, Any]]:
        """The content blocks of the line, if it has any."""
        content = get_object(self.entry, "message").get("content")
        return [block for block in content if is_object(block)] if is_list(content) else []

    def ids(self, kind: str, name: str) -> Iterator[str]:
        """The ids of the calls or results in the line."""
        return (get_text(block, name) for block in self.blocks() if block.get("type") == kind)


def repair_transcript(lines: Sequence[TranscriptLine]) -> list[dict[str, Any]]:
    """Repair the lines so that the program can resume from them.

    >>> item = [{"uuid": "a", "parentUuid": None}, {"uuid": "c", "parentUuid": "gone"}]
    >>> [line["parentUuid"] for line in repair_transcript([TranscriptLine(line) for line in item])]
    [None, 'a']
    """
    sound = _drop_bare_reasoning(_pair_results(_drop_summarised(lines)))
    return _link(_begin_with_user(_order_turns(sound)))


def _drop_summarised(lines: Sequence[TranscriptLine]) -> list[TranscriptLine]:
    """Drop the boundary of a compaction unless its summary follows."""
    kept: list[TranscriptLine] = []
    follows = False
    for line in reversed(lines):
        if line.entry.get("subtype") == "compact_boundary":
            if not follows:
                continue
        elif "message" in line.entry:
            follows = line.entry.get("isCompactSummary") is True
        kept.append(line)
    return kept[::-1]


def _pair_results(lines: Sequence[TranscriptLine]) -> list[TranscriptLine]:
    """Drop calls without results, and results without calls."""
    calls: dict[str, int] = {}
    results: dict[str, int] = {}
    for index, line in enumerate(lines):
        for call in line.ids("tool_use", "id"):
            calls.setdefault(call, index)
        for call in line.ids("tool_result", "tool_use_id"):
            if call in calls:
                results.setdefault(call, index)

    def stands(block: Mapping[str, Any], index: int) -> bool:
        """Tell whether a call or result has its counterpart, and is the first of its id."""
        if block.get("type") == "tool_use":
            call = get_text(block, "id")
            return call in results and calls[call] == index
        return block.get("type") != "tool_result" or (
            results.get(get_text(block, "tool_use_id")) == index
        )

    kept: list[TranscriptLine] = []
    for index, line in enumerate(lines):
        blocks = line.blocks()
        stay = [block for block in blocks if stands(block, index)]
        if len(stay) < len(blocks):
            line.entry["message"] = {**line.entry["message"], "content": stay}
        if stay or not blocks:
            kept.append(line)
    return kept


def _drop_bare_reasoning(lines: Sequence[TranscriptLine]) -> list[TranscriptLine]:
    """Drop answers of which only the reasoning is left: the provider refuses them."""
    answers: dict[str, set[str]] = {}
    for line in lines:
        if line.entry.get("type") == "assistant":
            kinds = {get_text(block, "type") for block in line.blocks()}
            answers.setdefault(_answer(line), set()).update(kinds)
    bare = {name for name, kinds in answers.items() if kinds <= _REASONING_TYPES}
    return [
        line for line in lines if line.entry.get("type") != "assistant" or _answer(line) not in bare
    ]


def _answer(line: TranscriptLine) -> str:
    return get_text(get_object(line.entry, "message"), "id") or get_text(line.entry, "uuid")


def _order_turns(lines: Sequence[TranscriptLine]) -> list[TranscriptLine]:
    """Move lines between a call and its result behind the result."""
    done: list[TranscriptLine] = []
    waiting: list[TranscriptLine] = []
    open_calls: set[str] = set()
    for line in lines:
        if line.new and open_calls and not set(line.ids("tool_result", "tool_use_id")):
            waiting.append(line)
            continue
        done.append(line)
        open_calls.update(line.ids("tool_use", "id"))
        open_calls.difference_update(line.ids("tool_result", "tool_use_id"))
        if not open_calls:
            done += waiting
            waiting = []
    return done


def _begin_with_user(lines: Sequence[TranscriptLine]) -> list[TranscriptLine]:
    """Put a line of the user's before an answer that comes first: the provider refuses that."""
    for index, line in enumerate(lines):
        role = get_object(line.entry, "message").get("role")
        if role == "assistant":
            fields = (*_SESSION, "timestamp")
            opening = {
                "parentUuid": None,
                **{name: line.entry[name] for name in fields if name in line.entry},
                "type": "user",
                "uuid": derive_id(get_text(line.entry, "uuid"), BEGIN),
                "isMeta": True,
                "message": {"role": "user", "content": BEGIN},
            }
            return [*lines[:index], TranscriptLine(opening, new=True), *lines[index:]]
        if role is not None:
            break
    return [*lines]


def _link(lines: Sequence[TranscriptLine]) -> list[dict[str, Any]]:
    """Link every line to an existing one."""
    there = {get_text(line.entry, "uuid") for line in lines}
    follower: dict[str | None, str] = {}
    last: str | None = None
    for line in lines:
        entry = line.entry
        for name in _REFERENCES:
            if isinstance(entry.get(name), str) and entry[name] not in there:
                entry[name] = last
        if not line.new and "parentUuid" not in entry:
            continue
        parent = last if line.new else entry["parentUuid"]
        if line.new:
            follower[last] = entry["uuid"]
        elif entry.get("subtype") != "compact_boundary":
            parent = last if parent is not None and parent not in there else parent
            while parent in follower:
                parent = follower[parent]
        entry["parentUuid"] = parent
        last = entry.get("uuid", last)
    return [line.entry for line in lines]
