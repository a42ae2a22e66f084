"""palaver's session in real runs of the OpenAI Agents SDK, against providers on this machine."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from agents import Runner, RunState, function_tool
from agents.memory import Session as Protocol
from agents.memory import SessionSettings

import palaver
from compat.openai_agents import OPENAI, REPAIRED, agent, ask, main, stream
from palaver.adapters.openai_agents import PalaverSession
from palaver.errors import StoreDamaged, UnknownConversation
from palaver.messages import ToolCallPart, assistant, parse_message
from palaver.testing.servers import Answer, Call, ProviderServer, Scripted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from palaver.stores import StoredHistory
    from palaver.stores.store import Store
    from palaver.testing.providers import FormatName


def looks(city: str, reasoning: str = "") -> Answer:
    return Answer("Let me see.", reasoning=reasoning, calls=(Call("weather", {"city": city}),))


@pytest.fixture
def run() -> Iterator[Callable[..., Any]]:
    """One loop for a test: an HTTP client does not outlive the one it was used in."""
    with asyncio.Runner() as runner:
        yield runner.run


def sent(server: ProviderServer) -> list[Any]:
    """What the last request held of the conversation, without the system text."""
    body = server.requests[-1].body
    found = body["input"] if "input" in body else body["messages"]
    return [item for item in found if item.get("role") not in ("system", "developer")]


def words_of(items: list[Any]) -> str:
    return json.dumps(items)


@pytest.mark.parametrize("form", OPENAI)
@pytest.mark.parametrize("asked", [ask, stream])
def test_an_agent_with_tools_talks_over_several_turns(
    run: Callable[..., Any], store: Store, form: FormatName, asked: Callable[..., Awaitable[str]]
) -> None:
    """Each turn sees the ones before; palaver has the roles, the calls and the words of it."""
    script: list[Scripted] = [
        looks("Rome", "They want Rome."),
        "Sunny in Rome.",
        looks("Oslo"),
        "Sunny in Oslo.",
    ]
    session = PalaverSession(store, "talk")
    with ProviderServer(form, script) as server:
        ada = agent(server.url, form)

        async def talk() -> list[str]:
            return [await asked(ada, f"Weather in {city}?", session) for city in ("Rome", "Oslo")]

        assert ["Sunny in Rome.", "Sunny in Oslo."] == run(talk())
    assert [] == server.failures
    assert "Sunny in Rome." in words_of(sent(server))
    history = store.get("talk")
    turn = ["user", "assistant", "tool", "assistant"]
    assert turn * 2 == [message.role for message in history.view]
    (call,) = [part for part in history.view[1].parts if isinstance(part, ToolCallPart)]
    assert ("weather", {"city": "Rome"}) == (call.tool, dict(call.input))
    assert ["Let me see.", "Sunny in Rome."] == [history.view[i].text for i in (1, 3)]
    assert {"talk"} == {hit.conversation for hit in store.search("degrees Oslo")}


@pytest.mark.parametrize("form", OPENAI)
def test_a_handoff_is_carried(run: Callable[..., Any], store: Store, form: FormatName) -> None:
    script: list[Scripted] = [
        Answer(calls=(Call("transfer_to_bob", {}),)),
        "Bob here.",
        "Still Bob.",
    ]
    session = PalaverSession(store, "talk")
    with ProviderServer(form, script) as server:
        bob = agent(server.url, form, name="Bob", tools=[])
        ada = agent(server.url, form, handoffs=[bob])

        async def talk() -> list[str]:
            return [await ask(ada, "Get me Bob.", session), await ask(bob, "Bob?", session)]

        assert ["Bob here.", "Still Bob."] == run(talk())
    assert [] == server.failures
    roles = ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert roles == [message.role for message in session.history.view]


@pytest.mark.parametrize("form", OPENAI)
@pytest.mark.parametrize("asked", [ask, stream])
def test_what_is_repaired_is_the_request_and_not_the_session(
    run: Callable[..., Any], store: Store, form: FormatName, asked: Callable[..., Awaitable[str]]
) -> None:
    """An output without a call stays stored, and reaches no provider."""
    orphan: Any = {"type": "function_call_output", "call_id": "c1", "output": "21 degrees"}
    session = PalaverSession(store, "talk")
    run(session.add_items([orphan]))
    with ProviderServer(form, [looks("Rome"), "Sunny."]) as server:
        run(asked(agent(server.url, form), "Weather in Rome?", session, REPAIRED))
        assert "c1" not in [item.get("call_id", item.get("tool_call_id")) for item in sent(server)]
    assert [] == server.failures
    assert orphan == run(session.get_items())[0]


def _drop_result(history: StoredHistory) -> None:
    history.rewrite([range(2), range(3, 4)])


def _drop_answer(history: StoredHistory) -> None:
    history.rewrite([range(1), range(2, 4)])


def _keep_last(history: StoredHistory) -> None:
    history.truncate(keep_last=2)


def _reword(history: StoredHistory) -> None:
    history.replace(3, assistant("Rain in Rome."))


@pytest.mark.parametrize("form", OPENAI)
@pytest.mark.parametrize(
    ("edit", "gone", "there"),
    [
        (_drop_result, "21 degrees", "Let me see."),
        (_drop_answer, "Let me see.", "Sunny in Rome."),
        (_keep_last, "Weather in Rome?", "Sunny in Rome."),
        (_reword, "Sunny in Rome.", "Rain in Rome."),
    ],
)
def test_an_edit_is_what_the_provider_is_sent_next(  # noqa: PLR0917 - fixtures and cases
    run: Callable[..., Any],
    store: Store,
    form: FormatName,
    edit: Callable[[StoredHistory], None],
    gone: str,
    there: str,
) -> None:
    """Whatever was taken out, the next request is valid; undone, all of it is sent again.

    The SDK itself leaves a call of the history out that has no output.
    """
    session = PalaverSession(store, "talk")
    script: list[Scripted] = [
        looks("Rome", "They want Rome."),
        "Sunny in Rome.",
        "Well.",
        "Well again.",
    ]
    with ProviderServer(form, script) as server:
        ada = agent(server.url, form)
        run(ask(ada, "Weather in Rome?", session))
        before = run(session.get_items())
        edit(store.get("talk"))
        run(ask(ada, "And now?", session, REPAIRED))
        assert gone not in words_of(sent(server))
        assert there in words_of(sent(server))
        history = store.get("talk")
        for _ in range(3):  # the answer, the question, the edit
            history.undo()
        assert before == run(session.get_items())
        run(ask(ada, "And now?", session))
        assert gone in words_of(sent(server))
    assert [] == server.failures


@pytest.mark.parametrize("form", OPENAI)
@pytest.mark.parametrize("limit", range(1, 9))
def test_a_limit_parts_no_call_from_its_output(
    run: Callable[..., Any], store: Store, form: FormatName, limit: int
) -> None:
    session = PalaverSession(store, "talk", session_settings=SessionSettings(limit=limit))
    script: list[Scripted] = [
        looks("Rome", "They want Rome."),
        "Sunny.",
        looks("Oslo", "Oslo then."),
        "Sunny.",
    ]
    with ProviderServer(form, [*script, "Bye."]) as server:
        ada = agent(server.url, form)
        for words in ("Weather in Rome?", "And Oslo?", "Bye?"):
            run(ask(ada, words, session, REPAIRED))
    assert [] == server.failures
    assert limit >= len(run(session.get_items()))


NURSERY = multiprocessing.get_context("forkserver")
NURSERY.set_forkserver_preload(["compat.openai_agents"])
# before and after each of the three writes; -1: while the tool runs
KILLED = [("openai-responses", moment) for moment in range(-1, 6)] + [("openai-chat", -1)]


@pytest.mark.parametrize(("form", "moment"), KILLED)
def test_a_killed_run_is_taken_up_again(
    run: Callable[..., Any], tmp_path: Path, form: FormatName, moment: int
) -> None:
    """What was acknowledged is there, once; and the next run is valid, whatever was under way."""
    killed(run, str(tmp_path / "chat.db"), form, moment, tmp_path)


@pytest.mark.parametrize("moment", [-1, 3])
def test_a_killed_run_is_taken_up_again_on_postgres(
    run: Callable[..., Any], postgres: str, tmp_path: Path, moment: int
) -> None:
    killed(run, postgres, "openai-responses", moment, tmp_path)


def killed(
    run: Callable[..., Any], address: str, form: FormatName, moment: int, tmp_path: Path
) -> None:
    with ProviderServer(form, [looks("Rome", "Rome."), "Sunny in Rome."]) as server:
        told = tmp_path / "told"
        told.touch()
        child = NURSERY.Process(target=main, args=(address, server.url, form, moment, told))
        child.start()
        child.join(120)
        assert -9 == child.exitcode
        added = [item for line in told.read_text().splitlines() for item in json.loads(line)]
        with palaver.open(address) as store:
            session = PalaverSession(store, "talk")
            there = run(session.get_items())
            assert added == [item for item in there if item in added]
            assert len(there) - len(added) in ((0,) if moment % 2 or moment < 0 else (0, 1, 2, 3))
            assert run(ask(agent(server.url, form), "Hello?", session))
            assert [] == server.failures
            assert [] == list(store.verify())


def test_two_workers_lose_nothing(run: Callable[..., Any], address: str) -> None:
    """Both add to one session at the same time, each with a store of its own."""
    turn: list[Any] = [
        {"role": "user", "content": "Tea?"},
        {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "Yes.", "annotations": []}]},
    ]  # fmt: skip

    async def work(session: PalaverSession, name: str) -> None:
        for number in range(20):
            asked: Any = {**turn[0], "content": f"{name} {number}"}
            await session.add_items([asked, turn[1]])

    async def both(one: PalaverSession, other: PalaverSession) -> None:
        await asyncio.gather(work(one, "a"), work(other, "b"))

    with palaver.open(address) as first, palaver.open(address) as second:
        run(both(PalaverSession(first, "talk"), PalaverSession(second, "talk")))
        items = run(PalaverSession(first, "talk").get_items())
        texts = [str(item.get("content")) for item in items if item.get("role") == "user"]
        assert {f"{name} {number}" for name in "ab" for number in range(20)} == set(texts)
        assert 80 == len(items)
        assert [f"a {n}" for n in range(20)] == [text for text in texts if text[0] == "a"]


def test_a_session_begins_with_its_first_items_in_one_change(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was looked for a moment ago is not looked for again."""
    store = palaver.open(":memory:")
    session = PalaverSession(store, "talk")
    assert [] == run(session.get_items())
    monkeypatch.setattr(store.backend, "head", None)
    items: Any = [{"role": "user", "content": "Tea?"}, {"role": "user", "content": "Or rum?"}]
    run(session.add_items(items))
    monkeypatch.undo()
    assert (0, 2) == (store.head("talk").version, store.head("talk").length)
    assert items == run(session.get_items())


def test_what_others_begin_or_delete_meanwhile_is_gone_on_with(
    run: Callable[..., Any], address: str
) -> None:
    """Two sessions that found nothing both add, and one adds after a conversation was deleted."""
    said: list[Any] = [{"role": "user", "content": text} for text in ("one", "two", "three")]
    with palaver.open(address) as first, palaver.open(address) as second:
        one, other = PalaverSession(first, "talk"), PalaverSession(second, "talk")
        assert [[], []] == [run(one.get_items()), run(other.get_items())]
        run(one.add_items(said[:1]))
        run(other.add_items(said[1:2]))
        assert said[:2] == run(one.get_items()) == run(other.get_items())
        third = PalaverSession(first, "talk")
        first.delete("talk")
        run(third.add_items(said[2:]))
        assert said[2:] == run(PalaverSession(second, "talk").get_items())


def test_a_worker_that_listeners_may_run_on_is_not_kept_near_the_loop(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    """What a listener starts may run on every processor."""
    with palaver.open(tmp_path / "talk.db") as store:
        session = PalaverSession(store, "talk")
        assert session._patience is not None
        assert session._patience.together
        session.history.title  # noqa: B018 - whoever has it may listen
        assert not session._patience.together
        run(session.add_items([{"role": "user", "content": "Tea?"}]))


@pytest.mark.parametrize("batch", [1, 20])
def test_two_workers_pop_different_items(run: Callable[..., Any], address: str, batch: int) -> None:
    """Whether the items are messages of their own or of one answer."""
    calls: list[Any] = [
        {"type": "function_call", "call_id": str(number), "name": "f", "arguments": "{}"}
        for number in range(20)
    ]

    async def pop(session: PalaverSession) -> list[Any]:
        return [await session.pop_item() for _ in range(10)]

    async def both(one: PalaverSession, other: PalaverSession) -> list[Any]:
        for start in range(0, 20, batch):
            await one.add_items(calls[start : start + batch])
        found = await asyncio.gather(pop(one), pop(other))
        return [item["call_id"] for items in found for item in items]

    with palaver.open(address) as first, palaver.open(address) as second:
        popped = run(both(PalaverSession(first, "talk"), PalaverSession(second, "talk")))
    assert sorted(map(str, range(20))) == sorted(popped)


@pytest.mark.parametrize("form", OPENAI)
def test_a_run_that_waits_for_a_person_goes_on(
    run: Callable[..., Any], store: Store, form: FormatName
) -> None:
    """The call is in the log while it waits; its output comes in a later run, under its tool."""

    @function_tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    session = PalaverSession(store, "talk")
    with ProviderServer(form, [Answer(calls=(Call("pay", {"amount": 5}),)), "Paid."]) as server:
        ada = agent(server.url, form, tools=[pay])

        async def talk() -> str:
            paused = await Runner.run(ada, "Pay 5.", session=session)
            state = await RunState.from_json(ada, paused.to_state().to_json())
            state.approve(state.get_interruptions()[0])
            return str((await Runner.run(ada, state, session=session)).final_output)

        assert "Paid." == run(talk())
    assert [] == server.failures
    results = [part for m in session.history.view for part in m.parts if part.type == "tool"]
    assert ["pay"] == [getattr(part, "tool", None) for part in results]


def test_a_session_is_what_the_sdk_asks_for(run: Callable[..., Any]) -> None:
    store = palaver.open(":memory:")
    session = PalaverSession(store, "talk", session_settings={"limit": 3})
    assert isinstance(session, Protocol)
    assert 3 == session.session_settings.limit if session.session_settings else False
    assert [] == run(session.get_items())
    assert None is run(session.pop_item())
    run(session.add_items([]))
    run(session.clear_session())
    with pytest.raises(UnknownConversation):
        store.get("talk")
    assert "talk" == session.history.id
    assert "talk" == PalaverSession(session.history).session_id
    with pytest.raises(ValueError, match="another id"):
        PalaverSession(session.history, "walk")
    with pytest.raises(ValueError, match="no id"):
        PalaverSession(store)


def test_a_session_that_is_closed_says_so(run: Callable[..., Any]) -> None:
    """The store stays open for others: it belongs to whoever opened it."""
    store = palaver.open(":memory:")
    session = PalaverSession(store, "talk")
    run(session.add_items([{"role": "user", "content": "Tea?"}]))
    session.close()
    session.close()
    again: Callable[[], Any]
    for again in (
        session.get_items,
        session.pop_item,
        session.clear_session,
        lambda: session.add_items([]),
        lambda: session.add_items([{"role": "user", "content": "Rum?"}]),
    ):
        with pytest.raises(
            RuntimeError, match="PalaverSession is closed: make a new one of 'talk'"
        ):
            run(again())
    assert ["Tea?"] == [message.text for message in store.get("talk")]
    assert 1 == len(run(PalaverSession(store, "talk").get_items()))


def test_a_conversation_that_is_still_empty_can_be_a_session(run: Callable[..., Any]) -> None:
    session = PalaverSession(palaver.open(":memory:").create())
    for text in ("Tea?", "Rum?"):
        run(session.add_items([{"role": "user", "content": text}]))
        assert [{"role": "user", "content": text}] == run(session.get_items())
        run(session.clear_session())


def test_clearing_leaves_nothing_in_the_view_and_all_in_the_log(run: Callable[..., Any]) -> None:
    session = PalaverSession(palaver.open(":memory:"), "talk")
    items: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Tea?"}]
    run(session.add_items(items))
    run(session.clear_session())
    assert [] == run(session.get_items())
    session.history.undo()
    assert items == run(session.get_items())


def test_a_run_that_is_called_off_knows_how_its_write_ended(run: Callable[..., Any]) -> None:
    """The cancellation comes through, and what was being added is there."""
    session = PalaverSession(palaver.open(":memory:"), "talk")

    async def called_off() -> None:
        session._lock.acquire()
        task = asyncio.ensure_future(session.add_items([{"role": "user", "content": "Tea?"}]))
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.sleep(0.02)
        assert not task.done()
        session._lock.release()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(called_off())
    assert [{"role": "user", "content": "Tea?"}] == run(session.get_items())


def test_a_read_that_is_called_off_is_left_behind() -> None:
    session = PalaverSession(palaver.open(":memory:"), "talk")

    async def called_off() -> None:
        await session.add_items([{"role": "user", "content": "Tea?"}])
        with session._lock:  # it can't be answered yet
            task = asyncio.ensure_future(session.get_items())
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert [{"role": "user", "content": "Tea?"}] == await session.get_items()

    asyncio.run(called_off())


def test_a_session_longer_than_the_cache_is_read_and_added_to(
    here: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read from the end stays in the cache; it does not begin anew with every read."""
    monkeypatch.setattr("palaver.adapters.openai_agents.session._MAX_ENCODED", 4)
    said: Any = [{"role": "user", "content": str(number)} for number in range(9)]

    async def go() -> None:
        session = PalaverSession(here, "talk")
        await session.add_items(said[:8])
        assert await session.get_items() == said[:8]
        again = PalaverSession(here, "talk")
        assert await again.get_items() == said[:8]
        assert not again._encoded  # the first read is often the only one
        assert await again.get_items() == said[:8]
        newest = {message.id for message in here.get("talk").view[-4:]}
        assert set(again._encoded) == newest
        assert await again.get_items(2) == said[6:8]
        assert set(again._encoded) == newest
        await again.add_items(said[8:])
        assert (len(again._encoded), await again.get_items()) == (1, said)

    asyncio.run(go())


def test_a_session_that_is_made_anew_reads_what_is_stored(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same items as the session that wrote them, all or the last, edited or erased."""
    turns: list[list[Any]] = [
        [{"role": "user", "content": f"{number}?"},
         {"type": "reasoning", "id": f"rs_{number}", "summary": [], "content": []},
         {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}",
          "name": "weather", "arguments": "{}", "status": "completed"},
         {"type": "function_call_output", "call_id": f"call_{number}", "output": "sun"}]
        for number in range(7)
    ]  # fmt: skip
    monkeypatch.setattr("palaver.adapters.openai_agents.session._PAGE", 4)

    async def go() -> None:
        session = PalaverSession(store, "talk")
        for turn in turns:
            await session.add_items(turn)
        await check(session)
        session.history.truncate(remove_last=3)
        session.history.replace(4, assistant("Sun, it seems."))
        await check(session)
        session.history.erase(0)
        session.history.insert(
            2, [parse_message({"role": "user", "content": [{"type": "hologram", "id": "h1"}]})]
        )
        await check(session)
        fork = PalaverSession(session.history.fork())
        await fork.add_items(turns[0])
        await check(fork)

    async def check(session: PalaverSession) -> None:
        items = await session.get_items()
        for limit in (None, *range(1, len(items) + 2)):
            fresh = PalaverSession(store, session.session_id)
            assert items[-(limit or len(items)) :] == await fresh.get_items(limit)
            assert items[-(limit or len(items)) :] == await fresh.get_items(limit)

    asyncio.run(go())


def test_the_first_read_makes_no_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: Any = [{"role": "user", "content": str(number)} for number in range(9)]

    async def go() -> None:
        with palaver.open(tmp_path / "chat.db") as store:
            await PalaverSession(store, "talk").add_items(said)
            monkeypatch.setattr("palaver.stores.sqlite.backend.SQLiteBackend.messages", None)
            assert said == await PalaverSession(store, "talk").get_items()

    asyncio.run(go())


def test_a_damaged_message_is_reported_at_the_first_read(tmp_path: Path) -> None:
    async def go() -> None:
        with palaver.open(tmp_path / "chat.db") as store:
            await PalaverSession(store, "talk").add_items([{"role": "user", "content": "Tea?"}])
        with closing(sqlite3.connect(tmp_path / "chat.db")) as file:
            file.execute("UPDATE messages SET body = replace(body, 'user', 'robot')")
            file.commit()
        with palaver.open(tmp_path / "chat.db") as store, pytest.raises(StoreDamaged):
            await PalaverSession(store, "talk").get_items()

    asyncio.run(go())


def test_an_encrypted_session_is_read_anew(tmp_path: Path) -> None:
    asked: Any = [{"role": "user", "content": "Tea?"}]

    async def go() -> None:
        with palaver.open(tmp_path / "chat.db", key=palaver.Key.generate()) as store:
            await PalaverSession(store, "talk").add_items(asked)
            assert asked == await PalaverSession(store, "talk").get_items()

    asyncio.run(go())
