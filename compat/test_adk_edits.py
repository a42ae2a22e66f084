"""Edits of a session between the turns of an agent of ADK, and in the middle of one."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from google.adk.agents import RunConfig
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import GetSessionConfig

from compat.adk_agent import APP, TALK, TURN, USER, agent, ask, looks, roles, said, sent
from palaver.adapters.adk import PalaverSessionService
from palaver.messages import assistant, user
from palaver.testing.servers import ProviderServer, Scripted

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.adk.sessions.session import Session

    from palaver.stores import StoredHistory
    from palaver.stores.store import Store


def _drop_result(history: StoredHistory) -> None:
    history.rewrite([range(2), range(3, 4)])


def _drop_answer(history: StoredHistory) -> None:
    history.rewrite([range(1), range(2, 4)])


def _keep_last(history: StoredHistory) -> None:
    history.truncate(keep_last=2)


def _reword(history: StoredHistory) -> None:
    history.replace(3, assistant("Rain in Rome."))


def _erase(history: StoredHistory) -> None:
    history.erase(0)


@pytest.mark.parametrize(
    ("edit", "gone", "there"),
    [
        (_drop_result, "21 degrees", "Let me see."),
        (_drop_answer, "Let me see.", "Sunny in Rome."),
        (_keep_last, "Weather in Rome?", "Sunny in Rome."),
        (_reword, "Sunny in Rome.", "Rain in Rome."),
        (_erase, "Weather in Rome?", "Sunny in Rome."),
    ],
)
def test_an_edit_is_what_the_model_is_sent_next(
    store: Store, edit: Callable[[StoredHistory], None], gone: str, there: str
) -> None:
    service = PalaverSessionService(store)
    with ProviderServer("gemini", [looks("Rome"), "Sunny in Rome.", "Well."]) as server:
        ada = agent(server.url)

        async def talk() -> None:
            await service.create_session(**TALK)
            await ask(ada, "Weather in Rome?", service, "talk")
            edit(service.history(**TALK))
            assert "Well." == await ask(ada, "And now?", service, "talk")

        asyncio.run(talk())
        assert gone not in sent(server)
        assert there in sent(server)
    assert [] == server.failures


def _remove(store: Store) -> None:
    history = store.get("talk")
    history.rewrite([range(2, len(history))])


def _roll_back(store: Store) -> None:
    """Back to before the first question was answered."""
    store.get("talk").restore(1)


def _fork(store: Store) -> None:
    store.get("talk").fork(id="fork")


@pytest.mark.parametrize(
    ("change", "gone"), [(_remove, "First."), (_roll_back, "Hello you."), (_fork, "nothing of it")]
)
def test_a_change_in_mid_run_is_in_the_next_request(
    store: Store, change: Callable[[Store], None], gone: str
) -> None:
    """The tool changes the conversation that it was called in; the run goes on with it."""
    service = PalaverSessionService(store)

    def look(city: str) -> str:
        """Tell the weather of a city."""
        change(store)
        return f"{city}: rain"

    look.__name__ = "weather"
    script: list[Scripted] = ["Hello you.", looks("Rome"), "Rainy.", "On the fork."]
    with ProviderServer("gemini", script) as server:
        ada = agent(server.url, tools=[look])

        async def talk() -> Session | None:
            await service.create_session(**TALK)
            await ask(ada, "First.", service, "talk")
            assert "Rainy." == await ask(ada, "Rome?", service, "talk")
            assert gone not in sent(server)
            assert ("Rome: rain" in sent(server)) is (change is not _roll_back)
            if change is _fork:
                assert "On the fork." == await ask(ada, "And here?", service, "fork")
            return await service.get_session(**TALK)

        session = asyncio.run(talk())
    assert [] == server.failures
    assert session is not None
    assert TURN[2:] == roles(store)[-2:]
    assert [event.id for event in session.events] == [message.id for message in store.get("talk")]
    if change is _fork:
        assert [*TURN[:1], "assistant", *TURN[:2], "user", "assistant"] == roles(store, "fork")


def test_a_tool_may_set_the_state_of_its_session_through_the_service(store: Store) -> None:
    """It does not wait for its own run."""
    service = PalaverSessionService(store, wait_seconds=1)

    async def look(city: str) -> str:
        """Tell the weather of a city."""
        for done in (50, 100):
            session = await service.get_session(**TALK)
            assert session is not None
            actions = EventActions(state_delta={"progress": done})
            await service.append_event(session, Event(author="weather", actions=actions))
        return f"{city}: rain"

    look.__name__ = "weather"
    with ProviderServer("gemini", [looks("Rome"), "Rainy.", "Bye."]) as server:
        ada = agent(server.url, tools=[look])

        async def talk() -> Session | None:
            await service.create_session(**TALK)
            assert "Rainy." == await ask(ada, "Rome?", service, "talk")
            await service.flush()
            await asyncio.create_task(ask(ada, "Bye?", service, "talk"))
            return await service.get_session(**TALK)

        session = asyncio.run(talk())
    assert [] == server.failures
    assert session is not None
    assert 100 == session.state["progress"]
    authors = ["user", "ada", "weather", "weather", "ada", "ada", "user", "ada"]
    assert authors == [event.author for event in session.events]


def _append(history: StoredHistory) -> None:
    history.append(user("Psst."))


def _replace(history: StoredHistory) -> None:
    history.replace(0, user("Second."))


def _reword_last(history: StoredHistory) -> None:
    history.replace(1, assistant("Hello all of you."))


@pytest.mark.parametrize("edit", [_append, _replace, _reword_last])
@pytest.mark.parametrize("recent", [0, 1, 2])
def test_a_run_that_read_only_recent_events_has_its_own_after_an_edit(
    here: Store, edit: Callable[[StoredHistory], None], recent: int
) -> None:
    """What is read again is not less than the run has read and written."""
    service = PalaverSessionService(here)

    def look(city: str) -> str:
        """Tell the weather of a city."""
        edit(service.history(**TALK))
        return f"{city}: rain"

    look.__name__ = "weather"
    with ProviderServer("gemini", ["Hello you.", looks("Rome"), "Rainy."]) as server:
        ada = agent(server.url, tools=[look])

        async def talk() -> None:
            await service.create_session(**TALK)
            await ask(ada, "First.", service, "talk")
            runner = Runner(app_name=APP, agent=ada, session_service=service)
            config = RunConfig(get_session_config=GetSessionConfig(num_recent_events=recent))
            events = runner.run_async(
                user_id=USER, session_id="talk", new_message=said("Rome?"), run_config=config
            )
            async for _ in events:
                pass

        asyncio.run(talk())
        assert [] == server.failures
        assert "Rome?" in sent(server)
        assert "Rome: rain" in sent(server)
        assert ("First." in sent(server)) is (recent == 2 and edit is not _replace)
        assert ("you." in sent(server)) is (recent > 0)
        assert ("Hello all of you." in sent(server)) is (recent > 0 and edit is _reword_last)


def test_an_erasure_takes_what_repeats_the_event_of_the_state(store: Store) -> None:
    """What it was created with and what an agent has put there; the other keys stay."""
    service = PalaverSessionService(store)
    first = {"code": "the door code is 4711", "cups/%\n": 2, "sort": None}

    async def talk() -> dict[str, Any]:
        await service.create_session(**TALK, state=first)
        fork = await service.fork_session(**TALK)
        assert first == fork.state
        await ask(agent(server.url, output_key="last"), "The code?", service, "talk")
        service.history(**TALK).erase(1)
        found = await service.get_session(**TALK)
        assert found is not None
        return found.state

    with ProviderServer("gemini", ["the door code is 4711"]) as server:
        assert {"cups/%\n": 2, "sort": None} == asyncio.run(talk())
    assert "4711" not in str(store.records("talk", "adk"))


def test_the_initial_state_of_an_older_session_is_read(store: Store) -> None:
    """It was one record once, and such sessions have forks too."""
    first = {"tea": "green", "cups": 2}
    tags = (f"adk:{APP}", f"adk:{APP}/{USER}")
    record = ("adk", "initial", json.dumps(first).encode())
    store.create(id="talk", tags=tags, records=[record])
    service = PalaverSessionService(store)
    raises = Event(author="user", actions=EventActions(state_delta={"cups": 3}))

    async def talk() -> None:
        found = await service.get_session(**TALK)
        assert found is not None
        assert first == found.state
        await service.append_event(found, raises)
        fork = await service.fork_session(**TALK)
        assert {**first, "cups": 3} == fork.state

    asyncio.run(talk())
