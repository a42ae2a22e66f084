"""Strands' sessions over palaver's."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from strands import Agent, ToolContext, tool
from strands.agent.conversation_manager import (
    NullConversationManager,
    SlidingWindowConversationManager,
    SummarizingConversationManager,
)
from strands.hooks import AfterInvocationEvent, BeforeInvocationEvent
from strands.session.file_session_manager import FileSessionManager
from strands.session.repository_session_manager import RepositorySessionManager
from strands.storage.in_memory_storage import InMemoryStorage
from strands.types.exceptions import (
    ContextWindowOverflowException,
    EventLoopException,
    SessionException,
)
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

import palaver
from compat.strands_agent import (
    ScriptedModel,
    agent,
    call,
    keep_talking,
    result,
    run_turns,
    use,
)
from palaver.adapters.strands import (
    PalaverSessionManager,
    PalaverSessionRepository,
    from_strands,
    repair_messages,
    to_strands,
)
from palaver.adapters.strands.convert import METADATA_KEY
from palaver.errors import LeaseTaken, StoreError, ValidationError
from palaver.messages import assistant, system, user
from palaver.wire.pairing import INTERRUPTED
from tests.history.test_threads import run
from tests.profiles import steps

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from palaver.stores import Store, StoredHistory

NURSERY = multiprocessing.get_context("forkserver")
NURSERY.set_forkserver_preload(["compat.strands_agent"])


def said(messages: Any) -> list[str]:
    """The texts of messages, and what else they have."""
    return [
        "+".join(block.get("text", next(iter(block))) for block in message["content"])
        for message in messages
    ]


# ── calls and their results ─────────────────────────────────────────────────────────────────────


def test_a_session_that_an_interrupted_tool_broke_is_repaired() -> None:
    broken: Any = [
        {"role": "user", "content": [{"text": "Rome?"}]},
        {"role": "assistant", "content": [use("a")]},
        {"role": "user", "content": [result("b"), {"text": "And now?"}]},
        {"role": "assistant", "content": [use("c"), use("d")]},
        {"role": "assistant", "content": [{"text": "Well."}]},
        {"role": "user", "content": [result("d")]},
        {"role": "assistant", "content": [use("e")]},
    ]
    repaired: Any = repair_messages(broken)
    assert said(repaired) == [
        "Rome?", "toolUse", "toolResult+And now?", "toolUse+toolUse", "toolResult+toolResult",
        "Well.", "toolUse",
    ]  # fmt: skip
    answers = [block["toolResult"] for block in repaired[4]["content"]]
    assert [each["content"][0]["text"] for each in answers] == [INTERRUPTED, "sunny"]
    assert repair_messages(repaired) == repaired
    assert broken[2]["content"][0] == result("b")


def restored(messages: list[Any], store: Store, folder: Path, *, own: bool) -> list[Any]:
    """What a model is sent after a restart of a session that was left with some messages."""

    def build() -> Any:
        if own:
            return FileSessionManager("talk", storage_dir=str(folder))
        return PalaverSessionManager("talk", store)

    manager = build()
    agent(ScriptedModel(), manager)
    for number, message in enumerate(messages):
        if own:
            stored = SessionMessage.from_message(message, number)
            manager.create_message("talk", "default", stored)
        else:
            store.get("talk").append(from_strands(message))
    model = ScriptedModel("Well.")
    agent(model, build())("And?")
    return model.requests[0]


def test_no_session_is_bricked_and_no_result_lost(here: Store, tmp_path: Path) -> None:
    """strands-agents/harness-sdk#3651: more results than calls, in every request from then on.

    Their own manager repairs most of it by now: not a result that is there twice, and a result that
    does not follow its call at once is thrown away.
    """
    twice: list[Any] = [
        {"role": "user", "content": [{"text": "Rome?"}]},
        {"role": "assistant", "content": [use("a")]},
        {"role": "user", "content": [result("a"), result("a")]},
        {"role": "assistant", "content": [{"text": "Sunny."}]},
    ]
    with pytest.raises(AssertionError):
        assert_valid(restored(twice, here, tmp_path / "own", own=True))
    assert_valid(restored(twice, here, tmp_path, own=False))
    here.delete("talk")
    mixed: list[Any] = [
        {"role": "user", "content": [{"text": "Rome?"}]},
        {"role": "assistant", "content": [use("a")]},
        {"role": "assistant", "content": [use("b")]},
        {"role": "user", "content": [result("a", "warm"), result("b", "cold")]},
    ]
    theirs = restored(mixed, here, tmp_path / "mixed", own=True)
    assert "warm" not in str(theirs)
    ours = restored(mixed, here, tmp_path, own=False)
    assert_valid(ours)
    assert "warm" in str(ours)
    assert "cold" in str(ours)


@pytest.mark.parametrize(
    "left",
    [
        [[use("a")], [result("b")]],
        [[use("a"), use("b")], [{"text": "Hello?"}]],
        [[use("a")], [result("a"), result("b")]],
        [[use("a")], [{"text": "Hello?"}], [result("a")]],
    ],
    ids=["another's", "none", "one too many", "late"],
)
def test_whatever_an_interrupted_tool_left_is_a_valid_request(
    here: Store, tmp_path: Path, left: list[list[Any]]
) -> None:
    """The shapes of strands-agents/harness-sdk#3651, as a provider would refuse them."""
    messages: list[Any] = [
        {"role": "user", "content": [{"text": "Rome?"}]},
        *(
            {"role": "assistant" if "toolUse" in blocks[0] else "user", "content": blocks}
            for blocks in left
        ),
    ]
    with pytest.raises(AssertionError):
        assert_valid(messages)
    assert_valid(restored(messages, here, tmp_path, own=False))
    here.delete("talk")


# ── a repository under Strands' own session manager ─────────────────────────────────────────────


def test_a_repository(store: Store) -> None:
    repository = PalaverSessionRepository(store)
    session = Session("talk", SessionType.AGENT)
    repository.create_session(session)
    assert repository.read_session("talk") == session
    assert repository.read_session("no talk") is None
    with pytest.raises(SessionException, match="already exists"):
        repository.create_session(session)
    for name in ("first", "second/@ one"):
        repository.create_agent("talk", SessionAgent(name, {"of": name}, {}))
        found = repository.read_agent("talk", name)
        assert found is not None
        assert found.state == {"of": name}
    assert repository.read_agent("talk", "third") is None
    assert {head.id for head in store} == {"talk", "talk@second/%40 one"}
    for number, text in enumerate(["Rome?", "Oslo?", "Bern?"]):
        made = SessionMessage.from_message({"role": "user", "content": [{"text": text}]}, number)
        repository.create_message("talk", "first", made)
    listed = repository.list_messages("talk", "first", limit=1, offset=1)
    assert [(each.message_id, said([each.message])) for each in listed] == [(1, ["Oslo?"])]
    assert repository.read_message("talk", "first", 3) is None
    assert repository.read_message("talk", "third", 0) is None
    assert [hit.message.text for hit in store.search("oslo")] == ["Oslo?"]
    repository.delete_session("talk")
    assert list(store) == []
    with pytest.raises(SessionException, match="does not exist"):
        repository.delete_session("talk")
    made = SessionMessage.from_message({"role": "user", "content": [{"text": "Rome?"}]}, 3)
    with pytest.raises(SessionException, match="does not exist"):
        repository.create_message("talk", "first", made)


def test_a_repository_appends_to_many_sessions_and_to_one_that_is_there_again(here: Store) -> None:
    repository = PalaverSessionRepository(here)

    def say(session: str, number: int) -> None:
        said: Any = {"role": "user", "content": [{"text": str(number)}]}
        repository.create_message(session, "ada", SessionMessage.from_message(said, number))

    for number in range(130):
        repository.create_session(Session(f"talk {number}", SessionType.AGENT))
        repository.create_agent(f"talk {number}", SessionAgent("ada", {}, {}))
        say(f"talk {number}", 0)
    assert len(repository._open) == 128
    other = PalaverSessionRepository(here)
    other.delete_session("talk 129")
    other.create_session(Session("talk 129", SessionType.AGENT))
    other.create_agent("talk 129", SessionAgent("ada", {}, {}))
    say("talk 129", 1)
    here.get("talk 128").append(user("And?"))
    say("talk 128", 2)
    assert [message.text for message in here.get("talk 129").view] == ["1"]
    assert [message.text for message in here.get("talk 128").view] == ["0", "And?", "2"]


def test_a_redacted_message_can_be_had_again(store: Store) -> None:
    repository = PalaverSessionRepository(store)
    manager = RepositorySessionManager("talk", repository)
    talking = agent(ScriptedModel("Never."), manager)
    talking("My password is tea.")
    latest = repository.read_message("talk", "default", 0)
    assert latest is not None
    latest.redact_message = {"role": "user", "content": [{"text": "(redacted)"}]}
    repository.update_message("talk", "default", latest)
    again = repository.read_message("talk", "default", 0)
    assert again is not None
    assert said([again.to_message()]) == ["(redacted)"]
    assert again.created_at == latest.created_at
    history = repository.history("talk")
    history.undo()
    assert history.view[0].text == "My password is tea."
    latest.message_id = 7
    with pytest.raises(SessionException, match="Message 7 does not exist"):
        repository.update_message("talk", "default", latest)


def test_what_a_manager_of_strands_removes_is_an_edit(store: Store) -> None:
    def build(*answers: str) -> Any:
        manager = RepositorySessionManager("talk", PalaverSessionRepository(store))
        window = SlidingWindowConversationManager(window_size=2)
        return agent(ScriptedModel(*answers), manager, conversation_manager=window)

    talking = build("a0", "a1", "a2")
    for number in range(3):
        talking(f"q{number}")
    history = store.get("talk")
    assert [message.text for message in history.view] == ["q2", "a2"]
    assert said(build().messages) == ["q2", "a2"]
    history.undo()
    assert said(build().messages)[-4:] == ["q1", "a1", "q2", "a2"]


def test_a_summary_is_in_the_view_and_can_be_edited_and_undone(store: Store) -> None:
    def build(*answers: str) -> Any:
        manager = RepositorySessionManager("talk", PalaverSessionRepository(store))
        summing = SummarizingConversationManager(summary_ratio=0.5, preserve_recent_messages=2)
        return agent(ScriptedModel(*answers), manager, conversation_manager=summing)

    talking = build("a0", "a1", "Tea was spoken of.")
    for number in range(2):
        talking(f"q{number}")
    talking.conversation_manager.reduce_context(talking)
    talking._session_manager.sync_agent(talking)
    history = store.get("talk")
    assert [message.text for message in history.view] == ["Tea was spoken of.", "q1", "a1"]
    assert said(build().messages) == ["Tea was spoken of.", "q1", "a1"]
    history.replace(0, replace(history.view[0], id="s2", content="Much tea was spoken of."))
    assert said(build().messages) == ["Much tea was spoken of.", "q1", "a1"]
    history.undo()
    history.undo()
    assert said(build().messages) == ["q0", "a0", "q1", "a1"]


# ── palaver's session manager ───────────────────────────────────────────────────────────────────


def test_an_agent_with_tools_sees_edits_rollbacks_and_forks(store: Store) -> None:
    manager = PalaverSessionManager("talk", store)
    model = ScriptedModel(call(), "It is sunny.", "Bye.", "Bye again.", "Otherwise.")
    talking = agent(model, manager)
    assert str(talking("Weather in Rome?")).strip() == "It is sunny."
    history = manager.history()
    roles = [message.role for message in history.view]
    assert roles == ["user", "assistant", "tool", "assistant"]
    history.truncate(keep_first=1)
    talking("Bye?")
    assert said(model.requests[-1]) == ["Weather in Rome?+Bye?"]
    history.refresh()
    history.rollback(0)
    talking("Bye?")
    assert said(model.requests[-1])[:2] == ["Weather in Rome?", "Let me see.+toolUse"]
    other = history.refresh().fork(id="another way")
    elsewhere = agent(ScriptedModel("Elsewhere."), PalaverSessionManager("another way", store))
    elsewhere("Where?")
    assert len(other.refresh().view) == len(history.refresh().view) + 2


def test_a_result_that_is_removed_in_mid_run_is_gone_in_the_next_request(store: Store) -> None:
    manager = PalaverSessionManager("talk", store)
    model = ScriptedModel("Hello.", call(), "Done.")

    def forget() -> None:
        store.get("talk").truncate(remove_first=2)

    talking = agent(model, manager, meanwhile=forget)
    talking("Hi.")
    talking("Weather?")
    assert said(model.requests[1])[0] == "Hi."
    assert said(model.requests[2]) == ["Weather?", "Let me see.+toolUse", "toolResult"]
    assert said(talking.messages)[0] == "Weather?"


def test_whatever_is_done_to_the_messages_is_one_edit_that_a_restart_keeps(store: Store) -> None:
    manager = PalaverSessionManager("talk", store)
    talking = agent(ScriptedModel(call(), "Sunny.", "Bye."), manager)
    talking("Weather?")
    cut: Any = {"toolUseId": "c1", "status": "success", "content": [{"text": "(cut)"}]}
    talking.messages[2]["content"] = [{"toolResult": cut}]
    del talking.messages[0]
    talking("Bye?")
    history = manager.history()
    restored = agent(ScriptedModel(), PalaverSessionManager("talk", store))
    assert restored.messages == talking.messages
    assert restored.messages[1]["content"][0] == {"toolResult": cut}
    assert said(restored.messages)[-2:] == ["Bye?", "Bye."]
    history.rollback(0)
    assert history.view[0].text == "Weather?"


def reduced(manager: Callable[[], Any]) -> tuple[str, str]:
    """A long result that Strands' context manager has cut: in this process, and after a restart."""

    @tool
    def weather(city: str) -> str:
        """Tell the weather of a city."""
        return f"{city} is sunny. " * 1_000

    def build(*answers: Any) -> Agent:
        model = ScriptedModel(*answers)
        return Agent(
            model=model, tools=[weather], session_manager=manager(), callback_handler=None,
            context_manager="auto",
        )  # fmt: skip

    def result_of(talking: Agent) -> str:
        block: Any = talking.messages[2]["content"][0]
        return str(block["toolResult"]["content"][0]["text"])

    talking = build(call(), "Sunny.", "Bye.")
    talking("Weather?")
    talking("Bye?")
    return result_of(talking), result_of(build())


def test_a_restart_remembers_what_the_context_manager_has_cut(store: Store, tmp_path: Path) -> None:
    """strands-agents/harness-sdk#4270: their own sessions store what was added, and no more."""
    now, later = reduced(lambda: FileSessionManager("talk", storage_dir=str(tmp_path)))
    assert len(now) < len(later)
    now, later = reduced(lambda: PalaverSessionManager("talk", store))
    assert now.startswith("[Truncated")
    assert later == now
    history = store.get("talk")
    history.rollback(0)
    assert "[Truncated" not in str(to_strands(history.view[2]))


def test_a_summary_of_strands_is_one_edit(store: Store) -> None:
    def build(*answers: str) -> Any:
        summing = SummarizingConversationManager(summary_ratio=0.5, preserve_recent_messages=2)
        manager = PalaverSessionManager("talk", store)
        return agent(ScriptedModel(*answers), manager, conversation_manager=summing)

    talking = build("a0", "a1", "Tea was spoken of.", "a2")
    talking("q0")
    talking("q1")
    talking.conversation_manager.reduce_context(talking, ContextWindowOverflowException("full"))
    talking("q2")
    assert said(build().messages) == ["Tea was spoken of.", "q1", "a1", "q2", "a2"]
    history = store.get("talk")
    history.rollback(0)
    assert [message.text for message in history.view][:2] == ["q0", "a0"]
    restored = build()
    assert said(restored.messages)[:2] == ["q0", "a0"]
    assert restored.conversation_manager.get_state()["summary_message"] is None


def test_what_is_done_between_runs_stays_when_the_agent_is_synced(store: Store) -> None:
    """As Strands' own sessions have it; they forget what is done to the messages in place."""
    summing = SummarizingConversationManager(summary_ratio=0.5, preserve_recent_messages=1)
    model, own = ScriptedModel("A.", "B.", "All of it."), PalaverSessionManager("talk", store)
    first = agent(model, own, conversation_manager=summing)
    first("Tea?")
    first("Rum?")
    summing.reduce_context(first)
    first.messages[-1]["content"] = [{"text": "B, I think."}]
    manager = PalaverSessionManager("talk", store, wait_seconds=0)
    assert "Tea?" == manager.history()[0].text
    own.sync_agent(first)
    again = agent(ScriptedModel(), manager, conversation_manager=SummarizingConversationManager())
    assert ["All of it.", "Rum?", "B, I think."] == said(again.messages)
    assert first.messages == again.messages
    assert store.lease("talk", "another", seconds=1).holder == "another"
    first.messages.clear()
    own.sync_agent(first)  # while another has its turn, it is left to the run
    assert 3 == len(store.get("talk"))


def test_another_conversation_manager_begins_anew(here: Store) -> None:
    window = SlidingWindowConversationManager(window_size=2)
    first = agent(
        ScriptedModel("a0", "a1"), PalaverSessionManager("talk", here), conversation_manager=window
    )
    first("q0")
    first("q1")
    other = agent(
        ScriptedModel(),
        PalaverSessionManager("talk", here),
        conversation_manager=SummarizingConversationManager(),
    )
    assert said(other.messages) == ["q1", "a1"]


def test_any_conversation_is_a_session(store: Store) -> None:
    store.create([system("Be kind."), user("Tea?"), assistant("Yes.")], id="from elsewhere")
    model = ScriptedModel("Two.", "Yes, two.")
    talking = agent(model, PalaverSessionManager("from elsewhere", store))
    talking("How many?")
    assert said(model.requests[0]) == ["Tea?", "Yes.", "How many?"]
    assert store.head("from elsewhere").length == 5  # what others wrote is not written again
    del talking.messages[0]
    talking("Sure?")
    texts = [message.text for message in store.get("from elsewhere").view]
    assert texts == ["Be kind.", "Yes.", "How many?", "Two.", "Sure?", "Yes, two."]


def test_an_agent_with_a_storage_is_told_that_its_session_is_not_there(here: Store) -> None:
    manager = PalaverSessionManager("talk", here)
    with pytest.warns(UserWarning, match="PalaverSessionManager does not use it"):
        agent(ScriptedModel(), manager, storage=InMemoryStorage())


def test_several_agents_of_a_session_and_their_state(store: Store) -> None:
    manager = PalaverSessionManager("talk", store)
    one = agent(ScriptedModel("I am one."), manager, agent_id="one", state={"cups": 1})
    two = agent(ScriptedModel("I am two."), manager, agent_id="two")
    one("Who?")
    two("Who?")
    one.state.set("cups", 2)
    manager.sync_agent(one)
    again = PalaverSessionManager("talk", store)
    restored = agent(ScriptedModel(), again, agent_id="one")
    assert restored.state.get("cups") == 2
    assert said(agent(ScriptedModel(), again, agent_id="two").messages) == ["Who?", "I am two."]
    assert again.history("two").id == "talk@two"
    with pytest.raises(SessionException, match="unique"):
        agent(ScriptedModel(), again, agent_id="two")
    with pytest.raises(SessionException, match="does not exist"):
        again.history("three")


def test_an_erasure_takes_what_repeats_the_message_and_leaves_the_agents(store: Store) -> None:
    """Not even their order is lost: the first has the session's conversation."""
    secret, hidden = "the door code is 4711", {"heard": "the door code is 4711"}

    def build(name: str, *answers: str, **more: Any) -> Agent:
        model, manager = ScriptedModel(*answers), PalaverSessionManager("talk", store)
        return agent(model, manager, agent_id=name, **more)

    for name in ("one", "two"):
        talking = build(name, "Yes.", "Still yes.", state=hidden)
        talking(secret)
        history = PalaverSessionManager("talk", store).history(name)
        history.erase(0)
        assert "4711" not in str(store.records(history.id, METADATA_KEY))
        talking("Tea?")
        assert store.get(history.id).view[-1].text == "Still yes."
    for name in ("three", "two", "one"):
        talking = build(name, "Well.")
        talking("And?")
        expected = [] if name == "three" else ["Yes.", "Tea?", "Still yes."]
        assert said(talking.messages) == [*expected, "And?", "Well."]
        own = RepositorySessionManager("talk", PalaverSessionRepository(store))
        assert said(agent(ScriptedModel(), own, agent_id=name).messages) == said(talking.messages)


def test_the_state_of_several_agents_that_work_together(here: Store) -> None:
    class Together:
        id = "team"
        state: dict[str, Any] = {"node": "one", "bytes": b"tea"}  # noqa: RUF012 - of one test

        def serialize_state(self) -> dict[str, Any]:
            return self.state

    repository = PalaverSessionRepository(here)
    together: Any = Together()
    with pytest.raises(SessionException):
        repository.create_multi_agent("talk", together)
    repository.create_session(Session("talk", SessionType.AGENT))
    with pytest.raises(SessionException):
        repository.update_multi_agent("talk", together)
    repository.create_multi_agent("talk", together)
    together.state = {"node": "two"}
    repository.update_multi_agent("talk", together)
    assert repository.read_multi_agent("talk", "team") == {"node": "two"}
    assert repository.read_multi_agent("no talk", "team") is None


def test_what_another_process_deletes_is_no_session(address: str) -> None:
    with palaver.open(address) as store, palaver.open(address) as other:
        repository = PalaverSessionRepository(store)
        store.create(id="talk")
        assert repository.read_session("talk") is not None
        other.delete("talk")
        assert repository.read_session("talk") is None
        assert repository.read_agent("talk", "ada") is None


def test_many_may_begin_a_session_at_once(address: str) -> None:
    """Each thread makes an agent of a session that none has begun."""
    with palaver.open(address) as store:
        for number in range(5):
            name = f"talk-{number}"

            def turn(name: str = name) -> None:
                agent(ScriptedModel("Green."), PalaverSessionManager(name, store))("Tea?")

            run(turn, turn, turn, turn)
            assert ["Tea?", "Green."] * 4 == [message.text for message in store.get(name)]


def test_wrong_arguments_are_refused(here: Store) -> None:
    wrong: Any = "chat.db"
    with pytest.raises(ValidationError):
        PalaverSessionManager("talk", wrong)
    with pytest.raises(ValueError, match="not empty"):
        PalaverSessionManager("", here)
    for seconds in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="turn_seconds must be a number from"):
            PalaverSessionManager("talk", here, turn_seconds=seconds)
    with pytest.raises(ValueError, match="wait_seconds must be a number from 0 on"):
        PalaverSessionManager("talk", here, wait_seconds=-1)


# ── killed, and side by side ────────────────────────────────────────────────────────────────────


def test_killed_at_any_moment_nothing_is_lost_and_nothing_twice(tmp_path: Path) -> None:
    address = str(tmp_path / "chat.db")
    told = -1
    for moment in range(steps(3, in_faults=50)):
        here, there = NURSERY.Pipe()
        process = NURSERY.Process(target=keep_talking, args=(address, told + 1, there))
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
            texts = [message.text for message in view if message.role == "assistant"]
            answers = [text for text in texts if text.startswith("answer")]
            assert answers == [f"answer {number}" for number in range(len(answers))]
            assert len(answers) >= told + 1
            told = len(answers) - 1
            model, manager = ScriptedModel("Go on."), PalaverSessionManager("talk", store)
            agent(model, manager, conversation_manager=NullConversationManager())("Still there?")
            assert_valid(model.requests[0])
            store.get("talk").truncate(keep_first=len(view))


def assert_valid(messages: list[Any]) -> None:
    """Every call is followed by its results, and every result follows its call."""
    wanted: set[str] = set()
    for message in messages:
        blocks = message["content"]
        got = [block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block]
        assert sorted(got) == sorted(wanted)
        wanted = {block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block}
    assert not wanted


def test_runs_of_several_processes_never_mix_their_turns(address: str) -> None:
    with palaver.open(address) as store:
        PalaverSessionManager("talk", store)
        names = ["one", "two", "three"]
        turns = steps(2, in_faults=10)
        processes = [
            NURSERY.Process(target=run_turns, args=(address, name, turns)) for name in names
        ]
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
            assert json.dumps(to_strands(view[at + 2])).count(f'"{who}"') == 1


def test_a_call_that_another_run_has_answered_meanwhile_gets_no_second_result(here: Store) -> None:
    agent(ScriptedModel(call("Oslo"), "Cold."), PalaverSessionManager("talk", here))("Weather?")
    history = here.get("talk")
    history.truncate(keep_first=2)  # another run is in the middle of its call
    late = agent(ScriptedModel("Yes."), PalaverSessionManager("talk", here))
    history.undo()  # and has ended before this one begins
    late("Tea?")
    roles = [message.role for message in here.get("talk").view]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]


def test_a_run_waits_only_so_long_for_another(here: Store) -> None:
    manager = PalaverSessionManager("talk", here, wait_seconds=0)
    talking = agent(ScriptedModel("Yes."), manager)
    lease = here.lease("talk", "another", seconds=60)
    with pytest.raises(SessionException, match="another run"):
        talking("Tea?")
    here.release(lease)
    assert str(talking("Tea?")).strip() == "Yes."


def test_two_agents_in_one_event_loop_take_turns(here: Store) -> None:
    PalaverSessionManager("talk", here)
    talking = [
        agent(ScriptedModel(call(name), f"{name} done"), PalaverSessionManager("talk", here))
        for name in ("one", "two")
    ]

    async def go() -> None:
        await asyncio.gather(*(each.invoke_async("Weather?") for each in talking))

    asyncio.run(go())
    roles = [message.role for message in here.get("talk").view]
    assert roles == ["user", "assistant", "tool", "assistant"] * 2


def test_calls_that_another_run_is_busy_with_are_not_answered_for_it(here: Store) -> None:
    PalaverSessionManager("talk", here)
    history = here.get("talk")
    model = ScriptedModel("Two.")
    asked: Any = {"role": "assistant", "content": call("c9")}
    answered: Any = {"role": "user", "content": [result("c9")]}

    async def go() -> None:
        lease = here.lease("talk", "another", seconds=60)
        history.extend([user("Rome?"), from_strands(asked)], lease=lease)
        late = agent(model, PalaverSessionManager("talk", here))
        task = asyncio.create_task(late.invoke_async("And?"))
        for _ in range(1_000):
            if late.messages[2:]:  # it has given the open call a result, for itself
                break
            await asyncio.sleep(0.01)
        history.extend([from_strands(answered)], lease=lease)
        here.release(lease)
        await task

    asyncio.run(go())
    assert said(model.requests[0]) == ["Rome?", "Let me see.+toolUse", "toolResult+And?"]
    assert model.requests[0][2]["content"][0] == result("c9")
    assert [message.role for message in history.refresh().view] == [
        "user", "assistant", "tool", "user", "assistant",
    ]  # fmt: skip


class SlowModel(ScriptedModel):
    """Thinks for a while before it answers, as models do; its agent's loop goes on meanwhile."""

    async def stream(self, *given: Any, **more: Any) -> AsyncIterator[Any]:
        """Give the next answer, late."""
        await asyncio.sleep(0.5)
        async for event in super().stream(*given, **more):
            yield event


def test_a_run_keeps_its_turn_however_long_its_model_takes(here: Store) -> None:
    PalaverSessionManager("talk", here)
    talking = [
        agent(model, PalaverSessionManager("talk", here, turn_seconds=0.15))
        for model in (SlowModel(call("one"), "one done"), ScriptedModel(call("two"), "two done"))
    ]

    async def go() -> None:
        first = asyncio.create_task(talking[0].invoke_async("Weather?"))
        await asyncio.sleep(0.1)
        await talking[1].invoke_async("Weather?")
        await first

    asyncio.run(go())
    texts = [message.text for message in here.get("talk").view if message.role == "assistant"]
    assert texts == ["Let me see.", "one done", "Let me see.", "two done"]


@pytest.mark.parametrize("others", [["Rum?"], []])
def test_a_run_whose_turn_went_to_another_writes_nothing_more(
    here: Store, others: list[str]
) -> None:
    """Not even what Strands has added to the agent's messages before it was refused."""
    manager = PalaverSessionManager("talk", here, turn_seconds=0.15)

    def another() -> None:
        shown = manager._shown["default"]
        assert shown.turn.lease is not None
        here.release(shown.turn.lease)  # as if this process had been asleep for long
        lease = here.lease("talk", "another", seconds=60)
        here.get("talk").extend([user(text) for text in others], lease=lease)
        time.sleep(0.2)  # the turn can't be renewed

    with pytest.raises(EventLoopException, match="went to another run meanwhile"):
        agent(ScriptedModel(call(), "Sunny."), manager, another)("Weather?")
    assert [each.text for each in here.get("talk").view] == ["Weather?", "Let me see.", *others]


@pytest.mark.parametrize("moment", [BeforeInvocationEvent, AfterInvocationEvent])
@pytest.mark.parametrize("in_one_loop", [True, False])
def test_a_run_that_a_hook_ends_leaves_the_session_to_others(
    here: Store, moment: Any, *, in_one_loop: bool
) -> None:
    """Strands tells nobody of its end then, and the agent may be there for long."""

    def fail(event: object) -> None:  # noqa: ARG001 - as Strands names it
        raise ValueError("no budget")

    ended = agent(ScriptedModel("Yes."), PalaverSessionManager("talk", here, turn_seconds=0.3))
    ended.hooks.add_callback(moment, fail)
    other = agent(ScriptedModel("No."), PalaverSessionManager("talk", here, wait_seconds=5))

    async def go() -> None:
        with pytest.raises(ValueError, match="no budget"):
            await ended.invoke_async("Tea?")
        await other.invoke_async("Rum?")

    if in_one_loop:
        asyncio.run(go())
    else:
        with pytest.raises(ValueError, match="no budget") as held:  # with the frames of the run
            ended("Tea?")
        other("Rum?")
        del held
    assert here.get("talk").view[-1].text == "No."


@pytest.mark.parametrize("others", [["Rum?", "No."], []])
def test_a_tool_that_was_called_by_hand_in_anothers_turn_is_stored_after_it(
    here: Store, others: list[str]
) -> None:
    PalaverSessionManager("talk", here)
    talking = agent(ScriptedModel("Yes."), PalaverSessionManager("talk", here))
    lease = here.lease("talk", "another", seconds=60)
    talking.tool.weather(city="Oslo")
    here.get("talk").extend([user(text) for text in others], lease=lease)
    here.release(lease)
    talking("Tea?")
    roles = [message.role for message in here.get("talk").view[len(others) :]]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert [message.text for message in here.get("talk").view[: len(others)]] == others


def _drop_call(history: StoredHistory) -> None:
    history.truncate(keep_first=1)


def _part_call(history: StoredHistory) -> None:
    history.append(user("Are you there?"))


@pytest.mark.parametrize("edit", [_drop_call, _part_call])
def test_an_interrupt_is_answered_after_an_edit(
    here: Store, edit: Callable[[StoredHistory], None]
) -> None:
    """The result comes late, or its call is gone: the next request is valid."""

    @tool(context=True)
    def weather(city: str, tool_context: ToolContext) -> str:
        """Tell the weather of a city."""
        return f"{city}: {tool_context.interrupt('sure')}"

    def build(model: ScriptedModel) -> Agent:
        manager = PalaverSessionManager("talk", here)
        return Agent(model=model, tools=[weather], session_manager=manager, callback_handler=None)

    asked = build(ScriptedModel(call()))("Weather?")
    assert asked.interrupts
    edit(here.get("talk"))
    model = ScriptedModel("Well.", "Bye.")
    answered = build(model)
    response = {"interruptId": asked.interrupts[0].id, "response": "sunny"}
    given: Any = [{"interruptResponse": response}]
    answered(given)
    assert_valid(model.requests[-1])
    assert ("Rome: sunny" in str(model.requests[-1])) is (edit is _part_call)
    answered("And now?")
    assert_valid(model.requests[-1])


def test_a_store_that_fails_for_a_moment_costs_no_turn(
    here: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    manager = PalaverSessionManager("talk", here, turn_seconds=0.6)
    lease = here.lease

    def fail(*_given: Any, **_more: Any) -> Any:
        monkeypatch.setattr(here, "lease", lease)
        raise StoreError("no connection")

    def meanwhile() -> None:
        monkeypatch.setattr(here, "lease", fail)
        time.sleep(1.0)  # longer than a turn lasts that is not renewed
        with pytest.raises(LeaseTaken):
            here.lease("talk", "another", seconds=1)

    talking = agent(ScriptedModel(call(), "Sunny."), manager, meanwhile)
    assert str(talking("Weather?")).strip() == "Sunny."
    assert "turn of a run was not renewed: no connection" in caplog.text
