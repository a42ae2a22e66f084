"""Reading a history: everything that a `View` can do, done on the view of this moment.

A reader asks for the view once and works on that, so it never sees half a change.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from palaver.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from palaver.history.results import BatchSnapshot, MarkMap, State, Stats
    from palaver.history.view import View
    from palaver.messages import Role

__all__ = ["Reader"]


class Reader(Sequence[Message]):
    """A sequence of messages with S1's queries, over whatever `view` is at the moment."""

    __slots__ = ()

    @property
    @abstractmethod
    def view(self) -> View:
        """The conversation as it is now: a sequence that does not change when the history does."""

    def __len__(self) -> int:
        """How many messages there are now."""
        return len(self.view)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        """The message at an index, or a list for a slice."""
        return self.view[index]

    def __iter__(self) -> Iterator[Message]:
        """All messages as they are now; changes made meanwhile are not seen."""
        return iter(self.view)

    def __reversed__(self) -> Iterator[Message]:
        """All messages as they are now, the last one first."""
        return reversed(self.view)

    def __contains__(self, value: object) -> bool:
        """Tell whether a message is there now."""
        return value in self.view

    def index(self, value: object, start: int = 0, stop: int | None = None) -> int:
        """The index of the first message that equals a value."""
        view = self.view
        return view.index(value, start, len(view) if stop is None else stop)

    @property
    def messages(self) -> list[Message]:
        """The messages as they are now, as a list of your own."""
        return self.view[:]

    def query(
        self,
        *,
        role: Role | None = None,
        roles: Iterable[Role] | None = None,
        mark: str | None = None,
        since: int | None = None,
        until: int | None = None,
        text: str | None = None,
        range: tuple[int, int] | None = None,  # noqa: A002 - the word for it
        recent: int | None = None,
    ) -> list[Message]:
        """The messages that match everything given; see `View.query`."""
        return self.view.query(
            role=role, roles=roles, mark=mark, since=since, until=until, text=text, range=range,
            recent=recent,
        )  # fmt: skip

    def by_role(self, role: Role) -> list[Message]:
        """All messages of a role."""
        return self.view.by_role(role)

    def recent(self, n: int, *, role: Role | None = None) -> list[Message]:
        """The last n messages, or the last n of a role."""
        return self.view.recent(n, role=role)

    def range(self, start: int, end: int, *, role: Role | None = None) -> list[Message]:
        """The messages from start to before end, counted within a role where one is given."""
        return self.view.range(start, end, role=role)

    def count(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - S1's word
        self,
        *,
        role: Role | None = None,
        roles: Iterable[Role] | None = None,
        mark: str | None = None,
        since: int | None = None,
        until: int | None = None,
        text: str | None = None,
    ) -> int:
        """How many messages match."""
        return self.view.count(
            role=role, roles=roles, mark=mark, since=since, until=until, text=text
        )

    @property
    def batch_index(self) -> int:
        """The number of the batch that is open."""
        return self.view.batch_index

    def batch_snapshot(self, index: int) -> BatchSnapshot | None:
        """A batch as it ended; None for the open one and for one that is not there."""
        return self.view.batch_snapshot(index)

    @property
    def state(self) -> State:
        """Messages and snapshots, worked out when looked at."""
        return self.view.state

    @property
    def stats(self) -> Stats:
        """The numbers."""
        return self.view.stats

    def mark_map(self) -> MarkMap:
        """The view as log positions, by role, and where the batches of the line opened."""
        return self.view.mark_map()

    @property
    def team_task(self) -> str | None:
        """What the team is at work on."""
        return self.view.team_task

    @property
    def marks(self) -> Mapping[str, list[str]]:
        """The ids of the marked messages, by mark."""
        return self.view.marks

    def marks_of(self, which: int | str | Message) -> list[str]:
        """The marks of one message."""
        return self.view.marks_of(which)
