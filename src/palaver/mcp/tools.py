"""The tools: each is a question to the desk, asked in a thread of its own.

Their signatures are the schemas that a client sees, their docstrings what a model reads. What
palaver refuses is the tool's error, in palaver's words.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar

import anyio.to_thread
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from palaver.errors import PalaverError
from palaver.mcp.answers import (  # noqa: TC001 - the SDK makes schemas of them
    Conversations,
    Diff,
    Found,
    Page,
    Standing,
    Text,
    Versions,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.mcp.desk import Desk

__all__ = ["Reading", "Writing", "asked"]

_T = TypeVar("_T")

Id = Annotated[str, Field(min_length=1, max_length=1024, description="Its id, or how it begins.")]
Which = Annotated[str, Field(min_length=1, max_length=1024, description="Its index or its id.")]
Name = Annotated[str, Field(min_length=1, max_length=1024)]
Number = Annotated[int, Field(ge=0)]
Limit = Annotated[int, Field(ge=1, le=100, description="How many at most.")]
Characters = Annotated[
    int, Field(ge=1, le=20_000, description="Characters of a message that are shown.")
]
Expected = Annotated[
    int | None, Field(ge=0, description="Refuse if it is no longer at this version.")
]


async def asked(question: Callable[[], _T]) -> _T:
    """Ask in a worker thread; what palaver refuses is for the model to read."""
    try:
        return await anyio.to_thread.run_sync(question)
    except PalaverError as error:
        raise ToolError(str(error)) from None


class Reading:
    """The tools that read."""

    def __init__(self, desk: Desk) -> None:
        """Take the desk that they ask."""
        self._desk = desk

    async def search(
        self,
        words: Annotated[str, Field(min_length=1, max_length=1_000)],
        conversation: Id | None = None,
        limit: Annotated[int, Field(ge=1, le=50)] = 10,
    ) -> Found:
        """Find messages with all these words; "in quotes" they must follow one another."""
        return await asked(
            partial(self._desk.search, words, conversation=conversation, limit=limit)
        )

    async def list_conversations(
        self,
        tag: Name | None = None,
        after: Annotated[str | None, Field(description="`next` of the page before.")] = None,
        limit: Limit = 20,
    ) -> Conversations:
        """List conversations, the latest changed first, all or those with a tag."""
        return await asked(partial(self._desk.conversations, tag=tag, after=after, limit=limit))

    async def read(
        self,
        conversation: Id,
        start: Annotated[
            int | None, Field(ge=0, description="From this index; without it, the last ones.")
        ] = None,
        limit: Limit = 20,
        version: Annotated[int | None, Field(ge=0, description="As it was then.")] = None,
        characters: Characters = 2_000,
    ) -> Page:
        """Read a page of a conversation, as it is or as it was at an earlier version."""
        question = partial(
            self._desk.read, conversation,
            start=start, limit=limit, version=version, characters=characters,
        )  # fmt: skip
        return await asked(question)

    async def read_message(
        self, conversation: Id, message: Which, start: Number = 0, characters: Characters = 20_000
    ) -> Text:
        """Read what one message says, from a character on: for those too long for a page."""
        question = partial(
            self._desk.text, conversation, message, start=start, characters=characters
        )
        return await asked(question)

    async def versions(
        self,
        conversation: Id,
        before: Annotated[int | None, Field(ge=0, description="`next` of the page before.")] = None,
        limit: Limit = 20,
    ) -> Versions:
        """List the changes of a conversation, the newest first: each made a version."""
        return await asked(partial(self._desk.versions, conversation, before=before, limit=limit))

    async def diff(
        self,
        conversation: Id,
        before: Number | None = None,
        after: Number | None = None,
        characters: Characters = 2_000,
    ) -> Diff:
        """Compare two versions; without them, show what the last change did."""
        question = partial(
            self._desk.diff, conversation, before=before, after=after, characters=characters
        )
        return await asked(question)


class Writing:
    """The tools that change something; every earlier version stays."""

    def __init__(self, desk: Desk) -> None:
        """Take the desk that they ask."""
        self._desk = desk

    async def mark(
        self,
        conversation: Id,
        message: Which,
        name: Name,
        remove: bool = False,  # noqa: FBT001, FBT002 - by name, over the wire
    ) -> Standing:
        """Put a mark on a message, or take it off."""
        return await asked(partial(self._desk.mark, conversation, message, name, remove=remove))

    async def fork(
        self, conversation: Id, version: Number | None = None, name: Name | None = None
    ) -> Standing:
        """Begin another conversation from here or from a version; `name` will be its id."""
        return await asked(partial(self._desk.fork, conversation, version=version, name=name))

    async def undo(self, conversation: Id, expected_version: Expected = None) -> Standing:
        """Reverse the last change of a conversation."""
        return await asked(partial(self._desk.undo, conversation, expected=expected_version))

    async def redo(self, conversation: Id, expected_version: Expected = None) -> Standing:
        """Bring back what was undone, as long as nothing was changed since."""
        return await asked(partial(self._desk.redo, conversation, expected=expected_version))

    async def roll_back(
        self, conversation: Id, version: Number, expected_version: Expected = None
    ) -> Standing:
        """Make a conversation what it was at a version."""
        question = partial(self._desk.roll_back, conversation, version, expected=expected_version)
        return await asked(question)
