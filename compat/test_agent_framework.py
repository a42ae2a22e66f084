"""Agent Framework's sessions over palaver's."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from agent_framework import (
    AgentSession,
    CompactionProvider,
    Content,
    FileHistoryProvider,
    FunctionTool,
    InMemoryHistoryProvider,
    Message,
    MiddlewareTermination,
    SlidingWindowStrategy,
    chat_middleware,
    function_middleware,
    tool,
)

import palaver
from compat.agent_framework_agent import (
    ScriptedClient,
    agent,
    ask,
    call,
    keep_talking,
    run_turns,
    said,
)
from palaver.adapters.agent_framework import (
    PalaverCheckpointStorage,
    PalaverHistoryProvider,
    history_provider,
)
from palaver.errors import LeaseLost, LeaseTaken, ValidationError
from palaver.messages import ToolPart, assistant, system, user
from palaver.wire.pairing import INTERRUPTED
from tests.profiles import steps

if TYPE_CHECKING:
    from pathlib import Path

    from palaver.stores import Store

NURSERY = multiprocessing.get_context("forkserver")
NURSERY.set_forkserver_preload(["compat.agent_framework_agent"])


# ── real runs ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("each_step", [True, False])
def test_an_agent_with_tools_sees_edits_rollbacks_and_forks(
    store: Store, *, each_step: bool
) -> None:
    client = ScriptedClient(call(), "It is sunny.", "Bye.", "Bye again.", "Elsewhere.")
    provider = PalaverHistoryProvider(store)

    def asked(question: str, session: str = "talk") -> str:
        return asyncio.run(ask(agent(client, provider, each_step=each_step), question, session))

    assert asked("Weather in Rome?") == "It is sunny."
    history = provider.history("talk")
    assert [each.role for each in history.view] == ["user", "assistant", "tool", "assistant"]
    assert said(client.requests[1])[1:] == ["Let me see.+function_call", "function_result"]
    history.truncate(keep_first=2)
    asked("Bye?")
    assert said(client.requests[-1]) == [
        "Weather in Rome?", "Let me see.+function_call", "function_result", "Bye?"
    ]  # fmt: skip
    assert client.requests[-1][2].contents[0].result == INTERRUPTED
    history.refresh()
    history.rollback(0)
    asked("Bye?")
    assert said(client.requests[-1])[3:] == ["It is sunny.", "Bye?"]
    other = history.refresh().fork(id="another way")
    asked("Where?", "another way")
    assert len(other.refresh().view) == len(history.refresh().view) + 2
    assert [hit.message.text for hit in store.search("elsewhere")] == ["Elsewhere."]


def test_an_edit_in_mid_run_is_in_the_next_request(store: Store) -> None:
    client = ScriptedClient("Hello.", call(), "Done.")
    provider = PalaverHistoryProvider(store)

    def forget() -> None:
        store.get("talk").truncate(remove_first=2)

    talking = agent(client, provider, meanwhile=forget)
    asyncio.run(ask(talking, "Hi."))
    asyncio.run(ask(talking, "Weather?"))
    assert said(client.requests[1]) == ["Hi.", "Hello.", "Weather?"]
    assert said(client.requests[2]) == [
        "Weather?", "Let me see.+function_call", "function_result"
    ]  # fmt: skip


def test_a_call_that_is_removed_in_mid_run_takes_its_result_along(here: Store) -> None:
    client = ScriptedClient(call(), "Done.")

    def forget() -> None:
        here.get("talk").truncate(remove_last=1)

    talking = agent(client, PalaverHistoryProvider(here), meanwhile=forget)
    asyncio.run(ask(talking, "Weather?"))
    assert said(client.requests[1]) == ["Weather?"]
    assert [each.role for each in here.get("talk").view] == ["user", "assistant"]


def test_a_streamed_run(here: Store) -> None:
    client = ScriptedClient(call(), "Sunny.")
    talking = agent(client, PalaverHistoryProvider(here))

    async def go() -> str:
        session = talking.create_session(session_id="talk")
        stream = talking.run("Weather?", session=session, stream=True)
        return "".join([update.text async for update in stream])

    assert asyncio.run(go()) == "Let me see.Sunny."
    roles = [each.role for each in here.get("talk").view]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert here.lease("talk", "another", seconds=1).holder == "another"


def test_any_conversation_is_a_session(store: Store) -> None:
    store.create([system("Be kind."), user("Tea?"), assistant("Yes.")], id="from elsewhere")
    client = ScriptedClient("Two.")
    asyncio.run(ask(agent(client, PalaverHistoryProvider(store)), "How many?", "from elsewhere"))
    assert said(client.requests[0]) == ["Be kind.", "Tea?", "Yes.", "How many?"]


def test_two_providers_of_one_store_would_store_everything_twice(here: Store) -> None:
    """A second one for an audit has a store of its own, or stores what the first does not."""
    first = PalaverHistoryProvider(here)
    second = PalaverHistoryProvider(here, "audit", load_messages=False)
    client = ScriptedClient("Yes.", "No.")
    with pytest.raises(ValueError, match="'palaver' and 'audit' would store the same messages"):
        asyncio.run(ask(agent(client, first, second), "Tea?"))
    assert [] == list(here)
    with palaver.open(":memory:") as elsewhere:
        second = PalaverHistoryProvider(elsewhere, "audit", load_messages=False)
        asyncio.run(ask(agent(client, first, second), "Tea?"))
        assert ["Tea?", "Yes."] == [each.text for each in elsewhere.get("talk")]
    questions = PalaverHistoryProvider(here, "questions", load_messages=False, store_outputs=False)
    answers = PalaverHistoryProvider(here, store_inputs=False)
    asyncio.run(ask(agent(client, questions, answers), "Rum?"))
    assert {"Tea?", "Yes.", "Rum?", "No."} == {each.text for each in here.get("talk")}
    assert len(here.get("talk")) == 4


def test_the_newest_messages_begin_with_a_question(here: Store) -> None:
    client = ScriptedClient(*(f"a{number}" for number in range(4)))
    talking = agent(client, PalaverHistoryProvider(here, max_messages=3))
    for number in range(4):
        asyncio.run(ask(talking, f"q{number}"))
    assert said(client.requests[-1]) == ["q2", "a2", "q3"]


def test_a_call_that_waits_for_approval_is_carried_out_when_it_is_given(here: Store) -> None:
    @tool(approval_mode="always_require")
    def weather(city: str) -> str:
        """Tell the weather of a city."""
        return f"{city}: sunny"

    for session, words in (("talk", None), ("other talk", "Never mind.")):
        client = ScriptedClient(call(), "Done.")
        talking = agent(client, PalaverHistoryProvider(here), tools=[weather], each_step=False)

        async def go(words: str | None = words, who: Any = talking, name: str = session) -> None:
            session = AgentSession(session_id=name)
            asked = await who.run("Weather?", session=session)
            (request,) = asked.user_input_requests
            decision = Message("user", [request.to_function_approval_response(approved=True)])
            await who.run(decision if words is None else words, session=session)

        asyncio.run(go())
        last = said(client.requests[-1])
        if words is None:
            assert last == ["Weather?", "Let me see.+function_call", "function_result"]
            assert client.requests[-1][2].contents[0].result == "Rome: sunny"
        else:
            assert last == ["Weather?", "Let me see.", "Never mind."]


@pytest.mark.parametrize("each_step", [True, False])
@pytest.mark.parametrize("words", [None, "Never mind."])
def test_a_call_beside_one_that_waits_for_approval_has_one_result(
    here: Store, words: str | None, *, each_step: bool
) -> None:
    @tool(approval_mode="always_require")
    def pay() -> str:
        """Pay for it."""
        return "paid"

    @tool(approval_mode="never_require")
    def weather(city: str) -> str:
        """Tell the weather of a city."""
        return f"{city}: sunny"

    both = [Content.from_function_call("c0", "pay", arguments="{}"), *call("c1")]
    client = ScriptedClient(both, "Done.", "Bye.")
    provider = PalaverHistoryProvider(here)
    talking = agent(client, provider, tools=[pay, weather], each_step=each_step)

    async def go() -> None:
        session = AgentSession(session_id="talk")
        asked = await talking.run("Weather?", session=session)
        (request,) = asked.user_input_requests
        decision = Message("user", [request.to_function_approval_response(approved=True)])
        await talking.run(words or decision, session=session)
        await talking.run("Well.", session=session)

    asyncio.run(go())
    for request in client.requests:
        assert_valid(request)
    if words is None:
        results = [each.result for each in client.requests[1][2].contents]
        assert results == ["paid", "Rome: sunny"]


@pytest.mark.parametrize("each_step", [True, False])
@pytest.mark.parametrize("names", ["host weather", "weather host", "pay host weather"])
def test_a_call_beside_one_that_the_caller_carries_out_has_one_result(
    here: Store, names: str, *, each_step: bool
) -> None:
    tools = [
        FunctionTool(name="host", func=None, input_model={"type": "object"}),
        FunctionTool(name="pay", func=lambda: "paid", approval_mode="always_require"),
        FunctionTool(name="weather", func=lambda: "sunny", approval_mode="never_require"),
    ]
    calls = [Content.from_function_call(name, name, arguments="{}") for name in names.split()]
    client = ScriptedClient(calls, "Done.", "Bye.")
    talking = agent(client, PalaverHistoryProvider(here), tools=tools, each_step=each_step)

    async def go() -> None:
        session = AgentSession(session_id="talk")
        asked = await talking.run("Weather?", session=session)
        answers = [
            request.to_function_approval_response(approved=True)
            if request.type == "function_approval_request"
            else Content.from_function_result(str(request.call_id), result="hosted")
            for request in asked.user_input_requests
        ]
        await talking.run([Message("user", [each]) for each in answers], session=session)
        await talking.run("Well.", session=session)

    asyncio.run(go())
    for request in client.requests:
        assert_valid(request)
    results = {each.call_id: each.result for m in client.requests[1] for each in m.contents}
    wanted = {"host": "hosted", "pay": "paid", "weather": "sunny"}
    assert {name: results[name] for name in names.split()} == {
        name: wanted[name] for name in names.split()
    }


# ── what their own stores lose ──────────────────────────────────────────────────────────────────


def a_turn_that_is_said_twice(provider: Any) -> list[str]:
    client = ScriptedClient("Yes.", "Yes.", "Done.")
    talking = agent(client, provider)
    session = talking.create_session(session_id="talk")

    async def go() -> None:
        for question in ("Again?", "Again?", "Well?"):
            await talking.run(question, session=session)

    asyncio.run(go())
    return said(client.requests[-1])


def test_a_turn_that_is_said_twice_is_stored_twice(store: Store, tmp_path: Path) -> None:
    """Their own stores take the second for a repetition of the transcript, and lose it."""
    for own in (InMemoryHistoryProvider(), FileHistoryProvider(tmp_path)):
        assert a_turn_that_is_said_twice(own) == ["Again?", "Yes.", "Well?"]
    found = a_turn_that_is_said_twice(PalaverHistoryProvider(store))
    assert found == ["Again?", "Yes.", "Again?", "Yes.", "Well?"]


def a_run_that_is_compacted(provider: Any) -> list[str]:
    """A long run sees a window of its steps; the next run has room for everything."""
    client = ScriptedClient(call("a"), call("b"), call("c"), "Sunny.", "Bye.")
    small = SlidingWindowStrategy(keep_last_groups=1)
    long = agent(client, provider, each_step=False, compaction_strategy=small)
    asyncio.run(ask(long, "Weather?"))
    large = SlidingWindowStrategy(keep_last_groups=100)
    asyncio.run(ask(agent(client, provider, compaction_strategy=large), "Bye?"))
    return said(client.requests[-1])


def test_what_one_run_left_out_is_not_lost_for_the_next(store: Store, tmp_path: Path) -> None:
    """microsoft/agent-framework#6972: a compaction marks messages in place, and the store with it.

    There it is the opening message, in the .NET release; in the Python release the compaction of a
    run marks that run's messages, and what it marked stays left out of every later request.
    """
    step = ["Let me see.+function_call", "function_result"]
    whole = ["Weather?", *step * 3, "Sunny.", "Bye?"]
    assert a_run_that_is_compacted(FileHistoryProvider(tmp_path)) != whole
    assert a_run_that_is_compacted(PalaverHistoryProvider(store)) == whole
    assert not any("_excluded" in str(each.metadata) for each in store.get("talk").view)


def questions_under_compaction(provider: Any) -> list[str]:
    """Ask six questions, with a window before and after each run; the store has the questions."""
    client = ScriptedClient(*(f"a{number}" for number in range(6)))
    window = SlidingWindowStrategy(keep_last_groups=1)
    after = CompactionProvider(after_strategy=window, history_source_id=provider.source_id)
    talking = agent(client, provider, after, compaction_strategy=window)
    session = talking.create_session(session_id="talk")

    async def go() -> list[Message]:
        for number in range(6):
            await talking.run(f"q{number}", session=session)
        provider.skip_excluded = False
        found = await provider.get_messages("talk", state=session.state.get(provider.source_id))
        return list(found)

    return [message.text for message in asyncio.run(go())]


def test_no_question_is_lost_with_compaction(store: Store) -> None:
    """Their own store knows messages by ids that the compaction counts from 0 for every request."""
    whole = [f"q{number}" for number in range(6)]
    own = InMemoryHistoryProvider(store_outputs=False, skip_excluded=True)
    assert set(questions_under_compaction(own)) < {*whole}
    mine = PalaverHistoryProvider(store, store_outputs=False)
    assert questions_under_compaction(mine) == whole


def test_a_compaction_of_what_is_stored_is_one_edit_with_undo(store: Store) -> None:
    provider = PalaverHistoryProvider(store)

    async def sum_up(messages: list[Message]) -> bool:
        old = [each for each in messages if not each.additional_properties.get("_excluded")][:-2]
        for each in old:
            each.additional_properties["_excluded"] = True
        if old:
            messages.insert(0, Message("assistant", ["Tea was spoken of."]))
        return bool(old)

    client = ScriptedClient(*(f"a{number}" for number in range(4)))
    summing = CompactionProvider(after_strategy=sum_up, history_source_id=provider.source_id)
    talking = agent(client, provider, summing, each_step=False)
    session = talking.create_session(session_id="talk")

    async def go() -> None:
        for number in range(3):
            await talking.run(f"q{number}", session=session)

    asyncio.run(go())
    history = provider.history("talk")
    assert [each.text for each in history.view] == ["Tea was spoken of.", "q1", "a1", "q2", "a2"]
    assert session.state == {"palaver": {}, "compaction": {}}
    history.rollback(0)
    assert [each.text for each in history.view][:2] == ["q0", "a0"]
    asyncio.run(ask(agent(client, provider), "q3"))
    assert said(client.requests[-1])[:2] == ["q0", "a0"]


def test_a_compaction_that_an_edit_came_before_is_left_out(here: Store) -> None:
    provider = PalaverHistoryProvider(here)
    client = ScriptedClient("a0", call(), "a1")
    window = SlidingWindowStrategy(keep_last_groups=1)
    after = CompactionProvider(after_strategy=window, history_source_id=provider.source_id)

    def edit() -> None:
        here.get("talk").replace(0, user("Q0"))

    talking = agent(client, provider, after, meanwhile=edit, each_step=False)
    asyncio.run(ask(talking, "q0"))
    asyncio.run(ask(talking, "q1"))
    assert [each.text for each in here.get("talk").view][:3] == ["Q0", "a0", "q1"]


def test_what_a_failed_run_left_in_the_session_is_not_stored(here: Store) -> None:
    provider = PalaverHistoryProvider(here)
    session = AgentSession(session_id="talk")

    async def go() -> None:
        await agent(ScriptedClient("Yes."), provider).run("Tea?", session=session)
        with pytest.raises(IndexError):  # the model has no answer left
            await agent(ScriptedClient(), provider, each_step=False).run("Well?", session=session)
        assert session.state["palaver"]["messages"]
        await agent(ScriptedClient("Yes."), provider).run("Milk?", session=session)

    asyncio.run(go())
    assert [each.text for each in here.get("talk").view] == ["Tea?", "Yes.", "Milk?", "Yes."]


def test_a_client_that_repeats_the_transcript_adds_what_is_new(here: Store) -> None:
    provider = PalaverHistoryProvider(here)
    so_far = [Message("user", ["Tea?"]), Message("assistant", ["Yes."], message_id="m1")]

    async def go() -> None:
        await provider.save_messages("talk", so_far)
        await provider.save_messages("talk", [])
        changed = Message("assistant", ["Yes!"], message_id="m1")
        await provider.save_messages("talk", [so_far[0], changed, Message("user", ["Milk?"])])
        await provider.save_messages("talk", [Message("user", ["Tea?"])])

    asyncio.run(go())
    assert [each.text for each in here.get("talk").view] == ["Tea?", "Yes.", "Milk?", "Tea?"]


def test_a_log_of_what_was_said_stores_and_gives_nothing(here: Store) -> None:
    log = PalaverHistoryProvider(here, "log", load_messages=False)
    client = ScriptedClient("Yes.", "No.")
    talking = agent(client, InMemoryHistoryProvider(), log, each_step=False)
    session = talking.create_session(session_id="talk")

    async def go() -> None:
        await talking.run("Tea?", session=session)
        await talking.run("Milk?", session=session)

    asyncio.run(go())
    assert said(client.requests[-1]) == ["Tea?", "Yes.", "Milk?"]
    assert [each.text for each in here.get("talk").view] == ["Tea?", "Yes.", "Milk?", "No."]


# ── killed, and side by side ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("each_step", [True, False])
def test_killed_at_any_moment_nothing_is_lost_and_nothing_twice(
    tmp_path: Path, *, each_step: bool
) -> None:
    address = str(tmp_path / "chat.db")
    told = -1
    for moment in range(steps(2, in_faults=50)):
        here, there = NURSERY.Pipe()
        process = NURSERY.Process(target=keep_talking, args=(address, told + 1, there, each_step))
        process.start()
        assert here.recv() == "ready"
        told = int(here.recv())
        here.poll(0.001 * (moment * 7 % 40))
        process.kill()
        process.join()
        while here.poll():
            try:
                told = int(here.recv())
            except EOFError:
                break
        with palaver.open(address) as store:
            view = store.get("talk").view
            texts = [each.text for each in view if each.role == "assistant"]
            answers = [text for text in texts if text.startswith("answer")]
            assert answers == [f"answer {number}" for number in range(len(answers))]
            assert len(answers) >= told + 1
            told = len(answers) - 1
            client = ScriptedClient("Go on.")
            provider = PalaverHistoryProvider(store, wait_seconds=30)
            asyncio.run(ask(agent(client, provider), "Still there?"))
            assert_valid(client.requests[0])
            store.get("talk").truncate(keep_first=len(view))


def assert_valid(messages: list[Message]) -> None:
    """Every call is followed by its results, and every result follows its call."""
    wanted: list[str | None] = []
    for message in messages:
        contents = message.contents
        assert wanted == [each.call_id for each in contents if each.type == "function_result"]
        wanted = [each.call_id for each in contents if each.type == "function_call"]
    assert not wanted


def test_runs_of_several_processes_never_mix_their_turns(address: str) -> None:
    names = ["one", "two", "three"]
    turns = steps(2, in_faults=10)
    processes = [NURSERY.Process(target=run_turns, args=(address, name, turns)) for name in names]
    with palaver.open(address) as store:
        store.create(id="talk")
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0, 0, 0]
        view = store.get("talk").view
        assert len(view) == len(names) * turns * 4
        for at in range(0, len(view), 4):
            who = view[at].text.removesuffix(" question")
            assert view[at + 3].text == f"{who} answer"
            (part,) = view[at + 2].parts
            assert isinstance(part, ToolPart)
            assert (part.call_id, part.tool) == (who, "weather")


def test_runs_in_one_event_loop_take_turns(here: Store) -> None:
    provider = PalaverHistoryProvider(here)
    talking = [agent(ScriptedClient(call(name), name), provider) for name in ("one", "two")]

    async def go() -> None:
        await asyncio.gather(*(ask(each, "Weather?") for each in talking))

    asyncio.run(go())
    roles = [each.role for each in here.get("talk").view]
    assert roles == ["user", "assistant", "tool", "assistant"] * 2


def test_a_run_waits_only_so_long_for_another(here: Store) -> None:
    here.create(id="talk")
    lease = here.lease("talk", "another", seconds=60)
    client = ScriptedClient("Yes.")
    talking = agent(client, PalaverHistoryProvider(here, wait_seconds=0))
    with pytest.raises(LeaseTaken, match="used by another run"):
        asyncio.run(ask(talking, "Tea?"))
    here.release(lease)
    assert asyncio.run(ask(talking, "Tea?")) == "Yes."


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that are silent for as long as a turn lasts have lost it."""
    monkeypatch.setattr(history_provider, "_SILENT_SECONDS", 0)


def test_a_run_keeps_its_turn_however_long_its_tool_takes(here: Store) -> None:
    provider = PalaverHistoryProvider(here, turn_seconds=0.15)

    def meanwhile() -> None:
        time.sleep(0.5)  # the loop stands still, too
        with pytest.raises(LeaseTaken):
            here.lease("talk", "another", seconds=1)

    talking = agent(ScriptedClient(call(), "Sunny."), provider, meanwhile=meanwhile)
    assert asyncio.run(ask(talking, "Weather?")) == "Sunny."


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("still", [True, False])
def test_a_run_that_lost_its_turn_in_the_middle_is_refused(here: Store, *, still: bool) -> None:
    def take_over() -> None:
        time.sleep(0.2)
        lease = here.lease("talk", "another", seconds=60)
        here.get("talk").extend([user("And me?"), assistant("Yes.")], lease=lease)
        if not still:
            here.release(lease)

    provider = PalaverHistoryProvider(here, turn_seconds=0.05)
    talking = agent(ScriptedClient(call(), "Sunny."), provider, meanwhile=take_over)
    with pytest.raises(LeaseLost, match="went to another run"):
        asyncio.run(ask(talking, "Weather?"))
    assert [each.text for each in here.get("talk").view][-2:] == ["And me?", "Yes."]


@pytest.mark.usefixtures("impatient")
def test_a_run_that_is_stored_as_a_whole_goes_after_another(here: Store) -> None:
    def take_over() -> None:
        time.sleep(0.2)
        lease = here.lease("talk", "another", seconds=60)
        here.get("talk").extend([user("And me?"), assistant("Yes.")], lease=lease)
        here.release(lease)

    provider = PalaverHistoryProvider(here, turn_seconds=0.05)
    talking = agent(
        ScriptedClient(call(), "Sunny."), provider, meanwhile=take_over, each_step=False
    )
    asyncio.run(ask(talking, "Weather?"))
    roles = [each.role for each in here.get("talk").view]
    assert roles == ["user", "assistant", "user", "assistant", "tool", "assistant"]


def test_a_run_that_failed_leaves_the_session_to_others(here: Store) -> None:
    provider = PalaverHistoryProvider(here)

    async def go() -> None:
        with pytest.raises(IndexError):  # the model has no answer left
            await asyncio.create_task(ask(agent(ScriptedClient(), provider), "Tea?"))
        await ask(agent(ScriptedClient("Yes."), provider), "Tea?")

    asyncio.run(go())
    assert [each.text for each in here.get("talk").view] == ["Tea?", "Yes."]


class Model:
    """What may become of a run before it has stored an answer."""

    @staticmethod
    async def fails(who: Any, session: AgentSession) -> None:
        with pytest.raises(IndexError):
            await who.run("Tea?", session=session)

    @staticmethod
    async def is_left(who: Any, session: AgentSession) -> None:
        async for _ in who.run("Tea?", session=session, stream=True):
            break


@pytest.mark.parametrize("each_step", [True, False])
@pytest.mark.parametrize(("answers", "run"), [([], Model.fails), ([["a", "b"]], Model.is_left)])
def test_a_run_that_was_dropped_leaves_the_session_while_its_task_goes_on(
    here: Store, answers: list[Any], run: Any, *, each_step: bool
) -> None:
    texts = [[Content.from_text(text) for text in answer] for answer in answers]
    provider = PalaverHistoryProvider(here)

    async def go() -> None:
        who = agent(ScriptedClient(*texts), provider, each_step=each_step)
        await run(who, AgentSession(session_id="talk"))
        for _ in range(100):
            gc.collect()
            await asyncio.sleep(0.01)
            with suppress(LeaseTaken):
                here.release(here.lease("talk", "another", seconds=1))
                break
        else:
            pytest.fail("the session is still held")
        assert provider._turn("talk") is None
        one, two = (
            agent(ScriptedClient(call(name), name), provider, each_step=each_step)
            for name in ("one", "two")
        )
        await asyncio.gather(ask(one, "Weather?"), ask(two, "Weather?"))

    asyncio.run(go())
    roles = [each.role for each in here.get("talk").view]
    assert roles == ["user", "assistant", "tool", "assistant"] * 2


@function_middleware
async def stop_here(_context: Any, go_on: Any) -> None:
    """End the run after a tool, as a handoff does."""
    await go_on()
    raise MiddlewareTermination


@pytest.mark.parametrize("ending", ["a limit", "a middleware", "the model fails", "time is up"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_run_that_ends_with_a_call_leaves_the_session_while_its_task_goes_on(
    here: Store, ending: str, *, stream: bool
) -> None:
    provider = PalaverHistoryProvider(here, wait_seconds=0)

    @tool(approval_mode="never_require")
    async def weather() -> str:
        """Tell the weather."""
        gc.collect()
        await asyncio.sleep(1 if ending == "time is up" else 0.01)
        with pytest.raises(LeaseTaken):
            here.lease("talk", "another", seconds=1)
        return "sunny"

    client = ScriptedClient(call("a"), *([] if ending == "the model fails" else [call("b")]))
    client.function_invocation_configuration["max_iterations"] = 1
    layers: list[Any] = [stop_here] if ending == "a middleware" else []
    talking = agent(client, provider, tools=[weather], middleware=layers)

    async def go() -> None:
        session = AgentSession(session_id="talk")
        with suppress(IndexError, TimeoutError):
            async with asyncio.timeout(0.2):
                if stream:
                    await talking.run("Tea?", session=session, stream=True).get_final_response()
                else:
                    await talking.run("Tea?", session=session)
        for _ in range(3):
            gc.collect()
            await asyncio.sleep(0.01)
        here.release(here.lease("talk", "another", seconds=1))
        client.answers[:] = ["Yes."]
        assert await ask(talking, "Milk?") == "Yes."
        await ask(agent(ScriptedClient("No."), provider), "Tea?", "another talk")
        assert [len(turns) for turns in provider._tasks.values()] == [0]

    asyncio.run(go())
    assert_valid(client.requests[-1])


@pytest.mark.usefixtures("impatient")
def test_a_run_after_one_that_failed_in_the_same_task_waits_its_turn(here: Store) -> None:
    provider = PalaverHistoryProvider(here, turn_seconds=0.05)
    client = ScriptedClient(call())
    talking = agent(client, provider)
    question = Message("user", ["Weather?"])  # the caller holds it, and so may the run be going on

    async def go() -> None:
        with pytest.raises(IndexError):
            await ask(talking, question)
        await asyncio.sleep(0.2)
        lease = here.lease("talk", "another", seconds=60)
        here.get("talk").extend([user("And me?"), assistant("Yes.")], lease=lease)
        asyncio.get_running_loop().call_later(0.2, here.release, lease)
        client.answers[:] = ["Sunny."]
        assert await ask(talking, "And now?") == "Sunny."

    asyncio.run(go())
    assert_valid(client.requests[-1])
    assert [each.text for each in here.get("talk").view][-2:] == ["And now?", "Sunny."]


def test_a_run_that_stored_a_step_has_its_turn_while_it_is_tried_again(here: Store) -> None:
    provider = PalaverHistoryProvider(here, wait_seconds=0)
    tries: list[int] = []

    @chat_middleware
    async def try_again(_context: Any, go_on: Any) -> None:
        try:
            await go_on()
        except IndexError:
            gc.collect()
            await asyncio.sleep(0.05)
            with pytest.raises(LeaseTaken):
                here.lease("talk", "another", seconds=1)
            tries.append(1)
            client.answers.append("Sunny.")
            await go_on()

    client = ScriptedClient(call())
    talking = agent(client, provider, middleware=[try_again])
    assert asyncio.run(ask(talking, "Weather?")) == "Sunny."
    assert (tries, len(here.get("talk").view)) == ([1], 4)


@pytest.mark.parametrize("pausing", ["approval", "the caller's"])
def test_a_run_that_waits_for_somebody_leaves_the_session_to_others(
    here: Store, pausing: str
) -> None:
    approval = FunctionTool(name="weather", func=lambda: "sunny", approval_mode="always_require")
    theirs = FunctionTool(name="weather", func=None, input_model={"type": "object"})
    tools = [approval if pausing == "approval" else theirs]
    client = ScriptedClient(call(), "Never mind.")

    async def go() -> None:
        talking = agent(client, PalaverHistoryProvider(here), tools=tools)
        await ask(talking, "Weather?")
        here.release(here.lease("talk", "another", seconds=1))
        await ask(talking, "Tea?")

    asyncio.run(go())
    assert_valid(client.requests[1])


def test_an_agent_within_a_tool_may_use_the_same_session(here: Store) -> None:
    provider = PalaverHistoryProvider(here)
    inner = agent(ScriptedClient("Ask Rome."), provider, name="inner")

    @tool(approval_mode="never_require")
    async def consult() -> str:
        """Ask somebody else."""
        return await ask(inner, "Whom?")

    calls = [Content.from_function_call("c1", "consult", arguments="{}")]
    outer = agent(ScriptedClient(calls, "Done."), provider, tools=[consult])
    assert asyncio.run(ask(outer, "Weather?")) == "Done."
    assert here.lease("talk", "another", seconds=1).holder == "another"


def test_many_sessions_and_those_that_were_deleted(here: Store) -> None:
    provider = PalaverHistoryProvider(here)

    async def go() -> None:
        for number in range(130):
            await provider.save_messages(f"talk {number}", [Message("user", ["Tea?"])])
        here.delete("talk 129")
        assert await provider.get_messages("talk 129") == []
        assert await provider.get_messages("no talk") == []
        await provider.save_messages("a\nb", [Message("user", ["Tea?"])])

    asyncio.run(go())
    assert len(provider._histories) <= 128
    assert "a%0Ab" in here


def test_a_task_that_goes_through_many_sessions_remembers_none(here: Store) -> None:
    provider = PalaverHistoryProvider(here)

    async def go() -> None:
        for number in range(5):
            await ask(agent(ScriptedClient("Yes."), provider), "Tea?", f"talk {number}")
        assert [len(turns) for turns in provider._tasks.values()] == [0]
        assert len(history_provider._turns.get() or {}) == 1

    asyncio.run(go())


def test_wrong_arguments_are_refused(here: Store) -> None:
    wrong: Any = "chat.db"
    with pytest.raises(ValidationError):
        PalaverHistoryProvider(wrong)
    with pytest.raises(ValidationError):
        PalaverCheckpointStorage(wrong)
    with pytest.raises(ValueError, match="turn_seconds"):
        PalaverHistoryProvider(here, turn_seconds=0)
    with pytest.raises(ValueError, match="max_messages"):
        PalaverHistoryProvider(here, max_messages=0)
    provider = PalaverHistoryProvider(here)
    with pytest.raises(ValueError, match="needs an id"):
        asyncio.run(provider.get_messages(None))
    number: Any = 7
    with pytest.raises(TypeError, match="must be text"):
        provider.history(number)
