"""Wrong arguments are refused where they are given, with what to write instead."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_framework import Message
from pydantic_ai.run import AgentRunResult

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


@pytest.mark.parametrize("given", [5, b"x", None, "half \ud800"], ids=ascii)
@pytest.mark.parametrize(
    "use",
    [
        PalaverChatMessageHistory,
        PalaverSession,
        lambda store, name: PalaverMemory(store, "talk").chat_store.history(name),
        lambda store, name: PalaverSessionService(store, agent=name),
        lambda store, name: asyncio.run(
            PalaverSessionService(store).get_session(app_name="tea", user_id="ann", session_id=name)
        ),
        lambda store, name: asyncio.run(
            PalaverSessionService(store).create_session(app_name="tea", user_id=name)
        ),
    ],
    ids=["langchain", "openai-agents", "llama-index", "adk-agent", "adk-get", "adk-create"],
)
def test_what_can_be_no_id_is_refused_and_begins_nothing(here: Store, use: Any, given: Any) -> None:
    with pytest.raises(ValueError, match=r"must be text|unprintable|half a character|no id"):
        use(here, given)
    assert [] == list(here)


@pytest.mark.parametrize("name", ["half \ud800", "x" * 200, "a/b ☕", "two\nlines"], ids=ascii)
def test_a_session_may_have_any_text_as_its_id(here: Store, name: str) -> None:
    """Those frameworks that name sessions freely get a conversation of a printable id."""
    turn = [Message("user", ["Tea?"])]
    asyncio.run(PalaverHistoryProvider(here).save_messages(name, turn))
    assert 1 == len(PalaverHistoryProvider(here).history(name))
    here.delete(next(iter(here)).id)
    assert [] == PalaverSessionManager(name, here).history().messages
    thread: Any = {"configurable": {"thread_id": name + "!"}}
    assert PalaverSaver(here).get_tuple(thread) is None


def test_an_id_that_is_too_long_is_named(here: Store) -> None:
    with pytest.raises(ValidationError, match=r"\$\.session_id: is longer"):
        PalaverHistoryProvider(here).history("x" * 2_000)
    with pytest.raises(ValidationError, match=r"\$\.session_id: is longer"):
        PalaverSession(here, "x" * 2_000)


@pytest.mark.parametrize("given", ["Tea?", [5], [None]], ids=repr)
@pytest.mark.parametrize(
    "save",
    [
        lambda store, given: PalaverChatMessageHistory(store, "talk").add_messages(given),
        lambda store, given: asyncio.run(PalaverSession(store, "talk").add_items(given)),
        lambda store, given: PalaverMemory(store, "talk").put_messages(given),
        lambda store, given: asyncio.run(
            PalaverHistoryProvider(store).save_messages("talk", given)
        ),
        lambda store, given: pydantic_ai.save(store.create(), given),
    ],
    ids=["langchain", "openai-agents", "llama-index", "agent-framework", "pydantic-ai"],
)
def test_what_is_no_message_is_refused(here: Store, save: Any, given: Any) -> None:
    with pytest.raises(ValidationError, match=r"must be (a|one of)"):
        save(here, given)
    assert 0 == sum(len(here.get(head.id)) for head in here)


def test_the_result_of_a_run_is_not_its_messages(here: Store) -> None:
    result: Any = AgentRunResult("Green.")
    with pytest.raises(ValidationError, match=r"result\.new_messages\(\)"):
        pydantic_ai.save(here.create(), result)


def test_numbers_and_functions_are_checked(here: Store) -> None:
    wrong: Any
    for wrong in (0, 1.5, "x", True):
        with pytest.raises(ValueError, match="max_messages must be"):
            PalaverHistoryProvider(here, max_messages=wrong)
    with pytest.raises(ValidationError, match="must be a function"):
        PalaverMemory(here, tokenizer_fn=5)
    with pytest.raises(ValidationError, match="must be a file"):
        PalaverChatStore(path="postgresql://ann:secret@host/tea")
