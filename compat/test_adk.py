"""palaver's session service in real runs of ADK, against a provider on this machine."""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

import palaver
from compat.adk_agent import (
    APP,
    HERE,
    TALK,
    TURN,
    ScriptedModel,
    agent,
    ask,
    content,
    keep_talking,
    looks,
    main,
    roles,
    run_turns,
    said,
    scripted,
    sent,
    weather,
)
from palaver.adapters._worker_threads import run_to_end
from palaver.adapters.adk import PalaverSessionService, from_event, session_service, to_event
from palaver.errors import LeaseTaken
from palaver.messages import ToolCallPart, assistant, user
from palaver.messages.message import Message
from palaver.testing.servers import ProviderServer, Scripted
from tests.profiles import steps

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from google.adk.sessions.session import Session

    from palaver.stores.store import Store


def told(text: str, **fields: Any) -> Event:
    given: Any = {"author": "user", "content": said(text), **fields}
    return Event(**given)


def sets(delta: dict[str, Any], **fields: Any) -> Event:
    given: Any = {"author": "user", "actions": EventActions(state_delta=delta), **fields}
    return Event(**given)


@pytest.mark.parametrize("stored", [{"event": "{}"}, {"event": 3}, {"event": "x", "content": "y"}])
def test_metadata_from_elsewhere_does_no_harm(stored: Any) -> None:
    message = Message("user", "Tea?", metadata={"adk": stored})
    event = to_event(message)
    assert event is not None
    assert ("user", said("Tea?")) == (event.author, event.content)
    service = PalaverSessionService(palaver.open(":memory:"))
    service._store.create([message], id="talk")
    assert {} == asyncio.run(service.adopt_session(**TALK)).state


# ── runs ────────────────────────────────────────────────────────────────────────────────────────


def test_an_agent_with_tools_talks_over_several_turns(store: Store) -> None:
    """Each turn sees the ones before; palaver has the roles, the calls and the words of it."""
    script: list[Scripted] = [looks("Rome"), "Sunny in Rome.", looks("Oslo"), "Sunny in Oslo."]
    service = PalaverSessionService(store)

    async def talk(ada: Any) -> list[str]:
        await service.create_session(**TALK)
        return [await ask(ada, f"{city}?", service, "talk") for city in ("Rome", "Oslo")]

    with ProviderServer("gemini", script) as server:
        assert ["Sunny in Rome.", "Sunny in Oslo."] == asyncio.run(talk(agent(server.url)))
    assert [] == server.failures
    assert "Sunny in Rome." in sent(server)
    assert TURN * 2 == roles(store)
    (call,) = [part for part in store.get("talk")[1].parts if isinstance(part, ToolCallPart)]
    assert ("weather", {"city": "Rome"}) == (call.tool, dict(call.input))
    assert {"talk"} == {hit.conversation for hit in store.search("degrees Oslo")}


# ── state ───────────────────────────────────────────────────────────────────────────────────────


def test_the_state_is_what_the_events_of_the_view_say(store: Store) -> None:
    """Undone, removed, forked: the state goes along. What is the user's or the app's stays."""
    service = PalaverSessionService(store)

    async def state(name: str = "talk") -> dict[str, Any]:
        where: Any = {**HERE, "session_id": name}
        found = await service.get_session(**where)
        assert found is not None
        return found.state

    async def talk() -> None:
        first = {"tea": "green", "user:name": "Ann", "app:open": True, "temp:x": 1}
        session = await service.create_session(**TALK, state=first)
        await service.append_event(session, sets({"tea": "black", "n": 1}, invocation_id="i1"))
        await service.append_event(session, sets({"n": 2, "user:n": 2}, invocation_id="i2"))
        shared = {"user:name": "Ann", "user:n": 2, "app:open": True}
        assert {"tea": "black", "n": 2, **shared} == await state() == session.state
        history = service.history(**TALK)
        history.undo()
        assert {"tea": "black", "n": 1, **shared} == await state()
        history.redo()
        history.rewrite([range(1, 2)])
        assert {"tea": "green", "n": 2, **shared} == await state()
        history.undo()
        fork = await service.fork_session(**TALK, new_session_id="fork", before_invocation_id="i2")
        assert {"tea": "black", "n": 1, **shared} == fork.state == await state("fork")
        await service.append_event(fork, sets({"n": 5}))
        assert (5, 2) == ((await state("fork"))["n"], (await state())["n"])
        history.erase(1)
        assert 1 == (await state())["n"]
        assert {"name": "Ann", "n": 2} == await service.get_user_state(**HERE)

    asyncio.run(talk())


def test_state_of_a_user_that_a_crash_left_behind_is_stored_by_the_next_reader(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the same change as its event; a newer value is not overwritten by it."""
    service = PalaverSessionService(store)

    async def talk() -> None:
        session = await service.create_session(**TALK)
        other = await service.create_session(**HERE, session_id="other")
        with monkeypatch.context() as crash:
            crash.setattr(service._state, "_settle", lambda *_: None)
            await service.append_event(session, sets({"user:a": 1, "user:b/%\n": 1, "app:c": 1}))
        assert {} == await service.get_user_state(**HERE)
        await service.append_event(other, sets({"user:a": 2}))
        found = await service.get_session(**TALK)
        assert found is not None
        assert {"user:a": 2, "user:b/%\n": 1, "app:c": 1} == found.state

    asyncio.run(talk())


# ── what ADK's own services lack ────────────────────────────────────────────────────────────────

OWN: list[Callable[[Path], BaseSessionService]] = [
    lambda path: SqliteSessionService(str(path / "own.db")),
    lambda path: DatabaseSessionService(f"sqlite+aiosqlite:///{path / 'own.db'}"),
]


@pytest.mark.parametrize("own", OWN)
def test_adk_can_neither_fork_a_session_nor_remove_an_event(
    own: Callable[[Path], BaseSessionService], tmp_path: Path
) -> None:
    """What is taken out of its session is there again the next time; palaver's stays out."""
    theirs, ours = own(tmp_path), PalaverSessionService(palaver.open(":memory:"))
    public = {name for name in dir(theirs) if not name.startswith("_")}
    assert not [name for name in public if "fork" in name or "clone" in name or "remove" in name]
    assert "delete_event" not in public

    async def removed(service: BaseSessionService) -> list[str]:
        session = await service.create_session(**TALK)
        for index in range(3):
            at = session.last_update_time + 1
            await service.append_event(session, told(str(index), timestamp=at))
        if isinstance(service, PalaverSessionService):
            service.history(**TALK).rewrite([range(1), range(2, 3)])
        else:
            del session.events[1]
        found = await service.get_session(**TALK)
        assert found is not None
        return [from_event(event).text for event in found.events]

    assert ["0", "1", "2"] == asyncio.run(removed(theirs))
    assert ["0", "2"] == asyncio.run(removed(ours))


def test_a_fork_goes_its_own_way(store: Store) -> None:
    """From before an invocation, or from here; the session that was forked stays as it is."""
    service = PalaverSessionService(store)
    script: list[Scripted] = ["One.", "Two.", "Another two."]
    with ProviderServer("gemini", script) as server:
        ada = agent(server.url)

        async def talk() -> None:
            await service.create_session(**TALK)
            await ask(ada, "1?", service, "talk")
            await ask(ada, "2?", service, "talk")
            session = await service.get_session(**TALK)
            assert session is not None
            second = session.events[2].invocation_id
            fork = await service.fork_session(**TALK, before_invocation_id=second)
            assert session.events[:2] == fork.events
            assert "Another two." == await ask(ada, "2, again?", service, fork.id)
            assert session == await service.get_session(**TALK)
            same = await service.fork_session(**TALK, new_session_id="same")
            assert session.events == same.events
            with pytest.raises(ValueError, match="no invocation 'i9' in session 'talk'"):
                await service.fork_session(**TALK, before_invocation_id="i9")
            with pytest.raises(AlreadyExistsError):
                await service.fork_session(**TALK, new_session_id="same")
            found = await service.list_sessions(**HERE)
            assert {"talk", "same", fork.id} == {each.id for each in found.sessions}
            await service.delete_session(**TALK)
            assert await service.get_session(**TALK) is None
            again = await service.get_session(**HERE, session_id="same")
            assert again is not None
            assert session.events == again.events
            assert [] == (await service.create_session(**TALK)).events

        asyncio.run(talk())
    assert [] == server.failures


async def two_at_once(url: str, services: list[BaseSessionService], **fields: Any) -> list[Any]:
    """A question that is asked while the tool of another is running."""
    running, enough = asyncio.Event(), asyncio.Event()

    async def slow(city: str) -> str:
        """Tell the weather of a city."""
        running.set()
        await enough.wait()
        return weather(city)

    slow.__name__ = "weather"
    ada = agent(url, tools=[slow], **fields)
    first = asyncio.create_task(ask(ada, "Weather in Rome?", services[0], "talk"))
    await asyncio.wait_for(running.wait(), 30)
    second = asyncio.create_task(ask(ada, "Are you there?", services[1], "talk"))
    await asyncio.wait([second], timeout=0.4)
    enough.set()
    return [*await asyncio.gather(first, second, return_exceptions=True)]


@pytest.mark.parametrize("own", OWN)
def test_two_runs_at_once_corrupt_a_session_of_adk(
    own: Callable[[Path], BaseSessionService], tmp_path: Path
) -> None:
    """The second question comes between a call and its response, and the first run is lost."""
    service = own(tmp_path)
    call = types.FunctionCall(name="weather", args={"city": "Rome"})
    script = [content({"function_call": call}), content({"text": "I am."})]
    model = ScriptedModel(model="scripted", script=[*script, content({"text": "Sunny."})])

    async def talk() -> Any:
        await service.create_session(**TALK)
        outcomes = await two_at_once("", [service, service], model=model)
        return outcomes, await service.get_session(**TALK)

    (first, second), session = asyncio.run(talk())
    assert isinstance(first, StaleSessionError)
    assert "I am." == second
    assert ["user", "ada", "user", "ada"] == [event.author for event in session.events]
    assert session.events[1].get_function_calls()
    assert not any(event.get_function_responses() for event in session.events)


def test_two_runs_at_once_take_turns(address: str) -> None:
    """The second question waits for the first answer; each has a store and a service of its own."""
    with (
        palaver.open(address) as one,
        palaver.open(address) as other,
        ProviderServer("gemini", [looks("Rome"), "Sunny.", "I am."]) as server,
    ):
        services: list[BaseSessionService] = [PalaverSessionService(s) for s in (one, other)]

        async def talk() -> list[Any]:
            await services[0].create_session(**TALK)
            return await two_at_once(server.url, services)

        assert ["Sunny.", "I am."] == asyncio.run(talk())
        assert [] == server.failures
        assert "Sunny." in sent(server)
        assert [*TURN, "user", "assistant"] == roles(one)


def test_many_runs_never_mix_their_turns(address: str) -> None:
    script: list[Scripted] = [each for _ in range(6) for each in (looks("Rome"), "Sunny.")]
    with (
        palaver.open(address) as one,
        palaver.open(address) as other,
        ProviderServer("gemini", script) as server,
    ):
        services = [PalaverSessionService(one), PalaverSessionService(other)]

        async def talk() -> None:
            await services[0].create_session(**TALK)
            ada = agent(server.url)
            runs = (ask(ada, f"{n}?", services[n % 2], "talk") for n in range(6))
            assert ["Sunny."] * 6 == await asyncio.gather(*runs)

        asyncio.run(talk())
        assert [] == server.failures
        assert TURN * 6 == roles(one)


def test_a_run_that_resumes_while_the_first_goes_on_is_refused(here: Store) -> None:
    """It has made its answer of a history that is no longer there."""
    service = PalaverSessionService(here)

    async def talk() -> None:
        session = await service.create_session(**TALK)
        await service.append_event(session, told("Tea?", invocation_id="i1"))
        resumed = session.model_copy(deep=True)
        answer = content({"text": "Yes."})
        await service.append_event(session, Event(author="ada", content=answer, invocation_id="i1"))

        async def resume(session: Session) -> None:
            event = Event(author="ada", content=answer, invocation_id="i1")
            await service.append_event(session, event)

        with pytest.raises(StaleSessionError, match="modified in storage by another run"):
            await resume(resumed)
        found = await service.get_session(**TALK)
        assert found is not None
        await service.append_event(session, told("Rum?", invocation_id="i2"))
        await service.flush()
        with pytest.raises(StaleSessionError, match="modified in storage by another run"):
            await asyncio.create_task(resume(found))
        assert ["Tea?", "Yes.", "Rum?"] == [message.text for message in here.get("talk")]

    asyncio.run(talk())


def test_a_run_waits_only_so_long_for_another(here: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_service, "_SILENT_SECONDS", 0)
    service = PalaverSessionService(here, wait_seconds=0.05)
    quick = PalaverSessionService(here, turn_seconds=0.05)

    async def talk() -> None:
        session = await service.create_session(**TALK)
        await service.append_event(session, told("Tea?"))
        other = await service.get_session(**TALK)
        assert other is not None
        with pytest.raises(StaleSessionError, match="is being written to by another run"):
            await asyncio.create_task(service.append_event(other, told("Rum?")))
        await service.flush()  # this task's turn is over
        await asyncio.create_task(service.append_event(other, told("Rum?")))
        slow = await quick.get_session(**TALK)
        assert slow is not None
        await quick.append_event(slow, told("Wine?"))
        await asyncio.sleep(0.1)  # longer than its turn lasts, and nobody came
        await quick.append_event(slow, told("Milk?"))
        await asyncio.sleep(0.1)
        last = await service.get_session(**TALK)
        assert last is not None
        await service.append_event(last, told("Ale?"))
        assert ["Tea?", "Rum?", "Wine?", "Milk?", "Ale?"] == [m.text for m in here.get("talk")]

    asyncio.run(talk())
    for wrong in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="turn_seconds must be a number from"):
            PalaverSessionService(here, turn_seconds=wrong)
    with pytest.raises(ValueError, match="wait_seconds must be a number from 0 on"):
        PalaverSessionService(here, wait_seconds=-1)


def test_state_that_is_set_by_hand_leaves_the_session_to_others(here: Store) -> None:
    """A run begins with what somebody says; an event that only sets state takes no turn."""
    service, other = PalaverSessionService(here), PalaverSessionService(here, wait_seconds=0)

    async def talk() -> None:
        session = await service.create_session(**TALK)
        await service.append_event(session, sets({"cups": 1}))
        found = await other.get_session(**TALK)
        assert found is not None
        await other.append_event(found, told("Tea?"))
        with pytest.raises(StaleSessionError, match="is being written to by another run"):
            await service.append_event(session, sets({"cups": 2}))  # in the middle of a run
        await other.append_event(found, sets({"cups": 3}))
        await other.append_event(found, told("Rum?"))
        found = await service.get_session(**TALK)
        assert found is not None
        assert {"cups": 3} == found.state

    service._wait_seconds = 0
    asyncio.run(talk())


def test_a_session_that_nobody_has_any_more_is_left_to_others(here: Store) -> None:
    service, other = PalaverSessionService(here), PalaverSessionService(here, wait_seconds=10)

    async def talk() -> None:
        session: Session | None = await service.create_session(**TALK)
        assert session is not None
        await service.append_event(session, told("Tea?"))
        del session
        gc.collect()
        found = await other.get_session(**TALK)
        assert found is not None
        await other.append_event(found, told("Rum?"))

    began = time.monotonic()
    asyncio.run(talk())
    assert time.monotonic() - began < 10
    assert ["Tea?", "Rum?"] == [message.text for message in here.get("talk")]


def test_a_run_keeps_its_turn_however_long_its_tool_takes(here: Store) -> None:
    service = PalaverSessionService(here, turn_seconds=0.15)
    told_of: list[str] = []

    def weather(city: str) -> str:
        """Tell the weather of a city."""
        time.sleep(0.5)  # the loop stands still, too
        try:
            here.lease("talk", "another", seconds=1)
        except LeaseTaken as error:
            told_of.append(str(error))
        return f"{city}: sunny"

    async def talk() -> None:
        await service.create_session(**TALK)
        who = scripted("Sunny.")
        who.tools = [weather]
        assert "Sunny." == await ask(who, "Weather?", service, "talk")

    asyncio.run(talk())
    assert 1 == len(told_of)


# ── killed ──────────────────────────────────────────────────────────────────────────────────────

NURSERY = multiprocessing.get_context("forkserver")
NURSERY.set_forkserver_preload(["compat.adk_agent"])


@pytest.mark.parametrize("moment", [-1, 0, 3, 4, 7])
def test_a_killed_run_is_taken_up_again(address: str, tmp_path: Path, moment: int) -> None:
    """What was acknowledged is there, once; and the next run is valid, whatever was under way."""
    with ProviderServer("gemini", [looks("Rome"), "Sunny in Rome."]) as server:
        written = tmp_path / "told"
        written.touch()
        with palaver.open(address) as store:
            asyncio.run(PalaverSessionService(store).create_session(**TALK))
        child = NURSERY.Process(target=main, args=(address, server.url, moment, written))
        child.start()
        child.join(120)
        assert -9 == child.exitcode
        added = [json.loads(line) for line in written.read_text().splitlines()]
        with palaver.open(address) as store:
            there = [message.id for message in store.get("talk")]
            assert added == there[: len(added)]
            assert len(there) - len(added) in ((0,) if moment % 2 == 0 else (0, 1))
            assert len(there) == len(set(there))
            service = PalaverSessionService(store)
            assert asyncio.run(ask(agent(server.url), "Hello?", service, "talk"))
            assert [] == server.failures
            city = {"city": "Rome"} if moment == 7 else {}
            assert city == asyncio.run(service.get_user_state(**HERE))
            assert [] == list(store.verify())


def test_killed_at_any_moment_nothing_is_lost_and_nothing_twice(address: str) -> None:
    """A process takes turn after turn and is killed somewhere; another takes its place."""
    with palaver.open(address) as store:
        asyncio.run(PalaverSessionService(store).create_session(**TALK))
    told = -1
    for moment in range(steps(2, in_faults=50)):
        here, there = NURSERY.Pipe()
        process = NURSERY.Process(target=keep_talking, args=(address, told + 1, there))
        process.start()
        assert -1 == here.recv()
        told = int(here.recv())
        here.poll(0.001 * (moment * 7 % 40))
        process.kill()
        process.join()
        there.close()
        while here.poll():
            try:
                told = int(here.recv())
            except EOFError:
                break
        with palaver.open(address) as store:
            view = store.get("talk").view
            assert len(view) == len({message.id for message in view})
            answers = [message.text for message in view if message.text.startswith("answer")]
            assert [f"answer {number}" for number in range(len(answers))] == answers
            assert len(answers) > told
            told = len(answers) - 1
            service = PalaverSessionService(store)
            assert "Yes." == asyncio.run(ask(scripted("Yes."), "Still there?", service, "talk"))
            assert [] == list(store.verify())
            store.get("talk").truncate(keep_first=len(view))


def test_runs_of_several_processes_never_mix_their_turns(address: str) -> None:
    names, turns = ["one", "two"], steps(3, in_faults=10)
    with palaver.open(address) as store:
        asyncio.run(PalaverSessionService(store).create_session(**TALK))
        processes = [
            NURSERY.Process(target=run_turns, args=(address, name, turns)) for name in names
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(120)
        assert [0, 0] == [process.exitcode for process in processes]
        view = store.get("talk").view
        assert TURN * turns * len(names) == [message.role for message in view]
        said_by = [message.text.split()[0] for message in view if message.text]
        assert said_by[::2] == said_by[1::2]
        assert dict.fromkeys(names, turns) == {n: said_by[::2].count(n) for n in names}


# ── sessions ────────────────────────────────────────────────────────────────────────────────────


def test_a_conversation_from_elsewhere_becomes_a_session(store: Store) -> None:
    """An answer that no agent of ADK gave is taken for the agent's own."""
    store.create([user("Tea?"), assistant("Yes.")], id="talk", title="Tea", tags=["old"])
    service = PalaverSessionService(store, agent="ada")
    with ProviderServer("gemini", ["Still yes."]) as server:

        async def talk() -> None:
            assert await service.get_session(**TALK) is None  # it is nobody's yet
            with pytest.raises(SessionNotFoundError):
                service.history(**TALK)
            session = await service.adopt_session(**TALK)
            assert ["user", "ada"] == [event.author for event in session.events]
            assert "Still yes." == await ask(agent(server.url), "And now?", service, "talk")
            with pytest.raises(AlreadyExistsError, match="another user"):
                await service.adopt_session(app_name=APP, user_id="bob", session_id="talk")

        asyncio.run(talk())
        assert ["user", "model", "user"] == [
            each["role"] for each in server.requests[-1].body["contents"]
        ]
    assert ("Tea", "old") == (store.head("talk").title, store.head("talk").tags[0])


@pytest.mark.parametrize(
    "name", ["talk", "a/b", "50%", "a@b", "\t\n x\x07y", "adk-state:tea", "茶"]
)
def test_an_id_is_the_users_own(store: Store, name: str) -> None:
    """Users and apps may have the same ids, and ids may be any text."""
    service = PalaverSessionService(store)
    owners = [(app, who) for app in ("tea", "tea/a") for who in ("ann", "b@b", "", "a/ann")]

    async def talk() -> None:
        for app, who in owners:
            session = await service.create_session(app_name=app, user_id=who, session_id=name)
            assert name.strip() == session.id
            await service.append_event(session, told(f"{app} {who}"))
        for app, who in owners:
            found = await service.get_session(app_name=app, user_id=who, session_id=name)
            assert found is not None
            assert [said(f"{app} {who}")] == [event.content for event in found.events]
            listed = (await service.list_sessions(app_name=app, user_id=who)).sessions
            assert [(who, name.strip())] == [(each.user_id, each.id) for each in listed]
        everyone = (await service.list_sessions(app_name="tea")).sessions
        assert {who for app, who in owners if app == "tea"} == {each.user_id for each in everyone}

    asyncio.run(talk())


def test_an_id_that_a_conversation_with_forks_keeps_is_taken(here: Store) -> None:
    service = PalaverSessionService(here)

    async def talk() -> None:
        for _ in range(2):
            await service.create_session(**TALK)
            await service.fork_session(**TALK)
            await service.delete_session(**TALK)
        with pytest.raises(AlreadyExistsError):
            await service.create_session(**TALK)

    asyncio.run(talk())


def test_many_sessions_are_listed(here: Store) -> None:
    service = PalaverSessionService(here)

    async def talk() -> int:
        for _ in range(60):
            await service.create_session(**HERE)
        return len((await service.list_sessions(**HERE)).sessions)

    assert 60 == asyncio.run(talk())


def test_what_others_do_to_a_session_that_was_read_is_read_the_next_time(address: str) -> None:
    """Each has a store of its own, as another process has; the first leaves the session open."""
    with palaver.open(address) as one, palaver.open(address) as other:
        service, theirs = PalaverSessionService(one), PalaverSessionService(other)

        async def texts(config: GetSessionConfig | None = None) -> list[str] | None:
            found = await service.get_session(**TALK, config=config)
            return None if found is None else [from_event(event).text for event in found.events]

        async def write(*said: str) -> None:
            session = await theirs.get_session(**TALK) or await theirs.create_session(**TALK)
            for text in said:
                await theirs.append_event(session, told(text))
            await theirs.flush()

        async def talk() -> None:
            await write("Tea?", "Rum?")
            assert ["Tea?", "Rum?"] == await texts()
            await write("Milk?")
            assert ["Rum?", "Milk?"] == await texts(GetSessionConfig(num_recent_events=2))
            history = other.get("talk")
            history.replace(1, user("Wine?"))
            assert ["Tea?", "Wine?", "Milk?"] == await texts()
            history.undo()
            assert ["Tea?", "Rum?", "Milk?"] == await texts()
            history.erase(1)
            assert ["Tea?", "Milk?"] == await texts()
            assert "Rum?" not in str(vars(service._open["talk"].events))
            history.fork(id="fork")
            other.describe("talk", title=None, tags=[])  # it is nobody's session now
            assert await texts() is None
            await theirs.adopt_session(**TALK)
            assert ["Tea?", "Milk?"] == await texts()
            other.delete("fork")
            await theirs.delete_session(**TALK)
            assert await texts() is None
            for number in range(2):  # others of the same id: with fewer changes, and with as many
                await write(*[str(number)] * (2 + number))
                assert [str(number)] * (2 + number) == await texts()
                other.delete("talk")
                await asyncio.sleep(0.002)  # the times of two conversations differ
                await write("0", "0", "1")
                assert ["0", "0", "1"] == await texts()
                await theirs.delete_session(**TALK)

        asyncio.run(talk())


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is run on a worker thread."""
    found: list[object] = []

    def noted(work: Any, patience: Any = None) -> Any:
        found.append(work)
        return run_to_end(work, patience)

    monkeypatch.setattr(session_service, "run_to_end", noted)
    return found


def test_a_short_session_that_was_read_before_is_read_without_a_thread(
    here: Store, hops: list[object]
) -> None:
    """A thread takes longer to wake than the session to read. What others did is seen."""
    service = PalaverSessionService(here)
    few = GetSessionConfig(num_recent_events=2)

    async def texts(config: GetSessionConfig | None = None) -> list[str]:
        found = await service.get_session(**TALK, config=config)
        assert found is not None
        return [from_event(event).text for event in found.events]

    async def talk() -> None:
        session = await service.create_session(**TALK)
        for text in ("Tea?", "Rum?", "Milk?"):
            await service.append_event(session, told(text))
        await service.flush()
        await texts(few)  # which stores the state of the session, if it has none
        hops.clear()
        for _ in range(20):  # and others have their turn now and then
            assert ["Rum?", "Milk?"] == await texts(few)
        here.get("talk").append(user("Wine?"))
        assert ["Tea?", "Rum?", "Milk?", "Wine?"] == await texts()
        assert [] == hops
        here.get("talk").extend([user(str(number)) for number in range(60)])
        assert ["58", "59"] == await texts(few)
        assert 64 == len(await texts())
        here.get("talk").append(user("60"))
        assert ["59", "60"] == await texts(few)
        assert [] == hops
        assert 65 == len(await texts())
        assert 1 == len(hops)
        here.get("talk").extend([user(str(number)) for number in range(65)])
        assert ["63", "64"] == await texts(few)
        assert 2 == len(hops)

    asyncio.run(talk())


def test_what_has_to_be_waited_for_is_done_by_a_thread(
    here: Store, hops: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """State that is stored when it is read, an edit of others, an append under way."""
    service = PalaverSessionService(here)

    async def get() -> Session:
        hops.clear()
        found = await service.get_session(**TALK)
        assert found is not None
        return found

    async def talk() -> None:
        session = await service.create_session(**TALK)
        await service.append_event(session, sets({"tea": 1, "app:cups": 2}))
        await service.append_event(session, told("Tea?"))
        await service.flush()
        assert {"tea": 1, "app:cups": 2} == (await get()).state
        assert 0 == len(hops)
        here.put_record("talk", "adk", "pending 000 x", b'{"app":{"cups":3},"user":{}}')
        assert 2 == len((await get()).events)
        assert 1 == len(hops)
        here.get("talk").rewrite([range(1, 2)])  # the state is computed anew, and stored
        assert "tea" not in (await get()).state
        assert 1 == len(hops)
        await get()
        assert 0 == len(hops)
        history = here.get("talk")
        history.replace(0, user("Rum?"))
        assert 1 == len((await get()).events)
        assert 1 == len(hops)
        session = await get()
        goes_on = threading.Event()
        append = service._append

        def slow(*given: Any) -> None:
            goes_on.wait(10)
            append(*given)

        monkeypatch.setattr(service, "_append", slow)
        writing = asyncio.create_task(service.append_event(session, told("Milk?")))
        await asyncio.sleep(0)  # it is under way in its thread
        reading = asyncio.create_task(get())
        await asyncio.sleep(0)
        assert 1 == len(hops)
        goes_on.set()
        await asyncio.gather(writing, reading)

    asyncio.run(talk())


def test_only_so_many_sessions_stay_open(here: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_service, "_MAX_OPEN", 2)
    service = PalaverSessionService(here)

    async def talk() -> None:
        sessions = [await service.create_session(**HERE, session_id=name) for name in "abc"]
        assert ["b", "c"] == list(service._open)
        for session in sessions:
            await service.append_event(session, told(session.id))
            await service.flush()
            found = await service.get_session(**HERE, session_id=session.id)
            assert found is not None
            assert session.events == found.events
        assert ["b", "c"] == list(service._open)

    asyncio.run(talk())


def test_recent_events_are_read_alone(here: Store) -> None:
    service = PalaverSessionService(here)

    async def talk() -> None:
        session = await service.create_session(**TALK)
        for number in range(5):
            await service.append_event(session, told(str(number), timestamp=float(number + 1)))
        config = GetSessionConfig(num_recent_events=2)
        found = await service.get_session(**TALK, config=config)
        assert found is not None
        assert session.events[-2:] == found.events
        here.get("talk").rewrite([range(1, 5)])
        await service.append_event(found, told("5"))  # the edit brings no more events than asked
        assert ["3", "4", "5"] == [from_event(event).text for event in found.events]
        after = GetSessionConfig(after_timestamp=4.0)
        found = await service.get_session(**TALK, config=after)
        assert found is not None
        assert [4.0, 5.0] == [event.timestamp for event in found.events[:2]]
        local = told("only here")
        found.events.append(local)  # as ADK's workflow does
        here.get("talk").undo()
        await service.append_event(found, told("6"))
        assert local in found.events

    asyncio.run(talk())


def test_an_event_that_is_sent_again_is_stored_once(store: Store) -> None:
    service = PalaverSessionService(store)

    async def talk() -> None:
        session = await service.create_session(**TALK)
        event = told("Tea?")
        for again in (event, event, event.model_copy(deep=True)):
            await service.append_event(session, again)
        await service.append_event(session, told("Rum?", id=event.id))
        await service.append_event(session, told("Partly", partial=True))
        assert ["Tea?", "Rum?"] == [message.text for message in store.get("talk")]
        await service.delete_session(**TALK)
        await service.delete_session(**TALK)
        for lost in (session, session.model_copy(deep=True)):
            with pytest.raises(SessionNotFoundError):
                await service.append_event(lost, told("Wine?"))

    asyncio.run(talk())


def test_an_event_is_looked_for_where_a_session_does_not_have_all(here: Store) -> None:
    """A session that was read in part, or whose events were edited, does not know by itself."""
    service = PalaverSessionService(here)

    async def talk() -> None:
        session = await service.create_session(**TALK)
        events = [told(text) for text in ("Tea?", "Rum?")]
        for event in events:
            await service.append_event(session, event)
        config = GetSessionConfig(num_recent_events=1)
        partly = await service.get_session(**TALK, config=config)
        assert partly is not None
        await service.flush()
        await service.append_event(partly, events[0].model_copy(deep=True))
        assert ["Tea?", "Rum?"] == [message.text for message in here.get("talk")]
        here.get("talk").rewrite([range(1, 2)])
        await service.append_event(partly, told("Wine?"))
        await service.append_event(partly, events[0])
        assert ["Rum?", "Wine?", "Tea?"] == [message.text for message in here.get("talk")]
        await service.flush()
        await service.append_event(session, told("Milk?"))
        assert ["Rum?", "Wine?", "Tea?", "Milk?"] == [from_event(e).text for e in session.events]
        here.get("talk").rewrite([range(1, 4)])
        await service.append_event(session, events[1])
        assert ["Wine?", "Tea?", "Milk?", "Rum?"] == [message.text for message in here.get("talk")]

    asyncio.run(talk())


def test_an_edit_between_two_turns_is_in_the_session_after_the_next_event(store: Store) -> None:
    """The session object is the same; nobody else has had the turn."""
    service = PalaverSessionService(store)

    async def talk() -> None:
        session = await service.create_session(**TALK)
        for text in ("Tea?", "Rum?"):
            await asyncio.create_task(service.append_event(session, told(text)))
        await asyncio.sleep(0.2)  # the turn of the last task is over
        store.get("talk").rewrite([range(1)])
        await asyncio.create_task(service.append_event(session, told("Milk?")))
        assert ["Tea?", "Milk?"] == [from_event(event).text for event in session.events]
        assert ["Tea?", "Milk?"] == [message.text for message in store.get("talk")]

    asyncio.run(talk())


def test_a_session_of_another_service_can_be_written_to(here: Store) -> None:
    """A session may have gone through JSON, as between processes."""
    service = PalaverSessionService(here)

    async def talk() -> None:
        session = await service.create_session(**TALK)
        again = type(session).model_validate_json(session.model_dump_json())
        await service.append_event(again, told("Tea?"))
        runner = Runner(app_name=APP, agent=agent("http://nowhere"), session_service=service)
        await runner.close()
        assert ["Tea?"] == [message.text for message in here.get("talk")]

    asyncio.run(talk())
    assert isinstance(InMemorySessionService(), BaseSessionService)  # what it stands in for
    assert isinstance(service, BaseSessionService)


def test_an_append_that_began_ends_before_its_run_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was cancelled holds the session until its event is stored; then another may write."""
    service = PalaverSessionService(palaver.open(":memory:"))
    begun, go = threading.Event(), threading.Event()
    append = service._append

    def slow(*args: Any) -> None:
        begun.set()
        assert go.wait(60)
        append(*args)

    async def talk() -> None:
        session = await service.create_session(**TALK)
        monkeypatch.setattr(service, "_append", slow)
        run = asyncio.create_task(service.append_event(session, told("Tea?")))
        assert await asyncio.to_thread(begun.wait, 60)
        run.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not run.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert ["user"] == roles(service._store)

    try:
        asyncio.run(talk())
    finally:
        go.set()
