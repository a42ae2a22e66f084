"""The state of a team, and its place in the store.

`TeamState` is a pure value: who waits for a turn, whose turn is running, which human has the floor.
It is stored beside the log in the same change as the message that led to it, so that the two never
disagree, whenever the process ends. It names turns and members and repeats nothing of the messages.
`TeamStore` reads and writes it under a lease.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

import anyio
import msgspec
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from palaver.errors import LeaseLost, LeaseTaken, PalaverError, StoreDamaged
from palaver.messages import new_id
from palaver.messages.decode import decode
from palaver.stores.lease import OnExit, SharedLease, run_shielded
from palaver.team.routing import PRIORITY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from palaver.history import Expected
    from palaver.messages import Message
    from palaver.stores import StoredHistory
    from palaver.stores.records import Lease, Record
    from palaver.stores.store import Store
    from palaver.team.routing import Route

__all__ = [
    "KIND",
    "LEASE_SECONDS",
    "HumanTurnReason",
    "TeamState",
    "TeamStore",
    "TeamTurn",
    "read_state",
]

HumanTurnReason: TypeAlias = Literal["drained", "called", "lost", "limit", "cancelled"]
"""Why a human has the floor: nobody waits for a turn, the human was called, a member called only
names that can't be given a turn, the agents reached their limit of turns, or the turn was
cancelled."""

KIND: Final = "team"
_NAME: Final = "state"
LEASE_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.2
_T = TypeVar("_T")


class TeamTurn(Struct, frozen=True, omit_defaults=True):
    """A turn of a member; its id is the key of the message that ends it.

    `process` identifies the program that takes the turn, to find it again after a crash (see
    `palaver.stores.holders.process_mark`). `sees` is the version that the member was shown, once
    it has made tool calls in its turn.
    """

    id: str
    member: str
    priority: int = PRIORITY
    process: str | None = None
    sees: int | None = None


class TeamState(Struct, frozen=True, omit_defaults=True):
    """The state of a team.

    `queue` is in the order of the turns. `begun` is the running turn: after a crash it says what
    was interrupted. `floor` is the human who has the floor, `human` the one who spoke last, and
    `turns` counts the agents' turns since then.

    >>> from palaver.team.routing import Route, TurnRequest
    >>> route = Route(calls=(TurnRequest("max"), TurnRequest("sarah", 1)))
    >>> state, overflow = TeamState().enqueue(route, room=50)
    >>> [turn.member for turn in state.queue], overflow
    (['sarah', 'max'], ())
    """

    queue: tuple[TeamTurn, ...] = ()
    begun: TeamTurn | None = None
    floor: str | None = None
    why: HumanTurnReason = "called"
    human: str | None = None
    turns: int = 0
    paused: bool = False

    def enqueue(self, route: Route, room: int) -> tuple[TeamState, tuple[str, ...]]:
        """Remove the turns that a route drops, then add those it calls, as far as there is room.

        Returns the new state and the members for whom there was no room. Turns of the same
        priority stay in the order of their calls.
        """
        drop = route.drop
        left = [turn for turn in self.queue if drop is not None and turn.member not in drop]
        free = max(0, room - len(left))
        new = [TeamTurn(new_id(), call.member, call.priority) for call in route.calls[:free]]
        queue = tuple(sorted([*left, *new], key=lambda turn: turn.priority))
        return replace(self, queue=queue), tuple(call.member for call in route.calls[free:])

    def begin_turn(self) -> TeamState:
        """Begin the first turn of the queue."""
        return replace(self, begun=self.queue[0], queue=self.queue[1:])

    def set_process(self, process: str | None) -> TeamState:
        """Name the program that takes the running turn."""
        begun = self.begun
        return replace(self, begun=None if begun is None else replace(begun, process=process))

    def set_seen(self, version: int) -> TeamState:
        """Store which version the member of the running turn was shown."""
        begun = self.begun
        return replace(self, begun=None if begun is None else replace(begun, sees=version))

    def end_turn(self) -> TeamState:
        """End the running turn."""
        return replace(self, begun=None, turns=self.turns + 1)

    def hear(self, human: str) -> TeamState:
        """Record that a human has spoken, so that agents may take turns again."""
        return replace(self, floor=None, why="called", human=human, turns=0)

    def hand_to(self, human: str, why: HumanTurnReason) -> TeamState:
        """Give a human the floor."""
        return replace(self, floor=human, why=why, begun=None)

    def record(self) -> Record:
        """The record that stores the state."""
        return (KIND, _NAME, msgspec.json.encode(self))


def read_state(records: dict[str, bytes]) -> TeamState:
    """Read the state from a conversation's records; without a record it is the initial state."""
    stored = records.get(_NAME)
    if stored is None:
        return TeamState()
    try:
        return decode(stored, TeamState)
    except msgspec.DecodeError as error:
        msg = f"the stored state of the team can't be read: {error}"
        raise StoreDamaged(msg) from None


class TeamStore:
    """A team's synchronous access to its conversation, under a lease.

    A process that comes back after another has taken over is refused. The lease is short and
    renewed while there is work, so that another process can go on soon after this one was killed.
    """

    def __init__(self, store: Store, history: StoredHistory, seconds: float) -> None:
        """Read and write the state of one conversation, under leases of so many seconds."""
        self.store = store
        self.history = history
        self._seconds = seconds
        self.shared = SharedLease(store, history.id, seconds=seconds)
        self._lock = threading.Lock()
        self._holds = 0
        self._lease: Lease | None = None

    def load(self) -> TeamState:
        """Read the current state, and refresh the history."""
        self.history.refresh()
        return read_state(self.store.records(self.history.id, KIND))

    def save(self, state: TeamState) -> None:
        """Store a state that no message led to."""
        token = None if self._lease is None else self._lease.token
        self.store.put_records(self.history.id, [state.record()], token=token)

    def append(
        self,
        message: Message,
        state: TeamState,
        key: str | None,
        expect: Expected | None = None,
        calls: Iterable[Record] = (),
    ) -> Message:
        """Append a message and store the state that it leads to, in one change.

        `calls` are the records of the tool calls that it makes.

        Returns the stored message: under a key that was used before, the one of the first time,
        which has the same id.
        """
        records = [state.record(), *calls]
        self.history.extend([message], key=key, records=records, lease=self._lease, expect=expect)
        log = self.history.view.log
        return log[log.positions_of(message.id)[0]]

    # ── the lease ───────────────────────────────────────────────────────────────────────────────

    async def while_held(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Do some work while holding the lease; the work is cancelled if the lease is lost."""
        await self._acquire()
        failure: BaseException | None = None
        done: list[_T] = []

        async def renew(scope: anyio.CancelScope) -> None:
            nonlocal failure
            try:
                while True:
                    await anyio.sleep(self._seconds / 3)
                    await to_thread.run_sync(self._renew)
            except PalaverError as lost:
                failure = lost
                scope.cancel()

        async with (
            OnExit(self._release, needed=lambda: True),
            anyio.create_task_group() as group,
        ):
            group.start_soon(renew, group.cancel_scope)
            try:
                done.append(await work())
            except Exception as error:  # noqa: BLE001 - raised again below, outside of the group
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return done[0]

    async def _acquire(self) -> None:
        """Take the lease; wait for one to expire, since its holder may have died."""
        deadline = time.monotonic() + self._seconds + 1
        while True:
            try:
                await run_shielded(self._hold, undo=lambda _: self._release())
            except LeaseTaken:
                if time.monotonic() > deadline:
                    raise
                await anyio.sleep(_RETRY_SECONDS)
            else:
                return

    def _hold(self) -> None:
        with self._lock:
            if self._holds:
                self._check(self._take())
            else:
                self._lease = self.shared.acquire()
                self.history.under(self._lease)
            self._holds += 1

    def _renew(self) -> None:
        with self._lock:
            if self._holds:
                self._check(self._take())

    def _take(self) -> Lease:
        return self.store.lease(self.history.id, self.shared.holder, seconds=self._seconds)

    def _check(self, lease: Lease) -> None:
        """Refuse a lease with a new token: it expired, and others may have written meanwhile."""
        if self._lease is not None and lease.token != self._lease.token:
            msg = "the lease ran out before it was renewed"
            raise LeaseLost(msg)

    def _release(self) -> None:
        with self._lock:
            self._holds -= 1
            if not self._holds and self._lease is not None:
                self.shared.release(self._lease)
                self.history.under(None)
                self._lease = None
