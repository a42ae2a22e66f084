"""Whatever cancels a step, and wherever: its lease is given back, and all it began is settled."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import types
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import palaver
from palaver.conversation import Conversation, run_until_answer
from palaver.errors import LeaseTaken
from palaver.messages import user
from palaver.stores import lease as leases
from palaver.stores.lease import run_shielded
from palaver.team.state import TeamStore
from tests.conversation.scripted import Scripted, calling, saying

if TYPE_CHECKING:
    from palaver import Store
    from palaver.stores.records import Lease

pytestmark = pytest.mark.filterwarnings("ignore:.*was never awaited:RuntimeWarning")
"""What is never awaited where a coroutine is closed half way is anyio's own."""

Canceller = Callable[[Callable[[], object], "asyncio.Future[Any] | None"], None]

_PATIENCE = 60.0


def at_once(cancel: Callable[[], object], future: asyncio.Future[Any] | None) -> None:
    """While the task waits, and a thread may be at work for it."""
    del future
    asyncio.get_running_loop().call_soon(cancel)


def when_done(cancel: Callable[[], object], future: asyncio.Future[Any] | None) -> None:
    """When what the task waits for has come, and the task has not seen it yet."""
    if future is None:
        at_once(cancel, future)
    else:
        future.add_done_callback(lambda _: cancel())


@types.coroutine
def watched(
    coroutine: Coroutine[Any, Any, Any], wait: Callable[[asyncio.Future[Any] | None], None]
) -> Generator[Any, Any, Any]:
    """Run a coroutine, and say what it waits for whenever it does."""
    throw: BaseException | None = None
    while True:
        try:
            future = coroutine.send(None) if throw is None else coroutine.throw(throw)
        except StopIteration as end:
            return end.value
        throw = None
        wait(future)
        try:
            yield future
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:  # noqa: BLE001 - the coroutine's own affair
            throw = error


def cancelled_at(
    work: Callable[[], Coroutine[Any, Any, object]],
    place: int,
    when: Canceller,
    *,
    times: int = 1,
    scope: bool = False,
) -> bool:
    """Cancel a task, or its scope, when it waits for the so-manieth time; tell whether it did."""

    async def main() -> bool:
        seen, around = 0, anyio.CancelScope()

        def wait(future: asyncio.Future[Any] | None) -> None:
            nonlocal seen
            seen += 1
            if place <= seen < place + times:
                when(around.cancel if scope else task.cancel, future)

        async def scoped() -> None:
            with around:
                await work()

        task = asyncio.ensure_future(watched(scoped(), wait))
        async with asyncio.timeout(_PATIENCE):
            await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        return seen >= place

    return asyncio.run(main())


def is_free(store: Store, conversation: str) -> bool:
    """Tell whether another can take the lease now."""
    try:
        store.release(store.lease(conversation, "another"))
    except LeaseTaken:
        return False
    return True


class Turn:
    """A turn of a conversation: a step that calls two tools, their results, an answer."""

    def __init__(self, store: Store) -> None:
        self.ran: list[str] = []
        self.store = store
        self.conversation = Conversation(store, tools=[self.quick, self.slow])
        self.conversation.add(user("go"))
        self.model = Scripted(calling(("quick", {}), ("slow", {})), saying("well"))

    async def quick(self) -> str:
        self.ran.append("quick")
        return "quick"

    async def slow(self) -> str:
        self.ran.append("slow")
        await anyio.sleep(0.003)
        return "slow"

    async def __call__(self) -> None:
        await run_until_answer(self.conversation, self.model)

    async def settled(self) -> None:
        """Nothing is left that can't be accounted for, and the conversation goes on."""
        other = Conversation(self.store, self.conversation.id, tools=self.conversation.tools)
        assert {} == self.store.records(other.id, "step")
        assert [] == [item for item in await other.recover() if item.outcome != "waiting"]
        answer = Scripted(saying("well"))
        if len(other) == 1:  # nobody had answered yet
            answer = Scripted(calling(("quick", {}), ("slow", {})), saying("well"))
        assert "well" == (await run_until_answer(other, answer)).text
        assert {} == other.ledger()
        assert len(self.ran) == len(set(self.ran))


WAYS: dict[str, dict[str, Any]] = {
    "while it waits": {"when": at_once},
    "when it need not wait any more": {"when": when_done},
    "three times": {"when": at_once, "times": 3},
    "until it ends": {"when": at_once, "times": 1_000_000},
    "by a scope": {"when": at_once, "scope": True},
}


def test_a_turn_may_be_cancelled_wherever_it_waits(store: Store) -> None:
    """At every await of a turn, one after the other: the lease is free at once."""
    cancel_turns(store, WAYS["while it waits"])


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_a_turn_may_be_cancelled_in_every_way(how: dict[str, Any]) -> None:
    with palaver.open(":memory:") as store:
        cancel_turns(store, how)


def cancel_turns(store: Store, how: dict[str, Any]) -> None:
    place, leaks, cancelled = 1, list[int](), True
    while cancelled:
        turn = Turn(store)
        cancelled = cancelled_at(turn, place, **how)
        if not is_free(store, turn.conversation.id):
            leaks.append(place)
        else:
            asyncio.run(turn.settled())
        place += 1
    assert [] == leaks
    assert place > 20


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_a_team_may_be_cancelled_wherever_it_waits(store: Store, how: dict[str, Any]) -> None:
    place, leaks, cancelled = 1, list[int](), True
    while cancelled:
        history = store.create()
        book = TeamStore(store, history, 60)

        async def work(book: TeamStore = book) -> None:
            await book.while_held(lambda: anyio.sleep(0.001))

        cancelled = cancelled_at(work, place, **how)
        if not is_free(store, history.id):
            leaks.append(place)
        place += 1
    assert [] == leaks
    assert place > 4


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_recovering_may_be_cancelled_wherever_it_waits(store: Store, how: dict[str, Any]) -> None:
    conversation = Conversation(store)
    place, cancelled = 1, True
    while cancelled:
        cancelled = cancelled_at(conversation.recover, place, **how)
        assert is_free(store, conversation.id)
        place += 1
    assert place > 2


class Gate:
    """A store whose leases are taken only when the gate is open, and last for a minute."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch, *, after: int = 0) -> None:
        self.entered, self.open, self.left = (threading.Event() for _ in range(3))
        self._lease, self._after = store.lease, after
        monkeypatch.setattr(store, "lease", self.lease)

    def lease(self, conversation: str, holder: str, *, seconds: float = 60) -> Lease:
        self._after -= 1
        if self._after >= 0 or holder == "another":
            lasting = seconds if holder == "another" else 60
            return self._lease(conversation, holder, seconds=lasting)
        self.entered.set()
        assert self.open.wait(_PATIENCE)
        lease = self._lease(conversation, holder, seconds=60)
        self.left.set()
        return lease


async def seen(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, _PATIENCE)


def test_a_thread_that_takes_the_lease_after_the_cancellation_gives_it_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, turn = Gate(store, monkeypatch), Turn(store)

    async def main() -> None:
        task = asyncio.create_task(turn())
        await seen(gate.entered)
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()  # it waits for the thread
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert is_free(store, turn.conversation.id)
    assert [] == turn.model.asked
    asyncio.run(turn.settled())


def test_a_lease_that_is_being_renewed_when_all_ends_is_not_taken_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a loop cancels every task, that which renews the lease as well."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.003)
    gate, conversation = Gate(store, monkeypatch, after=1), Conversation(store)
    conversation.add(user("go"))

    async def main() -> None:
        step = asyncio.create_task(conversation.step(Scripted([*saying("well")[:1], None])))
        await seen(gate.entered)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        threading.Timer(0.05, gate.open.set).start()  # meanwhile the step may well end
        with pytest.raises(asyncio.CancelledError):
            await step

    asyncio.run(main())
    assert gate.left.wait(_PATIENCE)
    assert is_free(store, conversation.id)
    assert ["go", "well"] == [message.text for message in conversation.messages]


@pytest.mark.parametrize("blocked", [True, False], ids=["taking the lease", "asking"])
def test_a_coroutine_may_be_closed(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, blocked: bool
) -> None:
    """A loop that ends without its tasks leaves coroutines that can't wait any more."""
    gate = Gate(store, monkeypatch, after=0 if blocked else 1)
    conversation = Conversation(store)
    conversation.add(user("go"))
    asked, model = threading.Event(), Scripted([*saying("well")[:1], None])
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    step = conversation.step(model, on_delta=lambda _: asked.set())
    task = loop.create_task(step)
    loop.run_until_complete(seen(gate.entered if blocked else asked))
    assert is_free(store, conversation.id) is blocked
    del task
    for _ in range(10):  # anyio's groups want to wait, and are told again
        try:
            step.close()
        except RuntimeError:
            continue
        break
    loop.close()
    gate.open.set()
    assert not blocked or gate.left.wait(_PATIENCE)
    for thread in threading.enumerate():
        if thread.name == "palaver-cleanup":
            thread.join(_PATIENCE)
    assert is_free(store, conversation.id)
    assert {} == store.records(conversation.id, "step")
    gc.collect()


def test_an_interrupt_gives_the_lease_back(store: Store) -> None:
    conversation = Conversation(store)
    conversation.add(user("go"))

    async def main() -> None:
        await conversation.step(
            Scripted([*saying("well")[:1], None]),
            on_delta=lambda _: signal.raise_signal(signal.SIGINT),
        )

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert is_free(store, conversation.id)
    assert ["go", "well"] == [message.text for message in conversation.messages]


def test_what_fails_before_the_model_is_asked_gives_the_lease_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OverflowError

    conversation = Conversation(store)
    conversation.add(user("go"))
    monkeypatch.setattr("palaver.wire.openai_chat.request.ChatFormat.reply_reader", broken)
    with pytest.raises(OverflowError):
        asyncio.run(conversation.step(Scripted(saying("never"))))
    assert is_free(store, conversation.id)
    assert {} == store.records(conversation.id, "step")


def test_an_error_of_what_was_seen_through_is_the_cause_of_the_cancellation() -> None:
    entered, leave = threading.Event(), threading.Event()

    def work() -> None:
        entered.set()
        leave.wait(_PATIENCE)
        raise OverflowError

    async def main() -> None:
        task = asyncio.create_task(run_shielded(work))
        await seen(entered)
        task.cancel()
        leave.set()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert isinstance(caught.value.__cause__, OverflowError)
        with pytest.raises(OverflowError):
            await run_shielded(work)

    asyncio.run(main())
