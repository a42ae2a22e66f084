"""Repair of a history: the messages that a provider would take as they are.

A repaired history is what the provider is sent, read back. That is valid and says the same, but it
has new ids and times, and nothing that a request has no place for. So wherever one or several
messages of the old history say exactly the same, they are used themselves.

`portable`, `pair_results` and `begin_with_user` are for messages that palaver does not send itself:
those that a framework is given. Which provider it will ask is not known, so they are made such that
every provider takes them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

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
    text_part,
)
from palaver.messages.tool_state import raw_output, stand_in
from palaver.wire.format import Alphabet, Inline, is_text, media_of, part_as_text, text_of
from palaver.wire.request import BEGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from palaver.history.view import View
    from palaver.messages import Message, ModelRef, Part
    from palaver.wire import Request

__all__ = [
    "CALL_IDS",
    "CallIds",
    "begin_with_user",
    "has_own_greeting",
    "is_portable",
    "mention",
    "pair_results",
    "portable",
    "repair",
    "with_call_ids",
]

_T = TypeVar("_T")
_Atoms: TypeAlias = tuple[tuple[object, ...], ...]
_BETWEEN: Final = 8
"""How many messages may be skipped between two that became one."""
_TOOLS: Final = Alphabet("[a-zA-Z0-9_-]", 64, "[a-zA-Z_]")
"""The names of tools that every provider takes."""
CALL_IDS: Final = Alphabet("[a-zA-Z0-9_-]", 40)
"""The ids of calls that every provider takes."""
_SENT: Final = ("image", "audio", "video", "text")
_NOT_SENT: Final = frozenset(("image/svg+xml",))
_DOCUMENTS: Final = ("application/pdf", "application/msword", "application/rtf", "application/vnd.")
"""The files that some provider takes, by the first part of their type or by how it begins."""


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


def portable(message: Message, *, images: bool = False) -> Message | None:
    """Return a message as the clients of every provider take it; None where nothing of it is left.

    A framework is given so what it did not write. Reasoning goes only to the model that made it and
    is left out, and so are blank texts, which Anthropic refuses. A file in an answer, which only
    Gemini takes, is a text that mentions it, unless it is an image and `images` says that the
    framework leaves it out by itself where it must. A user's text file is its text, any other file
    that nobody takes is mentioned, and tools have names that everybody takes.

    >>> from palaver.messages import assistant, user
    >>> portable(assistant("  ")) is None, portable(user("Tea?")).text
    (True, 'Tea?')
    """
    if isinstance(message.content, str):
        return message if message.content.strip() else None
    write = _portable_result if message.role == "tool" else _portable_part
    given = message.parts if message.role == "tool" else message.sendable_parts
    keeps = images or message.role != "assistant"
    kept = tuple(each for part in given if (each := write(part, message, keeps=keeps)) is not None)
    if kept == message.parts:
        return message
    return replace(message, content=kept) if kept else None


def is_portable(message: Message) -> bool:
    """Tell whether every provider's clients take a message as it is."""
    named = (part for part in message.parts if isinstance(part, ToolCallPart | ToolPart))
    return portable(message) is message and all(CALL_IDS.fits(part.call_id) for part in named)


def _portable_part(part: Part, message: Message, *, keeps: bool) -> Part | None:
    if isinstance(part, ReasoningPart):
        return None
    if isinstance(part, TextPart):
        return part if part.text.strip() else None
    if isinstance(part, ToolCallPart):
        return part if _TOOLS.fits(part.tool) else replace(part, tool=_TOOLS.spell(part.tool))
    if not isinstance(part, FilePart):
        return part
    if message.role == "assistant":
        is_kept = keeps and part.mime.startswith("image/") and isinstance(media_of(part), Inline)
        said = None if is_kept else mention(part)
    else:
        said = _file_as_text(part)
    return part if said is None else text_part(part.session_id, part.message_id, said)


def _file_as_text(part: FilePart) -> str | None:
    """Return what is said in the place of a file; None where it can be sent."""
    media = media_of(part)
    text = text_of(media) if isinstance(media, Inline) and is_text(media.mime) else None
    if text is not None and text.strip():
        return f"[the file {part.filename or 'of type ' + part.mime}]\n{text}"
    is_known = part.mime.partition("/")[0] in _SENT or part.mime.startswith(_DOCUMENTS)
    if media is None or text is not None or part.mime in _NOT_SENT or not is_known:
        return mention(part)
    return None


class CallIds:
    """The ids of the calls of one request, such that a provider takes them: each fits, and once.

    A result is that of the newest answer with a call of its id; of several calls there, of the
    first that has none.

    >>> ids = CallIds(CALL_IDS)
    >>> ids.of_call("c1", "first answer"), ids.of_result("c1")
    ('c1', 'c1')
    >>> ids.of_call("c1", "second answer") == ids.of_result("c1") != "c1"
    True
    """

    def __init__(self, allowed: Alphabet) -> None:
        """Begin with no call."""
        self._allowed = allowed
        self._given: set[str] = set()
        self._calls: dict[str, _Calls] = {}

    def of_call(self, name: str, answer: object, *, own: bool = False) -> str:
        """Return the id that is sent for a call of an answer; an own call's is sent as it is."""
        spelled, number = name if own else self._allowed.spell(name), 1
        while spelled in self._given and not own:
            number += 1
            spelled = self._allowed.spell(f"{name}\n{number}")
        self._given.add(spelled)
        if name not in self._calls or self._calls[name].answer != answer:
            self._calls[name] = _Calls(answer, deque())
        self._calls[name].waiting.append(spelled)
        return spelled

    def of_result(self, name: str) -> str:
        """Return the id that is sent for a result."""
        calls = self._calls.get(name)
        if calls is None:
            return name
        return calls.waiting.popleft() if len(calls.waiting) > 1 else calls.waiting[0]


class _Calls(NamedTuple):
    """The calls of one id in an answer; the last one stays, for results that come again."""

    answer: object
    waiting: deque[str]


def with_call_ids(messages: Iterable[Message], key: str) -> Iterator[Message]:
    """Yield messages with ids of calls that every provider takes, and each id once.

    A framework's own calls, whose messages have the key in their metadata, keep theirs.
    """
    ids = CallIds(CALL_IDS)
    for message in messages:
        if isinstance(message.content, str) or message.role not in ("assistant", "tool"):
            yield message
            continue
        own = key in message.metadata
        parts = tuple(_with_call_id(part, ids, message, own=own) for part in message.parts)
        same = all(part is was for part, was in zip(parts, message.parts, strict=True))
        yield message if same else replace(message, content=parts)


def _with_call_id(part: Part, ids: CallIds, message: Message, *, own: bool) -> Part:
    if isinstance(part, ToolCallPart):
        name = ids.of_call(part.call_id, message.id, own=own)
    elif isinstance(part, ToolPart):
        name = ids.of_result(part.call_id)
    else:
        return part
    return part if name == part.call_id else replace(part, call_id=name)


def mention(part: FilePart) -> str:
    """Return the text that stands in the place of a file that can't be sent."""
    named = f" {part.filename!r}" if part.filename else ""
    where = "is not included" if part.url.startswith("data:") else f"is at {part.url}"
    return f"[a file{named} of type {part.mime} {where}]"


def _portable_result(part: Part, message: Message, *, keeps: bool) -> Part | None:
    if not isinstance(part, ToolPart):
        return _portable_part(part, message, keeps=keeps)
    tool, state = _TOOLS.spell(part.tool), part.state
    if isinstance(state, ToolCompleted):
        state = _portable_state(state)
    same = tool == part.tool and state is part.state
    return part if same else replace(part, tool=tool, state=state)


def _portable_state(state: ToolCompleted) -> ToolCompleted:
    """Return a state whose output says something, without files that nobody takes."""
    files, output = state.attachments or (), raw_output(state)
    said = {file.id: text for file in files if (text := _file_as_text(file)) is not None}
    if output.strip() and not said:
        return state
    sent = tuple(file for file in files if file.id not in said)
    texts = [output] if output.strip() else [] if said else [stand_in(file.mime for file in sent)]
    metadata = {name: value for name, value in state.metadata.items() if name != "rawOutput"}
    output = "\n".join([*texts, *said.values()])
    return replace(state, output=output, metadata=metadata, attachments=sent or UNSET)


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
    entries: list[_T], *, role: Callable[[_T], str], made: Callable[[str], _T]
) -> list[_T]:
    """Return entries, with a short message of the user before an answer that comes first.

    Anthropic, Bedrock and Gemini refuse a request that begins with an answer, such as a greeting.
    `role` returns the role of an entry, and `made` makes one of the user's of a text.

    >>> begin_with_user(["Hello!"], role=lambda _: "assistant", made=str)
    ['(the conversation begins here)', 'Hello!']
    """
    first = next((at for at, each in enumerate(entries) if role(each) != "system"), None)
    if first is None or role(entries[first]) != "assistant":
        return entries
    return [*entries[:first], made(BEGIN), *entries[first:]]


def has_own_greeting(view: View, key: str) -> bool:
    """Tell whether a framework itself began the conversation with an answer, which is still first.

    It gets that back as it was. `key` is what the metadata of its own messages has.
    """
    first = next((message for message in view if message.role != "system"), None)
    if first is None or first.role != "assistant" or key not in first.metadata:
        return False
    asked, answered = (view.log.select(role, 0, 1) for role in ("user", "assistant"))
    return not asked or answered[0] < asked[0]


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
