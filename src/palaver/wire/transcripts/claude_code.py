"""Sessions of Claude Code: JSON lines that form a tree.

Going back in a session leaves a branch behind: what was said is the way from the last line back to
the first, and beside it what hangs off to the side but belongs to it (the other calls of one
answer, and their results). One answer is spread over several lines with the same `message.id` and
is one message here. What an agent did on the side (`isSidechain`) is a conversation of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from palaver.errors import ValidationError
from palaver.messages.gate import is_object
from palaver.messages.message import Message
from palaver.wire.report import Reading
from palaver.wire.transcripts.blocks import blocks_of, put_block, result_of
from palaver.wire.transcripts.branches import Branches
from palaver.wire.transcripts.building import Conversation
from palaver.wire.transcripts.claude_answers import Answer
from palaver.wire.transcripts.fields import milliseconds, name_in, object_in, text_in
from palaver.wire.transcripts.gathering import Notes
from palaver.wire.transcripts.lines import records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from palaver.wire.transcripts.lines import Record

__all__ = ["KEPT", "read"]

KEPT: Final = "claude-code"
"""The key in a message's metadata under which the rest of its line is kept."""
_SAME: Final = ("sessionId", "cwd", "version", "gitBranch", "userType", "entrypoint")
"""What nearly every line repeats: kept once, about the whole."""
_ELSEWHERE: Final = frozenset(("type", "uuid", "timestamp", "message", "toolUseResult", "costUSD"))
_ROLES: Final = frozenset(("user", "assistant"))
_TITLES: Final = {"summary": "summary", "custom-title": "customTitle", "ai-title": "aiTitle"}
_ASIDE: Final = {
    "attachment": "was put before the model by the program, not by a person",
    "file-history-snapshot": "names backups of files",
    "progress": "tells how a tool or an agent got on",
    "queue-operation": "tells what waited to be sent",
    "system": "a notice for the person at the terminal",
}


def read(source: bytes | Path) -> Iterator[Reading]:
    """Read a session: what was said, then what each agent did on the side."""
    session = _Session()
    for record in records(source, session.notes):
        try:
            session.take(record)
        except ValidationError as error:
            session.notes.lost(record.where, "transcript.damaged", str(error))
    yield from session.readings()


class _Entry:
    """One line that says something: messages of its own, or a share of an answer."""

    __slots__ = ("answer", "line", "messages", "results", "uuid")

    def __init__(self, line: int, uuid: str) -> None:
        self.line = line
        self.uuid = uuid
        self.answer: Answer | None = None
        self.messages: list[Message] = []
        self.results: set[str] = set()


class _Session:
    """A file, under way."""

    def __init__(self) -> None:
        self.notes = Notes()
        self.tree = Branches()
        self.about: dict[str, Any] = {}
        self.titles: list[str] = []
        self.threads: dict[str | None, list[_Entry]] = {}
        self.talks: dict[str | None, Conversation] = {}
        self.answers: dict[tuple[str | None, str], Answer] = {}
        self.sides: dict[str, str] = {}
        self.auto = True

    def take(self, record: Record) -> None:
        """Take a line in."""
        value, kind = record.value, record.value.get("type")
        said = object_in(value, "message")
        if isinstance(kind, str) and kind in _TITLES:
            self.titles += [title] if (title := text_in(value, _TITLES[kind])) else []
            return
        uuid = name_in(value, "uuid")
        if uuid is not None and uuid in self.tree:
            self.notes.passed_over(record.where, f"{kind}", "stands in the file already")
            return
        thread = self._place(value, uuid or record.where)
        if text_in(value, "type") in _ROLES or text_in(said, "role") in _ROLES:
            self._say(record, said, uuid or record.where, thread)
        elif kind == "attachment" and object_in(value, "attachment").get("type") == _QUEUED:
            prompt = value["attachment"].get("prompt")
            self._say(record, {"role": "user", "content": prompt}, uuid or record.where, thread)
        else:
            self._pass_over(record, kind)

    def _place(self, value: Mapping[str, Any], uuid: str) -> str | None:
        """Put a line into the tree; the thread it belongs to, None for the main one."""
        parents = (name_in(value, "parentUuid"), name_in(value, "logicalParentUuid"))
        aside = value.get("isSidechain") is True
        self.tree.add(uuid, parents, aside=aside)
        if not aside:
            return None
        before = next((self.sides[parent] for parent in parents if parent in self.sides), uuid)
        thread = name_in(value, "agentId") or before
        self.sides[uuid] = thread
        return thread

    def _pass_over(self, record: Record, kind: object) -> None:
        value = record.value
        detail = text_in(value, "subtype") or text_in(object_in(value, "attachment"), "type")
        if detail == "compact_boundary":
            self.auto = object_in(value, "compactMetadata").get("trigger") != "manual"
            return
        why = _ASIDE.get(f"{kind}", "is of a type that palaver does not know")
        name = kind if isinstance(kind, str) else "a record without a type"
        self.notes.passed_over(record.where, f"{name} {detail}".strip(), why)

    def _say(self, record: Record, said: Mapping[str, Any], uuid: str, thread: str | None) -> None:
        value = record.value
        for name in _SAME:
            if name in value:
                self.about.setdefault(name, value[name])
        session = thread or name_in(self.about, "sessionId")
        talk = self.talks.setdefault(thread, Conversation(session))
        at = talk.at(milliseconds(value.get("timestamp")))
        entry = _Entry(record.line, uuid)
        if said.get("role") == "assistant":
            group = (thread, name_in(said, "id") or uuid)
            if group not in self.answers:
                self.answers[group] = Answer(
                    talk.new_id(name_in(value, "uuid"), record.where), talk, at
                )
            entry.answer = self.answers[group]
            entry.answer.take(value, said, at, self._rest(value))
        else:
            self._listen(entry, record, said, talk, at)
        self.threads.setdefault(thread, []).append(entry)

    def _listen(
        self, entry: _Entry, record: Record, said: Mapping[str, Any], talk: Conversation, at: int
    ) -> None:
        """Read a user's line: results of tools, and what the user said."""
        value = record.value
        blocks = list(blocks_of(said.get("content")))
        results = [result_of(block) for block in blocks]
        for index, result in enumerate(results):
            if result is None:
                continue
            metadata = dict(result.metadata)
            if len(blocks) == 1 and _adds(value.get("toolUseResult"), result.output):
                metadata[KEPT] = {"toolUseResult": value["toolUseResult"]}
            alone = name_in(value, "uuid") if len(blocks) == 1 else None
            name = talk.new_id(alone, f"{record.where}.{index}")
            made = talk.result(
                result.call_id, result.output, name, at,
                is_error=result.is_error, files=result.files, metadata=metadata,
            )  # fmt: skip
            entry.messages.append(made)
            entry.results.add(result.call_id)
        spoken = [block for block, result in zip(blocks, results, strict=True) if result is None]
        if spoken or not blocks:
            name = talk.new_id(name_in(value, "uuid"), record.where)
            sheet = talk.sheet(name)
            if value.get("isCompactSummary") is True:
                sheet.compaction(auto=self.auto)
            fields = {"synthetic": True} if value.get("isMeta") is True else {}
            for block in spoken:
                put_block(sheet, block, talk, at, **fields)
            rest = self._rest(value)
            metadata = {KEPT: rest} if rest else {}
            entry.messages.append(
                Message("user", sheet.content, id=name, timestamp=at, metadata=metadata)
            )

    def _rest(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """What a line says beside its message, where it is not what every line says."""
        return {
            name: item
            for name, item in value.items()
            if name not in _ELSEWHERE
            and not (name in _SAME and self.about.get(name) == item)
            and item is not None
            and not (name == "isSidechain" and item is False)
        }

    def readings(self) -> Iterator[Reading]:
        """What was said, then the threads on the side."""
        about = self._about()
        threads = sorted(self.threads, key=lambda thread: thread is not None)
        notes = self.notes
        for thread in threads or [None]:
            entries = self.threads.get(thread, [])
            if thread is None:
                entries = self._said(entries)
            messages = tuple(_in_order(entries, notes))
            own = dict(about)
            if thread is not None:
                own |= {"id": thread, "parent": about.get("id"), "sidechain": True}
            own["model"] = next((_model(m) for m in reversed(messages) if _model(m)), None)
            own["created"] = messages[0].timestamp if messages else None
            kept = {name: item for name, item in own.items() if item is not None}
            yield Reading(messages, notes.all(), kept)
            notes = Notes()  # they are about the file, and are told once

    def _about(self) -> dict[str, Any]:
        names = {"sessionId": "id", "cwd": "cwd", "version": "version", "gitBranch": "gitBranch"}
        about = {names[key]: item for key, item in self.about.items() if key in names}
        titles = list(dict.fromkeys(self.titles))
        for title in titles[:-1]:
            self.notes.passed_over("beginning", f"title {title!r}", "a later one took its place")
        return {**about, "title": titles[-1] if titles else None}

    def _said(self, entries: list[_Entry]) -> list[_Entry]:
        """Of the main thread, what is on the way to its last line or belongs to it."""
        way = self.tree.way_to(entries[-1].uuid if entries else None)
        on_way = [entry for entry in entries if entry.uuid in way]
        answers = {id(entry.answer) for entry in on_way if entry.answer}
        calls = {call for entry in on_way if entry.answer for call in entry.answer.calls}
        said: list[_Entry] = []
        left: list[_Entry] = []
        for entry in entries:
            belongs = (
                entry.uuid in way
                or (entry.answer is not None and id(entry.answer) in answers)
                or (bool(entry.results) and entry.results <= calls)
            )
            (said if belongs else left).append(entry)
        if left:
            detail = f"{len(left)} lines are on branches that were left; what was said is kept"
            self.notes.lost(f"line {left[0].line}", "transcript.branch", detail)
        return said


_QUEUED: Final = "queued_command"


def _in_order(entries: list[_Entry], notes: Notes) -> Iterator[Message]:
    told: set[int] = set()
    for entry in entries:
        yield from entry.messages
        if entry.answer is not None and id(entry.answer) not in told:
            told.add(id(entry.answer))
            try:
                yield entry.answer.message()
            except ValidationError as error:
                notes.lost(f"line {entry.line}", "transcript.damaged", str(error))


def _adds(result: object, output: str) -> bool:
    """Tell whether a tool's own record says more than what the model was given."""
    if isinstance(result, str):
        return result.removeprefix("Error: ") != output
    return is_object(result) or bool(result)


def _model(message: Message) -> str | None:
    model = getattr(message.info, "model", None)
    return None if model is None else str(model.model_id)
