"""Wrong arguments are refused where they are given, with what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from palaver.adapters import pydantic_ai
from palaver.adapters.adk import PalaverSessionService
from palaver.adapters.agent_framework import PalaverHistoryProvider
from palaver.adapters.claude_agent_sdk import PalaverSessionStore
from palaver.adapters.langchain import PalaverChatMessageHistory
from palaver.adapters.langgraph import PalaverSaver
from palaver.adapters.llama_index import PalaverChatStore, PalaverMemory
from palaver.adapters.openai_agents import PalaverSession
from palaver.adapters.strands import PalaverSessionManager, PalaverSessionRepository
from palaver.errors import ValidationError

if TYPE_CHECKING:
    from palaver.stores.store import Store


@pytest.mark.parametrize("given", ["chat.db", Path("chat.db"), None], ids=repr)
@pytest.mark.parametrize(
    "make",
    [
        PalaverSessionService, PalaverSaver, PalaverSessionStore, PalaverHistoryProvider,
        PalaverMemory, PalaverChatStore, PalaverSessionRepository,
        lambda store: PalaverSessionManager("talk", store),
        lambda store: PalaverChatMessageHistory(store, "talk"),
        lambda store: PalaverSession(store, "talk"),
        pydantic_ai.load,
    ],
)  # fmt: skip
def test_what_is_no_store_is_refused_where_it_is_given(make: Any, given: Any) -> None:
    with pytest.raises(ValidationError, match=r"must be a Store|needs a store|must be a history"):
        make(given)


def test_a_memory_takes_no_unknown_fields(here: Store) -> None:
    with pytest.raises(TypeError, match="did you mean 'token_limit'"):
        PalaverMemory(here, token_limits=5)
    with pytest.raises(ValidationError, match="takes a store or a path"):
        PalaverChatStore(here, path="chat.db")
