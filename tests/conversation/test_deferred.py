"""Edits that wait until the provider's cache breaks anyway."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palaver
from palaver.conversation import (
    ClearOutputs,
    Conversation,
    DropOldest,
    compact,
    defer_compaction,
    deferred,
)
from palaver.conversation.deferred import DEFERRED, DeferredEdit, apply_edits, plan_deferred
from palaver.conversation.prompt_cache import CACHE, read_prefixes
from palaver.errors import CompactionRefused, StoreDamaged, ValidationError
from palaver.history import History, Rewrite
from palaver.messages import assistant, new_id, user
from palaver.messages.parts import tool_call_part, tool_part
from palaver.messages.tool_state import complete, pending, start
from palaver.stores import open_store
from palaver.stores.transfer import export_conversation, import_conversation
from palaver.testing.providers import check_request
from palaver.tools import tool
from tests.conversation.scripted import Scripted
from tests.conversation.test_cache_ledger import LONG, cached

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from palaver.history import View
    from palaver.messages import Message
    from palaver.stores import Store

KEEP_LAST: dict[str, Any] = {"operation": "TRUNCATE", "keepLast": 1}


@tool
def clock() -> str:
    """The time of day."""
    return "noon"


@pytest.fixture
def store() -> Iterator[Store]:
    """A store in memory."""
    with open_store(":memory:") as opened:
        yield opened


def warm(store: Store, answers: int = 4) -> Conversation:
    """A conversation of four messages, after a request that is in the provider's cache."""
    model = Scripted(*(cached(f"answer {n}", 8_000, 7_000) for n in range(answers + 1)))
    talk = Conversation(store, model=model)
    talk.add(user(LONG))
    anyio.run(talk.step)
    return talk


def texts(talk: Conversation) -> list[str]:
    """The first letters of what is said."""
    return [message.text[:8] for message in talk.history.refresh()]


def age(talk: Conversation, seconds: int) -> None:
    """Make the last request so many seconds older."""
    for prefix in read_prefixes(talk.store.records(talk.id, CACHE)):
        older = msgspec.structs.replace(prefix, at=prefix.at - seconds * 1_000)
        talk.store.put_records(talk.id, [older.record()])


def ask(talk: Conversation, text: str = "go on", **more: Any) -> None:  # noqa: ANN401 - as step has them
    """Add a question and take a step."""
    talk.add(user(text))
    anyio.run(lambda: talk.step(**more))


def test_it_waits_while_the_cache_holds_and_is_applied_once_it_has_expired(store: Store) -> None:
    """Nothing changes before; then it is one batch, without its record, and undo restores."""
    talk = warm(store)
    talk.defer(KEEP_LAST, detail="only the newest")
    ask(talk)
    assert ["a stone,", "answer 0", "go on", "answer 1"] == texts(talk)
    assert [("only the newest", None)] == [(e.detail, e.problem) for e in talk.deferred()]
    age(talk, 4_000)
    ask(talk, "later")
    assert ["answer 0", "go on", "answer 1", "later", "answer 2"] == texts(talk)
    assert [] == talk.deferred()
    kinds = [change.kind for change in store.journal(talk.id, -1, 100)]
    assert 1 == kinds.count("deferred")
    for _ in range(2):  # the answer, then the edit
        talk.history.undo()
    assert ["a stone,", "answer 0", "go on", "answer 1", "later"] == texts(talk)
    ask(talk, "again")
    assert 1 == [c.kind for c in store.journal(talk.id, -1, 100)].count("deferred")


@pytest.mark.parametrize("why", ["model", "tools", "compaction", "edit"])
def test_every_break_that_happens_anyway_applies_it(store: Store, why: str) -> None:
    """Another model, other tools, a compaction, an edit before it."""
    talk = warm(store)
    ask(talk, "second")
    edit = talk.defer({"operation": "REPLACE", "index": 2, "message": _said("tidied")})
    more: dict[str, Any] = {}
    if why == "model":
        more = {"model": Scripted(cached("other", 8_000, 0), name="other")}
    elif why == "tools":
        more = {"tools": [clock]}
    elif why == "compaction":
        talk.history.rewrite([user("summed up"), range(1, 4)])
    else:
        talk.history.replace(0, user("shorter"))
    ask(talk, "third", **more)
    assert "tidied" in texts(talk)
    assert "second" not in texts(talk)
    assert edit.id not in store.records(talk.id, DEFERRED)


def test_an_edit_behind_it_is_no_reason(store: Store) -> None:
    """What comes before the change is still read from the cache, so that it waits on."""
    talk = warm(store)
    ask(talk, "second")
    talk.defer({"operation": "REPLACE", "index": 0, "message": _said("short")})
    talk.history.replace(3, assistant("another answer"))
    ask(talk, "third")
    assert 1 == len(talk.deferred())
    assert "a stone," == texts(talk)[0]


def test_several_are_applied_in_one_batch(store: Store) -> None:
    """Each in its own place; only the first of those that clash."""
    talk = warm(store, 5)
    for text in ("second", "third"):
        ask(talk, text)
    talk.defer({"operation": "REPLACE", "index": 0, "message": _said("short")})
    talk.defer({"operation": "INSERT", "position": 3, "messages": [_said("between")]})
    talk.defer(_without(talk, 4))
    batches = talk.history.view.batch_index
    assert 3 == len(talk.apply_deferred())
    assert ["short", "answer 0", "second", "between", "answer 1", "answer 2"] == texts(talk)
    assert batches + 1 == talk.history.view.batch_index
    assert [] == talk.apply_deferred()


def _without(talk: Conversation, index: int) -> Rewrite:
    return Rewrite((range(index), range(index + 1, len(talk))), "DELETE")


def _said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_one_that_no_longer_fits_says_so_and_waits(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not applied by halves, it is reported, and a person cancels it."""
    talk = warm(store)
    ask(talk, "second")
    edit = talk.defer(KEEP_LAST)
    talk.history.truncate(remove_first=1)
    age(talk, 4_000)
    ask(talk, "third")
    assert ["answer 0", "second", "answer 1", "third", "answer 2"] == texts(talk)
    (waiting,) = talk.deferred()
    assert "no longer" in (waiting.problem or "")
    assert "was not applied" in caplog.text
    ask(talk)
    assert edit.id == talk.cancel_deferred(edit.id).id
    with pytest.raises(ValidationError, match="it was applied or cancelled"):
        talk.cancel_deferred(edit.id)


def test_a_failure_does_not_stop_a_step(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """A record that can't be read is logged; the step is taken."""
    talk = warm(store)
    store.put_records(talk.id, [(DEFERRED, "broken", b"{")])
    ask(talk)
    assert "answer 1" == texts(talk)[-1]
    assert "could not be applied" in caplog.text
    with pytest.raises(StoreDamaged, match="can't be read"):
        talk.deferred()


def test_what_cannot_wait_is_refused(store: Store) -> None:
    """An append, a rollback, another order, nothing at all, and the same thing twice."""
    talk = warm(store)
    for operation in (
        {"operation": "APPEND", "messages": [_said("x")]},
        {"operation": "ROLLBACK", "targetBatchIndex": 0},
    ):
        with pytest.raises(ValidationError, match="can't wait"):
            talk.defer(operation)
    with pytest.raises(ValidationError, match="changes the order"):
        talk.defer(Rewrite((range(1, 2), range(1))))
    with pytest.raises(ValidationError, match="would change nothing"):
        talk.defer({"operation": "TRUNCATE", "keepLast": 9})
    first = talk.defer(KEEP_LAST)
    with pytest.raises(ValidationError, match=first.id):
        talk.defer({"operation": "CLEAR"})
    assert 1 == len(talk.deferred())


def test_somebody_else_who_comes_first_is_waited_for(store: Store) -> None:
    """It is planned again on what they left; applied by them, it is not applied again."""
    talk = warm(store)
    edit = talk.defer({"operation": "REPLACE", "index": 0, "message": _said("short")})
    other = store.get(talk.id)
    other.append(user("meanwhile"))
    assert [edit.id] == [one.id for one in apply_edits(store, talk.history, [edit])[0]]
    assert ["short", "answer 0", "meanwhil"] == texts(talk)
    assert ([], []) == apply_edits(store, other, [edit])


def test_two_that_apply_it_at_once_apply_it_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second finds another version than it planned for, and then no record."""
    talk = warm(store)
    edit = talk.defer({"operation": "INSERT", "position": 1, "messages": [_said("new")]})
    other, plan = store.get(talk.id), deferred._pieces
    raced: list[bool] = []

    def race(view: View, edits: Iterable[DeferredEdit]) -> object:
        planned = plan(view, edits)
        if not raced:
            raced.append(True)
            apply_edits(store, other, [edit])
        return planned

    monkeypatch.setattr(deferred, "_pieces", race)
    assert ([], []) == apply_edits(store, talk.history, [edit])
    assert ["a stone,", "new", "answer 0"] == texts(talk)


def test_it_survives_a_crash_and_is_exported(tmp_path: Path) -> None:
    """It is in the store, not in the process, and goes with the conversation."""
    path = tmp_path / "talks.db"
    with open_store(path) as first:
        talk = warm(first)
        edit = talk.defer(KEEP_LAST)
        exported = io.BytesIO()
        export_conversation(first, talk.id, exported)
    with open_store(path) as again, open_store(":memory:") as elsewhere:
        assert [edit] == Conversation(again, talk.id).deferred()
        moved = import_conversation(elsewhere, io.BytesIO(exported.getvalue()))
        assert [edit] == Conversation(elsewhere, moved.id).deferred()


def test_an_erased_message_leaves_no_trace_in_one_that_waits(store: Store) -> None:
    """A replacement that repeats the text is destroyed with it."""
    talk = warm(store)
    secret = talk.add(user("the door code is 4711 4711"))
    message = _said("the door code is 4711 4711, shortened")
    talk.defer({"operation": "REPLACE", "index": 2, "message": message})
    talk.history.erase(secret)
    assert [] == talk.deferred()


@pytest.mark.anyio
async def test_a_compaction_may_wait_too(store: Store) -> None:
    """It is planned now; what is said meanwhile stays, and it is not planned twice."""
    talk = Conversation(store)
    for message in _talk_with_tools(3):
        talk.add(message)
    strategy = ClearOutputs(protect_tokens=0, protect_turns=1, least_gain=1)
    edit = await defer_compaction(talk, strategy)
    assert edit is not None
    assert "clear-outputs: cleared the outputs of 2 tool calls" == edit.detail
    assert edit.tokens > 100
    with pytest.raises(CompactionRefused, match="waits"):
        await defer_compaction(talk, strategy)
    talk.add(user("meanwhile"))
    before = [message.id for message in talk.messages]
    assert [edit.id] == [one.id for one in talk.apply_deferred()]
    assert len(before) == len(talk)
    assert "meanwhile" == talk.messages[-1].text
    cleared = [m for m in talk.messages if "clearedFrom" in m.metadata]
    assert 2 == len(cleared)
    assert await defer_compaction(talk, DropOldest(keep_tokens=10**9)) is None
    assert await compact(talk, DropOldest(keep_tokens=10)) is not None


def _talk_with_tools(turns: int) -> list[Message]:
    session, found = new_id(), list[Any]()
    for turn in range(turns):
        name, result = new_id(), new_id()
        call = tool_call_part(session, name, "clock", {"n": turn}, call_id=f"call_{turn}")
        state = complete(start(pending({"n": turn}, "{}")), "tick tock " * 50, tool="clock")
        part = tool_part(session, result, f"call_{turn}", "clock", state)
        found += [
            user(f"turn {turn}"),
            palaver.Message("assistant", (call,), id=name),
            palaver.Message("tool", (part,), id=result),
            assistant(f"done {turn}"),
        ]
    return found


OPERATIONS = st.one_of(
    st.builds(lambda n: {"operation": "TRUNCATE", "keepLast": n}, st.integers(0, 12)),
    st.builds(lambda n: {"operation": "TRUNCATE", "removeLast": n}, st.integers(0, 12)),
    st.builds(
        lambda n: {"operation": "INSERT", "position": n, "messages": [_said("new")]},
        st.integers(0, 8),
    ),
    st.builds(
        lambda n: {"operation": "REPLACE", "index": n, "message": _said("other")}, st.integers(0, 7)
    ),
    st.just({"operation": "FILTER", "roles": ["user"]}),
    st.just({"operation": "CLEAR"}),
)


@given(operation=OPERATIONS, before=st.integers(1, 3), more=st.integers(0, 5))
@settings(deadline=None)
def test_later_it_does_what_it_would_have_done_at_once(
    operation: dict[str, Any], before: int, more: int
) -> None:
    """The same messages are left, in the same order, with what was added meanwhile after them.

    No message is lost that the edit does not remove, and the request is valid in every format.
    """
    messages = _talk_with_tools(before)
    now = History(messages)
    try:
        edit = plan_deferred(now.view, operation)
    except ValidationError:
        return
    now.execute(operation)
    added = [user(f"later {n}") for n in range(more)]
    with open_store(":memory:") as store:
        talk = Conversation(store)
        for message in messages:
            talk.add(message)
        edit = plan_deferred(talk.messages, operation)
        assert edit == msgspec.json.decode(edit.record()[2] or b"", type=DeferredEdit)
        store.put_records(talk.id, [edit.record()])
        for message in added:
            talk.add(message)
        assert [edit.id] == [one.id for one in talk.apply_deferred()]
        expected = [m.text for m in now.view] + [m.text for m in added]
        assert expected == [m.text for m in talk.messages]
        talk.history.undo()
        assert [*messages, *added] == list(talk.messages)
        talk.history.redo()
        for form in palaver.wire.FORMATS:
            assert () == check_request(form, palaver.wire.to(form, talk.messages).body)
