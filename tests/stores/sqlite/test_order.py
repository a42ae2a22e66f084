"""Messages by role, id and time: in order or not, in forks, and beside another process."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import palaver
from palaver.errors import Stale, UnknownConversation
from palaver.messages import Message, user
from palaver.stores.records import Change
from palaver.stores.sqlite.connections import QUERIES
from palaver.stores.sqlite.order import NONE_IN_ORDER, check_order
from tests.profiles import at_least

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from palaver.messages import Role
    from palaver.stores import StoredHistory

ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
MADE_HERE = [f"0190163d-86{number:02d}-739b-aea5-966c26f8ad91" for number in range(40)]
IDS = st.sampled_from([*MADE_HERE, "a", "msg-7", "ÿ"])
"""In order and not, some twice, and some of others' making."""


def message(name: str, role: Role, sent: int) -> Message:
    return Message(role, name, id=name, timestamp=sent)


MESSAGES = st.builds(message, IDS, st.sampled_from(("user", "assistant")), st.integers(0, 9))
IN_ORDER = st.integers(1, 30).map(
    lambda count: [message(MADE_HERE[n], ROLES[n % 3], n // 4) for n in range(count)]
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("extend"), st.lists(MESSAGES, min_size=1, max_size=20) | IN_ORDER),
        st.tuples(st.just("replace"), MESSAGES.map(lambda new: [new])),
        st.tuples(st.just("fork"), st.just([])),
        st.tuples(st.just("back"), st.just([])),
    ),
    min_size=1, max_size=12,
)  # fmt: skip


def take(step: str, new: list[Message], made: list[StoredHistory]) -> None:
    """Take a step in the conversation that was made last, or in the one before it."""
    history = made[-1]
    if step == "extend":
        history.extend(new)
    elif step == "replace" and len(history):
        history.replace(len(history) // 2, new[0])
    elif step == "fork":
        made.append(history.fork())
    elif step == "back":
        made.insert(0, made.pop())


def check_lookups(history: StoredHistory, backend: Any) -> None:  # noqa: ANN401 - a backend
    log = list(backend.messages(history.id, 0, len(history.log.log)))
    assert len(log) == len(history.log.log)
    for name in {one.id for one in log} | {*MADE_HERE[:3], "nobody"}:
        for _ in range(2):  # it is remembered where it was found
            assert [place for place, one in enumerate(log) if one.id == name] == (
                backend.positions_of(history.id, name)
            )
    for role in ROLES:
        places = [place for place, one in enumerate(log) if one.role == role]
        for start, stop in ((0, len(places)), (1, 2), (len(places) // 2, len(places) + 3)):
            assert places[start:stop] == backend.select(history.id, role, start, stop)
    for since, until in ((None, None), (3, None), (None, 3), (2, 5), (4, 5), (9, 3), (99, None)):
        assert [
            place
            for place, one in enumerate(log)
            if (since is None or one.timestamp >= since)
            and (until is None or one.timestamp < until)
        ] == backend.between_times(history.id, since, until)


@at_least(25, in_faults=500)
@given(steps=STEPS)
def test_lookups_find_what_a_list_would(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[Message]]]
) -> None:
    path = tmp_path_factory.mktemp("order") / "chat.db"
    with palaver.open(path) as store, palaver.open(path) as there:
        made = [store.create()]
        for number, (step, new) in enumerate(steps):
            if step == "extend" and number % 3 == 2:
                there.get(made[-1].id).extend(new)  # as another process would
                made[-1].refresh()
            else:
                take(step, new, made)
        for history in made:
            check_lookups(history, store.backend)
            check_lookups(history, there.backend)
        assert [] == list(store.verify())


def test_a_message_of_a_role_far_from_the_next_is_found(path: Path) -> None:
    with palaver.open(path) as store:
        history = store.create()
        many = [message(str(n), "user" if n % 997 else "system", n) for n in range(4_000)]
        history.extend(many)
        places = [place for place, one in enumerate(many) if one.role == "system"]
        assert places == store.backend.select(history.id, "system", 0, 9)
        assert places[2:4] == store.backend.select(history.id, "system", 2, 4)
        assert [] == store.backend.select(history.id, "tool", 0, 5)


@pytest.mark.parametrize("new", [user("x"), Message("user", "x", id="of others", timestamp=1)])
def test_what_was_not_stored_leaves_no_trace(path: Path, new: Message) -> None:
    """An append that came too late is not what the next one is measured by."""
    with palaver.open(path) as store:
        history = store.create([user("a")])
        late = Change(history.id, -1, "append", 1, 2, 2, 1, 1 | 1 << 64, (new,))
        with pytest.raises(Stale):
            store.backend.commit(late)
        history.extend([user("b"), user("c")])
        assert [] == list(store.verify())
        check_lookups(history, store.backend)


def test_a_create_that_fails_leaves_no_trace(path: Path) -> None:
    """Its number goes to the next conversation, which has other ancestors."""
    with palaver.open(path) as store:
        parent = store.create([user("a"), user("b")])
        fork = replace(store.backend.head(parent.fork().id), id="lost")

        def changes() -> Iterator[Change]:
            counts = 2 | 2 << 64
            yield Change("lost", -1, "fork", 1, 3, 3, 2, counts, (user("c"),), b"")
            raise InterruptedError

        with pytest.raises(InterruptedError):
            store.backend.adopt(fork, changes())
        history = store.create([user("d"), user("e")])
        history.append(user("f"))
        check_lookups(history, store.backend)
        assert [] == list(store.verify())


def test_a_conversation_is_unknown_until_it_is_stored(path: Path) -> None:
    """Others see nothing of it while it is being created: not even that it is there."""
    with palaver.open(path) as store:
        counts = 1 | 1 << 64
        head = replace(store.create([user("a")]).head, id="begun")

        def changes() -> Iterator[Change]:
            yield Change("begun", -1, "create", 1, 0, 1, 1, counts, (user("b"),))
            assert "begun" not in store
            with pytest.raises(UnknownConversation):
                store.records("begun", "note")
            yield Change("begun", 0, "append", 2, 1, 2, 2, counts + counts, (user("c"),))
            with pytest.raises(UnknownConversation):
                store.records("begun", "note")

        store.backend.adopt(head, changes())
        assert {} == store.records("begun", "note")
        assert 1 == store.head("begun").version


def test_a_wrong_mark_is_found_wherever_it_stands() -> None:
    names, times = ("a", *MADE_HERE[1:3], "b", MADE_HERE[4]), (5, 5, 4, 6, 6)
    marks: list[int | None] = [-1, 0, 1, -2, 0]
    of_schema_7: list[int | None] = [None, 0, 1, 2, 0]
    """Whoever did not make its ids was late."""

    def found(marks: list[int | None]) -> list[str]:
        return list(check_order(NONE_IN_ORDER, zip(range(5), marks, times, names, strict=True)))

    assert [] == found(marks)
    assert [] == found(of_schema_7)
    assert [] == found([None, 0, 1, -2, 0]), "the file was migrated in between"
    for place, wrong in (
        (0, 0), (0, 1), (1, 1), (2, 0), (2, 2), (2, None), (2, -1), (3, 0), (3, 1), (3, -1),
        (3, None), (4, None), (4, -1), (4, 1), (4, 2),
    ):  # fmt: skip
        damaged = [*marks[:place], wrong, *marks[place + 1 :]]
        assert any(f"message {place}" in problem for problem in found(damaged)), (place, wrong)


def test_an_id_of_others_making_stands_in_one_index_alone(path: Path) -> None:
    with palaver.open(path) as store:
        theirs = [message(str(n), "user", n // 2) for n in range(100)]
        history = store.create(theirs[:50])
        for one in theirs[50:]:
            history.append(one)
        history.append(message("late", "user", 3))
        check_lookups(history, store.backend)
    connection = apsw.Connection(str(path))
    by_id = "SELECT count(*) FROM messages INDEXED BY messages_id WHERE to_latest IS NOT 0"
    by_time = (
        "SELECT count(*) FROM messages INDEXED BY messages_time WHERE coalesce(to_latest, 1) > 0"
    )
    assert (101,) == connection.execute(by_id).fetchone()
    assert (1,) == connection.execute(by_time).fetchone()
    connection.close()


@pytest.mark.parametrize(
    "name", ["end", "up_to", "order_at", "of_role", "of_id", "in_order", "out_of_order"]
)
def test_no_lookup_reads_all_messages(path: Path, name: str) -> None:
    with palaver.open(path) as store:
        store.create([user("a")])
    connection = apsw.Connection(str(path))
    lists = name in {"of_role", "in_order", "out_of_order"}
    values = (json.dumps([[1, 0, 9]]) if lists else 1, 1, 9)
    count = (
        len({*re.findall(r"\?\d*", QUERIES[name])})
        if "?1" in QUERIES[name]
        else (QUERIES[name].count("?"))
    )
    asked = connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[name]}", values[:count])
    plan = [row[3] for row in asked]
    assert [] != [step for step in plan if step.startswith("SEARCH")]
    assert [] == [step for step in plan if step.startswith("SCAN") and "VIRTUAL" not in step]
    connection.close()
