"""The SDK's sessions in palaver's stores: its own contracts, and what an edit comes to."""

from __future__ import annotations

import copy
import json
import threading
from typing import TYPE_CHECKING

import anyio
import pytest
from claude_agent_sdk import (
    fork_session_via_store,
    get_session_messages_from_store,
    list_sessions_from_store,
    project_key_for_directory,
    rename_session_via_store,
)
from claude_agent_sdk.testing import run_session_store_conformance

import palaver
from compat.claude_lines import (
    KEY,
    SESSION,
    aside,
    call,
    ident,
    result,
    said,
    session,
    thought,
    told,
)
from compat.claude_sessions import Sessions
from palaver.adapters.claude_agent_sdk import PalaverSessionStore
from palaver.messages import AssistantInfo, ToolCallPart, ToolPart
from palaver.messages.tool_state import ToolCompleted
from palaver.stores import Store
from palaver.stores.memory import MemoryBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """What opens an empty store, another one every time."""
    stores: list[Store] = []

    def open_store() -> Store:
        if request.param == "memory":
            stores.append(Store(MemoryBackend()))
        elif request.param == "sqlite":
            stores.append(palaver.open(tmp_path / f"{len(stores)}.db"))
        else:
            server = request.getfixturevalue("postgres_server")
            stores.append(palaver.open(request.getfixturevalue("postgres")))
            del server
            for head in list(stores[-1]):
                stores[-1].delete(head.id)
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


@pytest.fixture
def store() -> Store:
    return palaver.open(":memory:")


@pytest.fixture
def sessions(store: Store) -> Sessions:
    made = Sessions(store)
    made.append(*session())
    return made


# ── the SDK's own contracts ──────────────────────────────────────────────────────────────────────


def test_it_keeps_the_contracts_of_the_sdk(opened: Callable[[], Store]) -> None:
    """All fourteen, on every store."""
    anyio.run(run_session_store_conformance, lambda: PalaverSessionStore(opened()))


def test_what_nobody_edited_comes_back_equal(opened: Callable[[], Store]) -> None:
    """In one batch, and line by line; and what is sent twice is there once."""
    for size in (1, 4, 100):
        sessions, lines = Sessions(opened()), session()
        for start in range(0, len(lines), size):
            sessions.append(*copy.deepcopy(lines[start : start + size]))
        sessions.append(*[line for line in lines if "uuid" in line] * 2)
        assert lines == sessions.load()


def test_the_sdk_finds_its_way_in_it(sessions: Sessions, tmp_path: Path) -> None:
    """Its helpers over a store: list, read, rename, fork."""
    key = {**KEY, "project_key": project_key_for_directory(str(tmp_path))}
    sessions = Sessions(palaver.open(":memory:"))
    sessions.append(*session(), key=key)
    adapter, folder = sessions.adapter, str(tmp_path)

    async def use() -> None:
        (info,) = await list_sessions_from_store(adapter, directory=folder)
        assert ("Weather in Oslo", "Weather in Oslo?") == (info.summary, info.first_prompt)
        read = await get_session_messages_from_store(adapter, SESSION, directory=folder)
        assert 8 == len(read)
        await rename_session_via_store(adapter, SESSION, "Oslo", directory=folder)
        (info,) = await list_sessions_from_store(adapter, directory=folder)
        assert "Oslo" == info.custom_title
        forked = await fork_session_via_store(adapter, SESSION, directory=folder)
        assert 2 == len(await list_sessions_from_store(adapter, directory=folder))
        assert 8 == len(sessions.store.get(forked.session_id))

    anyio.run(use)
    assert "Oslo" == sessions.store.get(SESSION).title


# ── real messages ────────────────────────────────────────────────────────────────────────────────


def test_lines_are_messages_with_roles_parts_and_words(sessions: Sessions) -> None:
    history = sessions.history
    roles = [
        "user",
        "assistant",
        "assistant",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert roles == [message.role for message in history]
    asked = history[3].parts[0]
    assert isinstance(asked, ToolCallPart)
    assert ("weather", {"city": "Oslo"}, "toolu_1") == (asked.tool, asked.input, asked.call_id)
    answered = history[4].parts[0]
    assert isinstance(answered, ToolPart)
    assert isinstance(answered.state, ToolCompleted)
    assert ("weather", "Sunny in Oslo") == (answered.tool, answered.state.output)
    assert {"city": "Oslo"} == answered.state.input
    info = history[5].info
    assert isinstance(info, AssistantInfo)
    assert info.tokens is not None
    assert (527, 12) == (info.tokens.input, info.tokens.output)
    assert ("Weather in Oslo", ("claude-project:-work",)) == (history.title, history.tags)
    assert [ident("fine"), ident("sunny")] == sorted(
        hit.message.id for hit in sessions.store.search("sunny")
    )
    assert [] == list(sessions.store.verify())


def test_a_result_knows_its_call_from_an_earlier_batch(store: Store) -> None:
    sessions = Sessions(store)
    sessions.append(said("a", None, "hi"), call("b", "a", "t1", city="Rome"))
    sessions.append(result("c", "b", "t1", "Rain"), told("d", "c", "It rains."))
    part = sessions.history[2].parts[0]
    assert isinstance(part, ToolPart)
    assert ("weather", {"city": "Rome"}) == (part.tool, part.state.input)


def test_a_line_that_stands_twice_in_a_batch_is_there_once(store: Store) -> None:
    sessions = Sessions(store)
    sessions.append(said("a", None, "hi"), said("a", None, "hi"))
    assert [said("a", None, "hi")] == sessions.load()


ODD = {
    "a NUL and half a character": said("a", None, "x\0y \ud800"),
    "a number too large": said("a", None, "hi", big=2**70),
    "an empty text": said("a", None, ""),
    "no blocks": said("a", None, []),
    "a text block": said("a", None, [{"type": "text", "text": "hi", "cache_control": None}]),
    "an unknown block": said("a", None, [{"type": "hologram", "beam": [1, 2]}]),
    "what is no block": said("a", None, ["bare", 7]),
    "no content": said("a", None, None),
    "a program's own words": said("a", None, "reminder", isMeta=True),
    "a summary": said("a", None, "So far: tea.", isCompactSummary=True),
    "no output": said("a", None, [{"type": "tool_result", "tool_use_id": "t", "content": ""}]),
    "no content of a result": said("a", None, [{"type": "tool_result", "tool_use_id": "t"}]),
    "a failure": result("a", "b", "t", "it broke", is_error=True),
    "no failure": result("a", "b", "t", "fine", is_error=False),
    "a silent failure": result("a", "b", "t", "", is_error=True),
    "two texts": said(
        "a", None, [{"type": "tool_result", "tool_use_id": "t",
                     "content": [{"type": "text", "text": t} for t in "ab"]}],
    ),
    "an image": said(
        "a", None, [{"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                                 "data": "aGk="}}],
    ),
    "a document with a title": said(
        "a", None, [{"type": "document", "title": "T",
                     "source": {"type": "url", "url": "https://example.com/a.pdf"}}],
    ),
    "a picture as a result": said(
        "a", None, [{"type": "tool_result", "tool_use_id": "t", "content": [
            {"type": "text", "text": "look"},
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}]}],
    ),
    "two results and words": said(
        "a", None, [{"type": "tool_result", "tool_use_id": "t", "content": "one"},
                    {"type": "tool_result", "tool_use_id": "u", "content": "two"},
                    {"type": "text", "text": "and?"}],
    ),
    "the same result twice": said(
        "a", None, [{"type": "tool_result", "tool_use_id": "t", "content": "one"}] * 2,
    ),
    "sealed thoughts": {
        **told("a", "b", "x"),
        "message": {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "s"}]},
    },
    "a thought without a signature": {
        **told("a", "b", "x"),
        "message": {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
    },
    "an error of the provider's": {**told("a", "b", "API Error"), "isApiErrorMessage": True},
    "an answer that is a string": {
        **told("a", "b", "x"), "message": {"role": "assistant", "content": "plain"},
    },
    "another role than its type": {**said("a", None, "x"), "type": "assistant"},
    "no uuid": {"type": "user", "message": {"role": "user", "content": "x"}},
    "a uuid that is no id": said("a", None, "x") | {"uuid": "a\nb"},
    "too deep": said("a", None, "x", deep=json.loads("[" * 200 + "]" * 200)),
    "no time": said("a", None, "x") | {"timestamp": "noon"},
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_whatever_a_line_holds_it_comes_back(name: str, opened: Callable[[], Store]) -> None:
    sessions = Sessions(opened())
    line = copy.deepcopy(ODD[name])
    sessions.append(line, aside("mode", mode="plan"))
    assert [json.loads(json.dumps(ODD[name])), aside("mode", mode="plan")] == sessions.load()


# ── whose conversation, and who writes ───────────────────────────────────────────────────────────


def test_the_same_session_of_two_projects_is_two_conversations(store: Store) -> None:
    sessions = Sessions(store)
    other = {**KEY, "project_key": "-home"}
    sessions.append(said("a", None, "here"))
    sessions.append(said("a", None, "there"), key=other)
    assert {SESSION, f"{SESSION}@-home"} == {head.id for head in store}
    anyio.run(sessions.adapter.delete, KEY)
    assert "there" == sessions.load(other)[0]["message"]["content"]
    assert [SESSION] == [
        one["session_id"] for one in anyio.run(sessions.adapter.list_sessions, "-home")
    ]


def test_subagents_stand_beside_their_session(sessions: Sessions) -> None:
    key = {**KEY, "subpath": "subagents/agent-1"}
    sessions.append(said("s", None, "Find tea"), {"type": "agent_metadata", "name": "a"}, key=key)
    assert ["subagents/agent-1"] == anyio.run(sessions.adapter.list_subkeys, KEY)
    (hit,) = sessions.store.search("find tea")
    assert f"{SESSION}@-work/subagents/agent-1" == hit.conversation
    assert 2 == len(sessions.load(key))


def test_an_edit_makes_the_summary_anew(sessions: Sessions) -> None:
    (before,) = anyio.run(sessions.adapter.list_session_summaries, "-work")
    assert "Weather in Oslo?" == before["data"]["first_prompt"]
    (again,) = anyio.run(sessions.adapter.list_session_summaries, "-work")
    assert before == again
    sessions.history.replace(0, palaver.user("Weather in Rome?"))
    (after,) = anyio.run(sessions.adapter.list_session_summaries, "-work")
    assert "Weather in Rome?" == after["data"]["first_prompt"]


def test_two_workers_lose_nothing_and_double_nothing(opened: Callable[[], Store]) -> None:
    """Both send the same lines, cut otherwise, at the same time."""
    store = opened()
    lines = [said(f"m{n}", f"m{n - 1}" if n else None, f"word {n}") for n in range(12)]
    together = threading.Barrier(2)

    def send(size: int) -> None:
        sessions = Sessions(store)
        together.wait()
        for start in range(0, len(lines), size):
            sessions.append(*copy.deepcopy(lines[start : start + size]))

    threads = [threading.Thread(target=send, args=(size,)) for size in (1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = [message.text for message in store.get(SESSION)]
    assert sorted(f"word {n}" for n in range(12)) == sorted(texts)


def test_only_thoughts_of_a_whole_answer_are_kept(store: Store) -> None:
    """An interrupted answer that nobody edited stays as it was."""
    sessions = Sessions(store)
    lines = [said("a", None, "hi"), thought("b", "a", "hm")]
    sessions.append(*lines)
    assert lines == sessions.load()
