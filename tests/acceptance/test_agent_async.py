"""palaver in an async application: twins of what blocks, leases, and who may work when."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_type

import anyio
import pytest
from anyio import to_thread

import palaver
from palaver import Conversation, Limits, Message, Store, StoredHistory, tool, user
from palaver.errors import (
    LeaseLost,
    LeaseTaken,
    NetworkError,
    StoreError,
    UnknownConversation,
    ValidationError,
    VersionMismatch,
)
from palaver.stores import Hit, Listing
from tests.conversation.scripted import Scripted, calling, saying
from tests.faults.nursery import Ledger, Nursery
from tests.markdown import blocks
from tests.stores.postgres_server import postgres, postgres_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from palaver.stores import Lease

__all__ = ["postgres", "postgres_server"]  # fixtures
pytestmark = pytest.mark.anyio
PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "howto" / "in-fastapi.md"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store of each kind that processes share."""
    sqlite = request.param == "sqlite"
    address = str(tmp_path / "chat.db") if sqlite else request.getfixturevalue("postgres")
    with palaver.open(address) as opened:
        yield opened


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """Where other processes come from."""
    with Nursery() as opened:
        yield opened


# ── twins ───────────────────────────────────────────────────────────────────────────────────────

WITHOUT = {
    Store: {
        "with_clock", "follow", "wait", "verify", "notes", "distribute", "examine", "each",
        "check_receipt", "secure_rows",
    },
    StoredHistory: {"after_fork_in_child", "ends", "index", "listen", "mark_map", "under"},
    Conversation: {
        "ask_sync", "check_price", "find_model", "publishing_itself", "recover_if_needed",
        "share_lease", "stream", "toolbox",
    },
}  # fmt: skip
"""What has no twin: it does not touch the store, yields as it goes, or is async already."""


@pytest.mark.parametrize("kind", WITHOUT, ids=lambda kind: kind.__name__)
def test_what_blocks_has_a_twin_with_the_same_parameters(kind: type) -> None:
    missing, different = set(), set()
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if name.startswith("_") or inspect.iscoroutinefunction(method) or hasattr(method, "func"):
            continue
        twin = getattr(kind, f"a{name}", None)
        if twin is None:
            missing.add(name)
        elif inspect.signature(twin) != inspect.signature(method):
            different.add(name)
        else:
            assert inspect.iscoroutinefunction(twin)
            assert twin.__doc__ == f"Do what `{name}` does, in a worker thread."
            assert twin.__qualname__.endswith(f".a{name}")
    assert (WITHOUT[kind], set()) == (missing, different)


async def test_a_conversation_lives_without_a_blocking_call(store: Store) -> None:
    async with store:
        history = await store.acreate([user("one")], title="Tea")
        assert_type(history, StoredHistory)
        found = await store.alist(limit=5)
        assert_type(found, Listing)
        assert ["Tea"] == [head.title for head in found.conversations]
        talk = Conversation(store, await store.aget(history.id), model=Scripted(saying("Yes.")))
        message = await talk.aadd({"role": "user", "content": "two"}, key="k")
        assert_type(message, Message)
        assert message == await talk.aadd(user("two, once more"), key="k")
        assert "Yes." == (await talk.ask()).text
        assert ["one", "two", "Yes."] == [m.text for m in await talk.amessages()]
        assert 10 == (await talk.ausage()).total.prompt
        assert [] == await talk.awaiting()
        await history.arefresh()
        await history.areplace(0, user("first"))
        await history.aundo()
        fork = await history.afork()
        assert_type(fork, StoredHistory)
        assert ["one", "two", "Yes."] == [m.text for m in await fork.amessages()]
        hits = await store.asearch("two")
        assert_type(hits, list[Hit])
        assert hits
        with pytest.raises(UnknownConversation):
            await store.aget("nobody")
        with pytest.raises(VersionMismatch):
            await history.aappend(user("late"), expect=0)


async def types_are_known(store: Store, talk: Conversation) -> None:
    """A mistake in the arguments of a twin is found by the type checkers."""
    await store.aget(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await store.acreate(titel="Tea")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await talk.aadd()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def test_nothing_touches_the_store_in_the_event_loop(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a service awaits: every access is in another thread."""
    loop, seen, blocking = threading.get_ident(), set[str](), list[str]()

    def watched(name: str, method: Callable[..., object]) -> Callable[..., object]:
        def call(*given: object, **named: object) -> object:
            (blocking.append if threading.get_ident() == loop else seen.add)(name)
            return method(*given, **named)

        return call

    for name, method in inspect.getmembers(store.backend, inspect.ismethod):
        if not name.startswith("_"):
            monkeypatch.setattr(store.backend, name, watched(name, method))

    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay an amount."""
        return f"paid {amount}"

    answers = [calling(("pay", {"amount": 5})), saying("Paid."), saying("Yes.")]
    history = await store.acreate(id="talk", key="begin")
    talk = Conversation(store, history, model=Scripted(*answers), tools=[pay], token_limit=1)
    waiting = await talk.ask("Pay 5.", key="one", limits=Limits(total_tokens=10_000))
    assert 1 == len(waiting.waiting)
    assert "Paid." == (await talk.ask(approve=lambda _: True)).text
    async with talk.stream("Is that all?", key="two") as events:
        assert [event async for event in events]
    assert [] == await talk.recover()
    assert 6 == len(await talk.amessages())
    assert {"create", "commit", "lease", "release"} <= seen
    assert [] == blocking


class Gate:
    """A method of a backend that waits until it is let through."""

    def __init__(self, backend: object, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self.open = threading.Event(), threading.Event()
        original = getattr(backend, name)

        def waiting(*given: object) -> object:
            self.entered.set()
            assert self.open.wait(20)
            return original(*given)

        monkeypatch.setattr(backend, name, waiting)


async def until(condition: Callable[[], object]) -> None:
    """Wait for something in another thread without blocking the event loop."""
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110 - it happens in another thread
            await anyio.sleep(0.005)


async def test_the_event_loop_goes_on_while_a_twin_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    store = palaver.open(":memory:")
    gate = Gate(store.backend, "create", monkeypatch)
    async with anyio.create_task_group() as group:
        group.start_soon(store.acreate)
        await until(gate.entered.is_set)  # the loop runs, though nothing was created yet
        assert not list(store)
        gate.open.set()
    assert 1 == len(list(store))


@pytest.mark.parametrize("how", ["task.cancel()", "a cancel scope"])
async def test_a_cancelled_change_is_made_completely(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Who is cancelled knows: when the cancellation is raised, nothing is under way any more."""
    store = palaver.open(":memory:")
    history = await store.acreate()
    gate = Gate(store.backend, "commit", monkeypatch)
    scope = anyio.CancelScope()

    async def append() -> None:
        with scope:
            await history.aappend(user("kept"))

    task = asyncio.ensure_future(append())
    await until(gate.entered.is_set)
    task.cancel() if how == "task.cancel()" else scope.cancel()
    await anyio.sleep(0.01)
    assert not task.done()
    gate.open.set()
    await asyncio.wait([task])
    assert task.cancelled() is (how == "task.cancel()")
    assert ["kept"] == [m.text for m in store.get(history.id)]


async def test_a_twin_is_that_of_the_subclass() -> None:
    """Whoever checks in `get` who may read is not got round by `aget`."""

    class Checked(Store):
        def get(self, conversation: str, *, last: int = 0) -> StoredHistory:
            raise PermissionError(conversation, last)

    store = Checked(palaver.open(":memory:").backend)
    with pytest.raises(PermissionError):
        await store.aget("anything")


async def test_the_service_of_the_docs_closes_when_its_runs_have_stored_what_had_arrived(
    tmp_path: Path,
) -> None:
    """A server that shuts down cancels its requests, and closes the store at the same time."""
    names: dict[str, Any] = {"__name__": "service"}
    block = next(block for block in blocks(PAGE.read_text("utf-8")) if block.language == "python")
    exec(compile(block.code, PAGE, "exec"), names)  # noqa: S102 - our own docs
    store, model = palaver.open(tmp_path / "chat.db"), Scripted([*saying("So far")[:1], None])
    chat = names["Chat"](store, model)
    request = asyncio.create_task(chat.ask("anna", "tea", "Tea?", "key"))
    await until(lambda: model.asked)
    await anyio.sleep(0.1)
    request.cancel()
    await chat.close()
    assert request.cancelled()
    with palaver.open(tmp_path / "chat.db") as again:
        assert ["Tea?", "So far"] == [message.text for message in again.get("anna/tea")]
        again.lease("anna/tea", "the next one")


# ── the lease ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"lease": 0}, r"\$\.lease: must be a number from 0\.5 on, not 0"),
        ({"lease": -4}, r"\$\.lease: must be a number from 0\.5 on, not -4"),
        ({"lease": 0.1}, r"\$\.lease: must be a number from 0\.5 on, not 0\.1"),
        ({"lease": float("nan")}, r"\$\.lease: must be a number"),
        ({"lease": float("inf")}, r"\$\.lease: must be a number"),
        ({"lease": True}, r"\$\.lease: must be a number"),
        ({"lease": "4s"}, r"\$\.lease: must be a number from 0\.5 on, not '4s'"),
        ({"lease": 86_400}, r"\$\.lease: must be at most 3,600 seconds, not 86400"),
        ({"wait": -1}, r"\$\.wait: must be a number from 0 on, not -1"),
        ({"wait": None}, r"\$\.wait: must be a number from 0 on, not None"),
    ],
)
def test_a_lease_that_makes_no_sense_is_refused(given: dict[str, Any], words: str) -> None:
    store = palaver.open(":memory:")
    with pytest.raises(ValidationError, match=words):
        Conversation(store, **given)
    assert [] == list(store)  # nothing was created


def leases(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of every lease that is taken or renewed from now on."""
    seen: list[float] = []
    lease = store.lease

    def noted(conversation: str, holder: str, *, seconds: float = 60) -> Lease:
        seen.append(seconds)
        return lease(conversation, holder, seconds=seconds)

    monkeypatch.setattr(store, "lease", noted)
    return seen


async def test_a_lease_lasts_as_long_as_it_is_told_and_is_renewed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = leases(store, monkeypatch)

    async def slow() -> str:
        await until(lambda: len(seen) > 5)  # taken for the run, the step, the call; then renewed
        return "done"

    model = Scripted(calling(("slow", {})), saying("Done."))
    await Conversation(store, model=model, tools=[slow], lease=0.6).ask("Go on.")
    assert {0.6} == set(seen)


def test_a_lease_is_short_unless_told_otherwise() -> None:
    """A killed worker is succeeded in seconds."""
    store = palaver.open(":memory:")
    with pytest.MonkeyPatch.context() as patch:
        seen = leases(store, patch)
        Conversation(store, model=Scripted(saying("Yes."))).ask_sync("Tea?")
    assert {4.0} == set(seen)


async def test_lease_taken_says_who_since_when_until_when_and_how_to_wait(store: Store) -> None:
    talk, before = Conversation(store, model=Scripted([*saying("So")[:1], None])), datetime.now(UTC)
    async with talk.stream("One") as events:
        await anext(events)
        with pytest.raises(LeaseTaken) as caught:
            await Conversation(store, talk.id, model=Scripted()).ask("Two")
    error, second = caught.value, timedelta(seconds=1)
    assert error.holder is not None
    assert re.fullmatch(rf"process {os.getpid()} on .+", error.holder)
    assert error.since is not None
    assert error.until is not None
    assert before - second < error.since < error.until < datetime.now(UTC) + 5 * second
    assert re.fullmatch(
        r"process \d+ on .+ has the lease for another \d\.\d{3} s \(since [\d-]+ [\d:]+, until "
        r"[\d-]+ [\d:]+ UTC\) and renews it while it works; try again, or wait for it: "
        r"Conversation\(…, wait=SECONDS\)",
        str(error),
    )
    said = error.to_dict()
    assert (error.holder, error.since.isoformat()) == (said["holder"], said["since"])


async def test_who_waits_comes_next(store: Store) -> None:
    """With `wait`, a question waits for the run before it; nothing is asked at the same time."""
    talk = Conversation(store, model=Scripted([*saying("So")[:1], None]))
    other = Conversation(store, talk.id, model=Scripted(saying("Now.")), wait=20)
    async with anyio.create_task_group() as group, talk.stream("One") as events:
        await anext(events)
        group.start_soon(other.ask, "Two")
        await anyio.sleep(0.05)
        assert 1 == len(store.get(talk.id))
    assert ["One", "So", "Two", "Now."] == [m.text for m in store.get(talk.id)]


async def test_waiting_ends_when_its_time_is_over(store: Store) -> None:
    talk = Conversation(store, model=Scripted(saying("never")), wait=0.3)
    talk.add(user("One"))
    store.lease(talk.id, "anna", seconds=60)
    began = time.monotonic()
    with pytest.raises(LeaseTaken, match="anna has the lease for another"):
        await talk.step()
    assert time.monotonic() - began >= 0.3
    with pytest.raises(LeaseTaken):
        await talk.recover(wait=0)


# ── one at a time, wherever the other is ────────────────────────────────────────────────────────


def words_of(error: LeaseTaken) -> str:
    """The text of an error without its numbers."""
    return re.sub(r"\d+", "N", str(error))


def ask_elsewhere(ledger: Ledger, address: str, name: str, work: str) -> None:
    """Try to work on a conversation that is at work in another process."""
    with palaver.open(address) as store:
        talk = Conversation(store, name, model=Scripted(saying("never")))
        try:
            anyio.run(WORK[work], talk)
        except LeaseTaken as error:
            ledger.write(words_of(error))


WORK: dict[str, Callable[[Conversation], Awaitable[object]]] = {
    "a step": lambda talk: talk.step(),
    "a question": lambda talk: talk.ask("Two"),
    "a run": palaver.run,
    "a recovery": lambda talk: talk.recover(),
}


async def refused(work: Awaitable[object]) -> LeaseTaken:
    """Try to work, and return why it is refused."""
    with pytest.raises(LeaseTaken) as caught:
        await work
    return caught.value


async def work_until_cancelled(how: str, talk: Conversation, scope: anyio.CancelScope) -> None:
    """Take a step or run, with a model that never ends its answer."""
    model = Scripted([*saying("So")[:1], None])
    with scope:
        await (talk.step(model) if how == "a step" else palaver.run(talk, model))


@pytest.mark.parametrize("second", WORK)
@pytest.mark.parametrize("first", ["a step", "a run"])
async def test_two_steps_at_once_are_refused_in_the_same_words(
    tmp_path: Path, nursery: Nursery, first: str, second: str
) -> None:
    address, ledger = str(tmp_path / "chat.db"), tmp_path / "ledger"
    with palaver.open(address) as store:
        talk = Conversation(store, model=Scripted(saying("never")))
        talk.add(user("One"))
        other = Conversation(store, talk.id, model=Scripted(saying("never")))
        scope = anyio.CancelScope()
        async with anyio.create_task_group() as group:
            group.start_soon(work_until_cancelled, first, talk, scope)
            await until(lambda: store.records(talk.id, "step"))
            same, another = await refused(WORK[second](talk)), await refused(WORK[second](other))
            job = "tests.acceptance.test_agent_async:ask_elsewhere"
            await to_thread.run_sync(nursery.run, job, [address, talk.id, second], ledger)
            assert words_of(same) == words_of(another) == ledger.read_text().strip()
            assert (same.holder, same.since) == (another.holder, another.since)
            scope.cancel()
        assert ["One", "So"] == [m.text for m in store.get(talk.id)]
        assert [] == await talk.recover()  # it is free again


async def test_what_a_run_does_itself_is_not_refused(store: Store) -> None:
    """A tool may read the conversation, and work on another one."""
    aside = Conversation(store, model=Scripted(saying("Aside.")))
    heard: list[str] = []

    async def look() -> str:
        with pytest.raises(LeaseTaken):
            await talk.ask("And this?")
        heard.append((await aside.ask("?")).text + str(len(await talk.amessages())))
        return "done"

    talk = Conversation(store, model=Scripted(calling(("look", {})), saying("Done.")), tools=[look])
    assert "Done." == (await talk.ask("Go on.")).text
    assert ["Aside.2"] == heard


async def test_calls_and_a_step_do_not_overlap(store: Store) -> None:
    begun, gate = anyio.Event(), anyio.Event()

    async def wait() -> str:
        begun.set()
        await gate.wait()
        return "done"

    talk = Conversation(store, model=Scripted(calling(("wait", {})), saying("On.")), tools=[wait])
    talk.add(user("go"))
    step = await talk.step()
    async with anyio.create_task_group() as group:
        group.start_soon(talk.run_tools, step.calls)
        await begun.wait()
        for work in WORK.values():
            with pytest.raises(LeaseTaken):
                await work(talk)
        gate.set()
    assert "On." == (await talk.step()).text


# ── what must not cost a paid answer ────────────────────────────────────────────────────────────


async def test_a_worker_that_hung_goes_on_if_nobody_took_over(store: Store) -> None:
    """An event loop that was blocked for longer than a lease loses nothing to itself."""

    async def hang() -> str:
        time.sleep(0.7)  # noqa: ASYNC251 - it is what must not be done
        await anyio.sleep(0.4)  # and now the lease is renewed, with a new token
        return "awake"

    model = Scripted(calling(("hang", {})), saying("Well."))
    talk = Conversation(store, model=model, tools=[hang], lease=0.5)
    assert "Well." == (await talk.ask("Go on.")).text


async def test_a_worker_that_hung_is_refused_if_another_took_over(store: Store) -> None:
    async def hang() -> str:
        time.sleep(0.7)  # noqa: ASYNC251 - as above
        other = store.lease(talk.id, "another", seconds=30)
        store.release(other)  # it was quick
        await anyio.sleep(5)
        return "awake"

    model = Scripted(calling(("hang", {})), saying("never"))
    talk = Conversation(store, model=model, tools=[hang], lease=0.5)
    with anyio.fail_after(60), pytest.raises(LeaseLost, match="another worker"):
        await talk.ask("Go on.")
    store.release(store.lease(talk.id, "a third", seconds=1))  # and it holds nothing


async def test_a_store_that_does_not_answer_for_a_moment_ends_no_run(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lease, failed = store.lease, anyio.Event()

    async def slow() -> str:
        monkeypatch.setattr(store, "lease", failing)
        with anyio.fail_after(60):
            await failed.wait()
        return "done"

    def failing(*_: object, **__: object) -> Lease:
        monkeypatch.setattr(store, "lease", lease)
        anyio.from_thread.run_sync(failed.set)
        msg = "the server does not answer"
        raise StoreError(msg)

    model = Scripted(calling(("slow", {})), saying("Done."))
    talk = Conversation(store, model=model, tools=[slow], lease=1)
    assert "Done." == (await talk.ask("Go on.")).text
    assert "a lease was not renewed: the server does not answer" in caplog.text


async def test_leases_are_renewed_where_all_worker_threads_are_busy(store: Store) -> None:
    """Blocking routes of the same process may take every thread there is."""
    talk = Conversation(store, lease=0.6)
    free, limiter = threading.Event(), to_thread.current_default_thread_limiter()

    async def slow() -> str:
        async with anyio.create_task_group() as group:
            for _ in range(int(limiter.total_tokens)):
                group.start_soon(to_thread.run_sync, free.wait, 20)
            await anyio.sleep(1.2)
            try:
                with pytest.raises(LeaseTaken):
                    store.lease(talk.id, "another", seconds=1)
            finally:
                free.set()
        return "done"

    model = Scripted(calling(("slow", {})), saying("Done."))
    assert "Done." == (await palaver.run(talk, model, tools=[slow])).text


async def test_a_call_of_an_answer_that_was_cut_off_waits_for_its_approval(store: Store) -> None:
    """The model is not asked again while the call that it made has nobody who approves it."""

    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay an amount."""
        return f"paid {amount}"

    lost = NetworkError("the line went dead", provider="openai")
    model = Scripted([*calling(("pay", {"amount": 5}))[:1], lost], saying("Paid."))
    talk = Conversation(store, model=model, tools=[pay])
    with pytest.raises(NetworkError):
        await talk.ask("Pay 5.", key="q")
    again = await talk.ask("Pay 5.", key="q")
    assert ["pay"] == [call.tool for call in again.waiting]
    assert 1 == len(model.asked)
    assert "Paid." == (await talk.ask("Pay 5.", key="q", approve=lambda _: True)).text
    assert {} == await talk.aledger()
