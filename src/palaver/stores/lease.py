"""The lease of a conversation while a model is asked or tools run, and cleanup under cancellation.

A lease is renewed as long as the work goes on. If it is lost all the same, another worker has taken
over: the work stops, and what it would still write is refused by the store.

Access to the store is completed even if the task that makes it is cancelled. A cancel scope of
anyio's is held off by a shield, but `asyncio.Task.cancel()` is not: it ends the wait for a worker
thread while the thread goes on, and a lease that the thread then takes would have no owner. So a
task that is cancelled meanwhile waits for the end of the thread, and only then raises.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Literal, NoReturn, TypeVar, cast

import anyio
from anyio import to_thread
from anyio.lowlevel import current_token

from palaver.errors import LeaseLost, LeaseTaken, PalaverError, StoreError, ValidationError
from palaver.messages.limits import check_number, describe_argument
from palaver.stores.holders import describe_holder, holder_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence
    from types import TracebackType

    from palaver.stores.records import Lease, Work
    from palaver.stores.store import Store

__all__ = ["LEASE_SECONDS", "OnExit", "SharedLease", "check_lease", "clean_up", "run_shielded"]

LEASE_SECONDS: Final = 4.0
"""How long a lease lasts unless it is renewed, and so how soon a killed worker is succeeded.

It is renewed three times as often while the work goes on. A worker that hangs for longer loses the
lease only if another one asks for it; what it would still write is refused then."""
_SHORTEST: Final = 0.5
_LONGEST: Final = 3_600.0
_POLL_SECONDS: Final = 0.25
_END_SECONDS: Final = 0.01
_T = TypeVar("_T")
_THREAD_NAME: Final = "palaver-cleanup"
_log: Final = logging.getLogger("palaver.conversation")


def check_lease(seconds: object, wait: object) -> None:
    """Raise `ValidationError` unless a lease can last so long, and be waited for so long."""
    if seconds is not None:
        check_number(seconds, "$.lease", least=_SHORTEST)
        if cast("float", seconds) > _LONGEST:
            detail = f"must be at most {_LONGEST:,.0f} seconds, not {describe_argument(seconds)}"
            raise ValidationError(detail, path="$.lease", rule="limit")
    check_number(wait, "$.wait")


class _Run:
    """A run that holds a conversation: whether it was told to end, and where it goes on."""

    def __init__(self, cancelled: Callable[[], bool] | None) -> None:
        self.cancelled: Callable[[], bool] = cancelled or (lambda: False)
        self._loop: object = current_token().native_token

    @property
    def is_lost(self) -> bool:
        """Whether its event loop was closed before it could end."""
        return isinstance(self._loop, asyncio.AbstractEventLoop) and self._loop.is_closed()


_runs: ContextVar[frozenset[_Run]] = ContextVar("palaver_runs", default=frozenset())
"""The runs that the present task works for."""


class SharedLease:
    """The right to work on a conversation, shared by everything that one `Conversation` does.

    One thing at a time has it: a run with its steps and calls, a step, a recovery, or calls side by
    side. Everything else is refused with `LeaseTaken`, as it is in other objects and processes. The
    first `acquire` takes the lease from the store, the last `release` gives it back. The methods
    that are not async block, and are safe for threads.
    """

    def __init__(
        self, store: Store, conversation: str, *, seconds: float | None = None, wait: float = 0.0
    ) -> None:
        """Take nothing yet; `wait` is how many seconds to wait for a lease that is taken."""
        self.holder = holder_name()
        self._store = store
        self._conversation = conversation
        self._seconds = LEASE_SECONDS if seconds is None else seconds
        self._wait = wait
        self._lock = threading.Lock()  # held while the store is asked
        self._entering = threading.Lock()  # never held for long
        self._acquired: list[Lease] = []
        self._alone: Lease | None = None  # that of a step or a recovery
        self._run: _Run | None = None
        self._current: Lease | None = None  # as it was last renewed
        self._renewed = 0.0

    # ── taking and giving back ──────────────────────────────────────────────────────────────────

    def acquire(self, work: Literal["run", "step", "calls"] = "calls") -> Lease:
        """Take the lease; raise `LeaseTaken` if another worker has it, or other work here."""
        with self._lock:
            return self._acquire(work, self._ask)

    def begin(self, work: Literal["step", "calls"], kinds: Sequence[str]) -> Work:
        """Take the lease as `acquire` does, and read the head and the records of these kinds."""
        found: list[Work] = []

        def ask() -> Lease:
            found.append(
                self._store.begin_work(
                    self._conversation, self.holder, kinds, seconds=self._seconds
                )
            )
            return found[-1].lease

        with self._lock:
            self._acquire(work, ask)
        return found[-1]

    def _acquire(self, work: Literal["run", "step", "calls"], ask: Callable[[], Lease]) -> Lease:
        self._abandon_lost()
        inside = self._run is not None and self._run in _runs.get()
        most = 1 if inside and work == "step" else 0  # the run has it already
        if (
            (self._run is not None and not inside)
            or self._alone is not None
            or (work != "calls" and len(self._acquired) > most)
        ):
            self._refuse()
        lease = self._take(ask)
        self._acquired.append(lease)
        if work == "step":
            self._alone = lease
        return lease

    def renew(self) -> None:
        """Make the lease last longer, unless it was given back meanwhile."""
        with self._lock:
            if self._acquired:
                self._take(self._ask)

    def holds(self, lease: Lease) -> bool:
        """Tell whether a lease that `acquire` returned was not released yet."""
        return any(acquired is lease for acquired in self._acquired)

    @contextmanager
    def writing(self, lease: Lease) -> Generator[Lease]:
        """Give the lease to write under; it is not renewed meanwhile."""
        with self._lock:
            yield self._current if self._current is not None and self.holds(lease) else lease

    @contextmanager
    def finishing(self, lease: Lease) -> Generator[tuple[Lease, bool]]:
        """Give the lease for the last change of a work, and whether that is to give it back.

        It is unless other work goes on under it. When the block has ended, the work is over.
        """
        with self.writing(lease) as current:
            last = len(self._acquired) == 1 and self.holds(lease)
            yield current, last
            if last:
                self._forget(lease)
                self._current = None
        self.release(lease)

    def release(self, lease: Lease) -> None:
        """Give back what `acquire` returned; releasing it twice is harmless."""
        with self._lock:
            if not self.holds(lease):
                return
            self._forget(lease)
            if not self._acquired:
                current, self._current = self._current, None
                self._store.release(current or lease)

    def _forget(self, lease: Lease) -> None:
        self._acquired = [acquired for acquired in self._acquired if acquired is not lease]
        if self._alone is lease:
            self._alone = None

    def _ask(self) -> Lease:
        return self._store.lease(self._conversation, self.holder, seconds=self._seconds)

    def _take(self, ask: Callable[[], Lease]) -> Lease:
        """Take or renew the lease; raise `LeaseLost` if it was held, and another had it since.

        A lease that ran out has a new token when it is renewed. If the token is the next one, then
        nobody else had the lease meanwhile, and the work goes on.
        """
        before = self._current
        if before is None:
            self.holder = holder_name()
        try:
            taken = ask()
        except LeaseTaken as error:
            if before is None:
                raise
            msg = f"the lease went to another worker meanwhile: {error}"
            raise LeaseLost(msg) from None
        if before is not None and taken.token > before.token + 1:
            self._store.release(taken)
            msg = "the lease ran out, and another worker had it meanwhile"
            raise LeaseLost(msg)
        self._current, self._renewed = taken, time.monotonic()
        return taken

    def _refuse(self) -> NoReturn:
        """Say the same as the store does where the lease is taken in another object."""
        held = 0.0 if self._current is None else time.monotonic() - self._renewed
        raise LeaseTaken(describe_holder(self.holder, round((self._seconds - held) * 1_000)))

    # ── working ─────────────────────────────────────────────────────────────────────────────────

    async def patiently(
        self, attempt: Callable[[], Awaitable[_T]], wait: float | None = None
    ) -> _T:
        """Try something until the lease is free; raise `LeaseTaken` when the time is over."""
        until = anyio.current_time() + (self._wait if wait is None else wait)
        while True:
            try:
                return await attempt()
            except LeaseTaken:
                left = until - anyio.current_time()
                if left <= 0:
                    raise
            await anyio.sleep(min(left, _POLL_SECONDS))

    async def hold(
        self, work: Callable[[], Awaitable[_T]], *, cancelled: Callable[[], bool] | None = None
    ) -> _T:
        """Do something while the lease is held and renewed, and give it back.

        Other work is refused meanwhile, but for what the work itself does. A run that was told to
        end, as its `cancelled` tells, is waited for: it only has to store what had arrived.
        """
        run, outside = _Run(cancelled), _runs.get()
        _runs.set(outside | {run})
        try:
            lease = await self.patiently(partial(self._begin, run))
            release, holds = partial(self.release, lease), partial(self.holds, lease)
            async with OnExit(release, needed=holds):
                return await self.keep_renewed(work)
        finally:
            _runs.set(outside)
            self._leave(run)

    async def _begin(self, run: _Run) -> Lease:
        """Begin a run in this object, and take the lease for it."""
        try:
            await self._enter(run)
            return await run_shielded(partial(self.acquire, "run"), undo=self.release)
        except BaseException:
            self._leave(run)
            raise

    def _leave(self, run: _Run) -> None:
        if self._run is run:
            self._run = None

    async def _enter(self, run: _Run) -> None:
        """Begin a run, if no other work is under way in this object."""
        while True:
            with self._entering:
                held = self._run
                if held is None:
                    if self._acquired:
                        self._refuse()
                    self._run = run
                    return
                if not held.is_lost and not held.cancelled():
                    self._refuse()
            if held.is_lost:
                await run_shielded(self._give_back_lost)
            else:  # its end may come in another thread's event loop, and can't be awaited here
                await anyio.sleep(_END_SECONDS)

    def _give_back_lost(self) -> None:
        with self._lock:
            self._abandon_lost()

    def _abandon_lost(self) -> None:
        """Give back what a run still has whose event loop was closed before it could end."""
        with self._entering:
            if self._run is None or not self._run.is_lost:
                return
            self._run = self._alone = None
            self._acquired = []
            current, self._current = self._current, None
        if current is not None:
            self._store.release(current)

    async def keep_renewed(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Do something while the lease is renewed; if the lease is lost, the work is stopped."""
        failure: Exception | None = None
        done: list[_T] = []

        async def renew(scope: anyio.CancelScope) -> None:
            nonlocal failure
            limiter = anyio.CapacityLimiter(1)  # not behind everything else that needs threads
            while True:
                await anyio.sleep(self._seconds / 3)
                try:
                    await to_thread.run_sync(self.renew, limiter=limiter)
                except PalaverError as error:
                    if type(error) is StoreError:  # the store does not answer: it may again
                        _log.warning("a lease was not renewed: %s", error)
                        continue
                    failure = error
                    scope.cancel()
                    return

        async with anyio.create_task_group() as group:
            group.start_soon(renew, group.cancel_scope)
            try:
                done.append(await work())
            except Exception as error:  # noqa: BLE001 - raised again below, outside of the group
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return done[0]


class OnExit:
    """An async context manager that does something at its end if it is still needed."""

    def __init__(self, work: Callable[[], object], needed: Callable[[], bool]) -> None:
        """Take the work, which runs in a worker thread, and what tells whether it is needed."""
        self._work = work
        self._needed = needed

    async def __aenter__(self) -> None:
        """Do nothing yet."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Do the work."""
        if self._needed():
            await clean_up(error, self._work)


async def clean_up(error: BaseException | None, work: Callable[[], object]) -> None:
    """Do something after an error, or after none, as `run_shielded` does.

    A coroutine that is closed (`GeneratorExit`) may not wait: then a thread does the work alone.
    """
    if isinstance(error, GeneratorExit):
        _run_detached(work)
    else:
        await run_shielded(work)


async def run_shielded(work: Callable[[], _T], *, undo: Callable[[_T], object] | None = None) -> _T:
    """Do something in a worker thread, and wait for its end even if the task is cancelled.

    A cancellation is raised afterwards, and what was done stands. With `undo`, what was done is
    undone in that case, and what has not begun does not begin. If the coroutine is closed and can't
    wait, a thread completes the work alone.
    """
    job = _Job(work, undo)
    cancelled: BaseException | None = None
    try:
        with anyio.CancelScope(shield=True):
            try:
                await to_thread.run_sync(job.run)
            except anyio.get_cancelled_exc_class() as error:
                cancelled = error
                job.unwanted = True
                await _wait_for_thread(job.run)
    except BaseException:
        job.unwanted = True
        _run_detached(job.run)
        raise
    if cancelled is not None:
        raise cancelled from job.error
    return job.result()


class _Job(Generic[_T]):
    """Work that is done once, in whichever worker thread comes first, and its result."""

    def __init__(self, work: Callable[[], _T], undo: Callable[[_T], object] | None) -> None:
        context = copy_context()
        self._work: Callable[[], _T] = lambda: context.run(work)  # in whichever thread
        self._undo = undo
        self._lock = threading.Lock()
        self._begun = False
        self._done: list[_T] = []
        self.error: BaseException | None = None
        self.unwanted = False

    def run(self) -> None:
        """Do the work; a second caller waits for the first. Unwanted work is undone."""
        with self._lock:
            withdrawn = self.unwanted and self._undo is not None
            try:
                if not self._begun and not withdrawn:
                    self._begun = True
                    self._done.append(self._work())
                if self.unwanted and self._undo is not None and self._done:
                    self._undo(self._done.pop())
            except BaseException as error:  # noqa: BLE001 - raised by `result`
                self.error = error

    def result(self) -> _T:
        """Return what the work returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self._done[0]


async def _wait_for_thread(work: Callable[[], object]) -> None:
    """Do something in a thread and wait for it, however often the task is cancelled meanwhile.

    Only asyncio's tasks come here. One of anyio's worker threads would not do: the wait for it can
    be cancelled before the thread begins, again and again.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def run() -> None:
        try:
            work()
        finally:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(ended.set_result, None)

    threading.Thread(target=run, name=_THREAD_NAME).start()
    while not ended.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([ended])


def _run_detached(work: Callable[[], object]) -> None:
    """Do something in a thread without waiting for it."""
    with suppress(RuntimeError):  # the interpreter is ending, and starts no threads
        threading.Thread(target=cast("Callable[[], None]", work), name=_THREAD_NAME).start()
