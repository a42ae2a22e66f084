"""How often a client waits for the server, counted between the two."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

import palaver
from palaver.conversation import Conversation
from palaver.conversation import step as steps
from palaver.errors import AlreadyExists, LeaseLost, LeaseTaken, Stale, UnknownConversation
from palaver.messages import user
from palaver.stores.postgres import PostgresBackend
from palaver.stores.records import Change
from tests.conversation.scripted import Scripted, calling, saying
from tests.patience import within
from tests.stores.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from palaver.stores import Store
    from tests.stores.postgres_server import Server


class Counted:
    """A store behind a proxy, in a process that has seen none of its conversations."""

    def __init__(self, proxy: Proxy, store: Store) -> None:
        """Take both; a first statement opens the connection."""
        self._proxy = proxy
        self.store = store
        store.list(limit=1)

    def trips(self, work: Callable[[Store], object]) -> int:
        """Return how often something waits for the server."""
        before = self._proxy.trips
        work(self.store)
        return self._proxy.trips - before


@pytest.fixture
def counted(postgres_server: Server, postgres: str) -> Iterator[Counted]:
    name = postgres.partition("@/")[2].partition("?")[0]
    with palaver.open(postgres) as store:
        talk = store.create([user(str(number)) for number in range(50)], id="talk")
        talk.fork(id="fork").append(user("of the fork"))
        store.create([user("0")], id="edited", title="Tea").insert(0, [user("1")])
    with (
        tempfile.TemporaryDirectory(prefix="palaver-proxy-") as folder,
        Proxy(Path(folder), postgres_server.folder) as proxy,
        palaver.open(postgres_server.address(name, Path(folder))) as store,
        within(120),
    ):
        assert isinstance(store.backend, PostgresBackend)
        store.backend._notifier.close()  # it has a connection of its own
        yield Counted(proxy, store)


@pytest.mark.parametrize("name", ["talk", "fork", "edited"])
def test_opening_and_reading_the_last_messages_is_one(counted: Counted, name: str) -> None:
    found: list[str] = []

    def read(store: Store) -> None:
        found.extend(message.text for message in store.get(name, last=20)[-20:])

    assert 1 == counted.trips(read)
    with palaver.open(":memory:") as copy:
        expected = {"talk": [*map(str, range(30, 50))], "edited": ["1", "0"]}
        expected["fork"] = [*map(str, range(31, 50)), "of the fork"]
        assert expected[name] == found
        assert [] == list(copy)


@pytest.mark.parametrize("name", ["talk", "fork", "edited"])
def test_a_turn_without_state_is_two(counted: Counted, name: str) -> None:
    """Open by id, read the last 20, append."""

    def turn(store: Store) -> None:
        history = store.get(name, last=20)
        assert history[-20:]
        history.append(user("and more"))

    assert 2 == counted.trips(turn)


def test_a_change_is_one(counted: Counted) -> None:
    assert 1 == counted.trips(lambda store: store.create([user("hello")], id="new"))
    history = counted.store.get("talk")
    others = counted.store.get("talk")
    assert 1 == counted.trips(lambda _: history.append(user("one")))
    assert 1 == counted.trips(lambda _: others.append(user("behind one that it has not seen")))
    assert 1 == counted.trips(lambda _: history.extend([user("a"), user("b")], key="k"))
    assert 1 == counted.trips(lambda store: store.put_record("talk", "draft", "d", b"x"))
    assert 1 == counted.trips(lambda _: others.refresh())
    assert 1 == counted.trips(lambda _: others.set_team_task("tea"))


@pytest.mark.parametrize("name", ["talk", "fork", "edited"])
def test_a_fork_is_one(counted: Counted, name: str) -> None:
    history = counted.store.get(name)
    forks: list[palaver.stores.StoredHistory] = []
    assert 1 == counted.trips(lambda _: forks.append(history.fork(id="another")))
    assert 1 == counted.trips(lambda _: forks[0].append(user("its own")))
    assert [*history, "its own"] == [*forks[0][:-1], forks[0][-1].text]
    assert 1 == counted.trips(lambda _: forks.append(forks[0].fork()))
    assert [*forks[0]] == [*forks[1]] == [*counted.store.get(forks[1].id)]
    forks[1].insert(1, [user("an edit")])
    again = counted.store.get(forks[1].id)
    assert [*forks[1]] == [*again]
    forks[1].undo()
    assert [*forks[0]] == [*again.refresh()]
    assert [] == list(counted.store.verify())


def test_a_step_with_three_tools_is_six(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three until the answer is stored, and three until the results are."""
    monkeypatch.setattr(steps, "_BATCH_SECONDS", 60)  # all of them are done at once

    def look(words: str) -> str:
        return words

    talk = Conversation(counted.store, "talk", tools=[look])
    calls = [("look", {"words": f"{number}"}) for number in range(3)]
    model = Scripted(saying("hello"), calling(*calls))

    def take(_: Store) -> None:
        async def both() -> None:
            await talk.run_tools((await talk.step(model)).calls)

        anyio.run(both)

    anyio.run(talk.step, model)  # what was said so far is read
    assert 6 == counted.trips(take)
    history = counted.store.get("talk")
    assert ["tool"] * 3 == [message.role for message in history[-3:]]
    counted.store.lease("talk", "another")  # it was given back
    assert [] == list(counted.store.verify())


def test_a_fork_has_the_title_its_parent_has_by_now(counted: Counted) -> None:
    history = counted.store.get("edited")
    counted.store.describe("edited", title="Coffee", tags=["hot"])
    assert ("Tea", ()) == (history.title, history.tags)
    fork = history.fork(id="titled")
    assert ("Coffee", ("hot",)) == (fork.title, fork.tags)
    assert ("Coffee", ("hot",)) == (counted.store.get("titled").title, fork.tags)
    assert [] == list(counted.store.verify())


def test_a_refusal_is_one(counted: Counted) -> None:
    """The answer says why; nobody has to ask."""
    store = counted.store
    head = store.head("talk")
    late = store.lease("talk", "a", seconds=0)
    store.lease("talk", "b", seconds=60)
    change = Change("talk", head.version, "append", 1, head.stop + 1, head.size + 1, head.length,
                    head.counts, (user("x"),))  # fmt: skip
    store.backend.commit(change)

    def refused(error: type[Exception], work: Callable[[Store], object]) -> int:
        def attempt(store: Store) -> None:
            with pytest.raises(error):
                work(store)

        return counted.trips(attempt)

    assert 1 == refused(Stale, lambda _: store.backend.commit(change))
    assert 1 == refused(LeaseTaken, lambda _: store.lease("talk", "c"))
    records = [("draft", "d", b"x")]
    assert 1 == refused(LeaseLost, lambda _: store.put_records("talk", records, token=late.token))
    assert 1 == refused(AlreadyExists, lambda _: store.create(id="talk"))
    assert 1 == refused(UnknownConversation, lambda _: store.get("nowhere"))


def test_expiring_many_takes_a_few_round_trips_in_all(counted: Counted, tmp_path: Path) -> None:
    """Not some for each conversation: their forks, their rows and their deletion come together."""
    past = counted.store.with_clock(lambda: 1_000)
    for number in range(60):
        past.create([user("old")], id=f"old{number:02}", owner="anna")
    found: list[int] = []

    def expire(store: Store) -> None:
        found.append(store.expire(timedelta(days=1), archive=tmp_path / "a.jsonl").conversations)

    trips = counted.trips(expire)
    assert [60] == found
    assert trips < 100
