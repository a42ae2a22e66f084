"""Handles, operations, queries and turns, as the documents have them to the letter."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import palaver
from palaver import wire
from palaver.cli.app import app
from palaver.context import ContextManager
from palaver.conversation import Conversation, Summarise, compact
from palaver.conversation.step import describe_step
from palaver.errors import AmbiguousMessage, Conflict, PalaverError, ValidationError
from palaver.history import History, Insert, parse_operation
from palaver.history.view import same_messages
from palaver.messages import (
    AssistantInfo,
    FilePart,
    Message,
    Speaker,
    ToolPart,
    UnknownPart,
    UserInfo,
    assistant,
    complete,
    completed,
    fail,
    failed,
    fold,
    new_id,
    pending,
    reasoning_part,
    running,
    start,
    tool_call_part,
    unfold,
    user,
)
from palaver.messages.foreign import parse_export, write_export
from palaver.messages.part_base import FileSource, SourceText
from palaver.messages.parts import StepFinishPart, StepStartPart, SubtaskPart, TextTime
from palaver.nodes import edit_context
from palaver.nodes.config import parse_context
from palaver.stores.transfer import export_conversation, import_conversation
from tests.conversation.scripted import Scripted, calling, saying
from tests.profiles import at_least

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from palaver.history import BaseHistory
    from palaver.messages import Part
    from palaver.stores import Store, StoredHistory

HUMAN = {"roleId": "user", "roleName": "User", "type": "human"}
ANN = Speaker("ann", "Ann", "human")


def snapshot(*messages: tuple[str, str]) -> dict[str, Any]:
    said = [{"id": name, "content": text, "speaker": HUMAN} for name, text in messages]
    return {"messages": said, "teamTask": None, "timestamp": 5, "version": 1}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    place = ":memory:" if request.param == "memory" else tmp_path / "chat.db"
    with palaver.open(place) as opened:
        yield opened


def imported(store: Store, *messages: tuple[str, str]) -> StoredHistory:
    return import_conversation(store, io.BytesIO(json.dumps(snapshot(*messages)).encode()))


def owners(parts: Iterable[Part]) -> set[str]:
    return {part.message_id for part in parts if not isinstance(part, UnknownPart)}


def texts(history: BaseHistory) -> list[str]:
    return [message.text for message in history]


# ── a handle names one message ───────────────────────────────────────────────────────────────────

# CX-08, CX-09


def test_new_handles_go_on_after_the_greatest_of_a_snapshot(store: Store) -> None:
    history = imported(store, ("msg-2", "old"))
    history.append(user("new"))
    assert ["msg-2", "msg-3"] == [history.view.handle(index) for index in (0, 1)]
    assert ["old", "new"] == [history.log[history.view.find(f"msg-{n}")].text for n in (2, 3)]
    history.erase("msg-2")
    assert ["", "new"] == texts(history)
    again = store.get(history.id)
    assert ["msg-2", "msg-3"] == [again.view.handle(index) for index in (0, 1)]


def test_new_handles_go_on_after_the_greatest_of_a_context() -> None:
    context = ContextManager()
    context.add_message(Message("user", "before", speaker=ANN))
    context.import_snapshot(snapshot(("msg-7", "seven"), ("x", "named"), ("msg-3", "three")))
    new = context.add_message(user("new", speaker=ANN))
    assert ["msg-7", None, "msg-3", "msg-8"] == list(map(context.handle, range(4)))
    assert (new, "seven") == (context.message("msg-8"), context.message("msg-7").text)
    context.history.insert(0, [user("first")])
    assert "msg-9" == context.handle(0)
    context.clear()
    assert "msg-1" == context.handle(context.add_message(new))


def test_a_number_that_an_earlier_session_had_means_this_session() -> None:
    context = ContextManager()
    context.import_snapshot(snapshot(("msg-1", "old")))
    old = context.messages[0]
    context.clear()
    new = context.add_message(user("new", speaker=ANN))
    assert ("msg-1", new) == (context.handle(new), context.message("msg-1"))
    assert None is context.handle(old)
    with pytest.raises(AmbiguousMessage):  # what can't be undone is not guessed
        context.history.erase("msg-1")
    context.history.erase(0)
    assert "old" == context.message(old).text


def test_an_ambiguous_name_is_refused_with_the_candidates(store: Store) -> None:
    history = store.create([user("one"), user("two")])
    history.append(user("three", id="msg-1"))
    for change in (history.erase, history.view.find, lambda name: history.mark(name, "good")):
        with pytest.raises(AmbiguousMessage, match="Give the index") as caught:
            change("msg-1")
        assert 2 == len(caught.value.candidates)
        assert ["index 0", "index 2"] == [one[:7] for one in caught.value.candidates]
    assert 1 == history.version
    history.erase(2)
    assert ["one", "two", ""] == texts(history)


def test_erasing_one_of_two_messages_with_an_id_leaves_the_other(store: Store) -> None:
    history = store.create([user("one", id="x"), user("two", id="x")])
    other = history.fork()
    history.replace(0, user("one, better", id="x"))
    other.append(user("three", id="x"))
    other.append(history[0])
    with pytest.raises(AmbiguousMessage, match="'x' could mean 2 messages"):
        history.erase("x")
    receipt = history.erase(0)
    assert 3 == receipt.places  # both revisions, and the copy in the fork
    assert ["", "two"] == texts(history)
    assert ["", "two"] == [message.text for message in history.at(0)]
    assert ["", "two", "three", ""] == texts(store.get(other.id))


def test_in_memory_one_of_two_messages_with_an_id_is_erased() -> None:
    history = History([user("one", id="x"), user("two", id="x")])
    other = history.fork()
    history.replace(0, user("one, better", id="x"))
    other.append(history[0])
    with pytest.raises(AmbiguousMessage):
        history.erase("x")
    assert 3 == history.erase(history[0]).places
    assert (["", "two"], ["", "two", ""]) == (texts(history), texts(other))


def test_a_revised_message_is_found_and_erased_by_its_id(store: Store) -> None:
    history = store.create([user("one", id="x"), user("two")])
    history.replace(0, user("better", id="x"))
    history.truncate(keep_last=1)
    assert "better" == history.log[history.view.find("x")].text
    assert 2 == history.erase("x").places


def test_the_command_and_the_page_refuse_an_ambiguous_name(tmp_path: Path) -> None:
    with palaver.open(tmp_path / "chat.db") as store:
        store.create([user("one"), user("two", id="msg-1")], id="talk")
    done = CliRunner().invoke(
        app, ["erase", "talk", "msg-1", "--yes", "--store", str(tmp_path / "chat.db")]
    )
    assert (1, True) == (done.exit_code, "could mean 2 messages" in done.output + done.stderr)


_IDS = st.sampled_from(["msg-1", "msg-2", "msg-3", "msg-9", "a", "b"])
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "named", "insert", "replace", "import", "session", "fork",
                         "merge", "truncate", "undo", "export"]),
        st.integers(0, 5),
        st.lists(_IDS, max_size=4, unique=True),
    ),
    max_size=14,
)  # fmt: skip


class _Names:
    """A history under test, with the text of the message that each handle was given out for."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.history: StoredHistory = store.create([user("0")])
        self.forks: list[StoredHistory] = []
        self.count = 0

    def message(self, **fields: Any) -> Message:  # noqa: ANN401 - Message's own fields
        self.count += 1
        return user(str(self.count), **fields)

    def step(self, action: str, number: int, names: list[str]) -> None:  # noqa: C901 - one case each
        history, at = self.history, number % (len(self.history) + 1)
        if action == "append":
            history.append(self.message())
        elif action == "named":
            history.extend([self.message(id=name) for name in names])
        elif action == "insert":
            history.insert(at, [self.message()])
        elif action == "replace" and at < len(history):
            history.replace(at, self.message(id=history[at].id))
        elif action == "import":
            said = snapshot(*((name, str(self.count)) for name in names))
            given = io.BytesIO(json.dumps(said).encode())
            import_conversation(self.store, given, into=history.id)
            history.refresh()
        elif action == "session":
            history.replace_all([], team_task=None, reason="SESSION")
        elif action == "fork":
            self.forks.append(history)
            self.history = history.fork()
            self.history.append(self.message())
        elif action == "merge" and self.forks:
            parent = self.forks.pop()
            parent.merge(history)
            self.history = parent
        elif action == "truncate":
            history.truncate(keep_last=number)
        elif action == "undo":
            history.undo()
        elif action == "export":
            with_all = io.BytesIO()
            export_conversation(self.store, history.id, with_all)
            with_all.seek(0)
            self.history = import_conversation(
                self.store, with_all, id=f"again-{self.count}-{number}"
            )

    def check(self) -> None:
        """Every handle leads back to its message, or to its newest revision, or is refused."""
        view = self.history.view
        for index in range(len(view)):
            handle = view.handle(index)
            if handle is not None:
                with suppress(AmbiguousMessage):
                    both = {view.find(handle), view.position(index)}
                    assert 1 == len(same_messages(view.log, both))


@given(_STEPS)
def test_a_handle_never_names_another_message(steps: list[tuple[str, int, list[str]]]) -> None:
    with palaver.open(":memory:") as store:
        names = _Names(store)
        for action, number, ids in steps:
            try:
                names.step(action, number, ids)
            except PalaverError:
                continue  # nothing to undo, an id that is taken
            names.check()


@given(st.lists(_IDS, min_size=1, max_size=5, unique=True), st.integers(1, 3))
def test_numbering_after_an_import_is_that_of_the_document(ids: list[str], added: int) -> None:
    """`calculateNextMessageId`: the greatest number plus one, and on from there."""
    context = ContextManager()
    context.import_snapshot(snapshot(*((name, name) for name in ids)))
    numbers = [int(name[4:]) for name in ids if name.startswith("msg-")]
    following = max(numbers) + 1 if numbers else len(ids) + 1
    for number in range(following, following + added):
        new = context.history.append(user("new"))
        assert f"msg-{number}" == context.handle(new)
        assert new == context.message(f"msg-{number}")
    for name in ids:
        assert name == context.message(name).text
    taken = context.export_snapshot()
    context.import_snapshot(taken)
    assert taken["messages"] == context.export_snapshot()["messages"]


# ── operations ───────────────────────────────────────────────────────────────────────────────────

# HI-01, HI-10, HI-13

BAD: list[dict[str, Any]] = [
    {"operation": "APPEND", "messages": [{"role": "user", "content": "new"}]},
    {"operation": "INSERT", "position": 99, "messages": []},
]


def test_a_list_of_operations_is_executed_all_or_nothing(store: Store) -> None:
    history = store.create([user(text) for text in "abc"])
    with pytest.raises(ValidationError) as caught:
        history.execute(BAD)
    assert "$[1].position" == caught.value.path
    assert (0, ["a", "b", "c"]) == (history.version, texts(store.get(history.id)))
    result = history.execute(
        [
            {"operation": "INSERT", "position": 1, "messages": [{"role": "user", "content": "x"}]},
            {"operation": "REPLACE", "index": 1, "message": {"role": "user", "content": "y"}},
            {"operation": "APPEND", "messages": [{"role": "user", "content": "z"}]},
            {"operation": "TRUNCATE", "removeFirst": 1},
        ],
        key="k",
    )
    assert (1, 3, 3) == (history.version, result.affected_batch_index, history.batch_index)
    again = store.get(history.id)
    again.execute(BAD[:1], key="k")
    assert (1, ["y", "b", "c", "z"]) == (again.version, texts(again))
    snapshots = [again.batch_snapshot(index) for index in range(3)]
    assert [["a", "b", "c"], ["a", "x", "b", "c"], ["a", "y", "b", "c", "z"]] == [
        [message.text for message in one.messages] for one in snapshots if one is not None
    ]
    again.undo()
    assert (["a", "b", "c"], 0) == (texts(again), again.batch_index)
    again.redo()
    assert (["y", "b", "c", "z"], 3) == (texts(again), again.batch_index)
    again.rollback(1)
    assert ["a", "x", "b", "c"] == texts(store.get(history.id))
    assert ["a", "x", "b", "c"] == texts(store.get(history.id).fork())


def test_a_list_is_exported_and_imported(store: Store) -> None:
    history = store.create([user(text) for text in "abc"])
    history.execute([Insert(0, (user("x"),)), Insert(0, (user("y"),)), {"operation": "CLEAR"}])
    fork = history.fork()
    fork.rollback(1)
    for one in (history, fork):
        written = io.BytesIO()
        export_conversation(store, one.id, written)
        written.seek(0)
        copy = import_conversation(store, written, id=f"copy of {one.id}")
        assert texts(one) == texts(copy)
        copy.rollback(1)
        assert ["x", "a", "b", "c"] == texts(copy)


def test_a_list_is_refused_if_another_writer_came_first(store: Store) -> None:
    one = store.create([user("a")])
    other = store.get(one.id)
    other.append(user("b"))
    one.execute(BAD[:1])
    assert ["a", "b", "new"] == texts(one)
    other.append(user("c"))
    other.append(user("d"))
    one.execute([*BAD[:1], *BAD[:1]])
    assert ["a", "b", "new", "c", "d", "new", "new"] == texts(one)
    other.refresh().append(user("e"))
    with pytest.raises(Conflict, match="2 operations"):
        one.execute([{"operation": "CLEAR"}, {"operation": "CLEAR"}])
    one.execute([{"operation": "CLEAR"}, {"operation": "CLEAR"}])
    assert [] == texts(one)


@pytest.mark.anyio
async def test_the_node_applies_a_list_all_or_nothing(store: Store) -> None:
    conversation = Conversation(store, store.create([user("a"), user("b")]))
    with pytest.raises(ValidationError) as caught:
        await edit_context(conversation, BAD)
    assert ("$[1].position", 2) == (caught.value.path, len(conversation.history))
    done = await edit_context(
        conversation, [*BAD[:1], {"operation": "truncate", "truncate": {"keepLast": 1}}]
    )
    assert ("edited", ["new"]) == (done.outcome, texts(conversation.history))
    conversation.history.undo()
    assert ["a", "b"] == texts(conversation.history)


def test_the_commands_apply_a_list_all_or_nothing(tmp_path: Path) -> None:
    address = str(tmp_path / "chat.db")
    with palaver.open(address) as store:
        store.create([user("a")], id="talk")
    ops, said = tmp_path / "ops.json", tmp_path / "said.json"
    ops.write_text(json.dumps(BAD))
    said.write_text('[{"role": "user", "content": "a"}]')
    for command in (
        ["edit", "talk", "--ops", str(ops), "--store", address],
        ["apply", str(said), "--ops", str(ops)],
    ):
        done = CliRunner().invoke(app, command)
        assert 1 == done.exit_code
        assert "$[1].position: " in done.stderr
        assert "" == done.stdout
    with palaver.open(address) as store:
        assert 0 == store.get("talk").version


@pytest.mark.parametrize(
    "operation",
    [
        {"operation": "CLEAR", "keepSystemMessage": None},
        {"operation": "TRUNCATE", "keepLast": 9, "keepFirst": None, "range": None, "role": None,
         "others": None},
        {"operation": "FILTER", "roles": ["system"], "contentContains": None,
         "contentExcludes": None},
    ],
)  # fmt: skip
def test_null_for_an_optional_field_is_its_default(operation: dict[str, Any]) -> None:
    history = History([palaver.system("be brief"), user("hello")])
    history.execute(operation)
    assert "be brief" == history[0].text
    name, fields = operation["operation"].lower(), dict(operation)
    del fields["operation"]
    assert (parse_operation(operation),) == parse_context({"operation": name, name: fields})


@pytest.mark.parametrize(
    "operation",
    [
        {"operation": "INSERT", "position": None, "messages": []},
        {"operation": "APPEND", "messages": None},
        {"operation": "ROLLBACK", "targetBatchIndex": None},
        {"operation": "CLEAR", "keepSystem": None},
    ],
)
def test_null_for_a_needed_or_unknown_field_is_refused(operation: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        History().execute(operation)


def test_redo_returns_as_often_as_there_were_rollbacks(store: Store) -> None:
    history = store.create([user("a")])
    for text in "bc":
        history.append(user(text))
        history.truncate(keep_last=1)
    history.append(user("d"))
    history.rollback(1)
    history.rollback(0)
    history = store.get(history.id)
    assert [["a", "b"], ["b", "c"], ["c", "d"]] == [
        texts(history),
        [message.text for message in history.redo().state.messages],
        [message.text for message in store.get(history.id).redo().state.messages],
    ]
    assert not store.get(history.id).can_redo


class _State:
    """One moment of the model: the messages, what undo returns to, and what redo returns to."""

    def __init__(self, content: list[str], back: _State | None, redo: tuple[_State, ...]) -> None:
        self.content = content
        self.back = back
        self.redo = redo


@at_least(1_000)
@given(st.lists(st.tuples(st.sampled_from(["append", "drop", "rollback", "undo", "redo"]),
                          st.integers(0, 4)), max_size=25))  # fmt: skip
def test_undo_rollback_and_redo_are_those_of_an_editor(steps: list[tuple[str, int]]) -> None:
    history, now, count = History(), _State([], None, ()), 0
    for action, number in steps:
        if action == "append":
            count += 1
            history.append(user(str(count)))
            now = _State([*now.content, str(count)], now, ())
        elif action == "drop":
            history.truncate(remove_first=1)
            now = _State(now.content[1:], now, ())
        elif action == "rollback" and number < history.batch_index:
            there = history.batch_snapshot(number)
            assert there is not None
            history.rollback(number)
            now = _State([m.text for m in there.messages], now, (now, *now.redo))
        elif action == "undo" and now.back is not None:
            history.undo()
            now = _State(now.back.content, now.back.back, (now, *now.redo))
        elif action == "redo" and now.redo:
            history.redo()
            to, *rest = now.redo
            now = _State(to.content, to.back, tuple(rest))
        assert now.content == texts(history)
        assert (now.back is not None, bool(now.redo)) == (history.can_undo, history.can_redo)


# ── a filter and a query look at all content ─────────────────────────────────────────────────────

# HI-07, QR-01


def _contents() -> dict[str, Message]:
    ids: dict[str, Any] = {"session_id": new_id(), "message_id": new_id()}
    state = complete(start(pending({"city": "Oslo", "days": 41}, "{}")), "Sleet", tool="forecast")
    call: dict[str, Any] = {"call_id": "c", "tool": "forecast"}
    file = FilePart(id=new_id(), **ids, mime="image/png", url="data:xyz", filename="map.png")
    source = FileSource("src/main.rs", SourceText("fn main", 0, 7))
    read = FilePart(id=new_id(), **ids, mime="text/plain", url="file:///m", source=source)
    raw = '{"city": "S\\u00e3o"}'
    made: dict[str, Message] = {
        "text": user("Tea"),
        "reasoning": assistant([reasoning_part(**ids, text="Perhaps")]),
        "arguments": assistant([
            tool_call_part(**ids, tool="forecast", input={"city": "S\u00e3o", "n": {"x": [1]}},
                           call_id="d", raw=raw),
        ]),
        "result": Message("tool", (ToolPart(id=new_id(), **ids, **call, state=state),)),
        "error": Message("tool", (ToolPart(id=new_id(), **ids, **call,
                                           state=fail(start(pending({}, "{}")), "Closed")),)),
        "file": user([file]),
        "source": user([read]),
        "subtask": user([SubtaskPart(id=new_id(), **ids, prompt="Dig", description="", agent="")]),
        "unknown": user([UnknownPart({"type": "hologram", "beam": [{"of": "Light"}]})]),
    }  # fmt: skip
    return made


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("Tea", ["text"]),
        ("tea", []),
        ("Perhaps", ["reasoning"]),
        ("S\u00e3o", ["arguments"]),
        ("forecast", ["arguments", "result", "error"]),
        ("Oslo", ["result"]),
        ("41", ["result"]),
        ("Sleet", ["result"]),
        ("Closed", ["error"]),
        ("map.png", ["file"]),
        ("data:xyz", []),
        ("main.rs", ["source"]),
        ("Dig", ["subtask"]),
        ("Light", ["unknown"]),
    ],
)
def test_a_filter_and_a_query_look_at_all_content(
    store: Store, word: str, found: list[str]
) -> None:
    contents = _contents()
    names = {message.id: name for name, message in contents.items()}
    history = store.create(contents.values())
    assert found == [names[message.id] for message in history.query(text=word)]
    assert len(found) == history.count(text=word)
    other = history.fork()
    other.filter(content_excludes=[word])
    assert [name for name in contents if name not in found] == [names[m.id] for m in other]
    history.execute({"operation": "FILTER", "contentContains": [word, "none of it"]})
    assert found == [names[message.id] for message in history]


# ── turns, the parts of a step, summaries ────────────────────────────────────────────────────────

# PT-01, PT-04, PT-07, PT-08


@pytest.mark.anyio
async def test_a_step_writes_its_parts_and_who_answered(store: Store) -> None:
    conversation = Conversation(store)
    conversation.add(user("hi", info=UserInfo(agent="build")))
    answer = (await conversation.step(Scripted(saying("Hel", "lo")))).message
    start_part, text, finish = answer.parts
    assert isinstance(start_part, StepStartPart)
    assert isinstance(finish, StepFinishPart)
    assert isinstance(answer.info, AssistantInfo)
    assert ("Hello", "Hello") == (answer.text, getattr(text, "text", ""))
    assert (answer.info.tokens, answer.info.cost) == (finish.tokens, finish.cost)
    assert (10, 3, "stop") == (finish.tokens.input, finish.tokens.output, finish.reason)
    assert ("build", "build") == (answer.info.agent, answer.info.mode)
    assert answer.info.path is not None
    assert str(Path.cwd()) == answer.info.path.cwd
    assert {answer.id} == owners(answer.parts)
    assert answer == store.get(conversation.id)[1]
    conversation.add(user("again"))
    other = (await conversation.step(Scripted(saying("so")))).message
    assert isinstance(other.info, AssistantInfo)
    assert "assistant" == other.info.agent


@pytest.mark.parametrize("form", sorted(wire.FORMATS))
def test_the_parts_of_a_step_change_nothing_for_a_provider(form: str) -> None:
    ids: dict[str, Any] = {"session_id": new_id(), "message_id": new_id()}
    call = tool_call_part(**ids, tool="forecast", input={"city": "Oslo"}, call_id="c")
    result = ToolPart(id=new_id(), **ids, call_id="c", tool="forecast",
                      state=completed({}, "Sleet", "forecast", start=1, end=2))  # fmt: skip
    answers = [assistant("One."), assistant([call]), assistant("Two.")]
    plain = [user("a"), answers[0], user("b"), answers[1], Message("tool", (result,)), answers[2]]
    around = [
        describe_step(message, "talk") if message.role == "assistant" else message
        for message in plain
    ]
    one, other = wire.to(form, plain), wire.to(form, around)
    assert (one.body, one.notes) == (other.body, other.notes)
    assert all(len(message.parts) >= 3 for message in around if message.role == "assistant")


def test_nothing_keeps_a_paid_answer_from_being_described() -> None:
    many = [palaver.messages.text_part(new_id(), new_id(), "x") for _ in range(10_000)]
    assert 10_000 == len(describe_step(assistant(many), "talk").parts)
    empty = describe_step(assistant("", info=AssistantInfo(finish="stop")), "talk")
    assert ["step-start", "step-finish"] == [part.type for part in empty.parts]


@pytest.mark.anyio
async def test_a_turn_of_a_live_conversation_shows_what_the_ledger_does(store: Store) -> None:
    seen: list[str] = []

    def look(city: str) -> str:
        turn = fold(conversation.messages, conversation.ledger())[-1]
        (call,) = (part for part in turn.parts if isinstance(part, ToolPart))
        assert {turn.info.id} == owners(turn.parts)
        seen.append(call.state.status)
        return f"Sleet in {city}"

    conversation = Conversation(store, tools=[look])
    conversation.add(user("Weather?"))
    step = await conversation.step(Scripted(calling(("look", {"city": "Oslo"}))))
    (before,) = (p for p in fold(conversation.messages, conversation.ledger())[-1].parts
                 if isinstance(p, ToolPart))  # fmt: skip
    await conversation.run_tools(step.calls)
    turns = fold(conversation.messages, conversation.ledger())
    (after,) = (part for part in turns[-1].parts if isinstance(part, ToolPart))
    assert ("pending", ["running"], "completed") == (before.state.status, seen, after.state.status)
    assert {turns[-1].info.id} == owners(turns[-1].parts)
    messages = unfold(turns).messages
    assert tuple(conversation.messages) == messages
    assert all(owners(message.parts) <= {message.id} for message in messages)


@pytest.mark.anyio
async def test_compaction_writes_the_users_summary(store: Store) -> None:
    conversation = Conversation(store)
    old = [user(f"{number} " + "word " * 200) for number in range(6)]
    conversation.history.extend(old)
    model = Scripted(saying("They counted."))
    await compact(conversation, Summarise(model=model, keep_tokens=300))
    asked = conversation.messages[0]
    assert isinstance(asked.info, UserInfo)
    assert asked.info.summary is not None
    assert "They counted." == asked.info.summary.body
    assert (asked.info.summary.title or "").startswith("Summary of ")
    conversation.history.erase(old[0])
    assert {"", None} >= {conversation.messages[0].text, conversation.messages[0].info}


def test_the_states_of_a_call_are_made_by_the_documents_helpers() -> None:
    assert ("running", "Search") == (running({}, "Search").status, running({}, "Search").title)
    done = completed({"q": 1}, "warm", "Weather", {"a": 1}, start=3, end=5)
    assert ("completed", "warm", "Weather", 3, 5) == (
        done.status, done.output, done.title, done.time.start, done.time.end,
    )  # fmt: skip
    assert ("(no output)", "") == (
        completed({}, "", "t", start=1, end=1).output,
        completed({}, "", "t", start=1, end=1).metadata["rawOutput"],
    )
    assert ("error", "no", 1) == (
        failed({}, "no", start=1, end=1).status, failed({}, "no", start=1, end=1).error,
        failed({}, "no", start=1, end=1).time.end,
    )  # fmt: skip


def test_an_end_before_its_start_and_an_empty_type_are_refused() -> None:
    ids: dict[str, Any] = {"session_id": new_id(), "message_id": new_id()}
    for make in (
        lambda: completed({}, "x", "t", start=5, end=4),
        lambda: failed({}, "x", start=5, end=4),
        lambda: reasoning_part(**ids, text="x", start=5, end=4),
        lambda: palaver.messages.text_part(**ids, text="x", time=TextTime(5, 4)),
    ):
        with pytest.raises(ValidationError, match="before the start: 4 < 5") as caught:
            make()
        assert "$.time.end" == caught.value.path
    with pytest.raises(ValidationError, match="must not be empty"):
        UnknownPart({"type": ""})
    state = {"status": "error", "input": {}, "error": "x", "time": {"start": 5, "end": 4}}
    part = {"id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1", "type": "tool",
            "callID": "c", "tool": "t", "state": state}  # fmt: skip
    info = {"id": "msg_1", "sessionID": "ses_1", "role": "assistant", "time": {"created": 1}}
    export = json.dumps([{"info": info, "parts": [part]}])
    read = parse_export(export)  # what comes from outside is mapped, and written as it was
    assert json.loads(export) == write_export(read)
