"""The turns of runs on a conversation: leases that are renewed while a run is silent."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from agent_framework import Agent, Message, tool
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from strands.types.exceptions import SessionException

import palaver
from compat import adk_agent, agent_framework_agent, strands_agent
from palaver.adapters import _turns
from palaver.adapters._turns import Turn, check_seconds
from palaver.adapters.adk import PalaverSessionService
from palaver.adapters.agent_framework import PalaverHistoryProvider, history_provider
from palaver.adapters.strands import PalaverSessionManager
from palaver.errors import LeaseTaken, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from palaver.stores import Store


@pytest.fixture
def talk(here: Store) -> Store:
    """A store with a conversation."""
    here.create(id="talk")
    return here


def is_taken(store: Store) -> bool:
    """Whether somebody has the turn; if not, it is left as it was."""
    try:
        store.release(store.lease("talk", "somebody", seconds=1))
    except LeaseTaken:
        return True
    return False


def wait_until(happens: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not happens():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_turn_is_taken_gone_on_with_and_released(talk: Store) -> None:
    turn = Turn(talk, "talk", 60)
    assert [False, True, True] == [turn.take(), turn.take(), turn.take()]
    assert is_taken(talk)
    turn.release()
    turn.release()
    assert not is_taken(talk)
    assert turn.take() is False  # somebody had it
    turn.release()
    assert turn.take() is True
    lease = turn.lease
    assert lease is not None
    turn.let_go()
    assert turn.lease is None
    assert is_taken(talk)
    talk.release(lease)
    assert not is_taken(talk)


def test_a_turn_lasts_while_its_run_is_silent(talk: Store) -> None:
    turns = [Turn(talk, "talk", 0.3), Turn(talk, talk.create(id="other").id, 60)]
    for turn in turns:
        turn.take()
    until = time.monotonic() + 1
    while time.monotonic() < until:
        assert is_taken(talk)
        time.sleep(0.02)
    assert turns[0].take() is True
    turns[0].release()
    assert not is_taken(talk)


def test_a_turn_of_which_nobody_has_the_object_ends(talk: Store) -> None:
    Turn(talk, "talk", 0.1).take()
    wait_until(lambda: not is_taken(talk))


def test_a_run_that_is_silent_for_too_long_has_had_its_turn(talk: Store) -> None:
    turn = Turn(talk, "talk", 0.1, silent_seconds=0.3)
    began = time.monotonic()  # before the turn is taken, which takes a while on a busy machine
    turn.take()
    wait_until(lambda: not is_taken(talk))
    assert time.monotonic() - began > 0.3
    assert turn.take() is False  # somebody had it
    until = time.monotonic() + 0.25
    while time.monotonic() < until:  # and it lasts again
        assert is_taken(talk)
        time.sleep(0.02)
    turn.release()


def test_a_turn_that_went_to_another_run_is_left_to_it(talk: Store) -> None:
    turn = Turn(talk, "talk", 0.15)
    turn.take()
    assert turn.lease is not None
    talk.release(turn.lease)  # as if this process had been asleep for long
    other = talk.lease("talk", "another", seconds=0.5)
    time.sleep(0.2)
    with pytest.raises(LeaseTaken):
        turn.take()
    talk.release(other)
    assert turn.take() is False
    assert turn.take() is True
    turn.release()


def test_a_turn_that_was_free_in_between_is_not_taken_again_by_its_thread(talk: Store) -> None:
    turn = Turn(talk, "talk", 0.3)
    turn.take()
    assert turn.lease is not None
    talk.release(turn.lease)
    talk.release(talk.lease("talk", "another", seconds=60))  # and has ended by now
    wait_until(lambda: not turn._is_watched)
    assert not is_taken(talk)
    assert turn.take() is False
    turn.release()


def test_a_store_that_fails_for_a_moment_costs_no_turn(
    talk: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    turn, lease = Turn(talk, "talk", 0.6), talk.lease
    turn.take()

    def fail(*_given: Any, **_more: Any) -> Any:
        monkeypatch.setattr(talk, "lease", lease)
        raise StoreError("no connection")

    monkeypatch.setattr(talk, "lease", fail)
    wait_until(lambda: "not renewed: no connection" in caplog.text)
    time.sleep(0.6)
    assert is_taken(talk)
    turn.release()


def take_turn(address: str, told: Any) -> None:
    """In a child: a thread of its own renews its turns."""
    turn = Turn(palaver.open(address), "talk", 0.1)
    turn.take()
    told.send("taken")
    time.sleep(60)


def test_a_child_renews_its_turns_itself(tmp_path: Any) -> None:
    address = str(tmp_path / "chat.db")
    with palaver.open(address) as store:
        turn = Turn(store, store.create(id="talk").id, 0.1)
        turn.take()  # whose thread the child lacks
        turn.release()
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe()
    child = fork.Process(target=take_turn, args=(address, there))
    child.start()
    assert here.poll(20)
    with palaver.open(address) as store:
        for _ in range(20):
            assert is_taken(store)
            time.sleep(0.02)
        child.kill()
        child.join()
        wait_until(lambda: not is_taken(store))


def test_one_thread_renews_all_turns(talk: Store) -> None:
    turns = [Turn(talk, talk.create().id, 0.2) for _ in range(20)]
    for turn in turns:
        turn.take()
    assert 1 == sum(each.name == "palaver-turns" for each in threading.enumerate())
    wait_until(lambda: len(_turns._watches[0]._due) >= len(turns))
    for turn in turns:
        turn.release()
    wait_until(lambda: not any(turn._is_watched for turn in turns))


def test_a_turn_of_a_conversation_that_was_deleted_is_renewed_no_more(
    talk: Store, caplog: pytest.LogCaptureFixture
) -> None:
    turn = Turn(talk, "talk", 0.1)
    turn.take()
    talk.delete("talk")
    wait_until(lambda: not turn._is_watched)
    assert not caplog.records


def test_a_failure_of_any_kind_does_not_end_the_thread_of_all_turns(
    talk: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    turn, lease = Turn(talk, "talk", 0.3), talk.lease
    turn.take()

    def fail(*_given: Any, **_more: Any) -> Any:
        monkeypatch.setattr(talk, "lease", lease)
        raise OSError("a backend of somebody's own")

    monkeypatch.setattr(talk, "lease", fail)
    wait_until(lambda: "somebody's own" in caplog.text)
    time.sleep(0.4)
    assert is_taken(talk)
    turn.release()


def test_a_store_that_is_closed_gives_its_turns_back(address: str) -> None:
    """A program that opens its store in the task of its runs is soon started again."""
    with palaver.open(address) as store, palaver.open(":memory:") as other:
        turns = [Turn(each, each.create(id="talk").id, 60) for each in (store, other)]
        for turn in turns:
            turn.take()
        store.close()
        assert [None, True] == [turns[0].lease, turns[1].lease is not None]
        with palaver.open(address) as again:
            assert not is_taken(again)
        assert is_taken(other)


def test_a_process_that_ends_gives_its_turns_back(tmp_path: Any) -> None:
    address = str(tmp_path / "chat.db")
    program = (
        "import palaver; from palaver.adapters._turns import Turn;"
        f"store = palaver.open({address!r}); turn = Turn(store, store.create(id='talk').id, 60);"
        "turn.take()"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert (b"", b"") == (ended.stdout, ended.stderr)
    with palaver.open(address) as store:
        assert not is_taken(store)


def test_a_run_of_adk_leaves_the_session_when_its_store_is_closed(address: str) -> None:

    async def run(question: str) -> None:
        with palaver.open(address) as store:
            service = PalaverSessionService(store, wait_seconds=0)
            if await service.get_session(**adk_agent.TALK) is None:
                await service.create_session(**adk_agent.TALK)
            await adk_agent.ask(adk_agent.scripted("Sunny."), question, service, "talk")

    for question in ("Rome?", "Oslo?"):
        asyncio.run(run(question))
    with palaver.open(address) as store:
        assert adk_agent.TURN * 2 == adk_agent.roles(store)


def test_a_task_that_helps_a_run_of_adk_does_not_end_its_turn(here: Store) -> None:
    service = PalaverSessionService(here)
    taken: list[bool] = []

    async def weather(city: str, tool_context: Any) -> str:
        """Tell the weather of a city."""
        at = tool_context._invocation_context
        event = Event(author="ada", actions=EventActions(state_delta={"city": city}))
        await asyncio.create_task(service.append_event(at.session, event))
        await asyncio.sleep(0.05)
        taken.append(is_taken(here))
        return "sunny"

    async def go() -> None:
        await service.create_session(**adk_agent.TALK)
        who = adk_agent.scripted("Sunny.")
        who.tools = [weather]
        await adk_agent.ask(who, "Rome?", service, "talk")

    asyncio.run(go())
    assert [True] == taken
    wait_until(lambda: not is_taken(here))


def run_forked(agent: Any, who: str) -> None:
    """In a child: runs of an agent that the parent has made."""
    for number in range(3):
        agent.model.answers = [strands_agent.call(f"{who}-{number}"), f"{who} answer"]
        agent(f"{who} question")


def test_an_agent_that_was_forked_has_no_turns_in_common_with_the_other(tmp_path: Any) -> None:
    """As workers have one that their program made before it forked them."""
    address = str(tmp_path / "chat.db")
    with palaver.open(address) as store:
        manager = PalaverSessionManager("talk", store)
        agent = strands_agent.agent(
            strands_agent.ScriptedModel(), manager, lambda: time.sleep(0.05)
        )
        fork = multiprocessing.get_context("fork")
        names = ["one", "two"]
        children = [fork.Process(target=run_forked, args=(agent, name)) for name in names]
        for child in children:
            child.start()
        for child in children:
            child.join()
        assert [0, 0] == [child.exitcode for child in children]
        texts = [message.text.split() for message in store.get("talk").view]
        assert len(texts) == len(names) * 3 * 4
        assert [each[0] for each in texts[::4]] == [each[0] for each in texts[3::4]]


def test_a_fork_takes_no_turn_along(talk: Store) -> None:
    turn = Turn(talk, "talk", 60)
    turn.take()
    with turn._lock:  # as if the thread were renewing it
        child = os.fork()
        if not child:
            signal.alarm(10)  # rather than wait for ever
            turn.release()
            os._exit(turn.lease is not None)
    assert os.waitpid(child, 0)[1] == 0
    assert turn.lease is not None
    turn.release()


def test_what_strands_cannot_append_leaves_the_session_to_others(here: Store) -> None:
    manager = PalaverSessionManager("talk", here)
    agent = strands_agent.agent(strands_agent.ScriptedModel(), manager)
    message: Any = {"role": "user", "content": [{"text": object()}]}
    with pytest.raises(ValueError, match="no JSON"):
        manager.append_message(message, agent)
    assert not is_taken(here)


def test_what_agent_framework_cannot_save_leaves_the_session_to_others(
    here: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: Any, **_more: Any) -> Any:
        raise ValueError("it is too long")

    provider = PalaverHistoryProvider(here)
    monkeypatch.setattr(history_provider, "from_agent_framework", fail)
    with pytest.raises(ValueError, match="too long"):
        asyncio.run(provider.save_messages("talk", [Message("user", ["Tea?"])]))
    assert not is_taken(here)


def test_a_run_that_was_cancelled_needs_no_thread_of_the_loop(here: Store) -> None:
    """They may all be busy with tools that are no coroutines."""
    provider = PalaverHistoryProvider(here)

    class Silent(agent_framework_agent.ScriptedClient):
        def _inner_get_response(self, **_given: Any) -> Any:
            return asyncio.sleep(60)

    async def go() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        agent = agent_framework_agent.agent(Silent(), provider)
        run = asyncio.create_task(agent_framework_agent.ask(agent, "Tea?"))
        await asyncio.sleep(0.2)
        assert is_taken(here)
        ended = threading.Event()
        busy = asyncio.create_task(asyncio.to_thread(ended.wait, 10))
        run.cancel()
        await asyncio.sleep(0.2)
        assert not is_taken(here)
        ended.set()
        await busy

    asyncio.run(go())


def test_a_store_that_is_slow_does_not_stop_the_loop_of_a_run_that_is_cancelled(
    here: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, lease = PalaverHistoryProvider(here, turn_seconds=0.3), here.lease
    began, goes_on = threading.Event(), threading.Event()

    class Silent(agent_framework_agent.ScriptedClient):
        def _inner_get_response(self, **_given: Any) -> Any:
            return asyncio.sleep(60)

    def wait(*given: Any, **more: Any) -> Any:
        began.set()
        goes_on.wait(10)
        return lease(*given, **more)

    async def go() -> None:
        agent = agent_framework_agent.agent(Silent(), provider)
        run = asyncio.create_task(agent_framework_agent.ask(agent, "Tea?"))
        await asyncio.sleep(0.05)
        monkeypatch.setattr(here, "lease", wait)  # of the thread that renews it
        await asyncio.to_thread(began.wait, 10)
        run.cancel()
        await asyncio.sleep(0.05)
        goes_on.set()

    started = time.monotonic()
    asyncio.run(go())
    assert time.monotonic() - started < 5
    monkeypatch.undo()
    wait_until(lambda: not is_taken(here))


def test_runs_after_one_that_their_parent_has_left_take_turns(here: Store) -> None:
    """The run had stored a step, and the tasks have what their parent's context had."""
    provider = PalaverHistoryProvider(here)

    @tool(approval_mode="never_require")
    async def weather(city: str) -> str:
        """Tell the weather of a city."""
        await asyncio.sleep(0.05)
        return city

    def agent(name: str) -> Agent[Any]:
        answers = agent_framework_agent.call(name), f"{name} answer"
        client = agent_framework_agent.ScriptedClient(*answers)
        return agent_framework_agent.agent(client, provider, tools=[weather])

    async def leave(who: Agent[Any]) -> None:
        session = who.create_session(session_id="talk")
        async for update in who.run("left question", session=session, stream=True):
            if update.contents[0].type == "function_result":
                break

    async def go() -> None:
        await leave(agent("left"))
        for _ in range(10):
            gc.collect()
            await asyncio.sleep(0.01)
        runs = [agent_framework_agent.ask(agent(name), name) for name in ("one", "two")]
        await asyncio.gather(*runs)

    asyncio.run(go())
    roles = [each.role for each in here.get("talk").view]
    assert roles == ["user", "assistant", *adk_agent.TURN, *adk_agent.TURN]


def test_a_run_of_agent_framework_whose_loop_was_closed_is_over(here: Store) -> None:
    """A program that was interrupted closes its loop and leaves the task as it is."""
    provider = PalaverHistoryProvider(here, turn_seconds=0.1)
    loop = asyncio.new_event_loop()

    class Silent(agent_framework_agent.ScriptedClient):
        def _inner_get_response(self, **_given: Any) -> Any:
            loop.stop()
            return asyncio.sleep(60)

    agent = agent_framework_agent.agent(Silent(), provider)
    run = loop.create_task(agent_framework_agent.ask(agent, "Tea?"))
    loop.run_forever()
    assert is_taken(here)
    loop.close()
    wait_until(lambda: not is_taken(here))
    pending: Any = run
    pending._log_destroy_pending = False


def test_wrong_times_are_refused() -> None:
    wrong: tuple[Any, ...] = (0, -1, float("nan"), float("inf"), 1e-4, True, "60")
    for seconds in wrong:
        with pytest.raises(ValueError, match="turn_seconds must be a number from"):
            check_seconds(seconds, 0)
    with pytest.raises(ValueError, match="wait_seconds must be a number from 0 on"):
        check_seconds(1, -1)
    check_seconds(0.01, float("inf"))


def test_two_managers_of_a_new_session_begin_it_together(store: Store) -> None:
    start = threading.Barrier(4)

    def begin(_number: int) -> str:
        start.wait()
        return str(PalaverSessionManager("talk", store).session.session_id)

    with ThreadPoolExecutor(4) as threads:
        assert ["talk"] * 4 == [*threads.map(begin, range(4))]


def test_a_session_of_adk_that_is_begun_twice_at_once_is_one(store: Store) -> None:
    service = PalaverSessionService(store)
    given: Any = {"app_name": "tea", "user_id": "ann", "session_id": "talk"}

    async def begin() -> list[Any]:
        twice = service.create_session(**given), service.create_session(**given)
        return [*await asyncio.gather(*twice, return_exceptions=True)]

    begun = asyncio.run(begin())
    assert ["AlreadyExistsError", "Session"] == sorted(type(each).__name__ for each in begun)
    assert ["talk"] == [head.id for head in store]


def test_a_run_that_waits_says_so(
    here: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_turns, "_LOG_AFTER", 0.05)
    here.lease(here.create(id="talk").id, "another program", seconds=60)
    model = strands_agent.ScriptedModel("Yes.")
    manager = PalaverSessionManager("talk", here, wait_seconds=0.3)
    talking = strands_agent.agent(model, manager)
    with pytest.raises(SessionException, match=r"another program has .*longer with wait_seconds"):
        talking("Tea?")
    assert [True] == ["another program has the lease" in text for text in caplog.messages]
