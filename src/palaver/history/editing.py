"""Editing a history: a method for each operation that opens a batch.

Every one of them comes down to one value, the operation, and one way to carry it out.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, cast

from palaver.history.operations import (
    Clear,
    Filter,
    Insert,
    Range,
    Replace,
    Truncate,
    read_messages,
)
from palaver.history.reading import Reader
from palaver.history.rewriting import Rewrite
from palaver.messages.gate import check_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Literal

    from palaver.history.plan import Edit
    from palaver.history.results import Result
    from palaver.history.rewriting import Piece
    from palaver.messages import Message, Role

__all__ = ["Editor"]


class Editor(Reader):
    """The edits, over whatever `_edit` does with an operation."""

    __slots__ = ()

    @abstractmethod
    def _edit(self, operation: Edit) -> Result:
        """Carry out an operation that opens a batch."""

    def insert(self, position: int, messages: Iterable[Message | Mapping[str, Any]]) -> Result:
        """Put messages in before the one at a position; at the length, after the last."""
        return self._edit(Insert(position, read_messages(messages)))

    def replace(self, index: int, message: Message | Mapping[str, Any]) -> Result:
        """Put a message in the place of another."""
        return self._edit(Replace(index, cast("Message", message)))

    def truncate(
        self,
        *,
        keep_first: int | None = None,
        keep_last: int | None = None,
        remove_first: int | None = None,
        remove_last: int | None = None,
        range: tuple[int, int] | None = None,  # noqa: A002 - the word for it
        role: Role | None = None,
        others: Literal["drop", "keep"] = "drop",
    ) -> Result:
        """Keep a stretch; see `Truncate` for how the options combine."""
        return self._edit(
            Truncate(
                keep_first=keep_first,
                keep_last=keep_last,
                remove_first=remove_first,
                remove_last=remove_last,
                range=None if range is None else Range(*range),
                role=role,
                others=others,
            )
        )

    def clear(self, *, keep_system_message: bool = True) -> Result:
        """Take everything out, system messages excepted unless told otherwise."""
        return self._edit(Clear(keep_system_message))

    def filter(
        self,
        *,
        roles: Iterable[Role] | None = None,
        content_contains: Iterable[str] | None = None,
        content_excludes: Iterable[str] | None = None,
    ) -> Result:
        """Keep the messages that match; see `Filter`."""
        return self._edit(
            Filter(
                roles=cast("Any", roles),  # the operation makes tuples of them
                content_contains=cast("Any", content_contains),
                content_excludes=cast("Any", content_excludes),
            )
        )

    def rewrite(
        self, pieces: Iterable[Piece], *, reason: str = "COMPACT", of_log: bool = False
    ) -> Result:
        """Select anew, old stretches and new messages in any order, in one batch.

        Stretches are indexes of the current selection; with `of_log`, positions in the log.

        >>> from palaver.history import History
        >>> history = History([{"role": "user", "content": word} for word in "abc"])
        >>> [m.text for m in history.rewrite([range(2, 3), range(1)]).state.messages]
        ['c', 'a']
        """
        check_name(reason, "$.reason")
        return self._edit(Rewrite(tuple(pieces), reason, of_log))
