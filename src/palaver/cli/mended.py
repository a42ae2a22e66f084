"""A repaired history: what a provider was sent, read back, in the messages that said it before.

What was read back says the same and is sound, but it has new ids and times and nothing that a
request has no place for. So wherever one or several messages of the old history say the very same,
they stand there themselves.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

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
from palaver.wire.pen import in_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from palaver.messages import Message, ModelRef, Part
    from palaver.wire import Request

__all__ = ["mended"]

_Atoms: TypeAlias = tuple[tuple[object, ...], ...]
_BETWEEN: Final = 8
"""Messages that were left out between two which became one."""


def mended(
    messages: Sequence[Message], request: Request, model: ModelRef | None = None
) -> list[Message]:
    """The history that a request was made of, as the request has it; `model` is who reads it."""
    body = request.body if model is None else {**request.body, "model": model.model_id}
    provider = wire.FORMATS[request.format].provider
    old = _Old(messages, provider)
    found: list[Message] = []
    for message in wire.from_(request.format, body).messages:
        found += old.saying(message.role, _atoms(message, provider)) or [message]
    return found


class _Old:
    """The old messages, each to be used once."""

    def __init__(self, messages: Sequence[Message], provider: str) -> None:
        self._messages = messages
        self._atoms = [_atoms(message, provider) for message in messages]
        self._used: set[int] = set()
        self._starts: dict[tuple[str, object], deque[int]] = {}
        for index, atoms in enumerate(self._atoms):
            if atoms:
                self._starts.setdefault((messages[index].role, atoms[0]), deque()).append(index)

    def saying(self, role: str, atoms: _Atoms) -> list[Message]:
        """The messages of a role that say this, one after the other; none where none do."""
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
        """The messages from here on that say this together; few others may stand between them."""
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
    """What a message says to this provider, piece by piece."""
    if isinstance(message.content, str):
        return (("text", message.content, None),)
    role = message.role
    return tuple(atom for part in message.content for atom in _of_part(part, role, provider))


def _of_part(part: Part, role: str, provider: str) -> Iterator[tuple[object, ...]]:
    if role == "tool" and not isinstance(part, ToolPart):
        yield "beside a result", part.id  # where nothing may stand: such a message is not used
    elif isinstance(part, TextPart):
        if not part.ignored:
            # an empty message may be sent where an empty part may not
            yield "text", part.text or part.id, _sealed(part, provider)
    elif isinstance(part, ReasoningPart):
        yield "reasoning", part.text, _sealed(part, provider)
    elif isinstance(part, ToolCallPart):
        yield "call", part.call_id, part.tool, part.raw, _sealed(part, provider)
    elif isinstance(part, ToolPart):
        yield "result", part.call_id, *_outcome(part)
    elif isinstance(part, FilePart):
        yield "file", part.mime, part.url
    elif isinstance(part, UnknownPart) and "block" in part.raw:
        yield "block", part.type, str(part.raw["block"])
    elif (words := in_words(part, role)) is not None:
        yield "text", words, None


def _sealed(part: TextPart | ReasoningPart | ToolCallPart, provider: str) -> str | None:
    """What the provider gave with it and wants back."""
    kept = part.metadata.get(provider)
    return None if kept is None else str(kept)


def _outcome(part: ToolPart) -> tuple[object, ...]:
    state = part.state
    if isinstance(state, ToolCompleted):
        return (state.output, *(file.url for file in state.attachments or ()))
    return (state.error,) if isinstance(state, ToolError) else ()
