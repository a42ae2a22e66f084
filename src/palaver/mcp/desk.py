"""Questions to a store and their answers, in sizes that a model can take.

Everything is synchronous, like the store; what is refused is one of palaver's own errors.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from palaver.errors import UnknownConversation, ValidationError
from palaver.mcp.answers import (
    Change,
    Conversation,
    Conversations,
    Diff,
    Found,
    Hit,
    Page,
    Said,
    Standing,
    Text,
    Versions,
)
from palaver.messages import ReasoningPart, TextPart, ToolCallPart, ToolPart, to_dict
from palaver.messages.toolstate import ToolCompleted, ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from palaver.history.view import View
    from palaver.messages import Message
    from palaver.messages.parts import Part
    from palaver.stores import Store
    from palaver.stores.history import StoredHistory

__all__ = ["BUDGET", "Desk", "spoken"]

BUDGET: Final = 100_000
"""Characters of messages in one answer."""
_SNIPPET: Final = 500
_MANY: Final = 5


class Desk:
    """What can be asked of a store, and done in it.

    >>> import palaver
    >>> store = palaver.open(":memory:")
    >>> _ = store.create([palaver.user("Where is the tea?")], id="kitchen")
    >>> Desk(store).read("kit").messages[0].text
    'Where is the tea?'
    """

    def __init__(self, store: Store) -> None:
        """Take a store."""
        self._store = store

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def search(self, words: str, *, conversation: str | None = None, limit: int = 10) -> Found:
        """The messages with all these words, best first."""
        name = None if conversation is None else self._history(conversation).id
        hits: list[Hit] = []
        views: dict[str, View] = {}
        for hit in self._store.search(words, conversation=name, limit=limit):
            if hit.conversation not in views:
                views[hit.conversation] = self._store.get(hit.conversation).view
            index = views[hit.conversation].index_of(hit.position)
            message, snippet = hit.message, hit.snippet[:_SNIPPET]
            at = _time(message.timestamp)
            hits.append(Hit(hit.conversation, index, message.id, message.role, at, snippet))
        return Found(tuple(hits))

    def conversations(
        self, *, tag: str | None = None, after: str | None = None, limit: int = 20
    ) -> Conversations:
        """Conversations, the latest changed first."""
        page = self._store.list(tag=tag, after=after, limit=limit)
        found = (
            Conversation(
                head.id, head.title, head.tags, head.size, head.version,
                _time(head.updated), head.parent,
            )
            for head in page.conversations
        )  # fmt: skip
        return Conversations(tuple(found), page.next)

    def read(
        self,
        conversation: str,
        *,
        start: int | None = None,
        limit: int = 20,
        version: int | None = None,
        characters: int = 2_000,
    ) -> Page:
        """Messages from an index on, or the last ones; as they are, or were at a version."""
        history = self._history(conversation)
        view = history.view if version is None else history.at(version)
        total = len(view)
        begin = max(total - limit, 0) if start is None else min(start, total)
        marks = _marks(view)
        told = enumerate(view[begin : begin + limit], begin)
        messages = tuple(_within_budget(_said(i, m, marks, characters) for i, m in told))
        end = begin + len(messages)
        following = end if end < total else None
        return Page(history.id, history.title, view.version, total, begin, messages, following)

    def text(
        self, conversation: str, message: str, *, start: int = 0, characters: int = 20_000
    ) -> Text:
        """A stretch of what one message says, given by its index or its id."""
        history = self._history(conversation)
        found = history.log[history.view.find(_which(message))]
        whole = spoken(found)
        end = start + characters
        following = end if end < len(whole) else None
        return Text(history.id, found.id, found.role, start, whole[start:end], following)

    def versions(
        self, conversation: str, *, before: int | None = None, limit: int = 20
    ) -> Versions:
        """The changes of a conversation before a version, the newest first."""
        history = self._history(conversation)
        end = history.version + 1 if before is None else min(before, history.version + 1)
        start = max(end - limit, 0)
        told = self._store.keeper.journal(history.id, start - 1, end - start) if end > start else []
        changes = (Change(c.version, c.kind, _time(c.at), c.count) for c in reversed(told))
        following = start if start > 0 else None
        return Versions(history.id, history.version, tuple(changes), following)

    def diff(
        self,
        conversation: str,
        *,
        before: int | None = None,
        after: int | None = None,
        characters: int = 2_000,
    ) -> Diff:
        """What differs between two versions: by default, what the last change did."""
        history = self._history(conversation)
        end = history.version if after is None else after
        start = max(end - 1, 0) if before is None else before
        found = history.diff(start, end)
        gone = [_said(entry.index, entry.message, {}, characters) for entry in found.removed]
        come = [_said(entry.index, entry.message, {}, characters) for entry in found.added]
        shown = list(_within_budget([*gone, *come]))
        removed, added = tuple(shown[: len(gone)]), tuple(shown[len(gone) :])
        left_out = len(gone) + len(come) - len(shown)
        return Diff(history.id, start, end, removed, added, left_out)

    # ── writing ──────────────────────────────────────────────────────────────────────────────────

    def mark(self, conversation: str, message: str, name: str, *, remove: bool = False) -> Standing:
        """Put a mark on a message, or take it off."""
        history = self._history(conversation)
        change = history.unmark if remove else history.mark
        change(_which(message), name)
        return _standing(history)

    def fork(
        self, conversation: str, *, version: int | None = None, name: str | None = None
    ) -> Standing:
        """Begin a conversation that goes its own way from here, or from a version."""
        return _standing(self._history(conversation).fork(at=version, id=name))

    def undo(self, conversation: str, *, expected: int | None = None) -> Standing:
        """Reverse the last change."""
        history = self._expected(conversation, expected)
        history.undo()
        return _standing(history)

    def redo(self, conversation: str, *, expected: int | None = None) -> Standing:
        """Bring back what was undone."""
        history = self._expected(conversation, expected)
        history.redo()
        return _standing(history)

    def roll_back(
        self, conversation: str, version: int, *, expected: int | None = None
    ) -> Standing:
        """Make a conversation what it was at a version; that is a new version."""
        history = self._expected(conversation, expected)
        history.restore(version)
        return _standing(history)

    # ── which conversation ───────────────────────────────────────────────────────────────────────

    def _history(self, text: str) -> StoredHistory:
        """The conversation of an id, or of the beginning of one."""
        if text in self._store:
            return self._store.get(text)
        fitting = self._store.named(text, limit=_MANY + 1) if text else []
        if len(fitting) == 1:
            return self._store.get(fitting[0])
        if not fitting:
            msg = f"no conversation has an id that begins with {text!r}"
            raise UnknownConversation(msg)
        shown = ", ".join(fitting[:_MANY]) + (" and more" if len(fitting) > _MANY else "")
        detail = f"{text!r} is the beginning of several ids: {shown}"
        raise ValidationError(detail, path="$.conversation")

    def _expected(self, conversation: str, version: int | None) -> StoredHistory:
        """The conversation, unless it has gone on since its caller looked."""
        history = self._history(conversation)
        if version is not None and version != history.version:
            detail = f"is {version}, but the conversation is at version {history.version} by now"
            raise ValidationError(detail, path="$.expected_version")
        return history


def spoken(message: Message) -> str:
    """What a message says, thoughts, calls and outputs included.

    >>> import palaver
    >>> spoken(palaver.user("Tea?"))
    'Tea?'
    """
    if isinstance(message.content, str):
        return message.content
    return "\n".join(filter(None, map(_spoken, message.content)))


def _spoken(part: Part) -> str:
    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, ReasoningPart):
        return f"[thought] {part.text}"
    if isinstance(part, ToolCallPart):
        return f"[calls {part.tool}] {json.dumps(to_dict(part.input), ensure_ascii=False)}"
    if isinstance(part, ToolPart):
        state = part.state
        if isinstance(state, ToolCompleted):
            return f"[{part.tool} gave] {state.output}"
        return f"[{part.tool} failed] {state.error}" if isinstance(state, ToolError) else ""
    return f"[{part.type}]"


def _said(index: int, message: Message, marks: Mapping[str, list[str]], characters: int) -> Said:
    whole = spoken(message)
    text, more = whole[:characters], max(len(whole) - characters, 0)
    own = tuple(marks.get(message.id, ()))
    return Said(index, message.id, message.role, _time(message.timestamp), text, more, own)


def _within_budget(messages: Iterable[Said]) -> Iterator[Said]:
    """As many as fit into one answer; one at least."""
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


def _which(text: str) -> int | str:
    """A message as a model names it: a number is its index, anything else its id."""
    return int(text) if text.isdecimal() else text


def _time(at: int) -> str:
    try:
        return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{at} ms"


def _standing(history: StoredHistory) -> Standing:
    return Standing(history.id, history.version, len(history), history.batch_index)
