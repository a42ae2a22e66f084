"""The operations of the MCP server on a store, with outputs of a size that a model can take.

Everything is synchronous, like the store, and knows nothing of MCP. A refusal is a `PalaverError`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from palaver.errors import UnknownConversation, ValidationError
from palaver.messages import ReasoningPart, TextPart, ToolCallPart, ToolPart, to_dict
from palaver.messages.tool_state import ToolCompleted, ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from palaver.history.view import View
    from palaver.messages import Message
    from palaver.messages.parts import Part
    from palaver.stores import Store, StoredHistory

__all__ = [
    "BUDGET",
    "ChangeOutput",
    "ConversationOutput",
    "ConversationService",
    "DiffOutput",
    "HitOutput",
    "ListOutput",
    "MessageOutput",
    "ReadMessageOutput",
    "ReadOutput",
    "SearchOutput",
    "VersionsOutput",
    "WriteOutput",
    "message_text",
]


BUDGET: Final = 100_000
"""The limit of characters of messages in one output."""
_SNIPPET: Final = 500
_MAX_CANDIDATES: Final = 5


class ConversationService:
    """Searches, reads and changes the conversations of a store.

    >>> import palaver
    >>> store = palaver.open(":memory:")
    >>> _ = store.create([palaver.user("Where is the tea?")], id="kitchen")
    >>> ConversationService(store).read("kit").messages[0].text
    'Where is the tea?'
    """

    def __init__(self, store: Store) -> None:
        """Take a store."""
        self._store = store

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def search(
        self, words: str, *, conversation: str | None = None, limit: int = 10
    ) -> SearchOutput:
        """Find the messages with all these words, best first."""
        name = None if conversation is None else self._history(conversation).id
        hits: list[HitOutput] = []
        for hit in self._store.search(words, conversation=name, limit=limit):
            message, snippet = hit.message, hit.snippet[:_SNIPPET]
            if message.sendable_parts != message.parts:  # the words may be what no model may see
                snippet = message_text(message)[:_SNIPPET]
                if not snippet:
                    continue
            name, at = hit.conversation, _time(message.timestamp)
            hits.append(HitOutput(name, hit.index, message.id, message.role, at, snippet))
        return SearchOutput(tuple(hits))

    def conversations(
        self, *, tag: str | None = None, after: str | None = None, limit: int = 20
    ) -> ListOutput:
        """List conversations, the last changed first."""
        page = self._store.list(tag=tag, after=after, limit=limit)
        found = (
            ConversationOutput(
                head.id, head.title, head.tags, head.size, head.version,
                _time(head.updated), head.parent,
            )
            for head in page.conversations
        )  # fmt: skip
        return ListOutput(tuple(found), page.next)

    def read(
        self,
        conversation: str,
        *,
        start: int | None = None,
        limit: int = 20,
        version: int | None = None,
        characters: int = 2_000,
    ) -> ReadOutput:
        """Read messages from an index on, or the last ones, now or as of a version."""
        history = self._history(conversation)
        view = history.view if version is None else history.at(version)
        total = len(view)
        begin = max(total - limit, 0) if start is None else min(start, total)
        marks = _marks(view)
        page = enumerate(view[begin : begin + limit], begin)
        messages = tuple(_within_budget(_message_output(i, m, marks, characters) for i, m in page))
        end = begin + len(messages)
        following = end if end < total else None
        return ReadOutput(
            history.id, history.title, view.version, total, begin, messages, following
        )

    def text(
        self, conversation: str, message: str, *, start: int = 0, characters: int = 20_000
    ) -> ReadMessageOutput:
        """Read a part of the text of one message, given by its index or its id."""
        history = self._history(conversation)
        found = history.log[history.view.find(_parse_message_id(message))]
        text = message_text(found)
        end = start + characters
        following = end if end < len(text) else None
        return ReadMessageOutput(
            history.id, found.id, found.role, start, text[start:end], following
        )

    def versions(
        self, conversation: str, *, before: int | None = None, limit: int = 20
    ) -> VersionsOutput:
        """List the changes of a conversation before a version, the newest first."""
        history = self._history(conversation)
        end = history.version + 1 if before is None else min(before, history.version + 1)
        start = max(end - limit, 0)
        entries = self._store.journal(history.id, start - 1, end - start) if end > start else []
        changes = (ChangeOutput(c.version, c.kind, _time(c.at), c.count) for c in reversed(entries))
        following = start if start > 0 else None
        return VersionsOutput(history.id, history.version, tuple(changes), following)

    def diff(
        self,
        conversation: str,
        *,
        before: int | None = None,
        after: int | None = None,
        characters: int = 2_000,
    ) -> DiffOutput:
        """Compare two versions: by default, the last change."""
        history = self._history(conversation)
        end = history.version if after is None else after
        start = max(end - 1, 0) if before is None else before
        found = history.diff(start, end)
        gone = [
            _message_output(entry.index, entry.message, {}, characters) for entry in found.removed
        ]
        come = [
            _message_output(entry.index, entry.message, {}, characters) for entry in found.added
        ]
        shown = list(_within_budget([*gone, *come]))
        removed, added = tuple(shown[: len(gone)]), tuple(shown[len(gone) :])
        left_out = len(gone) + len(come) - len(shown)
        return DiffOutput(history.id, start, end, removed, added, left_out)

    # ── writing ──────────────────────────────────────────────────────────────────────────────────

    def mark(
        self, conversation: str, message: str, name: str, *, remove: bool = False
    ) -> WriteOutput:
        """Mark a message, or remove its mark."""
        history = self._history(conversation)
        change = history.unmark if remove else history.mark
        change(_parse_message_id(message), name)
        return _write_output(history)

    def fork(
        self, conversation: str, *, version: int | None = None, name: str | None = None
    ) -> WriteOutput:
        """Fork a conversation, at its current version or an earlier one."""
        return _write_output(self._history(conversation).fork(at=version, id=name))

    def undo(self, conversation: str, *, expected: int | None = None) -> WriteOutput:
        """Reverse the last change."""
        history = self._expected(conversation, expected)
        history.undo()
        return _write_output(history)

    def redo(self, conversation: str, *, expected: int | None = None) -> WriteOutput:
        """Redo what was undone."""
        history = self._expected(conversation, expected)
        history.redo()
        return _write_output(history)

    def roll_back(
        self, conversation: str, version: int, *, expected: int | None = None
    ) -> WriteOutput:
        """Restore a conversation to a version; that makes a new version."""
        history = self._expected(conversation, expected)
        history.restore(version)
        return _write_output(history)

    # ── which conversation ───────────────────────────────────────────────────────────────────────

    def _history(self, text: str) -> StoredHistory:
        """Return a conversation by its id or the beginning of it."""
        if text in self._store:
            return self._store.get(text)
        fitting = self._store.named(text, limit=_MAX_CANDIDATES + 1) if text else []
        if len(fitting) == 1:
            return self._store.get(fitting[0])
        if not fitting:
            msg = f"no conversation has an id that begins with {text!r}"
            raise UnknownConversation(msg)
        shown = ", ".join(fitting[:_MAX_CANDIDATES]) + (
            " and more" if len(fitting) > _MAX_CANDIDATES else ""
        )
        detail = f"{text!r} is the beginning of several ids: {shown}"
        raise ValidationError(detail, path="$.conversation")

    def _expected(self, conversation: str, version: int | None) -> StoredHistory:
        """Return a conversation; refuse if it is no longer at the version that is expected."""
        history = self._history(conversation)
        if version is not None and version != history.version:
            detail = f"is {version}, but the conversation is at version {history.version} by now"
            raise ValidationError(detail, path="$.expected_version")
        return history


def message_text(message: Message) -> str:
    """Write what a model may see of a message as text, with its reasoning, calls and outputs.

    >>> import palaver
    >>> message_text(palaver.user("Tea?"))
    'Tea?'
    """
    if isinstance(message.content, str):
        return message.content
    return "\n".join(filter(None, map(_part_text, message.sendable_parts)))


def _part_text(part: Part) -> str:
    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, ReasoningPart):
        return f"[thought] {part.text}"
    if isinstance(part, ToolCallPart):
        return f"[calls {part.tool}] {json.dumps(to_dict(part.arguments), ensure_ascii=False)}"
    if isinstance(part, ToolPart):
        state = part.state
        if isinstance(state, ToolCompleted):
            return f"[{part.tool} gave] {state.output}"
        return f"[{part.tool} failed] {state.error}" if isinstance(state, ToolError) else ""
    return f"[{part.type}]"


def _message_output(
    index: int, message: Message, marks: Mapping[str, list[str]], characters: int
) -> MessageOutput:
    full = message_text(message)
    text, more = full[:characters], max(len(full) - characters, 0)
    own = tuple(marks.get(message.id, ()))
    return MessageOutput(index, message.id, message.role, _time(message.timestamp), text, more, own)


def _within_budget(messages: Iterable[MessageOutput]) -> Iterator[MessageOutput]:
    """Take as many messages as fit into one output, at least one."""
    spent = 0
    for message in messages:
        spent += len(message.text)
        if spent > BUDGET and spent > len(message.text):
            return
        yield message


def _marks(view: View) -> dict[str, list[str]]:
    marks: dict[str, list[str]] = {}
    for name, ids in view.marks.items():
        for message_id in ids:
            marks.setdefault(message_id, []).append(name)
    return marks


def _parse_message_id(text: str) -> int | str:
    """Parse how a model names a message: a number is an index, anything else an id."""
    return int(text) if text.isdecimal() else text


def _time(at: int) -> str:
    try:
        return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{at} ms"


def _write_output(history: StoredHistory) -> WriteOutput:
    return WriteOutput(history.id, history.version, len(history), history.batch_index)


@dataclass(frozen=True)
class MessageOutput:
    """A message; `more` counts the characters that `text` leaves out."""

    index: int
    id: str
    role: str
    at: str
    text: str
    more: int
    marks: tuple[str, ...]


@dataclass(frozen=True)
class ReadOutput:
    """Messages of a conversation from index `start`; `next` begins the next page, if any."""

    conversation: str
    title: str | None
    version: int
    total: int
    start: int
    messages: tuple[MessageOutput, ...]
    next: int | None


@dataclass(frozen=True)
class ReadMessageOutput:
    """A part of one message's text; `next` begins the next part, if any."""

    conversation: str
    id: str
    role: str
    start: int
    text: str
    next: int | None


@dataclass(frozen=True)
class HitOutput:
    """A message that was found; `index` is None if it has left the conversation."""

    conversation: str
    index: int | None
    id: str
    role: str
    at: str
    snippet: str


@dataclass(frozen=True)
class SearchOutput:
    """The messages that a search found, best first."""

    hits: tuple[HitOutput, ...]


@dataclass(frozen=True)
class ConversationOutput:
    """A conversation: its size and version; `parent` is the conversation it was forked from."""

    id: str
    title: str | None
    tags: tuple[str, ...]
    messages: int
    version: int
    updated: str
    parent: str | None


@dataclass(frozen=True)
class ListOutput:
    """Conversations, the last changed first; `next` is the cursor of the next page, if any."""

    conversations: tuple[ConversationOutput, ...]
    next: str | None


@dataclass(frozen=True)
class ChangeOutput:
    """One change of a conversation: the version it made, and how many messages it added."""

    version: int
    kind: str
    at: str
    added: int


@dataclass(frozen=True)
class VersionsOutput:
    """Changes, the newest first; `next` is the `before` of the next page, if there is one."""

    conversation: str
    version: int
    changes: tuple[ChangeOutput, ...]
    next: int | None


@dataclass(frozen=True)
class DiffOutput:
    """What differs between two versions; `left_out` counts the messages that are not shown."""

    conversation: str
    before: int
    after: int
    removed: tuple[MessageOutput, ...]
    added: tuple[MessageOutput, ...]
    left_out: int


@dataclass(frozen=True)
class WriteOutput:
    """A conversation after a change: its version, its number of messages and its batch."""

    conversation: str
    version: int
    messages: int
    batch: int
