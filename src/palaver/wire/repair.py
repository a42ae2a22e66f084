"""Repair of a history: the messages that a provider would take as they are.

A repaired history is what the provider is sent, read back. That is valid and says the same, but it
has new ids and times, and nothing that a request has no place for. So wherever one or several
messages of the old history say exactly the same, they are used themselves. `pair_results` and
`begin_with_user` repair a list of another framework's messages, which palaver does not send itself.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from palaver import wire
from palaver.messages import (
    FilePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    UnknownPart,
)
from palaver.wire.format import part_as_text
from palaver.wire.request import BEGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from palaver.history.view import View
    from palaver.messages import Message, ModelRef, Part
    from palaver.wire import Request

__all__ = ["begin_with_user", "pair_results", "repair"]

_T = TypeVar("_T")
_Atoms: TypeAlias = tuple[tuple[object, ...], ...]
_BETWEEN: Final = 8
"""How many messages may be skipped between two that became one."""


def repair(
    messages: Sequence[Message], request: Request, model: ModelRef | None = None
) -> list[Message]:
    """Return the history that a request was made of, as the request has it.

    `model` is the one that the request is for: it gets its reasoning back.

    >>> from palaver.messages import user
    >>> history = [user("Tea?"), user("")]
    >>> [message.text for message in repair(history, wire.to("anthropic", history))]
    ['Tea?']
    """
    body = request.body if model is None else {**request.body, "model": model.model_id}
    provider = wire.FORMATS[request.format].provider
    old = _OldMessages(messages, provider)
    found: list[Message] = []
    for message in wire.from_(request.format, body).messages:
        found += old.take(message.role, _atoms(message, provider)) or [message]
    return found


def pair_results(
    entries: Sequence[_T],
    *,
    calls: Callable[[_T], Collection[str]],
    answers: Callable[[_T], str | None],
    missing: Callable[[_T, str], _T | None],
    keep_open: bool = False,
) -> list[_T]:
    """Return entries of any kind so that the result of every call follows it at once.

    `calls` returns the ids of an entry's calls, which may be alike, `answers` the id of the call
    that an entry is the result of, and `missing` makes a result for a call that has none, or
    returns None where it needs none. Results stay in their order; a result without a call is left
    out. With `keep_open`, calls of the last entry may wait for their results.

    >>> names = {"ask": ["c1"], "c1!": [], "bye": []}
    >>> pair_results(
    ...     ["ask", "bye"],
    ...     calls=names.__getitem__,
    ...     answers=lambda entry: entry[:-1] if entry.endswith("!") else None,
    ...     missing=lambda _entry, call: f"{call}!",
    ... )
    ['ask', 'c1!', 'bye']
    """
    paired: list[_T] = []  # backwards, so that a result is known when its call comes
    results: dict[str, list[int]] = {}
    last = True
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        answered = answers(entry)
        if answered is not None:
            results.setdefault(answered, []).append(index)
            continue
        wanted = calls(entry)
        by_call = {call: results.pop(call, []) for call in dict.fromkeys(wanted)}
        found: list[int] = []
        made: list[_T | None] = []
        for call in wanted:
            if by_call[call]:
                found.append(by_call[call].pop())  # the first that is left
            elif not (last and keep_open):
                made.append(missing(entry, call))
        paired += (each for each in reversed(made) if each is not None)
        paired += (entries[which] for which in sorted(found, reverse=True))
        paired.append(entry)
        last = False
    paired.reverse()
    return paired


def begin_with_user(
    entries: list[_T], view: View, *, role: Callable[[_T], str], made: Callable[[str], _T]
) -> list[_T]:
    """Return entries, with a short message of the user before an answer that has become the first.

    Several providers refuse a request that begins with an answer. Where the conversation itself
    began with one, as with a greeting, nothing is added. `role` returns the role of an entry, and
    `made` makes one of the user's of a text.

    >>> from palaver.history import History
    >>> from palaver.messages import assistant, user
    >>> history = History([user("Tea?"), assistant("Yes.")])
    >>> _ = history.truncate(keep_last=1)
    >>> begin_with_user(["Yes."], history.view, role=lambda _: "assistant", made=str)
    ['(the conversation begins here)', 'Yes.']
    """
    first = next((at for at, each in enumerate(entries) if role(each) != "system"), None)
    if first is None or role(entries[first]) != "assistant":
        return entries
    asked, answered = (view.log.select(each, 0, 1) for each in ("user", "assistant"))
    if not asked or not answered or asked[0] > answered[0]:
        return entries
    return [*entries[:first], made(BEGIN), *entries[first:]]


class _OldMessages:
    """The old messages, each to be used once, by what they say."""

    def __init__(self, messages: Sequence[Message], provider: str) -> None:
        self._messages = messages
        self._atoms = [_atoms(message, provider) for message in messages]
        self._used: set[int] = set()
        self._starts: dict[tuple[str, object], deque[int]] = {}
        for index, atoms in enumerate(self._atoms):
            if atoms:
                self._starts.setdefault((messages[index].role, atoms[0]), deque()).append(index)

    def take(self, role: str, atoms: _Atoms) -> list[Message]:
        """Take the messages of a role that say this, one after the other; none where none do."""
        starts = self._starts.get((role, atoms[0])) if atoms else None
        while starts and starts[0] in self._used:
            starts.popleft()
        for start in starts or ():
            taken = self._run(start, role, atoms)
            if taken:
                self._used.update(taken)
                return [self._messages[index] for index in taken]
        return []

    def _run(self, start: int, role: str, atoms: _Atoms) -> list[int]:
        """Return the messages from here on that say this together, with few others between."""
        taken: list[int] = []
        skipped = 0
        for index in range(start, len(self._messages)):
            mine = self._atoms[index]
            free = mine and index not in self._used and self._messages[index].role == role
            fits = free and atoms[: len(mine)] == mine
            if fits:
                taken.append(index)
                atoms = atoms[len(mine) :]
            skipped += not fits
            if not atoms:
                return taken
            if skipped > _BETWEEN:
                break
        return []


def _atoms(message: Message, provider: str) -> _Atoms:
    """Return what a message says to this provider, piece by piece."""
    if isinstance(message.content, str):
        return (("text", message.content, None),)
    role = message.role
    return tuple(
        atom for part in message.sendable_parts for atom in _part_atoms(part, role, provider)
    )


def _part_atoms(part: Part, role: str, provider: str) -> Iterator[tuple[object, ...]]:
    if role == "tool" and not isinstance(part, ToolPart):
        yield "beside a result", part.id  # nothing may be there: such a message is not used
    elif isinstance(part, TextPart):
        # an empty message may be sent where an empty part may not
        yield "text", part.text or part.id, _signed(part, provider)
    elif isinstance(part, ReasoningPart):
        yield "reasoning", part.text, _signed(part, provider)
    elif isinstance(part, ToolCallPart):
        yield "call", part.call_id, part.tool, part.raw, _signed(part, provider)
    elif isinstance(part, ToolPart):
        yield "result", part.call_id, *_result(part)
    elif isinstance(part, FilePart):
        yield "file", part.mime, part.url
    elif isinstance(part, UnknownPart) and "block" in part.raw:
        yield "block", part.type, str(part.raw["block"])
    elif (text := part_as_text(part, role)) is not None:
        yield "text", text, None


def _signed(part: TextPart | ReasoningPart | ToolCallPart, provider: str) -> str | None:
    """Return what the provider gave with a part and wants back."""
    stored = part.metadata.get(provider)
    return None if stored is None else str(stored)


def _result(part: ToolPart) -> tuple[object, ...]:
    state = part.state
    if isinstance(state, ToolCompleted):
        return (state.output, *(file.url for file in state.attachments or ()))
    return (state.error,) if isinstance(state, ToolError) else ()
