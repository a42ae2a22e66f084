from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import palaver
from palaver.messages import (
    AssistantInfo,
    Message,
    reasoning_part,
    text_part,
    tool_call_part,
    tool_part,
)
from palaver.messages.tool_state import complete, fail, pending, start
from tests.stores.postgres_server import postgres, postgres_server

if TYPE_CHECKING:
    from palaver.stores import Store

__all__ = ["postgres", "postgres_server"]  # fixtures

S, M = "00000000-0000-7000-8000-000000000001", "00000000-0000-7000-8000-000000000002"


def answered(*, failed: bool = False) -> Message:
    """The result of a tool."""
    running = start(pending({}, ""), at=1)
    state = fail(running, "no tea", at=2) if failed else complete(running, "hot", tool="boil", at=2)
    return Message("tool", (tool_part(S, M, "c1", "boil", state),), timestamp=3)


def fill(store: Store) -> None:
    """Two conversations: one with everything in it, and one that is long."""
    history = store.create(
        [
            palaver.user("Where is the tea?", id="m0", timestamp=0),
            palaver.assistant(
                [
                    reasoning_part(S, M, "It may be gone."),
                    text_part(S, M, "Let me look."),
                    tool_call_part(S, M, "boil", {"cup": "blue"}, call_id="c1"),
                ],
                info=AssistantInfo(finish="tool_use"),
                id="m1",
                timestamp=1_000,
            ),
            answered(),
        ],
        id="kitchen-1",
        title="Tea",
        tags=["home"],
    )
    history.append(palaver.user("A secret: the cellar.", id="m3"))
    history.mark("m0", "star")
    history.replace(3, palaver.user("Nothing.", id="m4"))
    store.create([palaver.user(f"line {n} " + "x" * 5_000) for n in range(60)], id="long")


@pytest.fixture
def store() -> Store:
    """A store with something in it."""
    opened = palaver.open(":memory:")
    fill(opened)
    return opened
