"""What was left of the documents' own examples: each here was seen to fail before it held."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, cast

import anyio
import pytest
from msgspec.structs import replace

import palaver
from palaver import History
from palaver.context import ContextManager
from palaver.conversation import Conversation, Tool, ToolContext, ToolLimits, follow_events, tool
from palaver.errors import BadRequest, PartValidationError, StoreError, ValidationError
from palaver.history.log import RoleIndex
from palaver.messages import (
    ReasoningPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    ToolRunning,
    UnknownPart,
    complete,
    dump,
    fail,
    fold,
    new_id,
    parse_message,
    parse_messages,
    parse_part,
    pending,
    start,
    text_part,
    to_dict,
    tool_part,
    unfold,
    user,
)
from palaver.messages.ids import is_uuid, uuid_for
from palaver.messages.tool_state import (
    CompletedTime,
    ToolTime,
    completed,
    expire,
    failed,
    running,
    states_between,
)
from palaver.messages.turns import TurnInfo, TurnTime, WithParts
from palaver.models import model
from palaver.testing import ProviderServer
from palaver.testing.servers import Answer
from tests.conversation.scripted import Scripted, calling

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from palaver.conversation import ToolOutcome
    from palaver.conversation.ledger import LedgerEntry
    from palaver.events import Event

pytestmark = pytest.mark.anyio


def said(text: str) -> dict[str, Any]:
    return {"content": text, "speaker": {"roleId": "u1", "roleName": "User", "type": "human"}}


# ── tool calls ──────────────────────────────────────────────────────────────────────────────────


class Slow:
    """A tool that no time limit can stop: it ends when it is told to."""

    def __init__(self, answer: str | Exception) -> None:
        self.answer, self.may_end = answer, threading.Event()

    def __call__(self) -> str:
        """Wait."""
        assert self.may_end.wait(20)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def timed_out(
    slow: Slow, store: str = ":memory:"
) -> tuple[Conversation, ToolOutcome, list[Event]]:
    """Return a conversation in which a call has timed out and is still running."""
    conversation = Conversation(
        palaver.open(store),
        model=Scripted(calling(("slow", {}))),
        tools=[tool(slow.__call__, name="slow")],
        limits=ToolLimits(seconds=0.01),
    )
    heard: list[Event] = []
    conversation.add(user("Wait."))
    step = await conversation.step()
    outcome = await conversation.run_tool(step.calls[0])
    conversation.events.on("tool.error", heard.append)
    return conversation, outcome, heard


async def until(happened: Callable[[], object]) -> None:
    """Wait for what another thread does."""
    with anyio.fail_after(60):
        while not happened():  # noqa: ASYNC110 - it sets no event of anyio's
            await anyio.sleep(0.005)


@pytest.mark.parametrize("answer", ["tea", ValueError("no tea")])
async def test_a_result_after_a_timeout_is_stored(answer: str | Exception) -> None:
    slow = Slow(answer)  # PT-04
    conversation, outcome, heard = await timed_out(slow)
    assert isinstance(outcome.state, ToolError)
    assert "lateResult" not in outcome.state.metadata
    before = list(conversation.messages)
    slow.may_end.set()
    await until(lambda: heard)
    entry: LedgerEntry
    (entry,) = conversation.ledger().values()
    assert isinstance(entry.state, ToolError)
    assert (outcome.state.error, True) == (entry.state.error, entry.stray)
    found = entry.state.metadata["lateResult"]
    assert ("ValueError: no tea" if isinstance(answer, Exception) else "tea") in found.values()
    assert heard[0].data["state"]["metadata"]["lateResult"] == found
    assert before == list(conversation.messages)
    assert [] == await conversation.recover()


async def test_a_late_result_is_stored_with_its_error_while_others_run() -> None:
    slow = Slow("tea")

    @tool(timeout=20)
    async def other() -> None:
        await anyio.sleep(0.05)
        slow.may_end.set()
        await anyio.sleep(0.1)

    tools: list[Tool] = [tool(slow.__call__, name="slow", timeout=0.01), other]
    conversation = Conversation(
        palaver.open(":memory:"), model=Scripted(calling(("slow", {}), ("other", {}))), tools=tools
    )
    conversation.add(user("Wait."))
    step = await conversation.step()
    outcome = (await conversation.run_tools(step.calls))[0]
    assert isinstance(outcome.state, ToolError)
    assert "tea" == outcome.state.metadata["lateResult"]["output"]
    assert outcome.message is not None
    assert outcome.message in conversation.messages
    assert {} == conversation.ledger()


async def test_an_erased_call_leaves_no_late_result() -> None:
    slow = Slow("tea")
    conversation, outcome, _ = await timed_out(slow)
    assert outcome.message is not None
    conversation.history.erase(outcome.message.id)
    slow.may_end.set()
    await anyio.sleep(0.1)
    assert {} == conversation.ledger()


async def test_a_late_result_after_the_store_is_closed_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slow = Slow("tea")
    conversation, _, _ = await timed_out(slow, str(tmp_path / "talk.db"))
    conversation.store.close()
    slow.may_end.set()
    await until(lambda: "came too late" in caplog.text)


async def test_what_a_running_tool_reports_is_its_state() -> None:
    shown: list[Any] = []  # S3 §7.1, PT-08

    @tool
    async def brew(context: ToolContext) -> str:
        context.progress("Boiling", {"degrees": 60})
        context.progress("Almost", {"minutes": 1})
        with anyio.fail_after(60):
            while not shown or shown[-1].title != "Almost":
                await anyio.sleep(0.01)
                turn = fold(conversation.messages, conversation.ledger())[-1]
                shown.extend(part.state for part in turn.parts if isinstance(part, ToolPart))
        return "tea"

    conversation = Conversation(
        palaver.open(":memory:"), model=Scripted(calling(("brew", {}))), tools=[brew]
    )
    conversation.add(user("Tea."))
    step = await conversation.step()
    outcome = await conversation.run_tool(step.calls[0])
    reported = {"degrees": 60, "minutes": 1}
    assert isinstance(shown[-1], ToolRunning)
    assert reported == shown[-1].metadata
    assert isinstance(outcome.state, ToolCompleted)
    assert ("Almost", reported) == (outcome.state.title, outcome.state.metadata)
    assert {} == conversation.ledger()


# ── a provider's server ─────────────────────────────────────────────────────────────────────────


async def test_a_server_takes_back_the_reasoning_that_it_sent() -> None:
    with ProviderServer("openai-chat", [Answer("Tea.", reasoning="It is five."), "Yes."]) as server:
        asked = model("openai:any", base_url=server.url, api_key="any")
        conversation = Conversation(palaver.open(":memory:"), model=asked)
        conversation.add(user("What to drink?"))
        await conversation.step()
        conversation.add(user("Sure?"))
        assert "Yes." == (await conversation.step()).text
        sent = server.requests[1].body["messages"][1]
        assert ("It is five.", []) == (sent["reasoning_content"], server.failures)
        await asked.close()


async def test_a_server_refuses_reasoning_of_others() -> None:
    with ProviderServer("openai-chat", [Answer("Tea.", reasoning="It is five."), "Yes."]) as server:
        asked = model("openai:any", base_url=server.url, api_key="any")
        conversation = Conversation(palaver.open(":memory:"), model=asked)
        conversation.add(user("What to drink?"))
        step = await conversation.step()
        part = next(part for part in step.message.parts if isinstance(part, ReasoningPart))
        forged = [replace(part, text="It is six.") if p is part else p for p in step.message.parts]
        conversation.history.replace(1, replace(step.message, content=tuple(forged)))
        with pytest.raises(BadRequest, match="reasoning_content"):
            await conversation.step()
        await asked.close()


# ── parts, states and turns ─────────────────────────────────────────────────────────────────────


def test_a_part_belongs_to_its_message() -> None:
    part = text_part(new_id(), new_id(), "hi")  # PT-08
    message = user([part])
    assert message.id == message.parts[0].message_id  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]
    moved = replace(message, id="elsewhere")
    assert uuid_for("elsewhere") == moved.parts[0].message_id  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]
    read = parse_messages(dump([{**to_dict(message), "content": [to_dict(part)]}]))
    assert [message] == read
    (turn,) = fold([message])
    assert all(own.message_id == turn.info.id for own in turn.parts)  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]


def test_a_turn_built_by_hand_unfolds_and_folds_back() -> None:
    session, owner = new_id(), new_id()  # S3 §7.2
    info = TurnInfo(id=owner, role="assistant", time=TurnTime(1, 2))
    parts: Any = [
        text_part(session, owner, "Tea?"),
        tool_part(session, owner, "a", "brew", completed({}, "tea", "brew", {}, 1, 2)),
        tool_part(session, owner, "b", "brew", pending({"cups": 1}, '{"cups": 1}')),
        tool_part(session, owner, "c", "brew", running({"cups": 2}, at=3)),
    ]
    turn = WithParts(info, parts)
    back = unfold([turn])
    assert {"b", "c"} == back.ledger.keys()
    assert (turn,) == fold(back.messages, back.ledger)


@pytest.mark.parametrize("wrong", [5, None, "x", {"type": "text"}])
def test_a_turn_takes_only_parts_and_info(wrong: Any) -> None:  # noqa: ANN401 - what is wrong
    info = TurnInfo(id=new_id(), role="user", time=TurnTime(1))
    with pytest.raises(ValidationError, match=r"\$\.parts\[0\]: must be a part"):
        WithParts(info, (wrong,))
    with pytest.raises(ValidationError, match=r"\$\.info: must be TurnInfo"):
        WithParts(wrong, ())
    with pytest.raises(ValidationError, match=r"\$\.parts: must be a list of parts"):
        WithParts(info, wrong)


def test_a_turn_has_a_known_role_and_tools_that_are_on_or_off() -> None:
    robot: Any = "robot"
    with pytest.raises(ValidationError, match=r"must be system, user, assistant or tool"):
        TurnInfo(id=new_id(), role=robot, time=TurnTime(1))
    tools: Any = {"ls": 5}
    with pytest.raises(ValidationError, match=r"\$\.tools\.ls: must be bool"):
        TurnInfo(id=new_id(), role="user", time=TurnTime(1), tools=tools)


@pytest.mark.parametrize("wrong", [None, 0, False, 5, [], {}, b""])
def test_an_output_is_text(wrong: Any, caplog: pytest.LogCaptureFixture) -> None:  # noqa: ANN401
    with pytest.raises(PartValidationError, match=r"\$\.output: must be text"):
        complete(running({}, at=1), wrong, tool="ls")
    with pytest.raises(PartValidationError, match=r"\$\.output: must be text"):
        completed({}, wrong, "ls")
    assert 2 == len(caplog.records)


def test_what_comes_with_a_result_is_checked() -> None:
    state, nothing, word = running({}, at=1), cast("Any", None), cast("Any", "soon")
    attempts: list[Callable[[], object]] = [
        lambda: complete(state, "a", tool="ls", metadata=nothing),
        lambda: complete(state, "a", tool="ls", attachments=nothing),
        lambda: complete(state, "a", tool="ls", title=cast("Any", 5)),
        lambda: complete(state, "a", tool="ls", at=word),
        lambda: fail(state, "a", metadata=nothing),
        lambda: fail(state, "a", at=word),
        lambda: expire(state, limit_ms=word),
    ]
    for refused in attempts:
        with pytest.raises(ValidationError):
            refused()


@pytest.mark.parametrize("wrong", [None, 5, {"status": "pending"}, "pending"])
def test_a_transition_of_no_state_is_refused_with_a_sentence(
    wrong: Any,  # noqa: ANN401 - what is wrong
    caplog: pytest.LogCaptureFixture,
) -> None:
    for refused in (
        lambda: start(wrong),
        lambda: complete(wrong, "a", tool="ls"),
        lambda: fail(wrong, "a"),
        lambda: expire(wrong, limit_ms=1),
        lambda: states_between(wrong, wrong),
    ):
        with pytest.raises(PartValidationError, match="must be the state of a tool call"):
            refused()
    assert 5 == len(caplog.records)


def test_states_are_made_with_the_documents_arguments_in_order() -> None:
    assert CompletedTime(1, 5) == completed({}, "warm", "Weather", {"a": 1}, 1, 5).time  # S3 §4.2
    assert ToolTime(1, 5) == failed({}, "no such file", 1, 5).time
    done = completed({}, "warm", "Weather")
    assert done.time.start == done.time.end > 0


@pytest.mark.parametrize("wrong", [{}, {"type": 5}, {"type": ""}, 5, {"type": "x", "n": 2**60}])
def test_a_refused_part_of_an_unknown_type_is_logged(
    wrong: Any,  # noqa: ANN401 - what is wrong
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(PartValidationError) as caught:
        UnknownPart(wrong)
    assert [str(caught.value)] == [record.getMessage() for record in caplog.records]
    caplog.clear()
    if wrong != 5:
        with pytest.raises(PartValidationError):
            parse_part(wrong)
        assert 1 == len(caplog.records)


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────


def test_null_is_the_default_of_an_optional_field() -> None:
    names = ("id", "timestamp", "metadata", "speaker", "routing", "info")
    data: dict[str, Any] = {"role": "user", "content": "hi", **dict.fromkeys(names)}
    for message in (parse_message(data), parse_message(dump(data)), *parse_messages(dump([data]))):
        assert ("hi", {}, None) == (message.text, message.metadata, message.speaker)
        assert is_uuid(message.id)
    part = to_dict(text_part(new_id(), new_id(), "hi"))
    assert parse_part(part) == parse_part({**part, "metadata": None, "time": None})
    done = to_dict(tool_part(new_id(), new_id(), "c", "ls", completed({}, "a", "ls", {}, 1, 2)))
    state = {**done["state"], "attachments": None}
    assert parse_part(done) == parse_part({**done, "metadata": None, "state": state})
    with pytest.raises(PartValidationError, match=r"\$\.text"):
        parse_part({**part, "text": None})
    with pytest.raises(PartValidationError, match=r"\$\.state\.output"):
        parse_part({**done, "state": {**state, "output": None}})


# ── histories and contexts ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stored", [False, True])
def test_a_mark_stays_on_a_message_that_is_revised(stored: bool) -> None:  # noqa: FBT001 - a parameter
    first = [user("one"), user("two"), user("three")]
    history = palaver.open(":memory:").create(first) if stored else History(first)
    history.mark(1, "important")  # QR-05
    revised = user("two, revised", id=history[1].id)
    history.replace(1, revised)
    assert [revised] == history.query(mark="important")
    history.rewrite([range(1), (1, replace(revised, content="two, again")), range(2, 3)])
    assert ["important"] == history.marks_of(revised.id)
    history.replace(1, user("another"))
    assert [] == history.query(mark="important")
    history.undo()
    assert ["two, again"] == [message.text for message in history.query(mark="important")]


@pytest.mark.parametrize(
    ("ids", "following"),
    [
        (["msg-07"], "msg-8"),
        (["msg-0"], "msg-1"),
        (["msg-2", "msg-010"], "msg-11"),
        (["a"], "msg-2"),
    ],
)
def test_handles_go_on_after_the_greatest_number(ids: list[str], following: str) -> None:
    manager = ContextManager()  # S2 calculateNextMessageId
    messages = [{"id": name, **said(name)} for name in ids]
    snapshot = {"messages": messages, "teamTask": None, "timestamp": 1, "version": 1}
    manager.import_snapshot(snapshot)
    added = manager.add_message(said("next"))
    assert following == manager.handle(added)
    assert (added, ids[0]) == (manager.message(following), manager.message(ids[0]).text)


@pytest.mark.parametrize("wrong", [None, 1.5, "2", -1, True])
def test_a_number_of_messages_is_a_whole_number(wrong: Any) -> None:  # noqa: ANN401 - what is wrong
    conversation = Conversation(palaver.open(":memory:"))
    index = RoleIndex()
    for refused in (
        lambda: conversation.recent(wrong),
        lambda: History().recent(wrong),
        lambda: index.recent("user", wrong),
        lambda: index.range("user", wrong, 1),
        lambda: index.add("user", wrong),
    ):
        with pytest.raises(ValidationError, match="whole number from 0 on"):
            refused()


def test_no_role_is_not_every_role() -> None:
    nobody: Any = None
    conversation = Conversation(palaver.open(":memory:"))
    conversation.add(user("hi"))
    with pytest.raises(ValidationError):
        conversation.by_role(nobody)


def test_a_line_addressed_to_null_is_for_everybody() -> None:
    given: dict[str, Any] = {
        "contextMessages": [{"from": "User", "to": None, "content": "Hi"}],
        "currentMessage": "Hello!",
        "teamTask": None,
        "maxBytes": 99,
    }
    assert "- User -> all: Hi" in ContextManager().assemble("claude", given).prompt


def test_a_snapshot_may_be_json_text() -> None:
    manager, other = ContextManager(), ContextManager()
    manager.add_message(said("Hello."))
    other.import_snapshot(json.dumps(manager.export_snapshot()))
    assert ["Hello."] == [message.text for message in other.messages]
    for wrong in ("{}", "5", "tea"):
        with pytest.raises(ValidationError, match="Invalid snapshot format"):
            other.import_snapshot(wrong)


def test_a_speaker_without_an_id_is_told_so() -> None:
    with pytest.raises(TypeError, match=r"Message speaker\.roleId is required"):
        ContextManager().add_message({"content": "Hi", "speaker": {}})


@pytest.mark.parametrize("stored", [False, True])
def test_a_message_with_a_team_task_is_one_change(stored: bool) -> None:  # noqa: FBT001 - a parameter
    store = palaver.open(":memory:")  # HI-13
    history = store.create() if stored else History()
    manager = ContextManager(history)
    manager.add_message(said("Hello."))
    before = history.version
    manager.add_message(said("[TEAM_TASK: make tea] Now."))
    assert (before + 1, "make tea") == (history.version, manager.team_task)
    if stored:
        heard = list(follow_events(store, history.id, after=before, seconds=0))
        assert ["message.added", "team_task.changed"] == [event.name for event in heard]
        again = store.get(history.id)
        assert (2, "make tea") == (len(again), again.team_task)
    history.undo()
    assert (["Hello."], None) == ([message.text for message in manager.messages], manager.team_task)
    history.redo()
    assert (2, "make tea") == (len(manager.messages), manager.team_task)
    manager.add_message(said("And biscuits."))
    assert 3 == len(manager.messages)


def test_a_team_task_with_its_message_is_heard_on_a_conversations_bus() -> None:
    conversation, heard = Conversation(palaver.open(":memory:")), list[str]()
    for name in ("message.added", "team_task.changed"):
        conversation.events.on(name, lambda event: heard.append(event.name))
    manager = ContextManager(conversation.history, events=conversation.events)
    manager.add_message(said("[TEAM_TASK: make tea] Now."))
    assert ["message.added", "team_task.changed"] == heard


@pytest.mark.parametrize("stored", [False, True])
def test_an_import_within_a_limit_is_one_change(stored: bool) -> None:  # noqa: FBT001 - a parameter
    manager = ContextManager()  # CX-08
    for text in "abcd":
        manager.add_message(said(text))
    history = palaver.open(":memory:").create() if stored else History()
    limited = ContextManager(history, max_messages=2)
    limited.add_message(said("old"))
    before = history.version
    limited.import_snapshot(manager.export_snapshot())
    assert before + 1 == history.version
    assert ["c", "d"] == [message.text for message in limited.messages]
    assert list("abcd") == [message.text for message in history.log][-4:]
    limited.add_message(said("e"))
    assert ["d", "e"] == [message.text for message in limited.messages]
    history.undo()
    history.undo()
    history.undo()
    assert ["old"] == [message.text for message in limited.messages]


def test_a_window_of_its_own_goes_by_any_spelling_of_an_agents_id() -> None:
    manager = ContextManager(windows={"Sarah": 1, "claude": 2})
    for n in range(4):
        manager.add_message(said(f"said {n}"))
    assert 1 == len(manager.context_for("sarah", "claude").context_messages)
    assert 2 == len(manager.context_for("max", "claude").context_messages)


@pytest.mark.parametrize("turn", range(5))
def test_a_store_that_other_threads_use_can_be_closed(tmp_path: Path, turn: int) -> None:
    store = palaver.open(tmp_path / f"{turn}.db")
    history, ended = store.create(), list[type]()

    def work() -> None:
        try:
            while True:
                history.append(user("tea"))
                store.get(history.id).refresh().view.log.positions_of("nothing")
        except BaseException as error:  # noqa: BLE001 - whatever it is
            ended.append(type(error))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(history) < 10:
        history.refresh()
    store.close()
    for thread in threads:
        thread.join(20)
    assert [StoreError] * 3 == ended
