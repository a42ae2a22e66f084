from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from palaver.conversation import ToolContext
from palaver.messages import new_id, tool_call_part
from palaver.messages.limits import EMPTY
from tests.conversation.conftest import anyio_backend, store

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["anyio_backend", "store"]  # fixtures, for every test here


@pytest.fixture
def told() -> list[tuple[str, dict[str, Any]]]:
    """What a tool said of its progress."""
    return []


@pytest.fixture
def context(told: list[tuple[str, dict[str, Any]]]) -> ToolContext:
    """A call that tools can be run for without a conversation."""

    def tell(title: str, metadata: Mapping[str, Any] = EMPTY, /) -> None:
        told.append((title, dict(metadata)))

    call = tool_call_part(new_id(), new_id(), "tool", {}, call_id="call_1")
    return ToolContext("c", call, tell)
