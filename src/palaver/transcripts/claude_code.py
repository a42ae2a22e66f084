"""Sessions of Claude Code: JSON lines that form a tree.

Going back in a session leaves a branch behind. The conversation is the path from the last line back
to the first, with what is off the path but belongs to it (the other calls of one answer, and their
results). A branch can be read as a conversation of its own. One answer is spread over several lines
with the same `message.id`, and is one message here. What an agent did on the side (`isSidechain`)
is a conversation of its own too. What the program prints as `stream-json` is read alike: it has
`session_id` and `parent_tool_use_id`, and no tree.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from palaver.errors import ValidationError
from palaver.messages.codec import dump
from palaver.messages.limits import EMPTY, MAX_INT, is_list, is_object
from palaver.messages.message import AssistantInfo, Message
from palaver.messages.parts import ModelRef, TextPart
from palaver.transcripts.builder import ConversationBuilder
from palaver.transcripts.sources import (
    get_name,
    get_object,
    get_text,
    is_name,
    parse_time,
    read_records,
)
from palaver.wire.anthropic.blocks import read_block, read_result
from palaver.wire.anthropic.reply import AnthropicReply
from palaver.wire.format import TextContent
from palaver.wire.notes import NoteCollector, ParsedConversation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from palaver.transcripts.builder import MessageBuilder
    from palaver.transcripts.sources import LineRecord
    from palaver.wire.format import FileContent
    from palaver.wire.notes import Note

__all__ = [
    "FORMAT",
    "METADATA_KEY",
    "ClaudeReply",
    "ResultBlock",
    "add_block",
    "content_blocks",
    "read",
    "tool_result",
]

FORMAT: Final = "anthropic"
"""The format of the blocks in a session, and the provider that parts store their details under."""
METADATA_KEY: Final = "claude-code"
"""The key in a message's metadata under which the rest of its line is stored."""
_REPEATED: Final = (
    "sessionId",
    "session_id",
    "cwd",
    "version",
    "gitBranch",
    "userType",
    "entrypoint",
)
"""Fields that nearly every line repeats: stored once, about the conversation."""
_LINE_FIELDS: Final = frozenset(
    ("type", "uuid", "timestamp", "message", "toolUseResult", "costUSD")
)
_MESSAGE_FIELDS: Final = frozenset(("type", "role", "content", "model"))
"""Fields that a message has a place for; the others are stored in its metadata."""
_ROLES: Final = frozenset(("user", "assistant"))
_TITLES: Final = {"summary": "summary", "custom-title": "customTitle", "ai-title": "aiTitle"}
_QUEUED: Final = "queued_command"
_SYNTHETIC: Final = "<synthetic>"
"""The model of an answer that the program wrote itself."""
_SKIPPED: Final = {
    "attachment": "was put before the model by the program, not by a person",
    "file-history-snapshot": "names backups of files",
    "progress": "tells how a tool or an agent got on",
    "queue-operation": "tells what waited to be sent",
    "system": "a notice for the person at the terminal",
}


def read(source: bytes | Path, *, branches: bool = False) -> Iterator[ParsedConversation]:
    """Read a session: the conversation, its branches if wanted, and what agents did on the side."""
    session = _ClaudeSession()
    for record in read_records(source, session.notes):
        try:
            session.read(record)
        except ValidationError as error:
            session.notes.lost(record.where, "transcript.damaged", str(error))
    yield from session.conversations(branches=branches)


# ── blocks ───────────────────────────────────────────────────────────────────────────────────────


class ResultBlock(NamedTuple):
    """What a `tool_result` block says."""

    call_id: str
    output: str
    is_error: bool
    files: tuple[FileContent, ...]
    metadata: dict[str, Any]


def content_blocks(content: object) -> Iterator[Mapping[str, Any]]:
    """Yield the blocks of a message; text alone is one, and what is no block becomes text.

    >>> list(content_blocks("hi"))
    [{'type': 'text', 'text': 'hi'}]
    """
    for item in content if is_list(content) else (content,):
        if is_object(item):
            yield item
        elif isinstance(item, str):
            yield {"type": "text", "text": item}
        elif item is not None:
            yield {"type": "text", "text": dump(item).decode()}


def add_block(
    message: MessageBuilder,
    block: Mapping[str, Any],
    builder: ConversationBuilder,
    at: int,
    **fields: bool,
) -> None:
    """Add a block to a message, as the part that says the same, or whole."""
    found = read_block(block)
    if found == TextContent(""):
        return  # a live answer stores no empty text either
    if found is None or not builder.add(message, found, at, form=FORMAT, provider=FORMAT, **fields):
        message.unknown(FORMAT, block)


def tool_result(block: Mapping[str, Any]) -> ResultBlock | None:
    """Read a `tool_result` block; None where it does not say which call it is for."""
    found = read_result(block)
    if found is None or not is_name(found.call_id):
        return None
    metadata = {FORMAT: found.metadata} if found.metadata else {}
    return ResultBlock(found.call_id, found.output, found.failed, found.files, metadata)


class ClaudeReply:
    """One answer of the model, which Claude Code writes over several lines."""

    def __init__(self, message_id: str, builder: ConversationBuilder, at: int) -> None:
        """Start an answer without lines."""
        self.id = message_id
        self.calls: set[str] = set()
        self._builder = builder
        self._at = at
        self._message = builder.message(message_id)
        self._said: Mapping[str, Any] = EMPTY
        self._line: Mapping[str, Any] = EMPTY
        self._rest: dict[str, Any] = {}
        self._ended: int | None = None

    def add_line(
        self, line: Mapping[str, Any], said: Mapping[str, Any], at: int, rest: dict[str, Any]
    ) -> None:
        """Add one more line of it: `said` is its message, `rest` what else is to be stored."""
        fields: dict[str, bool] = {}
        if get_text(said, "model") == _SYNTHETIC:
            fields["synthetic"] = True
        if line.get("isApiErrorMessage") is True:
            fields["ignored"] = True
        for block in content_blocks(said.get("content")):
            call = get_name(block, "id") if block.get("type") == "tool_use" else None
            if call is None or call not in self.calls:
                add_block(self._message, block, self._builder, at, **fields)
            if call is not None:
                self.calls.add(call)
        present = {name: item for name, item in said.items() if item is not None}
        self._said, self._line = {**self._said, **present}, line
        self._rest = {**rest, **self._rest}  # the first line says where it belongs in the tree
        self._ended = at if get_text(said, "stop_reason") else self._ended

    def message(self) -> Message:
        """Return the whole answer."""
        model, reason = get_name(self._said, "model"), get_text(self._said, "stop_reason")
        cost = self._line.get("costUSD")
        error: Mapping[str, Any] | None = None
        if self._line.get("isApiErrorMessage") is True:
            texts = [part.text for part in self._message.parts if isinstance(part, TextPart)]
            error = {"name": "APIError", "message": "".join(texts)}
        info = AssistantInfo(
            model=ModelRef(FORMAT, model) if model and model != _SYNTHETIC else None,
            tokens=AnthropicReply.count_tokens(get_object(self._said, "usage")),
            finish=(
                AnthropicReply.finish_reason(reason, calls=bool(self.calls)) if reason else None
            ),
            completed=self._ended,
            cost=cost if isinstance(cost, int | float) and 0 < cost <= MAX_INT else None,
            error=error,
        )
        said = {name: item for name, item in self._said.items() if name not in _MESSAGE_FIELDS}
        rest = {**self._rest, "message": said} if said else self._rest
        return Message(
            "assistant",
            self._message.content,
            id=self.id,
            timestamp=self._at,
            info=info,
            metadata={METADATA_KEY: rest} if rest else {},
        )


# ── a session ────────────────────────────────────────────────────────────────────────────────────


class _LineTree:
    """Lines by their ids, each with its parent.

    A parent that is missing (the line was damaged, or the session was resumed) is taken to be the
    line before, so that damage in the middle never cuts off what came earlier.

    >>> tree = _LineTree()
    >>> for line, parent in (("a", None), ("b", "a"), ("left", "a"), ("c", "b")):
    ...     tree.add(line, (parent,))
    >>> sorted(tree.path_to("c"))
    ['a', 'b', 'c']
    """

    def __init__(self) -> None:
        self._parents: dict[str, str | None] = {}
        self._last: str | None = None

    def __contains__(self, line: str) -> bool:
        """Tell whether a line of this id was there."""
        return line in self._parents

    def add(self, line: str, parents: Iterable[str | None], *, aside: bool = False) -> None:
        """Add a line under the first of these parents that is known, else under the line before.

        A line `aside` is nobody's parent by default, and has none itself.
        """
        known = (parent for parent in parents if parent in self._parents)
        self._parents[line] = next(known, None if aside else self._last)
        if not aside:
            self._last = line

    def path_to(self, line: str | None) -> set[str]:
        """Return a line and all its ancestors; parents come before children, so this ends."""
        path: set[str] = set()
        while line is not None:
            path.add(line)
            line = self._parents.get(line)
        return path


class _SessionLine:
    """One line that says something: messages of its own, or a share of an answer."""

    __slots__ = ("messages", "number", "reply", "results", "uuid")

    def __init__(self, number: int, uuid: str) -> None:
        self.number = number
        self.uuid = uuid
        self.reply: ClaudeReply | None = None
        self.messages: list[Message] = []
        self.results: set[str] = set()


class _ClaudeSession:
    """Reads the lines of one file."""

    def __init__(self) -> None:
        self.notes = NoteCollector()
        self.tree = _LineTree()
        self.about: dict[str, Any] = {}
        self.titles: list[str] = []
        self.threads: dict[str | None, list[_SessionLine]] = {}
        self.builders: dict[str | None, ConversationBuilder] = {}
        self.replies: dict[tuple[str | None, str], ClaudeReply] = {}
        self.sides: dict[str, str] = {}
        self.first: dict[str, tuple[str, int]] = {}
        self.renamed: dict[str, str] = {}
        self.auto = True

    def read(self, record: LineRecord) -> None:
        """Read a line."""
        value, kind = record.value, record.value.get("type")
        said = get_object(value, "message")
        if isinstance(kind, str) and kind in _TITLES:
            if title := get_text(value, _TITLES[kind]):
                self.titles.append(title)
            else:
                self._skip(record, kind)
            return
        uuid = self._unique(record)
        if uuid is None:
            self.notes.skipped(record.where, f"{kind}", "repeats an earlier line of the same uuid")
            return
        thread = self._add_to_tree(value, uuid)
        if get_text(value, "type") in _ROLES or get_text(said, "role") in _ROLES:
            if "content" in said or not said.keys() - _MESSAGE_FIELDS:
                self._read_message(record, said, uuid, thread)
            else:
                detail = f"its message has no content, only {', '.join(said)[:80]}"
                self.notes.lost(record.where, "transcript.damaged", detail)
        elif kind == "attachment" and get_object(value, "attachment").get("type") == _QUEUED:
            queued = {"role": "user", "content": value["attachment"].get("prompt")}
            self._read_message(record, queued, uuid, thread)
        else:
            self._skip(record, kind)

    def _unique(self, record: LineRecord) -> str | None:
        """Return the name of a line in the tree; None where it stands in the file already.

        A line with the uuid of another that says something else follows the line before it.
        """
        value, uuid = record.value, get_name(record.value, "uuid")
        if uuid is None:
            return record.where
        said = hash(dump([value.get("type"), value.get("message"), value.get("attachment")]))
        where, earlier = self.first.setdefault(uuid, (record.where, said))
        if where == record.where:
            return uuid
        if said == earlier:
            return None
        self.renamed[uuid] = record.where
        detail = f"has the uuid of {where}, which says something else: both are kept"
        self.notes.repaired(record.where, "transcript.uuid", detail)
        return record.where

    def _add_to_tree(self, value: Mapping[str, Any], uuid: str) -> str | None:
        """Add a line to the tree; return the thread it belongs to, None for the main one."""
        names = (get_name(value, "parentUuid"), get_name(value, "logicalParentUuid"))
        parents = [self.renamed.get(name, name) for name in names if name is not None]
        agent = get_name(value, "parent_tool_use_id")
        aside = value.get("isSidechain") is True or agent is not None
        again = uuid == self.renamed.get(get_text(value, "uuid"))
        self.tree.add(uuid, () if again else parents, aside=aside)
        if not aside:
            return None
        before = next((self.sides[parent] for parent in parents if parent in self.sides), uuid)
        thread = get_name(value, "agentId") or agent or before
        self.sides[uuid] = thread
        return thread

    def _skip(self, record: LineRecord, kind: object) -> None:
        value = record.value
        detail = get_text(value, "subtype") or get_text(get_object(value, "attachment"), "type")
        if detail == "compact_boundary":
            self.auto = get_object(value, "compactMetadata").get("trigger") != "manual"
            return
        why = _SKIPPED.get(f"{kind}", "is of a type that palaver does not know")
        name = kind if isinstance(kind, str) else "a record without a type"
        self.notes.skipped(record.where, f"{name} {detail}".strip(), why)

    def _read_message(
        self, record: LineRecord, said: Mapping[str, Any], uuid: str, thread: str | None
    ) -> None:
        value = record.value
        for name in _REPEATED:
            if name in value:
                self.about.setdefault(name, value[name])
        session = thread or get_name(self.about, "sessionId", "session_id")
        builder = self.builders.setdefault(thread, ConversationBuilder(session))
        at = builder.at(parse_time(value.get("timestamp")))
        line = _SessionLine(record.line, uuid)
        if said.get("role") == "assistant":
            group = (thread, get_name(said, "id") or uuid)
            if group not in self.replies:
                name = builder.new_id(get_name(value, "uuid"), record.where)
                self.replies[group] = ClaudeReply(name, builder, at)
            line.reply = self.replies[group]
            line.reply.add_line(value, said, at, self._rest(value))
        else:
            self._read_user(line, record, said, builder, at)
        self.threads.setdefault(thread, []).append(line)

    def _read_user(
        self,
        line: _SessionLine,
        record: LineRecord,
        said: Mapping[str, Any],
        builder: ConversationBuilder,
        at: int,
    ) -> None:
        """Read a user's line: results of tools, and what the user said."""
        value = record.value
        blocks = list(content_blocks(said.get("content")))
        results = [tool_result(block) for block in blocks]
        for index, result in enumerate(results):
            if result is None:
                continue
            metadata = dict(result.metadata)
            if len(blocks) == 1 and _says_more(value.get("toolUseResult"), result.output):
                metadata[METADATA_KEY] = {"toolUseResult": value["toolUseResult"]}
            alone = get_name(value, "uuid") if len(blocks) == 1 else None
            name = builder.new_id(alone, f"{record.where}.{index}")
            made = builder.result(
                result.call_id, result.output, name, at,
                is_error=result.is_error, files=result.files, metadata=metadata,
            )  # fmt: skip
            line.messages.append(made)
            line.results.add(result.call_id)
        spoken = [block for block, result in zip(blocks, results, strict=True) if result is None]
        if spoken or not blocks:
            name = builder.new_id(get_name(value, "uuid"), record.where)
            message = builder.message(name)
            if value.get("isCompactSummary") is True:
                message.compaction(auto=self.auto)
            fields = {"synthetic": True} if value.get("isMeta") is True else {}
            for block in spoken:
                add_block(message, block, builder, at, **fields)
            rest = self._rest(value)
            metadata = {METADATA_KEY: rest} if rest else {}
            line.messages.append(
                Message("user", message.content, id=name, timestamp=at, metadata=metadata)
            )

    def _rest(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a line says beside its message, and not every line says."""
        return {
            name: item
            for name, item in value.items()
            if name not in _LINE_FIELDS
            and not (name in _REPEATED and self.about.get(name) == item)
            and item is not None
            and not (name == "isSidechain" and item is False)
        }

    def conversations(self, *, branches: bool) -> Iterator[ParsedConversation]:
        """Yield the conversation, its branches where they are wanted, then the agents' threads."""
        about = self._about()
        lines = self.threads.pop(None, [])
        main, left = self._split(lines, lines[-1].uuid if lines else None)
        if left and not branches:
            detail = (
                f"{len(left)} lines are on branches that were left: "
                "palaver import --branches imports each as a fork"
            )
            self.notes.lost(f"line {left[0].number}", "transcript.branch", detail)
        messages = tuple(_messages(main, self.notes))
        if lines or not self.threads:
            yield _conversation(messages, self._told(), about)
        about["parent"] = about.pop("id", None)
        for tip, said in self._branches(lines, left) if branches else ():
            own = tuple(_messages(said, self.notes))
            shared = sum(1 for _ in takewhile(_alike, zip(messages, own, strict=False)))
            yield _conversation(own, self._told(), {**about, "id": tip, "branch": shared})
        for thread, aside in self.threads.items():
            own = tuple(_messages(aside, self.notes))
            found = {**about, "id": thread, "sidechain": True}
            yield _conversation(own, self._told(), found)

    def _told(self) -> tuple[Note, ...]:
        """Return the notes so far: they are about the file, and are given once."""
        notes, self.notes = self.notes, NoteCollector()
        return notes.all()

    def _about(self) -> dict[str, Any]:
        names = {
            "session_id": "id",
            "sessionId": "id",
            "cwd": "cwd",
            "version": "version",
            "gitBranch": "gitBranch",
        }
        about = {names[key]: item for key, item in self.about.items() if key in names}
        titles = list(dict.fromkeys(self.titles))
        for title in titles[:-1]:
            self.notes.skipped("beginning", f"title {title!r}", "a later one took its place")
        return {**about, "title": titles[-1] if titles else None}

    def _branches(
        self, lines: list[_SessionLine], left: list[_SessionLine]
    ) -> list[tuple[str, list[_SessionLine]]]:
        """Return each branch that was left: its last line, and all lines on the way there."""
        found: list[tuple[str, list[_SessionLine]]] = []
        seen: set[str] = set()
        for line in reversed(left):
            if line.uuid not in seen:
                said, _ = self._split(lines, line.uuid)
                seen.update(self.tree.path_to(line.uuid), (each.uuid for each in said))
                found.append((line.uuid, said))
        return found[::-1]

    def _split(
        self, lines: list[_SessionLine], tip: str | None
    ) -> tuple[list[_SessionLine], list[_SessionLine]]:
        """Return the lines on the path to one, with those that belong to them, and the others."""
        path = self.tree.path_to(tip)
        on_path = [line for line in lines if line.uuid in path]
        replies = {id(line.reply) for line in on_path if line.reply}
        calls = {call for line in on_path if line.reply for call in line.reply.calls}
        said: list[_SessionLine] = []
        left: list[_SessionLine] = []
        for line in lines:
            belongs = (
                line.uuid in path
                or (line.reply is not None and id(line.reply) in replies)
                or (bool(line.results) and line.results <= calls)
            )
            (said if belongs else left).append(line)
        return said, left


def _alike(pair: tuple[Message, Message]) -> bool:
    return pair[0] == pair[1]


def _conversation(
    messages: tuple[Message, ...], notes: tuple[Note, ...], about: Mapping[str, Any]
) -> ParsedConversation:
    models = (_model(message) for message in reversed(messages))
    known = {
        **about,
        "model": next((model for model in models if model), None),
        "created": messages[0].timestamp if messages else None,
    }
    present = {name: item for name, item in known.items() if item is not None}
    return ParsedConversation(messages, notes, present)


def _messages(lines: list[_SessionLine], notes: NoteCollector) -> Iterator[Message]:
    seen: set[int] = set()
    for line in lines:
        yield from line.messages
        if line.reply is not None and id(line.reply) not in seen:
            seen.add(id(line.reply))
            try:
                yield line.reply.message()
            except ValidationError as error:
                notes.lost(f"line {line.number}", "transcript.damaged", str(error))


def _says_more(result: object, output: str) -> bool:
    """Tell whether a tool's own record says more than what the model was given."""
    if isinstance(result, str):
        return result.removeprefix("Error: ") != output
    return is_object(result) or bool(result)


def _model(message: Message) -> str | None:
    model = getattr(message.info, "model", None)
    return None if model is None else str(model.model_id)
