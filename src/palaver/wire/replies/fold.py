"""What every provider's replies have in common: fed whole or in events, they become a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from palaver.errors import ValidationError
from palaver.messages.gate import is_object, kind_of
from palaver.messages.ids import NIL_ID
from palaver.messages.parts import CacheCounts, TokenCounts
from palaver.wire.folding import Answer
from palaver.wire.report import Note

if TYPE_CHECKING:
    from collections.abc import Mapping

    from palaver.messages.message import Message
    from palaver.messages.parts import ModelRef
    from palaver.wire.deltas import Delta

__all__ = ["Fold", "count", "counts"]


class Fold:
    """Folds one reply into a message.

    `feed` takes the events of a stream as JSON objects, one by one, and gives what each brought;
    `message` gives the answer so far. An event that is not understood is noted, once for its kind.
    """

    form: ClassVar[str]
    provider: ClassVar[str]

    def __init__(
        self,
        *,
        session: str = NIL_ID,
        model: ModelRef | None = None,
        names: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> None:
        """Fold for a session.

        `model` is the one that was asked: what an answer keeps for its model goes back to that
        name only, and a provider may answer under a longer one. `names` are the request's. `limit`
        is how many bytes of text, reasoning and arguments are kept.
        """
        self.answer = Answer(
            self.form, self.provider, session=session, model=model, names=names, limit=limit
        )
        self._notes: dict[str, Note] = {}
        self._usage: dict[str, Any] = {}

    @property
    def finished(self) -> bool:
        """Whether the provider said that the answer is over."""
        return self.answer.finished

    @property
    def notes(self) -> tuple[Note, ...]:
        """What was not kept."""
        return tuple(self._notes.values())

    def feed(self, event: object) -> list[Delta]:
        """Take the next event; give what it brought."""
        if is_object(event):
            self.take(event)
        else:
            self.lost("event", "shape", f"an event that is {kind_of(event)} is not understood")
        found, self.answer.deltas = self.answer.deltas, []
        return found

    def whole(self, body: object) -> Message:
        """The message of a reply that came whole."""
        if not is_object(body) or not self.take_whole(body):
            detail = f"is no reply of {self.form}"
            raise ValidationError(detail, path="$", rule="schema")
        return self.message()

    def message(self, *, interrupted: bool | None = None) -> Message:
        """The answer so far; `interrupted` unless the provider said that it is over."""
        return self.answer.message(interrupted=interrupted)

    def take(self, event: Mapping[str, Any]) -> None:
        """Fold in an event."""
        raise NotImplementedError

    def take_whole(self, body: Mapping[str, Any]) -> bool:
        """Fold in a whole reply; False where it is none."""
        raise NotImplementedError

    def tokens(self, usage: Mapping[str, Any]) -> TokenCounts:
        """The provider's count as five that do not overlap."""
        raise NotImplementedError

    def used(self, usage: object) -> None:
        """Take what was used; a count that is not repeated stands."""
        if not is_object(usage) or not usage:
            return
        for key, value in usage.items():
            if value is not None or key not in self._usage:
                self._usage[key] = value
        cost: Any = self._usage.get("cost")
        price = float(cost) if type(cost) in (int, float) and cost >= 0 else None
        self.answer.usage(dict(self._usage), self.tokens(self._usage), price)

    def about(self, **facts: object) -> None:
        """Keep what the reply says of itself."""
        self.answer.about.update({key: value for key, value in facts.items() if value})

    def failed(self, error: object) -> None:
        """Take an error that came in place of an answer, or in the middle of one."""
        found = error if is_object(error) else {"message": error}
        self.answer.fail(found.get("type") or found.get("code"), found.get("message"))

    def lost(self, what: str, rule: str, detail: str) -> None:
        """Say what was not kept, once for its kind."""
        self._notes.setdefault(detail, Note("lost", what, rule, detail))


def count(usage: Mapping[str, Any], *path: str) -> int:
    """A count of tokens at this path; 0 where there is none."""
    found: Any = usage
    for key in path:
        found = found.get(key) if is_object(found) else None
    return found if type(found) is int and found > 0 else 0


def counts(*, prompt: int, read: int, write: int, output: int, thought: int) -> TokenCounts:
    """Five counts that do not overlap, of a prompt that includes what the cache had."""
    return TokenCounts(
        max(prompt - read - write, 0), max(output, 0), thought, CacheCounts(read, write)
    )
